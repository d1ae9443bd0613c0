#include "engine/link.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/nodes.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/sha256.h"

#include <netinet/tcp.h>

enum { LLM__LINK_RDHUP = 0x2000 }; /* POLLRDHUP, which headers show to GNU's programs only */

/* The first bytes of a connection. */
typedef struct llm__hello {
    char magic[8];
    int32_t version, abi, step_size, rank, n, zero;
    uint8_t number[16];
} llm__hello;

/* The head of a frame; n: bytes behind it. */
typedef struct llm__frame {
    int32_t kind, zero;
    uint64_t n;
} llm__frame;

LLM__PRIVATE int llm__wire_room(llm__wire *w, size_t n) {
    uint8_t *grown = w->len + n > w->cap ? (uint8_t *)LLM_REALLOC(w->data, 2 * w->cap + n + 4096) : w->data;
    if (!grown) return n == 0;
    if (w->len + n > w->cap) w->cap = 2 * w->cap + n + 4096;
    w->data = grown;
    return 1;
}

LLM__PRIVATE void llm__wire_bytes(llm__wire *w, const void **p, size_t n) {
    static const uint8_t zeros[8] = LLM__ZERO;
    const size_t whole = (n + 7) & ~(size_t)7;
    if (w->failed) return;
    if (w->reading) {
        if (n > w->len - w->at || whole > w->len - w->at) {
            w->failed = 1;
            return;
        }
        *p = w->data + w->at;
        w->at += whole;
        return;
    }
    if (!llm__wire_room(w, whole)) {
        w->failed = 1;
        return;
    }
    if (n) memcpy(w->data + w->len, *p, n);
    if (whole > n) memcpy(w->data + w->len + n, zeros, whole - n);
    w->len += whole;
}

LLM__PRIVATE void llm__wire_value(llm__wire *w, void *value, size_t n) {
    const void *p = value;
    llm__wire_bytes(w, &p, n);
    if (!w->failed && w->reading) memcpy(value, p, n);
}

static void llm__wire_free(llm__wire *w) {
    LLM_FREE(w->data);
    w->data = NULL;
    w->len = w->cap = 0;
}

/* The lowest number of a process whose connection has ended; -1: none has. */
static int llm__link_ended(const llm_nodes *l) {
    struct pollfd p[256];
    for (int i = 0; i < l->cfg.n; i++) p[i].fd = l->fd[i], p[i].events = LLM__LINK_RDHUP, p[i].revents = 0;
    if (poll(p, (nfds_t)l->cfg.n, 0) <= 0) return -1;
    for (int i = 0; i < l->cfg.n; i++)
        if (p[i].revents & (LLM__LINK_RDHUP | POLLHUP | POLLERR)) return i;
    return -1;
}

LLM_API int llm_nodes_lost(const llm_nodes *l) { return __atomic_load_n(&l->gone, __ATOMIC_ACQUIRE) || llm__link_ended(l) >= 0; }

