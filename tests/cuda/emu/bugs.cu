/* Kernels with planted bugs: what the emulation must find. bugs NAME runs one; its last line is its result, or the emulation ends it.
 * tests/tools/run.py knows which bug which mode finds. */
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define SMEM(T, name, n) \
    static char name##_key; \
    T *name = (T *)cuemu::smem_static(&name##_key, sizeof(T) * (n), 16)
#define DYN_SMEM(T, name) T *name = (T *)cuemu::smem_dyn()

/* The sum of 128 values, twice with one scratch: without the barrier between, a fast warp overwrites what a slow one still reads. */
static __global__ void kernel_reduce(float *out, const float *x, int barrier) {
    SMEM(float, scratch, 4);
    float total = 0;
    for (int round = 0; round < 2; round++) {
        float v = x[threadIdx.x] * (float)(round + 1);
        for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
        if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = v;
        __syncthreads();
        for (int i = 0; i < 4; i++) total += scratch[i];
        if (barrier) __syncthreads();
    }
    out[threadIdx.x] = total;
}

/* Each lane reads what its neighbour wrote. */
static __global__ void kernel_neighbour(float *out, int barrier) {
    SMEM(float, s, 32);
    s[threadIdx.x] = (float)threadIdx.x;
    if (barrier) __syncwarp();
    out[threadIdx.x] = s[(threadIdx.x + 1) & 31];
}

static __global__ void kernel_out_of_bounds(float *out, int n) {
    SMEM(float, s, 32);
    s[threadIdx.x + (unsigned)n] = 1;
    __syncthreads();
    out[threadIdx.x] = s[0];
}

/* Some lanes of a warp wait in a barrier, the others in a shuffle. */
static __global__ void kernel_diverged(float *out) {
    float v = (float)threadIdx.x;
    if (threadIdx.x < 40) __syncthreads();
    v += __shfl_xor_sync(~0u, v, 1);
    out[threadIdx.x] = v;
}

/* Vectors of an array that asks for the alignment of its numbers alone. */
static __global__ void kernel_aligned(float *out) {
    static char key;
    uint16_t *s = (uint16_t *)cuemu::smem_static(&key, 64 * 8 * sizeof(uint16_t), alignof(uint16_t));
    uint32_t r[4];
    for (int i = 0; i < 16; i++) s[threadIdx.x * 16 + i] = 1;
    __syncwarp();
    cuemu::ldmatrix_x4(r, s + threadIdx.x * 8, false);
    out[threadIdx.x] = (float)r[0];
}

static __global__ void kernel_shared(float *out) {
    SMEM(float, s, 40000);
    DYN_SMEM(float, d);
    s[threadIdx.x] = d[threadIdx.x] = 1;
    out[threadIdx.x] = s[threadIdx.x] + d[threadIdx.x];
}

/* d (64 x 64) = a product of ones, by a warpgroup: without what makes stores visible to it, without the fence of its registers, with d touched,
 * or its tile overwritten, before the wait. */
static __global__ void kernel_group(float *out, const char *bug) {
    DYN_SMEM(uint8_t, memory);
    uint8_t *tile = memory + (-cuemu::shared_address(memory) & 1023);
    const uint64_t told = (uint64_t)1 << 62 | (uint64_t)64 << 32 | cuemu::shared_address(tile) / 16;
    float d[32] = {};
    for (int i = threadIdx.x; i < 512; i += 128) {
        for (int k = 0; k < 8; k++) ((uint16_t *)tile)[8 * i + k] = 0x3c00;
        cuemu::shared_written(tile + 16 * i, 16);
    }
    if (strcmp(bug, "stores")) cuemu::fence_proxy_async();
    __syncthreads();
    if (strcmp(bug, "fence")) cuemu::wgmma_fence(d, sizeof d);
    cuemu::wgmma({d, nullptr, told, told, 64, true, false, true});
    cuemu::wgmma_commit();
    if (!strcmp(bug, "touched")) d[5] = 1;
    if (!strcmp(bug, "overwritten")) memset(tile + 64 * threadIdx.x, 0, 64);
    cuemu::wgmma_wait(0);
    out[threadIdx.x] = 24 * d[threadIdx.x & 31];
}

/* One waits for what the other writes. */
static __global__ void kernel_waits(int *flag) {
    while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE)) __nanosleep(40);
}
static __global__ void kernel_tells(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }

/* Of a kernel that may start early: what the one before writes is read behind the wait, before it, or without any. */
static __global__ void kernel_reads(float *out, const float *x, int how) {
    if (how == 1) cuemu::grid_wait();
    float v = x[threadIdx.x];
    if (how == 2) cuemu::grid_wait();
    out[threadIdx.x] = v;
}
static __global__ void kernel_writes(float *x) {
    cuemu::grid_wait();
    x[threadIdx.x] = 384;
}

