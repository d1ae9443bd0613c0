/* arch: the architecture: shapes and switches.
 *
 * Read in an order in which each step may use what stands already: shapes, switches, refused variants, a check of
 * what belongs together, then numbers, rotary frequencies, experts, and last the layers one by one. Ranges in the
 * questions are hardening limits, not advice: a layer count of 512, a head of 4096 values, a vocabulary of 2^24 are
 * beyond all known models and small enough that no product of two of them overflows 64 bits. */
#pragma once
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/families.h"

enum { LLM__MAX_ROPE = 512, LLM__MAX_HEADS = 4096 };

/* A head that guesses from hidden states is one layer: see >>eagle. Not 0: it is one. */
enum {
    LLM__EAGLE = 1,
    LLM__EAGLE_BEFORE = 2,  /* a norm stands before its layer, */
    LLM__EAGLE_BEHIND = 4,  /* and one behind it */
    LLM__EAGLE_THREE = 8,   /* EAGLE-3 */
    LLM__EAGLE_NEXT = 16,   /* the model's own next layer (multi-token prediction): it norms both that fc reads */
    LLM__EAGLE_ACROSS = 32, /* fc takes the hidden state first, then the embedding */
    LLM__EAGLE_RAW = 64     /* what it goes on from is its residual stream, without the norm behind */
};

/* What multiplies what attention gives: sigmoids that q's matrix makes, head by head (Qwen3.5), or a matrix of their own, one for each
 * value (Trinity) or one for each head (LFM3). */
enum { LLM__GATE_NONE, LLM__GATE_WITH_Q, LLM__GATE_APART, LLM__GATE_HEADS };

/* One way to turn q and k. Two variants, which differ with longrope only: short and long prompts. */
typedef struct llm__rope {
    int32_t dim;                   /* values of a head that turn */
    float inv_freq[LLM__MAX_ROPE]; /* (2, dim / 2) */
    float scale[2];                /* of cosines and sines */
    double base;                   /* of the frequencies, before any scheme */
} llm__rope;

/* What a layer does with other positions: nothing (an MLP alone), attention, or what keeps a state: see >>arch_recurrent. */
typedef enum llm__mixer {
    LLM__MIX_ATTENTION = 0,
    LLM__MIX_NONE,
    LLM__MIX_CONV,
    LLM__MIX_DELTA,
    LLM__MIX_SSM,
    LLM__MIX_KDA,
    LLM__MIX_S6
} llm__mixer;

/* Shapes of what recurrent layers keep: see llm_conv_op and llm_recur_op. */
typedef struct llm__arch_state {
    int32_t taps, n_heads, n_groups, dk, dv;
    int32_t rank;                /* of what makes the steps (Mamba 1) */
    int32_t no_norm, norm_first; /* what they give has no norm, or one before its gate instead of behind (Mamba 2) */
    int32_t turns;               /* 1: groups take turns, see llm_recur_op */
    llm_norm_kind low_norm;      /* of dt, B and C (Mamba 1) */
    float low_eps;
    float step_min, step_max;
} llm__arch_state;

/* Numbers that Falcon-H1 multiplies by in many places, and that go into the weights: 0 stands for 1. */
typedef struct llm__arch_fold {
    float attn_in, key, attn_out, ssm_in, ssm_out, gate, down;
    float ssm[5]; /* z, x, B, C, dt */
} llm__arch_fold;

