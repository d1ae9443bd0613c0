#include "cpu/backend.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"

LLM__PRIVATE void llm__cpu_fail(llm_backend_ctx *ctx, llm_result r, const char *what) {
    if (ctx->failed) return;
    ctx->failed = r;
    snprintf(ctx->why, sizeof ctx->why, "%s", what);
}

LLM__PRIVATE int llm__op_rows(const llm_backend_ctx *ctx, llm_rows rows) {
    return rows == LLM_ROWS_OUT ? ctx->step.shape.n_out : ctx->step.shape.n_rows;
}
