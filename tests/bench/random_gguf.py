#!/usr/bin/env python3
"""Writes a GGUF file of random weights in the shape of a model that people run: for timings in two engines, its text means nothing.

    random_gguf.py SHAPE FILE [--layers N] [--experts N] [--mix q4_k_m] [--tower MMPROJ] [--tower-type f16]

Shapes: llama1b, qwen600m, qwen4b, llama8b; qwen35 (0.8B: states in three layers of four), qwen3moe (128 experts, 8 used), dsv2lite (latent attention; 64 experts, 6 used, 2 shared). llama.cpp
takes dsv2lite with all of its 27 layers only: --experts 16 makes it smaller. Models that see, with llama.cpp's second file by --tower: smolvlm500m, qwenvl3b.
Mixes: q4_k_m, q5_k_m (v and every third down in Q6_K), q6_k, q8_0, q4_0, iq4_xs, bf16; q3_k, q2_k, iq3_s, iq3_xxs, iq2_s, iq2_xxs. Rows that no super-block fits become Q8_0.
"""
import argparse
import random
import struct

# GGUF's number of a type, weights and bytes of a block, where its f16 numbers stand and what they are for weights of deviation 1
TYPES = {"F32": (0, 1, 4, {}), "F16": (1, 1, 2, {}), "Q4_0": (2, 32, 18, {0: 1 / 4.5}), "Q8_0": (8, 32, 34, {0: 1 / 74}), "Q4_K": (12, 256, 144, {0: 1 / 200, 2: 1 / 26}),
         "Q5_K": (13, 256, 176, {0: 1 / 400, 2: 1 / 26}), "Q6_K": (14, 256, 210, {208: 1 / 1200}), "IQ4_XS": (23, 256, 136, {0: 1 / 900}), "BF16": (30, 1, 2, {}),
         "IQ2_XXS": (16, 256, 66, {0: 1 / 51}), "IQ2_XS": (17, 256, 74, {0: 1 / 51}), "IQ3_XXS": (18, 256, 98, {0: 1 / 130}), "IQ1_S": (19, 256, 50, {0: 1 / 7}), "IQ3_S": (21, 256, 110, {0: 1 / 148}),
         "IQ2_S": (22, 256, 82, {0: 1 / 51}), "IQ1_M": (29, 256, 56, {}), "TQ1_0": (34, 256, 54, {52: 1.2}), "TQ2_0": (35, 256, 66, {64: 1}), "NVFP4": (40, 64, 36, {}), "Q2_K": (10, 256, 84, {80: 1 / 14, 82: 1 / 10}), "Q3_K": (11, 256, 110, {108: 1 / 44})}
MIXES = {"q4_k_m": ("Q4_K", "Q6_K"), "q5_k_m": ("Q5_K", "Q6_K"), "q6_k": ("Q6_K", "Q6_K"), "q8_0": ("Q8_0", "Q8_0"), "q4_0": ("Q4_0", "Q6_K"),
         "iq4_xs": ("IQ4_XS", "Q6_K"), "bf16": ("BF16", "BF16"), "q3_k": ("Q3_K", "Q5_K"), "q2_k": ("Q2_K", "Q3_K"), "iq3_s": ("IQ3_S", "Q4_K"), "iq3_xxs": ("IQ3_XXS", "Q4_K"), "iq2_s": ("IQ2_S", "Q4_K"), "iq2_xxs": ("IQ2_XXS", "Q4_K")}
