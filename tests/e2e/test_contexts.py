#!/usr/bin/env python3
"""Kept contexts: saved by one server, loaded by another, the same bits; what is foreign, cut or changed is refused, and nothing is lost."""
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(__file__))
import adapters
from serving import Server, check, checkpoint, eventually, finish

TMP = tempfile.mkdtemp(prefix="llm_kept_")
BASE = ("--log-level", "warn", "--max-num-seqs", "4", "--context-dir", TMP + "/kept")
RNG = random.Random(3)
LONG = [RNG.randrange(4, 500) for _ in range(300)]


def ask(s, prompt, **more):
    """Token ids, log-probabilities and how many tokens of the prompt were known."""
    status, _, body = s.request("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 3, "ignore_eos": True, "return_token_ids": True, **more})
    a = json.loads(body)
    if status != 200: return status, a["error"]["message"], 0
    return a["choices"][0]["token_ids"], json.dumps(a["choices"][0]["logprobs"]), a["usage"]["prompt_tokens_details"]["cached_tokens"]


def kept(s, what, name, **more):
    status, _, body = s.request("POST", f"/v1/contexts/{what}", {"name": name, **more})
    return status, json.loads(body)


def whole(path, flags=(), **more):
    """Once around: asked, saved, asked again by a server that has loaded it, and by one that has not."""
    label, grows = f"{os.path.basename(path)} {' '.join(flags)[:60]}", "dynamic" in path # grows: the base of its rotation depends on the prompt's length
    prompt = [x % 250 + 4 for x in LONG]
    s = Server(*flags, model=path, base=BASE)
    want = ask(s, prompt, **more)
    status, body = kept(s, "save", "doc", prompt=prompt + [5] * (not grows), **more)
    check(f"{label}: saved", status == 200 and body["tokens"] == 288 and body["name"] == "doc" and s.stop() == 0, body)
    s = Server(*flags, model=path, base=BASE)
    status, body = kept(s, "load", "doc", **({"model": more["model"]} if "model" in more else {}))
    got = ask(s, prompt, **more)
    check(f"{label}: the same bits", status == 200 and body["tokens"] == 288 and got[:2] == want[:2] and got[2] == 288 and want[2] == 0, (body, got, want))
    other = ask(s, prompt[:100] + [9] + prompt[101:], **more)
    check(f"{label}: the beginning is known to others", other[2] == 96, other)
    check(f"{label}: loaded again", kept(s, "load", "doc", **({"model": more["model"]} if "model" in more else {}))[0] == 200 and ask(s, prompt, **more)[:2] == want[:2] and s.stop() == 0)


def quota():
    """So many files, so many bytes, and no more: refused with both numbers, nothing written. One of the same name is replaced."""
    prompt = [x % 250 + 4 for x in LONG]
    model, folder = str(checkpoint("llama")), TMP + "/quota"
    os.mkdir(folder)
    for flags, most in ((("--max-contexts", "3"), 3), (("--max-context-bytes", "200K"), None)):
        s = Server("--context-dir", folder, *flags, model=model, base=BASE)
        ask(s, prompt)
        got = [kept(s, "save", f"c{i}", prompt=prompt) for i in range(6)]
        fit = sum(status == 200 for status, _ in got)
        files = {name: os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder)}
        check(f"{flags}: some are kept", fit == len(files) == (most or fit) > 0 and [x[0] for x in got] == [200] * fit + [403] * (6 - fit), got)
        check(f"{flags}: the others are told why", all(x["error"]["code"] == "insufficient_quota" and x["error"]["param"] == "name" and "quota" in x["error"]["message"] for status, x in got[fit:]), got[-1])
        check(f"{flags}: bytes are bounded", most or sum(files.values()) <= 200 << 10 < sum(files.values()) + max(files.values()), files)
        check(f"{flags}: the same name again", kept(s, "save", "c0", prompt=prompt)[0] == 200 and kept(s, "load", "c0")[0] == 200)
        many = [threading.Thread(target=kept, args=(s, "save", f"d{i}"), kwargs={"prompt": prompt}) for i in range(8)]
        for t in many: t.start()
        for t in many: t.join()
        check(f"{flags}: many at once", len(os.listdir(folder)) == fit, os.listdir(folder))
        check(f"{flags}: ends", s.stop() == 0)
        for name in files: os.remove(f"{folder}/{name}")


