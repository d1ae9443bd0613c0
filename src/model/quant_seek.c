#include "model/quant_seek.h"
#include "api/config.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/quant.h"
#include "model/loader.h"
#include "model/quant_rows.h"

/* A matrix whose tensors are looked up, by the part of their names that all have. */
typedef struct llm__seek_look {
    llm__loader *L;
    const llm__tensor *first;
    llm__str stem; /* "model.layers.0.mlp.up_proj" */
    int64_t rows, cols;
} llm__seek_look;

static const llm__tensor *llm__seek_find(const llm__seek_look *q, const char *end) {
    char name[256];
    snprintf(name, sizeof name, "%.*s%s", (int)LLM__MIN(q->stem.n, (size_t)200), q->stem.p, end);
    return llm__tensors_find(&q->L->m->source.tensors, name);
}

static int64_t llm__seek_count(const llm__tensor *t) { return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]; }

static void llm__seek_bad(const llm__seek_look *q, const char *end, const char *format, ...) LLM__PRINTF(3, 4);

/* "PATH: tensor STEM.END: sentence". The first mistake stays. */
static void llm__seek_bad(const llm__seek_look *q, const char *end, const char *format, ...) {
    char text[300];
    va_list args;
    if (q->L->r) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    q->L->r =
        llm__error(LLM_ERR_FORMAT, "%s: tensor %.*s%s: %s", q->L->m->path, (int)LLM__MIN(q->stem.n, (size_t)200), q->stem.p, end, text);
}

/* A tensor that must be there, of one of `types` and of two dimensions, either of which may be 1 too many; NULL after the error. rows -1:
 * any. */
static const llm__tensor *llm__seek_must(const llm__seek_look *q, const char *end, const char *types, int64_t rows, int64_t cols) {
    const llm__tensor *t = llm__seek_find(q, end);
    if (q->L->r) return NULL;
    if (!t) {
        llm__seek_bad(q, end, "it is missing");
        return NULL;
    }
    if (llm__word_index(types, llm__lit(llm__type_name(t->type))) < 0) {
        llm__seek_bad(q, end, "it is of type %s, %s expected", llm__type_name(t->type), types);
        return NULL;
    }
    const int64_t r = t->n_dims >= 2 ? t->shape[t->n_dims - 2] : 1, c = t->n_dims ? t->shape[t->n_dims - 1] : 1;
    if (rows >= 0 && (llm__seek_count(t) != rows * cols || (r * c == rows * cols && r > 1 && c > 1 && (r != rows || c != cols)))) {
        llm__seek_bad(q, end, "its shape is (%lld, %lld), (%lld, %lld) expected", (long long)(llm__seek_count(t) / LLM__MAX(c, 1)),
                      (long long)c, (long long)rows, (long long)cols);
        return NULL;
    }
    return t;
}

/* Columns of a group where a row has so many scales, of which the last may have fewer: the config's, if it fits; of matrices that have a
 * group of their own the power of two that does, of which there is one at most, else what divides evenly. 0: none. */
static int64_t llm__seek_group(const llm__seek_look *q, int64_t groups) {
    const int64_t said = q->L->m->source.quant.group;
    if (groups < 1) return 0;
    if (groups == 1) return q->cols;
    if (said > 0 && (q->cols + said - 1) / said == groups) return said;
    for (int64_t power = 1; power < q->cols; power *= 2)
        if ((q->cols + power - 1) / power == groups) return power;
    return q->cols % groups ? 0 : q->cols / groups;
}

