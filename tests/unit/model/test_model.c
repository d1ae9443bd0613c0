/* The model: every family of tests/data/checkpoints against its reference results, on one and two ranks; hostile configs. */
#include "../folder.h"
#include "../gguf.h"
#include "base/platform.h"
#include "base/text.h"
#include "base/files.h"
#include "base/json.h"
#include "model/gguf.h"
#include "model/net.h"
#include "model/forward.h"

/* A model with its net on the CPU backend, and pages for one sequence. */
typedef struct tm_run {
    llm_model *model;
    llm_backend_ctx *ctx;
    llm__net *net;
    int32_t *pages;
    int32_t max;
} tm_run;

static void tm_close(tm_run *t) {
    llm__net_close(t->net);
    if (t->ctx) llm_backend_cpu()->close(t->ctx);
    llm_model_close(t->model);
    free(t->pages);
    memset(t, 0, sizeof *t);
}

static int tm_stages = 1; /* of a pipeline: so many times the ranks */

static llm_result tm_open(tm_run *t, const char *path, const llm_model_config *mc, int ranks, const char *isa, llm_compute compute,
                          int32_t max) {
    const llm_backend *be = llm_backend_cpu();
    llm_backend_config bc;
    llm__net_config nc;
    memset(t, 0, sizeof *t);
    memset(&bc, 0, sizeof bc);
    memset(&nc, 0, sizeof nc);
    t->max = max;
    llm_result r = llm_model_open(path, mc, &t->model);
    bc.n_ranks = ranks * tm_stages;
    bc.n_stages = tm_stages;
    bc.n_threads = 1;
    bc.isa = isa;
    bc.compute = compute;
    bc.max_rows = bc.max_out = max;
    bc.max_seqs = 1;
    bc.max_pages_per_seq = max / 32 + 1;
    nc.indexed = !r && t->model->arch.index_topk && max > t->model->arch.index_topk;
    bc.indexed = nc.indexed ? 32 * bc.max_pages_per_seq : 0;
    if (!r) r = be->open(&bc, &t->ctx);
    nc.model = t->model;
    nc.backend = be;
    nc.ctx = t->ctx;
    nc.n_ranks = bc.n_ranks;
    nc.n_stages = tm_stages;
    nc.max_rows = nc.max_out = max;
    if (!r) r = llm__net_open(&nc, &t->net);
    llm_kv_layer layers[8];
    for (int i = 0; !r && i < t->net->n_kv && i < LLM__COUNT(layers); i++) layers[i] = t->net->kv[i];
    if (!r) r = be->kv_open(t->ctx, t->net->n_kv, layers, 32, bc.max_pages_per_seq);
    t->pages = (int32_t *)calloc((size_t)bc.max_pages_per_seq, sizeof *t->pages);
    for (int i = 0; i < bc.max_pages_per_seq; i++) t->pages[i] = i;
    if (r) tm_close(t);
    return r;
}

/* Feeds n tokens from `from` on; logits of all of them (all) or of the last. */
static llm_result tm_step(tm_run *t, const int32_t *ids, int32_t from, int32_t n, int all, int32_t prompt_len) {
    int32_t *memory = (int32_t *)calloc((size_t)n * 4 + 8, sizeof *memory), begin[2], len = from + n, variant;
    float base;
    llm_step s;
    memset(&s, 0, sizeof s);
    llm__net_rope_of(t->net, prompt_len, &variant, &base);
    int32_t *positions = memory, *seq = memory + n, *out = memory + 2 * n;
    for (int32_t i = 0; i < n; i++) positions[i] = from + i;
    for (int32_t i = 0; i < n; i++) out[i] = all ? i : n - 1;
    begin[0] = 0;
    begin[1] = n;
    s.shape.n_rows = n;
    s.shape.n_seqs = 1;
    s.shape.n_out = all ? n : 1;
    s.tokens = ids;
    s.positions = positions;
    s.n_position_rows = 1;
    s.seq_of_row = seq;
    s.seq_begin = begin;
    s.seq_len = &len;
    s.seq_rope = &variant;
    s.seq_rope_base = &base;
    s.pages = t->pages;
    s.page_stride = t->max / 32 + 1;
    s.out_rows = out;
    llm_result r = llm__net_step(t->net, &s);
    free(memory);
    return r;
}

