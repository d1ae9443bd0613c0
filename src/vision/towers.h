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

/* How a picture becomes views. S: the side of a tile. */
typedef enum llm__fit_kind {
    LLM__FIT_SQUARE = 0, /* S x S, whatever its shape was */
    LLM__FIT_CROP,       /* the shorter side to S, and the middle of the longer one (CLIP) */
    LLM__FIT_PATCHES,    /* its own shape, rounded to whole blocks of patches, between two numbers of pixels (Qwen2-VL) */
    LLM__FIT_EDGE,       /* its own shape, the longest side bounded (Pixtral) */
    LLM__FIT_SPLIT,      /* rows and columns of tiles, and the whole (Idefics 3) */
    LLM__FIT_ANYRES,     /* the whole, and tiles of the best of some sizes (LLaVA-NeXT) */
    LLM__FIT_TILES,      /* tiles in the best of all grids, and the whole (InternVL) */
    LLM__FIT_SLICES      /* the whole and slices, each of its own shape (MiniCPM-V) */
} llm__fit_kind;

/* What the prompt has for a picture. */
typedef enum llm__marks_kind {
    LLM__MARKS_PLAIN = 0, /* begin, a token for each row, end */
    LLM__MARKS_GRID,      /* a mark before each tile, naming row and column (Idefics 3) */
    LLM__MARKS_ROWS,      /* a token behind each row of the picture (Pixtral) */
    LLM__MARKS_SLICES     /* begin and end of the whole, and others of each slice (MiniCPM-V) */
} llm__marks_kind;

/* The tower itself. */
enum {
    LLM__SEES_CLASS = 1,     /* a token of its own comes first, and is dropped at the end */
    LLM__SEES_TABLE = 2,     /* learned positions are added to the patches */
    LLM__SEES_ROPE = 4,      /* rotated by row and column: first half of the frequencies, second half */
    LLM__SEES_TURNS = 8,     /* the same, even frequencies by row and odd ones by column (Pixtral) */
    LLM__SEES_RMS = 16,      /* RMSNorm, else LayerNorm */
    LLM__SEES_BUCKETS = 32,  /* positions of a picture of any shape are spread over the table: row i of n takes floor(i * side / n) */
    LLM__SEES_STRETCHED = 64 /* they are interpolated between those of the table (Qwen3-VL) */
};

typedef struct llm__tower_family {
    const char *names; /* model_type of vision_config */
    uint32_t flags;
    llm_act act;
    float eps;
    const char *defaults; /* what config.json leaves out, as "key value key value" */
} llm__tower_family;

/* One family. */
enum {
    LLM__EYES_NEWLINES = 1,   /* image_newline behind each row of tiles, and behind a picture without tiles */
    LLM__EYES_SHRINK = 2,     /* a grid beyond anyres_max_N tiles' worth is shrunk (LLaVA-OneVision) */
    LLM__EYES_VIDEO = 4,      /* it takes videos */
    LLM__EYES_TIMES = 8,      /* a video is pairs of frames with their times before them (Qwen3-VL) */
    LLM__EYES_SECONDS = 16,   /* positions in time are seconds (Qwen2.5-VL) */
    LLM__EYES_RAW = 32,       /* alpha is dropped, and orientation left as it is stored (MiniCPM-V) */
    LLM__EYES_FIRST = 64,     /* of a picture's patches a row of the language model is made a block at a time, blocks in order */
    LLM__EYES_PAIRS = 128,    /* a patch has two frames; a still picture fills both */
    LLM__EYES_TWICE = 256,    /* frames come one by one, and the projector puts two together (ERNIE 4.5 VL) */
    LLM__EYES_IN_TEXT = 512   /* templates know texts only: the placeholder stands in the user's text, where the picture stood */
};

typedef struct llm__eyes_family {
    const char *names;     /* model_type of config.json */
    const char *projector; /* of llm__projectors; also clip.projector_type of GGUF */
    llm__fit_kind fit;
    llm__marks_kind marks;
    uint32_t flags;
    int8_t filter;     /* of llm__filter, where preprocessor_config.json does not say */
    int8_t constants;  /* of llm__constants, likewise */
    const char *token; /* placeholder of a picture in the rendered prompt */
    const char *begin, *end; /* what is put around its tokens */
    const char *video_token;
} llm__eyes_family;

