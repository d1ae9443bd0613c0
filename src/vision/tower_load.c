#include "vision/tower_load.h"
#include "api/config.h"
#include "api/model.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/loader.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"
#include "vision/tower.h"

/* Where a tower's names begin, and those of its layers go on. The longer ones first: a name begins with its own beginning, too. */
static const char *const llm__tower_roots[][2] = {{"vision_tower.vision_model.", "encoder.layers."},
                                                  {"vision_tower.", "encoder.layer."},
                                                  {"vision_tower.", "transformer.layers."},
                                                  {"vision_tower.", "encoder.layers."},
                                                  {"vision_tower.", "encoder.blocks."},
                                                  {"vision_encoder.", "transformer.layers."},
                                                  {"vision_model.", "model.layers."},
                                                  {"vision_model.", "encoder.layers."},
                                                  {"vision_model.", "blocks."},
                                                  {"visual.vision_model.", "encoder.layers."},
                                                  {"visual.", "blocks."},
                                                  {"vpm.", "encoder.layers."},
                                                  {"v.", "blk."}};

/* Of a tower's layer and of its two ends, whatever a family calls them. */
#define LLM__SEES_NORM1 "#input_layernorm #layer_norm1 #layernorm_before #norm1 #attention_norm #ln1"
#define LLM__SEES_QKV "#attn.qkv #wqkv #attn_qkv"
#define LLM__SEES_Q "#self_attn.q_proj.linear #self_attn.q_proj #attention.q_proj #attn_q"
#define LLM__SEES_K "#self_attn.k_proj.linear #self_attn.k_proj #attention.k_proj #attn_k"
#define LLM__SEES_V "#self_attn.v_proj.linear #self_attn.v_proj #attention.v_proj #attn_v"
#define LLM__SEES_QN "#self_attn.q_norm #attention.q_norm #attn.q_norm #attn_q_norm"
#define LLM__SEES_KN "#self_attn.k_norm #attention.k_norm #attn.k_norm #attn_k_norm"
#define LLM__SEES_O \
    "#self_attn.o_proj.linear #self_attn.o_proj #self_attn.out_proj #attention.projection_layer #attn.proj #attention.o_proj #wo #attn_out"
#define LLM__SEES_SCALE1 "#lambda_1 #ls1"
#define LLM__SEES_POST1 "#post_attention_layernorm #attn_post_norm"
#define LLM__SEES_NORM2 "#pre_feedforward_layernorm #post_attention_layernorm #layer_norm2 #layernorm_after #norm2 #ffn_norm #ln2"
#define LLM__SEES_GATE "#mlp.gate_proj.linear #mlp.gate_proj #feed_forward.gate_proj #ffn_gate"
#define LLM__SEES_UP "#mlp.up_proj.linear #mlp.fc1 #mlp.linear_fc1 #mlp.up_proj #feed_forward.up_proj #ffn_up"
#define LLM__SEES_DOWN "#mlp.down_proj.linear #mlp.fc2 #mlp.linear_fc2 #mlp.down_proj #feed_forward.down_proj #ffn_down"
#define LLM__SEES_SCALE2 "#lambda_2 #ls2"
#define LLM__SEES_POST2 "#post_feedforward_layernorm #ffn_post_norm"
#define LLM__SEES_PATCH \
    "@embeddings.patch_embedding @embeddings.patch_embeddings.projection @patch_embed.proj @patch_embedder.input_proj @patch_conv " \
    "@patch_embedding.linear @patch_embd"
#define LLM__SEES_POSITIONS \
    "@embeddings.position_embedding @embeddings.position_embeddings @pos_embed @patch_embed.pos_emb @position_embd " \
    "@patch_embedder.position_embedding_table @positional_embedding_vlm"
#define LLM__SEES_FIRST "@embeddings.class_embedding @embeddings.cls_token @class_embedding @class_embd"
#define LLM__SEES_PRE "@pre_layrnorm @layernorm_pre @ln_pre @pre_ln @post_conv_layernorm @norm_embd"

/* A name in full: '#' stands for the layer, '@' for the root; else it may have "model." before it. */
static const llm__tensor *llm__tower_name(const llm__tower_loader *L, llm__str word, const char *end, int layer, const char *before,
                                          char name[256]) {
    if (word.p[0] == '#') snprintf(name, 256, "%s%s%d.%.*s%s", L->root, L->layers, layer, (int)word.n - 1, word.p + 1, end);
    else if (word.p[0] == '@') snprintf(name, 256, "%s%.*s%s", L->root, (int)word.n - 1, word.p + 1, end);
    else snprintf(name, 256, "%s%.*s%s", before, (int)word.n, word.p, end);
    return llm__tensors_find(L->v->tensors, name);
}

