#!/usr/bin/env python3
"""Two figures of a GPU that want a process of their own, as rows of bench_cuda's table.

    gpu_start.py [llm_cli options]   from starting llm_cli to its first token, with a file of Llama-3-8B's shape (16 GB of noise) in the page cache
    gpu_start.py --transformers      transformers with a static cache and torch.compile on Qwen3-0.6B's shape, batch 1
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

TINY = "LLM_TINY" in os.environ  # for the emulation
HIDDEN, FF, LAYERS, HEADS, KV_HEADS, VOCAB = (64, 96, 2, 4, 2, 320) if TINY else (4096, 14336, 32, 32, 8, 128256)


def tensors():
    d = HIDDEN // HEADS
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        for name, shape in (("self_attn.q_proj", (HIDDEN, HIDDEN)), ("self_attn.k_proj", (KV_HEADS * d, HIDDEN)), ("self_attn.v_proj", (KV_HEADS * d, HIDDEN)), ("self_attn.o_proj", (HIDDEN, HIDDEN)),
                            ("mlp.gate_proj", (FF, HIDDEN)), ("mlp.up_proj", (FF, HIDDEN)), ("mlp.down_proj", (HIDDEN, FF)), ("input_layernorm", (HIDDEN,)), ("post_attention_layernorm", (HIDDEN,))):
            yield p + name + ".weight", shape
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def make(folder):
    """A safetensors folder of bf16 noise around 0.01; the tokenizer is a checkpoint's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                                                    "num_key_value_heads": KV_HEADS, "vocab_size": VOCAB, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}))
    for name in ("tokenizer.json", "tokenizer_config.json"): shutil.copy(pathlib.Path("tests/data/checkpoints/common") / name, folder / name)
    header, end = {}, 0
    for name, shape in tensors():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = bytearray(1 << 25)
    block[0::2] = os.urandom(1 << 24)
    block[1::2] = os.urandom(1 << 24).translate(bytes(0x3C if i < 128 else 0xBC for i in range(256)))
    with open(folder / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        while end > 0: end -= f.write(block[:min(end, len(block))])


def start(options):
    folder = pathlib.Path("build/gpu/start")
    if not (folder / "model.safetensors").exists(): make(folder)
    best = 1e9
    for _ in range(3):
        begin = time.time()
        p = subprocess.run(["./llm_cli", "generate", "-m", str(folder), "--token-ids", "[1,2,3,4]", "-n", "1", "--temp", "0", "--ignore-eos", "--json", "--max-model-len", "2048", *options], capture_output=True, text=True)
        if p.returncode: sys.exit(f"llm_cli: exit {p.returncode}: {p.stderr[-300:]}")
        best = min(best, time.time() - begin)
    shutil.rmtree(folder)
    print(f"| start | process start to first token, 8B bf16 in the page cache | {best:.2f} s | - | - | 2 s |")


def transformers_rate():
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    config = Qwen3Config(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"): model = AutoModelForCausalLM.from_config(config).eval()
    ids = torch.arange(16, device="cuda")[None]
    ask = dict(do_sample=False, cache_implementation="static", pad_token_id=0, eos_token_id=None)
    model.generation_config.eos_token_id = None
    model.forward = torch.compile(model.forward, mode="reduce-overhead")
    with torch.no_grad():
        best = 0
        for _ in range(4):
            model.generate(ids, max_new_tokens=2, **ask)
            torch.cuda.synchronize()
            begin = time.time()
            n = model.generate(ids, max_new_tokens=128, **ask).shape[1] - 16
            torch.cuda.synchronize()
            best = max(best, n / (time.time() - begin))
    print(f"| start | transformers, static cache and torch.compile, Qwen3-0.6B's shape, batch 1 | {best:.1f} tokens/s | - | - | a quarter of llm.h's |")


if sys.argv[1:] == ["--transformers"]: transformers_rate()
else: start(["--device", "cuda", *sys.argv[1:]])
