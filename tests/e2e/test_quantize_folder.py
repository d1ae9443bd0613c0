#!/usr/bin/env python3
"""llm_cli quantize -quant_type: tiny folders by every method, of a dense model, a mixture and latent attention: what they say afterwards, and what is left of one that was stopped, killed, or
for which there is no room.

    test_quantize_folder.py [FUNCTION...]      env LLM_CLI (default ./llm_cli)
"""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
import adapters
from serving import check, checkpoint, finish

CLI = os.environ.get("LLM_CLI", "./llm_cli")
TMP = tempfile.mkdtemp(prefix="llm_quantize_folder_")
IDS = [5, 17, 300, 44, 9, 101, 7, 256]
RNG = random.Random(4)
CALIBRATION = [[RNG.randrange(512) for _ in range(48)] for _ in range(12)]
FORMS = {"weight_only_int8": ("compressed-tensors", "weight_packed"), "smooth_quant": ("compressed-tensors", "weight_scale"), "awq": ("awq", "qweight"), "gptq": ("gptq", "g_idx")}


def run(*args, **more):
    return subprocess.run([CLI, "quantize", *args, "-t", "1"], capture_output=True, text=True, timeout=300, **more)


def logits(model):
    p = subprocess.run([CLI, "score", "-m", str(model), "--dtype", "float32", "--token-ids", json.dumps(IDS), "--json", "--top-logprobs", "512"], capture_output=True, text=True, timeout=120)
    return {i: x for i, x in json.loads(p.stdout)["next"]} if not p.returncode else p.stderr


def distance(a, b):
    if isinstance(a, str) or isinstance(b, str): return float("inf")
    return (sum((a[i] - b[i]) ** 2 for i in a) / len(a)) ** 0.5 / (max(a.values()) - min(a.values()))


def tensors(folder):
    with open(f"{folder}/model.safetensors", "rb") as f: return json.loads(f.read(int.from_bytes(f.read(8), "little")))


def ids_file(name, text):
    with open(f"{TMP}/{name}", "w") as f: f.write(text)
    return f"{TMP}/{name}"


def left(*keep):
    return sorted(x for x in os.listdir(TMP) if x not in keep)


def methods():
    """Every method, of every kind of model: near the source, by a config that its readers know, with the tokenizer beside it."""
    ids = ids_file("ids.txt", "\n".join(" ".join(map(str, s)) for s in CALIBRATION))
    for family in ("llama", "qwen3_moe", "deepseek_v2", "cohere"):
        source = checkpoint(family)
        want = logits(source)
        for method, (quant, ending) in FORMS.items():
            out = f"{TMP}/{family}_{method}"
            args = ("--bits", "8") if method == "gptq" else ()
            p = run("-i", str(source), "-o", out, "-quant_type", method, "-tp", "2" if family == "deepseek_v2" else "1", "-t", "fp16", "-token", ids, "--json", *args)
            if not check(f"{family}, {method}: made", p.returncode == 0, p.stderr): continue
            said, config = json.loads(p.stdout), json.load(open(f"{out}/config.json"))
            check(f"{family}, {method}: the report", said["method"] == method and said["n_matrices"] > 10 and said["perplexity_after"] > 0, said)
            check(f"{family}, {method}: its config", config["quantization_config"]["quant_method"] == quant and config.get("torch_dtype", config.get("dtype", "float16")) == "float16" and config["model_type"] == family, config)
            check(f"{family}, {method}: its files", {"tokenizer.json", "tokenizer_config.json", "generation_config.json"} <= set(os.listdir(out)), os.listdir(out))
            check(f"{family}, {method}: nothing of its making is left", not [x for x in os.listdir(out) if x.startswith("state")], os.listdir(out))
            there = tensors(out)
            check(f"{family}, {method}: its tensors", any(x.endswith(ending) for x in there) and there["model.norm.weight"]["dtype"] == "F16" and "model.layers.0.self_attn.o_proj.weight_scale" in there or method in ("awq", "gptq"), sorted(there)[:9])
            far = distance(want, logits(out))
            check(f"{family}, {method}: near the source", far < (0.3 if method == "awq" else 0.08), far) # random routers choose otherwise for little
            shutil.rmtree(out)


