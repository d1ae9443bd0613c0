#include "cpu/pack.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/files.h"
#include "cpu/dtypes.h"
#include "cpu/subs.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/linear.h"

/* 32 weights of one row (lane) into the vectors of a block at `to`, as 8 words of 4 columns: all 8 bits, or the low bits of the first words
 * and the other words in pieces above them. The other way round: llm__unpack_bits. */
LLM__INLINE void llm__pack_values(const llm__kind kind, const llm__sub *sub, int lane, uint8_t *to) {
    const int bits = llm__kind_info(kind).bits;
    uint32_t word[8];
    memcpy(word, bits == 8 ? (const void *)sub->q : (const void *)sub->u, 32);
    LLM__UNROLL
    for (int i = 0; i < 8; i++) LLM__UNROLL
    for (int p = 0; p < 3; p++) {
        const llm__piece piece = llm__piece_of(bits, i, p);
        if (i >= bits) word[piece.from] |= (word[i] & piece.mask * 0x01010101u) << piece.shift;
    }
    for (int i = 0; i < bits; i++) memcpy(to + 4 * lane + 64 * i, &word[i], 4);
}

/* The scales (or minimums) of one row (lane): f16 at head or to, times small integers b; kinds with scales in f32 keep d, the products of
 * both, to 22 bits: kernels that read sums of integers as floats multiply them with LLM__MAGIC, of two bits, and nothing may be lost. */
LLM__INLINE void llm__pack_scale(const llm__scale scale, const uint16_t *half, const float d[2], const uint8_t b[2], int lane, uint8_t *to,
                                 uint8_t *head) {
    if (scale == LLM__SCALE_F16) memcpy(to + 2 * lane, half, 2);
    if (scale >= LLM__SCALE_SUPER) memcpy(head + 2 * lane, half, 2);
    for (int i = 0; i <= llm__scale_x2(scale); i++) {
        if (scale == LLM__SCALE_F16X2) memcpy(to + 32 * i + 2 * lane, half + i, 2);
        if (scale == LLM__SCALE_F32 || scale == LLM__SCALE_F32X2) {
            const uint32_t bits = llm__f32_bits(d[i]) & ~3u;
            memcpy(to + 64 * i + 4 * lane, &bits, 4);
        }
        if (scale == LLM__SCALE_BF16) {
            const uint16_t bf16 = llm__f32_to_bf16(d[0]);
            memcpy(to + 2 * lane, &bf16, 2);
        }
        if (scale == LLM__SCALE_E8) to[lane] = (uint8_t)*half;
        else if (scale >= LLM__SCALE_ZERO) to[16 * i + lane] = b[i];
    }
}

/* The rows of a block of Q4_0, Q4_1 or Q8_0: in a block of these the bytes of the file stand as they are, only the rows are interleaved,
 * four bytes of each. row: where each begins; a stored block has `bytes` bytes. */
static void llm__pack_words(const llm__format *f, int bytes, int bits, const uint8_t *const *row, const llm__block *b, int64_t blocks,
                            uint8_t *to) {
    const int step = b->pair * (64 * bits + 32 + (f->m_at >= 0 ? 32 : 0));
    for (int r = 0; r < b->n; r++) {
        const uint8_t *from = row[r];
        uint8_t *lane = to + b->place * 64 * bits + 4 * r, *scale = to + b->pair * 64 * bits + b->place * 32 + 2 * r;
        for (int64_t j = 0; j < blocks; j++, from += bytes, lane += step, scale += step) {
            for (int i = 0; i < bits; i++) memcpy(lane + 64 * i, from + f->at + 4 * i, 4);
            memcpy(scale, from + f->d_at, 2);
            if (f->m_at >= 0) memcpy(scale + 32 * b->pair, from + f->m_at, 2);
        }
    }
}

/* Rows of a block of random weights as Q4_0 has them, whose file's blocks are made one by one. */
static void llm__pack_random(const llm_weight *w, const llm__block *b, uint8_t *to) {
    const llm__format *f = llm__format_of(LLM_TYPE_Q4_0);
    for (int64_t j = 0; j < w->cols / 32; j++, to += b->pair * (64 * 4 + 32)) {
        uint8_t block[LLM__ROWS][18];
        const uint8_t *row[LLM__ROWS];
        for (int r = 0; r < b->n; r++) {
            const int i = llm__weight_segment(w, b->row + r);
            const llm_segment *s = &w->segment[i];
            llm__random_block(w->seed + (uint64_t)i, llm__segment_row(s, b->row + r - w->first_row[i]), s->col + 32 * j, block[r]);
            row[r] = block[r];
        }
        llm__pack_words(f, sizeof block[0], 4, row, b, 1, to);
    }
}

