/* Quantised folders: the layouts of codes, files that are written in any order, sums of products and their factors, what folding leaves as it is, and that the
 * methods lose less than rounding to nearest; a whole folder, made twice and after an interruption. */
#include "../folder.h"
#include "../safetensors.h"
#include "base/files.h"
#include "base/threads.h"
#include "cpu/dtypes.h"
#include "cpu/isa.h"
#include "cpu/kernels.h"
#include "model/safetensors.h"
#include "quant/inputs.h"
#include "quant/codes.h"
#include "quant/folder_files.h"
#include "quant/gram.h"
#include "quant/job.h"
#include "quant/methods.h"
#include "quant/targets.h"
#include "quant/shards.h"

enum { QF_HIDDEN = 64, QF_FF = 96, QF_LAYERS = 2, QF_VOCAB = 40, QF_TOKENS = 48 };

static llm__pool *qf_pool;
static const llm__kernels *qf_kernels;

/* n bits of a stream of words, the lowest first, from bit `at` on. */
static unsigned qf_bits(const uint8_t *p, int64_t at, int n) {
    unsigned x = 0;
    for (int i = 0; i < n; i++) x |= (unsigned)(p[(at + i) / 8] >> (at + i) % 8 & 1) << i;
    return x;
}

/* Every layout, read bit by bit. */
static void qf_layouts(int bits) {
    static const int awq[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    llm__rounded m = LLM__ZERO;
    llm__code_tensor t[4];
    uint8_t *packed = (uint8_t *)calloc(1, 1 << 16);
    float *w = (float *)calloc(32 * 64, sizeof *w);
    int wrong = 0;
    m.rows = 32, m.cols = 64, m.group = 32, m.groups = 2, m.bits = bits, m.scale_type = LLM_TYPE_F16, m.affine = bits == 4;
    safe_numbers(5, 32 * 64, w);
    if (!CHECK(!llm__rounded_open(&m, 0))) return;
    llm__round_rows(&m, w, 0, 32);
    if (bits == 4) {
        CHECK(llm__code_tensors(LLM__CODES_AWQ4, &m, t) == 3 && t[0].shape[0] == 64 && t[0].shape[1] == 4);
        llm__code_pack(LLM__CODES_AWQ4, &m, 0, qf_pool, packed);
        for (int i = 0; i < 64; i++)
            for (int o = 0; o < 32; o++)
                wrong += qf_bits(packed, 32 * (i * 4 + o / 8) + 4 * (o % 8), 4) != m.code[(o / 8 * 8 + awq[o % 8]) * 64 + i];
        llm__code_pack(LLM__CODES_AWQ4, &m, 1, qf_pool, packed);
        for (int g = 0; g < 2; g++)
            for (int o = 0; o < 32; o++)
                wrong += qf_bits(packed, 32 * (g * 4 + o / 8) + 4 * (o % 8), 4) != m.zero[(o / 8 * 8 + awq[o % 8]) * 2 + g];
    }
    m.affine = 0;
    llm__round_rows(&m, w, 0, 32);
    CHECK(llm__code_tensors(LLM__CODES_GPTQ1, &m, t) == 4 && t[0].shape[0] == 64 * bits / 32 && t[3].shape[0] == 64);
    llm__code_pack(LLM__CODES_GPTQ1, &m, 0, qf_pool, packed);
    for (int o = 0; o < 32; o++)
        for (int i = 0; i < 64; i++) {
            unsigned code = 0;
            for (int b = 0; b < bits; b++)
                code |= (packed[4 * ((i * bits + b) / 32 * 32 + o) + (i * bits + b) % 32 / 8] >> (i * bits + b) % 8 & 1u) << b;
            wrong += code != m.code[o * 64 + i];
        }
    llm__code_pack(LLM__CODES_GPTQ1, &m, 1, qf_pool, packed);
    for (int o = 0; o < 32; o++) wrong += qf_bits(packed, o * bits, bits) + 1 != (unsigned)m.zero[o * 2];
    llm__code_pack(LLM__CODES_PACK, &m, 0, qf_pool, packed);
    for (int i = 0; i < 32 * 64; i++)
        wrong += qf_bits(packed, (int64_t)(i / 64) * ((64 * bits + 31) / 32 * 32) + i % 64 * bits, bits) != m.code[i];
    if (bits == 8) {
        llm__code_pack(LLM__CODES_INT8, &m, 0, qf_pool, packed);
        for (int i = 0; i < 32 * 64; i++) wrong += (int8_t)packed[i] != (int)m.code[i] - 128;
    }
    CHECK(!wrong);
    float *back = (float *)calloc(32 * 64, sizeof *back);
    llm__rounded_values(&m, 0, 32, back);
    for (int i = 0; i < 32 * 64; i++) wrong += fabsf(back[i] - w[i]) > 1.01f * m.scale[i / 32]; /* the largest loses a whole step */
    CHECK(!wrong);
    llm__rounded_close(&m);
    free(packed), free(w), free(back);
}

/* Two shards, written from behind; opened again, and read. */
static void qf_shards(const test_folder *f) {
    llm__out o = LLM__ZERO;
    const int64_t shape[2] = {3, 4};
    float x[12];
    LLM__SCOPED(llm__tensors_free) llm__tensors tensors = LLM__ZERO;
    LLM__SCOPED(llm__file_close) llm__file file = LLM__ZERO;
    safe_numbers(1, 12, x);
    for (int again = 0; again < 2; again++) {
        o.part = f->path;
        for (int i = 0; i < 3; i++) llm__out_add(&o, i ? i == 1 ? "b" : "c" : "a", ".weight", LLM_TYPE_F32, 2, shape);
        llm__out_open(&o, 100, again);
        CHECK(!o.r && o.n_shards == 2 && o.bytes == 144);
        for (int i = again ? 1 : 3; i-- > 0;) llm__out_put(&o, (size_t)i, 24, x + 6, 24), llm__out_put(&o, (size_t)i, 0, x, 24);
        llm__out_sync(&o);
        if (again) llm__out_index(&o);
        CHECK(!o.r);
        llm__out_close(&o);
    }
    if (CHECK(!llm__file_open(folder_file(f, "model-00001-of-00002.safetensors"), 0, 0, &file) &&
              !llm__safetensors_parse("x", file.data, file.size, &tensors))) {
        const llm__tensor *b = llm__tensors_find(&tensors, "b.weight");
        CHECK(tensors.n == 2 && b && b->bytes == 48 && !memcmp(b->data, x, 48));
    }
    CHECK(llm__path_bytes(folder_file(f, "model.safetensors.index.json")) > 60);
}

/* Products against plain sums; factors put together again; an error by the products against the outputs themselves. */
static void qf_gram(void) {
    enum { N = 70, T = 600 };
    float *x = (float *)calloc(N * T, sizeof *x), d[N], *h = (float *)calloc(96 * 96, sizeof *h), *row = (float *)calloc(96, sizeof *row);
    llm__gram g = LLM__ZERO;
    double error = 0, off = 0;
    safe_numbers(7, N * T, x);
    safe_numbers(8, N, d);
    for (int t = 0; t < T; t++)
        for (int i = 1; i < N; i++) x[t * N + i] += 0.7f * x[t * N + i - 1];
    if (!CHECK(!llm__gram_open(&g, N, 1) && g.wide == 96 && !llm__gram_add(&g, qf_kernels, qf_pool, x, N, T))) return;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            double sum = 0;
            for (int t = 0; t < T; t++) sum += (double)x[t * N + i] * (double)x[t * N + k];
            off = LLM__MAX(off, fabs(sum - (double)g.h[i * 96 + k]));
        }
    CHECK(off < 0.01 && g.tokens == T);
    for (int t = 0; t < T; t++) {
        double y = 0;
        for (int i = 0; i < N; i++) y += (double)d[i] * (double)x[t * N + i];
        error += y * y;
    }
    memcpy(row, d, sizeof d);
    CHECK(fabs(llm__gram_error(&g, qf_kernels, row, 1) / error - 1) < 1e-3);
    for (int i = 0; i < N; i++) g.h[i * 96 + i] += 3;
    memcpy(h, g.h, 96 * 96 * sizeof *h);
    if (CHECK(llm__gram_factor(h, N, 96, qf_kernels, qf_pool))) { /* solve U D U' = H for D row by row from the last: then all must fit */
        double D[N], worst = 0;
        for (int c = N - 1; c >= 0; c--) {
            D[c] = (double)g.h[c * 96 + c];
            for (int m = c + 1; m < N; m++) D[c] -= (double)h[c * 96 + m] * (double)h[c * 96 + m] * D[m];
        }
        for (int i = 0; i < N; i++)
            for (int k = 0; k < N; k++) {
                double sum = 0;
                for (int m = LLM__MAX(i, k); m < N; m++) sum += (double)h[i * 96 + m] * (double)h[k * 96 + m] * D[m];
                worst = LLM__MAX(worst, fabs(sum - (double)g.h[i * 96 + k]));
            }
        CHECK(worst < 0.02);
    }
    for (int i = 0; i < N; i++) h[i * 96 + i] = -1;
    CHECK(!llm__gram_factor(h, N, 96, qf_kernels, qf_pool));
    llm__gram_close(&g);
    free(x), free(h), free(row);
}

