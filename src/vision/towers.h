/* towers: families that see, as data.
 *
 * A model that sees is a language model with a tower before it: a picture is resized and cut into views, a view into patches, and the tower
 * (a transformer whose rows see each other both ways) makes of the patches what a projector turns into rows of the language model's width.
 * These stand in the prompt where the text has placeholders. What families differ in are rows and switches here:
 *
 *     fit         how a picture becomes views            >>fit
 *     tower       norms, positions, attention            llm__towers, by the tower's own model_type
 *     projector   a list of steps with tensor names      llm__projectors
 *     marks       what the prompt has around a picture   >>marks
 *     positions   of the language model                  >>marks
 *
 * To add a family of known parts is to add a row to llm__eyes, and to each of the other tables if it has something of its own. */
#pragma once
#include "api/backend.h"
#include "vision/tower_kinds.h"

/* mean and standard deviation of each channel */
static const double llm__constants[2][6] = {{0.48145466, 0.4578275, 0.40821073, 0.26862954, 0.26130258, 0.27577711}, /* CLIP */
                                            {0.5, 0.5, 0.5, 0.5, 0.5, 0.5}};

#define LLM__QWEN3_TOWER \
    "hidden_size 1152 intermediate_size 4304 depth 27 num_heads 16 patch_size 16 spatial_merge_size 2 temporal_patch_size 2 " \
    "num_position_embeddings 2304"
