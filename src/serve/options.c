#include "serve/options.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/json.h"
#include "api/options.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/files.h"
#include "base/json.h"
#include "base/yaml.h"
#include "chat/reasoning.h"
#include "engine/draft.h"
#include "serve/reports.h"
#include "serve/cached.h"

/* The words of an ENUM as a person reads them, "a, b, c" for "a|b=2|c": the numbers are the program's. */
static void llm__option_words(const char *words, llm_text *out) {
    for (llm__str w; llm__list_next(&words, "|", &w);) {
        llm_text_add(out, w.p, llm__alias_bare(w));
        if (*words) llm_text_str(out, ", ");
    }
}

/* Number of single edits between a and b (Levenshtein 1966), '_' as '-'; 99 for very long names. One row of the table of distances between
 * their beginnings is kept: row[j] is that of a's first i bytes to b's first j. */
static int llm__option_distance(llm__str a, llm__str b) {
    int row[64];
    if (a.n > 60 || b.n > 60) return 99;
    for (size_t j = 0; j <= b.n; j++) row[j] = (int)j;
    for (size_t i = 1; i <= a.n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b.n; j++) {
            int change = diagonal + (llm__alias_dash(a.p[i - 1]) != b.p[j - 1]), skip = LLM__MIN(row[j], row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = LLM__MIN(change, skip);
        }
    }
    return row[b.n];
}

/* A linear search: option tables have about a hundred rows and are searched at start or once a request field. */
LLM_API const llm_option *llm_options_find(const llm_options *o, const char *name, size_t len) {
    for (int32_t i = 0; i < o->n; i++)
        if (llm__alias_among(o->table[i].names, llm__s(name, len), NULL)) return &o->table[i];
    return NULL;
}

LLM__PRIVATE const llm_option *llm__options_member(const llm_options *o, llm__str name, int source) {
    if (source != LLM_FROM_REQUEST) return llm_options_find(o, name.p, name.n);
    for (int32_t i = 0; i < o->n; i++)
        if (llm__alias_member(o->table[i].names, name)) return &o->table[i];
    return NULL;
}

/* Has a value of it a place in the target? */
static int llm__option_stores(const llm_option *p) { return p->kind < LLM_OPTION_IGNORED || p->kind == LLM_OPTION_CHOICE; }

/* Does the help show it? */
static int llm__option_listed(const llm_option *p) { return p->help && p->group >= 0 && llm__option_stores(p); }

/* Bytes of that place. */
static size_t llm__option_width(const llm_option *p) {
    return p->kind == LLM_OPTION_TEXT || p->kind == LLM_OPTION_CHOICE ? sizeof(char *)
           : p->kind == LLM_OPTION_INT64                              ? sizeof(int64_t)
                                                                      : sizeof(int32_t);
}

/* The name by which the help knows an option: the first that is no letter. */
static llm__str llm__option_name(const llm_option *p) {
    const char *names = p->names;
    llm__str w = LLM__ZERO;
    while (llm__list_next(&names, "|", &w) && w.n <= 2) continue;
    return w;
}

/* May a misspelt name be meant for it? Where a table has a help, the help knows it; a member of a body is what its program reads. */
static int llm__option_meant(const llm_options *o, const llm_option *p) {
    return o->table[0].help ? llm__option_listed(p) : llm__option_stores(p) || p->kind == LLM_OPTION_READ;
}

LLM__PRIVATE llm_result llm__option_unknown(const llm_options *o, llm__str said, size_t dashes) {
    const llm__str name = llm__str_from(said, dashes);
    llm__str best = llm__s("help", 4), w, listed = best;
    char near[64];
    int least = dashes ? llm__option_distance(name, best) : 99;
    for (int32_t i = 0; i < o->n; i++) {
        for (const char *words = llm__option_meant(o, &o->table[i]) ? o->table[i].names : ""; llm__list_next(&words, "|", &w);) {
            int d = w.n > 1 && *w.p != '$' && *w.p != '-' ? llm__option_distance(name, w) : 99;
            /* On a tie the one that the typed name begins with, so that --max-tok finds max-tokens. */
            if (d > least || (d == least && (w.n <= best.n || strncmp(w.p, name.p, LLM__MIN(name.n, w.n))))) continue;
            least = d;
            best = w;
            listed = llm__option_name(&o->table[i]);
        }
    }
    /* A name of which half would have to change means none of them, unless it is the beginning of one. */
    if ((size_t)least > 1 + name.n / 2 && (best.n < name.n || strncmp(best.p, name.p, name.n)))
        return llm__error(LLM_ERR_ARG, "unknown option %.*s%s", (int)LLM__MIN(said.n, (size_t)66), said.p,
                          dashes ? "; --help lists them" : "");
    int n = snprintf(near, sizeof near, "%s%.*s", dashes ? "--" : "", (int)listed.n, listed.p);
    for (int i = 0; i < n && !dashes; i++)
        if (near[i] == '-') near[i] = '_';
    return llm__error(LLM_ERR_ARG, "unknown option %.*s; the nearest is %s", (int)LLM__MIN(said.n, (size_t)66), said.p, near);
}

/* A number with an optional k, K, M or G behind it, as vLLM reads --max-model-len 32k: k is 1000, K 1024. */
static int llm__option_int(const char *s, int64_t *out) {
    size_t n = strlen(s);
    char last = n ? s[n - 1] : 0;
    int64_t unit = last == 'k' ? 1000 : last == 'K' ? 1024 : last == 'M' ? 1 << 20 : last == 'G' ? 1 << 30 : 1;
    return llm__parse_int(s, n - (unit != 1), out) && !__builtin_mul_overflow(*out, unit, out);
}

