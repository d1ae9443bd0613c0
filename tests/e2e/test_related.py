#!/usr/bin/env python3
"""What people type who come from vLLM, llama-server, FastDeploy, LMDeploy, Ollama or Anthropic: options, variables, paths, members of bodies. Each works as it does
there, is refused in one sentence, or a line says why it has no meaning here. tests/e2e/test_parameters.py walks over the rows of the programs'
own tables; this one over names that these systems document.

usage: tests/e2e/test_related.py [NAME...]     env LLM_SERVE, LLM_CLI. Needs the default model, for its tokenizer.
"""
import json
import os
import pathlib
import subprocess
import sys

from serving import SERVE, Server, check, checkpoint, finish, tiny_model

CLI = os.environ.get("LLM_CLI", "./llm_cli")
TINY = tiny_model()
BASE = ("--max-model-len", "600", "--log-level", "warn")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
# A template whose prompt shows its variables and leaves thoughts open: all that a model of random weights says is a thought.
TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.reasoning_content }};{% endfor %}{{ enable_thinking }}|{{ reasoning_effort }}|{{ color }}<think>\n"


def body(path, **more):
    return {**({"messages": [{"role": "user", "content": "Hello there"}]} if path == CHAT else {"prompt": "Hello there"}), "max_tokens": 3, "temperature": 0, "ignore_eos": True, **more}


def started(*words, env=None):
    """What a server says that does not find its model: exit status and standard error."""
    p = subprocess.run([SERVE, "--model", "/nothing", *words], capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})
    return p.returncode, p.stderr


# ---- options

def test_names():
    names = [x for line in pathlib.Path("tests/data/documents/related.txt").read_text().splitlines() if line and line[0] not in "#[" for x in line.split()]
    check("many names", len(names) > 500, len(names))
    for program in (SERVE, CLI):
        rows = json.loads(subprocess.run([program, "--help-all", "--json"], capture_output=True, text=True, timeout=60).stdout)
        known = [r["name"].lstrip("-").replace("_", "-") for r in rows]
        missing = [n for n in names if n not in known and not (n.startswith("no-") and n[3:] in known)]
        check(f"{pathlib.Path(program).name} knows them all", not missing, missing)
        twice = {n for n in known if len(n) > 1 and known.count(n) > 1}
        check(f"{pathlib.Path(program).name} has no name twice", not twice - {"num-scheduler-steps", "stream-interval"}, twice)


def test_only_choice():
    for words, says in ((("--data-parallel-size", "2"), "--data-parallel-size: 2, 1 is the only choice here: more of them are more servers behind a router"),
                        (("--splitwise-role", "prefill"), "--splitwise-role: prefill, mixed is the only choice here: one process computes prompts and answers"),
                        (("--logprobs-mode", "processed_logits"), "raw_logprobs is the only choice here"), (("--mirostat", "2"), "--mirostat: 2, 0 is the only choice here")):
        status, err = started(*words)
        check(f"{words}: refused", status == 2 and says in err, err)
    for words in (("--ssl-keyfile", "x"), ("--kv-transfer-config", "{}"), ("--rope-scaling", "{}"), ("--root-path", "/x"), ("--hf-token", "x")):
        status, err = started(*words)
        check(f"{words}: refused with a reason", status in (1, 2) and f"{words[0]}: " in err and "is not supported" in err and "nearest" not in err, err)
    line = ["--trust-remote-code", "-O3", "--compilation-config", '{"level": 3}', "--async-scheduling", "-dp", "1", "--enable-expert-parallel", "--disable-custom-all-reduce", "--task", "generate",
            "--uvicorn-log-level", "warning", "--max-num-partial-prefills", "2", "--load-format", "fastsafetensors", "--reasoning-format", "auto", "--flash-attn", "--cache-type-k", "q8_0", "--ubatch-size", "512"]
    status, err = started(*line)
    check("a long command line of vLLM's and llama-server's: a line each, then the model is looked for", status == 1 and "/nothing" in err and err.count("has no effect") == 12, err)


