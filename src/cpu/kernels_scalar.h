/* kernels_scalar: the kernels in plain C, which say what all others do. */
#pragma once
#include "base/platform.h"
#include "cpu/kernels.h"
/* clang-format off */

/* Its table. */
extern LLM__PRIVATE const llm__kernels llm__kernels_scalar;