/* A model like Llama, whose norms let some columns be much larger than others. */
static void qf_model(const test_folder *f) {
    static const struct {
        const char *name;
        int rows, cols;
    } parts[] = {
        {"self_attn.q_proj", QF_HIDDEN, QF_HIDDEN}, {"self_attn.k_proj", QF_HIDDEN, QF_HIDDEN}, {"self_attn.v_proj", QF_HIDDEN, QF_HIDDEN},
        {"self_attn.o_proj", QF_HIDDEN, QF_HIDDEN}, {"mlp.gate_proj", QF_FF, QF_HIDDEN},        {"mlp.up_proj", QF_FF, QF_HIDDEN},
        {"mlp.down_proj", QF_HIDDEN, QF_FF},        {"input_layernorm", QF_HIDDEN, 0},          {"post_attention_layernorm", QF_HIDDEN, 0}};
    static float x[QF_FF * QF_HIDDEN];
    safe_file s = LLM__ZERO;
    char name[100];
    folder_write_text(
        f, "config.json",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
        "\"num_key_value_heads\":2,\"vocab_size\":40,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":128,\"tie_word_embeddings\":true,\"torch_dtype\":\"float32\"}");
    folder_write_text(
        f, "tokenizer.json",
        "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}");
    safe_numbers(100, QF_VOCAB * QF_HIDDEN, x);
    safe_add(&s, "model.embed_tokens.weight", QF_VOCAB, QF_HIDDEN, x);
    for (int layer = 0; layer < QF_LAYERS; layer++)
        for (int i = 0; i < LLM__COUNT(parts); i++) {
            const int n = parts[i].rows * LLM__MAX(parts[i].cols, 1);
            safe_numbers((uint64_t)(200 + 20 * layer + i), n, x);
            for (int k = 0; k < n; k++) x[k] = parts[i].cols ? 0.3f * x[k] : k % 9 == 2 ? 6.0f + x[k] : 0.4f + 0.2f * x[k];
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, parts[i].name);
            safe_add(&s, name, parts[i].rows, parts[i].cols, x);
        }
    for (int k = 0; k < QF_HIDDEN; k++) x[k] = 1;
    safe_add(&s, "model.norm.weight", QF_HIDDEN, 0, x);
    safe_write(&s, f, "model.safetensors");
    llm_text ids = LLM__ZERO;
    for (int i = 0; i < 20 * QF_TOKENS; i++) llm_text_format(&ids, (i + 1) % QF_TOKENS ? "%d " : "%d\n", (i * i / 3 + i / 5) % QF_VOCAB);
    folder_write_text(f, "ids.txt", ids.data);
    llm_text_free(&ids);
}

