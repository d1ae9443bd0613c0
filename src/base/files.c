/* ============================================================================
 * >>files   Files are mapped, or read where mapping is refused.
 * ============================================================================
 * A mapped file costs no memory of its own, is shared by all programs that map it, and is there at once: its pages come when they are first
 * read. Where a file cannot be mapped (some network and container file systems), or the user says so, it is read into pages instead; the
 * caller sees no difference. Only regular files are opened: a FIFO or a device as a model must not hang or fill the memory. A file that
 * somebody cuts short while it is mapped ends the process (SIGBUS); whoever must live with that reads instead of mapping. */

typedef struct llm__file {
    const uint8_t *data;
    size_t size;
    int mapped;
} llm__file;

/* Reads exactly n bytes; interrupted reads go on, an early end is an error that says where. */
static llm_result llm__read_all(int fd, const char *path, uint8_t *to, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t got = read(fd, to + at, LLM__MIN(n - at, (size_t)1 << 30));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return llm__error(LLM_ERR_IO, "%s: %s at byte %zu of %zu", path, got ? strerror(errno) : "file ended", at, n);
        at += (size_t)got;
    }
    return LLM_OK;
}

/* Opens a file of at most `limit` bytes (0: any size). On error *out is empty. `data` of an open file is never NULL; no NUL follows it. */
static llm_result llm__file_open(const char *path, size_t limit, int no_mmap, llm__file *out) {
    struct stat st;
    llm_result r = LLM_OK;
    memset(out, 0, sizeof *out);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* O_NONBLOCK: opening a FIFO must not wait for a writer */
    if (fd < 0) return llm__error(LLM_ERR_IO, "%s: %s", path, errno == ENOENT ? "no such file" : strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) r = llm__error(LLM_ERR_IO, "%s: not a regular file", path);
    size_t n = r ? 0 : (size_t)st.st_size;
    if (limit && n > limit) r = llm__error(LLM_ERR_LIMIT, "%s: %zu bytes, at most %zu expected", path, n, limit);
    if (!r && n && !no_mmap) {
        void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p != MAP_FAILED) out->data = (const uint8_t *)p, out->mapped = 1;
    }
    if (!r && !out->data) {
        uint8_t *p = (uint8_t *)llm__pages_get(n + 1);
        r = p ? llm__read_all(fd, path, p, n) : llm__error(LLM_ERR_NOMEM, "%s: out of memory for %zu bytes", path, n);
        if (r) llm__pages_free(p, n + 1);
        else out->data = p;
    }
    close(fd);
    if (!r) out->size = n;
    return r;
}

/* Gives back the memory of n bytes of a mapped file, whole pages, which come again when they are read: for what has been copied. */
static void llm__file_rest(const void *p, size_t n) {
    size_t over = (uintptr_t)p % (size_t)sysconf(_SC_PAGESIZE);
    madvise((void *)((uintptr_t)p - over), n + over, MADV_DONTNEED);
}

/* Unmaps or frees. An empty llm__file is fine. */
static void llm__file_close(llm__file *f) {
    if (f->mapped) munmap((void *)(uintptr_t)f->data, f->size);
    else if (f->data) llm__pages_free((void *)(uintptr_t)f->data, f->size + 1);
    memset(f, 0, sizeof *f);
}

typedef enum llm__path_kind { LLM__PATH_NONE = 0, LLM__PATH_FILE, LLM__PATH_DIR, LLM__PATH_OTHER } llm__path_kind;

/* What stands at a path, links followed. */
LLM__UNUSED static llm__path_kind llm__path_kind_of(const char *path) {
    struct stat st;
    if (stat(path, &st)) return LLM__PATH_NONE;
    return S_ISREG(st.st_mode) ? LLM__PATH_FILE : S_ISDIR(st.st_mode) ? LLM__PATH_DIR : LLM__PATH_OTHER;
}

/* folder/name as a new string, or NULL without memory. */
LLM__UNUSED static char *llm__path_join(const char *folder, const char *name) {
    llm_text t = LLM__ZERO;
    llm_text_str(&t, folder);
    if (t.len && t.data[t.len - 1] != '/') llm_text_str(&t, "/");
    llm_text_str(&t, name);
    if (t.failed) llm_text_free(&t);
    return t.data;
}