static const llm__tower_family llm__towers[] = {
    {"clip_vision_model clip llava llava_next", LLM__SEES_CLASS | LLM__SEES_TABLE, LLM_ACT_QUICK_GELU, 1e-5f,
     "hidden_size 768 intermediate_size 3072 num_hidden_layers 12 num_attention_heads 12 image_size 224 patch_size 32"},
    {"siglip_vision_model siglip llava_onevision gemma3 minicpmv", LLM__SEES_TABLE, LLM_ACT_GELU_TANH, 1e-6f,
     "hidden_size 768 intermediate_size 3072 num_hidden_layers 12 num_attention_heads 12 image_size 224 patch_size 16"},
    {"siglip2_vision_model siglip2 lfm2_vl", LLM__SEES_TABLE | LLM__SEES_SMOOTH, LLM_ACT_GELU_TANH, 1e-6f,
     "hidden_size 768 intermediate_size 3072 num_hidden_layers 12 num_attention_heads 12 patch_size 16 num_patches 256"},
    {"idefics3_vision smolvlm_vision idefics3 smolvlm idefics2", LLM__SEES_TABLE | LLM__SEES_BUCKETS, LLM_ACT_GELU_TANH, 1e-6f,
     "hidden_size 1152 intermediate_size 3072 num_hidden_layers 12 num_attention_heads 16 image_size 224 patch_size 32"},
    {"internvl_vision intern_vit_6b internvl internvl_chat", LLM__SEES_CLASS | LLM__SEES_TABLE, LLM_ACT_GELU, 1e-6f,
     "hidden_size 1024 intermediate_size 4096 num_hidden_layers 24 num_attention_heads 16 image_size 448 patch_size 14"},
    {"qwen2_vl", LLM__SEES_ROPE, LLM_ACT_QUICK_GELU, 1e-6f,
     "embed_dim 1280 depth 32 num_heads 16 mlp_ratio 4 patch_size 14 spatial_merge_size 2 temporal_patch_size 2"},
    {"qwen2_5_vl", LLM__SEES_ROPE | LLM__SEES_RMS, LLM_ACT_SILU, 1e-6f,
     "hidden_size 3584 intermediate_size 3420 depth 32 num_heads 16 patch_size 14 spatial_merge_size 2 temporal_patch_size 2 "
     "window_size 112"},
    {"qwen3_vl qwen3_vl_moe", LLM__SEES_ROPE | LLM__SEES_TABLE | LLM__SEES_STRETCHED | LLM__SEES_DEEP, LLM_ACT_GELU_TANH, 1e-6f,
     LLM__QWEN3_TOWER},
    {"qwen3_5 qwen3_5_moe qwen3_5_vision qwen3_5_moe_vision", LLM__SEES_ROPE | LLM__SEES_TABLE | LLM__SEES_STRETCHED, LLM_ACT_GELU_TANH,
     1e-6f, LLM__QWEN3_TOWER},
    {"glm4v_vision glm4v_moe_vision glm4v glm4v_moe glm46v",
     LLM__SEES_ROPE | LLM__SEES_TABLE | LLM__SEES_CUBIC | LLM__SEES_LATE | LLM__SEES_RMS | LLM__SEES_WIDE, LLM_ACT_SILU, 1e-5f,
     "hidden_size 1536 out_hidden_size 4096 depth 24 num_heads 12 image_size 336 patch_size 14 spatial_merge_size 2 temporal_patch_size 2"},
    {"glm_ocr_vision glm_ocr", LLM__SEES_ROPE | LLM__SEES_RMS, LLM_ACT_SILU, 1e-5f,
     "hidden_size 1024 intermediate_size 4096 depth 24 num_heads 16 patch_size 14 spatial_merge_size 2 temporal_patch_size 2"},
    {"ernie4_5_vl_moe_vision ernie4_5_moe_vl_vision DFNRope_vision_transformer ernie4_5_vl_moe ernie4_5_moe_vl", LLM__SEES_ROPE,
     LLM_ACT_QUICK_GELU, 1e-6f, "hidden_size 1280 depth 32 num_heads 16 mlp_ratio 4 patch_size 14 spatial_merge_size 2"},
    {"moonvit kimi_vl", LLM__SEES_ROPE | LLM__SEES_TABLE | LLM__SEES_CUBIC | LLM__SEES_COUPLES, LLM_ACT_GELU_TANH, 1e-5f,
     "hidden_size 1152 intermediate_size 4304 num_hidden_layers 27 num_attention_heads 16 patch_size 14 init_pos_emb_height 64 "
     "merge_kernel_size 2"},
    {"paddleocr_vl_vision paddleocr_vl", LLM__SEES_ROPE | LLM__SEES_TABLE | LLM__SEES_MIDDLES, LLM_ACT_GELU_TANH, 1e-6f,
     "hidden_size 1152 intermediate_size 4304 num_hidden_layers 27 num_attention_heads 16 image_size 384 patch_size 14 "
     "spatial_merge_size 2"},
    {"gemma4_vision gemma4",
     LLM__SEES_ROPE | LLM__SEES_TABLE | LLM__SEES_AXES | LLM__SEES_QUARTERS | LLM__SEES_RMS | LLM__SEES_POST | LLM__SEES_VALUES,
     LLM_ACT_GELU_TANH, 1e-6f,
     "hidden_size 768 intermediate_size 3072 num_hidden_layers 16 num_attention_heads 12 head_dim 64 patch_size 16 rope_theta 100 "
     "position_embedding_size 10240 pooling_kernel_size 3"},
    {"llama4_vision_model llama4", LLM__SEES_CLASS | LLM__SEES_TABLE | LLM__SEES_ROPE | LLM__SEES_NEXT | LLM__SEES_ONE, LLM_ACT_GELU, 1e-5f,
     "hidden_size 768 intermediate_size 5632 num_hidden_layers 34 num_attention_heads 16 image_size 448 patch_size 14 "
     "pixel_shuffle_ratio 0.5"},
    {"pixtral mistral3", LLM__SEES_TURNS | LLM__SEES_RMS, LLM_ACT_GELU, 1e-5f,
     "hidden_size 1024 intermediate_size 4096 num_hidden_layers 24 num_attention_heads 16 image_size 1024 patch_size 16 rope_theta 10000"},
};
#undef LLM__QWEN3_TOWER

