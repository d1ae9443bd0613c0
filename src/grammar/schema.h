/* schema: JSON Schema (draft 2020-12, and what draft-07 spells otherwise): views.
 *
 * A schema is compiled through views: a view is a set of schemas that must all hold. $ref and allOf add to the set; anyOf and oneOf fork
 * it; the rest is read over all of its members: the largest minimum, the union of what is required, for each property the view of what
 * every member says of it. So allOf merges exactly, and a view met twice is one rule, which makes recursive schemas finite.
 *
 * An example: {"$defs": {"id": {"type": "integer", "minimum": 1}}, "allOf": [{"$ref": "#/$defs/id"}, {"maximum": 9}]}
 *
 *   begin       {#}
 *   allOf of #  {#, #/allOf/0, #/allOf/1}                 # is marked: its allOf is dealt with
 *   $ref        {#, #/$defs/id, #/allOf/0, #/allOf/1}     #/allOf/0 is marked: its $ref is dealt with; sorted, this is the view's name
 *   types       integer, since #/$defs/id says it and no one else says less
 *   bounds      minimum 1, maximum 9: the largest and the smallest of all four members
 *   machine     SPLIT -> 1, SPLIT -> [2-8], 9; RETURN
 *
 * And a recursive one, {"type": "array", "items": {"$ref": "#"}}: view {#} is rule 1, whose items are the view {#, #/items (marked)}, rule
 * 2, whose items are {#, #/items (marked)} again: found, and called. Nothing is unrolled.
 *
 * llama.cpp and outlines write text (GBNF, a regex) from a schema; of two texts the intersection is hard to write. llguidance merges
 * schemas before it builds, as is done here.
 *
 * The machine may make fewer documents than the schema allows (properties in order, one optional space between tokens, no properties that
 * nobody named unless additionalProperties asks for them), never one that it forbids. A keyword that cannot be kept is refused with its
 * JSON pointer. */
#pragma once
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "text/regex.h"
#include "grammar/machine.h"

enum { LLM__JS_VIEW = 16 }; /* most members of a view */

/* What of a member is dealt with already; NOT: the schema must not hold; KEY: it speaks of the name of a property, so of a string. */
enum { LLM__JS_REF = 1, LLM__JS_ALL = 2, LLM__JS_ANY = 4, LLM__JS_ONE = 8, LLM__JS_IF = 16, LLM__JS_ENUM = 32, LLM__JS_CONST = 64 };
enum { LLM__JS_NOT = 128, LLM__JS_DENIED = 256, LLM__JS_KEY = 512 };

/* Types, in the order of llm__js_type_bits. */
enum { LLM__JS_NULL = 1, LLM__JS_BOOL = 2, LLM__JS_INT = 4, LLM__JS_NUM = 8, LLM__JS_STR = 16, LLM__JS_ARR = 32, LLM__JS_OBJ = 64 };

/* used[i]: which of LLM__JS_REF ... of member node[i] are dealt with; by[i]: the node of the member whose $ref, allOf ... brought it in, or
 * -1. Sorted by node and zero behind n, so that views compare as memory. */
typedef struct llm__js_view {
    int32_t n, node[LLM__JS_VIEW], by[LLM__JS_VIEW];
    uint16_t used[LLM__JS_VIEW];
} llm__js_view;

/* Every view met so far. rule -1: nothing can satisfy it. */
typedef struct llm__js_memo {
    llm__js_view view;
    int32_t rule;
} llm__js_memo;

typedef struct llm__js {
    llm__gr_build *b;
    const llm_json *doc;
    const char *space; /* regex of what may stand between tokens; NULL: one space or none */
    int root;          /* the schema itself, to which references and JSON pointers belong: it may be a part of the document */
    int lenient;       /* every property that nobody forbids, every type that nobody excludes: for trying given values */
    llm__js_memo *memo;
    size_t n_memo, memo_cap;
    int depth;
    llm__regex *pattern; /* the key of patternProperties that was compiled last; NULL: none */
    int pattern_of;      /* its node */
} llm__js;

/* Refuses a schema at a node (or at one of its keywords): the sentence begins with the JSON pointer.
 * keyword: NULL for the node itself. Only the first refusal is kept. Returns never, so that a builder can return it. */
LLM__PRIVATE llm__gr_frag llm__js_refuse(llm__js *js, llm_result r, int node, const char *keyword, const char *what);

/* A keyword's value in member i of a view; -1. Of a member that must not hold only llm__js_find_not reads something. */
LLM__PRIVATE int llm__js_find(const llm__js *js, const llm__js_view *v, int i, const char *key);

LLM__PRIVATE int llm__js_find_not(const llm__js *js, const llm__js_view *v, int i, const char *key);

/* 1 if the key of a member of a schema is one of a list of words. */
LLM__PRIVATE int llm__js_listed(const llm__js *js, const char *words, int member);

/* The first member's value of a keyword that is there. */
LLM__PRIVATE int llm__js_any(const llm__js *js, const llm__js_view *v, const char *key);

/* Keywords that are dealt with before types are looked at, and the mark of a member whose keyword is. */
static const struct {
    const char *keys;
    int flag;
} llm__js_dealt[] = {
    {"enum", LLM__JS_ENUM}, {"const", LLM__JS_CONST}, {"anyOf", LLM__JS_ANY}, {"oneOf", LLM__JS_ONE}, {"if then else", LLM__JS_IF}};

/* One more schema that must hold (how: 0 or LLM__JS_KEY) or must not (LLM__JS_NOT); by: the node that brings it in, -1: none. What is
 * always so is left out, as `true` and {}; what never is stays, for llm__js_expand to find. */
LLM__PRIVATE void llm__js_bring(llm__js *js, llm__js_view *v, int by, int node, int how);

/* 1 if member k is the node `from`, or was brought in by it or by those that it brought in. */
LLM__PRIVATE int llm__js_within_of(const llm__js_view *v, int k, int from);

/* Keywords that only say something to people and programs, or are read where they are pointed to. */
static const char llm__js_notes[] = "title description default examples $comment $id $schema $anchor $defs definitions deprecated readOnly "
                                    "writeOnly discriminator";

/* Brings in what $ref, allOf and not name, and refuses what cannot be kept. 0: nothing can satisfy it (a member is `false`), or an error.
 * The list grows while it is walked, so what is brought in is expanded too; it ends, since a node is never added twice and 16 are the most.
 */
LLM__PRIVATE int llm__js_expand(llm__js *js, llm__js_view *v);

/* A keyword's whole number, over all members: the largest (most 0) or the smallest. `none` if no one has it. */
LLM__PRIVATE int64_t llm__js_count(llm__js *js, const llm__js_view *v, const char *key, int smallest, int64_t none);

/* The types that a view allows. Where no one says it, the keywords do.
 * As bits of LLM__JS_NULL ...; 0: the members contradict each other. A strict reading of {"minimum": 0} would allow any string as well,
 * since minimum only speaks of numbers; whoever writes it means a number, and fewer documents than the schema allows are no error. */
LLM__PRIVATE int llm__js_types(llm__js *js, const llm__js_view *v);

/* What may stand between two tokens of JSON. Bounded by default: models that may put spaces without end sometimes do. */
LLM__PRIVATE llm__gr_frag llm__js_space(llm__js *js);

/* Text that must follow, then perhaps space. */
LLM__PRIVATE llm__gr_frag llm__js_mark(llm__js *js, const char *s);
