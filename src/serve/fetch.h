/* fetch: pictures and videos that requests name by http and https URLs.
 *
 * Whoever may send requests would otherwise choose what this machine asks of others, also of those that only it reaches. So:
 *
 *   the host must be one that the operator lists, by exactly that name
 *   its addresses are looked up here, must be public, and curl gets them with the name: a name server cannot answer twice
 *   what is not public must be listed as an address itself, or as localhost
 *   redirects are followed here, at most five, each checked like the first; never from https to http
 *   no user and password in a URL, no proxy, no configuration and no cookies of the user's
 *   time and bytes are limited, and whoever waits for it may end it */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "base/platform.h"
#include "base/text.h"

typedef struct llm__fetch_rules {
    const char *domains;  /* with commas between them; NULL: nothing is fetched */
    double seconds;       /* for all of it, redirects too; but the system looks names up in a time of its own */
    size_t limit;         /* bytes */
    const int *cancelled; /* atomic; may be NULL */
} llm__fetch_rules;

/* 1: a URL that llm__fetch_get is for. */
LLM__PRIVATE int llm__fetchable(llm__str url);

/* 1: what may stand in the list: a name, an IPv4 address, or an IPv6 address in []. */
LLM__PRIVATE int llm__fetch_domain(llm__str name);

/* Appends what stands behind the URL. LLM_ERR_ARG: it may not be fetched; LLM_ERR_IO: it was not; LLM_ERR_LIMIT: it is too long;
 * LLM_ERR_CANCELLED. The sentence says nothing of what only this machine sees. */
LLM__PRIVATE llm_result llm__fetch_get(const llm__fetch_rules *rules, llm__str url, llm_text *out);
