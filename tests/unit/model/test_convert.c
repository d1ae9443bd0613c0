/* Folders as GGUF: names, shapes, rows and words; what cannot be converted is told. */
#include "../folder.h"
#include "api/quantize.h"
#include "model/convert.h"
#include "model/convert_add.h"
#include "model/convert_keys.h"
#include "model/convert_recurrent.h"
#include "model/convert_gemma3n.h"
#include "model/convert_vocab.h"
#include "model/loader.h"
#include "model/net.h"
#include "model/take.h"
#include "model/tensors.h"

/* Row r of a tensor of the folder, as f32. */
static const float *cnv_row(const llm__conversion *c, const char *name, int64_t r, float out[1024]) {
    const llm__tensor *t = llm__tensors_find(&c->model->source.tensors, name);
    memset(out, 0, 1024 * sizeof *out);
    if (CHECK(t != NULL)) llm__tensor_values(t, r, t->shape[t->n_dims - 1], 0, t->shape[t->n_dims - 1], out);
    return out;
}

/* Row r of the tensor that is made is row `from` of the folder's, plus a number. */
static void cnv_same(const llm__conversion *c, const char *made, int64_t r, const char *stored, int64_t from, float add) {
    float a[1024], b[1024];
    int wrong = 0;
    const llm__tensor *t = llm__tensors_find(&c->tensors, made);
    if (!CHECK(t != NULL)) {
        printf("%s is missing\n", made);
        return;
    }
    llm__convert_values(c, t, r, a);
    cnv_row(c, stored, from, b);
    for (int64_t i = 0; i < t->shape[t->n_dims - 1]; i++) wrong += a[i] != b[i] + add;
    if (!CHECK(!wrong)) printf("%s, row %d: not %s, row %d\n", made, (int)r, stored, (int)from);
}

