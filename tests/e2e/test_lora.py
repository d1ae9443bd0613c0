#!/usr/bin/env python3
"""Adapters: tiny ones written as PEFT and llama.cpp write them, against models into which they are merged; served by name, loaded and unloaded
while requests run; bad ones."""
import bisect
import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
import adapters
from serving import Server, check, checkpoint, finish

CLI = os.environ.get("LLM_CLI", "./llm_cli")
TMP = tempfile.mkdtemp(prefix="llm_lora_")
IDS = [5, 17, 300, 44, 9, 101, 7, 256]


def cli(*args):
    p = subprocess.run([CLI, *args], capture_output=True, text=True, timeout=120)
    return p.returncode, p.stdout, p.stderr


def score(model, *extra, ids=IDS):
    """Log-probabilities of all next tokens, or the error."""
    config = json.load(open(f"{model}/config.json"))
    vocab = config.get("text_config", config).get("vocab_size") or config["padded_vocab_size"]
    code, out, err = cli("score", "-m", str(model), "--dtype", "float32", "--token-ids", json.dumps(ids), "--json", "--top-logprobs", str(vocab), *extra)
    return {i: x for i, x in json.loads(out)["next"]} if not code else err


def distance(a, b):
    if isinstance(a, str) or isinstance(b, str): return float("inf")
    return max(abs(a[i] - b[i]) for i in a) / (max(a.values()) - min(a.values()))


def families():
    """All matrices of a family at once, whatever it fuses, splits, ties or stores across; one rank and two."""
    for name in ("llama", "gemma3_text", "qwen2_moe", "gpt2", "phi3", "chatglm3", "internlm2", "deepseek_v2", "starcoder2", "ernie4_5_moe", "opt", "cohere", "mixtral",
                 "qwen3_moe", "deepseek_v3", "deepseek_v32_topk", "glm4_moe", "lfm2", "mamba2", "granitemoehybrid_mamba", "nemotron_h", "exaone", "bailing_moe_v2", "falcon_mamba", "bamba", "cohere2_moe", "mimo_v2_flash"):
        model, adapter, merged = checkpoint(name), f"{TMP}/{name}", f"{TMP}/{name}-merged"
        parts = adapters.make(str(model), adapter, dtype=("F32", "BF16", "F16")[len(name) % 3])
        adapters.merge(str(model), merged, parts)
        base, want, got = score(model), score(merged), score(model, "--lora", adapter)
        check(f"{name}: {len(parts)} matrices", distance(want, got) < 1e-4 and distance(base, got) > 0.05, (distance(want, got), distance(base, got), got if isinstance(got, str) else ""))
        if name in ("llama", "phi3", "deepseek_v2", "qwen2_moe", "mixtral"):
            got = score(model, "--lora", adapter, "-tp", "2")
            check(f"{name}: two ranks", distance(want, got) < 1e-4, distance(want, got))
    model, adapter, merged = str(checkpoint("gemma3n_three")), f"{TMP}/gemma3n", f"{TMP}/gemma3n-merged" # all but what several streams have under one name, and their factors
    parts = adapters.make(model, adapter, targets=r"\.(self_attn|mlp|laurel)\.|per_layer_|modality_router")
    adapters.merge(model, merged, parts)
    base, want = score(model), score(merged)
    for ranks in ("1", "2"):
        got = score(model, "--lora", adapter, "-tp", ranks)
        check(f"gemma3n_three: {len(parts)} matrices, {ranks} ranks", len(parts) == 37 and distance(want, got) < 1e-4 and distance(base, got) > 0.05, (len(parts), distance(want, got), got if isinstance(got, str) else ""))
    for i, part in enumerate(("altup_projections.0", "altup_projections.1", "layers.1.altup.prediction_coefs")):
        adapters.make(model, f"{TMP}/gemma3n-{i}", targets=part)
        got = score(model, "--lora", f"{TMP}/gemma3n-{i}")
        check(f"refused: an adapter of {part}", isinstance(got, str) and "none of its 2 tensors belongs to this model" in got and part in got, got)
    long, name = IDS * 6, "deepseek_v32_topk" # beyond what the indexer leaves nothing out of, whose matrices have factors too
    base, want, got = score(checkpoint(name), ids=long), score(f"{TMP}/{name}-merged", ids=long), score(checkpoint(name), "--lora", f"{TMP}/{name}", ids=long)
    check(f"{name}: chosen by an adapter, too", distance(want, got) < 1e-4 and distance(base, got) > 0.05, distance(want, got))
    model, adapter, merged = str(checkpoint("bailing_moe")), f"{TMP}/bailing_moe", f"{TMP}/bailing_moe-merged" # all but the output layer, whose columns count by their lengths
    adapters.merge(model, merged, adapters.make(model, adapter, targets=r"\.(attention|mlp)\."))
    base, want, got = score(model), score(merged), score(model, "--lora", adapter)
    check("bailing_moe: all but its output layer", distance(want, got) < 1e-4 and distance(base, got) > 0.05, (distance(want, got), distance(base, got), got if isinstance(got, str) else ""))
    adapters.make(model, f"{TMP}/bailing_moe-head", targets="lm_head")
    got = score(model, "--lora", f"{TMP}/bailing_moe-head")
    check("refused: an adapter of an output layer whose columns are normed", isinstance(got, str) and "lm_head" in got and "belongs to" in got, got)
    model, adapter = checkpoint("qwen3_5"), f"{TMP}/qwen3_5" # q's gates, or a and b beside q, k, v and z: not left out in silence
    adapters.make(str(model), adapter)
    got = score(model, "--lora", adapter)
    check("more matrices than one product takes", isinstance(got, str) and "factors of more than 3 matrices that are computed as one" in got, got)


