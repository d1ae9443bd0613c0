/* Which tensor gets which type, and the file that llm_quantize writes: what stands in it, and that nothing of a failed one is left. */
#include "../folder.h"
#include "../gguf.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include "api/quantize.h"
#include "base/files.h"
#include "cpu/dtypes.h"
#include "model/mixture.h"
#include "model/tensors.h"

/* The types of a matrix in each layer of a model without an output layer of its own, a letter each: of 256 columns, or of others. */
static void qnt_layers(const char *mixture, const char *matrix, int n_layers, int n_experts, int groups, int cols, const char *want) {
    const llm__mixture *mix = llm__mixture_find(mixture);
    llm__mixing m = LLM__ZERO;
    char got[64] = "", name[64];
    if (!CHECK(mix != NULL)) return;
    m.mixture = mix, m.output = m.embedding = -1, m.n_layers = m.n_v = n_layers, m.n_experts = n_experts, m.groups = groups;
    for (int i = 0; i < n_layers; i++) {
        llm__tensor t = LLM__ZERO;
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, matrix);
        t.name = llm__lit(name), t.n_dims = 2, t.shape[0] = 8, t.shape[1] = cols, t.type = LLM_TYPE_F16;
        const char *type = llm__type_name(llm__mixing_type(&m, &t));
        got[i] = !strcmp(type, "Q8_0")  ? '8'
                 : !strcmp(type, "F16") ? 'h'
                 : type[3] == 'K'       ? type[1]
                 : type[3] == '0'       ? 'a'
                                        : 'b'; /* a: of blocks of 32 */
        if (type[0] == 'Q' && type[3] != 'K' && type[1] != '8') got[i] = (char)(got[i] + (type[1] == '5' ? 2 : 0));
        CHECK(llm__mixing_layer(name) == i);
    }
    if (!CHECK(!strcmp(got, want))) printf("%s, %s: %s, expected %s\n", mixture, matrix, got, want);
}

static void qnt_mixtures(void) {
    qnt_layers("q4_k_m", "attn_v", 12, 0, 4, 256, "644644644666");
    qnt_layers("q4_k_m", "ffn_down", 12, 0, 4, 256, "644644644666");
    qnt_layers("Q4-K-M", "attn_q", 12, 0, 4, 256, "444444444444");
    qnt_layers("q4_k_m", "attn_qkv", 4, 0, 4, 256, "5555");
    qnt_layers("q4_k_m", "ssm_conv1d_q", 2, 0, 4, 256, "hh");
    qnt_layers("q4_k_m", "ssm_f_a", 2, 0, 4, 256, "44");
    qnt_layers("q4_k_s", "attn_v", 12, 0, 4, 256, "555544444444");
    qnt_layers("q4_k_s", "ffn_down", 12, 0, 4, 256, "544444444444");
    qnt_layers("q5_k_m", "ffn_down", 12, 0, 4, 256, "655655655666");
    qnt_layers("q3_k_m", "attn_v", 6, 0, 4, 256, "554444");
    qnt_layers("q3_k_m", "ffn_down", 16, 0, 4, 256, "5444444444444444");
    qnt_layers("q3_k_m", "attn_output", 2, 0, 4, 256, "44");
    qnt_layers("q3_k_l", "ffn_down", 2, 0, 4, 256, "55");
    qnt_layers("q3_k_s", "ffn_down", 2, 0, 4, 256, "33");
    qnt_layers("q2_k", "attn_v", 2, 0, 4, 256, "44");
    qnt_layers("q2_k", "attn_v", 2, 0, 1, 256, "33");
    qnt_layers("q2_k", "ffn_up", 2, 0, 1, 256, "22");
    qnt_layers("q4_k_m", "attn_v", 3, 8, 4, 256, "888");
    qnt_layers("q4_k_m", "attn_output", 3, 8, 4, 256, "555");
    qnt_layers("q4_k_m", "ffn_up", 2, 0, 1, 96, "cc"); /* Q5_0 */
    qnt_layers("q5_k_s", "ffn_up", 2, 0, 1, 96, "dd"); /* Q5_1 */
    qnt_layers("q2_k", "ffn_up", 2, 0, 1, 96, "aa");   /* Q4_0 */
    qnt_layers("q6_k", "ffn_up", 2, 0, 1, 96, "88");
    qnt_layers("q6_k", "ffn_up", 2, 0, 1, 40, "hh");
    qnt_layers("iq4_xs", "attn_v", 2, 0, 4, 256, "55");
    qnt_layers("q4_k_m", "ffn_gate_inp", 2, 8, 1, 256, "hh"); /* as it was */
    qnt_layers("q4_k_m", "attn_norm", 2, 8, 1, 256, "hh");
    CHECK(!llm__mixture_find("q4_k_x") && !strcmp(llm__mixture_find("Q5_K")->name, "Q5_K_M") &&
          llm__mixture_find("q4_0")->base == LLM_TYPE_Q4_0);
    llm__str word;
    for (const char *names = llm__mixture_names(); llm__list_next(&names, " ", &word);) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)word.n, word.p);
        CHECK(llm__mixture_find(name) && !strcmp(llm__mixture_find(name)->name, name));
    }
}

