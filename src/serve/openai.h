/* openai: OpenAI's requests and answers, whichever program serves them.
 *
 * The same JSON comes over a socket (llm_serve) and from a batch file (llm_cli batch), and the same JSON goes back. This
 * section is all of it: what a field may be, what a message may be, how a prompt is made of it, and how answers, chunks of a
 * stream and errors are written. The shapes are those of OpenAI's API reference; what goes beyond them (stop_reason,
 * sentence_length, cum_log_probs, prompt_logprobs ...) has the names of vLLM, FastDeploy and AIAK.
 *
 * A call passes through three stages, which a server may give to three threads, one at a time:
 *   begin   parses the body and checks every field: its time grows with the body's length only as JSON does. A server of several models
 *           does the two one after the other, and may let the call wait for its model in between
 *   submit  renders the chat template, tokenizes, hands one llm_request a prompt to the engine: its time grows with the prompt
 *   next    polls the requests and writes what is new; nothing here blocks, so it may run in an event loop
 *
 * A streamed chat from bytes to events. E, W and S are the threads of llm_serve (events, a worker, the one that steps the engine); a batch
 * runs all of it in one thread:
 *
 *   E  begin    bytes --llm_json_parse--> body --llm__oai_read--> sampling parameters and members of the call, or the first error
 *   W  submit   body --llm__oai_render--> text --llm_tokenize--> ids --llm_request_submit--> an llm_request
 *   S           steps; on_news says that there is something to poll, and nothing else
 *   E  next     llm_request_poll --> an llm_event --llm__oai_poll--> thoughts, content and calls of a choice
 *               --llm__oai_event--> "data: {...}" and an empty line, once or more
 *
 * An event is one token and the text that may be shown since the event before, which is often less or more than the token's own: three
 * layers hold text back, each as little as it can, and each lets go at the end. The detokenizer waits for whole code points; the scheduler
 * for what may become a stop string; those of >>reasoning and >>tools for what may become a tag or a call. With `stop`: ["\n\n"], an answer
 * of the tokens "4", "\n", "2" and "\n\n" is streamed so:
 *
 *   token     event's text    delta
 *   "4"       "4"             {"content": "4"}
 *   "\n"      ""              {"content": ""}       held back: half a stop string
 *   "2"       "\n2"           {"content": "\n2"}    it was none
 *   "\n\n"    ""              {"content": ""}       found and cut off; then {} with "finish_reason": "stop", "stop_reason": "\n\n"
 *
 * Who owns what: the call owns its body's JSON, its options' texts, its requests, their grammar and all texts; llm_openai_free frees them
 * and cancels what still runs. The service outlives its calls. A call has no lock: its owner sees to it that begin, submit and next follow
 * one another. Errors are kept in the call with an HTTP status and are written by next like an answer: the user's mistakes are 4xx, because
 * clients send a request that got a 5xx again. A field that is null counts as absent. An error in a stream is an event, since the status
 * line has gone out long before. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/media.h"
#include "api/sampler.h"
#include "api/request.h"
#include "api/json.h"
#include "api/chat.h"
#include "api/grammar.h"
#include "api/options.h"
#include "api/openai.h"
#include "base/platform.h"
#include "grammar/machine.h"
#include "engine/scheduler.h"

/* clang-format off */
enum {
    LLM__OAI_STOPS = 16, LLM__OAI_STOP_LEN = 1024, LLM__OAI_WORDS = 256, LLM__OAI_BIASES = 1024, /* entries and bytes a list may have */
    LLM__OAI_PROMPTS = 256, LLM__OAI_INPUTS = 1024, LLM__OAI_CHOICES = 2048, LLM__OAI_MESSAGES = 16384, LLM__OAI_KWARGS = 64,
    LLM__OAI_TOOLS = 128, LLM__OAI_TOOL_NAME = 64, LLM__OAI_REPEATED = 1 << 20, LLM__OAI_FIELDS = 160,
    LLM__OAI_VALUES = 1 << 25, /* tokens and log-probabilities that all answers to a body may have */
    LLM__OAI_MEDIA = 128, LLM__OAI_FRAMES = 1024, LLM__OAI_FETCHED = 128 << 20
};
/* clang-format on */

