/* The connections of llm_serve as a machine: clients, workers, engine and clock do one thing after the other in random order, in pieces of random
 * size, and what must always hold is looked at after each step. Each request must be answered once and whole, or its connection closed; what a
 * connection holds is bounded; and who can go on has a wake-up that is owed to it. Two models take turns in the room of one, and none goes
 * while a call holds it.
 *
 *     build/dev/unit connections -- STEPS SEED
 *
 * Time stands still, or passes and jumps, or memory fails: by epochs of 4,000 steps. Where it stands still, all requests of who is still there have
 * to be answered at the end of the epoch. test_planted.py puts defects into llm_serve.c that this test has to find. */
#include "../test.h"

/* ---- the library, as far as a connection sees it: an answer is so many pieces, which the engine makes one by one */

typedef struct fake_call fake_call;
static llm_openai_call *fake_parse(llm_openai_kind kind, const char *body, size_t len, void *user);
static int fake_check(llm_openai_call *k, const llm_openai_service *s);
static const char *fake_model(const llm_openai_call *k, size_t *len);
static int fake_submit(llm_openai_call *k);
static int fake_next(llm_openai_call *k, llm_text *out);
static const llm_openai_info *fake_info(const llm_openai_call *k);
static void fake_fail(llm_openai_call *k, int status, const char *message);
static void fake_free(llm_openai_call *k);
static void fake_cancel(llm_openai_call *k);

#define llm_openai_parse fake_parse
#define llm_openai_check fake_check
#define llm_openai_model fake_model
#define llm_openai_submit fake_submit
#define llm_openai_next fake_next
#define llm_openai_get_info fake_info
#define llm_openai_fail fake_fail
#define llm_openai_free fake_free
#define llm_openai_cancel fake_cancel
#define SERVE_MAIN connections_main
#include "world.h"

struct fake_call {
    llm_openai_info info;
    llm_sampling sampling;
    call *user;
    int serial, pieces, size, bad; /* what is asked for: of a body like "12 s 5 100" */
    int made, written, ended, failed;
    llm_request *request; /* none: what counts its tokens passes over it */
    struct fake_call *next;
};

static fake_call *fake_calls;   /* that the engine has */
static int64_t fake_weight = 3; /* of a byte of a body that was read */

static void meanwhile(const call *k); /* what others do while a worker has a call */
static void wrong(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));

static fake_call *fake_of(const llm_openai_call *k) { return (fake_call *)(uintptr_t)k; }

/* Byte i of a piece: of answers that are mixed up, cut or repeated nothing is right. */
static char fake_byte(int serial, int piece, int i) { return (char)('a' + (serial * 7 + piece * 3 + i) % 26); }

static void fake_piece(const fake_call *k, int piece, llm_text *out) {
    char part[512];
    for (int i = 0, n = 0; i < k->size; i += n) {
        for (n = 0; n < (int)sizeof part && i + n < k->size; n++) part[n] = fake_byte(k->serial, piece, i + n);
        llm_text_add(out, part, (size_t)n);
    }
}

static llm_openai_call *fake_parse(llm_openai_kind kind, const char *body, size_t len, void *user) {
    fake_call *k = (fake_call *)test_malloc(sizeof *k);
    char form = 0, streamed = 0;
    if (!k) return NULL;
    memset(k, 0, sizeof *k);
    k->user = (call *)user;
    k->bad = sscanf(body, "%d %c%c %d %d", &k->serial, &streamed, &form, &k->pieces, &k->size) != 5;
    k->info.kind = kind;
    k->info.body_bytes = (int64_t)len * fake_weight;
    k->info.id = "call";
    k->info.ignored = "";
    k->info.status = k->bad ? 400 : 200;
    k->info.stream = streamed == 's';
    k->info.form = form == 'f';
    k->info.n_choices = 1;
    k->info.sampling = &k->sampling;
    k->sampling.max_tokens = 10;
    k->sampling.prompt_logprobs = k->serial % 3 == 0; /* its pieces are written by workers */
    meanwhile(k->user);
    return (llm_openai_call *)(void *)k;
}

static const char *fake_model(const llm_openai_call *k, size_t *len) { return *len = 1, fake_of(k)->serial % 4 ? "a" : "b"; }

static int fake_check(llm_openai_call *call_, const llm_openai_service *s) {
    const fake_call *k = fake_of(call_);
    const served_model *m = k->user->model;
    if (!k->bad && (!m || !k->user->holds || !is_loaded(m) || s != &m->service || *m->names.items[0] != (k->serial % 4 ? 'a' : 'b')))
        wrong("a body is checked with a model that is not there, or another's", "of request %d", k->serial);
    meanwhile(k->user);
    return !k->bad;
}

static int fake_submit(llm_openai_call *call_) {
    fake_call *k = fake_of(call_);
    if (k->bad) return 0;
    k->info.n_requests = 1;
    k->info.requests = &k->request;
    k->next = fake_calls;
    fake_calls = k;
    meanwhile(k->user);
    return 1;
}

