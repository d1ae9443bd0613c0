/* cuda_prims.h - the twins of what stands in >>prims of llm_cuda.cu: the same names in plain C++, on what cuda_emu.h has. */
#pragma once
#define SMEM(T, name, n) \
    static char name##_key; \
    T *name = (T *)cuemu::smem_static(&name##_key, sizeof(T) * (n), SMEM_ALIGN)
#define DYN_SMEM(T, name) T *name = (T *)cuemu::smem_dyn()
static inline float half_to_f32(uint16_t h) { return cuemu_half_to_float(h); }
static inline uint16_t f32_to_half(float f) { return cuemu_float_to_half(f); }
template <bool HALF> static inline void mma_16x8x16(float *d, const uint32_t *a, const uint32_t *b) { cuemu::mma_m16n8k16<HALF>(d, a, b); }
template <bool HALF, int N> static inline void group_product(float *d, uint64_t a, uint64_t b, int add) {
    cuemu::wgmma({d, NULL, a, b, N, HALF, false, add != 0});
}
template <bool HALF, int N, int TURNED> static inline void group_product_held(float *d, const uint32_t *a, uint64_t b) {
    cuemu::wgmma({d, a, 0, b, N, HALF, TURNED, true});
}
static inline void finish_first(float) {}
template <int N, class T> static inline void group_fence(T *r) { cuemu::wgmma_fence(r, N * sizeof *r); }
static inline void group_end(void) { cuemu::wgmma_commit(); }
template <int KEEP, int N, class T> static inline void group_wait(T *) { cuemu::wgmma_wait(KEEP); }
static inline uint32_t shared_address(const void *p) { return cuemu::shared_address(p); }
static inline void shared_fence(void) { cuemu::fence_proxy_async(); }
template <bool SIGNED> static inline void mma_16x8x32_bytes(int32_t *d, const uint32_t *a, uint2 b) {
    cuemu::mma_bytes<SIGNED, 32>(d, a, &b.x);
}
template <bool SIGNED> static inline void mma_16x8x16_bytes(int32_t *d, const uint32_t *a, uint32_t b) {
    cuemu::mma_bytes<SIGNED, 16>(d, a, &b);
}
static inline float larger_or_nan(float a, float b) { return a != a || b != b ? NAN : a > b ? a : b; }
static inline void store_shared_16(void *to, uint4 v) { memcpy(to, &v, sizeof v), cuemu::shared_written(to, sizeof v); }
static inline void load_matrix_x4(uint32_t *r, const void *row) { cuemu::ldmatrix_x4(r, row, false); }
static inline void load_matrix_x4_turned(uint32_t *r, const void *row) { cuemu::ldmatrix_x4(r, row, true); }
static inline void copy_async_16(void *to, const void *from, int n) { cuemu::cp_async(to, from, 16, (size_t)n, cuemu::plain_copy); }
static inline void copy_async_4(void *to, const void *from, int n) { cuemu::cp_async(to, from, 4, (size_t)n, cuemu::plain_copy); }
static inline void copy_async_end(void) { cuemu::cp_async_commit(); }
static inline void grid_wait(void) { cuemu::grid_wait(); }
template <int KEEP> static inline void copy_async_wait(void) { cuemu::cp_async_wait(KEEP); }
static inline float half_cut(float f) { return f != f ? f : fminf(fmaxf(f, -65504.0f), 65504.0f); }
template <bool HALF> static inline uint32_t narrow_pair(float a, float b) {
    if (HALF) return f32_to_half(half_cut(a)) | (uint32_t)f32_to_half(half_cut(b)) << 16;
    return cuemu_float_to_bf16(a) | (uint32_t)cuemu_float_to_bf16(b) << 16;
}
static inline uint32_t halves_fma(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d = 0;
    for (int h = 0; h < 32; h += 16)
        d |= (uint32_t)f32_to_half(half_to_f32((uint16_t)(a >> h)) * half_to_f32((uint16_t)(b >> h)) + half_to_f32((uint16_t)(c >> h)))
             << h;
    return d;
}
static inline uint32_t bits_and_or(uint32_t a, uint32_t mask, uint32_t or_this) { return (a & mask) | or_this; }
static inline float exp2_near(float f) { return exp2f(f); }
static inline void store_release(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline uint32_t load_acquire(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
enum { EMULATED = 1 }; /* what something takes tells nothing */
static void *nccl_function(const char *name) { return cuemu::nccl_symbol(name); }
static void *cublas_function(const char *name) { return cuemu::cublas_symbol(name); }
static const char *driver_missing(void) { return NULL; }
static inline float warp_sum(float v) {
    return cuemu::warp_tree(v, [](float a, float b) { return a + b; });
}
static inline float warp_max(float v) {
    return cuemu::warp_tree(v, [](float a, float b) { return b > a || a != a ? b : a; });
}
