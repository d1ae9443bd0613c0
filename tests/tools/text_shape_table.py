"""The shapes of text_shapes.py: families, and for each what of its configuration is another number or word than transformers' own."""
import copy

VOCABULARY = 512
FAMILIES = """llama mistral ministral ministral3 cwm mixtral llama4_text qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen3_5_text qwen3_5_moe_text gemma gemma2 vaultgemma gemma3_text gemma3n_text
gemma4_text phi3 phi gpt2 gpt_bigcode gpt_neox gptj opt bloom falcon stablelm starcoder2 nemotron arcee glm glm4 glm4_moe dots1 cohere cohere2 deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa
glm4_moe_lite kimi_linear ernie4_5 ernie4_5_moe granite granitemoe granitemoeshared olmo olmo2 olmo3 olmoe exaone exaone4 seed_oss smollm3 helium gpt_oss minicpm3 hunyuan_v1_dense hunyuan_v1_moe
minimax_m2 granitemoehybrid phimoe apertus lfm2 lfm2_moe mamba mamba2 falcon_mamba bamba jamba nemotron_h falcon_h1
iquestcoder youtu jais2 nanochat hyperclovax granite_swa granitemoe_swa mellum flint gpt_neo codegen mpt lfm3 lara_mini
solar_open exaone_moe hy_v3 afmoe flex_olmo sarvam_moe sarvam_mla cohere2_moe axk1 mistral4 mimo_v2_flash""".split()
ALONE = {"mistral4": "Mistral4ForCausalLM"} # classes that AutoModelForCausalLM does not know
ENCODERS = "bert roberta xlm-roberta camembert distilbert mpnet modernbert nomic_bert electra ernie megatron-bert roberta-prelayernorm xlm-roberta-xl data2vec-text gte".split() # compared are vectors
SWITCHES = """tie_word_embeddings attention_bias attention_out_bias mlp_bias use_qkv_bias qk_layernorm use_parallel_residual parallel_attn norm_topk_prob bias new_decoder_architecture
multi_query use_bias qkv_bias use_qk_norm alibi scale_embedding moe_norm_topk_prob conv_bias use_conv_bias mamba_conv_bias use_expert_bias moe_renormalize mamba_rms_norm mamba_norm_before_gate
altup_correct_scale norm_bias attn_temperature_tuning attention_k_eq_v enable_moe_block use_double_wide_mlp block_auto_adjust_ff_dim""".split()
WIDTHS = "intermediate_size ffn_dim moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size moe_shared_expert_intermediate_size intermediate_size_mlp".split()

