/* adapters: adapters of an engine, by name.
 *
 * An adapter lies in a slot from its loading until nobody uses it any more: neither a request nor the list by which requests find it. So
 * unloading takes it off the list, and the last request that ends empties the slot. Where another one is to be loaded and no slot is free,
 * the one that no request has and that was named longest ago is set aside: it stays listed, and its files are read again when a request
 * names it (vLLM's max_cpu_loras means the same).
 *
 *     a slot is        refs               listed   name
 *     free             0                  0        NULL
 *     being loaded     1                  0        set: nobody else may load the same
 *     loaded           1 + its requests   1        set
 *     set aside        0                  1        set, behind the slots: the slot itself is loaded with another
 *     unloaded         its requests       0        NULL: the name may be loaded anew, into another slot
 *     being emptied    1                  0        set to NULL at the end
 *
 * The prefix cache knows an adapter by the number of its loading (id): pages that were computed with one are not taken for those of another
 * that is loaded later under its name. */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "base/platform.h"
#include "base/text.h"
#include "engine/kv.h"
#include "engine/scheduler.h"

/* The slot of a name, -1: there is none; from n_loras on: set aside. listed 0: also one that is still being loaded. The caller holds the
 * engine's mutex. */
LLM__PRIVATE int32_t llm__lora_find(const llm_engine *e, llm__str name, int listed);

/* One user less. */
LLM__PRIVATE void llm__lora_drop(llm_engine *e, int32_t slot);

/* The root of keys (>>kv) of prompts with the adapter in a slot (-1: none), a rotary scaling and a salt. */
LLM__PRIVATE llm__kv_key llm__prompt_root(const llm_engine *e, int32_t lora, uint64_t rope, const char *salt);

/* A rotary scaling as one number. */
LLM__PRIVATE uint64_t llm__rope_number(int32_t variant, float base);

/* A hold on the adapter that a request names: its id and content stay until llm__lora_drop. *slot -1: none. A caller that names one which
 * is being read again waits until it is there. */
LLM__PRIVATE llm_result llm__lora_hold(llm_engine *e, const char *name, int32_t *slot);
