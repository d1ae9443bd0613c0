#include "base/yaml.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"

/* One walk over the text, which writes JSON as it goes. The cursor stands on a byte of a line whose beginning is known, so a thing's column
 * is where it stands in its line, and columns say all about blocks:
 *
 *     a:              a key at column 0: a mapping of all the keys that follow at column 0
 *       b: 1          further to the right than "a": its value, a mapping of the keys at column 2
 *       c:
 *       - 2           a dash under "c" in the same column: its list, for a key cannot begin with a dash and a blank
 *     d: [3,          in brackets columns have no meaning any more
 *     4]
 *
 * Three steps do the walking. llm__yaml_line_ends goes over blanks and a comment, and tells whether anything is left in the line;
 * llm__yaml_next goes on to the next thing in any line and gives its column, -1 at the end; whoever writes a value leaves the cursor right
 * behind it. So after a value either its line ends, or the cursor stands on the first thing of a later line, which a block inside has met
 * and which is for one outside. The first mistake stays in `r` and stops every loop. */
enum { LLM__YAML_DEPTH = 32 };

typedef struct llm__yaml {
    const char *at, *end;
    const char *line; /* where the current line begins */
    int number;       /* of the line, from 1 */
    int depth;
    llm_text *out;
    llm_result r;
} llm__yaml;

static void llm__yaml_bad(llm__yaml *y, const char *sentence) {
    if (!y->r) y->r = llm__error(LLM_ERR_FORMAT, "line %d: %s", y->number, sentence);
}

static int llm__yaml_blank(char c) { return c == ' ' || c == '\t'; }

/* The byte i further on; at the end a line's end. */
static char llm__yaml_peek(const llm__yaml *y, int i) { return y->end - y->at > i ? y->at[i] : '\n'; }

/* 1 if what begins i further on ends a word: a blank, or the end of the line. */
static int llm__yaml_gap(const llm__yaml *y, int i) { return strchr(" \t\r\n", llm__yaml_peek(y, i)) != NULL; }

static int llm__yaml_column(const llm__yaml *y) { return (int)(y->at - y->line); }

/* Goes over blanks and a comment to the next thing in the line; 1 if there is none. */
static int llm__yaml_line_ends(llm__yaml *y) {
    while (y->at < y->end && (llm__yaml_blank(*y->at) || *y->at == '\r')) y->at++;
    if (y->at < y->end && *y->at == '#' && (y->at == y->line || llm__yaml_blank(y->at[-1])))
        y->at += llm__str_until(llm__s(y->at, (size_t)(y->end - y->at)), "\n");
    return y->at == y->end || *y->at == '\n';
}

/* Goes on to the next thing, which may be lines away; its column, -1 at the end of the document. */
static int llm__yaml_next(llm__yaml *y) {
    while (llm__yaml_line_ends(y)) {
        if (y->at == y->end) return -1;
        y->line = ++y->at;
        y->number++;
        const int mark = y->end - y->at >= 3 && (!memcmp(y->at, "---", 3) || !memcmp(y->at, "...", 3)) && llm__yaml_gap(y, 3);
        if (mark && *y->at == '-') llm__yaml_bad(y, "one document was expected");
        if (mark) y->at = y->end;
    }
    for (const char *p = y->line; p < y->at && llm__yaml_blank(*p); p++)
        if (*p == '\t') llm__yaml_bad(y, "a tab in the indentation, blanks were expected");
    return llm__yaml_column(y);
}

/* A text in quotes, as JSON. In single ones '' is a quote; in double ones escapes are those that JSON has. */
static void llm__yaml_quoted(llm__yaml *y) {
    const char quote = *y->at++;
    LLM__SCOPED(llm_text_free) llm_text raw = LLM__ZERO;
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    if (quote == '"') llm_text_str(&raw, "\"");
    for (; y->at < y->end && *y->at != '\n' && (*y->at != quote || (quote == '\'' && llm__yaml_peek(y, 1) == quote)); y->at++) {
        if (*y->at == '\t' && quote == '"') llm_text_str(&raw, "\\t");
        else llm_text_add(&raw, y->at, 1);
        if (*y->at == quote) y->at++;
        else if (*y->at == '\\' && quote == '"' && llm__yaml_peek(y, 1) != '\n') llm_text_add(&raw, ++y->at, 1);
    }
    if (y->at == y->end || *y->at != quote) {
        llm__yaml_bad(y, "a quote that its line does not close");
        return;
    }
    y->at++;
    if (quote == '\'') llm_text_json(y->out, raw.data ? raw.data : "", raw.len);
    else {
        llm_text_str(&raw, "\"");
        if (!raw.failed && llm_json_parse(raw.data, raw.len, NULL, &doc)) llm__yaml_bad(y, "an escape in quotes that JSON does not have");
        llm_text_add(y->out, raw.data ? raw.data : "", raw.len);
    }
    y->out->failed |= raw.failed;
}

