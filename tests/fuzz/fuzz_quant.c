/* What folders of strangers say about how they are quantised: a name of the file that says it and its JSON, up to a NUL; then lines of tensors,
 * the first two numbers of which are a matrix' rows and columns, up to a NUL; then bytes that all tensors are filled with.
 *
 *     quantize_config.json {"bits": 4, "group_size": 32} NUL 64 128 .qweight I32 16 64 .scales F16 4 64 NUL bytes
 *
 * A config is refused with a sentence, or what is known of it is within its ranges; a matrix whose tensors are accepted can be read to its last value,
 * whole and from the middle on, and tensors that are no matrix are refused with a sentence that names one. */
#include "../unit/test.h"
#include "api/backend.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "cpu/dtypes.h"
#include "model/loader.h"
#include "model/quant.h"
#include "model/quant_seek.h"
#include "model/tensors.h"

enum { FUZZ_TENSORS = 10, FUZZ_ELEMENTS = 1 << 16 };

static void fuzz_check(int ok) {
    if (!ok) __builtin_trap();
}

/* The next part of the input, as a text of its own. */
static char *fuzz_part(const uint8_t **data, size_t *size) {
    const uint8_t *end = *size ? (const uint8_t *)memchr(*data, 0, *size) : NULL;
    const size_t n = end ? (size_t)(end - *data) : *size;
    char *s = (char *)malloc(n + 1);
    fuzz_check(s != NULL);
    if (n) memcpy(s, *data, n);
    s[n] = 0;
    *data += n + (end != NULL);
    *size -= n + (end != NULL);
    return s;
}

/* The config, read twice: from the file that is named, and as config.json's object. */
static void fuzz_config(llm__source *s, char *text) {
    static const char *const files[] = {"quantize_config.json", "quant_config.json", "hf_quant_config.json",
                                        "quant_model_description.json"};
    const char *file = NULL, *json = strchr(text, '{');
    for (int i = 0; i < LLM__COUNT(files); i++)
        if (!strncmp(text, files[i], strlen(files[i]))) file = files[i];
    if (!json || llm_json_parse(json, strlen(json), NULL, &s->config)) return;
    const int inner = llm__quant_node(s->config), node = file || inner < 0 ? 0 : inner;
    const llm_result r = llm__quant_read(s->config, node, file, "m", &s->quant);
    const llm__quant *q = &s->quant;
    fuzz_check(r ? *llm_last_error() != 0 && strlen(llm_last_error()) < 400 : q->method >= 0 && q->method < LLM__QUANT_METHODS);
    if (r) memset(&s->quant, 0, sizeof s->quant);
    fuzz_check(q->bits >= 0 && q->bits <= 16 && q->group >= -1 && q->group <= 1 << 20);
    fuzz_check(llm__quant_is_called(q, llm__quant_name(q->method)) && strlen(llm__quant_name(q->method)) > 2);
}

/* ".scales F16 4 64": a tensor whose bytes are a block of their own. */
static void fuzz_tensor(llm__tensors *t, const char *end, const char *type, int64_t rows, int64_t cols, const uint8_t *fill,
                        size_t n_fill) {
    llm__tensor x = LLM__ZERO;
    char name[64];
    const llm__type_desc *d;
    for (int k = 0; (d = llm__type_at(k)) != NULL; k++)
        if (!strcmp(d->name, type)) break;
    if (!d || d->block != 1 || !d->bytes || rows < 1 || cols < 0 || rows > FUZZ_ELEMENTS || cols > FUZZ_ELEMENTS ||
        rows * LLM__MAX(cols, 1) > FUZZ_ELEMENTS || t->n == FUZZ_TENSORS)
        return;
    x.type = d->type;
    x.n_dims = cols ? 2 : 1;
    x.shape[0] = rows, x.shape[1] = LLM__MAX(cols, 1), x.shape[2] = x.shape[3] = 1;
    x.bytes = rows * x.shape[1] * d->bytes;
    snprintf(name, sizeof name, "m.layer%.40s", end);
    if (llm__tensors_find(t, name) || llm__tensors_add(t, "m", llm__lit(name), &x)) return;
    uint8_t *data = (uint8_t *)malloc((size_t)x.bytes);
    fuzz_check(data != NULL);
    for (int64_t i = 0; i < x.bytes; i++) data[i] = n_fill ? fill[(size_t)i % n_fill] : 0x3C;
    t->item[t->n - 1].data = data;
}

/* Every value that a segment says it has, and those of a rank that takes the second half of the columns. */
static void fuzz_read(const llm_segment *segment, int64_t rows, int64_t cols) {
    static volatile float keep;
    llm_segment s = *segment;
    s.n_rows = rows;
    float *x = (float *)malloc((size_t)cols * sizeof *x), sum = 0;
    fuzz_check(x != NULL);
    for (int half = 0; half < 1 + (cols % 64 == 0); half++) {
        const int64_t from = half * cols / 2;
        s.col = from, s.n_cols = cols - from;
        for (int64_t r = 0; r < rows; r++) {
            llm__segment_values(&s, 0, r, 0, cols - from, x);
            sum += x[0] + x[cols - from - 1];
        }
    }
    keep = sum;
    (void)keep;
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    llm_model *m = LLM__NEW(llm_model, 1);
    llm__loader L = LLM__ZERO;
    llm_segment s = LLM__ZERO, bias = LLM__ZERO;
    long long rows = 0, cols = 0, r, c;
    char end[41], type[21], *config = fuzz_part(&data, &size), *lines = fuzz_part(&data, &size);
    int at = 0, n = 0;
    fuzz_check(m != NULL);
    m->path = llm__strdup("m");
    fuzz_config(&m->source, config);
    if (sscanf(lines, "%lld %lld%n", &rows, &cols, &at) == 2)
        for (const char *p = lines + at; sscanf(p, " %40s %20s %lld %lld%n", end, type, &r, &c, &n) == 4; p += n)
            fuzz_tensor(&m->source.tensors, end, type, r, c, data, size);
    L.m = m, L.path = "m", L.backend = llm_backend_cpu();
    const llm__tensor *first = m->source.tensors.n ? &m->source.tensors.item[0] : NULL;
    if (first && rows >= 1 && cols >= 1 && rows <= 4096 && cols <= 4096 && rows * cols <= FUZZ_ELEMENTS && llm__quant_is(&L, first)) {
        llm__quant_seek(&L, first, rows, cols, &s);
        fuzz_check(!L.r || (*llm_last_error() && strstr(llm_last_error(), "m.layer") && strlen(llm_last_error()) < 500));
        if (!L.r) fuzz_read(&s, rows, cols);
        if (!L.r && llm__quant_bias(&L, first, rows, &bias) && !L.r) fuzz_check(bias.stored_cols == rows);
    }
    for (size_t i = 0; i < m->source.tensors.n; i++) free((void *)(uintptr_t)m->source.tensors.item[i].data);
    llm__tensors_free(&m->source.tensors);
    llm__arena_free(&L.keep);
    llm_json_free(m->source.config);
    LLM_FREE(m->path);
    LLM_FREE(m);
    free(config), free(lines);
    return 0;
}
