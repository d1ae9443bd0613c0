/* media: Pictures and videos, for models that see. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"

typedef struct llm_frame { /* pixels as they are */
    const uint8_t *pixels; /* (height, width, channels), channels as above */
    int32_t width, height, channels;
} llm_frame;

typedef struct llm_media_file { /* a JPEG, PNG, GIF or BMP in memory */
    const void *data;
    size_t size;
} llm_media_file;

typedef enum llm_media_kind { LLM_MEDIA_IMAGE = 0, LLM_MEDIA_VIDEO } llm_media_kind;
typedef enum llm_detail { LLM_DETAIL_AUTO = 0, LLM_DETAIL_LOW, LLM_DETAIL_HIGH } llm_detail; /* LOW: made to fit 512 x 512 first */

/* One picture or video: a file, or pixels. Of a video the frames, a file or pixels each, or one GIF. */
typedef struct llm_media_config {
    const llm_media_file *files; /* (n_files) */
    int32_t n_files;
    const llm_frame *frames; /* (n_frames) instead */
    int32_t n_frames;
    llm_media_kind kind;
    double fps; /* of a video's frames as they are given; of a GIF so many a second are taken; 0.001 to 1000, or 0: the family's own rate */
    llm_detail detail;
    int32_t n_images; /* how many the prompt has, this one included; 0: 1. Some families cut a picture only where it is alone */
    const char
        *mm_processor_kwargs; /* JSON object: parameters of the family's processor by their names ("max_pixels"); NULL: the model's */
    int64_t n_source; /* frames of the film that the given ones were taken from, evenly, the first among them; 0: these are all. Each family
                         has its own even way, and some tell the model when a frame was shown */
} llm_media_config;

typedef struct llm_media llm_media; /* prepared for one model: what its tower will see. Never changes; any thread */

/* Decodes, resizes and cuts, as the model's own processor does. Takes time and memory in proportion to the pixels. LLM_ERR_UNSUPPORTED: the
 * model does not see, or not videos, or the file is of a kind that is not read here; LLM_ERR_FORMAT: the file is broken; LLM_ERR_LIMIT: it
 * is too large; LLM_ERR_ARG: a parameter. */
LLM_API llm_result llm_media_open(const llm_model *model, const llm_media_config *cfg, llm_media **out);
LLM_API void llm_media_free(llm_media *media); /* requests keep what they use; NULL is fine */

typedef struct llm_media_info {
    llm_media_kind kind;
    int32_t n_tokens;      /* of the prompt that stand for it */
    int32_t n_views;       /* pictures that the tower sees: tiles, slices, frames */
    int32_t width, height; /* of the picture as it came, or of a video's first frame */
} llm_media_info;

LLM_API void llm_media_get_info(const llm_media *media, llm_media_info *out);
/* The values that the tower takes of one view, in its order, as a check of preprocessing: appends floats to nothing, fills at most n at
 * `values`. Returns how many there are. */
LLM_API int64_t llm_media_values(const llm_media *media, int32_t view, float *values, int64_t n);

/* Ids of a rendered prompt in which the model's placeholders stand for these pictures and videos, in their order: each becomes as many
 * tokens as its picture takes, with the marks around them that the family has. flags as in llm_tokenize. LLM_ERR_ARG: there are more or
 * fewer placeholders than pictures. */
LLM_API llm_result llm_media_tokenize(const llm_model *model, const char *text, size_t len, int flags, llm_media *const *media,
                                      int32_t n_media, llm_tokens *ids);
