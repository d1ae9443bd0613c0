/* device: the open devices: memory, streams, errors.
 *
 * A context has one rank a device, and a rank one stream, on which everything happens in order. All memory is taken while opening (but for
 * adapters, see >>lora). The first thing that goes wrong is kept in the context with its sentence and told by the next call that can return
 * an error; until then later calls do nothing.
 *
 * Threads. The engine's thread records, begins and waits. With several ranks each has a thread that launches its list (>>ranks), and writes
 * its own rank only; mistakes go to rank.failed there, and from there to the context once all threads have come back.
 *
 * Memory of a rank, in the order in which it is taken: the step's block, weights, buffers, what adapters' loaders stage through, logits and
 * scratch (weights_done), and all that is left up to memory_utilization as KV pages (kv_open, as many as the engine asks for).
 *
 *     struct              lives on                     written by
 *     step_view           device (r->step)             the copy of begin_step
 *     kv_view             passed by value              run_ functions; the pages it points to by kernel_qkv and kernel_latent_absorb
 *     record              host (r->list)               the table's operations; read by run_record, never after the step
 *     graph               host, its nodes the driver   rank_graph: kernels' arguments as they were when it was captured
 *
 * The environment is asked for what only tests and tests/cuda/gpu.sh want:
 *
 *     LLM_CUDA_TIMES        events around every step; close logs how long the first device computed and how long it stood still; with the
 *                           value `records` no graphs, and events around each record: close logs the time of each kind
 *     LLM_CUDA_ONE_DEVICE   all ranks on device 0, so that one GPU can show what sums over peer memory do
 *     LLM_CUDA_TRY_NCCL     with one rank: opens NCCL all the same, and sums something
 *     LLM_CUDA_NO_CUBLAS    cuBLASLt is not opened: large products are our own
 *     LLM_CUDA_NO_PEERS     devices do not read each other's memory: all sums over ranks are NCCL's
 *     LLM_CUDA_NO_OVERLAP   each kernel starts when the one before has ended
 *     LLM_CUDA_SYNC         no graphs, and each kernel is waited for: an error names the kernel that made it
 *
 * After the start nothing is allocated by this file but what an adapter needs that is larger than the one before it in its slot; the driver
 * takes some for the nodes of a graph when a batch size comes for the first time, for which kv_memory leaves a 256th of the device. */

static constexpr int MAX_RANKS = 16, MAX_WORLD = 256, MAX_RECORDS = 8192, MAX_GRAPHS = 96, N_TIMES = 16, STEP_HEAD = 16;
static constexpr int QUERIES = 16, KEYS = 32, MAX_VALUES = 512;       /* of >>attention */
static constexpr int SPLIT = 256, MAX_SPLITS = 8192, MAX_TILES = 256; /* keys of a split; splits of a step; tiles of a row's heads */
static constexpr int ONE_SHOT_ROWS = 16;                              /* of >>ranks: rows that are summed over peer memory */

/* Twin: llm__cpu_buffer. Rows start on 16 bytes, so kernels may load vectors of four. */
struct llm_buffer {
    float *data; /* (rows, stride) on its rank's device */
    int64_t rows, cols, stride;
    int rank;
};

/* What a step tells the kernels: one block of device memory at a fixed address. Twin: llm_step. */
typedef struct step_view {
    const int32_t *head; /* n_rows, n_seqs, n_out, position rows, page stride */
    const int32_t *tokens, *positions, *seq_of_row, *seq_begin, *seq_len, *seq_rope, *seq_lora, *out_rows, *token_from, *pages;
    const float *rope_base;
    const struct draw *draws; /* (n_out) */
    const uint32_t *masks;    /* (rows with a mask, (vocab + 31) / 32) */
    const struct change *changes;
    const int32_t *given_of, *spans, *row_set; /* where head says that they are there; given_of: (n_rows) rows of given, -1: none */
    const float *given;
} step_view;

/* What a draw's rules say of one token: how often the answer has it, or a bias. */
typedef struct change {
    int32_t id, count;
    float bias;
} change;

/* llm_draw without pointers: where its mask is, -1: everything may be drawn; its first changes, of biases and of tokens used. */
typedef struct draw {
    uint64_t seed;
    int64_t position;
    int32_t wanted, top_k, mask, bias, n_bias, used, n_used;
    float temperature, top_p, min_p, repetition, presence, frequency;
} draw;

