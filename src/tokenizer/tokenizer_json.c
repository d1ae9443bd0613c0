#include "tokenizer/tokenizer_json.h"
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "text/unicode_classes.h"
#include "text/normal_form.h"
#include "text/regex.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/subword.h"
#include "tokenizer/build.h"
#include "tokenizer/components.h"

/* A string member copied to live as long as the tokenizer; `otherwise` if absent or empty. */
static llm__str llm__json_keep(llm__tokenizer *t, const llm_json *d, int object, const char *key, llm__str otherwise) {
    llm__str s = llm__json_text_at(d, object, key);
    return s.n ? llm__tok_keep(t, s) : otherwise;
}

/* A count of a component. */
static int llm__part_count(llm__tokenizer *t, const llm_json *d, int node, const char *key, int otherwise, int most) {
    int at = llm_json_find(d, node, key);
    int64_t n = at >= 0 ? llm__json_whole(d, at, -1) : otherwise;
    if (n < 0 || n > most) LLM__TOK_BAD(t, "tokenizer.json: %s: a number from 0 to %d expected", key, most);
    return t->result ? 0 : (int)n;
}

/* The pattern of a SPLIT or REPLACE that the table does not give, in *pattern; 1 if it is a text, not a regex. Split and Replace name it
 * {"String": s}, {"Regex": s} or, in old files, as a string. */
static int llm__part_pattern(llm__tokenizer *t, const llm_json *d, int node, const llm__tok_part *part, const llm__tok_steps *steps,
                             llm__str *pattern) {
    int given = llm_json_find(d, node, "pattern");
    if (!strcmp(part->type, "Metaspace")) return *pattern = steps->v[steps->n - 1].text, 1; /* the mark of the row before */
    if (!strcmp(part->type, "CharDelimiterSplit")) return *pattern = llm__json_text_at(d, node, "delimiter"), 1;
    if (!strcmp(part->type, "FixedLength")) {
        char s[40];
        int n = llm__part_count(t, d, node, "length", 5, LLM__RX_MAX_COUNT);
        if (!n) LLM__TOK_BAD(t, "tokenizer.json: length: a number from 1 on expected");
        *pattern = llm__tok_keep(t, llm__s(s, (size_t)snprintf(s, sizeof s, "[\\s\\S]{1,%d}", n)));
        return 0;
    }
    llm__str regex = llm__json_text_at(d, given, "Regex"), text = llm__json_text_at(d, given, "String");
    if (!regex.p && !text.p) text = llm__json_text(d, given);
    if (!regex.p && !text.p) LLM__TOK_BAD(t, "tokenizer.json: a pattern with String or Regex expected");
    *pattern = regex.p ? regex : text;
    return !regex.p;
}

/* ---- a function a kind of step: what the component (node of d) says about it ---- */

static void llm__part_split(llm__tokenizer *t, const llm_json *d, int node, const llm__tok_part *part, llm__tok_step *step) {
    static const char words[] = "Removed Isolated MergedWithPrevious MergedWithNext Contiguous"; /* in the order of LLM__SPLIT_* */
    step->as.split.behaviour = part->how;
    if (part->how != LLM__TOK_ASK) return;
    llm__str say = llm__json_text_at(d, node, "behavior");
    step->as.split.invert = llm__json_flag(d, node, "invert", 0);
    step->as.split.behaviour = say.p ? llm__word_index(words, say) : LLM__SPLIT_ISOLATED;
    if (step->as.split.behaviour < 0)
        LLM__TOK_FAIL(t, LLM_ERR_UNSUPPORTED, "tokenizer.json: behavior: \"%.*s\" is unknown", llm__shown(say), say.p);
}

/* text: what is replaced, where it is no regex. */
static void llm__part_replace(llm__tokenizer *t, const llm_json *d, int node, const llm__tok_part *part, llm__str text,
                              llm__tok_step *step) {
    size_t one = 0;
    if (!part->text) step->with = llm__json_keep(t, d, node, "content", llm__nothing);
    step->text = text.n ? llm__tok_keep(t, text) : llm__nothing;
    if (step->text.n) (void)llm__uni_next(step->text, &one);
    step->as.one_char = one && one == step->text.n;
}

