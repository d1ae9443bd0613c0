/* tower: weights and buffers of a tower, and its forward pass, in pieces.
 *
 * A tower runs on the same backend as the language model, in a context of its own beside it, by the same table of operations: a view is a
 * sequence whose rows are patches, its keys and values go to pages that serve one layer after the other, and attention looks both ways.
 * Nothing is causal and nothing is kept: when the last layer is through, the projector's rows are read back, and the pages are free.
 *
 *     given       patches of the views, and the learned positions     (rows, patch_values + hidden)
 *     x           W patch + b + position                              (rows, hidden)
 *     a layer     h = norm(x); x += o(attention(rotate(qkv h)));  h = norm(x); x += down(act(up h))
 *     projector   a list of steps (>>towers), of which one puts pool * pool rows side by side   (out rows, width of the language model)
 *
 * Positions. A tower is told where a patch stands in one way or two:
 *
 *     a table     a learned row for each place of a square. A picture of another shape takes rows by number (CLIP), spreads its places
 *                 over them (Idefics 3), or mixes neighbours: two a side, from edge to edge (Qwen3-VL) or in the middle of equal parts
 *                 (PaddleOCR-VL), more of them where a side has fewer patches than the table (SigLIP 2), or four (GLM-4.1V, MoonViT);
 *                 or a row for each column and one for each row, which are added (Gemma 4)
 *     rotation    of queries and keys, by row in half of the frequencies and by column in the other (Su et al. 2021, in two dimensions);
 *                 files keep a head's rows in the order in which they turn here, as pairs (MoonViT, GGUF of Pixtral), or the half that
 *                 turns by column before the one that turns by row (Gemma 4)
 *     both        Qwen3-VL, GLM-4.1V, MoonViT, Gemma 4, PaddleOCR-VL
 *
 * The table's rows are added to the patches' product before the norm that some have in front of the first layer, of GLM-4.1V behind it.
 *
 * Features. Most projectors take what the last layer gives; LLaVA's may take the layer before it, or several side by side (Granite Vision:
 * four of them), then the projector's first matrix is as many times as wide. Layers behind the last one that is asked for are not computed.
 * DeepStack (Qwen3-VL) takes several too, but each by a projector of its own, for one of the language model's first layers.
 *
 * Llama 4 has a class token behind the patches, which is told to stand at 0 where they count from 1, so that it turns against them; its
 * place is the last of the table, and first in memory here. Behind the gathering stand three matrices, two of them with GELU.
 *
 * Norms (Gemma 4). What attention and the MLP give is normalised before it joins x, and each head's values are brought to unit mean square,
 * so that scores need no scale. Behind the last layer the mean of each 3 x 3 patches is multiplied by the root of the width and, in larger
 * models, brought to a standard, column by column: y = (sqrt(D) x - bias) scale. A norm without weights stands before the projector.
 *
 * Bounds (Gemma 4's smaller models). What goes into each product and what comes out is kept between numbers that stand beside its matrix:
 *
 *     y = clamp(W clamp(x, input_min, input_max), output_min, output_max)
 *
 * They cut what training on a chip of few bits would have cut. q, k and v have bounds of their own, as have gate and up, and so each is a
 * product by itself there, and the gate's activation is an operation of its own. A number that is not in the files is no bound.
 *
 * Windows (Qwen2.5-VL): in most layers a patch sees those of its window only. Blocks are taken window by window, so that a window is a
 * span of rows; what comes out is put back into the picture's order.
 *
 * Pieces. A tower may take longer than a step of the language model, and others wait for their tokens. So it runs between steps, some
 * layers at a time: x stays in its buffer, and the next piece goes on from there. The bits do not depend on the pieces, nor on which views
 * run together: a row's products are its own, and a view attends to itself. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/media.h"
#include "api/backend.h"
#include "base/platform.h"
#include "model/loader.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"
#include "vision/fit.h"

/* Products of a layer that have bounds, in the files' order. */
enum { LLM__BOUND_Q = 0, LLM__BOUND_K, LLM__BOUND_V, LLM__BOUND_O, LLM__BOUND_GATE, LLM__BOUND_UP, LLM__BOUND_DOWN, LLM__BOUNDS };

/* Between which numbers what goes into a product is kept, and what comes out. */
typedef struct llm__tower_bound {
    float in[2], out[2];
} llm__tower_bound;

