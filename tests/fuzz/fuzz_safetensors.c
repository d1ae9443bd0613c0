/* Fuzzes the safetensors reader on memory. The tensors of an accepted file cover its data exactly. */
#define LLM_IMPLEMENTATION
#include "../../llm.h"

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
    }
    llm__tensors_free(&t);
    return 0;
}
