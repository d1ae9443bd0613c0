#!/usr/bin/env python3
"""llm_cli quantize: GGUF files of the default model in other types; what they say afterwards; what is left of one that was stopped, or for which there is no room.

    test_quantize.py [FUNCTION...]      env LLM_CLI (default ./llm_cli), LLM_TEST_MODEL
"""
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "../tools")]
import checkpoints
from adapters import make_gguf
from serving import MODEL, check, finish, gguf_pairs

CLI = os.environ.get("LLM_CLI", "./llm_cli")
TMP = tempfile.mkdtemp(prefix="llm_quantize_")
TEXT = "The sun rises in the east and sets in the west. Water boils at one hundred degrees at the level of the sea, and freezes at zero. The capital of France is Paris, which lies on the river Seine. A year has twelve months, and a week has seven days."


def run(*args, **more):
    return subprocess.run([CLI, "quantize", *args], capture_output=True, text=True, timeout=300, **more)


def perplexity(model):
    p = subprocess.run([CLI, "score", "-m", model, "-p", TEXT, "--json"], capture_output=True, text=True, timeout=120)
    return json.loads(p.stdout)["perplexity"] if not p.returncode else p.stderr


def left():
    return sorted(os.listdir(TMP))


def types():
    """Each says nearly what the model says; the report says what was made."""
    want = perplexity(MODEL)
    for name, worst, bits in (("q8_0", 1.02, (8, 9.5)), ("q4_k_m", 1.25, (4.5, 7))):
        out = f"{TMP}/{name}.gguf"
        p = run(MODEL, out, "--type", name, "--allow-requantize", "--json")
        if not check(f"{name}: made", p.returncode == 0 and not p.stderr, p.stderr): continue
        said = json.loads(p.stdout)
        check(f"{name}: the report", said["type"] == name.upper() and bits[0] < said["bits_per_weight"] < bits[1] and abs(os.path.getsize(out) - said["bytes_after"]) < 8 << 20, said)
        got = perplexity(out)
        check(f"{name}: perplexity", not isinstance(got, str) and got < want * worst, (want, got))
    first = open(f"{TMP}/q8_0.gguf", "rb").read()
    p = run(MODEL, f"{TMP}/q8_0.gguf", "Q8_0", "--allow-requantize", "-t", "1")
    check("TYPE as a word; written over an older file", p.returncode == 0 and "Q8_0, " in p.stderr and not p.stdout, p.stderr)
    check("one thread: the same", open(f"{TMP}/q8_0.gguf", "rb").read() == first)
    for x in left(): os.remove(f"{TMP}/{x}")


