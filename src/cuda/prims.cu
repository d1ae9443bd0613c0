/* prims: what is not plain C++: shared memory, conversions, tensor cores, launches.
 *
 * Each thing has two versions. The one for nvcc may use inline assembly; the other says the same for the emulation, whose header
 * (tests/cuda/emu/cuda_emu.h) has the meaning of the matrix instructions from the PTX manual.
 *
 * Sums over a warp go by butterflies: lane i adds the value of lane i ^ 16, then ^ 8, ... so that after five rounds every lane has the same
 * sum, added up in the same tree. Sums over a block are the sum of the warps' sums, again by a warp. Nothing is added by atomics but whole
 * numbers: a float's bits never depend on which thread was first. */

/* Of arrays in shared memory: vectors and ldmatrix read them, and cp.async asks memory for a sector once only where its 32 bytes stay
 * together, and for a line where 128 do. */
enum { SMEM_ALIGN = 128 };

#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 1000 || __CUDA_ARCH__ == 890)
enum { LATE_ARCH = 1 }; /* ptxas takes more registers there */
#else
enum { LATE_ARCH = 0 };
#endif
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000)
enum { WIDE_ARCH = 1 }; /* and few enough here for blocks of 16 warps */
#else
enum { WIDE_ARCH = 0 };
#endif

#ifdef CUDA_EMU
#define SMEM(T, name, n) \
    static char name##_key; \
    T *name = (T *)cuemu::smem_static(&name##_key, sizeof(T) * (n), SMEM_ALIGN)
#define DYN_SMEM(T, name) T *name = (T *)cuemu::smem_dyn()
static inline float half_to_f32(uint16_t h) { return cuemu_half_to_float(h); }
static inline uint16_t f32_to_half(float f) { return cuemu_float_to_half(f); }
template <bool HALF> static inline void mma_16x8x16(float *d, const uint32_t *a, const uint32_t *b) { cuemu::mma_m16n8k16<HALF>(d, a, b); }
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
static inline uint32_t bf16s_add(uint32_t a, uint32_t b) {
    uint32_t d = 0;
    for (int h = 0; h < 32; h += 16) {
        const uint32_t u[2] = {a >> h << 16, b >> h << 16};
        float x[2];
        memcpy(x, u, sizeof x);
        d |= (uint32_t)cuemu_float_to_bf16(x[0] + x[1]) << h;
    }
    return d;
}
static inline uint32_t bits_and_or(uint32_t a, uint32_t mask, uint32_t or_this) { return (a & mask) | or_this; }
static inline float exp2_near(float f) { return exp2f(f); }
static inline void store_release(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline uint32_t load_acquire(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static void *nccl_function(const char *name) { return cuemu::nccl_symbol(name); }
static void *cublas_function(const char *name) { return cuemu::cublas_symbol(name); }
static const char *driver_missing(void) { return NULL; }
#else
#define SMEM(T, name, n) \
    __shared__ __align__(SMEM_ALIGN) \
    T name[n]
#define DYN_SMEM(T, name) \
    extern __shared__ __align__(SMEM_ALIGN) \
    unsigned char dynamic_smem[]; \
    T *name = (T *)dynamic_smem
static __device__ __forceinline__ float half_to_f32(uint16_t h) { return __half2float(__ushort_as_half(h)); }
static __device__ __forceinline__ uint16_t f32_to_half(float f) { return __half_as_ushort(__float2half_rn(f)); }

/* d (16 x 8, f32) += a (16 x 16) b (16 x 8), of halves or bf16. In a warp, lane l: g = l / 4, t = l % 4. a[0..3]: rows g, g + 8, g, g + 8
 * with columns 2t, 2t + 1 (a[0], a[1]) and 8 more (a[2], a[3]); b: rows 2t, 2t + 1 and 8 more of column g; d: row g, columns 2t, 2t + 1,
 * row g + 8. */
template <bool HALF> static __device__ __forceinline__ void mma_16x8x16(float *d, const uint32_t *a, const uint32_t *b) {
    if (HALF)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8 x 8 matrices of 16-bit values from shared memory; lane i names row i % 8 of matrix i / 8. */
static __device__ __forceinline__ void load_matrix_x4(uint32_t *r, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* The same, each matrix turned: a lane gets two values of a column. */
static __device__ __forceinline__ void load_matrix_x4_turned(uint32_t *r, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* n of 16 (or 4) bytes on their way to shared memory, past the registers; zeros for the rest: with n 0 nothing is read, wherever `from` is.
 * Copies between two ends are a group; a wait lets the KEEP latest groups of this thread be under way. What other lanes' copies brought is
 * there behind a barrier. */
static __device__ __forceinline__ void copy_async_16(void *to, const void *from, int n) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(n)
                 : "memory");
}
static __device__ __forceinline__ void copy_async_4(void *to, const void *from, int n) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(n)
                 : "memory");
}
static __device__ __forceinline__ void copy_async_end(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int KEEP> static __device__ __forceinline__ void copy_async_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}

/* Every kernel calls it, in all threads: behind it what the kernels before wrote is there, and they read nothing any more; and the next
 * kernel may be started. Before it a kernel may read weights and the step's block, and write nothing: see launch. */
static __device__ __forceinline__ void grid_wait(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Two values as tensor cores take them, halves or bf16, rounded to nearest even: a in the low bits. What is too large for a half is cut off
 * at the largest: weights and attention's weights are not, activations are brought down by half_scale first. */
template <bool HALF> static __device__ __forceinline__ uint32_t narrow_pair(float a, float b) {
    uint32_t two;
    if (HALF) asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(b), "f"(a));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(b), "f"(a));
    return two;
}

/* Two halves times two others, and two more. */
static __device__ __forceinline__ uint32_t halves_fma(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* Two of bf16 and two others. */
static __device__ __forceinline__ uint32_t bf16s_add(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(0x3f803f80), "r"(b));
    return d;
}

/* One instruction, which nvcc does not find where both are constants. */
static __device__ __forceinline__ uint32_t bits_and_or(uint32_t a, uint32_t mask, uint32_t or_this) {
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(mask), "r"(or_this));
    return d;
}

