/* Model files: small good ones are read exactly, and every way of lying that we know is refused with a sentence.
 *
 * The files are made here, byte by byte. Parsers get exactly sized heap copies, so that a read past the end is seen by -fsanitize=address.
 */
#include "../folder.h"
#include "../gguf.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/text.h"
#include "base/files.h"
#include "base/place.h"
#include "tokenizer/subword.h"
#include "tokenizer/decode.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/source.h"
#include "model/source_open.h"

/* ---- writers ---- */

static void fmt_pad(llm_text *t, size_t to) {
    while (t->len % to) gguf_u(t, 0, 1);
}

static void fmt_zeros(llm_text *t, size_t n) {
    for (size_t i = 0; i < n; i++) gguf_u(t, i * 7 & 255, 1);
}

/* Keys of every type, three tensors; ends with the last tensor's last byte. */
static llm_text fmt_small_gguf(uint32_t version) {
    static const char *const pieces[3] = {"a", "", "xyz"};
    llm_text t = gguf_head(version, 3, 12);
    gguf_kv_str(&t, "general.architecture", "llama");
    gguf_kv(&t, "general.alignment", LLM__GGUF_U32, 64, 4);
    gguf_kv(&t, "t.i8", LLM__GGUF_I8, (uint64_t)-5, 1);
    gguf_kv(&t, "t.u16", LLM__GGUF_U16, 65535, 2);
    gguf_kv(&t, "t.i32", LLM__GGUF_I32, (uint64_t)-70000, 4);
    gguf_kv(&t, "t.i64", LLM__GGUF_I64, (uint64_t)INT64_MIN, 8);
    gguf_kv(&t, "t.u64", LLM__GGUF_U64, UINT64_MAX, 8);
    gguf_kv(&t, "t.f32", LLM__GGUF_F32, 0x3FC00000, 4);
    gguf_kv(&t, "t.f64", LLM__GGUF_F64, 0x3FB999999999999Au, 8);
    gguf_kv(&t, "t.bool", LLM__GGUF_BOOL, 1, 1);
    gguf_kv_array(&t, "t.strings", LLM__GGUF_STR, 3);
    for (int i = 0; i < 3; i++) gguf_str(&t, pieces[i]);
    gguf_kv_array(&t, "t.numbers", LLM__GGUF_I16, 3);
    for (int i = 0; i < 3; i++) gguf_u(&t, (uint64_t)(i - 1), 2);
    gguf_tensor(&t, "q.weight", 2, 32, 2, LLM_TYPE_Q8_0, 0); /* 68 bytes */
    gguf_tensor(&t, "f.weight", 1, 3, 0, LLM_TYPE_F32, 128);
    gguf_tensor(&t, "h.weight", 3, 4, 2, LLM_TYPE_F16, 192);
    fmt_pad(&t, 64);
    fmt_zeros(&t, 192 + 16);
    return t;
}

/* ---- running a parser ---- */

static uint64_t fmt_sum; /* keeps reads from being optimised away */

/* Touches everything a good table gives. */
static void fmt_touch(const llm__gguf *g, const llm__tensors *t) {
    for (size_t i = 0; g && i < g->n_kv; i++) {
        double d;
        for (uint64_t k = 0; k < g->kv[i].count && k < 100; k++) fmt_sum += (uint64_t)llm__gguf_num_at(&g->kv[i], k, &d);
        if (g->kv[i].type != LLM__GGUF_STR) continue;
        const uint8_t *at = g->kv[i].data;
        for (uint64_t k = 0; k < g->kv[i].count; k++) {
            llm__str s = llm__gguf_string(&at);
            fmt_sum += s.n ? (uint8_t)s.p[s.n - 1] : 0;
        }
    }
    for (size_t i = 0; i < t->n; i++)
        if (t->item[i].bytes) fmt_sum += t->item[i].data[0] + (uint64_t)t->item[i].data[t->item[i].bytes - 1];
}

/* Parses an exact copy of n bytes. */
static llm_result fmt_parse(const void *bytes, size_t n, int gguf) {
    uint8_t *copy = (uint8_t *)malloc(n ? n : 1);
    llm__tensors t = {0};
    llm__gguf g = {0};
    memcpy(copy, bytes ? bytes : "", n);
    llm_result r = gguf ? llm__gguf_parse("file", copy, n, &g, &t) : llm__safetensors_parse("file", copy, n, &t);
    if (!r) fmt_touch(&g, &t);
    else CHECK(g.cap <= 32 && t.cap <= 32); /* a refused header made nothing big */
    llm__gguf_free(&g);
    llm__tensors_free(&t);
    free(copy);
    return r;
}

/* The bytes must be refused, with words in the sentence. Frees them. */
static void fmt_refuse(llm_text *t, const char *words, int line) {
    llm_result r = fmt_parse(t->data, t->len, 1);
    int ok = (r == LLM_ERR_FORMAT || r == LLM_ERR_UNSUPPORTED || r == LLM_ERR_LIMIT) && strstr(llm_last_error(), words);
    if (!CHECK(ok)) printf("  line %d: result %d, \"%s\", expected words \"%s\"\n", line, r, r ? llm_last_error() : "", words);
    llm_text_free(t);
}

#define FMT_REFUSE(t, words) fmt_refuse(&(t), words, __LINE__)

/* ---- GGUF ---- */

static void fmt_gguf_good(void) {
    for (uint32_t version = 2; version <= 3; version++) {
        llm_text b = fmt_small_gguf(version);
        llm__gguf g;
        llm__tensors t = {0};
        double v;
        if (!CHECK(!llm__gguf_parse("small", (const uint8_t *)b.data, b.len, &g, &t))) return;
        CHECK(g.n_kv == 12 && g.alignment == 64 && t.n == 3 && g.end == b.len);
        CHECK(llm__str_eq(llm__gguf_str(&g, "general.architecture"), "llama") && !llm__gguf_str(&g, "t.i8").p &&
              !llm__gguf_str(&g, "none").p);
        CHECK(llm__gguf_int(&g, "t.i8", 0) == -5 && llm__gguf_int(&g, "t.u16", 0) == 65535 && llm__gguf_int(&g, "t.i32", 0) == -70000);
        CHECK(llm__gguf_int(&g, "t.i64", 0) == INT64_MIN && llm__gguf_int(&g, "t.u64", 7) == 7 && llm__gguf_int(&g, "t.f32", 7) == 7);
        CHECK(llm__gguf_num_at(llm__gguf_find(&g, "t.f32"), 0, &v) == 1 && v == 1.5);
        CHECK(llm__gguf_num_at(llm__gguf_find(&g, "t.f64"), 0, &v) == 1 && v == 0.1);
        CHECK(llm__gguf_num_at(llm__gguf_find(&g, "t.u64"), 0, &v) == 2 && v == 18446744073709551616.0);
        CHECK(!llm__gguf_num_at(llm__gguf_find(&g, "t.bool"), 0, &v) && !llm__gguf_num_at(NULL, 0, &v));
        CHECK(llm__gguf_bool(&g, "t.bool", -1) == 1 && llm__gguf_bool(&g, "t.i8", -1) == -1 && llm__gguf_int(&g, "t.bool", 9) == 9);
        const llm__gguf_kv *kv = llm__gguf_find(&g, "t.numbers");
        CHECK(kv && kv->is_array && kv->type == LLM__GGUF_I16 && kv->count == 3 && llm__gguf_int(&g, "t.numbers", 5) == 5);
        CHECK(llm__gguf_num_at(kv, 0, &v) == 2 && v == -1 && llm__gguf_num_at(kv, 2, &v) == 2 && v == 1 && !llm__gguf_num_at(kv, 3, &v));
        llm__str s[3];
        kv = llm__gguf_find(&g, "t.strings");
        if (CHECK(kv && kv->count == 3)) {
            const uint8_t *at = kv->data;
            for (int i = 0; i < 3; i++) s[i] = llm__gguf_string(&at);
            CHECK(llm__str_eq(s[0], "a") && llm__str_eq(s[1], "") && llm__str_eq(s[2], "xyz") && !llm__gguf_num_at(kv, 0, &v));
        }
        const llm__tensor *q = llm__tensors_find(&t, "q.weight"), *h = llm__tensors_find(&t, "h.weight");
        CHECK(q && q->type == LLM_TYPE_Q8_0 && q->n_dims == 2 && q->shape[0] == 2 && q->shape[1] == 32 && q->shape[3] == 1 &&
              q->bytes == 68);
        CHECK(h && h->n_dims == 3 && h->shape[0] == 1 && h->shape[1] == 2 && h->shape[2] == 4 && h->bytes == 16 &&
              h->data == (const uint8_t *)b.data + b.len - 16);
        CHECK(!llm__tensors_find(&t, "absent"));
        llm__gguf_free(&g);
        llm__tensors_free(&t);
        llm_text_free(&b);
    }
}