/* A job as far as its first layer: what a method then makes of an input. */
static int qf_job(llm__qjob *j, const test_folder *f, llm_quantize_folder_config *c, const char *method) {
    memset(j, 0, sizeof *j);
    memset(c, 0, sizeof *c);
    c->method = method;
    c->token_ids = folder_file(f, "ids.txt");
    c->n_threads = 2;
    j->cfg = c;
    j->pool = qf_pool;
    j->kernels = qf_kernels;
    j->to = "x";
    for (int i = 0; i < 2; i++) j->states[i] = tmpfile();
    const int ok = CHECK(!llm_model_open(f->path, NULL, &j->model) && !llm__qplan_open(&j->plan, j->model, c));
    if (ok) llm__samples_read(j);
    return ok && CHECK(!j->r && j->samples.n == 20 && j->samples.longest == QF_TOKENS && j->plan.n == 14 && j->plan.first[1] == 7);
}

static void qf_job_close(llm__qjob *j) {
    llm__qjob_forget(j);
    for (int i = 0; i < 2; i++) fclose(j->states[i]);
    llm__qplan_close(&j->plan);
    llm_model_close(j->model);
    LLM_FREE(j->samples.ids);
    LLM_FREE(j->samples.begin);
    LLM_FREE(j->patch);
}

