/* Bodies of requests run to their end, without a socket: of OpenAI's API and of the others that are read as its. */
#ifndef CALL_H
#define CALL_H
#include "test.h"

/* What the call wrote is in `out`, in so many pieces (NULL: nobody asks). Returns the status. */
static inline int call_run(const llm_openai_service *s, llm_openai_kind kind, const char *body, llm_text *out, int *pieces) {
    llm_openai_call *k = llm_openai_begin(s, kind, body, strlen(body), NULL);
    const llm_openai_info *info = llm_openai_get_info(k);
    int n = 0;
    out->len = 0;
    llm_openai_submit(k);
    for (int turn = 0; !info->done && turn < 10000; turn++) {
        llm_engine_step(s->engine, NULL);
        while (llm_openai_next(k, out)) n++;
    }
    const int status = info->done ? info->status : -1;
    llm_openai_free(k);
    if (pieces) *pieces = n;
    return status;
}

/* How often it says `what`. */
static inline int call_count(const llm_text *out, const char *what) {
    int n = 0;
    for (const char *p = out->data; p && (p = strstr(p, what)); p++) n++;
    return n;
}

#endif
