/* What linear layers are told to be fed with, held against what the same model's layers give and the plain products of their tensors; and
 * importance matrices of it. */
#include "../folder.h"
#include "api/quantize.h"
#include "base/files.h"
#include "base/save.h"
#include "model/imatrix.h"
#include "model/gguf_write.h"
#include "model/loader.h"
#include "model/tensors.h"
#include "engine/calibrate.h"

enum { CAL_ROWS = 24, CAL_LINEARS = 64, CAL_WIDE = 512 };

/* What "linear" has given, by the name of its weight. */
typedef struct cal_seen {
    struct {
        char name[96];
        int32_t rows, cols;
        float *values;
    } linear[CAL_LINEARS];
    int n, checked, wrong, experts, latents;
    const llm_model *model;
    int32_t routed; /* rows of all experts' second layers */
    float *gate_up; /* what the latest expert's first layer was given */
    int32_t gate_up_rows;
    const llm__tensor *gate, *up;
} cal_seen;

static void cal_watch(void *user, const llm_trace *t) {
    cal_seen *s = (cal_seen *)user;
    if (strcmp(t->op, "linear") || s->n == CAL_LINEARS || !t->weight) return;
    snprintf(s->linear[s->n].name, sizeof s->linear[0].name, "%s", t->weight);
    s->linear[s->n].rows = t->rows, s->linear[s->n].cols = t->cols;
    s->linear[s->n].values = (float *)malloc((size_t)t->rows * (size_t)t->cols * sizeof(float));
    for (int32_t r = 0; r < t->rows; r++)
        memcpy(s->linear[s->n].values + r * t->cols, t->values + r * t->stride, (size_t)t->cols * sizeof(float));
    s->n++;
}

/* Row o of a tensor times x. */
static double cal_product(const llm__tensor *t, int64_t o, const float *x) {
    const int64_t cols = t->shape[t->n_dims - 1];
    float w[CAL_WIDE];
    double sum = 0;
    llm__tensor_values(t, o, cols, 0, cols, w);
    for (int64_t i = 0; i < cols; i++) sum += (double)w[i] * (double)x[i];
    return sum;
}

static double cal_silu(double g) { return g / (1 + exp(-g)); }

/* A dense layer: its tensors times the input are what the layer has given. */
static void cal_dense(cal_seen *s, const llm__fed *fed) {
    int at = 0;
    while (at < s->n && strcmp(s->linear[at].name, fed->tensor[0]->name.p) &&
           !(fed->n_tensors > 1 && !strcmp(s->linear[at].name, fed->tensor[1]->name.p)))
        at++;
    if (at == s->n || (strstr(fed->tensor[0]->name.p, "shared") && strstr(fed->tensor[0]->name.p, "down_proj")))
        return; /* added to others */
    for (int32_t r = 0; r < fed->rows; r++)
        for (int32_t o = 0; o < LLM__MIN(s->linear[at].cols, 8); o++) {
            const float *x = fed->x + r * fed->stride;
            double want = cal_product(fed->tensor[0], o, x);
            if (fed->n_tensors == 2) want = cal_silu(want) * cal_product(fed->tensor[1], o, x);
            const double got = (double)s->linear[at].values[r * s->linear[at].cols + o];
            s->wrong += !(fabs(got - want) <= 2e-2 * (1 + fabs(want)));
            s->checked++;
        }
}

/* An expert: what its second layer is given is what the first gives of its own input. */
static void cal_expert(cal_seen *s, const llm__fed *fed) {
    s->experts++;
    if (fed->n_tensors == 2) {
        free(s->gate_up);
        s->gate_up = (float *)malloc((size_t)fed->rows * (size_t)fed->cols * sizeof(float));
        s->gate_up_rows = fed->rows, s->gate = fed->tensor[0], s->up = fed->tensor[1];
        for (int32_t r = 0; r < fed->rows; r++)
            memcpy(s->gate_up + r * fed->cols, fed->x + r * fed->stride, (size_t)fed->cols * sizeof(float));
        return;
    }
    s->routed += fed->rows;
    s->wrong += fed->rows != s->gate_up_rows || fed->n_tensors != 1;
    const int64_t cols = s->gate->shape[s->gate->n_dims - 1];
    for (int32_t r = 0; r < LLM__MIN(fed->rows, s->gate_up_rows); r++)
        for (int32_t o = 0; o < LLM__MIN(fed->cols, 8); o++) {
            const float *x = s->gate_up + r * cols;
            const double want = cal_silu(cal_product(s->gate, o, x)) * cal_product(s->up, o, x);
            s->wrong += !(fabs((double)fed->x[r * fed->stride + o] - want) <= 2e-2 * (1 + fabs(want)));
            s->checked++;
        }
}

