/* scheduler: which sequence computes what in the next step.
 *
 * A request is one prompt with n sequences. All that a sequence is for the scheduler is a list of tokens of which the first n_computed have
 * their keys and values in pages. A step feeds k >= 1 of the rest: one for a sequence that decodes, a chunk for a prompt (or for what a
 * preempted sequence must compute again: it is the same thing). When the last token is fed, its logits give the next one. So there are no
 * phases, only a budget of rows, as in Sarathi-Serve and vLLM's unified scheduler (continuous batching is Orca's, pages are vLLM's):
 *   1. sequences that decode, oldest first: the budget always holds a row for each;
 *   2. prompts that have begun;
 *   3. new ones, while there is a place, pages and budget.
 *
 * A step of three sequences with a budget of 8 rows: two that decode and a prompt of which 6 tokens fit now. Only rows
 * whose logits somebody wants are out rows:
 *
 *     row          0    1    2    3    4    5    6    7
 *     sequence     0    1    2    2    2    2    2    2        seq_begin 0 1 2 8
 *     position    41  507    0    1    2    3    4    5        seq_len   42 508 6
 *     out row      0    1    -    -    -    -    -    -        (the prompt's last token is in a later step)
 *
 * The life of a sequence:
 *
 *     HELD ------> WAITING ------> RUNNING ------> DONE        also from HELD and WAITING: cancelled, late, failed
 *     choices      ^    placed     |    its answer ends
 *     2 .. n       |               |
 *                  +-- gives way --+
 *
 * Pages. A new sequence takes the pages of all its tokens at once, so only decoding ever runs out of pages. Then the
 * latest sequence gives up its pages and waits again at its old place in the queue: its tokens stay, nothing that
 * was sampled is lost. What its pages held is computed again later, or comes back from host memory where there is
 * room for it (swap). A sequence gives way three times at most; when it comes back for the third time it takes the
 * pages of its longest possible answer, and needs nobody to give way any more. Order is (priority, arrival, choice).
 *
 * Recompute or swap? To compute n tokens again costs a prompt of n tokens, which the device does fast, and nothing else;
 * often the prefix cache still has most of the pages. To swap costs two copies of n tokens' keys and values, and host
 * memory that is taken at start. Short sequences and small models are better off computing; it is the default. The bits
 * are the same either way: what comes back is what was there, and what is computed again is computed in the same order.
 *
 * Choices. Of n > 1 sequences the first computes the prompt; then the others fork: they share its full pages and get
 * a copy of the begun one. Those that find no place then wait like anyone else (and find the prompt in the prefix
 * cache). A beam search forks in the same way, after every token (see below).
 *
 * One step ahead. With lag 0 a step is planned, computed, and its results applied before the next is planned. With lag 1 step t + 1 is
 * planned and handed over while step t is still being computed: where the device draws the token of a sequence itself, the next row of this
 * sequence is a placeholder that the device fills in (llm_step's token_from). So the device never waits for the host. The price: a sequence
 * that turns out to have ended has one row computed in vain. Nobody sees it: pages are published only up to tokens that were applied, and
 * an ended sequence keeps its pages until no step that names them is in flight. A sequence whose next
 * choice needs the host (penalties, bans, bias, beams) waits for its token. Pages are taken away only while nothing is in flight.
 *
 *     host     plan t+1  begin t+1  |  wait t, apply t  |  plan t+2  begin t+2  |  wait t+1, apply t+1  | ...
 *     device   ......... step t ....|................ step t+1 .................|.......... step t+2 ........
 *
 * Pipelines. Where the layers are cut into stages, each on devices of its own, a step is in one stage at a time, and the others would stand
 * still. So as many steps are in flight as there are stages (micro-batches, GPipe, Huang et al. 2019): lag is one less, a step has a share
 * of the sequences that decode, and each of these waits for its token before it is planned again. Chunks of a prompt need no token, so they
 * follow one another through the stages. Two stages, eight answers:
 *
 *     stage 1     a: 0 1 2 3 | b: 4 5 6 7 | a | b | a | b
 *     stage 2                | a: 0 1 2 3 | b | a | b | a
 *
 * What always holds between two steps (tests/unit/engine/test_sim.c checks it after each):
 *   - a page's references are the tables that name it; free, cached and used pages are all pages;
 *   - a page with two owners is full, computed, and of the same tokens and salt in both; nobody writes it;
 *   - a sequence that waits owns no page, only host memory; one that has ended owns nothing once its last step is applied;
 *   - a step has a row for each of its sequences, and at most max_rows in all;
 *   - the first in order of those that run goes on, unless it stands still for a step in flight;
 *   - what a request says is what it would say alone, whatever else ran, waited, gave way or failed beside it;
 *   - each answer ends exactly once.
 *
 * Drafts. Where speculation is on or a grammar says what follows (>>speculate), what prompts and decoding sequences leave
 * of a step's rows goes to drafted tokens: a sequence that decodes gets rows for them behind its own, and pages where some
 * are free; nobody gives way for a guess. These rows do not count as fed or computed until their token was chosen
 * (llm__draft_kept). With lag 1 a sequence that drafts waits for each token: the host must see
 * whether the draft was right. Keys and values of a wrong guess are written over; a state is not, so recurrent layers forget what
 * all guesses made of it (llm_step's seq_keep), and those that were right are rows of the next step again (n_again):
 *
 *     step 1   rows  on | the mat and      kept: the mat, then "."     the state is that behind "on"
 *     step 2   rows  the mat . | ...                                   the state is that behind "."
 *
 * Planning (llm__plan), computing (driver and backend) and applying the results (llm__apply) are separate. All bookkeeping is arrays and
 * lists made when things are opened or submitted, and of a backend few functions are called here, so tests/unit/engine/test_sim.c drives
 * millions of steps over one without a model. Everything here belongs to the one thread that steps; what pollers read too is written under
 * the request's lock. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/media.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/tokenizer.h"
#include "api/grammar.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "cpu/kernels.h"
#include "cpu/backend.h"
#include "model/pooler.h"
#include "model/loader.h"
#include "model/net.h"
#include "grammar/machine.h"
#include "engine/badwords.h"
#include "engine/sampler.h"
#include "engine/kv.h"
#include "engine/speculate.h"

struct llm__seq;

/* What a scheduler needs beside a backend. The backend's calls are ordered as on one stream: a copy after a step sees that step's pages. */
typedef struct llm__driver {
    llm_result (*forward)(llm_engine *e, const llm_step *step); /* begins a step; all of it is copied */
    /* Guesses up to draft.n tokens for each of n sequences, into draft.ids, and lowers draft.n to as many as there are; NULL: by lookup. */
    void (*draft)(llm_engine *e, struct llm__seq *const *seq, int32_t n);
    void (*rope_of)(llm_engine *e, int32_t prompt_len, int32_t *variant, float *base);
    double (*now)(llm_engine *e); /* seconds, monotonic */
} llm__driver;

