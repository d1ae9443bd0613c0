#include "base/host.h"
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/log.h"

/* Networks of IPv4 whose addresses are not public (IANA's registry of special-purpose addresses), multicast and what is reserved. */
static const struct {
    uint32_t network;
    int bits;
} llm__address_special[] = {{0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16},
                            {0xac100000, 12}, {0xc0000000, 24}, {0xc0000200, 24}, {0xc0586300, 24}, {0xc0a80000, 16},
                            {0xc6120000, 15}, {0xc6336400, 24}, {0xcb007100, 24}, {0xe0000000, 4},  {0xf0000000, 4}};

static int llm__address4_public(const uint8_t b[4]) {
    const uint32_t a = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    for (int i = 0; i < LLM__COUNT(llm__address_special); i++)
        if ((a ^ llm__address_special[i].network) >> (32 - llm__address_special[i].bits) == 0) return 0;
    return 1;
}

/* Of IPv6 only 2000::/3 is given out; 2001:0::/23 in it are tunnels (Teredo) and others, 2001:db8::/32 examples, 2002::/16 is 6to4. */
static int llm__address6_public(const uint8_t b[16]) {
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (!memcmp(b, mapped, sizeof mapped)) return llm__address4_public(b + 12);
    if (b[0] >> 5 != 1) return 0;
    if (b[0] == 0x20 && b[1] == 0x01) return b[2] > 1 && !(b[2] == 0x0d && b[3] == 0xb8);
    return !(b[0] == 0x20 && b[1] == 0x02);
}

LLM__PRIVATE int llm__address_public(const char *address) {
    uint8_t b[16];
    if (inet_pton(AF_INET, address, b) == 1) return llm__address4_public(b);
    return inet_pton(AF_INET6, address, b) == 1 && llm__address6_public(b);
}

LLM__PRIVATE llm_result llm__host_addresses(const char *host, int any, llm_text *out) {
    struct addrinfo want, *found = NULL;
    memset(&want, 0, sizeof want);
    want.ai_family = AF_UNSPEC;
    want.ai_socktype = SOCK_STREAM;
    const int failed = getaddrinfo(host, NULL, &want, &found);
    if (failed) return llm__error(LLM_ERR_IO, "%.260s: %s", host, gai_strerror(failed));
    int n = 0, hidden = 0;
    for (const struct addrinfo *a = found; a && n < 8; a = a->ai_next) {
        char address[NI_MAXHOST];
        if (getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof address, NULL, 0, NI_NUMERICHOST)) continue;
        hidden |= !llm__address_public(address);
        llm_text_format(out, a->ai_family == AF_INET6 ? "%s[%s]" : "%s%s", n++ ? "," : "", address);
    }
    freeaddrinfo(found);
    if (!n) return llm__error(LLM_ERR_IO, "%.260s: no address", host);
    if (hidden && !any) return llm__error(LLM_ERR_ARG, "%.260s: its address is not a public one", host);
    return out->failed ? llm__nomem() : LLM_OK;
}
