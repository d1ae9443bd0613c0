"""Rows of expected results for the commands of llm_cli that answer line by line (--jsonl): one process for many rows."""
import json
import os
import shlex
import subprocess

CLI = shlex.split(os.environ.get("LLM_CLI", "./llm_cli"))
LIMIT_S = 120


class Rows:
    """Counts of rows, and of runs that ended badly; prints the first few differences of each file."""

    def __init__(self, name):
        self.name, self.equal, self.total, self.broken, self.shown = name, 0, 0, 0, 0

    def ask(self, label, args, values):
        """The answer to each value, None where there was none. Every second line is ASCII with escapes, the others are UTF-8."""
        lines = [json.dumps(value, ensure_ascii=i % 2 == 1) for i, value in enumerate(values)]
        wrong = ""
        try:
            p = subprocess.run([*CLI, *args], input="".join(x + "\n" for x in lines).encode(), capture_output=True, timeout=LIMIT_S)
            out = p.stdout.decode(errors="replace").removesuffix("\n").split("\n")
            if p.returncode: wrong = f"exit {p.returncode}: {p.stderr.decode(errors='replace').strip()[-200:]}"
        except (OSError, subprocess.TimeoutExpired) as error:
            out, wrong = [], str(error)[:200]
        answers = []
        for line in out:
            try: answers.append(json.loads(line))
            except ValueError:
                answers.append(None)
                wrong = wrong or f"not JSON: {line[:80]!r}"
        if len(answers) != len(values): wrong = wrong or f"{len(answers)} lines to {len(values)}"
        if wrong:
            self.broken += 1
            print(f"FAILED: {label}: {wrong}")
        return (answers + [None] * len(values))[:len(values)]

    def row(self, label, ok, explain):
        """`explain` is called for what differs."""
        self.total += 1
        self.equal += bool(ok)
        if ok: return
        self.shown += 1
        if self.shown <= 20: print(f"FAILED: {label}: {explain()}")

    def finish(self):
        """The last line, and the exit status: 0 if every row was equal and every run ended well."""
        print(f"{self.name}: {self.equal}/{self.total} equal" + (f", {self.broken} runs failed" if self.broken else ""))
        return 0 if self.total and self.equal == self.total and not self.broken else 1


def difference(got, want):
    """Two texts or lists of ids from a little before they part."""
    if not isinstance(got, type(want)): return f"want {ascii(want)[:120]}, got {ascii(got)[:120]}"
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    begin = max(0, at - (20 if isinstance(want, str) else 3))
    end = at + (40 if isinstance(want, str) else 8)
    return f"at {at} of {len(want)}: want {ascii(want[begin:end])}, got {ascii(got[begin:end])}"
