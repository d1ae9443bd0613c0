#!/usr/bin/env python3
"""llm_serve on a CUDA library with two devices (the emulation: LLM_CUDA_LIBRARY), a tiny checkpoint: what it answers is what the CPU answers, whoever asks at the same time."""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../e2e"))
import adapters
from serving import Server, check, checkpoint, eventually, finish, request_bytes, skip

LIBRARY = os.environ.pop("LLM_CUDA_LIBRARY", "build/libllm_cuda_emu.so")  # the flag is what is tested
MODEL = str(checkpoint("llama"))
TMP = tempfile.mkdtemp(prefix="llm_cuda_serve_")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
BASE = ("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8", "--max-num-batched-tokens", "96", "--log-level", "warn", "--chat-template", TEMPLATE, "--lora-modules", f"a={TMP}/a", f"b={TMP}/b", "--max-loras", "2")
CUDA = ("--device", "cuda", "--cuda-library", LIBRARY, "-tp", "2")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}, "ok": {"type": "boolean"}, "c": {"enum": ["x", "yy"]}}, "required": ["n", "ok", "c"]}


def prompt(i):
    return [(i * 37 + k * 11 + 5) % 250 + 4 for k in range(5 + 9 * i)]


def complete(s, i, model=MODEL, **more):
    """Ids and log-probabilities. Odd ones are drawn, with a seed."""
    body = {"model": model, "prompt": prompt(i), "max_tokens": 10, "temperature": i % 2, "top_p": 0.9, "seed": i, "logprobs": 3, "ignore_eos": True, "return_token_ids": True, **more}
    status, a = s.post("/v1/completions", body)
    return (a["choices"][0]["token_ids"], a["choices"][0]["logprobs"]) if status == 200 else (status, a)


def near(a, b):
    """The same tokens, and log-probabilities that differ by rounding only."""
    if a[0] != b[0] or not isinstance(a[0], list): return False
    pairs = list(zip(a[1]["token_logprobs"], b[1]["token_logprobs"])) + [(x[t], y.get(t, 9)) for x, y in zip(a[1]["top_logprobs"], b[1]["top_logprobs"]) for t in x]
    return len(a[0]) == 10 and all(abs(x - y) < 1e-3 for x, y in pairs)


def answers(s):
    """Everything that the CPU and the devices must agree on, one request after the other."""
    got = {f"completion {i} of {os.path.basename(m)}": complete(s, i, m) for i in range(4) for m in (MODEL, "a", "b")}
    chat = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 2, "ignore_eos": True}
    status, a = s.post("/v1/chat/completions", chat)
    got["chat"] = status, a["choices"][0]["message"]["content"] if status == 200 else a
    got["penalties and bias"] = complete(s, 0, presence_penalty=1.5, logit_bias={"7": 3}, min_p=0.01)[0]
    return got


def streamed(s, i, model):
    status, events = s.stream("/v1/completions", {"model": model, "prompt": prompt(i), "max_tokens": 10, "temperature": i % 2, "top_p": 0.9, "seed": i, "ignore_eos": True, "return_token_ids": True})
    return [t for x in events[:-1] for c in json.loads(x)["choices"] for t in c.get("token_ids") or []] if status == 200 and events[-1] == "[DONE]" else (status, events)


def at_once(s, want):
    """Eight streams of three adapters side by side give what each gave alone."""
    got, names = {}, [(i, m) for i in range(4) for m in (MODEL, "a", "b")][:8]
    threads = [threading.Thread(target=lambda i=i, m=m: got.update({(i, m): streamed(s, i, m)})) for i, m in names]
    for t in threads: t.start()
    for t in threads: t.join()
    for i, m in names: check(f"stream {i} of {os.path.basename(m)} among eight", got[i, m] == want[f"completion {i} of {os.path.basename(m)}"][0], got[i, m])


def guided(s):
    for seed in range(3):
        status, a = s.post("/v1/completions", {"prompt": prompt(1), "max_tokens": 60, "temperature": 1, "seed": seed, "guided_json": SCHEMA})
        text = a["choices"][0]["text"] if status == 200 else "{}"
        try: d = json.loads(text)
        except ValueError: d = {}
        check(f"guided, seed {seed}", list(d) == ["n", "ok", "c"] and d["n"] in range(10) and d["ok"] in (True, False) and d["c"] in ("x", "yy"), (a, text))


