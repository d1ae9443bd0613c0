/* link: connections between the processes of one model: who may join, frames, what all must know.
 *
 * Process 0 listens, the others connect, and there are no connections but these. A frame is a head (kind, bytes) and its bytes, in the
 * order of this machine: only processes of the same build talk to each other.
 *
 *     process r                                   process 0
 *     hello: version, rank, n, a number      ->
 *                                            <-   another number, HMAC(secret, "0" hello number)
 *     HMAC(secret, "1" hello number)         ->
 *                                            <-   welcome, or a sentence why not
 *
 * A frame of 11 bytes as they go over the connection, the last padded to eight, and one that tells all others why this process cannot
 * go on:
 *
 *     04 00 00 00  00 00 00 00   10 00 00 00 00 00 00 00   abcdefgh ijk.....         LLM__FRAME_STEP, 16 bytes
 *     02 00 00 00  00 00 00 00   14 00 00 00 00 00 00 00   cuda device 1: lost!      LLM__FRAME_ERROR, 20 bytes
 *
 * Sockets are never waited in for longer than a tenth of a second: between two waits a process looks whether another one has gone. One
 * thread, the one that steps, sends and reads; any thread may ask whether somebody is lost (llm_nodes_lost), which reads nothing.
 *
 * Both show that they know the secret, and neither gives away what would let another one in. After that a connection that ends is a
 * process that is lost, and so is one whose machine does not answer for six seconds (TCP's own probes). Whoever fails says why before it
 * closes. A wait for a frame has no end but the loss of somebody, since loading takes what it takes. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/nodes.h"
#include "api/backend.h"
#include "base/platform.h"

enum {
    LLM__FRAME_WELCOME = 1,
    LLM__FRAME_ERROR, /* a sentence */
    LLM__FRAME_SHARE,
    LLM__FRAME_STEP,
    LLM__FRAME_WAIT,
    LLM__FRAME_KV_COPY,
    LLM__FRAME_KV_READ,
    LLM__FRAME_KV_WRITE,
    LLM__FRAME_ROWS,
    LLM__FRAME_REPLY,
    LLM__FRAME_END
};

/* Bytes of a frame, that grow as needed. Reading: `at` moves on. `failed`: no memory, or less there than was asked for. */
typedef struct llm__wire {
    uint8_t *data;
    size_t len, cap, at;
    int reading, failed;
} llm__wire;

/* Room for n more bytes; 0: no memory. */
LLM__PRIVATE int llm__wire_room(llm__wire *w, size_t n);
/* Writes *p (n bytes, on 8 bytes), or lets it point to the next n bytes of what was read. */
LLM__PRIVATE void llm__wire_bytes(llm__wire *w, const void **p, size_t n);
/* The same of a value. */
LLM__PRIVATE void llm__wire_value(llm__wire *w, void *value, size_t n);

struct llm_nodes {
    llm_nodes_config cfg;       /* without its texts */
    int fd[256];                /* to each process; -1: this one, or not there */
    char peer[256][64];         /* their addresses */
    int gone;                   /* atomic */
    char why[512];              /* of the thread that steps */
    llm__wire in, out;          /* of the same */
    const llm_backend *backend; /* of this process's ranks, */
    const llm_model *model;     /* and what they compute: see llm__nodes_wrap */
};

/* Sending waits until the system has taken all bytes, also those of a page of keys and values, so that the caller's memory is free again
 * when it returns; a process that has stopped reading holds it up until its connection ends.
 *
 * One frame to a process. The error, also of a process that has gone, is that of the whole. */
LLM__PRIVATE llm_result llm__link_send(llm_nodes *l, int to, int kind, const void *data, size_t n);
/* The same to all others. */
LLM__PRIVATE llm_result llm__link_tell(llm_nodes *l, int kind, const void *data, size_t n);
/* Waits for the next frame of a process, into l->in. */
LLM__PRIVATE llm_result llm__link_next(llm_nodes *l, int from, int *kind);
/* llm_backend_config.share and .lost: what every process has, to all; whether a step that is waited for may still end. Both belong to the
 * thread that steps. A wait that asks costs a system call, so that it is not for every turn of a loop that spins. */
LLM__PRIVATE llm_result llm__link_share(void *nodes, void *all, size_t each);
LLM__PRIVATE int llm__link_lost(void *nodes);
/* This process, or another one, cannot go on: tells the others, once, and keeps the sentence. Returns r with it. */
LLM__PRIVATE llm_result llm__link_fail(llm_nodes *l, llm_result r, const char *why);
