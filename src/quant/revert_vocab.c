#include "quant/revert_vocab.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/tokenizer.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "tokenizer/tokenizer.h"
#include "model/gguf.h"
#include "model/source.h"
#include "model/gguf_pre.h"
#include "model/loader.h"

/* A merge of SentencePiece's: the words a and b become one of this score. */
typedef struct llm__joining {
    float score;
    int32_t a, b, made;
} llm__joining;

typedef struct llm__rewording {
    const llm_model *m;
    const llm__gguf *g;
    int32_t n;
    llm__str *text; /* (n) */
    uint8_t *type;  /* (n) LLM__VOCAB_* */
    llm__map ids;
    llm__joining *merge;
    size_t n_merges, cap;
    int spm;
    llm_text *out;
} llm__rewording;

static void llm__rewording_free(llm__rewording *w) {
    LLM_FREE(w->text);
    LLM_FREE(w->type);
    LLM_FREE(w->merge);
    llm__map_free(&w->ids);
}

static llm_result llm__rewording_refuse(const llm__rewording *w, const char *what) {
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s has no form in tokenizer.json that is known here", w->m->path, what);
}

/* Words and their types. */
static llm_result llm__rewording_read(llm__rewording *w) {
    const llm__gguf_kv *tokens = llm__gguf_find(w->g, "tokenizer.ggml.tokens"), *types = llm__gguf_find(w->g, "tokenizer.ggml.token_type");
    const llm__str model = llm__gguf_str(w->g, "tokenizer.ggml.model");
    if (!tokens || tokens->count > 1 << 24 || (!llm__str_eq(model, "gpt2") && !llm__str_eq(model, "llama")))
        return llm__rewording_refuse(w, "its vocabulary (tokenizer.ggml.model)");
    w->spm = llm__str_eq(model, "llama");
    w->n = (int32_t)tokens->count;
    w->text = LLM__NEW(llm__str, w->n);
    w->type = LLM__NEW(uint8_t, w->n);
    if (!w->text || !w->type) return llm__nomem();
    const uint8_t *at = tokens->data;
    for (int32_t i = 0; i < w->n; i++) {
        double type = LLM__VOCAB_NORMAL;
        w->text[i] = llm__gguf_string(&at);
        if (types && (uint64_t)i < types->count) llm__gguf_num_at(types, (uint64_t)i, &type);
        w->type[i] = (uint8_t)(type >= 1 && type <= 6 ? (int)type : (int)LLM__VOCAB_NORMAL);
        if (w->type[i] != LLM__VOCAB_UNUSED && llm__map_get(&w->ids, w->text[i]) < 0 && llm__map_put(&w->ids, w->text[i], i) < 0)
            return llm__nomem();
    }
    return LLM_OK;
}

/* 1 if a word is an added token: it is found in a text before it is cut. */
static int llm__rewording_added(const llm__rewording *w, int32_t i) {
    return w->type[i] == LLM__VOCAB_CONTROL || w->type[i] == LLM__VOCAB_USER || (w->spm && w->type[i] == LLM__VOCAB_UNKNOWN);
}

static int llm__rewording_order(const void *a, const void *b) {
    const llm__joining *x = (const llm__joining *)a, *y = (const llm__joining *)b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->made != y->made) return x->made < y->made ? -1 : 1;
    return x->a != y->a ? (x->a < y->a ? -1 : 1) : (x->b > y->b) - (x->b < y->b);
}

/* All merges of SentencePiece's words. */
static llm_result llm__rewording_join(llm__rewording *w) {
    const llm__gguf_kv *scores = llm__gguf_find(w->g, "tokenizer.ggml.scores");
    for (int32_t i = 0; i < w->n; i++) {
        const llm__str s = w->text[i];
        double score = 0;
        if (w->type[i] != LLM__VOCAB_NORMAL) continue;
        if (scores && (uint64_t)i < scores->count) llm__gguf_num_at(scores, (uint64_t)i, &score);
        for (size_t cut = 1; cut < s.n; cut++) {
            if (((uint8_t)s.p[cut] & 0xC0) == 0x80) continue;
            const int32_t a = llm__map_get(&w->ids, llm__s(s.p, cut)), b = llm__map_get(&w->ids, llm__str_from(s, cut));
            if (a < 0 || b < 0 || w->type[a] != LLM__VOCAB_NORMAL || w->type[b] != LLM__VOCAB_NORMAL) continue;
            if (!llm__grow((void **)&w->merge, &w->cap, w->n_merges + 1, sizeof *w->merge)) return llm__nomem();
            const llm__joining made = {(float)score, a, b, i};
            w->merge[w->n_merges++] = made;
        }
    }
    if (w->n_merges) qsort(w->merge, w->n_merges, sizeof *w->merge, llm__rewording_order);
    return LLM_OK;
}

