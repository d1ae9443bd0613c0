#!/usr/bin/env python3
"""What HTTP, scheduling and sampling cost: streamed chats against llm_serve beside `llm_cli bench` of the same batch, in turns on the same machine.

    tests/bench/serve.py [--streams 16] [--tokens 128] [--rounds 3] [--model PATH]
Prints tokens a second of both and their ratio, and the same by processor time, which other jobs on the machine disturb less (best with --threads 1). A round's figure for the server: tokens of all streams after the first of each, over the time from the
moment when every stream has its first token to the end. The client is one loop over sockets that only counts events, so that it takes little from the server.
"""
import argparse
import json
import os
import pathlib
import resource
import selectors
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
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


def bench(a, tokens):
    """(tokens a second, seconds of processor time)"""
    def used(): return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before = used()
    p = subprocess.run([CLI, "bench", "-m", a.model, "-t", str(a.threads), "-p", "0", "-n", str(tokens), "-b", str(a.streams), "-r", "1", "--json"], capture_output=True, text=True, check=True)
    return next(json.loads(x)["median"] for x in p.stdout.splitlines() if f'"tg{tokens}' in x), used() - before


def serve(a, s, tokens, turn):
    """(tokens a second while all decode, with the prompts, seconds of the server's processor time)"""
    def used(): return sum(int(x) for x in pathlib.Path(f"/proc/{s.process.pid}/stat").read_text().split()[13:15]) / os.sysconf("SC_CLK_TCK")
    before = used()
    decode, whole = round_of_streams(s, a.streams, tokens, turn)
    return decode, whole, used() - before


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--streams", type=int, default=16)
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--model", default=MODEL)
    a = p.parse_args()
    s = Server("--max-num-seqs", str(a.streams), "-t", str(a.threads), model=a.model, base=("--max-model-len", "2048", "--log-level", "warn"))
    round_of_streams(s, a.streams, 16, "warm")
    rows, short = [], a.tokens // 8  # processor time of a short run is taken off: loading the model, reading the prompts
    for turn in range(a.rounds):
        (base, base_cpu), (decode, whole, cpu) = bench(a, a.tokens), serve(a, s, a.tokens, f"{turn}a")
        base_cpu, cpu = base_cpu - bench(a, short)[1], cpu - serve(a, s, short, f"{turn}b")[2]
        rows.append((decode / base, base_cpu / cpu, base, decode, whole))
        print(f"round {turn + 1}: llm_cli bench tg{a.tokens}@{a.streams} {base:.1f} tokens/s, llm_serve {decode:.1f} while decoding, {whole:.1f} with the prompts, "
              f"ratio {decode / base:.3f}; processor time {base_cpu:.2f} s and {cpu:.2f} s, ratio {base_cpu / cpu:.3f}", flush=True)
    s.stop()
    ratio, ratio_cpu, base, decode, whole = (statistics.median(x) for x in zip(*rows))
    print(f"median: bench {base:.1f}, server {decode:.1f} ({whole:.1f} with the prompts), ratio {ratio:.3f}, by processor time {ratio_cpu:.3f}; load average {os.getloadavg()[0]:.1f}")


main()
