/* facts: one way to ask config.json and GGUF metadata.
 *
 * Some fifty families, one forward pass. What sets a family apart is data, read in four steps, each of which knows
 * nothing of the next:
 *   facts    one way to ask config.json (in all its spellings) and GGUF metadata for a value within a range
 *   arch     shapes and switches: the family's row in a table, corrected by the facts
 *   loader   weights: a table of every name a weight goes by; fused, transposed or interleaved ones become segments of rows
 *   pass     one step: a straight list of operations of the backend's table, once a rank
 * The loader runs twice: without a backend when a model is opened, which only checks, so a file that lacks a tensor
 * or has a wrong shape is refused by name before anything is allocated; and with one when an engine is opened. The
 * same tensor has other contents in the two formats: converters to GGUF permute the rows of q and k of some families,
 * which turns RoPE's half-split pairs into neighbours, and add the one to norms that are stored without it. The table
 * of families says which. What the config says wins over the family's habit; a bias that it does not ask for is used
 * if the file has one.
 *
 * A model is read-only once it is open and may be shared by threads. A net (weights and buffers on a backend) belongs
 * to one engine, whose stepping thread alone calls llm__net_step.
 *
 * From file to logits, by the functions to read:
 *   llm_model_open     llm__source_open (>>source), llm__arch_read, llm__net_check
 *   llm__net_open      llm__load_rank for each rank, llm__net_buffers; the backend packs
 *   llm__net_step      llm__forward for each rank, once a step: all the rows of all sequences together
 * Refused by name rather than run wrongly: families that are not in the table, and variants of families that are
 * (Baichuan 2, clamped q and k, norms after the residual, 2:4 sparsity, rotated inputs). Ignored
 * on purpose: layers beyond the last (multi-token prediction), stored inv_freq and attention masks, towers for images.
 *
 * Sources: the modeling_*.py of transformers for folders, llama.cpp's conversion and graph code for GGUF, and the papers
 * named below. */
#pragma once
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "model/gguf.h"

#define LLM__MUST INT64_MIN /* as the fallback of a whole number: it must be there */
enum { LLM__MAX_LAYERS = 512 };

/* Where values are looked up. After the first failure everything reads as its fallback; `r` keeps the error. */
typedef struct llm__facts {
    const llm_json *json; /* config.json; NULL: then gguf */
    int node[3], n_nodes; /* objects to look in, in this order: a RoPE object, text_config, the root */
    const llm__gguf *gguf;
    char arch[64];    /* general.architecture */
    const char *path; /* of the model, for messages */
    llm_result r;
    const char *defaults; /* what the family's code has where its file is silent, as "key value key value"; NULL: nothing */
} llm__facts;

/* What was found: a node of config.json or a key of GGUF; neither if it is absent. */
typedef struct llm__fact {
    char key[128];          /* as the file spells it, or as it usually would */
    int node;               /* -1: none */
    const llm__gguf_kv *kv; /* NULL: none */
} llm__fact;

/* 1 if `word` is one of `words`. */
LLM__PRIVATE int llm__word_in(const char *words, const char *word);

/* The value of the first key that is there and not null. The order of the words decides, then that of the objects: a
 * RoPE object's rope_theta is found before the root's. */
LLM__PRIVATE llm__fact llm__facts_find(const llm__facts *f, const char *keys);

/* Remembers the first value that is wrong: its key, and what is wrong with it. So a reader of facts can ask for all
 * that it needs and look at f->r once, at the end: what it gets in between is in range, wrong or not. */
LLM__PRIVATE void llm__facts_bad(llm__facts *f, const llm__fact *fact, const char *what);

/* A whole number between lo and hi; `fallback` where it is absent: with LLM__MUST that is an error. */
LLM__PRIVATE int32_t llm__fact_int(llm__facts *f, const char *keys, int64_t fallback, int64_t lo, int64_t hi);

/* The same of the i-th in a list, where the value is one: families with two kinds of experts have a list of two, others a number. */
LLM__PRIVATE int32_t llm__fact_item(llm__facts *f, const char *keys, int i, int64_t fallback, int64_t lo, int64_t hi);

/* The same of a layer, where GGUF may have a list with one for each. */
LLM__PRIVATE int32_t llm__fact_layer(llm__facts *f, const char *keys, int layer, int64_t fallback, int64_t lo, int64_t hi);

/* The same, and where GGUF has a list with one for each layer the largest of them, 0 where a layer has none. */
LLM__PRIVATE int32_t llm__fact_most(llm__facts *f, const char *keys, int64_t fallback, int64_t lo, int64_t hi);

/* A number between lo and hi, or `fallback`. */
LLM__PRIVATE double llm__fact_num(llm__facts *f, const char *keys, double fallback, double lo, double hi);

/* true and false; in JSON also as 0 and 1. */
LLM__PRIVATE int llm__fact_bool(llm__facts *f, const char *keys, int fallback);

/* A text of fewer than 64 bytes; "" if it is absent. */
LLM__PRIVATE const char *llm__fact_str(llm__facts *f, const char *keys, char out[64]);

/* The first element of a JSON list; -1 if there is none (GGUF has no lists that are asked for here). */
LLM__PRIVATE int llm__fact_list(const llm__facts *f, const char *key);

/* Facts with an object of config.json put before the others. */
LLM__PRIVATE llm__facts llm__facts_in(const llm__facts *f, int object);
