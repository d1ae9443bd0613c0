/* backend: One table of fused operations on opaque buffers, for those who write a backend.
 *
 * Programs that only use the library never call it. The CPU's table in this file is the executable specification.
 *
 * A backend computes for n ranks of a tensor-parallel group (1 without one), or for several such groups, each with some of the layers (a
 * pipeline, llm_backend_config.n_stages). The forward pass is written once, in >>model, as calls of these operations, once a rank.
 * Operations only enqueue: between begin_step and end_step nothing waits, allocates, or reads a host value that changes from step to step.
 * What changes lies in llm_step, handed to begin_step and copied there. So the sequence of operations depends on the llm_shape alone, and a
 * backend may record it once for a shape and replay it. Results may be read after wait(). One thread at a time calls a context. A failed
 * operation makes the context remember the first error; wait() returns it.
 */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/sampler.h"

#define LLM_BACKEND_ABI 23

/* Types of stored tensors: GGUF's numbers, then those that only other formats have. */
typedef enum llm_type {
    LLM_TYPE_F32 = 0,
    LLM_TYPE_F16 = 1,
    LLM_TYPE_Q4_0 = 2,
    LLM_TYPE_Q4_1 = 3,
    LLM_TYPE_Q5_0 = 6,
    LLM_TYPE_Q5_1 = 7,
    LLM_TYPE_Q8_0 = 8,
    LLM_TYPE_Q2_K = 10,
    LLM_TYPE_Q3_K = 11,
    LLM_TYPE_Q4_K = 12,
    LLM_TYPE_Q5_K = 13,
    LLM_TYPE_Q6_K = 14,
    LLM_TYPE_IQ2_XXS = 16,
    LLM_TYPE_IQ2_XS = 17,
    LLM_TYPE_IQ3_XXS = 18,
    LLM_TYPE_IQ1_S = 19,
    LLM_TYPE_IQ4_NL = 20,
    LLM_TYPE_IQ3_S = 21,
    LLM_TYPE_IQ2_S = 22,
    LLM_TYPE_IQ4_XS = 23,
    LLM_TYPE_I8 = 24,
    LLM_TYPE_I16 = 25,
    LLM_TYPE_I32 = 26,
    LLM_TYPE_I64 = 27,
    LLM_TYPE_F64 = 28,
    LLM_TYPE_IQ1_M = 29,
    LLM_TYPE_BF16 = 30,
    LLM_TYPE_TQ1_0 = 34,
    LLM_TYPE_TQ2_0 = 35,
    LLM_TYPE_MXFP4 = 39,
    LLM_TYPE_NVFP4 = 40,
    LLM_TYPE_F8_E4M3 = 1000,
    LLM_TYPE_F8_E5M2 = 1001,
    LLM_TYPE_U8 = 1002,
    LLM_TYPE_BOOL = 1003,
    LLM_TYPE_U16 = 1004,
    LLM_TYPE_U32 = 1005,
    LLM_TYPE_U64 = 1006,
    LLM_TYPE_F8_E8M0 = 1007, /* powers of two, of scales */
    LLM_TYPE_Q4_ZERO = 1010, /* blocks of 32 columns that quantised folders are read as (AWQ, GPTQ and their like), row by row: u16 f16 d,
                                u8 zero, 16 bytes of codes as in Q4_0: d * (code - zero) */
    LLM_TYPE_G32,            /* f32 d, f32 m, 32 int8: d * code + m */
    LLM_TYPE_NVFP4_32,       /* two f16 d, of 16 columns each, 16 bytes of e2m1 as in MXFP4: d * e2m1 * 2 */
    LLM_TYPE_NF4,            /* f32 d, 16 bytes of codes of QLoRA's NormalFloat: d * table[code], the largest 1 */
    LLM_TYPE_FP4,            /* the same with bitsandbytes' table of fp4 */
    LLM_TYPE_F8_32,          /* f32 d, 32 e4m3: d * value */
    LLM_TYPE_F8_128,         /* the same of 128 columns */
    LLM_TYPE_GRID2,          /* blocks of 256 columns that GGUF's formats of less than four bits are read as: f16 d, 16 int8 scales of 16
                                columns each, 128 bytes of codes, 32 columns in 16 as in Q4_0: d * scale * table[code] / 8, where the first
                                four codes are 8 25 43 0 and the next four the same below zero; two neighbouring scales are equal */
    LLM_TYPE_GRID2X,         /* the same, scales not equal */
    LLM_TYPE_GRID1,          /* as GRID2: 1 7 9 0 */
    LLM_TYPE_GRID1X,         /* as GRID2X */
    LLM_TYPE_GRID3,          /* as GRID2, eight codes: 8 24 40 56 72 88 104 124 */
    LLM_TYPE_GRID3S,         /* 8 24 40 56 72 88 104 120 */
    LLM_TYPE_TERNARY,        /* the same with no table: d * scale * (code - 1) */
    LLM_TYPE_RANDOM = 2000,  /* no data: the backend makes seeded random values (load-format dummy) */
    LLM_TYPE_RANDOM_F8,
    LLM_TYPE_RANDOM_Q4 /* ... rounded to e4m3, or to Q4_0 */
} llm_type;

typedef struct llm_backend_ctx llm_backend_ctx; /* the open devices */
typedef struct llm_buffer llm_buffer;           /* (rows, cols) of activations on one rank */
typedef struct llm_weight llm_weight;           /* a packed matrix, table or vector on one rank */

/* Rows whose columns are sorted so that they make blocks (GPTQ's act-order). A backend that sorts its inputs too may take whole rows so. */
typedef struct llm_sorted {
    const int32_t *order; /* (stored_cols) what stands at place c is column order[c] */
    int32_t type;
    float scale;
    const void *data;
    void (*read)(const void *data, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to);
} llm_sorted;

