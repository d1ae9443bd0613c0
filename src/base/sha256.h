/* sha256: a checksum that nobody can aim at (FIPS 180-4), and what proves that somebody knows a secret (HMAC, RFC 2104). */
#pragma once
#include "base/platform.h"

/* out (32) = HMAC-SHA-256 of n bytes with a key of any length. */
LLM__PRIVATE void llm__hmac(const void *key, size_t n_key, const void *data, size_t n, uint8_t *out);
