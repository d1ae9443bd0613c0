#include "cpu/experts.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/products.h"

/* What a turn works on, in scratch memory that all threads share. A choice without an expert (-1) has no slot. */
typedef struct llm__slots {
    int32_t *begin;   /* (n_experts + 1) first slot of each expert */
    int32_t *row;     /* (slots) the token of each slot */
    int32_t *slot_of; /* (rows, k) */
    float *x;         /* (slots, hidden) gathered inputs */
    float *h;         /* (slots, ff) */
    float *y;         /* (slots, hidden) */
    llm__act x_act, h_act;
} llm__slots;

/* Places the parts for n slots in memory; returns the bytes (memory NULL: only that). */
static size_t llm__slots_place(llm__slots *s, uint8_t *memory, size_t n, size_t n_experts, size_t hidden, size_t ff) {
    size_t at = 0, bytes[6];
    uint8_t *part[6];
    bytes[0] = (n_experts + 1) * 4;
    bytes[1] = bytes[2] = n * 4;
    bytes[3] = bytes[5] = n * hidden * 4;
    bytes[4] = n * ff * 4;
    for (int i = 0; i < 6; at += (bytes[i++] + 63) & ~(size_t)63) part[i] = memory ? memory + at : NULL;
    s->begin = (int32_t *)(void *)part[0];
    s->row = (int32_t *)(void *)part[1];
    s->slot_of = (int32_t *)(void *)part[2];
    s->x = (float *)(void *)part[3];
    s->h = (float *)(void *)part[4];
    s->y = (float *)(void *)part[5];
    /* one rounding, and half as much again: room for bf16 */
    at += llm__act_place(&s->x_act, memory ? memory + at : NULL, n * ((hidden + 31) / 32) * 3 / 2);
    at = (at + 63) & ~(size_t)63;
    at += llm__act_place(&s->h_act, memory ? memory + at : NULL, n * ((ff + 31) / 32) * 3 / 2);
    return (at + 63) & ~(size_t)63;
}

LLM__PRIVATE size_t llm__experts_scratch(int64_t rows, int64_t k, int64_t n_experts, int64_t hidden, int64_t ff) {
    llm__slots s;
    return llm__slots_place(&s, NULL, (size_t)(rows * k), (size_t)n_experts, (size_t)hidden, (size_t)ff);
}

/* The expert of choice j of a row, or -1. */
static int32_t llm__route_of(const llm_experts_op *op, int64_t row, int j) {
    float id = op->routes->data[row * op->routes->stride + j];
    return id >= 0 && id < (float)op->n_experts ? (int32_t)id : -1;
}

/* Sorts the slots of rows [row0, row0 + rows) by expert: counting sort, stable. begin[e] moves up while e's slots are given out, and is
 * shifted back at the end. One thread. */
static void llm__slots_sort(const llm__slots *s, const llm_experts_op *op, int64_t row0, int rows) {
    memset(s->begin, 0, sizeof(int32_t) * (size_t)(op->n_experts + 1));
    for (int i = 0; i < rows * op->k; i++) {
        int32_t expert = llm__route_of(op, row0 + i / op->k, i % op->k);
        if (expert >= 0) s->begin[expert + 1]++;
    }
    for (int i = 0; i < op->n_experts; i++) s->begin[i + 1] += s->begin[i];
    for (int i = 0; i < rows * op->k; i++) {
        int32_t expert = llm__route_of(op, row0 + i / op->k, i % op->k);
        s->slot_of[i] = -1;
        if (expert < 0) continue;
        s->slot_of[i] = s->begin[expert]++;
        s->row[s->slot_of[i]] = (int32_t)(row0 + i / op->k);
    }
    for (int i = op->n_experts; i > 0; i--) s->begin[i] = s->begin[i - 1];
    s->begin[0] = 0;
}

/* The input of expert g: its slots of a (slots, cols) matrix. */
static llm__input llm__slots_input(const llm__slots *s, int g, const llm_weight *w, const float *x, llm__form form, const llm__act *all,
                                   llm__act *own) {
    const int64_t cols = w->cols;
    llm__input in;
    size_t blocks = (size_t)s->begin[g] * (size_t)((cols + 31) / 32);
    own->q = all->q + blocks * (form == LLM__FORM_BF16 ? 64 : 32);
    own->d = all->d + blocks;
    own->s = all->s + 2 * blocks;
    own->n = all->n + 2 * blocks;
    in.x = x + (int64_t)s->begin[g] * cols;
    in.stride = cols;
    in.act = own;
    in.form = form;
    in.order = llm__weight_order(w, g);
    in.rows = s->begin[g + 1] - s->begin[g];
    return in;
}

/* One of an expert's two layers, for all slots: out (slots, out_cols) = finish(W_e x + bias_e + what adapters add). */
typedef struct llm__slots_layer {
    const llm_weight *w, *bias;
    const llm_lora_site *lora;
    const float *x;
    const llm__act *act;
    float *out;
    int64_t out_cols;
} llm__slots_layer;

