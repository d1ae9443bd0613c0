/* cuda_emu.h - CUDA C++ kernels on the CPU, for tests: g++ -x c++ -I tests/cuda/emu -include tests/cuda/emu/cuda_emu.h -c llm_cuda.cu
 *
 * A thread of a block is a fiber, switched by hand-written code; a warp operation or a barrier parks a fiber until the others come. A
 * stream is a thread of the operating system, so host and device really run side by side; several devices are several streams, and NCCL is
 * stream threads that meet, also of several processes of one machine. The order in which ready fibers go on is a seed (CUEMU_SEED: 0 in order, 1 the last first, even: random
 * priorities of warps, odd: uniform), so that a missing barrier shows as a wrong result under some seed. Shared memory is allocated for
 * each block and filled with NaN: reading what nobody wrote shows, and AddressSanitizer sees writes past its end. What can never be right
 * ends the process with a sentence: threads that meet in different operations or never, copies that are not waited for, misaligned
 * addresses. Of a kernel that may start before the one in front of it has ended (cudaLaunchAttributeProgrammaticStreamSerialization), two
 * blocks run up to their griddepcontrol.wait before that one begins, so that whoever reads too early sees what was there before; and each
 * block must have waited when it ends.
 *
 * What a real driver may do it does always: the first launch of a kernel that was not loaded (cudaFuncGetAttributes) waits for all that the
 * device has; cudaMalloc and cudaFree do so too, and hold up the launches of all threads meanwhile; the first call of an NCCL collective
 * waits in the calling thread for the other ranks'; ncclCommDestroy for theirs, unless all are in one group. A wait of CUEMU_WAIT_S
 * seconds (60) ends the process with a sentence. Arrays in shared memory lie no better than they ask for: at an odd multiple of their alignment.
 *
 * Switches in the environment: CUEMU_SEED, CUEMU_THREADS (threads that run blocks: 1; with more each device takes them in an order of
 * its own), CUEMU_DEVICES (8), CUEMU_SMS (4), CUEMU_MEMORY (bytes of a device: 1 GiB), CUEMU_DELAY_US (before each stream operation),
 * CUEMU_PAUSE_US (of blocks at barriers, at random up to this), CUEMU_FAIL_LAUNCH (the kernel of that number fails),
 * CUEMU_DEAD_RANK (this NCCL rank never comes), CUEMU_DEAD_DEVICE (its next
 * kernel takes 2 s and fails), CUEMU_DRIVER (its version: 13000), CUEMU_NO_PEERS (devices cannot read each other's memory),
 * CUEMU_ARCH (90: capability and shared memory of a block), CUEMU_PTX (as CUEMU_ARCH: what kernels were compiled for), CUEMU_STUCK_LAUNCH (launches on this device do not return until a communicator
 * is aborted), CUEMU_STUCK_FOR_EVER (nor then), CUEMU_OLD_CUBLAS (cuBLASLt cannot be asked for algorithms). */
#pragma once
#define CUDA_EMU 1
#include <cuda_runtime.h>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>

