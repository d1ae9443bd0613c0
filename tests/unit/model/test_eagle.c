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
    CHECK(llm_convert_eagle(TEST_CHECKPOINT("head_eagle3"), NULL, NULL, NULL, to.path) == LLM_ERR_UNSUPPORTED &&
          strstr(llm_last_error(), "EAGLE-3 head, which is read as it is"));
    CHECK(llm_convert_eagle(from.path, "model.pkl", NULL, NULL, to.path) == LLM_ERR_UNSUPPORTED &&
          strstr(llm_last_error(), "a .safetensors or .bin file expected"));
    CHECK(llm_convert_eagle(from.path, NULL, "/no/such/model", NULL, to.path) != LLM_OK);
    folder_close(&from), folder_close(&to);
}

/* A head of EAGLE-3 that is not what it says, in one place: its config or its table. */
static void eagle_hostile(const llm_model *m) {
    static const struct {
        const char *config; /* members before those of eagle_config */
        int words, first;   /* of d2t, 0: there is none; the first of them */
        const char *says;
    } rows[] = {
        {"", 0, 0, "d2t, which says whose they are, is missing"},
        {"", 31, 0, "d2t is I32 of 124 bytes, an integer for each of 32 rows"},
        {"", 32, -1, "d2t: row 0 stands for token -1, 0 to 511 expected"},
        {"", 32, 512, "d2t: row 0 stands for token 512, 0 to 511 expected"},
        {"\"eagle_aux_hidden_state_layer_ids\":[0,1],", 32, 0, "layer_ids: 2 layers, 3 expected"},
        {"\"eagle_aux_hidden_state_layer_ids\":[0,2,1],", 32, 0, "0, 2, 1, three rising numbers of the model's 3 layers expected"},
        {"\"eagle_aux_hidden_state_layer_ids\":[0,1,3],", 32, 0, "0, 1, 3, three rising numbers"},
        {"\"eagle_aux_hidden_state_layer_ids\":[-1,1,2],", 32, 0, "-1, 1, 2, three rising numbers"},
        {"\"eagle_config\":{\"use_aux_hidden_state\":false},", 32, 0, "use_aux_hidden_state false is not supported"},
        {"\"eagle_config\":{\"use_mtp_layernorm\":true},", 32, 0, "use_mtp_layernorm true is not supported"},
        {"\"hidden_size\":48,", 32, 0, "hidden size 48, the model's 96 expected of a head without an embedding of its own"},
    };
    static const struct {
        const char *name;
        int rows, cols;
    } tensors[] = {{"fc.weight", 96, 288},
                   {"midlayer.hidden_norm.weight", 96, 0},
                   {"midlayer.input_layernorm.weight", 96, 0},
                   {"midlayer.post_attention_layernorm.weight", 96, 0},
                   {"midlayer.self_attn.q_proj.weight", 96, 192},
                   {"midlayer.self_attn.k_proj.weight", 32, 192},
                   {"midlayer.self_attn.v_proj.weight", 32, 192},
                   {"midlayer.self_attn.o_proj.weight", 96, 96},
                   {"midlayer.mlp.gate_proj.weight", 40, 96},
                   {"midlayer.mlp.up_proj.weight", 40, 96},
                   {"midlayer.mlp.down_proj.weight", 96, 40},
                   {"norm.weight", 96, 0},
                   {"lm_head.weight", 32, 96}};
    static float x[96 * 288];
    test_folder f;
    if (!folder_open(&f)) return;
    safe_numbers(7, LLM__COUNT(x), x);
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        char config[900];
        int32_t words[32] = {0};
        llm_model *head = NULL;
        safe_file s = LLM__ZERO;
        const int n = snprintf(config, sizeof config, "{%s", rows[i].config); /* of two members of a name the first counts */
        snprintf(config + n, sizeof config - (size_t)n, eagle_config + 1, "LlamaForCausalLMEagle3", 1);
        folder_write_text(&f, "config.json", config);
        for (int k = 0; k < LLM__COUNT(tensors); k++) safe_add(&s, tensors[k].name, tensors[k].rows, tensors[k].cols, x);
        words[0] = rows[i].first;
        if (rows[i].words) safe_add_as(&s, "d2t", "I32", rows[i].words, 0, words);
        safe_write(&s, &f, "model.safetensors");
        llm_result r = llm__eagle_open(f.path, m, 0, &head);
        if (!r) r = llm__eagle_words(head, words);
        if (!CHECK(r && strstr(llm_last_error(), rows[i].says))) printf("    row %d: %s\n", i, llm_last_error());
        llm_model_close(head);
    }
    folder_close(&f);
}

TEST_GROUP(eagle) {
    llm_model *m = NULL;
    for (int i = 0; i < LLM__COUNT(head_names); i++)
        for (int ranks = 1; ranks <= 2; ranks++) head_family(NULL, head_names[i], ranks, 3);
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") || !CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m))) return;
    eagle_open(m);
    eagle_hostile(m);
    eagle_convert(m);
    llm_model *alone = NULL;
    CHECK(llm_model_open(TEST_CHECKPOINT("head_eagle3_speculators"), NULL, &alone) == LLM_ERR_UNSUPPORTED && !alone &&
          strstr(llm_last_error(), "a speculative_model beside the model Qwen/Qwen3-8B"));
    llm_model_close(m);
}