static int fake_write(fake_call *k, llm_text *out) {
    const int last = k->ended && k->written == k->made;
    if (k->info.done) return 0;
    if (k->bad || k->failed) {
        llm_text_str(out, "bad");
        return k->info.done = 1;
    }
    if (k->info.stream && !last) {
        if (k->written == k->made) return 0;
        fake_piece(k, k->written++, out);
        return 1;
    }
    if (!k->ended) return 0;
    while (!k->info.stream && k->written < k->made) fake_piece(k, k->written++, out);
    if (k->info.stream) llm_text_str(out, "!");
    return k->info.done = 1;
}

static int fake_next(llm_openai_call *call_, llm_text *out) {
    const int some = fake_write(fake_of(call_), out);
    meanwhile(fake_of(call_)->user);
    return some;
}

static const llm_openai_info *fake_info(const llm_openai_call *k) { return &fake_of(k)->info; }

static void fake_fail(llm_openai_call *call_, int status, UNUSED const char *message) {
    fake_call *k = fake_of(call_);
    k->failed = 1;
    k->info.status = k->info.stream && k->info.n_requests ? 200 : status;
}

static void fake_free(llm_openai_call *call_) {
    fake_call **at = &fake_calls;
    while (*at && *at != fake_of(call_)) at = &(*at)->next;
    if (*at) *at = (*at)->next;
    free(call_);
}

static void fake_cancel(UNUSED llm_openai_call *k) {}

/* The engine makes a piece of some answer, or ends it. `all`: of every answer all that is left. */
static int engine_turn(int all) {
    int n = 0, any = 0;
    for (fake_call *k = fake_calls; k; k = k->next) n += !k->ended;
    int chosen = n ? (int)world_random((uint64_t)n) : 0;
    for (fake_call *k = fake_calls; k; k = k->next) {
        if (k->ended || (!all && chosen-- != 0)) continue;
        if (k->made < k->pieces) k->made += all ? k->pieces - k->made : 1;
        k->ended = k->made == k->pieces;
        on_call_news(k->user, NULL);
        any = 1;
    }
    return any;
}

static void step(void);

/* ---- clients */

enum { MOST_REQUESTS = 40 };

typedef enum asked {
    HEALTH,
    PAGE,
    HEAD_PAGE,
    PREFLIGHT,
    GET_BODY,
    POSTED,
    CHUNKED,
    LARGE,
    EXPECTED,
    NO_KEY,
    NO_KEY_LARGE,
    FOREIGN,
    NO_TYPE,
    WRONG,
    LAST,
    NOISE,
    KINDS
} asked;

typedef struct wanted {
    asked kind;
    int serial, streamed, pieces, size, status, closes;
} wanted;

typedef struct client {
    world_socket *socket; /* NULL: there is none */
    wanted request[MOST_REQUESTS];
    int n_requests, n_answered;
    world_queue script;               /* still to be sent */
    size_t sent, ends[MOST_REQUESTS]; /* bytes sent so far; where each request ends in them */
    world_queue got;                  /* not yet understood */
    int reads;
} client;

static struct {
    client clients[24];
    int random;                     /* others act too while a worker has a call */
    int serial, strict, wild, poor; /* the epoch: time stands still; it passes; memory fails */
    long answers, closed, steps;
    const char *wrong; /* the first thing that did not hold */
    char about[400];
} play;

/* Others go on, a second worker among them; the event thread does not call itself. */
static void meanwhile(const call *k) {
    static int inside;
    for (int n = play.random && k->away && !inside ? (int)world_random(4) : 0; n > 0; n--) {
        inside = 1;
        step();
        inside = 0;
    }
}

__attribute__((format(printf, 2, 3))) static void wrong(const char *what, const char *format, ...) {
    va_list args;
    if (play.wrong) return;
    play.wrong = what;
    va_start(args, format);
    vsnprintf(play.about, sizeof play.about, format, args);
    va_end(args);
}

