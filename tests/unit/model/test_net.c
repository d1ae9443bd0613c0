/* What the loader hands to a backend: every weight of each rank against rows and columns cut plainly out of the stored tensors, and the
 * factors of adapters likewise. The backend only writes down what it gets. */
#include "../safetensors.h"
#include "cpu/dtypes.h"
#include "model/forward.h"
#include "model/forward_extras.h"
#include "model/loader.h"
#include "model/lora.h"
#include "model/net.h"
#include "model/take.h"

/* ---- a backend that writes down ---- */

enum { NET_MOST = 600 };

typedef struct net_matrix {
    char name[128];
    int rank, role;
    int64_t rows, cols;
    float *x;
} net_matrix;

/* What a slot of a site was filled with: a matrix a, a matrix b, the row of the layer's output. */
typedef struct net_put {
    int rank, n;
    const llm_lora_site *site;
    int64_t row[LLM_LORA_PARTS];
    net_matrix part[LLM_LORA_PARTS][2];
} net_put;

static net_matrix net_weights[NET_MOST];
static net_put net_puts[NET_MOST];
static int net_n, net_n_puts, net_n_sites;
static char net_things[NET_MOST]; /* places that stand for weights, buffers and sites */

static net_matrix net_copy(int rank, const llm_weight_desc *d) {
    net_matrix m;
    int64_t row = 0;
    memset(&m, 0, sizeof m);
    snprintf(m.name, sizeof m.name, "%s", d->name);
    m.rank = rank, m.role = (int)d->role, m.rows = d->rows, m.cols = d->cols;
    m.x = (float *)calloc((size_t)(d->rows * d->cols) + 1, sizeof *m.x);
    for (int32_t i = 0; i < d->n_segments; i++)
        for (int64_t k = 0; k < d->segments[i].n_rows; k++, row++) {
            float *to = m.x + row * d->cols;
            llm__segment_values(&d->segments[i], 0, k, 0, d->cols, to);
            for (int64_t c = 0; c < d->cols; c++) to[c] = to[c] * llm__segment_scale(&d->segments[i]) + d->add;
        }
    CHECK(row == d->rows);
    return m;
}

static llm_result net_weight(llm_backend_ctx *ctx, int rank, const llm_weight_desc *d, llm_weight **out) {
    (void)ctx;
    *out = (llm_weight *)(void *)&net_things[net_n];
    if (CHECK(net_n < NET_MOST)) net_weights[net_n++] = net_copy(rank, d);
    return LLM_OK;
}

static llm_result net_buffer(llm_backend_ctx *ctx, int rank, int64_t rows, int64_t cols, llm_buffer **out) {
    (void)ctx, (void)rank;
    CHECK(rows > 0 && cols > 0);
    *out = (llm_buffer *)(void *)net_things;
    return LLM_OK;
}

static llm_result net_site(llm_backend_ctx *ctx, int rank, int n_slots, llm_lora_site **out) {
    (void)ctx, (void)rank;
    CHECK(n_slots == 2 && net_n_sites < NET_MOST);
    *out = (llm_lora_site *)(void *)&net_things[net_n_sites++];
    return LLM_OK;
}

static llm_result net_lora_put(llm_backend_ctx *ctx, int rank, llm_lora_site *site, int slot, const llm_lora_part *parts, int n) {
    (void)ctx;
    net_put *p = &net_puts[net_n_puts];
    if (!CHECK(net_n_puts < NET_MOST && slot == 1 && n <= LLM_LORA_PARTS)) return LLM_ERR_LIMIT;
    net_n_puts++;
    p->rank = rank, p->n = n, p->site = site;
    for (int i = 0; i < n; i++)
        p->row[i] = parts[i].row, p->part[i][0] = net_copy(rank, parts[i].a), p->part[i][1] = net_copy(rank, parts[i].b);
    return LLM_OK;
}

static llm_result net_done(llm_backend_ctx *ctx) { return (void)ctx, LLM_OK; }

static void net_clear(void) {
    while (net_n) free(net_weights[--net_n].x);
    while (net_n_puts) {
        const net_put *p = &net_puts[--net_n_puts];
        for (int i = 0; i < p->n; i++) free(p->part[i][0].x), free(p->part[i][1].x);
    }
    net_n_sites = 0;
}

