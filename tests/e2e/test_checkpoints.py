#!/usr/bin/env python3
"""Every model family against transformers: runs llm_cli on the tiny checkpoints and compares with the expected.json in each.

    test_checkpoints.py [FAMILY...] [--args "--isa avx2 --dtype float32"] [--brief]      env LLM_CLI (default ./llm_cli)

Three prompts a family, computed in float32; greedy tokens of the first alone, those of the others in one batch. Of each prompt: the
log-probability of every token, and of every token that could come next, differ by at most TOLERANCE of the range of the next token's
log-probabilities; the 32 tokens that greedy decoding appends are the same (the weights were chosen so that no step of it is a near tie). A
right engine differs by 1e-5 or less, a wrong detail by 1e-2 or more.
What build/checkpoints lacks is made first. --args: more options for llm_cli; later ones win. --brief: of the greedy tokens the first 12, and of the
ways in which a folder is written one, where every step takes long and another run has the rest.
"""
import argparse
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import adapters
import checkpoints
from answers import CLI, ask, log_softmax

TOLERANCE = 2e-3
# Refused among several ranks: heads of one group, norms over what every rank has a part of.
WHOLE = ("granitemoehybrid_mamba", "bitnet")
# Refused in a pipeline: layers that read the keys of another stage's.
OTHERS_KEYS = ("gemma3n", "gemma4")
# Members of config.json in the words of transformers 5, which it saves whatever words a folder came with; None: left out.
SAVED = {"gemma4": {"text_config": {"global_head_dim": None, "num_global_key_value_heads": None, "per_layer_config": {"1": {"head_dim": 32}, "4": {"head_dim": 32}}}},
         "gemma4_moe": {"global_head_dim": None, "num_global_key_value_heads": None, "per_layer_config": {i: {"head_dim": 24, "num_key_value_heads": 1} for i in "13"}},
         "kimi_linear": {"linear_attn_config": None, "first_k_dense_replace": None, "head_dim": 8, "linear_head_dim": 20, "linear_num_heads": 2, "linear_conv_kernel_dim": 4,
                         "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"], "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]},
         "nemotron_h": {"hybrid_override_pattern": None, "num_hidden_layers": None, "layers_block_type": ["linear_attention", "moe", "mlp", "full_attention", "moe"]},
         "granitemoehybrid_mamba": {"layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"]},
         "deepseek_v32_topk": {"layer_types": ["deepseek_sparse_attention"] * 3, "mlp_layer_types": ["dense", "sparse", "sparse"], "first_k_dense_replace": None},
         "falcon_mamba": {"expand": 16}} # intermediate_size says otherwise, and counts
PROMPTS = 3
STEPS = 32
BRIEF_STEPS = 12
COUNT = {True: 0, False: 0}


def check(name, ok, why=""):
    COUNT[bool(ok)] += 1
    if not ok: print(f"FAILED: {name}: {why}", flush=True)


def farthest(got, want):
    """The largest distance between two lists of numbers; infinite where one is longer or a number is none."""
    if len(got) != len(want): return math.inf
    distances = [abs(a - b) for a, b in zip(got, want)]
    return math.inf if any(x != x for x in distances) else max(distances, default=0.0)


def check_scores(name, model, prompt, extra):
    """Two checks."""
    right = log_softmax(prompt["logits_last"])
    span, ids = max(right) - min(right), json.dumps(prompt["token_ids"])
    got = ask("score", "-m", model, "--dtype", "float32", "--token-ids", ids, "--top-logprobs", str(len(right)), *extra)
    off = farthest(got["logprobs"][1:], prompt["logprobs_of_next"]) / span
    check(f"{name}, the prompt's log-probabilities", off <= TOLERANCE, f"{off:.1e} of the range away, at most {TOLERANCE} is right")
    chances = dict(got["next"])
    off = farthest([chances.get(i, math.nan) for i in range(len(right))], right) / span
    check(f"{name}, the next token's log-probabilities", off <= TOLERANCE, f"{off:.1e} of the range away, at most {TOLERANCE} is right")


def check_greedy(name, got, want):
    same = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    check(f"{name}, greedy tokens", got == want[:STEPS] and len(got) == STEPS, f"{len(got)} tokens, {same} of them as the first {STEPS} of transformers' {len(want)}")


def check_prompt(name, model, prompt, extra):
    """Three checks."""
    check_scores(name, model, prompt, extra)
    got = ask("generate", "-m", model, "--dtype", "float32", "--token-ids", json.dumps(prompt["token_ids"]), "-n", str(STEPS), "--temp", "0", "--ignore-eos", *extra)
    check_greedy(name, got["token_ids"], prompt["greedy_32"])


def check_together(name, model, prompts, extra):
    """Prompts of different lengths in one batch: a check each."""
    body = {"max_tokens": STEPS, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    lines = [json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {**body, "prompt": x["token_ids"]}}) for i, x in enumerate(prompts)]
    with tempfile.TemporaryDirectory() as work:
        asked, said = pathlib.Path(work, "in.jsonl"), pathlib.Path(work, "out.jsonl")
        asked.write_text("\n".join(lines) + "\n")
        p = subprocess.run([CLI, "batch", "-m", model, "--dtype", "float32", "-i", str(asked), "-o", str(said), *extra], capture_output=True, text=True, timeout=300)
        if p.returncode: raise RuntimeError(f"batch: exit {p.returncode}: {p.stderr[-300:]}")
        got = {x["custom_id"]: x["response"]["body"] for x in map(json.loads, said.read_text().splitlines())}
    for i, x in enumerate(prompts): check_greedy(f"{name} {i + 1} of a batch", got[str(i)]["choices"][0]["token_ids"], x["greedy_32"])


