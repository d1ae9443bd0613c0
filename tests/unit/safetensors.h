/* Safetensors files of floats, written tensor by tensor. */
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
#include "folder.h"

typedef struct safe_file {
    llm_text head, data;
} safe_file;

/* Adds a tensor (rows, cols) of a type of 4 bytes, or with cols 0 a vector. */
static inline void safe_add_as(safe_file *s, const char *name, const char *type, int rows, int cols, const void *values) {
    const size_t bytes = 4 * (size_t)rows * (size_t)(cols ? cols : 1);
    char line[400], shape[32];
    if (!s->head.len) llm_text_add(&s->head, "12345678{", 9); /* its length comes first */
    snprintf(shape, sizeof shape, cols ? "%d,%d" : "%d", rows, cols);
    snprintf(line, sizeof line, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", s->head.len > 9 ? "," : "", name,
             type, shape, s->data.len, s->data.len + bytes);
    llm_text_str(&s->head, line);
    llm_text_add(&s->data, (const char *)values, bytes);
}

/* Of floats. */
static inline void safe_add(safe_file *s, const char *name, int rows, int cols, const float *values) {
    safe_add_as(s, name, "F32", rows, cols, values);
}

/* Writes the file, and forgets what was added. */
static inline void safe_write(safe_file *s, const test_folder *f, const char *name) {
    if (!s->head.len) llm_text_add(&s->head, "12345678{", 9);
    llm_text_str(&s->head, "}");
    while (s->head.len % 8) llm_text_str(&s->head, " ");
    const uint64_t size = s->head.len - 8;
    for (int i = 0; i < 8; i++) s->head.data[i] = (char)(size >> 8 * i);
    if (s->data.len) llm_text_add(&s->head, s->data.data, s->data.len);
    folder_write(f, name, s->head.data, s->head.len);
    llm_text_free(&s->head);
    llm_text_free(&s->data);
}

/* n different numbers between -1 and 1, the same for the same seed. */
static inline void safe_numbers(uint64_t seed, int n, float *out) {
    for (int i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        out[i] = (float)(int32_t)(seed >> 32) / 2147483648.0f;
    }
}

#endif
