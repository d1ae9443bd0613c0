/* llm_serve without a system: its source with fake sockets and a fake clock, so that a test decides what arrives when, in which pieces, and what
 * fails. A test that wants no library either defines its own names for what it fakes before it includes this.
 *
 * A fake socket is two queues: bytes on their way to the server, and bytes that it has sent and nobody has read, of which there is room for so
 * many. epoll is level-triggered, as the server has it: world_ready says what it would report. The clock is net.now. */
#ifndef WORLD_H
#define WORLD_H
#include "../test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { WORLD_FIRST = 1000, WORLD_SOCKETS = 64 }; /* descriptors of fake sockets */

typedef struct world_queue {
    char *data;
    size_t at, len, cap;
} world_queue;

typedef struct world_socket {
    int open, waits, server_shut; /* the server's side; waits: at the listener */
    int held, client_shut, reset; /* the client's side; it has said its last; it has gone, or was cut off */
    size_t room;                  /* bytes that may wait in `out` */
    world_queue in, out;          /* to the server, from the server */
    uint32_t watched;
    void *watcher;
} world_socket;

static struct {
    world_socket socket[WORLD_SOCKETS];
    uint64_t random;
    int faults;             /* calls are interrupted and short at times */
    int no_files;           /* accept finds no descriptor, until one is closed */
    int threads, no_thread; /* that were started; the number of the one that cannot be, 0: none */
    int left_watched;       /* sockets that were closed while epoll watched them: a child that is being started may have them still */
} world;

static uint64_t world_random(uint64_t below) {
    world.random ^= world.random << 13;
    world.random ^= world.random >> 7;
    world.random ^= world.random << 17;
    return (world.random * 0x9E3779B97F4A7C15u >> 20) % below;
}

static size_t world_waiting(const world_queue *q) { return q->len - q->at; }

static void world_put(world_queue *q, const char *p, size_t n) {
    if (q->at == q->len) q->at = q->len = 0;
    if (q->len + n > q->cap) {
        q->cap = 2 * (q->len + n);
        q->data = (char *)realloc(q->data, q->cap);
    }
    if (n) memcpy(q->data + q->len, p, n);
    q->len += n;
}

static size_t world_get(world_queue *q, void *p, size_t n) {
    if (n > world_waiting(q)) n = world_waiting(q);
    if (n) memcpy(p, q->data + q->at, n);
    q->at += n;
    return n;
}

static world_socket *world_of(int fd) {
    world_socket *s = fd >= WORLD_FIRST && fd < WORLD_FIRST + WORLD_SOCKETS ? &world.socket[fd - WORLD_FIRST] : NULL;
    errno = EBADF;
    return s && s->open ? s : NULL;
}

/* A new client, who waits at the listener. NULL: there are enough. */
static world_socket *world_connect(size_t room) {
    world_socket *s = world.socket;
    while (s < world.socket + WORLD_SOCKETS && (s->open || s->held)) s++;
    if (s == world.socket + WORLD_SOCKETS) return NULL;
    free(s->in.data);
    free(s->out.data);
    memset(s, 0, sizeof *s);
    s->waits = s->held = 1;
    s->room = room;
    return s;
}

/* The client is gone, and its socket is free when the server's side is closed too. */
static void world_leave(world_socket *s) {
    s->reset = s->client_shut = 1;
    s->held = s->waits = 0;
}

/* What epoll would report of a socket now. */
static uint32_t world_ready(const world_socket *s) {
    uint32_t e = s->reset ? EPOLLERR | EPOLLHUP | EPOLLIN | EPOLLRDHUP : 0;
    if (world_waiting(&s->in) || s->client_shut) e |= EPOLLIN;
    if (s->client_shut) e |= EPOLLRDHUP;
    if (s->client_shut && s->server_shut) e |= EPOLLHUP;
    if (world_waiting(&s->out) < s->room) e |= EPOLLOUT;
    return s->open ? e & (s->watched | EPOLLERR | EPOLLHUP) : 0;
}

