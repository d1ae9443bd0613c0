#!/usr/bin/env python3
"""llm_cli with the n-th allocation failing: the whole answer, or an error with exit 1; never a crash, never exit 0 with a part missing.

usage: tests/e2e/test_nth.py [--all] [--many] [--from N] [NAME...]     env LLM_CLI (default ./llm_cli)
Every command is run once without a failure, which says what the answer is and how many allocations there are (tests/tools/nth.c counts those of
the C library too), and then with one failing: --all for each n, else for a sample that differs from day to day. --many: all from the n-th on fail.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/tools"))
import checkpoints

CLI = os.path.abspath(os.environ.get("LLM_CLI", ROOT / "llm_cli"))
TINY = str(checkpoints.folder("llama"))
SAMPLE = 24
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"], "additionalProperties": False}}}
SAY = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Ann", "Bob"]}, "age": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["name", "age"], "additionalProperties": False}


def bodies():
    """Lines of a batch: what every route and most fields do."""
    chat, text, response = "/v1/chat/completions", "/v1/completions", "/v1/responses"
    common = {"max_tokens": 6, "temperature": 0}
    rows = [(chat, {"messages": SAY, **common}), (chat, {"messages": SAY, "n": 2, "logprobs": True, "top_logprobs": 2, "seed": 3, "max_tokens": 5}),
            (chat, {"messages": SAY, "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 60, "temperature": 0}),
            (text, {"prompt": ["ab", "cd"], "echo": True, "logprobs": 2, "prompt_logprobs": 1, "return_token_ids": True, **common}),
            (text, {"prompt": "ab", "use_beam_search": True, "best_of": 3, "n": 2, **common}), (text, {"prompt": [5, 6, 7], "stop": ["q", "zz"], "bad_words": ["x"], "logit_bias": {"9": -5}, **common}),
            (text, {"prompt": "x", "guided_json": SCHEMA, "max_tokens": 60, "temperature": 0}), (text, {"prompt": "x", "guided_regex": "[ab]{3}", **common}),
            ("/v1/embeddings", {"input": ["a", "b c"]}), (response, {"input": "hi", "max_output_tokens": 5, "temperature": 0, "include": ["message.output_text.logprobs"]}),
            (response, {"input": "hi", "tools": [{"type": "function", **TOOL["function"]}], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 60, "temperature": 0}), (chat, {"messages": []})]
    return "".join(json.dumps({"custom_id": str(i), "method": "POST", "url": url, "body": body}) + "\n" for i, (url, body) in enumerate(rows))


def commands(folder):
    """(name, arguments, standard input)"""
    batch, messages, options = (os.path.join(folder, x) for x in ("in.jsonl", "said.json", "options.json"))
    pathlib.Path(batch).write_text(bodies())
    pathlib.Path(options).write_text(json.dumps({"temperature": 0, "stop": ["qq"], "max-tokens": 8, "bad-words": ["xx", "yy"]}))
    return [("chat", ["-p", "hello", "-n", "8", "--temp", "0", "--system", "be kind"], ""), ("chat as JSON", ["chat", "-p", "hello", "-n", "8", "--temp", "0", "--json", "--logprobs", "2"], ""),
            ("answers", ["generate", "-p", "ab", "-n", "5", "--n", "3", "--seed", "7"], ""), ("schema", ["chat", "-p", "x", "--temp", "0", "--json-schema", json.dumps(SCHEMA), "-n", "60"], ""),
            ("options of a file", ["generate", "-p", "ab", "--config", options], ""), ("tokenize", ["tokenize", "--add-special"], "The quick brown fox, na\u00efve \u4e2d\u6587\n" * 20),
            ("tokenize lines", ["tokenize", "--jsonl"], "".join(json.dumps("line %d" % i * 9) + "\n" for i in range(8))), ("detokenize", ["detokenize"], json.dumps(list(range(200)))),
            ("detokenize lines", ["detokenize", "--jsonl"], "[1,2,3]\n[40,50]\n"), ("render", ["render"], json.dumps({"messages": SAY * 5, "add_generation_prompt": True})),
            ("render lines", ["render", "--jsonl"], (json.dumps({"messages": SAY, "add_generation_prompt": True}) + "\n") * 3), ("score", ["score", "-p", "hello world", "--json", "--top-logprobs", "3"], ""),
            ("score as text", ["score", "-p", "hello world"], ""), ("batch", ["batch", "-i", batch], ""), ("batch to a file", ["batch", "-i", batch, "-o", os.path.join(folder, "out.jsonl")], ""),
            ("info", ["info"], ""), ("help", ["--help-all"], ""), ("a mistake", ["--max-tok", "5"], "")]


def plain(out):
    """What is not the same from run to run: ids, times, addresses."""
    out = re.sub(rb'"(id|request_id|item_id)": ?"[^"]*"', b"", out)
    out = re.sub(rb'(call|chatcmpl|cmpl|embd|resp|msg|fc|batch_req|tok)[_-][0-9a-z_-]+', b"", out)
    out = re.sub(rb'(bytes_needed|bytes_available|fits) .*', b"", out) # a file that could not be mapped is read; how much memory is free now
    return re.sub(rb'"(created|created_at|metrics|[a-z_]*time[a-z_]*)": ?(\{[^}]*\}|[-0-9.e]+)', b"", out)


def run(args, said, n, many, number):
    counter = f"{WORK}/count{number}"
    pathlib.Path(counter).write_bytes(bytes(8))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LLM_ARG_", "HF_"))}
    env.update(LD_PRELOAD=str(NTH), NTH_COUNT=counter, HOME=WORK, **({"NTH_FAIL": str(n)} if n else {}), **({"NTH_MANY": "1"} if many else {}))
    args = [a.replace("out.jsonl", f"out{number}.jsonl") for a in args]
    kept = next((a for a in args if a.endswith(".jsonl") and "/out" in a), None)
    if kept: pathlib.Path(kept).unlink(missing_ok=True)
    model = [] if args[0] == "--help-all" else ["-m", TINY, "-t", "1"]
    try:
        p = subprocess.run([CLI, *args, *model], input=said.encode(), capture_output=True, env=env, cwd=ROOT, timeout=60)
        code, out, err = p.returncode, p.stdout, p.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired: code, out, err = "time over", b"", ""
    if kept and os.path.exists(kept): out += pathlib.Path(kept).read_bytes()
    return code, plain(out), err, struct.unpack("q", pathlib.Path(counter).read_bytes())[0]


def starved_lines(out, good):
    """A batch: each line is the good one, or says with its own id that it found no memory; the others go on."""
    got, want = out.splitlines(), good.splitlines()
    says = [g == w or (b'"status_code":503' in g and b"out of memory" in g and g.split(b'"custom_id":')[1][:4] == w.split(b'"custom_id":')[1][:4]) for g, w in zip(got, want)]
    return len(got) == len(want) and all(says) and sum(g != w for g, w in zip(got, want)) == 1


def wrong(name, got, good):
    """None, or what is wrong with a run beside the good one."""
    code, out, err, _ = got
    last = err.rstrip("\n").split("\n")[-1]
    if code == good[0] and out == good[1]: return None # it did without, or it was a try
    if name.startswith("batch") and code == 0 and starved_lines(out, good[1]): return None
    if code == good[0] == 0: return "exit 0, the answer is another one: %r" % out[:200]
    if code in (1, 2) and code == good[0] and last.startswith("llm_cli: error: "): return None
    if code != 1: return f"exit {code}: {err[-200:]!r}"
    if not last.startswith("llm_cli: error: "): return f"no error line: {err[-200:]!r}"
    return None


def main():
    global WORK, NTH
    ap = argparse.ArgumentParser()
    ap.add_argument("--all", action="store_true")
    ap.add_argument("--many", action="store_true")
    ap.add_argument("--from", type=int, default=1, dest="begin")
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    NTH = ROOT / "build/nth.so"
    subprocess.run([os.environ.get("CC", "cc").split()[-1], "-O1", "-shared", "-fPIC", str(ROOT / "tests/tools/nth.c"), "-o", str(NTH)], check=True)
    passed = failed = 0
    seed = int(time.time() // 86400)
    with tempfile.TemporaryDirectory() as WORK, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, args, said in commands(WORK):
            if a.names and name not in a.names: continue
            good = run(args, said, 0, 0, name.replace(" ", "-"))
            total = good[3]
            if not total or good[0] not in ((2,) if name == "a mistake" else (0,)):
                failed += 1
                print(f"FAILED: {name}: without a failure: {good}")
                continue
            points = list(range(a.begin, total + 1))
            if not a.all: points = sorted(random.Random(f"{seed}{name}").sample(points, min(SAMPLE, len(points))))
            bad = collections.Counter()
            for n, got in zip(points, pool.map(lambda n: run(args, said, n, a.many, n), points)):
                why = wrong(name, got, good)
                passed, failed = passed + (not why), failed + bool(why)
                if not why: continue
                bad[str(why)[:40]] += 1
                if bad[str(why)[:40]] <= 12: print(f"FAILED: {name}: allocation {n} of {total}: {why}", flush=True)
            if a.all: print(f"{name}: {total} allocations, {sum(bad.values())} wrong", flush=True)
    print(f"{passed} passed, {failed} failed (seed {seed})")
    return failed > 0


if __name__ == "__main__": sys.exit(main())
