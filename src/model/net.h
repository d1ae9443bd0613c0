/* net: the weights and buffers of every rank.
 *
 * Tensor parallelism (Shoeybi et al. 2019): each of n ranks has a part of the heads, of the MLP's width, of every expert
 * and of the vocabulary. Matrices that lead into these are cut by rows, those that lead back to the residual stream by
 * columns:
 *   qkv     rows      heads, kv_heads        a rank's attention needs nothing of the others
 *   o       columns   heads                  gives a part of the sum; one rank has the bias
 *   up      rows      ff                     also of each expert and of the shared one
 *   down    columns   ff                     gives a part of the sum
 *   embed   rows      vocab                  tokens of other ranks give zeros: a sum again
 *   head    rows      vocab                  logits are gathered
 * So a rank ends a block with its part of a sum, and the residual operation adds the parts: two sums a layer. Everything
 * else (norms, router, latent layers) is the same on all ranks.
 *
 * Pipeline (Huang et al. 2019): the layers are cut into stages, each of which has n ranks of its own. The first stage has the embedding,
 * the last one the head, and x, the residual stream, is all that goes from one to the next:
 *   stage 0 (ranks 0, 1)    embed, layers 0 ... 15     x of rank 0 -> rank 2, x of rank 1 -> rank 3
 *   stage 1 (ranks 2, 3)    layers 16 ... 31, head
 * A token passes them one after the other, so it is memory that is won, not time. What layers have of their own for a token (Gemma 4) is
 * made where the embedding is, and goes on with x. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/backend.h"
#include "base/platform.h"
#include "model/arch.h"
#include "model/loader.h"

/* What an engine asks for. Rows and outputs of a step are bounded, so that buffers can be made once. */
typedef struct llm__net_config {
    const llm_model *model;
    const llm_backend *backend;
    llm_backend_ctx *ctx;
    int n_ranks, max_rows, max_out;
    int n_stages;                     /* n_ranks counts the ranks of all */
    int n_loras, max_lora_rank;       /* slots for adapters; 0: none */
    int first_layer;                  /* of the KV cache: a draft model's layers follow the model's */
    int rounded_kv;                   /* elements of one byte and less */
    int whole;                        /* 1: the last layer is computed for all rows, whether their logits are wanted or not */
    int dry;                          /* 1: weights and buffers are only planned, nothing is read: see llm_model_estimate */
    int indexed;                      /* 1: contexts are longer than arch.index_topk: indexers choose; 0: they are left out */
    int kept_layer;                   /* of the KV cache, that takes hidden states for a head that guesses; 0: none */
    int alone;                        /* i + 1: layer i alone, of a residual stream that is given (of layer 0 the tokens'); 0: all */
    const struct llm__net *model_net; /* whose embedding and output layer a head that guesses uses */
    const struct llm__net *tapping;   /* the EAGLE-3 head whose fc reads the residual stream on its way; NULL: none */
    llm_progress_fn progress;
    void *progress_user;
} llm__net_config;

/* A mixture of experts. */
typedef struct llm__net_moe {
    llm__net_pair router, correction, up, down; /* (E, D), (E), (E, 2 ff, D), (E, D, ff) */
    llm__net_pair by;                           /* (E) see llm_route_op */
} llm__net_moe;

