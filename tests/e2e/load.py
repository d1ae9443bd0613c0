#!/usr/bin/env python3
"""llm_serve under load, and at the edges of its life. Standard library only (wrk is used where it is installed).

    load.py [--seconds 10] [--clients 64] [--model tiny|PATH] [--wrk] [PART...]      parts: closed gone idle term signals kill logs
closed   so many clients, each sending the next request when its last is answered; prompts of 16 to 1500 tokens; one in ten gives up on the way; the KV cache
         holds a third of what they need at once. Every other answer must be that of the same request alone, on another server with all the memory it wants.
"""
import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from serving import HOST, MODEL, SANITIZED, SERVE, SLOW, Server, check, eventually, finish, request_bytes, tiny_model

OPTIONS = argparse.Namespace()


def words(rng, n):
    return " ".join(rng.choice("the of and a in is it you that he was for on are with as his they be at one have this".split()) for _ in range(n))


def requests():
    """A pool of different requests, from a fixed seed: greedy and sampled, plain and streamed, alone and several at once."""
    rng, pool = random.Random(7), []
    for i in range(16 if SANITIZED else 64):
        tokens = int(16 * (1500 / 16) ** rng.random())
        body = {"prompt": f"{i}: {words(rng, tokens - 4)}", "max_tokens": rng.choice((4, 8, 16)), "temperature": 0, "logprobs": 1}
        if i % 3 == 0: body = {**body, "temperature": 1, "seed": i, "n": rng.choice((1, 2, 3))}
        if i % 12 == 0: body = {**body, "prompt": "A shared beginning. " + words(random.Random(3), 200) + f" {i}"}
        if i % 4:  # a short prompt and a long answer: many such are let in together and outgrow the cache later
            tokens = rng.randrange(16, 40)
            body = {**body, "prompt": f"{i}: {words(rng, tokens - 4)}", "ignore_eos": True, "max_tokens": 320}
        pool.append(({**body, "stream": True} if i % 8 < 4 else body, tokens + body["max_tokens"] * body.get("n", 1)))
    return pool


def read_answer(text, streamed):
    """What must be equal: per choice the text, the log-probabilities and the reason of the end. A stream without its end is None."""
    choices = {}
    if streamed and not text.rstrip().endswith(b"data: [DONE]"): return None
    for event in [x[6:] for x in text.decode().split("\n\n") if x.startswith("data: ") and x != "data: [DONE]"] if streamed else [text]:
        value = json.loads(event)
        if "error" in value: return value
        for choice in value["choices"]:
            c = choices.setdefault(choice["index"], ["", [], None])
            c[0] += choice["text"]
            c[1] += (choice.get("logprobs") or {"token_logprobs": []})["token_logprobs"]
            c[2] = choice["finish_reason"] or c[2]
    return choices


def send(port, body, give_up=None):
    """The answer, waited for for two minutes of a machine that is ours alone; give_up: seconds after which the connection is dropped."""
    s = socket.create_connection((HOST, port), timeout=120 * SLOW)
    if give_up is not None:
        s.sendall(request_bytes("/v1/completions", body))
        time.sleep(give_up)
        s.close()
        return None
    c = http.client.HTTPConnection(HOST, port)
    c.sock = s
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = read_answer(c.getresponse().read(), body.get("stream", False))
    c.close()
    return answer


def blocks_of(s):
    line = next(x for x in s.request("GET", "/metrics")[2].decode().splitlines() if x.startswith("vllm:cache_config_info{"))
    return int(re.search(r'block_size="(\d+)"', line)[1]), int(re.search(r'num_gpu_blocks="(\d+)"', line)[1])


