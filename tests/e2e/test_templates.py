#!/usr/bin/env python3
"""`llm_cli render` beside Jinja: every template of tests/data/chat_templates with every context, the text or the refusal.

usage: tests/e2e/test_templates.py [FOLDER]     FOLDER has templates/, contexts/ and expected.json ("template|context" to {"text"} or {"raises"})
"""
import json
import pathlib
import sys

from rows import Rows, difference

NOW = "2024-07-26 00:00:00"  # the time at which the expected texts were made


def same(got, want):
    """A refusal may use other words than Jinja's."""
    if not isinstance(got, dict): return False
    if "raises" in want: return "error" in got and "text" not in got
    return "error" not in got and got.get("text") == want["text"]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/data/chat_templates")
    rows, cases = Rows("templates"), {}
    for key, want in json.loads((folder / "expected.json").read_text()).items():
        template, context = key.rsplit("|", 1)
        cases.setdefault(template, []).append((context, want))
    for template, wanted in cases.items():
        values = [{"now": NOW, **json.loads((folder / "contexts" / f"{context}.json").read_text())} for context, _ in wanted]
        answers = rows.ask(template, ["render", "--chat-template", str(folder / "templates" / f"{template}.jinja"), "--jsonl"], values)
        for (context, want), got in zip(wanted, answers):
            explain = lambda: f"must be refused: {want['raises'][:80]}" if "raises" in want else difference((got or {}).get("text"), want["text"])
            rows.row(f"{template}, {context}", same(got, want), explain)
    for name, template, context in (("phi-3", "microsoft-Phi-3.5-mini-instruct", "simple"), ("phi-3", "microsoft-Phi-3.5-mini-instruct", "system"), ("chatml", "Qwen-Qwen2.5-7B-Instruct", "system")):
        value = json.loads((folder / "contexts" / f"{context}.json").read_text())  # built-in ones, as the models' own are
        built, own = (rows.ask(x, ["render", "--chat-template", x, "--jsonl"], [value])[0] for x in (name, str(folder / "templates" / f"{template}.jinja")))
        rows.row(f"built in: {name}, {context}", built == own and "text" in (built or {}), lambda: f"{built} {own}")
    return rows.finish()


sys.exit(main())
