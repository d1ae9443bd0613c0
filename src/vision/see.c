/* see: opening a model with all that it has. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"
#include "model/loader.h"
#include "model/model.h"
#include "vision/vision.h"
#include "vision/tower_load.h"

/* The language model first: what sees is beside it, and checked as strictly. */
LLM_API llm_result llm_model_open(const char *path, const llm_model_config *cfg, llm_model **out) {
    llm_result r = llm__model_open(path, cfg, out);
    if (r) return r;
    r = llm__vision_open(*out, cfg);
    if (!r) r = llm__model_senses(*out, cfg);
    if (!r && (*out)->vision) r = llm__tower_check(*out, (*out)->vision);
    if (!r) return LLM_OK;
    llm_model_close(*out);
    *out = NULL;
    return r;
}