/* Some rows of a stored row-major matrix. Several stacked segments make a weight (q, k and v; rows of several shards). */
typedef struct llm_segment {
    const void *data;              /* first element of the stored matrix (stored_rows, stored_cols) */
    int32_t type;                  /* llm_type */
    int32_t transposed;            /* 1: stored as (in, out): the weight's row r is the stored column r */
    int64_t stored_cols;           /* elements of one stored row */
    int64_t row, n_rows, row_step; /* the weight's rows: row, row + row_step, ... (row_step 0 means 1) */
    int64_t col, n_cols;           /* the columns taken */
    float scale;                   /* each value is multiplied by it; 0 means 1 (per-tensor fp8 scales) */
    int32_t mapped;                /* 1: `data` stands in a mapped file, whose pages may be given back once they were read */
    const float *scales;           /* of each stored row, besides: int8 and fp8 with a scale a channel; NULL: 1. Not of a transposed one */
    /* NULL: the rows stand at data. Else they are made of what data points to, when they are read: columns [col, col + n_cols), whole
     * blocks, of n stored rows, row, row + step ..., one behind the other to `to`. Any thread may call it. */
    void (*read)(const void *data, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to);
    const llm_sorted *sorted; /* the same in another order; NULL: there is none */
} llm_segment;

typedef enum llm_role {
    LLM_ROLE_VECTOR = 0,          /* rows * cols values kept as f32, usually one column: norm weights, biases, sinks, inverse frequencies;
                                 `add` is added to each */
    LLM_ROLE_EMBED = 1,           /* (vocab, hidden), rows are gathered */
    LLM_ROLE_LINEAR = 2,          /* (out, in) */
    LLM_ROLE_GATE_UP = 3,         /* (2 * ff, in): ff gate rows, then ff up rows; the backend may interleave them */
    LLM_ROLE_EXPERTS = 4,         /* n_experts matrices (out, in), stacked by rows */
    LLM_ROLE_EXPERTS_GATE_UP = 5, /* n_experts of (2 * ff, in), stacked by rows */
    LLM_ROLE_MLA_UP = 6,          /* kv_b of latent attention: (n_heads * (nope + v), rank) */
    LLM_ROLE_HEAD = 7             /* as LINEAR, for the output layer, whose input may be rounded more finely */
} llm_role;

typedef struct llm_weight_desc {
    const char *name; /* for messages */
    llm_role role;
    const llm_segment *segments;
    int32_t n_segments;
    int32_t n_experts;       /* EXPERTS*: > 0 */
    int64_t rows, cols;      /* of the whole weight: all segments' rows; cols of each segment */
    float add;               /* VECTOR: added to every value (Gemma stores w - 1) */
    int32_t n_heads, n_keys; /* MLA_UP: heads, and how many of a head's rows make keys; 0 in adapters */
} llm_weight_desc;

/* KV geometry of one layer on one rank. Latent attention: n_kv_heads 1, head_dim rank + rope, v_head_dim 0. A recurrent layer has n_state
 * values of f32 a page besides, or with n_kv_heads 0 nothing else. Latents that llm_index_op chooses among: n_kv_heads 1, head_dim that of
 * the indexer's keys, v_head_dim rank + rope. */
typedef struct llm_kv_layer {
    int32_t n_kv_heads, head_dim, v_head_dim, n_state;
} llm_kv_layer;

typedef struct llm_backend_config {
    int32_t n_ranks;           /* tensor parallel size, times n_stages; 0: 1 */
    int32_t n_threads;         /* CPU; 0: all cores this process may use */
    const char *isa;           /* CPU; NULL: the best this CPU has */
    llm_compute compute;       /* F32: everything in f32, also with quantised weights */
    llm_kv_type kv_type;       /* AUTO: F16, on a CPU that multiplies bf16 BF16; F32 when compute is F32 */
    int32_t batch_invariant;   /* the CPU always is */
    double memory_utilization; /* GPU: share of its memory */
    int32_t max_rows;          /* tokens in one step at most */
    int32_t max_out;           /* rows with logits in one step at most */
    int32_t max_seqs;          /* sequences in one step at most */
    int32_t max_pages_per_seq;
    llm_log_fn log;
    void *log_user;
    llm_result (*error)(llm_result r,
                        const char *sentence); /* where a backend of another library leaves its sentences: llm_backend_error */
    int32_t device_draws;                      /* steps will have draws: memory for them is taken at open time */
    int32_t enforce_eager;                     /* GPU: steps are not recorded for replay */
    int32_t max_seq_len_to_capture;            /* GPU: steps with longer sequences neither; 0: no limit */
    double step_timeout;                       /* GPU: seconds after which a step counts as lost; 0: 300 */
    int32_t n_stages; /* of a pipeline: ranks [s n / n_stages, (s + 1) n / n_stages) are stage s, and sums and logits are shared among
                               them alone; n_ranks counts all. 0: 1 */
    struct llm_spent *spent;    /* CPU: NULL, or (LLM_SPENT_KINDS) to which every step adds */
    const int32_t *graph_sizes; /* GPU: (n_graph_sizes) ascending: rows that recorded steps are filled up to; NULL: the backend's own */
    int32_t n_graph_sizes;
    int32_t kv_prealloc; /* CPU: kv_open takes the memory of its pages at once; 0: when a page is first written */
    llm_trace_fn trace;  /* of a table that tells (llm_engine_config.trace); others have none */
    void *trace_user;
    int32_t given_cols;             /* values of a given row at most, see llm_step; 0: none is given */
    struct llm_backend_ctx *beside; /* NULL, or an open context of this backend, whose threads or streams this one uses too: only one of
                               both runs a step at a time, and this one is closed first */
    int32_t trace_inputs;           /* llm_engine_config.trace_inputs */
    /* GPU: n_ranks are those of so many processes, as many each in their order, and calls name ranks of this one from 0 on. 0: 1 */
    int32_t n_processes, process, first_device;               /* which of them this is; device of its first rank */
    llm_result (*share)(void *nodes, void *all, size_t each); /* all (n_processes, each): ours is there, then the others' are too */
    int (*lost)(void *nodes);                                 /* 1: another process has gone; asked while a step is waited for */
    void *nodes;
    const char *tuning; /* llm_engine_config.tuning */
    int32_t n_flight;   /* GPU: steps that are begun before the first of them is waited for; 0: 2; at most LLM_FLIGHT_MAX */
    int32_t indexed;    /* steps will have llm_index_op, over so many positions of a sequence at most; 0: none will */
} llm_backend_config;