/* Reads, checks the range, stores with the width of the kind. On an error `to` is as it was. The check is written !(low <= x <= high),
 * so that a NaN, which compares with nothing, fails it. */
static llm_result llm__option_number(const llm_option *p, const char *said, const char *value, void *to) {
    int64_t i = 0;
    double x = 0;
    int whole = p->kind != LLM_OPTION_FLOAT, ok = whole ? llm__option_int(value, &i) : llm__parse_double(value, strlen(value), &x);
    if (whole) x = (double)i;
    if (!ok || !(x >= p->low && x <= p->high)) {
        char low[40], high[40];
        llm__format_double(p->low, low);
        llm__format_double(p->high, high);
        if (whole) snprintf(low, sizeof low, "%.0f", p->low), snprintf(high, sizeof high, "%.0f", p->high);
        return llm__error(LLM_ERR_ARG, "%s: %.40s, a %snumber from %s to %s was expected", said, value, whole ? "whole " : "", low, high);
    }
    float f = (float)x;
    int32_t small = (int32_t)i;
    if (p->kind == LLM_OPTION_INT64) memcpy(to, &i, sizeof i);
    else if (whole) memcpy(to, &small, sizeof small);
    else memcpy(to, &f, sizeof f);
    return LLM_OK;
}

/* Appends a text that lives elsewhere: the list owns the array of pointers, not the texts. On LLM_ERR_NOMEM the list is as it was. */
static llm_result llm__option_append(llm_option_list *list, const char *value) {
    const char **items = (const char **)LLM_REALLOC((void *)list->items, (size_t)(list->n + 1) * sizeof *items);
    if (!items) return llm__nomem();
    list->items = items;
    items[list->n++] = value;
    return LLM_OK;
}

/* A word of the option's list, as its number. The error lists them all. */
static llm_result llm__option_word(const char *words, const char *shown, const char *said, const char *value, void *to) {
    int32_t number = 0;
    LLM__SCOPED(llm_text_free) llm_text list = LLM__ZERO;
    if (llm__alias_among(words, llm__lit(value), &number)) return memcpy(to, &number, sizeof number), LLM_OK;
    llm__option_words(shown, &list);
    return llm__error(LLM_ERR_ARG, "%s: %.40s, %s%s was expected", said, value, strchr(shown, '|') ? "one of " : "",
                      list.data ? list.data : "");
}

#define LLM__OPTION_BOOLS "true=1|1=1|on=1|yes=1|false|0|off|no"

/* A value that will have no effect must be one that the documents know even so: what it is misspelt for may have one. Where only one is
 * possible, the reason says what there is instead of the others. */
static llm_result llm__option_idle(const llm_option *p, const char *said, const char *value) {
    llm_option as = *p;
    int64_t unused;
    llm_result r;
    if (p->kind == LLM_OPTION_IGNORED_FLAG) return llm__option_word(LLM__OPTION_BOOLS, "true or false", said, value, &unused);
    if (!p->words) return LLM_OK;
    const int word = p->words[1] != 0;
    as.kind = *p->words == 'N' ? LLM_OPTION_INT64 : LLM_OPTION_FLOAT;
    r = word ? llm__option_word(p->words, p->words, said, value, &unused) : llm__option_number(&as, said, value, &unused);
    if (!r || (word ? strchr(p->words, '|') != NULL : p->low < p->high)) return r;
    char only[40];
    if (word) snprintf(only, sizeof only, "%.30s", p->words);
    else snprintf(only, sizeof only, "%g", p->low);
    return llm__error(LLM_ERR_ARG, "%s: %.40s, %s is the only choice here: %s", said, value, only, p->help);
}

/* Stores a value of any kind at its place. Texts are not copied: they live as long as argv, the environment, or o->owned. */
static llm_result llm__option_store(const llm_option *p, const char *said, const char *value, char *to) {
    size_t n = strlen(value);
    int32_t number;
    if (p->words && !strcmp(p->words, "TEXT") && llm__utf8_valid(value, n) < n)
        return llm__error(LLM_ERR_ARG, "%s: not UTF-8, UTF-8 text was expected", said);
    switch (p->kind) {
    case LLM_OPTION_CHOICE: memcpy(to, &value, sizeof value); return llm__option_word(p->words, p->words, said, value, &number);
    case LLM_OPTION_INT:
    case LLM_OPTION_INT64:
    case LLM_OPTION_FLOAT: return llm__option_number(p, said, value, to);
    case LLM_OPTION_BOOL: return llm__option_word(LLM__OPTION_BOOLS, "true or false", said, value, to);
    case LLM_OPTION_LIST:
        if (p->high > 0 && ((llm_option_list *)(void *)to)->n >= p->high)
            return llm__error(LLM_ERR_ARG, "%s: at most %.0f texts were expected", said, p->high);
        return llm__option_append((llm_option_list *)(void *)to, value);
    case LLM_OPTION_TEXT:
        if (p->high > 0 && ((double)n < p->low || (double)n > p->high))
            return llm__error(LLM_ERR_ARG, "%s: %zu bytes, %.0f to %.0f were expected", said, n, p->low, p->high);
        if (!n && p->high <= 0) return llm__error(LLM_ERR_ARG, "%s: an empty value, %s was expected", said, p->words ? p->words : "a text");
        memcpy(to, &value, sizeof value);
        return LLM_OK;
    default: return llm__option_word(p->words, p->words, said, value, to);
    }
}

