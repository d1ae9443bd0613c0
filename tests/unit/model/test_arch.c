/* Questions to config.json and GGUF keys, and what the architecture reads out of them: rotary frequencies against the formulas of their
 * papers, shapes, layers. */
#include "../gguf.h"
#include "model/arch.h"
#include "model/arch_gemma4.h"
#include "model/arch_gemma3n.h"
#include "model/arch_mixtures.h"
#include "model/facts.h"
#include "model/net.h"
#include "model/rope.h"
#include "model/source.h"

/* ---- facts ---- */

static llm__facts arch_facts(const llm_json *json) {
    llm__facts f;
    memset(&f, 0, sizeof f);
    f.json = json, f.n_nodes = 1, f.path = "m";
    return f;
}

static llm_json *arch_json(const char *text) {
    llm_json *j = NULL;
    CHECK(!llm_json_parse(text, strlen(text), NULL, &j));
    return j;
}

/* The first spelling that is there and not null, in the nearest object; a number in range, or its fallback and one error. */
static void arch_folder_facts(void) {
    llm_json *j =
        arch_json("{\"b\":2,\"c\":null,\"d\":1.5,\"far\":\"yes\",\"on\":true,\"off\":0,\"list\":[7,8],\"in\":{\"b\":3,\"far\":null}}");
    char text[64];
    llm__facts f = arch_facts(j), in = llm__facts_in(&f, llm_json_find(j, 0, "in")), same = llm__facts_in(&f, llm_json_find(j, 0, "b"));
    CHECK(llm__fact_int(&f, "a b", 9, 0, 5) == 2 && llm__fact_int(&f, "c b", 9, 0, 5) == 2 && llm__fact_int(&f, ".b c", 9, 0, 5) == 9);
    CHECK(in.n_nodes == 2 && same.n_nodes == 1 && llm__fact_int(&in, "b", 9, 0, 5) == 3 && llm__fact_int(&in, "a b", 9, 0, 5) == 3);
    CHECK(!strcmp(llm__fact_str(&in, "far", text), "yes") && !strcmp(llm__fact_str(&in, "absent", text), ""));
    CHECK(llm__fact_num(&f, "d", 9, 0, 5) == 1.5 && llm__fact_num(&f, "absent", 9, 0, 5) == 9);
    CHECK(llm__fact_bool(&f, "on", 0) == 1 && llm__fact_bool(&f, "off", 1) == 0 && llm__fact_bool(&f, "absent", 1) == 1);
    CHECK(llm_json_size(j, llm__facts_find(&f, "list").node) == 2 && llm__fact_list(&f, "list") >= 0 && llm__fact_list(&f, "in2") == -1);
    CHECK(llm__facts_find(&f, "x y").node == -1 && !strcmp(llm__facts_find(&f, "x y").key, "x") && !f.r && !in.r);
    CHECK(llm__fact_int(&f, "b", 9, 3, 5) == 9 && f.r == LLM_ERR_FORMAT &&
          strstr(llm_last_error(), "m: config.json: b: 2 is outside 3 to 5"));
    CHECK(llm__fact_int(&f, "b", 9, 0, 5) == 9); /* after the first failure all is its fallback */
    f.r = LLM_OK;
    CHECK(llm__fact_int(&f, "d", 9, 0, 5) == 9 && strstr(llm_last_error(), "d: a whole number expected"));
    f.r = LLM_OK;
    CHECK(llm__fact_int(&f, "a", LLM__MUST, 4, 5) == 4 && strstr(llm_last_error(), "a: missing"));
    f.r = LLM_OK;
    CHECK(llm__fact_num(&f, "far", 9, 0, 5) == 9 && strstr(llm_last_error(), "far: a number expected"));
    f.r = LLM_OK;
    CHECK(llm__fact_bool(&f, "far", 0) == 0 && strstr(llm_last_error(), "far: true or false expected"));
    llm__fact bad = {"key", -1, NULL};
    llm__facts_bad(&f, &bad, "another"); /* the first one stays */
    CHECK(strstr(llm_last_error(), "far: true or false expected"));
    CHECK(llm__word_in("one two", "two") && !llm__word_in("one two", "tw") && !llm__word_in("", "one"));
    llm_json_free(j);
}

/* The same of GGUF keys, whose names begin with the architecture's; one value a layer counts if all are equal. */
static void arch_gguf_facts(void) {
    llm_text t = gguf_head(3, 0, 6);
    llm__gguf keys = LLM__ZERO;
    llm__tensors none = LLM__ZERO;
    llm__facts f;
    char text[64];
    gguf_kv(&t, "x.n", LLM__GGUF_U32, 7, 4);
    gguf_kv(&t, "x.f", LLM__GGUF_F32, 0x3FC00000, 4);
    gguf_kv(&t, "x.on", LLM__GGUF_BOOL, 1, 1);
    gguf_kv_str(&t, "x.text", "abc");
    gguf_kv_array(&t, "x.same", LLM__GGUF_U16, 3);
    for (int i = 0; i < 3; i++) gguf_u(&t, 5, 2);
    gguf_kv_array(&t, "x.other", LLM__GGUF_U16, 3);
    for (int i = 0; i < 3; i++) gguf_u(&t, (uint64_t)i, 2);
    CHECK(!llm__gguf_parse("file", (const uint8_t *)t.data, t.len, &keys, &none));
    memset(&f, 0, sizeof f);
    f.gguf = &keys, f.path = "m", f.arch[0] = 'x';
    CHECK(llm__fact_int(&f, "n .n", 0, 0, 9) == 7 && llm__fact_int(&f, "n", 3, 0, 9) == 3 && llm__fact_num(&f, ".f", 0, 0, 9) == 1.5);
    CHECK(llm__fact_bool(&f, ".on", 0) == 1 && !strcmp(llm__fact_str(&f, ".text", text), "abc") &&
          llm__fact_int(&f, ".same", 0, 0, 9) == 5 && !f.r);
    CHECK(llm__fact_list(&f, ".same") == -1);
    CHECK(llm__fact_int(&f, ".other", 4, 0, 9) == 4 && f.r == LLM_ERR_FORMAT &&
          strstr(llm_last_error(), "m: x.other: a whole number expected"));
    f.r = LLM_OK;
    CHECK(llm__fact_most(&f, ".other", 4, 1, 9) == 2 && llm__fact_most(&f, ".same", 4, 1, 9) == 5 &&
          llm__fact_most(&f, ".n", 4, 1, 9) == 7 && llm__fact_most(&f, ".none", 4, 1, 9) == 4 && !f.r);
    CHECK(llm__fact_most(&f, ".other", 4, 0, 1) == 1 && f.r && strstr(llm_last_error(), "x.other: a whole number for each layer, each in"));
    f.r = LLM_OK;
    CHECK(llm__fact_int(&f, ".f", 4, 0, 9) == 4 && f.r);
    llm__gguf_free(&keys), llm__tensors_free(&none), llm_text_free(&t);
}

/* ---- rotary frequencies ---- */

static llm__arch arch_read; /* too large for a stack */

/* Reads a Llama of heads of 16 values with these members of its config. */
static llm_result arch_of(const char *members) {
    static const char rest[] =
        "\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":512,\"rms_norm_eps\":1e-5,\"model_type\":\"llama\"";
    llm__source s;
    char text[1600];
    memset(&s, 0, sizeof s);
    snprintf(text, sizeof text, "{%s%s%s}", members, *members ? "," : "", rest);
    s.path = "m";
    s.config = arch_json(text);
    const llm_result r = llm__arch_read(&s, 1, &arch_read);
    llm_json_free(s.config);
    return r;
}

static int arch_near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b) + 1e-12; }

/* The i-th frequency before any stretching. */
static double arch_plain(double base, int i) { return pow(base, -i / 8.0); }

/* YaRN, by the number of turns r that a frequency makes within the length of the first training: kept from `fast` turns on, divided by the
 * factor up to `slow` ones; between them in proportion to the place, where the two ends are (truncated) places. */
static double arch_yarn(int i, double factor, double original, double fast, double slow, int truncate) {
    const double pi = acos(-1.0);
    double low = 8 * log(original / (fast * 2 * pi)) / log(1e4), high = 8 * log(original / (slow * 2 * pi)) / log(1e4);
    if (truncate) low = floor(low), high = ceil(high);
    low = low < 0 ? 0 : low, high = high > 15 ? 15 : high;
    const double ramp = i <= low ? 0 : i >= high ? 1 : (i - low) / (high - low);
    return arch_plain(1e4, i) * (1 - ramp + ramp / factor);
}

static double arch_llama3(int i, double factor, double original, double low, double high) {
    const double w = arch_plain(1e4, i), wavelength = 2 * acos(-1.0) / w;
    if (wavelength < original / high) return w;
    if (wavelength > original / low) return w / factor;
    const double smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * w / factor + smooth * w;
}

static void arch_schemes(void) {
    const llm__rope *r = &arch_read.rope[0];
    double far;
    CHECK(!arch_of("\"max_position_embeddings\":256") && arch_read.rope[0].dim == 16 && arch_read.n_rope == 1 && arch_read.max_len == 256);
    CHECK(r->scale[0] == 1 && r->inv_freq[0] == 1 && arch_near(r->inv_freq[2], 0.1) && arch_near(r->inv_freq[4], 0.01) &&
          arch_near(r->inv_freq[6], 0.001));
    CHECK(!arch_of("\"max_position_embeddings\":256,\"rope_theta\":81"));
    for (int i = 0; i < 8; i++) CHECK(arch_near(r->inv_freq[i], arch_plain(81, i)) && r->inv_freq[8 + i] == r->inv_freq[i]);
    CHECK(!arch_of("\"max_position_embeddings\":256,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"));
    for (int i = 0; i < 8; i++) CHECK(arch_near(r->inv_freq[i], arch_plain(1e4, i) / 4));
    CHECK(!arch_of(
        "\"max_position_embeddings\":1024,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":16,\"original_max_position_embeddings\":64,\"beta_fast\":4}"));
    for (int i = 0; i < 8; i++) CHECK(arch_near(r->inv_freq[i], arch_yarn(i, 16, 64, 4, 1, 1)));
    CHECK(arch_near(r->scale[0], 0.1 * log(16) + 1));
    CHECK(!arch_of(
        "\"max_position_embeddings\":1024,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":16,\"original_max_position_embeddings\":64,\"beta_fast\":4,"
        "\"truncate\":false,\"mscale\":0.7,\"mscale_all_dim\":1}"));
    for (int i = 0; i < 8; i++) CHECK(arch_near(r->inv_freq[i], arch_yarn(i, 16, 64, 4, 1, 0)));
    CHECK(arch_near(r->scale[0], (0.07 * log(16) + 1) / (0.1 * log(16) + 1)));
    CHECK(!arch_of(
        "\"max_position_embeddings\":1024,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
        "\"original_max_position_embeddings\":200}"));
    for (int i = 0, kept = 0, mixed = 0; i < 8; i++) {
        CHECK(arch_near(r->inv_freq[i], arch_llama3(i, 8, 200, 1, 4)));
        kept += r->inv_freq[i] == (float)arch_plain(1e4, i),
            mixed += r->inv_freq[i] != (float)arch_plain(1e4, i) && r->inv_freq[i] > (float)(arch_plain(1e4, i) / 7);
        if (i == 7) CHECK(kept > 0 && mixed > 0 && kept + mixed < 8); /* all three cases were met */
    }
    CHECK(!arch_of("\"max_position_embeddings\":1024,\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"longrope\","
                   "\"short_factor\":[1,1.1,1.2,1.3,1.4,1.5,1.6,1.7],\"long_factor\":[2,3,4,5,6,7,8,9]}"));
    far = sqrt(1 + log(16) / log(64));
    for (int i = 0; i < 8; i++)
        CHECK(arch_near(r->inv_freq[i], arch_plain(1e4, i) / (1 + i / 10.0)) &&
              arch_near(r->inv_freq[8 + i], arch_plain(1e4, i) / (2 + i)));
    CHECK(arch_near(r->scale[0], far) && r->scale[1] == r->scale[0] && arch_read.long_from == 64);
}