/* An old form, add_prefix_space, and a new one, prepend_scheme. */
static void llm__part_metaspace(llm__tokenizer *t, const llm_json *d, int node, const llm__tok_part *part, llm__tok_step *step) {
    step->as.scheme = part->how;
    if (part->text) return;
    llm__str say = llm__json_text_at(d, node, "prepend_scheme");
    int always = say.p ? !llm__str_eq(say, "never") : llm__json_flag(d, node, "add_prefix_space", 1);
    step->text = llm__json_keep(t, d, node, "replacement", llm__spm_mark);
    step->as.scheme = say.p && llm__str_eq(say, "first") ? LLM__PREPEND_FIRST : always ? LLM__PREPEND_ALWAYS : LLM__PREPEND_NEVER;
}

static void llm__part_strip(llm__tokenizer *t, const llm_json *d, int node, llm__tok_step *step) {
    step->text = llm__json_keep(t, d, node, "content", llm__nothing);
    step->as.strip.left = llm__part_count(t, d, node, "start", 0, 1000);
    step->as.strip.right = llm__part_count(t, d, node, "stop", 0, 1000);
    if (!step->text.n) LLM__TOK_BAD(t, "tokenizer.json: Strip: content expected");
}

static void llm__part_charsmap(llm__tokenizer *t, const llm_json *d, int node) {
    t->scratch.len = 0;
    if (!llm__base64(llm__json_text_at(d, node, "precompiled_charsmap"), &t->scratch))
        LLM__TOK_BAD(t, "tokenizer.json: precompiled_charsmap: base64 expected");
    if (t->scratch.failed && !t->result) t->result = llm__nomem();
    llm__tok_set_charsmap(t, llm__text_str(&t->scratch));
}

/* SUFFIX, CONTINUE, CTC: decoders that have several names for one thing. */
static void llm__part_mark(llm__tokenizer *t, const llm_json *d, int node, llm__tok_step *step) {
    static const char *const names[] = {"suffix", "prefix", "pad_token"};
    for (int k = 0; k < LLM__COUNT(names) && !step->text.n; k++) step->text = llm__json_keep(t, d, node, names[k], llm__nothing);
    if (!step->text.n && step->kind == LLM__TOK_SUFFIX) step->text = llm__lit("</w>");
    step->with = llm__json_keep(t, d, node, "word_delimiter_token", llm__nothing);
    step->as.clean_up = llm__json_flag(d, node, "cleanup", 1);
}

/* Adds the step of one row of the table. */
static void llm__tok_add_part(llm__tokenizer *t, const llm_json *d, int node, const llm__tok_part *part, llm__tok_steps *steps) {
    llm__str pattern = part->pattern ? llm__lit(part->pattern) : llm__nothing;
    int literal = 0;
    if (!part->pattern && (part->kind == LLM__TOK_SPLIT || part->kind == LLM__TOK_REPLACE))
        literal = llm__part_pattern(t, d, node, part, steps, &pattern);
    llm__tok_step *step = llm__tok_add_regex(t, steps, part->kind, pattern, literal);
    if (t->result) return;
    step->text = step->with = part->text ? llm__lit(part->text) : llm__nothing;
    switch (part->kind) {
    case LLM__TOK_SPLIT: llm__part_split(t, d, node, part, step); break;
    case LLM__TOK_REPLACE: llm__part_replace(t, d, node, part, literal ? pattern : llm__nothing, step); break;
    case LLM__TOK_METASPACE: llm__part_metaspace(t, d, node, part, step); break;
    case LLM__TOK_STRIP: llm__part_strip(t, d, node, step); break;
    case LLM__TOK_FORM:
        step->as.form = part->how;
        if (!t->norm && (t->norm = (llm__uni_norm *)llm__tok_get(t, sizeof *t->norm)) != NULL) llm__uni_norm_unpack(t->norm);
        break;
    case LLM__TOK_CHARSMAP: llm__part_charsmap(t, d, node); break;
    case LLM__TOK_LITERAL: step->as.literal.tokens = part->how; break;
    case LLM__TOK_PREPEND: step->text = llm__json_keep(t, d, node, "prepend", llm__nothing); break;
    case LLM__TOK_SUFFIX:
    case LLM__TOK_CONTINUE:
    case LLM__TOK_CTC: llm__part_mark(t, d, node, step); break;
    default: break;
    }
}

