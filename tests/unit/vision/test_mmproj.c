/* What is told of llama.cpp's second file: a head without tensors, as a folder's documents. That such models give what folders give is seen
 * by tests/e2e/test_vision.py. */
#include "../folder.h"
#include "../gguf.h"
#include "base/platform.h"
#include "base/json.h"
#include "model/loader.h"
#include "model/source.h"
#include "model/source_open.h"
#include "vision/mmproj.h"

/* A file with these numbers under clip.vision, told; 0: refused. */
static int mp_told(const test_folder *f, const char *projector, const char *more, uint32_t value, llm_json **config, llm_json **processor) {
    static const struct {
        const char *key;
        uint32_t v;
    } keys[] = {{"embedding_length", 32}, {"block_count", 5},          {"patch_size", 14},
                {"image_size", 56},       {"attention.head_count", 2}, {"feed_forward_length", 72}};
    char key[96], path[160];
    llm_model m;
    const char *named;
    llm_text t = gguf_head(3, 0, LLM__COUNT(keys) + 2 + (more != NULL));
    memset(&m, 0, sizeof m);
    *config = *processor = NULL;
    gguf_kv_str(&t, "general.architecture", "clip");
    gguf_kv_str(&t, "clip.projector_type", projector);
    for (int i = 0; i < LLM__COUNT(keys); i++) {
        snprintf(key, sizeof key, "clip.vision.%s", keys[i].key);
        gguf_kv(&t, key, LLM__GGUF_U32, keys[i].v, 4);
    }
    if (more) gguf_kv(&t, more, LLM__GGUF_U32, value, 4);
    CHECK(folder_write(f, "mmproj.gguf", t.data, t.len));
    llm_text_free(&t);
    snprintf(path, sizeof path, "%s", folder_file(f, "mmproj.gguf"));
    m.source.tokenizer = NULL; /* these families ask it for nothing */
    const llm_result r = llm__mmproj_open(&m, path, &named, config, processor);
    CHECK(!named || !strcmp(named, path));
    llm__source_close(&m.source);
    return !r;
}

static int64_t mp_int(const llm_json *d, const char *object, const char *key) {
    int64_t v = -1;
    llm_json_int(d, llm_json_find(d, object ? llm_json_find(d, 0, object) : 0, key), &v);
    return v;
}

TEST_GROUP(mmproj) {
    test_folder f;
    llm_json *config, *processor;
    if (!folder_open(&f)) return;
    if (CHECK(mp_told(&f, "qwen2.5vl_merger", "clip.vision.n_wa_pattern", 2, &config, &processor))) {
        CHECK(!strcmp(llm_json_str(config, llm_json_find(config, 0, "model_type"), NULL), "qwen2_5_vl"));
        CHECK(mp_int(config, "vision_config", "hidden_size") == 32 && mp_int(config, "vision_config", "num_hidden_layers") == 5);
        const int full = llm_json_find(config, llm_json_find(config, 0, "vision_config"), "fullatt_block_indexes");
        CHECK(llm_json_size(config, full) == 2 && llm__json_whole(config, llm_json_first(config, full), -1) == 1); /* layers 1 and 3 */
        CHECK(mp_int(processor, NULL, "min_pixels") == 8 * 28 * 28 && mp_int(processor, NULL, "max_pixels") == 4096 * 28 * 28);
    }
    llm_json_free(config), llm_json_free(processor);
    if (CHECK(mp_told(&f, "idefics3", NULL, 0, &config, &processor))) {
        CHECK(mp_int(config, NULL, "scale_factor") == 2 && mp_int(processor, "size", "longest_edge") == 224); /* four tiles of 56 */
        CHECK(mp_int(processor, "max_image_size", "longest_edge") == 56 && mp_int(config, "vision_config", "intermediate_size") == 72);
    }
    llm_json_free(config), llm_json_free(processor);
    if (CHECK(mp_told(&f, "glm4v", NULL, 0, &config, &processor))) { /* without a table of positions it is GLM-OCR's */
        CHECK(!strcmp(llm_json_str(config, llm_json_find(config, 0, "model_type"), NULL), "glm_ocr"));
        CHECK(mp_int(config, "vision_config", "temporal_patch_size") == 2 && mp_int(config, "vision_config", "spatial_merge_size") == 2);
        CHECK(mp_int(processor, NULL, "min_pixels") == 2 * 8 * 28 * 28 && mp_int(processor, NULL, "max_pixels") == 2 * 4096 * 28 * 28);
    }
    llm_json_free(config), llm_json_free(processor);
    if (CHECK(mp_told(&f, "kimivl", NULL, 0, &config, &processor))) CHECK(mp_int(processor, NULL, "in_token_limit") == 4096);
    llm_json_free(config), llm_json_free(processor);
    if (CHECK(mp_told(&f, "kimivl", "clip.vision.image_max_pixels", 14 * 14 * 30 + 5, &config, &processor)))
        CHECK(mp_int(processor, NULL, "in_token_limit") == 30 && mp_int(config, NULL, "spatial_merge_size") == 2);
    llm_json_free(config), llm_json_free(processor);
    if (CHECK(mp_told(&f, "gemma4v", NULL, 0, &config, &processor))) CHECK(mp_int(processor, NULL, "max_soft_tokens") == 280);
    llm_json_free(config), llm_json_free(processor);
    if (CHECK(mp_told(&f, "gemma4v", "clip.vision.image_max_pixels", 70 * 42 * 42, &config, &processor)))
        CHECK(mp_int(processor, NULL, "max_soft_tokens") == 70 && mp_int(config, "vision_config", "pooling_kernel_size") == 3);
    llm_json_free(config), llm_json_free(processor);
    CHECK(!mp_told(&f, "perceiver", NULL, 0, &config, &processor) && strstr(llm_last_error(), "qwen3vl_merger"));
    CHECK(!mp_told(&f, "resampler", "clip.minicpmv_version", 2, &config, &processor) && strstr(llm_last_error(), "minicpmv_version"));
    CHECK(!mp_told(&f, "qwen2.5vl_merger", NULL, 0, &config, &processor) && strstr(llm_last_error(), "n_wa_pattern"));
    folder_close(&f);
}
