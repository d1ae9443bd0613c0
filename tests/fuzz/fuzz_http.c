/* What a client may send to llm_serve: request lines, fields, chunked bodies, one request behind the other. The socket is fake and no model is
 * there, so requests for one are answered 503. The bytes come at once, and again in pieces: the same answers. */
#define SERVE_MAIN serve_main
#include "../unit/serve/world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The status of every answer in what was sent, but for interim ones, which depend on when bytes come: three digits each. */
static void note_answers(world_queue *sent, llm_text *seen) {
    static const char mark[] = "HTTP/1.1 ";
    const size_t n = sizeof mark - 1;
    for (size_t i = sent->at; i + n + 3 <= sent->len; i++)
        if (!memcmp(sent->data + i, mark, n) && sent->data[i + n] != '1') llm_text_add(seen, sent->data + i + n, 3), i += n;
    sent->at = sent->len;
}

/* Gives a new connection the bytes, `piece` at a time, the next piece of another size; then the client has said its last. */
static void converse(const uint8_t *data, size_t size, size_t piece, llm_text *seen) {
    world_socket *s = world_connect(SIZE_MAX);
    conn_accept(0, 0);
    for (size_t at = 0, n; at < size && s->open; at += n) {
        n = piece < size - at ? piece : size - at;
        world_put(&s->in, (const char *)data + at, n);
        world_settle();
        note_answers(&s->out, seen);
        if (piece < size) piece = piece * 5 % 23 + 1;
    }
    s->client_shut = 1;
    world_settle();
    note_answers(&s->out, seen);
    if (s->open || net.list || net.unsent || net.bodies[0] || net.bodies[1]) __builtin_trap();
    world_leave(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    llm_text whole = {0}, pieces = {0};
    net.now = 1;
    converse(data, size, size, &whole);
    converse(data, size, size % 7 + 1, &pieces);
    if (whole.len != pieces.len || (whole.len && memcmp(whole.data, pieces.data, whole.len))) __builtin_trap();
    llm_text_free(&whole);
    llm_text_free(&pieces);
    return 0;
}