static void arch_refused(const char *members, const char *words) {
    if (!CHECK(arch_of(members) && strstr(llm_last_error(), words)))
        printf("  %s: %s, \"%s\" expected\n", members, llm_last_error(), words);
}

static void arch_bad_schemes(void) {
    arch_refused("\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,2],\"long_factor\":[1,2]},\"max_position_embeddings\":64",
                 "8 positive numbers expected");
    arch_refused("\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1,1,1,1,1,1,1,1]},\"max_position_embeddings\":64",
                 "short_factor: missing");
    arch_refused(
        "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,0],\"long_factor\":[1,1,1,1,1,1,1,1]},\"max_position_embeddings\":64",
        "8 positive numbers expected");
    arch_refused("\"rope_scaling\":{\"type\":\"spiral\"},\"max_position_embeddings\":64", "type \"spiral\" is not supported");
    arch_refused("\"rope_theta\":1,\"max_position_embeddings\":64", "rope_theta: 1 is outside 1.0001 to 1e+18");
    arch_refused("\"partial_rotary_factor\":0.2,\"max_position_embeddings\":64", "RoPE turns 3 of 16 values");
    arch_refused("\"num_key_value_heads\":3,\"max_position_embeddings\":64", "4 query heads cannot share 3 key heads");
    arch_refused("\"num_hidden_layers\":513,\"max_position_embeddings\":64", "513 is outside 1 to 512");
}

/* How long texts may be beside a scheme, as vLLM works it out; null: max_position_embeddings. */
static void arch_reach(void) {
    static const struct {
        const char *scheme;
        int32_t longest;
    } rows[] = {{"null", 32768},
                {"{\"type\":\"linear\",\"factor\":4}", 131072},
                {"{\"rope_type\":\"linear\",\"factor\":2.5}", 81920},
                {"{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":32768}", 131072},
                {"{\"type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":4096}", 32768}, /* said already */
                {"{\"type\":\"yarn\",\"factor\":2,\"original_max_position_embeddings\":4096}", 32768},
                {"{\"type\":\"yarn\",\"factor\":2}", 65536},
                {"{\"type\":\"yarn\",\"original_max_position_embeddings\":4096}", 32768},
                {"{\"type\":\"linear\",\"factor\":1000000}", 1 << 30},
                {"{\"type\":\"default\",\"factor\":4}", 32768},
                {"{\"rope_type\":\"llama3\",\"factor\":8,\"original_max_position_embeddings\":8192}", 32768}};
    char members[300];
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        snprintf(members, sizeof members, "\"max_position_embeddings\":32768,\"rope_scaling\":%s", rows[i].scheme);
        if (!CHECK(!arch_of(members) && arch_read.max_len == rows[i].longest && arch_read.max_positions == 32768))
            printf("  %s: %d\n", rows[i].scheme, (int)arch_read.max_len);
    }
    CHECK(!arch_of("\"max_position_embeddings\":32768,\"model_type\":\"gemma3_text\",\"head_dim\":16,\"sliding_window\":8,"
                   "\"query_pre_attn_scalar\":16,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}") &&
          arch_read.max_len == 32768);
}

/* The base of a prompt's length: transformers' dynamic NTK, Qwen 1's powers of two; longrope's second set. */
static void arch_lengths(void) {
    static llm__net net;
    int32_t variant;
    float base;
    net.a = &arch_read;
    CHECK(!arch_of("\"max_position_embeddings\":100,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}") && arch_read.dynamic == 1 &&
          arch_read.max_len == 2048);
    for (int32_t n = 1; n < 1000; n += 7) {
        llm__net_rope_of(&net, n, &variant, &base);
        CHECK(!variant && arch_near(base, n <= 100 ? 1 : pow(2.0 * n / 100 - 1, 16.0 / 14)));
    }
    CHECK(!arch_of("\"max_position_embeddings\":1000,\"use_dynamic_ntk\":true,\"seq_length\":100") && arch_read.dynamic == 2);
    for (int32_t n = 1; n < 1000; n += 7) {
        double alpha = 1;
        for (double reach = 100; reach < n; reach *= 2) alpha = 2 * alpha + 1; /* 3 up to 200, 7 up to 400, 15 up to 800 */
        llm__net_rope_of(&net, n, &variant, &base);
        CHECK(!variant && arch_near(base, alpha > 1 ? pow(alpha, 16.0 / 14) : 1));
    }
    CHECK(!arch_of("\"max_position_embeddings\":1024,\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"su\","
                   "\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[2,3,4,5,6,7,8,9]}"));
    for (int32_t n = 1; n < 200; n++) llm__net_rope_of(&net, n, &variant, &base), CHECK(variant == (n > 64) && base == 1);
}

/* ---- shapes and layers ---- */

/* What the layers of families with states are, a letter each: A attention, C convolution, D delta net, S Mamba 2, m an MLP alone. */
static void arch_mixer(const char *members, const char *letters) {
    char found[8] = "";
    if (!CHECK(!arch_of(members))) printf("  %s: %s\n", members, llm_last_error());
    for (int i = 0; i < arch_read.n_layers && i < 7; i++) found[i] = "AmCDSK6"[arch_read.layer[i].mixer];
    if (!CHECK(!strcmp(found, letters))) printf("  %s: %s, %s expected\n", members, found, letters);
}

static void arch_mixers(void) {
#define DELTA "\"linear_num_value_heads\":8,\"linear_num_key_heads\":4,\"linear_key_head_dim\":6,\"linear_value_head_dim\":10"
    arch_mixer("\"model_type\":\"qwen3_5_text\"," DELTA, "DDDA");
    CHECK(arch_read.attn_gate && arch_read.state.dv == 10 && arch_read.state.n_groups == 4);
    arch_mixer("\"model_type\":\"qwen3_next\",\"full_attention_interval\":2," DELTA, "DADA");
    arch_mixer(
        "\"model_type\":\"qwen3_5_text\",\"layer_types\":[\"full_attention\",\"linear_attention\",\"full_attention\",\"full_attention\"]," DELTA,
        "ADAA");
#undef DELTA
    arch_mixer("\"model_type\":\"lfm2\",\"full_attn_idxs\":[1,3],\"block_multiple_of\":16", "CACA");
    CHECK(arch_read.ff == 64 && arch_read.state.taps == 3 && arch_read.state.n_heads == 64); /* two thirds of 96 */
    arch_mixer("\"model_type\":\"mamba2\",\"num_heads\":8,\"head_dim\":16,\"state_size\":32,\"conv_kernel\":5", "SSSS");
    CHECK(arch_read.layer[3].no_mlp && arch_read.state.taps == 5 && arch_read.state.dk == 32 && arch_read.state.n_groups == 1);
    arch_mixer("\"model_type\":\"mamba2\",\"num_heads\":8,\"head_dim\":15,\"state_size\":32", "SSSS"); /* nothing turns */
    arch_mixer(
        "\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M-*M\",\"mamba_num_heads\":8,\"mamba_head_dim\":16,\"ssm_state_size\":32",
        "SmAS");
    CHECK(!arch_read.layer[1].no_mlp && arch_read.layer[2].no_mlp && arch_read.layer[2].rope < 0);
    arch_mixer("\"model_type\":\"jamba\",\"num_experts\":4,\"num_experts_per_tok\":2,\"attn_layer_period\":2,\"attn_layer_offset\":1,"
               "\"mamba_dt_rank\":\"auto\",\"mamba_d_state\":8",
               "6A6A");
    CHECK(arch_read.state.n_heads == 128 && arch_read.state.rank == 4 && arch_read.state.dk == 8 && arch_read.state.taps == 4 &&
          arch_read.layer[1].moe && !arch_read.layer[0].moe && arch_read.layer[1].rope < 0 && !arch_read.normalize);
    arch_mixer("\"model_type\":\"mamba\",\"intermediate_size\":null,\"expand\":3,\"conv_kernel\":3,\"state_size\":12,\"time_step_rank\":5",
               "6666");
    CHECK(arch_read.state.n_heads == 192 && arch_read.state.rank == 5 && arch_read.state.dk == 12 && arch_read.state.taps == 3 &&
          arch_read.layer[0].no_mlp && arch_read.state.low_norm == LLM_NORM_NONE);
    arch_mixer("\"model_type\":\"falcon_mamba\",\"mixer_rms_eps\":1e-4,\"expand\":16,\"intermediate_size\":128", "6666");
    CHECK(arch_read.state.n_heads == 128 && arch_read.state.rank == 4 && arch_read.state.low_norm == LLM_NORM_RMS &&
          arch_read.state.low_eps == 1e-4f);
#define BAMBA "\"model_type\":\"bamba\",\"mamba_n_heads\":8,\"mamba_d_state\":16,\"mamba_d_head\":"
    arch_mixer(BAMBA "\"auto\",\"attn_layer_indices\":[1,3]", "SASA");
    CHECK(arch_read.state.dv == 16 && arch_read.rope[0].dim == 8 && arch_read.layer[1].rope == 0 && !arch_read.layer[0].no_mlp);
    arch_mixer(BAMBA "20,\"layer_types\":[\"linear_attention\",\"full_attention\",\"mamba\",\"attention\"]", "SASA");
    CHECK(arch_read.state.dv == 20);
    arch_refused("\"max_position_embeddings\":64," BAMBA "\"wide\"", "mamba_d_head: a number, or \"auto\" where heads share");
#undef BAMBA
#define KIMI \
    "\"max_position_embeddings\":64,\"model_type\":\"kimi_linear\",\"kv_lora_rank\":16,\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":10," \
    "\"v_head_dim\":6,\"linear_attn_config\":{\"full_attn_layers\":[2],\"num_heads\":3,\"head_dim\":12},"
    arch_mixer(KIMI "\"num_experts\":4,\"num_experts_per_token\":2,\"num_shared_experts\":1,\"moe_intermediate_size\":24", "KAKK");
    CHECK(arch_read.state.n_heads == 3 && arch_read.state.n_groups == 3 && arch_read.state.dv == 12 && arch_read.n_heads == 4 &&
          !arch_read.n_rope && arch_read.rope[0].dim == 8 && arch_read.ff_shared == 24 && arch_read.score == LLM_ROUTE_SIGMOID);
    arch_refused(KIMI "\"mla_use_nope\":false", "mla_use_nope: false is not supported");
    CHECK(!arch_of(KIMI "\"tie_word_embeddings\":true") && arch_read.tied != 1); /* its class has an output layer even so */
#undef KIMI
    arch_mixer("\"max_position_embeddings\":64,\"model_type\":\"kimi_linear\",\"kv_lora_rank\":16,\"qk_rope_head_dim\":8,\"head_dim\":8,"
               "\"qk_nope_head_dim\":10,\"v_head_dim\":6,\"linear_num_heads\":3,\"linear_head_dim\":12,\"linear_conv_kernel_dim\":2,"
               "\"layer_types\":[\"linear_attention\",\"full_attention\",\"linear_attention\",\"linear_attention\"],\"num_experts\":4,"
               "\"num_experts_per_token\":2,\"mlp_layer_types\":[\"dense\",\"sparse\",\"dense\",\"sparse\"]",
               "KAKK"); /* as transformers saves it */
    CHECK(arch_read.state.n_heads == 3 && arch_read.state.dk == 12 && arch_read.state.dv == 12 && arch_read.state.taps == 2 &&
          arch_read.layer[1].moe && !arch_read.layer[2].moe);
#define FALCON "\"model_type\":\"falcon_h1\",\"mamba_n_heads\":8,\"mamba_d_head\":16,\"mamba_d_state\":32,"
    arch_mixer(FALCON "\"ssm_multipliers\":[2,3,4,5,6],\"mlp_multipliers\":[0.5,7],\"key_multiplier\":0.25,\"mamba_d_ssm\":128", "SSSS");
    CHECK(arch_read.layer[2].both && arch_read.state.no_norm && arch_read.fold.ssm[4] == 6 && arch_read.fold.gate == 0.5f &&
          arch_read.fold.down == 7 && arch_read.fold.key == 0.25f && arch_read.fold.ssm_in == 1);
    arch_refused(FALCON "\"max_position_embeddings\":64,\"mamba_d_ssm\":64", "mamba_d_ssm: 64, 8 heads of 16 values expected");
    arch_refused(FALCON "\"max_position_embeddings\":64,\"ssm_multipliers\":[1,2]", "ssm_multipliers");
#undef FALCON
#define NEMOTRON "\"model_type\":\"nemotron_h\",\"mamba_num_heads\":8,\"mamba_head_dim\":16,\"ssm_state_size\":32,"
    arch_mixer(NEMOTRON "\"layers_block_type\":[\"moe\",\"mamba\",\"attention\",\"mlp\"],\"n_routed_experts\":4,\"num_experts_per_tok\":2,"
                        "\"moe_latent_size\":24,\"moe_shared_expert_intermediate_size\":40",
               "mSAm");
    CHECK(arch_read.layer[0].moe && !arch_read.layer[3].moe && arch_read.ff_latent == 24 && arch_read.ff_shared == 40 &&
          arch_read.score == LLM_ROUTE_SIGMOID && arch_read.normalize);
    arch_mixer(NEMOTRON
               "\"num_hidden_layers\":null,\"layers_block_type\":[\"linear_attention\",\"full_attention\",\"mlp\",\"linear_attention\"]",
               "SAmS"); /* as transformers saves it since version 5 */
    arch_mixer(NEMOTRON "\"layers_block_type\":[\"mlp\",\"full_attention\",\"mlp\",\"mlp\"]", "mAmm");
    arch_refused(NEMOTRON "\"max_position_embeddings\":64,\"hybrid_override_pattern\":\"MEM*\"", "n_routed_experts: layer 1 has none");
    arch_refused(NEMOTRON "\"max_position_embeddings\":64,\"layers_block_type\":[\"mamba\",\"conv\",\"mamba\",\"mamba\"]",
                 "a letter of M, *, - and E");
#undef NEMOTRON
    arch_mixer("\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,\"mamba_n_heads\":8,\"mamba_d_head\":16,\"mamba_d_state\":32",
               "SSSS");
    arch_mixer("\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,\"mamba_n_heads\":8,\"mamba_d_head\":16,\"mamba_d_state\":32,"
               "\"layer_types\":[\"linear_attention\",\"mamba\",\"full_attention\",\"attention\"]",
               "SSAA");
    CHECK(!arch_of("\"model_type\":\"granite\"") && !arch_read.recurrent);
}

