#include "cpu/products.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/pack.h"

/* ---- The order of a product ----
 * An item is a pair of row blocks (32 rows of the weight) times a tile (32 tokens). Few tokens have one tile, and the items of a thread are
 * one long stretch of the weight, read once. Many tokens have many, and what is near is to be used as often as it can be:
 *
 *     tile      of 2,048 columns: 64 KB of bytes and 40 KB of scales and sums      stays in L2 for the four pairs of a band
 *     pair      of 2,048 columns in Q4_K: 37 KB, unpacked 2,048 weights at a time     read from L2 or L3 for each tile
 *     sums      (32, 32) floats: 4 KB                                               stay in L1, then go through `finish` to the output
 *
 *     band 0: tile 0 with pairs 0 1 2 3, tile 1 with pairs 0 1 2 3, ...; band 1: tile 0 with pairs 4 5 6 7, ...
 *
 * So a band's weights come from memory once for all tokens, and a tile's inputs come from L3 once for each band. Threads take stretches of
 * this sequence. */

enum {
    LLM__F8_FEW = 6, /* rows up to which e4m3 is widened where it is multiplied */
    LLM__MANY = 64   /* rows from which on a product is bound by arithmetic, not by reading the weight */
};

/* Where row `row` of a copy in bf16 begins, of `cols` columns. */
static uint16_t *llm__act_row(const llm__act *a, int64_t row, int64_t cols) {
    return (uint16_t *)(void *)a->q + row * ((cols + 31) & ~(int64_t)31);
}

/* 32 columns of the rows [from, to) in the input's order: (rows, 32). */
static const float *llm__act_sorted(const llm__input *in, int from, int to, int64_t block, float *x) {
    const int32_t *order = in->order + 32 * block;
    for (int r = from; r < to; r++)
        for (int i = 0; i < 32; i++) x[32 * (r - from) + i] = in->x[r * in->stride + order[i]];
    return x;
}

LLM__PRIVATE void llm__act_part(const llm__kernels *k, const llm__input *in, int64_t cols, int row, int row_end, int64_t block,
                                int64_t end) {
    const int per = llm__form_per(in->form), tiles = llm__tiles(in->rows, in->form);
    const int64_t blocks = cols / 32, n = LLM__MIN(cols, 32 * end) - 32 * block;
    for (int r = row; r < row_end && in->form == LLM__FORM_BF16; r++)
        k->to_bf16(llm__act_row(in->act, r, cols) + 32 * block, in->x + r * in->stride + 32 * block, (int)n);
    for (int i = 0; i < tiles && !llm__form_is_float(in->form); i++) {
        const llm__tile t = llm__tile_at(in->rows, in->form, i);
        const int from = LLM__MAX(row, t.start / per), to = LLM__MIN(row_end, (t.start + t.n) / per);
        for (int64_t b = block; b < end && from < to; b++) {
            float some[32 * LLM__TILE];
            const float *x = in->order ? llm__act_sorted(in, from, to, b, some) : in->x + from * in->stride + 32 * b;
            const size_t at = (size_t)(t.start * blocks + b * t.n + from * per - t.start);
            const int64_t stride = in->order ? 32 : in->stride;
            if (in->form == LLM__FORM_I16) k->quantise_fine(in->act, at, x, stride, to - from);
            else (llm__form_low(in->form) ? k->quantise_low : k->quantise)(in->act, at, x, stride, to - from, per);
        }
    }
}

LLM__PRIVATE void llm__act_fill(const llm__exec *e, const llm__input *in, int64_t cols) {
    const int64_t blocks = (cols + 31) / 32;
    const int by_rows = in->rows >= LLM__MANY;
    int64_t from, to;
    llm__share(e, by_rows ? in->rows : blocks, &from, &to);
    llm__act_part(llm__kernels_of(e->isa), in, cols, by_rows ? (int)from : 0, by_rows ? (int)to : in->rows, by_rows ? 0 : from,
                  by_rows ? blocks : to);
}

LLM__PRIVATE llm__input llm__input_of(const llm__exec *e, const llm_buffer *src, int64_t src_col, llm__form form) {
    llm__input in;
    in.x = src->data + src_col;
    in.stride = src->stride;
    in.act = src->act;
    in.form = form;
    in.order = NULL;
    in.rows = e->n_rows;
    return in;
}

/* Sums of a block of e4m3, chunk by chunk, each times its scales. Few tokens: the kernel widens as it reads; else what all share is widened
 * before, to the same values. */