/* What an item of an expert's grid costs, in what a token of its tile does: unpacking, or reading, costs as much as three. */
static int64_t llm__slots_cost(const llm__slots *s, int g, llm__form form) {
    const int rows = s->begin[g + 1] - s->begin[g];
    return rows ? 3 + rows / llm__tiles(rows, form) : 0;
}

/* The items whose costs begin in [begin, end), all experts' grids being laid end to end. */
static void llm__slots_part(const llm__exec *e, const llm__slots *s, const llm__slots_layer *y, const llm_buffer *plus, llm__finish *f,
                            int64_t begin, int64_t end) {
    const llm_weight *w = y->w;
    const llm__form form = llm__weight_form(w, e->isa);
    int64_t at = 0;
    for (int g = 0; g < w->n_groups && at < end; g++) {
        const int64_t cost = llm__slots_cost(s, g, form), n = llm__product_count(w, g, s->begin[g + 1] - s->begin[g], form);
        if (n && at + n * cost > begin) {
            llm__act own;
            llm__input in = llm__slots_input(s, g, w, y->x, form, y->act, &own);
            f->dst = y->out + (int64_t)s->begin[g] * y->out_cols;
            f->plus = plus ? plus->data + (int64_t)s->begin[g] * plus->stride : NULL;
            llm__product_items(e, w, g, &in, f, LLM__MAX((begin - at + cost - 1) / cost, (int64_t)0),
                               LLM__MIN((end - at + cost - 1) / cost, n));
        }
        at += n * cost;
    }
}

/* Parts of a product for each thread: enough that none waits long for another at the end. */
enum { LLM__SLOTS_PARTS = 16 };

/* Product number `done` of the operation: all threads. Few rows: fixed shares, long stretches of memory. Many: parts in turn, and each
 * thread asks once in vain in each product. */
static void llm__slots_product(const llm__exec *e, const llm__slots *s, const llm__slots_layer *y, const llm_buffer *plus, llm__finish *f,
                               int done) {
    const llm__form form = llm__weight_form(y->w, e->isa);
    const int parts = LLM__SLOTS_PARTS * e->n_threads, before = done * (parts + e->n_threads);
    int64_t total = 0;
    for (int g = 0; g < y->w->n_groups; g++)
        total += llm__slots_cost(s, g, form) * llm__product_count(y->w, g, s->begin[g + 1] - s->begin[g], form);
    f->bias = llm__vector(y->bias);
    f->stride = y->out_cols;
    f->plus_stride = plus ? plus->stride : 0;
    const int counted = e->next && llm__product_counted(e->n_rows);
    if (!counted) llm__slots_part(e, s, y, plus, f, total * e->thread / e->n_threads, total * (e->thread + 1) / e->n_threads);
    for (int i; counted && (i = __atomic_fetch_add(e->next, 1, __ATOMIC_RELAXED) - before) < parts;)
        llm__slots_part(e, s, y, plus, f, total * i / parts, total * (i + 1) / parts);
}

/* Rounded copies of all slots, an expert's slots being a matrix of their own. */
static void llm__slots_round(const llm__exec *e, const llm__slots *s, const llm_weight *w, const float *x, const llm__act *act) {
    const llm__form form = llm__weight_form(w, e->isa);
    for (int g = 0; g < w->n_groups && form != LLM__FORM_F32; g++) {
        llm__act own;
        llm__input in = llm__slots_input(s, g, w, x, form, act, &own);
        llm__exec turn = *e;
        turn.thread = (e->thread + g) % e->n_threads; /* small shares: not always the same thread's */
        llm__act_fill(&turn, &in, w->cols);
    }
}

/* A layer's pass 0: rounding, and the first factor of adapters; 1: their second; 2: the product. done: layers before it. */
static void llm__slots_pass(const llm__exec *e, const llm__slots *s, const llm_experts_op *op, const llm__slots_layer *y, llm__finish *f,
                            int pass, int done) {
    const llm_buffer *plus = y->lora ? op->plus : NULL;
    llm__lora_job j = {y->lora, s->begin[op->n_experts], op->n_experts, s->begin, s->row, y->x, y->w->cols, op->low, NULL, 0, 1, 0};
    if (plus) j.dst = plus->data, j.dst_stride = plus->stride;
    if (pass == 0) llm__slots_round(e, s, y->w, y->x, y->act);
    if (pass == 0 && plus) llm__lora_down(e, &j, y->w->rows / op->n_experts);
    if (pass == 1 && plus) llm__lora_products(e, &j, 1);
    if (pass == 2) llm__slots_product(e, s, y, plus, f, done);
}

/* The slots' inputs: a row for each of its choices, times its weight if that counts here. */
static void llm__slots_gather(const llm__exec *e, const llm__slots *s, const llm_experts_op *op, int64_t row0, int rows) {
    int64_t begin, end, hidden = op->gate_up->cols;
    llm__share(e, (int64_t)rows * op->k, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = row0 + i / op->k;
        const float *x = op->src->data + row * op->src->stride, by = op->routes->data[row * op->routes->stride + op->k + i % op->k];
        float *to = s->x + s->slot_of[i] * hidden;
        if (s->slot_of[i] < 0) continue;
        if (!op->weigh_input) memcpy(to, x, sizeof(float) * (size_t)hidden);
        for (int64_t c = 0; c < hidden && op->weigh_input; c++) to[c] = by * x[c];
    }
}