/* The tensor of the first name that is there, NULL: none. layer -1: of the whole tower. suffix: ".weight" or ".bias". */
static const llm__tensor *llm__tower_find(const llm__tower_loader *L, const char *names, int layer, int bias, char name[256]) {
    static const char *const ends[2][2] = {{".weight", ""}, {".bias", "_bias"}};
    char first[256] = "";
    llm__str word;
    while (llm__list_next(&names, " ", &word))
        for (int i = 0; i < 4; i++) {
            const llm__tensor *t = llm__tower_name(L, word, ends[bias][i % 2], layer, i < 2 ? "" : "model.", name);
            if (t) return t;
            if (!first[0] || (L->v->gguf && !i)) memcpy(first, name, 256); /* names of GGUF stand last */
        }
    memcpy(name, first, 256);
    return NULL;
}

/* The numbers of a tensor's values, whatever its shape. */
static int64_t llm__tower_size(const llm__tensor *t) { return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]; }

/* 1 if a part's tensor has the size that the tower expects, and rows of whole blocks. */
static int llm__tower_fits(llm__tower_loader *L, const llm__tensor *t, int64_t rows, int64_t cols, int across) {
    const int64_t outer = across ? LLM__MAX(cols, 1) : rows, inner = cols && !across ? cols : rows;
    const int flat = t->n_dims == 2 && cols; /* a matrix has to be one; convolutions and vectors only have to have so many values */
    if (!llm__type_readable(t->type))
        L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s has type %s, which is not read as a weight", L->v->path, t->name.p,
                          llm__type_name(t->type));
    else if (llm__tower_size(t) != rows * LLM__MAX(cols, 1) || (flat && t->shape[0] != outer))
        L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s has %lld values, %lld x %lld expected", L->v->path, t->name.p,
                          (long long)llm__tower_size(t), (long long)rows, (long long)LLM__MAX(cols, 1));
    else if (inner % llm__type_block(t->type))
        L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s: rows of %lld values of type %s, whole blocks of %d expected", L->v->path,
                          t->name.p, (long long)inner, llm__type_name(t->type), llm__type_block(t->type));
    return !L->r;
}

/* The columns of a matrix that go channel by channel, the `parts` values of a channel side by side, put in the order of parts. */
static const void *llm__tower_reorder(llm__tower_loader *L, const llm__tensor *t, int64_t rows, int64_t cols, int64_t parts) {
    const int64_t channels = cols / parts, bytes = llm__row_bytes(t->type, cols);
    float *to = (float *)llm__arena_take(&L->keep, (size_t)(rows * cols) * sizeof *to),
          *row = (float *)llm__arena_take(&L->keep, (size_t)cols * sizeof *row);
    if (!to || !row) {
        L->r = llm__nomem();
        return NULL;
    }
    for (int64_t r = 0; r < rows; r++) {
        llm__dequant_columns(t->type, t->data + r * bytes, 0, cols, row);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t j = 0; j < parts; j++) to[r * cols + j * channels + c] = row[c * parts + j];
    }
    return to;
}

/* Where a head's rows that stand in pairs (2i, 2i + 1) have what (i, i + head_dim / 2) have here. MoonViT's pairs turn by column and by row
 * in turns, here those that turn by row come first; of Gemma 4 they are in the head's second half, quarter beside quarter. Rows behind
 * q and k, of a matrix that has all three, stay; so are Llama 4's, in pairs. */
static int64_t llm__tower_stored_row(const llm__vision *v, int64_t r) {
    const int64_t dim = v->head_dim, half = dim / 2, i = r % dim % half;
    if (v->flags & LLM__SEES_QUARTERS) return r / dim * dim + (i < half / 2) * half + r % dim / half * (half / 2) + i % (half / 2);
    if (v->flags & LLM__SEES_NEXT && r < 2 * v->n_heads * dim)
        return r / dim * dim + 2 * (i < half / 2 ? i + half / 2 : i - half / 2) + r % dim / half;
    const int64_t pair = !(v->flags & LLM__SEES_COUPLES) ? i : i < half / 2 ? 2 * i + 1 : 2 * (i - half / 2);
    return r < 2 * v->n_heads * dim ? r / dim * dim + 2 * pair + r % dim / half : r;
}

/* Rows of heads put back to where they turn; of a bias or a norm (cols 0) values, as floats. */
static const void *llm__tower_unturned(llm__tower_loader *L, const llm__tensor *t, int64_t rows, int64_t cols) {
    const int64_t bytes = cols ? llm__row_bytes(t->type, cols) : (int64_t)sizeof(float);
    uint8_t *to = (uint8_t *)llm__arena_take(&L->keep, (size_t)(rows * bytes));
    if (!to) L->r = llm__nomem();
    for (int64_t r = 0; to && r < rows; r++) {
        const int64_t stored = llm__tower_stored_row(L->v, r);
        float x;
        if (cols) memcpy(to + r * bytes, t->data + stored * bytes, (size_t)bytes);
        else llm__dequant_columns(t->type, t->data, stored, 1, &x), memcpy(to + r * bytes, &x, sizeof x);
    }
    return to;
}

