/* tuning: what the processor at hand decides beside its instruction set: numbers that change the time of a step and no bit of it.
 *
 * A processor that was measured has a row in a table (AMD's and Intel's families and models are numbers that it tells). On any other one
 * how weights are fetched, which has cost a third on one kind what it gained on another, is measured while they are loaded: one token's
 * products with the packed weights themselves, on all threads, for at most 20 ms; another way than the usual one is taken only
 * where it was faster every time and by more than the noise. `--tuning` forces any of it.
 *
 * What would change bits is no matter of measuring, for then one machine could answer differently from day to day. It follows from the
 * instruction set and the vendor alone: inputs of 16 bits for output layers of signed bytes where there is AVX2 without VNNI
 * (llm__weight_form), inputs with bounded sums for NF4 and FP4 there, and no vdpbf16ps on Intel's processors without AMX
 * (llm__isa_find). */
#pragma once
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"

typedef struct llm__tuning {
    int32_t ahead; /* bytes that weights are fetched ahead of their use */
    int32_t near;  /* 0: into the first cache; else into the second, and so many bytes ahead of their use from there into the
                    * first; of AVX-512, whose blocks ask for many lines at once */
    int32_t band;  /* pairs of row blocks that a tile's inputs are multiplied with while they are in the cache */
    int32_t signs; /* AVX2 without VNNI: tokens from which on signs of weights apart save more than it costs to find them */
    int32_t
        bits; /* 1: e4m3 weights of few tokens are multiplied as their bits stand in f32, below its normal numbers (mac_f8 of >>kernels):
                    * AMD's cores multiply those as fast as others, Intel's take some 150 cycles for each */
} llm__tuning;

/* A processor; vendor "" where it is not x86. */
typedef struct llm__chip {
    char vendor[13];
    int32_t family, model;
} llm__chip;

/* The one at hand: what it says of itself. */
LLM__PRIVATE llm__chip llm__chip_here(void);

/* What is usual: for a processor that nobody has measured. */
LLM__PRIVATE llm__tuning llm__tuning_usual(void);

/* What `text` forces (NULL or "auto": nothing), as "ahead=4096,band=8" or "measure", and for the rest what is known of a processor. *why:
 * where it comes from; NULL: the distance is to be measured. LLM_ERR_ARG with a sentence: no such name or value. */
LLM__PRIVATE llm_result llm__tuning_of(const char *text, const llm__chip *of, llm__tuning *out, const char **why);

/* "ahead=8192,near=0,band=4,signs=16,bits=1 (AMD Zen 3)" to `out` of n bytes. */
LLM__PRIVATE void llm__tuning_words(const llm__tuning *t, const char *why, char *out, size_t n);

/* The better of some ways of fetching by two rounds of rates (n each), in bytes a second and 0 where there was no time: the first one,
 * unless another was faster than it by a twentieth and more in whichever rounds they are compared. */
LLM__PRIVATE int llm__tuning_better(const int64_t *rates, int n);

/* Measures both distances with the packed weights of an open backend, and sets them. 0: no weights are in bytes, or there was no time: then
 * they are the usual ones. */
LLM__PRIVATE int llm__tuning_measure(llm_backend_ctx *ctx);