def cancelled(s):
    """A client that goes away in the middle: its sequence ends, and others go on as before."""
    c = s.connect()
    c.sendall(request_bytes("/v1/completions", {"prompt": prompt(2), "max_tokens": 400, "temperature": 0, "ignore_eos": True, "stream": True}))
    got = b""
    while got.count(b"data: ") < 3: got += c.recv(4096)
    other = complete(s, 1)
    c.close()
    return eventually(lambda: s.busy() == 0, 20), other


def of_vocabulary(n):
    """The model with another number of tokens: the last rows of embedding and head are gone, or there are some more of zeros."""
    folder = pathlib.Path(TMP, f"of_{n}")
    folder.mkdir()
    for file in pathlib.Path(MODEL).iterdir():
        if file.suffix != ".safetensors" and file.name != "config.json": os.symlink(file.resolve(), folder / file.name)
    config = json.loads(pathlib.Path(MODEL, "config.json").read_text())
    tensors = adapters.folder_tensors(pathlib.Path(MODEL))
    for name, (kind, shape, data) in list(tensors.items()):
        if shape[0] == config["vocab_size"]: tensors[name] = kind, [n, *shape[1:]], data[:len(data) // shape[0] * n].ljust(len(data) // shape[0] * n, b"\0")
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": n}))
    adapters.write_safetensors(f"{folder}/model.safetensors", tensors)
    return str(folder)


def drafted(want):
    """A draft model of more tokens than the model, and one of fewer, each in equal shares: guesses change no answer, and those of the model's own weights are kept."""
    base = BASE[:BASE.index("--lora-modules")]
    for n in (640, 448):
        s = Server(*CUDA, "--speculative-model", of_vocabulary(n), "--num-speculative-tokens", "3", model=MODEL, base=base)
        for i in (0, 2):
            name = f"completion {i} of {os.path.basename(MODEL)}"
            got = complete(s, i)
            check(f"{name}, a draft model of {n} tokens", near(want[name], got), (want[name], got))
        guessed, kept = (s.metric(f"spec_decode_num_{x}_tokens_total") for x in ("draft", "accepted"))
        check(f"guesses of a draft model of {n} tokens are kept", kept > guessed / 2 > 0, (kept, guessed))
        check(f"a draft model of {n} tokens: ends well", s.stop() == 0)


def main():
    adapters.make(MODEL, f"{TMP}/a")
    adapters.make(MODEL, f"{TMP}/b", seed=2, targets="q_proj|down_proj|lm_head")
    s = Server("--device", "cpu", model=MODEL, base=BASE)
    want = answers(s)
    check("three different models", len({str(want[f"completion 0 of {m}"]) for m in (os.path.basename(MODEL), "a", "b")}) == 3 and s.stop() == 0)
    s = Server(*CUDA, model=MODEL, base=BASE)
    got = answers(s)
    for name in want: check(name, near(want[name], got[name]) if name.startswith("completion") else want[name] == got[name], (want[name], got[name]))
    at_once(s, want)
    guided(s)
    gone, other = cancelled(s)
    check("cancelled, others unharmed", gone and near(want[f"completion 1 of {os.path.basename(MODEL)}"], other), other)
    status, a = s.post("/v1/completions", {"prompt": [99999], "max_tokens": 1})
    check("a bad input is refused", status == 400 and a["error"]["message"], a)
    check("the canary", near(want["completion 2 of a"], complete(s, 2, "a")) and s.alive() and s.stop() == 0)
    drafted(want)
    try: check("sums of four by NCCL are not invariant", not Server(*CUDA, "-tp", "4", "--batch-invariant", model=str(checkpoint("llama_rope_yarn")), base=BASE[:BASE.index("--lora-modules")], env={"LLM_CUDA_NO_PEERS": "1"}).stop())
    except RuntimeError as e: check("sums of four by NCCL are refused with batch_invariant", "cannot reach each other" in str(e), e)
    for flags, why in ((("--cuda-library", TMP + "/none.so", "--device", "cuda"), "none.so"), (("-tp", "2", "--device", "cuda", "--cuda-library", "libm.so.6"), "libm.so.6")):
        try: check(f"{flags}", not Server(*flags, model=MODEL, base=BASE).stop())
        except RuntimeError as e: check(f"refused: {flags[1]}", "exit 1" in str(e) and why in str(e), e)


if __name__ == "__main__":
    if not os.path.exists(LIBRARY): skip("llm_serve on CUDA", f"{LIBRARY} is not there")
    else:
        try: main()
        finally: shutil.rmtree(TMP)
    finish()