static void fmt_gguf_head(void) {
    static const uint64_t lies[] = {UINT64_MAX, (uint64_t)1 << 63, (uint64_t)100 << 30, 1000000, 1};
    llm_text t = gguf_head(3, 0, 0);
    CHECK(fmt_parse(t.data, t.len, 1) == LLM_OK);
    t.data[0] = 'X';
    FMT_REFUSE(t, "does not start with");
    t = gguf_head(0x03000000, 0, 0);
    FMT_REFUSE(t, "big-endian");
    for (uint32_t v = 0; v < 6; v++) {
        if (v == 2 || v == 3) continue;
        t = gguf_head(v, 0, 0);
        FMT_REFUSE(t, "2 or 3 expected");
    }
    for (int i = 0; i < LLM__COUNT(lies); i++) {
        t = gguf_head(3, 0, lies[i]);
        FMT_REFUSE(t, "keys and 0 tensors claimed, at most 0");
        t = gguf_head(3, lies[i], 0);
        FMT_REFUSE(t, "tensors claimed, at most 0 and 0");
    }
    t = gguf_head(3, 0, 2); /* one key more than there are, with room for it */
    gguf_kv(&t, "a", LLM__GGUF_U8, 1, 1);
    fmt_zeros(&t, 14);
    FMT_REFUSE(t, "truncated or malformed");
}

/* One key, then 64 bytes of padding that a wrong length could run into. */
static void fmt_refuse_key(const char *key, size_t key_len, uint32_t type, const char *words, int line) {
    llm_text t = gguf_head(3, 0, 1);
    gguf_u(&t, key_len, 8);
    llm_text_add(&t, key, LLM__MIN(key_len, LLM__MAX(strlen(key), (size_t)3)));
    gguf_u(&t, type, 4);
    fmt_zeros(&t, 64);
    fmt_refuse(&t, words, line);
}

static void fmt_gguf_keys(void) {
    char *longest = (char *)calloc(1, 65540);
    memset(longest, 'k', 65536);
    fmt_refuse_key("\0\0\0", 0, 4, "no plain text", __LINE__);
    fmt_refuse_key(longest, 65536, 4, "no plain text", __LINE__);
    fmt_refuse_key("abc", UINT64_MAX, 4, "a key", __LINE__);
    fmt_refuse_key("abc", (uint64_t)1 << 63, 4, "a key", __LINE__);
    fmt_refuse_key("\xFFxx", 3, 4, "no plain text", __LINE__);
    fmt_refuse_key("a\0b", 3, 4, "no plain text", __LINE__);
    fmt_refuse_key("a\x1B[2J", 5, 4, "no plain text", __LINE__);
    fmt_refuse_key("a\0\0", 1, 13, "value type 13", __LINE__);
    fmt_refuse_key("a\0\0", 1, UINT32_MAX, "value type 4294967295", __LINE__);
    free(longest);
    llm_text t = gguf_head(3, 0, 2);
    gguf_kv(&t, "same", LLM__GGUF_U8, 1, 1);
    gguf_kv(&t, "same", LLM__GGUF_U8, 1, 1);
    FMT_REFUSE(t, "key same: it is there twice");
}

static void fmt_refuse_value(uint32_t type, uint32_t element, uint64_t count, const char *words, int line) {
    llm_text t = gguf_head(3, 0, 1);
    if (type == LLM__GGUF_ARRAY) gguf_kv_array(&t, "k", element, count);
    else gguf_kv(&t, "k", type, count, 8);
    for (int i = 0; i < 64; i++) gguf_u(&t, 3, 1);
    fmt_refuse(&t, words, line);
}

static void fmt_gguf_values(void) {
    fmt_refuse_value(LLM__GGUF_BOOL, 0, 2, "0 or 1", __LINE__);
    fmt_refuse_value(LLM__GGUF_ARRAY, LLM__GGUF_BOOL, 8, "0 or 1", __LINE__);
    fmt_refuse_value(LLM__GGUF_STR, 0, (uint64_t)1 << 63, "a string", __LINE__);
    fmt_refuse_value(LLM__GGUF_STR, 0, UINT64_MAX, "a string", __LINE__);
    fmt_refuse_value(LLM__GGUF_STR, 0, 65, "a string", __LINE__);
    fmt_refuse_value(LLM__GGUF_ARRAY, LLM__GGUF_ARRAY, 1, "value type 9 is unknown in an array", __LINE__);
    fmt_refuse_value(LLM__GGUF_ARRAY, 13, 1, "value type 13 is unknown in an array", __LINE__);
    fmt_refuse_value(LLM__GGUF_ARRAY, UINT32_MAX, 1, "in an array", __LINE__);
    fmt_refuse_value(LLM__GGUF_ARRAY, LLM__GGUF_U64, (uint64_t)1 << 61, "values are more", __LINE__);
    fmt_refuse_value(LLM__GGUF_ARRAY, LLM__GGUF_STR, (uint64_t)1 << 61, "values are more", __LINE__);
    fmt_refuse_value(LLM__GGUF_ARRAY, LLM__GGUF_U8, UINT64_MAX, "values are more", __LINE__);
    fmt_refuse_value(LLM__GGUF_ARRAY, LLM__GGUF_F32, 17, "values are more", __LINE__);
    static const uint64_t bad[] = {0, 1, 4, 13, 48, 131072, (uint64_t)1 << 30, (uint64_t)1 << 31};
    for (int i = 0; i < LLM__COUNT(bad); i++) {
        llm_text t = gguf_head(3, 0, 1);
        gguf_kv(&t, "general.alignment", LLM__GGUF_U32, bad[i], 4);
        FMT_REFUSE(t, "general.alignment");
    }
    llm_text t = gguf_head(3, 0, 1);
    gguf_kv(&t, "general.alignment", LLM__GGUF_I32, 32, 4);
    FMT_REFUSE(t, "general.alignment");
    t = gguf_head(3, 0, 1);
    gguf_kv_str(&t, "general.alignment", "32");
    FMT_REFUSE(t, "general.alignment");
}

/* One or two tensors with 4096 bytes of data. */
static llm_text fmt_one(const char *name, uint32_t n_dims, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset) {
    llm_text t = gguf_head(3, 1, 0);
    gguf_tensor(&t, name, n_dims, d0, d1, type, offset);
    fmt_pad(&t, 32);
    fmt_zeros(&t, 4096);
    return t;
}

static llm_text fmt_two(const char *name, uint64_t n, uint64_t offset, uint64_t n2, uint64_t offset2) {
    llm_text t = gguf_head(3, 2, 0);
    gguf_tensor(&t, "a", 1, n, 0, LLM_TYPE_I8, offset);
    gguf_tensor(&t, name, 1, n2, 0, LLM_TYPE_I8, offset2);
    fmt_pad(&t, 32);
    fmt_zeros(&t, 4096);
    return t;
}

