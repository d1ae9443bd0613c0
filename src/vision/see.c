/* see: opening a model with all that it has. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/place.h"
#include "model/loader.h"
#include "model/model.h"
#include "vision/vision.h"
#include "vision/tower_load.h"

/* The language model first: what sees is beside it, and checked as strictly. */
static llm_result llm__see_open(const char *path, const llm__place *place, const llm_model_config *cfg, llm_model **out) {
    static const llm__place none = {NULL, 0};
    llm_result r = llm__model_open(path, place, cfg, out);
    if (r) return r;
    (*out)->source.place = place ? *place : none;
    r = llm__vision_open(*out, cfg);
    (*out)->info.vision = (*out)->vision != NULL;
    (*out)->source.place = none;
    if (!r) llm__model_senses(*out, cfg);
    if (!r && (*out)->vision) r = llm__tower_check(*out, (*out)->vision);
    if (!r && (*out)->vision && (*out)->vision->gguf) {
        (*out)->info.n_params += (*out)->vision->n_params;
        (*out)->info.weight_bytes += (*out)->vision->bytes;
    }
    if (!r) return LLM_OK;
    llm_model_close(*out);
    *out = NULL;
    return r;
}

LLM_API llm_result llm_model_open(const char *path, const llm_model_config *cfg, llm_model **out) {
    return llm__see_open(path, NULL, cfg, out);
}

LLM_API llm_result llm_model_open_files(const llm_file *files, int32_t n, const llm_model_config *cfg, llm_model **out) {
    LLM__SCOPED(llm_text_free) llm_text path = LLM__ZERO;
    const llm__place place = {files, n};
    *out = NULL;
    llm_result r = files && n > 0 ? llm__place_model(&place, &path) : llm__error(LLM_ERR_ARG, "files: at least one expected");
    return r ? r : llm__see_open(path.data, &place, cfg, out);
}
