// cuda_emu.cpp - the fiber scheduler, and a fake CUDA runtime, cuBLAS and NCCL, for cuda_emu.h
#include "cuda_emu.h"
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <deque>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <random>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#include <thread>
#include <chrono>
#include <vector>
#ifdef CUEMU_TSAN // this file is never built with -fsanitize=thread: its own state is not the kernels'
#include <sanitizer/tsan_interface.h>
#define TS(x) x
extern "C" void AnnotateIgnoreReadsBegin(const char *, int);
extern "C" void AnnotateIgnoreReadsEnd(const char *, int);
extern "C" void AnnotateIgnoreWritesBegin(const char *, int);
extern "C" void AnnotateIgnoreWritesEnd(const char *, int);
static void ign_on() {
    AnnotateIgnoreReadsBegin("", 0);
    AnnotateIgnoreWritesBegin("", 0);
}
static void ign_off() {
    AnnotateIgnoreReadsEnd("", 0);
    AnnotateIgnoreWritesEnd("", 0);
}
struct Ign {
    Ign() { ign_on(); }
    ~Ign() { ign_off(); }
}; // the interceptors of memcpy, malloc, ... see the scheduler's state too
#else
#define TS(x)
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define AS(x) x
#else
#define AS(x)
#endif
#ifdef CUEMU_COUNT
#define COUNT(x) x
#else
#define COUNT(x)
#endif
using std::function;
__thread uint3 threadIdx, blockIdx;
__thread cuemu::dim blockDim, gridDim;

namespace cuemu {
int seed = getenv("CUEMU_SEED") ? atoi(getenv("CUEMU_SEED")) : 0;
int cp_async_late = 1;
static int env_int(const char *n, int d) {
    const char *s = getenv(n);
    return s ? atoi(s) : d;
}

// ------------------------------------------------------------------ fibers
#ifdef CUEMU_UCONTEXT
#include <ucontext.h>
struct Ctx {
    ucontext_t u;
};
static void ctx_switch(Ctx *from, Ctx *to) { swapcontext(&from->u, &to->u); }
static void ctx_make(Ctx *c, char *stk, size_t n, void (*fn)()) {
    getcontext(&c->u);
    c->u.uc_stack.ss_sp = stk;
    c->u.uc_stack.ss_size = n;
    c->u.uc_link = nullptr;
    makecontext(&c->u, fn, 0);
}
#else
extern "C" void cuemu_switch(void **save, void *to);
asm(".text\n.globl cuemu_switch\n.type cuemu_switch,@function\ncuemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.size cuemu_switch,.-cuemu_switch\n");
struct Ctx {
    void *sp;
};
static inline void ctx_switch(Ctx *from, Ctx *to) { cuemu_switch(&from->sp, to->sp); }
static void ctx_make(Ctx *c, char *stk, size_t n, void (*fn)()) {
    void **p = (void **)(((uintptr_t)stk + n) & ~(uintptr_t)15);
    *--p = nullptr;
    *--p = (void *)fn; // return address, stack 16-aligned + 8 at entry
    for (int i = 0; i < 6; i++) *--p = nullptr;
    c->sp = p;
}
#endif
static const size_t STACK = 256 << 10;
// Stacks begin at whole pages, so the same place of each lies in the same few lines of a cache: fiber i begins lower by this, 5 lines a fiber.
static size_t stagger(size_t i) { return i * 320 % 4096; }

struct Copy {
    void *d;
    const void *s;
    size_t n, sn;
    copy_fn f;
};
struct Fenced { // registers of a thread that a wgmma.fence has seen, or a product has left, and what they were
    const char *r;
    std::vector<char> was;
};
struct Product { // of a warp
    Wgmma w;     // of its first lane
    float *d[32];
    const uint32_t *a[32];
    uint32_t a_was[32][4];
    std::vector<float> a_wide, b_wide; // (16, 16), (16, n) once they are read
    std::vector<float> d_was;          // (32, n / 2), until it is computed; empty: a product before it has the same sums
    int line;
};
struct Fiber {
    Ctx ctx;
    char *stack = nullptr;
    uint3 tid;
    int lin, lane, warp;
    unsigned prio, epoch; // epoch: how often it has met others
    bool done;
    const char *why;
    int line;
    int static_i;
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
    std::vector<Fenced> fenced;
    std::vector<uint32_t> unfenced; // pieces of 16 bytes that it wrote since its last fence.proxy.async
    int meetings;                   // of its warp for wgmma, in which it took part
    void *fake = nullptr, *ts = nullptr;
};
struct Coll {
    unsigned mask, arrived = 0, gen = 0;
    int kind = 0, line = 0;
    unsigned n = 0;
    std::vector<Fiber *> wait;
    alignas(16) char buf[2][32][64];
    char ts[2];
};
struct Warp {
    unsigned exited, all;
    std::vector<std::unique_ptr<Coll>> colls;
    int used;
    int meetings, products; // for wgmma; what the first lane behind one has done
    std::vector<Product> open;
    std::vector<std::vector<Product>> groups;
};
struct Bar {
    int arrived = 0;
    int line = 0;
    std::vector<Fiber *> wait;
    long acc[2];
    unsigned gen = 0;
    char ts[2];
};
struct GridBar {
    std::mutex m;
    std::condition_variable cv;
    unsigned n, in = 0, gen = 0;
    char ts[2];
};

struct Block { // one per OS thread that runs blocks; reused
    std::vector<std::unique_ptr<Fiber>> f;
    std::vector<Fiber *> rq;
    size_t head = 0;
    Fiber *cur = nullptr;
    Ctx main;
    void *main_fake = nullptr, *main_ts = nullptr;
    const void *main_bot = nullptr;
    size_t main_sz = 0;
    int nthr, live;
    char ts_start, ts_end;
    std::vector<Warp> w;
    Bar bar[16];
    std::vector<Fiber *> gwait, ewait;  // in a grid barrier; in griddepcontrol.wait
    bool ahead = false, waited = false; // before the kernel in front has begun; some thread has waited for it
    uint3 bi;
    dim bd, gd;
    GridBar *gb;
    const function<void()> *body;
    const char *name;
    std::mt19937 rng;
    int order;
    char *dyn = nullptr;
    void *dyn_base = nullptr;
    size_t dyn_n = 0, static_n = 0;
    std::vector<uint8_t> unfenced; // of each 16 bytes of dyn: who wrote it last has had no fence.proxy.async since
    std::map<const void *, std::pair<void *, void *>> statics; // where it is, what to free
    long spin;
    std::chrono::steady_clock::time_point spins_since;
};
static thread_local Block *B CUEMU_TLS;

void die(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "cuda_emu: ");
    if (B && B->name)
        fprintf(stderr, "%s block (%u,%u,%u) thread (%u,%u,%u): ", B->name, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
                threadIdx.z);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    fflush(stderr);
    abort();
}
static bool less_urgent(const Fiber *a, const Fiber *b) { return a->prio < b->prio; }
// Makes a fiber ready. With priorities the ready ones are a heap.
static void ready(Block *b, Fiber *f) {
    b->rq.push_back(f);
    if (b->order == 3) std::push_heap(b->rq.begin(), b->rq.end(), less_urgent);
}
static Fiber *pick(Block *b) {
    size_t n = b->rq.size() - b->head;
    if (!n) {
        b->rq.clear();
        b->head = 0;
        return nullptr;
    }
    if (b->order == 0) return b->rq[b->head++];
    size_t i = b->rq.size() - 1;
    if (b->order == 2) i = b->head + b->rng() % n;
    if (b->order == 3) std::pop_heap(b->rq.begin(), b->rq.end(), less_urgent); // the most urgent one goes last
    Fiber *r = b->rq[i];
    b->rq[i] = b->rq.back();
    b->rq.pop_back();
    return r;
}
static inline void enter(Block *b, Fiber *f) {
    b->cur = f;
    threadIdx = f->tid;
}
static void go(Block *b, Fiber *from) { // leave fiber `from` for the next ready one, or for the block's loop
    Fiber *n = pick(b);
    if (n == from) return;
    if (n) enter(b, n);
    else b->cur = nullptr;
    AS(__sanitizer_start_switch_fiber(&from->fake, n ? n->stack : (const char *)b->main_bot, n ? STACK : b->main_sz);)
    TS(__tsan_switch_to_fiber(n ? n->ts : b->main_ts, __tsan_switch_to_fiber_no_sync);)
    ctx_switch(&from->ctx, n ? &n->ctx : &b->main);
    AS(__sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);)
}
static void wait_here(Fiber *f, const char *why, int line) {
    f->why = why;
    f->line = line;
    go(B, f);
    f->why = nullptr;
}
static void wake(Block *b, std::vector<Fiber *> &w) {
    for (Fiber *f : w) ready(b, f);
    w.clear();
    b->spin = 0;
}

