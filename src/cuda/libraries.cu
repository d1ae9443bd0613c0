/* libraries: NCCL and cuBLASLt, whose functions are looked up by name. */

enum { NCCL_I8 = 0, NCCL_F32 = 7, NCCL_SUM = 0 };

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

/* The functions of libnccl.so.2, by its manual's signatures: no header of it is needed to build. */
static struct nccl_api {
    int (*unique_id)(nccl_id *id);
    int (*init_rank)(void **comm, int n, nccl_id id, int rank);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    int (*async_error)(void *comm, int *error);
    const char *(*error_string)(int error);
    int (*all_reduce)(const void *from, void *to, size_t n, int type, int op, void *comm, cudaStream_t stream);
    int (*all_gather)(const void *from, void *to, size_t n, int type, void *comm, cudaStream_t stream);
    int (*send)(const void *from, size_t n, int type, int peer, void *comm, cudaStream_t stream);
    int (*receive)(void *to, size_t n, int type, int peer, void *comm, cudaStream_t stream);
    int (*group_start)(void);
    int (*group_end)(void);
} nccl;

/* Looks the functions up; 0: libnccl is not there. */
static int nccl_load(void) {
    static const char *const names[] = {
        "ncclGetUniqueId", "ncclCommInitRank", "ncclCommDestroy", "ncclCommAbort", "ncclCommGetAsyncError", "ncclGetErrorString",
        "ncclAllReduce",   "ncclAllGather",    "ncclSend",        "ncclRecv",      "ncclGroupStart",        "ncclGroupEnd"};
    void *found[sizeof names / sizeof *names];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(found[i] = nccl_function(names[i]))) return 0;
    memcpy(&nccl, found, sizeof nccl);
    return 1;
}

/* Notes what NCCL returned. */
static void nccl_ok(rank *r, int e, const char *what) {
    if (e) rank_fail(r, LLM_ERR_BACKEND, "%s: %s", what, nccl.error_string(e));
}

/* 1: nothing more is asked of NCCL: this rank has failed, or another one, and the communicators are gone. */
static int nccl_gone(rank *r) {
    if (__atomic_load_n(&r->ctx->aborted, __ATOMIC_ACQUIRE)) rank_fail(r, LLM_ERR_BACKEND, "another rank does not answer");
    return r->failed != LLM_OK;
}

/* In place. */
static void nccl_all_reduce(rank *r, float *data, size_t n) {
    if (!r->comms[COMM_STAGE]) rank_fail(r, LLM_ERR_BACKEND, "all-reduce: there is no NCCL");
    if (nccl_gone(r)) return;
    nccl_ok(r, nccl.all_reduce(data, data, n, NCCL_F32, NCCL_SUM, r->comms[COMM_STAGE], r->stream), "all-reduce");
}

/* A rank's number among those of all processes. */
static int world_rank(const rank *r) { return r->ctx->first + r->index; }

/* Stages of the pipeline, and this rank's. */
static int n_stages(const llm_backend_ctx *ctx) { return ctx->n_world / ctx->n_group; }
static int stage_of(const rank *r) { return world_rank(r) / r->ctx->n_group; }

/* To the same rank of the next stage; from that of the one before. */
static void run_send(rank *r, const void *from, size_t bytes) {
    if (nccl_gone(r)) return;
    nccl_ok(r, nccl.send(from, bytes, NCCL_I8, world_rank(r) + r->ctx->n_group, r->comms[COMM_PIPE], r->stream), "send");
}
static void run_receive(rank *r, void *to, size_t bytes) {
    if (nccl_gone(r)) return;
    nccl_ok(r, nccl.receive(to, bytes, NCCL_I8, world_rank(r) - r->ctx->n_group, r->comms[COMM_PIPE], r->stream), "receive");
}