/* ---- the system's calls, as the server makes them */

static int world_interrupted(void) {
    errno = EINTR;
    return world.faults && !world_random(50);
}

/* As much as is there, or may be at a time. */
static size_t world_part(size_t n) { return n && world.faults && !world_random(3) ? 1 + world_random(n) : n; }

static ssize_t world_recv(int fd, void *p, size_t n) {
    world_socket *s = world_of(fd);
    if (!s || world_interrupted()) return -1;
    errno = s->reset ? ECONNRESET : EAGAIN;
    if (s->reset || (!world_waiting(&s->in) && !s->client_shut)) return -1;
    return (ssize_t)world_get(&s->in, p, world_part(n < world_waiting(&s->in) ? n : world_waiting(&s->in)));
}

static ssize_t world_send(int fd, const void *p, size_t n) {
    world_socket *s = world_of(fd);
    if (!s || world_interrupted()) return -1;
    const size_t room = s->room > world_waiting(&s->out) ? s->room - world_waiting(&s->out) : 0;
    errno = s->reset || s->server_shut ? EPIPE : EAGAIN;
    if (s->reset || s->server_shut || !room) return -1;
    n = world_part(n < room ? n : room);
    world_put(&s->out, (const char *)p, n);
    return (ssize_t)n;
}

static int world_shutdown(int fd) {
    world_socket *s = world_of(fd);
    if (s) s->server_shut = 1;
    return s ? 0 : -1;
}

static int world_close(int fd) {
    world_socket *s = world_of(fd);
    world.no_files = 0;
    world.left_watched += s && s->watched;
    if (s) s->open = 0, s->watched = 0;
    return fd >= WORLD_FIRST ? s ? 0 : -1 : fd < 0 ? -1 : close(fd);
}

static int world_accept(struct sockaddr *from) {
    world_socket *s = world.socket;
    while (s < world.socket + WORLD_SOCKETS && !s->waits) s++;
    errno = world.no_files ? EMFILE : EAGAIN;
    if (s == world.socket + WORLD_SOCKETS || world.no_files) return -1;
    if (from) from->sa_family = AF_UNIX;
    s->waits = 0;
    s->open = 1;
    return WORLD_FIRST + (int)(s - world.socket);
}

/* The server's own memory, counted and failing like the library's. */
static void *world_calloc(size_t n, size_t size) {
    void *p = test_malloc(n * size);
    if (p) memset(p, 0, n * size);
    return p;
}

/* The system needs memory too for what it watches. */
static int world_epoll(int fd, int how, const struct epoll_event *e) {
    world_socket *s = world_of(fd);
    if (how == EPOLL_CTL_DEL) {
        if (s) s->watched = 0;
        return s ? 0 : -1;
    }
    void *p = test_malloc(1);
    test_free(p);
    if (!p || !s) return -1;
    s->watched = e->events;
    s->watcher = e->data.ptr;
    return 0;
}

static int world_thread(pthread_t *t) {
    memset(t, 0, sizeof *t);
    return ++world.threads == world.no_thread ? EAGAIN : 0;
}

#define recv(fd, p, n, flags) world_recv(fd, p, n)
#define send(fd, p, n, flags) world_send(fd, p, n)
#define shutdown(fd, how) world_shutdown(fd)
#define close(fd) world_close(fd)
#define accept4(fd, from, len, flags) ((void)(fd), world_accept(from))
#define epoll_ctl(epoll, how, fd, e) world_epoll(fd, how, e)
#define setsockopt(fd, level, name, value, n) (void)(value)
#define pthread_create(thread, attributes, run, argument) world_thread(thread)
#define calloc(n, size) world_calloc(n, size)
#define free(p) test_free(p)

