/* loader: finding the tensors of a weight, whatever they are called. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/text.h"
#include "base/files.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/source.h"
#include "model/facts.h"
#include "model/arch.h"
#include "model/pooler.h"

/* Read-only once llm_model_open has returned it: threads need no lock. */
struct llm_model {
    llm__source source;
    llm__arch arch; /* n_layers 0 with vocab_only */
    llm_model_info info;
    int dummy;                  /* dummy_weights of the config: which LLM_TYPE_RANDOM... the matrices are; 0: none */
    struct llm__vision *vision; /* what it sees with (>>vision); NULL: it does not see */
    int blind;                  /* 1: its files say that it sees, but how is not known, or no token stands for a picture */
    char *path;
    llm__pooler pooler;    /* from its hidden states to embeddings and scores */
    int requant;           /* quantised while it is loaded: as what (>>requant); 0: it is not */
    char quantization[96]; /* how the files are quantised, in words */
    int plain_sampling;    /* no_generation_config of the config */
};

/* ---- Where weights are called what ----
 * No family has names of its own here: a slot lists every name its weight goes by anywhere. Where two families use
 * one name for different things the order settles it: post_attention_layernorm is the MLP's norm unless the file also
 * has pre_feedforward_layernorm. Encoders that norm before a block call that norm as others call the one behind it
 * (attention.LayerNorm): no family asks for both. '#' stands for an expert's number; a name of experts without it is one tensor for
 * all of them. The four slots of an MLP stand in the same order for the plain one, the experts and the shared expert:
 * see llm__load_mlp. */
