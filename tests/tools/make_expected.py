#!/usr/bin/env python3
"""Makes tests/data/checkpoints/FAMILY/expected.json anew with torch and transformers: what the tiny checkpoints must answer.

    make_expected.py [FAMILY...]      (default: all)

Was run with torch 2.15.0 and transformers 5.23.0, on a CPU: weights of any type widened to float32, everything computed in float32, eager
attention, no cache (every greedy token comes from a whole new pass). Families that transformers does not have (EQUIVALENT) are renamed into
one that computes the same. Of the seeds 0, 1, 2, ... the first is taken with which no greedy token and no choice of experts hangs on
rounding; it is written into tensors.txt. Takes a few minutes; no test runs it.
"""
import contextlib
import json
import logging
import pathlib
import sys
import tempfile

import torch
import transformers

import checkpoints

MIN_MARGIN = 0.02  # between the two best logits of every greedy step
MIN_ROUTE_GAP = 1e-4  # between the last expert chosen and the first left out
MAX_NOISE = 1e-5  # float32 beside float64, relative to the logits' range
STEPS = 32
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "u8": torch.uint8}


# ---- Families that transformers does not have: (class, settings, tensors) of one that computes the same

def llama_settings(c, kv_heads):
    return dict(hidden_size=c["hidden_size"], intermediate_size=c["intermediate_size"], num_hidden_layers=c["num_hidden_layers"],
                num_attention_heads=c["num_attention_heads"], num_key_value_heads=kv_heads, vocab_size=c["vocab_size"],
                max_position_embeddings=c["max_position_embeddings"], rms_norm_eps=c["rms_norm_eps"], tie_word_embeddings=False,
                rope_parameters={"rope_type": "default", "rope_theta": c.get("rope_theta", 10000.0)})


def renamed(tensors, names):
    """`names`: old fragment -> new fragment, all applied in their order."""
    out = {}
    for name, x in tensors.items():
        for old, new in names: name = name.replace(old, new)
        out[name] = x
    return out


def split(tensors, fragment, sizes, names):
    """Cuts each tensor whose name has `fragment` along its rows into parts of these sizes with these names instead of the fragment."""
    out = {}
    for name, x in tensors.items():
        if fragment not in name: out[name] = x
        else: out.update((name.replace(fragment, n), part) for n, part in zip(names, x.split(sizes)))
    return out


QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def baichuan(c, t):
    """Llama with query, key and value weights in one tensor."""
    return transformers.LlamaForCausalLM, llama_settings(c, c["num_attention_heads"]), split(t, "self_attn.W_pack", [c["hidden_size"]] * 3, QKV)


def internlm2(c, t):
    """Llama with query, key and value weights in one tensor, ordered by key-value head: its queries, its key, its value."""
    kv, out = c["num_key_value_heads"], {}
    per, d = c["num_attention_heads"] // kv, c["hidden_size"] // c["num_attention_heads"]
    for name, x in t.items():
        if "wqkv" not in name: out[name] = x
        else:
            parts = x.view(kv, per + 2, d, -1).split([per, 1, 1], 1)
            out.update((name.replace("attention.wqkv", n), p.reshape(-1, x.shape[1])) for n, p in zip(QKV, parts))
    names = (("tok_embeddings", "embed_tokens"), ("output.", "lm_head."), ("attention.wo", "self_attn.o_proj"), ("attention_norm", "input_layernorm"),
             ("ffn_norm", "post_attention_layernorm"), ("feed_forward.w1", "mlp.gate_proj"), ("feed_forward.w2", "mlp.down_proj"), ("feed_forward.w3", "mlp.up_proj"))
    return transformers.LlamaForCausalLM, llama_settings(c, kv), renamed(out, names)


def internlm3(c, t):
    """Llama under another name."""
    return transformers.LlamaForCausalLM, dict(llama_settings(c, c["num_key_value_heads"]), head_dim=c["head_dim"]), t