def imatrix():
    """An importance matrix of a text makes Q4_0 say more nearly what the model says; files that are none, or another model's, are refused."""
    text, out, made = f"{TMP}/text.txt", f"{TMP}/im.gguf", f"{TMP}/q4.gguf"
    open(text, "w").write(open("README.md").read()[:12000])
    p = subprocess.run([CLI, "imatrix", "-m", MODEL, "-f", text, "-o", out, "--chunks", "6", "--chunk-size", "128", "--json"], capture_output=True, text=True, timeout=300)
    if not check("made", p.returncode == 0 and not p.stderr and json.loads(p.stdout) == {"n_entries": 210, "n_tokens": 768, "n_chunks": 6, "chunk": 128, "n_unmet": 0}, (p.stdout, p.stderr)): return
    p = run(MODEL, made, "q4_0", "--allow-requantize", "--json")
    plain = perplexity(made)
    p = run(MODEL, made, "q4_0", "--allow-requantize", "--json", "--imatrix", out)
    check("used", p.returncode == 0 and not p.stderr and json.loads(p.stdout)["n_unweighted"] == 0, p.stderr)
    got = perplexity(made)
    check("it helps", not isinstance(got, str) and got < plain, (plain, got))
    check("the file says so", b"quantize.imatrix.file" in open(made, "rb").read(4000000))
    data = open(out, "rb").read()
    for name, bytes_, words in (("cut", data[:len(data) // 2], "im2.gguf"), ("another model's", data.replace(b"blk.", b"bck."), "made of another model?"), ("a model", open(MODEL, "rb").read(), "general.type is not imatrix"), ("a text", b"hello there, all of you", "no importance matrix"),
                                ("nothing", b"", "im2.gguf")):
        open(f"{TMP}/im2.gguf", "wb").write(bytes_)
        p = run(MODEL, f"{TMP}/x.gguf", "q4_0", "--allow-requantize", "--imatrix", f"{TMP}/im2.gguf")
        check(f"refused: {name}", p.returncode == 1 and words in p.stderr and p.stderr.count("\n") == 1 and not os.path.exists(f"{TMP}/x.gguf"), p.stderr)
    p = run(MODEL, f"{TMP}/x.gguf", "q4_0", "--allow-requantize", "--imatrix", f"{TMP}/none")
    check("refused: nowhere", p.returncode == 1 and "none: no such file" in p.stderr, p.stderr)
    for x in left(): os.remove(f"{TMP}/{x}")
    for args, code, words in ((("-m", MODEL), 2, "-f TEXT"), (("-m", MODEL, "-f", f"{TMP}/none"), 1, "none"), (("-m", MODEL, "-p", "a", "-o", f"{TMP}/a/b"), 1, "b.part"), (("-m", MODEL, "-p", "a", "-o", TMP), 2, "a folder")):
        p = subprocess.run([CLI, "imatrix", *args], capture_output=True, text=True, timeout=100)
        check(f"refused: {words}", p.returncode == code and words in p.stderr and p.stderr.count("\n") <= 2 and left() == [], (p.returncode, p.stderr))
    p = subprocess.run([CLI, "imatrix", "-m", MODEL, "-p", "a b c " * 50, "-o", out], capture_output=True, text=True, timeout=100, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000)))
    check("a disk that is full", p.returncode == 1 and "im.gguf" in p.stderr and left() == [], (p.stderr, left()))
    p = subprocess.Popen([CLI, "imatrix", "-m", MODEL, "-f", "README.md", "-o", out, "--chunk-size", "64"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(1)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=60)
    check("stopped", p.returncode == 130 and left() == [], (p.returncode, left()))


CONVERTED = "llama ministral3 mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma2 gemma3_text phi3 phi3_longrope glm4 glm4_moe deepseek deepseek_v2 deepseek_v2_lite deepseek_v3 ernie4_5 ernie4_5_moe starcoder2 granite olmo2 smollm3 cohere llama_rope_linear llama_rope_llama3 llama_rope_yarn"

FORTH = "hunyuan_v1_dense hunyuan_v1_moe minimax_m2 deepseek_v32_topk granitemoehybrid granitemoehybrid_dense apertus gemma3n gemma3n_three gemma4 gemma4_moe llama4 phimoe exaone4 exaone mimo bailing_moe bailing_moe_v2 mamba falcon_mamba bamba solar_open exaone_moe hy_v3 afmoe sarvam_moe cohere2_moe mimo_v2_flash mistral4 sarvam_mla" # not back


# Folders like those of tests/data/checkpoints, of families or variants that have none there: of which, members of config.json, what is replaced in its tensors.txt, lines more.
LIKE = {
    "three heads a key": ("qwen3_5", {"linear_value_head_dim": 16, "linear_num_value_heads": 6, "layer_types": ["full_attention"] + 3 * ["linear_attention"]},
                          [(r"\{0\.\.2\}(.linear_attn)", r"{1..3}\1"), (r"3(.self_attn)", r"0\1"), (r"(_[ab].weight bf16) 4x", r"\1 6x"), (r"(A_log|dt_bias) bf16 4", r"\1 bf16 6"), (r"(linear_attn.norm.weight bf16) 24", r"\1 16")], ""),
    "no experts": ("granitemoehybrid_mamba", {"num_local_experts": 0}, [(r".*block_sparse_moe.*\n", "")], ""),
    "no bias": ("mamba2", {"use_conv_bias": False}, [(r".*conv1d.bias.*\n", "")], ""),
    "one block a layer": ("mamba2", {"model_type": "nemotron_h", "num_hidden_layers": 4, "hybrid_override_pattern": "MM-*", "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "head_dim": 16,
                                     "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "hidden_act": None, "max_position_embeddings": 4096, "tie_word_embeddings": False},
                          [(r"2\}.mixer", "1}.mixer"), (r"2\}.norm", "3}.norm")],
                          "lm_head.weight bf16 512x64 normal 0 0.2\nbackbone.layers.2.mixer.up_proj.weight bf16 96x64 normal 0 0.15\nbackbone.layers.2.mixer.down_proj.weight bf16 64x96 normal 0 0.15\n"
                          + "".join(f"backbone.layers.3.mixer.{x}_proj.weight bf16 {rows}x64 normal 0 0.2\n" for x, rows in zip("qkvo", (64, 32, 32, 64)))),
    "multipliers": ("falcon_h1", {"mamba_proj_bias": False, "mamba_norm_before_gate": False}, [(r".*mamba.(in|out)_proj.bias.*\n", "")], ""),
    "no norm": ("falcon_h1", {"mamba_proj_bias": False, "mamba_rms_norm": False, "attention_bias": False, "mlp_bias": True, "mamba_conv_bias": False, "tie_word_embeddings": False},
                [(r".*(mamba|self_attn).*(_proj|conv1d).bias.*\n", ""), (r".*mamba.norm.*\n", "")], "lm_head.weight bf16 512x64 normal 0 0.4\n" + "".join(f"model.layers.{{0..2}}.feed_forward.{x}_proj.bias bf16 {rows} normal 0 0.3\n" for x, rows in (("gate", 88), ("up", 88), ("down", 64)))),
    "a channel a head": ("jamba", {"mamba_proj_bias": False}, [(r".*_proj.bias(?<!dt_proj.bias).*\n", "")], ""),
    "no experts there": ("jamba", {"mamba_proj_bias": False, "mamba_conv_bias": False, "num_experts": 1, "mamba_dt_rank": 4},
                         [(r".*(in_proj|out_proj|conv1d).bias.*\n", ""), (r".*(router|experts.\{0).*\n", ""), (r"(layers.)1(.feed_forward)", r"\1{0..2}\2")], ""),
    "a key a decay": ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [3], "kda_layers": [1, 2, 4], "head_dim": 20, "num_heads": 4, "short_conv_kernel_size": 4}},
                      [(r"(layers.[013].self_attn.\w+.weight bf16 )40x", r"\g<1>80x"), (r"(A_log f32 1x1x)2", r"\g<1>4"), (r"(dt_bias f32 )40", r"\g<1>80"), (r"(b_proj.weight bf16 )2x", r"\g<1>4x"), (r"(o_proj.weight bf16 64x)40", r"\g<1>80")], ""),
    "factors of two kinds": ("phimoe", {"rope_scaling": {"type": "longrope", "short_factor": [1, 1.125, 1.25, 1.5, 2, 2.5, 3, 3.25], "long_factor": [1, 1.5, 2, 3, 5, 8, 13, 21.75], "short_mscale": 1.2, "long_mscale": 1.2, "original_max_position_embeddings": 128}}, [], ""),
    "scales": ("llama", {"model_type": "minicpm", "scale_emb": 3, "scale_depth": 1.4, "dim_model_base": 16}, [], ""),
    "norms without weights": ("llama", {"model_type": "olmo"}, [(r".*norm.weight.*\n", "")], ""),
    "attention beside an MLP": ("starcoder2", {"model_type": "phi", "partial_rotary_factor": 0.5, "tie_word_embeddings": False, "sliding_window": None}, [(r".*post_attention_layernorm.*\n", "")], "lm_head.weight bf16 512x64 normal 0 0.4\nlm_head.bias bf16 512 normal 0 0.5\n"),
    "no gates": ("llama", {"model_type": "arcee", "hidden_act": "relu2"}, [(r".*gate_proj.*\n", "")], ""),
    "biases of three": ("qwen2", {"model_type": "seed_oss", "attention_bias": True, "attention_out_bias": False, "head_dim": 16}, [], ""),
    "windows and no positions": ("cohere", {"model_type": "cohere2", "sliding_window": 20, "sliding_window_pattern": 2}, [], ""),
    "norms of whole widths": ("minimax_m2", {"model_type": "olmoe", "scoring_func": None, "norm_topk_prob": False, "rotary_dim": None}, [(r".*correction_bias.*\n", "")], ""),
    "experts behind one layer": ("glm4_moe", {"model_type": "dots1", "attention_bias": False, "sliding_window": 24, "max_window_layers": 2, "n_group": 2, "topk_group": 1, "rope_parameters": None, "num_experts_per_tok": 2}, [(r".*[qkv]_proj.bias.*\n", "")], ""),
    "groups and norms of heads": ("bailing_moe_v2", {"moe_shared_expert_intermediate_size": 24}, [(r"(shared_experts.(gate|up)_proj.weight bf16 )20x", r"\g<1>24x"), (r"(shared_experts.down_proj.weight bf16 64x)20", r"\g<1>24")], ""),
    "channels alone": ("mamba", {}, [], ""),
    "norms without weights inside": ("falcon_mamba", {"use_conv_bias": False}, [(r".*conv1d.bias.*\n", "")], ""),
    "half a head turns": ("bamba", {}, [], ""),
    "norms within blocks": ("bitnet", {"quantization_config": None}, [(r"u8 (\d+)x(\d+) ternary", lambda m: f"bf16 {4 * int(m[1])}x{m[2]} normal 0 0.15"), (r".*weight_scale.*\n", "")], ""),
    "experts without gates": ("nemotron_h", {"hybrid_override_pattern": "MME*E"}, [(r".*layers.2.mixer.*\n", ""), (r"layers.1.mixer", "layers.2.mixer"), (r"layers.0.mixer", "layers.{0..1}.mixer")], ""),
}