/* Subs [sub, sub + n) of a row, of a super-block (or what is left): to lane `lane` of a block of the kind, in the region at `to`. */
LLM__INLINE void llm__pack_subs(const llm__format *f, const int bytes, const llm__kind kind, const uint8_t *row, int64_t sub, int n,
                                int lane, const llm__block *b, uint8_t *to) {
    const llm__kind_desc k = llm__kind_info(kind);
    const int scale_bytes = llm__scale_bytes(k.scale), min_bytes = llm__scale_bytes(k.min);
    const int values = k.bits == 8 || (k.scale >= LLM__SCALE_F32 && k.scale <= LLM__SCALE_BF16); /* that stored ones are not enough for */
    uint8_t *const head = to;
    to += b->pair * llm__kind_head(kind);
    for (int i = 0; i < n; i++, to += b->pair * llm__kind_block(kind)) {
        uint8_t *scales = to + b->pair * 64 * k.bits, *mins = scales + b->pair * scale_bytes;
        llm__sub s;
        llm__sub_read(f, bytes, row, sub + i, values, &s);
        llm__pack_values(kind, &s, lane, to + b->place * 64 * k.bits);
        const float m[2] = {values ? s.m * (float)s.mc[0] : 0, values ? s.m * (float)s.mc[1] : 0};
        llm__pack_scale(k.scale, k.scale == LLM__SCALE_F16X2 ? s.half_d2 : &s.half_d, s.d, (const uint8_t *)s.sc, lane,
                        scales + b->place * scale_bytes, head + 32 * b->place);
        llm__pack_scale(k.min, &s.half_m, m, s.mc, lane, mins + b->place * min_bytes, head + 32 * (b->pair + b->place));
    }
}

/* All rows of a block: super-block by super-block, in each row by row, for a row's bytes of it stand together. */
LLM__INLINE void llm__pack_rows(const llm__format *f, const int bytes, const llm__kind kind, const uint8_t *const *row, int64_t sub0,
                                int64_t n_blocks, const llm__block *b, uint8_t *to) {
    for (int64_t j = 0; j < n_blocks; j += LLM__SUPER) {
        const int n = (int)LLM__MIN(n_blocks - j, (int64_t)LLM__SUPER);
        for (int r = 0; r < b->n; r++) llm__pack_subs(f, bytes, kind, row[r], sub0 + j, n, r, b, to);
        to += b->pair * (llm__kind_head(kind) + n * llm__kind_block(kind));
    }
}

/* Where `blocks` blocks of each row of b begin: w's columns [32 * block, ...). Of rows that are read, they are made at `some` first. */
static void llm__pack_places(const llm_weight *w, const llm__block *b, int64_t block, int64_t blocks, uint8_t *some, const uint8_t **row) {
    for (int r = 0, n = 1; r < b->n; r += n) {
        const int i = llm__weight_segment(w, b->row + r);
        const llm_segment *s = &w->segment[i];
        const int64_t at = b->row + r - w->first_row[i], bytes = llm__row_bytes(s->type, 32 * blocks);
        n = s->read ? (int)LLM__MIN(b->n - r, s->n_rows - at) : 1; /* rows of one segment */
        if (s->read)
            s->read(s->data, llm__segment_row(s, at), LLM__MAX(s->row_step, 1), n, s->col + 32 * block, 32 * blocks, some + r * bytes);
        for (int k = 0; k < n; k++)
            row[r + k] = s->read ? some + (r + k) * bytes : llm__segment_data(s, at) + llm__row_bytes(s->type, s->col + 32 * block);
    }
}

/* Bytes with a scale a row, which is no matter of packing: the rows interleaved, four bytes of each. */
static void llm__pack_bytes(const llm_weight *w, const llm__block *b, uint8_t *to) {
    for (int r = 0; r < b->n; r++) {
        const int i = llm__weight_segment(w, b->row + r);
        const llm_segment *s = &w->segment[i];
        const uint8_t *from = llm__segment_data(s, b->row + r - w->first_row[i]) + s->col;
        uint8_t *lane = to + b->place * 512 + 4 * r;
        for (int64_t j = 0; j < w->cols / 32; j++, from += 32, lane += b->pair * 512)
            for (int k = 0; k < 8; k++) memcpy(lane + 64 * k, from + 4 * k, 4);
    }
}

