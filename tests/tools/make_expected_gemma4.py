#!/usr/bin/env python3
"""Makes expected.json of the families of Gemma 4 as make_expected.py does of the others, by a plain pass of its own in numpy.

    make_expected_gemma4.py [FAMILY...]       (default: all whose config.json says gemma4)
    make_expected_gemma4.py --check FOLDER    how far its logits are from those of a folder's own expected.json, relative to their range

Was written from modeling_gemma4.py of transformers 5.23.0 where torch was not to be had. Everything is computed in float32, whole passes
without a cache; float64 tells the noise. Needs numpy; no test runs it.
"""
import hashlib
import json
import math
import pathlib
import struct
import sys
import tempfile

import numpy as np

import checkpoints

MIN_MARGIN, MIN_ROUTE_GAP, MAX_NOISE, STEPS = 0.02, 1e-4, 1e-5, 32 # as in make_expected.py


def weights(folder, kind):
    """{name without its beginning: array} of a folder's only file of bf16."""
    raw = (folder / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, x in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__": continue
        bits = np.frombuffer(raw[8 + n + x["data_offsets"][0]:8 + n + x["data_offsets"][1]], "<u2").astype("<u4") << 16
        out[name.replace("model.language_model.", "").replace("model.", "")] = bits.view("<f4").reshape(x["shape"]).astype(kind)
    return out


def gelu(x): return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
def softmax(x): return np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)


