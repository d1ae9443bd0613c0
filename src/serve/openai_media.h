/* openai_media: pictures and videos of a body.
 *
 * They stand in a message's content, beside its texts, or (of a prompt) in multi_modal_data:
 *
 *     {"type": "image_url", "image_url": {"url": "data:image/png;base64,...", "detail": "low"}}      OpenAI, vLLM, FastDeploy
 *     {"type": "input_image", "image_url": "data:..."}                                               /v1/responses
 *     {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64,FRAME,FRAME"}}              vLLM
 *     {"type": "video", "video": ["file:a.png", "file:b.png"], "fps": 2.0}                           Hugging Face
 *     {"prompt": "...", "multi_modal_data": {"image": ["data:..."], "video": [...]}}                 vLLM, FastDeploy (multimodal_data)
 *
 * Where they come from: a data URI has them in itself; a "file:" name is read in the one folder that the operator allows; http and https
 * are fetched where the operator lists the domain. begin looks at the parts, submit fetches, decodes and prepares
 * (llm_media_open), in a worker's thread. Templates see {"type": "image"} where the part stood; those that know texts only get a mark that
 * nobody can guess, which becomes the placeholder when the text is rendered. */
#pragma once
#include "api/text.h"
#include "api/easy.h"
#include "api/openai.h"
#include "base/platform.h"
#include "serve/openai.h"

/* Whether a part's type is one of these; *video: of a video. */
LLM__PRIVATE int llm__oai_is_media(const char *type, int *video);

/* Checks a part of a message of such a type, and counts it. */
LLM__PRIVATE int llm__oai_media_part(llm_openai_call *k, int part);

/* The same of multi_modal_data. */
LLM__PRIVATE int llm__oai_media_data(llm_openai_call *k);

/* Opens all of them, in the order of the body; once. */
LLM__PRIVATE int llm__oai_media_open(llm_openai_call *k);

/* What a template that knows texts only has in the place of a part, and the placeholders put there when the text is rendered. */
LLM__PRIVATE void llm__oai_media_mark(const llm_openai_call *k, int video, llm_text *out);
LLM__PRIVATE int llm__oai_media_marked(llm_openai_call *k, llm_text *text);

/* Lets go of them. */
LLM__PRIVATE void llm__oai_media_free(llm_openai_call *k);
