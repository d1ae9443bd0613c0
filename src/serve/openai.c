/* ============================================================================
 * >>openai   OpenAI's requests and answers, whichever program serves them.
 * ============================================================================
 * The same JSON comes over a socket (llm_serve) and from a batch file (llm_cli batch), and the same JSON goes back. This
 * section is all of it: what a field may be, what a message may be, how a prompt is made of it, and how answers, chunks of a
 * stream and errors are written. The shapes are those of OpenAI's API reference; what goes beyond them (stop_reason,
 * sentence_length, cum_log_probs, prompt_logprobs ...) has the names of vLLM, FastDeploy and AIAK.
 *
 * A call passes through three stages, which a server may give to three threads, one at a time:
 *   begin   parses the body and checks every field: its time grows with the body's length only as JSON does
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
 * for what may become a stop string; the splitters of >>chat for what may become a tag or a call. With `stop`: ["\n\n"], an answer of the
 * tokens "4", "\n", "2" and "\n\n" is streamed so:
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

enum {
    LLM__OAI_STOPS = 16, LLM__OAI_STOP_LEN = 1024, LLM__OAI_WORDS = 256, LLM__OAI_BIASES = 1024, /* entries and bytes a list may have */
    LLM__OAI_PROMPTS = 256, LLM__OAI_INPUTS = 1024, LLM__OAI_MESSAGES = 16384, LLM__OAI_KWARGS = 64, LLM__OAI_TOOLS = 128,
    LLM__OAI_TOOL_NAME = 64, LLM__OAI_FIELDS = 64
};

/* What differs between the kinds of calls, in the order of llm_openai_kind. */
static const struct {
    const char *prefix;         /* of ids */
    const char *object, *chunk; /* what an answer and an event of its stream call themselves; NULL: nothing */
    const char *prompt;         /* the field that holds the prompt, or the prompts */
} llm__oai_kinds[] = {{"chatcmpl-", "chat.completion", "chat.completion.chunk", "messages"}, {"cmpl-", "text_completion", "text_completion", "prompt"},
                      {"gen-", NULL, NULL, "prompt"}, {"embd-", "list", NULL, "input"}, {"resp_", "response", NULL, "input"},
                      {"tok-", NULL, NULL, "prompt"}, {"detok-", NULL, NULL, "tokens"}, {"tmpl-", NULL, NULL, "messages"},
                      {"lora-", NULL, NULL, NULL}, {"lora-", NULL, NULL, NULL}, {"kept-", NULL, NULL, "prompt"}, {"kept-", NULL, NULL, "prompt"}};

/* One answer of one prompt, as far as it has been polled. */
typedef struct llm__oai_choice {
    llm_reasoning reasoning;
    llm_text thoughts, content; /* in a stream what is not written yet, else all; of a completion with the echoed prompt before it */
    llm_tool_parser *tools;     /* of a chat with tools; NULL: none */
    uint64_t call_id;           /* of its first call; the others count on */
    int32_t n_told;             /* in a stream: calls that were announced */
    size_t told;                /* bytes of the last one's arguments that were written */
    int64_t chars;              /* code points of content so far */
    double last;                /* when its latest token came; 0: none yet */
    int32_t n_reasoning;        /* tokens of thoughts */
    int32_t started;            /* in a stream: something was written */
} llm__oai_choice;