/* What the rounding of a matrix w (rows, cols), read as `as`, loses by the products. */
static double qf_loss(const llm__gram *g, const float *as, const float *w, int64_t rows) {
    float *d = (float *)calloc((size_t)(rows * g->wide), sizeof *d);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < g->n; i++) d[r * g->wide + i] = as[r * g->n + i] - w[r * g->n + i];
    const double loss = llm__gram_error(g, qf_kernels, d, rows);
    free(d);
    return loss;
}

/* GPTQ and AWQ lose less than rounding to nearest with the same bits; folding changes no product. */
static void qf_methods(const test_folder *f, const char *method) {
    llm__qjob j;
    llm_quantize_folder_config c;
    llm__gram g = LLM__ZERO, whole = LLM__ZERO;
    llm__rounded_list list = {(llm__rounded *)LLM__NEW(llm__rounded, 7), 7};
    float *x = (float *)calloc(500 * QF_HIDDEN, sizeof *x), *nearest = (float *)calloc(QF_FF * QF_HIDDEN, sizeof *x),
          *was = (float *)calloc(QF_FF * QF_HIDDEN, sizeof *x);
    if (!qf_job(&j, f, &c, method)) return;
    char name[256];
    llm__qplan_input(j.model, 0, LLM__READS_MLP, name);
    CHECK(!strcmp(name, "model.layers.0.mlp.up_proj.weight"));
    safe_numbers(9, 500 * QF_HIDDEN, x);
    for (int i = 1; i < 500 * QF_HIDDEN; i++) x[i] = (i % QF_HIDDEN ? 0.8f * x[i - 1] : 0) + x[i] * (i % 9 == 2 ? 8.0f : 0.5f);
    g.reads = whole.reads = LLM__READS_MLP;
    g.expert = whole.expert = -1;
    CHECK(!llm__gram_open(&g, QF_HIDDEN, 1) && !llm__gram_add(&g, qf_kernels, qf_pool, x, QF_HIDDEN, 500));
    CHECK(!llm__gram_open(&whole, QF_HIDDEN, 1) && !llm__gram_add(&whole, qf_kernels, qf_pool, x, QF_HIDDEN, 500));
    CHECK(llm__fold(&j, &g, NULL));
    j.out.part = folder_file(f, "no such folder");
    llm__folder_state(&j, 1);
    CHECK(j.r == LLM_ERR_IO);
    j.r = LLM_OK;
    const llm__qplan_matrix *up = &j.plan.matrix[5];
    memcpy(was, llm__qjob_values(&j, up->t), sizeof(float) * QF_FF * QF_HIDDEN);
    llm__rounded rtn = llm__qplan_rounded(&j.plan, up);
    CHECK(!llm__rounded_open(&rtn, 0));
    llm__round_rows(&rtn, was, 0, QF_FF);
    llm__rounded_values(&rtn, 0, QF_FF, nearest);
    const double before = qf_loss(&whole, nearest, was, QF_FF);
    if (!strcmp(method, "awq")) llm__awq_input(&j, &g);
    else llm__gptq_input(&j, &g, &list);
    llm__method_round(&j, &list);
    CHECK(!j.r);
    const float *made = llm__qjob_values(&j, up->t);
    double after = 0;
    if (!strcmp(method, "awq")) { /* the norm says what the columns were multiplied with */
        const float *norm =
            llm__qjob_values(&j, llm__tensors_find(&j.model->source.tensors, "model.layers.0.post_attention_layernorm.weight"));
        const llm__tensor *t = llm__tensors_find(&j.model->source.tensors, "model.layers.0.post_attention_layernorm.weight");
        float *back = (float *)calloc(QF_FF * QF_HIDDEN, sizeof *back), first;
        int scaled = 0;
        for (int i = 0; i < QF_HIDDEN; i++) {
            memcpy(&first, t->data + 4 * i, 4);
            scaled += fabsf(norm[i] / first - 1) > 0.05f;
            for (int r = 0; r < QF_FF; r++) back[r * QF_HIDDEN + i] = made[r * QF_HIDDEN + i] * norm[i] / first;
        }
        after = qf_loss(&whole, back, was, QF_FF);
        CHECK(scaled > 10);
        free(back);
    } else after = qf_loss(&whole, made, was, QF_FF);
    if (!CHECK(after < 0.8 * before && after > 0)) printf("%s: %g by rounding, %g\n", method, before, after);
    llm__rounded_close(&rtn);
    llm__rounded_list_close(&list);
    llm__gram_close(&g);
    llm__gram_close(&whole);
    free(x), free(nearest), free(was);
    qf_job_close(&j);
}

