#include "model/pickle.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "model/tensors.h"
#include "model/gguf.h"

static const struct {
    const char *module, *name, *dtype;
} llm__pickle_names[LLM__PY_NAMES] = {
#define LLM__PICKLE_ROW(id, module, name, dtype) {module, name, dtype},
    LLM__PICKLE_NAMES(LLM__PICKLE_ROW)};

LLM__PRIVATE const char *llm__pickle_dtype(llm__pickle_name name) { return llm__pickle_names[name].dtype; }

LLM__PRIVATE void llm__pickle_close(llm__pickle *p) {
    LLM_FREE(p->value);
    LLM_FREE(p->link);
    LLM_FREE(p->stack);
    LLM_FREE(p->memo);
    memset(p, 0, sizeof *p);
}

LLM__PRIVATE int llm__pickle_is(const llm__pickle *p, int32_t value, llm__pickle_kind kind) {
    return value >= 0 && p->value[value].kind == kind;
}

LLM__PRIVATE int32_t llm__pickle_part(const llm__pickle *p, int32_t value, int i) {
    int32_t link = value < 0 ? -1 : p->value[value].first;
    while (link >= 0 && i-- > 0) link = p->link[link].next;
    return link < 0 ? -1 : p->link[link].value;
}

/* The machine while it runs: what is left of the program. */
typedef struct llm__pickle_run {
    llm__pickle *p;
    const uint8_t *at, *end;
    size_t begin; /* of the current opcode, for messages */
    llm_result r;
} llm__pickle_run;

static void llm__pickle_fail(llm__pickle_run *m, const char *what) {
    if (!m->r) m->r = llm__error(LLM_ERR_FORMAT, "%s: pickle, byte %zu: %s", m->p->path, m->begin, what);
}

/* n bytes of the program, or NULL. */
static const uint8_t *llm__pickle_take(llm__pickle_run *m, uint64_t n) {
    const uint8_t *at = m->at;
    if (n > (uint64_t)(m->end - at)) llm__pickle_fail(m, "truncated");
    if (m->r) return NULL;
    m->at += n;
    return at;
}

/* A little-endian number of up to 8 bytes. */
static uint64_t llm__pickle_number(llm__pickle_run *m, int bytes) {
    const uint8_t *at = llm__pickle_take(m, (uint64_t)bytes);
    return at ? llm__load_le(at, bytes) : 0;
}

static void llm__pickle_push(llm__pickle_run *m, int32_t value) {
    llm__pickle *p = m->p;
    if (m->r) return;
    if (!llm__grow((void **)&p->stack, &p->stack_cap, p->depth + 1, sizeof *p->stack)) m->r = llm__nomem();
    else p->stack[p->depth++] = value;
}

/* A new value, which stands nowhere yet; -1 after an error. */
static int32_t llm__pickle_make(llm__pickle_run *m, llm__pickle_kind kind) {
    llm__pickle *p = m->p;
    if (!m->r && p->n >= LLM__PICKLE_VALUES)
        m->r = llm__error(LLM_ERR_LIMIT, "%s: pickle: more than %d values", p->path, (int)LLM__PICKLE_VALUES);
    if (!m->r && !llm__grow((void **)&p->value, &p->cap, p->n + 1, sizeof *p->value)) m->r = llm__nomem();
    if (m->r) return -1;
    llm__pickle_value *v = &p->value[p->n];
    memset(v, 0, sizeof *v);
    v->kind = kind;
    v->first = v->last = -1;
    return (int32_t)p->n++;
}

/* A new value, pushed; NULL after an error. */
static llm__pickle_value *llm__pickle_new(llm__pickle_run *m, llm__pickle_kind kind) {
    const int32_t i = llm__pickle_make(m, kind);
    llm__pickle_push(m, i);
    return m->r ? NULL : &m->p->value[i];
}

static void llm__pickle_int(llm__pickle_run *m, llm__pickle_kind kind, int64_t n) {
    llm__pickle_value *v = llm__pickle_new(m, kind);
    if (v) v->n = n;
}