/* 1 if a word is a number as JSON has them. */
static int llm__yaml_number(llm__str w) {
    size_t i = w.n && *w.p == '-', from = i;
    while (i < w.n && w.p[i] >= '0' && w.p[i] <= '9') i++;
    if (i == from || (w.p[from] == '0' && i > from + 1)) return 0;
    if (i < w.n && w.p[i] == '.') {
        for (from = ++i; i < w.n && w.p[i] >= '0' && w.p[i] <= '9';) i++;
        if (i == from) return 0;
    }
    if (i < w.n && (w.p[i] == 'e' || w.p[i] == 'E')) {
        if (++i < w.n && (w.p[i] == '+' || w.p[i] == '-')) i++;
        for (from = i; i < w.n && w.p[i] >= '0' && w.p[i] <= '9';) i++;
        if (i == from) return 0;
    }
    return i == w.n;
}

/* A plain word, as what it means. */
static void llm__yaml_word(llm__yaml *y, llm__str w) {
    if (!w.n || llm__word_index("null Null NULL ~", w) >= 0) llm_text_str(y->out, "null");
    else if (llm__word_index("true True TRUE yes Yes YES on On ON", w) >= 0) llm_text_str(y->out, "true");
    else if (llm__word_index("false False FALSE no No NO off Off OFF", w) >= 0) llm_text_str(y->out, "false");
    else if (llm__yaml_number(w)) llm__add_str(y->out, w);
    else llm_text_json(y->out, w.p, w.n);
}

/* The plain words before the end of the line, a comment, or a colon that has a blank behind it; in brackets also before what they have. */
static llm__str llm__yaml_plain(llm__yaml *y, int brackets) {
    const char *from = y->at, *last = from;
    const char first = llm__yaml_peek(y, 0);
    if (strchr("&*!%@`|>,]}#", first) || (strchr(brackets ? "?:-" : "?:", first) && llm__yaml_gap(y, 1)))
        llm__yaml_bad(y, "anchors, aliases, tags, folded texts and the like are not read here; a text that begins so is put in quotes");
    for (; y->at < y->end && *y->at != '\n' && *y->at != '\r'; y->at++) {
        if (*y->at == '#' && y->at > from && llm__yaml_blank(y->at[-1])) break;
        if (*y->at == ':' && (llm__yaml_gap(y, 1) || (brackets && strchr(",[]{}", llm__yaml_peek(y, 1))))) break;
        if (brackets && strchr(",[]{}", *y->at)) break;
        if (!llm__yaml_blank(*y->at)) last = y->at + 1;
    }
    return llm__s(from, (size_t)(last - from));
}

/* 1 if nothing but blanks stands before the cursor in its line. */
static int llm__yaml_first(const llm__yaml *y) {
    const char *p = y->line;
    while (p < y->at && llm__yaml_blank(*p)) p++;
    return p == y->at;
}

/* 1 if brackets do not go deeper than they may. */
static int llm__yaml_deeper(llm__yaml *y) {
    if (++y->depth > LLM__YAML_DEPTH) llm__yaml_bad(y, "nested more than 32 deep");
    return !y->r;
}

/* A key in brackets with its colon. */
static void llm__yaml_flow_key(llm__yaml *y) {
    if (*y->at == '"' || *y->at == '\'') llm__yaml_quoted(y);
    else {
        const llm__str w = llm__yaml_plain(y, 1);
        llm_text_json(y->out, w.p, w.n);
    }
    if (!y->r && (llm__yaml_next(y) < 0 || *y->at != ':')) llm__yaml_bad(y, "a colon behind a key was expected");
    if (y->r) return;
    y->at++;
    llm_text_str(y->out, ":");
    if (llm__yaml_next(y) < 0) llm__yaml_bad(y, "a bracket that is not closed");
}

