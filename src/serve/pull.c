#include "serve/pull.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/hub.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/child.h"
#include "serve/cached.h"
#include "serve/curl.h"

#define LLM__HUB_JSON ((size_t)16 << 20) /* most bytes of what the Hub says of a repository */
#define LLM__HUB_FILES 20000
#define LLM__HUB_LARGEST ((int64_t)1 << 44) /* bytes of a file */

typedef struct llm__pull {
    llm__hub_name name;
    char *(*get)(const char *name);
    llm_pull_fn progress;
    void *user;
    llm_text cache, repo, endpoint, token, env;
    const char *env_list[24]; /* of children: points into env */
    llm_json *doc;
    const char *commit;
    llm__hub_file *files;
    int n_files, first;
    int64_t done, total; /* bytes of the chosen files: of those that are whole, of all */
    const char *now;     /* the file that is being fetched; NULL: none is */
    llm_text part;       /* where it goes */
    llm__curl curl;      /* the latest */
} llm__pull;

static void llm__pull_free(llm__pull *p) {
    llm_text_free(&p->cache), llm_text_free(&p->repo), llm_text_free(&p->endpoint), llm_text_free(&p->token), llm_text_free(&p->env);
    llm_text_free(&p->part), llm__curl_free(&p->curl);
    llm_json_free(p->doc);
    LLM_FREE(p->files);
}

static int llm__pull_tick(void *user) {
    llm__pull *p = (llm__pull *)user;
    if (!p->progress || !p->now) return 0;
    return p->progress(p->user, p->now, p->done + LLM__MAX(llm__path_bytes(p->part.data), 0), p->total);
}

/* ---- where, and who asks */

/* A text that may stand in curl's configuration. */
static int llm__pull_plain(const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 127) return 0;
    return 1;
}

static llm_result llm__pull_token(llm__pull *p) {
    const char *said = p->get ? p->get("HF_TOKEN") : NULL;
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text path = LLM__ZERO;
    llm__hub_home(p->get, &path);
    llm_text_str(&path, "/token");
    if (said && *said) llm_text_str(&p->token, said);
    else if (!path.failed && !llm__file_open(path.data, 4096, 1, &f)) llm_text_add(&p->token, (const char *)f.data, f.size);
    while (p->token.len && p->token.data[p->token.len - 1] <= ' ') p->token.data[--p->token.len] = 0;
    if (p->token.len > 2000 || (p->token.len && !llm__pull_plain(p->token.data)))
        return llm__error(LLM_ERR_ARG, "HF_TOKEN: a token is one word, without control characters");
    return path.failed || p->token.failed ? llm__nomem() : LLM_OK;
}