/* dst (+)= sum over the choices, in their order, of weight * y. */
static void llm__slots_combine(const llm__exec *e, const llm__slots *s, const llm_experts_op *op, int64_t row0, int rows) {
    int64_t begin, end, hidden = op->down->rows / op->n_experts;
    llm__share(e, rows, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *to = op->dst->data + (row0 + i) * op->dst->stride;
        const float *weights = op->routes->data + (row0 + i) * op->routes->stride + op->k;
        if (!op->add) memset(to, 0, sizeof(float) * (size_t)hidden);
        for (int j = 0; j < op->k; j++) {
            int32_t slot = s->slot_of[i * op->k + j];
            const float *y = s->y + slot * hidden, by = op->weigh_input ? 1 : weights[j];
            for (int64_t c = 0; c < hidden && slot >= 0; c++) to[c] += by * y[c];
        }
    }
}

enum { LLM__EXPERT_PASSES = 9 };

/* How many rows a turn takes, so that its slots fit the scratch memory. */
static int llm__experts_turn(const llm_experts_op *op, int rows, size_t scratch_bytes) {
    int64_t hidden = op->gate_up->cols, out = op->down->rows / op->n_experts;
    int turn = rows;
    if (op->up_lora || op->down_lora) turn = (int)LLM__MIN(turn, LLM__MAX(op->low->rows / op->k, 1));
    while (turn > 1 && llm__experts_scratch(turn, op->k, op->n_experts, LLM__MAX(hidden, out), op->down->cols) > scratch_bytes)
        turn = (turn + 1) / 2;
    return turn;
}

LLM__PRIVATE int llm__experts_passes(const llm_experts_op *op, int n_rows, size_t scratch_bytes) {
    const int turn = LLM__MAX(1, llm__experts_turn(op, n_rows, scratch_bytes));
    return (n_rows + turn - 1) / turn * LLM__EXPERT_PASSES;
}

LLM__PRIVATE int llm__experts_chosen(const llm_experts_op *op, int n_rows, int *experts) {
    uint8_t seen[LLM_MAX_EXPERTS / 8] = {0};
    int choices = 0;
    *experts = 0;
    for (int i = 0; i < n_rows * op->k; i++) {
        const int32_t expert = llm__route_of(op, i / op->k, i % op->k);
        if (expert < 0) continue;
        choices++;
        *experts += !(seen[expert / 8] >> expert % 8 & 1);
        seen[expert / 8] |= (uint8_t)(1 << expert % 8);
    }
    return choices;
}

LLM__PRIVATE void llm__run_experts(const llm__exec *e, const llm_experts_op *op, int pass) {
    const int64_t hidden = op->gate_up->cols, ff = op->down->cols, out = op->down->rows / op->n_experts, wide = LLM__MAX(hidden, out);
    const int turn = llm__experts_turn(op, e->n_rows, e->scratch_bytes), row0 = pass / LLM__EXPERT_PASSES * turn;
    const int rows = LLM__MIN(turn, e->n_rows - row0);
    llm__finish f;
    llm__slots s;
    llm__slots_place(&s, (uint8_t *)e->scratch, (size_t)turn * (size_t)op->k, (size_t)op->n_experts, (size_t)wide, (size_t)ff);
    const llm__slots_layer up = {op->gate_up, op->gate_up_bias, op->up_lora, s.x, &s.x_act, s.h, ff};
    const llm__slots_layer down = {op->down, op->down_bias, op->down_lora, s.h, &s.h_act, s.y, out};
    const int sub = pass % LLM__EXPERT_PASSES;
    memset(&f, 0, sizeof f);
    f.scale = 1;
    f.limit = op->limit;
    f.act = sub < 5 ? op->act : LLM_ACT_NONE;
    if (sub == 0 && e->thread == 0) llm__slots_sort(&s, op, row0, rows);
    if (sub == 1) llm__slots_gather(e, &s, op, row0, rows);
    if (sub >= 2 && sub < 8)
        llm__slots_pass(e, &s, op, sub < 5 ? &up : &down, &f, (sub - 2) % 3, pass / LLM__EXPERT_PASSES * 2 + (sub >= 5));
    if (sub == 8) llm__slots_combine(e, &s, op, row0, rows);
}

LLM__PRIVATE int llm__experts_inputs(const llm_experts_op *op, int n_rows, void *scratch, size_t scratch_bytes, int e, int down,
                                     const float **x) {
    const int64_t hidden = op->gate_up->cols, ff = op->down->cols, out = op->down->rows / op->n_experts;
    llm__slots s;
    if (llm__experts_turn(op, n_rows, scratch_bytes) < n_rows) return -1;
    llm__slots_place(&s, (uint8_t *)scratch, (size_t)n_rows * (size_t)op->k, (size_t)op->n_experts, (size_t)LLM__MAX(hidden, out),
                     (size_t)ff);
    *x = down ? s.h + s.begin[e] * ff : s.x + s.begin[e] * hidden;
    return s.begin[e + 1] - s.begin[e];
}