namespace cuemu {
struct dim {
    unsigned x, y, z;
};
enum Kind { SYNCWARP, SHFL, VOTE, REDUCE, MATCH, MMA, LDMATRIX, WGMMA, WGMMA_WAIT };
// --- core (cuda_emu.cpp, never built with -fsanitize=thread) ---
const char *warp_gather(unsigned mask, const void *v, unsigned n, int kind, int line); // 32 slots of 64 B
const int ONCE = 48; // where in the first slot a shuffle or a product keeps a Once
struct Once {        // what the first lane behind a meeting has done for all; the meeting's end sets it to zero
    int done;
    float sum;
};
unsigned live_mask();
void block_sync(int id, int nthreads, int line); // bar.sync id, n (n = 0: whole block)
int block_reduce(int pred, int op, int line);    // __syncthreads_count/and/or
void grid_sync(int line);
void grid_wait(int line = __builtin_LINE()); // griddepcontrol.wait, and launch_dependents behind it
void yield();
void *smem_dyn(size_t *bytes = nullptr);
void *smem_static(const void *key, size_t bytes, size_t align); // one malloc'ed object a block, no better aligned than it asks for
typedef void (*copy_fn)(void *, const void *, size_t, size_t);
void cp_async(void *d, const void *s, size_t n, size_t src_n, copy_fn f);
void cp_async_commit();
void count_access(const void *p, size_t n, int written, const void *pc); // see count.h
void cp_async_wait(int keep);
// wgmma.mma_async.m64nNk16 of 16-bit floats with f32 sums, as PTX says it. A product reads shared memory when it is issued or when it is
// waited for, by the seed; until then its sums are NaN. Ends the process: registers touched without a wgmma.fence or before the wait, and
// shared memory that was written without a fence.proxy.async since.
struct Wgmma {
    float *d;
    const uint32_t *a;       // in registers, or nullptr: at the descriptor
    uint64_t a_tile, b_tile; // descriptors of matrices in shared memory
    int n;                   // columns
    bool half, turned, add;  // f16 or bf16; b MN-major; d += instead of d =
};
void wgmma(const Wgmma &w, int line = __builtin_LINE());
void wgmma_fence(const void *registers, size_t bytes);
void wgmma_commit(int line = __builtin_LINE());
void wgmma_wait(int keep, int line = __builtin_LINE());
void fence_proxy_async();
void shared_written(const void *p, size_t n); // by a thread's own stores
uint32_t shared_address(const void *p);       // of dynamic shared memory, as it has 18 bits on a device
[[noreturn]] void die(const char *fmt, ...);
cudaError_t launch(const void *k, dim3 g, dim3 b, size_t smem, cudaStream_t st, bool coop, bool early, std::function<void()> body);
void enqueue(cudaStream_t st, std::function<void()> f);
void *nccl_symbol(const char *name);   // what dlsym would find in libnccl
void *cublas_symbol(const char *name); // ... and in libcublasLt
extern int seed;                       // 0 in order, 1 reverse, >= 2 random order of the threads
extern int cp_async_late;              // 1: copies land only at the wait
inline void plain_copy(void *d, const void *s, size_t n, size_t src_n) {
    memcpy(d, s, src_n);
    if (src_n < n) memset((char *)d + src_n, 0, n - src_n);
}
#ifdef CUEMU_COUNT // accesses of these functions are not the kernel's
#define CUEMU_UNSEEN __attribute__((no_sanitize_thread, noinline))
#else
#define CUEMU_UNSEEN
#endif
#if defined(__SANITIZE_THREAD__) && !defined(CUEMU_COUNT) // reads of the exchange slots are not the kernel's
extern "C" void AnnotateIgnoreReadsBegin(const char *, int);
extern "C" void AnnotateIgnoreReadsEnd(const char *, int);
struct SlotRead {
    SlotRead() { AnnotateIgnoreReadsBegin("", 0); }
    ~SlotRead() { AnnotateIgnoreReadsEnd("", 0); }
};
#else
struct SlotRead {
    SlotRead() {}
    ~SlotRead() {}
};
#endif
template <class... P, class... A>
cudaError_t launch_t(void (*k)(P...), dim3 g, dim3 b, size_t smem, cudaStream_t st, bool coop, bool early, A &&...a) {
    auto t = std::make_shared<std::tuple<std::decay_t<P>...>>(static_cast<std::decay_t<P>>(std::forward<A>(a))...);
    return cuemu::launch((const void *)k, g, b, smem, st, coop, early, [k, t] { std::apply(k, *t); });
}
} // namespace cuemu

template <class... P, class... A> cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*k)(P...), A &&...a) {
    bool coop = false, early = false;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        if (c->attrs[i].id == cudaLaunchAttributeCooperative) coop = c->attrs[i].val.cooperative != 0;
        if (c->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            early = c->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    }
    return cuemu::launch_t(k, c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream, coop, early, std::forward<A>(a)...);
}

// a few bytes, which a library that is opened late finds room for among what the program has from its start
#define CUEMU_TLS __attribute__((tls_model("initial-exec")))
extern __thread uint3 threadIdx CUEMU_TLS, blockIdx CUEMU_TLS;
extern __thread cuemu::dim blockDim CUEMU_TLS, gridDim CUEMU_TLS;
static const int warpSize = 32;

