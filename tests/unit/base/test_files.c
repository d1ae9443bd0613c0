/* Files and folders: read and mapped they are the same bytes; what is no plain file, missing, forbidden or too large is refused. */
#include <pwd.h>
#include "../folder.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/files.h"
#include "base/save.h"

static char files_folder[64];

static const char *files_path(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", files_folder, name);
    return path;
}

static void files_write(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(files_path(name), "wb");
    if (!CHECK(f != NULL)) return;
    CHECK(fwrite(bytes, 1, n, f) == n);
    fclose(f);
}

/* Sizes around a page, none at all too: both ways give the same, data is there, and closing leaves nothing. */
static void files_same(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), many = (size_t)1 << 20;
    const size_t sizes[] = {0, 1, page - 1, page, page + 1, 3 * page + 7, many - 1, many, many + 1};
    uint8_t *bytes = (uint8_t *)malloc(2 * many);
    for (size_t i = 0; i < 2 * many; i++) bytes[i] = (uint8_t)(i * i >> 3);
    for (int i = 0; i < LLM__COUNT(sizes); i++)
        for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
            llm__file f;
            files_write("plain", bytes, sizes[i]);
            if (!CHECK(!llm__file_open(files_path("plain"), sizes[i], no_mmap, &f))) continue;
            CHECK(f.size == sizes[i] && f.data && !memcmp(f.data, bytes, sizes[i]));
            CHECK(f.mapped == (!no_mmap && sizes[i] > 0));
            if (f.mapped) { /* pages that were given back come again */
                llm__file_rest(f.data, f.size);
                llm__file_rest(f.data + f.size / 2, f.size - f.size / 2);
                CHECK(!memcmp(f.data, bytes, sizes[i]));
            }
            llm__file_close(&f);
            CHECK(!f.data && !f.size && !f.mapped);
            llm__file_close(&f); /* an empty one is fine */
            CHECK(llm__file_open(files_path("plain"), sizes[i] - 1, no_mmap, &f) == (sizes[i] > 1 ? LLM_ERR_LIMIT : LLM_OK));
            CHECK(sizes[i] <= 1 || (!f.data && !f.size)); /* (limit 0 is none, and SIZE_MAX no file's size) */
            llm__file_close(&f);
        }
    free(bytes);
    llm__file f;
    files_write("plain", "abc", 3);
    test_fail_at = test_allocations + 1;
    CHECK(llm__file_open(files_path("plain"), 0, 1, &f) == LLM_ERR_NOMEM && !f.data &&
          strstr(llm_last_error(), "out of memory for 3 bytes"));
    test_fail_at = 0;
}

/* A mapped file that is cut short is told before it is read; one that grows, or that was read, is whole for ever. */
static void files_cut(void) {
    static uint8_t bytes[40000];
    llm__file mapped, read, part;
    files_write("cut", bytes, sizeof bytes);
    int fd = open(files_path("cut"), O_RDONLY);
    CHECK(!llm__file_open(files_path("cut"), 0, 0, &mapped) && !llm__file_open(files_path("cut"), 0, 1, &read));
    CHECK(!llm__file_part("part", fd, 5000, 10000, 0, 0, &part));
    close(fd);
    static const struct {
        int size, mapped_whole, part_whole;
    } rows[] = {{40000, 1, 1}, {40001, 1, 1}, {39999, 0, 1}, {15000, 0, 1}, {14999, 0, 0}, {0, 0, 0}, {40000, 1, 1}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        CHECK(!truncate(files_path("cut"), rows[i].size));
        CHECK(llm__file_whole(&mapped) == rows[i].mapped_whole && llm__file_whole(&part) == rows[i].part_whole && llm__file_whole(&read));
    }
    CHECK(!unlink(files_path("cut")) && llm__file_whole(&mapped)); /* a name that is gone, or another file's, changes nothing */
    const int watch = mapped.watch - 1;
    CHECK(watch >= 0 && fcntl(watch, F_GETFD) == FD_CLOEXEC);
    llm__file_close(&mapped);
    CHECK(fcntl(watch, F_GETFD) < 0 && errno == EBADF && !mapped.watch && llm__file_whole(&mapped));
    llm__file_close(&part);
    llm__file_close(&read);
}

