/* GGUF files as folders: a folder as GGUF and back has the same tensors to the bit, and the settings that it had; of one that is cancelled at any moment, or
 * cannot be, nothing is left; quantize and convert the same. */
#include "../folder.h"
#include "api/quantize.h"
#include "api/json.h"
#include "base/files.h"
#include "base/json.h"
#include "model/loader.h"
#include "model/tensors.h"
#include "quant/revert_config.h"
#include "quant/revert_vocab.h"

/* Numbers and switches of two config.json that both have are equal. Returns how many. */
static int rev_settings(const llm_json *was, const llm_json *is, const char *family) {
    int n = 0;
    for (int v = llm_json_first(was, 0); v >= 0; v = llm_json_next(was, v)) {
        const llm__str key = llm__json_key(was, v);
        char name[64];
        double a, b;
        int p, q;
        snprintf(name, sizeof name, "%.*s", (int)key.n, key.p);
        const int other = strcmp(name, "eos_token_id") ? llm_json_find(is, 0, name) : -1; /* generation_config.json may have more of them */
        if (llm_json_num(was, v, &a) && llm_json_num(is, other, &b)) {
            n++;
            if (!CHECK(fabs(a - b) <= 1e-6 * fabs(a))) printf("  %s: %s: %g, was %g\n", family, name, b, a);
        } else if (llm_json_bool(was, v, &p) && llm_json_bool(is, other, &q)) {
            n++;
            if (!CHECK(p == q)) printf("  %s: %s: %d, was %d\n", family, name, q, p);
        }
    }
    return n;
}

/* Tensors of the first folder that the second has to the bit; all of them are wanted. */
static void rev_tensors(const char *folder, const char *made, const char *family) {
    llm_model *a = NULL, *b = NULL;
    int wrong = 0;
    if (CHECK(!llm_model_open(folder, NULL, &a) && !llm_model_open(made, NULL, &b))) {
        const llm__tensors *t = &a->source.tensors;
        size_t behind = 0; /* of layers behind the last, which GGUF files of this kind leave out */
        for (size_t i = 0; i < t->n; i++) {
            char next[40];
            snprintf(next, sizeof next, "model.layers.%d.", a->arch.n_layers);
            if (strstr(t->item[i].name.p, next) && ++behind) continue;
            const llm__tensor *x = &t->item[i], *y = llm__tensors_find(&b->source.tensors, x->name.p);
            const int same = y && y->type == x->type && y->bytes == x->bytes && !memcmp(x->data, y->data, (size_t)x->bytes);
            if (!same && !wrong++) printf("  %s: %s is another, or missing\n", family, x->name.p);
        }
        CHECK(!wrong && b->source.tensors.n + behind == t->n);
        CHECK(rev_settings(a->source.config, b->source.config, family) >= 8);
        CHECK(a->source.bos_id == b->source.bos_id && a->source.eos_id == b->source.eos_id &&
              a->source.stop_ids.len == b->source.stop_ids.len);
    }
    llm_model_close(a);
    llm_model_close(b);
}

/* Ends at the n-th time it is told. */
static int rev_progress(void *user, const char *what, double done) {
    (void)what, (void)done;
    return --*(int *)user == 0;
}

static int rev_nothing(const test_folder *f, const char *name) {
    char part[80];
    snprintf(part, sizeof part, "%s.part", name);
    return llm__path_kind_of(folder_file(f, name)) == LLM__PATH_NONE && llm__path_kind_of(folder_file(f, part)) == LLM__PATH_NONE;
}