/* SmoothQuant's scales are those of the paper, by the largest input and the largest weight of all matrices that read it: a norm is divided by them. */
static void qf_smooth(const test_folder *f) {
    static const char norm[] = "model.layers.0.post_attention_layernorm.weight";
    llm__qjob j;
    llm_quantize_folder_config c;
    llm__gram g = LLM__ZERO;
    float *x = (float *)calloc(100 * QF_HIDDEN, sizeof *x), was[QF_HIDDEN], most[QF_HIDDEN] = {0}, top[QF_HIDDEN] = {0};
    if (!qf_job(&j, f, &c, "smooth_quant")) return;
    safe_numbers(11, 100 * QF_HIDDEN, x);
    for (int i = 0; i < 100 * QF_HIDDEN; i++)
        x[i] *= i % QF_HIDDEN == 5 ? 30.0f : 1.0f, top[i % QF_HIDDEN] = fmaxf(top[i % QF_HIDDEN], fabsf(x[i]));
    for (int k = 4; k < 6; k++) { /* gate and up */
        const llm__qplan_matrix *m = &j.plan.matrix[k];
        const float *w = llm__qjob_values(&j, m->t);
        for (int64_t i = 0; i < m->rows * QF_HIDDEN; i++) most[i % QF_HIDDEN] = fmaxf(most[i % QF_HIDDEN], fabsf(w[i]));
    }
    memcpy(was, llm__tensors_find(&j.model->source.tensors, norm)->data, sizeof was);
    g.reads = LLM__READS_MLP, g.expert = -1;
    CHECK(!llm__gram_open(&g, QF_HIDDEN, 1) && !llm__gram_add(&g, qf_kernels, qf_pool, x, QF_HIDDEN, 100));
    llm__method_input(&j, &g, NULL);
    const float *is = llm__qjob_values(&j, llm__tensors_find(&j.model->source.tensors, norm));
    int wrong = 0;
    for (int i = 0; i < QF_HIDDEN && is; i++)
        wrong += fabs((double)was[i] / (double)is[i] / (pow((double)top[i], 0.8) / pow((double)most[i], 0.2)) - 1) > 1e-3;
    if (!CHECK(!j.r && is && !wrong)) printf("%d of %d scales are others\n", wrong, (int)QF_HIDDEN);
    free(x);
    llm__gram_close(&g);
    qf_job_close(&j);
}

