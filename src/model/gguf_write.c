#include "model/gguf_write.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"
#include "cpu/dtypes.h"
#include "model/gguf.h"

LLM__PRIVATE void llm__gguf_put_number(llm_text *t, uint64_t v, int bytes) {
    char c[8];
    for (int i = 0; i < bytes; i++) c[i] = (char)(v >> 8 * i & 255);
    llm_text_add(t, c, (size_t)bytes);
}

LLM__PRIVATE void llm__gguf_put_text(llm_text *t, llm__str s) {
    llm__gguf_put_number(t, s.n, 8);
    llm__add_str(t, s);
}

static void llm__gguf_put_key(llm_text *keys, const char *key, int32_t type) {
    llm__gguf_put_text(keys, llm__lit(key));
    llm__gguf_put_number(keys, (uint64_t)type, 4);
}

LLM__PRIVATE void llm__gguf_put_int(llm_text *keys, const char *key, int64_t v) {
    llm__gguf_put_key(keys, key, LLM__GGUF_U32);
    llm__gguf_put_number(keys, (uint64_t)v, 4);
}

LLM__PRIVATE void llm__gguf_put_float(llm_text *keys, const char *key, double v) {
    llm__gguf_put_key(keys, key, LLM__GGUF_F32);
    llm__gguf_put_number(keys, llm__f32_bits((float)v), 4);
}

LLM__PRIVATE void llm__gguf_put_bool(llm_text *keys, const char *key, int v) {
    llm__gguf_put_key(keys, key, LLM__GGUF_BOOL);
    llm__gguf_put_number(keys, v != 0, 1);
}

LLM__PRIVATE void llm__gguf_put_str(llm_text *keys, const char *key, llm__str v) {
    llm__gguf_put_key(keys, key, LLM__GGUF_STR);
    llm__gguf_put_text(keys, v);
}

LLM__PRIVATE void llm__gguf_put_array(llm_text *keys, const char *key, int32_t type, uint64_t n) {
    llm__gguf_put_key(keys, key, LLM__GGUF_ARRAY);
    llm__gguf_put_number(keys, (uint64_t)type, 4);
    llm__gguf_put_number(keys, n, 8);
}

LLM__PRIVATE void llm__gguf_put_tensor(llm_text *tensors, llm__str name, int n_dims, const int64_t *shape, int32_t type, uint64_t *at) {
    int64_t values = 1;
    llm__gguf_put_text(tensors, name);
    llm__gguf_put_number(tensors, (uint64_t)n_dims, 4);
    for (int d = n_dims - 1; d >= 0; d--) {
        llm__gguf_put_number(tensors, (uint64_t)shape[d], 8);
        values *= shape[d];
    }
    llm__gguf_put_number(tensors, (uint64_t)type, 4);
    llm__gguf_put_number(tensors, *at, 8);
    *at += (uint64_t)(llm__row_bytes(type, values) + LLM__GGUF_ALIGN - 1) / LLM__GGUF_ALIGN * LLM__GGUF_ALIGN;
}

LLM__PRIVATE void llm__gguf_put_head(llm_text *head, const llm_text *keys, uint64_t n_keys, const llm_text *tensors, uint64_t n_tensors) {
    llm_text_str(head, "GGUF");
    llm__gguf_put_number(head, 3, 4);
    llm__gguf_put_number(head, n_tensors, 8);
    llm__gguf_put_number(head, n_keys, 8);
    llm__add_str(head, llm__text_str(keys));
    llm__add_str(head, llm__text_str(tensors));
    while (!head->failed && head->len % LLM__GGUF_ALIGN) llm__gguf_put_number(head, 0, 1);
}
