/* hub: the local Hugging Face cache.
 *
 * CACHE/models--ORG--NAME/refs/main holds a revision; snapshots/REVISION is a folder of links to the files. Names come from a command line
 * or a client, so they are checked as parts of a path; a revision comes from a file that anybody may have written, so it is, too. As in
 * Hugging Face's own libraries, a snapshot that main does not name is not found. */
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

LLM_API llm_result llm_hub_find(const char *cache_dir, const char *name, llm_text *path) {
    const char *slash = name ? strchr(name, '/') : NULL;
    LLM__SCOPED(llm_text_free) llm_text at = LLM__ZERO;
    LLM__SCOPED(llm__file_close) llm__file revision = LLM__ZERO;
    if (!cache_dir || !*cache_dir) return llm__error(LLM_ERR_ARG, "cache folder: a path expected");
    if (!name || !llm__hub_part(name, strcspn(name, "/")) || (slash && !llm__hub_part(slash + 1, strlen(slash + 1))))
        return llm__error(LLM_ERR_ARG, "model name \"%.100s\": ORG/NAME expected", name ? name : "");
    llm_text_format(&at, "%s/models--", cache_dir);
    llm_text_add(&at, name, strcspn(name, "/"));
    if (slash) llm_text_format(&at, "--%s", slash + 1);
    const size_t repo = at.len;
    llm_text_str(&at, "/refs/main");
    if (at.failed) return llm__nomem();
    llm_result r = llm__file_open(at.data, 4096, 1, &revision);
    const char *text = (const char *)revision.data;
    size_t n = revision.size;
    while (n && text[n - 1] <= ' ') n--;
    at.len = repo;
    llm_text_str(&at, "/snapshots/");
    if (!r && llm__hub_part(text, n)) llm_text_add(&at, text, n);
    else at.data[0] = 0;
    if (!at.failed && llm__path_kind_of(at.data) != LLM__PATH_DIR)
        return llm__error(LLM_ERR_IO, "%s: not in the cache %s", name, cache_dir);
    llm_text_add(path, at.data, at.len);
    return at.failed || path->failed ? llm__nomem() : LLM_OK;
}
