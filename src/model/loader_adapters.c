#include "model/loader_adapters.h"
#include "api/config.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/take.h"

/* The two factors that the adapter has for a stored matrix, and the name that patterns know it by: 1, and both are there; else 0, which may
 * be an error. up: 0, or 1 and 2 for the names that PEFT gives the parameter of a module (target_parameters): the module's, and the same
 * with ".base_layer" where two of its parameters have factors; patterns know the parameter. */
static int llm__adapter_find(llm__loader *L, int slot, int expert, int up, const llm__tensor *pair[2], char known[256]) {
    static const char *const ends[4][2] = {{".lora_A.weight", ".lora_B.weight"},
                                           {".lora_embedding_A", ".lora_embedding_B"},
                                           {".base_layer.lora_A.weight", ".base_layer.lora_B.weight"},
                                           {".weight.lora_a", ".weight.lora_b"}};
    const llm__adapter *d = L->adapter;
    const char *const *end = ends[d->gguf ? 3 : up == 2 ? 2 : slot == LLM__W_EMBED];
    char name[2][256];
    llm__str word;
    for (const char *words = llm__slot_names[slot]; llm__list_next(&words, " ", &word);) {
        if (up && memchr(word.p, '#', word.n)) continue;
        llm__slot_name(L, d->prefix, d->base, word, expert, "", known);
        while (up && word.n && word.p[--word.n] != '.') {}
        for (int k = 0; k < 2; k++) {
            llm__slot_name(L, d->prefix, d->base, word, expert, end[k], name[k]);
            pair[k] = llm__tensors_find(&d->tensors, name[k]);
        }
        if (!pair[0] != !pair[1]) L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s is missing", d->path, name[!pair[1]]);
        if (pair[0] || pair[1]) return !L->r;
    }
    return 0;
}

/* Checks both factors: type, rank r, shapes (leading 1s do not matter). 0: an error. */
static int llm__adapter_check(llm__loader *L, const llm__tensor *const pair[2], int64_t r, const int64_t down[3], const int64_t up[3]) {
    llm__adapter *d = L->adapter;
    const llm__tensor *b = pair[1];
    if (r < 1) L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s has rank 0", d->path, b->name.p);
    else if (r > d->max_rank)
        L->r = llm__error(LLM_ERR_LIMIT, "%s: LoRA rank %lld is greater than max_lora_rank %d.", d->path, (long long)r, d->max_rank);
    else if (d->rank && r != d->rank)
        L->r =
            llm__error(LLM_ERR_FORMAT, "%s: tensor %s has rank %d, adapter_config.json says r = %d", d->path, b->name.p, (int)r, d->rank);
    for (int k = 0; k < 2; k++) {
        if (L->r || !llm__loader_type(L, pair[k]) || !llm__loader_fits(L, pair[k], k ? up : down, 3)) return 0;
        d->used[pair[k] - d->tensors.item] = 1;
    }
    return 1;
}

/* alpha / r, where alpha_pattern may give a matrix an alpha of its own: by its name or the end of it. Of several that fit the first
 * counts, as in PEFT. */
static float llm__adapter_scale(const llm__adapter *d, const char *known, int64_t r) {
    double alpha = d->alpha;
    const llm_json *c = d->config;
    for (int own = llm_json_first(c, llm_json_find(c, 0, "alpha_pattern")), fits = 0; own >= 0 && !fits; own = llm_json_next(c, own)) {
        size_t n, end = strlen(known);
        const char *key = llm_json_key(c, own, &n);
        fits = n < end && known[end - n - 1] == '.' && !memcmp(known + end - n, key, n);
        if (fits) llm_json_num(c, own, &alpha);
    }
    if (d->gguf && alpha == 0) return 1; /* as llama.cpp takes it */
    return (float)(alpha / (d->root ? sqrt((double)r) : (double)r));
}

/* Where the factors of a matrix W (tall, wide) stand: element (i, j) of A (r, wide) at a_at + i a_row + j a_col, B (tall, r) alike. Their
 * product counts `scale` times. */
typedef struct llm__factors {
    const llm__tensor *a, *b; /* NULL: there are none */
    float scale;
    int64_t r, a_at, a_row, a_col, b_at, b_row, b_col;
} llm__factors;

