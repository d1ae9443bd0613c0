#include "cpu/linear.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "cpu/dtypes.h"
#include "cpu/isa.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"

LLM__PRIVATE void llm__share(const llm__exec *e, int64_t n, int64_t *begin, int64_t *end) {
    *begin = n * e->thread / e->n_threads;
    *end = n * (e->thread + 1) / e->n_threads;
}

LLM__PRIVATE int llm__form_per(llm__form form) { return form == LLM__FORM_I8X2 || form == LLM__FORM_LOWX2 ? 2 : 1; }
LLM__PRIVATE int llm__form_low(llm__form form) { return form == LLM__FORM_LOW || form == LLM__FORM_LOWX2; }
LLM__PRIVATE int llm__form_is_float(llm__form form) { return form == LLM__FORM_F32 || form == LLM__FORM_BF16; }

LLM__PRIVATE int llm__tiles(int rows, llm__form form) {
    const int most = llm__form_is_float(form) ? LLM__FLOAT_TILE : LLM__TILE;
    return (rows * llm__form_per(form) + most - 1) / most;
}

LLM__PRIVATE llm__tile llm__tile_at(int rows, llm__form form, int i) {
    const int64_t n = llm__tiles(rows, form), per = llm__form_per(form);
    llm__tile t;
    t.start = llm__form_is_float(form) ? i * LLM__FLOAT_TILE : (int)(i * rows / n * per);
    t.n = llm__form_is_float(form) ? LLM__MIN(rows - t.start, LLM__FLOAT_TILE) : (int)((i + 1) * rows / n * per) - t.start;
    return t;
}

/* ---- Weights as the file has them ---- */

LLM__PRIVATE llm__form llm__weight_form(const llm_weight *w, llm__isa isa) {
    const llm__kernels *k = llm__kernels_of(isa);
    if (w->form == LLM__FORM_I8X2 && w->fine && k->quantise_fine) return LLM__FORM_I16;
    if (w->low && k->quantise_low) return w->form == LLM__FORM_I8X2 ? LLM__FORM_LOWX2 : LLM__FORM_LOW;
    return w->bf16 && k->bf16 ? LLM__FORM_BF16 : w->form;
}

LLM__PRIVATE int llm__weight_segment(const llm_weight *w, int64_t row) {
    int low = 0, high = w->n_segments - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (w->first_row[mid] <= row) low = mid;
        else high = mid - 1;
    }
    return low;
}

LLM__PRIVATE int64_t llm__embed_pitch(const llm_weight *w) {
    return w->role == LLM_ROLE_EMBED && w->segment[0].read ? llm__row_bytes(w->segment[0].type, w->cols) : 0;
}

LLM__PRIVATE void llm__weight_values(const llm_weight *w, int64_t row, int64_t col, int64_t n, float *dst) {
    int i = llm__weight_segment(w, row);
    float scale = llm__segment_scale(&w->segment[i]);
    const int64_t pitch = llm__embed_pitch(w);
    if (pitch) llm__dequant_columns(w->segment[i].type, w->memory + row * pitch, col, n, dst);
    else llm__segment_values(&w->segment[i], w->seed + (uint64_t)i, row - w->first_row[i], col, n, dst);
    for (int64_t k = 0; k < n && scale != 1; k++) dst[k] *= scale;
}

/* ---- Planning ----
 * Which rows make which block, and of which kind each is. Rows of a block are unpacked together, so they must be of one stored type and
 * begin at the same column of a super-block; a block may have fewer than 16 rows, but never rows of two kinds. In files such as Q4_K_M the
 * rows of v are Q6_K beside q and k in Q4_K: one weight, blocks of two kinds, one product.
 *
 * A rank may take columns that begin or end in the middle of a super-block (256 columns): the formats that have such then no longer fit
 * their own layout and become bytes with scales for 16 columns (the format's `rest` kind). A cut within 32 columns makes floats of them. */