static const struct {
    const char *name;
    int rows, cols; /* rows 0: a vector */
} qnt_tensors[] = {{"blk.1.attn_v.weight", 4, 256},  {"token_embd.weight", 8, 256},      {"blk.0.attn_v.weight", 4, 256},
                   {"blk.0.ffn_up.weight", 40, 256}, {"blk.0.attn_norm.weight", 0, 256}, {"blk.0.ffn_down.weight", 3, 96},
                   {"output_norm.weight", 0, 7}};

/* A GGUF file of small matrices. */
static void qnt_make(const test_folder *f, const char *name, float first) {
    static const char *const pieces[2] = {"a", "xyz"};
    llm_text t = gguf_head(3, LLM__COUNT(qnt_tensors), 7), data = LLM__ZERO;
    uint64_t seed = 3;
    gguf_kv_str(&t, "general.architecture", "llama");
    gguf_kv(&t, "llama.block_count", LLM__GGUF_U32, 2, 4);
    gguf_kv(&t, "llama.attention.head_count", LLM__GGUF_U32, 4, 4);
    gguf_kv(&t, "general.file_type", LLM__GGUF_U32, 0, 4);
    gguf_kv(&t, "general.alignment", LLM__GGUF_U32, 32, 4);
    gguf_kv_array(&t, "tokenizer.ggml.tokens", LLM__GGUF_STR, 2);
    for (int i = 0; i < 2; i++) gguf_str(&t, pieces[i]);
    gguf_kv_array(&t, "tokenizer.ggml.scores", LLM__GGUF_F32, 2);
    gguf_u(&t, 0x3FC0000040000000, 8);
    for (int i = 0; i < LLM__COUNT(qnt_tensors); i++) {
        const int rows = LLM__MAX(qnt_tensors[i].rows, 1);
        gguf_tensor(&t, qnt_tensors[i].name, qnt_tensors[i].rows ? 2 : 1, (uint64_t)qnt_tensors[i].cols, (uint64_t)rows, LLM_TYPE_F32,
                    data.len);
        for (int k = 0; k < rows * qnt_tensors[i].cols; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const float x = i == 3 && !k ? first : (float)(int32_t)(seed >> 32) / 4294967296.0f;
            llm_text_add(&data, (const char *)&x, 4);
        }
        while (data.len % 32) gguf_u(&data, 0, 1);
    }
    while (t.len % 32) gguf_u(&t, 0, 1);
    llm_text_add(&t, data.data, data.len);
    folder_write(f, name, t.data, t.len);
    llm_text_free(&t);
    llm_text_free(&data);
}

static int qnt_calls, qnt_stop;