#define LLM__SLOTS(SLOT) \
    /* of the whole model */ \
    SLOT(EMBED, \
         "model.embed_tokens model.decoder.embed_tokens wte transformer.wte transformer.word_embeddings " \
         "transformer.embedding.word_embeddings word_embeddings model.word_embeddings model.tok_embeddings gpt_neox.embed_in " \
         "model.language_model.embed_tokens language_model.model.embed_tokens token_embd embed_tokens decoder.embed_tokens " \
         "model.text_model.embed_tokens llm.model.embed_tokens language_model.model.tok_embeddings tok_embeddings ernie.embed_tokens " \
         "backbone.embeddings model.backbone.embeddings embeddings.word_embeddings bert.embeddings.word_embeddings " \
         "roberta.embeddings.word_embeddings embeddings.tok_embeddings model.embeddings.tok_embeddings mpnet.embeddings.word_embeddings " \
         "distilbert.embeddings.word_embeddings electra.embeddings.word_embeddings ernie.embeddings.word_embeddings " \
         "roberta_prelayernorm.embeddings.word_embeddings data2vec_text.embeddings.word_embeddings new.embeddings.word_embeddings " \
         "gte.embeddings.word_embeddings") \
    SLOT(POSITIONS, \
         "wpe transformer.wpe model.decoder.embed_positions position_embd decoder.embed_positions embeddings.position_embeddings " \
         "bert.embeddings.position_embeddings roberta.embeddings.position_embeddings mpnet.embeddings.position_embeddings " \
         "distilbert.embeddings.position_embeddings electra.embeddings.position_embeddings ernie.embeddings.position_embeddings " \
         "roberta_prelayernorm.embeddings.position_embeddings data2vec_text.embeddings.position_embeddings") \
    SLOT(DISTANCES, "encoder.relative_attention_bias mpnet.encoder.relative_attention_bias") /* see llm_attention_op.distance */ \
    SLOT(EMBED_NORM, "transformer.word_embeddings_layernorm word_embeddings_layernorm token_embd_norm embeddings.LayerNorm " \
                     "bert.embeddings.LayerNorm roberta.embeddings.LayerNorm emb_ln bert.emb_ln embeddings.norm model.embeddings.norm " \
                     "mpnet.embeddings.LayerNorm distilbert.embeddings.LayerNorm electra.embeddings.LayerNorm ernie.embeddings.LayerNorm " \
                     "roberta_prelayernorm.embeddings.LayerNorm data2vec_text.embeddings.LayerNorm new.embeddings.LayerNorm " \
                     "gte.embeddings.LayerNorm") \
    SLOT(OUT_NORM, "model.norm model.final_layernorm model.decoder.final_layer_norm ln_f transformer.ln_f " \
                   "transformer.encoder.final_layernorm gpt_neox.final_layer_norm model.language_model.norm " \
                   "language_model.model.norm output_norm norm final_layernorm decoder.final_layer_norm model.text_model.norm " \
                   "llm.model.norm ernie.norm model.embedding_norm backbone.norm_f model.backbone.norm_f final_norm model.final_norm " \
                   "encoder.ln bert.encoder.ln encoder.LayerNorm roberta.encoder.LayerNorm LayerNorm roberta_prelayernorm.LayerNorm " \
                   "transformer.norm_f model.language_model.embedding_norm " \
                   "shared_head.norm nextn.shared_head_norm " /* those of the model's own next layer */ \
                   "token_embd_norm")                         /* of LFM2 in GGUF */ \
    SLOT(HEAD, "lm_head output transformer.output_layer embed_out language_model.lm_head llm.lm_head language_model.output") \
    /* of heads that guess from hidden states (>>eagle): the norms of the embedding and of the state, and what takes both */ \
    SLOT(FC, "fc model.fc eh_proj input_proj nextn.eh_proj model.mtp_linear_proj.0 ernie.mtp_linear_proj.0 mtp.fc") \
    SLOT(TOKEN_NORM, "enorm token_layernorm nextn.enorm model.mtp_emb_norm.0 ernie.mtp_emb_norm.0 mtp.pre_fc_norm_embedding " \
                     "input_layernorm") /* the last of EAGLE-3 */ \
    SLOT(STATE_NORM, "hnorm hidden_layernorm nextn.hnorm model.mtp_hidden_norm.0 ernie.mtp_hidden_norm.0 mtp.pre_fc_norm_hidden " \
                     "hidden_norm") \
    SLOT(NEXT_NORM, "mtp.norm") /* OUT_NORM of Qwen's next layer, beside whose files the model's own is a model.norm */ \
    SLOT(PL_EMBED, "model.language_model.embed_tokens_per_layer model.embed_tokens_per_layer " \
                   "language_model.model.embed_tokens_per_layer per_layer_token_embd") /* what layers have of their own for a token */ \
    SLOT(PL_MODEL, "model.language_model.per_layer_model_projection model.per_layer_model_projection " \
                   "language_model.model.per_layer_model_projection per_layer_model_proj ple.per_layer_model_projection " \
                   "model.ple.per_layer_model_projection") \
    SLOT(PL_MODEL_NORM, "model.language_model.per_layer_projection_norm model.per_layer_projection_norm " \
                        "language_model.model.per_layer_projection_norm per_layer_proj_norm ple.per_layer_projection_norm " \
                        "model.ple.per_layer_projection_norm") \
    SLOT(ALTUP_IN, "model.language_model.altup_projections.# model.altup_projections.# language_model.model.altup_projections.# " \
                   "altup_proj") /* what makes streams of the first, and what leads back from each */ \
    SLOT(ALTUP_OUT, "model.language_model.altup_unembed_projections.# model.altup_unembed_projections.# " \
                    "language_model.model.altup_unembed_projections.# altup_unembd_proj") \
    /* of a layer: attention */ \
    SLOT(ATTN_NORM, "input_layernorm attention_norm attention_layernorm ln_1 self_attn_layer_norm ln_attn operator_norm attn_norm norm " \
                    "attention.ln attention.LayerNorm attention.self_attn_layer_norm norm_1") \
    SLOT(QKV, "self_attn.qkv_proj self_attn.W_pack attention.wqkv self_attention.query_key_value attention.query_key_value " \
              "attn.c_attn attn.Wqkv attention.qkv_proj attn.qkv_proj attn_qkv") \
    SLOT(Q, "self_attn.q_proj attention.wq attn.q_proj mixer.q_proj attention.self.query attention.attn.q attention.q_lin " \
            "attn.attention.q_proj attn_q") \
    SLOT(K, "self_attn.k_proj attention.wk attn.k_proj mixer.k_proj attention.self.key attention.attn.k attention.k_lin " \
            "attn.attention.k_proj attn_k") \
    SLOT(V, "self_attn.v_proj attention.wv attn.v_proj mixer.v_proj attention.self.value attention.attn.v attention.v_lin " \
            "attn.attention.v_proj attn_v") \
    SLOT(O, "self_attn.o_proj self_attn.out_proj self_attn.dense attention.wo self_attention.dense attention.dense " \
            "attn.c_proj attn.out_proj mixer.o_proj attention.output.dense attn.Wo attention.attn.o attention.out_lin " \
            "attn.attention.out_proj attention.o_proj " \
            "attn_output") \
    SLOT(Q_NORM, "self_attn.q_norm self_attn.q_layernorm self_attn.query_layernorm attention.query_layernorm attn_q_norm") \
    SLOT(K_NORM, "self_attn.k_norm self_attn.k_layernorm self_attn.key_layernorm attention.key_layernorm attn_k_norm") \
    SLOT(ATTN_SUB, "self_attn.attn_sub_norm attn_sub_norm") /* of what O reads, and of what DOWN reads (BitNet) */ \
    SLOT(FFN_SUB, "mlp.ffn_sub_norm ffn_sub_norm") \
    SLOT(ATTN_GATE, "self_attn.g_proj self_attn.gate_proj attn_gate") /* of what attention gives: see LLM__GATE_* */ \
    SLOT(SINKS, "self_attn.sinks self_attn.softmax_offset self_attn.attention_sink_bias attn_sinks") \
    SLOT(POST_ATTN, "post_norm1 post_operator_norm post_self_attn_layernorm post_attention_layernorm post_attention_norm " \
                    "attention.output.LayerNorm norm1 " \
                    "attention.LayerNorm " \
                    "sa_layer_norm attn_ln attn_output_norm") \
    /* latent attention */ \
    SLOT(Q_A, "self_attn.q_a_proj attn_q_a") \
    SLOT(Q_A_NORM, "self_attn.q_a_layernorm attn_q_a_norm") \
    SLOT(Q_B, "self_attn.q_b_proj attn_q_b") \
    SLOT(KV_A, "self_attn.kv_a_proj_with_mqa attn_kv_a_mqa") \
    SLOT(KV_A_NORM, "self_attn.kv_a_layernorm attn_kv_a_norm") \
    SLOT(KV_B, "self_attn.kv_b_proj attn_kv_b") \
    SLOT(K_B, "attn_k_b") \
    SLOT(V_B, "attn_v_b") \
    SLOT(INDEX_Q, "self_attn.indexer.wq_b indexer.attn_q_b") \
    SLOT(INDEX_K, "self_attn.indexer.wk indexer.attn_k") \
    SLOT(INDEX_NORM, "self_attn.indexer.k_norm indexer.k_norm") \
    SLOT(INDEX_WEIGHTS, "self_attn.indexer.weights_proj indexer.proj") \
    /* the MLP */ \
    SLOT(FFN_NORM, \
         "pre_feedforward_layernorm pre_ff_layernorm pre_mlp_layernorm post_attention_layernorm feedforward_layernorm ffn_norm ln_2 " \
         "final_layer_norm ln_mlp post_attention_norm mlp_norm intermediate.LayerNorm LayerNorm ln norm_2") \
    SLOT(GATE_UP, "mlp.gate_up_proj mlp.up_gate_proj mlp.dense_h_to_4h shared_mlp.input_linear mlp.Wi") \
    SLOT(GATE, "mlp.gate_proj block_sparse_moe.gate_proj feed_forward.w1 feed_forward.gate_proj mlp.w2 mlp.fc12 mlp.c_fc_0 ffn_gate") \
    SLOT(UP, "mlp.up_proj block_sparse_moe.up_proj feed_forward.w3 feed_forward.up_proj mlp.w1 mlp.c_fc mlp.fc1 " \
             "mlp.fc_in fc1 mlp.dense_h_to_4h mixer.up_proj intermediate.dense mlp.fc11 ffn.lin1 mlp.c_fc_1 ffn.up_proj ffn_up") \
    SLOT(DOWN, \
         "mlp.down_proj block_sparse_moe.down_proj feed_forward.w2 feed_forward.down_proj mlp.c_proj mlp.fc2 " \
         "mlp.fc_out fc2 mlp.dense_4h_to_h shared_mlp.output_linear mixer.down_proj output.dense mlp.Wo ffn.lin2 ffn.down_proj ffn_down") \
    SLOT(POST_FFN, "post_feedforward_layernorm post_mlp_layernorm post_ffw_norm post_norm2 output.LayerNorm norm2 output_layer_norm " \
                   "mlp_ln post_ffn_norm " \
                   "layer_output_norm") \
    SLOT(FFN_NORM2, "pre_feedforward_layernorm_2 pre_ffw_norm_2") /* of experts beside the MLP */ \
    SLOT(POST_FFN1, "post_feedforward_layernorm_1 post_ffw_norm_1") \
    SLOT(POST_FFN2, "post_feedforward_layernorm_2 post_ffw_norm_2") \
    /* a layer's own values for a token, and the number that its output is multiplied by */ \
    SLOT(PL_GATE, "per_layer_input_gate ple_block.per_layer_input_gate inp_gate") \
    SLOT(PL_PROJ, "per_layer_projection ple_block.per_layer_projection proj") \
    SLOT(PL_NORM, "post_per_layer_input_norm ple_block.post_per_layer_input_norm post_norm") \
    SLOT(SCALAR, "layer_scalar layer_output_scale") \
    /* the detour around attention, and what routes streams (Gemma 3n) */ \
    SLOT(LAUREL_L, "laurel.linear_left laurel_l") \
    SLOT(LAUREL_R, "laurel.linear_right laurel_r") \
    SLOT(LAUREL_NORM, "laurel.post_laurel_norm laurel_post_norm") \
    SLOT(ALTUP_ROUTER, "altup.modality_router altup_router") \
    SLOT(ALTUP_NORM, "altup.router_norm altup_router_norm") \
    SLOT(ALTUP_SCALE, "altup.correct_output_scale altup_correct_scale") \
    /* the mixture of experts */ \
    SLOT(ROUTER, \
         "mlp.gate mlp.router mlp.router.gate feed_forward.gate feed_forward.router block_sparse_moe.gate block_sparse_moe.router.layer " \
         "block_sparse_moe.router mlp.gate.wg mixer.gate router.proj ffn_gate_inp") \
    SLOT(ROUTER_SCALE, "router.scale ffn_gate_inp.scale") /* of each value that the router reads */ \
    SLOT(EXPERT_SCALE, "router.per_expert_scale ffn_down_exps.scale") \
    SLOT(ROUTER2, "mlp.gate.weight_1") /* of the experts for pictures */ \
    SLOT(CORRECTION, \
         "mlp.gate.e_score_correction_bias mlp.moe_statics.e_score_correction_bias mlp.e_score_correction_bias mlp.expert_bias " \
         "block_sparse_moe.e_score_correction_bias block_sparse_moe.gate.e_score_correction_bias feed_forward.expert_bias " \
         "mixer.gate.e_score_correction_bias mlp.gate.expert_bias exp_probs_b.bias exp_probs_b") \
    SLOT(E_GATE_UP, "mlp.experts.gate_up_proj mlp.experts.#.up_gate_proj block_sparse_moe.input_linear " \
                    "block_sparse_moe.experts.gate_up_proj feed_forward.experts.gate_up_proj experts.gate_up_proj ffn_gate_up_exps") \
    SLOT(E_GATE, "mlp.experts.#.gate_proj block_sparse_moe.experts.#.w1 feed_forward.experts.#.w1 " \
                 "feed_forward.experts.#.gate_proj experts.#.gate_proj ffn_gate_exps") \
    SLOT(E_UP, "mlp.experts.#.up_proj block_sparse_moe.experts.#.w3 feed_forward.experts.#.w3 feed_forward.experts.#.up_proj " \
               "mixer.experts.up_proj mixer.experts.#.up_proj experts.#.up_proj ffn_up_exps") \
    SLOT(E_DOWN, "mlp.experts.#.down_proj block_sparse_moe.experts.#.w2 feed_forward.experts.#.w2 mlp.experts.down_proj " \
                 "block_sparse_moe.output_linear block_sparse_moe.experts.down_proj feed_forward.experts.down_proj " \
                 "feed_forward.experts.#.down_proj mixer.experts.down_proj mixer.experts.#.down_proj experts.down_proj " \
                 "experts.#.down_proj ffn_down_exps") \
    SLOT(E_IN, "mixer.fc1_latent_proj ffn_latent_down") /* before experts and behind them, where they are narrower (Nemotron-H) */ \
    SLOT(E_OUT, "mixer.fc2_latent_proj ffn_latent_up") \
    SLOT(S_GATE_UP, "shared_mlp.input_linear mlp.shared_experts.up_gate_proj") \
    SLOT(S_GATE, \
         "mlp.shared_experts.gate_proj block_sparse_moe.shared_experts.gate_proj mlp.shared_expert.gate_proj mlp.shared_mlp.gate_proj " \
         "feed_forward.shared_expert.gate_proj ffn_gate_shexp") \
    SLOT(S_UP, "mlp.shared_experts.up_proj block_sparse_moe.shared_experts.up_proj mlp.shared_expert.up_proj " \
               "mlp.shared_mlp.up_proj mixer.shared_experts.up_proj feed_forward.shared_expert.up_proj " \
               "ffn_up_shexp") \
    SLOT(S_DOWN, "mlp.shared_experts.down_proj block_sparse_moe.shared_experts.down_proj " \
                 "mlp.shared_expert.down_proj mlp.shared_mlp.down_proj shared_mlp.output_linear " \
                 "feed_forward.shared_expert.down_proj mixer.shared_experts.down_proj ffn_down_shexp") \
    SLOT(S_SCALE, "mlp.shared_expert_gate ffn_gate_inp_shexp") \
    /* recurrent layers; nothing of these is stored minus one */ \
    SLOT(R_IN, "mamba.in_proj mixer.in_proj conv.in_proj linear_attn.in_proj ssm_in shortconv.in_proj") \
    SLOT(R_QKV, "linear_attn.in_proj_qkv attn_qkv") \
    SLOT(R_Z, "linear_attn.in_proj_z attn_gate") \
    SLOT(R_A, "linear_attn.in_proj_a ssm_alpha") \
    SLOT(R_B, "linear_attn.in_proj_b ssm_beta") \
    SLOT(R_QKVZ, "linear_attn.in_proj_qkvz ssm_in") /* key head by key head: its q, its k, v and z of its value heads */ \
    SLOT(R_BA, "linear_attn.in_proj_ba ssm_ba") \
    SLOT(R_CONV, "mamba.conv1d mixer.conv1d linear_attn.conv1d conv.conv ssm_conv1d shortconv.conv") \
    SLOT(R_CONV_BIAS, "mamba.conv1d.bias mixer.conv1d.bias conv.conv.bias ssm_conv1d.bias") \
    SLOT(R_DECAY, "mamba.A_log mixer.A_log linear_attn.A_log self_attn.A_log ssm_a") \
    SLOT(R_STEP, "mamba.dt_bias mixer.dt_bias linear_attn.dt_bias self_attn.dt_bias mamba.dt_proj.bias mixer.dt_proj.bias ssm_dt.bias") \
    SLOT(R_SKIP, "mamba.D mixer.D ssm_d") \
    SLOT(R_NORM, "mamba.norm mixer.norm linear_attn.norm linear_attn.out_norm self_attn.o_norm ssm_norm") \
    SLOT(R_OUT, "mamba.out_proj mixer.out_proj linear_attn.out_proj conv.out_proj ssm_out shortconv.out_proj") \
    SLOT(R_WRITE, "self_attn.b_proj ssm_beta") /* Kimi Linear's, by itself; then its narrow matrices and convolutions */ \
    SLOT(R_F_A, "self_attn.f_a_proj ssm_f_a") \
    SLOT(R_F_B, "self_attn.f_b_proj ssm_f_b") \
    SLOT(R_G_A, "self_attn.g_a_proj ssm_g_a") \
    SLOT(R_G_B, "self_attn.g_b_proj ssm_g_b") \
    SLOT(R_CONV_Q, "self_attn.q_conv1d ssm_conv1d_q") \
    SLOT(R_CONV_K, "self_attn.k_conv1d ssm_conv1d_k") \
    SLOT(R_CONV_V, "self_attn.v_conv1d ssm_conv1d_v") \
    SLOT(R_X, "mamba.x_proj mixer.x_proj ssm_x") /* Mamba 1: dt, B and C behind the convolution, their norms, what makes steps of dt */ \
    SLOT(R_DT, "mamba.dt_proj mixer.dt_proj ssm_dt") \
    SLOT(R_DT_NORM, "mamba.dt_layernorm ssm_dt_norm") \
    SLOT(R_B_NORM, "mamba.b_layernorm ssm_b_norm") \
    SLOT(R_C_NORM, "mamba.c_layernorm ssm_c_norm") \
    /* factors of streams, about 0 as those of states */ \
    SLOT(ALTUP_PREDICT, "altup.prediction_coefs altup_predict_coef") \
    SLOT(ALTUP_CORRECT, "altup.correction_coefs altup_correct_coef") \
    /* of encoders: see >>pooler */ \
    SLOT(TYPES, "embeddings.token_type_embeddings bert.embeddings.token_type_embeddings roberta.embeddings.token_type_embeddings " \
                "electra.embeddings.token_type_embeddings ernie.embeddings.token_type_embeddings new.embeddings.token_type_embeddings " \
                "gte.embeddings.token_type_embeddings roberta_prelayernorm.embeddings.token_type_embeddings " \
                "data2vec_text.embeddings.token_type_embeddings " \
                "token_types") \
    SLOT(TASKS, "embeddings.task_type_embeddings ernie.embeddings.task_type_embeddings") /* of ERNIE */ \
    SLOT(PROJECTION, "embedding_projection model.embedding_projection") \
    SLOT(CLASS_DENSE, "bert.pooler.dense ernie.pooler.dense new.pooler.dense gte.pooler.dense classifier.dense head.dense " \
                      "pre_classifier cls") \
    SLOT(CLASS_NORM, "head.norm cls.norm") \
    SLOT(CLASS, "classifier.out_proj classifier cls.output") \
    SLOT(DENSE2, "dense_2") \
    SLOT(DENSE3, "dense_3")