/* How a segment is packed. Quantised blocks keep their form where whole ones are taken. */
static llm__kind llm__segment_kind(const llm_segment *s, llm_compute compute) {
    const llm__format *f = llm__format_of(s->type == LLM_TYPE_RANDOM_Q4 ? LLM_TYPE_Q4_0 : s->type);
    const llm__kind bf16 = s->n_cols % 2 ? LLM__KIND_F32 : LLM__KIND_BF16; /* packed by twos */
    if (compute == LLM_COMPUTE_F32) return LLM__KIND_F32;
    const int whole = !s->transposed && s->col % 32 == 0 && s->n_cols % 32 == 0;
    if (f && whole) return s->col % 256 == 0 && s->n_cols % 256 == 0 ? f->kind : f->rest;
    if (s->type == LLM_TYPE_I8 && (s->scales || s->scale != 0) && whole && !s->read) return LLM__KIND_I8;
    switch (s->type) {
    case LLM_TYPE_F8_128:
        if (s->col % LLM__F8_COLS) return LLM__KIND_F16; /* fall through */
    case LLM_TYPE_F8_E4M3:
    case LLM_TYPE_RANDOM_F8: return s->n_cols % 2 || s->transposed ? LLM__KIND_F16 : LLM__KIND_F8;
    case LLM_TYPE_F16:
    case LLM_TYPE_I8:
    case LLM_TYPE_F8_E5M2:
    case LLM_TYPE_F8_32:
    case LLM_TYPE_RANDOM_Q4: return LLM__KIND_F16;
    case LLM_TYPE_BF16:
    case LLM_TYPE_RANDOM: return bf16;
    case LLM_TYPE_F32:
        if (s->read && compute == LLM_COMPUTE_AUTO) return LLM__KIND_F16; /* made of codes with f16 scales */
        return compute == LLM_COMPUTE_BF16 ? bf16 : compute == LLM_COMPUTE_F16 ? LLM__KIND_F16 : LLM__KIND_F32;
    default: return LLM__KIND_F32;
    }
}

/* Refuses types that are no weights, and segments that would be read outside of their stored rows. How many rows are stored is not known
 * here: the loader has checked it. */
static llm_result llm__segment_check(const llm_weight_desc *d, const llm_segment *s) {
    if ((s->type < LLM_TYPE_RANDOM || s->type > LLM_TYPE_RANDOM_Q4) && !llm__type_readable(s->type))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: type %s (%d) cannot be computed with", d->name, llm__type_name(s->type), s->type);
    int64_t line = s->transposed ? llm__segment_row(s, s->n_rows - 1) + 1 : s->col + s->n_cols;
    if (s->n_rows <= 0 || s->n_cols != d->cols || s->row < 0 || s->col < 0 || line > s->stored_cols ||
        s->stored_cols % llm__type_block(s->type))
        return llm__error(LLM_ERR_ARG, "%s: a segment of %lld x %lld values does not fit its weight of %lld columns", d->name,
                          (long long)s->n_rows, (long long)s->n_cols, (long long)d->cols);
    return LLM_OK;
}

/* 1 if a segment's scales of rows are left to the results: packed values are then the stored ones. */
static int llm__scales_apart(const llm_segment *s, llm__kind kind) {
    const int f8 = s->type == LLM_TYPE_F8_E4M3 || s->type == LLM_TYPE_F8_E5M2;
    return s->scales && !s->transposed && (kind == LLM__KIND_I8 || kind == LLM__KIND_F8 || (kind == LLM__KIND_F16 && f8 && !s->read));
}

/* The scales of rows that are left to the results. 0: no memory. */
static int llm__weight_row_scales(llm_weight *w) {
    for (int64_t i = 0; i < w->n_blocks; i++)
        for (int64_t r = w->block[i].row; r < w->block[i].row + w->block[i].n; r++) {
            const int at = llm__weight_segment(w, r);
            const llm_segment *s = &w->segment[at];
            if (!llm__scales_apart(s, (llm__kind)w->block[i].kind)) continue;
            if (!w->row_scale && !(w->row_scale = LLM__NEW(float, w->rows))) return 0;
            w->row_scale[r] = s->scales[llm__segment_row(s, r - w->first_row[at])];
        }
    for (int64_t i = 0; i < w->n_blocks && w->row_scale; i++)
        for (int64_t r = w->block[i].row; r < w->block[i].row + w->block[i].n; r++) {
            const llm_segment *s = &w->segment[llm__weight_segment(w, r)];
            if (!llm__scales_apart(s, (llm__kind)w->block[i].kind)) w->row_scale[r] = 1;
        }
    return 1;
}

