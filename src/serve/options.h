/* options: options by name, for programs.
 *
 * One table says everything about the options of a program: spellings, type, range, place in a struct, help. Values come as text from argv
 * and the environment, or from JSON (a config file, a request's body), and take the same path, so that an option cannot mean one thing on
 * the command line and another in a request:
 *
 *   argv, environment: text ------> llm_options_set --> refused, ignored with a note, weaker than what is there, or
 *   JSON: value --text of it-----/                      llm__option_store --> range or word checked --> target + option->at
 *
 * The users of three other programs come with their habits, so many spellings are understood: vLLM's and llama.cpp's names beside ours, '_'
 * for '-', a dash that a word processor made long, --a=b, --no-a. What is not understood is refused with the nearest name that exists,
 * never passed over: an option that has no effect is worse than an error. Nothing here is global; one llm_options belongs to one thread.
 *
 * How a value finds its place: say a row has the name "max-model-len", the kind INT, a range, and `at`, the offset of an int32_t in the
 * program's struct. Of "--max_model_len=32k" the two dashes are cut off, then the name up to '='; '_' counts as '-', so the row is found.
 * "32k" is read as 32000, held against low and high, and its four bytes are copied to (char *)target + at. The kind alone says how wide
 * the field is: a row whose kind does not fit its field would write past it, and no check can see that. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/options.h"
#include "base/platform.h"
#include "base/text.h"

/* Words without dashes are collected; negative numbers count as words, so that they can be values. With an option "top-k" that takes a
 * value:
 *
 *   prog "why so" --top_k 40 -1 -- --top-k      top_k is 40; words: "why so", "-1" and, behind the lone --, "--top-k" */
LLM__PRIVATE llm_result llm__options_argv(llm_options *o, int argc, char **argv, llm_option_list *words);

/* A whole reader for JSON text (NULL: none) that is an option itself: its members go to `target`, and texts in there live until
 * llm_options_free. outer: whose option it is, for notes; NULL: nobody listens. who: the option's name. given: (n). */
LLM__PRIVATE llm_result llm__options_inner(llm_options *o, const llm_option *table, int32_t n, void *target, unsigned char *given,
                                           const llm_options *outer, const char *who, const char *json, int source);

/* The row of a member. Files spell names as the command line does; a request's have one spelling (llm__alias_member), since what is read by
 * hand is looked up by it, and another would be known and passed over. */
LLM__PRIVATE const llm_option *llm__options_member(const llm_options *o, llm__str name, int source);

/* The error for a name that no row has, with the option that has the nearest one, spelled as this one is; of equally near ones the longer
 * that the name begins with. said: the name with its dashes, `dashes` bytes of them: none in JSON. */
LLM__PRIVATE llm_result llm__option_unknown(const llm_options *o, llm__str said, size_t dashes);

/* A config file of at most 1 MiB: one JSON object, {"max_model_len": 4096, "stop": ["a", "b"]}, or where its name ends in .yaml or .yml the
 * same as YAML (see >>yaml), as vLLM has it. A name that no row has is an error, for it
 * is most likely misspelt. */
LLM__PRIVATE llm_result llm__options_file(llm_options *o, const char *path);

/* The variable of a name is LLM_ARG_ and the name in capitals, with '_' for '-'; of a word with '$' it is the word itself. One-letter
 * names have none, and an empty one counts as absent. The row "m|model|$MODEL_PATH" would be read from LLM_ARG_MODEL and from MODEL_PATH.
 * `get` is the program's: the library itself asks for no variable. */
LLM__PRIVATE llm_result llm__options_environment(llm_options *o, char *(*get)(const char *name));

/* Copies what was given, and nothing else, of the target's sampling, `size` bytes at offset `at`, over *s, the defaults of a model: 0 may
 * be a value that someone asked for, so `given` decides. An explicit 0 of top_p, whose 0 means "off" in the struct, leaves the best token
 * only. */
LLM__PRIVATE void llm__options_sampling(const llm_options *o, size_t at, size_t size, llm_sampling *s);

/* What lies on the disk comes first, then the Hub's cache: HF_HUB_CACHE itself, HF_HOME/hub, or ~/.cache/huggingface/hub, as the Hub's own
 * library looks; or hub_cache, if it is not NULL. Nothing is downloaded. A name is taken for ORG/NAME only with one slash inside, and if
 * it does not look like a path: no leading ".", no "..", no ".gguf". */
LLM__PRIVATE llm_result llm__model_find(const char *name, const char *hub_cache, const char *revision, char *(*get)(const char *name),
                                        llm_text *path);

/* {"enable_early_stop": true, "strategy": "repetition", "window_size": 3000, "threshold": 0.99}, each of which may be missing
 * (>>earlystop). JSON's types are asked for: {"enable_early_stop": 1} is no switch. json NULL: the flag alone. One that switches nothing on
 * is noted. */
LLM__PRIVATE llm_result llm__early_stop_parse(const llm_options *outer, const char *json, int flag, llm_early_stop *out);

/* The members of speculative_config are options as others are, by vLLM's names: {"method": "ngram", "num_speculative_tokens": 4,
 * "prompt_lookup_max": 3} looks for drafts in the text itself, {"model": "ORG/NAME", "num_speculative_tokens": 4} has a small model write
 * them (>>speculate). A model and a number of tokens belong together: one without the other is an error. They fill in a copy of the
 * engine's config, so that a text that is wrong in the middle changes nothing. */
LLM__PRIVATE llm_result llm__speculative_parse(const llm_options *outer, llm_engine_config *cfg, char *(*get)(const char *name),
                                               llm_text *model);