/* What differs between the kinds of calls, in the order of llm_openai_kind. */
/* clang-format off */
static const struct {
    const char *prefix;         /* of ids */
    const char *object, *chunk; /* what an answer and an event of its stream call themselves; NULL: nothing */
    const char *prompt;         /* the field that holds the prompt, or the prompts */
} llm__oai_kinds[] = {
    {"chatcmpl-", "chat.completion", "chat.completion.chunk", "messages"},
    {"cmpl-", "text_completion", "text_completion", "prompt"},
    {"gen-", NULL, NULL, "prompt"},
    {"embd-", "list", NULL, "input"},
    {"resp_", "response", NULL, "input"},
    {"tok-", NULL, NULL, "prompt"},
    {"detok-", NULL, NULL, "tokens"},
    {"tmpl-", NULL, NULL, "messages"},
    {"lora-", NULL, NULL, NULL},
    {"lora-", NULL, NULL, NULL},
    {"kept-", NULL, NULL, "prompt"},
    {"kept-", NULL, NULL, "prompt"},
    {"show-", NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL}, /* Ollama's are read as others */
    {NULL, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL},
    {"rerank-", NULL, NULL, "query"},
    {"score-", "list", NULL, "text_1"},
    {"msg_", NULL, NULL, NULL}, /* Anthropic's too */
    {"count-", NULL, NULL, NULL},
    {"classify-", "list", NULL, "input"}};
/* clang-format on */

/* One answer of one prompt, as far as it has been polled. */
typedef struct llm__oai_choice {
    llm_reasoning reasoning;
    llm_text thoughts, content; /* in a stream what is not written yet, else all; of a completion with the echoed prompt before it */
    llm_tool_parser *tools;     /* of a chat with tools; NULL: none */
    uint64_t call_id;           /* of its first call; the others count on */
    int32_t n_told;             /* in a stream: calls that were announced */
    size_t told;                /* bytes of the last one's arguments that were written */
    int64_t chars;              /* code points of content so far */
    int64_t offset;             /* where in them the text of the next token begins, of those whose log-probabilities are written */
    double last;                /* when its latest token came; 0: none yet */
    int32_t n_reasoning;        /* tokens of thoughts */
    int32_t started;            /* in a stream: something was written */
    int32_t n_tokens, n_held;   /* in a stream: tokens that were polled; of these those that wait for an event */
    int32_t ids_told;           /* in a stream: tokens whose ids were written */
} llm__oai_choice;

