/* sampler: which token comes next.
 *
 * One row of logits, one sequence's rules, one token. The order is vLLM's: banned tokens, min_tokens, logit_bias,
 * penalties (repetition, frequency, presence); here a greedy request takes the largest; then temperature, min-p,
 * top-k, top-p and the draw. Three things are meant to stay as they are:
 *   - Randomness has no state. The draw at output position p uses one number, a function of (seed, p); choice i
 *     of n uses seed + i. So the same seed gives the same tokens alone, in a batch, after a preemption, and
 *     choice i is what a request with n = 1 and seed + i gets.
 *   - The tokens left are drawn in order of id, by one walk over their cumulative weights; filters only remove.
 *     Ties go to the lower id.
 *   - Nothing sorts the vocabulary. The k-th value and the value where top-p ends come from a radix select; one
 *     pass compacts; a plain twin in the tests says the same by sorting.
 * Log-probabilities are the raw log-softmax, before any rule, summed in double. Rows that hold NaN or infinity are refused, not sampled.
 *
 * Words used here. A row is `vocab` logits, float. A weight is exp((x - max) / temperature): the probability but for one common factor, so
 * the largest is 1 and nothing overflows. A candidate is a token that the filters have left; its weight and id stand at the same index of
 * two arrays (llm__scratch). One thread works on one row; the threads of the backend share the rows of a step (llm__run_jobs).
 *
 * Cost: a greedy choice reads the row three times (largest, sum, place), about 0.1 ms for 49,152 tokens; the forward
 * pass before it takes 5 ms in a model of 135M weights. */
#pragma once
#include "api/config.h"
#include "api/sampler.h"
#include "api/request.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/fields.h"
#include "cpu/kernels.h"
#include "engine/badwords.h"

/* Limits of one request's lists: enough for any client, too little to slow a step down, for each stop string is
 * looked for in every new byte of text. */
enum { LLM__STOPS_MAX = 256, LLM__STOP_BYTES_MAX = 1 << 16, LLM__BEAMS_MAX = 32, LLM__LOGPROB_IDS_MAX = 128 };

/* The k largest of a row, best first, as x - log_sum: the likeliest tokens with their log-probabilities. out: (k).
 * Returns how many: the smaller of k and n. A heap of the best k seen so far makes this one pass with few changes:
 * after the first thousand values hardly one gets in. Sorting the heap by taking out its worst gives the order. */
LLM__PRIVATE int32_t llm__top_logprobs(const float *x, int32_t n, int32_t k, double log_sum, llm_token_logprob *out);
/* The same of the tokens ids (n), in their order. */
LLM__PRIVATE int32_t llm__logprobs_of(const float *x, const int32_t *ids, int32_t n, double log_sum, llm_token_logprob *out);

/* Working memory of one thread that samples: taken when the engine opens, 12 bytes a token of the vocabulary. */
typedef struct llm__scratch {
    const llm__kernels *kernels;
    float *x;          /* (vocab) processed logits */
    float *w;          /* (vocab) weights, then those of the candidates */
    int32_t *id;       /* (vocab) ids of the candidates, ascending */
    double *mass;      /* (2048) of llm__select */
    uint32_t *allowed; /* (vocab + 31) / 32: what a grammar lets through */
} llm__scratch;

/* kernels NULL: the best of this CPU. 0: no memory. It goes with the arena. */
LLM__PRIVATE int llm__scratch_open(llm__scratch *k, int32_t vocab, const llm__kernels *kernels, llm__arena *a);

/* The distinct tokens of a sequence and how often each was generated, for the penalties: a list in the order of first
 * use, and a hash table with open addressing over it. The penalties then touch as many logits as there are distinct
 * tokens, not the whole vocabulary. A recomputed sequence keeps its history: what was output stays output. */
typedef struct llm__history {
    int32_t n;
    uint32_t mask;       /* size of slot - 1; 0: no penalties, nothing is kept */
    int32_t *id, *count; /* (n) count: in the output */
    int32_t *slot;       /* (mask + 1) index + 1, 0 free */
} llm__history;

/* Counts one token. The arrays have room for every id there is, so nothing is refused; without penalties it does nothing. */
LLM__PRIVATE void llm__history_add(llm__history *h, int32_t id, int32_t in_output);

