#!/usr/bin/env python3
"""The two real models beside their exact meaning: every weight dequantised, everything computed in float32 (build/data/golden).

usage: tests/e2e/test_golden.py [MODEL...]      smollm2, gemma; SMOLLM2_GGUF, GEMMA_GGUF and LLM_CLI name other files

llama.cpp rounds activations to int8 and stands at a recorded distance from the exact results; that distance is the bar. Over all passages:
the mean difference of log-probabilities is at most FACTOR times llama.cpp's; perplexity differs by at most PERPLEXITY % or as much as
llama.cpp's; the divergence on the lists of the ten best is at most DIVERGENCE times llama.cpp's, which catches wrong lists. A greedy
continuation may leave the reference's only where its best token leads the second by less than a margin: MARGIN, or three times the error
(root mean square) of llama.cpp's own leads where that is more. Behind an end token engines may rightly differ.
"""
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys

FACTOR, PERPLEXITY, DIVERGENCE, MARGIN = 1.03, 0.5, 2.0, 0.05
FOLDER = pathlib.Path("build/data/golden")
MODELS = {"smollm2": ("SMOLLM2_GGUF", "models/SmolLM2-135M-Instruct.Q4_1.gguf"), "gemma": ("GEMMA_GGUF", "models/gemma-3-270m-q4_k_m.gguf")}
CLI = shlex.split(os.environ.get("LLM_CLI", "./llm_cli"))
COUNT = [0, 0]


class Wrong(Exception):
    """An answer that is not of the promised form."""


def need(ok, what):
    if not ok: raise Wrong(what)


def check(name, ok, figures):
    COUNT[not ok] += 1
    print(f"{'ok  ' if ok else 'FAILED:'} {name}: {figures}", flush=True)


