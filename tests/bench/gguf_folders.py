#!/usr/bin/env python3
"""GGUF files as folders (llm_cli convert IN.gguf DIR), read by transformers: distance of its log-probabilities from those of llm.h, as a share of their range, and whether its tokenizer cuts a text alike.

    gguf_folders.py FILE.gguf...      env LLM_CLI; PYTHON of an environment with torch and transformers

Not part of make test: the packages are 2 GB. tests/e2e/test_quantize.py compares folder -> GGUF -> folder without them.
"""
import json
import os
import subprocess
import sys
import tempfile

CLI = os.environ.get("LLM_CLI", "./llm_cli")
TEXT = "Hello, world! It's 1234567 o'clock;  we'll see\tthere.\n\n  for (int i=0;i<10;++i) {\r\n x[i] = 3.14e-5;\n}\n \u4f60\u597d\uff0c\u4e16\u754c 123\u5e74 \U0001f600 na\u00efve \u041f\u0440\u0438\u0432\u0435\u0442 snake_case"


def run(*args, **more):
    p = subprocess.run([CLI, *args], capture_output=True, text=True, **more)
    if p.returncode: raise RuntimeError(p.stderr.strip())
    return p.stdout


def compare(file, folder):
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM
    run("convert", file, folder)
    words = Tokenizer.from_file(f"{folder}/tokenizer.json")
    theirs, ours = words.encode(TEXT).ids, json.loads(run("tokenize", "-m", file, "--add-special", input=TEXT))
    vocab = json.load(open(f"{folder}/config.json"))["vocab_size"]
    ids = [3 + i * 7 % 47 for i in range(20)]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad(): want = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].float(), -1)
    got = dict(json.loads(run("score", "-m", file, "--dtype", "float32", "--token-ids", json.dumps(ids), "--json", "--top-logprobs", str(vocab)))["next"])
    far = max(abs(got[i] - float(want[i])) for i in got) / (float(want.max()) - float(want.min()))
    return f"{far:.7f} of the range; {'the same' if theirs == ours else 'OTHER'} ids of a text" + ("" if words.decode(theirs) == TEXT else "; decoded otherwise")


for file in sys.argv[1:]:
    with tempfile.TemporaryDirectory() as folder:
        try: print(f"{os.path.basename(file)}: {compare(file, folder + '/made')}", flush=True)
        except Exception as e: print(f"{os.path.basename(file)}: {type(e).__name__}: {str(e)[:300]}", flush=True)