/* One layer on one rank. What a family lacks is NULL. */
typedef struct llm__net_layer {
    llm__slice kv_heads, ff;                                 /* this rank's shares */
    int32_t q_width, k_width;                                /* columns of q and k in qkv; with norms over the whole width: of all ranks */
    int32_t kv;                                              /* which of llm__net.kv has its keys and values */
    llm__net_pair attn_norm, post_attn, ffn_norm, post_ffn;  /* (D) */
    llm__net_pair qkv, o;                                    /* (q_width + k_width + v, D), (D, n_heads * v_head_dim) */
    llm__net_pair attn_sub, ffn_sub;                         /* (n_heads * v_head_dim), (ff) of what o reads, of what down reads */
    llm__net_pair token_qkv;                                 /* EAGLE-3's qkv of the embedding; qkv is that of the state */
    llm__net_pair q_norm, k_norm, sinks;                     /* sinks: (n_heads) */
    llm__net_pair q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b; /* latent attention; without q_a, q_b is the whole q */
    llm__net_pair index_q, index_k, index_norm;              /* of its indexer: (heads * d, q_rank), (d + heads, D), (d) */
    llm__net_pair up, down;                                  /* (2 ff: gate rows, up rows; or ff, D), (D, ff) */
    llm__net_moe moe[2];                                     /* for text, or everything; for pictures */
    llm__net_pair e_in, e_out;                               /* (latent, D), (D, latent): see arch.ff_latent */
    llm__net_pair s_up, s_down, s_gate;                      /* the shared expert; s_gate: (1, D), Qwen2-MoE's */
    llm__net_pair ffn_norm2, post_ffn1, post_ffn2;           /* (D) of experts beside the MLP: before them, behind the MLP, behind them */
    llm__net_pair router_norm;                               /* (D) of what their router reads */
    llm__net_pair pl_gate, pl_proj, pl_norm;       /* (P, D), (D, P), (D) of the layer's own values for a token: see arch.per_layer */
    float scalar;                                  /* multiplies x behind the layer; 0: nothing does */
    llm__net_pair laurel[2], laurel_norm;          /* (rank, D), (D, rank), (D) of the detour around attention (Gemma 3n) */
    llm__net_pair gates;                           /* (ff, D) of a sparse MLP, whole on every rank; up is (ff, D) then, this rank's rows */
    llm__net_pair altup_router, predict, correct;  /* (n, D), (n n, n), (n, n) of n streams: see llm_streams_op; its norm is router_norm */
    llm__net_pair stream_scale;                    /* (D) */
    llm__net_pair mix, conv, conv_bias, gate_norm; /* of a recurrent layer: see llm__net_state; o leads back */
    llm__net_pair low[2], wide[2];                 /* KDA: (dk, D), (heads * dk, dk) of decays, of the gate; S6: dt, B and C; steps */
    llm__net_pair dt_norm, b_norm, c_norm;         /* S6 */
    llm__net_pair state_o;                         /* but this, where attention stands beside */
    llm_weight *decay, *step_bias, *skip;
} llm__net_layer;

/* Buffers that hold some rows of the residual stream: all tokens, or only those whose logits are wanted. */
typedef struct llm__net_lane {
    llm_rows rows;
    llm_buffer *states;          /* see llm__net_buffers */
    llm_buffer *x, *h, *y, *att; /* residual stream, normalised, what a block adds (rows, D); attention's result (rows, heads) */
    llm_buffer *streams;         /* (rows, n D) of n streams, of which x is the one that a layer computes */
} llm__net_lane;

/* What a rank has of recurrent layers: its heads and groups, and the columns of the buffer `mix`, which the layers' first matrix makes of
 * the residual stream:
 *   CONV     before | after | x                     LFM2's B, C and x
 *   DELTA    q | k | v | z | decay | write          the first three go through the convolution
 *   SSM      v | k | q | z | decay                  Mamba's x, B and C; then its z and dt
 *   KDA      q | k | v | write | z | decay          z and a decay for each key by way of `low`, dk columns of each
 *   S6       v | z | decay | k | q                  Mamba 1: all behind z by way of `low`, from what the convolution has made of v */
typedef struct llm__net_state {
    llm__slice heads, groups;
    int32_t turns;                          /* see llm_recur_op */
    int32_t q, k, v, z, decay, write, conv; /* conv: columns that go through the convolution */
    int32_t low[2];                         /* columns of the buffers low: 0: there are none */
    int32_t cols, n_state;                  /* of mix; of a layer's state */
} llm__net_state;