enum { LLM_FLIGHT_MAX = 8 };

/* What the operations of one kind took, on the CPU: seconds of one thread, its waiting for the others included; bytes of weights, or of
 * keys and values, that were read; operations, where a multiply-add is two. */
enum { LLM_SPENT_EMBED = 0, LLM_SPENT_LINEAR, LLM_SPENT_ATTENTION, LLM_SPENT_HEAD, LLM_SPENT_NORM, LLM_SPENT_KINDS };
typedef struct llm_spent {
    double seconds, bytes, ops;
} llm_spent;

/* What a recorded step depends on. The CPU gets exact counts; a GPU pads them to buckets. */
typedef struct llm_shape {
    int32_t n_rows; /* token rows */
    int32_t n_seqs;
    int32_t n_out;   /* rows that go through the head */
    int32_t lora;    /* 1: a sequence has an adapter */
    int32_t program; /* which network's operations: 0 the model's, 1 those of its draft model or EAGLE head */
    int32_t given;   /* 1: some rows are given */
} llm_shape;

/* A token that the device chooses from a row of logits, exactly as llm_sample does, so that the next step need not wait for the host. */
typedef struct llm_draw {
    int32_t wanted;
    const llm_sampling *sampling; /* temperature, penalties, logit_bias, top_k, top_p, min_p: all else is the caller's to do */
    uint64_t seed;
    int64_t position;
    int32_t row;                  /* the host wants to read the logits as well */
    const uint32_t *allowed;      /* (vocab + 31) / 32: a bit for each token that may be drawn; NULL: all */
    const int32_t *used, *counts; /* (n_used) for penalties: tokens of prompt and answer, each once, and how often the answer has it; the
                               row's own comes besides, if a device drew it */
    int32_t n_used;               /* with the biases at most LLM_DRAW_CHANGES / max_out */
} llm_draw;

enum { LLM_DRAW_CHANGES = 1 << 19 };

typedef struct llm_drawn {
    int32_t id;     /* -1: the logits are not finite */
    float logprob;  /* raw log-softmax */
    float prob;     /* after rules and temperature (greedy: temperature 1), before min-p, top-k and top-p */
    double log_sum; /* of the raw logits: log of the sum of exponentials */
} llm_drawn;

/* Everything that changes from step to step. The rows of a sequence stand together, in order of position. */
typedef struct llm_step {
    llm_shape shape;
    const int32_t *tokens;      /* (n_rows) */
    const int32_t *positions;   /* (n_rows); with 3 position rows (3, n_rows) */
    int32_t n_position_rows;    /* 1 or 3 */
    const int32_t *seq_of_row;  /* (n_rows) index 0 .. n_seqs-1 */
    const int32_t *seq_begin;   /* (n_seqs + 1) first row of each sequence */
    const int32_t *seq_len;     /* (n_seqs) tokens in the KV cache after this step */
    const int32_t *seq_rope;    /* (n_seqs) which of the rope op's variants */
    const float *seq_rope_base; /* (n_seqs) multiplies the RoPE base (dynamic NTK); 1 is neutral */
    const int32_t *pages;       /* (n_seqs, page_stride) page numbers of each sequence, from position 0 on */
    int32_t page_stride;
    const int32_t *out_rows; /* (n_out) rows whose logits are wanted, ascending */
    /* For devices that run one step ahead of the host; else NULL. */
    const int32_t *token_from; /* (n_rows) -1: tokens[row]; else the out row of the step before whose drawn token stands here. Not of a
                               pipeline, whose first stage has begun the next step when the last one draws */
    const llm_draw *draws;     /* (n_out); what they point to is copied, too */
    const int32_t *seq_lora;   /* (n_seqs) slot of each sequence's adapter, -1: none; NULL: nobody has one */
    /* What a row is besides its token (pictures); NULL: nothing. The values stay where they are until the step was waited for. */
    const float *const *given; /* (n_rows) (given_cols) values in host memory that stand for the row's token; NULL: the token does */
    const int32_t *spans;   /* (2, n_rows) positions of its sequence from which on, and up to which, a row sees in operations that say so */
    const int32_t *row_set; /* (n_rows) which set of experts a row has, see llm_route_op */
    /* (n_seqs) so many of a sequence's rows change the state of recurrent layers; those behind are guesses, which do not. NULL: all do */
    const int32_t *seq_keep;
} llm_step;

typedef enum llm_rows { LLM_ROWS_TOKENS = 0, LLM_ROWS_OUT = 1 } llm_rows;
typedef enum llm_norm_kind { LLM_NORM_NONE = 0, LLM_NORM_RMS = 1, LLM_NORM_LAYER = 2, LLM_NORM_BOUND = 3 } llm_norm_kind;
typedef enum llm_act {
    LLM_ACT_NONE = 0,
    LLM_ACT_SILU,
    LLM_ACT_GELU,
    LLM_ACT_GELU_TANH,
    LLM_ACT_RELU,
    LLM_ACT_RELU2,
    LLM_ACT_SWIGLU_OAI, /* gpt-oss: g = min(g, limit), u = clamp(u, -limit, limit); (u + 1) * g * sigmoid(1.702 g) */
    LLM_ACT_QUICK_GELU, /* g * sigmoid(1.702 g) */
    LLM_ACT_XIELU       /* of numbers p, n, b, e (Apertus): g > 0: p g^2 + b g, else n (expm1(min(g, e)) - g) + b g; a GPU has it
                           without a gate, and not with `add` */
} llm_act;

