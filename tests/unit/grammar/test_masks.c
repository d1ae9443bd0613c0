/* Masks over a real vocabulary: against every token run through the machine alone; the trie; what must come next. */
#include "reading.h"
#include "base/index.h"
#include "model/loader.h"
#include "grammar/machine.h"
#include "grammar/masks.h"
#include "grammar/grammar.h"

/* The trie that the essay of masks.h draws. */
static void masks_test_trie(void) {
    static const uint8_t byte[] = {'a', 'b', 'b'}, depth[] = {1, 2, 1};
    static const int32_t skip[] = {2, 2, 3}, from[] = {0, 1, 2, 3}, order[] = {5, 9, 7};
    llm__index_entry s[] = {{llm__lit("ab"), 9}, {llm__lit("b"), 7}, {llm__lit("a"), 5}};
    llm__gr_trie *t = (llm__gr_trie *)calloc(1, sizeof *t);
    if (!CHECK(t != NULL)) return;
    t->vocab = 10;
    t->end = (int32_t *)calloc(10, sizeof *t->end);
    if (t->end) t->end[9] = 4; /* bytes of all tokens */
    pthread_mutex_init(&t->lock, NULL);
    if (CHECK(llm__gr_trie_lay(t, s, 3)) && CHECK(t->n == 3)) {
        CHECK(!memcmp(t->byte, byte, 3) && !memcmp(t->depth, depth, 3) && !memcmp(t->skip, skip, sizeof skip));
        CHECK(!memcmp(t->from, from, sizeof from) && !memcmp(t->order, order, sizeof order));
    }
    llm__gr_trie_free(t);
}

/* The bytes of a token as grammars read it: a special one has a byte before its name that no text has, the end of text has none. */
static void masks_bytes(const llm_model *model, int32_t id, llm_text *bytes) {
    const char sign = (char)LLM__GR_SPECIAL;
    if (id == model->source.tokenizer->eos_id) return;
    if (llm_token_is_special(model, id)) llm_text_add(bytes, &sign, 1);
    llm_token_bytes(model, id, bytes);
}

/* The mask of one place, bit by bit: a token is in it exactly if a fresh matcher that has read `before` takes its bytes. */
static int masks_wrong(const llm_model *model, llm_grammar *g, llm_matcher *m, const char *before) {
    const int32_t vocab = llm_vocab_size(model);
    uint32_t words[(1 << 18) / 32];
    int32_t n_allowed = -1, counted = 0, wrong = 0;
    if (vocab > (1 << 18) || llm_matcher_mask(m, words, &n_allowed)) return -1;
    for (int32_t id = 0; id < vocab; id++) {
        llm_text bytes;
        memset(&bytes, 0, sizeof bytes);
        masks_bytes(model, id, &bytes);
        llm_matcher *fresh = llm_matcher_open(g);
        const int read = fresh && !llm_matcher_bytes(fresh, before, strlen(before));
        const int allowed = read && bytes.len && !llm_matcher_bytes(fresh, bytes.data, bytes.len);
        counted += allowed;
        wrong += allowed != (int)(words[id / 32] >> (id % 32) & 1);
        llm_matcher_close(fresh);
        llm_text_free(&bytes);
    }
    return wrong + (counted != n_allowed);
}

static void masks_test_twin(const llm_model *model) {
    static const struct {
        llm_grammar_kind kind;
        const char *text;
        const char *before[4];
    } rows[] = {
        {LLM_GRAMMAR_REGEX, "[0-9]+\\]", {"", "7", "7]", NULL}},
        {LLM_GRAMMAR_REGEX, "[A-Za-z ]{3,40}x?", {"", "ab", "the house is", NULL}},
        {LLM_GRAMMAR_JSON_SCHEMA,
         "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 9}, \"n\": {\"enum\": [\"one\", \"two\"]}}, \"required\": [\"n\"]}",
         {"", "{\"name\": \"a", "{\"n\": \"", "{\"n\": \"t"}},
        {LLM_GRAMMAR_GBNF, "root ::= \"a\" b* | \"(\" root \")\"\nb ::= [0-9]{1,3} | \"x\"", {"", "((", "((a12", "((a)"}},
        {LLM_GRAMMAR_STRUCTURAL_TAG,
         "{\"structures\": [{\"begin\": \"<f>\", \"schema\": {\"type\": \"integer\"}, \"end\": \"</f>\"}], \"triggers\": [\"<f\"]}",
         {"", "text <", "<f", "<f>1"}},
    };
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_grammar *g = reading_open(model, rows[i].kind, rows[i].text, NULL);
        if (!CHECK(g != NULL)) continue;
        for (int k = 0; k < 4 && rows[i].before[k]; k++) {
            llm_matcher *m = llm_matcher_open(g);
            CHECK(m && !llm_matcher_bytes(m, rows[i].before[k], strlen(rows[i].before[k])));
            if (!CHECK(masks_wrong(model, g, m, rows[i].before[k]) == 0)) printf("  %s behind \"%s\"\n", rows[i].text, rows[i].before[k]);
            llm_matcher_close(m);
        }
        llm_grammar_close(g);
    }
}

