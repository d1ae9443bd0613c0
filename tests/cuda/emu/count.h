/* count.h - what kernels ask of memory, a warp at a time, as a device would see it. Part of cuda_emu.cpp, built with -DCUEMU_COUNT; the
 * kernels are built with -fsanitize=thread, whose calls before each access end here instead of in a sanitizer.
 *
 * The k-th time that the lanes of a warp come to one instruction since they last met is one access of the warp. In device memory it takes as many
 * sectors of 32 bytes as it touches; least is what its bytes would fill. In shared memory it takes as many rounds as the words that one of
 * the 32 banks must give, by quarters of the warp if lanes take 16 bytes and by halves if 8; least is one a part. Neighbouring accesses of a
 * lane from one instruction to the next, within 16 bytes, are one: the compiler for the CPU takes vectors apart, one for a GPU does not.
 *
 * With CUEMU_COUNTS naming a file, it is written at the end, a line each: "k KERNEL LAUNCHES BLOCKS" and "a KERNEL INSTRUCTION SPACE ACCESSES UNITS
 * LEAST BYTES", addresses as offsets in the library, SPACE gr, gw, sr, sw: device or shared memory, read or written. */
#include <malloc.h>
namespace cuemu {
struct Note {
    uintptr_t pc, from, addr;
    uint32_t epoch, occurrence;
    uint16_t warp;
    uint8_t lane, size, space; // space: 1 written, 2 shared
};
struct Sum {
    uint64_t accesses = 0, units = 0, least = 0, bytes = 0;
};
static std::mutex g_count;
static std::map<std::tuple<uintptr_t, uintptr_t, int>, Sum> g_sums; // by kernel, instruction, space
static std::map<uintptr_t, std::pair<uint64_t, uint64_t>> g_ran;    // launches and blocks of a kernel
static thread_local std::vector<Note> t_notes;
static thread_local std::vector<int> t_last; // of each thread of the block, its latest note

static int shared_space(uintptr_t a) {
    if (B->dyn && a >= (uintptr_t)B->dyn && a < (uintptr_t)B->dyn + B->dyn_n) return 1;
    for (auto &s : B->statics)
        if (a >= (uintptr_t)s.second.second && a < (uintptr_t)s.second.second + malloc_usable_size(s.second.second)) return 1;
    return 0;
}
static int device_space(uintptr_t a) {
    static thread_local uintptr_t lo, hi;
    if (a >= lo && a < hi) return 1;
    std::lock_guard<std::mutex> l(g_mu);
    auto i = g_mem.upper_bound(a);
    if (i == g_mem.begin() || a >= std::prev(i)->first + std::prev(i)->second.first) return 0;
    lo = std::prev(i)->first, hi = lo + std::prev(i)->second.first;
    return 1;
}
void count_access(const void *p, size_t n, int written, const void *pc) {
    Block *b = B;
    if (!b || !b->cur || !b->name) return;
    Fiber *f = b->cur;
    uintptr_t a = (uintptr_t)p;
    if (a >= (uintptr_t)f->stack && a < (uintptr_t)f->stack + STACK) return;
    int shared = shared_space(a);
    if (!shared && !device_space(a)) return;
    if ((int)t_last.size() < b->nthr) t_last.resize(b->nthr, -1);
    int &last = t_last[f->lin], space = written | shared << 1;
    if (last >= 0) {
        Note &m = t_notes[last];
        if (m.epoch == f->epoch && m.space == space && m.addr + m.size == a && m.size + n <= 16 && m.addr / 16 == a / 16 &&
            m.from != (uintptr_t)pc) {
            m.size += (uint8_t)n;
            m.from = (uintptr_t)pc;
            return;
        }
    }
    last = (int)t_notes.size();
    t_notes.push_back({(uintptr_t)pc, (uintptr_t)pc, a, f->epoch, 0, (uint16_t)f->warp, (uint8_t)f->lane, (uint8_t)n, (uint8_t)space});
}
// One access of a warp: notes [first, end).
static void count_warp(const Note *first, const Note *end, Sum &s) {
    uint64_t bytes = 0;
    uint32_t widest = 0;
    std::vector<uintptr_t> at;
    for (const Note *n = first; n < end; n++) {
        bytes += n->size;
        widest = std::max<uint32_t>(widest, n->size);
    }
    s.accesses++;
    s.bytes += bytes;
    const bool shared = first->space & 2;
    const int parts = !shared || widest <= 4 ? 1 : widest <= 8 ? 2 : 4;
    for (int q = 0; q < parts; q++) {
        at.clear();
        const uintptr_t unit = shared ? 4 : 32;
        for (const Note *n = first; n < end; n++)
            if (n->lane * parts / 32 == q)
                for (uintptr_t u = n->addr / unit; u <= (n->addr + n->size - 1) / unit; u++) at.push_back(u);
        if (at.empty()) continue;
        std::sort(at.begin(), at.end());
        at.erase(std::unique(at.begin(), at.end()), at.end());
        if (!shared) {
            std::vector<std::pair<uintptr_t, uintptr_t>> each; // bytes that differ
            uint64_t differ = 0;
            uintptr_t done = 0;
            for (const Note *n = first; n < end; n++) each.push_back({n->addr, n->addr + n->size});
            std::sort(each.begin(), each.end());
            for (auto &e : each) {
                if (e.second > done) differ += e.second - std::max(done, e.first);
                done = std::max(done, e.second);
            }
            s.units += at.size();
            s.least += (differ + 31) / 32;
            continue;
        }
        unsigned banks[32] = {}, most = 0;
        for (uintptr_t w : at) most = std::max(most, ++banks[w % 32]);
        s.units += most;
        s.least++;
    }
}
static void count_block(const void *kernel) {
    auto &v = t_notes;
    auto same = [](const Note &a, const Note &b) { return a.warp == b.warp && a.epoch == b.epoch && a.pc == b.pc && a.space == b.space; };
    auto less = [&](const Note &a, const Note &b) {
        return a.warp != b.warp               ? a.warp < b.warp
               : a.epoch != b.epoch           ? a.epoch < b.epoch
               : a.pc != b.pc                 ? a.pc < b.pc
               : a.space != b.space           ? a.space < b.space
               : a.occurrence != b.occurrence ? a.occurrence < b.occurrence
                                              : a.lane < b.lane;
    };
    std::stable_sort(v.begin(), v.end(), less);
    for (size_t i = 1; i < v.size(); i++)
        if (same(v[i], v[i - 1]) && v[i].lane == v[i - 1].lane) v[i].occurrence = v[i - 1].occurrence + 1;
    std::stable_sort(v.begin(), v.end(), less);
    std::lock_guard<std::mutex> l(g_count);
    g_ran[(uintptr_t)kernel].second++;
    for (size_t i = 0, j; i < v.size(); i = j) {
        for (j = i + 1; j < v.size() && same(v[j], v[i]) && v[j].occurrence == v[i].occurrence;) j++;
        count_warp(&v[i], &v[0] + j, g_sums[{(uintptr_t)kernel, v[i].pc, v[i].space}]);
    }
    v.clear();
    t_last.assign(t_last.size(), -1);
}
static void count_launch(const void *kernel) {
    std::lock_guard<std::mutex> l(g_count);
    g_ran[(uintptr_t)kernel].first++;
}
static struct Counts {
    ~Counts() {
        const char *name = getenv("CUEMU_COUNTS");
        FILE *f = name ? fopen(name, "w") : nullptr;
        Dl_info di;
        if (!f || !dladdr((const void *)count_launch, &di)) return;
        uintptr_t base = (uintptr_t)di.dli_fbase;
        for (auto &k : g_ran)
            fprintf(f, "k %lx %llu %llu\n", k.first - base, (unsigned long long)k.second.first, (unsigned long long)k.second.second);
        static const char *const spaces[] = {"gr", "gw", "sr", "sw"};
        for (auto &s : g_sums)
            fprintf(f, "a %lx %lx %s %llu %llu %llu %llu\n", std::get<0>(s.first) - base, std::get<1>(s.first) - base - 1,
                    spaces[std::get<2>(s.first)], (unsigned long long)s.second.accesses, (unsigned long long)s.second.units,
                    (unsigned long long)s.second.least, (unsigned long long)s.second.bytes);
        fclose(f);
    }
} g_counts;
} // namespace cuemu

