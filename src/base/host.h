/* host: where the name of a server leads. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"

/* 1: an address that everybody reaches. 0: this machine's own, of a private, shared or local network, for tests, reserved, of many; or
 * none. IPv4 and IPv6, also one within the other. */
LLM__PRIVATE int llm__address_public(const char *address);

/* The addresses of a name or an address, with commas between them. May wait for name servers. LLM_ERR_IO: there are none; unless `any`,
 * LLM_ERR_ARG: one is not public. */
LLM__PRIVATE llm_result llm__host_addresses(const char *host, int any, llm_text *out);