LLM__PRIVATE llm_result llm__link_fail(llm_nodes *l, llm_result r, const char *why) {
    if (!__atomic_load_n(&l->gone, __ATOMIC_ACQUIRE)) {
        snprintf(l->why, sizeof l->why, "%.500s", why);
        __atomic_store_n(&l->gone, 1, __ATOMIC_RELEASE);
        for (int i = 0; i < l->cfg.n; i++) {
            const llm__frame head = {LLM__FRAME_ERROR, 0, strlen(l->why)};
            uint8_t all[sizeof head + sizeof l->why];
            if (l->fd[i] < 0) continue;
            memcpy(all, &head, sizeof head);
            memcpy(all + sizeof head, l->why, (size_t)head.n);
            (void)!send(l->fd[i], all, sizeof head + (size_t)head.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    return llm__error(r, "%s", l->why);
}

/* Of a process whose connection has ended. It did not say why, or it would have been read: it was killed, its machine is gone, or the
 * network between. */
static llm_result llm__link_gone(llm_nodes *l, int i) {
    char why[200];
    snprintf(why, sizeof why, "a rank was lost: process %d (%s) has ended or does not answer", i, l->peer[i]);
    return llm__link_fail(l, LLM_ERR_BACKEND, why);
}

/* Moves n bytes; returns when they are there, or 0 when this connection, any other one (with l), or the time has ended. */
static int llm__link_move(const llm_nodes *l, int fd, void *data, size_t n, int out, double until) {
    uint8_t *at = (uint8_t *)data;
    while (n) {
        struct pollfd p = {fd, (short)(out ? POLLOUT : POLLIN), 0};
        if (poll(&p, 1, 100) < 0 && errno != EINTR) return 0;
        if (!p.revents) {
            if ((until > 0 && llm__now() > until) || (l && llm_nodes_lost(l))) return 0;
            continue;
        }
        const ssize_t done = out ? send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, n, MSG_DONTWAIT);
        if (done < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (done <= 0) return 0;
        at += done;
        n -= (size_t)done;
    }
    return 1;
}

LLM__PRIVATE llm_result llm__link_send(llm_nodes *l, int to, int kind, const void *data, size_t n) {
    llm__frame head = {kind, 0, n};
    if (l->gone) return llm__error(LLM_ERR_BACKEND, "%s", l->why);
    if (llm__link_move(l, l->fd[to], &head, sizeof head, 1, 0) && llm__link_move(l, l->fd[to], (void *)(uintptr_t)data, n, 1, 0))
        return LLM_OK;
    const int ended = llm__link_ended(l);
    return llm__link_gone(l, ended >= 0 ? ended : to);
}

LLM__PRIVATE llm_result llm__link_tell(llm_nodes *l, int kind, const void *data, size_t n) {
    llm_result r = LLM_OK;
    for (int i = 0; i < l->cfg.n && !r; i++)
        if (l->fd[i] >= 0) r = llm__link_send(l, i, kind, data, n);
    return r;
}

/* Room for n bytes in l->in, less what is unreasonable. The memory stays for the next frame: in the long run nothing is allocated. */
static int llm__link_room(llm_nodes *l, uint64_t n) {
    if (n > (uint64_t)1 << 34) return 0;
    l->in.len = 0;
    if (!llm__wire_room(&l->in, (size_t)n)) return 0;
    l->in.len = (size_t)n;
    l->in.at = 0;
    l->in.failed = 0;
    l->in.reading = 1;
    return 1;
}

/* A sentence instead of a frame makes this process fail with it, and those that hear from this one. */
LLM__PRIVATE llm_result llm__link_next(llm_nodes *l, int from, int *kind) {
    llm__frame head;
    *kind = 0;
    if (l->gone) return llm__error(LLM_ERR_BACKEND, "%s", l->why);
    if (llm__link_move(l, l->fd[from], &head, sizeof head, 0, 0)) {
        if (!llm__link_room(l, head.n)) return llm__link_fail(l, LLM_ERR_NOMEM, "a frame between processes: out of memory");
        *kind = head.kind;
        if (llm__link_move(l, l->fd[from], l->in.data, l->in.len, 0, 0)) {
            char why[600];
            if (head.kind != LLM__FRAME_ERROR) return LLM_OK;
            snprintf(why, sizeof why, "process %d: %.*s", from, (int)LLM__MIN(l->in.len, (size_t)480), (const char *)l->in.data);
            return llm__link_fail(l, LLM_ERR_BACKEND, why);
        }
    }
    const int ended = llm__link_ended(l);
    return llm__link_gone(l, ended >= 0 ? ended : from);
}

/* Each sends what it has to process 0, which sends all of it to each. */
LLM__PRIVATE llm_result llm__link_share(void *nodes, void *all, size_t each) {
    llm_nodes *l = (llm_nodes *)nodes;
    uint8_t *to = (uint8_t *)all;
    const size_t whole = each * (size_t)l->cfg.n;
    llm_result r = LLM_OK;
    int kind;
    if (l->cfg.rank) r = llm__link_send(l, 0, LLM__FRAME_SHARE, to + each * (size_t)l->cfg.rank, each);
    for (int i = 0; i < l->cfg.n && !r; i++) {
        if (l->fd[i] < 0) continue;
        r = llm__link_next(l, i, &kind);
        if (!r && (kind != LLM__FRAME_SHARE || l->in.len != (l->cfg.rank ? whole : each)))
            r = llm__link_fail(l, LLM_ERR_ARG, "processes with other options: they do not open the same engine");
        if (!r) memcpy(l->cfg.rank ? to : to + each * (size_t)i, l->in.data, l->in.len);
    }
    return r || l->cfg.rank ? r : llm__link_tell(l, LLM__FRAME_SHARE, all, whole);
}

/* While a step runs nobody says anything to process 0 but why it cannot go on. */
LLM__PRIVATE int llm__link_lost(void *nodes) {
    llm_nodes *l = (llm_nodes *)nodes;
    struct pollfd p[256];
    int kind;
    if (l->gone) return 1;
    if (l->cfg.rank) return llm__link_ended(l) >= 0 ? llm__link_gone(l, 0), 1 : 0;
    for (int i = 0; i < l->cfg.n; i++) p[i].fd = l->fd[i], p[i].events = POLLIN | LLM__LINK_RDHUP, p[i].revents = 0;
    if (poll(p, (nfds_t)l->cfg.n, 0) <= 0) return 0;
    for (int i = 0; i < l->cfg.n && !l->gone; i++)
        if (p[i].revents && !llm__link_next(l, i, &kind)) llm__link_fail(l, LLM_ERR_BACKEND, "a process speaks out of turn");
    return 1;
}

/* What TCP is to do: send at once, and notice within seconds that a machine is no longer there. After two seconds of silence it is asked
 * each second, and counts as gone when it has not answered three times; what was sent and not received counts for six seconds. Both lie
 * under the ten seconds in which all are to have ended. */
static void llm__link_tune(int fd) {
    const int one = 1, idle = 2, count = 3, most = 6000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof most);
}

/* out (32): what only who knows the secret can say of a hello and process 0's number. */
static void llm__link_proof(const char *secret, char who, const llm__hello *h, const uint8_t *number, uint8_t *out) {
    uint8_t all[1 + sizeof *h + 16];
    all[0] = (uint8_t)who;
    memcpy(all + 1, h, sizeof *h);
    memcpy(all + 1 + sizeof *h, number, 16);
    llm__hmac(secret ? secret : "", secret ? strlen(secret) : 0, all, sizeof all, out);
}

/* Equal, in a time that says nothing about where they differ. */
static int llm__link_same(const uint8_t *a, const uint8_t *b) {
    int differ = 0;
    for (int i = 0; i < 32; i++) differ |= a[i] ^ b[i];
    return !differ;
}

/* What a process says first: all that must be equal between two builds for them to understand each other, and a number that was never
 * used, so that nobody can answer with what he heard another time. */
static void llm__link_hello(const llm_nodes_config *c, llm__hello *h) {
    memset(h, 0, sizeof *h);
    memcpy(h->magic, "LLMNODE", 8);
    h->version = LLM_VERSION;
    h->abi = LLM_BACKEND_ABI;
    h->step_size = (int32_t)sizeof(llm_step);
    h->rank = c->rank;
    h->n = c->n;
    llm__random_bytes(h->number, sizeof h->number);
}

/* Why a hello cannot be let in; "": it can. */
static void llm__link_judge(const llm_nodes *l, const llm__hello *h, char why[200]) {
    *why = 0;
    if (h->version != LLM_VERSION || h->abi != LLM_BACKEND_ABI || h->step_size != (int32_t)sizeof(llm_step))
        snprintf(why, 200, "version %d.%d of process %d: process 0 has %d.%d, the same build was expected", (int)h->version, (int)h->abi,
                 (int)h->rank, LLM_VERSION, LLM_BACKEND_ABI);
    else if (h->n != l->cfg.n || h->rank < 1 || h->rank >= l->cfg.n)
        snprintf(why, 200, "process %d of %d: process 0 expects 1 to %d of %d", (int)h->rank, (int)h->n, (int)l->cfg.n - 1, (int)l->cfg.n);
    else if (l->fd[h->rank] >= 0) snprintf(why, 200, "process %d is there already (%s)", (int)h->rank, l->peer[h->rank]);
}

/* Process 0: one who has connected. 1: let in; else `why` says why not. */
static int llm__link_admit(llm_nodes *l, const char *secret, int fd, const char *from, char why[200]) {
    const double until = llm__now() + 5;
    llm__hello h;
    uint8_t said[48], proof[32];
    llm__frame head = {LLM__FRAME_WELCOME, 0, 0};
    snprintf(why, 200, "%s said nothing that was understood", from);
    if (!llm__link_move(NULL, fd, &h, sizeof h, 0, until) || memcmp(h.magic, "LLMNODE", 8)) return 0;
    llm__random_bytes(said, 16);
    llm__link_proof(secret, '0', &h, said, said + 16);
    if (!llm__link_move(NULL, fd, said, sizeof said, 1, until)) return 0;
    snprintf(why, 200, "%s has another secret", from);
    if (!llm__link_move(NULL, fd, proof, sizeof proof, 0, until)) return 0;
    llm__link_proof(secret, '1', &h, said, said + 16);
    if (llm__link_same(proof, said + 16)) llm__link_judge(l, &h, why);
    if (*why) head.kind = LLM__FRAME_ERROR, head.n = strlen(why);
    if (!llm__link_move(NULL, fd, &head, sizeof head, 1, until) || !llm__link_move(NULL, fd, why, (size_t)head.n, 1, until)) return 0;
    if (*why) return 0;
    l->fd[h.rank] = fd;
    snprintf(l->peer[h.rank], sizeof l->peer[h.rank], "%s", from);
    return 1;
}

/* Process 0 waits for all others, who come in any order. Somebody who is not let in costs it nothing but the time that he takes to say
 * hello, five seconds at most; so a program that tries ports, or a process of the last run, does not end the start. What was refused last
 * is said where nobody comes in time, for it may well be the one that was waited for. */
static llm_result llm__link_accept(llm_nodes *l, const llm_nodes_config *c, int listener, double until) {
    char why[200] = "", from[64];
    for (int left = c->n - 1; left > 0;) {
        struct pollfd p = {listener, POLLIN, 0};
        struct sockaddr_storage a;
        socklen_t size = sizeof a;
        if (llm__now() > until) {
            int i = 1;
            while (l->fd[i] >= 0) i++;
            return llm__error(LLM_ERR_BACKEND, "process %d of %d has not come to %s:%d in %g s%s%s", i, (int)c->n, c->address, (int)c->port,
                              c->timeout, *why ? "; refused: " : "", why);
        }
        if (poll(&p, 1, 100) <= 0) continue;
        const int fd = accept(listener, (struct sockaddr *)&a, &size);
        if (fd < 0) continue;
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        llm__link_tune(fd);
        if (getnameinfo((struct sockaddr *)&a, size, from, sizeof from, NULL, 0, NI_NUMERICHOST)) snprintf(from, sizeof from, "?");
        if (llm__link_admit(l, c->secret, fd, from, why)) left--, *why = 0;
        else close(fd);
    }
    return LLM_OK;
}

/* The others: says hello to process 0 and hears whether it may stay. */
static llm_result llm__link_join(llm_nodes *l, const llm_nodes_config *c, int fd, double until) {
    llm__hello h;
    llm__frame head;
    uint8_t said[48], proof[32];
    char why[200] = "";
    llm__link_hello(c, &h);
    if (!llm__link_move(NULL, fd, &h, sizeof h, 1, until) || !llm__link_move(NULL, fd, said, sizeof said, 0, until))
        return llm__error(LLM_ERR_BACKEND, "process 0 at %s:%d does not answer", c->address, (int)c->port);
    llm__link_proof(c->secret, '0', &h, said, proof);
    if (!llm__link_same(proof, said + 16))
        return llm__error(LLM_ERR_ARG, "nodes_secret: process 0 at %s:%d has another one, the same was expected", c->address, (int)c->port);
    llm__link_proof(c->secret, '1', &h, said, proof);
    if (!llm__link_move(NULL, fd, proof, sizeof proof, 1, until) || !llm__link_move(NULL, fd, &head, sizeof head, 0, until) ||
        head.n >= sizeof why || !llm__link_move(NULL, fd, why, (size_t)head.n, 0, until))
        return llm__error(LLM_ERR_BACKEND, "process 0 at %s:%d does not answer", c->address, (int)c->port);
    if (head.kind != LLM__FRAME_WELCOME) return llm__error(LLM_ERR_ARG, "process 0 at %s:%d refuses: %s", c->address, (int)c->port, why);
    l->fd[0] = fd;
    snprintf(l->peer[0], sizeof l->peer[0], "%.40s:%d", c->address, (int)c->port);
    return LLM_OK;
}

/* 1: an address that only this machine reaches. */
static int llm__link_loopback(const struct addrinfo *a) {
    static const uint8_t v6[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    if (a->ai_family == AF_INET) return ntohl(((const struct sockaddr_in *)(const void *)a->ai_addr)->sin_addr.s_addr) >> 24 == 127;
    return a->ai_family == AF_INET6 && !memcmp(&((const struct sockaddr_in6 *)(const void *)a->ai_addr)->sin6_addr, v6, 16);
}

/* Listens at the address, or connects to it, again and again until there is somebody. */
static llm_result llm__link_connect(llm_nodes *l, const llm_nodes_config *c, const struct addrinfo *a, double until) {
    const int one = 1;
    for (;;) {
        const int fd = socket(a->ai_family, SOCK_STREAM, 0);
        if (fd < 0) return llm__error(LLM_ERR_IO, "a socket: %s", strerror(errno));
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        llm__link_tune(fd);
        llm_result r = LLM_OK;
        if (!c->rank) {
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
            if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 64))
                r = llm__error(LLM_ERR_ARG, "master_addr: %s:%d: %s", c->address, (int)c->port, strerror(errno));
            else r = llm__link_accept(l, c, fd, until);
            close(fd);
            return r;
        }
        if (!connect(fd, a->ai_addr, a->ai_addrlen)) {
            r = llm__link_join(l, c, fd, until);
            if (r) close(fd);
            return r;
        }
        const int why = errno;
        close(fd);
        if (llm__now() > until)
            return llm__error(LLM_ERR_BACKEND, "process 0 at %s:%d: %s for %g s", c->address, (int)c->port, strerror(why), c->timeout);
        poll(NULL, 0, 100);
    }
}

/* Process 0 listens at the address that was given, not at all that the machine has. */
LLM_API llm_result llm_nodes_open(const llm_nodes_config *cfg, llm_nodes **out) {
    llm_nodes_config c = *cfg;
    char port[12];
    struct addrinfo hint, *found = NULL;
    *out = NULL;
    memset(&hint, 0, sizeof hint);
    hint.ai_socktype = SOCK_STREAM;
    if (c.n < 2 || c.n > 256 || c.rank < 0 || c.rank >= c.n)
        return llm__error(LLM_ERR_ARG, "nodes: process %d of %d: 0 to %d of 2 to 256 expected", (int)c.rank, (int)c.n, (int)c.n - 1);
    if (c.port < 1 || c.port > 65535) return llm__error(LLM_ERR_ARG, "master_port: %d, must be 1 to 65535", (int)c.port);
    if (c.timeout <= 0) c.timeout = 600;
    snprintf(port, sizeof port, "%d", (int)c.port);
    if (!c.address || getaddrinfo(c.address, port, &hint, &found))
        return llm__error(LLM_ERR_ARG, "master_addr: %s: no address, a name or number of process 0's machine was expected",
                          c.address ? c.address : "none");
    llm_nodes *l = LLM__NEW(llm_nodes, 1);
    llm_result r = l ? LLM_OK : llm__nomem();
    if (!r && !(c.secret && *c.secret) && !llm__link_loopback(found))
        r = llm__error(LLM_ERR_ARG, "master_addr: %s: processes on several machines need a nodes_secret, the same everywhere", c.address);
    if (l) {
        l->cfg = c;
        l->cfg.address = l->cfg.secret = NULL;
        for (int i = 0; i < 256; i++) l->fd[i] = -1;
    }
    if (!r) r = llm__link_connect(l, &c, found, llm__now() + c.timeout);
    freeaddrinfo(found);
    if (r) llm_nodes_close(l);
    else *out = l;
    return r;
}

/* What was said last arrives before a connection ends: nothing is left unread, which would throw it away. */
LLM_API void llm_nodes_close(llm_nodes *l) {
    char rest[512];
    if (!l) return;
    for (int i = 0; i < l->cfg.n; i++)
        if (l->fd[i] >= 0) shutdown(l->fd[i], SHUT_WR);
    for (int i = 0; i < l->cfg.n; i++) {
        const double until = llm__now() + 1;
        if (l->fd[i] < 0) continue;
        while (llm__link_move(NULL, l->fd[i], rest, 1, 0, until)) (void)!recv(l->fd[i], rest, sizeof rest, MSG_DONTWAIT);
        close(l->fd[i]);
    }
    llm__wire_free(&l->in);
    llm__wire_free(&l->out);
    LLM_FREE(l);
}
