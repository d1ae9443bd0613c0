/* hub: Models of the Hugging Face Hub: found in its local cache, fetched into it, listed, removed.
 *
 * The cache is that of Hugging Face's own tools (models--ORG--NAME/blobs, refs, snapshots): what one fetches the other finds. hub_cache
 * is its folder; NULL: as the environment says, which `get` (getenv, or NULL) reads: HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub.
 * A NAME is ORG/NAME[:QUANT][@REVISION]: the revision is a branch, a tag or a commit (main), QUANT the end of a GGUF file's name without
 * its ".gguf" and without regard to case: q4_k_m of model-Q4_K_M.gguf. Of several such files and no QUANT: Q4_K_M, else Q8_0, else the
 * first. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"

/* Path of a model by its hub name ORG/NAME or ORG/NAME@REVISION in the local cache (cache_dir: .../hub). LLM_ERR_IO if it is not there. */
LLM_API llm_result llm_hub_find(const char *cache_dir, const char *name, llm_text *path);

/* Told five times a second while something is fetched: the file, and bytes of the whole that are there, of how many. Non-zero: it stops. */
typedef int (*llm_pull_fn)(void *user, const char *file, int64_t done, int64_t total);

/* Fetches what is missing of a model and appends the path to open: a GGUF file (of a split one the first) or a folder. An installed curl
 * does it, as a child process; what was cut off goes on where it stopped at the next call, checksums are compared (by sha256sum and
 * sha1sum), two who want the same file wait for each other. `get`: also HF_ENDPOINT (a mirror), HF_TOKEN (else the file HF_HOME/token),
 * HF_HUB_OFFLINE and curl's own variables of proxies and certificates. The token goes to the endpoint only, not where that redirects to.
 * LLM_ERR_ARG: no such name; LLM_ERR_IO: no curl, no network, refused by the Hub, not there, no room; LLM_ERR_FORMAT: what came is not
 * what the Hub said; LLM_ERR_CANCELLED: progress (may be NULL) said so. */
LLM_API llm_result llm_hub_pull(const char *name, const char *hub_cache, char *(*get)(const char *name), llm_pull_fn progress, void *user,
                                llm_text *path);

/* The models of the cache as JSON: [{"name", "format": "gguf", "safetensors" or "pytorch", "quant" (or null), "bytes", "modified" (seconds
 * since 1970), "path"}, ...]. Names are such as llm_hub_pull and llm_hub_remove take. */
LLM_API llm_result llm_hub_list(const char *hub_cache, char *(*get)(const char *name), llm_text *json);

/* Removes a model from the cache, with ORG/NAME:QUANT the files of that quantisation only. Nothing outside of the model's own folder
 * there is touched, links are not followed. LLM_ERR_IO if it is not there. */
LLM_API llm_result llm_hub_remove(const char *name, const char *hub_cache, char *(*get)(const char *name));