def qwen1(c, t):
    """Qwen2 with query, key and value weights in one tensor; intermediate_size counts gate and up together, w2 is the gate."""
    settings = llama_settings(dict(c, intermediate_size=c["intermediate_size"] // 2, rms_norm_eps=c["layer_norm_epsilon"], rope_theta=c["rotary_emb_base"]), c["num_attention_heads"])
    names = (("transformer.wte", "model.embed_tokens"), ("transformer.ln_f", "model.norm"), ("transformer.h.", "model.layers."), ("attn.c_proj", "self_attn.o_proj"),
             ("ln_1", "input_layernorm"), ("ln_2", "post_attention_layernorm"), ("mlp.w1", "mlp.up_proj"), ("mlp.w2", "mlp.gate_proj"), ("mlp.c_proj", "mlp.down_proj"))
    return transformers.Qwen2ForCausalLM, settings, renamed(split(t, "attn.c_attn", [c["hidden_size"]] * 3, QKV), names)


def chatglm3(c, t):
    """Glm: half of every head rotated, in neighbouring pairs; gate and up in one tensor in both."""
    d, heads, kv = c["kv_channels"], c["num_attention_heads"], c["multi_query_group_num"]
    settings = llama_settings(dict(c, intermediate_size=c["ffn_hidden_size"], num_hidden_layers=c["num_layers"], rms_norm_eps=c["layernorm_epsilon"], max_position_embeddings=c["seq_length"]), kv)
    settings.update(head_dim=d, attention_bias=True, pad_token_id=1, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})
    names = (("transformer.embedding.word_embeddings", "model.embed_tokens"), ("transformer.encoder.final_layernorm", "model.norm"), ("transformer.output_layer", "lm_head"),
             ("transformer.encoder.layers", "model.layers"), ("self_attention.dense", "self_attn.o_proj"), ("dense_h_to_4h", "gate_up_proj"), ("dense_4h_to_h", "down_proj"))
    return transformers.GlmForCausalLM, settings, renamed(split(t, "self_attention.query_key_value", [heads * d, kv * d, kv * d], QKV), names)


def mistral4(c, t):
    """Itself, which AutoModelForCausalLM does not know."""
    return transformers.Mistral4ForCausalLM, {k: v for k, v in c.items() if k not in ("architectures", "model_type")}, t


EQUIVALENT = {"baichuan": baichuan, "chatglm3": chatglm3, "internlm2": internlm2, "internlm3": internlm3, "mistral4": mistral4, "qwen1": qwen1}


# ---- Computing

def load(family, folder, tensors):
    """The family's model in float32."""
    if family not in EQUIVALENT:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", local_files_only=True).eval()
    kind, settings, state = EQUIVALENT[family](json.loads((folder / "config.json").read_text()), {k: v.float() for k, v in tensors.items() if "inv_freq" not in k})
    model = kind._from_config(kind.config_class(**settings), dtype=torch.float32, attn_implementation="eager")
    if family == "mistral4": model.set_experts_implementation("eager") # float64 for them, too
    model.load_state_dict(state)
    return model.eval()


def long_base(folder, n):
    """Dynamic RoPE scaling, a prompt of n tokens beyond max_position_embeddings: the base of the prompt's length holds for all positions, those
    of the answer too (transformers alone would change it with each token). Writes it into config.json and says whether there was need."""
    path = folder / "config.json"
    c = json.loads(path.read_text())
    scaling, longest = c.get("rope_scaling") or {}, c.get("max_position_embeddings", 0)
    if scaling.get("type") != "dynamic" or n <= longest: return False
    d = c["hidden_size"] // c["num_attention_heads"]
    c["rope_theta"] *= (scaling["factor"] * n / longest - (scaling["factor"] - 1)) ** (d / (d - 2))
    c["rope_scaling"] = None
    path.write_text(json.dumps(c))
    return True


@contextlib.contextmanager
def route_gaps(found):
    """Appends the smallest gap of every choice of the best few among few: of experts, and of groups of experts."""
    originals = torch.topk, torch.Tensor.topk

    def watched(x, k, *rest, **named):
        if k < x.shape[-1] <= 16:
            best = x.detach().float().sort(-1, descending=True).values
            found.append((best[..., k - 1] - best[..., k]).min().item())
        return originals[0](x, k, *rest, **named)

    torch.topk = torch.Tensor.topk = watched
    try: yield
    finally: torch.topk, torch.Tensor.topk = originals


def logits(model, ids):
    with torch.no_grad(): return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def answer(model, ids):
    """The expected results of one prompt."""
    all_logits = logits(model, ids)
    last, logprobs = all_logits[-1], all_logits.float().log_softmax(-1)
    greedy, margin = [], float("inf")
    for _ in range(STEPS):
        best = logits(model, ids + greedy)[-1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        greedy.append(best.indices[0].item())
    top = logprobs[-1].topk(5)
    return {"token_ids": ids, "logits_last": [round(x, 5) for x in last.tolist()], "logprobs_of_next": [round(logprobs[i - 1, ids[i]].item(), 5) for i in range(1, len(ids))],
            "top5_last": [[i, round(x, 5)] for i, x in zip(top.indices.tolist(), top.values.tolist())], "greedy_32": greedy, "min_margin": round(margin, 5)}


def noise(model, asked):
    """The largest difference between float32 and float64 at the last position, relative to the range. Leaves the model in float64."""
    exact = model.double()
    return max((logits(exact, p["token_ids"])[-1] - torch.tensor(p["logits_last"])).abs().max().item() / (max(p["logits_last"]) - min(p["logits_last"])) for p in asked)


def compute(family, folder, tensors, asked):
    """All that expected.json has."""
    gaps, out, worst = [], [], 0.0
    model = load(family, folder, tensors)
    with route_gaps(gaps):
        for ids in asked:
            if long_base(folder, len(ids)): model = load(family, folder, tensors)
            out.append(answer(model, ids))
    worst = noise(model, out[-1:])
    spans = [max(p["logits_last"]) - min(p["logits_last"]) for p in out]
    mixture = {"min_route_gap": round(min(gaps), 6)} if gaps else {}
    return {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "logit_range": round(max(spans), 2), "float32_noise": float(f"{worst:.1e}"),
            "min_margin": min(p["min_margin"] for p in out), **mixture, "prompts": out}


def make(family):
    for seed in range(1000):
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work) / family
            checkpoints.write(family, folder, seed)
            raw = checkpoints.read(family, seed)[0]
            tensors = {name: torch.frombuffer(bytearray(data), dtype=TYPES[dtype]).view(shape) for name, (dtype, shape, data) in raw.items()}
            found = compute(family, folder, tensors, checkpoints.prompts(family))
        if found["min_margin"] >= MIN_MARGIN and found.get("min_route_gap", 1) >= MIN_ROUTE_GAP and found["float32_noise"] <= MAX_NOISE: break
    else: sys.exit(f"{family}: no seed is good")
    found = {"weights_sha256": checkpoints.digest(family, seed), **found}
    target = checkpoints.DATA / family
    (target / "expected.json").write_text(checkpoints.expected_text(found))
    lines = (target / "tensors.txt").read_text().splitlines()
    (target / "tensors.txt").write_text("\n".join([f"seed {seed}"] + [x for x in lines if not x.startswith("seed ")]) + "\n")
    print(family, f"seed {seed}", {k: v for k, v in found.items() if k != "prompts"}, flush=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    for name in sys.argv[1:] or checkpoints.FAMILIES: make(name)