/* Adds a block of rows [row, row + n). */
static void llm__weight_add_block(llm_weight *w, int64_t row, int n, llm__kind kind) {
    if (w->block) {
        llm__block *b = &w->block[w->n_blocks];
        b->row = row;
        b->n = n;
        b->kind = kind;
        b->scale = llm__segment_scale(&w->segment[llm__weight_segment(w, row)]);
    }
    w->n_blocks++;
}

/* Rows from `row` on, at most `most`, that can share a packed block; their kind. One segment of floats makes the whole weight's products
 * those of floats: a quantised segment beside it becomes f32. */
static int llm__weight_run(const llm_weight *w, llm_compute compute, int64_t row, int64_t most, llm__kind *kind) {
    int first = llm__weight_segment(w, row), last = first;
    *kind = llm__segment_kind(&w->segment[first], compute);
    if (w->form == LLM__FORM_F32 && !llm__kind_is_float(*kind)) *kind = LLM__KIND_F32;
    most = LLM__MIN(most, (int64_t)LLM__ROWS);
    while (last + 1 < w->n_segments && w->first_row[last + 1] < row + most) {
        const llm_segment *a = &w->segment[first], *b = &w->segment[last + 1];
        if (a->type != b->type || a->scale != b->scale || a->transposed != b->transposed || a->col % 256 != b->col % 256) break;
        last++;
    }
    return (int)LLM__MIN(most, w->first_row[last + 1] - row);
}

/* Cuts the rows into blocks: with w->block NULL only counts. Gate and up have the same cuts, each where either of them must be cut, so that
 * block 2i + 1 has the up rows of block 2i's outputs. */
static void llm__weight_plan(llm_weight *w, llm_compute compute) {
    int64_t group = w->rows / w->n_groups, half = w->gate_up ? group / 2 : group;
    w->n_blocks = 0;
    for (int g = 0; g < w->n_groups; g++) {
        int64_t base = g * group;
        if (w->block) w->first_block[g] = w->n_blocks;
        for (int64_t r = 0, n; r < half; r += n) {
            llm__kind kind, up_kind = LLM__KIND_F32;
            n = llm__weight_run(w, compute, base + r, half - r, &kind);
            if (w->gate_up) n = llm__weight_run(w, compute, base + half + r, n, &up_kind);
            llm__weight_add_block(w, base + r, (int)n, kind);
            if (w->gate_up) llm__weight_add_block(w, base + half + r, (int)n, up_kind);
        }
    }
    if (w->block) w->first_block[w->n_groups] = w->n_blocks;
}

/* Gives the blocks their places in memory: two and two of a group together, where they are of one kind. */
static void llm__weight_place(llm_weight *w) {
    for (int g = 0; g < w->n_groups; g++)
        for (int64_t i = w->first_block[g], end = w->first_block[g + 1]; i < end; i++) {
            llm__block *b = &w->block[i];
            const int second = (i - w->first_block[g]) % 2, other = second ? -1 : 1;
            b->pair = 1 + (i + other < end && b->kind == b[other].kind);
            b->place = b->pair == 2 ? second : 0;
            b->offset = b->place ? b[-1].offset : (int64_t)w->bytes;
            if (!b->place) w->bytes += (size_t)llm__kind_row_bytes((llm__kind)b->kind, w->cols, b->pair);
        }
}

LLM__PRIVATE void llm__weight_free(llm_weight *w) {
    if (!w) return;
    llm__pages_free(w->region, w->region_bytes);
    LLM_FREE(w->segment);
    LLM_FREE(w->first_row);
    LLM_FREE(w->block);
    LLM_FREE(w->first_block);
    LLM_FREE(w->row_scale);
    LLM_FREE(w->order);
    LLM_FREE(w);
}

/* 1 if all segments can be taken with sorted columns: whole rows, those of a group in one order. */
static int llm__weight_sorts(const llm_weight *w, const llm_weight_desc *d, llm_compute compute) {
    const int32_t *order = NULL;
    int64_t row = 0, group = -1;
    if (compute == LLM_COMPUTE_F32 || llm__weight_is_plain(w) || w->role == LLM_ROLE_EMBED) return 0;
    for (int i = 0; i < d->n_segments; row += d->segments[i++].n_rows) {
        const llm_segment *s = &d->segments[i];
        if (!s->sorted || s->col || s->n_cols != s->stored_cols || s->n_cols != d->cols || row >= d->rows) return 0;
        if (row * w->n_groups / d->rows == group && memcmp(order, s->sorted->order, sizeof *order * (size_t)d->cols)) return 0;
        group = row * w->n_groups / d->rows;
        order = s->sorted->order;
    }
    return 1;
}

