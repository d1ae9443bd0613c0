/* hub: the local Hugging Face cache.
 *
 * CACHE/models--ORG--NAME/refs/main holds a commit; snapshots/COMMIT is a folder of links to the files. Names come from a command line or a
 * client, so they are checked as parts of a path; a commit comes from a file that anybody may have written, so it is, too. As in Hugging
 * Face's own libraries, a snapshot that main does not name is found only by its name: ORG/NAME@REVISION, a branch, a tag or a commit. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/files.h"

/* A name that is safe as a part of a path: letters, digits, '-', '_', '.', and does not start with a dot. */
static int llm__hub_part(const char *s, size_t n) {
    if (!n || n > 200 || s[0] == '.') return 0;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] | 32) >= 'a' && (s[i] | 32) <= 'z') && !(s[i] >= '0' && s[i] <= '9') && s[i] != '-' && s[i] != '_' && s[i] != '.')
            return 0;
    return 1;
}

/* The commit that refs/REVISION holds, at the end of `at`, the folder of the repository; without such a file the revision is one. */
static llm_result llm__hub_commit(llm_text *at, const char *revision) {
    LLM__SCOPED(llm__file_close) llm__file ref = LLM__ZERO;
    const size_t repo = at->len;
    llm_text_format(at, "/refs/%s", revision);
    if (at->failed) return llm__nomem();
    const llm_result r = llm__file_open(at->data, 4096, 1, &ref);
    const char *text = r ? revision : (const char *)ref.data;
    size_t n = r ? strlen(revision) : ref.size;
    while (n && text[n - 1] <= ' ') n--;
    at->len = repo;
    llm_text_str(at, "/snapshots/");
    if (llm__hub_part(text, n)) llm_text_add(at, text, n);
    else at->data[0] = 0;
    return at->failed ? llm__nomem() : LLM_OK;
}

LLM_API llm_result llm_hub_find(const char *cache_dir, const char *name, llm_text *path) {
    const size_t n = name ? strcspn(name, "@") : 0, org = name ? strcspn(name, "/@") : 0;
    const char *revision = n && name[n] ? name + n + 1 : "main";
    LLM__SCOPED(llm_text_free) llm_text at = LLM__ZERO;
    if (!cache_dir || !*cache_dir) return llm__error(LLM_ERR_ARG, "cache folder: a path expected");
    if (!llm__hub_part(name, org) || (org < n && !llm__hub_part(name + org + 1, n - org - 1)) || !llm__hub_part(revision, strlen(revision)))
        return llm__error(LLM_ERR_ARG, "model name \"%.100s\": ORG/NAME expected", name ? name : "");
    llm_text_format(&at, "%s/models--", cache_dir);
    llm_text_add(&at, name, org);
    if (org < n) llm_text_str(&at, "--"), llm_text_add(&at, name + org + 1, n - org - 1);
    llm_result r = at.failed ? llm__nomem() : llm__hub_commit(&at, revision);
    if (r) return r;
    if (llm__path_kind_of(at.data) != LLM__PATH_DIR) return llm__error(LLM_ERR_IO, "%s: not in the cache %s", name, cache_dir);
    llm_text_add(path, at.data, at.len);
    return path->failed ? llm__nomem() : LLM_OK;
}