/* What a row is given instead of its token's row of the table: columns [given_col, given_col + hidden) of llm_step's given. */
typedef enum llm_given {
    LLM_GIVEN_NONE = 0, /* nothing: the token counts */
    LLM_GIVEN_ROW,      /* it is copied as it is */
    LLM_GIVEN_ZERO      /* zeros: another rank has it, and sums follow */
} llm_given;

typedef struct llm_embed_op {
    llm_buffer *dst;             /* (n_rows, hidden) */
    const llm_weight *table;     /* EMBED (vocab, hidden); NULL: rows that are not given stay as they are */
    const llm_weight *positions; /* EMBED (n_positions, hidden) added at positions + position_offset; NULL: none */
    int32_t position_offset;
    int32_t vocab_begin; /* rank's first row of a split table; rows of other ranks give zeros */
    float scale;         /* of the token's row; 0 means 1 */
    llm_given given;
    int32_t given_col;
    int32_t given_add; /* what is given is added to what dst has */
    int32_t known;     /* > 0: tokens from there on take row 0 of the whole table */
} llm_embed_op;

/* cos and sin of every row's position, once a step: dst (n_rows, 2 * rope_dim / 2): cosines, then sines.
 * angle = position * inv_freq[i]; with seq_rope_base b: inv_freq[i] * b^(-2i / rope_dim). */
typedef struct llm_rope_op {
    llm_buffer *dst;
    const llm_weight *inv_freq; /* VECTOR (n_variants * rope_dim / 2) */
    int32_t n_variants, rope_dim;
    const float *scale;   /* (n_variants) multiplies cosines and sines (attention factor); constant */
    const int8_t *row_of; /* (rope_dim / 2) with 3 position rows: which of them each frequency takes; constant; NULL: the first */
} llm_rope_op;

/* x += scale * post_norm(sum over ranks of y); x *= x_scale; then h = norm(x). y NULL: nothing is added. norm NONE: only the sum. With
 * `replace`, x = h too. A post_weight without a post_norm multiplies y. */
typedef struct llm_residual_op {
    llm_rows rows;
    llm_buffer *x;       /* (rows, hidden) */
    const llm_buffer *y; /* (rows, hidden) this rank's part; NULL: none */
    float scale;         /* 0 means 1 */
    llm_norm_kind post_kind;
    const llm_weight *post_weight, *post_bias;
    llm_buffer *h; /* (rows, hidden) */
    llm_norm_kind kind;
    const llm_weight *weight, *bias; /* NULL: 1 and 0 */
    float eps;
    int32_t replace;
    float x_scale; /* 0 means 1 */
} llm_residual_op;

/* dst, from dst_col on, = norm(src), columns [src_col, src_col + n); with `parts` so many norms of n columns each, side by side in both.
 * BOUND, here alone, is no norm: weight * src + bias, no less than low and no more than high (Gemma 4's tower). */
typedef struct llm_norm_op {
    llm_rows rows;
    llm_buffer *dst;
    const llm_buffer *src;
    int32_t src_col, dst_col, n;
    llm_norm_kind kind;
    const llm_weight *weight, *bias; /* (n), the same for all parts */
    float eps;
    int32_t parts;   /* 0 means 1 */
    int32_t add;     /* dst += instead of dst = */
    int32_t gelu;    /* 1: dst = LLM_ACT_GELU of the norm (GLM-4.1V's projector) */
    float low, high; /* BOUND */
} llm_norm_op;

/* dst[:, dst_col ...] = act(src W^T + bias) * scale. GATE_UP weights: dst = act(gate) * up. add: dst += instead of dst =. */
typedef struct llm_linear_op {
    llm_rows rows;
    llm_buffer *dst;
    const llm_buffer *src;
    const llm_weight *weight, *bias; /* bias VECTOR (out) or NULL */
    llm_act act;
    int32_t add;
    int32_t dst_col, src_col;
    float scale;            /* 0 means 1 */
    float limit;            /* SWIGLU_OAI */
    const float *xielu;     /* XIELU: (4) p, n, b, e; constant */
    const llm_buffer *plus; /* (rows, out) of llm_lora_op, added before the activation; NULL: none */
} llm_linear_op;

/* Low-rank adapters (LoRA, Hu et al. 2021): where the model has W x, an adapter has W x + B A x, with A (r, in) and B (out, r) of a
 * small r. The rows of a step may have different adapters, so nothing is merged into W. A site holds what adapters add to one layer
 * on one rank, each in a slot of its own. */
typedef struct llm_lora_site llm_lora_site;

enum { LLM_LORA_PARTS = 3 }; /* matrices of the file that make one layer: q, k and v */

typedef struct llm_lora_part { /* rows [row, row + n) of the layer's output get b (a x) */
    int64_t row;
    /* LINEAR (r, in), (n, r). Of an embedding a is a VECTOR (vocab, r): a token takes its row. Of experts both are EXPERTS, and row is
     * that of each expert's output (gate and up: 2 ff). Of kv_b there is one part, both are MLA_UP, and b is the other way round,
     * (r, n), so that heads can take their columns of it */
    const llm_weight_desc *a, *b;
} llm_lora_part;

/* dst = what each row's adapter adds to the layer; -0 where that is nothing, for x + -0 is x to the bit. */
typedef struct llm_lora_op {
    llm_rows rows;
    llm_buffer *dst;       /* (rows, n) */
    const llm_buffer *src; /* (rows, in); NULL: the site is an embedding's, and dst += instead of dst = */
    llm_buffer *low;       /* (rows, LLM_LORA_PARTS * the largest r): a x */
    const llm_lora_site *site;
    int32_t n, vocab_begin; /* vocab_begin: of an embedding, as in llm_embed_op */
    float scale;            /* 0 means 1 */
} llm_lora_op;

