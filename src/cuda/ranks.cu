/* ranks: several devices: a thread each, and NCCL between them.
 *
 * A list is launched by its rank's own thread, so that ranks meet in collectives whatever order the host would have launched them in. With
 * one rank the calling thread does it. Each rank has all layers of its stage, of each some heads, some columns of the MLP and some of the
 * vocabulary (Megatron-LM, Shoeybi et al. 2019): so a layer has two sums over ranks, behind attention and behind the MLP, which are taken
 * where the residual reads them. Logits stay cut until somebody draws (all-gather) or the host copies them, share by share.
 *
 *     rows of a step      the sum                                        costs
 *     1 ... 16            in kernel_residual, over peer memory           a write, a flag, a read: some microseconds
 *     17 ..., no peers    ncclAllReduce in front of kernel_residual      a launch and a ring, but each byte goes fewer ways
 *
 * A pipeline has stages of such groups. Rank i of one sends x to rank i of the next (ncclSend). What the last has drawn goes to the first
 * rank of all, for the host that plans: by a communicator and a stream of its own, for the first stage has the next step to compute
 * meanwhile. As many steps as there are stages may be under way (see >>scheduler of llm.h), so no stage waits for another but at the ends:
 *
 *     rank 0    step 1 | step 2             | step 3
 *       back           .. tokens of step 1 .| .. tokens of step 2 .
 *     rank 1           | step 1             | step 2
 *
 * NCCL's few functions that are used are looked up by name, and only with more than one rank.
 *
 * Ranks may be in several processes (llm_backend_config.n_processes): n_ranks counts those that are here, n_world all. A communicator is
 * made of an id that process 0 hands around; a stage that is in more than one process has no peer memory, and all its sums are NCCL's.
 *
 * Why two boxes are enough: rank a writes box 1 of turn 3 only after it has seen everybody's flag of turn 2, and each of them raised that
 * one behind its reading of box 1 of turn 1. Ranks on one device (LLM_CUDA_ONE_DEVICE) do the same; their grids are small enough to be
 * there together, which waiting for each other takes.
 *
 * A rank that does not come leaves the others waiting inside NCCL, or for a flag, on the device or in the call that launches. end_step and
 * wait find that out by time, say so, abort the communicators and set the word that those look at who wait for flags: so everybody goes on.
 * close asks for ten seconds at most; what has not come back by then, a thread or a device, keeps its memory until the process ends. */

/* A rank's thread: runs the job of each round. */
static void *rank_thread(void *arg) {
    rank *r = (rank *)arg;
    llm_backend_ctx *ctx = r->ctx;
    unsigned seen = 0;
    select_device(r);
    pthread_mutex_lock(&ctx->mutex);
    for (;;) {
        while (ctx->round == seen && !ctx->stop) pthread_cond_wait(&ctx->go, &ctx->mutex);
        if (ctx->stop) break;
        seen = ctx->round;
        void (*job)(rank *) = ctx->job;
        pthread_mutex_unlock(&ctx->mutex);
        job(r);
        pthread_mutex_lock(&ctx->mutex);
        r->busy = 0;
        if (--ctx->running == 0) pthread_cond_signal(&ctx->idle);
    }
    if (--ctx->alive == 0) pthread_cond_signal(&ctx->idle);
    pthread_mutex_unlock(&ctx->mutex);
    return NULL;
}

/* For the time that a step may take; the monotonic clock. */
static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double step_limit(const llm_backend_ctx *ctx) { return ctx->cfg.step_timeout > 0 ? ctx->cfg.step_timeout : 300; }

/* 1: another process has gone, which nobody knew: the context's mistake from now on. */
static int world_lost(llm_backend_ctx *ctx) {
    if (ctx->failed || !ctx->cfg.lost || !ctx->cfg.lost(ctx->cfg.nodes)) return 0;
    return ctx_fail(ctx, LLM_ERR_BACKEND, "cuda backend: a rank was lost"), 1;
}

/* Under ctx->mutex: waits until *count is 0, or for some seconds; 0: it is not. */
static int idle_wait(llm_backend_ctx *ctx, const int *count, double most) {
    double until = seconds() + most;
    while (*count && seconds() < until && !world_lost(ctx)) {
        double next = ctx->cfg.lost ? fmin(until, seconds() + 0.2) : until;
        const struct timespec at = {(time_t)next, (long)((next - floor(next)) * 1e9)};
        pthread_cond_timedwait(&ctx->idle, &ctx->mutex, &at);
    }
    return *count == 0;
}

/* Lets everybody go who waits for another rank. Communicators are freed by it, too: who comes later sees that they are gone. */
static void abort_ranks(llm_backend_ctx *ctx) {
    if (ctx->stop_waiting) __atomic_store_n(ctx->stop_waiting, 1, __ATOMIC_RELEASE);
    if (__atomic_exchange_n(&ctx->aborted, 1, __ATOMIC_ACQ_REL)) return;
    for (int i = 0; i < ctx->n_ranks; i++) {
        for (void *comm : ctx->ranks[i].comms)
            if (comm) nccl.abort(comm);
    }
}

/* Runs a job once a rank; returns when all have, or when the time of a step is over: a rank may stay in a launch, a capture or NCCL's first
 * connection, while it waits for one that does not come. Then the context has failed, the others are let go, and that rank is not looked at
 * again. `round` counts jobs, so that a thread that comes late does not miss one or run one twice. */
static void run_ranks(llm_backend_ctx *ctx, void (*job)(rank *r)) {
    if (ctx->n_world == 1) {
        select_device(&ctx->ranks[0]);
        job(&ctx->ranks[0]);
    } else {
        pthread_mutex_lock(&ctx->mutex);
        ctx->job = job;
        ctx->running = ctx->n_ranks;
        ctx->round++;
        for (int i = 0; i < ctx->n_ranks; i++) ctx->ranks[i].busy = 1;
        pthread_cond_broadcast(&ctx->go);
        int all = idle_wait(ctx, &ctx->running, step_limit(ctx));
        for (int i = 0; i < ctx->n_ranks && !all; i++) {
            const rank *r = &ctx->ranks[i];
            char text[200];
            snprintf(text, sizeof text, "cuda device %d: a step was not launched in %.3g s: a rank does not answer", r->device,
                     step_limit(ctx));
            if (r->busy) ctx_fail(ctx, LLM_ERR_BACKEND, text);
        }
        pthread_mutex_unlock(&ctx->mutex);
        if (!all) return abort_ranks(ctx);
    }
    for (int i = 0; i < ctx->n_ranks; i++)
        if (ctx->ranks[i].failed) ctx_fail(ctx, ctx->ranks[i].failed, ctx->ranks[i].why);
}
