/* openai: OpenAI's requests and answers as JSON: all of a server but its sockets.
 *
 *
 *     llm_openai_service s;
 *     llm_openai_service_init(&s, model, engine);
 *     llm_openai_call *k = llm_openai_begin(&s, LLM_OPENAI_CHAT, body, length, NULL);
 *     llm_openai_submit(k);
 *     while (!llm_openai_get_info(k)->done) {
 *         llm_engine_step(engine, NULL);
 *         while (llm_openai_next(k, &out)) continue;
 *         ... send out.data, out.len = 0 ...
 *     }
 *     llm_openai_free(k);
 *
 * What is wrong with a body is an answer like any other: info->status is not 200 and llm_openai_next writes the error object.
 */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/media.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/chat.h"

typedef enum llm_openai_kind {
    LLM_OPENAI_CHAT = 0,   /* /v1/chat/completions */
    LLM_OPENAI_COMPLETION, /* /v1/completions */
    LLM_OPENAI_GENERATE,   /* /generate of vLLM's demonstration server */
    LLM_OPENAI_EMBEDDING,  /* /v1/embeddings */
    LLM_OPENAI_RESPONSE,   /* /v1/responses: nothing is kept between two */
    LLM_OPENAI_TOKENIZE,
    LLM_OPENAI_DETOKENIZE,
    LLM_OPENAI_TEMPLATE, /* /tokenize, /detokenize, /apply-template: no engine needed */
    LLM_OPENAI_LORA_LOAD,
    LLM_OPENAI_LORA_UNLOAD, /* /v1/load_lora_adapter, /v1/unload_lora_adapter: the answer is plain text */
    LLM_OPENAI_CONTEXT_SAVE,
    LLM_OPENAI_CONTEXT_LOAD, /* /v1/contexts/save, /v1/contexts/load */
    /* Ollama's; but for the first they are read as the kinds above, which info->kind is then */
    LLM_OPENAI_OLLAMA_SHOW,       /* /api/show: no engine needed */
    LLM_OPENAI_OLLAMA_CHAT,       /* /api/chat */
    LLM_OPENAI_OLLAMA_GENERATE,   /* /api/generate */
    LLM_OPENAI_OLLAMA_EMBED,      /* /api/embed */
    LLM_OPENAI_OLLAMA_EMBEDDINGS, /* /api/embeddings */
    LLM_OPENAI_RERANK,            /* /v1/rerank */
    LLM_OPENAI_SCORE,             /* /v1/score */
    /* Anthropic's, read as a chat and as tokenizing. A body has their names and places (system, stop_sequences, blocks of contents), and
       so has the answer; the calls to make are the same for all kinds: parse or check, submit, poll until done, free. Errors that a
       caller finds itself (no key, no room) are written with llm_anthropic_error, for their clients read another form. */
    LLM_OPENAI_MESSAGES,     /* /v1/messages */
    LLM_OPENAI_COUNT_TOKENS, /* /v1/messages/count_tokens */
    LLM_OPENAI_CLASSIFY      /* /classify */
} llm_openai_kind;

typedef struct llm_openai_call llm_openai_call; /* one request body and its answer */

/* What all calls share. llm_openai_service_init fills it in; a call copies it, and what it points to must outlive its calls. */
typedef struct llm_openai_service {
    const llm_model *model;        /* NULL: none has the name that a call says, which is a 404 */
    llm_engine *engine;            /* NULL: tokenizing kinds only */
    llm_template_caps caps;        /* of the chat template */
    llm_reasoning_kind reasoning;  /* how thoughts are marked; found in the chat template */
    llm_pooling pooling;           /* of embeddings; NONE: OWN */
    int32_t raw_embeddings;        /* 1: not normalised, unless a request says otherwise */
    int32_t tool_format;           /* how tool calls are written (llm_tools_named); found there too */
    char fingerprint[24];          /* system_fingerprint: the same model on the same backend */
    llm_sampling defaults;         /* of fields that a request does not have */
    int32_t max_tokens;            /* the same; 0: 16 for prompts, up to the context's end for chats */
    int32_t max_logprobs;          /* most that a request may ask for: 20 */
    double deadline_s;             /* longest life of a request; 0: none */
    const char *const *names;      /* what `model` may say; answers carry the first. None: the request's own name is echoed */
    int32_t n_names, strict_names; /* strict, or an adapter is loaded: other names are 404, else they are served too */
    const char *lora_dir;          /* folder of adapters that may be loaded by plain name; NULL: none (403) */
    const char *context_dir;       /* the same for kept contexts */
    /* In the stepping thread: there is something for llm_openai_next. May be NULL; must not block. */
    void (*on_news)(void *user, llm_openai_call *call);
    /* In llm_openai_next, for metrics: one piece of news; gap: seconds since the token before of the same choice, else 0. May be NULL. */
    void (*on_event)(void *user, llm_openai_call *call, llm_request *request, const llm_event *event, double gap);
    int32_t num_scheduler_steps;             /* vLLM's: a stream's events hold up to so many tokens; 0: 1 */
    int32_t interleave_mm_strings;           /* templates that know texts only: pictures stand where they stood, not before the text */
    int64_t max_contexts, max_context_bytes; /* of the files in context_dir: a save that would go beyond is refused; 0: no bound */
    /* Pictures and videos. */
    const char *media_path;             /* folder whose files may be named as "file:NAME"; NULL: none */
    const char *mm_processor_kwargs;    /* JSON of every request that says nothing else; NULL: the model's own */
    int32_t limit_images, limit_videos; /* in one prompt; 0: 128, -1: none at all */
    int32_t starved;                    /* there was no memory to look at the template: every call answers 503 */
    int32_t unused;                     /* 0 */
    int64_t max_answer_bytes;           /* of an answer that is no stream: a larger one is an error (400) instead; 0: no bound */
    const char *media_domains;          /* hosts of http and https URLs that are fetched, with commas between them; NULL: none */
    double media_timeout_s;             /* for one of them, and for ffmpeg; 0: 5 for a picture, 30 for a video */
    int32_t allow_ffmpeg;               /* 1: videos that are not read here (MP4, WebM, ...) are decoded by an installed ffmpeg */
    int32_t unused_too;                 /* 0 */
    /* Of chats that say nothing else themselves. */
    const char *template_kwargs;  /* JSON object of variables of the template (llm_openai_kwargs_check); NULL: none */
    const char *reasoning_effort; /* "low", ...; NULL: as the template has it */
    int32_t thinking;             /* 1: the template's enable_thinking is true; -1: false; 0: as it has it */
    int32_t force_usage;          /* 1: every stream ends with its usage */
    int32_t tokens_as_ids;        /* 1: return_tokens_as_token_ids of requests that do not say it */
    int32_t metrics;              /* 1: return_metrics of requests that do not say it */
    int32_t thinking_tokens;      /* as llm_sampling has it, of requests without thinking_token_budget */
    int32_t unused_last;          /* 0 */
} llm_openai_service;

