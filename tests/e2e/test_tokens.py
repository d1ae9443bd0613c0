#!/usr/bin/env python3
"""`llm_cli tokenize` and `detokenize` beside the ids and texts of the Hugging Face library and of llama.cpp.

usage: tests/e2e/test_tokens.py [--model MODEL] GOLDEN...

A golden is NAME.jsonl (rows of text, ids and decoded text), NAME.decode.jsonl (rows of ids and decoded text) or llama.cpp's NAME.gguf.inp, with the
ids in NAME.gguf.out. manifest.json beside it names the model; without an entry there it is NAME.gguf.
"""
import argparse
import json
import pathlib
import sys

from rows import Rows, difference

PARTED_BY = "\n__ggml_vocab_test__\n"
MODELS = {"smollm2.gguf": "models/SmolLM2-135M-Instruct.Q4_1.gguf", "gemma.gguf": "models/gemma-3-270m-q4_k_m.gguf"}
# the column of a golden and the command whose answer it is
COLUMNS = (("ids", ["tokenize", "--parse-special"]), ("ids_special", ["tokenize", "--parse-special", "--add-special"]), ("ids_plain", ["tokenize"]))


def same(got, wanted):
    """One of the right answers, and ids that are whole numbers (1.0 and true are none)."""
    return any(type(got) is type(w) and got == w for w in wanted) and (isinstance(got, str) or all(type(x) is int for x in got))


def tables(path):
    """(name, command, inputs, right answers to each) of one golden. Where the two references disagree ("hf_" before a column) both are right."""
    if path.suffix == ".inp":
        texts = path.read_bytes().decode().split(PARTED_BY)
        lines = path.with_suffix(".out").read_text().split("\n")
        yield "plain", ["tokenize"], texts, [[[int(x) for x in line.split()]] for line in lines[:len(texts)]]
        return
    rows = [json.loads(line) for line in path.read_bytes().decode().split("\n") if line]
    if not path.name.endswith(".decode.jsonl"):
        for column, command in COLUMNS:
            right = [[r.get(column, r["ids"])] + [r[x] for x in ("hf_" + column,) if x in r] for r in rows]
            yield column, command, [r["text"] for r in rows], right
    yield "decoded", ["detokenize"], [r["ids"] for r in rows], [[r["decoded"]] for r in rows]


def model_of(path):
    """The model that manifest.json names, or the vocabulary that stands beside the golden."""
    named = json.loads((path.parent / "manifest.json").read_text()).get(path.name)
    if not named: return path.with_suffix("")
    name = named["model"]
    return pathlib.Path(MODELS[name]) if name in MODELS else path.parent / name


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("golden", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    rows = Rows("tokens")
    for path in args.golden:
        model = args.model or model_of(path)
        if not model.exists(): sys.exit(f"tokens: {path.name}: {model} is not there")
        before = rows.equal, rows.total
        for name, command, inputs, wanted in tables(path):
            answers = rows.ask(f"{path.name}, {name}", [command[0], "-m", str(model), "--jsonl", *command[1:]], inputs)
            for value, got, right in zip(inputs, answers, wanted, strict=True):
                rows.row(f"{path.name}, {name}, {ascii(value)[:80]}", same(got, right), lambda: difference(got, right[0]))
        print(f"{path.name}: {rows.equal - before[0]} of {rows.total - before[1]}")
    return rows.finish()


sys.exit(main())
