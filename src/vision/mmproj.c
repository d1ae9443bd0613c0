#include "vision/mmproj.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/decode.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/source.h"
#include "model/facts.h"
#include "model/loader.h"

/* Families by clip.projector_type. */
static const struct {
    const char *projector, *model, *tower; /* model_type of config.json and of its vision_config */
    const char *rows;                      /* the token of a picture's rows, where it is not the placeholder */
} llm__mmproj_families[] = {{"gemma3", "gemma3", "siglip_vision_model", "<image_soft_token>"},
                            {"gemma4v", "gemma4", "gemma4_vision", NULL},
                            {"glm4v", "glm4v", "glm4v", NULL},
                            {"idefics3", "idefics3", "idefics3_vision", NULL},
                            {"internvl", "internvl", "internvl_vision", NULL},
                            {"kimivl", "kimi_vl", "moonvit", NULL},
                            {"lfm2", "lfm2_vl", "siglip2_vision_model", NULL},
                            {"llama4", "llama4", "llama4_vision_model", "<|patch|>"},
                            {"mlp", "llava", "clip_vision_model", NULL},
                            {"paddleocr", "paddleocr_vl", "paddleocr_vl_vision", NULL},
                            {"pixtral", "mistral3", "pixtral", NULL},
                            {"qwen2.5vl_merger", "qwen2_5_vl", "qwen2_5_vl", NULL},
                            {"qwen2vl_merger", "qwen2_vl", "qwen2_vl", NULL},
                            {"qwen3vl_merger", "qwen3_vl", "qwen3_vl", NULL},
                            {"resampler", "minicpmv", "siglip", NULL}};

/* What is asked while a file is told. */
typedef struct llm__mmproj {
    llm__facts f;
    const llm__tensors *tensors;
    int row; /* of llm__mmproj_families */
    int32_t hidden, n_layers, patch, size, merge;
    int has_class;
} llm__mmproj;

static int llm__mmproj_is(const llm__mmproj *p, const char *projector) {
    return !strcmp(llm__mmproj_families[p->row].projector, projector);
}

/* A tensor by its name, in which %d is the layer. */
static const llm__tensor *llm__mmproj_tensor(const llm__mmproj *p, const char *pattern, int layer) {
    char name[96];
    snprintf(name, sizeof name, pattern, layer);
    return llm__tensors_find(p->tensors, name);
}

/* The width within a layer, which some files state wrong. Early ones have the names of both matrices the wrong way round. */
static int32_t llm__mmproj_ff(const llm__mmproj *p) {
    const llm__tensor *up = llm__mmproj_tensor(p, "v.blk.%d.ffn_up.weight", 0);
    if (!up || up->n_dims != 2) return 0;
    const int64_t n = up->shape[0] == p->hidden ? up->shape[1] : up->shape[0];
    return n > 0 && n <= 1 << 18 ? (int32_t)n : 0;
}

/* Rows of the table of positions a side; 0: there is no table. */
static int32_t llm__mmproj_side(const llm__mmproj *p) {
    const llm__tensor *t = llm__mmproj_tensor(p, "v.position_embd.weight", 0);
    if (!t) return 0;
    const int64_t rows = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] / p->hidden - p->has_class;
    return rows > 0 && rows < 1 << 24 ? (int32_t)lround(sqrt((double)rows)) : 0;
}

/* Rows of Gemma 4's table of positions, of which there is one for columns and one for rows. */
static int32_t llm__mmproj_axes(const llm__mmproj *p) {
    const llm__tensor *t = llm__mmproj_tensor(p, "v.position_embd.weight", 0);
    const int64_t rows = t ? t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] / p->hidden / 2 : 0;
    return rows > 0 && rows <= 1 << 16 ? (int32_t)rows : 0;
}

/* A list of layers: those of every `each`, or those that have a tensor of that name. */
static void llm__mmproj_layers(const llm__mmproj *p, const char *key, int each, const char *pattern, llm_text *t) {
    llm_text_format(t, ",%q:[", key);
    for (int i = 0; i < p->n_layers; i++)
        if (each ? (i + 1) % each == 0 : llm__mmproj_tensor(p, pattern, i) != NULL) llm_text_format(t, "%,%d", i);
    llm_text_str(t, "]");
}