static void llm__pickle_text(llm__pickle_run *m, uint64_t n) {
    const uint8_t *at = llm__pickle_take(m, n);
    llm__pickle_value *v = at ? llm__pickle_new(m, LLM__PICKLE_TEXT) : NULL;
    if (v) v->text = llm__s((const char *)at, (size_t)n);
}

/* An integer of n bytes, two's complement. What has more than 8 of them is kept as bytes. */
static void llm__pickle_long(llm__pickle_run *m, uint64_t n) {
    if (n > 8) {
        llm__pickle_text(m, n);
        return;
    }
    const uint8_t *at = llm__pickle_take(m, n);
    const uint64_t u = at && n ? llm__load_le(at, (int)n) : 0;
    const uint64_t sign = n ? (uint64_t)1 << (8 * n - 1) : 0;
    llm__pickle_int(m, LLM__PICKLE_INT, (int64_t)((u ^ sign) - sign));
}

/* Takes one value off the stack: not below a mark. -1: there is none. */
static int32_t llm__pickle_pop(llm__pickle_run *m) {
    llm__pickle *p = m->p;
    const size_t floor = p->n_marks ? (size_t)p->mark[p->n_marks - 1] : 0;
    if (p->depth <= floor) llm__pickle_fail(m, "the stack is empty");
    return m->r ? -1 : p->stack[--p->depth];
}

/* The value on top, which stays. */
static int32_t llm__pickle_top(llm__pickle_run *m) {
    const int32_t v = llm__pickle_pop(m);
    if (!m->r) m->p->depth++;
    return v;
}

static void llm__pickle_append(llm__pickle_run *m, int32_t to, int32_t part) {
    llm__pickle *p = m->p;
    if (!m->r && !llm__grow((void **)&p->link, &p->links_cap, p->n_links + 1, sizeof *p->link)) m->r = llm__nomem();
    if (m->r) return;
    llm__pickle_value *v = &p->value[to];
    const int32_t at = (int32_t)p->n_links++;
    p->link[at].value = part;
    p->link[at].next = -1;
    if (v->last >= 0) p->link[v->last].next = at;
    else v->first = at;
    v->last = at;
    v->n++;
}

/* The n values on top become parts of the value below them, which is a list or a dictionary. */
static void llm__pickle_extend(llm__pickle_run *m, size_t n, llm__pickle_kind into) {
    llm__pickle *p = m->p;
    const size_t floor = p->n_marks ? (size_t)p->mark[p->n_marks - 1] : 0;
    if (m->r) return;
    if (p->depth < floor + n + 1 || !llm__pickle_is(p, p->stack[p->depth - n - 1], into) || (into == LLM__PICKLE_DICT && n % 2)) {
        llm__pickle_fail(m, into == LLM__PICKLE_DICT ? "a dictionary and pairs for it expected" : "a list and items for it expected");
        return;
    }
    p->depth -= n;
    for (size_t i = 0; i < n; i++) llm__pickle_append(m, p->stack[p->depth - 1], p->stack[p->depth + i]);
}

/* The n values on top become a tuple. */
static void llm__pickle_tuple(llm__pickle_run *m, size_t n) {
    llm__pickle *p = m->p;
    if (!m->r && p->depth < (p->n_marks ? (size_t)p->mark[p->n_marks - 1] : 0) + n) llm__pickle_fail(m, "the stack is empty");
    const int32_t tuple = llm__pickle_make(m, LLM__PICKLE_TUPLE);
    if (m->r) return;
    p->depth -= n;
    for (size_t i = 0; i < n; i++) llm__pickle_append(m, tuple, p->stack[p->depth + i]);
    llm__pickle_push(m, tuple);
}

/* The count of the values above the last mark, which goes. */
static size_t llm__pickle_unmark(llm__pickle_run *m) {
    if (!m->p->n_marks) llm__pickle_fail(m, "there is no mark on the stack");
    return m->r ? 0 : m->p->depth - (size_t)m->p->mark[--m->p->n_marks];
}

