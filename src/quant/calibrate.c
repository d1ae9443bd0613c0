#include "quant/calibrate.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/log.h"
#include "engine/scheduler.h"
#include "quant/codes.h"

LLM__PRIVATE void llm__calibrated_layer(llm__qjob *j, llm__rounded_list *rounded) {
    (void)rounded;
    j->r = llm__error(LLM_ERR_UNSUPPORTED, "not yet");
}
