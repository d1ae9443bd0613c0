#include "model/arch.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/facts.h"
#include "model/families.h"
#include "model/arch_gemma3n.h"

LLM__PRIVATE int llm__arch_is(const llm__arch *a, const char *names) {
    return llm__word_index(names, llm__s(a->family->names, strcspn(a->family->names, " "))) >= 0;
}

/* The error for a family that is not in the table, which lists those that are. */
static llm_result llm__arch_unknown(const char *path, const char *name) {
    LLM__SCOPED(llm_text_free) llm_text t = LLM__ZERO;
    for (int i = 0; i < LLM__COUNT(llm__families); i++) {
        llm_text_str(&t, i ? ", " : "");
        llm_text_add(&t, llm__families[i].names, strcspn(llm__families[i].names, " "));
    }
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: architecture \"%.64s\" is not supported; supported are %s", path, name,
                      t.failed ? "others" : t.data);
}

/* A text part may leave out what its class has anyway: published LLaVA and Gemma 3 have a few keys of twenty. */
static const char *llm__text_defaults(const char *type) {
    static const char *const table[][2] = {
        {"llama",
         "hidden_size 4096 intermediate_size 11008 num_hidden_layers 32 num_attention_heads 32 vocab_size 32000 rms_norm_eps 1e-6"},
        {"llama4_text",
         "hidden_size 5120 intermediate_size 8192 intermediate_size_mlp 16384 num_hidden_layers 48 num_attention_heads 40 "
         "num_key_value_heads 8 head_dim 128 vocab_size 202048 max_position_embeddings 131072 num_experts_per_tok 1 rms_norm_eps 1e-5"},
        {"mistral",
         "hidden_size 4096 intermediate_size 14336 num_hidden_layers 32 num_attention_heads 32 num_key_value_heads 8 vocab_size 32000 "
         "max_position_embeddings 131072 rms_norm_eps 1e-6"},
        {"qwen2",
         "hidden_size 4096 intermediate_size 22016 num_hidden_layers 32 num_attention_heads 32 num_key_value_heads 32 vocab_size 151936 "
         "max_position_embeddings 32768 rms_norm_eps 1e-6"},
        {"glm4v_text",
         "hidden_size 4096 intermediate_size 13696 num_hidden_layers 40 num_attention_heads 32 num_key_value_heads 2 vocab_size 151552 "
         "max_position_embeddings 32768 rms_norm_eps 1e-5"},
        {"glm_ocr_text",
         "hidden_size 1024 intermediate_size 4096 num_hidden_layers 16 num_attention_heads 16 num_key_value_heads 8 vocab_size 59392 "
         "max_position_embeddings 131072 rms_norm_eps 1e-5"},
        {"glm4v_moe_text",
         "hidden_size 4096 intermediate_size 10944 num_hidden_layers 46 num_attention_heads 96 num_key_value_heads 8 vocab_size 151424 "
         "max_position_embeddings 65536 rms_norm_eps 1e-5 moe_intermediate_size 1408 num_experts_per_tok 8 n_shared_experts 1 "
         "n_routed_experts 128 first_k_dense_replace 1"},
        {"gemma3_text",
         "hidden_size 2304 intermediate_size 9216 num_hidden_layers 26 num_attention_heads 8 num_key_value_heads 4 head_dim 256 "
         "vocab_size 262208 max_position_embeddings 131072 query_pre_attn_scalar 256 sliding_window 4096 rms_norm_eps 1e-6"},
        {"gemma4_text",
         "hidden_size 2304 intermediate_size 9216 num_hidden_layers 30 num_attention_heads 8 num_key_value_heads 4 head_dim 256 "
         "vocab_size 262144 max_position_embeddings 131072 sliding_window 512 rms_norm_eps 1e-6"},
        {"gemma3n_text",
         "hidden_size 2048 intermediate_size 16384 num_hidden_layers 35 num_attention_heads 8 num_key_value_heads 2 head_dim 256 "
         "vocab_size 262400 max_position_embeddings 32768 sliding_window 512 rms_norm_eps 1e-6"}};
    for (int i = 0; i < LLM__COUNT(table); i++)
        if (!strcmp(type, table[i][0])) return table[i][1];
    return NULL;
}

/* What classes have where a whole config.json is silent, of the numbers without which other tensors fit and other answers come. */
static const char *llm__class_defaults(const char *type) {
    static const char *const table[][2] = {
        {"afmoe", "num_dense_layers 1 num_shared_experts 2 sliding_window 1024"},
        {"axk1 AXK1", "first_k_dense_replace 1 n_shared_experts 1 routed_scaling_factor 2.5 n_group 8 topk_group 4 rms_norm_eps 1e-6"},
        {"codegen gptj", "rotary_dim 64"},
        {"exaone_moe", "first_k_dense_replace 1 num_shared_experts 1 routed_scaling_factor 2.5 sliding_window 4096"},
        {"flint", "shared_expert_intermediate_size 1024 sliding_window 513 rms_norm_eps 1e-6"},
        {"granite_swa", "sliding_window 128"},
        {"granitemoe_swa", "sliding_window 128 rms_norm_eps 1e-6"},
        {"hy_v3", "first_k_dense_replace 1 num_shared_experts 1 router_scaling_factor 2.826"},
        {"lara_mini", "shared_expert_intermediate_size 512 sliding_window 512 rms_norm_eps 1e-6"},
        {"lfm3", "sliding_window 256"},
        {"megatron-bert roberta-prelayernorm", "layer_norm_eps 1e-12"},
        {"mellum", "sliding_window 1024 rms_norm_eps 1e-6"},
        {"mimo_v2_flash", "first_k_dense_replace 1 attention_value_scale 0.707"},
        {"mistral4", "n_shared_experts 1 rms_norm_eps 1e-6"},
        {"sarvam_moe sarvam_mla", "first_k_dense_replace 1 n_shared_experts 1 routed_scaling_factor 2.5 rms_norm_eps 1e-6"},
        {"solar_open", "n_shared_experts 1"},
        {"glm glm4", "rms_norm_eps 1.5625e-7"},
        {"helium", "rms_norm_eps 1e-8"},
        {"llama mistral ministral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next gemma gemma2 vaultgemma dots1 deepseek_v2 deepseek_v3 "
         "deepseek_v32 granite granitemoe granitemoeshared granitemoehybrid seed_oss smollm3 minimax_m2 jamba youtu nanochat hyperclovax "
         "flex_olmo",
         "rms_norm_eps 1e-6"}};
    for (int i = 0; i < LLM__COUNT(table); i++)
        if (llm__word_in(table[i][0], type)) return table[i][1];
    return NULL;
}

/* The row of the family whose first name it is. */
static const llm__family *llm__family_of(const char *name) {
    for (int i = 0; i < LLM__COUNT(llm__families); i++)
        if (llm__str_eq(llm__s(llm__families[i].names, strcspn(llm__families[i].names, " ")), name)) return &llm__families[i];
    return NULL;
}

LLM__PRIVATE int llm__arch_hybrid(const llm__arch *a) { return llm__word_in("granitemoehybrid granitehybrid", a->name); }

/* How many experts Granite 4 has: eight where its folder is silent. */
static int32_t llm__arch_hybrid_experts(llm__facts *f) {
    return llm__fact_int(f, "num_local_experts .expert_count", f->json ? 8 : 0, 0, LLM_MAX_EXPERTS);
}

