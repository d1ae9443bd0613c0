/* isa: instruction sets, by name and by what this processor runs. */
#pragma once
#include "api/config.h"
#include "base/platform.h"

/* Worse ones first. All give a row the same result whoever is beside it in a batch; between two sets the last bits may differ, for only
 * some fuse a multiplication with an addition. */
/* clang-format off */
typedef enum llm__isa {
    LLM__ISA_SCALAR = 0, LLM__ISA_AVX2, LLM__ISA_AVXVNNI, LLM__ISA_AVX512, LLM__ISA_AVX512VNNI, LLM__ISA_AVX512BF16, LLM__ISA_AMX,
    LLM__ISA_NEON, LLM__ISA_COUNT
} llm__isa;
/* clang-format on */

/* As users write it, and as llm_isa_list shows it. */
LLM__PRIVATE const char *llm__isa_name(llm__isa isa);

/* The instruction set of a name (NULL: the best). LLM_ERR_ARG with the names there are. On Intel's cores vdpbf16ps takes as long as four
 * multiply-adds: there it is no gain. */
LLM__PRIVATE llm_result llm__isa_find(const char *name, llm__isa *out);

/* 1 if this CPU runs it. */
LLM__PRIVATE int llm__isa_here(llm__isa isa);