static void coll_try(Block *b, Warp &w, Coll &c) {
    unsigned need = c.mask & ~w.exited;
    if (!c.arrived || (c.arrived & need) != need) return;
    for (int i = 0; i < 32; i++)
        if (c.mask & w.exited & ~c.arrived & 1u << i) memset(c.buf[c.gen & 1][i], 0xff, 64);
    if (c.kind == SHFL || c.kind == MMA) memset(c.buf[c.gen & 1][0] + ONCE, 0, sizeof(Once));
    c.gen++;
    c.arrived = 0;
    wake(b, c.wait);
}
static const char *kinds[] = {"__syncwarp",      "__shfl_sync",     "vote", "reduce", "match", "mma.sync", "ldmatrix",
                              "wgmma.mma_async", "wgmma.wait_group"};
const char *warp_gather(unsigned mask, const void *v, unsigned n, int kind, int line) {
    TS(Ign ig;)
    Block *b = B;
    Fiber *f = b->cur;
    Warp &w = b->w[f->warp];
    mask &= w.all;
    f->epoch += mask == w.all;
    if (!(mask >> f->lane & 1)) die("%s at line %d: the calling lane is not in mask %08x", kinds[kind], line, mask);
    Coll *c = nullptr;
    for (int i = 0; i < w.used && !c; i++)
        if (w.colls[i]->mask == mask) c = w.colls[i].get();
    if (!c) {
        if (w.used == (int)w.colls.size()) w.colls.emplace_back(new Coll);
        c = w.colls[w.used++].get();
        c->mask = mask;
        c->arrived = 0;
        c->gen = 0;
    }
    if (!c->arrived) {
        c->kind = kind;
        c->line = line;
        c->n = n;
    } else if (c->kind != kind || c->n != n)
        die("lanes of a warp meet in different operations: %s at line %d, %s at line %d (mask %08x)", kinds[c->kind], c->line, kinds[kind],
            line, mask);
    unsigned g = c->gen & 1;
    memcpy(c->buf[g][f->lane], v, n);
    c->arrived |= 1u << f->lane;
    TS(if (kind == SYNCWARP) __tsan_release(&c->ts[g]);)
    unsigned need = mask & ~w.exited;
    if ((c->arrived & need) == need) coll_try(b, w, *c);
    else {
        c->wait.push_back(f);
        wait_here(f, kinds[kind], line);
    }
    TS(if (kind == SYNCWARP) __tsan_acquire(&c->ts[g]);)
    return c->buf[g][0];
}
unsigned live_mask() {
    Warp &w = B->w[B->cur->warp];
    return w.all & ~w.exited;
}