# What GGUF has no form for: of which folder, members of config.json, what is said.
FORMLESS = (("llama4", {"use_qk_norm": False}, "use_qk_norm: a model of 128 experts alone has none"), ("llama4", {"layer_types": 4 * ["full_attention"]}, "no_rope_layers: others than those that see everything"),
            ("phimoe", {"rope_scaling": dict(LIKE["factors of two kinds"][1]["rope_scaling"], long_mscale=1.5)}, "long_mscale: another than short_mscale"), ("falcon_h1", {}, "mamba_norm_before_gate: true"),
            ("deepseek", {"norm_topk_prob": True}, "norm_topk_prob: true"), ("falcon_mamba", {"mixer_rms_eps": 1e-5}, "mixer_rms_eps: another than 1e-6"), ("bailing_moe_v2", {"use_qk_norm": False}, "use_qk_norm: false"),
            ("afmoe", {"mup_enabled": False}, "mup_enabled: false"), ("cohere2_moe", {"shared_expert_combination_strategy": "sum"}, 'shared_expert_combination_strategy: "sum"'),
            ("kimi_linear", {}, "linear_attn_config: other heads than attention has"))


def like(name):
    """A folder of LIKE."""
    base, members, changes, more = LIKE[name]
    folder = pathlib.Path(TMP) / name.replace(" ", "_")
    shutil.copytree(checkpoints.folder(base), folder)
    config = json.loads((folder / "config.json").read_text())
    config.get("text_config", config).update(members)
    (folder / "config.json").write_text(json.dumps(config))
    text = (checkpoints.DATA / base / "tensors.txt").read_text() + more
    for was, becomes in changes: text = re.sub(was, becomes, text)
    tensors = {}
    for words in (line.split() for line in text.splitlines()[1:]):
        shape = [int(x) for x in words[2].split("x")]
        for n in checkpoints.expanded(words[0]): tensors[n] = (words[1], shape, checkpoints.tensor(f"{name}/{n}", words[1], shape, words[3:]))
    checkpoints.write_safetensors(folder / "model.safetensors", tensors)
    return str(folder)


def convert():
    """A folder as a GGUF file says what the folder says: log-probabilities of 70 tokens, behind windows and beyond lengths that are stretched; and the same of a text. As a folder again it says so to the bit."""
    ids = json.dumps([3 + i * 7 % 47 for i in range(70)])
    for family in (CONVERTED + " " + FORTH).split():
        folder, out = f"build/checkpoints/{family}", f"{TMP}/{family}.gguf"
        p = subprocess.run([CLI, "convert", folder, out, *["f32"] * (family == "bailing_moe")], capture_output=True, text=True, timeout=100) # BF16 would round its output layer
        if not check(f"{family}: made", p.returncode == 0 and left() == [f"{family}.gguf"], p.stderr): continue
        back = None if family in FORTH.split() else f"{TMP}/{family}"
        p = subprocess.run([CLI, "convert", out, back or f"{TMP}/x", "--json"], capture_output=True, text=True, timeout=100)
        made = p.returncode == 0 and json.loads(p.stdout) or {}
        if not back and family not in ("granitemoehybrid_dense", "mimo", "solar_open", "sarvam_mla"): check(f"{family}: not back", p.returncode == 1 and "is not converted to a folder" in p.stderr and left() == [f"{family}.gguf"], p.stderr)
        if back: check(f"{family}: as a folder again", made.get("model_type") == ("llama" if "llama" in family else family.replace("_longrope", "").replace("_lite", "")) and made.get("n_tensors") and not os.path.exists(back + ".part"), (p.stdout, p.stderr))
        said = []
        for model in (folder, out, back)[:3 if back else 2]:
            p = subprocess.run([CLI, "score", "-m", model, "--token-ids", ids, "--json", "--dtype", "float32"], capture_output=True, text=True, timeout=100)
            said.append(json.loads(p.stdout)["logprobs"][1:] if p.returncode == 0 else p.stderr)
        check(f"{family}: the same", not isinstance(said[1], str) and max(abs(a - b) for a, b in zip(*said[:2])) < 1e-3, said[1] if isinstance(said[1], str) else max(abs(a - b) for a, b in zip(*said[:2])))
        if not back:
            os.remove(out), shutil.rmtree(f"{TMP}/x", ignore_errors=True)
            continue
        exact = max(abs(a - b) for a, b in zip(said[0], said[2])) if not isinstance(said[2], str) else said[2]
        check(f"{family}: the same as a folder again", not isinstance(exact, str) and exact < (1e-4 if "longrope" in family else 1e-9), exact)
        os.remove(out), shutil.rmtree(back, ignore_errors=True)
    folder, out = "build/checkpoints/qwen3", f"{TMP}/m.gguf"
    for args, bits in ((("f32",), 32), (("--outtype", "bf16"), 16), (("q8_0",), 9)):
        p = subprocess.run([CLI, "convert", folder, out, *args, "--json"], capture_output=True, text=True, timeout=100)
        check(f"as {args[-1]}", p.returncode == 0 and abs(json.loads(p.stdout)["bits_per_weight"] - bits) < 1, (p.stdout, p.stderr))
    p = run(folder, out, "q4_k_m", "--json")
    check("quantize takes a folder", p.returncode == 0 and json.loads(p.stdout)["type"] == "Q4_K_M", p.stderr)
    infos = [json.loads(subprocess.run([CLI, "info", "-m", m, "--json"], capture_output=True, text=True, timeout=100).stdout) for m in (folder, out)]
    check("the same ids and template", all(infos[0].get(k) == infos[1].get(k) for k in ("bos_id", "eos_id", "pad_id", "chat_template", "vocab_size", "hidden_size")), infos)
    os.remove(out)
    for name, args, code, words in (("a family", ("build/checkpoints/gpt2", out), 1, "gpt2 is not converted in this version"), ("an indexer that turns pairs", ("build/checkpoints/glm_moe_dsa", out), 1, "glm_moe_dsa is not converted in this version"), ("layers of two kinds", ("build/checkpoints/nemotron_h", out), 1, "GGUF has no form for MLPs beside experts"), ("no folder", ("-m", f"{TMP}/none", out), 1, "none"), ("no output", (folder,), 2, "DIR OUT.gguf"), ("a file", (MODEL, out), 2, "--allow-requantize")):
        p = subprocess.run([CLI, "convert", *args], capture_output=True, text=True, timeout=100)
        check(f"refused: {name}", p.returncode == code and words in p.stderr and p.stderr.count("\n") <= 2 and left() == [], (p.returncode, p.stderr, left()))