KINDS = ["full_attention", "sliding_attention"]
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 32}
LONG = {"rope_type": "longrope", "short_mscale": 1.1, "long_mscale": 1.3, "rope_theta": 10000.0, "original_max_position_embeddings": 64}
DEEP = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0, "beta_fast": 16, "beta_slow": 2} # DeepSeek's YaRN
ALPHA = [{"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 10000.0}, {"rope_type": "default", "rope_theta": 500.0}, YARN]
PARTIAL = [{**PLAIN, "partial_rotary_factor": p} for p in (0.25, 0.5, 1.0)]
MULTIPLY = [1.0, 0.7, 1.6]
LATENT = {"rope_parameters": [PLAIN, DEEP, {**YARN, "mscale_all_dim": 0.5}], "n_group": [1, 2, 4], "topk_group": [2], "routed_scaling_factor": [1.0, 2.5], "n_shared_experts": [1, 2]}
INDEXED = {**LATENT, "index_topk": [1, 5, 20, 2048], "index_head_dim": [8, 16, 40], "index_n_heads": [14, 16, 19]} # few heads: scores of 0, whose order nothing says
DELTA = {"linear_conv_kernel_dim": [2, 4], "linear_key_head_dim": [8, 16], "linear_value_head_dim": [8, 24], "linear_num_key_heads": [1, 2], "linear_num_value_heads": [2, 4, 6], "rope_parameters": PARTIAL}
NEAR = {"rope_type": "default", "rope_theta": 1000.0}
SWASH = {"layer_rope_theta": [None, lambda n, rng: [rng.choice([0, 1e4, 500.0]) for _ in range(n)]], "attention_multiplier": [1.0, 0.2], "embedding_multiplier": [3.0], "logits_scaling": [1.0, 4.0],
         "residual_multiplier": [0.3, 1.0], "layer_types": [None, lambda n, rng: rng.choices(KINDS, k=n)]}
OWN = {"hunyuan_v1_dense": {"rope_parameters": ALPHA}, "hunyuan_v1_moe": {"rope_parameters": ALPHA}, # what a family's configuration may say, and others' do not
       "minimax_m2": {"rope_parameters": [{"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}, {"rope_type": "default", "rope_theta": 5e6}]},
       "phimoe": {"lm_head_bias": [False, True], "router_jitter_noise": [0.01, 0.3, 0.0], "sliding_window": [None, 11], "num_experts_per_tok": [2], "rope_parameters": [LONG, PLAIN]},
       "exaone_moe": {"n_group": [1, 2], "routed_scaling_factor": [2.5, 0.7]}, "afmoe": {"mup_enabled": [True, False], "route_scale": [1.0, 2.8], "global_attn_every_n_layers": [4, 2]},
       "hy_v3": {"router_scaling_factor": [2.826, 1.0]}, "sarvam_mla": {"q_lora_rank": [None, 24]}, "axk1": {"n_group": [1, 2], "num_experts_per_tok": [2]},
       "cohere2_moe": {"num_shared_experts": [0, 1, 2], "shared_expert_combination_strategy": ["average", "sum"], "expert_selection_fn": ["softmax", "sigmoid"], "rms_norm_eps": [None, 1e-5],
                       "first_k_dense_replace": [0, 1, 2], "prefix_dense_intermediate_size": [None, 24], "prefix_dense_sliding_window_pattern": [1, 2], "sliding_window_pattern": [4, 2]},
       "mistral4": {"rope_parameters": [{"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                    "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1, "partial_rotary_factor": 8 / 24}], "n_group": [1, 2], "num_experts_per_tok": [2], "first_k_dense_replace": [0, 1]},
       "mimo_v2_flash": {"head_dim": [24], "num_attention_heads": [4], "num_key_value_heads": [1, 2], "hidden_size": [64, 48], "attention_value_scale": [0.707, 1.3, None]},
       "apertus": {"hidden_act": ["xielu", "xielu", "relu2"], "rope_parameters": [PLAIN, LLAMA3]},
       "phi3": {"rope_parameters": [LONG, PLAIN, {**PLAIN, "partial_rotary_factor": 0.5}, {**LONG, "partial_rotary_factor": 0.5}], "sliding_window": [None, 11]},
       "gpt_oss": {"rope_parameters": [{**YARN, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0}, PLAIN, {**YARN, "truncate": True}], "swiglu_limit": [7.0, 1.5]},
       "cohere2": {"logit_scale": [0.0625, 1.0], "layer_norm_eps": [1e-5, 1e-3], "rope_parameters": [PLAIN, YARN]},
       "exaone": {"rope_parameters": [PLAIN, LLAMA3]},
       "exaone4": {"rope_parameters": [PLAIN, LLAMA3], "sliding_window": [9], "sliding_window_pattern": [2, 3, 4]},
       "seed_oss": {"rope_parameters": [PLAIN, YARN]}, "dots1": {"n_routed_experts": [8], "num_experts_per_tok": [1, 3], "n_shared_experts": [1, 2], "sliding_window": [None, 9], "max_window_layers": [1, 62], "n_group": [1, 2], "routed_scaling_factor": [1.0, 2.5]},
       "glm4_moe": {"use_qk_norm": [False, True], "n_group": [1, 2], "topk_group": [1], "routed_scaling_factor": [1.0, 2.5], "n_shared_experts": [1, 2], "rope_parameters": PARTIAL},
       "ernie4_5_moe": {"moe_layer_interval": [1, 2], "moe_layer_start_index": [0, 1], "moe_layer_end_index": [-1, 1, 2], "moe_num_shared_experts": [0, 1, 2], "moe_norm_min": [1e-12, 0.3]},
       "deepseek_v3": LATENT, "glm4_moe_lite": LATENT, "deepseek_v32": INDEXED, "glm_moe_dsa": INDEXED,
       "kimi_linear": {"linear_head_dim": [8, 16], "linear_num_heads": [1, 3, 4], "linear_conv_kernel_dim": [2, 4], "num_expert_group": [1, 2], "topk_group": [1, 2], "num_shared_experts": [1, 2],
                       "routed_scaling_factor": [1.0, 2.4], "q_lora_rank": [None, None, 24]},
       "qwen3_next": {**DELTA, "decoder_sparse_step": [1, 2], "mlp_only_layers": [[], [0]]}, "qwen3_5_text": DELTA, "qwen3_5_moe_text": DELTA,
       "llama4_text": {"num_experts_per_tok": [1, 2], "interleave_moe_layer_step": [1, 2], "no_rope_layer_interval": [2, 3, 4], "attention_chunk_size": [5, 32, 8192], "floor_scale": [4, 8192],
                       "attn_scale": [0.1, 0.7], "rope_parameters": [PLAIN, LLAMA3], "rms_norm_eps": [1e-5, 1e-3]},
       "hyperclovax": {"use_post_norm": [True, True, False], "attention_multiplier": [None, 0.3], "embedding_multiplier": [3.0], "logits_scaling": [1.0, 0.2], "residual_multiplier": [0.3, 1.0]},
       "youtu": {"pad_token_id": [None]}, # else transformers makes its row zeros when it loads a tied output layer
       "granite_swa": SWASH, "granitemoe_swa": SWASH | {"shared_intermediate_size": [0, 40]},
       "mpt": {"d_model": [lambda n, rng: None], "n_heads": [lambda n, rng: None], "n_layers": [lambda n, rng: n], "attn_config": [{"softmax_scale": None}, {"softmax_scale": 0.3}]},
       "codegen": {"n_head": [4, 8], "tie_word_embeddings": [False]},
       "lfm3": {"layer_types": [lambda n, rng: rng.choices(KINDS + ["conv"], k=n)], "use_sandwich_norm": [True, True, False], "use_attention_gate": [True, True, False], "conv_bias": [False, True], "conv_L_cache": [3, 7]},
       "lara_mini": {"layer_types": [lambda n, rng: rng.choices(KINDS + ["linear_attention"], k=n)], "linear_num_key_heads": [2], "linear_num_value_heads": [2, 4], "linear_key_head_dim": [8], "linear_value_head_dim": [12]},
       "electra": {"embedding_size": [lambda n, rng: None]}, "ernie": {"use_task_id": [False, True]},
       "gte": {"type_vocab_size": [0, 1, 2], "rope_parameters": [PLAIN, {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}]},
       "mellum": {"layer_types": [lambda n, rng: rng.choices(KINDS, k=n)], "mlp_layer_types": [None, lambda n, rng: rng.choices(["dense", "sparse"], k=n)],
                  "rope_parameters": [{"sliding_attention": NEAR, "full_attention": YARN}, {"sliding_attention": NEAR, "full_attention": NEAR}]},
       "flint": {"layer_types": [None, lambda n, rng: rng.choices(KINDS, k=n)], "mlp_only_layers": [[], [0]]},
       "gpt_neo": {"window_size": [7, 30], "intermediate_size": [None, 40], "attention_types": [lambda n, rng: [[["global", "local"], n // 2]] if n > 1 else [[["local"], 1]], lambda n, rng: [[["global"], n]]]},
       "lfm2": {"conv_L_cache": [2, 3, 4], "block_multiple_of": [8, 20], "block_ffn_dim_multiplier": [0.7, 1.0], "rope_parameters": [PLAIN, YARN]},
       "lfm2_moe": {"conv_L_cache": [2, 3], "num_dense_layers": [0, 1], "routed_scaling_factor": [1.0, 2.0], "rope_parameters": [PLAIN, YARN]},
       "mamba": {"state_size": [4, 16], "expand": [1, 2, 3], "conv_kernel": [2, 4], "time_step_rank": ["auto", 3, 5], "layer_norm_epsilon": [1e-5, 1e-3], "residual_in_fp32": [False, True]},
       "falcon_mamba": {"state_size": [4, 16], "expand": [1, 2, 3], "conv_kernel": [2, 4], "time_step_rank": ["auto", 3, 5], "layer_norm_epsilon": [1e-5, 1e-3], "mixer_rms_eps": [1e-6, 1e-2]},
       "granitemoehybrid": {"position_embedding_type": ["rope", None], "num_local_experts": [0, 0, 5], "attention_multiplier": [1.0, 0.2], "embedding_multiplier": [3.0], "logits_scaling": [1.0, 4.0],
                            "residual_multiplier": [0.3, 1.0]},
       "jamba": {"num_experts": [1, 4], "num_experts_per_tok": [1, 2], "expert_layer_period": [2, 3], "expert_layer_offset": [0, 1], "attn_layer_period": [2, 3], "attn_layer_offset": [0, 1],
                 "mamba_d_state": [4, 16], "mamba_d_conv": [2, 4], "mamba_expand": [1, 2], "mamba_dt_rank": ["auto", 3]},
       "falcon_h1": {k: MULTIPLY for k in ("lm_head_multiplier", "embedding_multiplier", "key_multiplier", "attention_out_multiplier", "attention_in_multiplier", "ssm_in_multiplier", "ssm_out_multiplier")},
       "gemma3n_text": {"hidden_size_per_layer_input": [8, 24], "vocab_size_per_layer_input": [512, 300], "altup_num_inputs": [2, 3, 4], "altup_active_idx": [0, 1], "laurel_rank": [4, 8],
                        "final_logit_softcapping": [30.0, 5.0], "rms_norm_eps": [1e-6, 1e-3]},
       "gemma4_text": {"hidden_size_per_layer_input": [0, 8, 24], "vocab_size_per_layer_input": [512, 300], "final_logit_softcapping": [30.0, 5.0, None], "num_experts": [4, 8],
                       "top_k_experts": [1, 2, 3], "moe_intermediate_size": [16, 40], "global_head_dim": [8, 16, 32], "rms_norm_eps": [1e-6, 1e-3], "use_bidirectional_attention": [None, "vision"],
                       "rope_parameters": [{"sliding_attention": {"rope_type": "default", "rope_theta": t}, "full_attention": {"rope_type": "proportional", "partial_rotary_factor": p, "rope_theta": 1e5}}
                                           for t, p in ((1e4, 0.25), (500.0, 0.5), (1e4, 1.0))]}}
ACTS = ["gelu", "gelu_new", "relu", "silu", "gelu_pytorch_tanh"]
BERT = {"hidden_act": ACTS, "type_vocab_size": [1, 2, 3], "layer_norm_eps": [1e-12, 1e-3], "max_position_embeddings": [130, 600], "pad_token_id": [1, 0, 2]}
OWN |= {"bert": {**BERT, "pad_token_id": [0]}, "roberta": BERT, "xlm-roberta": BERT, "camembert": BERT,
        "mpnet": {"hidden_act": ACTS, "layer_norm_eps": [1e-12, 1e-3], "max_position_embeddings": [130, 600], "pad_token_id": [1]},
        "distilbert": {"activation": ["gelu", "relu"], "hidden_dim": [40, 96], "max_position_embeddings": [130, 600], "sinusoidal_pos_embds": [False, True]},
        "nomic_bert": {"hidden_act": ["silu", "gelu"], "type_vocab_size": [1, 2], "layer_norm_eps": [1e-12, 1e-3], "rope_parameters": [{"rope_type": "default", "rope_theta": t} for t in (1000.0, 1e4)],
                       "head_dim": [None]},
        "modernbert": {"hidden_activation": ["gelu", "gelu", "silu", "gelu_new"], "norm_eps": [1e-5, 1e-3], "local_attention": [6, 20, 128], "global_attn_every_n_layers": [1, 2, 3],
                       "num_hidden_layers": [1, 3, 5], "global_rope_theta": [160000.0, 500.0], "local_rope_theta": [10000.0, 300.0], "pad_token_id": [0], "cls_token_id": [0], "sep_token_id": [1]}}
RECURRENT = {"qwen3_next": "linear_attention", "qwen3_5_text": "linear_attention", "qwen3_5_moe_text": "linear_attention", "kimi_linear": "linear_attention", "lfm2": "conv", "lfm2_moe": "conv",
             "granitemoehybrid": "linear_attention"}


def mamba(new, rng, all_of, names):
    """Mamba 2: heads that share the width evenly, groups that share the heads. `names`: heads, width of one, groups, states, taps, expansion."""
    times = rng.choice([1, 2, 3])
    heads = rng.choice([h for h in (1, 2, 4, 6) if times * all_of % h == 0])
    values = heads, times * all_of // heads, rng.choice([g for g in (1, 2, heads) if heads % g == 0]), rng.choice([4, 16]), rng.choice([2, 4]), times
    return dict(zip(names.split(), values)) | {"mamba_chunk_size" if "mamba" in names else "chunk_size": rng.choice([8, 256])}


def gemma3n(new, rng):
    n = rng.choice([3, 4, 6])
    shared = rng.choice([0, 0, n // 3])
    kinds = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(n)]
    if shared: kinds[n - shared - 2:n - shared] = ["sliding_attention", "full_attention"]
    return {"num_hidden_layers": n, "intermediate_size": [rng.choice([40, 56]) for _ in range(n)] if rng.random() < 0.5 else 48, "layer_types": kinds, "num_kv_shared_layers": shared,
            "activation_sparsity_pattern": [rng.choice([0.0, 0.95, 0.5]) for _ in range(n)],
            "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 500.0}, "full_attention": {"rope_type": "default", "rope_theta": 1e5}}}


def gemma4(new, rng):
    n = rng.choice([2, 3, 5, 7])
    shared = rng.choice([0, 0, (n - 1) // 2])
    kinds = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(n - 1)] + ["full_attention"]
    if shared: kinds[n - shared - 2:n - shared] = ["sliding_attention", "full_attention"]
    heads = new["num_attention_heads"]
    return {"num_hidden_layers": n, "layer_types": kinds, "num_kv_shared_layers": shared, "num_global_key_value_heads": rng.choice([None] + [k for k in (1, 2, 3) if heads % k == 0])}


def exaone4(new, rng):
    n = rng.choice([2, 4, 5])
    return {"num_hidden_layers": n, **rng.choice([{}, {}, {"sliding_window": None, "sliding_window_pattern": None, "layer_types": ["full_attention"] * n}])}


def hybrid(new, rng):
    """Layers of two kinds in any order."""
    n = rng.choice([2, 3, 4])
    return {"num_hidden_layers": n, "layer_types": [rng.choice([RECURRENT[new["model_type"]], "full_attention"]) for _ in range(n)]}


def granite(new, rng):
    if rng.random() < 0.5: return {}
    return hybrid(new, rng) | mamba(new, rng, new["hidden_size"], "mamba_n_heads mamba_d_head mamba_n_groups mamba_d_state mamba_d_conv mamba_expand") | {"mamba_conv_bias": rng.random() < 0.6}


def bamba(new, rng):
    n = rng.choice([2, 3, 4])
    return {"num_hidden_layers": n, "attn_layer_indices": [i for i in range(n) if rng.random() < 0.4],
            **mamba(new, rng, new["hidden_size"], "mamba_n_heads mamba_d_head mamba_n_groups mamba_d_state mamba_d_conv mamba_expand")}


def falcon_h1(new, rng):
    base = rng.choice([32, 48])
    out = mamba(new, rng, base, "mamba_n_heads mamba_d_head mamba_n_groups mamba_d_state mamba_d_conv mamba_expand")
    return out | {"mamba_d_ssm": out["mamba_n_heads"] * out["mamba_d_head"], "mlp_multipliers": [rng.choice(MULTIPLY) for _ in range(2)], "ssm_multipliers": [rng.choice(MULTIPLY) for _ in range(5)]}


def nemotron_h(new, rng):
    kinds = [rng.choice(["linear_attention", "moe", "full_attention", "mlp"]) for _ in range(rng.choice([2, 4, 6]))]
    out = mamba(new, rng, new["hidden_size"], "mamba_num_heads mamba_head_dim n_groups ssm_state_size conv_kernel expand")
    return out | {"mamba_chunk_size": 256, "layers_block_type": kinds, "moe_latent_size": rng.choice([None, 20]), "n_group": rng.choice([1, 2]), "topk_group": 1, "routed_scaling_factor": rng.choice([1.0, 2.5]),
                  "layer_norm_epsilon": rng.choice([1e-5, 1e-3])}


MORE = {"gemma3n_text": gemma3n, "gemma4_text": gemma4, "granitemoehybrid": granite, "bamba": bamba, "falcon_h1": falcon_h1, "nemotron_h": nemotron_h,
        "mamba2": lambda new, rng: mamba(new, rng, new["hidden_size"], "num_heads head_dim n_groups state_size conv_kernel expand"),
        "llama4_text": lambda new, rng: {"num_hidden_layers": rng.choice([2, 4, 5])},
        "exaone4": exaone4,
        **{k: hybrid for k in RECURRENT if k != "granitemoehybrid"}}


def shape(default, rng):
    """Other numbers than the defaults of a family's configuration."""
    family = default["model_type"]
    heads, head = rng.choice([2, 3, 4, 6]), rng.choice([8, 16, 24])
    groups = rng.choice([k for k in (1, 2, 3, heads) if heads % k == 0])
    latent, hidden = "kv_lora_rank" in default, heads * head
    if isinstance(default.get("head_dim"), int) and not latent and rng.random() < 0.5: hidden = rng.choice([48, 64]) // heads * heads
    few, top = rng.choice([1, 2, 4]), rng.choice([1, 2, 3])
    new = {"head_dim": head, "num_attention_heads": heads, "n_head": heads, "num_heads": heads, "num_key_value_heads": heads if latent else groups, "num_kv_heads": groups,
           "hidden_size": hidden, "dim": hidden, "n_layers": few, "n_heads": heads, "n_embd": hidden, "word_embed_proj_dim": hidden, "num_hidden_layers": few, "n_layer": few, "num_layers": few, "vocab_size": VOCABULARY, "max_position_embeddings": 4096,
           "n_positions": 256, "sliding_window": rng.choice([7, 30]), "num_local_experts": 8, "n_routed_experts": 8, "num_experts": 8, "moe_num_experts": 8, "num_experts_per_tok": top,
           "num_experts_per_token": top, "moe_k": top, "moe_topk": top, "n_group": 1, "topk_group": 1, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
           "qk_head_dim": 24, "v_head_dim": 12, "rotary_dim": 8, "first_k_dense_replace": rng.choice([0, 1]), "bos_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
           **{k: rng.choice([40, 56, 96]) for k in WIDTHS}}
    if latent: del new["head_dim"]
    if family == "granitemoehybrid": new |= {"layer_types": ["full_attention"] * few, "mamba_n_heads": 2, "mamba_d_head": hidden}
    always = {"ffn_dim", "head_dim", "bos_token_id", "pad_token_id", "eos_token_id"}
    changed = {k: v for k, v in new.items() if k in default and (default[k] is not None or k in always)}
    if family != "granitemoehybrid": changed |= {k: None for k in ("layer_types", "no_rope_layers", "mlp_layer_types", "moe_layers", "indexer_types") if k in default} # made anew for so many layers
    changed |= {k: not default[k] for k in SWITCHES if isinstance(default.get(k), bool) and rng.random() < 0.35}
    changed.pop("per_layer_config", None)
    own = {k: copy.deepcopy(rng.choice(v)) for k, v in OWN.get(family, {}).items()}
    own = {k: v(few, rng) if callable(v) else v for k, v in own.items()} # what depends on the number of layers
    own |= MORE.get(family, lambda *_: {})({**new, "model_type": family}, rng)
    if "topk_group" in own and own.get("n_group", own.get("num_expert_group", 1)) == 1: own["topk_group"] = 1
    rope = own.get("rope_parameters") or {}
    turned = round(head * rope.get("partial_rotary_factor", 1)) # of a head
    if rope.get("rope_type") == "longrope": rope |= {f"{k}_factor": [rng.uniform(1, 4) for _ in range(turned // 2)] for k in ("short", "long")}
    if "d_model" in own: own |= {"d_model": hidden, "n_heads": heads}
    if "n_head" in own: own["n_embd"] = own["n_head"] * head
    if "embedding_size" in own: own["embedding_size"] = hidden # another is refused
    if own.get("lm_head_bias"): own["tie_word_embeddings"] = False # else refused
    return changed | own