static int llm__weight_sort(llm_weight *w) {
    w->order = LLM__NEW(int32_t, w->n_groups * w->cols);
    for (int i = 0; i < w->n_segments && w->order; i++) {
        llm_segment *s = &w->segment[i];
        memcpy(w->order + w->first_row[i] * w->n_groups / w->rows * w->cols, s->sorted->order, sizeof *w->order * (size_t)w->cols);
        s->data = s->sorted->data;
        s->type = s->sorted->type;
        s->scale = s->sorted->scale;
        s->read = s->sorted->read;
    }
    return w->order != NULL;
}

/* Copies the segments and finds out whether all of them can be computed with int8, or with bf16. */
static llm_result llm__weight_segments(llm_weight *w, const llm_weight_desc *d, llm_compute compute) {
    int64_t rows = 0;
    int quantised = 1;
    const int sorts = llm__weight_sorts(w, d, compute);
    w->segment = LLM__NEW(llm_segment, d->n_segments);
    w->first_row = LLM__NEW(int64_t, d->n_segments + 1);
    w->n_segments = d->n_segments;
    w->bf16 = d->role != LLM_ROLE_HEAD;
    w->fine = !w->bf16;
    if (!w->segment || !w->first_row) return llm__nomem();
    for (int i = 0; i < d->n_segments; i++) {
        llm_result r = llm__segment_check(d, &d->segments[i]);
        if (r) return r;
        w->segment[i] = d->segments[i];
        w->first_row[i] = rows;
        rows += d->segments[i].n_rows;
    }
    w->first_row[d->n_segments] = rows;
    if (rows != d->rows)
        return llm__error(LLM_ERR_ARG, "%s: segments of %lld rows in all, %lld expected", d->name, (long long)rows, (long long)d->rows);
    if (sorts && !llm__weight_sort(w)) return llm__nomem();
    for (int i = 0; i < w->n_segments; i++) {
        const llm__kind kind = llm__segment_kind(&w->segment[i], compute);
        quantised &= !llm__kind_is_float(kind);
        w->fine &= llm__kind_fine(kind);
        w->low |= llm__kind_low(kind);
        w->bf16 &= kind == LLM__KIND_BF16 || kind == LLM__KIND_F8;
    }
    w->low &= quantised;
    w->form = !quantised ? LLM__FORM_F32 : d->role == LLM_ROLE_HEAD ? LLM__FORM_I8X2 : LLM__FORM_I8;
    return LLM_OK;
}

LLM__PRIVATE int llm__weight_is_plain(const llm_weight *w) {
    return w->role == LLM_ROLE_VECTOR || (w->role == LLM_ROLE_MLA_UP && !w->n_keys);
}

/* ---- kv_b ---- */

LLM__PRIVATE int64_t llm__latent_at(const llm_weight *w, int head, int values) {
    const int64_t size = w->up == LLM__KIND_F16 ? 2 : 4, n_values = w->rows / w->n_heads - w->n_keys;
    const int64_t keys = (w->cols + LLM__WIDE - 1) / LLM__WIDE * LLM__WIDE * w->n_keys,
                  both = keys + (n_values + LLM__WIDE - 1) / LLM__WIDE * LLM__WIDE * w->cols;
    return size * (head * both + (values ? keys : 0));
}

/* What the panels are of: f16 holds what blocks mean to a thousandth of a step of theirs. */
static llm_result llm__latent_plan(llm_weight *w, const llm_weight_desc *d, llm_compute compute) {
    if (d->n_keys < 1 || d->n_heads < 1 || d->rows % d->n_heads || d->rows / d->n_heads <= d->n_keys)
        return llm__error(LLM_ERR_ARG, "%s: %lld rows are no %d heads of %d keys and some values", d->name, (long long)d->rows, d->n_heads,
                          d->n_keys);
    w->n_heads = d->n_heads;
    w->n_keys = d->n_keys;
    w->up = compute == LLM_COMPUTE_F32 ? LLM__KIND_F32 : LLM__KIND_F16;
    for (int i = 0; i < d->n_segments; i++) {
        const llm_segment *s = &d->segments[i];
        if (!llm__format_of(s->type) && (s->type != LLM_TYPE_F16 || s->scales || s->scale != 0)) w->up = LLM__KIND_F32;
    }
    w->bytes = (size_t)llm__latent_at(w, w->n_heads, 0);
    return LLM_OK;
}