static int qnt_progress(void *user, const char *what, double done) {
    CHECK(user == &qnt_calls && !strcmp(what, "quantizing") && done >= 0 && done <= 1);
    return ++qnt_calls == qnt_stop;
}

/* What was written: the same values, nearly, in the types that were asked for, and the keys. */
static void qnt_written(const test_folder *f) {
    LLM__SCOPED(llm__file_close) llm__file from = LLM__ZERO;
    LLM__SCOPED(llm__file_close) llm__file made = LLM__ZERO;
    LLM__SCOPED(llm__gguf_free) llm__gguf keys = LLM__ZERO;
    LLM__SCOPED(llm__gguf_free) llm__gguf own = LLM__ZERO;
    LLM__SCOPED(llm__tensors_free) llm__tensors a = LLM__ZERO;
    LLM__SCOPED(llm__tensors_free) llm__tensors b = LLM__ZERO;
    CHECK(!llm__file_open(folder_file(f, "m.gguf"), 0, 1, &from) && !llm__gguf_parse("m", from.data, from.size, &own, &a));
    if (!CHECK(!llm__file_open(folder_file(f, "out.gguf"), 0, 1, &made) && !llm__gguf_parse("out", made.data, made.size, &keys, &b) &&
               b.n == a.n))
        return;
    CHECK(llm__gguf_int(&keys, "general.file_type", 0) == 15 && llm__gguf_int(&keys, "general.quantization_version", 0) == 2 &&
          keys.n_kv == 7);
    const llm__gguf_kv *tokens = llm__gguf_find(&keys, "tokenizer.ggml.tokens"), *scores = llm__gguf_find(&keys, "tokenizer.ggml.scores");
    CHECK(tokens && tokens->count == 2 && scores && scores->count == 2 && !memcmp(scores->data, "\0\0\0\x40\0\0\xc0\x3f", 8));
    CHECK(!strcmp(b.item[0].name.p, "output_norm.weight") && !strcmp(b.item[1].name.p, "token_embd.weight") &&
          !strcmp(b.item[6].name.p, "blk.1.attn_v.weight"));
    static const char *const types[] = {"F32", "Q6_K", "F32", "Q4_K", "Q5_0", "Q4_K", "Q6_K"};
    for (size_t i = 0; i < b.n; i++) {
        const llm__tensor *x = llm__tensors_find(&a, b.item[i].name.p), *y = &b.item[i];
        float u[256], v[256];
        if (!CHECK(x && !strcmp(llm__type_name(y->type), types[i]) && x->shape[0] == y->shape[0] && x->shape[1] == y->shape[1]))
            printf("%s: %s\n", y->name.p, llm__type_name(y->type));
        const int64_t cols = y->shape[y->n_dims - 1], rows = y->n_dims > 1 ? y->shape[0] : 1;
        for (int64_t r = 0; x && r < rows; r++) {
            llm__tensor_values(x, r, cols, 0, cols, u);
            llm__tensor_values(y, r, cols, 0, cols, v);
            double lost = 0;
            for (int64_t c = 0; c < cols; c++) lost = fmax(lost, fabs((double)u[c] - (double)v[c]));
            CHECK(lost <= (y->type == LLM_TYPE_F32 ? 0 : y->type == LLM_TYPE_Q6_K ? 0.02 : 0.05));
        }
    }
}

/* It must fail with these words, and leave nothing, not even under the first name. */
static void qnt_refuse(const test_folder *f, const char *model, const char *to, const llm_quantize_config *c, llm_result r,
                       const char *words) {
    const llm_result got = llm_quantize(model ? folder_file(f, model) : NULL, to, c, NULL);
    if (!CHECK(got == r && strstr(llm_last_error(), words))) printf("%d \"%s\", expected \"%s\"\n", (int)got, llm_last_error(), words);
    CHECK(!test_exists(folder_file(f, "no.gguf")) && !test_exists(folder_file(f, "no.gguf.part")));
}