/* Llama 4: windows side by side and RoPE stand together unless layers are told apart, experts by a step or a list. */
static void arch_llama4(void) {
#define LLAMA4 "\"max_position_embeddings\":64,\"model_type\":\"llama4_text\",\"num_local_experts\":4,\"num_experts_per_tok\":1,"
    CHECK(!arch_of(LLAMA4 "\"attention_chunk_size\":16,\"interleave_moe_layer_step\":2,\"intermediate_size_mlp\":80,\"no_rope_layers\":[],"
                          "\"intermediate_size\":40,\"attn_temperature_tuning\":4"));
    for (int i = 0; i < 4; i++)
        CHECK(arch_read.layer[i].window == (i == 3 ? 0 : 16) && arch_read.layer[i].rope == (i == 3 ? -1 : 0) &&
              arch_read.layer[i].moe == i % 2);
    CHECK(arch_read.chunked && arch_read.weigh_input && arch_read.ff == 80 && arch_read.ff_expert == 40 && arch_read.ff_shared == 40);
    CHECK(arch_read.logn_from == 8192 && arch_near(arch_read.logn_beta, 0.1) && arch_read.logn_ahead && !arch_read.normalize &&
          arch_read.score == LLM_ROUTE_SIGMOID && arch_read.qk_norm == LLM_QK_NORM_HEAD_RMS_LAST);
    CHECK(!arch_of(LLAMA4 "\"moe_layers\":[0,2],\"no_rope_layers\":[0,1,1,1],\"attn_temperature_tuning\":false,\"use_qk_norm\":false,"
                          "\"layer_types\":[\"chunked_attention\",\"full_attention\",\"chunked_attention\",\"chunked_attention\"]"));
    for (int i = 0; i < 4; i++)
        CHECK(arch_read.layer[i].window == (i == 1 ? 0 : 8192) && arch_read.layer[i].rope == (i ? 0 : -1) &&
              arch_read.layer[i].moe == !(i % 2));
    CHECK(!arch_read.logn_from && !arch_read.qk_norm);
    arch_refused(LLAMA4 "\"layer_types\":[\"sliding_attention\"]",
                 "entry 0 is \"sliding_attention\", chunked_attention or full_attention expected");
    arch_refused(LLAMA4 "\"no_rope_layers\":[1,1]", "no_rope_layers: 0 or 1 for each layer");
    arch_refused(LLAMA4 "\"attention_chunk_size\":0", "attention_chunk_size: 0 is outside 1 to");
#undef LLAMA4
}

/* A key "name number number ..."; "+name" for a list of whole numbers, "?name" for one of true and false. */
static void arch_key(llm_text *t, const char *family, const char *text) {
    const int list = *text == '+' ? LLM__GGUF_U32 : *text == '?' ? LLM__GGUF_BOOL : 0;
    const char *name = text + (list > 0), *at = strchr(text, ' ');
    char key[96], *end;
    uint64_t count = 0;
    snprintf(key, sizeof key, "%s.%.*s", family, (int)(at - name), name);
    for (const char *p = at; *p; p++) count += *p == ' ';
    if (list) gguf_kv_array(t, key, (uint32_t)list, count);
    for (uint64_t k = 0; k < count; k++, at = end) {
        const uint64_t v = strtoull(at, &end, 10);
        if (list) gguf_u(t, v, list == LLM__GGUF_BOOL ? 1 : 4);
        else gguf_kv(t, key, LLM__GGUF_U32, v, 4);
    }
}

/* A GGUF file of four layers with these keys. */
static llm_result arch_file(const char *family, const char *const *more, int n_more) {
    static const char *const usual[] = {"block_count 4",     "context_length 64",  "embedding_length 64", "vocab_size 512",
                                        "ssm.conv_kernel 4", "ssm.state_size 8",   "ssm.group_count 2",   "ssm.time_step_rank 6",
                                        "ssm.inner_size 60", "shortconv.l_cache 3"};
    llm_text t = gguf_head(3, 0, (uint64_t)(1 + LLM__COUNT(usual) + n_more));
    llm__gguf keys = LLM__ZERO;
    llm__source s = LLM__ZERO;
    gguf_kv_str(&t, "general.architecture", family);
    for (int i = 0; i < LLM__COUNT(usual); i++) arch_key(&t, family, usual[i]);
    for (int i = 0; i < n_more; i++) arch_key(&t, family, more[i]);
    llm_result r = llm__gguf_parse("m", (const uint8_t *)t.data, t.len, &keys, &s.tensors);
    s.path = "m", s.gguf = &keys;
    if (CHECK(!r)) r = llm__arch_read(&s, 1, &arch_read);
    llm__gguf_free(&keys), llm__tensors_free(&s.tensors), llm_text_free(&t);
    return r;
}

/* What layers are by their letters, see arch_mixer; or the words of an error. */
#define ARCH_FILE(family, letters, ...) \
    do { \
        static const char *const more[] = {__VA_ARGS__}; \
        const llm_result r = arch_file(family, more, LLM__COUNT(more)); \
        char found[8] = ""; \
        for (int i = 0; !r && i < arch_read.n_layers && i < 7; i++) found[i] = "AmCDSK6"[arch_read.layer[i].mixer]; \
        if (!CHECK(r ? strstr(llm_last_error(), letters) != NULL : !strcmp(found, letters))) \
            printf("  %s: %s, %s\n", family, found, r ? llm_last_error() : ""); \
    } while (0)

