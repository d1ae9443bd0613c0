#!/usr/bin/env python3
"""Adapters and hidden states against the real thing: adapters made with the `peft` package on tiny checkpoints, and embeddings beside those of
`transformers` (make test-peft, in an environment of its own under build/peft: torch is large).

For each family: logits equal to peft's to 2e-3, one rank and two; three adapters and the base in one batch equal to each alone, bit for bit; last
hidden states, of the last token and the mean, equal to transformers' to 1e-4. The largest differences are printed."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

sys.path.insert(0, os.path.dirname(__file__))
from serving import Server, check, checkpoint, finish, skip

CLI = os.environ.get("LLM_CLI", "./llm_cli")
TMP = tempfile.mkdtemp(prefix="llm_peft_")
IDS = [5, 17, 300, 44, 9, 101, 7, 256]
# Family: which matrices. "all-linear" is peft's word for every linear layer but the output.
FAMILIES = {"llama": "all-linear", "qwen2": "all-linear", "qwen3": "all-linear", "mistral": ["q_proj", "v_proj", "lm_head"], "gemma2": "all-linear", "gemma3_text": "all-linear", "phi3": "all-linear", "gpt2": ["c_attn", "c_proj", "c_fc"],
            "opt": "all-linear", "cohere": "all-linear", "granite": "all-linear", "starcoder2": "all-linear", "smollm3": "all-linear", "glm4": "all-linear", "ernie4_5": ["q_proj", "k_proj", "v_proj", "embed_tokens"],
            "mixtral": "all-linear", "qwen2_moe": "all-linear", "qwen3_moe": "all-linear", "glm4_moe": "all-linear", "ernie4_5_moe": "all-linear", "deepseek_v2": "all-linear", "deepseek_v3": "all-linear", "gpt_oss": ["q_proj", "o_proj"]}
# Parameters of modules, which are no layers of their own: experts of a layer in one tensor, and routers.
PARAMETERS = {"gpt_oss": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.router.weight"], "deepseek_v3": ["mlp.gate.weight"], "glm4_moe": ["mlp.gate.weight"]}


def load(name):
    """The checkpoint as transformers sees it, in float32; None: this version of transformers does not know it."""
    rope = json.load(open(checkpoint(name) / "config.json")).get("rope_parameters", {}) # where transformers 5 has what 4 looks for outside
    rope = {k: rope[k] for k in ("rope_theta", "partial_rotary_factor") if k in rope}
    try: return AutoModelForCausalLM.from_pretrained(checkpoint(name), dtype=torch.float32, local_files_only=True, attn_implementation="eager", **rope).eval()
    except (ValueError, KeyError, ImportError, OSError) as e:
        skip(name, f"transformers: {str(e)[:100]}")
        return None


def adapt(model, folder, targets, seed, **config):
    """A peft adapter of random factors on the model, saved to the folder. Returns peft's model."""
    torch.manual_seed(seed)
    m = get_peft_model(model, LoraConfig(**{"r": 4, "lora_alpha": 16, "task_type": "CAUSAL_LM", "target_modules": targets, "init_lora_weights": False, "lora_dropout": 0.0, **config})).eval()
    with torch.no_grad():
        for name, p in m.named_parameters():
            if "lora_" in name: p.copy_(torch.randn_like(p) * (0.3 if "_B" in name else 0.6 / p.shape[-1] ** 0.5))
    m.save_pretrained(folder)
    return m


def logprobs(model):
    with torch.no_grad(): return torch.log_softmax(model(torch.tensor([IDS])).logits[0, -1].double(), -1).tolist()


def ours(name, vocab, *extra):
    """Log-probabilities of all next tokens, or the error."""
    p = subprocess.run([CLI, "score", "-m", str(checkpoint(name)), "--dtype", "float32", "--token-ids", json.dumps(IDS), "--json", "--top-logprobs", str(vocab), *extra], capture_output=True, text=True, timeout=300)
    return dict(json.loads(p.stdout)["next"]) if not p.returncode else p.stderr


def distance(want, got): return float("inf") if isinstance(got, str) else max(abs(x - got[i]) for i, x in enumerate(want) if i in got)


