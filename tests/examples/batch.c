/* Many questions at once: batch MODEL < questions.txt
 * A question a line, at most 256. They share every step of the engine, which is several times faster than one after the other. */
#include "llm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256 };

static int progress(void *user, const char *what, double done) {
    fprintf((FILE *)user, "\r%s %3.0f %%", what, 100 * done);
    return 0; /* another number would cancel all */
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: batch MODEL < questions.txt\n"), 2;
    llm *l = llm_open(argv[1], "{\"max_num_seqs\": 8, \"max_model_len\": 2048}");
    if (!l) return fprintf(stderr, "%s\n", llm_last_error()), 1;
    llm_prompt prompts[MOST];
    char line[4096], *text[MOST];
    int n = 0;
    memset(prompts, 0, sizeof prompts);
    while (n < MOST && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        text[n] = (char *)malloc(strlen(line) + 1);
        if (!text[n]) break;
        prompts[n].prompt = strcpy(text[n], line);
        n++;
    }
    llm_sampling s;
    memset(&s, 0, sizeof s); /* greedy */
    s.max_tokens = 64;
    llm_batch_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.sampling_params = &s;
    cfg.progress = progress;
    cfg.progress_user = stderr;
    llm_outputs *o = llm_chat_batch(l, prompts, n, &cfg);
    if (!o) return fprintf(stderr, "\n%s\n", llm_last_error()), 1;
    fputs("\n", stderr);
    for (int i = 0; i < o->n; i++) {
        const llm_request_output *a = &o->items[i];
        if (a->error_msg) printf("%d. %s\n   error: %s\n", i + 1, text[i], a->error_msg);
        else printf("%d. %s\n   %s [%s]\n", i + 1, text[i], a->outputs.text, a->outputs.finish_reason);
    }
    int failed = o->n_failed;
    llm_outputs_free(o);
    for (int i = 0; i < n; i++) free(text[i]);
    llm_free(l);
    return failed > 0;
}
