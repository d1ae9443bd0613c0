#!/usr/bin/env python3
"""Is what the documents name there? Reads every Markdown file but those of tests/data and the table of measurements, the Dockerfile and the workflow.

- make targets stand in the Makefile;
- files and folders are tracked (what is built, and models that are fetched, are not asked for);
- links that point into the tree do;
- options of llm_cli and llm_serve are listed by `--help-all` or are other names of listed ones; options of scripts occur in the script.
Run it when the programs are built. Prints "N passed, N failed, 0 skipped".
"""
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

DONE = {"passed": 0, "failed": 0}
ROOTS = ("src", "tests", "models", ".github", ".ci")
SOURCES = ["src/api/options.h", "llm_cli.c", "llm_serve.c", "src/serve/options.c"]


def check(name, ok, why=""):
    DONE["passed" if ok else "failed"] += 1
    if not ok: print(f"FAILED: {name}: {why}")


def tracked():
    """Files of the tree and their folders."""
    if os.path.exists(".git"): files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True).stdout.splitlines()
    else: files = [str(p) for p in pathlib.Path().rglob("*") if p.is_file()]
    return set(files) | {str(parent) for f in files for parent in pathlib.Path(f).parents}


def documents(tree):
    left_out = lambda path: path.startswith("tests/data/") or path.endswith("RESULTS.md")
    return [p for p in sorted(tree) if p.endswith((".md", "ci.yml")) and not left_out(p)] + ["Dockerfile"]


def code(path, text):
    """What stands as code: lines of blocks, spans between backquotes, whole files that are no Markdown."""
    if not path.endswith(".md"): return text.splitlines()
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    rest = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.M | re.S)
    return [line for b in blocks for line in b.replace("\\\n", "").splitlines()] + [" ".join(x.split()) for x in re.findall(r"`([^`]+)`", rest)]


def built(program):
    """That of `make` or that of `make check`, whichever is newer."""
    there = [x for x in (pathlib.Path(program).absolute(), pathlib.Path("build/dev", program).absolute()) if x.exists()]
    return max(there, key=lambda x: x.stat().st_mtime, default=program)


def options():
    """Every name of an option of the programs: those in the help, and the names that stand beside one of these in a row."""
    said = "".join(subprocess.run([built(p), "--help-all"], capture_output=True, text=True).stdout for p in ("llm_cli", "llm_serve"))
    names = set(re.findall(r"(?<![\w-])--?([a-z][a-z0-9-]*)", said)) | {"help", "help-all", "version"}
    for path in SOURCES:
        for row in re.findall(r'"([\w$|-]+\|[\w$|-]+)"', pathlib.Path(path).read_text()):
            words = [x.lstrip("-") for x in row.split("|")]
            if names & set(words): names |= set(words)
    return names | {"no-" + n for n in names}


def targets(path, lines, known):
    for line in lines:
        for m in re.finditer(r"(?:^|[;&|(] *|run: |RUN )make((?: +[\w.=/-]+)*)", line):
            for word in m[1].split():
                if "=" in word or word.startswith("-"): continue
                check(f"{path}: make {word}", word in known, "the Makefile has no such target")


def files(path, lines, tree):
    """Paths from the root or from the document's folder; names of files of the root, or of any folder where Markdown names them alone. NAME,
    FOLDER and the like stand for any name."""
    beside = os.path.dirname(path)
    for line in lines:
        for word in re.findall(r"(?<![\w/.~$:%@-])(?:\./)?([\w.][\w./*-]*)", line):
            word = word.rstrip("./") if not word.endswith("*") else word
            first = word.split("/")[0]
            alone = re.fullmatch(r"llm\w*\.(?:c|h|cu)|Makefile|Dockerfile|LICENSE|[A-Z]+\.md", word)
            if not alone and not ("/" in word and (first in ROOTS or os.path.join(beside, first) in tree)): continue
            if word.endswith((".gguf", ".safetensors")): continue
            pattern = word if alone else re.sub(r"NAME|FOLDER|KIND|GROUP|PART", "*", word)
            places = (pattern, os.path.join(beside, pattern), "*/" + pattern if alone else pattern)
            check(f"{path}: {word}", any(fnmatch.filter(tree, x) for x in places), "no such file")


def links(path, text, tree):
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if re.match(r"\w+:", target): continue
        check(f"{path}: link to {target}", os.path.normpath(os.path.join(os.path.dirname(path), target)) in tree, "no such file")


def flags(path, lines, known):
    program = re.compile(r"(?:^|[ /;&|(])(?:\./)?(llm_cli|llm_serve)\b(.*)")
    script = re.compile(r"(\S+\.(?:py|sh))\b(.*)")
    for line in lines:
        line = line.split(" # ")[0]
        said, other = program.search(line), script.search(line)
        if other and os.path.exists(other[1]):
            text = pathlib.Path(other[1]).read_text()
            for name in re.findall(r"(?<![\w-])(--[a-z][\w-]*)", other[2]): check(f"{path}: {other[1]} {name}", name in text, "the script has no such option")
        elif said or line.startswith("-"):
            for name in re.findall(r"(?<![\w-])--([a-z][\w-]*)", said[2] if said else line): check(f"{path}: --{name}", name in known, "no program lists it")


def main():
    if sys.argv[1:]: sys.exit(__doc__)
    tree, known = tracked(), options()
    rules = pathlib.Path("Makefile").read_text()
    rules = "\n".join(rules.replace("$(1)", config) for config in re.search(r"^CONFIGS = (.*)", rules, re.M)[1].split())
    make = set(re.findall(r"^([\w./-]+(?: [\w./-]+)*):(?!=)", rules, re.M))
    make = {x for row in make for x in row.split()}
    check("the programs list their options", {"temperature", "temp", "drain", "json-schema"} <= known, sorted(known)[:20])
    for path in documents(tree):
        text = pathlib.Path(path).read_text()
        lines = code(path, text)
        targets(path, lines, make)
        files(path, lines, tree)
        if path.endswith(".md"):
            links(path, text, tree)
            flags(path, lines, known)
    print(f"{DONE['passed']} passed, {DONE['failed']} failed, 0 skipped")
    sys.exit(1 if DONE["failed"] else 0)


main()
