/* Kernels with planted bugs: what the emulation must find. bugs NAME runs one; its last line is its result, or the emulation ends it.
 * tests/tools/run.py knows which bug which mode finds. */
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define SMEM(T, name, n) \
    static char name##_key; \
    T *name = (T *)cuemu::smem_static(&name##_key, sizeof(T) * (n), 16)

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

template <class... P, class... A> static void launch(void (*kernel)(P...), int threads, cudaStream_t stream, A... a) {
    cudaLaunchConfig_t c = {};
    c.blockDim = dim3((unsigned)threads);
    c.stream = stream;
    if (cudaLaunchKernelEx(&c, kernel, static_cast<P>(a)...) != cudaSuccess) exit(3);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    float host[128], *x, *out;
    int right = !strncmp(name, "right", 5), wrong = 0;
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
    cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    for (int i = 0; i < 128 && (right || !strcmp(name, "race")); i++) wrong |= !(host[i] == 384);
    for (int i = 0; i < 32 && !strcmp(name, "sync"); i++) wrong |= host[i] != (float)((i + 1) & 31);
    printf("%s\n", wrong ? "wrong" : "right");
    return wrong;
}
