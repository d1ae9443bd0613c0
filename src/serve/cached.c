#include "serve/cached.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/hub.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "model/hub.h"

LLM__PRIVATE llm_result llm__hub_parse(const char *name, llm__hub_name *out) {
    const size_t n = name ? strcspn(name, ":@") : 0, org = name ? strcspn(name, "/:@") : 0;
    const char *quant = n && name[n] == ':' ? name + n + 1 : "", *at = n ? strchr(name + n, '@') : NULL;
    const size_t q = strcspn(quant, "@"), r = at ? strlen(at + 1) : 4;
    memset(out, 0, sizeof *out);
    int ok = llm__hub_part(name, org) && (org == n || llm__hub_part(name + org + 1, n - org - 1)) && q < sizeof out->quant &&
             (q || !n || name[n] != ':') && llm__hub_part(at ? at + 1 : "main", r);
    for (size_t i = 0; i < q && ok; i++) ok = (unsigned char)quant[i] > ' ' && quant[i] != 127 && quant[i] != '\\';
    if (!ok)
        return llm__error(LLM_ERR_ARG, "model name \"%.100s\": ORG/NAME, ORG/NAME:QUANT or either with @REVISION expected",
                          name ? name : "");
    snprintf(out->bare, sizeof out->bare, "%.*s", (int)n, name);
    snprintf(out->folder, sizeof out->folder, "models--%.*s%s%.*s", (int)org, name, org < n ? "--" : "", (int)(org < n ? n - org - 1 : 0),
             name + org + (org < n));
    snprintf(out->revision, sizeof out->revision, "%.*s", (int)r, at ? at + 1 : "main");
    snprintf(out->quant, sizeof out->quant, "%.*s", (int)q, quant);
    return LLM_OK;
}

LLM__PRIVATE int llm__hub_file_name(const char *name) {
    size_t n = strlen(name);
    if (!n || n > 1000 || *name == '/' || name[n - 1] == '/' || strstr(name, "..") || strstr(name, "//") || strstr(name, "./")) return 0;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 127 || name[i] == '\\') return 0;
    return 1;
}

LLM__PRIVATE void llm__hub_home(char *(*get)(const char *name), llm_text *out) {
    const char *hf = get ? get("HF_HOME") : NULL, *home = get ? get("HOME") : NULL;
    if (hf && *hf) {
        llm_text_str(out, hf);
        return;
    }
    if (home) llm_text_str(out, home);
    else llm__user_home(out);
    llm_text_str(out, "/.cache/huggingface");
}

LLM__PRIVATE llm_result llm__hub_cache(const char *hub_cache, char *(*get)(const char *name), llm_text *cache) {
    const char *hub = hub_cache ? hub_cache : get ? get("HF_HUB_CACHE") : NULL;
    if (hub && *hub) llm_text_str(cache, hub);
    else llm__hub_home(get, cache), llm_text_str(cache, "/hub");
    return cache->failed ? llm__nomem() : LLM_OK;
}

/* ---- which files make a model */