/* Everything that changes logits before the choice, for one sequence at one step. */
typedef struct llm__rules {
    const llm_sampling *s;
    const int32_t *eos; /* (n_eos) of the model */
    int32_t n_eos;
    const llm__badwords *bad;    /* texts that must not appear; NULL: none */
    const llm__history *history; /* NULL: no penalties */
    const int32_t *output;       /* (n_said) generated so far */
    int32_t n_said, n_output;    /* n_output: the same for min_tokens, which ends where a grammar does */
    const uint32_t *allowed;     /* one bit a token: what a grammar and allowed_token_ids let through; NULL: everything */
} llm__rules;

typedef llm_drawn llm__choice; /* of one row; made on the host here, or on a device */

/* What a choice has for an id where there is no token: the logits are not finite (as llm_drawn has it), or all tokens are forbidden. */
enum { LLM__CHOICE_NOT_FINITE = -1, LLM__CHOICE_FORBIDDEN = -2, LLM__CHOICE_GAVE_UP = -3 };

/* Chooses the token at output position `position` from one row of logits. */
LLM__PRIVATE llm__choice llm__choose(const float *row, int32_t n, const llm__rules *r, uint64_t seed, int64_t position, llm__scratch *k);

/* The `most` likeliest next tokens for a beam search, best first: log-probabilities after the rules in `best`, raw ones in `raw`. The
 * choice's id is that of the first. */
LLM__PRIVATE llm__choice llm__candidates(const float *row, int32_t n, const llm__rules *r, int32_t most, llm__scratch *k,
                                         llm_token_logprob *best, float *raw, int32_t *count);

/* allowed_token_ids as a bit a token, (vocab + 31) / 32 words; NULL: there are none, or (the arena has failed) no memory. A request makes
 * them once; where a grammar has a mask too, a token must be in both. A device that draws gets them as it gets a grammar's, so it needs to
 * know nothing of the list. */
LLM__PRIVATE const uint32_t *llm__only_tokens(const llm_sampling *s, int32_t vocab, llm__arena *a);

/* vocab 0: not known. */
LLM__PRIVATE llm_result llm__check_id(const char *name, int32_t id, int32_t vocab);

/* FastDeploy's ranges; a threshold of 1 is allowed and can never fire, 0 always does. */
LLM__PRIVATE llm_result llm__check_early_stop(const llm_early_stop *e);

enum { LLM__SAMPLING_FIELDS = 16 };

/* The numbers of an llm_sampling. */
extern LLM__PRIVATE const llm__field llm__sampling_fields[LLM__SAMPLING_FIELDS];

/* Every range, in the order in which a reader of the API meets them; the first that fails is told. vocab 0: ids are not checked. */
LLM__PRIVATE llm_result llm__check_sampling(const llm_sampling *s, int32_t vocab);

/* Zero means off or the default for these; from here on there is one form of each, which makes the rest simple. */
LLM__PRIVATE void llm__sampling_resolve(llm_sampling *s);

/* A number in [0, 1) that depends on seed and position alone: no state, so no batch, preemption or backend can
 * change it. The upper 53 bits are what a double can hold. Two multipliers without a common pattern keep neighbouring
 * seeds and neighbouring positions apart: choice i of a request uses seed + i. */
LLM__PRIVATE double llm__uniform(uint64_t seed, uint64_t position);

/* Samples from the weights in k->w (n of them, the largest is 1): min-p, then top-k, then top-p, then the draw. u: in [0, 1). *weight:
 * the token's. The tokens left are drawn in order of id. As the largest weight is 1, min-p is a plain threshold. What top-p cuts off is
 * known only at its end, but values so small that n of them together are less can be left out of the candidates at once, if they are
 * counted in the sum: this spares most rows the copying. tests/unit/engine/test_sampler.c has a plain twin that sorts. */
LLM__PRIVATE int32_t llm__pick(llm__scratch *k, int32_t n, const llm_sampling *s, double u, float *weight);

/* Changes one row of logits in place, in vLLM's order; x is a copy, (n). Whatever a bias adds, a banned token stays at -infinity. */
LLM__PRIVATE void llm__rules_apply(const llm__rules *r, float *x, int32_t n);

/* Descending order of values; ties: the lower id first. */
LLM__INLINE int llm__before(float a, int32_t a_id, float b, int32_t b_id) { return a > b || (a == b && a_id < b_id); }