template <class... P, class... A> static void launch(void (*kernel)(P...), int threads, cudaStream_t stream, A... a) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    c.attrs = &early;
    c.numAttrs = (void *)kernel == (void *)kernel_reads || (void *)kernel == (void *)kernel_writes;
    c.blockDim = dim3((unsigned)threads);
    c.dynamicSmemBytes = (void *)kernel == (void *)kernel_shared ? 100000 : (void *)kernel == (void *)kernel_group ? 10000 : 0;
    c.stream = stream;
    if (cudaLaunchKernelEx(&c, kernel, static_cast<P>(a)...) != cudaSuccess) exit(3);
}

/* A kernel waits for one of another stream: launched when it is loaded already or not, and behind memory that is freed meanwhile. */
static void waits(const char *name, cudaStream_t stream) {
    cudaFuncAttributes has;
    cudaStream_t second;
    int *flag;
    void *other;
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaMalloc((void **)&flag, sizeof *flag);
    cudaMalloc(&other, 64);
    cudaMemsetAsync(flag, 0, sizeof *flag, stream);
    cudaStreamSynchronize(stream);
    cudaFuncGetAttributes(&has, (const void *)kernel_waits);
    if (strcmp(name, "late")) cudaFuncGetAttributes(&has, (const void *)kernel_tells);
    launch(kernel_waits, 1, stream, flag);
    if (!strcmp(name, "freed")) cudaFree(other);
    launch(kernel_tells, 1, second, flag);
    cudaStreamSynchronize(second);
}

/* x is written, then read: on a stream, or from a graph. */
static void early(cudaStream_t stream, float *out, float *x, int how, int captured) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaFuncAttributes has;
    cudaFuncGetAttributes(&has, (const void *)kernel_writes); /* to load one waits for all */
    cudaFuncGetAttributes(&has, (const void *)kernel_reads);
    if (captured) cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    launch(kernel_writes, 128, stream, x);
    launch(kernel_reads, 128, stream, out, x, how);
    if (!captured) return;
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, stream);
}

static void destroyed(void) {
    void *comm[2];
    struct unique_id {
        char bytes[128];
    } id;
    ((int (*)(unique_id *))cuemu::nccl_symbol("ncclGetUniqueId"))(&id);
    ((int (*)(void))cuemu::nccl_symbol("ncclGroupStart"))();
    for (int i = 0; i < 2; i++) ((int (*)(void **, int, unique_id, int))cuemu::nccl_symbol("ncclCommInitRank"))(&comm[i], 2, id, i);
    ((int (*)(void))cuemu::nccl_symbol("ncclGroupEnd"))();
    for (int i = 0; i < 2; i++) ((int (*)(void *))cuemu::nccl_symbol("ncclCommDestroy"))(comm[i]);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    float host[128], *x, *out;
    int right = !strncmp(name, "right", 5), ahead = !strncmp(name, "early", 5), wrong = 0;
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc((void **)&x, sizeof host);
    cudaMalloc((void **)&out, sizeof host);
    for (int i = 0; i < 128; i++) host[i] = 1;
    cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, stream);
    cudaStreamSynchronize(stream);
    if (right || !strcmp(name, "race")) launch(kernel_reduce, 128, stream, out, x, right);
    if (!strcmp(name, "sync")) launch(kernel_neighbour, 32, stream, out, 0);
    if (!strcmp(name, "bounds")) launch(kernel_out_of_bounds, 32, stream, out, 1);
    if (!strcmp(name, "diverged")) launch(kernel_diverged, 64, stream, out);
    if (!strcmp(name, "aligned")) launch(kernel_aligned, 32, stream, out);
    if (!strcmp(name, "shared")) cudaFuncSetAttribute((const void *)kernel_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
    if (!strcmp(name, "shared")) launch(kernel_shared, 32, stream, out);
    if (!strncmp(name, "group", 5)) launch(kernel_group, 128, stream, out, name[5] ? name + 6 : "");
    if (!strcmp(name, "late") || !strcmp(name, "freed") || !strcmp(name, "loaded")) waits(name, stream);
    if (!strcmp(name, "destroyed")) destroyed();
    if (ahead) early(stream, out, x, strstr(name, "wait") ? 1 : strstr(name, "never") ? 0 : 2, strstr(name, "graph") != NULL);
    cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    for (int i = 0; i < 128 && (right || ahead || !strncmp(name, "group", 5) || !strcmp(name, "race")); i++) wrong |= !(host[i] == 384);
    for (int i = 0; i < 32 && !strcmp(name, "sync"); i++) wrong |= host[i] != (float)((i + 1) & 31);
    printf("%s\n", wrong ? "wrong" : "right");
    return wrong;
}
