#!/usr/bin/env python3
"""Nothing accepted and then ignored: every name of the documents, and every name that the programs know, by every way in.

Two parts. PROOFS: for each parameter that is said to work two values, or more, whose results differ as the documents say. The walk: every other
name is refused with a sentence, or a line says why it has no meaning, whether it comes from argv, the environment, a config file, a request or
the offline functions; and tests/data/documents/names.txt has no name that is in neither.

usage: tests/e2e/test_parameters.py [NAME...]     env LLM_SERVE, LLM_CLI, LLM_LIBRARY. Needs a model for its tokenizer.
"""
import base64
import contextlib
import ctypes
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import adapters
import offline
from serving import HOST, SERVE, Server, check, checkpoint, eventually, finish, tiny_model

CLI = os.environ.get("LLM_CLI", "./llm_cli")
TINY = tiny_model()
LLAMA = str(checkpoint("llama"))  # 128 tokens or more, no BOS in the way of ids
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="llm_parameters_"))
PROOFS, NAMES = {}, {}  # names of [section] that a function proves; section: names of the documents


def proves(section, *names):
    """Marks a test: the parameters that it shows to work."""
    def note(f):
        for name in names: PROOFS.setdefault((section, name), []).append(f.__name__)
        return f
    return note


class Stats(ctypes.Structure):
    """llm_engine_stats, as far as it is looked at."""
    _fields_ = [("n_running", ctypes.c_int32), ("n_waiting", ctypes.c_int32)] + [(n, ctypes.c_int64) for n in ("total_blocks", "free_blocks", "cached_blocks")] + [
        (n, ctypes.c_int32) for n in ("block_size", "max_model_len", "max_num_seqs")] + [(n, ctypes.c_int64) for n in (
            "memory_bytes", "prompt_tokens", "generation_tokens", "cached_tokens", "steps", "preemptions")] + [("seconds", ctypes.c_double * 2), ("backend", ctypes.c_char_p)] + [
        (n, ctypes.c_int64) for n in ("drafts", "draft_tokens", "accepted_tokens")] + [("rest", ctypes.c_int64 * 64)]


def stats(llm):
    s, lib = Stats(), llm.lib
    lib.llm_get_engine.restype, lib.llm_get_engine.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    lib.llm_engine_get_stats.argtypes = [ctypes.c_void_p, ctypes.POINTER(Stats)]
    lib.llm_engine_get_stats(lib.llm_get_engine(llm.handle), ctypes.byref(s))
    return s


def open_tiny(model=TINY, **options):
    return offline.LLM(model, **{"device": "cpu", "threads": 1, "max_model_len": 256, **options})


def refused(what, says, f, *args, **options):
    try: check(f"{what}: refused", not f(*args, **options))
    except (ValueError, RuntimeError) as e: return check(f"{what}: a sentence", all(x in str(e) for x in ([says] if isinstance(says, str) else says)), e)


IDS = [5 + i % 200 for i in range(120)]
GREEDY = {"temperature": 0, "ignore_eos": True}


# ---- options of engines

@proves("options", "max_model_len", "session_len")
def test_length():
    for name in ("max_model_len", "session_len"):
        for n in (64, 128):
            llm = offline.LLM(TINY, device="cpu", threads=1, **{name: n})
            a = llm.generate([IDS[:100]], dict(GREEDY, max_tokens=2))[0]
            check(f"{name} {n}", (a.error_code == 400 and "64" in a.error_msg and "100" in a.error_msg) if n == 64 else a.error_code == 0, a)
    refused("a context over the model's", ["999999", "4096"], open_tiny, max_model_len=999999)


@proves("options", "max_num_seqs", "max_batch_size")
def test_width():
    for name in ("max_num_seqs", "max_batch_size"):
        steps = []
        for n in (1, 8):
            llm = open_tiny(**{name: n})
            llm.generate([[5, 6 + i] for i in range(8)], dict(GREEDY, max_tokens=10))
            steps.append(stats(llm).steps)
            check(f"{name} {n}: it is so", stats(llm).max_num_seqs == n)
        check(f"{name}: eight together take an eighth of the steps", steps[0] >= 7 * steps[1], steps)


@proves("flags", "--max-num-batched-tokens", "--enable-chunked-prefill")
def test_budget():
    prompts, steps = [IDS, [5, 6]], {}
    for options in ({"max_num_batched_tokens": 32}, {"max_num_batched_tokens": 256}, {"enable_chunked_prefill": False}):
        llm = open_tiny(max_num_seqs=2, **options)
        llm.generate([IDS], dict(GREEDY, max_tokens=1))
        steps[json.dumps(options)] = stats(llm).steps
    check("a small budget takes several steps for a prompt, a large one and one without chunks do not", [n > 3 for n in steps.values()] == [True, False, False], steps)
    refused("a budget that no whole prompt fits", ["max_num_batched_tokens (64)", "max_model_len (256)"], open_tiny, enable_chunked_prefill=False, max_num_batched_tokens=64)


@proves("options", "block_size")
@proves("flags", "--block-size")
def test_pages():
    sizes = [stats(open_tiny(block_size=n)).block_size for n in (16, 64, 128)]
    check("block_size", sizes == [16, 64, 128], sizes)
    refused("a page of 7", ["block_size", "16, 32, 64, 128"], open_tiny, block_size=7)


@proves("options", "num_gpu_blocks", "cache_max_entry_count")
def test_cache_size():
    for name in ("num_gpu_blocks", "cache_max_entry_count"):
        got = [stats(open_tiny(block_size=16, **{name: n})).total_blocks for n in (20, 50)]
        check(f"{name}: a count of pages", got == [20, 50], got)
    shares = [stats(open_tiny(cache_max_entry_count=x)) for x in (0.02, 0.04)]
    ratio = shares[1].total_blocks / shares[0].total_blocks
    check("cache_max_entry_count: twice the share of what is free, twice the pages", 1.5 < ratio < 2.7 and shares[0].total_blocks > 100, ratio)
    refused("a share and a number of pages", "both say how large the KV cache is", open_tiny, cache_max_entry_count=0.5, num_gpu_blocks=9)
    refused("two and a half pages", "whole number of pages", open_tiny, cache_max_entry_count=2.5)
    refused("half a page less than none", "cache_max_entry_count", open_tiny, cache_max_entry_count=-1)


@proves("options", "quant_policy")
@proves("flags", "--kv-cache-dtype")
def test_cache_type():
    bytes_of = {}
    for name, options in (("f32", {"kv_cache_dtype": "float32"}), ("auto", {"kv_cache_dtype": "auto"}), ("fp8", {"kv_cache_dtype": "fp8"}), ("int8", {"kv_cache_dtype": "int8"}), ("int4", {"kv_cache_dtype": "int4"}),
                          ("policy 0", {"quant_policy": 0}), ("policy 4", {"quant_policy": 4}), ("policy 8", {"quant_policy": 8})):
        llm = open_tiny(num_gpu_blocks=64, **options)
        bytes_of[name] = stats(llm).memory_bytes
        if name == "policy 4": check("quant_policy 4: a line says what it means", llm.notes == ["quant_policy: 4 means 8 bits, as LMDeploy's document says; for 4 bits there is kv_cache_dtype int4"], llm.notes)
        else: check(f"{name}: no line", not llm.notes, llm.notes)
    b = bytes_of
    check("kv_cache_dtype", b["int4"] < b["int8"] <= b["auto"] < b["f32"] and b["fp8"] < b["auto"], b)
    check("quant_policy 4 and 8 are 8 bits, 0 is none", b["policy 4"] == b["policy 8"] == b["int8"] and b["policy 0"] == b["auto"], b)
    refused("quant_policy 3", ["quant_policy", "3"], open_tiny, quant_policy=3)
    refused("two types", "another type", open_tiny, quant_policy=8, kv_cache_dtype="int4")