/* From the first rank of the last stage to the first of all, which takes it on a stream of its own: its next step need not wait. */
static void run_send_back(rank *r, const void *from, size_t bytes) {
    if (!nccl_gone(r)) nccl_ok(r, nccl.send(from, bytes, NCCL_I8, 0, r->comms[COMM_BACK], r->stream), "send back");
}
static void run_receive_back(rank *r, void *to, size_t bytes) {
    if (!nccl_gone(r)) nccl_ok(r, nccl.receive(to, bytes, NCCL_I8, 1, r->comms[COMM_BACK], r->back), "receive back");
}

/* ---- cuBLASLt, by name ---- */

enum { CUBLAS_F32 = 0, CUBLAS_F16 = 2, CUBLAS_BF16 = 14, CUBLAS_E4M3 = 28, CUBLAS_SUM_F32 = 68, CUBLAS_TURN_A = 3 };

/* The functions of libcublasLt, by its manual's signatures. */
static struct cublas_api {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*product)(void **product, int compute, int scale_type);
    int (*product_set)(void *product, int attribute, const void *value, size_t bytes);
    int (*layout)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride);
    int (*layout_free)(void *layout);
    int (*multiply)(void *handle, void *product, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout,
                    const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const void *algorithm, void *workspace,
                    size_t workspace_bytes, cudaStream_t stream);
} cublas;

/* Opens the library on a rank's device; without it, or when it fails, r->cublas stays NULL. */
static void cublas_open(rank *r, size_t workspace) {
    static const char *const names[] = {"cublasLtCreate",
                                        "cublasLtDestroy",
                                        "cublasLtMatmulDescCreate",
                                        "cublasLtMatmulDescSetAttribute",
                                        "cublasLtMatrixLayoutCreate",
                                        "cublasLtMatrixLayoutDestroy",
                                        "cublasLtMatmul"};
    const int turned = 1;
    void *found[sizeof names / sizeof *names];
    if (r->cublas || getenv("LLM_CUDA_NO_CUBLAS")) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(found[i] = cublas_function(names[i]))) return;
    memcpy(&cublas, found, sizeof cublas);
    if (cublas.create(&r->cublas)) r->cublas = NULL;
    if (!r->cublas || cublas.product(&r->product, CUBLAS_SUM_F32, CUBLAS_F32) ||
        cublas.product_set(r->product, CUBLAS_TURN_A, &turned, sizeof turned)) {
        r->cublas = NULL;
        return;
    }
    if (workspace) r->workspace = device_memory(r, workspace, "cuBLASLt");
    r->workspace_bytes = r->workspace ? workspace : 0;
}

/* y (T, V) of stride y_stride = (add: +=) x (T, K) w (V, K)^T, floats of a type whose rows are K apart. The library counts by columns: to
 * it these are y^T = w x^T. */
static void cublas_multiply(rank *r, int type, const void *x, const void *w, float *y, int64_t T, int64_t V, int64_t K, int64_t y_stride,
                            int add) {
    const float one = 1, beta = (float)add;
    void *wl = NULL, *xl = NULL, *yl = NULL;
    int e = cublas.layout(&wl, type, (uint64_t)K, (uint64_t)V, K);
    if (!e) e = cublas.layout(&xl, type, (uint64_t)K, (uint64_t)T, K);
    if (!e) e = cublas.layout(&yl, CUBLAS_F32, (uint64_t)V, (uint64_t)T, y_stride);
    if (!e)
        e = cublas.multiply(r->cublas, r->product, &one, w, wl, x, xl, &beta, y, yl, y, yl, NULL, r->workspace, r->workspace_bytes,
                            r->stream);
    if (wl) cublas.layout_free(wl);
    if (xl) cublas.layout_free(xl);
    if (yl) cublas.layout_free(yl);
    if (e)
        rank_fail(r, LLM_ERR_BACKEND, "cuBLASLt: a product of %lld x %lld x %lld failed with status %d", (long long)T, (long long)V,
                  (long long)K, e);
}