def test_variables():
    env = {"LLM_ARG_NO_SUCH": "1", "VLLM_USE_V1": "1", "OLLAMA_HOST": "x", "LLAMA_ARG_NO_SUCH": "1", "VLLM_API_KEY": "k", "LLAMA_ARG_TOP_K": "40", "FD_LOG_DIR": "x"}
    for program in (SERVE, CLI):
        p = subprocess.run([program, *(["info", "-m", TINY] if program == CLI else ["-m", "/nothing"])], capture_output=True, text=True, timeout=60, env={**os.environ, **env})
        told = {x for x in env if f"note: {x} has no effect: no option has this name" in p.stderr}
        want = {"LLM_ARG_NO_SUCH", "VLLM_USE_V1", "OLLAMA_HOST", "LLAMA_ARG_NO_SUCH", "FD_LOG_DIR"} | ({"VLLM_API_KEY"} if program == CLI else set())
        check(f"{pathlib.Path(program).name}: variables that nothing reads are told", told == want, p.stderr)
    for value in ("x", "banana"): check("LLAMA_ARG_CTX_SIZE is read", "LLAMA_ARG_CTX_SIZE: " in started(env={"LLAMA_ARG_CTX_SIZE": value})[1])
    check("LLM_ARG_ is stronger", "LLAMA_ARG" not in started(env={"LLAMA_ARG_CTX_SIZE": "100", "LLM_ARG_CTX_SIZE": "200"})[1])
    blocks = []
    for gib in ("0.002", "0.004"):
        s = Server(model=TINY, base=BASE, env={"VLLM_CPU_KVCACHE_SPACE": gib})
        blocks.append(int(s.request("GET", "/metrics")[2].decode().split('num_gpu_blocks="')[1].split('"')[0]))
        s.stop()
    check("VLLM_CPU_KVCACHE_SPACE: twice the memory, twice the pages", 1.9 < blocks[1] / blocks[0] < 2.1 and blocks[0] > 10, blocks)
    for level in ("INFO", "CRITICAL", "trace"): check(f"VLLM_LOGGING_LEVEL {level}", "VLLM_LOGGING_LEVEL" not in started(env={"VLLM_LOGGING_LEVEL": level})[1])


def test_defaults():
    """What options make of requests that say nothing themselves."""
    s = Server("--allowed-origins", '["http://a.example", "http://b.example"]', "--metrics-prefix", "fastdeploy", "--disable-fastapi-docs", "--chat-template", TEMPLATE,
               "--default-chat-template-kwargs", '{"color": "red", "enable_thinking": true}', "--reasoning", "off", "--reasoning-effort", "high", "--enable-force-include-usage",
               "--return-tokens-as-token-ids", "--enable-per-request-metrics", "--override-generation-config", '{"top_k": 7, "max_new_tokens": 5}', "--temperature", "0.5", model=TINY, base=BASE)
    check("nothing is told", "has no effect" not in s.errors(), s.errors())
    preflight = lambda origin: s.request("OPTIONS", CHAT, headers={"Origin": origin, "Access-Control-Request-Method": "POST"})[1].get("access-control-allow-origin")
    check("--allowed-origins takes vLLM's JSON list", [preflight(x) for x in ("http://a.example", "http://b.example", "http://c.example")] == ["http://a.example", "http://b.example", None])
    figures = s.request("GET", "/metrics")[2].decode()
    check("--metrics-prefix", "fastdeploy:num_requests_running{" in figures and "# TYPE fastdeploy:time_to_first_token_seconds histogram" in figures and "vllm:" not in figures, figures[:300])
    check("--disable-fastapi-docs", [s.request("GET", x)[0] for x in ("/docs", "/openapi.json", "/health")] == [404, 404, 200])
    shown = lambda **more: s.post("/apply-template", {"messages": [{"role": "user", "content": "Hi"}], **more})[1]["prompt"]
    for more, want in (({}, "False|high|red"), ({"chat_template_kwargs": {"color": "blue", "enable_thinking": True}}, "True|high|blue"), ({"enable_thinking": True}, "True|high|red"),
                       ({"reasoning_effort": "low"}, "True|low|red"), ({"reasoning_effort": "none"}, "False|none|red")):
        check(f"variables of the template, {more}", want in shown(**more), shown(**more))
    status, events = s.stream(CHAT, body(CHAT))
    check("--enable-force-include-usage", status == 200 and json.loads(events[-2])["usage"]["completion_tokens"] == 3 and json.loads(events[-2])["choices"] == [], events[-2:])
    tokens = [s.post(TEXT, body(TEXT, logprobs=0, **more))[1]["choices"][0]["logprobs"]["tokens"][0] for more in ({}, {"return_tokens_as_token_ids": False})]
    check("--return-tokens-as-token-ids, unless a request declines", tokens[0].startswith("token_id:") and not tokens[1].startswith("token_id:"), tokens)
    check("--enable-per-request-metrics", "first_token_time" in s.post(TEXT, body(TEXT))[1]["metrics"])
    n = s.post(TEXT, {"prompt": "Hello there", "ignore_eos": True})[1]["usage"]["completion_tokens"]
    check("--override-generation-config: the length of answers", n == 5, n)
    s.stop()
    for words, says in ((("--default-chat-template-kwargs", "x"), "a JSON object was expected"), (("--default-chat-template-kwargs", '{"messages": 1}'), "messages is reserved"),
                        (("--override-generation-config", '{"port": 1}'), "unknown option port"), (("--override-generation-config", '{"temperature": 9}'), "temperature"),
                        (("--allowed-origins", "[x"), "JSON list")):
        status, err = started(*words)
        check(f"{words}: refused", status == 2 and says in err, err)
    log = Server("--override-generation-config", '{"temperature": 0.25, "top_k": 7}', "--top-k", "9", model=TINY, base=("--max-model-len", "600"))
    check("--override-generation-config, and an option that is stronger", "temperature 0.25" in log.errors() and "top_k 9" in log.errors(), log.errors())
    log.stop()