typedef enum llm_qk_norm {
    LLM_QK_NORM_NONE = 0,
    LLM_QK_NORM_HEAD_RMS,
    LLM_QK_NORM_HEAD_LAYER,
    LLM_QK_NORM_WHOLE_RMS,
    LLM_QK_NORM_HEAD_RMS_LAST /* as HEAD_RMS, but behind RoPE (Hunyuan) */
} llm_qk_norm;

/* Finishes q, k, v of every row: q/k norm, RoPE (or RoPE, then the norm), then K and V go to the cache. q stays in qkv. */
typedef struct llm_qkv_op {
    llm_buffer *qkv;             /* (n_rows, ...) */
    int32_t q_col, k_col, v_col; /* where this rank's heads start */
    int32_t n_heads, n_kv_heads, head_dim, v_head_dim;
    llm_qk_norm norm; /* HEAD_RMS and _LAST: weights (head_dim); HEAD_LAYER: (heads, head_dim), this rank's; WHOLE_RMS: see below */
    const llm_weight *q_norm, *k_norm;
    float eps;
    int32_t whole_q_col, whole_q, whole_k_col,
        whole_k;                        /* WHOLE_RMS: first column and width the mean runs over (all ranks' heads); weights cover them */
    const llm_buffer *rope;             /* of llm_rope_op; NULL: no positions here */
    int32_t rope_dim, rope_interleaved; /* the first rope_dim of head_dim; pairs (2i, 2i+1) or (i, i + rope_dim/2) */
    int32_t layer;                      /* of the KV cache */
    int32_t logn_from;                  /* > 0: q *= log(position + 1) / log(logn_from) beyond it (Qwen 1, InternLM) */
    float logn_beta; /* > 0: instead q *= 1 + logn_beta log(1 + (position + logn_ahead) / logn_from), that quotient whole (Ministral 3) */
    int32_t logn_ahead; /* 0 or 1 (Llama 4) */
    int32_t v_norm;     /* 1: v is brought to unit mean square, each head by itself (Gemma 4) */
    int32_t shared; /* 1: q alone, for `layer` has the keys and values of another one, written before; k_col and v_col count for nothing */
} llm_qkv_op;

typedef struct llm_attention_op {
    llm_buffer *dst; /* (n_rows, n_heads * v_head_dim) */
    const llm_buffer *qkv;
    int32_t q_col, layer;
    int32_t n_heads, n_kv_heads, head_dim, v_head_dim;
    float scale;             /* of q k, usually 1/sqrt(head_dim) */
    float softcap;           /* 0: none; s = softcap * tanh(s / softcap) */
    int32_t window;          /* 0: none; a query sees the latest `window` positions, its own included */
    int32_t chunked;         /* 1: windows do not slide but stand side by side: a query sees its own from its beginning on (Llama 4) */
    int32_t not_causal;      /* 1: every row of the sequence sees all rows of it */
    const llm_weight *sinks; /* VECTOR (n_heads): a logit that takes part in the softmax only; NULL: none */
    const llm_weight *alibi; /* VECTOR (n_heads) slopes; NULL: none */
    int32_t spans;           /* 1: where llm_step has spans, they say what a row sees; a window cuts them at their beginning */
    /* VECTOR (n_heads, 2 * reach + 1): what is added to the score of a key that stands d positions behind the query's, d from -reach to
     * reach; further away as at the ends (MPNet). NULL: nothing */
    const llm_weight *distance;
    int32_t reach;
} llm_attention_op;

/* Which positions latent attention looks at (the lightning indexer, DeepSeek-V3.2, 2025). A row writes a key of its own to the cache:
 *     key = rope(LayerNorm(k[: head_dim]))      q_h = rope(q_h)      w = k[head_dim :], a number a head
 *     score_t = sum over h of w_h max(q_h . key_t, 0), of the positions t up to its own
 * (divided by sqrt(n_heads head_dim), which changes no choice). From position topk on it chooses the topk positions with the highest
 * scores, of equals the earlier ones; before, there is no choice. */
typedef struct llm_index_op {
    llm_buffer *dst;                    /* (n_rows, topk) int32_t in place of floats: the positions, ascending; undefined before topk */
    llm_buffer *q;                      /* (n_rows, n_heads * head_dim) */
    llm_buffer *k;                      /* (n_rows, head_dim + n_heads) */
    const llm_weight *k_norm, *k_bias;  /* VECTOR (head_dim) */
    const llm_buffer *rope;             /* of llm_rope_op */
    int32_t rope_dim, rope_interleaved; /* the first rope_dim of head_dim; pairs as in llm_qkv_op */
    int32_t n_heads, head_dim, topk, layer;
    float eps;
} llm_index_op;

/* Latent attention. Normalises the latent, rotates, writes (latent, rope key) to the cache, attends in the absorbed form. */
typedef struct llm_mla_op {
    llm_buffer *dst;           /* (n_rows, n_heads * v_dim) */
    llm_buffer *q;             /* (n_rows, n_heads * (nope + rope)) */
    llm_buffer *kv_a;          /* (n_rows, rank + rope) before its norm */
    const llm_weight *kv_norm; /* VECTOR (rank) */
    const llm_weight *kv_b;    /* MLA_UP */
    const llm_buffer *rope;    /* NULL: no positions (Kimi Linear) */
    float eps, scale;
    int32_t rope_interleaved;
    int32_t layer, n_heads, nope, rope_dim, v_dim, rank;
    const llm_lora_site *lora; /* what adapters add to kv_b; NULL: nothing */
    const llm_buffer *chosen;  /* of llm_index_op: what rows at position topk and behind see; NULL: all see all */
    int32_t topk;
} llm_mla_op;

typedef enum llm_route_score {
    LLM_ROUTE_SOFTMAX = 0,
    LLM_ROUTE_SIGMOID = 1,
    LLM_ROUTE_TOPK_SOFTMAX = 2,
    LLM_ROUTE_SPARSEMIXER = 3
} llm_route_score;