static void cnv_families(void) {
    llm__conversion c = LLM__ZERO;
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("llama"), &c))) { /* pairs side by side */
        const llm__arch *a = &c.model->arch;
        const int64_t d = a->head_dim, h = a->n_heads - 1;
        const llm__tensor *norm = llm__tensors_find(&c.tensors, "blk.1.attn_norm.weight"),
                          *q = llm__tensors_find(&c.tensors, "blk.1.attn_q.weight");
        for (int64_t i = 0; i < d; i++)
            cnv_same(&c, "blk.1.attn_q.weight", h * d + i, "model.layers.1.self_attn.q_proj.weight", h * d + i % 2 * (d / 2) + i / 2, 0);
        cnv_same(&c, "blk.0.attn_k.weight", 1, "model.layers.0.self_attn.k_proj.weight", d / 2, 0);
        cnv_same(&c, "blk.0.attn_v.weight", 1, "model.layers.0.self_attn.v_proj.weight", 1, 0);
        cnv_same(&c, "blk.0.ffn_down.weight", 5, "model.layers.0.mlp.down_proj.weight", 5, 0);
        CHECK(norm && norm->type == LLM_TYPE_F32 && norm->n_dims == 1 && q && q->n_dims == 2 && q->shape[1] == a->hidden);
        CHECK(llm__str_eq(llm__gguf_str(&c.keys, "general.architecture"), "llama") &&
              llm__gguf_int(&c.keys, "llama.block_count", 0) == a->n_layers);
        CHECK(llm__str_eq(llm__gguf_str(&c.keys, "tokenizer.ggml.pre"), "gpt-2") && !llm__convert_rope_form(c.model));
    }
    llm__convert_close(&c);
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("gemma3_text"), &c))) { /* norms without their one */
        cnv_same(&c, "blk.0.attn_norm.weight", 0, "model.layers.0.input_layernorm.weight", 0, 1);
        cnv_same(&c, "blk.0.attn_q_norm.weight", 0, "model.layers.0.self_attn.q_norm.weight", 0, 1);
        cnv_same(&c, "blk.0.attn_q.weight", 1, "model.layers.0.self_attn.q_proj.weight", 1, 0);
        CHECK(!llm__tensors_find(&c.tensors, "output.weight"));
    }
    llm__convert_close(&c);
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("gemma3n_three"), &c))) { /* streams in one tensor, a row for each token, ones */
        const llm__tensor *in = llm__tensors_find(&c.tensors, "altup_proj.weight"),
                          *scale = llm__tensors_find(&c.tensors, "blk.1.altup_correct_scale.weight"),
                          *own = llm__tensors_find(&c.tensors, "per_layer_token_embd.weight");
        float ones[64];
        cnv_same(&c, "altup_proj.weight", 64 + 5, "model.language_model.altup_projections.1.weight", 5, 0);
        cnv_same(&c, "altup_unembd_proj.weight", 7, "model.language_model.altup_unembed_projections.0.weight", 7, 0);
        cnv_same(&c, "per_layer_token_embd.weight", 479, "model.language_model.embed_tokens_per_layer.weight", 479, 0);
        cnv_same(&c, "per_layer_token_embd.weight", 480, "model.language_model.embed_tokens_per_layer.weight", 0, 0);
        cnv_same(&c, "blk.2.altup_predict_coef.weight", 8, "model.language_model.layers.2.altup.prediction_coefs.weight", 8, 0);
        cnv_same(&c, "blk.0.laurel_r.weight", 3, "model.language_model.layers.0.laurel.linear_right.weight", 3, 0);
        CHECK(in && in->n_dims == 3 && in->shape[0] == 2 && in->shape[1] == 64 && own && own->shape[0] == 512 && scale);
        if (scale) llm__convert_values(&c, scale, 0, ones);
        for (int i = 0; i < 64 && scale; i++) CHECK(ones[i] == 1);
        double z = 0;
        CHECK(llm__gguf_num_at(llm__gguf_find(&c.keys, "gemma3n.activation_sparsity_scale"), 1, &z) && z == -(double)INFINITY);
        CHECK(llm__gguf_int(&c.keys, "gemma3n.altup.active_idx", 0) == 1 && llm__gguf_int(&c.keys, "gemma3n.altup.num_inputs", 0) == 3);
    }
    llm__convert_close(&c);
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("gemma3n"), &c))) { /* keys of layers that have none, written again */
        cnv_same(&c, "blk.3.attn_k.weight", 2, "model.layers.1.self_attn.k_proj.weight", 2, 0);
        cnv_same(&c, "blk.5.attn_v.weight", 9, "model.layers.2.self_attn.v_proj.weight", 9, 0);
        cnv_same(&c, "blk.4.attn_k_norm.weight", 0, "model.layers.1.self_attn.k_norm.weight", 0, 0);
        cnv_same(&c, "blk.4.altup_correct_scale.weight", 0, "model.layers.4.altup.correct_output_scale", 0, 0);
        CHECK(llm__gguf_int(&c.keys, "gemma3n.attention.shared_kv_layers", 0) == 3);
    }
    llm__convert_close(&c);
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("deepseek_v2"), &c))) { /* kv_b in two */
        const llm__arch *a = &c.model->arch;
        const llm__tensor *k = llm__tensors_find(&c.tensors, "blk.1.attn_k_b.weight");
        float made[1024], from[1024];
        cnv_same(&c, "blk.1.attn_v_b.weight", a->v_head_dim + 2, "model.layers.1.self_attn.kv_b_proj.weight",
                 2 * a->nope + a->v_head_dim + 2, 0);
        if (CHECK(k && k->n_dims == 3 && k->shape[0] == a->n_heads && k->shape[1] == a->kv_rank && k->shape[2] == a->nope)) {
            llm__convert_values(&c, k, a->kv_rank + 3, made); /* head 1, column 3 */
            cnv_row(&c, "model.layers.1.self_attn.kv_b_proj.weight", a->nope + a->v_head_dim + 1, from);
            CHECK(made[1] == from[3]);
        }
    }
    llm__convert_close(&c);
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("llama_rope_llama3"), &c))) {
        float divisors[LLM__MAX_ROPE];
        CHECK(llm__convert_rope_form(c.model) == 1 && llm__tensors_find(&c.tensors, "rope_freqs.weight"));
        llm__convert_divisors(c.model, 0, divisors);
        CHECK(divisors[0] == 1 && fabs((double)divisors[c.model->arch.rope[0].dim / 2 - 1] - 8) < 1e-4);
    }
    llm__convert_close(&c);
}

