/* Runs the groups of unit tests that are named, or all: build/dev/unit [GROUP...] [-- ARGUMENTS of a group]; --list prints their names. */
#include "test.h"

static int is_wanted(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], name)) return 1;
    return argc < 2;
}

int main(int argc, char **argv) {
    int n_names = 0, n_run = 0;
    while (n_names < argc && strcmp(argv[n_names], "--")) n_names++;
    test_argc = n_names < argc ? argc - n_names - 1 : 0;
    test_argv = argv + argc - test_argc;
    for (const test_group *g = test_groups; g; g = g->next) {
        const int before = test_failed;
        const double start = llm_now();
        if (!is_wanted(g->name, n_names, argv)) continue;
        g->run();
        n_run++;
        printf("-- %s: %d failed, %.1f s\n", g->name, test_failed - before, llm_now() - start);
        fflush(stdout);
    }
    if (!n_run) {
        const int asked = n_names == 2 && !strcmp(argv[1], "--list");
        if (!asked) printf("no such group; there are:");
        for (const test_group *g = test_groups; g; g = g->next) printf(" %s", g->name);
        printf("\n");
        if (asked) return 0;
    }
    return test_done() || !n_run;
}