/* Where one text alone can follow, its tokens are known; their bytes spell it. */
static void masks_test_forced(const llm_model *model) {
    static const char fixed[] = "{\"temperature\":";
    llm_grammar *g = reading_open(model, LLM_GRAMMAR_JSON_SCHEMA,
                                  "{\"properties\": {\"temperature\": {\"type\": \"integer\"}}, \"required\": [\"temperature\"]}", "");
    llm_matcher *m = g ? llm_matcher_open(g) : NULL;
    int32_t ids[32], n_sure = -1;
    int over = -1;
    llm_text text;
    memset(&text, 0, sizeof text);
    if (CHECK(m != NULL)) {
        const int32_t n = llm__matcher_ahead(m, ids, 32, &n_sure, &over);
        for (int32_t i = 0; i < n; i++) llm_token_bytes(model, ids[i], &text);
        CHECK(n > 0 && n_sure >= 0 && n_sure <= n && !over && text.len <= strlen(fixed) && !memcmp(text.data, fixed, text.len) &&
              text.len > 8);
        for (int32_t i = 0; i < n; i++) CHECK(!llm_matcher_token(m, ids[i]));
        CHECK(!llm_matcher_can_end(m));
    }
    llm_text_free(&text);
    llm_matcher_close(m);
    llm_grammar_close(g);
    g = reading_open(model, LLM_GRAMMAR_CHOICE, "[\"certainly\"]", NULL);
    m = g ? llm_matcher_open(g) : NULL;
    CHECK(m && llm__matcher_ahead(m, ids, 32, &n_sure, &over) > 0 && over == 1);
    llm_matcher_close(m);
    llm_grammar_close(g);
}

/* A mark that is a special token of the vocabulary is that token: its letters mean nothing, in free text as in a JSON string, and in a string
 * the token cannot stand. */
static void masks_test_special(const llm_model *model) {
    int32_t id = 0;
    char form[400];
    llm_text name;
    memset(&name, 0, sizeof name);
    while (id < llm_vocab_size(model) && !(llm_token_is_special(model, id) && id != model->source.tokenizer->eos_id)) id++;
    if (!CHECK(id < llm_vocab_size(model) && !llm_token_bytes(model, id, &name))) return;
    snprintf(form, sizeof form,
             "{\"structures\": [{\"begin\": \"%sf\", \"schema\": {\"type\": \"string\"}, \"end\": \"%s\"}], \"triggers\": [\"%s\"]}",
             name.data, name.data, name.data);
    llm_grammar *g = reading_open(model, LLM_GRAMMAR_STRUCTURAL_TAG, form, NULL);
    llm_matcher *m = g ? llm_matcher_open(g) : NULL;
    if (CHECK(m != NULL)) {
        CHECK(!llm_matcher_bytes(m, name.data, name.len) && !llm_matcher_bytes(m, "free", 4) && llm_matcher_can_end(m));
        CHECK(!llm_matcher_token(m, id) && !llm_matcher_can_end(m) && llm_matcher_bytes(m, "g", 1));
        CHECK(!llm_matcher_bytes(m, "f\"", 2) && llm_matcher_token(m, id) && !llm_matcher_bytes(m, name.data, name.len));
        CHECK(!llm_matcher_bytes(m, "\"", 1) && llm_matcher_bytes(m, name.data, name.len) && !llm_matcher_token(m, id) &&
              llm_matcher_can_end(m));
    }
    llm_matcher_close(m);
    llm_grammar_close(g);
    snprintf(form, sizeof form, "%send", name.data);
    const llm_grammar_config c = {LLM_GRAMMAR_REGEX, "[0-9]", 5, NULL, form};
    m = llm_grammar_open(model, &c, &g) ? NULL : llm_matcher_open(g);
    if (CHECK(m != NULL)) {
        CHECK(!llm_matcher_bytes(m, form, strlen(form)) && !llm_matcher_token(m, id) && !llm_matcher_token(m, id));
        CHECK(!llm_matcher_can_end(m) && !llm_matcher_bytes(m, "end7", 4) && llm_matcher_can_end(m) && llm_matcher_bytes(m, "7", 1));
    }
    llm_matcher_close(m);
    llm_grammar_close(g);
    llm_text_free(&name);
}

/* Grammars of the same text are one, and keep what was made; another one is another. A forbidden token leaves a matcher where it was. */
static void masks_test_shelf(const llm_model *model) {
    llm_grammar *a = reading_open(model, LLM_GRAMMAR_REGEX, "ab?", NULL), *b = reading_open(model, LLM_GRAMMAR_REGEX, "ab?", NULL),
                *c = reading_open(model, LLM_GRAMMAR_REGEX, "ab", NULL);
    CHECK(a && a == b && c && a != c);
    llm_matcher *m = a ? llm_matcher_open(a) : NULL;
    CHECK(m && llm_matcher_bytes(m, "b", 1) == LLM_ERR_ARG && !llm_matcher_bytes(m, "a", 1) && llm_matcher_can_end(m) &&
          !llm_matcher_bytes(m, "b", 1) && llm_matcher_bytes(m, "b", 1) == LLM_ERR_ARG);
    llm_grammar_close(a);
    llm_grammar_close(b);
    CHECK(m && llm_matcher_can_end(m)); /* it keeps its grammar */
    llm_matcher_close(m);
    llm_grammar_close(c);
}

/* A vocabulary so large that whole sets of tokens are told apart beforehand (slices). */
static void masks_test_large(const llm_model_config *c) {
    llm_model *model = NULL;
    if (!test_made("build/data/tokenizers/qwen3", "data") || !CHECK(!llm_model_open("build/data/tokenizers/qwen3", c, &model))) return;
    masks_test_twin(model);
    llm_model_close(model);
}

TEST_GROUP(masks) {
    llm_model *model = NULL;
    llm_model_config c;
    memset(&c, 0, sizeof c);
    c.vocab_only = 1;
    masks_test_trie();
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") || !CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), &c, &model))) return;
    masks_test_twin(model);
    masks_test_forced(model);
    masks_test_special(model);
    masks_test_shelf(model);
    llm_model_close(model);
    masks_test_large(&c);
}