/* The same of GGUF, whose words are others. */
static void arch_file_mixers(void) {
    ARCH_FILE("qwen35", "DDDA", "attention.key_length 16", "attention.head_count 4");
    CHECK(arch_read.state.turns && arch_read.state.dv == 10 && arch_read.state.dk == 8 && arch_read.attn_gate &&
          arch_read.rope[0].dim == 4);
    ARCH_FILE("qwen35", "DADA", "full_attention_interval 2", "attention.head_count 4");
    ARCH_FILE("qwen35moe", "ADDA", "?attention.recurrent_layers 0 1 1 0", "expert_count 4", "expert_used_count 2",
              "attention.head_count 4");
    CHECK(arch_read.shared_gate && arch_read.normalize && arch_read.state.turns);
    ARCH_FILE("qwen3next", "DDDA", "rope.dimension_count 8", "attention.head_count 4");
    CHECK(!arch_read.state.turns && arch_read.rope[0].dim == 8);
    ARCH_FILE("qwen35", "DDDA", "rope.dimension_count 8", "+rope.dimension_sections 2 1 1 0",
              "attention.head_count 4"); /* time, height, width, time */
    CHECK(arch_read.position_rows == 3 && arch_read.rope_row[1] == 1 && arch_read.rope_row[2] == 2 && arch_read.rope_row[3] == 0);
    ARCH_FILE("lfm2", "CACC", "+attention.head_count_kv 0 2 0 0", "attention.head_count 4");
    CHECK(arch_read.layer[1].n_kv_heads == 2 && arch_read.state.taps == 3 && arch_read.state.n_heads == 64);
    ARCH_FILE("lfm2moe", "CACC", "+attention.head_count_kv 0 2 0 0", "expert_count 4", "expert_used_count 2", "leading_dense_block_count 1",
              "attention.head_count 4");
    CHECK(arch_read.score == LLM_ROUTE_SIGMOID && arch_read.normalize && !arch_read.layer[0].moe && arch_read.layer[1].moe);
    ARCH_FILE("granitehybrid", "SASS", "+attention.head_count_kv 0 2 0 0", "attention.head_count 4");
    CHECK(llm__arch_is(&arch_read, "granite") && !arch_read.state.turns && arch_read.state.dv == 10 && arch_read.n_rope == 1);
    ARCH_FILE("granitehybrid", "SASS", "+attention.head_count_kv 0 2 0 0", "expert_count 4", "expert_used_count 2",
              "attention.head_count 4");
    CHECK(llm__arch_is(&arch_read, "granitemoe") && arch_read.layer[0].moe && arch_read.score == LLM_ROUTE_TOPK_SOFTMAX);
    ARCH_FILE("mamba2", "SSSS", "attention.head_count 0", "feed_forward_length 0");
    CHECK(arch_read.layer[0].no_mlp && arch_read.state.n_groups == 2);
    ARCH_FILE("nemotron_h", "ASmA", "+attention.head_count_kv 2 0 0 2", "+feed_forward_length 0 0 96 0", "attention.head_count 4");
    CHECK(arch_read.ff == 96 && !arch_read.layer[2].no_mlp && arch_read.layer[3].no_mlp && arch_read.layer[3].rope < 0);
    ARCH_FILE("nemotron_h_moe", "SAmm", "+attention.head_count_kv 0 2 0 0", "+feed_forward_length 0 0 40 40", "attention.head_count 4",
              "expert_count 4", "expert_used_count 2", "moe_latent_size 32");
    CHECK(arch_read.layer[2].moe && !arch_read.layer[1].moe && arch_read.ff_latent == 32 && arch_read.score == LLM_ROUTE_SIGMOID);
    ARCH_FILE("falcon-h1", "SSSS", "attention.head_count 4", "attention.head_count_kv 2");
    CHECK(arch_read.layer[3].both && arch_read.layer[3].n_kv_heads == 2 && !arch_read.folded && arch_read.state.no_norm &&
          !arch_read.state.norm_first && arch_read.layer[0].rope == 0 && !arch_read.rope_pairs && arch_read.state.dv == 10);
    ARCH_FILE("falcon-h1", "head_count_kv: a whole number is out of range", "attention.head_count 4", "+attention.head_count_kv 2 0 2 2");
    ARCH_FILE("jamba", "6A66", "+attention.head_count_kv 0 2 0 0", "attention.head_count 4", "expert_count 4", "expert_used_count 2");
    CHECK(arch_read.state.n_heads == 60 && arch_read.state.dk == 8 && arch_read.state.rank == 6 && arch_read.state.dv == 1 &&
          arch_read.layer[1].rope < 0 && !arch_read.normalize && !arch_read.layer[1].moe && arch_read.ff_expert == 256);
    ARCH_FILE("mamba", "6666", "attention.head_count 0", "feed_forward_length 0");
    CHECK(arch_read.state.n_heads == 60 && arch_read.state.rank == 6 && arch_read.state.low_norm == LLM_NORM_NONE &&
          arch_read.layer[3].no_mlp);
    ARCH_FILE("jamba", "head_count_kv: a whole number for each layer", "attention.head_count 4", "+attention.head_count_kv 0 2");
    ARCH_FILE("kimi-linear", "KAKK", "+attention.head_count_kv 0 1 0 0", "attention.head_count 4", "kda.head_dim 12",
              "attention.kv_lora_rank 16", "attention.key_length 24", "attention.key_length_mla 20", "attention.value_length_mla 10",
              "rope.dimension_count 8", "expert_count 4", "expert_used_count 2", "leading_dense_block_count 1", "expert_gating_func 2");
    CHECK(arch_read.state.n_heads == 4 && arch_read.state.n_groups == 4 && arch_read.state.dk == 12 && arch_read.state.dv == 12 &&
          arch_read.nope == 12 && arch_read.v_head_dim == 10 && !arch_read.n_rope && arch_read.score == LLM_ROUTE_SIGMOID &&
          arch_read.normalize && !arch_read.layer[0].moe && arch_read.layer[1].moe);
    ARCH_FILE("kimi-linear", "kda.head_dim: missing", "+attention.head_count_kv 0 1 0 0", "attention.head_count 4",
              "attention.kv_lora_rank 16", "attention.key_length_mla 20", "attention.value_length_mla 10", "rope.dimension_count 8");
    ARCH_FILE("llama4", "AAAA", "attention.head_count 4", "expert_count 4", "expert_used_count 1", "interleave_moe_layer_step 2",
              "expert_feed_forward_length 40", "feed_forward_length 96");
    CHECK(arch_read.layer[2].window == 8192 && arch_read.layer[2].rope == 0 && !arch_read.layer[3].window && arch_read.layer[3].rope < 0 &&
          arch_read.rope_pairs && arch_read.qk_norm == LLM_QK_NORM_HEAD_RMS_LAST && arch_read.chunked && arch_read.weigh_input);
    CHECK(arch_read.layer[1].moe && !arch_read.layer[2].moe && arch_read.ff == 96 && arch_read.ff_expert == 40 && !arch_read.normalize &&
          arch_read.score == LLM_ROUTE_SIGMOID && arch_read.logn_from == 8192 && arch_near(arch_read.logn_beta, 0.1));
    ARCH_FILE("llama4", "AAAA", "attention.head_count 4", "expert_count 128", "expert_used_count 1", "attention.sliding_window 0");
    CHECK(!arch_read.qk_norm && !arch_read.layer[0].window && arch_read.layer[3].rope == 0 && arch_read.layer[0].moe);
    ARCH_FILE("llama4", "AAAA", "attention.head_count 4", "attention.sliding_window 24", "?attention.sliding_window_pattern 0 1 1 0",
              "attention.temperature_length 10");
    CHECK(arch_read.layer[0].rope < 0 && arch_read.layer[1].window == 24 && arch_read.layer[1].rope == 0 && !arch_read.layer[3].window &&
          arch_read.logn_from == 10 && !arch_read.n_experts && !arch_read.layer[3].moe);
    ARCH_FILE("llama4", "temperature_length: 0 is outside 1 to", "attention.head_count 4", "attention.temperature_length 0");
    ARCH_FILE("phimoe", "AAAA", "attention.head_count 4", "attention.sliding_window 0", "expert_count 4", "expert_used_count 2");
    CHECK(arch_read.score == LLM_ROUTE_SPARSEMIXER && arch_near(arch_read.near, 0.02) && arch_read.norm == LLM_NORM_LAYER &&
          !arch_read.layer[0].window);
    ARCH_FILE("phimoe", "3 experts a token: phimoe takes 2", "attention.head_count 4", "expert_count 4", "expert_used_count 3");
    ARCH_FILE("lfm2", "layer 1: 0 query heads", "+attention.head_count_kv 0 2 0 0", "+attention.head_count 4 0 4 4");
    ARCH_FILE("lfm2", "head_count_kv: a whole number for each layer", "+attention.head_count_kv 0 2", "attention.head_count 4");
    ARCH_FILE("qwen35", "recurrent_layers: true or false for each layer", "?attention.recurrent_layers 0 1", "attention.head_count 4");
    ARCH_FILE("qwen35", "recurrent_layers: true or false for each layer", "+attention.recurrent_layers 0 1 1 1", "attention.head_count 4");
}

/* Mixtures of experts of 2025 and 2026, by the words of published files. */
static void arch_new_mixtures(void) {
#define EXPERTS "\"max_position_embeddings\":64,\"num_experts\":8,\"n_routed_experts\":8,\"num_experts_per_tok\":2,"
    CHECK(!arch_of(EXPERTS "\"model_type\":\"hy_v3\",\"router_scaling_factor\":2.5"));
    CHECK(!arch_read.layer[0].moe && arch_read.layer[1].moe && arch_near(arch_read.route_scale, 2.5) &&
          arch_read.score == LLM_ROUTE_SIGMOID && arch_read.normalize && arch_near(arch_read.rope[0].inv_freq[1], pow(11158840, -1 / 8.0)));
    CHECK(!arch_of(EXPERTS "\"model_type\":\"afmoe\",\"mup_enabled\":true,\"sliding_window\":8,\"num_dense_layers\":2"));
    CHECK(arch_read.embed_scale == 8 && arch_read.attn_gate == LLM__GATE_APART && arch_read.layer[2].window == 8 &&
          arch_read.layer[3].rope == -1 && !arch_read.layer[1].moe && arch_read.layer[2].moe);
#define MIMO EXPERTS "\"model_type\":\"mimo_v2_flash\",\"head_dim\":24,\"sliding_window\":8,"
    CHECK(!arch_of(MIMO "\"sliding_window_size\":8,\"hybrid_layer_pattern\":[0,1,1,0],\"moe_layer_freq\":[0,1,0,1],"
                        "\"swa_num_key_value_heads\":4,\"v_head_dim\":12,\"attention_value_scale\":0.5"));
    for (int i = 0; i < 4; i++) {
        const llm__arch_layer *l = &arch_read.layer[i];
        const int near = i == 1 || i == 2;
        CHECK(l->window == 9 * near && l->rope == near && l->sinks == near && l->n_kv_heads == 2 + 2 * near && l->moe == i % 2);
    }
    CHECK(arch_read.rope[0].dim == 8 && arch_read.v_head_dim == 12 && arch_read.attn_out_scale == 0.5f);
    CHECK(!arch_of(MIMO "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]"));
    CHECK(arch_read.layer[0].window == 8 && !arch_read.layer[1].window && arch_read.layer[0].n_kv_heads == 4);
    arch_refused(MIMO "\"swa_head_dim\":16", "swa_head_dim: 16, as many as other layers have (24)");
    arch_refused(MIMO "\"hybrid_layer_pattern\":[0,1]", "hybrid_layer_pattern: 0 or 1 for each layer");
    arch_refused(MIMO "\"moe_layer_freq\":[0,1]", "moe_layer_freq: 1 or \"sparse\", 0 or \"dense\" for each layer");
    arch_refused(MIMO "\"moe_layer_freq\":[0,1,true,1]", "moe_layer_freq: 1 or \"sparse\", 0 or \"dense\" for each layer");
    arch_refused(MIMO "\"mlp_layer_types\":[\"dense\",\"sparse\",\"moe\",\"dense\"]", "mlp_layer_types: 1 or \"sparse\"");
    arch_refused(MIMO "\"mlp_layer_types\":[]", "mlp_layer_types: 1 or \"sparse\"");
    arch_refused(MIMO "\"attention_value_scale\":0", "attention_value_scale: 0 is outside 1e-06 to");
#define COHERE EXPERTS "\"model_type\":\"cohere2_moe\",\"sliding_window\":8,\"num_shared_experts\":2,"
    CHECK(!arch_of(COHERE "\"first_k_dense_replace\":1,\"sliding_window_pattern\":3,\"prefix_dense_intermediate_size\":40"));
    for (int i = 0; i < 4; i++)
        CHECK(arch_read.layer[i].window == (i % 3 ? 8 : 0) && arch_read.layer[i].rope == (i == 3 ? -1 : 0) && arch_read.layer[i].ff == 40);
    CHECK(arch_read.route_scale == 0.5f && arch_read.shared_scale == 0.5f && arch_read.ff_shared == 192 && arch_read.norm == LLM_NORM_RMS &&
          arch_read.score == LLM_ROUTE_TOPK_SOFTMAX);
    llm_json *j =
        arch_json("{\"layer_norm_eps\":1e-5,\"prefix_dense_intermediate_size\":24}"); /* without rms_norm_eps, which arch_of says */
    llm__facts f = arch_facts(j);
    arch_read.flags |= LLM__LAYER_NORM;
    llm__arch_mixtures_shapes(&f, &arch_read);
    CHECK(!f.r && arch_read.flags & LLM__LAYER_NORM && arch_read.ff == 24);
    llm_json_free(j);
    arch_refused(COHERE "\"shared_expert_combination_strategy\":\"first\"", "\"first\", average or sum expected");
    CHECK(!arch_of(COHERE "\"mlp_layer_types\":[\"dense\",\"dense\",\"sparse\",\"sparse\"]")); /* which moves no window */
    for (int i = 0; i < 4; i++) CHECK(arch_read.layer[i].window == (i == 3 ? 0 : 8) && arch_read.layer[i].moe == (i > 1));
    arch_refused(COHERE "\"expert_selection_fn\":\"top\"", "expert_selection_fn: \"top\", softmax or sigmoid expected");
    ARCH_FILE("mimo2", "AAAA", "attention.head_count 4", "+attention.head_count_kv 1 2 2 1", "attention.sliding_window 8",
              "+attention.sliding_window_pattern 0 1 1 0", "expert_count 4", "expert_used_count 2", "attention.value_scale 2",
              "attention.key_length 16", "attention.value_length 8", "rope.dimension_count 8");
    CHECK(arch_read.layer[1].window == 8 && arch_read.layer[1].n_kv_heads == 2 && arch_read.layer[3].n_kv_heads == 1 &&
          arch_read.v_head_dim == 8 && arch_read.attn_out_scale == 2 && !arch_read.layer[1].sinks);
#undef EXPERTS
#undef MIMO
#undef COHERE
}