typedef enum llm__slot {
#define LLM__SLOT_ENUM(slot, names) LLM__W_##slot,
    LLM__SLOTS(LLM__SLOT_ENUM) LLM__W_SLOTS
} llm__slot;

static const char *const llm__slot_names[LLM__W_SLOTS] = {
#define LLM__SLOT_NAMES(slot, names) names,
    LLM__SLOTS(LLM__SLOT_NAMES)};

/* How names of layers begin: the first that any tensor of the file has, behind `skip` bytes that all have. A file of one
 * family has one of them; the longer ones stand later, where they are not mistaken for their own beginnings. */
LLM__PRIVATE const char *llm__layer_base(const llm__tensors *t, size_t skip);

/* How one dimension is shared: this rank takes n of `size`, from `first` on, each `step` apart (0 means 1). As rows,
 * columns, or one of several matrices. */
typedef struct llm__slice {
    int64_t size, first, n, step;
} llm__slice;

/* n of `size` from `first` on. */
LLM__PRIVATE llm__slice llm__slice_of(int64_t size, int64_t first, int64_t n);

/* The whole of it. */
LLM__PRIVATE llm__slice llm__all(int64_t size);

/* The cut of heads, as rows of `width` each. */
LLM__PRIVATE llm__slice llm__slice_times(llm__slice c, int64_t width);