/* What is read is kept in memory as it was made. */
static llm_result llm__embed_plan(llm_weight *w, const llm_weight_desc *d) {
    for (int i = 0; i < w->n_segments; i++) {
        const llm_segment *s = &w->segment[i];
        const int whole = s->read && s->type == w->segment[0].type && (s->col | s->n_cols) % llm__type_block(s->type) == 0;
        if (w->segment[0].read ? !whole : s->read != NULL)
            return llm__error(LLM_ERR_ARG, "%s: an embedding is read in whole blocks of one type", d->name);
    }
    w->bytes = (size_t)(w->rows * llm__embed_pitch(w));
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__weight_new(const llm_weight_desc *d, llm_compute compute, llm_weight **out) {
    int groups = d->role == LLM_ROLE_EXPERTS || d->role == LLM_ROLE_EXPERTS_GATE_UP ? d->n_experts : 1;
    int gate_up = d->role == LLM_ROLE_GATE_UP || d->role == LLM_ROLE_EXPERTS_GATE_UP;
    *out = NULL;
    if (d->n_segments < 1 || d->rows < 1 || d->cols < 1 || d->rows > (int64_t)1 << 40 || d->cols > 1 << 24 || groups < 1 ||
        d->rows % groups || (gate_up && d->rows / groups % 2))
        return llm__error(LLM_ERR_ARG, "%s: a weight of %lld x %lld values in %d parts is not possible", d->name, (long long)d->rows,
                          (long long)d->cols, groups);
    if (d->rows > ((int64_t)1 << 45) / d->cols)
        return llm__error(LLM_ERR_LIMIT, "%s: %lld x %lld values are too many", d->name, (long long)d->rows, (long long)d->cols);
    llm_weight *w = LLM__NEW(llm_weight, 1);
    if (!w) return llm__nomem();
    w->role = d->role;
    w->rows = d->rows;
    w->cols = d->cols;
    w->n_groups = groups;
    w->gate_up = gate_up;
    w->add = d->add;
    w->n_keys = d->n_keys;
    w->seed = llm__hash(d->name, strlen(d->name), 1);
    llm_result r = llm__weight_segments(w, d, compute);
    if (!r && llm__weight_is_plain(w)) w->bytes = (size_t)w->rows * (size_t)w->cols * 4;
    else if (!r && d->role == LLM_ROLE_MLA_UP) r = llm__latent_plan(w, d, compute);
    else if (!r && d->role == LLM_ROLE_EMBED) r = llm__embed_plan(w, d);
    else if (!r) {
        llm__weight_plan(w, compute);
        w->block = LLM__NEW(llm__block, w->n_blocks);
        w->first_block = LLM__NEW(int64_t, groups + 1);
        if (!w->block || !w->first_block) r = llm__nomem();
        else {
            llm__weight_plan(w, compute);
            llm__weight_place(w);
            if (!llm__weight_row_scales(w)) r = llm__nomem();
        }
    }
    if (r) llm__weight_free(w);
    else *out = w;
    return r;
}

LLM__PRIVATE llm_result llm__weights_allocate(llm_weight *const *w, size_t n) {
    size_t total = 0, first = n;
    int ok = 1;
    for (size_t i = 0; i < n; i++) {
        if (w[i]->memory) continue;
        total = (size_t)llm__align_up(llm__add(total, w[i]->bytes, &ok), 64, &ok);
        first = LLM__MIN(first, i);
    }
    if (!total) return ok ? LLM_OK : llm__nomem();
    uint8_t *at = ok ? (uint8_t *)llm__pages_get(total) : NULL;
    if (!at) return llm__error(LLM_ERR_NOMEM, "weights: out of memory for %zu bytes", total);
    w[first]->region = at;
    w[first]->region_bytes = total;
    for (size_t i = 0; i < n; i++) {
        if (w[i]->memory) continue;
        w[i]->memory = at;
        if (llm__weight_is_plain(w[i])) w[i]->f32 = (float *)(void *)at;
        at += (w[i]->bytes + 63) & ~(size_t)63;
    }
    return LLM_OK;
}
