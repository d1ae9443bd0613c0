/* families: families as data.
 *
 * A row says what a family does where its files keep silent; the rest is read. For a folder the code that comes with
 * the model knows these things, for GGUF the program that runs it.
 * Where q and k are normalised, and over what, is what such parts differ in most:
 *   QK_HEAD            q_h = rope(norm(q_h)), each head by itself       Qwen 3, Gemma 3, Apertus
 *   QK_HEAD, QK_LAST   q_h = norm(rope(q_h))                            Hunyuan
 *   QK_WHOLE           q = norm(q), all heads as one vector, then rope  OLMo 2, MiniMax-M2
 * Newer mixtures of experts are older parts in another arrangement, which is why a row is enough for most:
 *   Solar Open     GLM-4-MoE without norms of q and k, whole heads of which turn
 *   K-EXAONE       EXAONE 4's windows and norms of q and k, Llama's norms of a layer, DeepSeek-V3's router
 *   Hy3            Qwen3-MoE's attention, DeepSeek-V3's router without groups, a shared expert
 *   FlexOlmo       OLMo 2's norms around OLMoE's experts
 *   Sarvam 30B     Ling 2, whole heads of which turn; 105B is DeepSeek-V3 with plain queries
 *   Trinity        Gemma 2's four norms, positions in windows alone, a matrix whose sigmoids multiply what attention gives
 *   Mistral 4      DeepSeek-V2's attention and softmax, queries that grow with their positions as Ministral 3's do
 *   BitNet         Llama with norms of what the second matrix of each block reads, and weights of -1, 0 and 1 (>>quant_rows)
 *   A.X K1, Cohere 2 MoE and MiMo-V2-Flash: see >>arch_mixtures
 * Names of one model_type may mean two families, which other words tell apart:
 *   bailing_moe           Ling 1; with architectures BailingMoeV2ForCausalLM Ling 2 and Ring, here bailing_moe_v2
 *   granitemoehybrid      Granite 4: a mixture (granitemoe), or without experts granite
 *   granitehybrid         in GGUF Bamba as well, which differs in nothing that its keys do not say
 *   deepseek2             in GGUF DeepSeek V2, and V3 by its router's sigmoids; deepseek is the first, without latent attention
 *   granite_swa           in GGUF its mixtures (granitemoe_swa), too, which have experts
 *   gte, new              one encoder: the second is what its publisher's code calls it
 *   electra, ernie        BERT by other names; a row of their own where a switch differs, for llama.cpp has no such switch
 *   lfm3                  LFM2 whose attention may see a window; a row of its own, for its MLP is as wide as it says
 *   mellum, flint         Qwen 3 with experts, whose layers see a window or everything; Flint's have positions in a window alone
 * What no flag can say stands in the functions below as llm__arch_is(a, "names"): search for a family's name to find
 * all that is special about it. To add a family of known parts is to add a row:
 *   1. find its modeling_*.py in transformers and, if there is one, its graph in llama.cpp
 *   2. add a row here: names, flags, activation, RoPE base
 *   3. add spellings that its config.json has and no question below knows yet
 *   4. add names of its tensors to LLM__SLOTS
 *   5. make a tiny checkpoint with random weights and compare the logits with the reference, on one rank and on two */
#pragma once
#include "api/backend.h"

/* PAIRS_GGUF: llama.cpp's converters reorder the rows of q and k of some families, so that in a head of d rows the
 * i-th of the first half is followed by the i-th of the second:
 *   folder  0 1 2 ... d/2-1 | d/2 ... d-1      pairs (i, i + d/2)
 *   GGUF    0 d/2 1 d/2+1 2 d/2+2 ...          pairs (2i, 2i + 1)
 * Scores are the same, for q and k are reordered alike. Nothing is reordered back here: the pass turns the other pairs.
 *
 * What neither config.json nor GGUF metadata say, because the code of each family knows it. A flag is a habit: where
 * the config has a word for it, the config decides, and llm__arch_switches writes the decision back into arch.flags. */