/* Those that have tensors of their own, or (of expert e) are in a stack (E, r, wide) and (E, tall, r) as in GGUF. 0: none, or an error. */
static int llm__factors_own(llm__loader *L, int slot, int e, int64_t tall, int64_t wide, llm__factors *f) {
    const llm__tensor *pair[2];
    char known[256];
    const int across = slot == LLM__W_EMBED && L->adapter->gguf; /* A as (vocab, r) */
    if (!llm__adapter_find(L, slot, e, 0, pair, known)) return 0;
    const llm__tensor *b = pair[1];
    const int64_t r = b->n_dims ? b->shape[b->n_dims - 1] : 0;
    const int stack = b->n_dims > 2 && llm__is_experts(slot), at = stack ? e : 0;
    const int64_t n = stack ? L->a->n_experts : 1, down[3] = {n, across ? wide : r, across ? r : wide}, up[3] = {n, tall, r};
    const float scale = llm__adapter_scale(L->adapter, known, r);
    const llm__factors found = {pair[0], b, scale, r, at * r * wide, across ? 1 : wide, across ? r : 1, at * r * tall, r, 1};
    *f = found;
    return llm__adapter_check(L, pair, r, down, up);
}

/* The same where PEFT has factors of all experts' matrices as one parameter of a module: A (E r, n), expert by expert, and B (m, r E), the
 * expert's number last. A parameter (E, wide, tall), as gpt-oss stores it, has n = wide and m = tall; (E, tall, wide) the other way round,
 * and then A's part is our B and B's part our A, both across. */
static int llm__factors_stacked(llm__loader *L, int slot, int e, int64_t tall, int64_t wide, llm__factors *f) {
    const llm__tensor *pair[2];
    char known[256];
    const int64_t E = L->a->n_experts;
    for (int up = 1; up <= 2 && !L->adapter->gguf; up++) {
        if (!llm__adapter_find(L, slot, e, up, pair, known)) continue;
        const int64_t rows = pair[0]->shape[0], r = rows / E, n = pair[0]->shape[1], m = pair[1]->shape[0];
        const int across = n == tall && m == wide && !(tall == wide && llm__arch_is(L->a, "gpt_oss"));
        if (pair[0]->n_dims != 2 || rows % E || (!across && (n != wide || m != tall))) continue;
        const int64_t first[3] = {1, rows, n}, second[3] = {1, m, rows};
        const float scale = llm__adapter_scale(L->adapter, known, r);
        const llm__factors plain = {pair[0], pair[1], scale, r, e * r * n, n, 1, e, rows, E};
        const llm__factors turned = {pair[1], pair[0], scale, r, e, E, rows, e * r * n, 1, n};
        *f = across ? turned : plain;
        return llm__adapter_check(L, pair, r, first, second);
    }
    return 0;
}

/* Elements of a tensor, times a scale, from `at` on and row_step and col_step apart, to dst (rows, stride). Every one must be a number: one
 * that is not would spoil every answer, and say so only then. */
static void llm__factor_values(llm__loader *L, const llm__tensor *t, int64_t at, int64_t row_step, int64_t col_step, int64_t rows,
                               int64_t cols, float scale, float *dst, int64_t stride) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0, n; j < cols; j += n) {
            n = col_step == 1 ? cols : 1; /* a row of ours lies in one of the tensor's, or across all */
            llm__dequant_columns(t->type, t->data, at + i * row_step + j * col_step, n, dst + i * stride + j);
            for (int64_t k = 0; k < n; k++) {
                float *x = &dst[i * stride + j + k];
                *x *= scale;
                if (!(fabsf(*x) <= 3e38f) && !L->r)
                    L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s: a value is not a finite number", L->path, t->name.p);
            }
        }
}

/* Where the adapter has row `at` of a matrix: files order the rows of q and k differently (see PAIRS_GGUF). */
static int64_t llm__adapter_row(const llm__loader *L, int slot, int64_t at) {
    const llm__arch *a = L->a;
    const int parted = llm__arch_is(a, "glm4") && a->position_rows == 3; /* the other way round, and not all of a head */
    int differ = L->adapter->gguf != a->gguf && a->flags & LLM__PAIRS_GGUF && (parted || !(a->flags & LLM__PAIRS));
    if (!differ || (slot != LLM__W_Q && slot != LLM__W_K)) return at;
    const int64_t d = a->layer[L->layer].head_dim, half = (parted ? a->rope[0].dim : d) / 2, k = at % d;
    if (k >= 2 * half) return at;
    return at - k + (a->gguf != parted ? k % 2 * half + k / 2 : k % half * 2 + k / half);
}

