"""What the tests of llm_serve share: a server as a child process, requests, streams, raw sockets, figures. Standard library only."""
import atexit
import http.client
import json
import os
import pathlib
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from checkpoints import folder as checkpoint

SERVE = os.environ.get("LLM_SERVE", "./llm_serve")
MODEL = os.environ.get("LLM_TEST_MODEL", "models/SmolLM2-135M-Instruct.Q4_1.gguf")
HOST = "127.0.0.1"
COUNT = {"passed": 0, "failed": 0, "skipped": 0}
SANITIZED = "LLM_TEST_SLOW" in os.environ  # such a build keeps freed memory back and has shadows of its own: bytes tell nothing
# How much slower than usual things go: LLM_TEST_SLOW for builds with sanitizers, and as much as others load the machine.
SLOW = float(os.environ.get("LLM_TEST_SLOW", "1")) * max(1, os.getloadavg()[0] / (os.cpu_count() or 1))
MORE = os.environ.get("LLM_TEST_FLAGS", "").split()  # of every server: another device, more ranks
BASE = ("--max-model-len", "2048", "--max-num-seqs", "16", "--log-level", "warn")


def check(name, ok, why=""):
    COUNT["passed" if ok else "failed"] += 1
    if not ok: print(f"FAILED: {name}: {str(why)[:600]}", flush=True)
    return bool(ok)


def skip(name, why):
    COUNT["skipped"] += 1
    print(f"skipped: {name}: {why}", flush=True)


def finish():
    print(f"{COUNT['passed']} passed, {COUNT['failed']} failed, {COUNT['skipped']} skipped")
    sys.exit(1 if COUNT["failed"] else 0)