static void fmt_gguf_tensors(void) {
    static const char long_name[] = "0123456789012345678901234567890123456789012345678901234567890123";
    static const struct {
        const char *name;
        uint32_t n_dims;
        uint64_t d0, d1;
        uint32_t type;
        uint64_t offset;
        const char *words;
    } rows[] = {
        {long_name, 1, 1, 0, 0, 0, "tensor name"},
        {"", 1, 1, 0, 0, 0, "tensor name"},
        {"a\nb", 1, 1, 0, 0, 0, "tensor name"},
        {"x", 0, 1, 0, 0, 0, "dimensions"},
        {"x", 5, 1, 1, 0, 0, "dimensions"},
        {"x", UINT32_MAX, 1, 1, 0, 0, "dimensions"},
        {"x", 1, 0, 0, 0, 0, "dimension 0"},
        {"x", 2, 4, 0, 0, 0, "dimension 0"},
        {"x", 1, UINT64_MAX, 0, 0, 0, "dimension 0"},
        {"x", 2, 4, (uint64_t)1 << 63, 0, 0, "dimension 0"},
        {"x", 1, ((uint64_t)1 << 42) + 1, 0, 0, 0, "truncated"},
        {"x", 2, (uint64_t)1 << 32, (uint64_t)1 << 32, 0, 0, "overflows"},
        {"x", 2, (uint64_t)1 << 31, (uint64_t)1 << 31, 0, 0, "overflows"},
        {"x", 2, ((uint64_t)1 << 62) + 32, 4, LLM_TYPE_Q4_0, 0, "overflows"},
        {"x", 1, INT64_MAX, 0, LLM_TYPE_I8, 0, "beyond any file"},
        {"x", 2, 33, 2, LLM_TYPE_Q4_0, 0, "multiple of 32"},
        {"x", 2, 128, 2, LLM_TYPE_Q4_K, 0, "multiple of 256"},
        {"x", 2, 16, 2, LLM_TYPE_MXFP4, 0, "multiple of 32"},
        {"x", 1, 4, 0, 0, 8, "multiple of 32"},
        {"x", 1, 4, 0, 0, 4096, "truncated"},
        {"x", 1, 1024, 0, 0, 32, "truncated"},
        {"x", 1, 1025, 0, 0, 0, "truncated"},
        {"x", 1, 4, 0, 0, UINT64_MAX - 31, "beyond any file"},
        {"x", 1, 4, 0, 0, (uint64_t)INT64_MAX - 31, "beyond any file"},
        {"x", 1, 4, 0, 99, 8192, "truncated"},
        {"x", 1, 4, 0, UINT32_MAX, 8192, "truncated"},
    };
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_text t = fmt_one(rows[i].name, rows[i].n_dims, rows[i].d0, rows[i].d1, rows[i].type, rows[i].offset);
        fmt_refuse(&t, rows[i].words, -i);
    }
    llm_text t = fmt_two("a", 32, 0, 32, 32);
    FMT_REFUSE(t, "tensor a: it is there twice");
    t = fmt_two("b", 64, 0, 32, 32);
    FMT_REFUSE(t, "overlaps");
    t = fmt_two("b", 32, 64, 65, 0);
    FMT_REFUSE(t, "overlaps");
    t = fmt_two("b", 32, 0, 32, 0);
    FMT_REFUSE(t, "overlaps");
    t = fmt_two("b", ((uint64_t)1 << 63) - 64, 0, ((uint64_t)1 << 63) - 64, 32);
    FMT_REFUSE(t, "");
    t = fmt_two("b", 4000, 64, 32, 0); /* any order, holes, bytes after the last: fine */
    CHECK(fmt_parse(t.data, t.len, 1) == LLM_OK);
    llm_text_free(&t);
    for (int i = 0; i < 3; i++) { /* unknown types are listed */
        static const uint32_t types[3] = {4, 99, 1003};
        t = fmt_one("x", 1, 7, 0, types[i], 0);
        llm__gguf g;
        llm__tensors tensors = {0};
        CHECK(!llm__gguf_parse("x", (const uint8_t *)t.data, t.len, &g, &tensors) && tensors.n == 1 && tensors.item[0].bytes == 0);
        CHECK(!llm__type_info(tensors.item[0].type));
        llm__gguf_free(&g);
        llm__tensors_free(&tensors);
        llm_text_free(&t);
    }
    CHECK(llm__type_info(LLM_TYPE_Q6_K)->bytes == 210 && !llm__type_info(4) && !llm__type_info(-1));
}

/* ---- safetensors ---- */

static llm_text fmt_safe(const char *header, size_t data) {
    llm_text t = {0};
    gguf_u(&t, strlen(header), 8);
    llm_text_str(&t, header);
    fmt_zeros(&t, data);
    return t;
}

static const char fmt_safe_good[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
    "\"s\":{\"dtype\":\"F8_E4M3\",\"shape\":[],\"data_offsets\":[12,13]},\"e\":{\"dtype\":\"I64\",\"shape\":[0,4],\"data_offsets\":[13,13]}"
    ","
    "\"five\":{\"shape\":[2,1,2,1,2],\"data_offsets\":[13,21],\"dtype\":\"BOOL\"}}  ";

static void fmt_safetensors_good(void) {
    llm_text b = fmt_safe(fmt_safe_good, 21);
    llm__tensors t = {0};
    if (!CHECK(!llm__safetensors_parse("good", (const uint8_t *)b.data, b.len, &t))) return;
    const llm__tensor *m = llm__tensors_find(&t, "b"), *s = llm__tensors_find(&t, "s"), *e = llm__tensors_find(&t, "e"),
                      *five = llm__tensors_find(&t, "five");
    CHECK(t.n == 4 && m && m->type == LLM_TYPE_BF16 && m->n_dims == 2 && m->shape[0] == 2 && m->shape[1] == 3 && m->bytes == 12);
    CHECK(m && m->data == (const uint8_t *)b.data + b.len - 21);
    CHECK(s && s->n_dims == 0 && s->bytes == 1 && e && e->bytes == 0 && e->shape[0] == 0 && e->shape[1] == 4);
    CHECK(five && five->n_dims == 4 && five->shape[0] == 2 && five->shape[1] == 2 && five->shape[3] == 2);
    llm__tensors_free(&t);
    llm_text_free(&b);
}

static void fmt_refuse_safe(const char *header, size_t data, const char *words, int line) {
    llm_text t = fmt_safe(header, data);
    llm_result r = fmt_parse(t.data, t.len, 0);
    if (!CHECK(r && strstr(llm_last_error(), words)))
        printf("  line %d: %.80s: result %d, \"%s\", expected \"%s\"\n", line, header, r, r ? llm_last_error() : "", words);
    llm_text_free(&t);
}

#define FMT_T(dtype, shape, begin, end) "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}}"

static void fmt_safetensors_bad(void) {
    /* clang-format off */
    static const struct { const char *header; size_t data; const char *words;
    } rows[] = {
        {"hello there", 0, "'{' expected"},
        {" {}", 0, "'{' expected"},
        {"[]", 0, "'{' expected"},
        {"{not json}", 0, "safetensors header"},
        {"{}x", 0, "safetensors header"},
        {"{}", 1, "none expected"},
        {"{\"x\":3}", 0, "dtype, shape and data_offsets"},
        {"{\"x\":{\"dtype\":\"F32\"}}", 0, "dtype, shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4, "dtype, shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype, shape"},
        {FMT_T("F33", "[1]", 0, 4), 4, "dtype \"F33\""},
        {FMT_T("Q4_0", "[32]", 0, 18), 18, "dtype \"Q4_0\""},
        {FMT_T("F32", "[-1]", 0, 4), 4, "shape"},
        {FMT_T("F32", "[1.5]", 0, 4), 4, "shape"},
        {FMT_T("F32", "[\"1\"]", 0, 4), 4, "shape"},
        {FMT_T("F32", "1", 0, 4), 4, "shape"},
        {FMT_T("F32", "[4294967296,4294967296]", 0, 4), 4, "overflows"},
        {FMT_T("F64", "[2305843009213693952]", 0, 4), 4, "overflows"},
        {FMT_T("U8", "[4294967296,4294967296,0]", 0, 0), 0, "overflows"},
        {FMT_T("U8", "[4294967296,2147483648,2,1,1,1]", 0, 0), 0, "product below 2^63"},
        {FMT_T("F32", "[1]", 4, 0), 4, "data_offsets"},
        {FMT_T("F32", "[1]", -4, 0), 4, "data_offsets"},
        {FMT_T("F32", "[1]", 0, 4.5), 4, "data_offsets"},
        {FMT_T("F32", "[2]", 0, 4), 4, "needs 8"},
        {FMT_T("F32", "[1]", 0, 8), 8, "needs 4"},
        {FMT_T("F32", "[1]", 4, 8), 8, "hole"},
        {FMT_T("F32", "[1]", 0, 4), 3, "truncated"},
        {FMT_T("F32", "[1]", 0, 4), 5, "none expected"},
        {FMT_T("U8", "[1]", 9223372036854775806, 9223372036854775807), 5, ""},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}", 4,
         "twice"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"y\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3,
         "overlaps"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"y\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}", 5,
         "hole"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "tensor name"},
        {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "tensor name"},
    };
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(rows); i++) fmt_refuse_safe(rows[i].header, rows[i].data, rows[i].words, i);
    static const uint64_t lengths[] = {0, 1, 19, 100000001, (uint64_t)1 << 63, UINT64_MAX};
    for (int i = 0; i < LLM__COUNT(lengths); i++) {
        llm_text t = {0};
        gguf_u(&t, lengths[i], 8);
        llm_text_str(&t, "{} 45678901234567");
        CHECK(fmt_parse(t.data, t.len, 0) == LLM_ERR_FORMAT && strstr(llm_last_error(), "header claims"));
        llm_text_free(&t);
    }
    llm_text bomb = {0}; /* 100,000 brackets deep; then only spaces */
    llm_text_str(&bomb, "{\"x\":");
    for (int i = 0; i < 100000; i++) llm_text_str(&bomb, "[");
    fmt_refuse_safe(bomb.data, 0, "nesting", __LINE__);
    memset(bomb.data + 1, ' ', bomb.len - 1);
    fmt_refuse_safe(bomb.data, 0, "safetensors header", __LINE__);
    llm_text_free(&bomb);
}