/* What children have of the environment: what finds programs, proxies and certificates. */
static llm_result llm__pull_environment(llm__pull *p) {
    static const char *const names[] = {"PATH",      "HOME",     "LANG",     "http_proxy",     "https_proxy",   "HTTPS_PROXY",  "all_proxy",
                                        "ALL_PROXY", "no_proxy", "NO_PROXY", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR"};
    size_t at[LLM__COUNT(names)];
    int n = 0;
    for (int i = 0; i < LLM__COUNT(names); i++) {
        const char *value = p->get ? p->get(names[i]) : NULL;
        if (!value) continue;
        at[n++] = p->env.len;
        llm_text_str(&p->env, names[i]), llm_text_str(&p->env, "="), llm_text_str(&p->env, value);
        llm_text_add(&p->env, "", 1);
    }
    for (int i = 0; i < n && !p->env.failed; i++) p->env_list[i] = p->env.data + at[i];
    p->env_list[n] = NULL;
    return p->env.failed ? llm__nomem() : LLM_OK;
}

static llm_result llm__pull_begin(llm__pull *p, const char *name, const char *hub_cache) {
    const char *said = p->get ? p->get("HF_ENDPOINT") : NULL, *offline = p->get ? p->get("HF_HUB_OFFLINE") : NULL;
    llm_result r = llm__hub_parse(name, &p->name);
    if (!r) r = llm__hub_cache(hub_cache, p->get, &p->cache);
    if (r) return r;
    if (offline && (!strcmp(offline, "1") || !strcasecmp(offline, "true") || !strcasecmp(offline, "yes") || !strcasecmp(offline, "on")))
        return llm__error(LLM_ERR_IO, "%s: not in the cache, and HF_HUB_OFFLINE says that nothing is fetched", name);
    llm_text_str(&p->endpoint, said && *said ? said : "https://huggingface.co");
    while (p->endpoint.len && p->endpoint.data[p->endpoint.len - 1] == '/') p->endpoint.data[--p->endpoint.len] = 0;
    llm_text_format(&p->repo, "%s/%s", p->cache.data, p->name.folder);
    if (p->endpoint.failed || p->repo.failed) return llm__nomem();
    if ((strncmp(p->endpoint.data, "https://", 8) && strncmp(p->endpoint.data, "http://", 7)) || p->endpoint.len > 1000 ||
        !llm__pull_plain(p->endpoint.data))
        return llm__error(LLM_ERR_ARG, "HF_ENDPOINT: %.200s, http://... or https://... was expected", p->endpoint.data);
    if (p->repo.len > 3000 || !llm__pull_plain(p->repo.data))
        return llm__error(LLM_ERR_ARG, "cache folder: %.200s: control characters or too long", p->cache.data);
    r = llm__pull_token(p);
    return r ? r : llm__pull_environment(p);
}

/* ---- curl */

/* Fetches a URL into a file, behind what is in it, or (to NULL) to *body. LLM_OK whatever came of it: p->curl tells. */
static llm_result llm__pull_get(llm__pull *p, const char *url, const char *to, int lock, llm_text *body) {
    LLM__SCOPED(llm_text_free) llm_text nothing = LLM__ZERO;
    const int tls = p->endpoint.data[4] == 's';
    llm__curl *c = &p->curl;
    llm__curl_free(c);
    llm_text_str(&c->lines,
                 "silent\nlocation\nfail\ngloboff\nmax-redirs = 10\nconnect-timeout = 20\nspeed-limit = 1\nspeed-time = 60\nretry = 3\n");
    llm__curl_line(c, "url", "", url);
    llm__curl_line(c, "proto", "=", tls ? "https" : "http,https");
    llm__curl_line(c, "proto-redir", "=", tls ? "https" : "http,https");
    llm__curl_line(c, "user-agent", "llm.h/", LLM_VERSION_STRING);
    if (p->token.len) llm__curl_line(c, "header", "Authorization: Bearer ", p->token.data);
    if (to) llm__curl_line(c, "output", "", to), llm_text_str(&c->lines, "continue-at = \"-\"\n");
    else llm_text_str(&c->lines, "max-filesize = 16777216\n");
    c->env = p->env_list;
    c->held_fd = lock;
    c->limit = LLM__HUB_JSON;
    c->tick = llm__pull_tick;
    c->user = p;
    llm_result r = llm__curl_run(c, body ? body : &nothing);
    if (r == LLM_ERR_LIMIT) return llm__error(r, "%s: %s: more than 16 MiB came", p->name.bare, p->endpoint.data);
    return r;
}

/* The sentence for what curl did not get. */
static llm_result llm__pull_refused(const llm__pull *p, const char *what) {
    const char *bare = p->name.bare, *end = p->endpoint.data;
    const int code = p->curl.exit, http = p->curl.http;
    if (code == 22 && http == 401 && p->token.len)
        return llm__error(LLM_ERR_IO, "%s: HTTP 401 from %s: it does not take this HF_TOKEN, or there is no such model", bare, end);
    if (code == 22 && http == 401)
        return llm__error(LLM_ERR_IO, "%s: HTTP 401 from %s: there is no such model, or it is not for everybody: set HF_TOKEN", bare, end);
    if (code == 22 && http == 403)
        return llm__error(LLM_ERR_IO,
                          "%s: HTTP 403 from %s: accept the model's terms at %s/%s, and set HF_TOKEN to a token of that account", bare, end,
                          end, bare);
    if (code == 22 && http == 404)
        return llm__error(LLM_ERR_IO, "%s: HTTP 404 from %s: no such model, or it has no %s", bare, end, p->now ? what : p->name.revision);
    if (code == 22) return llm__error(LLM_ERR_IO, "%s: %s: HTTP %d from %s", bare, what, http, end);
    if (code == 63) return llm__error(LLM_ERR_LIMIT, "%s: %s: more than 16 MiB", bare, what);
    return llm__error(LLM_ERR_IO, "%s: %s: not fetched from %s: %.300s (curl %d)", bare, what, end, llm__curl_why(&p->curl), code);
}

/* ---- what there is */

/* A checksum, in lower-case hexadecimal. */
static int llm__pull_hash(const char *s, size_t n, size_t want) { return s && n == want && strspn(s, "0123456789abcdef") == want; }

static llm_result llm__pull_file(llm__pull *p, int node, llm__hub_file *f) {
    size_t n = 0, h = 0, s = 0;
    const char *name = llm_json_str(p->doc, llm_json_find(p->doc, node, "rfilename"), &n);
    const char *git = llm_json_str(p->doc, llm_json_find(p->doc, node, "blobId"), &h);
    const char *sha = llm_json_str(p->doc, llm_json_find(p->doc, llm_json_find(p->doc, node, "lfs"), "sha256"), &s);
    if (!name || strlen(name) != n || !llm__hub_file_name(name))
        return llm__error(LLM_ERR_FORMAT, "%s: the Hub lists a file named \"%.200s\", which cannot be one here", p->name.bare,
                          name ? name : "");
    f->name = name;
    f->hash = llm__pull_hash(sha, s, 64) ? sha : !sha && llm__pull_hash(git, h, 40) ? git : NULL;
    if (!llm_json_int(p->doc, llm_json_find(p->doc, node, "size"), &f->bytes) || f->bytes < 0 || f->bytes > LLM__HUB_LARGEST)
        f->hash = NULL;
    return LLM_OK;
}

/* Asks for the list of files and chooses. */
static llm_result llm__pull_list(llm__pull *p) {
    LLM__SCOPED(llm_text_free) llm_text url = LLM__ZERO, body = LLM__ZERO;
    size_t n = 0;
    llm_text_format(&url, "%s/api/models/%s/revision/%s?blobs=true", p->endpoint.data, p->name.bare, p->name.revision);
    llm_result r = url.failed ? llm__nomem() : llm__pull_get(p, url.data, NULL, 0, &body);
    if (!r && p->curl.exit) r = llm__pull_refused(p, "the list of its files");
    if (r) return r;
    if (llm_json_parse(body.data ? body.data : "", body.len, NULL, &p->doc))
        return llm__error(LLM_ERR_FORMAT, "%s: what %s says is no JSON: %s", p->name.bare, p->endpoint.data, llm_last_error());
    const int list = llm_json_find(p->doc, 0, "siblings"), size = llm_json_size(p->doc, list);
    p->commit = llm_json_str(p->doc, llm_json_find(p->doc, 0, "sha"), &n);
    if (!llm__pull_hash(p->commit, n, 40) || llm_json_type_of(p->doc, list) != LLM_JSON_ARRAY || size > LLM__HUB_FILES)
        return llm__error(LLM_ERR_FORMAT, "%s: %s does not say which commit it has and which files are in it", p->name.bare,
                          p->endpoint.data);
    p->files = LLM__NEW(llm__hub_file, size + 1);
    if (!p->files) return llm__nomem();
    for (int node = llm_json_first(p->doc, list); node >= 0 && !r; node = llm_json_next(p->doc, node))
        r = llm__pull_file(p, node, &p->files[p->n_files++]);
    if (!r) r = llm__hub_choose(&p->name, p->files, p->n_files, &p->first);
    for (int i = 0; i < p->n_files && !r; i++) {
        if (p->files[i].chosen && !p->files[i].hash)
            r = llm__error(LLM_ERR_FORMAT, "%s: %.200s: %s does not say its size and checksum", p->name.bare, p->files[i].name,
                           p->endpoint.data);
        if (p->files[i].chosen) p->total += p->files[i].bytes;
    }
    return r;
}

/* Where a file's bytes lie, or are to lie. */
static llm_result llm__pull_blob(const llm__pull *p, const llm__hub_file *f, const char *end, llm_text *path) {
    path->len = 0;
    llm_text_format(path, "%s/blobs/%s%s", p->repo.data, f->hash, end);
    return path->failed ? llm__nomem() : LLM_OK;
}

static llm_result llm__pull_room(const llm__pull *p) {
    LLM__SCOPED(llm_text_free) llm_text path = LLM__ZERO;
    struct statvfs disk;
    int64_t need = p->total;
    for (int i = 0; i < p->n_files; i++) {
        for (int k = 0; k < 2 && p->files[i].chosen; k++) {
            llm_result r = llm__pull_blob(p, &p->files[i], k ? ".incomplete" : "", &path);
            if (r) return r;
            const int64_t have = llm__path_bytes(path.data);
            if (have > 0) need -= LLM__MIN(have, p->files[i].bytes);
        }
    }
    if (statvfs(p->repo.data, &disk)) return LLM_OK;
    const double room = (double)disk.f_bavail * (double)disk.f_frsize;
    if ((double)need <= room) return LLM_OK;
    return llm__error(LLM_ERR_IO, "%s: %.1f MB are to be fetched, and %.400s has room for %.1f MB", p->name.bare, (double)need / 1e6,
                      p->cache.data, room / 1e6);
}

/* ---- one file */

/* The lock of a file, which Hugging Face's own library takes too. */
static llm_result llm__pull_lock(llm__pull *p, const llm__hub_file *f, int *lock) {
    LLM__SCOPED(llm_text_free) llm_text path = LLM__ZERO;
    llm_text_format(&path, "%s/.locks/%s/%s.lock", p->cache.data, p->name.folder, f->hash);
    llm_result r = path.failed ? llm__nomem() : llm__folders_for(path.data);
    if (r) return r;
    *lock = llm__file_descriptor(path.data, 1);
    if (*lock < 0) return llm__error(LLM_ERR_IO, "%.400s: %s", path.data, strerror(errno));
    while (flock(*lock, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR) return LLM_OK; /* a file system without locks */
        if (llm__pull_tick(p)) return llm__error(LLM_ERR_CANCELLED, "%s: stopped", p->name.bare);
        poll(NULL, 0, 200);
    }
    return LLM_OK;
}

/* git's checksum is one of "blob SIZE", NUL and the bytes: as a file without a name. NULL: it could not be made. */
static FILE *llm__pull_git_blob(const char *path) {
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    FILE *out = tmpfile();
    if (!out || llm__file_open(path, 0, 0, &f) || fprintf(out, "blob %zu", f.size) < 0 || putc(0, out) == EOF ||
        fwrite(f.data, 1, f.size, out) < f.size || fflush(out)) {
        if (out) fclose(out);
        return NULL;
    }
    rewind(out);
    return out;
}

static llm_result llm__pull_check(llm__pull *p, const llm__hub_file *f) {
    const int git = strlen(f->hash) == 40;
    const char *const argv[] = {git ? "sha1sum" : "sha256sum", NULL};
    LLM__SCOPED(llm_text_free) llm_text out = LLM__ZERO;
    FILE *whole = git ? llm__pull_git_blob(p->part.data) : NULL;
    const int fd = whole ? fileno(whole) : git ? -1 : llm__file_descriptor(p->part.data, 0);
    const llm__child child = {argv, p->env_list, llm__s("", 0), fd, 0, 4096, llm__pull_tick, p, 0};
    int code = 0;
    llm_result r =
        fd < 0 ? llm__error(LLM_ERR_IO, "%.200s: cannot be read again: %s", f->name, strerror(errno)) : llm__child_run(&child, &out, &code);
    if (whole) fclose(whole);
    else if (fd >= 0) close(fd);
    if (r) return r;
    const size_t n = strlen(f->hash);
    if (!code && out.len > n && !memcmp(out.data, f->hash, n) && out.data[n] == ' ') return LLM_OK;
    if (code || out.len <= n) return llm__error(LLM_ERR_IO, "%s: exit %d", argv[0], code);
    remove(p->part.data);
    return llm__error(LLM_ERR_FORMAT, "%s: %.200s: its checksum is %.*s, and the Hub says %s: it was deleted, fetch it again", p->name.bare,
                      f->name, (int)n, out.data, f->hash);
}

/* Does it pay to go on where it stopped? What ended a transfer that had begun, and times that are over. */
static int llm__pull_again(int code) { return code == 18 || code == 28 || code == 52 || code == 55 || code == 56 || code == 92; }

/* Fetches until all bytes are there; as long as more come, it goes on. */
static llm_result llm__pull_bytes(llm__pull *p, const llm__hub_file *f, int lock) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/";
    LLM__SCOPED(llm_text_free) llm_text url = LLM__ZERO;
    char hex[8];
    llm_text_format(&url, "%s/%s/resolve/%s/", p->endpoint.data, p->name.bare, p->commit);
    for (const char *c = f->name; *c; c++) {
        if (strchr(safe, *c)) llm_text_add(&url, c, 1);
        else snprintf(hex, sizeof hex, "%%%02X", (unsigned char)*c), llm_text_str(&url, hex);
    }
    if (url.failed) return llm__nomem();
    for (int idle = 0, anew = 0;;) {
        int64_t before = llm__path_bytes(p->part.data);
        if (before > f->bytes) remove(p->part.data), before = 0;
        if (before == f->bytes && before >= 0) return LLM_OK;
        llm_result r = llm__pull_get(p, url.data, p->part.data, lock, NULL);
        const int64_t now = llm__path_bytes(p->part.data);
        if (r || now == f->bytes) return r;
        if (!p->curl.exit && now > f->bytes)
            r = llm__error(LLM_ERR_FORMAT, "%s: %.200s: %lld bytes came, and the Hub says %lld", p->name.bare, f->name, (long long)now,
                           (long long)f->bytes);
        if (r) return remove(p->part.data), r;
        idle = now > before ? 0 : idle + 1;
        if ((p->curl.exit == 33 || p->curl.exit == 36 || (p->curl.exit == 22 && p->curl.http == 416)) && !anew++)
            remove(p->part.data); /* it begins at byte 0 only */
        else if (p->curl.exit && (!llm__pull_again(p->curl.exit) || idle > 3)) return llm__pull_refused(p, f->name);
        else if (!p->curl.exit && idle)
            return llm__error(LLM_ERR_FORMAT, "%s: %.200s: %lld bytes came, and the Hub says %lld", p->name.bare, f->name, (long long)now,
                              (long long)f->bytes);
    }
}

