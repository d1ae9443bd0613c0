/* ---- Products in plain C ---- */

/* How many vectors of products add up in 16 bits: 0 stands for signed bytes. */
LLM__INLINE int llm__kind_run(llm__kind kind) { return llm__kind_signed(kind) ? 0 : 8 >> (llm__kind_info(kind).bits - 4); }

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
    const uint8_t *fetch; /* of a block that is multiplied: what llm__fetch is to be given */
    int *tiles;           /* see llm__kernels.rest */
    struct llm__amx *amx; /* see >>kernels-amx */
} llm__product;

/* Multiplies an unpacked block (or two) of a kind with the tile's roundings from index `at` on, and adds to p->out. */
typedef void (*llm__block_fn)(const llm__kind kind, const llm__cooked *w, const llm__product *p, size_t at);

/* Walks over the blocks, front to back: unpack, then out += what the block gives. A head, where the format has one, stands in front of every
 * eighth block and holds for these eight. Kernels that take one block at a time walk twice over a pair; the second time it is in the cache. */
LLM__INLINE void llm__walk(const llm__kind kind, const int take, const llm__offset offset, const llm__block_fn block,
                           const llm__product *whole, const llm__half_fn half, const llm__bytes_fn bytes, const llm__look_up_fn look_up) {
    const int pair = take == 2 ? 2 : whole->pair;
    llm__product p = *whole; /* its pointers in registers */
    llm__cooked cooked[2][2]; /* of tiles, which come back to the block before, in turn */
    for (int place = 0; place < pair; place += take, p.out += LLM__OUT) {
        const uint8_t *w = p.w, *head = w;
        size_t at = p.at;
        for (int i = 0; i < take; i++) memset(p.out + i * LLM__OUT, 0, sizeof(float) * LLM__ROWS * (size_t)p.n);
        for (int64_t b = 0; b < p.n_blocks; b++, w += pair * llm__kind_block(kind), at += (size_t)p.n) {
            llm__cooked *const to = cooked[offset == LLM__LESS && b & 1];
            if (llm__kind_head(kind) && b % LLM__SUPER == 0) {
                head = w;
                w += pair * llm__kind_head(kind);
            }
            p.fetch = w + LLM__AHEAD;
            LLM__UNROLL
            for (int i = 0; i < take; i++) llm__unpack(kind, offset, pair, place + i, w, head, &to[i], half, bytes, look_up);
            block(kind, to, &p, at);
        }
    }
}

/* The same where registers are too few to keep a block between the two: then super-blocks are unpacked as a whole, and only that is compiled
 * for each format. cook: llm__cook of a kind that is known. multiply: n blocks, or pairs, (n, 2) with the tile's roundings from `at` on. */
typedef void (*llm__cook_fn)(llm__kind kind, llm__offset offset, int pair, const uint8_t *w, int n, llm__cooked (*to)[2]);
typedef void (*llm__multiply_fn)(llm__kind kind, const llm__cooked (*w)[2], int n, const llm__product *p, size_t at);

LLM__INLINE void llm__walk_cooked(llm__kind kind, llm__offset offset, const llm__cook_fn cook, const llm__multiply_fn multiply, const llm__product *p) {
    llm__cooked cooked[LLM__SUPER][2];
    const uint8_t *w = p->w;
    size_t at = p->at;
    for (int i = 0; i < p->pair; i++) memset(p->out + i * LLM__OUT, 0, sizeof(float) * LLM__ROWS * (size_t)p->n);
    for (int64_t left = p->n_blocks; left > 0; left -= LLM__SUPER) {
        const int n = (int)LLM__MIN(left, (int64_t)LLM__SUPER);
        cook(kind, offset, p->pair, w, n, cooked);
        multiply(kind, (const llm__cooked (*)[2])cooked, n, p, at);
        w += p->pair * (llm__kind_head(kind) + n * llm__kind_block(kind));
        at += (size_t)n * (size_t)p->n;
    }
}

/* This is the meaning of all products of bytes. Sums of integers are exact whatever their order; the floats are added block by block, the
 * minimum first, whatever n is. */