static void bar_try(Block *b, Bar &r, int need) {
    if (r.arrived && r.arrived >= need) {
        r.arrived = 0;
        r.gen++;
        wake(b, r.wait);
    }
}
// With CUEMU_PAUSE_US a block stands still for up to so long behind every fourth barrier, while those of other devices go on.
static void stand_still() {
    static std::atomic<unsigned> threads;
    static thread_local const unsigned most = (unsigned)env_int("CUEMU_PAUSE_US", 0);
    static thread_local std::minstd_rand rng(seed + 7919 * ++threads);
    if (most && rng() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % most));
}
void block_sync(int id, int n, int line) {
    TS(Ign ig;)
    Block *b = B;
    Fiber *f = b->cur;
    Bar &r = b->bar[id];
    if (r.arrived && r.line != line && env_int("CUEMU_STRICT_BAR", 0))
        die("threads of a block meet in barrier %d from lines %d and %d", id, r.line, line);
    r.line = line;
    r.arrived++;
    f->epoch++;
    TS(char *ts = &r.ts[r.gen & 1]; __tsan_release(ts);)
    if (r.arrived >= (n ? n : b->live)) {
        stand_still();
        bar_try(b, r, 0);
    } else {
        r.wait.push_back(f);
        wait_here(f, id ? "bar.sync" : "__syncthreads", line);
    }
    TS(__tsan_acquire(ts);)
}
int block_reduce(int p, int op, int line) {
    Bar &r = B->bar[0];
    unsigned g = r.gen & 1;
    if (!r.arrived) r.acc[g] = 0;
    r.acc[g] += p != 0;
    int n = B->live;
    block_sync(0, 0, line);
    return op == 0 ? r.acc[g] : op == 1 ? r.acc[g] == n : r.acc[g] != 0;
}
void grid_sync(int line) {
    TS(Ign ig;) Fiber *f = B->cur;
    if (!B->gb) die("grid sync at line %d without a cooperative launch", line);
    TS(char *ts = &B->gb->ts[B->gb->gen & 1]; __tsan_release(ts);) B->gwait.push_back(f);
    wait_here(f, "grid sync", line);
    TS(__tsan_acquire(ts);)
}
void grid_wait(int line) {
    TS(Ign ig;)
    B->waited = true;
    if (!B->ahead) return;
    B->ewait.push_back(B->cur);
    wait_here(B->cur, "griddepcontrol.wait", line);
}
void yield() {
    TS(Ign ig;)
    Block *b = B;
    if (++b->spin % 1000000 == 0) { // another device may be slow: a minute is for ever
        const auto now = std::chrono::steady_clock::now();
        if (b->spin == 1000000) b->spins_since = now;
        else if (now - b->spins_since > std::chrono::seconds(60)) die("spins for ever");
    }
    if (b->rq.size() == b->head) { // it waits for another device
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        return;
    }
    ready(b, b->cur);
    go(b, b->cur);
}
void *smem_dyn(size_t *n) {
    if (n) *n = B->dyn_n;
    return B->dyn;
}
static int max_smem() { // bytes of shared memory that a block may have, by the architecture
    int arch = env_int("CUEMU_ARCH", 90);
    return (arch == 80 ? 163 : arch == 86 || arch == 89 || arch == 120 ? 99 : 227) << 10;
}
// n bytes at an odd multiple of `align`, with a redzone of AddressSanitizer right behind them
static char *place(size_t n, size_t align, void **base) {
    if (posix_memalign(base, 2 * align < sizeof(void *) ? sizeof(void *) : 2 * align, n + align)) die("memory");
    memset(*base, 0xff, n + align);
    return (char *)*base + align;
}
void *smem_static(const void *key, size_t n, size_t align) {
    TS(Ign ig;)
    auto &s = B->statics[key];
    if (!s.first) {
        s.first = place(n, align, &s.second);
        B->static_n += n;
        if (B->static_n + B->dyn_n > (size_t)max_smem())
            die("%zu bytes of shared memory: the device has %d a block", B->static_n + B->dyn_n, max_smem());
    }
    return s.first;
}
void cp_async(void *d, const void *s, size_t n, size_t sn, copy_fn f) {
    TS(Ign ig;)
    if ((n != 4 && n != 8 && n != 16) || ((size_t)d | (sn ? (size_t)s : 0)) % n)
        die("cp.async of %zu bytes from %p to %p: bad size or alignment", n, s, d);
    COUNT(if (sn) count_access(s, sn, 0, __builtin_return_address(0)); count_access(d, n, 1, __builtin_return_address(0));)
    if (seed == 0 ? cp_async_late : seed == 1 ? 0 : B->rng() & 1) B->cur->open.push_back({d, s, n, sn, f});
    else {
        TS(ign_off();) f(d, s, n, sn);
        TS(ign_on();) shared_written(d, n);
    }
}
void cp_async_commit() {
    TS(Ign ig;) Fiber *f = B->cur;
    f->groups.push_back(std::move(f->open));
    f->open.clear();
}
void cp_async_wait(int keep) {
    TS(Ign ig;)
    Fiber *f = B->cur;
    while ((int)f->groups.size() > keep) {
        TS(ign_off();) for (Copy &c : f->groups.front()) c.f(c.d, c.s, c.n, c.sn);
        TS(ign_on();) for (Copy &c : f->groups.front()) shared_written(c.d, c.n);
        f->groups.pop_front();
    }
}
// ------------------------------------------------------------------ wgmma
static const size_t WINDOW = 1024; // where dynamic shared memory begins, as kernels see it; pointers have the same low bits
static uintptr_t window() { return ((uintptr_t)B->dyn & ~(WINDOW - 1)) - WINDOW; }
uint32_t shared_address(const void *p) {
    if ((char *)p < B->dyn || (char *)p > B->dyn + B->dyn_n) die("%p is not in dynamic shared memory", p);
    return (uint32_t)((uintptr_t)p - window());
}
void shared_written(const void *p, size_t n) {
    if (!B->dyn || (char *)p < B->dyn || (char *)p >= B->dyn + B->dyn_n) return;
    for (size_t i = (size_t)((char *)p - B->dyn) / 16, end = ((size_t)((char *)p - B->dyn) + n + 15) / 16; i < end; i++) {
        B->unfenced[i] = 1;
        B->cur->unfenced.push_back((uint32_t)i);
    }
}
void fence_proxy_async() {
    for (uint32_t i : B->cur->unfenced) B->unfenced[i] = 0;
    B->cur->unfenced.clear();
}
// A 16-bit value of a matrix that a descriptor tells of: row 0 to 15 of K, or of M or N.
static float tile_value(uint64_t tile, bool turned, bool half, int k, int mn, int line) {
    const uint64_t leading = (tile >> 16 & 0x3fff) * 16, stride = (tile >> 32 & 0x3fff) * 16;
    uint64_t at = (tile & 0x3fff) * 16;
    if (tile >> 62 != 1 || tile >> 46 & 0xffff)
        die("wgmma at line %d: descriptor %016llx is not of 128-byte swizzle", line, (long long)tile);
    if (at & 0x380) die("wgmma at line %d: tile at %llx does not begin with a pattern of 1,024 bytes", line, (long long)at);
    if (turned) at += (uint64_t)(mn / 64) * leading + (uint64_t)(mn % 64) * 2 + (uint64_t)(k / 8) * stride + (uint64_t)(k % 8) * 128;
    else at += (uint64_t)(mn / 8) * stride + (uint64_t)(mn % 8) * 128 + (uint64_t)k * 2;
    at ^= (at >> 7 & 7) << 4;
    const char *p = (const char *)(window() + at);
    if (p < B->dyn || p + 2 > B->dyn + B->dyn_n) die("wgmma at line %d reads past shared memory", line);
    if (B->unfenced[(size_t)(p - B->dyn) / 16]) die("wgmma at line %d reads what was written without a fence.proxy.async", line);
    uint16_t h;
    memcpy(&h, p, 2);
    return half ? cuemu_half_to_float(h) : __uint_as_float((uint32_t)h << 16);
}
static void product_read(Product &p, int warp) {
    const Wgmma &w = p.w;
    if (!p.b_wide.empty()) return;
    p.a_wide.resize(256), p.b_wide.resize(16 * (size_t)w.n);
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++) {
            uint32_t two = p.a_was[m % 8 * 4 + k % 8 / 2][m / 8 + k / 8 * 2];
            p.a_wide[16 * m + k] = !w.a     ? tile_value(w.a_tile, false, w.half, k, warp % 4 * 16 + m, p.line)
                                   : w.half ? hf(two, k & 1)
                                            : bf(two, k & 1);
        }
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < w.n; n++) p.b_wide[k * w.n + n] = tile_value(w.b_tile, w.turned, w.half, k, n, p.line);
}
void wgmma_fence(const void *r, size_t bytes) {
    TS(Ign ig;)
    const char *from = (const char *)r, *to = from + bytes;
    std::vector<Fenced> &all = B->cur->fenced;
    all.erase(std::remove_if(all.begin(), all.end(), [=](const Fenced &x) { return x.r < to && from < x.r + x.was.size(); }), all.end());
    all.push_back({from, std::vector<char>(from, to)});
}
static const uint32_t IN_FLIGHT = 0x7fc0beef; // a NaN
// Takes the sums of a product away until it is computed.
static void product_hide(Product &p) {
    const size_t each = p.w.n / 2;
    p.d_was.resize(32 * each);
    for (int lane = 0; lane < 32; lane++)
        for (size_t i = 0; i < each; i++) p.d_was[lane * each + i] = p.d[lane][i], memcpy(p.d[lane] + i, &IN_FLIGHT, 4);
}
// Whether registers of a thread are as its fence saw them.
static void check_fenced(int warp, int lane, const void *r, size_t bytes, const char *what, int line) {
    for (const Fenced &x : B->f[warp * 32 + lane]->fenced) {
        if (x.r > (const char *)r || x.r + x.was.size() < (const char *)r + bytes) continue;
        if (memcmp(x.was.data() + ((const char *)r - x.r), r, bytes))
            die("wgmma at line %d: %s was touched behind wgmma.fence", line, what);
        return;
    }
    die("wgmma at line %d: no wgmma.fence for %s", line, what);
}
template <class F> static void each_product(Warp &w, F f) { // that is under way, in order
    for (auto &g : w.groups)
        for (Product &p : g) f(p);
    for (Product &p : w.open) f(p);
}
static bool first_behind(Fiber *f, Warp &w) { return ++f->meetings > w.meetings && (w.meetings = f->meetings); }
void wgmma(const Wgmma &w, int line) {
    TS(Ign ig;)
    const char *all = warp_gather(~0u, &w, sizeof w, WGMMA, line);
    const int at = B->cur->warp;
    Warp &warp = B->w[at];
    if (!first_behind(B->cur, warp)) return;
    if (warp.all != ~0u || warp.exited) die("wgmma at line %d: a warp has 32 threads", line);
    warp.open.emplace_back();
    Product &p = warp.open.back();
    p.line = line;
    bool begun = false;
    for (int lane = 0; lane < 32; lane++) {
        Wgmma x;
        memcpy(&x, all + 64 * lane, sizeof x);
        if (!lane) p.w = x;
        if (x.a_tile != p.w.a_tile || x.b_tile != p.w.b_tile || x.n != p.w.n || x.add != p.w.add)
            die("wgmma at line %d: lanes differ", line);
        p.d[lane] = x.d, p.a[lane] = x.a;
    }
    each_product(warp, [&](Product &q) { begun |= &q != &p && q.d[0] == p.d[0]; });
    for (int lane = 0; lane < 32; lane++) {
        if (!begun) check_fenced(at, lane, p.d[lane], p.w.n / 2 * 4, "d", line);
        if (p.w.a) check_fenced(at, lane, p.a[lane], 16, "a", line), memcpy(p.a_was[lane], p.a[lane], 16);
    }
    if (!begun) product_hide(p);
    if (seed == 1 || (seed > 1 && B->rng() & 1)) product_read(p, at);
    warp.products++;
}
void wgmma_commit(int line) {
    TS(Ign ig;)
    int z = 0;
    warp_gather(~0u, &z, 4, SYNCWARP, line);
    Warp &w = B->w[B->cur->warp];
    if (first_behind(B->cur, w)) w.groups.push_back(std::move(w.open)), w.open.clear();
}
typedef float four_anywhere __attribute__((vector_size(16), aligned(4), may_alias));
// d (16, n) = a (16, 16) b (16, n), n a multiple of 8. Unchecked: half the time of a build with AddressSanitizer would go here.
__attribute__((no_sanitize("address", "undefined"))) static void multiply(float *d, const float *a, const float *b, int n) {
    for (int m = 0; m < 16; m++, a += 16, d += n)
        for (int c = 0; c < n; c += 8) {
            four_floats s[2] = {};
            for (int k = 0; k < 16; k++)
                for (int i = 0; i < 2; i++) s[i] += a[k] * *(const four_anywhere *)(b + k * n + c + 4 * i);
            for (int i = 0; i < 2; i++) *(four_anywhere *)(d + c + 4 * i) = s[i];
        }
}
static void product_end(Warp &w, Product &p, int warp) {
    const int n = p.w.n, each = n / 2;
    std::vector<float> sum(16 * (size_t)n);
    product_read(p, warp);
    multiply(sum.data(), p.a_wide.data(), p.b_wide.data(), n);
    for (int lane = 0; lane < 32; lane++) {
        if (p.w.a && memcmp(p.a[lane], p.a_was[lane], 16)) die("wgmma at line %d: a was touched before wgmma.wait_group", p.line);
        for (int i = 0; i < each; i++) {
            uint32_t now;
            memcpy(&now, p.d[lane] + i, 4);
            if (now != IN_FLIGHT) die("wgmma at line %d: d was touched before wgmma.wait_group", p.line);
            p.d[lane][i] =
                (p.w.add ? p.d_was[lane * each + i] : 0) + sum[((lane >> 2) + (i >> 1 & 1) * 8) * n + i / 4 * 8 + (lane & 3) * 2 + (i & 1)];
        }
    }
    bool hidden = false;
    each_product(w, [&](Product &q) {
        if (hidden || &q == &p || q.d[0] != p.d[0]) return;
        product_hide(q); // the next one with these sums
        hidden = true;
    });
    for (int lane = 0; lane < 32 && !hidden; lane++)
        for (Fenced &x : B->f[warp * 32 + lane]->fenced)
            if (x.r <= (char *)p.d[lane] && (char *)p.d[lane] + 4 * each <= x.r + x.was.size())
                memcpy(x.was.data() + ((char *)p.d[lane] - x.r), p.d[lane], 4 * each);
}
void wgmma_wait(int keep, int line) {
    TS(Ign ig;)
    warp_gather(~0u, &keep, 4, WGMMA_WAIT, line);
    const int at = B->cur->warp;
    Warp &w = B->w[at];
    if (!first_behind(B->cur, w)) return;
    while ((int)w.groups.size() > keep) {
        while (!w.groups.front().empty()) {
            product_end(w, w.groups.front().front(), at);
            w.groups.front().erase(w.groups.front().begin());
        }
        w.groups.erase(w.groups.begin());
    }
}
// Of a block that ends.
static void products_over(Block *b) {
    for (size_t i = 0; i < b->w.size(); i++) {
        if (!b->w[i].groups.empty() || !b->w[i].open.empty()) die("the block ends with wgmma products that it has not waited for");
        if (b->w[i].products != b->w[i / 4 * 4].products) die("warps of a warpgroup have issued different numbers of wgmma products");
    }
}
static void fiber_main() {
    AS(__sanitizer_finish_switch_fiber(nullptr, B->main_bot ? nullptr : &B->main_bot, B->main_bot ? nullptr : &B->main_sz);)
    for (;;) {
        Block *b = B;
        Fiber *f = b->cur;
        TS(__tsan_acquire(&b->ts_start);)
        (*b->body)();
        b = B;
        TS(__tsan_release(&b->ts_end); ign_on();)
        if (!f->open.empty() || !f->groups.empty()) die("the thread ends with cp.async copies it has not waited for");
        f->done = true;
        b->live--;
        Warp &w = b->w[f->warp];
        w.exited |= 1u << f->lane;
        for (int i = 0; i < w.used; i++) coll_try(b, w, *w.colls[i]);
        if (b->live) bar_try(b, b->bar[0], b->live);
        TS(ign_off();)
        go(b, f); // resumed for the next block
    }
}
COUNT(static void count_block(const void *kernel); static void count_launch(const void *kernel);)
static void block_start(const function<void()> &body, uint3 bi, dim3 bd, dim3 gd, size_t smem, GridBar *gb, const char *name) {
    if (!B) B = new Block;
    Block *b = B;
    b->body = &body;
    b->gb = gb;
    b->name = name;
    b->spin = 0;
    b->order = seed < 2 ? seed : seed & 1 ? 2 : 3;
    b->rng.seed(seed + 7919 * (bi.x + 31 * bi.y + 977 * bi.z));
    b->waited = b->ahead = false;
    b->bi = bi;
    b->bd = {bd.x, bd.y, bd.z};
    b->gd = {gd.x, gd.y, gd.z};
    int n = bd.x * bd.y * bd.z;
    b->nthr = b->live = n;
    while ((int)b->f.size() < n) {
        Fiber *f = new Fiber;
        b->f.emplace_back(f);
        char *m = (char *)mmap(nullptr, STACK + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) die("no memory for stacks");
        mprotect(m, 4096, PROT_NONE);
        f->stack = m + 4096;
        ctx_make(&f->ctx, f->stack, STACK - stagger(b->f.size()), fiber_main);
        TS(f->ts = __tsan_create_fiber(0);)
    }
    b->w.resize((n + 31) / 32);
    for (int i = 0; i < (n + 31) / 32; i++) {
        Warp &w = b->w[i];
        w.exited = 0;
        w.used = 0;
        w.meetings = w.products = 0;
        w.all = n - 32 * i >= 32 ? ~0u : (1u << (n - 32 * i)) - 1;
    }
    for (Bar &r : b->bar) {
        r.arrived = 0;
        r.wait.clear();
    }
    b->rq.clear();
    b->head = 0;
    for (int i = 0; i < n; i++) {
        Fiber *f = b->f[i].get();
        f->lin = i;
        f->lane = i & 31;
        f->warp = i >> 5;
        f->done = false;
        f->epoch = 0;
        f->why = nullptr;
        f->meetings = 0;
        f->fenced.clear();
        f->unfenced.clear();
        f->prio = ((seed * 2654435761u + (i >> 5) * 40503u) * 2246822519u & ~31u) | ((i ^ seed) & 31);
        f->tid = {i % bd.x, i / bd.x % bd.y, i / (bd.x * bd.y)};
        ready(b, f);
    }
    b->dyn_n = smem;
    b->static_n = 0;
    b->dyn = smem ? place(smem, 16, &b->dyn_base) : nullptr;
    b->unfenced.assign(smem / 16 + 1, 0);
}
// Runs the block of this thread to its end; one that is ahead until it can only go on behind its griddepcontrol.wait: false.
static bool block_go() {
    Block *b = B;
    GridBar *gb = b->gb;
    blockIdx = b->bi;
    blockDim = b->bd;
    gridDim = b->gd;
    if (!b->ahead) wake(b, b->ewait);
    TS(ign_on();)
    TS(b->main_ts = __tsan_get_current_fiber(); __tsan_release(&b->ts_start);)
    for (;;) {
        Fiber *f = pick(b);
        if (f) {
            enter(b, f);
            AS(__sanitizer_start_switch_fiber(&b->main_fake, f->stack, STACK);)
            TS(__tsan_switch_to_fiber(f->ts, __tsan_switch_to_fiber_no_sync);)
            ctx_switch(&b->main, &f->ctx);
            AS(__sanitizer_finish_switch_fiber(b->main_fake, nullptr, nullptr);)
            continue;
        }
        if (!b->live) break;
        if (gb && (int)b->gwait.size() == b->live) {
            std::unique_lock<std::mutex> l(gb->m);
            unsigned g = gb->gen;
            if (++gb->in == gb->n) {
                gb->in = 0;
                gb->gen++;
                gb->cv.notify_all();
            } else gb->cv.wait(l, [&] { return gb->gen != g; });
            l.unlock();
            wake(b, b->gwait);
            continue;
        }
        if (b->ahead && !b->ewait.empty()) {
            TS(ign_off();)
            return false;
        }
        fprintf(stderr, "cuda_emu: %s block (%u,%u,%u): deadlock, %d threads never meet:\n", b->name, b->bi.x, b->bi.y, b->bi.z, b->live);
        std::map<std::pair<std::string, int>, std::vector<int>> at;
        for (int i = 0; i < b->nthr; i++)
            if (!b->f[i]->done) at[{b->f[i]->why ? b->f[i]->why : "?", b->f[i]->line}].push_back(i);
        for (auto &e : at)
            fprintf(stderr, "  %zu threads (first: %d) wait in %s at line %d\n", e.second.size(), e.second[0], e.first.first.c_str(),
                    e.first.second);
        abort();
    }
    TS(__tsan_acquire(&b->ts_end); ign_off();)
    return true;
}
static void block_end(const void *kernel, bool early) {
    Block *b = B;
    if (early && !b->waited) die("the block ends, and has not waited for the kernel before (griddepcontrol.wait)");
    products_over(b);
    COUNT(count_block(kernel);)
    (void)kernel;
    if (b->dyn) free(b->dyn_base);
    b->dyn = nullptr;
    for (auto &s : b->statics) free(s.second.second);
    b->statics.clear();
    b->name = nullptr;
}

