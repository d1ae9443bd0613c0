#!/usr/bin/env python3
"""Sets the sources: C, C++ and CUDA by clang-format 14, all other text without blanks at the ends of lines.

    format.py          writes
    format.py --check  names what it would write; the last line is "N passed, N failed[, N skipped]"

Other versions of clang-format set some lines otherwise, so they are refused. Tables that are set by hand stand between the comments
"clang-format off" and "clang-format on". llm.h is made from src/ and is not touched.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

CLANG_FORMAT = os.environ.get("CLANG_FORMAT") or "clang-format"
VERSION = "14"
C, TEXT = {".c", ".h", ".cu", ".cpp"}, {".py", ".sh", ".md", ".html", ".css", ".js", ".in", ".yml"}
DATA = pathlib.Path("tests/data") # inputs of tests stay as they are


def sources():
    """All text of the project but llm.h and what is no source: (C files, others)."""
    top = [p for p in pathlib.Path().iterdir() if p.is_file() and p.name != "llm.h"]
    below = [p for folder in ("src", "tests", "models", ".github") for p in pathlib.Path(folder).rglob("*") if DATA not in p.parents]
    files = sorted(p for p in top + below if p.is_file())
    text = lambda p: p.suffix in TEXT or p.name in ("Makefile", "Dockerfile", ".clang-format", ".editorconfig", ".gitattributes", ".gitignore")
    return [p for p in files if p.suffix in C], [p for p in files if text(p)]


def version():
    if not shutil.which(CLANG_FORMAT): return None
    said = subprocess.run([CLANG_FORMAT, "--version"], capture_output=True, text=True).stdout
    m = re.search(r"version (\d+)", said)
    return m[1] if m else said.strip()


def trim(path):
    """What the text of a file should be."""
    return re.sub(r"[ \t]+$", "", path.read_text(), flags=re.M).rstrip("\n") + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]): sys.exit(__doc__)
    code, other = sources()
    have, check = version(), bool(sys.argv[1:])
    wrong = [path for path in other if path.read_text() != trim(path)]
    if not check:
        for path in wrong: path.write_text(trim(path))
        if have != VERSION: sys.exit(f"format: clang-format {VERSION} is needed, {have or 'none'} is there: run make setup, or name it in CLANG_FORMAT")
        sys.exit(subprocess.run([CLANG_FORMAT, "-i", *map(str, code)]).returncode)
    skipped = have != VERSION
    if skipped: print(f"skipped: the setting of C: clang-format {VERSION} is needed, {have or 'none'} is there")
    else:
        said = subprocess.run([CLANG_FORMAT, "--dry-run", "--Werror", *map(str, code)], capture_output=True, text=True).stderr
        wrong += [path for path in code if re.search(rf"^{re.escape(str(path))}:", said, re.M)]
    for path in wrong: print(f"FAILED: {path} is not as make format sets it")
    done = len(other) + (0 if skipped else len(code))
    print(f"{done - len(wrong)} passed, {len(wrong)} failed, {int(skipped)} skipped")
    sys.exit(1 if wrong else 0)


main()
