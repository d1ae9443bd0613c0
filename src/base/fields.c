#include "base/fields.h"
#include "api/config.h"
#include "api/options.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"

static double llm__field_get(const llm__field *f, const void *config) {
    const char *at = (const char *)config + f->at;
    int32_t whole;
    int64_t wide;
    float real;
    if (f->kind == LLM_OPTION_INT64) return memcpy(&wide, at, sizeof wide), (double)wide;
    if (f->kind == LLM_OPTION_FLOAT) return memcpy(&real, at, sizeof real), (double)real;
    return memcpy(&whole, at, sizeof whole), (double)whole;
}

static void llm__field_set(const llm__field *f, void *config, double value) {
    char *at = (char *)config + f->at;
    const int64_t wide = f->kind == LLM_OPTION_FLOAT ? 0 : (int64_t)value;
    const int32_t whole = (int32_t)wide;
    const float real = (float)value;
    if (f->kind == LLM_OPTION_INT64) memcpy(at, &wide, sizeof wide);
    else if (f->kind == LLM_OPTION_FLOAT) memcpy(at, &real, sizeof real);
    else memcpy(at, &whole, sizeof whole);
}

/* The ends of a FLOAT's range are floats too: 1e-6 as a float is a little less than as a double. */
static int llm__field_takes(const llm__field *f, double value) {
    const int real = f->kind == LLM_OPTION_FLOAT;
    int64_t number;
    llm__str word;
    if (f->kind != LLM_OPTION_ENUM)
        return value >= (real ? (double)(float)f->least : f->least) && value <= (real ? (double)(float)f->most : f->most);
    for (const char *words = f->unit; llm__list_next(&words, "|", &word);) {
        size_t n = llm__str_until(word, "=");
        if (llm__parse_int(word.p, n, &number) && (double)number == value) return 1;
    }
    return 0;
}

/* A number as people write it: 1 and not 1.0. */
static void llm__field_write(double value, char out[40]) {
    llm__format_double(value, out);
    size_t n = strlen(out);
    if (n > 2 && !strcmp(out + n - 2, ".0")) out[n - 2] = 0;
}

LLM__PRIVATE llm_result llm__check_number(const char *name, double value, double low, double high, const char *allowed) {
    char text[40];
    if (value >= low && value <= high) return LLM_OK;
    llm__field_write(value, text);
    return llm__error(LLM_ERR_ARG, "%s: %s, must be %s", name, text, allowed);
}

/* "16, 32, 64, 128" for "16=16|32=32|64=64|128=128" */
static void llm__field_words(const llm__field *f, char *out, size_t size) {
    size_t n = 0;
    llm__str word;
    for (const char *words = f->unit; llm__list_next(&words, "|", &word) && n < size;)
        n += (size_t)snprintf(out + n, size - n, "%s%.*s", n ? ", " : "", (int)llm__str_until(word, "="), word.p);
}

/* "max_num_seqs: 70000, must be in [1, 65536] (sequences; 0: 1)" */
static llm_result llm__field_refuse(const llm__field *f, double value) {
    char said[40], least[40], most[40], zero[40], words[128] = "";
    const int list = f->kind == LLM_OPTION_ENUM, open = f->most >= INT32_MAX;
    const char *unit = f->unit && !list ? f->unit : "", *noted = *unit || f->otherwise != 0 ? " (" : "";
    llm__field_write(value, said);
    llm__field_write(f->least, least);
    llm__field_write(f->most, most);
    llm__field_write(f->otherwise, zero);
    if (list) llm__field_words(f, words, sizeof words);
    else snprintf(words, sizeof words, open ? "at least %s" : "in [%s, %s]", least, most);
    if (f->otherwise == 0) *zero = 0;
    return llm__error(LLM_ERR_ARG, "%s: %s, must be %s%s%s%s%s%s%s%s", f->name, said, list ? "one of " : "", words, noted, unit,
                      *unit && *zero ? "; " : "", *zero ? "0: " : "", zero, *noted ? ")" : "");
}

LLM__PRIVATE llm_result llm__fields_check(const llm__field *field, int n, const void *config) {
    for (int i = 0; i < n; i++) {
        const double value = llm__field_get(&field[i], config);
        if (value != 0 && !llm__field_takes(&field[i], value)) return llm__field_refuse(&field[i], value);
    }
    return LLM_OK;
}

LLM__PRIVATE void llm__fields_default(const llm__field *field, int n, void *config) {
    for (int i = 0; i < n; i++)
        if (llm__field_get(&field[i], config) == 0) llm__field_set(&field[i], config, field[i].otherwise);
}

LLM__PRIVATE int llm__fields_put(const llm__field *field, int n, void *config, const char *name, double value) {
    for (int i = 0; i < n; i++) {
        if (strcmp(field[i].name, name)) continue;
        if (!llm__field_takes(&field[i], value)) return 0;
        llm__field_set(&field[i], config, value);
        return 1;
    }
    return 0;
}