/* A list of numbers under a key, in pairs if `pairs`; nothing where it is absent. */
static void llm__mmproj_list(const llm__mmproj *p, const char *key, const char *as, int pairs, llm_text *t) {
    const llm__gguf_kv *kv = llm__gguf_find(p->f.gguf, key);
    double v, w;
    if (!kv || !kv->is_array || kv->count > 512) return;
    llm_text_format(t, "%,%q:[", as);
    for (uint64_t i = 0; i + (uint64_t)pairs < kv->count; i += 1 + (uint64_t)pairs) {
        if (!llm__gguf_num_at(kv, i, &v) || !isfinite(v)) continue;
        if (!pairs) llm_text_format(t, "%,%f", v);
        else if (llm__gguf_num_at(kv, i + 1, &w) && isfinite(w)) llm_text_format(t, "%,[%f,%f]", w, v); /* width first */
    }
    llm_text_str(t, "]");
}

/* vision_config. */
static void llm__mmproj_tower(llm__mmproj *p, const char *tower, llm_text *t) {
    llm__facts *f = &p->f;
    const int32_t side = llm__mmproj_side(p), ff = llm__mmproj_ff(p);
    const int gelu = llm__fact_bool(f, ".use_gelu", 0), silu = llm__fact_bool(f, ".use_silu", 0);
    llm_text_format(t, ",'vision_config':{'model_type':%q,'hidden_size':%d,'num_hidden_layers':%d,'patch_size':%d", tower, p->hidden,
                    p->n_layers, p->patch);
    llm_text_format(t, ",'num_attention_heads':%d,'intermediate_size':%d,'image_size':%d,'layer_norm_eps':%f",
                    llm__fact_int(f, ".vision.attention.head_count", LLM__MUST, 1, 1024),
                    ff ? ff : llm__fact_int(f, ".vision.feed_forward_length", LLM__MUST, 1, 1 << 18), side ? side * p->patch : p->size,
                    llm__fact_num(f, ".vision.attention.layer_norm_epsilon", 1e-6, 1e-20, 1));
    int32_t head = llm__fact_int(f, ".vision.attention.head_dim", 0, 0, 1024);
    if (llm__mmproj_is(p, "llama4")) llm_text_format(t, ",'pixel_shuffle_ratio':%f", 1.0 / p->merge);
    if (llm__mmproj_is(p, "gemma4v")) {
        const llm__tensor *q = llm__mmproj_tensor(p, "v.blk.%d.attn_q.weight", 0);
        if (!head && q) head = (int32_t)LLM__MIN(q->shape[0] / llm__fact_int(f, ".vision.attention.head_count", LLM__MUST, 1, 1024), 1024);
        llm_text_format(t, ",'position_embedding_size':%d,'pooling_kernel_size':%d,'use_clipped_linears':%b", llm__mmproj_axes(p), p->merge,
                        llm__mmproj_tensor(p, "v.blk.%d.attn_q.input_max", 0) != NULL);
    }
    if (head) llm_text_format(t, ",'head_dim':%d", head);
    if (llm__mmproj_is(p, "pixtral") || (p->has_class && llm__mmproj_is(p, "mlp")))
        llm_text_format(t, ",'hidden_act':%q", silu ? "silu" : gelu ? "gelu" : "quick_gelu");
    if (llm__mmproj_is(p, "internvl") && !llm__mmproj_tensor(p, "v.blk.%d.ln1.bias", 0)) llm_text_str(t, ",\"norm_type\":\"rms_norm\"");
    if (llm__mmproj_is(p, "glm4v")) llm_text_format(t, ",'out_hidden_size':%d", ff); /* its file tells the projector's width */
    if (strstr(llm__mmproj_families[p->row].projector, "vl_merger") || llm__mmproj_is(p, "glm4v") || llm__mmproj_is(p, "paddleocr"))
        llm_text_format(t, ",'spatial_merge_size':%d,'temporal_patch_size':2", p->merge);
    if (llm__mmproj_is(p, "qwen2.5vl_merger")) {
        llm_text_format(t, ",'tokens_per_second':2,'window_size':%d", llm__fact_int(f, ".vision.window_size", 112, p->patch, 1 << 16));
        llm__mmproj_layers(p, "fullatt_block_indexes", llm__fact_int(f, ".vision.n_wa_pattern", LLM__MUST, 1, LLM__MAX_LAYERS), "", t);
    }
    if (llm__mmproj_is(p, "qwen3vl_merger")) llm__mmproj_layers(p, "deepstack_visual_indexes", 0, "v.deepstack.%d.fc1.weight", t);
    if (llm__mmproj_is(p, "kimivl") && side) llm_text_format(t, ",'init_pos_emb_height':%d", side);
    if (llm__mmproj_is(p, "lfm2") && side) llm_text_format(t, ",'num_patches':%d", side * side);
    if (llm__mmproj_is(p, "qwen3vl_merger") && side) llm_text_format(t, ",'num_position_embeddings':%d", side * side);
    llm_text_str(t, "}");
}