static void llm__f8_sums(const llm__exec *e, const llm_weight *w, const llm__block *b, llm__mac *m, const uint8_t *at) {
    const llm__kernels *k = llm__kernels_of(e->isa);
    uint16_t wide[2 * LLM__ROWS * LLM__F8_COLS] __attribute__((aligned(64)));
    const int bf16 = m->half != NULL, widens = bf16 || m->n > LLM__F8_FEW, second = b->pair == 2;
    const int bits = !bf16 && m->n <= LLM__F8_BITS && k->mac_f8 && e->tuning->bits;
    void (*const mac)(const llm__mac *m) = bits ? k->mac_f8 : k->mac;
    m->type = bf16 ? LLM__KIND_BF16 : widens ? LLM__KIND_F16 : LLM__KIND_F8;
    m->pace = LLM__ROWS * b->pair;
    for (int64_t c = 0; c < w->cols; c += LLM__F8_COLS, at += b->pair * LLM__F8_BYTES) {
        const uint8_t *data = at + 64 * b->pair;
        m->k = (int)LLM__MIN(w->cols - c, (int64_t)LLM__F8_COLS);
        m->add = c > 0;
        for (int j = 0; j < 2; j++) {
            m->factor[j] = (const float *)(const void *)at + (j && second ? LLM__ROWS : 0);
            m->b[j] = widens ? (const void *)(wide + (j && second ? LLM__ROWS << bf16 : 0)) : data + (j && second ? 2 * LLM__ROWS : 0);
            m->fetch[j] = data + e->tuning->ahead + 64 * j;
        }
        if (widens) k->widen_f8(data, m->k, b->pair, bf16, wide);
        mac(m);
        m->a += LLM__F8_COLS;
        if (bf16) m->half += LLM__F8_COLS;
    }
}

/* The sums of a block, or of the pair of blocks that begins with it, and a tile: out (2, LLM__OUT), of each half the first (tile's places,
 * 16). Of a block of floats that stands alone only the first half counts, but the second is written too. Floats are summed in chunks of
 * columns, and the chunks added up in order: long chains of additions lose more digits. */
static void llm__tile_sums(const llm__exec *e, const llm_weight *w, const llm__block *b, const llm__input *in, llm__tile t, float *out,
                           int *tiles) {
    const llm__kernels *k = llm__kernels_of(e->isa);
    const uint8_t *at = w->memory + b->offset;
    if (llm__form_is_float(in->form)) {
        llm__mac m;
        const int64_t column = llm__kind_info((llm__kind)b->kind).bits / 8 * LLM__ROWS * b->pair;
        const uint16_t *half = in->form == LLM__FORM_BF16 ? llm__act_row(in->act, t.start, w->cols) : NULL;
        memset(&m, 0, sizeof m);
        m.lda = half ? (int)((w->cols + 31) & ~(int64_t)31) : (int)in->stride;
        m.ldb = LLM__ROWS * b->pair;
        m.ldc = LLM__ROWS;
        m.n = t.n;
        m.step = LLM__OUT;
        m.type = (llm__kind)b->kind;
        m.pace = column;
        m.c = out;
        m.tiles = tiles;
        m.a = in->x + t.start * in->stride;
        m.half = half;
        if (b->kind == LLM__KIND_F8) {
            llm__f8_sums(e, w, b, &m, at);
            return;
        }
        for (int64_t c = 0; c < w->cols; c += LLM__CHUNK) {
            m.a = in->x + t.start * in->stride + c;
            m.half = half ? half + c : NULL;
            m.b[0] = at + c * column;
            m.b[1] = at + c * column + (b->pair == 2 ? (b->kind == LLM__KIND_BF16 ? column : column / 2) : 0);
            for (int j = 0; j < 2; j++) m.fetch[j] = (const uint8_t *)m.b[j] + e->tuning->ahead;
            m.add = c > 0;
            m.k = (int)LLM__MIN(w->cols - c, (int64_t)LLM__CHUNK);
            k->mac(&m);
        }
        return;
    }
    llm__product p;
    p.w = at;
    p.pair = b->pair;
    p.n_blocks = w->cols / 32;
    p.act = *in->act;
    p.at = (size_t)t.start * (size_t)p.n_blocks;
    p.n = t.n;
    p.fine = in->form == LLM__FORM_I16;
    p.ahead = e->tuning->ahead;
    p.near = e->tuning->near;
    p.signs = e->tuning->signs;
    p.out = out;
    p.tiles = tiles;
    p.amx = NULL;
    k->product((llm__kind)b->kind, &p);
}

LLM__PRIVATE int64_t llm__product_count(const llm_weight *w, int g, int rows, llm__form form) {
    return (w->first_block[g + 1] - w->first_block[g] + 1) / 2 * llm__tiles(rows, form);
}