/* Families of known parts in another arrangement: what their classes have whatever a config says, and what is refused. */
static void arch_arranged(void) {
    CHECK(!arch_of(
        "\"max_position_embeddings\":64,\"model_type\":\"hunyuan_v1_moe\",\"num_experts\":8,\"moe_topk\":[2,2],\"norm_topk_prob\":false,"
        "\"moe_intermediate_size\":[9,9],\"intermediate_size\":40,\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":1000,\"factor\":1}"));
    CHECK(arch_read.ff_expert == 40 && arch_read.ff_shared == 40 && arch_read.n_used == 2 && arch_read.normalize && !arch_read.dynamic &&
          arch_read.qk_norm == LLM_QK_NORM_HEAD_RMS_LAST);
    CHECK(arch_near(arch_read.rope[0].inv_freq[1], pow(1e4 * pow(1000, 16 / 14.0), -1 / 8.0)));
    CHECK(!arch_of("\"max_position_embeddings\":64,\"model_type\":\"minimax_m2\",\"num_local_experts\":8,\"num_experts_per_tok\":2,"
                   "\"use_qk_norm\":true,\"shared_intermediate_size\":5,\"rotary_dim\":8"));
    CHECK(arch_read.qk_norm == LLM_QK_NORM_WHOLE_RMS && arch_read.ff_shared == 0 && arch_read.rope[0].dim == 8 &&
          arch_read.score == LLM_ROUTE_SIGMOID);
    CHECK(!arch_of(
        "\"max_position_embeddings\":64,\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,\"shared_intermediate_size\":48,"
        "\"layer_types\":[\"attention\",\"attention\",\"full_attention\",\"attention\"]"));
    CHECK(arch_read.ff == 48 && llm__arch_is(&arch_read, "granite") && !arch_read.n_rope && arch_read.layer[3].rope < 0);
    arch_mixers();
    arch_llama4();
    arch_new_mixtures();
    arch_file_mixers();
    CHECK(!arch_of("\"max_position_embeddings\":64,\"model_type\":\"phimoe\",\"num_local_experts\":8,\"num_experts_per_tok\":2"));
    CHECK(arch_read.score == LLM_ROUTE_SPARSEMIXER && arch_read.near == 0.02f && !arch_read.normalize);
    CHECK(!arch_of("\"max_position_embeddings\":64,\"model_type\":\"apertus\",\"hidden_act\":\"xielu\",\"rope_theta\":100"));
    CHECK(arch_near(arch_read.layer[3].xielu[0], 0.8) && arch_near(arch_read.layer[3].xielu[1], 0.8));
    CHECK(arch_near(arch_read.rope[0].inv_freq[7], arch_plain(1.2e7, 7) / 8)); /* nothing is said of RoPE: its class's scheme */
    arch_refused(
        "\"max_position_embeddings\":64,\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,\"layer_types\":[\"attention\",\"mamba\"]",
        "mamba_n_heads: missing");
    arch_refused("\"max_position_embeddings\":64,\"model_type\":\"lfm2\",\"layer_types\":[\"conv\",\"mamba\"]",
                 "entry 1 is \"mamba\", conv or full_attention expected");
    arch_refused("\"max_position_embeddings\":64,\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"MM\"",
                 "a letter of M, *, - and E");
    arch_refused("\"max_position_embeddings\":64,\"model_type\":\"qwen3_5_text\",\"linear_num_value_heads\":6,\"linear_num_key_heads\":4,"
                 "\"linear_key_head_dim\":8,\"linear_value_head_dim\":8",
                 "6 heads of state cannot share 4 groups evenly");
    arch_refused(
        "\"max_position_embeddings\":64,\"model_type\":\"mamba2\",\"num_heads\":8,\"head_dim\":16,\"state_size\":8,\"hidden_act\":\"gelu\"",
        "hidden_act: \"gelu\", recurrent layers have silu");
    arch_refused("\"max_position_embeddings\":64,\"model_type\":\"hunyuan_v1_moe\",\"num_experts\":8,\"moe_topk\":[2,3]",
                 "moe_topk: the same whole number for all layers");
    arch_refused("\"max_position_embeddings\":64,\"model_type\":\"hunyuan_v1_dense\",\"use_cla\":true", "use_cla: true is not supported");
    arch_refused("\"max_position_embeddings\":64,\"model_type\":\"minimax_m2\",\"sliding_window\":8", "minimax_m2 has no window");
    arch_refused("\"max_position_embeddings\":64,\"architectures\":[\"BitnetForCausalLM\"]", "yet to be rounded to -1, 0 and 1");
    arch_refused("\"max_position_embeddings\":64,\"model_type\":\"phimoe\",\"num_local_experts\":8,\"num_experts_per_tok\":3",
                 "3 experts a token");
    CHECK(!arch_of(
        "\"max_position_embeddings\":64,\"model_type\":\"bailing_moe\",\"architectures\":[\"BailingMoeV2ForCausalLM\"],\"num_experts\":8,"
        "\"num_experts_per_tok\":2,\"moe_intermediate_size\":24,\"num_shared_experts\":2,\"moe_shared_expert_intermediate_size\":20,"
        "\"n_group\":4,\"topk_group\":2"));
    CHECK(llm__arch_is(&arch_read, "bailing_moe_v2") && arch_read.score == LLM_ROUTE_SIGMOID && arch_read.ff_shared == 40 &&
          arch_read.qk_norm == LLM_QK_NORM_HEAD_RMS && arch_read.rope[0].dim == 8 && arch_read.n_group == 4 && !arch_read.head_norm);
    CHECK(!arch_of(
        "\"max_position_embeddings\":64,\"model_type\":\"bailing_moe\",\"num_experts\":8,\"num_experts_per_tok\":2,\"norm_head\":true"));
    CHECK(llm__arch_is(&arch_read, "bailing_moe") && arch_read.head_norm && arch_read.normalize && arch_read.score == LLM_ROUTE_SOFTMAX);
    CHECK(!arch_of("\"max_position_embeddings\":64,\"model_type\":\"deepseek\",\"n_routed_experts\":8,\"num_experts_per_tok\":2,"
                   "\"first_k_dense_replace\":1,\"moe_layer_freq\":2"));
    CHECK(!arch_read.normalize && !arch_read.layer[0].moe && !arch_read.layer[1].moe && arch_read.layer[2].moe && !arch_read.layer[3].moe);
    arch_refused("\"max_position_embeddings\":64,\"hidden_act\":\"xielu\"", "hidden_act: \"xielu\" is not supported");
}

/* Indexers: shapes, which way they turn, and what is refused of them. */
static void arch_indexer(void) {
#define ARCH_V32(name) \
    "\"max_position_embeddings\":64,\"model_type\":\"" name "\",\"q_lora_rank\":24,\"kv_lora_rank\":16,\"qk_rope_head_dim\":8," \
    "\"qk_nope_head_dim\":10,\"v_head_dim\":6,\"first_k_dense_replace\":4"
    CHECK(!arch_of(ARCH_V32("deepseek_v32") ",\"index_topk\":40,\"index_n_heads\":3,\"index_head_dim\":12") && arch_read.max_len == 64 &&
          arch_read.index_topk == 40 && arch_read.index_heads == 3 && arch_read.index_dim == 12 && !arch_read.index_pairs);
    CHECK(!arch_of(ARCH_V32("deepseek_v32")) && arch_read.index_topk == 2048 && arch_read.index_heads == 64 && arch_read.index_dim == 128);
    CHECK(!arch_of(ARCH_V32("glm_moe_dsa") ",\"layer_types\":[\"indexed_attention\",\"indexed_attention\",\"indexed_attention\","
                                           "\"indexed_attention\"],\"indexer_types\":[\"full\",\"full\",\"full\",\"full\"]") &&
          arch_read.index_pairs && !arch_read.layer[1].window);
    CHECK(!arch_of(ARCH_V32("deepseek_v32") ",\"layer_types\":[\"deepseek_sparse_attention\",\"indexed_attention\",\"indexed_attention\","
                                            "\"indexed_attention\"]"));
    CHECK(!arch_of(ARCH_V32("deepseek_v3")) && !arch_read.index_topk);
    static const char *const refused[][2] = {
        {ARCH_V32("deepseek_v32") ",\"index_head_dim\":6", "index_head_dim: 6, must be at least qk_rope_head_dim (8)"},
        {ARCH_V32("deepseek_v32") ",\"index_topk\":0", "index_topk"},
        {ARCH_V32("glm_moe_dsa") ",\"indexer_types\":[\"full\",\"shared\",\"full\",\"full\"]", "layers that share an indexer"},
        {ARCH_V32("glm_moe_dsa") ",\"index_topk_freq\":4", "layers that share an indexer"},
        {ARCH_V32("glm_moe_dsa") ",\"index_topk_pattern\":\"FSFS\"", "layers that share an indexer"},
        {ARCH_V32("deepseek_v3") ",\"layer_types\":[\"indexed_attention\"]", "sliding_attention or full_attention expected"},
        {"\"model_type\":\"deepseek_v32\",\"kv_lora_rank\":16,\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":10,\"v_head_dim\":6",
         "q_lora_rank: an indexer needs it"},
    };
    for (int i = 0; i < LLM__COUNT(refused); i++)
        if (!CHECK(arch_of(refused[i][0]) && strstr(llm_last_error(), refused[i][1])))
            printf("  %s: %s\n", refused[i][1], llm_last_error());
}

