#include "cpu/packed.h"
#include "base/platform.h"
#include "cpu/dtypes.h"

LLM__PRIVATE size_t llm__act_place(llm__act *a, uint8_t *memory, size_t blocks) {
    size_t n = (blocks + 15) & ~(size_t)15; /* each part starts on a cache line */
    if (memory) {
        a->q = (int8_t *)memory;
        a->d = (float *)(void *)(memory + n * 32);
        a->s = a->d + n;
        a->n = (int32_t *)(void *)(a->s + 2 * n);
    }
    return n * (32 + 20);
}

/* ---- Packed weights ---- */

LLM__PRIVATE int64_t llm__kind_row_bytes(llm__kind kind, int64_t cols, int pair) {
    int64_t blocks = cols / 32, supers = (blocks + LLM__SUPER - 1) / LLM__SUPER;
    int64_t n = llm__kind_is_float(kind) ? cols * LLM__ROWS * llm__kind_info(kind).bits / 8
                                         : blocks * llm__kind_block(kind) + supers * llm__kind_head(kind);
    if (kind == LLM__KIND_F8) n += (cols + LLM__F8_COLS - 1) / LLM__F8_COLS * 64;
    return (n * pair + 63) & ~(int64_t)63;
}
