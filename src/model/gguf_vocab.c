#include "model/gguf_vocab.h"
#include "api/config.h"
#include "api/model.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/place.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/build.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/tokenizer_files.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/source.h"
#include "model/gguf_pre.h"

/* An array of the vocabulary, whose type and length (-1: any) are checked; NULL: absent, or a failure was noted. */
static const llm__gguf_kv *llm__vocab_array(llm__tokenizer *t, const llm__gguf *g, const char *key, llm__gguf_type type, int64_t n) {
    const llm__gguf_kv *kv = llm__gguf_find(g, key);
    int fits = kv && kv->is_array && (kv->type == (int32_t)type || (type == LLM__GGUF_I32 && kv->type == LLM__GGUF_U32));
    if (kv && (!fits || kv->count > 4194304 || (n >= 0 && kv->count != (uint64_t)n)))
        LLM__TOK_BAD(t, "%s: %s expected", key,
                     type == LLM__GGUF_STR   ? "an array of at most 4194304 strings"
                     : type == LLM__GGUF_F32 ? "as many floats as tokens"
                                             : "as many 32-bit integers as tokens");
    return t->result ? NULL : kv;
}

/* The type of a token. Some that end turns or mark code to fill in are control tokens whatever the file says, because many files are wrong
 * there and a model that ends a turn with plain text never stops; some of gpt-oss are never control tokens, because its chat format is
 * parsed out of the text. */
static int llm__vocab_type_of(llm__str text, int type) {
    static const char control[] = LLM__ENDS
        "<|flush|> <|calls|> </s> _<EOT> [EOS] <eos> <|tool_response> [e~[ "
        "<|fim_prefix|> <fim-prefix> <fim_prefix> " LLM__DS(
            "fim" LLM__SP "begin") "<PRE> " LLM__SP "<PRE> <|code_prefix|> <|prefix|> "
                                   "<|fim_suffix|> <fim-suffix> <fim_suffix> " LLM__DS(
                                       "fim" LLM__SP "hole") "<SUF> " LLM__SP "<SUF> <|code_suffix|> <|suffix|> "
                                                             "<|fim_middle|> <fim-middle> <fim_middle> " LLM__DS(
                                                                 "fim" LLM__SP
                                                                 "end") "<MID> " LLM__SP "<MID> <|code_middle|> <|middle|> "
                                                                        "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> "
                                                                        "<|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>";
    if (!text.n || !memchr(">][", text.p[text.n - 1], 3)) return type; /* as nearly all tokens: none of these ends otherwise */
    if (llm__word_index("<|channel|> <|message|> <|start|> <|constrain|>", text) >= 0) return LLM__VOCAB_USER;
    return llm__word_index(control, text) >= 0 ? LLM__VOCAB_CONTROL : type;
}

