/* All groups of C tests in one program: build/test_all [GROUP...]. */
#define TEST_ALL
#include "test.h"
#include "test_backend.c"
#include "test_engine.c"
#include "test_formats.c"
#include "test_json.c"
#include "test_linear.c"
#include "test_model.c"
#include "test_openai.c"
#include "test_options.c"
#include "test_sampler.c"
#include "test_sim.c"
#include "test_speculate.c"
#include "test_template.c"
#include "test_threads.c"
#include "test_tokenizer.c"
#include "test_tools.c"

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {
    {"json", test_group_json},     {"options", test_group_options}, {"openai", test_group_openai}, {"tools", test_group_tools}, {"template", test_group_template}, {"tokenizer", test_group_tokenizer}, {"formats", test_group_formats}, {"linear", test_group_linear},
    {"backend", test_group_backend}, {"sampler", test_group_sampler}, {"engine", test_group_engine}, {"sim", test_group_sim}, {"speculate", test_group_speculate}, {"model", test_group_model}, {"threads", test_group_threads},
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        int wanted = argc < 2, before = test_failed;
        double start = llm__now();
        for (int k = 1; k < argc; k++) wanted |= !strcmp(argv[k], groups[i].name);
        if (!wanted) continue;
        groups[i].run();
        printf("-- %s: %d failed, %.1f s\n", groups[i].name, test_failed - before, llm__now() - start);
        fflush(stdout);
    }
    return test_done();
}