static const llm__projector llm__projectors[] = {
    {"llava mlp",
     {{LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_1 mm.0", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_2 mm.2", LLM_ACT_NONE, 0}}},
    {"internvl",
     {{LLM__STEP_NORM, "@layernorm", LLM_ACT_NONE, LLM__STEP_MAYBE},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "multi_modal_projector.layer_norm mlp1.0 mm.model.mlp.0", LLM_ACT_NONE, LLM__STEP_EPS5},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_1 mlp1.1 mm.model.mlp.1", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_2 mlp1.3 mm.model.mlp.3", LLM_ACT_NONE, 0}}},
    {"idefics3",
     {{LLM__STEP_NORM, "@post_layernorm v.post_ln", LLM_ACT_NONE, 0},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "connector.modality_projection.proj mm.model.fc", LLM_ACT_NONE, 0}}},
    {"qwen2vl_merger qwen2.5vl_merger",
     {{LLM__STEP_NORM, "visual.merger.ln_q v.post_ln", LLM_ACT_NONE, 0},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "visual.merger.mlp.0 mm.0", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "visual.merger.mlp.2 mm.2", LLM_ACT_NONE, 0}}},
    {"qwen3vl_merger",
     {{LLM__STEP_NORM, "visual.merger.norm v.post_ln", LLM_ACT_NONE, 0},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "visual.merger.linear_fc1 mm.0", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "visual.merger.linear_fc2 mm.2", LLM_ACT_NONE, 0}}},
    {"glm4v",
     {{LLM__STEP_NORM, "@post_layernorm v.post_ln", LLM_ACT_NONE, 0},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "visual.downsample mm.patch_merger", LLM_ACT_NONE, LLM__STEP_CHANNELS},
      {LLM__STEP_LINEAR, "visual.merger.proj mm.model.fc", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "visual.merger.post_projection_norm mm.post_norm", LLM_ACT_GELU, LLM__STEP_EPS5},
      {LLM__STEP_GATED, "visual.merger.gate_proj mm.gate", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "visual.merger.down_proj mm.down", LLM_ACT_NONE, 0}}},
    {"gemma3",
     {{LLM__STEP_NORM, "@post_layernorm v.post_ln", LLM_ACT_NONE, 0},
      {LLM__STEP_MEAN, "", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "multi_modal_projector.mm_soft_emb_norm mm.soft_emb_norm", LLM_ACT_NONE, LLM__STEP_RMS | LLM__STEP_PLUS1},
      {LLM__STEP_LINEAR, "multi_modal_projector.mm_input_projection_weight mm.input_projection", LLM_ACT_NONE, LLM__STEP_ACROSS}}},
    {"kimivl",
     {{LLM__STEP_NORM, "@encoder.final_layernorm v.post_ln", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "multi_modal_projector.pre_norm mm.input_norm", LLM_ACT_NONE, LLM__STEP_EPS5},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_1 mm.1", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_2 mm.2", LLM_ACT_NONE, 0}}},
    {"lfm2",
     {{LLM__STEP_NORM, "@post_layernorm v.post_ln", LLM_ACT_NONE, 0},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "multi_modal_projector.layer_norm mm.input_norm", LLM_ACT_NONE, LLM__STEP_EPS5 | LLM__STEP_SAID},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_1 mm.1", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_2 mm.2", LLM_ACT_NONE, 0}}},
    {"paddleocr",
     {{LLM__STEP_NORM, "@post_layernorm v.post_ln", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "projector.pre_norm mlp_AR.pre_norm mm.input_norm", LLM_ACT_NONE, LLM__STEP_EPS5},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "projector.linear_1 mlp_AR.linear_1 mm.1", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "projector.linear_2 mlp_AR.linear_2 mm.2", LLM_ACT_NONE, 0}}},
    {"pixtral",
     {{LLM__STEP_NORM, "multi_modal_projector.norm mm.input_norm", LLM_ACT_NONE, LLM__STEP_RMS | LLM__STEP_TEXT_EPS | LLM__STEP_MAYBE},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "multi_modal_projector.patch_merger.merging_layer mm.patch_merger", LLM_ACT_NONE,
       LLM__STEP_CHANNELS | LLM__STEP_MAYBE},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_1 mm.1", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_2 mm.2", LLM_ACT_NONE, 0}}},
    {"ernie",
     {{LLM__STEP_NORM, "@ln", LLM_ACT_NONE, 0},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "resampler_model.spatial_linear.0", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "resampler_model.spatial_linear.2", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "resampler_model.spatial_linear.3", LLM_ACT_NONE, 0},
      {LLM__STEP_TWO, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "resampler_model.temporal_linear.0", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "resampler_model.temporal_linear.2", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "resampler_model.temporal_linear.3", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "resampler_model.mlp", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "resampler_model.after_norm", LLM_ACT_NONE, LLM__STEP_RMS | LLM__STEP_TEXT_EPS}}},
    {"aya",
     {{LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "multi_modal_projector.layernorm", LLM_ACT_NONE, LLM__STEP_OWN_EPS},
      {LLM__STEP_GATED, "multi_modal_projector.linear_1", LLM_ACT_SILU, LLM__STEP_HALVES},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_2", LLM_ACT_NONE, 0}}},
    {"cohere2",
     {{LLM__STEP_NORM, "@post_layernorm", LLM_ACT_NONE, 0},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_GATED, "multi_modal_projector.linear_1", LLM_ACT_SILU, LLM__STEP_HALVES},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_2", LLM_ACT_NONE, 0}}},
    {"llama4",
     {{LLM__STEP_NORM, "@layernorm_post v.post_ln", LLM_ACT_NONE, 0},
      {LLM__STEP_GATHER, "", LLM_ACT_NONE, 0},
      {LLM__STEP_LINEAR, "@vision_adapter.mlp.fc1 mm.model.mlp.1", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "@vision_adapter.mlp.fc2 mm.model.mlp.2", LLM_ACT_GELU, 0},
      {LLM__STEP_LINEAR, "multi_modal_projector.linear_1 mm.model.fc", LLM_ACT_NONE, 0}}},
    {"gemma4",
     {{LLM__STEP_MEAN, "", LLM_ACT_NONE, 0},
      {LLM__STEP_ROOT, "@std_scale", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "", LLM_ACT_NONE, LLM__STEP_BARE | LLM__STEP_RMS},
      {LLM__STEP_LINEAR, "embed_vision.embedding_projection mm.input_projection", LLM_ACT_NONE, 0}}},
    {"resampler",
     {{LLM__STEP_NORM, "@post_layernorm v.post_ln", LLM_ACT_NONE, 0}}}, /* MiniCPM-V's, which attends: see llm__tower_resample */
};

#define LLM__QWEN LLM__EYES_FIRST | LLM__EYES_PAIRS | LLM__EYES_VIDEO
#define LLM__GLM LLM__QWEN | LLM__EYES_TIMES | LLM__EYES_DOUBLE | LLM__EYES_BEHIND
#define LLM__ERNIE LLM__EYES_FIRST | LLM__EYES_TWICE | LLM__EYES_VIDEO
static const llm__eyes_family llm__eyes[] = {
    {"llava", "llava", LLM__FIT_CROP, LLM__MARKS_PLAIN, 0, 3, LLM__CLIP, "<image>", "", "", NULL, "vision_feature_layer -2"},
    {"llava_next", "llava", LLM__FIT_ANYRES, LLM__MARKS_PLAIN, LLM__EYES_NEWLINES, 3, LLM__CLIP, "<image>", "", "", NULL,
     "vision_feature_layer -2"},
    {"llava_onevision", "llava", LLM__FIT_ANYRES, LLM__MARKS_PLAIN, LLM__EYES_NEWLINES | LLM__EYES_SHRINK, 3, LLM__CLIP, "<image>", "", "",
     NULL, ""},
    {"internvl internvl_chat", "internvl", LLM__FIT_TILES, LLM__MARKS_PLAIN, 0, 3, LLM__CLIP, "<IMG_CONTEXT>", "<img>", "</img>", NULL,
     "scale_factor 2"},
    {"minicpmv", "resampler", LLM__FIT_SLICES, LLM__MARKS_SLICES, LLM__EYES_RAW | LLM__EYES_IN_TEXT, 3, LLM__HALF, "(<image>./</image>)",
     "<image>", "</image>", NULL, ""},
    {"qwen2_vl", "qwen2vl_merger", LLM__FIT_PATCHES, LLM__MARKS_PLAIN, LLM__QWEN, 3, LLM__CLIP, "<|image_pad|>", "", "", "<|video_pad|>",
     ""},
    {"qwen2_5_vl", "qwen2.5vl_merger", LLM__FIT_PATCHES, LLM__MARKS_PLAIN, LLM__QWEN | LLM__EYES_SECONDS, 3, LLM__CLIP, "<|image_pad|>", "",
     "", "<|video_pad|>", ""},
    {"qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe", "qwen3vl_merger", LLM__FIT_PATCHES, LLM__MARKS_PLAIN, LLM__QWEN | LLM__EYES_TIMES, 3,
     LLM__CLIP, "<|image_pad|>", "", "", "<|video_pad|>", ""},
    {"glm4v glm4v_moe glm46v glm_ocr", "glm4v", LLM__FIT_PATCHES, LLM__MARKS_PLAIN, LLM__GLM, 3, LLM__CLIP, "<|image|>", "", "",
     "<|video|>", ""},
    {"ernie4_5_vl_moe ernie4_5_moe_vl", "ernie", LLM__FIT_PATCHES, LLM__MARKS_PLAIN, LLM__ERNIE, 3, LLM__CLIP, "<|IMAGE_PLACEHOLDER|>", "",
     "", "<|VIDEO_PLACEHOLDER|>", ""},
    {"smolvlm idefics3", "idefics3", LLM__FIT_SPLIT, LLM__MARKS_GRID, 0, 1, LLM__HALF, "<image>", "", "", NULL, "scale_factor 2"},
    {"gemma3", "gemma3", LLM__FIT_SQUARE, LLM__MARKS_PLAIN, 0, 2, LLM__HALF, "<start_of_image>", "\n\n<start_of_image>",
     "<end_of_image>\n\n", NULL, "mm_tokens_per_image 256"},
    {"gemma4", "gemma4", LLM__FIT_BUDGET, LLM__MARKS_PLAIN, 0, 3, LLM__HALF, "<|image|>", "<|image>", "<image|>", NULL, ""},
    {"llama4", "llama4", LLM__FIT_CANVAS, LLM__MARKS_TILES, LLM__EYES_BRIEF, 2, LLM__HALF, "<|image|>", "<|image_start|>", "<|image_end|>",
     NULL, ""},
    {"aya_vision", "aya", LLM__FIT_TILES, LLM__MARKS_NUMBERED, 0, 3, LLM__CLIP, "<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", NULL,
     "downsample_factor 2"},
    {"cohere2_vision", "cohere2", LLM__FIT_TILES, LLM__MARKS_BROKEN, LLM__EYES_SCALE, 3, LLM__CLIP, "<|IMG_PATCH|>", "<|START_OF_IMG|>",
     "<|END_OF_IMG|>", NULL, "downsample_factor 2"},
    {"kimi_vl", "kimivl", LLM__FIT_LIMIT, LLM__MARKS_PLAIN, LLM__EYES_FIRST | LLM__EYES_RAW, 3, LLM__HALF, "<|media_pad|>", "", "", NULL,
     ""},
    {"lfm2_vl", "lfm2", LLM__FIT_TOKENS, LLM__MARKS_PLACES, 0, 2, LLM__HALF, "<image>", "<|image_start|>", "<|image_end|>", NULL,
     "downsample_factor 2"},
    {"paddleocr_vl", "paddleocr", LLM__FIT_PATCHES, LLM__MARKS_PLAIN, LLM__EYES_FIRST | LLM__EYES_GROWS, 3, LLM__CLIP,
     "<|IMAGE_PLACEHOLDER|>", "", "", NULL, ""},
    {"mistral3", "pixtral", LLM__FIT_EDGE, LLM__MARKS_ROWS, 0, 3, LLM__CLIP, "[IMG]", "", "", NULL, "spatial_merge_size 2"},
};
#undef LLM__ERNIE
#undef LLM__GLM
#undef LLM__QWEN