def e4m3(byte):
    e, m = byte >> 3 & 15, byte & 7
    return (-1 if byte & 128 else 1) * ((8 + m) * 2.0 ** (e - 10) if e else m * 2.0 ** -9)


def scaled():
    """Not adapters, but other factors beside matrices: int8 and fp8 weights with a scale a tensor or a row, against the floats that they mean."""
    for name, kind, per_row, dtype in (("llama", "I8", True, "BF16"), ("phi3", "I8", False, "F32"), ("llama", "F8_E4M3", True, "F32"), ("qwen2", "F8_E4M3", False, "F32"), ("gemma2", "I8", True, "F16")):
        model, quant, plain = str(checkpoint(name)), f"{TMP}/{name}-{kind}-{per_row}", f"{TMP}/{name}-{kind}-{per_row}-plain"
        table = [x - 256 if x > 127 else x for x in range(256)] if kind == "I8" else [e4m3(x) if x & 127 != 127 else 1e9 for x in range(256)]
        order = sorted((x for x in range(256) if table[x] < 1e9), key=lambda x: table[x])
        top = table[order[-1]]
        values = [table[x] for x in order]
        tensors, floats = adapters.folder_tensors(model), adapters.folder_tensors(model)
        for part in adapters.linears(model, "_proj"):
            rows = adapters.rows_of(tensors[part + ".weight"])
            scales = [max(max(map(abs, r)), 1e-6) / top for r in (rows if per_row else [sum(rows, [])])]
            scales = adapters.floats(dtype, adapters.pack(dtype, scales))
            data, means = bytearray(), []
            for i, r in enumerate(rows):
                scale = scales[i if per_row else 0]
                at = [order[min(bisect.bisect_left(values, x / scale), len(order) - 1)] for x in r]
                data += bytes(at)
                means += [table[x] * scale for x in at]
            shape = tensors[part + ".weight"][1]
            tensors[part + ".weight"] = (kind, shape, bytes(data))
            tensors[part + ".weight_scale"] = (dtype, [len(scales), 1] if per_row else [1], adapters.pack(dtype, scales))
            floats[part + ".weight"] = ("F32", shape, adapters.pack("F32", means))
        for folder, parts in ((quant, tensors), (plain, floats)):
            shutil.copytree(model, folder)
            adapters.write_safetensors(folder + "/model.safetensors", parts)
        config = json.load(open(model + "/config.json"))
        json.dump({**config, "quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized"}}, open(quant + "/config.json", "w"))
        for ranks in ("1", "2"):
            want, got = score(plain, "-tp", ranks), score(quant, "-tp", ranks)
            check(f"{name}: {kind}, a scale a {'row' if per_row else 'tensor'}, {ranks} ranks", distance(want, got) < 1e-4, (distance(want, got), got if isinstance(got, str) else ""))
        at = next(x for x in tensors if x.endswith("_scale"))
        for what, scale in (("of another count", (dtype, [3], adapters.pack(dtype, [0.1] * 3))), ("of no count", (dtype, [0], b"")), ("of bytes", ("I8", tensors[at][1], bytes(math.prod(tensors[at][1]))))):
            adapters.write_safetensors(quant + "/model.safetensors", {**tensors, at: scale})
            check(f"{name}: a scale {what}", at in str(score(quant)) or at.removesuffix("_scale") in str(score(quant)), score(quant))
        adapters.write_safetensors(quant + "/model.safetensors", {**tensors, at: (dtype, tensors[at][1], adapters.pack(dtype, [math.nan] * math.prod(tensors[at][1])))})
        check(f"{name}: a scale that is no number", isinstance(score(quant), str), score(quant))
        zero = (dtype, tensors[at][1], adapters.pack(dtype, [0.0] * math.prod(tensors[at][1])))
        for folder, parts in ((quant, {**tensors, at: zero}), (plain, {**floats, at.removesuffix("_scale"): ("F32", floats[at.removesuffix("_scale")][1], adapters.pack("F32", [0.0] * math.prod(floats[at.removesuffix("_scale")][1])))})):
            adapters.write_safetensors(folder + "/model.safetensors", parts)
        check(f"{name}: a scale of 0", distance(score(plain), score(quant)) < 1e-4, score(quant))
        del tensors[at]
        adapters.write_safetensors(quant + "/model.safetensors", tensors)
        check(f"{name}: without a scale", "without scales" in str(score(quant)), score(quant))