STATES = "qwen3_5 qwen3_next lfm2 lfm2_moe mamba2 granitemoehybrid_mamba".split()


def states():
    """Layers that keep a state: what a folder says its GGUF file says, to the bit where rows keep their places; shared by ranks; quantised but for what is small; damaged files."""
    ids = json.dumps([3 + i * 7 % 47 for i in range(70)])

    def said(model, *more):
        p = subprocess.run([CLI, "score", "-m", model, "--token-ids", ids, "--json", "--dtype", "float32", *more], capture_output=True, text=True, timeout=100)
        return json.loads(p.stdout)["logprobs"][1:] if p.returncode == 0 else p.stderr

    def near(what, a, b, most=0): check(what, not isinstance(a, str) and not isinstance(b, str) and max(abs(x - y) for x, y in zip(a, b)) <= most, (a, b))

    for name in STATES + list(LIKE):
        folder, out = f"build/checkpoints/{name}" if name in STATES else like(name), f"{TMP}/out.gguf"
        folded = LIKE.get(name, "")[:1] == ("falcon_h1",) # BF16 would round what is multiplied
        p = subprocess.run([CLI, "convert", folder, out, *["f32"] * folded], capture_output=True, text=True, timeout=100)
        if not check(f"{name}: made", p.returncode == 0, p.stderr): continue
        want, got = said(folder), said(out)
        moved = name in ("qwen3_5", "three heads a key", "granitemoehybrid_mamba", "no experts", "a key a decay", "no gates", "scales", "norms without weights", "half a head turns") # value heads, or the rows of pairs, and sums with them
        near(f"{name}: the same", want, got, 1e-4 if moved or folded else 0)
        if name in ("qwen3_5", "three heads a key", "mamba2", "multipliers", "a channel a head", "a key a decay", "channels alone", "norms without weights inside", "half a head turns", "groups and norms of heads"): near(f"{name}: shared by ranks", got, said(out, "-tp", "2"), 1e-4)
        adapter_states(name, folder, out)
        data = open(out, "rb").read()
        if name == "biases of three": check(f"{name}: the MLP's norm stands behind attention", b"blk.1.post_attention_norm.weight" in data)
        if name == "factors of two kinds": check(f"{name}: both are in the file", all(struct.pack("<3f", *x) in data for x in ((2.5, 3, 3.25), (8, 13, 21.75))))
        if folded: check(f"{name}: the MLP's norm is called as llama.cpp calls it", b"blk.1.ffn_norm" in data and b"blk.1.ffn_norm.weight" not in data)
        if name == "a key a decay":
            check(f"{name}: one head of latents, in one layer", b"kimi-linear.attention.head_count_kv" + struct.pack("<IIQ4I", 9, 4, 4, 0, 0, 1, 0) in data)
            fused_states(out)
            near(f"{name}: q, k and v in one", got, said(out))
            near(f"{name}: q, k and v in one, by ranks", got, said(out, "-tp", "2"), 1e-4)
        p = subprocess.run([CLI, "convert", out, f"{TMP}/x"], capture_output=True, text=True, timeout=100)
        check(f"{name}: not back", p.returncode == 1 and "is not converted to a folder" in p.stderr, p.stderr)
        p = subprocess.run([CLI, "quantize", folder, out + "q", "q4_k_m"], capture_output=True, text=True, timeout=100)
        head = open(out + "q", "rb").read() if check(f"{name}: quantised", p.returncode == 0 and not isinstance(said(out + "q"), str), (p.stderr, said(out + "q"))) else b""
        for part in (b"ssm_conv1d.weight", b"ssm_conv1d_q.weight", b"ssm_dt_norm.weight", b"shortconv.conv.weight", b"ssm_a", b"ssm_d", b"ssm_norm.weight", b"ssm_dt.bias"):
            full = b"blk.1." + part
            rest = head.partition(len(full).to_bytes(8, "little") + full)[2] # the number of dimensions, each of 8 bytes, the type
            check(f"{name}: {part.decode()} is F32", not rest or rest[4 + 8 * rest[0]:][:4] == bytes(4), rest[:40])
        os.remove(out), os.remove(out + "q")
        if name not in STATES: shutil.rmtree(folder)
    for family, members, words in FORMLESS:
        LIKE["refused"] = family, members, [], ""
        p = subprocess.run([CLI, "convert", like("refused"), f"{TMP}/out.gguf"], capture_output=True, text=True, timeout=100)
        check(f"refused: {words}", p.returncode == 1 and f"config.json: {words}, which GGUF has no form for" in p.stderr and p.stderr.count("\n") == 1, p.stderr)
        shutil.rmtree(f"{TMP}/refused")
    damaged_states(f"{TMP}/out.gguf")


