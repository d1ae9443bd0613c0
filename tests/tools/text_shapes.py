#!/usr/bin/env python3
"""Families of text models in random shapes with random weights: llm_cli beside transformers.

    text_shapes.py [FAMILY...] [--seeds 3] [--first 0] [--args "--isa scalar"] [-v]        env LLM_CLI (./llm_cli)

Needs torch and transformers (setup.py shapes) and build/checkpoints (make checkpoints), for their tokenizer. A shape is what the family's
configuration of transformers says by itself, with other numbers: heads, widths, layers, windows, experts, ranks, and with switches (biases, norms, tied
outputs, parallel blocks) turned over now and then. transformers makes the weights and computes in float32; compared are the log-probabilities
of up to 100 tokens, relative to the range of the logits, and of encoders the vector of the first token at length 1: a right engine is under 1e-5, a wrong detail over 1e-3. A shape that transformers
itself refuses is skipped; one that llm_cli refuses counts as refused, with its sentence: some are variants that nobody published.
"""
import argparse
import copy
import json
import os
import pathlib
import random
import shlex
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "build/checkpoints/llama"
CLI = os.environ.get("LLM_CLI", str(ROOT / "llm_cli"))
VOCABULARY = 512
FAMILIES = """llama mistral ministral ministral3 cwm mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 vaultgemma gemma3_text phi3 phi gpt2 gpt_bigcode gpt_neox gptj opt bloom
falcon stablelm starcoder2 nemotron arcee glm glm4 glm4_moe dots1 cohere cohere2 deepseek_v2 deepseek_v3 glm4_moe_lite ernie4_5 ernie4_5_moe granite granitemoe granitemoeshared olmo
olmo2 olmo3 olmoe exaone4 seed_oss smollm3 helium gpt_oss minicpm3 hunyuan_v1_dense hunyuan_v1_moe minimax_m2 granitemoehybrid phimoe apertus
iquestcoder youtu jais2 nanochat hyperclovax granite_swa granitemoe_swa mellum flint gpt_neo
codegen mpt lfm3 lara_mini""".split()
ENCODERS = "bert roberta xlm-roberta camembert distilbert mpnet modernbert electra ernie megatron-bert roberta-prelayernorm xlm-roberta-xl data2vec-text gte".split() # vectors are compared
SWITCHES = """tie_word_embeddings attention_bias attention_out_bias mlp_bias use_qkv_bias qk_layernorm use_parallel_residual parallel_attn norm_topk_prob bias new_decoder_architecture
multi_query use_bias qkv_bias use_qk_norm alibi scale_embedding moe_norm_topk_prob""".split()
ALPHA = [{"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 10000.0}, {"rope_type": "default", "rope_theta": 500.0}, {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 32}]
KINDS = ["full_attention", "sliding_attention"]
LONG = {"rope_type": "longrope", "short_mscale": 1.1, "long_mscale": 1.3, "rope_theta": 10000.0, "original_max_position_embeddings": 64}
NEAR = {"rope_type": "default", "rope_theta": 1000.0}
SWASH = {"layer_rope_theta": [None, lambda n, rng: [rng.choice([0, 1e4, 500.0]) for _ in range(n)]], "attention_multiplier": [1.0, 0.2], "embedding_multiplier": [3.0], "logits_scaling": [1.0, 4.0],
         "residual_multiplier": [0.3, 1.0], "layer_types": [None, lambda n, rng: rng.choices(KINDS, k=n)]}
OWN = {"hunyuan_v1_dense": {"rope_parameters": ALPHA}, "hunyuan_v1_moe": {"rope_parameters": ALPHA}, # what a family's configuration may say, and others' do not
       "minimax_m2": {"rope_parameters": [{"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}, {"rope_type": "default", "rope_theta": 5e6}]},
       "granitemoehybrid": {"position_embedding_type": ["rope", None], "num_local_experts": [0, 0, 5], "attention_multiplier": [1.0, 0.2], "embedding_multiplier": [3.0], "logits_scaling": [1.0, 4.0],
                            "residual_multiplier": [0.3, 1.0]},
       "phimoe": {"lm_head_bias": [False, True], "router_jitter_noise": [0.01, 0.3, 0.0], "sliding_window": [None, 11], "num_experts_per_tok": [2], "rope_parameters": [LONG, {"rope_type": "default", "rope_theta": 1e4}]},
       "apertus": {"hidden_act": ["xielu", "xielu", "relu2"], "rope_parameters": [{"rope_type": "default", "rope_theta": 1e4}, {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0,
                   "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}]},
       "hyperclovax": {"use_post_norm": [True, True, False], "attention_multiplier": [None, 0.3], "embedding_multiplier": [3.0], "logits_scaling": [1.0, 0.2], "residual_multiplier": [0.3, 1.0]},
       "youtu": {"pad_token_id": [None]}, # else transformers makes its row zeros when it loads a tied output layer
       "granite_swa": SWASH, "granitemoe_swa": SWASH | {"shared_intermediate_size": [0, 40]},
       "mpt": {"d_model": [lambda n, rng: None], "n_heads": [lambda n, rng: None], "n_layers": [lambda n, rng: n], "attn_config": [{"softmax_scale": None}, {"softmax_scale": 0.3}]},
       "codegen": {"n_head": [4, 8], "tie_word_embeddings": [False]},
       "lfm3": {"layer_types": [lambda n, rng: rng.choices(KINDS + ["conv"], k=n)], "use_sandwich_norm": [True, True, False], "use_attention_gate": [True, True, False], "conv_bias": [False, True], "conv_L_cache": [3, 7]},
       "lara_mini": {"layer_types": [lambda n, rng: rng.choices(KINDS + ["linear_attention"], k=n)], "linear_num_key_heads": [2], "linear_num_value_heads": [2, 4], "linear_key_head_dim": [8], "linear_value_head_dim": [12]},
       "electra": {"embedding_size": [lambda n, rng: None]}, "ernie": {"use_task_id": [False, True]},
       "gte": {"type_vocab_size": [0, 1, 2], "rope_parameters": [{"rope_type": "default", "rope_theta": 1e4}, {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}]},
       "mellum": {"layer_types": [lambda n, rng: rng.choices(KINDS, k=n)], "mlp_layer_types": [None, lambda n, rng: rng.choices(["dense", "sparse"], k=n)], "rope_parameters": [
                  {"sliding_attention": NEAR, "full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 32}}, {"sliding_attention": NEAR, "full_attention": NEAR}]},
       "flint": {"layer_types": [None, lambda n, rng: rng.choices(KINDS, k=n)], "mlp_only_layers": [[], [0]]},
       "gpt_neo": {"window_size": [7, 30], "intermediate_size": [None, 40], "attention_types": [lambda n, rng: [[["global", "local"], n // 2]] if n > 1 else [[["local"], 1]], lambda n, rng: [[["global"], n]]]}}
WIDTHS = "intermediate_size ffn_dim moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size".split()


def shape(default, rng):
    """Other numbers than the defaults of a family's configuration."""
    heads, head = rng.choice([2, 3, 4, 6]), rng.choice([8, 16, 24])
    groups = rng.choice([k for k in (1, 2, 3, heads) if heads % k == 0])
    latent, hidden = "kv_lora_rank" in default, heads * head
    if isinstance(default.get("head_dim"), int) and not latent and rng.random() < 0.5: hidden = rng.choice([48, 64]) // heads * heads
    few, top = rng.choice([1, 2, 4]), rng.choice([1, 2, 3])
    new = {"head_dim": head, "num_attention_heads": heads, "n_head": heads, "num_heads": heads, "num_key_value_heads": heads if latent else groups, "num_kv_heads": groups,
           "hidden_size": hidden, "n_embd": hidden, "word_embed_proj_dim": hidden, "num_hidden_layers": few, "n_layer": few, "num_layers": few, "vocab_size": VOCABULARY, "max_position_embeddings": 4096,
           "n_positions": 256, "sliding_window": rng.choice([7, 30]), "num_local_experts": 8, "n_routed_experts": 8, "num_experts": 8, "moe_num_experts": 8, "num_experts_per_tok": top,
           "moe_k": top, "moe_topk": top, "n_group": 1, "topk_group": 1, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "qk_head_dim": 24, "v_head_dim": 12,
           "rotary_dim": 8, "first_k_dense_replace": rng.choice([0, 1]), "bos_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, **{k: rng.choice([40, 56, 96]) for k in WIDTHS}}
    if latent: del new["head_dim"]
    if "mamba_n_heads" in default: new |= {"layer_types": ["full_attention"] * few, "mamba_n_heads": 2, "mamba_d_head": hidden}
    always = {"ffn_dim", "head_dim", "bos_token_id", "pad_token_id", "eos_token_id"}
    changed = {k: v for k, v in new.items() if k in default and (default[k] is not None or k in always)}
    changed |= {k: None for k in ("layer_types", "no_rope_layers", "mlp_layer_types") if k in default and "mamba_n_heads" not in default} # made anew for so many layers
    changed |= {k: not default[k] for k in SWITCHES if isinstance(default.get(k), bool) and rng.random() < 0.35}
    own = {k: copy.deepcopy(rng.choice(v)) for k, v in OWN.get(default["model_type"], {}).items()}
    own = {k: v(few, rng) if callable(v) else v for k, v in own.items()} # what depends on the number of layers
    if (own.get("rope_parameters") or {}).get("rope_type") == "longrope": own["rope_parameters"] |= {f"{k}_factor": [rng.uniform(1, 4) for _ in range(head // 2)] for k in ("short", "long")}
    if "d_model" in own: own |= {"d_model": hidden, "n_heads": heads}
    if "n_head" in own: own["n_embd"] = own["n_head"] * head
    if "embedding_size" in own: own["embedding_size"] = hidden # another is refused
    if own.get("lm_head_bias"): own["tie_word_embeddings"] = False # else refused
    return changed | own


def weights(model, seed):
    """Large enough that each of them is seen in the logits."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1: p.add_(torch.randn_like(p) * 0.25)
            else: p.normal_(0, 1.2 / p.shape[-1] ** 0.5)


def reference(family, changed, seed, folder, ids):
    """Makes the folder; the log-probabilities of its ids from the second on, and the range of the last logits."""
    how = {"dtype": torch.float32, "attn_implementation": "eager"}
    auto = transformers.AutoModel if family in ENCODERS else transformers.AutoModelForCausalLM
    model = auto.from_config(transformers.CONFIG_MAPPING[family](**changed), **how).eval()
    weights(model, seed)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"): shutil.copy(TOKENIZER / name, folder)
    model = auto.from_pretrained(folder, **how).eval() # as it reads what it wrote
    if family in ENCODERS:
        with torch.no_grad(): vector = model(input_ids=torch.tensor([ids])).last_hidden_state[0, 0].double()
        return (vector / vector.norm()).tolist(), 1
    with torch.no_grad(): logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()
    said = logits.log_softmax(-1)
    return [said[i, x].item() for i, x in enumerate(ids[1:])], (logits[-1].max() - logits[-1].min()).item()


def run(family, seed, extra, verbose):
    """'equal', 'not equal', 'refused' or 'skipped'."""
    rng = random.Random(f"{family} {seed}")
    changed = shape(transformers.CONFIG_MAPPING[family]().to_dict(), rng)
    ids = [rng.randrange(3, 480) for _ in range(rng.choice([2, 10, 61, 101]))]
    with tempfile.TemporaryDirectory() as folder:
        try: want, span = reference(family, changed, seed, folder, ids)
        except Exception as err: result, why = "skipped", f"transformers: {type(err).__name__}: {str(err)[:200]}"
        else:
            p = subprocess.run([CLI, "embed" if family in ENCODERS else "score", "-m", folder, "--token-ids", json.dumps(ids), "--json", "--dtype", "float32", *extra], capture_output=True, text=True, timeout=120)
            if p.returncode: result, why = "refused", p.stderr.strip()[:300]
            else:
                got = json.loads(p.stdout)
                off = max(abs(a - b) for a, b in zip(got["embedding"] if family in ENCODERS else got["logprobs"][1:], want)) / span
                result, why = "equal" if off < 1e-4 else "not equal", f"{off:.1e}"
    if verbose or result == "not equal" or result == "refused": print(f"{family} {seed}: {result}: {why}: {changed}", flush=True)
    return result


def main():
    p = argparse.ArgumentParser()
    p.add_argument("family", nargs="*")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--args", default="")
    p.add_argument("-v", action="store_true")
    a = p.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    done = dict.fromkeys(("equal", "not equal", "refused", "skipped"), 0)
    for family in a.family or FAMILIES + ENCODERS:
        for seed in range(a.first, a.first + a.seeds): done[run(family, seed, shlex.split(a.args), a.v)] += 1
    print(", ".join(f"{n} {what}" for what, n in done.items()))
    sys.exit(1 if done["not equal"] else 0)


main()