static llm_result cal_fed(void *user, const llm__fed *fed) {
    cal_seen *s = (cal_seen *)user;
    s->wrong += fed->cols != fed->tensor[0]->shape[fed->tensor[0]->n_dims - 1] || fed->rows < 1 || fed->rows > CAL_ROWS;
    for (int32_t r = 0; r < fed->rows; r++)
        for (int32_t c = 0; c < fed->cols; c++) s->wrong += !isfinite(fed->x[r * fed->stride + c]);
    if (strstr(fed->tensor[0]->name.p, "kv_b_proj")) { /* normalised: without the norm's weights the mean square is 1 */
        char name[100];
        snprintf(name, sizeof name, "%.*s%s", (int)(strstr(fed->tensor[0]->name.p, "kv_b_proj") - fed->tensor[0]->name.p),
                 fed->tensor[0]->name.p, "kv_a_layernorm.weight");
        const llm__tensor *norm = llm__tensors_find(&s->model->source.tensors, name);
        float w[CAL_WIDE];
        double sum = 0;
        if (!CHECK(norm != NULL)) return LLM_OK;
        llm__tensor_values(norm, 0, fed->cols, 0, fed->cols, w);
        for (int32_t c = 0; c < fed->cols; c++) sum += pow((double)fed->x[c] / (double)w[c], 2);
        s->wrong += !(fabs(sum / fed->cols - 1) < 1e-2);
        s->latents++;
    } else if (fed->experts_own) cal_expert(s, fed);
    else cal_dense(s, fed);
    return LLM_OK;
}

/* Two chunks of a model; the second is the one that is watched. */
static void cal_family(const char *name) {
    static cal_seen seen;
    int32_t ids[2 * CAL_ROWS];
    const int32_t first = 0, count = CAL_ROWS;
    char path[100];
    llm_model *m = NULL;
    llm_engine *e = NULL;
    llm_engine_config c = LLM__ZERO;
    llm__calibration_config cal = LLM__ZERO;
    memset(&seen, 0, sizeof seen);
    for (int i = 0; i < 2 * CAL_ROWS; i++) ids[i] = i < CAL_ROWS ? 3 + i * 7 % 50 : ids[i - CAL_ROWS]; /* twice the same */
    snprintf(path, sizeof path, TEST_CHECKPOINT("%s"), name);
    if (!CHECK(!llm_model_open(path, NULL, &m))) return;
    c.n_threads = 2, c.max_model_len = 64, c.max_num_seqs = CAL_ROWS;
    c.trace = cal_watch, c.trace_user = &seen;
    float *logits = (float *)calloc((size_t)llm_model_get_info(m)->vocab_size * 2 * CAL_ROWS, sizeof *logits);
    if (CHECK(!llm_engine_open(m, &c, &e))) CHECK(!llm_forward(e, first, 0, ids, count, logits, count)); /* all rows to the end */
    llm_engine_close(e);
    seen.model = m;
    cal.model = m, cal.n_threads = 2, cal.ids = ids, cal.n = 2 * CAL_ROWS, cal.chunk = CAL_ROWS, cal.fn = cal_fed, cal.user = &seen;
    cal.doing = "testing";
    const llm_model_info *info = llm_model_get_info(m);
    CHECK(!llm__calibrate(&cal));
    if (!CHECK(!seen.wrong && seen.checked > 100)) printf("%s: %d wrong of %d\n", name, seen.wrong, seen.checked);
    CHECK((seen.experts > 0) == (info->n_experts > 0) && (seen.latents > 0) == (strstr(name, "deepseek") != NULL));
    if (!strcmp(name, "mixtral")) CHECK(seen.routed == 2 * CAL_ROWS * info->n_layers * info->n_experts_used);
    for (int i = 0; i < seen.n; i++) free(seen.linear[i].values);
    free(seen.gate_up);
    free(logits);
    llm_model_close(m);
}