class Server:
    """llm_serve as a child, listening on a port of its own choice. Later flags win over earlier ones, so `flags` may repeat one of BASE. model False: `flags` name it. files: descriptors that it may have; file_size: bytes that a file may get."""

    def __init__(self, *flags, model=None, env=None, log=None, base=BASE, files=None, file_size=None):
        thread = ("-t", "1") if model and "tiny" in model else ()  # a second thread gains nothing there and waits for a core where others use them
        named = () if model is False else ("--model", model or MODEL)
        command = [SERVE, *named, "--port", "0", *base, *thread, *MORE, *flags]

        def limit():
            if files: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            if file_size: resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log or subprocess.PIPE, env=dict(os.environ, **(env or {})), preexec_fn=limit)
        atexit.register(self.process.kill)  # one that a test which broke off has left; does nothing to one that has ended
        self.err = []
        if not log: threading.Thread(target=lambda: self.err.extend(self.process.stderr), daemon=True).start()
        line = self.first = self.process.stdout.readline().decode()
        if not line.startswith("listening on "): raise RuntimeError(f"{' '.join(command)}: exit {self.process.wait()}: {line}{self.errors()}")
        self.port = int(line.rsplit(":", 1)[1])
        self.url = f"http://{HOST}:{self.port}"

    def errors(self):
        time.sleep(0.1)
        return b"".join(self.err).decode(errors="replace")

    def stop(self):
        """Every server ends well, also one whose status no test looks at: it is how a build with sanitizers tells what it found."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        if code: check("a server ends well", False, f"exit {code}: {self.errors()}")
        return code

    def alive(self):
        return self.process.poll() is None

    def request(self, method, path, body=None, headers=None, timeout=300):
        c = http.client.HTTPConnection(HOST, self.port, timeout=timeout)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        c.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, dict((k.lower(), v) for k, v in r.getheaders()), text

    def post(self, path, body, headers=None):
        status, _, text = self.request("POST", path, body, headers)
        return status, json.loads(text)

    def stream(self, path, body, headers=None):
        """Status and the data of every event of a streamed request."""
        status, _, text = self.request("POST", path, {**body, "stream": True}, headers)
        return status, [x[6:] for x in text.decode().split("\n\n") if x.startswith("data: ")]

    def connect(self, timeout=60):
        return socket.create_connection((HOST, self.port), timeout=timeout)

    def raw(self, data, timeout=20, shut=False):
        """Sends bytes as they are; what comes back until the server closes."""
        s, out = self.connect(timeout), b""
        try:
            s.sendall(data)
            if shut: s.shutdown(socket.SHUT_WR)
            while part := s.recv(65536): out += part
            return out
        except (ConnectionError, socket.timeout):
            return out
        finally:
            s.close()

    def metric(self, name):
        """The sum of a metric over its labels."""
        lines = [x for x in self.request("GET", "/metrics")[2].decode().splitlines() if x.startswith(("vllm:" + name + "{", "vllm:" + name + " "))]
        return sum(float(x.rsplit(" ", 1)[1]) for x in lines)

    def busy(self):
        return self.metric("num_requests_running") + self.metric("num_requests_waiting")

    def wait_idle(self, seconds):
        """Whether no request runs or waits within so many seconds; the time it took."""
        start = time.time()
        while self.busy():
            if time.time() - start > seconds: return None
            time.sleep(0.02)
        return time.time() - start

    def resident(self):
        """Bytes of resident memory that belong to this process alone (not the mapped file)."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"): return int(line.split()[1]) * 1024
        return 0

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def request_bytes(path, body, extra=b""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n" % (path.encode(), extra, len(data)) + data


def eventually(condition, seconds, pause=0.02):
    end = time.time() + seconds
    while not condition():
        if time.time() > end: return False
        time.sleep(pause)
    return True


# ---- a tiny model: the tokenizer and template of a real one, random weights of two layers, so that a server answers in microseconds a token

GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def gguf_pairs(data):
    """(key, type, bytes of the value) for every metadata pair of a GGUF file; bytes at the end of them."""
    at = 24

    def text():
        nonlocal at
        n = struct.unpack_from("<Q", data, at)[0]
        at += 8 + n
        return data[at - n:at]

    def value(kind):
        nonlocal at
        if kind == 8: text()
        elif kind == 9:
            element, n = struct.unpack_from("<IQ", data, at)
            at += 12
            if element in GGUF_SIZES: at += GGUF_SIZES[element] * n
            else:
                for _ in range(n): value(element)
        else: at += GGUF_SIZES[kind]

    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key = text().decode()
        kind = struct.unpack_from("<I", data, at)[0]
        at += 4
        start = at
        value(kind)
        yield key, kind, data[start:at]


def gguf_texts(value):
    """The strings of an array value."""
    at, out = 12, []
    for _ in range(struct.unpack_from("<Q", value, 4)[0]):
        n = struct.unpack_from("<Q", value, at)[0]
        out.append(value[at + 8:at + 8 + n])
        at += 8 + n
    return out


def tiny_model(path="build/models/tiny4k.gguf", width=64, layers=2, heads=4, kv_heads=2, inner=128, context=4096, vocab=4096):
    """Writes the tiny model once, with the tokenizer of SmolLM2; its path."""
    source = pathlib.Path("models/SmolLM2-135M-Instruct.Q4_1.gguf")
    path = pathlib.Path(path)
    if path.exists(): return str(path)
    if not source.exists(): sys.exit(f"{source} is not there: run make model")
    with open(source, "rb") as f: data = f.read(8 << 20)
    shape = {"block_count": layers, "context_length": context, "embedding_length": width, "feed_forward_length": inner, "attention.head_count": heads,
             "attention.head_count_kv": kv_heads, "rope.dimension_count": width // heads}
    pairs, known = [], set()
    text = lambda b: struct.pack("<Q", len(b)) + b
    array = lambda kind, items: struct.pack("<IQ", kind, len(items)) + b"".join(items)
    for key, kind, value in gguf_pairs(data):
        name = key.split(".", 1)[1] if key.startswith("llama.") else None
        if name in shape: value = struct.pack("<I", shape[name])
        elif name == "vocab_size": value = struct.pack("<I", vocab)
        elif key == "tokenizer.ggml.tokens":  # ids are in the order of merges, so that the first of both fit together
            tokens = gguf_texts(value)[:vocab]
            known.update(tokens)
            value = array(8, [text(t) for t in tokens])
        elif key == "tokenizer.ggml.merges": value = array(8, [text(m) for m in gguf_texts(value) if m.replace(b" ", b"") in known and all(x in known for x in m.split(b" "))])
        elif key == "tokenizer.ggml.token_type": value = value[:4] + struct.pack("<Q", vocab) + value[12:12 + 4 * vocab]
        pairs.append((key, kind, value))
    kv = width // heads * kv_heads
    tensors = [("token_embd.weight", (width, vocab)), ("output_norm.weight", (width,))]
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}.weight", dims) for name, dims in (
            ("attn_norm", (width,)), ("attn_q", (width, width)), ("attn_k", (width, kv)), ("attn_v", (width, kv)), ("attn_output", (width, width)),
            ("ffn_norm", (width,)), ("ffn_gate", (width, inner)), ("ffn_up", (width, inner)), ("ffn_down", (inner, width)))]
    head = [b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))]
    head += [text(key.encode()) + struct.pack("<I", kind) + value for key, kind, value in pairs]
    offset, blobs, rng = 0, [], random.Random(1)
    noise = [rng.gauss(0, 1) for _ in range(65521)]  # reused at shifting places: drawing every weight would take a minute
    for name, dims in tensors:
        n = dims[0] * (dims[1] if len(dims) > 1 else 1)
        head.append(text(name.encode()) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", 0, offset))
        if len(dims) == 1: blob = struct.pack("<f", 1.0) * n
        else:
            scale, shift = 1.5 / dims[0] ** 0.5, rng.randrange(65521)
            row = struct.pack("<65521f", *[x * scale for x in noise[shift:] + noise[:shift]])
            blob = (row * (n // 65521 + 1))[:4 * n]
        blobs.append(blob)
        offset += (len(blob) + 31) // 32 * 32
    path.parent.mkdir(parents=True, exist_ok=True)
    front = b"".join(head)
    part = path.with_suffix(f".{os.getpid()}") # tests that run side by side may all begin with this
    with open(part, "wb") as f:
        f.write(front + b"\0" * (-len(front) % 32))
        for blob in blobs: f.write(blob + b"\0" * (-len(blob) % 32))
    part.rename(path)
    return str(path)