enum {
    LLM__LAYER_NORM = 1,    /* LayerNorm, else RMSNorm */
    LLM__NORM_PLUS1 = 2,    /* a folder stores norm weights minus one (GGUF does not) */
    LLM__PAIRS = 4,         /* RoPE turns pairs (2i, 2i+1) in a folder */
    LLM__PAIRS_GGUF = 8,    /* the same in GGUF, whose q and k rows may be permuted */
    LLM__QKV_BIAS = 16,     /* q, k and v have biases */
    LLM__ALL_BIAS = 32,     /* every projection and norm has one */
    LLM__BIAS_NOT_O = 64,   /* attention_bias means q, k and v only */
    LLM__NO_GATE = 128,     /* MLP: down(act(up x)) */
    LLM__PARALLEL = 256,    /* attention and MLP read the same x */
    LLM__NO_PRE_NORM = 512, /* blocks read x itself */
    LLM__POST_NORM = 1024,  /* what a block adds is normalised first */
    LLM__QK_HEAD = 2048,    /* q and k are normalised a head */
    LLM__QK_WHOLE = 4096,   /* or over their whole width */
    LLM__TIED = 8192,       /* output = embedding, unless said otherwise */
    LLM__CONV1D = 16384,    /* matrices stand as (in, out) */
    LLM__LEARNED = 32768,   /* a table of positions instead of RoPE */
    LLM__ALIBI = 65536,
    LLM__GROUPED = 1 << 17,       /* the fused q, k, v matrix goes kv head by kv head: its queries, k, v */
    LLM__MLA = 1 << 18,           /* latent attention */
    LLM__SIGMOID = 1 << 19,       /* router scores */
    LLM__NORM_TOPK = 1 << 20,     /* chosen experts' weights are normalised, unless said otherwise */
    LLM__QWEN_WINDOW = 1 << 21,   /* sliding_window counts only with use_sliding_window, from max_window_layers on */
    LLM__DIVIDE_LOGITS = 1 << 22, /* GGUF's logit_scale is a divisor */
    LLM__TOPK_SOFTMAX = 1 << 23,  /* router: softmax over the chosen */
    LLM__QK_LAST = 1 << 24,       /* norms of q and k a head stand behind RoPE */
    LLM__BOTH_WAYS = 1 << 25,     /* an encoder: tokens see those behind them too, and nothing is generated */
    LLM__NORM_AFTER = 1 << 26,    /* with NO_PRE_NORM: the residual stream itself is normalised behind each block */
    LLM__GPT_BIAS = LLM__LAYER_NORM | LLM__ALL_BIAS | LLM__NO_GATE,
    LLM__BERT = LLM__BOTH_WAYS | LLM__LAYER_NORM | LLM__NO_PRE_NORM | LLM__NORM_AFTER
};

/* One family, or several that differ in numbers only. */
typedef struct llm__family {
    const char *names; /* model_type of config.json; the first is the family's name */
    const char *gguf;  /* general.architecture; "": none */
    uint32_t flags;
    llm_act act;
    float theta, partial; /* RoPE base and share of the head that it turns, unless said otherwise */
} llm__family;

/* Every family in the order of their history. Where two rows have one GGUF name, the first is taken: Mixtral as GGUF
 * is "llama" with experts, DeepSeek-V3 "deepseek2" with sigmoids. */