/* A norm or a linear layer: weight and bias, either may be NULL. */
typedef struct llm__net_pair {
    llm_weight *w, *b;
    llm_lora_site *lora; /* where adapters may add to it; NULL: nowhere */
    int32_t rows;        /* of w */
} llm__net_pair;

/* The segments of a weight that is being put together. */
typedef struct llm__segments {
    llm_segment *segment;
    size_t n, cap;
    int64_t rows; /* of all */
} llm__segments;

/* An adapter's files while they are put into the sites of a net: see >>lora. */
typedef struct llm__adapter {
    const char *path;
    int gguf;                  /* its names, and the order of its rows, are GGUF's */
    const char *prefix, *base; /* how all names begin; how those of layers go on */
    llm__file file;
    llm__gguf keys;
    llm_json *config;
    llm__tensors tensors;
    uint8_t *used; /* (tensors.n) */
    double alpha;
    int root;               /* scale alpha / sqrt(r) instead of alpha / r (rsLoRA) */
    int32_t max_rank, rank; /* rank: that every B must have; 0: any up to max_rank */
    uint64_t content;       /* hash of all that it says */
} llm__adapter;

/* What llm__take was asked for. */
typedef struct llm__taken {
    int slot;
    llm__slice rows, cols;
} llm__taken;