/* What a scheduler is made of: a driver, what it knows of the model, and limits. max_num_batched_tokens and max_out >= max_num_seqs. */
typedef struct llm__engine_params {
    llm_engine_config c; /* as it was given, with defaults for zeros; its texts are the caller's, and gone when the engine is open */
    llm__driver driver;
    const llm_model *model;      /* NULL: requests give ids and get ids */
    const llm__kernels *kernels; /* for rows of logits; NULL: the best of this CPU */
    const int32_t *eos;          /* (n_eos) ids that end an answer; outlive the engine */
    int32_t n_eos, eos_id;       /* eos_id: the one written where early stop ends it, -1: none */
    int32_t hidden;              /* length of a hidden_row */
    int32_t vocab, n_pages, max_len, max_out;
    int32_t n_swap;    /* pages of host memory; 0: preempted sequences are computed again */
    int32_t lag;       /* steps that stay in flight when one was begun: 0, 1; of a pipeline one less than its stages */
    int32_t n_draft;   /* tokens that may be drafted at once; 0: no speculation */
    int32_t n_jump;    /* the same of those that a grammar drafts */
    int32_t recurrent; /* 1: layers keep a state, which a draft must not change: what is kept of one is fed again */
    int32_t indexed;   /* 1: contexts may be longer than what an indexer leaves out nothing of */
    int32_t encoder;   /* 1: a prompt is computed in one step, and gives a vector */
    const llm__pooler *pooler;
    int32_t n_loras; /* slots for adapters */
    int32_t dry;     /* 1: the engine is only planned; pages: as planned, else 0 */
    int32_t planned_pages;
} llm__engine_params;

