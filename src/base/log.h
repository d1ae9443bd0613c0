/* log: errors and log lines.
 *
 * A function that fails writes one sentence for llm_last_error and returns its code: return llm__error(LLM_ERR_FORMAT, "...", ...).
 * The sentence names the thing, its value and what was expected. It is kept a thread; the outermost caller may prefix it. Log lines go to a
 * hook that the program gives with a model or an engine; without one nothing is printed anywhere. */
#pragma once
#include "api/config.h"
#include "base/platform.h"

/* Keeps the sentence and returns r, so that a failing function ends in one line. Formatted aside: arguments may hold the old one. */
LLM__PRIVATE LLM__PRINTF(2, 3) llm_result llm__error(llm_result r, const char *format, ...);

/* The one error that cannot say more, and its sentence, for what tells it by another way. */
LLM__PRIVATE llm_result llm__nomem(void);
static const char llm__out_of_memory[] = "out of memory";

/* The hook and what it gets as its first argument. */
typedef struct llm__logger {
    llm_log_fn fn;
    void *user;
} llm__logger;

/* One line to the log hook of a model or engine; nothing without a hook. */
LLM__PRIVATE LLM__PRINTF(3, 4) void llm__log(const llm__logger *l, int level, const char *format, ...);
