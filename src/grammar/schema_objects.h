/* schema_objects: objects of a schema. */
#pragma once
#include "base/platform.h"
#include "base/text.h"
#include "grammar/machine.h"
#include "grammar/schema.h"

typedef struct llm__js_property {
    llm__str key;
    int required, never; /* never: it must not be there */
    int named;           /* propertyNames is there and lets it through */
    llm__js_view view;
} llm__js_property;

/* What every member of a view says of a property (key.p NULL: of one that nobody names): its own schema, or that of the patterns that match
 * its name, or what it says of additional ones. 0: a member forbids it. In {"properties": {"a": A}, "additionalProperties": E, "allOf":
 * [{"properties": {"b": B}}]} the key a must satisfy A (the second member says nothing of it), and b must satisfy B and E:
 * additionalProperties sees only its own member's properties, as the standard has it, and unevaluatedProperties those of what its member
 * brought in too. Denied are one property's schema, or that it is there. */
LLM__PRIVATE int llm__js_property_view(llm__js *js, const llm__js_view *v, llm__str key, llm__js_view *out);

/* Every property that a member lists, requires or denies, in order of appearance: the order in which they will have to be written. *count;
 * NULL if there is none. Freed by the caller. */
LLM__PRIVATE llm__js_property *llm__js_properties(llm__js *js, const llm__js_view *v, size_t *count);

/* An object is a walk through its properties in order. at[i][c] is the place before property i with c of them written already; c is
 * only told apart as far as it matters: none or some (is a comma due?), or the number where minProperties or maxProperties counts. For a
 * (may be left out) and b (required), and no others:
 *
 *   at[0][0] --"a": ..--> at[1][1] --, "b": ..--> at[2][1] --> }
 *       |
 *       +-----skip------> at[1][0] -----"b": ..--> at[2][1]            at[1][0] has no way to skip b
 *
 * Key and value are a rule of their own, called from all places of a row: the machine grows with properties times counts by small
 * instructions only. From the last row the properties go on that nobody listed, counted by a REPEAT. Places that lead nowhere, as where a
 * required property is forbidden, are found by llm__gr_needs.
 *
 * Why in order: free order takes a place for every set of keys that are written, 2^n of them, and models write keys as the schema has
 * them. */
LLM__PRIVATE llm__gr_frag llm__js_object(llm__js *js, const llm__js_view *v);