/* ---- damage ---- */

static uint64_t fmt_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void fmt_damage(const llm_text *good, int gguf) {
    int accepted = 0;
    uint64_t seed = 42;
    for (size_t n = 0; n < good->len; n++) accepted += !fmt_parse(good->data, n, gguf);
    CHECK(accepted == 0); /* cut anywhere: refused */
    CHECK(!fmt_parse(good->data, good->len, gguf));
    for (int i = 0; i < 2000; i++) { /* damaged anywhere: refused or read, never worse */
        char *copy = llm__strndup(good->data, good->len);
        for (uint64_t k = 0, flips = 1 + fmt_random(&seed) % 4; k < flips; k++)
            copy[fmt_random(&seed) % good->len] ^= (char)(1u << fmt_random(&seed) % 8);
        accepted += !fmt_parse(copy, good->len, gguf);
        LLM_FREE(copy);
    }
    CHECK(accepted > 0);
}

/* A real file cut at many places, half of them in its header. */
static void fmt_real_cut(const char *path) {
    llm__file f;
    llm__gguf g;
    llm__tensors t = {0};
    if (!test_made(path, "model")) return;
    if (!CHECK(!llm__file_open(path, 0, 0, &f)) || !CHECK(!llm__gguf_parse(path, f.data, f.size, &g, &t))) return;
    uint64_t header = g.data_at, end = g.end, seed = 7;
    int accepted = 0;
    CHECK(header > 100000 && end <= f.size && t.n > 100);
    llm__gguf_free(&g);
    llm__tensors_free(&t);
    for (int i = 0; i < (TEST_BRIEF ? 100 : 400); i++) {
        uint64_t below = i & 1 ? header : end, r = fmt_random(&seed) << 31 | fmt_random(&seed);
        accepted += llm__gguf_parse(path, f.data, (size_t)(r % below), &g, &t) != LLM_ERR_FORMAT;
        llm__gguf_free(&g);
        llm__tensors_free(&t);
    }
    CHECK(accepted == 0);
    llm__file_close(&f);
}

/* The header of a real file (its first bytes, up to where its data starts), many times with one bit of it flipped: refused or read, never worse.
 * The map is private: the file stays as it is. */
static void fmt_real_flips(const char *path, int gguf) {
    struct stat st;
    llm__gguf g = {0};
    llm__tensors t = {0};
    uint64_t seed = 11;
    int accepted = 0, flips = TEST_BRIEF ? 300 : 2000;
    if (!test_made(path, gguf ? "model" : "checkpoints")) return;
    int fd = open(path, O_RDONLY);
    uint8_t *p = CHECK(!fstat(fd, &st)) ? (uint8_t *)mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (!CHECK(p && p != MAP_FAILED)) return;
    size_t size = (size_t)st.st_size;
    CHECK(!(gguf ? llm__gguf_parse(path, p, size, &g, &t) : llm__safetensors_parse(path, p, size, &t)));
    uint64_t header = gguf ? g.data_at : 8 + llm__load_le(p, 8);
    CHECK(header > 1000 && header < size);
    for (int i = 0; i <= flips; i++) {
        llm__gguf_free(&g);
        llm__tensors_free(&t);
        if (i == flips) break;
        uint64_t at = (fmt_random(&seed) << 31 | fmt_random(&seed)) % (i % 4 ? header : 64), bit = 1u << fmt_random(&seed) % 8;
        p[at] ^= (uint8_t)bit;
        llm_result r = gguf ? llm__gguf_parse(path, p, size, &g, &t) : llm__safetensors_parse(path, p, size, &t);
        if (!r) fmt_touch(gguf ? &g : NULL, &t);
        accepted += !r;
        p[at] ^= (uint8_t)bit;
    }
    CHECK(accepted > flips / 20 && accepted < flips); /* a letter of a token may change, a length may not */
    munmap(p, size);
}

/* The header of a checkpoint's safetensors file cut at every byte, each time in a copy of exactly that size. */
static void fmt_real_header_cut(const char *path) {
    llm__file f;
    int accepted = 0;
    if (!test_made(path, "checkpoints")) return;
    if (!CHECK(!llm__file_open(path, 0, 0, &f))) return;
    size_t header = 8 + (size_t)llm__load_le(f.data, 8);
    CHECK(header > 1000 && header < f.size);
    for (size_t n = 0; n <= header; n++) accepted += !fmt_parse(f.data, n, 0);
    CHECK(accepted == 0);
    llm__file_close(&f);
}

/* ---- folders and files: a scratch folder whose files come and go ---- */

static test_folder fmt_folder;

static const char *fmt_path(const char *name) { return folder_file(&fmt_folder, name); }
static void fmt_put(const char *name, const void *bytes, size_t n) { folder_write(&fmt_folder, name, bytes, n); }
static void fmt_put_text(const char *name, const char *text) { folder_write_text(&fmt_folder, name, text); }

static void fmt_put_all(const char *name, llm_text *t) { /* frees t */
    fmt_put(name, t->data, t->len);
    llm_text_free(t);
}

static void fmt_gone(const char *name) { remove(fmt_path(name)); }

static void fmt_new_dir(void) { folder_open(&fmt_folder); }

static void fmt_refuse_open(const char *path, const llm_model_config *cfg, const char *words, int line) {
    llm__source s;
    llm_result r = llm__source_open(path, NULL, cfg, &s);
    if (!CHECK(r && strstr(llm_last_error(), words)))
        printf("  line %d: result %d, \"%s\", expected \"%s\"\n", line, r, r ? llm_last_error() : "", words);
    if (!r) llm__source_close(&s);
}

#define FMT_REFUSE_OPEN(path, cfg, words) fmt_refuse_open(path, cfg, words, __LINE__)

#define FMT_ADDED(id, text) \
    "{\"id\":" #id ",\"content\":\"" text \
    "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}"