def check_family(family, extra):
    """Ten checks: the weights are the ones transformers had, and three of each prompt."""
    done = sum(COUNT.values())
    try:
        folder = checkpoints.folder(family)
        want = json.loads((folder / "expected.json").read_text())
        check(f"{family}, weights", checkpoints.digest(family) == want["weights_sha256"], "others than expected.json was made with: run tests/tools/make_expected.py")
        first, *others = want["prompts"][:PROMPTS]
        check_prompt(f"{family}, prompt 1", str(folder), first, extra)
        for i, prompt in enumerate(others): check_scores(f"{family}, prompt {i + 2}", str(folder), prompt, extra)
        check_together(f"{family}, prompt", str(folder), others, extra)
    except (RuntimeError, subprocess.TimeoutExpired, KeyError, ValueError, TypeError, OSError) as error:
        print(f"FAILED: {family}: {type(error).__name__}: {error}", flush=True)
    COUNT[False] += 1 + 3 * PROMPTS - (sum(COUNT.values()) - done) # those that it did not come to


def in_other_words(config, words):
    """A configuration with some members replaced."""
    out = {k: v for k, v in config.items() if k not in words}
    for k, v in words.items():
        if v is not None: out[k] = in_other_words(config[k], v) if isinstance(v, dict) and isinstance(config.get(k), dict) else v
    return out


def check_saved(family, extra):
    """Three checks more."""
    folder = checkpoints.folder(family)
    with tempfile.TemporaryDirectory() as other:
        for file in folder.iterdir(): os.symlink(file.resolve(), f"{other}/{file.name}")
        os.unlink(f"{other}/config.json")
        config = in_other_words(json.loads((folder / "config.json").read_text()), SAVED[family])
        pathlib.Path(other, "config.json").write_text(json.dumps(config))
        prompt = json.loads((folder / "expected.json").read_text())["prompts"][1]
        try: check_prompt(f"{family} as transformers saves it", other, prompt, extra)
        except RuntimeError as error: check(f"{family} as transformers saves it", False, error)


def check_stacked(family, extra):
    """Three checks more: queries, keys and values in one matrix, beside which what gates attention is one of its own."""
    folder = checkpoints.folder(family)
    tensors = adapters.folder_tensors(folder)
    for name in [x for x in tensors if x.endswith("self_attn.q_proj.weight")]:
        parts = [tensors.pop(name.replace("q_proj", f"{p}_proj")) for p in "qkv"]
        tensors[name.replace("q_proj", "qkv_proj")] = parts[0][0], [sum(p[1][0] for p in parts), parts[0][1][1]], b"".join(p[2] for p in parts)
    with tempfile.TemporaryDirectory() as other:
        for file in folder.iterdir():
            if file.suffix != ".safetensors": os.symlink(file.resolve(), f"{other}/{file.name}")
        adapters.write_safetensors(f"{other}/model.safetensors", tensors)
        prompt = json.loads((folder / "expected.json").read_text())["prompts"][1]
        try: check_prompt(f"{family} with one matrix", other, prompt, extra)
        except RuntimeError as error: check(f"{family} with one matrix", False, error)


def refusal(family, args):
    """The words with which these options are refused; None: they are not."""
    if family in OTHERS_KEYS and "-pp" in args: return "which cannot be in another stage"
    return "cannot be divided among so many ranks" if family in WHOLE and "-tp" in args else None


def check_refused(family, args, words):
    p = subprocess.run([CLI, "-m", str(checkpoints.BUILD / family), "-p", "a", "-n", "1", *args], capture_output=True, text=True)
    check(family, p.returncode and words in p.stderr, f"refused with \"{words}\" expected: exit {p.returncode}: {p.stderr[-300:]}")


def check_left_out(family):
    """Layers that predict further tokens are told of to who wants to know, and to nobody else."""
    said = [subprocess.run([CLI, "score", "-m", str(checkpoints.BUILD / family), "--token-ids", "[3,4]", *more], capture_output=True, text=True).stderr for more in ((), ("--log-level", "info"))]
    check(f"{family}, what is left out", "left out" not in said[0] and "layers that predict further tokens (1) are left out" in said[1], said)


def main():
    global STEPS
    parser = argparse.ArgumentParser()
    parser.add_argument("family", nargs="*")
    parser.add_argument("--args", default="")
    parser.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    unknown = set(options.family) - set(checkpoints.FAMILIES)
    if unknown: parser.error(f"no family {', '.join(sorted(unknown))}")
    if options.brief: STEPS = BRIEF_STEPS
    for family in options.family or checkpoints.FAMILIES:
        args = shlex.split(options.args)
        words = refusal(family, args)
        if words: check_refused(family, args, words)
        else: check_family(family, args)
        if family == "mimo": check_left_out(family)
        if options.brief: continue
        if family in SAVED and not words: check_saved(family, args)
        if family == "afmoe": check_stacked(family, args)
    print(f"{COUNT[True]} passed, {COUNT[False]} failed, 0 skipped")
    sys.exit(1 if COUNT[False] or not COUNT[True] else 0)


main()