LLM__PRIVATE int llm__tok_add_parts(llm__tokenizer *t, const llm_json *d, int node, char list, llm__str type, llm__tok_steps *steps) {
    int known = 0;
    for (int i = 0; i < LLM__COUNT(llm__parts) && !t->result; i++) {
        const llm__tok_part *part = &llm__parts[i];
        if (part->list != list || !llm__str_eq(type, part->type)) continue;
        int otherwise = part->otherwise < 0 ? llm__json_flag(d, node, "lowercase", 1) : part->otherwise;
        int no = part->only && *part->only == '!';
        if (!part->only || llm__json_flag(d, node, part->only + no, otherwise) != no) llm__tok_add_part(t, d, node, part, steps);
        known = 1;
    }
    return known;
}

/* TemplateProcessing: what stands before and after the sequence in "single", a list of {"SpecialToken": {"id": name}} and {"Sequence":
 * ..}; the ids of a name are in "special_tokens". */
static void llm__tok_load_template(llm__tokenizer *t, const llm_json *d, int node) {
    int specials = llm_json_find(d, node, "special_tokens"), after = 0;
    size_t before = 0;
    for (int v = llm_json_first(d, llm_json_find(d, node, "single")); v >= 0; v = llm_json_next(d, v)) {
        int special = llm_json_find(d, v, "SpecialToken");
        llm__str name = llm__json_text_at(d, special, "id");
        int found = name.p ? llm__json_member(d, specials, name) : -1;
        after |= special < 0;
        if (special >= 0 && found < 0) LLM__TOK_BAD(t, "tokenizer.json: post_processor: a special token is not among its special_tokens");
        for (int k = llm_json_first(d, llm_json_find(d, found, "ids")); k >= 0; k = llm_json_next(d, k)) {
            size_t at = after ? t->after.len : before++;
            llm__frame_add(t, after ? &t->after : &t->before, at, llm__json_whole(d, k, -1), "post_processor: ids of tokens expected");
        }
    }
}

/* The same of two texts, "pair": {"SpecialToken": {"id", "type_id"}} and {"Sequence": {"id": "A" or "B", "type_id"}}. */
static void llm__tok_load_pair(llm__tokenizer *t, const llm_json *d, int node) {
    const int specials = llm_json_find(d, node, "special_tokens");
    t->n_pair = 0;
    for (int v = llm_json_first(d, llm_json_find(d, node, "pair")); v >= 0; v = llm_json_next(d, v)) {
        const int special = llm_json_find(d, v, "SpecialToken"), piece = special >= 0 ? special : llm_json_find(d, v, "Sequence");
        const llm__str name = llm__json_text_at(d, piece, "id");
        const int64_t type = llm__json_whole(d, llm_json_find(d, piece, "type_id"), 0);
        if (special < 0) llm__pair_add(t, llm__str_eq(name, "A") ? LLM__PLACE_FIRST : LLM__PLACE_SECOND, type);
        const int found = special >= 0 && name.p ? llm__json_member(d, specials, name) : -1;
        for (int k = llm_json_first(d, llm_json_find(d, found, "ids")); k >= 0; k = llm_json_next(d, k)) {
            const int64_t id = llm__json_whole(d, k, -1);
            llm__pair_add(t, id < 0 ? INT64_MAX : id, type);
        }
    }
}

/* A post-processor. Of several each stands around those before. 0: its type is unknown. BERT puts [CLS] A [SEP] B [SEP], of which the
 * second text and what is behind it are of kind 1; RoBERTa <s> A </s></s> B </s>. */
static int llm__tok_load_post(llm__tokenizer *t, const llm_json *d, int node, llm__str type) {
    if (llm__str_eq(type, "ByteLevel")) return 1; /* moves offsets only */
    if (llm__str_eq(type, "TemplateProcessing")) return llm__tok_load_template(t, d, node), llm__tok_load_pair(t, d, node), 1;
    if (!llm__str_eq(type, "BertProcessing") && !llm__str_eq(type, "RobertaProcessing")) return 0;
    const int roberta = llm__str_eq(type, "RobertaProcessing");
    int64_t ids[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        int pair = llm_json_find(d, node, k ? "sep" : "cls");
        int64_t id = llm__json_whole(d, llm_json_next(d, llm_json_first(d, pair)), -1);
        llm__frame_add(t, k ? &t->after : &t->before, k ? t->after.len : 0, id, "post_processor: cls and sep: [token, id] expected");
        ids[k] = id < 0 ? INT64_MAX : id;
    }
    t->n_pair = 0;
    llm__pair_add(t, ids[0], 0), llm__pair_add(t, LLM__PLACE_FIRST, 0), llm__pair_add(t, ids[1], 0);
    if (roberta) llm__pair_add(t, ids[1], 0);
    llm__pair_add(t, LLM__PLACE_SECOND, !roberta), llm__pair_add(t, ids[1], !roberta);
    return 1;
}