/* config.json. */
static void llm__mmproj_config(llm__mmproj *p, const llm__tokenizer *tokenizer, llm_text *t) {
    llm__facts *f = &p->f;
    const char *model = llm__mmproj_families[p->row].model, *tower = llm__mmproj_families[p->row].tower;
    const char *rows = llm__mmproj_families[p->row].rows;
    if (llm__mmproj_is(p, "mlp") && llm__gguf_find(f->gguf, "clip.vision.image_grid_pinpoints"))
        model = p->has_class ? "llava_next" : "llava_onevision";
    if (llm__mmproj_is(p, "mlp") && !p->has_class) tower = "siglip_vision_model";
    if (llm__mmproj_is(p, "glm4v") && !llm__mmproj_side(p)) model = tower = "glm_ocr"; /* it has no table of positions */
    llm_text_format(t, "{'model_type':%q", model);
    if (rows) llm_text_format(t, ",'image_token_id':%d", llm__tokenizer_id(tokenizer, llm__lit(rows)));
    if (llm__mmproj_is(p, "idefics3") || llm__mmproj_is(p, "internvl")) llm_text_format(t, ",'scale_factor':%d", p->merge);
    if (llm__mmproj_is(p, "lfm2")) llm_text_format(t, ",'downsample_factor':%d", p->merge);
    if (llm__mmproj_is(p, "pixtral")) llm_text_format(t, ",'spatial_merge_size':%d", p->merge);
    if (llm__mmproj_is(p, "kimivl")) llm_text_format(t, ",'spatial_merge_size':%d", p->merge);
    if (llm__mmproj_is(p, "gemma3")) {
        const int32_t n = llm__mmproj_side(p) / p->merge;
        llm_text_format(t, ",'mm_tokens_per_image':%d", n * n);
    }
    if (llm__mmproj_is(p, "resampler")) {
        const llm__tensor *query = llm__mmproj_tensor(p, "resampler.query", 0);
        const int32_t n = query ? (int32_t)LLM__MIN(query->shape[0], 4096) : 64;
        llm_text_format(t, ",'query_num':%d", llm__fact_int(f, ".minicpmv_query_num", n, 1, 4096));
    }
    char text[64];
    if (llm__fact_str(f, ".vision.image_aspect_ratio", text)[0]) llm_text_format(t, ",'vision_aspect_ratio':%q", text);
    const llm__gguf_kv *layers = llm__gguf_find(f->gguf, "clip.vision.feature_layer");
    if (llm__mmproj_is(p, "mlp") && layers && layers->is_array) {
        llm__mmproj_list(p, "clip.vision.feature_layer", "vision_feature_layer", 0, t);
    } else if (llm__mmproj_is(p, "mlp"))
        llm_text_format(t, ",'vision_feature_layer':%d",
                        llm__fact_int(f, ".vision.feature_layer", p->n_layers, 1, LLM__MAX(p->n_layers, 1)));
    llm__mmproj_tower(p, tower, t);
    llm_text_str(t, "}");
}

