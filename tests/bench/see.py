#!/usr/bin/env python3
"""A prompt with one picture: llm_serve beside llama-server, on the same two GGUF files, in turns; each time another picture of that size.

    see.py MODEL MMPROJ [--size 448x448] [--peer DIR] [-r ROUNDS] [-t THREADS] [--ops GFLOP] [--gaps]

Seconds from the request to its only token, medians (lowest-highest), and the ratio; the same of the processor's time, which knows no neighbours. --ops: what the tower computes for such a picture in 10^9 operations;
then also GFLOP/s in the tower, by llm_serve's own clock. DIR has llama-server. --gaps: instead the longest wait between two tokens of an answer that is
written while another prompt is computed, once 2,000 tokens of text, once a picture. Environment: LLM_SERVE (./llm_serve).
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
import threading
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
        """Seconds of one token, and of the processor."""
        parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(image).decode()}}] if image else []
        body = {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}], "max_tokens": 1, "temperature": 0}
        start, spent = time.perf_counter(), self.spent()
        get(self.url + "/v1/chat/completions", body)
        return time.perf_counter() - start, self.spent() - spent

    def spent(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def gap(self, other):
        """The longest wait between two tokens of a stream while `other` runs in its middle."""
        body = {"prompt": "a b c", "max_tokens": 2000, "temperature": 0, "ignore_eos": True, "stream": True}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as r:
            times, thread = [], threading.Thread(target=other)
            for line in r:
                if not line.startswith(b"data: {"): continue
                times.append(time.perf_counter())
                if len(times) == 8: thread.start()
                if len(times) > 12 and not thread.is_alive(): break
        return max(b - a for a, b in zip(times[7:], times[8:]))

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
    p.add_argument("--gaps", action="store_true")
    a = p.parse_args()
    width, height = map(int, a.size.split("x"))
    both = ["-m", a.model, "--mmproj", a.mmproj, "-t", a.threads]
    programs = {"ours": Program([os.environ.get("LLM_SERVE", "./llm_serve"), *both, "--max-num-seqs", "2", "--max-model-len", "4096"], 18391)}
    if a.gaps:
        x = programs["ours"]
        text = {"prompt": [[i * 7 % 4000 + 300 for i in range(2000)]], "max_tokens": 1}
        try: gaps = x.gap(lambda: get(x.url + "/v1/completions", text)), x.gap(lambda: x.ask(picture(width, height, 0)))
        finally: x.process.terminate(), x.process.wait()
        return print(f"longest wait: {gaps[0]:.2f} s beside 2,000 tokens of text, {gaps[1]:.2f} s beside a picture of {a.size}, ratio {gaps[1] / gaps[0]:.2f}")
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
    middle = {name: [statistics.median(x) for x in zip(*rounds)] for name, rounds in took.items()}
    for name, rounds in took.items():
        wall = [x[0] for x in rounds]
        print(f"{name}: {middle[name][0]:.2f} ({min(wall):.2f}-{max(wall):.2f}) s, processor {middle[name][1]:.2f} s, text alone {text[name][0]:.2f} s")
    print(f"in the tower {tower:.2f} s" + (f", {a.ops / tower:.0f} GFLOP/s" if a.ops else ""))
    if a.peer: print("ratio {:.2f}, of the processor's time {:.2f}".format(*(b / a for a, b in zip(middle["ours"], middle["llama.cpp"]))))


main()
