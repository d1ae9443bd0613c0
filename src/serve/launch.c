/* launch: which of several processes this is: what flags and launchers say.
 *
 * A launcher starts a process for each rank, or for several, and tells each by its environment which it is. Without one a person starts a
 * process on each node, and says so by flags. Flags beside a launcher's environment must say the same.
 *
 *     started by                           which process, of how many          devices begin at             where process 0 waits
 *     torchrun --nproc-per-node 8          RANK of WORLD_SIZE                  LOCAL_RANK                   MASTER_ADDR, behind MASTER_PORT
 *     mpirun -n 8                          OMPI_COMM_WORLD_RANK of _SIZE       OMPI_COMM_WORLD_LOCAL_RANK   this machine, or --master-addr
 *     srun -n 8                            SLURM_PROCID of SLURM_NTASKS        SLURM_LOCALID                MASTER_ADDR, or --master-addr
 *     a person, --nnodes 2 --node-rank 1   1 of 2, with all ranks of a node    0                            --master-addr, --master-port
 *     a person, --ips 10.0.0.1,10.0.0.2    the one that is an own address      0                            the first of them
 *
 * torchrun inside of srun counts, not srun. A script of sbatch without srun is one process, though it has Slurm's variables. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/nodes.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/number.h"

/* Variables of a launcher: of this process and how many there are, in all and on this machine; one without which they mean nothing. */
typedef struct llm__launcher {
    const char *rank, *n, *local_rank, *local_n, *beside;
} llm__launcher;

static const llm__launcher llm__launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL}, /* torchrun, Ray Train */
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},                         /* MPICH, Intel MPI */
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_ID"}}; /* a script of sbatch has no step */

enum { LLM__LAUNCH_MOST = 256, LLM__LAUNCH_PORT = 29501 }; /* vLLM's port */

/* What a launcher has said; local_n 0: not how many there are here. */
typedef struct llm__launched {
    const llm__launcher *by; /* NULL: there is none */
    int32_t rank, n, local_rank, local_n;
} llm__launched;

/* A variable's number; `absent` where it is not there. */
static llm_result llm__launch_number(char *(*get)(const char *name), const char *name, int32_t least, int32_t most, int32_t absent,
                                     int32_t *out) {
    const char *said = get(name);
    int64_t x;
    *out = absent;
    if (!said || !*said) return LLM_OK;
    if (!llm__parse_int(said, strlen(said), &x) || x < least || x > most)
        return llm__error(LLM_ERR_ARG, "%s: \"%.40s\", a number from %d to %d was expected", name, said, (int)least, (int)most);
    *out = (int32_t)x;
    return LLM_OK;
}

/* The first launcher of the list that was here. A second one must say the same, but for the one in whose steps torchrun was started. */
static llm_result llm__launch_env(char *(*get)(const char *name), llm__launched *out) {
    llm_result r = LLM_OK;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < LLM__COUNT(llm__launchers) && !r; i++) {
        const llm__launcher *by = &llm__launchers[i];
        llm__launched here = {by, 0, 0, 0, 0};
        if (!get(by->rank) || !get(by->n) || (by->beside && !get(by->beside))) continue;
        r = llm__launch_number(get, by->n, 1, LLM__LAUNCH_MOST, 1, &here.n);
        if (!r) r = llm__launch_number(get, by->rank, 0, here.n - 1, 0, &here.rank);
        if (!r) r = llm__launch_number(get, by->local_n, 1, here.n, 0, &here.local_n);
        if (!r) r = llm__launch_number(get, by->local_rank, 0, (here.local_n ? here.local_n : here.n) - 1, -1, &here.local_rank);
        if (r) return r;
        if (!out->by) *out = here;
        else if ((here.n != out->n || here.rank != out->rank) && !get("TORCHELASTIC_RUN_ID"))
            r = llm__error(LLM_ERR_ARG, "%s: %d of %d, but %s is %d of %d: the same process was expected", by->rank, (int)here.rank,
                           (int)here.n, out->by->rank, (int)out->rank, (int)out->n);
    }
    return r;
}