static const float *tm_logits(tm_run *t, int row) { return llm_backend_cpu()->logits_row(t->ctx, row); }

static double tm_log_sum(const float *x, int n) {
    double most = x[0], sum = 0;
    for (int i = 1; i < n; i++) most = LLM__MAX(most, x[i]);
    for (int i = 0; i < n; i++) sum += exp(x[i] - most);
    return most + log(sum);
}

static int32_t tm_best(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Numbers of a JSON list as doubles (malloc). */
static double *tm_list(const llm_json *j, int node, int *n) {
    *n = llm_json_size(j, node);
    double *v = (double *)calloc((size_t)*n + 1, sizeof *v);
    int i = 0;
    for (int e = llm_json_first(j, node); e >= 0; e = llm_json_next(j, e)) llm_json_num(j, e, &v[i++]);
    return v;
}

/* One prompt of expected.json: the worst difference, relative to the logits' range; -1 on an error. Counts greedy runs that part. */
static double tm_prompt(tm_run *t, const llm_json *j, int prompt, int *parted) {
    int n, n_logits, n_lp, n_greedy, vocab = t->net->a->vocab, top = llm_json_find(j, prompt, "top5_last");
    double *idf = tm_list(j, llm_json_find(j, prompt, "token_ids"), &n),
           *logits = tm_list(j, llm_json_find(j, prompt, "logits_last"), &n_logits);
    double *lp = tm_list(j, llm_json_find(j, prompt, "logprobs_of_next"), &n_lp),
           *greedy = tm_list(j, llm_json_find(j, prompt, "greedy_32"), &n_greedy);
    double worst = 0, low = logits[0], high = logits[0];
    int32_t *ids = (int32_t *)calloc((size_t)n + 40, sizeof *ids);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)idf[i];
    for (int i = 0; i < n_logits; i++) low = LLM__MIN(low, logits[i]), high = LLM__MAX(high, logits[i]);
    if (n_logits != vocab || tm_step(t, ids, 0, n, 1, n)) worst = -1;
    for (int i = 0; worst >= 0 && i < vocab; i++) worst = LLM__MAX(worst, fabs(tm_logits(t, n - 1)[i] - logits[i]) / (high - low));
    for (int i = 0; worst >= 0 && i + 1 < n; i++) {
        const float *x = tm_logits(t, i);
        worst = LLM__MAX(worst, fabs(x[ids[i + 1]] - tm_log_sum(x, vocab) - lp[i]) / (high - low));
    }
    double first = -1;
    if (worst >= 0 && llm_json_num(j, llm_json_first(j, llm_json_first(j, top)), &first))
        CHECK(tm_best(tm_logits(t, n - 1), vocab) == (int32_t)first);
    for (int i = 0; worst >= 0 && i < n_greedy; i++) {
        ids[n + i] = tm_best(tm_logits(t, i ? 0 : n - 1), vocab);
        if (ids[n + i] != (int32_t)greedy[i]) {
            ++*parted;
            break;
        }
        if (tm_step(t, ids + n + i, n + i, 1, 0, n)) worst = -1;
    }
    free(idf), free(logits), free(lp), free(greedy), free(ids);
    return worst;
}

