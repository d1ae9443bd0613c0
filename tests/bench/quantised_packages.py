#!/usr/bin/env python3
"""Folders that llm_cli quantize writes, read by the packages that own their formats: transformers with compressed-tensors, GPTQModel for GPTQ and AWQ, and each matrix of these by their published decoding.

    quantised_packages.py FOLDER...      env LLM_CLI; PYTHON of an environment with torch, transformers, compressed-tensors, gptqmodel; what is not there is skipped

Not part of make test: the packages are 5 GB. Prints for each folder the distance of its logits from those of transformers in float32 and of GPTQModel in float16, as shares of their range. No GPU is used.
"""
import json
import os
import subprocess
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2") # what it asks for itself, and takes for an error where there are two processors
CLI = os.environ.get("LLM_CLI", "./llm_cli")
IDS = [5, 17, 300, 44, 9, 101, 7, 256]


def ours(folder, vocab):
    p = subprocess.run([CLI, "score", "-m", folder, "--dtype", "float32", "--token-ids", json.dumps(IDS), "--json", "--top-logprobs", str(vocab)], capture_output=True, text=True)
    if p.returncode: sys.exit(p.stderr)
    return dict(json.loads(p.stdout)["next"])


def unpacked(folder, config):
    """(name, matrix) of AWQ and GPTQ as their packages' kernels decode them."""
    import torch
    from safetensors.torch import load_file
    t = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"): t.update(load_file(f"{folder}/{name}"))
    awq, bits, out = config["quant_method"] == "awq", config["bits"], {}
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    nibbles = lambda w: ((w.unsqueeze(-1) >> (4 * torch.arange(8))) & 15).reshape(*w.shape[:-1], -1, 8)
    for name, x in t.items():
        if name.endswith((".qzeros", ".scales", ".g_idx")): continue
        if not name.endswith(".qweight"):
            out[name] = x.float()
            continue
        stem = name[:-8]
        scales, zeros = t[stem + ".scales"].float(), t[stem + ".qzeros"]
        if awq:
            q, z = (nibbles(w)[..., order].reshape(w.shape[0], -1) for w in (x, zeros))
            group = torch.arange(q.shape[0]) // (q.shape[0] // scales.shape[0])
        else:
            if bits not in (2, 4, 8): return None
            each, mask = 32 // bits, (1 << bits) - 1
            q = ((x.unsqueeze(1) >> (bits * torch.arange(each)).view(1, -1, 1)) & mask).reshape(-1, x.shape[1])
            z = ((zeros.unsqueeze(-1) >> (bits * torch.arange(each))) & mask).reshape(zeros.shape[0], -1) + 1
            group = t[stem + ".g_idx"].long()
        out[stem + ".weight"] = ((q - z[group]) * scales[group]).T.contiguous()
    return out


def theirs(folder):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    config = json.load(open(f"{folder}/config.json"))["quantization_config"]
    if config["quant_method"] == "compressed-tensors":
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    else:
        weights = unpacked(folder, config)
        if weights is None: return None
        plain = AutoConfig.from_pretrained(folder)
        del plain.quantization_config
        model = AutoModelForCausalLM.from_config(plain, dtype=torch.float32)
        missing = model.load_state_dict(weights, strict=False).missing_keys
        if [x for x in missing if x != "lm_head.weight"]: return None
        model.tie_weights()
    with torch.no_grad(): return torch.log_softmax(model(torch.tensor([IDS])).logits[0, -1].float(), -1)


def opened(folder):
    """Logits of GPTQModel's own loading; None of what it does not open."""
    import torch
    config = json.load(open(f"{folder}/config.json"))["quantization_config"]
    if config["quant_method"] not in ("awq", "gptq"): return None
    from gptqmodel import BACKEND, GPTQModel
    model = GPTQModel.load(folder, device="cpu", dtype=torch.float16, backend=BACKEND.AWQ_TORCH if config["quant_method"] == "awq" else BACKEND.GPTQ_TORCH)
    with torch.no_grad(): return torch.log_softmax(model.model(torch.tensor([IDS])).logits[0, -1].float(), -1)


def distance(got, want):
    return max(abs(got[i] - float(want[i])) for i in got) / (float(want.max()) - float(want.min()))


for folder in sys.argv[1:]:
    try: want = theirs(folder)
    except ImportError as e:
        print(f"{folder}: skipped: {e}")
        continue
    if want is None:
        print(f"{folder}: skipped: 3 bits, or experts that transformers keeps in one tensor")
        continue
    got = ours(folder, len(want))
    said = f"{folder}: {distance(got, want):.6f} of the range"
    try:
        by_package = opened(folder)
        if by_package is not None: said += f"; opened by GPTQModel {distance(got, by_package):.6f}"
    except ImportError as e: said += f"; not opened: {e}"
    print(said, flush=True)
