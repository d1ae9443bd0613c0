#!/usr/bin/env python3
"""Makes tests/data/vision/FAMILY.tar.xz of tiny models that see: GLM-4.1V, GLM-4.6V, GLM-OCR and Kimi-VL, with results of plain passes in numpy, where torch was not to be had.

    make_expected_towers.py [FAMILY...]         (default: all that it knows)

The pictures, chats and vocabulary are those of build/data/vision/qwen3_vl; the tokens around pictures have other names. What becomes of a picture before the
tower is computed by the processor of transformers itself (5.24.0, with Pillow), the tower, its projector, the positions and the language model here, written
from transformers' modeling_glm4v.py, modeling_glm4v_moe.py and modeling_glm_ocr.py: all in float32, float64 tells the noise. Needs numpy, Pillow, tokenizers and transformers; no
test runs it. Of Kimi-VL, which transformers lacks, its published code was followed (as vLLM has it: moonvit.py, kimi_vl.py).
"""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import tokenizers
from PIL import Image

from make_expected_plain import MIN_ROUTE_GAP, DeepSeekV32, Recurrent, gelu, sigmoid, silu, softmax
from make_expected_vision import ROOT, SOURCE, answer, safetensors

CASES = ("text only", "no resizing", "awkward size", "two images, gray and alpha", "palette, second turn", "video of four frames")


def erf_gelu(x, kind): return (x * kind(0.5) * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))).astype(kind)


def bicubic(table, rows, cols, kind):
    """(rows, cols, D) of a table (side, side, D) as torch interpolates it: half-pixel centres, a = -0.75, the edges repeated as far as it reaches."""
    side = len(table)
    table = np.pad(table, ((3, 3), (3, 3), (0, 0)), "edge")
    def bell(x):
        x = abs(x)
        return 1.25 * x ** 3 - 2.25 * x ** 2 + 1 if x <= 1 else -0.75 * (x ** 3 - 5 * x ** 2 + 8 * x - 4) if x < 2 else 0.0
    def mix(n): return np.array([[bell(3 + (i + 0.5) * side / n - 0.5 - j) for j in range(side + 6)] for i in range(n)]).astype(kind)
    return np.einsum("ry,cx,yxd->rcd", mix(rows), mix(cols), table)


def blocks(rows, cols, m): return np.array([(a + i, b + j) for a in range(0, rows, m) for b in range(0, cols, m) for i in range(m) for j in range(m)])