def indexers():
    """An indexer reads what attention's matrices read: where a norm gives factors to these, it gets them, too, and so chooses as it did."""
    source, out = str(checkpoint("deepseek_v32_topk")), f"{TMP}/indexer"
    p = run("-i", source, "-o", out, "-quant_type", "smooth_quant", "-t", "fp16", "-token", ids_file("ids.txt", "\n".join(" ".join(map(str, s)) for s in CALIBRATION)))
    if not check("an indexer: made", p.returncode == 0, p.stderr): return
    was, now = adapters.folder_tensors(source), adapters.folder_tensors(out)
    for norm, matrices in (("input_layernorm", ("wk", "weights_proj")), ("self_attn.q_a_layernorm", ("wq_b",))):
        for matrix in matrices:
            norms, tall = ([adapters.floats(*t[f"model.layers.1.{x}.weight"][::2]) for t in (was, now)] for x in (norm, f"self_attn.indexer.{matrix}"))
            products = [[w * n[i % len(n)] for i, w in enumerate(t)] for n, t in zip(norms, tall)]
            moved = max(abs(a / b - 1) for a, b in zip(*norms))
            far = max(abs(a - b) for a, b in zip(*products))
            check(f"an indexer: {matrix} beside {norm}", moved > 0.1 and far < 2e-3 * max(map(abs, products[0])), (moved, far))
    shutil.rmtree(out)


