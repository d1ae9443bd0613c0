/* template: chat templates: the part of Jinja2 that they use, as Hugging Face runs it.
 *
 * A chat template is a program that a model's author wrote against Python's jinja2 in transformers' environment (immutable sandbox,
 * trim_blocks, lstrip_blocks, loop controls, generation blocks). The prompt must come out equal to the byte, and what Python refuses must
 * be refused, so this is a small interpreter of Python's values: their printing, truth, order, arithmetic and methods, and jinja2's rules
 * of lookup on top.
 *
 *   text --lexer--> tokens --one walk that only checks--> template --the same walk again--> text
 *
 * - There is no tree. Each rule of the grammar is one function that reads its tokens and, unless x->dead, does what they say. Opening a
 *   template walks over all of it with x->dead set, which finds errors of syntax, and notes in some tokens where to go on behind what
 *   they begin. Rendering walks again: the body of a loop once a turn, and over the branches not taken in one jump.
 * - The tokens are never changed then: a template may be rendered by many threads at once. All values of a render lie in one arena, freed
 *   at its end. Values are 16 bytes and never change once made; what changes is variables, loops, generators and namespaces.
 * - Everything that becomes text is written at the end of one buffer. A macro, a block or a filter marks the place, writes on, and takes
 *   what it wrote off the end as a value. So one limit bounds all texts, and it is checked before memory is taken.
 * - Filters, tests, methods and global functions are rows of one table: names, where the row counts, parameters, a C function. One function
 *   binds arguments to parameters as Python does, for all of them.
 * - Templates come from model files, and a server may take them from clients: they are hostile programs. Each step costs fuel, so does each
 *   64 bytes copied; depth, calls, ranges, memory and output are bounded; no names of the host can be reached.
 * - Variables are looked up as they are met, from the inner scope outwards. jinja2 decides that when it compiles, but the scopes are the
 *   same: a for loop, macro, block set, filter block and generation have their own, an if has not; a macro sees the scope it was
 *   defined in.
 * - Undefined is jinja2's default one: it prints as nothing, is false, can be walked, has no attributes, and most operators refuse it.
 * - Not here, because no chat template uses it: include, import, extends, block, autoescape, with, raw, recursive loops, loop.cycle;
 *   varargs and kwargs; nested targets, as in a, (b, c); numbers in other bases; the % operator on texts and fields with a
 *   format ({:>5}); round, groupby, and filters that make columns or HTML; whole numbers beyond 2^53 except to print and compare them.
 *   Generators are filled when they are made, where Python waits until they are walked; a range does not print as one.
 *
 * One template through the stages:
 *
 *   {% for m in messages %}<{{ m.role }}>{{ m.content | trim }}
 *   {% endfor %}
 *
 *   tokens   B for m in messages b   d "<"   V m . role v   d ">"   V m . content | trim v   d "\n"   B endfor b
 *
 *   check    notes in d "<", which begins the body, that it ends at `endfor`; in `trim` which row of the table it is
 *
 *   walk     with messages [{"role": "user", "content": " hi "}]: the list has one item, so one scope with m in it; m is a dict, which has
 *            no method "role", but a key; " hi " goes through llm__fn_strip, which gives a view of its two bytes in the middle: <user>hi
 *
 * Whose behaviour this is: the syntax of jinja2's lexer.py and parser.py, the values of its runtime.py, filters.py and tests.py, the limits
 * of its sandbox.py (ImmutableSandboxedEnvironment), and around them _compile_jinja_template of transformers' chat_template_utils.py. Other
 * engines for the same templates: minijinja (Rust), and minja, which llama.cpp used. The truth to compare with is jinja2 3.1 itself:
 * tests/unit/chat/test_template.c holds what it made of some 300 small templates. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "api/template.h"
#include "base/alloc.h"
#include "base/text.h"
#include "base/map.h"
#include "tokenizer/tokenizer.h"

/* Types of values. `s`, `list`, ... say which member of the union they use. What a type can do is asked by sets of types (LLM__M_...), so
 * that a rule of Python such as "rows, ranges and texts can be sliced" is one mask in one place. */