def streams():
    """Gemma 3n: GGUF says what the folder says to the bit, shared by ranks too; quantised but for what is small; made up of its config; damaged."""
    ids = json.dumps([3 + i * 7 % 47 for i in range(60)] + [490, 505])

    def said(model, *more):
        p = subprocess.run([CLI, "score", "-m", model, "--token-ids", ids, "--json", "--dtype", "float32", *more], capture_output=True, text=True, timeout=100)
        return json.loads(p.stdout)["logprobs"][1:] if p.returncode == 0 else p.stderr

    def far(a, b): return (a, b) if isinstance(a, str) or isinstance(b, str) else max(abs(x - y) for x, y in zip(a, b))

    def number(key, v): return key.encode() + (4).to_bytes(4, "little") + v.to_bytes(4, "little")

    for name in ("gemma3n", "gemma3n_three"):
        folder, out = f"build/checkpoints/{name}", f"{TMP}/out.gguf"
        p = subprocess.run([CLI, "convert", folder, out], capture_output=True, text=True, timeout=100)
        if not check(f"{name}: made", p.returncode == 0, p.stderr): continue
        want, p = said(folder), run(folder, out + "q", "q4_k_m")
        check(f"{name}: the same", far(want, said(out)) == 0, far(want, said(out)))
        whole = subprocess.run([CLI, "convert", folder, out + "f", "f32", "--json"], capture_output=True, text=True, timeout=100)
        check(f"{name}: all of it in F32", whole.returncode == 0 and json.loads(whole.stdout)["bits_per_weight"] == 32 and far(want, said(out + "f")) == 0, (whole.stdout, whole.stderr))
        os.remove(out + "f")
        moved = far(want, said(out, "-tp", "2"))
        check(f"{name}: shared by ranks", not isinstance(moved, tuple) and moved < 5e-4, moved)
        for model, more in ((out + "q", ()), (folder, ("--quantization", "q8_0"))):
            moved = far(want, said(model, *more))
            check(f"{name}: quantised {more}", not isinstance(moved, tuple) and 0 < moved, moved)
        head = open(out + "q", "rb").read()
        for part, kinds in (("blk.1.altup_router.weight", (30,)), ("blk.1.altup_predict_coef.weight", (0,)), ("blk.1.laurel_l.weight", (30,)), ("altup_proj.weight", (30,)), ("per_layer_model_proj.weight", (30,)), ("blk.1.ffn_gate.weight", (6, 8)), ("blk.1.inp_gate.weight", (6, 8))):
            rest = head.partition(len(part).to_bytes(8, "little") + part.encode())[2] # the number of dimensions, each of 8 bytes, the type
            check(f"{name}: {part}", rest and int.from_bytes(rest[4 + 8 * rest[0]:][:4], "little") in kinds, rest[:40])
        data = open(out, "rb").read()
        for was, becomes, words in ((number("gemma3n.altup.num_inputs", 4 if name == "gemma3n" else 3), number("gemma3n.altup.num_inputs", 2), "altup_proj.weight has shape"),
                                    (number("gemma3n.altup.active_idx", 0 if name == "gemma3n" else 1), number("gemma3n.altup.active_idx", 4), "altup.active_idx: 4 is outside"),
                                    (b"blk.0.altup_router.weight", b"blk.0.altup_routes.weight", "altup.modality_router.weight is missing"),
                                    (b"activation_sparsity_scale\x09\0\0\0\6", b"activation_sparsity_scale\x09\0\0\0\5", "activation_sparsity_scale: numbers below 100 expected")):
            if not check(f"{name} has {was}", was in data): continue
            open(out, "wb").write(data.replace(was, becomes, 1))
            p = subprocess.run([CLI, "info", "-m", out], capture_output=True, text=True, timeout=60)
            check(f"{name}: refused with {becomes}", p.returncode == 1 and words in p.stderr, (p.returncode, p.stderr))
        os.remove(out), os.remove(out + "q")
        pathlib.Path(f"{TMP}/dummy").mkdir()
        shutil.copyfile(f"{folder}/config.json", f"{TMP}/dummy/config.json")
        check(f"{name}: made up", not isinstance(said(f"{TMP}/dummy", "--load-format", "dummy"), str), said(f"{TMP}/dummy", "--load-format", "dummy"))
        shutil.rmtree(f"{TMP}/dummy")


def fused_states(path):
    """The same file with q, k and v in one, as llama.cpp's converter makes it when it is asked to."""
    data = open(path, "rb").read()
    pairs, tensors, at = sum(1 for _ in gguf_pairs(data)), {}, 24 + sum(8 + len(k) + 4 + len(v) for k, _, v in gguf_pairs(data))
    keys = data[24:at]
    for _ in range(struct.unpack_from("<Q", data, 8)[0]):
        n = struct.unpack_from("<Q", data, at)[0]
        name, dims = data[at + 8:at + 8 + n].decode(), struct.unpack_from("<I", data, at + 8 + n)[0]
        *shape, kind, place = struct.unpack_from(f"<{dims}QIQ", data, at + 12 + n)
        tensors[name], at = (shape, kind, place), at + 24 + n + 8 * dims
    base = (at + 31) // 32 * 32
    for name, (shape, kind, place) in tensors.items(): tensors[name] = shape, kind, data[base + place:base + place + math.prod(shape) * (4 if kind == 0 else 2)]
    for i in (0, 1, 3):
        parts = [tensors.pop(f"blk.{i}.attn_{x}.weight") for x in "qkv"]
        tensors[f"blk.{i}.attn_qkv.weight"] = [parts[0][0][0], sum(p[0][1] for p in parts)], parts[0][1], b"".join(p[2] for p in parts)
    head, body = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), pairs) + keys, b""
    for name, (shape, kind, values) in tensors.items():
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(body))
        body += values + bytes(-len(values) % 32)
    open(path, "wb").write(head + bytes(-len(head) % 32) + body)


# An adapter of PEFT of one matrix of layer 1, (rows, columns), beside a GGUF file: it says what it says beside the folder, or is refused in these words.
ADAPTERS = {
    "qwen3_5": (("language_model.layers.1.mlp.up_proj", 104, 64, ""), ("language_model.layers.1.linear_attn.in_proj_z", 96, 64, "value heads in another order"), ("language_model.layers.1.linear_attn.out_proj", 64, 96, "value heads in another order")),
    "a channel a head": (("layers.1.self_attn.q_proj", 56, 56, ""), ("layers.2.mamba.in_proj", 224, 56, ""), ("layers.2.mamba.x_proj", 28, 112, "")),
    "a key a decay": (("layers.1.self_attn.o_proj", 64, 80, ""), ("layers.1.self_attn.f_b_proj", 80, 20, ""), ("layers.2.self_attn.q_proj", 96, 64, "")),
    "multipliers": (("layers.1.feed_forward.up_proj", 88, 64, "multipliers in its weights: an adapter in GGUF expected"),),
}