typedef struct llm__arch_layer {
    int8_t rope;                                  /* which of arch.rope; -1: no positions here */
    int8_t moe;                                   /* 1: a mixture of experts */
    int8_t mixer;                                 /* llm__mixer */
    int8_t both;                                  /* 1: attention stands beside its states (Falcon-H1) */
    int8_t no_mlp;                                /* 1: nothing behind the mixer */
    int8_t slides, bare;                          /* 1: it has a window; attention reads x, though other layers read its norm */
    int32_t window;                               /* a query sees so many positions, its own included; 0: all */
    int32_t n_kv_heads, head_dim, v_head_dim, ff; /* its shapes; arch.n_heads is the same for all */
    int32_t kv_of;                                /* the layer whose keys and values it reads: itself, or one before that alone has them */
    int8_t kv_shared, k_is_v;                     /* 1: other layers read its own; its values are its keys before norm and RoPE */
    int8_t sinks;                                 /* 1: a logit for each head takes part in its softmax only */
    int8_t sparse;                                /* 1: its MLP's gates count from their mean and `cut` deviations on: see llm_gate_op */
    float cut;
    float xielu[4]; /* see llm_linear_op */
} llm__arch_layer;

/* Everything that the forward pass must know of a family and a size. Written once, by llm__arch_read; every number
 * lies in a range that the code below can compute with. */
typedef struct llm__arch {
    const llm__family *family;
    char name[64];       /* model_type or general.architecture */
    char class_name[64]; /* architectures[0] */
    uint32_t flags;      /* the family's, corrected by the config */
    int gguf;            /* from a GGUF file, else from a folder */
    int32_t n_layers, hidden, n_heads, vocab, max_positions, max_len;
    int32_t n_kv_heads, head_dim, v_head_dim, ff; /* of most layers, as a config tells them; what computes asks each layer for its own */
    int32_t position_offset;                      /* of the table of learned positions */
    llm_norm_kind norm;
    llm_qk_norm qk_norm;
    float eps, embed_scale, residual_scale, logit_scale, attn_scale, attn_softcap, logit_softcap;
    llm_act act;
    float act_limit;
    int qkv_bias, o_bias, mlp_bias, norm_bias; /* 1: required; 0: used where the file has one */
    int tied;                                  /* -1: if the file has no output matrix */
    int eagle;                                 /* LLM__EAGLE_* */
    int32_t tapped[3], tap_hidden;             /* EAGLE-3: the model's layers before which it reads x, in their order; the width of x */
    int32_t own_embed;                         /* 1: it has an embedding of its own */
    int32_t outputs;                           /* rows of its own output layer, which may know fewer tokens; 0: it uses the model's */
    const char *layer_base;                    /* how names of its layer begin, where the files have other layers too; NULL: as usual */
    int32_t layer_from;                        /* number of layer 0 in names; -1: it has none */
    llm__rope rope[2];                         /* global, local */
    float alibi[LLM__MAX_HEADS];               /* slopes */
    int32_t n_rope, rope_pairs;
    int32_t position_rows;              /* 3: of time, height and width, for pictures (M-RoPE, Qwen2-VL 2024); else 1 */
    int8_t rope_row[LLM__MAX_ROPE / 2]; /* which of them each frequency takes */
    int32_t full_head_dim;              /* of layers that see everything, where it is another; 0: it is not */
    int32_t v_norm;                     /* see llm_qkv_op */
    int32_t per_layer;                  /* values that each layer has of its own for a token (Gemma 4); 0: none */
    int32_t per_layer_rows;             /* of their table; tokens beyond have what token 0 has */
    int32_t n_streams;                  /* of the residual: see >>arch_gemma3n; 0: one, as everywhere else */
    int32_t active_stream, stream_scale, laurel_rank;
    int32_t beside;             /* experts stand beside the MLP, each with norms before and behind (Gemma 4) */
    int32_t n_deepstack;        /* the first so many layers add further values of pictures to x (DeepStack, Qwen3-VL) */
    int32_t both_ways;          /* the tokens of a picture see each other both ways: 1 everywhere (Gemma 3), 2 within windows (Gemma 4) */
    int32_t encoder;            /* 1: all tokens do, and nothing is generated: see >>arch_encoder */
    int32_t n_types;            /* kinds of tokens, whose embeddings are added to theirs (BERT); 0: none */
    int32_t reach;              /* what is added to scores by distance differs up to so many positions (MPNet); 0: nothing is */
    int32_t n_sets, ff_expert2; /* 2: a set of experts for text and one for pictures, of another width (ERNIE 4.5 VL); else 1 */
    int32_t dynamic;            /* base grows with the prompt: 1 dynamic NTK, 2 Qwen 1's steps */
    double dynamic_factor, dynamic_from;
    int32_t scaled;    /* the files have another scheme for long texts */
    int32_t long_from; /* prompts longer than this take RoPE variant 1; 0: none */
    int32_t logn_from;
    float logn_beta; /* see llm_qkv_op */
    int32_t logn_ahead;
    int32_t
        by_rope; /* 1: only layers with RoPE norm q and k, without weights, and only those without stretch queries (Llama 4, nanochat) */
    int32_t embed_bare; /* 1: the embedding is normed, without weights (nanochat) */
    int32_t chunked;    /* 1: windows stand side by side: see llm_attention_op */
    int32_t index_topk; /* so many positions are the most that a token sees (DeepSeek V3.2): see llm_index_op; 0: all */
    int32_t index_heads, index_dim, index_pairs; /* index_pairs: its RoPE turns neighbours (GLM-5) */
    int32_t q_rank, kv_rank, nope;               /* latent attention; q_rank 0: plain q */
    int32_t n_experts, n_used, ff_expert, ff_shared, shared_gate;
    int32_t ff_latent; /* width of what experts read and give, between two matrices (Nemotron-H); 0: the hidden size */
    int32_t recurrent; /* 1: a layer keeps a state */
    int32_t attn_gate; /* LLM__GATE_* */
    llm__arch_state state;
    llm__arch_fold fold;
    int32_t folded;    /* 1: fold counts */
    int32_t head_norm; /* 1: each column of the output layer is divided by its length (Ling 1) */
    llm_route_score score;
    int32_t normalize, n_group, topk_group, group_top2;
    float normalize_min, route_scale, near; /* near: see llm_route_op */
    int32_t weigh_input;                    /* see llm_experts_op */
    int32_t norm_experts;                   /* 1: what experts give together is normalised before it is added (A.X K1) */
    float attn_out_scale, shared_scale;     /* of what attention and the shared expert give, which matrices take in; 0 means 1 */
    llm__arch_layer layer[LLM__MAX_LAYERS];
} llm__arch;

