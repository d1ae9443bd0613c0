/* kernels: the table of kernels, and what they are called with. */
#pragma once
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/isa.h"
#include "cpu/packed.h"

enum { LLM__F8_BITS = 4 }; /* rows up to which mac_f8 is the faster one */

/* What happens to the results of a product. */
typedef struct llm__finish {
    float *dst;                /* the first token's first output */
    int64_t stride, first_row; /* first_row: the weight's row of that output */
    const float *bias;         /* (rows of the weight), or NULL */
    const float *row_scale;    /* the same: what sums are multiplied with before */
    const float *plus;         /* (tokens, outputs from first_row on) of adapters, or NULL */
    int64_t plus_stride;
    float scale, limit, softcap;
    const float *xielu; /* see llm_linear_op */
    llm_act act;
    int add, gate_up, per; /* per: places of a tile that a token takes */
} llm__finish;

typedef struct llm__block { /* up to 16 rows of a weight, packed */
    int64_t offset;         /* of its bytes in memory */
    int64_t row;            /* the first of its rows */
    int32_t n, kind;        /* n rows; the other lanes are zero */
    int32_t pair, place;    /* blocks that stand together from offset on; which of them it is */
    float scale;            /* of the segment, for the results */
} llm__block;

/* A product of one row block, or of a pair that stands together, with a tile: out (n, 16) = the sums for the n tokens whose roundings stand
 * from `at` on; those of the second one at out + LLM__OUT. */
typedef struct llm__product {
    const uint8_t *w; /* packed */
    int64_t n_blocks;
    int pair;
    llm__act act;
    size_t at;
    int n;
    float *out;
    int fine;               /* the roundings are of 16 bits: where the table has quantise_fine */
    int ahead, near, signs; /* see llm__tuning */
    const uint8_t *fetch;   /* where a block is that is multiplied, for llm__fetch */
    int *tiles;             /* see llm__kernels.rest */
    struct llm__amx *amx;   /* see >>kernels_amx */
} llm__product;

/* A product of floats: c[i][p][j] = start + sum over k of a[i][k] * b[p][k][j], for i < n, two panels p and j < 16. It serves linear layers
 * over floats (a: activations, b: two blocks of packed rows) and both products of attention: scores (a: queries, b: transposed keys) and
 * values (a: weights, b: value rows). Every element is one chain of multiply-adds in the order of k, so neither n nor who is in the other
 * panel changes its bits. The chain starts with 0, or with scale[i] * c; with `add` its end is added to c. */
typedef struct llm__mac {
    const float *a;
    const uint16_t *half; /* NULL, or bf16 instead of a: then b is bf16 */
    const void *b[2];     /* of bf16 two k at a time, as packed: b[k / 2][j][k % 2] */
    const uint8_t
        *fetch[2]; /* what is read next is fetched meanwhile, `pace` bytes for each k: memory gives most where it is asked evenly */
    int64_t pace;
    float *c;
    const float *scale;     /* NULL: start with 0 */
    const float *factor[2]; /* (16) what the sums of each panel are multiplied with at the end, before they are added; NULL: 1 */
    int lda, ldb, ldc, n, k, add;
    int phase;      /* the first k's place in its group of 32, where sums are made of groups */
    int step;       /* floats of c between panels. 0: there is one, both of b are it; then no add */
    llm__kind type; /* of b: F32, F16, BF16 or F8 (k even), two k at a time too */
    int *tiles;     /* see llm__kernels.rest */
} llm__mac;

enum {
    LLM__QUERIES = 48,
    LLM__BLOCK = 64,
    LLM__GROUP = 16
}; /* queries of an attention tile; positions of a softmax step; of a stored key group */

/* Some queries of one sequence against one KV head: what attention keeps between the blocks. `scores` become the weights of the softmax
 * where they stand. The arrays by query end on a whole vector. */
typedef struct llm__attend {
    const struct llm__kv_view *next; /* what this thread reads after this tile: positions [next_from, next_to); NULL: not known */
    int next_from, next_to, end;     /* end: of this tile's positions, up to a whole group */
    int n, head_dim, v_dim;
    int v_stride;                                    /* v_dim rounded up to 16 */
    float *q, *out, *scores;                         /* (n, head_dim), (n, v_stride), (n, 64) */
    float *keys, *values;                            /* of a block: (4, head_dim, 16), (64, v_stride) */
    float running_max[LLM__QUERIES];                 /* of each query's scores so far */
    float scale[LLM__QUERIES];                       /* what the block multiplies out by */
    float running_sum[LLM__QUERIES][LLM__ROWS];      /* of the weights, of every 16th position by itself: added up at the end */
    float q_sum[LLM__QUERIES], offset[LLM__QUERIES]; /* of scaled types: sum of q; what is to be added to every element of out */
    float slope[LLM__QUERIES];                       /* ALiBi, in units of the base-2 logarithm */
    const float *distance[LLM__QUERIES];             /* of its head, at distance 0: see llm_attention_op; NULL: none */
    int reach;
    int at[LLM__QUERIES], from[LLM__QUERIES], to[LLM__QUERIES]; /* each query's position and the positions it sees */
    float softcap;                                              /* 0: none */
    /* Latents that stand as rows: a block of them is (64, row_stride), the queries turned are (head_dim, turned_stride), the scores of a
     * block turned (64, turned_stride). rows NULL: keys stand in groups */
    float *rows, *turned, *turned_scores;
    int row_stride, turned_stride;
    const int32_t *chosen; /* with rows: what positions mean, from, to and the block's counting places in it; NULL: themselves */
    int alibi, keys_in_place, values_in_place;
    int half;  /* q, and scores once softened, are bf16, where their f32 were, rows close behind each other */
    int tiles; /* see llm__kernels.rest */
} llm__attend;

