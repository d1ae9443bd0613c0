/* Any bytes as a tokenizer file: refused, or it encodes and decodes, ids stay in range, and streamed text is the whole text. */
#include "../unit/test.h"
#include "base/platform.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/subword.h"
#include "tokenizer/decode.h"
#include "tokenizer/build.h"
#include "tokenizer/tokenizer_files.h"

static void fuzz_use(const llm__tokenizer *t, const char *s, size_t n, int flags) {
    llm_tokens ids;
    llm_text whole, streamed;
    struct llm_detok *d = llm__detok_open(t, flags);
    memset(&ids, 0, sizeof ids);
    memset(&whole, 0, sizeof whole);
    memset(&streamed, 0, sizeof streamed);
    if (d && !llm__tokenizer_encode(t, s, n, flags, &ids)) {
        for (size_t i = 0; i < ids.len; i++) {
            if (ids.data[i] < 0 || ids.data[i] >= t->n_vocab) __builtin_trap();
            llm_detok_push(d, ids.data[i], &streamed);
        }
        llm_detok_flush(d, &streamed);
        llm__tokenizer_decode(t, ids.data, ids.len, flags, 0, &whole);
        if (whole.len != streamed.len || (whole.len && memcmp(whole.data, streamed.data, whole.len))) __builtin_trap();
    }
    llm_detok_free(d);
    ids.len = whole.len = streamed.len = 0; /* guarded, it is read as well, and without marks it is as it was */
    llm__guard(t, llm__s(s, n), &streamed);
    if (llm__tokenizer_encode(t, streamed.data, streamed.len, LLM_TOK_PARSE_SPECIAL | LLM_TOK_GUARDED, &ids)) ids.len = 0;
    llm__unguard(llm__text_str(&streamed), &whole);
    if (whole.len != n || (n && memcmp(whole.data, s, n))) __builtin_trap();
    llm_tokens_free(&ids);
    llm_text_free(&whole);
    llm_text_free(&streamed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] = "ab  <s>a b\xC3\xA9\xE4\xB8\xAD\xE2\x96\x81 'S 123\r\n\xFF  end</s>";
    const char *p = (const char *)data;
    llm__tokenizer *t = llm__tok_new();
    llm_json *config = NULL;
    if (!size || !t) return llm__tokenizer_close(t), 0;
    const char *cut = (const char *)memchr(p, 1, size); /* what follows a byte 1 is the tokenizer_config.json */
    size_t n = cut ? (size_t)(cut - p) : size;
    if (cut) (void)llm_json_parse(cut + 1, size - n - 1, NULL, &config);
    llm_result r = llm__tok_load(t, llm__s(p, n), size & 1 ? "qwen" : "", config);
    llm_json_free(config);
    if (!r) fuzz_use(t, text, sizeof text - 1, 0);
    if (!r) fuzz_use(t, text, sizeof text - 1, LLM_TOK_ADD_SPECIAL | LLM_TOK_PARSE_SPECIAL | LLM_DETOK_KEEP_SPECIAL);
    if (!r) fuzz_use(t, p, LLM__MIN(size, (size_t)500), LLM_TOK_PARSE_SPECIAL);
    llm__tokenizer_close(t);
    return 0;
}