/* What is refused, and why; *out is empty then. A FIFO must not wait for who writes into it. */
static void files_refused(void) {
    static const struct {
        const char *name, *words;
    } rows[] = {{"none", "none: no such file"},
                {"folder", "folder: not a regular file"},
                {"fifo", "fifo: not a regular file"},
                {"zero", "zero: not a regular file"},
                {"dangling", "dangling: no such file"},
                {"plain/x", "plain/x: Not a directory"},
                {"loop", "loop: Too many levels of symbolic links"}};
    CHECK(!mkdir(files_path("folder"), 0700) && !mkfifo(files_path("fifo"), 0600));
    CHECK(!symlink("/dev/zero", files_path("zero")) && !symlink("none", files_path("dangling")) && !symlink("loop", files_path("loop")));
    for (int i = 0; i < LLM__COUNT(rows); i++)
        for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
            llm__file f;
            memset(&f, 0xFF, sizeof f);
            CHECK(llm__file_open(files_path(rows[i].name), 0, no_mmap, &f) == LLM_ERR_IO && !f.data && !f.size && !f.mapped);
            if (!CHECK(strstr(llm_last_error(), rows[i].words))) printf("  %s expected\n", rows[i].words);
        }
    static const llm__path_kind kinds[] = {LLM__PATH_NONE, LLM__PATH_DIR,  LLM__PATH_OTHER, LLM__PATH_OTHER,
                                           LLM__PATH_NONE, LLM__PATH_NONE, LLM__PATH_NONE};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        CHECK(llm__path_kind_of(files_path(rows[i].name)) == kinds[i]);
        CHECK(llm__path_is_link(files_path(rows[i].name)) == (i == 3 || i == 4 || i == 6));
    }
    CHECK(!symlink("plain", files_path("link")) && llm__path_kind_of(files_path("link")) == LLM__PATH_FILE &&
          llm__path_is_link(files_path("link")) && !llm__path_is_link(files_path("plain")));
    CHECK(llm__path_readable(files_path("plain")) && !llm__path_readable(files_path("none")));
    if (geteuid()) { /* root may read all */
        llm__file f;
        CHECK(!chmod(files_path("plain"), 0) && !llm__path_readable(files_path("plain")));
        CHECK(llm__file_open(files_path("plain"), 0, 0, &f) == LLM_ERR_IO && strstr(llm_last_error(), "Permission denied"));
        CHECK(!chmod(files_path("plain"), 0600));
    }
}

/* A file of 8 TiB without a byte written: mapping it costs nothing, reading it fails for memory, a limit refuses it at once. */
static void files_huge(void) {
    llm__file f;
    files_write("huge", "x", 1);
    if (truncate(files_path("huge"), (off_t)1 << 43)) return; /* the file system has no files of that size */
    CHECK(llm__file_open(files_path("huge"), 1 << 20, 0, &f) == LLM_ERR_LIMIT &&
          strstr(llm_last_error(), "8796093022208 bytes, at most 1048576 expected") && !f.data);
    if (!TEST_BRIEF && !llm__file_open(files_path("huge"), 0, 0, &f)) {
        CHECK(f.size == (size_t)1 << 43 && (!f.mapped || (f.data[0] == 'x' && !f.data[f.size - 1])));
        llm__file_close(&f);
    }
}