/* Refuses factors of states whose value heads stand in another order in the adapter's files than in the model's, as Qwen3.5's may (see
 * what >>convert_recurrent says): of what leads out of them the columns would have to change places. */
static void llm__adapter_turned(llm__loader *L, int slot) {
    const llm__arch *a = L->a;
    const int heads = slot == LLM__W_R_QKV || slot == LLM__W_R_Z || slot == LLM__W_R_A || slot == LLM__W_R_B || slot == LLM__W_R_OUT;
    if (L->adapter->gguf == a->gguf || !llm__arch_is(a, "qwen3_5_text qwen3_5_moe_text") || a->state.n_heads == a->state.n_groups) return;
    if (heads && !L->r)
        L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: layer %d: GGUF has value heads in another order than folders: an adapter %s expected",
                          L->path, L->layer, a->gguf ? "in GGUF" : "of PEFT");
}

/* What goes into a slot of a site, with all that it points to. */
typedef struct llm__adapter_parts {
    int n;
    llm_lora_part part[LLM_LORA_PARTS];
    llm_weight_desc desc[LLM_LORA_PARTS][2];
    llm_segment segment[LLM_LORA_PARTS][2];
    llm__arena memory;
} llm__adapter_parts;

/* Adds a part: factors (n_groups) of a matrix, or of every expert's, cut like what was taken of each (n_groups, n_takes): the rows of all
 * takes, the columns of any. They get the largest of their ranks; what others lack, and who has none, gets zeros. row: of the layer. */
static void llm__adapter_part(llm__loader *L, llm__adapter_parts *p, llm_role role, int n_groups, const llm__factors *f,
                              const llm__taken *t, size_t n_takes, int64_t row) {
    const int embed = role == LLM_ROLE_EMBED;
    const int64_t cols = t->cols.n;
    int64_t r = 0, rows = 0;
    for (int g = 0; g < n_groups; g++) r = LLM__MAX(r, f[g].a ? f[g].r : 0);
    for (size_t i = 0; i < n_takes; i++) rows += t[i].rows.n;
    if (r && !L->r && p->n == LLM_LORA_PARTS)
        L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: layer %d: factors of more than %d matrices that are computed as one", L->path, L->layer,
                          (int)LLM_LORA_PARTS);
    if (!r || L->r) return;
    float *a = (float *)llm__arena_get(&p->memory, (size_t)(n_groups * r * cols) * sizeof *a);
    float *b = (float *)llm__arena_get(&p->memory, (size_t)(n_groups * r * rows) * sizeof *b), *to = b;
    if (!a || !b) {
        L->r = llm__nomem();
        return;
    }
    for (int g = 0; g < n_groups; g++, f++) {
        if (f->a && n_takes) llm__adapter_turned(L, t->slot);
        float scale = f->a ? f->scale * llm__fold_by(L->a, t->slot, 0, 0) : 0;
        if (f->a && embed) llm__factor_values(L, f->a, f->a_at + t->cols.first * f->a_col, f->a_col, f->a_row, cols, r, 1, a, r);
        else if (f->a)
            llm__factor_values(L, f->a, f->a_at + t->cols.first * f->a_col, f->a_row, f->a_col, f->r, cols, 1, a + g * r * cols, cols);
        for (size_t i = 0; i < n_takes; i++, t++)
            for (int64_t k = 0; k < t->rows.n; k++, to += r) {
                int64_t at = llm__adapter_row(L, t->slot, t->rows.first + k * t->rows.step);
                if (f->a) llm__factor_values(L, f->b, f->b_at + at * f->b_row, 0, f->b_col, 1, f->r, scale, to, r);
            }
    }
    for (int k = 0; k < 2; k++) {
        const int64_t high = k ? n_groups * rows : embed ? cols : n_groups * r, wide = k || embed ? r : cols;
        const int latent = role == LLM_ROLE_MLA_UP, across = latent && k;
        const llm_role kind = latent ? role : n_groups > 1 ? LLM_ROLE_EXPERTS : embed && !k ? LLM_ROLE_VECTOR : LLM_ROLE_LINEAR;
        const int64_t g_rows = across ? wide : high, g_cols = across ? high : wide;
        const llm_segment g = {k ? b : a, LLM_TYPE_F32, across, wide, 0, g_rows, 1, 0, g_cols, 1, 0, NULL, NULL, NULL};
        const llm_weight_desc d = {L->path, kind, &p->segment[p->n][k], 1, n_groups, g.n_rows, g.n_cols, 0, 0, 0};
        p->segment[p->n][k] = g;
        p->desc[p->n][k] = d;
    }
    const llm_lora_part part = {row, &p->desc[p->n][0], &p->desc[p->n][1]};
    p->part[p->n++] = part;
}

