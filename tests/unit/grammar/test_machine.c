/* Fragments, the machine that they become, its states: against plain recognisers of the same languages, on every short text. */
#include "reading.h"
#include "api/config.h"
#include "base/alloc.h"
#include "text/regex.h"
#include "text/regex_match.h"
#include "grammar/machine.h"
#include "grammar/finish.h"
#include "grammar/grammar_regex.h"

static int64_t machine_fuel; /* the machine spends from it while it runs, too */

/* A machine of the fragment that `make` builds, or NULL and the error in *failed. */
static llm_grammar *machine_of(llm__gr_frag (*make)(llm__gr_build *b), llm_result *failed) {
    llm__gr_build b;
    machine_fuel = INT64_C(1) << 40;
    memset(&b, 0, sizeof b);
    llm_grammar *g = llm__grammar_new(&b, &machine_fuel);
    if (!CHECK(g != NULL)) return NULL;
    llm__gr_frag f = make(&b);
    llm__grammar_finish(&b, f);
    if (failed) *failed = b.failed;
    else CHECK(b.failed == LLM_OK);
    if (!b.failed) return g;
    llm__grammar_free(g);
    return NULL;
}

/* What the machine says of a text, byte by byte. */
static int machine_reads(llm_grammar *g, const char *s, size_t n) {
    int32_t state = 1; /* that of the empty text */
    for (size_t i = 0; i < n; i++) state = llm__gr_step(g, state, (uint8_t)s[i]);
    return g->state[state].accept;
}

/* Every text of up to `most` bytes of an alphabet: the machine and the plain recogniser say the same of it. */
static void machine_brute(const char *name, llm_grammar *g, const char *alphabet, int most, int (*plain)(const char *s, size_t n)) {
    const int k = (int)strlen(alphabet);
    long texts = 1, accepted = 0, wrong = 0;
    for (int n = 0; n <= most; n++, texts *= k)
        for (long id = 0; id < texts; id++) {
            char s[16];
            long rest = id;
            for (int i = 0; i < n; i++, rest /= k) s[i] = alphabet[rest % k];
            const int want = plain(s, (size_t)n);
            accepted += want;
            wrong += machine_reads(g, s, (size_t)n) != want;
        }
    if (!CHECK(!wrong && accepted > 0)) printf("  %s: %ld texts wrong, %ld in the language\n", name, wrong, accepted);
}

/* (ab|c){2,3}, an optional d */
static llm__gr_frag machine_make_counted(llm__gr_build *b) {
    llm__gr_frag pair = llm__gr_alt(b, llm__gr_word(b, "ab"), llm__gr_range(b, 'c', 'c'));
    llm__gr_frag end = llm__gr_alt(b, llm__gr_word(b, "d"), llm__gr_empty(b));
    return llm__gr_seq(b, llm__gr_repeat(b, pair, 2, 3), end);
}

static int machine_plain_counted(const char *s, size_t n) {
    size_t at = 0;
    int turns = 0;
    while (at < n && turns < 3 && (s[at] == 'c' || (at + 1 < n && s[at] == 'a' && s[at + 1] == 'b'))) at += s[at] == 'c' ? 1 : 2, turns++;
    if (at < n && s[at] == 'd') at++;
    return turns >= 2 && at == n;
}

/* balanced round and square brackets, by a rule that calls itself: S = { "(" S ")" | "[" S "]" } */
static llm__gr_frag machine_make_nested(llm__gr_build *b) {
    const int32_t rule = llm__gr_rule(b);
    llm__gr_frag round = llm__gr_seq(b, llm__gr_word(b, "("), llm__gr_seq(b, llm__gr_call(b, rule), llm__gr_word(b, ")")));
    llm__gr_frag square = llm__gr_seq(b, llm__gr_word(b, "["), llm__gr_seq(b, llm__gr_call(b, rule), llm__gr_word(b, "]")));
    llm__gr_rule_is(b, rule, llm__gr_repeat(b, llm__gr_alt(b, round, square), 0, -1));
    return llm__gr_call(b, rule);
}

static int machine_plain_nested(const char *s, size_t n) {
    char open[16];
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '(' || s[i] == '[') open[depth++] = s[i];
        else if (!depth || open[--depth] != (s[i] == ')' ? '(' : '[')) return 0;
    }
    return !depth;
}