@proves("options", "eviction_type", "num_cpu_blocks")
def test_eviction():
    steps, answers = {}, {}
    for kind, more in (("recompute", {}), ("copy", {}), ("copy", {"num_cpu_blocks": 1})):
        llm = open_tiny(num_gpu_blocks=16, block_size=16, max_num_seqs=4, eviction_type=kind, enable_prefix_caching=False, max_num_batched_tokens=32, **more)
        out = llm.generate([[9 + i] * 40 for i in range(4)], dict(GREEDY, max_tokens=60))
        s, name = stats(llm), kind + "".join(more)
        steps[name], answers[name] = (s.steps, s.preemptions), [x.outputs.token_ids for x in out]
        check(f"{name}: no line", not llm.notes, llm.notes)
    check("eviction_type: some gave way", all(p > 0 for _, p in steps.values()), steps)
    check("eviction_type, num_cpu_blocks: what is computed again takes steps, what is copied takes none", steps["copy"][0] < steps["recompute"][0] and steps["copy"][0] < steps["copynum_cpu_blocks"][0], steps)
    check("eviction_type: the same answers", len({json.dumps(x) for x in answers.values()}) == 1)
    check("num_cpu_blocks without copy: a line", any(x.startswith("num_cpu_blocks has no effect") for x in open_tiny(num_cpu_blocks=8).notes))
    refused("another way to give way", "recompute, swap, copy", open_tiny, eviction_type="forget")


@proves("options", "prefill_interval")
@proves("flags", "--scheduler-delay-factor")
def test_joining():
    def steps(**options):
        llm = open_tiny(max_num_seqs=2, enable_prefix_caching=False, **options)
        out = llm.generate([{"prompt_token_ids": [5, 6]}, {"prompt_token_ids": [5, 7]}, {"prompt_token_ids": [5, 8]}], dict(GREEDY, max_tokens=20, stop_token_ids=STOPS))
        check(f"{options}: answers", all(x.error_code == 0 for x in out), out)
        return stats(llm).steps
    second = open_tiny().generate([[5, 7]], dict(GREEDY, max_tokens=3))[0].outputs.token_ids
    first = open_tiny().generate([[5, 6]], dict(GREEDY, max_tokens=20))[0].outputs.token_ids
    STOPS = [next(x for x in second if x not in first)]  # the second ends early, and leaves a place that the third may take
    at_once, later, never = steps(prefill_interval=1), steps(prefill_interval=12), steps(scheduler_delay_factor=1e6)
    check("prefill_interval, scheduler_delay_factor: new prompts join at once, every 12 steps, or when nothing runs", at_once < later <= never, (at_once, later, never))


@proves("options", "enable_prefix_caching")
@proves("flags", "--enable-prefix-caching")
def test_prefix_cache():
    for on in (True, False):
        llm = open_tiny(enable_prefix_caching=on, block_size=16)
        out = [llm.generate([IDS], dict(GREEDY, max_tokens=2))[0] for _ in range(2)]
        check(f"enable_prefix_caching {on}", (out[1].num_cached_tokens >= 96) == on and out[0].outputs.token_ids == out[1].outputs.token_ids, out[1])


@proves("options", "tensor_parallel_size", "tp")
@proves("flags", "--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp")
def test_ranks():
    answers, memory = set(), []
    for options in ({"tensor_parallel_size": 1}, {"tensor_parallel_size": 2}, {"tp": 2}, {"pipeline_parallel_size": 2}, {"tp": 2, "pipeline_parallel_size": 2}):
        llm = open_tiny(**options)
        answers.add(json.dumps(llm.generate([[5, 6, 7]], dict(GREEDY, max_tokens=12))[0].outputs.token_ids))
        memory.append(stats(llm).memory_bytes)
    check("ranks: the same answer", len(answers) == 1, answers)
    check("ranks: each has memory of its own", memory[0] < memory[1] == memory[2] < memory[3] < memory[4], memory)
    refused("three ranks of four heads", "divisible", open_tiny, tp=3)


def folder(name, of, **changes):
    """A copy of a checkpoint with other settings; None takes one out."""
    to = ROOM / name
    shutil.copytree(checkpoint(of), to, dirs_exist_ok=True)
    config = json.loads((to / "config.json").read_text())
    for key, value in changes.items():
        config.pop(key, None)
        if value is not None: config[key] = value
    (to / "config.json").write_text(json.dumps(config))
    return str(to)


@proves("options", "rope_scaling_factor", "use_logn_attn")
def test_long_texts():
    """A parameter computes what the same word in config.json does: a prompt of 100 tokens for a model of 64."""
    def answer(model, **options): return open_tiny(model, **options).generate([IDS[:100]], dict(GREEDY, max_tokens=8, logprobs=0))[0]
    plain, dynamic = folder("plain", "llama_rope_dynamic", rope_scaling=None), str(checkpoint("llama_rope_dynamic"))
    refused("100 tokens for 64", "64", open_tiny, plain, max_model_len=128)
    a, b, c = answer(dynamic, max_model_len=128), answer(plain, max_model_len=128, rope_scaling_factor=2.0), answer(plain, max_model_len=128, rope_scaling_factor=4.0)
    check("rope_scaling_factor 2 is the config's factor 2", a.error_code == b.error_code == 0 and a.outputs.token_ids == b.outputs.token_ids and a.outputs.cum_logprob == b.outputs.cum_logprob, (a, b))
    check("rope_scaling_factor 4 is another", c.error_code == 0 and c.outputs.cum_logprob != b.outputs.cum_logprob, c)
    short = [open_tiny(plain, max_model_len=64, **x).generate([[5, 6, 7]], dict(GREEDY, max_tokens=8))[0].outputs.cum_logprob for x in ({}, {"rope_scaling_factor": 2.0})]
    check("a prompt within the length is as without", short[0] == short[1], short)
    config = folder("logn", "llama_rope_dynamic", use_logn_attn=True)
    d, e = answer(config, max_model_len=128), answer(dynamic, max_model_len=128, use_logn_attn=True)
    check("use_logn_attn is the config's", d.outputs.cum_logprob == e.outputs.cum_logprob != a.outputs.cum_logprob, (d, e))
    refused("a scheme beside the file's own", ["rope_scaling_factor", "scheme of its own"], open_tiny, str(checkpoint("llama_rope_yarn")), max_model_len=64, rope_scaling_factor=2.0)
    refused("a factor that shrinks", "at least 1", open_tiny, plain, max_model_len=64, rope_scaling_factor=0.5)


@proves("options", "model_format")
@proves("flags", "--quantization", "-q")
def test_format():
    quantised = folder("gptq", "llama", quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128})
    check("model_format hf: a folder", open_tiny(LLAMA, model_format="hf", max_model_len=64).generate([[5]], dict(GREEDY, max_tokens=1))[0].error_code == 0)
    for model, options, says in ((TINY, {"model_format": "hf"}, "no folder"), (LLAMA, {"model_format": "llama"}, "Meta"), (LLAMA, {"model_format": "awq"}, ["awq", "none"]), (LLAMA, {"model_format": "banana"}, "hf, llama, awq, gptq"),
                                 (LLAMA, {"quantization": "awq"}, ["awq", "none"]), (TINY, {"quantization": "awq"}, ["awq", "gguf"]), (quantised, {"quantization": "awq"}, ["awq", "gptq"]), (TINY, {"quantization": "nonsense"}, "one of None, awq, gptq")):
        refused(f"{options} of {pathlib.Path(model).name}", says, open_tiny, model, **{"max_model_len": 64, **options})
    for word in ("None", "gguf", "GGUF"): check(f"quantization {word}", open_tiny(quantization=word).notes == [])


@proves("flags", "--dtype")
def test_dtype():
    of = {}
    for dtype in ("auto", "float", "float32", "half", "float16", "bfloat16"):
        llm = open_tiny(LLAMA, dtype=dtype, max_model_len=128)
        of[dtype] = llm.generate([IDS[:60]], dict(GREEDY, max_tokens=10))[0].outputs.cum_logprob, llm.notes
    check("dtype float32 computes otherwise", of["float32"][0] == of["float"][0] != of["auto"][0], of)
    told = [len(notes) for _, notes in of.values()]
    file_type = json.loads(subprocess.run([CLI, "info", "-m", LLAMA, "--json"], capture_output=True).stdout)["file_type"]
    check(f"dtype: of a file in {file_type} a line says what another is", told == [0, 0, 0, *((1, 1, 0) if file_type == "BF16" else (0, 0, 1))] and all("float32" in n[0] for _, n in of.values() if n), of)
    refused("a type that is none", "float8", open_tiny, dtype="float8")


