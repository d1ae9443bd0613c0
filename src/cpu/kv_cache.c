#include "cpu/kv_cache.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "cpu/dtypes.h"
#include "cpu/isa.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"

LLM__PRIVATE void llm__kv_type_set(llm__kv_cache *kv, llm_kv_type type) {
    kv->type = type;
    kv->element_bytes = type == LLM_KV_F32 ? 4 : type == LLM_KV_F16 || type == LLM_KV_BF16 ? 2 : 1;
    kv->scaled = kv->element_bytes == 1;
    kv->kind = type == LLM_KV_F16 ? LLM__KIND_F16 : type == LLM_KV_BF16 ? LLM__KIND_BF16 : LLM__KIND_F32;
}

LLM__PRIVATE llm_kv_type llm__kv_auto(llm__isa isa, llm_compute compute) {
    if (compute == LLM_COMPUTE_F32) return LLM_KV_F32;
    return llm__kernels_of(isa)->bf16 && compute != LLM_COMPUTE_F16 ? LLM_KV_BF16 : LLM_KV_F16;
}

LLM__PRIVATE uint64_t llm__kv_place_layer(const llm__kv_cache *kv, const llm_kv_layer *shape, int page_tokens, uint64_t offset,
                                          llm__kv_place *p, int *ok) {
    int halve = kv->type == LLM_KV_INT4;
    uint64_t tokens = (uint64_t)page_tokens, size = (uint64_t)kv->element_bytes;
    p->shape = *shape;
    p->k_elements = halve ? (shape->head_dim + 1) / 2 : shape->head_dim;
    p->pair = kv->type == LLM_KV_BF16 && shape->head_dim % 2 == 0 && shape->v_head_dim % 16 == 0 && shape->v_head_dim ? 2 : 1;
    p->v_elements = halve ? (shape->v_head_dim + 1) / 2 : shape->v_head_dim;
    p->offset = (int64_t)offset;
    uint64_t at = llm__align_up(llm__mul(tokens * size, (uint64_t)p->k_elements, ok), 64, ok);
    p->v_offset = (int64_t)at;
    at = llm__align_up(llm__add(at, llm__mul(tokens * size, (uint64_t)p->v_elements, ok), ok), 64, ok);
    p->scale_offset = (int64_t)at;
    if (kv->scaled) at = llm__add(at, tokens * 4 * sizeof(float), ok);
    p->head_bytes = (int64_t)llm__align_up(at, 64, ok);
    at = llm__add(offset, llm__mul((uint64_t)p->head_bytes, (uint64_t)shape->n_kv_heads, ok), ok);
    p->state_offset = (int64_t)at;
    return llm__add(at, llm__align_up((uint64_t)shape->n_state * sizeof(float), 64, ok), ok);
}

LLM__PRIVATE int llm__kv_turn_size(int n) { return n & -n; }

LLM__PRIVATE void llm__kv_turn(float *x, int n, int size) {
    const float scale = 1 / sqrtf((float)size);
    for (int h = 1; h < size; h *= 2)
        for (int i = 0; i < n; i += 2 * h)
            for (int j = i; j < i + h; j++) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
    for (int i = 0; i < n; i++) x[i] *= scale;
}

