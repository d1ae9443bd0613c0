#!/usr/bin/env python3
"""Quantised folders: tiny models packed here as each method packs them, value by value, against folders of the floats that they mean. Bad ones.

    test_quantised.py [FUNCTION...] [OPTIONS of llm_cli]      env LLM_CLI (default ./llm_cli)
"""
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import adapters
from serving import SERVE, Server, check, checkpoint, finish
import checkpoints

CLI = os.environ.get("LLM_CLI", "./llm_cli")
TMP = tempfile.mkdtemp(prefix="llm_quantised_")
FIRST = next((i for i, x in enumerate(sys.argv) if x.startswith("-")), len(sys.argv)) # of the options
IDS = [5, 17, 300, 44, 9, 101, 7, 256]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
E2M1 += [-x for x in E2M1]
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
       0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
FP4 = [0, 0.0052083333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25]
FP4 += [-x for x in FP4]


def score(model, *extra):
    """Log-probabilities of all next tokens, or the error."""
    config = json.load(open(f"{model}/config.json"))
    vocab = config.get("text_config", config)["vocab_size"]
    p = subprocess.run([CLI, "score", "-m", str(model), "--dtype", "float32", "--token-ids", json.dumps(IDS), "--json", "--top-logprobs", str(vocab), *extra, *sys.argv[FIRST:]], capture_output=True, text=True, timeout=120)
    return {i: x for i, x in json.loads(p.stdout)["next"]} if not p.returncode else p.stderr


def distance(a, b):
    if isinstance(a, str) or isinstance(b, str): return float("inf")
    return max(abs(a[i] - b[i]) for i in a) / (max(a.values()) - min(a.values()))


