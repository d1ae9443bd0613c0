/* tower_kinds: what families that see are told apart by: the columns of their tables. */
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
    LLM__FIT_SLICES,     /* the whole and slices, each of its own shape (MiniCPM-V) */
    LLM__FIT_LIMIT,      /* its own shape, smaller where it has too many patches, and black up to whole blocks (Kimi-VL) */
    LLM__FIT_BUDGET,     /* its own shape, as large as a number of patches lets it be (Gemma 4) */
    LLM__FIT_TOKENS, /* its own shape, between two numbers of tokens; if it is too large tiles in the best of all grids first (LFM2-VL) */
    LLM__FIT_CANVAS  /* in the corner of the canvas of tiles that it fits best, then tiles, and the whole (Llama 4) */
} llm__fit_kind;

/* What the prompt has for a picture. */
typedef enum llm__marks_kind {
    LLM__MARKS_PLAIN = 0, /* begin, a token for each row, end */
    LLM__MARKS_GRID,      /* a mark before each tile, naming row and column (Idefics 3) */
    LLM__MARKS_ROWS,      /* a token behind each row of the picture (Pixtral) */
    LLM__MARKS_NUMBERED,  /* a mark before each tile, naming its number, and one before the whole (Aya Vision) */
    LLM__MARKS_PLACES,    /* a mark before each tile, naming row and column, one before the whole, and around all of it (LFM2-VL) */
    LLM__MARKS_BROKEN,    /* a token behind each tile, and behind the whole (Cohere2 Vision) */
    LLM__MARKS_TILES,     /* a token between tiles of a row, another behind each row of them, one before the whole (Llama 4) */
    LLM__MARKS_SLICES     /* begin and end of the whole, and others of each slice (MiniCPM-V) */
} llm__marks_kind;

/* The tower itself. */
enum {
    LLM__SEES_CLASS = 1,      /* a token of its own comes first, and is dropped at the end */
    LLM__SEES_TABLE = 2,      /* learned positions are added to the patches */
    LLM__SEES_ROPE = 4,       /* rotated by row and column: first half of the frequencies, second half */
    LLM__SEES_TURNS = 8,      /* the same, even frequencies by row and odd ones by column (Pixtral) */
    LLM__SEES_RMS = 16,       /* RMSNorm, else LayerNorm */
    LLM__SEES_BUCKETS = 32,   /* positions of a picture of any shape are spread over the table: row i of n takes floor(i * side / n) */
    LLM__SEES_STRETCHED = 64, /* they are interpolated between those of the table (Qwen3-VL) */
    LLM__SEES_DEEP = 128,     /* where config.json does not say it, layers 8, 16 and 24 have rows for the language model's own (Qwen3-VL) */
    LLM__SEES_CUBIC = 256,    /* positions are mixed of sixteen of the table, by cubic convolution (GLM-4.1V) */
    LLM__SEES_LATE = 512,     /* they are added behind the norm before the first layer, else before it */
    LLM__SEES_COUPLES = 2048, /* q and k stand in the pairs that turn, by column and by row in turns (MoonViT) */
    LLM__SEES_QUARTERS = 4096,   /* a head's first half turns by column, its second one by row, quarter beside quarter (Gemma 4) */
    LLM__SEES_AXES = 8192,       /* the table has a row for each column of the picture, and then one for each row, which are added */
    LLM__SEES_NEXT = 1 << 16,    /* q and k stand in the pairs that turn, those by column first (Llama 4) */
    LLM__SEES_MIDDLES = 1 << 18, /* positions are mixed of four of the table, places in the middle of equal parts (PaddleOCR-VL) */
    LLM__SEES_SMOOTH = 1 << 19,  /* the same, of more of them where the picture has fewer patches a side than the table (SigLIP 2) */
    LLM__SEES_ONE = 1 << 17,     /* rows and columns count from 1, the class token stands at 0, and its place is the table's last */
    LLM__SEES_POST = 16384,      /* norms behind attention and MLP, too */
    LLM__SEES_VALUES = 1 << 15,  /* each head's values are brought to unit mean square, and scores stay as they are (Gemma 4) */
    LLM__SEES_WIDE = 1024        /* a layer is out_hidden_size wide within; intermediate_size is the projector's */
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
    LLM__EYES_NEWLINES = 1,  /* image_newline behind each row of tiles, and behind a picture without tiles */
    LLM__EYES_SHRINK = 2,    /* a grid beyond anyres_max_N tiles' worth is shrunk (LLaVA-OneVision) */
    LLM__EYES_VIDEO = 4,     /* it takes videos */
    LLM__EYES_TIMES = 8,     /* a video is pairs of frames with their times before them (Qwen3-VL) */
    LLM__EYES_SECONDS = 16,  /* positions in time are seconds (Qwen2.5-VL) */
    LLM__EYES_RAW = 32,      /* alpha is dropped, and orientation left as it is stored (MiniCPM-V) */
    LLM__EYES_FIRST = 64,    /* of a picture's patches a row of the language model is made a block at a time, blocks in order */
    LLM__EYES_PAIRS = 128,   /* a patch has two frames; a still picture fills both */
    LLM__EYES_TWICE = 256,   /* frames come one by one, and the projector puts two together (ERNIE 4.5 VL) */
    LLM__EYES_IN_TEXT = 512, /* templates know texts only: the placeholder stands in the user's text, where the picture stood */
    LLM__EYES_DOUBLE = 1024, /* a picture's pixels count twice for its bounds, as two frames would, and a side grows to a block first */
    LLM__EYES_GROWS = 8192,  /* a picture of less than a block across grows to one first (PaddleOCR-VL) */
    LLM__EYES_SCALE = 16384, /* of grids of tiles that counts in which a picture grows least, or shrinks least (Cohere2 Vision) */
    LLM__EYES_BRIEF = 4096,  /* pixels are scaled and normalised in bf16 (Llama 4) */
    LLM__EYES_BEHIND = 2048  /* a video's times stand behind its pairs of frames, whose tokens are those of pictures (GLM-4.1V) */
};