static void tm_family(const char *name, int ranks, const char *isa) {
    char path[256], file[300];
    llm_json *j;
    tm_run t;
    double worst = 0;
    int parted = 0, failed = 0;
    snprintf(path, sizeof path, TEST_CHECKPOINT("%s"), name);
    snprintf(file, sizeof file, "%s/expected.json", path);
    if (!CHECK(!llm__json_file(file, 0, &j))) return;
    llm_result r = tm_open(&t, path, NULL, ranks, isa, LLM_COMPUTE_F32, 192);
    if (CHECK(!r)) {
        int prompts = llm_json_find(j, 0, "prompts");
        for (int p = llm_json_first(j, prompts); p >= 0; p = llm_json_next(j, p)) {
            double d = tm_prompt(&t, j, p, &parted);
            failed |= d < 0;
            worst = LLM__MAX(worst, d);
        }
        if (failed || parted || worst > 1e-4)
            printf("%s, %d ranks, %s: %s, worst difference %.2e of the range, %d greedy runs part\n", name, ranks, isa,
                   failed ? llm_last_error() : "ran", worst, parted);
    } else {
        printf("%s: %s\n", name, llm_last_error());
    }
    CHECK(!r && !failed && worst < 1e-4);
    CHECK(!parted);
    tm_close(&t);
    llm_json_free(j);
}

/* clang-format off */
static const char *const tm_names[] = {
    "afmoe", "apertus", "axk1", "baichuan", "bailing_moe", "bailing_moe_v2", "bamba", "bitnet", "chatglm3", "codegen", "cohere", "cohere2_moe", "deepseek", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3", "deepseek_v32", "deepseek_v32_topk", "ernie4_5", "ernie4_5_moe", "exaone", "exaone4", "exaone_moe", "flex_olmo", "falcon_h1", "falcon_mamba", "gemma2", "gemma3_text", "gemma3n", "gemma3n_three", "gemma4", "flint", "gemma4_moe", "glm", "glm4", "glm4_moe", "glm_moe_dsa",
    "gpt2", "gpt_neo", "gpt_oss", "granite", "granitemoehybrid", "granitemoehybrid_dense", "granitemoe_swa", "granitemoehybrid_mamba", "hunyuan_v1_dense", "hunyuan_v1_moe", "hyperclovax", "hy_v3", "internlm2", "internlm3", "jamba", "kimi_linear", "llama", "llama_rope_dynamic", "llama_rope_linear", "llama_rope_llama3", "llama_rope_yarn", "lara_mini", "lfm2", "lfm2_moe", "lfm3", "llama4", "mamba", "mamba2", "mimo", "mimo_v2_flash", "minimax_m2", "ministral3", "mistral", "mistral4", "mixtral", "mpt", "nanochat", "nemotron_h",
    "olmo2", "opt", "phi3", "phi3_longrope", "phimoe", "qwen1", "qwen2", "qwen2_moe", "qwen2_window", "qwen3", "qwen3_5", "qwen3_moe", "qwen3_next", "sarvam_mla", "sarvam_moe", "smollm3", "solar_open", "starcoder2"};
/* clang-format on */

/* Heads of states in one group cannot be shared, nor what a norm within a block reads. */
static int tm_ranks(const char *name, int ranks) { return strcmp(name, "granitemoehybrid_mamba") && strcmp(name, "bitnet") ? ranks : 1; }

/* ---- Hostile settings ---- */

static test_folder tm_folder;

static void tm_write(const char *name, const void *bytes, size_t n) { folder_write(&tm_folder, name, bytes, n); }

/* Opens a model of random weights with these members put before the usual ones (the first of two equal keys counts). */
static llm_result tm_config(const char *members, llm_model **m) {
    llm_model_config cfg;
    llm_text t;
    memset(&cfg, 0, sizeof cfg);
    memset(&t, 0, sizeof t);
    cfg.dummy_weights = 1;
    llm_text_str(&t, "{");
    llm_text_str(&t, members);
    llm_text_str(
        &t,
        "\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":512,\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,\"rope_theta\":1e4}");
    tm_write("config.json", t.data, t.len);
    llm_text_free(&t);
    return llm_model_open(tm_folder.path, &cfg, m);
}

/* The members must be refused with a sentence that has `words`. */
static void tm_refused(const char *members, const char *words) {
    llm_model *m;
    llm_result r = tm_config(members, &m);
    int ok = r && strstr(llm_last_error(), words);
    if (!ok) printf("%s: %s, \"%s\" expected\n", members, r ? llm_last_error() : "accepted", words);
    CHECK(ok);
    if (!r) llm_model_close(m);
}

