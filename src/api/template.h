/* template: Chat templates (Jinja). */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"

/* A parsed template: read-only, to be rendered by any thread. It may use jinja2 as transformers sets it up; see >>template. */
typedef struct llm_template llm_template;

/* Parses `len` bytes of a template (copied; at most 16 MiB). LLM_ERR_TEMPLATE with the line for what jinja2 refuses too, or for what is
 * not here (include, import, extends, block, with, raw; see >>template); LLM_ERR_LIMIT, LLM_ERR_NOMEM. A template from a stranger does no
 * harm: rendering is bounded in steps, memory and output. */
LLM_API llm_result llm_template_open(const char *text, size_t len, llm_template **out);
LLM_API void llm_template_close(llm_template *t); /* NULL is fine */
/* The text of a template that is built in, for models that bring none: chatml, llama-2, llama-3, internlm, internlm2, baichuan, chatglm3,
 * mistral, vicuna, alpaca, zephyr, gemma, phi-3, deepseek. NULL: there is none of that name. */
LLM_API const char *llm_template_builtin(const char *name);

typedef struct llm_render_options {
    const char *bos_token, *eos_token; /* template variables, unless the context has them; NULL: undefined */
    int64_t now;                       /* seconds since 1970 for strftime_now, within 100 million days; 0: the clock */
    int utc_offset_s;                  /* of local time, for strftime_now; it is added */
    int64_t fuel;                      /* evaluation steps; 0: 5 million, a fraction of a second */
    size_t max_output;                 /* bytes; 0: 32 MiB */
    int as_chat;                       /* 1: as chat servers call it: tool-call arguments given as JSON text become objects, none an empty
                                          one; a null or empty `tool_calls` is left out; `tools` and `documents` are None when the
                                          context has none */
    const llm_model *guard;            /* texts of the context are guarded against this model's control tokens, which then come from the
                                          template alone: the output is for LLM_TOK_GUARDED; NULL: plain output */
} llm_render_options;

/* Renders with every member of the context object as a variable (messages, tools, add_generation_prompt, ...). options may be NULL. Appends
 * to out; on error out is as it was. LLM_ERR_TEMPLATE, "template line N: ...", for what the template refuses (raise_exception) and what
 * Python refuses; LLM_ERR_LIMIT over fuel, output, 512 MiB of values, 64 nested macros or a range of over 100,000; LLM_ERR_ARG if context
 * is no object. Any thread. */
LLM_API llm_result llm_template_render(const llm_template *t, const llm_json *context, const llm_render_options *options, llm_text *out);

/* continue_final_message: cuts what was rendered behind the last message's text. guard: that of the options; NULL: none. */
LLM_API void llm_template_cut(const llm_model *guard, const llm_json *context, llm_text *prompt);

/* The same with the model's own template and its BOS and EOS text. LLM_ERR_UNSUPPORTED if it has none. */
LLM_API llm_result llm_render(const llm_model *model, const llm_json *context, const llm_render_options *options, llm_text *out);