/* A value in brackets, or with them. */
static void llm__yaml_flow(llm__yaml *y) {
    const char open = *y->at, close = open == '[' ? ']' : '}';
    if (open == '"' || open == '\'') {
        llm__yaml_quoted(y);
        return;
    }
    if (open != '[' && open != '{') {
        llm__yaml_word(y, llm__yaml_plain(y, 1));
        return;
    }
    y->at++;
    llm_text_add(y->out, &open, 1);
    if (!llm__yaml_deeper(y)) return;
    for (int n = 0; !y->r; n++) {
        if (llm__yaml_next(y) < 0) llm__yaml_bad(y, "a bracket that is not closed");
        if (y->r || *y->at == close) break;
        if (n) llm_text_str(y->out, ",");
        if (open == '{') llm__yaml_flow_key(y);
        const char *before = y->at;
        if (!y->r && !(open == '{' && strchr(",}", *y->at))) llm__yaml_flow(y);
        else if (!y->r) llm_text_str(y->out, "null");
        if (!y->r && llm__yaml_next(y) < 0) llm__yaml_bad(y, "a bracket that is not closed");
        if (!y->r && ((*y->at != ',' && *y->at != close) || (y->at == before && open == '[')))
            llm__yaml_bad(y, "a comma or the end of brackets was expected");
        if (!y->r && *y->at == ',') y->at++;
    }
    if (y->r) return;
    y->at++;
    y->depth--;
    llm_text_add(y->out, &close, 1);
}

/* The lines behind a | that are indented further than `column`, without the indentation of the first. */
static void llm__yaml_literal(llm__yaml *y, int column) {
    LLM__SCOPED(llm_text_free) llm_text lines = LLM__ZERO;
    const int strip = llm__yaml_peek(y, 1) == '-';
    int indent = -1, empty = 0;
    y->at += 1 + strip;
    if (!llm__yaml_line_ends(y)) llm__yaml_bad(y, "the end of the line behind | or |- was expected");
    while (!y->r && y->at < y->end) { /* at the end of a line */
        const char *from = y->at + 1;
        const size_t n = llm__str_until(llm__s(from, (size_t)(y->end - from)), "\n");
        size_t blanks = 0;
        while (blanks < n && from[blanks] == ' ') blanks++;
        const int bare = blanks == n || (blanks + 1 == n && from[blanks] == '\r');
        if (!bare && indent < 0 && (int)blanks > column) indent = (int)blanks;
        if (!bare && (indent < 0 || (int)blanks < indent)) break;
        y->line = from, y->at = from + n, y->number++;
        if (bare) {
            empty++;
            continue;
        }
        for (; empty; empty--) llm_text_str(&lines, "\n");
        llm_text_add(&lines, from + indent, n - (size_t)indent - (from[n - 1] == '\r'));
        if (y->at < y->end) llm_text_str(&lines, "\n");
    }
    if (strip && lines.len && lines.data[lines.len - 1] == '\n') lines.len--;
    llm_text_json(y->out, lines.data ? lines.data : "", lines.len);
    y->out->failed |= lines.failed;
}

static void llm__yaml_block(llm__yaml *y, int column);

/* What stands behind a key or a dash in its line, which begins at `column`; or below it, further to the right, of a key's list also under
 * the key. */
static void llm__yaml_value(llm__yaml *y, int column, int key) {
    if (llm__yaml_line_ends(y)) {
        const int below = llm__yaml_next(y), dash = below >= 0 && *y->at == '-' && llm__yaml_gap(y, 1);
        if (below > column || (key && dash && below == column)) llm__yaml_block(y, below);
        else llm_text_str(y->out, "null");
        return;
    }
    const char c = *y->at;
    if (c == '|') llm__yaml_literal(y, column);
    else if (!key) llm__yaml_block(y, llm__yaml_column(y));
    else if (strchr("[{\"'", c)) llm__yaml_flow(y);
    else if (c == '-' && llm__yaml_gap(y, 1)) llm__yaml_bad(y, "a list begins in a line of its own, below its key");
    else {
        llm__yaml_word(y, llm__yaml_plain(y, 0));
        if (llm__yaml_peek(y, 0) == ':') llm__yaml_bad(y, "a second colon; a text with one is put in quotes");
    }
}