/* The second frame's part of the patches' product. NULL: an error. */
static const llm__tensor *llm__tower_second_frame(llm__tower_loader *L, int64_t rows, int64_t cols) {
    char name[256];
    const llm__tensor *t = llm__tower_find(L, "@patch_embd.weight.1", -1, 0, name);
    if (!t) L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s is missing", L->v->path, name);
    return t && llm__tower_fits(L, t, rows, cols, 0) ? t : NULL;
}

/* Both frames' parts as one matrix, whose columns go channel by channel and in each frame by frame. */
static const void *llm__tower_frames(llm__tower_loader *L, const llm__tensor *t, int64_t rows, int64_t cols) {
    const int64_t half = cols / 2, each = half / 3;
    const llm__tensor *frame[2] = {t, llm__tower_second_frame(L, rows, half)};
    float *to = (float *)llm__arena_take(&L->keep, (size_t)(rows * cols) * sizeof *to),
          *row = (float *)llm__arena_take(&L->keep, (size_t)half * sizeof *row);
    if ((!to || !row) && !L->r) L->r = llm__nomem();
    for (int64_t r = 0; r < rows && !L->r; r++)
        for (int k = 0; k < 2; k++) {
            /* a row of a convolution need not be whole blocks, but such types are not quantised */
            llm__dequant_columns(frame[k]->type, frame[k]->data + r * llm__row_bytes(frame[k]->type, half), 0, half, row);
            for (int64_t c = 0; c < 3; c++) memcpy(to + r * cols + (2 * c + k) * each, row + c * each, (size_t)each * sizeof *to);
        }
    return to;
}

/* Fills in a segment of a weight or of its bias (k 1) from a tensor; t NULL: random values. */
static void llm__tower_segment(llm__tower_loader *L, const llm__tensor *t, const llm__tower_part *p, int64_t cols, uint32_t flags,
                               llm_segment *s) {
    const int across = cols && flags & LLM__STEP_ACROSS;
    memset(s, 0, sizeof *s);
    s->transposed = across || !cols;
    s->stored_cols = s->transposed ? p->all : cols;
    s->row = p->row;
    s->n_rows = p->n;
    s->n_cols = LLM__MAX(cols, 1);
    s->type = t ? t->type : LLM_TYPE_RANDOM;
    s->data = t ? t->data : NULL;
    L->v->n_params += s->n_rows * s->n_cols;
    if (t) L->v->bytes += llm__row_bytes(t->type, s->n_rows * s->n_cols);
    if (t && L->t && cols && flags & (LLM__STEP_FRAMES | LLM__STEP_CHANNELS | LLM__STEP_LAST)) s->type = LLM_TYPE_F32;
    if (t && L->t && !cols && flags & LLM__STEP_TURNED) s->type = LLM_TYPE_F32;
    if (!t || !L->t || L->dry) return;
    if (flags & LLM__STEP_TURNED) s->data = llm__tower_unturned(L, t, p->all, cols);
    if (flags & LLM__STEP_FRAMES) s->data = llm__tower_frames(L, t, p->all, cols);
    if (flags & LLM__STEP_CHANNELS) s->data = llm__tower_reorder(L, t, p->all, cols, (int64_t)L->v->pool * L->v->pool);
    if (flags & LLM__STEP_LAST) s->data = llm__tower_reorder(L, t, p->all, cols, 3); /* a pixel's three values become parts */
}

/* A matrix out of parts, one below the other, with their biases if they have any. role VECTOR: a norm. optional: it may be absent. */
static void llm__tower_take(llm__tower_loader *L, llm_role role, const llm__tower_part *parts, int n, int64_t cols, uint32_t flags,
                            int optional, int layer, llm__net_pair *out) {
    char name[256];
    llm_segment list[2][3];
    int n_bias = 0;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < n && !L->r; i++) {
        const llm__tensor *t = L->m->dummy ? NULL : llm__tower_find(L, parts[i].names, layer, 0, name);
        if (!t && optional) return;
        if (!t && !L->m->dummy) L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s is missing", L->v->path, name);
        const int64_t stored = flags & LLM__STEP_FRAMES ? cols / 2 : cols;
        if (L->r || (t && !llm__tower_fits(L, t, parts[i].all, stored, cols && flags & LLM__STEP_ACROSS))) return;
        if (flags & LLM__STEP_FRAMES && !llm__tower_second_frame(L, parts[i].all, stored)) return;
        const uint32_t mine = i < 2 ? flags : flags & ~(uint32_t)LLM__STEP_TURNED;
        llm__tower_segment(L, t, &parts[i], cols, mine, &list[0][i]);
        const llm__tensor *bias = L->m->dummy ? NULL : llm__tower_find(L, parts[i].names, layer, 1, name);
        if (!bias) continue;
        if (!llm__tower_fits(L, bias, parts[i].all, 0, 0)) return;
        llm__tower_segment(L, bias, &parts[i], 0, mine & LLM__STEP_TURNED, &list[1][n_bias++]);
        out->rows = 1;
    }
    if (L->r) return;
    if (n_bias && n_bias < n) {
        L->r = llm__error(LLM_ERR_FORMAT, "%s: of the parts of tensor %s only some have a bias", L->v->path, name);
        return;
    }
    llm_weight_desc d = {parts[0].names, role, list[0], n, 0, 0, LLM__MAX(cols, 1), 0, 0, 0}, b;
    for (int i = 0; i < n; i++) d.rows += parts[i].n;
    if (role == LLM_ROLE_VECTOR && (flags & LLM__STEP_PLUS1 || L->m->dummy) && !L->v->gguf) d.add = 1;
    out->rows = (int32_t)d.rows;
    if (!L->t) return;
    L->r = L->t->be->weight(L->t->ctx, 0, &d, &out->w);
    b = d;
    b.role = LLM_ROLE_VECTOR;
    b.segments = list[1];
    b.cols = 1;
    b.add = 0;
    if (!L->r && n_bias) L->r = L->t->be->weight(L->t->ctx, 0, &b, &out->b);
}

