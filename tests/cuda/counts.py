#!/usr/bin/env python3
"""What a step asks of memory, kernel by kernel, counted on the emulation: make counts

    counts.py [--rows] [PATTERN]    a table in Markdown, the card of each kernel; --rows: of each line of its source, worst first

A llama of one and of two layers with noise for weights is run for some tokens more and less. The difference is what a step launches, and a layer.
The same of a prompt, with the bytes that a layer's kernels ask for (cuBLASLt's products are not among them); and of layers that keep a state, with
what kernel_recur asks for beside the state.
A run with pages of a byte a value, and products of every kind of weight and sums over ranks (test_cuda linear, sums), stand beside. Then of each kernel: launches; of all its accesses in
device memory, the sectors of 32 bytes that each warp took, beside what their bytes would fill; of those in shared memory the rounds that its banks
needed, beside the least.

Ends with 1 if a layer takes more launches or bytes, or a kernel more sectors or rounds, than BUDGET says.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY, FOLDER = ROOT / "build/libllm_cuda_count.so", ROOT / "build/counts"
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 384, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 320,
          "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
# Gated delta nets: 2 heads of 128 x 128, in one group.
DELTA = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 1, "linear_num_value_heads": 2,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}}
STATE = 2 * 128 * 128 * 4


def model(layers, keep):
    folder = FOLDER / f"{'delta' if keep else 'llama'}{layers}"
    folder.mkdir(parents=True, exist_ok=True)
    states = DELTA | {"layer_types": ["linear_attention"] * layers} if keep else {}
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers} | states))
    for name in ("tokenizer.json", "tokenizer_config.json"): shutil.copy(ROOT / "tests/data/checkpoints/common" / name, folder / name)
    return folder


def run(layers, tokens, prompt, *more, keep=False):
    """Counts of one run: launches by kernel, accesses by (kernel, instruction, space). keep: of layers with states."""
    out = FOLDER / f"said{layers}_{tokens}_{prompt}_{keep}.txt"
    command([os.environ.get("LLM_CLI", str(ROOT / "llm_cli")), "generate", "-m", str(model(layers, keep)), "--load-format", "dummy", "--token-ids", json.dumps(list(range(1, prompt + 1))), "-n", str(tokens), "--temp", "0",
                        "--ignore-eos", "--device", "cuda", "--cuda-library", str(LIBRARY), *more], out)
    return counted(out)


def operations(group, **more):
    """The same of a group of test_cuda."""
    out = FOLDER / f"said_{group}.txt"
    command([str(ROOT / "build/dev/test_cuda"), group], out, **more)
    return counted(out)


def command(words, out, **more):
    p = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, **more, CUEMU_COUNTS=str(out), CUEMU_SEED="0", LLM_CUDA_LIBRARY=str(LIBRARY), LLM_TEST_SLOW="8"))
    if p.returncode: sys.exit(f"{words[0]}: exit {p.returncode}: {(p.stdout + p.stderr)[-500:]}")


def counted(out):
    ran, asked = collections.Counter(), collections.defaultdict(lambda: [0] * 4)
    for line in out.read_text().splitlines():
        f = line.split()
        if f[0] == "k": ran[f[1]] = int(f[2])
        else: asked[f[1], f[2], f[3]] = [int(x) for x in f[4:]]
    return ran, asked


def names(addresses):
    """Of addresses in the library: (function, file:line)."""
    addresses = sorted(addresses)
    p = subprocess.run(["addr2line", "-f", "-C", "-e", str(LIBRARY), *("0x" + a for a in addresses)], capture_output=True, text=True, check=True)
    lines = p.stdout.splitlines()
    return {a: (lines[2 * i], lines[2 * i + 1].rpartition("/")[2].split(" ")[0]) for i, a in enumerate(addresses)}


KINDS = ("F32", "F16", "BF16", "F8", "Q4Z", "Q4M", "Q5Z", "Q5M", "Q6", "Q8", "T4", "T4X", "G8")
LAYER, PROMPT = 5, 20  # launches of decoding; tokens of the prompt
PROMPT_LAYER = 5, 675456  # launches of a prompt: two residuals, heads, attention, gate and up's end; bytes
STATE_LAYER, STATE_ASKED = 7, 1.07  # launches of a layer with states: four products, conv, recur, gate; what its recur asks for, keys and values too, in times of the state, read and written
MOST = {"gr": 1.35, "gw": 1.05, "sr": 1.05, "sw": 1.05}  # times the least, and more than that in:
BUDGET = {("kernel_linear_mma", "gr"): 1.1, ("kernel_linear_mma", "sr"): 1.25, ("kernel_slots", "gr"): 1.7, ("kernel_slots", "gw"): 1.3,  # a sub of nibbles or of e4m3 is half of each lane's vector; where experts begin
          ("kernel_linear_few", "gw"): 4.2, ("kernel_linear_rows", "gw"): 1.45, ("kernel_linear_rows", "sr"): 1.75, ("kernel_linear_f32", "gw"): 2.7, ("kernel_finish", "gw"): 1.3, ("kernel_linear_band", "gw"): 1.3,  # pairs of outputs, of each row; of rows a sub of nibbles is half of each lane's vector, and scales of one row's four subs are in two bricks that begin at the same bank
          ("kernel_linear_band", "sr"): 1.2, ("kernel_narrow", "gw"): 2.05,  # a sub of nibbles is half of each lane's vector; pairs in the order of bricks
          ("kernel_widen", "gr"): 2.05, ("kernel_widen", "gw"): 2.05, ("kernel_embed", "gw"): 8.05, ("kernel_embed", "gr"): 1.7, ("kernel_residual", "gw"): 1.1,  # e4m3, and rows of tables, by halves of a sub; scales one by one; flags
          ("kernel_attention_chunk", "gr"): 2.2, ("kernel_attention_chunk", "sr"): 1.15, ("kernel_attention_groups", "gr"): 2.2, ("kernel_attention_groups", "sr"): 1.25, ("kernel_attention_split", "gr"): 1.6, ("kernel_attention_split", "sr"): 1.2, ("kernel_attention_split", "sw"): 1.4,  # scales of bytes; the first rounds of a head that is turned
          ("kernel_conv", "gr"): 2.0, ("kernel_conv", "gw"): 1.1,  # a column's taps, one by one: neighbours use the rest of the sectors, from the cache
          ("kernel_qkv", "gw"): 1.25, ("kernel_turn", "gr"): 1.35, ("kernel_turn", "gw"): 1.35,
          ("kernel_pack", "gr"): 32, ("kernel_pack", "gw"): 32, ("kernel_plain", "gr"): 32, ("kernel_plain", "gw"): 32}  # while weights are loaded
SPACES = ("gr", "gw", "sr", "sw")


def kernel(name):
    """kernel_linear_few<2, 1>(...) -> kernel_linear_few<BF16, 1>"""
    name = name.split("(")[0].replace("void ", "")
    if name.startswith(("kernel_linear", "kernel_widen")) and "<" in name: name = re.sub(r"<(\d+)", lambda m: "<" + KINDS[int(m[1])], name)
    if name.startswith("kernel_attention_split"): name = re.sub(r"<(\d+)", lambda m: "<" + ("F16", "BF16", "BYTES")[int(m[1])], name)
    return name


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", action="store_true")
    p.add_argument("pattern", nargs="?", default="")
    a = p.parse_args()
    runs = {(layers, tokens): run(layers, tokens, PROMPT) for layers in (1, 2) for tokens in (1, 2, 4)}
    more = [run(1, 2, PROMPT, "--kv-cache-dtype", "fp8"), operations("linear"), operations("tiles", LLM_TEST_BRIEF="1"), operations("sums")]
    states = {(layers, tokens): run(layers, tokens, PROMPT, keep=True) for layers in (1, 2) for tokens in (2, 4)}
    asked = [runs[1, 4][1], states[1, 4][1], *(x for _, x in more)]
    named = names({k for ran, _ in [*runs.values(), *states.values(), *more] for k in ran} | {pc for each in asked for _, pc, _ in each})
    short = {k: kernel(name) for k, (name, _) in named.items()}
    step = {n: {k: (runs[n, 4][0][k] - runs[n, 2][0][k]) / 2 for k in runs[n, 4][0]} for n in (1, 2)}
    layer, wrong = sum(step[2].values()) - sum(step[1].values()), []
    state_layer = sum((sum(states[n, 4][0].values()) - sum(states[n, 2][0].values())) / 2 * (1 if n == 2 else -1) for n in (1, 2))
    recur = {tokens: 32 * sum(v[1] for (k, _, space), v in states[1, tokens][1].items() if space[0] == "g" and short[k].startswith("kernel_recur")) for tokens in (2, 4)}
    state_asked = (recur[4] - recur[2]) / 2 / (2 * STATE)
    loading = {k for k, name in short.items() if name.startswith(("kernel_pack", "kernel_plain"))}
    prompt = {n: (sum(v for k, v in ran.items() if k not in loading), 32 * sum(v[1] for (k, _, space), v in each.items() if space[0] == "g" and k not in loading)) for n in (1, 2) for ran, each in [runs[n, 1]]}
    prompt_layer = [y - x for x, y in zip(prompt[1], prompt[2])]
    sums = collections.defaultdict(lambda: [0] * 4)
    for each in asked:
        for (k, pc, space), v in each.items():
            key = (short[k], named[pc][1], space) if a.rows else (short[k], space)
            sums[key] = [x + y for x, y in zip(sums[key], v)]
    if a.rows:
        for (k, line, space), (n, units, least, size) in sorted(sums.items(), key=lambda x: x[1][2] - x[1][1]):
            if a.pattern in k: print(f"{k:44s} {line:22s} {space} {n:8d} accesses {units:9d} of {least:9d} at least: {units / max(least, 1):.2f} x, {size} bytes")
        return
    if layer > LAYER: wrong.append(f"{layer:g} launches a layer, {LAYER} expected")
    if state_layer > STATE_LAYER: wrong.append(f"{state_layer:g} launches a layer with states, {STATE_LAYER} expected")
    if not 1 <= state_asked <= STATE_ASKED: wrong.append(f"a token asks for {state_asked:.3f} times a state, read and written, {STATE_ASKED} expected")
    for have, most, what in zip(prompt_layer, PROMPT_LAYER, ("launches", "bytes")):
        if have > most: wrong.append(f"{have} {what} a layer of a prompt of {PROMPT} tokens, {most} expected")
    print("| kernel | launches a step of one layer | a layer more | loads: sectors / least | stores: sectors / least | shared loads: rounds / least | shared stores: rounds / least |\n" + "| --- " * 7 + "|")
    launched = {short[k]: (n, step[2].get(k, 0) - n) for k, n in step[1].items()}
    for k in sorted({k for k, _ in sums}):
        cells = ["{:g}".format(n) if n else "-" for n in launched.get(k, (0, 0))]
        for s in SPACES:
            if (k, s) not in sums:
                cells.append("-")
                continue
            _, units, least, _ = sums[k, s]
            cells.append(f"{units} / {least} = {units / least:.2f}")
            most = BUDGET.get((k.split("<")[0], s), MOST[s])
            if units > most * least: wrong.append(f"{k}, {s}: {units} where {least} would do, {units / least:.2f} times, {most} expected")
        if a.pattern in k: print(f"| {k} | " + " | ".join(cells) + " |")
    print(f"\n{sum(step[1].values()):g} launches a step of one layer, {layer:g} for each layer more; of a prompt of {PROMPT} tokens {prompt_layer[0]} launches and {prompt_layer[1]} bytes a layer; {state_layer:g} launches a layer with states, which ask for {state_asked:.3f} times a state, read and written; {len(sums)} figures of {len({k for k, _ in sums})} kernels")
    if len(sums) < 40: wrong.append(f"{len(sums)} figures, at least 40 expected")
    for line in wrong: print("WRONG: " + line)
    print(f"{len(sums) + 1 - len(wrong)} passed, {len(wrong)} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__": main()