static void llm__scalar_multiply(llm__kind kind, const llm__cooked (*w)[2], int n, const llm__product *p, size_t at) {
    const int x2 = llm__kind_x2(kind);
    for (int b = 0; b < n; b++)
        for (int i = 0; i < p->n * p->pair; i++) {
            const llm__cooked *c = &w[b][i % p->pair];
            const int t = i / p->pair;
            const size_t a = at + (size_t)(b * p->n + t);
            const int8_t *q = p->act.q + a * 32;
            int32_t sum[2][LLM__ROWS] = {{0}};
            for (int j = 0; j < 8; j++)
                for (int r = 0; r < LLM__ROWS; r++)
                    for (int k = 0; k < 4; k++) sum[j / 4][r] += c->u[64 * j + 4 * r + k] * q[4 * j + k];
            for (int r = 0; r < LLM__ROWS; r++) {
                float *to = p->out + i % p->pair * LLM__OUT + t * LLM__ROWS + r;
                *to += c->m[0][r] * p->act.s[2 * a];
                if (x2) *to += c->m[1][r] * p->act.s[2 * a + 1] + c->d[1][r] * p->act.d[a] * (float)sum[1][r];
                *to += c->d[0][r] * p->act.d[a] * (float)(x2 ? sum[0][r] : sum[0][r] + sum[1][r]);
            }
        }
}

/* One loop for all formats: where this runs, speed is no aim. */
static void llm__scalar_cook(llm__kind kind, llm__offset offset, int pair, const uint8_t *w, int n, llm__cooked (*to)[2]) {
    llm__cook(kind, offset, pair, w, n, to, llm__scalar_half, llm__scalar_bytes, llm__scalar_look_up);
}

static void llm__scalar_product(llm__kind kind, const llm__product *p) {
    llm__walk_cooked(kind, LLM__UNSIGNED, llm__scalar_cook, llm__scalar_multiply, p);
}

/* A product of floats: c[i][p][j] = start + sum over k of a[i][k] * b[p][k][j], for i < n, two panels p and j < 16. It serves linear layers
 * over floats (a: activations, b: two blocks of packed rows) and both products of attention: scores (a: queries, b: transposed keys) and
 * values (a: weights, b: value rows). Every element is one chain of multiply-adds in the order of k, so neither n nor who is in the other
 * panel changes its bits. The chain starts with 0, or with scale[i] * c; with `add` its end is added to c. */
typedef struct llm__mac {
    const float *a;
    const uint16_t *half; /* NULL, or bf16 instead of a: then b is bf16 */
    const void *b[2];     /* of bf16 two k at a time, as packed: b[k / 2][j][k % 2] */
    const uint8_t *fetch[2]; /* what is read next is fetched meanwhile, `pace` bytes for each k: memory gives most where it is asked evenly */
    int64_t pace;
    float *c;
    const float *scale;   /* NULL: start with 0 */
    int lda, ldb, ldc, n, k, add;
    int phase;            /* the first k's place in its group of 32, where sums are made of groups */
    int step;             /* floats of c between panels. 0: there is one, both of b are it; then no add */
    llm__kind type;       /* of b: F32, F16 or BF16 (k even) */
    int *tiles;           /* see llm__kernels.rest */
} llm__mac;

/* b[p][k] as f32. */
static llm__v16 llm__scalar_panel(const llm__mac *m, int p, int k) {
    const uint16_t *half = (const uint16_t *)m->b[p] + (int64_t)k * m->ldb;
    llm__v16 v;
    if (m->type == LLM__KIND_F32) return llm__load16((const float *)m->b[p] + (int64_t)k * m->ldb, LLM__ROWS);
    if (m->type == LLM__KIND_F16) return llm__scalar_half(half);
    half -= k % 2 * (m->ldb - 1);
    LLM__EACH(j) v.v[j] = llm__bf16_to_f32(half[2 * j]);
    return v;
}

/* The meaning of mac; the vector versions keep the order of k and fuse what stands here as two operations. */
static void llm__scalar_mac(const llm__mac *m) {
    for (int i = 0; i < m->n; i++)
        for (int p = 0; p < (m->step ? 2 : 1); p++) {
            float *c = m->c + i * m->ldc + p * m->step;
            llm__v16 s = llm__load16(c, LLM__ROWS), before = s;
            LLM__EACH(j) s.v[j] = m->scale ? s.v[j] * m->scale[i] : 0;
            for (int k = 0; k < m->k; k++) {
                const int64_t at = (int64_t)i * m->lda + k;
                const float x = m->half ? llm__bf16_to_f32(m->half[at]) : m->a[at];
                const llm__v16 v = llm__scalar_panel(m, p, k);
                LLM__EACH(j) s.v[j] += x * v.v[j];
            }
            if (m->add) LLM__EACH(j) s.v[j] += before.v[j];
            llm__store16(c, LLM__ROWS, s);
        }
}

