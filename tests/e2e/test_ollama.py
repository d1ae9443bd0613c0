#!/usr/bin/env python3
"""llm_serve as Ollama's clients see it: the ollama package (in build/python, or OLLAMA_PYTHON), pictures, bodies without a type. Standard library
but for the client, which runs in a process of its own.

    test_ollama.py            env LLM_SERVE (./llm_serve)
"""
import base64
import json
import os
import pathlib
import subprocess
import sys

import serving
from serving import MODEL, Server, check, finish, skip

CLIENT = r"""
import json, sys
import ollama
c = ollama.Client(host=sys.argv[1], headers={"Authorization": "Bearer k"})
name = sys.argv[2]
say = lambda what, ok, why="": print(json.dumps([what, bool(ok), str(why)[:400]]))
ask = [{"role": "user", "content": "What is the capital of France?"}]
how = {"temperature": 0, "num_predict": 6}
models = c.list().models
say("list", [m.model for m in models] == [name + ":latest"] and models[0].size > 1000 and models[0].details.parameter_size == "134.52M", models)
ps = c.ps().models
say("ps", len(ps) == 1 and ps[0].context_length == 2048 and ps[0].digest == models[0].digest, ps)
show = c.show(name + ":latest")
say("show", "completion" in show.capabilities and show.modelinfo["general.architecture"] == "llama" and show.modelinfo["llama.context_length"] == 8192 and "assistant" in show.template, show)
whole = c.chat(name, ask, options=how)
say("chat", whole.done and whole.done_reason == "length" and whole.eval_count == 6 and whole.message.role == "assistant" and whole.message.content, whole)
say("chat's times", whole.total_duration >= whole.prompt_eval_duration + whole.eval_duration > 0 and whole.prompt_eval_count > 20 and whole.load_duration >= 0, whole)
parts = list(c.chat(name, ask, options=how, stream=True))
say("streamed chat", "".join(p.message.content for p in parts) == whole.message.content and [p.done for p in parts] == [False] * (len(parts) - 1) + [True] and parts[-1].eval_count == 6 and len(parts) > 2, parts)
say("a tag", c.chat(name + ":latest", ask, options=how).message.content == whole.message.content)
made = c.generate(name, "The sky is", system="Be brief.", options=how)
say("generate", made.done and made.response and len(made.context) == made.prompt_eval_count + made.eval_count, made)
more = c.generate(name, "Why?", context=made.context, options=how)
say("generate with a context", list(more.context[:len(made.context)]) == list(made.context) and more.prompt_eval_count > len(made.context), more)
say("streamed generate", "".join(p.response for p in c.generate(name, "The sky is", system="Be brief.", options=how, stream=True)) == made.response)
raw = c.generate(name, "The sky is", raw=True, options=how)
say("raw", raw.prompt_eval_count == 3 and raw.context is None, raw)
stopped = c.generate(name, "The sky is", raw=True, options={**how, "stop": [raw.response[-2:]]})
say("stop", stopped.done_reason == "stop" and raw.response.startswith(stopped.response) and stopped.response != raw.response, (raw.response, stopped))
schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"], "additionalProperties": False}
said = json.loads(c.chat(name, ask, format=schema, options={"temperature": 0}).message.content)
say("format: a schema", list(said) == ["city"] and isinstance(said["city"], str), said)
said = c.generate(name, "Name a city in JSON", format="json", options={"temperature": 0, "num_predict": 300})
say("format: json", said.response.startswith("{") and (said.done_reason == "length" or isinstance(json.loads(said.response), dict)), said)
say("the same seed", len({c.generate(name, "Once", raw=True, options={"seed": 5, "num_predict": 8}).response for _ in range(2)}) == 1)
say("tools are shown", c.chat(name, ask, tools=[{"type": "function", "function": {"name": "f", "description": "x", "parameters": {"type": "object", "properties": {}}}}], options=how).prompt_eval_count > whole.prompt_eval_count + 20)
say("nothing to say loads", c.generate(name).done_reason == "load" and c.chat(name, []).done_reason == "load")
vectors = c.embed(name, ["a cat", "a dog"])
say("embed", len(vectors.embeddings) == 2 and abs(sum(x * x for x in vectors.embeddings[0]) - 1) < 1e-4 and vectors.prompt_eval_count == 4, (vectors.prompt_eval_count, vectors.total_duration))
one = c.embeddings(name, "a cat").embedding
say("embeddings", abs(one[0] / vectors.embeddings[0][0] - one[5] / vectors.embeddings[0][5]) < 0.01 and sum(x * x for x in one) > 2, one[:3])
top = c.chat(name, ask, options=how, logprobs=True, top_logprobs=2).logprobs
say("logprobs", len(top) == 6 and all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in top), top)
def refused(what, status, words, call, **more):
    try: say(what, False, call(name, **more))
    except ollama.ResponseError as e: say(what, e.status_code == status and words in e.error, (e.status_code, e.error))
refused("a bad option", 400, "temperature: 9", c.chat, messages=ask, options={"temperature": 9})
refused("thinking", 400, "does not think", c.chat, messages=ask, think=True)
refused("a picture", 400, "is not a multimodal model", c.generate, prompt="a", images=[b"hi"])
refused("a template", 403, "template", c.generate, prompt="a", template="{{ .Prompt }}")
refused("a suffix", 400, "suffix", c.generate, prompt="a", suffix="b")
try: say("a model that is not there", False, list(c.chat("other", ask, stream=True)))
except ollama.ResponseError as e: say("a model that is not there", e.status_code == 404 and e.error == "model 'other' not found", e)
"""