extern "C" {
#define CUEMU_PC __builtin_return_address(0)
#define CUEMU_SIZED(n) \
    void __tsan_read##n(void *p) { cuemu::count_access(p, n, 0, CUEMU_PC); } \
    void __tsan_write##n(void *p) { cuemu::count_access(p, n, 1, CUEMU_PC); } \
    void __tsan_unaligned_read##n(void *p) { cuemu::count_access(p, n, 0, CUEMU_PC); } \
    void __tsan_unaligned_write##n(void *p) { cuemu::count_access(p, n, 1, CUEMU_PC); } \
    void __tsan_volatile_read##n(void *p) { cuemu::count_access(p, n, 0, CUEMU_PC); } \
    void __tsan_volatile_write##n(void *p) { cuemu::count_access(p, n, 1, CUEMU_PC); }
/* clang-format off */
CUEMU_SIZED(1) CUEMU_SIZED(2) CUEMU_SIZED(4) CUEMU_SIZED(8) CUEMU_SIZED(16)
    /* clang-format on */
    void __tsan_read_range(void *, size_t) {} // objects that no device reads at once
void __tsan_write_range(void *, size_t) {}
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
uint32_t __tsan_atomic32_load(const uint32_t *p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
uint32_t __tsan_atomic32_exchange(uint32_t *p, uint32_t v, int) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
uint32_t __tsan_atomic32_fetch_add(uint32_t *p, uint32_t v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
void __tsan_atomic32_store(uint32_t *p, uint32_t v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
}