/* Some columns of a convolution over rows of a sequence: see llm_conv_op. past: (taps - 1, LLM__CONV), x before the first row; when
 * it is done, before the one behind the last. */
enum { LLM__CONV = 64, LLM__CONV_PAST = 64 * LLM_CONV_TAPS };
typedef struct llm__conv {
    const float *x;
    float *y;                    /* where it goes, which may be x: rows y_stride apart */
    const float *before, *after; /* columns to multiply by, in the rows of x; NULL: none */
    int64_t stride, y_stride;
    int n, rows, taps, silu;    /* n <= LLM__CONV columns */
    const float *weight, *bias; /* (taps, LLM__CONV), (LLM__CONV) */
    float *past;
} llm__conv;

/* Some columns of a head's state over rows of a sequence: see llm_recur_op. */
enum { LLM__RECUR_KEYS = 2048 }; /* values of a key at most: of such a state LLM__CONV columns fit a thread's scratch */
typedef struct llm__recur {
    float *state;               /* (dk, n), rows `stride` apart */
    const float *q, *k, *decay; /* (rows, dk) of q and k, key_stride apart; decay: (rows), or keyed (rows, dk), too */
    const float *read;          /* keyed: (rows, dk) k times decay */
    const float *write, *v;     /* (rows); (rows, n), v_stride apart */
    float *out;                 /* (rows, n), out_stride apart */
    int64_t stride, key_stride, v_stride, out_stride;
    int rows, dk, n, delta, keyed;
    float skip;
} llm__recur;

/* Bytes of a stored element of the KV cache (int4: of two). */
LLM__INLINE int llm__kv_size(llm_kv_type type) { return type == LLM_KV_F32 ? 4 : type == LLM_KV_F16 || type == LLM_KV_BF16 ? 2 : 1; }

/* What the rest of the library calls: one such table for each instruction set. All pointers are set (but `rest`, `peak`,
 * `mac_f8`, `quantise_fine` and `quantise_low`), all functions may be called from any thread at once and keep nothing. The
 * llm__body functions say what each does; for `product` and `mac` llm__scalar_product and llm__scalar_mac do. */
typedef struct llm__kernels {
    void (*quantise)(const llm__act *a, size_t at, const float *x, int64_t stride, int n, int per);
    void (*quantise_fine)(const llm__act *a, size_t at, const float *x, int64_t stride, int n); /* to 16 bits; NULL: to bytes twice */
    /* as quantise, with less where sums would be too large for llm__kind_low; NULL: its products fit as they are */
    void (*quantise_low)(const llm__act *a, size_t at, const float *x, int64_t stride, int n, int per);
    void (*finish)(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token, int n);
    float (*sum)(const float *x, int n);
    float (*dot)(const float *a, const float *b, int n);
    void (*add)(float *x, const float *y, float scale, int n);
    void (*affine)(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n);
    void (*rotate)(float *x, const float *rope, int half, int interleaved);
    void (*to_half)(uint16_t *dst, const float *src, int n);
    void (*to_bf16)(uint16_t *dst, const float *src, int n);
    void (*expand)(llm_kv_type type, const uint8_t *src, int n, float *low, float *high);
    void (*bias)(llm__attend *t, int block);
    void (*soften)(llm__attend *t, int block);
    void (*conv)(const llm__conv *c);
    void (*recur)(const llm__recur *c);
    void (*gate)(float *x, const float *gate, int n, int silu); /* x *= sigmoid(gate), and with silu times gate */
    float (*top)(const float *x, int32_t n, int *bad);
    double (*weigh)(const float *x, float *w, int32_t n, float max, float scale);
    void (*mac)(const llm__mac *m);
    /* mac of up to LLM__F8_BITS rows and both panels of e4m3, faster, and to the same bits; NULL: there is no
     * faster way. Asked only where numbers below f32's normal ones cost nothing: llm__tuning.bits. */
    void (*mac_f8)(const llm__mac *m);
    void (*widen_f8)(const uint8_t *src, int n, int pair, int bf16, uint16_t *to);
    void (*product)(llm__kind kind, const llm__product *p);
    int bf16;                 /* mac multiplies bf16 with bf16 (llm__mac.half) */
    void (*rest)(int *tiles); /* AMX, else NULL: lets go of the tiles after some products, which had `tiles`, 0 at first: the system saves
                               * 8 KB more of a thread that has some */
    double (*peak)(int64_t turns); /* 1e9 operations a second that products can reach, in `turns` * 12 whole registers; NULL: not known */
} llm__kernels;

/* The kernels of an instruction set. */
LLM__PRIVATE const llm__kernels *llm__kernels_of(llm__isa isa);
