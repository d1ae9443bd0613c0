/* What is fetched by URL: who may be asked, what of a URL is taken for what, curl's answers. What comes over HTTP is tested by
 * tests/e2e/test_vision.py. */
#include "../test.h"
#include "../folder.h"
#include "../comma.h"
#include "base/platform.h"
#include "base/host.h"
#include "base/log.h"
#include "base/text.h"
#include "serve/curl.h"
#include "serve/fetch.h"

/* The special-purpose registries of IANA, one address each, and neighbours that are public. */
static void fetch_addresses(void) {
    static const char *const hidden[] = {"0.0.0.0",
                                         "0.255.255.255",
                                         "10.0.0.1",
                                         "100.64.0.1",
                                         "100.127.255.255",
                                         "127.0.0.1",
                                         "127.255.255.254",
                                         "169.254.169.254",
                                         "172.16.0.1",
                                         "172.31.255.255",
                                         "192.0.0.8",
                                         "192.0.2.1",
                                         "192.88.99.1",
                                         "192.168.1.1",
                                         "198.18.0.1",
                                         "198.19.255.255",
                                         "198.51.100.1",
                                         "203.0.113.1",
                                         "224.0.0.1",
                                         "239.255.255.255",
                                         "240.0.0.1",
                                         "255.255.255.255",
                                         "::",
                                         "::1",
                                         "::ffff:10.0.0.1",
                                         "::ffff:127.0.0.1",
                                         "::7f00:1",
                                         "64:ff9b::7f00:1",
                                         "100::1",
                                         "2001::1",
                                         "2001:db8::1",
                                         "2002:7f00:1::",
                                         "fc00::1",
                                         "fd12::1",
                                         "fe80::1",
                                         "ff02::1",
                                         "4000::1",
                                         "",
                                         "1.2.3",
                                         "0x7f.1",
                                         "a.b.c.d"};
    static const char *const open[] = {"1.1.1.1",         "9.255.255.255",   "11.0.0.0",        "100.63.255.255", "100.128.0.0",
                                       "126.0.0.1",       "128.0.0.1",       "169.253.0.1",     "172.15.0.1",     "172.32.0.1",
                                       "192.0.1.1",       "192.167.0.1",     "192.169.0.1",     "198.17.0.1",     "198.20.0.1",
                                       "223.255.255.255", "2606:4700::1111", "2001:4860::8888", "2a00::1",        "::ffff:1.1.1.1"};
    for (int i = 0; i < LLM__COUNT(hidden); i++)
        if (!CHECK(!llm__address_public(hidden[i]))) printf("    %s\n", hidden[i]);
    for (int i = 0; i < LLM__COUNT(open); i++)
        if (!CHECK(llm__address_public(open[i]))) printf("    %s\n", open[i]);
}

static void fetch_hosts(void) {
    llm_text out = LLM__ZERO;
    CHECK(!llm__host_addresses("127.0.0.1", 1, &out) && !strcmp(out.data, "127.0.0.1"));
    out.len = 0;
    CHECK(!llm__host_addresses("::1", 1, &out) && !strcmp(out.data, "[::1]"));
    CHECK(llm__host_addresses("127.0.0.1", 0, &out) == LLM_ERR_ARG && strstr(llm_last_error(), "not a public one"));
    CHECK(llm__host_addresses("2130706433", 0, &out) == LLM_ERR_ARG); /* a number is an address too */
    out.len = 0;
    CHECK(!llm__host_addresses("8.8.8.8", 0, &out) && !strcmp(out.data, "8.8.8.8"));
    CHECK(llm__host_addresses("no-such-host.invalid", 0, &out) == LLM_ERR_IO);
    llm_text_free(&out);
}