static llm__net *net_open(const llm_model *m, int n_ranks, int n_stages) {
    static llm_backend table;
    llm__net_config c = LLM__ZERO;
    llm__net *net = NULL;
    net_clear();
    table.weight = net_weight, table.buffer = net_buffer, table.weights_done = net_done, table.lora_site = net_site,
    table.lora_put = net_lora_put;
    c.model = m, c.backend = &table, c.n_ranks = n_ranks, c.n_stages = n_stages, c.max_rows = c.max_out = 4, c.n_loras = 2,
    c.max_lora_rank = 8;
    CHECK(!llm__net_open(&c, &net));
    return net;
}

/* ---- plain cuts ---- */

static const llm_model *net_model;
static float net_want[512 * 200];
static int64_t net_wanted;

/* Adds rows and columns of a stored tensor to what is expected. */
static void net_add(const char *tensor, int64_t row, int64_t rows, int64_t col, int64_t cols) {
    const llm__tensor *t = llm__tensors_find(&net_model->source.tensors, tensor);
    if (!CHECK(t != NULL)) return;
    const int64_t wide = t->n_dims > 1 ? t->shape[1] : 1;
    for (int64_t i = row; i < row + rows; i++, net_wanted += cols)
        for (int64_t k = 0; k < cols; k++) net_want[net_wanted + k] = llm__element(t->type, t->data, i * wide + col + k);
}

static const char *net_name(int layer, const char *what) {
    static char names[4][80];
    static int turn;
    char *name = names[turn++ & 3];
    if (layer < 0) snprintf(name, 80, "%s.weight", what);
    else snprintf(name, 80, "model.layers.%d.%s.weight", layer, what);
    return name;
}

/* The weight of that name and rank that was handed over is what was added; then nothing is expected again. */
static void net_is(int rank, const char *name, llm_role role, int64_t rows, int64_t cols) {
    int found = 0;
    for (int i = 0; i < net_n; i++) {
        const net_matrix *m = &net_weights[i];
        if (m->rank != rank || strcmp(m->name, name) || m->role != (int)role) continue;
        found++;
        if (!CHECK(m->rows == rows && m->cols == cols && rows * cols == net_wanted &&
                   !memcmp(m->x, net_want, (size_t)net_wanted * sizeof *m->x)))
            printf("  %s, rank %d: (%d, %d), (%d, %d) and its values expected\n", name, rank, (int)m->rows, (int)m->cols, (int)rows,
                   (int)cols);
    }
    if (!CHECK(found == 1)) printf("  %s of rank %d: %d times\n", name, rank, found);
    net_wanted = 0;
}

/* All weights of the tiny Llama: 6 heads of 16 values, 2 of keys, hidden 96, ff 176, a vocabulary of 512. Ranks have a part of the heads, of
 * the MLP's width and of the vocabulary. */
