/* chat: What a chat template can do; reasoning ("thinking") and tool calls apart from the answer. */
#pragma once
#include "api/linkage.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "api/template.h"

typedef struct llm_template_caps {
    int tools;           /* it reads `tools` */
    int system_role;     /* a system message appears in its text */
    int content_parts;   /* content may be a list of {"type": "text", "text": ...}; else join the texts yourself */
    int thinking_switch; /* it reads `enable_thinking` or `thinking` */
    int parts_only;      /* content must be a list of parts: a text alone does not appear */
    int image_parts;     /* parts {"type": "image"} appear, as the placeholder of a picture */
} llm_template_caps;

/* Finds out by rendering small conversations. Cannot fail: what raises an error cannot do it. Any thread. */
LLM_API void llm_template_get_caps(const llm_template *t, llm_template_caps *out);

typedef enum llm_reasoning_kind {
    LLM_REASONING_NONE = 0,    /* all is answer */
    LLM_REASONING_THINK,       /* <think> ... </think>; open when the prompt left it open or the answer begins with the tag */
    LLM_REASONING_DEEPSEEK_R1, /* the same, but open at the start unless the prompt ends with </think> */
    LLM_REASONING_ERNIE_45_VL, /* open as the prompt's last tag says; a lone </think> is dropped */
    LLM_REASONING_MISTRAL,     /* [THINK] ... [/THINK] */
    LLM_REASONING_SEED_OSS,    /* <seed:think> ... </seed:think> */
    LLM_REASONING_KIMI,        /* its own triangle brackets */
    LLM_REASONING_COHERE,      /* <|START_THINKING|> ... <|END_THINKING|>; the marks of an answer are dropped */
    LLM_REASONING_GEMMA4,      /* <|channel>thought ... <channel|> */
    LLM_REASONING_APERTUS,     /* <|inner_prefix|> ... <|inner_suffix|> */
    LLM_REASONING_GRANITE,     /* "Here is my thought process:" ... "Here is my response:" */
    LLM_REASONING_HUNYUAN,     /* <think> ... </think> <answer> ... </answer>, without the white space beside them */
    LLM_REASONING_APRIEL,      /* "Here are my reasoning steps:" ... [BEGIN FINAL RESPONSE] */
    LLM_REASONING_SOLAR,       /* <|think|> ... <|end|>; the header of the answer is dropped */
    LLM_REASONING_HY3,         /* <think:opensource> ... </think:opensource> */
    LLM_REASONING_HARMONY,     /* gpt-oss: messages of several channels, <|channel|>analysis<|message|> ... <|end|> */
    LLM_REASONING_KIMI_K3,     /* <|open|>think<|sep|> ... <|close|>think<|sep|>; the marks of an answer are dropped */
    LLM_REASONING_MINIMAX_M3   /* <mm:think> ... </mm:think> */
} llm_reasoning_kind;

/* Splits one answer as it arrives; fill it in with llm_reasoning_begin. Nothing to free; a copy goes on by itself. */
typedef struct llm_reasoning {
    llm_reasoning_kind kind;
    int thinking; /* what comes next belongs to the reasoning */
    int started;  /* how far it came */
    int n_held;
    char held[32]; /* may be the beginning of a tag */
} llm_reasoning;

/* The kind of a parser's name as vLLM or FastDeploy spell it ("qwen3", "deepseek_r1", "ernie-45-vl", "none"); -1: there is none. */
LLM_API int llm_reasoning_named(const char *name);
/* The kind that suits a chat template's text (NULL: none). */
LLM_API llm_reasoning_kind llm_reasoning_detect(const char *chat_template);
/* `prompt`: the rendered prompt, whose last tag tells whether the thoughts are open already, whoever wrote it; NULL: nothing was before. */
LLM_API void llm_reasoning_begin(llm_reasoning *r, llm_reasoning_kind kind, const char *prompt, size_t len);
/* Appends a piece of the answer, cut anywhere, to the one or the other, without the tags. A piece that may be the beginning of a tag is
 * held back until more comes; llm_reasoning_end appends it at the end. Without a closing tag all is reasoning. The texts may be emptied
 * (len = 0) between calls; look at their `failed`. */
LLM_API void llm_reasoning_push(llm_reasoning *r, const char *piece, size_t len, llm_text *reasoning, llm_text *content);
LLM_API void llm_reasoning_end(llm_reasoning *r, llm_text *reasoning, llm_text *content);

/* Tool calls apart from the text around them. A format is a number: that of a parser's name as vLLM or FastDeploy spell it ("hermes",
 * "llama3_json", "mistral", ...; -1: there is none), or the one that a chat template speaks (NULL: plain JSON). */
LLM_API int llm_tools_named(const char *name);
LLM_API int llm_tools_detect(const char *chat_template);

typedef struct llm_tool_call {
    llm_text name, arguments; /* arguments: JSON text of an object; until `done` its beginning */
    int32_t done;
} llm_tool_call;

/* Finds the calls of one answer as it arrives, cut anywhere. `list`: OpenAI's tools in the document, which must outlive the parser (NULL
 * and -1: none are known; plain JSON is a call only if it names one of them). exact: a grammar that llm_tools_grammar wrote sees to the
 * answer's form, so arguments need not be whole before they are told. most: calls after that many are dropped; 0: no bound. */
typedef struct llm_tool_parser llm_tool_parser;
LLM_API llm_tool_parser *llm_tool_parser_create(int format, int exact, const llm_json *tools, int list, int32_t most); /* NULL: no memory */
LLM_API void llm_tool_parser_free(llm_tool_parser *p);                                                                 /* NULL is fine */
/* Text that belongs to no call is appended to content. What looked like a call and is none is text. */
LLM_API void llm_tool_parser_push(llm_tool_parser *p, const char *piece, size_t len, llm_text *content);
LLM_API void llm_tool_parser_end(llm_tool_parser *p, llm_text *content);
LLM_API const llm_tool_call *llm_tool_parser_calls(const llm_tool_parser *p, int32_t *n); /* so far; good until the next push */

/* A structural tag (LLM_GRAMMAR_STRUCTURAL_TAG) in which every call keeps its function's schema. only: the index of the one function that
 * may be called, -1: any. must: the answer is nothing but calls, else text is free. many: more than one call. Returns the format in which
 * the calls will be written: `format`, or plain JSON where a grammar cannot write it and `must` is set.
 * -1: no grammar, nothing was appended. The model is not looked at: which marks are its special tokens is found when the grammar is
 * opened. */
LLM_API int llm_tools_grammar(const llm_model *model, int format, const llm_json *tools, int list, int only, int must, int many,
                              llm_text *out);
/* 1 if the format's marks are special tokens of this model: they must be shown (skip_special_tokens_off) for calls to be found. */
LLM_API int llm_tools_are_special(const llm_model *model, int format);