class Model:
    def __init__(self, folder, kind=np.float32):
        c = json.loads((folder / "config.json").read_text())
        self.c, self.w, self.kind, self.gaps = c.get("text_config", c), weights(folder, kind), kind, []

    def norm(self, x, name=None):
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.kind(self.c["rms_norm_eps"]))
        return y if name is None else y * self.w[name + ".weight"]

    def rotate(self, x, kind):
        """x (T, heads, d): value i turns with i + d / 2."""
        how, d = self.c["rope_parameters"][kind], x.shape[-1]
        angle = how["rope_theta"] ** (-np.arange(0, d, 2) / d)
        if how["rope_type"] == "proportional": angle[int(how.get("partial_rotary_factor", 1) * d) // 2:] = 0
        angle = np.arange(len(x))[:, None, None] * angle
        c, s = np.cos(angle).astype(self.kind), np.sin(angle).astype(self.kind)
        a, b = x[..., :d // 2], x[..., d // 2:]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    def attention(self, l, x, kept):
        c, p, kind, T = self.c, f"layers.{l}.self_attn.", self.c["layer_types"][l], len(x)
        full, H = kind == "full_attention", c["num_attention_heads"]
        d, alike = c["global_head_dim"] if full else c["head_dim"], full and c["attention_k_eq_v"]
        K = c["num_global_key_value_heads"] if alike and c["num_global_key_value_heads"] else c["num_key_value_heads"]
        q = self.rotate(self.norm((x @ self.w[p + "q_proj.weight"].T).reshape(T, H, d), p + "q_norm"), kind)
        if l < c["num_hidden_layers"] - c["num_kv_shared_layers"]:
            raw = (x @ self.w[p + "k_proj.weight"].T).reshape(T, K, d)
            v = raw if alike else (x @ self.w[p + "v_proj.weight"].T).reshape(T, K, d)
            kept[kind] = self.rotate(self.norm(raw, p + "k_norm"), kind), self.norm(v)
        k, v = (np.repeat(y, H // K, 1) for y in kept[kind])
        score = np.einsum("thd,shd->hts", q, k)
        far = np.arange(T)[:, None] - np.arange(T)
        seen = (far >= 0) & (full | (far < c["sliding_window"]))
        out = np.einsum("hts,shd->thd", softmax(np.where(seen, score, self.kind(-1e30))), v).reshape(T, H * d)
        return out @ self.w[p + "o_proj.weight"].T

    def mlp(self, l, x):
        p = f"layers.{l}.mlp."
        return (gelu(x @ self.w[p + "gate_proj.weight"].T) * (x @ self.w[p + "up_proj.weight"].T)) @ self.w[p + "down_proj.weight"].T

    def experts(self, l, seen, x):
        p, k = f"layers.{l}.", self.c["top_k_experts"]
        read = self.norm(seen) * self.w[p + "router.scale"] * self.kind(self.c["hidden_size"] ** -0.5)
        prob = softmax(read @ self.w[p + "router.proj.weight"].T)
        order = np.argsort(-prob, -1, kind="stable")
        best = np.take_along_axis(prob, order, -1)
        self.gaps.append(float((best[:, k - 1] - best[:, k]).min()))
        out = np.zeros_like(x)
        for t in range(len(x)):
            for e in order[t, :k]:
                gate, up = np.split(self.w[p + "experts.gate_up_proj"][e] @ x[t], 2)
                out[t] += prob[t, e] / best[t, :k].sum() * self.w[p + "router.per_expert_scale"][e] * (self.w[p + "experts.down_proj"][e] @ (gelu(gate) * up))
        return out

    def logits(self, ids):
        c, w, kept = self.c, self.w, {}
        P, L = c["hidden_size_per_layer_input"], c["num_hidden_layers"]
        x = w["embed_tokens.weight"][ids] * self.kind(math.sqrt(c["hidden_size"]))
        if P:
            made = self.norm(((x @ w["per_layer_model_projection.weight"].T) * self.kind(c["hidden_size"] ** -0.5)).reshape(-1, L, P), "per_layer_projection_norm")
            own = (made + w["embed_tokens_per_layer.weight"][ids].reshape(-1, L, P) * self.kind(math.sqrt(P))) * self.kind(2 ** -0.5)
        for l in range(L):
            p = f"layers.{l}."
            x = x + self.norm(self.attention(l, self.norm(x, p + "input_layernorm"), kept), p + "post_attention_layernorm")
            y = self.mlp(l, self.norm(x, p + "pre_feedforward_layernorm"))
            if c["enable_moe_block"]:
                more = self.experts(l, x, self.norm(x, p + "pre_feedforward_layernorm_2"))
                y = self.norm(y, p + "post_feedforward_layernorm_1") + self.norm(more, p + "post_feedforward_layernorm_2")
            x = x + self.norm(y, p + "post_feedforward_layernorm")
            if P:
                y = (gelu(x @ w[p + "per_layer_input_gate.weight"].T) * own[:, l]) @ w[p + "per_layer_projection.weight"].T
                x = x + self.norm(y, p + "post_per_layer_input_norm")
            x = x * w[p + "layer_scalar"]
        y = self.norm(x, "norm") @ w["embed_tokens.weight"].T
        cap = self.kind(c["final_logit_softcapping"] or 0)
        return cap * np.tanh(y / cap) if cap else y


def prompts(family):
    """Those of make_expected.py."""
    raw = hashlib.shake_128(f"{family}/prompts".encode()).digest(1024)
    ids = [(raw[i] << 8 | raw[i + 1]) % 512 for i in range(2, 1024, 2)]
    return [ids[:1], ids[1:18], ids[18:88 + raw[0] % 51]]


def answer(model, ids):
    every, greedy, margin = model.logits(ids), [], math.inf
    logprobs = np.log(softmax(every.astype(np.float64)))
    for _ in range(STEPS):
        last = model.logits(ids + greedy)[-1]
        first, second = np.sort(last)[::-1][:2]
        margin = min(margin, float(first - second))
        greedy.append(int(last.argmax()))
        if margin < MIN_MARGIN: break
    top = np.argsort(-logprobs[-1], kind="stable")[:5]
    return {"token_ids": ids, "logits_last": [round(float(x), 5) for x in every[-1]], "logprobs_of_next": [round(float(logprobs[i - 1, ids[i]]), 5) for i in range(1, len(ids))],
            "top5_last": [[int(i), round(float(logprobs[-1, i]), 5)] for i in top], "greedy_32": greedy, "min_margin": round(margin, 5)}


def compute(folder, asked):
    model, out = Model(folder), []
    for ids in asked:
        out.append(answer(model, ids))
        if out[-1]["min_margin"] < MIN_MARGIN: return None
    exact = Model(folder, np.float64).logits(asked[-1])[-1]
    span = max(max(p["logits_last"]) - min(p["logits_last"]) for p in out)
    noise = float(np.abs(exact - out[-1]["logits_last"]).max()) / span
    if noise > MAX_NOISE or (model.gaps and min(model.gaps) < MIN_ROUTE_GAP): return None
    mixture = {"min_route_gap": round(min(model.gaps), 6)} if model.gaps else {}
    return {"numpy": np.__version__, "logit_range": round(span, 2), "float32_noise": float(f"{noise:.1e}"), "min_margin": min(p["min_margin"] for p in out), **mixture, "prompts": out}


def text(found):
    """JSON with a line for each list."""
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items() if k != "prompts"]
    asked = [",\n ".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in p.items()) for p in found["prompts"]]
    return "{" + ",\n".join(lines) + ',\n"prompts": [\n{' + "},\n{".join(asked) + "}]}\n"


def make(family):
    for seed in range(1000):
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work) / family
            checkpoints.write(family, folder, seed)
            found = compute(folder, prompts(family))
        if found: break
    else: sys.exit(f"{family}: no seed is good")
    target = checkpoints.DATA / family
    (target / "expected.json").write_text(text({"weights_sha256": checkpoints.digest(family, seed), **found}))
    lines = (target / "tensors.txt").read_text().splitlines()
    (target / "tensors.txt").write_text("\n".join([f"seed {seed}"] + [x for x in lines if not x.startswith("seed ")]) + "\n")
    print(family, f"seed {seed}", {k: v for k, v in found.items() if k != "prompts"}, flush=True)


def check(folder):
    model = Model(folder)
    for p in json.loads((folder / "expected.json").read_text())["prompts"]:
        want = np.array(p["logits_last"])
        print(folder.name, len(p["token_ids"]), "tokens:", float(np.abs(model.logits(p["token_ids"])[-1] - want).max() / (want.max() - want.min())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]: check(pathlib.Path(sys.argv[2]))
    else:
        for name in sys.argv[1:] or [x for x in checkpoints.FAMILIES if x.startswith("gemma4")]: make(name)
