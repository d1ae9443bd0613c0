/* blind: what stands for all of vision where LLM_NO_VISION leaves it out: no model sees. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/media.h"
#include "api/tokenizer.h"
#include "base/platform.h"
#include "base/log.h"
#include "model/loader.h"
#include "vision/picture.h"
#include "vision/vision.h"
#include "vision/fit.h"
#include "vision/marks.h"
#include "vision/tower.h"
#include "vision/tower_load.h"
#include "vision/mmproj.h"

#ifdef LLM_NO_VISION

static llm_result llm__blind(void) { return llm__error(LLM_ERR_UNSUPPORTED, "pictures: this build leaves vision out (LLM_NO_VISION)"); }

LLM__PRIVATE llm_result llm__vision_open(llm_model *m, const llm_model_config *cfg) {
    return (void)m, cfg && cfg->mmproj ? llm__blind() : LLM_OK;
}

LLM__PRIVATE llm_result llm__mmproj_known(const char *path) { return (void)path, llm__blind(); }
LLM__PRIVATE llm_result llm__tower_check(const llm_model *m, llm__vision *v) { return (void)m, (void)v, LLM_OK; }

LLM_API llm_result llm_media_open(const llm_model *model, const llm_media_config *cfg, llm_media **out) {
    (void)model, (void)cfg;
    return *out = NULL, llm__blind();
}

LLM_API void llm_media_free(llm_media *media) { (void)media; }

LLM_API void llm_media_get_info(const llm_media *media, llm_media_info *out) {
    (void)media;
    memset(out, 0, sizeof *out);
}

LLM_API int64_t llm_media_values(const llm_media *media, int32_t view, float *values, int64_t n) {
    (void)media, (void)view, (void)values, (void)n;
    return 0;
}

LLM_API llm_result llm_media_tokenize(const llm_model *model, const char *text, size_t len, int flags, llm_media *const *media,
                                      int32_t n_media, llm_tokens *ids) {
    (void)media;
    return n_media ? llm__blind() : llm_tokenize(model, text, len, flags, ids);
}

LLM__PRIVATE llm_result llm__processor_change(const llm__vision *v, const char *json, llm__processor *p) {
    return (void)v, (void)json, (void)p, llm__blind();
}

LLM__PRIVATE const char *llm__picture_kind(const uint8_t *data, size_t n) { return (void)data, (void)n, (const char *)NULL; }
LLM__PRIVATE llm_result llm__picture_size(int64_t w, int64_t h) { return (void)w, (void)h, llm__blind(); }

LLM__PRIVATE int32_t llm__frames_taken(const llm__vision *v, const llm__processor *p, int32_t n, double seconds) {
    return (void)v, (void)p, (void)seconds, n;
}

LLM__PRIVATE int llm__frames_to_the_last(const llm__vision *v) { return (void)v, 0; }

LLM__PRIVATE double llm__frame_step(const llm__vision *v, const llm__processor *p, int32_t n, double seconds) {
    return (void)v, (void)p, (void)n, (void)seconds, 0.0;
}

LLM__PRIVATE int32_t llm__vision_set(const llm__vision *v, int32_t id) { return (void)v, (void)id, 0; }

LLM__PRIVATE int llm__media_kind_of(const llm__vision *v, int32_t id, int *film) { return (void)v, (void)id, (void)film, -1; }

LLM__PRIVATE void llm__media_places(const llm__vision *v, const int32_t *ids, int32_t n, llm_media *const *media, int32_t n_media,
                                    int32_t *places, int32_t *next) {
    (void)v, (void)ids, (void)n, (void)media, (void)n_media, (void)places, (void)next;
}

LLM__PRIVATE llm_result llm__tower_open(const llm__tower_config *cfg, llm__tower **out) { return (void)cfg, *out = NULL, llm__blind(); }
LLM__PRIVATE void llm__tower_close(llm__tower *t) { (void)t; }
LLM__PRIVATE llm_result llm__tower_room(const llm__tower *t, llm_media *m) { return (void)t, (void)m, llm__blind(); }
LLM__PRIVATE void llm__tower_begin(llm__tower *t, llm_media *m) { (void)t, (void)m; }
LLM__PRIVATE double llm__tower_ops(const llm__tower *t) { return (void)t, 0.0; }
LLM__PRIVATE llm_result llm__tower_piece(llm__tower *t, double ops) { return (void)t, (void)ops, llm__blind(); }
#endif /* LLM_NO_VISION */