@proves("options", "adapters")
@proves("flags", "--enable-lora", "--lora-modules", "--max-lora-rank", "--max-loras", "--max-cpu-loras")
def test_adapters():
    paths = {}
    for i, name in enumerate(("one", "two")):
        paths[name] = str(ROOM / name)
        adapters.make(LLAMA, paths[name], r=8, seed=i + 1)
    options = dict(max_model_len=64, max_num_seqs=4)
    llm = open_tiny(LLAMA, adapters=paths, **options)
    said = {name: llm.generate([[5, 6, 7]], dict(GREEDY, max_tokens=12, **more))[0].outputs.token_ids for name, more in (
        ("base", {}), ("one", {"adapter_name": "one"}), ("two", {"adapter_name": "two"}), ("one by model", {"model": "one"}))}
    check("adapters: each answers otherwise", len({json.dumps(x) for x in said.values()}) == 3 and said["one"] == said["one by model"], said)
    bad = llm.generate([[5]], {"adapter_name": "three"})[0]
    check("an adapter that is none", bad.error_code == 404 and "three" in bad.error_msg, bad)
    refused("a rank over the largest", ["rank", "8"], open_tiny, LLAMA, adapters=paths, max_lora_rank=1, **options)
    steps = []
    for n in (1, 2):
        llm = open_tiny(LLAMA, adapters=paths, max_loras=n, **options)
        llm.generate([[5, 6]], dict(GREEDY, max_tokens=2))
        out = [threading.Thread(target=lambda: None)]
        for o in out: o.start()
        before = stats(llm).steps
        llm.generate([{"prompt_token_ids": [5, 6, i], } for i in range(2)], dict(GREEDY, max_tokens=10, adapter_name="one"))
        steps.append(stats(llm).steps - before)
    check("max_loras: one adapter's answers run together", steps[0] == steps[1], steps)
    for n in (1, 2):  # with room for one, the files of the one opened first are read again when it is asked for
        moved = {name: str(ROOM / f"{name}{n}") for name in paths}
        for name in paths: shutil.copytree(paths[name], moved[name], dirs_exist_ok=True)
        llm = open_tiny(LLAMA, adapters=moved, max_loras=1, max_cpu_loras=n, **options)
        for path in moved.values(): shutil.rmtree(path)
        errors = [llm.generate([[5]], {"max_tokens": 1, "adapter_name": name})[0].error_code for name in reversed(paths)]
        check(f"max_cpu_loras {n}", sum(x == 0 for x in errors) == n, errors)
    refused("fewer in memory than compute", ["max_cpu_loras (1)", "max_loras (2)"], open_tiny, LLAMA, adapters=paths, max_loras=2, max_cpu_loras=1, **options)
    refused("a path that is none", "lora_modules", open_tiny, LLAMA, adapters={"a": "/nothing"}, **options)
    for text in ("x", "=y", "x=", '{"name": "a"}'): refused(f"an adapter {text}", "NAME=PATH", open_tiny, LLAMA, lora_modules=[text], **options)
    check("max_lora_rank without adapters: a line", any(x.startswith("max_lora_rank has no effect") for x in open_tiny(max_lora_rank=16).notes))
    config = ROOM / "adapters.json"
    config.write_text(json.dumps({"adapters": {"one": paths["one"]}, "enable_lora": True}))
    s = Server("--config", str(config), "--max-model-len", "64", model=LLAMA, base=())
    ids = [x["id"] for x in json.loads(s.request("GET", "/v1/models")[2])["data"]]
    check("adapters as a dict in --config", "one" in ids, ids)
    s.stop()
    config = ROOM / "serve.yaml"  # as vLLM's documents show it
    config.write_text(f"""# the model is named on the command line
port: 0
max-model-len: 64
enable-prefix-caching: yes
served-model-name: [tiny, "other name"]
speculative-config: {{method: ngram, num_speculative_tokens: 2}}
lora-modules:
  - name: one
    path: {paths["one"]}
chat-template: |
  {{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}
  END
""")
    s = Server("--config", str(config), model=LLAMA, base=())
    models = json.loads(s.request("GET", "/v1/models")[2])["data"]
    check("--config of YAML", [x["id"] for x in models] == ["tiny", "other name", "one"] and models[0]["max_model_len"] == 64, models)
    check("--config of YAML: drafts, and a template of two lines", "spec_decode" in s.request("GET", "/metrics")[2].decode()
          and s.post("/tokenize", {"messages": [{"role": "user", "content": "ab"}]})[1]["tokens"] == s.post("/tokenize", {"prompt": "abEND", "add_special_tokens": False})[1]["tokens"])
    s.stop()


@proves("options", "enable_early_stop", "early_stop_config")
@proves("flags", "--enable-early-stop", "--early-stop-config")
def test_early_stop():
    said = dict(GREEDY, max_tokens=60)
    def n(params=said, **options): return len(open_tiny(**options).generate([[5, 6]], params)[0].outputs.token_ids)
    one = {"enable_early_stop": True, "window_size": 7, "threshold": 0.0}
    check("early_stop_config: the seventh token ends it", n(early_stop_config=one) == 7)
    check("window_size", n(early_stop_config=dict(one, window_size=20)) == 20)
    check("threshold 1 is never exceeded", n(early_stop_config=dict(one, threshold=1.0)) == 60)
    check("enable_early_stop false", n(early_stop_config=dict(one, enable_early_stop=False)) == 60)
    check("the flag and the numbers", n(enable_early_stop=True, early_stop_config={"window_size": 7, "threshold": 0.0}) == 7)
    check("the flag alone has a window of 3000", n(enable_early_stop=True) == 60)
    check("a request declines it", n(dict(said, enable_early_stop=False), early_stop_config=one) == 60)
    check("a request asks for it", n(dict(said, enable_early_stop=True, early_stop_config={"window_size": 9, "threshold": 0.0})) == 9)
    llm = open_tiny(early_stop_config={"window_size": 7})
    check("numbers without the flag: a line", llm.notes == ["early_stop_config has no effect: neither it nor an option of its own says enable_early_stop"], llm.notes)
    llm.generate([[5]], dict(said, early_stop_config={"window_size": 7}))
    check("the same of a request", llm.ignored == "early_stop_config", llm.ignored)
    full, cut = open_tiny().generate([[5, 6]], dict(said, max_tokens=7))[0].outputs, open_tiny(early_stop_config=one).generate([[5, 6]], said)[0].outputs
    check("cum_log_probs counts what was sampled", abs(full.cum_logprob - cut.cum_logprob) < 1e-6 and full.token_ids[:6] == cut.token_ids[:6] and full.token_ids[6] != cut.token_ids[6], (full, cut))
    for bad, says in (({"window": 3}, "window_size"), ({"strategy": "ngram"}, "repetition"), ({"window_size": 0}, "window_size"), ({"threshold": 2.0}, "threshold"), ({"enable_early_stop": 1}, "true or false")): refused(f"early_stop_config {bad}", says, open_tiny, early_stop_config=bad)
    refused("against each other", "contradict", open_tiny, enable_early_stop=True, early_stop_config={"enable_early_stop": False})
    beams = open_tiny().generate([[5]], {"use_beam_search": True, "best_of": 2, "temperature": 0, "max_tokens": 2, "enable_early_stop": True})[0]
    check("beside a beam search: an error", beams.error_code == 400 and "beam" in beams.error_msg, beams)
    llm = open_tiny(early_stop_config=one)
    beams = llm.generate([[5]], {"use_beam_search": True, "best_of": 2, "temperature": 0, "max_tokens": 12, "ignore_eos": True})[0]
    check("the engine's beside a beam search: told", beams.error_code == 0 and llm.ignored == "enable_early_stop", (beams, llm.ignored))


@proves("options", "reasoning_parser")
@proves("parameters", "chat_template_kwargs")
def test_chats():
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %}<think>{% endif %}"
    for kwargs, ends in (({"enable_thinking": True}, "<think>"), ({"enable_thinking": False}, "hello")):
        for parser in ("deepseek_r1", "none"):
            a = open_tiny(chat_template=template, reasoning_parser=parser).chat("hello", dict(GREEDY, max_tokens=4), chat_template_kwargs=kwargs)[0]
            check(f"chat_template_kwargs {kwargs}", a.prompt == "hello" + ("<think>" if kwargs["enable_thinking"] else ""), a.prompt)
            check(f"reasoning_parser {parser}", (a.outputs.reasoning_content is not None) == (parser != "none"), a)
    refused("a parser that is none", "reasoning_parser", open_tiny, reasoning_parser="x")