// What a thread that ran blocks keeps for the next ones.
static thread_local std::vector<Block *> t_spare; // for blocks that run ahead
static void block_free() {
    if (!B && t_spare.empty()) return;
    if (!B) B = t_spare.back(), t_spare.pop_back();
    for (auto &f : B->f) {
        AS(__asan_unpoison_memory_region(f->stack, STACK);) // others may get these addresses
        munmap(f->stack - 4096, STACK + 4096);
        TS(__tsan_destroy_fiber(f->ts);)
    }
    delete B;
    B = nullptr;
    block_free();
}

#ifdef CUEMU_COUNT
enum { AHEAD = 0 }; // notes are of one block at a time
#else
enum { AHEAD = 2 };
#endif
// A launch. A graph has it many times.
struct Run {
    const void *kernel;
    dim3 g, b;
    size_t smem;
    bool coop, early;
    function<void()> body;
    const char *name;
    std::vector<unsigned> order;
    std::vector<Block *> ahead; // the first ones, which wait for the kernel before
    void start(unsigned i, GridBar *gb) {
        unsigned j = order[i];
        block_start(body, {j % g.x, j / g.x % g.y, j / (g.x * g.y)}, b, g, smem, gb, name);
    }
    void begin() { // what can be done before the kernel in front has run; of several threads each has its blocks to itself
        if (env_int("CUEMU_THREADS", 1) > 1) return;
        Block *mine = B;
        for (unsigned i = 0; i < std::min<size_t>(order.size(), AHEAD); i++) {
            B = t_spare.empty() ? new Block : t_spare.back();
            if (!t_spare.empty()) t_spare.pop_back();
            start(i, nullptr);
            B->ahead = true;
            if (block_go()) block_end(kernel, true);
            ahead.push_back(B);
        }
        B = mine;
    }
    void finish();
};

