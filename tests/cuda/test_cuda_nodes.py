#!/usr/bin/env python3
"""llm_serve in several processes on the emulated CUDA library (LLM_CUDA_LIBRARY), tiny checkpoints: the answers are those of one process, whoever starts them; who does not belong is refused; when one is killed, all end.

    test_cuda_nodes.py [brief]      brief: one form of each, some seconds
"""
import os
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../e2e"))
from serving import SERVE, Server, check, checkpoint, finish, request_bytes, skip

LIBRARY = os.environ.pop("LLM_CUDA_LIBRARY", "build/libllm_cuda_emu.so")
BRIEF = "brief" in sys.argv
WHOLE = bool(os.environ.get("LLM_TEST_WHOLE"))
SLOW = float(os.environ.get("LLM_TEST_SLOW", 1))
BASE = ("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "4", "--max-num-batched-tokens", "96", "--log-level", "error", "-t", "1")
CUDA = ("--device", "cuda", "--cuda-library", LIBRARY)
# What launchers would leave in the environment of this test itself.
for name in list(os.environ):
    if name.startswith(("OMPI_", "PMI_", "SLURM_", "TORCHELASTIC_")) or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"): del os.environ[name]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def torchrun(r, n, port, local): return {"RANK": str(r), "WORLD_SIZE": str(n), "LOCAL_RANK": str(r % local), "LOCAL_WORLD_SIZE": str(local), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}, ()
def mpirun(r, n, port, local): return {"OMPI_COMM_WORLD_RANK": str(r), "OMPI_COMM_WORLD_SIZE": str(n), "OMPI_COMM_WORLD_LOCAL_RANK": str(r), "OMPI_COMM_WORLD_LOCAL_SIZE": str(n)}, ("--master-port", port)
def srun(r, n, port, local): return {"SLURM_PROCID": str(r), "SLURM_NTASKS": str(n), "SLURM_LOCALID": str(r), "SLURM_STEP_ID": "0", "LLM_NODES_SECRET": "s"}, ("--master-addr", "localhost", "--master-port", port)
def flags(r, n, port, local): return {}, ("--nnodes", str(n), "--node-rank", str(r), "--master-addr", "127.0.0.1", "--master-port", port)
def ips(r, n, port, local): return {}, ("--ips", ",".join(["127.0.0.1"] * n), "--node-rank", str(r), "--master-port", port)


class World:
    """Processes of one model; the first is a Server."""

    def __init__(self, how, n, *more, model="llama", local=2, others=None, env=None):
        port, self.others = free_port(), []
        path = str(checkpoint(model))
        for r in range(1, n):
            e, f = how(r, n, port, local)
            command = [SERVE, "--model", str(others or path), *BASE, *CUDA, *more, *f]
            self.others.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **e, **(env or {})}))
        e, f = how(0, n, port, local)
        try: self.server = Server(*CUDA, *more, *f, model=path, base=BASE, env=e)
        except RuntimeError as error: self.server, self.error = None, str(error)

    def ends(self, seconds=10):
        """Exit statuses and sentences of the others; -999: it has not ended."""
        until, got = time.time() + seconds * SLOW, []
        for p in self.others:
            try: got.append((p.wait(timeout=max(0.1, until - time.time())), p.stderr.read().decode()))
            except subprocess.TimeoutExpired:
                p.kill()
                got.append((-999, ""))
        return got

    def stop(self):
        return self.server.stop(), [code for code, _ in self.ends()]


def prompt(i):
    return [(i * 37 + k * 11 + 5) % 250 + 4 for k in range(5 + 40 * i)]


def complete(s, i, **more):
    body = {"prompt": prompt(i), "max_tokens": 10, "temperature": i % 2, "top_p": 0.9, "seed": i, "ignore_eos": True, "return_token_ids": True, **more}
    status, a = s.post("/v1/completions", body)
    return (a["choices"][0]["token_ids"], a["choices"][0].get("logprobs")) if status == 200 else (status, a)


