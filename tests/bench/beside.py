#!/usr/bin/env python3
"""Two commands in turn, round by round, and the ratio of the medians of the figures they print.

    beside.py [-r ROUNDS] [--less] [--prefix CMD] OURS PEER

OURS and PEER are shell commands; a figure is the last number that one prints, on either output; "s" stands for the seconds it took: 's: CMD'.
--less: less is better, the ratio is peer / ours. --prefix: a command put before each, such as one that keeps the machine quiet.
"""
import argparse
import re
import statistics
import subprocess
import sys
import time


def figure(command, prefix):
    timed = command.startswith("s:")
    start = time.perf_counter()
    p = subprocess.run(prefix.split() + ["sh", "-c", command[2:] if timed else command], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    took = time.perf_counter() - start
    numbers = re.findall(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", p.stdout + p.stderr)
    if p.returncode or not timed and not numbers: sys.exit(f"{command}: exit {p.returncode}\n{(p.stdout + p.stderr)[-800:]}")
    return took if timed else float(numbers[-1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-r", "--rounds", type=int, default=5)
    p.add_argument("--less", action="store_true")
    p.add_argument("--prefix", default="")
    p.add_argument("ours")
    p.add_argument("peer")
    a = p.parse_args()
    mine, theirs = [], []
    for _ in range(a.rounds):
        mine.append(figure(a.ours, a.prefix))
        theirs.append(figure(a.peer, a.prefix))
    m, t = statistics.median(mine), statistics.median(theirs)
    print(f"ours {m:.4g} ({min(mine):.4g}-{max(mine):.4g})  peer {t:.4g} ({min(theirs):.4g}-{max(theirs):.4g})  ratio {(t / m if a.less else m / t):.2f}")


main()