/* Cancelled at every moment that it tells of: quantizing, converting, and back. */
static void rev_cancelled(const test_folder *f, const char *gguf) {
    static const char *const types[] = {"q8_0", "auto", "bf16"};
    for (int way = 0; way < 3; way++) {
        llm_result r = LLM_ERR_CANCELLED;
        int times = 0;
        for (int stop = 1; r == LLM_ERR_CANCELLED && stop < 500; stop += way < 2 ? 3 : 1, times++) {
            llm_quantize_config c = LLM__ZERO;
            int left = stop;
            char out[100];
            snprintf(out, sizeof out, "%s/out", f->path);
            c.type = types[way], c.progress = rev_progress, c.progress_user = &left, c.n_threads = 1;
            r = way < 2 ? llm_quantize(TEST_CHECKPOINT("llama"), out, &c, NULL) : llm_convert_folder(gguf, out, &c, NULL);
            CHECK(r ? r == LLM_ERR_CANCELLED && rev_nothing(f, "out") : llm__path_kind_of(out) != LLM__PATH_NONE);
        }
        CHECK(!r && times > 5 && !llm__path_remove(folder_file(f, "out")));
    }
}

static void rev_refused(const test_folder *f, const char *gguf) {
    char out[100];
    llm_quantize_config c = LLM__ZERO;
    snprintf(out, sizeof out, "%s/new", f->path);
    CHECK(llm_convert_folder(gguf, f->path, NULL, NULL) == LLM_ERR_ARG && strstr(llm_last_error(), "there already"));
    CHECK(llm_convert_folder(TEST_CHECKPOINT("llama"), out, NULL, NULL) == LLM_ERR_ARG && strstr(llm_last_error(), "a folder already"));
    CHECK(llm_convert_folder("", out, NULL, NULL) == LLM_ERR_ARG && llm_convert_folder(gguf, NULL, NULL, NULL) == LLM_ERR_ARG);
    c.type = "q8_0";
    CHECK(llm_convert_folder(gguf, out, &c, NULL) == LLM_ERR_ARG && strstr(llm_last_error(), "q8_0, one of auto, f32, f16, bf16"));
    c.type = "BF16";
    CHECK(llm_convert_folder(gguf, folder_file(f, "none/new"), &c, NULL) == LLM_ERR_IO);
    CHECK(!mkdir(folder_file(f, "new.part"), 0700) && llm_convert_folder(gguf, out, &c, NULL) == LLM_ERR_ARG);
    CHECK(!rmdir(folder_file(f, "new.part")) && rev_nothing(f, "new"));
}

TEST_GROUP(revert) {
    static const char *const families[] = {"llama",   "gemma3_text",  "qwen2_moe",  "deepseek_v3", "phi3_longrope",
                                           "mixtral", "ernie4_5_moe", "starcoder2", "glm4",        "llama_rope_llama3"};
    test_folder f;
    if (!folder_open(&f)) return;
    for (int i = 0; i < LLM__COUNT(families); i++) {
        char folder[80], gguf[100], out[100];
        llm_quantize_config c = LLM__ZERO;
        llm_model *m = NULL;
        llm_text config = LLM__ZERO, words = LLM__ZERO;
        llm_json *doc = NULL;
        snprintf(folder, sizeof folder, "build/checkpoints/%s", families[i]);
        snprintf(gguf, sizeof gguf, "%s/a.gguf", f.path);
        snprintf(out, sizeof out, "%s/back", f.path);
        c.type = "auto", c.n_threads = 1;
        if (!CHECK(!llm_quantize(folder, gguf, &c, NULL) && !llm_model_open(gguf, NULL, &m))) continue;
        const char *type = llm__revert_family(m);
        CHECK(type && !strncmp(families[i], type, strlen(type)));
        CHECK(!llm__revert_config(m, "bfloat16", &config) && !llm_json_parse(config.data, config.len, NULL, &doc));
        llm_json_free(doc);
        CHECK(!llm__revert_tokenizer(m, &words) && !llm_json_parse(words.data, words.len, NULL, &doc));
        llm_json_free(doc);
        llm_text_free(&config);
        llm_text_free(&words);
        llm_model_close(m);
        llm_text report = LLM__ZERO;
        if (!CHECK(!llm_convert_folder(gguf, out, NULL, &report) && strstr(report.data, type)))
            printf("  %s: %s\n", families[i], llm_last_error());
        llm_text_free(&report);
        rev_tensors(folder, out, families[i]);
        CHECK(!llm__path_remove(out));
        if (!i) rev_cancelled(&f, gguf), rev_refused(&f, gguf);
    }
    folder_close(&f);
}