/* A body and its answer. The kinds share it: an embedding has no use for the choices' texts, a response alone has items. */
struct llm_openai_call {
    llm_openai_info info;
    const llm_openai_service *service;
    void *user;
    llm_json *body;
    llm_json *items_said;       /* the messages that a response's items stand for */
    const llm_json *chat;       /* where the messages are: body, or items_said */
    int messages;               /* and at which node; -1: none */
    llm_options fields;         /* reads the plain fields of the body and owns their texts */
    unsigned char given[LLM__OAI_FIELDS];
    llm_sampling asked;         /* what the body says; */
    llm_sampling s;             /* it over the defaults, and what follows from lists: */
    llm_option_list stop, bad_words;
    llm_tokens stop_ids;
    llm_logit_bias bias[LLM__OAI_BIASES];
    /* Fields of the body that are no sampling parameters, by their names. */
    int32_t include_usage, continuous_usage, echo, skip_special, generation_prompt, continue_final, priority;
    int32_t add_special, parse_special, pieces; /* add_special -1: not said */
    int32_t token_ids, metrics, want_logprobs, early_stop, background;
    int32_t shown, as_ids;      /* of log-probabilities: alternatives to a token at most; names as "token_id:N" */
    int32_t prompt_logprobs;    /* -1: not wanted */
    int64_t max_tokens, max_completion_tokens, truncate_prompt;
    int64_t dimensions;         /* of an embedding; 0: all */
    int32_t normalize, base64;
    const char *cache_salt, *user_name;
    llm_grammar_config form;    /* that the answer must have: kind 0: none; text in form_text */
    const char *form_name;      /* the field that asked for it */
    llm_text form_text;
    llm_grammar *grammar;
    int32_t tools, tool_only;   /* the list of tools in body, -1: none, or none to be called; the one that must be called, -1: any */
    int32_t tool_must, tool_many, tool_format, tool_exact; /* see llm_tools_grammar, llm_tool_parser_create */
    char id[48];
    const char *model;          /* the name that answers carry */
    const char *lora;           /* the adapter that `model` names; NULL: the base model */
    int64_t created;
    llm_text ignored;
    llm_text text;              /* the rendered chat; or the answer of a kind that needs no engine */
    llm_request **request;      /* (info.n_requests) */
    llm__oai_choice *choice;    /* (info.n_requests, info.n_choices) */
    int32_t n_room;             /* requests there is room for */
    char param[64], message[600]; /* of the error, with info.status; before one: the field that is being read */
    const char *code;
    int32_t failed;             /* by llm_openai_fail */
    /* Of a response: the output items that are whole, and the text of the one that is not */
    llm_text items, item;
    int32_t n_items, item_kind, n_events; /* item_kind: llm__oai_item */
    llm_text logs;              /* entries of the open message's logprobs; */
    size_t logs_sure, logs_told; /* bytes of those whose text has come, and of those that were written */
};

/* A chat, whichever way it was asked for. */
static int llm__oai_chats(const llm_openai_call *k) { return k->info.kind == LLM_OPENAI_CHAT || k->info.kind == LLM_OPENAI_RESPONSE; }

/* ---- errors
 * OpenAI's clients read {"error": {"message", "type", "param", "code"}} and the status: 400 and 404 are told to the user at once, 408, 409,
 * 429 and everything from 500 on are sent again, twice by default, after a pause. So a mistake that stays one must never be a 5xx, and a
 * full queue must be a 429. `param` is the field that was wrong, in the spelling of the body, and the sentence says its value and what was
 * expected. Only the first error of a body is told.
 *
 *   {"top_k": -3}        400  {"error":{"message":"top_k: -3, a whole number from -1 to 2147483647 was expected",
 *                              "type":"invalid_request_error","param":"top_k","code":null}}
 *   {"model": "gpt-9"}   404  {"error":{"message":"The model `gpt-9` does not exist.","type":"not_found_error",
 *                              "param":"model","code":"model_not_found"}}     where names are strict
 *   a full queue         429  ... "type":"rate_limit_error","param":"messages","code":"queue_full"
 *
 * Readers and checks below return 1, or 0 when they have kept an error; so they chain with && and the first that fails ends the chain. */

/* Says which field the errors that follow are about. Returns 1. */
__attribute__((format(printf, 2, 3))) static int llm__oai_at(llm_openai_call *k, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(k->param, sizeof k->param, format, args);
    va_end(args);
    return 1;
}

/* Keeps the error of a field: 400, unless the caller changes the status. param NULL: of the field that llm__oai_at named. A sentence that
 * begins with a small letter or a colon goes on behind the field's name. Returns 0, so that a check that fails ends in one line. */
