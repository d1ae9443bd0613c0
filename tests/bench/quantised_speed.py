#!/usr/bin/env python3
"""Speed and memory of quantised folders beside Q4_K, Q4_0 and Q8_0 of the same shape, which are made of floats while loading: random weights, their text means nothing.

    quantised_speed.py [--layers 6] [--width 2048] [--ff 8192] [--rounds 3] [--only NAME,...] [--keep DIR] [OPTIONS of llm_cli bench]      env LLM_CLI

Prints a row for each: tokens/s of a prompt of 256 tokens and of 32 tokens of an answer (median of the rounds, which go through all forms in turns), seconds from start to the first
token, and the peak of memory while it is loaded: all of it, and without pages of mapped files. About four minutes and 2.5 GB on the disk with two cores.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
CLI = os.environ.get("LLM_CLI", "./llm_cli")
POOL = os.urandom(1 << 22)
VOCAB, HEADS, KV, HEAD = 1024, 32, 8, 64 # few words: folders have an output layer of bf16, what is quantised while it is loaded one of 8 bits
SIGNS = bytes(0x3C if i < 128 else 0xBC for i in range(256))      # high bytes of bf16 numbers of a size of 0.01 to 0.03
NUMBERS = bytes(i if i & 0x7F < 0x50 else i & 0x80 | 0x30 for i in range(256))  # e4m3 without its NaN


def random_bytes(n): return POOL * (n // len(POOL)) + POOL[:n % len(POOL)]


def bf16(n):
    out, some = bytearray(2 * n), random_bytes(n)
    out[0::2], out[1::2] = some, random_bytes(n + 1)[1:].translate(SIGNS)
    return bytes(out)


def same(n, value): return value * n


F16, ONE = b"\x00\x18", b"\x6f\x12\x83\x3a"  # 0.00195 as f16, 0.001 as f32


def awq(rows, cols): return {"qweight": ("I32", [cols, rows // 8], random_bytes(rows * cols // 2)), "qzeros": ("I32", [cols // 128, rows // 8], random_bytes(rows * cols // 256)), "scales": ("F16", [cols // 128, rows], same(rows * cols // 128, F16))}


def gptq(act_order):
    def made(rows, cols):
        order = [i // 128 for i in range(cols)] if not act_order else [i * 37 % cols // 128 for i in range(cols)]
        return {"qweight": ("I32", [cols // 8, rows], random_bytes(rows * cols // 2)), "qzeros": ("I32", [cols // 128, rows // 8], b"\x77" * (rows * cols // 256)),
                "scales": ("F16", [cols // 128, rows], same(rows * cols // 128, F16)), "g_idx": ("I32", [cols], b"".join(i.to_bytes(4, "little") for i in order))}
    return made


def w8a8(rows, cols): return {"weight": ("I8", [rows, cols], random_bytes(rows * cols)), "weight_scale": ("F32", [rows, 1], same(rows, ONE))}


def fp8(rows, cols): return {"weight": ("F8_E4M3", [rows, cols], random_bytes(rows * cols).translate(NUMBERS)), "weight_scale_inv": ("F32", [rows // 128, cols // 128], same(rows * cols // 16384, ONE))}


def nf4(rows, cols):
    import struct
    table = [-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0, 0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0]
    state = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [rows, cols]}).encode()
    return {"weight": ("U8", [rows * cols // 2, 1], random_bytes(rows * cols // 2)), "weight.absmax": ("F32", [rows * cols // 64], same(rows * cols // 64, b"\x8f\xc2\xf5\x3c")),
            "weight.quant_map": ("F32", [16], struct.pack("<16f", *table)), "weight.quant_state.bitsandbytes__nf4": ("U8", [len(state)], state)}


def floats(rows, cols): return {"weight": ("BF16", [rows, cols], bf16(rows * cols))}


COMPRESSED = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}, "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}}}}
FORMS = {  # folder, what its matrices are, what config.json says, options
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}), "gptq": (gptq(False), {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}),
    "gptq act-order": (gptq(True), {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": True}), "nf4": (nf4, {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    "w8a8": (w8a8, COMPRESSED), "fp8 blocks": (fp8, {"quant_method": "fp8", "weight_block_size": [128, 128]}), "floats": (floats, None)}
ROWS = [(name, name, ()) for name in FORMS] + [(f"{name} while loading", "floats", ("--quantization", name)) for name in ("q4_k", "q4_0", "q8_0", "nf4", "fp8", "weight_only_int8")]


def write(folder, form, shape):
    made, config = FORMS[form]
    width, ff, layers = shape
    os.makedirs(folder)
    settings = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": ff, "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": HEAD, "vocab_size": VOCAB,
                "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16", **({"quantization_config": config} if config else {})}
    json.dump(settings, open(f"{folder}/config.json", "w"))
    words = {f"w{i}": i for i in range(VOCAB)}
    json.dump({"model": {"type": "BPE", "vocab": words, "merges": []}, "added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}}, open(f"{folder}/tokenizer.json", "w"))
    matrices = {"self_attn.q_proj": (HEADS * HEAD, width), "self_attn.k_proj": (KV * HEAD, width), "self_attn.v_proj": (KV * HEAD, width), "self_attn.o_proj": (width, HEADS * HEAD), "mlp.gate_proj": (ff, width), "mlp.up_proj": (ff, width), "mlp.down_proj": (width, ff)}
    norm = ("BF16", [width], b"\x80\x3f" * width)
    tensors = [("model.embed_tokens.weight", ("BF16", [VOCAB, width], bf16(VOCAB * width))), ("model.norm.weight", norm)]
    for layer in range(layers):
        stem = f"model.layers.{layer}."
        tensors += [(f"{stem}{x}_layernorm.weight", norm) for x in ("input", "post_attention")]
        tensors += [(f"{stem}{name}.{end}", t) for name, (rows, cols) in matrices.items() for end, t in made(rows, cols).items()]
    head, at = {}, 0
    for name, (kind, dims, data) in tensors:
        head[name] = {"dtype": kind, "shape": dims, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, (_, _, data) in tensors: f.write(data)


def run(*args):
    """Standard output, and the peak of memory in MB: of all pages, and of those that are no file's."""
    p = subprocess.Popen([CLI, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = [0, 0]

    def watch():
        while p.poll() is None:
            try: said = dict(line.split(":", 1) for line in open(f"/proc/{p.pid}/status") if line.startswith(("VmRSS", "RssAnon")))
            except OSError: return
            for i, key in enumerate(("VmRSS", "RssAnon")): peak[i] = max(peak[i], int(said.get(key, "0").split()[0]) / 1024)
            time.sleep(0.01)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    out, err = p.communicate()
    thread.join()
    if p.returncode: sys.exit(f"{' '.join(args)}: {err}")
    return out, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("layers", 6), ("width", 2048), ("ff", 8192), ("rounds", 3)): parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--only"), parser.add_argument("--keep")
    parser.add_argument("--memory", action="store_true", help="memory and the first token only: for a machine on which others work")
    args, more = parser.parse_known_args()
    where = pathlib.Path(args.keep or tempfile.mkdtemp(prefix="llm_quantised_speed_"))
    rows = [r for r in ROWS if not args.only or r[0] in args.only.split(",")]
    speed = {r[0]: {"pp256": [], "tg32": []} for r in rows}
    try:
        for _, form, _ in rows:
            if not (where / form).exists(): write(str(where / form), form, (args.width, args.ff, args.layers))
        memory = {}
        for name, form, options in rows:
            began = time.monotonic()
            _, peak = run("generate", "-m", str(where / form), "--token-ids", "[5, 6, 7]", "-n", "1", "--max-model-len", "512", *options, *more)
            memory[name] = (time.monotonic() - began, peak)
        for _ in range(0 if args.memory else args.rounds):
            for name, form, options in rows:
                for line in run("bench", "-m", str(where / form), "-p", "256", "-n", "32", "-b", "1", "-r", "1", "--json", *options, *more)[0].splitlines():
                    said = json.loads(line)
                    if said["test"] in speed[name]: speed[name][said["test"]].append(said["median"])
        print("| weights | pp256 | tg32 | seconds to the first token | file, MB | peak, MB | without mapped pages, MB |\n| --- | --- | --- | --- | --- | --- | --- |")
        for name, form, _ in rows:
            pp, tg = (f"{statistics.median(speed[name][t]):.1f}" if speed[name][t] else "" for t in ("pp256", "tg32"))
            seconds, peak = memory[name]
            print(f"| {name} | {pp} | {tg} | {seconds:.2f} | {os.path.getsize(where / form / 'model.safetensors') / 1e6:.0f} | {peak[0]:.0f} | {peak[1]:.0f} |")
    finally:
        if not args.keep: shutil.rmtree(where, ignore_errors=True)


main()