enum { HEAD_ROWS = 0, HEAD_SEQS, HEAD_OUT, HEAD_POSITIONS, HEAD_STRIDE, HEAD_TURN, HEAD_HAS, HEAD_WORK, HEAD_N_WORK };
enum { HAS_GIVEN = 1, HAS_SPANS = 2, HAS_SETS = 4 }; /* bits of head[HEAD_HAS] */

/* What a block of kernel_attention_split does next: n rows of the step, of one sequence. Of a single row one split of its keys, of
 * n_splits; with split -1 all of them, one after the other. */
typedef struct work_item {
    int32_t row, n, split, n_splits;
} work_item;

/* Where one layer lies in a page, in bytes. Keys row by row, then values, then four floats a token: scale and offset of each. */
typedef struct kv_place {
    int32_t n_kv_heads, head_dim, v_head_dim, k_elements, v_elements;
    int64_t offset, head_bytes, v_offset, scale_offset;
} kv_place;

typedef struct kv_view { /* of one layer, for kernels */
    uint8_t *base;
    kv_place place;
    int64_t page_bytes;
    int32_t page_tokens, type, scaled, element_bytes;
} kv_view;

typedef enum op_kind {
    OP_EMBED,
    OP_ROPE,
    OP_RESIDUAL,
    OP_NORM,
    OP_LINEAR,
    OP_QKV,
    OP_ATTENTION,
    OP_MLA,
    OP_ROUTE,
    OP_EXPERTS,
    OP_GATE,
    OP_GATHER,
    OP_ALL_REDUCE,
    OP_LOGITS,
    OP_LORA,
    OP_SEND,
    OP_RECEIVE,
    OP_STATE,
    OP_COUNT
} op_kind;

static const char *const op_names[OP_COUNT] = {"embed",      "rope",   "residual", "norm",    "linear",  "qkv",
                                               "attention",  "latent", "route",    "experts", "gate",    "gather",
                                               "all_reduce", "logits", "lora",     "send",    "receive", "state"};

typedef struct record {
    op_kind kind;
    int32_t done;                /* by another record: see list_fuse */
    const llm_buffer *onto;      /* of a product: what it adds to instead of its dst */
    float by;                    /* ... times this */
    const llm_residual_op *norm; /* ... and the norm that it does of its src */
    const llm_qkv_op *qkv;       /* of attention: what it does before, see list_fuse_heads */
    union {
        llm_embed_op embed;
        llm_rope_op rope;
        llm_residual_op residual;
        llm_norm_op norm;
        llm_linear_op linear;
        llm_qkv_op qkv;
        llm_attention_op attention;
        llm_mla_op mla;
        llm_route_op route;
        llm_experts_op experts;
        llm_gate_op gate;
        llm_logits_op logits;
        llm_lora_op lora;
        llm_state_op state;
        llm_gather_op gather;
        struct {
            llm_rows rows;
            llm_buffer *buf;
            int32_t n;
        } reduce;
    } op;
} record;

/* Memory through which the ranks of a stage sum up rows without NCCL: see >>ranks. n 0: there is none. Passed by value. */
typedef struct peer_view {
    int32_t n, index, rows;
    int64_t width;              /* floats of a row */
    float *box[MAX_RANKS];      /* (rows, 2, width) of every rank */
    uint32_t *flags[MAX_RANKS]; /* (rows, MAX_RANKS) of every rank */
    uint32_t *turn;             /* (rows) of this one: sums so far */
    const uint32_t *stop;       /* pinned: 1 lets everybody go who waits */
} peer_view;

/* The list of one shape on one rank. exec NULL: it has run once as it was, and is captured when it comes again. */
typedef struct graph {
    int32_t n_rows, draws, lora, program, given;
    unsigned used; /* the step that had it last */
    cudaGraphExec_t exec;
} graph;

/* Who is connected: the ranks of a stage; all; the first of all and the first of the last stage. */
enum { COMM_STAGE, COMM_PIPE, COMM_BACK, N_COMMS };