/* One value for one row: refused, without meaning, weaker than what is there, or stored. said: the name as the user wrote it, for the
 * sentence of an error. source: a weaker one that comes later changes nothing, but what has no meaning is told wherever it is said. Of one
 * source the last value counts, and what the user says twice is noted; a list grows. */
LLM_API llm_result llm_options_set(llm_options *o, const llm_option *option, const char *said, const char *value, int source) {
    unsigned char *given = &o->given[option - o->table];
    const int idle = option->kind == LLM_OPTION_IGNORED || option->kind == LLM_OPTION_IGNORED_FLAG, weaker = *given > source;
    llm_result r = LLM_OK;
    if (option->kind == LLM_OPTION_REFUSED) return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s is not supported", said, option->help);
    if (idle) {
        r = llm__option_idle(option, said, value);
        if (!r) llm__report_note(o, said, " has no effect: ", option->help);
    } else if (!weaker && option->kind != LLM_OPTION_READ) { /* the command line over the environment over a file */
        if (*given == LLM_FROM_USER && option->kind != LLM_OPTION_LIST)
            llm__report_note(o, said, " is given twice, the last one counts", "");
        r = llm__option_store(option, said, value, (char *)o->target + option->at);
    }
    if (!r && !weaker) *given = (unsigned char)source;
    return r;
}

/* Bytes of the dashes before a name: one or two hyphens, or one long dash; 0 for a word, which a lone '-' and a negative number are too. */
static size_t llm__option_dashes(const char *arg) {
    if (!strncmp(arg, "\xE2\x80\x93", 3) || !strncmp(arg, "\xE2\x80\x94", 3)) return 3;
    return arg[0] != '-' || !arg[1] || (arg[1] >= '0' && arg[1] <= '9') ? 0 : arg[1] == '-' ? 2 : 1;
}

/* The option that a word of argv names; NULL: none. len: of the name with its dashes. no: it is switched off by --no-x, which is looked for
 * as x only when there is no option of the whole name. */
static const llm_option *llm__option_of(const llm_options *o, const char *arg, size_t *len, int *no) {
    const size_t dashes = llm__option_dashes(arg), n = strcspn(arg + dashes, "=");
    const llm_option *p = dashes ? llm_options_find(o, arg, n + dashes) : NULL; /* as it stands: -n */
    *len = dashes + n;
    if (dashes && !p) p = llm_options_find(o, arg + dashes, n);
    *no = dashes && !p && n > 3 && (!strncmp(arg + dashes, "no-", 3) || !strncmp(arg + dashes, "no_", 3));
    return *no ? llm_options_find(o, arg + dashes + 3, n - 3) : p;
}

/* The option at argv[*i]; *i moves over its value. The next word is no value if it is itself a known option with two dashes or a long one:
 * "--port --model x" lacks the port; but "-p -m" may mean the text "-m". */
static llm_result llm__option_arg(llm_options *o, int argc, char **argv, int *i) {
    const char *arg = argv[*i], *value = strchr(arg, '=');
    size_t n;
    int no;
    const llm_option *p = llm__option_of(o, arg, &n, &no);
    char said[80];
    snprintf(said, sizeof said, "%.*s", (int)LLM__MIN(n, sizeof said - 1), arg);
    if (value) value++;
    const int flag = p && (p->kind == LLM_OPTION_BOOL || p->kind == LLM_OPTION_IGNORED_FLAG);
    if (!p || (no && !flag)) return llm__option_unknown(o, llm__s(arg, n), llm__option_dashes(arg));
    if (no && value) return llm__error(LLM_ERR_ARG, "%s takes no value", said);
    if (flag) return llm_options_set(o, p, said, no ? "false" : value ? value : "true", LLM_FROM_USER);
    /* A refused option is refused at once, whether its value is there or not. */
    if (!value && p->kind != LLM_OPTION_REFUSED) {
        value = *i + 1 < argc ? argv[++*i] : NULL;
        size_t dashes = value ? llm__option_dashes(value) : 0;
        if (!value || (dashes > 1 && llm_options_find(o, value + dashes, strcspn(value + dashes, "="))))
            return llm__error(LLM_ERR_ARG, "%s: a value was expected", said);
    }
    llm_result r = llm_options_set(o, p, said, value, LLM_FROM_USER);
    /* vLLM's lists: --served-model-name a b c */
    while (!r && p->kind == LLM_OPTION_LIST && p->low > 0 && *i + 1 < argc && !llm__option_dashes(argv[*i + 1]))
        r = llm_options_set(o, p, said, argv[++*i], LLM_FROM_USER);
    return r;
}

LLM__PRIVATE llm_result llm__options_argv(llm_options *o, int argc, char **argv, llm_option_list *words) {
    int plain = 0;
    llm_result r = LLM_OK;
    for (int i = 1; i < argc && !r; i++) {
        if (plain || !llm__option_dashes(argv[i])) r = llm__option_append(words, argv[i]);
        else if (!strcmp(argv[i], "--")) plain = 1;
        else r = llm__option_arg(o, argc, argv, &i);
    }
    return r;
}

/* A JSON value as the text an option takes: a string's bytes, a whole number's digits (of 1.0 too), of other values their JSON; of a member
 * of LMDeploy's {"name": "path"} both. Owned by o, as the target may point to it. An option whose value nobody looks at needs none. */
