/* Fuzzes the GGUF reader on memory. What it accepts must be readable to the last byte, and tensors must not overlap.
 * One mutation in 64 starts again from the good file of tests/unit/model/test_formats.c, so that mutants get past the header. */
#include "../unit/model/test_formats.c"

static void fuzz_check(int ok) {
    if (!ok) __builtin_trap();
}

static uint64_t fuzz_keys(const llm__gguf *g) {
    uint64_t sum = 0;
    for (size_t i = 0; i < g->n_kv; i++) {
        const llm__gguf_kv *kv = &g->kv[i];
        double d = 0;
        for (uint64_t k = 0; k < kv->count; k++) sum += llm__gguf_num_at(kv, k, &d) ? (uint64_t)(d > 0) : 0;
        fuzz_check(!llm__gguf_num_at(kv, kv->count, &d));
        if (kv->type != LLM__GGUF_STR || kv->count > 100000) continue;
        const uint8_t *at = kv->data;
        for (uint64_t k = 0; k < kv->count; k++) {
            llm__str s = llm__gguf_string(&at);
            for (size_t j = 0; j < s.n; j++) sum += (uint8_t)s.p[j];
        }
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static volatile uint64_t keep;
    llm__gguf g;
    llm__tensors t;
    memset(&t, 0, sizeof t);
    if (!llm__gguf_parse("fuzz", data, size, &g, &t)) {
        uint64_t sum = fuzz_keys(&g), total = 0;
        for (size_t i = 0; i < t.n; i++) {
            const llm__tensor *x = &t.item[i];
            fuzz_check(llm__tensors_find(&t, x->name.p) == x && x->data >= data && (uint64_t)x->bytes <= size - (uint64_t)(x->data - data));
            total += (uint64_t)x->bytes;
            for (int64_t k = 0; k < x->bytes; k++) sum += x->data[k];
        }
        fuzz_check(total <= size);
        keep = sum;
        (void)keep;
    }
    llm__gguf_free(&g);
    llm__tensors_free(&t);
    return 0;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    if (seed % 64 == 0) {
        llm_text good = fmt_small_gguf(3);
        size = LLM__MIN(good.len, max_size);
        memcpy(data, good.data, size);
        llm_text_free(&good);
    }
    return LLVMFuzzerMutate(data, size, max_size);
}