typedef struct llm__stop { /* a stop string as an automaton (Knuth, Morris, Pratt) */
    const char *text;
    int32_t len;
    int32_t *border; /* (len) longest proper prefix of text[0..i] that ends there */
} llm__stop;

/* Where a sequence is in its life: see above. */
typedef enum llm__seq_state {
    LLM__SEQ_HELD = 0, /* waits for others of its request: its prompt is computed by the first, or it is no beam now */
    LLM__SEQ_WAITING,  /* for a place, pages and budget */
    LLM__SEQ_RUNNING,
    LLM__SEQ_DONE
} llm__seq_state;

/* What a sequence of a beam search is. */
typedef enum llm__beam_role {
    LLM__BEAM_FREE = 0, /* nothing: to be used */
    LLM__BEAM_LIVE,     /* one of the beams */
    LLM__BEAM_CHILD,    /* a beam with one more token, of which it is not decided yet whether it becomes live */
    LLM__BEAM_POOL      /* an answer that has ended, among the best so far */
} llm__beam_role;

/* One list of tokens that grows. It belongs to its request, which has all of them in one array; lists of the scheduler
 * point into that array. Members stand in the order in which a sequence needs them: its place, its tokens and how far they are
 * computed, its pages, how its tokens are chosen, and what comes out. */
typedef struct llm__seq {
    llm_request *request;
    struct llm__seq *prev, *next; /* waiting list */
    llm__seq_state state;
    int32_t index; /* in the request's array */
    int32_t *ids;  /* (n_prompt + max_new) prompt, then output */
    int32_t n_prompt, n_ids, max_new;
    int32_t n_ahead;    /* tokens after ids that the device is drawing: at most 2, while the next step is filled */
    int32_t ahead_row;  /* the out row that draws the last of them */
    int32_t n_fed;      /* tokens in steps handed over; >= n_computed */
    int32_t n_computed; /* tokens whose keys and values are in pages */
    int32_t n_flight;   /* steps handed over and not applied that have rows of it */
    int32_t n_chunk;    /* rows in the step being planned, without drafts */
    int32_t n_again;    /* of the tokens not fed, those that were drafted and kept: a recurrent state has to pass them once more */
    int32_t n_scored;   /* rows of the prompt before it have given what was wanted of them, see score_from */
    int32_t n_preempted;
    struct {                /* tokens guessed to follow ids */
        int32_t *ids, n;    /* ids: room for the larger of params.n_draft and n_jump; n: in the step planned, or in flight */
        int32_t by_grammar; /* 1: no guess, but what the grammar demands */
        int32_t n_sure;     /* the first so many must come */
        float chance;       /* that such a token is right */
        int32_t n_computed; /* tokens whose keys and values of the draft model are in pages */
    } draft;
    struct { /* where its keys and values lie */
        int32_t *id, n;
        int32_t n_published; /* the first so many are known to the prefix cache */
        llm__kv_key key;     /* of the last of them */
        uint64_t blocked;    /* kv.released + 1 when it last found no pages */
    } pages;
    struct {              /* where they are while it waits, if they were swapped */
        int32_t *slot, n; /* host slots of its first pages */
        int32_t n_tokens; /* computed there */
    } swap;
    uint64_t seed;
    int32_t early_count;
    struct { /* thoughts that have a bound; see thoughts.h */
        int32_t state, n, closing;
    } think;
    llm__history history;
    llm_matcher *matcher; /* of the request's grammar; NULL: none */
    struct {              /* what has come out; all that pollers read, under the request's lock */
        llm_detok *detok;
        llm_text text;
        size_t *shown;          /* (max_new) bytes of text that may be shown after each token */
        int32_t *stop_state;    /* (n_stop) */
        float *logprobs;        /* (max_new) or NULL */
        llm_token_logprob *top; /* (max_new, top_stride) or NULL */
        int32_t *top_counts;    /* (max_new) */
        double cum_logprob;
        llm_finish finish;
        const char *stop_reason;
        int32_t stop_id;
        const char *lost; /* why the answer cannot be what it should be; NULL: it can */
    } output;
    struct { /* how much of that was polled */
        int32_t n_tokens, end;
        size_t text_len;
    } polled;
    struct { /* beam search only */
        llm__beam_role role;
        struct llm__seq *parent; /* of a child */
        llm_token_logprob *next; /* (2 width) likeliest next tokens, log-probability after the rules */
        float *next_raw;         /* (2 width) their raw log-probabilities */
        int32_t n_next;          /* 0: not computed yet */
        double score;            /* of an answer among those of its request, when it has ended */
    } beam;
} llm__seq;

