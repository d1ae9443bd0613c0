#!/usr/bin/env python3
"""What users of the documents type: their start lines and curl commands word for word, with address and model put in. Standard library and curl.

tests/data/documents has what the documents tell users to type; the routes and behaviours that clients rely on follow.
"""
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
import threading
import time

from serving import HOST, MODEL, SERVE, SLOW, Server, check, finish, tiny_model

DOCUMENTS = pathlib.Path("tests/data/documents")


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets: s.bind((HOST, 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets: s.close()
    return ports


def curl(command):
    """Runs a curl command as a shell would; (status, body)."""
    p = subprocess.run(["sh", "-c", command.replace("curl ", "curl -sS -w '\\n%{http_code}' ", 1)], capture_output=True, text=True, timeout=120)
    body, _, status = p.stdout.rpartition("\n")
    return int(status or 0), body + p.stderr


def start(words):
    """Starts a server with a document's own words; the process and what it says first."""
    p = subprocess.Popen([SERVE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    err = []
    threading.Thread(target=lambda: err.extend(p.stderr), daemon=True).start()
    return p, p.stdout.readline(), err


def start_line(name, words, env=None, want=None):
    """A start line must bring a server up that answers; its notes."""
    old = dict(os.environ)
    os.environ.update(env or {})
    p, line, err = start(words)
    os.environ.clear()
    os.environ.update(old)
    up = check(f"start: {name}", line.startswith("listening on "), line + "".join(err))
    if up:
        url = line.split()[2]
        status, body = curl(f"curl {url}/v1/completions -H 'Content-Type: application/json' -d '{{\"prompt\": \"a\", \"max_tokens\": 2}}'")
        check(f"answers: {name}", status == 200 and "choices" in body, body)
        if want: want(url)
        p.terminate()
    check(f"ends: {name}", p.wait(timeout=30) == (0 if up else 1))
    return "".join(err)


def fastdeploy(text):
    """The early stop page: its two start lines, first as they are (SmolLM2 is too short for them), then with a length that fits."""
    lines = [x.replace(" \\ ", " ").split("api_server ")[1].split(" - ")[0].strip() for x in text.splitlines() if x.startswith("python -m fastdeploy.entrypoints.openai.api_server")]
    check("early stop: two start lines", len(lines) == 2, lines)
    for line in lines:
        main, metrics, worker = free_ports(3)
        words = shlex.split(line.replace("baidu/ERNIE-4.5-0.3B-Paddle", MODEL).replace("8180", str(main)).replace("8181", str(metrics)).replace("8182", str(worker)))
        p = subprocess.run([SERVE, *words], capture_output=True, text=True, timeout=60)
        check("32768 is refused with both numbers", p.returncode == 2 and "32768" in p.stderr and "8192" in p.stderr, (p.returncode, p.stderr))

        def also(url):
            check("port of the metrics", curl(f"curl http://{HOST}:{metrics}/metrics")[0] == 200)
            check("the metrics port serves nothing else", curl(f"curl http://{HOST}:{metrics}/v1/models")[0] == 404)
        err = start_line(line[-60:], ["8192" if x == "32768" else x for x in words], want=also)
        check("the queue port is told to have no meaning", "engine-worker-queue-port" in err, err)


def modelarts(text, s, url):
    """The Notebook page: environment, start lines, four curl commands."""
    env = dict(x.split("=", 1) for x in re.findall(r"^\s*x?p?export (\w+=[^\s#]+)", text, re.M))
    check("Notebook: its variables", {"USE_PFA_HIGH_PRECISION_MODE", "INFER_MODE", "VLLM_ENGINE_ITERATION_TIMEOUT_S", "HCCL_OP_EXPANSION_MODE"} <= set(env), env)
    env.pop("ASCEND_RT_VISIBLE_DEVICES", None)
    starts = re.findall(r"python -m vllm\.entrypoints\.(?:openai\.)?api_server ((?:.*\\\n)+.*)", text)
    check("Notebook: three start lines", len(starts) == 3, starts)
    for i, line in enumerate(starts):
        for old, new in (("${container_model_path}", MODEL), ("${docker_ip}", HOST), ("${port}", "8080"), ("8080", str(free_ports(1)[0])), ("${dtype}", "float16"), ("${chat_template_path}", "'{{ messages[0].content }}'"), ("\\\n", " ")): line = line.replace(old, new)
        start_line(f"Notebook {i + 1}", shlex.split(line), env)
    commands = [x for x in re.findall(r"curl -X POST http.*?\n\s*\}'", text, re.S)]
    check("Notebook: its curl commands", len(commands) == 4, len(commands))
    for command in commands:
        command = command.replace("${container_model_path}", MODEL).replace("http://localhost:8080", url).replace("http://${docker_ip}:8080", url)
        status, body = curl(command)
        name = "curl " + re.search(r"http://[^/]*(\S*)", command)[1] + (" beam" if "use_beam" in command else " guided" if "guided" in command else "")
        try: value = json.loads(body)
        except ValueError: value = {}
        if "guided_json" in command:  # either a JSON text of that schema, or a sentence that names the field
            ok = "name" in json.loads(value["choices"][0]["text"]) if status == 200 else status == 400 and value["error"]["param"] == "guided_json"
        elif "/generate" in command: ok = status == 200 and len(value["text"]) == 1 and value["text"][0].startswith("hello")
        else: ok = status == 200 and value["choices"][0]["message"]["content"]
        check(name, ok, f"{status} {body[:300]}")


def aiak(text, url):
    """The parameter page: every flag as printed there, with its en dash; every request field at once; its two own answer fields."""
    flags = re.findall(r"^(–[a-z-]+|--[a-z-]+)(?:,(-\w+))? \|", text, re.M)
    values = {"–host": HOST, "–port": "0", "–model": MODEL, "–tokenizer": MODEL, "–dtype": "auto", "–kv-cache-dtype": "auto", "–max-model-len": "2048", "–distributed-executor-backend": "mp", "–max-seq-len-to-capture": "8192", "–num-scheduler-steps": "1", "–tensor-parallel-size": "1", "–pipeline-parallel-size": "2",
              "–gpu-memory-utilization": "0.9", "–max-num-batched-tokens": "512", "–max-num-seqs": "256", "–quantization": "None", "–scheduler-delay-factor": "0", "–chat-template": "{{ messages[0].content }}", "–trust-remote-code": None, "–enable-prefix-caching": None, "–enforce-eager": None,
              "–enable-chunked-prefill": None, "–disable-async-output-proc": None}
    own = [name for name, _ in flags if name.startswith("–")]
    check("AIAK: its flags", len(own) >= 22, own)
    later = {"–lora-modules": "a=b"}
    words = [x for name in own if name in values for x in ((name, values[name]) if values[name] is not None else (name,))]
    words[words.index("–max-num-batched-tokens") + 1] = "2048"
    start_line("AIAK, all flags with en dashes", words)
    for name in own:
        check(f"AIAK: {name} is known", name in values or name in later)
        if name in later:
            p = subprocess.run([SERVE, name, later[name]], capture_output=True, text=True, timeout=60)
            check(f"{name}: a sentence", p.returncode in (1, 2) and name.lstrip("–") in p.stderr.replace("_", "-") and p.stderr.count("\n") <= 4, p.stderr)
    for short in [x for _, x in flags if x]: check(f"AIAK: {short} is known", short in ("-pp", "-tp", "-q"))
    body = {"model": MODEL, "prompt": "Once upon a time", "best_of": 2, "echo": True, "frequency_penalty": 0.5, "logit_bias": {"5": -1}, "logprobs": 5, "max_tokens": 16, "n": 1, "presence_penalty": 0.5, "seed": 3, "stop": ["zzz"], "stream": False, "stream_options": None, "suffix": None, "temperature": 0.8, "top_p": 0.9, "user": "u"}
    status, text = curl(f"curl {url}/v1/completions -H 'Content-Type: application/json' -d '{json.dumps(body)}'")
    a = json.loads(text)
    choice = a.get("choices", [{}])[0]
    check("AIAK: every field", status == 200 and choice["sentence_length"] == len(choice["text"]) and choice["cum_log_probs"] < 0 and a["system_fingerprint"] and a["object"] == "text_completion" and a["usage"]["total_tokens"], text[:400])
    check("AIAK: cum_log_probs is the sum", abs(sum(choice["logprobs"]["token_logprobs"][-a["usage"]["completion_tokens"]:]) - choice["cum_log_probs"]) < 1e-3, text[:300])


def routes(url):
    """The routes of the servers that the documents come from, and what clients expect of them."""
    post = lambda path, body, more="": curl(f"curl {url}{path} {more} -H 'Content-Type: application/json' -d '{body}'")
    for path, want in (("/health", None), ("/ping", None), ("/version", "version"), ("/v1/models", '"max_model_len"'), ("/models", '"object":"list"'), (f"/v1/models/{MODEL}", '"id"'), ("/metrics", "vllm:num_requests_running"), ("/tokenizer_info", "eos_token"), ("/", "<!doctype html>")):
        status, body = curl(f"curl {url}{path}")
        check("GET " + path, status == 200 and (not want or want in body), f"{status} {body[:200]}")
        status, body = curl(f"curl -I {url}{path}")
        check("HEAD " + path, status == 200 and "Content-Length" in body, body)
    for path, body, want in (("/tokenize", '{"prompt": "Hello", "add_special_tokens": true}', '"max_model_len"'), ("/tokenize", '{"content": "Hello", "add_special": false}', '"tokens":[19556]'), ("/tokenize", '{"messages": [{"role": "user", "content": "a"}]}', '"count"'),
                             ("/detokenize", '{"tokens": [19556]}', '"prompt":"Hello"'), ("/detokenize", '{"tokens": [19556]}', '"content":"Hello"'), ("/apply-template", '{"messages": [{"role": "user", "content": "a"}]}', "<|im_start|>user"),
                             ("/completions", '{"prompt": "a", "max_tokens": 1}', "text_completion"), ("/chat/completions", '{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}', "chat.completion"), ("/v1/chat/completions/", '{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}', "chat.completion"),
                             ("/v1/completions", '{"model": "gpt-3.5-turbo", "prompt": "a", "max_tokens": 1, "stop": null, "logprobs": null, "repetition_penalty": 1.0, "n": null}', "text_completion"),
                             ("/v1/chat/completions", '{"model": "null", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "max_completion_tokens": 1, "ignore_eos": true}', "chat.completion")):
        status, text = post(path, body)
        check(f"POST {path} {body[:40]}", status == 200 and want in text, f"{status} {text[:200]}")
    status, text = post("/generate", '{"prompt": "Hello", "stream": true, "max_tokens": 60, "temperature": 0}', "-N") # tokens that come faster than they are sent share a line
    lines = [json.loads(x)["text"][0] for x in text.splitlines() if x]
    check("/generate streams what is there so far", status == 200 and len(lines) >= 3 and all(b.startswith(a) for a, b in zip(lines, lines[1:])), text[:300])
    status, text = post("/v1/chat/completions", '{"messages": [{"role": "user", "content": "Say hi"}], "max_tokens": 4, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}}', "-N -i")
    head, _, events = text.partition("\n\n") if "\r" not in text else text.replace("\r", "").partition("\n\n")
    check("stream's headers", "text/event-stream; charset=utf-8" in head and "no-cache" in head and "X-Accel-Buffering: no" in head, head)
    check("stream's events", events.rstrip().endswith("data: [DONE]") and all(x.startswith("data: ") for x in events.strip().split("\n\n")) and events.count('"usage":{') >= 4, events[-300:])
    with open("build/two-megabytes.json", "w") as f: json.dump({"prompt": "word " * 400000, "max_tokens": 1}, f)
    begin = time.time()
    status, text = curl(f"curl {url}/v1/completions -H 'Content-Type: application/json' --data-binary @build/two-megabytes.json")
    check("two megabytes: no pause for 100 Continue, both numbers", status == 400 and "context_length_exceeded" in text and time.time() - begin < 2 * SLOW, f"{status} {time.time() - begin} {text[:200]}")
    os.remove("build/two-megabytes.json")
    path = pathlib.Path("build/llm_serve_test.sock").resolve()
    p, line, err = start(["--model", tiny_model(), "--uds", str(path)])
    status, text = curl(f"curl --unix-socket {path} http://localhost/v1/models")
    check("Unix socket", line.startswith("listening on ") and status == 200, line + text + "".join(err))
    p.terminate()
    check("Unix socket ends", p.wait(timeout=20) == 0 and not path.exists(), path)
    p, line, err = start(["--model", tiny_model(), "--host", "::1", "--port", "0"])
    if line.startswith("listening on "): check("IPv6", curl(f"curl -g {line.split()[2]}/v1/models")[0] == 200, line)
    else: check("no IPv6 on this machine: one sentence", p.wait(timeout=20) == 1 and "::1" in "".join(err) and len(err) == 1, err)
    p.terminate()
    p.wait(timeout=20)


def spellings():
    """The same option in every spelling, from the environment and from a file; effective values are told."""
    tiny = tiny_model()
    config = pathlib.Path("build/llm_serve_config.json")
    config.write_text('{"max-model-len": 777, "port": 0}')
    for name, words, env in (("--a b", ["--max-model-len", "777"], {}), ("--a=b", ["--max-model-len=777"], {}), ("--a_b", ["--max_model_len=777"], {}), ("en dash", ["–max-model-len", "777"], {}), ("-c", ["-c", "777"], {}), ("--ctx-size", ["--ctx-size", "777"], {}), ("--session-len", ["--session-len=777"], {}),
                             ("LLM_ARG_", [], {"LLM_ARG_MAX_MODEL_LEN": "777"}), ("--config", ["--config", str(config)], {})):
        s = Server(*words, model=tiny, env=env, base=())
        check("spelling " + name, json.loads(s.request("GET", "/v1/models")[2])["data"][0]["max_model_len"] == 777, s.errors())
        check("told at start, " + name, "777" in s.errors() and "curl" in s.errors(), s.errors())
        s.stop()
    config.unlink()
    for words, env, want in ((["--port", "x"], {}, "port"), (["--max-num-seqs", "0"], {}, "max-num-seqs"), (["--block-size", "7"], {}, "block-size"), (["--prot", "1"], {}, "--port"), (["--enable-early-stop", "--early-stop-config", '{"enable_early_stop":false}'], {}, "early"), (["--early-stop-config", '{"threshold": 7}'], {}, "threshold"),
                             (["--early-stop-config", "x"], {}, "early"), ([], {"LLM_ARG_PORT": "99999"}, "99999"), (["--gpu-memory-utilization", "7"], {}, "gpu-memory-utilization"), (["--top-p", "7"], {}, "top-p"), (["--kv-cache-dtype", "int3"], {}, "kv-cache-dtype"), (["--api-key-file", "/nothing"], {}, "api-key-file"), (["--config", "/nothing"], {}, "config")):
        p = subprocess.run([SERVE, "--model", tiny, *words], capture_output=True, text=True, timeout=30, env=dict(os.environ, **env))
        check(f"refused at start: {words} {env}", p.returncode == 2 and want in p.stderr and 1 <= p.stderr.count("\n") <= 4, f"{p.returncode} {p.stderr}")
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        p = subprocess.run([SERVE, "--model", tiny, "--port", str(taken.getsockname()[1])], capture_output=True, text=True, timeout=30)
        check("a port in use", p.returncode == 1 and str(taken.getsockname()[1]) in p.stderr, p.stderr)


def main():
    s = Server("--max-model-len", "4096", base=("--max-num-seqs", "16"))
    fastdeploy((DOCUMENTS / "early_stop.txt").read_text())
    modelarts((DOCUMENTS / "notebook.txt").read_text(), s, s.url)
    aiak((DOCUMENTS / "parameters.txt").read_text(), s.url)
    routes(s.url)
    spellings()
    check("SIGTERM", s.stop() == 0)
    finish()


main()
