/* source_open: special tokens, chat template, and opening it all.
 *
 * Files disagree, and each is right about something: an answer ends at every id that any of them calls an end. Forgetting one makes a model
 * talk to itself; the reverse fault is not known, but for gpt-oss. Ids from JSON files are not compared with the vocabulary: an id that no
 * logit has can never be sampled, and padded vocabularies have ids without a token. */
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
