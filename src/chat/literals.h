/* literals: arguments of calls that are written as Python's literals, or as Gemma writes them, made JSON.
 *
 *   Python     city="Rome", days=2, at={'x': [1, None]}, exact=True
 *   Gemma 4    city:<|"|>Rome<|"|>,days:2,at:{x:[1,null]},exact:true        a text stands between two marks, and its bytes mean themselves
 *   JSON       {"city": "Rome", "days": 2, "at": {"x": [1, null]}, "exact": true}
 *
 * One reader does both, as they differ in three things: what stands between key and value, how a text is written, and whether a key without
 * quotes is a text. Its depth is bounded, and it looks at every byte once. */
#pragma once
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"

/* Appends the arguments in `s`, without the parentheses or braces around them, as a JSON object. quote: the mark around texts; NULL:
 * Python. 0: they are none, and what was appended means nothing. */
LLM__PRIVATE int llm__literal_arguments(llm__str s, const char *quote, llm_text *out);

/* Appends one of Python's lists or dicts as JSON. 0: the text is none, and what was appended means nothing. */
LLM__PRIVATE int llm__literal_list_or_dict(llm__str s, llm_text *out);

/* White space between the parts of calls. */
LLM__PRIVATE int llm__tool_space(char c);