DEVIATION = 0.02
SHAPES = {
    "llama1b": dict(arch="llama", width=2048, layers=16, heads=32, kv=8, head=64, ff=8192, vocab=128256, tied=True),
    "qwen600m": dict(arch="qwen3", width=1024, layers=28, heads=16, kv=8, head=128, ff=3072, vocab=151936, tied=True),
    "qwen4b": dict(arch="qwen3", width=2560, layers=36, heads=32, kv=8, head=128, ff=9728, vocab=151936, tied=True),
    "llama8b": dict(arch="llama", width=4096, layers=32, heads=32, kv=8, head=128, ff=14336, vocab=128256, tied=False),
    "qwen35": dict(arch="qwen35", width=1024, layers=24, heads=8, kv=2, head=256, ff=3584, vocab=248320, tied=True, rope=64, state=(16, 16, 128)),  # key heads, value heads, width
    "qwen3moe": dict(arch="qwen3moe", width=2048, layers=48, heads=32, kv=4, head=128, ff=6144, vocab=151936, tied=False, experts=128, used=8, expert_ff=768),
    "dsv2lite": dict(arch="deepseek2", width=2048, layers=27, heads=16, kv=16, head=192, ff=10944, vocab=102400, tied=False, experts=64, used=6,
                     expert_ff=1408, shared=2, dense=1, latent=512, rope=64, nope=128, value=128),
    "smolvlm500m": dict(arch="llama", width=960, layers=32, heads=15, kv=5, head=64, ff=2560, vocab=49280, tied=True, names=("<image>", "<fake_token_around_image>", "<global-img>",
                        *(f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7))),
                        tower=dict(kind="idefics3", width=768, layers=12, heads=12, ff=3072, patch=16, size=512, merge=4, longest=2048)),
    "qwenvl3b": dict(arch="qwen2vl", width=2048, layers=36, heads=16, kv=2, head=128, ff=11008, vocab=151936, tied=True, names=("<|image_pad|>", "<|vision_start|>", "<|vision_end|>"),
                     tower=dict(kind="qwen2.5vl_merger", width=1280, layers=32, heads=16, ff=3420, patch=14, size=560, merge=2))}
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}IMAGE"
            "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def text(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


class Keys:
    """Metadata: 4 is u32, 6 f32, 7 bool, 8 text, 9 an array, 5 i32."""

    def __init__(self): self.data, self.n = b"", 0
    def put(self, key, kind, value): self.data, self.n = self.data + text(key) + struct.pack("<I", kind) + value, self.n + 1
    def u32(self, key, x): self.put(key, 4, struct.pack("<I", x))
    def f32(self, key, x): self.put(key, 6, struct.pack("<f", x))
    def flag(self, key, x): self.put(key, 7, struct.pack("<?", x))
    def text(self, key, x): self.put(key, 8, text(x))
    def texts(self, key, xs): self.put(key, 9, struct.pack("<IQ", 8, len(xs)) + b"".join(text(x) for x in xs))
    def floats(self, key, xs): self.put(key, 9, struct.pack("<IQ", 6, len(xs)) + struct.pack(f"<{len(xs)}f", *xs))
    def i32s(self, key, xs): self.put(key, 9, struct.pack("<IQ", 5, len(xs)) + struct.pack(f"<{len(xs)}i", *xs))