LLM__PRIVATE llm_result llm__arch_family(llm__facts *f, llm__arch *a) {
    snprintf(a->name, sizeof a->name, "%s", f->arch);
    snprintf(a->class_name, sizeof a->class_name, "%s", f->arch);
    if (f->json) {
        char inner[64];
        const char *name = llm_json_str(f->json, llm__fact_list(f, "architectures"), NULL);
        if (name) snprintf(a->class_name, sizeof a->class_name, "%.60s", name);
        llm__fact_str(f, "model_type", a->name);
        *f = llm__facts_in(f, llm__facts_find(f, "text_config llm_config language_config model transformer_layer_config").node);
        llm__fact_str(f, "model_type", inner);
        if (inner[0] && f->n_nodes > 1) f->defaults = llm__text_defaults(inner);
        if (inner[0]) memcpy(a->name, inner, sizeof inner);
        if (!f->defaults) f->defaults = llm__class_defaults(a->name);
        if (!strcmp(a->name, "bailing_moe") && !strcmp(a->class_name, "BailingMoeV2ForCausalLM")) /* Ling 2 has the model_type of Ling 1 */
            snprintf(a->name, sizeof a->name, "bailing_moe_v2");
    }
    for (int i = 0; !f->r && i < LLM__COUNT(llm__families) && !a->family; i++)
        if (llm__word_in(f->json ? llm__families[i].names : llm__families[i].gguf, a->name)) a->family = &llm__families[i];
    /* Granite 4 without experts is Granite: what its mixtures call the shared expert is its MLP */
    if (a->family && !f->r && llm__arch_hybrid(a) && !llm__arch_hybrid_experts(f)) a->family = llm__family_of("granite");
    if (f->r) return f->r;
    if (!a->name[0]) return llm__error(LLM_ERR_FORMAT, "%s: config.json: model_type is missing", f->path);
    if (!a->family) return llm__arch_unknown(f->path, a->name);
    a->gguf = !f->json;
    a->flags = a->family->flags;
    return LLM_OK;
}

/* LFM2 works the width of its MLP out: two thirds of intermediate_size, times a number, up to a multiple; unless it is said. */
static void llm__arch_lfm2_ff(llm__facts *f, llm__arch *a) {
    if (!f->json || !llm__arch_is(a, "lfm2")) return;
    const int32_t multiple = llm__fact_int(f, "block_multiple_of", 256, 1, 1 << 20), said = llm__fact_int(f, "block_ff_dim", 0, 0, 1 << 21);
    const double times = llm__fact_num(f, "block_ffn_dim_multiplier", 1, 1e-3, 1e3);
    if (said) a->ff = said;
    if (!llm__fact_bool(f, "block_auto_adjust_ff_dim", 1)) return;
    a->ff = (int32_t)LLM__MIN(floor(times * floor(2.0 * a->ff / 3)), 1 << 21);
    a->ff = (a->ff + multiple - 1) / multiple * multiple;
}

/* The indexer of latent attention. It reads the narrow queries, and turns as many values as attention does. */
static void llm__arch_index(llm__facts *f, llm__arch *a) {
    if (!llm__arch_is(a, "deepseek_v32")) return;
    a->index_topk = llm__fact_int(f, "index_topk .attention.indexer.top_k", 2048, 1, 1 << 24);
    a->index_heads = llm__fact_int(f, "index_n_heads .attention.indexer.head_count", 64, 1, LLM__MAX_HEADS);
    a->index_dim = llm__fact_int(f, "index_head_dim .attention.indexer.key_length", 128, 1, 4096);
    a->index_pairs = llm__word_in("glm_moe_dsa", a->name);
    int type = llm__fact_list(f, "indexer_types"), shared = type < 0 && llm__fact_int(f, "index_topk_freq", 1, 1, LLM__MAX_LAYERS) > 1;
    shared |= type < 0 && llm__facts_find(f, "index_topk_pattern").node >= 0;
    for (int i = 0; i < a->n_layers && type >= 0; i++, type = llm_json_next(f->json, type))
        shared |= !llm__str_eq(llm__json_text(f->json, type), "full");
    if (f->r) return;
    if (shared) {
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: indexer_types: layers that share an indexer are not supported", f->path);
        return;
    }
    if (a->index_dim < a->rope[0].dim)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: index_head_dim: %d, must be at least qk_rope_head_dim (%d)", f->path, a->index_dim,
                          a->rope[0].dim);
    else if (!a->q_rank) f->r = llm__error(LLM_ERR_FORMAT, "%s: q_lora_rank: an indexer needs it, which %s has", f->path, a->name);
}

LLM__PRIVATE void llm__arch_shapes(llm__facts *f, llm__arch *a) {
    const int listed =
        llm_json_size(f->json, llm__facts_find(f, "layers_block_type").node); /* alone, in Nemotron-H as transformers saves it */
    a->n_layers = llm__fact_int(f, "num_hidden_layers num_layers n_layer n_layers .block_count",
                                listed && listed <= LLM__MAX_LAYERS ? listed : LLM__MUST, 1, LLM__MAX_LAYERS);
    a->n_layers -= llm__fact_int(f, ".nextn_predict_layers", 0, 0, a->n_layers - 1); /* GGUF counts the multi-token prediction too */
    a->hidden = llm__fact_int(f, "hidden_size n_embd d_model dim .embedding_length", LLM__MUST, 1, 1 << 17);
    const int alone = llm__arch_is(a, "mamba2 mamba"); /* no attention, and no limit of positions */
    const char *heads = llm__arch_is(a, "gpt_neo") ? "num_heads" : "num_attention_heads n_head n_heads .attention.head_count";
    a->n_heads = llm__fact_most(f, heads, alone ? 1 : LLM__MUST, alone ? 0 : 1, LLM__MAX_HEADS);
    a->n_heads = LLM__MAX(a->n_heads, 1);
    a->n_kv_heads = llm__fact_most(f, "num_key_value_heads multi_query_group_num num_kv_heads n_head_kv .attention.head_count_kv",
                                   a->n_heads, 1, a->n_heads);
    int one_kv = f->json && llm__fact_bool(f, "multi_query", llm__arch_is(a, "gpt_bigcode falcon"));
    if (one_kv && !llm__fact_bool(f, "new_decoder_architecture", 0)) a->n_kv_heads = 1;
    /* heads share the hidden size evenly unless said otherwise; where they cannot, it must be said */
    const int latent = (a->flags & LLM__MLA) != 0; /* has widths of its own */
    int64_t even = a->hidden % a->n_heads && !latent ? LLM__MUST : LLM__MAX(a->hidden / a->n_heads, 1);
    a->head_dim = llm__fact_int(f, "head_dim kv_channels attention_head_dim .attention.key_length", even, 1, 4096);
    a->v_head_dim = llm__fact_int(f, ".attention.value_length", a->head_dim, 1, 4096);
    if (f->json && llm__arch_is(a, "gemma3n_text")) a->ff = llm__arch_gemma3n_ff(f, a);
    else
        a->ff = llm__fact_most(f, "intermediate_size_mlp intermediate_size ffn_hidden_size ffn_dim n_inner hidden_dim .feed_forward_length",
                               4 * a->hidden, !alone, 1 << 21);
    if (!a->ff) a->ff = 4 * a->hidden;       /* Mamba 2 in GGUF has no MLP and says 0 */
    if (llm__arch_is(a, "qwen")) a->ff /= 2; /* gate and up together */
    if (f->json && llm__arch_hybrid(a) && llm__arch_is(a, "granite"))
        a->ff = llm__fact_int(f, "shared_intermediate_size", 1024, 1, 1 << 21);
    llm__arch_lfm2_ff(f, a);
    a->vocab = llm__fact_int(f, "padded_vocab_size vocab_size .vocab_size", a->gguf ? a->vocab : LLM__MUST, 1, 1 << 24);
    a->max_positions = llm__fact_int(f, "max_position_embeddings n_positions seq_length model_max_length max_seq_len .context_length",
                                     alone ? 1 << 20 : 2048, 1, 1 << 30);
    a->max_len = a->max_positions;
    if (!latent) return;
    a->q_rank = llm__fact_int(f, "q_lora_rank .attention.q_lora_rank", 0, 0, 1 << 16);
    a->kv_rank = llm__fact_int(f, "kv_lora_rank .attention.kv_lora_rank", LLM__MUST, 1, 1 << 16);
    a->rope[0].dim = llm__fact_int(f, "qk_rope_head_dim .rope.dimension_count", LLM__MUST, 2, LLM__MAX_ROPE);
    int64_t key = llm__fact_int(f, ".attention.key_length_mla", a->head_dim, 1, 4096);
    a->nope = llm__fact_int(f, "qk_nope_head_dim", a->gguf || key > a->rope[0].dim ? key - a->rope[0].dim : LLM__MUST, 1, 4096);
    a->v_head_dim = llm__fact_int(f, "v_head_dim .attention.value_length_mla", a->v_head_dim, 1, 4096);
    a->head_dim = a->nope + a->rope[0].dim;
    a->n_kv_heads = a->n_heads;
    llm__arch_index(f, a);
}

