#include "chat/harmony.h"
#include "api/text.h"
#include "api/chat.h"
#include "base/platform.h"
#include "base/text.h"
#include "chat/values.h"

/* r->started: where in a message we are. r->thinking: it is one of thoughts, as far as the header has told. */
enum {
    LLM__HARMONY_FIRST = 0, /* the first header, of which nothing has come: text without a header may come instead */
    LLM__HARMONY_HEADER,
    LLM__HARMONY_BODY,
    LLM__HARMONY_NAME,  /* in a header, the name of a function */
    LLM__HARMONY_REST,  /* the rest of such a header */
    LLM__HARMONY_EMPTY, /* arguments, before the first byte */
    LLM__HARMONY_CALL   /* arguments */
};

/* Marks. All before <|message|> end a message that they stand in. */
static const char *const llm__harmony_marks[] = {"<|start|>",  "<|channel|>", "<|end|>",      "<|call|>",
                                                 "<|return|>", "<|message|>", "<|constrain|>"};
enum { LLM__HARMONY_CHANNEL = 1, LLM__HARMONY_MESSAGE = 5, LLM__HARMONY_MARKS = 7 };

/* The mark that a text is; -1: it may become one; -2: it is none. */
static int llm__harmony_mark(llm__str s) {
    int found = -2;
    for (int i = 0; i < LLM__HARMONY_MARKS && found < 0; i++) {
        const size_t n = strlen(llm__harmony_marks[i]);
        if (s.n <= n && !memcmp(llm__harmony_marks[i], s.p, s.n)) found = s.n == n ? i : -1;
    }
    return found;
}

/* A word of a header is whole: a channel, a recipient, or of no interest. */
static void llm__harmony_word(llm_reasoning *r) {
    const llm__str word = llm__s(r->held, (size_t)r->n_held);
    if (llm__str_eq(word, "analysis") || llm__starts(word, llm__lit("to="))) r->thinking = 1;
    r->started = LLM__HARMONY_HEADER;
    r->n_held = 0;
}

/* A mark has come. Behind a message comes a header; behind a header a message, of the kind that its words said. Empty arguments are an
 * empty object. */
static void llm__harmony_turn(llm_reasoning *r, int mark, llm_text *content) {
    const int call = r->started == LLM__HARMONY_NAME || r->started == LLM__HARMONY_REST, header = r->started <= LLM__HARMONY_HEADER;
    r->n_held = 0;
    if (mark == LLM__HARMONY_MESSAGE) {
        if (call) llm_text_str(content, "<|message|>");
        r->started = call ? LLM__HARMONY_EMPTY : LLM__HARMONY_BODY;
    } else if (mark > LLM__HARMONY_MESSAGE || (mark == LLM__HARMONY_CHANNEL && (call || header))) {
        r->started = call ? LLM__HARMONY_REST : LLM__HARMONY_HEADER;
    } else {
        if (r->started == LLM__HARMONY_EMPTY) llm_text_str(content, "{}");
        r->started = LLM__HARMONY_HEADER;
        r->thinking = 0;
    }
}

/* Header: words and marks. Returns 0 if the answer has no header, but begins with text. */
static int llm__harmony_header(llm_reasoning *r, llm_text *content) {
    static const char to[] = "to=functions.";
    const char byte = r->held[r->n_held - 1];
    const llm__str s = llm__s(r->held, (size_t)r->n_held);
    const int space = llm__tpl_trim(llm__s(&byte, 1), 1).n == 0;
    if (llm__str_eq(s, to)) {
        llm_text_format(content, "<|channel|>commentary %s", to);
        r->n_held = r->thinking = 0;
        r->started = LLM__HARMONY_NAME;
    } else if (space) {
        r->n_held--;
        if (r->n_held) llm__harmony_word(r);
    } else if (r->started == LLM__HARMONY_FIRST && llm__harmony_mark(s) == -2 && memcmp(to, s.p, LLM__MIN(s.n, (size_t)3)) != 0) {
        return 0;
    } else if (byte == '<' && r->n_held > 1) {
        r->n_held--;
        llm__harmony_word(r);
        r->held[r->n_held++] = byte;
    } else if ((size_t)r->n_held == sizeof r->held - 1) r->n_held--; /* no word that matters is so long */
    return 1;
}

LLM__PRIVATE void llm__harmony_byte(llm_reasoning *r, char byte, llm_text *reasoning, llm_text *content) {
    r->held[r->n_held++] = byte;
    const int mark = llm__harmony_mark(llm__s(r->held, (size_t)r->n_held));
    const int header = r->started <= LLM__HARMONY_HEADER || r->started == LLM__HARMONY_REST;
    if (mark >= 0 && (header || r->started == LLM__HARMONY_NAME || mark < LLM__HARMONY_MESSAGE)) {
        llm__harmony_turn(r, mark, content);
        return;
    }
    if (mark == -1) return;
    if (r->started == LLM__HARMONY_REST) r->n_held = 0;
    else if (!header || !llm__harmony_header(r, content)) {
        int n = 0;
        if (header) r->started = LLM__HARMONY_BODY;
        if (r->started == LLM__HARMONY_NAME && llm__tpl_trim(llm__s(&byte, 1), 1).n == 0) {
            r->started = LLM__HARMONY_REST;
            r->n_held = 0;
        }
        while (n < r->n_held && llm__harmony_mark(llm__s(r->held + n, (size_t)(r->n_held - n))) != -1) n++;
        if (n && r->started == LLM__HARMONY_EMPTY) r->started = LLM__HARMONY_CALL;
        if (n) llm_text_add(r->thinking ? reasoning : content, r->held, (size_t)n);
        r->n_held -= n;
        memmove(r->held, r->held + n, (size_t)r->n_held);
    }
}

/* The mark that ended the answer is not shown, so arguments may end here. */
LLM__PRIVATE void llm__harmony_end(llm_reasoning *r, llm_text *reasoning, llm_text *content) {
    const int text = r->started == LLM__HARMONY_FIRST || r->started == LLM__HARMONY_BODY || r->started == LLM__HARMONY_CALL;
    if (text && r->n_held) llm_text_add(r->thinking ? reasoning : content, r->held, (size_t)r->n_held);
    if (r->started == LLM__HARMONY_EMPTY) llm_text_str(content, "{}");
    r->n_held = 0;
}

LLM__PRIVATE void llm__harmony_begin(llm_reasoning *r, llm__str prompt) {
    const int64_t at = llm__tpl_find(prompt, llm__lit(llm__harmony_marks[0]), -1);
    LLM__SCOPED(llm_text_free) llm_text before = llm__text_none();
    for (size_t i = at < 0 ? prompt.n : (size_t)at; i < prompt.n; i++) {
        llm__harmony_byte(r, prompt.p[i], &before, &before);
        before.len = 0;
    }
    if (r->started == LLM__HARMONY_HEADER) llm__harmony_word(r);
    if (at >= 0 && r->started == LLM__HARMONY_HEADER && !r->thinking) r->started = LLM__HARMONY_FIRST;
}

LLM__PRIVATE const char *llm__harmony_marker(const llm_reasoning *r) {
    return r->started == LLM__HARMONY_BODY && !r->thinking ? NULL : "<|channel|>final<|message|>";
}