def vocabulary(keys, n, names=()):
    letters = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))] + [chr(256 + i) for i in range(68)]  # GPT-2's bytes
    pairs = [(a, b) for a in letters[:64] for b in letters[:64]] + [(chr(266),) * 2] * bool(names)  # two line breaks, a token that llama.cpp asks for
    tokens = letters + [a + b for a, b in pairs]
    keys.text("tokenizer.ggml.model", "gpt2")
    keys.text("tokenizer.ggml.pre", "qwen2")
    named = ["<|im_start|>", "<|im_end|>", *names] if names else []
    keys.texts("tokenizer.ggml.tokens", tokens + named + [f"<{i}>" for i in range(n - len(tokens) - len(named))])
    keys.i32s("tokenizer.ggml.token_type", [1] * len(tokens) + [3] * len(named) + [5] * (n - len(tokens) - len(named)))
    if names: keys.text("tokenizer.chat_template", TEMPLATE.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>" if "<|image_pad|>" in names else "<image>"))
    keys.texts("tokenizer.ggml.merges", [f"{a} {b}" for a, b in pairs])
    keys.u32("tokenizer.ggml.bos_token_id", n - 2)
    keys.u32("tokenizer.ggml.eos_token_id", n - 1)
    keys.flag("tokenizer.ggml.add_bos_token", False)


def settings(keys, s, layers, file_type):
    a = s["arch"]
    put = lambda name, value: (keys.f32 if isinstance(value, float) else keys.u32)(f"{a}.{name}", value)
    keys.text("general.architecture", a)
    keys.u32("general.file_type", file_type)
    for name, value in (("context_length", 32768), ("embedding_length", s["width"]), ("block_count", layers), ("feed_forward_length", s["ff"]), ("attention.head_count", s["heads"]),
                        ("attention.head_count_kv", s["kv"]), ("rope.freq_base", 1e4 if "latent" in s else 1e6), ("attention.layer_norm_rms_epsilon", 1e-6), ("vocab_size", s["vocab"])): put(name, value)
    if "latent" in s:
        for name, value in (("attention.key_length", s["nope"] + s["rope"]), ("attention.value_length", s["value"]), ("attention.kv_lora_rank", s["latent"]), ("rope.dimension_count", s["rope"]),
                            ("leading_dense_block_count", s["dense"]), ("expert_shared_count", s["shared"]), ("expert_weights_scale", 1.0)): put(name, value)
    else:
        for name in ("attention.key_length", "attention.value_length"): put(name, s["head"])
        put("rope.dimension_count", s.get("rope", s["head"]))
    if a == "qwen2vl": keys.i32s(a + ".rope.dimension_sections", (16, 24, 24, 0))
    if "state" in s:
        keys.i32s(a + ".rope.dimension_sections", (11, 11, 10, 0))
        groups, values, width = s["state"]
        for name, value in (("full_attention_interval", 4), ("ssm.conv_kernel", 4), ("ssm.state_size", width), ("ssm.group_count", groups), ("ssm.time_step_rank", values), ("ssm.inner_size", values * width)): put(name, value)
    if "experts" in s:
        for name, value in (("expert_count", s["experts"]), ("expert_used_count", s["used"]), ("expert_feed_forward_length", s["expert_ff"])): put(name, value)


def tensors(s, layers, usual, more):
    """(name, type, dimensions with the rows' length last), in the order of the file."""
    def fit(t, cols): return t if cols % TYPES[t][1] == 0 else "Q8_0"
    d, out = s["width"], []
    matrix = lambda name, t, *dims: out.append((name + ".weight", fit(t, dims[-1]), dims))
    vector = lambda name, n: out.append((name + ".weight", "F32", (n,)))
    matrix("token_embd", more, s["vocab"], d)
    vector("output_norm", d)
    if not s["tied"]: matrix("output", more, s["vocab"], d)
    for i in range(layers):
        p, best = f"blk.{i}.", more if i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2 else usual
        vector(p + "attn_norm", d)
        vector(p + ("post_attention_norm" if "state" in s else "ffn_norm"), d)
        if "state" in s and (i + 1) % 4:
            groups, values, width = s["state"]
            matrix(p + "attn_qkv", "Q5_K" if usual == "Q4_K" else usual, (2 * groups + values) * width, d)
            for name, rows in (("attn_gate", values * width), ("ssm_alpha", values), ("ssm_beta", values)): matrix(p + name, usual, rows, d)
            matrix(p + "ssm_out", usual, d, values * width)
            vector(p + "ssm_norm", width)
            out += [(p + "ssm_conv1d.weight", "F32", ((2 * groups + values) * width, 4)), (p + "ssm_a", "F32", (values,)), (p + "ssm_dt.bias", "F32", (values,))]
        elif "latent" in s:
            matrix(p + "attn_q", usual, s["heads"] * s["head"], d)
            matrix(p + "attn_kv_a_mqa", usual, s["latent"] + s["rope"], d)
            vector(p + "attn_kv_a_norm", s["latent"])
            matrix(p + "attn_kv_b", usual, s["heads"] * (s["nope"] + s["value"]), s["latent"])
            matrix(p + "attn_output", usual, d, s["heads"] * s["value"])
        else:
            for name, t, heads in (("q", usual, s["heads"]), ("k", usual, s["kv"]), ("v", best, s["kv"])): matrix(p + "attn_" + name, t, heads * s["head"] * (1 + (name == "q" and "state" in s)), d)
            matrix(p + "attn_output", usual, d, s["heads"] * s["head"])
            if s["arch"] == "qwen2vl": out += [(f"{p}attn_{name}.bias", "F32", (heads * s["head"],)) for name, heads in (("q", s["heads"]), ("k", s["kv"]), ("v", s["kv"]))]
            if s["arch"].startswith("qwen3"):
                for name in "qk": vector(f"{p}attn_{name}_norm", s["head"])
        experts = s.get("experts") if i >= s.get("dense", 0) else None
        if experts: out.append((p + "ffn_gate_inp.weight", "F32", (experts, d)))
        for end, n, ff in ((("_exps", (experts,), s["expert_ff"]), ("_shexp", (), s["expert_ff"] * s.get("shared", 0))) if experts else (("", (), s["ff"]),)):
            if ff:
                matrix(f"{p}ffn_gate{end}", usual, *n, ff, d)
                matrix(f"{p}ffn_up{end}", usual, *n, ff, d)
                matrix(f"{p}ffn_down{end}", usual if end == "_shexp" else best, *n, d, ff)
    return out


def tower_settings(keys, s):
    t = s["tower"]
    keys.text("general.architecture", "clip")
    keys.text("clip.projector_type", t["kind"])
    keys.flag("clip.has_vision_encoder", True)
    keys.flag("clip.use_silu" if t["kind"] == "qwen2.5vl_merger" else "clip.use_gelu", True)
    for name, value in (("image_size", t["size"]), ("patch_size", t["patch"]), ("embedding_length", t["width"]), ("feed_forward_length", t["ff"]), ("projection_dim", s["width"]),
                        ("block_count", t["layers"]), ("attention.head_count", t["heads"])): keys.u32("clip.vision." + name, value)
    keys.f32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    for name in ("mean", "std"): keys.floats("clip.vision.image_" + name, (0.5, 0.5, 0.5))
    if t["kind"] == "idefics3":
        keys.u32("clip.vision.projector.scale_factor", t["merge"])
        keys.u32("clip.vision.preproc_image_size", t["longest"])
    else: keys.u32("clip.vision.n_wa_pattern", 8)


def tower_tensors(s, usual):
    """As `tensors`, of the file beside it."""
    t, out = s["tower"], []
    d, ff, gated = t["width"], t["ff"], t["kind"] == "qwen2.5vl_merger"
    def matrix(name, rows, cols, bias=True):
        out.append((name + ".weight", usual if cols % TYPES[usual][1] == 0 else "F16", (rows, cols)))
        if bias: out.append((name + ".bias", "F32", (rows,)))
    def norm(name):
        for end in (".weight",) if gated else (".weight", ".bias"): out.append((name + end, "F32", (d,)))
    for k in range(1 + gated): out.append(("v.patch_embd.weight" + ".1" * k, "F32", (d, 3, t["patch"], t["patch"])))
    if not gated: out += [("v.patch_embd.bias", "F32", (d,)), ("v.position_embd.weight", "F32", ((t["size"] // t["patch"]) ** 2, d))]
    for i in range(t["layers"]):
        norm(f"v.blk.{i}.ln1")
        norm(f"v.blk.{i}.ln2")
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"): matrix(f"v.blk.{i}.{name}", d, d)
        for name in ("ffn_gate", "ffn_up")[not gated:]: matrix(f"v.blk.{i}.{name}", ff, d)
        matrix(f"v.blk.{i}.ffn_down", d, ff)
    norm("v.post_ln")
    wide = d * t["merge"] ** 2
    if gated:
        matrix("mm.0", wide, wide)
        matrix("mm.2", s["width"], wide)
    else: matrix("mm.model.fc", s["width"], wide, False)
    return out


def pool(rng, t, blocks=1 << 16):
    """Random blocks whose values have about the deviation that weights have."""
    _, _, size, halves = TYPES[t]
    if t == "F32": return struct.pack("<65536f", *(rng.gauss(0, DEVIATION) for _ in range(65536)))
    data = bytearray(rng.randbytes(blocks * size))
    for at, scale in halves.items():
        two = struct.pack("<e", DEVIATION * scale)
        data[at::size], data[at + 1::size] = two[:1] * blocks, two[1:] * blocks
    for i in range(4 * (t == "NVFP4")): data[i::size] = bytes(8 + x % 4 for x in data[i::size]) # scales near 2^-6
    for i in range(4 * (t == "IQ1_M")): # a nibble of the f16 in each of four words
        at = 49 + 2 * i
        data[at::size] = bytes(x & 15 | struct.unpack("<H", struct.pack("<e", DEVIATION / 7))[0] >> 4 * i << 4 & 240 for x in data[at::size])
    if t == "F16": data = struct.pack("<65536e", *(rng.gauss(0, DEVIATION) for _ in range(65536)))
    if t == "BF16": data = b"".join(struct.pack("<f", rng.gauss(0, DEVIATION))[2:] for _ in range(blocks))
    return bytes(data)


def fill(file, data, size, rng, n):
    """n bytes of the pool, which is repeated from some block on."""
    at = rng.randrange(len(data) // size) * size
    while n > 0:
        part = data[at:at + n]
        file.write(part)
        n, at = n - len(part), 0


def write(path, keys, list_of, rng):
    """A file of these settings and of random tensors."""
    infos, places, at = b"", [], 0
    for name, t, dims in list_of:
        number, weights, size, _ = TYPES[t]
        n = size
        for x in dims: n *= x
        n //= weights
        infos += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *reversed(dims)) + struct.pack("<IQ", number, at)
        places.append((t, dims, n, 0 if name.endswith(".bias") else -1 if name.endswith("ssm_a") else 1))
        at += -(-n // 32) * 32
    pools = {t: pool(rng, t) for t in {p[0] for p in places}}
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(places), keys.n) + keys.data + infos)
        f.write(b"\0" * (-f.tell() % 32))
        for t, dims, n, mean in places:
            if len(dims) == 1: f.write(struct.pack(f"<{dims[0]}f", *(mean + 0.05 * rng.gauss(0, 1) for _ in range(dims[0]))))
            else: fill(f, pools[t], TYPES[t][2], rng, n)
            f.write(b"\0" * (-n % 32))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("file")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--experts", type=int)
    parser.add_argument("--mix", default="q4_k_m", choices=MIXES)
    parser.add_argument("--tower")
    parser.add_argument("--tower-type", default="f16", choices=("f16", "bf16", "q8_0"))
    args = parser.parse_args()
    s = dict(SHAPES[args.shape])
    if args.experts: s["experts"] = args.experts
    layers, keys, rng = args.layers or s["layers"], Keys(), random.Random(7)
    settings(keys, s, layers, 15)
    vocabulary(keys, s["vocab"], s.get("names", ()))
    write(args.file, keys, tensors(s, layers, *MIXES[args.mix]), rng)
    if not args.tower: return
    if "tower" not in s: parser.error(f"--tower: {args.shape} does not see")
    keys = Keys()
    tower_settings(keys, s)
    write(args.tower, keys, tower_tensors(s, args.tower_type.upper()), rng)


if __name__ == "__main__": main()
