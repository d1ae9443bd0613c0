/* mmproj: llama.cpp's files for what a GGUF model sees with, told as the JSON files of a Hugging Face folder.
 *
 * A GGUF model that sees comes as two files. The second one (architecture "clip", by custom mmproj-*.gguf) has the tower, the projector and
 * a few numbers about pictures: clip.projector_type names the family, clip.vision.* are shapes. They are written down here as the folder of
 * that family would have them, so that all that follows knows one form only; what such a file leaves out is the family's habit. Pictures
 * are resized and cut as the family's own processor does it, not as llama.cpp approximates that.
 * References: tools/mtmd/clip.cpp and conversion/ of llama.cpp. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/json.h"
#include "base/platform.h"
#include "model/loader.h"

/* Opens the file beside m's own files: its tensors go to m->source.mmproj. *config and *processor: what config.json and
 * preprocessor_config.json would say; the caller frees them. *named: the path, as long as the model. */
LLM__PRIVATE llm_result llm__mmproj_open(llm_model *m, const char *path, const char **named, llm_json **config, llm_json **processor);

/* Whether a file can be seen with here: LLM_OK, or why not. */
LLM__PRIVATE llm_result llm__mmproj_known(const char *path);