/* The activation that Hugging Face calls `name`. xIELU has numbers of its own in every layer, and only its family has them. */
static llm_act llm__act_of(llm__facts *f, const char *name, llm_act family) {
    static const struct {
        const char *names;
        llm_act act;
    } table[] = {
        {"silu swish swiglu", LLM_ACT_SILU},
        {"gelu gelu_python geglu", LLM_ACT_GELU},
        {"gelu_new gelu_pytorch_tanh gelu_fast gelu_python_tanh", LLM_ACT_GELU_TANH},
        {"relu", LLM_ACT_RELU},
        {"relu2 relu_squared", LLM_ACT_RELU2},
        {"xielu", LLM_ACT_XIELU},
    };
    for (int i = 0; i < LLM__COUNT(table); i++)
        if (llm__word_in(table[i].names, name) && (table[i].act != LLM_ACT_XIELU || family == LLM_ACT_XIELU)) return table[i].act;
    if (!f->r) f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: hidden_act: \"%.40s\" is not supported", f->path, name);
    return LLM_ACT_NONE;
}

/* Whether the output layer is the embedding. Of a model of several parts the whole and its text part may differ, and versions of
 * transformers in which of them they ask; two classes never tie what their config calls tied: then it is if the files have no output
 * layer. */
static void llm__arch_tied(llm__facts *f, llm__arch *a) {
    a->tied = llm__fact_bool(f, "tie_word_embeddings", -1);
    if (f->json && llm__arch_is(a, "kimi_linear nemotron_h") && a->tied > 0) a->tied = -1;
    if (f->n_nodes < 2) return;
    llm__facts whole = *f;
    whole.node[0] = f->node[f->n_nodes - 1];
    whole.n_nodes = 1;
    if (llm__fact_bool(&whole, "tie_word_embeddings", a->tied) != a->tied) a->tied = -1;
    if (!f->r) f->r = whole.r;
}

/* The numbers of xIELU in a layer: what training has found for p and n is p = softplus(alpha_p), n = b + softplus(alpha_n). A folder has
 * them as tensors, GGUF as lists of metadata; without either, as with weights made at random, they are those that training begins with. */
static void llm__arch_xielu(llm__facts *f, llm__arch *a, const llm__tensors *tensors, int layer) {
    static const char *const names[4] = {"alpha_p", "alpha_n", "beta", "eps"};
    static const double usual[4] = {0.2033823208, -1.0502256128, 0.5, -1e-6}; /* softplus of them: 0.8 and 0.3 */
    double v[4];
    for (int i = 0; i < 4; i++) {
        char name[96];
        if (a->gguf) snprintf(name, sizeof name, "xielu.%s", names[i]);
        else snprintf(name, sizeof name, "model.layers.%d.mlp.act_fn.%s", layer, names[i]);
        const llm__gguf_kv *kv = f->gguf ? llm__gguf_find(f->gguf, name) : NULL;
        const llm__tensor *t = a->gguf ? NULL : llm__tensors_find(tensors, name);
        v[i] = usual[i];
        int ok = !(kv || t) || (kv && llm__gguf_num_at(kv, kv->is_array ? (uint64_t)layer : 0, &v[i]));
        if (t && llm__word_in("F32 F16 BF16", llm__type_name(t->type)) && t->bytes == llm__row_bytes(t->type, 1))
            v[i] = (double)llm__element(t->type, t->data, 0), ok = 1;
        if ((!ok || !(fabs(v[i]) < 100)) && !f->r)
            f->r = llm__error(LLM_ERR_FORMAT, "%s: %s: a number between -100 and 100 expected", f->path, name);
    }
    a->layer[layer].xielu[0] = (float)log1p(exp(v[0]));
    a->layer[layer].xielu[1] = (float)(v[2] + log1p(exp(v[1])));
    a->layer[layer].xielu[2] = (float)v[2];
    a->layer[layer].xielu[3] = (float)v[3];
}

/* Habits of single families that no flag says. */
static void llm__arch_habits(llm__facts *f, llm__arch *a) {
    if (llm__arch_is(a, "gpt_neo")) a->qkv_bias = 0; /* though all else has biases */
    if (llm__arch_is(a, "hyperclovax") && !llm__fact_bool(f, "use_post_norm", 1)) a->flags &= ~(uint32_t)LLM__POST_NORM;
    if (llm__arch_is(a, "lfm3") && !llm__fact_bool(f, "use_sandwich_norm", 1)) a->flags &= ~(uint32_t)LLM__POST_NORM;
    if (a->gguf && llm__arch_is(a, "jais2")) a->o_bias = a->mlp_bias = 0; /* as its file has them */
    if (llm__arch_is(a, "nanochat")) a->by_rope = a->embed_bare = 1;
}

