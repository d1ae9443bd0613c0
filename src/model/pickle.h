/* pickle: the values of a Python pickle, as far as a file of tensors needs them.
 *
 * A pickle is a program for a machine with a stack and a memo, whose opcodes make numbers, texts, tuples, lists and dictionaries; a few
 * of them call any function of any Python module, by its name, and so a pickle can do whatever Python can. Here nothing is called. The
 * machine knows the opcodes that torch.save writes and the names that stand for tensors (LLM__PICKLE_NAMES); a call of one of those becomes
 * a value that says "this name with these arguments". Any other opcode or name is an error that names it.
 *
 *     GLOBAL 'torch._utils _rebuild_tensor_v2', MARK, ..., TUPLE, REDUCE     a call: name, and a tuple
 *     MARK 'storage', GLOBAL 'torch FloatStorage', '0', 'cpu', 6, TUPLE, BINPERSID     a storage: that tuple
 *
 * Values form a graph that may share and, in a hostile file, contain itself: who walks it bounds how deep. Every opcode makes at most one
 * value, so memory is bounded by the bytes read, and by LLM__PICKLE_VALUES.
 *
 * References: Lib/pickletools.py; torch/serialization.py. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/text.h"

/* Names that tensors need: the module, the name, and the dtype that a storage or a dtype has ("": raw bytes); what is called has none. */
#define LLM__PICKLE_NAMES(NAME) \
    NAME(ORDERED, "collections", "OrderedDict", NULL) \
    NAME(SIZE, "torch", "Size", NULL) \
    NAME(PARAMETER, "torch._utils", "_rebuild_parameter", NULL) \
    NAME(TENSOR, "torch._utils", "_rebuild_tensor", NULL) \
    NAME(TENSOR2, "torch._utils", "_rebuild_tensor_v2", NULL) \
    NAME(TENSOR3, "torch._utils", "_rebuild_tensor_v3", NULL) \
    NAME(S_F64, "torch", "DoubleStorage", "F64") \
    NAME(S_F32, "torch", "FloatStorage", "F32") \
    NAME(S_F16, "torch", "HalfStorage", "F16") \
    NAME(S_BF16, "torch", "BFloat16Storage", "BF16") \
    NAME(S_I64, "torch", "LongStorage", "I64") \
    NAME(S_I32, "torch", "IntStorage", "I32") \
    NAME(S_I16, "torch", "ShortStorage", "I16") \
    NAME(S_I8, "torch", "CharStorage", "I8") \
    NAME(S_U8, "torch", "ByteStorage", "U8") \
    NAME(S_BOOL, "torch", "BoolStorage", "BOOL") \
    NAME(S_RAW, "torch.storage", "UntypedStorage", "") \
    NAME(F64, "torch", "float64", "F64") \
    NAME(F32, "torch", "float32", "F32") \
    NAME(F16, "torch", "float16", "F16") \
    NAME(BF16, "torch", "bfloat16", "BF16") \
    NAME(F8_E4M3, "torch", "float8_e4m3fn", "F8_E4M3") \
    NAME(F8_E5M2, "torch", "float8_e5m2", "F8_E5M2") \
    NAME(F8_E8M0, "torch", "float8_e8m0fnu", "F8_E8M0") \
    NAME(I64, "torch", "int64", "I64") \
    NAME(I32, "torch", "int32", "I32") \
    NAME(I16, "torch", "int16", "I16") \
    NAME(I8, "torch", "int8", "I8") \
    NAME(U64, "torch", "uint64", "U64") \
    NAME(U32, "torch", "uint32", "U32") \
    NAME(U16, "torch", "uint16", "U16") \
    NAME(U8, "torch", "uint8", "U8") \
    NAME(BOOL, "torch", "bool", "BOOL")

typedef enum llm__pickle_name {
#define LLM__PICKLE_ENUM(id, module, name, dtype) LLM__PY_##id,
    LLM__PICKLE_NAMES(LLM__PICKLE_ENUM) LLM__PY_NAMES
} llm__pickle_name;

typedef enum llm__pickle_kind {
    LLM__PICKLE_NONE = 0,
    LLM__PICKLE_BOOL,
    LLM__PICKLE_INT,
    LLM__PICKLE_FLOAT, /* its number is not kept */
    LLM__PICKLE_TEXT,  /* and bytes, and integers beyond 64 bits */
    LLM__PICKLE_TUPLE,
    LLM__PICKLE_LIST,
    LLM__PICKLE_DICT, /* keys and values by turns */
    LLM__PICKLE_NAME,
    LLM__PICKLE_CALL,   /* of a name, with the parts as arguments */
    LLM__PICKLE_STORAGE /* the parts are what it is known by */
} llm__pickle_kind;

typedef struct llm__pickle_value {
    llm__pickle_kind kind;
    int32_t name;        /* llm__pickle_name of NAME and CALL */
    int64_t n;           /* the number of INT and BOOL; else how many parts */
    int32_t first, last; /* links of its parts; -1: none */
    llm__str text;
} llm__pickle_value;

typedef struct llm__pickle_link {
    int32_t value, next;
} llm__pickle_link;

enum { LLM__PICKLE_VALUES = 6 << 20, LLM__PICKLE_MARKS = 64 };

/* All indices are into `value` and `link`; texts point into the file. */
typedef struct llm__pickle {
    const char *path;
    llm__pickle_value *value;
    size_t n, cap;
    llm__pickle_link *link;
    size_t n_links, links_cap;
    int32_t *stack, *memo; /* -1 in the memo: nothing */
    size_t depth, stack_cap, n_memo, memo_cap;
    int32_t mark[LLM__PICKLE_MARKS];
    int n_marks;
    int32_t root; /* what it is */
    size_t used;  /* bytes up to its end */
} llm__pickle;

/* Reads the pickle that n bytes begin with. The caller closes *out, after errors too. */
LLM__PRIVATE llm_result llm__pickle_open(const char *path, const uint8_t *data, size_t n, llm__pickle *out);

LLM__PRIVATE void llm__pickle_close(llm__pickle *p);

/* Part i of a value, or -1. A walk over many takes the links. */
LLM__PRIVATE int32_t llm__pickle_part(const llm__pickle *p, int32_t value, int i);

/* 1 if a value is of this kind; -1 is of none. */
LLM__PRIVATE int llm__pickle_is(const llm__pickle *p, int32_t value, llm__pickle_kind kind);

/* The dtype of a storage's or a dtype's name, "" of raw bytes; NULL: it is no such name. */
LLM__PRIVATE const char *llm__pickle_dtype(llm__pickle_name name);
