/* products: products of activations and weights, shared among threads; adapters beside them.
 *
 * From an operation to numbers:
 *
 *     llm__run_linear        what is multiplied, and what becomes of the results (llm__finish)
 *     llm__run_product       which items of the grid are this thread's
 *     llm__product_items     for each: which block, which tile
 *     llm__tile_sums         the sums (places, 16), by the kernels' product (bytes) or mac (floats)
 *     kernels' finish        from the sums to the buffer
 *
 * Logits, experts and adapters come in at the second or third of these. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"

/* The inputs of a product: rows of f32, and their rounded copy where the weight wants one. */
typedef struct llm__input {
    const float *x;
    int64_t stride;
    const llm__act *act;
    llm__form form;       /* which of them the product reads */
    const int32_t *order; /* of the copy's columns: see llm_weight.order */
    int rows;
} llm__input;

/* Makes blocks [block, end) of the rows [row, row_end) of the rounded copy that in->form names; of bytes, cols is a multiple of 32. */
LLM__PRIVATE void llm__act_part(const llm__kernels *k, const llm__input *in, int64_t cols, int row, int row_end, int64_t block,
                                int64_t end);

/* This thread's share of it: some blocks of all rows, or of many some rows. */
LLM__PRIVATE void llm__act_fill(const llm__exec *e, const llm__input *in, int64_t cols);

/* Columns from src_col on of an operation's rows, to be read in this form. The rounded copy is taken to be of these columns. */
LLM__PRIVATE llm__input llm__input_of(const llm__exec *e, const llm_buffer *src, int64_t src_col, llm__form form);

/* Items of the grid of group g (the weight's only one, or an expert): pairs of blocks x tiles. */
LLM__PRIVATE int64_t llm__product_count(const llm_weight *w, int g, int rows, llm__form form);

/* Rows of group g of the weight times all rows of the input: the items [begin, end): in bands of a few pairs,
 * tile by tile. f says what becomes of the sums; its
 * fields that belong to the weight are set here. Each thread has an f of its own. */
LLM__PRIVATE void llm__product_items(const llm__exec *e, const llm_weight *w, int g, const llm__input *in, llm__finish *f, int64_t begin,
                                     int64_t end);

/* The values of a VECTOR weight; NULL where there is none. */
LLM__PRIVATE const float *llm__vector(const llm_weight *w);

/* 1: a product of so many rows is handed out in small parts, which threads take in turn. */
LLM__PRIVATE int llm__product_counted(int rows);

/* This thread's part of dst[:, dst_col ...] = act(src W^T + bias + plus) * scale, or +=: see llm_linear_op. */
LLM__PRIVATE void llm__run_linear(const llm__exec *e, const llm_linear_op *op);

/* Logits of the op's rows to dst (rows, dst_stride), this rank's columns. */
LLM__PRIVATE void llm__run_logits(const llm__exec *e, const llm_logits_op *op, float *dst, int64_t dst_stride);

/* One row of the table for its token, and its position's where those are learnt. */
LLM__PRIVATE void llm__run_embed_row(const llm__exec *e, const llm_embed_op *op, int i);

/* What one adapter adds to one layer. */
typedef struct llm__lora_slot {
    int n; /* parts */
    int64_t row[LLM_LORA_PARTS];
    llm_weight *w[LLM_LORA_PARTS][2]; /* A and B of each */
    void *memory;                     /* of the packed weights */
} llm__lora_slot;

/* What adapters add to one layer on one rank, by slot: a row's slot is its sequence's, seq_lora. */
struct llm_lora_site {
    int n_slots;
    llm__lora_slot *slot; /* (n_slots) */
};

/* The rows of one operation, or the slots of experts. */
typedef struct llm__lora_job {
    const llm_lora_site *site;
    int n_rows, n_groups; /* groups: experts, else 1 */
    const int32_t *begin; /* (n_groups + 1) first row of each group; NULL: one group */
    const int32_t *row;   /* (n_rows) the step's row of each; NULL: the same */
    const float *x;       /* (n_rows, in) */
    int64_t x_stride;
    const llm_buffer *low; /* (n_rows, LLM_LORA_PARTS * the largest r): a x */
    float *dst;            /* (n_rows, n): b low */
    int64_t dst_stride;
    float scale;
    int add; /* dst += instead of dst = */
} llm__lora_job;

/* The adapter of a sequence. NULL: it has none, or its adapter adds nothing here. */
LLM__PRIVATE const llm__lora_slot *llm__lora_of_seq(const llm_step *step, const llm_lora_site *site, int seq);

/* That of a row. */
LLM__PRIVATE const llm__lora_slot *llm__lora_of(const llm__exec *e, const llm__lora_job *j, int row);

/* The products with one of the two factors: low = a x, or dst = b low. Neighbouring rows of one adapter go together, and each product's
 * grid is one stretch of the work that threads share. A weight of floats sums each row by itself, so a row's bits do not depend on its
 * neighbours. Five rows of adapters A A - B B at q, k and v of a layer: two runs of rows with three products each (an adapter may have
 * fewer parts), six grids laid end to end; a thread walks over all six and computes what lies in its share. */
LLM__PRIVATE void llm__lora_products(const llm__exec *e, const llm__lora_job *j, int up);

/* First half: low = a x, and dst (n_rows, n) is filled with what changes nothing. */
LLM__PRIVATE void llm__lora_down(const llm__exec *e, const llm__lora_job *j, int64_t n);