/* Takes a file into blobs, unless it is there. */
static llm_result llm__pull_one(llm__pull *p, const llm__hub_file *f) {
    LLM__SCOPED(llm_text_free) llm_text blob = LLM__ZERO;
    int lock = -1;
    llm_result r = llm__pull_blob(p, f, "", &blob);
    if (!r) r = llm__pull_blob(p, f, ".incomplete", &p->part);
    if (!r && llm__path_bytes(blob.data) != f->bytes) {
        p->now = f->name;
        r = llm__pull_lock(p, f, &lock);
        if (!r && llm__path_bytes(blob.data) != f->bytes) { /* nobody else has fetched it meanwhile */
            if (!f->bytes && !(r = llm__path_remove(p->part.data))) {
                const int made = llm__file_descriptor(p->part.data, 1);
                if (made >= 0) close(made);
            }
            if (!r) r = llm__pull_bytes(p, f, lock);
            if (!r) r = llm__pull_check(p, f);
            if (!r && rename(p->part.data, blob.data)) r = llm__error(LLM_ERR_IO, "%.400s: %s", blob.data, strerror(errno));
        }
        if (lock >= 0) close(lock);
        p->now = NULL;
    }
    p->done += f->bytes;
    return r;
}

/* ---- names for what is there */

static llm_result llm__pull_link(const llm__pull *p, const llm__hub_file *f) {
    LLM__SCOPED(llm_text_free) llm_text path = LLM__ZERO, target = LLM__ZERO, there = LLM__ZERO;
    llm_text_format(&path, "%s/snapshots/%s/%s", p->repo.data, p->commit, f->name);
    for (const char *c = f->name; *c; c++)
        if (*c == '/') llm_text_str(&target, "../");
    llm_text_str(&target, "../../blobs/");
    llm_text_str(&target, f->hash);
    if (path.failed || target.failed || there.failed) return llm__nomem();
    llm__link_target(path.data, &there);
    if (there.len == target.len && !memcmp(there.data, target.data, target.len)) return LLM_OK;
    llm_result r = llm__folders_for(path.data);
    if (!r) r = llm__path_remove(path.data);
    if (!r && symlink(target.data, path.data)) r = llm__error(LLM_ERR_IO, "%.400s: %s", path.data, strerror(errno));
    return r;
}

