/* json: Strict RFC 8259 reading, the parser that everything here uses. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"

/* A parsed document. Nodes are indexes: 0 is the root, -1 is "absent", which every function takes, so that look-ups can be chained:
 *
 *   int n_layers = llm_json_find(doc, llm_json_find(doc, 0, "config"), "n_layers");
 *   if (!llm_json_int(doc, n_layers, &n)) ...       no config, no member of that name, or no whole number
 *
 * Only numbers that came from the functions below are nodes. A document is never changed: any thread may read it, all pointers hold until
 * llm_json_free. */
typedef struct llm_json llm_json;

typedef enum llm_json_type {
    LLM_JSON_ABSENT = 0,
    LLM_JSON_NULL,
    LLM_JSON_BOOL,
    LLM_JSON_NUMBER,
    LLM_JSON_STRING,
    LLM_JSON_ARRAY,
    LLM_JSON_OBJECT
} llm_json_type;

typedef struct llm_json_limits {
    int max_depth;   /* nesting; 0: 512; at most 4096 */
    int max_tokens;  /* values and keys together; 0: 64 million */
    int unique_keys; /* refuse an object that has a key twice, more than 4096 keys, or a key with a NUL or of more than 4096 bytes */
} llm_json_limits;

/* Parses `len` bytes (at most 2 GiB; copied). limits may be NULL. LLM_ERR_FORMAT for what is not JSON and LLM_ERR_LIMIT, both with the byte
 * offset; LLM_ERR_NOMEM. A duplicate key is no error without `unique_keys`: the first counts for llm_json_find, a walk meets both. Takes
 * about 20 bytes of memory a value beside the text. */
LLM_API llm_result llm_json_parse(const char *text, size_t len, const llm_json_limits *limits, llm_json **out);
LLM_API void llm_json_free(llm_json *doc);                                    /* NULL is fine */
LLM_API llm_json_type llm_json_type_of(const llm_json *doc, int node);        /* of -1, or no document: LLM_JSON_ABSENT */
LLM_API int llm_json_size(const llm_json *doc, int node);                     /* elements or members; else 0 */
LLM_API int llm_json_first(const llm_json *doc, int node);                    /* first element, or value of the first member; -1 */
LLM_API int llm_json_next(const llm_json *doc, int node);                     /* next element, or next member's value; -1 */
LLM_API const char *llm_json_key(const llm_json *doc, int node, size_t *len); /* key of a member's value; NULL for others */
LLM_API int llm_json_find(const llm_json *doc, int object, const char *key);  /* the member's value, the first if twice; -1 */
LLM_API const char *llm_json_str(const llm_json *doc, int node, size_t *len); /* decoded bytes, NUL-terminated; NULL if no string */
LLM_API int llm_json_num(const llm_json *doc, int node, double *out);         /* 1 if a number that fits a double, else 0 and *out stays */
LLM_API int llm_json_int(const llm_json *doc, int node, int64_t *out);        /* 1 if a whole number that fits: 3, 3.0, not 3.5 or 3e0 */
LLM_API int llm_json_bool(const llm_json *doc, int node, int *out);           /* 1 if true or false */
LLM_API const char *llm_json_raw(const llm_json *doc, int node, size_t *len); /* the source text of a number, true, false or null */
LLM_API void llm_json_write(const llm_json *doc, int node, llm_text *out);    /* compact text of a node, key order kept */