static void arch_layers(void) {
    CHECK(!arch_of(
        "\"max_position_embeddings\":64,\"model_type\":\"gemma2\",\"sliding_window\":16,\"head_dim\":32,\"query_pre_attn_scalar\":64,"
        "\"attn_logit_softcapping\":50,\"final_logit_softcapping\":30"));
    for (int i = 0; i < 4; i++)
        CHECK(arch_read.layer[i].window == (i % 2 ? 0 : 16) && arch_read.layer[i].rope == 0 && !arch_read.layer[i].moe);
    CHECK(arch_read.head_dim == 32 && arch_read.attn_scale == 0.125f && arch_read.embed_scale == 8 && arch_read.attn_softcap == 50 &&
          arch_read.logit_softcap == 30);
    CHECK(llm__arch_is(&arch_read, "gemma2") && llm__arch_is(&arch_read, "llama gemma2") && !llm__arch_is(&arch_read, "gemma llama"));
    CHECK(!arch_of(
        "\"max_position_embeddings\":64,\"model_type\":\"gemma3_text\",\"sliding_window\":16,\"rope_theta\":1e6,\"sliding_window_pattern\":3"));
    for (int i = 0; i < 4; i++)
        CHECK(arch_read.layer[i].window == (i % 3 == 2 ? 0 : 16) && arch_read.layer[i].rope == (i % 3 == 2 ? 0 : 1));
    CHECK(arch_read.n_rope == 2 && arch_near(arch_read.rope[0].inv_freq[1], pow(1e6, -1 / 8.0)) &&
          arch_near(arch_read.rope[1].inv_freq[1], pow(1e4, -1 / 8.0)));
    /* widths of latent attention are its own: heads need not share the hidden size evenly */
    CHECK(!arch_of("\"max_position_embeddings\":64,\"model_type\":\"deepseek_v3\",\"num_attention_heads\":7,\"kv_lora_rank\":16,"
                   "\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":10,\"v_head_dim\":6,\"first_k_dense_replace\":4") &&
          arch_read.head_dim == 18 && arch_read.v_head_dim == 6);
    CHECK(arch_of("\"max_position_embeddings\":64,\"model_type\":\"deepseek_v3\",\"num_attention_heads\":7,\"kv_lora_rank\":16,"
                  "\"qk_rope_head_dim\":16") &&
          strstr(llm_last_error(), "qk_nope_head_dim: missing"));
    arch_indexer();
    arch_arranged();
    CHECK(!arch_of("\"max_position_embeddings\":64,\"model_type\":\"exaone4\",\"sliding_window\":16,\"sliding_window_pattern\":\"LG\""));
    for (int i = 0; i < 4; i++) /* the last one sees everything whatever its letter says */
        CHECK(arch_read.layer[i].window == (i % 2 ? 0 : 16) && arch_read.layer[i].rope == (i % 2 ? -1 : 0));
    CHECK(!arch_of("\"max_position_embeddings\":64,\"model_type\":\"exaone4\",\"sliding_window\":16,\"sliding_window_pattern\":\"L\""));
    for (int i = 0; i < 4; i++) CHECK(arch_read.layer[i].window == (i == 3 ? 0 : 16));
    CHECK(arch_of("\"max_position_embeddings\":64,\"model_type\":\"exaone4\",\"sliding_window\":16,\"sliding_window_pattern\":\"LxG\"") ==
              LLM_ERR_FORMAT &&
          strstr(llm_last_error(), "letters L and G"));
    CHECK(!arch_of(
        "\"max_position_embeddings\":64,\"model_type\":\"qwen2_moe\",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":24,"
        "\"shared_expert_intermediate_size\":40,\"decoder_sparse_step\":2,\"norm_topk_prob\":true"));
    for (int i = 0; i < 4; i++) CHECK(arch_read.layer[i].moe == i % 2);
    CHECK(arch_read.n_experts == 8 && arch_read.n_used == 2 && arch_read.ff_expert == 24 && arch_read.ff_shared == 40 &&
          arch_read.shared_gate && arch_read.normalize);
    CHECK(!arch_of(
        "\"max_position_embeddings\":64,\"model_type\":\"bloom\",\"n_head\":4,\"num_attention_heads\":4,\"layer_norm_epsilon\":1e-5"));
    for (int h = 0; h < 4; h++) CHECK(arch_near(arch_read.alibi[h], pow(2, -2.0 * (h + 1)))); /* 8 / 4 heads */
    CHECK(arch_read.rope[0].dim == 0 && arch_read.n_rope == 0);
}

/* What layers of Gemma 4 differ in as transformers saves it: numbers of layers, and what each has otherwise. */
static void arch_gemma4_apart(void) {
#define APART(object) \
    "\"model_type\":\"gemma4_text\",\"head_dim\":16,\"sliding_window\":8,\"hidden_size_per_layer_input\":4,\"attention_k_eq_v\":true," \
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"],\"per_layer_config\":" object
    const llm__arch_layer *l = arch_read.layer;
    CHECK(!arch_of(APART("{\"01\":{\"head_dim\":32,\"num_key_value_heads\":1},\"3\":{\"num_key_value_heads\":1,\"head_dim\":32}}")));
    CHECK(l[0].head_dim == 16 && l[1].head_dim == 32 && l[3].v_head_dim == 32 && arch_read.rope[0].dim == 32 &&
          arch_read.rope[1].dim == 16);
    CHECK(l[0].n_kv_heads == 2 && l[1].n_kv_heads == 1 && l[3].n_kv_heads == 1 && l[1].k_is_v && !l[2].k_is_v);
    CHECK(!arch_of(APART("{}")) && l[1].head_dim == 16 && l[1].n_kv_heads == 2); /* not 512 */
    static const char *const refused[][2] = {
        {APART("{\"1\":{\"head_dim\":32}}"), "layer 3 has 2 key heads of 16 values, 2 of 32 as others of its kind expected"},
        {APART("{\"0\":{\"head_dim\":32},\"1\":{\"head_dim\":32},\"3\":{\"head_dim\":32}}"), "layer 0 has 2 key heads of 32 values"},
        {APART("{\"1\":{\"head_dim\":0}}"), "head_dim: 0 is outside 1 to"},
        {APART("{\"4\":{\"head_dim\":32}}"), "per_layer_config: numbers of layers, each with head_dim or"},
        {APART("{\"1\":{\"intermediate_size\":32}}"), "per_layer_config: numbers of layers, each with head_dim or"},
        {APART("[{\"head_dim\":32}]"), "per_layer_config: numbers of layers, each with head_dim or"},
        {"\"per_layer_config\":{\"1\":{\"head_dim\":32}}", "per_layer_config: layers of llama that differ by it"},
    };
    for (int i = 0; i < LLM__COUNT(refused); i++) arch_refused(refused[i][0], refused[i][1]);
#undef APART
}

/* Gemma 4: shapes by layer, who reads whose keys, and how much of a head turns. Other families are not touched. */
static void arch_gemma4(void) {
    static const char config[] =
        "\"model_type\":\"gemma4_text\",\"head_dim\":16,\"global_head_dim\":32,\"sliding_window\":8,\"hidden_size_per_layer_input\":4,"
        "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"sliding_attention\"]";
    const llm__arch_layer *l = arch_read.layer;
    char more[800];
    snprintf(more, sizeof more, "%s,\"num_kv_shared_layers\":2,\"use_double_wide_mlp\":true", config);
    if (!CHECK(!arch_of(more))) printf("  %s\n", llm_last_error());
    CHECK(l[0].head_dim == 16 && l[1].head_dim == 32 && l[1].v_head_dim == 32 && l[0].n_kv_heads == 2 && l[1].n_kv_heads == 2);
    CHECK(l[0].kv_of == 0 && l[1].kv_of == 1 && l[2].kv_of == 0 && l[3].kv_of == 1 && l[0].kv_shared && l[1].kv_shared);
    CHECK(l[0].window == 8 && !l[1].window && !l[3].window && l[3].rope == 0 && l[2].rope == 1 && l[1].ff == 96 && l[2].ff == 192);
    CHECK(arch_read.rope[0].dim == 32 && arch_read.rope[1].dim == 16 && arch_read.attn_scale == 1 && arch_read.per_layer == 4);
    for (int i = 0; i < 16; i++)
        CHECK(i < 4 ? arch_near((double)arch_read.rope[0].inv_freq[i], pow(1e6, -i / 16.0)) : arch_read.rope[0].inv_freq[i] == 0);
    snprintf(more, sizeof more, "%s,\"attention_k_eq_v\":true,\"num_global_key_value_heads\":1", config);
    CHECK(!arch_of(more) && l[1].k_is_v && l[1].n_kv_heads == 1 && !l[0].k_is_v && l[0].n_kv_heads == 2 && l[3].kv_of == 3);
    arch_gemma4_apart();
    snprintf(more, sizeof more, "%s,\"num_kv_shared_layers\":3", config);
    arch_refused(more, "layer 1 has no keys of its own");
    snprintf(more, sizeof more, "%s,\"use_bidirectional_attention\":\"all\"", config);
    arch_refused(more, "use_bidirectional_attention");
    snprintf(more, sizeof more, "%s,\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3", config);
    arch_refused(more, "4 query heads cannot share 3 key heads evenly");
    if (CHECK(!arch_of(""))) {
        llm__facts f = LLM__ZERO;
        llm__arch_gemma4_shapes(&f, &arch_read, NULL);
        CHECK(!arch_read.v_norm && !arch_read.full_head_dim && arch_read.layer[3].kv_of == 3 && !arch_read.layer[3].kv_shared);
    }
}

