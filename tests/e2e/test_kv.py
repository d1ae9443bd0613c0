#!/usr/bin/env python3
"""What small KV caches cost: perplexity of a long passage beside that with f16, of each --kv-cache-dtype.

    SMOLLM2_GGUF=FILE GEMMA_GGUF=FILE LLM_CLI=./llm_cli tests/e2e/test_kv.py

Perplexity is averaged over 600 tokens of a passage: single short passages move by 1 % from any change of the last bits, as activations
are rounded too (bf16 pages beside f16 show that).
"""
import json, os, pathlib, subprocess, sys

GOLDEN = pathlib.Path("build/data/golden")
MODELS = {"smollm2": ("SMOLLM2_GGUF", "models/SmolLM2-135M-Instruct.Q4_1.gguf"), "gemma": ("GEMMA_GGUF", "models/gemma-3-270m-q4_k_m.gguf")}
LIMITS = {"int8": 1, "fp8_e4m3": 1, "fp8_e5m2": 3, "int4": 8} # %
CLI = os.environ.get("LLM_CLI", "./llm_cli")


def perplexity(model, ids, dtype):
    p = subprocess.run([CLI, "score", "-m", model, "--json", "--token-ids", json.dumps(ids), "--kv-cache-dtype", dtype], capture_output=True)
    if p.returncode: sys.exit(p.stderr.decode(errors="replace"))
    return json.loads(p.stdout)["perplexity"]


def main():
    n = [0, 0]
    for name, (variable, default) in MODELS.items():
        model, passage = os.environ.get(variable, default), GOLDEN / name / "score_long_orchard.json"
        ids = json.loads(passage.read_text())["token_ids"][:600]
        plain = perplexity(model, ids, "float16")
        for dtype, limit in LIMITS.items():
            more = 100 * (perplexity(model, ids, dtype) / plain - 1)
            n[not abs(more) <= limit] += 1
            print(f"{'ok  ' if abs(more) <= limit else 'FAIL'} {name}, {dtype}: perplexity {more:+.2f} %, at most {limit} %", flush=True)
    print(f"{n[0]} passed, {n[1]} failed")
    return n[1] > 0


sys.exit(main())