/* `blocks` blocks of the rows of a block, which begin at sub `sub0` of a super-block. What most files have is packed by loops of its own.
 * */
static void llm__pack_some(int32_t type, const llm__block *b, const uint8_t *const *row, int64_t sub0, int64_t blocks, uint8_t *to) {
    const llm__kind kind = (llm__kind)b->kind;
    const llm__kind_desc k = llm__kind_info(kind);
    const llm__format *f = llm__format_of(type);
    const llm__type_desc *t = llm__type_info(type);
    if (k.scale == LLM__SCALE_F16 && (k.bits == 4 || k.bits == 8) && k.min != LLM__SCALE_ZERO) {
        llm__pack_words(f, t->bytes, k.bits, row, b, blocks, to);
        return;
    }
    switch (kind == f->kind ? type : -1) {
    case LLM_TYPE_Q2_K: llm__pack_rows(llm__format_find(LLM_TYPE_Q2_K), 84, LLM__KIND_Q2K, row, sub0, blocks, b, to); break;
    case LLM_TYPE_Q3_K: llm__pack_rows(llm__format_find(LLM_TYPE_Q3_K), 110, LLM__KIND_Q3K, row, sub0, blocks, b, to); break;
    case LLM_TYPE_Q4_K: llm__pack_rows(llm__format_find(LLM_TYPE_Q4_K), 144, LLM__KIND_Q4K, row, sub0, blocks, b, to); break;
    case LLM_TYPE_Q5_K: llm__pack_rows(llm__format_find(LLM_TYPE_Q5_K), 176, LLM__KIND_Q5K, row, sub0, blocks, b, to); break;
    case LLM_TYPE_Q6_K: llm__pack_rows(llm__format_find(LLM_TYPE_Q6_K), 210, LLM__KIND_Q6K, row, sub0, blocks, b, to); break;
    case LLM_TYPE_IQ4_XS: llm__pack_rows(llm__format_find(LLM_TYPE_IQ4_XS), 136, LLM__KIND_IQ4X, row, sub0, blocks, b, to); break;
    case LLM_TYPE_MXFP4: llm__pack_rows(llm__format_find(LLM_TYPE_MXFP4), 17, LLM__KIND_MXFP4, row, sub0, blocks, b, to); break;
    case LLM_TYPE_Q5_0: llm__pack_rows(llm__format_find(LLM_TYPE_Q5_0), 22, LLM__KIND_Q5Z, row, sub0, blocks, b, to); break;
    case LLM_TYPE_Q4_ZERO: llm__pack_rows(llm__format_find(LLM_TYPE_Q4_ZERO), 19, LLM__KIND_Q4A, row, sub0, blocks, b, to); break;
    default: llm__pack_rows(f, t->bytes, kind, row, sub0, blocks, b, to);
    }
}

/* Rows of a block of a quantised kind. `to` is zeroed, which is what lanes without a row keep: their results are never stored. The file has
 * its rows one after the other, so this reads 16 streams and writes one. Rows that are read are made a super-block at a time. */
static void llm__pack_quantised(const llm_weight *w, const llm__block *b, uint8_t *to) {
    const llm__kind kind = (llm__kind)b->kind;
    uint8_t some[16 * LLM__SOME_COLUMNS / 32 * 40]; /* 16 rows, of the largest type that is read */
    const uint8_t *row[LLM__ROWS];
    const llm_segment *s = &w->segment[llm__weight_segment(w, b->row)]; /* rows of a block have one type and start at the same column of a
                                                                           super-block */
    const int64_t blocks = w->cols / 32;
    if (s->type == LLM_TYPE_RANDOM_Q4) {
        llm__pack_random(w, b, to);
        return;
    }
    if (kind == LLM__KIND_I8) {
        llm__pack_bytes(w, b, to);
        return;
    }
    const int super = llm__format_super(llm__format_of(s->type));
    for (int64_t j = 0, n; j < blocks; j += n) {
        const int64_t off = super ? (s->col / 32 + j) % 8 : 0; /* blocks of a super-block before the next one */
        n = s->read ? LLM__MIN(blocks - j, (int64_t)LLM__SUPER - off) : blocks;
        llm__pack_places(w, b, j - off, super && s->read ? (int64_t)LLM__SUPER : n, some, row);
        llm__pack_some(s->type, b, row, off, n, to);
        to += b->pair * (llm__kind_head(kind) + n * llm__kind_block(kind));
    }
}

