/* In place of libFuzzer, where only gcc is there: gives a fuzzer the files that are named, or all in the folders that are, once each. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* The fuzzers' own mutators ask for it; nobody mutates here. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) {
    (void)data, (void)max_size;
    return size;
}

static int replay(const char *path) {
    static uint8_t data[1 << 20];
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(data, 1, sizeof data, f) : 0;
    const int readable = f && !ferror(f);
    if (f) fclose(f);
    if (!readable) return 0;
    uint8_t *own = (uint8_t *)malloc(n ? n : 1); /* its own size, so that a tool sees a read behind it */
    for (size_t i = 0; own && i < n; i++) own[i] = data[i];
    if (own) LLVMFuzzerTestOneInput(own, n);
    free(own);
    return own != NULL;
}

int main(int argc, char **argv) {
    int n = 0, bad = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) bad += !replay(argv[i]), n++;
        for (struct dirent *one; folder && (one = readdir(folder)) != NULL;) {
            char path[1024];
            if (one->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], one->d_name);
            bad += !replay(path), n++;
        }
        if (folder) closedir(folder);
    }
    printf("%d passed, %d failed, 0 skipped\n", n - bad, bad + !n);
    return bad || !n;
}