/* Layers that keep a state: value heads by turns, rows that were grouped, numbers worked out. */
static void cnv_states(void) {
    llm__conversion c = LLM__ZERO;
    float made[1024], from[1024];
    static const int32_t head[4] = {0, 2, 1, 3}; /* of 2 key heads of 16, 4 value heads of 24 */
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("qwen3_5"), &c))) {
#define LAYER "model.language_model.layers.1.linear_attn."
        for (int h = 0; h < 4; h++) {
            cnv_same(&c, "blk.1.attn_qkv.weight", 64 + 24 * h + 5, LAYER "in_proj_qkv.weight", 64 + 24 * head[h] + 5, 0);
            cnv_same(&c, "blk.1.attn_gate.weight", 24 * h + 23, LAYER "in_proj_z.weight", 24 * head[h] + 23, 0);
            cnv_same(&c, "blk.1.ssm_alpha.weight", h, LAYER "in_proj_a.weight", head[h], 0);
            cnv_same(&c, "blk.1.ssm_beta.weight", h, LAYER "in_proj_b.weight", head[h], 0);
            for (int j = 0; j < 4; j++) from[j] = 0;
            const llm__tensor *conv = llm__tensors_find(&c.model->source.tensors, LAYER "conv1d.weight");
            llm__tensor_values(conv, 64 + 24 * head[h] + 7, 4, 0, 4, from);
            llm__convert_values(&c, llm__tensors_find(&c.tensors, "blk.1.ssm_conv1d.weight"), 64 + 24 * h + 7, made);
            CHECK(!memcmp(made, from, 4 * sizeof *made));
            llm__convert_values(&c, llm__tensors_find(&c.tensors, "blk.1.ssm_a"), 0, made);
            CHECK(made[h] == -expf(cnv_row(&c, LAYER "A_log", 0, from)[head[h]]));
            llm__convert_values(&c, llm__tensors_find(&c.tensors, "blk.1.ssm_dt.bias"), 0, made);
            CHECK(made[h] == cnv_row(&c, LAYER "dt_bias", 0, from)[head[h]]);
            llm__convert_values(&c, llm__tensors_find(&c.tensors, "blk.1.ssm_out.weight"), 3, made);
            CHECK(!memcmp(made + 24 * h, cnv_row(&c, LAYER "out_proj.weight", 3, from) + 24 * head[h], 24 * sizeof *made));
        }
        cnv_same(&c, "blk.1.attn_qkv.weight", 37, LAYER "in_proj_qkv.weight", 37, 0);
        cnv_same(&c, "blk.1.ssm_norm.weight", 0, LAYER "norm.weight", 0, 0);
        cnv_same(&c, "blk.1.post_attention_norm.weight", 0, "model.language_model.layers.1.post_attention_layernorm.weight", 0, 1);
#undef LAYER
    }
    llm__convert_close(&c);
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("qwen3_next"), &c))) { /* of each key head 16 rows of q, 16 of k, 48 of v, 48 of z */
        const char *fused = "model.layers.0.linear_attn.in_proj_qkvz.weight";
        cnv_same(&c, "blk.0.attn_qkv.weight", 16 + 3, fused, 128 + 3, 0);
        cnv_same(&c, "blk.0.attn_qkv.weight", 32 + 3, fused, 16 + 3, 0);
        cnv_same(&c, "blk.0.attn_qkv.weight", 64 + 48 + 3, fused, 128 + 32 + 3, 0);
        cnv_same(&c, "blk.0.attn_gate.weight", 24 + 3, fused, 32 + 48 + 24 + 3, 0);
        cnv_same(&c, "blk.0.ssm_ba.weight", 5, "model.layers.0.linear_attn.in_proj_ba.weight", 5, 0);
        CHECK(!llm__tensors_find(&c.tensors, "blk.1.ssm_a") && llm__gguf_int(&c.keys, "qwen3next.full_attention_interval", 0) == 2);
    }
    llm__convert_close(&c);
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("mamba2"), &c))) {
        const llm__tensor *norm = llm__tensors_find(&c.tensors, "blk.2.ssm_norm.weight"), *a = llm__tensors_find(&c.tensors, "blk.2.ssm_a");
        CHECK(norm && norm->n_dims == 2 && norm->shape[0] == 2 && norm->shape[1] == 64 && norm->type == LLM_TYPE_F32);
        CHECK(a && a->n_dims == 2 && a->shape[0] == 8 && a->shape[1] == 1);
        cnv_same(&c, "blk.2.ssm_in.weight", 300, "backbone.layers.2.mixer.in_proj.weight", 300, 0);
        CHECK(!llm__tensors_find(&c.tensors, "blk.0.ffn_norm.weight") && llm__gguf_int(&c.keys, "mamba2.attention.head_count", 1) == 0);
    }
    llm__convert_close(&c);
}

