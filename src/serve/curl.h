/* curl: what another server has, by an installed curl as a child.
 *
 * curl gets everything through its standard input, where nobody else reads it, and obeys no configuration of the user's. A caller writes
 * the lines that say what is wanted, then runs it:
 *
 *     llm__curl c = LLM__ZERO;
 *     llm__curl_line(&c, "url", "", url);
 *     llm__curl_run(&c, &body);
 *     llm_text_free(&c.lines), ... */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "base/platform.h"

typedef struct llm__curl {
    llm_text lines;          /* of its configuration, at most 16 KiB */
    const char *const *env;  /* its environment, ends with NULL */
    int held_fd;             /* as llm__child has it */
    size_t limit;            /* most bytes of the answer's body */
    int (*tick)(void *user); /* five times a second; non-zero: it is ended; may be NULL */
    void *user;
    int http, exit; /* the status of the answer, 0: none came; curl's exit code */
    llm_text next;  /* where a redirect that it does not follow leads */
    llm_text said;  /* its sentence */
} llm__curl;

/* Adds `key = "before value"`, without the space. */
LLM__PRIVATE void llm__curl_line(llm__curl *c, const char *key, const char *before, const char *value);

/* Runs it; what comes is appended to *body. LLM_OK whatever came of it: http, exit, next and said tell. LLM_ERR_IO: there is no curl;
 * LLM_ERR_LIMIT: more than `limit` bytes; LLM_ERR_CANCELLED: `tick` said so. */
LLM__PRIVATE llm_result llm__curl_run(llm__curl *c, llm_text *body);

/* Why nothing came, in words. */
LLM__PRIVATE const char *llm__curl_why(const llm__curl *c);

LLM__PRIVATE void llm__curl_free(llm__curl *c);
