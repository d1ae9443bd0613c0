"""What llm_cli answers in JSON, and distances between answers: of the tests that compare with other programs' results."""
import json
import math
import os
import subprocess

CLI = os.path.abspath(os.environ.get("LLM_CLI", "./llm_cli"))  # some run it in another folder


def ask(*args, stdin=None):
    """What llm_cli answers in JSON."""
    p = subprocess.run([CLI, *args, "--json"], input=stdin, capture_output=True, text=True, timeout=300)
    if p.returncode: raise RuntimeError(f"exit {p.returncode}: {(p.stderr.strip().splitlines() or ['no message'])[-1][:300]}")
    return json.loads(p.stdout)


def log_softmax(logits):
    top = max(logits)
    norm = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - norm for x in logits]
