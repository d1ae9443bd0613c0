/* Two models in one program: two_models WRITER CRITIC TOPIC
 * One writes, the other says what it thinks of it. Each has an engine and threads of its own; one file may be both, its pages are shared. Before they are opened the
 * program looks whether both fit. */
#include "llm.h"
#include <stdio.h>
#include <string.h>

enum { MODELS = 2 };

/* Bytes that an engine for this model will take; below 0: it cannot be opened. */
static int64_t need(const char *path, const llm_engine_config *cfg) {
    llm_model *m = NULL;
    llm_estimate e;
    if (llm_model_open(path, NULL, &m)) return -1;
    llm_result r = llm_model_estimate(m, cfg, &e);
    llm_model_close(m);
    if (!r)
        printf("%s: weights %.0f MB, KV cache %.0f MB, %.0f MB in all\n", path, (double)e.weight_bytes / 1e6, (double)e.kv_bytes / 1e6,
               (double)e.peak_bytes / 1e6);
    return r ? -1 : e.peak_bytes;
}

/* One answer, printed as it comes. The chat is kept: it knows what was said. */
static int speak(llm_chat *chat, const char *name, const char *message) {
    if (llm_chat_say(chat, message)) return fprintf(stderr, "%s\n", llm_last_error()), 1;
    printf("%s: ", name);
    for (const char *piece; (piece = llm_chat_next(chat)) != NULL;) fputs(piece, stdout);
    puts("");
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "usage: two_models WRITER CRITIC TOPIC\n"), 2;
    llm *l[MODELS] = {NULL, NULL};
    llm_chat *chat[MODELS];
    llm_engine_config cfg;
    int64_t all = 0;
    memset(&cfg, 0, sizeof cfg);
    cfg.max_model_len = 1024;
    for (int i = 0; i < MODELS; i++) {
        int64_t n = need(argv[1 + i], &cfg);
        if (n < 0) return fprintf(stderr, "%s\n", llm_last_error()), 1;
        all += n;
    }
    if (llm_memory_free() >= 0 && all > llm_memory_free()) return fprintf(stderr, "both together do not fit\n"), 1;
    for (int i = 0; i < MODELS; i++) {
        l[i] = llm_load(argv[1 + i], &cfg);
        if (!l[i]) return fprintf(stderr, "%s\n", llm_last_error()), 1;
        chat[i] = llm_chat_new(l[i], i ? "You are a critic. Judge a text in one sentence." : "You are a writer. Write two sentences.");
        llm_chat_sampling(chat[i])->max_tokens = 80;
    }
    llm_answer draft;
    int failed = speak(chat[0], "writer", argv[3]);
    llm_chat_get_answer(chat[0], &draft);
    if (!failed) failed = speak(chat[1], "critic", draft.text);
    for (int i = 0; i < MODELS; i++) {
        llm_chat_free(chat[i]);
        llm_free(l[i]);
    }
    return failed;
}