/* Chooses k experts a row. dst holds them for llm_experts_op. Ties: the lower index. */
typedef struct llm_route_op {
    llm_buffer *dst;          /* (n_rows, 2 * k): ids, then weights */
    const llm_buffer *logits; /* (n_rows, n_experts) */
    int32_t n_experts, k;
    /* TOPK_SOFTMAX: softmax over the chosen logits. SPARSEMIXER (Phi-3.5-MoE): each is weighed by a softmax over itself and those not yet
     * chosen whose logit l is near its own, t: (t - l) / max(|l|, t) at most `near` */
    llm_route_score score;
    const llm_weight *correction; /* VECTOR (n_experts) added for the choice only; NULL: none */
    int32_t n_group, topk_group;  /* 0 or 1: no groups */
    int32_t group_top2;           /* group score: sum of its two best (DeepSeek-V3), else its best */
    int32_t normalize;            /* chosen weights divided by their sum */
    float normalize_min;          /* the sum is at least this */
    float scale;                  /* of the weights; 0 means 1 */
    const llm_weight *by;         /* VECTOR (n_experts): what the weights of each are multiplied by, last of all; NULL: 1 */
    float near;                   /* SPARSEMIXER */
    int32_t set; /* 0: all rows choose. Else those whose row_set is set - 1; the others choose none, and experts add nothing to them */
} llm_route_op;

enum { LLM_MAX_EXPERTS = 65536 }; /* of one operation */

/* dst (+)= sum over the chosen experts e of weight_e * down_e(act(gate_e x) * up_e x). With weigh_input (Llama 4) weights multiply what is
 * read: down_e(act(gate_e y) * up_e y), y = weight_e x. */
typedef struct llm_experts_op {
    llm_buffer *dst; /* (n_rows, hidden) */
    const llm_buffer *src, *routes;
    const llm_weight *gate_up, *gate_up_bias; /* EXPERTS_GATE_UP; bias VECTOR (n_experts * 2 ff): gate, then up, of each. Without a gate
                                                 EXPERTS and (n_experts * ff): down_e(act(up_e x)) */
    const llm_weight *down, *down_bias;       /* EXPERTS; bias VECTOR (n_experts * hidden) */
    llm_act act;
    float limit;
    int32_t k, n_experts, ff;
    int32_t add, weigh_input;
    const llm_lora_site *up_lora, *down_lora; /* what adapters add to gate_up and down: see llm_lora_part; NULL: nothing */
    llm_buffer *low, *plus; /* for adapters: (choices, LLM_LORA_PARTS * the largest r) and (choices, the larger of 2 ff and hidden), of as
                                    many choices (row, expert) at a time as the operation takes together: k at least */
} llm_experts_op;

/* Hidden states in pages, for a head that guesses from them (EAGLE): the values of one layer of the KV cache, cut into as many parts as it
 * has heads; nobody attends to them. */
typedef struct llm_state_op {
    int32_t recall;          /* 0: buf's rows go to the pages at their positions. 1: buf gets what lies one position before its rows, and
                                    at position 0 zeros, as then does `clear` */
    llm_rows rows;           /* with recall: TOKENS */
    llm_buffer *buf, *clear; /* (rows, hidden); clear may be NULL */
    int32_t layer;
} llm_state_op;

/* dst *= act(gate): of a row as a whole (the shared expert of Qwen2-MoE), or column by column. With `part` > 0 RMS norms stand around it,
 * each over so many columns: dst = norm(dst) * weight * act(gate) (gated delta nets), or with gate_first norm(dst * act(gate)) * weight
 * (Mamba 2). */
typedef enum llm_gate_act {
    LLM_GATE_SIGMOID = 0,
    LLM_GATE_SILU,
    LLM_GATE_PLAIN, /* sigmoid(g), g sigmoid(g), g */
    LLM_GATE_GELU,  /* the last two: with `each`, and no part */
    LLM_GATE_GELU_TANH
} llm_gate_act;
typedef struct llm_gate_op {
    llm_rows rows;
    llm_buffer *dst;        /* (rows, n) */
    const llm_buffer *gate; /* (rows, col + 1 or more); with `each` (rows, col + n or more) */
    int32_t n, each, col;
    llm_gate_act act;
    int32_t part, gate_first;
    const llm_weight *weight; /* VECTOR (part), the same for all parts, or (n); NULL: 1 */
    float eps;
    int32_t width; /* > 0, with `each` and no part: g is max(0, g - mean - cut deviation), both over columns [0, width) (Gemma 3n) */
    float cut;
} llm_gate_op;

/* Streams of the residual side by side (AltUp, Baykal et al. 2023): stream j is columns [j cols, (j + 1) cols) of x, m = tanh(gate).
 *   LEVEL     streams j > 0 are brought to the root mean square of stream 0, their own square taken as 1e-5 at least; dst = mean of all
 *   PREDICT   x_j += sum over i of (weight m)[j n + i] x_i, all at once; dst = x_active
 *   CORRECT   x_j += (1 + (weight m)[j]) (y - x_active), as x_active was; dst = x_active * scale */
typedef enum llm_streams_kind { LLM_STREAMS_LEVEL = 0, LLM_STREAMS_PREDICT, LLM_STREAMS_CORRECT } llm_streams_kind;
enum { LLM_MAX_STREAMS = 16 };
typedef struct llm_streams_op {
    llm_rows rows;
    llm_streams_kind kind;
    llm_buffer *x, *dst;              /* (rows, n * cols), (rows, cols); dst NULL: it is not wanted */
    const llm_buffer *gate, *y;       /* (rows, n), (rows, cols) */
    const llm_weight *weight, *scale; /* VECTOR (n * n, n), or of CORRECT (n, n); (cols), NULL: 1 */
    int32_t n, active, cols;
} llm_streams_op;