def part_closed(model):
    pool, rng = requests(), random.Random(11)
    memory = (4 << 20) if OPTIONS.model == "tiny" else (256 << 20)
    reference = Server("--max-num-seqs", "64", "--kv-cache-memory-bytes", str(memory), model=model)
    alone = [send(reference.port, body) for body, _ in pool]
    size, blocks = blocks_of(reference)
    reference.stop()
    need = OPTIONS.clients * sum(tokens for _, tokens in pool) // len(pool)
    share = max(need // 3, 2048 + size)
    memory = memory // blocks * (share // size + 1)
    s = Server("--max-num-seqs", str(OPTIONS.clients), "--kv-cache-memory-bytes", str(memory), "--max-num-batched-tokens", "512", model=model)
    for body, _ in pool[:24]: send(s.port, body)
    descriptors, resident = s.descriptors(), s.resident()
    end, wrong, done, gave_up, slowest = time.time() + OPTIONS.seconds, [], [0], [0], [0]
    lock = threading.Lock()

    def client(k):
        rng = random.Random(k)
        while time.time() < end:
            i = rng.randrange(len(pool))
            give_up = rng.random() * 0.3 if rng.random() < 0.1 else None
            try: got = send(s.port, pool[i][0], give_up)
            except Exception as error: got = repr(error)
            with lock:
                if give_up is not None: gave_up[0] += 1
                else: done[0] += 1
                if give_up is None and got != alone[i]: wrong.append((i, got, alone[i]))

    def health():
        while time.time() < end:
            start = time.time()
            ok = s.request("GET", "/health")[0] == 200
            slowest[0] = max(slowest[0], time.time() - start if ok else 1e9)
            time.sleep(0.1)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(OPTIONS.clients)] + [threading.Thread(target=health)]
    for t in threads: t.start()
    if OPTIONS.wrk:
        p = subprocess.run(["wrk", "-t1", "-c200", f"-d{max(1, int(OPTIONS.seconds) - 2)}s", "--timeout", f"{2 * SLOW:.0f}s", "--latency", s.url + "/health"], capture_output=True, text=True)
        print(p.stdout, flush=True)
        check("wrk on /health: no errors", p.returncode == 0 and "Socket errors" not in p.stdout and "Non-2xx" not in p.stdout, p.stdout)
    for t in threads: t.join()
    preempted = s.metric("num_preemptions_total")
    print(f"{done[0]} answers, {gave_up[0]} given up, {preempted:.0f} preemptions, KV of {share} tokens for a need of {need}, /health within {slowest[0] * 1000:.0f} ms", flush=True)
    check("answers under load are those alone", done[0] > 0 and not wrong, [(i, str(a)[:200], str(b)[:200]) for i, a, b in wrong[:2]])
    check("the cache was too small for all", preempted > 0)
    check("/health within a second", slowest[0] < SLOW, slowest)
    check("nothing runs afterwards", s.wait_idle(SLOW) is not None, s.busy())
    check("no page is lost", eventually(lambda: s.metric("kv_cache_usage_perc") == 0, 2), s.metric("kv_cache_usage_perc"))
    check("no descriptor is lost", eventually(lambda: s.descriptors() <= descriptors, 3), (descriptors, s.descriptors()))
    check("memory grew by less than 128 MiB", s.resident() - resident < 128 << 20, (resident, s.resident()))
    print(f"memory grew by {(s.resident() - resident) / 1024:.0f} KiB", flush=True)
    check("still the same answers", all(send(s.port, pool[i][0]) == alone[i] for i in range(0, len(pool), 7)))
    check("SIGTERM after load", s.stop() == 0)


def part_gone(model):
    """Clients that leave while their request waits, is in its prompt, or answers: nothing runs a second later. A step is not interrupted: small ones here."""
    s = Server("--max-num-seqs", "2", "--max-model-len", "4096", "--max-num-batched-tokens", "128", model=model)
    long = {"prompt": "Once upon a time", "max_tokens": 3000, "ignore_eos": True}
    for streamed in (False, True):
        for name, body, when in (("in decode", {**long, "stream": streamed}, lambda: s.metric("num_requests_running") > 0),
                                 ("in prefill", {"prompt": words(random.Random(int(streamed)), 3500), "max_tokens": 50, "stream": streamed}, lambda: s.metric("num_requests_running") > 0)):
            c = s.connect()
            c.sendall(request_bytes("/v1/completions", body))
            started = eventually(when, 10 * SLOW, 0.005)
            c.close()
            check(f"gone {name}, stream {streamed}", started and s.wait_idle(SLOW) is not None, (started, s.busy()))
        others = [s.connect() for _ in range(2)]
        for c in others: c.sendall(request_bytes("/v1/completions", {**long, "stream": True}))
        eventually(lambda: s.metric("num_requests_running") == 2, 10 * SLOW)
        c = s.connect()
        c.sendall(request_bytes("/v1/completions", {**long, "stream": streamed}))
        queued = eventually(lambda: s.metric("num_requests_waiting") == 1, 5 * SLOW)
        c.close()
        check(f"gone in the queue, stream {streamed}", queued and eventually(lambda: s.metric("num_requests_waiting") == 0, SLOW) and s.metric("num_requests_running") == 2, (queued, s.busy()))
        for c in others: c.close()
        check("gone: nothing runs", s.wait_idle(SLOW) is not None)
    check("SIGTERM after those", s.stop() == 0)