def test_overrides():
    """--hf-overrides: what a folder's config.json says is replaced."""
    folder, ids = str(checkpoint("qwen3")), ["--token-ids", "[5,6,7,8]", "--json"]
    def scored(*words):
        p = subprocess.run([CLI, "score", "-m", folder, *ids, *words], capture_output=True, text=True, timeout=60)
        return json.loads(p.stdout)["logprobs"] if p.returncode == 0 else p.stderr
    plain = scored()
    check("--hf-overrides {}: nothing", scored("--hf-overrides", "{}") == plain)
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    same = {"rope_theta": config["rope_theta"], "hidden_size": config["hidden_size"]}
    check("the same values: the same", scored("--hf-overrides", json.dumps(same)) == plain)
    other = scored("--hf-overrides", '{"rope_theta": 100}')
    check("another rope_theta: other logits", isinstance(other, list) and other != plain, other)
    yarn = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}}
    check("rope_scaling, as for Qwen's long texts", isinstance(scored("--hf-overrides", json.dumps(yarn)), list) and scored("--hf-overrides", json.dumps(yarn)) != plain, scored("--hf-overrides", json.dumps(yarn)))
    for words, says in (("x", "a JSON object was expected"), ("[]", "a JSON object was expected"), ('{"hidden_size": 7}', "(512, 7) expected")): check(f"--hf-overrides {words}: refused", says in scored("--hf-overrides", words), scored("--hf-overrides", words))
    p = subprocess.run([CLI, "score", "-m", TINY, *ids, "--hf-overrides", "{}"], capture_output=True, text=True, timeout=60)
    check("of a GGUF file: refused", p.returncode in (1, 2) and "has no config.json" in p.stderr, p.stderr)


# ---- members of bodies

REFUSED = [("kv_transfer_params", {"do_remote_decode": True}), ("ec_transfer_params", {"a": 1}), ("vllm_xargs", {"a": 1}),
           ("bad_words_token_ids", [5]), ("media_io_kwargs", {"video": {"num_frames": 4}}), ("lora", [{"id": 0, "scale": 1.0}]), ("samplers", ["top_k"]), ("watermarking", True),
           ("temp_scaled_logprobs", True), ("top_p_normalized_logprobs", True), ("disable_chat_template", True), ("do_preprocess", False), ("return_routed_experts", True), ("mirostat", 2), ("typical_p", 0.5),
           ("dry_multiplier", 0.8), ("xtc_probability", 0.5), ("dynatemp_range", 0.5), ("top_n_sigma", 1.5), ("n_probs", 3), ("t_max_predict_ms", 10), ("audio", {"voice": "a"}), ("web_search_options", {}), ("min_keep", 2)]
# Values that switch nothing on: what clients send that spell every default out.
NEUTRAL = [("watermarking", False), ("thinking_token_budget", -1), ("temp_scaled_logprobs", False), ("disable_chat_template", False), ("do_preprocess", True), ("mirostat", 0), ("typical_p", 1), ("typical_p", 1.0), ("dry_multiplier", 0),
           ("xtc_probability", 0.0), ("top_n_sigma", -1), ("n_probs", 0), ("min_keep", 0), ("cache_prompt", True), ("id_slot", -1), ("session_id", "s"), ("kv_transfer_params", None), ("return_token_offsets", False), ("verbosity", "low"),
           ("prediction", {"type": "content", "content": "x"}), ("repeat_last_n", 64)]


def repeats(ids, longest, times, shortest=1):
    """Does a list end with one pattern, so many times?"""
    return any(n * times <= len(ids) and ids[-n * times:] == ids[-n:] * times for n in range(shortest, longest + 1))