static void llm__pickle_mark(llm__pickle_run *m) {
    llm__pickle *p = m->p;
    if (p->n_marks == LLM__PICKLE_MARKS) llm__pickle_fail(m, "more than 64 marks within each other");
    else p->mark[p->n_marks++] = (int32_t)p->depth;
}

/* Puts the value on top into the memo. */
static void llm__pickle_put(llm__pickle_run *m, uint64_t at) {
    llm__pickle *p = m->p;
    const int32_t v = llm__pickle_top(m);
    if (at >= LLM__PICKLE_VALUES) llm__pickle_fail(m, "its memo has more than 6 million entries");
    if (!m->r && !llm__grow((void **)&p->memo, &p->memo_cap, (size_t)at + 1, sizeof *p->memo)) m->r = llm__nomem();
    if (m->r) return;
    for (; p->n_memo <= at; p->n_memo++) p->memo[p->n_memo] = -1;
    p->memo[at] = v;
}

static void llm__pickle_get(llm__pickle_run *m, uint64_t at) {
    const llm__pickle *p = m->p;
    if (at >= p->n_memo || p->memo[at] < 0) llm__pickle_fail(m, "its memo has no such entry");
    else llm__pickle_push(m, p->memo[at]);
}

/* A name, if it is one of those that tensors need. */
static void llm__pickle_global(llm__pickle_run *m, llm__str module, llm__str name) {
    for (int i = 0; i < LLM__PY_NAMES && !m->r; i++) {
        if (!llm__str_eq(module, llm__pickle_names[i].module) || !llm__str_eq(name, llm__pickle_names[i].name)) continue;
        llm__pickle_value *v = llm__pickle_new(m, LLM__PICKLE_NAME);
        if (v) v->name = i;
        return;
    }
    if (m->r) return;
    const int plain = llm__plain_text(module, 100) && llm__plain_text(name, 100);
    m->r =
        llm__error(LLM_ERR_UNSUPPORTED, "%s: pickle, byte %zu: it names %.*s.%.*s, which no tensor needs: nothing of a pickle is run",
                   m->p->path, m->begin, plain ? (int)module.n : 1, plain ? module.p : "?", plain ? (int)name.n : 1, plain ? name.p : "?");
}

/* The rest of a line, without its end. */
static llm__str llm__pickle_line(llm__pickle_run *m) {
    const uint8_t *end = (const uint8_t *)memchr(m->at, '\n', (size_t)LLM__MIN(m->end - m->at, 1024));
    const size_t n = end ? (size_t)(end - m->at) : 0;
    const llm__str line = llm__s((const char *)m->at, n);
    if (!end) llm__pickle_fail(m, "a line of at most 1024 bytes expected");
    else m->at += n + 1;
    return line;
}

static void llm__pickle_stack_global(llm__pickle_run *m) {
    const int32_t name = llm__pickle_pop(m), module = llm__pickle_pop(m);
    if (!m->r && (!llm__pickle_is(m->p, name, LLM__PICKLE_TEXT) || !llm__pickle_is(m->p, module, LLM__PICKLE_TEXT)))
        llm__pickle_fail(m, "a name is two texts");
    if (!m->r) llm__pickle_global(m, m->p->value[module].text, m->p->value[name].text);
}

/* A call: it becomes a value with the arguments as parts; an empty OrderedDict is a dictionary, a Size its tuple. */
static void llm__pickle_reduce(llm__pickle_run *m) {
    llm__pickle *p = m->p;
    const int32_t args = llm__pickle_pop(m), what = llm__pickle_pop(m);
    if (m->r) return;
    if (!llm__pickle_is(p, what, LLM__PICKLE_NAME) || llm__pickle_dtype((llm__pickle_name)p->value[what].name) ||
        !llm__pickle_is(p, args, LLM__PICKLE_TUPLE)) {
        llm__pickle_fail(m, "a call of what cannot be called");
        return;
    }
    const int32_t name = p->value[what].name;
    if (name == LLM__PY_ORDERED && p->value[args].n) {
        llm__pickle_fail(m, "an OrderedDict is made empty");
    } else if (name == LLM__PY_ORDERED) {
        llm__pickle_new(m, LLM__PICKLE_DICT);
    } else if (name == LLM__PY_SIZE) {
        const int32_t sizes = llm__pickle_part(p, args, 0);
        if (!llm__pickle_is(p, sizes, LLM__PICKLE_TUPLE) && !llm__pickle_is(p, sizes, LLM__PICKLE_LIST))
            llm__pickle_fail(m, "a Size of numbers expected");
        llm__pickle_push(m, sizes);
    } else {
        llm__pickle_value *v = llm__pickle_new(m, LLM__PICKLE_CALL);
        if (v) v->name = name, v->n = p->value[args].n, v->first = p->value[args].first, v->last = p->value[args].last;
    }
}

