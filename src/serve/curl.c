#include "serve/curl.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/child.h"

LLM__PRIVATE void llm__curl_line(llm__curl *c, const char *key, const char *before, const char *value) {
    llm_text *to = &c->lines;
    llm_text_str(to, key), llm_text_str(to, " = \""), llm_text_str(to, before);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\') llm_text_str(to, "\\");
        llm_text_add(to, value, 1);
    }
    llm_text_str(to, "\"\n");
}

/* Takes the last line of what was written, which is freed of it. */
static llm__str llm__curl_last(llm__str *written) {
    size_t n = written->n;
    while (n && written->p[n - 1] != '\n') n--;
    const llm__str line = llm__str_from(*written, n);
    written->n = n ? n - 1 : 0;
    return line;
}

LLM__PRIVATE llm_result llm__curl_run(llm__curl *c, llm_text *body) {
    static const char *const argv[] = {"curl", "-q", "--config", "-", NULL}, *const none[] = {NULL};
    const size_t before = body->len;
    llm_text_str(&c->lines, "write-out = \"\\n%{http_code} %{redirect_url}\\n%{errormsg}\"\n");
    if (c->lines.failed) return llm__nomem();
    const llm__child child = {argv, c->env ? c->env : none, llm__text_str(&c->lines), 0, c->held_fd, c->limit + 8192, c->tick, c->user, 0};
    c->http = c->exit = 0;
    c->next.len = c->said.len = 0;
    const llm_result r = llm__child_run(&child, body, &c->exit);
    if (r == LLM_ERR_IO) return llm__error(r, "%s; what is fetched is fetched by curl, which must be installed", llm_last_error());
    if (r) return r;
    llm__str all = llm__str_from(llm__text_str(body), before);
    llm__add_str(&c->said, llm__curl_last(&all));
    const llm__str told = llm__curl_last(&all);
    for (size_t i = 0; i < told.n && told.p[i] >= '0' && told.p[i] <= '9' && i < 3; i++) c->http = 10 * c->http + (told.p[i] - '0');
    llm__add_str(&c->next, llm__str_from(told, LLM__MIN(told.n, llm__str_until(told, " ") + 1)));
    body->len = before + all.n;
    if (body->data) body->data[body->len] = 0;
    llm_text_str(&c->next, ""), llm_text_str(&c->said, "");
    if (body->len - before > c->limit) return llm__error(LLM_ERR_LIMIT, "curl: more than %zu bytes came", c->limit);
    return c->next.failed || c->said.failed ? llm__nomem() : LLM_OK;
}

LLM__PRIVATE const char *llm__curl_why(const llm__curl *c) {
    return c->said.len     ? c->said.data
           : c->exit == 6  ? "no such host, or no network"
           : c->exit == 7  ? "nobody listens there"
           : c->exit == 18 ? "the connection ended too early"
           : c->exit == 23 ? "the file could not be written"
           : c->exit == 28 ? "it took too long"
                           : "the connection failed";
}

LLM__PRIVATE void llm__curl_free(llm__curl *c) { llm_text_free(&c->lines), llm_text_free(&c->next), llm_text_free(&c->said); }