def again():
    """Killed at any moment, and by a disk that is full: nothing under the name, and the same command goes on to the same bytes."""
    source, ids = str(checkpoint("mixtral")), ids_file("ids.json", json.dumps(CALIBRATION))
    for method in ("weight_only_int8", "gptq"):
        args = ("-i", source, "-quant_type", method, "--tokenids_path", ids)
        check(f"{method}: in one go", run(*args, "-o", f"{TMP}/whole").returncode == 0)
        os.makedirs(f"{TMP}/many.part"), open(f"{TMP}/many.part/state.json", "w").write("{}"), open(f"{TMP}/neighbour", "w").close()
        whole = open(f"{TMP}/whole/model.safetensors", "rb").read()
        for size in (100, 5_000, 100_000, 150_000, 300_000):
            p = run(*args, "-o", f"{TMP}/many", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
            if p.returncode == 0: break
            check(f"{method}: a disk of {size} bytes", p.returncode == 1 and p.stderr.startswith("llm_cli: error: ") and "many.part" in p.stderr and p.stderr.count("\n") == 1 and not os.path.exists(f"{TMP}/many"), p.stderr)
        for after in (0.02, 0.05, 0.1, 0.2, 0.3):
            if os.path.exists(f"{TMP}/many"): break
            p = subprocess.Popen([CLI, "quantize", *args, "-o", f"{TMP}/many", "-t", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(after)
            p.send_signal(signal.SIGKILL if after != 0.1 else signal.SIGINT)
            p.communicate(timeout=60)
        said = "" if os.path.exists(f"{TMP}/many") else run(*args, "-o", f"{TMP}/many").stderr
        check(f"{method}: the same in the end", os.path.exists(f"{TMP}/many") and open(f"{TMP}/many/model.safetensors", "rb").read() == whole and not os.path.exists(f"{TMP}/many.part"), said)
        check(f"{method}: what stands beside it stays", os.path.exists(f"{TMP}/neighbour") and os.path.exists(ids))
        for x in ("whole", "many"): shutil.rmtree(f"{TMP}/{x}", ignore_errors=True)
        os.remove(f"{TMP}/neighbour")


def not_finite():
    """A source in which a value is no number, or infinite: named, or told by what it does; nothing has the name."""
    source, bad, out = str(checkpoint("llama")), f"{TMP}/source", f"{TMP}/x"
    ids, tensors = ids_file("ids.json", json.dumps(CALIBRATION[:4])), adapters.folder_tensors(source)
    shutil.copytree(source, bad)
    for name, words in (("model.layers.1.mlp.up_proj.weight", "tensor model.layers.1.mlp.up_proj.weight: element 20 is no finite number"), ("model.layers.0.input_layernorm.weight", "finite number"), ("model.embed_tokens.weight", "finite number")):
        kind, shape, data = tensors[name]
        for value in (b"\xc0\x7f", b"\x80\xff"): # bf16
            adapters.write_safetensors(f"{bad}/model.safetensors", {**tensors, name: (kind, shape, data[:40] + value + data[42:])})
            for method in FORMS:
                p = run("-i", bad, "-o", out, "-quant_type", method, "-token", ids)
                check(f"{method}: {name} has {value.hex()}", kind == "BF16" and p.returncode == 1 and words in p.stderr and p.stderr.startswith("llm_cli: error: ") and p.stderr.count("\n") == 1 and not os.path.exists(out), p.stderr)
                shutil.rmtree(f"{out}.part", ignore_errors=True)
    shutil.rmtree(bad)


def refused():
    """One sentence, a usage error where the command line is wrong; nothing is written."""
    source = str(checkpoint("llama"))
    os.mkdir(f"{TMP}/there"), os.mkdir(f"{TMP}/other.part")
    open(f"{TMP}/other.part/mine", "w").close()
    keep = ("there", "other.part", "bad.txt", "ids.txt", "ids.json", "text.txt")
    files = {"range": "1 2\n3 512\n", "words": "1 2 three", "empty": "", "json": "[[1, 2], 3]x"}
    ids_file("text.txt", "The sun rises in the east and sets in the west.")
    for name, args, code, words in (("no output", ("-i", source, "-quant_type", "awq"), 2, "-o DIR"), ("a method", ("-i", source, "-o", f"{TMP}/x", "-quant_type", "int4"), 2, "int4, one of weight_only_int8"),
                                    ("a type", ("-i", source, "-o", f"{TMP}/x", "-quant_type", "weight_only_int8", "-t", "fp8"), 2, "fp8"),
                                    ("alpha", ("-i", source, "-o", f"{TMP}/x", "-quant_type", "smooth_quant", "-sq", "1.5"), 2, "sq"), ("ranks", ("-i", source, "-o", f"{TMP}/x", "-quant_type", "weight_only_int8", "-tp", "5"), 2, "divisible"),
                                    ("there already", ("-i", source, "-o", f"{TMP}/there", "-quant_type", "weight_only_int8"), 2, "there already"), ("not ours", ("-i", source, "-o", f"{TMP}/other", "-quant_type", "weight_only_int8"), 1, "other.part"),
                                    ("no such model", ("-i", f"{TMP}/none", "-o", f"{TMP}/x", "-quant_type", "awq"), 1, "none"), ("a GGUF's option", ("-i", source, "-o", f"{TMP}/x", "-quant_type", "awq", "--type", "q8_0"), 2, "GGUF"),
                                    ("an option of folders", ("-i", source, "-o", f"{TMP}/x", "-sq", "0.5"), 2, "quant_type"), ("Conv1D", ("-i", str(checkpoint("gpt2")), "-o", f"{TMP}/x", "-quant_type", "weight_only_int8"), 1, "(in, out)"),
                                    ("nowhere", ("-i", source, "-o", f"{TMP}/none/x", "-quant_type", "weight_only_int8"), 1, "none/x.part"),
                                    *((f"ids: {k}", ("-i", source, "-o", f"{TMP}/x", "-quant_type", "awq", "-token", v), 2, "bad.txt") for k, v in files.items())):
        if name.startswith("ids: "): args = (*args[:-1], ids_file("bad.txt", args[-1]))
        p = run(*args)
        check(f"refused: {name}", p.returncode == code and words in p.stderr and p.stderr.startswith("llm_cli: error: ") and p.stderr.count("\n") == 1 and left(*keep) == [], (p.returncode, p.stderr, left(*keep)))
    p = run("-i", source, "-o", f"{TMP}/text", "-quant_type", "awq", "-f", f"{TMP}/text.txt", "--multi-query-mode")
    check("a text, and what has no effect", p.returncode == 0 and "multi-query-mode has no effect" in p.stderr and "perplexity" in p.stderr, p.stderr)
    for method in ("smooth_quant", "gptq"): # AIAK's own command: -token is optional there
        p = run("-i", source, "-o", f"{TMP}/own", "-quant_type", method, "-tp", "1", "-t", "fp16")
        check(f"{method} without a calibration of one's own", p.returncode == 0 and p.stderr.startswith("llm_cli: note: calibrating with a built-in text") and "perplexity" in p.stderr, p.stderr)
        shutil.rmtree(f"{TMP}/own", ignore_errors=True)
    p = run("-i", f"{TMP}/text", "-o", f"{TMP}/twice", "-quant_type", "weight_only_int8")
    check("quantised already", p.returncode == 1 and "quantised already (awq)" in p.stderr, p.stderr)
    p = subprocess.run([CLI, "quantize", "--help"], capture_output=True, text=True)
    check("its help", p.returncode == 0 and "quant-type" in p.stdout and "-sq" in p.stdout, p.stdout)


try:
    for part in sys.argv[1:] or ("methods", "indexers", "again", "not_finite", "refused"): globals()[part]()
finally: shutil.rmtree(TMP, ignore_errors=True)
finish()