// --- block and warp ---
#define CUEMU_L int line = __builtin_LINE()
inline void __syncthreads(CUEMU_L) { cuemu::block_sync(0, 0, line); }
inline int __syncthreads_count(int p, CUEMU_L) { return cuemu::block_reduce(p, 0, line); }
inline int __syncthreads_and(int p, CUEMU_L) { return cuemu::block_reduce(p, 1, line); }
inline int __syncthreads_or(int p, CUEMU_L) { return cuemu::block_reduce(p, 2, line); }
inline void __syncwarp(unsigned m = ~0u, CUEMU_L) {
    int z = 0;
    cuemu::warp_gather(m, &z, 4, cuemu::SYNCWARP, line);
}
inline int cuemu_lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31; }
template <class T> T cuemu_shfl(unsigned m, T v, int src, int line) {
    static_assert(std::is_trivially_copyable<T>::value && sizeof(T) <= 8, "shfl type");
    const char *b = cuemu::warp_gather(m, &v, sizeof(T), cuemu::SHFL, line);
    cuemu::SlotRead sr;
    T r;
    memcpy((void *)&r, b + 64 * src, sizeof(T));
    return r;
}
template <class T> T __shfl_sync(unsigned m, T v, int s, int w = 32, CUEMU_L) {
    int l = cuemu_lane();
    return cuemu_shfl(m, v, (l & ~(w - 1)) | (s & (w - 1)), line);
}
template <class T> T __shfl_xor_sync(unsigned m, T v, int x, int w = 32, CUEMU_L) {
    int l = cuemu_lane(), s = l ^ x;
    return cuemu_shfl(m, v, (s & ~(w - 1)) > (l & ~(w - 1)) ? l : s, line);
}
template <class T> T __shfl_down_sync(unsigned m, T v, unsigned d, int w = 32, CUEMU_L) {
    int l = cuemu_lane();
    return cuemu_shfl(m, v, (l & (w - 1)) + (int)d < w ? l + d : l, line);
}
template <class T> T __shfl_up_sync(unsigned m, T v, unsigned d, int w = 32, CUEMU_L) {
    int l = cuemu_lane();
    return cuemu_shfl(m, v, (l & (w - 1)) >= (int)d ? l - d : l, line);
}
// What shuffles by 16, 8, 4, 2 and 1 give, each joined with what a lane has, where the order of both does not matter: one meeting for five,
// and one lane that joins for all.
namespace cuemu {
template <class F> float warp_tree(float v, F join, CUEMU_L) {
    char *b = const_cast<char *>(warp_gather(~0u, &v, sizeof v, SHFL, line));
    SlotRead sr;
    Once once;
    memcpy(&once, b + ONCE, sizeof once);
    if (once.done) return once.sum;
    float s[32];
    for (int i = 0; i < 32; i++) memcpy(&s[i], b + 64 * i, sizeof v);
    for (int o = 16; o; o /= 2)
        for (int i = 0; i < o; i++) s[i] = join(s[i], s[i + o]);
    once = {1, s[0]};
    memcpy(b + ONCE, &once, sizeof once);
    return s[0];
}
} // namespace cuemu
inline unsigned __ballot_sync(unsigned m, int p, CUEMU_L) {
    int v = p != 0;
    const char *b = cuemu::warp_gather(m, &v, 4, cuemu::VOTE, line);
    cuemu::SlotRead sr;
    unsigned r = 0; // lanes that have left before count as 0: their slots are filled with -1
    for (int i = 0; i < 32; i++)
        if (m >> i & 1 && *(const int *)(b + 64 * i) == 1) r |= 1u << i;
    return r;
}
inline int __any_sync(unsigned m, int p, CUEMU_L) { return __ballot_sync(m, p, line) != 0; }
inline int __all_sync(unsigned m, int p, CUEMU_L) { return __ballot_sync(m, !p, line) == 0; }
template <class T, class F> T cuemu_wreduce(unsigned m, T v, F f, int line) {
    const char *b = cuemu::warp_gather(m, &v, sizeof(T), cuemu::REDUCE, line);
    cuemu::SlotRead sr;
    T r{};
    bool first = true;
    for (int i = 0; i < 32; i++)
        if (m >> i & 1) {
            T x;
            memcpy(&x, b + 64 * i, sizeof x);
            r = first ? x : f(r, x);
            first = false;
        }
    return r;
}
template <class T> T __reduce_add_sync(unsigned m, T v, CUEMU_L) {
    return cuemu_wreduce(
        m, v, [](T a, T b) { return a + b; }, line);
}
template <class T> T __reduce_max_sync(unsigned m, T v, CUEMU_L) {
    return cuemu_wreduce(
        m, v, [](T a, T b) { return a > b ? a : b; }, line);
}
template <class T> T __reduce_min_sync(unsigned m, T v, CUEMU_L) {
    return cuemu_wreduce(
        m, v, [](T a, T b) { return a < b ? a : b; }, line);
}
inline unsigned __activemask() { return cuemu::live_mask(); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { cuemu::yield(); }
inline size_t __cvta_generic_to_shared(const void *p) { return (size_t)p; }

// --- atomics: acq_rel, so that threadfence + counter orders as it does on the device ---
template <class T, class F> CUEMU_UNSEEN T cuemu_rmw(T *p, F f) {
    T o, n;
    __atomic_load(p, &o, __ATOMIC_ACQUIRE);
    do n = f(o);
    while (!__atomic_compare_exchange(p, &o, &n, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return o;
}
template <class T> using cuemu_id = std::common_type_t<T>;
template <class T> T atomicAdd(T *p, cuemu_id<T> v) {
    return cuemu_rmw(p, [=](T o) { return (T)(o + v); });
}
template <class T> T atomicSub(T *p, cuemu_id<T> v) {
    return cuemu_rmw(p, [=](T o) { return (T)(o - v); });
}
template <class T> T atomicMax(T *p, cuemu_id<T> v) {
    return cuemu_rmw(p, [=](T o) { return o > v ? o : v; });
}
template <class T> T atomicMin(T *p, cuemu_id<T> v) {
    return cuemu_rmw(p, [=](T o) { return o < v ? o : v; });
}
template <class T> T atomicOr(T *p, cuemu_id<T> v) {
    return cuemu_rmw(p, [=](T o) { return o | v; });
}
template <class T> T atomicAnd(T *p, cuemu_id<T> v) {
    return cuemu_rmw(p, [=](T o) { return o & v; });
}
template <class T> T atomicExch(T *p, cuemu_id<T> v) {
    return cuemu_rmw(p, [=](T) { return v; });
}
template <class T> T atomicCAS(T *p, cuemu_id<T> c, cuemu_id<T> v) {
    return cuemu_rmw(p, [=](T o) { return o == c ? v : o; });
}
inline unsigned atomicInc(unsigned *p, unsigned v) {
    return cuemu_rmw(p, [=](unsigned o) { return o >= v ? 0u : o + 1; });
}

// --- arithmetic intrinsics ---
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> void __stcs(T *p, T v) { *p = v; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline double cospi(double x) { return cos(3.14159265358979323846 * fmod(x, 2)); }
inline double sinpi(double x) { return sin(3.14159265358979323846 * fmod(x, 2)); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
template <class To, class From> inline To cuemu_bits(From x) {
    To y;
    static_assert(sizeof x == sizeof y, "the same bits");
    memcpy(&y, &x, sizeof y);
    return y;
}
inline float __uint_as_float(unsigned u) { return cuemu_bits<float>(u); }
inline float __int_as_float(int u) { return cuemu_bits<float>(u); }
inline unsigned __float_as_uint(float f) { return cuemu_bits<unsigned>(f); }
inline int __float_as_int(float f) { return cuemu_bits<int>(f); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    uint64_t v = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned k = s >> (4 * i), y = (unsigned)(v >> (8 * (k & 7))) & 255;
        if (k & 8) y = y & 128 ? 255 : 0;
        r |= y << (8 * i);
    }
    return r;
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int8_t)(a >> (8 * i)) * (int8_t)(b >> (8 * i));
    return c;
}
inline long long clock64() { return (long long)__builtin_ia32_rdtsc(); }
#define CUEMU_MINMAX(T) \
    inline T min(T a, T b) { return a < b ? a : b; } \
    inline T max(T a, T b) { return a > b ? a : b; }
/* clang-format off */
CUEMU_MINMAX(int) CUEMU_MINMAX(unsigned) CUEMU_MINMAX(long long) CUEMU_MINMAX(unsigned long long) CUEMU_MINMAX(float) CUEMU_MINMAX(double) CUEMU_MINMAX(long) CUEMU_MINMAX(unsigned long)
    /* clang-format on */
    template <class T>
    cudaError_t cudaMemcpyToSymbol(T &sym, const void *src, size_t n, size_t off = 0, cudaMemcpyKind = cudaMemcpyHostToDevice) {
    memcpy((char *)&sym + off, src, n);
    return cudaSuccess;
}

// --- small floats: half from and to its bits, rounding to nearest even ---
inline float cuemu_half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31) return __uint_as_float(sign | 0x7f800000 | m << 13);
    if (e) return __uint_as_float(sign | (e + 112) << 23 | m << 13);
    return __uint_as_float(sign | __float_as_uint((float)m * (1.0f / 16777216)));
}
inline uint16_t cuemu_float_to_half(float f) {
    uint32_t u = __float_as_uint(f), a = u & 0x7fffffff, sign = u >> 16 & 0x8000;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    int e = (int)(a >> 23) - 112, shift = 13;
    uint32_t m = (a & 0x7fffff) | 0x800000;
    if (e <= 0) shift += 1 - e, e = 1;
    if (shift > 24) return (uint16_t)sign;
    uint32_t r = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    r += rest > half || (rest == half && (r & 1));
    r += (uint32_t)(e - 1) << 10;
    return (uint16_t)(sign | (r > 0x7c00 ? 0x7c00 : r));
}
inline uint16_t cuemu_float_to_bf16(float f) {
    uint32_t u = __float_as_uint(f);
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? (u >> 16 | 0x40) : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}
// rounded each by itself, whatever the compiler makes of products and sums
template <class T> inline T cuemu_rounded(T x) {
    asm volatile("" : "+x"(x));
    return x;
}
inline float __fmul_rn(float a, float b) { return cuemu_rounded(a * b); }
inline float __fadd_rn(float a, float b) { return cuemu_rounded(a + b); }
inline float __fsub_rn(float a, float b) { return cuemu_rounded(a - b); }
inline double __dadd_rn(double a, double b) { return cuemu_rounded(a + b); }
inline double __dmul_rn(double a, double b) { return cuemu_rounded(a * b); }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// --- tensor core and async copy: what the inline PTX in the project's wrappers means ---
namespace cuemu {
inline float bf(uint32_t r, int hi) { return __uint_as_float(hi ? r & 0xffff0000u : r << 16); }
inline float hf(uint32_t r, int hi) { return cuemu_half_to_float((uint16_t)(hi ? r >> 16 : r)); }
// A product of a warp, D (16, 8), which the first lane behind the meeting computes for all: compute(slots, D) reads what the lanes have brought,
// then each lane's four lie at the front of its slot, in the layout of mma.sync's accumulators.
template <class T, class F> inline void mma_add(T *d, const char *slots, F compute) {
    SlotRead sr;
    char *w = const_cast<char *>(slots);
    Once once;
    memcpy(&once, w + ONCE, sizeof once);
    if (!once.done) {
        T all[16][8];
        compute(w, all);
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 4; i++) memcpy(w + 64 * lane + 4 * i, &all[(lane >> 2) + 8 * (i >> 1)][2 * (lane & 3) + (i & 1)], 4);
        once.done = 1;
        memcpy(w + ONCE, &once, sizeof once);
    }
    T mine[4];
    memcpy(mine, w + 64 * cuemu_lane(), sizeof mine);
    for (int i = 0; i < 4; i++) d[i] += mine[i];
}
typedef float four_floats __attribute__((vector_size(16)));
// D += A(16x16, row) * B(16x8, col), bf16 or half in, f32 out; register layout of mma.sync.m16n8k16
template <bool HALF> inline void mma_m16n8k16(float *d, const uint32_t *a, const uint32_t *b, CUEMU_L) {
    float v[12]; // widened once, by the lane that has them
    for (int i = 0; i < 12; i++) v[i] = HALF ? hf(i < 8 ? a[i / 2] : b[i / 2 - 4], i & 1) : bf(i < 8 ? a[i / 2] : b[i / 2 - 4], i & 1);
    mma_add(d, warp_gather(~0u, v, sizeof v, MMA, line), [](const char *w, float(*all)[8]) {
        four_floats wide[16][2]; // B
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                wide[k][n / 4][n % 4] = ((const float *)(w + 64 * (n * 4 + (k & 7) / 2)))[8 + 2 * (k >> 3) + (k & 1)];
        for (int m = 0; m < 16; m++) {
            four_floats s[2] = {};
            for (int k = 0; k < 16; k++) {
                float x = ((const float *)(w + 64 * ((m & 7) * 4 + (k & 7) / 2)))[2 * ((m >> 3) + 2 * (k >> 3)) + (k & 1)];
                for (int n = 0; n < 2; n++) s[n] += x * wide[k][n];
            }
            memcpy(all[m], s, sizeof s);
        }
    });
}
// the same of bytes: mma.sync.m16n8k32 (or k16) .s32.u8.s8 or .s8.s8
template <bool SIGNED, int COLS> inline void mma_bytes(int32_t *d, const uint32_t *a, const uint32_t *b, CUEMU_L) {
    enum { WORDS = COLS / 8 };
    uint32_t v[WORDS + WORDS / 2];
    for (int i = 0; i < WORDS + WORDS / 2; i++) v[i] = i < WORDS ? a[i] : b[i - WORDS];
    mma_add(d, warp_gather(~0u, v, sizeof v, MMA, line), [](const char *w, int32_t(*all)[8]) {
        int32_t wide[8][COLS]; // B, turned
        for (int n = 0; n < 8; n++)
            for (int k = 0; k < COLS; k++) wide[n][k] = (int8_t)w[64 * (n * 4 + (k & 15) / 4) + 4 * (WORDS + (k >> 4)) + (k & 3)];
        for (int m = 0; m < 16; m++) {
            int32_t row[COLS];
            for (int k = 0; k < COLS; k++) {
                char x = w[64 * ((m & 7) * 4 + (k & 15) / 4) + 4 * ((m >> 3) + 2 * (k >> 4)) + (k & 3)];
                row[k] = SIGNED ? (int8_t)x : (uint8_t)x;
            }
            for (int n = 0; n < 8; n++) {
                all[m][n] = 0;
                for (int k = 0; k < COLS; k++) all[m][n] += row[k] * wide[n][k];
            }
        }
    });
}
// ldmatrix .x4 (b16): lane i gives the address of row i%8 of matrix i/8
CUEMU_UNSEEN inline void ldmatrix_x4(uint32_t *r, const void *row, bool trans, CUEMU_L) {
    if ((size_t)row & 15) die("ldmatrix: row address %p not 16-byte aligned (line %d)", row, line);
    const char *w = warp_gather(~0u, &row, sizeof row, LDMATRIX, line);
    const uint16_t *rows[32];
    {
        SlotRead sr;
        for (int i = 0; i < 32; i++) rows[i] = *(const uint16_t *const *)(w + 64 * i);
    }
    int lane = cuemu_lane();
#ifdef CUEMU_COUNT
    count_access(row, 16, 0, __builtin_return_address(0));
#endif
    for (int m = 0; m < 4; m++) {
        uint16_t h[2];
        for (int j = 0; j < 2; j++) {
            int rr = trans ? 2 * (lane & 3) + j : lane >> 2, cc = trans ? lane >> 2 : 2 * (lane & 3) + j;
            h[j] = rows[8 * m + rr][cc];
        }
        r[m] = h[0] | (uint32_t)h[1] << 16;
    }
}
} // namespace cuemu