def adapters():
    for i, (name, targets) in enumerate(FAMILIES.items()):
        if name not in only or not (model := load(name)): continue
        base, folder = logprobs(model), f"{TMP}/{name}"
        kinds = {"use_rslora": True} if i % 3 == 1 else {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 6}} if name == "llama" else {}
        if name in PARAMETERS: kinds = {**kinds, "target_parameters": PARAMETERS[name]}
        want = logprobs(adapt(model, folder, targets, i, **kinds))
        moved = max(abs(a - b) for a, b in zip(base, want))
        far = [distance(want, ours(name, len(want), "--lora", folder, *tp)) for tp in ((), ("-tp", "2"))]
        check(f"{name}: peft's logits", far[0] < 2e-3 and far[1] < 2e-3 and moved > 0.05, (far, moved, ours(name, len(want), "--lora", folder) if far[0] == float("inf") else ""))
        print(f"{name}: adapter moves log-probabilities by up to {moved:.2f}; ours from peft's {far[0]:.1e}, on two ranks {far[1]:.1e}", flush=True)


def another():
    """The matrix that peft saves beside an adapter of the output layer must be the model's."""
    model = load("mistral")
    with torch.no_grad(): model.lm_head.weight *= 1.1
    adapt(model, f"{TMP}/another", ["q_proj", "lm_head"], 6)
    got = ours("mistral", 1, "--lora", f"{TMP}/another")
    check("trained on another model", isinstance(got, str) and "base_layer" in got and "another model" in got, got)


def together():
    """Three adapters of peft and the base in one batch."""
    name, names = "llama", ["a", "b", "c"]
    for i, x in enumerate(names): adapt(load(name), f"{TMP}/{x}", ("all-linear", ["q_proj", "v_proj"], ["gate_proj", "up_proj", "down_proj"])[i], 70 + i, r=(4, 8, 2)[i])
    s = Server("--enable-lora", "--lora-modules", *(f"{x}={TMP}/{x}" for x in names), model=str(checkpoint(name)), base=("--log-level", "warn", "--max-num-seqs", "16"))

    def complete(model, i):
        status, _, body = s.request("POST", "/v1/completions", {"model": model, "prompt": [IDS[i], 3 + i, *IDS * 4], "max_tokens": 16, "temperature": 0, "logprobs": 5, "ignore_eos": True, "return_token_ids": True})
        return status, json.dumps(json.loads(body)["choices"][0])

    alone = {(m, i): complete(m, i) for m in [str(checkpoint(name)), *names] for i in range(4)}
    batch = {}
    threads = [threading.Thread(target=lambda k=k: batch.__setitem__(k, complete(*k))) for k in alone]
    for t in threads: t.start()
    for t in threads: t.join()
    check("three adapters and the base in one batch, bit for bit", batch == alone and len({x for x in alone.values()}) == 16 and all(x[0] == 200 for x in alone.values()))
    check("the server ends", s.stop() == 0)


def embeddings():
    for name in FAMILIES:
        if name not in only or not (model := load(name)): continue
        prompts = [IDS, IDS * 5, [7]]
        with torch.no_grad(): states = [model(torch.tensor([p]), output_hidden_states=True).hidden_states[-1][0].double() for p in prompts]
        worst = 0
        for pooling, pool in (("LAST", lambda x: x[-1]), ("MEAN", lambda x: x.mean(0))):
            s = Server("--dtype", "float32", "--pooler-config", json.dumps({"pooling_type": pooling, "normalize": False}), model=str(checkpoint(name)), base=("--log-level", "warn"))
            status, _, body = s.request("POST", "/v1/embeddings", {"input": prompts})
            got = [x["embedding"] for x in json.loads(body).get("data", [])]
            want = [pool(x).tolist() for x in states]
            worst = max([worst, *(abs(a - b) for x, y in zip(got, want) for a, b in zip(x, y))]) if status == 200 and [len(x) for x in got] == [len(x) for x in want] else float("inf")
            s.stop()
        check(f"{name}: transformers' last hidden states", worst < 1e-4, worst)
        print(f"{name}: last hidden states differ by at most {worst:.1e}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(2)
    only = set(sys.argv[2:]) or FAMILIES # test_peft.py adapters llama: one part, of one family
    try:
        for group in (adapters, another, together, embeddings):
            if len(sys.argv) < 2 or group.__name__ in sys.argv[1:]: group()
    finally: shutil.rmtree(TMP)
    finish()
