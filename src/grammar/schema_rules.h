/* schema_rules: from views of a schema to rules. */
#pragma once
#include "api/json.h"
#include "base/platform.h"
#include "grammar/machine.h"
#include "grammar/schema.h"

/* A call of the rule of a view; never, if nothing can satisfy it. The rule is noted before its body is made: a schema that comes back to
 * itself finds it and calls it. (If its body then turns out impossible, that call is a dead end, which llm__gr_needs finds.) The notes are
 * searched one by one, which takes the square of the number of views: about one for each schema in the document. A view is paid for by the
 * keywords of its members, which are looked through for every keyword that there is. */
LLM__PRIVATE llm__gr_frag llm__js_rule(llm__js *js, const llm__js_view *given);

/* The same where a value begins, a level further down: see LLM__GR_MAX_LEVEL. */
LLM__PRIVATE llm__gr_frag llm__js_value(llm__js *js, const llm__js_view *v);

/* The machine of a schema that stands at `node` of a document; references count from the document's root. */
LLM__PRIVATE llm__gr_frag llm__js_frag(llm__gr_build *b, const llm_json *doc, int node, const char *space);