def client(s, name):
    python = pathlib.Path(os.environ.get("OLLAMA_PYTHON", "build/python/bin/python"))
    if not python.exists() or subprocess.run([python, "-c", "import ollama"], capture_output=True).returncode: return skip("the ollama package", "it is not installed")
    p = subprocess.run([python, "-c", CLIENT, s.url, name], capture_output=True, text=True, env={**os.environ, "NO_PROXY": "*", "no_proxy": "*"})
    rows = [json.loads(line) for line in p.stdout.splitlines()]
    for what, ok, why in rows: check("ollama: " + what, ok, why)
    check("ollama: all was asked", p.returncode == 0 and len(rows) > 25, p.stderr[-600:])


def plain(s, key):
    """What the package does not send."""
    ask = {"messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 2, "num_ctx": 4096, "nothing": 1}, "keep_alive": "5m", "stream": False, "other": 1}
    status, headers, text = s.request("POST", "/api/chat", ask, key)
    check("what has no effect is told", status == 200 and headers.get("x-llm-ignored") == "options.num_ctx, options.nothing, keep_alive, other", headers)
    status, headers, text = s.request("POST", "/api/generate", {"prompt": "Hi", "options": {"num_predict": 2}}, key)
    lines = [json.loads(x) for x in text.decode().splitlines()]
    check("a stream of lines is the default", status == 200 and headers.get("content-type") == "application/x-ndjson" and [x["done"] for x in lines][-1:] == [True] and len(lines) > 1, (headers, text))
    check("the version", json.loads(s.request("GET", "/api/version", None, key)[2])["version"].count(".") == 2)
    check("HEAD /", s.request("HEAD", "/")[0] == 200)
    body = json.dumps({"prompt": "Hi", "options": {"num_predict": 1}, "stream": False}).encode()
    form = {"Content-Type": "application/x-www-form-urlencoded", **key}
    check("curl -d, as Ollama's documents have it", s.request("POST", "/api/generate", body, form)[0] == 200)
    check("but of no page", s.request("POST", "/api/generate", body, {**form, "Origin": "http://localhost:1"})[0] == 415 and s.request("POST", "/api/generate", body, {**form, "Sec-Fetch-Site": "none"})[0] == 415)
    check("and elsewhere not", s.request("POST", "/v1/completions", body, form)[0] == 415)
    for method, path, status, words in (("GET", "/api/chat", 405, "method"), ("GET", "/api/nothing", 404, "not found"), ("POST", "/api/show", 401, "Unauthorized")):
        got, headers, text = s.request(method, path, None if method == "GET" else b"{}", {} if status == 401 else key)
        check(f"Ollama's form of a {status}", got == status and list(json.loads(text)) == ["error"] and words in json.loads(text)["error"], text)


def pictures():
    """A picture as Ollama sends it is the picture of OpenAI's chat."""
    folder = pathlib.Path("build/data/vision/gemma3")
    if not (folder / "expected.json").exists(): return check("pictures", False, f"{folder} is not there: run make data")
    case = next(p for p in json.loads((folder / "expected.json").read_text())["prompts"] if sum(isinstance(m["content"], list) and any(x["type"] != "text" for x in m["content"]) for m in p["messages"]) == 1 and len(p["messages"]) == 1)
    part = next(x for x in case["messages"][0]["content"] if x["type"] != "text")
    text = next(x["text"] for x in case["messages"][0]["content"] if x["type"] == "text")
    name = json.dumps(part).split("file:")[1].split('"')[0]
    raw = base64.b64encode((folder / name).read_bytes()).decode()
    s = Server(model=str(folder), base=("--max-model-len", "1024", "--log-level", "warn"))
    want = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + raw}}, {"type": "text", "text": text}]}], "temperature": 0, "max_tokens": 5})[1]
    how = {"stream": False, "options": {"temperature": 0, "num_predict": 5}}
    chat = s.post("/api/chat", {"messages": [{"role": "user", "content": text, "images": [raw]}], **how})[1]
    made = s.post("/api/generate", {"prompt": text, "images": [raw], **how})[1]
    check("a picture in a chat", chat.get("message", {}).get("content") == want["choices"][0]["message"]["content"] and chat["prompt_eval_count"] == want["usage"]["prompt_tokens"], (want, chat))
    check("a picture beside a prompt", made.get("response") == want["choices"][0]["message"]["content"], made)
    check("it is told that it sees", "vision" in s.post("/api/show", {})[1]["capabilities"])
    status, bad = s.post("/api/generate", {"prompt": text, "images": ["aGk="], **how})
    check("a picture that is none", status == 400 and "the image" in bad["error"], (status, bad))
    check("the server of pictures ends", s.stop() == 0)


def main():
    name = "smol"
    s = Server("--served-model-name", name, "--strict-model-name", "--api-key", "k")
    client(s, name)
    plain(s, {"Authorization": "Bearer k"})
    check("the server ends", s.stop() == 0)
    pictures()
    finish()


main()
