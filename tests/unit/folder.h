/* A scratch folder below /tmp, and files in it. */
#ifndef FOLDER_H
#define FOLDER_H
#include "test.h"
#include <dirent.h>
#include <sys/stat.h>

typedef struct test_folder {
    char path[64];
} test_folder;

/* The name of a file in the folder: in one of 8 buffers, which take turns. */
static inline const char *folder_file(const test_folder *f, const char *name) {
    static char paths[8][400];
    static int turn;
    char *path = paths[turn++ & 7];
    snprintf(path, sizeof paths[0], "%s/%s", f->path, name);
    return path;
}

static inline int folder_open(test_folder *f) {
    snprintf(f->path, sizeof f->path, "/tmp/llm_test_XXXXXX");
    return CHECK(mkdtemp(f->path) != NULL);
}

static inline int folder_write(const test_folder *f, const char *name, const void *bytes, size_t n) {
    FILE *out = fopen(folder_file(f, name), "wb");
    if (!CHECK(out != NULL)) return 0;
    const int whole = fwrite(bytes, 1, n, out) == n;
    return CHECK(!fclose(out) && whole);
}

static inline int folder_write_text(const test_folder *f, const char *name, const char *text) {
    return folder_write(f, name, text, strlen(text));
}

/* Removes a folder with all that is in it. */
static inline void folder_remove(const char *path, int depth) {
    DIR *dir = opendir(path);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        char below[600];
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (snprintf(below, sizeof below, "%s/%s", path, e->d_name) >= (int)sizeof below) continue;
        if (depth < 6 && !lstat(below, &st) && S_ISDIR(st.st_mode)) folder_remove(below, depth + 1);
        else unlink(below);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

static inline void folder_close(const test_folder *f) { folder_remove(f->path, 0); }

#endif
