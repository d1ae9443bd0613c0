/* EAGLE heads: which folders are one, what they take from their model, and their conversion from SafeAILab's layout to vLLM's. (What they
 * guess: test_speculate.c.) */
#include "../safetensors.h"
#include "../heads.h"
#include "model/eagle.h"
#include "model/loader.h"
#include "model/source.h"

static const char eagle_config[] =
    "{\"architectures\":[\"%s\"],\"model_type\":\"llama\",\"hidden_size\":96,\"num_attention_heads\":6,\"num_key_value_heads\":2,"
    "\"intermediate_size\":40,\"num_hidden_layers\":%d,\"rms_norm_eps\":1e-5,\"rope_theta\":5000,\"max_position_embeddings\":2048,\"vocab_size\":64}";
static const struct {
    const char *name;
    int rows, cols;
} eagle_tensors[] = {{"fc.weight", 96, 192},
                     {"layers.0.self_attn.q_proj.weight", 96, 96},
                     {"layers.0.self_attn.k_proj.weight", 32, 96},
                     {"layers.0.self_attn.v_proj.weight", 32, 96},
                     {"layers.0.self_attn.o_proj.weight", 96, 96},
                     {"layers.0.mlp.gate_proj.weight", 40, 96},
                     {"layers.0.mlp.up_proj.weight", 40, 96},
                     {"layers.0.mlp.down_proj.weight", 96, 40},
                     {"layers.0.post_attention_layernorm.weight", 96, 0},
                     {"fc.bias", 96, 0}};
static float eagle_x[96 * 192];

/* A head in SafeAILab's layout, of its first n tensors. */
static void eagle_make(const test_folder *f, const char *name, int layers, int n) {
    char config[600];
    safe_file s = LLM__ZERO;
    snprintf(config, sizeof config, eagle_config, name, layers);
    folder_write_text(f, "config.json", config);
    for (int i = 0; i < n; i++) {
        safe_numbers(100 + (uint64_t)i, eagle_tensors[i].rows * LLM__MAX(eagle_tensors[i].cols, 1), eagle_x);
        safe_add(&s, eagle_tensors[i].name, eagle_tensors[i].rows, eagle_tensors[i].cols, eagle_x);
    }
    safe_write(&s, f, "model.safetensors");
}

static void eagle_open(const llm_model *m) {
    test_folder f;
    llm_model *head = NULL;
    if (!folder_open(&f)) return;
    eagle_make(&f, "LlamaForCausalLM", 1, 10);
    CHECK(!llm__eagle_open(f.path, m, 1, &head) && head && head->arch.eagle == LLM__EAGLE && head->arch.n_layers == 1); /* it has an fc */
    CHECK(head && head->arch.vocab == m->arch.vocab && head->arch.hidden == 96 &&
          head->arch.ff == 40); /* the model's words, its own width */
    llm_model_close(head);
    CHECK(!llm__eagle_open(f.path, m, 0, &head) && head && head->arch.eagle == (LLM__EAGLE | LLM__EAGLE_BEFORE | LLM__EAGLE_BEHIND));
    llm_model_close(head);
    eagle_make(&f, "LlamaForCausalLM", 2, 10);
    CHECK(llm__eagle_open(f.path, m, 1, &head) == LLM_ERR_ARG && !head && strstr(llm_last_error(), "2 layers: 1 expected"));
    eagle_make(&f, "EAGLEModel", 1, 5);
    CHECK(llm__eagle_open(f.path, m, 1, &head) == LLM_ERR_FORMAT && !head &&
          strstr(llm_last_error(), "is missing")); /* half of its tensors */
    folder_close(&f);
    CHECK(!llm__eagle_open(TEST_CHECKPOINT("llama"), m, 0, &head) && !head); /* a model is none, and that is no error */
    CHECK(!llm__eagle_open("/no/such/folder", m, 0, &head) && !head);
}

/* Both layouts are the same head: tensors with "model." before them, the model's output layer, the config inside another. */
static void eagle_convert(const llm_model *m) {
    test_folder from, to;
    llm_model *head = NULL;
    if (!folder_open(&from) || !folder_open(&to)) return;
    eagle_make(&from, "LlamaForCausalLM", 1, 10);
    CHECK(!llm_convert_eagle(from.path, NULL, TEST_CHECKPOINT("llama"), NULL, to.path));
    CHECK(!llm__eagle_open(to.path, m, 0, &head));
    if (CHECK(head != NULL)) {
        const llm__tensors *t = &head->source.tensors;
        for (int i = 0; i < LLM__COUNT(eagle_tensors); i++) {
            char name[100];
            snprintf(name, sizeof name, "%s%s", strncmp(eagle_tensors[i].name, "fc.", 3) ? "model." : "", eagle_tensors[i].name);
            safe_numbers(100 + (uint64_t)i, eagle_tensors[i].rows * LLM__MAX(eagle_tensors[i].cols, 1), eagle_x);
            const llm__tensor *x = llm__tensors_find(t, name);
            CHECK(x && x->bytes == 4 * eagle_tensors[i].rows * LLM__MAX(eagle_tensors[i].cols, 1) &&
                  !memcmp(x->data, eagle_x, (size_t)x->bytes));
        }
        const llm__tensor *output = llm__tensors_find(t, "lm_head.weight"), *own = llm__tensors_find(&m->source.tensors, "lm_head.weight");
        CHECK(t->n == LLM__COUNT(eagle_tensors) + 1 && output && own && output->bytes == own->bytes &&
              !memcmp(output->data, own->data, (size_t)own->bytes));
        CHECK(!strcmp(head->arch.class_name, "EAGLEModel") && head->arch.ff == 40);
    }
    llm_model_close(head);
    CHECK(llm_convert_eagle(to.path, NULL, NULL, NULL, to.path) == LLM_ERR_FORMAT && strstr(llm_last_error(), "in vLLM's layout already"));
    CHECK(llm_convert_eagle(TEST_CHECKPOINT("llama"), NULL, NULL, NULL, to.path) == LLM_ERR_FORMAT &&
          strstr(llm_last_error(), "fc.weight is missing"));
    CHECK(llm_convert_eagle(from.path, "model.pkl", NULL, NULL, to.path) == LLM_ERR_UNSUPPORTED &&
          strstr(llm_last_error(), "a .safetensors or .bin file expected"));
    CHECK(llm_convert_eagle(from.path, NULL, "/no/such/model", NULL, to.path) != LLM_OK);
    folder_close(&from), folder_close(&to);
}

TEST_GROUP(eagle) {
    llm_model *m = NULL;
    for (int i = 0; i < LLM__COUNT(head_names); i++)
        for (int ranks = 1; ranks <= 2; ranks++) head_family(NULL, head_names[i], ranks, 3);
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") || !CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m))) return;
    eagle_open(m);
    eagle_convert(m);
    llm_model_close(m);
}