/* Its values as floats, n of them, in memory to be freed by LLM_FREE; NULL: an error, or nothing of that name where it is optional. */
static float *llm__tower_floats(llm__tower_loader *L, const char *names, int bias, int64_t n, int optional) {
    char name[256];
    if (L->dry) return NULL;
    const llm__tensor *t = L->m->dummy || L->r ? NULL : llm__tower_find(L, names, -1, bias, name);
    if (L->r || (!t && (optional || L->m->dummy))) return NULL;
    if (!t) L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s is missing", L->v->path, name);
    if (L->r || !llm__tower_fits(L, t, n, 0, 0)) return NULL;
    float *to = LLM__NEW(float, n);
    if (!to) L->r = llm__nomem();
    const int64_t row = t->shape[t->n_dims > 0 ? t->n_dims - 1 : 0];
    for (int64_t i = 0; to && i < n; i += row)
        llm__dequant_columns(t->type, t->data + i / row * llm__row_bytes(t->type, row), 0, LLM__MIN(row, n - i), to + i);
    return to;
}

/* A norm, or a matrix, of one tensor. */
static void llm__tower_one(llm__tower_loader *L, llm_role role, const char *names, int64_t rows, int64_t cols, int optional, int layer,
                           llm__net_pair *out) {
    const llm__tower_part part = {names, rows, 0, rows};
    llm__tower_take(L, role, &part, 1, cols, 0, optional, layer, out);
}

/* A number of a layer beside a matrix, `usual` where there is none. */
static float llm__tower_bound_of(llm__tower_loader *L, const char *names, const char *end, int layer, float usual) {
    char name[256];
    llm__str word;
    while (!L->r && llm__list_next(&names, " ", &word)) {
        const llm__tensor *t = llm__tower_name(L, word, end, layer, "", name);
        if (t && llm__tower_fits(L, t, 1, 0, 0)) llm__dequant_columns(t->type, t->data, 0, 1, &usual);
        if (t) break;
    }
    return usual;
}

/* The matrices of a layer whose products have bounds, each by itself, and those bounds. */
static void llm__tower_bounded(llm__tower_loader *L, int i, uint32_t turned, llm__tower_layer *layer) {
    static const char *const names[LLM__BOUNDS] = {"#self_attn.q_proj #attn_q",   "#self_attn.k_proj #attn_k", "#self_attn.v_proj #attn_v",
                                                   "#self_attn.o_proj #attn_out", "#mlp.gate_proj #ffn_gate",  "#mlp.up_proj #ffn_up",
                                                   "#mlp.down_proj #ffn_down"};
    const int64_t D = L->v->hidden, A = (int64_t)L->v->n_heads * L->v->head_dim, F = L->v->ff;
    const llm__tower_part q = {LLM__SEES_Q, A, 0, A}, k = {LLM__SEES_K, A, 0, A};
    llm__tower_take(L, LLM_ROLE_LINEAR, &q, 1, D, turned, 0, i, &layer->q);
    llm__tower_take(L, LLM_ROLE_LINEAR, &k, 1, D, turned, 0, i, &layer->k);
    llm__tower_one(L, LLM_ROLE_LINEAR, LLM__SEES_V, A, D, 0, i, &layer->v);
    llm__tower_one(L, LLM_ROLE_LINEAR, LLM__SEES_GATE, F, D, 0, i, &layer->gate);
    llm__tower_one(L, LLM_ROLE_LINEAR, LLM__SEES_UP, F, D, 0, i, &layer->up);
    for (int b = 0; b < LLM__BOUNDS && !L->r; b++) {
        llm__tower_bound *to = &layer->bound[b];
        to->in[0] = llm__tower_bound_of(L, names[b], ".input_min", i, -INFINITY);
        to->in[1] = llm__tower_bound_of(L, names[b], ".input_max", i, INFINITY);
        to->out[0] = llm__tower_bound_of(L, names[b], ".output_min", i, -INFINITY);
        to->out[1] = llm__tower_bound_of(L, names[b], ".output_max", i, INFINITY);
        if (!L->r && !(to->in[0] <= to->in[1] && to->out[0] <= to->out[1]))
            L->r = llm__error(LLM_ERR_FORMAT, "%s: layer %d of the tower: %s has bounds %g to %g and %g to %g, lower ones first expected",
                              L->v->path, i, strchr(names[b], ' ') + 2, (double)to->in[0], (double)to->in[1], (double)to->out[0],
                              (double)to->out[1]);
    }
}