static void qnt_files(void) {
    test_folder f;
    llm_quantize_config c = LLM__ZERO;
    llm_text report = LLM__ZERO;
    if (!folder_open(&f)) return;
    char to[400], no[400];
    snprintf(to, sizeof to, "%s", folder_file(&f, "out.gguf"));
    snprintf(no, sizeof no, "%s", folder_file(&f, "no.gguf"));
    qnt_make(&f, "m.gguf", 0.5f);
    c.progress = qnt_progress, c.progress_user = &qnt_calls;
    for (c.n_threads = 1; c.n_threads < 4; c.n_threads++)
        if (CHECK(!llm_quantize(folder_file(&f, "m.gguf"), to, &c, &report))) qnt_written(&f);
    CHECK(strstr(report.data, "\"n_tensors\": 7, \"n_changed\": 5") && strstr(report.data, "\"type\": \"Q4_K_M\", \"n_params\": 14887"));
    CHECK(qnt_calls > 10);
    CHECK(!test_exists(folder_file(&f, "out.gguf.part")));
    for (int i = 1; i < 9; i++) { /* stopped anywhere */
        qnt_calls = 0, qnt_stop = i;
        qnt_refuse(&f, "m.gguf", no, &c, LLM_ERR_CANCELLED, "cancelled");
    }
    qnt_stop = 0;
    c.type = "q9_k";
    qnt_refuse(&f, "m.gguf", no, &c, LLM_ERR_ARG, "type: q9_k, one of F32 F16");
    c.type = NULL, c.output_type = "best";
    qnt_refuse(&f, "m.gguf", no, &c, LLM_ERR_ARG, "output_type: best");
    c.output_type = NULL, c.type = "q8_0";
    qnt_refuse(&f, "out.gguf", no, &c, LLM_ERR_ARG, "quantise the model in F16, BF16 or F32");
    c.type = NULL;
    qnt_refuse(&f, "m.gguf", folder_file(&f, "m.gguf"), &c, LLM_ERR_ARG, "the model itself");
    qnt_refuse(&f, "m.gguf", f.path, &c, LLM_ERR_ARG, "a folder, the name of a new file");
    qnt_refuse(&f, "m.gguf", folder_file(&f, "none/no.gguf"), &c, LLM_ERR_IO, "no.gguf.part");
    qnt_refuse(&f, "none.gguf", no, &c, LLM_ERR_IO, "no such file");
    qnt_refuse(&f, ".", no, &c, LLM_ERR_IO, "config.json");
    qnt_refuse(&f, NULL, no, &c, LLM_ERR_ARG, "a model and the name");
    folder_write_text(&f, "text.gguf", "no model at all");
    qnt_refuse(&f, "text.gguf", no, &c, LLM_ERR_FORMAT, "a GGUF file expected");
    qnt_make(&f, "nan.gguf", NAN);
    qnt_refuse(&f, "nan.gguf", no, &c, LLM_ERR_FORMAT, "blk.0.ffn_up.weight: a value is not finite");
    qnt_make(&f, "large.gguf", 1e30f);
    c.type = "f16";
    qnt_refuse(&f, "large.gguf", no, &c, LLM_ERR_FORMAT, "too large for F16");
    c.type = NULL;
    const pid_t child = fork(); /* a disk that is full */
    if (!child) {
        const struct rlimit most = {4096, 4096};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &most);
        const llm_result r = llm_quantize(folder_file(&f, "m.gguf"), no, &c, NULL);
        _exit(r == LLM_ERR_IO && !test_exists(no) && !test_exists(folder_file(&f, "no.gguf.part")) ? 0 : 1);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
    c.allow_requantize = 1, c.pure = 1, c.type = "q8_0";
    CHECK(!llm_quantize(folder_file(&f, "out.gguf"), no, &c, NULL));
    llm_text_free(&report);
    folder_close(&f);
}

TEST_GROUP(quantize) {
    qnt_mixtures();
    qnt_files();
}