__attribute__((format(printf, 3, 4))) static int llm__oai_bad(llm_openai_call *k, const char *param, const char *format, ...) {
    va_list args;
    if (param) llm__oai_at(k, "%.63s", param);
    int named = k->param[0] && (*format == ':' || (*format >= 'a' && *format <= 'z'));
    int n = named ? snprintf(k->message, sizeof k->message, "%s%s", k->param, *format == ':' ? "" : " ") : 0;
    va_start(args, format);
    vsnprintf(k->message + n, sizeof k->message - (size_t)n, format, args);
    va_end(args);
    k->info.status = 400;
    return 0;
}

/* The library's latest error as HTTP: a full queue may be tried again, a failing device is ours, the rest is the user's. */
static int llm__oai_failed(llm_openai_call *k, llm_result r, const char *param) {
    llm__oai_bad(k, param, "%s", llm_last_error());
    if (r == LLM_ERR_LIMIT) k->code = "context_length_exceeded";
    if (r == LLM_ERR_BUSY) k->info.status = 429, k->code = "queue_full";
    if (r == LLM_ERR_NOMEM) k->info.status = 503;
    if (r == LLM_ERR_BACKEND || r == LLM_ERR_IO) k->info.status = 500;
    if (r == LLM_ERR_UNSUPPORTED && !k->param[0]) k->info.status = 501; /* no field of the body can help */
    return 0;
}

/* The same where nothing but memory can be our own fault. */
static int llm__oai_refused(llm_openai_call *k, llm_result r, const char *param) {
    return llm__oai_failed(k, r == LLM_ERR_NOMEM ? r : LLM_ERR_ARG, param);
}

/* Writes the object of an error, without looking at the call: the server uses it for its own errors (a path that is none, a body too large)
 * too. The types are OpenAI's where it has one for the status; any other 4xx is invalid_request_error, any other 5xx server_error. */
LLM_API void llm_openai_error(llm_text *out, int status, const char *message, const char *param, const char *code) {
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"}, {429, "rate_limit_error"}, {503, "overloaded_error"}};
    const char *type = status >= 500 ? "server_error" : "invalid_request_error";
    for (int i = 0; i < LLM__COUNT(types); i++)
        if (types[i].status == status) type = types[i].type;
    llm_text_format(out, "{'error':{'message':%q,'type':%q,'param':%q,'code':%q}}", message, type, param, code);
}

/* ---- reading fields
 * Every parameter that some client of vLLM, OpenAI, FastDeploy or LMDeploy sends is a row of one table, llm__oai_fields. Its rows are
 * options like those of a command line (>>options): names, type, place in the call, range; those of sampling are the very same. So one
 * reader takes them all, and JSON's own types are asked for. Two kinds of rows set nothing here:
 *
 *   IGNORED    read elsewhere, or without meaning for us (`store`, `metadata`): accepted in silence
 *   REFUSED    would change what the answer must be (`suffix`): accepting it in silence would be a lie, so it is an error
 *
 * A name that is in no row goes to the list of what was ignored; the server tells it in the header x-llm-ignored. Of
 * {"top_k": 40, "stop": "END", "seed": null} the reader copies 40 to asked.top_k, makes stop a list of one, and takes seed, which is null,
 * for not there. Fields that are objects, or depend on others, have a function each, called one after the other when the plain ones are
 * read (llm__oai_read): stream_options asks for `stream`, tool_choice for `tools`. Ranges of numbers are checked here with the name that the
 * client used; what is left to check of the sampling parameters llm_sampling_check does, as for everyone. */

#define LLM__OAI_BOOL(member, names) LLM_OPT_BOOL(llm_openai_call, member, 0, names, NULL)