/* n columns from c on of a segment's row r in the 16 bits of a packed kind. What is stored so already is copied; fp8 goes through a table
 * of f16 (code). */
static void llm__pack_halves(const llm_segment *s, uint64_t seed, llm__kind kind, const uint16_t *code, int64_t r, int64_t c, int n,
                             uint16_t *to) {
    float x[LLM__CHUNK];
    if (!s->transposed && !s->read && s->type == (kind == LLM__KIND_BF16 ? LLM_TYPE_BF16 : LLM_TYPE_F16)) {
        memcpy(to, llm__segment_data(s, r) + 2 * (s->col + c), sizeof *to * (size_t)n);
    } else if (!s->transposed && !s->read && code) {
        for (int i = 0; i < n; i++) to[i] = code[llm__segment_data(s, r)[s->col + c + i]];
    } else {
        llm__segment_values(s, seed, r, c, n, x);
        for (int i = 0; i < n; i++) to[i] = kind == LLM__KIND_BF16 ? llm__f32_to_bf16(x[i]) : llm__f32_to_f16(x[i]);
    }
}

/* Rows of a block of floats: column by column, or two by two, 16 rows side by side. */
static void llm__pack_floats(const llm_weight *w, const llm__block *b, uint8_t *to) {
    uint16_t code[256], half[LLM__CHUNK];
    float x[LLM__CHUNK];
    int32_t type = w->segment[llm__weight_segment(w, b->row)].type;
    int f8 = type == LLM_TYPE_F8_E4M3 || type == LLM_TYPE_F8_E5M2;
    for (int i = 0; i < 256 && f8; i++)
        code[i] = llm__f32_to_f16(type == LLM_TYPE_F8_E4M3 ? llm__e4m3_to_f32((uint8_t)i) : llm__e5m2_to_f32((uint8_t)i));
    for (int64_t c = 0; c < w->cols; c += LLM__CHUNK) {
        int n = (int)LLM__MIN(w->cols - c, (int64_t)LLM__CHUNK);
        for (int r = 0; r < b->n; r++) {
            int s = llm__weight_segment(w, b->row + r);
            const int step = LLM__ROWS * b->pair; /* elements of a column */
            const int64_t at = c * step + b->place * LLM__ROWS + r, pairs_at = at + b->place * LLM__ROWS + r,
                          row = b->row + r - w->first_row[s];
            if (b->kind == LLM__KIND_F32) llm__segment_values(&w->segment[s], w->seed + (uint64_t)s, row, c, n, x);
            else llm__pack_halves(&w->segment[s], w->seed + (uint64_t)s, (llm__kind)b->kind, f8 ? code : NULL, row, c, n, half);
            for (int i = 0; i < n && b->kind == LLM__KIND_F32; i++) memcpy(to + 4 * (at + i * step), &x[i], 4);
            for (int i = 0; i < n && b->kind == LLM__KIND_F16; i++) memcpy(to + 2 * (at + i * step), &half[i], 2);
            for (int i = 0; i < n && b->kind == LLM__KIND_BF16; i += 2) memcpy(to + 2 * (pairs_at + i * step), &half[i], 4);
        }
    }
}

/* n <= LLM__F8_COLS columns from c on of a segment's row r: bytes, and their scale. */
static float llm__pack_f8_row(const llm_segment *s, uint64_t seed, int64_t r, int64_t c, int n, uint8_t *q) {
    const int64_t stored = llm__segment_row(s, r), blocks = s->type == LLM_TYPE_F8_128;
    uint8_t made[4 + LLM__F8_COLS];
    float x[LLM__F8_COLS], d = 1;
    const uint8_t *from = made;
    if (s->type == LLM_TYPE_RANDOM_F8) {
        llm__segment_values(s, seed, r, c, n, x);
        for (int i = 0; i < n; i++) made[i] = llm__f32_to_e4m3(x[i]);
    } else if (s->read) s->read(s->data, stored, 1, 1, s->col + c, blocks ? LLM__F8_COLS : n, made);
    else from = llm__segment_data(s, r) + llm__row_bytes(s->type, s->col + c);
    if (blocks) memcpy(&d, from, 4), from += 4;
    for (int i = 0; i < n; i++)
        if ((from[i] & 0x7F) == 0x7F) d = llm__bits_f32(0x7FC00000u);
    memcpy(q, from, (size_t)n);
    return d;
}