/* A body and its answer. The kinds share it: an embedding has no use for the choices' texts, a response alone has items. */
struct llm_openai_call {
    llm_openai_info info;
    int32_t dialect;            /* the llm_openai_kind that was asked for; info.kind is what it is read as */
    llm_openai_service service; /* as it was when the call began */
    void *user;
    llm_json *body;
    llm_json *items_said; /* the messages that a response's items stand for */
    const llm_json *chat; /* where the messages are: body, or items_said */
    int messages;         /* and at which node; -1: none */
    llm_options fields;   /* reads the plain fields of the body and owns their texts */
    unsigned char given[LLM__OAI_FIELDS];
    llm_sampling asked; /* what the body says; */
    llm_sampling s;     /* it over the defaults, and what follows from lists: */
    llm_option_list stop, bad_words;
    llm_tokens stop_ids, only_ids, logprob_ids;
    llm_logit_bias bias[LLM__OAI_BIASES];
    /* Fields of the body that are no sampling parameters, by their names. */
    int32_t include_usage, continuous_usage, echo, skip_special, generation_prompt, continue_final, priority;
    int32_t add_special, parse_special, pieces; /* add_special -1: not said */
    int32_t token_ids, metrics, want_logprobs, early_stop, background, store, truncation;
    int32_t prompt_text;                   /* the answer has the rendered prompt too */
    int32_t thoughts_plain, thoughts_told; /* reasoning_format none: thoughts stay in the text; include_reasoning: 0: they are dropped */
    int32_t stream_interval;               /* tokens of a stream's event at most, if the service has fewer */
    int32_t activation;      /* use_activation: of vectors whether their length is 1, of scores whether they are sigmoids; -1: not said */
    int32_t shown, as_ids;   /* of log-probabilities: alternatives to a token at most; names as "token_id:N" */
    int32_t prompt_logprobs; /* -1: not wanted */
    int32_t thinking_budget; /* tokens of thoughts at most; -1: any number, -2: not said */
    llm_tokens tags;         /* of thoughts: the opening one, the closing one */
    int64_t max_tokens, max_completion_tokens, truncate_prompt;
    int64_t dimensions; /* of an embedding; 0: all */
    int32_t normalize, base64;
    const char *cache_salt, *user_name, *request_id;
    llm_grammar_config form; /* that the answer must have: kind 0: none; text in form_text */
    const char *form_name;   /* the field that asked for it, */
    const char *form_key;    /* and its member there, or the same */
    llm_text form_text;
    llm_grammar *grammar;
    int32_t tools, tool_only; /* the list of tools in body, -1: none, or none to be called; the one that must be called, -1: any */
    int32_t tool_must, tool_many, tool_format, tool_exact; /* see llm_tools_grammar, llm_tool_parser_create */
    char id[48];
    const char *model; /* the name that answers carry */
    const char *lora;  /* the adapter that `model` names; NULL: the base model */
    int64_t created;
    double received; /* by llm_now */
    llm_text ignored;
    llm_text text;                /* the rendered chat; or the answer of a kind that needs no engine */
    llm_reasoning reasoning;      /* of a chat: how the prompt leaves the thoughts */
    llm_request **request;        /* (info.n_requests) */
    llm__oai_choice *choice;      /* (info.n_requests, info.n_choices) */
    int32_t n_room;               /* requests there is room for */
    char param[64], message[600]; /* of the error, with info.status; before one: the field that is being read */
    const char *code;
    int32_t failed;    /* by llm_openai_fail: the status */
    int32_t starved;   /* memory was out for a part of the answer */
    int32_t cancelled; /* atomic: by llm_openai_cancel */
    /* Of a response: the output items that are whole, and the text of the one that is not */
    llm_text items, item;
    int32_t n_items, item_kind, n_events; /* item_kind: llm__oai_item */
    /* Pictures and videos: how many of each the body has, opened in its order; multi_modal_data's node, -1: none; what no one can guess. */
    int32_t n_wanted[2], n_media, media_data;
    size_t n_fetched; /* bytes that other servers gave */
    struct llm_media **media;
    uint64_t mark;
    llm_text logs;               /* entries of the open message's logprobs; */
    size_t logs_sure, logs_told; /* bytes of those whose text has come, and of those that were written */
    /* Of Ollama's: ids that stand before the prompt; nothing is to be done; of a text that is too long the beginning is taken. */
    llm_tokens before;
    int32_t idle, keep_first;
    int32_t cut_end; /* truncation_side: right: of truncate_prompt tokens the first are kept; -1: not said */
    /* Of rerank and score: how many documents are wanted, 0: all; whether with their texts, -1: not said; no sigmoid; of Qwen3-Reranker. */
    int32_t top_n, return_documents, raw_scores;
    const char *instruction;
};

/* Whether the writing of an answer goes on at `out`: of a whole one while somebody waits for it and it is no larger than it may be. */
LLM__PRIVATE int llm__oai_goes_on(const llm_openai_call *k, const llm_text *out);

/* A chat, whichever way it was asked for. */
LLM__PRIVATE int llm__oai_chats(const llm_openai_call *k);

/* Asked for in Ollama's words. */
LLM__PRIVATE int llm__oai_is_ollama(const llm_openai_call *k);

/* Asked for in Anthropic's words. */
LLM__PRIVATE int llm__oai_is_anthropic(const llm_openai_call *k);