static const llm_option llm__oai_fields[] = {
    {"max_tokens|max_new_tokens|request_output_len|n_predict", LLM_OPTION_INT64, 0, offsetof(llm_openai_call, max_tokens), 0, 9e18, NULL, NULL},
    {"max_completion_tokens|max_output_tokens", LLM_OPTION_INT64, 0, offsetof(llm_openai_call, max_completion_tokens), 0, 9e18, NULL, NULL},
    LLM_OPTIONS_SAMPLING(llm_openai_call, asked, 0),
    LLM__OAI_BOOL(asked.use_beam_search, "use_beam_search"),
    LLM_OPT_FLOAT(llm_openai_call, asked.length_penalty, 0, "length_penalty", -100, 100, NULL),
    {"stop|stop_words", LLM_OPTION_LIST, 0, offsetof(llm_openai_call, stop), 0, LLM__OAI_STOPS, NULL, NULL},
    {"bad_words", LLM_OPTION_LIST, 0, offsetof(llm_openai_call, bad_words), 0, LLM__OAI_WORDS, NULL, NULL},
    LLM_OPT_INT(llm_openai_call, prompt_logprobs, 0, "prompt_logprobs", 0, 20, NULL),
    LLM__OAI_BOOL(skip_special, "skip_special_tokens"), LLM__OAI_BOOL(info.stream, "stream"), LLM__OAI_BOOL(echo, "echo"),
    LLM__OAI_BOOL(add_special, "add_special_tokens|add_special"), LLM__OAI_BOOL(parse_special, "parse_special"),
    LLM__OAI_BOOL(pieces, "with_pieces|return_token_strs"), LLM__OAI_BOOL(generation_prompt, "add_generation_prompt"),
    LLM__OAI_BOOL(continue_final, "continue_final_message"), LLM__OAI_BOOL(token_ids, "return_token_ids"),
    LLM__OAI_BOOL(as_ids, "return_tokens_as_token_ids"), LLM__OAI_BOOL(metrics, "return_metrics"),
    LLM__OAI_BOOL(early_stop, "enable_early_stop"), LLM__OAI_BOOL(tool_many, "parallel_tool_calls"), LLM__OAI_BOOL(background, "background"),
    {"truncate_prompt_tokens", LLM_OPTION_INT64, 0, offsetof(llm_openai_call, truncate_prompt), 1, 9e18, NULL, NULL},
    LLM_OPT_INT(llm_openai_call, priority, 0, "priority", -1000000, 1000000, NULL),
    {"cache_salt", LLM_OPTION_TEXT, 0, offsetof(llm_openai_call, cache_salt), 1, 128, NULL, NULL},
    {"user", LLM_OPTION_TEXT, 0, offsetof(llm_openai_call, user_name), 0, 512, NULL, NULL},
    {"guided_whitespace_pattern", LLM_OPTION_TEXT, 0, offsetof(llm_openai_call, form.space), 0, 512, NULL, NULL},
    {"dimensions", LLM_OPTION_INT64, 0, offsetof(llm_openai_call, dimensions), 1, 1e9, NULL, NULL},
    LLM__OAI_BOOL(normalize, "normalize"), LLM_OPT_ENUM(llm_openai_call, base64, 0, "encoding_format", "float|base64=1", NULL),
    LLM_OPT_NONE(REFUSED, "suffix", "text behind the answer"),
    LLM_OPT_NONE(IGNORED, "model|messages|prompt|input|content|tokens|instructions|tools|tool_choice|response_format|text|reasoning|"
                 "stop_token_ids|logit_bias|stream_options|logprobs|top_logprobs|early_stopping|early_stop_config|chat_template|"
                 "chat_template_kwargs|documents|enable_thinking|reasoning_effort|guided_json|guided_regex|guided_choice|guided_grammar|"
                 "guided_json_object|structural_tag|json_schema|grammar|regex|structured_outputs|guided_decoding_backend", NULL),
    LLM_OPT_NONE(IGNORED, "metadata|store|spaces_between_special_tokens|request_id|lora_name|lora_path|lora_int_id|name|include|truncation|"
                 "service_tier|prompt_cache_key|safety_identifier|max_tool_calls|previous_response_id|conversation", NULL)};

typedef char llm__oai_has_room[LLM__COUNT(llm__oai_fields) <= LLM__OAI_FIELDS ? 1 : -1]; /* for llm_openai_call.given */

/* A member that is there and not null; else -1. */
static int llm__oai_get(const llm_json *d, int object, const char *name) {
    int v = llm_json_find(d, object, name);
    return llm_json_type_of(d, v) == LLM_JSON_NULL ? -1 : v;
}