/* A device as this process uses it. The thread that runs its list owns all of it while a step is launched. */
typedef struct rank {
    struct llm_backend_ctx *ctx;
    int index, device, n_sms, max_smem, capability; /* max_smem: bytes a block may have; capability: 90 for sm_90 */
    int sync_each;                                  /* LLM_CUDA_SYNC is set */
    int overlap;                                    /* a kernel may start before the one in front of it has ended: see launch */
    cudaStream_t stream;
    cudaEvent_t done[LLM_FLIGHT_MAX], stage_free[2], from[N_TIMES], to[N_TIMES]; /* from, to: see note_times */
    cudaStream_t back;                   /* of the first rank of a pipeline: on which what the last stage has drawn comes */
    cudaEvent_t back_after;              /* the end of its part of a step */
    cudaEvent_t around[2];               /* of a record: see time_record */
    uint8_t *stage[2], *stage_device[2]; /* pinned and device memory through which weights are loaded */
    int64_t stage_bytes;
    int stage_turn, stage_used[2];
    record *list; /* (MAX_RECORDS) */
    int n;
    uint8_t *step; /* device block of the step */
    uint8_t *more; /* and of what few steps have: see more_place */
    step_view view;
    uint8_t *kv;   /* (n_pages, page_bytes) */
    float *logits; /* (max_out, vocab of this rank) */
    int64_t vocab;
    float *gathered, *flat;  /* with draws: (n_ranks, max_out, widest) and (max_out, whole vocabulary) */
    float *weights;          /* (max_out, whole vocabulary) of the sampler */
    struct draw_part *parts; /* (max_out, parts of a row) of the sampler */
    llm_drawn *drawn;        /* (max_out, 2) on the device: of steps in turn, see row_token */
    uint8_t *bent;           /* masks and changes of the step, see step_draws */
    unsigned *arrived; /* (max_seqs, MAX_TILES) splits that are there, (MAX_TILES) tickets; or pieces of bands. 0 between operations */
    uint8_t *scratch;  /* of the operation that runs */
    size_t scratch_bytes;
    void *cublas, *product; /* handle and description of x W^T; NULL: cuBLASLt is not there */
    void *workspace;
    size_t workspace_bytes;
    void *comms[N_COMMS]; /* NCCL's communicators; NULL: not needed */
    peer_view peers;
    void **memory; /* what to free */
    int n_memory, memory_cap;
    int64_t bytes;
    graph graphs[MAX_GRAPHS];
    int n_graphs;
    pthread_t thread;
    int has_thread, busy; /* busy: has a job that it has not ended; under ctx->mutex */
    llm_result failed;    /* in its own thread */
    char why[256];
} rank;

/* Twin: llm_backend_ctx of >>backend. `begun` and `waited` count steps: their difference is how many are under way, at most n_flight, and
 * their rest by that says which of the pinned blocks is meant. */
struct llm_backend_ctx {
    llm_backend_config cfg;
    int n_ranks, n_group; /* of this process; of a stage */
    int n_world, first;   /* ranks of all processes; which of them ranks[0] is */
    int64_t vocabs[MAX_WORLD];
    int one_device; /* LLM_CUDA_ONE_DEVICE is set: all ranks share device 0, without NCCL, which refuses that; for tests of >>ranks */
    rank *ranks;
    uint32_t *stop_waiting; /* pinned, see peer_view */
    int64_t peer_width;
    rank *loaders; /* of adapters, one a rank; NULL: there are no sites */
    char name[320], why[300];
    llm_result failed;
    size_t step_bytes;                /* of a step's block */
    unsigned n_flight;                /* of the five below */
    uint8_t *staged[LLM_FLIGHT_MAX];  /* pinned copies of steps */
    uint8_t *more[LLM_FLIGHT_MAX];    /* and of what few steps have */
    float *logits[LLM_FLIGHT_MAX];    /* pinned (max_out, vocab) */
    llm_drawn *drawn[LLM_FLIGHT_MAX]; /* pinned (max_out) */
    uint8_t *bent[LLM_FLIGHT_MAX];    /* pinned masks and changes of the draws */
    int64_t vocab, widest;
    unsigned begun, waited;    /* steps */
    int times, each_record;    /* LLM_CUDA_TIMES is set; to `records` */
    double record_s[OP_COUNT]; /* of the first device, with each_record */
    int64_t n_records[OP_COUNT];
    double busy_s, idle_s;   /* seconds of the first device in steps, and between them */
    llm_shape shape, padded; /* of the step that is being recorded; padded to a bucket where a graph is used */
    int32_t page_stride, any_draws, want_rows, longest, singles, capture; /* singles: sequences with one row */
    int n_layers, page_tokens;
    kv_place *places;
    int64_t page_bytes, n_pages;
    int kv_type;
    float *row;   /* a row read back for buffer_row */
    void *pinned; /* the engine's memory for pages that give way; NULL: none, or it could not be pinned */
    llm_buffer **buffers;
    int n_buffers, buffer_cap;
    llm_weight **all_weights;
    int n_weights, weight_cap;
    llm_lora_site **sites;
    int n_sites, site_cap;
    pthread_mutex_t put;   /* one adapter is loaded at a time */
    pthread_mutex_t mutex; /* of the ranks' threads */
    pthread_cond_t go, idle;
    void (*job)(rank *r);
    unsigned round;
    int running, stop, alive; /* jobs that have not ended; threads that have not */
    int aborted;              /* communicators are gone; read by ranks' threads while it is written */
};

