/* render: opening a template, and rendering it with a context.
 *
 * JSON's types are Python's: objects keep their order, numbers without point and exponent are whole and of any length. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "api/template.h"
#include "base/platform.h"
#include "tokenizer/tokenizer.h"
#include "chat/template.h"

/* A value of a JSON document, copied: the document may be freed then. 1 becomes INT, 1.0 and 1e2 FLOAT, which print as 1.0 and 100.0, and
 * 12345678901234567890 BIG, which prints as it stands. */
LLM__PRIVATE llm__val llm__tpl_from_json(llm__tpl *x, const llm_json *doc, int node);

/* The output is built aside and added to `out` at the end, so a failed render leaves that as it was. Limits if the options name none: 5
 * million steps of fuel, 32 MiB of output; 512 MiB of values always. From any thread, many at once for one template. */
LLM__PRIVATE llm_result llm__template_render(const llm_template *t, const llm_json *context, const llm_render_options *options,
                                             const llm__tokenizer *guard, llm_text *out);