/* Asks for what is pooled of texts: vectors, or the labels of a classifier. */
LLM__PRIVATE int llm__oai_pools(const llm_openai_call *k);

/* Asks how well texts answer others. */
LLM__PRIVATE int llm__oai_ranks(const llm_openai_call *k);

/* Did the answer end by itself? Else it was cut: by its length, or its time. */
LLM__PRIVATE int llm__oai_ended(llm_finish finish);

/* Says which field the errors that follow are about. Returns 1. */
LLM__PRIVATE LLM__PRINTF(2, 3) int llm__oai_at(llm_openai_call *k, const char *format, ...);

/* Keeps the error of a field: 400, unless the caller changes the status. param NULL: of the field that llm__oai_at named. A sentence that
 * begins with a small letter or a colon goes on behind the field's name. Returns 0, so that a check that fails ends in one line. */
LLM__PRIVATE LLM__PRINTF(3, 4) int llm__oai_bad(llm_openai_call *k, const char *param, const char *format, ...);

/* Whether somebody still waits: 0 keeps an error. Looked at where a loop grows with the request. */
LLM__PRIVATE int llm__oai_awaited(llm_openai_call *k);

/* The library's latest error as HTTP: a full queue may be tried again, a failing device is ours, the rest is the user's. */
LLM__PRIVATE int llm__oai_failed(llm_openai_call *k, llm_result r, const char *param);

/* Names the field that a sentence of the engine begins with ("bad_words: they forbid ..."). Returns 1 if there is one: that is no fault of
 * ours. */
LLM__PRIVATE int llm__oai_blames(llm_openai_call *k, const char *sentence);

/* The same where nothing but memory can be our own fault. */
LLM__PRIVATE int llm__oai_refused(llm_openai_call *k, llm_result r, const char *param);

/* A body of another API in OpenAI's words takes the place of the call's. 0: it cannot be read, and the call is refused. */
LLM__PRIVATE int llm__oai_replaced(llm_openai_call *k, const llm_text *body);

/* Kinds of calls as bits: the group of a row is where it has an effect. Elsewhere it is named as ignored. */
#define LLM__OAI_BIT(kind) (1 << LLM_OPENAI_##kind)
enum {
    LLM__OAI_CHATS = LLM__OAI_BIT(CHAT) | LLM__OAI_BIT(RESPONSE),
    LLM__OAI_ECHO = LLM__OAI_BIT(COMPLETION) | LLM__OAI_BIT(RESPONSE), /* there it is refused */
    LLM__OAI_OPENAI = LLM__OAI_CHATS | LLM__OAI_BIT(COMPLETION),
    LLM__OAI_ANSWERS = LLM__OAI_OPENAI | LLM__OAI_BIT(GENERATE),
    LLM__OAI_POOLS = LLM__OAI_BIT(EMBEDDING) | LLM__OAI_BIT(CLASSIFY),
    LLM__OAI_PROMPTED = LLM__OAI_ANSWERS | LLM__OAI_POOLS,
    LLM__OAI_IDS = LLM__OAI_BIT(TOKENIZE) | LLM__OAI_BIT(CONTEXT_SAVE),
    LLM__OAI_RENDERS = LLM__OAI_CHATS | LLM__OAI_IDS | LLM__OAI_BIT(TEMPLATE),
    LLM__OAI_LORA = LLM__OAI_BIT(LORA_LOAD) | LLM__OAI_BIT(LORA_UNLOAD),
    LLM__OAI_CONTEXT = LLM__OAI_BIT(CONTEXT_SAVE) | LLM__OAI_BIT(CONTEXT_LOAD),
    LLM__OAI_RANKS = LLM__OAI_BIT(RERANK) | LLM__OAI_BIT(SCORE),
    LLM__OAI_ALL = (LLM__OAI_BIT(CONTEXT_LOAD) * 2 - 1) | LLM__OAI_RANKS | LLM__OAI_BIT(CLASSIFY)
};

/* clang-format off */
#define LLM__OAI_BOOL(where, member, names) LLM_OPT_BOOL(llm_openai_call, member, where, names, NULL)
#define LLM__OAI_INT64(where, member, names, low, high) \
    {names, LLM_OPTION_INT64, where, offsetof(llm_openai_call, member), low, high, NULL, NULL}