/* Goes through all weights of all ranks. After the first failure all calls do nothing; `r` keeps the error. */
typedef struct llm__loader {
    const llm_model *m;
    const llm__arch *a;
    const char *path, *base;    /* of the files that are read, for messages; of the names of the model's layers */
    const llm_backend *backend; /* NULL: check only */
    llm_backend_ctx *ctx;
    int rank, n_ranks, layer; /* layer -1: weights of the whole model */
    int n_group;              /* ranks of a stage of the pipeline */
    llm__segments list[2];    /* of the weight, and of its bias */
    int64_t no_bias;          /* rows of the latter that are zeros, for matrices that have none */
    llm__arena keep;          /* unpacked experts, until the backend has packed them; all ranks take their rows from one copy */
    const uint8_t *mxfp4[LLM__MAX_LAYERS][2]; /* of a layer: gate and up, down */
    int64_t n_params, bytes, step_bytes; /* what is tied counts once; of what was taken, the part that a token reads; the sum of these */
    int n_slots;                         /* of every site; 0: no sites */
    int64_t wide;                        /* rows of the widest layer that adapters may add to, but for the output layer and experts */
    int heading;                         /* it is the output layer that is loaded, which may be the embedding's tensor */
    int part;                            /* i + 1: the i-th of what a recurrent layer's matrix makes is taken: see llm__arch_fold.ssm */
    int dry;                             /* nothing is unpacked */
    int indexed;                         /* see llm__net_config; when it only checks, 1 */
    int64_t unpacked;                    /* bytes that would be */
    int balance;                         /* keys will be rounded: see llm__load_balanced */
    llm__adapter *adapter;               /* not NULL: nothing is made, its tensors go into slot `slot` of the sites */
    int slot;
    llm__taken *taken; /* (n_taken) since the last llm__make, with an adapter only */
    size_t n_taken, taken_cap;
    llm_result r;
} llm__loader;