#define LLM_H_INCLUDED  /* the parts' own headers are here already */
#define main SERVE_MAIN /* by another name in each test */
#ifndef SERVE_SOURCE
#define SERVE_SOURCE "../../../llm_serve.c"
#endif
#include SERVE_SOURCE
#undef main
#undef recv
#undef send
#undef shutdown
#undef close
#undef accept4
#undef epoll_ctl
#undef setsockopt
#undef pthread_create
#undef calloc
#undef free

/* ---- what the event loop does, one thing at a time */

/* Tells the server of one socket what epoll would. 0: nothing. */
static int world_event(world_socket *s) {
    const uint32_t e = world_ready(s);
    if (e) conn_event((conn *)s->watcher, e);
    return e != 0;
}

/* A worker's turn. 0: there is nothing that one more might do. */
static int world_work(void) {
    pthread_mutex_lock(&queue.mutex);
    call *k = work_take();
    if (k) work_do(k);
    pthread_mutex_unlock(&queue.mutex);
    return k != NULL;
}

/* ---- what clients understand */

typedef struct world_answer {
    int status, closing; /* closing: it says "Connection: close" */
    int chunked;
    world_queue body; /* without its chunks */
} world_answer;

/* Takes one chunked body from what came. Returns its length there; 0: it is not whole yet, or (*bad) malformed. */
static size_t world_unchunk(const char *p, size_t n, world_queue *out, int *bad) {
    size_t at = 0;
    for (;;) {
        const char *end = n > at ? (const char *)memmem(p + at, n - at, "\r\n", 2) : NULL;
        if (!end) return 0;
        const size_t size = strtoul(p + at, NULL, 16), from = (size_t)(end - p) + 2;
        if (from + size + 2 > n) return 0;
        if (memcmp(p + from + size, "\r\n", 2)) return *bad = 1, (size_t)0;
        world_put(out, p + from, size);
        at = from + size + 2;
        if (!size) return at;
    }
}

/* Takes the next answer off what came; interim ones are passed over. 1: it is whole, and its body is to be freed; 0: not yet; -1: it is
 * malformed. */
static int world_take_answer(world_queue *q, int is_head, world_answer *a) {
    memset(a, 0, sizeof *a);
    for (;;) {
        const char *p = q->data + q->at, *end = world_waiting(q) ? (const char *)memmem(p, world_waiting(q), "\r\n\r\n", 4) : NULL;
        const size_t head = end ? (size_t)(end - p) + 4 : 0, left = world_waiting(q) - head;
        int bad = 0;
        if (world_waiting(q) >= 9 && memcmp(p, "HTTP/1.1 ", 9)) return -1;
        if (!end) return 0;
        a->status = atoi(p + 9);
        if (a->status == 100) {
            q->at += head;
            continue;
        }
        const char *length = (const char *)memmem(p, head, "Content-Length: ", 16);
        size_t used = length ? strtoul(length + 16, NULL, 10) : 0;
        a->closing = memmem(p, head, "Connection: close", 17) != NULL;
        a->chunked = !length;
        if (is_head && a->status != 408) used = 0; /* whose head did not come is not known to be one */
        if (length && used > left) return 0;
        if (length) world_put(&a->body, p + head, used);
        else used = world_unchunk(p + head, left, &a->body, &bad);
        if (bad || (!length && !used)) return free(a->body.data), bad ? -1 : 0;
        q->at += head + used;
        return 1;
    }
}

static int (*world_load)(void); /* the loader's turn; NULL: nothing is loaded */

/* Everything that can happen without time passing, clients' acts or the engine. */
static int world_settle(void) {
    int any = 0, moved;
    do {
        moved = calls_news();
        for (int i = 0; i < WORLD_SOCKETS; i++) moved |= world_event(&world.socket[i]);
        moved |= world_work();
        models_turn();
        moved |= world_load && world_load();
        any |= moved;
    } while (moved);
    net_bury();
    return any;
}
#endif
