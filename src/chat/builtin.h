/* builtin: chat templates by name, for models that bring none.
 *
 * Older models were published with their conversation's form in a program instead of a file. Each row is such a form as its publisher's
 * program writes it, as a template; LMDeploy and llama.cpp know them by these names. A template that comes with a model is always the
 * better one, so it wins. */
#pragma once
#include "api/text.h"
#include "base/platform.h"

typedef struct llm__builtin {
    const char *name;
    const char *others; /* further names, words for llm__alias_among */
    const char *text;
} llm__builtin;

/* The row of that name; NULL: there is none. */
LLM__PRIVATE const llm__builtin *llm__builtin_find(const char *name);

/* The names of all, "a, b". */
LLM__PRIVATE void llm__builtin_names(llm_text *out);