/* one of some words; never among alternatives disappears */
static llm__gr_frag machine_make_words(llm__gr_build *b) {
    static const char *const words[] = {"a", "ab", "abcc", "bca", "cab"};
    llm__str s[5];
    for (int i = 0; i < 5; i++) s[i] = llm__lit(words[i]);
    return llm__gr_alt(b, llm__gr_never, llm__gr_strings(b, s, 5, 0, 0));
}

static int machine_plain_words(const char *s, size_t n) {
    static const char *const words[] = {"a", "ab", "abcc", "bca", "cab"};
    for (int i = 0; i < 5; i++)
        if (strlen(words[i]) == n && !memcmp(words[i], s, n)) return 1;
    return 0;
}

/* (a?){3}b: turns that consume nothing */
static llm__gr_frag machine_make_empty_turns(llm__gr_build *b) {
    llm__gr_frag maybe = llm__gr_repeat(b, llm__gr_text(b, llm__s("a", 1)), 0, 1);
    return llm__gr_seq(b, llm__gr_repeat(b, maybe, 3, 3), llm__gr_word(b, "b"));
}

static int machine_plain_empty_turns(const char *s, size_t n) {
    size_t at = 0;
    while (at < n && s[at] == 'a') at++;
    return at <= 3 && at + 1 == n && s[at] == 'b';
}

/* what stands before never is as impossible as never; nothing can complete it */
static llm__gr_frag machine_make_never(llm__gr_build *b) { return llm__gr_seq(b, llm__gr_word(b, "a"), llm__gr_never); }

/* S = S "a" | "b" */
static llm__gr_frag machine_make_left(llm__gr_build *b) {
    const int32_t rule = llm__gr_rule(b);
    llm__gr_rule_is(b, rule, llm__gr_alt(b, llm__gr_seq(b, llm__gr_call(b, rule), llm__gr_word(b, "a")), llm__gr_word(b, "b")));
    return llm__gr_call(b, rule);
}

static void machine_test_languages(void) {
    static const struct {
        const char *name;
        llm__gr_frag (*make)(llm__gr_build *b);
        const char *alphabet;
        int most;
        int (*plain)(const char *s, size_t n);
    } rows[] = {
        {"counted", machine_make_counted, "abcd", 8, machine_plain_counted},
        {"nested", machine_make_nested, "()[]", 8, machine_plain_nested},
        {"words", machine_make_words, "abc", 6, machine_plain_words},
        {"empty turns", machine_make_empty_turns, "ab", 8, machine_plain_empty_turns},
    };
    llm_result failed;
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_grammar *g = machine_of(rows[i].make, NULL);
        if (!g) continue;
        machine_brute(rows[i].name, g, rows[i].alphabet, rows[i].most, rows[i].plain);
        llm__grammar_free(g);
    }
    CHECK(!machine_of(machine_make_never, &failed) && failed == LLM_ERR_FORMAT);
    CHECK(!machine_of(machine_make_left, &failed) && failed == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "left"));
}

/* 0x00E4 to 0x0101, and two characters of four bytes */
static const int32_t machine_change[] = {0xE4, 0x102, 0xD7F0, 0xE010, 0x1F600, 0x1F602};
static llm__gr_frag machine_make_chars(llm__gr_build *b) { return llm__gr_chars(b, machine_change, 6); }

/* One character of a set as UTF-8: every code point that there is, whole; half of one is no text. Surrogates are none. */
static void machine_test_chars(void) {
    llm_grammar *g = machine_of(machine_make_chars, NULL);
    long wrong = 0;
    for (int32_t c = 0; g && c < 0x110000; c++) {
        char s[4];
        const int n = llm__utf8_put(s, c), in = llm__set_has(machine_change, 6, c) && !(c >= 0xD800 && c < 0xE000);
        if (c >= 0xD800 && c < 0xE000) continue;
        wrong += machine_reads(g, s, (size_t)n) != in || (n > 1 && machine_reads(g, s, (size_t)n - 1));
    }
    CHECK(g && !wrong && !machine_reads(g, "\xED\xA0\x80", 3));
    if (g) llm__grammar_free(g);
}