def answers(s, embeds):
    """Drawn on the device and on the host (logprobs; bad words), with penalties and a grammar, several at once; hidden states."""
    got = {f"completion {i}": complete(s, i) for i in range(3)}
    got["logprobs"] = complete(s, 1, logprobs=3)
    got["penalties, a bias"] = complete(s, 0, presence_penalty=1.5, logit_bias={"7": 3}, min_p=0.01)
    got["grammar"] = complete(s, 1, guided_regex="[a-z]{3} [0-9]+x", max_tokens=12, ignore_eos=False)
    threads = [threading.Thread(target=lambda i=i: got.update({f"together {i}": complete(s, i % 3, n=2)})) for i in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    if embeds: got["embedding"] = [], {"embedding": s.post("/v1/embeddings", {"input": prompt(1)})[1]["data"][0]["embedding"]}
    return got


def flat(x):
    return [x] if isinstance(x, float) else [y for v in (x.values() if isinstance(x, dict) else x) for y in flat(v)] if isinstance(x, (dict, list)) else []


def near(a, b):
    """The same tokens, and numbers that differ by rounding only."""
    x, y = flat(a[1]), flat(b[1])
    return isinstance(a[0], list) and a[0] == b[0] and len(x) == len(y) and all(abs(p - q) < 1e-3 for p, q in zip(x, y))


def same_answers(name, want, world):
    if not world.server: return check(name, False, (world.error, world.ends(1)))
    got = answers(world.server, "embedding" in want)
    for key in want: check(f"{name}: {key}", near(want[key], got[key]), (want[key], got[key]))
    check(f"{name}: all end well", world.stop() == (0, [0] * len(world.others)))


def forms():
    """(how, processes, flags): ranks of a process and stages in all their orders."""
    yield torchrun, 2, ("-tp", "2")
    if BRIEF: return
    yield torchrun, 4, ("-tp", "2", "-pp", "2")
    yield mpirun, 2, ("-tp", "2", "-pp", "2")
    yield srun, 2, ("-tp", "2")
    yield flags, 2, ("-pp", "2")
    yield ips, 2, ("-tp", "2", "--preemption-mode", "swap", "--num-gpu-blocks", "24", "--num-cpu-blocks", "24")


def lost(how, n, *more, who):
    """One is killed in the middle of a stream: the stream ends with a sentence, and everybody ends."""
    w = World(how, n, *more)
    if not w.server: return check(f"killed {who} of {n}", False, (w.error, w.ends(1)))
    c = w.server.connect()
    c.sendall(request_bytes("/v1/completions", {"prompt": prompt(1), "max_tokens": 480, "temperature": 0, "ignore_eos": True, "stream": True}))
    got = b""
    while got.count(b"data: ") < 3: got += c.recv(4096)
    victim = w.others[who - 1] if who else w.server.process
    victim.kill()
    began = time.time()
    try:
        while part := c.recv(65536): got += part
    except OSError: pass
    if who: check(f"killed {who} of {n}: the stream says why", b'"error"' in got and b"a rank was lost" in got, got[-400:])
    try: code = w.server.process.wait(timeout=10 * SLOW)
    except subprocess.TimeoutExpired: code = w.server.process.kill() or -999
    ends = w.ends()
    check(f"killed {who} of {n}: all end within 10 s", time.time() - began < 10 * SLOW and code == (1 if who else -9) and all(e[0] == (-9 if i == who - 1 else 1) for i, e in enumerate(ends)), (code, ends))
    check(f"killed {who} of {n}: the others say why", all(len(e[1].splitlines()) <= 4 and "process" in e[1] for i, e in enumerate(ends) if i != who - 1), ends)


def refused():
    def run(e, *more):
        p = subprocess.run([SERVE, "--model", str(checkpoint("llama")), *BASE, *CUDA, *more], capture_output=True, text=True, env={**os.environ, **e}, timeout=60 * SLOW)
        return p.returncode, p.stderr
    two = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}
    for name, e, more, words in (
            ("a rank that is none", {**two, "RANK": "2"}, ("-tp", "2"), ("RANK", '"2"', "0 to 1")),
            ("a number that is none", {**two, "WORLD_SIZE": "two"}, ("-tp", "2"), ("WORLD_SIZE", '"two"')),
            ("more processes than ranks", two, ("-tp", "1"), ("WORLD_SIZE", "2 processes", "1 ranks")),
            ("nodes beside a launcher", two, ("-tp", "2", "--nnodes", "2"), ("nnodes", "2", "WORLD_SIZE", "1")),
            ("a node beside a launcher", two, ("-tp", "2", "--node-rank", "1"), ("node-rank", "1", "RANK", "0")),
            ("two launchers", {**two, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, ("-tp", "2"), ("OMPI_COMM_WORLD_RANK", "0 of 2", "RANK is 1 of 2")),
            ("two addresses", two, ("-tp", "2", "--master-addr", "127.0.0.2"), ("master-addr", "127.0.0.2", "environment", "127.0.0.1")),
            ("two ports", two, ("-tp", "2", "--master-port", "29998"), ("master-port", "29998", "environment", "29999")),
            ("which node", {}, ("-tp", "2", "--nnodes", "2"), ("node-rank", "0 to 1")),
            ("ips and nodes", {}, ("-tp", "2", "--nnodes", "3", "--ips", "127.0.0.1,127.0.0.1", "--node-rank", "0"), ("nnodes", "3", "ips", "2")),
            ("an address for nobody", {}, ("--master-addr", "127.0.0.1"), ("master-addr", "one process")),
            ("no secret", {}, ("-tp", "2", "--nnodes", "2", "--node-rank", "1", "--master-addr", "192.0.2.1"), ("192.0.2.1", "secret")),
            ("nobody there", {}, ("-tp", "2", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--nodes-timeout", "0.3"), ("process 0", "0.3 s")),
            ("several models", two, ("-tp", "2", "--model", str(checkpoint("gemma2"))), ("one model",)),
            ("the CPU", {**two, "MASTER_PORT": free_port()}, ("-tp", "2", "--nodes-timeout", "0.3"), ("0.3 s",))):
        code, err = run(e, *more)
        check(f"refused: {name}", code in (1, 2) and all(w in err for w in words) and len(err.splitlines()) <= 4, (code, err))


def strangers():
    """Who has another secret, another version, another model, or another place is told so, and process 0 goes on waiting for the right one."""
    port = free_port()
    path = str(checkpoint("llama"))
    got = {}
    env = {**os.environ, "LLM_NODES_SECRET": "right"}
    command = lambda r, *more: [SERVE, "--model", path, *BASE, *CUDA, "-tp", "2", "--nnodes", "2", "--node-rank", str(r), "--master-addr", "127.0.0.1", "--master-port", port, *more]
    t = threading.Thread(target=lambda: got.update(server=Server(*command(0, "--nodes-timeout", "30")[3:], model=path, base=(), env=env)), daemon=True)
    t.start()
    p = subprocess.run(command(1, "--nodes-timeout", "20"), capture_output=True, text=True, env={**env, "LLM_NODES_SECRET": "wrong"}, timeout=60)
    check("another secret is refused", p.returncode == 2 and "secret" in p.stderr, p.stderr)
    with socket.create_connection(("127.0.0.1", int(port)), timeout=10) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 100)
        try: heard = s.recv(100)
        except ConnectionError: heard = b""
        check("a stranger hears nothing", not heard)
    p = subprocess.run([*command(1), "--nnodes", "4", "-tp", "4"], capture_output=True, text=True, env=env, timeout=60)
    check("another number is refused", p.returncode == 2 and "process 1 of 4" in p.stderr, p.stderr)
    other = subprocess.Popen(command(1), stderr=subprocess.PIPE, env=env)
    t.join(60)
    check("the right one is let in", "server" in got and len(complete(got["server"], 0)[0]) == 10 and got["server"].stop() == 0 and other.wait(10) == 0)
    w = World(flags, 2, "-tp", "2", others=checkpoint("llama_rope_dynamic" if BRIEF else "gemma2"))
    ends = w.ends()
    check("another model is refused", not w.server and "process 1 has another" in w.error and ends[0][0] not in (0, -999) and "another" in ends[0][1], (getattr(w, "error", ""), ends))


def main():
    plain = Server("--device", "cpu", model=str(checkpoint("llama")), base=BASE)
    want = answers(plain, True)
    check("the CPU's answers", plain.stop() == 0 and len(want["completion 1"][0]) == 10)
    for how, n, more in forms(): same_answers(f"{how.__name__}, {n} processes {' '.join(more)}", want, World(how, n, *more))
    lost(torchrun, 2, "-tp", "2", who=1)
    refused()
    strangers()
    if BRIEF: return
    lost(torchrun, 2, "-tp", "2", who=0)
    lost(torchrun, 4, "-tp", "2", "-pp", "2", who=2)
    lost(flags, 2, "-pp", "2", who=1)
    for model in ("gemma3n_three", "deepseek_v2_lite", "deepseek_v32_topk", "gpt_oss", *(("gemma2", "qwen2_moe") if WHOLE else ())):
        s = Server(*CUDA, "-tp", "2", "-pp", "2", model=str(checkpoint(model)), base=BASE)  # four devices of one process
        want = answers(s, False)
        s.stop()
        same_answers(f"{model}, 2 x 2", want, World(torchrun, 4, "-tp", "2", "-pp", "2", model=model))


if __name__ == "__main__":
    if not os.path.exists(LIBRARY): skip("llm_serve in several processes", f"{LIBRARY} is not there")
    else: main()
    finish()