/* The groups of columns that do not come in order: g_idx, copied so that it is aligned. Groups in order need none. */
static void llm__seek_g_idx(const llm__seek_look *q, const char *end, llm__codes *c) {
    const int64_t groups = llm__codes_groups(c);
    if (!llm__seek_find(q, end)) return;
    const llm__tensor *t = llm__seek_must(q, end, "I32", 1, q->cols);
    int plain = 1;
    if (!t) return;
    for (int64_t i = 0; i < q->cols; i++) {
        int32_t g;
        memcpy(&g, t->data + 4 * i, 4);
        if (g < 0 || g >= groups) {
            llm__seek_bad(q, end, "element %lld is %d, 0 to %lld expected", (long long)i, (int)g, (long long)groups - 1);
            return;
        }
        plain &= g == i / c->group;
    }
    if (plain) return;
    int32_t *to = (int32_t *)llm__arena_take(&q->L->keep, (size_t)t->bytes);
    if (!to) q->L->r = llm__nomem();
    else memcpy(to, t->data, (size_t)t->bytes);
    c->g_idx = to;
}

/* The columns sorted by group, those of one in their order; NULL: then blocks of 32 would have columns of two, or there is no memory. */
static const int32_t *llm__seek_order(const llm__seek_look *q, const llm__codes *c) {
    const int64_t groups = llm__codes_groups(c);
    int32_t *order = (int32_t *)llm__arena_take(&q->L->keep, (size_t)c->cols * sizeof *order);
    int32_t *at = (int32_t *)llm__arena_get(&q->L->keep, (size_t)(groups + 1) * sizeof *at);
    int whole = c->cols % 32 == 0;
    if (!order || !at) {
        q->L->r = llm__nomem();
        return NULL;
    }
    for (int64_t i = 0; i < c->cols; i++) at[c->g_idx[i] + 1]++;
    for (int64_t g = 0; g < groups; g++) {
        whole &= at[g + 1] % 32 == 0;
        at[g + 1] += at[g];
    }
    for (int32_t i = 0; i < c->cols; i++) order[at[c->g_idx[i]]++] = i;
    return whole ? order : NULL;
}

/* The form of rows whose columns are sorted by group. NULL: they have none but their values. */
static const llm_sorted *llm__seek_sorted(const llm__seek_look *q, const llm__codes *c, int quick, int *bad) {
    const int32_t *order = llm__seek_order(q, c);
    llm__codes *by = order ? (llm__codes *)llm__arena_take(&q->L->keep, sizeof *by) : NULL;
    llm_sorted *to = by ? (llm_sorted *)llm__arena_take(&q->L->keep, sizeof *to) : NULL;
    if (order && !to) q->L->r = llm__nomem();
    if (!to) return NULL;
    *by = *c;
    by->sorted = order;
    const llm__codes_form form = llm__codes_form_of(by, quick, bad);
    const llm_sorted made = {order, form.type, form.scale, by, form.read};
    *to = made;
    return form.type == LLM_TYPE_F32 ? NULL : to;
}

/* Scales stand row by row (rows, groups). */
static void llm__seek_scales_by_row(llm__codes *c, const llm__tensor *scales, int64_t groups) {
    c->scales = scales->data;
    c->scale_type = scales->type;
    c->scale_row = groups;
    c->scale_column = 1;
}

/* The bits of codes where `words` words hold n of them; 0: none of those that there are. */
static int llm__seek_bits(int64_t words, int64_t n) {
    static const int bits[] = {2, 3, 4, 8};
    for (int i = 0; i < LLM__COUNT(bits); i++)
        if (words * 32 == n * bits[i]) return bits[i];
    return 0;
}