def adapter_states(name, folder, file):
    for part, rows, cols, words in ADAPTERS.get(name, ()):
        own = pathlib.Path(TMP) / "adapter"
        own.mkdir()
        (own / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": [part.split(".")[-1]]}))
        stem = f"base_model.model.model.{part}.lora_"
        checkpoints.write_safetensors(own / "adapter_model.safetensors", {stem + x + ".weight": ("f32", shape, checkpoints.tensor(x, "f32", shape, ["normal", "0", "0.2"])) for x, shape in (("A", [2, cols]), ("B", [rows, 2]))})
        said = [subprocess.run([CLI, "score", "-m", m, *more, "--token-ids", "[3, 10, 17, 24]", "--json", "--dtype", "float32"], capture_output=True, text=True, timeout=100) for m, more in ((folder, ["--lora", str(own)]), (file, ["--lora", str(own)]), (file, []))]
        if words: check(f"{name}: an adapter of {part}", said[0].returncode == (name == "multipliers") and said[1].returncode == 1 and words in said[1].stderr and said[1].stderr.count("\n") == 1, [p.stderr for p in said])
        elif check(f"{name}: an adapter of {part} is taken", not said[0].returncode and not said[1].returncode, [p.stderr for p in said]):
            last = [json.loads(p.stdout)["logprobs"][-1] for p in said]
            check(f"{name}: an adapter of {part}", abs(last[0] - last[1]) < 1e-4 < 1e-3 < abs(last[0] - last[2]), last)
        shutil.rmtree(own)
    if name != "multipliers": return
    values = lambda x, n, m: [list(struct.unpack(f"<{m}f", checkpoints.tensor(x, "f32", [n, m], ["normal", "0", "0.2"])[4 * m * i:4 * m * (i + 1)])) for i in range(n)]
    make_gguf(f"{TMP}/adapter.gguf", {"blk.1.ssm_in.weight.lora_a": values("a", 2, 64), "blk.1.ssm_in.weight.lora_b": values("b", 294, 2)}, arch="falcon-h1")
    said = [subprocess.run([CLI, "score", "-m", m, *more, "--token-ids", "[3, 10, 17, 24]", "--json"], capture_output=True, text=True, timeout=100) for m, more in ((file, []), (file, ["--lora", f"{TMP}/adapter.gguf"]), (folder, ["--lora", f"{TMP}/adapter.gguf"]))]
    check(f"{name}: an adapter in GGUF", not said[1].returncode and abs(json.loads(said[0].stdout)["logprobs"][-1] - json.loads(said[1].stdout)["logprobs"][-1]) > 1e-3, [p.stderr for p in said])
    check(f"{name}: beside the folder", said[2].returncode == 1 and f"{TMP}/adapter.gguf: falcon_h1, whose multipliers are in its weights, takes no adapters" in said[2].stderr, said[2].stderr)
    os.remove(f"{TMP}/adapter.gguf")


def damaged_states(out):
    """Keys that are missing, counts that do not fit, value heads in an order that cannot be."""
    def number(key, v): return key.encode() + (4).to_bytes(4, "little") + v.to_bytes(4, "little")

    for family, was, becomes, words in (
            ("qwen3_5", b"ssm.inner_size", b"ssm.inner_sizf", "qwen35.ssm.inner_size: missing"),
            ("qwen3_5", b"ssm.time_step_rank", b"ssm.time_step_ranc", "qwen35.ssm.time_step_rank: missing"),
            ("qwen3_5", number("ssm.time_step_rank", 4), number("ssm.time_step_rank", 3), "3 heads of state cannot share 2 groups evenly"),
            ("qwen3_5", number("ssm.group_count", 2), number("ssm.group_count", 0), "ssm.group_count: 0 is outside 1 to 4"),
            ("qwen3_5", number("ssm.inner_size", 96), number("ssm.inner_size", 98), "ssm.inner_size: 98, heads of at most 4096 values, of which it has 4, expected"),
            ("qwen3_5", number("ssm.inner_size", 96), number("ssm.inner_size", 192), "has shape"),
            ("qwen3_5", number("ssm.conv_kernel", 4), number("ssm.conv_kernel", 17), "ssm.conv_kernel: 17 is outside 2 to 16"),
            ("qwen3_5", number("full_attention_interval", 4), number("full_attention_interval", 0), "full_attention_interval: 0 is outside 1 to 512"),
            ("qwen3_5", number("full_attention_interval", 4), number("full_attention_interval", 3), "blk.2.self_attn.q_proj.weight is missing"),
            ("qwen3_5", b"blk.0.ffn_up.weight", b"blk.0.ssm_in.weight", "go key head by key head, as value heads of qwen35 do not"),
            ("qwen3_5", b"blk.1.ssm_dt.bias", b"blk.1.ssm_dx.bias", "dt_bias.weight is missing"),
            ("lfm2", b"shortconv.l_cache", b"shortconv.l_cashe", "lfm2.shortconv.l_cache: missing"),
            ("lfm2", bytes(8) + b"\2\0\0\0" + bytes(4), bytes(8) + b"\5\0\0\0" + bytes(4), "head_count_kv: a whole number for each layer, each in range, expected"),
            ("lfm2", bytes(8) + b"\2\0\0\0" + bytes(4), bytes(8) + b"\0\0\0\0\2\0\0\0", "is missing"),
            ("mamba2", number("ssm.state_size", 16), number("ssm.state_size", 5000), "ssm.state_size: 5000 is outside 1 to 4096"),
            ("granitemoehybrid_mamba", b"ssm.group_count", b"ssm.group_cound", "granitehybrid.ssm.group_count: missing"),
            ("multipliers", b"blk.1.ssm_norm.weight", b"blk.1.ssm_nurm.weight", "blk.1.mamba.norm.weight is missing"),
            ("multipliers", number("attention.head_count_kv", 2), number("attention.head_count_kv", 3), "4 query heads cannot share 3 key heads evenly"),
            ("a channel a head", b"ssm.time_step_rank", b"ssm.time_step_ranc", "jamba.ssm.time_step_rank: missing"),
            ("a channel a head", number("ssm.time_step_rank", 4), number("ssm.time_step_rank", 5), "(29, 112) expected"),
            ("a channel a head", number("ssm.inner_size", 112), number("ssm.inner_size", 0), "ssm.inner_size: 0 is outside 1 to 3584"),
            ("a channel a head", b"blk.2.ssm_dt_norm.weight", b"blk.2.ssm_dx_norm.weight", "blk.2.mamba.dt_layernorm.weight is missing"),
            ("a channel a head", b"blk.2.ffn_gate_inp.weight", b"blk.2.ffn_gate_ing.weight", "blk.2.mlp.up_proj.weight is missing"),
            ("a channel a head", b"jamba.expert_used_count", b"jamba.expert_used_cound", "jamba.expert_used_count: missing"),
            ("a key a decay", b"kda.head_dim", b"kda.head_din", "kimi-linear.kda.head_dim: missing"),
            ("a key a decay", number("kda.head_dim", 20), number("kda.head_dim", 24), "(96, 64) expected"),
            ("a key a decay", number("attention.key_length_mla", 24), number("attention.key_length_mla", 8), "a latent key of"),
            ("a key a decay", b"blk.1.ssm_conv1d_k.weight", b"blk.1.ssm_conv1d_x.weight", "blk.1.self_attn.k_conv1d.weight is missing"),
            ("a key a decay", b"blk.1.ssm_beta.weight", b"blk.1.ssm_bete.weight", "blk.1.self_attn.b_proj.weight is missing"),
            ("llama4", number("interleave_moe_layer_step", 2), number("interleave_moe_layer_step", 1), "blk.0.mlp.gate.weight is missing"),
            ("llama4", number("attention.temperature_length", 10), number("attention.temperature_length", 0), "temperature_length: 0 is outside 1 to"),
            ("llama4", number("expert_used_count", 2), number("expert_used_count", 7), "expert_used_count: 7 is outside 1 to 6"),
            ("phimoe", number("expert_used_count", 2), number("expert_used_count", 3), "3 experts a token: phimoe takes 2")):
        folder = like(family) if family in LIKE else f"build/checkpoints/{family}"
        subprocess.run([CLI, "convert", folder, out], capture_output=True, timeout=100)
        if family in LIKE: shutil.rmtree(folder)
        data = open(out, "rb").read()
        if not check(f"{family} has {was}", was in data): continue
        open(out, "wb").write(data.replace(was, becomes, 1))
        p = subprocess.run([CLI, "info", "-m", out], capture_output=True, text=True, timeout=60)
        check(f"refused: {family} with {becomes}", p.returncode == 1 and words in p.stderr and p.stderr.count("\n") == 1, (p.returncode, p.stderr))
        os.remove(out)


def codebooks():
    """Files of less than four bits: what is computed with is what dequantising gives (unit tests compare that with gguf's Python), on ranks that have a part of each row, in mixtures, in layers of several types."""
    sys.path.insert(0, "tests/bench")
    import random_gguf
    llama = dict(arch="llama", width=256, layers=2, heads=4, kv=2, head=64, ff=512, vocab=4400, tied=True)
    moe = dict(llama, arch="qwen3moe", experts=4, used=2, expert_ff=256)
    file, folder, ids = f"{TMP}/grid.gguf", f"{TMP}/grid", "[5, 900, 77, 4001, 12, 300, 44]"
    def score(model, *more): return json.loads(subprocess.run([CLI, "score", "-m", model, "--token-ids", ids, "--json", *more], capture_output=True, text=True, timeout=60).stdout)["logprobs"][1:]
    def off(a, b): return max(abs(x - y) for x, y in zip(a, b))
    for shape, usual, more in (*((llama, t, t) for t in ("IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ3_S", "IQ2_S", "IQ1_M", "TQ1_0", "TQ2_0", "NVFP4")), (llama, "IQ2_S", "IQ3_S"), (moe, "IQ3_XXS", "IQ2_XS")):
        keys, name = random_gguf.Keys(), f"{shape['arch']} of {usual} and {more}"
        random_gguf.settings(keys, shape, 2, 15)
        random_gguf.vocabulary(keys, shape["vocab"])
        random_gguf.write(file, keys, random_gguf.tensors(shape, 2, usual, more), random.Random(3))
        p = subprocess.run([CLI, "convert", file, folder, "f32"], capture_output=True, text=True, timeout=60)
        if not check(f"{name}: converted", p.returncode == 0, p.stderr): continue
        want = score(folder, "--dtype", "float32")
        exact, fast = score(file, "--dtype", "float32"), score(file)
        check(f"{name}: values", off(exact, want) < 1e-4, off(exact, want))
        check(f"{name}: products", 0 < off(fast, want) < 0.1, off(fast, want))
        check(f"{name}: two ranks", off(score(file, "--device", "cpu", "-tp", "2"), fast) < 0.05, name)
        shutil.rmtree(folder)
    scores = {}
    for n in (0, 1, 3): # numbers beside a matrix
        keys = random_gguf.Keys()
        random_gguf.settings(keys, llama, 2, 15)
        random_gguf.vocabulary(keys, llama["vocab"])
        random_gguf.write(file, keys, random_gguf.tensors(llama, 2, "NVFP4", "NVFP4") + [("blk.1.ffn_down.scale", "F32", (n,))] * (n > 0), random.Random(3))
        if n < 3: scores[n] = score(file, "--dtype", "float32")
    p = subprocess.run([CLI, "score", "-m", file, "--token-ids", ids], capture_output=True, text=True, timeout=60)
    check("three scales for one matrix", p.returncode == 1 and "blk.1.ffn_down.scale: F32, one number or one an expert expected" in p.stderr, p.stderr)
    check("a scale beside a matrix", off(scores[0], scores[1]) > 1e-3, scores)
    random_gguf.write(file, keys, random_gguf.tensors(llama, 2, "NVFP4", "NVFP4") + [("blk.1.ffn_down.scale", "F32", (1,))], random.Random(3))
    p = subprocess.run([CLI, "quantize", file, f"{TMP}/wide.gguf", "f32", "--allow-requantize"], capture_output=True, text=True, timeout=60)
    check("it goes with it into another type", p.returncode == 0 and off(score(f"{TMP}/wide.gguf", "--dtype", "float32"), scores[1]) < 1e-4, p.stderr)
    data = bytearray(open(file, "rb").read())
    data[-32:-28] = b"\0\0\x80\x7f" # infinity, in the last tensor
    open(file, "wb").write(data)
    p = subprocess.run([CLI, "score", "-m", file, "--token-ids", ids], capture_output=True, text=True, timeout=60)
    check("an infinite scale", p.returncode == 1 and "blk.1.ffn_down.scale: inf, a finite number expected" in p.stderr, (p.returncode, p.stderr))
    for x in (file, f"{TMP}/wide.gguf"): os.remove(x)


def back():
    """The default model as a folder: what it says, its words; disks that are full, Ctrl-C, what is refused; nothing is left."""
    out = f"{TMP}/back"
    want = perplexity(MODEL)
    p = subprocess.run([CLI, "convert", MODEL, out], capture_output=True, text=True, timeout=100)
    if check("made of quantised weights", p.returncode == 0 and "llama, float16" in p.stderr and left() == ["back"], p.stderr):
        got = perplexity(out)
        check("its perplexity", not isinstance(got, str) and abs(got / want - 1) < 0.02, (want, got))
        check("its files", sorted(os.listdir(out)) == ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"], os.listdir(out))
        texts = [[subprocess.run([CLI, "tokenize", "-m", m, *more], input="<|im_start|>user\n" + TEXT + " 1234  \t\u4f60\u597d na\u00efve<|im_end|>", capture_output=True, text=True).stdout for more in ((), ("--add-special", "--parse-special"))] for m in (MODEL, out)]
        check("its words", texts[0] == texts[1] and len(texts[0][0]) > len(texts[0][1]) > 100, texts)
        infos = [json.loads(subprocess.run([CLI, "info", "-m", m, "--json"], capture_output=True, text=True).stdout) for m in (MODEL, out)]
        check("its ids and template", all(infos[0][k] == infos[1][k] for k in ("bos_id", "eos_id", "chat_template", "vocab_size", "hidden_size", "max_position_embeddings")), infos)
        words = json.load(open(f"{out}/tokenizer.json"))
        lost = [t for t in words["added_tokens"] if words["model"]["vocab"].get(t["content"]) != t["id"]] # tokenizers would number these anew
        check("its added tokens are in its vocabulary", words["added_tokens"] and not lost, lost[:3])
        p = subprocess.run([CLI, "convert", MODEL, out], capture_output=True, text=True, timeout=100)
        check("not over what is there", p.returncode == 2 and "there already" in p.stderr and left() == ["back"], p.stderr)
        shutil.rmtree(out)
    tiny = f"{TMP}/tiny.gguf"
    subprocess.run([CLI, "convert", "build/checkpoints/llama", tiny], capture_output=True, check=True)
    for size in (100, 5_000, 100_000, 300_000): # the head, the tensors, tokenizer.json
        p = subprocess.run([CLI, "convert", tiny, out], capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
        check(f"a disk of {size} bytes", p.returncode == 1 and p.stderr.startswith("llm_cli: error: ") and "back.part" in p.stderr and p.stderr.count("\n") == 1 and left() == ["tiny.gguf"], (p.stderr, left()))
        p = subprocess.run([CLI, "convert", "build/checkpoints/llama", f"{TMP}/x.gguf"], capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
        check(f"a folder to a disk of {size} bytes", p.returncode == 1 and "x.gguf" in p.stderr and p.stderr.count("\n") == 1 and left() == ["tiny.gguf"], (p.stderr, left()))
    key = b"tokenizer.ggml.add_bos_token" + (7).to_bytes(4, "little")
    framed = f"{TMP}/framed.gguf"
    open(framed, "wb").write(open(tiny, "rb").read().replace(key + b"\0", key + b"\1"))
    subprocess.run([CLI, "convert", framed, out], capture_output=True)
    ids = [json.loads(subprocess.run([CLI, "tokenize", "-m", m, "--add-special"], input="hello", capture_output=True, text=True).stdout or "[]") for m in (tiny, framed, out)]
    check("BOS before a text", ids[2] == ids[1] != ids[0] and ids[1][1:] == ids[0], ids)
    os.remove(framed), shutil.rmtree(out, ignore_errors=True)
    for after in (0, 0.1):
        p = subprocess.Popen([CLI, "convert", MODEL, out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while p.poll() is None and not os.path.exists(out + ".part"): time.sleep(0.002)
        time.sleep(after)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=60)
        check(f"stopped after {after} s", (p.returncode == 130 and left() == ["tiny.gguf"]) or (p.returncode == 0 and left() == ["back", "tiny.gguf"]), (p.returncode, left()))
        shutil.rmtree(out, ignore_errors=True)
    data = open(tiny, "rb").read()
    for name, bytes_, args, code, words in (("a type", data, ("q8_0",), 2, "q8_0, one of auto, f32, f16, bf16"), ("an option of files", data, ("--pure",), 2, "--type and nothing else"), ("cut", data[:len(data) // 2], (), 1, "bad.gguf"),
                                            ("a tensor of no place", data.replace(b"blk.1.attn_output.weight", b"blk.1.attn_outsut.weight"), (), 1, "bad.gguf"), ("no GGUF file", b"hello", (), 1, "bad.gguf")):
        open(f"{TMP}/bad.gguf", "wb").write(bytes_)
        p = subprocess.run([CLI, "convert", f"{TMP}/bad.gguf", out, *args], capture_output=True, text=True, timeout=100)
        check(f"refused: {name}", p.returncode == code and words in p.stderr and p.stderr.count("\n") == 1 and left() == ["bad.gguf", "tiny.gguf"], (p.returncode, p.stderr, left()))
    for x in left(): os.remove(f"{TMP}/{x}")


def stopped():
    """Ctrl-C at any moment, a disk that is full, a folder that is not there: nothing under the name, and nothing else."""
    out = f"{TMP}/out.gguf"
    for after in (0, 0.2):
        p = subprocess.Popen([CLI, "quantize", MODEL, out, "q5_k_m", "--allow-requantize", "-t", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while p.poll() is None and not os.path.exists(out + ".part"): time.sleep(0.005)
        time.sleep(after)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=60)
        check(f"stopped after {after} s", (p.returncode == 130 and left() == []) or (p.returncode == 0 and left() == ["out.gguf"]), (p.returncode, left()))
        if left() == ["out.gguf"]: os.remove(out)
    for size in (100, 100_000, 20_000_000):
        p = run(MODEL, out, "q8_0", "--allow-requantize", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
        check(f"a disk of {size} bytes", p.returncode == 1 and "out.gguf" in p.stderr and p.stderr.count("\n") == 1 and left() == [], (p.stderr, left()))
    open(out, "w").write("an older file")
    p = run(MODEL, out, "q8_0", "--allow-requantize", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    check("an older file stays", p.returncode == 1 and open(out).read() == "an older file" and left() == ["out.gguf"], left())
    os.remove(out)


def refused():
    """One sentence, a usage error where the command line is wrong."""
    for name, args, code, words in (("no output", (MODEL,), 2, "OUT.gguf"), ("no model", (), 2, "MODEL OUT.gguf"), ("a type", (MODEL, f"{TMP}/x", "q4_x"), 2, "q4_x, one of F32"), ("quantised already", (MODEL, f"{TMP}/x", "q8_0"), 2, "--allow-requantize"),
                                    ("onto itself", (MODEL, MODEL), 2, "the model itself"), ("a folder", (MODEL, TMP, "--allow-requantize"), 2, "a folder"), ("nowhere", (MODEL, f"{TMP}/none/x", "--allow-requantize"), 1, "none/x.part"),
                                    ("a folder's option", (MODEL, f"{TMP}/x", "-sq", "0.5"), 2, "--quant_type weight_only_int8"), ("a text for a file", (MODEL, f"{TMP}/x", "--chunks", "3"), 2, "with the options of folders")):
        p = run(*args)
        check(f"refused: {name}", p.returncode == code and words in p.stderr and p.stderr.startswith("llm_cli: error: ") and p.stderr.count("\n") <= 2 and left() == [], (p.returncode, p.stderr, left()))
    for command, option, value in (("convert", "--chunks", "3"), ("imatrix", "--bits", "3"), ("info", "--pure", None), ("tokenize", "--type", "q4_0")):
        p = subprocess.run([CLI, command, "-m", MODEL, option, *([value] if value else [])], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        check(f"refused: {command} {option}", p.returncode == 2 and p.stderr == f"llm_cli: error: {option}: {command} does not take it\n", (p.returncode, p.stderr))
    p = run("--help")
    check("its help", p.returncode == 0 and "--type" in p.stdout and "--allow-requantize" in p.stdout, p.stdout)


try:
    for part in sys.argv[1:] or ("types", "imatrix", "convert", "states", "streams", "codebooks", "back", "stopped", "refused"): globals()[part]()
finally: shutil.rmtree(TMP, ignore_errors=True)
finish()
