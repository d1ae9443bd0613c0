#pragma once
#include <stddef.h>
#include <stdint.h>

#ifndef LLM_API
#if defined(LLM_STATIC)
#define LLM_API static
#elif defined(__GNUC__)
#define LLM_API extern __attribute__((visibility("default")))
#else
#define LLM_API extern
#endif
#endif