static const llm__family llm__families[] = {
    {"llama mistral ministral ministral3 xverse aquila cwm iquestcoder eagle", "llama mistral3 xverse", LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f,
     1},
    {"llama4_text llama4", "llama4", LLM__PAIRS | LLM__PAIRS_GGUF | LLM__SIGMOID, LLM_ACT_SILU, 5e5f, 1},
    {"mixtral", "llama", LLM__NORM_TOPK | LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"llama_meta", "", LLM__PAIRS, LLM_ACT_SILU, 1e4f, 1}, /* files of Meta and Mistral: see >>meta */
    {"mixtral_meta", "", LLM__PAIRS | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"qwen", "qwen", LLM__QKV_BIAS, LLM_ACT_SILU, 1e4f, 1},
    {"qwen2 qwen2_vl_text qwen2_5_vl_text qwen2_vl qwen2_5_vl minicpmv mimo", "qwen2 qwen2vl",
     LLM__QKV_BIAS | LLM__BIAS_NOT_O | LLM__QWEN_WINDOW, LLM_ACT_SILU, 1e4f, 1},
    {"qwen2_moe", "qwen2moe", LLM__QKV_BIAS | LLM__QWEN_WINDOW, LLM_ACT_SILU, 1e4f, 1},
    {"qwen3 qwen3_vl_text", "qwen3 qwen3vl", LLM__QK_HEAD | LLM__QWEN_WINDOW, LLM_ACT_SILU, 1e4f, 1},
    {"qwen3_moe qwen3_vl_moe_text", "qwen3moe qwen3vlmoe", LLM__QK_HEAD | LLM__QWEN_WINDOW, LLM_ACT_SILU, 1e4f, 1},
    {"mellum", "mellum", LLM__QK_HEAD | LLM__NORM_TOPK, LLM_ACT_SILU, 5e5f, 1},
    {"flint", "", LLM__QK_HEAD | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"qwen3_next", "qwen3next", LLM__QK_HEAD | LLM__NORM_PLUS1 | LLM__NORM_TOPK, LLM_ACT_SILU, 1e7f, 0.25f},
    {"qwen3_5_text qwen3_5", "qwen35", LLM__QK_HEAD | LLM__NORM_PLUS1, LLM_ACT_SILU, 1e7f, 0.25f},
    {"qwen3_5_moe_text qwen3_5_moe", "qwen35moe", LLM__QK_HEAD | LLM__NORM_PLUS1 | LLM__NORM_TOPK, LLM_ACT_SILU, 1e7f, 0.25f},
    {"gemma", "gemma", LLM__NORM_PLUS1 | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"gemma2", "gemma2", LLM__NORM_PLUS1 | LLM__TIED | LLM__POST_NORM, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"vaultgemma", "", LLM__NORM_PLUS1 | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"gemma3_text gemma3", "gemma3 gemma-embedding", LLM__NORM_PLUS1 | LLM__TIED | LLM__POST_NORM | LLM__QK_HEAD, LLM_ACT_GELU_TANH, 1e6f,
     1},
    {"gemma4_text gemma4 embedding_gemma2_text embedding_gemma2", "gemma4", LLM__TIED | LLM__POST_NORM | LLM__QK_HEAD | LLM__NORM_TOPK,
     LLM_ACT_GELU_TANH, 1e6f, 1},
    {"gemma3n_text gemma3n", "gemma3n", LLM__TIED | LLM__POST_NORM | LLM__QK_HEAD, LLM_ACT_GELU_TANH, 1e6f, 1},
    {"phi3", "phi3", 0, LLM_ACT_SILU, 1e4f, 1},
    {"phi", "phi2", LLM__GPT_BIAS | LLM__PARALLEL, LLM_ACT_GELU_TANH, 1e4f, 0.5f},
    {"gpt2", "gpt2", LLM__GPT_BIAS | LLM__CONV1D | LLM__LEARNED | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"gpt_bigcode", "starcoder", LLM__GPT_BIAS | LLM__LEARNED | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"gpt_neox", "gptneox", LLM__GPT_BIAS | LLM__PARALLEL | LLM__GROUPED, LLM_ACT_GELU, 1e4f, 0.25f},
    {"gpt_neo", "", LLM__GPT_BIAS | LLM__LEARNED | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"gptj", "gptj", LLM__LAYER_NORM | LLM__NO_GATE | LLM__PARALLEL | LLM__PAIRS | LLM__PAIRS_GGUF, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"opt", "", LLM__GPT_BIAS | LLM__LEARNED | LLM__TIED, LLM_ACT_RELU, 1e4f, 1},
    {"bloom", "bloom", LLM__GPT_BIAS | LLM__ALIBI | LLM__GROUPED | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"codegen", "", LLM__LAYER_NORM | LLM__NO_GATE | LLM__PARALLEL | LLM__PAIRS, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"mpt", "mpt", LLM__LAYER_NORM | LLM__NO_GATE | LLM__ALIBI | LLM__TIED, LLM_ACT_GELU, 1e4f, 1},
    {"falcon", "", LLM__LAYER_NORM | LLM__NO_GATE | LLM__PARALLEL | LLM__GROUPED | LLM__TIED, LLM_ACT_GELU, 1e4f, 1},
    {"stablelm", "stablelm", LLM__LAYER_NORM, LLM_ACT_SILU, 1e4f, 0.25f},
    {"starcoder2", "starcoder2", LLM__GPT_BIAS | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"nemotron", "nemotron", LLM__LAYER_NORM | LLM__NORM_PLUS1 | LLM__NO_GATE, LLM_ACT_RELU2, 1e4f, 0.5f},
    {"jais2", "jais2", LLM__GPT_BIAS, LLM_ACT_RELU2, 1e4f, 1},
    {"nanochat", "", LLM__QK_HEAD | LLM__QK_LAST | LLM__NO_GATE, LLM_ACT_RELU2, 1e4f, 1},
    {"bitnet", "bitnet", 0, LLM_ACT_RELU2, 5e5f, 1},
    {"arcee", "arcee", LLM__NO_GATE | LLM__PAIRS_GGUF, LLM_ACT_RELU2, 1e4f, 1},
    {"chatglm", "chatglm", LLM__QKV_BIAS | LLM__PAIRS | LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 0.5f},
    {"glm", "", LLM__PAIRS | LLM__BIAS_NOT_O, LLM_ACT_SILU, 1e4f, 0.5f},
    {"glm4 glm4v_text glm4v glm46v glm_ocr_text glm_ocr", "glm4", LLM__PAIRS | LLM__PAIRS_GGUF | LLM__BIAS_NOT_O | LLM__POST_NORM,
     LLM_ACT_SILU, 1e4f, 0.5f},
    {"glm4_moe glm4v_moe_text glm4v_moe", "glm4moe", LLM__BIAS_NOT_O | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 0.5f},
    {"solar_open", "glm4moe", LLM__BIAS_NOT_O | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e6f, 1},
    {"dots1", "dots1", LLM__QK_HEAD | LLM__SIGMOID, LLM_ACT_SILU, 1e4f, 1},
    {"internlm", "", 0, LLM_ACT_SILU, 1e4f, 1},
    {"internlm2", "internlm2", LLM__GROUPED | LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"internlm3", "", 0, LLM_ACT_SILU, 1e4f, 1},
    {"baichuan", "baichuan", LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"minicpm", "minicpm", LLM__PAIRS_GGUF | LLM__DIVIDE_LOGITS, LLM_ACT_SILU, 1e4f, 1},
    {"minicpm3", "", LLM__MLA, LLM_ACT_SILU, 1e4f, 1},
    {"cohere", "command-r", LLM__LAYER_NORM | LLM__PARALLEL | LLM__PAIRS | LLM__PAIRS_GGUF | LLM__TIED, LLM_ACT_SILU, 1e4f, 1},
    {"cohere2", "cohere2", LLM__LAYER_NORM | LLM__PARALLEL | LLM__PAIRS | LLM__PAIRS_GGUF | LLM__TIED, LLM_ACT_SILU, 1e4f, 1},
    {"cohere2_moe", "cohere2moe", LLM__LAYER_NORM | LLM__PARALLEL | LLM__PAIRS | LLM__PAIRS_GGUF | LLM__TIED | LLM__NORM_TOPK, LLM_ACT_SILU,
     1e4f, 1},
    {"deepseek", "deepseek", LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"deepseek_v2", "deepseek2", LLM__MLA | LLM__PAIRS | LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"deepseek_v3 kimi_k2 glm4_moe_lite youtu sarvam_mla", "deepseek2", LLM__MLA | LLM__PAIRS | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU,
     1e4f, 1},
    {"axk1 AXK1", "", LLM__MLA | LLM__PAIRS | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"mistral4", "mistral4", LLM__MLA | LLM__PAIRS | LLM__PAIRS_GGUF | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"deepseek_v32 glm_moe_dsa", "deepseek32", LLM__MLA | LLM__PAIRS | LLM__PAIRS_GGUF | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f,
     1},
    {"ernie4_5", "ernie4_5", LLM__PAIRS | LLM__PAIRS_GGUF | LLM__TIED, LLM_ACT_SILU, 5e5f, 1},
    {"paddleocr_vl_text paddleocr_vl", "paddleocr", LLM__TIED, LLM_ACT_SILU, 5e5f, 1}, /* ERNIE 4.5, but halves of a head turn */
    {"ernie4_5_moe ernie4_5_vl_moe_text ernie4_5_moe_vl", "ernie4_5-moe", LLM__PAIRS | LLM__PAIRS_GGUF | LLM__TIED | LLM__NORM_TOPK,
     LLM_ACT_SILU, 5e5f, 1},
    {"bailing_moe", "bailingmoe", LLM__PAIRS_GGUF | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"bailing_moe_v2", "bailingmoe2", LLM__QK_HEAD | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 6e5f, 0.5f},
    {"sarvam_moe", "bailingmoe2", LLM__BIAS_NOT_O | LLM__QK_HEAD | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 8e6f, 1},
    {"granite", "granite", LLM__PAIRS_GGUF | LLM__DIVIDE_LOGITS, LLM_ACT_SILU, 1e4f, 1},
    {"granitemoe granitemoeshared granitemoehybrid", "granitemoe granitehybrid", LLM__PAIRS_GGUF | LLM__DIVIDE_LOGITS | LLM__TOPK_SOFTMAX,
     LLM_ACT_SILU, 1e4f, 1},
    {"granite_swa granitemoe_swa", "granite_swa", LLM__PAIRS_GGUF | LLM__DIVIDE_LOGITS | LLM__TOPK_SOFTMAX | LLM__TIED, LLM_ACT_SILU, 1e4f,
     1},
    {"hyperclovax", "", LLM__POST_NORM, LLM_ACT_SILU, 1e4f, 1},
    {"olmo", "olmo", LLM__LAYER_NORM | LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"olmo2 olmo3", "olmo2", LLM__NO_PRE_NORM | LLM__POST_NORM | LLM__QK_WHOLE, LLM_ACT_SILU, 5e5f, 1},
    {"olmoe", "olmoe", LLM__QK_WHOLE, LLM_ACT_SILU, 1e4f, 1},
    {"flex_olmo", "", LLM__NO_PRE_NORM | LLM__POST_NORM | LLM__QK_WHOLE, LLM_ACT_SILU, 5e5f, 1},
    {"exaone", "exaone", 0, LLM_ACT_SILU, 5e5f, 1},
    {"exaone4", "exaone4", LLM__NO_PRE_NORM | LLM__POST_NORM | LLM__QK_HEAD, LLM_ACT_SILU, 1e6f, 1},
    {"exaone_moe", "exaone-moe", LLM__QK_HEAD | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"seed_oss", "seed_oss", LLM__BIAS_NOT_O, LLM_ACT_SILU, 1e4f, 1},
    {"lfm2 lfm2_vl", "lfm2", LLM__QK_HEAD | LLM__TIED, LLM_ACT_SILU, 1e6f, 1},
    {"lfm2_moe", "lfm2moe", LLM__QK_HEAD | LLM__TIED | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e6f, 1},
    {"lfm3", "", LLM__QK_HEAD | LLM__TIED | LLM__POST_NORM, LLM_ACT_SILU, 1e6f, 1},
    {"lara_mini", "", LLM__QK_HEAD | LLM__TIED | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"jamba", "jamba", 0, LLM_ACT_SILU, 1e4f, 1},
    {"kimi_linear", "kimi-linear", LLM__MLA | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"falcon_h1", "falcon-h1", 0, LLM_ACT_SILU, 1e5f, 1},
    {"mamba falcon_mamba", "mamba", LLM__TIED, LLM_ACT_SILU, 1e4f, 1},
    {"bamba", "granitehybrid", LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 0.5f},
    {"mamba2", "mamba2", LLM__TIED, LLM_ACT_SILU, 1e4f, 1},
    {"nemotron_h", "nemotron_h nemotron_h_moe", LLM__NO_GATE | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_RELU2, 1e4f, 1},
    {"smollm3", "smollm3", LLM__PAIRS_GGUF | LLM__TIED, LLM_ACT_SILU, 2e6f, 1},
    {"helium", "", LLM__PAIRS | LLM__BIAS_NOT_O, LLM_ACT_SILU, 1e5f, 1},
    {"hunyuan_v1_dense", "hunyuan-dense", LLM__QK_HEAD | LLM__QK_LAST, LLM_ACT_SILU, 1e4f, 1},
    {"hunyuan_v1_moe", "hunyuan-moe", LLM__QK_HEAD | LLM__QK_LAST | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"hy_v3", "hy_v3", LLM__QK_HEAD | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 11158840.0f, 1},
    {"afmoe", "afmoe", LLM__QK_HEAD | LLM__POST_NORM | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"mimo_v2_flash", "mimo2", LLM__BIAS_NOT_O | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 5e6f, 0.334f},
    {"minimax_m2", "minimax-m2", LLM__QK_WHOLE | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 5e6f, 1},
    {"phimoe", "phimoe", LLM__LAYER_NORM, LLM_ACT_SILU, 1e6f, 1},
    {"apertus", "apertus", LLM__QK_HEAD | LLM__NO_GATE, LLM_ACT_XIELU, 1.2e7f, 1},
    {"gpt_oss", "gpt-oss", LLM__QKV_BIAS | LLM__ALL_BIAS | LLM__TOPK_SOFTMAX, LLM_ACT_SWIGLU_OAI, 1.5e5f, 1},
    {"bert", "bert", LLM__BERT | LLM__GPT_BIAS | LLM__LEARNED, LLM_ACT_GELU, 1e4f, 1},
    {"electra", "", LLM__BERT | LLM__GPT_BIAS | LLM__LEARNED, LLM_ACT_GELU, 1e4f, 1},
    {"ernie", "", LLM__BERT | LLM__GPT_BIAS | LLM__LEARNED, LLM_ACT_GELU, 1e4f, 1},
    {"megatron-bert", "", LLM__BOTH_WAYS | LLM__GPT_BIAS | LLM__LEARNED, LLM_ACT_GELU, 1e4f, 1},
    {"roberta-prelayernorm xlm-roberta-xl", "", LLM__BOTH_WAYS | LLM__GPT_BIAS | LLM__LEARNED, LLM_ACT_GELU, 1e4f, 1},
    {"gte new", "", LLM__BERT, LLM_ACT_GELU, 1.6e5f, 1},
    {"roberta xlm-roberta xlm_roberta camembert data2vec-text", "bert", LLM__BERT | LLM__GPT_BIAS | LLM__LEARNED, LLM_ACT_GELU, 1e4f, 1},
    {"distilbert", "bert", LLM__BERT | LLM__GPT_BIAS | LLM__LEARNED, LLM_ACT_GELU, 1e4f, 1},
    {"mpnet", "", LLM__BERT | LLM__GPT_BIAS | LLM__LEARNED, LLM_ACT_GELU, 1e4f, 1},
    {"nomic_bert", "nomic-bert", LLM__BERT, LLM_ACT_SILU, 1e3f, 1},
    {"modernbert", "modern-bert", LLM__BOTH_WAYS | LLM__LAYER_NORM, LLM_ACT_GELU, 1.6e5f, 1},
};
