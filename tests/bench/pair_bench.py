#!/usr/bin/env python3
"""llm_cli bench beside llama.cpp on one GGUF file: both in turn, round by round, and the ratio of the medians, which travels from machine to machine better than tokens/s do.

    pair_bench.py --ours ./llm_cli --peer DIR --model FILE.gguf [--rounds 5] [--threads 2] [--tests pp512,tg128,tg128@8]

DIR has llama-bench and llama-batched-bench (tests/bench/peer.sh builds them). A test is ppN (a prompt of N tokens), tgN (N tokens of one answer) or tgN@B (of B answers at once).
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys


def rows(command, env=None):
    p = subprocess.run([str(x) for x in command], capture_output=True, text=True, env=env)
    if p.returncode: sys.exit(f"{command[0]}: exit {p.returncode}\n{p.stderr[-800:]}")
    return [json.loads(x) for x in p.stdout.splitlines() if x.startswith("{")]


def ours(args, kind, n, batch):
    p, g = (n, 0) if kind == "pp" else (0, n)
    found = rows([args.ours, "bench", "-m", args.model, "-t", args.threads, "-r", 1, "--json", "-p", p, "-n", g, "-b", batch])
    names = (f"{kind}{n}", f"{kind}{n}@{batch}")
    return next(r["median"] for r in found if r["test"] in names)


def peer(args, kind, n, batch):
    env = dict(os.environ, LD_LIBRARY_PATH=args.peer)
    common = ["-m", args.model, "-t", args.threads]
    if batch == 1:
        p, g = (n, 0) if kind == "pp" else (0, n)
        return rows([args.peer + "/llama-bench", *common, "-p", p, "-n", g, "-r", 1, "-o", "jsonl"], env)[-1]["avg_ts"]
    prompt, context = 16, (n + 64) * batch + 256
    sizes = ["-c", context, "-b", 2048, "-ub", 512, "-npp", prompt, "-ntg", n, "-npl", batch]
    return rows([args.peer + "/llama-batched-bench", *common, *sizes, "--output-format", "jsonl"], env)[-1]["speed_tg"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--peer", "--model"): parser.add_argument(name, required=True)
    for name, usual in (("--ours", "./llm_cli"), ("--rounds", 5), ("--threads", 2), ("--tests", "pp512,tg128,tg128@8")): parser.add_argument(name, default=usual, type=type(usual))
    args = parser.parse_args()
    for test in args.tests.split(","):
        m = re.fullmatch(r"(pp|tg)(\d+)(?:@(\d+))?", test)
        if not m: sys.exit(f"pair_bench: {test}: not ppN, tgN or tgN@B")
        what = m[1], int(m[2]), int(m[3] or 1)
        pairs = [(ours(args, *what), peer(args, *what)) for _ in range(args.rounds)]
        us, them = zip(*pairs)
        ratio = statistics.median(us) / statistics.median(them)
        print(f"{test:10s} ours {statistics.median(us):9.1f}  llama.cpp {statistics.median(them):9.1f}  ratio {ratio:5.2f}  (ours {min(us):.0f}-{max(us):.0f}, llama.cpp {min(them):.0f}-{max(them):.0f})", flush=True)


main()
