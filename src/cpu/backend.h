/* backend: the CPU's table of operations: what it keeps.
 *
 * The forward pass calls operations; here a call only appends a record to its rank's list. wait then runs the lists of all ranks in
 * lockstep on all threads of a pool: record i of every rank, then record i + 1. A thread takes its share of each record. Most operations
 * work row by row, and are split by rows; linear layers are split by output rows, attention by jobs that threads take one after the other.
 *
 *   begin_step   checks every number that could lead out of a buffer or the cache, copies the step, empties the lists
 *   operations   one call, one record (or two, where all of a first half must be there before the second): nothing computes, nothing waits
 *   end_step     the ranks' lists must be alike; cuts them into passes, and tells the first mistake of the step
 *   work         runs passes as long as there is time: who has five milliseconds a picture, or must hear of a cancel, gets the core back;
 *                long products over many rows are several passes for that
 *   wait         the pool's threads walk through the passes that are left, and are done when it returns
 *
 * A list is made anew for each step, for that is cheap beside the step: a record is a copy of the operation and a few comparisons.
 *
 * Why not a barrier after each record: a layer has some ten records, and a decoding step of a small model 3 ms for three hundred. So a
 * barrier stands only where one record reads or overwrites what another thread may have written since the last one. That is worked out
 * while recording: every buffer remembers in which interval between barriers it was last written and read, and how that work was split. Two
 * operations that both split by rows need none between them: each thread meets its own rows again. Three hazards are looked for, as in a
 * processor: reading what was written, writing what was written, writing what was read. Reading twice is none.
 *
 * In the same way a buffer remembers in which form its rounded copy is current; a linear layer that needs another one makes it first, and
 * two linear layers with one input share the copy. Rounding is split as what made the rows was, so a thread rounds what it has just
 * written, and only then comes the barrier; behind a linear layer all threads round, each a share of the blocks of 32 columns.
 *
 * Where every sequence has one row, a thread has KV heads of its own (HEADS): it rotates their queries and keys, writes the keys and values
 * to the cache, attends and rounds, all without waiting. The records of a llama layer with quantised weights then (| is a barrier; (|) one
 * that other steps have, where a head's keys come from several threads):
 *
 *     record      reads        writes     split     before it
 *     LINEAR qkv  h            qkv        ANY       round h |
 *     QKV         qkv, rope    qkv, KV    HEADS     |                   a head's columns come from several threads
 *     ATTENTION   qkv, KV      att        HEADS     (|)
 *     LINEAR o    att          y          ANY       (|) round att |
 *     RESIDUAL    y, x         x, h       TOKENS    |                   x += y; h = norm(x)
 *     LINEAR up   h            ff_act     ANY       round h |           gate and up in one, with the activation
 *     LINEAR down ff_act       y          ANY       | round ff_act |
 *     RESIDUAL    y, x         x, h       TOKENS    |                   and so begins the next layer
 *
 * 8 barriers, 10 in other steps, 8 with weights of floats that need no copies. At the head of the step EMBED, ROPE and the first RESIDUAL
 * are all split by rows: none. In the last layer x is gathered (GATHER) while other threads are still in ATTENTION, att behind a barrier.
 *
 * Ranks of a tensor-parallel group are all in this process: a sum over ranks is the same as any sum, read from the other ranks' buffers in
 * the order of the ranks. They record the same operations, so where one needs a barrier all do; a record runs behind a barrier if it has
 * one on any rank.
 *
 * Adapters (LoRA) are two records in front of the layer whose output they change: low = A x, then plus = B low, which the layer adds before
 * its activation; experts add theirs within their record. A step in which no row has an adapter for the site has neither. Inputs are not
 * rounded for them: what an adapter adds is small, and its factors are too thin to cost much.
 *
 * What may happen while a step runs: lora_put, to a slot that no row of the step has. All else is for one thread at a time.
 *
 * All memory is taken at open time: the lists, the copy of the step, scratch for each thread, KV pages. */
#pragma once
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/threads.h"
#include "cpu/isa.h"
#include "cpu/tuning.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/products.h"
#include "cpu/kv_cache.h"

enum { LLM__MAX_RECORDS = 8192, LLM__MAX_RANKS = 64, LLM__MAX_PASSES = 8 * LLM__MAX_RECORDS };

/* In the order of llm__ops. */
/* clang-format off */
typedef enum llm__op_kind {
    LLM__OP_EMBED, LLM__OP_ROPE, LLM__OP_RESIDUAL, LLM__OP_NORM, LLM__OP_LINEAR, LLM__OP_QKV, LLM__OP_ATTENTION, LLM__OP_MLA_WRITE,
    LLM__OP_MLA, LLM__OP_ROUTE, LLM__OP_EXPERTS, LLM__OP_GATE, LLM__OP_GATHER, LLM__OP_ALL_REDUCE, LLM__OP_LOGITS, LLM__OP_LORA_DOWN,
    LLM__OP_LORA_UP, LLM__OP_RECEIVE, LLM__OP_STATE, LLM__OP_CONV, LLM__OP_RECUR, LLM__OP_STREAMS, LLM__OP_INDEX_WRITE, LLM__OP_INDEX,
    LLM__OP_CHOOSE
} llm__op_kind;
/* clang-format on */

/* How an operation is split between threads. Two of the same kind, other than ANY, need no barrier between them. */
typedef int llm__split;
enum { LLM__SPLIT_ANY = 0, LLM__SPLIT_TOKENS, LLM__SPLIT_OUT, LLM__SPLIT_HEADS }; /* HEADS + n: n heads a row, see llm__share_heads */