def full():
    """A file may grow no further, as on a full disk: one sentence that names no folder of the server, nothing left behind, and it serves on."""
    prompt = [x % 250 + 4 for x in LONG]
    model, folder = str(checkpoint("llama")), TMP + "/full"
    os.mkdir(folder)
    s = Server("--context-dir", folder, "--lora-dir", folder, model=model, base=BASE, file_size=9000)
    before = ask(s, prompt)
    status, a = kept(s, "save", "c", prompt=prompt)
    check("a context that finds no room", status == 500 and a["error"]["message"].startswith("c: ") and folder not in a["error"]["message"], (status, a))
    check("leaves nothing behind", os.listdir(folder) == [], os.listdir(folder))
    check("the server goes on", s.alive() and ask(s, prompt)[0] == before[0] and s.request("GET", "/health")[0] == 200)
    for path, body in (("/v1/contexts/load", {"name": "none"}), ("/v1/contexts/save", {"name": "c", "prompt": [9, 9, 9]}), ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "none"})):
        status, a = s.post(path, body)
        check(f"{path}: no folder of ours in an error", status >= 400 and TMP not in a["error"]["message"], (status, a))
    check("full: ends", s.stop() == 0)


def refused():
    """Files of another model, dtype, KV type, page size, rank count, adapter; cut and changed ones. The cache stays as it was."""
    model = str(checkpoint("llama"))
    adapters.make(model, f"{TMP}/a")
    adapters.make(model, f"{TMP}/b", seed=2)
    lora = ("--lora-modules", f"a={TMP}/a", f"b={TMP}/b")
    prompt = LONG[:120]
    s = Server(*lora, model=model, base=BASE)
    want = {name: ask(s, prompt, model=name) for name in (model, "a", "b")}
    check("three different answers", len({x[1] for x in want.values()}) == 3)
    check("adapters have contexts of their own", kept(s, "save", "base", prompt=prompt)[0] == 200 and kept(s, "save", "of-a", prompt=prompt, model="a")[0] == 200)
    check("salted", ask(s, prompt, cache_salt="x")[2] == 0 and kept(s, "save", "salted", prompt=prompt, cache_salt="x")[0] == 200 and kept(s, "save", "nobody", prompt=prompt, cache_salt="y")[0] == 400)
    check("nothing to keep", all(kept(s, "save", "no", prompt=x)[0] == 400 for x in ([7] * 100, prompt[:31], prompt[:0] + [1])))
    check("asked and saved", s.stop() == 0 and sorted(os.listdir(f"{TMP}/kept")) == ["base", "doc", "of-a", "salted"], os.listdir(f"{TMP}/kept"))
    s = Server(*lora, model=model, base=BASE)
    for name, as_model, why in (("of-a", model, "adapter"), ("base", "a", "adapter"), ("of-a", "b", "adapter")):
        status, body = kept(s, "load", name, model=as_model)
        check(f"{name} for {os.path.basename(as_model)}", status == 400 and why in body["error"]["message"], body)
    check("nothing came in", all(ask(s, prompt, model=name)[2] == 0 for name in want))
    s.stop()
    s = Server(*lora, model=model, base=BASE)
    check("under the salt it is loaded with", kept(s, "load", "salted", cache_salt="z")[0] == 200 and ask(s, prompt)[2] == 0 and ask(s, prompt, cache_salt="z")[2] == 96)
    data = open(f"{TMP}/kept/base", "rb").read()
    rng = random.Random(9)
    cases = [(f"cut at {n}", data[:n]) for n in (0, 1, 8, 50, 95, 96, 97, 200, len(data) // 2, len(data) - 8, len(data) - 1)] + [("longer", data + b"\0"), ("text", b"hello"), ("an old format", data[:8] + b"\1" + data[9:])]
    for i in range(40):
        at = rng.randrange(len(data)) if i > 20 else rng.randrange(120)
        cases.append((f"byte {at}", data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1:]))
    s.wait_idle(5)  # the answer before is out, but its pages may not be back yet
    free = s.metric("kv_cache_usage_perc")
    for name, bytes_ in cases:
        with open(f"{TMP}/kept/bad", "wb") as f: f.write(bytes_)
        status, body = kept(s, "load", "bad")
        check(f"a file {name}", status == 400 and "bad: " in body["error"]["message"] and "\n" not in body["error"]["message"], body)
    check("no page is lost", eventually(lambda: s.metric("kv_cache_usage_perc") == free == 0, 5), (free, s.metric("kv_cache_usage_perc")))
    os.remove(f"{TMP}/kept/bad")
    os.symlink(f"{TMP}/kept/base", f"{TMP}/kept/link")
    os.mkfifo(f"{TMP}/kept/fifo")
    for name, status in (("none", 404), ("../kept/base", 403), ("/etc/passwd", 403), (".", 403), ("..", 403), ("", 403), (".base", 403), ("link", 403), ("fifo", 404), ("a\0b", 403), (None, 400), (7, 400), ("x" * 300, 403)):
        for what in ("load", "save"):
            if (name, what) in (("none", "save"), ("fifo", "save")): continue
            got = kept(s, what, name, prompt=prompt)
            check(f"{what} {name!r:.20}", got[0] == status and got[1]["error"]["message"], got)
    for more in ({"prompt": 1}, {"prompt": [[1]]}, {"prompt": [99999]}, {"messages": 1}, {}, {"prompt": prompt, "cache_salt": 1}, {"prompt": prompt, "model": "zzz"}):
        check(f"save with {str(more)[:40]}", kept(s, "save", "x", **more)[0] in (400, 404))
    check("the canary", ask(s, prompt)[:2] == want[model][:2] and kept(s, "load", "base")[0] == 200 and s.stop() == 0)
    for label, other, flags, why in (("model", "llama_rope_linear", (), "model"), ("model of the same shape", "mistral", (), "model"), ("dtype", "llama", ("--dtype", "float32", "--kv-cache-dtype", "float16"), "dtype (auto, here it is float32)"), ("KV type", "llama", ("--kv-cache-dtype", "int8"), "16, here it is int8)"),
                                     ("page size", "llama", ("--block-size", "16"), "page size"), ("number of ranks", "llama", ("-tp", "2", "--device", "cpu"), "ranks"), ("cache that is off", "llama", ("--no-enable-prefix-caching",), "prefix cache"),
                                     ("cache that is too small", "llama", ("--num-gpu-blocks", "2", "--max-model-len", "64"), "pages")):
        s = Server(*flags, model=str(checkpoint(other)), base=BASE)
        status, body = kept(s, "load", "base")
        check(f"another {label}", status in (400, 501) and why in body["error"]["message"], body)
        s.stop()
    s = Server(model=model, base=("--log-level", "warn"))
    check("no folder: 403", all(kept(s, what, "base", prompt=prompt)[0] == 403 for what in ("load", "save")) and s.stop() == 0)


def busy():
    """Saved and loaded again and again while others ask: everybody gets what he gets alone. A small cache, so that pages come and go."""
    model = str(checkpoint("llama"))
    s = Server("--num-gpu-blocks", "40", "--max-model-len", "640", "--preemption-mode", "swap", model=model, base=BASE)
    prompts = [[(x + i) % 500 + 4 for x in LONG[:200]] for i in range(4)]
    want = [ask(s, p)[:2] for p in prompts]
    stop, odd, done = threading.Event(), [], [0, 0]

    def loop(i):
        while not stop.is_set():
            if ask(s, prompts[i])[:2] != want[i]: odd.append(i)

    threads = [threading.Thread(target=loop, args=(i,)) for i in range(4)]
    for t in threads: t.start()
    for i in range(30):
        status, body = kept(s, "save", f"busy{i % 4}", prompt=prompts[i % 4])
        done[0] += status == 200
        status, body = kept(s, "load", f"busy{i % 4}")
        done[1] += status == 200
    stop.set()
    for t in threads: t.join()
    check("saved and loaded while others ask", not odd and min(done) > 5, (odd, done))
    check("no half-written file is left", all("." not in x for x in os.listdir(f"{TMP}/kept")), os.listdir(f"{TMP}/kept"))
    check("ends", s.stop() == 0)


if __name__ == "__main__":
    os.makedirs(f"{TMP}/kept")
    adapters.make(str(checkpoint("llama")), f"{TMP}/x")
    try:
        for flags in ((), ("--dtype", "float32"), ("--kv-cache-dtype", "int8"), ("-tp", "2", "--device", "cpu"), ("--block-size", "16", "--isa", "scalar")): whole(str(checkpoint("llama")), flags)
        for name in ("deepseek_v2", "deepseek_v32_topk", "gemma3_text", "llama_rope_dynamic"): whole(str(checkpoint(name)))
        whole(str(checkpoint("llama")), ("--lora-modules", f"x={TMP}/x"), model="x")
        refused()
        quota()
        full()
        busy()
    finally: shutil.rmtree(TMP)
    finish()
