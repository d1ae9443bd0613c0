/* Processes of one model: what proves a secret, who is let in, what all get to know, and which process the environment says this is. The
 * "processes" are threads; real ones on the emulated devices are tests/cuda/test_cuda_nodes.py. */
#include "../test.h"
#include "api/backend.h"
#include "base/sha256.h"
#include "engine/link.h"
#include "engine/nodes.h"

/* RFC 4231, cases 1, 2 and 6 (a key longer than a block). */
static void nodes_hmac(void) {
    static const struct {
        const char *key, *data;
        uint8_t first[4], last[4];
    } rows[] = {{"\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b",
                 "Hi There",
                 {0xb0, 0x34, 0x4c, 0x61},
                 {0x2e, 0x32, 0xcf, 0xf7}},
                {"Jefe", "what do ya want for nothing?", {0x5b, 0xdc, 0xc1, 0x46}, {0x64, 0xec, 0x38, 0x43}}};
    uint8_t out[32], key[131];
    for (int i = 0; i < 2; i++) {
        llm__hmac(rows[i].key, strlen(rows[i].key), rows[i].data, strlen(rows[i].data), out);
        CHECK(!memcmp(out, rows[i].first, 4) && !memcmp(out + 28, rows[i].last, 4));
    }
    const char *data = "Test Using Larger Than Block-Size Key - Hash Key First";
    memset(key, 0xaa, sizeof key);
    llm__hmac(key, sizeof key, data, strlen(data), out);
    CHECK(out[0] == 0x60 && out[1] == 0xe4 && out[30] == 0x7f && out[31] == 0x54);
}

typedef struct nodes_one {
    llm_nodes_config cfg;
    llm_nodes *nodes;
    llm_result r;
    int32_t all[4];
    char why[300];
    pthread_t thread;
} nodes_one;

static void *nodes_main(void *arg) {
    nodes_one *o = (nodes_one *)arg;
    o->r = llm_nodes_open(&o->cfg, &o->nodes);
    if (!o->r) o->all[o->cfg.rank] = 10 + o->cfg.rank, o->r = llm__link_share(o->nodes, o->all, sizeof *o->all);
    if (o->r) snprintf(o->why, sizeof o->why, "%s", llm_last_error());
    return NULL;
}

/* A port that was free a moment ago. */
static int32_t nodes_port(void) {
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(fd, (struct sockaddr *)&a, n) && !getsockname(fd, (struct sockaddr *)&a, &n));
    close(fd);
    return ntohs(a.sin_port);
}

static void nodes_begin(nodes_one *o, int n, int32_t port, double timeout) {
    memset(o, 0, (size_t)n * sizeof *o);
    for (int i = 0; i < n; i++) {
        const llm_nodes_config c = {.rank = i, .n = n, .port = port, .address = "127.0.0.1", .secret = "right", .timeout = timeout};
        o[i].cfg = c;
    }
}

static void nodes_run(nodes_one *o, int n) {
    for (int i = 0; i < n; i++) pthread_create(&o[i].thread, NULL, nodes_main, &o[i]);
    for (int i = 0; i < n; i++) pthread_join(o[i].thread, NULL);
}

static void nodes_end(nodes_one *o, int n) {
    for (int i = n - 1; i >= 0; i--) llm_nodes_close(o[i].nodes);
}

static void nodes_links(void) {
    nodes_one o[3];
    int kind;
    nodes_begin(o, 3, nodes_port(), 20 * test_slow());
    nodes_run(o, 3);
    for (int i = 0; i < 3; i++)
        CHECK(!o[i].r && o[i].all[0] == 10 && o[i].all[1] == 11 && o[i].all[2] == 12 && !llm_nodes_lost(o[i].nodes));
    /* frames arrive in order, whole, on 8 bytes; what is not there cannot be read */
    llm__wire *in = &o[1].nodes->in;
    const void *p = "abcdefghijk";
    llm__wire_bytes(&o[0].nodes->out, &p, 11);
    CHECK(!llm__link_send(o[0].nodes, 1, LLM__FRAME_STEP, o[0].nodes->out.data, o[0].nodes->out.len));
    CHECK(!llm__link_tell(o[0].nodes, LLM__FRAME_END, NULL, 0));
    CHECK(!llm__link_next(o[1].nodes, 0, &kind) && kind == LLM__FRAME_STEP && in->len == 16);
    llm__wire_bytes(in, &p, 11);
    CHECK(!in->failed && !memcmp(p, "abcdefghijk", 11));
    llm__wire_bytes(in, &p, 1);
    CHECK(in->failed);
    CHECK(!llm__link_next(o[1].nodes, 0, &kind) && kind == LLM__FRAME_END);
    CHECK(!llm__link_lost(o[1].nodes) && !llm__link_lost(o[0].nodes));
    /* one cannot go on: all get its sentence, from the one to whom it is connected */
    CHECK(llm__link_fail(o[2].nodes, LLM_ERR_NOMEM, "the third has no memory") == LLM_ERR_NOMEM && llm_nodes_lost(o[2].nodes));
    for (int i = 0; i < 1000 && !llm__link_lost(o[0].nodes); i++) poll(NULL, 0, 10);
    CHECK(llm__link_tell(o[0].nodes, LLM__FRAME_WAIT, NULL, 0) == LLM_ERR_BACKEND &&
          strstr(llm_last_error(), "process 2: the third has no memory"));
    CHECK(llm__link_next(o[1].nodes, 0, &kind) == LLM_ERR_BACKEND && strstr(llm_last_error(), "the third has no memory"));
    nodes_end(o, 3);
    /* one has gone without a word */
    nodes_begin(o, 2, nodes_port(), 20 * test_slow());
    nodes_run(o, 2);
    shutdown(o[1].nodes->fd[0], SHUT_RDWR);
    CHECK(llm__link_next(o[0].nodes, 1, &kind) == LLM_ERR_BACKEND && strstr(llm_last_error(), "a rank was lost: process 1 (127.0.0.1)"));
    nodes_end(o, 2);
}