/* What the MLP of layer 0 makes of x, as its values stand: down (silu(gate x) up x). */
static void qf_mlp(llm__qjob *j, const float *x, float *y) {
    const float *w[3];
    float inner[QF_FF];
    for (int k = 0; k < 3; k++) w[k] = llm__qjob_values(j, j->plan.matrix[4 + k].t); /* gate, up, down */
    for (int r = 0; r < QF_FF; r++) {
        float gate = 0, up = 0;
        for (int i = 0; i < QF_HIDDEN; i++) gate += w[0][r * QF_HIDDEN + i] * x[i], up += w[1][r * QF_HIDDEN + i] * x[i];
        inner[r] = gate / (1 + expf(-gate)) * up;
    }
    for (int r = 0; r < QF_HIDDEN; r++) {
        y[r] = 0;
        for (int i = 0; i < QF_FF; i++) y[r] += w[2][r * QF_FF + i] * inner[i];
    }
}

/* What down reads is folded into the rows of up, which changes nothing of what comes out: for AWQ, and SmoothQuant could. Where up is not all of
 * it, or something stands between that does not go with it, nothing is folded. */
static void qf_down(const test_folder *f, const char *method) {
    static const char *const between[] = {"model.layers.0.mlp.ffn_sub_norm.weight", "model.layers.0.self_attn.attn_sub_norm.weight"};
    llm__qjob j;
    llm_quantize_folder_config c;
    llm__gram g = LLM__ZERO, o = LLM__ZERO;
    float x[QF_HIDDEN], was[QF_HIDDEN], is[QF_HIDDEN], s[QF_FF], up[QF_FF], *inputs = (float *)calloc(200 * QF_FF, sizeof *inputs);
    double off = 0;
    if (!qf_job(&j, f, &c, method)) return;
    safe_numbers(31, QF_HIDDEN, x);
    safe_numbers(32, 200 * QF_FF, inputs);
    for (int i = 0; i < 200 * QF_FF; i++) inputs[i] *= i % QF_FF % 7 == 3 ? 40.0f : 1.0f;
    g.reads = LLM__READS_DOWN, o.reads = LLM__READS_O, g.expert = o.expert = -1, o.n = QF_HIDDEN;
    CHECK(!llm__gram_open(&g, QF_FF, 1) && !llm__gram_add(&g, qf_kernels, qf_pool, inputs, QF_FF, 200));
    CHECK(llm__fold(&j, &g, NULL) && llm__fold(&j, &o, NULL));
    const float *w = llm__qjob_values(&j, j.plan.matrix[5].t);
    qf_mlp(&j, x, was);
    for (int i = 0; i < QF_FF; i++) s[i] = 0.25f + (float)(i % 5), up[i] = w[i * QF_HIDDEN];
    CHECK(llm__fold(&j, &g, s));
    for (int i = 0; i < QF_FF; i++) off = LLM__MAX(off, fabs((double)(w[i * QF_HIDDEN] * s[i] / up[i]) - 1)), up[i] = w[i * QF_HIDDEN];
    qf_mlp(&j, x, is);
    for (int i = 0; i < QF_HIDDEN; i++) off = LLM__MAX(off, fabs((double)(is[i] - was[i])) / 10);
    CHECK(off < 1e-5);
    int moved = 0;
    llm__method_input(&j, &g, NULL);
    for (int i = 0; i < QF_FF; i++) moved += fabsf(w[i * QF_HIDDEN] / up[i] - 1) > 0.05f;
    if (!CHECK(!j.r && moved > 10)) printf("%s: %d rows of up have changed\n", method, moved);
    j.model->arch.act = LLM_ACT_SWIGLU_OAI;
    CHECK(!llm__fold(&j, &g, NULL) && llm__fold(&j, &o, NULL));
    j.model->arch.act = LLM_ACT_SILU;
    const llm__family *const own = j.model->arch.family;
    llm__family gte = *own;
    gte.names = "gte"; /* whose rows of up come first */
    j.model->arch.family = &gte;
    CHECK(!llm__fold(&j, &g, NULL) && llm__fold(&j, &o, NULL));
    j.model->arch.family = own;
    j.model->arch.v_norm = 1;
    CHECK(llm__fold(&j, &g, NULL) && !llm__fold(&j, &o, NULL));
    j.model->arch.v_norm = 0;
    for (int k = 0; k < 2; k++) {
        llm__tensor t = LLM__ZERO;
        t.type = LLM_TYPE_F32, t.n_dims = 1, t.shape[0] = k ? QF_HIDDEN : QF_FF;
        CHECK(!llm__tensors_add(&j.model->source.tensors, "m", llm__lit(between[k]), &t));
        CHECK(!llm__fold(&j, &g, NULL) && llm__fold(&j, &o, NULL) == !k);
    }
    free(inputs);
    llm__gram_close(&g);
    qf_job_close(&j);
}