/* The tokens with their scores and types; control, unknown and user-defined ones are sought in text as added tokens. */
static void llm__vocab_tokens(llm__tokenizer *t, const llm__gguf *g) {
    static const uint8_t flags[] = {0,
                                    0,
                                    LLM__TOKEN_SPECIAL | LLM__TOKEN_PLAIN,
                                    LLM__TOKEN_SPECIAL | LLM__TOKEN_PLAIN,
                                    LLM__TOKEN_USER | LLM__TOKEN_PLAIN,
                                    LLM__TOKEN_UNUSED,
                                    LLM__TOKEN_BYTE};
    const llm__gguf_kv *tokens = llm__vocab_array(t, g, "tokenizer.ggml.tokens", LLM__GGUF_STR, -1);
    int64_t n = tokens ? (int64_t)tokens->count : 0;
    const llm__gguf_kv *scores = llm__vocab_array(t, g, "tokenizer.ggml.scores", LLM__GGUF_F32, n),
                       *types = llm__vocab_array(t, g, "tokenizer.ggml.token_type", LLM__GGUF_I32, n);
    const uint8_t *at = n ? tokens->data : NULL;
    if (!n) LLM__TOK_BAD(t, "tokenizer.ggml.tokens: at least one token expected");
    llm__tok_reserve(t, n);
    for (int32_t i = 0; i < n && !t->result; i++) {
        char empty[24];
        double score = 0;
        llm__str text = llm__gguf_string(&at);
        int type = llm__vocab_type_of(text, types ? (int)llm__load_le(types->data + 4 * (size_t)i, 4) : 1);
        int found = type == LLM__VOCAB_CONTROL || type == LLM__VOCAB_UNKNOWN || type == LLM__VOCAB_USER;
        if (!text.n) text = llm__s(empty, (size_t)snprintf(empty, sizeof empty, "[EMPTY_%d]", (int)i));
        if (scores) (void)llm__gguf_num_at(scores, (uint64_t)i, &score);
        if (score != score) LLM__TOK_BAD(t, "tokenizer.ggml.scores[%d]: a number expected", (int)i);
        llm__tok_enter(t, text, i, type >= 0 && type < LLM__COUNT(flags) ? flags[type] : 0, score);
        if (found && text.n <= LLM__TOK_MAX_ADDED) llm__tok_enter_added(t, text, i, type == LLM__VOCAB_USER ? 0 : LLM__ADDED_SPECIAL);
    }
}

/* Merges "a b", in the order of their ranks. */
static void llm__vocab_merges(llm__tokenizer *t, const llm__gguf *g) {
    const llm__gguf_kv *merges = llm__vocab_array(t, g, "tokenizer.ggml.merges", LLM__GGUF_STR, -1);
    const uint8_t *at = merges ? merges->data : NULL;
    int32_t next = t->n_vocab;
    llm__tok_merge_reserve(t, merges ? (int64_t)merges->count : 0);
    for (int32_t i = 0; merges && i < (int32_t)merges->count && !t->result; i++) {
        llm__str s = llm__gguf_string(&at);
        const char *space = s.n > 1 ? (const char *)memchr(s.p + 1, ' ', s.n - 1) : NULL; /* a part may begin with one */
        size_t n = space ? (size_t)(space - s.p) : s.n;
        if (n + 1 >= s.n) LLM__TOK_BAD(t, "tokenizer.ggml.merges[%d]: two parts expected", (int)i);
        else llm__tok_merge_enter(t, llm__s(s.p, n), llm__s(space + 1, s.n - n - 1), 0, i, &next);
    }
}

/* BPE over ranked pairs ("gpt2", "gemma4"). What is no token stays a barrier; at the end it becomes the letters' own tokens, or with
 * spaces escaped its bytes <0x..>. Returns the flags of tokenizer.ggml.pre. */
static int llm__vocab_bpe(llm__tokenizer *t, const llm__gguf *g, llm__str pre) {
    int row = 0, n = LLM__COUNT(llm__pres);
    if (!pre.p) llm__log(t->log, LLM_LOG_WARN, "tokenizer.ggml.pre is missing: the default is used, answers may be worse");
    if (!pre.n) pre = llm__lit("default");
    while (row < n && llm__word_index(llm__pres[row].names, pre) < 0) row++;
    if (row == n) return LLM__TOK_FAIL(t, LLM_ERR_UNSUPPORTED, "tokenizer.ggml.pre: \"%.*s\" is unknown", llm__shown(pre), pre.p), 0;
    int flags = llm__pres[row].flags, spaces = flags & LLM__PRE_SPACES;
    llm__vocab_merges(t, g);
    llm__add_splits(t, llm__pres[row].regex, LLM__COUNT(llm__pres[row].regex));
    t->barrier = 1;
    t->whole = flags & LLM__PRE_WHOLE ? 1 : spaces ? 2 : 0;
    t->byte_fallback = t->drop_unknown = spaces != 0;
    t->alphabet_fallback = !spaces;
    llm__tok_add_literal(t, spaces ? LLM__LITERAL_SPACES : LLM__LITERAL_LETTERS, LLM__SPACES_KEEP);
    if (spaces) llm__tok_add_spaces(t, 0, 0, 0, llm__spm_mark);
    else llm__tok_add(t, &t->words, LLM__TOK_BYTES);
    return flags;
}

