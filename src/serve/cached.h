/* cached: models of the Hugging Face Hub in its local cache: names, the files that make a model, what is there, what goes.
 *
 *     CACHE/models--ORG--NAME/blobs/HASH               the files by their checksums (HASH.incomplete: begun)
 *                             snapshots/COMMIT/FILE    links to them by their names
 *                             refs/main                the commit that a branch or tag is at
 *
 * A repository of GGUF files has a model in several quantisations, one of which is wanted; another one is a model as a whole. The same
 * choice is made among the files that the Hub lists and among those that are there, so one answers as the other. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "base/platform.h"

/* ORG/NAME[:QUANT][@REVISION], checked. */
typedef struct llm__hub_name {
    char bare[404], folder[420]; /* "ORG/NAME", "models--ORG--NAME" */
    char revision[204];
    char quant[104]; /* empty: none was named */
} llm__hub_name;

typedef struct llm__hub_file {
    const char *name, *hash; /* hash: as the Hub says: SHA-256 of the file, or git's SHA-1 */
    int64_t bytes;
    int chosen;
} llm__hub_file;

/* LLM_ERR_ARG with the form that was expected. */
LLM__PRIVATE llm_result llm__hub_parse(const char *name, llm__hub_name *out);

/* A name of a file that may be made below a folder: no "..", no '\', no control character, no leading '/'. */
LLM__PRIVATE int llm__hub_file_name(const char *name);

/* Appends HF_HOME, or where it is by default; the cache: hub_cache if it is not NULL. Who gives no environment is at home where the list of
 * users says. */
LLM__PRIVATE void llm__hub_home(char *(*get)(const char *name), llm_text *home);
LLM__PRIVATE llm_result llm__hub_cache(const char *hub_cache, char *(*get)(const char *name), llm_text *cache);

/* Marks the files that make the model. *first: the GGUF file to open, -1: the folder. LLM_ERR_IO: there are none such; a sentence lists the
 * quantisations that are there. */
LLM__PRIVATE llm_result llm__hub_choose(const llm__hub_name *name, llm__hub_file *files, int n, int *first);

/* The path of a model in the cache. LLM_ERR_IO: it is not there. whole: nor may anything be missing of it, as after a pull that was cut
 * off; else a folder will do that is no model that is known. */
LLM__PRIVATE llm_result llm__hub_local(const char *cache, const char *name, int whole, llm_text *path);

/* Appends the path of the GGUF file in a folder that would be chosen of a repository; nothing if there is none, or if it is a folder of
 * safetensors. LLM_ERR_IO: parts of it are missing. */
LLM__PRIVATE llm_result llm__hub_in_folder(const char *folder, llm_text *path);

/* Appends the path of the file (mmproj-*.gguf) that a GGUF model sees with: beside it, in the cache also above it. Nothing if there is
 * none. alone: the model lies in a folder that is no part of the cache. */
LLM__PRIVATE llm_result llm__hub_companion(const char *model, int alone, llm_text *path);