/* What a word of a slot is called in the current layer: `prefix`, the layer's name, the word with the expert's number in it, `end`. */
LLM__PRIVATE void llm__slot_name(const llm__loader *L, const char *prefix, const char *base, llm__str word, int expert, const char *end,
                                 char name[256]);

/* The tensor of a slot (or of the bias that belongs to it), or NULL. `name` holds 256 bytes: what it is called, or
 * would be. All experts in one tensor may have a name without ".weight", or be stored as MXFP4. */
LLM__PRIVATE const llm__tensor *llm__loader_find(const llm__loader *L, int slot, int expert, int bias, char *name);

/* 1 if the file has it: how the loader tells fused from separate matrices, tied from untied outputs. */
LLM__PRIVATE int llm__has(const llm__loader *L, int slot);

/* 1 if a tensor has these n dimensions; leading dimensions of size 1 do not matter. One dimension: any shape of so
 * many values will do. */
LLM__PRIVATE int llm__loader_fits(llm__loader *L, const llm__tensor *t, const int64_t *want, int n);

/* 1 if weights may be of this type. */
LLM__PRIVATE int llm__loader_type(llm__loader *L, const llm__tensor *t);

/* 1 if a slot has a matrix for each expert. */
LLM__PRIVATE int llm__is_experts(int slot);

/* Finds the stored matrix (rows, cols) of a slot, or with cols 0 its vector of `rows` values; `bias`: the vector that
 * belongs to it. `which`: one of several, each a tensor of its own or all in one with an outermost dimension more.
 * Fills in what a segment says of the stored matrix. 0: an error. */
LLM__PRIVATE int llm__loader_seek(llm__loader *L, int slot, llm__slice which, int64_t rows, int64_t cols, int bias, llm_segment *s);

/* A new segment of n rows, all fields zero; NULL: no memory. */
LLM__PRIVATE llm_segment *llm__loader_segment(llm__loader *L, int list, int64_t n);