static void net_ranks(int n, int stages) {
    llm__net *net = net_open(net_model, n * stages, stages);
    if (!net) return;
    CHECK(net->n_group == n && net->n_kv == (stages == 1 ? 3 : 2) && net->kv->n_kv_heads == 2 / n && net->kv->head_dim == 16);
    int64_t ff_sum = 0;
    for (int rank = 0; rank < n * stages; rank++) {
        const int64_t g = rank % n, heads = 6 / n, kv = 2 / n, v = 512 / n;
        const llm__net_rank *own = &net->rank[rank];
        const llm__slice ff = own->layer[own->begin].ff, before = g ? net->rank[rank - 1].layer[own->begin].ff : llm__all(0);
        CHECK(ff.size == 176 && ff.first == before.first + before.n && ff.n >= 80);
        ff_sum += ff.n;
        for (int layer = own->begin; layer < own->end; layer++) {
            net_add(net_name(layer, "self_attn.q_proj"), g * heads * 16, heads * 16, 0, 96);
            net_add(net_name(layer, "self_attn.k_proj"), g * kv * 16, kv * 16, 0, 96);
            net_add(net_name(layer, "self_attn.v_proj"), g * kv * 16, kv * 16, 0, 96);
            net_is(rank, net_name(layer, "self_attn.q_proj"), LLM_ROLE_LINEAR, (heads + 2 * kv) * 16, 96);
            net_add(net_name(layer, "self_attn.o_proj"), 0, 96, g * heads * 16, heads * 16);
            net_is(rank, net_name(layer, "self_attn.o_proj"), LLM_ROLE_LINEAR, 96, heads * 16);
            net_add(net_name(layer, "mlp.gate_proj"), ff.first, ff.n, 0, 96);
            net_add(net_name(layer, "mlp.up_proj"), ff.first, ff.n, 0, 96);
            net_is(rank, net_name(layer, "mlp.up_proj"), LLM_ROLE_GATE_UP, 2 * ff.n, 96);
            net_add(net_name(layer, "mlp.down_proj"), 0, 96, ff.first, ff.n);
            net_is(rank, net_name(layer, "mlp.down_proj"), LLM_ROLE_LINEAR, 96, ff.n);
            net_add(net_name(layer, "input_layernorm"), 0, 96, 0, 1);
            net_is(rank, net_name(layer, "input_layernorm"), LLM_ROLE_VECTOR, 96, 1);
            net_add(net_name(layer, "post_attention_layernorm"), 0, 96, 0, 1);
            net_is(rank, net_name(layer, "post_attention_layernorm"), LLM_ROLE_VECTOR, 96, 1);
        }
        if (own->first)
            net_add(net_name(-1, "model.embed_tokens"), g * v, v, 0, 96), net_is(rank, "model.embed_tokens.weight", LLM_ROLE_EMBED, v, 96);
        if (own->last) net_add(net_name(-1, "lm_head"), g * v, v, 0, 96), net_is(rank, "lm_head.weight", LLM_ROLE_HEAD, v, 96);
        CHECK(own->begin == 3 * (rank / n) / stages && own->end == 3 * (rank / n + 1) / stages);
    }
    CHECK(ff_sum == 176 * stages);
    llm__net_close(net);
}

/* One stored matrix cut in rows and columns by llm__take, and numbers worked out here, without a net around. */
static void net_take(void) {
    static llm_backend table;
    static const float numbers[5] = {1, -2, 3, 0.5f, 8};
    llm__loader L;
    llm__net_pair pair = LLM__ZERO;
    llm_weight *w = NULL;
    const llm__slice rows = {96, 10, 20, 2}, cols = llm__slice_of(176, 32, 64);
    net_clear();
    table.weight = net_weight;
    llm__loader_begin(&L, net_model, 1, 1);
    L.backend = &table, L.layer = 1;
    CHECK(llm__has(&L, LLM__W_DOWN) && !llm__has(&L, LLM__W_SINKS) && !strcmp(L.base, "model.layers."));
    llm__load(&L, LLM_ROLE_LINEAR, LLM__W_DOWN, rows, cols, 0, &pair);
    CHECK(!L.r && pair.w && !pair.b && pair.rows == 20 && L.n_params == 20 * 64);
    for (int i = 0; i < 20; i++) net_add(net_name(1, "mlp.down_proj"), 10 + 2 * i, 1, 32, 64);
    net_is(0, net_name(1, "mlp.down_proj"), LLM_ROLE_LINEAR, 20, 64);
    llm__take(&L, LLM__W_K, llm__all(1), llm__all(32), llm__all(96), 0); /* two stored ones in one weight */
    llm__take(&L, LLM__W_V, llm__all(1), llm__slice_of(32, 16, 8), llm__all(96), -1);
    llm__make(&L, LLM_ROLE_LINEAR, LLM__W_K, 0, &pair);
    net_add(net_name(1, "self_attn.k_proj"), 0, 32, 0, 96);
    net_add(net_name(1, "self_attn.v_proj"), 16, 8, 0, 96);
    net_is(0, net_name(1, "self_attn.k_proj"), LLM_ROLE_LINEAR, 40, 96);
    llm__load_numbers(&L, "numbers", numbers, 5, &w);
    memcpy(net_want, numbers, sizeof numbers), net_wanted = 5;
    net_is(0, "numbers", LLM_ROLE_VECTOR, 5, 1);
    pair.w = NULL;
    llm__load_vector(&L, LLM__W_SINKS, llm__all(6), 0, -1, &pair); /* absent, and nothing that must be */
    CHECK(!pair.w && !L.r);
    llm__take(&L, LLM__W_DOWN, llm__all(1), llm__all(95), llm__all(176), 0);
    CHECK(L.r == LLM_ERR_FORMAT && strstr(llm_last_error(), "mlp.down_proj.weight has shape (96, 176), (95, 176) expected"));
    L.r = LLM_OK;
    llm__load_vector(&L, LLM__W_SINKS, llm__all(6), 1, -1, &pair);
    CHECK(L.r == LLM_ERR_FORMAT && strstr(llm_last_error(), "model.layers.1.self_attn.sinks.weight is missing"));
    llm__loader_end(&L);
}