/* A picture of a request, and its place among those that the engine knows. */
typedef struct llm__picture_use {
    struct llm_media *media;
    int32_t place;
} llm__picture_use;

/* Tokens [at, at + n) of a prompt stand for rows [first, first + n) of a picture. */
typedef struct llm__sight_run {
    int32_t at, n, media, first;
} llm__sight_run;

/* One prompt and its answers. Written by the caller's thread until it is in the inbox, then by the stepping thread; what
 * is marked atomic, and what lies under `mutex`, others read. */
struct llm_request {
    llm_engine *engine;
    llm_request *prev, *next; /* all that are not done */
    llm_request *news_next;
    llm_request *inbox_next;
    int in_news, told, fresh;   /* told: its end; fresh: counts against max_queue */
    int64_t bytes;              /* that it takes while it waits */
    int refs, cancelled, freed; /* atomic */
    int32_t n_flight;           /* of its sequences together */
    llm_sampling sampling;      /* resolved; points into the arena */
    llm__arena arena;
    llm__stop *stop;      /* (sampling.n_stop) */
    llm__badwords bad;    /* n 0: none */
    const uint32_t *only; /* allowed_token_ids as bits; NULL: all */
    int32_t priority, score_only;
    uint64_t arrival;
    double received, submitted, started, deadline; /* by the driver's clock; between the first two it was prepared; deadline 0: none */
    llm__kv_key root;
    struct { /* see llm__driver.rope_of */
        int32_t variant;
        float base;
    } rope;
    int32_t lora;      /* slot of its adapter, which it holds; -1: none */
    llm__seq *seq;     /* (n_seqs) */
    llm__seq **answer; /* (n_seqs) the same in the order of the answers, when all have ended */
    int32_t n_seqs, n_done;
    int32_t top_stride;
    struct {                           /* what is wanted of the prompt's tokens */
        int32_t score_from, score_end; /* rows whose results are wanted one by one: to score the next token, or to pool */
        int32_t top_stride;
        float *logprobs;        /* (n_prompt) or NULL */
        int32_t *ranks;         /* (n_prompt) */
        llm_token_logprob *top; /* (n_prompt, top_stride) */
        int32_t *top_counts;    /* (n_prompt) */
    } prompt;
    struct {                   /* its pictures, and where their tokens stand */
        llm__picture_use *use; /* (n) */
        llm__sight_run *run;   /* (n_runs) */
        int32_t n, n_runs;
        int32_t *places, n_places,
            next_place; /* (3, n_places) of the prompt's tokens in time, height and width, and of the first behind them */
    } sight;
    struct {              /* of an embedding */
        llm_pooling kind; /* LAST, MEAN or FIRST */
        int32_t scores;   /* 1: a classifier's values are wanted */
        int32_t size;     /* of what it has become; 0: not yet */
        double *sum;      /* (hidden) so far, or NULL */
        float *embedding; /* (2, as wide as the widest that stands behind the model) behind it */
        uint16_t *types;  /* (n_prompt) kinds of tokens; NULL: 0 */
    } pooling;
    llm_request_metrics metrics;
    char *id;
    char error[256];
    void (*on_news)(void *user, llm_request *request);
    void *user;
    pthread_mutex_t mutex; /* outputs, against pollers */
    llm_text piece;        /* text of the event polled last */
};

enum { LLM__PICTURES = 4096 };

/* A picture that the engine knows: see >>sight. */
typedef struct llm__known {
    struct llm_media *media; /* NULL: a free place */
    size_t bytes;
    int32_t users; /* requests */
    uint64_t used; /* when a request has brought it last: counts those */
} llm__known;

typedef struct llm__sight {
    struct llm__vision *vision; /* NULL: the model does not see */
    struct llm__tower *tower;
    struct llm_media *at_work; /* in the tower */
    int32_t given_cols, position_rows, both_ways;
    /* Under the engine's mutex. */
    llm__known known[LLM__PICTURES];
    size_t bytes, most;
    uint64_t n_uses;
    int64_t n_queries, n_hits;
} llm__sight;