/* preprocessor_config.json, with the members of all families: each reads its own. */
static void llm__mmproj_processor(llm__mmproj *p, llm_text *t) {
    llm__facts *f = &p->f;
    const int64_t unit = (int64_t)p->patch * p->merge;
    const int32_t longest =
        llm__fact_int(f, ".vision.preproc_image_size", llm__mmproj_is(p, "idefics3") ? 4 * (int64_t)p->size : p->size, 1, 16384);
    llm_text_str(t, "{");
    llm__mmproj_list(p, "clip.vision.image_mean", llm__mmproj_is(p, "resampler") ? "norm_mean" : "image_mean", 0, t);
    llm__mmproj_list(p, "clip.vision.image_std", llm__mmproj_is(p, "resampler") ? "norm_std" : "image_std", 0, t);
    llm__mmproj_list(p, "clip.vision.image_grid_pinpoints", "image_grid_pinpoints", 1, t);
    llm_text_format(t, "%,'size':{'height':%d,'width':%d,'shortest_edge':%d,'longest_edge':%d}", p->size, p->size, p->size, longest);
    llm_text_format(t, ",'crop_size':{'height':%d},'max_image_size':{'longest_edge':%d},'scale_resolution':%d", p->size, p->size, p->size);
    if (llm__mmproj_is(p, "internvl") || llm__mmproj_is(p, "llama4"))
        llm_text_format(t, ",'min_patches':%d,'max_patches':%d", llm__fact_int(f, ".vision.preproc_min_tiles", 1, 1, 256),
                        llm__fact_int(f, ".vision.preproc_max_tiles", llm__mmproj_is(p, "llama4") ? 16 : 12, 1, 256));
    const double square = (double)p->patch * p->patch; /* Kimi-VL's files state no bound, which is its class's then: so many patches */
    if (llm__mmproj_is(p, "kimivl"))
        llm_text_format(t, ",'in_token_limit':%d", (int32_t)(llm__fact_num(f, ".vision.image_max_pixels", 4096 * square, 1, 1e9) / square));
    if (llm__mmproj_is(p, "gemma4v")) /* as its class has it where the file states no bound */
        llm_text_format(
            t, ",'max_soft_tokens':%d",
            (int32_t)(llm__fact_num(f, ".vision.image_max_pixels", 280.0 * (double)(unit * unit), 1, 1e9) / (double)(unit * unit)));
    /* of a picture in its own shape; as llama.cpp has it where the file does not say. GLM-4.1V's pictures count twice */
    const int64_t times = llm__mmproj_is(p, "glm4v") ? 2 : 1;
    llm_text_format(t, ",'min_pixels':%l,'max_pixels':%l}",
                    times * (int64_t)llm__fact_num(f, ".vision.image_min_pixels", (double)(8 * unit * unit), 1, 1e9),
                    times * (int64_t)llm__fact_num(f, ".vision.image_max_pixels", (double)(4096 * unit * unit), 1, 1e9));
}

/* Which family it is, or why none of those that are known here. */
static llm_result llm__mmproj_family(llm__mmproj *p) {
    LLM__SCOPED(llm_text_free) llm_text known = LLM__ZERO;
    char name[64];
    const llm__str arch = llm__gguf_str(p->f.gguf, "general.architecture");
    if (!llm__str_eq(arch, "clip"))
        return llm__error(LLM_ERR_FORMAT, "mmproj: %s: a GGUF file of the architecture \"%.*s\", llama.cpp's \"clip\" was expected",
                          p->f.path, (int)LLM__MIN(arch.n, (size_t)64), arch.p ? arch.p : "");
    llm__fact_str(&p->f, ".vision.projector_type", name);
    if (!name[0]) llm__fact_str(&p->f, ".projector_type", name);
    if (p->f.r) return p->f.r;
    for (p->row = 0; p->row < LLM__COUNT(llm__mmproj_families); p->row++) {
        const char *row = llm__mmproj_families[p->row].projector;
        if (!strcmp(name[0] ? name : "mlp", row)) return LLM_OK;
        llm_text_str(&known, p->row ? ", " : "");
        llm_text_str(&known, row);
    }
    return llm__error(LLM_ERR_UNSUPPORTED, "mmproj: %s: clip.projector_type: \"%s\" is not supported; these are: %s", p->f.path, name,
                      known.data ? known.data : "");
}