/* Slices: of heads as rows, and where layers' names begin. */
static void net_slices(void) {
    const llm__slice a = llm__slice_of(10, 3, 4), all = llm__all(7), rows = llm__slice_times(a, 16);
    CHECK(a.size == 10 && a.first == 3 && a.n == 4 && a.step == 1 && all.size == 7 && all.first == 0 && all.n == 7);
    CHECK(rows.size == 160 && rows.first == 48 && rows.n == 64 && rows.step == 1);
    CHECK(llm__is_experts(LLM__W_E_DOWN) && llm__is_experts(LLM__W_E_GATE_UP) && !llm__is_experts(LLM__W_DOWN) &&
          !llm__is_experts(LLM__W_S_GATE_UP));
    CHECK(!strcmp(llm__layer_base(&net_model->source.tensors, 0), "model.layers."));
}

/* What a name of a slot is in a layer: the expert's number stands for '#'. */
static void net_names(void) {
    static const struct {
        int layer, expert;
        const char *word, *end, *want;
    } rows[] = {{-1, 0, "lm_head", ".weight", "lm_head.weight"},
                {7, 3, "mlp.experts.#.up_proj", ".weight", "model.layers.7.mlp.experts.3.up_proj.weight"},
                {0, 12, "mlp.experts.down_proj", "", "model.layers.0.mlp.experts.down_proj"},
                {0, 12, "w#", ".bias", "model.layers.0.w12.bias"}};
    llm__loader L;
    char name[256];
    llm__loader_begin(&L, net_model, 1, 1);
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        L.layer = rows[i].layer;
        llm__slot_name(&L, "", L.base, llm__s(rows[i].word, strlen(rows[i].word)), rows[i].expert, rows[i].end, name);
        CHECK(!strcmp(name, rows[i].want));
    }
    llm__slot_name(&L, "base_model.model.", L.base, llm__lit("o"), 0, ".lora_A.weight", name);
    CHECK(!strcmp(name, "base_model.model.model.layers.0.o.lora_A.weight"));
    L.layer = 2;
    CHECK(llm__loader_find(&L, LLM__W_O, 0, 0, name) && !strcmp(name, "model.layers.2.self_attn.o_proj.weight"));
    CHECK(!llm__loader_find(&L, LLM__W_O, 0, 1, name) && !strcmp(name, "model.layers.2.self_attn.o_proj.bias"));
    llm__loader_end(&L);
}

/* Shapes fit if they are equal but for leading ones; a vector fits any shape of so many values. */
static void net_shapes(void) {
    llm__loader L;
    llm__tensor t;
    const int64_t two[2] = {4, 6}, one[1] = {24}, lead[3] = {1, 4, 6}, turned[2] = {6, 4};
    memset(&t, 0, sizeof t);
    llm__loader_begin(&L, net_model, 1, 1);
    t.name = llm__lit("t"), t.n_dims = 3, t.shape[0] = 1, t.shape[1] = 4, t.shape[2] = 6, t.shape[3] = 1;
    CHECK(llm__loader_fits(&L, &t, two, 2) && llm__loader_fits(&L, &t, one, 1) && llm__loader_fits(&L, &t, lead, 3));
    CHECK(!llm__loader_fits(&L, &t, turned, 2) && strstr(llm_last_error(), "tensor t has shape (1, 4, 6), (6, 4) expected"));
    t.shape[0] = 2;
    CHECK(!llm__loader_fits(&L, &t, two, 2) && !llm__loader_fits(&L, &t, one, 1));
    L.r = LLM_OK, t.type = LLM_TYPE_BF16;
    CHECK(llm__loader_type(&L, &t) && !L.r);
    t.type = LLM_TYPE_I64;
    CHECK(!llm__loader_type(&L, &t) && L.r == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "I64"));
    llm__loader_end(&L);
}