typedef struct llm__tower_layer {
    llm__net_pair norm1, qkv, q_norm, k_norm, o, scale1, norm2, up, down, scale2; /* scales, or norms behind attention and MLP */
    /* With bounds, which part what is one product else: */
    llm__net_pair q, k, v, gate;
    llm__tower_bound bound[LLM__BOUNDS];
} llm__tower_layer;

/* A step of a projector with its weights. */
typedef struct llm__tower_step {
    const llm__projector_step *row;
    llm__net_pair w;
    llm_buffer *to; /* (rows, width) what it gives */
    int32_t width;
    llm_rows rows;
} llm__tower_step;

typedef struct llm__tower_list {
    llm__tower_step step[LLM__PROJECTOR_STEPS];
    int n, two; /* two: which step begins the second stage; n: there is none */
} llm__tower_list;

/* MiniCPM-V's resampler: n_query learned queries attend to the patches. */
typedef struct llm__tower_resampler {
    llm__net_pair kv, kv_norm, q, k, v, out, q_norm, post_norm, proj;
    llm_buffer *kv_rows, *keys, *qkv, *att, *to;
    float *query; /* (n_query, out) */
    int32_t n_heads, head_dim;
} llm__tower_resampler;

/* What an engine asks for. */
typedef struct llm__tower_config {
    const llm_model *model;
    const llm_backend *backend;
    llm_backend_config backend_config; /* as of the language model's context; rows and the like are the tower's own */
    int32_t max_len;                   /* no picture takes more tokens */
    int dry;                           /* 1: weights and buffers are only planned, nothing is read */
} llm__tower_config;

typedef struct llm__tower {
    const llm__vision *v;
    const llm_backend *be;
    llm_backend_ctx *ctx;
    int32_t max_rows, max_views, page_tokens, max_pages;
    int32_t given_cols, width; /* width: of a row of the language model, with those of its first layers */
    llm__net_pair patch, pre_norm;
    llm__tower_layer *layer; /* (n_used) */
    llm__tower_list main, deep[LLM__MAX_DEEP];
    llm__tower_resampler resampler;
    llm_weight *inv_freq;
    int8_t row_of[512];
    llm_buffer *patches, *x, *h, *y, *att, *qkv, *ff, *rope, *two;
    llm_buffer *kept, *gate;      /* with bounds: (rows, the widest) what goes into a product; (rows, ff) */
    float *table;                 /* (llm__tower_places, hidden) learned positions; NULL: none */
    float *first;                 /* (hidden) the class token; NULL: there is none */
    float *bias;                  /* (hidden) of the patches' product; NULL: none */
    float *newline;               /* (out) */
    double layer_ops;             /* of a row, without attention */
    int64_t memory, weight_bytes; /* all of it, and the weights among it */
    /* The arrays of a step. */
    llm_step step;
    float *values;       /* (max_rows, given_cols) */
    const float **given; /* (max_rows) */
    int32_t *numbers, *tokens, *positions, *seq_of_row, *seq_begin, *seq_len, *zeros, *pages, *spans, *out_rows;
    float *bases;
    /* What it works at. */
    llm_media *media;              /* NULL: nothing */
    int32_t view, n_views, layers; /* views [view, view + n_views) are in the buffers, and so many layers are done */
    int32_t stage;                 /* 1: of all views the first stage is done */
    int32_t row;                   /* of the second stage: rows that are done */
    int32_t n_rows;                /* in the step */
    float *read;                   /* (max_rows, widest) rows read back */
} llm__tower;

/* Makes weights and buffers. */
LLM__PRIVATE llm_result llm__tower_open(const llm__tower_config *cfg, llm__tower **out);

/* NULL is fine. */
LLM__PRIVATE void llm__tower_close(llm__tower *t);

/* Whether a picture fits, and room for what the tower makes of it. Any thread, before others know of it. */
LLM__PRIVATE llm_result llm__tower_room(const llm__tower *t, llm_media *m);

/* Begins with a picture; the tower has none then. */
LLM__PRIVATE void llm__tower_begin(llm__tower *t, llm_media *m);

/* Operations that the next piece takes at least, the smallest there is. */
LLM__PRIVATE double llm__tower_ops(const llm__tower *t);

/* Computes a piece of at most so many operations, if the smallest is not more already. Without a picture left in t->media its rows are
 * there, and its pixels are gone. */
LLM__PRIVATE llm_result llm__tower_piece(llm__tower *t, double ops);
