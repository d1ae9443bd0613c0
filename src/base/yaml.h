/* yaml: YAML as people write settings in it, made into JSON.
 *
 * Settings are few forms of a large language. Those are read as YAML 1.1 means them, which is how PyYAML, and so vLLM's --config, reads:
 *
 *     model: org/name            # a mapping by indentation, and comments
 *     stop: [a, "b"]             [lists] and {maps: in brackets}, over several lines too
 *     lora-modules:              lists by dashes, of mappings too
 *       - name: x
 *         path: /y
 *     chat-template: |           a text of several lines as it stands; |- without the last line's end
 *       {{ messages }}
 *
 * Plain words are null (~, nothing), booleans (true, yes, on and their opposites), numbers as JSON has them, else texts; so 32k, 007 and
 * 1:30 are texts. The rest of the language is refused, in a sentence with its line: anchors, aliases and tags, several documents, tabs in
 * indentations, folded texts (>) and plain ones of several lines, keys that are no text. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"

/* Appends JSON. Errors begin with "line N: ". Nesting goes 32 deep at most. */
LLM__PRIVATE llm_result llm__yaml_json(llm__str text, llm_text *json);