/* A file with two entries, of matrices (2, 3) with counts of their own and (1, 3); `sum` stands in the first. */
static void cal_file(const test_folder *f, const char *name, float sum, float count, int64_t counts, int twice) {
    LLM__SCOPED(llm_text_free) llm_text keys = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text tensors = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text head = LLM__ZERO;
    const int64_t a[2] = {2, 3}, b[2] = {counts, 1}, one[2] = {1, 3}, single[2] = {1, 1};
    const float x[6] = {sum, 4, 6, 0, 0, 0}, n[8] = {count, 0}, y[3] = {9, 0, 27}, k[1] = {9};
    uint64_t at = 0;
    llm__gguf_put_str(&keys, "general.type", llm__lit("imatrix"));
    llm__gguf_put_int(&keys, "imatrix.chunk_count", 5);
    llm__gguf_put_array(&keys, "imatrix.datasets", LLM__GGUF_STR, 1);
    llm__gguf_put_text(&keys, llm__lit("a text"));
    llm__gguf_put_tensor(&tensors, llm__lit("blk.0.ffn_up_exps.weight.in_sum2"), 2, a, LLM_TYPE_F32, &at);
    llm__gguf_put_tensor(&tensors, llm__lit("blk.0.ffn_up_exps.weight.counts"), 2, b, LLM_TYPE_F32, &at);
    llm__gguf_put_tensor(&tensors, llm__lit("blk.0.attn_q.weight.in_sum2"), 2, one, LLM_TYPE_F32, &at);
    llm__gguf_put_tensor(&tensors, llm__lit(twice ? "blk.0.attn_k.weight.counts" : "blk.0.attn_q.weight.counts"), 2, single, LLM_TYPE_F32,
                         &at);
    llm__gguf_put_head(&head, &keys, 3, &tensors, 4);
    const struct {
        const float *v;
        size_t n;
    } parts[] = {{x, 6}, {n, (size_t)counts}, {y, 3}, {k, 1}};
    for (int i = 0; i < 4; i++) {
        llm_text_add(&head, (const char *)parts[i].v, parts[i].n * 4);
        while (head.len % LLM__GGUF_ALIGN) llm_text_add(&head, "", 1);
    }
    folder_write(f, name, head.data, head.len);
}

static void cal_refuse(const test_folder *f, const char *name, const char *words) {
    LLM__SCOPED(llm__imatrix_free) llm__imatrix m = LLM__ZERO;
    const llm_result r = llm__imatrix_read(folder_file(f, name), &m);
    if (!CHECK(r && strstr(llm_last_error(), words))) printf("%s: %d \"%s\", expected \"%s\"\n", name, (int)r, llm_last_error(), words);
}

/* What is read is what was written, in both forms; what is cut off or wrong is refused. */
static void cal_files(void) {
    test_folder f;
    LLM__SCOPED(llm__imatrix_free) llm__imatrix m = LLM__ZERO;
    LLM__SCOPED(llm__imatrix_free) llm__imatrix old = LLM__ZERO;
    float w[3];
    if (!folder_open(&f)) return;
    cal_file(&f, "m.gguf", 2, 2, 2, 0);
    if (CHECK(!llm__imatrix_read(folder_file(&f, "m.gguf"), &m) && m.n == 2 && m.n_chunks == 5 && llm__str_eq(m.dataset, "a text"))) {
        const llm__imatrix_entry *e = llm__imatrix_find(&m, "blk.0.ffn_up_exps.weight"), *q = llm__imatrix_find(&m, "blk.0.attn_q.weight");
        CHECK(e && q && !llm__imatrix_find(&m, "blk.0.attn_k.weight") && e->n_counts == 2 && q->n == 3);
        CHECK(e && !llm__imatrix_weights("m", e, 0, 2, 3, w) && w[0] == 1 && w[1] == 2 && w[2] == 3);
        CHECK(e && !llm__imatrix_weights("m", e, 1, 2, 3, w) && w[0] == 1 && w[1] == 1 && w[2] == 1); /* no token came to it */
        CHECK(q && !llm__imatrix_weights("m", q, 0, 1, 3, w) && w[0] == 1 && w[1] > 0 && w[1] < 1e-5f && w[2] == 3);
        CHECK(q && llm__imatrix_weights("m", q, 0, 1, 4, w) == LLM_ERR_FORMAT && strstr(llm_last_error(), "made of another model"));
    }
    LLM__SCOPED(llm__file_close) llm__file whole = LLM__ZERO;
    CHECK(!llm__file_open(folder_file(&f, "m.gguf"), 0, 1, &whole));
    for (size_t n = 0; n < whole.size - 28; n++) { /* cut anywhere, but for the zeros at the end */
        LLM__SCOPED(llm__imatrix_free) llm__imatrix cut = LLM__ZERO;
        folder_write(&f, "cut.gguf", whole.data, n);
        CHECK(llm__imatrix_read(folder_file(&f, "cut.gguf"), &cut) != LLM_OK);
    }
    const int32_t dat[] = {1, 3, 0, 2, 2, 0x40800000, 0x41000000}; /* "abc": called twice, 4 and 8 */
    char bytes[sizeof dat];
    size_t at = 0;
    for (int i = 0; i < LLM__COUNT(dat); i++) {
        if (i == 2) memcpy(bytes + at, "abc", 3), at += 3;
        else memcpy(bytes + at, &dat[i], 4), at += 4;
    }
    folder_write(&f, "m.dat", bytes, at);
    if (CHECK(!llm__imatrix_read(folder_file(&f, "m.dat"), &old) && old.n == 1)) {
        const llm__imatrix_entry *e = llm__imatrix_find(&old, "abc");
        CHECK(e && e->n == 2 && e->mean[0] == 2 && e->mean[1] == 4);
    }
    for (size_t n = 0; n < at; n++) {
        LLM__SCOPED(llm__imatrix_free) llm__imatrix cut = LLM__ZERO;
        folder_write(&f, "cut.dat", bytes, n);
        CHECK(llm__imatrix_read(folder_file(&f, "cut.dat"), &cut) != LLM_OK);
    }
    cal_file(&f, "nan.gguf", NAN, 2, 2, 0);
    cal_refuse(&f, "nan.gguf", "a sum of squares expected");
    cal_file(&f, "minus.gguf", -1, 2, 2, 0);
    cal_refuse(&f, "minus.gguf", "value 0 is -1 of 2 rows");
    cal_file(&f, "count.gguf", 1, INFINITY, 2, 0);
    cal_refuse(&f, "count.gguf", "a sum of squares expected");
    cal_file(&f, "many.gguf", 1, 1, 4, 0);
    cal_refuse(&f, "many.gguf", "6 values of 4 matrices");
    cal_file(&f, "apart.gguf", 1, 1, 2, 1);
    cal_refuse(&f, "apart.gguf", "F32 sums and counts expected");
    folder_write_text(&f, "text", "no matrix at all, but a text of some length");
    cal_refuse(&f, "text", "no importance matrix");
    cal_refuse(&f, "none", "no such file");
    folder_close(&f);
}