/* Layers alone, one behind the other, give what the model gives as a whole: with 8 bits a matrix' rounding is hardly seen. */
static void qf_stream(const test_folder *f) {
    llm__qjob j;
    llm_quantize_folder_config c;
    if (!qf_job(&j, f, &c, "gptq")) return;
    j.out.part = f->path;
    for (j.layer = 0; j.layer < QF_LAYERS && !j.r; j.layer++) {
        LLM__SCOPED(llm__rounded_list_close) llm__rounded_list list = LLM__ZERO;
        llm__calibrated_layer(&j, &list);
        CHECK(!j.r && list.n == 7 && list.item[6].code);
        llm__qjob_forget(&j);
    }
    float x[QF_HIDDEN], sum = 0;
    CHECK(!fseeko(j.states[1], 5 * sizeof x, SEEK_SET) && fread(x, 1, sizeof x, j.states[1]) == sizeof x);
    for (int i = 0; i < QF_HIDDEN; i++) sum += fabsf(x[i]);
    CHECK(sum > 0 && sum < 1e4f);
    qf_job_close(&j);
}

/* A config that is refused, and why. */
static void qf_refuse(const test_folder *f, const llm_quantize_folder_config *c, const char *words) {
    const char *to = folder_file(f, "refused");
    const llm_result r = llm_quantize_folder(f->path, to, c, NULL);
    if (!CHECK(r && strstr(llm_last_error(), words))) printf("%s expected\n", words);
    CHECK(llm__path_kind_of(to) == LLM__PATH_NONE && llm__path_kind_of(folder_file(f, "refused.part")) == LLM__PATH_NONE);
}

static void qf_refusals(const test_folder *f) {
    static const struct {
        const char *method, *dtype, *ids;
        int group, bits, act, tp;
        float damp, alpha;
        const char *words;
    } bad[] = {{"int8", 0, 0, 0, 0, 0, 0, 0, -1, "quant_type: int8"},
               {"awq", "fp8", "1 2", 0, 0, 0, 0, 0, -1, "t: fp8, must be fp16 or bf16"},
               {"awq", 0, "1 2", 48, 0, 0, 0, 0, -1, "group_size: 48"},
               {"gptq", 0, "1 2", 64, 0, 0, 0, 0, -1, "group_size: 64 does not divide the 96 columns"},
               {"smooth_quant", 0, "1 2", 32, 0, 0, 0, 0, -1, "a scale a row"},
               {"awq", 0, "1 2", 0, 3, 0, 0, 0, -1, "bits: 3, must be 4 for awq"},
               {"gptq", 0, "1 2", 0, 5, 0, 0, 0, -1, "bits: 5, must be 2, 3, 4 or 8"},
               {"awq", 0, "1 2", 0, 0, 1, 0, 0, -1, "desc_act: it is for gptq"},
               {"gptq", 0, "1 2", 0, 0, 0, 0, 1.5f, -1, "damp: 1.5"},
               {"smooth_quant", 0, "1 2", 0, 0, 0, 0, 0, 1.5f, "sq: 1.5"},
               {"awq", 0, "1 2", 0, 0, 0, 0, 0, 0.5f, "sq: it is for smooth_quant"},
               {"awq", 0, "1 2", 0, 0, 0, 4, 0, -1, "attention heads (2) must be divisible"},
               {"awq", 0, "1 2 40", 0, 0, 0, 0, 0, -1, "line 1: token id 40, must be 0 to 39"},
               {"awq", 0, "1 2\n3,x", 0, 0, 0, 0, 0, -1, "line 2, column 3: a token id expected"},
               {"awq", 0, "[1, 2", 0, 0, 0, 0, 0, -1, "line 1: "},
               {"awq", 0, "[[1, 2], [3, \"a\"]]", 0, 0, 0, 0, 0, -1, "a list of token ids expected"},
               {"awq", 0, "3\n4\n", 0, 0, 0, 0, 0, -1, "no sequence of two tokens"}};
    for (int i = 0; i < LLM__COUNT(bad); i++) {
        llm_quantize_folder_config c = LLM__ZERO;
        c.method = bad[i].method, c.dtype = bad[i].dtype, c.group_size = bad[i].group, c.bits = bad[i].bits, c.desc_act = bad[i].act;
        c.damp = bad[i].damp, c.alpha = bad[i].alpha, c.alpha_given = bad[i].alpha >= 0, c.tensor_parallel_size = bad[i].tp;
        if (bad[i].ids) folder_write_text(f, "bad.txt", bad[i].ids), c.token_ids = folder_file(f, "bad.txt");
        qf_refuse(f, &c, bad[i].words);
    }
}

