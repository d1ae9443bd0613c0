#include "base/sha256.h"
#include "base/platform.h"

typedef struct llm__sha {
    uint32_t h[8];
    uint8_t block[64];
    uint64_t n; /* bytes so far */
} llm__sha;

/* The first 32 bits behind the point of square roots (h) and cube roots (k) of the first primes. */
static const uint32_t llm__sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* x turned right by so many bits. */
static uint32_t llm__sha_turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

/* Mixes the block into the state, in 64 rounds over 64 words: the block's 16, and what grows out of them. */
static void llm__sha_block(llm__sha *s) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 | (uint32_t)s->block[4 * i + 2] << 8 |
               s->block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (llm__sha_turn(a, 7) ^ llm__sha_turn(a, 18) ^ a >> 3) + w[i - 7] +
               (llm__sha_turn(b, 17) ^ llm__sha_turn(b, 19) ^ b >> 10);
    }
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t t =
            v[7] + (llm__sha_turn(e, 6) ^ llm__sha_turn(e, 11) ^ llm__sha_turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + llm__sha_k[i] + w[i];
        const uint32_t u = (llm__sha_turn(a, 2) ^ llm__sha_turn(a, 13) ^ llm__sha_turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t;
        v[0] = t + u;
    }
    for (int i = 0; i < 8; i++) s->h[i] += v[i];
}

/* A byte at a time: what is hashed here is shorter than a line. */
static void llm__sha_add(llm__sha *s, const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) {
        s->block[s->n++ % 64] = ((const uint8_t *)data)[i];
        if (s->n % 64 == 0) llm__sha_block(s);
    }
}

static void llm__sha_begin(llm__sha *s) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->h, first, sizeof first);
    s->n = 0;
}

/* A bit 1, zeros, and the number of bits fill the last block. */
static void llm__sha_end(llm__sha *s, uint8_t *out) {
    const uint64_t bits = s->n * 8;
    uint8_t size[8];
    for (int i = 0; i < 8; i++) size[i] = (uint8_t)(bits >> (56 - 8 * i));
    llm__sha_add(s, "\x80", 1);
    while (s->n % 64 != 56) llm__sha_add(s, "", 1);
    llm__sha_add(s, size, 8);
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(s->h[i / 4] >> (24 - i % 4 * 8));
}

/* H(key ^ 0x5c.. | H(key ^ 0x36.. | data)); a key longer than a block counts as its own hash. */
LLM__PRIVATE void llm__hmac(const void *key, size_t n_key, const void *data, size_t n, uint8_t *out) {
    uint8_t k[64] = LLM__ZERO, pad[64];
    llm__sha s;
    llm__sha_begin(&s);
    if (n_key > 64) llm__sha_add(&s, key, n_key), llm__sha_end(&s, k);
    else if (n_key) memcpy(k, key, n_key);
    for (int outer = 0; outer < 2; outer++) {
        for (int i = 0; i < 64; i++) pad[i] = k[i] ^ (outer ? 0x5c : 0x36);
        llm__sha_begin(&s);
        llm__sha_add(&s, pad, 64);
        llm__sha_add(&s, outer ? (const void *)out : data, outer ? 32 : n);
        llm__sha_end(&s, out);
    }
}
