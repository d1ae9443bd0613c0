/* The pool of >>threads: every part of every pass once, no pass before the one before is done, and nobody waits for a thread that is away. */
#include "../test.h"
#include "base/alloc.h"
#include "base/threads.h"

enum { THREADS_PASSES = 300, THREADS_MOST = 8 };

typedef struct threads_job {
    int count[THREADS_PASSES][THREADS_MOST]; /* how often each part ran */
    int early;                               /* parts that ran before all of the pass before had */
    int sum;                                 /* written in even passes by part 0, read in odd ones by all */
} threads_job;

static void threads_part(void *arg, int pass, int part, int n_parts) {
    threads_job *j = (threads_job *)arg;
    int early = 0;
    for (int i = 0; i < n_parts && pass > 0; i++) early |= j->count[pass - 1][i] != 1;
    if (pass % 2 == 0 && part == 0) j->sum = pass;
    if (pass % 2) early |= j->sum != pass - 1;
    if (early) __atomic_store_n(&j->early, 1, __ATOMIC_RELAXED);
    if (part == pass % 5 && pass % 37 == 0) sched_yield();
    j->count[pass][part]++;
}

/* A job of the first n passes; 1 when all went well. */
static int threads_run(llm__pool *p, int n) {
    static threads_job j;
    int ok = 1;
    memset(&j, 0, sizeof j);
    llm__pool_run(p, threads_part, &j, n);
    for (int i = 0; i < THREADS_PASSES; i++)
        for (int k = 0; k < THREADS_MOST; k++) ok &= j.count[i][k] == (i < n && k < p->n);
    return ok && !j.early;
}

/* More threads than cores too, so that parts are taken over; pauses in between, so that workers sleep; numbers that wrap around. */
static void threads_many(int n, int from) {
    const struct timespec pause = {0, 2000000};
    int ok = 1, jobs = TEST_BRIEF ? 10 : 60;
    llm__pool *p = llm__pool_open(n);
    if (!CHECK(p != NULL)) return;
    if (!CHECK(threads_run(p, 1))) printf("  %d threads\n", n);
    if (n == 1) { /* no workers whose numbers could be set */
        CHECK(threads_run(p, 3) && threads_run(p, 0));
    } else if (from) {
        while (__atomic_load_n(&p->sleepers, __ATOMIC_SEQ_CST) < n - 1) nanosleep(&pause, NULL);
        __atomic_store_n(&p->done, from, __ATOMIC_RELAXED);
        for (int i = 0; i < n; i++) p->worker[i].begun = from;
        llm__pool_move(p, &p->end, from); /* they wake, and wait for this number to move */
    }
    for (int i = 0; i < jobs; i++) {
        if (i % 20 == 7) nanosleep(&pause, NULL);
        ok &= threads_run(p, i % 3 ? i % 7 : THREADS_PASSES);
    }
    if (!CHECK(ok)) printf("  %d threads from pass %d\n", n, from);
    llm__pool_close(p);
}

/* A pool whose only worker has ended: the caller does its parts. Then one that is closed before its workers had anything to do. */
static void threads_away(void) {
    llm__pool *p = llm__pool_open(2);
    if (!CHECK(p && p->n == 2)) return;
    p->stop = 1;
    llm__pool_move(p, &p->end, 1);
    pthread_join(p->worker[1].thread, NULL);
    p->stop = p->end = 0;
    CHECK(threads_run(p, THREADS_PASSES));
    CHECK(p->away == 1 && p->worker[1].away == 1);
    LLM_FREE(p->memory);
    for (int i = 0; i < 20; i++) llm__pool_close(llm__pool_open(4));
    llm__pool_close(NULL);
}

TEST_GROUP(threads) {
    for (int n = 1; n <= THREADS_MOST; n++) threads_many(n, 0);
    threads_many(3, INT32_MAX - 100);
    threads_away();
}