def check_repetition(s, text, ask):
    """repetition_detection, where few tokens may come: the answer ends where the whole one first ends with a pattern."""
    few = {"prompt": [11, 12], "max_tokens": 60, "allowed_token_ids": [20, 30, 40], "temperature": 1, "seed": 5}
    whole = text(**few)["token_ids"]
    for detection in ({"max_pattern_size": 1, "min_count": 3}, {"max_pattern_size": 4, "min_pattern_size": 2, "min_count": 2}, {"max_pattern_size": 3, "min_pattern_size": 0, "min_count": 2}):
        longest, shortest, times = detection["max_pattern_size"], detection.get("min_pattern_size") or 1, detection["min_count"]
        end = next(n for n in range(1, 61) if repeats(whole[:n], longest, times, shortest))
        got = text(**few, repetition_detection=detection)
        check(f"repetition_detection {detection}", got["token_ids"] == whole[:end] and (got["finish_reason"], got["stop_reason"]) == ("repetition", "repetition_detected"), (end, got))
        got = [json.loads(x)["choices"][0] for x in s.stream(TEXT, {**ask, **few, "repetition_detection": detection})[1][:-1]]
        check(f"repetition_detection {detection}, a stream", sum((x.get("token_ids") or [] for x in got), []) == whole[:end] and got[-1]["finish_reason"] == "repetition", got[-1])
    check("the metrics tell it", 'finished_reason="repetition"} 6' in s.request("GET", "/metrics")[2].decode())
    check("repetition_detection that looks for nothing is told", s.request("POST", TEXT, {**ask, "repetition_detection": {"max_pattern_size": 0}})[1].get("x-llm-ignored") == "repetition_detection")
    for bad, word in (({"max_pattern_size": 3}, "min_count"), ({"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2}, "min_pattern_size"), ({"max_pattern_size": 9999, "min_count": 2}, "max_pattern_size"), ({"size": 3}, "size"), ([1], "object")):
        status, answer = s.post(TEXT, {**ask, "repetition_detection": bad})
        check(f"repetition_detection {bad}: refused", status == 400 and answer["error"]["param"] == "repetition_detection" and word in answer["error"]["message"], answer)


def check_logprob_ids(s, text, ask):
    """logprob_token_ids: of these tokens what top_logprobs says of them among the likeliest."""
    named = {"prompt": [11, 12], "return_tokens_as_token_ids": True, "max_tokens": 1}
    likely = text(**named, logprobs=20)["logprobs"]["top_logprobs"][0]
    ids = [int(x.partition(":")[2]) for x in [*likely][7:1:-2]]
    for k in (0, len(ids)):
        got = text(**named, logprobs=k, logprob_token_ids=ids)["logprobs"]
        check(f"logprob_token_ids, logprobs {k}", [*got["top_logprobs"][0]][:3] == [f"token_id:{i}" for i in ids] and all(likely[x] == y for x, y in got["top_logprobs"][0].items()) and len(got["top_logprobs"][0]) == 4, (likely, got))
    chat = s.post(CHAT, body(CHAT, logprobs=True, logprob_token_ids=ids, return_tokens_as_token_ids=True))[1]["choices"][0]["logprobs"]["content"]
    check("logprob_token_ids of a chat", all([t["token"] for t in x["top_logprobs"]] == [f"token_id:{i}" for i in ids] for x in chat) and chat, chat)
    for bad, more in (([], {}), ([1] * 129, {}), ([-1], {}), ("a", {}), ([5], {"logprobs": 3}), ([5], {"logprobs": None})):
        status, answer = s.post(TEXT, {**ask, "logprobs": 0, "logprob_token_ids": bad, **more})
        check(f"logprob_token_ids {bad[:3]} {more}: refused", status == 400 and answer["error"]["param"] == "logprob_token_ids", answer)


def test_members():
    s = Server(model=TINY, base=BASE)
    for path in (CHAT, TEXT):
        for name, value in REFUSED:
            status, answer = s.post(path, body(path, **{name: value}))
            check(f"{path} {name} {value}: refused", status == 400 and answer["error"]["param"] == name and answer["error"]["message"].startswith(name), answer)
        for name, value in NEUTRAL:
            status, headers, text = s.request("POST", path, body(path, **{name: value}))
            check(f"{path} {name} {value}: told", status == 200 and headers.get("x-llm-ignored") == (None if value is None else name), (status, headers, text[:200]))
    for path, more, param in ((CHAT, {"echo": True, "messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]}, "echo"), (CHAT, {"prompt_token_ids": [5, 6]}, "prompt_token_ids"), (CHAT, {"modalities": ["text", "audio"]}, "modalities"), (CHAT, {"enable_thinking": "no"}, "enable_thinking"),
                              (CHAT, {"reasoning_effort": 3}, "reasoning_effort"), (CHAT, {"thinking": {"type": "x"}}, "thinking"), (CHAT, {"reasoning_format": "deepseek-legacy"}, "reasoning_format"),
                              (TEXT, {"repeat_last_n": 64, "repetition_penalty": 1.2}, "repeat_last_n"), (TEXT, {"truncation_side": "middle"}, "truncation_side"), (TEXT, {"stream_interval": 0}, "stream_interval"),
                              ("/v1/embeddings", {"input": "a", "embed_dtype": "float16"}, "embed_dtype"), ("/v1/embeddings", {"input": "a", "endianness": "big"}, "endianness")):
        status, answer = s.post(path, body(path, **more) if path in (CHAT, TEXT) else more)
        check(f"{path} {more}: refused", status == 400 and answer["error"]["param"] == param, answer)
    status, answer = s.post(TEXT, body(TEXT, structured_outputs={"json": {"type": "object"}, "regex": "a"}))
    check("two forms: both are named", status == 400 and "regex is given beside json" in answer["error"]["message"], answer)
    ask = {"prompt": [11, 12, 13, 14, 15, 16], "max_tokens": 4, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    def text(**more):
        answer = s.post(TEXT, {**ask, **more})[1]
        if "choices" not in answer: raise RuntimeError(answer)
        return answer["choices"][0]

    for side, ids in ((None, [15, 16]), ("left", [15, 16]), ("right", [11, 12])):
        got = text(truncate_prompt_tokens=2, **({"truncation_side": side} if side else {}))
        check(f"truncation_side {side}", got["prompt_token_ids"] == ids and got["token_ids"] == text(prompt=ids)["token_ids"], got)
    check("truncation_side alone has no effect, and is told", s.request("POST", TEXT, {**ask, "truncation_side": "right"})[1].get("x-llm-ignored") == "truncation_side")
    got = s.post(TEXT, {k: v for k, v in ask.items() if k != "prompt"} | {"prompt_token_ids": [11, 12]})[1]
    check("prompt_token_ids is a completion's prompt", got["choices"][0]["token_ids"] == text(prompt=[11, 12])["token_ids"], got)
    check("beside a prompt it is told", s.request("POST", TEXT, {**ask, "prompt_token_ids": [5]})[1].get("x-llm-ignored") == "prompt_token_ids")
    for how in ({}, {"temperature": 1, "seed": 3}, {"min_tokens": 2, "ignore_eos": False}, {"guided_regex": ".*", "ignore_eos": False}, {"use_beam_search": True, "n": 2}):
        some = text(allowed_token_ids=[20, 30, 40], prompt=[11, 12], **how)
        check(f"allowed_token_ids, {how}", len(some["token_ids"]) == 4 and set(some["token_ids"]) <= {20, 30, 40}, some)
    free = text(prompt=[11, 12])["token_ids"]
    check("allowed_token_ids that hold the answer leave it", text(prompt=[11, 12], allowed_token_ids=free)["token_ids"] == free != text(prompt=[11, 12], allowed_token_ids=[free[0]])["token_ids"], free)
    status, answer = s.post(TEXT, {**ask, "allowed_token_ids": [20], "guided_regex": "[0-9]"})
    check("none that a form lets come: a sentence", status == 400 and answer["error"]["param"] == "allowed_token_ids", answer)
    check_repetition(s, text, ask)
    check_logprob_ids(s, text, ask)
    vectors = {x: s.post("/v1/embeddings", {"input": "a cat", "use_activation": x})[1]["data"][0]["embedding"] for x in (True, False)}
    norm = {x: sum(v * v for v in vectors[x]) for x in vectors}
    check("use_activation: whether a vector has length 1", abs(norm[True] - 1) < 1e-3 < abs(norm[False] - 1), norm)
    s.stop()


def test_streams():
    s = Server(model=TINY, base=BASE)
    for path in (CHAT, TEXT):
        whole = s.post(path, body(path, max_tokens=8, return_token_ids=True))[1]
        chunks = [json.loads(x) for x in s.stream(path, body(path, max_tokens=8, return_token_ids=True))[1][:-1]]
        ids = [c["choices"][0].get("token_ids") for c in chunks]
        prompt = [c.get("prompt_token_ids") or c["choices"][0].get("prompt_token_ids") for c in chunks]
        check(f"{path}: each chunk has its tokens, which joined are the answer's", sum((x or [] for x in ids), []) == whole["choices"][0]["token_ids"] and len([x for x in ids if x]) == 8, ids)
        check(f"{path}: the first chunk has the prompt's", prompt[0] == whole["choices"][0]["prompt_token_ids"] and not any(prompt[1:]), prompt)
        for n in (1, 4):
            some = [json.loads(x)["choices"][0] for x in s.stream(path, body(path, max_tokens=8, stream_interval=n))[1][:-1]]
            texts = [c for c in some if c["finish_reason"] or (c.get("text") is not None or c["delta"].get("role") is None)]
            check(f"{path}: stream_interval {n}", len(texts) == 8 // n + (path == CHAT), texts)
    check("a chat's answer has them beside the choices too, as in vLLM", s.post(CHAT, body(CHAT, return_token_ids=True))[1]["prompt_token_ids"] == s.post(CHAT, body(CHAT, return_token_ids=True))[1]["choices"][0]["prompt_token_ids"])
    rendered = s.post("/apply-template", {"messages": body(CHAT)["messages"]})[1]["prompt"]
    check("return_prompt_text", s.post(CHAT, body(CHAT, return_prompt_text=True))[1]["prompt_text"] == rendered)
    first = [json.loads(x).get("prompt_text") for x in s.stream(CHAT, body(CHAT, return_prompt_text=True))[1][:-1]]
    check("return_prompt_text of a stream", first[0] == rendered and not any(first[1:]), first)
    s.stop()


def test_thoughts():
    s = Server("--chat-template", TEMPLATE, "--reasoning-parser", "kimi_k2", model=TINY, base=BASE)
    message = lambda **more: s.post(CHAT, body(CHAT, max_tokens=6, **more))[1]["choices"][0]["message"]
    plain = message()
    check("thoughts have DeepSeek's name and that of vLLM today", plain["reasoning_content"] and plain["reasoning"] == plain["reasoning_content"] and not plain["content"], plain)
    check("reasoning_format none: they stay in the text", message(reasoning_format="none")["content"] == plain["reasoning"] and "reasoning" not in message(reasoning_format="none"), message(reasoning_format="none"))
    check("include_reasoning false: they are dropped", "reasoning" not in message(include_reasoning=False) and not message(include_reasoning=False)["content"], message(include_reasoning=False))
    deltas = [json.loads(x)["choices"][0]["delta"] for x in s.stream(CHAT, body(CHAT, max_tokens=6, include_reasoning=False))[1][:-1]]
    check("nor in a stream", not any("reasoning" in d or d.get("content") for d in deltas) and len(deltas) > 3, deltas)
    shown = lambda **more: s.post("/apply-template", {"messages": [{"role": "user", "content": "Hi"}], **more})[1]["prompt"]
    for more, want in (({"thinking": {"type": "disabled"}}, "False|"), ({"thinking": {"type": "enabled"}}, "True|"), ({"reasoning": {"effort": "low"}}, "True|low|"), ({"reasoning_effort": "none"}, "False|none|"), ({}, "||")):
        got = s.post(CHAT, body(CHAT, return_prompt_text=True, **more))[1]["prompt_text"]
        check(f"{more} reaches the template", want in got, got)
    said = shown(messages=[{"role": "assistant", "content": "A", "reasoning": "because"}, {"role": "user", "content": "Hi"}])
    check("`reasoning` of an earlier message is what templates call reasoning_content", "assistant:Abecause;" in said, said)
    s.stop()


# ---- Anthropic's clients

def events_of(text):
    """[(event, data)] of a stream."""
    parts = [x.split("\n") for x in text.decode().split("\n\n") if x]
    return [(a.removeprefix("event: "), json.loads(b.removeprefix("data: "))) for a, b in parts]


def test_anthropic():
    s = Server("--api-key", "k", model=TINY, base=BASE)
    key, ask = {"x-api-key": "k"}, {"model": "claude", "max_tokens": 6, "temperature": 0, "system": "Be brief.", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}
    call = lambda path="/v1/messages", headers=key, **more: s.request("POST", path, {**ask, **more}, headers)
    status, headers, text = call()
    whole = json.loads(text)
    check("a message", status == 200 and whole["type"] == "message" and whole["role"] == "assistant" and whole["id"].startswith("msg_") and [b["type"] for b in whole["content"]] == ["text"] and
          whole["stop_reason"] == "max_tokens" and whole["usage"]["output_tokens"] == 6, whole)
    chat = s.post(CHAT, {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}], "max_tokens": 6, "temperature": 0}, {"Authorization": "Bearer k"})[1]
    check("it says what a chat says", whole["content"][0]["text"] == chat["choices"][0]["message"]["content"], (whole, chat))
    usage = whole["usage"]
    check("its prompt is a chat's, cached tokens apart", usage["input_tokens"] + usage["cache_read_input_tokens"] == chat["usage"]["prompt_tokens"], (usage, chat["usage"]))
    count = json.loads(call("/v1/messages/count_tokens")[2])
    check("count_tokens", count == {"input_tokens": chat["usage"]["prompt_tokens"]}, count)
    events = events_of(call(stream=True)[2])
    names = [e for e, _ in events]
    said = "".join(d["delta"]["text"] for e, d in events if e == "content_block_delta")
    check("a stream", names[:2] == ["message_start", "content_block_start"] and names[-3:] == ["content_block_stop", "message_delta", "message_stop"] and set(names[2:-3]) == {"content_block_delta"} and
          said == whole["content"][0]["text"] and events[-2][1]["usage"]["output_tokens"] == 6 and all(d["type"] == e for e, d in events), events)
    tool = {"name": "weather", "description": "d", "input_schema": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": False}}
    made = json.loads(call(max_tokens=100, tools=[tool], tool_choice={"type": "tool", "name": "weather"})[2])
    block = made["content"][-1]
    check("a call", made["stop_reason"] == "tool_use" and block["type"] == "tool_use" and block["name"] == "weather" and block["input"]["city"] in ("Rome", "Oslo"), made)
    pieces = events_of(call(max_tokens=100, tools=[tool], tool_choice={"type": "any"}, stream=True)[2])
    joined = "".join(d["delta"]["partial_json"] for e, d in pieces if e == "content_block_delta" and d["delta"]["type"] == "input_json_delta")
    check("a call in a stream", json.loads(joined)["city"] in ("Rome", "Oslo") and pieces[-2][1]["delta"]["stop_reason"] == "tool_use", pieces)
    more = [*ask["messages"], {"role": "assistant", "content": made["content"]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block["id"], "content": "Sunny"}]}]
    status, _, text = call(messages=more, tools=[tool])
    check("its result goes back", status == 200 and json.loads(text)["usage"]["input_tokens"] > 0, text)
    for headers, more, want, kind in (({}, {}, 401, "authentication_error"), (key, {"messages": []}, 400, "invalid_request_error"), (key, {"temperature": 9}, 400, "invalid_request_error")):
        status, _, text = call(headers=headers, **more)
        check(f"{want}: Anthropic's form of errors", status == want and json.loads(text)["type"] == "error" and json.loads(text)["error"]["type"] == kind and json.loads(text)["error"]["message"], text)
    check("what has no effect is told", call(service_tier="auto", thinking={"type": "disabled", "budget_tokens": 5})[1]["x-llm-ignored"] == "service_tier, thinking.budget_tokens")
    s.stop()


# ---- gpt-oss: channels

HARMONY = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>", "assistant", "analysis", "commentary", "final"]
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"], "additionalProperties": False}}}
# As gpt-oss' template ends: behind the role, before the channel. It names both channels, by which its form is known.
CHANNELS = "{% for message in messages %}<|start|>{{ message.role }}<|message|>{{ message.thinking }}|{{ message.content }}<|end|>{% endfor %}<|start|>assistant{# <|channel|>analysis <|channel|>commentary #}"


def harmony_model(special):
    """The tiny gpt_oss with the marks of its big sisters as tokens 500 to 510; special 0: as plain added tokens, which GGUF files make of most of them."""
    target = pathlib.Path(f"build/models/harmony{special}")
    target.mkdir(parents=True, exist_ok=True)
    for file in checkpoint("gpt_oss").iterdir(): (target / file.name).write_bytes(file.read_bytes())
    tokenizer, config = (json.loads((target / x).read_text()) for x in ("tokenizer.json", "tokenizer_config.json"))
    tokenizer["added_tokens"] += [{"id": 500 + i, "content": x, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": bool(special) and i < 7} for i, x in enumerate(HARMONY)]
    config["chat_template"] = CHANNELS
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    (target / "tokenizer_config.json").write_text(json.dumps(config))
    return str(target)


def test_channels():
    """Nothing makes a model of random weights keep a form but what is liked above all else, so it comes upon the marks of the right channel by chance; behind them the grammar holds."""
    def liked(*tokens): return {str(500 + HARMONY.index(x)): 60 for x in tokens}
    for special in (1, 0):
        s = Server(model=harmony_model(special), base=BASE)
        ask = {**body(CHAT), "max_tokens": 500, "ignore_eos": False, "temperature": 1, "seed": 3}
        final = {**ask, "logit_bias": liked("<|channel|>", "final", "<|message|>"), "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": NOW["function"]["parameters"]}}}
        status, answer = s.post(CHAT, final)
        message = answer["choices"][0]["message"]
        check(f"special {special}: the final channel has the form", status == 200 and json.loads(message["content"][message["content"].rindex("{"):])["zone"] in ("UTC", "CET"), answer)
        status, answer = s.post(CHAT, {**ask, "logit_bias": liked("<|end|>", "<|start|>", "assistant", "<|call|>"), "tools": [NOW], "tool_choice": "required"})
        calls = answer["choices"][0]["message"].get("tool_calls")
        check(f"special {special}: a call that must come", status == 200 and calls and json.loads(calls[0]["function"]["arguments"])["zone"] in ("UTC", "CET") and answer["choices"][0]["finish_reason"] == "tool_calls", answer)
        check(f"special {special}: no mark is shown", not any(x in json.dumps(answer) for x in HARMONY[:7]), answer)
        forced = {**ask, "logit_bias": {"503": 90}, "max_tokens": 30, "tools": [NOW]}
        status, answer = s.post(CHAT, forced)
        check(f"special {special}: a call that may come", status == 200 and "<|channel|>" not in json.dumps(answer), answer)
        status, answer = s.post("/apply-template", {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "reasoning": "why", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]}]})
        check("thoughts go by gpt-oss' word", "<|start|>assistant<|message|>why|" in answer.get("prompt", ""), answer)
        s.stop()


# ---- bounds on thoughts

def test_budget():
    """The prompt leaves thoughts open, and a model of random weights never closes them: the bound does, by a tag of several tokens, and what comes behind it is the answer."""
    s = Server("--chat-template", TEMPLATE, "--reasoning-parser", "qwen3", model=TINY, base=BASE)
    ask = {**body(CHAT), "max_tokens": 40}
    free = s.post(CHAT, ask)[1]["choices"][0]["message"]
    check("without a bound all is thoughts", free["content"] in (None, "") and len(free["reasoning_content"]) > 40, free)
    for name in ("thinking_token_budget", "reasoning_max_tokens", "reasoning_budget_tokens", "thinking_budget"):
        status, answer = s.post(CHAT, {**ask, name: 5})
        message = answer["choices"][0]["message"]
        check(f"{name}: the beginning of the same thoughts, then an answer", status == 200 and message["content"] and free["reasoning_content"].startswith(message["reasoning_content"]) and 0 < len(message["reasoning_content"]) < len(free["reasoning_content"]), answer)
    check("-1 is no bound", s.post(CHAT, {**ask, "thinking_token_budget": -1})[1]["choices"][0]["message"]["reasoning_content"] == free["reasoning_content"])
    none = s.post(CHAT, {**ask, "thinking_token_budget": 0})[1]["choices"][0]["message"]
    check("0: no thoughts at all", none.get("reasoning_content") in (None, "") and none["content"], none)
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}}}
    formed = s.post(CHAT, {**ask, "thinking_token_budget": 3, "response_format": schema})[1]["choices"][0]
    check("behind the bound the form holds", json.loads(formed["message"]["content"]) in ({"a": 1}, {"a": 2}) and formed["message"]["reasoning_content"], formed)
    chunks = [json.loads(x)["choices"] for x in s.stream(CHAT, {**ask, "thinking_token_budget": 5, "n": 2, "temperature": 1, "seed": 1})[1][:-1]]
    said = ["".join(y["delta"].get("content") or "" for x in chunks for y in x if y["index"] == i) for i in (0, 1)]
    check("streamed, each of two answers", all(said) and said[0] != said[1], said)
    status, answer = s.post(CHAT, {**ask, "thinking_token_budget": 5, "use_beam_search": True, "n": 2})
    check("a beam search has none", status == 400 and "thinking_token_budget" in answer["error"]["message"], answer)
    status, answer = s.post("/v1/messages", {"model": "m", "max_tokens": 40, "messages": [{"role": "user", "content": "Hello there"}], "thinking": {"type": "enabled", "budget_tokens": 5}})
    check("Anthropic's budget_tokens", status == 200 and [x["type"] for x in answer["content"]] == ["thinking", "text"], answer)
    s.stop()
    s = Server("--chat-template", TEMPLATE, "--reasoning-parser", "qwen3", "--reasoning-budget", "4", model=TINY, base=BASE)
    check("a bound of all requests", s.post(CHAT, ask)[1]["choices"][0]["message"]["content"])
    check("a request's own is stronger", not s.post(CHAT, {**ask, "thinking_token_budget": -1})[1]["choices"][0]["message"]["content"])
    s.stop()
    s = Server("--reasoning-parser", "none", model=TINY, base=BASE)
    status, headers, _ = s.request("POST", CHAT, {**ask, "reasoning_max_tokens": 5})
    check("who does not think is told", status == 200 and "reasoning_max_tokens" in headers.get("x-llm-ignored", ""), headers)
    s.stop()