/* 1 if the body has the member and it is not null. */
static int llm__oai_has(const llm_openai_call *k, const char *name) { return llm__oai_get(k->body, 0, name) >= 0; }

/* A member that is a text; else NULL. */
static const char *llm__oai_word(const llm_json *d, int object, const char *name) { return llm_json_str(d, llm_json_find(d, object, name), NULL); }

/* A list of token ids, appended; of the field that llm__oai_at named. Ids are checked against a row of logits: the padded vocabulary. */
static int llm__oai_ids(llm_openai_call *k, int list, llm_tokens *ids) {
    const llm_openai_service *s = k->service;
    int32_t vocab = s->engine ? llm_logits_size(s->engine) : llm_vocab_size(s->model);
    for (int e = llm_json_first(k->body, list); e >= 0; e = llm_json_next(k->body, e)) {
        int64_t id;
        if (!llm_json_int(k->body, e, &id)) return llm__oai_bad(k, NULL, "must hold whole numbers, the ids of tokens");
        if (id < 0 || id >= vocab)
            return llm__oai_bad(k, NULL, ": token id %lld is out of vocabulary (0 to %d); a client that tokenizes itself must use this model's tokenizer",
                                (long long)id, vocab - 1);
        llm_tokens_add(ids, (int32_t)id);
    }
    return ids->failed ? llm__oai_failed(k, llm__nomem(), NULL) : 1;
}

/* What ends an answer and what must not be in it. */
static int llm__oai_stops(llm_openai_call *k) {
    const llm_option_list *const lists[] = {&k->stop, &k->bad_words};
    int v = llm__oai_get(k->body, 0, "stop_token_ids");
    for (int i = 0; i < 2; i++)
        for (int32_t j = 0; j < lists[i]->n; j++)
            if (strlen(lists[i]->items[j]) > LLM__OAI_STOP_LEN)
                return llm__oai_bad(k, i ? "bad_words" : "stop", ": an entry is longer than %d bytes", LLM__OAI_STOP_LEN);
    if (llm__oai_has(k, "stop") || llm__oai_has(k, "stop_words")) k->s.stop = k->stop.items, k->s.n_stop = k->stop.n;
    if (llm__oai_has(k, "bad_words")) k->s.bad_words = k->bad_words.items, k->s.n_bad_words = k->bad_words.n;
    if (v < 0) return 1;
    llm__oai_at(k, "stop_token_ids");
    if (llm_json_type_of(k->body, v) != LLM_JSON_ARRAY || llm_json_size(k->body, v) > LLM__OAI_STOPS)
        return llm__oai_bad(k, NULL, "must be a list of at most %d token ids", LLM__OAI_STOPS);
    if (!llm__oai_ids(k, v, &k->stop_ids)) return 0;
    k->s.stop_token_ids = k->stop_ids.data;
    k->s.n_stop_token_ids = (int32_t)k->stop_ids.len;
    return 1;
}

/* logit_bias: {"1234": -100}. Keys are ids as texts, since JSON has no other keys; -100 all but forbids a token, 100 all but forces it. */
static int llm__oai_bias(llm_openai_call *k) {
    const llm_json *d = k->body;
    int v = llm__oai_get(d, 0, "logit_bias");
    int32_t n = 0, vocab = k->service->engine ? llm_logits_size(k->service->engine) : llm_vocab_size(k->service->model);
    llm__oai_at(k, "logit_bias");
    if (v >= 0 && llm_json_type_of(d, v) != LLM_JSON_OBJECT) return llm__oai_bad(k, NULL, "must be an object of token ids and numbers");
    if (llm_json_size(d, v) > LLM__OAI_BIASES) return llm__oai_bad(k, NULL, ": at most %d entries, got %d", LLM__OAI_BIASES, llm_json_size(d, v));
    for (int e = llm_json_first(d, v); e >= 0; e = llm_json_next(d, e)) {
        llm__str key = llm__json_key(d, e);
        int64_t id;
        double x;
        if (!llm__parse_int(key.p, key.n, &id) || id < 0) return llm__oai_bad(k, NULL, ": the key %.32s is no token id", key.p);
        if (id >= vocab) return llm__oai_bad(k, NULL, ": token id %lld is out of vocabulary (0 to %d)", (long long)id, vocab - 1);
        if (!llm_json_num(d, e, &x) || x < -100 || x > 100) return llm__oai_bad(k, NULL, "of token %lld must be a number from -100 to 100", (long long)id);
        k->bias[n].id = (int32_t)id;
        k->bias[n++].bias = (float)x;
    }
    if (v >= 0) k->s.logit_bias = k->bias, k->s.n_logit_bias = n;
    return 1;
}

