#!/usr/bin/env python3
"""Programs beside each other on the shapes that people run: all of them in turn, round by round, and the ratios of ours to each other one.

    speed.py [--old NAME=PROGRAM]... [--peer NAME=DIR]... [--shapes LIST] [--tests LIST] [--rounds 5] [--threads 2] [--isa NAME] [--ours ./llm_cli] [--quiet CMD]

--old      another llm_cli (against.sh builds those of older commits)
--peer     llama.cpp or ik_llama.cpp: DIR has llama-bench and llama-batched-bench; the name begins with "ik" where it is the latter
--shapes   names of SHAPES below, or paths of GGUF files; "all": every one. The usual ones fit in 20 minutes. Random files are made in build/bench
--tests    ppN (a prompt of N tokens), tgN (N tokens of one answer), tgN@B (of B answers at once), tgN+D (behind D tokens); without it those of the shape
--quiet    a command that is put before every round, such as one that waits until the machine has nothing else to do

Rates are tokens a second, medians of all rounds (lowest to highest). A ratio is the median of the rounds' ratios: what was measured within the same
minute. A difference is beyond the noise, and marked, where all rounds agree on its sign and it is more than 2 %: "+" ours is faster, "-" slower.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LARGE = "pp256 tg32 tg32@8"
# name: (file of models/, or what random_gguf.py is given), tests
SHAPES = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf", "pp512 tg128 tg128@8 tg128@16"),
    "gemma": ("gemma-3-270m-q4_k_m.gguf", "pp512 tg64"),
    "llama1b": ("llama1b", LARGE),
    "qwen4b": ("qwen4b --layers 12", LARGE),
    "llama8b": ("llama8b --layers 10", LARGE),
    "qwen3moe": ("qwen3moe --layers 12", LARGE),
    "dsv2lite": ("dsv2lite --experts 16", LARGE),
    "llama1b-q8_0": ("llama1b --mix q8_0", LARGE),
    "llama1b-q5_k_m": ("llama1b --mix q5_k_m", LARGE),
    "llama1b-q6_k": ("llama1b --mix q6_k", LARGE),
    "llama1b-q4_0": ("llama1b --mix q4_0", LARGE),
    "llama1b-iq4_xs": ("llama1b --mix iq4_xs", LARGE),
    "long": ("llama1b", "pp4096 tg32+4096"),
    "longer": ("llama1b", "pp16384 tg32+16384"),
    "bf16": ("qwen600m --mix bf16", "pp256 tg32 tg32@8"),
    "states": ("qwen35", "pp512 tg32 tg16@8"),
}
USUAL = "smollm2,gemma,llama1b,qwen3moe,dsv2lite,llama1b-q6_k"


def model_of(shape):
    """The shape's file, made where it is not there."""
    if shape not in SHAPES: return shape, "pp512 tg128"
    what, tests = SHAPES[shape]
    if what.endswith(".gguf"): return f"models/{what}", tests
    path = pathlib.Path("build/bench") / (what.replace(" --", "-").replace(" ", "") + ".gguf")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        name, *rest = what.split(" ")
        subprocess.run([sys.executable, HERE / "random_gguf.py", name, part, *rest], check=True)
        part.rename(path)
    return str(path), tests


def rows(command, env=None):
    p = subprocess.run([str(x) for x in command], capture_output=True, text=True, env=env)
    if p.returncode: raise RuntimeError(f"{command[0]}: exit {p.returncode}\n{p.stderr[-800:]}")
    text = p.stdout.strip()
    try: return json.loads(text) if text.startswith("[") else [json.loads(x) for x in text.splitlines() if x.startswith("{")]
    except ValueError: raise RuntimeError(f"{command[0]}: no JSON: {text[:200]}") from None


def ours(args, program, model, test):
    kind, n, batch, depth = test
    command = [program, "bench", "-m", model, "-t", args.threads, "-r", args.repeat, "--json", *(["--isa", args.isa] if args.isa else [])]
    command += ["-p", n, "-n", 0] if kind == "pp" else ["-p", 0, "-n", n, "-b", batch]
    if depth: command += ["--depth", depth]
    row = rows(command)[-1]
    return row["median"], row


def peer(args, name, folder, model, test):
    kind, n, batch, depth = test
    env = dict(os.environ, LD_LIBRARY_PATH=folder)
    ik, common = name.startswith("ik"), ["-m", model, "-t", args.threads]
    if batch == 1:
        p, g = (n, 0) if kind == "pp" else (0, n)
        if depth and ik: raise RuntimeError("ik_llama.cpp: llama-bench knows no depth")
        sizes = ["-p", p, "-n", g, "-r", args.repeat, "-o", "json", *(["-rtr", 1] if ik else []), *(["-d", depth] if depth else [])]
        return rows([folder + "/llama-bench", *common, *sizes], env)[-1]["avg_ts"]
    context = (n + 64) * batch + 256
    sizes = ["-c", context, "-b", 2048, "-ub", 512, "-npp", 16, "-ntg", n, "-npl", batch, *(["-rtr"] if ik else []), "--output-format", "jsonl"]
    return rows([folder + "/llama-batched-bench", *common, *sizes], env)[-1]["speed_tg"]