/* ---- adapters ---- */

static const char net_config[] = "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":%s,\"bias\":\"none\"%s}";

static void net_write_config(const test_folder *f, const char *alpha, const char *more) {
    char text[400];
    snprintf(text, sizeof text, net_config, alpha, more);
    folder_write_text(f, "adapter_config.json", text);
}

static void net_factor(safe_file *s, const char *module, char which, int rows, int cols, const float *x) {
    char name[200];
    snprintf(name, sizeof name, "base_model.model.model.layers.%s.lora_%c.weight", module, which);
    safe_add(s, name, rows, cols, x);
}

enum { NET_Q_A, NET_Q_B, NET_V_A, NET_V_B, NET_DOWN_A, NET_DOWN_B, NET_FACTORS };
static const int net_shape[NET_FACTORS][2] = {{4, 96}, {96, 4}, {4, 96}, {32, 4}, {4, 176}, {96, 4}};
static float net_x[NET_FACTORS][4 * 176];

/* An adapter for q and v of layer 0, and down of layer 2. */
static void net_adapter(const test_folder *f) {
    static const char *const module[3] = {"0.self_attn.q_proj", "0.self_attn.v_proj", "2.mlp.down_proj"};
    safe_file s = LLM__ZERO;
    for (int i = 0; i < NET_FACTORS; i++) {
        safe_numbers(77 + (uint64_t)i, net_shape[i][0] * net_shape[i][1], net_x[i]);
        net_factor(&s, module[i / 2], i % 2 ? 'B' : 'A', net_shape[i][0], net_shape[i][1], net_x[i]);
    }
    safe_write(&s, f, "adapter_model.safetensors");
}

/* Rows [row, row + rows), columns [col, col + cols) of a factor, times a scale. */
static int net_factor_is(const net_matrix *m, int which, int64_t row, int64_t rows, int64_t col, int64_t cols, float scale) {
    int wrong = m->rows != rows || m->cols != cols;
    for (int64_t i = 0; i < rows && !wrong; i++)
        for (int64_t k = 0; k < cols; k++) wrong += m->x[i * cols + k] != net_x[which][(row + i) * net_shape[which][1] + col + k] * scale;
    return !wrong;
}

/* The put of a site, which must be there once. */
static const net_put *net_put_of(int rank, const llm_lora_site *site) {
    const net_put *found = NULL;
    for (int i = 0; i < net_n_puts; i++)
        if (net_puts[i].site == site && net_puts[i].rank == rank) CHECK(!found), found = &net_puts[i];
    CHECK(found != NULL);
    return found;
}

/* Each rank gets the rows of B and the columns of A that belong to its share of W; B is scaled; other sites are emptied. */
static void net_adapts(int n, const char *alpha, const char *more, float scale) {
    test_folder f;
    llm__adapter d;
    llm__net *net = net_open(net_model, n, 1);
    if (!net || !folder_open(&f)) return;
    net_write_config(&f, alpha, more);
    net_adapter(&f);
    CHECK(!llm__adapter_open(f.path, &net_model->arch, 8, &d) && d.tensors.n == NET_FACTORS && !strcmp(d.base, "model.layers.") && !d.gguf);
    const int sites = net_n_sites;
    CHECK(!llm__net_adapt(net, 1, &d) && net_n_puts == sites);
    int filled = 0;
    for (int i = 0; i < net_n_puts; i++) filled += net_puts[i].n;
    CHECK(filled == 3 * n);
    for (int rank = 0; rank < n; rank++) {
        const llm__net_rank *own = &net->rank[rank];
        const int heads = 96 / n, kv = 32 / n;
        const net_put *qkv = net_put_of(rank, own->layer[0].qkv.lora), *down = net_put_of(rank, own->layer[2].down.lora);
        if (!qkv || !down || !CHECK(qkv->n == 2 && down->n == 1)) continue;
        CHECK(qkv->row[0] == 0 && qkv->row[1] == heads + kv && down->row[0] == 0);
        CHECK(net_factor_is(&qkv->part[0][0], NET_Q_A, 0, 4, 0, 96, 1) &&
              net_factor_is(&qkv->part[0][1], NET_Q_B, rank * heads, heads, 0, 4, scale));
        CHECK(net_factor_is(&qkv->part[1][0], NET_V_A, 0, 4, 0, 96, 1) &&
              net_factor_is(&qkv->part[1][1], NET_V_B, rank * kv, kv, 0, 4, scale));
        CHECK(net_factor_is(&down->part[0][0], NET_DOWN_A, 0, 4, own->layer[2].ff.first, own->layer[2].ff.n, 1) &&
              net_factor_is(&down->part[0][1], NET_DOWN_B, 0, 96, 0, 4, scale));
    }
    llm__adapter_close(&d);
    llm__net_close(net);
    folder_close(&f);
}

