/* openai_choices: one writer for the choices of chats and prompts, whole and streamed.
 *
 * A choice is written by llm__oai_write_choice from a piece: what there is of text, thoughts, rows of log-probabilities and an end. An
 * answer that is not streamed is one piece with everything; a chunk of a stream is a piece with what is new. The payload is called
 * `message`, `delta` or `text`; all else is shared. */
#pragma once
#include "api/text.h"
#include "api/easy.h"
#include "api/request.h"
#include "api/chat.h"
#include "api/openai.h"
#include "base/platform.h"
#include "serve/openai.h"

/* What a choice object says of an answer: all of it, or what is new. */
typedef struct llm__oai_piece {
    int32_t at;                    /* index of the choice */
    int text;                      /* 0: a chunk that only tells the end, or a call */
    llm_text *calls;               /* members of tool_calls; freed; NULL: none */
    int called;                    /* it has calls: that is how it ended */
    const llm_output *echo, *rows; /* log-probabilities of the echoed prompt, of the tokens; NULL: none */
    const llm_output *end;         /* how it ended; NULL: it goes on */
    const llm_output *ids;         /* its tokens, for return_token_ids; NULL: none */
    int first;                     /* in a stream: the first chunk of a completion */
} llm__oai_piece;

/* The id of call i. */
LLM__PRIVATE void llm__oai_call_id(const llm__oai_choice *c, int32_t i, char id[32]);

/* One entry of tool_calls. Of a whole answer it has everything. Of a stream it is, with the call's index, the announcement of a call
 * (`announce`: id, name, no arguments yet) or the bytes from..to of its arguments, which the client joins before it reads them as JSON:
 *
 *   whole    {"id": "call_9c..", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}
 *   stream   {"index": 0, "id": "call_9c..", "type": "function", "function": {"name": "weather", "arguments": ""}}
 *            {"index": 0, "function": {"arguments": "{\"city\": "}}
 *            {"index": 0, "function": {"arguments": "\"Rome\"}"}}
 *
 * Ids are random, and those of one choice count on. */
LLM__PRIVATE void llm__oai_write_call(const llm__oai_choice *c, int32_t i, const llm_tool_call *call, int stream, int announce, size_t from,
                                      size_t to, llm_text *out);

/* A choice object: index, text, log-probabilities, end; beside them what was asked for. A stop string is told as text, a stop id as number,
 * an end by EOS as null. An answer that called something and ended by itself has "finish_reason": "tool_calls"; one that was cut while it
 * called says "length", as its arguments may be half. */
LLM__PRIVATE void llm__oai_write_choice(const llm_openai_call *k, const llm__oai_piece *p, llm_text *out);

/* What a chat's object or first chunk tells of its prompt, if it was asked for: the ids, and the rendered text. */
LLM__PRIVATE void llm__oai_prompt_told(const llm_openai_call *k, llm_text *out);

/* The vector of prompt r (hidden_size, or `dimensions` of it), as a list or in base64: cut first and scaled then, so that what is left has
 * length 1. The sum is taken in double, as a float's would lose the small ones among thousands. */
LLM__PRIVATE void llm__oai_vector(const llm_openai_call *k, int32_t r, llm_text *out);

/* The object of a finished call: choices, or vectors, one an input in their order. /generate has only texts, each behind its prompt. */
LLM__PRIVATE void llm__oai_whole(const llm_openai_call *k, llm_text *out);