static const char fmt_tokenizer[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[" FMT_ADDED(3, "<s>") "," FMT_ADDED(
        4, "</s>") "," FMT_ADDED(5, "<|im_end|>") "],"
                                                  "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                                                  "false,\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,"
                                                  "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
                                                  "\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                                                  "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
                                                  "\"byte_fallback\":false,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";

/* A converter keeps what generation_config.json said about sampling in keys of its own: they become that document again. */
static void fmt_gguf_sampling(void) {
    llm__source s;
    llm__file f;
    double v = 0;
    memset(&s, 0, sizeof s);
    fmt_new_dir();
    llm_text t = gguf_head(3, 0, 4);
    gguf_kv_str(&t, "general.architecture", "llama");
    gguf_kv(&t, "general.sampling.temp", LLM__GGUF_F32, 0x3F000000, 4);
    gguf_kv(&t, "general.sampling.min_p", LLM__GGUF_F32, 0x7FC00000, 4); /* not a number: left out */
    gguf_kv(&t, "general.sampling.top_k", LLM__GGUF_I32, 20, 4);
    fmt_pad(&t, 32);
    fmt_put_all("sampling.gguf", &t);
    const char *path = fmt_path("sampling.gguf");
    if (CHECK(!llm__source_file(&s, path, &f)) && CHECK(!llm__source_gguf(&s, path, f)) && CHECK(s.generation_config)) {
        CHECK(llm_json_num(s.generation_config, llm_json_find(s.generation_config, 0, "temperature"), &v) && v == 0.5);
        CHECK(llm_json_num(s.generation_config, llm_json_find(s.generation_config, 0, "top_k"), &v) && v == 20);
        CHECK(llm_json_find(s.generation_config, 0, "min_p") < 0);
    }
    llm__source_close(&s);
    folder_close(&fmt_folder);
}

static void fmt_put_folder(void) {
    llm_text w = fmt_safe(fmt_safe_good, 21);
    fmt_put_all("model.safetensors", &w);
    fmt_put_text("config.json", "{\"model_type\":\"llama\",\"vocab_size\":8,\"bos_token_id\":3,\"eos_token_id\":4,\"pad_token_id\":null}");
    fmt_put_text("generation_config.json", "{\"eos_token_id\":[4,6],\"temperature\":0.5}");
    fmt_put_text("tokenizer.json", fmt_tokenizer);
    fmt_put_text("tokenizer_config.json",
                 "{\"bos_token\":{\"content\":\"<s>\",\"lstrip\":false},\"eos_token\":\"</s>\",\"chat_template\":\"{{ messages }}\"}");
}

static void fmt_folder_good(void) {
    llm__source s;
    fmt_new_dir();
    fmt_put_folder();
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, NULL, &s))) {
        CHECK(!s.gguf && s.config && s.generation_config && s.tensors.n == 4 && s.tokenizer);
        CHECK(s.bos_id == 3 && s.eos_id == 4 && s.pad_id == -1);
        CHECK(s.bos_token && !strcmp(s.bos_token, "<s>") && s.eos_token && !strcmp(s.eos_token, "</s>"));
        CHECK(s.stop_ids.len == 3 && s.stop_ids.data[0] == 4 && s.stop_ids.data[1] == 6 &&
              s.stop_ids.data[2] == 5); /* <|im_end|> of the vocabulary */
        CHECK(s.chat_template && s.chat_template_text && !strcmp(s.chat_template_text, "{{ messages }}") && !s.chat_template_error);
        llm__source_close(&s);
    }
    llm_model_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.no_mmap = 1;
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, &cfg, &s))) llm__source_close(&s);
    fmt_gone("generation_config.json");
    fmt_gone("tokenizer_config.json");
    fmt_put_text("config.json", "{\"eos_token_id\":null,\"bos_token_id\":3}");
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, NULL, &s))) {
        CHECK(s.bos_id == 3 && s.bos_token && !strcmp(s.bos_token, "<s>") && s.stop_ids.len >= 1 && !s.chat_template_text);
        llm__source_close(&s);
    }
    fmt_gone("model.safetensors");
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "no model.safetensors there");
    memset(&cfg, 0, sizeof cfg);
    cfg.dummy_weights = 1;
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, &cfg, &s))) {
        CHECK(s.tensors.n == 0 && s.tokenizer);
        llm__source_close(&s);
    }
    fmt_gone("tokenizer.json");
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, &cfg, &s))) {
        CHECK(!s.tokenizer->n_vocab && s.bos_id == 3);
        llm__source_close(&s);
    }
    fmt_put_text("tokenizer.json", "{");
    FMT_REFUSE_OPEN(fmt_folder.path, &cfg, "tokenizer.json");
    fmt_gone("tokenizer.json");
    memset(&cfg, 0, sizeof cfg);
    cfg.vocab_only = 1;
    FMT_REFUSE_OPEN(fmt_folder.path, &cfg, "");
    fmt_put_text("tokenizer.json", fmt_tokenizer);
    fmt_gone("config.json");
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, &cfg, &s))) llm__source_close(&s);
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "no config.json there");
    folder_close(&fmt_folder);
}

/* eos_token_id as nobody should write it: what is no id is passed over, what is too much is refused. */
static void fmt_stop_ids(void) {
    /* clang-format off */
    static const struct { const char *value; size_t n; } rows[] = {/* with </s> and <|im_end|> of the vocabulary, which are always there */
        {"1000000000", 3}, {"-5", 2}, {"\"x\"", 2}, {"{}", 2}, {"[]", 2}, {"1.5", 2}, {"2147483647", 2}, {"99999999999999999999", 2},
        {"[4,4,4,null,-1,[7],\"4\",8]", 3}};
    /* clang-format on */
    llm__source s;
    llm_text list = {0};
    fmt_new_dir();
    fmt_put_folder();
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_text_str(&list, "{\"eos_token_id\":");
        llm_text_str(&list, rows[i].value);
        llm_text_str(&list, "}");
        fmt_put_all("generation_config.json", &list);
        memset(&list, 0, sizeof list);
        if (!CHECK(!llm__source_open(fmt_folder.path, NULL, NULL, &s))) continue;
        if (!CHECK(s.stop_ids.len == rows[i].n && s.stop_ids.data[0] == 4)) printf("  %s: %zu ids\n", rows[i].value, s.stop_ids.len);
        llm__source_close(&s);
    }
    for (int n = 10000; n <= 20000; n += 10000) {
        llm_text_str(&list, "{\"eos_token_id\":[0");
        for (int i = 1; i < n; i++) llm_text_str(&list, ","), llm_text_int(&list, i * 100000);
        llm_text_str(&list, "]}");
        fmt_put_all("generation_config.json", &list);
        memset(&list, 0, sizeof list);
        if (n > 16384) FMT_REFUSE_OPEN(fmt_folder.path, NULL, "generation_config.json: eos_token_id: 20000 ids, at most 16384 expected");
        else if (CHECK(!llm__source_open(fmt_folder.path, NULL, NULL, &s))) {
            CHECK(s.stop_ids.len == 10002);
            llm__source_close(&s);
        }
    }
    folder_close(&fmt_folder);
}

static void fmt_templates(void) {
    llm__source s;
    llm_model_config cfg;
    fmt_new_dir();
    fmt_put_folder();
    memset(&cfg, 0, sizeof cfg);
    fmt_put_text("tokenizer_config.json",
                 "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"T\"},{\"name\":\"default\",\"template\":\"D\"}]}");
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, NULL, &s))) {
        CHECK(!strcmp(s.chat_template_text, "D"));
        llm__source_close(&s);
    }
    cfg.chat_template_name = "tool_use";
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, &cfg, &s))) {
        CHECK(!strcmp(s.chat_template_text, "T"));
        llm__source_close(&s);
    }
    cfg.chat_template_name = "rag";
    FMT_REFUSE_OPEN(fmt_folder.path, &cfg, "no chat template named \"rag\"");
    CHECK(!mkdir(fmt_path("additional_chat_templates"), 0700));
    fmt_put_text("additional_chat_templates/rag.jinja", "R");
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, &cfg, &s))) {
        CHECK(!strcmp(s.chat_template_text, "R"));
        llm__source_close(&s);
    }
    cfg.chat_template_name = "../../etc/passwd";
    FMT_REFUSE_OPEN(fmt_folder.path, &cfg, "a plain name expected");
    cfg.chat_template_name = NULL;
    fmt_put_text("chat_template.json", "{\"chat_template\":\"J\"}");
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, NULL, &s))) {
        CHECK(!strcmp(s.chat_template_text, "J"));
        llm__source_close(&s);
    }
    fmt_put_text("chat_template.jinja", "F");
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, NULL, &s))) {
        CHECK(!strcmp(s.chat_template_text, "F"));
        llm__source_close(&s);
    }
    fmt_put_text("chat_template.jinja", "{% for %}"); /* broken: told, and the model opens */
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, NULL, &s))) {
        CHECK(!s.chat_template && s.chat_template_text && s.chat_template_error && *s.chat_template_error);
        llm__source_close(&s);
    }
    cfg.chat_template = "{% for %}"; /* but one that was asked for must work */
    FMT_REFUSE_OPEN(fmt_folder.path, &cfg, "");
    cfg.chat_template = fmt_path("own.txt");
    FMT_REFUSE_OPEN(fmt_folder.path, &cfg, "no such file");
    fmt_put_text("own.txt", "own {{ 1 }}");
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, &cfg, &s))) {
        CHECK(s.chat_template && !strcmp(s.chat_template_text, "own {{ 1 }}"));
        llm__source_close(&s);
    }
    cfg.chat_template = "in line {{ 2 }}";
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, &cfg, &s))) {
        CHECK(s.chat_template && !strcmp(s.chat_template_text, "in line {{ 2 }}"));
        llm__source_close(&s);
    }
    folder_close(&fmt_folder);
}

static void fmt_put_index(const char *first, const char *second) {
    char text[400];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"x\":%s,\"y\":%s}}", first, second);
    fmt_put_text("model.safetensors.index.json", text);
}