/* A revision that is a commit needs no file that says so. */
static llm_result llm__pull_ref(const llm__pull *p) {
    LLM__SCOPED(llm_text_free) llm_text path = LLM__ZERO, part = LLM__ZERO;
    if (!strcmp(p->name.revision, p->commit)) return LLM_OK;
    llm_text_format(&path, "%s/refs/%s", p->repo.data, p->name.revision);
    llm_text_format(&part, "%s/refs/.%s.incomplete", p->repo.data, p->name.revision);
    if (path.failed || part.failed) return llm__nomem();
    llm_result r = llm__folders_for(path.data);
    FILE *f = r ? NULL : fopen(part.data, "we");
    const int ok = f && fputs(p->commit, f) >= 0;
    if (f && (fclose(f) || !ok || rename(part.data, path.data))) f = NULL;
    return r || f ? r : llm__error(LLM_ERR_IO, "%.400s: %s", path.data, strerror(errno));
}

static llm_result llm__pull_all(llm__pull *p, llm_text *path) {
    LLM__SCOPED(llm_text_free) llm_text blobs = LLM__ZERO;
    llm_text_format(&blobs, "%s/blobs/", p->repo.data);
    llm_result r = blobs.failed ? llm__nomem() : llm__folders_for(blobs.data);
    if (!r) r = llm__pull_room(p);
    for (int i = 0; i < p->n_files && !r; i++)
        if (p->files[i].chosen) r = llm__pull_one(p, &p->files[i]);
    for (int i = 0; i < p->n_files && !r; i++)
        if (p->files[i].chosen) r = llm__pull_link(p, &p->files[i]);
    if (!r) r = llm__pull_ref(p);
    if (r) return r;
    llm_text_format(path, "%s/snapshots/%s", p->repo.data, p->commit);
    if (p->first >= 0) llm_text_format(path, "/%s", p->files[p->first].name);
    return path->failed ? llm__nomem() : LLM_OK;
}

LLM_API llm_result llm_hub_pull(const char *name, const char *hub_cache, char *(*get)(const char *name), llm_pull_fn progress, void *user,
                                llm_text *path) {
    LLM__SCOPED(llm__pull_free) llm__pull p = LLM__ZERO;
    p.get = get;
    p.progress = progress;
    p.user = user;
    llm_result r = llm__pull_begin(&p, name, hub_cache);
    if (!r) r = llm__pull_list(&p);
    return r ? r : llm__pull_all(&p, path);
}

LLM__PRIVATE llm_result llm__hub_get(const char *name, const char *hub_cache, char *(*get)(const char *name), llm_pull_fn progress,
                                     void *user, llm_text *path) {
    LLM__SCOPED(llm_text_free) llm_text cache = LLM__ZERO;
    llm_result r = llm__hub_cache(hub_cache, get, &cache);
    if (!r) r = llm__hub_local(cache.data, name, 1, path);
    return r == LLM_ERR_IO ? llm_hub_pull(name, hub_cache, get, progress, user, path) : r;
}
