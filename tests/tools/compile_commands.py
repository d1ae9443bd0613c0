#!/usr/bin/env python3
"""Writes compile_commands.json, by which clangd and others know how each file is compiled, from what make says it would do.

    make -nB TARGETS... | compile_commands.py
"""
import json
import pathlib
import re
import shlex
import sys


def main():
    folder, rows = str(pathlib.Path.cwd()), {}
    for line in sys.stdin.read().replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True) if re.match(r"\S*(cc|gcc|clang|c\+\+|g\+\+)[\w.-]* .*\.(c|h|cpp|cu)( |$)", line) else []
        for word in words[1:]:
            if re.fullmatch(r"[\w./-]+\.(c|cpp|cu)", word): rows[word] = {"directory": folder, "file": word, "arguments": words}
    if not rows: sys.exit("compile_commands: make names no compiler")
    pathlib.Path("compile_commands.json").write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    print(f"compile_commands.json: {len(rows)} files")


main()