/* Asks for the lines that n blocks' results of a tile will be written to: when they are there, they come from the nearest cache. */
static void llm__fetch_results(const llm__finish *f, const llm__block *b, int n, llm__tile t) {
    const float *dst = f->dst + t.start / f->per * f->stride + b->row - f->first_row;
    for (int i = 0; i < t.n / f->per; i++, dst += f->stride)
        for (int j = 0; j < n; j += 1 + f->gate_up) __builtin_prefetch(dst + j * LLM__ROWS, 1);
}

LLM__PRIVATE void llm__product_items(const llm__exec *e, const llm_weight *w, int g, const llm__input *in, llm__finish *f, int64_t begin,
                                     int64_t end) {
    const llm__kernels *k = llm__kernels_of(e->isa);
    float out[3][LLM__OUT] __attribute__((aligned(64))); /* the third one: what a product of floats makes of the second block alone */
    int set_up = 0;                                      /* tiles of the core */
    f->per = llm__form_per(in->form);
    f->gate_up = w->gate_up;
    f->row_scale = w->row_scale;
    f->first_row = g * (w->rows / w->n_groups);
    const int64_t wide = e->tuning->band, tiles = llm__tiles(in->rows, in->form);
    const int64_t pairs = (w->first_block[g + 1] - w->first_block[g] + 1) / 2;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i / (wide * tiles) * wide, band = LLM__MIN(pairs - first, wide);
        const llm__block *b = &w->block[w->first_block[g] + (first + (i - first * tiles) % band) * 2];
        const int n = b + 1 < w->block + w->first_block[g + 1] ? 2 : 1;
        llm__tile t = llm__tile_at(in->rows, in->form, (int)((i - first * tiles) / band));
        llm__fetch_results(f, b, n, t);
        for (int j = 0; j < n; j += b->pair) llm__tile_sums(e, w, b + j, in, t, out[j], &set_up);
        for (int j = 0; j < n; j += 1 + w->gate_up) k->finish(f, b + j, out[j], out[1], t.start / f->per, t.n / f->per);
    }
    if (k->rest) k->rest(&set_up);
}

LLM__PRIVATE int llm__product_counted(int rows) { return rows >= LLM__MANY; }

LLM__PRIVATE const float *llm__vector(const llm_weight *w) { return w ? w->f32 : NULL; }

/* One product over all threads; the rounded copy of the input is current. Few rows: a thread reads one stretch of the weight. Many: the
 * threads take small parts in turn, so that none waits for one whose core does other work besides; in each pass of an operation that has
 * several every thread asks once in vain. */
static void llm__run_product(const llm__exec *e, const llm_weight *w, const llm_weight *bias, const llm_buffer *plus, float scale,
                             const llm__input *in, llm__finish *f) {
    int64_t begin, end;
    f->bias = llm__vector(bias);
    f->plus = plus ? plus->data : NULL;
    f->plus_stride = plus ? plus->stride : 0;
    f->scale = scale != 0 ? scale : 1;
    const int n_parts = LLM__MAX(e->n_parts, 1);
    const int64_t count = llm__product_count(w, 0, in->rows, in->form), each = count / (16 * e->n_threads * n_parts) + 1;
    const int64_t end_of_pass = (count + each - 1) / each * (e->part + 1) / n_parts, in_vain = (int64_t)e->part * e->n_threads;
    if (!e->next || !llm__product_counted(in->rows)) {
        llm__share(e, count, &begin, &end);
        llm__product_items(e, w, 0, in, f, begin, end);
        return;
    }
    while ((begin = __atomic_fetch_add(e->next, 1, __ATOMIC_RELAXED) - in_vain) < end_of_pass)
        llm__product_items(e, w, 0, in, f, begin * each, LLM__MIN(begin * each + each, count));
}

LLM__PRIVATE void llm__run_linear(const llm__exec *e, const llm_linear_op *op) {
    llm__input in = llm__input_of(e, op->src, op->src_col, llm__weight_form(op->weight, e->isa));
    llm__finish f;
    memset(&f, 0, sizeof f);
    f.dst = op->dst->data + op->dst_col;
    f.stride = op->dst->stride;
    f.limit = op->limit;
    f.xielu = op->xielu;
    f.act = op->act;
    f.add = op->add;
    llm__run_product(e, op->weight, op->bias, op->plus, op->scale, &in, &f);
}

LLM__PRIVATE void llm__run_logits(const llm__exec *e, const llm_logits_op *op, float *dst, int64_t dst_stride) {
    llm__input in = llm__input_of(e, op->src, 0, llm__weight_form(op->head, e->isa));
    llm__finish f;
    memset(&f, 0, sizeof f);
    f.dst = dst + op->vocab_begin;
    f.stride = dst_stride;
    f.softcap = op->softcap;
    llm__run_product(e, op->head, op->bias, op->plus, op->scale, &in, &f);
}