/* Everything of a layer. */
static void llm__tower_layer_weights(llm__tower_loader *L, int i, llm__tower_layer *layer) {
    const llm__vision *v = L->v;
    const int64_t D = v->hidden, A = (int64_t)v->n_heads * v->head_dim, F = v->ff;
    char name[256];
    const int fused = llm__tower_find(L, LLM__SEES_QKV, i, 0, name) != NULL;
    const int gated = llm__tower_find(L, LLM__SEES_GATE, i, 0, name) != NULL;
    const llm__tensor *up = v->gguf ? llm__tower_find(L, LLM__SEES_UP, i, 0, name) : NULL;
    const int swapped = up && !gated && up->n_dims == 2 && up->shape[0] == D && F != D; /* as early converters named them */
    const llm__tower_part qkv[] = {
        {fused ? LLM__SEES_QKV : LLM__SEES_Q, fused ? 3 * A : A, 0, fused ? 3 * A : A}, {LLM__SEES_K, A, 0, A}, {LLM__SEES_V, A, 0, A}};
    const llm__tower_part gate_up[] = {{LLM__SEES_GATE, F, 0, F}, {LLM__SEES_UP, F, 0, F}};
    const llm__tensor *norm = llm__tower_find(L, LLM__SEES_QN, i, 0, name);
    const int64_t normed = norm && llm__tower_size(norm) == v->head_dim ? v->head_dim : A; /* of a head, or of all side by side */
    const int moon = !strcmp(L->layers, "encoder.blocks."); /* where norm1 is the second one, and fc1 leads back */
    llm__tower_one(L, LLM_ROLE_VECTOR, moon ? "#norm0" : LLM__SEES_NORM1, D, 0, 0, i, &layer->norm1);
    const int turns =
        (v->gguf && v->flags & LLM__SEES_TURNS && !fused) || v->flags & (LLM__SEES_COUPLES | LLM__SEES_QUARTERS | LLM__SEES_NEXT);
    const uint32_t turned = turns ? LLM__STEP_TURNED : 0, parted = v->flags & LLM__SEES_QUARTERS ? turned : 0;
    const llm__tower_part q_norm = {LLM__SEES_QN, normed, 0, normed}, k_norm = {LLM__SEES_KN, normed, 0, normed};
    const int post = (v->flags & LLM__SEES_POST) != 0;
    if (v->bounded) llm__tower_bounded(L, i, turned, layer);
    else llm__tower_take(L, LLM_ROLE_LINEAR, qkv, fused ? 1 : 3, D, turned, 0, i, &layer->qkv);
    llm__tower_take(L, LLM_ROLE_VECTOR, &q_norm, 1, 0, parted, !post, i, &layer->q_norm);
    llm__tower_take(L, LLM_ROLE_VECTOR, &k_norm, 1, 0, parted, !post, i, &layer->k_norm);
    llm__tower_one(L, LLM_ROLE_LINEAR, LLM__SEES_O, D, A, 0, i, &layer->o);
    llm__tower_one(L, LLM_ROLE_VECTOR, post ? LLM__SEES_POST1 : LLM__SEES_SCALE1, D, 0, !post, i, &layer->scale1);
    llm__tower_one(L, LLM_ROLE_VECTOR, moon ? "#norm1" : LLM__SEES_NORM2, D, 0, 0, i, &layer->norm2);
    if (gated && !v->bounded) llm__tower_take(L, LLM_ROLE_GATE_UP, gate_up, 2, D, 0, 0, i, &layer->up);
    if (!gated && !v->bounded)
        llm__tower_one(L, LLM_ROLE_LINEAR, moon ? "#mlp.fc0" : swapped ? LLM__SEES_DOWN : LLM__SEES_UP, F, D, 0, i, &layer->up);
    llm__tower_one(L, LLM_ROLE_LINEAR, moon ? "#mlp.fc1" : swapped ? LLM__SEES_UP : LLM__SEES_DOWN, D, F, 0, i, &layer->down);
    llm__tower_one(L, LLM_ROLE_VECTOR, post ? LLM__SEES_POST2 : LLM__SEES_SCALE2, D, 0, !post, i, &layer->scale2);
}

/* Names of a list's tensors with those of a DeepStack level in the place of the last one's: "visual.deepstack_merger_list.LEVEL", of GGUF
 * "v.deepstack.LAYER". */