static void tm_hostile_configs(void) {
    llm_model *m;
    if (CHECK(!tm_config("", &m))) llm_model_close(m);
    static const char *const integers[] = {"hidden_size", "num_hidden_layers", "num_attention_heads",     "num_key_value_heads",
                                           "vocab_size",  "intermediate_size", "max_position_embeddings", "head_dim"};
    static const char *const values[] = {"0", "-1", "1099511627776", "18446744073709551616", "3.5", "\"4\"", "[4]", "true", "1e400", "{}"};
    for (int i = 0; i < LLM__COUNT(integers); i++)
        for (int k = 0; k < LLM__COUNT(values); k++) {
            char members[128];
            snprintf(members, sizeof members, "\"%s\":%s,", integers[i], values[k]);
            tm_refused(members, integers[i]);
        }
    tm_refused("\"num_hidden_layers\":513,", "num_hidden_layers");
    tm_refused("\"num_attention_heads\":6,\"head_dim\":16,\"num_key_value_heads\":4,", "6 query heads cannot share 4");
    tm_refused("\"num_attention_heads\":6,\"num_key_value_heads\":3,", "head_dim: missing");
    tm_refused("\"num_key_value_heads\":5,", "num_key_value_heads");
    tm_refused("\"rms_norm_eps\":0,", "rms_norm_eps");
    tm_refused("\"rms_norm_eps\":-1e-5,", "rms_norm_eps");
    tm_refused("\"rms_norm_eps\":\"NaN\",", "rms_norm_eps");
    tm_refused("\"rope_theta\":0,", "rope_theta");
    tm_refused("\"rope_theta\":1e300,", "rope_theta");
    tm_refused("\"head_dim\":15,", "RoPE turns 15");
    tm_refused("\"partial_rotary_factor\":2,", "partial_rotary_factor");
    tm_refused("\"rope_scaling\":{\"type\":\"cubic\",\"factor\":2},", "\"cubic\" is not supported");
    tm_refused("\"rope_scaling\":{\"type\":\"linear\",\"factor\":0},", "factor");
    tm_refused("\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"},", "factor");
    tm_refused("\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]},", "short_factor: 8 positive numbers");
    tm_refused("\"rope_scaling\":{\"type\":\"longrope\"},", "short_factor: missing");
    tm_refused("\"rope_scaling\":{\"type\":7},", "short text");
    tm_refused("\"hidden_act\":\"sinus\",", "hidden_act");
    tm_refused("\"model_type\":\"rwkv\",", "supported are llama");
    tm_refused("\"model_type\":7,", "model_type");
    tm_refused("\"attention_bias\":\"no\",", "attention_bias");
    tm_refused("\"layer_types\":[\"full_attention\"],", "layer_types: entry 1");
    tm_refused("\"layer_types\":[\"full_attention\",\"linear_attention\"],", "linear_attention");
    tm_refused("\"quantization_config\":{\"quant_method\":\"quip\"},", "quant_method");
    tm_refused("\"model_type\":\"mixtral\",\"num_local_experts\":4,\"num_experts_per_tok\":5,", "num_experts_per_tok");
    tm_refused("\"model_type\":\"mixtral\",\"num_local_experts\":-4,", "num_local_experts");
    tm_refused("\"model_type\":\"deepseek_v3\",", "kv_lora_rank: missing");
    tm_refused(
        "\"model_type\":\"deepseek_v3\",\"kv_lora_rank\":16,\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":8,\"v_head_dim\":8,\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"n_group\":4,\"topk_group\":1,",
        "cannot give 3 experts");
    tm_refused("\"model_type\":\"opt\",\"do_layer_norm_before\":false,", "not supported");
    tm_refused("\"model_type\":\"phi\",\"qk_layernorm\":true,", "not supported");
    tm_refused("\"model_type\":\"ernie4_5_moe\",\"use_bias\":true,", "not supported");
    tm_write("config.json", "[]", 2);
    CHECK(llm_model_open(tm_folder.path, NULL, &m) == LLM_ERR_FORMAT);
}

