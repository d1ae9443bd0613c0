#include "model/loader.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "cpu/dtypes.h"
#include "cpu/grids.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/requant.h"
#include "model/quant_seek.h"

LLM__PRIVATE const char *llm__layer_base(const llm__tensors *t, size_t skip) {
    static const char *const bases[] = {"model.layers.",
                                        "blk.",
                                        "model.decoder.layers.",
                                        "h.",
                                        "transformer.h.",
                                        "transformer.encoder.layers.",
                                        "gpt_neox.layers.",
                                        "model.language_model.layers.",
                                        "language_model.model.layers.",
                                        "model.text_model.layers.",
                                        "llm.model.layers.",
                                        "layers.",
                                        "decoder.layers.",
                                        "ernie.layers.",
                                        "backbone.layers.",
                                        "model.backbone.layers.",
                                        "encoder.layer.",
                                        "bert.encoder.layer.",
                                        "roberta.encoder.layer.",
                                        "encoder.layers.",
                                        "bert.encoder.layers.",
                                        "mpnet.encoder.layer.",
                                        "transformer.layer.",
                                        "distilbert.transformer.layer.",
                                        "electra.encoder.layer.",
                                        "ernie.encoder.layer.",
                                        "roberta_prelayernorm.encoder.layer.",
                                        "data2vec_text.encoder.layer.",
                                        "new.encoder.layer.",
                                        "gte.layers.",
                                        "transformer.blocks."};
    for (int b = 0; b < LLM__COUNT(bases); b++)
        for (size_t i = 0; i < t->n; i++)
            if (t->item[i].name.n > skip && !strncmp(t->item[i].name.p + skip, bases[b], strlen(bases[b]))) return bases[b];
    return bases[0];
}

/* ---- Loading: from tensors to weights of a backend ----
 * A weight is put together of segments (rows and columns of stored matrices), so nothing is copied here. What families
 * store in different ways are only different lists of segments; for q, k and v of a rank:
 *   apart       rows of Q, rows of K, rows of V
 *   fused       three ranges of rows of one matrix: q, k, v
 *   grouped     many ranges: the matrix goes kv head by kv head, its queries, its k, its v
 *   Conv1D      the same with `transposed`: a row of the weight is a stored column
 *   experts     gate and up of expert 0, gate and up of expert 1, ...; in gpt-oss every second row of one matrix
 * llm__take adds to the lists, llm__make hands them over. A vector (a norm, a bias) is a stored row, seen as a matrix of
 * one column: the same cuts fit it. Without a backend everything is looked up and checked, and nothing made: so a broken
 * file is refused when the model is opened. */

LLM__PRIVATE llm__slice llm__slice_of(int64_t size, int64_t first, int64_t n) {
    llm__slice c = {size, first, n, 1};
    return c;
}

LLM__PRIVATE llm__slice llm__all(int64_t size) { return llm__slice_of(size, 0, size); }

LLM__PRIVATE llm__slice llm__slice_times(llm__slice c, int64_t width) {
    return llm__slice_of(c.size * width, c.first * width, c.n * width);
}

LLM__PRIVATE void llm__slot_name(const llm__loader *L, const char *prefix, const char *base, llm__str word, int expert, const char *end,
                                 char name[256]) {
    char layer[64] = "", number[16] = "";
    const size_t n = llm__str_until(word, "#"), rest = LLM__MIN(n + 1, word.n);
    if (L->layer >= 0 && L->a->layer_from < 0) snprintf(layer, sizeof layer, "%s", base);
    else if (L->layer >= 0) snprintf(layer, sizeof layer, "%s%d.", base, L->layer + L->a->layer_from);
    if (n < word.n) snprintf(number, sizeof number, "%d", expert);
    snprintf(name, 256, "%s%s%.*s%s%.*s%s", prefix, layer, (int)n, word.p, number, (int)(word.n - rest), word.p + rest, end);
}