static void fmt_shards(void) {
    static const char *const bad[] = {
        "\"../1.safetensors\"",     "\"/etc/passwd\"",         "\"sub/1.safetensors\"", "\".\"", "\"\"", "1", "null",
        "\"a\\u0000.safetensors\"", "\".hidden.safetensors\"", "\"pytorch_model.bin\""};
    llm__source s;
    llm_text one = fmt_safe(FMT_T("U8", "[4]", 0, 4), 4),
             two = fmt_safe("{\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    fmt_new_dir();
    fmt_put_folder();
    fmt_gone("model.safetensors");
    fmt_put("1.safetensors", one.data, one.len);
    fmt_put("2.safetensors", two.data, two.len);
    fmt_put_index("\"1.safetensors\"", "\"2.safetensors\"");
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, NULL, &s))) {
        CHECK(s.tensors.n == 2 && s.n_files == 2 && llm__tensors_find(&s.tensors, "x") && llm__tensors_find(&s.tensors, "y"));
        llm__source_close(&s);
    }
    for (int i = 0; i < LLM__COUNT(bad); i++) {
        fmt_put_index("\"1.safetensors\"", bad[i]);
        fmt_refuse_open(fmt_folder.path, NULL, "plain name of a .safetensors file", -i);
    }
    fmt_put_index("\"1.safetensors\"", "\"3.safetensors\"");
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "3.safetensors: no such file");
    CHECK(!mkfifo(fmt_path("3.safetensors"), 0600));
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "3.safetensors: not a regular file");
    fmt_gone("3.safetensors");
    CHECK(!mkdir(fmt_path("3.safetensors"), 0700));
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "3.safetensors: not a regular file");
    rmdir(fmt_path("3.safetensors"));
    CHECK(!symlink("/dev/zero", fmt_path("3.safetensors")));
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "3.safetensors: not a regular file");
    fmt_gone("3.safetensors");
    fmt_put("3.safetensors", one.data, one.len); /* a tensor in two shards */
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "tensor x: it is there twice");
    fmt_put("3.safetensors", one.data, one.len - 1);
    fmt_put_index("\"3.safetensors\"", "\"2.safetensors\"");
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "truncated");
    fmt_put_text("3.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "Git LFS pointer");
    fmt_put_text("model.safetensors.index.json", "{\"weight_map\":[]}");
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "weight_map");
    fmt_put_text("model.safetensors.index.json", "[]");
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "an object expected");
    llm_text_free(&one);
    llm_text_free(&two);
    folder_close(&fmt_folder);
}

static void fmt_folder_bad(void) {
    static const char *const files[] = {"config.json", "generation_config.json", "tokenizer_config.json"};
    struct stat st;
    llm__source s;
    fmt_new_dir();
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "no config.json there: a GGUF file, or a folder");
    fmt_put_text("pytorch_model.bin", "PK");
    fmt_put_text("config.json", "{}");
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, "pytorch_model.bin: no file of torch.save");
    fmt_put_folder();
    for (int i = 0; i < LLM__COUNT(files); i++) {
        fmt_put_text(files[i], "[]");
        FMT_REFUSE_OPEN(fmt_folder.path, NULL, "an object expected");
        fmt_put_text(files[i], "{\"a\":");
        FMT_REFUSE_OPEN(fmt_folder.path, NULL, files[i]);
        fmt_gone(files[i]);
        CHECK(!mkfifo(fmt_path(files[i]), 0600));
        FMT_REFUSE_OPEN(fmt_folder.path, NULL, "not a regular file");
        fmt_gone(files[i]);
        fmt_put_folder();
    }
    /* nothing else of a folder is opened, let alone run: the time of the last reading stays */
    static const char *const others[] = {"modeling_own.py", "own.so", "weights.pkl", "pytorch_model.bin", "training_args.bin", "setup.sh"};
    struct timespec old[2];
    memset(old, 0, sizeof old);
    old[0].tv_sec = old[1].tv_sec = 1000000000;
    fmt_put_text("config.json", "{\"auto_map\":{\"AutoModel\":\"modeling_own.Model\"},\"eos_token_id\":4}");
    for (int i = 0; i < LLM__COUNT(others); i++) {
        fmt_put_text(others[i], "#!/bin/sh\nexit 1\n");
        utimensat(AT_FDCWD, fmt_path(others[i]), old, 0);
    }
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, NULL, &s))) llm__source_close(&s);
    for (int i = 0; i < LLM__COUNT(others); i++) CHECK(!stat(fmt_path(others[i]), &st) && st.st_atim.tv_sec == 1000000000);
    folder_close(&fmt_folder);
}

/* The keys that every GGUF file with a vocabulary in GPT-2's manner has, but for its merges: four of them. */
static void fmt_kv_gpt2(llm_text *t, const char *const *tokens, int n) {
    gguf_kv_str(t, "general.architecture", "llama");
    gguf_kv_str(t, "tokenizer.ggml.model", "gpt2");
    gguf_kv_str(t, "tokenizer.ggml.pre", "gpt-2");
    gguf_kv_array(t, "tokenizer.ggml.tokens", LLM__GGUF_STR, (uint64_t)n);
    for (int i = 0; i < n; i++) gguf_str(t, tokens[i]);
}

/* A GGUF file with a vocabulary of 6 tokens; knobs for its faults. `split_no` -1: not split. */
static llm_text fmt_vocab_gguf(uint32_t version, int split_no, int split_count, int total, const char *tensor, uint32_t score_type,
                               uint64_t n_scores, uint32_t bos) {
    static const char *const tokens[6] = {"a", "b", "ab", "<|endoftext|>", "<|im_end|>", "x"};
    llm_text t = gguf_head(version, tensor ? 1 : 0, (uint64_t)(10 + (split_no >= 0 ? 3 : 0)));
    fmt_kv_gpt2(&t, tokens, 6);
    gguf_kv_array(&t, "tokenizer.ggml.token_type", LLM__GGUF_I32, 6);
    for (int i = 0; i < 6; i++) gguf_u(&t, i == 3 || i == 4 ? 3 : 1, 4);
    gguf_kv_array(&t, "tokenizer.ggml.scores", score_type, n_scores);
    for (uint64_t i = 0; i < n_scores; i++) gguf_u(&t, 0, llm__gguf_size_of((int32_t)score_type));
    gguf_kv_array(&t, "tokenizer.ggml.merges", LLM__GGUF_STR, 1);
    gguf_str(&t, "a b");
    gguf_kv(&t, "tokenizer.ggml.bos_token_id", LLM__GGUF_U32, bos, 4);
    gguf_kv_str(&t, "tokenizer.chat_template", "D{{ bos_token }}");
    gguf_kv_str(&t, "tokenizer.chat_template.tool_use", "T");
    if (split_no >= 0) {
        gguf_kv(&t, "split.no", LLM__GGUF_U16, (uint64_t)split_no, 2);
        gguf_kv(&t, "split.count", LLM__GGUF_U16, (uint64_t)split_count, 2);
        gguf_kv(&t, "split.tensors.count", LLM__GGUF_I32, (uint64_t)total, 4);
    }
    if (!tensor) return t;
    gguf_tensor(&t, tensor, 1, 8, 0, LLM_TYPE_F32, 0);
    fmt_pad(&t, 32);
    fmt_zeros(&t, 32);
    return t;
}

static void fmt_put_part(const char *name, uint32_t version, int no, int count, int total, const char *tensor) {
    llm_text t = fmt_vocab_gguf(version, no, count, total, tensor, LLM__GGUF_F32, 6, 3);
    fmt_put_all(name, &t);
}

/* Parts that are given in memory, in any order: the first is found, and the others by their names. */
static void fmt_test_given_parts(void) {
    static const char *const names[] = {"m-00002-of-00003.gguf", "m-00003-of-00003.gguf", "m-00001-of-00003.gguf"};
    llm__file f[3];
    llm_file given[3];
    llm_text path;
    llm__source s;
    memset(given, 0, sizeof given);
    memset(&path, 0, sizeof path);
    for (int i = 0; i < 3; i++) {
        if (!CHECK(!llm__file_open(fmt_path(names[i]), 0, 0, &f[i]))) return;
        given[i].name = names[i], given[i].data = f[i].data, given[i].size = (int64_t)f[i].size;
    }
    llm__place place = {given, 3};
    CHECK(!llm__place_model(&place, &path) && !strcmp(path.data, "<given>/m-00001-of-00003.gguf"));
    if (CHECK(!llm__source_open(path.data, &place, NULL, &s))) {
        CHECK(s.tensors.n == 3 && s.n_files == 3 && llm__tensors_find(&s.tensors, "three") != NULL);
        llm__source_close(&s);
    }
    place.n = 1; /* only the second */
    CHECK(llm__source_open("<given>/m-00002-of-00003.gguf", &place, NULL, &s) && strstr(llm_last_error(), "open the first"));
    place.file = given + 2; /* only the first */
    CHECK(llm__source_open(path.data, &place, NULL, &s) == LLM_ERR_IO && strstr(llm_last_error(), "no such file was given"));
    for (int i = 0; i < 3; i++) llm__file_close(&f[i]);
    llm_text_free(&path);
}

