/* hub: the local Hugging Face cache.
 *
 * CACHE/models--ORG--NAME/refs/main holds a commit; snapshots/COMMIT is a folder of links to the files. Names come from a command line or a
 * client, so they are checked as parts of a path; a commit comes from a file that anybody may have written, so it is, too. As in Hugging
 * Face's own libraries, a snapshot that main does not name is found only by its name: ORG/NAME@REVISION, a branch, a tag or a commit. */
#pragma once
#include "base/platform.h"

/* A name that is safe as a part of a path: letters, digits, '-', '_', '.', and does not start with a dot. */
LLM__PRIVATE int llm__hub_part(const char *s, size_t n);