/* Rows of a block of e4m3. */
static void llm__pack_f8(const llm_weight *w, const llm__block *b, uint8_t *to) {
    uint8_t q[LLM__F8_COLS];
    for (int64_t c = 0; c < w->cols; c += LLM__F8_COLS, to += b->pair * LLM__F8_BYTES) {
        const int n = (int)LLM__MIN(w->cols - c, (int64_t)LLM__F8_COLS);
        for (int r = 0; r < b->n; r++) {
            const int s = llm__weight_segment(w, b->row + r);
            const float d = 256 * llm__pack_f8_row(&w->segment[s], w->seed + (uint64_t)s, b->row + r - w->first_row[s], c, n, q);
            uint8_t *at = to + 64 * b->pair + 32 * b->place + 2 * r;
            memcpy(to + 64 * b->place + 4 * r, &d, 4);
            for (int i = 0; i < n; i += 2, at += 32 * b->pair) memcpy(at, q + i, 2);
        }
    }
}

LLM__PRIVATE void llm__weight_rest(const llm_weight *w) {
    for (int i = 0; i < w->n_segments; i++) {
        const llm_segment *s = &w->segment[i];
        if (!s->mapped || s->transposed || !s->data || s->n_rows < 1 || s->read) continue;
        const uint8_t *from = llm__segment_data(s, 0), *to = llm__segment_data(s, s->n_rows - 1);
        if (to - from > 65536) llm__file_rest(from, (size_t)(to - from));
    }
}

/* Row r of kv_b to its panels: along a panel's columns where it makes keys, down a column where it makes values. */
static void llm__pack_latent(const llm_weight *w, int64_t r) {
    const int64_t head = r / (w->rows / w->n_heads), row = r % (w->rows / w->n_heads), value = row - w->n_keys;
    uint8_t *to = w->memory + llm__latent_at(w, (int)head, value >= 0);
    float x[LLM__CHUNK];
    for (int64_t c = 0; c < w->cols; c += LLM__CHUNK) {
        const int n = (int)LLM__MIN(w->cols - c, (int64_t)LLM__CHUNK);
        llm__weight_values(w, r, c, n, x);
        for (int i = 0; i < n; i++) {
            const int64_t col = c + i;
            const int64_t at = value < 0 ? (col / LLM__WIDE * w->n_keys + row) * LLM__WIDE + col % LLM__WIDE
                                         : (value / LLM__WIDE * w->cols + col) * LLM__WIDE + value % LLM__WIDE;
            const uint16_t half = llm__f32_to_f16(x[i]);
            if (w->up == LLM__KIND_F16) memcpy(to + 2 * at, &half, 2);
            else memcpy(to + 4 * at, &x[i], 4);
        }
    }
}

LLM__PRIVATE void llm__weight_pack(llm_weight *w, int thread, int n_threads) {
    const int64_t pitch = llm__embed_pitch(w), n = w->f32 || w->n_keys || pitch ? w->rows : w->n_blocks;
    const int64_t part = LLM__MAX(1, ((int64_t)4 << 20) * n / LLM__MAX((int64_t)w->bytes, 1));
    for (int64_t i = n * thread / n_threads; i < n * (thread + 1) / n_threads; i++) {
        if (i % part == part - 1) llm__weight_rest(w);
        if (w->f32) {
            llm__weight_values(w, i, 0, w->cols, w->f32 + i * w->cols);
            for (int64_t k = 0; k < w->cols && w->add != 0; k++) w->f32[i * w->cols + k] += w->add;
        } else if (pitch) {
            const int k = llm__weight_segment(w, i);
            const llm_segment *s = &w->segment[k];
            s->read(s->data, llm__segment_row(s, i - w->first_row[k]), 1, 1, s->col, s->n_cols, w->memory + i * pitch);
        } else if (w->n_keys) {
            llm__pack_latent(w, i);
        } else if (w->block[i].kind == LLM__KIND_F8) {
            llm__pack_f8(w, &w->block[i], w->memory + w->block[i].offset);
        } else if (llm__kind_is_float((llm__kind)w->block[i].kind)) {
            llm__pack_floats(w, &w->block[i], w->memory + w->block[i].offset);
        } else {
            llm__pack_quantised(w, &w->block[i], w->memory + w->block[i].offset);
        }
    }
}
