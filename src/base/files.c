#include "base/files.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"

/* Reads exactly n bytes; interrupted reads go on, an early end is an error that says where. */
static llm_result llm__read_all(int fd, const char *path, uint8_t *to, size_t n, int64_t offset) {
    for (size_t at = 0; at < n;) {
        ssize_t got = pread(fd, to + at, LLM__MIN(n - at, (size_t)1 << 30), (off_t)offset + (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return llm__error(LLM_ERR_IO, "%s: %s at byte %zu of %zu", path, got ? strerror(errno) : "file ended", at, n);
        at += (size_t)got;
    }
    return LLM_OK;
}

enum { LLM__FILE_SMALL = 1 << 20 }; /* bytes of a file that is read into the heap, where sanitizers see who reads past its end */

/* Gives back the memory that a file of n bytes was read into. */
static void llm__file_drop(void *p, size_t n) {
    if (n < LLM__FILE_SMALL) LLM_FREE(p);
    else llm__pages_free(p, n);
}

/* Bytes from the begin of a page to an address or place in a file. */
static size_t llm__page_over(uintptr_t at) { return at % (size_t)sysconf(_SC_PAGESIZE); }

/* Memory for a file of n bytes, of which at most `limit` are expected. On error NULL. */
static llm_result llm__file_memory(const char *path, size_t n, size_t limit, uint8_t **out) {
    *out = NULL;
    if (limit && n > limit) return llm__error(LLM_ERR_LIMIT, "%s: %zu bytes, at most %zu expected", path, n, limit);
    *out = (uint8_t *)(n < LLM__FILE_SMALL ? LLM_MALLOC(n ? n : 1) : llm__pages_get(n));
    return *out ? LLM_OK : llm__error(LLM_ERR_NOMEM, "%s: out of memory for %zu bytes", path, n);
}

/* Keeps what was read, or frees it. */
static llm_result llm__file_keep(llm__file *out, uint8_t *data, size_t n, llm_result r) {
    if (r) llm__file_drop(data, n);
    else out->data = data, out->size = n;
    return r;
}

LLM__PRIVATE llm_result llm__file_part(const char *path, int fd, int64_t offset, int64_t size, size_t limit, int no_mmap, llm__file *out) {
    struct stat st;
    uint8_t *p = NULL;
    memset(out, 0, sizeof *out);
    if (fstat(fd, &st)) return llm__error(LLM_ERR_IO, "%s: descriptor %d: %s", path, fd, strerror(errno));
    if (!S_ISREG(st.st_mode)) return llm__error(LLM_ERR_IO, "%s: not a regular file", path);
    if (offset < 0 || size < 0 || offset > (int64_t)st.st_size || size > (int64_t)st.st_size - offset)
        return llm__error(LLM_ERR_IO, "%s: %lld bytes from %lld on of a file of %lld", path, (long long)size, (long long)offset,
                          (long long)st.st_size);
    size_t n = size ? (size_t)size : (size_t)(st.st_size - offset), over = llm__page_over((uintptr_t)offset);
    if (n && !no_mmap && (!limit || n <= limit)) {
        void *map = mmap(NULL, n + over, PROT_READ, MAP_PRIVATE, fd, (off_t)offset - (off_t)over);
        if (map != MAP_FAILED) {
            out->data = (const uint8_t *)map + over;
            out->size = n;
            out->mapped = 1;
            out->watch = fcntl(fd, F_DUPFD_CLOEXEC, 0) + 1;
            out->end = offset + (int64_t)n;
            return LLM_OK;
        }
    }
    llm_result r = llm__file_memory(path, n, limit, &p);
    return r ? r : llm__file_keep(out, p, n, llm__read_all(fd, path, p, n, offset));
}

LLM__PRIVATE llm_result llm__file_open(const char *path, size_t limit, int no_mmap, llm__file *out) {
    memset(out, 0, sizeof *out);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* O_NONBLOCK: opening a FIFO must not wait for a writer */
    if (fd < 0) return llm__error(LLM_ERR_IO, "%s: %s", path, errno == ENOENT ? "no such file" : strerror(errno));
    llm_result r = llm__file_part(path, fd, 0, 0, limit, no_mmap, out);
    close(fd);
    return r;
}

LLM__PRIVATE llm_result llm__file_given(const char *path, const llm_file *given, size_t limit, llm__file *out) {
    uint8_t *p = NULL;
    int64_t at = 0, got = 1;
    memset(out, 0, sizeof *out);
    if (given->size < 0) return llm__error(LLM_ERR_ARG, "%s: size %lld", path, (long long)given->size);
    size_t n = (size_t)given->size;
    if (given->data && (uintptr_t)given->data % 16 == 0 && (!limit || n <= limit)) {
        out->data = (const uint8_t *)given->data;
        out->size = n;
        out->borrowed = 1;
        return LLM_OK;
    }
    llm_result r = llm__file_memory(path, n, limit, &p);
    if (r) return r;
    if (given->data) memcpy(p, given->data, n);
    for (; !given->data && at < given->size && got > 0; at += got) {
        got = given->read(given->user, at, p + at, (size_t)LLM__MIN(given->size - at, (int64_t)1 << 24));
        if (got > given->size - at) got = -1;
    }
    if (got <= 0)
        r = llm__error(LLM_ERR_IO, "%s: the reader %s at byte %lld of %zu", path, got ? "failed" : "ended", (long long)(at - got), n);
    return llm__file_keep(out, p, n, r);
}

LLM__PRIVATE int llm__file_whole(const llm__file *f) {
    struct stat st;
    return !f->watch || fstat(f->watch - 1, &st) || (int64_t)st.st_size >= f->end;
}

LLM__PRIVATE void llm__file_rest(const void *p, size_t n) {
    size_t over = llm__page_over((uintptr_t)p);
    madvise((void *)((uintptr_t)p - over), n + over, MADV_DONTNEED);
}

LLM__PRIVATE void llm__file_close(llm__file *f) {
    size_t over = f->mapped ? llm__page_over((uintptr_t)f->data) : 0;
    if (f->mapped) munmap((void *)((uintptr_t)f->data - over), f->size + over);
    else if (f->data && !f->borrowed) llm__file_drop((void *)(uintptr_t)f->data, f->size);
    if (f->watch) close(f->watch - 1);
    memset(f, 0, sizeof *f);
}

LLM__PRIVATE llm__path_kind llm__path_kind_of(const char *path) {
    struct stat st;
    if (stat(path, &st)) return LLM__PATH_NONE;
    return S_ISREG(st.st_mode) ? LLM__PATH_FILE : S_ISDIR(st.st_mode) ? LLM__PATH_DIR : LLM__PATH_OTHER;
}

LLM__PRIVATE int64_t llm__path_bytes(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
}

LLM__PRIVATE int llm__path_is_link(const char *path) {
    struct stat st;
    return !lstat(path, &st) && S_ISLNK(st.st_mode);
}

LLM__PRIVATE int llm__path_same(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

LLM__PRIVATE int llm__path_readable(const char *path) { return !access(path, R_OK); }

static int llm__folder_order(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

LLM__PRIVATE void llm__folder_names(const char *folder, llm_text *names) {
    struct dirent **entry = NULL;
    int n = scandir(folder, &entry, NULL, llm__folder_order);
    for (int i = 0; i < n; i++) {
        llm_text_add(names, entry[i]->d_name, strlen(entry[i]->d_name) + 1);
        free(entry[i]); /* scandir's own memory */
    }
    free(entry);
}

LLM__PRIVATE const char *llm__folder_next(const llm_text *names, const char *name) {
    name = name ? name + strlen(name) + 1 : names->data;
    return name && name < names->data + names->len ? name : NULL;
}

LLM__PRIVATE llm_result llm__folder_make(const char *path) {
    return mkdir(path, 0777) && errno != EEXIST ? llm__error(LLM_ERR_IO, "%s: %s", path, strerror(errno)) : LLM_OK;
}

LLM__PRIVATE llm_result llm__folders_for(const char *path) {
    LLM__SCOPED(llm_text_free) llm_text at = LLM__ZERO;
    llm_text_str(&at, path);
    if (at.failed) return llm__nomem();
    llm_result r = LLM_OK;
    for (char *slash = at.data + 1; !r && *at.data && (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = 0;
        r = llm__folder_make(at.data);
    }
    return r;
}

static llm_result llm__path_remove_below(const char *path, int depth) {
    struct stat st;
    llm_result r = LLM_OK;
    LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO;
    if (lstat(path, &st)) return LLM_OK;
    const int folder = S_ISDIR(st.st_mode);
    if (folder && depth > 32) return llm__error(LLM_ERR_LIMIT, "%.400s: folders in folders, more than 32", path);
    if (folder) llm__folder_names(path, &names);
    for (const char *name = NULL; !r && (name = llm__folder_next(&names, name)) != NULL;) {
        LLM__SCOPED(llm__drop) char *below = llm__path_join(path, name);
        if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
        r = below ? llm__path_remove_below(below, depth + 1) : llm__nomem();
    }
    if (!r && (folder ? rmdir(path) : unlink(path))) r = llm__error(LLM_ERR_IO, "%.400s: %s", path, strerror(errno));
    return r;
}

LLM__PRIVATE llm_result llm__path_remove(const char *path) { return llm__path_remove_below(path, 0); }

LLM__PRIVATE void llm__link_target(const char *path, llm_text *to) {
    char target[4096];
    const ssize_t n = readlink(path, target, sizeof target);
    if (n > 0) llm_text_add(to, target, (size_t)n);
}

LLM__PRIVATE int64_t llm__path_time(const char *path) {
    struct stat st;
    return stat(path, &st) ? 0 : (int64_t)st.st_mtime;
}

LLM__PRIVATE int llm__file_descriptor(const char *path, int make) {
    return make ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666) : open(path, O_RDONLY | O_CLOEXEC);
}

LLM__PRIVATE void llm__program_folder(llm_text *path) {
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program);
    while (n > 0 && program[n - 1] != '/') n--;
    if (n > 0) llm_text_add(path, program, (size_t)n);
}

LLM__PRIVATE llm_result llm__library_open(const char *path, void **library) {
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return *library ? LLM_OK : llm__error(LLM_ERR_IO, "%s: %s", path, dlerror());
}

LLM__PRIVATE int llm__library_function(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol); /* C has no cast from data to functions */
    return symbol != NULL;
}

LLM__PRIVATE void llm__library_close(void *library) { dlclose(library); }

LLM__PRIVATE char *llm__path_join(const char *folder, const char *name) {
    llm_text t = LLM__ZERO;
    llm_text_str(&t, folder);
    if (t.len && t.data[t.len - 1] != '/') llm_text_str(&t, "/");
    llm_text_str(&t, name);
    if (t.failed) llm_text_free(&t);
    return t.data;
}

/* A line: name:password:uid:gid:comment:home:shell. */
LLM__PRIVATE void llm__user_home(llm_text *path) {
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    char uid[16];
    if (llm__file_open("/etc/passwd", 1 << 20, 1, &f)) return;
    const int digits = snprintf(uid, sizeof uid, "%u", (unsigned)getuid());
    const char *p = (const char *)f.data, *end = p + f.size;
    while (p < end) {
        const char *newline = (const char *)memchr(p, '\n', (size_t)(end - p)), *line = newline ? newline : end, *field[7];
        int n = 0;
        for (field[n++] = p; n < 7 && (p = (const char *)memchr(p, ':', (size_t)(line - p))) != NULL;) field[n++] = ++p;
        if (n == 7 && field[3] - field[2] == digits + 1 && !memcmp(field[2], uid, (size_t)digits)) {
            llm_text_add(path, field[5], (size_t)(field[6] - 1 - field[5]));
            return;
        }
        p = line + 1;
    }
}