/* Each is refused before anybody is asked. */
static void fetch_refused(void) {
    static const char *const bad[] = {"http://",
                                      "http:///a.png",
                                      "https://user@example.com/",
                                      "https://example.com:a/",
                                      "https://example.com:0/",
                                      "https://example.com:65536/",
                                      "https://example.com:080000/",
                                      "https://exa mple.com/",
                                      "https://example.com/a b",
                                      "https://example.com\\@evil.com/",
                                      "https://[::1/",
                                      "https://[::1]x/",
                                      "https://-a.com/",
                                      "https://.a.com/",
                                      "https://ex%61mple.com/",
                                      "ftp://example.com/",
                                      "https://example.com/\n",
                                      "http://a:b@example.com/",
                                      "https://\xc3\xa9.com/"};
    static const char *const other[] = {"http://example.org/",     "http://example.com.evil.org/",
                                        "http://sub.example.com/", "http://example.co/",
                                        "http://example.com./",    "http://127.0.0.1/",
                                        "http://[::1]/",           "http://localhost/"};
    const llm__fetch_rules rules = {"example.com,10.0.0.1", 1, 1000, NULL}, none = {NULL, 1, 1000, NULL};
    llm_text out = LLM__ZERO;
    for (int i = 0; i < LLM__COUNT(bad); i++)
        if (!CHECK(llm__fetch_get(&rules, llm__lit(bad[i]), &out) == LLM_ERR_ARG && strstr(llm_last_error(), "is no http://")))
            printf("    %s\n", bad[i]);
    for (int i = 0; i < LLM__COUNT(other); i++)
        if (!CHECK(llm__fetch_get(&rules, llm__lit(other[i]), &out) == LLM_ERR_ARG && strstr(llm_last_error(), "does not list")))
            printf("    %s\n", other[i]);
    CHECK(llm__fetch_get(&none, llm__lit("http://example.com/"), &out) == LLM_ERR_ARG);
    CHECK(out.len == 0);
    CHECK(llm__fetchable(llm__lit("http://a")) && llm__fetchable(llm__lit("https://a")) && !llm__fetchable(llm__lit("file:a")) &&
          !llm__fetchable(llm__lit("HTTP")));
    CHECK(llm__fetch_domain(llm__lit("cdn-1.example.com")) && llm__fetch_domain(llm__lit("[::1]")) &&
          llm__fetch_domain(llm__lit("10.0.0.1")));
    CHECK(!llm__fetch_domain(llm__lit("")) && !llm__fetch_domain(llm__lit("http://a")) && !llm__fetch_domain(llm__lit("a:80")) &&
          !llm__fetch_domain(llm__lit("*.a.com")) && !llm__fetch_domain(llm__s("a\0b", 3)));
    llm_text_free(&out);
}

static int fetch_stop(void *user) { return *(int *)user; }

/* A file instead of a server: curl's own answers. */
static void fetch_curl(void) {
    llm_text out = LLM__ZERO;
    llm__curl c = LLM__ZERO;
    int stop = 1;
    test_folder f;
    if (!folder_open(&f)) return;
    folder_write_text(&f, "a b", "one\ntwo\n");
    llm_text_str(&c.lines, "silent\n");
    llm__curl_line(&c, "url", "file://", folder_file(&f, "a%20b"));
    c.limit = 100;
    if (llm__curl_run(&c, &out) == LLM_ERR_IO) { /* no curl here */
        CHECK(strstr(llm_last_error(), "must be installed"));
    } else {
        CHECK(!c.exit && !c.http && !c.next.len && out.len == 8 && !memcmp(out.data, "one\ntwo\n", 8));
        llm__curl_free(&c);
        llm__curl_line(&c, "url", "file:///", "no \"such\\ file");
        CHECK(!strcmp(c.lines.data, "url = \"file:///no \\\"such\\\\ file\"\n"));
        llm_text_str(&c.lines, "silent\n");
        c.limit = 100;
        CHECK(!llm__curl_run(&c, &out) && c.exit && *llm__curl_why(&c) && out.len == 8);
        llm__curl_free(&c);
        llm_text_str(&c.lines, "silent\nurl = \"file:///dev/zero\"\n");
        c.limit = 1 << 20;
        CHECK(llm__curl_run(&c, &out) == LLM_ERR_LIMIT);
        llm__curl_free(&c);
        llm_text_str(&c.lines, "silent\nurl = \"file:///dev/zero\"\n");
        c.tick = fetch_stop;
        c.user = &stop;
        CHECK(llm__curl_run(&c, &out) == LLM_ERR_CANCELLED);
    }
    folder_close(&f);
    llm__curl_free(&c);
    llm_text_free(&out);
}

/* A curl that gives back what it is told: its numbers have no comma, whatever the program's locale is. */
static void fetch_locale(void) {
    static const char *const ways[] = {"plain", "comma"};
    const char *path = getenv("PATH");
    const llm__fetch_rules rules = {"127.0.0.1", 1.75, 1000, NULL};
    locale_t comma = comma_locale(), plain = uselocale((locale_t)0);
    char *kept = path ? strdup(path) : NULL;
    test_folder f;
    if (!comma) SKIP("localedef, which makes a locale with a comma, is not there");
    if (!folder_open(&f)) return;
    CHECK(folder_write_text(&f, "curl", "#!/bin/sh\ncat\nprintf '\\n200 \\n'\n") && !chmod(folder_file(&f, "curl"), 0700));
    CHECK(!setenv("PATH", f.path, 1));
    for (int i = 0; i < 1 + (comma != (locale_t)0); i++) {
        llm_text out = LLM__ZERO;
        if (i) uselocale(comma);
        CHECK(!llm__fetch_get(&rules, llm__lit("http://127.0.0.1/a.png"), &out));
        uselocale(plain);
        const char *told = out.data ? strstr(out.data, "max-time = \"") : NULL;
        if (!CHECK(told && told[12 + strspn(told + 12, "0123456789")] == '.')) printf("    %s: %s\n", ways[i], out.data ? out.data : "");
        llm_text_free(&out);
    }
    if (kept) setenv("PATH", kept, 1);
    free(kept);
    if (comma) freelocale(comma);
    folder_close(&f);
}

TEST_GROUP(fetch) {
    fetch_addresses();
    fetch_hosts();
    fetch_refused();
    fetch_curl();
    fetch_locale();
}