/* Recurrent layers keep what they need of the past as a state in pages: layer `layer` of the KV cache, its f32 values from `state` on. A
 * page has the state behind the last of its tokens that were computed: a page that is full, shared or copied takes its state along, the
 * first token of a page reads that of the page before, position 0 zeros. The rows of a sequence follow one another as they would one by
 * one, so bits do not depend on how a text was cut. Nothing is taken back: a token that was computed stays in the state.
 *
 * Causal convolution of each column by itself (Mamba, Gu and Dao 2023; LFM2):
 *     y_t = act(bias + sum over j < taps of weight[j] x_(t - taps + 1 + j)), over columns [col, col + n) of buf
 * With before_col >= 0 x is first multiplied by the n columns from there on, with after_col >= 0 y at the end. State: (taps - 1, n), x of
 * the tokens before. */
enum { LLM_CONV_TAPS = 16 };
typedef struct llm_conv_op {
    llm_buffer *buf, *dst; /* (n_rows, ...); (n_rows, n) takes y, NULL: y stands where x was */
    int32_t col, n, taps, before_col, after_col;
    const llm_weight *weight, *bias; /* VECTOR (n, taps), the last tap is the newest; (n) or NULL */
    int32_t silu;                    /* act; 0: none */
    int32_t layer, state;
} llm_conv_op;

/* Linear attention with a state S (dk, dv) a head (gated delta rule, Yang et al. 2024; Mamba 2, Dao and Gu 2024). In each row a head has k
 * and q (dk), which the heads of a group share, v (dv), and s = clamp(softplus(src[decay_col + h] + decay_bias[h]), step_min, step_max):
 *     S = exp(decay[h] s) S;  u = w (v - S^T k), without delta w v;  S += k u^T;  dst = S^T q + skip[h] v
 * w is sigmoid(src[write_col + h]), or s where write_col is -1. With unit k and q are brought to length 1 (1e-6 under the root), and q
 * divided by root dk. State: (n_heads, dk, dv). With turns head h has the keys of
 * group (h + turns - 1) % n_groups, else those of h / (n_heads / n_groups).
 * With step_keys (Kimi Linear) there is an s for each key of a head, of src[decay_col + h dk + i], with decay_keys (Mamba, Gu and Dao 2023)
 * a decay: either way row i of S decays by itself. */
typedef struct llm_recur_op {
    llm_buffer *dst;       /* (n_rows, n_heads * dv) */
    const llm_buffer *src; /* (n_rows, ...) */
    int32_t q_col, k_col, v_col, decay_col, write_col;
    int32_t n_heads, n_groups, dk, dv;
    int32_t delta, unit, turns, step_keys, decay_keys;
    /* VECTOR (n_heads), with decay_keys (n_heads, dk), below 0; (n_heads), with step_keys (n_heads, dk); (n_heads) or NULL */
    const llm_weight *decay, *decay_bias, *skip;
    float step_min, step_max; /* step_max 0: no limit */
    int32_t layer, state;
} llm_recur_op;

/* dst row i, from column dst_col on = src rows out_rows[i], out_rows[i] + 1, ... side by side, as many as `parts`; or their mean. Of a row
 * all columns from src_col on that dst has room for. */
typedef struct llm_gather_op {
    llm_buffer *dst;       /* (n_out, dst_col + parts * cols or more), of a mean (n_out, dst_col + cols or more) */
    const llm_buffer *src; /* (n_rows, cols) */
    int32_t parts;         /* 0 means 1 */
    int32_t mean;
    int32_t dst_col, src_col;
} llm_gather_op;

/* Logits of the out rows: softcap(scale * (src head^T + bias)). Rows [0, n_out) of dst on the host after wait(): logits(). */
typedef struct llm_logits_op {
    const llm_buffer *src; /* (n_out, hidden), normalised */
    const llm_weight *head, *bias;
    int32_t vocab_begin, vocab; /* this rank's share and the whole; the shares are gathered */
    float scale, softcap;       /* 0: 1 and none */
    const llm_buffer *plus;     /* (n_out, this rank's share) of llm_lora_op; NULL: none */
} llm_logits_op;