/* Operations of the table that come as plain arguments, as records. */
typedef struct llm__reduce_op {
    llm_buffer *buf;
    int32_t n;
} llm__reduce_op;

/* One operation of a step, in the order of execution. `rows` stands here whatever the kind.
 * Records start on cache lines, for threads count the jobs they take in `next`. */
typedef struct llm__record {
    llm__op_kind kind;
    int barrier;                 /* before it */
    llm__split split;            /* of QKV and ATTENTION */
    int form, act_col, act_cols; /* form > 0: first make this copy of `act`, then a barrier */
    llm__split act_split;
    llm_buffer *act;
    const int32_t *act_order; /* of its columns: see llm_weight.order */
    llm_rows rows;            /* of which rows the operation is */
    int next;                 /* jobs taken so far */
    union {
        llm_embed_op embed;
        llm_rope_op rope;
        llm_residual_op residual;
        llm_norm_op norm;
        llm_linear_op linear;
        llm_qkv_op qkv;
        llm_attention_op attention;
        llm_mla_op mla;
        llm_route_op route;
        llm_experts_op experts;
        llm_gate_op gate;
        llm_gather_op gather;
        llm__reduce_op reduce;
        llm_logits_op logits;
        llm_lora_op lora;
        llm_state_op state;
        llm_conv_op conv;
        llm_recur_op recur;
        llm_streams_op streams;
        llm_index_op index;
    } op;
} __attribute__((aligned(64))) llm__record;

/* When a buffer, or the KV cache, was last used while recording: the interval between barriers, and the split. */
typedef struct llm__use {
    int interval;
    llm__split split;
} llm__use;

/* Of one interval, the last: what lies further back has a barrier behind it and is nobody's concern. -1: not in this step. */
typedef struct llm__uses {
    llm__use written, read;
} llm__uses;

/* What a record does with the KV cache, which counts as one thing: telling its layers apart would save no barrier. */
typedef enum llm__touch { LLM__TOUCH_NONE = 0, LLM__TOUCH_READ, LLM__TOUCH_WRITE } llm__touch;

/* What the seam calls llm_buffer, and what recording knows of it. `uses`, act_... and `nothing` are of the step being recorded. */
typedef struct llm__cpu_buffer {
    llm_buffer b; /* first */
    llm__uses uses;
    llm__act act;          /* its rounded copy, two planes at most */
    int act_col, act_cols; /* what the copy covers */
    const int32_t *act_order;
    llm_rows act_rows;
    size_t bytes, act_bytes;
    int nothing; /* the latest llm_lora_op to it found nothing to add: it was not computed */
} llm__cpu_buffer;

/* What stands between two barriers: of n_ranks ranks from `rank` on records [from, until), then, if `act`, the rounded copies for record
 * `until`. EXPERTS is alone, rank by rank, for their scratch is the same: pass number `sub` of one rank. A LINEAR that takes long is alone
 * too, and done in `parts` passes, of which this is number `sub`; 0: in one. */
typedef struct llm__stretch {
    int rank, n_ranks, from, until, act, sub, parts;
} llm__stretch;

/* A rank's list. `interval` counts the barriers recorded so far. */
typedef struct llm__rank {
    llm__record *list; /* (LLM__MAX_RECORDS) */
    int n, interval;
    llm__uses kv;  /* of the KV cache as a whole */
    int64_t vocab; /* rows of its output layer */
} llm__rank;

/* A step changes `rank`, `pass`, the uses in the buffers, `step` with its arrays, and `failed` with its sentence, and of course what stands
 * in buffers, pages and logits; all the rest is made at open time. */
struct llm_backend_ctx {
    llm_backend_config cfg;
    llm__isa isa;
    llm__tuning tuning;
    const char *tuned; /* where that comes from; NULL: it is to be measured */
    const llm__kernels *kernels;
    llm__pool *pool;
    int pool_borrowed;    /* it is that of the context beside */
    int n_ranks, n_group; /* ranks of a stage */
    llm__rank *rank;
    llm__stretch *pass;       /* (LLM__MAX_PASSES) */
    int n_passes, n_run;      /* n_run: so many have run */
    const llm__record *timed; /* with cfg.spent: the record that the time since `since` belongs to */
    double since;
    llm__kv_cache kv;
    llm__cpu_buffer **buffer;
    size_t n_buffers, buffer_cap;
    llm_weight **weight;
    size_t n_weights, n_packed, weight_cap;
    llm_lora_site **site;
    size_t n_sites, site_cap;
    char *scratch; /* (threads, scratch_bytes) */
    size_t scratch_bytes;
    void *experts; /* scratch that all threads share */
    size_t experts_bytes;
    float *scores; /* of indexers, (n_ranks, threads, scores_stride): see >>indexer */
    int64_t scores_stride;
    size_t scores_bytes;
    float *logits; /* (max_out, logits_stride) */
    int64_t logits_rows, logits_stride;
    size_t logits_bytes;
    llm_step step; /* points into step_memory */
    void *step_memory;
    int32_t *arrays[12];
    float *rope_base;
    const float **given; /* (max_rows) */
    size_t memory;
    llm_result failed;
    char why[256];
    char name[160];
};

/* Operations return nothing: the first mistake of a step is kept for end_step and wait. */
LLM__PRIVATE void llm__cpu_fail(llm_backend_ctx *ctx, llm_result r, const char *what);

/* How many rows an operation has in this step. */
LLM__PRIVATE int llm__op_rows(const llm_backend_ctx *ctx, llm_rows rows);