static llm_result llm__option_text(llm_options *o, const llm_option *p, const char *said, const llm_json *doc, int node, int named,
                                   const char **out) {
    size_t n;
    int64_t whole;
    llm_text t = LLM__ZERO;
    const char *s = llm_json_str(doc, node, &n);
    *out = "";
    if (!llm__option_stores(p) && !(p->kind == LLM_OPTION_IGNORED && p->words) && p->kind != LLM_OPTION_IGNORED_FLAG) return LLM_OK;
    if (s && memchr(s, 0, n)) return llm__error(LLM_ERR_ARG, "%s: a text without NUL was expected", said);
    if (named) llm_text_format(&t, "%s=", llm_json_key(doc, node, NULL));
    if (s) llm_text_add(&t, s, n);
    else if (llm_json_int(doc, node, &whole)) llm_text_int(&t, whole);
    else llm_json_write(doc, node, &t);
    llm_result r = t.failed ? llm__nomem() : llm__option_append(&o->owned, t.data);
    if (r) llm_text_free(&t);
    else *out = t.data;
    return r;
}

/* One member of an object, of a row: a list element by element, and so an object of texts for a list of NAME=PATH. JSON's own types are
 * asked for in a request. */
static llm_result llm__option_member(llm_options *o, const llm_option *p, const char *key, const llm_json *doc, int v, int source) {
    static const struct {
        llm_json_type type;
        const char *wanted;
    } strict[] = {{LLM_JSON_STRING, "a text"},
                  {LLM_JSON_NUMBER, "a whole number"},
                  {LLM_JSON_NUMBER, "a whole number"},
                  {LLM_JSON_NUMBER, "a number"},
                  {LLM_JSON_BOOL, "true or false"},
                  {LLM_JSON_STRING, "a text"},
                  {LLM_JSON_STRING, "a text or a list of texts"}};
    const llm_json_type type = llm_json_type_of(doc, v);
    const int pairs = p->kind == LLM_OPTION_LIST && type == LLM_JSON_OBJECT && llm_json_find(doc, v, "path") < 0;
    const int list = p->kind == LLM_OPTION_LIST && (type == LLM_JSON_ARRAY || pairs);
    llm_result r = LLM_OK;
    if (source == LLM_FROM_REQUEST && pairs) return llm__error(LLM_ERR_ARG, "%s must be %s", key, strict[p->kind].wanted);
    for (int e = list ? llm_json_first(doc, v) : v; e >= 0 && !r; e = list ? llm_json_next(doc, e) : -1) {
        const char *text;
        if (source == LLM_FROM_REQUEST && p->kind < LLM_OPTION_IGNORED && llm_json_type_of(doc, e) != strict[p->kind].type)
            return llm__error(LLM_ERR_ARG, "%s must be %s", key, strict[p->kind].wanted);
        r = llm__option_text(o, p, key, doc, e, pairs, &text);
        if (!r) r = llm_options_set(o, p, key, text, source);
    }
    return r;
}

/* Is what stands at the place of a value still the same? */
static int llm__option_kept(const llm_option *p, const void *before, const void *now) {
    const char *a, *b;
    if (p->kind != LLM_OPTION_TEXT && p->kind != LLM_OPTION_CHOICE) return !memcmp(before, now, llm__option_width(p));
    memcpy(&a, before, sizeof a);
    memcpy(&b, now, sizeof b);
    return !strcmp(a, b);
}

/* The member v has another value than an earlier one that is another name of the same option: nobody knows which of them is meant. */
static llm_result llm__option_differs(const llm_options *o, const llm_json *doc, int object, int v, int source) {
    LLM__SCOPED(llm_text_free) llm_text value = LLM__ZERO;
    const llm_option *p = llm__options_member(o, llm__json_key(doc, v), source);
    int e = llm_json_first(doc, object);
    while (llm_json_type_of(doc, e) == LLM_JSON_NULL || llm__options_member(o, llm__json_key(doc, e), source) != p)
        e = llm_json_next(doc, e);
    llm_json_write(doc, v, &value);
    return llm__error(LLM_ERR_ARG, "%s: %.40s, but %s, another name of the same, has another value: one of them was expected",
                      llm_json_key(doc, v, NULL), value.data ? value.data : "", llm_json_key(doc, e, NULL));
}

/* Members of an object as options. They take the path of text: 0.5, true, "half"; null says "as if it were not there", as OpenAI's clients
 * write it. What was stored before an error stays. In a file or a request no member comes after another, so two names of one option must
 * not differ; of what the user says the last counts. */
LLM_API llm_result llm_options_json(llm_options *o, const llm_json *doc, int object, int source, llm_text *unknown) {
    llm_result r = LLM_OK;
    for (int v = llm_json_first(doc, object); v >= 0 && !r; v = llm_json_next(doc, v)) {
        const llm__str name = llm__json_key(doc, v);
        const llm_option *p = llm__options_member(o, name, source);
        const int once =
            p && source != LLM_FROM_USER && o->given[p - o->table] == source && llm__option_stores(p) && p->kind != LLM_OPTION_LIST;
        char before[sizeof(int64_t)], *at = once ? (char *)o->target + p->at : NULL;
        o->at = name.p;
        if (once) memcpy(before, at, llm__option_width(p));
        if (p && llm_json_type_of(doc, v) != LLM_JSON_NULL) r = llm__option_member(o, p, name.p, doc, v, source);
        else if (!p && unknown) llm__report_name(unknown, name);
        else if (!p) r = llm__option_unknown(o, name, 0);
        if (!r && once && !llm__option_kept(p, before, at)) r = llm__option_differs(o, doc, object, v, source);
    }
    return r;
}

/* What an inner reader notes is told with the name of the option that it reads. */
typedef struct llm__option_voice {
    const llm_options *outer;
    const char *who;
} llm__option_voice;

