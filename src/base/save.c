#include "base/save.h"
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/log.h"

LLM__PRIVATE llm_result llm__save_open(llm__save *o, const char *path) {
    o->path = path;
    llm_text_format(&o->part, "%s.part", path);
    if (o->part.failed) return o->r = llm__nomem();
    o->file = fopen(o->part.data, "wb");
    return o->r = o->file ? LLM_OK : llm__error(LLM_ERR_IO, "%s: %s", o->part.data, strerror(errno));
}

LLM__PRIVATE void llm__save_put(llm__save *o, const void *data, size_t n) {
    if (!o->r && n && fwrite(data, 1, n, o->file) != n) o->r = llm__error(LLM_ERR_IO, "%s: %s", o->path, strerror(errno));
}

LLM__PRIVATE llm_result llm__save_flush(llm__save *o) {
    if (o->r || !o->file) return o->r;
    if (fflush(o->file) || fsync(fileno(o->file))) o->r = llm__error(LLM_ERR_IO, "%s: %s", o->path, strerror(errno));
    if (fclose(o->file) && !o->r) o->r = llm__error(LLM_ERR_IO, "%s: %s", o->path, strerror(errno));
    o->file = NULL;
    return o->r;
}

LLM__PRIVATE llm_result llm__save_done(llm__save *o) {
    if (!llm__save_flush(o) && rename(o->part.data, o->path)) o->r = llm__error(LLM_ERR_IO, "%s: %s", o->path, strerror(errno));
    if (!o->r) llm_text_free(&o->part);
    return o->r;
}

LLM__PRIVATE void llm__save_close(llm__save *o) {
    if (o->file) fclose(o->file);
    o->file = NULL;
    if (o->part.len && !o->part.failed) remove(o->part.data);
    llm_text_free(&o->part);
}
