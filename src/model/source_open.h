/* source_open: special tokens, chat template, and opening it all.
 *
 * Files disagree, and each is right about something: an answer ends at every id that any of them calls an end. Forgetting one makes a model
 * talk to itself; the reverse fault is not known, but for gpt-oss. Padded vocabularies have ids without a token, so ids from JSON files are
 * not compared with the tokenizer's, but with the rows of the model (llm__source_bound): something is looked up with each of them. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "base/platform.h"
#include "base/place.h"
#include "model/source.h"

/* Frees all of it, also what a failed opening had begun; a zeroed source is fine. */
LLM__PRIVATE void llm__source_close(llm__source *s);

/* Opens what a model is made of. place: files that are given (NULL: none), needed until this returns. cfg may be NULL; path must outlive
 * the source. On error nothing is left open. */
LLM__PRIVATE llm_result llm__source_open(const char *path, const llm__place *place, const llm_model_config *cfg, llm__source *out);

/* Of the special ids and stop ids only those stay that have a row of a model with `vocab` rows; a line to the log tells the others. */
LLM__PRIVATE void llm__source_bound(llm__source *s, int32_t vocab);