static void fmt_split(void) {
    llm__source s;
    fmt_new_dir();
    fmt_put_part("m-00001-of-00003.gguf", 3, 0, 3, 3, "one");
    fmt_put_part("m-00002-of-00003.gguf", 3, 1, 3, 3, "two");
    FMT_REFUSE_OPEN(fmt_path("m-00001-of-00003.gguf"), NULL, "m-00003-of-00003.gguf: no such file");
    fmt_put_part("m-00003-of-00003.gguf", 3, 2, 3, 3, "three");
    if (CHECK(!llm__source_open(fmt_path("m-00001-of-00003.gguf"), NULL, NULL, &s))) {
        CHECK(s.tensors.n == 3 && s.n_files == 3 && llm__tensors_find(&s.tensors, "three") &&
              llm__tensors_find(&s.tensors, "three")->bytes == 32);
        llm__source_close(&s);
    }
    fmt_test_given_parts();
    FMT_REFUSE_OPEN(fmt_path("m-00002-of-00003.gguf"), NULL, "open the first");
    fmt_put_part("renamed.gguf", 3, 0, 3, 3, "one");
    FMT_REFUSE_OPEN(fmt_path("renamed.gguf"), NULL, "a name ending in -00001-of-00003.gguf");
    fmt_put_part("m-00003-of-00003.gguf", 3, 1, 3, 3, "three"); /* the second part again, under another name */
    FMT_REFUSE_OPEN(fmt_path("m-00001-of-00003.gguf"), NULL, "says it is part 2 of 3");
    fmt_put_part("m-00003-of-00003.gguf", 3, 2, 4, 3, "three");
    FMT_REFUSE_OPEN(fmt_path("m-00001-of-00003.gguf"), NULL, "says it is part 3 of 4");
    fmt_put_part("m-00003-of-00003.gguf", 3, 2, 3, 3, "one");
    FMT_REFUSE_OPEN(fmt_path("m-00001-of-00003.gguf"), NULL, "tensor one: it is there twice");
    fmt_put_part("m-00003-of-00003.gguf", 3, 2, 3, 3, NULL);
    FMT_REFUSE_OPEN(fmt_path("m-00001-of-00003.gguf"), NULL, "split.tensors.count is 3, the parts have 2");
    fmt_put_part("m-00004-of-00003.gguf", 3, 3, 3, 3, "one");
    FMT_REFUSE_OPEN(fmt_path("m-00004-of-00003.gguf"), NULL, "do not fit");
    folder_close(&fmt_folder);
}

/* BERT's vocabulary, without a tensor: words begin with U+2581, what goes on a word does not; with a tokenizer.json inside that one counts. */
static void fmt_bert(void) {
    static const char *const tokens[8] = {"[PAD]",
                                          "[UNK]",
                                          "[CLS]",
                                          "[SEP]",
                                          "\xE2\x96\x81un",
                                          "able",
                                          "\xE2\x96\x81"
                                          "able",
                                          "\xE2\x96\x81!"};
    static const char text[] = "Un\xCC\x88"
                               "able able!zz";
    static const int32_t ids[] = {2, 4, 5, 6, 7, 1, 3};
    for (int json = 0; json < 2; json++) {
        llm__source s;
        llm_model_config cfg = {0};
        llm_tokens out = {0};
        llm_text t = gguf_head(3, 0, (uint64_t)(7 + json));
        fmt_new_dir();
        cfg.vocab_only = 1;
        gguf_kv_str(&t, "general.architecture", "bert");
        gguf_kv_str(&t, "tokenizer.ggml.model", "bert");
        gguf_kv_array(&t, "tokenizer.ggml.tokens", LLM__GGUF_STR, 8);
        for (int i = 0; i < 8; i++) gguf_str(&t, tokens[i]);
        gguf_kv_array(&t, "tokenizer.ggml.token_type", LLM__GGUF_I32, 8);
        for (int i = 0; i < 8; i++) gguf_u(&t, i < 4 ? 3 : 1, 4);
        gguf_kv(&t, "tokenizer.ggml.bos_token_id", LLM__GGUF_U32, 2, 4);
        gguf_kv(&t, "tokenizer.ggml.seperator_token_id", LLM__GGUF_U32, 3, 4);
        gguf_kv(&t, "tokenizer.ggml.unknown_token_id", LLM__GGUF_U32, 1, 4);
        if (json) gguf_kv_str(&t, "tokenizer.huggingface.json", fmt_tokenizer);
        fmt_put_all("m.gguf", &t);
        if (CHECK(!llm__source_open(fmt_path("m.gguf"), NULL, &cfg, &s))) {
            CHECK(!llm__tokenizer_encode(s.tokenizer, json ? "ab" : text, json ? 2 : strlen(text), LLM_TOK_ADD_SPECIAL, &out));
            if (json) CHECK(out.len == 1 && out.data[0] == 2);
            else CHECK(out.len == LLM__COUNT(ids) && !memcmp(out.data, ids, sizeof ids));
            llm__source_close(&s);
        }
        llm_tokens_free(&out);
        folder_close(&fmt_folder);
    }
}

/* As in llama.cpp, merges may go through parts that are no tokens; what is left of such a part is its letters. */
static void fmt_merges(void) {
    static const char *const tokens[4] = {"a", "b", "c", "abc"}, *const merges[2] = {"b c", "a bc"};
    static const int32_t ids[] = {3, 1, 2};
    llm__source s;
    llm_model_config cfg = {0};
    llm_tokens out = {0};
    llm_text t = gguf_head(3, 0, 5);
    fmt_new_dir();
    cfg.vocab_only = 1;
    fmt_kv_gpt2(&t, tokens, 4);
    gguf_kv_array(&t, "tokenizer.ggml.merges", LLM__GGUF_STR, 2);
    for (int i = 0; i < 2; i++) gguf_str(&t, merges[i]);
    fmt_put_all("m.gguf", &t);
    if (CHECK(!llm__source_open(fmt_path("m.gguf"), NULL, &cfg, &s))) {
        CHECK(!llm__tokenizer_encode(s.tokenizer, "abcbc", 5, 0, &out) && out.len == 3 && !memcmp(out.data, ids, sizeof ids));
        llm__source_close(&s);
    }
    llm_tokens_free(&out);
    folder_close(&fmt_folder);
}