/* Llama 4: q and k keep their places, experts (in, out) are turned, what has a number of llama.cpp's own is told where it is another. */
static void cnv_llama4(void) {
    llm__conversion c = LLM__ZERO;
    float made[1024], from[1024];
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("llama4"), &c))) {
#define LAYER "language_model.model.layers.3.feed_forward."
        const llm__tensor *gate = llm__tensors_find(&c.tensors, "blk.3.ffn_gate_exps.weight"),
                          *up = llm__tensors_find(&c.tensors, "blk.3.ffn_up_exps.weight"),
                          *down = llm__tensors_find(&c.tensors, "blk.3.ffn_down_exps.weight");
        const llm__tensor *stored = llm__tensors_find(&c.model->source.tensors, LAYER "experts.gate_up_proj"),
                          *back = llm__tensors_find(&c.model->source.tensors, LAYER "experts.down_proj");
        cnv_same(&c, "blk.1.attn_q.weight", 25, "language_model.model.layers.1.self_attn.q_proj.weight", 25, 0);
        cnv_same(&c, "blk.3.ffn_up_shexp.weight", 7, LAYER "shared_expert.up_proj.weight", 7, 0);
        if (CHECK(gate && up && down && stored && back && gate->n_dims == 3 && gate->shape[0] == 6 && gate->shape[1] == 40 &&
                  gate->shape[2] == 64 && down->shape[1] == 64 && down->shape[2] == 40)) {
            llm__convert_values(&c, gate, 2 * 40 + 5, made); /* expert 2, row 5: column 5 of (64, 80) */
            llm__tensor_values(stored, 2 * 64 + 33, 80, 5, 1, from);
            CHECK(made[33] == *from);
            llm__convert_values(&c, up, 2 * 40 + 5, made);
            llm__tensor_values(stored, 2 * 64 + 33, 80, 40 + 5, 1, from);
            CHECK(made[33] == *from);
            llm__convert_values(&c, down, 5 * 64 + 9, made);
            llm__tensor_values(back, 5 * 40 + 12, 64, 9, 1, from);
            CHECK(made[12] == *from);
        }
        CHECK(!llm__tensors_find(&c.tensors, "blk.2.ffn_gate_inp.weight") && llm__tensors_find(&c.tensors, "blk.2.ffn_up.weight"));
        CHECK(llm__str_eq(llm__gguf_str(&c.keys, "general.architecture"), "llama4") &&
              llm__gguf_int(&c.keys, "llama4.interleave_moe_layer_step", 0) == 2 &&
              llm__gguf_int(&c.keys, "llama4.attention.sliding_window", 0) == 24 &&
              llm__gguf_int(&c.keys, "llama4.attention.temperature_length", 0) == 10 &&
              llm__gguf_int(&c.keys, "llama4.feed_forward_length", 0) == 104 &&
              llm__gguf_int(&c.keys, "llama4.leading_dense_block_count", -1) == -1);
#undef LAYER
    }
    llm__convert_close(&c);
}