def parse(test):
    m = re.fullmatch(r"(pp|tg)(\d+)(?:@(\d+))?(?:\+(\d+))?", test)
    if not m: sys.exit(f"speed: {test}: not ppN, tgN, tgN@B or tgN+D")
    return m[1], int(m[2]), int(m[3] or 1), int(m[4] or 0)


def one_round(args, model, test):
    """Rates by contestant, in turn; what one cannot do is not in it."""
    found, said = {}, {}
    for name, what, is_peer in args.all:
        try:
            if is_peer: found[name] = peer(args, name, what, model, test)
            else: found[name], said[name] = ours(args, what, model, test)
        except RuntimeError as e:
            if name == "ours": sys.exit(f"speed: {e}")
            print(f"speed: {model}: {e}", file=sys.stderr)
    return found, said.get("ours", {})


def compare(mine, theirs):
    """The ratio of pairs, its spread, and the mark."""
    ratios = sorted(a / b for a, b in zip(mine, theirs))
    middle = statistics.median(ratios)
    mark = "+" if ratios[0] > 1 and middle > 1.02 else "-" if ratios[-1] < 1 and middle < 0.98 else ""
    return middle, ratios[0], ratios[-1], mark


def measure(args, shape, model, name):
    rounds, row = [], {}
    for _ in range(args.rounds):
        if args.quiet: # this program again for one round, behind the command
            again = [*args.quiet.split(), sys.executable, __file__, *args.again, "--one", json.dumps([model, name])]
            found, row = json.loads(subprocess.run(again, stdout=subprocess.PIPE, text=True, check=True).stdout)
        else:
            found, row = one_round(args, model, parse(name))
        rounds.append(found)
    names = [n for n, _, _ in args.all if all(n in r for r in rounds)]
    rates = {n: [r[n] for r in rounds] for n in names}
    cells = [f"{statistics.median(rates['ours']):.4g} ({min(rates['ours']):.4g}-{max(rates['ours']):.4g})"]
    out = {"shape": shape, "test": name, "isa": row.get("isa"), "rates": rates}
    for n, _, _ in args.all[1:]:
        if n not in rates:
            cells.append("")
            continue
        middle, low, high, mark = compare(rates["ours"], rates[n])
        out.setdefault("ratios", {})[n] = [middle, low, high, mark]
        cells.append(f"{statistics.median(rates[n]):.4g}: **{middle:.2f}** ({low:.2f}-{high:.2f}) {mark}".rstrip())
    share = row.get("read_gb_s", 0) / row["peak_gb_s"] if row.get("peak_gb_s") and name.startswith("tg") and "@" not in name else 0
    cells.append(f"{row['read_gb_s']:.1f} of {row['peak_gb_s']:.1f} GB/s: {share:.2f}" if share else "")
    print(f"| {shape} | {name} | " + " | ".join(cells) + " |", flush=True)
    if args.json: print(json.dumps(out), file=args.json, flush=True)
    return out


def contestants(args):
    pairs = [x.split("=", 1) for x in args.old + args.peer]
    if any(len(p) != 2 for p in pairs): sys.exit("speed: --old and --peer want NAME=PATH")
    return [("ours", args.ours, False)] + [(n, p, i >= len(args.old)) for i, (n, p) in enumerate(pairs)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--old", "--peer"): parser.add_argument(name, action="append", default=[])
    for name, usual in (("--ours", "./llm_cli"), ("--shapes", USUAL), ("--tests", ""), ("--rounds", 5), ("--threads", 2), ("--repeat", 1), ("--isa", ""), ("--quiet", ""), ("--one", "")):
        parser.add_argument(name, default=usual, type=type(usual))
    parser.add_argument("--json", type=argparse.FileType("a"))
    args = parser.parse_args()
    args.all = contestants(args)
    if args.one:
        model, name = json.loads(args.one)
        return print(json.dumps(one_round(args, model, parse(name))))
    args.again = [a for i, a in enumerate(sys.argv[1:], 1) if a not in ("--quiet", "--json") and sys.argv[i - 1] not in ("--quiet", "--json")]
    shapes = list(SHAPES) if args.shapes == "all" else args.shapes.split(",")
    print("| shape | test | ours, tokens/s | " + " | ".join(n for n, _, _ in args.all[1:]) + " | one answer: weights read |")
    print("| --- " * (3 + len(args.all)) + "|")
    slower = []
    for shape in shapes:
        model, tests = model_of(shape)
        if not pathlib.Path(model).exists():
            print(f"speed: {model} is not there: left out", file=sys.stderr)
            continue
        for name in (args.tests or tests).replace(",", " ").split():
            out = measure(args, shape, model, name)
            slower += [f"{shape} {name}: {r[0]:.2f} of {n}" for n, r in out.get("ratios", {}).items() if r[3] == "-"]
    print(f"{len(slower)} slower beyond the noise" + (": " + "; ".join(slower) if slower else ""))


main()
