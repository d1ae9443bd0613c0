#include "cpu/isa.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "cpu/intrinsics.h"

LLM__PRIVATE const char *llm__isa_name(llm__isa isa) {
    static const char *const names[LLM__ISA_COUNT] = {"scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx", "neon"};
    return names[isa];
}

#if LLM__X86
/* Compilers disagree on the names of these features: asked of the CPU itself, once avx2 is known to be there. Tiles need the system's
 * leave. */
static int llm__ask_avxvnni(void) {
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static int llm__ask_amx(void) {
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 13) == 13 && llm__ask_for_tiles(); /* bf16, tiles, int8 */
}

/* What ask() says, kept in the thread's *known (0: not asked yet): in a virtual machine each cpuid takes microseconds, and a sampler may
 * ask for each token. */
static int llm__asked(int *known, int (*ask)(void)) {
    if (!*known) *known = ask() ? 1 : -1;
    return *known > 0;
}
#endif

LLM__PRIVATE int llm__isa_here(llm__isa isa) {
    if (isa == LLM__ISA_SCALAR) return 1;
#if LLM__X86
    static LLM__THREAD_LOCAL int avxvnni, amx;
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512dq");
    int vnni = avx512 && __builtin_cpu_supports("avx512vnni");
#ifdef LLM__TEST_EMULATE_AVX512
    if (isa >= LLM__ISA_AVXVNNI && isa <= LLM__ISA_AMX) return 1;
#endif
    if (isa == LLM__ISA_AVX2) return avx2;
    if (isa == LLM__ISA_AVXVNNI) return avx2 && LLM__HAS_2021 && llm__asked(&avxvnni, llm__ask_avxvnni);
    if (isa == LLM__ISA_AVX512) return avx512;
    if (isa == LLM__ISA_AVX512VNNI) return vnni;
    int bf16 = vnni && LLM__HAS_2021 && __builtin_cpu_supports("avx512bf16");
    if (isa == LLM__ISA_AVX512BF16) return bf16;
    if (isa == LLM__ISA_AMX) return bf16 && llm__asked(&amx, llm__ask_amx);
#elif LLM__NEON
    if (isa == LLM__ISA_NEON) return (getauxval(AT_HWCAP) & 1u << 20) != 0; /* HWCAP_ASIMDDP */
#endif
    return 0;
}

/* In a buffer of the thread. */
LLM_API const char *llm_isa_list(void) {
    static LLM__THREAD_LOCAL char all[64];
    size_t at = 0;
    for (int k = 0; k < LLM__ISA_COUNT; k++)
        if (llm__isa_here((llm__isa)k)) at += (size_t)snprintf(all + at, sizeof all - at, k ? " %s" : "%s", llm__isa_name((llm__isa)k));
    return all;
}

LLM__PRIVATE llm_result llm__isa_find(const char *name, llm__isa *out) {
    for (int i = LLM__ISA_COUNT - 1; i >= 0; i--) {
        *out = (llm__isa)i;
#if LLM__X86
        if (!name && i == LLM__ISA_AVX512BF16 && __builtin_cpu_is("intel")) continue;
#endif
        if ((!name || !strcmp(name, llm__isa_name(*out))) && llm__isa_here(*out)) return LLM_OK;
    }
    return llm__error(LLM_ERR_ARG, "isa %s: this CPU has %s", name, llm_isa_list());
}
