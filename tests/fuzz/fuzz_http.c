/* What a client may send to llm_serve: request lines, fields, chunked bodies, one request behind the other. Nothing listens and no model is
 * there, so requests for one are answered 503. The bytes come at once, and again in pieces: the same answers. */
#define main serve_main /* not called */
#include "../../llm_serve.c"
#undef main

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The status of every answer in what was written, but for interim ones, which depend on when bytes come: three digits each. */
static void note_answers(conn *c, llm_text *seen) {
    static const char mark[] = "HTTP/1.1 ";
    const size_t n = sizeof mark - 1;
    for (size_t i = c->out_at; i + n + 3 <= c->out.len; i++)
        if (!memcmp(c->out.data + i, mark, n) && c->out.data[i + n] != '1') llm_text_add(seen, c->out.data + i + n, 3), i += n;
    c->out_at = c->out.len = 0;
}

/* Gives a new connection the bytes, `piece` at a time, the next piece of another size. */
static void converse(const uint8_t *data, size_t size, size_t piece, llm_text *seen) {
    conn *c = (conn *)calloc(1, sizeof *c);
    if (!c) return;
    c->fd = -1;
    for (size_t at = 0, n; at < size && !c->close_after; at += n) {
        n = piece < size - at ? piece : size - at;
        llm_text_add(&c->in, (const char *)data + at, n);
        for (size_t left = SIZE_MAX; c->in.len - c->in_at < left && !c->close_after;) { /* as long as answers make room for more */
            left = c->in.len - c->in_at;
            conn_next_request(c);
            note_answers(c, seen);
            if (c->in.len && !c->in.data) __builtin_trap();
        }
        if (piece < size) piece = piece * 5 % 23 + 1;
    }
    if (c->in_at > c->in.len || c->call) __builtin_trap();
    llm_text_free(&c->in);
    llm_text_free(&c->body);
    llm_text_free(&c->out);
    llm_text_free(&c->head_text);
    free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    llm_text whole = {0}, pieces = {0};
    converse(data, size, size, &whole);
    converse(data, size, size % 7 + 1, &pieces);
    if (whole.len != pieces.len || (whole.len && memcmp(whole.data, pieces.data, whole.len))) __builtin_trap();
    llm_text_free(&whole);
    llm_text_free(&pieces);
    return 0;
}