static void llm__option_inner_note(void *user, const char *line) {
    const llm__option_voice *v = (const llm__option_voice *)user;
    llm__report_note(v->outer, v->who, ": ", line);
}

LLM__PRIVATE llm_result llm__options_inner(llm_options *o, const llm_option *table, int32_t n, void *target, unsigned char *given,
                                           const llm_options *outer, const char *who, const char *json, int source) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    llm__option_voice voice = {outer, who};
    memset(o, 0, sizeof *o);
    memset(given, 0, (size_t)n);
    o->table = table;
    o->n = n;
    o->target = target;
    o->given = given;
    if (!json) return LLM_OK;
    if (outer && outer->note) o->note = llm__option_inner_note, o->user = &voice;
    llm_result r = llm_json_parse(json, strlen(json), NULL, &doc);
    if (r == LLM_ERR_NOMEM) return r;
    if (r || llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) r = llm__error(LLM_ERR_ARG, "%.40s, a JSON object was expected", json);
    else r = llm_options_json(o, doc, 0, source, NULL);
    o->note = NULL;
    return r ? llm__error(r, "%s: %s", who, llm_last_error()) : LLM_OK;
}

LLM__PRIVATE llm_result llm__options_file(llm_options *o, const char *path) {
    LLM__SCOPED(llm__file_close) llm__file f;
    LLM__SCOPED(llm_text_free) llm_text json = LLM__ZERO;
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    llm_json_limits limits = LLM__ZERO;
    const int yaml = llm__ends_with(path, ".yaml") || llm__ends_with(path, ".yml");
    limits.unique_keys = 1; /* else one of two would be passed over */
    llm_result r = llm__file_open(path, 1 << 20, 1, &f);
    if (r) return llm__error(r, "--config: %s", llm_last_error());
    if (yaml) r = llm__yaml_json(llm__s((const char *)f.data, f.size), &json);
    if (!r) r = llm_json_parse(yaml ? json.data : (const char *)f.data, yaml ? json.len : f.size, &limits, &doc);
    if (!r && llm_json_type_of(doc, 0) != LLM_JSON_OBJECT)
        r = llm__error(LLM_ERR_FORMAT, "%s expected", yaml ? "keys with values were" : "a JSON object of options was");
    if (r) return llm__error(r, "--config: %s: %s", path, llm_last_error());
    r = llm_options_json(o, doc, 0, LLM_FROM_FILE, NULL);
    return r ? llm__error(r, "--config: %s", llm_last_error()) : LLM_OK;
}

/* What variables of options begin with; llama-server's too. */
static const char *const llm__option_prefixes[] = {"LLAMA_ARG_", "LLM_ARG_"};

/* The variable of a row's word, with a prefix unless it is one itself; "": it has none. */
static const char *llm__option_variable(llm__str word, const char *prefix, char name[96]) {
    const int bare = *word.p == '$',
              n = word.n < 2 ? 0 : snprintf(name, 96, "%s%.*s", bare ? "" : prefix, (int)word.n - bare, word.p + bare);
    name[n] = 0;
    for (int k = 0; k < n; k++) name[k] = (char)(name[k] == '-' ? '_' : name[k] >= 'a' && name[k] <= 'z' ? name[k] - 32 : name[k]);
    return name;
}

LLM__PRIVATE llm_result llm__options_environment(llm_options *o, char *(*get)(const char *name)) {
    llm_result r = LLM_OK;
    char name[96];
    for (int32_t i = 0; i < o->n * LLM__COUNT(llm__option_prefixes); i++) {
        const llm_option *p = &o->table[i % o->n]; /* the stronger prefix comes later */
        llm__str w;
        for (const char *words = p->names; llm__list_next(&words, "|", &w) && !r;) {
            const char *value = *w.p == '$' && i >= o->n                                         ? NULL
                                : *llm__option_variable(w, llm__option_prefixes[i / o->n], name) ? get(name)
                                                                                                 : NULL;
            if (value && *value) r = llm_options_set(o, p, name, value, LLM_FROM_ENVIRONMENT);
        }
    }
    return r;
}

/* Whether a variable is read by some option. */
static int llm__option_reads(const llm_options *o, llm__str variable) {
    char name[96];
    llm__str w;
    for (int32_t i = 0; i < o->n; i++)
        for (const char *words = o->table[i].names; llm__list_next(&words, "|", &w);)
            for (int k = 0; k < LLM__COUNT(llm__option_prefixes); k++)
                if (llm__str_eq(variable, llm__option_variable(w, llm__option_prefixes[k], name))) return 1;
    return 0;
}

/* LLM_ARG_POTR, say, of LLM_ARG_PORT. A variable that is empty is as one that is not there, as getenv's callers have it; of a name that is
 * one of the table's in any of its spellings, nothing is said, whatever option that is, for it was read, or an error told of it. */
LLM_API void llm_options_strangers(const llm_options *o, const char *const *environment) {
    static const char *const families[] = {"LLM_ARG_", "VLLM_", "LLAMA_ARG_", "LMDEPLOY_", "FD_", "OLLAMA_"};
    for (; environment && *environment; environment++) {
        const llm__str whole = llm__lit(*environment), name = llm__s(whole.p, llm__str_until(whole, "="));
        int ours = 0;
        char said[80];
        for (int i = 0; i < LLM__COUNT(families); i++) ours |= llm__starts(name, llm__lit(families[i]));
        if (!ours || whole.n < name.n + 2 || llm__option_reads(o, name)) continue;
        snprintf(said, sizeof said, "%.*s", (int)LLM__MIN(name.n, sizeof said - 1), name.p);
        llm__report_note(o, said, " has no effect: ", "no option has this name");
    }
}

