/* place: where a model's files are: in the file system, or given by the program.
 *
 * * A program may have a model where no path leads: built into its own binary, inside an archive, behind a download. It gives files by
 * names, and what reads models asks for them as for files of a folder: "<given>/config.json" is the file that was given as "config.json".
 * All other paths are those of the file system, so a tokenizer may still come from there. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/files.h"

#define LLM__GIVEN "<given>"

typedef struct llm__place {
    const llm_file *file; /* (n) given; NULL: none */
    int32_t n;
} llm__place;

/* Each as the function on paths of >>files and >>json. */
LLM__PRIVATE llm__path_kind llm__place_kind(const llm__place *p, const char *path);
LLM__PRIVATE llm_result llm__place_file(const llm__place *p, const char *path, size_t limit, int no_mmap, llm__file *out);
LLM__PRIVATE void llm__place_names(const llm__place *p, const char *folder, llm_text *names);
LLM__PRIVATE llm_result llm__place_json(const llm__place *p, const char *path, size_t limit, llm_json **out);

/* The path of the model among the files: of a GGUF file, of split ones the first, or else the folder. LLM_ERR_ARG: a file without name, or
 * two of one name. */
LLM__PRIVATE llm_result llm__place_model(const llm__place *p, llm_text *path);