/* Writes a request into the client's script, and what must come of it into its list. */
static void client_ask(client *c) {
    static char filler[200000], text[210000];
    wanted *w = &c->request[c->n_requests];
    const char *key = "Authorization: Bearer sesame\r\n", *type = "Content-Type: application/json\r\n", *more = "";
    char body[64];
    size_t n = 0, size = 0;
    memset(filler, ' ', sizeof filler);
    memset(w, 0, sizeof *w);
    w->kind = (asked)world_random(KINDS);
    if (w->kind >= LAST && world_random(4)) w->kind = POSTED;
    w->serial = ++play.serial;
    w->status = 200;
    w->streamed = !world_random(2);
    w->pieces = (int)world_random(world_random(8) ? 4 : 60);
    w->size = (int)world_random(world_random(4) ? 300 : world_random(8) ? 20000 : 200000);
    if (!world_random(16)) w->pieces = 40, w->size = 50000; /* more than a connection may hold */
    int plain = w->kind <= GET_BODY;
    snprintf(body, sizeof body, "%d %c%c %d %d", w->serial, w->streamed ? 's' : 'w', world_random(4) ? '-' : 'f', w->pieces, w->size);
    size = strlen(body);
    if (w->kind == WRONG) snprintf(body, sizeof body, "%s", "x"), size = 1, w->status = 400;
    if (w->kind == LARGE || w->kind == NO_KEY_LARGE) size = 66000 + world_random(130000);
    if (w->kind == NO_KEY || w->kind == NO_KEY_LARGE) key = "", w->status = 401;
    if (w->kind == NO_KEY_LARGE || w->kind == LAST || w->kind == NOISE) w->closes = 1;
    if (w->kind == LAST)
        more = world_random(2) ? "Connection: keep-alive\r\nConnection: close\r\n" : "Connection: close\r\nConnection: keep-alive\r\n";
    if (w->kind == EXPECTED) more = "Expect: 100-continue\r\n";
    if (w->kind == FOREIGN) more = "Origin: http://evil.example\r\n", w->status = 403;
    if (w->kind == NO_TYPE) type = "", w->status = 415;
    if (w->kind == GET_BODY) size = 1 + world_random(60000);
    if (w->kind == NOISE) {
        w->status = 400;
        n = (size_t)snprintf(text, sizeof text, "\x16\x03\x01 this is no request\r\n\r\n");
    } else if (plain) {
        const char *line[] = {"GET /health", "GET /page.js", "HEAD /page.js", "OPTIONS /v1/completions", "GET /health"};
        n = (size_t)snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: localhost\r\n", line[w->kind]);
        if (w->kind == GET_BODY)
            n += (size_t)snprintf(text + n, sizeof text - n, "Content-Length: %zu\r\n\r\n%.*s", size, (int)size, filler);
        else n += (size_t)snprintf(text + n, sizeof text - n, "\r\n");
    } else {
        const int chunked = w->kind == CHUNKED;
        n = (size_t)snprintf(text, sizeof text, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%s%s%s", key, type, more);
        if (chunked)
            n += (size_t)snprintf(text + n, sizeof text - n, "Transfer-Encoding: chunked\r\n\r\n4\r\n%.4s\r\n%zx;x\r\n%s\r\n0\r\n\r\n",
                                  body, strlen(body) - 4, body + 4);
        else
            n += (size_t)snprintf(text + n, sizeof text - n, "Content-Length: %zu\r\n\r\n%s%.*s", size, body, (int)(size - strlen(body)),
                                  filler);
    }
    c->n_requests++;
    world_put(&c->script, text, n);
    c->ends[c->n_requests - 1] = c->sent + world_waiting(&c->script);
}

static int client_open(client *c) {
    static const size_t rooms[] = {1, 500, 70000, 4 << 20};
    free(c->script.data);
    free(c->got.data);
    memset(c, 0, sizeof *c);
    c->socket = world_connect(rooms[world_random(4)]);
    c->reads = world_random(3) != 0;
    return c->socket != NULL;
}

static void client_send(client *c, size_t most) {
    static char part[65536];
    const size_t n = world_get(&c->script, part, most < sizeof part ? most : sizeof part);
    if (!c->socket->client_shut) world_put(&c->socket->in, part, n), c->sent += n;
}

/* The bytes of one answer's payload, whole or of a stream, are those that were asked for; comments may stand between. */
static int payload_fits(const wanted *w, const char *p, size_t n) {
    size_t at = 0;
    for (int piece = 0; piece < w->pieces; piece++)
        for (int i = 0; i < w->size; i++, at++) {
            while (w->streamed && at + 3 <= n && !memcmp(p + at, ":\n\n", 3)) at += 3;
            if (at >= n || p[at] != fake_byte(w->serial, piece, i)) return 0;
        }
    while (w->streamed && at + 3 <= n && !memcmp(p + at, ":\n\n", 3)) at += 3;
    return w->streamed ? at + 1 == n && p[at] == '!' : at == n;
}

/* Understands the next answer, if it is whole. */
static int client_understand(client *c) {
    const wanted *w = &c->request[c->n_answered];
    world_answer a;
    const int whole = world_take_answer(&c->got, w->kind == HEAD_PAGE, &a), status = a.status;
    if (whole < 0) wrong("an answer is malformed", "%.60s", c->got.data + c->got.at);
    if (whole <= 0) return 0;
    if (c->n_answered == c->n_requests) return wrong("an answer too many", "after %d: %d", c->n_answered, status), 0;
    const int poor = status == 503 && play.poor, hurried = status == 408 && play.wild;
    if (status != w->status && !poor && !hurried)
        wrong("a wrong status", "%d for a request of kind %d, which wants %d", status, w->kind, w->status);
    if (status == 200 && w->kind >= POSTED && !payload_fits(w, a.body.data ? a.body.data : "", a.body.len))
        wrong("a wrong answer", "of request %d: %zu bytes, of %d pieces of %d", w->serial, a.body.len, w->pieces, w->size);
    if (w->closes && !a.closing) wrong("an answer that must close does not say so", "kind %d", w->kind);
    if (a.closing) c->n_requests = c->n_answered + 1; /* those behind it are not answered */
    c->n_answered++;
    play.answers++;
    free(a.body.data);
    return 1;
}

/* Reads, and sees whether the connection has ended. */
static void client_read(client *c, size_t most) {
    static char part[65536];
    const size_t n = world_get(&c->socket->out, part, most < sizeof part ? most : sizeof part);
    world_put(&c->got, part, n);
    while (n && !play.wrong && client_understand(c)) continue;
    if (c->socket->waits || (!c->socket->server_shut && c->socket->open) || world_waiting(&c->socket->out)) return;
    int whole = 0; /* requests that were sent */
    while (whole < c->n_requests && c->ends[whole] <= c->sent) whole++;
    if (play.strict && c->n_answered < whole)
        wrong("a connection was closed with a request unanswered", "%d of %d, kind %d", c->n_answered, whole,
              c->request[c->n_answered].kind);
    if (world_waiting(&c->got) && play.strict) wrong("an answer was cut", "%zu bytes", world_waiting(&c->got));
    world_leave(c->socket);
    c->socket = NULL;
    play.closed++;
}

/* ---- the loader: of two models one can be loaded */

static served_model served[2];

static int loader_turn(void) {
    served_model *m = models.done ? NULL : models.job;
    if (!m) return 0;
    const int load = m->state == MODEL_LOADING;
    for (const fake_call *k = fake_calls; k && !load; k = k->next)
        if (k->user->model == m) wrong("a model is unloaded under a call", "request %d", k->serial);
    m->outcome = load && m->crowded && !m->alone ? MODEL_NO_ROOM : load && play.poor && !world_random(4) ? MODEL_NO : MODEL_DONE;
    m->why = LLM_ERR_NOMEM;
    models.done = m;
    return 1;
}

static void check_models(void) {
    for (int i = 0; i < models.n; i++) {
        const served_model *m = &models.list[i];
        int holds = 0, waits = 0;
        for (const conn *c = net.list; c; c = c->next) {
            holds += c->call && c->call->model == m && c->call->holds;
            waits += c->call && c->call->model == m && c->call->waits;
        }
        if (m->waiting != waits) wrong("those who wait for a model are miscounted", "%d, not %d", m->waiting, waits);
        if (m->calls < holds)
            wrong("calls of a model are miscounted", "%d, not %d", m->calls, holds); /* calls whose client is gone count too */
        if (m->calls && !is_loaded(m)) wrong("a call holds a model that is not loaded", "state %d", m->state);
    }
    if (is_loaded(&served[0]) && is_loaded(&served[1])) wrong("more models are loaded than there may be", "%s", "");
}

/* ---- what must hold after every step */

/* Where the output was full and nothing of it was sent, no answer may have come to it (but that a request is given up). */
static void check_full(const conn *c) {
    static struct {
        const conn *c;
        size_t unsent, moved;
    } before[WORLD_SOCKETS];
    const int i = c->fd - WORLD_FIRST;
    if (c->fd < 0) return;
    if (before[i].c == c && before[i].unsent >= CONN_MAX_OUT && before[i].moved == c->out_pace.bytes &&
        conn_unsent(c) > before[i].unsent + 1000)
        wrong("output is not bounded", "%zu bytes after %zu", conn_unsent(c), before[i].unsent);
    before[i].c = c;
    before[i].unsent = conn_unsent(c);
    before[i].moved = c->out_pace.bytes;
}

static void check_sizes(void) {
    size_t unsent = 0, heads = 0, bodies[2] = {0, 0};
    int n = 0;
    for (const conn *c = net.list; c; c = c->next) {
        check_full(c);
        unsent += conn_unsent(c);
        heads += c->in.cap + c->head_text.cap;
        bodies[c->large] += c->body.len;
        if (c->call) bodies[c->call->large] += c->call->held;
        n += c->fd >= 0;
        if (conn_ahead(c) > CONN_MAX_AHEAD + CONN_PIECE) wrong("input is not bounded", "%zu bytes", conn_ahead(c));
        if (c->body.len > HTTP_MAX_BODY) wrong("a body is not bounded", "%zu bytes", c->body.len);
        if (conn_unsent(c) > CONN_MAX_OUT + (12 << 20)) wrong("output is not bounded", "%zu bytes", conn_unsent(c));
        if (c->state == CONN_IDLE && !conn_ahead(c) && !conn_unsent(c) && c->fd >= 0 &&
            (c->in.data || c->out.data || c->body.data || c->call))
            wrong("an idle connection holds memory", "%s", "");
    }
    if (unsent != net.unsent) wrong("output is miscounted", "%zu, not %zu", net.unsent, unsent);
    if (heads != net.heads) wrong("input is miscounted", "%zu, not %zu", net.heads, heads);
    if (n != net.n) wrong("connections are miscounted", "%d, not %d", net.n, n);
    for (int i = 0; i < 2; i++)
        if (bodies[i] > net.bodies[i])
            wrong("bodies are miscounted", "%zu, not %zu", net.bodies[i], bodies[i]); /* calls whose client is gone count too */
}

/* Who can go on has a wake-up that is owed to it. */
static void check_wakes(void) {
    for (const conn *c = net.list; c; c = c->next) {
        if (c->fd < 0) continue;
        const world_socket *s = world_of(c->fd);
        const call *k = c->call;
        const int out = (c->events & EPOLLOUT) != 0, fake = k && k->api != NULL;
        if (world.left_watched) wrong("closed while epoll watches it", "%d sockets", world.left_watched);
        if (s->watched != c->events) wrong("epoll watches something else", "%x, not %x", s->watched, c->events);
        if (conn_takes_input(c) && !(c->events & EPOLLIN)) wrong("input is wanted and not watched", "state %d", c->state);
        if (!conn_takes_input(c) && (c->events & EPOLLIN)) wrong("input is watched and not wanted", "state %d", c->state);
        if (conn_unsent(c) && !out) wrong("output waits and its room is not watched", "state %d", c->state);
        if ((c->state == CONN_BUSY) != (k != NULL)) wrong("a busy connection without a call, or a call without", "state %d", c->state);
        if (k && !k->away && conn_has_room(c) && (k->more || k->piece.len || !fake) && !out && !k->on_list)
            wrong("an answer could go on and nobody will come back to it", "unsent %zu", conn_unsent(c));
        if (k && k->away && !k->with_worker && !k->on_list) wrong("a call is away and with nobody", "%s", "");
        if (fake && !k->away && !k->more && !k->news && !k->piece.len && k->stage == CALL_ANSWER) {
            const fake_call *f = fake_of(k->api);
            if (f->ended || (f->info.stream && f->written < f->made))
                wrong("news of the engine were lost", "%d of %d pieces", f->written, f->made);
        }
        if (!k && c->deadline <= 0 && c->in_pace.since <= 0 && c->out_pace.since <= 0)
            wrong("a connection that no clock ends", "state %d", c->state);
    }
}

/* ---- steps */

static void pass_time(double seconds) {
    net.now += seconds;
    conn_sweep();
    net_bury();
}

static void client_step(void) {
    client *c = &play.clients[world_random(N_OF(play.clients))];
    if (!c->socket) {
        if (client_open(c)) client_ask(c);
        return;
    }
    switch (world_random(12)) {
    case 0:
    case 1:
    case 2: client_send(c, 1 + world_random(world_random(2) ? 100 : 65536)); break;
    case 3: client_send(c, 65536); break;
    case 4:
    case 5:
        if (c->n_requests < MOST_REQUESTS && !c->socket->client_shut && (!c->n_requests || !c->request[c->n_requests - 1].closes))
            client_ask(c);
        break;
    case 6:
    case 7: client_read(c, 1 + world_random(world_random(2) ? 100 : 65536)); break;
    case 8:
        if (c->reads) client_read(c, 65536);
        break;
    case 9: c->reads = world_random(3) != 0; break;
    case 10:
        if (world_random(30)) break;
        c->socket->client_shut = 1; /* what was sent is to be answered */
        break;
    default:
        if (world_random(60)) break;
        world_leave(c->socket);
        c->socket = NULL;
    }
}

static void step(void) {
    switch (world_random(10)) {
    case 0: conn_accept(0, 0); break;
    case 1:
    case 2:
    case 3: world_event(&world.socket[world_random(WORLD_SOCKETS)]); break;
    case 4: calls_news(); break;
    case 5: world_work(); break;
    case 6:
        if (!world_random(4)) loader_turn();
        else engine_turn(!world_random(8));
        models_turn();
        break;
    case 7:
        if (play.wild && !world_random(20)) pass_time((double)world_random(1000) / 1000 * (world_random(50) ? 1 : 4000));
        if (play.poor) test_fail_at = world_random(4) ? 0 : test_allocations + 1 + (long)world_random(6);
        break;
    default: client_step();
    }
    net_bury();
}

/* The end of an epoch: clients say and read all, engine and workers do all. Whoever then is not answered never would be. */
static void finish_all(void) {
    test_fail_at = play.random = 0;
    world.faults = 0;
    for (int moved = 1, rounds = 0; moved && !play.wrong; rounds++) {
        moved = world_settle();
        moved |= engine_turn(1);
        conn_accept(0, 0);
        for (size_t i = 0; i < N_OF(play.clients); i++) {
            client *c = &play.clients[i];
            if (!c->socket) continue;
            c->socket->room = 1 << 20;
            moved |= world_waiting(&c->script) || world_waiting(&c->socket->out);
            client_send(c, 65536);
            for (int k = 0; k < 100 && c->socket && world_waiting(&c->socket->out); k++) client_read(c, 65536);
        }
        check_sizes();
        check_wakes();
        if (rounds > 10000) wrong("the server never comes to rest", "%s", "");
    }
    for (size_t i = 0; i < N_OF(play.clients); i++) {
        const client *c = &play.clients[i];
        int whole = 0;
        while (whole < c->n_requests && c->ends[whole] <= c->sent) whole++;
        if (!c->socket || !c->socket->open || c->n_answered >= whole) continue;
        const conn *k = (const conn *)c->socket->watcher;
        wrong("a request is never answered", "%d of %d, kind %d, state %d, events %x, unsent %zu, ahead %zu", c->n_answered, whole,
              c->request[c->n_answered].kind, k->state, k->events, conn_unsent(k), conn_ahead(k));
    }
}

/* One epoch of one kind. */
static void epoch(int kind, long steps) {
    play.random = 1;
    play.strict = kind == 0;
    play.wild = kind == 1;
    play.poor = kind == 2;
    for (long i = 0; i < steps && !play.wrong; i++, play.steps++) {
        world.faults = 1;
        step();
        check_sizes();
        check_wakes();
        check_models();
    }
    if (!play.wrong) finish_all();
    for (size_t i = 0; i < N_OF(play.clients); i++) { /* a connection of another epoch has seen its faults */
        client *c = &play.clients[i];
        if (c->socket && (kind || !world_random(3))) world_leave(c->socket), c->socket = NULL;
    }
    world_settle();
}

/* ---- one thing at a time: clocks, descriptors, threads */

static void serve_nobody(void) {
    static const char *const keys[] = {"sesame"};
    memset(&play, 0, sizeof play);
    memset(&world, 0, sizeof world);
    world.random = 88172645463325252u;
    net.now = 1000;
    static const char *const names[] = {"a", "b"};
    models.list = served;
    models.n = 2;
    for (int i = 0; i < 2; i++) served[i].names.items = (const char **)(uintptr_t)&names[i], served[i].names.n = served[i].n_listed = 1;
    served[0].state = MODEL_LOADED;
    server.cfg.max_loaded = 1;
    world_load = loader_turn;
    server.ready = 1;
    server.loopback = 1;
    server.cfg.keys.items = (const char **)(uintptr_t)keys;
    server.cfg.keys.n = 1;
    server.cfg.n_workers = 2;
    server.cfg.ping_interval = 15;
    server.cfg.setup.log_level = -1;
}

static world_socket *client_of(const char *text, size_t room) {
    world_socket *s = world_connect(room);
    conn_accept(0, 0);
    world_put(&s->in, text, strlen(text));
    world_settle();
    return s;
}

/* Time passes; every second the client sends so many bytes and reads so many. Returns after how many seconds the server has closed, or given up
 * (shut its side); `most` if it has not. */
static int seconds_until_closed(world_socket *s, int most, int sends, int reads) {
    static char part[65536];
    memset(part, 'a', sizeof part);
    for (int i = 0; i < most; i++) {
        world_put(&s->in, part, (size_t)sends);
        world_get(&s->out, part, (size_t)reads);
        world_settle();
        if (!s->open || s->server_shut) return i;
        for (int k = 0; k < 4; k++) pass_time(0.25);
        world_settle();
    }
    return s->open && !s->server_shut ? most : most - 1;
}

static void leave(world_socket *s) {
    world_leave(s);
    world_settle();
    CHECK(!net.list && !net.unsent && !net.bodies[0] && !net.bodies[1]);
}

#define POST_HEAD "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sesame\r\nContent-Type: application/json\r\n"

/* How long a connection may stay in each state while its client does little or nothing. `stream` makes a call that never ends. */
static void slow_clients(void) {
    static const struct {
        const char *what, *text;
        size_t room;
        int sends, reads, least, most; /* seconds that it lives */
    } rows[] = {
        {"silence", "", 1000, 0, 0, 9, 11},
        {"half a head", "GET /he", 1000, 0, 0, 9, 11},
        {"a head of a byte a second", "GET /he", 1000, 1, 0, 9, 11},
        {"kept alive", "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000, 0, 0, 119, 121},
        {"a body that stops", POST_HEAD "Content-Length: 100\r\n\r\n", 1000, 0, 0, 19, 21},
        {"a small body of a byte a second", POST_HEAD "Content-Length: 100\r\n\r\n", 1000, 1, 0, 19, 21},
        {"a large body of 3 KiB a second", POST_HEAD "Content-Length: 9000000\r\n\r\n", 1000, 3 << 10, 0, 19, 21},
        {"a large body of 5 KiB a second", POST_HEAD "Content-Length: 9000000\r\n\r\n", 1000, 5 << 10, 0, 900, 900},
        {"a chunked body of a byte a second", POST_HEAD "Transfer-Encoding: chunked\r\n\r\nfffff\r\n", 1000, 1, 0, 19, 21},
        {"a small body that nobody wants", "GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", 1000, 1, 0, 9, 11},
        {"a call that takes long", POST_HEAD "Content-Length: 11\r\n\r\n1 w- 1000 1", 1000, 0, 0, 900, 900},
        {"a stream that is silent for long", POST_HEAD "Content-Length: 11\r\n\r\n1 s- 1000 1", 1000, 0, 100, 900, 900},
        {"an answer that nobody reads", "GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000, 0, 0, 29, 31},
        {"an answer of which a byte a second is read", "GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000, 0, 1, 29, 31},
        {"pipelined requests of whose answers 500 bytes a second are read", "", 1000, 0, 500, 29, 31},
        {"pipelined requests of whose answers 2 KiB a second are read", "", 3000, 0, 2 << 10, 300, 300}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        char many[8192] = "";
        const int piped = !strncmp(rows[i].what, "pipelined", 9);
        for (int k = 0; piped && k < 100; k++) strcat(many, "GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n");
        world_socket *s = client_of(piped ? many : rows[i].text, rows[i].room);
        const int lived = seconds_until_closed(s, rows[i].most >= 300 ? rows[i].most : 400, rows[i].sends, rows[i].reads);
        if (!CHECK(lived >= rows[i].least && lived <= rows[i].most))
            printf("    %s: closed after %d s, not %d to %d\n", rows[i].what, lived, rows[i].least, rows[i].most);
        leave(s);
    }
}

/* What is still sent to a connection whose answer is out is dropped, not for ever. */
static void lingering(void) {
    static const char refused[] =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n\r\n";
    for (int sends = 0; sends < 2; sends++) {
        world_socket *s = client_of(refused, 10000);
        int lived = 0;
        CHECK(s->server_shut && world_waiting(&s->out) > 100 && !memcmp(s->out.data, "HTTP/1.1 401", 12));
        for (; s->open && lived < 100; lived++) {
            if (sends) world_put(&s->in, refused, 100);
            world_settle();
            for (int k = 0; k < 4; k++) pass_time(0.25);
        }
        if (!CHECK(sends ? lived >= 29 && lived <= 32 : lived >= 2 && lived <= 4)) printf("    lived for %d s\n", lived);
        leave(s);
    }
}

/* A machine that was asleep: time jumps. What had a deadline ends, what works on goes on; if a clock should go back nothing ends too early. */
static void clock_jumps(void) {
    world_socket *idle = client_of("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000),
                 *busy = client_of(POST_HEAD "Content-Length: 9\r\n\r\n1 w- 1 10", 1000),
                 *body = client_of(POST_HEAD "Content-Length: 900\r\n\r\n", 1000);
    pass_time(-500);
    CHECK(idle->open && busy->open && body->open);
    pass_time(1e7);
    world_settle();
    CHECK(!idle->open && busy->open && body->server_shut && memmem(body->out.data, body->out.len, "408", 3));
    while (engine_turn(1)) world_settle();
    CHECK(busy->open && memmem(busy->out.data, busy->out.len, "200 OK", 6));
    world_leave(idle), world_leave(body);
    leave(busy);
}

/* No descriptor is left: who has been at rest for longest makes room, then who sends slowest; nobody whose request is being answered. */
static void few_files(void) {
    static const char health[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    world_socket *c[6];
    for (int i = 0; i < 6; i++) {
        c[i] = client_of(i == 1   ? POST_HEAD "Content-Length: 11\r\n\r\n1 w- 1000 1"
                         : i == 4 ? "GET /he"
                                  : "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                         1000);
        pass_time(1);
    }
    world_put(&c[0]->in, health, strlen(health)); /* heard of again, so the third is the oldest now */
    world_settle();
    static const int order[] = {2, 3, 5, 0, 4};
    for (size_t i = 0; i < N_OF(order); i++) {
        if (i == 4) pass_time(4), CHECK(c[4]->open);
        world.no_files = 1;
        world_socket *late = client_of("POST", 1000); /* not at rest itself: what it sends has begun */
        if (!CHECK(late->open && !c[order[i]]->open)) printf("    connection %d did not make room\n", order[i]);
        world_leave(late);
        world_settle();
    }
    CHECK(c[1]->open);
    for (int i = 0; i < 6; i++) world_leave(c[i]);
    world_settle();
    CHECK(!net.list && !net.lists[LIST_REST].first && !net.lists[LIST_REST].last);
}

/* Large bodies of all together are bounded: the slowest makes room. */
static void many_bodies(void) {
    static char part[1 << 20];
    world_socket *c[8];
    memset(part, ' ', sizeof part);
    for (int i = 0; i < 8; i++) {
        c[i] = client_of(POST_HEAD "Content-Length: 33000000\r\n\r\n", 1000);
        pass_time(0.5);
    }
    for (int k = 0; k < 30; k++)
        for (int i = 0; i < 8; i++) {
            if (i == 3 && k > 1) continue; /* one that is slower than all others */
            if (c[i]->open && !c[i]->server_shut) world_put(&c[i]->in, part, sizeof part);
            world_settle();
            CHECK(net.bodies[1] <= NET_MAX_BODIES);
        }
    int refused = 0;
    for (int i = 0; i < 8; i++) refused += c[i]->out.data && memmem(c[i]->out.data, c[i]->out.len, "HTTP/1.1 503", 12);
    CHECK(refused >= 3 && refused <= 5 && memmem(c[3]->out.data ? c[3]->out.data : "", c[3]->out.len, "HTTP/1.1 503", 12));
    world_socket *small = client_of(POST_HEAD "Content-Length: 8\r\n\r\n1 w- 1 1", 1000);
    while (engine_turn(1)) world_settle();
    CHECK(small->out.data && memmem(small->out.data, small->out.len, "HTTP/1.1 200", 12));
    for (int i = 0; i < 8; i++) world_leave(c[i]);
    leave(small);
}

/* A body may take many times its bytes when it was read; the one that does so where others have all that there is ends. */
static void heavy_bodies(void) {
    world_socket *c[6];
    fake_weight = (40 << 20) / 11;
    for (int i = 0; i < 6; i++) c[i] = client_of(POST_HEAD "Content-Length: 11\r\n\r\n1 w- 1000 1", 1000);
    for (int i = 0; i < 6; i++) {
        const int refused = c[i]->out.data && memmem(c[i]->out.data, c[i]->out.len, "HTTP/1.1 503", 12);
        if (!CHECK(refused == (i >= 3))) printf("    body %d is %srefused\n", i, refused ? "" : "not ");
    }
    fake_weight = 3;
    CHECK(net.bodies[0] <= NET_MAX_BODIES);
    for (int i = 1; i < 6; i++) world_leave(c[i]);
    leave(c[0]);
}

/* What an answer's head and body say to whom: HTTP/1.0 is told that a connection is kept, and errors have the form of the path's API. */
static void forms(void) {
    static const char error[] = "{\"type\":\"error\",";
    static const struct {
        const char *line, *more, *want, *without;
    } rows[] = {{"GET /ping HTTP/1.0", "Connection: keep-alive\r\n", "\r\nConnection: keep-alive\r\n\r\n", "close"},
                {"GET /ping HTTP/1.0", "", "\r\nConnection: close\r\n\r\n", "keep-alive"},
                {"GET /ping HTTP/1.1", "", "HTTP/1.1 200", "Connection:"},
                {"GET /v1/messages HTTP/1.1", "", error, "param"},
                {"GET /messages HTTP/1.1", "", error, "param"},
                {"GET /messages/x HTTP/1.1", "", error, "param"},
                {"GET /v1/messagesX HTTP/1.1", "", "\"param\":", error},
                {"GET /xmessages HTTP/1.1", "", "\"param\":", error}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        char text[300];
        snprintf(text, sizeof text, "%s\r\nHost: localhost\r\nAuthorization: Bearer sesame\r\n%s\r\n", rows[i].line, rows[i].more);
        world_socket *s = client_of(text, 4000);
        world_put(&s->out, "", 1);
        if (!CHECK(strstr(s->out.data, rows[i].want) && !strstr(s->out.data, rows[i].without)))
            printf("    %s: %s\n", rows[i].line, s->out.data);
        CHECK(s->server_shut == !strcmp(rows[i].without, "keep-alive"));
        leave(s);
    }
}

/* Where all workers but one are at what takes long, no call is begun that may take long too, however short its body is. */
static void slow_kinds(void) {
    static const llm_openai_kind kinds[] = {LLM_OPENAI_CONTEXT_SAVE, LLM_OPENAI_CONTEXT_LOAD, LLM_OPENAI_LORA_LOAD};
    for (size_t i = 0; i < N_OF(kinds); i++) {
        static conn slow, other;
        memset(&slow, 0, sizeof slow);
        memset(&other, 0, sizeof other);
        call_begin(&slow, kinds[i]);
        call_begin(&other, LLM_OPENAI_LORA_UNLOAD);
        queue.slow = server.cfg.n_workers - 1;
        if (!CHECK(work_take() == other.call)) printf("    kind %d\n", (int)kinds[i]);
        queue.slow = 0;
        CHECK(work_take() == slow.call && !work_take());
        free(slow.call);
        free(other.call);
    }
}

/* Threads that the system does not give: none is an error at start, some are fewer workers. */
static void few_threads(void) {
    pthread_t loader, worker[64];
    for (int k = 1; k <= 3; k++) {
        world.threads = 0;
        world.no_thread = k;
        fflush(stdout);
        const pid_t child = k < 3 ? fork() : 0;
        int status = 0;
        if (!child && k < 3) {
            if (!freopen("/dev/null", "w", stderr)) _exit(9);
            start_threads(&loader, worker);
            _exit(0);
        }
        if (k < 3) CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1);
        else CHECK(start_threads(&loader, worker) == 1 && server.cfg.n_workers == 1);
    }
    server.cfg.n_workers = 2;
    world.no_thread = 0;
}

TEST_GROUP(connection_limits) {
    serve_nobody();
    slow_clients();
    lingering();
    clock_jumps();
    few_files();
    many_bodies();
    heavy_bodies();
    forms();
    slow_kinds();
    few_threads();
}

TEST_GROUP(connections) {
    const long steps = test_argc > 0 ? atol(test_argv[0]) : TEST_BRIEF ? 20000 : 200000;
    const uint64_t seed = test_argc > 1 ? strtoull(test_argv[1], NULL, 10) : 1;
    serve_nobody();
    world.random = seed * 0x9E3779B97F4A7C15u + 1;
    for (int n = 0; play.steps < steps && !play.wrong; n++) epoch(n % 4 < 2 ? 0 : n % 4 - 1, 4000);
    CHECK(play.wrong == NULL);
    if (play.wrong) printf("    %s: %s (step %ld, seed %llu)\n", play.wrong, play.about, play.steps, (unsigned long long)seed);
    CHECK(play.answers > steps / 200);
    while (net.list) conn_close(net.list), net_bury();
    world_settle();
    CHECK(!fake_calls && !net.unsent && !net.bodies[0] && !net.bodies[1] && !net.n);
    for (int i = 0; i < 2; i++) CHECK(!served[i].calls && !served[i].waiting);
    if (!test_argc)
        CHECK((long)served[1].n_loads > steps / 2000 && (long)served[0].n_unloads > steps / 2000 &&
              (long)served[1].n_failed > steps / 40000);
    printf("    %ld steps, %ld answers, %ld connections ended, %llu loads\n", play.steps, play.answers, play.closed,
           (unsigned long long)(served[0].n_loads + served[1].n_loads));
}