/* 1 if the first name of the model's family is one of `names`. */
LLM__PRIVATE int llm__arch_is(const llm__arch *a, const char *names);

/* 1 for Granite 4, whose layers may be Mamba 2. */
LLM__PRIVATE int llm__arch_hybrid(const llm__arch *a);

/* Finds the family, and where in config.json its values stand: a model that also sees or hears has those of its text
 * part in an object of their own, with a model_type of its own or that of the whole. */
LLM__PRIVATE llm_result llm__arch_family(llm__facts *f, llm__arch *a);

/* Counts and widths: D = hidden, H = n_heads, K = n_kv_heads (K < H: groups of queries share a key, Ainslie et al.
 * 2023; K = 1: all do, Shazeer 2019), ff the width between an MLP's matrices. With latent attention (DeepSeek-V2,
 * 2024) q and kv pass through q_rank and kv_rank values, and a head is `nope` values without positions, then rope_dim
 * values with. */
LLM__PRIVATE void llm__arch_shapes(llm__facts *f, llm__arch *a);

/* Which biases and norms there are, and the activation, with xIELU's numbers of each layer. A bias is required where the
 * config or the family asks for it, else used if the file has one: GGUF metadata do not say. Of q/k norms GGUF tells
 * only by the shape of the tensors. */
LLM__PRIVATE void llm__arch_switches(llm__facts *f, llm__arch *a, const llm__tensors *tensors);

/* Variants of a family that compute something else under the same name: refused rather than run wrongly. */
LLM__PRIVATE void llm__arch_variants(llm__facts *f, llm__arch *a, const llm__tensors *tensors);