LLM__PRIVATE const llm__tensor *llm__loader_find(const llm__loader *L, int slot, int expert, int bias, char *name) {
    static const char *const suffixes[2][6] = {{".weight", ".qweight", ".weight_packed", "", ".gamma", "_blocks"},
                                               {".quant_bias", ".bias", "_bias", ".beta"}};
    char first[256] = "";
    llm__str word;
    int mxfp4 = !bias && (slot == LLM__W_E_GATE_UP || slot == LLM__W_E_DOWN);
    for (int i = 0; i < (bias ? 4 : 5 + mxfp4); i++)
        for (const char *words = llm__slot_names[slot]; llm__list_next(&words, " ", &word);) {
            llm__slot_name(L, "", L->base, word, expert, suffixes[bias][i], name);
            const llm__tensor *t = llm__tensors_find(&L->m->source.tensors, name);
            if (t) return t;
            if (!first[0] && i == bias) memcpy(first, name, 256);
        }
    memcpy(name, first, 256);
    return NULL;
}

LLM__PRIVATE int llm__has(const llm__loader *L, int slot) {
    char name[256];
    return llm__loader_find(L, slot, 0, 0, name) != NULL;
}

/* Dimensions as text: "2, 3". */
static void llm__shape_text(const int64_t *d, int n, char out[96]) {
    int at = 0;
    out[0] = 0;
    for (int i = 0; i < n; i++) at += snprintf(out + at, 96 - (size_t)at, "%s%lld", i ? ", " : "", (long long)d[i]);
}

LLM__PRIVATE int llm__loader_fits(llm__loader *L, const llm__tensor *t, const int64_t *want, int n) {
    char found[96], expected[96];
    int skip = 0, w = 0;
    while (skip < t->n_dims && t->shape[skip] == 1) skip++;
    while (w < n && want[w] == 1) w++;
    if (n == 1 && t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] == want[0]) return 1;
    if (t->n_dims - skip == n - w && !memcmp(t->shape + skip, want + w, (size_t)(n - w) * sizeof *want)) return 1;
    llm__shape_text(t->shape, t->n_dims, found);
    llm__shape_text(want, n, expected);
    L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s has shape (%s), (%s) expected", L->path, t->name.p, found, expected);
    return 0;
}

LLM__PRIVATE int llm__loader_type(llm__loader *L, const llm__tensor *t) {
    if (llm__type_readable(t->type)) return 1;
    L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s has type %s, which is not read as a weight", L->path, t->name.p,
                      llm__type_name(t->type));
    return 0;
}

/* gpt-oss as its publisher stores it: 4-bit values and exponents in two tensors. Put together as MXFP4 blocks of 17
 * bytes: an exponent, then bytes that hold element i and i + 16 (stored: 2i and 2i + 1). NULL: they do not fit, no
 * memory, or only checking. */
static const uint8_t *llm__loader_mxfp4(llm__loader *L, int slot, const llm__tensor *blocks, int64_t rows, int64_t cols) {
    char name[256];
    const uint8_t **made = &L->mxfp4[L->layer][slot == LLM__W_E_DOWN];
    snprintf(name, sizeof name, "%.*s_scales", (int)LLM__MIN(blocks->name.n - 7, (size_t)240), blocks->name.p);
    const llm__tensor *scales = llm__tensors_find(&L->m->source.tensors, name);
    int64_t E = L->a->n_experts, n = E * rows * (cols / 32);
    int ok = scales && blocks->type == LLM_TYPE_U8 && scales->type == LLM_TYPE_U8 && cols % 32 == 0;
    if (!ok || blocks->bytes != n * 16 || scales->bytes != n)
        L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s and its _scales: MXFP4 of %d experts of (%lld, %lld) expected", L->m->path,
                          blocks->name.p, (int)E, (long long)rows, (long long)cols);
    if (L->r || !L->backend || *made) return *made;
    if (L->dry) {
        L->unpacked += n * 17;
        return *made = blocks->data;
    }
    uint8_t *to = (uint8_t *)llm__arena_get(&L->keep, (size_t)n * 17);
    if (!to) L->r = llm__nomem();
    for (int64_t b = 0; to && b < n; b++) {
        const uint8_t *from = blocks->data + b * 16;
        to[b * 17] = scales->data[b];
        for (int i = 0; i < 16; i++) {
            int low = from[i / 2] >> (i % 2 * 4) & 15, high = from[8 + i / 2] >> (i % 2 * 4) & 15;
            to[b * 17 + 1 + i] = (uint8_t)(low | high << 4);
        }
    }
    return *made = to;
}