@proves("options", "model_name", "chat_template_config")
@proves("flags", "--chat-template")
def test_templates():
    bare = folder("bare", "llama")
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        with contextlib.suppress(FileNotFoundError): (pathlib.Path(bare) / name).unlink()
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    want = {"chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n", "zephyr": "<|system|>\nS{e}\n<|user|>\nU{e}\n<|assistant|>\n"}
    def prompt(**options): return open_tiny(bare, max_model_len=128, **options).chat([messages], {"max_tokens": 1})[0]
    check("no template: refused", prompt().error_code == 400 and "chat template" in prompt().error_msg, prompt())
    for name, text in want.items():
        for options in ({"model_name": name}, {"chat_template": name}, {"chat_template_config": {"model_name": name}}):
            got = prompt(**options).prompt
            check(f"{options}", got in (text.format(e=""), text.format(e="<|endoftext|>"), text.format(e="</s>"), text.format(e="<|im_end|>")) or got.startswith(text[:20]), got)
    refused("a name that is none", "chatml, llama-2", open_tiny, bare, max_model_len=64, chat_template="banana")
    refused("a name that is none, in the config", "chatml, llama-2", open_tiny, bare, max_model_len=64, chat_template_config={"model_name": "banana"})
    refused("a template in pieces", "chat template in pieces", open_tiny, bare, max_model_len=64, chat_template_config={"meta_instruction": "x"})
    llm = open_tiny(bare, max_model_len=64, model_name="my-model")
    check("a name that is no template: a line", llm.notes == ["model_name has no effect: it is no built-in chat template, and nothing is served here"], llm.notes)
    llm = open_tiny(chat_template="alpaca")
    own = llm.chat([messages], {"max_tokens": 1})[0].prompt
    check("the model's own wins, and a line says so", "<|im_start|>" in own and any("a chat template of its own" in line for _, line in llm.log), (own, llm.log))


@proves("options", "log_level")
def test_log_level():
    lines = {level: len(open_tiny(log_level=level).log) for level in ("error", "info", "debug")}
    check("log_level", lines["error"] == 0 and lines["error"] <= lines["info"] <= lines["debug"], lines)
    refused("a level that is none", "error, warn", open_tiny, log_level="loud")


# ---- parameters of answers

def answer(params, prompt=(5, 6, 7), llm=[]):
    if not llm: llm.append(open_tiny(max_num_seqs=8))
    out = llm[0].generate([list(prompt)], params)
    if out[0].error_code: raise AssertionError(out[0].error_msg)
    return out


def ids(params, **more): return answer(params, **more)[0].outputs.token_ids


@proves("parameters", "max_tokens", "max_new_tokens", "request_output_len", "min_tokens", "ignore_eos")
@proves("fields", "max_tokens", "ignore_eos")
def test_lengths():
    for name in ("max_tokens", "max_new_tokens", "request_output_len"):
        check(name, [len(ids({"temperature": 0, "ignore_eos": True, name: n})) for n in (3, 9)] == [3, 9])
    eos = {"temperature": 0, "max_tokens": 8, "logit_bias": {"2": 100}}  # <|im_end|>
    check("EOS ends an answer", len(ids(eos)) == 1)
    check("min_tokens", len(ids(dict(eos, min_tokens=5))) == 6)
    check("ignore_eos", len(ids(dict(eos, ignore_eos=True))) == 8)


@proves("parameters", "temperature", "top_k", "top_p", "min_p", "random_seed")
@proves("fields", "temperature", "top_k", "top_p", "seed")
def test_sampling():
    greedy, hot = ids(dict(GREEDY, max_tokens=12)), {"temperature": 1.5, "max_tokens": 12, "ignore_eos": True, "seed": 7}
    check("temperature", ids(hot) != greedy)
    for more in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}): check(f"{more} leaves the likeliest", ids(dict(hot, **more)) == greedy, more)
    for more in ({"top_k": -1}, {"top_k": 0}, {"top_p": 1.0}, {"min_p": 0.0}): check(f"{more} changes nothing", ids(dict(hot, **more)) == ids(hot), more)
    for name in ("seed", "random_seed"):
        hot.pop("seed", None)
        check(name, ids(dict(hot, **{name: 1})) == ids(dict(hot, **{name: 1})) != ids(dict(hot, **{name: 2})))


@proves("parameters", "presence_penalty", "frequency_penalty", "repetition_penalty")
@proves("fields", "presence_penalty", "frequency_penalty")
def test_penalties():
    loop = dict(GREEDY, max_tokens=40, logit_bias={"11": 12, "12": 11, "13": 10})
    plain = ids(loop)
    for more in ({"presence_penalty": 2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 2.0}):
        check(f"{more}: more different tokens", len(set(ids(dict(loop, **more)))) > len(set(plain)), (plain, ids(dict(loop, **more))))
    for more in ({"presence_penalty": 0}, {"frequency_penalty": 0}, {"repetition_penalty": 1.0}): check(f"{more}: as it was", ids(dict(loop, **more)) == plain)


@proves("parameters", "stop_words", "bad_words")
@proves("fields", "stop", "logit_bias")
def test_words():
    text = answer(dict(GREEDY, max_tokens=30))[0].outputs.text
    word = next(text[i:i + 3] for i in range(4, len(text)) if text[i:i + 3].strip() and text[i:i + 3].isascii())
    for name in ("stop", "stop_words"):
        for value in (word, [word], ["never there", word]):
            if name == "stop_words" and isinstance(value, str): continue
            a = answer(dict(GREEDY, max_tokens=30, **{name: value}))[0].outputs
            check(f"{name} {value}", a.text == text[:text.index(word)] and a.finish_reason == "stop", (a, text))
    b = answer(dict(GREEDY, max_tokens=30, bad_words=[word]))[0].outputs
    check("bad_words keep a word out, however it is cut", word not in b.text and b.text[:3] == text[:3] or text.startswith(word), (word, b.text))
    lines = dict(temperature=0, max_tokens=12, ignore_eos=True, logit_bias={"198": 100})  # "\n" again and again
    check("two line ends, of two tokens", "\n\n" in answer(lines)[0].outputs.text and "\n\n" not in answer(dict(lines, bad_words=["\n\n"]))[0].outputs.text)
    check("logit_bias", ids(dict(GREEDY, max_tokens=3, logit_bias={"77": 100})) == [77] * 3 and 77 not in ids(dict(GREEDY, max_tokens=20, logit_bias={"77": -100})))


@proves("parameters", "n")
@proves("fields", "n", "best_of", "use_beam_search", "length_penalty")
def test_many():
    hot = {"temperature": 1.0, "seed": 3, "max_tokens": 8, "ignore_eos": True}
    check("n", [len(answer(dict(hot, n=n))) for n in (1, 3)] == [1, 3])
    check("best_of: the best of eight is no worse than the one", answer(dict(hot, best_of=8))[0].outputs.cum_logprob >= answer(dict(hot, n=8))[0].outputs.cum_logprob)
    eight = answer(dict(hot, n=8))
    check("best_of is the best of the same samples", abs(answer(dict(hot, best_of=8))[0].outputs.cum_logprob - max(x.outputs.cum_logprob for x in eight)) < 1e-9)
    beams = {"use_beam_search": True, "best_of": 4, "temperature": 0, "max_tokens": 12}
    greedy = answer(dict(temperature=0, max_tokens=12))[0].outputs
    b = answer(beams)[0].outputs
    check("use_beam_search finds a likelier answer, or the same", b.cum_logprob >= greedy.cum_logprob - 1e-6, (b, greedy))
    ends = dict(beams, max_tokens=20, logit_bias={"2": 9})
    lengths = [len(answer(dict(ends, length_penalty=x))[0].outputs.token_ids) for x in (-20.0, 20.0)]
    check("length_penalty: a large one favours longer answers", lengths[0] < lengths[1], lengths)


