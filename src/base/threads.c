#include "base/threads.h"
#include "base/platform.h"
#include "base/alloc.h"

LLM__PRIVATE pthread_mutex_t *llm__lock(const pthread_mutex_t *mutex) {
    pthread_mutex_lock((pthread_mutex_t *)(uintptr_t)mutex);
    return (pthread_mutex_t *)(uintptr_t)mutex;
}
LLM__PRIVATE void llm__unlock(pthread_mutex_t **mutex) { pthread_mutex_unlock(*mutex); }

LLM__PRIVATE void llm__timed_open(pthread_cond_t *cond) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &clock);
    pthread_condattr_destroy(&clock);
}

/* The time is added up by hand, for pthreads want a point in time. */
LLM__PRIVATE struct timespec llm__timed_end(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double s = LLM__MIN(LLM__MAX(seconds, 0.0), 1e6), whole = floor(s);
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((s - whole) * 1e9);
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

/* Linux's futex (futex(2)): sleeps while *at is `old`; wakes all who sleep on it. The header with these two numbers is the kernel's. */
enum { LLM__FUTEX_WAIT = 128, LLM__FUTEX_WAKE = 129 }; /* for threads of one process */
static void llm__sleep_while(int *at, int old) { syscall(SYS_futex, at, LLM__FUTEX_WAIT, old, NULL, NULL, 0); }
static void llm__wake_all(int *at) { syscall(SYS_futex, at, LLM__FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

/* Tells the core that this loop only waits: it saves power, and a sibling hyperthread gets its share. */
LLM__INLINE void llm__relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins until *at is no longer `old`, about so many seconds at most (0: some dozens of turns). A turn: 10 to 150 cycles. 1: it changed. */
static int llm__spin_while(const int *at, int old, double seconds) {
    double until = 0;
    for (int i = 1;; i++) {
        if (__atomic_load_n(at, __ATOMIC_ACQUIRE) != old) return 1;
        llm__relax();
        if (i % 64) continue;
        double now = llm__now();
        if (until == 0) until = now + seconds;
        if (now >= until) return 0;
    }
}

/* Spins, then sleeps until *at is no longer `old`. */
static void llm__pool_wait(llm__pool *p, int *at, int old, double seconds) {
    if (llm__spin_while(at, old, seconds)) return;
    __atomic_add_fetch(&p->sleepers, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(at, __ATOMIC_SEQ_CST) == old) llm__sleep_while(at, old);
    __atomic_sub_fetch(&p->sleepers, 1, __ATOMIC_SEQ_CST);
}

LLM__PRIVATE void llm__pool_move(llm__pool *p, int *at, int to) {
    __atomic_store_n(at, to, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&p->sleepers, __ATOMIC_SEQ_CST)) llm__wake_all(at);
}

/* Thread `me` does a part of this pass, unless somebody has taken it. 1: done. */
static int llm__pool_take(llm__pool *p, int me, int part, int pass) {
    llm__pool_worker *w = &p->worker[part];
    int old = __atomic_load_n(&w->begun, __ATOMIC_RELAXED), away = me != part;
    if ((int)((unsigned)pass - (unsigned)old) <= 0 ||
        !__atomic_compare_exchange_n(&w->begun, &old, pass, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return 0;
    if (w->away != away) { /* whoever holds the part may write this */
        w->away = away;
        __atomic_add_fetch(&p->away, away ? 1 : -1, __ATOMIC_RELAXED);
    }
    p->fn(p->arg, (int)((unsigned)pass - (unsigned)p->first), part, p->n);
    if (__atomic_add_fetch(&p->finished, 1, __ATOMIC_ACQ_REL) == p->n) {
        __atomic_store_n(&p->finished, 0, __ATOMIC_RELAXED);
        llm__pool_move(p, &p->done, pass);
    }
    return 1;
}

/* Works on the job, if there is one, until it is done. */
static void llm__pool_work(llm__pool *p, int me) {
    for (;;) {
        const int done = __atomic_load_n(&p->done, __ATOMIC_ACQUIRE), pass = (int)((unsigned)done + 1);
        int took = 0;
        if (done == __atomic_load_n(&p->end, __ATOMIC_ACQUIRE) || __atomic_load_n(&p->stop, __ATOMIC_RELAXED)) return;
        if (llm__pool_take(p, me, me, pass)) continue;
        if (!__atomic_load_n(&p->away, __ATOMIC_RELAXED) && llm__spin_while(&p->done, done, 2e-6)) continue;
        for (int i = 1; i < p->n && !took; i++) took = llm__pool_take(p, me, (me + i) % p->n, pass);
        if (!took) llm__pool_wait(p, &p->done, done, 100e-6);
    }
}

/* A worker: waits for the end to move (spinning, then asleep), works. `stop` ends it. It spins for about as long as the next step takes to
 * be prepared, but not where cores are short: there it would keep somebody from preparing it. */
static void *llm__pool_main(void *arg) {
    llm__pool_worker *w = (llm__pool_worker *)arg;
    llm__pool *p = w->pool;
    for (;;) {
        llm__pool_work(p, w->id);
        int done = __atomic_load_n(&p->done, __ATOMIC_ACQUIRE);
        llm__pool_wait(p, &p->end, done, __atomic_load_n(&p->away, __ATOMIC_RELAXED) ? 100e-6 : 1e-3);
        if (__atomic_load_n(&p->stop, __ATOMIC_RELAXED)) return NULL;
    }
}

LLM__PRIVATE void llm__pool_run(llm__pool *p, llm__pool_fn fn, void *arg, int n_passes) {
    for (int i = 0; p->n == 1 && i < n_passes; i++) fn(arg, i, 0, 1);
    if (p->n == 1 || n_passes < 1) return;
    p->fn = fn;
    p->arg = arg;
    p->first = (int)((unsigned)p->end + 1);
    llm__pool_move(p, &p->end, (int)((unsigned)p->end + (unsigned)n_passes));
    llm__pool_work(p, 0);
}

LLM__PRIVATE void llm__pool_close(llm__pool *p) {
    if (!p) return;
    __atomic_store_n(&p->stop, 1, __ATOMIC_RELAXED);
    llm__pool_move(p, &p->end, (int)((unsigned)p->end + 1));
    for (int i = 1; i < p->n; i++) pthread_join(p->worker[i].thread, NULL);
    LLM_FREE(p->memory);
}

LLM__PRIVATE llm__pool *llm__pool_open(int n) {
    void *memory = llm__calloc(1, sizeof(llm__pool) + (size_t)n * sizeof(llm__pool_worker) + 64);
    if (!memory) return NULL;
    llm__pool *p = (llm__pool *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    p->memory = memory;
    p->worker = (llm__pool_worker *)(void *)(p + 1);
    p->n = n; /* workers read it only after the first job */
    for (int i = 1; i < n; i++) {
        p->worker[i].pool = p;
        p->worker[i].id = i;
        if (pthread_create(&p->worker[i].thread, NULL, llm__pool_main, &p->worker[i])) p->n = n = i;
    }
    return p;
}
