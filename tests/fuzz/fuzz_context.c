/* Kept contexts read back: a good file that this engine has written, changed. The first byte says how:
 *   bit 0    the rest of the input is the whole file
 *   else     the rest are changes of the good file, four bytes each: where (two bytes), how (xor with the third; where the fourth is even,
 *            eight bytes are set to the third); bit 1: and the checksum is made to fit; bit 2: cut at the last place named
 * Whatever is said of it, no page stays pinned, and what is loaded can be kept again. Needs a tiny checkpoint. */
#include "../unit/test.h"
#include "base/platform.h"
#include "base/files.h"
#include "base/map.h"
#include "engine/kv.h"
#include "engine/scheduler.h"

enum { FUZZ_TOKENS = 40, FUZZ_FIELDS = 11 };

static llm_engine *fuzz_engine;
static uint8_t fuzz_good[1 << 17], fuzz_file[1 << 17];
static size_t fuzz_len;
static char fuzz_path[64], fuzz_again[80];

static void fuzz_check(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, llm_last_error());
    __builtin_trap();
}

static void fuzz_write(const uint8_t *data, size_t n) {
    FILE *f = fopen(fuzz_path, "wb");
    fuzz_check(f && fwrite(data, 1, n, f) == n && !fclose(f), fuzz_path);
}

/* Pages that nobody holds: free ones, those of the prefix cache among them. */
static int64_t fuzz_unused(void) {
    llm_engine_stats s;
    llm_engine_get_stats(fuzz_engine, &s);
    return s.free_blocks;
}

/* An engine that has read a prompt, and the file that keeps it. */
static void fuzz_open(void) {
    llm_model *model;
    llm_engine_config c;
    llm_request_config q;
    llm_request *r;
    int32_t ids[FUZZ_TOKENS];
    memset(&c, 0, sizeof c), memset(&q, 0, sizeof q);
    for (int32_t i = 0; i < FUZZ_TOKENS; i++) ids[i] = 4 + i * 7 % 200;
    c.max_num_seqs = 1, c.max_model_len = 64, c.n_threads = 1;
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints")) exit(1);
    fuzz_check(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &model) && !llm_engine_open(model, &c, &fuzz_engine), "engine");
    q.prompt_ids = ids, q.n_prompt_ids = FUZZ_TOKENS, q.sampling.max_tokens = 1;
    fuzz_check(!llm_request_submit(fuzz_engine, &q, &r) && !llm_request_run(fuzz_engine, r), "request");
    llm_request_free(r);
    snprintf(fuzz_path, sizeof fuzz_path, "/tmp/llm-fuzz-context-%d", (int)getpid());
    snprintf(fuzz_again, sizeof fuzz_again, "%s.again", fuzz_path);
    fuzz_check(!llm_context_save(fuzz_engine, fuzz_path, ids, FUZZ_TOKENS, NULL, NULL, NULL), "save");
    FILE *f = fopen(fuzz_path, "rb");
    fuzz_len = f ? fread(fuzz_good, 1, sizeof fuzz_good, f) : 0;
    fuzz_check(f && fuzz_len < sizeof fuzz_good && !fclose(f), "a small file");
}

static size_t fuzz_change(const uint8_t *data, size_t size, int how) {
    const size_t header = 8 + 8 * FUZZ_FIELDS, tokens = (size_t)fuzz_engine->kv.page_tokens * 4,
                 page = (size_t)(fuzz_engine->page_bytes * fuzz_engine->n_ranks);
    size_t at = 0, n = fuzz_len, pages = (fuzz_len - header - 8) / (page + tokens);
    memcpy(fuzz_file, fuzz_good, n);
    for (size_t i = 0; i + 4 <= size; i += 4) {
        at = ((size_t)data[i] << 8 | data[i + 1]) % fuzz_len;
        if (data[i + 3] & 1) fuzz_file[at] ^= data[i + 2];
        else memset(fuzz_file + at, data[i + 2], LLM__MIN((size_t)8, fuzz_len - at));
    }
    if (how & 2) {
        uint64_t sum = llm__hash(fuzz_file + header, pages * tokens, llm__hash(fuzz_file, header, 0));
        for (size_t i = 0; i < pages; i++) sum = llm__hash(fuzz_file + header + pages * tokens + i * page, page, sum);
        memcpy(fuzz_file + n - 8, &sum, 8);
    }
    return how & 4 ? at : n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!fuzz_engine) fuzz_open();
    if (!size) return 0;
    const int64_t before = fuzz_unused();
    llm_tokens ids;
    int64_t kept = 0;
    memset(&ids, 0, sizeof ids);
    if (data[0] & 1) fuzz_write(data + 1, size - 1);
    else fuzz_write(fuzz_file, fuzz_change(data + 1, size - 1, data[0]));
    const llm_result r = llm_context_load(fuzz_engine, fuzz_path, NULL, NULL, &ids);
    fuzz_check(fuzz_unused() == before, "pages stay pinned");
    fuzz_check(r || ids.len % (size_t)fuzz_engine->kv.page_tokens == 0, "whole pages");
    fuzz_check(!r || ids.len == 0, "no ids of a file that is refused");
    if (!r && ids.len) { /* unless it is of another rotation, what was loaded is found again under its ids */
        const llm_result again = llm_context_save(fuzz_engine, fuzz_again, ids.data, ids.len, NULL, NULL, &kept);
        fuzz_check(again == LLM_ERR_ARG || (!again && kept == (int64_t)ids.len), "kept again");
        remove(fuzz_again);
    }
    llm_tokens_free(&ids);
    remove(fuzz_path);
    return 0;
}
