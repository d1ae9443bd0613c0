#include "cpu/kernels.h"
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/isa.h"
#include "cpu/kernels_scalar.h"
#include "cpu/kernels_avx2.h"
#include "cpu/kernels_avx512.h"
#include "cpu/kernels_amx.h"
#include "cpu/kernels_neon.h"

LLM__PRIVATE const llm__kernels *llm__kernels_of(llm__isa isa) {
#if LLM__X86
#if LLM__HAS_2021
    if (isa == LLM__ISA_AVXVNNI) return &llm__kernels_avxvnni;
    if (isa == LLM__ISA_AVX512BF16) return &llm__kernels_avx512bf16;
    if (isa == LLM__ISA_AMX) return &llm__kernels_amx;
#endif
    if (isa == LLM__ISA_AVX2) return &llm__kernels_avx2;
    if (isa == LLM__ISA_AVX512) return &llm__kernels_avx512;
    if (isa == LLM__ISA_AVX512VNNI) return &llm__kernels_avx512vnni;
#endif
#if LLM__NEON
    if (isa == LLM__ISA_NEON) return &llm__kernels_neon;
#endif
    (void)isa;
    return &llm__kernels_scalar;
}

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