/* What is no adapter for this model is refused with what is wrong; `tensors` says what stands in the file besides. */
static void net_refused(const char *alpha, const char *more, void (*tensors)(safe_file *s), llm_result want, const char *words) {
    test_folder f;
    llm__adapter d;
    safe_file s = LLM__ZERO;
    llm__net *net = net_open(net_model, 1, 1);
    if (!net || !folder_open(&f)) return;
    net_write_config(&f, alpha, more);
    if (tensors) tensors(&s);
    else net_factor(&s, "0.self_attn.q_proj", 'A', 4, 96, net_x[0]), net_factor(&s, "0.self_attn.q_proj", 'B', 96, 4, net_x[1]);
    safe_write(&s, &f, "adapter_model.safetensors");
    llm_result r = llm__adapter_open(f.path, &net_model->arch, 8, &d);
    if (!r) r = llm__net_adapt(net, 1, &d);
    if (!CHECK(r == want && strstr(llm_last_error(), words))) printf("  %d %s, \"%s\" expected\n", (int)r, llm_last_error(), words);
    llm__adapter_close(&d);
    llm__net_close(net);
    folder_close(&f);
}

static void net_no_b(safe_file *s) { net_factor(s, "0.self_attn.q_proj", 'A', 4, 96, net_x[0]); }
static void net_wide_b(safe_file *s) { net_no_b(s), net_factor(s, "0.self_attn.q_proj", 'B', 98, 4, net_x[5]); }
static void net_other_rank(safe_file *s) {
    net_factor(s, "0.self_attn.q_proj", 'A', 3, 96, net_x[0]), net_factor(s, "0.self_attn.q_proj", 'B', 96, 3, net_x[1]);
}
static void net_no_layer(safe_file *s) {
    net_no_b(s), net_factor(s, "0.self_attn.q_proj", 'B', 96, 4, net_x[1]);
    net_factor(s, "3.self_attn.q_proj", 'A', 4, 96, net_x[0]), net_factor(s, "3.self_attn.q_proj", 'B', 96, 4, net_x[1]);
}
static void net_none(safe_file *s) { (void)s; }
static void net_stranger(safe_file *s) { safe_add(s, "model.layers.0.x", 4, 96, net_x[0]); }
static void net_infinite(safe_file *s) {
    float b[96 * 4];
    memcpy(b, net_x[1], sizeof b);
    b[95 * 4 + 3] = INFINITY;
    net_no_b(s), net_factor(s, "0.self_attn.q_proj", 'B', 96, 4, b);
}

