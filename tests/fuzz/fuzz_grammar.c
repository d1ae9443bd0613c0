/* Grammars of every kind, and texts run through what compiles: the first byte is the kind, a 0 ends the grammar, the rest is fed. No crash, no leak,
 * no hang: a grammar that gives up must say so. */
#include "../unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size || size > 4096) return 0;
    llm_grammar_config cfg;
    llm_grammar *g;
    memset(&cfg, 0, sizeof cfg);
    cfg.kind = (llm_grammar_kind)(1 + data[0] % 6);
    cfg.after = data[0] & 64 ? "</t>" : NULL;
    cfg.space = data[0] & 128 ? "[ \\n]{0,2}" : NULL;
    const uint8_t *end = (const uint8_t *)memchr(data + 1, 0, size - 1);
    cfg.text = (const char *)data + 1;
    cfg.len = (size_t)((end ? end : data + size) - (data + 1));
    if (llm_grammar_open(NULL, &cfg, &g)) return 0;
    llm_matcher *m = llm_matcher_open(g);
    for (const uint8_t *p = end ? end + 1 : data; m && p < data + size; p++) {
        int can_end = llm_matcher_can_end(m);
        if (llm_matcher_bytes(m, (const char *)p, 1) && can_end != llm_matcher_can_end(m)) abort(); /* a refused byte changes nothing */
    }
    llm_matcher_close(m);
    llm_grammar_close(g);
    return 0;
}