/* Names of a folder by their bytes, "." and ".." too; none of what is no folder. */
static void files_folders(void) {
    static const char *const names[] = {"B", "a", "a b", "\xC3\xA4", "b"}, *const want[] = {".", "..", "B", "a", "a b", "b", "\xC3\xA4"};
    llm_text list = LLM__ZERO;
    int n = 0;
    CHECK(!llm__folder_make(files_path("names")) && !llm__folder_make(files_path("names"))); /* there already: fine */
    CHECK(llm__folder_make(files_path("none/deep")) == LLM_ERR_IO && strstr(llm_last_error(), "No such file"));
    for (int i = 0; i < LLM__COUNT(names); i++) {
        char name[32];
        snprintf(name, sizeof name, "names/%s", names[i]);
        files_write(name, "", 0);
    }
    llm__folder_names(files_path("names"), &list);
    for (const char *name = NULL; (name = llm__folder_next(&list, name)) != NULL; n++)
        CHECK(n < LLM__COUNT(want) && !strcmp(name, want[n]));
    CHECK(n == LLM__COUNT(want));
    list.len = 0;
    llm__folder_names(files_path("plain"), &list);
    CHECK(!list.len && !llm__folder_next(&list, NULL));
    llm_text_free(&list);
}

static void files_paths(void) {
    static const char *const rows[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}, {"a//", "", "a//"}};
    char self[4096];
    llm_text program = LLM__ZERO;
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        char *path = llm__path_join(rows[i][0], rows[i][1]);
        CHECK(path && !strcmp(path, rows[i][2]));
        LLM_FREE(path);
    }
    test_fail_at = test_allocations + 1;
    CHECK(!llm__path_join("a", "b"));
    test_fail_at = 0;
    llm__program_folder(&program);
    CHECK(program.len && program.data[program.len - 1] == '/');
    snprintf(self, sizeof self, "%sunit", program.data ? program.data : "");
    struct stat a, b;
    if (!stat(self, &a) && !stat("/proc/self/exe", &b)) CHECK(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
    llm_text_free(&program);
    llm_text home = LLM__ZERO;
    const struct passwd *user = getpwuid(getuid());
    llm__user_home(&home);
    if (user) CHECK(home.data && !strcmp(home.data, user->pw_dir)); /* unless it comes from the network */
    llm_text_free(&home);
}

/* A library that is on every machine: the C library's mathematics. */
static void files_libraries(void) {
    void *library = NULL;
    double (*cosine)(double) = NULL;
    CHECK(llm__library_open(files_path("none.so"), &library) == LLM_ERR_IO && strstr(llm_last_error(), "none.so"));
    if (llm__library_open("libm.so.6", &library)) return; /* musl has it in its libc */
    CHECK(llm__library_function(library, "cos", &cosine) && cosine && cosine(0) == 1);
    CHECK(!llm__library_function(library, "llm_no_such_function", &cosine) && !cosine);
    llm__library_close(library);
}

/* A file gets its name when it is whole; what is not done leaves what stood there. */
static void files_output(void) {
    test_folder f;
    char path[400], part[410];
    struct stat st;
    if (!folder_open(&f)) return;
    snprintf(path, sizeof path, "%s", folder_file(&f, "out"));
    snprintf(part, sizeof part, "%s.part", path);
    for (int done = 0; done < 2; done++) {
        LLM__SCOPED(llm__save_close) llm__save o = LLM__ZERO;
        CHECK(!llm__save_open(&o, path));
        llm__save_put(&o, "four", 4);
        CHECK(!llm__save_flush(&o) && test_exists(part) && !test_exists(path));
        if (done) CHECK(!llm__save_done(&o) && !test_exists(part));
    }
    CHECK(!test_exists(part) && !stat(path, &st) && st.st_size == 4);
    LLM__SCOPED(llm__save_close) llm__save none = LLM__ZERO;
    CHECK(llm__save_open(&none, folder_file(&f, "none/out")) == LLM_ERR_IO && llm__save_done(&none) == LLM_ERR_IO);
    folder_close(&f);
}

TEST_GROUP(files) {
    files_output();
    char command[96];
    snprintf(files_folder, sizeof files_folder, "/tmp/llm_test_files_XXXXXX");
    if (!CHECK(mkdtemp(files_folder) != NULL)) return;
    files_same();
    files_cut();
    files_refused();
    files_huge();
    files_folders();
    files_paths();
    files_libraries();
    snprintf(command, sizeof command, "rm -rf %s", files_folder);
    CHECK(!system(command));
}