@proves("parameters", "do_preprocess", "use_tqdm", "multimodal_data")
def test_calls():
    llm, seen = open_tiny(max_num_seqs=4), []
    chat, raw = llm.chat("Hi", {"max_tokens": 1})[0], llm.chat("Hi", {"max_tokens": 1, "do_preprocess": False})[0]
    check("do_preprocess", "<|im_start|>" in chat.prompt and raw.prompt == "Hi" and len(raw.prompt_token_ids) < len(chat.prompt_token_ids), (chat, raw))
    check("do_preprocess of the engine", open_tiny(do_preprocess=False).chat("Hi", {"max_tokens": 1})[0].prompt == "Hi")
    llm.generate([[5]] * 3, {"max_tokens": 1}, use_tqdm=seen.append)
    check("use_tqdm", len(seen) == 3, seen)
    for data in ("multimodal_data", "multi_modal_data"):
        a = llm.generate({"prompt": "Hi", data: {"image": ["x"]}}, {"max_tokens": 1})[0]
        check(f"{data}: refused", a.error_code == 400 and data in a.error_msg and "image" in a.error_msg, a)
    for prompt, what in (({"prompt": "Hi"}, "text"), ({"prompt_token_ids": [5, 6]}, "ids"), ([{"prompt": "Hi"}, {"prompt_token_ids": [5, 6]}], "both")):
        out = llm.generate(prompt, {"max_tokens": 1})
        check(f"a prompt as a dict, {what}", all(x.error_code == 0 for x in out) and [x.prompt for x in out] == {"text": ["Hi"], "ids": [""], "both": ["Hi", ""]}[what], out)
    check("a chat as a dict", "<|im_start|>" in llm.chat([{"messages": [{"role": "user", "content": "Hi"}]}], {"max_tokens": 1})[0].prompt)
    for bad in ({"promt": "Hi"}, {}, {"prompt": "Hi", "extra": 1}):
        a = llm.generate(bad, {"max_tokens": 1})[0]
        check(f"a prompt {bad}", a.error_code == 400 and "prompt" in a.error_msg, a)
    refused("a parameter that is none", ["max_tokns", "max_tokens"], llm.generate, [[5]], {"max_tokns": 3})
    llm.generate([[5]], {"max_tokens": 1, "service_tier": "x", "top_logprobs": 2, "stream": True, "spaces_between_special_tokens": False})
    check("parameters without effect are told", set(llm.ignored.split(", ")) == {"stream", "service_tier", "top_logprobs", "spaces_between_special_tokens"}, llm.ignored)
    llm.generate([[5]], {"max_tokens": 1})
    check("and none where there is none", llm.ignored == "")


# ---- flags of servers and fields of requests, where the offline functions have none

def post(s, path, body): return s.request("POST", path, body)


@proves("flags", "--model", "--served-model-name", "--host", "--port", "--metrics-port", "--tokenizer", "--num-scheduler-steps", "--max-model-len", "--max-num-seqs")
@proves("fields", "model", "prompt", "messages", "stream", "stream_options", "user")
@proves("options", "port", "metrics_port")
def test_server():
    with contextlib.ExitStack() as ends:
        import socket
        free = socket.socket()
        free.bind((HOST, 0))
        metrics = free.getsockname()[1]
        free.close()
        one = Server("--served-model-name", "a", "b", "--metrics-port", str(metrics), "--log-requests", "--max-queue", "0", "--max-num-seqs", "2", model=TINY, base=("--max-model-len", "600"))
        ends.callback(one.stop)
        four = Server("--num-scheduler-steps", "4", model=TINY, base=("--max-model-len", "600"))
        ends.callback(four.stop)
        names = [json.loads(s.request("GET", "/v1/models")[2])["data"] for s in (one, four)]
        check("served-model-name", [x["id"] for x in names[0]] == ["a", "b"] and names[1][0]["id"] == TINY and names[0][0]["max_model_len"] == 600, names)
        check("launch time in the log", "server launch time cost: " in one.errors(), one.errors())
        for name, status in (("a", 200), ("b", 200), (TINY, 200)):
            code, _, text = post(one, "/v1/completions", {"model": name, "prompt": "x", "max_tokens": 1})
            check(f"model {name}", code == status and json.loads(text)["model"] == "a", text)
        def events(s, body, path="/v1/completions"):
            return [json.loads(x[6:]) for x in post(s, path, dict(body, stream=True))[2].decode().split("\n\n") if x.startswith("data: {")]
        body = {"prompt": "x", "max_tokens": 10, "ignore_eos": True, "temperature": 0, "logprobs": 1}
        whole = json.loads(post(one, "/v1/completions", body)[2])["choices"][0]
        for s, most in ((one, 1), (four, 4)):
            parts = [e["choices"][0] for e in events(s, body)]
            tokens = [len(p["logprobs"]["tokens"]) for p in parts if p["logprobs"]]
            check(f"num-scheduler-steps {most}: tokens of an event", max(tokens) == most and sum(tokens) == 10 and (most == 1 or tokens == [4, 4, 2]), tokens)
            check(f"num-scheduler-steps {most}: the same answer", "".join(p["text"] for p in parts) == whole["text"] and sum((p["logprobs"]["token_logprobs"] for p in parts if p["logprobs"]), []) == whole["logprobs"]["token_logprobs"], parts)
            chat = events(s, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 10, "ignore_eos": True}, "/v1/chat/completions")
            pieces = [e for e in chat if e["choices"][0]["delta"].get("content") is not None and "role" not in e["choices"][0]["delta"]]
            check(f"num-scheduler-steps {most}: a chat's events", len(pieces) == (10 if most == 1 else 3), len(pieces))
            lines = post(s, "/generate", {"prompt": "x", "max_tokens": 10, "ignore_eos": True, "stream": True})[2].decode().split("\n")
            check(f"num-scheduler-steps {most}: lines of /generate", json.loads(lines[-2])["text"][0].startswith("x") and (most == 1 or len(lines) <= 4), lines)
        usage = [len([e for e in events(one, dict(body, **more)) if e.get("usage")]) for more in ({}, {"stream_options": {"include_usage": True}})]
        check("stream_options", usage == [0, 1], usage)
        post(one, "/v1/completions", dict(body, user="somebody"))
        check("user: in the log of requests", eventually(lambda: 'user "somebody"' in one.errors(), 5), one.errors())
        check("metrics-port", one.request("GET", "/v1/models")[0] == 200 and subprocess.run(["curl", "-s", f"http://{HOST}:{metrics}/metrics"], capture_output=True).stdout.startswith(b"#"))
        # --max-queue 0 with two places: the third is told at once that there is none
        slow = [threading.Thread(target=post, args=(one, "/v1/completions", dict(body, max_tokens=500, logprobs=None))) for _ in range(2)]
        for t in slow: t.start()
        running = lambda: b"vllm:num_requests_running" in (m := one.request("GET", "/metrics")[2]) and b"num_requests_running{" in m and any(x.endswith(b" 2") or x.endswith(b" 2.0") for x in m.split(b"\n") if x.startswith(b"vllm:num_requests_running"))
        if eventually(running, 5, 0.001):
            status, headers, text = post(one, "/v1/completions", body)
            check("max-queue 0: who finds no place gets 429", status in (429, 200) and (status == 200 or json.loads(text)["error"]["code"] == "queue_full"), text)
        for t in slow: t.join()
        foreign = Server("--tokenizer", LLAMA, model=TINY, base=("--max-model-len", "64"))
        ends.callback(foreign.stop)
        tokens = [json.loads(post(s, "/tokenize", {"prompt": "Hello there"})[2])["tokens"] for s in (one, foreign)]
        check("tokenizer", tokens[0] != tokens[1], tokens)
    for words, says in ((["--host", "256.0.0.1"], "--host"), (["--port", "70000"], "--port"), (["--model", "/nothing"], "/nothing"), (["--max-modl-len", "5"], "unknown option --max-modl-len; the nearest is --max-model-len"),
                        (["--max-model-len", "99999"], "--max-model-len: 99999 is more than the model's own 4096"), (["-c", "99999"], "-c: 99999"), (["--early-stop-config", "x"], "--early-stop-config: x"),
                        (["--speculative-model", "/nothing", "--num-speculative-tokens", "2"], "--speculative-model: /nothing"), (["--quantization", "nonsense"], "--quantization: nonsense, one of None"), (["--distributed-executor-backend", "banana"], "ray, mp")):
        p = subprocess.run([SERVE, "--model", TINY, *words], capture_output=True, text=True, timeout=60)
        check(f"{words}: the words of the user", p.returncode in (1, 2) and says in p.stderr, p.stderr)