static void llm__seek_awq(const llm__seek_look *q, llm__codes *c) {
    const int gemv = q->L->m->source.quant.gemv;
    const llm__tensor *scales = llm__seek_find(q, ".scales"), *zeros;
    c->bits = 4;
    c->zero = 8;
    if (q->rows % 8 || q->cols % 8) {
        llm__seek_bad(q, ".qweight", "a matrix of %lld x %lld values is packed by eights", (long long)q->rows, (long long)q->cols);
        return;
    }
    if (gemv) { /* as many groups as columns of scales, but for filling */
        const int64_t said = q->L->m->source.quant.group, group = said > 0 ? LLM__MIN(said, q->cols) : q->cols,
                      groups = (q->cols + group - 1) / group, width = scales && q->rows ? llm__seek_count(scales) / q->rows / 8 : 0;
        if (width * 8 < groups) llm__seek_bad(q, ".scales", "%lld groups a row, %lld expected", (long long)width * 8, (long long)groups);
        llm__seek_must(q, ".qweight", "I32", q->rows, q->cols / 8);
        scales = llm__seek_must(q, ".scales", "F16 BF16 F32", q->rows, width * 8);
        zeros = llm__seek_must(q, ".qzeros", "I32", q->rows, width);
        if (!scales || !zeros) return;
        c->order = LLM__CODES_ROWS;
        c->stride = q->cols / 2;
        c->group = group;
        c->zeros_order = LLM__ZEROS_ROWS;
        c->zeros_stride = width;
        llm__seek_scales_by_row(c, scales, width * 8);
        c->zeros = zeros->data;
        return;
    }
    const int64_t groups = scales ? llm__seek_count(scales) / q->rows : 0;
    c->group = llm__seek_group(q, groups);
    llm__seek_must(q, ".qweight", "I32", q->cols, q->rows / 8);
    scales = llm__seek_must(q, ".scales", "F16 BF16 F32", groups, q->rows);
    if (scales && !c->group) llm__seek_bad(q, ".scales", "%lld groups for %lld columns", (long long)groups, (long long)q->cols);
    if (!scales || !c->group) return;
    c->order = LLM__CODES_AWQ;
    c->scales = scales->data;
    c->scale_type = scales->type;
    c->scale_row = 1;
    c->scale_column = q->rows;
    if (!llm__seek_find(q, ".qzeros")) return; /* zero_point false */
    zeros = llm__seek_must(q, ".qzeros", "I32", groups, q->rows / 8);
    c->zeros_order = LLM__ZEROS_AWQ;
    c->zeros = zeros ? zeros->data : NULL;
}

static void llm__seek_gptq(const llm__seek_look *q, llm__codes *c) {
    const llm__tensor *scales = llm__seek_find(q, ".scales"), *words = llm__seek_find(q, ".qweight"), *zeros;
    const int64_t groups = scales && q->rows ? llm__seek_count(scales) / q->rows : 0;
    c->bits = llm__seek_bits(llm__seek_count(words) / LLM__MAX(q->rows, 1), q->cols);
    if (!c->bits || q->rows * c->bits % 32) {
        llm__seek_bad(q, ".qweight", "its shape is (%lld, %lld): that is no matrix of %lld x %lld values of 2, 3, 4 or 8 bits",
                      (long long)words->shape[0], (long long)words->shape[1], (long long)q->cols, (long long)q->rows);
        return;
    }
    c->group = llm__seek_group(q, groups);
    llm__seek_must(q, ".qweight", "I32", q->cols * c->bits / 32, q->rows);
    scales = llm__seek_must(q, ".scales", "F16 BF16 F32", groups, q->rows);
    if (scales && !c->group) llm__seek_bad(q, ".scales", "%lld groups for %lld columns", (long long)groups, (long long)q->cols);
    zeros = llm__seek_must(q, ".qzeros", "I32", groups, q->rows * c->bits / 32);
    if (!scales || !zeros) return;
    c->order = LLM__CODES_GPTQ;
    c->scales = scales->data;
    c->scale_type = scales->type;
    c->scale_row = 1;
    c->scale_column = q->rows;
    c->zeros_order = LLM__ZEROS_GPTQ;
    c->zeros = zeros->data;
    c->v1 = !q->L->m->source.quant.v2;
    llm__seek_g_idx(q, ".g_idx", c);
}

