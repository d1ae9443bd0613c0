/* Any bytes as a pattern and a text: the compiler refuses or the matcher ends, and its memory never changes what it finds. */
#include "../unit/test.h"
#include "base/text.h"
#include "text/regex.h"
#include "text/regex_match.h"
#include "tokenizer/encode.h"

/* A number made of all matches. */
static uint64_t fuzz_matches(llm__regex *re, const char *s, size_t n, int slow, int *gave_up) {
    llm__rx_run run;
    size_t from, end;
    uint64_t sum = 0;
    int found;
    memset(&run, 0, sizeof run);
    llm__rx_begin(&run, re, s, n);
    if (slow) llm__rx_remember(&run);
    while ((found = llm__rx_next(&run, &from, &end)) > 0) {
        if (from > end || end > n) __builtin_trap();
        sum = (sum + from * 31 + end) * 1000003;
    }
    *gave_up |= found < 0;
    llm__rx_end(&run);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *p = (const char *)data, *cut = (const char *)memchr(p, 0, size);
    llm__regex *re;
    int gave_up = 0;
    if (!size || size > 2000) return 0;
    size_t n = cut ? (size_t)(cut - p) : size / 2, from = n + (cut != NULL);
    if (llm__regex_open(p, n, &re)) return 0;
    llm_text text;
    memset(&text, 0, sizeof text);
    llm_text_str(&text, "");
    llm__clean_utf8(llm__s(p + from, size - from), &text);
    uint64_t a = fuzz_matches(re, text.data, text.len, 0, &gave_up), b = fuzz_matches(re, text.data, text.len, 1, &gave_up);
    if (a != b && !gave_up) __builtin_trap();
    llm__regex_close(re);
    llm_text_free(&text);
    return 0;
}