static void net_bad_adapters(void) {
    net_refused("8", "", net_no_b, LLM_ERR_FORMAT, "q_proj.lora_B.weight is missing");
    net_refused("8", "", net_wide_b, LLM_ERR_FORMAT, "(98, 4), (1, 96, 4) expected");
    net_refused("8", "", net_other_rank, LLM_ERR_FORMAT, "has rank 3, adapter_config.json says r = 4");
    net_refused("8", "", net_no_layer, LLM_ERR_UNSUPPORTED, "belongs to no layer of this model");
    net_refused("8", "", net_none, LLM_ERR_FORMAT, "it has no tensors");
    net_refused("8", "", net_stranger, LLM_ERR_FORMAT, "a name that begins with base_model.model. was expected");
    net_refused("8", "", net_infinite, LLM_ERR_FORMAT, "a value is not a finite number");
    net_refused("1e39", "", NULL, LLM_ERR_FORMAT, "lora_alpha");
    net_refused("8", ",\"use_dora\":true", NULL, LLM_ERR_UNSUPPORTED, "use_dora");
    net_refused("8", ",\"modules_to_save\":[\"lm_head\"]", NULL, LLM_ERR_UNSUPPORTED, "modules_to_save");
    net_refused("8", ",\"use_dora\":false,\"modules_to_save\":[],\"layer_replication\":null", net_no_b, LLM_ERR_FORMAT,
                "missing"); /* off */
}

/* The hash of all that an adapter says changes with its weights and its config. */
static void net_content(void) {
    uint64_t seen[3];
    test_folder f;
    llm__adapter d;
    if (!folder_open(&f)) return;
    for (int i = 0; i < 3; i++) {
        net_write_config(&f, i == 1 ? "9" : "8", "");
        net_adapter(&f);
        if (i == 2) {
            FILE *out = fopen(folder_file(&f, "adapter_model.safetensors"), "r+b");
            CHECK(out && !fseek(out, -1, SEEK_END) && fputc(1, out) != EOF && !fclose(out));
        }
        CHECK(!llm__adapter_open(f.path, &net_model->arch, 8, &d));
        seen[i] = d.content;
        llm__adapter_close(&d);
    }
    CHECK(seen[0] != seen[1] && seen[0] != seen[2] && seen[1] != seen[2]);
    net_write_config(&f, "8", "");
    CHECK(llm__adapter_open(f.path, &net_model->arch, 3, &d) == LLM_ERR_LIMIT &&
          strstr(llm_last_error(), "rank 4 is greater than max_lora_rank 3"));
    llm__adapter_close(&d);
    memset(&d, 0, sizeof d);
    llm__adapter_close(&d); /* one that was never opened */
    folder_close(&f);
}

/* What stands apart from the forward pass: nothing of it for a model alone on one rank, and its columns and buffers where there is. */
static void net_extras(void) {
    static llm__arch a;
    static llm__net_rank rank;
    static llm__net_layer layer;
    llm_buffer *const x = (llm_buffer *)&a, *const h = (llm_buffer *)&rank; /* are only compared */
    llm__pass p = {.rank = &rank, .a = &a};
    llm__net_pair w = {.rows = 8};
    int32_t q, k;
    rank.heads.first = 2, layer.kv_heads.first = 1, layer.q_width = 16;
    rank.token.x = x, rank.token.h = h;
    llm__extra_columns(&p, &layer, 4, &q, &k);
    CHECK(q == 0 && k == 16 && llm__extra_embedding(&p) == x && !llm__extra_plus(&p, LLM_ROWS_TOKENS, x, h, &w));
    p.lora = 1; /* a sequence has an adapter, which has nothing for this weight */
    CHECK(!llm__extra_plus(&p, LLM_ROWS_TOKENS, x, h, &w));
    a.qk_norm = LLM_QK_NORM_WHOLE_RMS;
    a.eagle = 1;
    llm__extra_columns(&p, &layer, 4, &q, &k);
    CHECK(q == 8 && k == 20 && llm__extra_embedding(&p) == h);
}

TEST_GROUP(net) {
    llm_model *m = NULL;
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") || !CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m))) return;
    net_model = m;
    net_slices();
    net_extras();
    net_names();
    net_shapes();
    net_take();
    net_ranks(1, 1);
    net_ranks(2, 1);
    net_ranks(2, 2);
    net_ranks(1, 2);
    net_adapts(1, "8", "", 2);
    net_adapts(2, "8", "", 2);
    net_adapts(2, "8", ",\"use_rslora\":true", 4);
    net_adapts(1, "8", ",\"alpha_pattern\":{\"q_proj\":8,\"down_proj\":8,\"v_proj\":8}", 2);
    net_bad_adapters();
    net_content();
    net_clear();
    llm_model_close(m);
}