/* compressed-tensors' words. */
static void llm__seek_packed(const llm__seek_look *q, llm__codes *c) {
    const llm__tensor *words = q->first, *scales = llm__seek_find(q, ".weight_scale"), *zeros;
    const int64_t groups = scales && q->rows ? llm__seek_count(scales) / q->rows : 0, row = llm__seek_count(words) / LLM__MAX(q->rows, 1);
    const int64_t bits = q->cols ? row * 32 / q->cols : 0; /* a row's words may have room to spare */
    c->bits = bits >= 8 ? 8 : bits >= 4 ? 4 : bits >= 2 ? 2 : 0;
    if (!c->bits || (q->cols * c->bits + 31) / 32 != row) {
        llm__seek_bad(q, ".weight_packed", "its shape is (%lld, %lld): that is no matrix of %lld x %lld values of 2, 4 or 8 bits",
                      (long long)words->shape[0], (long long)words->shape[1], (long long)q->rows, (long long)q->cols);
        return;
    }
    c->group = llm__seek_group(q, groups);
    llm__seek_must(q, ".weight_packed", "I32", q->rows, row);
    scales = llm__seek_must(q, ".weight_scale", "F16 BF16 F32", q->rows, groups);
    if (scales && !c->group) llm__seek_bad(q, ".weight_scale", "%lld groups for %lld columns", (long long)groups, (long long)q->cols);
    if (!scales || !c->group) return;
    c->order = LLM__CODES_ROWS;
    c->stride = row * 4;
    llm__seek_scales_by_row(c, scales, groups);
    c->zero = 1 << (c->bits - 1);
    if (llm__seek_find(q, ".weight_zero_point")) {
        zeros = llm__seek_must(q, ".weight_zero_point", "I32", (q->rows * c->bits + 31) / 32, groups);
        c->zeros_order = LLM__ZEROS_PACKED;
        c->zeros_stride = groups;
        c->zeros = zeros ? zeros->data : NULL;
    }
    llm__seek_g_idx(q, ".weight_g_idx", c);
}

static const float llm__e2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* The number of a tensor of one element; 0 after an error. */
static float llm__seek_number_of(const llm__seek_look *q, const char *end) {
    const llm__tensor *t = llm__seek_must(q, end, "F32 F16 BF16", 1, 1);
    const float x = t ? llm__element(t->type, t->data, 0) : 0;
    if (t && !(fabsf(x) <= 3.4028234e38f && x != 0)) llm__seek_bad(q, end, "it is %g, a number other than 0 expected", (double)x);
    return x;
}

/* e2m1 nibbles, with e4m3 scales of 16 columns and one for all, or powers of two of 32. */
static void llm__seek_e2m1(const llm__seek_look *q, const char *codes, llm__codes *c, llm_segment *s) {
    const llm__tensor *scales = llm__seek_find(q, ".weight_scale"), *words = llm__seek_must(q, codes, "U8", q->rows, q->cols / 2);
    const int nv = scales && scales->type == LLM_TYPE_F8_E4M3;
    c->group = nv ? 16 : 32;
    scales = llm__seek_must(q, ".weight_scale", "F8_E4M3 U8 F8_E8M0", q->rows, q->cols / c->group);
    if (q->cols % c->group)
        llm__seek_bad(q, codes, "rows of %lld columns, a multiple of %lld expected", (long long)q->cols, (long long)c->group);
    if (!words || !scales) return;
    c->bits = 4;
    c->table = llm__e2m1;
    c->stride = q->cols / 2;
    llm__seek_scales_by_row(c, scales, q->cols / c->group);
    if (scales->type == LLM_TYPE_F8_E8M0) c->scale_type = LLM_TYPE_U8;
    if (nv && llm__seek_find(q, ".weight_global_scale")) s->scale = 1 / llm__seek_number_of(q, ".weight_global_scale");
    else if (nv) s->scale = llm__seek_number_of(q, ".weight_scale_2");
}