/* Of a mixture: every expert's own counts; the sums are those of what layers were given. */
static void cal_matrix(void) {
    test_folder f;
    llm_model *m = NULL;
    llm_text text = LLM__ZERO, report = LLM__ZERO;
    llm_quantize_config c = LLM__ZERO;
    LLM__SCOPED(llm__imatrix_free) llm__imatrix made = LLM__ZERO;
    if (!folder_open(&f)) return;
    if (CHECK(!llm_model_open(TEST_CHECKPOINT("mixtral"), NULL, &m))) {
        for (int i = 0; i < 60; i++) llm_text_format(&text, "the %d sun rose %d and set. ", i, 7 * i);
        c.n_threads = 2, c.calibration_tokens = 32, c.calibration_chunks = 3, c.calibration_name = "suns";
        CHECK(!llm_imatrix(m, text.data, text.len, folder_file(&f, "i.gguf"), &c, &report));
        CHECK(report.data && strstr(report.data, "\"n_tokens\": 96, \"n_chunks\": 3, \"chunk\": 32"));
        if (CHECK(!llm__imatrix_read(folder_file(&f, "i.gguf"), &made))) {
            const llm_model_info *info = llm_model_get_info(m);
            const llm__imatrix_entry *e = llm__imatrix_find(&made, "blk.0.ffn_down_exps.weight"),
                                     *q = llm__imatrix_find(&made, "blk.1.attn_k.weight");
            CHECK(made.n == 8 * (size_t)info->n_layers && made.n_chunks == 3 && made.chunk == 32); /* q k v o router gate up down */
            CHECK(e && e->n_counts == info->n_experts && q && q->n == info->hidden_size && q->n_counts == 1);
            c.imatrix = folder_file(&f, "i.gguf"), c.type = "q4_0", c.pure = 1;
            CHECK(!llm_quantize(TEST_CHECKPOINT("mixtral"), folder_file(&f, "q.gguf"), &c, &report) &&
                  strstr(report.data, "'n_unweighted': 0") == NULL && strstr(report.data, "\"n_unweighted\": 0"));
            CHECK(llm_quantize(TEST_CHECKPOINT("gemma2"), folder_file(&f, "q2.gguf"), &c, NULL) == LLM_ERR_FORMAT &&
                  !test_exists(folder_file(&f, "q2.gguf")));
        }
        CHECK(llm_imatrix(m, "", 0, folder_file(&f, "i.gguf"), &c, NULL) == LLM_ERR_ARG &&
              llm_imatrix(m, "a", 1, "", &c, NULL) == LLM_ERR_ARG);
        CHECK(llm_imatrix(m, "a", 1, f.path, &c, NULL) == LLM_ERR_ARG && strstr(llm_last_error(), "a folder"));
        CHECK(llm_imatrix(m, text.data, text.len, folder_file(&f, "none/i.gguf"), &c, NULL) == LLM_ERR_IO);
    }
    llm_model_close(m);
    llm_text_free(&text);
    llm_text_free(&report);
    folder_close(&f);
}

TEST_GROUP(calibrate) {
    static const char *const names[] = {"llama", "mixtral", "deepseek_v2_lite", "ernie4_5_moe", "phi3"};
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints")) return;
    for (int i = 0; i < LLM__COUNT(names); i++) cal_family(names[i]);
    cal_files();
    cal_matrix();
}