def variants():
    model = str(checkpoint("llama"))
    for name, how in (("rsLoRA", {"use_rslora": True}), ("rank 1", {"r": 1}), ("rank 64", {"r": 64, "size": 0.2}), ("some layers", {"targets": r"layers\.1\.(self_attn\.[qv]_proj|mlp\.up_proj)"}),
                      ("embeddings", {"embed": "model.embed_tokens", "targets": "down_proj"}), ("the output layer", {"targets": "lm_head"})):
        adapter, merged = f"{TMP}/v-{name}", f"{TMP}/v-{name}-merged"
        adapters.merge(model, merged, adapters.make(model, adapter, seed=7, **how))
        want, got = score(merged), score(model, "--lora", adapter)
        check(f"variant {name}", distance(want, got) < 1e-4, (distance(want, got), got if isinstance(got, str) else ""))
    # alpha_pattern: one module's alpha; the other keeps lora_alpha
    parts = adapters.make(model, f"{TMP}/pattern", targets=r"layers\.0\.self_attn\.[qk]_proj", alpha=16, alpha_pattern={"q_proj": 4})
    parts = {k: (a, b, 1.0 if "q_proj" in k else s) for k, (a, b, s) in parts.items()}
    adapters.merge(model, f"{TMP}/pattern-merged", parts)
    check("alpha_pattern", distance(score(f"{TMP}/pattern-merged"), score(model, "--lora", f"{TMP}/pattern")) < 1e-4)
    # tied: the embedding and the output layer are one matrix, but adapters of their own
    model = str(checkpoint("qwen2"))
    if "lm_head.weight" not in adapters.folder_tensors(model):
        parts = adapters.make(model, f"{TMP}/tied", targets="v_proj", embed="model.embed_tokens")
        check("tied embeddings", isinstance(score(model, "--lora", f"{TMP}/tied"), dict) and distance(score(model), score(model, "--lora", f"{TMP}/tied")) > 1e-3)


def experts():
    """Matrices of experts, which several files' names and shapes can have; what a part of the experts has, and with ranks of their own."""
    model, names = str(checkpoint("gpt_oss")), ["gate_up_proj", "down_proj"]
    layers = [x.rsplit(".", 1)[0] for x in adapters.folder_tensors(model) if x.endswith("experts.gate_up_proj")]
    for what, these, across in (("both", names, False), ("both, the other one inside", names[::-1], False), ("only gate and up", names[:1], False), ("only down", names[1:], False), ("stored (out, in)", names, True)):
        parts = adapters.make_parameters(model, f"{TMP}/stack", {x: these for x in layers}, seed=len(what), across=across)
        adapters.merge(model, f"{TMP}/stack-merged", parts)
        want = score(f"{TMP}/stack-merged")
        for tp in ((), ("-tp", "2")):
            got = score(model, "--lora", f"{TMP}/stack", *tp)
            check(f"gpt_oss: target_parameters, {what} {tp}", distance(want, got) < 1e-4 and distance(score(model), got) > 0.02, (distance(want, got), got if isinstance(got, str) else ""))
    model = str(checkpoint("mixtral"))
    parts = adapters.make(model, f"{TMP}/some", targets=r"experts\.[02]\.w[13]|1\.block_sparse_moe\.experts\.3\.w2", seed=4)
    other = adapters.make(model, f"{TMP}/other", targets=r"experts\.1\.w[12]", r=7, seed=5, rank_pattern={"w1": 7})
    tensors = {**adapters.read_safetensors(f"{TMP}/some/adapter_model.safetensors"), **adapters.read_safetensors(f"{TMP}/other/adapter_model.safetensors")}
    config = json.load(open(f"{TMP}/some/adapter_config.json"))
    adapters.write_safetensors(f"{TMP}/some/adapter_model.safetensors", tensors)
    json.dump({**config, "rank_pattern": {"1.w1": 7, "1.w2": 7}}, open(f"{TMP}/some/adapter_config.json", "w"))
    adapters.merge(model, f"{TMP}/some-merged", {**parts, **{k: (a, b, 16 / 7) for k, (a, b, _) in other.items()}})
    check("some experts, with ranks of their own", distance(score(f"{TMP}/some-merged"), score(model, "--lora", f"{TMP}/some")) < 1e-4, score(model, "--lora", f"{TMP}/some"))
    # as llama.cpp has it: one stack for all experts of a layer
    parts = adapters.make(model, f"{TMP}/e", targets=r"experts|0\.self_attn\.q_proj", seed=6)
    stacks = {}
    for name, (a, b, _) in parts.items():
        if "q_proj" in name:
            heads = json.load(open(f"{model}/config.json"))["num_attention_heads"]
            stacks["blk.0.attn_q.weight.lora_a"], stacks["blk.0.attn_q.weight.lora_b"] = [(0, a)], [(0, gguf_rows(b, heads))]
            continue
        layer, expert, kind = re.search(r"layers\.(\d+)\..*experts\.(\d+)\.w(\d)", name).groups()
        to = f"blk.{layer}.ffn_{('gate', 'down', 'up')[int(kind) - 1]}_exps.weight.lora_"
        for end, rows in (("a", a), ("b", b)): stacks.setdefault(to + end, []).append((int(expert), rows))
    stacks = {k: [rows for _, rows in sorted(v)] if len(v) > 1 else v[0][1] for k, v in stacks.items()}
    adapters.make_gguf(f"{TMP}/e.gguf", stacks)
    check("experts of a GGUF adapter", distance(score(model, "--lora", f"{TMP}/e"), score(model, "--lora", f"{TMP}/e.gguf")) < 1e-6, score(model, "--lora", f"{TMP}/e.gguf"))
    adapters.make_gguf(f"{TMP}/bad.gguf", {k: v[:-1] if "exps" in k else v for k, v in stacks.items()})
    got = score(model, "--lora", f"{TMP}/bad.gguf")
    check("one expert too few", isinstance(got, str) and "shape" in got and got.count("\n") == 1, got)
    tensors = adapters.read_safetensors(f"{TMP}/stack/adapter_model.safetensors")
    some = next(x for x in tensors if x.endswith("lora_B.weight"))
    dtype, (m, n), data = tensors[some]
    for what, change in (("another height", {some: (dtype, [m - 1, n], data[:4 * n * (m - 1)])}), ("no whole number of experts", {some: (dtype, [m, n - 1], data[:4 * m * (n - 1)])}), ("half of it", {some: None})):
        shutil.rmtree(f"{TMP}/badstack", ignore_errors=True)
        shutil.copytree(f"{TMP}/stack", f"{TMP}/badstack")
        adapters.write_safetensors(f"{TMP}/badstack/adapter_model.safetensors", {k: v for k, v in {**tensors, **change}.items() if v})
        got = score(str(checkpoint("gpt_oss")), "--lora", f"{TMP}/badstack")
        check(f"a stack with {what}", isinstance(got, str) and "experts" in got and got.count("\n") == 1, got)