def part_idle(model):
    """A thousand connections that say nothing, and a thousand that have been answered and are kept."""
    s = Server(model=model)
    s.post("/v1/completions", {"prompt": "a", "max_tokens": 2})
    for name, talk in (("silent", False), ("kept alive", True)):
        before, clients = s.resident(), []
        for i in range(1000):
            clients.append(s.connect())
            if not talk: continue
            clients[-1].sendall(request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 1}))
            clients[-1].recv(65536)
        eventually(lambda: s.metric("connections") >= 1001, 5)
        each = (s.resident() - before) / 1000
        start = time.time()
        check(f"{name}: /health answers", s.request("GET", "/health")[0] == 200 and time.time() - start < 1)
        check(f"{name}: under 8 KiB a connection", s.metric("connections") >= 1001 and (SANITIZED or each < 8192), each)
        print(f"{name} connection: {each:.0f} bytes", flush=True)
        for c in clients: c.close()
        check(f"{name}: all gone", eventually(lambda: s.metric("connections") < 10, 5))
    check("SIGTERM with nobody there", s.stop() == 0)


def part_term(model):
    """SIGTERM: what runs is finished, nothing new is let in, exit 0. A second one, or a short time-out, ends it at once."""
    s = Server(model=model)
    body = {"prompt": "Once upon a time", "max_tokens": 160 if SANITIZED or OPTIONS.model != "tiny" else 1800, "ignore_eos": True, "temperature": 0, "logprobs": 1}
    alone, got = send(s.port, body), []
    threads = [threading.Thread(target=lambda i=i: got.append(send(s.port, {**body, "stream": i % 2 == 0}))) for i in range(32)]
    for t in threads: t.start()
    check("SIGTERM: all are in", eventually(lambda: s.metric("num_requests_running") == 16 and s.metric("num_requests_waiting") == 16, 20), s.busy())
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    try: late = s.request("GET", "/health", timeout=2)[0]
    except OSError: late = None
    for t in threads: t.join()
    check("SIGTERM: nobody new", late in (None, 503), late)
    check("SIGTERM: all are finished", len(got) == 32 and all(x == alone for x in got), [x for x in got if x != alone][:1])
    check("SIGTERM: exit 0", s.process.wait(timeout=10) == 0)
    s = Server("--shutdown-timeout", "1", model=model)
    c = s.connect()
    c.sendall(request_bytes("/v1/completions", {**body, "max_tokens": 1900, "n": 16}))
    eventually(lambda: s.busy() > 0, 10 * SLOW)
    start = time.time()
    s.process.send_signal(signal.SIGTERM)
    check("SIGTERM with a short time-out", s.process.wait(timeout=20) is not None and time.time() - start < 5, time.time() - start)
    c.close()