/* A storage, by the tuple that torch.save knows it by. */
static void llm__pickle_storage(llm__pickle_run *m) {
    llm__pickle *p = m->p;
    const int32_t id = llm__pickle_pop(m), word = llm__pickle_part(p, id, 0);
    if (m->r) return;
    if (!llm__pickle_is(p, id, LLM__PICKLE_TUPLE) || !llm__pickle_is(p, word, LLM__PICKLE_TEXT) ||
        !llm__str_eq(p->value[word].text, "storage")) {
        llm__pickle_fail(m, "the id of a storage expected");
        return;
    }
    llm__pickle_value *v = llm__pickle_new(m, LLM__PICKLE_STORAGE);
    if (v) v->n = p->value[id].n, v->first = p->value[id].first, v->last = p->value[id].last;
}

/* The state of an object. Only dictionaries have one here, attributes that no tensor needs; it is dropped. */
static void llm__pickle_build(llm__pickle_run *m) {
    const int32_t state = llm__pickle_pop(m), object = llm__pickle_top(m);
    if (!m->r && (!llm__pickle_is(m->p, object, LLM__PICKLE_DICT) || !llm__pickle_is(m->p, state, LLM__PICKLE_DICT)))
        llm__pickle_fail(m, "only dictionaries are given a state");
}

/* Opcodes are refused by their names, so that one sees what a file wanted. */
static void llm__pickle_forbidden(llm__pickle_run *m, int op) {
    static const char names[] =
        "(:MARK .:STOP 0:POP 1:POP_MARK 2:DUP F:FLOAT I:INT L:LONG P:PERSID S:STRING V:UNICODE d:DICT g:GET i:INST l:LIST o:OBJ "
        "p:PUT \201:NEWOBJ \202:EXT1 \203:EXT2 \204:EXT4 \217:EMPTY_SET \220:ADDITEMS \221:FROZENSET \222:NEWOBJ_EX "
        "\226:BYTEARRAY8 \227:NEXT_BUFFER \230:READONLY_BUFFER";
    char text[128];
    llm__str word;
    for (const char *at = names; llm__list_next(&at, " ", &word);)
        if ((uint8_t)word.p[0] == op) {
            snprintf(text, sizeof text, "opcode %.*s, which no tensor needs: nothing of a pickle is run", (int)word.n - 2, word.p + 2);
            llm__pickle_fail(m, text);
        }
    snprintf(text, sizeof text, "0x%02x is no opcode", (unsigned)op);
    llm__pickle_fail(m, text);
}

/* Opcodes that make numbers and texts. 0: it is another. */
static int llm__pickle_literal(llm__pickle_run *m, int op) {
    switch (op) {
    case 'N': llm__pickle_new(m, LLM__PICKLE_NONE); return 1;
    case 0x88: llm__pickle_int(m, LLM__PICKLE_BOOL, 1); return 1;
    case 0x89: llm__pickle_int(m, LLM__PICKLE_BOOL, 0); return 1;
    case 'J': llm__pickle_int(m, LLM__PICKLE_INT, (int32_t)llm__pickle_number(m, 4)); return 1;
    case 'K': llm__pickle_int(m, LLM__PICKLE_INT, (int64_t)llm__pickle_number(m, 1)); return 1;
    case 'M': llm__pickle_int(m, LLM__PICKLE_INT, (int64_t)llm__pickle_number(m, 2)); return 1;
    case 0x8a: llm__pickle_long(m, llm__pickle_number(m, 1)); return 1;
    case 0x8b: llm__pickle_long(m, llm__pickle_number(m, 4)); return 1;
    case 'G':
        llm__pickle_number(m, 8);
        llm__pickle_new(m, LLM__PICKLE_FLOAT);
        return 1;
    case 'U':
    case 'C':
    case 0x8c: llm__pickle_text(m, llm__pickle_number(m, 1)); return 1;
    case 'T':
    case 'B':
    case 'X': llm__pickle_text(m, llm__pickle_number(m, 4)); return 1;
    case 0x8d:
    case 0x8e: llm__pickle_text(m, llm__pickle_number(m, 8)); return 1;
    default: return 0;
    }
}

