/* The Hugging Face Hub: names, the choice of files, the cache, children. What comes over a network is tested by tests/e2e/test_pull.py. */
#include "../test.h"
#include "../folder.h"
#include "base/platform.h"
#include "base/child.h"
#include "base/files.h"
#include "base/text.h"
#include "api/hub.h"
#include "serve/cached.h"
#include "serve/pull.h"

/* The files that are chosen among `names`, with blanks between; "!" and the sentence where none are. The first of them is in *first. */
static const char *pull_choice(const char *name, const char *const *names, const char **first) {
    static char out[600];
    llm__hub_file files[16];
    llm__hub_name parsed;
    int n = 0, at = -1;
    memset(files, 0, sizeof files);
    for (; names[n]; n++) files[n].name = names[n];
    *out = 0;
    if (llm__hub_parse(name, &parsed) || llm__hub_choose(&parsed, files, n, &at)) {
        snprintf(out, sizeof out, "!%s", llm_last_error());
        return out;
    }
    *first = at < 0 ? "." : files[at].name;
    for (int i = 0; i < n; i++)
        if (files[i].chosen) snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", *out ? " " : "", files[i].name);
    return out;
}

static void pull_choose(void) {
    static const char *const gguf[] = {"README.md",
                                       "config.json",
                                       "m-F16.gguf",
                                       "m-IQ4_XS.gguf",
                                       "m-Q4_K_M-00002-of-00002.gguf",
                                       "m-Q4_K_M-00001-of-00002.gguf",
                                       "m-Q4_K_S.gguf",
                                       "m.q8_0.gguf",
                                       "mmproj-Q4_K_M.gguf",
                                       "sub/m_BF16.gguf",
                                       NULL};
    static const char *const small[] = {"b.Q8_0.gguf", "b.Q4_0.gguf", NULL}, *const odd[] = {"x.gguf", "w.gguf", NULL};
    static const char *const lost[] = {"a-Q4_K_M-00001-of-00003.gguf", "a-Q4_K_M-00003-of-00003.gguf", NULL}, *const none[] = {"README.md",
                                                                                                                               "a.bin",
                                                                                                                               NULL};
    static const char *const folder[] = {"1_Pooling/config.json",
                                         "README.md",
                                         "config.json",
                                         "consolidated.safetensors",
                                         "model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors",
                                         "merges.txt",
                                         "chat_template.jinja",
                                         "onnx/config.json",
                                         "pytorch_model.bin",
                                         "tokenizer.model",
                                         "w-F32.gguf",
                                         NULL};
    static const char *const two = "m-Q4_K_M-00002-of-00002.gguf m-Q4_K_M-00001-of-00002.gguf mmproj-Q4_K_M.gguf";
    static const char *const seeing[] = {
        "a/m-Q8_0.gguf", "a/mmproj-F16.gguf", "b/m-Q4_K_M.gguf", "mmproj-BF16.gguf", "mmproj-Q8_0.gguf", "b/c/mmproj-Q4_0.gguf", NULL};
    static const char *const old[] = {
        "config.json", "optimizer.bin", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json", "sub/pytorch_model.bin", NULL};
    const struct {
        const char *name, *const *files, *want, *first;
    } rows[] = {{"o/m", gguf, two, "m-Q4_K_M-00001-of-00002.gguf"},
                {"o/m:q4_k_m", gguf, two, "m-Q4_K_M-00001-of-00002.gguf"},
                {"o/m:Q8_0", gguf, "m.q8_0.gguf mmproj-Q4_K_M.gguf", "m.q8_0.gguf"},
                {"o/m:bf16", gguf, "mmproj-Q4_K_M.gguf sub/m_BF16.gguf", "sub/m_BF16.gguf"},
                {"o/m:F16", gguf, "m-F16.gguf mmproj-Q4_K_M.gguf", "m-F16.gguf"},
                {"o/m:sub/m_BF16.gguf", gguf, "mmproj-Q4_K_M.gguf sub/m_BF16.gguf", "sub/m_BF16.gguf"},
                {"o/m", seeing, "b/m-Q4_K_M.gguf mmproj-Q8_0.gguf", "b/m-Q4_K_M.gguf"}, /* the nearest in bits, not one of another folder */
                {"o/m:Q8_0", seeing, "a/m-Q8_0.gguf a/mmproj-F16.gguf", "a/m-Q8_0.gguf"}, /* the nearest in place */
                {"o/m:K_M", gguf, "!o/m: K_M is not there; there are: F16, IQ4_XS, Q4_K_M, Q4_K_S, q8_0, m_BF16", NULL},
                {"o/m:4_XS", gguf, "!o/m: 4_XS is not there; there are: F16, IQ4_XS, Q4_K_M, Q4_K_S, q8_0, m_BF16", NULL},
                {"o/m", small, "b.Q8_0.gguf", "b.Q8_0.gguf"},
                {"o/m", odd, "x.gguf", "x.gguf"},
                {"o/m", lost, "!o/m: a-Q4_K_M-00001-of-00003.gguf: 2 of 3 parts are there", NULL},
                {"o/m", none, "!o/m: there are neither GGUF files nor safetensors nor pytorch_model.bin", NULL},
                {"o/m", old, "config.json pytorch_model-00001-of-00002.bin pytorch_model.bin.index.json", NULL},
                {"o/m:Q8_0", none, "!o/m: Q8_0 is not there; there are: no GGUF files", NULL},
                {"o/m", folder,
                 "1_Pooling/config.json config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors merges.txt "
                 "chat_template.jinja tokenizer.model",
                 "."},
                {"o/m:F32", folder, "w-F32.gguf", "w-F32.gguf"}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        const char *first = NULL, *got = pull_choice(rows[i].name, rows[i].files, &first);
        if (!CHECK(!strcmp(got, rows[i].want) && (!rows[i].first || !strcmp(first, rows[i].first))))
            printf("  %s: %s\n", rows[i].name, got);
    }
}

static void pull_names(void) {
    llm__hub_name n;
    CHECK(!llm__hub_parse("a/b:Q8_0@v1", &n) && !strcmp(n.bare, "a/b") && !strcmp(n.folder, "models--a--b") && !strcmp(n.quant, "Q8_0") &&
          !strcmp(n.revision, "v1"));
    CHECK(!llm__hub_parse("gpt2", &n) && !strcmp(n.folder, "models--gpt2") && !*n.quant && !strcmp(n.revision, "main"));
    static const char *const bad[] = {"",     ":",     "@",        "a/b:",  "a/b@",    "a/b:@x",   "../b",
                                      "a/..", "a/b/c", "a/b@../c", "a b/c", "a/b:x y", "a/b:x\ny", "a/b@x:y"};
    for (int i = 0; i < LLM__COUNT(bad); i++) CHECK(llm__hub_parse(bad[i], &n) == LLM_ERR_ARG);
    CHECK(llm__hub_parse(NULL, &n) == LLM_ERR_ARG);
    static const char *const good[] = {"a", "a/b.c", "a b", ".gitattributes", "\xc3\xa4"};
    static const char *const evil[] = {"", "/a", "a/", "../a", "a/../b", "a//b", "./a", "a/./b", "a\\b", "a\nb", "a\x7f"};
    for (int i = 0; i < LLM__COUNT(good); i++) CHECK(llm__hub_file_name(good[i]));
    for (int i = 0; i < LLM__COUNT(evil); i++) CHECK(!llm__hub_file_name(evil[i]));
}

static int pull_stop(void *user) { return ++*(int *)user > 2; }

/* Programs are run with what they are given and nothing else, and end when they are told to. */
static void pull_child(void) {
    static const char *const cat[] = {"cat", NULL}, *const env[] = {"env", NULL}, *const sleep[] = {"sleep", "60", NULL},
                             *const no[] = {"/no/such", NULL};
    static const char *const fails[] = {"sh", "-c", "exit 7", NULL}, *const own[] = {"A=b", NULL};
    LLM__SCOPED(llm_text_free) llm_text out = LLM__ZERO;
    int code = 0, ticks = 0;
    llm__child c = {cat, own, llm__s("a\0b", 3), 0, 0, 100, NULL, NULL, 0};
    CHECK(!llm__child_run(&c, &out, &code) && !code && out.len == 3 && !memcmp(out.data, "a\0b", 3));
    c.limit = 2;
    CHECK(llm__child_run(&c, &out, &code) == LLM_ERR_LIMIT);
    c.limit = 100, c.argv = env, out.len = 0;
    CHECK(!llm__child_run(&c, &out, &code) && out.len == 4 && !memcmp(out.data, "A=b\n", 4));
    c.argv = fails;
    CHECK(!llm__child_run(&c, &out, &code) && code == 7);
    c.argv = no;
    CHECK(llm__child_run(&c, &out, &code) == LLM_ERR_IO && strstr(llm_last_error(), "/no/such"));
    c.argv = sleep, c.tick = pull_stop, c.user = &ticks;
    const double start = llm__now();
    CHECK(llm__child_run(&c, &out, &code) == LLM_ERR_CANCELLED && llm__now() - start < 30);
}

/* What is in the cache whole is opened from there; its list; what is removed. */
static void pull_cache(void) {
    static const char *const folders[] = {"models--o--m/refs/x", "models--o--m/blobs/x", "models--o--m/snapshots/c0/x",
                                          ".locks/models--o--m/x"};
    test_folder f;
    LLM__SCOPED(llm_text_free) llm_text path = LLM__ZERO, json = LLM__ZERO;
    if (!folder_open(&f)) return;
    for (int i = 0; i < LLM__COUNT(folders); i++) CHECK(!llm__folders_for(folder_file(&f, folders[i])));
    folder_write_text(&f, "models--o--m/refs/main", "c0");
    folder_write_text(&f, "models--o--m/blobs/aa", "four");
    CHECK(!symlink("../../blobs/aa", folder_file(&f, "models--o--m/snapshots/c0/m-Q8_0.gguf")));
    CHECK(!symlink("../../blobs/bb", folder_file(&f, "models--o--m/snapshots/c0/m-Q4_0.gguf"))); /* its bytes are gone */
    CHECK(!llm__hub_local(f.path, "o/m", 1, &path) && strstr(path.data, "c0/m-Q8_0.gguf"));
    path.len = 0;
    CHECK(!llm__hub_get("o/m:q8_0", f.path, NULL, NULL, NULL, &path) && strstr(path.data, "c0/m-Q8_0.gguf"));
    CHECK(llm__hub_local(f.path, "o/m:Q4_0", 1, &path) == LLM_ERR_IO && llm__hub_local(f.path, "o/n", 0, &path) == LLM_ERR_IO);
    CHECK(!llm_hub_list(f.path, NULL, &json) && strstr(json.data, "\"name\": \"o/m:Q8_0\"") && strstr(json.data, "\"bytes\": 4") &&
          !strstr(json.data, "Q4_0"));
    CHECK(llm_hub_pull("o/..", f.path, NULL, NULL, NULL, &path) == LLM_ERR_ARG);
    CHECK(llm_hub_remove("o/m:Q2_K", f.path, NULL) == LLM_ERR_IO && llm_hub_remove("o/..", f.path, NULL) == LLM_ERR_ARG);
    folder_write_text(&f, "kept", "x");
    CHECK(!symlink(f.path, folder_file(&f, "models--o--m/snapshots/out")));
    CHECK(!llm_hub_remove("o/m", f.path, NULL) && llm__path_kind_of(folder_file(&f, "models--o--m")) == LLM__PATH_NONE);
    CHECK(llm__path_kind_of(folder_file(&f, "kept")) == LLM__PATH_FILE);
    CHECK(llm_hub_remove("o/m", f.path, NULL) == LLM_ERR_IO);
    folder_close(&f);
}

TEST_GROUP(pull) {
    pull_names();
    pull_choose();
    pull_child();
    pull_cache();
}