def part_signals(model):
    """SIGTERM while it loads, in a stream, twice; two servers for one address."""
    port = free_port()
    command = [SERVE, "--model", model, "--max-model-len", "2048", "--log-level", "warn"]
    p = subprocess.Popen([*command, "--port", str(port), "--kv-cache-prealloc", "--kv-cache-memory-bytes", "3000000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def loading():
        try: return http_get(port, "/health") == 503
        except OSError: return False
    seen = eventually(loading, 10 * SLOW, 0.002)
    start = time.time()
    p.send_signal(signal.SIGTERM)
    check("SIGTERM while it loads", seen and p.wait(timeout=20) == 0 and time.time() - start < 5 * SLOW, (seen, p.returncode, time.time() - start))
    check("and says nothing wrong", b"error" not in p.stderr.read())
    s = Server(model=model)
    body = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True, "n": 16}
    c = s.connect()
    c.sendall(request_bytes("/v1/completions", body))
    c.recv(100)
    start = time.time()
    for _ in range(2):
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    code, got = s.process.wait(timeout=20), b""
    c.settimeout(2)
    try:
        while part := c.recv(1 << 20): got += part
    except OSError: pass
    check("a second SIGTERM ends it at once", code == 0 and time.time() - start < 3 * SLOW, (code, time.time() - start))
    check("and the stream says so, or is seen to be cut", got.endswith(b"0\r\n\r\n") == (b"data: [DONE]" in got) and (b"shutting down" in got or b"[DONE]" not in got), got[-200:])
    s = Server("--shutdown-timeout", "0.5", model=model)
    c = s.connect()
    c.sendall(request_bytes("/v1/completions", {**body, "stream": False}))
    eventually(lambda: s.busy() > 0, 10 * SLOW)
    s.process.send_signal(signal.SIGTERM)
    got = b"".join(iter(lambda: c.recv(1 << 20), b""))
    check("what does not end in time is told 503", s.process.wait(timeout=20) == 0 and (got.startswith(b"HTTP/1.1 503") and b"shutting down" in got or got.startswith(b"HTTP/1.1 200")), got[:200])
    s = Server(model=model)
    for host in (HOST, "0.0.0.0"):
        q = subprocess.run([*command, "--host", host, "--port", str(s.port)], capture_output=True, text=True, timeout=60)
        check(f"a second server on the same port ({host})", q.returncode == 1 and str(s.port) in q.stderr and "another --port" in q.stderr and q.stderr.count("\n") <= 4, q)
    check("the first serves on", s.request("GET", "/health")[0] == 200 and s.stop() == 0)
    if len({x[0] for x in socket.getaddrinfo("localhost", 80)}) > 1:  # both families: the second may not take the other address of the name
        first = subprocess.Popen([*command, "--host", "localhost", "--port", str(port)], stdout=subprocess.PIPE)
        first.stdout.readline()
        q = subprocess.run([*command, "--host", "localhost", "--port", str(port)], capture_output=True, text=True, timeout=60)
        check("a second server of the same name", q.returncode == 1, q)
        first.send_signal(signal.SIGTERM)
        first.wait(timeout=20)
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/s.sock"
        first = subprocess.Popen([*command, "--uds", path], stdout=subprocess.PIPE)
        first.stdout.readline()
        q = subprocess.run([*command, "--uds", path], capture_output=True, text=True, timeout=60)
        check("a second server on the same Unix socket", q.returncode == 1 and path in q.stderr and os.path.exists(path), q)
        first.send_signal(signal.SIGTERM)
        check("its file is gone at the end", first.wait(timeout=20) == 0 and not os.path.exists(path))
        q = subprocess.run([SERVE, "--model", folder, "--uds", path], capture_output=True, text=True, timeout=60)
        check("and after a model that cannot be loaded", q.returncode == 1 and not os.path.exists(path), q)


def part_clock(model):
    """The wall clock jumps by years to both sides while a stream runs, a client rests and requests have a --timeout: none of them notices."""
    if SANITIZED: return  # they want to be loaded first
    library, shift = os.path.abspath("build/clock.so"), os.path.abspath("build/clock.shift")
    subprocess.run([*os.environ.get("CC", "cc").split(), "-O1", "-shared", "-fPIC", "tests/tools/clock.c", "-o", library], check=True)

    def jump(seconds):
        with open(shift, "r+b" if os.path.exists(shift) else "wb") as f: f.write(struct.pack("q", seconds))
    jump(0)
    s = Server("--timeout", "60", "--log-requests", model=model, env={"LD_PRELOAD": library, "CLOCK_SHIFT": shift})
    body = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "temperature": 0}
    alone = s.post("/v1/completions", body)[1]["choices"][0]["text"]
    with s.connect() as resting, s.connect() as running:
        resting.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        check("clock: a client that rests", resting.recv(4096).startswith(b"HTTP/1.1 200"))
        running.sendall(request_bytes("/v1/completions", {**body, "stream": True, "n": 16}))
        got = running.recv(1 << 16)
        for seconds in (10 ** 9, -10 ** 9, 3600, 0, -86400):
            jump(seconds)
            status, a = s.post("/v1/completions", {"prompt": "a", "max_tokens": 4, "ignore_eos": True})
            check(f"clock: {seconds} s away a request is answered whole", status == 200 and a["usage"]["completion_tokens"] == 4 and a["choices"][0]["finish_reason"] == "length", (status, a))
            check("clock: and its time stamp follows", abs(a["created"] - time.time() - seconds) < 60, a["created"])
            time.sleep(0.3)  # the server looks at its deadlines
        running.settimeout(60)
        while not got.endswith(b"0\r\n\r\n") and (part := running.recv(1 << 20)): got += part
        n = got.count(b'"finish_reason":"length"')
        check("clock: the stream came to its end", b"[DONE]" in got and b'"error"' not in got and n == 16, (n, got[-300:]))
        resting.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        check("clock: who rested may go on", resting.recv(4096).startswith(b"HTTP/1.1 200"))
    check("clock: the same answer", s.post("/v1/completions", body)[1]["choices"][0]["text"] == alone)
    check("clock: it ends", s.stop() == 0)