/* 1: the address of n bytes is one of this machine's, for something can be bound to it. */
static int llm__launch_own(const char *address, size_t n) {
    struct addrinfo hint, *found = NULL;
    char text[256];
    int own = 0;
    memset(&hint, 0, sizeof hint);
    hint.ai_socktype = SOCK_DGRAM;
    snprintf(text, sizeof text, "%.*s", (int)n, address);
    if (getaddrinfo(text, NULL, &hint, &found)) return 0;
    for (const struct addrinfo *a = found; a && !own; a = a->ai_next) {
        const int fd = socket(a->ai_family, SOCK_DGRAM, 0);
        own = fd >= 0 && !bind(fd, a->ai_addr, a->ai_addrlen);
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(found);
    return own;
}

/* --ips: how many nodes, which of them is this one (-1: none, or more than one is), the first one's address. */
static llm_result llm__launch_ips(const char *ips, int32_t *n, int32_t *own, llm_text *first) {
    int many = 0;
    *n = 0;
    *own = -1;
    for (const char *p = ips;; p++) {
        const size_t len = strcspn(p, ",");
        if (!len || len > 255 || strspn(p, " "))
            return llm__error(LLM_ERR_ARG, "ips: \"%.100s\", addresses with commas between were expected", ips);
        if (!*n) llm_text_add(first, p, len);
        if (llm__launch_own(p, len)) *own = *n, many++;
        ++*n;
        p += len;
        if (!*p) break;
    }
    if (many > 1) *own = -1;
    return first->failed ? llm__nomem() : LLM_OK;
}

/* A number that was said by a flag (not `absent`) is the one that follows from something else. */
static llm_result llm__launch_same(const char *name, int32_t said, int32_t absent, int32_t is, const char *what) {
    if (said == absent || said == is) return LLM_OK;
    return llm__error(LLM_ERR_ARG, "%s: %d, but by %s it is %d: the same was expected", name, (int)said, what, (int)is);
}

/* Without a launcher: a process a node. With one: flags may say the same. */
static llm_result llm__launch_place(const llm_launch *l, const llm__launched *by, llm_text *first, llm_nodes_config *out) {
    int32_t nodes = l->nnodes, node = l->node_rank, own = -1, n = 0;
    llm_result r = l->ips ? llm__launch_ips(l->ips, &n, &own, first) : LLM_OK;
    if (!r && n) r = llm__launch_same("nnodes", nodes, 0, n, "ips");
    if (n) nodes = n;
    if (!r && own >= 0) r = llm__launch_same("node_rank", node, -1, own, "ips and this machine's addresses");
    if (own >= 0) node = own;
    if (r) return r;
    if (by->n > 1) {
        const int32_t here = by->local_n ? by->local_n : nodes > 0 && by->n % nodes == 0 ? by->n / nodes : 0;
        if (here) r = llm__launch_same("nnodes", nodes, 0, (by->n + here - 1) / here, by->by->n);
        else
            r = nodes ? llm__error(LLM_ERR_ARG, "nnodes: %d, but %s is %d: as many processes a node were expected", (int)nodes, by->by->n,
                                   (int)by->n)
                      : r;
        if (!r && here) r = llm__launch_same("node_rank", node, -1, by->rank / here, by->by->rank);
        if (!r && by->local_rank < 0 && !here)
            r = llm__error(LLM_ERR_ARG, "%s: it is not there: which process of its machine this is was expected", by->by->local_rank);
        out->rank = by->rank;
        out->n = by->n;
        out->local_rank = by->local_rank >= 0 ? by->local_rank : here ? by->rank % here : 0;
        return r;
    }
    if (nodes < 2) return LLM_OK;
    if (node < 0)
        return llm__error(LLM_ERR_ARG, "node_rank: it is not given%s: which of the %d nodes this is, 0 to %d, was expected",
                          l->ips ? ", and not just one of ips is an address of this machine" : "", (int)nodes, (int)nodes - 1);
    if (node >= nodes)
        return llm__error(LLM_ERR_ARG, "node_rank: %d, which of the %d nodes this is, 0 to %d, was expected", (int)node, (int)nodes,
                          (int)nodes - 1);
    out->rank = node;
    out->n = nodes;
    return LLM_OK;
}

/* Where process 0 waits. torchrun's own agent listens at MASTER_PORT, so that process 0 takes the port behind it. */
static llm_result llm__launch_address(const llm_launch *l, const llm__launched *by, char *(*get)(const char *name), llm_text *first,
                                      llm_nodes_config *out) {
    const char *said = by->by ? get("MASTER_ADDR") : NULL, *agent = get("TORCHELASTIC_USE_AGENT_STORE");
    const int behind = agent && !strcmp(agent, "True");
    int32_t port = 0;
    llm_result r = by->by ? llm__launch_number(get, "MASTER_PORT", 1, 65534, 0, &port) : LLM_OK;
    if (r) return r;
    if (port && behind) port++;
    else if (port && l->master_port) r = llm__launch_same("master_port", l->master_port, 0, port, "the environment");
    out->port = l->master_port ? l->master_port : port ? port : LLM__LAUNCH_PORT;
    out->address = l->master_addr ? l->master_addr : first->len ? first->data : said;
    if (!r && l->master_addr && said && strcmp(said, l->master_addr))
        r = llm__error(LLM_ERR_ARG, "master_addr: %.200s, but the environment says %.200s: the same was expected", l->master_addr, said);
    if (!r && l->master_addr && first->len && strcmp(first->data, l->master_addr))
        r = llm__error(LLM_ERR_ARG, "master_addr: %.200s, but the first of ips is %.200s: the same was expected", l->master_addr,
                       first->data);
    if (!out->address && by->by && by->local_n == by->n) out->address = "127.0.0.1";
    if (!r && !out->address)
        r = llm__error(LLM_ERR_ARG, "master_addr: the address of process 0's machine was expected, for there are %d processes",
                       (int)out->n);
    return r;
}

/* First who this is, then where process 0 is; both only if there are several. What was said of several and is not needed for one would
 * have no effect, and is refused. */
LLM_API llm_result llm_launch_read(const llm_launch *l, int32_t n_ranks, char *(*get)(const char *name), llm_text *address,
                                   llm_nodes_config *out) {
    llm__launched by;
    memset(out, 0, sizeof *out);
    llm_result r = llm__launch_env(get, &by);
    if (!r) r = llm__launch_place(l, &by, address, out);
    if (!r && !out->n && (l->master_addr || l->master_port || l->node_rank > 0))
        r = llm__error(LLM_ERR_ARG, "%s: there is one process: nnodes, ips or the environment of torchrun, mpirun or srun was expected",
                       l->master_addr   ? "master_addr"
                       : l->master_port ? "master_port"
                                        : "node_rank");
    if (r || !out->n) return r;
    if (n_ranks % out->n)
        return llm__error(
            LLM_ERR_ARG,
            "%s: %d processes, but tensor_parallel_size * pipeline_parallel_size are %d ranks: as many a process were expected",
            by.n > 1 ? by.by->n : "nnodes", (int)out->n, (int)n_ranks);
    out->secret = l->secret;
    out->timeout = (double)l->timeout;
    return llm__launch_address(l, &by, get, address, out);
}