LLM__PRIVATE void llm__arch_switches(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    char text[64];
    int all = llm__fact_bool(f, "use_bias bias enable_bias add_bias_linear", (a->flags & LLM__ALL_BIAS) != 0);
    int attention = llm__fact_bool(f, "attention_bias", llm__word_in("glm4v_text glm4v glm46v glm4v_moe_text glm4v_moe", a->name) ? 1 : -1);
    /* a word for attention's biases beats one for all of them, and one for q, k and v alone beats both */
    int usual = attention >= 0 ? attention : !a->gguf && (all || (a->flags & LLM__QKV_BIAS));
    a->qkv_bias = llm__fact_bool(f, "qkv_bias add_qkv_bias use_qkv_bias", usual);
    a->o_bias = llm__fact_bool(f, "attention_out_bias", attention >= 0 ? attention && !(a->flags & LLM__BIAS_NOT_O) : all);
    a->mlp_bias = llm__fact_bool(f, "mlp_bias", all && !llm__arch_is(a, "internlm internlm2 gpt_oss"));
    a->norm = a->flags & LLM__LAYER_NORM ? LLM_NORM_LAYER : LLM_NORM_RMS;
    a->norm_bias = a->norm == LLM_NORM_RMS ? -1 : (a->flags & LLM__ALL_BIAS) != 0;
    a->qk_norm = a->flags & LLM__QK_HEAD ? LLM_QK_NORM_HEAD_RMS : a->flags & LLM__QK_WHOLE ? LLM_QK_NORM_WHOLE_RMS : LLM_QK_NORM_NONE;
    /* GGUF has no word for q/k norms: if there is one, its length tells whether it spans a head or the whole width */
    const llm__tensor *norm = a->gguf ? llm__tensors_find(tensors, "blk.0.attn_q_norm.weight") : NULL;
    if (norm && !a->qk_norm) a->qk_norm = norm->shape[0] == a->head_dim ? LLM_QK_NORM_HEAD_RMS : LLM_QK_NORM_WHOLE_RMS;
    if (norm && norm->n_dims > 1) a->qk_norm = LLM_QK_NORM_HEAD_LAYER;
    if (a->flags & LLM__QK_LAST) a->qk_norm = LLM_QK_NORM_HEAD_RMS_LAST;
    if (llm__arch_is(a, "bailing_moe_v2 sarvam_moe") && !llm__fact_bool(f, "use_qk_norm", 1)) a->qk_norm = LLM_QK_NORM_NONE;
    if (llm__fact_bool(f, "use_qk_norm qk_layernorm", 0) && !a->qk_norm)
        a->qk_norm = llm__arch_is(a, "cohere stablelm") ? LLM_QK_NORM_HEAD_LAYER : LLM_QK_NORM_HEAD_RMS;
    int parallel = llm__fact_bool(f, "use_parallel_residual parallel_attn .use_parallel_residual", (a->flags & LLM__PARALLEL) != 0);
    a->flags = parallel ? a->flags | LLM__PARALLEL : a->flags & ~(uint32_t)LLM__PARALLEL;
    llm__arch_tied(f, a);
    a->act = a->family->act;
    /* Gemma's first config.json says gelu and its code takes the tanh form whatever it says */
    llm__fact_str(f, "mlp_hidden_act hidden_activation hidden_act activation_function activation", text);
    if (a->gguf && llm__arch_is(a, "bitnet")) { /* the first ones were made of models with SiLU, and say nothing */
        a->act = LLM_ACT_SILU;
        llm__fact_str(f, ".hidden_activation", text);
    }
    if (text[0] && a->act != LLM_ACT_SWIGLU_OAI && !llm__arch_is(a, "gemma")) a->act = llm__act_of(f, text, a->family->act);
    a->act_limit = (float)llm__fact_num(f, "swiglu_limit", 7, 1e-3, 1e6);
    for (int i = 0; i < a->n_layers && a->act == LLM_ACT_XIELU; i++) llm__arch_xielu(f, a, tensors, i);
    if (f->json && llm__arch_is(a, "gpt_bigcode") && a->n_kv_heads > 1) a->flags |= LLM__GROUPED;
    if (llm__arch_is(a, "opt")) a->position_offset = 2;
    if (llm__arch_is(a, "afmoe")) a->attn_gate = LLM__GATE_APART;
    a->by_rope = a->chunked = llm__arch_is(a, "llama4_text");
    const int maverick = a->by_rope && llm__fact_int(f, ".expert_count", 0, 0, LLM_MAX_EXPERTS) == 128; /* which alone has none */
    if (a->by_rope) a->qk_norm = llm__fact_bool(f, "use_qk_norm", !maverick) ? LLM_QK_NORM_HEAD_RMS_LAST : LLM_QK_NORM_NONE;
    llm__arch_habits(f, a);
}