/* Loads a component; a Sequence is a list of them under the list's name. null is none. Without steps it is a post-processor. */
static void llm__tok_load_steps(llm__tokenizer *t, const llm_json *d, int node, const char *list, llm__tok_steps *steps, int depth) {
    llm_json_type kind = llm_json_type_of(d, node);
    llm__str type = llm__json_text_at(d, node, "type");
    if (kind == LLM_JSON_ABSENT || kind == LLM_JSON_NULL || t->result) return;
    if (depth > LLM__TOK_MAX_DEPTH) {
        LLM__TOK_FAIL(t, LLM_ERR_LIMIT, "tokenizer.json: %s nested deeper than %d", list, LLM__TOK_MAX_DEPTH);
    } else if (!type.p) {
        LLM__TOK_BAD(t, "tokenizer.json: a component of %s has no type", list);
    } else if (llm__str_eq(type, "Sequence")) {
        for (int v = llm_json_first(d, llm_json_find(d, node, list)); v >= 0; v = llm_json_next(d, v))
            llm__tok_load_steps(t, d, v, list, steps, depth + 1);
    } else if (!(steps ? llm__tok_add_parts(t, d, node, *list, type, steps) : llm__tok_load_post(t, d, node, type))) {
        LLM__TOK_FAIL(t, LLM_ERR_UNSUPPORTED, "tokenizer.json: %s: unknown type \"%.*s\"", list, llm__shown(type), type.p);
    }
}

/* The vocabulary: an object of ids {"token": id}, or (Unigram) a list of [token, score], whose place is the id. With the added tokens it
 * says how many there are, which bounds the ids. */
static void llm__tok_load_vocab(llm__tokenizer *t, const llm_json *d, int vocab) {
    int list = llm_json_type_of(d, vocab) == LLM_JSON_ARRAY;
    if (!list && llm_json_type_of(d, vocab) != LLM_JSON_OBJECT) LLM__TOK_BAD(t, "tokenizer.json: model.vocab expected");
    int64_t n = (int64_t)llm_json_size(d, vocab) + llm_json_size(d, llm_json_find(d, 0, "added_tokens"));
    if (!n) LLM__TOK_BAD(t, "tokenizer.json: model.vocab: no tokens");
    llm__tok_reserve(t, n);
    for (int v = llm_json_first(d, vocab), place = 0; v >= 0 && !t->result; v = llm_json_next(d, v), place++) {
        llm__str s = list ? llm__json_text(d, llm_json_first(d, v)) : llm__json_key(d, v);
        double score = 0;
        const int64_t id = list ? place : llm__json_whole(d, v, -1);
        if (!s.p) LLM__TOK_BAD(t, "tokenizer.json: model.vocab: a token expected");
        if (list && !llm_json_num(d, llm_json_next(d, llm_json_first(d, v)), &score))
            LLM__TOK_BAD(t, "tokenizer.json: model.vocab[%d]: a score expected", place);
        if (id < 0) LLM__TOK_BAD(t, "tokenizer.json: model.vocab[\"%.*s\"]: a whole number from 0 on expected", llm__shown(s), s.p);
        llm__tok_enter(t, s, id, 0, score);
    }
}

