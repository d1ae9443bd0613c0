/* sizes: structs of a program that was compiled with another version of this header.
 *
 * Every part above knows its own structs only. A function that is called with those of another version has a twin in >>sized, which makes
 * the struct over on its way in or out by what is here: the same members in the same order, but each struct ends sooner or later. Where a
 * struct stands within another, what follows it has moved by the difference of its sizes:
 *
 *   llm_request_config of the program            |prompt ...|sampling     |priority ... user|
 *   llm_request_config of a later library        |prompt ...|sampling  new|priority ... user|new|
 *
 * A layout names the growing structs inside a struct, so that one walk serves all. The walk needs every difference of sizes of an inner
 * struct to be a multiple of 8, so that what follows keeps its alignment; tests/tools/abi.py sees to it, and to members being added only
 * at the end, and not in what was padding: a program may have left anything there. */
#pragma once
#include "api/config.h"
#include "api/easy.h"
#include "api/sizes.h"
#include "base/platform.h"

enum { LLM__INNER_STRUCTS = 3 };

typedef struct llm__layout llm__layout;

struct llm__layout {
    const char *name;
    size_t size;  /* here */
    size_t entry; /* offset of the program's size in llm_sizes */
    struct {
        size_t at;
        const llm__layout *layout; /* NULL: no more */
    } inner[LLM__INNER_STRUCTS];   /* in ascending order */
};

/* The program's size of such a struct; 0: it does not say. */
LLM__PRIVATE size_t llm__size_of(const llm_sizes *sizes, const llm__layout *x);
/* The program's struct becomes ours. LLM_ERR_ARG: it sets something that is unknown here, or has no size. */
LLM__PRIVATE llm_result llm__struct_in(const llm_sizes *sizes, const llm__layout *x, const void *program, void *own);
/* Ours becomes the program's. */
LLM__PRIVATE void llm__struct_out(const llm_sizes *sizes, const llm__layout *x, const void *own, void *program);
/* Are n bytes, of a struct behind the members that are known here, 0? If not, the sentence. */
LLM__PRIVATE llm_result llm__unset(const char *name, const char *bytes, size_t n);