def gguf_rows(rows, heads):
    """The rows of q or k as llama.cpp's converter puts them."""
    d = len(rows) // heads
    return [rows[h * d + (i % 2) * (d // 2) + i // 2] for h in range(heads) for i in range(d)]


def gguf():
    """The same adapter as a GGUF file: other names, rows of q and k in another order."""
    model = str(checkpoint("llama"))
    config = json.load(open(f"{model}/config.json"))
    parts = adapters.make(model, f"{TMP}/g", seed=3)
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    tensors = {}
    for name, (a, b, _) in parts.items():
        words = name.split(".")
        to = "output" if name == "lm_head" else f"blk.{words[2]}.{names['.'.join(words[3:])]}"
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(to.rsplit(".", 1)[-1])
        if heads: b = gguf_rows(b, config[heads])
        tensors[to + ".weight.lora_a"], tensors[to + ".weight.lora_b"] = a, b
    adapters.make_gguf(f"{TMP}/g.gguf", tensors, alpha=16)
    check("GGUF adapter", distance(score(model, "--lora", f"{TMP}/g"), score(model, "--lora", f"{TMP}/g.gguf")) < 1e-6, score(model, "--lora", f"{TMP}/g.gguf"))
    for name, how, why in (("of another family", {"arch": "gemma3"}, "architecture"), ("that is a model", {"kind": "model"}, "adapter"), ("of another kind", {"adapter": "control_vector"}, "lora")):
        adapters.make_gguf(f"{TMP}/bad.gguf", tensors, **how)
        got = score(model, "--lora", f"{TMP}/bad.gguf")
        check("GGUF " + name, isinstance(got, str) and got.count("\n") == 1 and why in got, got)


def bad():
    """One sentence each, which names the adapter, and exit 1."""
    model, good = str(checkpoint("llama")), f"{TMP}/good"
    adapters.make(model, good, r=4)
    config = json.load(open(f"{good}/adapter_config.json"))
    tensors = adapters.read_safetensors(f"{good}/adapter_model.safetensors")
    key = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    a, b = key + "A.weight", key + "B.weight"
    f32 = lambda *shape: ("F32", list(shape), bytes(4 * shape[0] * (shape[1] if len(shape) > 1 else 1)))
    nan = ("F32", [4, 96], struct.pack("<f", float("nan")) + bytes(4 * 4 * 96 - 4))
    cases = [(f"config {k}={v}", {k: v}, {}, k) for k, v in (("peft_type", "IA3"), ("peft_type", None), ("r", 0), ("r", -1), ("r", 1.5), ("r", "4"), ("r", None), ("r", 10 ** 6), ("r", 8), ("lora_alpha", "x"),
             ("lora_alpha", None), ("lora_alpha", 1e9), ("use_dora", True), ("bias", "all"), ("modules_to_save", ["lm_head"]), ("lora_bias", True), ("trainable_token_indices", [1]),
             ("layer_replication", [[0, 1]]))]
    cases[[c[0] for c in cases].index("config r=1000000")] = ("config r=10^6", {"r": 10 ** 6}, {}, "rank")
    cases[[c[0] for c in cases].index("config r=8")] = ("r is not that of the tensors", {"r": 8}, {}, "rank")
    cases += [("B missing", {}, {b: None}, "missing"), ("A missing", {}, {a: None}, "missing"), ("A too wide", {}, {a: f32(4, 97)}, "shape"), ("B too tall", {}, {b: f32(95, 4)}, "shape"), ("ranks differ", {}, {a: f32(5, 96)}, "shape"),
              ("B of one dimension", {}, {b: f32(384)}, "r"), ("rank 0", {}, {a: f32(0, 96), b: f32(96, 0)}, "rank 0"), ("integers", {}, {a: ("I32", [4, 96], bytes(1536))}, "I32"), ("not a number", {}, {a: nan}, "finite"),
              ("infinite", {}, {a: ("F32", [4, 96], struct.pack("<f", float("inf")) + bytes(1532))}, "finite"), ("a foreign name", {}, {"model.layers.0.x": f32(4, 4)}, "base_model.model."),
              ("no such layer", {}, {key.replace("layers.0", "layers.7") + "A.weight": f32(4, 96), key.replace("layers.0", "layers.7") + "B.weight": f32(96, 4)}, "layers.7"),
              ("no such matrix", {}, {key.replace("q_proj", "z_proj") + "A.weight": f32(4, 96)}, "z_proj"), ("a norm", {}, {"base_model.model.model.norm.lora_A.weight": f32(4, 96)}, "norm"),
              ("a whole matrix", {}, {"base_model.model.lm_head.weight": f32(512, 96)}, "lm_head"), ("nothing at all", {}, {k: None for k in tensors}, "no tensors")]
    n = 0
    for name, settings, changes, why in cases:
        n += 1
        folder = f"{TMP}/bad{n}"
        os.makedirs(folder)
        json.dump({**config, **settings}, open(f"{folder}/adapter_config.json", "w"))
        adapters.write_safetensors(f"{folder}/adapter_model.safetensors", {k: v for k, v in {**tensors, **changes}.items() if v})
        code, out, err = cli("-m", model, "--lora", folder, "-p", "x", "-n", "1")
        check(f"bad adapter: {name}", code == 1 and err.count("\n") == 1 and why in err and "bad" in err and not out, err)
    data = open(f"{good}/adapter_model.safetensors", "rb").read()
    rng = random.Random(5)
    raw = [(f"cut at {at}", data[:at]) for at in (0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 1)] + [("longer", data + b"x"), ("a pickle", b"\x80\x02}q\x00." * 50)]
    for i in range(30): # bytes of the header
        at = rng.randrange(0, struct.unpack("<Q", data[:8])[0] + 8)
        raw.append((f"byte {at}", data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]))
    os.makedirs(f"{TMP}/badfile")
    shutil.copy(f"{good}/adapter_config.json", f"{TMP}/badfile")
    for name, bytes_ in raw:
        with open(f"{TMP}/badfile/adapter_model.safetensors", "wb") as f: f.write(bytes_)
        code, out, err = cli("-m", model, "--lora", f"{TMP}/badfile", "-p", "x", "-n", "1")
        check(f"bad file: {name}", code == 0 and name.startswith("byte") or code == 1 and err.count("\n") == 1, err)
    os.remove(f"{TMP}/badfile/adapter_model.safetensors")
    for name, make, why in (("no weights", lambda: None, "no such file"), ("only an empty .bin", lambda: open(f"{TMP}/badfile/adapter_model.bin", "wb").close(), "no file of torch.save"),
                            ("a FIFO", lambda: os.mkfifo(f"{TMP}/badfile/adapter_model.safetensors"), "regular"), ("no JSON", lambda: open(f"{TMP}/badfile/adapter_config.json", "w").write("{"), "adapter_config"),
                            ("no config", lambda: os.remove(f"{TMP}/badfile/adapter_config.json"), "adapter_config")):
        make()
        code, out, err = cli("-m", model, "--lora", f"{TMP}/badfile", "-p", "x", "-n", "1")
        check(f"bad folder: {name}", code == 1 and err.count("\n") == 1 and why in err, err)
    for path in ("/nothing", "/dev/zero", f"{model}/model.safetensors"):
        code, out, err = cli("-m", model, "--lora", path, "-p", "x", "-n", "1")
        check(f"bad path: {path}", code == 1 and err.count("\n") == 1 and path in err, err)
    check("rank over the limit", "--max-lora-rank 1" in cli("-m", model, "--lora", good, "--max-lora-rank", "1", "-p", "x", "-n", "1")[2])


def complete(s, model, seed=0, **more):
    status, _, body = s.request("POST", "/v1/completions", {"model": model, "prompt": [IDS[seed % 8], 3 + seed, *IDS * 5], "max_tokens": 12, "temperature": 0, "logprobs": 3, "ignore_eos": True, "return_token_ids": True, **more})
    choice = json.loads(body).get("choices", [{}])[0]
    return status, choice.get("token_ids"), json.dumps(choice.get("logprobs"))


def serving():
    """Three adapters and the base in one batch give what each gives alone, to the bit; adapters come and go under running requests."""
    model, folder = str(checkpoint("llama")), f"{TMP}/served"
    for i, name in enumerate("abcd"): adapters.make(model, f"{folder}/{name}", r=(4, 8, 2, 4)[i], seed=10 + i, size=0.3, targets=(r".", r"[qv]_proj", r"mlp", r".")[i])
    adapters.make(str(checkpoint("qwen2")), f"{folder}/foreign", r=4)
    os.symlink(f"{folder}/a", f"{folder}/link")
    os.mkfifo(f"{folder}/fifo")
    plain = None
    for flags in ((), ("--max-loras", "1", "--max-num-batched-tokens", "24", "--max-num-seqs", "8"), ("--speculative-model", model, "--num-speculative-tokens", "4")):
        s = Server("--enable-lora", "--lora-modules", f"a={folder}/a", json.dumps({"name": "b", "path": f"{folder}/b"}), f"c={folder}/c", "--lora-dir", folder, *flags, model=model, base=("--log-level", "warn", "--max-num-seqs", "16"))
        names = [model, "a", "b", "c"]
        alone = {(m, i): complete(s, m, i) for m in names for i in range(4)}
        plain = plain or alone
        check(f"as without {flags}", alone == plain)
        check("each adapter says something else", len({x[2] for (m, i), x in alone.items() if i == 0}) == 4 and all(x[0] == 200 for x in alone.values()), alone)
        together = {}
        threads = [threading.Thread(target=lambda k=k: together.__setitem__(k, complete(s, *k))) for k in alone]
        for t in threads: t.start()
        for t in threads: t.join()
        check(f"three adapters and the base in one batch {flags}", together == alone, [k for k in alone if together.get(k) != alone[k]])
        cards = {x["id"]: x for x in json.loads(s.request("GET", "/v1/models")[2])["data"]}
        check("listed with their parent", cards["a"]["parent"] == model and cards["a"]["root"] == f"{folder}/a" and cards[model]["parent"] is None and list(cards) == names, cards)
        check("one by its name", json.loads(s.request("GET", "/v1/models/b")[2])["id"] == "b" and s.request("GET", "/v1/models/d")[0] == 404)
        check("unknown names are 404 now", complete(s, "d")[0] == 404)
        if flags:
            check("ends", s.stop() == 0)
            continue
        load = lambda name, path="d", **k: s.request("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path, **k})
        unload = lambda name: s.request("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        status, _, body = load("d")
        check("loaded while serving", status == 200 and body == b"Success: LoRA adapter 'd' added successfully.", body)
        first = complete(s, "d")
        check("it answers", first[0] == 200 and first not in [x for (m, i), x in alone.items() if i == 0])
        check("loaded twice", load("d")[0] == 400 and b"already been loaded" in load("d")[2])
        # unloaded in the middle of a long answer: the answer goes on as it would have
        long = dict(max_tokens=400)
        want, got = complete(s, "d", 1, **long), []
        t = threading.Thread(target=lambda: got.append(complete(s, "d", 1, **long)))
        t.start()
        while b"vllm:num_requests_running" in (m := s.request("GET", "/metrics")[2]) and t.is_alive() and b'running{model_name="%s"} 1' % model.encode() not in m: pass
        status = unload("d")[0]
        again = load("d")[0]
        t.join()
        check("an adapter lives until its last request ends", status == 200 and again == 200 and got == [want], (status, again))
        check("removed", unload("d")[2] == b"Success: LoRA adapter 'd' removed successfully." and complete(s, "d")[0] == 404 and unload("d")[0] == 400)
        load("d", "c")
        check("another adapter under an old name shares no cached prefix", complete(s, "d") == alone["c", 0])
        unload("d")
        stop, odd = threading.Event(), []

        def busy(name, i):
            while not stop.is_set():
                if complete(s, name, i) != alone[name, i]: odd.append((name, i))

        threads = [threading.Thread(target=busy, args=(m, i)) for m in names for i in range(2)]
        for t in threads: t.start()
        seen = set()
        for _ in range(200):
            seen |= {x for x in s.request("GET", "/metrics")[2].decode().splitlines() if x.startswith("vllm:lora_requests_info")}
            if any('running_lora_adapters="a,b,c"' in x for x in seen): break
        check("the metrics tell who runs", any('max_lora="19",running_lora_adapters="a,b,c",waiting_lora_adapters=""' in x and abs(float(x.split()[-1]) - time.time()) < 60 for x in seen), seen)
        turns = [(load("d")[0], complete(s, "d") == first, unload("d")[0]) for _ in range(12)]
        stop.set()
        for t in threads: t.join()
        check("loading and unloading disturbs nobody", not odd and turns == [(200, True, 200)] * 12, (odd[:3], turns))
        for name, path, status in (("x", "../a", 403), ("x", "/etc", 403), ("x", f"{folder}/a", 403), ("x", ".", 403), ("x", "..", 403), ("x", "", 403), ("x", "a/b", 403), ("x", "link", 403), ("x", "a\0b", 403), ("x", None, 400), ("x", 1, 400),
                                   ("x", "none", 400), ("x", "fifo", 400), ("x", "foreign", 400), (None, "d", 400), ("", "d", 400), (model, "d", 400), ("a", "d", 400), ("n" * 300, "d", 400), ("a\0", "d", 400), ("a\n", "d", 400)):
            code, _, body = load(name, path)
            check(f"load {name!r:.20} {path!r}", code == status and json.loads(body)["error"]["message"], (code, body))
        for i in range(16): load(f"n{i}")
        names = lambda: [x["id"] for x in json.loads(s.request("GET", "/v1/models")[2])["data"]]
        check("one more than there are slots sets another aside, which stays listed", load("more")[0] == 200 and len(names()) == 21 and load("n0")[0] == 400, names())
        check("and comes again", all(complete(s, x) == first for x in ("more", "n0", "n15", "n1")))
        check("one that is aside goes", all(unload(f"n{i}")[0] == 200 for i in range(16)) and len(names()) == 5 and complete(s, "n3")[0] == 404)
        check("the canary", complete(s, "a") == alone["a", 0] and s.stop() == 0)
    # two in memory, three by name: the one that was named longest ago makes room; while all are in use another one waits outside
    s = Server("--enable-lora", "--max-loras", "2", "--max-cpu-loras", "2", "--lora-modules", *(f"{x}={folder}/{x}" for x in "abc"), model=model, base=("--log-level", "warn", "--max-num-seqs", "16"))
    order = random.Random(5).choices("abc", k=40)
    check("adapters in turns, more than there are slots", all(complete(s, x, i % 4) == plain[x, i % 4] for i, x in enumerate(order)) and len(json.loads(s.request("GET", "/v1/models")[2])["data"]) == 4)
    got, odd = [], set()

    def use(name, i):
        while (x := complete(s, name, i))[0] == 429: odd.add(x[0])
        got.append(x == plain[name, i])

    threads = [threading.Thread(target=use, args=(x, i % 4)) for i, x in enumerate("abc" * 8)]
    for t in threads: t.start()
    for t in threads: t.join()
    check("adapters at once, more than there are slots", got == [True] * 24, got)
    long = [threading.Thread(target=lambda x=x: complete(s, x, 1, max_tokens=400)) for x in "ab"]
    for t in long: t.start()
    while b'running_lora_adapters="a,b"' not in s.request("GET", "/metrics")[2] and b'running_lora_adapters="b,a"' not in s.request("GET", "/metrics")[2] and any(t.is_alive() for t in long): pass
    status, _, body = s.request("POST", "/v1/completions", {"model": "c", "prompt": "a", "max_tokens": 1})
    for t in long: t.join()
    check("all in use", status == 429 and b"max_cpu_loras" in body and complete(s, "c") == plain["c", 0], (status, body))
    check("the files are gone", (os.rename(f"{folder}/a", f"{folder}/away"), [complete(s, x)[0] for x in "bca"], os.rename(f"{folder}/away", f"{folder}/a"), complete(s, "a") == plain["a", 0])[1::2] == ([200, 200, 500], True) and s.stop() == 0)
    s = Server(model=model, base=("--log-level", "warn"))
    check("no folder: 403", all(s.request("POST", f"/v1/{x}load_lora_adapter", {"lora_name": "a", "lora_path": "a"})[0] == 403 for x in ("", "un")) and s.stop() == 0)
    for words, code, why in ((["a"], 2, "NAME=PATH"), (["=x"], 2, "NAME=PATH"), (["a="], 2, "NAME=PATH"), (["{}"], 2, "NAME=PATH"), ([f"a={folder}/a", '{"name": "b"}'], 2, "NAME=PATH"), (["a=/nothing", "--max-loras", "3", "--max-cpu-loras", "2"], 2, "--max-cpu-loras (2)"), (["a=/nothing"], 1, "/nothing"), ([f"a={folder}/a", f"a={folder}/b"], 2, "taken"), ([f"a={folder}/foreign"], 1, "foreign")):
        p = subprocess.run([os.environ.get("LLM_SERVE", "./llm_serve"), "--model", model, "--port", "0", "--lora-modules", *words], capture_output=True, text=True, timeout=60)
        check(f"--lora-modules {words}", p.returncode == code and why in p.stderr and p.stderr.count("error") <= 2, p.stderr)


SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "kind": {"enum": ["sword", "shield"]}, "count": {"type": "integer", "minimum": 1, "maximum": 99}, "left": {"type": "boolean"}},
          "required": ["name", "kind", "count", "left"], "additionalProperties": False}
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def choices(s, route, body):
    """Of each choice what it says or calls and why it ended, out of one answer or out of a stream."""
    if not body.get("stream"):
        status, _, data = s.request("POST", route, body)
        found = json.loads(data).get("choices") if status == 200 else None
        return [[c["text"] if "text" in c else "".join(x["function"]["name"] + x["function"]["arguments"] for x in c["message"].get("tool_calls") or []) + (c["message"]["content"] or ""), c["finish_reason"]] for c in found] if found else data
    status, _, data = s.request("POST", route, body)
    found = {}
    for line in data.decode().split("\n"):
        if not line.startswith("data: {"): continue
        for c in json.loads(line[6:])["choices"]:
            to, delta = found.setdefault(c["index"], ["", None]), c.get("delta", {})
            calls = "".join(x["function"].get("name", "") + x["function"].get("arguments", "") for x in delta.get("tool_calls") or [])
            to[0] += c.get("text") or calls or delta.get("content") or ""
            to[1] = c["finish_reason"] or to[1]
    return [found[i] for i in sorted(found)] if status == 200 else data


def combined():
    """Guided answers and tool calls, several choices of each, with adapters, with drafts, streamed or not, alone or all at once: the same."""
    model = str(checkpoint("llama"))
    for i, name in enumerate("ab"): adapters.make(model, f"{TMP}/c/{name}", r=4 + 4 * i, seed=50 + i, size=0.3)
    tools = [{"type": "function", "function": {"name": x, "parameters": SCHEMA}} for x in ("take", "drop")]
    wanted = {"json": ("/v1/completions", {"prompt": [5, 17, 300], "guided_json": SCHEMA}), "regex": ("/v1/completions", {"prompt": [5, 17, 300], "guided_regex": "(red|green) [0-9]{2,4}( and (red|green) [0-9]{2,4}){2}"}),
              "tools": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": tools, "tool_choice": "required"}),
              "object": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}})}
    plain = None
    for flags in ((), ("--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 1})), ("--speculative-model", model, "--num-speculative-tokens", "4")):
        s = Server("--enable-lora", "--max-loras", "2", "--lora-modules", *(f"{x}={TMP}/c/{x}" for x in "ab"), "--chat-template", TEMPLATE, *flags, model=model, base=("--log-level", "warn", "--max-num-seqs", "16"))
        asks = {(kind, name, n, stream): (route, {**body, "model": name, "n": n, "stream": stream, "max_tokens": 90, "temperature": 1, "seed": 11}) for kind, (route, body) in wanted.items() for name in (model, "a", "b") for n in (1, 3) for stream in (False, True)}
        alone = {k: choices(s, *v) for k, v in asks.items()}
        plain = plain or alone
        check(f"combined: as without {flags}", alone == plain, [(k, alone[k], plain[k]) for k in alone if alone[k] != plain[k]][:2])
        check(f"combined: streamed as at once {flags}", all(alone[k] == alone[k[:3] + (True,)] for k in alone), [(alone[k], alone[k[:3] + (True,)]) for k in alone if alone[k] != alone[k[:3] + (True,)]][:2])
        check(f"combined: the first of three is the one of one {flags}", all(alone[k][:1] == alone[k[0], k[1], 1, k[3]] for k in alone))
        check(f"combined: adapters and choices differ {flags}", all(len({json.dumps(alone[kind, name, 3, False]) for name in (model, "a", "b")}) == 3 for kind in wanted))
        odd = []
        for (kind, *_), v in alone.items():
            for text, end in v:
                if end == "length": continue
                if kind == "regex": ok = re.fullmatch(wanted[kind][1]["guided_regex"], text) is not None
                else: ok = (d := json.loads(text[text.index("{"):]))["kind"] in ("sword", "shield") and 1 <= d["count"] <= 99 and len(d["name"]) <= 8 and list(d) == list(SCHEMA["properties"])
                if not ok or kind == "tools" and not text.startswith(("take{", "drop{")): odd.append((kind, text))
        check(f"combined: every answer has its form {flags}", not odd and sum(end != "length" for v in alone.values() for _, end in v) > 40, odd[:3])
        together = {}
        threads = [threading.Thread(target=lambda k=k: together.__setitem__(k, choices(s, *asks[k]))) for k in asks]
        for t in threads: t.start()
        for t in threads: t.join()
        check(f"combined: all at once {flags}", together == alone, [(k, together[k], alone[k]) for k in alone if together.get(k) != alone[k]][:2])
        check("ends", s.stop() == 0)


def mixtures():
    """The same of a mixture of experts, whose experts all have adapters, and of latent attention: in a batch, in chunks, and after those who came
    before."""
    plain = {}
    for family, flags in (("mixtral", ()), ("mixtral", ("--max-num-batched-tokens", "24", "--threads", "1")), ("mixtral", ("-tp", "2")), ("deepseek_v2", ()), ("deepseek_v2", ("--max-num-batched-tokens", "24", "--threads", "1", "--kv-cache-dtype", "auto"))):
        model, targets = str(checkpoint(family)), (r".", r"experts", r"w2|gate|q_proj") if family == "mixtral" else (r"attn", r"kv_b", r"kv_a|o_proj")
        if family not in plain:
            for i, name in enumerate("abc"): adapters.make(model, f"{TMP}/{family}/{name}", r=(4, 8, 2)[i], seed=30 + i, size=0.4, targets=targets[i])
        s = Server("--enable-lora", "--max-loras", "3", "--lora-modules", *(f"{x}={TMP}/{family}/{x}" for x in "abc"), *flags, model=model, base=("--log-level", "warn", "--max-num-seqs", "16"))
        alone = {(m, i): complete(s, m, i) for m in [model, "a", "b", "c"] for i in range(4)}
        plain.setdefault(family, alone)
        check(f"{family}'s adapters say something else {flags}", len({x[2] for (m, i), x in alone.items() if i == 0}) == 4 and all(x[0] == 200 for x in alone.values()), alone)
        if "-tp" not in flags: check(f"{family}, as without {flags}", alone == plain[family])
        together = {}
        threads = [threading.Thread(target=lambda k=k: together.__setitem__(k, complete(s, *k))) for k in alone]
        for t in threads: t.start()
        for t in threads: t.join()
        check(f"{family}'s three adapters and the base in one batch {flags}", together == alone, [k for k in alone if together.get(k) != alone[k]])
        check("ends", s.stop() == 0)


if __name__ == "__main__":
    try:
        for group in (families, scaled, variants, experts, gguf, bad, serving, mixtures, combined):
            if len(sys.argv) < 2 or group.__name__ in sys.argv[1:]: group()
    finally: shutil.rmtree(TMP)
    finish()