/* Sets the sentence of the calling program's library and returns r: this library has another copy of llm.h's state, so the sentence goes
 * through the function that open was given. */
static llm_result fail_with(const llm_backend_config *cfg, llm_result r, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return cfg->error ? cfg->error(r, text) : r;
}

/* Keeps the first mistake of a context. */
static void ctx_fail(llm_backend_ctx *ctx, llm_result r, const char *what) {
    if (ctx->failed) return;
    ctx->failed = r;
    snprintf(ctx->why, sizeof ctx->why, "%s", what);
}

static llm_result ctx_result(llm_backend_ctx *ctx) { return ctx->failed ? fail_with(&ctx->cfg, ctx->failed, "%s", ctx->why) : LLM_OK; }

/* Keeps the first mistake of a rank. */
static void rank_fail(rank *r, llm_result result, const char *format, ...) {
    if (r->failed) return;
    r->failed = result;
    int n = snprintf(r->why, sizeof r->why, "cuda device %d: ", r->device);
    va_list args;
    va_start(args, format);
    vsnprintf(r->why + n, sizeof r->why - (size_t)n, format, args);
    va_end(args);
}

/* Notes what a CUDA call on this rank returned; 1 if it was right. */
static int rank_ok(rank *r, cudaError_t e, const char *what) {
    if (e == cudaSuccess) return !r->failed;
    rank_fail(r, e == cudaErrorMemoryAllocation ? LLM_ERR_NOMEM : LLM_ERR_BACKEND, "%s: %s", what, cudaGetErrorString(e));
    cudaGetLastError();
    return 0;
}

/* Takes what went wrong on a rank over into the context. */
static llm_result rank_result(rank *r) {
    if (r->failed) ctx_fail(r->ctx, r->failed, r->why);
    return ctx_result(r->ctx);
}

/* rank_ok of what took memory: says how much there is. */
static int memory_ok(rank *r, cudaError_t e, size_t bytes, const char *what) {
    size_t left = 0, total = 0;
    if (e != cudaErrorMemoryAllocation || r->failed) return rank_ok(r, e, what);
    cudaGetLastError();
    cudaMemGetInfo(&left, &total);
    rank_fail(r, LLM_ERR_NOMEM, "out of memory: %s needs %zu MiB, %zu of %zu MiB are free", what, bytes >> 20, left >> 20, total >> 20);
    return 0;
}

/* Zeroed device memory that lives as long as the context; NULL and a noted error if there is none. */
static void *device_memory(rank *r, size_t bytes, const char *what) {
    void *p = NULL;
    if (r->failed) return NULL;
    if (r->n_memory == r->memory_cap) {
        int cap = r->memory_cap ? 2 * r->memory_cap : 64;
        void **grown = (void **)realloc(r->memory, (size_t)cap * sizeof *grown);
        if (!grown) return rank_ok(r, cudaErrorMemoryAllocation, what), (void *)NULL;
        r->memory = grown;
        r->memory_cap = cap;
    }
    if (!memory_ok(r, cudaMalloc(&p, bytes ? bytes : 1), bytes, what)) return NULL;
    r->memory[r->n_memory++] = p;
    r->bytes += (int64_t)bytes;
    rank_ok(r, cudaMemsetAsync(p, 0, bytes ? bytes : 1, r->stream), what);
    return p;
}

/* Gives device_memory back once this rank's stream is done with it. NULL is fine. */
static void device_free(rank *r, void *p, size_t bytes) {
    for (int i = 0; p && i < r->n_memory; i++)
        if (r->memory[i] == p) {
            rank_ok(r, cudaStreamSynchronize(r->stream), "memory");
            cudaFree(p);
            r->memory[i] = r->memory[--r->n_memory];
            r->bytes -= (int64_t)bytes;
            return;
        }
}

/* Scratch of at least this size, taken while opening: operations run one after the other, so all share it. */
static void *rank_scratch(rank *r, size_t bytes) {
    if (bytes <= r->scratch_bytes) return r->scratch;
    bytes = (bytes + 0xfffff) & ~(size_t)0xfffff;
    uint8_t *p = (uint8_t *)device_memory(r, bytes, "scratch");
    if (!p) return NULL;
    device_free(r, r->scratch, r->scratch_bytes);
    r->scratch = p;
    r->scratch_bytes = bytes;
    return p;
}