/* bitsandbytes' 4 bits: blocks of the flat matrix, whose scales may be quantised again; numbers that no tensor has stand in a text. */
static void llm__seek_bnb4(const llm__seek_look *q, llm__codes *c) {
    const char *const kinds[] = {".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4"};
    const int fp4 = llm__seek_find(q, kinds[0]) == NULL;
    const llm__tensor *state = llm__seek_must(q, kinds[fp4], "U8", -1, 0), *map, *nested = NULL,
                      *absmax = llm__seek_find(q, ".weight.absmax");
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    int64_t block = 0, nested_block = 0;
    double offset = 0;
    if (!state || llm_json_parse((const char *)state->data, (size_t)state->bytes, NULL, &doc)) {
        llm__seek_bad(q, kinds[fp4], "no JSON text: %.100s", llm_last_error());
        return;
    }
    llm_json_int(doc, llm_json_find(doc, 0, "blocksize"), &block);
    llm_json_int(doc, llm_json_find(doc, 0, "nested_blocksize"), &nested_block);
    llm_json_num(doc, llm_json_find(doc, 0, "nested_offset"), &offset);
    const int64_t n = q->rows * q->cols, blocks = block > 0 ? (n + block - 1) / block : 0, twice = absmax && absmax->type == LLM_TYPE_U8;
    if (block < 1 || block > 1 << 20 || n % 2 || (twice && (nested_block < 1 || !isfinite(offset)))) {
        llm__seek_bad(q, kinds[fp4], "blocksize %lld, nested_blocksize %lld: whole numbers from 1 on expected", (long long)block,
                      (long long)nested_block);
        return;
    }
    if (q->first->bytes != n / 2) llm__seek_bad(q, ".weight", "%lld bytes, %lld expected", (long long)q->first->bytes, (long long)n / 2);
    absmax = llm__seek_must(q, ".weight.absmax", "F32 U8", 1, blocks);
    map = llm__seek_must(q, ".weight.quant_map", "F32", 1, 16);
    if (twice) nested = llm__seek_must(q, ".weight.nested_absmax", "F32", 1, (blocks + nested_block - 1) / nested_block);
    const llm__tensor *nested_map = twice ? llm__seek_must(q, ".weight.nested_quant_map", "F32", 1, 256) : NULL;
    float *table = (float *)llm__arena_get(&q->L->keep, 16 * sizeof *table);
    if (!table) q->L->r = llm__nomem();
    if (q->L->r) return;
    memcpy(table, map->data, 64);
    for (int i = 0; i < 16; i++)
        if (!(fabsf(table[i]) <= 3.4028234e38f))
            llm__seek_bad(q, ".weight.quant_map", "element %d is %g, a number expected", i, (double)table[i]);
    c->table = table;
    for (int i = 0; i < 2; i++) { /* the two that there are have kinds of their own */
        const float *known = llm__type_values(i ? LLM_TYPE_FP4 : LLM_TYPE_NF4);
        float far = 0;
        for (int k = 0; k < 16; k++) far = LLM__MAX(far, fabsf(known[k] - table[k]));
        if (far < 1e-6f) c->table = known;
    }
    c->order = LLM__CODES_HIGH;
    c->bits = 4;
    c->scales = absmax->data;
    c->scale_type = absmax->type;
    c->row_group = block;
    c->group = q->cols % block == 0 ? block : q->cols % 32 == 0 && block % 32 == 0 ? 32 : 1; /* of a row: blocks may begin within it */
    c->nested = nested ? nested->data : NULL;
    c->nested_map = nested_map ? nested_map->data : NULL;
    c->nested_block = nested_block;
    c->nested_offset = (float)offset;
}

/* Scales of int8 and fp8: one, one a row, or one a block of rows and columns. How they are called, and what they are divided by. */
static const struct {
    const char *end;
    float per;
} llm__seek_scale_names[] = {{".weight_scale", 1}, {".weight_scale_inv", 1}, {".SCB", 127}, {".scale", 1}, {".weights_scaling_factor", 1}};