/* 2^f in one instruction, 0 where that is too small for a normal number. */
static __device__ __forceinline__ float exp2_near(float f) {
    float x;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(f));
    return x;
}

/* A flag that other devices write or read: what was written before the release is there after an acquire that sees it. */
static __device__ __forceinline__ void store_release(uint32_t *p, uint32_t v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
static __device__ __forceinline__ uint32_t load_acquire(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

/* NCCL is opened only for more than one device. */
static void *nccl_function(const char *name) {
    static void *library; /* opened once, by the one thread that opens backends first */
    if (!library) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

/* The matrix library of the toolkit's version; what computes without it does so here. */
static void *cublas_function(const char *name) {
    static void *library; /* opened once, as above */
    static int asked;
    char file[32];
    snprintf(file, sizeof file, "libcublasLt.so.%d", CUDART_VERSION / 1000);
    if (!asked++) library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

/* NULL: there is a driver; else what is wrong. Asked before anything of CUDA is touched. */
static const char *driver_missing(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver ? NULL : "no NVIDIA driver is installed (libcuda.so.1 is not there)";
}
#endif

static __device__ __forceinline__ float bits_to_f32(uint32_t u) { return __uint_as_float(u); }
static __device__ __forceinline__ float bf16_to_f32(uint32_t h) { return __uint_as_float(h << 16); }

/* Widening and narrowing by bits, the same on both sides: formats differ in how many bits of f32's exponent and fraction they keep. */

/* To nearest even; a NaN stays one. */
static __device__ __forceinline__ uint32_t f32_to_bf16(float f) {
    uint32_t u = __float_as_uint(f);
    return (u & 0x7fffffff) > 0x7f800000 ? (u >> 16 | 0x40) : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* fp8 e4m3: its fields moved to those of f32 are 2^120 too small, subnormals too. No infinities; 0x7f is NaN. */
static __device__ __forceinline__ float e4m3_to_f32(uint32_t b) {
    float x = __uint_as_float((b & 0x80) << 24 | (b & 0x7f) << 20) * __uint_as_float(0x7b800000);
    return (b & 0x7f) == 0x7f ? NAN : x;
}

/* Two of them, from the low bytes; tensor cores' generation has an instruction for it, which goes by f16 and is exact. */
static __device__ __forceinline__ void e4m3_pair(uint32_t two, float *v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)two));
    v[0] = half_to_f32((uint16_t)halves), v[1] = half_to_f32((uint16_t)(halves >> 16));
#else
    v[0] = e4m3_to_f32(two & 255), v[1] = e4m3_to_f32(two >> 8 & 255);
#endif
}

/* The two 16-bit values of a pair that are nearest to a and b, and what they leave: together they have the bits of a float, nearly. */
template <bool HALF> static __device__ __forceinline__ void split_pair_of(float a, float b, uint32_t *high, uint32_t *low) {
    *high = narrow_pair<HALF>(a, b);
    float x = HALF ? half_to_f32((uint16_t)*high) : bf16_to_f32(*high & 0xffff),
          y = HALF ? half_to_f32((uint16_t)(*high >> 16)) : bf16_to_f32(*high >> 16);
    *low = narrow_pair<HALF>(a - x, b - y);
}

/* Twin: llm__f32_narrow. Rounds to nearest even; what is too large becomes `top`. */
static __device__ uint32_t f32_narrow(float f, int e_bits, int m_bits, uint32_t top, uint32_t nan) {
    uint32_t u = __float_as_uint(f), a = u & 0x7fffffff, sign = (u >> 31) << (e_bits + m_bits);
    if (a > 0x7f800000) return sign | nan;
    if (a == 0x7f800000) return sign | top;
    int e = (int)(a >> 23) - 128 + (1 << (e_bits - 1)), shift = 23 - m_bits;
    uint32_t m = (a & 0x7fffff) | 0x800000;
    if (e <= 0) {
        shift += 1 - e;
        e = 1;
    }
    if (shift > 24) return sign;
    uint32_t r = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    r += rest > half || (rest == half && (r & 1));
    r += (uint32_t)(e - 1) << m_bits;
    return sign | (r < top ? r : top);
}

/* All lanes get the result, always added up in the same order: each lane adds that of the lane 16 away, then 8, ... */
#ifdef CUDA_EMU
static inline float warp_sum(float v) {
    return cuemu::warp_tree(v, [](float a, float b) { return a + b; });
}
static inline float warp_max(float v) {
    return cuemu::warp_tree(v, [](float a, float b) { return b > a || a != a ? b : a; });
}
#else
static __device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

static __device__ __forceinline__ float warp_max(float v) {
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
#endif

/* The sum over all threads of a block, for all of them. `scratch`: 32 floats of shared memory, free again when it returns. */
static __device__ float block_sum(float v, float *scratch) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n = (blockDim.x + 31) >> 5;
    v = warp_sum(v);
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    v = warp_sum(lane < n ? scratch[lane] : 0);
    __syncthreads();
    return v;
}

/* Calls f with one of the constants FIRST to LAST, as a type: the one that `value` is. Anything else is the last. f is compiled for the
 * side that calls. */
#pragma nv_exec_check_disable
template <int FIRST, int LAST, class F> static __host__ __device__ __forceinline__ void with_constant(int value, F f) {
    if constexpr (FIRST < LAST) {
        if (value != FIRST) return with_constant<FIRST + 1, LAST>(value, f);
    }
    f(std::integral_constant<int, FIRST>());
}

static __host__ __device__ __forceinline__ int ceil_div(int64_t a, int64_t b) { return (int)((a + b - 1) / b); }
static size_t align16(size_t n) { return (n + 15) & ~(size_t)15; }
static size_t align256(size_t n) { return (n + 255) & ~(size_t)255; }
static int min_int(int64_t a, int64_t b) { return (int)(a < b ? a : b); }
static int max_int(int64_t a, int64_t b) { return (int)(a > b ? a : b); }
