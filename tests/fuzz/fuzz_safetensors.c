/* Fuzzes the safetensors reader on memory. The tensors of an accepted file cover its data exactly.
 * One mutation in 64 starts again from the good file of tests/unit/model/test_formats.c; most mutants get the right header length, so that the JSON is
 * read. */
#include "../unit/model/test_formats.c"

static void fuzz_check(int ok) {
    if (!ok) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static volatile uint64_t keep;
    llm__tensors t;
    memset(&t, 0, sizeof t);
    if (!llm__safetensors_parse("fuzz", data, size, &t)) {
        uint64_t sum = 0, total = 0;
        for (size_t i = 0; i < t.n; i++) {
            const llm__tensor *x = &t.item[i];
            int64_t elements = 1;
            for (int k = 0; k < 4; k++) elements *= x->shape[k];
            fuzz_check(llm__tensors_find(&t, x->name.p) == x && x->n_dims <= 4 && elements * llm__type_info(x->type)->bytes == x->bytes);
            for (int64_t k = 0; k < x->bytes; k++) sum += x->data[k];
            total += (uint64_t)x->bytes;
        }
        fuzz_check(total == size - 8 - llm__load_le(data, 8));
        keep = sum;
        (void)keep;
    }
    llm__tensors_free(&t);
    return 0;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    if (seed % 64 == 0) {
        llm_text good = fmt_safe(fmt_safe_good, 21);
        size = LLM__MIN(good.len, max_size);
        memcpy(data, good.data, size);
        llm_text_free(&good);
    }
    if (seed % 8 == 1 || size < 29 || max_size < 64) return LLVMFuzzerMutate(data, size, max_size);
    size_t header = LLVMFuzzerMutate(data + 8, size - 29, max_size - 29); /* 21 bytes of data stay behind it */
    memset(data + 8 + header, 0, 21);
    for (int i = 0; i < 8; i++) data[i] = (uint8_t)((uint64_t)header >> 8 * i);
    return header + 29;
}
