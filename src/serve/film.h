/* film: videos that are not read here, by an installed ffmpeg as a child.
 *
 * MP4, WebM, AVI and the like are languages of hundreds of dialects; ffmpeg knows them, and its decoders are no place for a stranger's
 * bytes without bounds. So it runs only where the operator allows it, and
 *
 *   gets the bytes as its standard input, a file in memory; it opens no other file and no network: formats that name others (playlists,
 *   lists of files) are not among those that it may take
 *   has no shell, no environment, no file that it may write into, bounds of memory, time and output, and is ended with all it started
 *   tells first how many frames there are and how long they last, so that those are decoded which the family's processor takes
 *   writes its frames as PPM, each with its size; what it says is believed as little as the file
 *
 * Large frames are made smaller by it, so that all of them together keep within the limit. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/media.h"
#include "base/platform.h"
#include "base/text.h"
#include "vision/vision.h"

typedef struct llm__film_rules {
    const llm__vision *vision;
    const char *kwargs;   /* mm_processor_kwargs of this video; NULL: the model's */
    double fps;           /* frames a second that are taken; 0: as the processor says */
    double seconds;       /* for all of it */
    size_t limit;         /* bytes of all its frames */
    const int *cancelled; /* atomic; may be NULL */
} llm__film_rules;

typedef struct llm__film {
    llm_frame *frames; /* (n) */
    int32_t n, source; /* how many, and of how many of the film */
    double fps;        /* of these frames */
    llm_text bytes;    /* in which they lie */
} llm__film;

/* The name that ffmpeg has for such a file; NULL: it is none of those that are given to it. */
LLM__PRIVATE const char *llm__film_kind(llm__str data);

/* Decodes. LLM_ERR_IO: there is no ffmpeg, or it failed, or took too long; LLM_ERR_LIMIT: there is too much; LLM_ERR_FORMAT: what it wrote
 * are no frames. */
LLM__PRIVATE llm_result llm__film_read(const llm__film_rules *rules, llm__str data, llm__film *film);

/* For LLM__SCOPED. */
LLM__PRIVATE void llm__film_free(llm__film *film);