/* One rank: a device of its own, or on a CPU a part of the work. */
typedef struct llm__net_rank {
    int begin, end, first, last;                                           /* its layers; first, last: of the pipeline's stages */
    llm__slice heads, ff_expert[2], ff_shared, vocab;                      /* this rank's shares; ff_expert: of each set */
    llm__slice per_layer;                                                  /* of arch.per_layer */
    llm__slice pl_vocab;                                                   /* of the first, which may have fewer rows than the vocabulary */
    llm__net_pair pl_embed, pl_model, pl_model_norm;                       /* (vocab, n_layers * P), (n_layers * P, D), (P) */
    llm__net_pair stream_in[LLM_MAX_STREAMS], stream_out[LLM_MAX_STREAMS]; /* (D, D) of streams 1 ... n - 1, from and to the first */
    llm__net_state state;
    llm__net_pair embed, positions, embed_norm, out_norm, head;
    llm__net_pair head_norm; /* (D) what the head reads is normed by, where that is not out_norm: see arch.head_norm */
    llm__net_pair fc[3];     /* (D, D) of an EAGLE head: of the embedding, with the bias, and of the state. EAGLE-3: of each tapped layer */
    llm__net_pair token_norm, state_norm; /* (D) of what it reads */
    llm_buffer *tapped;                   /* (T, D) what EAGLE-3's fc has made of the model's layers */
    llm__slice outputs;                   /* this rank's rows of a head's own output layer */
    llm_weight *alibi, *distance, *inv_freq[2];
    llm__net_layer *layer; /* (n_layers), of which it has some */
    llm__net_lane token, out;
    llm_buffer *rope[2], *qkv, *ff_act, *q_a, *q, *kv_a, *router, *routes, *gate, *mix, *state_low[2]; /* see llm__net_buffers */
    llm_buffer *e_in, *e_out;                                                                          /* see llm__net_buffers */
    llm_buffer *index_q, *index_k, *chosen;                                                            /* see llm_index_op */
    llm_buffer *router_in, *sum;                                                                       /* of experts beside the MLP */
    llm_buffer *modal, *gates;                                                                         /* of Gemma 3n */
    llm_buffer *pl, *pl_new, *pl_act, *pl_out;           /* of layers' own values for a token */
    llm_buffer *low, *plus, *head_plus, *e_low, *e_plus; /* of adapters */
} llm__net_rank;

/* A model on a backend. Weights and buffers belong to the backend, the structs to the net. */
typedef struct llm__net {
    llm__net_config cfg;
    const llm__arch *a;
    llm__net_rank *rank;   /* (n_ranks) */
    llm__net_layer *layer; /* (n_ranks, n_layers) */
    int n_group, n_kv;     /* ranks of a stage; layers of a rank's KV cache */
    llm_kv_layer *kv;      /* (n_kv) their geometry: see llm__net_kv */
    int64_t weight_bytes;  /* of a dry one: that the backend would keep */
    int64_t unpacked;      /* of a dry one: weights that would stand unpacked until the backend has packed them */
} llm__net;

/* All weights of one rank. A net that is only checked has no layers to put them in. */
LLM__PRIVATE void llm__load_rank(llm__loader *L, llm__net_rank *rank, const llm__net_config *cfg);

/* A loader that only checks, for rank 0; the caller sets the backend. */
LLM__PRIVATE void llm__loader_begin(llm__loader *L, const llm_model *m, int n_ranks, int n_group);

/* Frees what the backend had to see until weights_done: it plans at once, and reads the data when it packs. */
LLM__PRIVATE void llm__loader_end(llm__loader *L);

/* Looks up every weight of a model and checks its shape and type, without a backend: what a file lacks is told when
 * it is opened, in milliseconds, and not after the first gigabytes have been packed. */
LLM__PRIVATE llm_result llm__net_check(llm_model *m);

/* NULL is fine. Weights and buffers belong to the backend. */
LLM__PRIVATE void llm__net_close(llm__net *net);

/* How many tokens a page should have where each page keeps a state: the power of two from 64 to 1024 with which keys and values take half
 * as much as the state, or more; 0: the layers keep none. Qwen3.5-0.8B: 18 MB of states, 12 KB of keys and values a token: 1,024.
 * LFM2-1.2B: 160 KB and 12 KB: 64. */
LLM__PRIVATE int32_t llm__state_page(const llm__arch *a);

/* Makes weights and buffers of every rank; the backend frees them when it is closed. Not the KV pages: how many there are
 * depends on the memory that is left now, so the engine makes them afterwards, from the geometry that is kept here. */
LLM__PRIVATE llm_result llm__net_open(const llm__net_config *cfg, llm__net **out);

/* seq_rope and seq_rope_base of a request with this prompt: both depend on the prompt's length and stay for the
 * request's life. The base grows as base * s^(d / (d - 2)), which stretches the slowest frequency by s ("NTK-aware",
 * bloc97 2023). */
LLM__PRIVATE void llm__net_rope_of(const llm__net *net, int32_t prompt_len, int32_t *variant, float *base);

/* The last hidden state of an out row of the latest step: what the head has read, (hidden) values. */
LLM__PRIVATE const float *llm__net_hidden(const llm__net *net, int out_row);

/* What tells a model from others of its shape: four samples of 64 bytes of each tensor, from its first to its last, which takes little
 * time even where gigabytes of weights are mapped and have not been read. Another training of the same model changes them. */
LLM__PRIVATE uint64_t llm__model_mark(const llm_model *m);