/* Words of a config.json that only some publisher's code heeds, and that would change what is computed. */
static void llm__arch_refused(llm__facts *f, const llm__arch *a) {
    static const struct {
        const char *families, *key;
    } table[] = {
        {"hunyuan_v1_dense hunyuan_v1_moe", "use_cla"},
        {"apertus", "post_norm"},
    };
    if (!llm__arch_is(a, "gemma4_text") && llm__fact_list(f, "per_layer_config") >= 0 && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: per_layer_config: layers of %s that differ by it are not supported",
                          f->path, a->name);
    if (llm__arch_is(a, "kimi_linear") && !llm__fact_bool(f, "mla_use_nope", 1) && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: mla_use_nope: false is not supported", f->path);
    if (f->json && !strcmp(a->class_name, "BitnetForCausalLM") && !f->r) /* which calls itself llama, too */
        f->r = llm__error(LLM_ERR_UNSUPPORTED,
                          "%s: config.json: architectures: BitnetForCausalLM: its weights are yet to be rounded to -1, 0 and 1, which is "
                          "not supported; take the packed version, or one in GGUF",
                          f->path);
    if (f->json && llm__arch_is(a, "mellum flint lfm3 lara_mini") && llm__fact_list(f, "layer_types") < 0 && !f->r)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: layer_types: missing", f->path);
    if (f->json && llm__arch_is(a, "mistral4") && llm__facts_find(f, "rope_parameters rope_scaling").node < 0 && !f->r)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: rope_parameters: missing", f->path);
    for (int i = 0; i < LLM__COUNT(table); i++)
        if (f->json && llm__arch_is(a, table[i].families) && llm__fact_bool(f, table[i].key, 0) && !f->r)
            f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: %s: true is not supported", f->path, table[i].key);
    if (f->json && llm__arch_is(a, "hunyuan_v1_dense hunyuan_v1_moe minimax_m2 apertus") &&
        llm__facts_find(f, "sliding_window").node >= 0 && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: sliding_window: %s has no window, null expected", f->path, a->name);
}

LLM__PRIVATE void llm__arch_variants(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    /* Baichuan 13B has ALiBi, 7B rotates: the class, the width and needless inv_freq tensors tell which (in GGUF the number of layers) */
    int thirteen = a->gguf ? a->n_layers == 40 : a->hidden != 4096 && !strcmp(a->class_name, "BaichuanForCausalLM");
    if (llm__arch_is(a, "baichuan") && thirteen && !llm__tensors_find(tensors, "model.layers.0.self_attn.rotary_emb.inv_freq"))
        a->flags |= LLM__ALIBI;
    int other = !llm__fact_bool(f, "do_layer_norm_before", 1);
    other |= llm__fact_bool(f, "apply_residual_connection_post_layernorm", 0);
    other |= llm__fact_bool(f, "scale_attn_by_inverse_layer_idx alibi", 0); /* ALiBi by choice: Falcon's, whose scale differs */
    other |= llm__fact_int(f, "word_embed_proj_dim", a->hidden, 1, 1 << 20) != a->hidden;
    other |= a->qk_norm && llm__arch_is(a, "phi");
    /* with use_bias the model of text alone has a bias of the output layer too, whose matrix may be the embedding's */
    const int sees = llm__word_in("ernie4_5_vl_moe_text ernie4_5_moe_vl", a->name);
    other |= a->mlp_bias > 0 && a->tied && llm__arch_is(a, "ernie4_5_moe") && !sees;
    other |= !a->encoder && a->tied > 0 && llm__tensors_find(tensors, "lm_head.bias") != NULL;
    llm__arch_refused(f, a);
    if (f->r) return;
    if (llm__arch_is(a, "baichuan") && a->vocab == 125696)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: Baichuan 2 (its output layer is normalised as it runs) is not supported", f->path);
    else if (other)
        f->r = llm__error(LLM_ERR_UNSUPPORTED,
                          "%s: config.json: this variant of %s is not supported (norms after the blocks, norms of "
                          "queries or tied output layers with biases, projected embeddings, or scores changed by layer or distance)",
                          f->path, a->name);
}

LLM__PRIVATE void llm__arch_numbers(llm__facts *f, llm__arch *a) {
    const double big = 1e9;
    int minicpm = f->json && llm__arch_is(a, "minicpm minicpm3"), gemma2 = a->gguf && llm__arch_is(a, "gemma2");
    a->eps = (float)llm__fact_num(f,
                                  "rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_epsilon norm_eps "
                                  ".attention.layer_norm_epsilon .attention.layer_norm_rms_epsilon",
                                  a->flags & LLM__NORM_AFTER ? 1e-12 : 1e-5, 1e-20, 1);
    const int wide = llm__arch_is(a, "gemma gemma2 gemma3_text gemma3n_text gemma4_text vaultgemma") ||
                     (llm__arch_is(a, "afmoe") && llm__fact_bool(f, "mup_enabled", a->gguf));
    double embed = wide ? sqrt(a->hidden) : 1;
    a->embed_scale = (float)llm__fact_num(f, "embedding_multiplier scale_emb .embedding_scale", embed, -big, big);
    a->residual_scale = (float)llm__fact_num(f, "residual_multiplier .residual_scale", 1, -big, big);
    if (minicpm) a->residual_scale = (float)(llm__fact_num(f, "scale_depth", sqrt(a->n_layers), 0, big) / sqrt(a->n_layers));
    double scale = llm__fact_num(f, "logit_scale lm_head_multiplier .logit_scale",
                                 llm__arch_is(a, "cohere cohere2 cohere2_moe") ? 0.0625 : 1, -big, big);
    /* logits are multiplied by one word and divided by another; GGUF has one word for both, and the family says which */
    double divisor = llm__fact_num(f, "logits_scaling", 1, 1e-9, big);
    if (llm__arch_is(a, "hyperclovax")) divisor = 1 / divisor; /* whose word multiplies */
    if (minicpm) divisor = a->hidden / llm__fact_num(f, "dim_model_base", a->hidden, 1, big);
    if (a->gguf && (a->flags & LLM__DIVIDE_LOGITS) && scale > 0) divisor = scale, scale = 1;
    a->logit_scale = (float)(scale / divisor);
    /* scores are divided by the root of the head's width, but in the 27B of Gemma 2 and 3 by that of the hidden size's share */
    double query = a->head_dim; /* attention scale = 1 / sqrt(query) */
    if (a->gguf && a->n_layers == (gemma2 ? 46 : llm__arch_is(a, "gemma3_text") ? 62 : 0)) query = (double)a->hidden / a->n_heads;
    query = llm__fact_num(f, "query_pre_attn_scalar", query, 1e-6, big);
    const int unscaled =
        (!a->gguf && llm__arch_is(a, "granite granitemoe granite_swa")) || llm__arch_is(a, "gemma3n_text gemma4_text gpt_neo");
    a->attn_scale = (float)llm__fact_num(f, "attention_multiplier .attention.scale", unscaled ? 1 : 1 / sqrt(query), -big, big);
    if (!llm__fact_bool(f, "scale_attn_weights", 1)) a->attn_scale = 1;
    a->attn_softcap = (float)llm__fact_num(f, "attn_logit_softcapping .attn_logit_softcapping", gemma2 ? 50 : 0, 0, big);
    const double cap = gemma2 || llm__arch_is(a, "gemma3n_text") ? 30 : llm__arch_is(a, "nanochat") ? 15 : 0;
    a->logit_softcap = (float)llm__fact_num(f, "final_logit_softcapping .final_logit_softcapping", cap, 0, big);
    if (llm__fact_num(f, "clip_qkv .attention.clamp_kqv", 0, 0, big) > 0 && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: clip_qkv (clamped q, k and v) is not supported", f->path);
    a->head_norm = f->json && llm__arch_is(a, "bailing_moe") && llm__fact_bool(f, "norm_head", 0);
    if (llm__fact_bool(f, "use_logn_attn", 0))
        a->logn_from = llm__fact_int(f, "seq_length max_position_embeddings", a->max_positions, 2, 1 << 30);
}

/* Where a config lists a number for each layer, one that all of them have is expected. */
static void llm__arch_alike(llm__facts *f, const char *key) {
    const llm__fact fact = llm__facts_find(f, key);
    int64_t first = 0, other = 0;
    const int list = llm__fact_list(f, key);
    llm_json_int(f->json, list, &first);
    for (int v = list; v >= 0; v = llm_json_next(f->json, v))
        if ((!llm_json_int(f->json, v, &other) || other != first) && !f->r)
            f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: %s: the same whole number for all layers expected", f->path, fact.key);
}

/* Families whose code asks few questions: experts of intermediate_size, weights that are always normalised or (SparseMixer's, Llama 4's)
 * never, and beside them an MLP as wide as one expert (Hunyuan, Llama 4) or none. */
static void llm__arch_fixed_experts(llm__facts *f, llm__arch *a) {
    a->weigh_input = llm__arch_is(a, "llama4_text");
    if (!f->json || !llm__arch_is(a, "hunyuan_v1_moe minimax_m2 phimoe llama4_text")) return;
    a->ff_expert = llm__fact_int(f, "intermediate_size", a->ff, 1, 1 << 20);
    a->ff_shared = llm__arch_is(a, "hunyuan_v1_moe llama4_text") ? a->ff_expert : 0;
    a->normalize = (a->flags & LLM__NORM_TOPK) != 0;
    a->route_scale = 1;
    a->n_group = 1;
    llm__arch_alike(f, "num_local_experts");
    llm__arch_alike(f, "num_experts");
    llm__arch_alike(f, "moe_topk");
}

/* SparseMixer takes two experts, whatever the router's noise was in training: how near they are is told by its size. */
static void llm__arch_sparsemixer(llm__facts *f, llm__arch *a) {
    if (!llm__arch_is(a, "phimoe")) return;
    a->score = LLM_ROUTE_SPARSEMIXER;
    a->near = (float)(2 * llm__fact_num(f, "router_jitter_noise .router_jitter_noise", 0.01, 0, 1e3));
    a->normalize = 0;
    if (a->n_used != 2 && !f->r) f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: %d experts a token: %s takes 2", f->path, a->n_used, a->name);
}

/* The width of layer i's shared expert by its tensor in GGUF, which has the gate's rows, too, where that is none of its own. */
static void llm__arch_shared_width(llm__arch *a, const llm__tensors *tensors, int i) {
    char up[64], gate[64];
    snprintf(up, sizeof up, "blk.%d.ffn_up_shexp.weight", i);
    snprintf(gate, sizeof gate, "blk.%d.ffn_gate_shexp.weight", i);
    const llm__tensor *t = llm__tensors_find(tensors, up);
    const int both = !(a->flags & LLM__NO_GATE) && !llm__tensors_find(tensors, gate);
    if (t) a->ff_shared = (int32_t)LLM__MIN(both ? t->shape[0] / 2 : t->shape[0], 1 << 21);
}

/* How Cohere 2's experts are chosen where expert_selection_fn does not say sigmoid, or by GGUF's number for it. */
static void llm__arch_selection(llm__facts *f, llm__arch *a, const char *word, int gating) {
    a->score = a->gguf && gating != 1 ? LLM_ROUTE_SIGMOID : a->gguf ? LLM_ROUTE_SOFTMAX : LLM_ROUTE_TOPK_SOFTMAX;
    if (word[0] && !llm__word_in("softmax sigmoid", word) && !f->r)
        f->r =
            llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: expert_selection_fn: \"%.40s\", softmax or sigmoid expected", f->path, word);
}

LLM__PRIVATE void llm__arch_experts(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    char text[64];
    int64_t silent = llm__arch_hybrid(a) && llm__arch_is(a, "granitemoe") ? llm__arch_hybrid_experts(f) : 0;
    if (f->json && llm__arch_is(a, "llama4_text jamba")) silent = 16;
    a->n_experts =
        llm__fact_item(f, "num_local_experts num_experts n_routed_experts moe_num_experts .expert_count", 0, silent, 0, LLM_MAX_EXPERTS);
    if (llm__arch_is(a, "gemma4_text") && f->json && !llm__fact_bool(f, "enable_moe_block", 0)) a->n_experts = 0;
    if (llm__arch_is(a, "jamba") && a->n_experts == 1) a->n_experts = 0;
    a->n_sets = llm__word_in("ernie4_5_vl_moe_text ernie4_5_moe_vl", a->name) ? 2 : 1;
    if (!a->n_experts) return;
    int32_t most = LLM__MIN(a->n_experts, 256);
    a->n_used = llm__fact_item(f, "num_experts_per_tok moe_k num_experts_per_token moe_topk top_k_experts .expert_used_count", 0, LLM__MUST,
                               1, most);
    a->ff_expert = llm__fact_item(f, "moe_intermediate_size intermediate_size .expert_feed_forward_length", 0, a->ff, 1, 1 << 20);
    if (a->n_sets > 1) a->ff_expert2 = llm__fact_item(f, "moe_intermediate_size", 1, a->ff_expert, 1, 1 << 20);
    a->ff_latent = llm__fact_int(f, "moe_latent_size .moe_latent_size", 0, 0, 1 << 17);
    int64_t n_shared = llm__fact_int(f, "n_shared_experts moe_num_shared_experts num_shared_experts .expert_shared_count", 0, 0, 1024);
    a->ff_shared = llm__fact_int(
        f,
        "shared_expert_intermediate_size shared_intermediate_size moe_shared_expert_intermediate_size .expert_shared_feed_forward_length",
        n_shared * a->ff_expert, 0, 1 << 21);
    if (f->json && llm__arch_is(a, "bailing_moe_v2 sarvam_moe")) /* the width of one */
        a->ff_shared =
            (int32_t)LLM__MIN(n_shared * llm__fact_int(f, "moe_shared_expert_intermediate_size", a->ff_expert, 1, 1 << 20), 1 << 21);
    a->score = a->flags & LLM__SIGMOID ? LLM_ROUTE_SIGMOID : a->flags & LLM__TOPK_SOFTMAX ? LLM_ROUTE_TOPK_SOFTMAX : LLM_ROUTE_SOFTMAX;
    int gating = llm__fact_int(f, ".expert_gating_func", 0, 0, 3), corrected = 0;
    for (int i = 0; a->gguf && i < a->n_layers; i++) { /* some converters write another width than the tensors have */
        llm__arch_shared_width(a, tensors, i);
        snprintf(text, sizeof text, "blk.%d.exp_probs_b.bias", i);
        corrected |= llm__tensors_find(tensors, text) != NULL;
    }
    if (gating == 2 || (!gating && corrected && (a->flags & LLM__MLA))) a->score = LLM_ROUTE_SIGMOID; /* V3 as GGUF is "deepseek2" */
    llm__fact_str(f, "scoring_func score_function moe_router_activation_func expert_selection_fn", text);
    if (llm__arch_is(a, "cohere2_moe")) llm__arch_selection(f, a, text, gating);
    if (!strcmp(text, "sigmoid")) a->score = LLM_ROUTE_SIGMOID;
    if (!strcmp(text, "softmax") && llm__arch_is(a, "kimi_linear bailing_moe_v2")) a->score = LLM_ROUTE_SOFTMAX;
    a->shared_gate = llm__arch_is(a, "qwen2_moe qwen3_next qwen3_5_moe_text");
    int usual = (a->flags & LLM__NORM_TOPK) || llm__arch_is(a, "llama") || (a->gguf && llm__arch_is(a, "qwen3_moe")); /* GGUF's Mixtral */
    a->normalize = llm__fact_bool(f, "norm_topk_prob moe_renormalize route_norm .expert_weights_norm", usual);
    if (f->json && llm__arch_is(a, "deepseek_v2")) a->normalize = 0; /* its code ignores the key */
    a->normalize_min = (float)llm__fact_num(f, "moe_norm_min", 0, 0, 1);
    a->route_scale = (float)llm__fact_num(f, "routed_scaling_factor router_scaling_factor route_scale .expert_weights_scale", 1, -1e6, 1e6);
    if (a->gguf && a->route_scale == 0) a->route_scale = 1;
    a->n_group = llm__fact_int(f, "n_group num_expert_group .expert_group_count", 1, 0, a->n_experts);
    a->topk_group = llm__fact_int(f, "topk_group .expert_group_used_count", 1, 0, LLM__MAX(a->n_group, 1));
    if (!strcmp(llm__fact_str(f, "topk_method", text), "greedy") || !llm__fact_bool(f, "use_grouped_topk", 1)) a->n_group = 1;
    a->group_top2 = a->score == LLM_ROUTE_SIGMOID || llm__arch_is(a, "mistral4");
    llm__arch_fixed_experts(f, a);
    llm__arch_sparsemixer(f, a);
    int size = a->n_experts / LLM__MAX(a->n_group, 1);
    if (!f->r && (int64_t)a->n_experts * a->ff_expert > INT32_MAX / 2)
        f->r = llm__error(LLM_ERR_LIMIT, "%s: %d experts of width %d are too many", f->path, a->n_experts, a->ff_expert);
    if (f->r || a->n_group < 2) return;
    if (a->n_experts % a->n_group || size * a->topk_group < a->n_used || (a->group_top2 && size < 2))
        f->r = llm__error(LLM_ERR_FORMAT, "%s: %d experts in %d groups of which %d are used cannot give %d experts", f->path, a->n_experts,
                          a->n_group, a->topk_group, a->n_used);
}

/* Which layers have experts by a list: 1 or "sparse", others 0 or "dense". */
static void llm__arch_mixed(llm__facts *f, llm__arch *a, const char *key) {
    const llm__fact fact = llm__facts_find(f, key);
    int64_t n = 0;
    for (int i = 0, v = llm_json_first(f->json, fact.node); i < a->n_layers; i++, v = llm_json_next(f->json, v)) {
        const llm__str word = llm__json_text(f->json, v);
        const int number = llm_json_int(f->json, v, &n);
        a->layer[i].moe = number ? n != 0 : llm__str_eq(word, "sparse");
        if (!number && !a->layer[i].moe && !llm__str_eq(word, "dense"))
            llm__facts_bad(f, &fact, "1 or \"sparse\", 0 or \"dense\" for each layer expected");
    }
}

LLM__PRIVATE void llm__arch_sparse(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    if (!a->n_experts) return;
    int64_t first =
        llm__fact_item(f, "first_k_dense_replace moe_layer_start_index num_dense_layers .leading_dense_block_count", 0, 0, 0, 1 << 20);
    int64_t last = llm__fact_item(f, "moe_layer_end_index", 0, -1, -1, 1 << 20), index;
    int64_t every =
        llm__fact_int(f, "decoder_sparse_step moe_layer_interval interleave_moe_layer_step .interleave_moe_layer_step", 1, 0, 1 << 20);
    const int freq = llm__fact_list(f, "moe_layer_freq"); /* or a list */
    int64_t each = freq < 0 ? llm__fact_int(f, "moe_layer_freq", 1, 1, 1 << 20) : 1;
    for (int i = 0; i < a->n_layers && every; i++)
        a->layer[i].moe = i >= first && (last < 0 || i <= last) && (i + 1) % every == 0 && i % each == 0;
    if (freq >= 0) llm__arch_mixed(f, a, "moe_layer_freq");
    for (int v = llm__fact_list(f, "mlp_only_layers"); v >= 0; v = llm_json_next(f->json, v))
        if (llm_json_int(f->json, v, &index) && index >= 0 && index < a->n_layers) a->layer[index].moe = 0;
    if (llm__arch_is(a, "jamba")) {
        every = llm__fact_int(f, "expert_layer_period", 2, 1, LLM__MAX_LAYERS);
        const int32_t offset = llm__fact_int(f, "expert_layer_offset", 1, 0, every - 1);
        for (int i = 0; i < a->n_layers; i++) a->layer[i].moe = i % every == offset;
    }
    for (int i = 0; i < a->n_layers && a->gguf && llm__arch_is(a, "jamba hy_v3 mimo_v2_flash"); i++) { /* which have no key for it */
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", i);
        a->layer[i].moe = llm__tensors_find(tensors, name) != NULL;
    }
    const int listed = llm__facts_find(f, "moe_layers").node;
    for (int i = 0; i < a->n_layers && listed >= 0; i++) a->layer[i].moe = 0;
    for (int v = llm_json_first(f->json, listed); v >= 0; v = llm_json_next(f->json, v))
        if (llm_json_int(f->json, v, &index) && index >= 0 && index < a->n_layers) a->layer[index].moe = 1;
    if (llm__facts_find(f, "mlp_layer_types").node >= 0) llm__arch_mixed(f, a, "mlp_layer_types");
}

/* EXAONE 4's pattern as a text, "LLLG": L is a layer that sees a window; the last layer sees everything. */
static const char *llm__arch_letters(llm__facts *f, char out[64]) {
    if (llm_json_type_of(f->json, llm__facts_find(f, "sliding_window_pattern").node) != LLM_JSON_STRING) return NULL;
    llm__fact_str(f, "sliding_window_pattern", out);
    if (!f->r && (!out[0] || strspn(out, "LG") < strlen(out)))
        f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: sliding_window_pattern: \"%.40s\", letters L and G expected", f->path, out);
    return out;
}

/* 1 if layer i sees a window by the entry `type` of layer_types; windowless: there is none to see. Families with recurrent layers tell
 * theirs apart in >>arch_recurrent. */
static int llm__arch_slides(llm__facts *f, const llm__arch *a, int type, int i, int windowless) {
    const char *name = llm_json_str(f->json, type, NULL), *near = a->chunked ? "chunked_attention" : "sliding_attention";
    const int slides = name && !strcmp(name, near), told = a->recurrent && slides; /* told from others there */
    if (f->r || (!told && (a->recurrent || llm__arch_hybrid(a) || llm__arch_is(a, "nemotron_h")))) return 0;
    if (a->index_topk && name && llm__word_in("indexed_attention deepseek_sparse_attention", name)) return 0;
    if (!slides && (!name || strcmp(name, "full_attention")))
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: layer_types: entry %d is \"%.40s\", %s or full_attention expected",
                          f->path, i, name ? name : "", near);
    if (slides && windowless)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: sliding_window: missing, but layer_types has %s in entry %d", f->path, near, i);
    return slides;
}