LLM_API void llm_openai_service_init(llm_openai_service *s, const llm_model *model, llm_engine *engine);
/* Whether a text can be template_kwargs: an object without members that the server itself hands to the template. LLM_ERR_ARG. */
LLM_API llm_result llm_openai_kwargs_check(const char *json);
/* Is it one of the names, an adapter's, or "", "default", "null"? */
LLM_API int llm_openai_knows_model(const llm_openai_service *s, const char *name, size_t len);

typedef struct llm_openai_info {
    llm_openai_kind kind;
    const char *id;                /* "chatcmpl-...", or what the body chose (request_id) */
    const char *ignored;           /* members of the body that have no effect, "a, b"; "" */
    int32_t status;                /* HTTP's: 200, or the error's */
    int32_t stream;                /* the pieces are events, or `lines`; else there is one piece */
    int32_t done;                  /* all is written */
    int32_t form;                  /* submit will compile a grammar, which may take a quarter of a second, or prepare pictures */
    int32_t n_requests, n_choices; /* prompts, and answers to each */
    llm_request *const *requests;  /* (n_requests) */
    const llm_sampling *sampling;
    const char *user;   /* what the body says of its end user; NULL: nothing */
    int64_t body_bytes; /* memory that the body, as it was read, takes until the call is freed */
    int32_t lines;      /* of a stream: 0: events; 1: lines of JSON, each with all there is (GENERATE); 2: each with what is new (Ollama) */
} llm_openai_info;

/* Reads and checks a body: what takes time that grows with the prompt is left to submit. NULL: no memory. */
LLM_API llm_openai_call *llm_openai_begin(const llm_openai_service *s, llm_openai_kind kind, const char *body, size_t len, void *user);
/* The same in two steps, for who serves several models: parse reads the body, llm_openai_model tells which of them it asks for (the text of
 * its `model`, or its `adapter_name`; NULL: none, or no text), and check does the rest with that one's service. 0: there is an error to
 * be written. Between the two, a call may wait for as long as it likes, and be failed, cancelled and freed. */
LLM_API llm_openai_call *llm_openai_parse(llm_openai_kind kind, const char *body, size_t len, void *user);
LLM_API const char *llm_openai_model(const llm_openai_call *k, size_t *len);
LLM_API int llm_openai_check(llm_openai_call *k, const llm_openai_service *s);
/* Renders, tokenizes, submits. Any thread, one at a time for a call. 0: there is an error to be written. */
LLM_API int llm_openai_submit(llm_openai_call *k);
/* Appends the next piece of the answer if there is one: an event, a line, or the whole object. 0: nothing now. */
LLM_API int llm_openai_next(llm_openai_call *k, llm_text *out);
LLM_API const llm_openai_info *llm_openai_get_info(const llm_openai_call *k);
/* After submit: the pictures and videos of the body, (n) in the order of their placeholders, which go with the call. */
LLM_API struct llm_media *const *llm_openai_media(const llm_openai_call *k, int32_t *n);
/* Ends a call from outside: what runs is cancelled and the next piece is the error; in a stream an event, for its status has gone out,
 * but before submit always the object. */
LLM_API void llm_openai_fail(llm_openai_call *k, int status, const char *message);
/* Nobody waits for the answer any more: what another thread does for the call now ends as soon as it can. Any thread; then free it, or let
 * llm_openai_fail say why it ended: a whole answer that was being written is dropped. */
LLM_API void llm_openai_cancel(llm_openai_call *k);
LLM_API void llm_openai_free(llm_openai_call *k); /* cancels what runs */

/* The error object, for errors of your own; param and code may be NULL. */
LLM_API void llm_openai_error(llm_text *out, int status, const char *message, const char *param, const char *code);

/* The same in the form of Anthropic's API. */
LLM_API void llm_anthropic_error(llm_text *out, int status, const char *message);

/* The JSON schema of a body of that kind, as an object: its members with their types and ranges, from the tables that read it. */
LLM_API void llm_openai_schema(llm_openai_kind kind, llm_text *out);

/* A model as Ollama's /api/tags lists it, after what stands in the list already; modified: seconds since 1970. max_model_len above 0: as
 * /api/ps does, with that context. model NULL: it is not loaded, and little is known of it. */
LLM_API void llm_ollama_card(const llm_model *model, const char *name, double modified, int32_t max_model_len, llm_text *out);