/* The scale of fp8 or int8 experts that are all in one tensor: one for all of them. */
static void llm__loader_scale(llm__loader *L, const llm__tensor *t, llm_segment *s) {
    char name[256];
    snprintf(name, sizeof name, "%.240s_scale", t->name.p);
    const llm__tensor *scale = llm__tensors_find(&L->m->source.tensors, name);
    if (!scale || !llm__word_in("F32 F16 BF16", llm__type_name(scale->type)) || scale->bytes != llm__row_bytes(scale->type, 1)) {
        L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s is %s of several matrices without one scale for all", L->m->path, t->name.p,
                          t->type == LLM_TYPE_I8 ? "int8" : "fp8");
        return;
    }
    s->scale = llm__element(scale->type, scale->data, 0);
    if (s->scale == 0) s->scale = 1e-30f; /* a segment's 0 stands for 1 */
}

/* 1 if a tensor stands in a mapped file, whose pages may be given back. */
static int llm__loader_mapped(const llm__loader *L, const llm__tensor *t) {
    int mapped = 0;
    for (size_t i = 0; i < L->m->source.n_files; i++) {
        const llm__file *f = &L->m->source.files[i];
        mapped |= f->mapped && t->data >= f->data && t->data < f->data + f->size;
    }
    return mapped;
}

LLM__PRIVATE int llm__is_experts(int slot) { return slot >= LLM__W_E_GATE_UP && slot <= LLM__W_E_DOWN; }

/* The same of a Paddle file: all of the layers, and an output layer that is not the embedding, which its shape tells. */
static int llm__paddle_across(const llm__loader *L, int slot) {
    char name[256];
    const llm__tensor *t = L->layer < 0 && slot == LLM__W_HEAD ? llm__loader_find(L, slot, 0, 0, name) : NULL;
    return L->layer >= 0 || slot == LLM__W_FC || (t && t->n_dims == 2 && t->shape[0] == L->a->hidden && t->shape[1] == L->a->vocab);
}

/* 1 if a matrix stands as (in, out): GPT-2's Conv1D, experts of gpt-oss and, all in one tensor, of Llama 4, the keys of latent attention in
 * GGUF, and Paddle's. */
static int llm__stored_across(const llm__loader *L, int slot) {
    if (llm__word_in("ernie.layers. ernie.mtp_block.", L->base)) return llm__paddle_across(L, slot);
    if (L->a->gguf) return slot == LLM__W_K_B;
    if (L->a->n_sets > 1 && (slot == LLM__W_ROUTER || slot == LLM__W_ROUTER2)) return 1;
    if (llm__arch_is(L->a, "llama4_text")) return llm__is_experts(slot) && llm__has(L, LLM__W_E_GATE_UP);
    return (L->a->flags & LLM__CONV1D && L->layer >= 0) || (llm__is_experts(slot) && llm__arch_is(L->a, "gpt_oss"));
}

/* In GGUF a number for a whole matrix may stand beside it, X.scale beside X.weight, of stacked experts one each: NVFP4 has that. */
static void llm__loader_beside(llm__loader *L, const llm__tensor *t, llm__slice which, llm_segment *s) {
    char name[256];
    const int base = (int)LLM__MIN(t->name.n - LLM__MIN(t->name.n, (size_t)7), (size_t)240);
    snprintf(name, sizeof name, "%.*s.scale", base, t->name.p);
    const llm__tensor *by = llm__ends_with(t->name.p, ".weight") ? llm__tensors_find(&L->m->source.tensors, name) : NULL;
    if (!by || llm__arch_is(L->a, "gemma4_text")) return; /* whose router and experts have names like that for other numbers */
    const int64_t n = by->shape[0] * by->shape[1] * by->shape[2] * by->shape[3];
    if (by->type == LLM_TYPE_F32 && (n == 1 || (n == which.size && which.first < n)))
        s->scale = llm__element(LLM_TYPE_F32, by->data, n == 1 ? 0 : which.first);
    else L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s: F32, one number or one an expert expected", L->path, name);
    if (!L->r && !isfinite(s->scale))
        L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s: %g, a finite number expected", L->path, name, (double)s->scale);
    if (s->scale == 0) s->scale = 1e-30f; /* a segment's 0 stands for 1 */
}