/* Turns a row of n values into stored elements at `out`, with the scale and offset that go beside them. */
static void llm__kv_encode(const llm__kernels *k, llm_kv_type type, const float *x, int n, uint8_t *out, float *scale, float *offset) {
    float low = x[0], high = x[0];
    *scale = 1;
    *offset = 0;
    if (type == LLM_KV_F32) memcpy(out, x, (size_t)n * 4);
    else if (type == LLM_KV_F16) k->to_half((uint16_t *)(void *)out, x, n);
    else if (type == LLM_KV_BF16) k->to_bf16((uint16_t *)(void *)out, x, n);
    if (type == LLM_KV_F32 || type == LLM_KV_F16 || type == LLM_KV_BF16) return;
    for (int i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (type == LLM_KV_FP8_E4M3 || type == LLM_KV_FP8_E5M2) {
        float largest = type == LLM_KV_FP8_E4M3 ? 448.0f : 57344.0f, top = LLM__MAX(high, -low);
        if (top > 0) *scale = top / largest;
        for (int i = 0; i < n; i++) {
            float v = x[i] / *scale;
            v = v > largest ? largest : v > -largest ? v : -largest; /* not a number becomes the smallest */
            out[i] = type == LLM_KV_FP8_E4M3 ? llm__f32_to_e4m3(v) : llm__f32_to_e5m2(v);
        }
        return;
    }
    /* int4 leaves out the ends of the range, where few values are: squared errors fall by 4 to 10 % (heads of 64 to 256) */
    float levels = type == LLM_KV_INT8 ? 255.0f : 15.0f, cut = type == LLM_KV_INT8 ? 0 : 0.03f * (high - low);
    int half = (n + 1) / 2;
    low += cut, high -= cut;
    *offset = low;
    if (high > low) *scale = (high - low) / levels;
    for (int i = 0; i < n; i++) {
        float v = (x[i] - low) / *scale + 0.5f;
        uint8_t q = (uint8_t)(v > levels ? levels : v > 0 ? v : 0);
        if (type == LLM_KV_INT8) out[i] = q;
        else if (i < half) out[i] = q;
        else out[i - half] = (uint8_t)(out[i - half] | q << 4);
    }
}

LLM__PRIVATE void llm__kv_write_value(const llm__kernels *k, const llm__kv_view *view, int position, const float *value) {
    const llm__kv_place *p = view->place;
    int t = position % view->kv->page_tokens, tokens = view->kv->page_tokens;
    uint8_t *part = llm__kv_part(view, position);
    float *scales = (float *)(void *)(part + p->scale_offset), scale, offset;
    if (p->pair == 2) {
        uint16_t *to = (uint16_t *)(void *)(part + p->v_offset) + (int64_t)(t / 2) * 2 * p->v_elements + t % 2;
        for (int i = 0; i < p->v_elements; i++) to[2 * i] = llm__f32_to_bf16(value[i]);
        return;
    }
    llm__kv_encode(k, view->kv->type, value, p->shape.v_head_dim, part + p->v_offset + (int64_t)t * p->v_elements * view->kv->element_bytes,
                   &scale, &offset);
    if (view->kv->scaled) scales[2 * tokens + t] = scale, scales[3 * tokens + t] = offset;
}

LLM__PRIVATE void llm__kv_write_key(const llm__kernels *k, const llm__kv_view *view, int position, const float *key, uint8_t *scratch) {
    const llm__kv_place *p = view->place;
    int t = position % view->kv->page_tokens, tokens = view->kv->page_tokens, n = p->k_elements, size = view->kv->element_bytes;
    uint8_t *part = llm__kv_part(view, position);
    float *scales = (float *)(void *)(part + p->scale_offset), scale, offset;
    llm__kv_encode(k, view->kv->type, key, p->shape.head_dim, scratch, &scale, &offset);
    if (view->kv->scaled) scales[t] = scale, scales[tokens + t] = offset;
    uint8_t *to = part + ((int64_t)(t / LLM__GROUP) * n * LLM__GROUP + t % LLM__GROUP * p->pair) * size;
    if (p->pair == 2)
        for (int i = 0; i < n; i += 2, to += LLM__GROUP * 4) memcpy(to, scratch + i * 2, 4);
    else if (size == 2)
        for (int i = 0; i < n; i++, to += LLM__GROUP * 2) memcpy(to, scratch + i * 2, 2);
    else if (size == 1)
        for (int i = 0; i < n; i++, to += LLM__GROUP) *to = scratch[i];
    else
        for (int i = 0; i < n; i++, to += LLM__GROUP * 4) memcpy(to, scratch + i * 4, 4);
}

LLM__PRIVATE void llm__kv_write_token(const llm__kernels *k, const llm__kv_view *view, int position, const float *key, const float *value,
                                      uint8_t *scratch) {
    llm__kv_write_key(k, view, position, key, scratch);
    llm__kv_write_value(k, view, position, value);
}

LLM__PRIVATE void llm__kv_load_keys(const llm__kernels *k, const llm__kv_view *view, int position, float *out) {
    int n = view->place->k_elements;
    k->expand(view->kv->type, llm__kv_keys(view, position), n * LLM__GROUP, out, out + n * LLM__GROUP);
}

LLM__PRIVATE void llm__kv_load_values(const llm__kernels *k, const llm__kv_view *view, int from, int to, float *out, int stride) {
    int n = view->place->v_elements;
    const uint8_t *at = llm__kv_values(view, from);
    for (int i = from; i < to; i++, at += n * view->kv->element_bytes, out += stride) k->expand(view->kv->type, at, n, out, out + n);
}

LLM__PRIVATE void llm__kv_load_row(const llm__kernels *k, const llm__kv_view *view, int position, float *out) {
    const uint8_t *pairs = llm__kv_values(view, position);
    const uint32_t low = position % 2 ? 0 : 16; /* where a position's half of a pair is */
    llm__bits16 x;
    if (view->place->pair == 1) llm__kv_load_values(k, view, position, position + 1, out, view->place->v_elements);
    for (int i = 0; i < view->place->v_elements && view->place->pair == 2; i += LLM__ROWS) {
        memcpy(&x, pairs + i * 4, sizeof x);
        LLM__EACH(j) x.u[j] = x.u[j] << low & 0xFFFF0000u;
        memcpy(out + i, &x, sizeof x);
    }
}

LLM__PRIVATE void llm__kv_read_value(const llm__kernels *k, const llm__kv_view *view, int position, float *out) {
    const llm__kv_place *p = view->place;
    int t = position % view->kv->page_tokens, tokens = view->kv->page_tokens, n = p->shape.v_head_dim;
    const float *scales = (const float *)(const void *)(llm__kv_part(view, position) + p->scale_offset);
    llm__kv_load_row(k, view, position, out);
    for (int i = 0; i < n && view->kv->scaled; i++) out[i] = scales[3 * tokens + t] + scales[2 * tokens + t] * out[i];
}

LLM__PRIVATE void llm__kv_load_scales(const llm__kv_view *view, const int32_t *chosen, int block, int from, int to, int what, float *scale,
                                      float *offset) {
    const int tokens = view->kv->page_tokens;
    memset(scale, 0, LLM__BLOCK * sizeof *scale);
    memset(offset, 0, LLM__BLOCK * sizeof *offset);
    for (int i = from; i < to; i++) {
        const int position = chosen ? chosen[block + i] : block + i;
        const float *at =
            (const float *)(const void *)(llm__kv_part(view, position) + view->place->scale_offset) + what * tokens + position % tokens;
        scale[i] = at[0];
        offset[i] = at[tokens];
    }
}