/* One number, or one a row: nothing has to be made of the values. */
static void llm__seek_plain_scales(const llm__seek_look *q, const llm__tensor *scales, const char *end, float per, llm_segment *s) {
    const int64_t n = llm__seek_count(scales);
    float *to = n == 1 ? NULL : (float *)llm__arena_get(&q->L->keep, (size_t)n * sizeof *to);
    if (n > 1 && !to) q->L->r = llm__nomem();
    for (int64_t i = 0; i < n && !q->L->r; i++) {
        const float x = llm__element(scales->type, scales->data, i) / per;
        if (!(fabsf(x) <= 3.4028234e38f)) llm__seek_bad(q, end, "element %lld is %g, a number expected", (long long)i, (double)x);
        if (to) to[i] = x;
        else s->scale = x != 0 ? x : 1e-30f; /* a segment's 0 stands for 1 */
    }
    s->scales = to;
}

/* What Ascend's static W8A8 multiplies sums with, less the scale of the inputs, which are not rounded here. Of f16 models the f32 is the
 * lower half of an int64. */
static void llm__seek_deq(const llm__seek_look *q, llm_segment *s) {
    const llm__tensor *deq = llm__seek_must(q, ".deq_scale", "F32 I64", 1, q->rows);
    const float input = llm__seek_number_of(q, ".input_scale");
    float *to = (float *)llm__arena_get(&q->L->keep, (size_t)q->rows * sizeof *to);
    if (!to && !q->L->r) q->L->r = llm__nomem();
    for (int64_t i = 0; i < q->rows && !q->L->r; i++) {
        to[i] = llm__element(LLM_TYPE_F32, deq->data, deq->type == LLM_TYPE_I64 ? 2 * i : i) / input;
        if (!(fabsf(to[i]) <= 3.4028234e38f))
            llm__seek_bad(q, ".deq_scale", "element %lld is %g, a number expected", (long long)i, (double)to[i]);
    }
    s->scales = to;
}

/* 1 if zero points of int8 (or Ascend's offsets) are there and not all 0. */
static const llm__tensor *llm__seek_offsets(const llm__seek_look *q, const llm__tensor *scales) {
    const llm__tensor *zeros = llm__seek_find(q, ".weight_offset");
    const char *end = zeros ? ".weight_offset" : ".weight_zero_point";
    if (!llm__seek_find(q, end) || q->first->type != LLM_TYPE_I8) return NULL;
    zeros = llm__seek_must(q, end, "F32 F16 BF16 I8", -1, 0);
    if (zeros && llm__seek_count(zeros) != llm__seek_count(scales))
        llm__seek_bad(q, end, "%lld numbers, as many as scales expected: %lld", (long long)llm__seek_count(zeros),
                      (long long)llm__seek_count(scales));
    for (int64_t i = 0; zeros && !q->L->r && i < llm__seek_count(zeros); i++)
        if (llm__element(zeros->type, zeros->data, i) != 0) return zeros;
    return NULL;
}

/* How many rows, or columns, share a scale where n of them have so many; the config's block size is 128 as good as always. 0: it cannot
 * be. */
static int64_t llm__seek_block(const llm_json *config, int i, int64_t n, int64_t scales) {
    const int list = llm_json_find(config, llm__quant_node(config), "weight_block_size");
    int64_t said = 128;
    int node = llm_json_first(config, list);
    if (node >= 0 && i) node = llm_json_next(config, node);
    llm_json_int(config, node, &said);
    if (scales < 1) return 0;
    if (scales == 1) return n;
    if (said > 0 && (n + said - 1) / said == scales) return said;
    return n % scales ? 0 : n / scales;
}

