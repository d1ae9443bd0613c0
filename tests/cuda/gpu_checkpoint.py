#!/usr/bin/env python3
"""One tiny checkpoint on a device against the results beside it: gpu_checkpoint.py FOLDER [llm_cli options]. Needs nothing but llm_cli."""
import json
import math
import pathlib
import subprocess
import sys


def main():
    folder, extra = pathlib.Path(sys.argv[1]), sys.argv[2:]
    want = json.loads((folder / "expected.json").read_text())
    worst = 0.0
    for prompt in want["prompts"]:
        top = max(prompt["logits_last"])
        norm = top + math.log(sum(math.exp(v - top) for v in prompt["logits_last"]))
        right = [v - norm for v in prompt["logits_last"]]
        p = subprocess.run(["./llm_cli", "score", "-m", str(folder), "--dtype", "float32", "--token-ids", json.dumps(prompt["token_ids"]), "--json", "--top-logprobs", str(len(right)), *extra],
                           capture_output=True, text=True, timeout=60)
        if p.returncode: sys.exit(f"{folder.name}: failed: {(p.stderr.strip().splitlines() or ['?'])[-1]}")
        got = {int(i): v for i, v in json.loads(p.stdout)["next"]}
        worst = max(worst, max(abs(got[i] - v) for i, v in enumerate(right)) / (max(right) - min(right)))
    print(f"{folder.name}: {'equal' if worst < 2e-3 else 'DIFFERS'}, worst relative distance {worst:.1e}")
    sys.exit(worst >= 2e-3)


main()