static const char *llm__hub_base(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static int llm__hub_is_mmproj(const char *name) { return llm__ends_with(name, ".gguf") && strstr(llm__hub_base(name), "mmproj"); }

static int llm__hub_is_gguf(const char *name) {
    return llm__ends_with(name, ".gguf") && !llm__hub_is_mmproj(name) && !strstr(llm__hub_base(name), "imatrix");
}

/* Length of a GGUF file's name without its end, "-00001-of-00003.gguf" or ".gguf"; *of: how many parts there are, *part: which it is. */
static size_t llm__hub_stem(const char *name, int *part, int *of) {
    const size_t n = strlen(name) - 5;
    const char *end = n > 15 ? name + n - 15 : "";
    *part = *of = 1;
    if (*end != '-' || strspn(end + 1, "0123456789") != 5 || strncmp(end + 6, "-of-", 4) || strspn(end + 10, "0123456789") != 5) return n;
    *part = (int)strtol(end + 1, NULL, 10), *of = (int)strtol(end + 10, NULL, 10);
    return n - 15;
}

/* Is a GGUF file of this quantisation? It stands at the end of its name, by itself. */
static int llm__hub_is_quant(const char *name, const char *quant) {
    int part, of;
    const size_t n = llm__hub_stem(name, &part, &of), q = strlen(quant);
    if (!strcasecmp(name, quant)) return 1;
    if (q > n || strncasecmp(name + n - q, quant, q)) return 0;
    const char before = q < n ? name[n - q - 1] : '/';
    const int letter = (*quant | 32) >= 'a' && (*quant | 32) <= 'z'; /* K_M is no quantisation of Q4_K_M, F16 is one of model_F16 */
    return before == '-' || before == '.' || before == '/' || (before == '_' && letter && quant[strcspn(quant, "0123456789")]);
}

/* What a GGUF file's quantisation is called. */
static llm__str llm__hub_quant(const char *name) {
    int part, of;
    const size_t n = llm__hub_stem(name, &part, &of);
    size_t at = n;
    while (at && name[at - 1] != '-' && name[at - 1] != '.' && name[at - 1] != '/') at--;
    return llm__s(name + at, n - at);
}

/* Bits of a weight as a GGUF file's name says, 4 of Q4_K_M, 16 of BF16; 0: it does not. */
static int llm__hub_bits(const char *name) {
    const llm__str quant = llm__hub_quant(name);
    for (size_t i = 0; i < quant.n; i++)
        if (quant.p[i] >= '0' && quant.p[i] <= '9') return (int)strtol(quant.p + i, NULL, 10) & 0xffff;
    return 0;
}

/* The file that a model sees with: beside it, else above it, and of several the one whose bits are nearest. -1: none. Repositories have one
 * file of that kind for all quantisations, or some, mostly F16 beside Q8_0; llama.cpp chooses in the same way. */
static int llm__hub_sibling(const llm__hub_file *files, int n, const char *model) {
    int best = -1, best_off = 0;
    size_t best_folder = 0;
    for (int i = 0; i < n; i++) {
        const size_t folder = (size_t)(llm__hub_base(files[i].name) - files[i].name);
        const int off = abs(llm__hub_bits(files[i].name) - llm__hub_bits(model));
        if (!llm__hub_is_mmproj(files[i].name) || folder > strlen(model) || memcmp(files[i].name, model, folder)) continue;
        if (best >= 0 && (folder < best_folder || (folder == best_folder && off >= best_off))) continue;
        best = i;
        best_off = off;
        best_folder = folder;
    }
    return best;
}

/* The sentence for a quantisation that is not there. */
static llm_result llm__hub_quants(const llm__hub_name *name, const llm__hub_file *files, int n) {
    LLM__SCOPED(llm_text_free) llm_text list = LLM__ZERO;
    int part, of;
    for (int i = 0; i < n && list.len < 400; i++) {
        if (!llm__hub_is_gguf(files[i].name) || (llm__hub_stem(files[i].name, &part, &of), part > 1)) continue;
        if (list.len) llm_text_str(&list, ", ");
        llm__add_str(&list, llm__hub_quant(files[i].name));
    }
    return llm__error(LLM_ERR_IO, "%s: %s is not there; there are: %s", name->bare, name->quant, list.len ? list.data : "no GGUF files");
}

/* 1 if a file of a folder has weights: in safetensors, or with `old` as torch.save writes them. */
static int llm__hub_is_weights(const char *name, int old) {
    if (old) return !strncmp(name, "pytorch_model", 13) && llm__ends_with(name, ".bin");
    return strncmp(name, "consolidated", 12) && llm__ends_with(name, ".safetensors");
}

/* Of a folder: what a model is opened from, none of what is the same in another form. */
static int llm__hub_of_folder(const char *name, int old) {
    static const char *const ends[] = {".json", ".txt", ".jinja", ".model", ".tiktoken"};
    if (!strcmp(name, "1_Pooling/config.json") || (!strchr(name, '/') && llm__hub_is_weights(name, old))) return 1;
    for (int i = 0; i < LLM__COUNT(ends) && !strchr(name, '/'); i++)
        if (llm__ends_with(name, ends[i])) return strncmp(name, "consolidated", 12) != 0;
    return 0;
}

/* All parts of the model that files[at] belongs to, and what it sees with. */
static llm_result llm__hub_choose_gguf(const llm__hub_name *name, llm__hub_file *files, int n, int at, int *first) {
    int part, of, other, parts = 0;
    const size_t stem = llm__hub_stem(files[at].name, &part, &of);
    *first = at;
    for (int i = 0; i < n; i++) {
        if (!llm__hub_is_gguf(files[i].name) || llm__hub_stem(files[i].name, &part, &other) != stem || other != of ||
            strncmp(files[i].name, files[at].name, stem))
            continue;
        files[i].chosen = 1;
        parts++;
        if (part == 1) *first = i;
    }
    const int sees = llm__hub_sibling(files, n, files[at].name);
    if (sees >= 0) files[sees].chosen = 1;
    return parts == of ? LLM_OK : llm__error(LLM_ERR_IO, "%s: %.200s: %d of %d parts are there", name->bare, files[at].name, parts, of);
}

LLM__PRIVATE llm_result llm__hub_choose(const llm__hub_name *name, llm__hub_file *files, int n, int *first) {
    static const char *const usual[] = {"Q4_K_M", "Q8_0"};
    int gguf = -1, weights = 0, older = 0, at = -1;
    *first = -1;
    for (int i = n - 1; i >= 0; i--) {
        if (llm__hub_is_gguf(files[i].name)) gguf = i;
        weights += !strchr(files[i].name, '/') && llm__hub_is_weights(files[i].name, 0);
        older += !strchr(files[i].name, '/') && llm__hub_is_weights(files[i].name, 1);
    }
    const int old = !weights && older && gguf < 0; /* pytorch_model.bin, where there is nothing better */
    for (int i = 0; i < n; i++) files[i].chosen = llm__hub_of_folder(files[i].name, old);
    if (!*name->quant && (weights || old)) return LLM_OK;
    for (int k = 0; k < LLM__COUNT(usual) && at < 0; k++)
        for (int i = 0; i < n && at < 0; i++)
            if (llm__hub_is_gguf(files[i].name) && llm__hub_is_quant(files[i].name, *name->quant ? name->quant : usual[k])) at = i;
    if (at < 0 && *name->quant) return llm__hub_quants(name, files, n);
    if (at < 0) at = gguf;
    if (at < 0) return llm__error(LLM_ERR_IO, "%s: there are neither GGUF files nor safetensors nor pytorch_model.bin", name->bare);
    for (int i = 0; i < n; i++) files[i].chosen = 0;
    return llm__hub_choose_gguf(name, files, n, at, first);
}

/* ---- what is there */

/* A snapshot's files by their names from there; folders that are links are left alone. */
typedef struct llm__hub_snapshot {
    llm_text names;
    llm__hub_file *files;
    int n;
} llm__hub_snapshot;

static void llm__hub_snapshot_free(llm__hub_snapshot *s) {
    llm_text_free(&s->names);
    LLM_FREE(s->files);
}

static void llm__hub_scan(const char *folder, const char *prefix, int depth, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO, at = LLM__ZERO;
    llm__folder_names(folder, &names);
    for (const char *name = NULL; (name = llm__folder_next(&names, name)) != NULL;) {
        LLM__SCOPED(llm__drop) char *below = llm__path_join(folder, name);
        const llm__path_kind kind = below && *name != '.' ? llm__path_kind_of(below) : LLM__PATH_NONE;
        at.len = 0;
        llm_text_str(&at, prefix);
        llm_text_str(&at, name);
        if (kind == LLM__PATH_FILE) llm_text_add(out, at.data, at.len + 1);
        llm_text_str(&at, "/");
        if (kind == LLM__PATH_DIR && depth < 3 && !llm__path_is_link(below)) llm__hub_scan(below, at.data, depth + 1, out);
    }
}

/* alone: without the folders in it. */
static llm_result llm__hub_snapshot_read(const char *folder, int alone, llm__hub_snapshot *s) {
    llm__hub_scan(folder, "", alone ? 3 : 0, &s->names);
    for (const char *name = NULL; (name = llm__folder_next(&s->names, name)) != NULL;) s->n++;
    s->files = LLM__NEW(llm__hub_file, s->n + 1);
    if (!s->files || s->names.failed) return llm__nomem();
    int i = 0;
    for (const char *name = NULL; (name = llm__folder_next(&s->names, name)) != NULL; i++) {
        LLM__SCOPED(llm__drop) char *path = llm__path_join(folder, name);
        s->files[i].name = name;
        s->files[i].bytes = path ? llm__path_bytes(path) : 0;
    }
    return LLM_OK;
}

/* Is a file of this repository begun and not whole? */
static int llm__hub_begun(const char *cache, const llm__hub_name *name) {
    LLM__SCOPED(llm_text_free) llm_text path = LLM__ZERO, names = LLM__ZERO;
    llm_text_format(&path, "%s/%s/blobs", cache, name->folder);
    if (!path.failed) llm__folder_names(path.data, &names);
    for (const char *blob = NULL; (blob = llm__folder_next(&names, blob)) != NULL;)
        if (llm__ends_with(blob, ".incomplete")) return 1;
    return 0;
}

LLM__PRIVATE llm_result llm__hub_local(const char *cache, const char *name, int whole, llm_text *path) {
    llm__hub_name parsed;
    LLM__SCOPED(llm__hub_snapshot_free) llm__hub_snapshot s = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text bare = LLM__ZERO, folder = LLM__ZERO;
    int first = -1;
    llm_result r = llm__hub_parse(name, &parsed);
    if (r) return r;
    llm_text_format(&bare, "%s@%s", parsed.bare, parsed.revision);
    r = bare.failed ? llm__nomem() : llm_hub_find(cache, bare.data, &folder);
    if (!r) r = llm__hub_snapshot_read(folder.data, 0, &s);
    if (r) return r;
    r = llm__hub_choose(&parsed, s.files, s.n, &first);
    if (r == LLM_ERR_NOMEM || (r && (whole || *parsed.quant))) return r;
    if (first < 0 && whole && llm__hub_begun(cache, &parsed))
        return llm__error(LLM_ERR_IO, "%s: a part is missing in the cache", parsed.bare);
    llm_text_str(path, folder.data);
    if (first >= 0 && !r) llm_text_str(path, "/"), llm_text_str(path, s.files[first].name);
    return path->failed ? llm__nomem() : LLM_OK;
}

LLM__PRIVATE llm_result llm__hub_in_folder(const char *folder, llm_text *path) {
    LLM__SCOPED(llm__hub_snapshot_free) llm__hub_snapshot s = LLM__ZERO;
    llm__hub_name any;
    int first = -1, models = 0;
    memset(&any, 0, sizeof any);
    snprintf(any.bare, sizeof any.bare, "%.400s", folder);
    llm_result r = llm__hub_snapshot_read(folder, 1, &s);
    for (int i = 0; i < s.n && !r; i++) models += llm__hub_is_gguf(s.files[i].name);
    if (!r && models) r = llm__hub_choose(&any, s.files, s.n, &first);
    if (r || first < 0) return r;
    llm_text_format(path, "%s%s%s", folder, llm__ends_with(folder, "/") ? "" : "/", s.files[first].name);
    return path->failed ? llm__nomem() : LLM_OK;
}

LLM__PRIVATE llm_result llm__hub_companion(const char *model, int alone, llm_text *path) {
    LLM__SCOPED(llm__hub_snapshot_free) llm__hub_snapshot s = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text root = LLM__ZERO;
    const char *commit = alone ? NULL : strstr(model, "/snapshots/"), *end = commit ? strchr(commit + 11, '/') : NULL;
    if (!end) end = strrchr(model, '/');
    if (!end) return LLM_OK;
    llm_text_add(&root, model, (size_t)(end - model));
    llm_result r = root.failed ? llm__nomem() : llm__hub_snapshot_read(root.data, alone, &s);
    const int at = r ? -1 : llm__hub_sibling(s.files, s.n, end + 1);
    if (at >= 0) llm_text_format(path, "%s/%s", root.data, s.files[at].name);
    return r ? r : path->failed ? llm__nomem() : LLM_OK;
}

/* ---- llm_hub_list */

/* Appends "@BRANCH" where refs/BRANCH, not main, names a commit, "@COMMIT" where none does, for main nothing. */
static void llm__hub_name_of(const char *repo, const char *commit, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text refs = LLM__ZERO, names = LLM__ZERO;
    const char *best = commit;
    llm_text_format(&refs, "%s/refs", repo);
    if (!refs.failed) llm__folder_names(refs.data, &names);
    for (const char *name = NULL; (name = llm__folder_next(&names, name)) != NULL;) {
        LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
        LLM__SCOPED(llm__drop) char *path = llm__path_join(refs.data, name);
        const size_t n = strlen(commit);
        if (*name == '.' || !path || llm__file_open(path, 4096, 1, &f) || f.size < n || memcmp(f.data, commit, n)) continue;
        if (!strcmp(name, "main") || best == commit) best = name;
    }
    if (strcmp(best, "main")) llm_text_format(out, "@%s", best);
}

static void llm__hub_entry(llm_text *json, const char *repo, const char *bare, const char *commit, llm__str quant, const char *format,
                           int64_t bytes, const char *path) {
    LLM__SCOPED(llm_text_free) llm_text name = LLM__ZERO;
    llm_text_str(&name, bare);
    if (quant.n) llm_text_str(&name, ":"), llm__add_str(&name, quant);
    if (commit) llm__hub_name_of(repo, commit, &name);
    llm_text_format(json, "%,{'name': %q, 'format': %q, 'quant': ", name.data ? name.data : "", format);
    if (quant.n) llm_text_json(json, quant.p, quant.n);
    else llm_text_str(json, "null");
    llm_text_format(json, ", 'bytes': %l, 'modified': %l, 'path': %q}", bytes, llm__path_time(path), path);
}

/* The models of one snapshot. */
static llm_result llm__hub_list_snapshot(const char *repo, const char *bare, const char *commit, const char *folder, llm_text *json) {
    LLM__SCOPED(llm__hub_snapshot_free) llm__hub_snapshot s = LLM__ZERO;
    int64_t bytes = 0;
    int weights = 0, older = 0, part, of, first;
    llm_result r = llm__hub_snapshot_read(folder, 0, &s);
    for (int i = 0; i < s.n && !r; i++) {
        const int gguf = llm__hub_is_gguf(s.files[i].name);
        weights += llm__hub_is_weights(s.files[i].name, 0);
        older += llm__hub_is_weights(s.files[i].name, 1);
        if (!gguf) bytes += s.files[i].bytes;
        if (!gguf || (llm__hub_stem(s.files[i].name, &part, &of), part > 1)) continue;
        LLM__SCOPED(llm__drop) char *path = llm__path_join(folder, s.files[i].name);
        llm__hub_name as;
        int64_t sum = 0;
        memset(&as, 0, sizeof as);
        for (int k = 0; k < s.n; k++) s.files[k].chosen = 0;
        const int whole = !llm__hub_choose_gguf(&as, s.files, s.n, i, &first);
        for (int k = 0; k < s.n; k++) sum += s.files[k].chosen ? s.files[k].bytes : 0;
        llm__hub_entry(json, repo, bare, commit, llm__hub_quant(s.files[i].name), whole ? "gguf" : "incomplete", sum, path ? path : "");
    }
    if (!r && (weights || older))
        llm__hub_entry(json, repo, bare, commit, llm__s("", 0), weights ? "safetensors" : "pytorch", bytes, folder);
    return r;
}

/* The models of one repository; what only lies in its blobs was never finished. */
static llm_result llm__hub_list_repo(const char *repo, const char *bare, llm_text *json) {
    LLM__SCOPED(llm_text_free) llm_text at = LLM__ZERO, commits = LLM__ZERO, blobs = LLM__ZERO;
    const size_t before = json->len;
    llm_result r = LLM_OK;
    int64_t bytes = 0;
    llm_text_format(&at, "%s/snapshots", repo);
    if (at.failed) return llm__nomem();
    llm__folder_names(at.data, &commits);
    for (const char *c = NULL; !r && (c = llm__folder_next(&commits, c)) != NULL;) {
        LLM__SCOPED(llm__drop) char *folder = llm__path_join(at.data, c);
        if (*c != '.' && folder && llm__path_kind_of(folder) == LLM__PATH_DIR) r = llm__hub_list_snapshot(repo, bare, c, folder, json);
    }
    at.len = 0;
    llm_text_format(&at, "%s/blobs", repo);
    llm__folder_names(at.data, &blobs);
    for (const char *b = NULL; (b = llm__folder_next(&blobs, b)) != NULL;) {
        LLM__SCOPED(llm__drop) char *path = llm__path_join(at.data, b);
        if (path) bytes += LLM__MAX(llm__path_bytes(path), 0);
    }
    if (!r && json->len == before && bytes) llm__hub_entry(json, repo, bare, NULL, llm__s("", 0), "incomplete", bytes, repo);
    return r;
}

LLM_API llm_result llm_hub_list(const char *hub_cache, char *(*get)(const char *name), llm_text *json) {
    LLM__SCOPED(llm_text_free) llm_text cache = LLM__ZERO, names = LLM__ZERO;
    llm_result r = llm__hub_cache(hub_cache, get, &cache);
    if (r) return r;
    llm__folder_names(cache.data, &names);
    llm_text_str(json, "[");
    for (const char *name = NULL; !r && (name = llm__folder_next(&names, name)) != NULL;) {
        LLM__SCOPED(llm__drop) char *repo = llm__path_join(cache.data, name);
        LLM__SCOPED(llm_text_free) llm_text bare = LLM__ZERO;
        if (strncmp(name, "models--", 8) || !repo) continue;
        const char *dashes = strstr(name + 8, "--");
        llm_text_add(&bare, name + 8, dashes ? (size_t)(dashes - name - 8) : strlen(name + 8));
        if (dashes) llm_text_format(&bare, "/%s", dashes + 2);
        r = bare.failed ? llm__nomem() : llm__hub_list_repo(repo, bare.data, json);
    }
    llm_text_str(json, "]");
    return r ? r : json->failed ? llm__nomem() : LLM_OK;
}

/* ---- llm_hub_remove */

/* The blob that a link of a snapshot names, "../../blobs/HASH": HASH, nothing for what is no such link. */
static void llm__hub_blob_of(const char *path, llm_text *hash) {
    LLM__SCOPED(llm_text_free) llm_text target = LLM__ZERO;
    llm__link_target(path, &target);
    const char *base = target.data ? llm__hub_base(target.data) : "";
    if (llm__hub_part(base, strlen(base))) llm_text_add(hash, base, strlen(base) + 1);
}

/* Goes through all files of all snapshots. quant: those of this quantisation are removed, their blobs noted in `blobs`; NULL: blobs of
 * all are noted. Returns how many files it met that it did not remove. */
static int llm__hub_walk(const char *repo, const char *quant, llm_text *blobs, llm_result *r) {
    LLM__SCOPED(llm_text_free) llm_text at = LLM__ZERO, commits = LLM__ZERO;
    int left = 0;
    llm_text_format(&at, "%s/snapshots", repo);
    if (!at.failed && !llm__path_is_link(at.data)) llm__folder_names(at.data, &commits);
    for (const char *c = NULL; !*r && (c = llm__folder_next(&commits, c)) != NULL;) {
        LLM__SCOPED(llm__hub_snapshot_free) llm__hub_snapshot s = LLM__ZERO;
        LLM__SCOPED(llm__drop) char *folder = llm__path_join(at.data, c);
        if (*c == '.' || !folder || llm__path_is_link(folder)) continue;
        *r = llm__hub_snapshot_read(folder, 0, &s);
        for (int i = 0; i < s.n && !*r; i++) {
            LLM__SCOPED(llm__drop) char *path = llm__path_join(folder, s.files[i].name);
            const int goes = quant && llm__hub_is_gguf(s.files[i].name) && llm__hub_is_quant(s.files[i].name, quant);
            left += !goes && !llm__hub_is_mmproj(s.files[i].name); /* which is nothing by itself */
            if (path && (goes || !quant)) llm__hub_blob_of(path, blobs);
            if (path && goes) *r = llm__path_remove(path);
        }
    }
    return left;
}

/* The files of one quantisation, and their blobs unless another name leads to them. */
static llm_result llm__hub_remove_quant(const llm__hub_name *name, const char *repo) {
    LLM__SCOPED(llm_text_free) llm_text gone = LLM__ZERO, kept = LLM__ZERO, folder = LLM__ZERO;
    llm_result r = LLM_OK;
    const int left = llm__hub_walk(repo, name->quant, &gone, &r);
    if (!r && !gone.len) r = llm__error(LLM_ERR_IO, "%s: %s is not in the cache", name->bare, name->quant);
    if (!r && !left) return llm__path_remove(repo);
    llm__hub_walk(repo, NULL, &kept, &r);
    llm_text_format(&folder, "%s/blobs", repo);
    if (r || folder.failed || llm__path_is_link(folder.data)) return r;
    for (const char *hash = NULL; !r && (hash = llm__folder_next(&gone, hash)) != NULL;) {
        LLM__SCOPED(llm__drop) char *path = llm__path_join(folder.data, hash);
        int used = !path;
        for (const char *k = NULL; (k = llm__folder_next(&kept, k)) != NULL;) used |= !strcmp(k, hash);
        if (!used) r = llm__path_remove(path);
    }
    return r;
}

LLM_API llm_result llm_hub_remove(const char *name, const char *hub_cache, char *(*get)(const char *name)) {
    LLM__SCOPED(llm_text_free) llm_text cache = LLM__ZERO, repo = LLM__ZERO, locks = LLM__ZERO;
    llm__hub_name parsed;
    llm_result r = llm__hub_parse(name, &parsed);
    if (!r && strchr(name, '@'))
        r = llm__error(LLM_ERR_ARG, "%.100s: a model goes with all its revisions, ORG/NAME[:QUANT] was expected", name);
    if (!r) r = llm__hub_cache(hub_cache, get, &cache);
    if (r) return r;
    llm_text_format(&repo, "%s/%s", cache.data, parsed.folder);
    llm_text_format(&locks, "%s/.locks/%s", cache.data, parsed.folder);
    if (repo.failed || locks.failed) return llm__nomem();
    if (llm__path_is_link(repo.data)) return llm__error(LLM_ERR_IO, "%.400s: a link, a folder of the cache was expected", repo.data);
    if (llm__path_kind_of(repo.data) != LLM__PATH_DIR)
        return llm__error(LLM_ERR_IO, "%s: not in the cache %.400s", parsed.bare, cache.data);
    if (*parsed.quant) return llm__hub_remove_quant(&parsed, repo.data);
    r = llm__path_remove(repo.data);
    return r ? r : llm__path_remove(locks.data);
}