/* include_usage: a last chunk with the usage; continuous_usage_stats: the usage so far in every chunk. */
static int llm__oai_stream_options(llm_openai_call *k) {
    static const char *const flag[] = {"include_usage", "continuous_usage_stats"};
    int *const to[] = {&k->include_usage, &k->continuous_usage}, v = llm__oai_get(k->body, 0, "stream_options");
    if (v < 0 || k->info.kind == LLM_OPENAI_RESPONSE) return 1;
    llm__oai_at(k, "stream_options");
    if (!k->info.stream) return llm__oai_bad(k, NULL, "Stream options can only be defined when `stream=True`.");
    if (llm_json_type_of(k->body, v) != LLM_JSON_OBJECT) return llm__oai_bad(k, NULL, "must be an object");
    for (int i = 0; i < 2; i++) {
        int u = llm__oai_get(k->body, v, flag[i]);
        if (u >= 0 && !llm_json_bool(k->body, u, to[i])) return llm__oai_bad(k, NULL, ": %s must be true or false", flag[i]);
    }
    return 1;
}

/* The form that an answer must have, from a value: a list or object as JSON, a text as it is. Only one may be given, for an
 * answer is held to one grammar. The text is only kept here: it is compiled in submit (llm__oai_compile), since that may take a while. */
static int llm__oai_form(llm_openai_call *k, const char *name, llm_grammar_kind kind, int v) {
    const llm__str s = llm__json_text(k->body, v);
    if (k->form.kind) return llm__oai_bad(k, name, "You can only use one kind of guided decoding: %s is given beside %s", name, k->form_name);
    if (!s.p && (kind == LLM_GRAMMAR_REGEX || kind == LLM_GRAMMAR_GBNF)) return llm__oai_bad(k, name, "must be a text");
    k->form.kind = kind;
    k->form_name = name;
    if (s.p) llm__add_str(&k->form_text, s);
    else llm_text_format(&k->form_text, "%j", k->body, v);
    return 1;
}

/* One form has many spellings: names in the body (`object` 0), and names inside vLLM's structured_outputs. {"json_object": false} is a form
 * that was declined, which is no error. */
static int llm__oai_forms(llm_openai_call *k, int object) {
    static const struct {
        const char *name, *inner; /* NULL: it does not exist there */
        llm_grammar_kind kind;
    } forms[] = {{"guided_json", "json", LLM_GRAMMAR_JSON_SCHEMA}, {"guided_regex", "regex", LLM_GRAMMAR_REGEX},
                 {"guided_choice", "choice", LLM_GRAMMAR_CHOICE}, {"guided_grammar", "grammar", LLM_GRAMMAR_GBNF},
                 {"guided_json_object", "json_object", LLM_GRAMMAR_JSON_OBJECT}, {"structural_tag", "structural_tag", LLM_GRAMMAR_STRUCTURAL_TAG},
                 {"json_schema", "json_schema", LLM_GRAMMAR_JSON_SCHEMA}, {"grammar", NULL, LLM_GRAMMAR_GBNF}, {"regex", NULL, LLM_GRAMMAR_REGEX}};
    for (int i = 0; i < LLM__COUNT(forms); i++) {
        const char *key = object ? forms[i].inner : forms[i].name, *name = object ? "structured_outputs" : key;
        int v = key ? llm__oai_get(k->body, object, key) : -1, on = 1;
        if (v >= 0 && forms[i].kind == LLM_GRAMMAR_JSON_OBJECT && !llm_json_bool(k->body, v, &on))
            return llm__oai_bad(k, name, "%s must be true or false", key);
        if (v >= 0 && on && !llm__oai_form(k, name, forms[i].kind, v)) return 0;
    }
    return 1;
}