// ------------------------------------------------------------------ streams: one OS thread each
static std::mutex g_mu;
static std::map<const void *, int> g_smem_attr;
static std::map<uintptr_t, std::pair<size_t, int>> g_mem; // base -> size, device
static thread_local int t_dev = 0;
static thread_local cudaError_t t_err = cudaSuccess;
static cudaError_t fail(cudaError_t e) { return t_err = e; }
} // namespace cuemu
using namespace cuemu;
struct Op {
    function<void()> f;
    std::shared_ptr<Run> kernel;
    // The kernel behind this one may start before it has ended.
    void before(const Op &next) const {
        if (kernel && next.kernel && next.kernel->early) next.kernel->begin();
    }
};
struct CUgraph_st {
    std::vector<Op> ops;
};
struct CUgraphExec_st {
    std::vector<Op> ops;
};
struct CUstream_st {
    int dev;
    std::mutex m;
    std::condition_variable cv, idle;
    std::deque<Op> q;
    bool busy = false, stop = false, asked = false;
    int waiting = 0; // threads that wait for its end
    CUgraph_st *cap = nullptr;
    std::thread th;
    CUstream_st(int d) : dev(d), th([this] { loop(); }) {}
    ~CUstream_st() {
        {
            std::lock_guard<std::mutex> l(m);
            stop = true;
            cv.notify_all();
        }
        th.join();
    }
    void loop() {
        t_dev = dev;
        int delay = env_int("CUEMU_DELAY_US", 0);
        std::unique_lock<std::mutex> l(m);
        for (;;) {
            cv.wait(l, [&] { return stop || !q.empty(); });
            if (q.empty()) return block_free();
            Op op = std::move(q.front()), next;
            q.pop_front();
            busy = true;
            if (op.kernel) // what comes behind it may start before it
                cv.wait_for(l, std::chrono::milliseconds(20), [&] { return stop || waiting || asked || !q.empty(); });
            if (!q.empty()) next = q.front();
            l.unlock();
            if (delay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
            op.before(next);
            op.f();
            op = next = {};
            l.lock();
            busy = false;
            if (q.empty()) idle.notify_all();
        }
    }
    void push(Op op) {
        std::lock_guard<std::mutex> l(m);
        q.push_back(std::move(op));
        asked = false;
        cv.notify_one();
    }
    bool done() { // now; and there will be no more before long
        std::lock_guard<std::mutex> l(m);
        asked = true;
        cv.notify_one();
        return q.empty() && !busy;
    }
    void drain() { quiet(INT32_MAX); }
    bool quiet(int seconds) {
        std::unique_lock<std::mutex> l(m);
        waiting++;
        cv.notify_one();
        bool end = idle.wait_for(l, std::chrono::seconds(seconds), [&] { return q.empty() && !busy; });
        waiting--;
        return end;
    }
};
struct CUevent_st {
    std::mutex m;
    std::condition_variable cv;
    unsigned long rec = 0, done = 0;
    std::chrono::steady_clock::time_point t;
};
extern "C" long cuemu_late_loads, cuemu_launched, cuemu_asked;
namespace cuemu {
bool launch_fails();
static std::vector<CUstream_st *> g_streams;
static std::map<int, CUstream_st *> g_null;
static int ndev() { return env_int("CUEMU_DEVICES", 8); }
static CUstream_st *S(cudaStream_t s) {
    if (s) return s;
    std::lock_guard<std::mutex> l(g_mu);
    CUstream_st *&n = g_null[t_dev];
    if (!n) {
        n = new CUstream_st(t_dev);
        g_streams.push_back(n);
    }
    return n;
}
static void enqueue(cudaStream_t st, Op op) {
    CUstream_st *s = S(st);
    if (s->cap) s->cap->ops.push_back(std::move(op));
    else s->push(std::move(op));
}
void enqueue(cudaStream_t st, function<void()> f) { enqueue(st, Op{std::move(f), nullptr}); }
static bool capturing() {
    std::lock_guard<std::mutex> l(g_mu);
    for (auto s : g_streams)
        if (s->cap) return true;
    return false;
}
static void drain_device(int d, const char *why) {
    std::vector<CUstream_st *> v;
    {
        std::lock_guard<std::mutex> l(g_mu);
        for (auto s : g_streams)
            if (s->dev == d) v.push_back(s);
    }
    for (auto s : v)
        if (!s->quiet(env_int("CUEMU_WAIT_S", 60))) die("%s waits for all that device %d does, which does not end", why, d);
}

// What the driver does at the first use of a kernel on a device.
static std::mutex g_driver; // held by whoever launches, and by cudaMalloc and cudaFree while they wait
static std::map<std::pair<const void *, int>, bool> g_loaded;
static std::atomic<int> g_let_go; // how often a communicator was aborted
static const char *kernel_name(const void *k) {
    Dl_info di;
    return dladdr(k, &di) && di.dli_sname ? di.dli_sname : "kernel";
}
static void load(const void *k, bool asked) {
    {
        std::lock_guard<std::mutex> l(g_mu);
        bool &there = g_loaded[{k, t_dev}];
        if (there) return;
        there = true;
    }
    if (!asked) __atomic_add_fetch(&cuemu_late_loads, 1, __ATOMIC_RELAXED);
    drain_device(t_dev, kernel_name(k));
}
static void stuck() {
    if (env_int("CUEMU_STUCK_LAUNCH", -1) != t_dev) return;
    const int was = g_let_go;
    while (g_let_go == was || env_int("CUEMU_STUCK_FOR_EVER", 0)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Run::finish() {
    std::vector<Block *> first = std::move(ahead);
    ahead.clear();
    if (launch_fails()) return;
    COUNT(count_launch(kernel);)
    const size_t nb = order.size();
    int T = coop ? (int)nb : std::min<size_t>(nb, env_int("CUEMU_THREADS", 1)), dev = t_dev;
    GridBar gb;
    gb.n = nb;
    Block *mine = B;
    for (Block *b : first) {
        B = b;
        b->ahead = false;
        if (b->live) {
            block_go();
            block_end(kernel, true);
        }
        t_spare.push_back(b);
    }
    B = mine;
    std::atomic<unsigned> next{(unsigned)first.size()};
    auto work = [&] {
        t_dev = dev;
        for (unsigned i; (i = next++) < nb;) {
            start(i, coop ? &gb : nullptr);
            block_go();
            block_end(kernel, early);
        }
    };
    auto quit = [&] {
        work();
        block_free();
    };
    std::vector<std::thread> th;
    for (int i = 1; i < T; i++) th.emplace_back(quit);
    work();
    for (auto &t : th) t.join();
}

cudaError_t launch(const void *k, dim3 g, dim3 b, size_t smem, cudaStream_t st, bool coop, bool early, function<void()> body) {
    stuck();
    load(k, false);
    std::lock_guard<std::mutex> driver(g_driver);
    size_t n = (size_t)b.x * b.y * b.z, nb = (size_t)g.x * g.y * g.z;
    int lim = 48 << 10;
    {
        std::lock_guard<std::mutex> l(g_mu);
        auto i = g_smem_attr.find(k);
        if (i != g_smem_attr.end()) lim = i->second;
    }
    if (!n || n > 1024 || b.z > 64 || !nb || g.y > 65535 || g.z > 65535 || (long)smem > lim) return fail(cudaErrorInvalidConfiguration);
    if (coop && nb > 264) return fail(cudaErrorCooperativeLaunchTooLarge);
    auto run = std::make_shared<Run>(Run{k, g, b, smem, coop, early && !coop, std::move(body), kernel_name(k), {}, {}});
    for (size_t i = 0; i < nb; i++) run->order.push_back((unsigned)i);
    if (seed == 1) std::reverse(run->order.begin(), run->order.end());
    const int dev = env_int("CUEMU_THREADS", 1) > 1 ? t_dev : 0;
    if (seed >= 2) std::shuffle(run->order.begin(), run->order.end(), std::mt19937(seed + 7919 * dev));
    enqueue(st, {[run] { run->finish(); }, run});
    return cudaSuccess;
}
} // namespace cuemu

/* ---- the CUDA runtime ---- */
static std::atomic<int> g_bad[64];     // a device whose kernel failed: everything on it fails from then on
static std::atomic<size_t> g_used[64]; // bytes of a device
static std::atomic<int> g_launches;
static size_t memory_of_device() {
    const char *s = getenv("CUEMU_MEMORY");
    return s ? (size_t)strtoull(s, nullptr, 10) : (size_t)1 << 30;
}
static cudaError_t state() { return g_bad[t_dev] ? fail(cudaErrorIllegalAddress) : cudaSuccess; }

namespace cuemu {
bool launch_fails() { // called where a kernel would run
    __atomic_add_fetch(&cuemu_launched, 1, __ATOMIC_RELAXED);
    int at = env_int("CUEMU_FAIL_LAUNCH", 0);
    if (env_int("CUEMU_DEAD_DEVICE", -1) == t_dev && !g_bad[t_dev]) {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        g_bad[t_dev] = 1;
    }
    if (at && ++g_launches == at) g_bad[t_dev] = 1;
    return g_bad[t_dev];
}
} // namespace cuemu

extern "C" {
extern long cuemu_allocations, cuemu_pinned;
cudaError_t cudaGetDeviceCount(int *n) {
    *n = getenv("CUEMU_DRIVER") ? 0 : ndev();
    return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int d) {
    if (d < 0 || d >= ndev()) return fail(cudaErrorInvalidDevice);
    t_dev = d;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) {
    *v = env_int("CUEMU_DRIVER", 13000);
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v) {
    *v = 13000;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
    memset(p, 0, sizeof *p);
    strcpy(p->name, "emulated device");
    p->major = 9;
    p->multiProcessorCount = env_int("CUEMU_SMS", 4);
    p->totalGlobalMem = memory_of_device();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr a, int) {
    int arch = env_int("CUEMU_ARCH", 90); // as an H100
    *v = a == cudaDevAttrMultiProcessorCount            ? env_int("CUEMU_SMS", 4)
         : a == cudaDevAttrMaxSharedMemoryPerBlockOptin ? max_smem()
         : a == cudaDevAttrComputeCapabilityMajor       ? arch / 10
                                                        : arch % 10;
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaSuccess                 ? "no error"
           : e == cudaErrorMemoryAllocation ? "out of memory"
           : e == cudaErrorNoDevice         ? "no CUDA-capable device is detected"
           : e == cudaErrorIllegalAddress   ? "an illegal memory access was encountered"
                                            : "error of the emulation";
}
cudaError_t cudaGetLastError() {
    cudaError_t e = t_err;
    t_err = cudaSuccess;
    return e;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) {
    *can = !env_int("CUEMU_NO_PEERS", 0);
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return fail(cudaErrorPeerAccessAlreadyEnabled); }
cudaError_t cudaMemGetInfo(size_t *f, size_t *t) {
    *t = memory_of_device();
    *f = *t > g_used[t_dev] ? *t - g_used[t_dev] : 0;
    return state();
}
static cudaError_t take(void **p, size_t n) {
    if (posix_memalign(p, 256, n ? n : 1)) return fail(cudaErrorMemoryAllocation);
    memset(*p, 0xff, n);
    g_used[t_dev] += n;
    __atomic_add_fetch(&cuemu_allocations, 1, __ATOMIC_RELAXED);
    std::lock_guard<std::mutex> l(g_mu);
    g_mem[(uintptr_t)*p] = {n, t_dev};
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **p, size_t n) {
    if (capturing()) return fail(cudaErrorStreamCaptureUnsupported);
    if (state()) return cudaErrorIllegalAddress;
    if (n > memory_of_device() || g_used[t_dev] + n > memory_of_device()) return fail(cudaErrorMemoryAllocation);
    std::lock_guard<std::mutex> driver(g_driver);
    drain_device(t_dev, "cudaMalloc");
    return take(p, n);
}
static cudaError_t give(void *p) {
    std::lock_guard<std::mutex> l(g_mu);
    auto i = g_mem.find((uintptr_t)p);
    if (i == g_mem.end()) return fail(cudaErrorInvalidValue);
    g_used[i->second.second] -= i->second.first;
    g_mem.erase(i);
    free(p);
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    if (!p) return cudaSuccess;
    std::lock_guard<std::mutex> driver(g_driver);
    drain_device(t_dev, "cudaFree");
    return give(p);
}
// In the order of a stream: what came before on it may still read what is freed.
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t) {
    if (capturing()) return fail(cudaErrorStreamCaptureUnsupported);
    if (state()) return cudaErrorIllegalAddress;
    if (n > memory_of_device() || g_used[t_dev] + n > memory_of_device()) return fail(cudaErrorMemoryAllocation);
    return take(p, n);
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t st) {
    enqueue(st, [=] { give(p); });
    return state();
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int) {
    *pool = nullptr;
    return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *to, const void *k) {
    memset(to, 0, sizeof *to);
    to->maxThreadsPerBlock = 1024;
    to->ptxVersion = env_int("CUEMU_PTX", env_int("CUEMU_ARCH", 90));
    load(k, true);
    return state();
}
cudaError_t cudaStreamQuery(cudaStream_t st) {
    if (state()) return cudaErrorIllegalAddress;
    return S(st)->done() ? cudaSuccess : cudaErrorNotReady;
}
// calls so far; bytes that cudaHostRegister has now; kernels that were launched before they were loaded, and all that were; questions to
// cuBLASLt
__attribute__((visibility("default"))) long cuemu_allocations, cuemu_pinned, cuemu_late_loads, cuemu_launched, cuemu_asked;
cudaError_t cudaMallocHost(void **p, size_t n) {
    cuemu_allocations++;
    return posix_memalign(p, 4096, n ? n : 1) ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}
static std::map<void *, size_t> g_registered;
cudaError_t cudaHostRegister(void *p, size_t n, unsigned) {
    std::lock_guard<std::mutex> l(g_mu);
    if (!p || !n || g_registered.count(p)) return fail(cudaErrorInvalidValue);
    cuemu_pinned += (long)(g_registered[p] = n);
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p) {
    std::lock_guard<std::mutex> l(g_mu);
    if (!g_registered.count(p)) return fail(cudaErrorInvalidValue);
    cuemu_pinned -= (long)g_registered[p];
    g_registered.erase(p);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) {
    free(p);
    return cudaSuccess;
}
static int dev_of(const void *p, size_t n) { // device that owns [p, p+n), -1 host, -2 past the end
    std::lock_guard<std::mutex> l(g_mu);
    auto i = g_mem.upper_bound((uintptr_t)p);
    if (i == g_mem.begin()) return -1;
    --i;
    if ((uintptr_t)p >= i->first + i->second.first) return -1;
    return (uintptr_t)p + n <= i->first + i->second.first ? i->second.second : -2;
}
static bool copy_ok(const void *d, const void *s, size_t to_bytes, size_t from_bytes, cudaMemcpyKind k) {
    int a = dev_of(d, to_bytes), b = dev_of(s, from_bytes);
    if (a == -2 || b == -2) return false;
    return k == cudaMemcpyDefault || ((k == cudaMemcpyHostToDevice || k == cudaMemcpyDeviceToDevice) == (a >= 0) &&
                                      (k == cudaMemcpyDeviceToHost || k == cudaMemcpyDeviceToDevice) == (b >= 0));
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, cudaMemcpyKind k, cudaStream_t st) {
    if (!copy_ok(d, s, n, n, k)) return fail(cudaErrorInvalidValue);
    enqueue(st, [=] { memcpy(d, s, n); });
    return state();
}
cudaError_t cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t width, size_t height, cudaMemcpyKind k,
                              cudaStream_t st) {
    if (!height || !width) return cudaSuccess;
    if (width > dp || width > sp || !copy_ok(d, s, (height - 1) * dp + width, (height - 1) * sp + width, k))
        return fail(cudaErrorInvalidValue);
    enqueue(st, [=] {
        for (size_t i = 0; i < height; i++) memcpy((char *)d + i * dp, (const char *)s + i * sp, width);
    });
    return state();
}
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t st) {
    if (dev_of(d, n) < 0) return fail(cudaErrorInvalidValue);
    enqueue(st, [=] { memset(d, v, n); });
    return state();
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    *s = new CUstream_st(t_dev);
    std::lock_guard<std::mutex> l(g_mu);
    g_streams.push_back(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    s->drain();
    {
        std::lock_guard<std::mutex> l(g_mu);
        for (size_t i = 0; i < g_streams.size(); i++)
            if (g_streams[i] == s) g_streams.erase(g_streams.begin() + (long)i--);
    }
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t st) {
    CUstream_st *s = S(st);
    if (s->cap) return fail(cudaErrorStreamCaptureUnsupported);
    s->drain();
    return state();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
    *e = new CUevent_st;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t st) {
    CUstream_st *s = S(st);
    if (s->cap) return fail(cudaErrorStreamCaptureUnsupported); // not used here
    unsigned long g;
    {
        std::lock_guard<std::mutex> l(e->m);
        g = ++e->rec;
    }
    enqueue(st, [=] {
        std::lock_guard<std::mutex> l(e->m);
        e->done = g;
        e->t = std::chrono::steady_clock::now();
        e->cv.notify_all();
    });
    return state();
}
static void ev_wait(cudaEvent_t e, unsigned long g) {
    std::unique_lock<std::mutex> l(e->m);
    e->cv.wait(l, [=] { return e->done >= g; });
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    ev_wait(e, e->rec);
    return state();
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    if (state()) return cudaErrorIllegalAddress;
    std::lock_guard<std::mutex> l(e->m);
    return e->done >= e->rec ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    *ms = std::chrono::duration<float, std::milli>(b->t - a->t).count();
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t st, cudaEvent_t e, unsigned) {
    unsigned long g = e->rec;
    enqueue(st, [=] { ev_wait(e, g); });
    return state();
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    if (!s || s->cap) return fail(cudaErrorStreamCaptureUnsupported);
    s->cap = new CUgraph_st;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
    if (!s->cap) return fail(cudaErrorIllegalState);
    *g = s->cap;
    s->cap = nullptr;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long) {
    *x = new CUgraphExec_st{g->ops};
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t st) {
    enqueue(st, [=] {
        for (size_t i = 0; i < x->ops.size(); i++) {
            if (i + 1 < x->ops.size()) x->ops[i].before(x->ops[i + 1]);
            x->ops[i].f();
        }
    });
    return state();
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    delete g;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
    delete x;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *f, cudaFuncAttribute a, int v) {
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (v > max_smem()) return fail(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> l(g_mu);
    g_smem_attr[f] = v;
    return cudaSuccess;
}
}

/* ---- NCCL: ranks are stream threads, of one process or of several on this machine, which meet in a piece of shared memory that the unique
 * id names. Values of f32 (type 7) are summed in rank order; other types are copied. What is handed over goes through a box of each rank,
 * piece by piece. A rank that was killed leaves the others waiting, until they abort: nobody holds a lock here. ---- */
enum { WORLD_MOST = 16, WORLD_BOX = 1 << 16 };
struct Shared {
    std::atomic<uint32_t> in, gen, destroyed, connected[16];
    std::atomic<long> sig[WORLD_MOST];
    struct Mail {
        std::atomic<uint32_t> full; // 1: a piece lies in the box
        uint64_t n;                 // bytes of the whole message
        char box[WORLD_BOX];
    } mail[WORLD_MOST][WORLD_MOST]; // from, to
    char box[WORLD_MOST][WORLD_BOX];
};
struct World {
    Shared *s;
    int n;
    std::atomic<bool> aborted{false};
    World(const char *name, int ranks) : n(ranks) {
        int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, sizeof *s)) die("NCCL: %s: %s", name, strerror(errno));
        s = (Shared *)mmap(nullptr, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (s == MAP_FAILED) die("NCCL: %s: %s", name, strerror(errno));
        close(fd);
    }
    ~World() { munmap(s, sizeof *s); }
    template <class F> bool wait(F done) { // false: the communicator was aborted
        for (int spins = 0; !done(); spins++) {
            if (aborted) return false;
            if (spins < 100) sched_yield();
            else usleep(50);
        }
        return true;
    }
    bool meet() {
        uint32_t g = s->gen;
        if (s->in.fetch_add(1) + 1 == (uint32_t)n) {
            s->in = 0;
            s->gen++;
        } else wait([&] { return s->gen != g; });
        return !aborted;
    }
    void hang() { // a rank that never comes
        wait([] { return false; });
    }
};
struct Comm {
    std::shared_ptr<World> w;
    std::string name;
    int rank;
    long kinds = 0; // bits of collectives that this rank has called
};
struct UniqueId {
    char name[128];
};
static double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
static std::mutex g_worlds_mu;
static std::map<std::string, std::weak_ptr<World>> g_worlds; // of this process
static int nccl_unique_id(UniqueId *id) {
    static std::atomic<int> n;
    memset(id, 0, sizeof *id);
    snprintf(id->name, sizeof id->name, "/cuemu-%d-%d-%llx", (int)getpid(), n++,
             (unsigned long long)std::chrono::steady_clock::now().time_since_epoch().count());
    return 0;
}
static thread_local int t_group;
static thread_local std::vector<Comm *> t_destroy, t_init;
static int nccl_group_start() { return t_group++, 0; }
static int nccl_group_end() {
    if (--t_group) return 0;
    const double most = env_int("CUEMU_WAIT_S", 60), began = now_s();
    for (Comm *c : t_init) c->w->s->connected[0]++; // the first tells that all of them are here
    for (Comm *c : t_init)
        if (!c->w->wait([&] { return c->w->s->connected[0] >= (uint32_t)c->w->n || now_s() - began > most; }) ||
            c->w->s->connected[0] < (uint32_t)c->w->n)
            return shm_unlink(c->name.c_str()), t_init.clear(), 1;
    for (Comm *c : t_init) shm_unlink(c->name.c_str()); // all have it
    t_init.clear();
    for (Comm *c : t_destroy) c->w->s->destroyed++;
    for (Comm *c : t_destroy) {
        c->w->wait([&] { return c->w->s->destroyed >= (uint32_t)c->w->n || now_s() - began > most; });
        if (c->w->s->destroyed < (uint32_t)c->w->n) die("ncclCommDestroy waits for the other ranks, which do not come");
        delete c;
    }
    t_destroy.clear();
    return 0;
}
static int nccl_init_rank(Comm **c, int n, UniqueId id, int rank) {
    if (n > WORLD_MOST || rank < 0 || rank >= n) die("NCCL: rank %d of %d", rank, n);
    nccl_group_start();
    {
        std::lock_guard<std::mutex> l(g_worlds_mu);
        std::shared_ptr<World> w = g_worlds[id.name].lock();
        if (!w) g_worlds[id.name] = w = std::make_shared<World>(id.name, n);
        t_init.push_back(*c = new Comm{w, id.name, rank});
    }
    return nccl_group_end();
}
static int nccl_destroy(Comm *c) {
    nccl_group_start();
    t_destroy.push_back(c);
    return nccl_group_end();
}
static int nccl_abort(Comm *c) {
    c->w->aborted = true;
    g_let_go++;
    delete c;
    return 0;
}
static int nccl_async_error(Comm *, int *e) { return *e = 0; }
static const char *nccl_error_string(int r) { return r ? "error of the emulated NCCL" : "no error"; }
static int coll(Comm *c, cudaStream_t st, long sig, function<void(World *, int)> f) {
    std::shared_ptr<World> w = c->w;
    int rank = c->rank;
    if (!(c->kinds >> (sig & 15) & 1)) { // all ranks connect, in the threads that call
        c->kinds |= 1l << (sig & 15);
        w->s->connected[sig & 15]++;
        if (!w->wait([&] { return w->s->connected[sig & 15] >= (uint32_t)w->n; })) return 1;
    }
    enqueue(st, [=] {
        if (env_int("CUEMU_DEAD_RANK", -1) == rank) return w->hang();
        w->s->sig[rank] = sig;
        if (!w->meet()) return;
        for (int i = 0; i < w->n; i++)
            if (w->s->sig[i] != sig) die("NCCL: ranks %d and %d meet in different collectives or sizes", rank, i);
        if (w->meet()) f(w.get(), rank);
    });
    return 0;
}
// Calls f(box of a rank, where the piece lies, its bytes, rank) for every piece of b bytes and every rank, in their order.
template <class F> static void pieces(World *w, int rank, const void *mine, size_t b, F f) {
    for (size_t at = 0; at < b; at += WORLD_BOX) {
        size_t n = std::min(b - at, (size_t)WORLD_BOX);
        memcpy(w->s->box[rank], (const char *)mine + at, n);
        if (!w->meet()) return;
        for (int k = 0; k < w->n; k++) f(w->s->box[k], at, n, k);
        if (!w->meet()) return;
    }
}
static int nccl_all_reduce(const void *s, void *d, size_t n, int type, int op, Comm *c, cudaStream_t st) {
    if (type != 7 || op != 0) die("NCCL: only sums of f32 are emulated");
    return coll(c, st, 1 + 16 * (long)n, [=](World *w, int r) {
        pieces(w, r, s, n * 4, [=](const char *box, size_t at, size_t bytes, int k) {
            float *to = (float *)((char *)d + at);
            for (size_t i = 0; i < bytes / 4; i++) to[i] = (k ? to[i] : 0) + ((const float *)box)[i];
        });
    });
}
static int nccl_all_gather(const void *s, void *d, size_t n, int type, Comm *c, cudaStream_t st) {
    size_t b = n * (type == 7 ? 4 : 1);
    return coll(c, st, 2 + 16 * (long)b, [=](World *w, int r) {
        pieces(w, r, s, b, [=](const char *box, size_t at, size_t bytes, int k) { memcpy((char *)d + (size_t)k * b + at, box, bytes); });
    });
}
// A sender waits until its memory was read, a receiver until there is some.
static int nccl_send(const void *s, size_t n, int type, int peer, Comm *c, cudaStream_t st) {
    if (type != 0) die("NCCL: only bytes are sent");
    std::shared_ptr<World> w = c->w;
    int rank = c->rank;
    enqueue(st, [=] {
        if (env_int("CUEMU_DEAD_RANK", -1) == rank) return w->hang();
        Shared::Mail &m = w->s->mail[rank][peer];
        for (size_t at = 0; at < n; at += WORLD_BOX) {
            m.n = n;
            memcpy(m.box, (const char *)s + at, std::min(n - at, (size_t)WORLD_BOX));
            m.full = 1;
            if (!w->wait([&] { return !m.full; })) return;
        }
    });
    return 0;
}
static int nccl_receive(void *d, size_t n, int type, int peer, Comm *c, cudaStream_t st) {
    if (type != 0) die("NCCL: only bytes are received");
    std::shared_ptr<World> w = c->w;
    int rank = c->rank;
    enqueue(st, [=] {
        if (env_int("CUEMU_DEAD_RANK", -1) == rank) return w->hang();
        Shared::Mail &m = w->s->mail[peer][rank];
        for (size_t at = 0; at < n; at += WORLD_BOX) {
            if (!w->wait([&] { return m.full == 1; })) return;
            if (m.n != n) die("NCCL: rank %d sends %zu bytes, rank %d expects %zu", peer, (size_t)m.n, rank, n);
            memcpy((char *)d + at, m.box, std::min(n - at, (size_t)WORLD_BOX));
            m.full = 0;
        }
    });
    return 0;
}
void *cuemu::nccl_symbol(const char *name) {
    /* clang-format off */
    static const struct {
        const char *name;
        void *f;
    } table[] = {{"ncclGetUniqueId", (void *)nccl_unique_id},    {"ncclCommInitRank", (void *)nccl_init_rank},
                 {"ncclCommDestroy", (void *)nccl_destroy},
                 {"ncclCommAbort", (void *)nccl_abort},           {"ncclCommGetAsyncError", (void *)nccl_async_error},
                 {"ncclGetErrorString", (void *)nccl_error_string}, {"ncclAllReduce", (void *)nccl_all_reduce},
                 {"ncclAllGather", (void *)nccl_all_gather},      {"ncclSend", (void *)nccl_send},
                 {"ncclRecv", (void *)nccl_receive},
                 {"ncclGroupStart", (void *)nccl_group_start},    {"ncclGroupEnd", (void *)nccl_group_end}};
    /* clang-format on */
    for (auto &t : table)
        if (!strcmp(t.name, name)) return t.f;
    return nullptr;
}

/* ---- cuBLASLt: products of 16-bit floats and of e4m3 with f32 sums, as llm_cuda.cu asks for them; anything else ends the process ---- */
struct Layout {
    int type;
    uint64_t rows, cols;
    int64_t stride;
};
static int lt_create(void **h) {
    *h = new char;
    return 0;
}
static int lt_destroy(void *h) {
    delete (char *)h;
    return 0;
}
static int lt_product(void **p, int compute, int scale) {
    static char one;
    *p = &one;
    return compute != 68 || scale != 0 ? 7 : 0;
}
static int lt_product_set(void *, int attribute, const void *value, size_t n) {
    return attribute == 3 && n == 4 && *(const int *)value == 1 ? 0 : 7;
}
static int lt_layout(void **l, int type, uint64_t rows, uint64_t cols, int64_t stride) {
    if ((type != 0 && type != 2 && type != 14 && type != 28) || !rows || !cols || stride < (int64_t)rows) return 7;
    *l = new Layout{type, rows, cols, stride};
    return 0;
}
static int lt_layout_free(void *l) {
    delete (Layout *)l;
    return 0;
}
// An algorithm is for the sizes and the workspace that it was asked for, and fewer columns; some it refuses.
struct Algorithm {
    uint64_t type, rows, cols, depth, strides, workspace, none[2];
};
static Algorithm lt_algorithm(const Layout &A, const Layout &B, const Layout &D, size_t workspace) {
    return {(uint64_t)A.type, A.cols, B.cols, A.rows, (uint64_t)(B.stride << 32 ^ D.stride), workspace, {}};
}
static int lt_wish(void **w) {
    *w = new size_t(0);
    return 0;
}
static int lt_wish_set(void *w, int attribute, const void *value, size_t n) {
    if (attribute != 1 || n != sizeof(size_t)) return 7;
    memcpy(w, value, n);
    return 0;
}
static int lt_wish_free(void *w) {
    delete (size_t *)w;
    return 0;
}
static int lt_ask(void *, void *, void *al, void *bl, void *cl, void *dl, void *wish, int wanted, char *to, int *n) {
    if (cl != dl || wanted != 1) return 7;
    __atomic_add_fetch(&cuemu_asked, 1, __ATOMIC_RELAXED);
    const Algorithm a = lt_algorithm(*(Layout *)al, *(Layout *)bl, *(Layout *)dl, *(size_t *)wish);
    memset(to, 0, 96);
    memcpy(to, &a, sizeof a);
    memcpy(to + 64, &a.workspace, 8);
    return *n = 1, 0;
}
static int lt_multiply(void *, void *, const void *alpha, const void *a, void *al, const void *b, void *bl, const void *beta, const void *c,
                       void *cl, void *d, void *dl, const void *how, void *, size_t workspace, cudaStream_t st) {
    Layout A = *(Layout *)al, B = *(Layout *)bl, D = *(Layout *)dl;
    float beta1 = *(const float *)beta;
    size_t bytes = A.type == 28 ? 1 : 2;
    if (how) {
        Algorithm want = lt_algorithm(A, B, D, workspace), has = *(const Algorithm *)how;
        if (want.cols > has.cols || 4 * want.cols < 3 * has.cols || want.cols % 16 == 13) return 15;
        want.cols = has.cols;
        if (memcmp(&want, &has, sizeof has)) die("cuBLASLt: an algorithm that was asked for another product");
    }
    if (bytes == 1 && (A.rows % 16 || A.cols % 16 || D.stride % 4)) return 7; // what its manual asks for
    if (*(const float *)alpha != 1 || c != d || cl != dl || A.type != B.type || !A.type || D.type || A.rows != B.rows || A.cols != D.rows ||
        B.cols != D.cols || (size_t)a % 16 || (size_t)b % 16)
        return 7;
    if (dev_of(a, ((A.cols - 1) * A.stride + A.rows) * bytes) != t_dev || dev_of(b, ((B.cols - 1) * B.stride + B.rows) * bytes) != t_dev ||
        dev_of(d, ((D.cols - 1) * D.stride + D.rows) * 4) != t_dev)
        return 7;
    enqueue(st, [=] {
        auto wide = [=](const void *p, uint64_t i) {
            unsigned h = bytes == 1 ? ((const uint8_t *)p)[i] : ((const uint16_t *)p)[i];
            if (A.type == 2) return cuemu_half_to_float((uint16_t)h);
            if (A.type == 14) return __uint_as_float(h << 16);
            return (h & 127) == 127 ? NAN : __uint_as_float((h & 128) << 24 | (h & 127) << 20) * 0x1p120f;
        };
        std::vector<float> row(B.rows);
        for (uint64_t n = 0; n < D.cols; n++) {
            for (uint64_t k = 0; k < B.rows; k++) row[k] = wide(b, n * B.stride + k);
            for (uint64_t m = 0; m < D.rows; m++) {
                float sum = 0, *to = (float *)d + n * D.stride + m;
                for (uint64_t k = 0; k < B.rows; k++) sum += wide(a, m * A.stride + k) * row[k];
                *to = beta1 ? beta1 * *to + sum : sum;
            }
        }
    });
    return 0;
}
void *cuemu::cublas_symbol(const char *name) {
    static const struct {
        const char *name;
        void *f;
    } table[] = {{"cublasLtCreate", (void *)lt_create},
                 {"cublasLtDestroy", (void *)lt_destroy},
                 {"cublasLtMatmulDescCreate", (void *)lt_product},
                 {"cublasLtMatmulDescSetAttribute", (void *)lt_product_set},
                 {"cublasLtMatrixLayoutCreate", (void *)lt_layout},
                 {"cublasLtMatrixLayoutDestroy", (void *)lt_layout_free},
                 {"cublasLtMatmul", (void *)lt_multiply},
                 {"cublasLtMatmulPreferenceCreate", (void *)lt_wish},
                 {"cublasLtMatmulPreferenceSetAttribute", (void *)lt_wish_set},
                 {"cublasLtMatmulPreferenceDestroy", (void *)lt_wish_free},
                 {"cublasLtMatmulAlgoGetHeuristic", (void *)lt_ask}};
    if (getenv("CUEMU_OLD_CUBLAS") && strstr(name, "Heuristic")) return nullptr;
    for (auto &t : table)
        if (!strcmp(t.name, name)) return t.f;
    return nullptr;
}
#ifdef CUEMU_COUNT
#include "count.h"
#endif