/* A GGUF file of keys alone. `bad` replaces the key that it names; its value is bytes of that GGUF type. */
static void tm_gguf(const char *bad, uint32_t type, const void *value, size_t size, const char *words) {
    /* clang-format off */
    static const struct { const char *key; uint32_t v; } keys[] = {{"llama.block_count", 2}, {"llama.context_length", 256}, {"llama.embedding_length", 64}, {"llama.feed_forward_length", 96},
        {"llama.attention.head_count", 4}, {"llama.attention.head_count_kv", 2}, {"llama.vocab_size", 8}, {"llama.rope.dimension_count", 16}};
    /* clang-format on */
    llm_text t;
    llm_model *m;
    llm_model_config cfg;
    const uint32_t eps = 0x3727C5AC; /* 1e-5 */
    memset(&cfg, 0, sizeof cfg);
    cfg.dummy_weights = 1;
    cfg.tokenizer = TEST_CHECKPOINT("llama");
    int more = bad != NULL;
    for (int i = 0; bad && i < LLM__COUNT(keys); i++) more &= strcmp(bad, keys[i].key) != 0;
    if (bad && (!strcmp(bad, "general.architecture") || !strcmp(bad, "llama.attention.layer_norm_rms_epsilon"))) more = 0;
    t = gguf_head(3, 0, LLM__COUNT(keys) + 2 + (uint64_t)more);
    if (!bad || strcmp(bad, "general.architecture")) gguf_kv_str(&t, "general.architecture", "llama");
    if (!bad || strcmp(bad, "llama.attention.layer_norm_rms_epsilon"))
        gguf_kv(&t, "llama.attention.layer_norm_rms_epsilon", LLM__GGUF_F32, eps, 4);
    for (int i = 0; i < LLM__COUNT(keys); i++)
        if (!bad || strcmp(bad, keys[i].key)) gguf_kv(&t, keys[i].key, LLM__GGUF_U32, keys[i].v, 4);
    if (bad) gguf_kv(&t, bad, type, 0, 0), llm_text_add(&t, (const char *)value, size);
    tm_write("bad.gguf", t.data, t.len);
    llm_text_free(&t);
    char path[128];
    snprintf(path, sizeof path, "%s/bad.gguf", tm_folder.path);
    llm_result r = llm_model_open(path, &cfg, &m);
    int ok = words ? r && strstr(llm_last_error(), words) != NULL : !r;
    if (!ok) printf("%s: %s, \"%s\" expected\n", bad ? bad : "good", r ? llm_last_error() : "accepted", words ? words : "");
    CHECK(ok);
    if (!r) llm_model_close(m);
}