typedef enum llm__vtype {
    LLM__V_UNSET = 0, /* an optional argument that was not given */
    LLM__V_UNDEF,     /* s: the name that was looked up */
    LLM__V_NONE,
    LLM__V_BOOL,
    LLM__V_INT,
    LLM__V_FLOAT, /* f, as for the two before */
    LLM__V_BIG,   /* a whole number beyond 2^53; s: its digits */
    LLM__V_STR,   /* valid UTF-8; flag 1: marked safe */
    LLM__V_LIST,
    LLM__V_TUPLE,
    LLM__V_RANGE,
    LLM__V_VIEW,      /* of a dict: keys() (flag 0), values() (1), items() (2) */
    LLM__V_GEN,       /* a generator: can be walked once */
    LLM__V_DICT,      /* list: key, value, key, value ... in the order of insertion */
    LLM__V_NAMESPACE, /* the same */
    LLM__V_MACRO,
    LLM__V_FUNC,
    LLM__V_LOOP /* object */
} llm__vtype;

/* Sets of types: is the type of v among those of a mask? */
#define LLM__V_IN(v, mask) (1 << (v).type & (mask))
/* clang-format off */
enum {
    LLM__M_STR = 1 << LLM__V_STR, LLM__M_DICT = 1 << LLM__V_DICT, LLM__M_UNDEF = 1 << LLM__V_UNDEF, LLM__M_BIG = 1 << LLM__V_BIG,
    LLM__M_ABSENT = 1 << LLM__V_UNSET | 1 << LLM__V_NONE, LLM__M_INT = 1 << LLM__V_BOOL | 1 << LLM__V_INT,
    LLM__M_NUMBER = LLM__M_INT | 1 << LLM__V_FLOAT, LLM__M_ROW = 1 << LLM__V_LIST | 1 << LLM__V_TUPLE,
    LLM__M_LISTED = LLM__M_ROW | 1 << LLM__V_RANGE | 1 << LLM__V_VIEW, LLM__M_SLICED = LLM__M_ROW | 1 << LLM__V_RANGE | LLM__M_STR,
    LLM__M_SEQUENCE = LLM__M_SLICED | LLM__M_DICT | LLM__M_UNDEF,
    LLM__M_NO_KEY = 1 << LLM__V_LIST | LLM__M_DICT | 1 << LLM__V_VIEW, /* what Python cannot hash */
    LLM__IN_FILTER = 1 << 28, LLM__IN_TEST = 1 << 29, LLM__IN_GLOBAL = 1 << 30 /* beside the types, in a row of the table of functions */
};
/* clang-format on */

/* A value. What it points to lives in the arena of the render, a literal's text in that of the template. Copied freely: a slice of a text
 * or a piece of a split is a view of the bytes of the whole, and a list in two variables is one list, which no template can tell from two,
 * because there is nothing that changes a list. */
typedef struct llm__val {
    uint8_t type, flag;
    uint16_t tag; /* of a key in a dict: of its hash; of a variable in a scope: its name */
    uint32_t n;   /* bytes of a text */
    union {
        double f;
        const char *s;
        struct llm__vlist *list;
        struct llm__vobject *object;
    } as;
} llm__val;

/* What all containers are made of. Filled while it is made, never changed after. */
typedef struct llm__vlist {
    llm__val *v;
    int32_t n, cap;
    int32_t at; /* of a generator: consumed */
} llm__vlist;

/* Variables of a block that has its own. A variable is a value whose tag is its name, so a scope is a list. */
typedef struct llm__scope {
    struct llm__scope *up;
    llm__vlist vars;
} llm__scope;

/* What macros, functions and loops are. */
typedef struct llm__vobject {
    llm__scope *scope;              /* of a macro: where it was defined */
    const struct llm__tpl_row *row; /* of a function */
    const llm__vlist *items;        /* of a loop */
    llm__val self;                  /* of a method: its object; of a macro: its name */
    int32_t at;                     /* of a macro: its first parameter, a token (0: none); of a loop: the turn, from 0 */
    int32_t body;                   /* of a call block: its body, a token; of a macro 0: it stands behind the parameters */
} llm__vobject;