static const char *machine_pattern;
static int machine_how;
static llm__gr_frag machine_make_regex(llm__gr_build *b) { return llm__gr_regex_frag(b, llm__lit(machine_pattern), machine_how); }

/* Matches a pattern from the beginning of a text to its end, by the backtracking matcher. */
static llm__regex *machine_regex;
static int machine_plain_regex(const char *s, size_t n) {
    llm__rx_run run;
    size_t start, end;
    memset(&run, 0, sizeof run);
    llm__rx_begin(&run, machine_regex, s, n);
    const int found = llm__rx_next(&run, &start, &end) == 1 && start == 0 && end == n;
    llm__rx_end(&run);
    return found;
}

/* A regex as a machine (all ways at once), and by the matcher of tokenizers (one way after the other). */
static void machine_test_regex(void) {
    static const char *const patterns[] = {"a*",           "(a|b)*c",    "a{2,4}b?",           "(ab|a)(c|bc)", "[^a]+a",
                                           "^ab+$",        "(a*b){2}",   "(?:a|ab)(?:c|bcd)?", "a+?b",         "((a|b)(c|a)){1,3}",
                                           "(a?){3}(b|c)", "^(a|b$|)*c?"};
    for (int i = 0; i < LLM__COUNT(patterns); i++) {
        char whole[80];
        snprintf(whole, sizeof whole, "\\A(?:%s)\\z", patterns[i]);
        machine_pattern = patterns[i], machine_how = LLM__GR_WHOLE;
        llm_grammar *g = machine_of(machine_make_regex, NULL);
        if (CHECK(!llm__regex_open(whole, strlen(whole), &machine_regex)) && g)
            machine_brute(patterns[i], g, "abc", 7, machine_plain_regex);
        llm__regex_close(machine_regex);
        if (g) llm__grammar_free(g);
    }
}

static int machine_plain_sought(const char *s, size_t n) { /* "^a|bb$" somewhere in the characters of a JSON string */
    return n > 0 && (s[0] == 'a' || (n > 1 && s[n - 1] == 'b' && s[n - 2] == 'b'));
}

/* A pattern that is sought in a JSON string, where a character may be spelled in other ways. */
static void machine_test_in_json(void) {
    machine_pattern = "^a|bb$", machine_how = LLM__GR_IN_JSON;
    llm_grammar *g = machine_of(machine_make_regex, NULL);
    if (!g) return;
    machine_brute(machine_pattern, g, "abc", 7, machine_plain_sought);
    llm__grammar_free(g);
    machine_pattern = "^[\"\\n]\\u00e4$"; /* a quote or a line end, then an umlaut */
    g = machine_of(machine_make_regex, NULL);
    if (!g) return;
    CHECK(machine_reads(g, "\\\"\xC3\xA4", 4) && machine_reads(g, "\\n\xC3\xA4", 4) && !machine_reads(g, "\"\xC3\xA4", 3) &&
          !machine_reads(g, "\n\xC3\xA4", 3));
    llm__grammar_free(g);
}

static llm__gr_frag machine_make_json_char(llm__gr_build *b) { return llm__gr_json_char(b); }

static void machine_test_json_char(void) {
    static const char *const good[] = {"a", "\\n", "\\u00e4", "\\ud83d\\ude00", "\xF0\x9F\x98\x80", "\\\"", "\\uD7ff"};
    static const char *const bad[] = {"", "\"", "\\", "\\x", "\\u12", "\\ud83d", "\\ude00", "\\ud83dx", "\n", "ab", "\\ud83d\\u0041"};
    llm_grammar *g = machine_of(machine_make_json_char, NULL);
    for (int i = 0; g && i < LLM__COUNT(good); i++) CHECK(machine_reads(g, good[i], strlen(good[i])));
    for (int i = 0; g && i < LLM__COUNT(bad); i++)
        if (!CHECK(!machine_reads(g, bad[i], strlen(bad[i])))) printf("  %s\n", bad[i]);
    if (g) llm__grammar_free(g);
}

TEST_GROUP(machine) {
    machine_test_languages();
    machine_test_chars();
    machine_test_regex();
    machine_test_in_json();
    machine_test_json_char();
}