#define LLM__OAI_TEXT(where, member, names, low, high) \
    {names, LLM_OPTION_TEXT, where, offsetof(llm_openai_call, member), low, high, NULL, NULL}
#define LLM__OAI_BUDGETS "thinking_token_budget|reasoning_max_tokens|reasoning_budget_tokens|thinking_budget_tokens|thinking_budget"
#define LLM__OAI_READ(where, names) {names, LLM_OPTION_READ, where, 0, 0, 0, NULL, NULL}

static const llm_option llm__oai_fields[] = {
    LLM__OAI_INT64(LLM__OAI_ANSWERS, max_tokens, "max_tokens|max_new_tokens|request_output_len|n_predict", 0, 9e18),
    LLM__OAI_INT64(LLM__OAI_ANSWERS, max_completion_tokens, "max_completion_tokens|max_output_tokens", 0, 9e18),
    LLM_OPT_FIELD(llm_openai_call, asked, best_of, LLM__OAI_ANSWERS & ~LLM__OAI_BIT(RESPONSE), "best_of", NULL),
    LLM_OPTIONS_SAMPLING(llm_openai_call, asked, LLM__OAI_ANSWERS),
    LLM__OAI_BOOL(LLM__OAI_ANSWERS, asked.use_beam_search, "use_beam_search"),
    LLM_OPT_FIELD(llm_openai_call, asked, length_penalty, LLM__OAI_ANSWERS, "length_penalty", NULL),
    {"stop|stop_words", LLM_OPTION_LIST, LLM__OAI_ANSWERS, offsetof(llm_openai_call, stop), 0, LLM__OAI_STOPS, NULL, NULL},
    {"bad_words", LLM_OPTION_LIST, LLM__OAI_ANSWERS, offsetof(llm_openai_call, bad_words), 0, LLM__OAI_WORDS, NULL, NULL},
    LLM_OPT_INT(llm_openai_call, prompt_logprobs, LLM__OAI_OPENAI, "prompt_logprobs", 0, 20, NULL),
    LLM__OAI_BOOL(LLM__OAI_ANSWERS, skip_special, "skip_special_tokens"), LLM__OAI_BOOL(LLM__OAI_PROMPTED, info.stream, "stream"),
    LLM__OAI_BOOL(LLM__OAI_ECHO, echo, "echo"),
    LLM__OAI_BOOL(LLM__OAI_PROMPTED | LLM__OAI_IDS, add_special, "add_special_tokens|add_special"),
    LLM__OAI_BOOL(LLM__OAI_PROMPTED | LLM__OAI_IDS, parse_special, "parse_special"),
    LLM__OAI_BOOL(LLM__OAI_BIT(TOKENIZE), pieces, "with_pieces|return_token_strs"),
    LLM__OAI_BOOL(LLM__OAI_RENDERS, generation_prompt, "add_generation_prompt"),
    LLM__OAI_BOOL(LLM__OAI_RENDERS, continue_final, "continue_final_message"),
    LLM__OAI_BOOL(LLM__OAI_OPENAI, token_ids, "return_token_ids"),
    LLM__OAI_BOOL(LLM__OAI_OPENAI | LLM__OAI_BIT(TOKENIZE), as_ids, "return_tokens_as_token_ids"),
    LLM__OAI_BOOL(LLM__OAI_OPENAI, metrics, "return_metrics|collect_metrics"),
    LLM__OAI_BOOL(LLM__OAI_BIT(CHAT), prompt_text, "return_prompt_text"),
    LLM__OAI_BOOL(LLM__OAI_BIT(CHAT), thoughts_told, "include_reasoning"),
    LLM_OPT_ENUM(llm_openai_call, thoughts_plain, LLM__OAI_BIT(CHAT), "reasoning_format", "auto|deepseek|none=1", NULL),
    LLM_OPT_INT(llm_openai_call, stream_interval, LLM__OAI_OPENAI, "stream_interval|max_streaming_response_tokens", 1, 1024, NULL),
    LLM__OAI_BOOL(LLM__OAI_POOLS | LLM__OAI_RANKS, activation, "use_activation|activation"),
    LLM__OAI_BOOL(LLM__OAI_ANSWERS, early_stop, "enable_early_stop"), LLM__OAI_BOOL(LLM__OAI_CHATS, tool_many, "parallel_tool_calls"),
    LLM__OAI_BOOL(LLM__OAI_BIT(RESPONSE), background, "background"), LLM__OAI_BOOL(LLM__OAI_BIT(RESPONSE), store, "store"),
    LLM__OAI_INT64(LLM__OAI_PROMPTED | LLM__OAI_RANKS, truncate_prompt, "truncate_prompt_tokens", -1, 9e18),
    LLM_OPT_ENUM(llm_openai_call, cut_end, LLM__OAI_PROMPTED | LLM__OAI_RANKS, "truncation_side", "left|right=1", NULL),
    LLM_OPT_INT(llm_openai_call, priority, LLM__OAI_PROMPTED | LLM__OAI_RANKS, "priority", -1000000, 1000000, NULL),
    LLM__OAI_TEXT(LLM__OAI_PROMPTED | LLM__OAI_CONTEXT | LLM__OAI_RANKS, cache_salt, "cache_salt", 1, 128),
    LLM__OAI_TEXT(LLM__OAI_PROMPTED | LLM__OAI_RANKS, user_name, "user", 0, 512),
    LLM__OAI_TEXT(LLM__OAI_ALL, request_id, "request_id", 1, 128),
    LLM_OPT_INT(llm_openai_call, top_n, LLM__OAI_BIT(RERANK), "top_n", 0, INT32_MAX, NULL),
    LLM__OAI_BOOL(LLM__OAI_BIT(RERANK), return_documents, "return_documents|return_text"),
    LLM__OAI_BOOL(LLM__OAI_RANKS | LLM__OAI_BIT(CLASSIFY), raw_scores, "raw_scores"),
    LLM__OAI_TEXT(LLM__OAI_RANKS, instruction, "instruction|instruct", 0, 8192),
    LLM__OAI_READ(LLM__OAI_BIT(RERANK), "query|texts"), LLM__OAI_READ(LLM__OAI_BIT(SCORE), "text_1|text_2"),
    LLM__OAI_READ(LLM__OAI_RENDERS | LLM__OAI_BIT(RERANK), "documents"),
    LLM__OAI_TEXT(LLM__OAI_ANSWERS, form.space, "guided_whitespace_pattern", 0, 512),
    LLM__OAI_INT64(LLM__OAI_BIT(EMBEDDING), dimensions, "dimensions", 1, 1e9),
    LLM__OAI_BOOL(LLM__OAI_BIT(EMBEDDING), normalize, "normalize"),
    LLM_OPT_ENUM(llm_openai_call, base64, LLM__OAI_BIT(EMBEDDING), "encoding_format", "float|base64=1", NULL),
    LLM_OPT_ENUM(llm_openai_call, truncation, LLM__OAI_BIT(RESPONSE), "truncation", "disabled|auto=1", NULL),
    LLM_OPT_NONE(REFUSED, "suffix", "text behind the answer"), LLM_OPT_NONE(REFUSED, "prompt_embeds", "a prompt of vectors"),
    LLM_OPT_NONE(REFUSED, "logits_processors|vllm_xargs|logits_processors_args", "code of the client's"),
    LLM_OPT_NONE(REFUSED, "bad_words_token_ids", "a list of forbidden tokens (logit_bias forbids by -100, bad_words texts)"),
    LLM_OPT_NONE(REFUSED, "kv_transfer_params|ec_transfer_params", "a cache outside of this process"),
    LLM_OPT_NONE(REFUSED, "media_io_kwargs", "reading of media by the request (mm_processor_kwargs)"),
    LLM_OPT_NONE(REFUSED, "audio|web_search_options", "sound, or a search of the web"),
    LLM_OPT_NONE(REFUSED, "lora|samplers|response_fields", "llama-server's (model names an adapter)"),
    LLM_OPT_NONE(REFUSED, "functions|function_call", "the older form of tools and tool_choice"),
    LLM__OAI_READ(LLM__OAI_RENDERS | LLM__OAI_ANSWERS, "multimodal_data|multi_modal_data|mm_processor_kwargs"),
    LLM__OAI_READ(LLM__OAI_ALL | LLM__OAI_BIT(OLLAMA_SHOW), "model"), LLM__OAI_READ(LLM__OAI_PROMPTED | LLM__OAI_CONTEXT, "adapter_name"),
    LLM__OAI_READ(LLM__OAI_RENDERS & ~LLM__OAI_BIT(RESPONSE), "messages"),
    LLM__OAI_READ(LLM__OAI_BIT(COMPLETION) | LLM__OAI_BIT(GENERATE) | LLM__OAI_BIT(RESPONSE) | LLM__OAI_IDS, "prompt"),
    LLM__OAI_READ(LLM__OAI_POOLS | LLM__OAI_BIT(RESPONSE), "input"), LLM__OAI_READ(LLM__OAI_BIT(TOKENIZE), "content"),
    LLM__OAI_READ(LLM__OAI_BIT(DETOKENIZE), "tokens"), LLM__OAI_READ(LLM__OAI_RENDERS, "tools|tool_choice"),
    LLM__OAI_READ(LLM__OAI_BIT(RESPONSE), "instructions|text|metadata|include|previous_response_id|conversation"),
    LLM__OAI_READ(LLM__OAI_CHATS, "reasoning"),
    LLM__OAI_READ(LLM__OAI_ANSWERS, "response_format|stop_token_ids|allowed_token_ids|logit_bias|early_stop_config|early_stopping|"
                  "repetition_detection|"
                  "guided_json|guided_regex|"
                  "guided_choice|guided_grammar|guided_json_object|structural_tag|json_schema|grammar|regex|structured_outputs"),
    LLM__OAI_READ(LLM__OAI_OPENAI, "stream_options|logprobs|logprob_token_ids"), LLM__OAI_READ(LLM__OAI_CHATS, "top_logprobs|modalities"),
    LLM__OAI_READ(LLM__OAI_BIT(CHAT), "thinking"), LLM__OAI_READ(LLM__OAI_OPENAI, "prompt_token_ids"),
    LLM__OAI_READ(LLM__OAI_ANSWERS, "repeat_last_n"),
    LLM__OAI_READ(LLM__OAI_RENDERS, "chat_template|chat_template_kwargs|enable_thinking|reasoning_effort"),
    LLM__OAI_READ(LLM__OAI_LORA, "lora_name|lora_path"), LLM__OAI_READ(LLM__OAI_CONTEXT, "name"),
    LLM_OPT_NONE_OF("guided_decoding_backend", LLM_GUIDED_BACKENDS, "there is one, built in"),
    LLM_OPT_NONE(IGNORED, "lora_int_id", "adapters go by their names"),
    LLM_OPT_NONE(IGNORED, "spaces_between_special_tokens", "a special token has the spaces that the tokenizer gives it"),
    LLM_OPT_NONE(IGNORED, "max_tool_calls|service_tier|prompt_cache_key|prompt_cache_retention|safety_identifier|verbosity",
                 "it is OpenAI's own"),
    LLM_OPT_NONE(IGNORED, "prediction", "drafts never change an answer"),
    LLM_OPT_NONE(IGNORED, "session_id|id_slot|cache_prompt|n_cache_reuse", "a prompt shares the pages of what it begins with"),
    LLM_OPT_NONE(IGNORED, "n_keep|n_discard", "an answer ends where the context does"),
    LLM_OPT_NONE(IGNORED, "routed_experts_prompt_start|return_token_offsets|return_mm_kwargs|timings_per_token|return_progress",
                 "it is not told here"),
    LLM_OPT_NONE_OF("watermarking|return_routed_experts|thinking_forced_open|post_sampling_probs|disable_chat_template|"
                    "temp_scaled_logprobs|top_p_normalized_logprobs", "false", "it is without that"),
    LLM_OPT_NONE_OF("do_preprocess", "true", "/v1/completions takes a prompt as it is"),
    LLM_OPT_NONE_OF("parse_tool_calls", "true", "without tools nothing is looked for"),
    LLM_OPT_NONE_OF("embed_dtype", "float32", "vectors are float32"), LLM_OPT_NONE_OF("endianness", "native|little", "it is always so"),
    LLM_OPT_INT(llm_openai_call, thinking_budget, LLM__OAI_CHATS, LLM__OAI_BUDGETS, -1, INT32_MAX - 1, NULL),
    LLM_OPT_NONE_NUMBER("n_probs|t_max_predict_ms|n_indent|min_keep", "N", 0, 0, "it is without that (logprobs, max_tokens)"),
    LLM_OPT_NONE_NUMBER("mirostat|dry_multiplier|xtc_probability|dynatemp_range|top_a|epsilon_cutoff|eta_cutoff|smoothing_factor", "X", 0,
                        0, "this way of sampling is not supported"),
    LLM_OPT_NONE_NUMBER("typical_p|typical|tfs_z|tfs", "X", 1, 1, "this way of sampling is not supported"),
    LLM_OPT_NONE_NUMBER("top_n_sigma|nsigma", "X", -1, 0, "this way of sampling is not supported")};
