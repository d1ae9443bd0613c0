/* All groups of C tests in one program: build/test_all [GROUP...]. */
#define TEST_ALL
#include "test.h"
#include "test_json.c"

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {
    {"json", test_group_json},
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        int wanted = argc < 2, before = test_failed;
        for (int k = 1; k < argc; k++) wanted |= !strcmp(argv[k], groups[i].name);
        if (!wanted) continue;
        printf("-- %s\n", groups[i].name);
        groups[i].run();
        if (test_failed > before) printf("-- %s: %d FAILED\n", groups[i].name, test_failed - before);
        fflush(stdout);
    }
    return test_done();
}