/* A layer's shapes, before a family says more. GGUF may list them, with 0 where a layer has no attention or no MLP. */
static void llm__arch_layer_shapes(llm__facts *f, llm__arch *a, int i) {
    llm__arch_layer *l = &a->layer[i];
    l->n_kv_heads = a->n_kv_heads, l->head_dim = a->head_dim, l->v_head_dim = a->v_head_dim, l->ff = a->ff;
    l->kv_of = i;
    if (!a->gguf || a->flags & LLM__MLA) return;
    const int attends = l->mixer == LLM__MIX_ATTENTION || l->both,
              q = llm__fact_layer(f, ".attention.head_count", i, a->n_heads, 0, a->n_heads);
    const int32_t kv = llm__fact_layer(f, ".attention.head_count_kv", i, a->n_kv_heads, attends, a->n_heads);
    const int32_t ff = llm__arch_is(a, "qwen") ? a->ff : llm__fact_layer(f, ".feed_forward_length", i, a->ff, !l->no_mlp, 1 << 21);
    if (attends && q != a->n_heads && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: layer %d: %d query heads, as many as other layers have (%d) expected", f->path, i, q,
                          a->n_heads);
    if (kv) l->n_kv_heads = kv;
    if (ff) l->ff = ff;
}

LLM__PRIVATE llm_result llm__arch_layers_check(const llm__facts *f, const llm__arch *a) {
    for (int i = 0; i < a->n_layers; i++) {
        const llm__arch_layer *l = &a->layer[i];
        if (a->n_heads % l->n_kv_heads)
            return llm__error(LLM_ERR_FORMAT, "%s: layer %d: %d query heads cannot share %d key heads evenly", f->path, i, a->n_heads,
                              l->n_kv_heads);
        if ((int64_t)a->n_heads * LLM__MAX(l->head_dim, l->v_head_dim) > 1 << 20)
            return llm__error(LLM_ERR_LIMIT, "%s: layer %d: %d heads of %d values are more than %d", f->path, i, a->n_heads, l->head_dim,
                              1 << 20);
        if (a->attn_gate && l->head_dim != l->v_head_dim)
            return llm__error(LLM_ERR_FORMAT, "%s: layer %d: values of %d beside keys of %d, as many expected: gates multiply them",
                              f->path, i, l->v_head_dim, l->head_dim);
    }
    for (int i = 0; i < a->n_rope; i++)
        if (a->rope[i].dim % 2 || a->rope[i].dim > LLM__MAX(a->head_dim, a->full_head_dim) || (i && a->rope[i].dim > a->head_dim))
            return llm__error(LLM_ERR_FORMAT, "%s: RoPE turns %d values of a head, an even number of at most all was expected", f->path,
                              a->rope[i].dim);
    if ((int64_t)a->per_layer * a->n_layers > 1 << 22)
        return llm__error(LLM_ERR_LIMIT, "%s: %d values of their own for each of %d layers are too many", f->path, a->per_layer,
                          a->n_layers);
    return LLM_OK;
}