/* Gemma 3n: streams, widths and sparse MLPs by layer, defaults of transformers and of llama.cpp, values that do not fit. */
static void arch_gemma3n(void) {
#define GEMMA3N \
    "\"model_type\":\"gemma3n_text\",\"head_dim\":16,\"sliding_window\":8,\"hidden_size_per_layer_input\":4,\"hidden_activation\":\"gelu_pytorch_tanh\""
    const llm__arch_layer *l = arch_read.layer;
    if (!CHECK(!arch_of(GEMMA3N ",\"altup_num_inputs\":3,\"altup_active_idx\":2,\"altup_correct_scale\":false,\"laurel_rank\":5,"
                                "\"vocab_size_per_layer_input\":100,\"intermediate_size\":[96,32,64,48],\"rope_local_base_freq\":5e3,"
                                "\"activation_sparsity_pattern\":[0.5,0.95,0,0.1],\"num_kv_shared_layers\":2,\"layer_types\":["
                                "\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\"]")))
        printf("  %s\n", llm_last_error());
    CHECK(arch_read.n_streams == 3 && arch_read.active_stream == 2 && !arch_read.stream_scale && arch_read.laurel_rank == 5);
    CHECK(arch_read.per_layer == 4 && arch_read.per_layer_rows == 100 && arch_read.v_norm && arch_read.attn_scale == 1);
    CHECK(arch_read.logit_softcap == 30 && arch_read.embed_scale == 8 && arch_read.rope[1].base == 5e3 && arch_read.rope[0].base == 1e6);
    CHECK(arch_read.ff == 96 && l[0].ff == 96 && l[1].ff == 32 && l[2].ff == 64 && l[3].ff == 48);
    CHECK(l[0].sparse && l[1].sparse && !l[2].sparse && l[3].sparse && fabs((double)l[0].cut) < 1e-7);
    CHECK(arch_near((double)l[1].cut, 1.6448536269514722) && arch_near((double)l[3].cut, -1.2815515655446004));
    CHECK(l[2].kv_of == 0 && l[3].kv_of == 1 && l[0].kv_shared && l[1].window == 8 && l[3].rope == 1 && !l[2].window && l[2].rope == 0);
    CHECK(!arch_of(GEMMA3N ",\"intermediate_size\":96"));
    CHECK(arch_read.n_streams == 4 && !arch_read.active_stream && arch_read.stream_scale && arch_read.laurel_rank == 64);
    CHECK(arch_read.per_layer_rows == arch_read.vocab && !l[0].sparse && l[3].window == 8 && l[3].kv_of == 3 && l[2].ff == 96);
    CHECK(!arch_of(GEMMA3N ",\"num_hidden_layers\":20,\"intermediate_size\":96"));
    for (int i = 0; i < 20; i++)
        CHECK(l[i].sparse == (i < 10) && l[i].window == (i % 5 == 4 ? 0 : 8) && l[i].kv_of == (i < 5 ? i : i % 5 == 4 ? 4 : 3));
    arch_refused(GEMMA3N ",\"intermediate_size\":[96,32]", "intermediate_size: one value for each layer expected");
    arch_refused(GEMMA3N ",\"intermediate_size\":[96,0,1,1]", "intermediate_size: 0 is outside 1 to");
    arch_refused(GEMMA3N ",\"activation_sparsity_pattern\":[0.5]", "activation_sparsity_pattern: one value for each layer expected");
    arch_refused(GEMMA3N ",\"activation_sparsity_pattern\":[0.5,1,0,0]", "shares from 0 to less than 1 expected");
    arch_refused(GEMMA3N ",\"activation_sparsity_pattern\":[0.5,\"1\",0,0]", "shares from 0 to less than 1 expected");
    arch_refused(GEMMA3N ",\"altup_active_idx\":4", "altup_active_idx: 4 is outside 0 to 3");
    arch_refused(GEMMA3N ",\"altup_num_inputs\":17", "altup_num_inputs: 17 is outside 1 to 16");
    arch_refused("\"model_type\":\"gemma3n_text\",\"hidden_size_per_layer_input\":0", "hidden_size_per_layer_input: 0 is outside 1 to");
    arch_refused("\"model_type\":\"gemma3n_text\",\"hidden_activation\":\"relu\",\"activation_sparsity_pattern\":[0.5,0,0,0]",
                 "gelu_pytorch_tanh, gelu or silu");
    ARCH_FILE("gemma3n", "AAAA", "attention.key_length 16", "attention.head_count 4", "attention.sliding_window 8");
    CHECK(arch_read.n_streams == 4 && arch_read.per_layer == 256 && l[0].sparse && l[3].sparse && l[3].kv_of == 3 && l[3].window == 8);
    CHECK(arch_near((double)l[3].cut, 1.6448536269514722) && arch_read.logit_softcap == 30);
    ARCH_FILE("gemma3n", "AAAA", "attention.key_length 16", "attention.head_count 4", "attention.sliding_window 8", "altup.num_inputs 2",
              "altup.active_idx 1", "attention.shared_kv_layers 1", "+activation_sparsity_scale 1 0 2 1", "+feed_forward_length 8 16 24 32",
              "?attention.sliding_window_pattern 0 1 1 0");
    CHECK(arch_read.n_streams == 2 && arch_read.active_stream == 1 && l[1].sparse && l[2].cut == 2 && l[3].kv_of == 0 && l[2].ff == 24);
    ARCH_FILE("gemma3n", "activation_sparsity_scale: one number a layer", "attention.head_count 4", "+activation_sparsity_scale 1 0");
    if (CHECK(!arch_of(""))) { /* no other family is touched */
        llm__facts f = LLM__ZERO;
        llm__arch_gemma3n_shapes(&f, &arch_read, NULL);
        llm__arch_gemma3n(&f, &arch_read);
        CHECK(!arch_read.n_streams && !arch_read.v_norm && !arch_read.per_layer && !f.r);
    }
    ARCH_FILE("gemma3n", "numbers below 100", "attention.head_count 4", "+activation_sparsity_scale 1 0 100 1");
#undef GEMMA3N
}

/* Numbers of classes where a config says nothing of them; a null is no silence. */
static void arch_silent(void) {
#define SILENT(name) \
    "\"max_position_embeddings\":64,\"num_experts\":8,\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":24," \
    "\"model_type\":\"" name "\""
#define SLIDING ",\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]"
    static const struct {
        const char *members;
        int32_t window, shared, dense;
        double times;
    } rows[] = {{SILENT("afmoe") SLIDING, 1024, 48, 1, 1},
                {SILENT("exaone_moe") SLIDING, 4096, 24, 1, 2.5},
                {SILENT("hy_v3"), 0, 24, 1, 2.826},
                {SILENT("sarvam_moe"), 0, 24, 1, 2.5},
                {SILENT("solar_open"), 0, 24, 0, 1},
                {SILENT("flint") SLIDING, 513, 1024, 0, 1},
                {SILENT("mellum") SLIDING, 1024, 0, 0, 1},
                {SILENT("mimo_v2_flash") ",\"head_dim\":24" SLIDING, 129, 0, 1, 1},
                {SILENT("granite_swa") SLIDING, 128, 0, 0, 1},
                {SILENT("afmoe") ",\"num_shared_experts\":0" SLIDING, 1024, 0, 1, 1}};
    const llm__arch_layer *l = arch_read.layer;
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        const int read = !arch_of(rows[i].members);
        if (!CHECK(read && l[0].window == rows[i].window && arch_read.ff_shared == rows[i].shared && l[0].moe == !rows[i].dense &&
                   l[1].moe && arch_near((double)arch_read.route_scale, (double)(float)rows[i].times)))
            printf("  %s: %s\n", rows[i].members, read ? "read otherwise" : llm_last_error());
    }
    CHECK(!arch_of(SILENT("mimo_v2_flash") ",\"head_dim\":24") && arch_read.attn_out_scale == 0.707f);
    CHECK(!arch_of(SILENT("mimo_v2_flash") ",\"head_dim\":24,\"attention_value_scale\":null") && arch_read.attn_out_scale == 1);
    CHECK(!arch_of(SILENT("exaone_moe")) && arch_read.rope[0].base == 1e4);
    CHECK(!arch_of(SILENT("mellum") SLIDING) && arch_read.rope[0].base == 5e5 && arch_read.rope[1].base == 1e4 && l[0].rope == 1);
    CHECK(!arch_of("\"max_position_embeddings\":64,\"model_type\":\"lfm3\"" SLIDING));
    CHECK(l[0].window == 256 && l[0].rope == 1 && arch_read.rope[1].base == 1e4 && arch_read.rope[0].base == 1e6 &&
          arch_read.rope[0].inv_freq[3] > 0 && arch_read.rope[0].inv_freq[4] == 0 && arch_read.rope[1].inv_freq[7] > 0);
    arch_refused(SILENT("afmoe") ",\"sliding_window\":null" SLIDING, "sliding_window: missing, but layer_types has sliding_attention in");
    arch_refused(SILENT("granite_swa") ",\"sliding_window\":0" SLIDING, "sliding_window: missing, but layer_types has sliding_attention");
    arch_refused("\"sliding_window\":null,\"model_type\":\"lfm3\"" SLIDING, "sliding_window: missing, but layer_types has");
    CHECK(!arch_of(SILENT("qwen3_moe") ",\"use_sliding_window\":false" SLIDING) && !l[0].window);
    arch_refused("\"partial_rotary_factor\":0.01", "RoPE turns 0 of 16 values of a head, an even number from 2 to all");
    arch_refused("\"model_type\":\"gptj\"", "RoPE turns 64 of 16 values of a head");
    arch_refused("\"model_type\":\"electra\",\"embedding_size\":64,\"type_vocab_size\":0", "type_vocab_size: 0 is outside 1 to");
    llm__source s = LLM__ZERO;
    s.path = "m", s.config = arch_json("{\"model_type\":\"helium\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
                                       "\"vocab_size\":512}");
    CHECK(!llm__arch_read(&s, 1, &arch_read) && arch_read.eps == 1e-8f);
    llm_json_free(s.config);
    arch_refused("\"head_dim\":1024", "RoPE turns 1024 of 1024 values of a head, an even number from 2 to all, 512 at most");
    arch_refused(SILENT("mistral4") ",\"kv_lora_rank\":16,\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":10,\"v_head_dim\":6",
                 "rope_parameters: missing");
    ARCH_FILE("afmoe", "values of 8 beside keys of 16, as many expected", "attention.head_count 4", "attention.key_length 16",
              "attention.value_length 8");
    ARCH_FILE("qwen35", "values of 24 beside keys of 16, as many expected", "attention.head_count 4", "attention.key_length 16",
              "attention.value_length 24");
#undef SILENT
#undef SLIDING
}