/* int8 and fp8. */
static void llm__seek_bytes(const llm__seek_look *q, llm__codes *c, llm_segment *s) {
    const llm__tensor *scales = NULL;
    int k = 0;
    const int f8 = q->first->type != LLM_TYPE_I8;
    if (!f8 && llm__seek_find(q, ".deq_scale")) {
        llm__seek_deq(q, s);
        return;
    }
    for (; k < LLM__COUNT(llm__seek_scale_names) && !scales; k++) scales = llm__seek_find(q, llm__seek_scale_names[k].end);
    if (!scales) {
        llm__seek_bad(q, ".weight_scale", "it is missing: %s has no meaning without scales", f8 ? "fp8" : "int8");
        return;
    }
    const char *end = llm__seek_scale_names[k - 1].end;
    const float per = llm__seek_scale_names[k - 1].per;
    const int64_t n = llm__seek_count(scales);
    scales = llm__seek_must(q, end, "F32 F16 BF16 F8_E8M0", -1, 0);
    const llm__tensor *zeros = scales ? llm__seek_offsets(q, scales) : NULL;
    const int e8 = scales && scales->type == LLM_TYPE_F8_E8M0;
    if (q->L->r) return;
    if ((n == 1 || (n == q->rows && (scales->n_dims < 2 || scales->shape[scales->n_dims - 1] == 1))) && !zeros && !e8) {
        llm__seek_plain_scales(q, scales, end, per, s);
        return;
    }
    const int64_t down = scales->n_dims >= 2 ? scales->shape[scales->n_dims - 2] : n,
                  across = scales->n_dims >= 2 ? n / LLM__MAX(down, 1) : 1;
    c->row_group = llm__seek_block(q->L->m->source.config, 0, q->rows, down);
    c->group = llm__seek_block(q->L->m->source.config, 1, q->cols, across);
    if (!c->row_group || !c->group || per != 1 || scales->n_dims < 2 || q->first->type == LLM_TYPE_F8_E5M2) {
        llm__seek_bad(q, end, "%lld x %lld scales for %lld rows and %lld columns", (long long)down, (long long)across, (long long)q->rows,
                      (long long)q->cols);
        return;
    }
    c->order = LLM__CODES_BYTES;
    c->bits = 8;
    c->zero = f8 ? -1 : 128;
    llm__seek_scales_by_row(c, scales, across);
    if (!zeros) return;
    c->zeros_order = LLM__ZEROS_NUMBERS;
    c->zeros = zeros->data;
    c->zeros_type = zeros->type;
}

/* BitNet: two bits a weight, less 1, and one scale for all. */
static void llm__seek_bitnet(const llm__seek_look *q, llm__codes *c, llm_segment *s) {
    static const float one = 1;
    if (q->rows % 4) {
        llm__seek_bad(q, ".weight", "a matrix of %lld rows is packed by fourths of them", (long long)q->rows);
        return;
    }
    const llm__tensor *codes = llm__seek_must(q, ".weight", "U8", q->rows / 4, q->cols);
    const float scale = codes ? llm__seek_number_of(q, ".weight_scale") : 0;
    if (q->L->r) return;
    s->scale = q->L->m->source.quant.divided ? 1 / scale : scale;
    c->order = LLM__CODES_FOURTHS;
    c->bits = 2;
    c->zero = 1;
    c->scales = (const uint8_t *)&one;
    c->scale_type = LLM_TYPE_F32;
}

/* The method's end of a first tensor's name. */
static const char *llm__seek_end(const llm__tensor *t) {
    return llm__ends_with(t->name.p, ".qweight") ? ".qweight" : llm__ends_with(t->name.p, ".weight_packed") ? ".weight_packed" : ".weight";
}

LLM__PRIVATE int llm__quant_is(const llm__loader *L, const llm__tensor *t) {
    if (L->m->source.gguf || llm__ends_with(t->name.p, "_blocks")) return 0;
    const int named = llm__ends_with(t->name.p, ".qweight") || llm__ends_with(t->name.p, ".weight_packed");
    const int bytes = t->type == LLM_TYPE_I8 || t->type == LLM_TYPE_U8 || t->type == LLM_TYPE_F8_E4M3 || t->type == LLM_TYPE_F8_E5M2;
    return named || (bytes && llm__ends_with(t->name.p, ".weight"));
}