/* How the user wrote an option: in argv, as a variable, or, where he did not, its long name with dashes. */
static void llm__option_said(const llm_options *o, const llm_option *p, int argc, char **argv, char *(*get)(const char *name),
                             llm_text *out) {
    char name[96];
    size_t n;
    int no;
    llm__str w;
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (llm__option_of(o, argv[i], &n, &no) == p) {
            llm_text_add(out, argv[i], n);
            return;
        }
    for (int k = LLM__COUNT(llm__option_prefixes) - 1; k >= 0; k--)
        for (const char *words = p->names; get && llm__list_next(&words, "|", &w);) {
            const char *value = *llm__option_variable(w, llm__option_prefixes[k], name) ? get(name) : NULL;
            if (!value || !*value) continue;
            llm_text_str(out, name);
            return;
        }
    w = llm__option_name(p);
    llm_text_str(out, "--");
    llm__add_str(out, w);
}

LLM_API void llm_options_sentence(const llm_options *o, int argc, char **argv, char *(*get)(const char *name), const char *sentence,
                                  llm_text *out) {
    static const char inside[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    int whole = strncmp(sentence, "--config", 8) != 0; /* what a file says is named as there, and so is what JSON says */
    for (const char *s = sentence; *s;) {
        const size_t n = strspn(s, inside), other = n ? 0 : (size_t)1;
        const llm_option *p = n && n < 64 && whole ? llm_options_find(o, s, n) : NULL;
        const int known = p && p->kind != LLM_OPTION_REFUSED, named = memchr(s, '_', n) || (s == sentence && s[n] == ':');
        const int field = known && *s != '-' && named && (s == sentence || !strchr("\"'{", s[-1]));
        if (field && o->given[p - o->table] != LLM_FROM_FILE) llm__option_said(o, p, argc, argv, get, out);
        else llm_text_add(out, s, n + other);
        if (field && s == sentence && p->words && !strcmp(p->words, "JSON")) whole = 0;
        if (n > 5 && !memcmp(s + n - 5, ".json", 5) && s[n] == ':') whole = 0;
        s += n + other;
    }
}

LLM__PRIVATE void llm__options_sampling(const llm_options *o, size_t at, size_t size, llm_sampling *s) {
    for (int32_t i = 0; i < o->n; i++) {
        const llm_option *p = &o->table[i];
        if (!o->given[i] || p->at < at || p->at >= at + size || p->kind == LLM_OPTION_TEXT || p->kind >= LLM_OPTION_LIST) continue;
        memcpy((char *)s + (p->at - at), (const char *)o->target + p->at, p->kind == LLM_OPTION_INT64 ? sizeof(int64_t) : sizeof(int32_t));
        if (p->at - at == offsetof(llm_sampling, seed)) s->has_seed = 1;
        if (p->at - at == offsetof(llm_sampling, top_p) && s->top_p <= 0) s->top_p = 1e-6f;
    }
}

/* The model of someone who named none: in models/ here, else in models/ beside the program, SmolLM2, else the first GGUF file, or folder
 * with a config.json, by name. */
static llm_result llm__model_default(llm_text *path) {
    for (int beside = 0; beside < 2; beside++) {
        LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO;
        const char *found = NULL;
        path->len = 0;
        if (beside) llm__program_folder(path);
        llm_text_str(path, "models/");
        if (path->failed) return llm__nomem();
        const size_t folder = path->len;
        llm__folder_names(path->data, &names);
        for (const char *name = NULL; !path->failed && (name = llm__folder_next(&names, name)) != NULL;) {
            const char *dot = strrchr(name, '.');
            path->len = folder;
            llm_text_format(path, "%s/config.json", name);
            int model = (dot && llm__alias_among(".gguf", llm__lit(dot), NULL)) || (*name != '.' && llm__path_readable(path->data));
            if (model && (!found || !strcmp(name, "SmolLM2-135M-Instruct.Q4_1.gguf"))) found = name;
        }
        path->len = folder;
        if (found) llm_text_str(path, found);
        if (found) return path->failed ? llm__nomem() : LLM_OK;
    }
    return llm__error(LLM_ERR_IO, "models/: no model is there, run `make model` to fetch the default one, or give -m PATH");
}

LLM__PRIVATE llm_result llm__model_find(const char *name, const char *hub_cache, const char *revision, char *(*get)(const char *name),
                                        llm_text *path) {
    LLM__SCOPED(llm_text_free) llm_text cache = LLM__ZERO, full = LLM__ZERO;
    if (!name) return llm__model_default(path);
    const char *slash = strchr(name, '/');
    const llm__path_kind there = llm__path_kind_of(name);
    int odd = *name == '.' || strstr(name, "..") || strstr(name, ".gguf");
    if (there == LLM__PATH_FILE || there == LLM__PATH_DIR) {
        llm_text_str(path, name);
        return path->failed ? llm__nomem() : LLM_OK;
    }
    if (there || odd || !slash || slash == name || !slash[1] || strchr(slash + 1, '/'))
        return llm__error(
            LLM_ERR_IO,
            "%.200s: no such file or folder, a GGUF file, a folder with safetensors, or ORG/NAME in the Hugging Face cache was expected",
            name);
    llm_text_str(&full, name);
    if (revision) llm_text_format(&full, "@%s", revision);
    llm_result r = full.failed ? llm__nomem() : llm__hub_cache(hub_cache, get, &cache);
    if (!r) r = llm__hub_local(cache.data, full.data, 0, path);
    if (r == LLM_ERR_IO || r == LLM_ERR_ARG)
        r = llm__error(LLM_ERR_IO, "%.100s: no such path, and not in the cache %.200s; to download it: llm_cli pull %.100s", full.data,
                       cache.data, full.data);
    return r;
}

/* Text wrapped at column 79, each line but the first behind 34 blanks. Lines are cut at the last blank that fits. */
static void llm__option_wrap(const char *text, llm_text *out) {
    for (const char *w = text; *w;) {
        size_t n = strlen(w);
        if (n > 45)
            for (n = 45; n > 1 && w[n] != ' ';) n--;
        llm_text_add(out, w, n);
        llm_text_str(out, "\n");
        w += n;
        w += *w == ' ';
        for (int i = 0; *w && i < 34; i++) llm_text_str(out, " ");
    }
}

LLM_API void llm_options_rows(const llm_options *o, int group, const char *among, llm_text *out) {
    for (int32_t i = 0; i < o->n; i++) {
        const llm_option *p = &o->table[i];
        const char *names = p->names, *value = p->kind == LLM_OPTION_BOOL || !p->words ? "" : p->words;
        char left[120];
        LLM__SCOPED(llm_text_free) llm_text help = LLM__ZERO;
        llm__str a, b;
        if (!llm__option_listed(p) || (group >= 0 && p->group != group)) continue;
        llm__list_next(&names, "|", &a);
        if (among && !llm__alias_among(among, a, NULL)) continue;
        if (p->kind == LLM_OPTION_ENUM || p->kind == LLM_OPTION_CHOICE) value = "NAME";
        const int two = a.n <= 2 && llm__list_next(&names, "|", &b) && *b.p != '$';
        const int variable = *a.p == '$'; /* of the environment only */
        int n = two ? snprintf(left, sizeof left, "  -%.*s, --%.*s", (int)a.n, a.p, (int)b.n, b.p)
                    : snprintf(left, sizeof left, "      %s%.*s", variable ? "" : "--", (int)a.n - variable, a.p + variable);
        if (*value) n += snprintf(left + n, sizeof left - (size_t)n, variable ? "=%s" : " %s", value);
        llm_text_str(out, left);
        if (n > 32) llm_text_str(out, "\n"), n = 0;
        for (; n < 34; n++) llm_text_str(out, " ");
        llm_text_str(&help, p->help);
        if (p->kind == LLM_OPTION_ENUM || p->kind == LLM_OPTION_CHOICE) llm_text_str(&help, ": "), llm__option_words(p->words, &help);
        llm__option_wrap(help.data ? help.data : "", out);
        out->failed |= help.failed;
    }
}

LLM_API void llm_options_idle(const llm_options *o, llm_text *out) {
    static const char *const title[] = {"Understood, without effect", "Refused"};
    for (int part = 0; part < 2; part++) {
        llm_text_format(out, "\n%s\n", title[part]);
        for (int32_t i = 0; i < o->n; i++) {
            const llm_option *p = &o->table[i];
            llm__str w;
            if (llm__option_stores(p) || p->kind == LLM_OPTION_READ || (p->kind == LLM_OPTION_REFUSED) != part) continue;
            for (const char *words = p->names; llm__list_next(&words, "|", &w);) {
                char left[120];
                int n = snprintf(left, sizeof left, "      %s%.*s",
                                 *w.p == '$' ? ""
                                 : w.n < 3   ? "-"
                                             : "--",
                                 (int)w.n - (*w.p == '$'), w.p + (*w.p == '$'));
                llm_text_str(out, left);
                if (n > 32) llm_text_str(out, "\n"), n = 0;
                for (; n < 34; n++) llm_text_str(out, " ");
                llm__option_wrap(p->help, out);
            }
        }
    }
}

LLM_API void llm_options_help(const llm_options *o, const char *const *titles, int n, llm_text *out) {
    static const char *const common[LLM_HELP_OWN] = {"Model", "Engine and device", "Answers"};
    for (int g = 0; g < LLM_HELP_OWN + n; g++) {
        llm_text_format(out, "\n%s\n", g < LLM_HELP_OWN ? common[g] : titles[g - LLM_HELP_OWN]);
        llm_options_rows(o, g, NULL, out);
    }
    llm_text_str(out, "\nSpellings: --a b, --a=b, _ for -, --no-a for switches. Every option also as\n"
                      "LLM_ARG_NAME in the environment and by name in --config FILE.\n");
}

LLM_API int llm_options_given(const llm_options *o, const char *name) {
    const llm_option *p = llm_options_find(o, name, strlen(name));
    return p ? o->given[p - o->table] : 0;
}

/* Frees what the readers made: texts of JSON values and the lists in the target. */
LLM_API void llm_options_free(llm_options *o) {
    for (int32_t i = 0; i < o->owned.n; i++) LLM_FREE((void *)(uintptr_t)o->owned.items[i]);
    LLM_FREE((void *)o->owned.items);
    for (int32_t i = 0; i < o->n; i++)
        if (o->table[i].kind == LLM_OPTION_LIST) LLM_FREE((void *)((llm_option_list *)(void *)((char *)o->target + o->table[i].at))->items);
}

LLM__PRIVATE llm_result llm__early_stop_parse(const llm_options *outer, const char *json, int flag, llm_early_stop *out) {
    struct early {
        llm_early_stop e;
        int32_t strategy;
    };
    static const llm_option table[] = {LLM_OPT_BOOL(struct early, e.enable, 0, "enable_early_stop", NULL),
                                       LLM_OPT_FIELD(struct early, e, window_size, 0, "window_size", NULL),
                                       LLM_OPT_FIELD(struct early, e, threshold, 0, "threshold", NULL),
                                       LLM_OPT_ENUM(struct early, strategy, 0, "strategy", "repetition", NULL)};
    unsigned char given[LLM__COUNT(table)];
    struct early read = {{flag || out->enable > 0, 3000, 0.99f}, 0}; /* what it does not say, who asks has said */
    LLM__SCOPED(llm_options_free) llm_options o;
    llm_result r = llm__options_inner(&o, table, LLM__COUNT(table), &read, given, outer, "early_stop_config", json, LLM_FROM_REQUEST);
    if (!r && flag && !read.e.enable)
        r = llm__error(LLM_ERR_ARG, "enable_early_stop is set and early_stop_config says false: they contradict each other");
    if (!r && outer && json && !read.e.enable && !given[0])
        llm__report_note(outer, "early_stop_config", " has no effect: ", "neither it nor an option of its own says enable_early_stop");
    if (!r) *out = read.e;
    return r;
}

LLM__PRIVATE llm_result llm__speculative_parse(const llm_options *outer, llm_engine_config *cfg, char *(*get)(const char *name),
                                               llm_text *model) {
    struct spec {
        llm_engine_config e;
        int32_t method;
    };
    static const llm_option table[] = {
        LLM_OPT_TEXT(struct spec, e.speculative_model, 0, "model", NULL, NULL),
        LLM_OPT_ENUM(struct spec, method, 0, "method", /* vLLM's old names, by family, mean the same as mtp */
                     "ngram=1|draft_model=2|eagle=2|eagle3=2|mtp=3|deepseek_mtp=3|mimo_mtp=3|glm4_moe_mtp=3|glm4_moe_lite_mtp=3|"
                     "ernie_mtp=3|qwen3_next_mtp=3|qwen3_5_mtp=3",
                     NULL),
        LLM_OPT_FIELD(struct spec, e, num_speculative_tokens, 0, "num_speculative_tokens", NULL),
        LLM_OPT_FIELD(struct spec, e, ngram_prompt_lookup_max, 0, "prompt_lookup_max|ngram_prompt_lookup_max", NULL),
        LLM_OPT_FIELD(struct spec, e, ngram_prompt_lookup_min, 0, "prompt_lookup_min|ngram_prompt_lookup_min", NULL),
        LLM_OPT_NONE_NUMBER("draft_tensor_parallel_size", "N", 1, 64, "a draft model is divided as the model is"),
        LLM_OPT_NONE_NUMBER("disable_by_batch_size", "N", 0, 1e9, "drafts are measured, and end where they do not pay"),
        LLM_OPT_NONE_NUMBER("max_model_len", "N", 1, 2147483647, "drafts end where the draft model's context does"),
        LLM_OPT_NONE_NUMBER("num_model_steps", "N", 1, 64, "a draft is as long as num_speculative_tokens says"),
        LLM_OPT_NONE_OF("mtp_strategy", "default|with_ngram", "a draft comes from one place, prompt lookup is not mixed in"),
        LLM_OPT_NONE(IGNORED, "quantization|revision|code_revision", "the draft model's files are what they are"),
        LLM_OPT_NONE(IGNORED_FLAG, "enforce_eager|disable_logprobs|disable_mqa_scorer|disable_padded_drafter_batch",
                     "it makes no difference here"),
        LLM_OPT_NONE_OF("acceptance_method", "rejection_sampler|typical_acceptance_sampler", "drafts never change an answer"),
        LLM_OPT_NONE_NUMBER("posterior_threshold|posterior_alpha", "X", 0, 1e6, "drafts never change an answer")};
    unsigned char given[LLM__COUNT(table)];
    struct spec read = {*cfg, 0};
    LLM__SCOPED(llm_options_free) llm_options o;
    llm_result r =
        llm__options_inner(&o, table, LLM__COUNT(table), &read, given, outer, "speculative_config", cfg->speculative_config, LLM_FROM_USER);
    const char *given_model = read.e.speculative_model, *next = llm__drafts_ahead(given_model);
    const int ahead = read.method == 3 || next; /* the model's own next layer: in its files, or at a path */
    const char *named = next ? next : given_model ? given_model : ahead ? "" : read.method == 1 ? "[ngram]" : NULL;
    if (ahead && !read.e.num_speculative_tokens) read.e.num_speculative_tokens = 1; /* as in vLLM */
    if (!r && (read.e.num_speculative_tokens || read.method) && !named)
        r = llm__error(LLM_ERR_ARG, "num_speculative_tokens: there is no speculative_model");
    if (!r && named && !read.e.num_speculative_tokens)
        r = llm__error(LLM_ERR_ARG, "speculative_model: num_speculative_tokens must be given with it");
    if (!r && named && (!given_model || given_model != model->data)) { /* it is when called again: found already */
        LLM__SCOPED(llm_text_free) llm_text found = LLM__ZERO;
        if (!strcmp(named, "[ngram]") || !named[0]) llm_text_str(&found, named);
        else r = llm__model_find(named, NULL, NULL, get, &found);
        model->len = 0;
        llm_text_str(model, ahead ? "[mtp]" : "");
        llm_text_str(model, found.data ? found.data : "");
        if (r) r = llm__error(r, "speculative_model: %s", llm_last_error());
        else if (model->failed || found.failed) r = llm__nomem();
    }
    read.e.speculative_model = named ? model->data : NULL;
    read.e.speculative_config = NULL;
    if (!r) *cfg = read.e;
    return r;
}