/* SentencePiece's BPE ("llama"): what is merged next is the token with the best score; unknown characters become byte tokens. */
static void llm__vocab_spm(llm__tokenizer *t, const llm__gguf *g) {
    int prefix = llm__gguf_bool(g, "tokenizer.ggml.add_space_prefix", 1);
    t->barrier = t->byte_fallback = t->fuse_unk = t->plain_bytes = 1;
    llm__tok_use_scores(t, 0);
    llm__tok_add_spaces(t, 0, prefix, 0, llm__spm_mark);
    llm__tok_add_literal(t, LLM__LITERAL_SPACES, prefix ? LLM__SPACES_FIRST : LLM__SPACES_KEEP);
}

/* SentencePiece's Unigram ("t5"). */
static void llm__vocab_ugm(llm__tokenizer *t, const llm__gguf *g) {
    const llm__gguf_kv *map = llm__gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
    t->model = LLM__TOK_UNIGRAM;
    int prefix = llm__gguf_bool(g, "tokenizer.ggml.add_space_prefix", 0);
    t->fuse_unk = 1;
    if (!llm__gguf_find(g, "tokenizer.ggml.scores")) LLM__TOK_BAD(t, "tokenizer.ggml.scores: missing");
    for (int32_t i = 0; i < t->n_vocab; i++)
        if (t->token[i].type & LLM__TOKEN_USER) t->token[i].score = 0;
    llm__tok_use_scores(t, LLM__TOKEN_SPECIAL | LLM__TOKEN_BYTE);
    if (map && map->is_array && (map->type == LLM__GGUF_U8 || map->type == LLM__GGUF_I8))
        llm__tok_set_charsmap(t, llm__s((const char *)map->data, (size_t)map->count));
    llm__tok_add_spaces(t, llm__gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", 0), prefix, 0, llm__spm_mark);
    llm__tok_add_literal(t, LLM__LITERAL_SPACES, prefix ? LLM__SPACES_FIRST : LLM__SPACES_KEEP);
}

/* "bert": every word begins with U+2581 in this vocabulary. */
static void llm__vocab_wpm(llm__tokenizer *t) {
    t->model = LLM__TOK_WORDPIECE;
    t->max_word = INT32_MAX - 1;
    llm__tok_add_literal(t, LLM__LITERAL_SPACES, LLM__SPACES_FIRST);
    llm__tok_add_parts(t, NULL, -1, 'n', llm__lit("GGUF bert"), &t->normalizers);
    llm__tok_add_parts(t, NULL, -1, 'p', llm__lit("BertPreTokenizer"), &t->words);
    llm__tok_add(t, &t->words, LLM__TOK_METASPACE)->text = llm__spm_mark;
}

/* Special tokens by what the file calls them, tokenizer.ggml.NAME_token_id. */
enum { LLM__ID_BOS, LLM__ID_EOS, LLM__ID_UNK, LLM__ID_SEP, LLM__ID_PAD, LLM__IDS = 8 };

/* The special ids that the file names, -1 for others. A file whose ids lie outside of its vocabulary is broken in a way that would show
 * only when somebody talks to it: it is refused at once. (Ids of a folder's JSON files may lie outside: padded vocabularies have them.) */
static void llm__vocab_ids(llm__tokenizer *t, const llm__gguf *g, int32_t *ids) {
    static const char *const names[LLM__IDS] = {"bos", "eos", "unknown", "seperator", "padding", "eot", "eom", "mask"}; /* so spelled */
    for (int i = 0; i < LLM__IDS; i++) {
        char key[48];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", names[i]);
        int64_t id = llm__gguf_int(g, key, llm__gguf_find(g, key) ? INT64_MIN : -1);
        if (id == 0xFFFFFFFF) id = -1; /* how some writers say "none" */
        if (id == INT64_MIN) LLM__TOK_BAD(t, "%s: a whole number expected", key);
        if (id < -1 || id >= t->n_vocab) LLM__TOK_BAD(t, "%s: token id %lld, the vocabulary has %d", key, (long long)id, (int)t->n_vocab);
        ids[i] = (int32_t)id;
    }
}

/* The kinds of tokenizer.ggml.model, with llama.cpp's defaults: ids up to PAD, whether BOS and EOS are added. */
enum { LLM__VOCAB_GPT2, LLM__VOCAB_GEMMA4, LLM__VOCAB_LLAMA, LLM__VOCAB_T5, LLM__VOCAB_BERT };
static const struct {
    const char *model, *kind;
    int32_t id[5];
    int add_bos, add_eos;
} llm__vocab_kinds[] = {{"gpt2", "BPE", {11, 11, -1, -1, -1}, 0, 0},
                        {"gemma4", "BPE", {-1, -1, -1, -1, -1}, 1, 0},
                        {"llama", "SPM", {1, 2, 0, -1, -1}, 1, 0},
                        {"t5", "Unigram", {-1, 1, 2, -1, 0}, 0, 1},
                        {"bert", "WordPiece", {101, -1, 100, 102, 0}, 1, 1}};

/* The ids of special tokens, and the frame. */
static void llm__vocab_frame(llm__tokenizer *t, const llm__gguf *g, int kind, int flags) {
    int32_t id[LLM__IDS];
    int bert = kind == LLM__VOCAB_BERT;
    llm__vocab_ids(t, g, id);
    for (int i = 0; i <= LLM__ID_PAD; i++) {
        int none = llm__vocab_kinds[kind].id[i] >= t->n_vocab || (i == LLM__ID_BOS && (flags & LLM__PRE_NO_BOS_ID));
        if (id[i] < 0 && !none) id[i] = llm__vocab_kinds[kind].id[i];
    }
    t->bos_id = id[LLM__ID_BOS], t->eos_id = id[LLM__ID_EOS], t->unk_id = id[LLM__ID_UNK], t->pad_id = id[LLM__ID_PAD];
    /* BERT always has both, and ends with SEP; gemma4 insists on BOS whatever the file says. */
    int must = bert || ((flags & LLM__PRE_SPACES) && (flags & LLM__PRE_BOS)), last = id[bert ? LLM__ID_SEP : LLM__ID_EOS];
    int bos = must || llm__vocab_kinds[kind].add_bos || (flags & LLM__PRE_BOS), eos = llm__vocab_kinds[kind].add_eos;
    if (!must) bos = llm__gguf_bool(g, "tokenizer.ggml.add_bos_token", bos);
    if (!bert) eos = llm__gguf_bool(g, "tokenizer.ggml.add_eos_token", eos);
    if (bos && t->bos_id >= 0) llm__frame_add(t, &t->before, 0, t->bos_id, "");
    if (eos && last >= 0) llm__frame_add(t, &t->after, 0, last, "");
    if (t->model != LLM__TOK_BPE && t->unk_id < 0) LLM__TOK_BAD(t, "tokenizer.ggml.unknown_token_id: missing");
    if (!t->before.len || !t->after.len || t->result) return;
    /* two texts as llama.cpp puts them: each has EOS behind it, and SEP stands between where the file says so; BERT has SEP behind both */
    const int sep = !bert && id[LLM__ID_SEP] >= 0 && llm__gguf_bool(g, "tokenizer.ggml.add_sep_token", 0);
    llm__pair_add(t, t->bos_id, 0), llm__pair_add(t, LLM__PLACE_FIRST, 0), llm__pair_add(t, last, 0);
    if (sep) llm__pair_add(t, id[LLM__ID_SEP], 0);
    llm__pair_add(t, LLM__PLACE_SECOND, bert), llm__pair_add(t, last, bert);
}

/* Reads the vocabulary of a GGUF file; a tokenizer.json inside it wins. */
static void llm__tok_load_gguf(llm__tokenizer *t, const llm__gguf *g) {
    llm__str model = llm__gguf_str(g, "tokenizer.ggml.model"), json = llm__gguf_str(g, "tokenizer.huggingface.json");
    int kind = 0, flags = 0;
    if (!model.p) LLM__TOK_FAIL(t, LLM_ERR_UNSUPPORTED, "tokenizer.ggml.model is absent: the file has no tokenizer, give one");
    if (json.p && !t->result) {
        int32_t id[LLM__IDS];
        llm__tok_load(t, json, "", NULL);
        llm__vocab_ids(t, g, id);
        t->bos_id = id[LLM__ID_BOS], t->eos_id = id[LLM__ID_EOS], t->pad_id = id[LLM__ID_PAD];
        return;
    }
    while (kind < LLM__COUNT(llm__vocab_kinds) && !llm__str_eq(model, llm__vocab_kinds[kind].model)) kind++;
    if (kind == LLM__COUNT(llm__vocab_kinds))
        LLM__TOK_FAIL(t, LLM_ERR_UNSUPPORTED, "tokenizer.ggml.model: \"%.*s\": llama, gpt2, t5 or bert expected", llm__shown(model),
                      model.p);
    llm__vocab_tokens(t, g);
    if (t->result) return;
    t->kind = llm__vocab_kinds[kind].kind;
    if (kind == LLM__VOCAB_GEMMA4) flags = llm__vocab_bpe(t, g, llm__lit("gemma4"));
    else if (kind == LLM__VOCAB_GPT2) flags = llm__vocab_bpe(t, g, llm__gguf_str(g, "tokenizer.ggml.pre"));
    else if (kind == LLM__VOCAB_LLAMA) llm__vocab_spm(t, g);
    else if (kind == LLM__VOCAB_T5) llm__vocab_ugm(t, g);
    else llm__vocab_wpm(t);
    llm__vocab_frame(t, g, kind, flags);
    llm__tok_finish(t);
}

LLM__PRIVATE llm_result llm__source_tokenizer(llm__source *s, const llm_model_config *cfg) {
    const char *path = cfg->tokenizer ? cfg->tokenizer : s->path;
    LLM__SCOPED(llm__tensors_free) llm__tensors unused = LLM__ZERO;
    llm__file f = LLM__ZERO;
    llm_result r = LLM_OK;
    if (!cfg->tokenizer) s->vocab_gguf = s->gguf;
    else if (llm__place_kind(&s->place, path) == LLM__PATH_FILE) r = llm__source_file(s, path, &f);
    if (!r && llm__is_gguf(&f)) r = llm__source_keys(s, path, &f, &unused, &s->vocab_gguf);
    if (r) return r;
    llm__tokenizer *t = llm__tok_new();
    if (!t) return llm__nomem();
    t->log = &s->log;
    if (s->vocab_gguf) llm__tok_load_gguf(t, s->vocab_gguf);
    else llm__tok_load_path(t, &s->place, path, s->tokenizer_config);
    r = t->result && s->vocab_gguf ? llm__error(t->result, "%s: %s", path, llm_last_error()) : t->result;
    t->log = NULL;
    s->tokenizer = t;
    if (r != LLM_ERR_IO || !cfg->dummy_weights || cfg->tokenizer) return r;
    llm__log(&s->log, LLM_LOG_WARN, "%s", llm_last_error()); /* random weights need no words: a bare folder will do */
    t->result = LLM_OK;
    t->kind = "none";
    return LLM_OK;
}