/* A matrix with codebooks is read in another form. One that is stored across is not: its values become floats. */
static void llm__loader_grids(llm__loader *L, llm_segment *s) {
    const int32_t form = llm__grid_form(s->type);
    if (form < 0 || s->transposed || L->r) return;
    llm__grids *g = (llm__grids *)llm__arena_get(&L->keep, sizeof *g);
    if (!g) {
        L->r = llm__nomem();
        return;
    }
    g->data = (const uint8_t *)s->data;
    g->cols = s->stored_cols;
    g->type = s->type;
    s->type = form;
    s->data = g;
    s->mapped = 0;
    s->read = llm__grids_read;
}

LLM__PRIVATE int llm__loader_seek(llm__loader *L, int slot, llm__slice which, int64_t rows, int64_t cols, int bias, llm_segment *s) {
    char name[256];
    int across = cols && llm__stored_across(L, slot), matrix = cols > 0;
    s->type = matrix && L->m->dummy ? LLM_TYPE_RANDOM - 1 + L->m->dummy : LLM_TYPE_RANDOM;
    s->transposed = across || !matrix;
    s->stored_cols = s->transposed ? rows : cols;
    if (L->m->dummy || L->r) return !L->r;
    const llm__tensor *t = llm__loader_find(L, slot, (int)which.first, bias, name);
    if (!t) return L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s is missing", L->m->path, name), 0;
    if (bias && llm__quant_bias(L, llm__loader_find(L, slot, (int)which.first, 0, name), rows, s)) return !L->r;
    if (matrix && !bias && (t->n_dims < 3 || which.size == 1) && llm__quant_is(L, t)) {
        llm__quant_seek(L, t, rows, cols, s);
        s->mapped = !s->read && llm__loader_mapped(L, t);
        return !L->r;
    }
    int stacked = which.size > 1 && t->n_dims > 1 + matrix; /* all in one tensor: one dimension more */
    s->type = t->type;
    s->data = t->data;
    if (t->parts) s->data = t->parts, s->read = llm__parts_read;
    if (llm__ends_with(t->name.p, "_blocks")) {
        s->data = llm__loader_mxfp4(L, slot, t, rows, cols);
        s->type = LLM_TYPE_MXFP4;
        s->transposed = 0;
        s->stored_cols = cols;
        stacked = 1;
    } else {
        const int64_t want[3] = {which.size, across ? cols : rows, across ? rows : cols}, flat = (stacked ? which.size : 1) * rows;
        if (!llm__loader_type(L, t) || !llm__loader_fits(L, t, matrix ? want + !stacked : &flat, matrix ? 2 + stacked : 1)) return 0;
        s->mapped = !s->read && llm__loader_mapped(L, t);
    }
    if (stacked && which.first >= which.size)
        return L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s has %lld matrices, matrix %lld was expected in it", L->path, t->name.p,
                                 (long long)which.size, (long long)which.first),
               0;
    /* the matrices of a stack follow each other: skip those before this one */
    int64_t stored_rows = s->transposed ? LLM__MAX(cols, 1) : rows;
    if (stacked && s->data) s->data = (const uint8_t *)s->data + which.first * stored_rows * llm__row_bytes(s->type, s->stored_cols);
    if (t->type == LLM_TYPE_F8_E4M3 || t->type == LLM_TYPE_F8_E5M2 || t->type == LLM_TYPE_I8) llm__loader_scale(L, t, s);
    if (matrix && !bias && s->data) llm__requant(L, slot, t, rows, cols, s);
    if (matrix && !bias && L->a->gguf && !L->r) llm__loader_beside(L, t, which, s);
    if (s->data) llm__loader_grids(L, s);
    return !L->r;
}

LLM__PRIVATE llm_segment *llm__loader_segment(llm__loader *L, int list, int64_t n) {
    llm__segments *to = &L->list[list];
    if (!L->r && !llm__grow((void **)&to->segment, &to->cap, to->n + 1, sizeof *to->segment)) L->r = llm__nomem();
    if (L->r) return NULL;
    llm_segment *s = &to->segment[to->n++];
    memset(s, 0, sizeof *s);
    s->n_rows = n;
    to->rows += n;
    return s;
}