static const char *llm__tower_deep(const llm__vision *v, const char *usual, int level, char out[128]) {
    const char *of = strstr(usual, "norm") ? "norm" : strstr(usual, "fc1") ? "fc1" : "fc2";
    if (level < 0) return usual;
    if (v->gguf) snprintf(out, 128, "v.deepstack.%d.%s", (int)v->deep[level], of);
    else snprintf(out, 128, "visual.deepstack_merger_list.%d.%s%s", (int)v->merger[level], of[0] == 'f' ? "linear_" : "", of);
    return out;
}

/* The matrix of a step, or the gate's and the one beside it. Returns how wide what it gives is. */
static int64_t llm__tower_matrix(llm__tower_loader *L, const llm__projector_step *s, const char *wanted, int last, int64_t width,
                                 llm__net_pair *w) {
    char name[256], up[128];
    const llm__tensor *t = llm__tower_find(L, wanted, -1, 0, name);
    const int64_t n = t ? t->shape[s->flags & LLM__STEP_ACROSS ? 1 : 0] : last ? L->v->out : width;
    snprintf(up, sizeof up, "%s", wanted);
    for (char *at = up; s->kind == LLM__STEP_GATED && (at = strstr(at, "gate")) != NULL; at++)
        memmove(at + 2, at + 4, strlen(at + 4) + 1), memcpy(at, "up", 2);
    const llm__tower_part parts[2] = {{wanted, n, 0, n}, {up, n, 0, n}}, halves[2] = {{wanted, n, n / 2, n / 2}, {wanted, n, 0, n / 2}};
    const int gated = s->kind == LLM__STEP_GATED, half = (s->flags & LLM__STEP_HALVES) != 0;
    if (half && n % 2 && !L->r)
        L->r = llm__error(LLM_ERR_FORMAT, "%s: %s has %lld rows, an even number expected", L->v->path, wanted, (long long)n);
    llm__tower_take(L, gated ? LLM_ROLE_GATE_UP : LLM_ROLE_LINEAR, half ? halves : parts, 1 + gated, width, s->flags, 0, -1, w);
    return half ? n / 2 : n;
}

LLM__PRIVATE llm_result llm__tower_numbers(const llm__tower *t, const char *name, const float *data, int64_t n, llm_weight **out) {
    llm_segment s;
    memset(&s, 0, sizeof s);
    s.data = data;
    s.type = LLM_TYPE_F32;
    s.transposed = 1;
    s.stored_cols = s.n_rows = n;
    s.n_cols = 1;
    const llm_weight_desc d = {name, LLM_ROLE_VECTOR, &s, 1, 0, n, 1, 0, 0, 0};
    return t->be->weight(t->ctx, 0, &d, out);
}

/* (sqrt(n) x - bias) scale as a factor and a term for each of n columns. */
static void llm__tower_root_scale(llm__tower_loader *L, int64_t n, llm__net_pair *w) {
    const int bare = !L->v->standard && !L->v->gguf;
    float *bias = bare ? NULL : llm__tower_floats(L, "@std_bias", 0, n, L->v->gguf);
    float *scale = bare ? NULL : llm__tower_floats(L, "@std_scale", 0, n, !bias);
    float *by = (float *)llm__arena_take(&L->keep, 2 * (size_t)n * sizeof *by);
    if (!by && !L->r) L->r = llm__nomem();
    for (int64_t i = 0; i < n && !L->r; i++) {
        by[i] = (scale ? scale[i] : 1) * sqrtf((float)n);
        by[n + i] = bias && scale ? -bias[i] * scale[i] : 0;
    }
    w->rows = (int32_t)n;
    if (!L->r && L->t) L->r = llm__tower_numbers(L->t, "scale of the tower's rows", by, n, &w->w);
    if (!L->r && L->t) L->r = llm__tower_numbers(L->t, "bias of the tower's rows", by + n, n, &w->b);
    LLM_FREE(bias);
    LLM_FREE(scale);
}