LLM__PRIVATE void llm__run_embed_row(const llm__exec *e, const llm_embed_op *op, int i) {
    float place[256], *x = op->dst->data + i * op->dst->stride, scale = op->scale != 0 ? op->scale : 1;
    const float *given = op->given && e->step->given ? e->step->given[i] : NULL;
    const int64_t token = op->known && e->step->tokens[i] >= op->known ? 0 : e->step->tokens[i];
    int64_t cols = op->dst->cols, row = token - op->vocab_begin, at = (int64_t)e->step->positions[i] + op->position_offset;
    for (int64_t c = 0; given && op->given_add && c < cols; c++) x[c] += given[op->given_col + c];
    if (given && !op->given_add && op->given == LLM_GIVEN_ROW) memcpy(x, given + op->given_col, (size_t)cols * sizeof *x);
    if (given && !op->given_add && op->given == LLM_GIVEN_ZERO) memset(x, 0, (size_t)cols * sizeof *x);
    if (given || !op->table) return;
    if (row >= 0 && row < op->table->rows) llm__weight_values(op->table, row, 0, cols, x);
    else memset(x, 0, sizeof(float) * (size_t)cols);
    for (int64_t c = 0; c < cols && scale != 1; c++) x[c] *= scale;
    for (int64_t c = 0; op->positions && at >= 0 && at < op->positions->rows && c < cols; c += LLM__COUNT(place)) {
        int64_t n = LLM__MIN(cols - c, (int64_t)LLM__COUNT(place));
        llm__weight_values(op->positions, at, c, n, place);
        for (int64_t k = 0; k < n; k++) x[c + k] += place[k];
    }
}

/* ---- Adapters ----
 * What adapters add to a layer (>>lora). The rows may have different ones: neighbouring rows of the same, of one expert where there are
 * experts, make one product, and all these products are laid end to end and cut into equal shares. */

LLM__PRIVATE const llm__lora_slot *llm__lora_of_seq(const llm_step *step, const llm_lora_site *site, int seq) {
    int32_t slot = site ? step->seq_lora[seq] : -1;
    return slot < 0 || !site->slot[slot].n ? NULL : &site->slot[slot];
}

LLM__PRIVATE const llm__lora_slot *llm__lora_of(const llm__exec *e, const llm__lora_job *j, int row) {
    return llm__lora_of_seq(e->step, j->site, e->step->seq_of_row[j->row ? j->row[row] : row]);
}

LLM__PRIVATE void llm__lora_products(const llm__exec *e, const llm__lora_job *j, int up) {
    const int64_t width = j->low->cols / LLM_LORA_PARTS; /* columns of low that a part has */
    const int32_t whole[2] = {0, j->n_rows}, *bounds = j->begin ? j->begin : whole;
    int64_t total = 0, begin = 0, end = INT64_MAX, at = 0;
    llm__finish f;
    llm__input in;
    memset(&f, 0, sizeof f);
    f.stride = up ? j->dst_stride : j->low->stride;
    f.scale = up ? j->scale : 1;
    f.add = up && j->add;
    in.stride = up ? j->low->stride : j->x_stride;
    in.act = NULL;
    in.order = NULL;
    in.form = LLM__FORM_F32;
    for (int counted = 0; counted < 2; counted++) { /* first the whole of the work, then this thread's share of it */
        for (int g = 0, row = 0; g < j->n_groups; row += in.rows) {
            while (g < j->n_groups && row == bounds[g + 1]) g++;
            if (g == j->n_groups) break;
            const llm__lora_slot *s = llm__lora_of(e, j, row);
            for (in.rows = 1; row + in.rows < bounds[g + 1] && llm__lora_of(e, j, row + in.rows) == s;) in.rows++;
            for (int i = 0; s && i < s->n; i++) {
                const llm_weight *w = s->w[i][up];
                float *low = j->low->data + row * j->low->stride + i * width;
                int64_t n = llm__product_count(w, g, in.rows, in.form);
                in.x = up ? low : j->x + row * j->x_stride;
                f.dst = up ? j->dst + row * j->dst_stride + s->row[i] : low;
                if (!counted) total += n;
                else if (at + n > begin && at < end)
                    llm__product_items(e, w, g, &in, &f, LLM__MAX(begin - at, (int64_t)0), LLM__MIN(end - at, n));
                at += counted ? n : 0;
            }
        }
        if (!counted) llm__share(e, total, &begin, &end);
    }
}

LLM__PRIVATE void llm__lora_down(const llm__exec *e, const llm__lora_job *j, int64_t n) {
    int64_t begin, end;
    llm__share(e, j->n_rows, &begin, &end);
    for (int64_t row = begin; row < end; row++)
        for (int64_t i = 0; i < n; i++) j->dst[row * j->dst_stride + i] = -0.0f;
    llm__lora_products(e, j, 0);
}