/* What everything else is worked out with. */
static llm_result llm__mmproj_shapes(llm__mmproj *p) {
    static const char merges[] = ".vision.spatial_merge_size .vision.projector.scale_factor";
    llm__facts *f = &p->f;
    const int usual = llm__mmproj_is(p, "gemma3")                                                                  ? 4
                      : llm__mmproj_is(p, "gemma4v")                                                               ? 3
                      : llm__mmproj_is(p, "pixtral") || llm__mmproj_is(p, "mlp") || llm__mmproj_is(p, "resampler") ? 1
                                                                                                                   : 2;
    const int version = llm__fact_int(f, ".minicpmv_version", 3, 0, INT32_MAX);
    if (!llm__fact_bool(f, ".has_vision_encoder", 1))
        return llm__error(LLM_ERR_UNSUPPORTED, "mmproj: %s: it has no tower for pictures (clip.has_vision_encoder is false)", f->path);
    if (llm__mmproj_is(p, "resampler") && version < 3)
        return llm__error(LLM_ERR_UNSUPPORTED, "mmproj: %s: clip.minicpmv_version: %d, 3 (MiniCPM-V 2.6) or later was expected", f->path,
                          version);
    p->hidden = llm__fact_int(f, ".vision.embedding_length", LLM__MUST, 8, 1 << 16);
    p->n_layers = llm__fact_int(f, ".vision.block_count", LLM__MUST, 1, LLM__MAX_LAYERS);
    p->patch = llm__fact_int(f, ".vision.patch_size", LLM__MUST, 1, 256);
    p->size = llm__fact_int(f, ".vision.image_size", LLM__MUST, p->patch, 16384);
    p->merge = llm__fact_int(f, merges, usual, 1, 16);
    p->has_class = llm__mmproj_tensor(p, "v.class_embd", 0) != NULL;
    return f->r;
}

/* Both documents. */
static llm_result llm__mmproj_told(llm__mmproj *p, const llm__tokenizer *tokenizer, llm_json **config, llm_json **processor) {
    LLM__SCOPED(llm_text_free) llm_text first = LLM__ZERO, second = LLM__ZERO;
    llm_result r = llm__mmproj_family(p);
    if (!r) r = llm__mmproj_shapes(p);
    if (r) return r;
    llm__mmproj_config(p, tokenizer, &first);
    llm__mmproj_processor(p, &second);
    if (p->f.r) return p->f.r;
    if (first.failed || second.failed) return llm__nomem();
    r = llm_json_parse(first.data, first.len, NULL, config);
    return r ? r : llm_json_parse(second.data, second.len, NULL, processor);
}

LLM__PRIVATE llm_result llm__mmproj_open(llm_model *m, const char *path, const char **named, llm_json **config, llm_json **processor) {
    LLM__SCOPED(llm__gguf_free) llm__gguf keys = LLM__ZERO;
    llm__source *s = &m->source;
    llm__file file;
    llm__mmproj p = LLM__ZERO;
    *named = llm__arena_str(&s->arena, llm__lit(path));
    if (!*named) return llm__nomem();
    llm_result r = llm__source_file(s, *named, &file);
    if (r) return r;
    if (!llm__is_gguf(&file)) return llm__error(LLM_ERR_FORMAT, "mmproj: %s: no GGUF file; llama.cpp's mmproj-*.gguf was expected", path);
    r = llm__gguf_parse(*named, file.data, file.size, &keys, &s->mmproj);
    if (r) return r;
    p.f.gguf = &keys;
    p.f.path = *named;
    memcpy(p.f.arch, "clip", 5);
    p.tensors = &s->mmproj;
    return llm__mmproj_told(&p, s->tokenizer, config, processor);
}

LLM__PRIVATE llm_result llm__mmproj_known(const char *path) {
    LLM__SCOPED(llm__gguf_free) llm__gguf keys = LLM__ZERO;
    LLM__SCOPED(llm__tensors_free) llm__tensors tensors = LLM__ZERO;
    LLM__SCOPED(llm__file_close) llm__file file = LLM__ZERO;
    llm__mmproj p = LLM__ZERO;
    llm_result r = llm__file_open(path, 0, 0, &file);
    if (!r && !llm__is_gguf(&file)) r = llm__error(LLM_ERR_FORMAT, "mmproj: %s: no GGUF file", path);
    if (!r) r = llm__gguf_parse(path, file.data, file.size, &keys, &tensors);
    p.f.gguf = &keys;
    p.f.path = path;
    memcpy(p.f.arch, "clip", 5);
    p.tensors = &tensors;
    if (!r) r = llm__mmproj_family(&p);
    return r ? r : llm__mmproj_shapes(&p);
}
