#!/usr/bin/env python3
"""Folders of llm_cli quantize beside those that the public tool of each method makes on the same calibration text: perplexity on the golden passages.

    quantised_tools.py DIR make NAME...     a folder DIR/NAME by a tool: gptqmodel, gptqmodel_act, gptqmodel_awq, llmcompressor, llmcompressor_awq, llmcompressor_smooth, llmcompressor_int8, autoawq; by us: ours_gptq,
                                            ours_gptq_act, ours_awq, ours_smooth, ours_int8; by rounding: nearest, nearest_symmetric
    quantised_tools.py DIR table [NAME...]  perplexities of all that is there, by llm_cli in float32

DIR/source is what all begin with, a folder of floats (llm_cli convert FILE.gguf DIR/source). Not part of make test: the packages are 5 GB, each tool takes minutes. env LLM_CLI; PYTHON of an environment with what is asked for:
gptqmodel 7.7.0; llmcompressor 0.14.0.1; autoawq 0.2.9 with transformers 4.51.3; torch for rounding. GROUP (64): columns that share a scale; SEQUENCES (16): of 512
tokens, to calibrate with. No GPU is used.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import time

os.environ["CUDA_VISIBLE_DEVICES"] = ""
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
CLI = os.environ.get("LLM_CLI", "./llm_cli")
GROUP = int(os.environ.get("GROUP", "64"))
DIR = os.path.abspath(sys.argv[1])
SOURCE = f"{DIR}/source"
SEQUENCES, LENGTH = int(os.environ.get("SEQUENCES", "16")), 512


def run(*args, text=None):
    p = subprocess.run([CLI, *args], input=text, capture_output=True, text=True)
    if p.returncode: sys.exit(f"{' '.join(args)}: {p.stderr.strip()}")
    return p.stdout


def tokens(text):
    return json.loads(run("tokenize", "-m", SOURCE, text=text))


def calibration():
    """A sequence each of licences, manuals, Python and Markdown, kept in DIR."""
    kept = f"{DIR}/calibration.json"
    if not os.path.exists(kept):
        import argparse, ast, heapq, pydoc_data.topics, textwrap
        read = lambda name: open(name, encoding="utf-8").read()
        texts = [read(f"/usr/share/common-licenses/{x}") for x in ("GPL-3", "Apache-2.0", "MPL-2.0", "Artistic")]
        texts += [pydoc_data.topics.topics[x] for x in ("formatstrings", "specialnames", "typesseq", "debugger")]
        texts += [read(x.__file__) for x in (argparse, ast, heapq, textwrap)]
        texts += [read(f"{ROOT}/{x}") for x in ("README.md", "src/README.md", "tests/README.md", "tests/data/README.md")]
        json.dump([tokens(x)[:LENGTH] for x in texts], open(kept, "w"))
    found = json.load(open(kept))
    assert len(found) == 16 and all(len(x) == LENGTH for x in found), [len(x) for x in found]
    return found[::16 // SEQUENCES]


def perplexity(folder):
    text = "".join(open(x, encoding="utf-8").read() for x in sorted(glob.glob(f"{ROOT}/build/data/golden/text/*.txt")))
    return json.loads(run("score", "-m", folder, "--dtype", "float32", "--token-ids", json.dumps(tokens(text)), "--json"))["perplexity"]


# ---- by the tools ----

def gptqmodel(out, method):
    import gptqmodel as g
    from gptqmodel.quantization.config import AWQConfig, FORMAT, GPTQConfig
    config = AWQConfig(bits=4, group_size=GROUP, format=FORMAT.GEMM) if method == "awq" else GPTQConfig(bits=4, group_size=GROUP, desc_act=method == "act", act_group_aware=method != "act")
    model = g.GPTQModel.load(SOURCE, config, device="cpu")
    model.quantize(calibration(), batch_size=1)
    model.save(out)


def llmcompressor(out, method):
    import torch
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
    from transformers import AutoModelForCausalLM
    four = lambda symmetric: {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": GROUP}}}
    recipe = {"gptq": lambda: [GPTQModifier(config_groups=four(True), ignore=["lm_head"])],
              "awq": lambda: [AWQModifier(duo_scaling=True), QuantizationModifier(config_groups=four(False), ignore=["lm_head"])],
              "smooth": lambda: [SmoothQuantModifier(smoothing_strength=0.8), QuantizationModifier(targets="Linear", scheme="W8A8", ignore=["lm_head"])],
              "int8": lambda: [QuantizationModifier(config_groups={"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}}}, ignore=["lm_head"])]}[method]()
    torch.Tensor.pin_memory = lambda x, *_: x # which its AWQ asks for, and which there is none of without a GPU
    model = AutoModelForCausalLM.from_pretrained(SOURCE, dtype=torch.float32)
    data = Dataset.from_dict({"input_ids": calibration(), "attention_mask": [[1] * LENGTH] * SEQUENCES})
    oneshot(model=model, dataset=data, recipe=recipe, max_seq_length=LENGTH, num_calibration_samples=SEQUENCES)
    model.save_pretrained(out, save_compressed=True)


def autoawq(out, method):
    import torch
    from transformers import AutoTokenizer
    from awq import AutoAWQForCausalLM
    torch.Tensor.cpu = lambda x: x.clone() # else, on a CPU, the weights that its search keeps to bring back are those that it changes
    model = AutoAWQForCausalLM.from_pretrained(SOURCE, device_map="cpu", torch_dtype=torch.float32)
    model.quantize(AutoTokenizer.from_pretrained(SOURCE), quant_config={"zero_point": True, "q_group_size": GROUP, "w_bit": 4, "version": "GEMM"}, calib_data=calibration(), max_calib_samples=SEQUENCES, max_calib_seq_len=LENGTH)
    model.save_quantized(out)


def nearest(out, method):
    """Each group's largest and smallest value on the grid, and nothing else."""
    import torch
    from safetensors.torch import load_file, save_file
    t = load_file(f"{SOURCE}/model.safetensors")
    for name, x in t.items():
        if not name.endswith("_proj.weight"): continue
        w = x.float().reshape(-1, GROUP)
        high, low = w.amax(1, True).clamp(min=0), w.amin(1, True).clamp(max=0)
        scale = ((high - low) / 15 if method == "zeros" else torch.maximum(high, -low) / 7.5).clamp(min=1e-8)
        zero = torch.round(-low / scale) if method == "zeros" else torch.full_like(scale, 8)
        t[name] = ((torch.clamp(torch.round(w / scale) + zero, 0, 15) - zero) * scale).reshape(x.shape).to(x.dtype).contiguous()
    os.makedirs(out)
    save_file(t, f"{out}/model.safetensors", metadata={"format": "pt"})


