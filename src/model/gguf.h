/* gguf: reading GGUF.
 *
 * The file, all numbers little-endian:
 *   "GGUF", u32 version, u64 number of tensors, u64 number of keys
 *   a key:     text name, u32 type, value; a text is u64 length and bytes; an array is u32 type of its elements, u64 count, the elements
 *   a tensor:  text name, u32 number of dimensions, u64 each (innermost first), u32 type, u64 offset in the data
 *   zeros up to a multiple of general.alignment (32 unless said), then the data
 * Version 3 is version 2 with big-endian files allowed, which nobody makes; version 1 had 32-bit lengths and is extinct. Lengths are where
 * most lies are told, so no length is believed before it was compared with the bytes that are left. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/text.h"
#include "base/map.h"
#include "model/tensors.h"

/* A little-endian number of 1 to 8 bytes anywhere. */
LLM__PRIVATE uint64_t llm__load_le(const uint8_t *p, int bytes);

/* Types of values, by their numbers in the file. */
/* clang-format off */
typedef enum llm__gguf_type {
    LLM__GGUF_U8 = 0, LLM__GGUF_I8, LLM__GGUF_U16, LLM__GGUF_I16, LLM__GGUF_U32, LLM__GGUF_I32, LLM__GGUF_F32, LLM__GGUF_BOOL,
    LLM__GGUF_STR, LLM__GGUF_ARRAY, LLM__GGUF_U64, LLM__GGUF_I64, LLM__GGUF_F64, LLM__GGUF_TYPES
} llm__gguf_type;
/* clang-format on */

/* One key. Numbers stand unaligned and little-endian at `data`; a string is its 64-bit length and its bytes. Once a key is in the table its
 * values are known to lie in the file: readers of values need no cursor. */
typedef struct llm__gguf_kv {
    llm__str key;
    int32_t type; /* llm__gguf_type of the value, or of the elements */
    int32_t is_array;
    uint64_t count; /* elements; 1 */
    const uint8_t *data;
} llm__gguf_kv;

/* The keys of a file, found by name. Everything points into the mapped file. */
typedef struct llm__gguf {
    uint32_t alignment;
    llm__gguf_kv *kv;
    size_t n_kv, cap;
    llm__map by_key;
    size_t data_at, end; /* where the data starts; behind the last tensor */
} llm__gguf;

/* Frees the table; a zeroed one is fine. */
LLM__PRIVATE void llm__gguf_free(llm__gguf *g);

LLM__PRIVATE int llm__gguf_size_of(int32_t type);

/* The key of that name, or NULL. */
LLM__PRIVATE const llm__gguf_kv *llm__gguf_find(const llm__gguf *g, const char *key);

/* Element i of a key (of a plain value: 0) as a number: 2 if it is stored as an integer, 1 as a float; 0: it is something else or not
 * there. The one place that knows how numbers are stored. Integers above 2^53 are rounded: everything asked for here is far smaller, and is
 * compared with its range by the one who asks. kv may be NULL. */
LLM__PRIVATE int llm__gguf_num_at(const llm__gguf_kv *kv, uint64_t i, double *out);

/* A plain integer, or `absent` if the key is not there, has another type or does not fit. */
LLM__PRIVATE int64_t llm__gguf_int(const llm__gguf *g, const char *key, int64_t absent);

/* 0 or 1, or `absent`. */
LLM__PRIVATE int llm__gguf_bool(const llm__gguf *g, const char *key, int absent);

/* A plain text, not NUL-terminated; .p NULL if it is none. kv may be NULL. */
LLM__PRIVATE llm__str llm__gguf_text(const llm__gguf_kv *kv);

/* The text of a key. */
LLM__PRIVATE llm__str llm__gguf_str(const llm__gguf *g, const char *key);

/* The string at *at in an array of strings, and steps over it. */
LLM__PRIVATE llm__str llm__gguf_string(const uint8_t **at);

/* Reads a GGUF file that lies at data; its tensors are added to `tensors`. All points into data, which must stay. The caller frees *g,
 * after errors too. Tensors may stand in any order with holes between them, and junk may follow: such files are about, and do no harm. */
LLM__PRIVATE llm_result llm__gguf_parse(const char *path, const uint8_t *data, size_t size, llm__gguf *g, llm__tensors *tensors);