# ---- paths

def test_paths():
    s = Server(model=TINY, base=BASE)
    check("/load", s.request("GET", "/load")[2] == b'{"server_load":0}', s.request("GET", "/load"))
    check("POST /ping", s.request("POST", "/ping", b"")[0] == 200 and s.request("POST", "/ping", {})[0] == 200)
    for path, words in (("/completion", "/v1/completions"), ("/infill", "filled"), ("/v1/audio/transcriptions", "hears"), ("/pooling", "/v1/embeddings"),
                        ("/v1/responses/resp_1/cancel", "cancel"), ("/invocations", "SageMaker"), ("/reset_prefix_cache", "cache_salt"), ("/v1/chat/completions/render", "/apply-template"), ("/slots/0", "--context-dir"),
                        ("/nothing/here", "/docs")):
        status, answer = s.post(path, {})
        check(f"{path}: 404 and a sentence", status == 404 and words in answer["error"]["message"], answer)
    status, answer = s.post("/api/pull", {"model": "x"})
    check("/api/pull: the same in Ollama's form", status == 404 and "llm_cli pull" in answer["error"], answer)
    document = json.loads(s.request("GET", "/openapi.json")[2])
    check("both methods of /ping are in the document", set(document["paths"]["/ping"]) == {"get", "post"}, document["paths"]["/ping"])
    s.stop()


def main():
    tests = {name: f for name, f in globals().items() if name.startswith("test_")}
    for name, f in tests.items():
        if sys.argv[1:] and name not in sys.argv[1:]: continue
        try: f()
        except Exception as e: check(f"{name}: ends", False, f"{type(e).__name__}: {e}")
    finish()


main()