LLM__PRIVATE void llm__quant_seek(llm__loader *L, const llm__tensor *t, int64_t rows, int64_t cols, llm_segment *s) {
    const char *end = llm__seek_end(t);
    const llm__seek_look q = {L, t, llm__s(t->name.p, t->name.n - strlen(end)), rows, cols};
    const int bytes = t->type == LLM_TYPE_I8 || t->type == LLM_TYPE_F8_E4M3 || t->type == LLM_TYPE_F8_E5M2;
    llm__codes made = LLM__ZERO, *c = &made;
    int bad = 0;
    made.codes = t->data;
    made.rows = rows, made.cols = cols, made.group = cols, made.row_group = 1;
    s->scale = 0;
    if (bytes) {
        const int64_t want[2] = {rows, cols};
        if (!llm__loader_fits(L, t, want, 2)) return;
        llm__seek_bytes(&q, c, s);
    } else if (!strcmp(end, ".qweight") && L->m->source.quant.method == LLM__QUANT_AWQ) llm__seek_awq(&q, c);
    else if (!strcmp(end, ".qweight")) llm__seek_gptq(&q, c);
    else if (t->type == LLM_TYPE_I32) llm__seek_packed(&q, c);
    else if (L->m->source.quant.method == LLM__QUANT_BITNET) llm__seek_bitnet(&q, c, s);
    else if (!strcmp(end, ".weight") && llm__seek_find(&q, ".weight.absmax")) llm__seek_bnb4(&q, c);
    else llm__seek_e2m1(&q, end, c, s);
    if (L->r) return;
    s->transposed = 0;
    s->type = t->type;
    s->data = t->data;
    s->stored_cols = cols;
    if (!c->scales) return; /* the values are read as they are */
    const int quick = !L->backend || L->dry;
    s->sorted = c->g_idx ? llm__seek_sorted(&q, c, quick, &bad) : NULL;
    int bad_too = 0; /* of scales that were looked at already */
    const llm__codes_form form = llm__codes_form_of(c, quick || s->sorted, &bad_too);
    if (bad || bad_too) {
        llm__seek_bad(&q, end, "one of its scales or zero points is no finite number");
        return;
    }
    llm__codes *kept = (llm__codes *)llm__arena_take(&L->keep, sizeof *kept);
    if (!kept) L->r = llm__nomem();
    else *kept = made;
    s->data = kept;
    s->type = form.type;
    s->stored_cols = form.stored_cols;
    s->read = form.read;
    s->scale = form.scale * llm__segment_scale(s);
}

LLM__PRIVATE int llm__quant_bias(llm__loader *L, const llm__tensor *matrix, int64_t rows, llm_segment *s) {
    if (!matrix || matrix->type != LLM_TYPE_I8 || !llm__ends_with(matrix->name.p, ".weight")) return 0;
    llm__seek_look q = {L, matrix, llm__s(matrix->name.p, matrix->name.n - 7), rows, 0};
    if (!llm__seek_find(&q, ".quant_bias") || !rows) return 0;
    q.cols = matrix->bytes / rows;
    const llm__tensor *bias = llm__seek_must(&q, ".quant_bias", "I32", 1, rows),
                      *deq = llm__seek_must(&q, ".deq_scale", "F32 I64", 1, rows),
                      *offset = llm__seek_must(&q, ".input_offset", "F32 F16 BF16 I8", 1, 1);
    float *to = (float *)llm__arena_get(&L->keep, (size_t)rows * sizeof *to);
    if (!to && !L->r) L->r = llm__nomem();
    for (int64_t r = 0; r < rows && !L->r && L->backend && !L->dry;
         r++) { /* the sum that an offset of the inputs adds is in it: out with that */
        int64_t sum = 0;
        int32_t b;
        for (int64_t i = 0; i < q.cols; i++) sum += (int8_t)matrix->data[r * q.cols + i];
        memcpy(&b, bias->data + 4 * r, 4);
        to[r] = (float)((double)b + (double)llm__element(offset->type, offset->data, 0) * (double)sum) *
                llm__element(LLM_TYPE_F32, deq->data, deq->type == LLM_TYPE_I64 ? 2 * r : r);
    }
    s->type = LLM_TYPE_F32;
    s->data = to;
    s->transposed = 1;
    s->stored_cols = rows;
    return 1;
}
