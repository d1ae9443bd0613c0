/* Grammars as they are written: GBNF, choices, structural tags, a marker in front; what is refused, and by which sentence. */
#include "reading.h"

static void forms_test_gbnf(void) {
    static const reading_row rows[] = {
        {"root ::= \"a\" b*\nb ::= \"c\" | \"(\" b \")\"", "a|ac|acc|a(c)|a((c))c", "|c|a(|a()|a(c"},
        {"b ::= [0-9]{1,3} # digits\nroot ::= '-'? b ('.' b)?", "1|-12|123|1.5|-9.999", "|-|1234|1.|.5|--1"},
        {"root ::= [^a-c\\n]+", "xyz|\xC3\xA4", "|a|xa|x\n"},
        {"root ::= \"\\x41\\u00e4\\t\\\"\\\\\"", "A\xC3\xA4\t\"\\", "A|A\xC3\xA4"},
        {"root ::= (\"a\" | \"b\"){2}", "aa|ab|ba|bb", "|a|aba"},
        {"root ::= \"a\"{2,}", "aa|aaaa", "|a"},
        {"root ::= . .", "ab|\xC3\xA4\xE2\x82\xAC", "a|abc"},
        {"root ::= x-y\nx-y ::= [-a]\n  | [b\\]]", "-|a|b|]", "x|"},
        {"root ::= \"a\" |", "a|", "b|aa"},
        {"root ::= [\\x30-\\x39\\U0001F600]", "0|9|\xF0\x9F\x98\x80", "a|:"},
    };
    reading_rows(LLM_GRAMMAR_GBNF, rows, LLM__COUNT(rows));
}

static void forms_test_gbnf_refused(void) {
    static const reading_refusal rows[] = {
        {"", "root"},
        {"a ::= \"x\"", "a rule named \"root\" expected"},
        {"root ::= b", "rule \"b\" is used, but not there"},
        {"root ::= \"a", "expected"},
        {"root ::= [a", "expected"},
        {"root ::= (\"a\"", "expected"},
        {"root ::= \"a\"{2", "expected"},
        {"root ::= \"a\"{3,2}", "expected"},
        {"root = \"a\"", "expected"},
        {"root ::= \"\\q\"", "expected"},
        {"root ::= \"a\"\nroot ::= \"b\"", "expected"},
        {"root ::= root \"a\" | \"b\"", "left"},
        {"root ::= \"a\" root", "no text can ever complete it"},
        {"root ::= [z-a]", "expected"},
        {"root ::= \"\\x4\"", "expected"},
        {"root ::= )", "expected"},
        {"root ::= \"a\"{x}", "expected"},
        {"1 ::= \"a\"", "expected"},
        {"root ::= ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((\"a\"", "expected"},
    };
    reading_refused(LLM_GRAMMAR_GBNF, rows, LLM__COUNT(rows));
}

static void forms_test_choice(void) {
    static const reading_row rows[] = {{"[\"yes\", \"no\", \"not\"]", "yes|no|not", "|n|nott|yes |ye"},
                                       {"[\"\\u00e4\\n\"]", "\xC3\xA4\n", "\xC3\xA4"}};
    static const reading_refusal bad[] = {
        {"[]", "at least one"}, {"{}", "at least one"}, {"[\"a\", 1]", "item 1"}, {"[\"\"]", "not empty"}, {"[", "JSON"}};
    reading_rows(LLM_GRAMMAR_CHOICE, rows, LLM__COUNT(rows));
    reading_refused(LLM_GRAMMAR_CHOICE, bad, LLM__COUNT(bad));
}

