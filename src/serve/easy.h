/* easy: ten lines to a working program.
 *
 * llm_load opens a model and an engine for one sequence. A conversation is a list of messages kept as JSON text; each turn is rendered by
 * the model's own template from the beginning and submitted whole: the prefix cache knows all but the latest words of it, so a long
 * conversation costs no more than its last turn. Everything runs in the caller's thread: llm_chat_next steps the engine until there is
 * something to show. This is also the example of how the calls of >>api-request belong together.
 *
 *   llm *l = llm_load("model.gguf", NULL);
 *   llm_chat *c = llm_chat_new(l, "You are brief.");         messages: {"role":"system", ...}
 *   llm_chat_say(c, "2 and 2?");                             ...,{"role":"user", ...} --llm_render--> prompt --> a request
 *   for (const char *s; (s = llm_chat_next(c));) puts(s);    step, poll, step, poll ...; at the end ...,{"role":"assistant", ...}
 *   llm_chat_say(c, "And 3?");                               the four messages are rendered and submitted; only the last is new
 *
 * A chat owns its messages and the request that is under way; the llm owns model and engine and must outlive its chats. The
 * messages are kept as JSON text and not as a tree: a turn only appends to them. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/batch.h"
#include "base/platform.h"
#include "model/loader.h"
#include "engine/scheduler.h"

/* An answer that outlives its request. */
typedef struct llm__reply {
    llm_answer shown; /* but for its texts, which are here */
    llm_text text, stop;
    char error[256];
} llm__reply;
/* Where what an llm has to tell goes. */
typedef struct llm__voice {
    llm_log_fn log;
    void *user;
    int level;                                               /* of what the library itself tells */
    llm_text notes;                                          /* options without effect, one a line */
    llm_text media_path, media_domains, mm_processor_kwargs; /* as in llm_openai_service; empty: none */
    double media_timeout_s;
    int allow_ffmpeg;
} llm__voice;

struct llm {
    llm_model *model;
    llm_engine *engine;
    int reasoning, tool_format; /* as in llm_openai_service; -1: as the chat template says */
    llm__reply reply;           /* of llm_generate */
    llm__voice *voice;          /* of one that llm_open made, with what its options say of answers: */
    llm_sampling defaults;
    int32_t max_tokens, raw; /* raw: chats' texts go to the model without the template */
    int32_t limit_images, limit_videos, interleave_mm_strings;
};

/* One sequence and a context for talking unless cfg says otherwise: a context of 128k tokens would take gigabytes. What
 * was opened before an error is closed again; llm_last_error says why. */
LLM__PRIVATE llm *llm__easy_open(const char *path, llm_model_config *m, llm_engine_config *c);

/* Outputs of a batch. shown.items is `own`, or, for a program of another version, the same in that one's layout; the texts are shared. */
typedef struct llm__outputs {
    llm_outputs shown;
    llm_request_output *own;
} llm__outputs;

/* A conversation. While a request is there, its answer grows beside the messages; it becomes one of them when the request ends or is
 * stopped (llm_chat_stop), so that the messages are always whole JSON. */
struct llm_chat {
    llm *l;
    llm_sampling sampling;
    char unknown[256]; /* members of the sampling that only a later version has lie here: they must be 0 */
    llm_text messages; /* the list's elements: {"role":...},{...} */
    size_t *end, n;    /* (n) where each message ends */
    size_t end_cap;
    llm_text tools;   /* a JSON list; empty: none */
    llm__reply reply; /* the latest answer */
    llm_text piece, role;
    llm_request *request;
    int cancelled; /* atomic */
};