LLM__PRIVATE void llm__arch_layers(llm__facts *f, llm__arch *a) {
    char text[64];
    const char *letters = llm__arch_letters(f, text);
    int types = llm__facts_find(f, "layer_types layers_block_type").node, type = llm_json_first(f->json, types);
    int rope = llm__fact_list(f, "no_rope_layers");
    const int ropes = rope >= 0;
    const int zero = f->json || llm__arch_is(a, "phi3 phimoe llama4_text"); /* it may be said, and means none */
    int32_t window = llm__fact_int(f, "sliding_window .attention.sliding_window", 0, !zero, 1 << 30);
    if (a->chunked) window = llm__fact_int(f, "attention_chunk_size .attention.sliding_window", 8192, !a->gguf, 1 << 30);
    int hybrid = llm__arch_is(a, "afmoe") || (llm__arch_is(a, "cohere2 cohere2_moe exaone4 exaone_moe flint lara_mini") && window),
        qwen = (a->flags & LLM__QWEN_WINDOW) != 0, smol = llm__arch_is(a, "smollm3");
    /* every so many layers one sees everything */
    int usual = llm__arch_is(a, "gemma2 gpt_oss")            ? 2
                : llm__arch_is(a, "gemma3_text gemma4_text") ? 6
                : llm__arch_is(a, "gemma3n_text")            ? 5
                : hybrid || llm__arch_is(a, "olmo2")         ? 4
                : a->gguf && a->chunked                      ? 4
                                                             : 0;
    const llm__fact key = llm__facts_find(f, ".attention.sliding_window_pattern");
    const llm__gguf_kv *each = key.kv && key.kv->is_array ? key.kv : NULL; /* GGUF's list, true where a layer slides; else a number */
    if (each && (each->type == LLM__GGUF_STR || each->count < (uint64_t)a->n_layers)) llm__facts_bad(f, &key, "one value a layer expected");
    const char *words = "sliding_window_pattern global_attn_every_n_layers .attention.sliding_window_pattern";
    int64_t pattern = each || letters ? 0 : llm__fact_int(f, words, usual, 0, 1 << 20);
    int64_t from = qwen || llm__arch_is(a, "dots1") ? llm__fact_int(f, "max_window_layers", qwen ? 28 : 62, 0, 1 << 20) : 0;
    int64_t interval = llm__fact_int(f, "no_rope_layer_interval", 4, 1, 1 << 20);
    const int off = !llm__fact_bool(f, "use_sliding_window", !qwen && !smol);
    /* these have other words for it, read later */
    const int windowless = !window && !off && !a->encoder && !llm__arch_is(a, "mimo_v2_flash cohere2_moe");
    if (off) window = 0;
    /* what the config lists layer by layer beats the pattern, and the pattern is what the family's code has when all is silent */
    for (int i = 0; i < a->n_layers; i++) {
        llm__arch_layer *l = &a->layer[i];
        int64_t uses_rope = !(smol || a->chunked) || (i + 1) % interval != 0;
        if (ropes && !llm_json_int(f->json, rope, &uses_rope) && !f->r)
            f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: no_rope_layers: 0 or 1 for each layer expected", f->path);
        int slides = smol ? !uses_rope : a->chunked && !a->gguf ? uses_rope != 0 : i >= from && (!pattern || (i + 1) % pattern != 0);
        if (llm__arch_is(a, "granite_swa")) slides = i % 4 != 0;
        if (letters && !f->r) slides = i + 1 < a->n_layers && letters[(size_t)i % strlen(letters)] == 'L';
        if (types >= 0) slides = llm__arch_slides(f, a, type, i, windowless);
        if (each && !f->r) slides = each->data[(size_t)i * (size_t)llm__gguf_size_of(each->type)] != 0;
        if (a->gguf && a->chunked) slides &= window > 0, uses_rope = slides || !window; /* one word for both */
        l->slides = slides != 0;
        l->sinks = llm__arch_is(a, "gpt_oss granite_swa flint");
        l->window = slides ? window : 0;
        llm__arch_layer_shapes(f, a, i);
        l->rope = slides && window && a->n_rope > 1;
        if (!uses_rope || (hybrid && !slides) || !a->n_rope || llm__arch_is(a, "nemotron_h jamba")) l->rope = -1;
        if (type >= 0) type = llm_json_next(f->json, type);
        if (rope >= 0) rope = llm_json_next(f->json, rope);
    }
}

