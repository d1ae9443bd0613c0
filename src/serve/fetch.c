#include "serve/fetch.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/host.h"
#include "serve/curl.h"

enum { LLM__FETCH_URL = 4096, LLM__FETCH_HOST = 255, LLM__FETCH_REDIRECTS = 5 };

/* A URL taken apart. */
typedef struct llm__fetch_url {
    int tls, port;
    char host[LLM__FETCH_HOST + 1];
} llm__fetch_url;

typedef struct llm__fetch_wait {
    const llm__fetch_rules *rules;
    double end;
} llm__fetch_wait;

LLM__PRIVATE int llm__fetchable(llm__str url) { return llm__starts(url, llm__lit("http://")) || llm__starts(url, llm__lit("https://")); }

LLM__PRIVATE int llm__fetch_domain(llm__str name) {
    const int six = name.n > 2 && name.p[0] == '[' && name.p[name.n - 1] == ']';
    const char *of = six ? "0123456789abcdefABCDEF:." : "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_";
    const llm__str plain = six ? llm__s(name.p + 1, name.n - 2) : name;
    for (size_t i = 0; i < plain.n; i++)
        if (!plain.p[i] || !strchr(of, plain.p[i])) return 0;
    return plain.n && plain.n <= LLM__FETCH_HOST - 2 && plain.p[0] != '.' && plain.p[0] != '-';
}

/* 0: it is none that is fetched. */
static int llm__fetch_parse(llm__str url, llm__fetch_url *out) {
    memset(out, 0, sizeof *out);
    if (url.n > LLM__FETCH_URL || !llm__fetchable(url)) return 0;
    for (size_t i = 0; i < url.n; i++)
        if ((unsigned char)url.p[i] <= ' ' || url.p[i] == 127 || url.p[i] == '\\') return 0;
    out->tls = url.p[4] == 's';
    llm__str rest = llm__str_from(url, out->tls ? 8 : 7);
    rest = llm__s(rest.p, llm__str_until(rest, "/?#"));
    const size_t end = rest.n && rest.p[0] == '[' ? llm__str_until(rest, "]") + 1 : llm__str_until(rest, ":");
    if (end > rest.n || !llm__fetch_domain(llm__s(rest.p, end))) return 0;
    memcpy(out->host, rest.p, end);
    out->port = out->tls ? 443 : 80;
    rest = llm__str_from(rest, end);
    if (!rest.n) return 1;
    out->port = 0;
    for (size_t i = 1; i < rest.n; i++) {
        if (rest.p[i] < '0' || rest.p[i] > '9' || i > 5) return 0;
        out->port = 10 * out->port + (rest.p[i] - '0');
    }
    return rest.p[0] == ':' && out->port > 0 && out->port < 65536;
}

static int llm__fetch_listed(const char *domains, const char *host) {
    llm__str word;
    while (llm__list_next(&domains, ",", &word))
        if (word.n == strlen(host) && !strncasecmp(word.p, host, word.n)) return 1;
    return 0;
}

static int llm__fetch_tick(void *user) {
    const llm__fetch_wait *w = (const llm__fetch_wait *)user;
    return llm__now() > w->end || (w->rules->cancelled && __atomic_load_n(w->rules->cancelled, __ATOMIC_RELAXED));
}

/* Where curl is to connect, as --resolve wants it. An address that the list names needs none. */
static llm_result llm__fetch_resolve(const llm__fetch_url *u, llm__curl *c) {
    LLM__SCOPED(llm_text_free) llm_text to = LLM__ZERO;
    char bare[LLM__FETCH_HOST + 1];
    const size_t n = strlen(u->host), six = u->host[0] == '[';
    memcpy(bare, u->host + six, n + 1 - six);
    if (six) bare[n - 2] = 0;
    const int any = six || !strcasecmp(bare, "localhost") || !bare[strspn(bare, "0123456789.")];
    llm_text_format(&to, "%s:%d:", bare, u->port);
    const llm_result r = llm__host_addresses(bare, any, &to);
    if (!r && !six) llm__curl_line(c, "resolve", "", to.data);
    return r;
}

