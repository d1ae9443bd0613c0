#include "base/place.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"

/* What stands behind "<given>/", "" for the folder itself; NULL: a path of the file system. */
static const char *llm__place_name(const llm__place *p, const char *path) {
    const size_t n = sizeof LLM__GIVEN - 1;
    if (!p->file || strncmp(path, LLM__GIVEN, n) || (path[n] && path[n] != '/')) return NULL;
    return path + n + (path[n] == '/');
}

static const llm_file *llm__place_find(const llm__place *p, const char *name) {
    for (int32_t i = 0; i < p->n; i++)
        if (!strcmp(p->file[i].name, name)) return &p->file[i];
    return NULL;
}

LLM__PRIVATE llm__path_kind llm__place_kind(const llm__place *p, const char *path) {
    const char *name = llm__place_name(p, path);
    if (!name) return llm__path_kind_of(path);
    return !*name ? LLM__PATH_DIR : llm__place_find(p, name) ? LLM__PATH_FILE : LLM__PATH_NONE;
}

LLM__PRIVATE llm_result llm__place_file(const llm__place *p, const char *path, size_t limit, int no_mmap, llm__file *out) {
    const char *name = llm__place_name(p, path);
    const llm_file *f = name ? llm__place_find(p, name) : NULL;
    memset(out, 0, sizeof *out);
    if (!name) return llm__file_open(path, limit, no_mmap, out);
    if (!f) return llm__error(LLM_ERR_IO, "%s: no such file was given", path);
    if (f->data || f->read) return llm__file_given(path, f, limit, out);
    if (!f->has_fd) return llm__error(LLM_ERR_ARG, "%s: neither data, nor a reader, nor a descriptor was given", path);
    return llm__file_part(path, f->fd, f->offset, f->size, limit, no_mmap, out);
}

LLM__PRIVATE void llm__place_names(const llm__place *p, const char *folder, llm_text *names) {
    const char *name = llm__place_name(p, folder);
    if (!name) llm__folder_names(folder, names);
    for (int32_t i = 0; name && !*name && i < p->n; i++) llm_text_add(names, p->file[i].name, strlen(p->file[i].name) + 1);
}

LLM__PRIVATE llm_result llm__place_json(const llm__place *p, const char *path, size_t limit, llm_json **out) {
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    *out = NULL;
    llm_result r = llm__place_file(p, path, limit, 1, &f);
    if (!r) r = llm_json_parse((const char *)f.data, f.size, NULL, out);
    return r && f.data ? llm__error(r, "%s: %s", path, llm_last_error()) : r;
}

LLM__PRIVATE llm_result llm__place_model(const llm__place *p, llm_text *path) {
    const char *gguf = NULL;
    for (int32_t i = 0; i < p->n; i++) {
        const char *name = p->file[i].name;
        if (!name || !*name) return llm__error(LLM_ERR_ARG, "files[%d]: a name expected, as the file has in the model's folder", (int)i);
        if (llm__place_find(p, name) != &p->file[i]) return llm__error(LLM_ERR_ARG, "files[%d]: \"%.100s\" is given twice", (int)i, name);
        if (llm__ends_with(name, ".gguf") && (!gguf || strcmp(name, gguf) < 0)) gguf = name;
    }
    if (p->n == 1) gguf = p->file->name;
    llm_text_str(path, LLM__GIVEN);
    if (gguf) llm_text_format(path, "/%s", gguf);
    return path->failed ? llm__nomem() : LLM_OK;
}