class GlmTower:
    def __init__(self, whole, w, kind):
        self.c, self.w, self.kind = whole["vision_config"], w, kind

    def linear(self, x, name):
        w = self.w[f"visual.{name}.weight"]
        return x @ w.reshape(len(w), -1).T + self.w.get(f"visual.{name}.bias", self.kind(0))

    def norm(self, x, name): return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.kind(self.c["rms_norm_eps"])) * self.w[f"visual.{name}.weight"]

    def order(self, rows, cols): return blocks(rows, cols, self.c["spatial_merge_size"])

    def places(self, rows, cols):
        side = self.c["image_size"] // self.c["patch_size"]
        return bicubic(self.w["visual.embeddings.position_embedding.weight"].reshape(side, side, -1), rows, cols, self.kind)[tuple(self.order(rows, cols).T)]

    def mlp(self, x, p): return self.linear(silu(self.linear(x, p + ".gate_proj")) * self.linear(x, p + ".up_proj"), p + ".down_proj")

    def __call__(self, patches, rows, cols):
        H, four = self.c["num_heads"], self.c["spatial_merge_size"] ** 2
        x = self.linear(patches, "patch_embed.proj")
        if "visual.post_conv_layernorm.weight" in self.w: x = self.norm(x, "post_conv_layernorm") + self.places(rows, cols)
        T, d = len(x), x.shape[1] // H
        angle = self.order(rows, cols)[:, :, None] * 10000.0 ** (-np.arange(0, d // 2, 2) / (d // 2)) # (T, row and column, d / 4)
        angle = np.tile(angle.reshape(T, 1, -1), 2)
        co, si = np.cos(angle).astype(self.kind), np.sin(angle).astype(self.kind)
        turned = lambda y: y * co + np.concatenate([-y[..., d // 2:], y[..., :d // 2]], -1) * si
        for l in range(self.c["depth"]):
            p = f"blocks.{l}."
            q, k, v = (y.reshape(T, H, d) for y in np.split(self.linear(self.norm(x, p + "norm1"), p + "attn.qkv"), 3, -1))
            if f"visual.{p}attn.q_norm.weight" in self.w: q, k = self.norm(q, p + "attn.q_norm"), self.norm(k, p + "attn.k_norm")
            seen = softmax(np.einsum("thd,shd->hts", turned(q), turned(k)) * self.kind(d ** -0.5))
            x = x + self.linear(np.einsum("hts,shd->thd", seen, v).reshape(T, -1), p + "attn.proj")
            x = x + self.mlp(self.norm(x, p + "norm2"), p + "mlp")
        x = self.norm(x, "post_layernorm").reshape(T // four, four, -1).transpose(0, 2, 1).reshape(T // four, -1)
        x = self.linear(self.linear(x, "downsample"), "merger.proj")
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.kind(1e-5))
        name = "visual.merger.post_projection_norm."
        return self.mlp(erf_gelu(x * self.w[name + "weight"] + self.w[name + "bias"], self.kind), "merger")


class Glm(Recurrent):
    """GLM-4, or with experts GLM-4.5, whose rows may come of a tower."""

    def __init__(self, folder, kind=np.float32):
        super().__init__(folder, kind)
        self.whole = json.loads((folder / "config.json").read_text())
        self.moe, self.folder, self.positions = "n_routed_experts" in self.c, folder, None
        self.tower = GlmTower(self.whole, self.w, kind)

    def turn(self, y):
        how, d = self.c["rope_parameters"], y.shape[-1]
        r = int(d * how["partial_rotary_factor"])
        row = np.repeat(np.arange(3), how["mrope_section"])
        angle = self.positions[row].T[:, None] * how["rope_theta"] ** (-np.arange(0, r, 2) / r)
        co, si = np.cos(angle).astype(self.kind), np.sin(angle).astype(self.kind)
        a, b = (y[..., :r // 2], y[..., r // 2:r]) if self.moe else (y[..., :r:2], y[..., 1:r:2])
        turned = a * co - b * si, b * co + a * si
        turned = np.concatenate(turned, -1) if self.moe else np.stack(turned, -1).reshape(*y.shape[:-1], r)
        return np.concatenate([turned, y[..., r:]], -1)

    def attention(self, l, x):
        p, T, H, K = f"layers.{l}.self_attn.", len(x), self.c["num_attention_heads"], self.c["num_key_value_heads"]
        q, k, v = ((x @ self.w[p + n + "_proj.weight"].T + self.w.get(p + n + "_proj.bias", self.kind(0))).reshape(T, -1, self.c["head_dim"]) for n in "qkv")
        k, v = (np.repeat(y, H // K, 1) for y in (self.turn(k), v))
        score = np.einsum("thd,shd->hts", self.turn(q), k) * self.kind(q.shape[-1] ** -0.5)
        score = np.where(np.arange(T)[:, None] >= np.arange(T), score, self.kind(-1e30))
        return np.einsum("hts,shd->thd", softmax(score), v).reshape(T, -1) @ self.w[p + "o_proj.weight"].T

    def mlp(self, l, x):
        c, w, p = self.c, self.w, f"layers.{l}.mlp."
        if not self.moe:
            gate, up = np.split(x @ w[p + "gate_up_proj.weight"].T, 2, -1)
            return (silu(gate) * up) @ w[p + "down_proj.weight"].T
        one = lambda n, y: (silu(y @ w[p + n + "gate_proj.weight"].T) * (y @ w[p + n + "up_proj.weight"].T)) @ w[p + n + "down_proj.weight"].T
        if l < c["first_k_dense_replace"]: return one("", x)
        score, out = sigmoid(x @ w[p + "gate.weight"].T), one("shared_experts.", x)
        order, weight = self.chosen(score, score + w[p + "gate.e_score_correction_bias"], c["num_experts_per_tok"])
        weight = np.take_along_axis(score, order, -1)
        weight = weight / weight.sum(-1, keepdims=True) * self.kind(c["routed_scaling_factor"])
        for t in range(len(x)):
            for e, by in zip(order[t], weight[t]): out[t] += by * one(f"experts.{e}.", x[t])
        return out

    def rows(self, p):
        x = self.w["embed_tokens.weight"][p["token_ids"]]
        at = np.array(p["token_ids"]) == self.whole["image_token_id"]
        made = [self.tower(patches.astype(self.kind), *grid) for patches, grid in p["patches"]]
        if made: x[at] = np.concatenate(made)
        return x

    def see(self, p, more=()):
        """Logits (T, V) of a prompt and tokens behind it."""
        if "seen" not in p: p["seen"] = self.rows(p)
        T, N = len(p["token_ids"]), len(more)
        known = np.array(p["position_ids"]) if "position_ids" in p else np.tile(np.arange(T), (3, 1))
        self.positions = np.concatenate([known, np.tile(known.max() + 1 + np.arange(N), (3, 1))], 1)
        x = np.concatenate([p["seen"], self.w["embed_tokens.weight"][list(more)]])
        for l in range(self.c["num_hidden_layers"]):
            n, behind = f"layers.{l}.", (lambda y, name: y) if self.moe else self.norm
            x = x + behind(self.attention(l, self.norm(x, n + "input_layernorm")), n + "post_self_attn_layernorm")
            x = x + behind(self.mlp(l, self.norm(x, n + "post_attention_layernorm")), n + "post_mlp_layernorm")
        return self.norm(x, "norm") @ self.w["lm_head.weight"].T


class MoonTower:
    """MoonViT, and what makes of its rows those of the language model. Patches come row by row."""

    def __init__(self, whole, w, kind): self.c, self.w, self.kind = whole["vision_config"], w, kind

    def linear(self, x, name):
        w = self.w[name + ".weight"]
        return x @ w.reshape(len(w), -1).T + self.w[name + ".bias"]

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.kind(1e-5)) * self.w[name + ".weight"] + self.w[name + ".bias"]

    def __call__(self, patches, rows, cols):
        c, p = self.c, "vision_tower."
        H, m = c["num_attention_heads"], c["merge_kernel_size"][0]
        x = self.linear(patches, p + "patch_embed.proj") + bicubic(self.w[p + "patch_embed.pos_emb.weight"], rows, cols, self.kind).reshape(rows * cols, -1)
        T, d = len(x), x.shape[1] // H
        place = np.arange(T)
        angle = np.stack([place % cols, place // cols], 1)[:, None] * (10000.0 ** (-np.arange(0, d, 4) / d))[:, None] # (T, d / 4, column and row)
        turns = np.exp(1j * angle.reshape(T, 1, -1))
        def turned(y):
            z = (y[..., ::2] + 1j * y[..., 1::2]) * turns
            return np.stack([z.real, z.imag], -1).reshape(y.shape).astype(self.kind)
        for l in range(c["num_hidden_layers"]):
            q = p + f"encoder.blocks.{l}."
            a, b, v = (y.reshape(T, H, d) for y in np.split(self.linear(self.norm(x, q + "norm0"), q + "wqkv"), 3, -1))
            seen = softmax(np.einsum("thd,shd->hts", turned(a), turned(b)) * self.kind(d ** -0.5))
            x = x + self.linear(np.einsum("hts,shd->thd", seen, v).reshape(T, -1), q + "wo")
            x = x + self.linear(gelu(self.linear(self.norm(x, q + "norm1"), q + "mlp.fc0")), q + "mlp.fc1")
        x = self.norm(self.norm(x, p + "encoder.final_layernorm"), "multi_modal_projector.pre_norm")
        order = blocks(rows, cols, m)
        x = x[order[:, 0] * cols + order[:, 1]].reshape(T // (m * m), -1)
        return self.linear(erf_gelu(self.linear(x, "multi_modal_projector.linear_1"), self.kind), "multi_modal_projector.linear_2")


class KimiVL(DeepSeekV32):
    """DeepSeek-V3 without narrow queries or an indexer, whose rows may come of a tower."""

    def __init__(self, folder, kind=np.float32):
        super().__init__(folder, kind)
        self.whole = json.loads((folder / "config.json").read_text())
        self.tower = MoonTower(self.whole, self.w, kind)

    def attention(self, l, x):
        c, p, T, w, kind = self.c, f"layers.{l}.self_attn.", len(x), self.w, self.kind
        H, n, r, dv, R = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        q = (x @ w[p + "q_proj.weight"].T).reshape(T, H, n + r)
        low = x @ w[p + "kv_a_proj_with_mqa.weight"].T
        kv = (self.plain_norm(low[:, :R], p + "kv_a_layernorm") @ w[p + "kv_b_proj.weight"].T).reshape(T, H, n + dv)
        q = np.concatenate([q[..., :n], self.turn(q[..., n:], r, True)], -1)
        k = np.concatenate([kv[..., :n], np.repeat(self.turn(low[:, None, R:], r, True), H, 1)], -1)
        score = np.where(np.arange(T)[:, None] >= np.arange(T), np.einsum("thd,shd->hts", q, k) * kind((n + r) ** -0.5), kind(-1e30))
        return np.einsum("hts,shd->thd", softmax(score), kv[..., n:]).reshape(T, -1) @ w[p + "o_proj.weight"].T

    def see(self, p, more=()):
        if "seen" not in p:
            p["seen"] = self.w["embed_tokens.weight"][p["token_ids"]]
            made = [self.tower(patches.astype(self.kind), *grid) for patches, grid in p["patches"]]
            if made: p["seen"][np.array(p["token_ids"]) == self.whole["media_placeholder_token_id"]] = np.concatenate(made)
        x = np.concatenate([p["seen"], self.w["embed_tokens.weight"][list(more)]])
        for l in range(self.c["num_hidden_layers"]):
            x = x + self.attention(l, self.norm(x, f"layers.{l}.input_layernorm"))
            x = x + self.mlp(l, self.norm(x, f"layers.{l}.post_attention_layernorm"))
        return self.norm(x, "norm") @ self.w["lm_head.weight"].T


# ---- GLM's folder

IDS = {"<|begin_of_image|>": 500, "<|image|>": 501, "<|end_of_image|>": 502, "<|video|>": 503, "<|begin_of_video|>": 504, "<|end_of_video|>": 505, "[gMASK]": 506, "<sop>": 507,
       "<|user|>": 2, "<|assistant|>": 3, "<|system|>": 508}
TEMPLATE = """[gMASK]<sop>{% for m in messages %}<|{{ m['role'] }}|>
{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}{% if c['type'] == 'video' %}<|begin_of_video|><|video|><|end_of_video|>{% elif c['type'] == 'image' %}<|begin_of_image|><|image|><|end_of_image|>{% elif c['type'] == 'text' %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""
COMMON = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "vocab_size": 512, "tie_word_embeddings": False, "attention_bias": True, "pad_token_id": 1, "eos_token_id": [1]}
TEXTS = {"glm4v": {"model_type": "glm4v_text", "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                   "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 2, 1]}},
         "glm4v_moe": {"model_type": "glm4v_moe_text", "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                       "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1, "moe_intermediate_size": 24, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                       "norm_topk_prob": True, "routed_scaling_factor": 1.5, "use_qk_norm": False,
                       "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 2, 1]}}}
TEXTS["glm_ocr"] = {"model_type": "glm_ocr_text", "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 20, "attention_bias": False,
                    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0, "mrope_section": [2, 5, 3]}}
CLASSES = {"glm4v": "Glm4v", "glm4v_moe": "Glm4vMoe", "glm_ocr": "GlmOcr"}
PROCESSORS = {"glm4v": "Glm4v", "glm4v_moe": "Glm46V", "glm_ocr": "Glm46V", "kimi_vl": "KimiVL"} # whose videos' times have tenths


def config(family):
    vision = {"model_type": family + "_vision", "depth": 3, "hidden_size": 32, "num_heads": 2, "attention_bias": False, "hidden_act": "silu", "image_size": 80, "patch_size": 16, "rms_norm_eps": 1e-5,
              "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3, "out_hidden_size": TEXTS[family]["hidden_size"], "intermediate_size": 72}
    if family == "glm_ocr": vision.update(attention_bias=True, intermediate_size=40)
    return {"architectures": [CLASSES[family] + "ForConditionalGeneration"], "model_type": family, "tie_word_embeddings": False, "transformers_version": "5.0.0",
            "image_token_id": 501, "video_token_id": 503, "image_start_token_id": 500, "image_end_token_id": 502, "video_start_token_id": 504, "video_end_token_id": 505,
            "text_config": {**COMMON, **TEXTS[family]}, "vision_config": vision}


KIMI_IDS = {"<|media_start|>": 500, "<|media_pad|>": 501, "<|media_end|>": 502, "<|media_content|>": 503, "<|im_user|>": 504, "<|im_assistant|>": 505, "<|im_system|>": 506, "<|im_middle|>": 507, "<|im_start|>": 2, "<|im_end|>": 3}
KIMI_TEMPLATE = """{%- for m in messages -%}<|im_{{ m['role'] }}|>{{ m['role'] }}<|im_middle|>{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}{% if c['type'] == 'image' or 'image' in c or 'image_url' in c %}<|media_start|>image<|media_content|><|media_pad|><|media_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>{%- endfor -%}{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}"""
KIMI = {"model_type": "kimi_vl", "architectures": ["KimiVLForConditionalGeneration"], "media_placeholder_token_id": 501, "transformers_version": "4.48.3",
        "text_config": {"model_type": "deepseek_v3", "hidden_size": 48, "intermediate_size": 64, "moe_intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "n_shared_experts": 1,
                        "n_routed_experts": 8, "routed_scaling_factor": 2.446, "kv_lora_rank": 32, "q_lora_rank": None, "qk_rope_head_dim": 8, "v_head_dim": 16, "qk_nope_head_dim": 16, "n_group": 1, "topk_group": 1,
                        "num_experts_per_tok": 3, "first_k_dense_replace": 1, "norm_topk_prob": True, "scoring_func": "sigmoid", "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 800000.0, "rope_scaling": None,
                        "max_position_embeddings": 2048, "vocab_size": 512, "tie_word_embeddings": False, "attention_bias": False, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1},
        "vision_config": {"model_type": "moonvit", "patch_size": 14, "num_attention_heads": 2, "num_hidden_layers": 3, "hidden_size": 32, "intermediate_size": 40, "init_pos_emb_height": 5, "init_pos_emb_width": 5, "merge_kernel_size": [2, 2]}}


def kimi_shapes(c):
    t, v, out = c["text_config"], c["vision_config"], {}
    D, H, n, r, dv, R, F = (t[k] for k in ("hidden_size", "num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank", "moe_intermediate_size"))
    out["language_model.lm_head.weight"] = out["language_model.model.embed_tokens.weight"] = (512, D)
    out["language_model.model.norm.weight"] = (D,)
    for l in range(t["num_hidden_layers"]):
        p = f"language_model.model.layers.{l}."
        out |= {p + "input_layernorm.weight": (D,), p + "post_attention_layernorm.weight": (D,), p + "self_attn.q_proj.weight": (H * (n + r), D), p + "self_attn.kv_a_proj_with_mqa.weight": (R + r, D),
                p + "self_attn.kv_a_layernorm.weight": (R,), p + "self_attn.kv_b_proj.weight": (H * (n + dv), R), p + "self_attn.o_proj.weight": (D, H * dv)}
        dense = l < t["first_k_dense_replace"]
        for m, wide in (("", t["intermediate_size"]),) if dense else (("shared_experts.", F), *((f"experts.{e}.", F) for e in range(t["n_routed_experts"]))):
            for k in ("gate", "up", "down"): out[f"{p}mlp.{m}{k}_proj.weight"] = (D, wide) if k == "down" else (wide, D)
        if not dense: out |= {p + "mlp.gate.weight": (t["n_routed_experts"], D), p + "mlp.gate.e_score_correction_bias": (t["n_routed_experts"],)}
    h, F, p, m = v["hidden_size"], v["intermediate_size"], "vision_tower.", "multi_modal_projector."
    pairs = {p + "patch_embed.proj": (h, 3, v["patch_size"], v["patch_size"]), p + "encoder.final_layernorm": (h,), m + "pre_norm": (h,), m + "linear_1": (4 * h, 4 * h), m + "linear_2": (D, 4 * h)}
    for l in range(v["num_hidden_layers"]):
        q = p + f"encoder.blocks.{l}."
        pairs |= {q + "norm0": (h,), q + "norm1": (h,), q + "wqkv": (3 * h, h), q + "wo": (h, h), q + "mlp.fc0": (F, h), q + "mlp.fc1": (h, F)}
    out[p + "patch_embed.pos_emb.weight"] = (v["init_pos_emb_height"], v["init_pos_emb_width"], h)
    return out | {k + ".weight": s for k, s in pairs.items()} | {k + ".bias": s[:1] for k, s in pairs.items()}


def shapes(c):
    """{name: shape} of all tensors."""
    if c["model_type"] == "kimi_vl": return kimi_shapes(c)
    t, v, out = c["text_config"], c["vision_config"], {}
    D, H, K, d = (t[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    out["lm_head.weight"] = out["model.language_model.embed_tokens.weight"] = (512, D)
    out["model.language_model.norm.weight"] = (D,)
    for l in range(t["num_hidden_layers"]):
        p = f"model.language_model.layers.{l}."
        for n in ("input", "post_attention", *(() if "n_routed_experts" in t else ("post_self_attn", "post_mlp"))): out[f"{p}{n}_layernorm.weight"] = (D,)
        for n, heads in zip("qkv", (H, K, K)):
            out[f"{p}self_attn.{n}_proj.weight"] = (heads * d, D)
            if t["attention_bias"]: out[f"{p}self_attn.{n}_proj.bias"] = (heads * d,)
        out[p + "self_attn.o_proj.weight"], p = (D, H * d), p + "mlp."
        if "n_routed_experts" not in t:
            out[p + "gate_up_proj.weight"], out[p + "down_proj.weight"] = (2 * t["intermediate_size"], D), (D, t["intermediate_size"])
            continue
        dense, F = l < t["first_k_dense_replace"], t["moe_intermediate_size"]
        for n, wide in (("", t["intermediate_size"]),) if dense else (("shared_experts.", F), *((f"experts.{e}.", F) for e in range(t["n_routed_experts"]))):
            for m in ("gate", "up", "down"): out[f"{p}{n}{m}_proj.weight"] = (D, wide) if m == "down" else (wide, D)
        if not dense: out[p + "gate.weight"], out[p + "gate.e_score_correction_bias"] = (t["n_routed_experts"], D), (t["n_routed_experts"],)
    h, O, p, side, ocr = v["hidden_size"], v["out_hidden_size"], "model.visual.", v["image_size"] // v["patch_size"], v["attention_bias"]
    wide, F = (v["intermediate_size"], 3 * O) if ocr else (O, v["intermediate_size"])
    if not ocr: out |= {p + "post_conv_layernorm.weight": (h,), p + "embeddings.position_embedding.weight": (side * side, h)}
    out |= {p + "patch_embed.proj.weight": (h, 3, 2, v["patch_size"], v["patch_size"]), p + "patch_embed.proj.bias": (h,), p + "post_layernorm.weight": (h,), p + "downsample.weight": (O, h, 2, 2), p + "downsample.bias": (O,), p + "merger.proj.weight": (O, O),
            p + "merger.post_projection_norm.weight": (O,), p + "merger.post_projection_norm.bias": (O,), p + "merger.gate_proj.weight": (F, O), p + "merger.up_proj.weight": (F, O), p + "merger.down_proj.weight": (O, F)}
    for l in range(v["depth"]):
        q = f"{p}blocks.{l}."
        matrices = {"attn.qkv": (3 * h, h), "attn.proj": (h, h), "mlp.gate_proj": (wide, h), "mlp.up_proj": (wide, h), "mlp.down_proj": (h, wide)}
        out |= {q + "norm1.weight": (h,), q + "norm2.weight": (h,), **{f"{q}{n}.weight": s for n, s in matrices.items()}}
        if ocr: out |= {**{f"{q}{n}.bias": s[:1] for n, s in matrices.items()}, **{f"{q}attn.{n}_norm.weight": (h // v["num_heads"],) for n in "qk"}}
    return out


def drawn(rng, name, shape):
    if "norm" in name and name.endswith("weight"): return rng.normal(1, 0.2, shape)
    if "embed_tokens" in name or "position_embedding" in name or "pos_emb" in name: return rng.normal(0, 0.5, shape)
    if "mlp.gate.weight" in name: return rng.normal(0, 0.3, shape)
    return rng.normal(0, 0.1 if len(shape) < 2 else 1.2 / math.sqrt(math.prod(shape[1:])), shape)


def write(folder, c, seed):
    rng = np.random.default_rng(seed)
    tensors = {name: (drawn(rng, name, shape).astype("<f4").view("<u4") + 0x8000 >> 16).astype("<u2") for name, shape in shapes(c).items()}
    safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(c, indent=2) + "\n")


def papers(folder, family):
    """Everything beside the weights and the pictures."""
    t = json.loads((SOURCE / "tokenizer.json").read_text())
    kimi = family == "kimi_vl"
    token = lambda i, text: {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    t["added_tokens"] = [token(i, text) for text, i in sorted({"<s>": 0, "</s>": 1, **(KIMI_IDS if kimi else IDS)}.items(), key=lambda x: x[1])]
    renamed = {} if kimi else {"<|im_start|>": "<|user|>", "<|im_end|>": "<|assistant|>"}
    t["model"]["vocab"] = {renamed.get(k, k): v for k, v in t["model"]["vocab"].items()}
    (folder / "tokenizer.json").write_text(json.dumps(t))
    c = json.loads((SOURCE / "tokenizer_config.json").read_text())
    c.update(added_tokens_decoder={str(x["id"]): {k: x[k] for k in x if k != "id"} for x in t["added_tokens"]}, processor_class=PROCESSORS[family] + "Processor", chat_template=KIMI_TEMPLATE if kimi else TEMPLATE)
    c.pop("extra_special_tokens")
    (folder / "tokenizer_config.json").write_text(json.dumps(c, indent=2))
    shutil.copy(SOURCE / "generation_config.json", folder / "generation_config.json")
    if kimi:
        picture = {"image_processor_type": "KimiVLImageProcessor", "in_token_limit": 22, "patch_size": 14, "merge_kernel_size": [2, 2], "pad_input": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "num_pooled_tokens": 1024}
        (folder / "preprocessor_config.json").write_text(json.dumps(picture, indent=2))
        return picture
    both = {"do_convert_rgb": True, "do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255, "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3, "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2, "processor_class": PROCESSORS[family] + "Processor"}
    picture = {"image_processor_type": PROCESSORS[family] + "ImageProcessor", "size": {"shortest_edge": 8192, "longest_edge": 32768}, **both}
    (folder / "preprocessor_config.json").write_text(json.dumps(picture, indent=2))
    (folder / "video_preprocessor_config.json").write_text(json.dumps({"video_processor_type": PROCESSORS[family] + "VideoProcessor", "size": {"shortest_edge": 8192, "longest_edge": 262144}, "fps": 2, **both}, indent=2))
    return picture


def kimi_rendered(messages):
    part = lambda c: "<|media_start|>image<|media_content|><|media_pad|><|media_end|>" if c["type"] == "image_url" else c["text"]
    return "".join(f"<|im_{m['role']}|>{m['role']}<|im_middle|>" + (m["content"] if isinstance(m["content"], str) else "".join(map(part, m["content"]))) + "<|im_end|>" for m in messages) + "<|im_assistant|>assistant<|im_middle|>"


def kimi_processed(settings, picture):
    """As its image_processing_kimi_vl.py has it."""
    p, m = settings["patch_size"], settings["merge_kernel_size"][0]
    picture = picture.convert("RGB") # as loaders do; it does so behind the resizing again
    w, h = picture.size
    if (w // p) * (h // p) > settings["in_token_limit"]:
        by = math.sqrt(settings["in_token_limit"] / ((w // p) * (h // p)))
        picture = picture.resize((int(w * by), int(h * by)), Image.Resampling.BICUBIC)
    w, h = picture.size
    canvas = Image.new("RGB", (w + -w % (p * m), h + -h % (p * m)))
    canvas.paste(picture, (0, 0))
    x = ((np.array(canvas).astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)
    rows, cols = x.shape[1] // p, x.shape[2] // p
    return x.reshape(3, rows, p, cols, p).transpose(1, 3, 0, 2, 4).reshape(rows * cols, -1), (rows, cols)


def kimi_case(p, settings, tokenizer):
    text, patches = kimi_rendered(p["messages"]), [kimi_processed(settings, Image.open(SOURCE / name)) for name in p["images"]]
    parts = text.split("<|media_pad|>") if patches else [text]
    whole = parts[0] + "".join("<|media_pad|>" * (len(x) // 4) + rest for (x, _), rest in zip(patches, parts[1:]))
    ids = tokenizer.encode(whole, add_special_tokens=False).ids
    out = {"case": p["case"], "messages": p["messages"], "rendered": text, "images": p["images"], "token_ids": ids, "pixel_tolerance": 1e-5}
    if patches:
        order = [x[blocks(*grid, 2)[:, 0] * grid[1] + blocks(*grid, 2)[:, 1]] for x, grid in patches] # as llm_media_values has them
        values = np.concatenate([x.ravel() for x in order])
        out.update(image_tokens=sum(i == 501 for i in ids), image_grid_hws=[list(grid) for _, grid in patches], pixels=int(values.size),
                   pixel_values_first=[round(float(x), 6) for x in values[:16]], pixel_values_last=[round(float(x), 6) for x in values[-16:]])
    return out, patches


def rendered(messages):
    out = "[gMASK]<sop>"
    for m in messages:
        out += f"<|{m['role']}|>\n"
        if isinstance(m["content"], str): out += m["content"]
        else: out += "".join({"image_url": "<|begin_of_image|><|image|><|end_of_image|>", "video": "<|begin_of_video|><|video|><|end_of_video|>"}.get(c["type"]) or c["text"] for c in m["content"])
    return out + "<|assistant|>\n"


def processed(settings, frames):
    """(patches, (rows, columns)) of a picture by transformers; of two frames of a video, which need no resizing, one by one and then put together."""
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
    class Loose(Glm4vImageProcessorPil): pass
    make = lambda picture, **more: Loose(**{**{k: v for k, v in settings.items() if k not in ("image_processor_type", "processor_class")}, **more})([picture], return_tensors="np")
    if len(frames) == 1:
        a = make(frames[0])
        return a["pixel_values"], tuple(int(x) for x in a["image_grid_thw"][0][1:])
    a, b = (make(f, do_resize=False) for f in frames)
    size = settings["patch_size"] ** 2
    first, second = (x["pixel_values"].reshape(-1, 3, 2, size) for x in (a, b))
    return np.stack([first[:, :, 0], second[:, :, 1]], 2).reshape(len(first), -1), tuple(int(x) for x in a["image_grid_thw"][0][1:])


def case(p, settings, family, tokenizer):
    """A prompt of transformers' processor: its tokens, patches and positions."""
    text, patches, merge = rendered(p["messages"]), [], settings["merge_size"] ** 2
    out = {"case": p["case"], "messages": p["messages"], "rendered": text, "images": p["images"], **({"videos": p["videos"]} if p.get("videos") else {})}
    counts = []
    for name in p["images"]:
        patches.append(processed(settings, [Image.open(SOURCE / name)]))
        counts.append(len(patches[-1][0]) // merge)
    for video in p.get("videos", ()):
        frames, film = [Image.open(SOURCE / name) for name in video["frames"]], ""
        for i in range(0, len(frames), 2):
            patches.append(processed(settings, frames[i:i + 2]))
            when = i / video["fps"]
            film += "<|begin_of_image|>" + "<|image|>" * (len(patches[-1][0]) // merge) + "<|end_of_image|>" + (f"{when:.1f} seconds" if PROCESSORS[family] == "Glm46V" else str(int(when)))
        text = text.replace("<|video|>", film)
        out["video_grid_thw"] = [[len(patches), *patches[-1][1]]]
    parts = text.split("<|begin_of_image|><|image|><|end_of_image|>") if counts else [text]
    text = parts[0] + "".join("<|begin_of_image|>" + "<|image|>" * n + "<|end_of_image|>" + rest for n, rest in zip(counts, parts[1:]))
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    out.update(token_ids=ids, pixel_tolerance=1e-5)
    if not patches: return out, patches
    position, rows, place, grids = 0, [], 0, iter(grid for _, grid in patches)
    while place < len(ids):
        if ids[place] != IDS["<|image|>"]:
            rows.append([position] * 3)
            place, position = place + 1, position + 1
            continue
        h, w = (x // settings["merge_size"] for x in next(grids))
        rows += [[position, position + y, position + x] for y in range(h) for x in range(w)]
        place, position = place + h * w, position + max(h, w)
    values = np.concatenate([x.ravel() for x, _ in patches])
    out.update(image_tokens=sum(i == IDS["<|image|>"] for i in ids), position_ids=np.array(rows).T.tolist(), pixels=int(values.size),
               pixel_values_first=[round(float(x), 6) for x in values[:16]], pixel_values_last=[round(float(x), 6) for x in values[-16:]])
    if p["images"]: out["image_grid_thw"] = [[1, *grid] for _, grid in patches]
    return out, patches


def make(family):
    found = {p["case"]: p for p in json.loads((SOURCE / "expected.json").read_text())["prompts"]}
    with tempfile.TemporaryDirectory() as work:
        folder, kimi = pathlib.Path(work), family == "kimi_vl"
        c, kind = (KIMI, KimiVL) if kimi else (config(family), Glm)
        settings = papers(folder, family)
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        cases = [kimi_case(found[name], settings, tokenizer) for name in CASES[:-1]] if kimi else [case(found[name], settings, family, tokenizer) for name in CASES]
        for p, _ in cases:
            for name in [*p["images"], *(f for v in p.get("videos", ()) for f in v["frames"])]: shutil.copy(SOURCE / name, folder / name)
        for seed in range(400):
            write(folder, c, seed)
            model, exact = kind(folder), kind(folder, np.float64)
            made = []
            for p, patches in cases:
                a = answer(model, exact, {**p, "patches": patches})
                if not a or min(model.gaps, default=1) < MIN_ROUTE_GAP: break
                a.pop("patches")
                made.append(a)
            else: break
        else: sys.exit(f"{family}: no seed is good")
        for n, p in enumerate(made): (folder / f"chat{n}.json").write_text(json.dumps(p["messages"]))
        (folder / "expected.json").write_text(json.dumps({"family": family, "numpy": np.__version__, "seed": seed, "prompts": made}, indent=1) + "\n")
        print(family, "seed", seed, *((p["case"], len(p["token_ids"]), p["min_margin"], p["logit_range"], p.get("moves_with")) for p in made), sep="\n")
        subprocess.check_call([sys.executable, str(ROOT / "tests/tools/data.py"), "pack", f"vision/{family}", str(folder)])


if __name__ == "__main__":
    for name in sys.argv[1:] or PROCESSORS: make(name)