/* Fills the adapter's slot of a site, with nothing where the adapter has nothing for it. */
static void llm__adapter_put(llm__loader *L, const llm__net_pair *to, llm__adapter_parts *p) {
    if (to->lora && !L->r) L->r = L->backend->lora_put(L->ctx, L->rank, to->lora, L->slot, p->part, p->n);
    llm__arena_free(&p->memory);
}

/* 1 for matrices of an indexer that is left out, because contexts are so short that it changes no answer: factors of theirs go nowhere. */
static int llm__adapter_idle(const llm__loader *L) {
    const int slot = L->n_taken ? L->taken[0].slot : -1;
    return slot == LLM__W_INDEX_Q || slot == LLM__W_INDEX_K;
}

LLM__PRIVATE void llm__adapter_layer(llm__loader *L, llm_role role, const llm__net_pair *to) {
    llm__adapter_parts p = LLM__ZERO;
    llm__factors f;
    int64_t row = 0;
    const int seen = to->lora || llm__adapter_idle(L);
    for (size_t i = 0, next = 0; i < L->n_taken && !L->r && seen; i = next) {
        llm__taken *t = &L->taken[i];
        const int64_t first = row;
        for (; next < L->n_taken && L->taken[next].slot == t->slot; next++) row += L->taken[next].rows.n;
        if (role == LLM_ROLE_EMBED) {
            t->cols = t->rows;
            t->rows = llm__all(L->a->hidden);
        }
        if (llm__factors_own(L, role == LLM_ROLE_HEAD ? (int)LLM__W_HEAD : t->slot, 0, t->rows.size, t->cols.size, &f))
            llm__adapter_part(L, &p, role, 1, &f, t, next - i, first);
    }
    L->n_taken = 0;
    llm__adapter_put(L, to, &p);
}

LLM__PRIVATE void llm__adapter_experts(llm__loader *L, int slot, llm__slice rows, llm__slice cols, int turns, const llm__net_pair *to) {
    const int E = L->a->n_experts, two = slot == LLM__W_E_GATE, both = two ? (int)LLM__W_E_GATE_UP : slot;
    llm__adapter_parts p = LLM__ZERO;
    llm__factors *f = (llm__factors *)llm__arena_get(&p.memory, 2 * (size_t)E * sizeof *f);
    llm__taken *t = (llm__taken *)llm__arena_get(&p.memory, 2 * (size_t)E * sizeof *t);
    if (!f || !t) L->r = llm__nomem();
    for (int i = 0; i <= two && to->lora && !L->r; i++, f += E, t += E) {
        llm__slice fused = {2 * rows.size, turns ? 2 * rows.first + i : rows.first + i * rows.size, rows.n, turns ? 2 : 1};
        if (!two) fused = rows;
        for (int e = 0; e < E && !L->r; e++) {
            int own = llm__factors_own(L, slot + i, e, rows.size, cols.size, &f[e]);
            const llm__taken one = {slot + i, own ? rows : fused, cols};
            t[e] = one;
            if (!own && !L->r && two) own = llm__factors_own(L, both, e, fused.size, cols.size, &f[e]);
            if (!own && !L->r) llm__factors_stacked(L, both, e, fused.size, cols.size, &f[e]);
        }
        llm__adapter_part(L, &p, LLM_ROLE_EXPERTS, E, f, t, 1, i * rows.n);
    }
    llm__adapter_put(L, to, &p);
}
