/* nodes: Ranks of one model in several processes, on one machine or on several.
 *
 * Every process opens the same model with the same engine config, in which `nodes` is what llm_nodes_open has given. Process 0 has the
 * requests; the others call llm_engine_follow, which returns when process 0 has closed its engine, or with an error. Weights are read, and
 * devices used, of a process's own ranks only: tensor_parallel_size * pipeline_parallel_size of them in n equal parts, in their order.
 *
 * Numbers: process r has the ranks from r * ranks / n on, on its own devices from local_rank * ranks / n on, or on all that it sees if
 * there are just as many. Either whole stages of a pipeline are in a process, or a stage is in whole processes.
 *
 * Who joins must know the secret; what goes over the connections afterwards is neither hidden nor signed, so they belong into a network
 * that is trusted. A GPU is needed: a CPU's ranks are threads of one process. Adapters and pictures are not for several processes. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/engine.h"

typedef struct llm_nodes llm_nodes;
struct llm_engine;

typedef struct llm_nodes_config {
    int32_t rank, n;     /* which process this is, of how many: 2 at least */
    int32_t local_rank;  /* which of those on this machine: its devices begin at local_rank * ranks of a process */
    int32_t port;        /* where process 0 waits for the others, */
    const char *address; /* and its address or name */
    const char *secret;  /* the same everywhere; NULL or "": none, which only a loopback address may have */
    double timeout;      /* seconds until all must be there; 0: 600 */
} llm_nodes_config;

/* Connects; returns when all processes are there. One of another version, or with another secret, is refused. */
LLM_API llm_result llm_nodes_open(const llm_nodes_config *cfg, llm_nodes **out);
/* 1: a process has gone, or this one has failed: nothing more is computed. Any thread. */
LLM_API int llm_nodes_lost(const llm_nodes *nodes);
/* Behind llm_engine_close. NULL is fine. */
LLM_API void llm_nodes_close(llm_nodes *nodes);
/* In the processes behind the first one: computes their ranks' part of every step. */
LLM_API llm_result llm_engine_follow(struct llm_engine *e);

/* What a person and a launcher say about processes, for programs: flags of vLLM (--nnodes ...) and FastDeploy (--ips), and the environment
 * of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), mpirun and srun. */
typedef struct llm_launch {
    int32_t nnodes, node_rank;     /* 0: not said; -1: not said */
    int32_t master_port;           /* 0: not said */
    const char *master_addr, *ips; /* NULL: not said; ips: addresses of all nodes, the first's first, with commas between */
    const char *secret;
    float timeout;
} llm_launch;

/* Which of the processes this one is, of n_ranks ranks in all. out->n is 0 where there is one process. What contradicts itself is
 * LLM_ERR_ARG. get: getenv. Texts in *out are those of the launch and the environment, or in `address`, which the caller frees. */
LLM_API llm_result llm_launch_read(const llm_launch *l, int32_t n_ranks, char *(*get)(const char *name), llm_text *address,
                                   llm_nodes_config *out);