static void forms_test_tags(void) {
    static const char two[] =
        "{\"structures\": [{\"begin\": \"<f>\", \"schema\": {\"type\": \"integer\"}, \"end\": \"</f>\"}, {\"begin\": \"<fb>\", \"schema\": {\"enum\": [\"x\"]}, \"end\": \"!\"}],"
        " \"triggers\": [\"<f\"]}";
    static const char once[] =
        "{\"structures\": [{\"begin\": \"<\", \"schema\": {\"type\": \"boolean\"}, \"end\": \">\"}], \"triggers\": [\"<\"], \"at_least_one\": true, \"stop_after_first\": true}";
    static const char many[] =
        "{\"structures\": [{\"begin\": \"<\", \"schema\": {\"type\": \"boolean\"}, \"end\": \">\"}], \"triggers\": [\"<\"], \"at_least_one\": true, \"separator\": \", \"}";
    /* one trigger begins another, or stands within it */
    static const char first[] =
        "{\"structures\": [{\"begin\": \"<function=f>\", \"schema\": {\"type\": \"integer\"}, \"end\": \"!\"}, {\"begin\": \"<fun>\", \"schema\": {\"type\": \"null\"}, \"end\": \"?\"}],"
        " \"triggers\": [\"<function=\", \"<fun\"]}";
    static const char within[] =
        "{\"structures\": [{\"begin\": \"xab!\", \"schema\": {\"type\": \"integer\"}, \"end\": \".\"}, {\"begin\": \"ab\", \"schema\": {\"type\": \"null\"}, \"end\": \"?\"}],"
        " \"triggers\": [\"xab!\", \"ab\"]}";
    static const reading_row rows[] = {
        {first, "<fu|<fun>null?|<function=f>1!|a <fun>null? <function=f>2! b", "<fun|<funny|<fun>1|<function=g>|<function=f>null"},
        {within, "xa|xabnull?|a xabnull? b abnull?", "xab|xab!1.|ab|xabc"},
        {two, "|no tags|a < b, <g>|<f>12</f>|say <f>1</f> and <fb>\"x\"! end|<<f>3</f>", "<f|<f>x</f>|<f>1|<fc>|<fb>\"y\"!|a <f>1</f"},
        {once, "<true>|<false>", "|text <true>|<true><true>|<true> |<1>"},
        {many, "<true>|<true>, <false>", "|<true><true>|<true>, |x"},
    };
    static const reading_refusal bad[] = {
        {"{}", "structures"},
        {"{\"structures\": [], \"triggers\": [\"\"]}", "triggers"},
        {"{\"structures\": [{\"begin\": \"<a>\"}], \"triggers\": [\"<\"]}", "begin, schema and end expected"},
        {"{\"structures\": [{\"begin\": \"<a>\", \"schema\": {}, \"end\": \"\"}], \"triggers\": [\"[\"]}", "begins with the trigger \"[\""},
        {"{\"structures\": [{\"begin\": \"<a>\", \"schema\": {\"type\": \"text\"}, \"end\": \"\"}], \"triggers\": [\"<\"]}",
         "structure \"<a>\""},
    };
    reading_rows(LLM_GRAMMAR_STRUCTURAL_TAG, rows, LLM__COUNT(rows));
    reading_refused(LLM_GRAMMAR_STRUCTURAL_TAG, bad, LLM__COUNT(bad));
}

/* Free text up to a marker, then the form; the marker may overlap itself. */
static void forms_test_after(void) {
    llm_grammar_config c;
    llm_grammar *g = NULL;
    char longest[140];
    memset(&c, 0, sizeof c);
    c.kind = LLM_GRAMMAR_REGEX, c.text = "[0-9]+", c.len = 6, c.after = "</</t>";
    if (!CHECK(!llm_grammar_open(NULL, &c, &g))) return;
    reading_list(g, "after", "</</t>1|I think <1> </</</t>42", 1);
    reading_list(g, "after", "|1|</t>1|</</t>|</</t>x|</</t>1x", 0);
    llm_grammar_close(g);
    memset(longest, 'a', sizeof longest);
    longest[128] = 0;
    c.after = longest;
    CHECK(llm_grammar_open(NULL, &c, &g) == LLM_ERR_ARG && !g && strstr(llm_last_error(), "a marker of 1 to 127 bytes"));
    c.after = "";
    CHECK(llm_grammar_open(NULL, &c, &g) == LLM_ERR_ARG && !g);
}

static void forms_test_regex_refused(void) {
    static const reading_refusal rows[] = {{"(?=a)b", "look-around"},
                                           {"a(?>b)", "atomic"},
                                           {"\\bx", "word boundaries"},
                                           {"[a-z]*+z", "possessive"},
                                           {"a?+b", "possessive"},
                                           {"(ab)++a", "possessive"},
                                           {"(", "regex"},
                                           {"[^\\x00-\\x{10FFFF}]", "no text can ever complete it"},
                                           {"a^b", "no text"}};
    reading_refused(LLM_GRAMMAR_REGEX, rows, LLM__COUNT(rows));
}

TEST_GROUP(forms) {
    forms_test_gbnf();
    forms_test_gbnf_refused();
    forms_test_choice();
    forms_test_tags();
    forms_test_after();
    forms_test_regex_refused();
}