/* Constants that multiply or cap something. Families scale in many places for the sake of training (Yang et al. 2022,
 * "mu-transfer"): the embedding, what a block adds, the scores, the logits; in MiniCPM from depth and width, in Gemma
 * 2 with s = cap * tanh(s / cap) on top. */
LLM__PRIVATE void llm__arch_numbers(llm__facts *f, llm__arch *a);

/* The mixture of experts: E = n_experts MLPs of width ff_expert, of which a token takes n_used (Shazeer et al. 2017),
 * and one of width ff_shared that every token takes. The router scores all; softmax over all or over the chosen, or a
 * sigmoid of each (DeepSeek-V3), whose choice alone may be corrected by a bias; with groups, only the best topk_group
 * of n_group groups of experts are looked at. Phi-3.5-MoE takes its two one after the other, each weighed by a softmax
 * over those that come near it (SparseMixer, Liu et al. 2023). Where a family's code asks nothing, its config is not
 * asked either: Hunyuan and MiniMax always normalise, and their experts are as wide as intermediate_size. Llama 4 has both words the other
 * way round: intermediate_size is that of an expert and of the shared one, intermediate_size_mlp that of layers without experts.
 * Nemotron-H's experts may be narrower than the residual stream (moe_latent_size L): y = out (sum of w_e down_e relu(up_e (in x))^2),
 * with matrices in (L, D) and out (D, L) of the layer, while router and shared expert read x. */
LLM__PRIVATE void llm__arch_experts(llm__facts *f, llm__arch *a, const llm__tensors *tensors);

/* Which layers are mixtures of experts: from `first` to `last`, every so many, but for those listed as dense.
 * (moe_layer_freq counts from 0, the others from 1.) Of Jamba in GGUF those that have a router. */
LLM__PRIVATE void llm__arch_sparse(llm__facts *f, llm__arch *a, const llm__tensors *tensors);

/* What no single layer's value can tell: heads that share keys evenly, products that must stay small. */
LLM__PRIVATE llm_result llm__arch_layers_check(const llm__facts *f, const llm__arch *a);

/* What each layer sees and how it turns q and k: layer_types, or what the family's code does without it. Layers that
 * see a window stand in a pattern with layers that see everything: every 2nd in Gemma 2 and gpt-oss, 6th in Gemma 3,
 * 4th in OLMo 3 and Cohere 2; in Qwen 2 the layers from max_window_layers on. SmolLM 3, Cohere 2 and EXAONE 4 leave
 * out positions where others leave out the window; so does Llama 4, whose windows stand side by side (attention_chunk_size) and whose
 * layers without positions multiply queries by 1 + attn_scale ln(1 + floor((position + 1) / floor_scale)). What families with recurrent
 * layers have, >>arch_recurrent
 * reads before. */
LLM__PRIVATE void llm__arch_layers(llm__facts *f, llm__arch *a);

/* Which layers of GPT-Neo see a window: attention_layers, a word each, or attention_types, [[["global", "local"], 12]], words that are
 * repeated so many times. Where a file has both the former count, as in transformers. */
LLM__PRIVATE void llm__arch_neo(llm__facts *f, llm__arch *a);

/* What MPT says in an object of its own, and how steep its slopes are: the exponents of ALiBi's go to alibi_bias_max, 8 elsewhere. With 4
 * heads
 *
 *     alibi_bias_max  8     slopes 2^-2  2^-4  2^-6   2^-8
 *     alibi_bias_max 16     slopes 2^-4  2^-8  2^-12  2^-16
 *
 * transformers has 8 whatever is said; MPT's own code and llama.cpp heed the number. */
LLM__PRIVATE void llm__arch_mpt(llm__facts *f, llm__arch *a);

/* That number, of slopes that are known: the last head of a power of two has 2^-most. */
LLM__PRIVATE double llm__arch_steepest(const llm__arch *a);