static void tm_hostile_gguf(void) {
    const uint32_t zero = 0, many = 513, most = 0xFFFFFFFF, odd = 15, kv = 3, wide = 64;
    const float no = 0, nan = (float)NAN, inf = (float)INFINITY, negative = -1;
    tm_gguf(NULL, 0, NULL, 0, NULL);
    static const char *const keys[] = {"llama.block_count",         "llama.context_length",       "llama.embedding_length",
                                       "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv",
                                       "llama.vocab_size"};
    for (int i = 0; i < LLM__COUNT(keys); i++) {
        tm_gguf(keys[i], 4, &zero, 4, keys[i]);
        tm_gguf(keys[i], 4, &most, 4, keys[i]);
        tm_gguf(keys[i], 6, &no, 4, keys[i]);
        tm_gguf(keys[i], 8, "\1\0\0\0\0\0\0\0007", 9, keys[i]);
    }
    tm_gguf("llama.block_count", 4, &many, 4, "block_count");
    tm_gguf("llama.attention.head_count_kv", 4, &kv, 4, "cannot share");
    tm_gguf("llama.rope.dimension_count", 4, &odd, 4, "RoPE turns 15");
    tm_gguf("llama.rope.dimension_count", 4, &wide, 4, "RoPE turns 64");
    tm_gguf("llama.attention.layer_norm_rms_epsilon", 6, &no, 4, "epsilon");
    tm_gguf("llama.attention.layer_norm_rms_epsilon", 6, &nan, 4, "epsilon");
    tm_gguf("llama.attention.layer_norm_rms_epsilon", 6, &negative, 4, "epsilon");
    tm_gguf("llama.rope.freq_base", 6, &no, 4, "freq_base");
    tm_gguf("llama.rope.freq_base", 6, &inf, 4, "freq_base");
    tm_gguf("llama.attention.sliding_window", 4, &zero, 4, "sliding_window");
    tm_gguf("llama.expert_count", 4, &odd, 4, "expert_used_count");
    tm_gguf("llama.attention.sliding_window_pattern", 9, "\7\0\0\0\1\0\0\0\0\0\0\0\1", 13, "one value a layer expected");
    tm_gguf("llama.attention.sliding_window_pattern", 9, "\10\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, "one value a layer expected");
    tm_gguf("llama.rope.scaling.type", 8, "\5\0\0\0\0\0\0\0cubic", 13, "cubic");
    tm_gguf("general.architecture", 8, "\5\0\0\0\0\0\0\0rwkv7", 13, "supported are llama");
    tm_gguf("general.architecture", 4, &zero, 4, "general.architecture");
}

/* Wrong tensors: a folder with the tensors of one model and the config of another. */
static void tm_wrong_tensors(void) {
    /* clang-format off */
    static const struct { const char *member, *words; } cases[] = {
        {"\"vocab_size\":511,", "tensor model.embed_tokens.weight has shape (512, 96), (511, 96) expected"},
        {"\"num_hidden_layers\":4,", "tensor model.layers.3.input_layernorm.weight is missing"},
        {"\"attention_bias\":true,", "tensor model.layers.0.self_attn.q_proj.bias is missing"},
        {"\"model_type\":\"qwen3\",", "tensor model.layers.0.self_attn.q_norm.weight is missing"},
        {"\"num_key_value_heads\":6,", "tensor model.layers.0.self_attn.k_proj.weight has shape (32, 96), (96, 96) expected"},
        {"\"intermediate_size\":180,", "has shape (176, 96), (180, 96) expected"},
    };
    /* clang-format on */
    const char *from = TEST_CHECKPOINT("llama/model.safetensors");
    char to[128];
    snprintf(to, sizeof to, "%s/model.safetensors", tm_folder.path);
    llm__file f;
    llm_json *j;
    llm_text rest;
    memset(&rest, 0, sizeof rest);
    if (!CHECK(!llm__file_open(from, 0, 0, &f))) return;
    tm_write("model.safetensors", f.data, f.size);
    llm__file_close(&f);
    if (!CHECK(!llm__json_file(TEST_CHECKPOINT("llama/config.json"), 0, &j))) return;
    llm_json_write(j, 0, &rest);
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        llm_text t;
        llm_model *m;
        llm_model_config cfg;
        memset(&t, 0, sizeof t);
        memset(&cfg, 0, sizeof cfg);
        cfg.tokenizer = TEST_CHECKPOINT("llama");
        llm_text_str(&t, "{");
        llm_text_str(&t, cases[i].member);
        llm_text_str(&t, rest.data + 1);
        tm_write("config.json", t.data, t.len);
        llm_text_free(&t);
        llm_result r = llm_model_open(tm_folder.path, &cfg, &m);
        if (!r || !strstr(llm_last_error(), cases[i].words)) printf("%s: %s\n", cases[i].member, r ? llm_last_error() : "accepted");
        CHECK(r && strstr(llm_last_error(), cases[i].words));
        if (!r) llm_model_close(m);
    }
    /* The names of a model that was saved without its head: "model. becomes spaces and a quote. */
    llm_model *m = NULL;
    char *bytes = llm__file_open(from, 0, 0, &f) ? NULL : (char *)malloc(f.size);
    if (bytes) memcpy(bytes, f.data, f.size);
    for (char *at = bytes; at && at < bytes + f.size - 7; at++)
        if (!memcmp(at, "\"model.", 7)) memcpy(at, "      \"", 7);
    tm_write("model.safetensors", bytes, bytes ? f.size : 0);
    tm_write("config.json", rest.data, rest.len);
    llm_model_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.tokenizer = TEST_CHECKPOINT("llama");
    CHECK(!llm_model_open(tm_folder.path, &cfg, &m));
    llm_model_close(m);
    llm__file_close(&f);
    free(bytes);
    llm_text_free(&rest);
    llm_json_free(j);
    unlink(to);
}