/* All other opcodes that are known here. */
static void llm__pickle_opcode(llm__pickle_run *m, int op) {
    llm__str module, name;
    switch (op) {
    case 0x95: /* FRAME: what follows is read as it comes */
        if (llm__pickle_number(m, 8) > (uint64_t)(m->end - m->at)) llm__pickle_fail(m, "truncated");
        return;
    case '(': llm__pickle_mark(m); return;
    case ')': llm__pickle_tuple(m, 0); return;
    case 't': llm__pickle_tuple(m, llm__pickle_unmark(m)); return;
    case 0x85:
    case 0x86:
    case 0x87: llm__pickle_tuple(m, (size_t)(op - 0x84)); return;
    case ']': llm__pickle_new(m, LLM__PICKLE_LIST); return;
    case 'a': llm__pickle_extend(m, 1, LLM__PICKLE_LIST); return;
    case 'e': llm__pickle_extend(m, llm__pickle_unmark(m), LLM__PICKLE_LIST); return;
    case '}': llm__pickle_new(m, LLM__PICKLE_DICT); return;
    case 's': llm__pickle_extend(m, 2, LLM__PICKLE_DICT); return;
    case 'u': llm__pickle_extend(m, llm__pickle_unmark(m), LLM__PICKLE_DICT); return;
    case 'q': llm__pickle_put(m, llm__pickle_number(m, 1)); return;
    case 'r': llm__pickle_put(m, llm__pickle_number(m, 4)); return;
    case 0x94: llm__pickle_put(m, m->p->n_memo); return;
    case 'h': llm__pickle_get(m, llm__pickle_number(m, 1)); return;
    case 'j': llm__pickle_get(m, llm__pickle_number(m, 4)); return;
    case 'c':
        module = llm__pickle_line(m);
        name = llm__pickle_line(m);
        llm__pickle_global(m, module, name);
        return;
    case 0x93: llm__pickle_stack_global(m); return;
    case 'R': llm__pickle_reduce(m); return;
    case 'Q': llm__pickle_storage(m); return;
    case 'b': llm__pickle_build(m); return;
    default: llm__pickle_forbidden(m, op);
    }
}

LLM__PRIVATE llm_result llm__pickle_open(const char *path, const uint8_t *data, size_t n, llm__pickle *out) {
    llm__pickle_run m = LLM__ZERO;
    memset(out, 0, sizeof *out);
    out->path = path;
    m.p = out;
    m.at = data;
    m.end = data + n;
    if (n < 2 || data[0] != 0x80 || data[1] < 2 || data[1] > 5)
        return llm__error(LLM_ERR_FORMAT, "%s: pickle: a protocol from 2 to 5 expected at its beginning", path);
    m.at += 2;
    for (int op = 0; !m.r && op != '.';) {
        m.begin = (size_t)(m.at - data);
        const uint8_t *at = llm__pickle_take(&m, 1);
        op = at ? *at : '.';
        if (op != '.' && !llm__pickle_literal(&m, op)) llm__pickle_opcode(&m, op);
    }
    if (!m.r && (out->depth != 1 || out->n_marks)) llm__pickle_fail(&m, "one value expected at its end");
    out->used = (size_t)(m.at - data);
    out->root = m.r ? -1 : out->stack[0];
    return m.r;
}