typedef struct llm_backend {
    int32_t abi;          /* LLM_BACKEND_ABI */
    uint32_t struct_size; /* sizeof(llm_backend) */
    const char *name;     /* "cpu", "cuda" */
    llm_result (*open)(const llm_backend_config *cfg, llm_backend_ctx **out);
    void (*close)(llm_backend_ctx *ctx);
    const char *(*describe)(llm_backend_ctx *ctx); /* "avx2, 2 threads; ahead=8192 ..." */
    /* At open time. Everything is freed by close. */
    llm_result (*buffer)(llm_backend_ctx *ctx, int rank, int64_t rows, int64_t cols, llm_buffer **out);
    llm_result (*weight)(llm_backend_ctx *ctx, int rank, const llm_weight_desc *desc, llm_weight **out);
    llm_result (*weights_done)(
        llm_backend_ctx *ctx); /* after a model's last weight: packing may run here, on all threads; a draft model follows */
    int64_t (*kv_page_bytes)(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens); /* of one rank */
    llm_result (*kv_open)(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens, int64_t n_pages);
    int64_t (*memory_used)(llm_backend_ctx *ctx);
    /* The step. */
    llm_result (*begin_step)(llm_backend_ctx *ctx, const llm_step *step);
    void (*embed)(llm_backend_ctx *ctx, int rank, const llm_embed_op *op);
    void (*rope)(llm_backend_ctx *ctx, int rank, const llm_rope_op *op);
    void (*residual)(llm_backend_ctx *ctx, int rank, const llm_residual_op *op);
    void (*norm)(llm_backend_ctx *ctx, int rank, const llm_norm_op *op);
    void (*linear)(llm_backend_ctx *ctx, int rank, const llm_linear_op *op);
    void (*qkv)(llm_backend_ctx *ctx, int rank, const llm_qkv_op *op);
    void (*attention)(llm_backend_ctx *ctx, int rank, const llm_attention_op *op);
    void (*mla)(llm_backend_ctx *ctx, int rank, const llm_mla_op *op);
    void (*route)(llm_backend_ctx *ctx, int rank, const llm_route_op *op);
    void (*experts)(llm_backend_ctx *ctx, int rank, const llm_experts_op *op);
    void (*gate)(llm_backend_ctx *ctx, int rank, const llm_gate_op *op);
    void (*gather)(llm_backend_ctx *ctx, int rank, const llm_gather_op *op);
    void (*all_reduce)(llm_backend_ctx *ctx, int rank, llm_rows rows, llm_buffer *buf, int32_t n); /* sums columns [0, n) over the ranks */
    void (*logits)(llm_backend_ctx *ctx, int rank, const llm_logits_op *op);
    llm_result (*end_step)(llm_backend_ctx *ctx);
    llm_result (*wait)(llm_backend_ctx *ctx);
    /* After wait(). */
    const float *(*logits_row)(llm_backend_ctx *ctx, int out_row); /* (vocab) */
    const float *(*buffer_row)(llm_backend_ctx *ctx, int rank, const llm_buffer *buf,
                               int row); /* hidden states, for tests and embeddings */
    /* Between steps. */
    llm_result (*kv_copy)(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int n); /* whole pages */
    llm_result (*kv_read)(llm_backend_ctx *ctx, int rank, int32_t page, void *host);            /* kv_page_bytes bytes */
    llm_result (*kv_write)(llm_backend_ctx *ctx, int rank, int32_t page, const void *host);
    /* Runs fn(arg, i) for i in [0, n) on the backend's threads; NULL: the caller loops. For host-side row work such as sampling. */
    void (*parallel)(llm_backend_ctx *ctx, void (*fn)(void *arg, int i), void *arg, int n);
    /* Adapters; all NULL in a backend without them. A site is made at open time. put fills a slot, or empties it with n 0: from any
     * thread and while steps run, but none that has a row of this slot; what the segments point to is needed no longer afterwards. */
    llm_result (*lora_site)(llm_backend_ctx *ctx, int rank, int n_slots, llm_lora_site **out);
    llm_result (*lora_put)(llm_backend_ctx *ctx, int rank, llm_lora_site *site, int slot, const llm_lora_part *parts, int n);
    void (*lora)(llm_backend_ctx *ctx, int rank, const llm_lora_op *op);
    /* NULL: the host samples, and each step is waited for. Else one more step may begin before wait(), which waits for the oldest; what can
     * be read after it is that step's. drawn: what became of llm_step's draws. */
    const llm_drawn *(*drawn)(llm_backend_ctx *ctx, int out_row);
    /* Bytes of one rank's memory that KV pages may take, after weights_done: what is left of memory_utilization, or (all) whatever is free.
     * NULL: the engine knows. */
    int64_t (*kv_memory)(llm_backend_ctx *ctx, int all);
    /* Pipelines: dst, a buffer of rank r of stage s > 0, gets the token rows of src, which is the same buffer of that rank of stage s - 1.
     * The one that sends calls send when src is ready; dst is there for what is recorded after receive. */
    void (*send)(llm_backend_ctx *ctx, int rank, const llm_buffer *src);
    void (*receive)(llm_backend_ctx *ctx, int rank, llm_buffer *dst, const llm_buffer *src);
    void (*state)(llm_backend_ctx *ctx, int rank, const llm_state_op *op); /* NULL: no EAGLE */
    void (*pin)(llm_backend_ctx *ctx, void *host,
                size_t bytes); /* once, until close: what kv_read and kv_write will use. NULL: no need to */
    /* Computes what end_step has made ready, piece by piece, until llm_now() is past `until`: at least one piece. 1: all is done; 0: the
     * next call, or wait, goes on. *longest grows to the seconds of the longest piece. A step that is not done is forgotten by begin_step.
     * NULL: the device computes by itself. */
    int (*work)(llm_backend_ctx *ctx, double until, double *longest);
    /* After wait(): n rows of a buffer, from `row` on, to host memory (n, cols). */
    llm_result (*buffer_rows)(llm_backend_ctx *ctx, int rank, const llm_buffer *buf, int row, int n, float *to);
    /* Recurrent layers; both NULL in a backend without them. */
    void (*conv)(llm_backend_ctx *ctx, int rank, const llm_conv_op *op);
    void (*recur)(llm_backend_ctx *ctx, int rank, const llm_recur_op *op);
    void (*streams)(llm_backend_ctx *ctx, int rank, const llm_streams_op *op); /* NULL: no AltUp */
    void (*index)(llm_backend_ctx *ctx, int rank, const llm_index_op *op); /* NULL: latent attention sees all, whatever its model says */
    int32_t distances; /* 1: attention adds what llm_attention_op.distance says; 0: a model that has it is refused */
} llm_backend;

/* Keeps a sentence for llm_last_error and returns r. */
LLM_API llm_result llm_backend_error(llm_result r, const char *sentence);

LLM_API const llm_backend *llm_backend_cpu(void);
/* Opens a backend library (libllm_cuda.so) and checks its abi. LLM_ERR_IO or LLM_ERR_UNSUPPORTED with a sentence. */
LLM_API llm_result llm_backend_load(const char *path, const llm_backend **out);
/* Names of the instruction sets this CPU runs, best last, separated by spaces ("scalar avx2"). Cannot fail. */
LLM_API const char *llm_isa_list(void);
/* Billions of operations a second that the core of the calling thread reaches with products of bytes alone (a multiply-add is two),
 * measured for some milliseconds. isa NULL: the best. 0: it is not here, or has none to measure. */
LLM_API double llm_isa_peak(const char *isa);
/* GB a second that n_threads threads read of 1 GiB of memory together, the best of four passes: what decoding cannot exceed, since it reads
 * the weights for every token. 0: so much memory could not be had. */
LLM_API double llm_memory_peak(int32_t n_threads);
LLM_API int64_t
llm_memory_free(void); /* bytes that could be had now, limits of the control group and of address space counted; -1: unknown */