/* A step of a projector. */
typedef enum llm__step_kind {
    LLM__STEP_END = 0,
    LLM__STEP_NORM,   /* LayerNorm or RMSNorm, as the flags say; a list may have it and a model not */
    LLM__STEP_GATHER, /* merge * merge patches side by side: from here on rows are those of the language model */
    LLM__STEP_MEAN,   /* their mean */
    LLM__STEP_LINEAR, /* with `act` */
    LLM__STEP_TWO     /* two frames' rows side by side; what follows is a stage of its own */
} llm__step_kind;

enum {
    LLM__STEP_RMS = 1,
    LLM__STEP_PLUS1 = 2,    /* the norm's weights are stored minus one */
    LLM__STEP_ACROSS = 4,   /* the matrix is stored as (in, out) */
    LLM__STEP_CHANNELS = 8, /* its columns go channel by channel, the patches of a channel side by side */
    LLM__STEP_MAYBE = 16,    /* a model may lack it */
    LLM__STEP_TEXT_EPS = 32, /* the language model's epsilon, else the tower's */
    LLM__STEP_EPS5 = 64      /* 1e-5 */
};

typedef struct llm__projector_step {
    llm__step_kind kind;
    const char *names; /* of its tensors, with blanks between; "@" stands for the tower's own root; GGUF's begin with "v." and "mm." */
    llm_act act;
    uint32_t flags;
} llm__projector_step;

enum { LLM__PROJECTOR_STEPS = 12 };

typedef struct llm__projector {
    const char *names;
    llm__projector_step step[LLM__PROJECTOR_STEPS];
} llm__projector;

/* mean and standard deviation of each channel */
static const double llm__constants[3][6] = {{0.48145466, 0.4578275, 0.40821073, 0.26862954, 0.26130258, 0.27577711}, /* CLIP */
                                            {0.485, 0.456, 0.406, 0.229, 0.224, 0.225},                               /* ImageNet */
                                            {0.5, 0.5, 0.5, 0.5, 0.5, 0.5}};
enum { LLM__CLIP = 0, LLM__IMAGENET, LLM__HALF };

static const llm__tower_family llm__towers[] = {
    {"clip_vision_model clip", LLM__SEES_CLASS | LLM__SEES_TABLE, LLM_ACT_QUICK_GELU, 1e-5f,
     "hidden_size 768 intermediate_size 3072 num_hidden_layers 12 num_attention_heads 12 image_size 224 patch_size 32"},
    {"siglip_vision_model siglip", LLM__SEES_TABLE, LLM_ACT_GELU_TANH, 1e-6f,
     "hidden_size 768 intermediate_size 3072 num_hidden_layers 12 num_attention_heads 12 image_size 224 patch_size 16"},
    {"idefics3_vision smolvlm_vision idefics3 smolvlm idefics2", LLM__SEES_TABLE | LLM__SEES_BUCKETS, LLM_ACT_GELU_TANH, 1e-6f,
     "hidden_size 1152 intermediate_size 3072 num_hidden_layers 12 num_attention_heads 16 image_size 224 patch_size 32"},
    {"internvl_vision intern_vit_6b", LLM__SEES_CLASS | LLM__SEES_TABLE, LLM_ACT_GELU, 1e-6f,
     "hidden_size 1024 intermediate_size 4096 num_hidden_layers 24 num_attention_heads 16 image_size 448 patch_size 14"},
    {"qwen2_vl", LLM__SEES_ROPE, LLM_ACT_QUICK_GELU, 1e-6f,
     "embed_dim 1280 depth 32 num_heads 16 mlp_ratio 4 patch_size 14 spatial_merge_size 2 temporal_patch_size 2"},
    {"qwen2_5_vl", LLM__SEES_ROPE | LLM__SEES_RMS, LLM_ACT_SILU, 1e-6f,
     "hidden_size 1280 intermediate_size 3420 depth 32 num_heads 16 patch_size 14 spatial_merge_size 2 temporal_patch_size 2 window_size 112"},
    {"qwen3_vl qwen3_vl_moe", LLM__SEES_ROPE | LLM__SEES_TABLE | LLM__SEES_STRETCHED, LLM_ACT_GELU_TANH, 1e-6f,
     "hidden_size 1152 intermediate_size 4304 depth 27 num_heads 16 patch_size 16 spatial_merge_size 2 temporal_patch_size 2 "
     "num_position_embeddings 2304"},
    {"ernie4_5_vl_moe_vision ernie4_5_moe_vl_vision DFNRope_vision_transformer", LLM__SEES_ROPE, LLM_ACT_QUICK_GELU, 1e-6f,
     "hidden_size 1280 depth 32 num_heads 16 mlp_ratio 4 patch_size 14 spatial_merge_size 2"},
    {"pixtral", LLM__SEES_TURNS | LLM__SEES_RMS, LLM_ACT_SILU, 1e-5f,
     "hidden_size 1024 intermediate_size 4096 num_hidden_layers 24 num_attention_heads 16 image_size 1024 patch_size 16 rope_theta 10000"},
};

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
    {"gemma3",
     {{LLM__STEP_NORM, "@post_layernorm v.post_ln", LLM_ACT_NONE, 0},
      {LLM__STEP_MEAN, "", LLM_ACT_NONE, 0},
      {LLM__STEP_NORM, "multi_modal_projector.mm_soft_emb_norm mm.soft_emb_norm", LLM_ACT_NONE, LLM__STEP_RMS | LLM__STEP_PLUS1},
      {LLM__STEP_LINEAR, "multi_modal_projector.mm_input_projection_weight mm.input_projection", LLM_ACT_NONE, LLM__STEP_ACROSS}}},
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
    {"resampler", {{LLM__STEP_NORM, "@post_layernorm v.post_ln", LLM_ACT_NONE, 0}}}, /* MiniCPM-V's, which attends: see llm__tower_resample */
};

