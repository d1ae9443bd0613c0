/* marks: what stands for a picture in the prompt, and where its rows have their places.
 *
 * The chat template writes a placeholder for each picture. Before the text is tokenized each is replaced by as many tokens as the picture
 * has rows, with what the family puts around them:
 *
 *     Qwen2-VL    <|vision_start|><|image_pad|><|vision_end|>      <|vision_start|><|image_pad|>...<|image_pad|><|vision_end|>
 *     Gemma 3     <start_of_image>                                 \n\n<start_of_image><image_soft_token>...<end_of_image>\n\n
 *       cut                                                        Here is the original image (...) and here are some crops to help you see
 *                                                                  better (...) (...)
 *     Aya Vision  <image>                                          <|START_OF_IMG|>TILE_1<|IMG_PATCH|>...TILE_GLOBAL<|IMG_PATCH|>...
 *     Cohere2     <|IMG_PATCH|>                                    <|START_OF_IMG|><|IMG_PATCH|>...<|IMG_LINE_BREAK|><|IMG_PATCH|>...
 *     LFM2-VL     <image>                                          <|image_start|><|img_row_1_col_1|><image>...<|img_thumbnail|><image>...
 *     Gemma 4     <|image|>                                        <|image><|image|>...<|image|><image|>
 *     Llama 4     <|image|>                                        <|image_start|><|patch|>...<|tile_x_separator|><|patch|>...
 *                                                                  <|tile_y_separator|><|image|><|patch|>...<|image_end|>
 *     GLM-4.1V    <|image|>; of videos <|video|>                   <|image|>...; <|begin_of_image|><|image|>...<|end_of_image|>0...
 *     Idefics 3   <image>                                          <fake_token_around_image><row_1_col_1><image>...\n ... <global-img>...
 *     Pixtral     [IMG]                                            [IMG][IMG][IMG][IMG_BREAK][IMG][IMG][IMG][IMG_END]
 *     MiniCPM-V   (<image>./</image>)                              <image_id>0</image_id><image><unk>...</image><slice><unk>...</slice>
 *
 * What a user types cannot become a placeholder: such texts are guarded (>>encode), and these are not found. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/media.h"
#include "base/platform.h"
#include "base/text.h"
#include "vision/vision.h"
#include "vision/fit.h"

/* Rows of the grid that LLaVA's tiles make, when what was padded is cut off and the rest shrunk: [top, top + h) and [left, left + w) of the
 * whole grid, which then becomes (to_h, to_w). */
typedef struct llm__unpad {
    int32_t gh, gw, top, left, h, w, to_h, to_w;
} llm__unpad;

/* Of a picture that was cut. */
LLM__PRIVATE llm__unpad llm__unpad_of(const llm_media *m);

/* How many tokens of the prompt stand for it. */
LLM__PRIVATE int64_t llm__media_rows(const llm_media *m);

/* What a token of a prompt stands for, LLM_MEDIA_IMAGE or LLM_MEDIA_VIDEO; -1: itself. *film: 0 before the first token, told from one to
 * the next, for of some families only what stands around them tells a video's tokens from a picture's. */
LLM__PRIVATE int llm__media_kind_of(const llm__vision *v, int32_t id, int *film);

/* Places (3, n) of a prompt's tokens; media in the order in which their tokens stand there, *next: the place behind the last token. */
LLM__PRIVATE void llm__media_places(const llm__vision *v, const int32_t *ids, int32_t n, llm_media *const *media, int32_t n_media,
                                    int32_t *places, int32_t *next);

/* The prompt with the placeholders replaced. */
LLM__PRIVATE llm_result llm__media_text(const llm__vision *v, llm__str text, llm_media *const *media, int32_t n_media, llm_text *out);
