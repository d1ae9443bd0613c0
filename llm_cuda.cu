/* llm_cuda.cu - the backend table of llm.h for NVIDIA GPUs, one or several.
 *
 *   make cuda                    builds libllm_cuda.so with nvcc, and build/libllm_cuda_emu.so without it
 *   ./llm_cli --device cuda ...  loads libllm_cuda.so, which stands beside the program
 *
 * The library exports one function, llm_cuda_backend, which returns the table. llm.h's forward pass calls the table's operations; here a
 * call only appends a record to its rank's list, and end_step launches the list: each record is one to five kernels. A list depends on the
 * shape of the step alone, because everything that changes from step to step lies in one block of device memory that begin_step fills. So
 * the list of a decoding step is captured once for each batch size as a CUDA graph, and later steps of that shape replay it.
 *
 * The same source compiles with g++ for the CPU (tests/cuda/emu), where the whole engine's tests run it. Two rules make that honest:
 * kernels are launched through cudaLaunchKernelEx only (launch, below), and what is not plain C++ stands in >>prims, and in plain C++ in
 * tests/cuda/emu/cuda_prims.h.
 *
 * Every kernel has a card: what it computes with shapes, its grid, and the function of llm.h that says the same in plain C.
 *
 * WORDS. T: rows (tokens) of a step; D: hidden size; a sub: 32 columns of a packed row; a slot: of an adapter, or one (row, chosen expert)
 * pair; padded: the shape a graph is made for, of which the step may fill less. Buffers are f32 (rows, stride); what is narrow is weights,
 * pages and what tensor cores multiply, which is written to a buffer where nothing else reads it (list_narrow).
 *
 * A STEP on one rank, of a llama of L layers: what is recorded, in order. With several ranks run_record sums what a rank has only a part
 * of, in front of the residual that reads it, and the embedding; adapters put a lora record in front of each linear one.
 *
 *     begin_step   one copy: tokens, positions, page tables, draws            host -> r->step
 *     embed        kernel_embed                                               tokens -> x (T, D)
 *     rope         kernel_rope                                                positions -> cosines, sines
 *     L times      residual (h = norm(x)), linear (q, k, v), qkv (pages), attention, linear, residual (x += y; h = norm(x)),
 *                  linear (gate and up, activation in its end), linear (down), residual; of few rows the linear ones around it do what a
 *                  residual says (list_fuse), and attention what qkv says (list_fuse_heads): five launches a layer
 *     gather       kernel_gather                                              the rows whose logits are wanted
 *     logits       a product of >>linear                                      h -> r->logits (n_out, vocab)
 *     end_step     kernel_draw, copies of what was drawn, or of logits        device -> pinned memory, then an event
 *
 * KERNELS, with grid and block (V: rows of a weight, hd: values of a head). Twins stand on the cards.
 *
 *     kernel_pack, kernel_plain          subs or values / 128             128   a weight as the file has it -> parts, or f32
 *     kernel_linear_few<kind, R>         (V / 16, T / R)                  256   y (T, V) = finish(x W^T) of floats, R = 1, of f32 also 4
 *     kernel_linear_rows<kind, R>        (T / R, V / 32)             256, 512   the same on tensor cores, R = 1 or 8
 *     kernel_linear_band<kind, R>        (T / R, 1 or 2 a multiprocessor) 256   the same of packed weights, R = 16, 32 or 64
 *     kernel_linear_mma<kind, by>        (V / 256, T / 64 or 128)         256   the same for experts of many rows
 *     kernel_linear_f32                  (V / 64, T / 64)                 256   the same in f32
 *     kernel_narrow, _rescale            T                                256   x before cuBLASLt, with a scale a row; that scale behind it
 *     kernel_widen<kind>, _finish        (K / 256, V / 16), (T, V / 256)  128   packed weights before it, what an epilogue does behind it
 *     kernel_embed, kernel_rope          T                            128, 64   x (T, D); cosines and sines (T, rope_dim)
 *     kernel_residual, kernel_norm       T                                256   x += y, h = norm(x); dst = norm(src), or within bounds
 *     kernel_residual, _sum              T, 2 a multiprocessor at most    512   the same with a sum over ranks before; that alone
 *     kernel_gather, kernel_gate         n_out; T                    128, 512   chosen rows; rows times the sigmoid of a value
 *     kernel_streams                     (T, D / 256)                     256   several residual streams: predicted, corrected, levelled
 *     kernel_xielu                       (T, n / 128)                     128   xIELU of what a product gave
 *     kernel_qkv                         T                                128   norms and RoPE of q and k, k and v to the pages
 *     kernel_attention_split<stored, HD> (blocks, KV heads x tiles)   128, 64   the same, and out (T, heads vd), of single rows
 *     kernel_attention_chunk<stored, HD> T / rows x KV heads             128   the same for prompts, on tensor cores
 *     kernel_attention_groups<.., HD>    T / rows x KV heads             256   the same by warpgroups of Hopper, heads of 64 and 128
 *     kernel_attention<type, ND>         (T / rows, KV heads, splits)     128   the same for latents, pages in f32, odd heads
 *     kernel_attention_join              (T, heads)                       128   its splits added up
 *     kernel_turn                        (T, heads)                        32   heads times a Hadamard matrix, for small elements
 *     kernel_latent_absorb               (rank / 64 + 1, heads, T / 64)   256   queries into the latent space; latents to the pages
 *     kernel_latent_split<f16>           (blocks, heads / 16)             256   attention over latents of 16 bits, on tensor cores
 *     kernel_latent_values               (V / 16, heads, T / 64)          256   its splits folded, results back
 *     kernel_latent_adapt                (T, heads)                       128   what adapters of kv_b add to either
 *     kernel_index_write                 T                                128   an indexer's key to the pages, its queries turned
 *     kernel_index_product<f16>          (T, pieces)                      256   scores of positions, on tensor cores
 *     kernel_index_scores<type>          (T, pieces)                      128   the same for pages in f32 or bytes, odd widths
 *     kernel_index_choose                T                               1024   the positions with the best scores
 *     kernel_state                       (T or n_out, parts)               32   hidden states to the pages, or from them
 *     kernel_conv<taps>                  (sequences, n / 64)              64   causal convolutions; their last inputs to the pages
 *     kernel_recur<rows>                 (sequences, heads dv / 32)      128   linear attention over states (dk, dv) of heads, to the pages
 *     kernel_route                       T                                 32   the k best experts of a row
 *     kernel_slots, kernel_combine       1; (T, D / 128)            1024, 128   rows by expert; the weighted sum of a row
 *     kernel_weigh                       (T k, D / 128)                   128   inputs of experts times their weights (Llama 4)
 *     kernel_lora_down, kernel_lora_up   (T / 8, 3 r / 8), (T / 8, V / 128)     256, 128   low = A x; plus = B low
 *     kernel_draw_parts                  n_out x parts of 8,192 tokens    512   what is needed of a row to draw
 *     kernel_draw                        n_out                            512   one token a row
 *
 * WHAT A GPU WANTS, as far as this file minds it. Threads of a warp should read neighbouring addresses, in vectors of 16 bytes, and many
 * such loads should be under way: then memory gives all that it has, which is what decoding needs, for each weight is read once a step and
 * used for few rows. With many rows the same weight is used often enough for arithmetic to be the limit, and only tensor cores have enough
 * of it. Between both stands what a launch costs, some microseconds, of which a small model has hundreds a step: so operations are fused
 * where one reads what the other wrote, steps are graphs, which the device walks through by itself, and a kernel starts, and asks for its
 * first weights, while the one before ends (launch).
 *
 * NUMBERS. Sums are f32, of tensor cores too. Products of one row and weights of 16 or 32 bits round nothing, the others take weights as
 * they are and activations as two narrow numbers each: with bf16 weights 16 bits together, with f16 and e4m3 22, with packed ones whole
 * numbers of 15 bits, as large as the largest of 128 columns asks. From 9 rows on packed weights and activations are rounded to f16 (bf16
 * for bf16 weights), rows of activations that do not fit f16 times a power of two that is taken back; who makes activations writes them so
 * at once where it can, with the same bits. So a prompt and the same tokens one by one differ by rounding, unless batch_invariant takes
 * the same way for both. Between two runs of the same steps there is no difference: no float is added by an atomic, and no order depends on
 * time; but of two kernels for prompts, and two for experts, each start on Hopper chooses one (chunk_try, experts_try), and describe says
 * which.
 *
 * Hopper's tensor cores give all they have to products of four warps only (wgmma), which attention to prompts and experts of many rows
 * use where a trial at the start finds that they give the same and are not slower; no device has been measured with them yet.
 *
 * TEMPLATES. Compile time is what limits one .cu file, so the list is short: kernel_linear_few, _rows, _band and _mma have weight kind,
 * the last also for warps and for warpgroups, kernel_attention_split {f16, bf16, bytes} x {64, 128, 256} values of a head,
 * kernel_attention_chunk the same, kernel_attention_groups without 256, kernel_attention KV type. `make sass` prints what nvcc made of
 * each, `make counts` what each asks of memory. No kernel of a step keeps anything in local memory: sums are in arrays whose indexes are
 * all known when compiling, and launch bounds give registers enough.
 *
 * CONTENTS
 *
 *     >>prims                what is not plain C++: shared memory, conversions, tensor cores, launches.
 *     >>device               the open devices: memory, streams, errors.
 *     >>libraries            NCCL and cuBLASLt, whose functions are looked up by name.
 *     >>formats              how weights lie in device memory.
 *     >>weights              from segments of the mapped file to packed parts.
 *     >>linear               products of weights and activations.
 *     >>linear_rows          few rows, on tensor cores.
 *     >>linear_bands         some rows of packed weights, on tensor cores.
 *     >>linear_tiles         tiles: many rows of each expert, and what stays f32.
 *     >>linear_many          many rows, by NVIDIA's own products; and which way a product takes.
 *     >>linear_fused         products that do what stands around them.
 *     >>norm                 embedding, rotary tables, norms, gathering: one block a row.
 *     >>attention            KV pages, and attention over them.
 *     >>attention_split      single rows, on tensor cores.
 *     >>attention_chunk      prompts, on tensor cores; and which way attention takes.
 *     >>latent               latent attention (DeepSeek-V2) in its absorbed form.
 *     >>indexer              which positions latent attention looks at (DeepSeek-V3.2).
 *     >>recurrent            layers that keep a state: convolutions, linear attention.
 *     >>experts              mixtures of experts: choice, grouped products, sum.
 *     >>lora                 adapters: what each row's own low-rank matrices add to a layer.
 *     >>sampler              the next token, chosen where the logits are.
 *     >>ranks                several devices: a thread each, and NCCL between them.
 *     >>step                 a step: its description goes up, its list runs or its graph is replayed, its results come down.
 *     >>backend              the table: opening, recording, closing.
 */

#include "llm.h"
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <dlfcn.h>
#include <initializer_list>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <type_traits>
#include <unistd.h>

/* ============================================================================
 * >>prims   What is not plain C++: shared memory, conversions, tensor cores, launches.
 * ============================================================================
 * Each thing has two versions. The one for nvcc, here, may use inline assembly; the other, in tests/cuda/emu/cuda_prims.h, says the same
 * for the emulation, which has the meaning of the matrix instructions from the PTX manual (cuda_emu.h).
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

#if defined(CUDA_EMU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_GROUPS /* products of warpgroups, on sm_90a alone */
#endif

/* i from 0 to n - 1, each turn spelled out: n is known when compiling, and so are indexes of arrays, which then are registers. */
#define UNROLL(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)

/* A function that is a part of the kernels that call it. */
#define DEVICE static __device__ __forceinline__

#ifdef CUDA_EMU
#include "cuda_prims.h" /* the same in plain C++ */
#else
#define SMEM(T, name, n) \
    __shared__ __align__(SMEM_ALIGN) \
    T name[n]
#define DYN_SMEM(T, name) \
    extern __shared__ __align__(SMEM_ALIGN) \
    unsigned char dynamic_smem[]; \
    T *name = (T *)dynamic_smem
DEVICE float half_to_f32(uint16_t h) { return __half2float(__ushort_as_half(h)); }
DEVICE uint16_t f32_to_half(float f) { return __half_as_ushort(__float2half_rn(f)); }

/* A product of a warp: its shape, types of sums, of a and of b, registers of a and of b; sums are the asm's operands 0 to 3. */
#define FOUR(how, x) how(x[0]), how(x[1]), how(x[2]), how(x[3])
#define MMA(SHAPE, SUM, TYPES, A, B, SUMS, ...) \
    asm volatile("mma.sync.aligned." SHAPE ".row.col." SUM "." TYPES "." SUM " {%0,%1,%2,%3}, {" A "}, {" B "}, {%0,%1,%2,%3};" \
                 : SUMS \
                 : __VA_ARGS__)

/* d (16 x 8, f32) += a (16 x 16) b (16 x 8), of halves or bf16. In a warp, lane l: g = l / 4, t = l % 4. a[0..3]: rows g, g + 8, g, g + 8
 * with columns 2t, 2t + 1 (a[0], a[1]) and 8 more (a[2], a[3]); b: rows 2t, 2t + 1 and 8 more of column g; d: row g, columns 2t, 2t + 1,
 * row g + 8. */
template <bool HALF> DEVICE void mma_16x8x16(float *d, const uint32_t *a, const uint32_t *b) {
    if (HALF) MMA("m16n8k16", "f32", "f16.f16", "%4,%5,%6,%7", "%8,%9", FOUR("+f", d), FOUR("r", a), "r"(b[0]), "r"(b[1]));
    else MMA("m16n8k16", "f32", "bf16.bf16", "%4,%5,%6,%7", "%8,%9", FOUR("+f", d), FOUR("r", a), "r"(b[0]), "r"(b[1]));
}

/* d (16 x 8, of 32 bits) += a (16 x 32 or 16) b (32 or 16 x 8), of bytes; a's have a sign or not, b's have. d as above; a[0], a[1]: rows g
 * and g + 8 with columns 4t to 4t + 3; a[2], a[3]: 16 columns more; b: the same rows of column g. */
template <bool SIGNED> DEVICE void mma_16x8x32_bytes(int32_t *d, const uint32_t *a, uint2 b) {
    if (SIGNED) MMA("m16n8k32", "s32", "s8.s8", "%4,%5,%6,%7", "%8,%9", FOUR("+r", d), FOUR("r", a), "r"(b.x), "r"(b.y));
    else MMA("m16n8k32", "s32", "u8.s8", "%4,%5,%6,%7", "%8,%9", FOUR("+r", d), FOUR("r", a), "r"(b.x), "r"(b.y));
}
template <bool SIGNED> DEVICE void mma_16x8x16_bytes(int32_t *d, const uint32_t *a, uint32_t b) {
    if (SIGNED) MMA("m16n8k16", "s32", "s8.s8", "%4,%5", "%6", FOUR("+r", d), "r"(a[0]), "r"(a[1]), "r"(b));
    else MMA("m16n8k16", "s32", "u8.s8", "%4,%5", "%6", FOUR("+r", d), "r"(a[0]), "r"(a[1]), "r"(b));
}

/* The larger one; NaN where one is. */
DEVICE float larger_or_nan(float a, float b) {
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}

DEVICE void store_shared_16(void *to, uint4 v) { *(uint4 *)to = v; }

#ifdef HAS_GROUPS
DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* d (64 x N, f32) = or += a (64 x 16) b (16 x N), of a warpgroup: four warps, the first a multiple of four. Warp w of them has rows 16 w
 * and on, where mma_16x8x16 has them: d[4 j + e] is of columns 8 j and on. group_product: a and b in shared memory, 64 and N rows of 16;
 * group_product_held: a in registers, as mma_16x8x16 takes it, and b TURNED, 16 rows of N, or as there. shared_tile tells of what is in
 * shared memory.
 *
 * Products run beside the threads: those up to a group_end are one group, of which group_wait lets the KEEP latest be under way; until then
 * nobody may touch d, a in registers, or what the product reads. A group_fence of each array comes before the first product that has it,
 * and after the threads themselves have touched it; a shared_fence comes behind what threads or copy_async wrote to shared memory, and then
 * a barrier, before products read that. Source: PTX manual, "Asynchronous Warpgroup Level Matrix Instructions". */
#define EIGHT(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FLOATS_32(d, i) EIGHT(d, i), EIGHT(d, i + 8), EIGHT(d, i + 16), EIGHT(d, i + 24)
#define NAMES_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_64 \
    NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61," \
             "%62,%63"
#define PRODUCT(N, TYPE) "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE
#define PRODUCT_128(TYPE) \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; " PRODUCT(128, TYPE) " {" NAMES_64 "}, %64, %65, p, 1, 1, 0, 0; }" \
                 : FLOATS_32(d, 0), FLOATS_32(d, 32) \
                 : "l"(a), "l"(b), "r"(add))
#define HELD_128(TYPE) \
    asm volatile(PRODUCT(128, TYPE) " {" NAMES_64 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, %69;" \
                 : FLOATS_32(d, 0), FLOATS_32(d, 32) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TURNED))
#define HELD_64(TYPE) \
    asm volatile(PRODUCT(64, TYPE) " {" NAMES_32 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, %37;" \
                 : FLOATS_32(d, 0) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TURNED))
template <bool HALF, int N> DEVICE void group_product(float *d, uint64_t a, uint64_t b, int add) {
    static_assert(N == 128, "the one width that is needed");
    if (HALF) PRODUCT_128("f16");
    else PRODUCT_128("bf16");
}
template <bool HALF, int N, int TURNED> DEVICE void group_product_held(float *d, const uint32_t *a, uint64_t b) {
    static_assert(N == 64 || N == 128, "the widths that are needed");
    if constexpr (N == 128) {
        if (HALF) HELD_128("f16");
        else HELD_128("bf16");
    } else {
        if (HALF) HELD_64("f16");
        else HELD_64("bf16");
    }
}

/* For the compiler an array is written here: what is done to it stays on its side of the fence, or of the wait. */
template <int N> DEVICE void group_keep(float *r) {
    UNROLL(i, N) asm volatile("" : "+f"(r[i])::"memory");
}
template <int N> DEVICE void group_keep(uint32_t *r) {
    UNROLL(i, N) asm volatile("" : "+r"(r[i])::"memory");
}
template <int N, class T> DEVICE void group_fence(T *r) {
    group_keep<N>(r);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void group_end(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int KEEP, int N, class T> DEVICE void group_wait(T *r) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(KEEP) : "memory");
    group_keep<N>(r);
}

/* What `sum`, which is never negative, is made of is computed before what follows: the compiler puts a wait as far in front as it can. */
DEVICE void finish_first(float sum) { asm volatile("{ .reg .pred p; setp.lt.f32 p, %0, 0f00000000; @p trap; }" ::"f"(sum) : "memory"); }
DEVICE void shared_fence(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif

/* Four 8 x 8 matrices of 16-bit values from shared memory; lane i names row i % 8 of matrix i / 8. And each matrix turned: a lane gets two
 * values of a column. */
#define LDMATRIX(TURNED) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" TURNED ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                 : FOUR("=r", r) \
                 : "r"((uint32_t)__cvta_generic_to_shared(row)) \
                 : "memory")
DEVICE void load_matrix_x4(uint32_t *r, const void *row) { LDMATRIX(""); }
DEVICE void load_matrix_x4_turned(uint32_t *r, const void *row) { LDMATRIX(".trans"); }

/* n of 16 (or 4) bytes on their way to shared memory, past the registers; zeros for the rest: with n 0 nothing is read, wherever `from` is.
 * Copies between two ends are a group; a wait lets the KEEP latest groups of this thread be under way. What other lanes' copies brought is
 * there behind a barrier. */
DEVICE void copy_async_16(void *to, const void *from, int n) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(n)
                 : "memory");
}
DEVICE void copy_async_4(void *to, const void *from, int n) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(n)
                 : "memory");
}
DEVICE void copy_async_end(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int KEEP> DEVICE void copy_async_wait(void) { asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory"); }

/* Every kernel calls it, in all threads: behind it what the kernels before wrote is there, and they read nothing any more; and the next
 * kernel may be started. Before it a kernel may read weights and the step's block, and write nothing: see launch. */
DEVICE void grid_wait(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Two values as tensor cores take them, halves or bf16, rounded to nearest even: a in the low bits. What is too large for a half is cut off
 * at the largest: weights and attention's weights are not, activations are brought down by half_scale first. */
template <bool HALF> DEVICE uint32_t narrow_pair(float a, float b) {
    uint32_t two;
    if (HALF) asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(b), "f"(a));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(b), "f"(a));
    return two;
}

/* Two halves times two others, and two more. */
DEVICE uint32_t halves_fma(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* One instruction, which nvcc does not find where both are constants. */
DEVICE uint32_t bits_and_or(uint32_t a, uint32_t mask, uint32_t or_this) {
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(mask), "r"(or_this));
    return d;
}

/* 2^f in one instruction, 0 where that is too small for a normal number. */
DEVICE float exp2_near(float f) {
    float x;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(f));
    return x;
}

/* A flag that other devices write or read: what was written before the release is there after an acquire that sees it. */
DEVICE void store_release(uint32_t *p, uint32_t v) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE uint32_t load_acquire(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

/* All lanes get the result, always added up in the same order: each lane adds that of the lane 16 away, then 8, ... */
DEVICE float warp_sum(float v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

DEVICE float warp_max(float v) {
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

enum { EMULATED = 0 };

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

/* Whose products a kernel takes: a warp's (mma.sync), or a warpgroup's (wgmma). TILE_ALIGN: where what the latter multiply begins. */
enum { BY_WARPS, BY_GROUPS };
static constexpr int TILE_ALIGN = 1024;

#ifdef HAS_GROUPS
/* How a product is told of a tile in shared memory: rows of 64 values of 16 bits, eights of a row in the order of chunk_at. p: a
 * multiple of 1,024 bytes, and 32 more for each 16 columns further; next: bytes to the next 64 columns, of tiles that are turned. Fields in
 * units of 16 bytes: address, that distance, distance of 8 rows; the top bits: eights change places over 128 bytes. */
DEVICE uint64_t shared_tile(const void *p, int next) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 / 16) << 32 | (uint64_t)(next / 16) << 16 | shared_address(p) / 16;
}
#endif

DEVICE float bits_to_f32(uint32_t u) { return __uint_as_float(u); }
DEVICE float bf16_to_f32(uint32_t h) { return __uint_as_float(h << 16); }

/* Widening and narrowing by bits, the same on both sides: formats differ in how many bits of f32's exponent and fraction they keep. */

/* To nearest even; a NaN stays one. */
DEVICE uint32_t f32_to_bf16(float f) {
    uint32_t u = __float_as_uint(f);
    return (u & 0x7fffffff) > 0x7f800000 ? (u >> 16 | 0x40) : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* fp8 e4m3: its fields moved to those of f32 are 2^120 too small, subnormals too. No infinities; 0x7f is NaN. */
DEVICE float e4m3_to_f32(uint32_t b) {
    float x = __uint_as_float((b & 0x80) << 24 | (b & 0x7f) << 20) * __uint_as_float(0x7b800000);
    return (b & 0x7f) == 0x7f ? NAN : x;
}

/* Two of them, from the low bytes, as halves, which is exact; from sm_89 on there is an instruction for it. */
DEVICE uint32_t e4m3_halves(uint32_t two) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)two));
    return halves;
#else
    return narrow_pair<true>(e4m3_to_f32(two & 255), e4m3_to_f32(two >> 8 & 255));
#endif
}
DEVICE void e4m3_pair(uint32_t two, float *v) {
    const uint32_t halves = e4m3_halves(two);
    v[0] = half_to_f32((uint16_t)halves), v[1] = half_to_f32((uint16_t)(halves >> 16));
}

/* The two 16-bit values of a pair that are nearest to a and b, and what they leave: together they have the bits of a float, nearly. */
template <bool HALF> DEVICE void split_pair_of(float a, float b, uint32_t *high, uint32_t *low) {
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

/* ============================================================================
 * >>device   The open devices: memory, streams, errors.
 * ============================================================================
 * A context has one rank a device, and a rank one stream, on which everything happens in order. All memory is taken while opening (but for
 * adapters, see >>lora). The first thing that goes wrong is kept in the context with its sentence and told by the next call that can return
 * an error; until then later calls do nothing.
 *
 * Threads. The engine's thread records, begins and waits. With several ranks each has a thread that launches its list (>>ranks), and writes
 * its own rank only; mistakes go to rank.failed there, and from there to the context once all threads have come back.
 *
 * Memory of a rank, in the order in which it is taken: the step's block, weights, buffers, what adapters' loaders stage through, logits and
 * scratch (weights_done), and all that is left up to memory_utilization as KV pages (kv_open, as many as the engine asks for).
 *
 *     struct              lives on                     written by
 *     step_view           device (r->step)             the copy of begin_step
 *     kv_view             passed by value              run_ functions; the pages it points to by kernel_qkv and kernel_latent_absorb
 *     record              host (r->list)               the table's operations; read by run_record, never after the step
 *     graph               host, its nodes the driver   rank_graph: kernels' arguments as they were when it was captured
 *
 * The environment is asked for what only tests and tests/cuda/gpu.sh want:
 *
 *     LLM_CUDA_TIMES        events around every step; close logs how long the first device computed and how long it stood still; with the
 *                           value `records` no graphs, and events around each record: close logs the time of each kind
 *     LLM_CUDA_ONE_DEVICE   all ranks on device 0, so that one GPU can show what sums over peer memory do
 *     LLM_CUDA_TRY_NCCL     with one rank: opens NCCL all the same, and sums something
 *     LLM_CUDA_NO_CUBLAS    cuBLASLt is not opened: large products are our own
 *     LLM_CUDA_NO_PEERS     devices do not read each other's memory: all sums over ranks are NCCL's
 *     LLM_CUDA_NO_WGMMA     attention to prompts goes by kernel_attention_chunk on Hopper, too
 *     LLM_CUDA_NO_OVERLAP   each kernel starts when the one before has ended
 *     LLM_CUDA_SYNC         no graphs, and each kernel is waited for: an error names the kernel that made it
 *
 * After the start nothing is allocated by this file but what an adapter needs that is larger than the one before it in its slot; the driver
 * takes some for the nodes of a graph when a batch size comes for the first time, for which kv_memory leaves a 256th of the device. */

static constexpr int N_CHOICES = 512, MAX_RANKS = 16, MAX_WORLD = 256, MAX_RECORDS = 8192, MAX_GRAPHS = 96, N_TIMES = 16, STEP_HEAD = 16;
static constexpr int QUERIES = 16, KEYS = 32, MAX_VALUES = 512;          /* of >>attention */
static constexpr int SPLIT = 256, MAX_SPLITS = 8192, MAX_TILES = 256;    /* keys of a split; splits of a step; tiles of a row's heads */
static constexpr int ONE_SHOT_ROWS = 16, TWO_SHOT_ROWS = 512;            /* of >>ranks: rows that are summed over peer memory */
static constexpr int SUM_THREADS = 512, SUM_LOADS = 8, STOP_TURNS = 256; /* vectors loaded at once; looks at a flag for one at `stop` */

/* Twin: llm__cpu_buffer. Rows start on 16 bytes, so kernels may load vectors of four. */
struct llm_buffer {
    float *data; /* (rows, stride) on its rank's device; see also narrow_view */
    int64_t rows, cols, stride;
    int rank;
};

/* Rows of a buffer as kernels have them; x NULL: there is none. */
typedef struct rows_view {
    float *x;
    int64_t stride;
    __device__ __forceinline__ float *operator[](int64_t row) const { return x + row * stride; }
} rows_view;

/* From column `col` on. */
static rows_view rows_of(const llm_buffer *b, int64_t col = 0) { return b ? rows_view{b->data + col, b->stride} : rows_view{}; }

/* What a step tells the kernels: one block of device memory at a fixed address. Twin: llm_step. */
typedef struct step_view {
    const int32_t *head; /* n_rows, n_seqs, n_out, position rows, page stride */
    const int32_t *tokens, *positions, *seq_of_row, *seq_begin, *seq_len, *seq_rope, *seq_lora, *seq_keep, *out_rows, *token_from, *pages;
    const float *rope_base;
    const struct draw *draws; /* (n_out) */
    const uint32_t *masks;    /* (rows with a mask, (vocab + 31) / 32) */
    const struct change *changes;
    const int32_t *given_of, *spans, *row_set; /* where head says that they are there; given_of: (n_rows) rows of given, -1: none */
    const float *given;
} step_view;

/* What a draw's rules say of one token: how often the answer has it, or a bias. */
typedef struct change {
    int32_t id, count;
    float bias;
} change;

/* llm_draw without pointers: where its mask is, -1: everything may be drawn; its first changes, of biases and of tokens used. */
typedef struct draw {
    uint64_t seed;
    int64_t position;
    int32_t wanted, top_k, mask, bias, n_bias, used, n_used;
    float temperature, top_p, min_p, repetition, presence, frequency;
} draw;

enum { HEAD_ROWS = 0, HEAD_SEQS, HEAD_OUT, HEAD_POSITIONS, HEAD_STRIDE, HEAD_TURN, HEAD_HAS, HEAD_WORK, HEAD_N_WORK };
enum { HAS_GIVEN = 1, HAS_SPANS = 2, HAS_SETS = 4 }; /* bits of head[HEAD_HAS] */

/* What a block of kernel_attention_split does next: n rows of the step, of one sequence. Of a single row one split of its keys, of
 * n_splits; with split -1 all of them, one after the other. */
typedef struct work_item {
    int32_t row, n, split, n_splits;
} work_item;

/* Where one layer lies in a page, in bytes. Of each head keys row by row, then values, then four floats a token: scale and offset of each.
 * Behind the heads the floats of a recurrent layer's state. */
typedef struct kv_place {
    int32_t n_kv_heads, head_dim, v_head_dim, k_elements, v_elements, n_state;
    int64_t offset, head_bytes, v_offset, scale_offset, state_offset;
} kv_place;

typedef struct kv_view { /* of one layer, for kernels */
    uint8_t *base;
    kv_place place;
    int64_t page_bytes;
    int32_t page_tokens, type, scaled, element_bytes;
} kv_view;

/* clang-format off */
typedef enum op_kind {
    OP_EMBED, OP_ROPE, OP_RESIDUAL, OP_NORM, OP_LINEAR, OP_QKV, OP_ATTENTION, OP_MLA, OP_ROUTE, OP_EXPERTS, OP_GATE, OP_GATHER,
    OP_ALL_REDUCE, OP_LOGITS, OP_LORA, OP_SEND, OP_RECEIVE, OP_STATE, OP_CONV, OP_RECUR, OP_STREAMS, OP_INDEX, OP_COUNT
} op_kind;
/* clang-format on */

static const char *const op_names[OP_COUNT] = {"embed",   "rope",    "residual", "norm",   "linear",     "qkv",    "attention", "latent",
                                               "route",   "experts", "gate",     "gather", "all_reduce", "logits", "lora",      "send",
                                               "receive", "state",   "conv",     "recur",  "streams",    "index"};

/* How products of many rows take activations. Halves: a row times its half_scale. E4M3: a row over its scale, largest / 448. The others are
 * halves (or bf16) in the order in which instructions meet columns of W, of which a lane has 4 side by side in bricks, 8 of 16 bits and 16
 * of e4m3: of each 16 the first two of every lane's four, and then the other two. */
typedef enum narrow_form {
    NARROW_NONE,
    NARROW_BF16,
    NARROW_HALF,
    NARROW_E4M3,
    NARROW_BRICKS,
    NARROW_EIGHTS,
    NARROW_EIGHTS_BF16,
    NARROW_SIXTEENS
} narrow_form;

typedef struct record {
    op_kind kind;
    int32_t done;                /* by another record: see list_fuse */
    const llm_buffer *onto;      /* of a product: what it adds to instead of its dst */
    float by;                    /* ... times this */
    const llm_residual_op *norm; /* ... and the norm that it does of its src */
    const llm_qkv_op *qkv;       /* of attention: what it does before, see list_fuse_heads */
    narrow_form leaves, finds;   /* how what it makes, and what it reads, lie in their buffers; NONE: as f32. See list_narrow */
    int32_t scaled;              /* ... what it reads with a scale a row */
    /* clang-format off */
    union {
        llm_embed_op embed; llm_rope_op rope; llm_residual_op residual; llm_norm_op norm; llm_linear_op linear; llm_qkv_op qkv;
        llm_attention_op attention; llm_mla_op mla; llm_route_op route; llm_experts_op experts; llm_gate_op gate; llm_gather_op gather;
        llm_logits_op logits; llm_lora_op lora; llm_state_op state; llm_conv_op conv; llm_recur_op recur; llm_streams_op streams;
        llm_index_op index;
        struct { llm_rows rows; llm_buffer *buf; int32_t n; } reduce;
    } op;
    /* clang-format on */
} record;

/* Memory through which the ranks of a stage sum up rows without NCCL: see >>ranks. n 0: there is none. Passed by value. */
typedef struct peer_view {
    int32_t n, index, blocks, two; /* blocks that sum, at most; two: in two shots */
    int64_t width;                 /* floats of a box, a multiple of 4 */
    float *box[MAX_RANKS];         /* (blocks + 2 ONE_SHOT_ROWS, width) of every rank */
    uint32_t *flags[MAX_RANKS];    /* (blocks, MAX_RANKS) of every rank */
    uint32_t *turn;                /* (blocks) of this one: flags that it has raised */
    const uint32_t *stop;          /* pinned: 1 lets everybody go who waits */
} peer_view;

/* The list of one shape on one rank. exec NULL: it has run once as it was, and is captured when it comes again. */
typedef struct graph {
    int32_t n_rows, draws, lora, program, given;
    unsigned used; /* the step that had it last */
    cudaGraphExec_t exec;
} graph;

/* Who is connected: the ranks of a stage; all; the first of all and the first of the last stage. */
enum { COMM_STAGE, COMM_PIPE, COMM_BACK, N_COMMS };

/* A device as this process uses it. The thread that runs its list owns all of it while a step is launched. */
typedef struct rank {
    struct llm_backend_ctx *ctx;
    int index, device, n_sms, max_smem, capability; /* max_smem: bytes a block may have; capability: 90 for sm_90 */
    int sync_each;                                  /* LLM_CUDA_SYNC is set */
    int overlap;                                    /* a kernel may start before the one in front of it has ended: see launch */
    int wide;                                       /* blocks of kernel_linear_rows may have 16 warps: see WIDE_ARCH */
    int groups[2];                                  /* heads of 64, 128 values: prompts go by warpgroups' products, see chunk_try */
    uint32_t expert_groups;                         /* bits of kinds: experts of many rows go by them, see experts_try */
    cudaStream_t stream;
    cudaEvent_t done[LLM_FLIGHT_MAX], stage_free[2], from[N_TIMES], to[N_TIMES]; /* from, to: see note_times */
    cudaStream_t back;                   /* of the first rank of a pipeline: on which what the last stage has drawn comes */
    cudaEvent_t back_after;              /* the end of its part of a step */
    cudaEvent_t around[2];               /* of a record: see time_record */
    uint8_t *stage[2], *stage_device[2]; /* pinned and device memory through which weights are loaded */
    int64_t stage_bytes;
    int stage_turn, stage_used[2];
    record *list; /* (MAX_RECORDS) */
    int n;
    uint8_t *step; /* device block of the step */
    uint8_t *more; /* and of what few steps have: see more_place */
    step_view view;
    uint8_t *kv;   /* (n_pages, page_bytes) */
    float *logits; /* (max_out, vocab of this rank) */
    int64_t vocab;
    float *gathered, *flat;  /* with draws: (n_ranks, max_out, widest) and (max_out, whole vocabulary) */
    float *weights;          /* (max_out, whole vocabulary) of the sampler */
    struct draw_part *parts; /* (max_out, parts of a row) of the sampler */
    llm_drawn *drawn;        /* (max_out, 2) on the device: of steps in turn, see row_token */
    uint8_t *bent;           /* masks and changes of the step, see step_draws */
    unsigned *most;          /* (max_rows) bits of a row's largest value where it fits no half; 0 between operations */
    unsigned *arrived; /* (max_seqs, MAX_TILES) splits that are there, (MAX_TILES) tickets; or pieces of bands. 0 between operations */
    uint8_t *scratch;  /* of the operation that runs */
    size_t scratch_bytes;
    void *cublas, *product; /* handle and description of x W^T; NULL: cuBLASLt is not there */
    void *workspace;
    size_t workspace_bytes;
    struct cublas_choice *choices; /* (N_CHOICES) */
    int n_choices;
    void *comms[N_COMMS]; /* NCCL's communicators; NULL: not needed */
    peer_view peers;
    void **memory; /* what to free */
    int n_memory, memory_cap;
    int64_t bytes;
    graph graphs[MAX_GRAPHS];
    int n_graphs;
    pthread_t thread;
    int has_thread, busy; /* busy: has a job that it has not ended; under ctx->mutex */
    llm_result failed;    /* in its own thread */
    char why[256];
} rank;

/* Twin: llm_backend_ctx of >>backend. `begun` and `waited` count steps: their difference is how many are under way, at most n_flight, and
 * their rest by that says which of the pinned blocks is meant. */
struct llm_backend_ctx {
    llm_backend_config cfg;
    int n_ranks, n_group; /* of this process; of a stage */
    int n_world, first;   /* ranks of all processes; which of them ranks[0] is */
    int64_t vocabs[MAX_WORLD];
    int one_device; /* LLM_CUDA_ONE_DEVICE is set: all ranks share device 0, without NCCL, which refuses that; for tests of >>ranks */
    rank *ranks;
    uint32_t *stop_waiting; /* pinned, see peer_view */
    int64_t peer_width;
    rank *loaders; /* of adapters, one a rank; NULL: there are no sites */
    char name[320], why[300];
    llm_result failed;
    size_t step_bytes;                /* of a step's block */
    unsigned n_flight;                /* of the five below */
    uint8_t *staged[LLM_FLIGHT_MAX];  /* pinned copies of steps */
    uint8_t *more[LLM_FLIGHT_MAX];    /* and of what few steps have */
    float *logits[LLM_FLIGHT_MAX];    /* pinned (max_out, vocab) */
    llm_drawn *drawn[LLM_FLIGHT_MAX]; /* pinned (max_out) */
    uint8_t *bent[LLM_FLIGHT_MAX];    /* pinned masks and changes of the draws */
    int64_t vocab, widest;
    unsigned begun, waited;    /* steps */
    int times, each_record;    /* LLM_CUDA_TIMES is set; to `records` */
    double record_s[OP_COUNT]; /* of the first device, with each_record */
    int64_t n_records[OP_COUNT];
    double busy_s, idle_s;   /* seconds of the first device in steps, and between them */
    llm_shape shape, padded; /* of the step that is being recorded; padded to a bucket where a graph is used */
    int32_t page_stride, any_draws, want_rows, longest, singles, capture; /* singles: sequences with one row */
    int n_layers, page_tokens;
    kv_place *places;
    int64_t page_bytes, n_pages;
    int kv_type;
    float *row;   /* a row read back for buffer_row */
    void *pinned; /* the engine's memory for pages that give way; NULL: none, or it could not be pinned */
    llm_buffer **buffers;
    int n_buffers, buffer_cap;
    llm_weight **all_weights;
    int n_weights, weight_cap;
    llm_lora_site **sites;
    int n_sites, site_cap;
    pthread_mutex_t put;   /* one adapter is loaded at a time */
    pthread_mutex_t mutex; /* of the ranks' threads */
    pthread_cond_t go, idle;
    void (*job)(rank *r);
    unsigned round;
    int running, stop, alive; /* jobs that have not ended; threads that have not */
    int aborted;              /* communicators are gone; read by ranks' threads while it is written */
};

/* Sets the sentence of the calling program's library and returns r: this library has another copy of llm.h's state, so the sentence goes
 * through the function that open was given. */
static llm_result fail_with(const llm_backend_config *cfg, llm_result r, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return cfg->error ? cfg->error(r, text) : r;
}

/* Keeps the first mistake of a context. */
static void ctx_fail(llm_backend_ctx *ctx, llm_result r, const char *what) {
    if (ctx->failed) return;
    ctx->failed = r;
    snprintf(ctx->why, sizeof ctx->why, "%s", what);
}

static llm_result ctx_result(llm_backend_ctx *ctx) { return ctx->failed ? fail_with(&ctx->cfg, ctx->failed, "%s", ctx->why) : LLM_OK; }

/* Keeps the first mistake of a rank. */
static void rank_fail(rank *r, llm_result result, const char *format, ...) {
    if (r->failed) return;
    r->failed = result;
    int n = snprintf(r->why, sizeof r->why, "cuda device %d: ", r->device);
    va_list args;
    va_start(args, format);
    vsnprintf(r->why + n, sizeof r->why - (size_t)n, format, args);
    va_end(args);
}

/* Notes what a CUDA call on this rank returned; 1 if it was right. */
static int rank_ok(rank *r, cudaError_t e, const char *what) {
    if (e == cudaSuccess) return !r->failed;
    rank_fail(r, e == cudaErrorMemoryAllocation ? LLM_ERR_NOMEM : LLM_ERR_BACKEND, "%s: %s", what, cudaGetErrorString(e));
    cudaGetLastError();
    return 0;
}

/* Takes what went wrong on a rank over into the context. */
static llm_result rank_result(rank *r) {
    if (r->failed) ctx_fail(r->ctx, r->failed, r->why);
    return ctx_result(r->ctx);
}

/* rank_ok of what took memory: says how much there is. */
static int memory_ok(rank *r, cudaError_t e, size_t bytes, const char *what) {
    size_t left = 0, total = 0;
    if (e != cudaErrorMemoryAllocation || r->failed) return rank_ok(r, e, what);
    cudaGetLastError();
    cudaMemGetInfo(&left, &total);
    rank_fail(r, LLM_ERR_NOMEM, "out of memory: %s needs %zu MiB, %zu of %zu MiB are free", what, bytes >> 20, left >> 20, total >> 20);
    return 0;
}

/* Zeroed device memory that lives as long as the context; NULL and a noted error if there is none. */
static void *device_memory(rank *r, size_t bytes, const char *what) {
    void *p = NULL;
    if (r->failed) return NULL;
    if (r->n_memory == r->memory_cap) {
        int cap = r->memory_cap ? 2 * r->memory_cap : 64;
        void **grown = (void **)realloc(r->memory, (size_t)cap * sizeof *grown);
        if (!grown) return rank_ok(r, cudaErrorMemoryAllocation, what), (void *)NULL;
        r->memory = grown;
        r->memory_cap = cap;
    }
    if (!memory_ok(r, cudaMalloc(&p, bytes ? bytes : 1), bytes, what)) return NULL;
    r->memory[r->n_memory++] = p;
    r->bytes += (int64_t)bytes;
    rank_ok(r, cudaMemsetAsync(p, 0, bytes ? bytes : 1, r->stream), what);
    return p;
}

/* Gives device_memory back once this rank's stream is done with it. NULL is fine. */
static void device_free(rank *r, void *p, size_t bytes) {
    for (int i = 0; p && i < r->n_memory; i++)
        if (r->memory[i] == p) {
            rank_ok(r, cudaStreamSynchronize(r->stream), "memory");
            cudaFree(p);
            r->memory[i] = r->memory[--r->n_memory];
            r->bytes -= (int64_t)bytes;
            return;
        }
}

/* Scratch of at least this size, taken while opening: operations run one after the other, so all share it. */
static void *rank_scratch(rank *r, size_t bytes) {
    if (bytes <= r->scratch_bytes) return r->scratch;
    bytes = (bytes + 0xfffff) & ~(size_t)0xfffff;
    uint8_t *p = (uint8_t *)device_memory(r, bytes, "scratch");
    if (!p) return NULL;
    device_free(r, r->scratch, r->scratch_bytes);
    r->scratch = p;
    r->scratch_bytes = bytes;
    return p;
}

/* A kernel as the host knows it. Each one that launch<> names anywhere in this file has an entry, made before main: a list that cannot miss
 * one. `text` is how the compiler spells a function of it, which has the kernel's name behind "K = ". */
typedef struct kernel_entry {
    const void *kernel;
    const char *text;
    const struct kernel_entry *next;
    kernel_entry(const void *f, const char *text);
} kernel_entry;

static const kernel_entry *first_kernel; /* written while the library is loaded, never after */

kernel_entry::kernel_entry(const void *f, const char *spelled) : kernel(f), text(spelled), next(first_kernel) { first_kernel = this; }

template <auto K> static const char *kernel_text(void) { return __PRETTY_FUNCTION__; }
template <auto K> struct kernel_of { static const kernel_entry entry; };
template <auto K> const kernel_entry kernel_of<K>::entry{(const void *)K, kernel_text<K>()};

/* "kernel_norm", "kernel_linear_few<2, 8>". */
static const char *kernel_name(const kernel_entry *e, char *to, size_t size) {
    const char *from = strstr(e->text, "K = ");
    snprintf(to, size, "%s", from ? from + 4 : e->text);
    to[strcspn(to, ";]")] = 0;
    return to;
}

/* Loads every kernel to this rank's device, and lets each have all of a block's shared memory. The driver loads a kernel when it is first
 * asked for, and may wait for all that runs until it has: with ranks that wait for each other on the device that would be for ever. */
static void load_kernels(rank *r) {
    for (const kernel_entry *e = first_kernel; e && !r->failed; e = e->next) {
        cudaFuncAttributes has;
        char name[96];
        cudaError_t error = cudaFuncGetAttributes(&has, e->kernel);
        int most = r->max_smem - (int)has.sharedSizeBytes;
        if (error == cudaSuccess && most > (48 << 10))
            error = cudaFuncSetAttribute(e->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
        if (has.ptxVersion < 90) r->overlap = r->wide = 0; /* its grid_wait does nothing, and its launch bounds are narrow */
        if (error != cudaSuccess) rank_ok(r, error, kernel_name(e, name, sizeof name));
    }
}

/* What a launch that went wrong says: which kernel, and how it was started. */
static void launch_failed(rank *r, cudaError_t error, const kernel_entry *e, const cudaLaunchConfig_t *c) {
    char name[96], what[192];
    snprintf(what, sizeof what, "%s, grid %u x %u x %u, %u threads, %zu bytes of shared memory", kernel_name(e, name, sizeof name),
             c->gridDim.x, c->gridDim.y, c->gridDim.z, c->blockDim.x, c->dynamicSmemBytes);
    rank_ok(r, error, what);
}

/* Blocks of a launch. */
typedef struct launch_grid {
    int64_t x = 1, y = 1, z = 1;
} launch_grid;

/* Behind launch: arguments take the types of the kernel's parameters. */
template <class... P, class... A>
static void launch_entry(rank *r, const kernel_entry *e, void (*kernel)(P...), const launch_grid &grid, int threads, size_t smem,
                         A... args) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute early = {};
    if (r->failed || !grid.x || !grid.y || !grid.z) return;
    c.gridDim = dim3((unsigned)grid.x, (unsigned)grid.y, (unsigned)grid.z);
    c.blockDim = dim3((unsigned)threads);
    c.dynamicSmemBytes = smem;
    c.stream = r->stream;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    c.attrs = &early;
    c.numAttrs = r->overlap ? 1 : 0;
    cudaError_t error = cudaLaunchKernelEx(&c, kernel, static_cast<P>(args)...);
    if (error == cudaSuccess && r->sync_each) error = cudaStreamSynchronize(r->stream);
    if (error != cudaSuccess) launch_failed(r, error, e, &c);
}

/* The one way to start a kernel. A grid with nothing in it is not launched, which CUDA would call a mistake. What may be many (rows) goes
 * into x: y and z end at 65,535.
 *
 * From sm_90 on a kernel may start when all blocks of the one before have passed their grid_wait and there is room beside them
 * (programmatic dependent launch); its own lets it through when the other has ended. So what a start costs, and the first weights' way from
 * memory, lie under the end of the kernel before. The step's block was copied before the first of them started, which is why it may be read
 * at once. Ranks that share a device do without: blocks that stand in their grid_wait would take the room of those whom another rank waits
 * for. */
template <auto K, class... A> static void launch(rank *r, const launch_grid &grid, int threads, size_t smem, A... args) {
    launch_entry(r, &kernel_of<K>::entry, K, grid, threads, smem, args...);
}

/* ============================================================================
 * >>libraries   NCCL and cuBLASLt, whose functions are looked up by name.
 * ============================================================================ */

enum { NCCL_I8 = 0, NCCL_F32 = 7, NCCL_SUM = 0 };

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

/* The functions of libnccl.so.2, by its manual's signatures: no header of it is needed to build. */
static struct nccl_api {
    int (*unique_id)(nccl_id *id);
    int (*init_rank)(void **comm, int n, nccl_id id, int rank);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    int (*async_error)(void *comm, int *error);
    const char *(*error_string)(int error);
    int (*all_reduce)(const void *from, void *to, size_t n, int type, int op, void *comm, cudaStream_t stream);
    int (*all_gather)(const void *from, void *to, size_t n, int type, void *comm, cudaStream_t stream);
    int (*send)(const void *from, size_t n, int type, int peer, void *comm, cudaStream_t stream);
    int (*receive)(void *to, size_t n, int type, int peer, void *comm, cudaStream_t stream);
    int (*group_start)(void);
    int (*group_end)(void);
} nccl;

/* Looks the functions up; 0: libnccl is not there. */
static int nccl_load(void) {
    static const char *const names[] = {
        "ncclGetUniqueId", "ncclCommInitRank", "ncclCommDestroy", "ncclCommAbort", "ncclCommGetAsyncError", "ncclGetErrorString",
        "ncclAllReduce",   "ncclAllGather",    "ncclSend",        "ncclRecv",      "ncclGroupStart",        "ncclGroupEnd"};
    void *found[sizeof names / sizeof *names];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(found[i] = nccl_function(names[i]))) return 0;
    memcpy(&nccl, found, sizeof nccl);
    return 1;
}

/* Notes what NCCL returned. */
static void nccl_ok(rank *r, int e, const char *what) {
    if (e) rank_fail(r, LLM_ERR_BACKEND, "%s: %s", what, nccl.error_string(e));
}

/* 1: nothing more is asked of NCCL: this rank has failed, or another one, and the communicators are gone. */
static int nccl_gone(rank *r) {
    if (__atomic_load_n(&r->ctx->aborted, __ATOMIC_ACQUIRE)) rank_fail(r, LLM_ERR_BACKEND, "another rank does not answer");
    return r->failed != LLM_OK;
}

/* In place. */
static void nccl_all_reduce(rank *r, float *data, size_t n) {
    if (!r->comms[COMM_STAGE]) rank_fail(r, LLM_ERR_BACKEND, "all-reduce: there is no NCCL");
    if (nccl_gone(r)) return;
    nccl_ok(r, nccl.all_reduce(data, data, n, NCCL_F32, NCCL_SUM, r->comms[COMM_STAGE], r->stream), "all-reduce");
}

/* A rank's number among those of all processes. */
static int world_rank(const rank *r) { return r->ctx->first + r->index; }

/* Stages of the pipeline, and this rank's. */
static int n_stages(const llm_backend_ctx *ctx) { return ctx->n_world / ctx->n_group; }
static int stage_of(const rank *r) { return world_rank(r) / r->ctx->n_group; }

/* To the same rank of the next stage; from that of the one before. */
static void run_send(rank *r, const void *from, size_t bytes) {
    if (nccl_gone(r)) return;
    nccl_ok(r, nccl.send(from, bytes, NCCL_I8, world_rank(r) + r->ctx->n_group, r->comms[COMM_PIPE], r->stream), "send");
}
static void run_receive(rank *r, void *to, size_t bytes) {
    if (nccl_gone(r)) return;
    nccl_ok(r, nccl.receive(to, bytes, NCCL_I8, world_rank(r) - r->ctx->n_group, r->comms[COMM_PIPE], r->stream), "receive");
}

/* From the first rank of the last stage to the first of all, which takes it on a stream of its own: its next step need not wait. */
static void run_send_back(rank *r, const void *from, size_t bytes) {
    if (!nccl_gone(r)) nccl_ok(r, nccl.send(from, bytes, NCCL_I8, 0, r->comms[COMM_BACK], r->stream), "send back");
}
static void run_receive_back(rank *r, void *to, size_t bytes) {
    if (!nccl_gone(r)) nccl_ok(r, nccl.receive(to, bytes, NCCL_I8, 1, r->comms[COMM_BACK], r->back), "receive back");
}

/* ---- cuBLASLt, by name ---- */

enum { CUBLAS_F32 = 0, CUBLAS_F16 = 2, CUBLAS_BF16 = 14, CUBLAS_E4M3 = 28, CUBLAS_SUM_F32 = 68, CUBLAS_TURN_A = 3, CUBLAS_WORKSPACE = 1 };

/* What the library thinks of a product, as its manual lays it out. */
typedef struct cublas_answer {
    uint64_t algorithm[8];
    size_t workspace;
    int state; /* 0: it can be used */
    float waves;
    int reserved[4];
} cublas_answer;

/* The functions of libcublasLt, by its manual's signatures. */
static struct cublas_api {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*product)(void **product, int compute, int scale_type);
    int (*product_set)(void *product, int attribute, const void *value, size_t bytes);
    int (*layout)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride);
    int (*layout_free)(void *layout);
    int (*multiply)(void *handle, void *product, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout,
                    const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const void *algorithm, void *workspace,
                    size_t workspace_bytes, cudaStream_t stream);
    int (*wish)(void **wish); /* these four may be missing */
    int (*wish_set)(void *wish, int attribute, const void *value, size_t bytes);
    int (*wish_free)(void *wish);
    int (*ask)(void *handle, void *product, void *a_layout, void *b_layout, void *c_layout, void *d_layout, void *wish, int wanted,
               cublas_answer *answers, int *n_answers);
} cublas;

/* Algorithms that the library was asked for; key[0] 0: a free place. Asked by itself it would think of a product again at each call, and
 * use no workspace. */
typedef struct cublas_choice {
    int64_t key[6]; /* type, T, V, K, strides of x and y */
    int known;      /* 0: it has none to offer */
    uint64_t algorithm[8];
} cublas_choice;

/* Opens the library on a rank's device; without it, or when it fails, r->cublas stays NULL. */
static void cublas_open(rank *r, size_t workspace) {
    /* clang-format off */
    static const char *const names[] = {
        "cublasLtCreate", "cublasLtDestroy", "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutCreate",
        "cublasLtMatrixLayoutDestroy", "cublasLtMatmul", "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute",
        "cublasLtMatmulPreferenceDestroy", "cublasLtMatmulAlgoGetHeuristic"};
    /* clang-format on */
    const int turned = 1, n_names = (int)(sizeof names / sizeof *names);
    void *found[sizeof names / sizeof *names];
    if (r->cublas || getenv("LLM_CUDA_NO_CUBLAS")) return;
    for (int i = 0; i < n_names; i++)
        if (!(found[i] = cublas_function(names[i])) && i < n_names - 4) return;
    memcpy(&cublas, found, sizeof cublas);
    if (!cublas.wish || !cublas.wish_set || !cublas.wish_free) cublas.ask = NULL;
    if (cublas.create(&r->cublas)) r->cublas = NULL;
    if (!r->cublas || cublas.product(&r->product, CUBLAS_SUM_F32, CUBLAS_F32) ||
        cublas.product_set(r->product, CUBLAS_TURN_A, &turned, sizeof turned)) {
        r->cublas = NULL;
        return;
    }
    if (workspace) r->workspace = device_memory(r, workspace, "cuBLASLt");
    r->workspace_bytes = r->workspace ? workspace : 0;
    r->choices = (cublas_choice *)calloc(N_CHOICES, sizeof *r->choices);
    if (!r->choices) rank_ok(r, cudaErrorMemoryAllocation, "cuBLASLt");
}

/* Rows for which an algorithm is asked that T take: four sizes in each power of two. Asked for the size and not for T, so that bits do not
 * depend on which T came first. */
static int64_t cublas_rows(int64_t T) {
    int64_t each = 2;
    while (8 * each < T) each *= 2;
    return (T + each - 1) / each * each;
}

/* The algorithm for a product, NULL: the library's own. wl: layout of w. It is asked for when a shape comes for the first time, which is
 * before a graph with it is captured; and no more once three quarters of the table are full. */
static const void *cublas_choose(rank *r, int type, int64_t T, int64_t V, int64_t K, int64_t x_stride, int64_t y_stride, void *wl) {
    const int64_t key[6] = {type, cublas_rows(T), V, K, x_stride, y_stride};
    uint64_t at = 0;
    cublas_answer a = {};
    void *xl = NULL, *yl = NULL, *wish = NULL;
    int n = 0;
    if (!cublas.ask) return NULL;
    for (int64_t k : key) at = (at ^ (uint64_t)k) * 0x9e3779b97f4a7c15u;
    for (at >>= 32;; at++) {
        cublas_choice *c = &r->choices[at % N_CHOICES];
        if (c->key[0] && !memcmp(c->key, key, sizeof key)) return c->known ? c->algorithm : NULL;
        if (c->key[0]) continue;
        if (4 * r->n_choices > 3 * N_CHOICES) return NULL;
        r->n_choices++;
        int e = cublas.layout(&xl, type, (uint64_t)K, (uint64_t)key[1], x_stride);
        if (!e) e = cublas.layout(&yl, CUBLAS_F32, (uint64_t)V, (uint64_t)key[1], y_stride);
        if (!e) e = cublas.wish(&wish);
        if (!e) e = cublas.wish_set(wish, CUBLAS_WORKSPACE, &r->workspace_bytes, sizeof r->workspace_bytes);
        if (!e) e = cublas.ask(r->cublas, r->product, wl, xl, yl, yl, wish, 1, &a, &n);
        c->known = !e && n && !a.state;
        memcpy(c->key, key, sizeof key);
        memcpy(c->algorithm, a.algorithm, sizeof a.algorithm);
        if (wish) cublas.wish_free(wish);
        if (yl) cublas.layout_free(yl);
        if (xl) cublas.layout_free(xl);
        return c->known ? c->algorithm : NULL;
    }
}

/* y (T, V) of stride y_stride = (add: +=) x (T, K) of stride x_stride times w (V, K)^T, x and w of a type. The library counts by columns:
 * to it these are y^T = w x^T. An algorithm may refuse a number of rows for which it was not asked. */
static void cublas_multiply(rank *r, int type, const void *x, int64_t x_stride, const void *w, float *y, int64_t T, int64_t V, int64_t K,
                            int64_t y_stride, int add) {
    const float one = 1, beta = (float)add;
    void *wl = NULL, *xl = NULL, *yl = NULL;
    int e = cublas.layout(&wl, type, (uint64_t)K, (uint64_t)V, K);
    if (!e) e = cublas.layout(&xl, type, (uint64_t)K, (uint64_t)T, x_stride);
    if (!e) e = cublas.layout(&yl, CUBLAS_F32, (uint64_t)V, (uint64_t)T, y_stride);
    const void *algorithm = e ? NULL : cublas_choose(r, type, T, V, K, x_stride, y_stride, wl);
    auto multiply = [&](const void *how) {
        return cublas.multiply(r->cublas, r->product, &one, w, wl, x, xl, &beta, y, yl, y, yl, how, r->workspace, r->workspace_bytes,
                               r->stream);
    };
    if (!e) e = multiply(algorithm);
    if (e && algorithm) e = multiply(NULL);
    if (wl) cublas.layout_free(wl);
    if (xl) cublas.layout_free(xl);
    if (yl) cublas.layout_free(yl);
    if (e)
        rank_fail(r, LLM_ERR_BACKEND, "cuBLASLt: a product of %lld x %lld x %lld failed with status %d", (long long)T, (long long)V,
                  (long long)K, e);
}

/* ============================================================================
 * >>formats   How weights lie in device memory.
 * ============================================================================
 * A weight is rows of "subs" of 32 columns. Floats lie row by row. What is quantised lies in bricks of 16 rows x 64 columns, each in one
 * piece, in the order in which the lanes of a warp give them to tensor cores: first the low bits of all values, then what high bits there
 * are, then scales. A value is
 *
 *     scale * (u - zero)      or      scale * u + minimum      or      scale * table[u]
 *
 * The formats of the file become one of the kinds below, made by kernel_pack while loading: super-blocks' small scales are multiplied out
 * to f16 for each sub (half a bit a weight more than in the file, and no second step of indirection while computing). Columns are filled up
 * with zeros to pairs of bricks, rows to whole bricks.
 *
 *     kind            values        high     scales              from
 *     F32 F16 BF16    128, 64, 64   -        -                   floats of that width (f64, and all with dtype float32: F32)
 *     F8              32            -        (row_scale)         e4m3; one scale a matrix is kept a row, see weight_scales
 *     Q4Z Q4M         16            -        2, 4                Q4_0; Q4_1, Q4_K
 *     Q5Z Q5M         16            4        2, 4                Q5_0; Q5_1, Q5_K
 *     Q6              16            8        4 (two of f16)      Q6_K
 *     Q8              32            -        2                   Q8_0
 *     T4              16            -        4 (f32)             IQ4_NL, IQ4_XS, MXFP4, IQ3, IQ2_XXS, IQ1_S: 16 values of a table
 *     G8              32            -        8                   Q2_K, Q3_K: what has 16 columns a group
 *
 * (bytes of 32 columns). For instance Q4_K, whose block of 256 columns has f16 d and dmin, 8 scales and 8 minima of 6 bits, and 128 bytes
 * of nibbles: sub j becomes 16 bytes of nibbles, f16 d * scale[j] and f16 -dmin * min[j], and value i is (d scale[j]) * u[i] - (dmin
 * min[j]). 4.5 bits a weight in the file are 5 here.
 *
 * A brick in memory (mma_16x8x16 says which lane has what): lane 4 g + t has of rows g and g + 8 the columns 16 h + 4 t to 16 h + 4 t + 3,
 * which are step h of a sub. c: the first or the second two of these four columns; e: the first or second of those two; r: row g or g + 8.
 *
 *     nibbles    16 bytes a lane      word 2 sub + h, at bit 16 e + 8 r + 4 c
 *     bytes      16 bytes a lane, of either sub      word 2 h + r, byte 2 c + e
 *     1 high bit     a word a lane        bit 16 e + 8 r + 4 sub + 2 h + c
 *     2 high bits    two words a lane     word sub, at bit 16 e + 8 r + 4 h + 2 c
 *     scales     of either sub, of each g those of row g and of row g + 8, side by side
 *
 * So a warp reads a brick in whole vectors side by side, which is how memory is read at full speed. No byte has bits of two rows, so that
 * rows can be packed by threads that know nothing of each other. */

typedef enum kind {
    KIND_F32,
    KIND_F16,
    KIND_BF16,
    KIND_F8, /* floats; f8: e4m3 */
    KIND_Q4Z,
    KIND_Q4M,
    KIND_Q5Z,
    KIND_Q5M, /* Z: zero point, f16 scale; M: f16 scale and minimum */
    KIND_Q6,  /* 6 bits, zero 32, f16 scale for 16 columns */
    KIND_Q8,  /* signed bytes, f16 scale */
    KIND_T4,  /* nibbles that index a table, f32 scale */
    KIND_T4X, /* the same, f16 scale for 16 columns */
    KIND_G8,  /* bytes, f16 scale and minimum for 16 columns: for what has no kind of its own */
    KIND_COUNT
} kind;

/* Bytes of a sub in the three planes. */
static constexpr __host__ __device__ int kind_bytes(int k) {
    return k == KIND_F32 ? 128 : k == KIND_F16 || k == KIND_BF16 ? 64 : k == KIND_F8 || k == KIND_Q8 || k == KIND_G8 ? 32 : 16;
}
static constexpr __host__ __device__ int kind_high_bytes(int k) { return k == KIND_Q5Z || k == KIND_Q5M ? 4 : k == KIND_Q6 ? 8 : 0; }
static constexpr __host__ __device__ int kind_scale_bytes(int k) {
    return k <= KIND_F8 ? 0 : k == KIND_Q4Z || k == KIND_Q5Z || k == KIND_Q8 ? 2 : k == KIND_G8 ? 8 : 4;
}

static constexpr int BRICK_ROWS = 16, BRICK_SUBS = 2;
static constexpr __host__ __device__ int kind_bricks(int k) { return k > KIND_F8; }
static constexpr __host__ __device__ int kind_16bit(int k) { return k == KIND_F16 || k == KIND_BF16; }
static constexpr __host__ __device__ int kind_nibbles(int k) { return kind_bytes(k) == 16; }
static constexpr __host__ __device__ int sub_bytes(int k) { return kind_bytes(k) + kind_high_bytes(k) + kind_scale_bytes(k); }
static constexpr __host__ __device__ int brick_bytes(int k) { return BRICK_ROWS * BRICK_SUBS * sub_bytes(k); }
/* Where high bits and scales begin in a brick. */
static constexpr __host__ __device__ int brick_high(int k) { return BRICK_ROWS * BRICK_SUBS * kind_bytes(k); }
static constexpr __host__ __device__ int brick_scales(int k) { return BRICK_ROWS * BRICK_SUBS * (kind_bytes(k) + kind_high_bytes(k)); }

/* Rows [row, row + n_rows) of a weight that have one kind. */
typedef struct part {
    int32_t kind, subs; /* of a row */
    int64_t row, n_rows;
    int64_t apart; /* rows from one group (expert) to the next: whole bricks */
    uint8_t *q;
    uint64_t table[2]; /* 16 signed bytes */
} part;

/* Bricks of 16 rows, of which there are pairs. */
static __host__ __device__ __forceinline__ int brick_count(int subs) { return 2 * ((subs + 2 * BRICK_SUBS - 1) / (2 * BRICK_SUBS)); }

/* Brick `i` of the 16 rows that have row `row`. */
static __host__ __device__ __forceinline__ uint8_t *brick_at(const part &w, int bytes, int64_t row, int i) {
    return w.q + (row / BRICK_ROWS * brick_count(w.subs) + i) * bytes;
}

static constexpr __host__ __device__ int kind_table(int k) { return k == KIND_T4 || k == KIND_T4X; }
static constexpr __host__ __device__ int kind_signed(int k) { return k == KIND_Q8 || kind_table(k); }
/* Scales are of 16 columns; two of them stand in one word. */
static constexpr __host__ __device__ int kind_halves(int k) { return k == KIND_Q6 || k == KIND_T4X || k == KIND_G8; }
static constexpr __host__ __device__ int kind_pair(int k) { return k == KIND_Q6 || k == KIND_T4X; }

/* What zero is among a kind's whole numbers, as scaled4 has them. */
static constexpr __host__ __device__ int kind_zero(int k) {
    return k == KIND_Q4Z ? 8 : k == KIND_Q5Z ? 16 : k == KIND_Q6 ? 32 : kind_signed(k) ? 128 : 0;
}
static constexpr __host__ __device__ int kind_has_minimum(int k) { return k == KIND_Q4M || k == KIND_Q5M || k == KIND_G8; }

/* Half a sub (16 columns) as it lies in memory, in registers: asked for long before it is needed. Of bricks there is a word of each of the
 * four lanes that share a row. */
template <int K> struct packed {
    uint32_t q[kind_bricks(K) ? 4 : kind_bytes(K) / 8];
    uint32_t high[4], scale[2];
};

/* Half h of sub `sub` of a row. Twin: llm__dequant_columns, with what follows. */
template <int K> DEVICE void load_packed(const part &w, int64_t row, int sub, int h, packed<K> *to) {
    if constexpr (!kind_bricks(K)) {
        const uint4 *q = (const uint4 *)(w.q + (row * w.subs + sub) * kind_bytes(K) + h * kind_bytes(K) / 2);
        UNROLL(i, kind_bytes(K) / 32) ((uint4 *)to->q)[i] = __ldg(q + i);
    } else {
        const uint8_t *b = brick_at(w, brick_bytes(K), row, sub / BRICK_SUBS);
        const int g = (int)row & 7, r = (int)row >> 3 & 1, s = sub & 1;
        const uint32_t *q = (const uint32_t *)b + 16 * g + (kind_nibbles(K) ? 2 * s + h : 128 * s + 2 * h + r);
        const uint32_t *high = (const uint32_t *)(b + brick_high(K));
        const int words = kind_scale_bytes(K) == 8 ? 2 : 1;
        UNROLL(t, 4) {
            to->q[t] = __ldg(q + 4 * t) >> (kind_nibbles(K) ? 8 * r : 0);
            if (kind_high_bytes(K) == 4) to->high[t] = __ldg(high + 4 * g + t) >> (8 * r + 4 * s + 2 * h);
            if (kind_high_bytes(K) == 8) to->high[t] = __ldg(high + 8 * g + 2 * t + s) >> (8 * r + 4 * h);
        }
        b += brick_scales(K) + ((s * 8 + g) * 2 + r) * kind_scale_bytes(K);
        if (kind_scale_bytes(K) == 2) to->scale[0] = __ldg((const uint16_t *)b);
        else to->scale[0] = __ldg((const uint32_t *)b + (words - 1) * h);
    }
}

/* Four nibbles, from bit 0 on, become the table's values at them, as signed bytes. A byte of the 16 is chosen from either half by its low
 * three bits, and then the half by the fourth. */
DEVICE uint32_t table_four(const uint64_t *table, uint32_t at) {
    uint32_t low = __byte_perm((uint32_t)table[0], (uint32_t)(table[0] >> 32), at & 0x7777),
             top = __byte_perm((uint32_t)table[1], (uint32_t)(table[1] >> 32), at & 0x7777);
    return __byte_perm(low, top, 0x3210 | (at >> 1 & 0x4444));
}

/* Of a brick's word the four columns of one row as bytes, in order: `mask` has the bits of one, `apart` is how far c moves. */
DEVICE uint32_t word_bytes(uint32_t w, int apart, uint32_t mask) {
    return (w & mask) | (w >> 8 & mask << 8) | (w << (16 - apart) & mask << 16) | (w << (8 - apart) & mask << 24);
}

/* Four values from words of a brick, of which the bits of their row and step come first; `scale`: what is stored beside their half h. A
 * byte n below 0x4b000000 is the float 2^23 + n, so a byte takes a permutation and a subtraction, which is exact. */
template <int K> DEVICE void scaled4(uint32_t q, uint32_t high, uint32_t scale, int h, const uint64_t *table, float *v) {
    const float d = K == KIND_T4 ? bits_to_f32(scale) : half_to_f32((uint16_t)(kind_pair(K) && h ? scale >> 16 : scale));
    const float m = half_to_f32((uint16_t)(scale >> 16));
    uint32_t n = kind_nibbles(K) ? word_bytes(q, 4, 15) : q;
    const uint32_t two = n | n >> 4; /* nibbles side by side */
    if (kind_high_bytes(K) == 4) n |= word_bytes(high, 1, 1) << 4;
    if (kind_high_bytes(K) == 8) n |= word_bytes(high, 2, 3) << 4;
    if (kind_table(K)) n = table_four(table, (two & 0xff) | (two >> 8 & 0xff00));
    if (kind_signed(K)) n ^= 0x80808080u;
    UNROLL(i, 4) {
        const float u = __uint_as_float(__byte_perm(n, 0x4b000000, 0x7440 + i)) - (float)(8388608 + kind_zero(K));
        v[i] = kind_has_minimum(K) ? d * u + m : d * u;
    }
}

/* 16 values of a packed half. K is known when compiling, so of all the branches one is left. */
template <int K> DEVICE void scaled16(const packed<K> &p, int h, const uint64_t *table, float *v) {
    if constexpr (K == KIND_F32 || K == KIND_F16 || K == KIND_BF16) {
        UNROLL(i, kind_bytes(K) / 8) {
            const uint32_t u = p.q[i];
            if (K == KIND_F32) v[i] = bits_to_f32(u);
            else if (K == KIND_F16) v[2 * i] = half_to_f32((uint16_t)u), v[2 * i + 1] = half_to_f32((uint16_t)(u >> 16));
            else v[2 * i] = bits_to_f32(u << 16), v[2 * i + 1] = bits_to_f32(u & 0xffff0000u);
        }
    } else if constexpr (K == KIND_F8) {
        UNROLL(i, 4) e4m3_pair(p.q[i], v + 4 * i), e4m3_pair(p.q[i] >> 16, v + 4 * i + 2);
    } else {
        UNROLL(t, 4) scaled4<K>(p.q[t], p.high[t], p.scale[0], h, table, v + 4 * t);
    }
}

/* Columns [16 h, 16 h + 16) of sub `sub` of a row as f32, where there is nothing else to do meanwhile. */
template <int K> DEVICE void load16(const part &w, int64_t row, int sub, int h, float *v) {
    packed<K> p;
    load_packed<K>(w, row, sub, h, &p);
    scaled16<K>(p, h, w.table, v);
}

/* The same where the kind is known at run time only. */
DEVICE void load16_any(const part &w, int64_t row, int sub, int h, float *v) {
    with_constant<0, KIND_COUNT - 1>(w.kind, [&](auto k) { load16<k.value>(w, row, sub, h, v); });
}

/* ---- What the file has: a table as in llm.h's >>dtypes, whose words are used here too ---- */

enum { PLANE_NONE, PLANE_HALVES, PLANE_STRIPES, PLANE_QUARTERS, PLANE_WORD };
/* SC_EIGHTHS: as SC_Q6K, in eighths. */
enum { SC_ONE, SC_E8, SC_ZERO, SC_F32, SC_127, SC_F16X2, SC_Q2K, SC_Q3K, SC_Q45K, SC_Q6K, SC_EIGHTHS, SC_XS };

/* Twin: llm__format. block: columns; bytes: of a block. */
typedef struct format {
    int block, bytes, kind, zero;
    int order, bits, at, high_order, high_bits, high_at;
    int scales, scales_at, d_at, m_at;
} format;

/* block 0: a type that cannot be read; kind is what its values are packed as. */
static __host__ __device__ format format_of(int type) {
    switch (type) {
    case LLM_TYPE_F32: return {1, 4, KIND_F32};
    case LLM_TYPE_F64: return {1, 8, KIND_F32};
    case LLM_TYPE_F16: return {1, 2, KIND_F16};
    case LLM_TYPE_BF16: return {1, 2, KIND_BF16};
    case LLM_TYPE_RANDOM: return {1, 0, KIND_BF16};
    case LLM_TYPE_RANDOM_F8: return {1, 0, KIND_F8};
    case LLM_TYPE_RANDOM_Q4: return {1, 0, KIND_Q4Z};
    case LLM_TYPE_F8_E4M3: return {1, 1, KIND_F8};
    case LLM_TYPE_I8: return {1, 1, KIND_Q8}; /* a scale of 1 beside each sub, and one a row */
    case LLM_TYPE_F8_E5M2: return {1, 1, KIND_F16};
    case LLM_TYPE_Q4_0: return {32, 18, KIND_Q4Z, 8, PLANE_HALVES, 4, 2, PLANE_NONE, 0, 0, SC_ONE, 0, 0, -1};
    case LLM_TYPE_Q4_1: return {32, 20, KIND_Q4M, 0, PLANE_HALVES, 4, 4, PLANE_NONE, 0, 0, SC_ONE, 0, 0, 2};
    case LLM_TYPE_Q5_0: return {32, 22, KIND_Q5Z, 16, PLANE_HALVES, 4, 6, PLANE_WORD, 1, 2, SC_ONE, 0, 0, -1};
    case LLM_TYPE_Q5_1: return {32, 24, KIND_Q5M, 0, PLANE_HALVES, 4, 8, PLANE_WORD, 1, 4, SC_ONE, 0, 0, 2};
    case LLM_TYPE_Q8_0: return {32, 34, KIND_Q8, 0, PLANE_STRIPES, 8, 2, PLANE_NONE, 0, 0, SC_ONE, 0, 0, -1};
    case LLM_TYPE_IQ4_NL: return {32, 18, KIND_T4, 0, PLANE_HALVES, 4, 2, PLANE_NONE, 0, 0, SC_ONE, 0, 0, -1};
    case LLM_TYPE_MXFP4: return {32, 17, KIND_T4, 0, PLANE_HALVES, 4, 1, PLANE_NONE, 0, 0, SC_E8, 0, 0, -1};
    case LLM_TYPE_Q2_K: return {256, 84, KIND_G8, 0, PLANE_STRIPES, 2, 16, PLANE_NONE, 0, 0, SC_Q2K, 0, 80, 82};
    case LLM_TYPE_Q3_K: return {256, 110, KIND_Q6, 4, PLANE_STRIPES, 2, 32, PLANE_STRIPES, 1, 0, SC_Q3K, 96, 108, -1};
    case LLM_TYPE_Q4_K: return {256, 144, KIND_Q4M, 0, PLANE_STRIPES, 4, 16, PLANE_NONE, 0, 0, SC_Q45K, 4, 0, 2};
    case LLM_TYPE_Q5_K: return {256, 176, KIND_Q5M, 0, PLANE_STRIPES, 4, 48, PLANE_STRIPES, 1, 16, SC_Q45K, 4, 0, 2};
    case LLM_TYPE_Q6_K: return {256, 210, KIND_Q6, 32, PLANE_QUARTERS, 4, 0, PLANE_STRIPES, 2, 128, SC_Q6K, 192, 208, -1};
    case LLM_TYPE_IQ4_XS: return {256, 136, KIND_T4, 0, PLANE_HALVES, 4, 8, PLANE_NONE, 0, 0, SC_XS, 2, 0, -1};
    case LLM_TYPE_Q4_ZERO: return {32, 19, KIND_Q4M, 0, PLANE_HALVES, 4, 3, PLANE_NONE, 0, 0, SC_ZERO, 2, 0, -1};
    case LLM_TYPE_G32: return {32, 40, KIND_F16, 0, PLANE_STRIPES, 8, 8, PLANE_NONE, 0, 0, SC_F32, 0, 0, 4};
    case LLM_TYPE_NVFP4_32: return {32, 20, KIND_T4X, 0, PLANE_HALVES, 4, 4, PLANE_NONE, 0, 0, SC_F16X2, 0, 0, -1};
    case LLM_TYPE_NF4: return {32, 20, KIND_T4, 0, PLANE_HALVES, 4, 4, PLANE_NONE, 0, 0, SC_127, 0, 0, -1};
    case LLM_TYPE_FP4: return {32, 20, KIND_T4, 0, PLANE_HALVES, 4, 4, PLANE_NONE, 0, 0, SC_127, 0, 0, -1};
    case LLM_TYPE_GRID1:
    case LLM_TYPE_GRID2:
    case LLM_TYPE_GRID3:
    case LLM_TYPE_GRID3S: return {256, 146, KIND_T4, 0, PLANE_HALVES, 4, 18, PLANE_NONE, 0, 0, SC_EIGHTHS, 2, 0, -1};
    case LLM_TYPE_GRID1X:
    case LLM_TYPE_GRID2X: return {256, 146, KIND_T4X, 0, PLANE_HALVES, 4, 18, PLANE_NONE, 0, 0, SC_EIGHTHS, 2, 0, -1};
    case LLM_TYPE_TERNARY: return {256, 146, KIND_Q4Z, 1, PLANE_HALVES, 4, 18, PLANE_NONE, 0, 0, SC_Q6K, 2, 0, -1};
    case LLM_TYPE_F8_32: return {32, 36, KIND_F16, 0, PLANE_STRIPES, 8, 4, PLANE_NONE, 0, 0, SC_F32, 0, 0, -1};
    case LLM_TYPE_F8_128: return {128, 132, KIND_F16}; /* see raw_value */
    default: return {0, 0, 0};
    }
}

/* 32 columns: value i = d[i / 16] * (u[i] - zero) + m[i / 16], or d * table[u]. Twin: llm__sub. */
typedef struct raw_sub {
    uint8_t u[32];
    float d[2], m[2];
} raw_sub;

/* The bits of column i of sub j that a plane at p has. Twin: llm__plane_get. */
static __device__ uint32_t plane_bits(int order, int bits, const uint8_t *p, int j, int i) {
    const int per = bits ? 8 / bits : 1;
    const uint32_t mask = (1u << bits) - 1;
    if (order == PLANE_STRIPES) return p[j / per * 32 + i] >> (j % per * bits) & mask;
    if (order == PLANE_QUARTERS) return p[j / 4 * 64 + j % 2 * 32 + i] >> (j % 4 / 2 * 4) & mask;
    if (order == PLANE_HALVES) return p[16 * j + i % 16] >> (4 * (i / 16)) & mask;
    return order == PLANE_WORD ? p[i / 8] >> (i % 8) & 1 : 0;
}

static __device__ float raw_half(const uint8_t *p) { return half_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* The small scale and minimum of group i (16 columns) of sub j. Twin: llm__sub_scales. */
static __device__ void small_scales(int packing, const uint8_t *p, int j, int i, float *scale, float *minimum) {
    int k = 2 * j + i;
    *scale = *minimum = 1;
    switch (packing) {
    case SC_Q2K: *scale = (float)(p[k] & 15), *minimum = (float)(p[k] >> 4); return;
    case SC_Q3K: *scale = (float)(((k < 8 ? p[k] & 15 : p[k - 8] >> 4) | (p[8 + k % 4] >> (k / 4 * 2) & 3) << 4) - 32); return;
    case SC_Q45K:
        *scale = (float)(j < 4 ? p[j] & 63 : (p[j + 4] & 15) | p[j - 4] >> 6 << 4);
        *minimum = (float)(j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4);
        return;
    case SC_Q6K: *scale = (float)(int8_t)p[k]; return;
    case SC_EIGHTHS: *scale = (float)(int8_t)p[k] / 8; return;
    case SC_XS: *scale = (float)(((p[2 + j / 2] >> (j % 2 * 4) & 15) | ((p[0] | p[1] << 8) >> (2 * j) & 3) << 4) - 32); return;
    default: return;
    }
}

/* Sub number `sub` of a stored row of a quantised type. Twin: llm__sub_read. */
static __device__ void raw_sub_get(const format &f, const uint8_t *row, int64_t sub, raw_sub *o) {
    const uint8_t *p = row + sub / (f.block / 32) * f.bytes;
    int j = (int)(sub % (f.block / 32));
    float m = f.m_at < 0 ? 0 : raw_half(p + f.m_at), d;
    if (f.scales == SC_F32 || f.scales == SC_127) {
        memcpy(&d, p + f.d_at, 4);
        if (f.m_at >= 0) memcpy(&m, p + f.m_at, 4);
        if (f.scales == SC_127) d *= 1.0f / 127; /* the table's largest, which stands for 1 */
    } else if (f.scales != SC_E8) d = raw_half(p + f.d_at);
    else d = p[0] < 2 ? bits_to_f32(0x00200000u << p[0]) : bits_to_f32((uint32_t)(p[0] - 1) << 23);
    if (f.block == 256) m = -m; /* super-blocks store what is to be subtracted */
    if (f.scales == SC_ZERO) m = -d * (float)p[f.scales_at];
    for (int i = 0; i < 32; i++)
        o->u[i] =
            (uint8_t)(plane_bits(f.order, f.bits, p + f.at, j, i) | plane_bits(f.high_order, f.high_bits, p + f.high_at, j, i) << f.bits);
    for (int i = 0; i < 2; i++) {
        float scale, minimum;
        small_scales(f.scales, p + f.scales_at, j, i, &scale, &minimum);
        o->d[i] = f.scales == SC_F16X2 ? raw_half(p + 2 * i) : d * scale;
        o->m[i] = m * minimum;
    }
}

DEVICE float table_value(const uint64_t *table, uint32_t u) { return (float)(int8_t)(table[u >> 3] >> (8 * (u & 7))); }

/* What a code stands for in units of its scale; of types whose tables are rounded for kernels exactly. Twin: llm__type_values. */
static __device__ float code_value(int type, const uint64_t *table, uint32_t u) {
    /* clang-format off */
    const float nf4[16] = {-1, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
                           -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0,
                           0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
                           0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1};
    /* clang-format on */
    const float fp4[8] = {0, 0.005208333334f, 0.66666667f, 1, 0.33333333f, 0.5f, 0.16666667f, 0.25f};
    if (type == LLM_TYPE_NF4) return 127 * nf4[u];
    if (type == LLM_TYPE_FP4) return u & 8 ? -127 * fp4[u & 7] : 127 * fp4[u];
    return table_value(table, u);
}

/* Twin: llm__element. Stored floats may be anywhere: read byte by byte. */
static __device__ float raw_element(int type, const uint8_t *p) {
    uint32_t u = (uint32_t)p[0];
    double wide = 0;
    if (type == LLM_TYPE_I8) return (float)(int8_t)u;
    if (type == LLM_TYPE_F8_E4M3) return e4m3_to_f32(u);
    if (type == LLM_TYPE_F8_E5M2) return half_to_f32((uint16_t)(u << 8));
    u |= (uint32_t)p[1] << 8;
    if (type == LLM_TYPE_F16) return half_to_f32((uint16_t)u);
    if (type == LLM_TYPE_BF16) return bf16_to_f32(u);
    if (type == LLM_TYPE_F64) return memcpy(&wide, p, 8), (float)wide;
    return bits_to_f32(u | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

/* Twin: llm__random_weight and llm__hash of (row, col). */
static __device__ float random_weight(uint64_t seed, int64_t row, int64_t col) {
    const uint64_t k = 0xD6E8FEB86659FD93u;
    uint64_t h = seed ^ (16 * 0x9E3779B97F4A7C15u);
    const uint64_t words[3] = {(uint64_t)row, (uint64_t)col, 0};
    for (int i = 0; i < 3; i++) {
        h = (h ^ words[i]) * k;
        h ^= h >> 32;
    }
    h *= k;
    h ^= h >> 29;
    return (float)((double)(h >> 40) / 16777216 * 0.04 - 0.02);
}

/* What kernel_pack reads: rows of one segment in device memory, as the file has them. Only the wanted columns were copied, widened to whole
 * blocks; `skip` of them come before the first that is meant. */
typedef struct raw_rows {
    const uint8_t *data;
    int type, transposed;
    int64_t pitch;    /* bytes between stored rows */
    int64_t skip;     /* columns before the first wanted one in a staged row */
    int64_t step;     /* transposed: columns between rows of the weight */
    int64_t row, col; /* random: stored row and column of the first value */
    uint64_t seed;
    uint64_t table[2];
} raw_rows;

/* Value (r, c) of the staged rows: any type, any cut, transposed or not. Slow, but loading waits for the file. Q8_0's bytes are signed, all
 * other types' values are not. */
static __device__ float raw_value(const raw_rows &s, const format &f, int64_t r, int64_t c) {
    if (s.type >= LLM_TYPE_RANDOM) return random_weight(s.seed, s.row + r * s.step, s.col + c);
    int64_t at = s.transposed ? s.skip + r * s.step : s.skip + c;
    const uint8_t *row = s.data + (s.transposed ? c : r) * s.pitch;
    if (f.block == 1) return raw_element(s.type, row + at * f.bytes);
    if (s.type == LLM_TYPE_F8_128) {
        float d;
        memcpy(&d, row + at / 128 * 132, 4);
        return d * e4m3_to_f32(row[at / 128 * 132 + 4 + at % 128]);
    }
    raw_sub b;
    raw_sub_get(f, row, at / 32, &b);
    int i = (int)(at % 32);
    if (s.type == LLM_TYPE_F8_32) return b.d[0] * e4m3_to_f32(b.u[i]);
    if (kind_table(f.kind)) return b.d[i / 16] * code_value(s.type, s.table, b.u[i]);
    int u = f.kind == KIND_Q8 || s.type == LLM_TYPE_G32 ? (int8_t)b.u[i] : b.u[i] - f.zero;
    return b.d[i / 16] * (float)u + b.m[i / 16];
}

#define RANDOM_STEP (0.02f / 7) /* of random weights that are kept as Q4_0 */

static __device__ void store_half(uint8_t *p, float v) { *(uint16_t *)p = f32_to_half(v); }

/* Writes 32 quantised columns as sub `sub` of a row. */
static __device__ void store_sub(const part &w, int64_t row, int sub, const raw_sub &b) {
    const int k = w.kind, g = (int)row & 7, r = (int)row >> 3 & 1, s = sub & 1, one = kind_high_bytes(k) == 4;
    uint8_t *to = brick_at(w, brick_bytes(k), row, sub / BRICK_SUBS),
            *d = to + brick_scales(k) + ((s * 8 + g) * 2 + r) * kind_scale_bytes(k);
    for (int t = 0; t < 4; t++)
        for (int e = 0; e < 2; e++) {
            uint8_t *q = to + 16 * (4 * g + t), *high = to + brick_high(k) + (one ? 4 : 8) * (4 * g + t) + (one ? 0 : 4 * s) + r + 2 * e;
            uint32_t bits = 0;
            for (int h = 0; h < 2; h++) {
                const uint32_t u0 = b.u[16 * h + 4 * t + e], u1 = b.u[16 * h + 4 * t + 2 + e];
                if (kind_nibbles(k)) q[4 * (2 * s + h) + r + 2 * e] = (uint8_t)((u0 & 15) | u1 << 4);
                else q[512 * s + 4 * (2 * h + r) + e] = (uint8_t)u0, q[512 * s + 4 * (2 * h + r) + 2 + e] = (uint8_t)u1;
                bits |= one ? (u0 >> 4 | u1 >> 4 << 1) << (2 * h) : (u0 >> 4 | u1 >> 4 << 2) << (4 * h);
            }
            if (kind_high_bytes(k) == 8) *high = (uint8_t)bits;
            else if (one) *high = (uint8_t)(s ? (*high & 15) | bits << 4 : bits);
        }
    if (k == KIND_T4) memcpy(d, &b.d[0], 4);
    else store_half(d, b.d[0]);
    if (k == KIND_Q4M || k == KIND_Q5M) store_half(d + 2, b.m[0]);
    if (kind_pair(k)) store_half(d + 2, b.d[1]);
    for (int h = 0; h < 2 && k == KIND_G8; h++) store_half(d + 4 * h, b.d[h]), store_half(d + 4 * h + 2, b.m[h]);
}

/* The same of 32 values of a type that has no blocks: int8, and random ones within +-0.02. */
static __device__ void store_values(const part &w, int64_t row, int sub, const float *v) {
    raw_sub b = {};
    b.d[0] = w.kind == KIND_Q8 ? 1 : RANDOM_STEP;
    for (int c = 0; c < 32; c++)
        b.u[c] = w.kind == KIND_Q8 ? (uint8_t)(int8_t)v[c] : (uint8_t)fminf(15, fmaxf(0, v[c] / RANDOM_STEP + 8.5f));
    store_sub(w, row, sub, b);
}

/* A value of what lies row by row. */
static __device__ void store_float(const part &w, int64_t at, float v) {
    if (w.kind == KIND_F32) ((float *)w.q)[at] = v;
    else if (w.kind == KIND_F16) ((uint16_t *)w.q)[at] = f32_to_half(v);
    else if (w.kind == KIND_BF16) ((uint16_t *)w.q)[at] = (uint16_t)f32_to_bf16(v);
    else w.q[at] = (uint8_t)f32_narrow(v, 4, 3, 0x7e, 0x7f);
}

/* Where row `row` of a weight stands when it is packed: gate and up rows of the same output side by side. */
static __host__ __device__ __forceinline__ int64_t packed_row(int64_t row, int64_t per_group, int gate_up) {
    if (!gate_up) return row;
    int64_t g = row / per_group, i = row % per_group, half = per_group / 2;
    return g * per_group + (i < half ? 2 * i : 2 * (i - half) + 1);
}

/* Computes: rows (n_rows, subs) of a part from rows as the file has them. `keep`: the file's blocks become subs with their bits, as whole
 * blocks of a kind that has them; else each value is read and rounded to the part's float. Grid: one thread two subs, which share a brick.
 * Twin: llm__weight_pack. */
static __global__ void __launch_bounds__(128)
    kernel_pack(part w, raw_rows s, int64_t first, int64_t n_rows, int64_t cols, int64_t per_group, int gate_up, int keep) {
    grid_wait();
    const int each = brick_count(w.subs);
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, r = i / each;
    if (r >= n_rows) return;
    const format f = format_of(s.type);
    int64_t row = packed_row(first + r, per_group, gate_up);
    row = row / per_group * w.apart + row % per_group - w.row;
    for (int sub = (int)(i % each) * BRICK_SUBS, end = sub + BRICK_SUBS; sub < end; sub++) {
        raw_sub b = {};
        float v[32];
        if (keep) { /* whole quantised blocks keep their bits */
            if (sub < w.subs) {
                raw_sub_get(f, s.data + r * s.pitch, s.skip / 32 + sub, &b);
                for (int c = 0; c < 32 && !kind_signed(w.kind); c++) b.u[c] = (uint8_t)(b.u[c] + kind_zero(w.kind) - f.zero);
            }
            store_sub(w, row, sub, b);
            continue;
        }
        if (sub >= w.subs && !kind_bricks(w.kind)) break;
        for (int c = 0; c < 32; c++) v[c] = sub < w.subs && 32 * (int64_t)sub + c < cols ? raw_value(s, f, r, 32 * (int64_t)sub + c) : 0;
        if (kind_bricks(w.kind)) store_values(w, row, sub, v);
        else
            for (int c = 0; c < 32; c++) store_float(w, (row * w.subs + sub) * 32 + c, v[c]);
    }
}

/* Computes: to (rows, cols) of plain f32, for vectors, kv_b and adapters' matrices: value * scale + add, where a row may have a scale of
 * its own. Grid: one thread a value. Twin: llm__weight_pack, of a plain weight. */
static __global__ void __launch_bounds__(128, 4)
    kernel_plain(float *to, raw_rows s, int64_t first, int64_t n_rows, int64_t cols, float scale, const float *row_scale, float add) {
    grid_wait();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_rows * cols) return;
    float by = row_scale ? row_scale[first + i / cols] : scale;
    to[first * cols + i] = raw_value(s, format_of(s.type), i / cols, i % cols) * by + add;
}

/* ============================================================================
 * >>weights   From segments of the mapped file to packed parts.
 * ============================================================================
 * A weight is loaded when it is described: chunks of its rows are copied from the file into pinned memory (two buffers in turn), from there
 * to the device as they are, and packed by a kernel. A rank touches only the bytes of its own rows and columns.
 *
 *     file (mapped)  --memcpy-->  stage[0]  --DMA-->  stage_device[0]  --kernel_pack-->  parts
 *                                 stage[1]            stage_device[1]
 *
 * What a load of 16 GB costs: the link of a GPU takes 25 to 50 GB/s, and one core copies out of the page cache at 3 to 8, as it meets a
 * page for the first time every 4 KiB. So up to eight threads share a chunk's rows (copy_shared), and chunks are 32 MiB on a real device,
 * that starting threads does not count; packing is a kernel's matter of microseconds, and runs behind the next chunk's copy.
 *
 * Two of each: while the device packs one chunk the host fills the other. An event behind each kernel says when its pair is free again, so
 * the host waits for the device only when it is two chunks ahead.
 *
 * Twins of the seam: one stored matrix may come as two weights (an output layer tied to the embedding); the second shares the first one's
 * parts. Fused matrices are several segments: neighbours of one kind become one part, that is one launch; q in Q4_K with v in Q6_K two. */

struct llm_weight {
    llm_role role;
    int64_t rows, cols;
    int32_t n_groups, gate_up, n_parts, subs;
    part *parts;      /* in order of packed rows */
    float *row_scale; /* (rows), in packed order; NULL: all 1 */
    float *f32;       /* VECTOR, MLA_UP */
    int rank;
    const void *source; /* of a weight with one segment: to find one that is loaded already */
    llm_segment segment;
};

/* A plain weight's values; NULL: there is none. */
static const float *f32_of(const llm_weight *w) { return w ? w->f32 : NULL; }

/* Twin: llm__kind_table, whose NF4 and FP4 have fewer bits. */
static const int8_t *type_values(int type) {
    static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    static const int8_t nf4[16] = {-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127};
    static const int8_t fp4[16] = {0, 1, 85, 127, 42, 64, 21, 32, 0, -1, -85, -127, -42, -64, -21, -32};
    static const int8_t grid1[16] = {1, 7, 9, 0, -1, -7, -9, 0}, grid2[16] = {8, 25, 43, 0, -8, -25, -43, 0};
    static const int8_t grid3[16] = {8, 24, 40, 56, 72, 88, 104, 124, -8, -24, -40, -56, -72, -88, -104, -124};
    static const int8_t grid3s[16] = {8, 24, 40, 56, 72, 88, 104, 120, -8, -24, -40, -56, -72, -88, -104, -120};
    switch (type) {
    case LLM_TYPE_IQ4_NL:
    case LLM_TYPE_IQ4_XS: return iq4;
    case LLM_TYPE_MXFP4:
    case LLM_TYPE_NVFP4_32: return e2m1;
    case LLM_TYPE_NF4: return nf4;
    case LLM_TYPE_GRID1:
    case LLM_TYPE_GRID1X: return grid1;
    case LLM_TYPE_GRID2:
    case LLM_TYPE_GRID2X: return grid2;
    case LLM_TYPE_GRID3: return grid3;
    case LLM_TYPE_GRID3S: return grid3s;
    default: return fp4;
    }
}

static void type_table(int type, uint64_t *table) { memcpy(table, type_values(type), 16); }
static bool same_table(int a, int b) { return type_values(a) == type_values(b); }

/* As what a segment is computed with: blocks stay blocks where no cut goes through one; the rest become the float that holds them, or what
 * dtype asks for. Twin: llm__segment_kind. */
static int segment_kind(const llm_segment *s, llm_compute compute) {
    format f = format_of(s->type);
    if (compute == LLM_COMPUTE_F32) return KIND_F32;
    if (f.block > 1) return !s->transposed && s->col % 32 == 0 && s->n_cols % 32 == 0 ? f.kind : KIND_F16;
    if (s->type == LLM_TYPE_F32 && s->read && compute == LLM_COMPUTE_AUTO) return KIND_F16; /* made of codes with f16 scales */
    if (s->type == LLM_TYPE_F32 && compute != LLM_COMPUTE_AUTO) return compute == LLM_COMPUTE_BF16 ? KIND_BF16 : KIND_F16;
    return f.kind;
}

/* The kind of segments that must be alike: their own, or a float that holds both. */
static int common_kind(int a, int b) {
    return a == b ? a : a == KIND_F32 || b == KIND_F32 || (a <= KIND_BF16 && b <= KIND_BF16) ? KIND_F32 : KIND_F16;
}

/* The next pinned buffer, once what it had has been packed. */
static uint8_t *stage_next(rank *r) {
    int i = r->stage_turn ^= 1;
    for (int k = 0; k < 2 && !r->stage[k]; k++) {
        if (!rank_ok(r, cudaMallocHost((void **)&r->stage[k], (size_t)r->stage_bytes), "pinned memory")) return NULL;
        r->stage_device[k] = (uint8_t *)device_memory(r, (size_t)r->stage_bytes, "staging");
        if (!rank_ok(r, cudaEventCreateWithFlags(&r->stage_free[k], cudaEventDisableTiming), "event")) return NULL;
    }
    if (r->stage_used[i]) rank_ok(r, cudaEventSynchronize(r->stage_free[i]), "loading");
    r->stage_used[i] = 1;
    return r->failed ? NULL : r->stage[i];
}

/* Bytes of n elements, whole blocks. */
static int64_t row_bytes(const format &f, int64_t n) { return n / f.block * f.bytes; }

static constexpr int MAX_COPIERS = 8, COPY_BYTES = 1 << 18;

/* Rows that go from the mapped file to the stage, close together, or are made there; one thread's share of them. */
typedef struct copy_job {
    const llm_segment *made; /* NULL, or its rows from `row` on, `step` apart, columns [lo, hi), are made */
    int64_t row, step, lo, hi;
    uint8_t *to;
    const uint8_t *from;
    int64_t bytes, stride, n; /* of a row, between rows of the file, rows */
    pthread_t thread;
    int runs;
} copy_job;

static void *copy_rows(void *arg) {
    const copy_job *j = (const copy_job *)arg;
    if (j->made) {
        if (j->n) j->made->read(j->made->data, j->row, j->step, j->n, j->lo, j->hi - j->lo, j->to);
        return NULL;
    }
    for (int64_t i = 0; i < j->n; i++) memcpy(j->to + i * j->bytes, j->from + i * j->stride, (size_t)j->bytes);
    return NULL;
}

/* One core reads the page cache, with a fault for each page that is mapped first, several times slower than a device can take it, so
 * several share the rows of a chunk. A thread's start is nothing beside its share of a chunk. */
static void copy_shared(int n_threads, copy_job all) {
    copy_job job[MAX_COPIERS];
    for (; !all.made && all.stride == all.bytes && all.bytes % 2 == 0 && all.bytes > 4096; all.stride = all.bytes /= 2)
        all.n *= 2; /* few long rows */
    int n = min_int(min_int(n_threads, MAX_COPIERS), all.n * all.bytes / COPY_BYTES + 1);
    for (int i = 0; i < n; i++) {
        int64_t begin = all.n * i / n, end = all.n * (i + 1) / n;
        job[i] = all;
        job[i].to += begin * all.bytes;
        if (all.from) job[i].from += begin * all.stride;
        job[i].row += begin * all.step;
        job[i].n = end - begin;
        job[i].runs = i + 1 < n && !pthread_create(&job[i].thread, NULL, copy_rows, &job[i]);
        if (!job[i].runs) copy_rows(&job[i]);
    }
    for (int i = 0; i < n; i++)
        if (job[i].runs) pthread_join(job[i].thread, NULL);
}

/* Copies rows [at, at + n) of a segment to the stage, and fills in what kernels must know of them. */
static void stage_rows(rank *r, const llm_segment *s, int64_t at, int64_t n, uint8_t *to, raw_rows *raw) {
    format f = format_of(s->type);
    int64_t step = s->row_step ? s->row_step : 1, stored = row_bytes(f, s->stored_cols), first = s->row + at * step;
    const uint8_t *from = (const uint8_t *)s->data;
    size_t bytes = 0;
    memset(raw, 0, sizeof *raw);
    raw->type = s->type;
    raw->transposed = s->transposed;
    raw->step = step;
    raw->row = first;
    raw->col = s->col;
    type_table(s->type, raw->table);
    if (s->type >= LLM_TYPE_RANDOM) return;
    int64_t begin = s->transposed ? first : s->col, end = s->transposed ? first + (n - 1) * step + 1 : s->col + s->n_cols;
    int64_t lo = begin / f.block * f.block, hi = (end + f.block - 1) / f.block * f.block, count = s->transposed ? s->n_cols : n;
    raw->pitch = row_bytes(f, hi - lo);
    raw->skip = begin - lo;
    raw->data = r->stage_device[r->stage_turn];
    const uint8_t *place = s->read ? NULL : from + (s->transposed ? s->col : first) * stored + row_bytes(f, lo);
    copy_job all = {s->read ? s : NULL, first, step, lo, hi, to, place, raw->pitch, s->transposed ? stored : step * stored, count, 0, 0};
    copy_shared(r->ctx->cfg.n_threads, all);
    bytes = (size_t)(count * raw->pitch);
    rank_ok(r, cudaMemcpyAsync(r->stage_device[r->stage_turn], to, bytes, cudaMemcpyHostToDevice, r->stream), "loading");
}

/* Rows of a segment that fit the stage at once; 0: not one. Of a transposed segment rows are columns of what is stored. */
static int64_t stage_fits(const rank *r, const llm_segment *s) {
    format f = format_of(s->type);
    int64_t step = s->row_step ? s->row_step : 1, n = s->n_rows;
    if (s->type >= LLM_TYPE_RANDOM) return n < 4096 ? n : 4096;
    if (s->transposed) n = r->stage_bytes / (s->n_cols * (f.bytes * step) + 1) * f.block - 2 * f.block;
    else n = r->stage_bytes / (row_bytes(f, s->n_cols + 2 * f.block) + 1);
    return n < 1 ? 0 : n < s->n_rows ? n : s->n_rows;
}

/* Loads one segment whose first row is row `first` of the weight, chunk by chunk. `add`: to every value (norms that are stored less one).
 */
static void load_segment(rank *r, llm_weight *w, const llm_segment *s, int64_t first, uint64_t seed, float add) {
    int64_t most = stage_fits(r, s), per = w->rows / w->n_groups;
    format f = format_of(s->type);
    if (most < 1) return rank_fail(r, LLM_ERR_LIMIT, "a row of a weight is longer than the staging memory");
    for (int64_t at = 0, n; at < s->n_rows && !r->failed; at += n) {
        raw_rows raw;
        n = s->n_rows - at < most ? s->n_rows - at : most;
        uint8_t *stage = stage_next(r);
        if (!stage) return;
        stage_rows(r, s, at, n, stage, &raw);
        raw.seed = seed;
        if (w->f32)
            launch<kernel_plain>(r, {ceil_div(n * w->cols, 128)}, 128, 0, w->f32, raw, first + at, n, w->cols,
                                 s->scale != 0 ? s->scale : 1.0f, (const float *)w->row_scale, add);
        for (int i = 0; i < w->n_parts && !w->f32; i++) {
            const part &p = w->parts[i];
            if (w->n_parts > 1 && (first + at < p.row || first + at >= p.row + p.n_rows)) continue;
            int keep = f.block > 1 && p.kind > KIND_F8 && !s->transposed;
            launch<kernel_pack>(r, {ceil_div(n * brick_count(w->subs), 128)}, 128, 0, p, raw, first + at, n, w->cols, per, w->gate_up,
                                keep);
        }
        rank_ok(r, cudaEventRecord(r->stage_free[r->stage_turn], r->stream), "loading");
    }
}

/* Device memory of a part; rows and subs that fill up bricks are there too. */
static void part_allocate(rank *r, llm_weight *w, part *p, const char *name) {
    const int64_t per = w->rows / w->n_groups;
    p->subs = w->subs;
    p->apart = w->n_groups > 1 ? align16((size_t)per) : w->rows;
    const size_t rows = align16((size_t)(w->n_groups > 1 ? p->apart * w->n_groups : p->n_rows));
    const size_t subs = (size_t)(kind_bricks(p->kind) ? brick_count(w->subs) * BRICK_SUBS : w->subs);
    const size_t behind = kind_bricks(p->kind) ? (size_t)brick_bytes(p->kind) : 0; /* kernel_linear_band copies bricks by twos */
    p->q = (uint8_t *)device_memory(r, rows * subs * (size_t)sub_bytes(p->kind) + behind, name);
}

/* Cuts a weight into parts of one kind: neighbouring segments that are alike are one part; experts, and gate and up, must all be alike. */
static void weight_parts(rank *r, llm_weight *w, const llm_weight_desc *d) {
    int whole = w->gate_up || w->n_groups > 1, all = segment_kind(&d->segments[0], r->ctx->cfg.compute);
    int64_t row = 0;
    for (int i = 1; i < d->n_segments && whole; i++) {
        all = common_kind(all, segment_kind(&d->segments[i], r->ctx->cfg.compute));
        if (kind_table(all) && !same_table(d->segments[0].type, d->segments[i].type)) all = KIND_F16;
    }
    for (int i = 0; i < d->n_segments; row += d->segments[i++].n_rows) {
        const llm_segment *s = &d->segments[i];
        int k = whole ? all : segment_kind(s, r->ctx->cfg.compute);
        part *last = w->n_parts ? &w->parts[w->n_parts - 1] : NULL;
        if (last && last->kind == k && (!kind_table(k) || same_table(s->type, d->segments[i - 1].type))) {
            last->n_rows += s->n_rows;
            continue;
        }
        part *p = &w->parts[w->n_parts++];
        memset(p, 0, sizeof *p);
        p->kind = k;
        p->row = row;
        p->n_rows = s->n_rows;
        type_table(s->type, p->table);
    }
    for (int i = 0; i < w->n_parts; i++) part_allocate(r, w, &w->parts[i], d->name);
}

/* Scales of segments and of their rows (fp8, int8), one a packed row. */
static void weight_scales(rank *r, llm_weight *w, const llm_weight_desc *d) {
    int any = 0;
    for (int i = 0; i < d->n_segments; i++) any |= (d->segments[i].scale != 0 && d->segments[i].scale != 1) || d->segments[i].scales;
    if (!any) return;
    float *host = (float *)malloc((size_t)w->rows * sizeof *host);
    w->row_scale = (float *)device_memory(r, (size_t)w->rows * sizeof *host, d->name);
    if (!host || !w->row_scale) {
        free(host);
        rank_ok(r, cudaErrorMemoryAllocation, d->name);
        return;
    }
    for (int64_t i = 0, row = 0; i < d->n_segments; i++)
        for (int64_t k = 0; k < d->segments[i].n_rows; k++, row++) {
            const llm_segment *s = &d->segments[i];
            host[packed_row(row, w->rows / w->n_groups, w->gate_up)] =
                (s->scale != 0 ? s->scale : 1) * (s->scales ? s->scales[s->row + k * (s->row_step ? s->row_step : 1)] : 1);
        }
    rank_ok(r, cudaMemcpyAsync(w->row_scale, host, (size_t)w->rows * sizeof *host, cudaMemcpyHostToDevice, r->stream), d->name);
    rank_ok(r, cudaStreamSynchronize(r->stream), d->name);
    free(host);
}

/* Twin: llm__hash of a text, for seeds of random weights. */
static uint64_t hash_text(const char *text, uint64_t seed) {
    size_t n = strlen(text);
    const uint64_t k = 0xD6E8FEB86659FD93u;
    uint64_t h = seed ^ (n * 0x9E3779B97F4A7C15u), v;
    for (; n >= 8; n -= 8, text += 8) {
        memcpy(&v, text, 8);
        h = (h ^ v) * k;
        h ^= h >> 32;
    }
    v = 0;
    memcpy(&v, text, n);
    h = (h ^ v) * k;
    h ^= h >> 32;
    h *= k;
    return h ^ (h >> 29);
}

/* Checks of a description. Twins: llm__segment_check, llm__weight_new. */
static llm_result weight_check(const llm_backend_config *cfg, const llm_weight_desc *d) {
    int64_t rows = 0, groups = d->role == LLM_ROLE_EXPERTS || d->role == LLM_ROLE_EXPERTS_GATE_UP ? d->n_experts : 1;
    int gate_up = d->role == LLM_ROLE_GATE_UP || d->role == LLM_ROLE_EXPERTS_GATE_UP;
    if (d->n_segments < 1 || d->rows < 1 || d->cols < 1 || d->rows > INT32_MAX || d->cols > 1 << 24 ||
        d->rows > UINT32_MAX / (d->cols / 32 + 1) || groups < 1 || d->rows % groups || (gate_up && d->rows / groups % 2))
        return fail_with(cfg, LLM_ERR_ARG, "%s: a weight of %lld x %lld values in %lld parts is not possible", d->name, (long long)d->rows,
                         (long long)d->cols, (long long)groups);
    for (int i = 0; i < d->n_segments; i++) {
        const llm_segment *s = &d->segments[i];
        format f = format_of(s->type);
        if (!f.block) return fail_with(cfg, LLM_ERR_UNSUPPORTED, "%s: type %d cannot be computed with", d->name, s->type);
        int64_t step = s->row_step ? s->row_step : 1, line = s->transposed ? s->row + (s->n_rows - 1) * step + 1 : s->col + s->n_cols;
        if (s->n_rows <= 0 || s->n_cols != d->cols || s->row < 0 || s->col < 0 || line > s->stored_cols || s->stored_cols % f.block)
            return fail_with(cfg, LLM_ERR_ARG, "%s: a segment of %lld x %lld values does not fit its weight of %lld columns", d->name,
                             (long long)s->n_rows, (long long)s->n_cols, (long long)d->cols);
        rows += s->n_rows;
    }
    if (rows == d->rows) return LLM_OK;
    return fail_with(cfg, LLM_ERR_ARG, "%s: segments of %lld rows in all, %lld expected", d->name, (long long)rows, (long long)d->rows);
}

/* The weight of the same stored matrix that this rank has already: an output layer tied to the embedding. */
static const llm_weight *weight_twin(const llm_backend_ctx *ctx, int index, const llm_weight_desc *d) {
    for (int i = 0; i < ctx->n_weights && d->n_segments == 1 && (d->role == LLM_ROLE_HEAD || d->role == LLM_ROLE_EMBED); i++) {
        const llm_weight *w = ctx->all_weights[i];
        if (w->rank == index && w->source && w->source == d->segments[0].data && !memcmp(&w->segment, &d->segments[0], sizeof w->segment))
            return w;
    }
    return NULL;
}

/* A zeroed object of the context's list `all`. */
template <class T> static T *list_new(T ***all, int *n, int *cap) {
    if (*n == *cap) {
        int more = *cap ? 2 * *cap : 256;
        T **grown = (T **)realloc(*all, (size_t)more * sizeof **all);
        if (!grown) return NULL;
        *all = grown;
        *cap = more;
    }
    T *t = (T *)calloc(1, sizeof *t);
    if (t) (*all)[(*n)++] = t;
    return t;
}

/* CUDA calls of this thread mean this rank's device from here on. */
static void select_device(rank *r) { rank_ok(r, cudaSetDevice(r->device), "device"); }

/* Takes memory for a weight and loads it before it returns; the file may be unmapped after weights_done. Twin: llm__cpu_weight. */
static llm_result cuda_weight(llm_backend_ctx *ctx, int index, const llm_weight_desc *d, llm_weight **out) {
    *out = NULL;
    if (index < 0 || index >= ctx->n_ranks) return fail_with(&ctx->cfg, LLM_ERR_ARG, "%s: rank %d of %d", d->name, index, ctx->n_ranks);
    llm_result result = weight_check(&ctx->cfg, d);
    if (result) return result;
    const llm_weight *twin = weight_twin(ctx, index, d);
    llm_weight *w = list_new(&ctx->all_weights, &ctx->n_weights, &ctx->weight_cap);
    if (!w) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    rank *r = &ctx->ranks[index];
    select_device(r);
    w->role = d->role;
    w->rank = index;
    w->rows = d->rows;
    w->cols = d->cols;
    w->subs = ceil_div(d->cols, 32);
    w->n_groups = d->role == LLM_ROLE_EXPERTS || d->role == LLM_ROLE_EXPERTS_GATE_UP ? d->n_experts : 1;
    w->gate_up = d->role == LLM_ROLE_GATE_UP || d->role == LLM_ROLE_EXPERTS_GATE_UP;
    w->parts = (part *)calloc((size_t)d->n_segments, sizeof *w->parts);
    if (!w->parts) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    if (d->role == LLM_ROLE_HEAD && d->rows > r->vocab) r->vocab = d->rows;
    if (d->n_segments == 1) {
        w->source = d->segments[0].data;
        w->segment = d->segments[0];
    }
    *out = w;
    if (twin) { /* share its memory */
        memcpy(w->parts, twin->parts, (size_t)twin->n_parts * sizeof *w->parts);
        w->n_parts = twin->n_parts;
        w->row_scale = twin->row_scale;
        return LLM_OK;
    }
    if (d->role == LLM_ROLE_VECTOR || d->role == LLM_ROLE_MLA_UP)
        w->f32 = (float *)device_memory(r, (size_t)(d->rows * d->cols) * sizeof(float), d->name);
    else weight_parts(r, w, d);
    weight_scales(r, w, d);
    uint64_t seed = hash_text(d->name, 1);
    for (int64_t i = 0, row = 0; i < d->n_segments && !r->failed; row += d->segments[i++].n_rows)
        load_segment(r, w, &d->segments[i], row, seed + (uint64_t)i, d->role == LLM_ROLE_VECTOR ? d->add : 0);
    return rank_result(r);
}

/* ============================================================================
 * >>linear   Products of weights and activations.
 * ============================================================================
 * Kernels over one description. Few rows go over tensor cores (kernel_linear_rows): weights are what takes time there, each is read once,
 * as it lies, on its way through shared memory into the registers of the lane that multiplies it. Of one row weights of 16 bits need no
 * tensor cores (kernel_linear_few): f32 is fast enough, and rounds nothing. With more rows packed weights become halves on their way
 * (kernel_linear_band). Many rows go to cuBLASLt: floats as they are, packed weights widened first. What must be f32 goes through
 * kernel_linear_f32. All end in finish_pair, which has two neighbouring outputs of one row: so gate and up rows, which are packed side by
 * side, meet in one thread.
 *
 *     rows                       kernel                weights are read       limited by
 *     1 of floats, f32 to 8      kernel_linear_few     once for 1, or 4       memory: bytes of W over bandwidth
 *     1 to 8 of the others       kernel_linear_rows    once for 1, or 8       memory, and what unpacking packed weights takes
 *     9 ... of packed ones       kernel_linear_band    once for 16, 32, 64    memory to 32 rows, then the L2 cache and arithmetic
 *     9 ..., of packed ones 193  cuBLASLt              its own tiles          arithmetic; where the library is not there: as above
 *     17 ... of an expert        kernel_linear_mma     once for 64, or 128    arithmetic, and the L2 cache
 *     9 ..., f32                 kernel_linear_f32     once for 64            arithmetic, without tensor cores
 *
 * e4m3 weights have a way of their own from 9 rows on, where tensor cores multiply them as they are (native_f8). Then activations must be
 * e4m3 too: each row is divided by its largest value over 448, rounded to three bits of fraction, and what comes out is multiplied again.
 * Rounding errors of a row are independent, so a sum of n products loses about 2 % / sqrt(n) of what its terms add up to in size; that is
 * how fp8 models are meant to run, and what vLLM does. Few rows keep 22 bits of activations: there weights are what takes time.
 *
 *     x row      0.5 -3.0 1.0    largest 3.0, scale 3 / 448    e4m3: 72 (of 74.7) -448 144 (of 149.3)
 *
 * Of few rows a product also takes the norm before it: rows are staged times the norm's weights, their squares are summed on the way, and
 * the sums are divided by the root in the end; so x is read once. And what only adds to x adds to it at once.
 *
 * What an epilogue does, in order: sum * row_scale + bias + plus (of adapters), activation, * scale, soft cap, then = or +=. So no
 * operation between two products goes through memory by itself but norms.
 *
 * Batch invariance. kernel_linear_rows adds up columns in one order whatever the number of rows, so with batch_invariant every product goes
 * through it and a row's result depends on the row alone.
 *
 * Experts are the same with rows in groups: `begin` cuts the rows (slots) by expert, and a block finds out which group its tile is of. */

/* One launch: a part of a weight, whole rows of it, times rows of x. Passed by value, so a captured graph keeps its own copy; what differs
 * from step to step is behind n_rows, begin and row_of. Twins: llm__input, llm__finish. */
typedef struct linear_args {
    part w; /* this launch's rows */
    int32_t cols, subs, per_group, gate_up;
    const float *row_scale, *bias;
    const float *plus; /* (rows, rows of W) of adapters; NULL: none */
    int64_t plus_stride;
    const float *x;
    int64_t x_stride;
    float *out;
    int64_t out_stride;
    const int32_t *n_rows; /* on the device; the grid may be larger */
    const int32_t *begin;  /* (n_groups + 1) NULL: one group */
    const int32_t *row_of; /* the row of x of each row here; NULL: the same */
    int32_t n_groups, act, add;
    float scale, limit, softcap;
    int32_t rms; /* x is normed by its root mean square first, times norm; of few rows only */
    const float *norm;
    float eps;
    narrow_form out_form; /* rows of out are written so, by kernel_finish alone */
} linear_args;

typedef struct tile {
    int row, n, group; /* rows [row, row + n); n 0: nothing to do */
} tile;

/* What v of the lanes below adds up to, and this one's. */
template <class T> DEVICE T warp_scan(T v) {
    const int lane = threadIdx.x & 31;
    for (int o = 1; o < 32; o *= 2) {
        const T below = __shfl_up_sync(~0u, v, o);
        v += lane >= o ? below : 0;
    }
    return v;
}

/* Tile `i` of `size` rows. With groups (experts) tiles are counted through all groups, and none has rows of two: a lane counts those of its
 * share of the groups, whose ends are loaded all at once, and the share that has the tile is walked. Whole warps. */
static __device__ tile tile_at(const linear_args &a, int i, int size) {
    tile t = {i * size, *a.n_rows - i * size, 0};
    if (a.begin) {
        const int each = (a.n_groups + 31) / 32, mine = ((int)threadIdx.x & 31) * each;
        int tiles = 0;
#pragma unroll 4
        for (int j = 0; j < each; j++) {
            int g = min(mine + j, a.n_groups), end = min(g + 1, a.n_groups);
            tiles += (a.begin[end] - a.begin[g] + size - 1) / size;
        }
        int sum = warp_scan(tiles);
        const unsigned behind = __ballot_sync(~0u, i < sum);
        const int lane = behind ? __ffs((int)behind) - 1 : 31;
        i -= __shfl_sync(~0u, sum - tiles, lane);
        t.n = 0;
        for (int g = lane * each; behind && g < a.n_groups; g++) {
            int from = a.begin[g], rows = a.begin[g + 1] - from;
            tiles = (rows + size - 1) / size;
            if (i < tiles) {
                t.row = from + i * size;
                t.n = rows - i * size;
                t.group = g;
                break;
            }
            i -= tiles;
        }
    }
    t.n = t.n < 0 ? 0 : t.n < size ? t.n : size;
    return t;
}

DEVICE float sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* act(g) * u; u is 1 where there is no gate. Twin: llm__act16. */
static __device__ float activate(int act, float limit, float g, float u, int gated) {
    switch (act) {
    case LLM_ACT_SILU: return g * sigmoid(g) * u;
    case LLM_ACT_GELU: return g * (0.5f * (1 + erff(g * 0.70710678f))) * u;
    case LLM_ACT_GELU_TANH: return g * sigmoid(1.59576912f * (g + 0.044715f * g * g * g)) * u;
    case LLM_ACT_QUICK_GELU: return g * sigmoid(1.702f * g) * u;
    case LLM_ACT_RELU: return (g > 0 ? g : 0) * u;
    case LLM_ACT_RELU2: return (g > 0 ? g * g : 0) * u;
    case LLM_ACT_SWIGLU_OAI:
        g = g < limit ? g : limit;
        u = gated ? (u < -limit ? -limit : u > limit ? limit : u) + 1 : 1;
        return g * sigmoid(1.702f * g) * u;
    default: return g * u;
    }
}

/* The end of one output: scale, soft cap; store or add. */
DEVICE float finish_value(const linear_args &a, float v) {
    v *= a.scale;
    return a.softcap > 0 ? a.softcap * tanhf(v / a.softcap) : v;
}
DEVICE void finish_one(const linear_args &a, int row, int64_t col, float v) {
    float *to = a.out + row * a.out_stride + col;
    v = finish_value(a, v);
    *to = a.add ? *to + v : v;
}

/* Rows of the part in one group, and which row of the part in memory row p of it is. */
static __host__ __device__ __forceinline__ int group_rows(const linear_args &a) { return a.n_groups == 1 ? (int)a.w.n_rows : a.per_group; }
DEVICE int64_t group_row(const linear_args &a, const tile &t, int p) { return t.group * a.w.apart + p; }

/* Sums v of rows p and p + 1 of the group (p even; the second may not be there) become outputs, from column *col on; returns how many. Of
 * gate and up they are the two halves of one, whose biases and adapters lie where the file has them: gates first, then ups. Twin:
 * llm__body_finish. */
DEVICE int finish_sums(const linear_args &a, const tile &t, int row, int p, float *v, int64_t *col) {
    int64_t base = (int64_t)t.group * a.per_group, first = a.w.row + p, half = 1;
    const int two = p + 1 < group_rows(a);
    if (a.row_scale) {
        v[0] *= a.row_scale[base + first];
        if (two) v[1] *= a.row_scale[base + first + 1];
    }
    if (a.gate_up) first /= 2, half = a.per_group / 2;
    if (a.bias) {
        v[0] += a.bias[base + first];
        if (two) v[1] += a.bias[base + first + half];
    }
    if (a.plus) {
        v[0] += a.plus[row * a.plus_stride + first];
        if (two) v[1] += a.plus[row * a.plus_stride + first + half];
    }
    *col = first;
    v[0] = activate(a.act, a.limit, v[0], a.gate_up ? v[1] : 1, a.gate_up);
    if (a.gate_up || !two) return 1;
    v[1] = activate(a.act, a.limit, v[1], 1, 0);
    return 2;
}
static __device__ void finish_pair(const linear_args &a, const tile &t, int row, int p, float v0, float v1) {
    float v[2] = {v0, v1};
    int64_t col;
    const int n = finish_sums(a, t, row, p, v, &col);
    finish_one(a, row, col, v[0]);
    if (n == 2) finish_one(a, row, col + 1, v[1]);
}

/* Four activations from column c on, zeros outside. `whole`: rows start on 16 bytes. */
DEVICE float4 load_x4(const linear_args &a, const float *x, int c, int whole) {
    if (whole && c + 4 <= a.cols) return *(const float4 *)(x + c);
    return make_float4(c < a.cols ? x[c] : 0, c + 1 < a.cols ? x[c + 1] : 0, c + 2 < a.cols ? x[c + 2] : 0, c + 3 < a.cols ? x[c + 3] : 0);
}
DEVICE int x_whole(const linear_args &a) { return (((size_t)a.x | (size_t)a.x_stride * 4) & 15) == 0; }

/* The row of x that row `row` of a tile is, which must be there. */
DEVICE const float *x_row(const linear_args &a, const tile &t, int row) {
    return a.x + (int64_t)(a.row_of ? a.row_of[t.row + row] : t.row + row) * a.x_stride;
}

/* Vectors of 16 bytes that a lane of kernel_linear_few has of 1,024 columns; of 16 bits the second four columns of a vector stand FEW_HALF
 * vectors behind the first four in shared memory, so that neighbouring lanes meet no bank twice. */
static constexpr int FEW_HALF = 132;
template <int K> static constexpr __device__ int few_vectors(void) { return kind_bytes(K) / 16; }
template <int K> DEVICE float few_product(const uint4 &w, const float4 *x, int at) {
    const float4 y = x[at];
    if constexpr (K == KIND_F32) return bits_to_f32(w.x) * y.x + bits_to_f32(w.y) * y.y + bits_to_f32(w.z) * y.z + bits_to_f32(w.w) * y.w;
    else {
        const float4 z = x[FEW_HALF + at];
        const uint32_t u[4] = {w.x, w.y, w.z, w.w};
        float v[8];
        UNROLL(i, 4) {
            v[2 * i] = K == KIND_F16 ? half_to_f32((uint16_t)u[i]) : bits_to_f32(u[i] << 16);
            v[2 * i + 1] = K == KIND_F16 ? half_to_f32((uint16_t)(u[i] >> 16)) : bits_to_f32(u[i] & 0xffff0000u);
        }
        return v[0] * y.x + v[1] * y.y + v[2] * y.z + v[3] * y.w + (v[4] * z.x + v[5] * z.y + v[6] * z.z + v[7] * z.w);
    }
}

/* Blocks of kernel_linear_few that a multiprocessor has registers for, without one that spills. */
static constexpr int few_blocks(int kind, int rows) { return rows == 1 && kind != KIND_F32 ? 3 : 2; }

/* Computes: out (n, p) = finish(x (n, cols) W^T), n <= R rows a tile, of weights of 32 and 16 bits. Grid: (rows of W / 16, tiles), 8 warps:
 * a warp has two rows of W, a lane every 32nd vector of 16 bytes of them. Reads: W once a tile, x from L2 to shared memory. Two rows a
 * warp: each vector of x from shared memory is used twice. W is asked for before x is staged, so both ways to memory are gone at once. Lane
 * r ends row r, so that all rows of the tile are finished at once. Twin: llm__run_linear. */
template <int K, int R> static __global__ void __launch_bounds__(256, few_blocks(K, R)) kernel_linear_few(linear_args a) {
    SMEM(float4, xs, R * (128 + FEW_HALF));
    SMEM(int32_t, from, R);        /* registers are for sums */
    SMEM(float, squares, R * 256); /* of what a thread has staged of each row, with a norm */
    if (a.begin) grid_wait();      /* which the kernel before counted */
    tile t = tile_at(a, (int)blockIdx.y, R);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, p = (int)blockIdx.x * 16 + warp * 2, rows = group_rows(a), whole = x_whole(a);
    const int N = few_vectors<K>(), mine = K == KIND_F32 ? (int)threadIdx.x : (int)(threadIdx.x & 1) * FEW_HALF + (int)(threadIdx.x >> 1);
    float sum[2][R] = {};
    uint4 w[2][N];
    auto load = [&](int c0) {
        const int n = (a.subs - c0) * kind_bytes(K) / 16;
        UNROLL(k, 2) {
            /* of a second row that is not there, the first one: nobody looks at its sum */
            const uint4 *q = (const uint4 *)(a.w.q + (group_row(a, t, p + k < rows ? p + k : p) * a.subs + c0) * kind_bytes(K));
#pragma unroll
            for (int i = 0; i < N && p < rows; i++) w[k][i] = __ldg(q + min(lane + 32 * i, n - 1)); /* what is not there meets zeros */
        }
    };
    if (!t.n) return grid_wait();
    load(0); /* they are on their way while the kernel before ends */
    grid_wait();
    if ((int)threadIdx.x < t.n) from[threadIdx.x] = a.row_of ? a.row_of[t.row + threadIdx.x] : t.row + (int)threadIdx.x;
    for (int c0 = 0; c0 < a.subs; c0 += 32) {
        __syncthreads();
        UNROLL(r, R) {
            int c = c0 * 32 + 4 * (int)threadIdx.x;
            float4 y = make_float4(0, 0, 0, 0);
            if (r < t.n) y = load_x4(a, a.x + from[r] * a.x_stride, c, whole);
            if (a.rms) {
                float *square = squares + r * 256 + threadIdx.x;
                *square = __fmaf_rn(y.x, y.x, __fmaf_rn(y.y, y.y, __fmaf_rn(y.z, y.z, __fmaf_rn(y.w, y.w, c0 ? *square : 0))));
                if (a.norm) {
                    float4 norm = load_x4(a, a.norm, c, 1);
                    y.x *= norm.x, y.y *= norm.y, y.z *= norm.z, y.w *= norm.w;
                }
            }
            xs[r * (128 + FEW_HALF) + mine] = y;
        }
        __syncthreads();
        if (p >= rows) continue;
        UNROLL(i, N)
            UNROLL(r, R)
                UNROLL(k, 2) sum[k][r] += few_product<K>(w[k][i], xs + r * (128 + FEW_HALF), 32 * i + lane);
        if (c0 + 32 < a.subs) load(c0 + 32);
    }
    if (p >= rows) return;
    float both[2] = {}, back = 1; /* lane r has the sums of row r */
    UNROLL(r, R) {
        float v0 = warp_sum(sum[0][r]), v1 = warp_sum(sum[1][r]);
        if (lane == r) both[0] = v0, both[1] = v1;
    }
#pragma unroll
    for (int r = 0; r < R && a.rms; r++) { /* every warp by itself, in one order */
        float square = 0;
        UNROLL(i, 8) square += squares[r * 256 + lane + 32 * i];
        square = warp_sum(square);
        if (lane == r) back = 1 / sqrtf(square / (float)a.cols + a.eps);
    }
    if (lane < t.n) finish_pair(a, t, t.row + lane, p, both[0] * back, both[1] * back);
}

/* The power of two by which a row whose largest value is `most` fits halves: 1 for nearly all; models with massive activations (Sun et al.
 * 2024) have rows of more than 65,504. A power of two leaves all bits of what it multiplies as they are. */
DEVICE float half_scale(float most) {
    if (!(most > 65504.0f) || most > 3e38f) return 1;
    return __uint_as_float((254 + 14 - (__float_as_uint(most) >> 23)) << 23); /* most * it is in [2^14, 2^15) */
}

/* 16 values to memory as 32 bytes. */
template <bool HALF> DEVICE void store_narrow(uint16_t *to, const float *v) {
    uint32_t u[8];
    UNROLL(i, 8) u[i] = narrow_pair<HALF>(v[2 * i], v[2 * i + 1]);
    ((uint4 *)to)[0] = make_uint4(u[0], u[1], u[2], u[3]);
    ((uint4 *)to)[1] = make_uint4(u[4], u[5], u[6], u[7]);
}

/* Rows in such a form: in scratch memory, or in the rows of the buffer that would have them in f32. Zeros behind their values. */
typedef struct narrow_view {
    narrow_form form;
    int32_t cols;
    uint8_t *x;
    int64_t stride; /* bytes between rows */
    float *scales;  /* of each row, as far apart: what brings its sums back; NULL: 1 */
} narrow_view;

/* Where values c and c + 1 of a row are, c even, counted in pairs. */
DEVICE int narrow_place(narrow_form form, int c) {
    if (form < NARROW_BRICKS) return c / 2;
    const int more = form == NARROW_BRICKS ? 0 : form == NARROW_SIXTEENS ? 2 : 1, each = 4 << more; /* columns of a lane */
    return ((c >> (4 + more) << more) + (c & (each - 1)) / 4) * 8 + (c >> (2 + more) & 3) + 2 * (c & 2);
}
static constexpr __host__ __device__ int narrow_bf16(narrow_form form) { return form == NARROW_BF16 || form == NARROW_EIGHTS_BF16; }
DEVICE uint32_t narrow_two(narrow_form form, float a, float b) {
    return narrow_bf16(form) ? narrow_pair<false>(a, b) : narrow_pair<true>(a, b);
}

/* The largest of what a block's threads have, for all of them. `top`: 32 floats of shared memory. */
static __device__ float block_most(float most, float *top) {
    most = warp_max(most);
    __syncthreads(); /* what was there before has been read */
    if ((threadIdx.x & 31) == 0) top[threadIdx.x >> 5] = most;
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x / 32; i++) most = fmaxf(most, top[i]);
    return most;
}

/* A row of activations to row `row` of v, by a block: four(c) has values c to c + 3. Halves are gone through again only if one of the
 * row does not fit; for e4m3 the largest must be known before. */
template <class F> DEVICE void narrow_row(const narrow_view &v, int row, F four) {
    SMEM(float, top, 32);
    uint32_t *to = (uint32_t *)(v.x + row * v.stride);
    const int f8 = v.form == NARROW_E4M3;
    float by = 1, next = 1;
    do {
        float most = 0;
        by = next;
#pragma unroll 4
        for (int c = 4 * (int)threadIdx.x; c < v.cols; c += 4 * (int)blockDim.x) {
            const float4 y = four(c);
            most = fmaxf(fmaxf(fmaxf(most, fabsf(y.x)), fmaxf(fabsf(y.y), fabsf(y.z))), fabsf(y.w));
            const uint32_t two = narrow_two(v.form, y.x * by, y.y * by), more = narrow_two(v.form, y.z * by, y.w * by);
            if (v.form >= NARROW_BRICKS) to[narrow_place(v.form, c)] = two, to[narrow_place(v.form, c + 2)] = more;
            else if (!f8) *(uint2 *)(to + c / 2) = make_uint2(two, more);
        }
        if (narrow_bf16(v.form)) return;
        most = block_most(most, top);
        next = !f8 ? half_scale(most) : most > 0 ? most / 448 : 1;
    } while (!f8 && next != by);
    if (threadIdx.x == 0) *(float *)((uint8_t *)v.scales + row * v.stride) = f8 ? next : 1 / next;
#pragma unroll 1
    for (int c = 4 * (int)threadIdx.x; f8 && c < v.cols; c += 4 * (int)blockDim.x) {
        const float4 y = four(c);
        auto narrow = [&](float x) { return f32_narrow(x / next, 4, 3, 0x7e, 0x7f); };
        to[c / 4] = narrow(y.x) | narrow(y.y) << 8 | narrow(y.z) << 16 | narrow(y.w) << 24;
    }
}

/* What brings the sums of a row back. */
DEVICE float narrow_back(const narrow_view &v, int row) {
    return v.scales ? *(const float *)((const uint8_t *)v.scales + row * v.stride) : 1;
}

static constexpr int TILE = 64; /* rows of W and of x that a block of kernel_linear_f32 has */

/* ============================================================================
 * >>linear_rows   Few rows, on tensor cores.
 * ============================================================================
 * An instruction multiplies 16 rows of W by 8 columns of x. Activations are f32, and of each two narrow numbers are taken, high and low, as
 * two neighbouring columns: so 4 rows of x fill an instruction, and a lane has both sums of an output. What they are depends on W:
 *
 *     W         x                                                        sums
 *     bf16      two bf16, together 16 bits                               f32
 *     f16 e4m3  two halves of x * 2^k, together 22 bits                  f32, of a unit; times 2^-k
 *     packed    two signed bytes, 256 high + low = round(x * 2^k)        exact, of a sub; times 2^-k and the sub's scale
 *
 * 2^k brings the largest value of a row's unit, which is what a warp has at once, to [2^14, 2^15): a warp finds it by one instruction, and
 * a power of two rounds nothing. So packed weights are multiplied as the whole numbers they are: nibbles become bytes, two instructions for
 * four, and nothing else. Minimums and zeros come to the sum of x, by products with ones.
 *
 * Of one row of x six columns would be idle. So it stands in the two columns 2 s and 2 s + 1 where sub s of a unit is multiplied, and
 * zeros in the others: behind the four subs lane 4 g + t has the sums of sub t, not all lanes the same ones, and scales them alone.
 *
 *     x of one row, in four products     sub 0: H L 0 0 0 0 0 0     sub 1: 0 0 H L 0 0 0 0     sub 2: 0 0 0 0 H L 0 0     ...
 *
 * A block has 32 rows of W, and its warps, 8 or 16, share the columns, a unit at a time: two bricks, or of floats 64 columns. Warp w has
 * units w, w + 8, ... A warp works for itself until the end. Units of W come through a ring in shared memory, STAGES of them, of which all
 * but one are on their way: so a multiprocessor has 40 to 100 KB under way, without a register, and the first ones are asked for while the
 * kernel before ends. Lanes copy what they will read, bricks as they lie; of floats lane 4 g + t copies 16 bytes of rows g and g + 8, from
 * place t of a sub (e4m3: of a span of 64 columns) on. Which columns a lane's four values of a step are is free, as long as W and x agree:
 *
 *     a step's columns of lane t     bricks   16 h + 4 t of a sub     16 bits   8 t + 4 h of a sub     e4m3   16 t + 4 (2 s + h) of a span
 *
 * Of x a lane loads EACH columns of each row of the tile, one unit ahead, in registers, and stores words of high and of low ones: so each
 * value is split up once a block. They are x_stride apart, so that no two lanes meet a bank. */

/* SPAN: columns of a brick. ROWS_MT: sixteens of rows of W that a block has; ROW_SUMS: floats between rows of sums. */
static constexpr int SPAN = 32 * BRICK_SUBS, ROWS_WARPS = 16, ROWS_MT = 2, X_ROWS = 8, ROW_SUMS = 40;
static constexpr int rows_threads(void) { return 32 * (WIDE_ARCH ? ROWS_WARPS : ROWS_WARPS / 2); }

template <int K> struct span { static constexpr int BYTES = kind_bricks(K) ? brick_bytes(K) : BRICK_ROWS * BRICK_SUBS * kind_bytes(K); };
template <int K> struct unit {
    static constexpr int SPANS = kind_16bit(K) ? 1 : 2, COLS = SPANS * SPAN, EACH = COLS / 32, BYTES = SPANS * span<K>::BYTES,
                         STAGES = BYTES > 1300 ? 2 : 3;
};
template <int K, int T> static constexpr __host__ __device__ int x_stride(void) {
    if (kind_bricks(K)) return T == 1 ? 48 : 40;
    return K == KIND_F8 ? 68 : 48;
}

/* Shared memory of a warp: the ring, and x. */
template <int K, int T> static constexpr __host__ __device__ int rows_warp_smem(void) {
    return (unit<K>::STAGES * ROWS_MT * unit<K>::BYTES + 2 * T * x_stride<K, T>() * 4 + SMEM_ALIGN - 1) / SMEM_ALIGN * SMEM_ALIGN;
}

/* Where a lane begins to copy 16 rows of a part from `row` on, in vectors of 16 bytes. */
template <int K> DEVICE uint32_t span_begin(const part &w, int64_t row, int lane) {
    if constexpr (kind_bricks(K)) return (uint32_t)(row / BRICK_ROWS * brick_count(w.subs) * (brick_bytes(K) / 16) + lane);
    return (uint32_t)((row + (lane >> 2)) * w.subs * (kind_bytes(K) / 16) + (lane & 3));
}

/* SPANS spans of 16 rows, from span `at` on, on their way to shared memory; of floats, what is behind a row's last sub is zero. */
template <int K, int SPANS = 1> DEVICE void span_copy(const part &w, uint32_t begin, int at, int lane, uint8_t *to) {
    to += 16 * lane;
    if constexpr (kind_bricks(K)) {
        const int vectors = SPANS * brick_bytes(K) / 16;
        const uint4 *from = (const uint4 *)w.q + (begin + (uint32_t)(at * (brick_bytes(K) / 16)));
#pragma unroll
        for (int i = 0; i < vectors; i += 32)
            if (i + 32 <= vectors || i + lane < vectors) copy_async_16(to + 16 * i, from + i, 16);
    } else {
        const int bytes = kind_bytes(K), vectors = bytes / 32; /* of a lane, row and span */
        const uint4 *from = (const uint4 *)w.q + (begin + (uint32_t)(at * (BRICK_SUBS * bytes / 16)));
        UNROLL(i, SPANS * 2 * vectors) {
            const int v = i % vectors, r = i / vectors & 1, q = i / (2 * vectors),
                      there = BRICK_SUBS * (at + q) + (vectors == 2 ? v : lane >> 1 & 1) < w.subs;
            const uint32_t column = q * BRICK_SUBS * bytes / 16 + 4 * v;
            copy_async_16(to + i * 512, from + (uint32_t)(8 * r * bytes / 16 * w.subs) + (there ? column : 0), there ? 16 : 0);
        }
    }
}

/* N words, 2 or 4, side by side. */
template <int N> DEVICE void load_words(const void *from, uint32_t *to) {
    if constexpr (N == 4) {
        const uint4 v = *(const uint4 *)from;
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        const uint2 v = *(const uint2 *)from;
        to[0] = v.x, to[1] = v.y;
    }
}

/* What a lane has of sub s of 16 rows, as span_copy leaves them: words of nibbles 0 and 1, one a step; of bytes 2 h + r, of e4m3 2 r + h,
 * of 16 bits 4 r + 2 h + c; high: one bit from bit 0 on, as if sub were 0. */
template <int K> struct lane_sub { uint32_t words[kind_16bit(K) ? 8 : kind_nibbles(K) ? 2 : 4], high; };
template <int K> DEVICE lane_sub<K> lane_load_sub(const uint8_t *from, int lane, int s) {
    lane_sub<K> p = {};
    if constexpr (kind_16bit(K))
        for (int r = 0; r < 2; r++) load_words<4>(from + 16 * (32 * (2 * r + s) + lane), p.words + 4 * r);
    else if constexpr (K == KIND_F8)
        for (int r = 0; r < 2; r++) load_words<2>(from + 8 * (64 * r + 2 * lane + s), p.words + 2 * r);
    else if constexpr (kind_nibbles(K)) load_words<2>(from + 8 * (2 * lane + s), p.words);
    else load_words<4>(from + 16 * (32 * s + lane), p.words);
    if (kind_high_bytes(K) == 4) p.high = ((const uint32_t *)(from + brick_high(K)))[lane] >> (4 * s);
    if (kind_high_bytes(K) == 8) p.high = ((const uint32_t *)(from + brick_high(K)))[2 * lane + s];
    return p;
}

/* A lane's columns of a row, in f32, as words of x at `to`, a row of high ones and one of low ones: see above. Returns 2^-k; NaN where a
 * value of the unit is not finite, which then no output of the row is. Whole warps. */
template <int K, int T> DEVICE float split_x(const float *y, uint32_t *to, int lane) {
    const int low = x_stride<K, T>();
    if constexpr (K == KIND_BF16) {
        split_pair_of<false>(y[0], y[1], to + lane, to + low + lane);
        return 1;
    } else {
        float most = larger_or_nan(fabsf(y[0]), fabsf(y[1]));
        if constexpr (unit<K>::EACH == 4) most = larger_or_nan(most, larger_or_nan(fabsf(y[2]), fabsf(y[3])));
        /* the exponent, plus 127: the next one where 2^k would make more than 32,639 of it, which is 127 * 256 + 127 */
        const int e = max((int)((__reduce_max_sync(~0u, __float_as_uint(most)) + 129 * 512) >> 23), 15);
        const float by = __uint_as_float((uint32_t)(127 + 14 + 127 - e) << 23);
        if constexpr (kind_bricks(K)) { /* 2^23 + 2^22 + n has n in its low bits; with 128 more in it high is the second byte */
            uint32_t n[4];
            UNROLL(i, 4) n[i] = __float_as_uint(__fmaf_rn(y[i], by, 12582912.0f + 128));
            const uint32_t two = __byte_perm(n[0], n[1], 0x5140), more = __byte_perm(n[2], n[3], 0x5140);
            to += (lane & 24) + 2 * (lane & 3) + (lane >> 2 & 1); /* both steps of a lane side by side */
            to[0] = __byte_perm(two, more, 0x7632), to[low] = __byte_perm(two, more, 0x5410) ^ 0x80808080u;
        } else {
            constexpr int N = unit<K>::EACH / 2;
            uint32_t two[2][N]; /* high, low */
            UNROLL(i, N) split_pair_of<true>(y[2 * i] * by, y[2 * i + 1] * by, &two[0][i], &two[1][i]);
            UNROLL(i, 2) {
                if constexpr (N == 2) ((uint2 *)(to + i * low))[lane] = make_uint2(two[i][0], two[i][1]);
                else to[i * low + lane] = two[i][0];
            }
        }
        return __uint_as_float(e >= 255 ? 0x7fc00000u : (uint32_t)(e - 14) << 23);
    }
}

/* ---- Floats ---- */

/* Step h of a sub: what an instruction takes of W. */
template <int K> DEVICE void lane_step(const lane_sub<K> &p, int h, uint32_t *to) {
    UNROLL(k, 4) { /* r and c */
        const int r = k >> 1, c = k & 1;
        to[r + 2 * c] = K == KIND_F8 ? e4m3_halves(p.words[2 * r + h] >> (16 * c)) : p.words[kind_16bit(K) ? 4 * r + 2 * h + c : 0];
    }
}

/* A unit of ROWS_MT sixteens of rows of W, from one stage of the ring, times NT fours of rows of x. acc: the sums of rows g and g + 8. Of
 * one row of x lanes of other columns have zeros. ACC 4: sums of high and low ones by themselves, for nothing brings them back. */
template <int K, int NT, int ACC>
DEVICE void unit_multiply_floats(const uint8_t *stage, const uint32_t *x, const float *back, int one, float (*acc)[NT][ACC]) {
    enum { MT = ROWS_MT, SUBS = BRICK_SUBS * unit<K>::SPANS };
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float scaled[MT][NT][4] = {}, (*c)[NT][4] = scaled;
    if constexpr (ACC == 4) c = acc;
#pragma unroll(K == KIND_F8 ? 2 : SUBS)
    for (int s = 0; s < SUBS; s++) {
        uint4 xf[NT] = {}; /* of both steps */
        UNROLL(j, NT)
            if (!one || g < 2)
                xf[j] = *(const uint4 *)(x + (8 * j + g) * x_stride<K, 4 * NT>() +
                                         (K == KIND_F8 ? s / 2 * 32 + 8 * t + s % 2 * 4 : 16 * s + 4 * t));
        UNROLL(i, MT) {
            const lane_sub<K> p = lane_load_sub<K>(stage + i * unit<K>::BYTES + s / BRICK_SUBS * span<K>::BYTES, lane, s % BRICK_SUBS);
            UNROLL(h, 2) {
                uint32_t wf[4];
                lane_step<K>(p, h, wf);
                UNROLL(j, NT) {
                    const uint32_t two[2] = {h ? xf[j].z : xf[j].x, h ? xf[j].w : xf[j].y};
                    mma_16x8x16<K != KIND_BF16>(c[i][j], wf, two);
                }
            }
        }
    }
#pragma unroll
    for (int k = 0; k < 2 * MT * NT && ACC == 2; k++) {
        const int r = k & 1, i = k >> 1 & 1, j = k >> 2;
        acc[i][j][r] = __fmaf_rn(back[j], c[i][j][2 * r] + c[i][j][2 * r + 1], acc[i][j][r]);
    }
}

/* ---- Packed weights ---- */

/* What a kind's bytes have too much. */
static constexpr __host__ __device__ int kind_raised(int k) { return kind_signed(k) ? 0 : kind_zero(k); }
/* Whether something comes to the sum of x. */
static constexpr __host__ __device__ int kind_summed(int k) { return kind_has_minimum(k) || kind_raised(k); }

/* A sub as bytes: word 2 h + r has a lane's four columns of step h of row g, or g + 8. */
template <int K> DEVICE void lane_bytes(const lane_sub<K> &p, const uint64_t *table, uint32_t *to) {
    UNROLL(h, 2) {
        const uint32_t w = p.words[h];
        uint32_t u = 0, v = 0; /* what stands in both rows: c 0 and 1 of nibbles, e 0 and 1 of tables */
        if constexpr (!kind_nibbles(K)) {
            to[2 * h] = p.words[2 * h], to[2 * h + 1] = p.words[2 * h + 1];
            continue;
        } else if constexpr (kind_table(K)) {
            u = table_four(table, w), v = table_four(table, w >> 16);
        } else {
            const int one = 4 - 2 * h, two = 4 - 4 * h; /* how far left the bits of c 0 go */
            u = w & 0x0f0f0f0f, v = w >> 4 & 0x0f0f0f0f;
            if (kind_high_bytes(K) == 4) u |= p.high << one & 0x10101010, v |= p.high << (one - 1) & 0x10101010;
            if (kind_high_bytes(K) == 8) u |= p.high << two & 0x30303030, v |= (h ? p.high >> 2 : p.high << 2) & 0x30303030;
        }
        to[2 * h] = __byte_perm(u, v, kind_table(K) ? 0x5140 : 0x6420);
        to[2 * h + 1] = __byte_perm(u, v, kind_table(K) ? 0x7362 : 0x7531);
    }
}

/* Scales and minimums of rows g and g + 8, of the steps of sub s. */
template <int K> DEVICE void lane_scales(const uint8_t *from, int s, int g, float (*d)[2], float (*m)[2]) {
    const int bytes = kind_scale_bytes(K);
    uint32_t u[4]; /* of rows g and g + 8; of G8 of both steps of each */
    from += brick_scales(K) + (s * 8 + g) * 2 * bytes;
    if (bytes == 8) load_words<4>(from, u);
    else if (bytes == 4) load_words<2>(from, u);
    else u[0] = *(const uint32_t *)from, u[1] = u[0] >> 16;
    UNROLL(r, 2)
        UNROLL(h, 1 + kind_halves(K)) {
            const uint32_t v = u[bytes == 8 ? 2 * r + h : r];
            d[h][r] = K == KIND_T4 ? bits_to_f32(v) : half_to_f32((uint16_t)(kind_pair(K) && h ? v >> 16 : v));
            if (kind_has_minimum(K)) m[h][r] = half_to_f32((uint16_t)(v >> 16));
        }
}

/* c += a sub of 16 rows times x: of both steps, or of either where scales are. */
template <int HALVES, bool SIGNED> DEVICE void bytes_multiply(int32_t (*c)[4], const uint32_t *w, uint2 x) {
    if (HALVES) mma_16x8x16_bytes<SIGNED>(c[0], w, x.x), mma_16x8x16_bytes<SIGNED>(c[HALVES], w + 2, x.y);
    else mma_16x8x32_bytes<SIGNED>(c[0], w, x);
}

/* The same with ones for W. */
template <int HALVES> DEVICE void ones_multiply(int32_t (*c)[4], uint2 x) {
    const uint32_t ones[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101};
    bytes_multiply<HALVES, false>(c, ones, x);
}

/* Sums of high and low bytes as one number. */
DEVICE float whole_sum(int32_t high, int32_t low) { return (float)(256 * high + low); }

/* What a sub's products c are worth, of rows g and g + 8; sums: of x, of its steps. */
template <int K> DEVICE void sub_finish(const float (*d)[2], const float (*m)[2], const int32_t (*c)[4], const float *sums, float *to) {
    UNROLL(r, 2) {
        float v = 0;
        UNROLL(h, 1 + kind_halves(K)) {
            float n = whole_sum(c[h][2 * r], c[h][2 * r + 1]);
            if (kind_raised(K)) n = __fmaf_rn((float)-kind_raised(K), sums[h], n);
            v = h ? __fmaf_rn(d[h][r], n, v) : __fmul_rn(d[h][r], n);
            if (kind_has_minimum(K)) v = __fmaf_rn(m[h][r], sums[h], v);
        }
        to[r] = v;
    }
}

/* The same of bricks, and of one row of x. Lane t has what sub t is worth, and all four add it up, as below. */
template <int K> DEVICE void unit_multiply_one(const part &w, const uint8_t *stage, const uint32_t *x, float back, float (*acc)[1][2]) {
    enum { MT = ROWS_MT, H = 1 + kind_halves(K) };
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint2 mine = *(const uint2 *)(x + (g & 1) * x_stride<K, 1>() + (g >> 1) * 8 + 2 * t);
    float sums[H] = {};
    UNROLL(i, MT) {
        int32_t c[H][4] = {}, all[H][4] = {};
        float d[H][2], m[H][2], v[2];
        const uint8_t *bricks = stage + i * unit<K>::BYTES;
#pragma unroll(K == KIND_T4 || kind_halves(K) ? BRICK_SUBS : 2 * BRICK_SUBS)
        for (int s = 0; s < 2 * BRICK_SUBS; s++) {
            uint32_t bytes[4];
            const uint2 xf = g >> 1 == s ? mine : make_uint2(0, 0);
            lane_bytes<K>(lane_load_sub<K>(bricks + s / BRICK_SUBS * brick_bytes(K), lane, s % BRICK_SUBS), w.table, bytes);
            if (kind_summed(K) && !i) ones_multiply<H - 1>(all, xf);
            bytes_multiply<H - 1, kind_signed(K)>(c, bytes, xf);
        }
        for (int h = 0; h < H && !i; h++) sums[h] = whole_sum(all[h][0], all[h][1]);
        lane_scales<K>(bricks + t / BRICK_SUBS * brick_bytes(K), t % BRICK_SUBS, g, d, m);
        sub_finish<K>(d, m, c, sums, v);
        UNROLL(r, 2) {
            v[r] += __shfl_xor_sync(~0u, v[r], 1);
            v[r] += __shfl_xor_sync(~0u, v[r], 2);
            acc[i][0][r] = __fmaf_rn(back, v[r], acc[i][0][r]);
        }
    }
}

/* And of several. A unit's subs are added up as (0 + 1) + (2 + 3). */
template <int K, int NT>
DEVICE void unit_multiply_some(const part &w, const uint8_t *stage, const uint32_t *x, const float *back, float (*acc)[NT][2]) {
    enum { MT = ROWS_MT, H = 1 + kind_halves(K) };
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float all[MT][NT][2] = {};
#pragma unroll 1
    for (int q = 0; q < 2; q++) {
        float two[MT][NT][2] = {};
        UNROLL(s, BRICK_SUBS) {
            float sums[NT][H] = {};
            uint2 xf[NT];
            UNROLL(j, NT) {
                int32_t c[H][4] = {};
                xf[j] = *(const uint2 *)(x + (8 * j + g) * x_stride<K, 4 * NT>() + 8 * (BRICK_SUBS * q + s) + 2 * t);
                if (kind_summed(K)) ones_multiply<H - 1>(c, xf[j]);
                for (int h = 0; h < H; h++) sums[j][h] = whole_sum(c[h][0], c[h][1]);
            }
            UNROLL(i, MT) {
                const uint8_t *brick = stage + i * unit<K>::BYTES + q * brick_bytes(K);
                uint32_t bytes[4];
                float d[H][2], m[H][2], v[2];
                lane_bytes<K>(lane_load_sub<K>(brick, lane, s), w.table, bytes);
                lane_scales<K>(brick, s, g, d, m);
                UNROLL(j, NT) {
                    int32_t c[H][4] = {};
                    bytes_multiply<H - 1, kind_signed(K)>(c, bytes, xf[j]);
                    sub_finish<K>(d, m, c, sums[j], v);
                    for (int r = 0; r < 2; r++) two[i][j][r] = s ? two[i][j][r] + v[r] : v[r];
                }
            }
        }
        UNROLL(k, 2 * MT * NT) {
            const int i = k / (2 * NT), j = k / 2 % NT, r = k % 2;
            all[i][j][r] = q ? all[i][j][r] + two[i][j][r] : two[i][j][r];
        }
    }
    UNROLL(k, 2 * MT * NT) {
        const int i = k / (2 * NT), j = k / 2 % NT, r = k % 2;
        acc[i][j][r] = __fmaf_rn(back[j], all[i][j][r], acc[i][j][r]);
    }
}

/* N columns: vector `at` of x, those from c on with zeros outside, or as a vector where all are there (`whole`: the row begins on one). */
template <int N> DEVICE void load_vector(const float *x, uint32_t at, float *to) {
    if constexpr (N == 4) {
        const float4 v = ((const float4 *)x)[at];
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        const float2 v = ((const float2 *)x)[at];
        to[0] = v.x, to[1] = v.y;
    }
}
template <int N> DEVICE void load_columns(const float *x, int c, int cols, float *to) {
    UNROLL(i, N) to[i] = c + i < cols ? x[c + i] : 0;
}

template <int N> DEVICE void load_either(const float *x, int c, int cols, int whole, float *to) {
    if (whole && c + N <= cols) load_vector<N>(x, (uint32_t)(c / N), to);
    else load_columns<N>(x, c, cols, to);
}

/* Columns from c on of all rows of a tile, where rows end among a warp's columns or begin anywhere. */
template <int T, int N> DEVICE void load_ragged(const linear_args &a, const tile &t, int c, int even, float (*x)[N]) {
#pragma unroll 1
    for (int r = 0; r < t.n; r++) {
        float y[N];
        load_either<N>(x_row(a, t, r), c, a.cols, even, y);
        UNROLL(k, T * N)
            if (k / N == r) x[k / N][k % N] = y[k % N];
    }
}

/* A lane's columns of a row of x, for words at `to`: see split_x. */
template <int K, int T>
DEVICE float rows_stage(const linear_args &a, const float *x, const float *norm, float *square, uint32_t *to, int lane) {
    float y[unit<K>::EACH], sum = 0;
    if (a.rms) {
        sum = *square;
        UNROLL(i, unit<K>::EACH) sum = __fmaf_rn(x[i], x[i], sum);
        *square = sum;
    }
    UNROLL(i, unit<K>::EACH) y[i] = x[i] * norm[i];
    return split_x<K, T>(y, to, lane);
}

/* A warp's sums to shared memory, (rows of x, rows of W). */
template <int T, int NT, int ACC> DEVICE void rows_leave(const float (&acc)[ROWS_MT][NT][ACC], float *sums, int lane) {
    UNROLL(k, 2 * ROWS_MT * NT) {
        const int r = k & 1, i = k / 2 % ROWS_MT, j = k / (2 * ROWS_MT), row = 4 * j + (lane & 3);
        const float v = ACC == 4 ? acc[i][j][2 * r] + acc[i][j][(2 * r + 1) % ACC] : acc[i][j][r];
        if (row < T) sums[row * ROW_SUMS + 16 * i + 8 * r + (lane >> 2)] = v;
    }
}

/* Adds up what the warps have, sums (warp, row of x, rows of W) and squares, and ends outputs from p0 on, two a thread. */
template <int T> DEVICE void rows_finish(const linear_args &a, const tile &t, int p0, const float *sums, const float *squares) {
    const int warps = blockDim.x >> 5, pairs = 8 * ROWS_MT;
    for (int k = threadIdx.x; k < pairs * T; k += (int)blockDim.x) {
        const int row = k / pairs, two = k % pairs * 2;
        float v0 = 0, v1 = 0, all = 0;
#pragma unroll 8
        for (int u = 0; u < warps; u++) {
            const float2 both = *(const float2 *)(sums + (u * T + row) * ROW_SUMS + two);
            v0 += both.x, v1 += both.y;
            if (a.rms) all += squares[(row * ROWS_WARPS + u) * 32];
        }
        const float back = a.rms ? 1 / sqrtf(all / (float)a.cols + a.eps) : 1;
        if (row < t.n && p0 + two < group_rows(a)) finish_pair(a, t, t.row + row, p0 + two, v0 * back, v1 * back);
    }
}

/* Computes: out (n, p) = finish(x (n, cols) W^T), n <= T rows a tile. Grid: (tiles, rows of W / 32), so that tiles meet in the cache; 8
 * or 16 warps, which share the columns. Reads: W once a tile, x from L2. Sums of a warp go over its units, then over warps, in one order
 * whatever the number of rows: so a row has the same bits alone and among others, for any T. Of Q4_0 a unit, 128 weights a lane, takes a
 * warp 391 instructions of one row and 953 of eight, of e4m3 436 and 820, rare ways with them: of 14,336 x 4,096 an H200's schedulers have
 * 27 units each, so 6 and 15 us of their slots, where memory takes 8 us (e4m3: 7, 13 and 15 us). Not measured on a device yet. Twin:
 * llm__run_linear. */
template <int K, int T>
static __global__ void __launch_bounds__(rows_threads(), WIDE_ARCH &&T == 1 ? 2 : 1) kernel_linear_rows(linear_args a) {
    typedef unit<K> U;
    enum { MT = ROWS_MT, NT = T < 4 ? 1 : T / 4, EACH = U::EACH, ACC = K == KIND_BF16 ? 4 : 2 };
    DYN_SMEM(uint8_t, memory);
    SMEM(float, squares, T *ROWS_WARPS * 32); /* (row of x, thread) with a norm */
    SMEM(tile, kept, 1);                      /* registers are for sums */
    if (a.begin) grid_wait();
    const tile t = tile_at(a, (int)blockIdx.x, T);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, rows = group_rows(a),
              p0 = (int)blockIdx.y * 16 * MT;
    const int units = ceil_div(32 * a.subs, U::COLS), even = (((size_t)a.x | (size_t)a.x_stride * 4) & (4 * EACH - 1)) == 0;
    uint8_t *ring = memory + warp * rows_warp_smem<K, T>();
    uint32_t *words = (uint32_t *)(ring + U::STAGES * MT * U::BYTES);
    float acc[MT][NT][ACC] = {}, *square = squares + threadIdx.x;
    float x[T][EACH] = {}, norm[EACH];
    UNROLL(i, EACH) norm[i] = 1;
    UNROLL(r, T) square[r * ROWS_WARPS * 32] = 0;
    uint32_t begin[MT];
    UNROLL(i, MT) /* of sixteen that are not there, the first */
        begin[i] = span_begin<K>(a.w, group_row(a, t, p0 + 16 * i < rows ? p0 + 16 * i : p0), lane);
    auto copy = [&](int at, int slot) {
        if (at < units) {
            UNROLL(i, MT) span_copy<K, U::SPANS>(a.w, begin[i], U::SPANS * at, lane, ring + (slot * MT + i) * U::BYTES);
        }
        copy_async_end();
    };
    uint32_t from = 0; /* where row `lane` of x begins, in vectors of EACH where they are even */
    auto load = [&](int at) {
        const int c = U::COLS * at + EACH * lane;
        if (even && U::COLS * (at + 1) <= a.cols) {
            UNROLL(r, T)
                if (T == 1 || r < t.n) load_vector<EACH>(a.x, (T == 1 ? from : __shfl_sync(~0u, from, r)) + (uint32_t)(c / EACH), x[r]);
            return;
        }
        load_ragged<T, EACH>(a, t, c, even, x);
    };
    auto load_norm = [&](int at) {
        if (a.norm) load_either<EACH>(a.norm, U::COLS * at + EACH * lane, a.cols, 1, norm);
    };
    if (!t.n) return grid_wait();
    if (threadIdx.x == 0) *kept = t;
    UNROLL(i, U::STAGES - 1) copy(warp + warps * i, i);
    if (T == 1 && warp < units) load_norm(warp);
    grid_wait();
    if (T == 1 || lane < t.n) from = (uint32_t)((x_row(a, t, T == 1 ? 0 : lane) - a.x) / EACH);
    if (warp < units) load(warp);
    int slot = 0;
#pragma unroll 1
    for (int at = warp; at < units; at += warps) {
        __syncwarp();             /* what is overwritten was read by all lanes */
        if (T > 1) load_norm(at); /* of several rows there are no registers for it while W is multiplied */
        copy(at + warps * (U::STAGES - 1), slot ? slot - 1 : U::STAGES - 1);
        float back[NT] = {};
        UNROLL(r, T) {
            float one = rows_stage<K, T>(a, x[r], norm, square + r * ROWS_WARPS * 32, words + 2 * r * x_stride<K, T>(), lane);
            if (T == 1 || (lane & 3) == (r & 3)) back[r / 4] = one;
        }
        if (at + warps < units) {
            load(at + warps);
            if (T == 1) load_norm(at + warps);
        }
        copy_async_wait<U::STAGES - 1>();
        __syncwarp();
        const uint8_t *stage = ring + slot * MT * U::BYTES;
        if constexpr (kind_bricks(K) && T == 1) unit_multiply_one<K>(a.w, stage, words, back[0], acc);
        else if constexpr (kind_bricks(K)) unit_multiply_some<K, NT>(a.w, stage, words, back, acc);
        else unit_multiply_floats<K, NT, ACC>(stage, words, back, T == 1, acc);
        slot = slot + 1 < U::STAGES ? slot + 1 : 0;
    }
    copy_async_wait<0>();
#pragma unroll
    for (int r = 0; r < T && a.rms; r++) {
        const float all = warp_sum(square[r * ROWS_WARPS * 32]);
        if (lane == 0) square[r * ROWS_WARPS * 32] = all;
    }
    __syncthreads();
    rows_leave<T>(acc, (float *)memory + warp * T * ROW_SUMS, lane);
    __syncthreads();
    rows_finish<T>(a, *kept, (int)blockIdx.y * 16 * MT, (const float *)memory, squares);
}

/* ============================================================================
 * >>linear_bands   Some rows of packed weights, on tensor cores.
 * ============================================================================
 * From 9 rows on it pays to make of a packed weight what tensor cores take, a half with its scale in it: three instructions a pair, once
 * for 16, 32 or 64 rows of x. These are halves as well, see narrow_row, in the order of bricks.
 *
 * A block has T rows of x and 128 of W, a band, of which four of its warps have 32 each; the other four have the same rows, and the second
 * of the two spans that are a unit of columns. Units come through a ring of STAGES in shared memory:
 *
 *     x     T rows of 256 bytes, vector c of row r at place c ^ (r & 7), so that ldmatrix meets no bank twice
 *     W     bricks as they lie: of each sixteen of rows the two of the unit
 *
 * All units of W, band after band, are cut into equal pieces, one a block: so multiprocessors have equal shares whatever the shape is. A
 * band that is cut is added up from its pieces in their order, by the block that is last to have one. Where the cuts are depends on the
 * shape of W and on the device alone, and tiles of any T multiply in the same order: so a row has the same bits among any number of rows
 * from 9 on. */

/* BAND_X: bytes of a row of x in a unit; BAND_STRIDE: floats between rows of sums; BAND_TILES: of 64 rows that a launch has at most. */
static constexpr int BAND_WARPS = 8, BAND_ROWS = 128, BAND_SUBS = 2 * BRICK_SUBS, BAND_X = 64 * BAND_SUBS, BAND_STRIDE = BAND_ROWS + 4,
                     BAND_TILES = 3;

template <int K, int T> struct band {
    static constexpr int BYTES = T * BAND_X + BAND_ROWS / BRICK_ROWS * 2 * brick_bytes(K); /* of a unit */
    static constexpr int MOST = (T == 64 ? 112 : 96) * 1024 / BYTES, STAGES = MOST < 6 ? MOST : 6, SMEM_BYTES = STAGES * BYTES;
    static_assert(SMEM_BYTES >= 2 * T * BAND_STRIDE * 4, "sums take the ring's place");
};

/* Rows of a tile at most: of bytes with a minimum each 16, 64 rows spill. */
template <int K> static constexpr int band_most(void) { return K == KIND_G8 ? 32 : 64; }

typedef struct band_args {
    narrow_view x;     /* (rows, units of 128 columns) in the order of bricks */
    float *pieces;     /* (tiles, blocks, 2, T, BAND_ROWS) of the band that a block goes on with, and of the one that it begins */
    unsigned *arrived; /* (tiles, blocks) pieces that are there of the band that a block begins; all 0 */
    int32_t row0;      /* of the first tile */
} band_args;

/* Scales of step h of sub s, of rows g and g + 8, and what comes to the products, each twice. */
template <int K> DEVICE void band_scales(const uint8_t *brick, int s, int h, int g, uint32_t *d, uint32_t *m) {
    const int bytes = kind_scale_bytes(K);
    const uint32_t *words = (const uint32_t *)(brick + brick_scales(K) + (s * 8 + g) * 2 * bytes);
    UNROLL(r, 2) {
        const uint32_t u = words[bytes == 2 ? 0 : bytes == 4 ? r : 2 * r + h];
        const float wide = K == KIND_T4 ? bits_to_f32(u) : half_to_f32((uint16_t)(h ? u >> 16 : u));
        if (kind_table(K)) d[r] = narrow_pair<true>(128 * wide, 128 * wide);
        else d[r] = __byte_perm(u, 0, (bytes == 2 && r) || (kind_pair(K) && h) ? 0x3232 : 0x1010);
        m[r] = kind_has_minimum(K) ? __byte_perm(u, 0, 0x3232) : 0x80008000u;
    }
}

/* Step h of a sub as halves (of bf16: as it is): what an instruction takes of W. A whole number below 1,024 is put behind the exponent of
 * 1,024, or times 16 there; of tables the values over 128 behind that of 8, for their scales are 128 times as large: small ones would lose
 * bits. */
template <int K>
DEVICE void band_step(const lane_sub<K> &p, int h, const uint64_t *table, const uint32_t *d, const uint32_t *m, uint32_t *to) {
    const uint32_t *words = p.words, high = p.high;
    const uint32_t w = words[h];
    uint32_t low = 0, top = 0;
    if constexpr (kind_table(K)) low = table_four(table, w), top = table_four(table, w >> 16);
    UNROLL(k, 4) { /* r and c */
        const int r = k >> 1, c = k & 1, one = 8 * r + 2 * h + c - 4 - 4 * c, two = 8 * r + 4 * h + 2 * c - 4 - 4 * c;
        uint32_t u;
        if constexpr (kind_16bit(K)) {
            u = words[4 * r + 2 * h + c];
        } else if constexpr (K == KIND_F8) {
            u = e4m3_halves(words[2 * r + h] >> (16 * c));
        } else if constexpr (kind_table(K)) {
            u = bits_and_or(__byte_perm(low, top, 0x1111 * k + 0x4400), 0x00ff00ff, 0x48004800);
            u = halves_fma(u, 0x3c003c00, 0xc880c880); /* - 9 */
        } else if constexpr (!kind_nibbles(K)) {
            const uint32_t bytes = words[2 * h + r] ^ (K == KIND_Q8 ? 0x80808080u : 0);
            u = __byte_perm(bytes, 0x64646464, c ? 0x4342 : 0x4140);
            u = halves_fma(u, 0x3c003c00, K == KIND_Q8 ? 0xe480e480 : 0xe400e400); /* - 1152, - 1024 */
        } else {
            u = bits_and_or(r ? w >> 8 : w, c ? 0x00f000f0 : 0x000f000f, 0x64006400);
            if (kind_high_bytes(K) == 4) u = bits_and_or(one < 0 ? high << -one : high >> one, c ? 0x01000100 : 0x00100010, u);
            if (kind_high_bytes(K) == 8) u = bits_and_or(two < 0 ? high << -two : high >> two, c ? 0x03000300 : 0x00300030, u);
            const uint32_t zero = kind_zero(K); /* - 1024 - zero; over 16 - 64 - zero */
            u = halves_fma(u, c ? 0x2c002c00 : 0x3c003c00, c ? 0xd400d400 + (zero << 20 | zero << 4) : 0xe400e400 + (zero << 16 | zero));
        }
        to[r + 2 * c] = kind_bricks(K) ? halves_fma(u, d[r], m[r]) : u;
    }
}

/* A warp's 32 rows of W of its span of a unit times all rows of x. */
template <int K, int T> DEVICE void band_multiply(const uint8_t *stage, int warp, int lane, const uint64_t *table, float (*acc)[T / 8][4]) {
    const uint8_t *bricks =
        stage + T * BAND_X + (4 * (warp & 3) + (warp >> 2)) * brick_bytes(K); /* the second one is behind the next span */
    const uint8_t *x = stage + ((lane >> 4) * 8 + (lane & 7)) * BAND_X + (warp >> 2) * 128;
    const int place = (lane >> 3 & 1) ^ (lane & 7);
#pragma unroll(T == 64 ? 1 : 2)
    for (int s = 0; s < BRICK_SUBS; s++) {
        lane_sub<K> p[2];
        UNROLL(i, 2) p[i] = lane_load_sub<K>(bricks + 2 * i * brick_bytes(K), lane, s);
        UNROLL(h, 2) {
            uint32_t wf[2][4];
            UNROLL(i, 2) {
                uint32_t d[2], m[2];
                band_scales<K>(bricks + 2 * i * brick_bytes(K), s, h, lane >> 2, d, m);
                band_step<K>(p[i], h, table, d, m, wf[i]);
            }
#pragma unroll
            for (int j = 0; j < T / 8; j += 2) {
                uint32_t xf[4];
                load_matrix_x4(xf, x + (place ^ (4 * s + 2 * h)) * 16 + 8 * j * BAND_X);
                UNROLL(i, 4) mma_16x8x16<true>(acc[i >> 1][j + (i & 1)], wf[i >> 1], xf + 2 * (i & 1));
            }
        }
    }
}

/* Units of a row of W, and bands of all rows. */
static __host__ __device__ __forceinline__ int band_units(int subs) { return (subs + BAND_SUBS - 1) / BAND_SUBS; }
DEVICE int band_count(const linear_args &a) { return (group_rows(a) + BAND_ROWS - 1) / BAND_ROWS; }

/* The first unit of a block. */
DEVICE int band_begin(const linear_args &a, unsigned block) {
    return (int)((int64_t)block * (band_count(a) * band_units(a.subs)) / gridDim.y);
}

/* Sums of two rows of W of row `row` of the tile, of both halves of the warps. */
DEVICE float2 band_pair(const float *sums, int rows, int row, int two) {
    const float2 u = *(const float2 *)(sums + row * BAND_STRIDE + two), v = *(const float2 *)(sums + (rows + row) * BAND_STRIDE + two);
    return make_float2(u.x + v.x, u.y + v.y);
}

/* Ends a band whose units [job[0], job[1]) this block has had, or leaves that piece, and ends the band if it was the last one: then job[2]
 * is not 0. sums (2, T, BAND_STRIDE): of either half of the warps. */
template <int T> DEVICE void band_end(const linear_args &a, const band_args &b, float *sums, int *job) {
    enum { THREADS = 32 * BAND_WARPS, PAIRS = BAND_ROWS / 2, BATCH = T / 8 };
    const int row0 = b.row0 + (int)blockIdx.x * T, n = min(T, *a.n_rows - row0), units = band_units(a.subs), band = job[0] / units,
              cut = job[1] - job[0] < units, blocks = (int)gridDim.y;
    const int64_t total = band_count(a) * units, base = (int64_t)blockIdx.x * blocks;
    const int from = (int)((((int64_t)band * units + 1) * blocks - 1) / total),
              to = (int)(((int64_t)(band + 1) * units * blocks - 1) / total);
    const tile t = {row0, n, 0};
    auto piece = [&](int block) { return (float2 *)(b.pieces + ((base + block) * 2 + (block == from)) * (T * BAND_ROWS)); };
    if (cut) {
        float2 *put = piece((int)blockIdx.y);
#pragma unroll 4
        for (int k = threadIdx.x; k < n * PAIRS; k += THREADS) put[k] = band_pair(sums, T, k / PAIRS, k % PAIRS * 2);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned *arrived = b.arrived + base + from;
            job[2] = atomicAdd(arrived, 1u) == (unsigned)(to - from);
            if (job[2]) atomicExch(arrived, 0u);
            __threadfence();
        }
        __syncthreads();
        if (!job[2]) return;
#pragma unroll 1
        for (int k0 = threadIdx.x; k0 < n * PAIRS; k0 += BATCH * THREADS) { /* many at once are on their way */
            float2 v[BATCH] = {};
#pragma unroll 2
            for (int block = from; block <= to; block++) {
                const float2 *get = piece(block);
                UNROLL(i, BATCH) {
                    const float2 u = k0 + i * THREADS < n * PAIRS ? __ldcg(get + k0 + i * THREADS) : make_float2(0, 0);
                    v[i].x += u.x, v[i].y += u.y;
                }
            }
            UNROLL(i, BATCH) { /* a thread's own, so without a barrier */
                const int k = k0 + i * THREADS;
                *(float2 *)(sums + k / PAIRS * BAND_STRIDE + k % PAIRS * 2) = v[i];
            }
        }
    }
#pragma unroll 1
    for (int k = threadIdx.x; k < n * PAIRS; k += THREADS) {
        const int row = k / PAIRS, two = k % PAIRS * 2, p = band * BAND_ROWS + two;
        const float2 v = cut ? *(const float2 *)(sums + row * BAND_STRIDE + two) : band_pair(sums, T, row, two);
        const float by = narrow_back(b.x, row0 + row);
        if (p < group_rows(a)) finish_pair(a, t, row0 + row, p, v.x * by, v.y * by);
    }
}

/* Computes: out (n, p) = finish(x (n, cols) W^T) of packed weights, n <= T rows a tile. Grid: (tiles, blocks), 8 warps. Reads: W once a
 * tile; x, T * 256 bytes a unit of 128 x 128 weights, from L2. Of Q4_0 a unit takes a warp 218, 242 and 317 instructions (T 16, 32 and 64),
 * 16, 32 and 64 of which are products: of 14,336 x 4,096 an H200's schedulers have 54 such units each, so 6.1, 6.7 and 8.8 us of their
 * slots, 3, 6 and 12 us of tensor cores (6.5 clocks a product), 8 us of memory, and 48, 63 and 92 MB of L2, at 5.5 TB/s 9, 11 and 17 us.
 * With the narrowing before it and both ends 15, 18 and 25 us are expected; widening takes 66 for any number of rows, so cuBLASLt wins from
 * some 200 on. Twin: llm__run_linear. */
template <int K, int T> static __global__ void __launch_bounds__(32 * BAND_WARPS, 2) kernel_linear_band(linear_args a, band_args b) {
    typedef band<K, T> B;
    DYN_SMEM(uint8_t, memory);
    SMEM(int, job, 3); /* registers are for sums: units [job[0], job[1]) of W, and whether this piece is the last */
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row0 = b.row0 + (int)blockIdx.x * T, n = min(T, *a.n_rows - row0);
    const int units = band_units(a.subs);
    const uint32_t x_row = (uint32_t)(b.x.stride / 16);
    const uint64_t table[2] = {a.w.table[0] ^ 0x8080808080808080u, a.w.table[1] ^ 0x8080808080808080u};
    uint8_t *to_w = memory + T * BAND_X + 2 * warp * brick_bytes(K) + 16 * lane;
    uint8_t *to_x = memory + (threadIdx.x >> 4) * BAND_X + ((threadIdx.x & 15) ^ (threadIdx.x >> 4 & 7)) * 16;
    if (n <= 0) return grid_wait();
#pragma unroll 1
    for (int u = band_begin(a, blockIdx.y); u < band_begin(a, blockIdx.y + 1);) {
        const int p0 = u / units * BAND_ROWS, first = u % units;
        int left = min(units - first, band_begin(a, blockIdx.y + 1) - u);
        if (threadIdx.x == 0) job[0] = u, job[1] = u + left;
        /* of a sixteen of rows that is not there the first one is copied */
        const int there = p0 + 32 * (warp & 3) < group_rows(a), p = p0 + 16 * warp < group_rows(a) ? p0 + 16 * warp : p0;
        /* where the next unit of either begins, in vectors */
        uint32_t w = (uint32_t)(p / BRICK_ROWS * 2 * units + 2 * first) * (brick_bytes(K) / 16) + (uint32_t)lane,
                 x = (uint32_t)(row0 + (int)(threadIdx.x >> 4)) * x_row + (uint32_t)first * (BAND_X / 16) + (threadIdx.x & 15);
        auto copy_w = [&](int stage) {
            const int vectors = 2 * brick_bytes(K) / 16;
#pragma unroll
            for (int k = 0; k < vectors; k += 32)
                if (k + 32 <= vectors || k + lane < vectors) copy_async_16(to_w + stage + 16 * k, (const uint4 *)a.w.q + w + k, 16);
            w += vectors;
        };
        auto copy_x = [&](int stage) {
            UNROLL(j, T / 16)
                copy_async_16(to_x + stage + j * 16 * BAND_X, (const uint4 *)b.x.x + (x + 16 * j * x_row),
                              (int)(threadIdx.x >> 4) + 16 * j < n ? 16 : 0);
            x += BAND_X / 16;
        };
        float acc[2][T / 8][4] = {};
#pragma unroll 1
        for (int i = 0; i < B::STAGES - 1; i++)
            if (left - i > 0) copy_w(i * B::BYTES);
        if (u == band_begin(a, blockIdx.y)) grid_wait();
#pragma unroll 1
        for (int i = 0; i < B::STAGES - 1; i++) {
            if (left - i > 0) copy_x(i * B::BYTES);
            copy_async_end();
        }
        int stage = 0;
#pragma unroll 1
        for (; left > 0; left--) {
            copy_async_wait<B::STAGES - 2>();
            __syncthreads();
            const int next = (stage ? stage : B::STAGES * B::BYTES) - B::BYTES;
            if (left - B::STAGES + 1 > 0) {
                copy_w(next);
                copy_x(next);
            }
            copy_async_end();
            if (there) band_multiply<K, T>(memory + stage, warp, lane, table, acc);
            stage = stage + B::BYTES < B::STAGES * B::BYTES ? stage + B::BYTES : 0;
        }
        copy_async_wait<0>();
        __syncthreads();
        float *sums = (float *)memory + ((warp >> 2) * T + 2 * (lane & 3)) * BAND_STRIDE + 32 * (warp & 3) + (lane >> 2);
        UNROLL(i, 2)
            UNROLL(j, T / 8)
                UNROLL(e, 4) sums[(8 * j + (e & 1)) * BAND_STRIDE + 16 * i + 8 * (e >> 1)] = acc[i][j][e];
        __syncthreads();
        band_end<T>(a, b, (float *)memory, job);
        u = job[1];
        __syncthreads();
    }
}

/* ============================================================================
 * >>linear_tiles   Tiles: many rows of each expert, and what stays f32.
 * ============================================================================
 * What an expert of many rows does with them is limited by arithmetic, and by how often x and W go through L2. So a block has 256 rows of W
 * and as many of x as registers have room for sums of, in 16 bits both: x is narrowed before (narrow_row), gathered row by row on its way
 * to shared memory, and W is made halves between shared memory and registers, as in bands. Columns go by in spans of 64, through a ring:
 *
 *     x     rows of 128 bytes, vector c of row r at place c ^ (r & 7)
 *     W     spans of 16 rows, as a lane of span_copy has them; warp w has sixteens w % 4 and 4 more of the first or second eight
 *
 * An instruction takes of W its first matrix, from registers, and of x the second: a warp's takes 8 rows of x, one of a warpgroup all of
 * them, straight from shared memory, while the next 16 columns of W are made. */

static constexpr int MMA_ROWS = 256, MMA_THREADS = 256, MMA_STRIDE = MMA_ROWS + 4; /* rows of W; floats between rows of sums */
static constexpr __host__ __device__ int mma_x(int by) { return by == BY_GROUPS ? 128 : 64; }

/* KEEP: spans that products may still read when the next one comes; x of a stage first, then W. */
template <int K, int BY> struct mma_ring {
    static constexpr int KEEP = BY == BY_GROUPS, X_BYTES = mma_x(BY) * 2 * SPAN, BYTES = X_BYTES + MMA_ROWS / BRICK_ROWS * span<K>::BYTES,
                         MOST = (BY == BY_GROUPS ? 200 : 80) * 1024 / BYTES, STAGES = MOST < 4 + KEEP ? MOST : 4 + KEEP,
                         SUMS = 64 * MMA_STRIDE * 4, /* which take the ring's place */
        SMEM_BYTES = (STAGES * BYTES > SUMS ? STAGES * BYTES : SUMS) + (BY == BY_GROUPS ? TILE_ALIGN : 0);
    static_assert(STAGES >= 2 + KEEP && BYTES % TILE_ALIGN == 0, "");
};

/* The form that activations have for kernel_linear_mma. */
static constexpr narrow_form mma_form(int kind) {
    return kind == KIND_BF16 ? NARROW_EIGHTS_BF16 : kind == KIND_F16 ? NARROW_EIGHTS : kind == KIND_F8 ? NARROW_SIXTEENS : NARROW_BRICKS;
}

/* A warp's 32 rows of W of a span, from `w` and 4 spans of 16 rows behind it, times all rows of x, of which n count. wf: W of two steps:
 * one is multiplied while the other is made, by warpgroups still when this ends. */
template <int K, int BY>
DEVICE void mma_multiply(const uint8_t *x, const uint8_t *w, int n, const uint64_t *table, uint32_t (*wf)[2][4],
                         float (*acc)[mma_x(BY) / 8][4]) {
    const bool HALF = K != KIND_BF16;
    const int lane = threadIdx.x & 31, place = (lane >> 3 & 1) ^ (lane & 7);
    const uint8_t *my_x = x + ((lane >> 4) * 8 + (lane & 7)) * 2 * SPAN;
#pragma unroll(BY == BY_WARPS ? 1 : 2)
    for (int s = 0; s < BRICK_SUBS; s++) {
        lane_sub<K> p[2];
        UNROLL(i, 2) p[i] = lane_load_sub<K>(w + 4 * i * span<K>::BYTES, lane, s);
        UNROLL(h, 2) {
            const int k = 2 * s + h;
            UNROLL(i, 2) {
                uint32_t d[2] = {}, m[2] = {};
                if constexpr (kind_bricks(K)) band_scales<K>(w + 4 * i * span<K>::BYTES, s, h, lane >> 2, d, m);
                band_step<K>(p[i], h, table, d, m, wf[h][i]);
            }
            if constexpr (BY == BY_GROUPS) {
#ifdef HAS_GROUPS
                group_fence<8>(wf[h][0]);
                UNROLL(i, 2) group_product_held<HALF, 128, 0>(acc[i][0], wf[h][i], shared_tile(x, 0) + 2 * k);
                group_end();
                group_wait<1, 8>(wf[h ^ 1][0]);
#endif
            } else {
#pragma unroll
                for (int j = 0; j < mma_x(BY) / 8; j += 2) {
                    uint32_t xf[4];
                    if (8 * j >= n) continue;
                    load_matrix_x4(xf, my_x + (place ^ 2 * k) * 16 + 8 * j * 2 * SPAN);
                    UNROLL(i, 4) mma_16x8x16<HALF>(acc[i >> 1][j + (i & 1)], wf[h][i >> 1], xf + 2 * (i & 1));
                }
            }
        }
    }
}

/* Outputs of rows [x0, x0 + 64) of x, by way of `sums` (64, MMA_STRIDE) in shared memory. */
template <int BY>
DEVICE void mma_finish(const linear_args &a, const tile &t, int p0, int x0, const float (*acc)[mma_x(BY) / 8][4], const float *back,
                       float *sums) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n = min(64, t.n - x0), pairs = MMA_ROWS / 2;
    float *mine = sums + 2 * (lane & 3) * MMA_STRIDE + 128 * (warp >> 2) + 16 * (warp & 3) + (lane >> 2);
    __syncthreads(); /* what is there has been read */
    UNROLL(i, 2)
        UNROLL(j, 8)
            UNROLL(e, 4) mine[(8 * j + (e & 1)) * MMA_STRIDE + 64 * i + 8 * (e >> 1)] = acc[i][(x0 / 8 + j) % (mma_x(BY) / 8)][e];
    __syncthreads();
#pragma unroll 1
    for (int k = threadIdx.x; k < n * pairs; k += MMA_THREADS) {
        const int row = k / pairs, two = k % pairs * 2;
        const float2 v = *(const float2 *)(sums + row * MMA_STRIDE + two);
        if (p0 + two < group_rows(a)) finish_pair(a, t, t.row + x0 + row, p0 + two, v.x * back[x0 + row], v.y * back[x0 + row]);
    }
}

/* Computes: out (n, p) = finish(x (n, cols) W^T) of an expert, n <= 64 or 128 rows a tile. Grid: (rows of W / 256, tiles), 8 warps. Reads:
 * of a span 16 or 8 KB of x and 9 (Q4_0) to 32 KB (bf16) of W from L2. Of Q4_0 by warpgroups a span takes 1,024 clocks of tensor cores (16
 * products of 64 x 128 x 16, 64 each), 680 slots of a scheduler (340 instructions of each of its two warps), and 25 KB, which at 5.5 TB/s
 * are 1,030 clocks of a multiprocessor's share; by warps, of half the rows, 830 clocks (6.5 a product), 1,060 slots, and 17 KB. Not
 * measured on a device yet. A row's bits depend on the row and on which of both ways it goes. Twin: llm__run_linear. */
template <int K, int BY>
static __global__ void __launch_bounds__(MMA_THREADS, BY == BY_GROUPS || (LATE_ARCH && !kind_bricks(K)) ? 1 : 2)
    kernel_linear_mma(linear_args a, narrow_view x) {
    typedef mma_ring<K, BY> R;
    enum { X = mma_x(BY), EACH = X / 32 };
    grid_wait();
    DYN_SMEM(uint8_t, memory);
    SMEM(tile, kept, 1);     /* registers are for sums */
    SMEM(uint32_t, from, X); /* where rows begin, in vectors of 16 bytes */
    SMEM(float, back, X);    /* what brings a row's sums back */
    const tile t = tile_at(a, (int)blockIdx.y, X);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, p0 = (int)blockIdx.x * MMA_ROWS, rows = group_rows(a),
              spans = (a.subs + BRICK_SUBS - 1) / BRICK_SUBS, sixteen = 8 * (warp >> 2) + (warp & 3), v = threadIdx.x & 7;
    if (!t.n) return;
    uint8_t *ring = memory;
#ifdef HAS_GROUPS
    if (BY == BY_GROUPS) ring += -shared_address(memory) & (TILE_ALIGN - 1);
#endif
    const uint64_t table[2] = {a.w.table[0] ^ 0x8080808080808080u, a.w.table[1] ^ 0x8080808080808080u};
    if ((int)threadIdx.x < X) {
        const int r = (int)threadIdx.x, row = r >= t.n ? 0 : a.row_of ? a.row_of[t.row + r] : t.row + r;
        from[r] = (uint32_t)(row * x.stride / 16);
        back[r] = r < t.n ? narrow_back(x, row) : 0;
    }
    if (threadIdx.x == 0) *kept = t;
    __syncthreads();
    const auto copy = [&](int at, int stage) {
        uint8_t *to = ring + stage * R::BYTES;
        if (at < spans) {
            UNROLL(i, 2) { /* of sixteen that are not there, the first */
                const int p = p0 + 16 * (sixteen + 4 * i);
                const uint32_t w = span_begin<K>(a.w, group_row(a, *kept, p < rows ? p : p0), lane);
                span_copy<K>(a.w, w, at, lane, to + R::X_BYTES + (sixteen + 4 * i) * span<K>::BYTES);
            }
            UNROLL(i, EACH) {
                const int r = (int)(threadIdx.x >> 3) + 32 * i;
                copy_async_16(to + r * 2 * SPAN + (v ^ (r & 7)) * 16, (const uint4 *)x.x + from[r] + at * (SPAN / 8) + v,
                              r < kept->n ? 16 : 0);
            }
        }
        copy_async_end();
    };
    float acc[2][X / 8][4] = {};
    uint32_t wf[2][2][4] = {};
#pragma unroll 1
    for (int i = 0; i < R::STAGES - 1 - R::KEEP; i++) copy(i, i);
    if constexpr (BY == BY_GROUPS) {
#ifdef HAS_GROUPS
        for (int i = 0; i < 2; i++) group_fence<X / 2>(acc[i][0]);
#endif
    }
    int stage = 0, next = R::STAGES - 1 - R::KEEP;
#pragma unroll 1
    for (int at = 0; at < spans; at++) {
        copy_async_wait<R::STAGES - 2 - R::KEEP>();
#ifdef HAS_GROUPS
        if (BY == BY_GROUPS) shared_fence();
#endif
        __syncthreads();
        copy(at + R::STAGES - 1 - R::KEEP, next);
        const uint8_t *here = ring + stage * R::BYTES;
        mma_multiply<K, BY>(here, here + R::X_BYTES + sixteen * span<K>::BYTES, kept->n, table, wf, acc);
        stage = stage + 1 < R::STAGES ? stage + 1 : 0, next = next + 1 < R::STAGES ? next + 1 : 0;
    }
    copy_async_wait<0>();
#ifdef HAS_GROUPS
    for (int i = 0; i < 2 && BY == BY_GROUPS; i++) group_wait<0, X / 2>(acc[i][0]);
#endif
#pragma unroll
    for (int x0 = 0; x0 < X; x0 += 64)
        if (x0 < kept->n) mma_finish<BY>(a, *kept, p0, x0, acc, back, (float *)ring);
}

/* Computes the same in f32, for weights that stay f32. Grid: (rows of W / 64, tiles), 256 threads of 4 x 4 outputs. Tiles lie column by
 * column in shared memory, so that a thread reads its 4 rows of either with one vector load. Twin: llm__run_linear. */
static __global__ void __launch_bounds__(256, 2) kernel_linear_f32(linear_args a) {
    grid_wait();
    SMEM(float, xs, 32 * 68);
    SMEM(float, ws, 32 * 68);
    tile t = tile_at(a, (int)blockIdx.y, TILE);
    int rows = group_rows(a), n0 = (int)blockIdx.x * TILE, tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    float sum[4][4] = {};
    if (!t.n) return;
    for (int sub = 0; sub < a.subs; sub++) {
        for (int k = threadIdx.x >> 5; k < TILE; k += 8) { /* a warp has 8 columns of 4 rows: whole sectors, and each bank once */
            int row = k / 4 * 4 + (threadIdx.x >> 3 & 3), i = k % 4 * 8 + (threadIdx.x & 7), c = sub * 32 + i;
            xs[i * 68 + row] = row < t.n && c < a.cols ? x_row(a, t, row)[c] : 0;
            ws[i * 68 + row] = n0 + row < rows ? ((const float *)a.w.q)[(group_row(a, t, n0 + row) * a.subs + sub) * 32 + i] : 0;
        }
        __syncthreads();
        for (int k = 0; k < 32; k++) {
            float4 u = *(const float4 *)(xs + k * 68 + ty * 4), v = *(const float4 *)(ws + k * 68 + tx * 4);
            const float xv[4] = {u.x, u.y, u.z, u.w}, wv[4] = {v.x, v.y, v.z, v.w};
            UNROLL(i, 4)
                UNROLL(j, 4) sum[i][j] += xv[i] * wv[j];
        }
        __syncthreads();
    }
    UNROLL(i, 4)
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            int row = ty * 4 + i, p = n0 + tx * 4 + j;
            if (row < t.n && p < rows) finish_pair(a, t, t.row + row, p, sum[i][j], sum[i][j + 1]);
        }
}

/* Twice as many warps share the columns where there are few rows of W; not of experts, whose tiles are many. Where blocks have 99 KiB of
 * shared memory some kinds have room for 6 or 7 warps alone. How many does not depend on T, for the order of sums is theirs. */
template <int K, int T> static void launch_rows(rank *r, const linear_args &a, int rows, int tiles) {
    const int blocks = ceil_div(rows, 16 * ROWS_MT), beside = X_ROWS * ROWS_WARPS * 32 * 4 + 2048,
              most = (r->max_smem - beside) / rows_warp_smem<K, X_ROWS>();
    const int wide = r->wide && !a.begin && blocks < 2 * r->n_sms, warps = min_int(most, wide ? ROWS_WARPS : ROWS_WARPS / 2);
    launch<kernel_linear_rows<K, T>>(r, {tiles, blocks}, 32 * warps, (size_t)(warps * rows_warp_smem<K, T>()), a);
}

static constexpr int FEW_ROWS = 8; /* up to so many rows a product takes the norm before it, see list_fuse */
static int few_rows(const rank *r, int rows) { return rows <= FEW_ROWS && !r->ctx->cfg.batch_invariant; }

/* The form in which kernel_linear_mma takes activations of experts that have about `each` rows; NONE: they go by kernels that read f32. */
static narrow_form experts_form(const rank *r, const llm_weight *w, int each) {
    const narrow_form form = mma_form(w->parts[0].kind);
    for (int i = 0; i < w->n_parts; i++)
        if (w->parts[i].kind == KIND_F32 || mma_form(w->parts[i].kind) != form) return NARROW_NONE;
    return each > 16 && !r->ctx->cfg.batch_invariant ? form : NARROW_NONE;
}

/* One part of experts' rows, n_rows in all, of x in the kind's form. */
static void launch_mma(rank *r, const linear_args &a, const narrow_view &x, int n_rows, int by) {
    const launch_grid grid = {ceil_div(group_rows(a), MMA_ROWS), min_int(n_rows, (int64_t)ceil_div(n_rows, mma_x(by)) + a.n_groups)};
    with_constant<KIND_F32 + 1, KIND_COUNT - 1>(a.w.kind, [&](auto kind) {
        with_constant<BY_WARPS, BY_GROUPS>(by, [&](auto way) {
            launch<kernel_linear_mma<kind.value, way.value>>(r, grid, MMA_THREADS, (size_t)mma_ring<kind.value, way.value>::SMEM_BYTES, a,
                                                             x);
        });
    });
}

/* Rows of x a tile, of n in all, where a group has about `each`: as many as its kernel takes, and no more than needed. */
static int tile_rows(const rank *r, const linear_args &a, int n, int each) {
    const int invariant = r->ctx->cfg.batch_invariant;
    if (a.w.kind == KIND_F32) return each <= 1 && !a.begin && !invariant ? 1 : few_rows(r, each) ? 4 : TILE;
    return (n <= 1 || (a.begin && n <= 8)) && !(invariant && kind_16bit(a.w.kind)) ? 1 : X_ROWS; /* a row, or an expert of a row */
}

/* One part, with so many of its rows in a group, and tiles of so many rows of x. */
static void launch_product(rank *r, const linear_args &a, int rows, int size, int tiles) {
    const launch_grid wide = {ceil_div(rows, TILE), tiles}, few = {ceil_div(rows, 16), tiles};
    with_constant<0, KIND_COUNT - 1>(a.w.kind, [&](auto kind) {
        constexpr int K = kind.value;
        if constexpr (K == KIND_F32) {
            if (size == 1) launch<kernel_linear_few<K, 1>>(r, few, 256, 0, a);
            else if (size == 4) launch<kernel_linear_few<K, 4>>(r, few, 256, 0, a);
            else launch<kernel_linear_f32>(r, wide, 256, 0, a);
        } else if constexpr (kind_16bit(K)) {
            if (size == 1) launch<kernel_linear_few<K, 1>>(r, few, 256, 0, a);
            else launch_rows<K, X_ROWS>(r, a, rows, tiles);
        } else if (size == 1) launch_rows<K, 1>(r, a, rows, tiles);
        else launch_rows<K, X_ROWS>(r, a, rows, tiles);
    });
}

/* ============================================================================
 * >>linear_many   Many rows, by NVIDIA's own products; and which way a product takes.
 * ============================================================================ */

/* From so many rows on cuBLASLt is faster than our tiles, as an H200 has it: packed weights are widened first, and e4m3 is multiplied by
 * e4m3. */
static int library_rows(int kind) { return kind <= KIND_F8 ? 9 : 193; }

/* Computes: to (T, K) = x (T, cols) in a narrow form, zeros in rows that are not there. Grid: T, a thread every 256th four. Twin: what
 * llm__run_linear reads, e4m3 rounded as fp8 weights are. */
static __global__ void __launch_bounds__(256) kernel_narrow(linear_args a, narrow_view to) {
    grid_wait();
    const int row = (int)blockIdx.x, there = row < *a.n_rows, whole = x_whole(a);
    const float *x = a.x + row * a.x_stride;
    narrow_row(to, row, [&](int c) { return there ? load_x4(a, x, c, whole) : make_float4(0, 0, 0, 0); });
}

/* Computes: out (T, n) *= what brings rows of x back, where that is not 1. Grid: T. Twin: none, what it does is in llm__run_linear's
 * sums. */
static __global__ void __launch_bounds__(256) kernel_rescale(const int32_t *n_rows, narrow_view x, float *out, int64_t stride, int n) {
    grid_wait();
    float by = (int)blockIdx.x < *n_rows ? narrow_back(x, (int)blockIdx.x) : 1;
    for (int i = threadIdx.x; i < n && by != 1; i += 256) out[blockIdx.x * stride + i] *= by;
}

/* Computes: to (n, K) = rows [first, first + n) of a packed part as halves; first by the 16. Grid: (bricks of a row / 4, n / 16), a warp a
 * brick, as its lanes have it. Twin: llm__dequant_columns. */
template <int K> static __global__ void __launch_bounds__(128) kernel_widen(part w, int64_t first, int64_t n, uint16_t *to) {
    grid_wait();
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, i = (int)blockIdx.x * 4 + (threadIdx.x >> 5);
    if (i >= ceil_div(w.subs, BRICK_SUBS)) return;
    if constexpr (K == KIND_F8) {
        const int64_t row = 16 * (int64_t)blockIdx.y + lane / 2, sub = BRICK_SUBS * i + lane % 2;
        for (int h = 0; h < 2 && row < n && sub < w.subs; h++) {
            float v[16];
            load16<K>(w, first + row, (int)sub, h, v);
            store_narrow<true>(to + (row * w.subs + sub) * 32 + 16 * h, v);
        }
        return;
    }
    const uint8_t *brick = brick_at(w, brick_bytes(K), first + 16 * (int64_t)blockIdx.y, i);
    const lane_sub<K> subs[2] = {lane_load_sub<K>(brick, lane, 0), lane_load_sub<K>(brick, lane, 1)};
    UNROLL(k, 8) { /* sub, row and step */
        const int s = k >> 2, r = k >> 1 & 1, h = k & 1, bytes = kind_scale_bytes(K);
        const int64_t row = 16 * (int64_t)blockIdx.y + 8 * r + g;
        const uint8_t *d = brick + brick_scales(K) + ((s * 8 + g) * 2 + r) * bytes + (bytes == 8 ? 4 * h : 0);
        const uint32_t q = kind_nibbles(K) ? subs[s].words[h] >> (8 * r) : subs[s].words[2 * h + r],
                       high = subs[s].high >> (8 * r + kind_high_bytes(K) / 2 * h);
        float v[4];
        scaled4<K>(q, kind_high_bytes(K) ? high : 0, bytes == 2 ? *(const uint16_t *)d : *(const uint32_t *)d, h, w.table, v);
        if (row < n && BRICK_SUBS * i + s < w.subs)
            *(uint2 *)(to + (row * w.subs + BRICK_SUBS * i + s) * 32 + 16 * h + 4 * t) =
                make_uint2(narrow_pair<true>(v[0], v[1]), narrow_pair<true>(v[2], v[3]));
    }
}

/* Computes: out (T, ...) = finish(y (T, n) * what brings rows of x back), of rows [first, first + n) of a part; or `to` so. Halves that do
 * not fit are cut off, and `most` (T) of the row, else 0, says so: a second launch with `again` has y still, and does such rows once more,
 * smaller. Grid: (T, n / 256), again (T, 1), a thread two rows of W. Twin: llm__body_finish. */
static __global__ void __launch_bounds__(128)
    kernel_finish(linear_args a, const float *y, narrow_view x, int first, int n, narrow_view to, unsigned *most, int again) {
    grid_wait();
    const int row = (int)blockIdx.x;
    const tile t = {0, 0, 0};
    if (row >= *a.n_rows) return;
    const float back = narrow_back(x, row), by = again ? half_scale(__uint_as_float(most[row])) : 1;
    uint16_t *narrow = (uint16_t *)(to.x + row * to.stride);
    float top = 0;
    y += (int64_t)row * n;
    if (again) {
        __syncthreads();
        if (threadIdx.x == 0) most[row] = 0, *(float *)((uint8_t *)to.scales + row * to.stride) = 1 / by;
        if (by == 1) return;
    }
    for (int p = 2 * ((int)blockIdx.y * 128 + (int)threadIdx.x); p < n; p += 256 * (int)gridDim.y) {
        float v[2] = {y[p] * back, p + 1 < n ? y[p + 1] * back : 0};
        int64_t col;
        const int outs = finish_sums(a, t, row, first + p, v, &col);
        if (to.form) {
            const float u0 = finish_value(a, v[0]), u1 = outs == 2 ? finish_value(a, v[1]) : 0;
            const uint32_t two = narrow_two(to.form, u0 * by, u1 * by);
            top = fmaxf(top, fmaxf(fabsf(u0), fabsf(u1)));
            narrow[col] = (uint16_t)two;
            if (outs == 2) narrow[col + 1] = (uint16_t)(two >> 16);
        } else {
            finish_one(a, row, col, v[0]);
            if (outs == 2) finish_one(a, row, col + 1, v[1]);
        }
    }
    if (to.form == NARROW_HALF && !again && top > 65504.0f) atomicMax(most + row, __float_as_uint(top));
}

/* e4m3 weights are multiplied as they are where tensor cores take them (sm_89 on), by activations of the same type: half the bytes and
 * twice the rate of halves. The library wants sizes by the 16. */
static int native_f8(const rank *r, const linear_args &a) { return a.w.kind == KIND_F8 && r->capability >= 89 && a.w.n_rows % 16 == 0; }

/* Values of a row in a form, and bytes, on 16 each, with the scale behind them. */
static int narrow_cols(narrow_form form, int subs) {
    return form == NARROW_BRICKS ? band_units(subs) * 32 * BAND_SUBS : form > NARROW_BRICKS ? ceil_div(subs, BRICK_SUBS) * SPAN : 32 * subs;
}
static size_t narrow_bytes(narrow_form form, int subs) { return (size_t)narrow_cols(form, subs) * (form == NARROW_E4M3 ? 1 : 2) + 16; }

/* Rows of `stride` bytes at x; scales are in their last four. */
static narrow_view narrow_at(narrow_form form, int subs, void *x, int64_t stride) {
    narrow_view v = {form, narrow_cols(form, subs), (uint8_t *)x, stride, NULL};
    if (!narrow_bf16(form)) v.scales = (float *)(v.x + stride) - 1;
    return v;
}

/* How cuBLASLt multiplies a part. */
typedef struct library_plan {
    narrow_form form;
    int as_is, direct; /* weights are not widened; the library writes the result */
    size_t before;     /* bytes of scratch for x */
    int64_t most;      /* rows of W at once; 0: there is no memory for it */
} library_plan;

/* Packed weights are widened, as many rows as the scratch memory has room for, which costs little beside a product of so many rows; what
 * the epilogue does is a kernel behind, unless there is nothing to do.
 *
 *     scratch    x (T, K) narrowed, with scales of its rows | widened (most, K) | y (T, most)
 *
 * The library may write the result itself; then a row that was scaled is brought back behind it, which a sum with what was there does not
 * allow. */
static library_plan library_plan_of(const rank *r, const linear_args &a, int n_rows) {
    library_plan p = {native_f8(r, a) ? NARROW_E4M3 : a.w.kind == KIND_BF16 ? NARROW_BF16 : NARROW_HALF};
    const int64_t V = a.w.n_rows;
    p.as_is = p.form == NARROW_E4M3 || a.w.kind == KIND_F16 || a.w.kind == KIND_BF16;
    p.direct = p.form != NARROW_E4M3 && !(p.form == NARROW_HALF && a.add) && !a.gate_up && !a.row_scale && !a.bias && !a.plus &&
               a.act == LLM_ACT_NONE && a.scale == 1 && a.softcap <= 0 &&
               (uintptr_t)(a.out + a.w.row) % 256 == 0; /* which is what the library takes addresses for */
    p.before = align256((size_t)n_rows * narrow_bytes(p.form, a.subs));
    const size_t each = (p.as_is ? 0 : (size_t)a.subs * 64) + (p.direct ? 0 : (size_t)n_rows * 4);
    if (p.before + 256 >= r->scratch_bytes) return p;
    p.most = each ? (int64_t)((r->scratch_bytes - p.before - 256) / each) : V;
    p.most = p.most < V ? p.most / 64 * 64 : V;
    return p;
}

/* One part by cuBLASLt, of x in the plan's form. */
static void run_library(rank *r, const linear_args &a, const library_plan &plan, const narrow_view &x, int n_rows) {
    const int bytes = plan.form == NARROW_E4M3 ? 1 : 2, most = (int)plan.most;
    const int type = plan.form == NARROW_E4M3 ? CUBLAS_E4M3 : plan.form == NARROW_BF16 ? CUBLAS_BF16 : CUBLAS_F16;
    const int64_t V = a.w.n_rows, K = (int64_t)a.subs * 32;
    uint8_t *widened = r->scratch + plan.before;
    float *y = (float *)(widened + (plan.as_is ? 0 : align256((size_t)most * (size_t)K * 2)));
    narrow_view to = {};
    if (a.out_form) to = narrow_at(a.out_form, 0, a.out, a.out_stride * 4);
    for (int64_t first = 0, n; first < V && !r->failed; first += n) {
        const uint8_t *w = plan.as_is ? a.w.q + first * K * bytes : widened;
        n = V - first < most ? V - first : most;
        if (!plan.as_is)
            with_constant<KIND_F8, KIND_COUNT - 1>(a.w.kind, [&](auto kind) {
                launch<kernel_widen<kind.value>>(r, {ceil_div(a.subs, 4 * BRICK_SUBS), ceil_div(n, BRICK_ROWS)}, 128, 0, a.w, first, n,
                                                 (uint16_t *)widened);
            });
        float *out = a.out + a.w.row + first;
        if (plan.direct) {
            cublas_multiply(r, type, x.x, x.stride / bytes, w, out, n_rows, n, K, a.out_stride, a.add);
            if (x.scales) launch<kernel_rescale>(r, {n_rows}, 256, 0, a.n_rows, x, out, a.out_stride, (int)n);
            continue;
        }
        cublas_multiply(r, type, x.x, x.stride / bytes, w, y, n_rows, n, K, n, 0);
        for (int again = 0; again <= (a.out_form == NARROW_HALF); again++)
            launch<kernel_finish>(r, {n_rows, again ? 1 : ceil_div(n, 256)}, 128, 0, a, (const float *)y, x, (int)first, (int)n, to,
                                  r->most, again);
    }
}

/* Tiles of T rows of x, from row b.row0 on. */
template <int T> static void launch_bands(rank *r, const linear_args &a, const band_args &b, int tiles, int blocks) {
    with_constant<KIND_F8 + 1, KIND_COUNT - 1>(a.w.kind, [&](auto kind) {
        if constexpr (T <= band_most<kind.value>())
            launch<kernel_linear_band<kind.value, T>>(r, {tiles, blocks}, 32 * BAND_WARPS, (size_t)band<kind.value, T>::SMEM_BYTES, a, b);
    });
}

/* How kernel_linear_band multiplies a part. A multiprocessor has two blocks where there is work for them, else one: each piece of a band
 * goes through memory once more.
 *
 *     scratch    x (T, K) narrowed, with scales of its rows | pieces of bands */
typedef struct band_plan {
    int blocks, large, most; /* rows of a tile, at most; tiles of a launch, 0: there is no memory for one */
    size_t before;           /* bytes of scratch for x */
} band_plan;

static band_plan band_plan_of(const rank *r, const linear_args &a, int n_rows) {
    const int total = ceil_div(a.w.n_rows, BAND_ROWS) * band_units(a.subs);
    band_plan p = {total >= 16 * r->n_sms ? 2 * r->n_sms : min_int(total, r->n_sms), 32};
    with_constant<KIND_F8 + 1, KIND_COUNT - 1>(a.w.kind, [&](auto kind) {
        if (band_most<kind.value>() == 64 && band<kind.value, 64>::SMEM_BYTES <= r->max_smem - 1024) p.large = 64;
    });
    p.before = align256((size_t)n_rows * narrow_bytes(NARROW_BRICKS, a.subs));
    const size_t each = (size_t)p.blocks * 2 * (size_t)p.large * BAND_ROWS * sizeof(float);
    if (p.before < r->scratch_bytes) p.most = min_int((int64_t)((r->scratch_bytes - p.before) / each), BAND_TILES);
    return p;
}

/* One part, packed, by kernel_linear_band, of x in the order of bricks. */
static void run_bands(rank *r, const linear_args &a, const band_plan &plan, const narrow_view &x, int n_rows) {
    const int large = plan.large, blocks = plan.blocks;
    band_args b = {.x = x, .pieces = (float *)(r->scratch + plan.before), .arrived = r->arrived};
    while (b.row0 < n_rows) {
        const int left = n_rows - b.row0, tiles = max_int(1, min_int(left / large, plan.most));
        if (left <= 16) launch_bands<16>(r, a, b, 1, blocks);
        else if (left <= 32) launch_bands<32>(r, a, b, 1, blocks);
        else if (large == 64) launch_bands<64>(r, a, b, tiles, blocks);
        else launch_bands<32>(r, a, b, tiles, blocks);
        b.row0 += left <= 32 ? left : tiles * large;
    }
}

/* The form in which a part's product takes activations, and so which way it goes; NONE: by kernels that read f32. */
static narrow_form product_form(const rank *r, const linear_args &a, int n_rows) {
    const int kind = a.w.kind;
    if (a.begin || a.rms || r->ctx->cfg.batch_invariant) return NARROW_NONE;
    if (r->cublas && kind != KIND_F32 && n_rows >= library_rows(kind)) {
        const library_plan plan = library_plan_of(r, a, n_rows);
        if (plan.most) return plan.form;
    }
    return n_rows > FEW_ROWS && kind_bricks(kind) && band_plan_of(r, a, n_rows).most ? NARROW_BRICKS : NARROW_NONE;
}

/* `a` with everything in it that depends on the weight, but for the part. */
static linear_args product_args(const llm_weight *w, const llm_weight *bias, const llm_buffer *plus, linear_args a) {
    a.cols = (int32_t)w->cols;
    a.subs = w->subs;
    a.n_groups = w->n_groups;
    a.per_group = (int32_t)(w->rows / w->n_groups);
    a.gate_up = w->gate_up;
    a.row_scale = w->row_scale;
    a.bias = f32_of(bias);
    a.plus = plus ? plus->data : NULL;
    a.plus_stride = plus ? plus->stride : 0;
    return a;
}

/* One launch a part, or some. n_rows: of this launch at most; with groups, in all. x: activations that are narrow already; where a part
 * takes another form, a.x is narrowed. */
static void run_product(rank *r, const llm_weight *w, linear_args a, int n_rows, narrow_view x = {}) {
    const int groups = a.begin ? w->n_groups : 1, each = ceil_div(n_rows, groups);
    for (int i = 0; i < w->n_parts; i++) {
        a.w = w->parts[i];
        const narrow_form form = product_form(r, a, n_rows);
        if (form && form != x.form) {
            x = narrow_at(form, a.subs, r->scratch, (int64_t)narrow_bytes(form, a.subs));
            launch<kernel_narrow>(r, {n_rows}, 256, 0, a, x);
        }
        if (a.begin && x.form) {
            const int wide = each > mma_x(BY_WARPS) && (r->expert_groups >> a.w.kind & 1);
            launch_mma(r, a, x, n_rows, wide ? BY_GROUPS : BY_WARPS);
        } else if (form == NARROW_BRICKS) run_bands(r, a, band_plan_of(r, a, n_rows), x, n_rows);
        else if (form) run_library(r, a, library_plan_of(r, a, n_rows), x, n_rows);
        else {
            const int rows = w->n_groups == 1 ? (int)a.w.n_rows : a.per_group, size = tile_rows(r, a, n_rows, each);
            const int tiles = a.begin ? min_int(n_rows, (int64_t)ceil_div(n_rows, size) + groups) : ceil_div(n_rows, size);
            launch_product(r, a, rows, size, tiles);
        }
    }
}

/* How many rows an operation's grid covers, and the device's count of those that there are: the first is fixed in a graph, the second comes
 * with each step. */
static int padded_rows(const rank *r, llm_rows rows) { return rows == LLM_ROWS_OUT ? r->ctx->padded.n_out : r->ctx->padded.n_rows; }
static const int32_t *device_rows(const rank *r, llm_rows rows) { return r->view.head + (rows == LLM_ROWS_OUT ? HEAD_OUT : HEAD_ROWS); }

typedef struct xielu_numbers {
    float p, n, b, e; /* see LLM_ACT_XIELU */
} xielu_numbers;

/* Computes: x (rows, n) = xIELU(x) * scale. Grid: (rows, n / 128). A kernel of its own, for in the epilogue, where one family would have
 * it, all products take more registers. Twin: llm__xielu. */
static __global__ void __launch_bounds__(128) kernel_xielu(const int32_t *n_rows, rows_view x, int n, xielu_numbers a, float scale) {
    grid_wait();
    int i = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    if ((int)blockIdx.x >= *n_rows || i >= n) return;
    float *at = x[blockIdx.x] + i, g = *at;
    *at = (g > 0 ? (a.p * g + a.b) * g : a.n * (expm1f(fminf(g, a.e)) - g) + a.b * g) * scale;
}

static void run_xielu(rank *r, const llm_linear_op *op) {
    const xielu_numbers a = {op->xielu[0], op->xielu[1], op->xielu[2], op->xielu[3]};
    const int n = (int)op->weight->rows;
    if (op->weight->gate_up || op->add) return rank_fail(r, LLM_ERR_UNSUPPORTED, "xIELU with a gate, or added to what is there");
    launch<kernel_xielu>(r, {padded_rows(r, op->rows), ceil_div(n, 128)}, 128, 0, device_rows(r, op->rows), rows_of(op->dst, op->dst_col),
                         n, a, op->scale != 0 ? op->scale : 1.0f);
}

/* A record's product, with what list_fuse has joined to it. */
static linear_args linear_args_of(const rank *r, const record *rec) {
    const llm_linear_op *op = &rec->op.linear;
    const int xielu = op->act == LLM_ACT_XIELU;
    const llm_buffer *src = rec->norm ? rec->norm->x : op->src, *dst = rec->onto ? rec->onto : op->dst;
    linear_args a = {.x = src->data + op->src_col,
                     .x_stride = src->stride,
                     .out = dst->data + op->dst_col,
                     .out_stride = dst->stride,
                     .n_rows = device_rows(r, op->rows),
                     .act = xielu ? LLM_ACT_NONE : op->act,
                     .add = op->add || rec->onto,
                     .scale = (op->scale != 0 && !xielu ? op->scale : 1) * (rec->onto ? rec->by : 1),
                     .limit = op->limit,
                     .out_form = rec->leaves};
    if (rec->norm) a.rms = 1, a.norm = f32_of(rec->norm->weight), a.eps = rec->norm->eps;
    return product_args(op->weight, op->bias, op->plus, a);
}

/* Twin: llm__run_linear_op. */
static void run_linear(rank *r, const record *rec) {
    const llm_linear_op *op = &rec->op.linear;
    narrow_view x = {};
    if (rec->finds) x = narrow_at(rec->finds, op->weight->subs, op->src->data, op->src->stride * 4);
    if (!rec->scaled) x.scales = NULL;
    run_product(r, op->weight, linear_args_of(r, rec), padded_rows(r, op->rows), x);
    if (op->act == LLM_ACT_XIELU) run_xielu(r, op);
}

/* ============================================================================
 * >>linear_fused   Products that do what stands around them.
 * ============================================================================ */

enum { USE_NONE, USE_READ, USE_WRITE };

static int one_of(const llm_buffer *b, std::initializer_list<const llm_buffer *> all) {
    for (const llm_buffer *x : all)
        if (x == b) return 1;
    return 0;
}

/* What a record does with a buffer first; of kinds that are not told apart it is reading. */
static int record_uses(const record *rec, const llm_buffer *b) {
    const llm_residual_op *res = &rec->op.residual;
    const llm_linear_op *lin = &rec->op.linear;
    const llm_experts_op *exp = &rec->op.experts;
    const llm_lora_op *lora = &rec->op.lora;
    const llm_streams_op *str = &rec->op.streams;
    switch (rec->kind) {
    case OP_RESIDUAL: return res->x == b || res->y == b ? USE_READ : res->h == b && res->kind ? USE_WRITE : USE_NONE;
    case OP_LINEAR:
        if (lin->src == b || lin->plus == b || (lin->dst == b && (lin->add || lin->dst_col))) return USE_READ;
        return lin->dst == b ? USE_WRITE : USE_NONE;
    case OP_QKV: return one_of(b, {rec->op.qkv.qkv, rec->op.qkv.rope}) ? USE_READ : USE_NONE;
    case OP_ATTENTION: return rec->op.attention.qkv == b ? USE_READ : rec->op.attention.dst == b ? USE_WRITE : USE_NONE;
    case OP_NORM: return one_of(b, {rec->op.norm.src, rec->op.norm.dst}) ? USE_READ : USE_NONE;
    case OP_ROUTE: return one_of(b, {rec->op.route.logits, rec->op.route.dst}) ? USE_READ : USE_NONE;
    case OP_EXPERTS: return one_of(b, {exp->src, exp->routes, exp->dst, exp->low, exp->plus}) ? USE_READ : USE_NONE;
    case OP_GATE: return one_of(b, {rec->op.gate.gate, rec->op.gate.dst}) ? USE_READ : USE_NONE;
    case OP_GATHER: return one_of(b, {rec->op.gather.src, rec->op.gather.dst}) ? USE_READ : USE_NONE;
    case OP_LOGITS: return one_of(b, {rec->op.logits.src, rec->op.logits.plus}) ? USE_READ : USE_NONE;
    case OP_LORA: return one_of(b, {lora->src, lora->low, lora->dst}) ? USE_READ : USE_NONE;
    case OP_ALL_REDUCE: return rec->op.reduce.buf == b ? USE_READ : USE_NONE;
    case OP_CONV: return rec->op.conv.buf == b ? USE_READ : rec->op.conv.dst == b ? USE_WRITE : USE_NONE;
    case OP_RECUR: return rec->op.recur.src == b ? USE_READ : rec->op.recur.dst == b ? USE_WRITE : USE_NONE;
    case OP_STREAMS: return one_of(b, {str->x, str->gate, str->y}) ? USE_READ : str->dst == b ? USE_WRITE : USE_NONE;
    case OP_INDEX: return one_of(b, {rec->op.index.q, rec->op.index.k, rec->op.index.rope, rec->op.index.dst}) ? USE_READ : USE_NONE;
    default: return USE_READ;
    }
}

/* What becomes first of what a buffer has behind record i. */
static int record_next_use(const rank *r, int i, const llm_buffer *b) {
    int use = USE_NONE;
    while (++i < r->n && !use) use = record_uses(&r->list[i], b);
    return use;
}
static int record_dead(const rank *r, int i, const llm_buffer *b) { return record_next_use(r, i, b) == USE_WRITE; }

/* Whether record i is a product that alone reads what a residual record leaves in h, all of it. */
static int record_alone_reads(const rank *r, int i, const llm_residual_op *res) {
    const llm_linear_op *lin = &r->list[i].op.linear;
    return i < r->n && r->list[i].kind == OP_LINEAR && lin->src == res->h && lin->plus != res->h && !lin->src_col &&
           lin->rows == res->rows && lin->weight->cols == res->x->cols && record_dead(r, i, res->h);
}

/* Whether record i is a product whose result a residual record adds to x, and nothing else. */
static int record_only_adds(const rank *r, int i, const llm_residual_op *res) {
    const llm_linear_op *lin = &r->list[i].op.linear;
    return i >= 0 && r->list[i].kind == OP_LINEAR && lin->dst == res->y && !lin->dst_col && !lin->add && lin->rows == res->rows &&
           lin->weight->rows == res->x->cols && !lin->weight->gate_up && lin->src != res->x && record_dead(r, i + 1, res->y);
}

/* Of few rows a norm between two products is done by both: the one before adds to x, the one behind norms what it reads, and the record
 * itself goes. So a layer is two launches less. Sums over ranks stand between, and other norms than RMS or with more to do. */
static void list_fuse(rank *r) {
    for (int i = 0; i < r->n; i++) {
        record *rec = &r->list[i];
        rec->done = rec->scaled = 0, rec->onto = NULL, rec->norm = NULL, rec->qkv = NULL, rec->leaves = rec->finds = NARROW_NONE;
    }
    for (int i = 0; i < r->n && r->ctx->n_group == 1; i++) {
        const llm_residual_op *res = &r->list[i].op.residual;
        if (r->list[i].kind != OP_RESIDUAL || res->kind != LLM_NORM_RMS || res->bias || res->replace || res->post_kind ||
            res->post_weight || (res->x_scale != 0 && res->x_scale != 1))
            continue;
        if (!few_rows(r, padded_rows(r, res->rows))) continue;
        if (!record_alone_reads(r, i + 1, res) || (res->y && !record_only_adds(r, i - 1, res))) continue;
        if (res->y) r->list[i - 1].onto = res->x, r->list[i - 1].by = res->scale != 0 ? res->scale : 1;
        r->list[i + 1].norm = res;
        r->list[i].done = 1;
    }
}

/* This rank's share of the logits, to its own buffer (max_out, widest): as wide as the widest share, so that one all-gather puts equal
 * pieces together. Twin: llm__run_logits_op. */
static void run_logits(rank *r, const llm_logits_op *op) {
    const linear_args a = {.x = op->src->data,
                           .x_stride = op->src->stride,
                           .out = r->logits,
                           .out_stride = r->ctx->widest,
                           .n_rows = device_rows(r, LLM_ROWS_OUT),
                           .scale = op->scale != 0 ? op->scale : 1,
                           .softcap = op->softcap};
    run_product(r, op->head, product_args(op->head, op->bias, op->plus, a), padded_rows(r, LLM_ROWS_OUT));
}

/* ============================================================================
 * >>norm   Embedding, rotary tables, norms, gathering: one block a row.
 * ============================================================================
 * What is done for each row by itself, and is bound by memory: a row of D values is read and written once, by the threads of one block, in
 * steps of the block's width, so that neighbouring threads have neighbouring values. A residual addition and the norms before and after
 * it are one kernel, since x is in the cache of its multiprocessor then. Grids cover the padded rows; a block whose row is not there ends
 * at once, before any barrier. */

/* The token of a row: the host's, or what the step before has drawn. That and what this step draws lie beside each other in turn, as the
 * sampler still asks for a row's token when other rows have theirs. */
DEVICE int row_token(const step_view &s, const llm_drawn *drawn, int row) {
    return s.token_from[row] < 0 ? s.tokens[row] : drawn[2 * s.token_from[row] + 1 - s.head[HEAD_TURN]].id;
}

/* A table (vocab, hidden) of any kind, one part. rows 0: there is none. */
typedef struct table_view {
    part w;
    int32_t subs;
    int64_t rows, cols;
} table_view;

/* A weight as a table; of NULL an empty one. */
static table_view table_of(const llm_weight *w) {
    table_view t;
    memset(&t, 0, sizeof t);
    if (!w) return t;
    t.w = w->parts[0];
    t.subs = w->subs;
    t.rows = w->rows;
    t.cols = w->cols;
    return t;
}

/* What an embedding takes from the host's rows: see llm_embed_op. */
typedef struct given_args {
    int32_t given, col, add, n, cols; /* n columns from col on of rows that have cols */
} given_args;

/* Computes: x (T, D) = scale * table[token] (+ positions[position + offset]); zeros where another rank has the token's row; or what is
 * given. The token may be one that the step before drew. Grid: one block a row, a thread half a sub. Twin: llm__run_embed_row. */
static __global__ void __launch_bounds__(128)
    kernel_embed(step_view s, rows_view x, table_view t, table_view p, const float *row_scale, int32_t offset, int32_t vocab_begin,
                 int32_t known, float scale, const llm_drawn *drawn, given_args g) {
    grid_wait();
    int row = (int)blockIdx.x;
    if (row >= s.head[HEAD_ROWS]) return;
    int given = g.given && s.head[HEAD_HAS] & HAS_GIVEN ? s.given_of[row] : -1;
    for (int i = threadIdx.x; given >= 0 && i < g.n; i += blockDim.x) {
        float v = g.given == LLM_GIVEN_ROW ? s.given[(int64_t)given * g.cols + g.col + i] : 0;
        x[row][i] = g.add ? x[row][i] + v : v;
    }
    if (given >= 0 || !t.rows) return;
    const int32_t token = row_token(s, drawn, row);
    int64_t at = (int64_t)(known && token >= known ? 0 : token) - vocab_begin, place = (int64_t)s.positions[row] + offset;
    for (int i = threadIdx.x; i < 2 * t.subs; i += blockDim.x) {
        float v[16] = {}, q[16] = {};
        if (at >= 0 && at < t.rows) load16_any(t.w, at, i / 2, i & 1, v);
        if (p.rows && place >= 0 && place < p.rows) load16_any(p.w, place, i / 2, i & 1, q);
        float by = row_scale && at >= 0 && at < t.rows ? row_scale[at] * scale : scale;
#pragma unroll /* v and q stay in registers */
        for (int k = 0; k < 16; k++)
            if (16 * i + k < t.cols) x[row][16 * i + k] = v[k] * by + q[k];
    }
}

/* A position table is a second matrix of the same kernel (GPT-2, OPT). */
static void run_embed(rank *r, const llm_embed_op *op) {
    given_args g = {op->given, op->given_col, op->given_add, (int32_t)op->dst->cols, r->ctx->cfg.given_cols};
    launch<kernel_embed>(r, {r->ctx->padded.n_rows}, 128, 0, r->view, rows_of(op->dst), table_of(op->table), table_of(op->positions),
                         op->table ? op->table->row_scale : NULL, op->position_offset, op->vocab_begin, op->known,
                         op->scale != 0 ? op->scale : 1.0f, r->drawn, g);
}

/* Which row of positions each frequency takes, two bits each; of a head of 1024 values at most. */
typedef struct rope_rows {
    uint32_t bits[32];
} rope_rows;

/* Computes: cosines and sines (T, 2 * half) of every row's position; angles in double, as position times frequency loses its fraction in
 * f32. Grid: one block a row. Twin: llm__run_rope. */
static __global__ void __launch_bounds__(64) kernel_rope(step_view s, rows_view to, const float *inv_freq, int rope_dim, float scale0,
                                                         float scale1, const __grid_constant__ rope_rows rows) {
    grid_wait();
    int row = (int)blockIdx.x, half = rope_dim / 2;
    if (row >= s.head[HEAD_ROWS]) return;
    int seq = s.seq_of_row[row], variant = s.seq_rope[seq], three = s.head[HEAD_POSITIONS] == 3;
    float scale = variant ? scale1 : scale0;
    double base = (double)s.rope_base[seq];
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        double f = (double)inv_freq[variant * half + i];
        int section = three ? rows.bits[i / 16] >> i % 16 * 2 & 3 : 0;
        if (base != 1) f *= pow(base, -2.0 * i / rope_dim);
        double angle = f * s.positions[section * s.head[HEAD_ROWS] + row];
        angle *= 0.31830988618379067154; /* in half turns: no table of 2 / pi in local memory */
        to[row][i] = (float)cospi(angle) * scale;
        to[row][half + i] = (float)sinpi(angle) * scale;
    }
}

/* At most two variants and three rows of positions (time, height, width). */
static void run_rope(rank *r, const llm_rope_op *op) {
    rope_rows rows;
    memset(&rows, 0, sizeof rows);
    for (int i = 0; i < op->rope_dim / 2 && op->row_of; i++) rows.bits[i / 16] |= (uint32_t)op->row_of[i] << i % 16 * 2;
    launch<kernel_rope>(r, {r->ctx->padded.n_rows}, 64, 0, r->view, rows_of(op->dst), op->inv_freq->f32, op->rope_dim,
                        op->scale ? op->scale[0] : 1.0f, op->scale && op->n_variants > 1 ? op->scale[1] : 1.0f, rows);
}

/* A norm's weights, for kernels. kind NONE: values pass as they are. */
typedef struct norm_view {
    int32_t kind;
    const float *weight, *bias;
    float eps;
} norm_view;

/* Either weight may be NULL: 1, and 0. */
static norm_view norm_of(llm_norm_kind kind, const llm_weight *w, const llm_weight *b, float eps) {
    norm_view n = {kind, f32_of(w), f32_of(b), eps};
    return n;
}

/* Mean (LayerNorm) and 1 / root of the mean square around it, of n values of a row; all threads get them. Twin: llm__norm_row. */
static __device__ void norm_factors(const norm_view &v, const float *x, int n, float *scratch, float *mean, float *factor) {
    float sum = 0, square = 0;
    *mean = 0;
    *factor = 1;
    if (v.kind == LLM_NORM_NONE) return;
    if (v.kind == LLM_NORM_LAYER) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
        *mean = block_sum(sum, scratch) / (float)n;
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) square += (x[i] - *mean) * (x[i] - *mean);
    *factor = 1 / sqrtf(block_sum(square, scratch) / (float)n + v.eps);
}

/* Value i of a row, by the factors that norm_factors found; values i to i + 3 of n, both by the 4, zeros behind them. */
DEVICE float norm_by(const norm_view &v, float x, float weight, float bias, float mean, float factor) {
    return __fmaf_rn((x - mean) * factor, v.weight ? weight : 1, v.bias ? bias : 0); /* not as the compiler finds it here or there */
}
DEVICE float norm_value(const norm_view &v, float x, int i, float mean, float factor) {
    return norm_by(v, x, v.weight ? v.weight[i] : 0, v.bias ? v.bias[i] : 0, mean, factor);
}
DEVICE float4 norm_four(const norm_view &v, const float *x, int i, int n, float mean, float factor) {
    const float4 none = make_float4(0, 0, 0, 0);
    if (i >= n) return none;
    const float4 y = *(const float4 *)(x + i), w = v.weight ? *(const float4 *)(v.weight + i) : none,
                 b = v.bias ? *(const float4 *)(v.bias + i) : none;
    return make_float4(norm_by(v, y.x, w.x, b.x, mean, factor), norm_by(v, y.y, w.y, b.y, mean, factor),
                       norm_by(v, y.z, w.z, b.z, mean, factor), norm_by(v, y.w, w.w, b.w, mean, factor));
}

/* The blocks of this number of all ranks wait for each other: what they wrote before is there behind it. */
static __device__ void meet_ranks(const peer_view &v, uint32_t turn) {
    const int t = (int)threadIdx.x, at = (int)blockIdx.x * MAX_RANKS;
    __syncthreads();
    if (t < v.n) {
        const uint32_t *flag = v.flags[v.index] + at + t;
        store_release(v.flags[t] + at + v.index, turn);
        for (int i = 1; (int32_t)(load_acquire(flag) - turn) < 0; i++) {
            if (i % STOP_TURNS == 0 && load_acquire(v.stop)) break; /* over PCIe: seldom */
            __nanosleep(40);
        }
    }
    __syncthreads();
}

/* A thread's part of n vectors that the block copies, of which SUM_LOADS are under way at once. */
DEVICE void copy_vectors(float4 *to, const float4 *from, int n) {
    const int step = (int)blockDim.x;
    for (int i = threadIdx.x; i < n; i += SUM_LOADS * step) {
        float4 part[SUM_LOADS] = {};
        UNROLL(k, SUM_LOADS)
            if (i + k * step < n) part[k] = from[i + k * step];
        UNROLL(k, SUM_LOADS)
            if (i + k * step < n) to[i + k * step] = part[k];
    }
}

/* Four values of all ranks' boxes, added up in the order of ranks: SUM_LOADS ranks' are under way before the first is added. Every value
 * stays what it is when -0 is added to it: so they begin, and so are ranks that are not there. */
DEVICE float4 boxes_sum(const peer_view &v, int64_t at) {
    const float4 nothing = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
    float4 sum = nothing;
    for (int first = 0; first < v.n; first += SUM_LOADS) {
        float4 part[SUM_LOADS];
        UNROLL(k, SUM_LOADS) {
            part[k] = nothing;
            if (first + k < v.n) part[k] = ((const float4 *)v.box[first + k])[at];
        }
        UNROLL(k, SUM_LOADS) sum = make_float4(sum.x + part[k].x, sum.y + part[k].y, sum.z + part[k].z, sum.w + part[k].w);
    }
    return sum;
}

/* One row of n values, and what its last vector has behind them, becomes its sum over the ranks of the stage: the same bits on all, in one
 * shot and in two. Each rank writes its part to its box and raises its flag. In one shot it then reads all boxes; in two it sums its share
 * of the columns, writes that into everybody's box over the parts, which nobody else reads, and raises its flag again: see >>ranks. */
static __device__ void sum_ranks(const peer_view &v, float *row, int n) {
    const int block = (int)blockIdx.x, t = (int)threadIdx.x, step = (int)blockDim.x, n4 = ceil_div(n, 4);
    const int begin = (int)((int64_t)n4 * v.index / v.n), end = (int)((int64_t)n4 * (v.index + 1) / v.n);
    const uint32_t turn = v.turn[block] + 1;
    const int64_t at = (v.two ? block : v.blocks + 2 * block + (turn & 1)) * (v.width / 4);
    float4 *y = (float4 *)row, *mine = (float4 *)v.box[v.index] + at;
    copy_vectors(mine, y, n4);
    meet_ranks(v, turn);
    if (!v.two)
        for (int i = t; i < n4; i += step) y[i] = boxes_sum(v, at + i);
    else {
        for (int i = begin + t; i < end; i += step) {
            const float4 sum = boxes_sum(v, at + i);
            for (int k = 0, to = v.index; k < v.n; k++, to = to + 1 < v.n ? to + 1 : 0) ((float4 *)v.box[to])[at + i] = sum;
        }
        meet_ranks(v, turn + 1);
        copy_vectors(y, mine, n4);
    }
    if (t == 0) v.turn[block] = turn + (uint32_t)v.two;
    __syncthreads();
}

/* Computes: y (rows, n) = its sum over ranks. Grid: sum_grid. Twin: llm__run_all_reduce. */
static __global__ void __launch_bounds__(SUM_THREADS, 2)
    kernel_sum(const int32_t *n_rows, float *y, int64_t stride, int n, peer_view peers) {
    grid_wait();
    for (int row = (int)blockIdx.x; row < *n_rows; row += (int)gridDim.x) sum_ranks(peers, y + row * stride, n);
}

/* Computes: x += scale * post(y); x *= x_scale; h = norm(x), or `narrow` so; with replace x = h. y NULL: nothing is added; h NULL: no norm;
 * peers.n > 0: y is a part of a sum over ranks, and gets the whole. Grid: one block a row, or sum_grid. A thread meets its own values again
 * in every pass but the narrow one, which stands behind a sum, so only sums need barriers. Twin: llm__run_residual. */
static __global__ void __launch_bounds__(SUM_THREADS, 2)
    kernel_residual(const int32_t *n_rows, rows_view x, rows_view y, rows_view h, int n, float scale, float x_scale, norm_view post,
                    norm_view norm, int replace, narrow_view narrow, peer_view peers) {
    grid_wait();
    SMEM(float, scratch, 32);
    for (int row = (int)blockIdx.x; row < *n_rows; row += (int)gridDim.x) {
        float *to = x[row], *part = y[row], mean, factor;
        if (y.x) {
            if (peers.n) sum_ranks(peers, part, n);
            norm_factors(post, part, n, scratch, &mean, &factor);
            for (int i = threadIdx.x; i < n; i += blockDim.x)
                to[i] += scale * (post.kind     ? norm_value(post, part[i], i, mean, factor)
                                  : post.weight ? part[i] * post.weight[i]
                                                : part[i]);
        }
        for (int i = threadIdx.x; i < n && x_scale != 1; i += blockDim.x) to[i] *= x_scale;
        if (!h.x || !norm.kind) continue;
        norm_factors(norm, to, n, scratch, &mean, &factor);
        if (narrow.form) {
            narrow_row(narrow, row, [&](int c) { return norm_four(norm, to, c, n, mean, factor); });
            continue;
        }
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            float v = norm_value(norm, to[i], i, mean, factor);
            h[row][i] = v;
            if (replace) to[i] = v;
        }
    }
}

/* How the ranks sum up these rows by themselves; n 0: NCCL does. */
static peer_view peers_of(const rank *r, int rows, int64_t width) {
    peer_view v = r->peers;
    v.two = rows > ONE_SHOT_ROWS;
    if (width > v.width || (rows > TWO_SHOT_ROWS && !r->ctx->cfg.batch_invariant)) v.n = 0;
    return v;
}

/* Blocks that are there together walk over the rows. */
static launch_grid sum_grid(const peer_view &v, int rows) { return {min_int(rows, v.blocks)}; }

/* Sums the first `rows` rows of a buffer over the ranks of the stage; NCCL takes whole strides. */
static void run_all_reduce(rank *r, llm_rows which, const llm_buffer *b, int rows) {
    const peer_view peers = peers_of(r, rows, b->cols);
    if (r->ctx->n_group == 1 || r->failed) return;
    if (peers.n)
        launch<kernel_sum>(r, sum_grid(peers, rows), SUM_THREADS, 0, device_rows(r, which), b->data, b->stride, (int)b->cols, peers);
    else nccl_all_reduce(r, b->data, (size_t)(b->stride * rows));
}

/* A sum over peer memory is a part of the kernel. */
static void run_residual(rank *r, const record *rec) {
    const llm_residual_op *op = &rec->op.residual;
    const int rows = padded_rows(r, op->rows);
    narrow_view narrow = {};
    peer_view peers = {};
    if (rec->leaves) narrow = narrow_at(rec->leaves, ceil_div(op->x->cols, 32), op->h->data, op->h->stride * 4);
    if (op->y) peers = peers_of(r, rows, op->y->cols);
    if (op->y && !peers.n) run_all_reduce(r, op->rows, op->y, rows);
    launch<kernel_residual>(r, peers.n ? sum_grid(peers, rows) : launch_grid{rows}, peers.n ? SUM_THREADS : 256, 0,
                            device_rows(r, op->rows), rows_of(op->x), rows_of(op->y), rows_of(op->h), (int)op->x->cols,
                            op->scale != 0 ? op->scale : 1.0f, op->x_scale != 0 ? op->x_scale : 1.0f,
                            norm_of(op->post_kind, op->post_weight, op->post_bias, op->eps),
                            norm_of(op->kind, op->weight, op->bias, op->eps), op->replace, narrow, peers);
}

/* What becomes of a normed value: GELU of it; or there is no norm but weight and bias, and bounds. */
enum { NORM_PLAIN, NORM_GELU, NORM_BOUND };

/* Computes: dst (T, parts n) = END of norm(columns of src), n at a time; with add dst += that. Grid: one block a row and part. dst may be
 * src: a thread writes only what it alone reads after the sums. Twins: llm__run_norm, llm__bound_row. */
template <int END>
static __global__ void __launch_bounds__(256) kernel_norm(const int32_t *n_rows, float *dst, const float *src, int64_t dst_stride,
                                                          int64_t src_stride, int n, int add, norm_view norm, float low, float high) {
    grid_wait();
    SMEM(float, scratch, 32);
    const int row = (int)blockIdx.x;
    float mean = 0, factor = 1;
    if (row >= *n_rows) return;
    src += row * src_stride + (int64_t)blockIdx.y * n;
    dst += row * dst_stride + (int64_t)blockIdx.y * n;
    if (END != NORM_BOUND) norm_factors(norm, src, n, scratch, &mean, &factor);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float v = END == NORM_BOUND || norm.kind ? norm_value(norm, src[i], i, mean, factor) : src[i];
        if constexpr (END == NORM_GELU) v = activate(LLM_ACT_GELU, 0, v, 1, 0);
        if constexpr (END == NORM_BOUND) v = v < low ? low : v > high ? high : v;
        dst[i] = add ? dst[i] + v : v;
    }
}

static void run_norm(rank *r, const llm_norm_op *op) {
    const int end = op->kind == LLM_NORM_BOUND ? NORM_BOUND : op->gelu ? NORM_GELU : NORM_PLAIN;
    with_constant<NORM_PLAIN, NORM_BOUND>(end, [&](auto what) {
        launch<kernel_norm<what.value>>(r, {padded_rows(r, op->rows), max_int(op->parts, 1)}, 256, 0, device_rows(r, op->rows),
                                        op->dst->data + op->dst_col, op->src->data + op->src_col, op->dst->stride, op->src->stride, op->n,
                                        op->add, norm_of(op->kind, op->weight, op->bias, op->eps), op->low, op->high);
    });
}

/* Computes: row i of dst = rows out_rows[i], out_rows[i] + 1, ... of src side by side, or their mean. Grid: one block an out row. Twin:
 * llm__run_gather. */
static __global__ void __launch_bounds__(128) kernel_gather(step_view s, rows_view dst, rows_view src, int n, int parts, int mean) {
    grid_wait();
    int row = (int)blockIdx.x;
    if (row >= s.head[HEAD_OUT]) return;
    const float *from = src[s.out_rows[row]];
    float *to = dst[row];
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float sum = 0;
        for (int k = 0; k < parts; k++) {
            sum += from[k * src.stride + i];
            if (!mean) to[(int64_t)k * n + i] = from[k * src.stride + i];
        }
        if (mean) to[i] = sum * (1.0f / (float)parts);
    }
}

static void run_gather(rank *r, const llm_gather_op *op) {
    launch<kernel_gather>(r, {r->ctx->padded.n_out}, 128, 0, r->view, rows_of(op->dst, op->dst_col), rows_of(op->src, op->src_col),
                          min_int(op->dst->cols - op->dst_col, op->src->cols - op->src_col), max_int(op->parts, 1), op->mean);
}

/* What a value of a gate multiplies by. */
DEVICE float gate_factor(llm_gate_act act, float g) {
    return act == LLM_GATE_PLAIN ? g : act == LLM_GATE_SILU ? g * sigmoid(g) : sigmoid(g);
}

/* x (n) *= act of each gate, or with op.width of what of it is above the mean of all these, and some deviations. A block. Twin:
 * llm__gate_sparse. */
static __device__ void gate_sparse(const llm_gate_op &op, float *x, const float *gate, int n, float *scratch) {
    const norm_view all = {LLM_NORM_LAYER, NULL, NULL, 0};
    float mean, factor; /* 1 / deviation */
    if (op.width) norm_factors(all, gate - op.col, op.width, scratch, &mean, &factor);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float g = op.width ? fmaxf(gate[i] - mean - op.cut / factor, 0) : gate[i];
        if (op.act < LLM_GATE_GELU) x[i] *= gate_factor(op.act, g);
        else x[i] = activate(op.act == LLM_GATE_GELU ? LLM_ACT_GELU : LLM_ACT_GELU_TANH, 0, g, x[i], 0);
    }
}

/* Computes: dst (T, n) *= act(gate (T, 1)); with each *= act(gate (T, n)), or of sparse gates (op.width) what gate_sparse says. With `part`
 * the mean square of so many columns, gated or not, is brought to 1 besides, and weight, of n columns or the same of all parts, multiplies.
 * Grid: (T, n / width), width the part if there is one, and n of sparse gates, which all have to be seen, by 512 threads. A thread meets
 * its own values again. Twin: llm__run_gate. */
static __global__ void __launch_bounds__(512)
    kernel_gate(const int32_t *n_rows, rows_view dst, rows_view gates, llm_gate_op op, int width, const float *weight, int weight_step) {
    grid_wait();
    SMEM(float, scratch, 32);
    const int row = (int)blockIdx.x, first = (int)blockIdx.y * width, n = min(width, op.n - first);
    if (row >= *n_rows) return;
    float *x = dst[row] + first, sum = 0, by = 1;
    const float *gate = gates[row] + (op.each ? first : 0);
    if (op.width || op.act >= LLM_GATE_GELU) {
        gate_sparse(op, x, gate, n, scratch);
        return;
    }
    if (weight) weight += (int)blockIdx.y * weight_step;
    const float whole = op.each ? 1 : gate_factor(op.act, gate[0]);
    const auto gated = [&](int i) { return x[i] * (op.each ? gate_factor(op.act, gate[i]) : whole); };
    for (int i = threadIdx.x; i < n && op.part; i += blockDim.x) {
        const float v = op.gate_first ? gated(i) : x[i];
        sum += v * v;
    }
    if (op.part) by = 1 / sqrtf(block_sum(sum, scratch) / (float)n + op.eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = gated(i) * by * (weight ? weight[i] : 1);
}

static void run_gate(rank *r, const llm_gate_op *op) {
    const int width = op->part ? op->part : op->width ? op->n : 512, own = op->weight && op->weight->rows * op->weight->cols != op->part;
    launch<kernel_gate>(r, {padded_rows(r, op->rows), ceil_div(op->n, width)}, op->width ? 512 : 128, 0, device_rows(r, op->rows),
                        rows_of(op->dst), rows_of(op->gate, op->col), *op, width, f32_of(op->weight), own ? width : 0);
}

/* An operation, and what its buffers and weights are on the device. */
typedef struct streams_args {
    llm_streams_op op;
    rows_view x, dst, gate, y;
    const float *weight, *scale;
} streams_args;

static constexpr int STREAM_COLS = 256;

/* What streams of a row x (n, D) are multiplied by, so that all have the size of the first. A block; by is there behind a barrier. */
static __device__ void streams_level(const float *x, int n, int D, float *by, float *scratch) {
    float size = 1;
    for (int j = 0; j < n; j++) {
        float sum = 0;
        for (int d = threadIdx.x; d < D; d += STREAM_COLS) sum += x[j * D + d] * x[j * D + d];
        const float square = block_sum(sum, scratch) / (float)D;
        if (j == 0) size = sqrtf(square);
        if (threadIdx.x == 0) by[j] = j ? size / sqrtf(fmaxf(square, 1e-5f)) : 1;
    }
}

/* Computes: streams x (T, n D) of a row levelled, predicted or corrected, dst (T, D) = their mean, or the active one, scaled. Grid: (T, D /
 * 256), (T, 1) where a row's sums are needed. A thread has a column of all streams: what they were stays in shared memory, beside the
 * factors, which each block makes anew. Twin: llm__run_streams. */
static __global__ void __launch_bounds__(STREAM_COLS) kernel_streams(const int32_t *n_rows, streams_args a) {
    grid_wait();
    SMEM(float, was, LLM_MAX_STREAMS *STREAM_COLS);
    SMEM(float, by, LLM_MAX_STREAMS *LLM_MAX_STREAMS);
    SMEM(float, scratch, 32);
    const int row = (int)blockIdx.x, t = (int)threadIdx.x, n = a.op.n, D = a.op.cols, kind = a.op.kind;
    if (row >= *n_rows) return;
    float *x = a.x[row];
    if (kind == LLM_STREAMS_LEVEL) streams_level(x, n, D, by, scratch);
    else if (t < (kind == LLM_STREAMS_PREDICT ? n * n : n)) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += a.weight[t * n + i] * tanhf(a.gate[row][i]);
        by[t] = sum;
    }
    __syncthreads();
    for (int d = (int)blockIdx.y * STREAM_COLS + t; d < D; d += (int)gridDim.y * STREAM_COLS) {
        for (int j = 0; j < n; j++) was[j * STREAM_COLS + t] = x[j * D + d];
        const float change = kind == LLM_STREAMS_CORRECT ? a.y[row][d] - was[a.op.active * STREAM_COLS + t] : 0;
        float sum = 0;
        for (int j = 0; j < n; j++) {
            float v = was[j * STREAM_COLS + t];
            if (kind == LLM_STREAMS_LEVEL) v *= by[j];
            else if (kind == LLM_STREAMS_CORRECT) v += (1 + by[j]) * change;
            else
                for (int i = 0; i < n; i++) v += by[j * n + i] * was[i * STREAM_COLS + t];
            x[j * D + d] = v;
            sum += kind == LLM_STREAMS_LEVEL || j == a.op.active ? v : 0;
        }
        if (a.dst.x) a.dst[row][d] = sum * (kind == LLM_STREAMS_LEVEL ? 1 / (float)n : a.scale ? a.scale[d] : 1);
    }
}

static void run_streams(rank *r, const llm_streams_op *op) {
    const streams_args a = {
        *op, rows_of(op->x), rows_of(op->dst), rows_of(op->gate), rows_of(op->y), f32_of(op->weight), f32_of(op->scale)};
    const int parts = op->kind == LLM_STREAMS_LEVEL ? 1 : ceil_div(op->cols, STREAM_COLS);
    launch<kernel_streams>(r, {padded_rows(r, op->rows), parts}, STREAM_COLS, 0, device_rows(r, op->rows), a);
}

/* ============================================================================
 * >>attention   KV pages, and attention over them.
 * ============================================================================
 * A page holds page_tokens tokens of every layer; inside it each (layer, KV head) has its keys row by row, its values row by row, and for
 * the one-byte types a scale and an offset a token, so that a warp that loads a key reads neighbouring bytes.
 *
 * Three kernels read pages:
 *
 *     kernel_attention_split   sequences with one row: what decoding is. Limited by memory: keys and values are read once for the heads
 *                              that share them, in pieces of 256 positions, which blocks take from the step's work list
 *     kernel_attention_chunk   sequences with several rows, 128 queries at a time. Limited by arithmetic
 *     kernel_attention         what both have no shape for: latents, whose keys are their values, keys in f32, heads of no multiple of 8,
 *                              scores that change by distance (MPNet)
 *
 * All three take keys in order of position with the online softmax of >>attention in llm.h. A query keeps m, the largest score so far, and
 * l, the sum of exp2(score - m). When a block of keys has a larger score, what was summed before is multiplied by exp2(m - m'). Scores are
 * taken times log2(e), as exp2 is one instruction. A sink is a score without a value: it is where a query begins.
 *
 * For instance one sequence of 4,000 tokens, 32 heads that share 8 KV heads: a tile is a row's 4 heads of a group, and the work list has 16
 * items, positions 0 to 255, 256 to 511, ...: 128 blocks have one each. Each leaves a maximum, a sum and 128 values a head in memory; the
 * one that comes last folds them in order of position. Beside 31 other sequences it would be the same items of 256 positions with the same
 * results: so a row's bits do not tell what came with it.
 *
 * kernel_attention works on a tile of up to 16 (row, head) queries that share a KV head. Keys are taken 32 at a time: a warp has a query's
 * 32 scores, one a lane. A query's result depends on its own blocks only, so tiles may hold rows of several sequences, one after the other.
 *
 *     page      (layer, KV head): keys (page_tokens, head_dim), values (page_tokens, v_head_dim), 4 floats a token for one-byte types
 *     tile      queries (16, hd)  x  keys (32, hd)  ->  scores (16, 32)  ->  weights p (16, 32)  x  values (32, vd)  ->  acc (16, vd)
 *     shared    q (tile, hd), keys (32, hd | 1), p (16, 32), factor (16): an odd stride, so that 32 lanes with a key each meet 32 banks
 *
 * With few tiles its blocks of keys are split among several blocks of threads, whose partial results (maximum, sum, values)
 * kernel_attention_join adds up. How many splits there are depends on the padded shape only; with batch_invariant there is one. A split
 * without any keys has the sum 0 and the lowest maximum: it counts for nothing when
 * they are joined. */

static constexpr int SPLITS = 32;

/* How one page element is read. Twin: llm__kv_encode, backwards, without its scale. */
template <int T> DEVICE float kv_element(const uint8_t *p, int d, int half) {
    if (T == LLM_KV_F32) return ((const float *)p)[d];
    if (T == LLM_KV_F16) return half_to_f32(((const uint16_t *)p)[d]);
    if (T == LLM_KV_BF16) return bf16_to_f32(((const uint16_t *)p)[d]);
    if (T == LLM_KV_FP8_E4M3) return e4m3_to_f32(p[d]);
    if (T == LLM_KV_FP8_E5M2) return half_to_f32((uint16_t)(p[d] << 8));
    if (T == LLM_KV_INT8) return (float)p[d];
    return (float)(d < half ? p[d] & 15 : p[d - half] >> 4);
}

/* Where a position's page has a head of this layer. */
DEVICE uint8_t *kv_part(const kv_view &v, const int32_t *pages, int position, int head) {
    return v.base + pages[position / v.page_tokens] * v.page_bytes + v.place.offset + head * v.place.head_bytes;
}

/* Position in the cache of a row of the step. Twin: llm__row_position. */
DEVICE int row_position(const step_view &s, int row) {
    int seq = s.seq_of_row[row];
    return s.seq_len[seq] - (s.seq_begin[seq + 1] - row);
}

/* A warp writes n values as elements of the cache, and their scale and offset. Twin: llm__kv_encode. */
static __device__ void warp_encode(int type, const float *x, int n, uint8_t *to, float *scale_to, float *offset_to) {
    int lane = threadIdx.x & 31, half = (n + 1) / 2;
    float low = INFINITY, high = -INFINITY, scale = 1, offset = 0;
    for (int i = lane; i < n; i += 32) {
        if (type == LLM_KV_F32) ((float *)to)[i] = x[i];
        else if (type == LLM_KV_F16) ((uint16_t *)to)[i] = f32_to_half(x[i]);
        else if (type == LLM_KV_BF16) ((uint16_t *)to)[i] = (uint16_t)f32_to_bf16(x[i]);
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    if (type <= LLM_KV_BF16) return;
    high = warp_max(high);
    low = -warp_max(-low);
    if (type <= LLM_KV_FP8_E5M2) {
        float largest = type == LLM_KV_FP8_E4M3 ? 448.0f : 57344.0f, top = fmaxf(high, -low);
        if (top > 0) scale = top / largest;
        for (int i = lane; i < n; i += 32) {
            float v = x[i] / scale;
            v = v > largest ? largest : v > -largest ? v : -largest;
            to[i] = (uint8_t)(type == LLM_KV_FP8_E4M3 ? f32_narrow(v, 4, 3, 0x7e, 0x7f) : f32_narrow(v, 5, 2, 0x7b, 0x7e));
        }
    } else {
        float levels = type == LLM_KV_INT8 ? 255.0f : 15.0f, cut = type == LLM_KV_INT8 ? 0 : __fmul_rn(0.03f, high - low);
        low += cut, high -= cut;
        offset = low;
        if (high > low) scale = (high - low) / levels;
        for (int i = lane; i < (type == LLM_KV_INT8 ? n : half); i += 32) {
            uint32_t q = 0;
            for (int k = 0; k < 2 && i + k * half < n; k++) {
                float v = (x[i + k * half] - low) / scale + 0.5f;
                q |= (uint32_t)(v > levels ? levels : v > 0 ? v : 0) << (4 * k);
                if (type == LLM_KV_INT8) break;
            }
            to[i] = (uint8_t)q;
        }
    }
    if (lane == 0) *scale_to = scale, *offset_to = offset;
}

/* Where a token's value of a head is, and its scale, which is followed by the offset one page of tokens further. */
DEVICE uint8_t *kv_value(const kv_view &v, const int32_t *pages, int position, int head, float **scale) {
    uint8_t *at = kv_part(v, pages, position, head);
    int t = position % v.page_tokens;
    *scale = (float *)(at + v.place.scale_offset) + 2 * v.page_tokens + t;
    return at + v.place.v_offset + (int64_t)t * v.place.v_elements * v.element_bytes;
}

/* Writes a token's key, and its value unless v is NULL. A warp. Twin: llm__kv_write_token. */
static __device__ void warp_write_token(const kv_view &v, const int32_t *pages, int position, int head, const float *key,
                                        const float *value) {
    uint8_t *at = kv_part(v, pages, position, head);
    int t = position % v.page_tokens, tokens = v.page_tokens;
    float *scales = (float *)(at + v.place.scale_offset), *scale;
    warp_encode(v.type, key, v.place.head_dim, at + (int64_t)t * v.place.k_elements * v.element_bytes, scales + t, scales + tokens + t);
    if (!value) return;
    at = kv_value(v, pages, position, head, &scale);
    warp_encode(v.type, value, v.place.v_head_dim, at, scale, scale + tokens);
}

/* A warp reads n values as they were written, but for the rounding. Twin: llm__kv_read_value. */
template <int T> static __device__ void warp_decode(const uint8_t *from, int n, int scaled, float scale, float offset, float *to) {
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        float v = kv_element<T>(from, i, (n + 1) / 2);
        to[i] = scaled ? __fadd_rn(offset, __fmul_rn(scale, v)) : v; /* not one rounding, as of a fused addition: the CPU has two */
    }
}

/* Computes: a part of a row to its pages, or from those of the position before; zeros before the first, in `clear` too, if there is one.
 * Grid: (rows, parts), one warp each. Twin: llm__run_state. */
static __global__ void __launch_bounds__(32) kernel_state(step_view s, kv_view v, int recall, int out, rows_view rows, rows_view clear) {
    grid_wait();
    int row = (int)blockIdx.x, h = (int)blockIdx.y, n = v.place.v_head_dim;
    if (row >= s.head[out ? HEAD_OUT : HEAD_ROWS]) return;
    int at = out ? s.out_rows[row] : row, position = row_position(s, at) - recall;
    const int32_t *pages = s.pages + (int64_t)s.seq_of_row[at] * s.head[HEAD_STRIDE];
    float *x = rows[row] + h * n, *scale;
    if (position < 0) {
        for (int i = threadIdx.x; i < n; i += 32) {
            x[i] = 0;
            if (clear.x) clear[row][h * n + i] = 0;
        }
        return;
    }
    uint8_t *value = kv_value(v, pages, position, h, &scale);
    float by = v.scaled ? scale[0] : 1, offset = v.scaled ? scale[v.page_tokens] : 0;
    if (!recall) warp_encode(v.type, x, n, value, scale, scale + v.page_tokens);
    else with_constant<LLM_KV_F32, LLM_KV_INT4>(v.type, [&](auto t) { warp_decode<t.value>(value, n, v.scaled, by, offset, x); });
}

/* A warp turns the first 2 * half values of x by the row's cosines and sines. Twin: llm__body_rotate. */
static __device__ void warp_rotate(float *x, const float *rope, int half, int pairs) {
    __syncwarp();
    for (int i = threadIdx.x & 31; i < half; i += 32) {
        int a = pairs ? 2 * i : i, b = pairs ? 2 * i + 1 : i + half;
        float u = x[a], w = x[b], c = rope[i], s = rope[half + i];
        x[a] = __fmaf_rn(u, c, -__fmul_rn(w, s));
        x[b] = __fmaf_rn(w, c, __fmul_rn(u, s));
    }
    __syncwarp();
}

/* Pages of one byte an element and less keep keys and values turned by a Hadamard matrix, which spreads a head's few large values over all
 * of it; queries are turned alike, and results back. `size`: the largest power of two that divides n. Twins: llm__kv_turn_size,
 * llm__kv_turn.
 *
 * Of four values, in two rounds of sums and differences of what stands h apart, then times 1 / sqrt(4):
 *
 *     8 0 0 0    h = 1:  8 8 0 0    h = 2:  8 8 8 8    turned:  4 4 4 4
 *
 * A 4-bit scale over the first has steps of 8 / 15; over the turned ones of 0. Turning twice gives back what was there, and the products of
 * turned vectors are those of the vectors themselves, so attention notices nothing. */
static __host__ __device__ __forceinline__ int kv_turn_size(int n) { return n & -n; }

/* A warp turns n values in place: a lane has every 32nd pair of a round. */
static __device__ void warp_turn(float *x, int n, int size) {
    const float scale = 1 / sqrtf((float)size);
    for (int h = 1; h < size; h *= 2) {
        __syncwarp();
        for (int i = threadIdx.x & 31; i < n / 2; i += 32) {
            int at = 2 * (i & -h) + (i & (h - 1)); /* blocks of 2 h: from the first half to the second */
            float a = x[at], b = x[at + h];
            x[at] = a + b;
            x[at + h] = a - b;
        }
    }
    __syncwarp();
    for (int i = threadIdx.x & 31; i < n; i += 32) x[i] *= scale;
    __syncwarp();
}

/* Whether a launch has the rows of a sequence. */
DEVICE int part_wanted(const step_view &s, int not_single, int seq) { return !not_single || s.seq_begin[seq + 1] - s.seq_begin[seq] > 1; }

/* Computes: x (rows, heads, n) turned in place: results of attention, and queries of latents. Grid: (rows, heads), one warp each. `first`:
 * row of the step that x begins with. Twin: llm__kv_turn. */
static __global__ void __launch_bounds__(32) kernel_turn(step_view s, rows_view x, int n, int size, int first, int not_single) {
    grid_wait();
    int row = first + (int)blockIdx.x;
    if (row < s.head[HEAD_ROWS] && part_wanted(s, not_single, s.seq_of_row[row])) warp_turn(x[blockIdx.x] + (int)blockIdx.y * n, n, size);
}

static void run_turn(rank *r, rows_view x, int rows, int heads, int n, int size, int first, int not_single) {
    launch<kernel_turn>(r, {rows, heads}, 32, 0, r->view, x, n, size, first, not_single);
}

/* An operation, and what its buffers and weights are on the device. */
typedef struct qkv_args {
    llm_qkv_op op;
    rows_view x, rope;
    const float *q_norm, *k_norm;
} qkv_args;

/* A warp: norm and rotation of one head; `column` counts from the first weight. What rounds is told, as two kernels must come to the same
 * bits. Twin: llm__finish_head. */
DEVICE void warp_finish_head(const llm_qkv_op &op, float *x, const float *w, int column, float whole, const float *rope) {
    int lane = threadIdx.x & 31, n = op.head_dim;
    float mean = 0, factor = whole, sum = 0;
    if (op.norm == LLM_QK_NORM_HEAD_LAYER) {
        for (int i = lane; i < n; i += 32) sum += x[i];
        mean = warp_sum(sum) / (float)n;
    }
    if (op.norm == LLM_QK_NORM_HEAD_RMS || op.norm == LLM_QK_NORM_HEAD_LAYER) {
        sum = 0;
        for (int i = lane; i < n; i += 32) sum = __fmaf_rn(x[i] - mean, x[i] - mean, sum);
        factor = 1 / sqrtf(warp_sum(sum) / (float)n + op.eps);
        if (op.norm == LLM_QK_NORM_HEAD_RMS) column = 0;
    }
    for (int i = lane; i < n && op.norm && op.norm != LLM_QK_NORM_HEAD_RMS_LAST; i += 32)
        x[i] = (x[i] - mean) * factor * (w ? w[column + i] : 1);
    if (rope) warp_rotate(x, rope, op.rope_dim / 2, op.rope_interleaved);
    if (op.norm != LLM_QK_NORM_HEAD_RMS_LAST) return;
    for (int i = lane; i < n; i += 32) sum = __fmaf_rn(x[i], x[i], sum);
    factor = 1 / sqrtf(warp_sum(sum) / (float)n + op.eps);
    for (int i = lane; i < n; i += 32) x[i] *= factor * (w ? w[i] : 1);
}

/* A warp: query h of a row in place, as attention multiplies it. `whole`: the factor of heads that are normed as one. */
DEVICE void warp_finish_query(const step_view &s, const kv_view &kv, const qkv_args &a, int row, int h, float whole, float *q) {
    const int n = a.op.head_dim, place = s.positions[row], from = a.op.logn_from;
    warp_finish_head(a.op, q, a.q_norm, h * n + (a.op.norm == LLM_QK_NORM_WHOLE_RMS ? a.op.q_col - a.op.whole_q_col : 0), whole,
                     a.rope.x ? a.rope[row] : NULL);
    float stretch = from <= 0 || place + 1 < from + !a.op.logn_ahead ? 1
                    : a.op.logn_beta > 0 ? (float)(1 + (double)a.op.logn_beta * log1p((double)((place + a.op.logn_ahead) / from)))
                                         : (float)(log((double)place + 1) / log((double)from));
    for (int i = threadIdx.x & 31; i < n && stretch != 1; i += 32) q[i] *= stretch;
    if (kv.scaled) warp_turn(q, n, kv_turn_size(n));
}

/* A warp: key and value g of a row, in place, and to its page. */
DEVICE void warp_finish_key(const step_view &s, const kv_view &kv, const qkv_args &a, int row, int g, float whole, float *k, float *v) {
    const int n = a.op.head_dim, vd = a.op.v_head_dim;
    if (a.op.v_norm) {
        float sum = 0;
        for (int i = threadIdx.x & 31; i < vd; i += 32) sum = __fmaf_rn(v[i], v[i], sum);
        const float by = 1 / sqrtf(warp_sum(sum) / (float)vd + a.op.eps);
        for (int i = threadIdx.x & 31; i < vd; i += 32) v[i] *= by;
    }
    warp_finish_head(a.op, k, a.k_norm, g * n + (a.op.norm == LLM_QK_NORM_WHOLE_RMS ? a.op.k_col - a.op.whole_k_col : 0), whole,
                     a.rope.x ? a.rope[row] : NULL);
    __syncwarp();
    if (kv.scaled) warp_turn(k, n, kv_turn_size(n)), warp_turn(v, vd, kv_turn_size(vd));
    warp_write_token(kv, s.pages + (int64_t)s.seq_of_row[row] * s.head[HEAD_STRIDE], row_position(s, row), g, k, v);
}

/* The factor that brings n values of a row to unit mean square, for all threads of the block: of heads that are normed as one, and of
 * latents. Twin: llm__whole_rms. */
static __device__ float block_rms(const float *x, int n, float eps, float *scratch) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i] * x[i];
    return 1 / sqrtf(block_sum(sum, scratch) / (float)n + eps);
}

/* Computes: q (T, heads, hd) and k (T, KV heads, hd) of every head normalised and turned in place, k and v written to the row's page. Grid:
 * one block a row, a warp takes heads in turn: a head never leaves its warp, so that no barrier is needed but for norms over all heads. Of
 * steps with single rows only it is not needed, see list_fuse_heads. Twin: llm__qkv_heads. */
static __global__ void __launch_bounds__(128, 6) kernel_qkv(step_view s, kv_view kv, qkv_args a) {
    grid_wait();
    SMEM(float, scratch, 32);
    const llm_qkv_op &op = a.op;
    int row = (int)blockIdx.x;
    if (row >= s.head[HEAD_ROWS]) return;
    float *x = a.x[row], rq = 1, rk = 1;
    if (op.norm == LLM_QK_NORM_WHOLE_RMS) {
        rq = block_rms(x + op.whole_q_col, op.whole_q, op.eps, scratch);
        rk = block_rms(x + op.whole_k_col, op.whole_k, op.eps, scratch);
    }
    for (int h = threadIdx.x >> 5; h < op.n_heads + (op.shared ? 0 : op.n_kv_heads); h += 4) {
        int g = h - op.n_heads;
        if (g < 0) warp_finish_query(s, kv, a, row, h, rq, x + op.q_col + h * op.head_dim);
        else warp_finish_key(s, kv, a, row, g, rk, x + op.k_col + g * op.head_dim, x + op.v_col + g * op.v_head_dim);
    }
}

/* The pages of one layer. */
static kv_view kv_of(const rank *r, int layer) {
    const llm_backend_ctx *ctx = r->ctx;
    int bytes = ctx->kv_type == LLM_KV_F32 ? 4 : ctx->kv_type <= LLM_KV_BF16 ? 2 : 1;
    kv_view v = {r->kv, ctx->places[layer], ctx->page_bytes, ctx->page_tokens, ctx->kv_type, bytes == 1, bytes};
    return v;
}

static void run_state(rank *r, const llm_state_op *op) {
    kv_view kv = kv_of(r, op->layer);
    launch<kernel_state>(r, {padded_rows(r, op->rows), kv.place.n_kv_heads}, 32, 0, r->view, kv, op->recall, op->rows == LLM_ROWS_OUT,
                         rows_of(op->buf), rows_of(op->clear));
}

static qkv_args qkv_of(const llm_qkv_op *op) { return {*op, rows_of(op->qkv), rows_of(op->rope), f32_of(op->q_norm), f32_of(op->k_norm)}; }

/* Every run_ function does the same: the operation's buffers become pointers, its counts those of the padded shape. */
static void run_qkv(rank *r, const llm_qkv_op *op) {
    kv_view kv = kv_of(r, op->layer);
    if (!kv.place.v_head_dim) kv.scaled = 0; /* queries to latents are turned when they have been taken there */
    launch<kernel_qkv>(r, {r->ctx->padded.n_rows}, 128, 0, r->view, kv, qkv_of(op));
}

/* Of one launch. Latent attention brings its own queries and has no values: its keys are the values, too. */
typedef struct attention_args {
    rows_view q, out;
    const float *sinks, *alibi, *distance;
    float *partial;
    int32_t q_col, n_heads, group, heads, head_tiles; /* heads: of a tile */
    int32_t rows, first_row, n_rows;                  /* rows of a tile; of this launch */
    int32_t hd, vd, window, chunked, not_causal, spans, latent, n_splits;
    narrow_form out_form;      /* how rows of out are written; of halves each must fit */
    int32_t not_single;        /* only sequences with several rows */
    unsigned *arrived, *drawn; /* (max_seqs, MAX_TILES) and (MAX_TILES), all 0 */
    float scale, softcap;
    const int32_t *chosen; /* (rows, chosen_stride): the topk positions that rows behind so many see; NULL: all see all. Of latents */
    int64_t chosen_stride;
    int32_t topk, reach;
    int32_t fresh; /* of single rows: queries, keys and values are as the product left them, and what qkv says is still to be done */
    qkv_args qkv;
} attention_args;

/* Two results of a row from column c on, c even. */
DEVICE void attend_store(const attention_args &a, int row, int c, float v0, float v1) {
    float *to = a.out[row];
    if (a.out_form) ((uint32_t *)to)[narrow_place(a.out_form, c)] = narrow_two(a.out_form, v0, v1);
    else *(float2 *)(to + c) = make_float2(v0, v1);
}

/* One sequence's part [qa, qb) of a tile's queries, and the positions that any of them sees. */
typedef struct attend_part {
    int qa, qb, from, to;
} attend_part;

/* The first position that a query at position `at` sees. Twin: llm__window_from. */
DEVICE int window_from(const attention_args &a, int at) {
    return !a.window ? 0 : a.chunked ? at / a.window * a.window : max(0, at + 1 - a.window);
}

/* The positions [*from, *to) that a row sees of `len`. Twin: llm__attend_query. */
DEVICE void row_sees(const step_view &s, const attention_args &a, int row, int at, int len, int *from, int *to) {
    *from = window_from(a, at);
    *to = !a.not_causal ? at + 1 : a.window ? min(len, (a.chunked ? *from : at) + a.window) : len;
    if (!a.spans || !(s.head[HEAD_HAS] & HAS_SPANS)) return;
    *from = max(*from, s.spans[row]);
    *to = s.spans[s.head[HEAD_ROWS] + row];
}

/* Rows [row, end) of a tile are of one sequence; n_heads: queries of a row. */
DEVICE attend_part part_of(const step_view &s, const attention_args &a, int seq, int row0, int row, int end, int n_heads) {
    attend_part p = {(row - row0) * n_heads, (end - row0) * n_heads, 0, 0};
    p.from = window_from(a, row_position(s, row));
    p.to = a.not_causal ? s.seq_len[seq] : row_position(s, end - 1) + 1;
    for (int i = row; i < end && a.spans && s.head[HEAD_HAS] & HAS_SPANS; i++) {
        p.from = i == row ? s.spans[i] : min(p.from, s.spans[i]);
        p.to = max(p.to, s.spans[s.head[HEAD_ROWS] + i]);
    }
    return p;
}

/* Loads keys [block + from, block + to) as f32 into shared memory (32, stride): a warp takes every fourth key. chosen: which positions
 * these numbers mean; NULL: themselves. */
template <int T>
static __device__ void load_keys(const kv_view &kv, const int32_t *pages, const int32_t *chosen, int head, int block, int from, int to,
                                 float *keys, int stride) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n = kv.place.head_dim, half = (n + 1) / 2;
    for (int j = from + warp; j < to; j += 4) {
        const int position = chosen ? chosen[block + j] : block + j;
        const uint8_t *at = kv_part(kv, pages, position, head);
        int t = position % kv.page_tokens;
        const float *scales = (const float *)(at + kv.place.scale_offset);
        float scale = kv.scaled ? scales[t] : 1, offset = kv.scaled ? scales[kv.page_tokens + t] : 0;
        at += (int64_t)t * kv.place.k_elements * kv.element_bytes;
        for (int d = lane; d < n; d += 32) keys[j * stride + d] = offset + scale * kv_element<T>(at, d, half);
    }
}

/* Scores of one query with the block's 32 keys, one a lane, and the step of the online softmax: weights to p, the factor for what was
 * summed up so far is returned. m, l: the query's running maximum and sum. Twin: llm__body_soften. */
static __device__ float soften(const attention_args &a, const float *q, const float *keys, int stride, int block, int at, int from, int to,
                               int head, float *m, float *l, float *p) {
    int lane = threadIdx.x & 31, position = block + lane;
    float s = 0;
    int seen = position >= from && position < to;
    if (seen)
        for (int d = 0; d < a.hd; d++) s += q[d] * keys[lane * stride + d];
    s *= a.scale;
    if (a.softcap > 0) s = a.softcap * tanhf(s / a.softcap);
    if (a.alibi) s += a.alibi[head] * (float)(position - at);
    if (a.distance) s += a.distance[head * (2 * a.reach + 1) + a.reach + min(max(position - at, -a.reach), a.reach)];
    s *= 1.44269504f;
    float top = fmaxf(*m, warp_max(seen ? s : -1e30f)), c = exp2f(*m - top), w = seen ? exp2f(s - top) : 0;
    *l = *l * c + warp_sum(w);
    *m = top;
    p[lane] = w;
    return c;
}

/* Computes: out (rows, heads * vd) = softmax(q k^T * scale) v over the pages. Grid: (tiles of rows, KV heads x tiles of heads, splits), 4
 * warps; query i = row i / heads, head i % heads of the tile; warp w has queries w, w + 4, ...; a thread has values d, d + 128, ... of all
 * queries. Reads: each key and value of the sequence once a tile. Queries that are not of the sequence at hand sit its blocks out.
 * Twin: llm__run_attention. */
template <int T, int ND>
static __global__ void __launch_bounds__(128, ND == 1 ? 3 : 2) kernel_attention(step_view s, kv_view kv, attention_args a) {
    grid_wait();
    DYN_SMEM(float, memory);
    const int stride = a.hd | 1;
    float *q = memory, *keys = q + a.rows * a.heads * a.hd, *p = keys + KEYS * stride, *factor = p + QUERIES * KEYS, acc[QUERIES][ND] = {},
          m[4], l[4];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, kv_head = (int)blockIdx.y / a.head_tiles,
        first_head = (int)blockIdx.y % a.head_tiles * a.heads;
    int row0 = a.first_row + (int)blockIdx.x * a.rows, last_row = a.first_row + a.n_rows, split = (int)blockIdx.z;
    if (last_row > s.head[HEAD_ROWS]) last_row = s.head[HEAD_ROWS];
    int n_rows = last_row - row0 < a.rows ? last_row - row0 : a.rows,
        n_heads = a.group - first_head < a.heads ? a.group - first_head : a.heads;
    if (n_rows <= 0) return;
    first_head += kv_head * a.group;
    int n = n_rows * n_heads;
    for (int i = threadIdx.x; i < n * a.hd; i += 128) {
        int k = i / a.hd, row = row0 + k / n_heads, head = first_head + k % n_heads;
        q[i] = a.q[row - (a.latent ? a.first_row : 0)][a.q_col + head * a.hd + i % a.hd];
    }
    for (int i = 0; i < 4; i++) {
        int k = warp + 4 * i, sink = a.sinks && k < n && split == 0;
        m[i] = sink ? a.sinks[first_head + k % n_heads] * 1.44269504f : -1e30f;
        l[i] = sink ? 1 : 0;
    }
    for (int row = row0; row < row0 + n_rows;) { /* the tile's sequences */
        int seq = s.seq_of_row[row], end = s.seq_begin[seq + 1] < row0 + n_rows ? s.seq_begin[seq + 1] : row0 + n_rows;
        const int32_t *pages = s.pages + (int64_t)seq * s.head[HEAD_STRIDE];
        attend_part part = part_of(s, a, seq, row0, row, end, n_heads);
        const int32_t *chosen = a.chosen && part.to > a.topk ? a.chosen + row * a.chosen_stride : NULL; /* then the tile is this row */
        if (chosen) part.to = a.topk;
        int first = part.from / KEYS, blocks = (part.to + KEYS - 1) / KEYS - first, each = (blocks + a.n_splits - 1) / a.n_splits;
        int b0 = first + split * each, b1 = b0 + each < first + blocks ? b0 + each : first + blocks;
        for (int b = b0; b < b1; b++) {
            int block = b * KEYS, lo = max(0, part.from - block), hi = min(KEYS, part.to - block);
            __syncthreads();
            load_keys<T>(kv, pages, chosen, kv_head, block, lo, hi, keys, stride);
            __syncthreads();
            for (int i = 0; i < 4; i++) {
                int k = warp + 4 * i, mine = row0 + k / n_heads, head = first_head + k % n_heads;
                if (k < part.qa || k >= part.qb) continue;
                int at = row_position(s, mine), from, to;
                row_sees(s, a, mine, at, s.seq_len[seq], &from, &to);
                float c = soften(a, q + k * a.hd, keys, stride, block, at, from, min(to, part.to), head, &m[i], &l[i], p + k * KEYS);
                if (lane == 0) factor[k] = c;
            }
            __syncthreads();
            UNROLL(k, QUERIES)
                UNROLL(d, ND)
                    if (k >= part.qa && k < part.qb) acc[k][d] *= factor[k];
#pragma unroll 2
            for (int j = lo; j < hi; j++) {
                const uint8_t *at = kv_part(kv, pages, block + j, kv_head);
                int t = (block + j) % kv.page_tokens;
                const float *scales = (const float *)(at + kv.place.scale_offset);
                float scale = kv.scaled && !a.latent ? scales[2 * kv.page_tokens + t] : 1,
                      offset = kv.scaled && !a.latent ? scales[3 * kv.page_tokens + t] : 0;
                at += kv.place.v_offset + (int64_t)t * kv.place.v_elements * kv.element_bytes;
                UNROLL(d, ND) {
                    int x = threadIdx.x + 128 * d;
                    if (x >= a.vd) continue;
                    float v = a.latent ? keys[j * stride + x] : offset + scale * kv_element<T>(at, x, (a.vd + 1) / 2);
                    UNROLL(k, QUERIES)
                        if (k >= part.qa && k < part.qb) acc[k][d] += p[k * KEYS + j] * v;
                }
            }
        }
        row = end;
    }
    __syncthreads();
    for (int i = 0; i < 4; i++)
        if (lane == 0 && warp + 4 * i < n) p[warp + 4 * i] = m[i], factor[warp + 4 * i] = l[i];
    __syncthreads();
    UNROLL(k, QUERIES) {
        if (k >= n) break;
        int64_t row = row0 + k / n_heads, head = first_head + k % n_heads;
        float *to = a.out[row - (a.latent ? a.first_row : 0)] + head * a.vd, by = factor[k] > 0 ? 1 / factor[k] : 0;
        if (a.n_splits > 1) to = a.partial + (((row - a.first_row) * a.n_heads + head) * a.n_splits + split) * (a.vd + 2), by = 1;
        UNROLL(d, ND)
            if ((int)threadIdx.x + 128 * d < a.vd) to[threadIdx.x + 128 * d] = acc[k][d] * by;
        if (a.n_splits > 1 && threadIdx.x == 0) to[a.vd] = p[k], to[a.vd + 1] = factor[k];
    }
}

/* Computes: out (rows, heads, vd) = the splits' partial results (vd values, maximum, sum) added up in order, each times exp2(its maximum -
 * the largest). Grid: (rows, heads), a thread values d, d + 128, ... Twin: llm__run_attention, which does not split. */
static __global__ void __launch_bounds__(128) kernel_attention_join(step_view s, attention_args a) {
    grid_wait();
    int row = a.first_row + (int)blockIdx.x, head = (int)blockIdx.y;
    if (row >= s.head[HEAD_ROWS]) return;
    const float *from = a.partial + ((int64_t)blockIdx.x * a.n_heads + head) * a.n_splits * (a.vd + 2);
    float top = -1e30f, sum = 0;
    for (int i = 0; i < a.n_splits; i++) top = fmaxf(top, from[i * (a.vd + 2) + a.vd]);
    for (int i = 0; i < a.n_splits; i++) sum += from[i * (a.vd + 2) + a.vd + 1] * exp2f(from[i * (a.vd + 2) + a.vd] - top);
    for (int d = threadIdx.x; d < a.vd; d += blockDim.x) {
        float v = 0;
        for (int i = 0; i < a.n_splits; i++) v += from[i * (a.vd + 2) + d] * exp2f(from[i * (a.vd + 2) + a.vd] - top);
        a.out[row - (a.latent ? a.first_row : 0)][head * a.vd + d] = sum > 0 ? v / sum : 0;
    }
}

/* Shared memory of a block: queries of its tile, keys, weights, factors. 27 KiB at 16 heads of 128 values, 113 at 16 latents of 576, 95 at
 * 8 of them. */
static size_t attention_smem(int queries, int hd) {
    return sizeof(float) * (size_t)(queries * hd + KEYS * (hd | 1) + QUERIES * KEYS + QUERIES);
}

/* ============================================================================
 * >>attention_split   Single rows, on tensor cores.
 * ============================================================================ */

/* How elements lie in shared memory: as the products take them, or as bytes that are widened on the way. */
enum { STORED_F16, STORED_BF16, STORED_BYTES };
static constexpr int STEP_KEYS = 16, TILE_QUERIES = 8, SPLIT_STAGES = 2;

/* Warps of a block, bytes between rows of shared memory and of a stage: keys and values of a step and, of bytes, their scales. Rows are
 * so far apart that what 8 lanes read at once meets each bank once. */
static constexpr __host__ __device__ int split_warps(int hd) { return hd <= 128 ? 4 : 2; }
static constexpr __host__ __device__ int split_blocks(int stored, int hd) { /* of an SM */
    return hd <= 64 || (hd <= 128 && stored == STORED_BYTES) ? 3 : 2;
}
static constexpr __host__ __device__ int split_stride(int stored, int hd) { return stored == STORED_BYTES ? hd + 32 : 2 * hd + 16; }
static constexpr __host__ __device__ int split_stage(int stored, int hd) {
    return 2 * STEP_KEYS * split_stride(stored, hd) + (stored == STORED_BYTES ? 4 * STEP_KEYS * 4 : 0);
}

/* The key of column n of product j (of two, 8 keys each) of a step. Of bytes a lane reads words of four rows side by side, which lie in
 * different banks in this order. */
template <int STORED> DEVICE int split_key(int j, int n) {
    return 8 * j + (STORED != STORED_BYTES ? n : n & 1 ? 4 + ((n / 2 + 2) & 3) : n / 2);
}

/* The first value of a head that a lane has in step k of 16 of the product with keys, whose columns 2 t, 2 t + 1 these are, and how far the
 * pair of columns 2 t + 8 is from it. Of bytes a lane takes 16 side by side for four steps. */
template <int STORED> DEVICE int split_value(int k, int t) {
    return STORED == STORED_BYTES ? k / 4 * 64 + 16 * t + k % 4 * 4 : 16 * k + 2 * t;
}
static constexpr __device__ int split_pair(int stored) { return stored == STORED_BYTES ? 2 : 8; }

/* Queries of one sequence that share a KV head, and what they see: i is row row0 + i / n_heads, head first_head + i % n_heads. */
typedef struct split_tile {
    int row0, n, n_heads, first_head, kv_head, from, to, len;
    const int32_t *pages;
} split_tile;

/* A query of the tile, that of lanes 4 g to 4 g + 3: position, the positions that it sees, what its scores are multiplied by, the sum of
 * its values. In shared memory: registers are for sums. */
typedef struct split_query {
    int at, from, to;
    float slope, scale, sum;
} split_query;

/* How bytes of a type become halves, exactly, before scale and offset: two are set into the places of two halves, beside `filler`; all but
 * the sign moves down by `shift`; then times mul, plus add. A whole number below 0x64 is the half 1024 + n; e5m2 is the upper byte of a
 * half; e4m3's exponent has one bit less, and its zero is 2^8 higher. No branch, so that one kernel does for all of them. */
typedef struct byte_form {
    uint32_t filler, first, second, mul, add;
    int shift, nibbles;
} byte_form;

DEVICE byte_form byte_form_of(int type) {
    const int whole = type == LLM_KV_INT8 || type == LLM_KV_INT4, e4m3 = type == LLM_KV_FP8_E4M3;
    byte_form f = {whole ? 0x64646464u : 0u,
                   whole ? 0x4140u : 0x1404u,
                   whole ? 0x4342u : 0x3424u,
                   e4m3 ? 0x5c005c00u : 0x3c003c00u,
                   whole ? 0xe400e400u : 0x80008000u,
                   e4m3,
                   type == LLM_KV_INT4}; /* 256 or 1; -1024 or -0 */
    return f;
}

/* Four elements to two pairs of halves. */
DEVICE void bytes_to_halves(const byte_form &f, uint32_t four, uint32_t *two) {
    const uint32_t select[2] = {f.first, f.second};
    UNROLL(h, 2) {
        uint32_t x = __byte_perm(four, f.filler, select[h]);
        two[h] = halves_fma((x & 0x80008000) | (x & 0x7fff7fff) >> f.shift, f.mul, f.add);
    }
}

/* Elements d to d + 3 of a row of n in shared memory, as bytes; of int4 byte i has i and i + n / 2. */
DEVICE uint32_t bytes_at(const byte_form &f, const uint8_t *row, int d, int n) {
    const int above = f.nibbles && 2 * d >= n;
    return *(const uint32_t *)(row + d - (above ? n / 2 : 0)) >> (above ? 4 : 0) & (f.nibbles ? 0x0f0f0f0fu : ~0u);
}

/* Starts the copy of the keys and values [from, to) of positions [16 block, 16 block + 16), which are of one page, into a stage; zeros
 * where there are none, as even what is not seen takes part in a product with 0. A warp. */
template <int STORED, int HD> static __device__ void split_load(const kv_view &kv, const split_tile &a, int block, uint8_t *stage) {
    const int lane = threadIdx.x & 31, first = block * STEP_KEYS, from = a.from - first, to = a.to - first, at = first % kv.page_tokens;
    const uint8_t *page = kv_part(kv, a.pages, first, a.kv_head);
    const int BYTES = STORED == STORED_BYTES ? HD : 2 * HD, VECTORS = BYTES / 16;
    UNROLL(values, 2) {
        const int row = (values ? kv.place.v_elements : kv.place.k_elements) * kv.element_bytes;
        const uint8_t *x = page + (values ? kv.place.v_offset : 0) + (int64_t)at * row;
        uint8_t *y = stage + values * STEP_KEYS * split_stride(STORED, HD);
        if (row % 16 == 0 && (HD <= 128 || LATE_ARCH)) { /* from row to row by steps */
            const int EACH = 32 / VECTORS, j0 = lane / VECTORS, c = lane % VECTORS * 16, in = c < row;
            const uint8_t *z = x + j0 * row + c;
            y += j0 * split_stride(STORED, HD) + c;
#pragma unroll
            for (int i = 0; i < STEP_KEYS / EACH; i++, z += EACH * row)
                copy_async_16(y + i * EACH * split_stride(STORED, HD), z, in && j0 + i * EACH >= from && j0 + i * EACH < to ? 16 : 0);
        } else if (row % 16 == 0) /* in fewer registers, as ptxas has it for wide heads */
#pragma unroll
            for (int i = lane; i < STEP_KEYS * VECTORS; i += 32) {
                int j = i / VECTORS, c = i % VECTORS * 16, there = j >= from && j < to && c < row;
                copy_async_16(y + j * split_stride(STORED, HD) + c, there ? x + (int64_t)j * row + c : x, there ? 16 : 0);
            }
        else /* short rows, which start anywhere */
#pragma unroll 1
            for (int i = lane; i < STEP_KEYS * BYTES; i += 32) {
                int j = i / BYTES, c = i % BYTES;
                y[j * split_stride(STORED, HD) + c] = j >= from && j < to && c < row ? x[(int64_t)j * row + c] : 0;
            }
    }
    if (STORED == STORED_BYTES) {
        const float *scales = (const float *)(page + kv.place.scale_offset) + at;
        float *y = (float *)(stage + 2 * STEP_KEYS * split_stride(STORED, HD));
        UNROLL(k, 2) { /* 4 of each token */
            int i = lane + 32 * k, j = i & 15, there = j >= from && j < to;
            copy_async_4(y + i, scales + i / 16 * kv.page_tokens + j, there ? 4 : 0);
        }
    }
    copy_async_end();
}

/* s[j] += the tile's queries (8, in two parts: rows g and g + 8) times key split_key(j, n) of a step, for every n. */
template <int STORED, int HD> DEVICE void split_scores(const byte_form &form, int hd, const uint4 *q, const uint8_t *keys, float (*s)[4]) {
    const int lane = threadIdx.x & 31, STRIDE = split_stride(STORED, HD);
    if constexpr (STORED != STORED_BYTES) {
        UNROLL(k, HD / 16) {
            uint32_t key[4];
            if (k && 16 * k >= hd) continue;
            const uint4 f = q[32 * k + lane];
            const uint32_t query[4] = {f.x, f.y, f.z, f.w};
            load_matrix_x4(key, keys + ((lane & 7) + (lane >> 4) * 8) * STRIDE + 32 * k + (lane >> 3 & 1) * 16);
            mma_16x8x16<STORED == STORED_F16>(s[0], query, key);
            mma_16x8x16<STORED == STORED_F16>(s[1], query, key + 2);
        }
    } else {
#pragma unroll
        for (int k = 0; k < HD / 16; k += 4) {
            const int d = split_value<STORED>(k, lane & 3);
            uint32_t word[2][4];
            if (k && 16 * k >= hd) continue;
            UNROLL(j, 2) {
                const uint8_t *row = keys + split_key<STORED>(j, lane >> 2) * STRIDE;
                if (!form.nibbles) {
                    uint4 all = *(const uint4 *)(row + d);
                    word[j][0] = all.x, word[j][1] = all.y, word[j][2] = all.z, word[j][3] = all.w;
                } else
                    UNROLL(i, 4) word[j][i] = bytes_at(form, row, d + 4 * i, hd);
            }
            UNROLL(i, 4) {
                const uint4 f = q[32 * (k + i) + lane];
                const uint32_t query[4] = {f.x, f.y, f.z, f.w};
                UNROLL(j, 2) {
                    uint32_t key[2];
                    bytes_to_halves(form, word[j][i], key);
                    mma_16x8x16<true>(s[j], query, key);
                }
            }
        }
    }
}

/* acc += weights p (8 queries in two parts, 16 keys) times the values of a step. Of bytes acc[4 J + i] has column n's value 32 J + 4 n + i:
 * a lane reads words of four keys and takes them apart. */
template <int STORED, int HD>
DEVICE void split_values(const byte_form &form, int vd, const uint32_t *p, const uint8_t *values, const float *scales, float (*acc)[4]) {
    const int lane = threadIdx.x & 31, t = lane & 3, STRIDE = split_stride(STORED, HD);
    if constexpr (STORED != STORED_BYTES) {
#pragma unroll
        for (int d = 0; d < HD; d += 16) {
            uint32_t v[4];
            if (d && d >= vd) continue;
            load_matrix_x4_turned(v, values + (lane & 15) * STRIDE + 2 * d + (lane >> 4) * 16);
            mma_16x8x16<STORED == STORED_F16>(acc[d / 8], p, v);
            mma_16x8x16<STORED == STORED_F16>(acc[d / 8 + 1], p, v + 2);
        }
    } else {
#pragma unroll
        for (int d = 0; d < HD; d += 32) {
            uint32_t pair[4][2];
            if (d && d >= vd) continue;
            UNROLL(h, 2) {
                float v[2][4];
                UNROLL(e, 2) {
                    uint32_t two[2];
                    const int key = split_key<STORED>(h, 2 * t + e);
                    const float scale = scales[2 * STEP_KEYS + key], offset = scales[3 * STEP_KEYS + key];
                    bytes_to_halves(form, bytes_at(form, values + key * STRIDE, d + 4 * (lane >> 2), vd), two);
                    UNROLL(i, 4) v[e][i] = __fmaf_rn(scale, half_to_f32((uint16_t)(two[i / 2] >> (16 * (i % 2)))), offset);
                }
                UNROLL(i, 4) pair[i][h] = narrow_pair<true>(v[0][i], v[1][i]);
            }
            UNROLL(i, 4) mma_16x8x16<true>(acc[d / 8 + i], p, pair[i]);
        }
    }
}

/* One step of a warp: scores with 16 keys from position `first` on, the online softmax, acc += weights times values. Twins:
 * llm__body_soften. */
template <int STORED, int HD>
DEVICE void split_step(const byte_form &form, const attention_args &a, int first, const uint4 *qf, const uint8_t *stage,
                       const split_query &q, float *m, float *l, float (*acc)[4]) {
    const int t = threadIdx.x & 3;
    const uint8_t *values = stage + STEP_KEYS * split_stride(STORED, HD);
    const float *scales = (const float *)(values + STEP_KEYS * split_stride(STORED, HD));
    float s[2][4] = {}, x[4], top = *m;
    uint32_t p[4];
    split_scores<STORED, HD>(form, a.hd, qf, stage, s);
    UNROLL(e, 4) {
        int key = split_key<STORED>(e / 2, 2 * t + e % 2), position = first + key;
        float v = s[e / 2][e % 2] + s[e / 2][2 + e % 2];
        if (STORED == STORED_BYTES) v = __fmaf_rn(scales[key], v, scales[STEP_KEYS + key] * q.sum);
        v *= q.scale;
        if (a.softcap > 0) v = a.softcap * tanhf(v / a.softcap);
        v = (v + q.slope * (float)(position - q.at)) * 1.44269504f;
        x[e] = position >= q.from && position < q.to ? v : -INFINITY;
        top = fmaxf(top, x[e]);
    }
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    float c = exp2f(*m - top);
    UNROLL(e, 4) x[e] = exp2f(x[e] - top);
    *m = top;
    *l = *l * c + ((x[0] + x[1]) + (x[2] + x[3]));
    UNROLL(j, HD / 8)
        UNROLL(e, 4) acc[j][e] *= c;
    split_pair_of<STORED != STORED_BF16>(x[0], x[1], &p[0], &p[1]);
    split_pair_of<STORED != STORED_BF16>(x[2], x[3], &p[2], &p[3]);
    split_values<STORED, HD>(form, a.vd, p, values, scales, acc);
}

/* Where value d of a query of the tile is left: in an order of a query's own, for all of them are written at once, whose rows begin in the
 * same bank; where there are registers for it. */
template <int STORED, int HD> DEVICE int split_place(int query, int d) {
    return query * HD + (HD > 128 ? d : d ^ (STORED == STORED_BYTES ? query : (query & 3) * 8));
}

/* Where a warp stands: its next step of 16 keys, whose copy is under way to `stage` of its two, and the end of the steps of the block. */
typedef struct split_cursor {
    int block, end, stage;
} split_cursor;

/* A warp's part of a split: every step whose number its own is in turn. The copy for the split behind it is under way when it is done, so
 * that memory has no pause. `ring`: the warp's stages; m, l: of its queries. Returns the stage where its sums (8, HD) are left. */
template <int STORED, int HD>
DEVICE int split_attend(const kv_view &kv, const attention_args &a, const split_tile &tile, int split, split_cursor *c, const uint4 *qf,
                        const split_query *queries, uint8_t *ring, float *m, float *l) {
    const int W = split_warps(HD), STAGE = split_stage(STORED, HD), lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3,
              end = min(c->end, (split + 1) * (SPLIT / STEP_KEYS));
    const byte_form form = byte_form_of(kv.type);
    float acc[HD / 8][4] = {}, top = -1e30f, sum = 0;
    for (; c->block < end; c->block += W, c->stage ^= 1) {
        if (c->block + W < c->end) {
            split_load<STORED, HD>(kv, tile, c->block + W, ring + (c->stage ^ 1) * STAGE);
            copy_async_wait<1>();
        } else copy_async_wait<0>();
        __syncwarp();
        split_step<STORED, HD>(form, a, c->block * STEP_KEYS, qf, ring + c->stage * STAGE, queries[g], &top, &sum, acc);
        __syncwarp();
    }
    ring += (c->stage ^ 1) * STAGE;
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (t == 0) m[g] = top, l[g] = sum;
    UNROLL(j, HD / 8)
        UNROLL(e, 2)
            ((float *)ring)[split_place<STORED, HD>(g, STORED == STORED_BYTES ? j / 4 * 32 + 4 * (2 * t + e) + j % 4 : 8 * j + 2 * t + e)] =
                acc[j][e] + acc[j][2 + e];
    return c->stage ^ 1;
}

/* Floats between the tile's queries in shared memory: pairs that lanes read at once lie in different banks. */
static constexpr __device__ int split_row(int hd) { return hd + 8; }

/* The tile's queries to x (8, split_row): as they are; or, of a row that is fresh from its product, normed and rotated on the way, and with
 * `write`, which the block has that attends to the row itself, key and value to their page. Of several tiles of a KV head each writes, the
 * same; `fresh`: room for them (2, HD). Behind it a barrier is wanted. */
template <int HD>
DEVICE void split_fetch(const step_view &s, const kv_view &kv, const attention_args &a, const split_tile &tile, int write, float *x,
                        float *fresh) {
    const int W = split_warps(HD), warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    for (int g = warp; g < tile.n; g += W) {
        int row = tile.row0 + g / tile.n_heads, head = tile.first_head + g % tile.n_heads;
        const float *from = a.q[row] + a.q_col + head * a.hd;
        for (int d = lane; d < a.hd; d += 32) x[g * split_row(HD) + d] = from[d];
        __syncwarp();
        if (a.fresh) warp_finish_query(s, kv, a.qkv, row, head, 1, x + g * split_row(HD));
    }
    if (!a.fresh || !write || warp != W - 1) return;
    const float *k = a.qkv.x[tile.row0] + a.qkv.op.k_col + tile.kv_head * a.hd,
                *v = a.qkv.x[tile.row0] + a.qkv.op.v_col + tile.kv_head * a.vd;
    for (int d = lane; d < a.hd; d += 32) fresh[d] = k[d];
    for (int d = lane; d < a.vd; d += 32) fresh[HD + d] = v[d];
    __syncwarp();
    warp_finish_key(s, kv, a.qkv, tile.row0, tile.kv_head, 1, fresh, fresh + HD);
}

/* They become, in two parts each, what lanes want for the products: each warp has its share of the steps of 16 values. Halves are brought
 * down to what they can hold. Behind it a barrier is wanted. */
template <int STORED, int HD>
DEVICE void split_queries(const step_view &s, const attention_args &a, const split_tile &tile, const float *x, uint4 *qf,
                          split_query *queries) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, there = g < tile.n, row = tile.row0 + (there ? g / tile.n_heads : 0),
              head = tile.first_head + (there ? g % tile.n_heads : 0);
    const int W = split_warps(HD), warp = threadIdx.x >> 5;
    float most = 0, by = 1;
    split_query q;
    x += g * split_row(HD);
    q.at = row_position(s, row);
    q.from = q.to = 0;
    if (there) row_sees(s, a, row, q.at, tile.len, &q.from, &q.to);
    q.slope = a.alibi ? a.alibi[head] : 0;
    q.sum = 0;
    for (int d = 2 * t; d < a.hd && there && STORED != STORED_BF16; d += 8) {
        float2 v = *(const float2 *)(x + d);
        most = fmaxf(most, fmaxf(fabsf(v.x), fabsf(v.y)));
        q.sum += v.x + v.y;
    }
    if (STORED != STORED_BF16) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        by = half_scale(fmaxf(most, __shfl_xor_sync(~0u, most, 2)));
        q.sum += __shfl_xor_sync(~0u, q.sum, 1);
        q.sum = by * (q.sum + __shfl_xor_sync(~0u, q.sum, 2));
    }
    q.scale = a.scale / by;
    if (t == 0 && warp == 0) queries[g] = q;
    for (int k = warp; k < HD / 16; k += W) {
        uint32_t f[4];
        UNROLL(h, 2) {
            int d = split_value<STORED>(k, t) + h * split_pair(STORED);
            float2 v = there && d < a.hd ? *(const float2 *)(x + d) : make_float2(0, 0);
            split_pair_of<STORED != STORED_BF16>(by * v.x, by * v.y, &f[2 * h], &f[2 * h + 1]);
        }
        qf[32 * k + lane] = make_uint4(f[0], f[1], f[2], f[3]);
    }
}

/* What a split adds to what the splits before it gave, of one query: the running maximum and sum, and the factors by which values before
 * and now are multiplied. The same roundings wherever it is done, so that nobody can tell which block did it. */
typedef struct split_fold {
    float m, l, before, now;
} split_fold;

DEVICE void fold_split(split_fold *f, float m, float l) {
    float top = l > 0 ? fmaxf(f->m, m) : f->m;
    f->before = exp2f(f->m - top);
    f->now = l > 0 ? exp2f(m - top) : 0;
    f->l = __fmaf_rn(l, f->now, __fmul_rn(f->l, f->before));
    f->m = top;
}
DEVICE float fold_value(float sum, float v, float before, float now) { return __fmaf_rn(v, now, __fmul_rn(sum, before)); }

typedef struct split_job { /* splits [first, end) of a tile; slot -1: they are all, see split_run */
    split_tile tile;
    int first, end, write, slot, slot0, n;
} split_job;

/* Shared memory of a block beside its stages: of each warp and query maximum, sum and factor; factors of folding; what a query's values are
 * multiplied by in the end. */
static constexpr int FOLD_SPLITS = 64; /* splits of other blocks whose factors are made at once */
typedef struct split_shared {
    float m[4][TILE_QUERIES], l[4][TILE_QUERIES], by[4][TILE_QUERIES], before[FOLD_SPLITS][TILE_QUERIES], now[FOLD_SPLITS][TILE_QUERIES],
        end[TILE_QUERIES], top[TILE_QUERIES], sum[TILE_QUERIES];
    split_fold fold[TILE_QUERIES];
    split_query query[TILE_QUERIES];
    split_job job[2]; /* the one at hand, and the one behind it: registers are for sums */
    work_item work;   /* where split_next is: item, its rows that are left, the items of the ticket, the next ticket */
    int item, row, end_row, next, stop, ticket;
    int stage[4]; /* of each warp, where its sums are */
    int last;
} split_shared;

/* Maximum and sum of query x from those of its warps, and the factors of their values. */
template <int W> DEVICE void split_join(split_shared &sh, int x) {
    float top = -1e30f, sum = 0;
    UNROLL(w, W) top = fmaxf(top, sh.l[w][x] > 0 ? sh.m[w][x] : -1e30f);
    UNROLL(w, W) {
        float by = sh.l[w][x] > 0 ? exp2f(sh.m[w][x] - top) : 0;
        sh.by[w][x] = by;
        sum = __fmaf_rn(sh.l[w][x], by, sum);
    }
    sh.top[x] = top, sh.sum[x] = sum;
}

/* What a query begins with: nothing, or a sink, which is a score without a value. */
DEVICE split_fold fold_begin(const attention_args &a, const split_tile &tile, int query) {
    split_fold f = {-1e30f, 0, 0, 0};
    if (a.sinks && query < tile.n) f.m = a.sinks[tile.first_head + query % tile.n_heads] * 1.44269504f, f.l = 1;
    return f;
}

/* Results of the tile's queries to `out`, turned back where pages keep them turned: a warp takes queries in turn. All threads. */
template <int HD>
DEVICE void split_end(const kv_view &kv, const attention_args &a, const split_tile &tile, const split_shared &sh, float *total) {
    __syncthreads();
    for (int query = threadIdx.x >> 5; query < tile.n; query += split_warps(HD)) {
        const float by = sh.end[query];
        float *x = total + query * HD;
        if (kv.scaled) warp_turn(x, a.vd, kv_turn_size(a.vd));
        for (int d = 2 * (threadIdx.x & 31); d < a.vd; d += 64)
            attend_store(a, tile.row0 + query / tile.n_heads, (tile.first_head + query % tile.n_heads) * a.vd + d, x[d] * by,
                         x[d + 1] * by);
    }
    __syncthreads();
}

/* Floats of a split in a.partial: values of all heads, then maximum and sum of each. Vectors of four start on 16 bytes. */
static __host__ __device__ __forceinline__ int64_t split_floats(int n_heads, int vd) {
    return (int64_t)n_heads * vd + (2 * n_heads + 3) / 4 * 4;
}

/* The last of a row's blocks adds up what all left in places `slot`, slot + 1, ... of a.partial, all loads of FOLD_SPLITS at once: a thread
 * has four values side by side. */
template <int HD>
DEVICE void split_gather(const attention_args &a, const split_tile &tile, int slot, int n, split_shared &sh, float *total) {
    const int THREADS = 32 * split_warps(HD), x = threadIdx.x, fours = a.vd / 4;
    const int64_t each = split_floats(a.n_heads, a.vd);
    const float *from = a.partial + slot * each + (int64_t)tile.first_head * a.vd,
                *sums = a.partial + slot * each + (int64_t)a.n_heads * a.vd + 2 * tile.first_head;
    split_fold f = fold_begin(a, tile, x);
    for (int s0 = 0; s0 < n; s0 += FOLD_SPLITS, from += FOLD_SPLITS * each, sums += FOLD_SPLITS * each) {
        const int some = min(FOLD_SPLITS, n - s0);
        __syncthreads();
        for (int i = x; i < some * tile.n; i += THREADS) {
            float2 v = __ldcg((const float2 *)(sums + i / tile.n * each) + i % tile.n);
            sh.before[i / tile.n][i % tile.n] = v.x, sh.now[i / tile.n][i % tile.n] = v.y;
        }
        __syncthreads();
        for (int i = 0; i < some && x < tile.n; i++) {
            fold_split(&f, sh.before[i][x], sh.now[i][x]);
            sh.before[i][x] = f.before, sh.now[i][x] = f.now;
        }
        __syncthreads();
        for (int k = x; k < tile.n * fours; k += THREADS) {
            const int query = k / fours, d = k % fours * 4;
            const float *p = from + query * a.vd + d;
            float4 *to = (float4 *)(total + query * HD + d), v = s0 ? *to : make_float4(0, 0, 0, 0);
#pragma unroll 8
            for (int i = 0; i < some; i++) {
                const float before = sh.before[i][query], now = sh.now[i][query];
                const float4 u = __ldcg((const float4 *)(p + i * each));
                v = make_float4(fold_value(v.x, u.x, before, now), fold_value(v.y, u.y, before, now), fold_value(v.z, u.z, before, now),
                                fold_value(v.w, u.w, before, now));
            }
            *to = v;
        }
    }
    if (x < TILE_QUERIES) sh.end[x] = f.l > 0 ? 1 / f.l : 0;
}

/* One thread: what the block does next, to `job`, whose n is 0 if there is nothing. A ticket is for some items of the list side by side;
 * the next one is drawn while one begins, unless each block has one at most. The block that drew the last of all sets the count back. */
DEVICE void split_next(const step_view &s, const attention_args &a, split_shared &sh, split_job *job) {
    const work_item *work = (const work_item *)(s.head + s.head[HEAD_WORK]);
    const int first_head = (int)blockIdx.y % a.head_tiles * a.heads, n_heads = min(a.heads, a.group - first_head),
              kv_head = (int)blockIdx.y / a.head_tiles, blocks = (int)gridDim.x, n_work = s.head[HEAD_N_WORK],
              each = max(1, n_work / (8 * blocks)), tickets = ceil_div(n_work, each), draws = tickets > blocks;
    int ticket = sh.ticket;
    for (job->n = 0; !job->n;) {
        if (sh.row >= sh.end_row) { /* another item */
            if (sh.next >= sh.stop) {
                if (ticket >= tickets) {
                    if (draws && a.drawn && ticket == blocks + tickets - 1) atomicExch(a.drawn + blockIdx.y, 0u);
                    return;
                }
                sh.next = ticket * each, sh.stop = min(sh.next + each, n_work);
                ticket = blocks + (draws && a.drawn ? (int)atomicAdd(a.drawn + blockIdx.y, 1u) : ticket);
            }
            const work_item w = work[sh.next];
            sh.work = w, sh.item = sh.next, sh.row = w.row, sh.end_row = w.row + w.n;
            sh.next += w.split < 0 ? 1 : min(sh.stop - sh.next, w.n_splits - w.split);
        }
        const work_item w = sh.work;
        const int row = sh.row, end_row = min(row + a.rows, sh.end_row), seq = s.seq_of_row[row];
        const attend_part part = part_of(s, a, seq, row, row, end_row, n_heads);
        sh.row = end_row;
        job->tile = {row,
                     part.qb,
                     n_heads,
                     kv_head * a.group + first_head,
                     kv_head,
                     part.from,
                     min(part.to, s.seq_len[seq]),
                     s.seq_len[seq],
                     s.pages + (int64_t)seq * s.head[HEAD_STRIDE]};
        const int first = part.from / SPLIT, end = max(ceil_div(job->tile.to, SPLIT), first + 1), slot0 = sh.item - w.split,
                  alone = w.split < 0 || slot0 + w.n_splits > a.n_splits; /* the block of the first split does all */
        int from = max(first, w.split), to = min(end, w.split + sh.next - sh.item);
        if (alone && (w.split < 0 || (from == first && from < to))) from = first, to = end;
        else if (alone || from >= to) continue;
        job->first = from, job->end = to, job->write = to == end, job->slot = from == first && to == end ? -1 : slot0 + from;
        job->slot0 = slot0 + first, job->n = end - first;
    }
    sh.ticket = ticket;
}

/* Does job k of both; the one behind it is looked for in the meantime. If it has not all splits of its tile, their sums go to place `slot`
 * of a.partial and the next ones, and the block that finds those of the others there adds them up: `n` there are, from `slot0` on. `write`:
 * see split_fetch. The first copies are under way while queries are made. `memory`: stages, queries, results. */
template <int STORED, int HD>
DEVICE void split_run(const step_view &s, const kv_view &kv, const attention_args &a, split_shared &sh, int k, uint8_t *memory) {
    const int W = split_warps(HD), STAGE = split_stage(STORED, HD), RING = SPLIT_STAGES * STAGE, THREADS = 32 * W, warp = threadIdx.x >> 5,
              x = threadIdx.x;
    const split_job &job = sh.job[k];
    const split_tile &tile = job.tile;
    uint4 *qf = (uint4 *)(memory + W * RING);
    float *total = (float *)(qf + 2 * HD), *rows = (float *)(memory + STAGE); /* the queries: where nothing is copied to yet */
    split_cursor c = {max(tile.from, job.first * SPLIT) / STEP_KEYS, ceil_div(min(tile.to, job.end * SPLIT), STEP_KEYS), 0};
    c.block += (warp - c.block) & (W - 1);
    if (x < TILE_QUERIES) sh.fold[x] = fold_begin(a, tile, x);
    const int wait = a.fresh && job.write; /* for the row's own key */
    if (!wait && c.block < c.end) split_load<STORED, HD>(kv, tile, c.block, memory + warp * RING);
    if (x == 0) split_next(s, a, sh, &sh.job[k ^ 1]);
    split_fetch<HD>(s, kv, a, tile, job.write, rows, total);
    __syncthreads();
    if (wait && c.block < c.end) split_load<STORED, HD>(kv, tile, c.block, memory + warp * RING);
    split_queries<STORED, HD>(s, a, tile, rows, qf, sh.query);
    __syncthreads();
    for (int split = job.first; split < job.end; split++) {
        int stage = split_attend<STORED, HD>(kv, a, tile, split, &c, qf, sh.query, memory + warp * RING, sh.m[warp], sh.l[warp]);
        if (x % 32 == 0) sh.stage[warp] = stage;
        __syncthreads();
        float *partial = a.partial + (job.slot + split - job.first) * split_floats(a.n_heads, a.vd);
        if (x < TILE_QUERIES) {
            split_fold f = sh.fold[x];
            split_join<W>(sh, x);
            fold_split(&f, sh.top[x], sh.sum[x]);
            sh.fold[x] = f;
            sh.before[0][x] = f.before, sh.now[0][x] = f.now, sh.end[x] = f.l > 0 ? 1 / f.l : 0;
            if (job.slot >= 0 && x < tile.n)
                *(float2 *)(partial + (int64_t)a.n_heads * a.vd + 2 * (tile.first_head + x)) = make_float2(sh.top[x], sh.sum[x]);
        }
        __syncthreads();
        for (int i = x; i < tile.n * HD; i += THREADS) {
            int query = i / HD, d = i % HD;
            float v = 0;
            UNROLL(w, W) {
                const float *sums = (const float *)(memory + w * RING + sh.stage[w] * STAGE);
                v = __fmaf_rn(sums[split_place<STORED, HD>(query, d)], sh.by[w][query], v);
            }
            if (job.slot < 0) total[i] = fold_value(split > job.first ? total[i] : 0, v, sh.before[0][query], sh.now[0][query]);
            else if (d < a.vd) partial[(tile.first_head + query) * a.vd + d] = v;
        }
        __syncthreads();
    }
    if (job.slot >= 0) {
        unsigned *arrived = a.arrived + s.seq_of_row[tile.row0] * MAX_TILES + (int)blockIdx.y;
        __threadfence();
        __syncthreads();
        if (x == 0) {
            sh.last = atomicAdd(arrived, (unsigned)(job.end - job.first)) == (unsigned)(job.n - (job.end - job.first));
            if (sh.last) atomicExch(arrived, 0u);
            __threadfence();
        }
        __syncthreads();
        if (!sh.last) return;
        split_gather<HD>(a, tile, job.slot0, job.n, sh, total);
    }
    split_end<HD>(kv, a, tile, sh, total);
}

/* Computes: out (rows, heads * vd) = softmax(q k^T * scale) v over the pages, for rows of the step's work list. Grid: (blocks, KV heads x
 * tiles of heads), 4 warps (2 with wide heads). A ticket is for some items of the list side by side; a block draws the next one while it
 * works on one: so a block that adds up a row is given less to do, where with items at even distances it would be the last of every row. A
 * tile is up to 8 queries of a KV head: a row's heads of a group, or several rows'. What is fresh is normed, rotated and written to its
 * page first, see split_fetch. A split is 256 keys, by position: a warp takes every fourth step of 16, copies its keys and values into
 * shared memory while it multiplies those of the step before, and waits for the others only at the end of a split, with the copies for the
 * next one under way. Queries and weights stand in the 16 rows of a product twice, the nearest 16-bit value and what is left of it: so they
 * lose nothing, and nothing is lost by that, for 8 rows would stand empty. What a split gives depends on the row's own keys alone and
 * splits are folded in order, so a row's bits do not tell which rows came with it, nor how many blocks worked on it. Reads: each key and
 * value once a tile. After FlashDecoding (Dao et al. 2023). Twins: llm__run_attention, llm__qkv_heads. */
template <int STORED, int HD>
static __global__ void __launch_bounds__(32 * split_warps(HD), split_blocks(STORED, HD))
    kernel_attention_split(step_view s, kv_view kv, attention_args a) {
    grid_wait();
    DYN_SMEM(uint8_t, memory);
    SMEM(split_shared, sh, 1);
    if (threadIdx.x == 0) {
        sh->row = sh->end_row = sh->next = sh->stop = 0, sh->ticket = (int)blockIdx.x;
        split_next(s, a, sh[0], &sh->job[0]);
    }
    __syncthreads();
    for (int k = 0; sh->job[k].n; k ^= 1) split_run<STORED, HD>(s, kv, a, sh[0], k, memory);
}

/* What kernels of 64, 128 or 256 values of a head are told by. */
static int width_log(const attention_args &a) { return max_int(a.hd, a.vd) <= 64 ? 6 : max_int(a.hd, a.vd) <= 128 ? 7 : 8; }

/* Starts it for the step's work; n_splits of the arguments: places that a.partial has. */
static void run_splits(rank *r, const kv_view &kv, attention_args a, int n_kv_heads) {
    a.heads = min_int(a.group, TILE_QUERIES);
    a.head_tiles = ceil_div(a.group, a.heads);
    a.rows = TILE_QUERIES / a.heads;
    a.arrived = r->arrived;
    const int tiles = n_kv_heads * a.head_tiles;
    a.drawn = tiles > MAX_TILES ? NULL : r->arrived + (size_t)r->ctx->cfg.max_seqs * MAX_TILES;
    a.n_splits = tiles > MAX_TILES ? 0
                                   : min_int(MAX_SPLITS + r->ctx->cfg.max_rows,
                                             (int64_t)(r->scratch_bytes / sizeof(float)) / split_floats(a.n_heads, a.vd));
    int stored = kv.type == LLM_KV_F16 ? STORED_F16 : kv.type == LLM_KV_BF16 ? STORED_BF16 : STORED_BYTES;
    with_constant<STORED_F16, STORED_BYTES>(stored, [&](auto form) {
        with_constant<6, 8>(width_log(a), [&](auto log) {
            const int STORED = form.value, HD = 1 << log.value, warps = split_warps(HD);
            const size_t smem = (size_t)(warps * SPLIT_STAGES * split_stage(STORED, HD) + 2 * TILE_QUERIES * HD * 4);
            launch<kernel_attention_split<form.value, 1 << log.value>>(r, {ceil_div(split_blocks(STORED, HD) * r->n_sms, tiles), tiles},
                                                                       32 * warps, smem, r->view, kv, a);
        });
    });
}

/* ============================================================================
 * >>attention_chunk   Prompts, on tensor cores; and which way attention takes.
 * ============================================================================ */

/* Threads of a block. A warp has sixteens times 16 queries: of warps as many as registers have room for beside heads of HD values, so that
 * keys it has read are used as often. Keys of a step likewise. */
static constexpr __host__ __device__ int chunk_threads(int by) { return by == BY_WARPS ? 128 : 256; }
static constexpr __host__ __device__ int chunk_sixteens(int hd, int by) { return by == BY_WARPS && hd <= 128 ? 2 : 1; }
static constexpr __host__ __device__ int chunk_queries(int hd, int by) { return chunk_threads(by) / 32 * 16 * chunk_sixteens(hd, by); }
static constexpr __host__ __device__ int chunk_keys(int hd, int by) { return by == BY_GROUPS ? 128 : hd <= 64 ? 64 : 32; }

/* Shared memory, in bytes: queries, two stages of keys and values; of bytes one, and them as they are stored, with their scales. */
static constexpr __host__ __device__ int chunk_stage(int hd, int by) { return 2 * chunk_keys(hd, by) * hd * 2; }
static constexpr __host__ __device__ int chunk_smem(int stored, int hd, int by) {
    return (by == BY_GROUPS ? TILE_ALIGN : 0) + chunk_queries(hd, by) * hd * 2 +
           (stored == STORED_BYTES ? chunk_stage(hd, by) / 2 * 3 + 16 * chunk_keys(hd, by) : 2 * chunk_stage(hd, by));
}

/* Where eight values c of a row are in a tile of ROWS rows of 16-bit values: in planes of 64 values, in which eights of a row change
 * places, so that ldmatrix, which reads the same of eight rows at once, meets each bank once, and that shared_tile can tell of it. */
template <int ROWS> DEVICE int chunk_at(int row, int c) { return (c >> 3) * (ROWS * 128) + row * 128 + ((c ^ row) & 7) * 16; }

/* The same for a lane of ldmatrix: from chunk_at of its row and of eight c < 2, where c + d is, d even. */
template <int ROWS> DEVICE int chunk_step(int at, int d) { return (at ^ (d & 7) * 16) + (d >> 3) * (ROWS * 128); }

/* What a query is and sees: positions [from, to). */
typedef struct __align__(16) chunk_query {
    int from, to, at;
    float slope;
}
chunk_query;

/* Where sixteen positions, which are of one page, have keys, values and the scales of keys. */
typedef struct chunk_place {
    const uint8_t *keys, *values;
    const float *scales;
} chunk_place;

/* A block's queries: i is row row0 + i / n_heads, head first_head + i % n_heads. */
typedef struct chunk_tile {
    int row0, n_rows, first_head, n_heads, kv_head, n;
} chunk_tile;

/* Registers are for sums. */
typedef struct chunk_shared {
    chunk_tile tile;
    chunk_query query[128];
    chunk_place place[4][8]; /* of a step's keys; steps in turn */
} chunk_shared;

/* Notes where keys of the step at `block` are. Threads that have none do nothing. */
template <int NK>
DEVICE void chunk_look(const kv_view &kv, const int32_t *pages, int head, int block, const attend_part &part, chunk_place *place) {
    const int first = block + 16 * (int)threadIdx.x, at = first % kv.page_tokens;
    if ((int)threadIdx.x >= NK / 16) return;
    const uint8_t *p = first < part.to && first + 16 > part.from ? kv_part(kv, pages, first, head) : kv.base;
    place[threadIdx.x].keys = p + (int64_t)at * kv.place.k_elements * kv.element_bytes;
    place[threadIdx.x].values = p + kv.place.v_offset + (int64_t)at * kv.place.v_elements * kv.element_bytes;
    place[threadIdx.x].scales = (const float *)(p + kv.place.scale_offset) + at;
}

/* Starts the copy of the keys (or values) of positions [block, block + keys of a step) to their half of a stage, zeros where part has none,
 * as even what is not seen takes part in a product with 0. All threads. */
template <int HD, int BY>
DEVICE void chunk_load(const kv_view &kv, const chunk_place *place, int block, const attend_part &part, int values, uint8_t *half) {
    const int EIGHTS = HD / 8, EACH = chunk_threads(BY) / EIGHTS, c = threadIdx.x % EIGHTS, j0 = threadIdx.x / EIGHTS;
    const int row = 2 * (values ? kv.place.v_head_dim : kv.place.head_dim), bytes = 16 * c < row ? 16 : 0, before = part.from - block - j0;
    const unsigned at = (EACH > 16 ? j0 % 16 : j0) * row + 16 * c, n = part.to - part.from;
    if (EACH > 16) place += j0 / 16;
#pragma unroll
    for (int j = 0; j < chunk_keys(HD, BY); j += EACH)
        copy_async_16(half + chunk_at<chunk_keys(HD, BY)>(j + j0, c),
                      (values ? place[j / 16].values : place[j / 16].keys) + (at + j % 16 * row), (unsigned)(j - before) < n ? bytes : 0);
}

/* The same of bytes: as they are stored, in rows of HD, and the two floats of each token. */
template <int HD, int BY>
static __device__ void chunk_load_bytes(const kv_view &kv, const chunk_place *place, int block, const attend_part &part, int values,
                                        uint8_t *raw) {
    const int NK = chunk_keys(HD, BY), row = values ? kv.place.v_elements : kv.place.k_elements, unit = row % 16 ? 4 : 16,
              units = ceil_div(row, unit);
#pragma unroll 1
    for (int i = threadIdx.x; i < NK * units; i += chunk_threads(BY)) {
        const int j = i / units, c = i % units * unit, there = block + j >= part.from && block + j < part.to;
        const uint8_t *from = (values ? place[j / 16].values : place[j / 16].keys) + j % 16 * row + c;
        uint8_t *to = raw + (values * NK + j) * HD + c;
        if (unit == 16) copy_async_16(to, from, there ? 16 : 0);
        else copy_async_4(to, from, there ? 4 : 0);
    }
    for (int i = threadIdx.x; i < 2 * NK; i += chunk_threads(BY)) {
        const int j = i % NK, there = block + j >= part.from && block + j < part.to, k = i / NK + 2 * values;
        copy_async_4(raw + 2 * NK * HD + 4 * (k * NK + j), place[j / 16].scales + k * kv.page_tokens + j % 16, there ? 4 : 0);
    }
}

/* Keys or values of a step, of bytes, to halves, with their scales. All threads. */
template <int HD, int BY> DEVICE void chunk_widen(const kv_view &kv, const uint8_t *raw, int values, uint8_t *half) {
    const int NK = chunk_keys(HD, BY), EIGHTS = HD / 8, EACH = chunk_threads(BY) / EIGHTS, c = threadIdx.x % EIGHTS;
    const int n = values ? kv.place.v_head_dim : kv.place.head_dim;
    const byte_form form = byte_form_of(kv.type);
    const float *scales = (const float *)(raw + 2 * NK * HD) + values * 2 * NK;
#pragma unroll 1
    for (int j = threadIdx.x / EIGHTS; j < NK; j += EACH) {
        uint32_t two[4] = {};
        const float by = scales[j], plus = scales[NK + j];
#pragma unroll
        for (int h = 0; h < 2 && 8 * c < n; h++)
            bytes_to_halves(form, bytes_at(form, raw + (values * NK + j) * HD, 8 * c + 4 * h, n), two + 2 * h);
#pragma unroll
        for (int h = 0; h < 4 && 8 * c < n; h++)
            two[h] = narrow_pair<true>(__fmaf_rn(by, half_to_f32((uint16_t)two[h]), plus),
                                       __fmaf_rn(by, half_to_f32((uint16_t)(two[h] >> 16)), plus));
        store_shared_16(half + chunk_at<NK>(j, c), make_uint4(two[0], two[1], two[2], two[3]));
    }
}

/* Queries of the tile to shared memory, times scale and log2(e), zeros where there are none. */
template <bool HALF, int HD, int BY> DEVICE void chunk_fetch(const attention_args &a, const chunk_tile &tile, uint8_t *q) {
    const float by = a.scale * 1.44269504f;
#pragma unroll 4
    for (int i = threadIdx.x; i < chunk_queries(HD, BY) * (HD / 8); i += chunk_threads(BY)) {
        const int k = i / (HD / 8), c = i % (HD / 8), row = k / tile.n_heads, there = row < tile.n_rows && 8 * c < a.hd;
        const int head = tile.first_head + k % tile.n_heads;
        const float2 *x = (const float2 *)(a.q[tile.row0 + row] + a.q_col + head * a.hd + 8 * c);
        uint32_t two[4];
        UNROLL(h, 4) {
            const float2 v = there ? x[h] : make_float2(0, 0);
            two[h] = narrow_pair<HALF>(by * v.x, by * v.y);
        }
        store_shared_16(q + chunk_at<chunk_queries(HD, BY)>(k, c), make_uint4(two[0], two[1], two[2], two[3]));
    }
}

/* s (queries of a warp, NK) = q k^T. s[i][j][e]: query 16 i + 8 (e / 2) + g, key 8 j + 2 t + e % 2; g = lane / 4, t = lane % 4. */
template <bool HALF, int HD>
DEVICE void chunk_scores(const uint8_t *q, const uint8_t *keys, int q_at, int k_at, float (*s)[chunk_keys(HD, BY_WARPS) / 8][4]) {
    const int M = chunk_sixteens(HD, BY_WARPS), NK = chunk_keys(HD, BY_WARPS);
    UNROLL(k, HD / 16) {
        uint32_t qf[M][4], kf[4];
        UNROLL(i, M) load_matrix_x4(qf[i], q + chunk_step<chunk_queries(HD, BY_WARPS)>(q_at, 2 * k) + i * 16 * 128);
        UNROLL(j, NK / 16) {
            load_matrix_x4(kf, keys + chunk_step<NK>(k_at, 2 * k) + j * 16 * 128);
            UNROLL(i, M) {
                mma_16x8x16<HALF>(s[i][2 * j], qf[i], kf);
                mma_16x8x16<HALF>(s[i][2 * j + 1], qf[i], kf + 2);
            }
        }
    }
}

/* What few models want of scores, and what the borders of what a query sees ask for: there they become -INFINITY. */
template <int M, int NK>
DEVICE void chunk_mask(const attention_args &a, const chunk_query *queries, int block, int border, float (*s)[NK / 8][4]) {
    const int lane = threadIdx.x & 31, first = block + 2 * (lane & 3);
    const auto each = [&](auto f) {
        UNROLL(i, 2 * M) {
            const chunk_query q = queries[8 * i + (lane >> 2)];
            UNROLL(j, NK / 8)
                UNROLL(h, 2) f(s[i / 2][j][2 * (i & 1) + h], q, first + 8 * j + h); /* score, query, position */
        }
    };
    if (a.softcap > 0) { /* cap tanh(x / cap) */
        const float cap = a.softcap * 1.44269504f, by = 2 / a.softcap;
        each([&](float &x, const chunk_query &, int) { x = cap - __fdividef(2 * cap, exp2_near(x * by) + 1); });
    }
    if (a.alibi) each([](float &x, const chunk_query &q, int position) { x += q.slope * (float)(position - q.at); });
    if (border) each([](float &x, const chunk_query &q, int position) { x = position >= q.from && position < q.to ? x : -INFINITY; });
}

/* m follows the largest score of each query only when that is more than 2^8 above: then what was summed is to be brought to it, by c, and 1
 * comes back. So each query has it for itself, and most steps change nothing. m, l, c: of query 8 i + g; l: of the keys that the lane has.
 */
template <int M, int NK> DEVICE int chunk_follow(float *m, float *l, const float (*s)[NK / 8][4], float *c) {
    const int N = NK / 8, ROWS = 2 * M;
    int far = 0;
    UNROLL(i, ROWS) {
        const int k = 2 * (i & 1);
        float top = fmaxf(s[i / 2][0][k], s[i / 2][0][k + 1]);
#pragma unroll
        for (int j = 1; j < N; j++) top = fmaxf(top, fmaxf(s[i / 2][j][k], s[i / 2][j][k + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        const int up = top > m[i] + 8;
        c[i] = up ? exp2_near(m[i] - top) : 1;
        m[i] = up ? top : m[i];
        l[i] *= c[i];
        far |= up;
    }
    return __any_sync(~0u, far);
}

/* Scores become weights of the online softmax, in place: exp2(s - m). Twin, of both: llm__body_soften. */
template <int M, int NK> DEVICE void chunk_soften(const float *m, float *l, float (*s)[NK / 8][4]) {
    const int N = NK / 8, ROWS = 2 * M;
    UNROLL(i, ROWS)
        UNROLL(j, N)
#pragma unroll
            for (int k = 2 * (i & 1); k < 2 * (i & 1) + 2; k++) l[i] += s[i / 2][j][k] = exp2_near(s[i / 2][j][k] - m[i]);
}

template <int M, int HD> DEVICE void chunk_rescale(const float *c, float (*acc)[HD / 8][4]) {
    UNROLL(i, 2 * M)
        UNROLL(j, HD / 8) acc[i / 2][j][2 * (i & 1)] *= c[i], acc[i / 2][j][2 * (i & 1) + 1] *= c[i];
}

/* Weights of keys 16 j and on, of 16 queries, from the place where one product leaves them to where the next wants them. */
template <bool HALF> DEVICE void chunk_weights(const float (*s)[4], int j, uint32_t *p) {
    UNROLL(k, 4) p[k] = narrow_pair<HALF>(s[2 * j + k / 2][2 * (k & 1)], s[2 * j + k / 2][2 * (k & 1) + 1]);
}

/* acc (queries of a warp, HD) += s v. */
template <bool HALF, int HD>
DEVICE void chunk_sum(const uint8_t *values, int v_at, const float (*s)[chunk_keys(HD, BY_WARPS) / 8][4], float (*acc)[HD / 8][4]) {
    const int M = chunk_sixteens(HD, BY_WARPS), NK = chunk_keys(HD, BY_WARPS);
    UNROLL(j, NK / 16) {
        uint32_t p[M][4], vf[4];
        UNROLL(i, M) chunk_weights<HALF>(s[i], j, p[i]);
#pragma unroll
        for (int d = 0; d < HD / 8; d += 2) {
            load_matrix_x4_turned(vf, values + chunk_step<NK>(v_at, d) + j * 16 * 128);
            UNROLL(i, M) {
                mma_16x8x16<HALF>(acc[i][d], p[i], vf);
                mma_16x8x16<HALF>(acc[i][d + 1], p[i], vf + 2);
            }
        }
    }
}

/* Positions of which the queries of a warp see some, [from, to), and those that all of them see, [all_from, all_to). */
typedef struct chunk_range {
    int from, to, all_from, all_to;
} chunk_range;

/* A warp's queries of one part of its tile: what each sees, which goes to `queries`, and what they see together. */
template <int M>
DEVICE chunk_range chunk_sees(const step_view &s, const attention_args &a, const attend_part &part, int seq, const chunk_tile &tile,
                              chunk_query *queries) {
    const int each = 16 * M, lane = threadIdx.x & 31, i = each * (threadIdx.x >> 5) + lane % each, row = tile.row0 + i / tile.n_heads;
    const int mine = i >= part.qa && i < part.qb;
    chunk_query q = {0, 0, 0, 0};
    chunk_range r = {1 << 30, 0, 0, 1 << 30}; /* of a query that is none */
    if (i < tile.n) r.all_to = 0;
    if (mine) {
        q.at = row_position(s, row);
        q.slope = a.alibi ? a.alibi[tile.first_head + i % tile.n_heads] * 1.44269504f : 0;
        row_sees(s, a, row, q.at, s.seq_len[seq], &q.from, &q.to);
        r.from = r.all_from = q.from, r.to = r.all_to = q.to;
    }
    if (lane < each) queries[lane] = q;
    for (int o = 16; o; o >>= 1) {
        r.from = min(r.from, __shfl_xor_sync(~0u, r.from, o));
        r.to = max(r.to, __shfl_xor_sync(~0u, r.to, o));
        r.all_from = max(r.all_from, __shfl_xor_sync(~0u, r.all_from, o));
        r.all_to = min(r.all_to, __shfl_xor_sync(~0u, r.all_to, o));
    }
    __syncwarp();
    return r;
}

/* A warp's results to `out`. */
template <int M, int HD>
DEVICE void chunk_end(const step_view &s, const attention_args &a, const chunk_tile &tile, const float *l, const float (*acc)[HD / 8][4]) {
    const int lane = threadIdx.x & 31, ROWS = 2 * M;
    UNROLL(k, ROWS) {
        const int i = 8 * ROWS * (threadIdx.x >> 5) + 8 * k + (lane >> 2), row = tile.row0 + i / tile.n_heads;
        float sum = l[k] + __shfl_xor_sync(~0u, l[k], 1), by;
        sum += __shfl_xor_sync(~0u, sum, 2);
        by = sum > 0 ? 1 / sum : 0;
        if (i >= tile.n || !part_wanted(s, a.not_single, s.seq_of_row[row])) continue;
        const int c = (tile.first_head + i % tile.n_heads) * a.vd + 2 * (lane & 3);
        UNROLL(j, HD / 8)
            if (8 * j < a.vd) attend_store(a, row, c + 8 * j, acc[k / 2][j][2 * (k & 1)] * by, acc[k / 2][j][2 * (k & 1) + 1] * by);
    }
}

/* The last rows first, as they see most. */
DEVICE chunk_tile chunk_tile_of(const step_view &s, const attention_args &a) {
    const int columns = a.n_heads / a.group * a.head_tiles, column = (int)blockIdx.x % columns, kv_head = column / a.head_tiles;
    const int row0 = ((int)(gridDim.x - 1 - blockIdx.x) / columns) * a.rows, in_group = column % a.head_tiles * a.heads;
    const int n_rows = min(a.rows, min(a.n_rows, s.head[HEAD_ROWS]) - row0), n_heads = min(a.heads, a.group - in_group);
    return {row0, n_rows, kv_head * a.group + in_group, n_heads, kv_head, n_rows * n_heads};
}

/* What a block begins with: its tile, 0: it has none; queries in shared memory, their largest score and sum of weights so far. */
template <bool HALF, int HD, int BY>
DEVICE int chunk_begin(const step_view &s, const attention_args &a, chunk_tile *tile, uint8_t *q, float *m, float *l) {
    const int M = chunk_sixteens(HD, BY), warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (threadIdx.x == 0) *tile = chunk_tile_of(s, a);
    __syncthreads();
    if (tile->n <= 0) return 0;
    chunk_fetch<HALF, HD, BY>(a, *tile, q);
    UNROLL(k, 2 * M) {
        const int i = 16 * M * warp + 8 * k + (lane >> 2), sink = a.sinks && i < tile->n;
        m[k] = sink ? a.sinks[tile->first_head + i % tile->n_heads] * 1.44269504f : -1e30f;
        l[k] = sink && (lane & 3) == 0 ? 1 : 0; /* a lane has its keys' part of the sum */
    }
    return 1;
}

/* Computes: out (T, heads * vd) = softmax(q k^T * scale) v over the pages, for sequences with several rows, in 16-bit products and f32
 * sums. Grid: KV heads x tiles of heads x tiles of rows, the last rows first, as they see most; 4 warps, each with 32 queries (16 of wide
 * heads); query i is row i / heads of the tile, head i % heads. While keys of a step of 64 positions (32) are multiplied those of the next
 * are copied. Steps begin at multiples of their length, and a step that a query does not see leaves nothing of it: so a row's bits do not
 * tell what else its tile has. Reads: keys and values once a tile of 128 queries (64). After FlashAttention-2 (Dao 2023). Twin:
 * llm__run_attention. */
template <int STORED, int HD>
static __global__ void __launch_bounds__(128, 2) kernel_attention_chunk(step_view s, kv_view kv, attention_args a) {
    grid_wait();
    DYN_SMEM(uint8_t, q);
    SMEM(chunk_shared, shared, 1);
    const bool HALF = STORED != STORED_BF16, BYTES = STORED == STORED_BYTES;
    const int NK = chunk_keys(HD, BY_WARPS), M = chunk_sixteens(HD, BY_WARPS), NQ = chunk_queries(HD, BY_WARPS);
    const int HALF_STAGE = chunk_stage(HD, BY_WARPS) / 2, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const chunk_tile &tile = shared->tile;
    const int q_at = chunk_at<NQ>(lane & 15, lane >> 4), k_at = chunk_at<NK>((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
    uint8_t *stages = q + NQ * HD * 2, *raw = stages + 2 * HALF_STAGE;
    chunk_query *queries = shared->query + 16 * M * warp;
    float acc[M][HD / 8][4] = {}, m[2 * M], l[2 * M], c[2 * M];
    if (!chunk_begin<HALF, HD, BY_WARPS>(s, a, &shared->tile, q, m, l)) return;
    for (int row = tile.row0, end; row < tile.row0 + tile.n_rows; row = end) { /* the tile's sequences */
        const int seq = s.seq_of_row[row];
        end = min(s.seq_begin[seq + 1], tile.row0 + tile.n_rows);
        if (!part_wanted(s, a.not_single, seq)) continue;
        const int32_t *pages = s.pages + (int64_t)seq * s.head[HEAD_STRIDE];
        const attend_part part = part_of(s, a, seq, tile.row0, row, end, tile.n_heads);
        const chunk_range range = chunk_sees<M>(s, a, part, seq, tile, queries);
        const int first = part.from / NK * NK;
        const auto load = [&](int block, int turn) {
#pragma unroll(LATE_ARCH || BYTES ? 1 : 2)
            for (int values = 0; values < 2; values++)
                if (BYTES) chunk_load_bytes<HD, BY_WARPS>(kv, shared->place[turn], block, part, values, raw);
                else chunk_load<HD, BY_WARPS>(kv, shared->place[turn], block, part, values, stages + (2 * turn + values) * HALF_STAGE);
            copy_async_end();
        };
        __syncthreads();
        chunk_look<NK>(kv, pages, tile.kv_head, first, part, shared->place[0]);
        chunk_look<NK>(kv, pages, tile.kv_head, first + NK, part, shared->place[1]);
        __syncthreads();
        load(first, 0);
        for (int block = first, turn = 0; block < part.to; block += NK, turn ^= 1) {
            uint8_t *stage = stages + (BYTES ? 0 : turn * 2 * HALF_STAGE);
            copy_async_wait<0>();
            __syncthreads();
            if (BYTES) {
                for (int values = 0; values < 2; values++) chunk_widen<HD, BY_WARPS>(kv, raw, values, stage + values * HALF_STAGE);
                __syncthreads();
            }
            if (block + NK < part.to) {
                load(block + NK, turn ^ 1);
                chunk_look<NK>(kv, pages, tile.kv_head, block + 2 * NK, part, shared->place[turn]);
            }
            if (block >= range.to || block + NK <= range.from) continue;
            const int border = block < range.all_from || block + NK > range.all_to;
            float scores[M][NK / 8][4] = {};
            chunk_scores<HALF, HD>(q + 16 * M * warp * 128, stage, q_at, k_at, scores);
            if (border || a.softcap > 0 || a.alibi) chunk_mask<M, NK>(a, queries, block, border, scores);
            if (chunk_follow<M, NK>(m, l, scores, c)) chunk_rescale<M, HD>(c, acc);
            chunk_soften<M, NK>(m, l, scores);
            chunk_sum<HALF, HD>(stage + HALF_STAGE, q_at, scores, acc);
        }
    }
    chunk_end<M, HD>(s, a, tile, l, acc);
}

/* scores (64, 128) = q k^T of a warpgroup, and acc (64, HD) += p v: both begin, and go on beside the threads. */
#ifdef HAS_GROUPS
template <bool HALF, int HD> DEVICE void chunk_group_scores(const uint8_t *q, const uint8_t *keys, float *scores) {
    const int NK = chunk_keys(HD, BY_GROUPS), NQ = chunk_queries(HD, BY_GROUPS);
    const uint64_t from_q = shared_tile(q, 0), from_k = shared_tile(keys, 0);
    group_fence<NK / 2>(scores);
    UNROLL(k, HD / 16)
        group_product<HALF, NK>(scores, from_q + (k / 4 * NQ * 128 + k % 4 * 32) / 16, from_k + (k / 4 * NK * 128 + k % 4 * 32) / 16,
                                k > 0);
    group_end();
}

template <bool HALF, int HD> DEVICE void chunk_group_sum(uint32_t (*p)[4], const uint8_t *values, float *acc) {
    const int NK = chunk_keys(HD, BY_GROUPS);
    const uint64_t from_v = shared_tile(values, NK * 128);
    group_fence<NK / 4>(*p);
    group_fence<HD / 2>(acc);
    UNROLL(j, NK / 16) group_product_held<HALF, HD, 1>(acc, p[j], from_v + j * 16 * 128 / 16);
    group_end();
}
#endif

/* Computes what kernel_attention_chunk does, for heads of at most 128 values, with the products of warpgroups: grid and order are the same,
 * but two warpgroups have 64 queries each, and steps 128 positions. What a step does is shifted: its scores are multiplied, and softened
 * when they are there, while the weights of the step before are multiplied by its values; so keys are copied a step before values. A step
 * has one barrier, behind which stages of the step before are free.
 *
 * By arithmetic, heads of 128: a step takes tensor cores 2,048 clocks (32 products of 64 x 128 x 16, 64 each), powers of two 1,024 (16 a
 * clock), other instructions 1,200 issue slots (600 a warp), which may lie under the half of the products that needs no scores. Not
 * measured on a device yet: chunk_try does it at each start. After FlashAttention-3 (Shah and others 2024). Twin:
 * kernel_attention_chunk. */
template <int STORED, int HD>
static __global__ void __launch_bounds__(256, 1) kernel_attention_groups(step_view s, kv_view kv, attention_args a) {
    grid_wait();
#ifdef HAS_GROUPS
    DYN_SMEM(uint8_t, memory);
    SMEM(chunk_shared, shared, 1);
    const bool HALF = STORED != STORED_BF16, BYTES = STORED == STORED_BYTES;
    const int NK = chunk_keys(HD, BY_GROUPS), NQ = chunk_queries(HD, BY_GROUPS), HALF_STAGE = chunk_stage(HD, BY_GROUPS) / 2;
    const int warp = threadIdx.x >> 5;
    const chunk_tile &tile = shared->tile;
    uint8_t *q = memory + (-shared_address(memory) & (TILE_ALIGN - 1)), *stages = q + NQ * HD * 2, *raw = stages + 2 * HALF_STAGE;
    const uint8_t *my_q = q + warp / 4 * 64 * 128;
    chunk_query *queries = shared->query + 16 * warp;
    float acc[1][HD / 8][4] = {}, m[2], l[2];
    if (!chunk_begin<HALF, HD, BY_GROUPS>(s, a, &shared->tile, q, m, l)) return;
    for (int row = tile.row0, end; row < tile.row0 + tile.n_rows; row = end) { /* the tile's sequences */
        const int seq = s.seq_of_row[row];
        end = min(s.seq_begin[seq + 1], tile.row0 + tile.n_rows);
        if (!part_wanted(s, a.not_single, seq)) continue;
        const int32_t *pages = s.pages + (int64_t)seq * s.head[HEAD_STRIDE];
        const attend_part part = part_of(s, a, seq, tile.row0, row, end, tile.n_heads);
        const chunk_range range = chunk_sees<1>(s, a, part, seq, tile, queries);
        const int first = part.from / NK * NK, steps = ceil_div(part.to - first, NK);
        uint32_t p[NK / 16][4];
        const auto half = [&](int n, int values) { return stages + (BYTES ? values : 2 * (n & 1) + values) * HALF_STAGE; };
        const auto load = [&](int n, int values) {
            if (BYTES) chunk_load_bytes<HD, BY_GROUPS>(kv, shared->place[n & 3], first + n * NK, part, values, raw);
            else chunk_load<HD, BY_GROUPS>(kv, shared->place[n & 3], first + n * NK, part, values, half(n, values));
        };
        /* Scores of step n, where KEYS is 1, and the sum of step n - 1, where SUM is. */
        const auto step = [&](int n, auto keys, auto sum) {
            constexpr int KEYS = decltype(keys)::value, SUM = decltype(sum)::value;
            copy_async_wait<0>();
            if (BYTES) {
                __syncthreads();
                if (KEYS) chunk_widen<HD, BY_GROUPS>(kv, raw, 0, half(n, 0));
                if (SUM) chunk_widen<HD, BY_GROUPS>(kv, raw, 1, half(n - 1, 1));
            }
            shared_fence();
            __syncthreads();
            if (KEYS) {
                if (n + 1 < steps) load(n + 1, 0);
                load(n, 1);
                copy_async_end();
                chunk_look<NK>(kv, pages, tile.kv_head, first + (n + 2) * NK, part, shared->place[(n + 2) & 3]);
            }
            float scores[1][NK / 8][4], c[2];
            if (KEYS) chunk_group_scores<HALF, HD>(my_q, half(n, 0), scores[0][0]);
            if (SUM) chunk_group_sum<HALF, HD>(p, half(n - 1, 1), acc[0][0]);
            int far = 0;
            if (KEYS) {
                const int block = first + n * NK, border = block < range.all_from || block + NK > range.all_to;
                group_wait<SUM, NK / 2>(scores[0][0]);
                if (border || a.softcap > 0 || a.alibi) chunk_mask<1, NK>(a, queries, block, border, scores);
                far = chunk_follow<1, NK>(m, l, scores, c);
                chunk_soften<1, NK>(m, l, scores);
                finish_first(l[0] + l[1]);
            }
            if (SUM) group_wait<0, HD / 2>(acc[0][0]);
            if (far) chunk_rescale<1, HD>(c, acc);
#pragma unroll
            for (int j = 0; j < NK / 16 && KEYS; j++) chunk_weights<HALF>(scores[0], j, p[j]);
        };
        const std::integral_constant<int, 0> no;
        const std::integral_constant<int, 1> yes;
        __syncthreads();
        chunk_look<NK>(kv, pages, tile.kv_head, first, part, shared->place[0]);
        chunk_look<NK>(kv, pages, tile.kv_head, first + NK, part, shared->place[1]);
        __syncthreads();
        load(0, 0);
        copy_async_end();
        step(0, yes, no);
        for (int n = 1; n < steps; n++) step(n, yes, yes);
        step(steps, no, yes);
    }
    chunk_end<1, HD>(s, a, tile, l, acc);
#endif
}

static void run_chunks(rank *r, const kv_view &kv, attention_args a, int n_kv_heads) {
    int stored = kv.type == LLM_KV_F16 ? STORED_F16 : kv.type == LLM_KV_BF16 ? STORED_BF16 : STORED_BYTES;
    const auto start = [&](auto form, auto log, auto by) {
        const int STORED = form.value, HD = 1 << log.value, BY = by.value;
        a.heads = min_int(a.group, chunk_queries(HD, BY));
        a.head_tiles = ceil_div(a.group, a.heads);
        a.rows = chunk_queries(HD, BY) / a.heads;
        const launch_grid grid = {ceil_div(a.n_rows, a.rows) * n_kv_heads * a.head_tiles};
        if constexpr (by.value == BY_GROUPS)
            launch<kernel_attention_groups<form.value, 1 << log.value>>(r, grid, chunk_threads(BY), (size_t)chunk_smem(STORED, HD, BY),
                                                                        r->view, kv, a);
        else
            launch<kernel_attention_chunk<form.value, 1 << log.value>>(r, grid, chunk_threads(BY), (size_t)chunk_smem(STORED, HD, BY),
                                                                       r->view, kv, a);
    };
    with_constant<STORED_F16, STORED_BYTES>(stored, [&](auto form) {
        with_constant<6, 8>(width_log(a), [&](auto log) {
            if constexpr (log.value < 8)
                if (r->groups[log.value - 6]) return start(form, log, std::integral_constant<int, BY_GROUPS>());
            start(form, log, std::integral_constant<int, BY_WARPS>());
        });
    });
}

/* Cuts the rows of the launch into tiles and splits, and starts the kernels. `partial`: memory for splits, NULL: none. */
static void run_tiles(rank *r, const kv_view &kv, attention_args a, int n_kv_heads, size_t partial_bytes) {
    a.heads = min_int(a.group, QUERIES);
    while (a.heads > 1 && attention_smem(a.heads, a.hd) > (size_t)r->max_smem) a.heads = (a.heads + 1) / 2;
    a.head_tiles = ceil_div(a.group, a.heads);
    a.rows = r->ctx->padded.n_rows == r->ctx->padded.n_seqs || a.chosen ? 1 : QUERIES / a.heads; /* a tile has one sequence, or one list */
    while (a.rows > 1 && attention_smem(a.rows * a.heads, a.hd) > (size_t)r->max_smem) a.rows--;
    launch_grid grid = {ceil_div(a.n_rows, a.rows), n_kv_heads * a.head_tiles};
    int64_t each = (int64_t)a.n_rows * a.n_heads * (a.vd + 2) * 4, blocks = grid.x * grid.y;
    a.n_splits = r->ctx->cfg.batch_invariant || !a.partial ? 1 : min_int(SPLITS, 2 * r->n_sms / blocks);
    if (a.n_splits > 1) a.n_splits = min_int(a.n_splits, (int64_t)(partial_bytes / (size_t)each));
    if (a.n_splits < 1) a.n_splits = 1;
    grid.z = a.n_splits;
    const size_t smem = attention_smem(a.rows * a.heads, a.hd);
    with_constant<LLM_KV_F32, LLM_KV_INT4>(kv.type, [&](auto t) {
        if constexpr (t.value == LLM_KV_F32) /* floats have one value a thread up to heads of 128, all else four */
            if (a.vd <= 128) return launch<kernel_attention<t.value, 1>>(r, grid, 128, smem, r->view, kv, a);
        launch<kernel_attention<t.value, 4>>(r, grid, 128, smem, r->view, kv, a);
    });
    if (a.n_splits > 1) launch<kernel_attention_join>(r, {a.n_rows, a.n_heads}, 128, 0, r->view, a);
}

/* Whether tensor cores take its heads and pages; their kernels add nothing by distance. */
static int on_tensor_cores(const rank *r, const llm_attention_op *op) {
    return r->ctx->kv_type != LLM_KV_F32 && !op->distance && op->head_dim % 8 == 0 && op->v_head_dim % 8 == 0 && op->head_dim <= 256 &&
           op->v_head_dim <= 256;
}

/* Where every sequence has one row, attention does by itself what a qkv record before it says: so a layer is five launches instead of six.
 * A row's queries are done again for each split of its keys, which is little beside the keys. Then nobody may read what the record would
 * have left in its buffer. Heads that are normed as one are for a block that has all of them. */
static void list_fuse_heads(rank *r) {
    for (int i = 0; i + 1 < r->n; i++) {
        const llm_qkv_op *q = &r->list[i].op.qkv;
        const llm_attention_op *a = &r->list[i + 1].op.attention;
        if (r->list[i].kind != OP_QKV || r->list[i + 1].kind != OP_ATTENTION || q->norm == LLM_QK_NORM_WHOLE_RMS || q->shared) continue;
        if (a->qkv != q->qkv || a->layer != q->layer || a->q_col != q->q_col || a->n_heads != q->n_heads) continue;
        if (a->n_kv_heads != q->n_kv_heads || a->head_dim != q->head_dim || a->v_head_dim != q->v_head_dim) continue;
        if (r->ctx->padded.n_rows > r->ctx->padded.n_seqs || !on_tensor_cores(r, a) || record_next_use(r, i + 1, q->qkv) == USE_READ)
            continue;
        r->list[i].done = 1;
        r->list[i + 1].qkv = q;
    }
}

/* Sequences with several rows in chunks, those with one in splits; in splits too what batch_invariant asks for, where a row's bits must not
 * tell what came with it. What is not for tensor cores (keys in f32, heads that are no multiple of 8, distances) goes by kernel_attention.
 * Both that split use the scratch memory. Twin: llm__run_attention. */
static void run_attention(rank *r, const record *rec) {
    const llm_attention_op *op = &rec->op.attention;
    /* clang-format off */
    attention_args a = {
        .q = rows_of(op->qkv), .out = rows_of(op->dst), .sinks = f32_of(op->sinks), .alibi = f32_of(op->alibi),
        .distance = f32_of(op->distance), .partial = (float *)r->scratch, .q_col = op->q_col, .n_heads = op->n_heads,
        .group = op->n_heads / op->n_kv_heads, .n_rows = r->ctx->padded.n_rows, .hd = op->head_dim, .vd = op->v_head_dim,
        .window = op->window, .chunked = op->chunked, .not_causal = op->not_causal, .spans = op->spans, .out_form = rec->leaves,
        .scale = op->scale, .softcap = op->softcap, .reach = op->reach, .fresh = rec->qkv != NULL};
    /* clang-format on */
    if (a.fresh) a.qkv = qkv_of(rec->qkv);
    kv_view kv = kv_of(r, op->layer);
    int several = r->ctx->padded.n_rows > r->ctx->padded.n_seqs;
    if (!on_tensor_cores(r, op)) {
        run_tiles(r, kv, a, op->n_kv_heads, r->scratch_bytes);
        if (kv.scaled) run_turn(r, a.out, a.n_rows, a.n_heads, a.vd, kv_turn_size(a.vd), 0, 0);
        return;
    }
    if (!several || r->ctx->singles || r->ctx->cfg.batch_invariant) run_splits(r, kv, a, op->n_kv_heads);
    if (!several || r->ctx->cfg.batch_invariant) return;
    a.not_single = 1;
    run_chunks(r, kv, a, op->n_kv_heads);
    if (kv.scaled) run_turn(r, a.out, a.n_rows, a.n_heads, a.vd, kv_turn_size(a.vd), 0, 1);
}

/* ============================================================================
 * >>latent   Latent attention (DeepSeek-V2) in its absorbed form.
 * ============================================================================
 * The cache has one latent of `rank` values a token and a rotated key that all heads share. A head's query is taken into the latent space
 * by its part of kv_b (nope + v, rank), attention runs over latents as keys and values with all heads as one group, and its result is taken
 * back by the head's value rows. Rows go in turns that fit the scratch memory.
 *
 *     score(i, j) = q_i . (K_up c_j) + qr_i . kr_j  =  (K_up^T q_i) . c_j + qr_i . kr_j        kernel_latent_absorb, _split
 *     out_i = sum_j w_ij (V_up c_j)                 =  V_up (sum_j w_ij c_j)                   kernel_latent_split, _values
 *
 * An adapter of kv_b adds B A to K_up and V_up, for the rows of its sequences: kernel_latent_adapt, behind either.
 *
 * So a token costs rank + rope_dim values of cache whatever the number of heads (576 instead of 40,960 in DeepSeek-V2), and kv_b is read
 * for the step's rows, never for those in the cache.
 *
 * Where an indexer has chosen positions, a row behind topk of them takes its list for the keys 0 to topk - 1. Its latents are the values of
 * a page whose keys are the indexer's: latent_pages_of says where they lie, as if they were keys of a layer without one. */

/* Of one turn of rows. absorbed (rows of the turn, heads, rank + rope_dim) and attended (.., rank) lie in the scratch memory, and behind
 * them what splits of single rows leave, `slots` times (heads, rank + 4): values, maximum, sum. place (rows, 2): the first slot of a row
 * and how many it has; 0: its results are in attended. place NULL: those of all rows are. */
typedef struct latent_args {
    llm_mla_op op;
    rows_view q, kv_a, out, rope;
    const float *norm, *up;
    float *absorbed, *attended, *partial;
    int32_t *place;
    const int32_t *chosen; /* (T, chosen_stride) of op.chosen; NULL: all see all */
    int64_t chosen_stride;
    int32_t first_row, n_rows, slots, several, stages;
} latent_args;

static constexpr int LATENT_ROWS = 64, LATENT_TILE = 8; /* rows of a block of the two products; of those whose sums a thread has at once */
static constexpr int ABSORB_K = 128, ABSORB_N = 64, VALUES_K = 512,
                     VALUES_N = 16; /* what a block has of a head's weights: in its registers */
static constexpr int LATENT_KEYS = 32, LATENT_HEADS = 16,
                     LATENT_STRIDE = 40; /* of kernel_latent_split; between rows of scores and weights */

/* Values [c, c + 4) of a row of n, zeros outside. `whole`: rows start on 16 bytes. */
DEVICE float4 latent_four(const float *x, int c, int n, int whole) {
    if (whole && c + 4 <= n) return *(const float4 *)(x + c);
    return make_float4(c < n ? x[c] : 0, c + 1 < n ? x[c + 1] : 0, c + 2 < n ? x[c + 2] : 0, c + 3 < n ? x[c + 3] : 0);
}

/* The row behind the last one of the turn that there is. */
DEVICE int latent_end(const step_view &s, const latent_args &a) { return min(a.first_row + a.n_rows, s.head[HEAD_ROWS]); }

/* Norm of a row's latent, rotation of the shared key and of every head's query, which is copied to absorbed; latent and key to the cache.
 * All 8 warps. Twin: llm__run_mla_write. */
DEVICE void latent_write(const step_view &s, const kv_view &kv, const latent_args &a, int row, float *scratch) {
    int seq = s.seq_of_row[row], head = a.op.nope + a.op.rope_dim, hd = a.op.rank + a.op.rope_dim, warp = threadIdx.x >> 5;
    float *latent = a.kv_a[row], *q = a.q[row] + a.op.nope, *to = a.absorbed + (int64_t)(row - a.first_row) * a.op.n_heads * hd + a.op.rank;
    const float *rope = a.rope.x ? a.rope[row] : NULL;
    float by = block_rms(latent, a.op.rank, a.op.eps, scratch);
    for (int i = threadIdx.x; i < a.op.rank; i += blockDim.x) latent[i] *= by * a.norm[i];
    for (int h = warp; h < a.op.n_heads; h += 8) {
        if (rope) warp_rotate(q + h * head, rope, a.op.rope_dim / 2, a.op.rope_interleaved);
        for (int i = threadIdx.x & 31; i < a.op.rope_dim; i += 32) to[(int64_t)h * hd + i] = q[h * head + i];
    }
    if (warp == 0 && rope) warp_rotate(latent + a.op.rank, rope, a.op.rope_dim / 2, a.op.rope_interleaved);
    __syncthreads();
    if (warp) return;
    if (kv.scaled) warp_turn(latent, a.op.rank + a.op.rope_dim, kv_turn_size(a.op.rank | a.op.rope_dim));
    warp_write_token(kv, s.pages + (int64_t)seq * s.head[HEAD_STRIDE], row_position(s, row), 0, latent, NULL);
}

/* Computes: absorbed (rows, heads, rank + rope_dim) = q_nope^T up of each head, the rotated part as it is, and the rows' latents to the
 * pages. Grid: (rank / 64 + 1, heads, rows / 64), 8 warps; the last of x does latent_write for the rows, the heads' blocks in turn. A block
 * has 128 x 64 weights of a head, a thread 8 rows of 4 columns, in registers, asked for before the kernel before has ended, and goes
 * through its rows by eights; 16 threads' sums of a column are added in one order. Reads: kv_b's keys once for 64 rows. Twin: llm__run_mla.
 * */
static __global__ void __launch_bounds__(256, 2) kernel_latent_absorb(step_view s, kv_view kv, latent_args a) {
    SMEM(float, x, LATENT_TILE *ABSORB_K);
    SMEM(float, sums, 8 * LATENT_TILE * ABSORB_N);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = threadIdx.x >> 4, c = (int)blockIdx.x * ABSORB_N + 4 * (lane & 15),
              h = (int)blockIdx.y, hd = a.op.rank + a.op.rope_dim, whole = a.op.rank % 4 == 0;
    const float *up = a.up + (int64_t)h * (a.op.nope + a.op.v_dim) * a.op.rank;
    float4 w[8];
    int held = 0, first = a.first_row + (int)blockIdx.z * LATENT_ROWS;
    auto load = [&](int k0) {
        UNROLL(i, 8) {
            int k = k0 + 8 * g + i;
            w[i] = k < a.op.nope ? latent_four(up + (int64_t)k * a.op.rank, c, a.op.rank, whole) : make_float4(0, 0, 0, 0);
        }
    };
    if (blockIdx.x + 1 < gridDim.x) load(0);
    grid_wait();
    int end = min(first + LATENT_ROWS, latent_end(s, a));
    if (blockIdx.x + 1 == gridDim.x) {
        for (int row = first + h; row < end; row += a.op.n_heads) latent_write(s, kv, a, row, x);
        return;
    }
    for (int row0 = first; row0 < end; row0 += LATENT_TILE) {
        const int n = min(LATENT_TILE, end - row0);
        float sum[LATENT_TILE][4] = {};
        for (int k0 = 0; k0 < a.op.nope; k0 += ABSORB_K) {
            if (k0 != held) load(held = k0);
            __syncthreads();
            for (int k = lane; k < ABSORB_K; k += 32) {
                int there = warp < n && k0 + k < a.op.nope;
                x[warp * ABSORB_K + k] = there ? a.q[row0 + warp][h * (a.op.nope + a.op.rope_dim) + k0 + k] : 0;
            }
            __syncthreads();
            UNROLL(r, LATENT_TILE) {
                if (r >= n) continue;
#pragma unroll
                for (int i = 0; i < 8; i += 4) {
                    const float4 y = *(const float4 *)(x + r * ABSORB_K + 8 * g + i);
                    const float v[4] = {y.x, y.y, y.z, y.w};
                    UNROLL(j, 4) {
                        sum[r][0] += v[j] * w[i + j].x, sum[r][1] += v[j] * w[i + j].y;
                        sum[r][2] += v[j] * w[i + j].z, sum[r][3] += v[j] * w[i + j].w;
                    }
                }
            }
        }
        UNROLL(r, LATENT_TILE) {
            UNROLL(i, 4) sum[r][i] += __shfl_xor_sync(~0u, sum[r][i], 16);
            if ((r & 1) == lane >> 4)
                *(float4 *)(sums + (warp * LATENT_TILE + r) * ABSORB_N + 4 * (lane & 15)) =
                    make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n * ABSORB_N; i += 256) {
            int row = row0 - a.first_row + i / ABSORB_N, col = (int)blockIdx.x * ABSORB_N + i % ABSORB_N;
            float v = 0;
            UNROLL(k, 8) v += sums[k * LATENT_TILE * ABSORB_N + i];
            if (col < a.op.rank) a.absorbed[((int64_t)row * a.op.n_heads + h) * hd + col] = v;
        }
    }
}

/* What attention gave a head of a row of the turn, values [c, c + 4): splits are folded in order. */
DEVICE float4 latent_result(const latent_args &a, int row, int h, int c, int whole) {
    float *to = a.attended + ((int64_t)row * a.op.n_heads + h) * a.op.rank;
    const int first = a.place ? a.place[2 * row] : 0, n = a.place ? a.place[2 * row + 1] : 0;
    if (!n || c >= a.op.rank) return latent_four(to, c, a.op.rank, whole && (size_t)to % 16 == 0);
    const float *p = a.partial + ((int64_t)first * a.op.n_heads + h) * (a.op.rank + 4);
    split_fold f = {-1e30f, 0, 0, 0};
    float4 v = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int i = 0; i < n; i++, p += (int64_t)a.op.n_heads * (a.op.rank + 4)) {
        const float4 y = *(const float4 *)(p + c);
        fold_split(&f, p[a.op.rank], p[a.op.rank + 1]);
        v = make_float4(fold_value(v.x, y.x, f.before, f.now), fold_value(v.y, y.y, f.before, f.now), fold_value(v.z, y.z, f.before, f.now),
                        fold_value(v.w, y.w, f.before, f.now));
    }
    const float by = 1 / f.l;
    v = make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
    if (a.op.lora && blockIdx.x == 0) *(float4 *)(to + c) = v; /* for kernel_latent_adapt */
    return v;
}

/* Computes: out (rows, heads * v_dim) = value rows of kv_b times what attention gave, whose splits it folds. Grid: (v_dim / 16, heads, rows
 * / 64), 8 warps of two outputs: a lane has 16 columns of both in registers, asked for before the kernel before has ended. Reads: kv_b's
 * values once for 64 rows. Twin: llm__run_mla. */
static __global__ void __launch_bounds__(256, 2) kernel_latent_values(step_view s, latent_args a) {
    SMEM(float, x, LATENT_TILE *VALUES_K);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, h = (int)blockIdx.y, d0 = (int)blockIdx.x * VALUES_N + 2 * warp,
              whole = a.op.rank % 4 == 0;
    const float *up = a.up + ((int64_t)h * (a.op.nope + a.op.v_dim) + a.op.nope) * a.op.rank;
    float4 w[2][4];
    int held = 0, first = a.first_row + (int)blockIdx.z * LATENT_ROWS;
    auto load = [&](int k0) {
        UNROLL(k, 2)
            UNROLL(i, 4)
                w[k][i] = d0 + k < a.op.v_dim ? latent_four(up + (int64_t)(d0 + k) * a.op.rank, k0 + 4 * lane + 128 * i, a.op.rank, whole)
                                              : make_float4(0, 0, 0, 0);
    };
    load(0);
    grid_wait();
    int end = min(first + LATENT_ROWS, latent_end(s, a));
    for (int row0 = first; row0 < end; row0 += LATENT_TILE) {
        const int n = min(LATENT_TILE, end - row0);
        float sum[2][LATENT_TILE] = {}, mine = 0;
        for (int k0 = 0; k0 < a.op.rank; k0 += VALUES_K) {
            if (k0 != held) load(held = k0);
            __syncthreads();
            for (int r = threadIdx.x >> 7, c = 4 * (threadIdx.x & 127); r < n; r += 2)
                *(float4 *)(x + r * VALUES_K + c) = latent_result(a, row0 - a.first_row + r, h, k0 + c, whole);
            __syncthreads();
            UNROLL(r, LATENT_TILE) {
                if (r >= n) continue;
                UNROLL(i, 4) {
                    const float4 y = *(const float4 *)(x + r * VALUES_K + 4 * lane + 128 * i);
                    UNROLL(k, 2) sum[k][r] += w[k][i].x * y.x + w[k][i].y * y.y + w[k][i].z * y.z + w[k][i].w * y.w;
                }
            }
        }
        UNROLL(r, LATENT_TILE) {
            if (r >= n) continue;
            UNROLL(k, 2) {
                float v = warp_sum(sum[k][r]);
                if (lane == 2 * r + k) mine = v;
            }
        }
        if (lane < 2 * n && d0 + (lane & 1) < a.op.v_dim) a.out[row0 + (lane >> 1)][h * a.op.v_dim + d0 + (lane & 1)] = mine;
    }
}

/* Bytes between rows of shared memory: 8 rows that lanes read at once meet each bank once. */
static __host__ __device__ __forceinline__ int latent_stride(int hd) { return 2 * hd + 16; }
static size_t latent_smem(int hd, int stages) {
    return (size_t)stages * LATENT_KEYS * (size_t)latent_stride(hd) + 8 * LATENT_HEADS * LATENT_STRIDE * 4 +
           2 * LATENT_HEADS * LATENT_STRIDE * 2;
}

/* Beside its stages: of each query the largest value a warp has seen, what its scores are multiplied by, and by what its sums are: for a
 * step's new maximum, and when a split is folded. */
typedef struct latent_shared {
    float most[8][LATENT_HEADS], scale[LATENT_HEADS], by[LATENT_HEADS], before[LATENT_HEADS], now[LATENT_HEADS], end[LATENT_HEADS];
} latent_shared;

/* Where keys warp, warp + 8, ... of a tile of 32 are, in lanes 0 to 3: bytes from the first page on; -1: not below `to`. chosen: which
 * positions the keys' numbers mean; NULL: themselves. */
DEVICE int64_t latent_place(const kv_view &kv, const int32_t *pages, const int32_t *chosen, int tile, int to) {
    const int lane = threadIdx.x & 31, i = LATENT_KEYS * tile + (int)(threadIdx.x >> 5) + 8 * lane;
    if (lane > 3 || i >= to) return -1;
    const int at = chosen ? chosen[i] : i;
    return pages[at / kv.page_tokens] * kv.page_bytes + kv.place.offset + (int64_t)(at % kv.page_tokens) * kv.place.head_dim * 2;
}

/* Starts the copy of these keys into a stage, zeros where there are none: a warp has every eighth of them. */
DEVICE void latent_load(const kv_view &kv, int64_t place, int hd, uint8_t *stage) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    UNROLL(u, 4) {
        const int64_t at = __shfl_sync(~0u, place, u);
        const uint8_t *from = kv.base + (at < 0 ? 0 : at);
        for (int c = lane; c < hd / 8; c += 32)
            copy_async_16(stage + (warp + 8 * u) * latent_stride(hd) + 16 * c, from + 16 * c, at < 0 ? 0 : 16);
    }
}

/* A warp's share of the queries (steps warp, warp + 8, ... of 16 values) as a product wants them, each in two parts; halves are brought
 * down to what they can hold. All threads. */
template <bool HALF>
DEVICE void latent_queries(const latent_args &a, const float *q, int n_heads, uint32_t (*high)[4], uint32_t (*low)[4], latent_shared &sh) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, hd = a.op.rank + a.op.rope_dim;
    float2 v[5][4];
    float most[2] = {};
    UNROLL(i, 5)
        UNROLL(e, 4) { /* rows g and g + 8, then the same of 8 columns further */
            int row = g + 8 * (e & 1), d = 16 * (warp + 8 * i) + 2 * t + 8 * (e >> 1);
            v[i][e] = row < n_heads && d < hd ? *(const float2 *)(q + (int64_t)row * hd + d) : make_float2(0, 0);
            most[e & 1] = fmaxf(most[e & 1], fmaxf(fabsf(v[i][e].x), fabsf(v[i][e].y)));
        }
    UNROLL(e, 2) {
        most[e] = fmaxf(most[e], __shfl_xor_sync(~0u, most[e], 1));
        most[e] = fmaxf(most[e], __shfl_xor_sync(~0u, most[e], 2));
        if (t == 0) sh.most[warp][g + 8 * e] = most[e];
    }
    __syncthreads();
    UNROLL(e, 2) {
        UNROLL(w, 8) most[e] = fmaxf(most[e], sh.most[w][g + 8 * e]);
        most[e] = HALF ? half_scale(most[e]) : 1;
        if (t == 0 && warp == 0) sh.scale[g + 8 * e] = a.op.scale / most[e] * 1.44269504f;
    }
    UNROLL(i, 5)
        UNROLL(e, 4) split_pair_of<HALF>(most[e & 1] * v[i][e].x, most[e & 1] * v[i][e].y, &high[i][e], &low[i][e]);
}

/* parts (16, 40) of this warp = its steps of the queries times a stage's 32 keys. */
template <bool HALF>
DEVICE void latent_scores(int hd, const uint32_t (*high)[4], const uint32_t (*low)[4], const uint8_t *stage, float *parts) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, stride = latent_stride(hd);
    float s[4][4] = {};
    UNROLL(i, 5) {
        const int k = warp + 8 * i;
        if (16 * k >= hd) continue;
        UNROLL(j, 2) {
            uint32_t key[4];
            load_matrix_x4(key, stage + (16 * j + (lane & 7) + (lane >> 4) * 8) * stride + 32 * k + (lane >> 3 & 1) * 16);
            UNROLL(e, 2) {
                mma_16x8x16<HALF>(s[2 * j + e], high[i], key + 2 * e);
                mma_16x8x16<HALF>(s[2 * j + e], low[i], key + 2 * e);
            }
        }
    }
    UNROLL(j, 4)
        UNROLL(e, 2)
            *(float2 *)(parts + ((lane >> 2) + 8 * e) * LATENT_STRIDE + 8 * j + 2 * (lane & 3)) = make_float2(s[j][2 * e], s[j][2 * e + 1]);
}

/* The online softmax of queries 2 warp and 2 warp + 1: a lane has a key. Weights, in two parts, go to p (2, 16, 40). Twin:
 * llm__body_soften. */
template <bool HALF> DEVICE void latent_soften(const float *parts, int seen, latent_shared &sh, float *m, float *l, uint16_t *p) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    UNROLL(e, 2) {
        const int row = 2 * warp + e;
        float v = 0;
        UNROLL(w, 8) v += parts[(w * LATENT_HEADS + row) * LATENT_STRIDE + lane];
        v = lane < seen ? v * sh.scale[row] : -INFINITY;
        float top = fmaxf(m[e], warp_max(v)), c = exp2f(m[e] - top);
        uint32_t high, low;
        v = exp2f(v - top);
        m[e] = top;
        l[e] = l[e] * c + warp_sum(v);
        split_pair_of<HALF>(v, 0, &high, &low);
        p[row * LATENT_STRIDE + lane] = (uint16_t)high;
        p[(LATENT_HEADS + row) * LATENT_STRIDE + lane] = (uint16_t)low;
        if (lane == 0) sh.by[row] = c;
    }
}

/* acc = acc by the step's factors + weights times a stage's latents: a warp has columns 16 (warp + 8 j) and 15 more. */
template <bool HALF>
DEVICE void latent_sum(int hd, int rank, const uint16_t *p, const uint8_t *stage, const latent_shared &sh, float (*acc)[4]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, stride = latent_stride(hd);
    const float by[2] = {sh.by[lane >> 2], sh.by[(lane >> 2) + 8]};
    uint32_t weights[2][2][4];
    UNROLL(k, 2)
        UNROLL(e, 2) load_matrix_x4(weights[k][e], p + (LATENT_HEADS * e + (lane & 15)) * LATENT_STRIDE + 16 * k + (lane >> 4) * 8);
    UNROLL(j, 4) {
        const int d = 16 * (warp + 8 * j);
        if (d >= rank) continue;
        UNROLL(e, 4) acc[2 * j][e] *= by[e >> 1], acc[2 * j + 1][e] *= by[e >> 1];
        UNROLL(k, 2) {
            uint32_t v[4];
            load_matrix_x4_turned(v, stage + (16 * k + (lane & 15)) * stride + 2 * d + (lane >> 4) * 16);
            UNROLL(e, 2) {
                mma_16x8x16<HALF>(acc[2 * j], weights[k][e], v);
                mma_16x8x16<HALF>(acc[2 * j + 1], weights[k][e], v + 2);
            }
        }
    }
}

/* A row's values of the tile's heads: to (heads, stride) = acc times `by` of each. */
DEVICE void latent_store(float *to, int stride, int rank, int n_heads, const float (*acc)[4], float by0, float by1) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    UNROLL(j, 8) {
        const int d = 16 * (warp + 8 * (j / 2)) + 8 * (j % 2) + 2 * (lane & 3);
        UNROLL(e, 2) {
            const int row = (lane >> 2) + 8 * e;
            const float by = e ? by1 : by0;
            if (row < n_heads && d < rank)
                *(float2 *)(to + (int64_t)row * stride + d) = make_float2(acc[j][2 * e] * by, acc[j][2 * e + 1] * by);
        }
    }
}

/* One row, heads [head, head + n_heads): splits [first, end) of its keys, which are those below `to`, or those that were chosen. slot -1:
 * they are all of them, and results go to attended; else there is one, whose sums go there. */
template <bool HALF>
DEVICE void latent_run(const kv_view &kv, const latent_args &a, const int32_t *pages, const int32_t *chosen, int row, int head, int n_heads,
                       int first, int end, int to, int slot, latent_shared &sh, uint8_t *memory) {
    const int hd = a.op.rank + a.op.rope_dim, bytes = LATENT_KEYS * latent_stride(hd), warp = threadIdx.x >> 5, lane = threadIdx.x & 31,
              stop = min(end * (SPLIT / LATENT_KEYS), ceil_div(to, LATENT_KEYS)), ahead = a.stages - 1;
    float *parts = (float *)(memory + a.stages * bytes), acc[8][4] = {}, total[8][4] = {}, m[2] = {-1e30f, -1e30f}, l[2] = {};
    uint16_t *p = (uint16_t *)(parts + 8 * LATENT_HEADS * LATENT_STRIDE);
    uint32_t high[5][4], low[5][4];
    split_fold fold[2] = {{-1e30f, 0, 0, 0}, {-1e30f, 0, 0, 0}}; /* of the warp's queries */
    int tile = first * (SPLIT / LATENT_KEYS), stage = 0;
    __syncthreads(); /* the row before is done */
    for (int i = 0; i < ahead; i++) {
        if (tile + i < stop) latent_load(kv, latent_place(kv, pages, chosen, tile + i, to), hd, memory + i * bytes);
        copy_async_end();
    }
    int64_t place = latent_place(kv, pages, chosen, tile + ahead, to);
    latent_queries<HALF>(a, a.absorbed + ((int64_t)row * a.op.n_heads + head) * hd, n_heads, high, low, sh);
    for (; tile < stop; tile++) {
        if (ahead == 1) copy_async_wait<0>();
        else if (ahead == 2) copy_async_wait<1>();
        else copy_async_wait<2>();
        __syncthreads();
        int free = stage ? stage - 1 : ahead;
        if (tile + ahead < stop) latent_load(kv, place, hd, memory + free * bytes);
        copy_async_end();
        place = latent_place(kv, pages, chosen, tile + ahead + 1, to);
        latent_scores<HALF>(hd, high, low, memory + stage * bytes, parts + warp * LATENT_HEADS * LATENT_STRIDE);
        __syncthreads();
        latent_soften<HALF>(parts, to - tile * LATENT_KEYS, sh, m, l, p);
        const int last = tile + 1 == stop || (tile + 1) % (SPLIT / LATENT_KEYS) == 0; /* of its split */
        UNROLL(e, 2) {
            if (!last || slot >= 0) continue;
            fold_split(&fold[e], m[e], l[e]);
            if (lane == 0)
                sh.before[2 * warp + e] = fold[e].before, sh.now[2 * warp + e] = fold[e].now, sh.end[2 * warp + e] = 1 / fold[e].l;
            m[e] = -1e30f, l[e] = 0;
        }
        __syncthreads();
        latent_sum<HALF>(hd, a.op.rank, p, memory + stage * bytes, sh, acc);
        stage = stage == ahead ? 0 : stage + 1;
        if (!last || slot >= 0) continue;
        UNROLL(j, 8)
            UNROLL(e, 4) {
                const int query = (lane >> 2) + 8 * (e >> 1);
                total[j][e] = fold_value(total[j][e], acc[j][e], sh.before[query], sh.now[query]);
                acc[j][e] = 0;
            }
    }
    copy_async_wait<0>();
    if (slot < 0) {
        float *out = a.attended + ((int64_t)row * a.op.n_heads + head) * a.op.rank;
        latent_store(out, a.op.rank, a.op.rank, n_heads, total, sh.end[lane >> 2], sh.end[(lane >> 2) + 8]);
        return;
    }
    float *out = a.partial + ((int64_t)slot * a.op.n_heads + head) * (a.op.rank + 4);
    latent_store(out, a.op.rank + 4, a.op.rank, n_heads, acc, 1, 1);
    for (int e = 0; e < 2 && lane == 0; e++)
        if (2 * warp + e < n_heads) *(float2 *)(out + (2 * warp + e) * (a.op.rank + 4) + a.op.rank) = make_float2(m[e], l[e]);
}

/* Computes: attended (rows, heads, rank) = softmax(absorbed c^T * scale) c over the pages, of latents that lie there as 16-bit floats; of a
 * single row, which is in the step's work list, each split by another block, for kernel_latent_values to fold. Grid: (blocks that take rows
 * and items in turn, heads / 16), 8 warps. The 16 rows of a product are a row's heads, which share the keys, and keys are the values: so
 * all is read once for 16 heads. Keys come by 32 into a ring of stages; a warp has every eighth step of 16 values of the scores' products,
 * whose parts are added in one order, two heads of the softmax, and 64 values of the result. Queries and weights are multiplied in two
 * parts, so that nothing is lost. A row's bits depend on its own keys alone: the roundings of a fold are the same wherever it is done.
 * After FlashMLA (DeepSeek 2025). Twin: llm__run_mla. */
template <bool HALF> static __global__ void __launch_bounds__(256, 1) kernel_latent_split(step_view s, kv_view kv, latent_args a) {
    grid_wait();
    DYN_SMEM(uint8_t, memory);
    SMEM(latent_shared, sh, 1);
    const work_item *work = (const work_item *)(s.head + s.head[HEAD_WORK]);
    const int head = (int)blockIdx.y * LATENT_HEADS, n_heads = min(LATENT_HEADS, a.op.n_heads - head), items = s.head[HEAD_N_WORK],
              rows = a.several ? latent_end(s, a) - a.first_row : 0;
    for (int i = (int)blockIdx.x; i < items + rows; i += (int)gridDim.x) {
        work_item w = {a.first_row + i - items, 1, -1, 0};
        if (i < items) w = work[i];
        if (w.row < a.first_row || w.row >= latent_end(s, a)) continue;
        const int seq = s.seq_of_row[w.row], single = s.seq_begin[seq + 1] - s.seq_begin[seq] == 1, all = row_position(s, w.row) + 1,
                  to = a.chosen ? min(all, a.op.topk) : all, n = ceil_div(to, SPLIT);
        if (single != (i < items)) continue; /* rows of prompts are not taken from the list, where they may be several in one */
        if (w.split >= n) continue;          /* the list has as many splits as all positions make */
        const int alone = w.split < 0 || n == 1 || i - w.split + n > a.slots; /* the block of the first split does all */
        if (alone && w.split > 0) continue;
        if (threadIdx.x == 0 && blockIdx.y == 0 && w.split <= 0) {
            a.place[2 * (w.row - a.first_row)] = alone ? 0 : i;
            a.place[2 * (w.row - a.first_row) + 1] = alone ? 0 : n;
        }
        latent_run<HALF>(kv, a, s.pages + (int64_t)seq * s.head[HEAD_STRIDE], to < all ? a.chosen + w.row * a.chosen_stride : NULL,
                         w.row - a.first_row, head, n_heads, alone ? 0 : w.split, alone ? n : w.split + 1, to, alone ? -1 : i, sh[0],
                         memory);
    }
}

/* One matrix of an adapter: dst[row ... row + n) = scale * b (a x). Of kv_b b is the other way round, (r, n). */
typedef struct lora_part {
    const float *a, *b;           /* (r, in), (n, r), or as many for each expert; of an embedding a is (vocab of this rank, r) */
    int32_t r, in, row, n, vocab; /* in: src may be wider */
} lora_part;

/* What one adapter adds to one layer. Twin: llm__lora_slot. */
typedef struct lora_slot {
    lora_part part[LLM_LORA_PARTS];
    int32_t n;
} lora_slot;

/* Computes: y += Y^T (X x), what the row's adapter adds to kv_b of a head; x the query and y absorbed, or (values) x what attention gave
 * and y out. X and Y are its A (r, rank) and the head's columns of B (r, n), or the other way round. 32 of the r at a time: a warp one of X
 * x, then a thread an output. Grid: (rows, heads). Twin: llm__mla_adapt. */
static __global__ void __launch_bounds__(128) kernel_latent_adapt(step_view s, latent_args a, const lora_slot *slots, int values) {
    grid_wait();
    SMEM(float, low, 32);
    int row = a.first_row + (int)blockIdx.x, h = (int)blockIdx.y, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (row >= s.head[HEAD_ROWS]) return;
    int slot = s.seq_lora[s.seq_of_row[row]], at = h * (a.op.nope + a.op.v_dim), n_x = values ? a.op.rank : a.op.nope,
        n_y = values ? a.op.v_dim : a.op.rank;
    if (slot < 0 || !slots[slot].n) return;
    const lora_part &p = slots[slot].part[0];
    const float *from = values ? p.a : p.b + at, *to = values ? p.b + at + a.op.nope : p.a;
    int64_t from_row = values ? p.in : p.n, to_row = values ? p.n : p.in, turn_row = (int64_t)blockIdx.x * a.op.n_heads + h;
    const float *x = values ? a.attended + turn_row * a.op.rank : a.q[row] + h * (a.op.nope + a.op.rope_dim);
    float *y = values ? a.out[row] + h * a.op.v_dim : a.absorbed + turn_row * (a.op.rank + a.op.rope_dim);
    for (int first = 0; first < p.r; first += 32) {
        int n = min(32, p.r - first);
        for (int j = warp; j < n; j += 4) {
            float v = 0;
            for (int i = lane; i < n_x; i += 32) v += from[(first + j) * from_row + i] * x[i];
            v = warp_sum(v);
            if (lane == 0) low[j] = v;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n_y; i += blockDim.x) {
            float v = y[i];
            for (int j = 0; j < n; j++) v += low[j] * to[(first + j) * to_row + i];
            y[i] = v;
        }
        __syncthreads();
    }
}

/* Twin: llm_lora_site of >>backend. Slots change under a captured graph, their address does not. */
struct llm_lora_site {
    int rank, n_slots;
    lora_slot *slots; /* (n_slots) on the device */
    struct lora_held {
        uint8_t *memory; /* of the slot's matrices, on the device */
        size_t bytes;
    } * held; /* (n_slots) */
};

/* Pages of latents, whose place is that of keys: with an indexer they are what the layer has as values. */
static kv_view latent_pages_of(const rank *r, const llm_mla_op *op) {
    kv_view kv = kv_of(r, op->layer);
    kv_place *p = &kv.place;
    if (!op->chosen) return kv;
    p->offset += p->v_offset;
    p->scale_offset += 8 * (int64_t)kv.page_tokens - p->v_offset; /* scales and offsets of keys stand in front */
    p->head_dim = p->v_head_dim, p->k_elements = p->v_elements, p->v_head_dim = 0;
    return kv;
}

/* Stages of keys that a block of kernel_latent_split has memory for; 0: it does not take these latents or pages. */
static int latent_stages(const rank *r, const llm_mla_op *op, const kv_view &kv) {
    const int hd = op->rank + op->rope_dim, beside = (int)sizeof(latent_shared);
    int n = 4;
    if (kv.element_bytes != 2 || op->rank % 16 || op->rope_dim % 16 || op->rank > 512 || hd > 640) return 0;
    while (n > 1 && latent_smem(hd, n) + (size_t)beside > (size_t)r->max_smem) n--;
    return n > 1 ? n : 0;
}

/* Attention over latents by kernel_attention: pages of f32 or bytes, odd sizes. */
static void run_latent_tiles(rank *r, const kv_view &kv, const latent_args &a, size_t partial_bytes) {
    const int hd = a.op.rank + a.op.rope_dim, size = kv_turn_size(a.op.rank | a.op.rope_dim); /* divides both */
    attention_args t = {.q = {a.absorbed, (int64_t)a.op.n_heads * hd}, .out = {a.attended, (int64_t)a.op.n_heads * a.op.rank}};
    t.partial = a.partial;
    t.n_heads = t.group = a.op.n_heads;
    t.first_row = a.first_row, t.n_rows = a.n_rows;
    t.hd = hd, t.vd = a.op.rank;
    t.latent = 1;
    t.scale = a.op.scale;
    t.chosen = a.chosen, t.chosen_stride = a.chosen_stride, t.topk = a.op.topk;
    if (kv.scaled) run_turn(r, t.q, a.n_rows, a.op.n_heads, hd, size, a.first_row, 0);
    run_tiles(r, kv, t, 1, partial_bytes);
    if (kv.scaled) run_turn(r, t.out, a.n_rows, a.op.n_heads, a.op.rank, size, a.first_row, 0);
}

/* The first half of the scratch memory has absorbed and attended of a turn, and where rows have their splits; the second partial results of
 * splits. Twin: llm__run_mla. */
static void run_latent(rank *r, const llm_mla_op *op) {
    latent_args a = {*op, rows_of(op->q), rows_of(op->kv_a), rows_of(op->dst), rows_of(op->rope), op->kv_norm->f32, op->kv_b->f32};
    a.partial = (float *)(r->scratch + r->scratch_bytes / 2);
    a.several = r->ctx->padded.n_rows > r->ctx->padded.n_seqs;
    if (op->chosen) a.chosen = (const int32_t *)op->chosen->data, a.chosen_stride = op->chosen->stride;
    const kv_view kv = latent_pages_of(r, op);
    a.stages = latent_stages(r, op, kv);
    const int hd = op->rank + op->rope_dim, rows = r->ctx->padded.n_rows, tiles = ceil_div(op->n_heads, LATENT_HEADS);
    const size_t each = (size_t)op->n_heads * (size_t)(hd + op->rank) * sizeof(float) + 2 * sizeof(int32_t), half = r->scratch_bytes / 2;
    if (half < each) {
        ctx_fail(r->ctx, LLM_ERR_LIMIT, "latent attention: a row does not fit the scratch memory");
        return;
    }
    a.slots = min_int(MAX_SPLITS + r->ctx->cfg.max_rows, (int64_t)(half / ((size_t)op->n_heads * (size_t)(op->rank + 4) * sizeof(float))));
    for (; a.first_row < rows; a.first_row += a.n_rows) {
        a.n_rows = min_int(rows - a.first_row, (int64_t)(half / each));
        a.absorbed = (float *)r->scratch;
        a.attended = a.absorbed + (size_t)a.n_rows * (size_t)op->n_heads * (size_t)hd;
        int32_t *place = (int32_t *)(a.attended + (size_t)a.n_rows * (size_t)op->n_heads * (size_t)op->rank);
        a.place = a.stages ? place : NULL;
        const int heads = op->n_heads, chunks = ceil_div(a.n_rows, LATENT_ROWS), n = a.n_rows;
        launch<kernel_latent_absorb>(r, {ceil_div(op->rank, ABSORB_N) + 1, heads, chunks}, 256, 0, r->view, kv, a);
        if (op->lora) launch<kernel_latent_adapt>(r, {n, heads}, 128, 0, r->view, a, op->lora->slots, 0);
        const launch_grid grid = {ceil_div(r->n_sms, tiles), tiles};
        if (!a.stages) run_latent_tiles(r, kv, a, half);
        else if (kv.type == LLM_KV_F16) launch<kernel_latent_split<true>>(r, grid, 256, latent_smem(hd, a.stages), r->view, kv, a);
        else launch<kernel_latent_split<false>>(r, grid, 256, latent_smem(hd, a.stages), r->view, kv, a);
        launch<kernel_latent_values>(r, {ceil_div(op->v_dim, VALUES_N), heads, chunks}, 256, 0, r->view, a);
        if (op->lora) launch<kernel_latent_adapt>(r, {n, heads}, 128, 0, r->view, a, op->lora->slots, 1);
    }
}

/* ============================================================================
 * >>indexer   Which positions latent attention looks at (DeepSeek-V3.2).
 * ============================================================================
 * A row scores all positions before it with heads that are few and narrow beside those of attention, and attends to the topk best: see
 * llm_index_op, and >>indexer of llm.h for what that saves. Rows go in turns whose scores fit the scratch memory:
 *
 *     kernel_index_write                        keys of the step's rows to the pages, queries turned
 *     kernel_index_product or _scores           score (rows of the turn, positions)
 *     kernel_index_choose                       chosen (T, topk), ascending, in the buffer that attention reads
 *
 * Scores and choice of a row depend on the row and its keys alone: neither on what else is in the step, nor on how many blocks share a row.
 * Lists that are captured have launches for the longest context there may be, whose blocks end at once where a row has no choice; in other
 * steps nothing is launched for contexts of topk positions or fewer. */

/* Of one turn of rows. */
typedef struct index_args {
    llm_index_op op;
    rows_view q, k, rope;
    norm_view norm;
    int32_t *chosen; /* (T, chosen_stride) */
    int64_t chosen_stride;
    float *scores; /* (rows of the turn, scores_stride), a multiple of 32 */
    int64_t scores_stride;
    int32_t first_row;
} index_args;

static constexpr int INDEX_DIM = 128, INDEX_BINS = 2048, INDEX_THREADS = 1024, INDEX_WARPS = INDEX_THREADS / 32;

/* Floats from one row's scores to the next: 32 keys at a time are written. */
static int64_t index_stride(int64_t positions) { return (positions + 31) & ~(int64_t)31; }

/* A warp: n values of a row normalised in place. Twin: llm__norm_row. */
static __device__ void warp_norm(const norm_view &v, float *x, int n) {
    float sum = 0, square = 0;
    for (int i = threadIdx.x & 31; i < n; i += 32) sum += x[i];
    const float mean = warp_sum(sum) / (float)n;
    for (int i = threadIdx.x & 31; i < n; i += 32) square += (x[i] - mean) * (x[i] - mean);
    const float factor = 1 / sqrtf(warp_sum(square) / (float)n + v.eps);
    for (int i = threadIdx.x & 31; i < n; i += 32) x[i] = norm_value(v, x[i], i, mean, factor);
}

/* Computes: key (T, dim) of a row normalised, turned and written to its page; its queries (heads, dim) turned, where it has a choice. Grid:
 * one block a row, 4 warps take the key and the heads in turn. Twin: llm__run_index_write. */
static __global__ void __launch_bounds__(128, 6) kernel_index_write(step_view s, kv_view kv, index_args a) {
    grid_wait();
    const int row = (int)blockIdx.x, dim = a.op.head_dim;
    if (row >= s.head[HEAD_ROWS]) return;
    const int position = row_position(s, row), heads = position < a.op.topk ? 0 : a.op.n_heads;
    for (int h = threadIdx.x >> 5; h <= heads; h += 4) {
        float *x = h ? a.q[row] + (h - 1) * dim : a.k[row];
        if (!h) warp_norm(a.norm, x, dim);
        warp_rotate(x, a.rope[row], a.op.rope_dim / 2, a.op.rope_interleaved);
        if (kv.scaled) warp_turn(x, dim, kv_turn_size(dim));
        if (!h) warp_write_token(kv, s.pages + (int64_t)s.seq_of_row[row] * s.head[HEAD_STRIDE], position, 0, x, NULL);
    }
}

/* Computes: score (rows, positions) = sum over heads of w_h max(q_h . key, 0), of the positions up to a row's own. Grid: (rows, pieces), a
 * block takes every gridDim.y-th 32 keys, which are f32 in shared memory; a warp has every fourth head, a lane a key, and four sums are
 * added in order. Reads: a row's keys once. Twin: llm__run_index. */
template <int T> static __global__ void __launch_bounds__(128) kernel_index_scores(step_view s, kv_view kv, index_args a) {
    grid_wait();
    DYN_SMEM(float, keys);
    const int row = a.first_row + (int)blockIdx.x, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, dim = a.op.head_dim, stride = dim | 1;
    if (row >= s.head[HEAD_ROWS] || row_position(s, row) < a.op.topk) return;
    float *sums = keys + KEYS * stride, *score = a.scores + (int)blockIdx.x * a.scores_stride;
    const float *weight = a.k[row] + dim;
    const int n = row_position(s, row) + 1;
    for (int block = (int)blockIdx.y * KEYS; block < n; block += (int)gridDim.y * KEYS) {
        const int there = min(KEYS, n - block);
        float sum = 0;
        __syncthreads();
        load_keys<T>(kv, s.pages + (int64_t)s.seq_of_row[row] * s.head[HEAD_STRIDE], NULL, 0, block, 0, there, keys, stride);
        __syncthreads();
        for (int h = warp; h < a.op.n_heads && lane < there; h += 4) {
            const float *q = a.q[row] + h * dim;
            float v = 0;
            for (int d = 0; d < dim; d++) v += q[d] * keys[lane * stride + d];
            sum += weight[h] * (v > 0 ? v : 0);
        }
        sums[warp * KEYS + lane] = sum;
        __syncthreads();
        if (warp == 0 && lane < there) score[block + lane] = sums[lane] + sums[KEYS + lane] + sums[2 * KEYS + lane] + sums[3 * KEYS + lane];
    }
}

/* A row's queries for kernel_index_product: of each 16 heads and 16 dims what the lanes multiply, in two parts, side by side; of each head
 * what its products count for. Halves are brought down to what they can hold, and the weight up. A block of 8 warps. */
template <bool HALF> DEVICE void index_queries(const index_args &a, int row, uint4 *parts, float *weight) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, dim = a.op.head_dim,
              steps = 2 * ceil_div(dim, 32), heads = ceil_div(a.op.n_heads, 16) * 16;
    const float *q = a.q[row], *w = a.k[row] + dim;
    float *scale = weight + heads;
    for (int h = warp; h < heads; h += 8) {
        float most = 0;
        for (int d = lane; d < dim && h < a.op.n_heads; d += 32) most = fmaxf(most, fabsf(q[h * dim + d]));
        most = HALF ? half_scale(warp_max(most)) : 1;
        if (lane == 0) scale[h] = most, weight[h] = h < a.op.n_heads ? w[h] / most : 0;
    }
    __syncthreads();
    for (int i = warp; i < heads / 16 * steps; i += 8) {
        const int h = i / steps * 16 + g, d = i % steps / 2 * 32 + 8 * t + i % 2 * 4; /* steps are even: i and i % steps are odd together */
        uint32_t high[4], low[4];
        UNROLL(e, 4) { /* rows g and g + 8, then the same of the next two dims */
            const int head = h + 8 * (e & 1), at = d + (e & 2);
            const float2 v = head < a.op.n_heads && at < dim ? *(const float2 *)(q + head * dim + at) : make_float2(0, 0);
            split_pair_of<HALF>(v.x * scale[head], v.y * scale[head], &high[e], &low[e]);
        }
        parts[64 * i + lane] = make_uint4(high[0], high[1], high[2], high[3]);
        parts[64 * i + 32 + lane] = make_uint4(low[0], low[1], low[2], low[3]);
    }
    __syncthreads();
}

/* Computes: what kernel_index_scores does, of keys of 16 bits. Grid: (rows, pieces), 8 warps, each 32 keys at a time, which stay in its
 * registers while all heads go by: the 16 rows of a product are heads, its columns 8 keys. A lane has 8 dims of a key side by side, 16
 * bytes, for two products, whose dims stand in this order on both sides. Queries are multiplied in two parts, so that nothing of them is
 * lost. Heads are added in one order. Reads: a row's keys once. Twin: llm__run_index. */
template <bool HALF> static __global__ void __launch_bounds__(256, 2) kernel_index_product(step_view s, kv_view kv, index_args a) {
    grid_wait();
    DYN_SMEM(uint4, parts);
    const int row = a.first_row + (int)blockIdx.x, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, dim = a.op.head_dim,
              steps = 2 * ceil_div(dim, 32), groups = ceil_div(a.op.n_heads, 16);
    if (row >= s.head[HEAD_ROWS] || row_position(s, row) < a.op.topk) return;
    float *weight = (float *)(parts + 64 * steps * groups), *score = a.scores + (int)blockIdx.x * a.scores_stride;
    const int n = row_position(s, row) + 1;
    const int32_t *pages = s.pages + (int64_t)s.seq_of_row[row] * s.head[HEAD_STRIDE];
    if ((int)blockIdx.y * 256 >= n) return;
    index_queries<HALF>(a, row, parts, weight);
    for (int first = ((int)blockIdx.y * 8 + (int)(threadIdx.x >> 5)) * 32; first < n; first += (int)gridDim.y * 256) {
        uint4 key[4][INDEX_DIM / 32];
        float sum[4][2] = {};
        UNROLL(j, 4) {
            const int at = first + 8 * j + g;
            const uint8_t *from = kv_part(kv, pages, min(at, n - 1), 0) + (int64_t)(at % kv.page_tokens) * dim * 2 + 16 * t;
            UNROLL(k, INDEX_DIM / 32) key[j][k] = at < n && 32 * k + 8 * t < dim ? *(const uint4 *)(from + 64 * k) : make_uint4(0, 0, 0, 0);
        }
        for (int group = 0; group < groups; group++) {
            const uint4 *part = parts + 64 * steps * group + lane;
            float acc[4][4] = {};
            UNROLL(k, INDEX_DIM / 16) {
                if (k >= steps) continue;
                const uint4 high = part[64 * k], low = part[64 * k + 32];
                const uint32_t a0[4] = {high.x, high.y, high.z, high.w}, a1[4] = {low.x, low.y, low.z, low.w};
                UNROLL(j, 4) {
                    const uint4 u = key[j][k / 2];
                    const uint32_t b[2] = {k % 2 ? u.z : u.x, k % 2 ? u.w : u.y};
                    mma_16x8x16<HALF>(acc[j], a0, b);
                    mma_16x8x16<HALF>(acc[j], a1, b);
                }
            }
            const float w0 = weight[16 * group + g], w1 = weight[16 * group + 8 + g];
            UNROLL(j, 4)
                UNROLL(e, 2) sum[j][e] += w0 * (acc[j][e] > 0 ? acc[j][e] : 0) + w1 * (acc[j][2 + e] > 0 ? acc[j][2 + e] : 0);
        }
        UNROLL(j, 4) {
#pragma unroll
            for (int o = 4; o < 32; o *= 2)
                UNROLL(e, 2) sum[j][e] += __shfl_xor_sync(~0u, sum[j][e], o);
            if (g == 0) *(float2 *)(score + first + 8 * j + 2 * t) = make_float2(sum[j][0], sum[j][1]);
        }
    }
}

/* What a block that chooses shares: how many positions have a digit, the warps' sums, and what was found. */
typedef struct index_shared {
    int32_t count[INDEX_BINS], above[INDEX_WARPS], equal[INDEX_WARPS], digit, before;
} index_shared;

/* Integers in the order of scores; what is no number is the least. Twin: llm__score_order. */
DEVICE uint32_t score_order(float score) {
    const uint32_t u = __float_as_uint(score + 0.0f);
    return score != score ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* Finds the digit, from the largest down, in which the wanted-th position is: sh.digit, and sh.before of larger ones. A thread has two. */
static __device__ void index_cross(int wanted, index_shared &sh) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, top = INDEX_BINS - 1 - 2 * (int)threadIdx.x;
    const int first = sh.count[top], both = first + sh.count[top - 1];
    int before = warp_scan(both);
    if (lane == 31) sh.above[warp] = before;
    __syncthreads();
    before -= both;
    for (int k = 0; k < warp; k++) before += sh.above[k];
    if (before < wanted && before + both >= wanted) {
        const int second = before + first < wanted;
        sh.digit = top - second, sh.before = before + (second ? first : 0);
    }
    __syncthreads();
}

/* Computes: chosen (T, topk) = the positions of the topk highest scores of a row, of equals the earlier ones, ascending, where it has more
 * positions. Grid: one block a row. The topk-th score is found by its bits, 11, 11 and 10 of them, from the highest; then a warp has a
 * range of positions, counts what it will choose, and writes it. Reads: a row's scores five times. Twin: llm__best_positions. */
static __global__ void __launch_bounds__(INDEX_THREADS, 1) kernel_index_choose(step_view s, index_args a) {
    grid_wait();
    SMEM(index_shared, shared, 1);
    index_shared &sh = shared[0];
    const int row = a.first_row + (int)blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (row >= s.head[HEAD_ROWS] || row_position(s, row) < a.op.topk) return;
    const float *score = a.scores + (int)blockIdx.x * a.scores_stride;
    int32_t *chosen = a.chosen + row * a.chosen_stride;
    const int n = row_position(s, row) + 1, each = ceil_div(n, 32 * INDEX_WARPS) * 32, from = warp * each, to = min(n, from + each);
    uint32_t least = 0, known = 0; /* bits of the topk-th score, and which of them are known */
    int left = a.op.topk;          /* so many are taken of those with these bits */
    for (int pass = 0; pass < 3; pass++) {
        const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
        const uint32_t mask = pass == 2 ? 1023 : 2047;
        for (int i = threadIdx.x; i < INDEX_BINS; i += INDEX_THREADS) sh.count[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += INDEX_THREADS) {
            const uint32_t x = score_order(score[i]);
            if ((x & known) == least) atomicAdd(&sh.count[x >> shift & mask], 1);
        }
        __syncthreads();
        index_cross(left, sh);
        least |= (uint32_t)sh.digit << shift, known |= mask << shift, left -= sh.before;
    }
    int above = 0, equal = 0;
    for (int i = from + lane; i - lane < to; i += 32) {
        const uint32_t x = i < to ? score_order(score[i]) : 0;
        above += __popc(__ballot_sync(~0u, i < to && x > least));
        equal += __popc(__ballot_sync(~0u, i < to && x == least));
    }
    if (lane == 0) sh.above[warp] = above, sh.equal[warp] = equal;
    __syncthreads();
    int at = 0;
    for (int k = 0; k < warp; k++) {
        const int taken = min(left, sh.equal[k]);
        at += sh.above[k] + taken, left -= taken;
    }
    for (int i = from + lane; i - lane < to; i += 32) {
        const uint32_t x = i < to ? score_order(score[i]) : 0, before = (1u << lane) - 1;
        const unsigned more = __ballot_sync(~0u, i < to && x > least), same = __ballot_sync(~0u, i < to && x == least);
        const int rank = __popc(same & before);
        if (more >> lane & 1 || (same >> lane & 1 && rank < left)) chosen[at + __popc(more & before) + min(rank, left)] = i;
        at += __popc(more) + min(__popc(same), left), left -= min(__popc(same), left);
    }
}

/* Scores of a turn of rows: on tensor cores what they have the widths for, and shared memory for the queries of. */
static void run_index_scores(rank *r, const kv_view &kv, const index_args &a, int rows) {
    const int dim = a.op.head_dim, groups = ceil_div(a.op.n_heads, 16), pieces = max_int(1, 2 * r->n_sms / rows);
    const size_t smem = (size_t)groups * ((size_t)ceil_div(dim, 32) * 2 * 64 * sizeof(uint4) + 2 * 16 * sizeof(float));
    const launch_grid grid = {rows, pieces};
    if (kv.element_bytes == 2 && dim % 8 == 0 && dim <= INDEX_DIM && smem <= (size_t)r->max_smem) {
        if (kv.type == LLM_KV_F16) launch<kernel_index_product<true>>(r, grid, 256, smem, r->view, kv, a);
        else launch<kernel_index_product<false>>(r, grid, 256, smem, r->view, kv, a);
        return;
    }
    with_constant<LLM_KV_F32, LLM_KV_INT4>(kv.type, [&](auto t) {
        launch<kernel_index_scores<t.value>>(r, grid, 128, sizeof(float) * (size_t)(KEYS * (dim | 1) + 4 * KEYS), r->view, kv, a);
    });
}

static void run_index(rank *r, const llm_index_op *op) {
    const int rows = r->ctx->padded.n_rows, most = r->ctx->capture ? r->ctx->cfg.indexed : r->ctx->longest;
    const kv_view kv = kv_of(r, op->layer);
    index_args a = {.op = *op,
                    .q = rows_of(op->q),
                    .k = rows_of(op->k),
                    .rope = rows_of(op->rope),
                    .norm = norm_of(LLM_NORM_LAYER, op->k_norm, op->k_bias, op->eps),
                    .chosen = (int32_t *)op->dst->data,
                    .chosen_stride = op->dst->stride,
                    .scores = (float *)r->scratch,
                    .scores_stride = index_stride(most)};
    launch<kernel_index_write>(r, {rows}, 128, 0, r->view, kv, a);
    for (int n; a.first_row < rows && most > op->topk; a.first_row += n) {
        n = min_int(rows - a.first_row, (int64_t)(r->scratch_bytes / sizeof(float)) / a.scores_stride);
        run_index_scores(r, kv, a, n);
        launch<kernel_index_choose>(r, {n}, INDEX_THREADS, 0, r->view, a);
    }
}

/* ============================================================================
 * >>recurrent   Layers that keep a state: convolutions, linear attention.
 * ============================================================================
 * A state lies in the pages of its sequence, in f32: each page has it as it was behind the last of the page's tokens that were computed.
 * So a block takes it from the page of the position before its first row, zeros at position 0, keeps it in registers while it walks over
 * the rows of its sequence, one after the other, and writes it wherever a page ends and behind the last row. What is read was written by
 * an earlier step, never by this one: so it is asked for before grid_wait. Columns of a state know nothing of one another, so
 * they are what blocks share out, and a row's bits depend on nothing but the rows before it: not on chunks, pages or neighbours.
 *
 * For instance a gated delta net of 32 heads of 128 x 128, one sequence: 2 MB are read and written for each token, by 128 blocks of 32
 * columns. A thread has 4 columns of 8 rows, 16 bytes each, which are under way at once; a token asks nothing else of memory but
 * its key, query and values. Of a prompt these come 16 rows ahead, and the state stays where it is.
 *
 *     state     rows (dk) over 16 lanes, by fours: lane p has rows 4 p ... 4 p + 3, then 64 further on; 4 columns a lane, 8 a warp
 *     a row     S^T d k and S^T d q in one pass, d what is left: a lane's own rows, then over the 16 lanes by halves, of 8 sums 4, then 2,
 *               then 1
 *               u = w (v - S^T d k);  out = S^T d q + (q k) u + skip v;  S = d S + k u: one pass more, and nothing to wait for
 *
 * The last line is S'^T q of the new state S' = d S + k u^T, without reading it again. */

/* The state of this layer in the page that holds a position. Twin: llm__kv_state. */
DEVICE float *kv_state(const kv_view &v, const int32_t *pages, int position) {
    return (float *)(v.base + pages[position / v.page_tokens] * v.page_bytes + v.place.state_offset);
}

/* The rows [row, end) of a sequence, of which those from `kept` on are guesses, the position of the first, and its pages. None: no rows.
 * Twin: llm__recur_next. */
typedef struct recur_rows {
    int row, end, kept, at;
    const int32_t *pages;
} recur_rows;

DEVICE recur_rows recur_rows_of(const step_view &s, int seq) {
    if (seq >= s.head[HEAD_SEQS]) return {};
    const int row = s.seq_begin[seq], end = s.seq_begin[seq + 1];
    return {row, end, min(end, row + s.seq_keep[seq]), s.seq_len[seq] - (end - row), s.pages + (int64_t)seq * s.head[HEAD_STRIDE]};
}

/* How many rows from `row` on, of `most`, are of one page, and all guesses or none. */
DEVICE int recur_part(const recur_rows &r, int row, int most, int page_tokens) {
    return min(min(most, (row < r.kept ? r.kept : r.end) - row), page_tokens - (r.at + row - r.row) % page_tokens);
}

/* Where the state behind these rows goes; NULL: nowhere, as their page goes on, or they are guesses. */
DEVICE float *recur_keep(const kv_view &v, const recur_rows &r, int row, int n) {
    const int at = r.at + row - r.row + n;
    if (row >= r.kept) return NULL;
    return row + n == r.kept || at % v.page_tokens == 0 ? kv_state(v, r.pages, at - 1) : NULL;
}

/* An operation, and what its buffers and weights are on the device. y: where the first column of a row's result goes. */
typedef struct conv_args {
    llm_conv_op op;
    rows_view x, y;
    const float *weight, *bias;
} conv_args;

enum { CONV_ROWS = 16 }; /* that are asked for together */

/* Computes: y (T, n) = act(bias + sum over taps of w x), a causal convolution of each column, x and y times other columns where the
 * operation says so; the last x to the pages. Fewer taps than TAPS are led by zeros. Grid: (sequences, n / 64), a thread a column. Twin:
 * llm__body_conv. */
template <int TAPS> static __global__ void __launch_bounds__(64) kernel_conv(step_view s, kv_view v, conv_args a) {
    constexpr int PAST = TAPS - 1;
    const llm_conv_op &op = a.op;
    const recur_rows r = recur_rows_of(s, (int)blockIdx.x);
    const int c = (int)(blockIdx.y * blockDim.x + threadIdx.x), none = TAPS - op.taps;
    const bool here = r.row < r.end && c < op.n;
    const float bias = here && a.bias ? a.bias[c] : 0, *state = here && r.at ? kv_state(v, r.pages, r.at - 1) + op.state + c : NULL;
    float w[TAPS], x[PAST + CONV_ROWS];
    UNROLL(j, TAPS) w[j] = here && j >= none ? a.weight[(int64_t)c * op.taps + j - none] : 0;
    UNROLL(j, PAST) x[j] = state && j >= none ? state[(int64_t)(j - none) * op.n] : 0;
    grid_wait();
    for (int row = r.row, n; here && row < r.end; row += n) {
        n = recur_part(r, row, CONV_ROWS, v.page_tokens);
        const float *from = a.x[row] + c, *after = from + max(0, op.after_col);
        float *to = a.y[row] + c, *keep = recur_keep(v, r, row, n);
        if (keep) keep += op.state + c;
#pragma unroll
        for (int i = 0; i < CONV_ROWS; i++, from += a.x.stride) {
            x[PAST + i] = i < n ? from[op.col] : 0;
            if (i < n && op.before_col >= 0) x[PAST + i] *= from[op.before_col];
        }
#pragma unroll
        for (int i = 0; i < CONV_ROWS; i++, to += a.y.stride, after += a.x.stride) {
            float y = bias;
            if (i >= n) break;
            UNROLL(j, TAPS) y += w[j] * x[i + j];
            if (op.silu) y *= sigmoid(y);
            *to = y * (op.after_col < 0 ? 1 : *after);
            if (i + 1 < n) continue;
            UNROLL(j, PAST) {
                x[j] = x[i + 1 + j];
                if (keep && j >= none) keep[(int64_t)(j - none) * op.n] = x[j];
            }
        }
    }
}

static void run_conv(rank *r, const llm_conv_op *op) {
    const conv_args a = {*op, rows_of(op->buf), op->dst ? rows_of(op->dst) : rows_of(op->buf, op->col), op->weight->f32, f32_of(op->bias)};
    const launch_grid grid = {r->ctx->padded.n_seqs, ceil_div(op->n, 64)};
    if (op->taps <= 4) launch<kernel_conv<4>>(r, grid, 64, 0, r->view, kv_of(r, op->layer), a);
    else launch<kernel_conv<LLM_CONV_TAPS>>(r, grid, 64, 0, r->view, kv_of(r, op->layer), a);
}

/* The same of linear attention. whole: the state's rows begin on vectors of four. */
typedef struct recur_args {
    llm_recur_op op;
    rows_view x, out;
    const float *decay, *decay_bias, *skip;
    int32_t parts, whole; /* parts: of a head's columns, a block each */
} recur_args;

enum { RECUR_LANES = 16, RECUR_COLS = 32, RECUR_MOST = 256 }; /* lanes that share columns; columns of a block; rows of a state at most */

/* What a block reads of some rows, EACH rows of the state a thread: what it asks for, twice, and what it makes of that. */
template <int EACH> struct recur_stage {
    static constexpr int KEYS = EACH * RECUR_LANES, ROWS = 1024 / KEYS;
    float key[2][ROWS][KEYS], query[2][ROWS][KEYS], left[2][ROWS][KEYS], value[2][ROWS][RECUR_COLS],
        given[2][ROWS][2];                      /* given: decay_col's, write_col's */
    float write[ROWS], both[ROWS], by[2][ROWS]; /* both: query times key, which `by` brings to their lengths */
};

/* Asks for n rows from `row` on, zeros behind dk and dv: a warp a row. */
template <int EACH> DEVICE void recur_ask(recur_stage<EACH> *sh, int turn, const recur_args &a, int row, int n) {
    const llm_recur_op &op = a.op;
    const int lane = threadIdx.x & 31, h = (int)blockIdx.y / a.parts, c = (int)blockIdx.y % a.parts * RECUR_COLS + lane;
    const int group = (op.turns ? (h + op.turns - 1) % op.n_groups : h / (op.n_heads / op.n_groups)) * op.dk,
              given = lane ? op.write_col : op.decay_col;
    for (int i = threadIdx.x >> 5; i < n; i += 4) {
        const float *x = a.x[row + i];
        for (int k = lane; k < sh->KEYS; k += 32) {
            const int there = k < op.dk ? 4 : 0, at = group + (there ? k : 0);
            copy_async_4(&sh->key[turn][i][k], x + op.k_col + at, there);
            copy_async_4(&sh->query[turn][i][k], x + op.q_col + at, there);
            if (op.step_keys) copy_async_4(&sh->left[turn][i][k], x + op.decay_col + h * op.dk + (there ? k : 0), there);
        }
        copy_async_4(&sh->value[turn][i][lane], x + op.v_col + h * op.dv + (c < op.dv ? c : 0), c < op.dv ? 4 : 0);
        if (lane < 2 && given >= 0 && (lane || !op.step_keys)) copy_async_4(&sh->given[turn][i][lane], x + given + h, 4);
    }
    copy_async_end();
}

/* The step of a number of the row and its bias. Twin: llm__recur_step. */
DEVICE float recur_step(const llm_recur_op &op, float z) {
    const float step = fmaxf(z > 20 ? z : log1pf(expf(z)), op.step_min);
    return op.step_max > 0 ? fminf(step, op.step_max) : step;
}

/* How much of a row is written, and of what was there is left: a warp a row. Twins: llm__recur_inputs, llm__recur_decays. */
template <int EACH> DEVICE void recur_numbers(recur_stage<EACH> *sh, int turn, const recur_args &a, int n) {
    const llm_recur_op &op = a.op;
    const int lane = threadIdx.x & 31, h = (int)blockIdx.y / a.parts;
    const float *decay = a.decay + h * (op.decay_keys ? op.dk : 1), *bias = a.decay_bias + h * (op.step_keys ? op.dk : 1);
    for (int i = threadIdx.x >> 5; i < n; i += 4) {
        const float step = op.step_keys ? 0 : recur_step(op, sh->given[turn][i][0] + bias[0]);
        const float left = op.step_keys || op.decay_keys ? 0 : expf(decay[0] * step);
        float kk = 0, qq = 0, kq = 0;
        for (int j = lane; j < sh->KEYS; j += 32) {
            const float k = sh->key[turn][i][j], q = sh->query[turn][i][j];
            float *to = &sh->left[turn][i][j];
            kk = __fmaf_rn(k, k, kk), qq = __fmaf_rn(q, q, qq), kq = __fmaf_rn(k, q, kq);
            if (j >= op.dk) *to = 0;
            else if (op.step_keys) *to = expf(decay[op.decay_keys ? j : 0] * recur_step(op, *to + bias[j]));
            else *to = op.decay_keys ? expf(decay[j] * step) : left;
        }
        kk = warp_sum(kk), qq = warp_sum(qq), kq = warp_sum(kq);
        if (lane) continue;
        const float by_k = op.unit ? 1 / sqrtf(kk + 1e-6f) : 1, by_q = op.unit ? 1 / sqrtf((float)op.dk) / sqrtf(qq + 1e-6f) : 1;
        sh->write[i] = op.write_col < 0 ? step : sigmoid(sh->given[turn][i][1]);
        sh->by[0][i] = by_k, sh->by[1][i] = by_q, sh->both[i] = kq * by_k * by_q;
    }
}

/* A thread's part of a state from `state`, which is where its first column begins, NULL: zeros; with KEEP to there. */
template <int EACH, bool KEEP> DEVICE void recur_move(float (*S)[4], float *state, const recur_args &a, int c) {
    UNROLL(m, EACH) {
        const int k = 4 * (threadIdx.x & 15) + m / 4 * 64 + m % 4, n = state && k < a.op.dk ? a.op.dv - c : 0;
        float *row = state + (int64_t)k * a.op.dv;
        if (a.whole && KEEP && n > 0) *(float4 *)row = make_float4(S[m][0], S[m][1], S[m][2], S[m][3]);
        if (a.whole && !KEEP) {
            const float4 four = n > 0 ? *(const float4 *)row : make_float4(0, 0, 0, 0);
            S[m][0] = four.x, S[m][1] = four.y, S[m][2] = four.z, S[m][3] = four.w;
        }
        UNROLL(e, 4)
            if (a.whole) break;
            else if (!KEEP) S[m][e] = e < n ? row[e] : 0;
            else if (e < n) row[e] = S[m][e];
    }
}

/* Of 2 HALF sums of lanes 2 HALF apart each lane keeps one half, with the other's added. */
template <int HALF> DEVICE void recur_fold(float *sum, int p) {
    const bool second = p & 2 * HALF;
    UNROLL(c, HALF) {
        const float low = sum[c], high = sum[HALF + c]; /* read here: of a choice of places nvcc makes an address, and local memory */
        sum[c] = (second ? high : low) + __shfl_xor_sync(~0u, second ? low : high, 2 * HALF);
    }
}

/* One row passes over a warp's columns of the state. Returns the result of one of the lane's columns, the p / 2 % 4th, in lanes with 8 in
 * p. Twin: llm__recur_rows. */
template <int EACH> DEVICE float recur_row(float (*S)[4], const recur_stage<EACH> &sh, int turn, int i, int delta, float skip) {
    const int lane = threadIdx.x & 31, p = lane & 15;
    const float4 *keys = (const float4 *)sh.key[turn][i] + p, *queries = (const float4 *)sh.query[turn][i] + p,
                 *left = (const float4 *)sh.left[turn][i] + p;
    const float v = sh.value[turn][i][threadIdx.x / 16 * 4 + p / 2 % 4];
    float sum[8] = {};
#pragma unroll
    for (int m = 0; m < EACH; m += 4) {
        const float4 k4 = keys[m / 4 * RECUR_LANES], q4 = queries[m / 4 * RECUR_LANES], d4 = left[m / 4 * RECUR_LANES];
        const float k[4] = {k4.x * d4.x, k4.y * d4.y, k4.z * d4.z, k4.w * d4.w};
        const float q[4] = {q4.x * d4.x, q4.y * d4.y, q4.z * d4.z, q4.w * d4.w};
        UNROLL(e, 16) {
            sum[e % 4] = __fmaf_rn(k[e / 4], S[m + e / 4][e % 4], sum[e % 4]);
            sum[4 + e % 4] = __fmaf_rn(q[e / 4], S[m + e / 4][e % 4], sum[4 + e % 4]);
        }
    }
    recur_fold<4>(sum, p), recur_fold<2>(sum, p), recur_fold<1>(sum, p);
    const float read = (sum[0] + __shfl_xor_sync(~0u, sum[0], 1)) * sh.by[p / 8][i]; /* of the query where p has 8 */
    const float u = __shfl_sync(~0u, sh.write[i] * (v - (delta ? read : 0)), lane & ~8);
    float change[4];
    UNROLL(c, 4) change[c] = __shfl_sync(~0u, u, (lane & 16) + 2 * c) * sh.by[0][i];
#pragma unroll
    for (int m = 0; m < EACH; m += 4) {
        const float4 k4 = keys[m / 4 * RECUR_LANES], d4 = left[m / 4 * RECUR_LANES];
        const float k[4] = {k4.x, k4.y, k4.z, k4.w}, d[4] = {d4.x, d4.y, d4.z, d4.w};
        UNROLL(e, 16) S[m + e / 4][e % 4] = __fmaf_rn(k[e / 4], change[e % 4], __fmul_rn(d[e / 4], S[m + e / 4][e % 4]));
    }
    return __fmaf_rn(sh.both[i], u, __fmaf_rn(skip, v, read));
}

/* Computes: dst (T, heads dv) and the states (dk, dv) behind each row, as llm_recur_op says. Grid: (sequences, heads x parts of 32
 * columns), 16 threads a column of fours. EACH: rows of the state of a thread, dk at most 16 times as many. Twin: llm__run_recur. */
template <int EACH> static __global__ void __launch_bounds__(128, EACH == 8 ? 4 : 2) kernel_recur(step_view s, kv_view v, recur_args a) {
    constexpr int ROWS = recur_stage<EACH>::ROWS;
    SMEM(recur_stage<EACH>, sh, 1);
    const llm_recur_op &op = a.op;
    const recur_rows r = recur_rows_of(s, (int)blockIdx.x);
    const int h = (int)blockIdx.y / a.parts, p = threadIdx.x & 15;
    const int c = (int)blockIdx.y % a.parts * RECUR_COLS + (int)threadIdx.x / 16 * 4, mine = c + p / 2 % 4;
    const int64_t state = op.state + (int64_t)h * op.dk * op.dv + c;
    const float skip = a.skip ? a.skip[h] : 0;
    float S[EACH][4];
    recur_move<EACH, false>(S, r.row < r.end && r.at ? kv_state(v, r.pages, r.at - 1) + state : NULL, a, c);
    grid_wait();
    int n = recur_part(r, r.row, ROWS, v.page_tokens);
    if (n > 0) recur_ask(sh, 0, a, r.row, n);
    for (int row = r.row, turn = 0; row < r.end; turn ^= 1) {
        const int more = recur_part(r, row + n, ROWS, v.page_tokens);
        copy_async_wait<0>();
        __syncthreads();
        if (more > 0) recur_ask(sh, turn ^ 1, a, row + n, more);
        recur_numbers(sh, turn, a, n);
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            const float out = recur_row(S, *sh, turn, i, op.delta, skip);
            if (p % 2 == 0 && p & 8 && mine < op.dv) a.out[row + i][h * op.dv + mine] = out;
        }
        float *keep = recur_keep(v, r, row, n);
        if (keep) recur_move<EACH, true>(S, keep + state, a, c);
        row += n, n = more;
    }
}

static void run_recur(rank *r, const llm_recur_op *op) {
    const recur_args a = {.op = *op,
                          .x = rows_of(op->src),
                          .out = rows_of(op->dst),
                          .decay = op->decay->f32,
                          .decay_bias = op->decay_bias->f32,
                          .skip = f32_of(op->skip),
                          .parts = ceil_div(op->dv, RECUR_COLS),
                          .whole = op->dv % 4 == 0 && op->state % 4 == 0};
    const launch_grid grid = {r->ctx->padded.n_seqs, op->n_heads * a.parts};
    if (op->dk <= RECUR_MOST / 2) launch<kernel_recur<8>>(r, grid, 128, 0, r->view, kv_of(r, op->layer), a);
    else launch<kernel_recur<16>>(r, grid, 128, 0, r->view, kv_of(r, op->layer), a);
}

/* ============================================================================
 * >>experts   Mixtures of experts: choice, grouped products, sum.
 * ============================================================================
 * The pairs (row, choice) are slots, sorted by expert; the products of >>linear then work on groups of slots. How many slots an expert has
 * is known on the device only: grids are made for the worst case, and tiles without rows end at once. Rows go in turns that fit the scratch
 * memory.
 *
 *     routes (T, 2 k)     kernel_route     row 0: experts 5, 2; row 1: 2, 0
 *     slots               kernel_slots     by expert: (row 1, of 0), (row 0, of 2), (row 1, of 2), (row 0, of 5);  begin = 0 1 1 3 3 3 4
 *     h (slots, ff)       run_product      gate and up of each slot's expert, x gathered by row_of
 *     y (slots, D)        run_product      down
 *     dst (T, D)          kernel_combine   row 0 = w y[slot_of(0, 0)] + w' y[slot_of(0, 1)]: in the order of the choices
 *
 * Slots are found by counting, not with atomics: their order, and so every sum, is the same in every run. Of decoding at batch 1 the worst
 * case is k tiles of one row; an expert that nobody chose is not read. */

typedef struct route_args { /* as qkv_args */
    llm_route_op op;
    rows_view out, logits;
    const float *correction, *by;
} route_args;

/* The largest of n values and its index, the lower one of equals; a warp. */
static __device__ int warp_arg_max(const float *x, int n, float *value) {
    float best = -INFINITY;
    int at = n;
    for (int i = threadIdx.x & 31; i < n; i += 32)
        if (x[i] > best || at == n) best = x[i], at = i;
    for (int o = 16; o; o >>= 1) {
        float v = __shfl_xor_sync(~0u, best, o);
        int i = __shfl_xor_sync(~0u, at, o);
        if (i < n && (at == n || v > best || (v == best && i < at))) best = v, at = i;
    }
    *value = best;
    return at;
}

/* In place, over n values; a warp. */
static __device__ void warp_softmax(float *x, int n) {
    int lane = threadIdx.x & 31;
    float top = -INFINITY, sum = 0;
    for (int i = lane; i < n; i += 32) top = fmaxf(top, x[i]);
    top = warp_max(top);
    for (int i = lane; i < n; i += 32) sum += x[i] = expf(x[i] - top);
    sum = warp_sum(sum);
    for (int i = lane; i < n; i += 32) x[i] /= sum;
    __syncwarp();
}

/* Leaves only the experts of the best groups. Twin: llm__route_groups. */
static __device__ void warp_route_groups(const route_args &a, float *choice, float *group) {
    int lane = threadIdx.x & 31, size = a.op.n_experts / a.op.n_group;
    for (int g = lane; g < a.op.n_group; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < size; i++) {
            float x = choice[g * size + i];
            if (x > first) second = first, first = x;
            else if (x > second) second = x;
        }
        group[g] = a.op.group_top2 && size > 1 ? first + second : first;
    }
    __syncwarp();
    for (int left = a.op.n_group - a.op.topk_group; left > 0; left--) { /* drop the worst, of equals the higher */
        int worst = -1;
        for (int g = 0; g < a.op.n_group; g++)
            if (group[g] < INFINITY && (worst < 0 || group[g] <= group[worst])) worst = g;
        __syncwarp();
        if (worst < 0) return;
        if (lane == 0) group[worst] = INFINITY;
        for (int i = lane; i < size; i += 32) choice[worst * size + i] = -INFINITY;
        __syncwarp();
    }
}

/* What SparseMixer gives the best of those left; a warp. Twin: llm__route_near. */
static __device__ float warp_route_near(const llm_route_op &op, const float *logit, const float *choice, int best) {
    float top = logit[best], sum = 0;
    for (int i = threadIdx.x & 31; i < op.n_experts; i += 32)
        if (choice[i] > -INFINITY && !((top - logit[i]) / fmaxf(fabsf(logit[i]), top) > op.near)) sum += expf(logit[i] - top);
    return 1 / warp_sum(sum);
}

/* Computes: routes (T, 2 k) = ids and weights of the k best experts. A warp a row, in shared memory: scores, choices, groups. Grid: one
 * block of 32 threads a row. Twin: llm__run_route. */
static __global__ void __launch_bounds__(32) kernel_route(step_view s, route_args a) {
    grid_wait();
    DYN_SMEM(float, score);
    float *choice = score + a.op.n_experts, sum = 0, scale = a.op.scale != 0 ? a.op.scale : 1, ignored;
    int row = (int)blockIdx.x, lane = threadIdx.x & 31;
    if (row >= s.head[HEAD_ROWS]) return;
    const float *logits = a.logits[row];
    float *out = a.out[row], *weight = out + a.op.k;
    if (a.op.set && (s.head[HEAD_HAS] & HAS_SETS ? s.row_set[row] : 0) != a.op.set - 1) { /* the other set is asked */
        for (int i = lane; i < a.op.k; i += 32) out[i] = -1;
        return;
    }
    for (int i = lane; i < a.op.n_experts; i += 32) score[i] = logits[i];
    __syncwarp();
    if (a.op.score == LLM_ROUTE_SOFTMAX) warp_softmax(score, a.op.n_experts);
    for (int i = lane; i < a.op.n_experts; i += 32) {
        if (a.op.score == LLM_ROUTE_SIGMOID) score[i] = sigmoid(score[i]);
        choice[i] = score[i] + (a.correction ? a.correction[i] : 0);
        if (!(choice[i] > -3e38f)) choice[i] = -3e38f; /* also what is not a number */
    }
    __syncwarp();
    if (a.op.n_group > 1 && a.op.topk_group < a.op.n_group) warp_route_groups(a, choice, choice + a.op.n_experts);
    for (int i = 0; i < a.op.k; i++) {
        int best = warp_arg_max(choice, a.op.n_experts, &ignored);
        float w = a.op.score == LLM_ROUTE_SPARSEMIXER ? warp_route_near(a.op, score, choice, best) : score[best];
        __syncwarp();
        if (lane == 0) choice[best] = -INFINITY, out[i] = (float)best, weight[i] = w;
        __syncwarp();
    }
    if (a.op.score == LLM_ROUTE_TOPK_SOFTMAX) warp_softmax(weight, a.op.k);
    for (int i = 0; i < a.op.k; i++) sum += weight[i];
    __syncwarp();
    if (a.op.normalize) scale /= fmaxf(sum, fmaxf(a.op.normalize_min, 1e-20f));
    for (int i = lane; i < a.op.k; i += 32) weight[i] *= a.by ? scale * a.by[(int)out[i]] : scale;
}

/* Shared memory: scores, choices, groups, of one row. */
static void run_route(rank *r, const llm_route_op *op) {
    const route_args a = {*op, rows_of(op->dst), rows_of(op->logits), f32_of(op->correction), f32_of(op->by)};
    launch<kernel_route>(r, {r->ctx->padded.n_rows}, 32, sizeof(float) * (size_t)(2 * op->n_experts + op->n_group + 1), r->view, a);
}

/* Slots of a turn, in scratch memory. */
typedef struct slots {
    int32_t *begin;   /* (n_experts + 1), then how many slots in all */
    int32_t *row;     /* (slots) */
    int32_t *slot_of; /* (rows, k) */
    float *h, *y;     /* (slots, ff), (slots, hidden) */
    uint8_t *narrow;  /* (slots) h as the product behind it takes it */
} slots;

/* Twin: llm__route_of. */
DEVICE int route_of(const rows_view &routes, int row, int j, int n_experts) {
    float id = routes[row][j];
    return id >= 0 && id < (float)n_experts ? (int)id : -1;
}

/* Computes: slots of rows [first, first + n) sorted by expert, rows ascending. Grid: one block; a warp has a piece of the slots, counts
 * those of each expert, and puts each behind what the warps before and its own lanes before have of that expert: so the order does not
 * depend on time. Shared memory: counts (warps, experts), and where each expert begins. Twin: llm__slots_sort. */
static __global__ void __launch_bounds__(1024)
    kernel_slots(const int32_t *n_rows, rows_view routes, slots s, int first, int most, int k, int n_experts) {
    grid_wait();
    DYN_SMEM(int32_t, count);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = (int)blockDim.x >> 5, n = min(*n_rows - first, most) * k;
    const int each = (n + 32 * warps - 1) / (32 * warps) * 32, from = warp * each, end = min(n, from + each);
    int32_t *begin = count + warps * n_experts, *mine = count + warp * n_experts;
    for (int i = threadIdx.x; i < warps * n_experts; i += blockDim.x) count[i] = 0;
    __syncthreads();
    for (int i = from + lane; i < end; i += 32) {
        int e = route_of(routes, first + i / k, i % k, n_experts);
        if (e >= 0) atomicAdd(&mine[e], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < n_experts; e += blockDim.x) {
        int sum = 0;
#pragma unroll 8
        for (int w = 0; w < warps; w++) {
            int c = count[w * n_experts + e];
            count[w * n_experts + e] = sum;
            sum += c;
        }
        begin[e] = sum;
    }
    __syncthreads();
    for (int e0 = 0, before = 0; e0 < n_experts && warp == 0; e0 += 32) {
        int e = e0 + lane, c = e < n_experts ? begin[e] : 0, sum = before + warp_scan(c);
        if (e < n_experts) begin[e] = s.begin[e] = sum - c;
        if (e == n_experts - 1) s.begin[e + 1] = s.begin[e + 2] = sum;
        before = __shfl_sync(~0u, sum, 31);
    }
    __syncthreads();
    for (int i0 = from; i0 < end; i0 += 32) {
        int i = i0 + lane, e = i < end ? route_of(routes, first + i / k, i % k, n_experts) : -1, below = 0, all = 0;
        for (int j = 0; j < 32; j++) {
            int same = __shfl_sync(~0u, e, j) == e;
            all += same, below += same && j < lane;
        }
        int at = e >= 0 ? begin[e] + mine[e] + below : -1;
        if (e >= 0) s.row[at] = first + i / k;
        if (i < end) s.slot_of[i] = at;
        __syncwarp();
        if (e >= 0 && below == 0) mine[e] += all;
        __syncwarp();
    }
}

/* Computes: y (slots, hidden) = weight * x, where weights count so; up reads it there, and down writes over it. Grid: (rows * k, hidden /
 * 128), a thread a column. Twin: llm__slots_gather. */
static __global__ void __launch_bounds__(128)
    kernel_weigh(const int32_t *n_rows, rows_view x, rows_view routes, slots s, int first, int k, int hidden) {
    grid_wait();
    const int i = (int)blockIdx.x, row = first + i / k, c = (int)blockIdx.y * 128 + (int)threadIdx.x;
    const int slot = row < *n_rows ? s.slot_of[i] : -1;
    if (slot >= 0 && c < hidden) s.y[(int64_t)slot * hidden + c] = routes[row][k + i % k] * x[row][c];
}

static constexpr int COMBINE_CHOICES = 32; /* whose slots and weights a block has at once */

/* Computes: dst (+)= sum over the choices, in their order, of weight * y. Grid: (rows, hidden / 128), a thread a column. Twin:
 * llm__slots_combine. */
static __global__ void __launch_bounds__(128)
    kernel_combine(const int32_t *n_rows, rows_view dst, rows_view routes, slots s, int first, int k, int hidden, int add, int weigh) {
    grid_wait();
    SMEM(int32_t, slot, COMBINE_CHOICES);
    SMEM(float, weight, COMBINE_CHOICES);
    const int row = first + (int)blockIdx.x, c = (int)blockIdx.y * 128 + (int)threadIdx.x;
    if (row >= *n_rows) return;
    float v = add && c < hidden ? dst[row][c] : 0;
    for (int j0 = 0; j0 < k; j0 += COMBINE_CHOICES) {
        const int some = min(COMBINE_CHOICES, k - j0);
        __syncthreads();
        if ((int)threadIdx.x < some) {
            slot[threadIdx.x] = s.slot_of[(int)blockIdx.x * k + j0 + threadIdx.x];
            weight[threadIdx.x] = weigh ? routes[row][k + j0 + threadIdx.x] : 1;
        }
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < some && c < hidden; j++)
            if (slot[j] >= 0) v += weight[j] * s.y[(int64_t)slot[j] * hidden + c];
    }
    if (c < hidden) dst[row][c] = v;
}

/* Lays the slots of n rows out in the scratch memory; returns the bytes. narrow: bytes of a row of h in that form. */
static size_t slots_place(slots *s, uint8_t *at, int64_t n, int k, int n_experts, int64_t ff, int64_t hidden, size_t narrow) {
    size_t counts = ((size_t)(n_experts + 2) + (size_t)(2 * n * k)) * 4, floats = align256((size_t)(n * k * (ff + hidden)) * 4);
    counts = (counts + 255) & ~(size_t)255;
    s->begin = (int32_t *)at;
    s->row = s->begin + n_experts + 2;
    s->slot_of = s->row + n * k;
    s->h = (float *)(at + counts);
    s->y = s->h + n * k * ff;
    s->narrow = at + counts + floats;
    return counts + floats + (size_t)(n * k) * narrow;
}

/* See >>lora. */
static const llm_buffer *run_slots_lora(rank *r, const llm_lora_site *site, const llm_experts_op *op, const slots &s, const float *x,
                                        int64_t x_stride, int n_slots, int64_t n);

/* The rows of a product's x in the form that it takes, at `to`. */
static narrow_view slots_narrow(rank *r, const linear_args &a, narrow_form form, const int32_t *n_rows, int n, void *to) {
    const narrow_view x = narrow_at(form, a.subs, to, (int64_t)narrow_bytes(form, a.subs));
    linear_args all = a;
    all.n_rows = n_rows;
    launch<kernel_narrow>(r, {n}, 256, 0, all, x);
    return x;
}

/* As many rows a turn as the scratch memory has room for; in front of the slots are the rows of x, where their product takes them narrow.
 * Twin: llm__run_experts. */
static void run_experts(rank *r, const llm_experts_op *op) {
    int64_t hidden = op->down->rows / op->n_experts, ff = op->down->cols;
    int rows = r->ctx->padded.n_rows, turn = rows;
    const int warps = max_int(1, min_int(32, (40 << 10) / (4 * op->n_experts) - 1)), each = ceil_div((int64_t)rows * op->k, op->n_experts);
    narrow_form up_form = experts_form(r, op->gate_up, each);
    const narrow_form down_form = experts_form(r, op->down, each);
    const size_t h_bytes = down_form ? narrow_bytes(down_form, op->down->subs) : 0;
    /* bytes of x in that form: of all rows, or of a turn's slots */
    const auto before = [&] {
        return up_form ? align256((size_t)(op->weigh_input ? turn * op->k : rows) * narrow_bytes(up_form, op->gate_up->subs)) : 0;
    };
    slots s;
    if (!op->weigh_input && before() > r->scratch_bytes / 2) up_form = NARROW_NONE;
    if (op->up_lora || op->down_lora) turn = min_int(turn, op->low->rows / op->k > 1 ? op->low->rows / op->k : 1);
    const auto place = [&] { return before() + slots_place(&s, r->scratch + before(), turn, op->k, op->n_experts, ff, hidden, h_bytes); };
    while (place() > r->scratch_bytes && turn > 1) turn = (turn + 1) / 2;
    narrow_view x = {}, h = {};
    for (int first = 0, n; first < rows; first += n) {
        n = min_int(turn, rows - first);
        launch<kernel_slots>(r, {1}, 32 * warps, sizeof(int32_t) * (size_t)((warps + 1) * op->n_experts), device_rows(r, LLM_ROWS_TOKENS),
                             rows_of(op->routes), s, first, n, op->k, op->n_experts);
        const int32_t *n_slots = s.begin + op->n_experts + 1;
        if (op->weigh_input)
            launch<kernel_weigh>(r, {n * op->k, ceil_div(hidden, 128)}, 128, 0, device_rows(r, LLM_ROWS_TOKENS), rows_of(op->src),
                                 rows_of(op->routes), s, first, op->k, (int)hidden);
        const linear_args up = {.x = op->weigh_input ? s.y : op->src->data,
                                .x_stride = op->weigh_input ? hidden : op->src->stride,
                                .out = s.h,
                                .out_stride = ff,
                                .n_rows = n_slots,
                                .begin = s.begin,
                                .row_of = op->weigh_input ? NULL : s.row,
                                .act = op->act,
                                .scale = 1,
                                .limit = op->limit};
        const linear_args down = {.x = s.h,
                                  .x_stride = ff,
                                  .out = s.y,
                                  .out_stride = hidden,
                                  .n_rows = n_slots,
                                  .begin = s.begin,
                                  .act = LLM_ACT_NONE,
                                  .scale = 1,
                                  .limit = op->limit};
        const llm_buffer *plus = run_slots_lora(r, op->up_lora, op, s, up.x, up.x_stride, n * op->k, op->gate_up->rows / op->n_experts);
        const linear_args first_args = product_args(op->gate_up, op->gate_up_bias, plus, up);
        if (up_form && op->weigh_input) x = slots_narrow(r, first_args, up_form, n_slots, n * op->k, r->scratch);
        else if (up_form && !first) x = slots_narrow(r, first_args, up_form, device_rows(r, LLM_ROWS_TOKENS), rows, r->scratch);
        run_product(r, op->gate_up, first_args, n * op->k, x);
        plus = run_slots_lora(r, op->down_lora, op, s, NULL, 0, n * op->k, hidden);
        const linear_args second_args = product_args(op->down, op->down_bias, plus, down);
        if (down_form) h = slots_narrow(r, second_args, down_form, n_slots, n * op->k, s.narrow);
        run_product(r, op->down, second_args, n * op->k, h);
        launch<kernel_combine>(r, {n, ceil_div(hidden, 128)}, 128, 0, device_rows(r, LLM_ROWS_TOKENS), rows_of(op->dst),
                               rows_of(op->routes), s, first, op->k, (int)hidden, op->add, !op->weigh_input);
    }
}

/* ============================================================================
 * >>lora   Adapters: what each row's own low-rank matrices add to a layer.
 * ============================================================================
 * Where the model has W x, an adapter has W x + B A x, with A (r, in) and B (out, r) of a small r (Hu et al. 2021). The rows of one step
 * may have different adapters, so nothing is merged into W: two kernels put B A x into a buffer, and the linear operation behind them
 * adds it before its activation (linear_args.plus). It is batched as in Punica (Chen et al. 2023), by segments of neighbouring rows:
 *
 *     low (T, 3 width)   kernel_lora_down: a warp has one row of A and eight rows of x; A is read once for all rows of one adapter
 *     dst (T, n)         kernel_lora_up: a thread has one output column; -0 where the row's adapter has nothing for it
 *
 * The scheduler puts rows of one adapter side by side, so tiles with two adapters are rare: such a tile walks its rows in runs. Sums are
 * f32 in one order whatever stands beside a row, so that its bits depend on the row alone.
 *
 * A site has a table of its slots on the device, at an address that does not change: graphs are captured once with adapters and replayed
 * whoever is in the slots. Adapters come while steps run, from any thread: they are staged through a loader, which is a rank of its own
 * (its stream, staging memory and mistakes) on the same device, and become plain f32. A slot keeps its memory when it is emptied: the next
 * adapter of that size takes none. Of W's rows and columns that this rank has, the loader is given the rows of B and columns of A.
 *
 * Experts: the rows are slots, sorted by expert, and each has its token's adapter and its expert's part of A and B, which lie one expert
 * after the other. A run of slots is one of the same adapter and expert.
 *
 * Bytes, and what they cost: r (in + out) floats a layer, for r = 16 and 4096 x 4096 half a MiB beside W's 8 (Q4) to 32. In decoding a
 * layer with adapters reads that much more for each adapter of the batch, and launches two kernels more; rows without one read nothing.
 *
 *     rows of a tile of 8:     a a a a b b - -        slots of their sequences
 *     runs                     [ 0..3 ][4,5][6,7]     the first by A of a, the second by A of b, the third not at all
 *
 * Why -0: x + -0 is x for every x, -0 and infinities too, so a row without an adapter keeps its bits beside rows that have one. (0 would
 * turn -0 into 0.) */

/* llm_lora_op with pointers for the device. */
typedef struct lora_args {
    step_view s;
    const lora_slot *slots;
    const float *x;   /* NULL: of an embedding */
    float *low, *dst; /* pointers and strides by themselves: of views ptxas spills on sm_100 */
    int64_t x_stride, low_stride, dst_stride;
    const int32_t *n_rows;
    const llm_drawn *drawn;
    const int32_t *begin, *row_of;           /* of slots: see linear_args; NULL: rows of the step */
    int32_t n_groups, gather;                /* gather: x has the step's rows, not slots */
    int32_t n, width, out_rows, vocab_begin; /* width: columns of low that a part has */
    float scale;
} lora_args;

static constexpr int LORA_ROWS = 8, LORA_WARPS = 8, LORA_COLUMNS = 128;

/* The adapter's slot of a row; -1: none. */
DEVICE int lora_slot_of(const lora_args &a, int row) {
    return a.s.seq_lora[a.s.seq_of_row[a.row_of ? a.row_of[row] : a.out_rows ? a.s.out_rows[row] : row]];
}

/* The expert of a row, the last one that begins at or before it; 0 where there are none. */
DEVICE int lora_group_of(const lora_args &a, int row) {
    int low = 0;
    for (int high = a.n_groups; high - low > 1;) {
        int mid = (low + high) / 2;
        if (a.begin[mid] <= row) low = mid;
        else high = mid;
    }
    return low;
}

/* Of rows [row, end): the end of those that have the first one's slot and expert. */
DEVICE int lora_run(const lora_args &a, int row, int end) {
    int slot = lora_slot_of(a, row), group = lora_group_of(a, row);
    for (row++; row < end && lora_slot_of(a, row) == slot && lora_group_of(a, row) == group;) row++;
    return row;
}

/* Computes: low (T, 3 width), columns [i width, i width + r_i) = x A_i^T; of an embedding low = the token's row of A, zeros where another
 * rank has it. Grid: (tiles of 8 rows, columns of low / 8), 8 warps of a column each. Reads: A once a tile and adapter, x from L2.
 * Twin: llm__run_lora_down. */
static __global__ void __launch_bounds__(32 * LORA_WARPS) kernel_lora_down(lora_args a) {
    grid_wait();
    int column = (int)blockIdx.y * LORA_WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31, i = column / a.width, k = column % a.width;
    int first = (int)blockIdx.x * LORA_ROWS, end = min(first + LORA_ROWS, *a.n_rows);
    for (int row = first, next; i < LLM_LORA_PARTS && row < end; row = next) {
        int slot = lora_slot_of(a, row);
        next = lora_run(a, row, end);
        if (slot < 0 || i >= a.slots[slot].n || k >= a.slots[slot].part[i].r) continue;
        const lora_part &p = a.slots[slot].part[i];
        if (!a.x) {
            for (int t = row + lane; t < next; t += 32) {
                int64_t token = (int64_t)row_token(a.s, a.drawn, t) - a.vocab_begin;
                a.low[t * a.low_stride + column] = token >= 0 && token < p.vocab ? p.a[token * p.r + k] : 0;
            }
            continue;
        }
        const float *w = p.a + ((int64_t)lora_group_of(a, row) * p.r + k) * p.in, *x[LORA_ROWS];
        float sum[LORA_ROWS] = {};
        UNROLL(t, LORA_ROWS) x[t] = a.x + (int64_t)(row + t < next && a.gather ? a.row_of[row + t] : row + t) * a.x_stride;
        for (int c = lane; c < p.in; c += 32) {
            float v = w[c];
            UNROLL(t, LORA_ROWS)
                if (row + t < next) sum[t] += v * x[t][c];
        }
        UNROLL(t, LORA_ROWS) {
            float all = warp_sum(sum[t]);
            if (lane == t && row + t < next) a.low[(row + t) * a.low_stride + column] = all;
        }
    }
}

/* Computes: dst (T, n), columns [row_i, row_i + n_i) = scale * low B_i^T, all else -0, for v + -0 is v to the bit; of an embedding dst +=
 * instead of dst =. Grid: (tiles of 8 rows, n / 128), a thread one column. Twin: llm__run_lora_up. */
static __global__ void __launch_bounds__(LORA_COLUMNS) kernel_lora_up(lora_args a) {
    grid_wait();
    int column = (int)blockIdx.y * LORA_COLUMNS + threadIdx.x, first = (int)blockIdx.x * LORA_ROWS;
    int end = min(first + LORA_ROWS, *a.n_rows);
    for (int row = first; column < a.n && row < end; row++) {
        int slot = lora_slot_of(a, row), i = 0, parts = slot < 0 ? 0 : a.slots[slot].n;
        const lora_part *p = parts ? a.slots[slot].part : NULL;
        float *to = a.dst + row * a.dst_stride + column, sum = 0;
        while (i < parts && (column < p[i].row || column >= p[i].row + p[i].n)) i++;
        if (i < parts) {
            const float *b = p[i].b + ((int64_t)lora_group_of(a, row) * p[i].n + column - p[i].row) * p[i].r,
                        *low = a.low + row * a.low_stride + i * a.width;
            for (int k = 0; k < p[i].r; k++) sum += b[k] * low[k];
            sum *= a.scale;
            *to = a.x ? sum : *to + sum;
        } else if (a.x) *to = -0.0f;
    }
}

/* Both halves: the whole of low must be there before it is multiplied. rows: at most; a has all that is not set here. */
static void run_lora_pair(rank *r, const llm_lora_site *site, const llm_buffer *low, const llm_buffer *dst, lora_args a, int rows) {
    const int tiles = ceil_div(rows, LORA_ROWS);
    a.s = r->view;
    a.slots = site->slots;
    a.low = low->data, a.low_stride = low->stride;
    a.dst = dst->data, a.dst_stride = dst->stride;
    a.drawn = r->drawn;
    a.width = (int32_t)(low->cols / LLM_LORA_PARTS);
    launch<kernel_lora_down>(r, {tiles, ceil_div(LLM_LORA_PARTS * a.width, LORA_WARPS)}, 32 * LORA_WARPS, 0, a);
    launch<kernel_lora_up>(r, {tiles, ceil_div(a.n, LORA_COLUMNS)}, LORA_COLUMNS, 0, a);
}

static void run_lora(rank *r, const llm_lora_op *op) {
    lora_args a;
    memset(&a, 0, sizeof a);
    if (op->src) a.x = op->src->data, a.x_stride = op->src->stride;
    a.n_rows = device_rows(r, op->rows);
    a.n = op->n;
    a.out_rows = op->rows == LLM_ROWS_OUT;
    a.vocab_begin = op->vocab_begin;
    a.scale = op->scale != 0 ? op->scale : 1;
    run_lora_pair(r, op->site, op->low, op->dst, a, padded_rows(r, op->rows));
}

/* What adapters add to n outputs of one layer of the experts, for all slots: the buffer with it, or NULL without a site. x: of the step's
 * rows, or weighed, of the slots; NULL: the slots' h. Twin: llm__slots_run. */
static const llm_buffer *run_slots_lora(rank *r, const llm_lora_site *site, const llm_experts_op *op, const slots &s, const float *x,
                                        int64_t x_stride, int n_slots, int64_t n) {
    lora_args a;
    if (!site) return NULL;
    memset(&a, 0, sizeof a);
    a.gather = x != NULL && !op->weigh_input;
    a.x = x ? x : s.h, a.x_stride = x ? x_stride : op->down->cols;
    a.begin = s.begin;
    a.row_of = s.row;
    a.n_groups = op->n_experts;
    a.n_rows = s.begin + op->n_experts + 1;
    a.n = (int32_t)n;
    a.scale = 1;
    run_lora_pair(r, site, op->low, op->plus, a, n_slots);
    return op->plus;
}

/* The loaders, at the first site: a stream and staging memory each, taken before the KV cache is sized. */
static llm_result lora_loaders(llm_backend_ctx *ctx) {
    if (ctx->loaders) return LLM_OK;
    ctx->loaders = (rank *)calloc((size_t)ctx->n_ranks, sizeof *ctx->loaders);
    if (!ctx->loaders) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    for (int i = 0; i < ctx->n_ranks; i++) {
        rank *l = &ctx->loaders[i];
        l->ctx = ctx;
        l->index = i;
        l->device = ctx->ranks[i].device;
        l->stage_bytes = 8 << 20;
        select_device(l);
        cudaMemPool_t pool;
        uint64_t all = UINT64_MAX;
        rank_ok(l, cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), "stream");
        if (rank_ok(l, cudaDeviceGetDefaultMemPool(&pool, l->device), "memory"))
            rank_ok(l, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), "memory");
        stage_next(l);
        if (l->failed) return fail_with(&ctx->cfg, l->failed, "%s", l->why);
    }
    return LLM_OK;
}

/* An empty site: n_slots slots that add nothing. Twin: llm__cpu_lora_site. */
static llm_result cuda_lora_site(llm_backend_ctx *ctx, int index, int n_slots, llm_lora_site **out) {
    *out = NULL;
    if (index < 0 || index >= ctx->n_ranks || n_slots < 1)
        return fail_with(&ctx->cfg, LLM_ERR_ARG, "lora_site: rank %d, %d slots", index, n_slots);
    llm_result result = lora_loaders(ctx);
    if (result) return result;
    rank *l = &ctx->loaders[index];
    llm_lora_site *site = list_new(&ctx->sites, &ctx->n_sites, &ctx->site_cap);
    if (site) site->held = (llm_lora_site::lora_held *)calloc((size_t)n_slots, sizeof *site->held);
    if (!site || !site->held) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    select_device(l);
    site->rank = index;
    site->n_slots = n_slots;
    site->slots = (lora_slot *)device_memory(l, (size_t)n_slots * sizeof *site->slots, "adapters");
    rank_ok(l, cudaStreamSynchronize(l->stream), "adapters");
    if (l->failed) return fail_with(&ctx->cfg, l->failed, "%s", l->why);
    *out = site;
    return LLM_OK;
}

/* Stages and widens one matrix of an adapter to `to`, (rows, cols) of f32. */
static void lora_load(rank *l, const llm_weight_desc *d, float *to) {
    llm_weight w;
    memset(&w, 0, sizeof w);
    w.role = d->role;
    w.rows = d->rows;
    w.cols = d->cols;
    w.n_groups = 1;
    w.f32 = to;
    for (int64_t i = 0, row = 0; i < d->n_segments && !l->failed; row += d->segments[i++].n_rows)
        load_segment(l, &w, &d->segments[i], row, 0, 0);
}

/* Memory of an adapter, NULL and a noted error if there is none; and back. In the order of the loader's stream, from a pool that keeps what
 * it has got: cudaMalloc and cudaFree may wait for all that a device does, and hold up every launch meanwhile, which ranks that wait for
 * each other in kernels would never end. */
static uint8_t *adapter_memory(rank *l, size_t bytes) {
    void *p = NULL;
    if (l->failed || !memory_ok(l, cudaMallocAsync(&p, bytes, l->stream), bytes, "an adapter")) return NULL;
    l->bytes += (int64_t)bytes;
    return (uint8_t *)p;
}
static void adapter_free(rank *l, uint8_t *p, size_t bytes) {
    if (!p) return;
    rank_ok(l, cudaFreeAsync(p, l->stream), "an adapter");
    l->bytes -= (int64_t)bytes;
}

/* Fills or empties a slot, in memory that is taken anew only if what the slot had is too small. The stream is waited for: what the segments
 * point to may go, and the next step finds the slot as it is now. No step that runs has rows of the slot. */
static void lora_fill(rank *l, llm_lora_site *site, int slot, const llm_lora_part *parts, int n) {
    auto *held = &site->held[slot];
    size_t at = 0, bytes = 0;
    lora_slot s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < n; i++)
        bytes += align16((size_t)(parts[i].a->rows * parts[i].a->cols) * 4) + align16((size_t)(parts[i].b->rows * parts[i].b->cols) * 4);
    if (bytes > held->bytes) {
        adapter_free(l, held->memory, held->bytes);
        held->memory = adapter_memory(l, bytes);
        held->bytes = held->memory ? bytes : 0;
    }
    for (int i = 0; i < n && !l->failed; i++) {
        const llm_weight_desc *d[2] = {parts[i].a, parts[i].b};
        float *to[2];
        for (int k = 0; k < 2; k++) {
            to[k] = (float *)(held->memory + at);
            at += align16((size_t)(d[k]->rows * d[k]->cols) * 4);
            lora_load(l, d[k], to[k]);
        }
        int64_t experts = d[1]->role == LLM_ROLE_EXPERTS ? d[1]->n_experts : 1;
        int64_t high = d[1]->rows / experts, wide = d[1]->cols;
        int across = d[1]->role == LLM_ROLE_MLA_UP;
        /* clang-format off */
        lora_part p = {to[0], to[1], (int32_t)(across ? high : wide), (int32_t)d[0]->cols, (int32_t)parts[i].row,
                       (int32_t)(across ? wide : high), (int32_t)d[0]->rows};
        /* clang-format on */
        s.part[s.n++] = p;
    }
    if (!l->failed) rank_ok(l, cudaMemcpyAsync(site->slots + slot, &s, sizeof s, cudaMemcpyHostToDevice, l->stream), "an adapter");
    rank_ok(l, cudaStreamSynchronize(l->stream), "an adapter");
}

/* On error the slot is empty, and nothing else has changed. Twin: llm__cpu_lora_put. */
static llm_result cuda_lora_put(llm_backend_ctx *ctx, int index, llm_lora_site *site, int slot, const llm_lora_part *parts, int n) {
    llm_result result = LLM_OK;
    rank *l = &ctx->loaders[index];
    for (int i = 0; i < n && !result; i++) {
        result = weight_check(&ctx->cfg, parts[i].a);
        if (!result) result = weight_check(&ctx->cfg, parts[i].b);
    }
    pthread_mutex_lock(&ctx->put);
    l->failed = LLM_OK;
    select_device(l);
    lora_fill(l, site, slot, NULL, 0);
    if (!result) lora_fill(l, site, slot, parts, n);
    if (l->failed) result = fail_with(&ctx->cfg, l->failed, "%s", l->why);
    pthread_mutex_unlock(&ctx->put);
    return result;
}

/* ============================================================================
 * >>sampler   The next token, chosen where the logits are.
 * ============================================================================
 * Says what llm_sample says: the same random number, the same weights (the polynomial of llm__exp_neg, operation by operation), candidates
 * cut by min-p, top-k and top-p, drawn in order of id. No row is sorted: the k-th value and the end of top-p come from a radix select over
 * the bits of the weights, whose histograms are integers (a weight times 2^45), so that they do not depend on the order in which threads
 * add. Sums go in another order than on the host, which can differ in the last of 53 bits, of cut rows in the last of 45; a draw changes
 * when its random number falls into that gap. Log-probabilities are those of the host but for a rounding of the weights' f32. */

/* A row is cut into parts of at most 8,192 tokens, by the vocabulary alone, so that a row has the same bits in any batch. A block copies
 * its part into shared memory, bends it, and notes its maximum, the first place of it, and sums of weights by its own maximum, which are
 * brought to the row's by kernel_draw, a block a row: with that greedy rows are done.
 *
 * top-k up to 128 needs no second pass: two threads' values are a group, and if 40 groups have a maximum of 3.2 or more, then 40 tokens
 * have: what is less than 3.2 is not among the 40 first. Of 8,192 values some 45 are left, which the block writes down; some 800 of 19
 * parts meet in kernel_draw's shared memory. It finds the k-th there, the end of top-p, sorts by id the few that stay, and draws.
 *
 * All else reads the row once more: temperature alone sums weights and then walks; of top-p and min-p alone what is too small is left out,
 * as on the host, and if at most 3,072 are left they go the way above. Only flat rows, and a large k, are selected from memory.
 *
 * Radix select, for instance the 40th largest of 152,000 weights: as positive floats order as their bits do, the first pass counts them by
 * their upper 11 bits, and a scan from the largest bin down says where 40 are passed: in bin 507, say, whose larger ones are 12. The
 * second pass counts those of bin 507 by the next 11 bits, and looks for the 28th, the third by the last 10: then all bits are known. For
 * top-p the bins have sums of weights instead of counts.
 *
 * The draw itself is one walk over ids, as on the host: a warp has a range of them and its sum, the ranges' sums say in which one u times
 * the whole falls, and that one is cut into ranges again. */

/* What bends a row (block_bend) comes in with the step: a bit a token of a grammar's mask, and a list of changes, (id, bias) or (id, how
 * often the answer has it). Of a sequence that runs one step ahead the host does not know the latest token when it writes the list; but
 * that token is the row's own input, which the device knows: so its count is one more than the list says.
 *
 *     step    host knows        list for the draw of this step        the row's token
 *     7       a b a             a: 2, b: 1                            a, known
 *     8       a b a             a: 2, b: 1                            drawn in step 7, say b: counts as b: 2
 *
 * Masks cannot be made ahead: a sequence with a grammar waits for each of its tokens, and is drawn here if its mask is made already. Else
 * the host makes it while the device computes, and draws by itself from the row, which is copied to it then. */

static constexpr int DRAW_THREADS = 512, DRAW_WARPS = DRAW_THREADS / 32, DRAW_PART = 8192, DRAW_BINS = 2048;
static constexpr int DRAW_TOP = 128, DRAW_KEPT = 256, DRAW_FEW = 3072,
                     DRAW_SORTED = 512;      /* largest k of one pass; of a part; of a row; of its end */
static const double MASS = 35184372088832.0; /* 2^45: 2^18 weights of 1 stay below 2^64 */

/* What a part says of itself: sums of exp(x - max) of raw logits, and of exp((x - max) * scale) of bent ones; candidates, -1: too many of
 * them; in the row there are k values of `least` or more. */
typedef struct draw_part {
    double raw_sum, sum;
    float raw_max, max, least;
    int32_t bad, first, n;
    float kept[DRAW_KEPT];
    int32_t id[DRAW_KEPT];
} draw_part;

/* What a block that draws shares: its part, later candidates and a histogram of sums in two halves, or candidates that stay. */
typedef struct draw_shared {
    union {
        float part[DRAW_PART];
        struct {
            float w[DRAW_FEW];
            int32_t id[DRAW_FEW];
            uint32_t low[DRAW_BINS], high[DRAW_BINS];
        };
    };
    union {
        float group[DRAW_THREADS / 2];
        unsigned long long scan[DRAW_WARPS];
    };
    unsigned long long all[DRAW_WARPS], above;
    double log_sum, sum; /* of the row, for the end, as is the weight of what was drawn */
    float weight;
    int32_t equal[DRAW_WARPS], found, n;
    uint32_t prefix;
} draw_shared;

typedef struct draw_args {
    const float *logits; /* (out, n) */
    float *weights;      /* (out, n) scratch: bent rows, then weights, of rows that are read twice */
    draw_part *parts;    /* (out, n_parts) */
    llm_drawn *drawn;    /* (out, 2) */
    int32_t n, n_parts;
} draw_args;

static int draw_parts(int64_t vocab) { return ceil_div(vocab, DRAW_PART); }

/* SplitMix64's finaliser (Steele et al. 2014). */
static __device__ uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* A number in [0, 1) of a request's seed and a token's position: no state, so a draw is the same in any batch. Twin: llm__uniform. */
static __device__ double uniform(uint64_t seed, uint64_t position) {
    uint64_t key = mix(seed + 0x9E3779B97F4A7C15u);
    return (double)(mix(key ^ mix(position * 0xD1342543DE82EF95u + 0x632BE59BD9B4E019u)) >> 11) * (1.0 / 9007199254740992.0);
}

/* Twin: llm__exp_neg, with the same roundings: no product is fused with a sum. */
DEVICE float exp_neg(float x) {
    float c = x < -87.0f ? -87.0f : x;
    int n = (int)__fsub_rn(__fmul_rn(c, 1.44269504f), 0.5f);
    float k = (float)n, r = __fadd_rn(__fsub_rn(c, __fmul_rn(k, 0.693359375f)), __fmul_rn(k, 2.12194440e-4f));
    float p = __fadd_rn(__fmul_rn(1.9875691500e-4f, r), 1.3981999507e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 8.3334519073e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 4.1665795894e-2f);
    p = __fadd_rn(__fmul_rn(p, r), 1.6666665459e-1f);
    p = __fadd_rn(__fmul_rn(p, r), 5.0000001201e-1f);
    p = __fmul_rn(__fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(p, r), r), r), 1.0f), __uint_as_float((uint32_t)(n + 127) << 23));
    return x < -87.0f ? 0 : p;
}

/* Twin: weigh of llm__kernels. */
DEVICE float weight_of(float x, float max, float scale) { return exp_neg(__fmul_rn(__fsub_rn(x, max), scale)); }

/* The sum over all threads of a block in a fixed order, for all of them. */
template <class T> static __device__ T draw_sum(T v, draw_shared *s) {
    T *all = (T *)s->all;
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) all[threadIdx.x >> 5] = v;
    __syncthreads();
    v = all[threadIdx.x % DRAW_WARPS];
    for (int o = DRAW_WARPS / 2; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

static __device__ float draw_max(float v, draw_shared *s) {
    float *all = (float *)s->all;
    v = warp_max(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) all[threadIdx.x >> 5] = v;
    __syncthreads();
    return warp_max(all[threadIdx.x % DRAW_WARPS]);
}

/* Values i to i + 3 of n, `none` where there is no more. whole: n is a multiple of 4, as i is, and w is aligned. */
DEVICE float4 four_of(const float *w, int i, int n, int whole, float none) {
    if (whole) return i < n ? *(const float4 *)(w + i) : make_float4(none, none, none, none);
    return make_float4(i < n ? w[i] : none, i + 1 < n ? w[i + 1] : none, i + 2 < n ? w[i + 2] : none, i + 3 < n ? w[i + 3] : none);
}

DEVICE unsigned long long mass_of(float w) { return (unsigned long long)((double)w * MASS); }

/* The sum of the weights of at least `least`. Whole numbers: the order does not matter. A block. */
static __device__ double block_mass(const float *w, int n, int whole, float least, draw_shared *s) {
    unsigned long long sum = 0;
    for (int i = 4 * (int)threadIdx.x; i < n; i += 4 * DRAW_THREADS) {
        const float4 f = four_of(w, i, n, whole, -1);
        const float v[4] = {f.x, f.y, f.z, f.w};
        for (int k = 0; k < 4; k++) sum += v[k] >= least ? mass_of(v[k]) : 0;
    }
    return (double)draw_sum(sum, s) / MASS;
}

/* Finds the bin, from the largest down, in which `sum` and the bins' cross `target`: s->prefix gets its bits behind those that are there,
 * s->above the sum of what is larger. If none does it is bin 0. A thread has four bins. */
static __device__ void block_cross(int width, unsigned long long sum, double unit, double target, uint32_t prefix, draw_shared *s) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, top = (1 << width) - 1 - 4 * (int)threadIdx.x;
    unsigned long long mine[4], total = 0;
    for (int k = 0; k < 4; k++) {
        mine[k] = top - k >= 0 ? (unsigned long long)s->high[top - k] << 32 | s->low[top - k] : 0;
        total += mine[k];
    }
    unsigned long long before = warp_scan(total);
    if (lane == 31) s->scan[warp] = before;
    if (top == 3) s->prefix = prefix << width; /* the thread of bin 0 */
    __syncthreads();
    before += sum - total;
    for (int k = 0; k < warp; k++) before += s->scan[k];
    if (top == 3) s->above = before + total - mine[3];
    __syncthreads();
    for (int k = 0; k < 4 && top - k > 0; k++) {
        if ((double)before * unit < target && (double)(before + mine[k]) * unit >= target) {
            s->prefix = prefix << width | (uint32_t)(top - k);
            s->above = before;
        }
        before += mine[k];
    }
    __syncthreads();
}

/* The value at which a descending sum of weights (by_mass) or of ones reaches `target`, among those of at least `least`; *above: the sum of
 * what is larger. Three histograms of 11, 11 and 10 bits. A block. Twin: llm__select. */
static __device__ float block_select(const float *w, int n, int whole, float least, int by_mass, double target, draw_shared *s,
                                     double *above) {
    uint32_t prefix = 0;
    const double unit = by_mass ? 1 / MASS : 1;
    unsigned long long sum = 0;
    for (int level = 0; level < 3; level++) {
        const int low = level == 0 ? 21 : level == 1 ? 10 : 0, width = level == 2 ? 10 : 11;
        for (int i = threadIdx.x; i < DRAW_BINS; i += DRAW_THREADS) s->low[i] = s->high[i] = 0;
        __syncthreads();
        for (int i = 4 * (int)threadIdx.x; i < n; i += 4 * DRAW_THREADS) {
            const float4 f = four_of(w, i, n, whole, -1);
            const float v[4] = {f.x, f.y, f.z, f.w};
            for (int k = 0; k < 4; k++) {
                const uint32_t bits = __float_as_uint(v[k]), bin = bits >> low & ((1u << width) - 1);
                if (v[k] < least || (level && bits >> (low + width) != prefix)) continue;
                const unsigned long long m = by_mass ? mass_of(v[k]) : 1;
                const uint32_t carry = atomicAdd(&s->low[bin], (uint32_t)m) > ~(uint32_t)m, high = (uint32_t)(m >> 32) + carry;
                if (high) atomicAdd(&s->high[bin], high);
            }
        }
        __syncthreads();
        block_cross(width, sum, unit, target, prefix, s);
        prefix = s->prefix;
        sum = s->above;
        __syncthreads();
    }
    *above = (double)sum * unit;
    return __uint_as_float(prefix);
}

/* Draws among the weights above `least` and the first `ties` equal to it. Each warp sums a range of ids and counts equals in it; the range
 * into which u falls is cut again, until few are left. Where rounding carries it past the end: the last with any weight. A block. Twin:
 * llm__draw. */
static __device__ int block_draw(const float *w, int n, int whole, float least, double ties, double u, draw_shared *s) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double *sums = (double *)s->all, sum = 0, goal = 0;
    int from = 0, to = n, found = 0;
    for (int level = 0; level == 0 || to - from > 64; level++) {
        const int each = (ceil_div(to - from, DRAW_WARPS) + 3) & ~3, begin = min(to, from + warp * each), end = min(to, begin + each);
        double more = 0;
        int equal = 0;
#pragma unroll 4
        for (int i = begin + 4 * lane; i < end; i += 128) {
            const float4 f = four_of(w, i, end, whole, -1);
            const float v[4] = {f.x, f.y, f.z, f.w};
            for (int k = 0; k < 4; k++) {
                more += v[k] > least ? (double)v[k] : 0;
                equal += v[k] == least;
            }
        }
        for (int o = 16; o; o >>= 1) more += __shfl_xor_sync(~0u, more, o), equal += __shfl_xor_sync(~0u, equal, o);
        __syncthreads();
        if (lane == 0) sums[warp] = more, s->equal[warp] = equal;
        __syncthreads();
        double at = sum, left = ties, total = 0, rest = ties;
        int chosen = 0;
        for (int k = 0; k < DRAW_WARPS && level == 0; k++) {
            total += sums[k] + fmin((double)s->equal[k], fmax(0.0, rest)) * (double)least;
            rest -= s->equal[k];
        }
        if (level == 0) goal = u * total;
        for (int k = 0; k < DRAW_WARPS; k++) {
            const double part = sums[k] + fmin((double)s->equal[k], fmax(0.0, left)) * (double)least;
            if (part > 0) {
                chosen = k, sum = at, ties = left;
                if (at + part > goal) break;
            }
            at += part;
            left -= s->equal[k];
        }
        from = from + chosen * each;
        to = min(to, from + each);
    }
    for (int i = found = from; i < to; i++) {
        if (w[i] < least || (w[i] == least && ties < 1)) continue;
        ties -= w[i] == least;
        if (w[i] > 0) found = i;
        sum += (double)w[i];
        if (sum > goal) break;
    }
    return found;
}

/* A draw among n weights of at least *least, of which there are `count` with `sum` in the row; those that are not here can matter only to
 * the sum. Cuts them by top-k and top-p: *least and *ties say what stays. Twin: the second half of llm__pick. */
static __device__ void block_cut(const float *w, int n, int whole, const draw &d, int count, double sum, float *least, double *ties,
                                 draw_shared *s) {
    double above;
    *ties = (double)n;
    if (d.top_k > 0 && d.top_k < count) *least = block_select(w, n, whole, *least, 0, d.top_k, s, &above); /* all ties of the k-th stay */
    if (d.top_p <= 0 || d.top_p >= 1) return;
    if (d.top_k > 0) sum = block_mass(w, n, whole, *least, s);
    const double target = (double)d.top_p * sum; /* a token stays if what is before it sums to less */
    *least = block_select(w, n, whole, *least, 1, target, s, &above);
    *ties = ceil(fmax(1.0, (target - above) / (double)*least));
}

/* The draw among the s->n candidates in s->w and s->id, whose order does not matter: what stays is sorted by id. -1: too many stay. */
static __device__ int few_draw(const draw &d, float least, double sum, draw_shared *s) {
    const int n = s->n, x = threadIdx.x;
    float *stays = (float *)s->low;
    int32_t *ids = (int32_t *)s->high;
    double ties;
    block_cut(s->w, n, 0, d, n, sum, &least, &ties, s);
    if (x == 0) s->found = 0;
    __syncthreads();
    for (int i = x; i < n; i += DRAW_THREADS) {
        if (s->w[i] < least) continue;
        const int at = atomicAdd(&s->found, 1);
        if (at < DRAW_SORTED) stays[at] = s->w[i], ids[at] = s->id[i];
    }
    __syncthreads();
    const int m = s->found;
    __syncthreads();
    if (m > DRAW_SORTED) return -1;
    for (int i = x, rank = 0; i < m; i += DRAW_THREADS, rank = 0) {
        for (int k = 0; k < m; k++) rank += ids[k] < ids[i];
        s->w[rank] = stays[i], s->id[rank] = ids[i];
    }
    __syncthreads();
    const int at = block_draw(s->w, m, 0, least, ties, uniform(d.seed, (uint64_t)d.position), s);
    if (x == 0) s->weight = s->w[at];
    return s->id[at];
}

/* min-p, top-k, top-p and the draw from the whole row x, bent already. Twin: llm__pick. */
static __device__ int block_pick(const float *x, float *w, int n, float max, float scale, const draw &d, draw_shared *s) {
    const int whole = !(n & 3), top_p = d.top_p > 0 && d.top_p<1, any = d.min_p> 0 || d.top_k > 0 || top_p;
    float least = !any ? 0 : d.min_p > 1e-30f ? d.min_p : 1e-30f;
    const float keep = top_p && d.top_k <= 0 ? fmaxf(least, (1 - d.top_p) / (float)n) : least; /* n of these are less than top-p cuts off */
    unsigned long long sum = 0;
    int count = 0, id = -1;
    if (threadIdx.x == 0) s->n = 0;
    __syncthreads();
    for (int i = 4 * (int)threadIdx.x; i < n; i += 16 * DRAW_THREADS) {
        float4 f[4];
        UNROLL(k, 4) f[k] = four_of(x, i + 4 * k * DRAW_THREADS, n, whole, -INFINITY); /* in flight together: w may be x */
        UNROLL(j, 4) {
            const int id = i + 4 * j * DRAW_THREADS;
            float v[4] = {f[j].x, f[j].y, f[j].z, f[j].w};
            int kept = 0;
            for (int k = 0; k < 4; k++) v[k] = id + k < n ? weight_of(v[k], max, scale) : -1;
            if (whole && id < n) *(float4 *)(w + id) = make_float4(v[0], v[1], v[2], v[3]);
            for (int k = 0; k < 4; k++) {
                if (!whole && id + k < n) w[id + k] = v[k];
                if (!any || v[k] < least) continue;
                count++;
                sum += mass_of(v[k]);
                kept += v[k] >= keep;
            }
            int at = kept ? atomicAdd(&s->n, kept) : 0;
            for (int k = 0; k < 4 && kept; k++)
                if (v[k] >= keep) {
                    if (at < DRAW_FEW) s->w[at] = v[k], s->id[at] = id + k;
                    at++;
                }
        }
    }
    double ties = (double)n;
    const double mass = (double)draw_sum(sum, s) / MASS;
    count = draw_sum(count, s);
    if (any && s->n <= DRAW_FEW) id = few_draw(d, least, mass, s);
    if (id >= 0) return id;
    __syncthreads();
    if (any) block_cut(w, n, whole, d, count, mass, &least, &ties, s);
    id = block_draw(w, n, whole, least, ties, uniform(d.seed, (uint64_t)d.position), s);
    if (threadIdx.x == 0) s->weight = w[id];
    return id;
}

/* Penalties of one token of which the answer has `count`. Twin: llm__penalise. */
static __device__ float penalise(const draw &d, float x, int count) {
    float v = x > 0 ? x / d.repetition : __fmul_rn(x, d.repetition);
    v = __fsub_rn(v, __fmul_rn(d.frequency, (float)count));
    return count > 0 ? __fsub_rn(v, d.presence) : v;
}

/* The rules of tokens begin ... end - 1 of a row of n, in x: what a mask forbids becomes -infinity, then biases, then penalties. `last`:
 * the row's own token if the device drew it, which the host's list cannot have yet, else -1. Ids of `used` differ, those of `bias` need
 * not: the first of equal ones adds all of them, in order. A block. Twin: llm__rules_apply. */
static __device__ void block_bend(const step_view &s, const draw &d, float *x, int begin, int end, int n, int last) {
    const uint32_t *mask = s.masks + (int64_t)max(d.mask, 0) * ((n + 31) / 32);
    const change *bias = s.changes + d.bias, *used = s.changes + d.used;
    int known = 0;
    for (int i = begin + (int)threadIdx.x; i < end && d.mask >= 0; i += DRAW_THREADS)
        if (!(mask[i >> 5] >> (i & 31) & 1)) x[i - begin] = -INFINITY;
    __syncthreads();
    for (int i = threadIdx.x; i < d.n_bias; i += DRAW_THREADS) {
        int id = bias[i].id, first = id >= begin && id < end;
        for (int k = 0; k < i && first; k++) first = bias[k].id != id;
        for (int k = i; k < d.n_bias && first; k++)
            if (bias[k].id == id) x[id - begin] = __fadd_rn(x[id - begin], fminf(100.0f, fmaxf(-100.0f, bias[k].bias)));
    }
    __syncthreads();
    if (!d.n_used) return;
    for (int i = threadIdx.x; i < d.n_used; i += DRAW_THREADS) {
        int id = used[i].id;
        known |= id == last;
        if (id >= begin && id < end) x[id - begin] = penalise(d, x[id - begin], used[i].count + (id == last));
    }
    known = __syncthreads_or(known);
    if (threadIdx.x == 0 && !known && last >= begin && last < end) x[last - begin] = penalise(d, x[last - begin], 1);
    __syncthreads();
}

/* A part's maximum, and with it the sum of exp((x - maximum) * scale): 0 where there is nothing finite. A block. */
static __device__ double part_weigh(const float *v, float scale, float *max, draw_shared *s) {
    float top = -INFINITY;
    double sum = 0;
    UNROLL(k, DRAW_PART / DRAW_THREADS) top = v[k] > top ? v[k] : top;
    *max = top = draw_max(top, s);
    if (top < -3.4028234e38f || top > 3.4028234e38f) return 0;
    UNROLL(k, DRAW_PART / DRAW_THREADS) sum += (double)weight_of(v[k], top, scale);
    return draw_sum(sum, s);
}

/* Notes the part's values that can be among the row's k largest, for k to DRAW_TOP. At least k groups have a maximum of `least` or more.
 * What is a little less may get the same weight by rounding: by its last bit of (x - max) * scale, which is at most 2^-17 where the weight
 * is not 0. A block. */
static __device__ void part_keep(const float *v, int begin, int k_most, float temperature, draw_part *out, draw_shared *s) {
    const int x = threadIdx.x, groups = DRAW_THREADS / 2;
    float top = -INFINITY;
    int as_large = 0;
    UNROLL(k, DRAW_PART / DRAW_THREADS) top = fmaxf(top, v[k]);
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    if (!(x & 1)) s->group[x >> 1] = top;
    if (x == 0) s->n = 0;
    __syncthreads();
#pragma unroll 4
    for (int i = (x & 1) * 4; i < groups; i += 8) {
        const float4 f = *(const float4 *)(s->group + i);
        as_large += (f.x >= top) + (f.y >= top) + (f.z >= top) + (f.w >= top);
    }
    as_large += __shfl_xor_sync(~0u, as_large, 1);
    const float least = draw_max(as_large >= k_most ? top : -INFINITY, s), low = least - temperature * 3.0517578e-5f;
    UNROLL(k, DRAW_PART / DRAW_THREADS)
        if (v[k] >= low && v[k] > -INFINITY) {
            const int at = atomicAdd(&s->n, 1);
            if (at < DRAW_KEPT) out->kept[at] = v[k], out->id[at] = begin + 4 * (x + k / 4 * DRAW_THREADS) + k % 4;
        }
    __syncthreads();
    if (x == 0) out->least = least, out->n = s->n <= DRAW_KEPT ? s->n : -1;
}

/* A thread's values of the part in shared memory, which ends with whole fours: four neighbours, and others 2,048 further. */
DEVICE void part_values(const float *part, int n, float *v) {
#pragma unroll
    for (int k = 0; k < DRAW_PART / DRAW_THREADS; k += 4) {
        const float4 f = four_of(part, 4 * (int)threadIdx.x + k * DRAW_THREADS, n, 1, -INFINITY);
        v[k] = f.x, v[k + 1] = f.y, v[k + 2] = f.z, v[k + 3] = f.w;
    }
}

/* A block's part of a row, to *out; of bent rows that are not greedy the values to `bent`. */
static __device__ void draw_one_part(const step_view &s, const draw_args &a, const draw &d, int row, int begin, int end, draw_part *out,
                                     draw_shared *sh) {
    const int n = end - begin, x = threadIdx.x, bends = d.mask >= 0 || d.n_bias || d.n_used, greedy = d.temperature < 1e-5f;
    const float *from = a.logits + (int64_t)row * a.n + begin, scale = greedy ? 1 : 1 / d.temperature;
    float v[DRAW_PART / DRAW_THREADS], max, raw_max;
    int odd = 0, own = s.out_rows[row];
    if (a.n & 3)
        for (int i = x; i < n; i += DRAW_THREADS) copy_async_4(sh->part + i, from + i, 4);
    else
        for (int i = 4 * x; i < n; i += 4 * DRAW_THREADS) copy_async_16(sh->part + i, from + i, 16);
    if (x < (-n & 3)) sh->part[n + x] = -INFINITY;
    copy_async_end();
    copy_async_wait<0>();
    __syncthreads();
    part_values(sh->part, n, v);
    UNROLL(k, DRAW_PART / DRAW_THREADS) odd |= !(v[k] <= 3.4028234e38f);
    odd = __syncthreads_or(odd);
    double raw_sum = odd ? 0 : part_weigh(v, 1, &raw_max, sh), sum = raw_sum;
    if (odd) raw_max = INFINITY;
    max = raw_max;
    if (bends && !odd) {
        block_bend(s, d, sh->part, begin, end, a.n, s.token_from[own] < 0 ? -1 : row_token(s, a.drawn, own));
        part_values(sh->part, n, v);
        odd = 0;
        for (int i = x; i < n && !greedy; i += DRAW_THREADS) a.weights[(int64_t)row * a.n + begin + i] = sh->part[i];
        UNROLL(k, DRAW_PART / DRAW_THREADS) odd |= !(v[k] <= 3.4028234e38f);
        odd = __syncthreads_or(odd);
    }
    if (!odd && (bends || scale != 1)) sum = part_weigh(v, scale, &max, sh);
    if (x == 0) sh->found = a.n;
    __syncthreads();
    UNROLL(k, DRAW_PART / DRAW_THREADS)
        if (greedy && v[k] == max) atomicMin(&sh->found, begin + 4 * (x + k / 4 * DRAW_THREADS) + k % 4);
    __syncthreads();
    if (x == 0) out->raw_max = raw_max, out->raw_sum = raw_sum, out->max = max, out->sum = sum, out->bad = odd, out->first = sh->found;
    if (!odd && !greedy && d.top_k > 0 && d.top_k <= DRAW_TOP) part_keep(v, begin, d.top_k, d.temperature, out, sh);
}

/* Sums of the parts by the row's maximum. A block. */
static __device__ double parts_sum(const draw_part *p, int n, int raw, float scale, float max, draw_shared *s) {
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += DRAW_THREADS) {
        const float top = raw ? p[i].raw_max : p[i].max;
        if (top > -INFINITY) sum += (raw ? p[i].raw_sum : p[i].sum) * exp((double)__fsub_rn(top, max) * (double)scale);
    }
    return draw_sum(sum, s);
}

/* The candidates of all parts to s->w and s->id, with their weights; 0: they do not fit. A block. */
static __device__ int parts_gather(const draw_part *p, int n, const draw &d, float max, float scale, float least, draw_shared *s) {
    float most = -INFINITY;
    int over = 0;
    for (int i = threadIdx.x; i < n; i += DRAW_THREADS) over |= p[i].n < 0, most = fmaxf(most, p[i].least);
    const float low = draw_max(most, s) - d.temperature * 3.0517578e-5f;
    if (threadIdx.x == 0) s->n = 0;
    if (__syncthreads_or(over)) return 0;
    for (int i = threadIdx.x; i < n * DRAW_KEPT; i += DRAW_THREADS) {
        const int k = i % DRAW_KEPT;
        if (k >= p[i / DRAW_KEPT].n || p[i / DRAW_KEPT].kept[k] < low) continue;
        const float w = weight_of(p[i / DRAW_KEPT].kept[k], max, scale);
        const int at = w < least ? DRAW_FEW : atomicAdd(&s->n, 1);
        if (at < DRAW_FEW) s->w[at] = w, s->id[at] = p[i / DRAW_KEPT].id[k];
    }
    __syncthreads();
    return s->n <= DRAW_FEW;
}

/* Computes: what a part of an out row says of itself, for kernel_draw. Grid: a block for each part of each row. Reads the row once. */
static __global__ void __launch_bounds__(DRAW_THREADS, 2) kernel_draw_parts(step_view s, draw_args a) {
    grid_wait();
    SMEM(draw_shared, sh, 1);
    const int row = (int)blockIdx.x / a.n_parts, index = (int)blockIdx.x % a.n_parts, each = (ceil_div(a.n, a.n_parts) + 3) & ~3;
    if (row >= s.head[HEAD_OUT] || !s.draws[row].wanted) return;
    draw_one_part(s, a, s.draws[row], row, min(a.n, index * each), min(a.n, (index + 1) * each), a.parts + (int64_t)row * a.n_parts + index,
                  sh);
}

/* Computes: drawn[row] = the token that llm_draw asks for, with its log-probabilities. Grid: a block for each out row. Reads what its parts
 * say; unless it is greedy or has a small top-k then the row, and the weights once for each histogram. Twin: llm__choose. */
static __global__ void __launch_bounds__(DRAW_THREADS, 1) kernel_draw(step_view s, draw_args a) {
    grid_wait();
    SMEM(draw_shared, sh, 1);
    const int row = (int)blockIdx.x, x = threadIdx.x;
    if (row >= s.head[HEAD_OUT]) return;
    const draw d = s.draws[row];
    if (!d.wanted) return;
    const int bends = d.mask >= 0 || d.n_bias || d.n_used, greedy = d.temperature < 1e-5f;
    const draw_part *parts = a.parts + (int64_t)row * a.n_parts;
    const float *logits = a.logits + (int64_t)row * a.n, scale = greedy ? 1 : 1 / d.temperature;
    float raw = -INFINITY, top = -INFINITY;
    int bad = 0, first = a.n;
    for (int i = x; i < a.n_parts; i += DRAW_THREADS) {
        bad |= parts[i].bad;
        raw = fmaxf(raw, parts[i].raw_max), top = fmaxf(top, parts[i].max);
    }
    raw = draw_max(raw, sh), top = draw_max(top, sh);
    bad = __syncthreads_or(bad || raw < -3.4028234e38f || top < -3.4028234e38f);
    llm_drawn o = {-1, 0, 0, 0};
    if (!bad) {
        const double raw_sum = parts_sum(parts, a.n_parts, 1, 1, raw, sh), sum = parts_sum(parts, a.n_parts, 0, scale, top, sh);
        if (x == 0) sh->log_sum = (double)raw + log(raw_sum), sh->sum = sum, sh->weight = 1;
        const float least = d.min_p > 1e-30f ? d.min_p : 1e-30f, *bent = a.weights + (int64_t)row * a.n;
        for (int i = 0; i < a.n_parts && greedy; i++)
            if (parts[i].max == top) first = min(first, parts[i].first);
        o.id = greedy ? first : -1;
        if (!greedy && d.top_k > 0 && d.top_k <= DRAW_TOP && parts_gather(parts, a.n_parts, d, top, scale, least, sh))
            o.id = few_draw(d, least, 0, sh);
        __syncthreads();
        if (o.id < 0) o.id = block_pick(bends ? bent : logits, a.weights + (int64_t)row * a.n, a.n, top, scale, d, sh);
        if (x == 0) {
            o.log_sum = sh->log_sum;
            o.logprob = (float)((double)logits[o.id] - o.log_sum);
            o.prob = (float)((double)sh->weight / sh->sum);
        }
    }
    if (x == 0) a.drawn[2 * row + s.head[HEAD_TURN]] = o;
}

/* ============================================================================
 * >>ranks   Several devices: a thread each, and NCCL between them.
 * ============================================================================
 * A list is launched by its rank's own thread, so that ranks meet in collectives whatever order the host would have launched them in. With
 * one rank the calling thread does it. Each rank has all layers of its stage, of each some heads, some columns of the MLP and some of the
 * vocabulary (Megatron-LM, Shoeybi et al. 2019): so a layer has two sums over ranks, behind attention and behind the MLP, which are taken
 * where the residual reads them. Logits stay cut until somebody draws (all-gather) or the host copies them, share by share.
 *
 *     rows of a step      the sum                                        costs
 *     1 ... 16            in kernel_residual, in one shot                a write, a flag, a read of n - 1 boxes: some microseconds
 *     17 ... 512          in kernel_residual, in two shots               a flag more, but 2 (n - 1) / n ways of each byte, not n - 1
 *     513 ..., no peers   ncclAllReduce in front of kernel_residual      a launch and a ring; with batch_invariant in two shots, too
 *
 * A pipeline has stages of such groups. Rank i of one sends x to rank i of the next (ncclSend). What the last has drawn goes to the first
 * rank of all, for the host that plans: by a communicator and a stream of its own, for the first stage has the next step to compute
 * meanwhile. As many steps as there are stages may be under way (see >>scheduler of llm.h), so no stage waits for another but at the ends:
 *
 *     rank 0    step 1 | step 2             | step 3
 *       back           .. tokens of step 1 .| .. tokens of step 2 .
 *     rank 1           | step 1             | step 2
 *
 * NCCL's few functions that are used are looked up by name, and only with more than one rank.
 *
 * Ranks may be in several processes (llm_backend_config.n_processes): n_ranks counts those that are here, n_world all. A communicator is
 * made of an id that process 0 hands around; a stage that is in more than one process has no peer memory, and all its sums are NCCL's.
 *
 * Sums over peer memory. Parts stay f32 and are added up in the order of ranks, whoever does it, so one shot and two give the same bits.
 * Boxes, flags and turns belong to a block of a grid, whichever rows it walks over: 9.25 MiB at 8,192 columns and 132 multiprocessors.
 *
 * Why two boxes are enough for one shot: rank a writes box 1 of turn 3 only after it has seen everybody's flag of turn 2, and each of them
 * raised that one behind its reading of box 1 of turn 1. For two shots one is: who has seen all second flags knows that all parts have been
 * read, and a block's own threads read the sums where they write the next parts. Two shots are two turns, so boxes of one shot still
 * alternate; each kind has its own, as a turn of the other may be under way where one begins.
 *
 * Why nobody waits for ever: a block waits only for those of its number, on other ranks, which walk over the same rows. All blocks of a
 * grid are there at once, or will be when kernels that wait for nobody have ended: the launch bounds let two stand on a multiprocessor,
 * and there are no more (sum_blocks). So each comes to its next flag, whichever row the others are at. On one device (LLM_CUDA_ONE_DEVICE)
 * all ranks' blocks together take half of its multiprocessors at most, for a kernel of another rank may need one for itself.
 *
 * A rank that does not come leaves the others waiting inside NCCL, or for a flag, on the device or in the call that launches. end_step and
 * wait find that out by time, say so, abort the communicators and set the word that those look at who wait for flags: so everybody goes on.
 * close asks for ten seconds at most; what has not come back by then, a thread or a device, keeps its memory until the process ends. */

/* A rank's thread: runs the job of each round. */
static void *rank_thread(void *arg) {
    rank *r = (rank *)arg;
    llm_backend_ctx *ctx = r->ctx;
    unsigned seen = 0;
    select_device(r);
    pthread_mutex_lock(&ctx->mutex);
    for (;;) {
        while (ctx->round == seen && !ctx->stop) pthread_cond_wait(&ctx->go, &ctx->mutex);
        if (ctx->stop) break;
        seen = ctx->round;
        void (*job)(rank *) = ctx->job;
        pthread_mutex_unlock(&ctx->mutex);
        job(r);
        pthread_mutex_lock(&ctx->mutex);
        r->busy = 0;
        if (--ctx->running == 0) pthread_cond_signal(&ctx->idle);
    }
    if (--ctx->alive == 0) pthread_cond_signal(&ctx->idle);
    pthread_mutex_unlock(&ctx->mutex);
    return NULL;
}

/* For the time that a step may take; the monotonic clock. */
static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double step_limit(const llm_backend_ctx *ctx) { return ctx->cfg.step_timeout > 0 ? ctx->cfg.step_timeout : 300; }

/* 1: another process has gone, which nobody knew: the context's mistake from now on. */
static int world_lost(llm_backend_ctx *ctx) {
    if (ctx->failed || !ctx->cfg.lost || !ctx->cfg.lost(ctx->cfg.nodes)) return 0;
    return ctx_fail(ctx, LLM_ERR_BACKEND, "cuda backend: a rank was lost"), 1;
}

/* Under ctx->mutex: waits until *count is 0, or for some seconds; 0: it is not. */
static int idle_wait(llm_backend_ctx *ctx, const int *count, double most) {
    double until = seconds() + most;
    while (*count && seconds() < until && !world_lost(ctx)) {
        double next = ctx->cfg.lost ? fmin(until, seconds() + 0.2) : until;
        const struct timespec at = {(time_t)next, (long)((next - floor(next)) * 1e9)};
        pthread_cond_timedwait(&ctx->idle, &ctx->mutex, &at);
    }
    return *count == 0;
}

/* Lets everybody go who waits for another rank. Communicators are freed by it, too: who comes later sees that they are gone. */
static void abort_ranks(llm_backend_ctx *ctx) {
    if (ctx->stop_waiting) __atomic_store_n(ctx->stop_waiting, 1, __ATOMIC_RELEASE);
    if (__atomic_exchange_n(&ctx->aborted, 1, __ATOMIC_ACQ_REL)) return;
    for (int i = 0; i < ctx->n_ranks; i++) {
        for (void *comm : ctx->ranks[i].comms)
            if (comm) nccl.abort(comm);
    }
}

/* Runs a job once a rank; returns when all have, or when the time of a step is over: a rank may stay in a launch, a capture or NCCL's first
 * connection, while it waits for one that does not come. Then the context has failed, the others are let go, and that rank is not looked at
 * again. `round` counts jobs, so that a thread that comes late does not miss one or run one twice. */
static void run_ranks(llm_backend_ctx *ctx, void (*job)(rank *r)) {
    if (ctx->n_world == 1) {
        select_device(&ctx->ranks[0]);
        job(&ctx->ranks[0]);
    } else {
        pthread_mutex_lock(&ctx->mutex);
        ctx->job = job;
        ctx->running = ctx->n_ranks;
        ctx->round++;
        for (int i = 0; i < ctx->n_ranks; i++) ctx->ranks[i].busy = 1;
        pthread_cond_broadcast(&ctx->go);
        int all = idle_wait(ctx, &ctx->running, step_limit(ctx));
        for (int i = 0; i < ctx->n_ranks && !all; i++) {
            const rank *r = &ctx->ranks[i];
            char text[200];
            snprintf(text, sizeof text, "cuda device %d: a step was not launched in %.3g s: a rank does not answer", r->device,
                     step_limit(ctx));
            if (r->busy) ctx_fail(ctx, LLM_ERR_BACKEND, text);
        }
        pthread_mutex_unlock(&ctx->mutex);
        if (!all) return abort_ranks(ctx);
    }
    for (int i = 0; i < ctx->n_ranks; i++)
        if (ctx->ranks[i].failed) ctx_fail(ctx, ctx->ranks[i].failed, ctx->ranks[i].why);
}

/* ============================================================================
 * >>step   A step: its description goes up, its list runs or its graph is replayed, its results come down.
 * ============================================================================
 * Up to two steps are under way (of a pipeline one a stage): begin_step copies what changes into one of two pinned blocks, and the copy to
 * the device is the first thing on the stream; results go to one of two pinned places, and an event says when they are there. Everything on
 * the device exists once, since one stream orders it.
 *
 * Steps in which every sequence has one row, with an output, are padded to 1, 2, 4, multiples of 8 rows up to 64, and then to eighths of a
 * power of two; such a size is captured when it is met for the second time. Kernels end at once in rows that are not there. All other
 * steps, and sequences longer than max_seq_len_to_capture, run as they are.
 *
 *     host    begin 1 | begin 2          | wait 1 | begin 3          | wait 2      steps 1 and 2 are under way at once: while the device
 * has device          [   1              ][   2                ][   3              step 2 the host reads 1 and writes 3
 *
 * The block of a step, in device memory at r->step and in two pinned copies, for max_rows 4, two sequences of which one decodes:
 *
 *     head        n_rows 4, n_seqs 2, n_out 2, position rows 1, page stride 3
 *     tokens      -  17 9 4      (the first one's is drawn by the step before: token_from 0 -1 -1 -1)
 *     positions   40  0 1 2      with 3 position rows (3, n_rows)
 *     seq_of_row   0  1 1 1      seq_begin 0 1 4, seq_len 41 3, out_rows 0 3, seq_lora -1 0
 *     pages       (n_seqs, stride): 7 3 12, 5 - -   (not written: nobody looks there)
 *     work        behind the pages that are there: row 0 of one split; see work_item
 *
 * A token that step 1 draws may be a row of step 2: token_from says so, and kernel_embed takes it from r->drawn, which never leaves the
 * device before it is needed there. Two steps in turn have places of their own in it, side by side for each out row, because step 2 still
 * reads what step 1 drew (a penalty counts the row's own token) when its first blocks have written already:
 *
 *     r->drawn    row 0: [even steps][odd steps]   row 1: [even][odd]   ...      head[HEAD_TURN] says which of both this step writes
 *
 * Masks, biases and counts of the draws have a block of their own, of which only what is there is copied: most steps have none. A graph is
 * known by its padded rows, whether it draws, whether adapters compute, and the program (which of the model's lists: target or draft).
 * Capturing launches nothing: the same step is replayed right behind it. When the table of graphs is full, the one that was not used for
 * longest makes room. */

/* The arrays of the largest step in a block at p, on 16 bytes each; pages last, so that one copy of what is used can stop short of the end.
 * *bytes: of the block, with the work behind them. */
static step_view step_at(const llm_backend_config *c, const uint8_t *p, size_t *bytes) {
    const size_t rows = (size_t)c->max_rows, seqs = (size_t)c->max_seqs, out = (size_t)max_int(c->max_out, 1);
    size_t at = STEP_HEAD * 4;
    step_view v = {};
    auto take = [&](auto *to, size_t n) {
        *to = (std::remove_pointer_t<decltype(to)>)((uintptr_t)p + at);
        at = align16(at + n * sizeof **to);
    };
    v.head = (const int32_t *)p;
    take(&v.tokens, rows), take(&v.positions, 3 * rows), take(&v.seq_of_row, rows), take(&v.seq_begin, seqs + 1), take(&v.seq_len, seqs);
    take(&v.seq_rope, seqs), take(&v.seq_lora, seqs), take(&v.seq_keep, seqs), take(&v.rope_base, seqs), take(&v.out_rows, out),
        take(&v.token_from, rows);
    take(&v.draws, out), take(&v.pages, seqs * (size_t)c->max_pages_per_seq);
    *bytes = at + (rows + MAX_SPLITS) * sizeof(work_item);
    return v;
}

/* The host's copy of the step that is being recorded. */
static step_view step_staged(const llm_backend_ctx *ctx) {
    size_t bytes;
    return step_at(&ctx->cfg, ctx->staged[ctx->begun % ctx->n_flight], &bytes);
}

/* Refuses a step whose numbers would lead outside of memory: on the device nobody checks an index. A page that lies before a window may be
 * missing (-1), one that is written may not. Twin: llm__step_check. */
static llm_result step_check(const llm_backend_ctx *ctx, const llm_step *s) {
    const llm_backend_config *c = &ctx->cfg;
    const llm_shape *n = &s->shape;
    if (n->n_rows < 0 || n->n_rows > c->max_rows || n->n_seqs < 0 || n->n_seqs > c->max_seqs || n->n_out < 0 || n->n_out > c->max_out)
        return fail_with(c, LLM_ERR_ARG, "step: %d rows, %d sequences, %d out rows: expected at most %d, %d, %d", n->n_rows, n->n_seqs,
                         n->n_out, c->max_rows, c->max_seqs, c->max_out);
    if (s->seq_begin[0] != 0 || s->seq_begin[n->n_seqs] != n->n_rows)
        return fail_with(c, LLM_ERR_ARG, "step: seq_begin does not cover the rows");
    for (int q = 0; q < n->n_seqs; q++) {
        int begin = s->seq_begin[q], end = s->seq_begin[q + 1], pages = ctx->n_layers ? ceil_div(s->seq_len[q], ctx->page_tokens) : 0;
        if (end < begin || s->seq_len[q] < end - begin || pages > c->max_pages_per_seq || (ctx->n_layers && pages > s->page_stride))
            return fail_with(c, LLM_ERR_ARG, "step: sequence %d has rows %d to %d, length %d, %d pages of at most %d", q, begin, end,
                             s->seq_len[q], pages, min_int(c->max_pages_per_seq, s->page_stride));
        if (s->seq_keep && (s->seq_keep[q] < 0 || s->seq_keep[q] > end - begin))
            return fail_with(c, LLM_ERR_ARG, "step: sequence %d keeps %d of %d rows", q, s->seq_keep[q], end - begin);
        for (int row = begin; row < end; row++)
            if (s->seq_of_row[row] != q)
                return fail_with(c, LLM_ERR_ARG, "step: row %d is of sequence %d, expected %d", row, s->seq_of_row[row], q);
        for (int p = 0; p < pages; p++) {
            int32_t page = s->pages[(size_t)q * (size_t)s->page_stride + (size_t)p];
            int written = (p + 1) * ctx->page_tokens > s->seq_len[q] - (end - begin);
            if (page >= ctx->n_pages || (page < 0 && (written || page != -1)))
                return fail_with(c, LLM_ERR_ARG, "step: page %d of sequence %d is %d, expected less than %lld", p, q, page,
                                 (long long)ctx->n_pages);
        }
    }
    for (int i = 0; i < n->n_rows && s->token_from && n_stages(ctx) > 1; i++)
        if (s->token_from[i] >= 0) return fail_with(c, LLM_ERR_ARG, "step: row %d takes a token that was drawn, in a pipeline", i);
    for (int i = 0; i < n->n_rows && s->spans; i++)
        if (s->spans[i] < 0 || s->spans[i] >= s->spans[n->n_rows + i] || s->spans[n->n_rows + i] > s->seq_len[s->seq_of_row[i]])
            return fail_with(c, LLM_ERR_ARG, "step: row %d sees positions %d to %d of %d", i, s->spans[i], s->spans[n->n_rows + i],
                             s->seq_len[s->seq_of_row[i]]);
    for (int i = 0; i < n->n_out; i++)
        if (s->out_rows[i] < 0 || s->out_rows[i] >= n->n_rows)
            return fail_with(c, LLM_ERR_ARG, "step: out row %d of %d rows", s->out_rows[i], n->n_rows);
    return LLM_OK;
}

/* What few steps have, in a block of its own of which only what is there is copied: for each row which of the given rows it takes, then the
 * positions that it sees (2, n_rows), its set of experts, and at `given` the rows that are given, side by side. */
typedef struct more_layout {
    size_t spans, row_set, given, bytes;
} more_layout;

static more_layout more_place(const llm_backend_config *c) {
    more_layout l;
    const size_t rows = (size_t)c->max_rows;
    l.spans = align16(rows * 4);
    l.row_set = l.spans + align16(rows * 8);
    l.given = l.row_set + align16(rows * 4);
    l.bytes = l.given + rows * (size_t)c->given_cols * 4;
    return l;
}

/* Writes them into a pinned block; *bytes: from the beginning, of what is there. Returns the bits of head[HEAD_HAS]. */
static int32_t more_write(const llm_backend_ctx *ctx, const llm_step *s, uint8_t *to, size_t *bytes) {
    const more_layout l = more_place(&ctx->cfg);
    const size_t rows = (size_t)s->shape.n_rows, cols = (size_t)ctx->cfg.given_cols;
    int32_t has = 0, n = 0, *given_of = (int32_t *)to;
    *bytes = 0;
    if (s->spans) memcpy(to + l.spans, s->spans, rows * 8), has |= HAS_SPANS, *bytes = l.row_set;
    if (s->row_set) memcpy(to + l.row_set, s->row_set, rows * 4), has |= HAS_SETS, *bytes = l.given;
    for (size_t i = 0; i < rows && s->given && cols; i++) {
        given_of[i] = s->given[i] ? n : -1;
        if (s->given[i]) memcpy(to + l.given + (size_t)n++ * cols * 4, s->given[i], cols * 4);
    }
    if (n) has |= HAS_GIVEN, *bytes = l.given + (size_t)n * cols * 4;
    return has;
}

/* n numbers to a pinned block, which kernels only read; `absent` where the step has none. */
static void copy_ints(const int32_t *to, const int32_t *from, int n, int32_t absent) {
    for (int i = 0; i < n; i++) ((int32_t *)to)[i] = from ? from[i] : absent;
}

/* The work of attention: single rows in splits of their keys, and with batch_invariant all other rows too, up to 8 of a sequence together.
 * Splits that do not fit are done one after the other. Returns how many items there are. */
static int work_write(const llm_backend_ctx *ctx, const llm_step *s, work_item *to) {
    int n = 0, splits = 0;
    for (int q = 0; q < s->shape.n_seqs && ctx->n_layers; q++) {
        int begin = s->seq_begin[q], end = s->seq_begin[q + 1], parts = ceil_div(s->seq_len[q], SPLIT);
        if (end - begin == 1 && splits + parts <= MAX_SPLITS)
            for (int i = 0; i < parts; i++, splits++) to[n++] = {begin, 1, i, parts};
        else if (end - begin == 1 || ctx->cfg.batch_invariant)
            for (int row = begin; row < end; row += 8) to[n++] = {row, min_int(8, end - row), -1, parts};
    }
    return n;
}

/* Writes the step into a pinned block; returns the bytes that count. Page tables stand close together: what is copied is what is used. */
static size_t step_write(llm_backend_ctx *ctx, const llm_step *s, uint8_t *to) {
    const step_view v = step_staged(ctx);
    int rows = s->shape.n_rows, seqs = s->shape.n_seqs, three = s->n_position_rows == 3, stride = 1;
    int32_t *head = (int32_t *)to, *pages = (int32_t *)v.pages;
    ctx->longest = ctx->singles = 0;
    for (int q = 0; q < seqs; q++) {
        ctx->longest = max_int(ctx->longest, s->seq_len[q]);
        ctx->singles += s->seq_begin[q + 1] - s->seq_begin[q] == 1;
    }
    if (ctx->n_layers) stride = max_int(1, ceil_div(ctx->longest, ctx->page_tokens));
    memset(to, 0, STEP_HEAD * 4);
    head[HEAD_ROWS] = rows;
    head[HEAD_SEQS] = seqs;
    head[HEAD_OUT] = s->shape.n_out;
    head[HEAD_POSITIONS] = three ? 3 : 1;
    head[HEAD_STRIDE] = stride;
    copy_ints(v.tokens, s->tokens, rows, 0);
    copy_ints(v.positions, s->positions, rows * (three ? 3 : 1), 0);
    copy_ints(v.seq_of_row, s->seq_of_row, rows, 0);
    copy_ints(v.seq_begin, s->seq_begin, seqs + 1, 0);
    copy_ints(v.seq_len, s->seq_len, seqs, 0);
    copy_ints(v.seq_rope, s->seq_rope, seqs, 0);
    copy_ints(v.seq_lora, s->seq_lora, seqs, -1);
    copy_ints(v.seq_keep, s->seq_keep, seqs, ctx->cfg.max_rows);
    copy_ints(v.out_rows, s->out_rows, s->shape.n_out, 0);
    copy_ints(v.token_from, s->token_from, rows, -1);
    for (int q = 0; q < seqs; q++) ((float *)v.rope_base)[q] = s->seq_rope_base ? s->seq_rope_base[q] : 1;
    ctx->any_draws = 0;
    ctx->want_rows = !s->draws;
    for (int i = 0; i < s->shape.n_out && s->draws; i++) {
        ctx->any_draws |= s->draws[i].wanted;
        ctx->want_rows |= !s->draws[i].wanted || s->draws[i].row;
    }
    head[HEAD_TURN] = (int32_t)(ctx->begun & 1);
    for (int q = 0; q < seqs && ctx->n_layers; q++)
        for (int p = 0; p < ceil_div(s->seq_len[q], ctx->page_tokens);
             p++) /* a page that was given back reads as page 0; nothing of it counts */
            pages[(size_t)q * (size_t)stride + (size_t)p] = max_int(0, s->pages[(size_t)q * (size_t)s->page_stride + (size_t)p]);
    size_t work = align16((size_t)((uint8_t *)pages - to) + (size_t)seqs * (size_t)stride * 4);
    head[HEAD_WORK] = (int32_t)(work / 4);
    head[HEAD_N_WORK] = work_write(ctx, s, (work_item *)(to + work));
    return work + (size_t)head[HEAD_N_WORK] * sizeof(work_item);
}

/* Bytes of one row's mask, on 16 bytes; of all masks, behind which the changes lie. */
static size_t masks_bytes(const llm_backend_ctx *ctx) {
    return align16((size_t)max_int(ctx->cfg.max_out, 1) * (((size_t)ctx->vocab + 31) / 32) * 4);
}

/* The step's draws to `to`, what bends their rows into a pinned block: masks at its beginning, changes behind the place for all of them.
 * *masks, *changes: bytes of both parts. Twin: what llm__choose reads. */
static llm_result step_draws(llm_backend_ctx *ctx, const llm_step *s, draw *to, uint8_t *block, size_t *masks, size_t *changes) {
    size_t words = ((size_t)ctx->vocab + 31) / 32, n = 0;
    int32_t n_masks = 0;
    change *list = (change *)(block + masks_bytes(ctx));
    for (int i = 0; i < s->shape.n_out && s->draws; i++, to++) {
        const llm_draw *d = &s->draws[i];
        const llm_sampling *p = d->sampling;
        memset(to, 0, sizeof *to);
        if (!d->wanted) continue;
        if (!block || n + (size_t)p->n_logit_bias + (size_t)d->n_used > LLM_DRAW_CHANGES)
            return fail_with(&ctx->cfg, LLM_ERR_LIMIT, "step: draws, but no memory for them, or more than %d biases and penalties",
                             LLM_DRAW_CHANGES);
        /* clang-format off */
        *to = {d->seed, d->position, 1, p->top_k, -1, (int32_t)n, p->n_logit_bias, 0, d->n_used,
               p->temperature, p->top_p, p->min_p, p->repetition_penalty, p->presence_penalty, p->frequency_penalty};
        /* clang-format on */
        for (int k = 0; k < p->n_logit_bias; k++) list[n++] = {p->logit_bias[k].id, 0, p->logit_bias[k].bias};
        to->used = (int32_t)n;
        for (int k = 0; k < d->n_used; k++) list[n++] = {d->used[k], d->counts[k], 0};
        if (!d->allowed) continue;
        memcpy(block + (size_t)n_masks * words * 4, d->allowed, words * 4);
        to->mask = n_masks++;
    }
    *masks = (size_t)n_masks * words * 4;
    *changes = n * sizeof *list;
    return LLM_OK;
}

/* Both parts to a rank that draws. */
static void rules_copy(rank *r, const uint8_t *block, size_t masks, size_t changes) {
    size_t at = masks_bytes(r->ctx);
    if (masks && r->bent) rank_ok(r, cudaMemcpyAsync(r->bent, block, masks, cudaMemcpyHostToDevice, r->stream), "masks");
    if (changes && r->bent) rank_ok(r, cudaMemcpyAsync(r->bent + at, block + at, changes, cudaMemcpyHostToDevice, r->stream), "penalties");
}

/* The rows a captured list is made for. A step of 5 rows pays for 8, which is the same bytes of weights; a graph for every number of rows
 * would take memory and time for nothing. Those of --cuda-graph-sizes, where they are given: a step larger than all is not captured. */
static int bucket(const llm_backend_config *c, int n) {
    int each = 8; /* of a step of 65 to 128 rows 16, then 32, ... */
    for (int top = 64; top < n; top *= 2) each *= 2;
    if (!c->n_graph_sizes) return n <= 2 ? n : n <= 4 ? 4 : (n + each - 1) / each * each;
    for (int i = 0; i < c->n_graph_sizes; i++)
        if (c->graph_sizes[i] >= n) return c->graph_sizes[i];
    return INT32_MAX;
}

/* The step's numbers are checked, written to the pinned block of its turn, and on their way to every device before it returns. Twin:
 * llm__cpu_begin_step. */
static llm_result cuda_begin_step(llm_backend_ctx *ctx, const llm_step *s) {
    if (ctx->failed) return ctx_result(ctx);
    llm_result result = step_check(ctx, s);
    if (result) return result;
    if (ctx->begun - ctx->waited == ctx->n_flight)
        return fail_with(&ctx->cfg, LLM_ERR_ARG, "step: %u are under way already", ctx->n_flight);
    const unsigned turn = ctx->begun % ctx->n_flight;
    uint8_t *block = ctx->staged[turn];
    size_t bytes = step_write(ctx, s, block), masks = 0, changes = 0, more = 0;
    ((int32_t *)block)[HEAD_HAS] = more_write(ctx, s, ctx->more[turn], &more);
    result = step_draws(ctx, s, (draw *)step_staged(ctx).draws, ctx->bent[turn], &masks, &changes);
    if (result) return result;
    const llm_shape *n = &s->shape;
    ctx->shape = ctx->padded = *n;
    ctx->capture = !ctx->cfg.enforce_eager && !ctx->ranks[0].sync_each && !ctx->each_record && n->n_rows && n->n_rows == n->n_seqs &&
                   n->n_rows == n->n_out && bucket(&ctx->cfg, n->n_rows) <= ctx->cfg.max_out &&
                   bucket(&ctx->cfg, n->n_rows) <= ctx->cfg.max_rows &&
                   (!ctx->cfg.max_seq_len_to_capture || ctx->longest <= ctx->cfg.max_seq_len_to_capture);
    if (ctx->capture) ctx->padded.n_rows = ctx->padded.n_seqs = ctx->padded.n_out = bucket(&ctx->cfg, n->n_rows);
    for (int i = 0; i < ctx->n_ranks; i++) {
        rank *r = &ctx->ranks[i];
        r->n = 0;
        select_device(r);
        rank_ok(r, cudaMemcpyAsync(r->step, block, bytes, cudaMemcpyHostToDevice, r->stream), "step");
        if (more) rank_ok(r, cudaMemcpyAsync(r->more, ctx->more[turn], more, cudaMemcpyHostToDevice, r->stream), "step");
        if (ctx->times && !i) rank_ok(r, cudaEventRecord(r->from[ctx->begun % N_TIMES], r->stream), "event");
        rules_copy(r, ctx->bent[turn], masks, changes);
        if (r->failed) return rank_result(r);
    }
    return LLM_OK;
}

/* Of the draws of a step: both turns. */
static size_t drawn_bytes(int n_out) { return 2 * (size_t)n_out * sizeof(llm_drawn); }

/* Gathers the logits of the stage's ranks and draws tokens from them. With one rank they lie as the sampler wants them, but for the
 * stride. */
static void run_draws(rank *r) {
    llm_backend_ctx *ctx = r->ctx;
    int n_out = ctx->padded.n_out, first = stage_of(r) * ctx->n_group;
    const float *logits = r->logits;
    if (!r->weights) return;
    if (ctx->n_group > 1) {
        size_t share = (size_t)ctx->widest * (size_t)n_out, begin = 0;
        if (!nccl_gone(r))
            nccl_ok(r, nccl.all_gather(r->logits, r->gathered, share, NCCL_F32, r->comms[COMM_STAGE], r->stream), "all-gather");
        for (int i = 0; i < ctx->n_group; begin += (size_t)ctx->vocabs[first + i++])
            rank_ok(r,
                    cudaMemcpy2DAsync(r->flat + begin, (size_t)ctx->vocab * 4, r->gathered + share * (size_t)i, (size_t)ctx->widest * 4,
                                      (size_t)ctx->vocabs[first + i] * 4, (size_t)n_out, cudaMemcpyDeviceToDevice, r->stream),
                    "logits");
        logits = r->flat;
    }
    const int n_parts = draw_parts(ctx->vocab);
    const draw_args a = {logits, r->weights, r->parts, r->drawn, (int)ctx->vocab, n_parts};
    launch<kernel_draw_parts>(r, {n_out * n_parts}, DRAW_THREADS, 0, r->view, a);
    launch<kernel_draw>(r, {n_out}, DRAW_THREADS, 0, r->view, a);
    if (r->comms[COMM_BACK]) run_send_back(r, r->drawn, drawn_bytes(n_out));
}

/* Of the token rows of a buffer, strides too. */
static size_t rows_bytes(const rank *r, const llm_buffer *b) { return (size_t)(b->stride * r->ctx->padded.n_rows) * sizeof(float); }

/* The form in which a record's product reads a buffer that has `cols` columns of such rows; NONE: another one, or not so. */
static narrow_form record_form(const rank *r, const record *rec, const llm_buffer *b, llm_rows rows, int64_t cols) {
    const llm_linear_op *op = &rec->op.linear;
    narrow_form form = NARROW_NONE;
    if (rec->kind != OP_LINEAR || op->src != b || op->dst == b || op->plus == b || op->src_col || op->rows != rows ||
        op->weight->cols != cols)
        return NARROW_NONE;
    linear_args a = linear_args_of(r, rec);
    for (int i = 0; i < op->weight->n_parts; i++) {
        a.w = op->weight->parts[i];
        const narrow_form one = product_form(r, a, padded_rows(r, rows));
        if (!one || (i && one != form)) return NARROW_NONE;
        form = one;
    }
    return form;
}

/* The one form in which all read what a buffer has behind record i, until it is written anew. */
static narrow_form readers_form(const rank *r, int i, const llm_buffer *b, llm_rows rows, int64_t cols) {
    narrow_form form = NARROW_NONE;
    while (++i < r->n) {
        const int use = record_uses(&r->list[i], b);
        if (use == USE_WRITE) return form;
        if (use == USE_NONE) continue;
        const narrow_form one = record_form(r, &r->list[i], b, rows, cols);
        if (!one || (form && one != form)) return NARROW_NONE;
        form = one;
    }
    return NARROW_NONE; /* behind the list somebody may read it */
}

/* Whether a record can leave its result so. A residual has a whole row in a block, so every form, by fours. Attention's results are
 * weighted means of values, which fit halves if those do. Products end in kernel_finish, of halves with all of a row's sums still there;
 * for e4m3 a row's largest value would have to be known before: y read twice costs what writing and reading f32 does. */
static int record_leaves(const rank *r, const record *rec, narrow_form form) {
    const llm_attention_op *att = &rec->op.attention;
    const llm_linear_op *lin = &rec->op.linear;
    if (rec->kind == OP_RESIDUAL) return rec->op.residual.x->cols % 4 == 0;
    if (rec->kind == OP_ATTENTION)
        return on_tensor_cores(r, att) && r->ctx->kv_type <= LLM_KV_BF16 && form != NARROW_E4M3 &&
               (form == NARROW_BF16 || r->ctx->kv_type == LLM_KV_F16);
    linear_args a = linear_args_of(r, rec);
    if (lin->act == LLM_ACT_XIELU || (form == NARROW_HALF ? lin->weight->n_parts != 1 : form != NARROW_BF16)) return 0;
    for (int i = 0; i < lin->weight->n_parts; i++) {
        a.w = lin->weight->parts[i];
        const narrow_form way = product_form(r, a, padded_rows(r, lin->rows));
        if (!way || way == NARROW_BRICKS) return 0;
        const library_plan plan = library_plan_of(r, a, padded_rows(r, lin->rows));
        if (plan.direct || (form == NARROW_HALF && plan.most < a.w.n_rows)) return 0;
    }
    return 1;
}

/* What a record writes whole: rows of a buffer and how many columns; NULL: nothing, or nothing that is for products alone. */
static const llm_buffer *record_makes(const record *rec, llm_rows *rows, int64_t *cols) {
    const llm_residual_op *res = &rec->op.residual;
    const llm_attention_op *att = &rec->op.attention;
    const llm_linear_op *lin = &rec->op.linear;
    switch (rec->kind) {
    case OP_RESIDUAL:
        *rows = res->rows, *cols = res->x->cols;
        return rec->done || !res->kind || res->replace || one_of(res->h, {res->x, res->y}) ? NULL : res->h;
    case OP_ATTENTION: *rows = LLM_ROWS_TOKENS, *cols = att->n_heads * att->v_head_dim; return att->dst;
    case OP_LINEAR:
        *rows = lin->rows, *cols = lin->weight->rows / (lin->weight->gate_up ? 2 : 1);
        return rec->onto || lin->add || lin->dst_col ? NULL : lin->dst;
    default: return NULL;
    }
}

/* Of many rows each product would first make bf16, halves or e4m3 of what it reads (kernel_narrow). Where products that want one form are
 * all that reads a buffer, who makes the rows writes them so, in the buffer itself, and f32 is never there: a launch less, and two bytes a
 * value are written where four were, and read, and two written. Of 8B at 8,192 rows (two norms and attention of 4,096, 14,336 between
 * gate and down) that is 1.7 GB less a layer, 0.4 ms of an H200's memory. What must hold: the next that becomes of the buffer is that all
 * of it is written, and a row has room for the form with its scale. */
static void list_narrow(rank *r) {
    for (int i = 0; i < r->n; i++) {
        record *rec = &r->list[i];
        llm_rows rows = LLM_ROWS_TOKENS;
        int64_t cols = 0;
        const llm_buffer *b = record_makes(rec, &rows, &cols);
        const narrow_form form = b ? readers_form(r, i, b, rows, cols) : NARROW_NONE;
        const int subs = ceil_div(cols, 32);
        if (!form || (int64_t)narrow_bytes(form, subs) > b->stride * 4) continue;
        if (rec->kind != OP_RESIDUAL && narrow_cols(form, subs) != cols) continue; /* who would write the zeros? */
        if (!record_leaves(r, rec, form)) continue;
        rec->leaves = form;
        for (int j = i + 1; record_uses(&r->list[j], b) != USE_WRITE; j++)
            if (record_uses(&r->list[j], b)) r->list[j].finds = form, r->list[j].scaled = rec->kind != OP_ATTENTION;
    }
}

/* One record: its kernels, from the operation's arguments and the padded shape. */
static void run_record(rank *r, const record *rec) {
    switch (rec->kind) {
    case OP_EMBED: run_embed(r, &rec->op.embed); return;
    case OP_ROPE: run_rope(r, &rec->op.rope); return;
    case OP_RESIDUAL: run_residual(r, rec); return;
    case OP_NORM: run_norm(r, &rec->op.norm); return;
    case OP_LINEAR: run_linear(r, rec); return;
    case OP_QKV: run_qkv(r, &rec->op.qkv); return;
    case OP_ATTENTION: run_attention(r, rec); return;
    case OP_MLA: run_latent(r, &rec->op.mla); return;
    case OP_ROUTE: run_route(r, &rec->op.route); return;
    case OP_EXPERTS: run_experts(r, &rec->op.experts); return;
    case OP_GATE: run_gate(r, &rec->op.gate); return;
    case OP_GATHER: run_gather(r, &rec->op.gather); return;
    case OP_ALL_REDUCE: run_all_reduce(r, rec->op.reduce.rows, rec->op.reduce.buf, padded_rows(r, rec->op.reduce.rows)); return;
    case OP_LOGITS: run_logits(r, &rec->op.logits); return;
    case OP_LORA: run_lora(r, &rec->op.lora); return;
    case OP_SEND: run_send(r, rec->op.gather.src->data, rows_bytes(r, rec->op.gather.src)); return;
    case OP_RECEIVE: run_receive(r, rec->op.gather.dst->data, rows_bytes(r, rec->op.gather.dst)); return;
    case OP_STATE: run_state(r, &rec->op.state); return;
    case OP_CONV: run_conv(r, &rec->op.conv); return;
    case OP_RECUR: run_recur(r, &rec->op.recur); return;
    case OP_STREAMS: run_streams(r, &rec->op.streams); return;
    case OP_INDEX: run_index(r, &rec->op.index); return;
    case OP_COUNT: return;
    }
}

/* One record by itself, with the time that the first device needs for it. */
static void time_record(rank *r, const record *rec) {
    float ms = 0;
    rank_ok(r, cudaEventRecord(r->around[0], r->stream), "event");
    run_record(r, rec);
    rank_ok(r, cudaEventRecord(r->around[1], r->stream), "event");
    if (!rank_ok(r, cudaEventSynchronize(r->around[1]), "event") ||
        !rank_ok(r, cudaEventElapsedTime(&ms, r->around[0], r->around[1]), "event"))
        return;
    r->ctx->record_s[rec->kind] += ms * 1e-3;
    r->ctx->n_records[rec->kind]++;
}

/* Launches the list and, if tokens are drawn here, the sampler behind it: eagerly, or into the graph that is being captured. */
static void run_list(rank *r) {
    list_fuse(r);
    list_fuse_heads(r);
    list_narrow(r);
    for (int i = 0; i < r->n && !r->failed; i++)
        if (r->list[i].done) continue;
        else if (r->ctx->each_record && !r->index) time_record(r, &r->list[i]);
        else run_record(r, &r->list[i]);
    if (r->ctx->any_draws) run_draws(r);
}

/* The place of this step's shape in the table; a new one, or that of the shape that was not used for longest, has no graph yet. Of the
 * steps that still run none has it. */
static graph *graph_find(rank *r) {
    const llm_backend_ctx *ctx = r->ctx;
    const graph now = {ctx->padded.n_rows, ctx->any_draws, ctx->shape.lora, ctx->shape.program, ctx->shape.given, ctx->begun, NULL};
    graph *oldest = &r->graphs[0];
    for (int i = 0; i < r->n_graphs; i++) {
        graph *g = &r->graphs[i];
        if (g->n_rows == now.n_rows && g->draws == now.draws && g->lora == now.lora && g->program == now.program && g->given == now.given)
            return g;
        if (ctx->begun - g->used > ctx->begun - oldest->used) oldest = g;
    }
    graph *g = r->n_graphs < MAX_GRAPHS ? &r->graphs[r->n_graphs++] : oldest;
    if (g->exec) cudaGraphExecDestroy(g->exec);
    *g = now;
    return g;
}

/* Captures the list; NULL after a mistake. */
static cudaGraphExec_t list_capture(rank *r) {
    cudaGraph_t made = NULL;
    cudaGraphExec_t exec = NULL;
    if (!rank_ok(r, cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal), "capture")) return NULL;
    run_list(r);
    cudaError_t e = cudaStreamEndCapture(r->stream, &made);
    if (!rank_ok(r, e, "capture") || !rank_ok(r, cudaGraphInstantiate(&exec, made, 0), "graph")) exec = NULL;
    if (made) cudaGraphDestroy(made);
    return exec;
}

/* A step whose shape may have a graph. The first of a shape runs as it is, which loads what libraries keep and a capture must not; the
 * second is captured, and replayed as all later ones are. */
static void run_graph(rank *r) {
    graph *g = graph_find(r);
    if (!g->exec && g->used != r->ctx->begun) g->exec = list_capture(r);
    g->used = r->ctx->begun;
    if (g->exec) rank_ok(r, cudaGraphLaunch(g->exec, r->stream), "graph");
    else if (!r->failed) run_list(r);
}

/* What the list computes of the logits; NULL: nothing. A draft model's list may have other rows of them than the model's. */
static const llm_logits_op *list_logits(const rank *r) {
    for (int i = r->n - 1; i >= 0; i--)
        if (r->list[i].kind == OP_LOGITS) return &r->list[i].op.logits;
    return NULL;
}

/* A rank's part of end_step: graph or list, then its share of the logits to the host if somebody wants rows, one rank's draws, and
 * the event that tells that all of it is there. */
static void rank_end_step(rank *r) {
    llm_backend_ctx *ctx = r->ctx;
    unsigned turn = ctx->begun % ctx->n_flight;
    const llm_logits_op *share = list_logits(r);
    cudaStream_t end = r->stream;
    if (ctx->capture) run_graph(r);
    else run_list(r);
    if (ctx->want_rows && ctx->shape.n_out && share && !r->failed)
        rank_ok(r,
                cudaMemcpy2DAsync(ctx->logits[turn] + share->vocab_begin, (size_t)ctx->vocab * 4, r->logits, (size_t)ctx->widest * 4,
                                  (size_t)share->head->rows * 4, (size_t)ctx->shape.n_out, cudaMemcpyDeviceToHost, r->stream),
                "logits");
    if (ctx->any_draws && r->back) {
        end = r->back;
        run_receive_back(r, r->drawn, drawn_bytes(ctx->padded.n_out));
    }
    if (ctx->any_draws && !world_rank(r))
        rank_ok(r,
                cudaMemcpy2DAsync(ctx->drawn[turn], sizeof(llm_drawn), r->drawn + (ctx->begun & 1), 2 * sizeof(llm_drawn),
                                  sizeof(llm_drawn), (size_t)ctx->shape.n_out, cudaMemcpyDeviceToHost, end),
                "draws");
    if (end != r->stream) {
        rank_ok(r, cudaEventRecord(r->back_after, r->stream), "event");
        rank_ok(r, cudaStreamWaitEvent(end, r->back_after, 0), "event");
    }
    rank_ok(r, cudaEventRecord(r->done[turn], end), "event");
    if (ctx->times && !r->index) rank_ok(r, cudaEventRecord(r->to[ctx->begun % N_TIMES], r->stream), "event");
}

/* The ranks of a stage must have recorded the same operations, or they would wait for each other in collectives for ever; then each
 * launches its own. */
static llm_result cuda_end_step(llm_backend_ctx *ctx) {
    for (int i = 1; i < ctx->n_ranks && !ctx->failed; i++) {
        const rank *first = &ctx->ranks[max_int(0, i - (ctx->first + i) % ctx->n_group)];
        int same = ctx->ranks[i].n == first->n;
        for (int k = 0; same && k < first->n; k++) same = ctx->ranks[i].list[k].kind == first->list[k].kind;
        if (!same) ctx_fail(ctx, LLM_ERR_ARG, "the ranks recorded different operations");
    }
    if (ctx->failed) return ctx_result(ctx);
    run_ranks(ctx, rank_end_step);
    ctx->begun++;
    return ctx_result(ctx);
}

/* Whether a rank's step has ended; 1 also after a mistake, which is noted. */
static int rank_done(rank *r, unsigned turn, int ask_nccl) {
    select_device(r);
    cudaError_t e = r->failed ? cudaSuccess : cudaEventQuery(r->done[turn]);
    if (e != cudaErrorNotReady) return rank_ok(r, e, "a kernel failed"), 1;
    for (int k = 0; k < N_COMMS && ask_nccl; k++) {
        int lost = 0;
        if (r->comms[k] && !r->ctx->aborted) nccl_ok(r, nccl.async_error(r->comms[k], &lost), "NCCL");
        if (lost) nccl_ok(r, lost, "a rank was lost");
    }
    return r->failed != LLM_OK;
}

/* Waits for all ranks' events; watches time and NCCL. It asks at once and often, since a step of a small model takes a fraction of a
 * millisecond, and sleeps between questions when it takes longer, so that a waiting thread does not keep a core from others. All are asked
 * in turn: one that failed is heard while the others wait for it. */
static void ranks_wait(llm_backend_ctx *ctx, unsigned turn) {
    double limit = step_limit(ctx), until = seconds() + limit;
    int waiting[MAX_RANKS], n = ctx->n_ranks;
    for (int i = 0; i < n; i++) waiting[i] = i;
    for (unsigned spins = 0; n && !ctx->failed; spins++) {
        for (int i = 0; i < n && !ctx->failed; i++) {
            rank *r = &ctx->ranks[waiting[i]];
            if (!rank_done(r, turn, spins % 1024 == 0)) continue;
            rank_result(r);
            waiting[i--] = waiting[--n];
        }
        if (n && spins % 1024 == 0 && world_lost(ctx)) return;
        if (n && seconds() > until && !ctx->failed) {
            rank *r = &ctx->ranks[waiting[0]];
            rank_fail(r, LLM_ERR_BACKEND, "a step did not end in %.3g s%s", limit, ctx->n_world > 1 ? ": a rank does not answer" : "");
            rank_result(r);
        }
        if (spins > 2000) usleep(50);
    }
}

/* For tests/cuda/gpu.sh: what the first device computed in the step that has just ended, and how long it stood still before it. Later steps
 * may have been begun, so there are events for more than those. */
static void note_times(llm_backend_ctx *ctx) {
    rank *r = &ctx->ranks[0];
    unsigned at = ctx->waited % N_TIMES, before = (ctx->waited - 1) % N_TIMES;
    float ms = 0;
    select_device(r);
    if (rank_ok(r, cudaEventElapsedTime(&ms, r->from[at], r->to[at]), "event")) ctx->busy_s += ms * 1e-3;
    if (ctx->waited && rank_ok(r, cudaEventElapsedTime(&ms, r->to[before], r->from[at]), "event")) ctx->idle_s += ms * 1e-3;
}

/* Waits for the oldest step that was not waited for, with one limit of time for all ranks together. A rank that does not come in time, or
 * that NCCL reports as lost, makes the context fail for good; aborting lets the others' kernels end. */
static llm_result cuda_wait(llm_backend_ctx *ctx) {
    if (ctx->waited != ctx->begun) {
        ranks_wait(ctx, ctx->waited % ctx->n_flight);
        if (ctx->times && !ctx->failed) note_times(ctx);
        ctx->waited++;
        if (ctx->failed && ctx->n_world > 1) abort_ranks(ctx);
    }
    return ctx_result(ctx);
}

/* Of the step that was waited for last: host memory that stays as it is until wait is called again. */
static const float *cuda_logits_row(llm_backend_ctx *ctx, int out_row) {
    return ctx->logits[(ctx->waited - 1) % ctx->n_flight] + (int64_t)out_row * ctx->vocab;
}

/* Of the same step. */
static const llm_drawn *cuda_drawn(llm_backend_ctx *ctx, int out_row) { return ctx->drawn[(ctx->waited - 1) % ctx->n_flight] + out_row; }

/* Of the latest step; for tests and embeddings, so it may wait. The row is overwritten by the next call. */
static const float *cuda_buffer_row(llm_backend_ctx *ctx, int index, const llm_buffer *b, int row) {
    rank *r = &ctx->ranks[index];
    select_device(r);
    float *to = (float *)realloc(ctx->row, (size_t)b->cols * sizeof *to);
    if (!to) return ctx->row;
    ctx->row = to;
    rank_ok(r, cudaMemcpyAsync(to, b->data + row * b->stride, (size_t)b->cols * sizeof *to, cudaMemcpyDeviceToHost, r->stream), "buffer");
    rank_ok(r, cudaStreamSynchronize(r->stream), "buffer");
    return to;
}

/* Many rows at once. */
static llm_result cuda_buffer_rows(llm_backend_ctx *ctx, int index, const llm_buffer *b, int row, int n, float *to) {
    rank *r = &ctx->ranks[index];
    select_device(r);
    rank_ok(r,
            cudaMemcpy2DAsync(to, (size_t)b->cols * sizeof *to, b->data + row * b->stride, (size_t)b->stride * sizeof *to,
                              (size_t)b->cols * sizeof *to, (size_t)n, cudaMemcpyDeviceToHost, r->stream),
            "buffer");
    rank_ok(r, cudaStreamSynchronize(r->stream), "buffer");
    return rank_result(r);
}

static int page_ok(const llm_backend_ctx *ctx, int32_t page) { return page >= 0 && page < ctx->n_pages; }

/* Enqueued behind the steps that are under way, so a page may be copied that one of them still writes. */
static llm_result cuda_kv_copy(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int n) {
    for (int i = 0; i < n; i++) {
        if (!page_ok(ctx, from[i]) || !page_ok(ctx, to[i]))
            return fail_with(&ctx->cfg, LLM_ERR_ARG, "kv_copy: page %d to %d of %lld", from[i], to[i], (long long)ctx->n_pages);
        for (int k = 0; k < ctx->n_ranks && from[i] != to[i]; k++) {
            rank *r = &ctx->ranks[k];
            select_device(r);
            rank_ok(r,
                    cudaMemcpyAsync(r->kv + to[i] * ctx->page_bytes, r->kv + from[i] * ctx->page_bytes, (size_t)ctx->page_bytes,
                                    cudaMemcpyDeviceToDevice, r->stream),
                    "kv_copy");
            if (r->failed) return rank_result(r);
        }
    }
    return ctx_result(ctx);
}

/* One page between the host and a rank, either way: `to` NULL writes the page. Waits, since the host's memory may be anything. */
static llm_result kv_move(llm_backend_ctx *ctx, int index, int32_t page, void *to, const void *from, const char *what) {
    if (index < 0 || index >= ctx->n_ranks || !page_ok(ctx, page))
        return fail_with(&ctx->cfg, LLM_ERR_ARG, "%s: page %d of rank %d is not there", what, page, index);
    rank *r = &ctx->ranks[index];
    if (ctx->failed) return ctx_result(ctx);
    uint8_t *at = r->kv + page * ctx->page_bytes;
    select_device(r);
    rank_ok(r,
            cudaMemcpyAsync(to ? to : at, to ? at : from, (size_t)ctx->page_bytes, to ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                            r->stream),
            what);
    rank_ok(r, cudaStreamSynchronize(r->stream), what);
    return rank_result(r);
}

static llm_result cuda_kv_read(llm_backend_ctx *ctx, int index, int32_t page, void *host) {
    return kv_move(ctx, index, page, host, NULL, "kv_read");
}
static llm_result cuda_kv_write(llm_backend_ctx *ctx, int index, int32_t page, const void *host) {
    return kv_move(ctx, index, page, NULL, host, "kv_write");
}

/* Copies of pages to and from this memory then need no stop in the driver's own. Where it cannot be pinned they work as well. */
static void cuda_pin(llm_backend_ctx *ctx, void *host, size_t bytes) {
    select_device(&ctx->ranks[0]);
    if (cudaHostRegister(host, bytes, cudaHostRegisterPortable) == cudaSuccess) ctx->pinned = host;
    else cudaGetLastError();
}

/* ============================================================================
 * >>backend   The table: opening, recording, closing.
 * ============================================================================
 * Recording copies the operation's struct into the list of its rank and checks only what would lead outside of memory; buffers and weights
 * it points to live as long as the context. Order of calls, as the engine makes them:
 *
 *     open -> buffer, weight, lora_site ... -> weights_done -> kv_memory, kv_page_bytes -> kv_open
 *          -> (begin_step, operations, end_step, wait) ...  beside them: kv_copy, kv_read, kv_write, lora_put -> close
 *
 * A draft model adds its weights and another weights_done before kv_open. close takes a context that any of these left halfway.
 *
 * Mistakes. A bad argument at open time, or in begin_step, is refused with a sentence and nothing has changed. What goes wrong while
 * recording (operations return nothing) or on a device is kept, told by end_step and wait, and stays: a device that met a bad address gives
 * no more answers, so the engine fails its requests and says why. A full device while opening says what it was for, how much it needs and
 * how much is free. An adapter that does not fit is its own loader's mistake, which the next one does not see. */

/* A new record; with a full list, or after a mistake, one that nobody reads: operations return nothing, so the caller goes on recording
 * until end_step tells him. */
static record *record_add(llm_backend_ctx *ctx, int index, op_kind kind) {
    rank *r = &ctx->ranks[index];
    if (r->n >= MAX_RECORDS) {
        ctx_fail(ctx, LLM_ERR_LIMIT, "too many operations in one step");
        r->n = MAX_RECORDS - 1;
    }
    record *rec = &r->list[r->n++];
    rec->kind = kind;
    return rec;
}

static void cuda_embed(llm_backend_ctx *ctx, int index, const llm_embed_op *op) {
    if (op->given && op->given_col + op->dst->cols > ctx->cfg.given_cols) ctx_fail(ctx, LLM_ERR_ARG, "embed: more columns than are given");
    record_add(ctx, index, OP_EMBED)->op.embed = *op;
}

/* Which variant a sequence has is in the block that begin_step wrote, so it is checked here, where the number of variants is known. */
static void cuda_rope(llm_backend_ctx *ctx, int index, const llm_rope_op *op) {
    const int32_t *variants = step_staged(ctx).seq_rope;
    for (int s = 0; s < ctx->shape.n_seqs; s++)
        if (variants[s] < 0 || variants[s] >= op->n_variants) ctx_fail(ctx, LLM_ERR_ARG, "seq_rope: not a variant of the rope operation");
    record_add(ctx, index, OP_ROPE)->op.rope = *op;
}

/* y, if there is one, is summed over the ranks first: see run_record. */
static void cuda_residual(llm_backend_ctx *ctx, int index, const llm_residual_op *op) {
    record_add(ctx, index, OP_RESIDUAL)->op.residual = *op;
}
static void cuda_norm(llm_backend_ctx *ctx, int index, const llm_norm_op *op) { record_add(ctx, index, OP_NORM)->op.norm = *op; }
static void cuda_linear(llm_backend_ctx *ctx, int index, const llm_linear_op *op) { record_add(ctx, index, OP_LINEAR)->op.linear = *op; }

/* A layer and heads that the KV cache has. Twin: llm__check_heads. */
static void check_heads(llm_backend_ctx *ctx, const char *what, int layer, int n_heads, int n_kv_heads) {
    if (layer < 0 || layer >= ctx->n_layers || n_kv_heads < 1 || n_heads % n_kv_heads) ctx_fail(ctx, LLM_ERR_ARG, what);
}

static void cuda_qkv(llm_backend_ctx *ctx, int index, const llm_qkv_op *op) {
    check_heads(ctx, "qkv: layer or heads do not fit the KV cache", op->layer, op->n_heads, op->n_kv_heads);
    record_add(ctx, index, OP_QKV)->op.qkv = *op;
}

static void cuda_attention(llm_backend_ctx *ctx, int index, const llm_attention_op *op) {
    check_heads(ctx, "attention: layer or heads do not fit the KV cache", op->layer, op->n_heads, op->n_kv_heads);
    if (op->v_head_dim > MAX_VALUES) ctx_fail(ctx, LLM_ERR_ARG, "attention: more values of a head than kernels take");
    record_add(ctx, index, OP_ATTENTION)->op.attention = *op;
}

/* The slots of the step's adapters must be some of the site's. */
static void lora_check(llm_backend_ctx *ctx, const llm_lora_site *site) {
    const int32_t *slots = step_staged(ctx).seq_lora;
    for (int s = 0; site && s < ctx->shape.n_seqs; s++)
        if (slots[s] < -1 || slots[s] >= site->n_slots) ctx_fail(ctx, LLM_ERR_ARG, "lora: the site has no such slot");
}

/* The layer's page must have keys of the indexer and values, where latents are. Twin: llm__cpu_index. */
static void cuda_index(llm_backend_ctx *ctx, int index, const llm_index_op *op) {
    const kv_place *p = op->layer >= 0 && op->layer < ctx->n_layers ? &ctx->places[op->layer] : NULL;
    if (!p || p->head_dim != op->head_dim || !p->v_head_dim) ctx_fail(ctx, LLM_ERR_ARG, "index: the layer does not fit the KV cache");
    if (ctx->longest > ctx->cfg.indexed) ctx_fail(ctx, LLM_ERR_ARG, "index: a sequence of more positions than indexed");
    if (op->n_heads < 1 || op->rope_dim > op->head_dim || op->topk < 1 || op->dst->cols < op->topk ||
        op->q->cols < (int64_t)op->n_heads * op->head_dim || op->k->cols < op->head_dim + op->n_heads)
        ctx_fail(ctx, LLM_ERR_ARG, "index: heads, widths or topk out of range");
    record_add(ctx, index, OP_INDEX)->op.index = *op;
}

/* The layer's page must have a latent with its key, and no values, or with an indexer the latent as its value. */
static void cuda_mla(llm_backend_ctx *ctx, int index, const llm_mla_op *op) {
    const kv_place *p = op->layer >= 0 && op->layer < ctx->n_layers ? &ctx->places[op->layer] : NULL;
    if (!p || (op->chosen ? p->v_head_dim : p->head_dim) != op->rank + op->rope_dim || (!op->chosen && p->v_head_dim))
        ctx_fail(ctx, LLM_ERR_ARG, "mla: the layer does not fit the KV cache");
    lora_check(ctx, op->lora);
    record_add(ctx, index, OP_MLA)->op.mla = *op;
}

/* k of the experts that the best groups have must be there to be chosen. */
static void cuda_route(llm_backend_ctx *ctx, int index, const llm_route_op *op) {
    int size = op->n_group > 1 ? op->n_experts / op->n_group : op->n_experts;
    if (op->k < 1 || op->k > op->n_experts || (op->n_group > 1 && (op->n_experts % op->n_group || op->k > size * op->topk_group)))
        ctx_fail(ctx, LLM_ERR_ARG, "route: more experts to choose than there are");
    record_add(ctx, index, OP_ROUTE)->op.route = *op;
}

static void cuda_experts(llm_backend_ctx *ctx, int index, const llm_experts_op *op) {
    lora_check(ctx, op->up_lora);
    lora_check(ctx, op->down_lora);
    record_add(ctx, index, OP_EXPERTS)->op.experts = *op;
}
static void cuda_gate(llm_backend_ctx *ctx, int index, const llm_gate_op *op) {
    if (op->width < 0 || op->width > op->gate->cols ||
        (op->width && (!op->each || op->part || op->col < 0 || op->col + op->n > op->width)) ||
        (op->act >= LLM_GATE_GELU && (!op->each || op->part)))
        ctx_fail(ctx, LLM_ERR_ARG, "gate: columns of a sparse gate out of range");
    record_add(ctx, index, OP_GATE)->op.gate = *op;
}

/* All that is behind it works on the n_out rows whose logits are wanted. */
static void cuda_gather(llm_backend_ctx *ctx, int index, const llm_gather_op *op) {
    const int parts = max_int(op->parts, 1);
    const int32_t *rows = step_staged(ctx).out_rows;
    if ((parts > 1 || op->dst_col) && (op->mean ? 1 : parts) * (op->src->cols - op->src_col) > op->dst->cols - op->dst_col)
        ctx_fail(ctx, LLM_ERR_ARG, "gather: the rows do not fit side by side");
    for (int i = 0; i < ctx->shape.n_out && parts > 1; i++)
        if (rows[i] > ctx->shape.n_rows - parts) ctx_fail(ctx, LLM_ERR_ARG, "gather: rows behind the last one");
    record_add(ctx, index, OP_GATHER)->op.gather = *op;
}

/* Whole rows of the buffer are summed, strides too: one piece of memory is what NCCL takes. */
static void cuda_all_reduce(llm_backend_ctx *ctx, int index, llm_rows rows, llm_buffer *buf, int32_t n) {
    record *rec = record_add(ctx, index, OP_ALL_REDUCE);
    rec->op.reduce.rows = rows;
    rec->op.reduce.buf = buf;
    rec->op.reduce.n = n;
}

/* x goes on to the next stage. */
static void cuda_send(llm_backend_ctx *ctx, int index, const llm_buffer *src) { record_add(ctx, index, OP_SEND)->op.gather.src = src; }

/* src: of the rank that sends, which has recorded it. */
static void cuda_receive(llm_backend_ctx *ctx, int index, llm_buffer *dst, const llm_buffer *src) {
    if (dst->stride != src->stride) ctx_fail(ctx, LLM_ERR_ARG, "receive: rows of another width");
    record_add(ctx, index, OP_RECEIVE)->op.gather.dst = dst;
}

/* With several ranks each has its share of the vocabulary, in order of the ranks; fewer rows of it where a head guesses among fewer
 * tokens. */
static void cuda_logits(llm_backend_ctx *ctx, int index, const llm_logits_op *op) {
    if (op->vocab_begin < 0 || (int64_t)op->vocab_begin + op->head->rows > ctx->vocab ||
        (ctx->n_world > 1 && op->head->rows > ctx->ranks[index].vocab))
        ctx_fail(ctx, LLM_ERR_ARG, "logits: more of them than the output weights have rows");
    record_add(ctx, index, OP_LOGITS)->op.logits = *op;
}

/* Recorded whenever a sequence of the step has an adapter, also where no adapter has anything for this layer: what is recorded may depend
 * on the shape only. Twin: llm__cpu_lora. */
static void cuda_lora(llm_backend_ctx *ctx, int index, const llm_lora_op *op) {
    lora_check(ctx, op->site);
    record_add(ctx, index, OP_LORA)->op.lora = *op;
}

/* The layer's page must have values for a whole row, in parts. Twin: llm__cpu_state. */
static void cuda_state(llm_backend_ctx *ctx, int index, const llm_state_op *op) {
    const kv_place *p = op->layer >= 0 && op->layer < ctx->n_layers ? &ctx->places[op->layer] : NULL;
    if (!p || (int64_t)p->n_kv_heads * p->v_head_dim != op->buf->cols)
        ctx_fail(ctx, LLM_ERR_ARG, "state: the layer does not fit the KV cache");
    record_add(ctx, index, OP_STATE)->op.state = *op;
}

/* Refuses values [state, state + n) that a layer does not have. Twin: llm__check_state. */
static void state_check(llm_backend_ctx *ctx, int layer, int64_t state, int64_t n) {
    if (layer < 0 || layer >= ctx->n_layers || state < 0 || n < 0 || state + n > ctx->places[layer].n_state)
        ctx_fail(ctx, LLM_ERR_ARG, "the state of a recurrent layer does not fit the KV cache");
}

/* Twin: llm__cpu_conv. */
static void cuda_conv(llm_backend_ctx *ctx, int index, const llm_conv_op *op) {
    const int64_t last = max_int(op->col, max_int(op->before_col, op->after_col));
    state_check(ctx, op->layer, op->state, (int64_t)(op->taps - 1) * op->n);
    if (op->taps < 2 || op->taps > LLM_CONV_TAPS || op->n < 1 || op->col < 0 || last + op->n > op->buf->cols ||
        (op->dst && op->dst->cols < op->n))
        ctx_fail(ctx, LLM_ERR_ARG, "conv: taps or columns out of range");
    record_add(ctx, index, OP_CONV)->op.conv = *op;
}

/* How many values a weight has. */
static int64_t weight_size(const llm_weight *w) { return w->rows * w->cols; }

/* Twin: llm__cpu_recur, which has no limit of dk: here a state's column has to fit the registers of some lanes. */
static void cuda_recur(llm_backend_ctx *ctx, int index, const llm_recur_op *op) {
    char why[128];
    state_check(ctx, op->layer, op->state, (int64_t)op->n_heads * op->dk * op->dv);
    snprintf(why, sizeof why, "recur: heads with keys of %d values, expected at most %d", op->dk, RECUR_MOST);
    if (op->dk > RECUR_MOST) ctx_fail(ctx, LLM_ERR_UNSUPPORTED, why);
    if (op->n_groups < 1 || (!op->turns && op->n_heads % op->n_groups) || op->turns < 0 || op->dk < 1 || op->dv < 1 ||
        op->dst->cols < (int64_t)op->n_heads * op->dv || (int64_t)op->n_heads * ceil_div(op->dv, RECUR_COLS) > 65535)
        ctx_fail(ctx, LLM_ERR_ARG, "recur: heads, groups or widths out of range");
    else if (!op->decay || !op->decay_bias || weight_size(op->decay) != (int64_t)op->n_heads * (op->decay_keys ? op->dk : 1) ||
             weight_size(op->decay_bias) != (int64_t)op->n_heads * (op->step_keys ? op->dk : 1) || (op->step_keys && op->write_col < 0))
        ctx_fail(ctx, LLM_ERR_ARG, "recur: decays and steps do not fit the heads");
    record_add(ctx, index, OP_RECUR)->op.recur = *op;
}

/* Twin: llm__cpu_streams. */
static void cuda_streams(llm_backend_ctx *ctx, int index, const llm_streams_op *op) {
    const int64_t n = op->n, factors = op->kind == LLM_STREAMS_LEVEL ? 0 : op->kind == LLM_STREAMS_PREDICT ? n * n * n : n * n;
    if (n < 1 || n > LLM_MAX_STREAMS || op->active < 0 || op->active >= n || op->cols < 1 || n * op->cols > op->x->cols ||
        (op->dst && op->dst->cols < op->cols) || (op->y && op->y->cols < op->cols) || (op->scale && weight_size(op->scale) != op->cols))
        ctx_fail(ctx, LLM_ERR_ARG, "streams: more of them than the buffers have columns for");
    else if (factors && (!op->gate || op->gate->cols < n || !op->weight || weight_size(op->weight) != factors ||
                         (op->kind == LLM_STREAMS_CORRECT && !op->y)))
        ctx_fail(ctx, LLM_ERR_ARG, "streams: coefficients do not fit them");
    record_add(ctx, index, OP_STREAMS)->op.streams = *op;
}

/* Rows start on vectors of 16 bytes. */
static llm_result cuda_buffer(llm_backend_ctx *ctx, int index, int64_t rows, int64_t cols, llm_buffer **out) {
    *out = NULL;
    if (index < 0 || index >= ctx->n_ranks || rows < 1 || cols < 1 || cols > INT32_MAX / 4 || rows > INT32_MAX)
        return fail_with(&ctx->cfg, LLM_ERR_ARG, "buffer: bad rank, rows or columns");
    llm_buffer *b = list_new(&ctx->buffers, &ctx->n_buffers, &ctx->buffer_cap);
    if (!b) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    rank *r = &ctx->ranks[index];
    select_device(r);
    b->rows = rows;
    b->cols = cols;
    b->stride = (cols + 3) & ~(int64_t)3;
    b->rank = index;
    b->data = (float *)device_memory(r, (size_t)(b->rows * b->stride) * sizeof(float), "buffers");
    *out = b;
    return rank_result(r);
}

/* Pinned memory of all steps that may be under way, in the place of what was there; 0: none. Pinned, for only from there a copy runs beside
 * the kernels. */
static int pinned_blocks(llm_backend_ctx *ctx, void **to, size_t bytes) {
    for (unsigned i = 0; i < ctx->n_flight; i++) {
        cudaFreeHost(to[i]);
        to[i] = NULL;
        if (!rank_ok(&ctx->ranks[0], cudaMallocHost(&to[i], bytes ? bytes : 16), "pinned memory")) return 0;
        memset(to[i], 0, bytes ? bytes : 16);
    }
    return 1;
}

/* 1: the devices of ranks [first, first + n) can read each other's memory; then they may from now on. */
static int peers_reach(llm_backend_ctx *ctx, int first, int n) {
    for (int i = first; i < first + n; i++)
        for (int k = first; k < first + n; k++) {
            int can = 0;
            if (getenv("LLM_CUDA_NO_PEERS")) return 0;
            if (i == k || ctx->one_device) continue;
            if (cudaDeviceCanAccessPeer(&can, ctx->ranks[i].device, ctx->ranks[k].device) != cudaSuccess || !can) return 0;
            select_device(&ctx->ranks[i]);
            cudaError_t e = cudaDeviceEnablePeerAccess(ctx->ranks[k].device, 0);
            cudaGetLastError();
            if (e != cudaSuccess && e != cudaErrorPeerAccessAlreadyEnabled) return 0;
        }
    return 1;
}

/* Blocks that may wait for other ranks': what every device has room for at once, see >>ranks. */
static int sum_blocks(const llm_backend_ctx *ctx) {
    int blocks = min_int(TWO_SHOT_ROWS, ctx->cfg.max_rows);
    for (int i = 0; i < ctx->n_ranks; i++)
        blocks = min_int(blocks, ctx->one_device ? max_int(ctx->ranks[i].n_sms / (2 * ctx->n_ranks), 1) : 2 * ctx->ranks[i].n_sms);
    return blocks;
}

/* Boxes and flags of every rank for sums over the residual stream, as wide as the widest embedding or head. Where devices cannot reach
 * each other, NCCL does all. */
static void peers_open(llm_backend_ctx *ctx) {
    const int blocks = sum_blocks(ctx);
    int64_t width = 0;
    for (int i = 0; i < ctx->n_weights; i++)
        if (ctx->all_weights[i]->role == LLM_ROLE_EMBED || ctx->all_weights[i]->role == LLM_ROLE_HEAD)
            width = ctx->all_weights[i]->cols > width ? (ctx->all_weights[i]->cols + 3) & ~(int64_t)3 : width;
    if (ctx->n_group == 1 || ctx->n_group > ctx->n_ranks || width <= ctx->peer_width) return; /* in another process: NCCL does all */
    ctx->peer_width = width;
    for (int first = 0; first < ctx->n_ranks; first += ctx->n_group) {
        if (!peers_reach(ctx, first, ctx->n_group)) {
            if (ctx->cfg.batch_invariant && ctx->n_group > 2) /* of two the order does not matter */
                ctx_fail(ctx, LLM_ERR_UNSUPPORTED,
                         "batch_invariant: devices cannot reach each other's memory, and NCCL sums in an order that depends on the batch");
            continue;
        }
        for (int i = first; i < first + ctx->n_group; i++) {
            rank *r = &ctx->ranks[i];
            select_device(r);
            float *box = (float *)device_memory(r, (size_t)((blocks + 2 * ONE_SHOT_ROWS) * width) * sizeof *box, "sums over ranks");
            uint32_t *flags = (uint32_t *)device_memory(r, (size_t)(blocks * MAX_RANKS) * sizeof *flags, "sums over ranks");
            r->peers.turn = (uint32_t *)device_memory(r, (size_t)blocks * sizeof *flags, "sums over ranks");
            for (int k = first; k < first + ctx->n_group; k++) {
                ctx->ranks[k].peers.box[i - first] = box;
                ctx->ranks[k].peers.flags[i - first] = flags;
            }
            r->peers.index = i - first;
            r->peers.blocks = blocks;
            r->peers.width = width;
            r->peers.stop = ctx->stop_waiting;
            r->peers.n = ctx->n_group;
            rank_ok(r, cudaStreamSynchronize(r->stream), "sums over ranks");
        }
    }
}

/* all (processes, each): ours is there, then the others' are too. */
static llm_result world_share(llm_backend_ctx *ctx, void *all, size_t each) {
    return ctx->n_world > ctx->n_ranks ? ctx->cfg.share(ctx->cfg.nodes, all, each) : LLM_OK;
}

/* After the last weight: logits of every rank, memory for drawing, and what operations share. Called again after a draft model, whose
 * vocabulary may be another. */
static llm_result cuda_weights_done(llm_backend_ctx *ctx) {
    size_t out = (size_t)max_int(ctx->cfg.max_out, 1), scratch = 64 << 20, total = 0, left = 0;
    const int64_t had = ctx->widest;
    ctx->vocab = ctx->widest = 0;
    for (int i = 0; i < ctx->n_weights; i++) /* what was made while a model was loaded is gone: its address may be another matrix's next */
        if (ctx->all_weights[i]->segment.read) ctx->all_weights[i]->source = NULL;
    for (int i = 0; i < ctx->n_ranks; i++) ctx->vocabs[ctx->first + i] = ctx->ranks[i].vocab;
    llm_result result = world_share(ctx, ctx->vocabs, (size_t)ctx->n_ranks * sizeof *ctx->vocabs);
    if (result) return result;
    for (int i = 0; i < ctx->n_world; i++) {
        ctx->vocab += ctx->vocabs[i];
        ctx->widest = ctx->vocabs[i] > ctx->widest ? ctx->vocabs[i] : ctx->widest;
    }
    size_t bent = masks_bytes(ctx) + LLM_DRAW_CHANGES * sizeof(change);
    for (int i = 0; i < ctx->n_ranks; i++) {
        rank *r = &ctx->ranks[i];
        select_device(r);
        for (int k = 0; k < 2; k++) { /* the stage has done its work */
            if (r->stage_used[k]) rank_ok(r, cudaEventSynchronize(r->stage_free[k]), "loading");
            if (r->stage[k]) {
                cudaFreeHost(r->stage[k]);
                device_free(r, r->stage_device[k], (size_t)r->stage_bytes);
                cudaEventDestroy(r->stage_free[k]);
            }
            r->stage[k] = NULL;
            r->stage_free[k] = NULL;
            r->stage_used[k] = 0;
        }
        if (r->logits && ctx->widest != had) device_free(r, r->logits, out * (size_t)had * 4), r->logits = NULL;
        if (r->vocab && !r->logits) r->logits = (float *)device_memory(r, out * (size_t)ctx->widest * 4, "logits");
        if (r->vocab && ctx->cfg.device_draws) {
            r->weights = (float *)device_memory(r, out * (size_t)ctx->vocab * 4, "sampler");
            r->parts = (draw_part *)device_memory(r, out * (size_t)draw_parts(ctx->vocab) * sizeof *r->parts, "sampler");
            r->bent = (uint8_t *)device_memory(r, bent, "sampler");
            r->view.masks = (uint32_t *)r->bent;
            r->view.changes = (change *)(r->bent + masks_bytes(ctx));
            if (ctx->n_group > 1) r->gathered = (float *)device_memory(r, out * (size_t)ctx->widest * (size_t)ctx->n_group * 4, "sampler");
            if (ctx->n_group > 1) r->flat = (float *)device_memory(r, out * (size_t)ctx->vocab * 4, "sampler");
        }
        cudaMemGetInfo(&left, &total);
        rank_scratch(r, total >= (size_t)8 << 30 ? (size_t)256 << 20 : scratch / 4);
        rank_scratch(r, (size_t)index_stride(ctx->cfg.indexed) * sizeof(float)); /* a row's scores at least */
        if (ctx->cfg.compute != LLM_COMPUTE_F32) cublas_open(r, total >= (size_t)8 << 30 ? (size_t)32 << 20 : 0);
        rank_ok(r, cudaStreamSynchronize(r->stream), "loading");
        if (r->failed) return rank_result(r);
    }
    peers_open(ctx);
    for (int i = 0; i < ctx->n_ranks; i++)
        if (ctx->ranks[i].failed) return rank_result(&ctx->ranks[i]);
    if (ctx->vocab && (!pinned_blocks(ctx, (void **)ctx->logits, out * (size_t)ctx->vocab * 4) ||
                       !pinned_blocks(ctx, (void **)ctx->drawn, out * sizeof(llm_drawn)) ||
                       (ctx->cfg.device_draws && !pinned_blocks(ctx, (void **)ctx->bent, bent))))
        return rank_result(&ctx->ranks[0]);
    return ctx_result(ctx);
}

/* Lays out a page; places may be NULL, then only the size is wanted. Values are as wide as attention takes them, or latents beside an
 * indexer's keys. 0: it does not fit. Twin: llm__kv_layout. */
static int64_t kv_layout(const llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens, kv_place *places) {
    const int type = ctx->kv_type, most = ctx->cfg.indexed ? 1024 : MAX_VALUES;
    int64_t at = 0, bytes = type == LLM_KV_F32 ? 4 : type <= LLM_KV_BF16 ? 2 : 1, halve = type == LLM_KV_INT4;
    if (page_tokens < 16 || page_tokens > 4096 || page_tokens % 16 || n_layers < 0) return 0;
    for (int i = 0; i < n_layers; i++) {
        const llm_kv_layer *s = &layers[i];
        int vd = s->v_head_dim ? s->v_head_dim : s->head_dim;
        if (s->n_state < 0 || s->n_kv_heads < !s->n_state || s->head_dim < (s->n_kv_heads > 0) || s->head_dim > 1024 || s->v_head_dim < 0 ||
            (s->v_head_dim && vd > most))
            return 0;
        kv_place p;
        p.n_kv_heads = s->n_kv_heads;
        p.head_dim = s->head_dim;
        p.v_head_dim = s->v_head_dim;
        p.k_elements = halve ? (s->head_dim + 1) / 2 : s->head_dim;
        p.v_elements = halve ? (s->v_head_dim + 1) / 2 : s->v_head_dim;
        p.offset = at;
        p.v_offset = (page_tokens * bytes * p.k_elements + 63) & ~(int64_t)63;
        p.scale_offset = (p.v_offset + page_tokens * bytes * p.v_elements + 63) & ~(int64_t)63;
        p.head_bytes = (p.scale_offset + (bytes == 1 ? page_tokens * 16 : 0) + 63) & ~(int64_t)63;
        p.state_offset = at + p.head_bytes * p.n_kv_heads;
        p.n_state = s->n_state;
        at = p.state_offset + ((s->n_state * (int64_t)sizeof(float) + 63) & ~(int64_t)63);
        if (places) places[i] = p;
    }
    return at;
}

/* Of one rank; 0: pages of such layers are not possible. */
static int64_t cuda_kv_page_bytes(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens) {
    return kv_layout(ctx, n_layers, layers, page_tokens, NULL);
}

/* Every shape of the model's matrices once through the product, with the most rows that a step may have, and none of them there: nothing is
 * computed or written, but what the driver and cuBLASLt load and keep at the first use is taken before memory is shared out. */
static void profile_products(rank *r) {
    const llm_backend_ctx *ctx = r->ctx;
    const int32_t most = r->scratch_bytes < (size_t)64 << 20 ? min_int(ctx->cfg.max_rows, 64) : ctx->cfg.max_rows;
    const int32_t rows[3] = {1, min_int(4, most), most};
    for (int i = 0; i < ctx->n_weights; i++) {
        const llm_weight *w = ctx->all_weights[i];
        int known = w->rank != r->index || !w->n_parts || w->n_groups > 1 || w->role == LLM_ROLE_EMBED;
        for (int k = 0; k < i && !known; k++) {
            const llm_weight *v = ctx->all_weights[k];
            known = v->rank == w->rank && v->n_parts && v->role == w->role && v->rows == w->rows && v->cols == w->cols &&
                    v->parts[0].kind == w->parts[0].kind;
        }
        for (int k = 0; k < 3 && !known; k++) {
            float *none = (float *)r->scratch;                                                  /* is not touched */
            const linear_args a = {.x = none, .out = none, .n_rows = r->view.head, .scale = 2}; /* no rows before the first step */
            run_product(r, w, product_args(w, NULL, NULL, a), rows[k]);
        }
    }
    rank_ok(r, cudaStreamSynchronize(r->stream), "profile run");
}

/* What a rank may use for pages: its share of the memory, less what is used after a profile run, by others too, and a little for graphs; or
 * (all) what is free. The least of all ranks counts, since a page is one number for all of them. */
static int64_t cuda_kv_memory(llm_backend_ctx *ctx, int all) {
    int64_t least = INT64_MAX;
    double share = ctx->cfg.memory_utilization > 0 ? ctx->cfg.memory_utilization : 0.9;
    for (int i = 0; i < ctx->n_ranks; i++) {
        size_t left = 0, total = 0;
        select_device(&ctx->ranks[i]);
        if (!ctx->begun) profile_products(&ctx->ranks[i]);
        if (!rank_ok(&ctx->ranks[i], cudaMemGetInfo(&left, &total), "memory")) return 0;
        int64_t mine = (all ? (int64_t)left : (int64_t)((double)total * share) - (int64_t)(total - left)) - (int64_t)(total / 256);
        least = mine < least ? mine : least;
    }
    return least < 0 ? 0 : least;
}

/* A made-up problem of attention: one sequence of 2 T positions, of which the step has the last T as rows, of 4 heads a KV head. It lies in
 * one piece of device memory: the step's block, pages, queries, two results. */
typedef struct chunk_trial {
    step_view view;
    kv_view kv;
    attention_args a;
    int n_kv_heads;
    uint8_t *memory;
    size_t bytes, out_bytes;
} chunk_trial;

/* Makes it: values of 0.25 to 2 in size, bytes with scales that make them so. 0: no memory. */
static int chunk_trial_open(rank *r, const llm_kv_layer *layer, chunk_trial *t) {
    enum { TOKENS = 64, GROUP = 4 };
    const int type = r->ctx->kv_type, bytes = type <= LLM_KV_BF16 ? 2 : 1, T = 8 * r->n_sms + 1, n_pages = ceil_div(2 * T, TOKENS);
    const llm_kv_layer l = {.n_kv_heads = max_int(1, r->n_sms / 16), .head_dim = layer->head_dim, .v_head_dim = layer->v_head_dim};
    kv_place place;
    const size_t page_bytes = (size_t)kv_layout(r->ctx, 1, &l, TOKENS, &place), kv_bytes = page_bytes * n_pages;
    const size_t at = align256((size_t)(STEP_HEAD + T + 3 + n_pages) * 4), q = align256(at + kv_bytes);
    const int heads = GROUP * l.n_kv_heads, q_stride = heads * l.head_dim, out_stride = heads * l.v_head_dim;
    const size_t out = align256(q + (size_t)T * q_stride * 4);
    t->out_bytes = align256((size_t)T * out_stride * 4);
    t->bytes = out + 2 * t->out_bytes;
    t->memory = (uint8_t *)device_memory(r, t->bytes, "a trial of attention");
    uint8_t *host = (uint8_t *)calloc(1, out);
    if (!t->memory || !host) return free(host), 0;
    int32_t *head = (int32_t *)host, *begin = head + STEP_HEAD + T, *pages = begin + 3;
    head[HEAD_ROWS] = begin[1] = T, head[HEAD_SEQS] = 1, head[HEAD_STRIDE] = n_pages, begin[2] = 2 * T;
    for (int i = 0; i < n_pages; i++) pages[i] = n_pages - 1 - i;
    uint8_t *kv = host + at;
    uint32_t x = 1;
    const auto next = [&] { return (x = x * 1664525 + 1013904223) >> 16; };
    for (size_t i = 0; i < kv_bytes / 2; i++) {
        const uint32_t v = next();
        const uint16_t h = (uint16_t)(type == LLM_KV_F16    ? (v & 0x8bff) | 0x3400
                                      : type == LLM_KV_BF16 ? (v & 0x80ff) | 0x3f00
                                                            : v & 0xbfbf);
        memcpy(kv + 2 * i, &h, 2);
    }
    for (size_t i = 0; i < kv_bytes && bytes == 1; i += (size_t)place.head_bytes)
        for (int k = 0; k < 4 * TOKENS; k++) ((float *)(kv + i + place.scale_offset))[k] = type == LLM_KV_INT8 ? 0.02f : 0.5f;
    for (size_t i = 0; i < (size_t)T * q_stride; i++) ((float *)(host + q))[i] = (float)next() / 32768 - 1;
    rank_ok(r, cudaMemcpyAsync(t->memory, host, out, cudaMemcpyHostToDevice, r->stream), "trial");
    rank_ok(r, cudaMemsetAsync(t->memory + out, 0xff, 2 * t->out_bytes, r->stream), "trial"); /* NaN */
    rank_ok(r, cudaStreamSynchronize(r->stream), "trial");
    free(host);
    const int32_t *on = (const int32_t *)t->memory;
    t->view = {.head = on,
               .seq_of_row = on + STEP_HEAD,
               .seq_begin = on + STEP_HEAD + T,
               .seq_len = on + STEP_HEAD + T + 2,
               .pages = on + STEP_HEAD + T + 3};
    t->kv = {t->memory + at, place, (int64_t)page_bytes, TOKENS, type, bytes == 1, bytes};
    t->n_kv_heads = l.n_kv_heads;
    t->a = {.q = {(float *)(t->memory + q), q_stride},
            .out = {(float *)(t->memory + out), out_stride},
            .n_heads = heads,
            .group = GROUP,
            .n_rows = T,
            .hd = l.head_dim,
            .vd = l.v_head_dim,
            .scale = 1 / sqrtf((float)l.head_dim)};
    return !r->failed;
}

/* Whether both results on the device, of n floats and `bytes` apart, are the same but for rounding. What was not written is NaN, and
 * fails. */
static int trial_agrees(rank *r, const float *results, size_t n, size_t bytes) {
    float *both = (float *)malloc(2 * bytes), top = 0, worst = 0;
    int right = both && rank_ok(r, cudaMemcpyAsync(both, results, 2 * bytes, cudaMemcpyDeviceToHost, r->stream), "trial") &&
                rank_ok(r, cudaStreamSynchronize(r->stream), "trial");
    for (size_t i = 0; i < n && right; i++) {
        const float x = both[i], y = both[bytes / 4 + i];
        right = x == x && y == y;
        top = fmaxf(top, fabsf(x)), worst = fmaxf(worst, fabsf(x - y));
    }
    free(both);
    return right && worst <= top / 64;
}

/* Milliseconds of what run() launches, the least of some tries. */
template <class F> static float trial_ms(rank *r, F run) {
    cudaEvent_t from = NULL, to = NULL;
    float best = INFINITY, ms = 0;
    rank_ok(r, cudaEventCreateWithFlags(&from, cudaEventDefault), "event");
    rank_ok(r, cudaEventCreateWithFlags(&to, cudaEventDefault), "event");
    for (int i = 0; i < (EMULATED ? 1 : 6) && !r->failed; i++) {
        cudaEventRecord(from, r->stream);
        run();
        cudaEventRecord(to, r->stream);
        rank_ok(r, cudaEventSynchronize(to), "a trial of wgmma");
        if (!r->failed && cudaEventElapsedTime(&ms, from, to) == cudaSuccess) best = fminf(best, ms);
    }
    if (from) cudaEventDestroy(from);
    if (to) cudaEventDestroy(to);
    return best;
}

/* What describe says of a trial. */
static const char *trial_says(int right, int taken) {
    return taken ? "wgmma" : right ? "mma.sync, as wgmma is slower" : "mma.sync, as wgmma gives something else";
}

/* Chooses, before the first step and for all of them, whether heads of a layer's width go by kernel_attention_groups: on Hopper, where both
 * kernels give the same for a made-up problem and the other is not the faster one. What was found is told by describe. */
static void chunk_try(rank *r, const llm_kv_layer *layer, char *say, size_t size) {
    const int width = max_int(layer->head_dim, layer->v_head_dim) > 64;
    chunk_trial t = {};
    const step_view mine = r->view;
    int right = 0;
    float by_warps = 0, by_groups = 0;
    if (chunk_trial_open(r, layer, &t)) {
        const float *out = t.a.out.x;
        const auto run = [&] { run_chunks(r, t.kv, t.a, t.n_kv_heads); };
        r->view = t.view;
        r->groups[width] = 0, by_warps = trial_ms(r, run);
        t.a.out.x += t.out_bytes / 4;
        r->groups[width] = 1, by_groups = trial_ms(r, run);
        r->view = mine;
        right = trial_agrees(r, out, (size_t)(t.a.n_rows * t.a.out.stride), t.out_bytes);
    }
    device_free(r, t.memory, t.bytes);
    r->groups[width] = right && (EMULATED || by_groups <= by_warps);
    snprintf(say, size, ", heads up to %d by %s", 64 << width, trial_says(right, r->groups[width]));
}

/* chunk_try for each width that layers have. */
static void chunks_choose(rank *r, int n_layers, const llm_kv_layer *layers) {
    llm_backend_ctx *ctx = r->ctx;
    int tried[2] = {};
    if (r->capability != 90 || ctx->kv_type == LLM_KV_F32 || ctx->cfg.batch_invariant || getenv("LLM_CUDA_NO_WGMMA")) return;
    for (int i = 0; i < n_layers && !r->failed; i++) {
        const llm_kv_layer *l = &layers[i];
        const int most = max_int(l->head_dim, l->v_head_dim);
        char said[96];
        if (!l->v_head_dim || l->head_dim % 8 || l->v_head_dim % 8 || most > 128 || tried[most > 64]++) continue;
        chunk_try(r, l, said, sizeof said);
        if (!r->index) strncat(ctx->name, said, sizeof ctx->name - strlen(ctx->name) - 1);
    }
}

/* Whether some experts of a weight give the same by both kernels, for 200 made-up rows each; *faster: and as fast by warpgroups.
 *
 *     begin (n_groups + 1) | x (rows, cols) | the same narrow | both results (rows, per_group) */
static int experts_try(rank *r, const llm_weight *w, int *faster) {
    const int groups = w->n_groups, some = min_int(groups, EMULATED ? 2 : 32), rows = 200 * some;
    const int64_t outs = w->rows / groups;
    const narrow_form form = mma_form(w->parts[0].kind);
    const size_t x = align256((size_t)(groups + 1) * 4), narrow = align256(x + (size_t)rows * (size_t)w->cols * 4);
    const size_t out = align256(narrow + (size_t)rows * narrow_bytes(form, w->subs)), out_bytes = align256((size_t)(rows * outs) * 4);
    uint8_t *memory = (uint8_t *)device_memory(r, out + 2 * out_bytes, "a trial of experts"), *host = (uint8_t *)calloc(1, narrow);
    int right = memory && host;
    if (right) {
        uint32_t seed = 1;
        for (int i = 0; i <= groups; i++) ((int32_t *)host)[i] = 200 * min_int(i, some);
        for (int64_t i = 0; i < rows * w->cols; i++)
            ((float *)(host + x))[i] = (float)((seed = seed * 1664525 + 1013904223) >> 16) / 32768 - 1;
        linear_args a = {.x = (float *)(memory + x),
                         .x_stride = w->cols,
                         .out = (float *)(memory + out),
                         .out_stride = outs,
                         .n_rows = (int32_t *)memory + groups,
                         .begin = (int32_t *)memory,
                         .scale = 1};
        a = product_args(w, NULL, NULL, a);
        a.gate_up = 0; /* every sum is an output */
        rank_ok(r, cudaMemcpyAsync(memory, host, narrow, cudaMemcpyHostToDevice, r->stream), "trial");
        rank_ok(r, cudaMemsetAsync(memory + out, 0xff, 2 * out_bytes, r->stream), "trial"); /* NaN */
        const narrow_view v = slots_narrow(r, a, form, a.n_rows, rows, memory + narrow);
        float ms[2];
        for (int by = BY_WARPS; by <= BY_GROUPS; by++) {
            ms[by] = trial_ms(r, [&] {
                for (int i = 0; i < w->n_parts; i++) a.w = w->parts[i], launch_mma(r, a, v, rows, by);
            });
            a.out += out_bytes / 4;
        }
        right = trial_agrees(r, (float *)(memory + out), (size_t)(rows * outs), out_bytes);
        *faster = EMULATED || ms[BY_GROUPS] <= ms[BY_WARPS];
    }
    free(host);
    device_free(r, memory, out + 2 * out_bytes);
    return right;
}

/* experts_try of a weight of each kind that experts have. */
static void experts_choose(rank *r) {
    llm_backend_ctx *ctx = r->ctx;
    uint32_t tried = 0;
    int right = 1;
    if (r->capability != 90 || ctx->cfg.batch_invariant || getenv("LLM_CUDA_NO_WGMMA")) return;
    for (int i = 0; i < ctx->n_weights && !r->failed; i++) {
        const llm_weight *w = ctx->all_weights[i];
        uint32_t kinds = 0;
        int same, faster = 0;
        for (int k = 0; k < w->n_parts; k++) kinds |= 1u << w->parts[k].kind;
        if (w->rank != r->index || w->n_groups < 2 || !(kinds & ~tried) || !experts_form(r, w, 17)) continue;
        right &= same = experts_try(r, w, &faster);
        tried |= kinds;
        if (same && faster) r->expert_groups |= kinds;
    }
    if (!tried || r->index) return;
    strncat(ctx->name, ", experts by ", sizeof ctx->name - strlen(ctx->name) - 1);
    strncat(ctx->name, trial_says(right, tried == r->expert_groups), sizeof ctx->name - strlen(ctx->name) - 1);
}

/* Takes the pages of every rank, zeroed. Twin: llm__cpu_kv_open. */
static llm_result cuda_kv_open(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens, int64_t n_pages) {
    if (ctx->places) return fail_with(&ctx->cfg, LLM_ERR_ARG, "kv_open: called twice");
    ctx->places = (kv_place *)calloc((size_t)max_int(n_layers, 1), sizeof *ctx->places);
    if (!ctx->places) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    ctx->page_bytes = kv_layout(ctx, n_layers, layers, page_tokens, ctx->places);
    if ((n_layers && !ctx->page_bytes) || n_pages < 1 || n_pages > INT32_MAX)
        return fail_with(&ctx->cfg, LLM_ERR_ARG,
                         "kv_open: %d layers, %d tokens a page, %lld pages: expected a multiple of 16 tokens, heads of at most %d values "
                         "and at least a page",
                         n_layers, page_tokens, (long long)n_pages, MAX_VALUES);
    ctx->n_layers = n_layers;
    ctx->page_tokens = page_tokens;
    ctx->n_pages = n_pages;
    for (int i = 0; i < ctx->n_ranks; i++) {
        rank *r = &ctx->ranks[i];
        select_device(r);
        chunks_choose(r, n_layers, layers);
        experts_choose(r);
        r->kv = (uint8_t *)device_memory(r, (size_t)(ctx->page_bytes * n_pages), "the KV cache");
        if (r->failed) return rank_result(r);
    }
    return LLM_OK;
}

/* Of all ranks, adapters and their staging memory included. */
static int64_t cuda_memory_used(llm_backend_ctx *ctx) {
    int64_t n = 0;
    for (int i = 0; i < ctx->n_ranks; i++) n += ctx->ranks[i].bytes + (ctx->loaders ? ctx->loaders[i].bytes : 0);
    return n;
}

static const char *cuda_describe(llm_backend_ctx *ctx) { return ctx->name; }

template <int N> static void events_close(const cudaEvent_t (&events)[N]) {
    for (cudaEvent_t event : events)
        if (event) cudaEventDestroy(event);
}

/* Frees whatever open and the others took, also after one of them failed halfway. */
static void rank_close(rank *r) {
    if (!r->ctx) return;
    cudaSetDevice(r->device);
    for (int i = 0; i < r->n_graphs; i++) cudaGraphExecDestroy(r->graphs[i].exec);
    if (r->cublas) cublas.destroy(r->cublas);
    for (int i = 0; i < r->n_memory; i++) cudaFree(r->memory[i]);
    for (uint8_t *stage : r->stage)
        if (stage) cudaFreeHost(stage);
    events_close(r->stage_free), events_close(r->done), events_close(r->around), events_close(r->from), events_close(r->to);
    if (r->back_after) cudaEventDestroy(r->back_after);
    if (r->back) cudaStreamDestroy(r->back);
    if (r->stream) cudaStreamDestroy(r->stream);
    free(r->memory);
    free(r->list);
    free(r->choices);
}

/* Seconds that a thread or a device gets to come back. */
static double close_limit(const llm_backend_ctx *ctx) { return fmin(10, 10 * step_limit(ctx)); }

/* Ends the ranks' threads; 0: one does not come back. */
static int threads_end(llm_backend_ctx *ctx) {
    pthread_mutex_lock(&ctx->mutex);
    ctx->stop = 1;
    pthread_cond_broadcast(&ctx->go);
    int all = idle_wait(ctx, &ctx->alive, close_limit(ctx));
    pthread_mutex_unlock(&ctx->mutex);
    for (int i = 0; i < ctx->n_ranks; i++)
        if (ctx->ranks[i].has_thread && all) pthread_join(ctx->ranks[i].thread, NULL);
        else if (ctx->ranks[i].has_thread) pthread_detach(ctx->ranks[i].thread);
    return all;
}

/* After a mistake: whether all devices have ended what they were given. */
static int devices_end(llm_backend_ctx *ctx) {
    double until = seconds() + close_limit(ctx);
    for (int i = 0; i < 2 * ctx->n_ranks; i++) {
        const rank *r = &ctx->ranks[i / 2];
        const cudaStream_t stream = i % 2 ? r->back : r->stream;
        cudaError_t e = cudaErrorNotReady;
        if (!stream) continue;
        cudaSetDevice(r->device);
        while ((e = cudaStreamQuery(stream)) == cudaErrorNotReady && seconds() < until) usleep(1000);
        if (e == cudaErrorNotReady) return 0;
    }
    return 1;
}

/* All ranks' communicators at once: to end one waits for its others. */
static void comms_close(llm_backend_ctx *ctx) {
    int any = 0;
    for (int i = 0; i < ctx->n_ranks; i++)
        for (void *comm : ctx->ranks[i].comms) any |= comm != NULL;
    if (!any || ctx->aborted) return;
    nccl.group_start();
    for (int i = 0; i < ctx->n_ranks; i++)
        for (void *comm : ctx->ranks[i].comms)
            if (comm) nccl.destroy(comm);
    nccl.group_end();
}

/* Threads first, then what they used. After a mistake communicators are aborted before anybody is waited for, as another rank may never
 * come; what does not end in time keeps what it has. Twin: llm__cpu_close. */
static void cuda_close(llm_backend_ctx *ctx) {
    char text[128];
    if (!ctx) return;
    snprintf(text, sizeof text, "device busy %.6f s, idle between steps %.6f s", ctx->busy_s, ctx->idle_s);
    if (ctx->times && ctx->cfg.log) ctx->cfg.log(ctx->cfg.log_user, LLM_LOG_INFO, text);
    for (int i = 0; i < OP_COUNT && ctx->cfg.log; i++) {
        if (!ctx->n_records[i]) continue;
        snprintf(text, sizeof text, "records of %s: %lld, %.3f us each", op_names[i], (long long)ctx->n_records[i],
                 ctx->record_s[i] / (double)ctx->n_records[i] * 1e6);
        ctx->cfg.log(ctx->cfg.log_user, LLM_LOG_INFO, text);
    }
    if (ctx->failed) abort_ranks(ctx);
    int ended = threads_end(ctx);
    if (!ended || (ctx->failed && !devices_end(ctx))) {
        snprintf(text, sizeof text, "cuda backend: a %s does not come back: its memory stays taken", ended ? "device" : "rank's thread");
        if (ctx->cfg.log) ctx->cfg.log(ctx->cfg.log_user, LLM_LOG_WARN, text);
        return;
    }
    for (int i = 0; i < ctx->n_ranks; i++) {
        cudaSetDevice(ctx->ranks[i].device);
        if (ctx->ranks[i].stream) cudaStreamSynchronize(ctx->ranks[i].stream);
        if (ctx->ranks[i].back) cudaStreamSynchronize(ctx->ranks[i].back);
    }
    comms_close(ctx);
    for (int i = 0; i < ctx->n_ranks; i++) rank_close(&ctx->ranks[i]);
    for (int i = 0; i < ctx->n_ranks && ctx->loaders; i++) rank_close(&ctx->loaders[i]);
    cudaFreeHost(ctx->stop_waiting);
    if (ctx->pinned) cudaHostUnregister(ctx->pinned);
    for (unsigned i = 0; i < ctx->n_flight; i++) {
        cudaFreeHost(ctx->staged[i]);
        cudaFreeHost(ctx->more[i]);
        cudaFreeHost(ctx->logits[i]);
        cudaFreeHost(ctx->drawn[i]);
        cudaFreeHost(ctx->bent[i]);
    }
    for (int i = 0; i < ctx->n_weights; i++) {
        free(ctx->all_weights[i]->parts);
        free(ctx->all_weights[i]);
    }
    for (int i = 0; i < ctx->n_buffers; i++) free(ctx->buffers[i]);
    for (int i = 0; i < ctx->n_sites; i++) {
        llm_lora_site *site = ctx->sites[i];
        for (int k = 0; k < site->n_slots && site->held; k++) {
            cudaSetDevice(ctx->ranks[site->rank].device);
            if (site->held[k].memory) cudaFree(site->held[k].memory);
        }
        free(ctx->sites[i]->held);
        free(ctx->sites[i]);
    }
    pthread_mutex_destroy(&ctx->put);
    pthread_mutex_destroy(&ctx->mutex);
    pthread_cond_destroy(&ctx->go);
    pthread_cond_destroy(&ctx->idle);
    free(ctx->all_weights);
    free(ctx->sites);
    free(ctx->loaders);
    free(ctx->buffers);
    free(ctx->places);
    free(ctx->row);
    free(ctx->ranks);
    free(ctx);
}

/* One rank's stream, events, list and step block. */
static void rank_open(rank *r) {
    llm_backend_ctx *ctx = r->ctx;
    int major = 0, minor = 0, driver = 0;
    size_t left = 0, total = 0;
    select_device(r);
    rank_ok(r, cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "stream");
    for (unsigned i = 0; i < ctx->n_flight; i++) rank_ok(r, cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming), "event");
    if (n_stages(ctx) > 1 && !world_rank(r)) {
        rank_ok(r, cudaStreamCreateWithFlags(&r->back, cudaStreamNonBlocking), "stream");
        rank_ok(r, cudaEventCreateWithFlags(&r->back_after, cudaEventDisableTiming), "event");
    }
    for (int i = 0; i < N_TIMES && ctx->times && !r->index; i++) {
        rank_ok(r, cudaEventCreateWithFlags(&r->from[i], cudaEventDefault), "event");
        rank_ok(r, cudaEventCreateWithFlags(&r->to[i], cudaEventDefault), "event");
    }
    for (int i = 0; i < 2 && ctx->each_record && !r->index; i++)
        rank_ok(r, cudaEventCreateWithFlags(&r->around[i], cudaEventDefault), "event");
    rank_ok(r, cudaDeviceGetAttribute(&r->n_sms, cudaDevAttrMultiProcessorCount, r->device), "device");
    rank_ok(r, cudaDeviceGetAttribute(&r->max_smem, cudaDevAttrMaxSharedMemoryPerBlockOptin, r->device), "device");
    rank_ok(r, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, r->device), "device");
    rank_ok(r, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, r->device), "device");
    r->capability = 10 * major + minor;
    r->wide = major == 9;
    r->sync_each = getenv("LLM_CUDA_SYNC") != NULL;
    cudaDriverGetVersion(&driver);
    r->overlap = r->capability >= 90 && driver >= 12030 && !ctx->one_device && !getenv("LLM_CUDA_NO_OVERLAP"); /* 12.3: graphs keep it */
    load_kernels(r);
    rank_ok(r, cudaMemGetInfo(&left, &total), "device");
    r->stage_bytes = total >= (size_t)8 << 30 ? 32 << 20 : 8 << 20;
    r->list = (record *)calloc(MAX_RECORDS, sizeof *r->list);
    if (!r->list) rank_ok(r, cudaErrorMemoryAllocation, "list");
    r->step = (uint8_t *)device_memory(r, ctx->step_bytes, "step");
    r->view = step_at(&ctx->cfg, r->step, &ctx->step_bytes);
    const more_layout l = more_place(&ctx->cfg);
    r->more = (uint8_t *)device_memory(r, l.bytes, "step");
    r->view.given_of = (const int32_t *)r->more;
    r->view.spans = (const int32_t *)(r->more + l.spans);
    r->view.row_set = (const int32_t *)(r->more + l.row_set);
    r->view.given = (const float *)(r->more + l.given);
    const size_t counters = ((size_t)ctx->cfg.max_seqs + 1) * MAX_TILES, pieces = (size_t)(BAND_TILES * 2 * r->n_sms);
    r->most = (unsigned *)device_memory(r, (size_t)max_int(ctx->cfg.max_rows, ctx->cfg.max_out) * sizeof *r->most, "step");
    r->arrived = (unsigned *)device_memory(r, (counters > pieces ? counters : pieces) * sizeof *r->arrived, "step");
    r->drawn = (llm_drawn *)device_memory(r, 2 * (size_t)max_int(ctx->cfg.max_out, 1) * sizeof(llm_drawn), "step");
}

/* NCCL's communicators of ranks first, first + apart, ..., n of all processes' ranks, to each of them that is here. id: the same
 * everywhere. */
static llm_result open_comms(llm_backend_ctx *ctx, int which, int first, int n, int apart, nccl_id id) {
    int e = nccl.group_start();
    for (int i = 0; i < ctx->n_ranks && !e; i++) {
        rank *r = &ctx->ranks[i];
        int at = world_rank(r) - first;
        if (at < 0 || at % apart || at / apart >= n) continue;
        select_device(r);
        e = nccl.init_rank(&r->comms[which], n, id, at / apart);
    }
    int end = nccl.group_end();
    if (!e && !end) return LLM_OK;
    return fail_with(&ctx->cfg, LLM_ERR_BACKEND, "cuda backend: NCCL cannot connect %d devices: %s", n, nccl.error_string(e ? e : end));
}

/* For tests on a machine with one device (LLM_CUDA_TRY_NCCL): a communicator of one rank sums up what it has, which changes nothing. */
static llm_result try_nccl(llm_backend_ctx *ctx) {
    rank *r = &ctx->ranks[0];
    uint32_t *data = (uint32_t *)device_memory(r, 64, "NCCL"), seen = 1;
    nccl_id id;
    if (!nccl_load()) return fail_with(&ctx->cfg, LLM_ERR_IO, "cuda backend: libnccl.so.2 is not there");
    if (!r->failed) nccl_ok(r, nccl.unique_id(&id), "NCCL");
    llm_result result = r->failed ? LLM_OK : open_comms(ctx, COMM_STAGE, 0, 1, 1, id);
    if (result) return result;
    if (!r->failed) nccl_all_reduce(r, (float *)data, 16);
    rank_ok(r, cudaMemcpyAsync(&seen, data, sizeof seen, cudaMemcpyDeviceToHost, r->stream), "NCCL");
    rank_ok(r, cudaStreamSynchronize(r->stream), "NCCL");
    if (!r->failed && seen) return fail_with(&ctx->cfg, LLM_ERR_BACKEND, "cuda backend: NCCL sums up zeros to something else");
    return rank_result(r);
}

/* Each collective that steps use, once: NCCL connects and loads what it needs at the first call, which must not come while ranks wait for
 * each other in kernels. Zeros are summed, gathered and passed around. */
static void rank_connect(rank *r) {
    llm_backend_ctx *ctx = r->ctx;
    size_t each = 16;
    float *data = (float *)device_memory(r, each * sizeof *data * (size_t)(ctx->n_group + 1), "NCCL");
    void *comm = r->comms[COMM_STAGE];
    if (comm && !nccl_gone(r)) nccl_all_reduce(r, data, each);
    if (comm && !nccl_gone(r)) nccl_ok(r, nccl.all_gather(data, data + each, each, NCCL_F32, comm, r->stream), "all-gather");
    if (stage_of(r) + 1 < n_stages(ctx)) run_send(r, data, 16);
    if (stage_of(r)) run_receive(r, data, 16);
    if (r->back) {
        run_receive_back(r, r->drawn, 16);
        rank_ok(r, cudaStreamSynchronize(r->back), "NCCL");
    } else if (r->comms[COMM_BACK]) run_send_back(r, r->drawn, 16);
    rank_ok(r, cudaStreamSynchronize(r->stream), "NCCL");
}

/* Communicators of each stage, and of the pipeline; threads. */
static llm_result open_ranks(llm_backend_ctx *ctx) {
    const int stages = n_stages(ctx), n_here = ctx->n_world / ctx->n_ranks;
    int e = 0;
    if (!ctx->one_device && !nccl_load())
        return fail_with(&ctx->cfg, LLM_ERR_IO, "cuda backend: %d devices need NCCL, but libnccl.so.2 is not there", ctx->n_world);
    size_t each = (size_t)(stages + 2) * sizeof(nccl_id); /* of each stage, of all, of the way back */
    nccl_id *ids = (nccl_id *)calloc((size_t)n_here, each);
    if (!ids) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    for (int i = 0; i < stages + 2 && !ctx->first && !e && !ctx->one_device; i++) e = nccl.unique_id(&ids[i]);
    llm_result result =
        e ? fail_with(&ctx->cfg, LLM_ERR_BACKEND, "cuda backend: NCCL: %s", nccl.error_string(e)) : world_share(ctx, ids, each);
    for (int i = 0; i < stages && ctx->n_group > 1 && !result && !ctx->one_device; i++)
        result = open_comms(ctx, COMM_STAGE, i * ctx->n_group, ctx->n_group, 1, ids[i]);
    if (stages > 1 && !result) result = open_comms(ctx, COMM_PIPE, 0, ctx->n_world, 1, ids[stages]);
    if (stages > 1 && !result) result = open_comms(ctx, COMM_BACK, 0, 2, ctx->n_world - ctx->n_group, ids[stages + 1]);
    free(ids);
    for (int i = 0; i < ctx->n_ranks && !result; i++) {
        if (pthread_create(&ctx->ranks[i].thread, NULL, rank_thread, &ctx->ranks[i]))
            return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of threads");
        ctx->ranks[i].has_thread = 1;
        ctx->alive++;
    }
    if (!result) run_ranks(ctx, rank_connect);
    return result ? result : ctx_result(ctx);
}

/* Everything that open takes besides the context itself. On error the caller closes. */
static llm_result open_parts(llm_backend_ctx *ctx) {
    cudaDeviceProp prop;
    step_at(&ctx->cfg, NULL, &ctx->step_bytes);
    for (int i = 0; i < ctx->n_ranks; i++) {
        rank *r = &ctx->ranks[i];
        r->ctx = ctx;
        r->index = i;
        r->device = ctx->one_device ? 0 : ctx->cfg.first_device + i;
        rank_open(r);
        if (r->failed) return rank_result(r);
    }
    select_device(&ctx->ranks[0]);
    if (!pinned_blocks(ctx, (void **)ctx->staged, ctx->step_bytes)) return rank_result(&ctx->ranks[0]);
    if (!pinned_blocks(ctx, (void **)ctx->more, more_place(&ctx->cfg).bytes)) return rank_result(&ctx->ranks[0]);
    if (!rank_ok(&ctx->ranks[0], cudaMallocHost((void **)&ctx->stop_waiting, sizeof *ctx->stop_waiting), "pinned memory"))
        return rank_result(&ctx->ranks[0]);
    *ctx->stop_waiting = 0;
    ctx->kv_type = ctx->cfg.kv_type;
    if (!ctx->kv_type)
        ctx->kv_type = ctx->cfg.compute == LLM_COMPUTE_F32 ? LLM_KV_F32 : ctx->cfg.compute == LLM_COMPUTE_BF16 ? LLM_KV_BF16 : LLM_KV_F16;
    if (!rank_ok(&ctx->ranks[0], cudaGetDeviceProperties(&prop, 0), "device")) return rank_result(&ctx->ranks[0]);
    snprintf(ctx->name, sizeof ctx->name, "%s, %d device%s, %s", prop.name, ctx->n_world, ctx->n_world == 1 ? "" : "s",
             getenv("LLM_CUDA_NO_CUBLAS")        ? "cuBLASLt is not asked for"
             : cublas_function("cublasLtMatmul") ? "cuBLASLt"
                                                 : "cuBLASLt is not there");
    if (ctx->n_world == 1 && getenv("LLM_CUDA_TRY_NCCL")) return try_nccl(ctx);
    return ctx->n_world > 1 ? open_ranks(ctx) : LLM_OK;
}

/* How many devices there are; on error a sentence that tells a missing driver, one that is too old, and a machine without a device apart.
 */
static llm_result count_devices(const llm_backend_config *cfg, int *n) {
    const char *missing = driver_missing();
    int driver = 0, runtime = 0;
    *n = 0;
    if (missing) return fail_with(cfg, LLM_ERR_BACKEND, "cuda backend: %s", missing);
    cudaError_t e = cudaGetDeviceCount(n);
    if (e == cudaSuccess && *n > 0) return LLM_OK;
    cudaGetLastError();
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver && driver / 1000 < runtime / 1000)
        return fail_with(cfg, LLM_ERR_BACKEND, "cuda backend: the driver is for CUDA %d.%d, this library needs %d.%d", driver / 1000,
                         driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return fail_with(cfg, LLM_ERR_BACKEND, "cuda backend: no device: %s", cudaGetErrorString(e));
}

/* Checks the ranges of the config. On error *out is NULL. */
static llm_result cuda_open(const llm_backend_config *cfg, llm_backend_ctx **out) {
    int n = 0, world = cfg->n_ranks ? cfg->n_ranks : 1, stages = cfg->n_stages ? cfg->n_stages : 1;
    int processes = cfg->n_processes ? cfg->n_processes : 1, ranks = world / processes, group = world / stages, first = cfg->first_device;
    *out = NULL;
    if (cfg->max_rows < 1 || cfg->max_out < 0 || cfg->max_seqs < 1 || cfg->max_pages_per_seq < 1)
        return fail_with(cfg, LLM_ERR_ARG,
                         "cuda backend: max_rows %d, max_out %d, max_seqs %d, max_pages_per_seq %d: expected at least 1 (max_out: 0)",
                         cfg->max_rows, cfg->max_out, cfg->max_seqs, cfg->max_pages_per_seq);
    if (ranks < 1 || ranks > MAX_RANKS || world > MAX_WORLD || stages < 1 || world % stages || cfg->kv_type < LLM_KV_AUTO ||
        cfg->kv_type > LLM_KV_INT4)
        return fail_with(cfg, LLM_ERR_ARG, "cuda backend: n_ranks %d (1 to %d), kv_type %d: out of range", ranks, MAX_RANKS,
                         (int)cfg->kv_type);
    if (cfg->indexed < 0) return fail_with(cfg, LLM_ERR_ARG, "cuda backend: indexed %d: expected at least 0", cfg->indexed);
    if (cfg->n_flight < 0 || cfg->n_flight > LLM_FLIGHT_MAX)
        return fail_with(cfg, LLM_ERR_ARG, "cuda backend: n_flight %d: 0 to %d expected", cfg->n_flight, LLM_FLIGHT_MAX);
    if (processes > 1 && (world % processes || (group % ranks && ranks % group)))
        return fail_with(cfg, LLM_ERR_ARG,
                         "cuda backend: %d ranks in %d processes, %d a stage: whole stages a process, or whole processes a stage, expected",
                         world, processes, group);
    if (group > ranks && cfg->batch_invariant)
        return fail_with(cfg, LLM_ERR_UNSUPPORTED,
                         "batch_invariant: NCCL sums over the %d processes of a stage, in an order that depends on the batch",
                         group / ranks);
    llm_result result = count_devices(cfg, &n);
    if (result) return result;
    if (n == ranks) first = 0; /* those that this process sees are its own */
    if (n < first + ranks && processes > 1)
        return fail_with(cfg, LLM_ERR_ARG, "cuda backend: devices %d to %d are for this process, but there %s %d", first, first + ranks - 1,
                         n == 1 ? "is" : "are", n);
    if (n < ranks && !getenv("LLM_CUDA_ONE_DEVICE"))
        return fail_with(cfg, LLM_ERR_ARG, "cuda backend: tensor parallel size %d%s, but there %s %d device%s", group,
                         stages > 1 ? " in a pipeline" : "", n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    llm_backend_ctx *ctx = (llm_backend_ctx *)calloc(1, sizeof *ctx);
    if (ctx) ctx->ranks = (rank *)calloc((size_t)ranks, sizeof *ctx->ranks);
    if (!ctx || !ctx->ranks) {
        free(ctx);
        return fail_with(cfg, LLM_ERR_NOMEM, "out of memory");
    }
    ctx->cfg = *cfg;
    ctx->cfg.first_device = first;
    ctx->n_ranks = ranks;
    ctx->n_group = group;
    ctx->n_world = world;
    ctx->n_flight = cfg->n_flight ? (unsigned)cfg->n_flight : 2;
    ctx->first = cfg->process * ranks;
    ctx->times = getenv("LLM_CUDA_TIMES") != NULL;
    ctx->each_record = ctx->times && !strcmp(getenv("LLM_CUDA_TIMES"), "records");
    ctx->one_device = getenv("LLM_CUDA_ONE_DEVICE") != NULL;
    pthread_mutex_init(&ctx->mutex, NULL);
    pthread_mutex_init(&ctx->put, NULL);
    pthread_cond_init(&ctx->go, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&ctx->idle, &clock);
    pthread_condattr_destroy(&clock);
    result = open_parts(ctx);
    if (result) cuda_close(ctx);
    else *out = ctx;
    return result;
}

/* The one function that is exported: the table, in the order of llm_backend. parallel is NULL: the caller's own threads do host work. */
extern "C" __attribute__((visibility("default"))) const llm_backend *llm_cuda_backend(void) {
    /* clang-format off */
    static const llm_backend table = {
        .abi = LLM_BACKEND_ABI, .struct_size = sizeof(llm_backend), .name = "cuda", .open = cuda_open, .close = cuda_close,
        .describe = cuda_describe, .buffer = cuda_buffer, .weight = cuda_weight, .weights_done = cuda_weights_done,
        .kv_page_bytes = cuda_kv_page_bytes, .kv_open = cuda_kv_open, .memory_used = cuda_memory_used, .begin_step = cuda_begin_step,
        .embed = cuda_embed, .rope = cuda_rope, .residual = cuda_residual, .norm = cuda_norm, .linear = cuda_linear, .qkv = cuda_qkv,
        .attention = cuda_attention, .mla = cuda_mla, .route = cuda_route, .experts = cuda_experts, .gate = cuda_gate,
        .gather = cuda_gather, .all_reduce = cuda_all_reduce, .logits = cuda_logits, .end_step = cuda_end_step, .wait = cuda_wait,
        .logits_row = cuda_logits_row, .buffer_row = cuda_buffer_row, .kv_copy = cuda_kv_copy, .kv_read = cuda_kv_read,
        .kv_write = cuda_kv_write, .lora_site = cuda_lora_site, .lora_put = cuda_lora_put, .lora = cuda_lora, .drawn = cuda_drawn,
        .kv_memory = cuda_kv_memory, .send = cuda_send, .receive = cuda_receive, .state = cuda_state, .pin = cuda_pin,
        .buffer_rows = cuda_buffer_rows, .conv = cuda_conv, .recur = cuda_recur, .streams = cuda_streams, .index = cuda_index,
        .distances = 1};
    /* clang-format on */
    return &table;
}
