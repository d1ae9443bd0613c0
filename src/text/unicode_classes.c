#include "text/unicode_classes.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"
#include "text/unicode.h"
#include "text/unicode_tables.h"

LLM__PRIVATE int llm__uni_among(const int32_t (*range)[2], int n, int32_t c) {
    for (int i = 0; i < n; i++)
        if (c >= range[i][0] && c <= range[i][1]) return 1;
    return 0;
}

LLM__PRIVATE int32_t llm__uni_next(llm__str s, size_t *at) {
    int len;
    int32_t c = llm__utf8_get(s.p + *at, s.n - *at, &len);
    *at += (size_t)len;
    return c < 0 ? 0xFFFD : c;
}

LLM__PRIVATE void llm__uni_put(llm_text *out, int32_t c) {
    char s[4];
    llm_text_add(out, s, (size_t)llm__utf8_put(s, c));
}

LLM__PRIVATE llm__cat llm__uni_cat_of(uint32_t value, int32_t c) {
    value &= 31;
    return value < 30 ? (llm__cat)value : ((uint32_t)c & 1) == (value & 1) ? LLM__LU : LLM__LL;
}

LLM__PRIVATE llm__cat llm__uni_cat(int32_t c) {
    return llm__uni_cat_of(llm__uni_cats[llm__uni_find(llm__uni_cats, LLM__COUNT(llm__uni_cats), 4, 5, c)], c);
}

LLM__PRIVATE int llm__uni_in(int32_t c, uint32_t cats) { return (int)(cats >> llm__uni_cat(c) & 1); }

LLM__PRIVATE char llm__uni_lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

LLM__PRIVATE int llm__uni_space(int32_t c) { return llm__uni_among(llm__uni_spaces, c < 128 ? 2 : LLM__COUNT(llm__uni_spaces), c); }

LLM__PRIVATE int llm__uni_word(int32_t c) {
    return llm__uni_in(c, LLM__CATS_WORD) || llm__uni_among(llm__uni_circled, LLM__COUNT(llm__uni_circled), c);
}

LLM__PRIVATE int llm__uni_script(int32_t c) {
    return llm__uni_scripts[llm__uni_find(llm__uni_scripts, LLM__COUNT(llm__uni_scripts), 4, 8, c)] & 255;
}

LLM__PRIVATE int llm__uni_same_name(llm__str a, llm__str b) {
    size_t i = 0, k = 0;
    for (;;) {
        while (i < a.n && strchr("_- ", a.p[i])) i++;
        while (k < b.n && strchr("_- ", b.p[k])) k++;
        if (i >= a.n || k >= b.n) return i >= a.n && k >= b.n;
        if (llm__uni_lower_ascii(a.p[i++]) != llm__uni_lower_ascii(b.p[k++])) return 0;
    }
}

LLM__PRIVATE int llm__uni_script_find(llm__str name) {
    llm__str w;
    const char *names = llm__uni_script_names;
    for (int k = 0; llm__list_next(&names, " ", &w); k++)
        if (llm__uni_same_name(w, name)) return k / 2;
    return -1;
}

LLM__PRIVATE int32_t llm__uni_case(int32_t c, int which) {
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    const llm__uni_case_run *r = &llm__uni_cases[llm__uni_find(llm__uni_cases, LLM__COUNT(llm__uni_cases), sizeof *r, 0, c)];
    return c >= r->first && c <= r->last && (c - r->first) % r->stride == 0 && (r->which & which) ? c + r->add : c;
}

LLM__PRIVATE int llm__uni_class(int32_t c) {
    if (c < llm__uni_marks[0].first) return 0;
    const llm__uni_mark_run *r = &llm__uni_marks[llm__uni_find(llm__uni_marks, LLM__COUNT(llm__uni_marks), sizeof *r, 0, c)];
    return c <= r->first + r->more ? r->combining_class : 0;
}
