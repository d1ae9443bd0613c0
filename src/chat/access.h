/* access: attributes, items, slices; operators.
 *
 * jinja2 lets templates write x.name and x["name"] for the same thing and tries both ways, in a different order: x.items is a dict's method
 * even where it has a key "items", x["items"] is the key. What is nowhere found is undefined, no error; only an undefined value has nothing
 * at all. With d = {"items": 1, "k": 2}:
 *
 *   d.items    the method      d["items"]   1               d.k   2        d["k"]   2
 *   d.get      the method      d["get"]     the method      d.z   undefined         d.z.y   an error: 'z' is undefined
 *
 * Methods that change a list or dict do not exist, as the immutable sandbox hides them: x.append(1) says "'append' is undefined". */
#pragma once
#include "base/platform.h"
#include "chat/template.h"

/* v.key (op '.') and v[key] (op '['): the attribute and the item of that name, in this order or the other, else undefined. */
LLM__PRIVATE llm__val llm__tpl_member_of(llm__tpl *x, llm__val v, llm__val key, int op);

/* An item's attribute, by name, number, or a path such as "a.b.0"; the item itself if none is given. `absent` replaces undefined. */
LLM__PRIVATE llm__val llm__tpl_pick(llm__tpl *x, llm__val item, llm__val attribute, llm__val absent);

/* v[bound[0]:bound[1]:bound[2]]; none where left out. Ranges give lists, all others their own type. Of "abcde", n = 5:
 *
 *   [1:3]     from 1 up to 3          bc              [::-1]     from 4 down to -1     edcba
 *   [-2:]     from 3 up to 5          de              [3:0:-2]   from 3 down to 0      db
 *   [9:]      from 5 up to 5          nothing         [::0]      an error */
LLM__PRIVATE llm__val llm__tpl_slice(llm__tpl *x, llm__val v, const llm__val *bound);

LLM__PRIVATE LLM__NORETURN void llm__tpl_overflow(llm__tpl *x);

/* + - * / // % ** ~ as Python has them. If one of two joined texts is marked safe, the other is escaped. */
LLM__PRIVATE llm__val llm__tpl_arith(llm__tpl *x, int op, llm__val a, llm__val b);

/* -v and +v: a whole number where it was a bool. */
LLM__PRIVATE llm__val llm__tpl_signed(llm__tpl *x, int op, llm__val v);

/* Comparisons, by their token. */
LLM__PRIVATE int llm__tpl_compare(llm__tpl *x, int op, llm__val a, llm__val b);
