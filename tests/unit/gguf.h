/* GGUF files, written piece by piece: head, keys, tensors' names and places, data. */
#ifndef GGUF_H
#define GGUF_H
#include "test.h"
#include "model/gguf.h"

static inline void gguf_u(llm_text *t, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++, v >>= 8) {
        char c = (char)(v & 255);
        llm_text_add(t, &c, 1);
    }
}

static inline void gguf_str(llm_text *t, const char *s) {
    gguf_u(t, strlen(s), 8);
    llm_text_str(t, s);
}

static inline llm_text gguf_head(uint64_t version, uint64_t n_tensors, uint64_t n_kv) {
    llm_text t = LLM__ZERO;
    llm_text_str(&t, "GGUF");
    gguf_u(&t, version, 4);
    gguf_u(&t, n_tensors, 8);
    gguf_u(&t, n_kv, 8);
    return t;
}

static inline void gguf_kv(llm_text *t, const char *key, uint32_t type, uint64_t value, int bytes) {
    gguf_str(t, key);
    gguf_u(t, type, 4);
    gguf_u(t, value, bytes);
}

static inline void gguf_kv_str(llm_text *t, const char *key, const char *value) {
    gguf_str(t, key);
    gguf_u(t, LLM__GGUF_STR, 4);
    gguf_str(t, value);
}

static inline void gguf_kv_array(llm_text *t, const char *key, uint32_t type, uint64_t count) {
    gguf_str(t, key);
    gguf_u(t, LLM__GGUF_ARRAY, 4);
    gguf_u(t, type, 4);
    gguf_u(t, count, 8);
}

static inline void gguf_tensor(llm_text *t, const char *name, uint32_t n_dims, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset) {
    gguf_str(t, name);
    gguf_u(t, n_dims, 4);
    for (uint32_t i = 0; i < n_dims && i < 8; i++) gguf_u(t, i == 0 ? d0 : i == 1 ? d1 : 1, 8);
    gguf_u(t, type, 4);
    gguf_u(t, offset, 8);
}

#endif