/* A kernel as the host knows it. Each one that launch<> names anywhere in this file has an entry, made before main: a list that cannot miss
 * one. `text` is how the compiler spells a function of it, which has the kernel's name behind "K = ". */
typedef struct kernel_entry {
    const void *kernel;
    const char *text;
    const struct kernel_entry *next;
    kernel_entry(const void *f, const char *text);
} kernel_entry;

static const kernel_entry *first_kernel; /* written while the library is loaded, never after */

kernel_entry::kernel_entry(const void *f, const char *spelled) : kernel(f), text(spelled), next(first_kernel) { first_kernel = this; }

template <auto K> static const char *kernel_text(void) { return __PRETTY_FUNCTION__; }
template <auto K> struct kernel_of { static const kernel_entry entry; };
template <auto K> const kernel_entry kernel_of<K>::entry{(const void *)K, kernel_text<K>()};

/* "kernel_norm", "kernel_linear_few<2, 8>". */
static const char *kernel_name(const kernel_entry *e, char *to, size_t size) {
    const char *from = strstr(e->text, "K = ");
    snprintf(to, size, "%s", from ? from + 4 : e->text);
    to[strcspn(to, ";]")] = 0;
    return to;
}

/* Loads every kernel to this rank's device, and lets each have all of a block's shared memory. The driver loads a kernel when it is first
 * asked for, and may wait for all that runs until it has: with ranks that wait for each other on the device that would be for ever. */
static void load_kernels(rank *r) {
    for (const kernel_entry *e = first_kernel; e && !r->failed; e = e->next) {
        cudaFuncAttributes has;
        char name[96];
        cudaError_t error = cudaFuncGetAttributes(&has, e->kernel);
        int most = r->max_smem - (int)has.sharedSizeBytes;
        if (error == cudaSuccess && most > (48 << 10))
            error = cudaFuncSetAttribute(e->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
        if (has.ptxVersion < 90) r->overlap = 0; /* its grid_wait does nothing */
        if (error != cudaSuccess) rank_ok(r, error, kernel_name(e, name, sizeof name));
    }
}

/* What a launch that went wrong says: which kernel, and how it was started. */
static void launch_failed(rank *r, cudaError_t error, const kernel_entry *e, const cudaLaunchConfig_t *c) {
    char name[96], what[192];
    snprintf(what, sizeof what, "%s, grid %u x %u x %u, %u threads, %zu bytes of shared memory", kernel_name(e, name, sizeof name),
             c->gridDim.x, c->gridDim.y, c->gridDim.z, c->blockDim.x, c->dynamicSmemBytes);
    rank_ok(r, error, what);
}

/* Behind launch: arguments take the types of the kernel's parameters. */
template <class... P, class... A>
static void launch_entry(rank *r, const kernel_entry *e, void (*kernel)(P...), dim3 grid, int threads, size_t smem, A... args) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute early = {};
    if (r->failed || !grid.x || !grid.y || !grid.z) return;
    c.gridDim = grid;
    c.blockDim = dim3((unsigned)threads);
    c.dynamicSmemBytes = smem;
    c.stream = r->stream;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    c.attrs = &early;
    c.numAttrs = r->overlap ? 1 : 0;
    cudaError_t error = cudaLaunchKernelEx(&c, kernel, static_cast<P>(args)...);
    if (error == cudaSuccess && r->sync_each) error = cudaStreamSynchronize(r->stream);
    if (error != cudaSuccess) launch_failed(r, error, e, &c);
}

/* The one way to start a kernel. A grid with nothing in it is not launched, which CUDA would call a mistake. What may be many (rows) goes
 * into x: y and z end at 65,535.
 *
 * From sm_90 on a kernel may start when all blocks of the one before have passed their grid_wait and there is room beside them
 * (programmatic dependent launch); its own lets it through when the other has ended. So what a start costs, and the first weights' way from
 * memory, lie under the end of the kernel before. The step's block was copied before the first of them started, which is why it may be read
 * at once. Ranks that share a device do without: blocks that stand in their grid_wait would take the room of those whom another rank waits
 * for. */
template <auto K, class... A> static void launch(rank *r, dim3 grid, int threads, size_t smem, A... args) {
    launch_entry(r, &kernel_of<K>::entry, K, grid, threads, smem, args...);
}
