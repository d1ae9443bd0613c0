/* linear: weights: from the tensors of a file to a plan of packed blocks.
 *
 * A weight is described by segments: rows (every n-th, some columns) of stored matrices, stacked. That is how q, k and v become one weight,
 * how a rank of a tensor-parallel group takes its share, and how transposed or interleaved storage is read. llm__weight_new plans it: the
 * rows are cut into blocks of at most 16 that share a kind, gate and up rows of the same outputs alternating, experts one after the other.
 * llm__weights_allocate gives all planned weights one region of memory, in the order in which a step reads them, and llm__weight_pack fills
 * it, each thread its share.
 *
 * The work of a product is a grid of row blocks, two and two, x tiles of tokens, cut into one contiguous range a thread in the order of the
 * rows: a thread reads its part of the weight from front to back. For each item of the grid the row blocks are unpacked 32 columns at a
 * time, multiplied with the tile's activations, and the results (32 rows of up to 32 tokens) are finished while they are hot: bias,
 * activation, scale, and into the buffer. Unpacking again for each tile costs a twentieth of what 32 tokens cost. How the grid is cut
 * changes no sum.
 *
 * Example: gate and up of SmolLM2-135M, 1536 rows each of 576 columns. Planned, 192 blocks, a gate block and its up block by turns:
 *
 *     block 0   gate rows 0..15      block 1   up rows 0..15        together: outputs 0..15 = act(gate) * up
 *     block 2   gate rows 16..31     block 3   up rows 16..31                 outputs 16..31
 *     ...
 *
 * A decoding step of one token has 96 items, a pair of blocks each: of four threads the first takes items 0..23, that is outputs 0..383 and
 * the first quarter of the weight's memory. A prompt of 512 tokens has 96 * 16 items, tiles fastest: a pair of blocks meets all 16 tiles
 * before the next pair is touched. Here the arithmetic is the limit, so threads take 25 items at a time in turn (llm__run_product), and one
 * whose core is busy with something else takes fewer.
 *
 * Kinds of weights and what becomes of them: VECTOR is rows of f32, MLA_UP panels (>>latent); EMBED is never packed, rows are read from
 * the mapped file as tokens ask for them; all others are packed blocks. Weights of floats are multiplied with f32 activations (bf16 ones
 * with activations in bf16 where vdpbf16ps is), quantised ones with rounded ones, the output layer's (HEAD) with two roundings or f32, for
 * there an error of a rounding would go straight into the logits. */
#pragma once
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/isa.h"
#include "cpu/tuning.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"

/* What an operation knows of the part of it that it is called for: see llm__pool. */
typedef struct llm__exec {
    int thread, n_threads; /* the part, and how many there are */
    llm__isa isa;
    const llm__tuning *tuning;
    const llm_step *step;
    int n_rows;        /* of this op */
    int part, n_parts; /* passes of a long operation: which this is, and how many (0: one) */
    int *next;         /* counts the parts of this op that threads have taken; NULL: every thread has its fixed share */
    void *scratch;     /* the part's own; of llm__run_experts shared by all: see llm__experts_scratch */
    size_t scratch_bytes;
} llm__exec;

/* The share [*begin, *end) of n things that is this thread's. */
LLM__PRIVATE void llm__share(const llm__exec *e, int64_t n, int64_t *begin, int64_t *end);

/* How many places of a tile a token takes: two in the finer form, else one. */
LLM__PRIVATE int llm__form_per(llm__form form);

/* 1 if it is one of bytes with bounded sums. */
LLM__PRIVATE int llm__form_low(llm__form form);

/* 1 if products of this form are of floats: f32 or bf16. */
LLM__PRIVATE int llm__form_is_float(llm__form form);

/* Some of the places of all tokens. */
typedef struct llm__tile {
    int start, n;
} llm__tile;

/* How many tiles `rows` tokens make. Tiles of bytes are as equal as can be (33 tokens are 16 + 17, not 32 + 1), and all places of a token
 * are in one tile. A tile of floats has 24 tokens, which is twice what registers hold, the last one what is left. */
LLM__PRIVATE int llm__tiles(int rows, llm__form form);

/* The i-th of them. */
LLM__PRIVATE llm__tile llm__tile_at(int rows, llm__form form, int i);

/* Planned by llm__weight_new, given memory, packed; from then on only read, by all threads. Rows count through all segments, and through
 * all experts: expert g has [g * rows / n_groups, (g + 1) * rows / n_groups). */
struct llm_weight {
    llm_role role;
    int64_t rows, cols;
    int32_t n_groups; /* experts, else 1 */
    int gate_up;      /* blocks 2i and 2i + 1 of a group: gate rows and up rows of the same outputs */
    int n_segments;
    llm_segment *segment; /* (n_segments) */
    int64_t *first_row;   /* (n_segments + 1) of the weight */
    uint64_t seed;        /* of random values */
    float add;
    llm__form form;    /* what its kernels read */
    int bf16;          /* they may read bf16 where there are kernels for it: see llm__weight_form */
    int fine;          /* the same of inputs of 16 bits, instead of bytes twice */
    int low;           /* the same of bytes with bounded sums, instead of bytes */
    llm__block *block; /* (n_blocks) */
    int64_t n_blocks;
    int64_t *first_block; /* (n_groups + 1) */
    uint8_t *memory;
    size_t bytes;
    void *region; /* of the first of the weights allocated together: the memory of all */
    size_t region_bytes;
    float *f32;   /* VECTOR, MLA_UP without keys: (rows, cols); else NULL */
    llm__kind up; /* MLA_UP: of the panels (>>latent), F16 or F32 */
    int n_heads, n_keys;
    int32_t *order;   /* (n_groups, cols) the input's column at each place of the packed rows; NULL: as they stand */
    float *row_scale; /* (rows) what results are multiplied with: scales of rows that the packed values lack. NULL: 1 */
};

/* The order of the inputs of group g; NULL: as they stand. */
LLM__INLINE const int32_t *llm__weight_order(const llm_weight *w, int g) { return w->order ? w->order + g * w->cols : NULL; }

/* Bytes of a row of an embedding that is kept in memory; 0: it stays where its segments say. */
LLM__PRIVATE int64_t llm__embed_pitch(const llm_weight *w);

/* What the kernels of an instruction set read for this weight. */
LLM__PRIVATE llm__form llm__weight_form(const llm_weight *w, llm__isa isa);

/* Of MLA_UP: where a head's keys (0) or values (1) begin; bytes of all for the head behind the last one. */
LLM__PRIVATE int64_t llm__latent_at(const llm_weight *w, int head, int values);

/* The segment of a row of the weight. */
LLM__PRIVATE int llm__weight_segment(const llm_weight *w, int64_t row);

/* Columns [col, col + n) of a row of the weight as f32: what the weight means. */
LLM__PRIVATE void llm__weight_values(const llm_weight *w, int64_t row, int64_t col, int64_t n, float *dst);

/* Frees a weight, and with the first of those that were allocated together the memory of them all. NULL is fine. */
LLM__PRIVATE void llm__weight_free(llm_weight *w);

/* 1 if it is kept as plain rows of f32, and not packed. */
LLM__PRIVATE int llm__weight_is_plain(const llm_weight *w);

/* Plans a weight. What the segments point to must outlive an EMBED weight, and the packing of others. */
LLM__PRIVATE llm_result llm__weight_new(const llm_weight_desc *d, llm_compute compute, llm_weight **out);

/* One region for all weights that have no memory yet: huge pages can back it, and a step reads it from front to back. */
LLM__PRIVATE llm_result llm__weights_allocate(llm_weight *const *w, size_t n);