/* clang-format on */

/* Names what the body says in vain: members that have no effect in this kind of call, or in none. */
LLM__PRIVATE void llm__oai_reports(llm_openai_call *k);

/* The same for members of its member `name` that are none of `known`, "a|b": as "name.member". */
LLM__PRIVATE void llm__oai_reports_in(llm_openai_call *k, const char *name, const char *known);

/* A member that is there and not null; else -1. */
LLM__PRIVATE int llm__oai_get(const llm_json *d, int object, const char *name);

/* 1 if the body has the member and it is not null. */
LLM__PRIVATE int llm__oai_has(const llm_openai_call *k, const char *name);

/* A member that is a text; else NULL. */
LLM__PRIVATE const char *llm__oai_word(const llm_json *d, int object, const char *name);

/* A list of token ids, appended; of the field that llm__oai_at named. Ids are checked against a row of logits: the padded vocabulary. */
LLM__PRIVATE int llm__oai_ids(llm_openai_call *k, int list, llm_tokens *ids);

/* What ends an answer and what must not be in it. */
LLM__PRIVATE int llm__oai_stops(llm_openai_call *k);

/* logit_bias: {"1234": -100}. Keys are ids as texts, since JSON has no other keys; -100 all but forbids a token, 100 all but forces it. */
LLM__PRIVATE int llm__oai_bias(llm_openai_call *k);

/* include_usage: a last chunk with the usage; continuous_usage_stats: the usage so far in every chunk. */
LLM__PRIVATE int llm__oai_stream_options(llm_openai_call *k);

/* One form has many spellings: names in the body (`object` 0), and names inside vLLM's structured_outputs. {"json_object": false} is a form
 * that was declined, which is no error. */
LLM__PRIVATE int llm__oai_forms(llm_openai_call *k, int object);

/* structured_outputs: one form, and how white space is treated. */
LLM__PRIVATE int llm__oai_structured(llm_openai_call *k);

/* OpenAI's response_format, with the types that vLLM, llama.cpp and LMDeploy add; of a response it is text.format:
 *
 *   {"type": "text"}                                                  no form
 *   {"type": "json_object"}, also with "schema": {...} (llama.cpp)    any JSON object, or one of this schema
 *   {"type": "json_schema", "json_schema": {"name", "schema": {}}}    OpenAI; "schema" may stand one level higher, as in a response
 *   {"type": "structural_tag", ...}, {"type": "regex_schema", "regex_schema": "[0-9]+"}   vLLM; LMDeploy */
LLM__PRIVATE int llm__oai_format(llm_openai_call *k);
