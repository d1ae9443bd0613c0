/* reports: what is said of a name that has no effect.
 *
 * Whatever a user names works, is refused, or is told to have no meaning and why. Names come by five ways, argv, the environment, a config
 * file, the body of a request and the JSON of the offline functions, and all of them end at a row of a table (>>options), whose kind is
 * the verdict; so a name means the same by every way, and a feature that comes changes its row and nothing else:
 *
 *   a kind with a value   it works: it is stored, or read elsewhere (READ)
 *   IGNORED               it has no meaning here, ever: a note with the reason, and a value that nobody documents is refused
 *   REFUSED               it would change what is computed, and is not to be had
 *   no row                an error with the nearest name; of a request, which may come from a client that knows more, a report
 *
 * Two things a row cannot know. Options have an effect only beside others (--swap-space where something is swapped), or on a device: what
 * needs what stands in one table in reports.c, and llm_options_report looks at it once everything is open. And members of a body have one
 * only in some kinds of calls (`echo` in a chat has none): there the row's group is the set of kinds. What a request says in vain is told
 * in the answer: in a server's header x-llm-ignored, in `ignored` of the offline functions' outputs. */
#pragma once
#include "api/text.h"
#include "api/easy.h"
#include "api/options.h"
#include "base/platform.h"
#include "base/text.h"

/* Adds a name to a list "a, b", in ASCII: it may become a header. Long names and long lists are cut. */
LLM__PRIVATE void llm__report_name(llm_text *list, llm__str name);

/* A remark in three parts to the program, which prints it or not: the library has no stderr of its own. o may be NULL. Cut at 600 bytes. */
LLM__PRIVATE void llm__report_note(const llm_options *o, const char *said, const char *what, const char *why);