@proves("fields", "echo", "logprobs", "guided_json", "suffix")
def test_completions():
    s = Server(model=TINY, base=("--max-model-len", "600", "--log-level", "warn"))
    body = {"prompt": "one two", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    def choice(path="/v1/completions", **more): return json.loads(post(s, path, dict(body, **more))[2])["choices"][0]
    check("echo", choice(echo=True)["text"] == "one two" + choice()["text"] and choice(echo=True)["sentence_length"] == len(choice(echo=True)["text"]))
    check("logprobs", choice()["logprobs"] is None and [len(choice(logprobs=n)["logprobs"]["top_logprobs"][0]) for n in (1, 5)] == [1, 5])
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    for value in (schema, json.dumps(schema)): check("guided_json, as object and text", json.loads(choice(guided_json=value, max_tokens=60)["text"])["a"] in ("x", "y"))
    status, _, text = post(s, "/v1/completions", dict(body, suffix="x"))
    check("suffix: refused", status == 400 and json.loads(text)["error"]["param"] == "suffix", text)
    for name in ("multimodal_data", "multi_modal_data"):
        status, _, text = post(s, "/generate", dict(body, **{name: {"image": []}}))
        check(f"/generate, {name}: refused", status == 400 and name in text.decode(), text)
    for key in ("a\0b", "k" * 10000):
        status, _, text = post(s, "/v1/completions", dict(body, **{key: 1}))
        check(f"a key of {len(key)}", status == 400 and "key" in text.decode(), text)
    status, _, text = post(s, "/v1/completions", dict(body, guided_regex="foo**"))
    check("foo**", status == 400 and json.loads(text)["error"]["param"] == "guided_regex", text)
    s.stop()


# What a request says in vain is in x-llm-ignored; elsewhere the same member works.
VAIN = [("/v1/chat/completions", "echo", True), ("/v1/completions", "tools", []), ("/v1/completions", "tool_choice", "none"), ("/generate", "logprobs", 2), ("/generate", "return_token_ids", True),
        ("/v1/completions", "messages", []), ("/v1/chat/completions", "prompt", "x"), ("/v1/completions", "guided_decoding_backend", "outlines"), ("/v1/completions", "spaces_between_special_tokens", True),
        ("/v1/completions", "truncation", "auto"), ("/v1/chat/completions", "max_tool_calls", 3), ("/v1/chat/completions", "metadata", {"a": "b"}), ("/v1/chat/completions", "store", True), ("/v1/responses", "store", True),
        ("/v1/responses", "truncation", "auto"), ("/v1/responses", "max_tool_calls", 3), ("/v1/completions", "dimensions", 5), ("/v1/embeddings", "temperature", 0.5), ("/tokenize", "temperature", 0.5), ("/v1/completions", "nobody_knows", 1),
        ("/v1/completions", "best of", 1), ("/v1/chat/completions", "top-secret\r\nx: y", 1)]
HEARD = [("/v1/completions", "echo", True), ("/v1/completions", "logprobs", 2), ("/v1/completions", "return_token_ids", True), ("/v1/responses", "truncation", "disabled"), ("/v1/responses", "store", False), ("/v1/responses", "metadata", {"a": "b"}),
         ("/v1/completions", "service_tier", None), ("/v1/completions", "user", "u"), ("/v1/completions", "request_id", "mine-7")]
BODIES = {"/v1/completions": {"prompt": "x", "max_tokens": 1}, "/generate": {"prompt": "x", "max_tokens": 1}, "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
          "/v1/responses": {"input": "x", "max_output_tokens": 1}, "/v1/embeddings": {"input": "x"}, "/tokenize": {"prompt": "x"}}


def test_requests_in_vain():
    s = Server(model=TINY, base=("--max-model-len", "600", "--log-level", "warn"))
    for path, name, value in VAIN + HEARD:
        status, headers, text = post(s, path, {**BODIES[path], name: value})
        vain = (path, name, value) in VAIN
        told = headers.get("x-llm-ignored", "")
        want = "".join(c if c.isalnum() or c in "-_." else "?" for c in name)
        check(f"{path} {name}: {'told' if vain else 'heard'}", status == 200 and told == (want if vain else ""), (status, told, text[:200]))
        if name == "request_id": check("request_id is the answer's id", json.loads(text)["id"] == "mine-7" and headers["x-request-id"] == "mine-7", text)
        if name == "metadata" and not vain: check("metadata comes back", json.loads(text)["metadata"] == {"a": "b"}, text)
    status, headers, _ = post(s, "/v1/completions", {**BODIES["/v1/completions"], "aa": 1, "echo": True, "tools": [], "zz": 2, "stream": True, "stream_options": {"include_obfuscation": False}})
    check("several, and members of members", set(headers["x-llm-ignored"].split(", ")) == {"aa", "zz", "tools", "stream_options.include_obfuscation"}, headers)
    status, _, text = post(s, "/v1/completions", {**BODIES["/v1/completions"], "guided_decoding_backend": "banana"})
    check("a backend that is none: refused", status == 400 and "outlines" in text.decode(), text)
    status, _, text = post(s, "/v1/chat/completions", {**BODIES["/v1/chat/completions"], "echo": True, "messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}], "add_generation_prompt": False, "continue_final_message": True})
    check("echo of a message that is continued, which would change the answer: refused", status == 400 and json.loads(text)["error"]["param"] == "echo", text)
    status, _, text = post(s, "/v1/completions", {**BODIES["/v1/completions"], "request_id": "a b"})
    check("a request_id with a blank: refused", status == 400 and json.loads(text)["error"]["param"] == "request_id", text)
    s.stop()


@proves("options", "limit_mm_per_prompt")
def test_pictures():
    """What tests/e2e/test_vision.py shows of a server, here that the offline functions take the same words."""
    folder = pathlib.Path("build/data/vision/qwen2_5_vl")
    url = "data:image/png;base64," + base64.b64encode((folder / "exact.png").read_bytes()).decode()
    for limit in (1, 2):
        llm = open_tiny(str(folder), limit_mm_per_prompt={"image": limit}, enable_mm=True)
        for n in (1, 2):
            content = [{"type": "image_url", "image_url": {"url": url}}] * n + [{"type": "text", "text": "Which?"}]
            a = llm.chat([{"role": "user", "content": content}], {"max_tokens": 1})[0]
            check(f"limit_mm_per_prompt {limit}, {n} pictures", a.error_code == 0 if n <= limit else a.error_code == 400 and "At most 1" in a.error_msg, a)
    refused("limit_mm_per_prompt 5", "limit_mm_per_prompt", open_tiny, str(folder), limit_mm_per_prompt=5)
    pictures = {"limit_mm_per_prompt": {"image": 2}, "mm_processor_kwargs": {}, "allowed_local_media_path": str(ROOM), "interleave_mm_strings": True}
    check("a model that does not see: a line each", open_tiny(**pictures).notes == [f"{x} has no effect: the model sees no pictures" for x in pictures], open_tiny(**pictures).notes)
    check("one that sees: none", open_tiny(str(folder), **pictures).notes == [], open_tiny(str(folder), **pictures).notes)


@proves("environment", "VLLM_IMAGE_FETCH_TIMEOUT")
def test_fetch_timeout():
    """Somebody who takes a picture's request and says nothing is left after so long."""
    folder = pathlib.Path("build/data/vision/qwen2_5_vl")
    silent = socket.create_server(("127.0.0.1", 0))
    content = [{"type": "image_url", "image_url": {"url": f"http://127.0.0.1:{silent.getsockname()[1]}/a.png"}}]
    for seconds in ("0.2", "1.5"):
        os.environ["VLLM_IMAGE_FETCH_TIMEOUT"] = seconds
        llm, begin = open_tiny(str(folder), allowed_media_domains=["127.0.0.1"]), time.time()
        a = llm.chat([{"role": "user", "content": content}], {"max_tokens": 1})[0]
        check(f"VLLM_IMAGE_FETCH_TIMEOUT={seconds}", a.error_code == 400 and (f"within {seconds} s" in a.error_msg or "must be installed" in a.error_msg), a)
        check(f"VLLM_IMAGE_FETCH_TIMEOUT={seconds}: so long", time.time() - begin >= float(seconds) or "must be installed" in a.error_msg, time.time() - begin)
    check("nothing is fetched from others: a line", open_tiny(str(folder)).notes == ["VLLM_IMAGE_FETCH_TIMEOUT has no effect: nothing is fetched without --allowed-media-domains or decoded without --allow-ffmpeg"], open_tiny(str(folder)).notes)
    os.environ["VLLM_IMAGE_FETCH_TIMEOUT"] = "0"
    refused("VLLM_IMAGE_FETCH_TIMEOUT=0", "VLLM_IMAGE_FETCH_TIMEOUT", open_tiny, str(folder))
    del os.environ["VLLM_IMAGE_FETCH_TIMEOUT"]
    silent.close()


# ---- the walk

def known(program):
    """[{"name", "verdict", "takes", "why"}] of a program."""
    words = [program, "--help-all", "--json"]
    return json.loads(subprocess.run(words, capture_output=True, text=True, timeout=60).stdout)


def value_for(row):
    """A value that such a row takes."""
    takes = row["takes"]
    return None if takes == "switch" else "1" if takes in ("N", "X") else takes.split("|")[0].split("=")[0] if "|" in takes or "=" in takes or takes.isupper() and len(takes) < 5 else takes if takes != "value" and not takes.isupper() else "1"


def flag_of(name): return ("--" if len(name) > 2 else "-") + name


def lines_of(err, said): return [x for x in err.split("\n") if f"note: {said} has no effect: " in x]


def test_walk():
    """Every name without effect is told by every way in, each with its own line; every refused one is refused."""
    for program, command in ((SERVE, lambda words: [SERVE, "--model", "/nothing", *words]), (CLI, lambda words: [CLI, "info", "-m", TINY, *words])):
        rows, who = known(program), pathlib.Path(program).name
        check(f"{who}: many names, and no reason is empty", len(rows) > 150 and all(r["why"] for r in rows if r["verdict"] != "works"), len(rows))
        idle = [r for r in rows if r["verdict"] == "ignored"]
        flags = [r for r in idle if not r["name"].startswith("$")]
        words = [x for r in flags for x in ([flag_of(r["name"])] if value_for(r) is None else [flag_of(r["name"]), value_for(r)])]
        err = subprocess.run(command(words), capture_output=True, text=True, timeout=60).stderr
        for r in flags: check(f"{who} {flag_of(r['name'])}: one line", len(lines_of(err, flag_of(r["name"]))) == 1 and r["why"] in lines_of(err, flag_of(r["name"]))[0], err[-300:])
        variables = {r["name"][1:] if r["name"].startswith("$") else "LLM_ARG_" + r["name"].upper().replace("-", "_"): value_for(r) or "true" for r in idle if len(r["name"]) > 1}
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LLM_ARG_")}
        err = subprocess.run(command([]), capture_output=True, text=True, timeout=60, env={**clean, **variables}).stderr
        for name in variables: check(f"{who} {name}: one line", len(lines_of(err, name)) == 1, err[-300:])
        config = ROOM / "walk.json"
        config.write_text(json.dumps({r["name"]: value_for(r) or True for r in flags}))
        err = subprocess.run(command(["--config", str(config)]), capture_output=True, text=True, timeout=60).stderr
        for r in flags: check(f"{who} {r['name']} in a file: one line", len(lines_of(err, r["name"])) == 1, err[-300:])
        for r in rows:
            if r["verdict"] != "refused": continue
            p = subprocess.run(command([flag_of(r["name"]), "x"]), capture_output=True, text=True, timeout=60)
            check(f"{who} {flag_of(r['name'])}: refused", p.returncode in (1, 2) and flag_of(r["name"]) in p.stderr and "note:" not in p.stderr, p.stderr)
        for r in flags:
            if r["takes"] in ("value", "switch") or r["takes"] in ("N", "X") and False: continue
            p = subprocess.run(command([flag_of(r["name"]), "banana"]), capture_output=True, text=True, timeout=60)
            check(f"{who} {flag_of(r['name'])} banana: refused", p.returncode == 2 and "banana" in p.stderr, p.stderr)


def test_walk_offline():
    """llm_open knows every name of llm_serve: what works there is no unknown name here, what does not is told or refused."""
    for row in known(SERVE):
        name = row["name"]
        if name.startswith("$") or len(name) < 3 or row["verdict"] == "refused": continue
        value = True if row["takes"] == "switch" else value_for(row)
        try: llm = open_tiny(**{name.replace("-", "_"): value})
        except ValueError as e:
            check(f"llm_open, {name}: no unknown name", "unknown option" not in str(e), e)
            continue
        if row["verdict"] == "ignored": check(f"llm_open, {name}: told", sum(x.startswith(name.replace("-", "_") + " has no effect") for x in llm.notes) == 1, llm.notes)
    llm = open_tiny(port=8000, host="x", served_model_name="a", trust_remote_code=True, num_scheduler_steps=8, kv_cache_ratio=0.6)
    check("what belongs to a server is told", [x.split(" ")[0] for x in llm.notes] == ["port", "host", "served_model_name", "trust_remote_code", "num_scheduler_steps", "kv_cache_ratio"], llm.notes)
    check("the notes go to the log too", [line for _, line in llm.log if "has no effect" in line] == llm.notes, llm.log)
    refused("a name that nobody knows", ["max_modl_len", "max_model_len"], open_tiny, max_modl_len=5)
    cache = ROOM / "hub/models--org--name/snapshots/1"
    cache.mkdir(parents=True)
    (cache.parents[1] / "refs").mkdir()
    (cache.parents[1] / "refs/main").write_text("1")
    shutil.copytree(LLAMA, cache, dirs_exist_ok=True)
    check("a name of the hub, by download_dir", open_tiny("org/name", download_dir=str(ROOM / "hub"), max_model_len=64).generate([[5]], {"max_tokens": 1})[0].error_code == 0)
    shutil.copytree(checkpoint("gemma2"), cache.parent / "2", dirs_exist_ok=True)
    (cache.parents[1] / "refs/old").write_text("2\n")
    n = {x: open_tiny("org/name", download_dir=str(ROOM / "hub"), max_model_len=64, **({"revision": x} if x else {})).generate([[5, 6, 7]], dict(GREEDY, max_tokens=8))[0].outputs.token_ids for x in (None, "main", "1", "old", "2")}
    check("revision: a branch or a commit of it", n[None] == n["main"] == n["1"] != n["old"] == n["2"], n)
    refused("a revision that is not there", "org/name@new", open_tiny, "org/name", download_dir=str(ROOM / "hub"), revision="new")
    told = open_tiny(download_dir="/x", revision="main").notes
    check("of a path they are told", told == [f"{x} has no effect: the model is a path, not ORG/NAME in a cache" for x in ("download_dir", "revision")], told)
    libc = ctypes.CDLL(None)
    libc.setenv(b"HF_HUB_CACHE", str(ROOM / "hub").encode(), 1)
    check("a name of the hub, by the environment", open_tiny("org/name", max_model_len=64).generate([[5]], {"max_tokens": 1})[0].error_code == 0)
    libc.unsetenv(b"HF_HUB_CACHE")
    refused("a name that is not there", "org/other", open_tiny, "org/other", download_dir=str(ROOM / "hub"))


@proves("environment", "ASCEND_RT_VISIBLE_DEVICES", "VLLM_ENGINE_ITERATION_TIMEOUT_S", "EAGLE_USE_SAFE_AI_LAB_STYLE")
@proves("flags", "--speculative-model", "--num-speculative-tokens")
def test_rest():
    """What test_serve.py and the unit tests show (devices, the watchdog, heads), here that it is heard; drafts are counted."""
    for _ in range(5): # how many tokens are drafted hangs on what steps cost, which a step that had to wait for a processor tells wrong
        llm = {n: open_tiny(LLAMA, max_model_len=128, **({"speculative_model": LLAMA, "num_speculative_tokens": n} if n else {})) for n in (0, 2, 4)}
        out = {n: x.generate([[5, 6, 7]], dict(GREEDY, max_tokens=24))[0].outputs.token_ids for n, x in llm.items()}
        s = {n: stats(x) for n, x in llm.items()}
        if not out[0] == out[2] == out[4] or s[4].steps < s[2].steps < s[0].steps: break
    check("speculative_model, num_speculative_tokens: the same answer in fewer steps", out[0] == out[2] == out[4] and s[0].draft_tokens == 0 and s[2].draft_tokens > 0 and s[4].steps < s[2].steps < s[0].steps, [(x.steps, x.draft_tokens) for x in s.values()])
    check("an EAGLE variable without a head: a line", "EAGLE_USE_SAFE_AI_LAB_STYLE has no effect: there is no draft model" in subprocess.run(
        [CLI, "generate", "-m", TINY, "--token-ids", "[5]", "-n", "1"], capture_output=True, text=True, env=dict(os.environ, EAGLE_USE_SAFE_AI_LAB_STYLE="1")).stderr)
    for value, code in (("0", 2), ("x", 2)):
        p = subprocess.run([SERVE, "--model", "/nothing"], capture_output=True, text=True, env=dict(os.environ, VLLM_ENGINE_ITERATION_TIMEOUT_S=value))
        check(f"VLLM_ENGINE_ITERATION_TIMEOUT_S {value}", ("VLLM_ENGINE_ITERATION_TIMEOUT_S" in p.stderr) == (value == "x"), p.stderr)


@proves("converters", "--base-path", "--draft-path", "--base-weight-name", "--draft-weight-name")
def test_converters():
    help_text = subprocess.run([CLI, "convert-eagle", "--help"], capture_output=True, text=True).stdout
    for name in ("--base-path", "--draft-path", "--base-weight-name", "--draft-weight-name"): check(f"convert-eagle's help has {name}", name in help_text, help_text)
    p = subprocess.run([CLI, "convert-eagle", "--draft-path", LLAMA, "--base-path", LLAMA, "--draft-weight-name", "nothing.safetensors"], capture_output=True, text=True)
    check("--draft-weight-name: looked for; test_cli.py converts with all four", p.returncode == 1 and "nothing.safetensors" in p.stderr, p.stderr)
    p = subprocess.run([CLI, "quantize", "-i", "x", "-o", "y", "-quant_type", "awq"], capture_output=True, text=True)
    check("quantize: a sentence, or a result", p.returncode in (1, 2) and p.stderr.startswith("llm_cli: error: "), p.stderr)


def deviations(server, llm):
    """What README says of each row, shown: the server has a budget of 64 tokens a step, llm has every default."""
    def post(**body):
        status, answer = server.post("/v1/completions", {"temperature": 0, "max_tokens": 4, "ignore_eos": True, "prompt": [5, 6, 7], **body})
        return answer if status == 200 else status

    def crowd(n):
        """What many at once are told, by a server that computes one and lets n wait."""
        s, out = Server("--max-num-seqs", "1", "--max-queue", str(n), model=TINY, base=("--max-model-len", "600")), []
        ends = [threading.Thread(target=lambda: out.append(s.post("/v1/completions", {"prompt": [5], "max_tokens": 500, "ignore_eos": True})[0])) for _ in range(4)]
        for t in ends: t.start()
        for t in ends: t.join()
        s.stop()
        return set(out)

    def memory(**options): return stats(open_tiny(num_gpu_blocks=64, **options)).memory_bytes
    s, log, cpu = stats(llm), server.errors(), {"device": "cpu", "threads": 1}
    beams = {x: ["".join(c["text"] for c in post(use_beam_search=True, best_of=4, n=1, ignore_eos=False, max_tokens=30, length_penalty=x)["choices"])] for x in (0.1, 9.0)}
    return {
        "a request beyond --max-num-seqs is refused": crowd(100) == {200} and crowd(0) == {200, 429},
        "--max-num-seqs is 256, max_batch_size 128": "max_num_seqs 64" in log and s.max_num_seqs == 16,
        "--max-model-len must be smaller than the model's length": bool(offline.LLM(TINY, max_model_len=s.max_model_len, **cpu).handle),
        "--max-num-batched-tokens must be --max-model-len at least": post(prompt=IDS)["usage"]["prompt_tokens"] == len(IDS) > 64,
        "--enable-prefix-caching is off unless given": "prefix caching on" in log,
        "--block-size is 64, or should be 128": s.block_size == 32,
        "prefill_interval is 16": "new prompts join every N steps (1)" in subprocess.run([SERVE, "--help-all"], capture_output=True, text=True).stdout,
        "cache_max_entry_count is 0.5": s.total_blocks == stats(offline.LLM(TINY, kv_cache_memory_bytes=4 << 30, **cpu)).total_blocks,
        "--max-cpu-loras must equal --max-loras, at most 32": bool(open_tiny(enable_lora=True, max_loras=2, max_cpu_loras=33).handle),
        "without --host every address is served": "http://127.0.0.1:" in server.first,
        "model must be the served name": isinstance(post(model="gpt-4"), dict),
        "n above 1 is for sampling only": len({x["text"] for x in post(n=2)["choices"]}) == 1,
        "a beam search with n 1 fails": all(beams.values()),
        "best_of is greater than n": len(post(n=2, best_of=2)["choices"]) == 2,
        "logprobs is 5 at most": len(post(logprobs=20)["choices"][0]["logprobs"]["top_logprobs"][0]) >= 20 and post(logprobs=21) == 400,
        "length_penalty punishes long answers": len(beams[9.0][0]) >= len(beams[0.1][0]),
        "max_tokens counts the prompt": post(prompt=IDS)["usage"]["completion_tokens"] == 4,
        "top_k, top_p and temperature are 40, 0.8 and 0.8 in a pipeline": "sampling defaults: temperature 1, top_p 1, top_k" in log,
        "quant_policy is 4 for 8 bits": memory(quant_policy=4) == memory(quant_policy=8) > memory(kv_cache_dtype="int4"),
    }


def test_deviations():
    """README's table of what differs from the documents is what happens: a check a row, and no row without one."""
    text = pathlib.Path("README.md").read_text()
    text = text[text.index("## Where it differs"):]
    rows = [line.strip("| ").split(" | ")[0].replace("`", "") for line in text[:text.index("\n## ", 3)].splitlines() if line.startswith("| ")][2:]
    server = Server("--max-num-batched-tokens", "64", model=TINY, base=("--max-model-len", "600"))
    got = deviations(server, offline.LLM(TINY, device="cpu", threads=1))
    server.stop()
    check("README's rows are those that are shown", rows == list(got), set(rows) ^ set(got))
    for row, ok in got.items(): check(f"README: {row}", ok)


def test_documents_names():
    """Every name of the documents works and is proven here, is refused, or is told to have no meaning."""
    section = None
    for line in pathlib.Path("tests/data/documents/names.txt").read_text().splitlines():
        if line.startswith("["): section = line[1:line.index("]")]
        elif section and line: NAMES.setdefault(section, []).extend(line.split())
    verdicts = {r["name"]: r["verdict"] for r in known(SERVE)}
    in_cli = {r["name"] for r in known(CLI)}
    for section, names in NAMES.items():
        for name in names:
            bare = name.lstrip("-") if section == "flags" else "$" + name if section == "environment" else name.replace("_", "-")
            verdict = verdicts.get(bare) or verdicts.get(bare.lstrip("$"))
            if (section, name) in PROOFS: check(f"[{section}] {name}: said to work", section in ("fields", "parameters", "converters") or verdict == "works", verdict)
            elif section == "converters": check(f"[{section}] {name}", True)  # quantize: refused as a whole, or tested by its own script
            elif section == "fields" or section == "parameters": check(f"[{section}] {name}: proven", False, "no test of it")
            elif verdict == "works": check(f"[{section}] {name}: needs a GPU, or a proof", name in ("--gpu-memory-utilization", "--enforce-eager", "--max-seq-len-to-capture", "PTA_TORCHAIR_DECODE_GEAR_LIST"), "no test of it")
            else: check(f"[{section}] {name}: has a verdict", verdict in ("ignored", "refused"), verdict)
            if section in ("flags", "environment"): check(f"{name} is known to llm_cli", bare in in_cli, bare)
    gpu = ["--gpu-memory-utilization", "0.5", "--enforce-eager", "--max-seq-len-to-capture", "100", "--batch-invariant", "--swap-space", "1"]
    err = subprocess.run([CLI, "generate", "-m", TINY, "--device", "cpu", "--token-ids", "[5]", "-n", "1", *gpu], capture_output=True, text=True, env=dict(os.environ, PTA_TORCHAIR_DECODE_GEAR_LIST="2,4")).stderr
    for said in (*(x for x in gpu if x.startswith("--")), "PTA_TORCHAIR_DECODE_GEAR_LIST"): check(f"{said} on a CPU: a line", len(lines_of(err, said)) == 1, err)


def main():
    tests = {name: f for name, f in globals().items() if name.startswith("test_")}
    try:
        for name, f in tests.items():
            if sys.argv[1:] and name not in sys.argv[1:]: continue
            try: f()
            except Exception as e: check(f"{name}: ends", False, f"{type(e).__name__}: {e}")
    finally: shutil.rmtree(ROOM, ignore_errors=True)
    finish()


main()