/* One request. *next: where it is sent to, empty: nowhere. */
static llm_result llm__fetch_once(const llm__fetch_wait *w, const char *url, const llm__fetch_url *u, llm_text *next, llm_text *out) {
    LLM__SCOPED(llm__curl_free) llm__curl c = LLM__ZERO;
    char seconds[40], bytes[32];
    llm_result r = llm__fetch_resolve(u, &c);
    if (r) return r;
    const double left = w->end - llm__now();
    llm__format_double(left > 0.05 ? left : 0.05, seconds);
    snprintf(bytes, sizeof bytes, "%zu", w->rules->limit);
    llm_text_str(&c.lines, "silent\ngloboff\nnoproxy = \"*\"\npath-as-is\n");
    llm__curl_line(&c, "url", "", url);
    llm__curl_line(&c, "proto", "=", u->tls ? "https" : "http");
    llm__curl_line(&c, "user-agent", "llm.h/", LLM_VERSION_STRING);
    llm__curl_line(&c, "max-time", "", seconds);
    llm__curl_line(&c, "max-filesize", "", bytes);
    c.limit = w->rules->limit;
    c.tick = llm__fetch_tick;
    c.user = (void *)(uintptr_t)w;
    const size_t before = out->len;
    r = llm__curl_run(&c, out);
    if (r == LLM_ERR_LIMIT || (!r && c.exit == 63)) return llm__error(LLM_ERR_LIMIT, "%s: more than %s bytes", u->host, bytes);
    if (r == LLM_ERR_CANCELLED || c.exit == 28)
        return llm__error(LLM_ERR_IO, "%s: nothing whole came within %g s", u->host, w->rules->seconds);
    if (r) return r;
    if (c.exit) return llm__error(LLM_ERR_IO, "%s: %.300s", u->host, llm__curl_why(&c));
    if (c.http == 200) return LLM_OK;
    out->len = before;
    if (c.http < 300 || c.http > 399 || !c.next.len) return llm__error(LLM_ERR_IO, "%s: HTTP %d", u->host, c.http);
    llm_text_add(next, c.next.data, c.next.len);
    return next->failed ? llm__nomem() : LLM_OK;
}

LLM__PRIVATE llm_result llm__fetch_get(const llm__fetch_rules *rules, llm__str url, llm_text *out) {
    const llm__fetch_wait w = {rules, llm__now() + rules->seconds};
    LLM__SCOPED(llm_text_free) llm_text at = LLM__ZERO, next = LLM__ZERO;
    llm__fetch_url u;
    int tls = 0;
    llm__add_str(&at, url);
    for (int i = 0; i <= LLM__FETCH_REDIRECTS; i++) {
        if (at.failed) return llm__nomem();
        const char *what = i ? "the redirect" : "the URL";
        if (!llm__fetch_parse(llm__text_str(&at), &u))
            return llm__error(LLM_ERR_ARG, "%s is no http://HOST/... or https://HOST/... of at most %d characters", what, LLM__FETCH_URL);
        if (!rules->domains || !llm__fetch_listed(rules->domains, u.host))
            return llm__error(LLM_ERR_ARG, "%s leads to %s, which --allowed-media-domains does not list", what, u.host);
        if (tls && !u.tls) return llm__error(LLM_ERR_ARG, "the redirect leads from https to http");
        tls = u.tls;
        next.len = 0;
        const llm_result r = llm__fetch_once(&w, at.data, &u, &next, out);
        if (r || !next.len) return r;
        at.len = 0;
        llm_text_add(&at, next.data, next.len);
    }
    return llm__error(LLM_ERR_IO, "%s: more than %d redirects", u.host, LLM__FETCH_REDIRECTS);
}
