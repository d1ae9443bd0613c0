/* Fuzzes the reader of torch.save's files on memory. What begins with 0x80 and is no old file is a pickle, put into a zip with one storage of six
 * floats, so that mutants need not keep a directory in order. Every byte of an accepted tensor is read. */
#include "../unit/model/test_torch.c"

static void fuzz_check(int ok) {
    if (!ok) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static volatile uint64_t keep;
    llm__tensors t = LLM__ZERO;
    llm__arena copies = LLM__ZERO;
    const int pickle = size && data[0] == 0x80 && !llm__torch_is(data, size);
    llm_text made = LLM__ZERO;
    if (pickle) made = tor_file(data, size);
    else llm_text_add(&made, (const char *)data, size);
    if (size && !llm__torch_parse("fuzz", (const uint8_t *)made.data, made.len, &copies, &t)) {
        uint64_t sum = 0;
        for (size_t i = 0; i < t.n; i++) {
            const llm__tensor *x = &t.item[i];
            int64_t elements = 1;
            for (int k = 0; k < 4; k++) elements *= x->shape[k];
            fuzz_check(llm__tensors_find(&t, x->name.p) == x && x->n_dims <= 4 && elements * llm__type_info(x->type)->bytes == x->bytes);
            fuzz_check(x->bytes <= (int64_t)made.len);
            for (int64_t k = 0; k < x->bytes; k++) sum += x->data[k];
        }
        fuzz_check(copies.total <= 4 * made.len + (1 << 16));
        keep = sum;
        (void)keep;
    }
    llm__tensors_free(&t);
    llm__arena_free(&copies);
    llm_text_free(&made);
    return 0;
}
