#!/usr/bin/env python3
"""Several models in one llm_serve: loaded when a request names them, unloaded when others need their room, each answering as it does alone.

    test_models.py [PART...]        parts: the functions below named part_*
"""
import concurrent.futures
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

import adapters
from serving import MODEL, SANITIZED, SERVE, SLOW, Server, check, checkpoint, eventually, finish, request_bytes, skip, tiny_model

CLI = os.environ.get("LLM_CLI", "./llm_cli")
TINY = {"one": tiny_model(), "two": tiny_model("build/models/tiny_two.gguf", width=32, heads=2, kv_heads=1), "three": tiny_model("build/models/tiny_three.gguf", layers=3)}
LONG = 30000  # tokens of an answer that goes on while a model is loaded, on any machine
PROMPTS = ["The cat", "A list of words:", "hello hello hello", "It rained on the day when", "x = 1"]
BASE = ("--max-num-seqs", "16", "--log-level", "warn", "-t", "1")


class Models(Server):
    """A server that is told its models by `flags` alone."""

    def __init__(self, *flags, **more):
        super().__init__(*flags, base=BASE, model=False, **more)

    def states(self):
        return {x["id"]: x["state"] for x in json.loads(self.request("GET", "/v1/models")[2])["data"]}

    def complete(self, model, prompt="hello", n=12, **more):
        named = {} if model is None else {"model": model}
        return self.post("/v1/completions", {**named, "prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, **more})

    def text(self, model, prompt="hello", **more):
        status, answer = self.complete(model, prompt, **more)
        return answer["choices"][0]["text"] if status == 200 else answer

    def counted(self, name, model):
        for line in self.request("GET", "/metrics")[2].decode().splitlines():
            if line.startswith(f'vllm:{name}{{model_name="{model}"}}'): return float(line.rsplit(" ", 1)[1])
        return 0


class Stream(threading.Thread):
    """A long answer that is read as it comes."""

    def __init__(self, s, model, n):
        super().__init__(daemon=True)
        self.socket, self.got = s.connect(), 0
        self.socket.sendall(request_bytes("/v1/completions", {"model": model, "prompt": "go", "max_tokens": n, "ignore_eos": True, "stream": True}))
        self.ended = False
        self.start()

    def run(self):
        tail = b""
        try:
            while part := self.socket.recv(65536):
                tail = tail[-40:] + part
                self.got += part.count(b"data: ")
                if b"[DONE]" in tail: break
        except ConnectionError: pass  # after leave()
        self.ended = b"[DONE]" in tail
        self.socket.close()

    def leave(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.join(60)


def folder(where, **files):
    """A folder of models: links to files by the names that they are to have."""
    root = pathlib.Path(where)
    for name, path in files.items(): (root / (name + ("" if os.path.isdir(path) else ".gguf"))).symlink_to(os.path.abspath(path))
    return root


def refused(name, says, *flags, code=2):
    p = subprocess.run([SERVE, "--port", "0", *flags], capture_output=True, text=True, timeout=60 * SLOW)
    check(name, p.returncode == code and all(x in p.stderr for x in says), f"exit {p.returncode}: {p.stderr}")


def part_listing():
    """What is in the folder, by which names, in which states; who is asked where nobody is named; what is not there."""
    with tempfile.TemporaryDirectory() as d:
        root = folder(d, one=TINY["one"], two=TINY["two"], hf=checkpoint("llama"))
        (root / "mmproj-two.gguf").write_bytes(b"GGUF")
        (root / "parts-00002-of-00002.gguf").write_bytes(b"GGUF")
        (root / "parts-00001-of-00002.gguf").write_bytes(b"GGUF")
        (root / "notes.txt").write_text("GGUF")
        (root / "empty").mkdir()
        s = Models("--models-dir", d)
        check("ready at once", s.request("GET", "/health")[0] == 200)
        check("the list", s.states() == {"hf": "unloaded", "one": "unloaded", "parts": "unloaded", "two": "unloaded"}, s.states())
        status, answer = s.complete("two")
        check("by its name", status == 200 and answer["model"] == "two", answer)
        check("its state", s.states() == {"hf": "unloaded", "one": "unloaded", "parts": "unloaded", "two": "loaded"}, s.states())
        for name in ("two.gguf", f"{d}/two.gguf"): check(f"known as {name}", s.complete(name)[1].get("model") == "two", name)
        check("nobody is named", s.complete(None)[1].get("model") == "hf" and s.complete("default")[1].get("model") == "hf")
        status, answer = s.complete("four")
        check("an unknown name", status == 404 and answer["error"]["code"] == "model_not_found" and "four" in answer["error"]["message"], answer)
        status, answer = s.post("/api/generate", {"model": "four", "prompt": "x", "context": []})
        check("an unknown name beside ids of tokens", status == 404 and answer == {"error": "model 'four' not found"}, answer)
        status, _, text = s.request("GET", "/v1/models/two")
        card = json.loads(text)
        check("one card", status == 200 and card["id"] == "two" and card["status"] == {"value": "loaded"} and card["max_model_len"] == 4096, card)
        check("no card", s.request("GET", "/v1/models/four")[0] == 404)
        status, answer = s.post("/tokenize", {"model": "hf", "prompt": "hello"}), s.post("/tokenize", {"model": "two", "prompt": "hello"})
        check("each its own tokens", status[0] == answer[0] == 200 and status[1]["tokens"] != answer[1]["tokens"], (status, answer))
        status, answer = s.complete("parts")
        check("not a model", status == 500 and "parts-00001-of-00002.gguf" in answer["error"]["message"], answer)
        check("failed", s.states()["parts"] == "failed", s.states())
        status, _, text = s.request("GET", "/v1/models/parts")
        check("and why", json.loads(text)["status"] == {"value": "unloaded", "failed": True} and "parts" in json.loads(text)["error"], text)
        s.stop()


def part_options():
    """--model several times, with and beside a folder; what is said wrongly."""
    with tempfile.TemporaryDirectory() as d:
        folder(d, one=TINY["one"], two=TINY["two"])
        s = Models("--model", TINY["three"], "--model", TINY["one"], "--served-model-name", "best", "other", "--models-dir", d)
        check("the first is loaded at the start", s.states() == {"best": "loaded", "other": "loaded", TINY["one"]: "unloaded", "two": "unloaded"}, s.states())
        check("the default one", s.complete(None)[1]["model"] == "best" and s.complete("other")[1]["model"] == "best")
        check("the second", s.complete(TINY["one"])[1]["model"] == TINY["one"] and s.complete("tiny4k")[1]["model"] == TINY["one"])
        check("of a file that is named twice there is one", s.complete("one")[0] == 404)
        s.stop()
        s = Models(TINY["one"])
        check("one model answers to any name", s.complete("gpt-4")[1].get("model") == TINY["one"])
        s.stop()
        s = Models(TINY["one"], TINY["two"])
        check("one of two does not", s.complete("gpt-4")[0] == 404 and s.complete(TINY["two"])[0] == 200)
        s.stop()
        (pathlib.Path(d) / "none").mkdir()
        (pathlib.Path(d) / "again").mkdir()
        refused("an empty folder", ["--models-dir", "none", "config.json"], "--models-dir", f"{d}/none")
        refused("no folder", ["--models-dir", "nowhere", "No such file"], "--models-dir", f"{d}/nowhere")
        refused("one name for two", ["two models would be called", TINY["one"]], "--model", TINY["one"], "--model", TINY["one"])
        refused("a name for nobody", ["--served-model-name"], "--models-dir", d, "--served-model-name", "x")
        refused("none at once", ["--max-loaded-models", "0"], "--models-dir", d, "--max-loaded-models", "0")
        refused("a second model that is not there", ["nowhere.gguf"], "--model", TINY["one"], "--model", "nowhere.gguf", code=1)


def alone(model):
    """What a server of this model alone answers."""
    s = Models(model)
    texts = [s.text(None, x) for x in PROMPTS]
    s.stop()
    return texts


def part_load():
    """Three models, two at a time, under load: each answer is that of the model alone, and none is lost."""
    want = {name: alone(path) for name, path in TINY.items()}
    check("they differ", len({tuple(x) for x in want.values()}) == 3)
    with tempfile.TemporaryDirectory() as d:
        s = Models("--models-dir", str(folder(d, **TINY)), "--max-loaded-models", "2")
        most, going = [0], True

        def watch():
            while going:
                most[0] = max(most[0], list(s.states().values()).count("loaded"))
                time.sleep(0.01)
        watcher = threading.Thread(target=watch)
        watcher.start()
        jobs = [(name, i) for i in range(len(PROMPTS)) for name in TINY] * 4
        with concurrent.futures.ThreadPoolExecutor(6) as pool: got = list(pool.map(lambda j: s.text(j[0], PROMPTS[j[1]]), jobs))
        going = False
        watcher.join()
        bad = [(job, x) for job, x in zip(jobs, got) if x != want[job[0]][job[1]]]
        check("every answer", not bad, bad[:2])
        check("two at most", most[0] == 2, most)
        loads, gone = s.metric("model_loads_total"), s.metric("model_unloads_total")
        check("loads and unloads are counted", loads >= 3 and gone >= 1 and loads - gone == s.metric("model_loaded") == 2, (loads, gone))
        check("each model's requests are counted", eventually(lambda: all(s.counted("generation_tokens_total", x) == 12 * len(jobs) / 3 for x in TINY), 20), [s.counted("generation_tokens_total", x) for x in TINY])
        for _ in range(3):
            for name in ("one", "two"): s.text(name)
        check("both are there", s.states() == {"one": "loaded", "two": "loaded", "three": "unloaded"}, s.states())
        s.text("three")
        check("the longest unused goes", s.states() == {"one": "unloaded", "two": "loaded", "three": "loaded"}, s.states())
        s.stop()


def long_model():
    return tiny_model("build/models/tiny_long.gguf", context=65536)


def part_beside():
    """While one loads, another's answer goes on; a client that leaves is forgotten; SIGTERM meanwhile."""
    with tempfile.TemporaryDirectory() as d:
        s = Models("--models-dir", str(folder(d, long=long_model(), two=TINY["two"], large=MODEL)), "--max-loaded-models", "2")
        long = Stream(s, "long", LONG)
        check("it has begun", eventually(lambda: long.got > 0, 30 * SLOW))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(s.text, "large", "The capital of France is", n=3)
            check("it loads", eventually(lambda: s.states()["large"] == "loading", 30 * SLOW, 0.001))
            before = long.got
            while s.states()["large"] == "loading": pass
            check("tokens come while another loads", not long.ended and long.got > before + 1, (before, long.got))
            check("the other has answered", isinstance(asked.result(), str), asked.result())
        check("the idle one makes room", s.complete("two")[0] == 200 and s.states() == {"large": "unloaded", "long": "loaded", "two": "loaded"}, s.states())
        check("and it was not the busy one", not long.ended)
        long.leave()
        gone = s.connect()
        gone.sendall(request_bytes("/v1/completions", {"model": "large", "prompt": "x", "max_tokens": 2000, "ignore_eos": True}))
        check("it loads again", eventually(lambda: s.states()["large"] != "unloaded", 30 * SLOW, 0.001))
        gone.close()
        check("who is there is served", s.complete("two")[0] == 200)
        check("nothing is left of who is gone", eventually(lambda: s.busy() == 0 and "loading" not in s.states().values(), 60 * SLOW), s.states())
        s.complete("long"), s.complete("two")
        check("nor does it hold its model", s.states() == {"large": "unloaded", "long": "loaded", "two": "loaded"}, s.states())
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(s.complete, "large", n=2)
            check("it loads once more", eventually(lambda: s.states()["large"] != "unloaded", 30 * SLOW, 0.001))
            check("SIGTERM", s.stop() == 0)
            check("who had asked is answered", asked.result()[0] == 200, asked.result())
        s = Models("--models-dir", d)
        s.connect().sendall(request_bytes("/v1/completions", {"model": "large", "prompt": "x", "max_tokens": 2}))
        check("SIGTERM when nobody waits", s.stop() == 0)


def part_waiting():
    """Where no model is idle, a request waits for room, and so do those behind it; not more than may wait."""
    with tempfile.TemporaryDirectory() as d:
        s = Models("--models-dir", str(folder(d, long=long_model(), two=TINY["two"])), "--max-loaded-models", "1", "--max-queue", "2")
        long = Stream(s, "long", LONG)
        check("it has begun", eventually(lambda: long.got > 0, 30 * SLOW))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(s.complete, "two") for _ in range(4)]
            check("two are told", eventually(lambda: sum(x.done() for x in asked) == 2, 30 * SLOW))
            told = [x.result() for x in asked if x.done()]
            check("with a sentence", all(x[0] == 503 and "2 requests wait" in x[1]["error"]["message"] for x in told), told)
            check("while it goes on", not long.ended and s.states()["long"] == "loaded" and s.states()["two"] != "loaded", s.states())
            for _ in range(20):  # the first may come before it is known that there is no room
                behind = Stream(s, "long", LONG)
                if not eventually(lambda: behind.got > 0, 0.5 * SLOW): break
                behind.leave()
            long.leave()
            check("two have waited", sorted(x.result()[0] for x in asked) == [200, 200, 503, 503])
            check("and who came later for the other stood behind them", not behind.ended and eventually(lambda: behind.got > 0, 30 * SLOW))
            behind.leave()
        check("turns", s.complete("long")[0] == s.complete("two")[0] == s.complete("long")[0] == 200)
        first, second = Stream(s, "long", 400), Stream(s, "two", 400)
        first.join(60 * SLOW), second.join(60 * SLOW)
        check("both answers come whole", first.ended and second.ended and first.got == second.got == 401, (first.got, second.got))
        s.stop()


def part_broken():
    """A file that is no model costs nobody anything, and can be mended."""
    with tempfile.TemporaryDirectory() as d:
        root = folder(d, one=TINY["one"])
        whole = pathlib.Path(TINY["two"]).read_bytes()
        (root / "bad.gguf").write_bytes(whole[:len(whole) // 2])
        s = Models("--models-dir", d, "--max-loaded-models", "1")
        want = s.text("one")
        for stream in (False, True):
            status, answer = s.complete("bad", stream=stream)
            check("it says so", status == 500 and "bad.gguf" in answer["error"]["message"] and "truncated" in answer["error"]["message"], answer)
        check("the other is still there", s.states() == {"bad": "failed", "one": "loaded"} and s.counted("model_loads_total", "one") == 1, s.states())
        (root / "bad.gguf").write_bytes(whole)
        check("mended", s.complete("bad")[0] == 200 and s.states() == {"bad": "loaded", "one": "unloaded"}, s.states())
        check("the other is the same", s.text("one") == want)
        s.stop()
        check("the log names it", "bad" in s.errors(), s.errors())


def part_memory():
    """What a model took goes back when it is unloaded."""
    if SANITIZED: return skip("memory", "a sanitizer keeps freed memory")
    with tempfile.TemporaryDirectory() as d:
        s = Models("--models-dir", str(folder(d, one=TINY["one"], large=MODEL)), "--max-loaded-models", "1")
        s.complete("one")
        small = s.resident()
        for _ in range(3):
            s.complete("large", n=2)
            large = s.resident()
            s.complete("one")
            check("it took something", large - small > 60 << 20, (small, large))
            check("and gave it back", eventually(lambda: s.resident() - small < 24 << 20, 10), (small, large, s.resident()))
        s.stop()


def part_promised():
    """What the KV caches of those that are loaded may take yet counts too: two that have more than half of the memory each take turns, without any limit of their number."""
    with tempfile.TemporaryDirectory() as d:
        root = folder(d, one=long_model(), two=long_model())
        free = json.loads(subprocess.run([CLI, "info", "-m", long_model(), "--json"], capture_output=True, text=True, timeout=60 * SLOW).stdout)["bytes_available"]
        if free > 90 << 30: return skip("promised memory", "there is more than this model could be made to want")
        for share, both in ((0.7, False), (0.2, True)):
            s = Models("--models-dir", str(root), "--kv-cache-memory-bytes", str(int(free * share)), "--max-num-seqs", "4096", "--block-size", "128")
            check(f"{share} of the memory: answers", [s.complete(x)[0] for x in ("one", "two", "one")] == [200] * 3)
            check(f"{share} of the memory: room", s.metric("model_unloads_total") == (0 if both else 2) and list(s.states().values()).count("loaded") == 1 + both, s.states())
            s.stop()


def part_adapters():
    """A model has its adapters again when it is loaded again, and a request may ask for it by their names."""
    with tempfile.TemporaryDirectory() as d:
        llama, root = str(checkpoint("llama")), pathlib.Path(d) / "adapters"
        root.mkdir()
        for i, name in enumerate(("first", "later")): adapters.make(str(llama), str(root / name), seed=i + 1)
        s = Models("--model", llama, "--model", TINY["one"], "--lora-modules", f"first={root}/first", "--lora-dir", str(root), "--max-loaded-models", "1")
        check("whose adapters they are is said", any(f"--lora-modules fits one model: it holds for {llama}".encode() in x for x in s.err), list(s.err))
        check("loaded while serving", s.request("POST", "/v1/load_lora_adapter", {"lora_name": "later", "lora_path": "later"})[0] == 200)
        want = [s.text(x) for x in (llama, "first", "later")]
        check("three answers", len(set(map(str, want))) == 3 and all(isinstance(x, str) for x in want), want)
        check("another model", s.complete(TINY["one"])[0] == 200)
        check("all are listed", s.states() == {llama: "unloaded", "first": "unloaded", "later": "unloaded", TINY["one"]: "loaded"}, s.states())
        check("by the adapter's name", s.text("later") == want[2] and s.states()[llama] == "loaded", s.states())
        check("the others too", [s.text(x) for x in (llama, "first", "later")] == want)
        s.stop()


def main():
    parts = {k[5:]: v for k, v in globals().items() if k.startswith("part_")}
    for name in sys.argv[1:] or parts: parts[name]()
    finish()


if __name__ == "__main__": main()
