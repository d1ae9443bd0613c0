/* tags: free text in which certain words oblige: structural tags, the end of reasoning.
 *
 * A model that may call tools writes prose, and somewhere in it <tool_call>{...}</tool_call>, where the braces must keep a schema. So all
 * text is allowed, and watched for triggers; behind one, its tag must be completed. For the single trigger "<<t", whose beginnings are the
 * places:
 *
 *   place   byte <         byte t             another byte
 *   ""      to "<"         to ""              to ""
 *   "<"     to "<<"        to ""              to ""
 *   "<<"    to "<<"        the tag, then ""   to ""            "<<<" still ends in "<<"
 *
 * (Structural tags are vLLM's and xgrammar's; llama.cpp has lazy grammars, which begin at a trigger.) With `then` set, the marker comes
 * once and is followed by the real form: text that a model thinks aloud is free, its answer is not.
 *
 * Models mark calls and thoughts with special tokens, which are no text: a JSON string may hold the letters <|call|>, and must not hold
 * the token. So a special token is spelled LLM__GR_SPECIAL, a byte that no UTF-8 has, and then its name, in the trie as in the texts of
 * tags. No set of characters has that byte, so special tokens come only where a tag says so, and in free text. */
#pragma once
#include "api/json.h"
#include "base/platform.h"
#include "grammar/machine.h"

/* {"structures": [{"begin", "schema", "end"}], "triggers": [...]}: vLLM's and xgrammar's form. With xgrammar's "at_least_one" the answer is
 * nothing but tags, "separator" between them, of which "stop_after_first" allows one. */
LLM__PRIVATE llm__gr_frag llm__gr_tags_frag(llm__gr_build *b, const llm_json *doc, const char *space);

/* Free text up to a marker (1 to 127 bytes, as "</think>"), then f. The marker is part of the text that is read. */
LLM__PRIVATE llm__gr_frag llm__gr_after(llm__gr_build *b, const char *marker, llm__gr_frag f);
