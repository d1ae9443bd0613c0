#!/usr/bin/env python3
"""Families of text models in random shapes with random weights: llm_cli beside transformers.

    text_shapes.py [FAMILY...] [--seeds 3] [--first 0] [--args "--isa scalar"] [-v]        env LLM_CLI (./llm_cli)

Needs torch and transformers (setup.py shapes) and build/checkpoints (make checkpoints), for their tokenizer. A shape is what the family's
configuration of transformers says by itself, with other numbers: heads, widths, layers, windows, experts, ranks, and with switches (biases, norms, tied
outputs, parallel blocks) turned over now and then. transformers makes the weights and computes in float32; compared are the log-probabilities
of up to 100 tokens, relative to the range of the logits; of encoders vectors, relative to their length: a right engine is under 1e-5, a wrong detail
over 1e-3. A shape that transformers itself refuses is skipped; one that llm_cli refuses counts as refused, with its sentence: some are variants that nobody published.
"""
import argparse
import json
import os
import pathlib
import random
import shlex
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

from text_shape_table import ALONE, ENCODERS, FAMILIES, shape

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "build/checkpoints/llama"
CLI = os.environ.get("LLM_CLI", str(ROOT / "llm_cli"))


def weights(model, seed):
    """Large enough that each of them is seen in the logits."""
    torch.manual_seed(seed)
    with torch.no_grad():
        kept = {id(p) for p in model.state_dict(keep_vars=True).values()}
        for b in model.buffers():
            if id(b) in kept and b.is_floating_point(): b.add_(torch.randn_like(b) * 0.25)
        for p in model.parameters():
            if p.dim() == 1: p.add_(torch.randn_like(p) * 0.25)
            else: p.normal_(0, 1.2 / p.shape[-1] ** 0.5)


def made(family, kind, changed, seed, folder):
    """Makes the folder; the model as transformers reads what it wrote."""
    how = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = (kind._from_config if family in ALONE else kind.from_config)(transformers.CONFIG_MAPPING[family](**changed), **how).eval()
    weights(model, seed)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"): shutil.copy(TOKENIZER / name, folder)
    return kind.from_pretrained(folder, experts_implementation="eager", **how).eval()


def cli(command, folder, ids, extra):
    p = subprocess.run([CLI, command, "-m", folder, "--token-ids", json.dumps(ids), "--json", "--dtype", "float32", *extra], capture_output=True, text=True, timeout=120)
    if p.returncode: raise RuntimeError(p.stderr.strip()[:300])
    return json.loads(p.stdout)


def text(family, changed, seed, folder, ids, extra):
    """How far the log-probabilities of the ids from the second on differ, as a share of the range of the last logits."""
    model = made(family, getattr(transformers, ALONE.get(family, "AutoModelForCausalLM")), changed, seed, folder)
    with torch.no_grad(): logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()
    said = logits.log_softmax(-1)
    yield # all is made
    got = cli("score", folder, ids, extra)["logprobs"]
    yield max(abs(got[i + 1] - said[i, x].item()) for i, x in enumerate(ids[1:])) / (logits[-1].max() - logits[-1].min()).item()


def vector(family, changed, seed, folder, ids, extra):
    """How far the means of the last hidden states differ, and those of the first token, as a share of their length."""
    kind = transformers.AutoModelForMaskedLM if seed % 2 and family in ("bert", "roberta", "mpnet", "distilbert", "modernbert") else transformers.AutoModel # their files have other names
    model = made(family, kind, changed, seed, folder)
    with torch.no_grad(): states = getattr(model, model.base_model_prefix, model)(input_ids=torch.tensor([ids])).last_hidden_state[0].double()
    (pathlib.Path(folder) / "1_Pooling").mkdir()
    pathlib.Path(folder, "modules.json").write_text(json.dumps([{"idx": i, "path": x, "type": "sentence_transformers.models." + t} for i, (x, t) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling")))]))
    yield
    off = 0
    for pooling, want in (("mean", states.mean(0)), ("cls", states[0]), ("lasttoken", states[-1])):
        pathlib.Path(folder, "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": pooling}))
        got = torch.tensor(cli("embed", folder, ids, extra)["embedding"], dtype=torch.float64)
        off = max(off, ((got - want).norm() / want.norm()).item())
    yield off


def run(family, seed, extra, verbose):
    """'equal', 'not equal', 'refused' or 'skipped'."""
    rng = random.Random(f"{family} {seed}")
    changed = shape(transformers.CONFIG_MAPPING[family]().to_dict(), rng)
    ids = [rng.randrange(3, 480) for _ in range(rng.choice([2, 10, 61, 101]))]
    with tempfile.TemporaryDirectory() as folder:
        compared = (vector if family in ENCODERS else text)(family, changed, seed, folder, ids, extra)
        try: next(compared)
        except Exception as err: result, why = "skipped", f"transformers: {type(err).__name__}: {str(err)[:200]}"
        else:
            try: off = next(compared)
            except RuntimeError as err: result, why = "refused", str(err)
            else: result, why = "equal" if off < 1e-4 else "not equal", f"{off:.1e}"
    if verbose or result == "not equal" or result == "refused": print(f"{family} {seed}: {result}: {why}: {changed}", flush=True)
    return result


def main():
    p = argparse.ArgumentParser()
    p.add_argument("family", nargs="*")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--args", default="")
    p.add_argument("-v", action="store_true")
    a = p.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    done = dict.fromkeys(("equal", "not equal", "refused", "skipped"), 0)
    for family in a.family or FAMILIES + ENCODERS:
        for seed in range(a.first, a.first + a.seeds): done[run(family, seed, shlex.split(a.args), a.v)] += 1
    print(", ".join(f"{n} {what}" for what, n in done.items()))
    sys.exit(1 if done["not equal"] else 0)


main()