def part_kill(model):
    """kill -9 of a client."""
    s = Server(model=model)
    code = f"import socket,sys,time\ns=socket.create_connection(('{HOST}',{s.port}))\ns.sendall(sys.stdin.buffer.read())\ntime.sleep(60)"
    for streamed in (False, True):
        p = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        p.stdin.write(request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 1900, "ignore_eos": True, "stream": streamed, "n": 4}))
        p.stdin.close()
        running = eventually(lambda: s.busy() > 0, 10 * SLOW)
        p.kill()
        p.wait()
        check(f"kill -9 of a client, stream {streamed}", running and s.wait_idle(SLOW) is not None, (running, s.busy()))
    check("SIGTERM after kills", s.stop() == 0)


def free_port():
    with socket.socket() as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


def part_logs(model):
    """A full disk or a closed pipe behind its output changes nothing for clients."""
    for name in ("full", "closed"):
        out, err = (open("/dev/full", "wb"), open("/dev/full", "wb")) if name == "full" else (subprocess.PIPE, subprocess.PIPE)
        port = free_port()
        p = subprocess.Popen([SERVE, "--model", model, "--port", str(port), "--log-level", "debug", "--max-model-len", "2048"], stdout=out, stderr=err)
        if name == "closed": p.stdout.close(), p.stderr.close()

        def up():
            try: return http_get(port, "/health") == 200
            except OSError: return False
        check(f"output {name}: starts", eventually(up, 20, 0.1) and p.poll() is None, p.poll())
        if p.poll() is None:
            got = [send(port, {"prompt": f"{i}", "max_tokens": 4, "stream": i % 2 == 0}) for i in range(20)]
            check(f"output {name}: serves", all(isinstance(x, dict) and 0 in x for x in got), got[:1])
            check(f"output {name}: errors are answered", send(port, {"prompt": 1})["error"]["param"] == "prompt")
            p.send_signal(signal.SIGTERM)
        check(f"output {name}: exit 0", p.wait(timeout=20) == 0, p.returncode)


def http_get(port, path):
    c = http.client.HTTPConnection(HOST, port, timeout=5)
    c.request("GET", path)
    status = c.getresponse().status
    c.close()
    return status


def main():
    parts = {k[5:]: v for k, v in globals().items() if k.startswith("part_")}
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--model", default="tiny")
    p.add_argument("--wrk", action="store_true")
    p.add_argument("parts", nargs="*")
    p.parse_args(namespace=OPTIONS)
    tiny = tiny_model()
    for name in OPTIONS.parts or list(parts):
        start = time.time()
        parts[name](MODEL if name == "gone" and not SANITIZED else tiny if OPTIONS.model == "tiny" else OPTIONS.model)
        print(f"{name}: {time.time() - start:.1f} s", flush=True)
    finish()


main()