def ours(out, method, *more):
    ids = f"{out}.txt"
    open(ids, "w").write("\n".join(" ".join(map(str, x)) for x in calibration()))
    print(run("quantize", "-i", SOURCE, "-o", out, "-quant_type", method, "-t", "fp16", "-token", ids, "--json", *(("--group-size", str(GROUP)) if method in ("awq", "gptq") else ()), *more).strip())


MAKE = {"gptqmodel": (gptqmodel, "gptq"), "gptqmodel_act": (gptqmodel, "act"), "gptqmodel_awq": (gptqmodel, "awq"), "llmcompressor": (llmcompressor, "gptq"), "llmcompressor_awq": (llmcompressor, "awq"),
        "llmcompressor_smooth": (llmcompressor, "smooth"), "llmcompressor_int8": (llmcompressor, "int8"), "autoawq": (autoawq, "awq"), "nearest": (nearest, "zeros"), "nearest_symmetric": (nearest, "symmetric"),
        "ours_gptq": (ours, "gptq"), "ours_gptq_act": (ours, "gptq", "--desc-act"), "ours_awq": (ours, "awq"), "ours_smooth": (ours, "smooth_quant"), "ours_int8": (ours, "weight_only_int8")}


def make(names):
    for name in names:
        out, began = f"{DIR}/{name}", time.process_time()
        shutil.rmtree(out, ignore_errors=True)
        fn, *args = MAKE[name]
        fn(out, *args)
        for x in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            if not os.path.exists(f"{out}/{x}"): shutil.copy(f"{SOURCE}/{x}", out)
        used = time.process_time() - began
        print(f"{name}: {used + sum(os.times()[2:4]):.0f} s of processor time", flush=True)


def table(names):
    for name in ("source", *MAKE):
        if os.path.exists(f"{DIR}/{name}/config.json") and name in (names or (name,)): print(f"{name:22} {perplexity(f'{DIR}/{name}'):.3f}", flush=True)


if sys.argv[2] == "make": make(sys.argv[3:])
elif sys.argv[2] == "table": table(sys.argv[3:])
