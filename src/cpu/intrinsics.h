/* intrinsics: what the compiler has of the processor's vector instructions.
 *
 * LLM__X86 and LLM__NEON say which intrinsics there are; which of them this machine can run is asked at run time (>>isa). With LLM_NO_SIMD
 * defined only plain C is left, which sanitizers and fuzzers compile much faster. */
#pragma once

#if defined(__x86_64__) && !defined(LLM_NO_SIMD)
#include <cpuid.h>
#if defined(__GNUC__) && !defined(__clang__) /* g++ 12 warns of its own header (GCC bug 105593) */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#define LLM__X86 1
/* Whether the compiler knows AVX-VNNI, and vdpbf16ps. */
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define LLM__HAS_2021 1
#else
#define LLM__HAS_2021 0
#endif
#else
#define LLM__X86 0
#endif
#if defined(__aarch64__) && defined(__linux__) && !defined(LLM_NO_SIMD) && (!defined(__clang__) || defined(__ARM_FEATURE_DOTPROD))
#include <arm_neon.h>
#include <sys/auxv.h>
#define LLM__NEON 1
#if defined(__ARM_FEATURE_DOTPROD) /* clang before 16 must be told on the command line: -march=armv8.2-a+dotprod */
#define LLM__NEON_TARGET
#else
#define LLM__NEON_TARGET __attribute__((target("arch=armv8.2-a+dotprod")))
#endif
#else
#define LLM__NEON 0
#endif