/* What Falcon-H1's slots are multiplied by: the matrix that reads an input by what multiplies this, a bias not. */
static void cnv_folds(void) {
    llm_model *m = NULL;
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("falcon_h1"), NULL, &m))) return;
    const llm__arch_fold *f = &m->arch.fold;
    const struct {
        int slot, part, bias;
        float by;
    } table[] = {{LLM__W_Q, 0, 0, f->attn_in},
                 {LLM__W_Q, 0, 1, 1},
                 {LLM__W_V, 0, 0, f->attn_in},
                 {LLM__W_K, 0, 0, f->attn_in * f->key},
                 {LLM__W_K, 0, 1, f->key},
                 {LLM__W_O, 0, 1, f->attn_out},
                 {LLM__W_GATE, 0, 0, f->gate},
                 {LLM__W_DOWN, 0, 0, f->down},
                 {LLM__W_UP, 0, 0, 1},
                 {LLM__W_R_IN, 0, 0, 1.2f * 0.75f},
                 {LLM__W_R_IN, 4, 0, 0.6f * 0.75f},
                 {LLM__W_R_IN, 4, 1, 0.6f},
                 {LLM__W_R_OUT, 0, 0, f->ssm_out}};
    for (int i = 0; i < LLM__COUNT(table); i++)
        CHECK(fabsf(llm__fold_by(&m->arch, table[i].slot, table[i].part, table[i].bias) / table[i].by - 1) < 1e-6f);
    m->arch.folded = 0;
    CHECK(llm__fold_by(&m->arch, LLM__W_K, 0, 0) == 1);
    llm_model_close(m);
}

/* Names, and what the states of a layer cannot become. */
static void cnv_pieces(void) {
    llm__conversion c = LLM__ZERO;
    llm__converting g = LLM__ZERO;
    char name[96];
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("mamba2"), &c))) {
        g.c = &c;
        llm__loader_begin(&g.L, c.model, 1, 1);
        llm__convert_name(&g, "ssm_in", 1, name);
        CHECK(!strcmp(name, "blk.0.ssm_in.bias") && llm__convert_find(&g, LLM__W_R_IN, 0, 0) && !llm__convert_find(&g, LLM__W_R_IN, 0, 1));
        c.model->arch.state.step_max = 0.5f;
        llm__convert_recurrent(&g);
        CHECK(g.r == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "time_step_limit: 0 to 0.5 has no key in GGUF"));
        llm__loader_end(&g.L);
    }
    llm__convert_close(&c);
    if (CHECK(!llm__convert_open(TEST_CHECKPOINT("gemma3n_three"), &c))) { /* after an error nothing is added */
        const size_t n = c.tensors.n;
        g.c = &c;
        llm__loader_begin(&g.L, c.model, 1, 1);
        llm__convert_own_values(&g), llm__convert_streams(&g), llm__convert_gemma3n(&g);
        CHECK(g.r == LLM_ERR_UNSUPPORTED && c.tensors.n == n);
        llm__loader_end(&g.L);
    }
    llm__convert_close(&c);
}

static void cnv_refuse(const char *folder, llm_result want, const char *words) {
    llm__conversion c = LLM__ZERO;
    const llm_result r = llm__convert_open(folder, &c);
    if (!CHECK(r == want && strstr(llm_last_error(), words)))
        printf("%s: %d \"%s\", expected \"%s\"\n", folder, (int)r, llm_last_error(), words);
    llm__convert_close(&c);
}