/* The merges, "a b" or ["a", "b"]; their place in the list is their rank. Both parts and what they make must be tokens. */
static void llm__tok_load_merges(llm__tokenizer *t, const llm_json *d, int merges) {
    int32_t rank = 0;
    if (llm_json_type_of(d, merges) != LLM_JSON_ARRAY) LLM__TOK_BAD(t, "tokenizer.json: model.merges: a list expected");
    llm__tok_merge_reserve(t, llm_json_size(d, merges));
    for (int v = llm_json_first(d, merges); v >= 0 && !t->result; v = llm_json_next(d, v), rank++) {
        llm__str line = llm__json_text(d, v), a = line, b = {NULL, 0};
        const char *space = line.p ? (const char *)memchr(line.p, ' ', line.n) : NULL;
        if (line.p && llm__starts(line, llm__lit("#version"))) continue;
        if (space) {
            a.n = (size_t)(space - line.p);
            b = llm__str_from(line, a.n + 1);
        } else if (llm_json_type_of(d, v) == LLM_JSON_ARRAY && llm_json_size(d, v) == 2) {
            a = llm__json_text(d, llm_json_first(d, v));
            b = llm__json_text(d, llm_json_next(d, llm_json_first(d, v)));
        }
        if (!a.p || !b.p || (space && memchr(b.p, ' ', b.n)))
            LLM__TOK_BAD(t, "tokenizer.json: model.merges[%d]: two parts expected", (int)rank);
        else if (!llm__tok_merge_enter(t, a, b, t->prefix.n, rank, NULL))
            LLM__TOK_BAD(t, "tokenizer.json: model.merges[%d]: \"%.*s\" and \"%.*s\": tokens that make a token expected", (int)rank,
                         llm__shown(a), a.p, llm__shown(b), b.p);
    }
}

/* The model's own settings. Without a type it shows by its vocabulary: a list is Unigram, an object with merges BPE. An unknown token that
 * is named must be a token; WordPiece and WordLevel cannot do without, BPE drops what it does not know. */
static void llm__tok_load_model(llm__tokenizer *t, const llm_json *d, int model, int vocab) {
    static const char *const names[] = {"BPE", "Unigram", "WordPiece", "WordLevel"}; /* in the order of llm__tok_model */
    int list = llm_json_type_of(d, vocab) == LLM_JSON_ARRAY, merges = llm_json_find(d, model, "merges"), which = -1;
    llm__str type = llm__json_text_at(d, model, "type"), unk = llm__json_text_at(d, model, "unk_token");
    double dropout = 0;
    if (!type.p) type = list ? llm__lit("Unigram") : merges >= 0 ? llm__lit("BPE") : llm__nothing;
    for (int i = 0; i < LLM__COUNT(names); i++)
        if (llm__str_eq(type, names[i])) which = i;
    if ((which == LLM__TOK_UNIGRAM) != list)
        LLM__TOK_BAD(t, "tokenizer.json: model.type \"%.*s\": its own form of vocab expected", llm__shown(type), type.p);
    if (which < 0) LLM__TOK_FAIL(t, LLM_ERR_UNSUPPORTED, "tokenizer.json: model.type: \"%.*s\" is unknown", llm__shown(type), type.p);
    if (t->result) return;
    t->kind = names[which];
    t->model = (llm__tok_model)which;
    t->fuse_unk = list || llm__json_flag(d, model, "fuse_unk", 0);
    t->byte_fallback = which <= LLM__TOK_UNIGRAM && llm__json_flag(d, model, "byte_fallback", 0);
    t->whole = llm__json_flag(d, model, "ignore_merges", 0);
    if (llm_json_num(d, llm_json_find(d, model, "dropout"), &dropout) && dropout > 0)
        LLM__TOK_FAIL(t, LLM_ERR_UNSUPPORTED, "tokenizer.json: model.dropout: null expected");
    t->prefix = llm__json_keep(t, d, model, "continuing_subword_prefix", llm__nothing);
    t->suffix = llm__json_keep(t, d, model, "end_of_word_suffix", llm__nothing);
    /* WordPiece's prefix has a default, BPE's has none. */
    if (which >= LLM__TOK_WORDPIECE && llm_json_find(d, model, "continuing_subword_prefix") < 0) t->prefix = llm__lit("##");
    t->max_word = (int)LLM__MAX(0, LLM__MIN(llm__json_whole(d, llm_json_find(d, model, "max_input_chars_per_word"), 100), INT32_MAX));
    if (list) {
        int64_t id = llm__json_whole(d, llm_json_find(d, model, "unk_id"), -1);
        if (id < 0 || id >= llm_json_size(d, vocab)) LLM__TOK_BAD(t, "tokenizer.json: model.unk_id: the id of a token expected");
        else t->unk_id = (int32_t)id;
        llm__tok_use_scores(t, 0);
        return;
    }
    if (unk.p) t->unk_id = llm__tok_find(t, unk);
    if ((unk.p || which != LLM__TOK_BPE) && t->unk_id < 0)
        LLM__TOK_BAD(t, "tokenizer.json: model.unk_token: \"%.*s\" is no token", llm__shown(unk), unk.p ? unk.p : "");
    t->barrier = t->byte_fallback || t->unk_id >= 0;
    if (which == LLM__TOK_BPE) llm__tok_load_merges(t, d, merges);
}