static void nodes_strangers(void) {
    nodes_one o[2];
    const int32_t port = nodes_port();
    nodes_begin(o, 2, port, 0.5 * test_slow());
    o[1].cfg.secret = "wrong";
    nodes_run(o, 2);
    CHECK(o[1].r == LLM_ERR_ARG && strstr(o[1].why, "another one"));
    CHECK(o[0].r == LLM_ERR_BACKEND && strstr(o[0].why, "process 1 of 2 has not come") && strstr(o[0].why, "127.0.0.1 has another secret"));
    nodes_begin(o, 2, nodes_port(), 0.5 * test_slow());
    o[1].cfg.n = 3;
    o[1].cfg.rank = 2;
    nodes_run(o, 2);
    CHECK(o[1].r == LLM_ERR_ARG && strstr(o[1].why, "process 2 of 3: process 0 expects 1 to 1 of 2"));
    nodes_begin(o, 2, nodes_port(), 1);
    o[1].cfg.address = "192.0.2.1";
    o[1].cfg.secret = "";
    CHECK(llm_nodes_open(&o[1].cfg, &o[1].nodes) == LLM_ERR_ARG && strstr(llm_last_error(), "need a nodes_secret"));
    o[1].cfg.rank = 2;
    CHECK(llm_nodes_open(&o[1].cfg, &o[1].nodes) == LLM_ERR_ARG);
    /* a CPU has no ranks elsewhere */
    llm_backend_config b;
    const llm_backend *table;
    memset(&b, 0, sizeof b);
    CHECK(llm__nodes_wrap(NULL, llm_backend_cpu(), NULL, &b, &table) == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "in one process"));
}

static const char *const *nodes_env; /* "NAME=value" ..., NULL */

static char *nodes_get(const char *name) {
    const size_t n = strlen(name);
    for (int i = 0; nodes_env[i]; i++)
        if (!strncmp(nodes_env[i], name, n) && nodes_env[i][n] == '=') return (char *)(uintptr_t)nodes_env[i] + n + 1;
    return NULL;
}

/* Which process this is; the refusals are the end-to-end test's. */
static void nodes_launch(void) {
    static const struct {
        const char *env[7];
        llm_launch flags;
        int32_t rank, n, local, port;
        const char *address;
    } rows[] = {
        {{NULL}, {0, -1, 0, NULL, NULL, NULL, 0}, 0, 0, 0, 0, NULL},
        {{"RANK=0", "WORLD_SIZE=1", NULL}, {1, -1, 0, NULL, NULL, NULL, 0}, 0, 0, 0, 0, NULL},
        {{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=5", NULL},
         {2, 1, 0, NULL, NULL, NULL, 0},
         3,
         4,
         1,
         5,
         "h"},
        {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "MASTER_ADDR=h", "MASTER_PORT=5", "TORCHELASTIC_USE_AGENT_STORE=True", NULL},
         {0, -1, 0, NULL, NULL, NULL, 0},
         1,
         2,
         1,
         6,
         "h"},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2", NULL},
         {0, -1, 0, NULL, NULL, NULL, 0},
         1,
         2,
         1,
         29501,
         "127.0.0.1"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", NULL}, {0, -1, 0, NULL, NULL, NULL, 0}, 0, 0, 0, 0, NULL}, /* a script of sbatch */
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_STEP_ID=0", "MASTER_ADDR=h", NULL},
         {0, -1, 7, NULL, NULL, NULL, 0},
         1,
         2,
         0,
         7,
         "h"},
        {{NULL}, {2, 1, 0, "h", NULL, NULL, 0}, 1, 2, 0, 29501, "h"},
        {{NULL}, {0, -1, 0, NULL, "192.0.2.9,127.0.0.1", NULL, 0}, 1, 2, 0, 29501, "192.0.2.9"},
    };
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_nodes_config c;
        llm_text address;
        memset(&address, 0, sizeof address);
        nodes_env = rows[i].env;
        CHECK(!llm_launch_read(&rows[i].flags, 4, nodes_get, &address, &c));
        CHECK(c.rank == rows[i].rank && c.n == rows[i].n && c.local_rank == rows[i].local && c.port == rows[i].port);
        CHECK(rows[i].address ? c.address && !strcmp(c.address, rows[i].address) : !c.address);
        llm_text_free(&address);
    }
    const llm_launch nowhere = {0, -1, 0, NULL, "192.0.2.9,192.0.2.10", NULL, 0}; /* addresses of no machine */
    llm_nodes_config c;
    llm_text address;
    memset(&address, 0, sizeof address);
    nodes_env = rows[0].env;
    CHECK(llm_launch_read(&nowhere, 4, nodes_get, &address, &c) == LLM_ERR_ARG);
    CHECK(!strcmp(llm_last_error(),
                  "node_rank: it is not given, and not just one of ips is an address of this machine: which of the 2 nodes"
                  " this is, 0 to 1, was expected"));
    llm_text_free(&address);
}

TEST_GROUP(nodes) {
    nodes_hmac();
    nodes_launch();
    nodes_links();
    nodes_strangers();
}