/* 1 if a key with its colon stands here. */
static int llm__yaml_is_key(const llm__yaml *y) {
    const char quote = *y->at;
    const size_t left = llm__str_until(llm__s(y->at, (size_t)(y->end - y->at)), "\n");
    llm__yaml look = *y;
    size_t i = 0;
    if (quote == '[' || quote == '{') return 0;
    if (quote == '"' || quote == '\'') {
        for (i = 1; i < left && (y->at[i] != quote || (quote == '\'' && i + 1 < left && y->at[i + 1] == quote)); i++)
            i += (y->at[i] == '\\' && quote == '"') || y->at[i] == quote;
        for (i++; i < left && llm__yaml_blank(y->at[i]);) i++;
    } else
        for (; i < left && (y->at[i] != '#' || !i || !llm__yaml_blank(y->at[i - 1])); i++) {
            look.at = y->at + i;
            if (y->at[i] == ':' && llm__yaml_gap(&look, 1)) break;
        }
    look.at = y->at + LLM__MIN(i, left);
    return llm__yaml_peek(&look, 0) == ':' && llm__yaml_gap(&look, 1);
}

/* The mapping, or the list, whose keys or dashes stand at a column. */
static void llm__yaml_entries(llm__yaml *y, int column, int list) {
    if (!llm__yaml_deeper(y)) return;
    llm_text_str(y->out, list ? "[" : "{");
    for (int n = 0, here = column; here == column && !y->r; n++) {
        const int dash = *y->at == '-' && llm__yaml_gap(y, 1);
        if (list && !dash) break; /* a list under its key ends where the next key begins */
        if (n) llm_text_str(y->out, ",");
        if (list) y->at++;
        else if (dash || !llm__yaml_is_key(y)) llm__yaml_bad(y, "a key with a colon and a blank behind it was expected");
        else {
            if (*y->at == '"' || *y->at == '\'') llm__yaml_quoted(y);
            else {
                const llm__str w = llm__yaml_plain(y, 0);
                llm_text_json(y->out, w.p, w.n);
            }
            while (llm__yaml_blank(llm__yaml_peek(y, 0))) y->at++;
            y->at++;
            llm_text_str(y->out, ":");
        }
        if (!y->r) llm__yaml_value(y, column, !list);
        if (!y->r && !llm__yaml_line_ends(y) && !llm__yaml_first(y)) llm__yaml_bad(y, "the end of the line was expected");
        here = y->r ? -1 : llm__yaml_next(y);
        if (here > column) llm__yaml_bad(y, "indented further than what it stands beside");
    }
    llm_text_str(y->out, list ? "]" : "}");
    y->depth--;
}

/* Whatever begins here, at a column. */
static void llm__yaml_block(llm__yaml *y, int column) {
    if (y->r) return;
    if (*y->at == '-' && llm__yaml_gap(y, 1)) llm__yaml_entries(y, column, 1);
    else if (llm__yaml_is_key(y)) llm__yaml_entries(y, column, 0);
    else if (strchr("[{\"'", *y->at)) llm__yaml_flow(y);
    else llm__yaml_word(y, llm__yaml_plain(y, 0));
}

LLM__PRIVATE llm_result llm__yaml_json(llm__str text, llm_text *json) {
    llm__yaml y = {text.p, text.p + text.n, text.p, 1, 0, json, LLM_OK};
    if (llm__starts(text, llm__lit("\xEF\xBB\xBF"))) y.at += 3, y.line = y.at;
    if (text.n && llm__utf8_valid(text.p, text.n) < text.n) llm__yaml_bad(&y, "the file is no UTF-8");
    if (text.n && memchr(text.p, 0, text.n)) llm__yaml_bad(&y, "a NUL in the file");
    while (!y.r && llm__yaml_line_ends(&y) && y.at < y.end) y.line = ++y.at, y.number++;
    if (y.end - y.at >= 3 && y.at == y.line && !memcmp(y.at, "---", 3) && llm__yaml_gap(&y, 3)) y.at += 3;
    const int column = y.r ? -1 : llm__yaml_next(&y);
    if (column < 0) llm_text_str(json, "null");
    else llm__yaml_block(&y, column);
    if (!y.r && llm__yaml_next(&y) >= 0) llm__yaml_bad(&y, "indented less than what it stands behind, or behind the end of a value");
    if (!y.r && json->failed) y.r = llm__nomem();
    return y.r;
}
