/* vision: what a model sees with: its family's rows, corrected by its files.
 *
 * config.json has the tower's shapes (vision_config), preprocessor_config.json what is done to pictures, and processor_config.json a few
 * words about the prompt; of a GGUF model a second file (mmproj) has all three. Read once, when the model is opened; every tensor of the
 * tower is looked up then too, so that what opens can see. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/backend.h"
#include "base/platform.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/loader.h"
#include "vision/resize.h"
#include "vision/tower_kinds.h"

enum { LLM__MAX_PINPOINTS = 128, LLM__MAX_DEEP = 8, LLM__MAX_TAKEN = 16, LLM__MAX_TAPS = 64 };

/* A video's frames a second: of fewer, the places of its tokens would be beyond all numbers. */
#define LLM__FPS_LEAST 0.001
#define LLM__FPS_MOST 1000.0
#define LLM__FPS_FITS(fps) ((fps) >= LLM__FPS_LEAST && (fps) <= LLM__FPS_MOST)

/* The parameters of a processor, which a request may change (mm_processor_kwargs). */
typedef struct llm__processor {
    llm__filter filter;
    double mean[3], std[3], rescale;
    int64_t min_pixels, max_pixels; /* of a picture in its own shape; of a frame, or of all frames together */
    int32_t size;                   /* S: side of a tile, or of the only view */
    int32_t longest, shortest;      /* a picture's longest side; its shortest one before the middle is cut out */
    int32_t min_tiles, max_tiles;   /* of a grid */
    int32_t split, numbered;        /* pictures are cut at all; they have numbers in the prompt (MiniCPM-V), or marks (LFM2-VL) */
    int32_t least, thumbnail;       /* tokens of a picture at least; the whole stands behind its tiles (LFM2-VL) */
    double tolerance;               /* how many times as many as `limit` tokens a picture has that is cut (LFM2-VL) */
    int32_t n_pinpoints, pinpoint[LLM__MAX_PINPOINTS][2]; /* height, width */
    int32_t largest;                                      /* resize_to_max_canvas (Llama 4) */
    int32_t resize, crop, pad;                            /* do_resize, do_center_crop, do_pad: to a square, of LLaVA 1.5; or pad_input */
    int32_t limit;                    /* of patches of a picture in its own shape (Kimi-VL), or of tokens (Gemma 4, LFM2-VL) */
    int32_t pan, pan_least, pan_most; /* do_pan_and_scan (Gemma 3): shortest side of a crop, number of crops */
    double pan_ratio;                 /* and how long a picture is at least that is cut */
    double fps;                       /* frames a second that are taken of a video */
    int32_t min_frames, max_frames;
} llm__processor;

typedef struct llm__vision {
    const llm__eyes_family *family;
    const llm__tower_family *tower;
    const llm__projector *projector;
    /* What is done to pictures, and to frames of videos: the files may state constants, filters and bounds of each apart. */
    llm__processor processor, video_processor;
    /* The tower. */
    uint32_t flags;                                                                      /* of the tower, corrected */
    int32_t hidden, n_layers, n_used, n_heads, head_dim, ff, patch, frames, merge, side; /* n_used: layers that are computed; side: of the
                                                                                      table of positions, in patches */
    int32_t pool;                            /* patches to a row of the language model, a side: merge, or of Gemma 3 what its mean is of */
    int32_t patch_values;                    /* of a patch: 3 * frames * patch * patch */
    int32_t out;                             /* width of the language model */
    int32_t n_query;                         /* MiniCPM-V: rows of a slice */
    int32_t window;                          /* in blocks a side; 0: every layer sees everything */
    uint8_t full[LLM__MAX_LAYERS];           /* layers that see everything all the same */
    int32_t n_deep, deep[LLM__MAX_DEEP];     /* layers behind which values for the language model's first layers are made, in their order */
    int32_t merger[LLM__MAX_DEEP];           /* number of the projector that makes them, in the files' order */
    int32_t n_taken, taken[LLM__MAX_TAKEN];  /* layers whose rows the projector gets side by side, the first layer is 1; none: the last's */
    int unplaced;                            /* it has no table of positions, though its kind has */
    int bounded;                             /* of its products what goes in and what comes out is bounded (Gemma 4) */
    int plain;                               /* no norm stands before the projector, where its kind has one */
    int standard;                            /* its rows are brought to a standard before the projector */
    float eps, text_eps, own_eps, row_scale; /* own_eps: the projector's; row_scale: of the language model's rows for a picture */
    double theta;
    llm_act act, projector_act;
    int keeps_class;      /* the class token's row is the first that the language model gets */
    int32_t shrink_tiles; /* N of anyres_max_N; 0: nothing is shrunk */
    double tokens_per_second;
    /* The prompt. */
    int32_t image_id, video_id;                  /* placeholders; -1: none */
    int32_t blank_id;                            /* whose own values of layers a picture's rows have; -1: layers have none */
    int32_t set_ids[8], n_set_ids;               /* tokens that go to the experts for pictures */
    const char *image_token, *video_token;       /* their texts */
    const char *placeholder, *video_placeholder; /* what the rendered prompt has */
    const char *row_end, *last_end; /* behind a row of the picture, and behind the last; or between or behind tiles, and behind a row */
    const char *start, *stop;       /* around pairs of frames of a video */
    int32_t film_begin, film_end;   /* between these, tokens of pictures are a video's (GLM-4.1V); -1: they never are */
    int tenths;                     /* GLM-4.6V: times have tenths of a second, and fps 0 means as its length asks for */
    int in_text;                    /* templates know texts only: a placeholder stands in the user's text, where the picture stood */
    int32_t seq_len;                /* rows of a view where all views have as many; 0: they differ */
    /* Its files. */
    const llm__tensors *tensors;
    const char *path;
    int gguf;
    int64_t n_params, bytes;
    uint64_t secret[2]; /* of hashes of contents */
    const llm_picture_reader *reader;
} llm__vision;

/* Reads what a model sees with into m->vision; NULL there: it does not see. */
LLM__PRIVATE llm_result llm__vision_open(llm_model *m, const llm_model_config *cfg);

/* Which set of experts a token goes to. */
LLM__PRIVATE int32_t llm__vision_set(const llm__vision *v, int32_t id);

/* The parameters with those of a request: a JSON object. Unknown names, and values out of range, are refused. */
LLM__PRIVATE llm_result llm__processor_change(const llm__vision *v, const char *json, llm__processor *p);
