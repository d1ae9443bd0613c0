/* Adapters of strangers: adapter_config.json up to the first NUL, then adapter_model.safetensors; or a GGUF file. What is loaded is listed, computes, and
 * can be unloaded; what is refused is not listed, and leaves the engine's only slot free. Most mutants get the right length of the header.
 * Needs a tiny checkpoint. */
#include "../unit/test.h"
#include "base/platform.h"
#include "base/files.h"
#include "engine/scheduler.h"

static llm_engine *fuzz_engine;
static char fuzz_folder[64];

static void fuzz_check(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, llm_last_error());
    __builtin_trap();
}

static void fuzz_open(void) {
    llm_model *model;
    llm_engine_config c;
    memset(&c, 0, sizeof c);
    c.max_num_seqs = 1, c.max_model_len = 64, c.n_threads = 1, c.max_loras = 1, c.max_lora_rank = 8;
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints")) exit(1);
    fuzz_check(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &model) && !llm_engine_open(model, &c, &fuzz_engine), "engine");
    snprintf(fuzz_folder, sizeof fuzz_folder, "/tmp/llm-fuzz-lora-%d", (int)getpid());
    fuzz_check(!llm__folder_make(fuzz_folder), "folder");
}

static void fuzz_write(const char *name, const uint8_t *data, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
    FILE *f = fopen(path, "wb");
    fuzz_check(f && fwrite(data, 1, n, f) == n && !fclose(f), path);
}

/* Two tokens of an answer with the adapter. */
static void fuzz_compute(void) {
    static const int32_t ids[] = {5, 17, 44, 9};
    llm_request_config q;
    llm_request *r;
    memset(&q, 0, sizeof q);
    q.prompt_ids = ids, q.n_prompt_ids = 4, q.sampling.max_tokens = 2, q.lora = "a";
    fuzz_check(!llm_request_submit(fuzz_engine, &q, &r), "request");
    (void)llm_request_run(fuzz_engine, r); /* weights of strangers may give what is no number */
    llm_request_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!fuzz_engine) fuzz_open();
    const int gguf = size >= 4 && !memcmp(data, "GGUF", 4);
    const uint8_t *end = size ? (const uint8_t *)memchr(data, 0, size) : NULL;
    char path[128];
    if (!gguf && !end) return 0;
    snprintf(path, sizeof path, "%s%s", fuzz_folder, gguf ? "/a.gguf" : "");
    if (gguf) fuzz_write("a.gguf", data, size);
    else fuzz_write("adapter_config.json", data, (size_t)(end - data));
    if (!gguf) fuzz_write("adapter_model.safetensors", end + 1, size - (size_t)(end - data) - 1);
    const llm_result r = llm_lora_load(fuzz_engine, "a", path);
    fuzz_check(llm_lora_get(fuzz_engine, 0, NULL, NULL, NULL) == (r == LLM_OK), "listed if it is loaded");
    fuzz_check(fuzz_engine->adapters.slot[0].refs == (r == LLM_OK), "the slot is free if it is not");
    if (!r) {
        fuzz_compute();
        fuzz_check(!llm_lora_unload(fuzz_engine, "a") && !llm_lora_get(fuzz_engine, 0, NULL, NULL, NULL), "unloaded");
    }
    return 0;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* All modules of a kind become one of them, wherever they are named: so factors have the wrong shapes, and are whole otherwise. */
static void fuzz_rename(uint8_t *data, size_t size, unsigned seed) {
    static const char *const kinds[5][4] = {{"q_proj", "k_proj", "v_proj", "o_proj"},
                                            {"gate_proj", "down_proj"},
                                            {"layers.0", "layers.1", "layers.7"},
                                            {"attn_q.", "attn_k.", "attn_v."},
                                            {"blk.0", "blk.1", "blk.9"}};
    static const unsigned count[5] = {4, 2, 3, 3, 3};
    const unsigned kind = seed % 5, n_names = count[kind];
    const char *to = kinds[kind][seed / 5 % n_names];
    const size_t n = strlen(to);
    for (size_t i = 0; i + n <= size; i++)
        for (unsigned k = 0; k < n_names; k++)
            if (!memcmp(data + i, kinds[kind][k], n)) memcpy(data + i, to, n);
}

/* Changes the config, the header or the data; two of three times the header's length is made right, as the data's place is known by its
 * last closing brace. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    if (seed % 8 == 1) return fuzz_rename(data, size, seed / 8), size;
    size = LLVMFuzzerMutate(data, size, max_size);
    uint8_t *end = size ? (uint8_t *)memchr(data, 0, size) : NULL;
    if (seed % 3 == 0 || !end || (size >= 4 && !memcmp(data, "GGUF", 4)) || size - (size_t)(end - data) < 12) return size;
    uint8_t *header = end + 9, *last = data + size - 1;
    while (last > header && !(last[0] == '}' && last[-1] == '}')) last--;
    const uint64_t length = (uint64_t)(last - header) + 1;
    for (int i = 0; i < 8; i++) end[1 + i] = (uint8_t)(length >> 8 * i);
    return size;
}