/* A layer's window by a word; 0: it is none. */
static int llm__neo_window(const llm__facts *f, int word, int32_t window, llm__arch_layer *l) {
    const llm__str s = llm__json_text(f->json, word);
    l->window = llm__str_eq(s, "local") ? window : 0;
    return l->window || llm__str_eq(s, "global");
}

LLM__PRIVATE void llm__arch_neo(llm__facts *f, llm__arch *a) {
    if (!llm__arch_is(a, "gpt_neo")) return;
    const llm__fact fact = llm__facts_find(f, "attention_layers attention_types");
    const int32_t window = llm__fact_int(f, "window_size", 256, 1, 1 << 30);
    int i = 0, ok = 1;
    if (!strcmp(fact.key, "attention_layers") && fact.node >= 0) {
        for (int word = llm_json_first(f->json, fact.node); i < a->n_layers && ok; i++, word = llm_json_next(f->json, word))
            ok = llm__neo_window(f, word, window, &a->layer[i]);
        if (!ok) llm__facts_bad(f, &fact, "\"global\" or \"local\" for each layer expected");
        return;
    }
    for (int group = llm_json_first(f->json, fact.node); group >= 0 && ok; group = llm_json_next(f->json, group)) {
        const int words = llm_json_first(f->json, group);
        int64_t times = 0;
        ok = llm_json_int(f->json, llm_json_next(f->json, words), &times) && times > 0 && times <= a->n_layers;
        for (int64_t t = 0; t < times && ok; t++)
            for (int word = llm_json_first(f->json, words); word >= 0 && ok; word = llm_json_next(f->json, word), i++)
                ok = i < a->n_layers && llm__neo_window(f, word, window, &a->layer[i]);
    }
    for (; fact.node < 0 && i < a->n_layers; i++) a->layer[i].window = i % 2 ? window : 0;
    if (!ok || i != a->n_layers) llm__facts_bad(f, &fact, "[[\"global\", \"local\"], times] for each layer expected");
}

LLM__PRIVATE void llm__arch_mpt(llm__facts *f, llm__arch *a) {
    if (!llm__arch_is(a, "mpt")) return;
    llm__facts in = llm__facts_in(f, llm__facts_find(f, "attn_config").node);
    const double most = llm__fact_num(&in, "alibi_bias_max .attention.max_alibi_bias", a->gguf ? 0 : 8, 0, 100);
    const char *bad = !llm__fact_bool(&in, "alibi", 1) || most == 0                        ? "alibi: false"
                      : llm__fact_bool(&in, "qk_ln", 0)                                    ? "qk_ln: true"
                      : llm__fact_bool(&in, "prefix_lm", 0)                                ? "prefix_lm: true"
                      : llm__fact_num(&in, "clip_qkv .attention.clamp_kqv", 0, 0, 1e9) > 0 ? "clip_qkv (clamped q, k and v)"
                                                                                           : NULL;
    a->attn_scale = (float)llm__fact_num(&in, "softmax_scale", (double)a->attn_scale, -1e9, 1e9);
    for (int h = 0; h < a->n_heads; h++) a->alibi[h] = (float)pow((double)a->alibi[h], most / 8);
    f->r = in.r;
    if (bad && !f->r) f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: attn_config: %s is not supported", f->path, bad);
}

LLM__PRIVATE double llm__arch_steepest(const llm__arch *a) {
    int n = 1;
    while (2 * n <= a->n_heads) n *= 2;
    return -log2((double)a->alibi[n - 1]);
}