/* 1,000 times a bit of config.json or of the weights' header is another one: what opens must run a step; its logits may be anything. */
static void tm_flipped(void) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    const int32_t ids[3] = {1, 2, 3};
    llm_model_config cfg;
    llm__file f[2];
    uint64_t seed = 5;
    int opened = 0, flips = TEST_BRIEF ? 300 : 1000;
    memset(&cfg, 0, sizeof cfg);
    cfg.tokenizer = TEST_CHECKPOINT("llama");
    for (int i = 0; i < 2; i++) {
        char from[128];
        snprintf(from, sizeof from, TEST_CHECKPOINT("llama/%s"), files[i]);
        if (!CHECK(!llm__file_open(from, 0, 0, &f[i]))) return;
        tm_write(files[i], f[i].data, f[i].size);
    }
    for (int i = 0; i < flips; i++) {
        tm_run t;
        const llm__file *of = &f[i & 1];
        char path[128];
        size_t header = i & 1 ? 8 + (size_t)llm__load_le(of->data, 8) : of->size;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)(seed >> 33) % header;
        uint8_t byte = (uint8_t)(of->data[at] ^ 1u << (seed >> 13) % 7);
        snprintf(path, sizeof path, "%s/%s", tm_folder.path, files[i & 1]);
        int fd = open(path, O_WRONLY);
        if (!CHECK(fd >= 0 && pwrite(fd, &byte, 1, (off_t)at) == 1)) return;
        llm_result r = tm_open(&t, tm_folder.path, &cfg, 1, "scalar", LLM_COMPUTE_F32, 64);
        CHECK(r <= 0 && (!r || *llm_last_error()));
        if (!r) {
            r = tm_step(&t, ids, 0, 3, 0, 3);
            CHECK(!r || r == LLM_ERR_ARG); /* a vocabulary that lacks these ids */
            tm_close(&t);
            opened++;
        }
        if (!CHECK(pwrite(fd, of->data + at, 1, (off_t)at) == 1)) return;
        close(fd);
    }
    CHECK(opened > flips / 20 && opened < flips);
    for (int i = 0; i < 2; i++) llm__file_close(&f[i]);
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", tm_folder.path);
    unlink(path);
}

/* Random weights from config.json alone: every kind of block runs and gives finite logits. */
static void tm_dummies(void) {
    /* clang-format off */
    static const char *const members[] = {
        "", "\"model_type\":\"gemma2\",\"sliding_window\":32,", "\"model_type\":\"cohere\",", "\"model_type\":\"olmo2\",", "\"model_type\":\"gpt2\",",
        "\"model_type\":\"mixtral\",\"num_local_experts\":4,\"num_experts_per_tok\":2,",
        "\"model_type\":\"gpt_oss\",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":32,",
        "\"model_type\":\"baichuan\",\"architectures\":[\"BaichuanForCausalLM\"],",
        "\"model_type\":\"deepseek_v3\",\"kv_lora_rank\":16,\"q_lora_rank\":24,\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":8,\"v_head_dim\":8,\"n_routed_experts\":8,\"num_experts_per_tok\":2,"
        "\"n_group\":4,\"topk_group\":2,\"n_shared_experts\":1,\"moe_intermediate_size\":32,\"first_k_dense_replace\":1,"};
    /* clang-format on */
    const int32_t ids[5] = {1, 2, 3, 4, 5};
    llm_model_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.dummy_weights = 1;
    for (int i = 0; i < LLM__COUNT(members); i++) {
        llm_model *m;
        tm_run t;
        if (!CHECK(!tm_config(members[i], &m))) continue;
        CHECK(m->info.n_params > 30000);
        llm_model_close(m);
        if (!CHECK(!tm_open(&t, tm_folder.path, &cfg, 2, NULL, LLM_COMPUTE_AUTO, 64))) continue;
        CHECK(!tm_step(&t, ids, 0, 5, 0, 5));
        double sum = 0;
        for (int k = 0; k < 512; k++) sum += tm_logits(&t, 0)[k];
        CHECK(sum - sum == 0 && sum != 0);
        if (strstr(members[i], "gpt2")) CHECK(tm_step(&t, ids, 300, 1, 0, 5) == LLM_ERR_LIMIT); /* a table of 256 positions */
        tm_close(&t);
    }
}