typedef struct llm__entry { /* a sequence in a step */
    llm__seq *seq;
    int32_t end;     /* tokens computed after it */
    int32_t out_row; /* of its last row; -1: not wanted */
} llm__entry;

typedef struct llm__job { /* one row of logits to be used */
    llm__seq *seq;
    int32_t out_row;
    int32_t scored; /* the prompt position whose token is to be scored; -1: choose the next token */
    int32_t drawn;  /* the device has chosen it */
    int32_t n_kept; /* drafted tokens that were chosen; out_row has moved on as far */
    llm__choice choice;
} llm__job;

typedef struct llm__flight { /* a step: planned, then in flight until it is applied */
    llm__entry *entry;       /* (max_seqs) */
    llm__job *jobs;          /* (max_out + max_seqs) */
    int32_t n, n_rows, n_out, n_jobs;
    int32_t n_prompt_rows;
    int32_t pools;         /* a job reads hidden states */
    double begin, seconds; /* seconds: that it was worked on; where the device works by itself, that it took */
    double longest;        /* of these in one piece */
    int dropped;           /* nobody wanted it any more before it was computed */
} llm__flight;

enum { LLM__LORA_ASIDE = 256 }; /* names that are kept of adapters that had to make room */

/* A slot for an adapter; behind the slots, adapters that were set aside. All under the engine's mutex. */
typedef struct llm__lora {
    char *name, *path;            /* name: by which it is found, or is to be found when it is loaded; NULL: by none */
    int32_t refs;                 /* requests that use it, and one while it can be found, is loaded or emptied; 0: the slot is free */
    int32_t listed;               /* it can be found */
    uint64_t used;                /* when a request has named it last: counts those */
    uint64_t id;                  /* counts loadings: the order, and part of keys of the prefix cache */
    uint64_t content;             /* hash of its files */
    int32_t n_running, n_waiting; /* sequences with it, after the latest step */
} llm__lora;

/* A model that guesses for another one: see >>draft. */
typedef struct llm__drafter {
    llm_model *model; /* opened by the engine */
    llm__net *net;    /* NULL: none */
    int32_t eagle;    /* 1: it guesses from the model's hidden states: see >>eagle */
    int32_t *words;   /* (arch.outputs) tokens that its logits are of; NULL: those of the model */
    float *spread;    /* (n_threads, vocab) logits of all tokens, of these */
    int32_t max_len;  /* tokens that it can read */
    llm__job *job;    /* (max_seqs) tokens to be chosen in a pass */
    int32_t n_jobs;
    double seconds; /* that a pass of one row a sequence takes, of late */
} llm__drafter;

/* A scheduler, and what it computes with. net is there only in an engine that llm_engine_open has made. */
struct llm_engine {
    llm__engine_params p;
    const llm_backend *backend;
    llm_backend_ctx *ctx;
    llm__net *net;
    llm__drafter drafter;
    llm__sight sight;
    llm__arena arena;   /* all arrays */
    int64_t page_bytes; /* of one rank */
    int32_t n_ranks;
    int32_t max_pages;   /* of one sequence */
    llm_kv_type kv_type; /* of the pages; on a device AUTO stays: its backend knows */
    char describe[192];
    llm__scratch *scratch; /* (n_workers) */

