/* schema_strings: strings of a schema. */
#pragma once
#include "base/platform.h"
#include "grammar/machine.h"
#include "grammar/schema.h"
#include "grammar/schema_values.h"

/* What f reads, in quotes. */
LLM__PRIVATE llm__gr_frag llm__js_quoted(llm__js *js, llm__gr_frag f);

/* What stands in a string that is none of the words, which are JSON strings in any order; they are sorted and freed. The empty string is
 * let through only where there are no words. */
LLM__PRIVATE llm__gr_frag llm__js_other(llm__js *js, llm__gr_words *w);

/* A string: of counted characters, or of what patterns and formats match, or any but some. */
LLM__PRIVATE llm__gr_frag llm__js_string(llm__js *js, const llm__js_view *v);