/* Parameters and the bytes that a token reads: no embedding that is only looked up in, of the experts those used, no layers beyond the last. */
static void tm_counts(void) {
    /* clang-format off */
    static const struct { const char *path; int64_t n_params, step_bytes; } cases[] = {
        {TEST_CHECKPOINT("internlm2"), 188864, 312192}, {TEST_CHECKPOINT("deepseek_v3"), 217360, 277056},
        {TEST_CHECKPOINT("gpt2"), 142592, 531456}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        llm_model *m;
        if (!CHECK(!llm_model_open(cases[i].path, NULL, &m))) continue;
        CHECK(m->info.n_params == cases[i].n_params && m->info.step_bytes == cases[i].step_bytes);
        llm_model_close(m);
    }
}

/* Every allocation in turn fails: an error each time, nothing left behind (a leak checker watches). */
static void tm_no_memory(void) {
    llm_model_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.tokenizer = TEST_CHECKPOINT("llama");
    const char *path = TEST_CHECKPOINT("gpt_oss");
    tm_run t;
    long first = test_allocations;
    if (!CHECK(!tm_open(&t, path, &cfg, 2, "scalar", LLM_COMPUTE_F32, 64))) return;
    long all = test_allocations - first;
    tm_close(&t);
    for (long k = 1; k <= all; k += 1 + all / 97) {
        test_fail_at = test_allocations + k;
        llm_result r = tm_open(&t, path, &cfg, 2, "scalar", LLM_COMPUTE_F32, 64);
        test_fail_at = 0;
        if (r != LLM_ERR_NOMEM && r) printf("allocation %ld of %ld: %s\n", k, all, llm_last_error());
        CHECK(r == LLM_ERR_NOMEM || !r); /* what can do without goes on */
        if (!r) tm_close(&t);
    }
}

TEST_GROUP(model) {
    int made = test_made(TEST_CHECKPOINT("llama"), "checkpoints");
    if (folder_open(&tm_folder)) {
        tm_hostile_configs();
        tm_dummies();
        if (made) {
            tm_hostile_gguf();
            tm_wrong_tensors();
            tm_flipped();
        }
        folder_close(&tm_folder);
    }
    if (!made) return;
    /* one rank on the plain C kernels; two ranks on each instruction set of this CPU in turn; two stages of one rank or two */
    char isas[16][16];
    const char *list = llm_isa_list();
    int n = 0;
    for (llm__str isa; n < 16 && llm__list_next(&list, " ", &isa); n++) snprintf(isas[n], sizeof isas[n], "%.*s", (int)isa.n, isa.p);
    tm_counts();
    tm_no_memory();
    for (int i = 0; i < LLM__COUNT(tm_names); i++) {
        if (getenv("TM_ONLY") && !strstr(tm_names[i], getenv("TM_ONLY"))) continue;
        if (!TEST_BRIEF || i % 2) tm_family(tm_names[i], 1, "scalar");
        if (!TEST_BRIEF || !(i % 2)) tm_family(tm_names[i], tm_ranks(tm_names[i], 2), isas[n - 1 - i % n]);
        if (!strcmp(tm_names[i], "gemma3n") || !strcmp(tm_names[i], "gemma4"))
            continue; /* their last layers read keys of the first stage's: refused */
        tm_stages = 2;
        tm_family(tm_names[i], tm_ranks(tm_names[i], 1 + i % 2), isas[i % n]);
        tm_stages = 1;
    }
}