/* structured_outputs: one form, and how white space is treated. */
static int llm__oai_structured(llm_openai_call *k) {
    static const char known[] = "json|regex|choice|grammar|json_object|structural_tag|json_schema|whitespace_pattern|disable_any_whitespace|"
                                "disable_fallback|disable_additional_properties";
    int v = llm__oai_get(k->body, 0, "structured_outputs"), no_space = 0;
    if (v < 0) return 1;
    if (llm_json_type_of(k->body, v) != LLM_JSON_OBJECT) return llm__oai_bad(k, "structured_outputs", "must be an object");
    for (int m = llm_json_first(k->body, v); m >= 0; m = llm_json_next(k->body, m)) {
        llm__str key = llm__json_key(k->body, m);
        if (!llm__alias_among(known, key, NULL)) return llm__oai_bad(k, "structured_outputs", ": %.64s is not known", key.p);
    }
    if (llm__oai_word(k->body, v, "whitespace_pattern")) k->form.space = llm__oai_word(k->body, v, "whitespace_pattern");
    if (llm_json_bool(k->body, llm_json_find(k->body, v, "disable_any_whitespace"), &no_space) && no_space) k->form.space = "";
    if (!llm__oai_forms(k, v)) return 0;
    return k->form.kind || llm__oai_bad(k, "structured_outputs", ": one of json, regex, choice, grammar, json_object or structural_tag expected");
}

/* OpenAI's response_format, with the types that vLLM, llama.cpp and LMDeploy add; of a response it is text.format:
 *
 *   {"type": "text"}                                                  no form
 *   {"type": "json_object"}, also with "schema": {...} (llama.cpp)    any JSON object, or one of this schema
 *   {"type": "json_schema", "json_schema": {"name", "schema": {}}}    OpenAI; "schema" may stand one level higher, as in a response
 *   {"type": "structural_tag", ...}, {"type": "regex_schema", "regex_schema": "[0-9]+"}   vLLM; LMDeploy */
static int llm__oai_format(llm_openai_call *k) {
    const llm_json *d = k->body;
    int response = k->info.kind == LLM_OPENAI_RESPONSE, text = llm__oai_get(d, 0, "text");
    int inside = response ? llm__oai_get(d, text, "format") : -1, v = inside >= 0 ? inside : llm__oai_get(d, 0, "response_format");
    const char *name = inside >= 0 ? "text.format" : "response_format", *type = llm__oai_word(d, v, "type");
    int schema = llm_json_find(d, llm_json_find(d, v, "json_schema"), "schema"), regex = llm_json_find(d, v, "regex_schema");
    if (response && text >= 0 && llm_json_type_of(d, text) != LLM_JSON_OBJECT) return llm__oai_bad(k, "text", "must be an object");
    if (v < 0 || (type && !strcmp(type, "text"))) return 1;
    if (schema < 0) schema = llm_json_find(d, v, "schema");
    if (type && !strcmp(type, "json_object"))
        return llm__oai_form(k, name, schema >= 0 ? LLM_GRAMMAR_JSON_SCHEMA : LLM_GRAMMAR_JSON_OBJECT, schema >= 0 ? schema : v);
    if (type && !strcmp(type, "structural_tag")) return llm__oai_form(k, name, LLM_GRAMMAR_STRUCTURAL_TAG, v);
    if (type && !strcmp(type, "regex_schema") && regex >= 0) return llm__oai_form(k, name, LLM_GRAMMAR_REGEX, regex);
    if (!type || strcmp(type, "json_schema"))
        return llm__oai_bad(k, name, ": the type must be text, json_object, json_schema, structural_tag or regex_schema");
    return schema >= 0 ? llm__oai_form(k, name, LLM_GRAMMAR_JSON_SCHEMA, schema) : llm__oai_bad(k, name, ": %sschema is missing", response ? "" : "json_schema.");
}

