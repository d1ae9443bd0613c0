#!/usr/bin/env python3
"""What HTTP, scheduling and sampling cost: streamed chats against llm_serve beside `llm_cli bench` of the same batch, in turns on the same machine.

    tests/bench/serve.py [--streams 16] [--tokens 128] [--rounds 3] [--model PATH]
Prints tokens a second of both and their ratio. A round's figure for the server: tokens of all streams after the first of each, over the time from the
moment when every stream has its first token to the end. The client is one loop over sockets that only counts events, so that it takes little from the server.
"""
import argparse
import json
import os
import pathlib
import selectors
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import MODEL, Server, request_bytes

CLI = os.environ.get("LLM_CLI", "./llm_cli")


def round_of_streams(s, streams, tokens, turn):
    """(tokens a second while all decode, tokens a second from the first byte sent to the last received)"""
    watch, begin = selectors.DefaultSelector(), time.perf_counter()
    state = {}
    for i in range(streams):
        c = s.connect()
        c.sendall(request_bytes("/v1/chat/completions", {"messages": [{"role": "user", "content": f"Round {turn}, number {i}: tell me a story."}], "max_tokens": tokens, "ignore_eos": True,
                                                         "stream": True, "temperature": 0.8, "seed": i}, b"Connection: close\r\n"))
        c.setblocking(False)
        watch.register(c, selectors.EVENT_READ)
        state[c] = [0, b""]
    all_started, counted = 0, 0
    while state:
        for key, _ in watch.select():
            c = key.fileobj
            part = c.recv(1 << 16)
            if not part:
                if b"[DONE]" not in state[c][1]: sys.exit("a stream broke off: " + state[c][1].decode(errors="replace")[-300:])
                watch.unregister(c)
                c.close()
                del state[c]
                continue
            state[c][0] += part.count(b'"delta":{"content"')
            state[c][1] = (state[c][1] + part)[-300:]
        if not all_started and state and min(x[0] for x in state.values()) > 0:
            all_started, counted = time.perf_counter(), sum(x[0] for x in state.values())
    end = time.perf_counter()
    return (streams * tokens - counted) / (end - all_started), streams * tokens / (end - begin)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--streams", type=int, default=16)
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--model", default=MODEL)
    a = p.parse_args()
    s = Server("--max-num-seqs", str(a.streams), model=a.model, base=("--max-model-len", "2048", "--log-level", "warn"))
    round_of_streams(s, a.streams, 16, "warm")
    ratios, rows = [], []
    for turn in range(a.rounds):
        bench = subprocess.run([CLI, "bench", "-m", a.model, "-p", "0", "-n", str(a.tokens), "-b", str(a.streams), "-r", "1", "--json"], capture_output=True, text=True, check=True)
        base = next(json.loads(x)["median"] for x in bench.stdout.splitlines() if f'"tg{a.tokens}' in x)
        decode, whole = round_of_streams(s, a.streams, a.tokens, turn)
        rows.append((base, decode, whole))
        print(f"round {turn + 1}: llm_cli bench tg{a.tokens}@{a.streams} {base:.1f} tokens/s, llm_serve {decode:.1f} while decoding, {whole:.1f} with the prompts, ratio {decode / base:.3f}", flush=True)
    s.stop()
    base, decode, whole = (statistics.median(x) for x in zip(*rows))
    print(f"median: bench {base:.1f}, server {decode:.1f} ({whole:.1f} with the prompts), ratio {statistics.median(d / b for b, d, _ in rows):.3f}; load average {os.getloadavg()[0]:.1f}")


main()