/* The steps of a projector. A level of DeepStack has the norm behind the gathering. */
static void llm__tower_projector(llm__tower_loader *L, int level, llm__tower_list *list) {
    const llm__projector_step *row = L->v->projector->step;
    const int32_t parts = L->v->pool * L->v->pool;
    int64_t width = L->v->hidden;
    llm__projector_step deep[LLM__PROJECTOR_STEPS];
    memset(list, 0, sizeof *list);
    list->two = LLM__PROJECTOR_STEPS;
    if (level >= 0) {
        memcpy(deep, row, sizeof deep);
        const llm__projector_step gather = deep[1];
        deep[1] = deep[0], deep[0] = gather;
    }
    for (int i = 0; i < LLM__PROJECTOR_STEPS && row[i].kind && !L->r; i++) {
        const llm__projector_step *s = level >= 0 ? &deep[i] : &row[i];
        llm__tower_step *step = &list->step[list->n];
        char names[128], name[256];
        const char *wanted = llm__tower_deep(L->v, s->names, level, names);
        const int optional = s->flags & LLM__STEP_MAYBE || (s->flags & LLM__STEP_SAID && L->v->gguf);
        if (s->flags & LLM__STEP_SAID && L->v->plain) continue;
        if (optional && wanted[0] == '@' && L->v->n_used < L->v->n_layers) continue; /* a norm behind the last layer, which is not used */
        step->row = &row[level >= 0 && i < 2 ? 1 - i : i];
        const llm__tower_part norm = {wanted, width, 0, width};
        if (s->kind == LLM__STEP_ROOT) llm__tower_root_scale(L, width, &step->w);
        if (s->kind == LLM__STEP_NORM && !(s->flags & LLM__STEP_BARE))
            llm__tower_take(L, LLM_ROLE_VECTOR, &norm, 1, 0, s->flags, optional, -1, &step->w);
        if (s->kind == LLM__STEP_GATHER) width *= (int64_t)parts * LLM__MAX(L->v->n_taken, 1);
        if (s->kind == LLM__STEP_TWO) width *= 2, list->two = list->n;
        if (s->kind == LLM__STEP_LINEAR && optional && !llm__tower_find(L, wanted, -1, 0, name)) continue;
        if (s->kind == LLM__STEP_LINEAR || s->kind == LLM__STEP_GATED)
            width = llm__tower_matrix(L, s, wanted, !row[i + 1].kind, width, &step->w);
        if (s->kind == LLM__STEP_NORM && optional && !step->w.rows) continue;
        step->width = (int32_t)width;
        list->n++;
    }
    if (!L->r && strcmp(L->v->projector->names, "resampler") && width != L->v->out)
        L->r = llm__error(LLM_ERR_FORMAT, "%s: the projector gives %lld values, the language model takes %d", L->v->path, (long long)width,
                          L->v->out);
}

/* MiniCPM-V's. */
static void llm__tower_resampler_weights(llm__tower_loader *L, llm__tower_resampler *r) {
    const int64_t D = L->v->out, H = L->v->hidden;
    static const char in[] = "resampler.attn.in_proj resampler.attn.in_proj_weight";
    const int split = L->v->gguf; /* q, k and v in tensors of their own, and the last matrix the other way round */
    const llm__tower_part whole[3] = {{in, 3 * D, 0, D}, {in, 3 * D, D, D}, {in, 3 * D, 2 * D, D}},
                          apart[3] = {{"resampler.attn.q", D, 0, D}, {"resampler.attn.k", D, 0, D}, {"resampler.attn.v", D, 0, D}},
                          proj = {"resampler.proj", D, 0, D}, *qkv = split ? apart : whole;
    /* as many heads as whole 128 go into the width, which they share: wider ones where it is no multiple */
    r->n_heads = (int32_t)LLM__MAX(D / 128, 1);
    r->head_dim = (int32_t)(D / r->n_heads);
    if (D % r->n_heads)
        L->r = llm__error(LLM_ERR_FORMAT, "%s: a width of %lld, which %d heads do not divide", L->v->path, (long long)D, r->n_heads);
    llm__tower_one(L, LLM_ROLE_LINEAR, "resampler.kv_proj resampler.kv", D, H, 0, -1, &r->kv);
    llm__tower_one(L, LLM_ROLE_VECTOR, "resampler.ln_kv", D, 0, 0, -1, &r->kv_norm);
    llm__tower_take(L, LLM_ROLE_LINEAR, &qkv[0], 1, D, 0, 0, -1, &r->q);
    llm__tower_take(L, LLM_ROLE_LINEAR, &qkv[1], 1, D, 0, 0, -1, &r->k);
    llm__tower_take(L, LLM_ROLE_LINEAR, &qkv[2], 1, D, 0, 0, -1, &r->v);
    llm__tower_one(L, LLM_ROLE_LINEAR, "resampler.attn.out_proj resampler.attn.out", D, D, 0, -1, &r->out);
    llm__tower_one(L, LLM_ROLE_VECTOR, "resampler.ln_q", D, 0, 0, -1, &r->q_norm);
    llm__tower_one(L, LLM_ROLE_VECTOR, "resampler.ln_post", D, 0, 0, -1, &r->post_norm);
    llm__tower_take(L, LLM_ROLE_LINEAR, &proj, 1, D, split ? 0 : LLM__STEP_ACROSS, 0, -1, &r->proj);
    if (L->t) r->query = llm__tower_floats(L, "resampler.query", 0, D * L->v->n_query, 0);
    /* weights at random are the backend's; what is given row by row is zeros then */
    if (L->t && L->m->dummy && !L->dry) r->query = LLM__NEW(float, D * L->v->n_query);
    if (L->t && L->m->dummy && !L->dry && !r->query) L->r = llm__nomem();
}