typedef struct llm__eyes_family {
    const char *names;     /* model_type of config.json */
    const char *projector; /* of llm__projectors; also clip.projector_type of GGUF */
    llm__fit_kind fit;
    llm__marks_kind marks;
    uint32_t flags;
    int8_t filter;           /* of llm__filter, where preprocessor_config.json does not say */
    int8_t constants;        /* of llm__constants, likewise */
    const char *token;       /* placeholder of a picture in the rendered prompt */
    const char *begin, *end; /* what is put around its tokens */
    const char *video_token;
    const char *defaults; /* what config.json leaves out beside the tower, as "key value key value" */
} llm__eyes_family;

/* A step of a projector. */
typedef enum llm__step_kind {
    LLM__STEP_END = 0,
    LLM__STEP_NORM,   /* LayerNorm or RMSNorm, as the flags say, and GELU behind it if `act` is that; a list may have it and a model not */
    LLM__STEP_GATHER, /* merge * merge patches side by side: from here on rows are those of the language model */
    LLM__STEP_MEAN,   /* their mean */
    LLM__STEP_ROOT,   /* times the root of the width; where there are such tensors, minus a bias and times a scale (Gemma 4) */
    LLM__STEP_LINEAR, /* with `act` */
    LLM__STEP_GATED,  /* act(gate) * up, the tower's act where none is said; "up" in the gate's names makes those of the other matrix */
    LLM__STEP_TWO     /* two frames' rows side by side; what follows is a stage of its own */
} llm__step_kind;

enum {
    LLM__STEP_RMS = 1,
    LLM__STEP_PLUS1 = 2,     /* the norm's weights are stored minus one */
    LLM__STEP_ACROSS = 4,    /* the matrix is stored as (in, out) */
    LLM__STEP_CHANNELS = 8,  /* its columns go channel by channel, the patches of a channel side by side */
    LLM__STEP_MAYBE = 16,    /* a model may lack it */
    LLM__STEP_TEXT_EPS = 32, /* the language model's epsilon, else the tower's */
    LLM__STEP_EPS5 = 64,     /* 1e-5 */
    LLM__STEP_TURNED = 128,  /* rows of q and k stand in the pairs that a rotation turns (GGUF of Pixtral; MoonViT) */
    LLM__STEP_FRAMES = 256,  /* of GGUF: a tensor for each of two frames, the second one's name ends in ".1" */
    LLM__STEP_BARE = 512,    /* a norm without weights */
    LLM__STEP_LAST = 1024,   /* the patches' product has a pixel's channels side by side */
    LLM__STEP_HALVES = 2048, /* GATED: one matrix, its rows those of the other matrix and then the gate's */
    LLM__STEP_SAID = 8192,   /* projector_use_layernorm says whether it is there; of GGUF its tensor does */
    LLM__STEP_OWN_EPS = 4096 /* the projector's own epsilon */
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

enum { LLM__CLIP = 0, LLM__HALF }; /* mean and standard deviation of pixels */