    /* Scheduling: all of the stepping thread. */
    llm__kv kv;
    llm_request *live; /* requests that are not done */
    llm_request *news; /* those whose callers are told at the end of the step */
    struct {
        llm__seq *first, *last;
        int32_t n;
    } waiting;
    struct {
        llm__seq **seq; /* (max_seqs) in order */
        int32_t n;
    } running;
    struct {             /* host memory for pages of sequences that gave way */
        uint8_t *memory; /* (n_swap, ranks, page bytes) */
        int32_t *free;   /* stack of slots */
        int32_t n_free;
    } swap;
    llm_engine_stats count;
    double now;              /* when this step began */
    double next_deadline;    /* 0: none */
    double prompt_seconds;   /* what the last step with rows of a prompt took */
    int32_t since_admission; /* steps */
    llm__pace pace;          /* what rows cost */
    struct {                 /* see llm_engine_step_for */
        double seconds;      /* that the caller gives each call; 0: it does not say */
        double row, piece;   /* what a row of a step with prompts took of late; of that in one piece */
        int32_t rows;        /* of the step being planned, at most */
    } budget;
    llm__seq **drafting; /* (max_seqs) sequences that get a draft in the step being planned */
    struct {
        llm__flight ring[LLM_FLIGHT_MAX]; /* (size) in flight from `oldest` on, the one behind them is planned */
        int32_t size, oldest, n;
        llm__flight *applied; /* whose jobs are run */
        int next_job;         /* of these; atomic */
    } flights;
    struct {                                       /* the arrays that an llm_step points to */
        int32_t *tokens, *seq_of_row, *token_from; /* (max_rows) */
        int32_t *positions, *spans, *row_set;      /* (3, max_rows), (2, max_rows), (max_rows) */
        const float **given;                       /* (max_rows) */
        int any_given, any_spans;
        int32_t *seq_begin, *seq_len, *seq_rope; /* (max_seqs + 1) */
        float *seq_rope_base;                    /* (max_seqs) */
        int32_t *pages;                          /* (max_seqs, max_pages) */
        int32_t *out_rows;                       /* (max_out) */
        llm_draw *draws;                         /* (max_out) */
        uint32_t *masks;                         /* (max_out, (vocab + 31) / 32) of draws */
        int32_t *seq_lora, *seq_keep;            /* (max_seqs) */
        int32_t *raw_prompt, *raw_len;           /* (max_seqs) lengths of the prompts that llm_forward was given, and of all that it was */
    } step;

    /* Shared with other threads, under `mutex`. */
    pthread_mutex_t mutex;
    struct { /* requests that were submitted since the last step */
        llm_request *first, *last;
        int32_t n_fresh;        /* requests that have not begun, for max_queue, */
        int64_t bytes;          /* and what they take */
        int32_t n_live;         /* answers that have not ended, where none may wait */
        uint64_t n_arrived;     /* so far: the order of arrival */
        int some_cancelled;     /* since the inbox was taken last */
        pthread_cond_t arrived; /* something came in */
    } inbox;
    struct {
        llm__lora *slot; /* (n_loras + LLM__LORA_ASIDE) */
        uint64_t n_loaded, n_uses;
        int32_t own;             /* slot of the adapter of requests that name none; -1: none */
        pthread_mutex_t reading; /* held while one that was set aside is read again */
    } adapters;
    struct {                /* threads that want the scheduler's own lists between two steps: see llm__turn_take */
        uint64_t next, now; /* numbers: the next to be drawn, and whose turn it is */
        pthread_cond_t changed;
    } turn;
    pthread_mutex_t keeping;    /* held while a context goes to a file of a folder with a quota */
    llm_engine_stats stats;     /* a copy of count, made after each step */
    pthread_mutex_t news_mutex; /* recursive: held while callbacks run */
};

/* How often a sequence gives way to others: enough for the latest to make room, not so often that it starves. Then it takes so many pages
 * ahead, and gives way only where it finds none for itself. */
enum { LLM__PREEMPT_MAX = 3, LLM__PAGES_AHEAD = 8 };

/* Into the waiting list, from its end: the latest to arrive stands there, so the usual case takes one comparison. */
LLM__PRIVATE void llm__queue_put(llm_engine *e, llm__seq *s);

/* Out of the waiting list. */
LLM__PRIVATE void llm__queue_take(llm_engine *e, llm__seq *s);

/* Among those that run, at its place in order. The caller has seen that there is a place. */
LLM__PRIVATE void llm__running_put(llm_engine *e, llm__seq *s);

/* Out of those that run; it is in no list and HELD then. */
LLM__PRIVATE void llm__running_take(llm_engine *e, llm__seq *s);

/* Puts the request on the list of those whose callers are told at the end of the step, once a step whatever happened. */
LLM__PRIVATE void llm__note_news(llm_engine *e, llm_request *r);

/* 1 if a comes before b: in the queue, and among those that run, where the last give way first. A request keeps its
 * arrival when it is preempted, so it comes back before all that arrived later. */
LLM__PRIVATE int llm__seq_before(const llm__seq *a, const llm__seq *b);