/* mac with the vectors of an instruction set, `lanes` floats each; its intrinsics begin with mm. Rows [i, i + n) at a time, n <= most: their
 * sums stay in registers, and what is loaded of b serves all of them; then 4, then 3 (queries of a group of heads), then one: every other
 * count would be one more instance of the loop. in: which inputs of llm__mac are read. load: lanes of b, of pairs of bf16 the former or the latter (`apart`: one
 * after the other); spread: an input in all lanes; step: s + x v. The order of the steps is such that few registers hold inputs. */
#define LLM__MAC(isa, TARGET, mm, vector, lanes, most, in, apart, load, spread, step) \
    LLM__FORCE TARGET void llm__##isa##_rows(const llm__mac *m, int i, const int n, const llm__kind type) { \
        const int each = 32 / (lanes), two = type == LLM__KIND_BF16 ? 2 : 1; \
        vector s[most][32 / (lanes)], v[32 / (lanes)], x[most]; \
        float *const first = m->c + (int64_t)i * m->ldc, *c = first; \
        LLM__UNROLL \
        for (int r = 0; r < n; r++, c += m->ldc) \
            LLM__UNROLL \
            for (int j = 0; j < each; j++) \
                s[r][j] = m->scale ? mm##_mul_ps(mm##_loadu_ps(LLM__MAC_TO(j, lanes)), mm##_set1_ps(m->scale[i + r])) : mm##_set1_ps(0); \
        for (int k = 0; k < m->k; k += two) \
            LLM__UNROLL \
            for (int h = 0; h < ((apart) ? two : 1); h++) \
                LLM__UNROLL \
                for (int q = 0; q < n * each; q++) { \
                    const int r = (most) > each ? q / each : q % n, j = (most) > each ? q % each : q / n; \
                    if (r == 0 && j * (lanes) % 16 == 0) __builtin_prefetch(m->fetch[j * (lanes) / 16] + (k + h) * m->pace); \
                    if (r == 0 && !(apart)) __builtin_prefetch(m->fetch[j * (lanes) / 16] + (k + 1) * m->pace); /* cores forget some */ \
                    if (r == 0) v[j] = load(type, m->b[j * (lanes) / 16], (int64_t)k * m->ldb + j * (lanes) % 16 * two, h); \
                    if (j == 0) x[r] = spread(m->in + (int64_t)(i + r) * m->lda + k + h); \
                    s[r][j] = step(x[r], v[j], s[r][j]); \
                } \
        c = first; \
        LLM__UNROLL \
        for (int r = 0; r < n; r++, c += m->ldc) { \
            if (!m->add) break; \
            LLM__UNROLL \
            for (int j = 0; j < each; j++) s[r][j] = mm##_add_ps(mm##_loadu_ps(LLM__MAC_TO(j, lanes)), s[r][j]); \
        } \
        c = first; \
        LLM__UNROLL \
        for (int r = 0; r < n; r++, c += m->ldc) \
            LLM__UNROLL \
            for (int j = 0; j < each; j++) mm##_storeu_ps(LLM__MAC_TO(j, lanes), s[r][j]); \
    } \
    LLM__FORCE TARGET void llm__##isa##_all(const llm__mac *m, const llm__kind type) { \
        int i = 0; \
        for (; i + (most) <= m->n; i += (most)) llm__##isa##_rows(m, i, most, type); \
        for (; (most) > 4 && i + 4 <= m->n; i += 4) llm__##isa##_rows(m, i, 4, type); \
        for (; (most) > 3 && i + 3 <= m->n; i += 3) llm__##isa##_rows(m, i, 3, type); \
        for (; i < m->n; i++) llm__##isa##_rows(m, i, 1, type); \
    }

/* Where a row's vector j goes in c. */
#define LLM__MAC_TO(j, lanes) (c + (j) * (lanes) / 16 * m->step + (j) * (lanes) % 16)

/* One loop for each type. */
#define LLM__MAC_TYPES(all, m) \
    if ((m)->type == LLM__KIND_F32) all(m, LLM__KIND_F32); \
    else if ((m)->type == LLM__KIND_F16) all(m, LLM__KIND_F16); \
    else all(m, LLM__KIND_BF16);