/* tokenizer.json with a changed piece of text: refused with these words, or cut as GGUF calls `pre`. */
static void cnv_words(const char *from, const char *to, const char *words, const char *pre) {
    test_folder f;
    static const char *const links[] = {"config.json", "generation_config.json", "model.safetensors", "tokenizer_config.json"};
    char folder[300];
    llm_text text = LLM__ZERO;
    if (!folder_open(&f) || !CHECK(getcwd(folder, 200) != NULL)) return;
    for (int i = 0; i < LLM__COUNT(links); i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s/%s", folder, TEST_CHECKPOINT("llama"), links[i]);
        CHECK(!symlink(path, folder_file(&f, links[i])));
    }
    FILE *in = fopen(TEST_CHECKPOINT("llama") "/tokenizer.json", "rb");
    char block[4096];
    for (size_t n; in && (n = fread(block, 1, sizeof block, in)) > 0;) llm_text_add(&text, block, n);
    if (in) fclose(in);
    const char *at = text.data ? strstr(text.data, from) : NULL;
    if (CHECK(at != NULL)) {
        llm_text made = LLM__ZERO;
        llm_text_add(&made, text.data, (size_t)(at - text.data));
        llm_text_str(&made, to);
        llm_text_str(&made, at + strlen(from));
        folder_write(&f, "tokenizer.json", made.data, made.len);
        llm_text_free(&made);
        llm__conversion c = LLM__ZERO;
        if (words) cnv_refuse(f.path, LLM_ERR_UNSUPPORTED, words);
        else CHECK(!llm__convert_open(f.path, &c) && llm__str_eq(llm__gguf_str(&c.keys, "tokenizer.ggml.pre"), pre));
        llm__convert_close(&c);
    }
    llm_text_free(&text);
    folder_close(&f);
}

TEST_GROUP(convert) {
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints")) return;
    cnv_families();
    cnv_states();
    cnv_llama4();
    cnv_folds();
    cnv_pieces();
    cnv_refuse(TEST_CHECKPOINT("falcon_h1"), LLM_ERR_UNSUPPORTED, "mamba_norm_before_gate: true, which GGUF has no form for");
    cnv_refuse(TEST_CHECKPOINT("kimi_linear"), LLM_ERR_UNSUPPORTED, "linear_attn_config: other heads than attention has");
    cnv_refuse(TEST_CHECKPOINT("jamba"), LLM_ERR_UNSUPPORTED, "layer 0: its state has biases, which have no name in GGUF");
    cnv_refuse(TEST_CHECKPOINT("gpt2"), LLM_ERR_UNSUPPORTED, "gpt2 is not converted in this version; these are: llama mixtral");
    cnv_refuse(TEST_CHECKPOINT("llama_rope_dynamic"), LLM_ERR_UNSUPPORTED, "dynamic RoPE");
    cnv_refuse(TEST_CHECKPOINT("qwen2_window"), LLM_ERR_UNSUPPORTED, "use_sliding_window");
    cnv_refuse("/nowhere", LLM_ERR_IO, "/nowhere");
    llm_text keys = LLM__ZERO;
    llm_model *m = NULL;
    uint64_t n = 0;
    if (CHECK(!llm_model_open(TEST_CHECKPOINT("qwen3"), NULL, &m))) CHECK(!llm__convert_vocab(m, &keys, &n) && n >= 5 && keys.len > 5000);
    llm_model_close(m);
    llm_text_free(&keys);
    cnv_words(
        "\"pre_tokenizer\": {",
        "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[aeiou]+\"},\"behavior\":\"Isolated\",\"invert\":false},\"was\": {",
        "how it cuts text is a regex", NULL);
    cnv_words(/* Qwen3.5's, whose words have marks */
              "\"pre_tokenizer\": {",
              "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|"
              "\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
              "\"was\": {",
              NULL, "qwen35");
}
