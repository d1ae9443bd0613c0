#!/usr/bin/env python3
"""A prompt with one picture: llm_serve beside llama-server, on the same two GGUF files, in turns; each time another picture of that size.

    see.py MODEL MMPROJ [--size 448x448] [--peer DIR] [-r ROUNDS] [-t THREADS] [--ops GFLOP]

Seconds from the request to its only token, medians (lowest-highest), and the ratio. --ops: what the tower computes for such a picture in 10^9 operations;
then also GFLOP/s in the tower, by llm_serve's own clock. DIR has llama-server. Environment: LLM_SERVE (./llm_serve).
"""
import argparse
import base64
import json
import math
import os
import re
import statistics
import struct
import subprocess
import sys
import time
import urllib.request
import zlib


def picture(w, h, seed):
    rows = b"".join(b"\0" + bytes(int(128 + 100 * math.sin((x * (c + 1) + y + 13 * seed) / 37)) & 255 for x in range(w) for c in range(3)) for y in range(h))
    def chunk(name, data): return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def get(url, body=None):
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as r: return r.read().decode()


class Program:
    def __init__(self, command, port):
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1200):
            try: get(self.url + "/health")
            except OSError: time.sleep(0.1)
            else: return
            if self.process.poll() is not None: break
        sys.exit(f"{' '.join(command)}: it does not answer")

    def ask(self, image=None):
        """Seconds of one token."""
        parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(image).decode()}}] if image else []
        body = {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}], "max_tokens": 1, "temperature": 0}
        start = time.perf_counter()
        get(self.url + "/v1/chat/completions", body)
        return time.perf_counter() - start

    def tower(self):
        return float(re.search(r"^vllm:mm_tower_seconds_total\S* (\S+)", get(self.url + "/metrics"), re.M)[1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("mmproj")
    p.add_argument("--size", default="448x448")
    p.add_argument("--peer")
    p.add_argument("-r", "--rounds", type=int, default=3)
    p.add_argument("-t", "--threads", default="2")
    p.add_argument("--ops", type=float)
    a = p.parse_args()
    width, height = map(int, a.size.split("x"))
    both = ["-m", a.model, "--mmproj", a.mmproj, "-t", a.threads]
    programs = {"ours": Program([os.environ.get("LLM_SERVE", "./llm_serve"), *both, "--max-num-seqs", "1", "--max-model-len", "4096"], 18391)}
    if a.peer: programs["llama.cpp"] = Program([a.peer + "/llama-server", *both, "-np", "1", "-c", "4096", "--no-webui"], 18392)
    took, text = {name: [] for name in programs}, {name: 0 for name in programs}
    try:
        for name, x in programs.items(): text[name] = x.ask()
        before = programs["ours"].tower()
        for i in range(a.rounds):
            image = picture(width, height, i)
            for name, x in programs.items(): took[name].append(x.ask(image))
        tower = (programs["ours"].tower() - before) / a.rounds
    finally:
        for x in programs.values(): x.process.terminate(), x.process.wait()
    for name, x in took.items(): print(f"{name}: {statistics.median(x):.2f} ({min(x):.2f}-{max(x):.2f}) s, text alone {text[name]:.2f} s")
    print(f"in the tower {tower:.2f} s" + (f", {a.ops / tower:.0f} GFLOP/s" if a.ops else ""))
    if a.peer: print(f"ratio {statistics.median(took['llama.cpp']) / statistics.median(took['ours']):.2f}")


main()
