#include "serve/sizes.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/easy.h"
#include "api/sizes.h"
#include "base/platform.h"
#include "base/log.h"

LLM_API int llm_version(void) { return LLM_VERSION; }

LLM__PRIVATE llm_result llm__unset(const char *name, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return llm__error(LLM_ERR_ARG, "%s: the program sets what version %s of the library does not know: a later libllm is needed",
                              name, LLM_VERSION_STRING);
    return LLM_OK;
}

LLM__PRIVATE size_t llm__size_of(const llm_sizes *sizes, const llm__layout *x) {
    uint32_t size = 0;
    if (x->entry + sizeof size <= sizes->sizes) memcpy(&size, (const char *)sizes + x->entry, sizeof size);
    return size;
}

/* A struct on its way from one side to the other. */
typedef struct llm__crossing {
    const llm_sizes *sizes;
    int giving; /* 1: own to program; 0: program to own, which is all 0 before */
    llm_result result;
} llm__crossing;

static void llm__cross_bytes(const llm__crossing *c, char *own, char *program, size_t n) {
    memcpy(c->giving ? program : own, c->giving ? own : program, n);
}

/* Plain members, an inner struct, plain members ..., and the end, where one side has more. Returns the program's size. */
static size_t llm__cross(llm__crossing *c, const llm__layout *x, char *own, char *program) {
    size_t size = llm__size_of(c->sizes, x), at = 0, there = 0; /* of the struct here, and of the program's, so much is done */
    if (!size) c->result = llm__error(LLM_ERR_ARG, "%s: its size was expected in llm_sizes, not 0", x->name);
    for (int i = 0; !c->result && i < LLM__INNER_STRUCTS && x->inner[i].layout; i++) {
        size_t plain = x->inner[i].at - at;
        if (size <= there + plain) break; /* the program does not have it yet */
        llm__cross_bytes(c, own + at, program + there, plain);
        there += plain;
        there += llm__cross(c, x->inner[i].layout, own + x->inner[i].at, program + there);
        at = x->inner[i].at + x->inner[i].layout->size;
    }
    if (c->result) return size;
    size_t both = LLM__MIN(x->size - at, size - there);
    llm__cross_bytes(c, own + at, program + there, both);
    there += both;
    if (c->giving) memset(program + there, 0, size - there);
    else c->result = llm__unset(x->name, program + there, size - there);
    return size;
}

LLM__PRIVATE llm_result llm__struct_in(const llm_sizes *sizes, const llm__layout *x, const void *program, void *own) {
    llm__crossing c = {sizes, 0, LLM_OK};
    memset(own, 0, x->size);
    llm__cross(&c, x, (char *)own, (char *)(uintptr_t)program);
    return c.result;
}

LLM__PRIVATE void llm__struct_out(const llm_sizes *sizes, const llm__layout *x, const void *own, void *program) {
    llm__crossing c = {sizes, 1, LLM_OK};
    llm__cross(&c, x, (char *)(uintptr_t)own, (char *)program);
}
