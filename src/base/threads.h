/* threads: a pool that spins between short jobs and sleeps between long pauses.
 *
 * run() hands a job to all threads (the caller is number 0) and returns when it is done. A job is a row of passes; each is cut into as many
 * parts as there are threads, and begins when all parts of the one before are done. A step of a small model has hundreds of passes of a few
 * microseconds, so who waits spins: a core that sleeps takes longer to wake than a pass takes.
 *
 * Part i of a pass is meant for thread i, whose caches know what it works on, but it is not bound to it. Where another program computes on
 * the core of a thread, the system takes that thread away for milliseconds, hundreds of passes; all others would wait for it. So whoever
 * has waited a few microseconds does the parts that nobody has begun, and from then on does so at once: the others go on without the one
 * that is away, until it takes a part again, in the pass where it finds them. Only a part that was begun must be waited for; who waits long
 * for one sleeps, and so leaves its core to whoever is wanted. What a part computes depends on its number alone, not on the thread.
 *
 * Passes are numbered through all jobs. `done` is the last pass that is done, `end` the last of the job: pass done + 1 is the one to work
 * on if they differ. `begun` of a part is the last pass in which somebody took it: taking is moving it up to the pass by compare-and-swap,
 * so one succeeds, and one who comes late, with the number of a pass that is over, finds a higher number there and takes nothing. Whoever
 * finishes the last of n parts moves `done` on; it is a release, and reading it an acquire: what was written in a pass is seen by all in
 * the next. What belongs to the job (fn, arg, first) is read by those who hold a part, and no job ends before its parts. Each counter has a
 * cache line of its own, or spinning on one would slow down the writers of the other. Numbers may wrap around.
 *
 * A pool belongs to one engine and has one caller at a time: whoever steps the engine. */
#pragma once
#include "base/platform.h"

/* A lock that is held until the end of the block: LLM__LOCKED(&x->mutex). It is no part of what is const in x. */
LLM__PRIVATE pthread_mutex_t *llm__lock(const pthread_mutex_t *mutex);
LLM__PRIVATE void llm__unlock(pthread_mutex_t **mutex);
#define LLM__LOCKED(mutex) LLM__SCOPED(llm__unlock) LLM__UNUSED pthread_mutex_t *llm__held = llm__lock(mutex)

/* A condition variable whose timed waits go by the clock that never jumps, and the point in time at which one of so many seconds ends
 * (up to a million). */
LLM__PRIVATE void llm__timed_open(pthread_cond_t *cond);
LLM__PRIVATE struct timespec llm__timed_end(double seconds);

typedef struct llm__pool llm__pool;
typedef void (*llm__pool_fn)(void *arg, int pass, int part, int n_parts);

typedef struct llm__pool_worker {
    int begun; /* the last pass in which this part was taken */
    int away;  /* it was taken by another thread */
    int id;
    llm__pool *pool;
    pthread_t thread;
} __attribute__((aligned(64))) llm__pool_worker;

struct llm__pool {
    int n;        /* threads, the caller's included */
    void *memory; /* what was allocated: the struct stands in it, aligned, and the workers behind it */
    llm__pool_worker *worker;
    llm__pool_fn fn;
    void *arg;
    int first; /* the job's first pass */
    int stop;
    int away; /* how many threads are */
    int end __attribute__((aligned(64)));
    int finished __attribute__((aligned(64))); /* parts of the pass */
    int done __attribute__((aligned(64)));
    int sleepers __attribute__((aligned(64)));
};

/* Runs fn on all parts of n_passes passes; returns when all are done. One caller at a time. */
LLM__PRIVATE void llm__pool_run(llm__pool *p, llm__pool_fn fn, void *arg, int n_passes);

/* Ends the workers and frees the pool. NULL is fine. */
LLM__PRIVATE void llm__pool_close(llm__pool *p);

/* A pool of n >= 1 threads, the caller's among them; fewer where the system refuses more. NULL: no memory. */
LLM__PRIVATE llm__pool *llm__pool_open(int n);

/* Moves a counter on and wakes who sleeps on it. Store, then look for sleepers; they say so, then look at the counter: one sees the
 * other. */
LLM__PRIVATE void llm__pool_move(llm__pool *p, int *at, int to);