/* Ends it at the n-th call. */
static int qf_stop(void *user, const char *what, double done) {
    (void)what;
    CHECK(done >= 0 && done <= 1);
    return --*(int *)user == 0;
}

/* A folder, made in one go, and made in many. */
static void qf_resumed(const test_folder *f, const char *method) {
    char whole[100], many[100];
    LLM__SCOPED(llm__file_close) llm__file a = LLM__ZERO, b = LLM__ZERO;
    llm_quantize_folder_config c = LLM__ZERO;
    llm_text report = LLM__ZERO;
    int stop = 0, stops = 0;
    snprintf(whole, sizeof whole, "%s/whole_%s", f->path, method);
    snprintf(many, sizeof many, "%s/many_%s", f->path, method);
    c.method = method, c.token_ids = folder_file(f, "ids.txt"), c.n_threads = 2;
    CHECK(!llm_quantize_folder(f->path, whole, &c, &report) && strstr(report.data, "\"perplexity_after\": "));
    c.progress = qf_stop, c.progress_user = &stop;
    llm_result r = LLM_ERR_CANCELLED;
    for (int n = 1; n < 200 && r == LLM_ERR_CANCELLED; n++) {
        stop = n;
        r = llm_quantize_folder(f->path, many, &c, NULL);
        if (r) CHECK(llm__path_kind_of(many) == LLM__PATH_NONE);
        stops += r == LLM_ERR_CANCELLED;
    }
    CHECK(!r && stops > 3);
    char name[140];
    snprintf(name, sizeof name, "%s/model.safetensors", whole);
    const int first = !llm__file_open(name, 0, 1, &a);
    snprintf(name, sizeof name, "%s/model.safetensors", many);
    CHECK(first && !llm__file_open(name, 0, 1, &b) && a.size == b.size && !memcmp(a.data, b.data, a.size));
    snprintf(name, sizeof name, "%s/state.json", many);
    CHECK(llm__path_kind_of(name) == LLM__PATH_NONE);
    llm_text_free(&report);
}

TEST_GROUP(quant_folder) {
    test_folder f, shards;
    llm__isa isa;
    qf_pool = llm__pool_open(2);
    if (!CHECK(!llm__isa_find(NULL, &isa))) return;
    qf_kernels = llm__kernels_of(isa);
    for (int bits = 2; bits <= 8; bits++)
        if (bits < 5 || bits == 8) qf_layouts(bits);
    if (folder_open(&shards)) {
        qf_shards(&shards);
        folder_close(&shards);
    }
    qf_gram();
    if (folder_open(&f)) {
        qf_model(&f);
        qf_methods(&f, "gptq");
        qf_methods(&f, "awq");
        qf_smooth(&f);
        qf_down(&f, "awq");
        qf_down(&f, "smooth_quant");
        qf_stream(&f);
        qf_refusals(&f);
        for (int i = 0; i < 4; i++) qf_resumed(&f, llm__method_name((llm__method)i));
        folder_close(&f);
    }
    llm__pool_close(qf_pool);
}