def answer(*args):
    try: p = subprocess.run([*CLI, *args], capture_output=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error: raise Wrong(error) from error
    need(p.returncode == 0, f"exit {p.returncode}: {p.stderr.decode(errors='replace')[-200:]}")
    try: value = json.loads(p.stdout)
    except ValueError as error: raise Wrong(f"not one JSON object: {error}") from error
    need(isinstance(value, dict), "not a JSON object")
    return value


def finite(x):
    return type(x) in (int, float) and math.isfinite(x)


def goldens(model, kind):
    found = [json.loads(x.read_text(encoding="utf-8")) for x in sorted((FOLDER / model).glob(kind + "_*.json"))]
    if not found: sys.exit(f"golden: no {kind}_*.json in {FOLDER / model}")
    return found


def check_top(i, top, token, logprob):
    """The ten best at one place: ten different ids in order, no more than all of the probability, and in agreement with the token's own."""
    pairs = isinstance(top, list) and len(top) == 10 and all(isinstance(x, list) and len(x) == 2 and type(x[0]) is int and finite(x[1]) for x in top)
    need(pairs, f"top_logprobs[{i}] is not ten pairs")
    need(all(a[1] >= b[1] for a, b in zip(top, top[1:])), f"top_logprobs[{i}] is not in order")
    need(len({x[0] for x in top}) == 10, f"top_logprobs[{i}] has an id twice")
    need(sum(math.exp(x[1]) for x in top) <= 1.001, f"top_logprobs[{i}] adds up to more than 1")
    own = dict(map(tuple, top)).get(token)
    if own is None: need(logprob <= top[-1][1] + 1e-3, f"top_logprobs[{i}] lacks the token itself")
    else: need(abs(own - logprob) <= 1e-3, f"top_logprobs[{i}] and logprobs[{i}] differ")


def scored(model, ids):
    """Log-probabilities and lists of the ten best for one passage, after a look whether they can be what they claim to be."""
    a = answer("score", "-m", model, "--token-ids", json.dumps(ids), "--top-logprobs", "10", "--json")
    need(a.get("token_ids") == ids, "token_ids are other ones")
    logprobs, tops = a.get("logprobs"), a.get("top_logprobs")
    need(isinstance(logprobs, list) and isinstance(tops, list) and len(logprobs) == len(tops) == len(ids), "logprobs, top_logprobs: not an entry a token")
    need(logprobs[0] is None, "logprobs[0] is not null")
    need(all(finite(x) and x <= 1e-4 for x in logprobs[1:]), "logprobs: not all numbers below 0")
    for i in range(1, len(ids)): check_top(i, tops[i], ids[i], logprobs[i])
    perplexity = math.exp(-sum(logprobs[1:]) / (len(ids) - 1))
    need(finite(a.get("perplexity")) and abs(a["perplexity"] / perplexity - 1) <= 1e-3, "perplexity is not that of logprobs")
    return logprobs, tops


def divergence(reference, top):
    """Kullback-Leibler divergence over the ids that both lists have, and all others as one."""
    other, sum_reference, sum_other, total = dict(map(tuple, top)), 0.0, 0.0, 0.0
    for token, logprob in reference:
        if token not in other: continue
        total += math.exp(logprob) * (logprob - other[token])
        sum_reference, sum_other = sum_reference + math.exp(logprob), sum_other + math.exp(other[token])
    rest, rest_other = max(1 - sum_reference, 1e-9), max(1 - sum_other, 1e-9)
    return total + rest * math.log(rest / rest_other)


class Distance:
    """How far log-probabilities stand from the reference's, over all passages."""

    def __init__(self):
        self.differences, self.divergences = [], []

    def add(self, logprobs, reference, divergences):
        self.differences += [b - a for a, b in zip(logprobs[1:], reference[1:], strict=True)]
        self.divergences += divergences

    def figures(self):
        """(mean absolute difference, perplexity above the reference's in %, mean divergence)"""
        n = len(self.differences)
        return sum(map(abs, self.differences)) / n, 100 * math.expm1(sum(self.differences) / n), sum(self.divergences) / len(self.divergences)


def passages(name, model):
    ours, theirs = Distance(), Distance()
    for g in goldens(name, "score"):
        try: logprobs, tops = scored(model, g["token_ids"])
        except Wrong as error:
            check(f"{name}, {g['name']}", False, error)
            continue
        check(f"{name}, {g['name']}", True, f"{len(logprobs)} tokens")
        ours.add(logprobs, g["logprobs"], [divergence(top, tops[int(i)]) for i, top in g["top_logprobs"].items()])
        theirs.add(g["llama_cpp"]["logprobs"], g["logprobs"], [g["llama_cpp"]["top_kl_mean"]] * len(g["top_logprobs"]))
    if not ours.differences: return
    mean, perplexity, kl = ours.figures()
    their_mean, their_perplexity, their_kl = theirs.figures()
    check(f"{name}, log-probabilities", mean <= FACTOR * their_mean, f"mean difference {mean:.5f}, llama.cpp {their_mean:.5f}")
    check(f"{name}, perplexity", abs(perplexity) <= max(PERPLEXITY, abs(their_perplexity)), f"{perplexity:+.2f} %, llama.cpp {their_perplexity:+.2f} %")
    check(f"{name}, the ten best", kl <= DIVERGENCE * their_kl, f"divergence {kl:.2e}, llama.cpp {their_kl:.2e}")


def greedy(name, model):
    found = goldens(name, "greedy")
    errors = [(lead - margin) ** 2 for g in found for lead, margin in zip(g["llama_cpp"]["leads"], g["margins"]) if margin < 1]
    forgiven = max(MARGIN, 3 * math.sqrt(sum(errors) / max(len(errors), 1)))
    for g in found:
        want = g["token_ids"]
        try:
            got = answer("generate", "-m", model, "--token-ids", json.dumps(g["prompt_token_ids"]), "-n", str(len(want)), "--temp", "0", "--ignore-eos", "--json").get("token_ids")
            need(isinstance(got, list) and len(got) == len(want), f"token_ids: not {len(want)} ids")
        except Wrong as error:
            check(f"{name}, {g['name']}", False, error)
            continue
        n = len(want) if g["first_end_token"] is None else g["first_end_token"]
        at = next((i for i in range(n) if got[i] != want[i]), None)
        figures = f"{n} tokens equal" if at is None else f"another token at {at} of {n}, where the lead is {g['margins'][at]:.3f}; {forgiven:.3f} is forgiven"
        check(f"{name}, {g['name']}", at is None or g["margins"][at] < forgiven, figures)


def main():
    for name in sys.argv[1:] or MODELS:
        variable, usual = MODELS[name]
        model = os.environ.get(variable, usual)
        if not os.path.isfile(model): sys.exit(f"golden: {model} is not there: run make model model-gemma")
        passages(name, model)
        greedy(name, model)
    print(f"{COUNT[0]} passed, {COUNT[1]} failed")
    return COUNT[1] > 0


sys.exit(main())