/* Types of tokens are letters: d text outside of tags, V {{, v }}, B {%, b %}, n name, s text literal, i and f numbers, 0 the end;
 * operators by their character, those of two characters by E ==, N !=, G >=, L <=, D //, P **, those that are words by O or, A and, ! not,
 * I in, ? is. What the check notes in `jump`, 0 where it noted nothing:
 *
 *   the first token of a block            the word that ends it: else, endfor ...
 *   the first token of `a if b else c`    b
 *   the name of a filter or test          its row in the table, plus 1; 0: there is none, an error when it is reached */
typedef struct llm__tpl_token {
    char type;
    uint8_t level; /* of an operator that stands between operands: 1 binds loosest, see llm__tpl_levels */
    uint16_t name; /* of a word, operators among them: its number, from 1 */
    int32_t line, jump;
    llm__val v; /* of a literal its value, of all others their text */
} llm__tpl_token;

/* A template that was checked: read-only from the end of llm_template_open on. */
struct llm_template {
    llm__arena arena;
    llm__tpl_token *tok; /* (n_tok) */
    size_t n_tok, cap_tok;
    llm__map names; /* of all words, to their numbers */
};

/* One walk: a render, or a check, which has the same limits and the same way out but no values. */
typedef struct llm__tpl {
    const llm_template *t;
    const llm_render_options *options;
    const llm__tokenizer *guard; /* whose control tokens are kept out of the context; NULL: none are */
    const llm_json *input;       /* the context that was given */
    llm__arena *arena;
    llm_text text;             /* the output so far, and at its end what is being built */
    llm__scope *scope;         /* the outermost has the context's variables and the global functions */
    llm_json *json;            /* text that is read as JSON just now */
    llm_text aside;            /* a text with marks put in, or taken away (llm_guard) */
    const llm__tpl_token *tok; /* all of them */
    int32_t at;                /* the token that is read next */
    llm_template *made;        /* the template while it is opened, whose tokens take notes; else NULL */
    llm__str source;           /* its text from where the lexer is, and some zeros behind it */
    int dead;                  /* not 0: what is read is only checked */
    int loops;                 /* open ones, for break and continue */
    int flow;                  /* LLM__W_BREAK or _CONTINUE: nothing runs any more up to the end of the loop's body */
    int32_t call_at;           /* of a call block: the '(' of its call, which gets `caller` */
    llm__val caller;
    int64_t fuel;
    int depth, calls;
    int32_t line;
    llm_result err;
    jmp_buf out;
} llm__tpl;

/* Arguments of a call: a list of those by position, and a dict of those by name. */
typedef struct llm__args {
    llm__vlist pos, named;
} llm__args;

typedef llm__val (*llm__tpl_fn)(llm__tpl *x, llm__val self, llm__val *a, const llm__args *g, int op);

/* A filter, test, method or function. `names` are those it goes by, with blanks between; `where` it counts: the types it is a method of,
 * and LLM__IN_.... `spec` names its parameters in order, with "!" after those that must be given and "-" before those that have no name;
 * they come in `a`, UNSET where not given. NULL: all arguments come in `g`. `op` tells functions apart that share their code. What fn
 * returns is the result; UNSET: the text that it wrote. */
typedef struct llm__tpl_row {
    const char *names;
    int where;
    const char *spec;
    llm__tpl_fn fn;
    int op;
} llm__tpl_row;

/* The parameters of every fn. */
#define LLM__TPL_FN(name) \
    static llm__val name(LLM__UNUSED llm__tpl *x, LLM__UNUSED llm__val self, LLM__UNUSED llm__val *a, LLM__UNUSED const llm__args *g, \
                         LLM__UNUSED int op)
#define LLM__WRITTEN llm__v(LLM__V_UNSET) /* what such a function returns when its result is the text that it wrote */

enum {
    LLM__TPL_DEPTH = 256,
    LLM__TPL_RUN_DEPTH = 1500,
    LLM__TPL_CALLS = 64,
    LLM__TPL_RANGE = 100000,
    LLM__TPL_MAX_ARGS = 4,
    LLM__TPL_MAX_TARGETS = 8
};
static const int64_t LLM__TPL_INT = ((int64_t)1 << 53) - 1; /* whole numbers up to it are doubles, and so is the sum of two */
