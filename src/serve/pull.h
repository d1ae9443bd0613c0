/* pull: models are fetched from the Hugging Face Hub, by an installed curl.
 *
 *   GET ENDPOINT/api/models/ORG/NAME/revision/REVISION?blobs=true    the commit, and its files with sizes and checksums
 *   choose the files (>>cached), compare their sizes with the room on the disk
 *   GET ENDPOINT/ORG/NAME/resolve/COMMIT/FILE -> blobs/HASH.incomplete, from where it ends on; checksum; rename to blobs/HASH
 *   when all are there: links in snapshots/COMMIT, then refs/REVISION
 *
 * Links come last, so what has a name in a snapshot is whole. curl gets everything through its standard input, the token too, and obeys no
 * configuration of the user's: only http and https, no redirect from https to http, a stall of a minute ends it. Names, sizes and
 * checksums that the Hub says are checked before anything is made of them. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/hub.h"
#include "base/platform.h"

/* The model of hub_cache, if it is there whole: nobody is asked. Else llm_hub_pull. */
LLM__PRIVATE llm_result llm__hub_get(const char *name, const char *hub_cache, char *(*get)(const char *name), llm_pull_fn progress,
                                     void *user, llm_text *path);