LLM__PRIVATE int llm__json_added_flags(const llm_json *d, int node) {
    static const char *const keys[] = {"single_word", "lstrip", "rstrip", "special"}; /* from LLM__ADDED_WORD on */
    int flags = 0;
    for (int i = 0; i < LLM__COUNT(keys); i++) flags |= (llm__json_flag(d, node, keys[i], 0) != 0) << i;
    return flags | (llm__json_flag(d, node, "normalized", !(flags & LLM__ADDED_SPECIAL)) ? LLM__ADDED_NORMALIZED : 0);
}

/* Without a decoder in the file: what fits how the text was cut, by the first cutter that changes it. Joining by spaces, as the reference
 * then does, is the last resort; the log says which it was. */
static void llm__default_decoder(llm__tokenizer *t) {
    const llm__tok_step *cut = NULL;
    for (int i = t->words.n - 1; i > 0; i--)
        if (t->words.v[i].kind == LLM__TOK_BYTES || (t->words.v[i].kind == LLM__TOK_METASPACE && t->words.v[i].text.n > 1))
            cut = &t->words.v[i];
    int piece = t->model == LLM__TOK_WORDPIECE;
    if (cut && cut->kind == LLM__TOK_BYTES) {
        llm__tok_add_literal(t, LLM__LITERAL_LETTERS, LLM__SPACES_KEEP);
    } else {
        llm__tok_step *step = llm__tok_add(t, &t->decoders, cut ? LLM__TOK_METASPACE : piece ? LLM__TOK_CONTINUE : LLM__TOK_JOIN);
        step->text = cut ? cut->text : t->prefix;
        if (step->kind == LLM__TOK_METASPACE) step->as.scheme = cut->as.scheme;
    }
    llm__log(t->log, LLM_LOG_INFO, "tokenizer.json: no decoder; %s",
             cut || piece ? "the one that fits the way the text is cut is used" : "tokens are joined by spaces");
}

/* With the byte alphabet, a token that no text can become means a damaged file, or text that was encoded wrongly on its way. */
static void llm__check_letters(llm__tokenizer *t) {
    int bytes = 0;
    for (int i = 0; i < t->words.n; i++) bytes |= t->words.v[i].kind == LLM__TOK_BYTES;
    for (int32_t id = 0; id < t->n_vocab && bytes && t->model == LLM__TOK_BPE; id++) {
        const llm__token *token = &t->token[id];
        for (size_t at = 0; !(token->type & LLM__TOKEN_ADDED) && at < token->text.n;)
            if (llm__letter_byte(llm__uni_next(token->text, &at)) < 0)
                LLM__TOK_BAD(t, "tokenizer.json: model.vocab: token %d is not in letters of the byte alphabet", (int)id);
    }
}

LLM__PRIVATE void llm__tok_load_json(llm__tokenizer *t, const llm_json *d) {
    int model = llm_json_find(d, 0, "model"), vocab = llm_json_find(d, model, "vocab");
    llm__tok_load_vocab(t, d, vocab);
    llm__tok_load_model(t, d, model, vocab);
    for (int v = llm_json_first(d, llm_json_find(d, 0, "added_tokens")); v >= 0; v = llm_json_next(d, v)) {
        int64_t id = llm__json_whole(d, llm_json_find(d, v, "id"), -1);
        llm__str text = llm__json_text_at(d, v, "content");
        if (id < 0) LLM__TOK_BAD(t, "tokenizer.json: added_tokens: an id from 0 on expected");
        if (!text.p) LLM__TOK_BAD(t, "tokenizer.json: added_tokens: content expected");
        llm__tok_enter_added(t, text, id, llm__json_added_flags(d, v));
    }
    llm__tok_load_steps(t, d, llm_json_find(d, 0, "normalizer"), "normalizers", &t->normalizers, 0);
    llm__tok_load_steps(t, d, llm_json_find(d, 0, "pre_tokenizer"), "pretokenizers", &t->words, 0);
    llm__tok_load_steps(t, d, llm_json_find(d, 0, "post_processor"), "processors", NULL, 0);
    llm__tok_load_steps(t, d, llm_json_find(d, 0, "decoder"), "decoders", &t->decoders, 0);
    if (!t->decoders.n) llm__default_decoder(t);
    llm__check_letters(t);
}