def words(values, bits):
    """Values as one stream of bits, from the lowest up, in words."""
    stream = 0
    for i, v in enumerate(values): stream |= v << (bits * i)
    return stream.to_bytes((bits * len(values) + 31) // 32 * 4, "little")


def across(rows, bits):
    """(rows, cols) packed along the columns, stored as (words, rows)."""
    packed = [words(r, bits) for r in rows]
    return b"".join(p[4 * i:4 * i + 4] for i in range(len(packed[0]) // 4) for p in packed)


def scaled(rng, rows, groups, dtype):
    """Scales of a sensible size, as the dtype keeps them: [row][group]."""
    return [adapters.floats(dtype, adapters.pack(dtype, [rng.uniform(0.005, 0.02) for _ in range(groups)])) for _ in range(rows)]


def f32s(values): return adapters.floats("F32", adapters.pack("F32", values))
def flat(table, down=False): return [x for r in (zip(*table) if down else table) for x in r]


class Codes:
    """Random codes of a matrix with scales and zero points by groups, and what they mean."""

    def __init__(self, rng, rows, cols, bits, group, dtype, zero=None, g_idx=None):
        self.rows, self.cols, self.bits, self.group = rows, cols, bits, group
        self.groups = (cols + group - 1) // group
        self.u = [[rng.randrange(1 << bits) for _ in range(cols)] for _ in range(rows)]
        self.s = scaled(rng, rows, self.groups, dtype)
        self.z = [[zero if zero is not None else rng.randrange(1, 1 << bits) for _ in range(self.groups)] for _ in range(rows)]
        self.g = g_idx or [i // group for i in range(cols)]
        self.meant = [self.s[r][self.g[c]] * (self.u[r][c] - self.z[r][self.g[c]]) for r in range(rows) for c in range(cols)]


def shuffle(rng, groups, how):
    """Groups of columns as act-order leaves them: each matrix's own, or by input, as GPTQ does it."""
    (rng if how == "own" else random.Random(len(groups))).shuffle(groups)


def gptq(bits, group, v2=False, sym=False, shuffled=None):
    def pack(rng, rows, cols):
        g = min(group, cols) if group > 0 else cols
        order = [i // g for i in range(cols)]
        if shuffled: shuffle(rng, order, shuffled)
        c = Codes(rng, rows, cols, bits, g, "F16", 1 << (bits - 1) if sym else None, order)
        zeros = [[z if v2 else z - 1 for z in r] for r in c.z]
        out = {"qweight": ("I32", [cols * bits // 32, rows], across(c.u, bits)), "scales": ("F16", [c.groups, rows], adapters.pack("F16", flat(c.s, True))),
               "qzeros": ("I32", [c.groups, rows * bits // 32], b"".join(words([r[i] for r in zeros], bits) for i in range(c.groups)))}
        if shuffled or group > 0: out["g_idx"] = ("I32", [cols], struct.pack(f"<{cols}i", *order))
        return out, c.meant
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": bool(shuffled), "sym": sym, "checkpoint_format": "gptq_v2" if v2 else "gptq"}, pack


def awq(group, gemv=False):
    def pack(rng, rows, cols):
        c = Codes(rng, rows, cols, 4, min(group, cols), "F16")
        turned = lambda values: words([values[8 * j + AWQ_ORDER[k]] for j in range(len(values) // 8) for k in range(8)], 4)
        if not gemv:
            return {"qweight": ("I32", [cols, rows // 8], b"".join(turned([r[i] for r in c.u]) for i in range(cols))), "scales": ("F16", [c.groups, rows], adapters.pack("F16", flat(c.s, True))),
                    "qzeros": ("I32", [c.groups, rows // 8], b"".join(turned([r[i] for r in c.z]) for i in range(c.groups)))}, c.meant
        width = (c.groups + 7) // 8 * 2
        filled = lambda r: list(r) + [0] * (8 * width - c.groups)
        return {"qweight": ("I32", [rows, cols // 8], b"".join(words(r, 4) for r in c.u)), "scales": ("F16", [rows, 8 * width], adapters.pack("F16", [x for r in c.s for x in filled(r)])),
                "qzeros": ("I32", [rows, width], b"".join(words(filled(r), 4) for r in c.z))}, c.meant
    return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemv" if gemv else "gemm"}, pack


def packed(bits, group, symmetric=True, shuffled=None):
    def pack(rng, rows, cols):
        g = min(group, cols) if group else cols
        order = [i // g for i in range(cols)]
        if shuffled: shuffle(rng, order, shuffled)
        c = Codes(rng, rows, cols, bits, g, "BF16", 1 << (bits - 1) if symmetric else None, order)
        out = {"weight_packed": ("I32", [rows, cols * bits // 32], b"".join(words(r, bits) for r in c.u)), "weight_scale": ("BF16", [rows, c.groups], adapters.pack("BF16", flat(c.s))),
               "weight_shape": ("I64", [2], struct.pack("<2q", rows, cols))}
        if not symmetric: out["weight_zero_point"] = ("I32", [(rows * bits + 31) // 32, c.groups], across([[r[i] for r in c.z] for i in range(c.groups)], bits))
        if shuffled: out["weight_g_idx"] = ("I32", [cols], struct.pack(f"<{cols}i", *order))
        return out, c.meant
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": bits, "group_size": group or None, "type": "int"}}}}, pack


def e4m3(byte):
    e, m = byte >> 3 & 15, byte & 7
    return (-1 if byte & 128 else 1) * ((8 + m) * 2.0 ** (e - 10) if e else m * 2.0 ** -9)


def fp8_blocks(rng, rows, cols, block=32):
    down, over = (rows + block - 1) // block, (cols + block - 1) // block
    s = [[rng.choice((1, 2, 3)) * 2.0 ** -9 for _ in range(over)] for _ in range(down)]
    u = [rng.randrange(0x48) | rng.choice((0, 128)) for _ in range(rows * cols)]
    return {"weight": ("F8_E4M3", [rows, cols], bytes(u)), "weight_scale_inv": ("F32", [down, over], adapters.pack("F32", flat(s)))}, [e4m3(u[r * cols + c]) * s[r // block][c // block] for r in range(rows) for c in range(cols)]


def fp8_rows(each):
    """A scale a row, or one of all."""
    def pack(rng, rows, cols):
        u, dtype, n = [rng.randrange(0x48) | rng.choice((0, 128)) for _ in range(rows * cols)], rng.choice(("F32", "BF16")), rows if each == "row" else 1
        s = adapters.floats(dtype, adapters.pack(dtype, [rng.uniform(0.001, 0.004) for _ in range(n)]))
        return {"weight": ("F8_E4M3", [rows, cols], bytes(u)), "weight_scale": (dtype, rng.choice(([rows, 1], [rows]) if each == "row" else ([], [1])), adapters.pack(dtype, s))}, [e4m3(x) * s[i // cols if n > 1 else 0] for i, x in enumerate(u)]
    return pack


def nvfp4(rng, rows, cols):
    u, s, whole = [rng.randrange(16) for _ in range(rows * cols)], [rng.randrange(8, 64) for _ in range(rows * cols // 16)], 128.0
    return {"weight_packed": ("U8", [rows, cols // 2], bytes(u[i] | u[i + 1] << 4 for i in range(0, len(u), 2))), "weight_scale": ("F8_E4M3", [rows, cols // 16], bytes(s)),
            "weight_global_scale": ("F32", [1], adapters.pack("F32", [whole]))}, [E2M1[x] * e4m3(s[i // 16]) / whole for i, x in enumerate(u)]


def modelopt_nvfp4(rng, rows, cols):
    parts, meant = nvfp4(rng, rows, cols)
    whole = f32s([rng.choice((1 / 64, 0.013))])[0]
    return {"weight": parts["weight_packed"], "weight_scale": parts["weight_scale"], "weight_scale_2": ("F32", rng.choice(([], [1])), adapters.pack("F32", [whole])), "input_scale": ("F32", [], adapters.pack("F32", [0.5]))}, [x * 128 * whole for x in meant]


def mxfp4(rng, rows, cols):
    u, s = [rng.randrange(16) for _ in range(rows * cols)], [rng.randrange(118, 122) for _ in range(rows * cols // 32)]
    return {"weight_packed": ("U8", [rows, cols // 2], bytes(u[i] | u[i + 1] << 4 for i in range(0, len(u), 2))), "weight_scale": ("U8", [rows, cols // 32], bytes(s))}, [E2M1[x] * 2.0 ** (s[i // 32] - 127) for i, x in enumerate(u)]


def bnb4(block=64, kind="nf4", nested=0):
    """bitsandbytes' nibbles, of which `block` share a scale; nested: so many scales are bytes with a scale of their own."""
    def pack(rng, rows, cols):
        n = rows * cols
        count = (n + block - 1) // block
        table = f32s(NF4 if kind == "nf4" else FP4)
        u, s = [rng.randrange(16) for _ in range(n)], f32s([rng.uniform(0.02, 0.1) for _ in range(count)])
        state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [rows, cols]}
        parts = {"weight": ("U8", [(n + 1) // 2, 1], bytes(u[i] << 4 | (u[i + 1] if i + 1 < n else 0) for i in range(0, n, 2))), "weight.quant_map": ("F32", [16], adapters.pack("F32", table)),
                 "weight.absmax": ("F32", [count], adapters.pack("F32", s))}
        if nested:
            codes, values, scales, offset = [rng.randrange(256) for _ in range(count)], f32s(sorted(rng.uniform(-1, 1) for _ in range(256))), f32s([rng.uniform(0.01, 0.03) for _ in range((count + nested - 1) // nested)]), f32s([0.05])[0]
            state.update(nested_blocksize=nested, nested_dtype="float32", nested_offset=offset)
            parts.update({"weight.absmax": ("U8", [count], bytes(codes)), "weight.nested_absmax": ("F32", [len(scales)], adapters.pack("F32", scales)), "weight.nested_quant_map": ("F32", [256], adapters.pack("F32", values))})
            s = [values[code] * scales[i // nested] + offset for i, code in enumerate(codes)]
        text = json.dumps(state).encode()
        return {**parts, f"weight.quant_state.bitsandbytes__{kind}": ("U8", [len(text)], text)}, [table[x] * s[i // block] for i, x in enumerate(u)]
    return pack


def int8(name, per=1.0, zeros=False):
    def pack(rng, rows, cols):
        u, s, z = [rng.randrange(-127, 128) for _ in range(rows * cols)], [x[0] for x in scaled(rng, rows, 1, "F32")], [rng.randrange(-9, 10) if zeros else 0 for _ in range(rows)]
        s = [x / 16 for x in s]
        out = {"weight": ("I8", [rows, cols], struct.pack(f"{len(u)}b", *u)), name: ("F32", [rows] if per != 1 else [rows, 1], adapters.pack("F32", [x * per for x in s]))}
        if zeros: out["weight_zero_point"] = ("I8", [rows, 1], struct.pack(f"{rows}b", *z))
        return out, [s[i // cols] * (x - z[i // cols]) for i, x in enumerate(u)]
    return pack


def ascend(rng, rows, cols):
    """Static W8A8, without a bias: what the offset of the inputs adds stands in quant_bias, and is nothing for inputs that are not rounded."""
    parts, meant = int8("weight_scale")(rng, rows, cols)
    u, s = struct.unpack(f"{rows * cols}b", parts["weight"][2]), adapters.floats("F32", parts.pop("weight_scale")[2])
    return {**parts, "deq_scale": ("F32", [rows], adapters.pack("F32", [x * 0.25 for x in s])), "input_scale": ("F32", [1], adapters.pack("F32", [0.25])), "input_offset": ("F32", [1], adapters.pack("F32", [3.0])),
            "quant_bias": ("I32", [rows], struct.pack(f"<{rows}i", *(-3 * sum(u[r * cols:(r + 1) * cols]) for r in range(rows))))}, meant


def bitnet(divided):
    def pack(rng, rows, cols):
        u, fourth = [rng.randrange(3) for _ in range(rows * cols)], rows // 4 * cols
        scale = struct.unpack("<f", struct.pack("<f", 1 / rng.choice((11, 13, 17)) / cols ** 0.5 * 16))[0]
        codes = bytes(sum(u[i + k * fourth] << 2 * k for k in range(4)) for i in range(fourth))
        return {"weight": ("U8", [rows // 4, cols], codes), "weight_scale": ("F32", [1], adapters.pack("F32", [1 / scale if divided else scale]))}, [(x - 1) * scale for x in u]
    return {"quant_method": "bitnet", **({} if divided else {"linear_class": "autobitlinear", "quantization_mode": "offline"})}, pack


COMPRESSED = {"quant_method": "compressed-tensors"}
METHODS = {
    **{f"gptq {b} bits": gptq(b, 32) for b in (2, 3, 4, 8)}, "gptq v2": gptq(4, 32, v2=True), "gptq symmetric, whole rows": gptq(4, -1, sym=True), "gptq act-order": gptq(4, 32, shuffled="own"), "gptq act-order by input": gptq(4, 32, shuffled="input"), "gptq act-order 8 bits": gptq(8, 64, sym=True, shuffled="input"), "gptq groups of 16": gptq(4, 16),
    "awq": awq(32), "awq gemv": awq(32, gemv=True), "packed 4": packed(4, 32), "packed 4 with zeros": packed(4, 32, symmetric=False), "packed 8 by row": packed(8, 0), "packed act-order": packed(4, 32, shuffled="input"),
    "fp8 blocks": ({"quant_method": "fp8", "weight_block_size": [32, 32]}, fp8_blocks), "fp8 blocks of 128": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, lambda *a: fp8_blocks(*a, 128)), "nvfp4": ({**COMPRESSED, "format": "nvfp4-pack-quantized"}, nvfp4), "mxfp4": ({**COMPRESSED, "format": "mxfp4-pack-quantized"}, mxfp4),
    "modelopt nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, modelopt_nvfp4), "nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, bnb4()), "bitsandbytes int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, int8("SCB", 127.0)), "int8 with zeros": ({**COMPRESSED, "format": "int-quantized"}, int8("weight_scale", zeros=True)),
    "smooth_quant": ({"quant_method": "smooth_quant"}, int8("scale")), "ascend": ({"quant_method": "ascend", "model_quant_type": "W8A8"}, ascend),
    "bitnet": bitnet(False), "bitnet divided": bitnet(True),
}


def make(name, method, seed, skip=()):
    """A quantised folder and one of floats, of a family: all matrices of layers but routers, and those that `skip` names."""
    config, pack = METHODS[method]
    model, quant, plain = str(checkpoint(name)), tempfile.mkdtemp(dir=TMP), tempfile.mkdtemp(dir=TMP)
    rng, tensors = random.Random(seed), adapters.folder_tensors(model)
    floats = dict(tensors)
    for part, (rows, cols) in adapters.linears(model, r"(_proj|\.w[123]|kv_a_proj_with_mqa)\.weight$").items():
        if any(s in part for s in skip): continue
        parts, meant = pack(rng, rows, cols)
        del tensors[part + ".weight"]
        for end, tensor in parts.items(): tensors[f"{part}.{end}"] = tensor
        floats[part + ".weight"] = ("F32", [rows, cols], adapters.pack("F32", meant))
    for folder, parts in ((quant, tensors), (plain, floats)):
        shutil.copytree(model, folder, dirs_exist_ok=True)
        adapters.write_safetensors(folder + "/model.safetensors", parts)
    settings = json.load(open(model + "/config.json"))
    json.dump({**settings, "quantization_config": config}, open(quant + "/config.json", "w"))
    return quant, plain, tensors


def methods():
    """Every method on a dense model: float32 exactly, on two ranks, and as it is packed for speed near to the same."""
    for i, method in enumerate(METHODS):
        for name in ("mistral", "llama"): # of the latter rows of 176 columns are no whole blocks of 32
            if name == "llama" and method in ("gptq 3 bits", "mxfp4"): continue
            quant, plain, _ = make(name, method, i)
            want = score(plain)
            for extra, far in (((), 1e-4), (("-tp", "2"), 1e-4), (("--dtype", "auto"), 0.15)):
                got = score(quant, *extra)
                check(f"{name}, {method} {' '.join(extra)}", distance(want, got) < far, (distance(want, got), got if isinstance(got, str) else ""))


def mix(rng):
    """A method of any settings: what it is, its config, ways to pack a matrix, what shapes they take, and whether an output layer may be packed."""
    group, v2, sym, shuffled, several = rng.choice((16, 32, 64, 128, -1)), rng.random() < 0.3, rng.random() < 0.5, rng.choice((None, None, "own", "input")), rng.random() < 0.4
    which, block = rng.choice(("gptq", "gptq", "awq", "packed", "packed", "fp8 blocks", "fp8", "bitsandbytes", "bytes", "e2m1")), rng.choice((16, 32, 64, 128))
    said = f"{which}, group {group}, v2 {v2:d}, symmetric {sym:d}, {shuffled}, {'several' if several else 'one'}"
    if which == "gptq":
        config, one = gptq(rng.choice((2, 3, 4, 4, 8)), group, v2, sym, shuffled)
        return f"{said}, {config['bits']} bits", config, [one, *(gptq(b, g, v2, sym, shuffled)[1] for b in (2, 4, 8) for g in (group, 32) if several)], lambda r, c: r % 32 == c % 32 == 0, True
    if which == "awq":
        config, one = awq(group if group > 0 else 1 << 20, v2)
        return said, {**config, "group_size": group}, [one], lambda r, c: r % 8 == c % 8 == 0, False
    if which == "packed":
        config, one = packed(rng.choice((4, 4, 8)), max(group, 0), sym, shuffled if group > 0 else None)
        return said, {**config, "format": "mixed-precision"} if several else config, [one, *((packed(8, 32, sym)[1], packed(4, 0)[1], int8("weight_scale"), fp8_rows("row"), fp8_rows("all")) if several else ())], lambda r, c: r % 8 == c % 8 == 0, True
    if which == "fp8 blocks": return f"{said}, {block}", {"quant_method": "fp8", "weight_block_size": [block, block]}, [lambda *a: fp8_blocks(*a, block)], lambda r, c: True, False
    if which == "fp8":
        config, each = rng.choice((({"quant_method": "fp8"}, "all"), ({"quant_method": "fbgemm_fp8"}, "row"), ({"quant_method": "modelopt", "quant_algo": "FP8"}, "all"), ({**COMPRESSED, "format": "float-quantized"}, "row"), ({**COMPRESSED, "format": "float-quantized"}, "all")))
        return f"{said}, {config}", config, [fp8_rows(each)], lambda r, c: True, False
    if which == "bitsandbytes": return f"{said}, {block}", {"quant_method": "bitsandbytes", "load_in_4bit": True}, [bnb4(2 * block, "nf4" if sym else "fp4", 256 if several else 0)], lambda r, c: True, False
    method = rng.choice(("smooth_quant", "bitsandbytes int8", "ascend") if which == "bytes" else ("nvfp4", "mxfp4", "modelopt nvfp4"))
    config, one = METHODS[method]
    return method, config, [one], (lambda r, c: True) if which == "bytes" else lambda r, c: c % 32 == 0, False


def any_folder(seed, rng, name, config, packs, fits, head):
    """A quantised folder of a family and one of floats, some matrices left as they are; and how many are not."""
    model, across_ = str(checkpoint(name)), name == "gpt2" # which stores floats as (in, out)
    tensors, settings, left, n = adapters.folder_tensors(model), json.load(open(f"{model}/config.json")), rng.choice((0, 0, 0.3)), 0
    floats, heads = dict(tensors), head and not settings.get("tie_word_embeddings") and rng.random() < 0.4
    for stem in [x[:-7] for x, (_, shape, _) in tensors.items() if len(shape) == 2 and x.endswith(".weight")]:
        is_head = re.search(r"(lm_head|output_layer|^output)$", stem)
        if (is_head and not heads) or re.search(r"wpe|embed|wte|norm|shared_expert_gate$|router$|(mlp|moe)\.gate$", stem): continue
        turned = across_ and not is_head
        rows, cols = tensors[stem + ".weight"][1][::-1] if turned else tensors[stem + ".weight"][1]
        if not fits(rows, cols) or rng.random() < left: continue
        parts, meant = rng.choice(packs)(rng, rows, cols)
        if "quant_bias" in parts and stem + ".bias" in tensors: # Ascend folds it in, and lets it stand
            deq, kept = adapters.floats("F32", parts["deq_scale"][2]), tensors[stem + ".bias"]
            folded = [round(b / d) for b, d in zip(adapters.floats(kept[0], kept[2]), deq)]
            parts["quant_bias"] = ("I32", [rows], struct.pack(f"<{rows}i", *(a + b for a, b in zip(folded, struct.unpack(f"<{rows}i", parts["quant_bias"][2])))))
            floats[stem + ".bias"] = ("F32", [rows], adapters.pack("F32", [a * d for a, d in zip(folded, deq)]))
        del tensors[stem + ".weight"]
        n += 1
        for end, tensor in parts.items(): tensors[f"{stem}.{end}"] = tensor
        floats[stem + ".weight"] = ("F32", [cols, rows], adapters.pack("F32", [meant[r * cols + c] for c in range(cols) for r in range(rows)])) if turned else ("F32", [rows, cols], adapters.pack("F32", meant))
    quant, plain = f"{TMP}/mix{seed}.q", f"{TMP}/mix{seed}.f"
    for folder, parts, more in ((quant, tensors, {"quantization_config": config}), (plain, floats, {})):
        os.mkdir(folder)
        for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            if os.path.exists(f"{model}/{file}"): shutil.copy(f"{model}/{file}", folder)
        json.dump({**settings, **more}, open(f"{folder}/config.json", "w"))
        adapters.write_safetensors(f"{folder}/model.safetensors", parts)
    return quant, plain, n


def mixes():
    """Any family with any method, any settings of it, several in one folder, some matrices as they were: six, or MIXES of them (make quant-campaign)."""
    known = {2: "cohere", 33: "ministral3", 40: "llama", 106: "qwen2", 108: "ernie4_5_moe", 115: "gpt_oss"} # most of which have found something
    for seed in range(int(os.environ["MIXES"])) if "MIXES" in os.environ else known:
        rng = random.Random(seed)
        name, (what, config, packs, fits, head) = rng.choice(checkpoints.FAMILIES), mix(rng)
        if "MIXES" not in os.environ: name = known[seed]
        if name == "bitnet": name = "llama" # whose matrices are quantised already
        quant, plain, n = any_folder(seed, rng, name, config, packs, fits, head)
        want = score(plain)
        for extra, far in (((), 1e-4), (("-tp", "2"), 1e-4)):
            got = score(quant, *extra)
            check(f"mix {seed}: {name}, {what}, {n} matrices {' '.join(extra)}", distance(want, got) < far, (distance(want, got), got if isinstance(got, str) else ""))
        shutil.rmtree(quant), shutil.rmtree(plain)


def families():
    """Experts, latent attention, fused matrices, layers that are left as they are."""
    for name, method, skip in (("qwen2_moe", "gptq 4 bits", ()), ("mixtral", "awq", ()), ("deepseek_v3", "fp8 blocks", ()), ("qwen3_moe", "packed 4", ()), ("phi3", "gptq symmetric, whole rows", ()), ("qwen2", "awq", ("layers.1.", "v_proj")),
                               ("gemma2", "nf4", ()), ("qwen3", "smooth_quant", ("down_proj",))):
        quant, plain, _ = make(name, method, 77, skip)
        want = score(plain)
        for extra in ((), ("-tp", "2")):
            got = score(quant, *extra)
            check(f"{name}, {method} {' '.join(extra)}", distance(want, got) < 1e-4, (distance(want, got), got if isinstance(got, str) else ""))
    for name, method in (("deepseek_v3", "gptq act-order"), ("deepseek_v3", "packed act-order"), ("qwen2_moe", "gptq act-order by input"), ("mixtral", "packed act-order")): # inputs sorted for some products and not for others
        quant, plain, _ = make(name, method, 78)
        want = score(plain)
        for extra in ((), ("-tp", "2")):
            got = score(quant, "--dtype", "auto", *extra)
            check(f"{name}, {method}, packed {' '.join(extra)}", distance(want, got) < 0.02, (distance(want, got), got if isinstance(got, str) else ""))
    for method, how in (("gptq 4 bits", ()), ("gptq act-order by input", ("--dtype", "auto"))):
        quant, plain, _ = make("mistral", method, 5)
        adapters.make(plain, f"{TMP}/adapter")
        want, got, far = score(plain, "--lora", f"{TMP}/adapter"), score(quant, "--lora", f"{TMP}/adapter", *how), 0.02 if how else 1e-4
        check(f"{method}: an adapter on top", distance(want, got) < far and distance(score(plain), got) > 0.05, (distance(want, got), got if isinstance(got, str) else ""))


def sizes():
    """What weights are in memory: as many bits in act-order as in order."""
    bytes_of = {}
    for method in ("gptq 4 bits", "gptq act-order", "gptq act-order by input", "fp8 blocks", "fp8 blocks of 128"):
        p = subprocess.run([CLI, "info", "-m", make("mistral", method, 4)[0], "--json"], capture_output=True, text=True, timeout=60)
        bytes_of[method] = json.loads(p.stdout)["weight_bytes_in_memory"] if not p.returncode else 0
    check("memory of act-order", bytes_of["gptq 4 bits"] == bytes_of["gptq act-order by input"] < bytes_of["gptq act-order"], bytes_of)
    check("memory of fp8", bytes_of["fp8 blocks of 128"] < 0.7 * bytes_of["fp8 blocks"], bytes_of)


# What documents, and users of vLLM, FastDeploy, LMDeploy, ModelArts and AIAK, write behind --quantization, -q and model_format: (of files made by, name, what it says or "" where it works).
MADE_BY = {"floats": None, "awq": "awq", "gptq": "gptq 4 bits", "gptq8": "gptq 8 bits", "smooth": "smooth_quant", "ascend": "ascend", "nf4": "nf4", "fp8": "fp8 blocks", "packed8": "packed 8 by row", "mxfp4": "mxfp4", "bitnet": "bitnet"}
SAID = (
    *((made, name, "") for made in MADE_BY for name in ("None", "none")),  # vLLM's: nothing is said
    ("awq", "awq", ""), ("awq", "AWQ", ""), ("awq", "awq_marlin", ""), ("awq", "gptq", " is awq"), ("awq", "gpt", " is awq"), ("awq", "smoothquant", " is awq"), ("awq", "weight_only_int8", " is awq"), ("awq", "wint4", " is awq"),
    ("gptq", "gptq", ""), ("gptq", "gpt", ""), ("gptq", "gptq_marlin", ""), ("gptq", "auto-round", ""), ("gptq", "awq", " is gptq"), ("gptq", "weight_only_int8", " is gptq"),
    ("gptq8", "weight_only_int8", ""), ("gptq8", "smooth_quant", " is gptq"),
    ("smooth", "smooth_quant", ""), ("smooth", "smoothquant", ""), ("smooth", "weight_only_int8", " is smooth_quant"), ("smooth", "awq", " is smooth_quant"),
    ("ascend", "smoothquant", ""), ("ascend", "ascend", ""), ("ascend", "awq", " is ascend"),
    ("packed8", "weight_only_int8", ""), ("packed8", "WINT8", ""), ("packed8", "int8_weight_only", ""), ("packed8", "compressed-tensors", ""), ("packed8", "smoothquant", " is compressed-tensors"), ("packed8", "fp8", " is compressed-tensors"),
    ("bitnet", "bitnet", ""), ("bitnet", "awq", " is bitnet"), ("nf4", "bitsandbytes", ""), ("nf4", "fp8", " is bitsandbytes"), ("fp8", "fp8", ""), ("fp8", "awq", " is fp8"), ("fp8", "mxfp4", " is fp8"),
    ("floats", "weight_only_int8", ""), ("floats", "wint8", ""), ("floats", "wint4", ""), ("floats", "fp8", ""), ("floats", "bitsandbytes", ""), ("floats", "mxfp4", ""), ("floats", "q4_k", ""),
    *(("floats", name, " is none: this one takes a calibration, llm_cli quantize makes such a folder") for name in ("awq", "gptq", "gpt", "smooth_quant", "smoothquant")),
    ("floats", "gguf", " is none"), ("floats", "compressed-tensors", " is none"), ("floats", "ascend", " is none"), ("floats", "int3", "one of None, awq"), ("floats", "", "one of None, awq"))
FORMATS = (("floats", ("hf",), ""), ("floats", ("llama",), "a folder of Hugging Face's (hf): config.json"), ("floats", ("awq",), " is none"), ("awq", ("awq",), ""), ("awq", ("hf",), ""), ("awq", ("awq", "awq"), ""), ("awq", ("awq", "None"), ""), ("awq", ("awq", "AWQ"), ""),
           ("awq", ("awq", "gpt"), "model-format: awq, and quantization says gpt"), ("gptq", ("gptq", "gpt"), ""), ("gptq", ("awq",), " is gptq"), ("gptq", ("gguf",), "one of hf, llama, awq, gptq"))


def names():
    """--quantization NAME and model_format are compared with the files, at llm_cli, llm_serve and in the library."""
    folders = {made: make("mistral", method, 3)[0] if method else str(checkpoint("mistral")) for made, method in MADE_BY.items()}
    for made, name, says in SAID:
        for flag in ("--quantization", "-q"):
            if flag == "-q" and (made, name) not in (("awq", "awq"), ("gptq", "gpt"), ("floats", "weight_only_int8"), ("smooth", "smooth_quant"), ("awq", "None"), ("awq", "gptq")): continue
            p = subprocess.run([CLI, "info", "-m", folders[made], flag, name], capture_output=True, text=True)
            check(f"{flag} {name or repr(name)} of {made}", p.returncode == 2 and says in p.stderr and p.stderr.count("\n") == 1 if says else p.returncode == 0 and not p.stderr, p.stderr)
    for made, words_, says in FORMATS:
        args = ["--model-format", words_[0], *(("--quantization", words_[1]) if len(words_) > 1 else ())]
        p = subprocess.run([CLI, "info", "-m", folders[made], *args], capture_output=True, text=True)
        check(f"{' '.join(args)} of {made}", p.returncode == 2 and says in p.stderr and p.stderr.count("\n") == 1 if says else p.returncode == 0 and not p.stderr, p.stderr)
    meta, gguf = f"{TMP}/meta", f"{TMP}/a.gguf"
    os.mkdir(meta), open(f"{meta}/params.json", "w").write("{}") # which tells that it is one of Meta's
    subprocess.run([CLI, "convert", folders["floats"], gguf], capture_output=True, check=True)
    for path, word, says in ((meta, "hf", "as Meta gives it (llama): params.json"), (meta, "llama", "params.json: "), (gguf, "hf", "is no folder"), (gguf, "llama", "is no folder"), (gguf, "awq", "is gguf"), (folders["awq"], "llama", "of Hugging Face's")):
        p = subprocess.run([CLI, "info", "-m", path, "--model-format", word], capture_output=True, text=True)
        check(f"--model-format {word} of {os.path.basename(path)}", p.returncode == (1 if word == "llama" and path == meta else 2) and says in p.stderr and p.stderr.count("\n") == 1, p.stderr)
    for name in ("awq", "weight_only_int8", "smoothquant", "q4_0"):
        p = subprocess.run([CLI, "info", "-m", gguf, "-q", name], capture_output=True, text=True)
        check(f"{name} of a GGUF file", p.returncode == 2 and f"-q: {name}, but the method of" in p.stderr and "is gguf" in p.stderr, p.stderr)
    for made, name in (("floats", "awq"), ("awq", "gpt")): # llm_serve: the same sentences, and it does not start
        p = subprocess.run([SERVE, "--port", "0", "--model", folders[made], "--quantization", name], capture_output=True, text=True, timeout=60)
        check(f"llm_serve: {name} of {made}", p.returncode == 2 and "--quantization: " + name in p.stderr, (p.returncode, p.stderr))
    server = Server("-q", "gpt", "--max-model-len", "64", model=folders["gptq"])
    check("llm_serve -q gpt of gptq serves", server.request("POST", "/v1/completions", {"prompt": [5, 6], "max_tokens": 2})[0] == 200, server.errors())
    server.stop()


def at_load():
    """--quantization of a folder of floats: 8 bits a row as compressed-tensors has them, to the bit; other types near the floats; cuts within super-blocks."""
    model = checkpoint("llama")
    tensors, quant = adapters.folder_tensors(model), f"{TMP}/at_load"
    shutil.copytree(model, quant)
    f32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
    for name in [x for x in tensors if x.endswith("_proj.weight") and "down" not in x]: # whose 176 columns are no whole blocks
        rows = adapters.rows_of(tensors.pop(name))
        half = adapters.floats("F16", adapters.pack("F16", [max(map(abs, r)) / 127 for r in rows]))
        codes = [[128 + max(-128, min(127, round(f32(x * f32(1 / s))))) for x in r] for r, s in zip(rows, half)]
        stem = name[:-7]
        tensors[f"{stem}.weight_packed"] = ("I32", [len(rows), len(rows[0]) // 4], b"".join(words(r, 8) for r in codes))
        tensors[f"{stem}.weight_scale"] = ("F16", [len(rows), 1], adapters.pack("F16", half))
        tensors[f"{stem}.weight_shape"] = ("I64", [2], struct.pack("<2q", len(rows), len(rows[0])))
    adapters.write_safetensors(f"{quant}/model.safetensors", tensors)
    config = json.load(open(f"{model}/config.json"))
    json.dump({**config, "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}}}, open(f"{quant}/config.json", "w"))
    for extra in ((), ("--dtype", "auto"), ("-tp", "2"), ("--isa", "scalar", "--dtype", "auto")):
        want, got = score(quant, *extra), score(model, "--quantization", "weight_only_int8", *extra)
        check(f"weight_only_int8 {' '.join(extra)}: the bits of a file", want == got and not isinstance(got, str), (distance(want, got), got if isinstance(got, str) else ""))
    plain = score(model)
    for name, far in (("q8_0", 0.02), ("fp8", 0.1), ("q6_k", 0.02), ("nf4", 0.3), ("mxfp4", 0.5), ("q4_0", 0.4), ("q4_k", 0.3)):
        got = score(model, "--quantization", name)
        check(f"{name} while loading", 0 < distance(plain, got) < far, (distance(plain, got), got if isinstance(got, str) else ""))
    p = subprocess.run([CLI, "info", "-m", model, "--quantization", "q4_0", "--json"], capture_output=True, text=True)
    check("info", p.returncode == 0 and json.loads(p.stdout)["quantization"] == "none, quantised while loading: q4_0", p.stdout + p.stderr)
    check("of a quantised folder", "quantization: q4_0, but the method" in str(score(quant, "--quantization", "q4_0")), score(quant, "--quantization", "q4_0"))
    rng, wide = random.Random(3), f"{TMP}/wide"
    shutil.copytree(model, wide)
    config.update(hidden_size=256, intermediate_size=768, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, vocab_size=512)
    json.dump(config, open(f"{wide}/config.json", "w"))
    shapes = {"model.embed_tokens": (512, 256), "lm_head": (512, 256), "model.norm": (256,), "model.layers.0.input_layernorm": (256,), "model.layers.0.post_attention_layernorm": (256,), "model.layers.0.self_attn.q_proj": (256, 256), "model.layers.0.self_attn.k_proj": (128, 256),
              "model.layers.0.self_attn.v_proj": (128, 256), "model.layers.0.self_attn.o_proj": (256, 256), "model.layers.0.mlp.gate_proj": (768, 256), "model.layers.0.mlp.up_proj": (768, 256), "model.layers.0.mlp.down_proj": (256, 768)}
    adapters.write_safetensors(f"{wide}/model.safetensors", {f"{k}.weight": ("F32", list(s), adapters.pack("F32", [rng.uniform(-0.1, 0.1) + (len(s) == 1) for _ in range(math.prod(s))])) for k, s in shapes.items()})
    plain = score(wide)
    for name in ("q4_k", "q6_k", "q2_k"):
        got = score(wide, "--quantization", name)
        check(f"{name} of super-blocks", 0 < distance(plain, got) < 0.5, (distance(plain, got), got if isinstance(got, str) else ""))
        for extra in (("-tp", "2"), ("-tp", "2", "--dtype", "auto"), ("--dtype", "auto")): # 768 columns for two: in the middle of a super-block
            far = 1e-4 if "auto" not in extra else 0.1
            check(f"{name}, {' '.join(extra)}", distance(got, score(wide, "--quantization", name, *extra)) < far, distance(got, score(wide, "--quantization", name, *extra)))


def bad():
    """One sentence, which names the tensor or the setting."""
    for method in ("gptq act-order", "awq", "packed 4 with zeros", "fp8 blocks", "nvfp4", "nf4", "ascend", "bitnet"):
        quant, _, tensors = make("llama", method, 9)
        stem = "model.layers.1.mlp.up_proj."
        for name in (x for x in tensors if x.startswith(stem) and "shape" not in x):
            kind, shape, data = tensors[name]
            for what, changed in (("missing", None), ("of a row more", (kind, [shape[0] + 1, *shape[1:]], data + data[:len(data) // shape[0]])), ("of no row", (kind, [0, *shape[1:]], b"")),
                                  ("of another type", ("F64", [math.prod(shape)], bytes(8 * math.prod(shape))))):
                optional = what == "missing" and any(x in name for x in ("g_idx", "zero", "qzeros", "quant_bias", "input_offset"))
                adapters.write_safetensors(quant + "/model.safetensors", {k: v for k, v in {**tensors, name: changed}.items() if v})
                got = score(quant)
                check(f"{method}: {name} {what}", optional or (isinstance(got, str) and stem[:-1] in got and got.count("\n") <= 4 and "llm_cli: error: " in got), got)
        for name in (x for x in tensors if x.startswith(stem) and ("scale" in x or "absmax" in x) and tensors[x][0] in ("F16", "BF16", "F32")):
            kind, shape, data = tensors[name]
            for what, first in (("no number", b"\xff\xff\xff\xff"), ("infinite", {"F16": b"\0\x7c", "BF16": b"\x80\x7f", "F32": b"\0\0\x80\x7f"}[kind])):
                adapters.write_safetensors(quant + "/model.safetensors", {**tensors, name: (kind, shape, first + data[len(first):])})
                got = score(quant)
                check(f"{method}: {name} is {what}", isinstance(got, str) and stem[:-1] in got, got)
    quant, _, tensors = make("llama", "gptq act-order", 9)
    name = stem + "g_idx"
    for value in (-1, 3, 1 << 30):
        adapters.write_safetensors(quant + "/model.safetensors", {**tensors, name: ("I32", tensors[name][1], struct.pack("<i", value) + tensors[name][2][4:])})
        check(f"a group {value}", f"{name}: element 0 is {value}" in str(score(quant)), score(quant))
    config = json.load(open(quant + "/config.json"))
    for settings, words_ in (({"group_size": 0}, "group_size"), ({"bits": 5}, "GPTQ of 5 bits"), ({"bits": "4"}, "bits"), ({"checkpoint_format": "marlin"}, "marlin"), ({"quant_method": "hqq"}, "hqq"), ({"quant_method": "awq"}, "qweight"), ({"quant_method": "bitnet", "quantization_mode": "online"}, "quantization_mode \"online\""),
                             ({"quant_method": "bitnet", "linear_class": "x"}, "linear_class \"x\"")):
        json.dump({**config, "quantization_config": {**config["quantization_config"], **settings}}, open(quant + "/config.json", "w"))
        check(f"settings {settings}", words_ in str(score(quant)), score(quant))


try:
    for part in sys.argv[1:FIRST] or ("methods", "families", "sizes", "names", "at_load", "bad", "mixes"): globals()[part]()
finally: shutil.rmtree(TMP, ignore_errors=True)
finish()
