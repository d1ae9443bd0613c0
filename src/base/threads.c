/* ============================================================================
 * >>threads   A pool that spins between short jobs and sleeps between long pauses.
 * ============================================================================
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

/* A lock that is held until the end of the block: LLM__LOCKED(&x->mutex). It is no part of what is const in x. */
static pthread_mutex_t *llm__lock(const pthread_mutex_t *mutex) {
    pthread_mutex_lock((pthread_mutex_t *)(uintptr_t)mutex);
    return (pthread_mutex_t *)(uintptr_t)mutex;
}
static void llm__unlock(pthread_mutex_t **mutex) { pthread_mutex_unlock(*mutex); }
#define LLM__LOCKED(mutex) LLM__SCOPED(llm__unlock) LLM__UNUSED pthread_mutex_t *llm__held = llm__lock(mutex)

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

/* Tells the core that this loop only waits: it saves power, and a sibling hyperthread gets its share. */
LLM__INLINE void llm__relax(void) {
#if LLM__X86
    _mm_pause();
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
    while (__atomic_load_n(at, __ATOMIC_SEQ_CST) == old) syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    __atomic_sub_fetch(&p->sleepers, 1, __ATOMIC_SEQ_CST);
}

/* Moves a counter on and wakes who sleeps on it. Store, then look for sleepers; they say so, then look at the counter: one sees the other. */
static void llm__pool_move(llm__pool *p, int *at, int to) {
    __atomic_store_n(at, to, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&p->sleepers, __ATOMIC_SEQ_CST)) syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
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

/* Runs fn on all parts of n_passes passes; returns when all are done. One caller at a time. */
LLM__UNUSED static void llm__pool_run(llm__pool *p, llm__pool_fn fn, void *arg, int n_passes) {
    for (int i = 0; p->n == 1 && i < n_passes; i++) fn(arg, i, 0, 1);
    if (p->n == 1 || n_passes < 1) return;
    p->fn = fn;
    p->arg = arg;
    p->first = (int)((unsigned)p->end + 1);
    llm__pool_move(p, &p->end, (int)((unsigned)p->end + (unsigned)n_passes));
    llm__pool_work(p, 0);
}

/* Ends the workers and frees the pool. NULL is fine. */
LLM__UNUSED static void llm__pool_close(llm__pool *p) {
    if (!p) return;
    __atomic_store_n(&p->stop, 1, __ATOMIC_RELAXED);
    llm__pool_move(p, &p->end, (int)((unsigned)p->end + 1));
    for (int i = 1; i < p->n; i++) pthread_join(p->worker[i].thread, NULL);
    LLM_FREE(p->memory);
}

/* Cores this process may use: what taskset or a container left it, not what the machine has. */
LLM__UNUSED static int llm__cores(void) {
#ifdef CPU_COUNT
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return LLM__MAX(1, CPU_COUNT(&set));
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

/* A pool of n >= 1 threads, the caller's among them; fewer where the system refuses more. NULL: no memory. */
LLM__UNUSED static llm__pool *llm__pool_open(int n) {
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