static void fmt_vocabulary(void) {
    llm__source s;
    llm_model_config cfg;
    memset(&cfg, 0, sizeof cfg);
    fmt_new_dir();
    llm_text t = fmt_vocab_gguf(3, -1, 0, 0, "one", LLM__GGUF_F32, 6, 3);
    fmt_put_all("m.gguf", &t);
    char path[400];
    snprintf(path, sizeof path, "%s", fmt_path("m.gguf"));
    if (CHECK(!llm__source_open(path, NULL, NULL, &s))) {
        CHECK(s.gguf && s.tensors.n == 1 && s.bos_id == 3 && s.tokenizer && s.tokenizer->n_vocab == 6);
        CHECK(s.bos_token && !strcmp(s.bos_token, "<|endoftext|>") && s.stop_ids.len == 2);
        CHECK(s.chat_template && !strcmp(s.chat_template_text, "D{{ bos_token }}"));
        llm__source_close(&s);
    }
    cfg.chat_template_name = "tool_use";
    if (CHECK(!llm__source_open(path, NULL, &cfg, &s))) {
        CHECK(s.chat_template && !strcmp(s.chat_template_text, "T"));
        llm__source_close(&s);
    }
    cfg.chat_template_name = NULL;
    fmt_put_text("tokenizer.json", fmt_tokenizer); /* another tokenizer for a GGUF, and a GGUF's for a folder */
    cfg.tokenizer = fmt_path("tokenizer.json");
    if (CHECK(!llm__source_open(path, NULL, &cfg, &s))) {
        CHECK(s.gguf && !s.vocab_gguf && llm__tokenizer_id(s.tokenizer, llm__s("<s>", 3)) == 3);
        llm__source_close(&s);
    }
    cfg.tokenizer = path;
    fmt_put_folder();
    if (CHECK(!llm__source_open(fmt_folder.path, NULL, &cfg, &s))) {
        CHECK(!s.gguf && s.vocab_gguf && s.tensors.n == 4 && llm__tokenizer_id(s.tokenizer, llm__s("x", 1)) == 5);
        llm__source_close(&s);
    }
    cfg.tokenizer = NULL;
    t = fmt_vocab_gguf(3, -1, 0, 0, "one", LLM__GGUF_U8, 6, 3); /* read as floats it would reach past its end */
    fmt_put_all("m.gguf", &t);
    FMT_REFUSE_OPEN(path, NULL, "tokenizer.ggml.scores: as many floats");
    t = fmt_vocab_gguf(3, -1, 0, 0, "one", LLM__GGUF_F32, 5, 3);
    fmt_put_all("m.gguf", &t);
    FMT_REFUSE_OPEN(path, NULL, "tokenizer.ggml.scores: as many");
    t = fmt_vocab_gguf(3, -1, 0, 0, "one", LLM__GGUF_F32, 6, 6);
    fmt_put_all("m.gguf", &t);
    FMT_REFUSE_OPEN(path, NULL, "tokenizer.ggml.bos_token_id: token id 6, the vocabulary has 6");
    t = fmt_vocab_gguf(3, -1, 0, 0, NULL, LLM__GGUF_F32, 6, 3);
    fmt_put_all("m.gguf", &t);
    FMT_REFUSE_OPEN(path, NULL, "no tensors");
    cfg.vocab_only = 1;
    if (CHECK(!llm__source_open(path, NULL, &cfg, &s))) llm__source_close(&s);
    t = fmt_small_gguf(3);
    fmt_put_all("m.gguf", &t);
    FMT_REFUSE_OPEN(path, NULL, "tokenizer.ggml.model is absent");
    folder_close(&fmt_folder);
}

/* The last line of the log. */
static void fmt_log(void *user, int level, const char *message) {
    if (level <= LLM_LOG_WARN) snprintf((char *)user, 400, "%s", message);
}

static void fmt_odd_files(void) {
    llm__source s;
    llm_model_config cfg;
    char line[400] = "";
    memset(&cfg, 0, sizeof cfg);
    cfg.log = fmt_log;
    cfg.log_user = line;
    fmt_new_dir();
    FMT_REFUSE_OPEN("/dev/zero", NULL, "not a regular file");
    FMT_REFUSE_OPEN(fmt_path("none"), NULL, "no such file");
    FMT_REFUSE_OPEN("", NULL, "a path expected");
    CHECK(!mkfifo(fmt_path("fifo.gguf"), 0600));
    FMT_REFUSE_OPEN(fmt_path("fifo.gguf"), NULL, "not a regular file");
    fmt_gone("fifo.gguf");
    fmt_put_text("empty.gguf", "");
    FMT_REFUSE_OPEN(fmt_path("empty.gguf"), NULL, "no model");
    fmt_put_text("model.bin", "\x80\x02}q");
    FMT_REFUSE_OPEN(fmt_path("model.bin"), NULL, "pickle");
    fmt_put_text("model.safetensors", "x");
    FMT_REFUSE_OPEN(fmt_path("model.safetensors"), NULL, "give its folder");
    llm_text t = fmt_vocab_gguf(3, -1, 0, 0, "one", LLM__GGUF_F32, 6, 3);
    fmt_put("cut.gguf", t.data, t.len - 1);
    FMT_REFUSE_OPEN(fmt_path("cut.gguf"), NULL, "truncated: the tensors need");
    fmt_put("m.gguf", t.data, t.len);
    if (CHECK(!llm__source_open(fmt_path("m.gguf"), NULL, &cfg, &s)) && CHECK(!*line)) llm__source_close(&s);
    fmt_zeros(&t, 1000); /* junk after the tensors: one warning */
    fmt_put_all("m.gguf", &t);
    if (CHECK(!llm__source_open(fmt_path("m.gguf"), NULL, &cfg, &s)) && CHECK(strstr(line, "1000 bytes after the last tensor")))
        llm__source_close(&s);
    FMT_REFUSE_OPEN(fmt_folder.path, NULL, ".gguf: give the path of that file");
    CHECK(truncate(fmt_path("m.gguf"), (off_t)1 << 38) == 0 || errno == EFBIG); /* 256 GiB of nothing after it */
    if (test_exists(fmt_path("m.gguf")) && !llm__source_open(fmt_path("m.gguf"), NULL, NULL, &s)) llm__source_close(&s);
    folder_close(&fmt_folder);
}

static void fmt_hub(void) {
    llm_text path = {0};
    fmt_new_dir();
    CHECK(llm_hub_find(fmt_folder.path, "org/name", &path) == LLM_ERR_IO && !path.len);
    static const char *const folders[] = {"models--org--name", "models--org--name/refs", "models--org--name/snapshots",
                                          "models--org--name/snapshots/bbb", "models--org--name/snapshots/ccc"};
    for (int i = 0; i < LLM__COUNT(folders); i++) CHECK(!mkdir(fmt_path(folders[i]), 0700));
    CHECK(llm_hub_find(fmt_folder.path, "org/name", &path) == LLM_ERR_IO && !path.len); /* no main */
    fmt_put_text("models--org--name/refs/main", "ccc\n");
    CHECK(!llm_hub_find(fmt_folder.path, "org/name", &path) && !strcmp(path.data, fmt_path(folders[4]))); /* what main says */
    llm_text_free(&path);
    CHECK(!llm_hub_find(fmt_folder.path, "org/name@bbb", &path) && !strcmp(path.data, fmt_path(folders[3]))); /* a commit */
    llm_text_free(&path);
    fmt_put_text("models--org--name/refs/old", "bbb");
    CHECK(!llm_hub_find(fmt_folder.path, "org/name@old", &path) && !strcmp(path.data, fmt_path(folders[3]))); /* a branch */
    llm_text_free(&path);
    CHECK(llm_hub_find(fmt_folder.path, "org/name@new", &path) == LLM_ERR_IO && !path.len);
    static const char *const refs[] = {"", "\n", "ddd", "../refs", ".", "bbb/../ccc"}; /* is there, but must not be reached */
    for (int i = 0; i < LLM__COUNT(refs); i++) {
        fmt_put_text("models--org--name/refs/main", refs[i]);
        CHECK(llm_hub_find(fmt_folder.path, "org/name", &path) == LLM_ERR_IO && !path.len);
    }
    static const char *const bad[] = {"",      "/",    "a/",   "/a",   "../x",     "a/../b",  "a/b/c",
                                      "a b/c", ".a/b", "a/.b", "a/b@", "a/b@../x", "a/b@x/y", "@x"};
    for (int i = 0; i < LLM__COUNT(bad); i++) CHECK(llm_hub_find(fmt_folder.path, bad[i], &path) == LLM_ERR_ARG);
    CHECK(llm_hub_find(fmt_folder.path, NULL, &path) == LLM_ERR_ARG && llm_hub_find(NULL, "a/b", &path) == LLM_ERR_ARG &&
          llm_hub_find(fmt_folder.path, "org/other", &path) == LLM_ERR_IO);
    folder_close(&fmt_folder);
}

TEST_GROUP(formats) {
    fmt_gguf_good();
    fmt_gguf_sampling();
    fmt_gguf_head();
    fmt_gguf_keys();
    fmt_gguf_values();
    fmt_gguf_tensors();
    fmt_safetensors_good();
    fmt_safetensors_bad();
    llm_text gguf = fmt_small_gguf(3), safe = fmt_safe(fmt_safe_good, 21);
    fmt_damage(&gguf, 1);
    fmt_damage(&safe, 0);
    llm_text_free(&gguf);
    llm_text_free(&safe);
    fmt_real_cut("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    fmt_real_flips("models/SmolLM2-135M-Instruct.Q4_1.gguf", 1);
    fmt_real_flips(TEST_CHECKPOINT("llama/model.safetensors"), 0);
    fmt_real_header_cut(TEST_CHECKPOINT("llama/model.safetensors"));
    fmt_folder_good();
    fmt_stop_ids();
    fmt_templates();
    fmt_shards();
    fmt_folder_bad();
    fmt_split();
    fmt_bert();
    fmt_merges();
    fmt_vocabulary();
    fmt_odd_files();
    fmt_hub();
}