/* Windows, bases and habits that families say in words of their own. */
static void arch_windows(void) {
#define SWASH "\"model_type\":\"granite_swa\",\"sliding_window\":16,"
    const llm__arch_layer *l = arch_read.layer;
    CHECK(!arch_of(SWASH "\"rope_theta\":500"));
    for (int i = 0; i < 4; i++) CHECK(l[i].window == (i ? 16 : 0) && l[i].rope == 0);
    CHECK(arch_read.layer[0].sinks && arch_read.attn_scale == 1 && arch_read.n_rope == 1 && arch_read.rope[0].base == 500);
    CHECK(!arch_of(SWASH "\"attention_multiplier\":0.5,\"layer_rope_theta\":[0,1e3,1e5,1e3],\"layer_types\":[\"sliding_attention\","
                         "\"sliding_attention\",\"full_attention\",\"full_attention\"]"));
    CHECK(l[0].rope == -1 && l[1].rope == 0 && l[2].rope == 1 && l[3].rope == 0 && l[0].window == 16 && !l[2].window);
    CHECK(arch_read.n_rope == 2 && arch_read.rope[1].dim == 16 && arch_read.attn_scale == 0.5f);
    CHECK(arch_near((double)arch_read.rope[0].inv_freq[1], pow(1e3, -1 / 8.0)) &&
          arch_near((double)arch_read.rope[1].inv_freq[1], pow(1e5, -1 / 8.0)));
    CHECK(!arch_of(SWASH "\"layer_rope_theta\":[0,0,0,0]") && !arch_read.n_rope && !arch_read.rope[0].dim && l[3].rope == -1);
    arch_refused(SWASH "\"layer_rope_theta\":[1e3,1e4,1e5,0]", "layer_rope_theta: a base, or 0, for each layer, of which two may differ");
    arch_refused(SWASH "\"layer_rope_theta\":[1e3]", "layer_rope_theta: a base, or 0, for each layer");
    arch_refused(SWASH "\"layer_rope_theta\":[1e3,0.5,1e3,1e3]", "layer_rope_theta: a base, or 0, for each layer");
    arch_refused(SWASH "\"layer_rope_theta\":[1e3,0,0,0],\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}",
                 "\"linear\" beside layer_rope_theta");
    ARCH_FILE("granite_swa", "AAAA", "attention.head_count 4", "attention.sliding_window 8", "?attention.sliding_window_pattern 0 1 1 0",
              "?attention.rope_pattern 1 0 1 0", "attention.scale 2", "logit_scale 4");
    CHECK(!l[0].window && l[1].window == 8 && l[0].rope == 0 && l[1].rope == -1 && l[3].rope == -1 && arch_read.logit_scale == 0.25f);
    ARCH_FILE("granite_swa", "attention.rope_pattern: true or false for each layer", "attention.head_count 4",
              "?attention.rope_pattern 1 0");
#undef SWASH
#define NEO "\"model_type\":\"gpt_neo\",\"num_heads\":4,\"window_size\":16"
    CHECK(!arch_of(NEO) && l[0].window == 0 && l[1].window == 16 && l[2].window == 0 && l[3].window == 16);
    CHECK(!arch_read.qkv_bias && arch_read.o_bias && arch_read.mlp_bias && arch_read.attn_scale == 1 && !arch_read.n_rope);
    CHECK(!arch_of(NEO ",\"attention_types\":[[[\"local\"],2],[[\"global\",\"local\"],1]]"));
    CHECK(l[0].window == 16 && l[1].window == 16 && l[2].window == 0 && l[3].window == 16);
    CHECK(!arch_of(NEO ",\"attention_types\":[[[\"local\"],4]],\"attention_layers\":[\"local\",\"local\",\"global\",\"local\"]"));
    CHECK(l[0].window == 16 && l[1].window == 16 && l[2].window == 0 && l[3].window == 16);
    arch_refused(NEO ",\"attention_layers\":[\"local\",\"local\"]", "attention_layers: \"global\" or \"local\" for each layer");
    arch_refused(NEO ",\"attention_types\":[[[\"local\"],5]]", "attention_types: [[\"global\", \"local\"], times] for each layer expected");
    arch_refused(NEO ",\"attention_types\":[[[\"local\"],3]]", "attention_types: [[\"global\", \"local\"], times]");
    arch_refused(NEO ",\"attention_types\":[[[\"near\"],4]]", "attention_types: [[\"global\", \"local\"], times]");
#undef NEO
    CHECK(!arch_of("\"model_type\":\"hyperclovax\",\"logits_scaling\":4,\"attention_multiplier\":null"));
    CHECK(arch_read.logit_scale == 4 && arch_read.attn_scale == 0.25f && arch_read.flags & LLM__POST_NORM);
    CHECK(!arch_of("\"model_type\":\"hyperclovax\",\"use_post_norm\":false") && !(arch_read.flags & LLM__POST_NORM));
    CHECK(!arch_of("\"model_type\":\"nanochat\"") && arch_read.embed_bare && arch_read.by_rope && arch_read.logit_softcap == 15);
    CHECK(arch_read.qk_norm == LLM_QK_NORM_HEAD_RMS_LAST && arch_read.act == LLM_ACT_RELU2);
    for (int i = 0; i < 8; i++) CHECK(arch_near((double)arch_read.rope[0].inv_freq[i], -pow(1e4, -i / 8.0)));
    arch_refused("\"model_type\":\"flint\",\"num_experts\":4,\"num_experts_per_tok\":2", "layer_types: missing");
    arch_refused("\"model_type\":\"mellum\",\"num_local_experts\":4,\"num_experts_per_tok\":2", "layer_types: missing");
    CHECK(!arch_of(
        "\"model_type\":\"mellum\",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":16,\"rope_parameters\":"
        "{\"full_attention\":{\"rope_theta\":81},\"sliding_attention\":{\"rope_theta\":625}},\"layer_types\":[\"full_attention\","
        "\"sliding_attention\",\"sliding_attention\",\"full_attention\"],\"mlp_layer_types\":[\"dense\",\"sparse\",\"sparse\",\"sparse\"]"));
    CHECK(arch_read.rope[0].base == 81 && arch_read.rope[1].base == 625 && l[1].rope == 1 && l[1].window == 16 && !l[3].window &&
          !l[0].moe && l[1].moe);
    ARCH_FILE("mellum", "AAAA", "attention.head_count 4", "expert_count 4", "expert_used_count 2", "attention.sliding_window 8",
              "?attention.sliding_window_pattern 0 1 1 0", "rope.freq_base_swa 625");
    CHECK(arch_read.n_rope == 2 && arch_read.rope[1].base == 625 && l[1].rope == 1 && l[1].window == 8 && l[3].rope == 0);
    CHECK(!arch_of("\"model_type\":\"jais2\",\"attention_bias\":false,\"mlp_bias\":true") && !arch_read.qkv_bias && !arch_read.o_bias);
    CHECK(arch_read.mlp_bias && arch_read.norm_bias == 1 && arch_read.norm == LLM_NORM_LAYER && arch_read.act == LLM_ACT_RELU2);
    CHECK(!arch_of("\"model_type\":\"iquestcoder\"") && llm__arch_is(&arch_read, "llama"));
    CHECK(!arch_of("\"model_type\":\"youtu\",\"kv_lora_rank\":16,\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":10,\"v_head_dim\":6") &&
          !arch_read.n_experts && arch_read.rope_pairs && arch_read.head_dim == 18);
}

/* MPT's object of its own, and layers that see a window beside layers that keep a state. */
static void arch_mixed(void) {
#define MPT "\"model_type\":\"mpt\",\"d_model\":64,\"n_heads\":4,\"n_layers\":4,\"max_seq_len\":64"
    const llm__arch_layer *l = arch_read.layer;
    CHECK(!arch_of(MPT) && arch_read.attn_scale == 0.25f && !arch_read.n_rope && arch_read.act == LLM_ACT_GELU);
    for (int h = 0; h < 4; h++) CHECK(arch_near((double)arch_read.alibi[h], pow(2, -2.0 * (h + 1))));
    CHECK(!arch_of(MPT ",\"attn_config\":{\"alibi_bias_max\":16,\"softmax_scale\":0.5,\"clip_qkv\":null}") && arch_read.attn_scale == 0.5f);
    for (int h = 0; h < 4; h++) CHECK(arch_near((double)arch_read.alibi[h], pow(2, -4.0 * (h + 1))));
    CHECK(arch_near(llm__arch_steepest(&arch_read), 16));
    arch_refused(MPT ",\"attn_config\":{\"alibi\":false}", "attn_config: alibi: false is not supported");
    arch_refused(MPT ",\"attn_config\":{\"qk_ln\":true}", "attn_config: qk_ln: true is not supported");
    arch_refused(MPT ",\"attn_config\":{\"prefix_lm\":true}", "attn_config: prefix_lm: true is not supported");
    arch_refused(MPT ",\"attn_config\":{\"clip_qkv\":6}", "clip_qkv (clamped q, k and v) is not supported");
    ARCH_FILE("mpt", "AAAA", "attention.head_count 4", "attention.max_alibi_bias 8");
    ARCH_FILE("mpt", "attn_config: alibi: false", "attention.head_count 4");
#undef MPT
#define MIXED(family, kind) \
    "\"model_type\":\"" family "\",\"sliding_window\":16,\"layer_types\":[\"" kind "\",\"sliding_attention\",\"full_attention\",\"" kind \
    "\"]"
    arch_mixer(MIXED("lfm3", "conv"), "CAAC");
    CHECK(!l[0].window && l[1].window == 16 && !l[2].window && arch_read.state.taps == 7 && arch_read.attn_gate == LLM__GATE_HEADS);
    CHECK(arch_read.flags & LLM__POST_NORM);
    arch_mixer(MIXED("lfm3", "conv") ",\"use_sandwich_norm\":false,\"use_attention_gate\":false,\"conv_L_cache\":3", "CAAC");
    CHECK(!(arch_read.flags & LLM__POST_NORM) && !arch_read.attn_gate && arch_read.state.taps == 3);
    arch_mixer(MIXED("lara_mini", "linear_attention") ",\"linear_num_value_heads\":4,\"linear_num_key_heads\":2,\"linear_key_head_dim\":8,"
                                                      "\"linear_value_head_dim\":8",
               "DAAD");
    CHECK(l[1].window == 16 && l[1].rope == 0 && !l[2].window && l[2].rope == -1 && !arch_read.attn_gate);
    arch_refused("\"model_type\":\"lfm3\",\"layer_types\":[\"chunked\"]", "conv or full_attention expected");
    arch_refused("\"model_type\":\"lfm3\"", "layer_types: missing");
#undef MIXED
}

/* A shared expert whose gate stands in the same tensor, of which GGUF does not tell otherwise. */
static void arch_fused(void) {
    static const char *const keys[] = {"block_count 1",          "context_length 64", "embedding_length 64", "vocab_size 512",
                                       "attention.head_count 4", "expert_count 4",    "expert_used_count 2", "feed_forward_length 48"};
    llm_text t = gguf_head(3, 1, (uint64_t)(1 + LLM__COUNT(keys)));
    llm__gguf g = LLM__ZERO;
    llm__source s = LLM__ZERO;
    gguf_kv_str(&t, "general.architecture", "granite_swa");
    for (int i = 0; i < LLM__COUNT(keys); i++) arch_key(&t, "granite_swa", keys[i]);
    gguf_tensor(&t, "blk.0.ffn_up_shexp.weight", 2, 64, 80, 0, 0);
    for (int i = 0; i < 4 * 64 * 80 + 32; i++) gguf_u(&t, 0, 1);
    CHECK(!llm__gguf_parse("m", (const uint8_t *)t.data, t.len, &g, &s.tensors));
    s.path = "m", s.gguf = &g;
    if (CHECK(!llm__arch_read(&s, 1, &arch_read))) CHECK(arch_read.ff_shared == 40);
    llm__gguf_free(&g), llm__tensors_free(&s.tensors), llm_text_free(&t);
}

TEST_GROUP(arch) {
    arch_folder_facts();
    arch_gguf_facts();
    arch_schemes();
    arch_bad_schemes();
    arch_reach();
    arch_lengths();
    arch_layers();
    arch_silent();
    arch_windows();
    arch_mixed();
    arch_fused();
    arch_gemma4();
    arch_gemma3n();
}