static void llm__rewording_pair(const llm__rewording *w, int first, llm__str a, llm__str b) {
    llm_text_str(w->out, first ? "[" : ",[");
    llm_text_json(w->out, a.p, a.n);
    llm_text_str(w->out, ",");
    llm_text_json(w->out, b.p, b.n);
    llm_text_str(w->out, "]");
}

/* "model": words and merges. */
static llm_result llm__rewording_model(llm__rewording *w, int whole) {
    const llm__gguf_kv *merges = w->spm ? NULL : llm__gguf_find(w->g, "tokenizer.ggml.merges");
    int32_t n = 0, unk = -1;
    for (int32_t i = 0; i < w->n && unk < 0; i++)
        if (w->type[i] == LLM__VOCAB_UNKNOWN) unk = i;
    llm_text_str(w->out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    if (w->spm && unk >= 0) llm_text_json(w->out, w->text[unk].p, w->text[unk].n);
    else llm_text_str(w->out, "null");
    llm_text_format(w->out,
                    ",'continuing_subword_prefix':null,'end_of_word_suffix':null,'fuse_unk':%b,'byte_fallback':%b,'ignore_merges':%b,"
                    "'vocab':{",
                    w->spm, w->spm, whole);
    for (int32_t i = 0; i < w->n; i++) {
        /* added tokens, too: those that are not here get ids behind the last one, whatever added_tokens says */
        if (w->type[i] == LLM__VOCAB_UNUSED || llm__map_get(&w->ids, w->text[i]) != i) continue;
        if (n++) llm_text_str(w->out, ",");
        llm_text_json(w->out, w->text[i].p, w->text[i].n);
        llm_text_str(w->out, ":");
        llm_text_int(w->out, i);
    }
    llm_text_str(w->out, "},\"merges\":[");
    for (size_t i = 0; i < w->n_merges; i++) llm__rewording_pair(w, !i, w->text[w->merge[i].a], w->text[w->merge[i].b]);
    const uint8_t *at = merges ? merges->data : NULL;
    for (uint64_t i = 0; merges && i < merges->count; i++) {
        const llm__str s = llm__gguf_string(&at);
        const char *space = s.n > 1 ? (const char *)memchr(s.p + 1, ' ', s.n - 1) : NULL;
        if (!space) return llm__rewording_refuse(w, "a merge that is no pair (tokenizer.ggml.merges)");
        llm__rewording_pair(w, !i, llm__s(s.p, (size_t)(space - s.p)), llm__str_from(s, (size_t)(space - s.p) + 1));
    }
    llm_text_str(w->out, "]}}\n");
    return LLM_OK;
}

/* "pre_tokenizer" and what goes with it: SentencePiece's blanks, or regexes and bytes. */
static llm_result llm__rewording_cuts(const llm__rewording *w, int *whole) {
    llm__str pre = llm__gguf_str(w->g, "tokenizer.ggml.pre");
    const int prefix = llm__gguf_bool(w->g, "tokenizer.ggml.add_space_prefix", 1);
    int row = 0;
    *whole = 0;
    if (w->spm) {
        llm_text_format(w->out,
                        "'normalizer':{'type':'Sequence','normalizers':[%s{'type':'Replace','pattern':{'String':' '},'content':'%s'}]},",
                        prefix ? "{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"}," : "", "\xE2\x96\x81");
        llm_text_format(w->out,
                        "'pre_tokenizer':null,'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'%s'},"
                        "'content':' '},{'type':'ByteFallback'},{'type':'Fuse'}%s]},",
                        "\xE2\x96\x81", prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
        return LLM_OK;
    }
    if (!pre.n) pre = llm__lit("default");
    while (row < LLM__COUNT(llm__pres) && llm__word_index(llm__pres[row].names, pre) < 0) row++;
    if (row == LLM__COUNT(llm__pres) || llm__pres[row].flags & LLM__PRE_SPACES)
        return llm__rewording_refuse(w, "how it cuts text (tokenizer.ggml.pre)");
    *whole = (llm__pres[row].flags & LLM__PRE_WHOLE) != 0;
    llm_text_str(w->out, "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (int i = 0; i < LLM__COUNT(llm__pres[row].regex) && llm__pres[row].regex[i]; i++)
        llm_text_format(w->out, "{'type':'Split','pattern':{'Regex':%q},'behavior':'Isolated','invert':false},", llm__pres[row].regex[i]);
    llm_text_str(w->out, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]},"
                         "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},");
    return LLM_OK;
}

static void llm__rewording_special(const llm__rewording *w, int32_t id) {
    llm_text_str(w->out, "{\"SpecialToken\":{\"id\":");
    llm_text_json(w->out, w->text[id].p, w->text[id].n);
    llm_text_str(w->out, ",\"type_id\":0}}");
}

/* "post_processor": what a text is framed by. */
static llm_result llm__rewording_frame(const llm__rewording *w) {
    LLM__SCOPED(llm_tokens_free) llm_tokens ids = LLM__ZERO, bare = LLM__ZERO;
    llm_result r = llm_tokenize(w->m, "a", 1, LLM_TOK_ADD_SPECIAL, &ids);
    if (!r) r = llm_tokenize(w->m, "a", 1, 0, &bare);
    if (r) return r;
    const size_t more = ids.len - bare.len;
    const int front = more && bare.len && ids.data[0] != bare.data[0], back = more > (size_t)front;
    const int32_t frame[2] = {front ? ids.data[0] : -1, back ? ids.data[ids.len - 1] : -1};
    if (more > 2 || frame[0] >= w->n || frame[1] >= w->n) return llm__rewording_refuse(w, "what it puts before a text");
    if (!more) {
        llm_text_str(w->out, "\"post_processor\":null,");
        return LLM_OK;
    }
    llm_text_str(w->out, "\"post_processor\":{\"type\":\"TemplateProcessing\"");
    for (int pair = 0; pair < 2; pair++) {
        llm_text_str(w->out, pair ? ",\"pair\":[" : ",\"single\":[");
        for (int part = 0; part <= pair; part++) {
            if (part) llm_text_str(w->out, ",");
            if (front) llm__rewording_special(w, frame[0]), llm_text_str(w->out, ",");
            llm_text_format(w->out, "{'Sequence':{'id':%q,'type_id':%d}}", part ? "B" : "A", part);
            if (back) llm_text_str(w->out, ","), llm__rewording_special(w, frame[1]);
        }
        llm_text_str(w->out, "]");
    }
    llm_text_str(w->out, ",\"special_tokens\":{");
    for (int i = 0, n = 0; i < 2; i++) {
        if (frame[i] < 0 || (i && frame[1] == frame[0])) continue;
        const llm__str s = w->text[frame[i]];
        if (n++) llm_text_str(w->out, ",");
        llm_text_json(w->out, s.p, s.n);
        llm_text_str(w->out, ":{\"id\":");
        llm_text_json(w->out, s.p, s.n);
        llm_text_format(w->out, ",'ids':[%d],'tokens':[", (int)frame[i]);
        llm_text_json(w->out, s.p, s.n);
        llm_text_str(w->out, "]}");
    }
    llm_text_str(w->out, "}},");
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__revert_tokenizer(const llm_model *m, llm_text *out) {
    LLM__SCOPED(llm__rewording_free) llm__rewording w = LLM__ZERO;
    int whole = 0, n = 0;
    w.m = m, w.g = m->source.vocab_gguf, w.out = out;
    llm_result r = w.g ? llm__rewording_read(&w) : llm__rewording_refuse(&w, "a tokenizer of another file");
    if (!r && w.spm) r = llm__rewording_join(&w);
    if (r) return r;
    llm_text_str(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    for (int32_t i = 0; i < w.n; i++) {
        if (!llm__rewording_added(&w, i)) continue;
        llm_text_format(out, "%s{'id':%d,'content':", n++ ? "," : "", (int)i);
        llm_text_json(out, w.text[i].p, w.text[i].n);
        llm_text_format(out, ",'single_word':false,'lstrip':false,'rstrip':false,'normalized':false,'special':%b}",
                        w.type[i] != LLM__VOCAB_USER);
    }
    llm_text_str(out, "],");
    r = llm__rewording_cuts(&w, &whole);
    if (!r) r = llm__rewording_frame(&w);
    if (!r) r = llm__rewording_model(&w, whole);
    return r ? r : out->failed ? llm__nomem() : LLM_OK;
}

LLM__PRIVATE void llm__revert_tokenizer_config(const llm_model *m, llm_text *out) {
    const llm__source *s = &m->source;
    const int32_t id[4] = {s->bos_id, s->eos_id, s->pad_id, s->unk_id};
    static const char *const names[4] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    const llm__gguf_kv *tokens = s->vocab_gguf ? llm__gguf_find(s->vocab_gguf, "tokenizer.ggml.tokens") : NULL;
    llm_text_format(out, "{'tokenizer_class': 'PreTrainedTokenizerFast', 'clean_up_tokenization_spaces': false, 'model_max_length': %d",
                    (int)m->arch.max_positions);
    for (int k = 0; k < 4; k++) {
        const uint8_t *at = tokens ? tokens->data : NULL;
        llm__str text = LLM__ZERO;
        if (!tokens || id[k] < 0 || (uint64_t)id[k] >= tokens->count) continue;
        for (int32_t i = 0; i <= id[k]; i++) text = llm__gguf_string(&at);
        llm_text_format(out, ", %q: ", names[k]);
        llm_text_json(out, text.p, text.n);
    }
    if (s->chat_template_text) llm_text_format(out, ", 'chat_template': %q", s->chat_template_text);
    llm_text_str(out, "}\n");
}