/* Which of the roots the file has. */
static void llm__tower_root(llm__tower_loader *L) {
    static const char *const full[] = {
        "vision_tower.vision_model.", "vision_tower.", "vision_encoder.", "vision_model.", "visual.vision_model.", "visual.", "vpm.", "v."};
    static const char *const inner[] = {"model.vision_tower.vision_model.",
                                        "model.vision_tower.",
                                        "model.vision_encoder.",
                                        "model.vision_model.",
                                        "model.visual.vision_model.",
                                        "model.visual.",
                                        "model.vpm.",
                                        "v."};
    char name[256];
    for (int i = 0; i < LLM__COUNT(llm__tower_roots); i++)
        for (int k = 0; k < LLM__COUNT(full); k++)
            for (int m = 0; m < 2 && !strcmp(full[k], llm__tower_roots[i][0]); m++) {
                L->root = m ? inner[k] : full[k];
                L->layers = llm__tower_roots[i][1];
                if (llm__tower_find(L, LLM__SEES_NORM1, 0, 0, name)) return;
            }
    const int usual = L->v->gguf ? LLM__COUNT(llm__tower_roots) - 1 : 0;
    L->root = llm__tower_roots[usual][0];
    L->layers = llm__tower_roots[usual][1];
}

/* The last row of a table of n values becomes the first. */
static void llm__tower_class_first(float *table, int64_t n, int64_t width) {
    for (int64_t c = 0; c < width; c++) {
        const float last = table[n - width + c];
        for (int64_t at = n - width + c; at >= width; at -= width) table[at] = table[at - width];
        table[c] = last;
    }
}

/* Rows of a tower's table of positions. */
static int64_t llm__tower_places(const llm__vision *v) {
    if (v->flags & LLM__SEES_AXES) return 2 * (int64_t)v->side;
    return (int64_t)v->side * v->side + ((v->flags & LLM__SEES_CLASS) != 0);
}

LLM__PRIVATE void llm__tower_weights(llm__tower_loader *L) {
    const llm__vision *v = L->v;
    llm__tower none, *t = L->t ? L->t : &none;
    llm__tower_layer unused;
    const int has_class = (v->flags & LLM__SEES_CLASS) != 0;
    const int64_t D = v->hidden, table = llm__tower_places(v) * D;
    char name[256];
    memset(&none, 0, sizeof none);
    llm__tower_root(L);
    if (!L->m->dummy && !llm__tower_find(L, LLM__SEES_NORM1, 0, 0, name)) {
        L->r = llm__error(LLM_ERR_FORMAT, "%s: %s no tower: tensor %s is missing", v->path,
                          v->gguf ? "the file has" : "config.json says that the model sees, and its files have", name);
        return;
    }
    const llm__tower_part patch = {LLM__SEES_PATCH, D, 0, D};
    const uint32_t how = !v->gguf && v->flags & (LLM__SEES_AXES | LLM__SEES_SMOOTH) ? LLM__STEP_LAST
                         : v->gguf && v->frames > 1                                 ? LLM__STEP_FRAMES
                                                                                    : 0;
    llm__tower_take(L, LLM_ROLE_LINEAR, &patch, 1, v->patch_values, how, 0, -1, &t->patch);
    llm__tower_one(L, LLM_ROLE_VECTOR, LLM__SEES_PRE, D, 0, 1, -1, &t->pre_norm);
    for (int i = 0; i < v->n_used && !L->r; i++) llm__tower_layer_weights(L, i, L->t ? &t->layer[i] : &unused);
    llm__tower_projector(L, -1, &t->main);
    for (int i = 0; i < v->n_deep && !L->r; i++) llm__tower_projector(L, i, &t->deep[i]);
    if (!strcmp(v->projector->names, "resampler")) llm__tower_resampler_weights(L, &t->resampler);
    float *read[4] = {v->flags & LLM__SEES_TABLE ? llm__tower_floats(L, LLM__SEES_POSITIONS, 0, table, v->unplaced) : NULL,
                      has_class ? llm__tower_floats(L, LLM__SEES_FIRST, 0, D, 0) : NULL,
                      has_class ? llm__tower_floats(L, LLM__SEES_PATCH, 1, D, 1) : NULL,
                      v->family->flags & LLM__EYES_NEWLINES ? llm__tower_floats(L, "image_newline v.image_newline", 0, v->out, 0) : NULL};
    if (read[0] && v->flags & LLM__SEES_ONE) llm__tower_class_first(read[0], table, D);
    t->table = read[0];
    t->first = read[1];
    t->bias = read[2];
    t->newline = read[3];
    for (int i = 0; i < 4 && !L->t; i++) LLM_FREE(read[i]);
}

LLM__PRIVATE void llm__tower_plan(llm__tower_loader *L, llm__tower *t) {
    llm__tower_root(L);
    llm__tower_projector(L, -1, &t->main);
    if (!strcmp(L->v->projector->names, "resampler")) llm__tower_resampler_weights(L, &t->resampler);
}

LLM__PRIVATE llm_result llm__tower_check(const llm_model *m, llm__vision *v) {
    llm__tower_loader L;
    memset(&L, 0, sizeof L);
    L.m = m;
    L.v = v;
    llm__tower_weights(&L);
    llm__arena_free(&L.keep);
    return L.r;
}
