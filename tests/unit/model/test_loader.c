/* The loader: what it asks of a backend. */
#include "../folder.h"
#include "base/text.h"
#include "model/families.h"
#include "model/net.h"

enum { MOST_TYPES = LLM_TYPE_RANDOM_Q4 + 1 };
static test_folder loader_folder;
static int loader_segments[MOST_TYPES]; /* of each type, that the backend below was handed */

/* The CPU's backend, which also counts the segments of matrices by their types. */
static llm_result loader_weight(llm_backend_ctx *ctx, int rank, const llm_weight_desc *desc, llm_weight **out) {
    for (int64_t i = 0; desc->role == LLM_ROLE_LINEAR && i < desc->n_segments; i++) loader_segments[desc->segments[i].type]++;
    return llm_backend_cpu()->weight(ctx, rank, desc, out);
}

static void loader_write_config(void) {
    folder_write_text(&loader_folder, "config.json",
                      "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":96,"
                      "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":512,"
                      "\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,\"rope_theta\":1e4}");
}

/* Opens a model of random weights of that kind, and gives its weights to the backend above. */
static llm_result loader_open(int dummy_weights) {
    llm_backend table = *llm_backend_cpu();
    llm_model_config cfg;
    llm_backend_config device;
    llm__net_config nc;
    llm_model *model = NULL;
    llm_backend_ctx *ctx = NULL;
    llm__net *net = NULL;
    memset(&cfg, 0, sizeof cfg);
    memset(&device, 0, sizeof device);
    memset(&nc, 0, sizeof nc);
    memset(loader_segments, 0, sizeof loader_segments);
    cfg.dummy_weights = dummy_weights;
    device.n_ranks = device.n_stages = device.n_threads = 1;
    device.max_rows = device.max_out = device.max_seqs = device.max_pages_per_seq = 1;
    table.weight = loader_weight;
    llm_result r = llm_model_open(loader_folder.path, &cfg, &model);
    if (!r) r = table.open(&device, &ctx);
    nc.model = model;
    nc.backend = &table;
    nc.ctx = ctx;
    nc.n_ranks = nc.n_stages = nc.max_rows = nc.max_out = 1;
    if (!r) r = llm__net_open(&nc, &net);
    llm__net_close(net);
    if (ctx) table.close(ctx);
    llm_model_close(model);
    return r;
}

/* Of a stack of two matrices those that are in it, and no third: ERNIE 4.5 VL counts its experts on over two sets. */
static void loader_stack(void) {
    static const llm__family family = {.names = "ernie4_5_moe"};
    static llm_model m;
    static float values[2 * 3 * 4];
    llm__loader L;
    llm_segment s;
    llm__tensor t = LLM__ZERO;
    m.path = "m", m.arch.family = &family, m.arch.n_experts = m.arch.n_sets = 2;
    t.type = LLM_TYPE_F32, t.n_dims = 3, t.shape[0] = 2, t.shape[1] = 3, t.shape[2] = 4;
    CHECK(!llm__tensors_add(&m.source.tensors, "m", llm__lit("model.layers.0.mlp.experts.down_proj"), &t));
    m.source.tensors.item[0].data = (const uint8_t *)values;
    for (int e = 0; e < 4; e++) {
        memset(&s, 0, sizeof s);
        llm__loader_begin(&L, &m, 1, 1);
        const int found = llm__loader_seek(&L, LLM__W_E_DOWN, llm__slice_of(2, e, 1), 3, 4, 0, &s);
        CHECK(found == (e < 2) && (e >= 2 || s.data == values + 12 * e));
        CHECK(e < 2 || (L.r == LLM_ERR_FORMAT && strstr(llm_last_error(), "mlp.experts.down_proj has 2 matrices")));
        llm__loader_end(&L);
    }
    llm__tensors_free(&m.source.tensors);
}

/* --load-format dummy, dummy-fp8, dummy-q4: each kind reaches the backend as its own type of segment. */
TEST_GROUP(loader) {
    static const int type[] = {LLM_TYPE_RANDOM, LLM_TYPE_RANDOM_F8, LLM_TYPE_RANDOM_Q4};
    if (!folder_open(&loader_folder)) return;
    loader_write_config();
    for (int kind = 1; kind <= 3; kind++) {
        CHECK(loader_open(kind) == LLM_OK);
        for (int other = 1; other <= 3; other++) CHECK((loader_segments[type[other - 1]] > 0) == (other == kind));
    }
    CHECK(loader_open(4) == LLM_ERR_ARG && strstr(llm_last_error(), "dummy_weights 4"));
    CHECK(loader_open(-1) == LLM_ERR_ARG);
    folder_close(&loader_folder);
    loader_stack();
}