#define LLM__QWEN LLM__EYES_FIRST | LLM__EYES_PAIRS | LLM__EYES_VIDEO
static const llm__eyes_family llm__eyes[] = {
    {"llava", "llava", LLM__FIT_CROP, LLM__MARKS_PLAIN, 0, 3, LLM__CLIP, "<image>", "", "", NULL},
    {"llava_next", "llava", LLM__FIT_ANYRES, LLM__MARKS_PLAIN, LLM__EYES_NEWLINES, 3, LLM__CLIP, "<image>", "", "", NULL},
    {"llava_onevision", "llava", LLM__FIT_ANYRES, LLM__MARKS_PLAIN, LLM__EYES_NEWLINES | LLM__EYES_SHRINK, 3, LLM__HALF, "<image>", "", "",
     NULL},
    {"internvl internvl_chat", "internvl", LLM__FIT_TILES, LLM__MARKS_PLAIN, 0, 3, LLM__IMAGENET, "<IMG_CONTEXT>", "<img>", "</img>", NULL},
    {"minicpmv", "resampler", LLM__FIT_SLICES, LLM__MARKS_SLICES, LLM__EYES_RAW | LLM__EYES_IN_TEXT, 3, LLM__HALF,
     "(<image>./</image>)", "<image>", "</image>", NULL},
    {"qwen2_vl", "qwen2vl_merger", LLM__FIT_PATCHES, LLM__MARKS_PLAIN, LLM__QWEN, 3, LLM__CLIP, "<|image_pad|>", "", "", "<|video_pad|>"},
    {"qwen2_5_vl", "qwen2.5vl_merger", LLM__FIT_PATCHES, LLM__MARKS_PLAIN, LLM__QWEN | LLM__EYES_SECONDS, 3, LLM__CLIP, "<|image_pad|>", "",
     "", "<|video_pad|>"},
    {"qwen3_vl qwen3_vl_moe", "qwen3vl_merger", LLM__FIT_PATCHES, LLM__MARKS_PLAIN, LLM__QWEN | LLM__EYES_TIMES, 3, LLM__HALF,
     "<|image_pad|>", "", "", "<|video_pad|>"},
    {"ernie4_5_vl_moe ernie4_5_moe_vl", "ernie", LLM__FIT_PATCHES, LLM__MARKS_PLAIN, LLM__EYES_FIRST | LLM__EYES_TWICE | LLM__EYES_VIDEO, 3,
     LLM__CLIP, "<|IMAGE_PLACEHOLDER|>", "", "", "<|VIDEO_PLACEHOLDER|>"},
    {"smolvlm idefics3", "idefics3", LLM__FIT_SPLIT, LLM__MARKS_GRID, 0, 1, LLM__HALF, "<image>", "", "", NULL},
    {"gemma3", "gemma3", LLM__FIT_SQUARE, LLM__MARKS_PLAIN, 0, 2, LLM__HALF, "<start_of_image>", "\n\n<start_of_image>",
     "<end_of_image>\n\n", NULL},
    {"mistral3", "pixtral", LLM__FIT_EDGE, LLM__MARKS_ROWS, 0, 3, LLM__CLIP, "[IMG]", "", "", NULL},
};
#undef LLM__QWEN
