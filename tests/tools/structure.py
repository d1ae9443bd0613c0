#!/usr/bin/env python3
"""Is src/ built as src/README.md says?

    structure.py          checks; the last line is "N passed, N failed, 0 skipped"
    structure.py --fix    writes the include lines anew first

- llm.h is what src/ gives;
- folders include only what stands below them (NEEDS), files include exactly the headers whose names they use, and call nothing that is
  static in another file;
- what a header offers is used by another file, has a comment, and is defined;
- files, functions and lines are no longer than a reader can hold (LONGEST); the system is asked for something in few files (SYSTEM);
- the API in llm.h begins with the easy level and ends with the backend seam;
- tags (>>name) that comments name are there;
- a unit test names a function of every part (`make coverage` says how many).
"""
import pathlib
import re
import statistics
import subprocess
import sys

import coverage
import csource

SRC = pathlib.Path("src")
# What a folder may include besides itself and api/: an arrow only goes down.
NEEDS = {
    "api": [], "base": [], "text": ["base"], "tokenizer": ["base", "text"], "chat": ["base", "text", "tokenizer"], "cpu": ["base"],
    "model": ["base", "tokenizer", "chat", "cpu/dtypes", "cpu/grids", "cpu/quantise", "cpu/plain_attention"], "vision": ["base", "tokenizer", "cpu/dtypes", "model"],
    "grammar": ["base", "text", "tokenizer"], "engine": ["base", "tokenizer", "cpu", "model", "vision", "grammar"],
    "quant": ["base", "tokenizer", "cpu", "model", "engine"],
    "serve": ["base", "text", "tokenizer", "chat", "cpu", "model", "vision", "grammar", "engine"],
}
LONGEST = {"file": 1500, "median file": 400, "function": 60, "kernel": 90, "line": 140}
# Functions that are longer: name -> (lines, why).
LONG_FUNCTIONS = {}
PROGRAMS = ["llm_cli.c", "llm_serve.c"]
# What the system is asked for, and where that may stand.
SYSTEM = {
    "base/platform.c base/alloc.c base/files.c base/child.c base/threads.c":
        "clock_gettime gettimeofday getentropy syscall sysconf open read lseek fstat stat lstat access readlink mmap munmap madvise dlopen dlsym"
        " dlclose opendir readdir scandir mkdir pthread_create pthread_join sched_yield nanosleep usleep fork execve getpid",
    "base/number.c": "strtod strtof uselocale newlocale",
}
# The clock of the wall is for time stamps: it jumps, and what waits or ends by it would wait for ever or end at once.
WALL_CLOCK = re.compile(r"\b(?:CLOCK_REALTIME\w*|gettimeofday|timespec_get|llm__wall_clock|(?<!\.)(?<!->)time(?= ?\((?:NULL|0|&\w+)\)))\b|\bftime\b")
STAMPS = {"base/platform.h": 1, "base/platform.c": 3, "serve/openai_parts.c": 1, "serve/openai_body.c": 1, "serve/ollama.c": 2, "engine/request.c": 1, "chat/functions.c": 1,
          "llm_serve.c": 3, "llm_cli.c": 0, "llm_cuda.cu": 0}
DONE = {"passed": 0, "failed": 0}


def check(name, ok, why=""):
    DONE["passed" if ok else "failed"] += 1
    if not ok: print(f"FAILED: {name}: {why[:600]}")


class File:
    def __init__(self, path):
        self.path, self.text = path, path.read_text()
        self.name = str(path.relative_to(SRC)) # layer/name.h
        self.layer = self.name.split("/")[0]
        self.includes = re.findall(r'^#include "([a-z]+/\w+\.h)"', self.text, re.M)
        self.items = csource.items(self.text)
        self.words = csource.words(self.text)
        self.macros = {n: csource.words(i.text) for i in self.items if i.kind == "directive" for n in i.names}
        # What the file needs declared: not what occurs only as `struct llm__x`, nor in a header's macros, which their users need.
        text = "\n".join(i.text for i in self.items if not (i.kind == "directive" and self.name.endswith(".h")) or i.text.startswith("#if"))
        self.bare = csource.words(re.sub(r"\bstruct\s+llm__\w+", " ", text))

    def declares(self):
        """Names of this header; `struct x;` only announces one."""
        forward = re.compile(r"struct \w+;")
        return {n for item in self.items if not forward.match(item.text) for n in item.names if n.lower().startswith("llm")}


def read():
    return {f.name: f for f in (File(p) for p in sorted(SRC.glob("*/*.[ch]")) if p.name != "api.h" or p.parent.name != "api")}


def owners(files):
    """name -> headers that declare it, those of the API first."""
    out = {}
    for f in sorted(files.values(), key=lambda f: f.layer != "api"):
        if f.name.endswith(".h"):
            for name in f.declares(): out.setdefault(name, []).append(f.name)
    return out


def wanted(f, own, files):
    """(headers that must be included, those that may be too)"""
    must, may, todo, seen = set(), set(), list(f.bare), set()
    while todo:
        word = todo.pop()
        headers = own.get(word, [])
        if word in seen: continue
        seen.add(word)
        for h in headers: todo += files[h].macros.get(word, ())
        if not headers or f.name == headers[0]: continue
        if word == "llm" and f.layer not in ("serve", "api"): continue
        may |= set(headers)
        must.add(headers[0])
    own_header = f.name[:-1] + "h"
    if f.name.endswith(".c") and own_header in files: must.add(own_header)
    if f.layer not in ("api",) and f.name != "base/platform.h" and "LLM__PRIVATE" in f.text: must.add("base/platform.h")
    return must - {f.name}, may


def allowed(a, b):
    """May a file of layer/name a include header b?"""
    if b.startswith("api/"): return True
    layer, other = a.split("/")[0], b.split("/")[0]
    return layer == other or any(b == n + ".h" or other == n for n in NEEDS[layer])


def includes(files, own):
    for f in files.values():
        must, may = wanted(f, own, files)
        have = set(f.includes)
        up = [h for h in have if not allowed(f.name, h)]
        check(f"{f.name}: arrows go down", not up, f"{f.layer}/ may use {', '.join(NEEDS[f.layer]) or 'nothing'}, not " + " ".join(up))
        check(f"{f.name}: includes what it uses", must <= have, "missing: " + " ".join(sorted(must - have)))
        check(f"{f.name}: uses what it includes", have <= must | may, "not used: " + " ".join(sorted(have - must - may)))


def fix(files, own):
    order = {}
    for i, p in enumerate(re.findall(r"^@part (\S+)", (SRC / "llm.h.in").read_text(), re.M)):
        order.setdefault(p if p.endswith(".h") else p.removesuffix(".c") + ".h", i)
    for f in files.values():
        must, may = wanted(f, own, files)
        have = [h for h in f.includes if h in may and h not in must and allowed(f.name, h)]
        mine = f.name[:-1] + "h"
        rows = sorted(must | set(have), key=lambda h: (h != mine, order.get(h, 1000), h))
        block = "".join(f'#include "{h}"\n' for h in rows)
        text = re.sub(r'^#include "[a-z]+/\w+\.h".*\n', "", f.text, flags=re.M)
        if f.name.endswith(".h"): text = text.replace("#pragma once\n", "#pragma once\n" + block, 1)
        elif text.startswith("/*"):
            end = text.index("*/\n") + 3
            text = text[:end] + block + "\n" + text[end:].lstrip("\n")
        else: text = block + "\n" + text.lstrip("\n")
        if text != f.text: f.path.write_text(text)


def inner(files, own):
    """What one .c file keeps to itself is named by no other: in llm.h, where all is one text, the compiler would let it pass."""
    is_static = lambda item: item.kind == "function" or item.text.startswith("static")
    kept = {n: f for f in files.values() if f.name.endswith(".c") for i in f.items if is_static(i) for n in i.names if n not in own}
    for f in files.values():
        mine = {n for i in f.items for n in i.names}
        past = sorted(n for n in f.words - mine if n in kept and kept[n] is not f)
        check(f"{f.name}: calls no static function of others", not past, " ".join(f"{n} of {kept[n].name}" for n in past))


def interfaces(files, own):
    named = csource.words("\n".join(p.read_text() for p in pathlib.Path("tests").glob("**/*.[ch]")))
    for f in files.values():
        if not f.name.endswith(".h") or f.layer == "api": continue
        users = [g for g in files.values() if g.name[:-1] != f.name[:-1]]
        inside = csource.words("\n".join(i.text for i in f.items if i.kind in ("directive", "function"))) # the header's own macros and inline functions
        for i, item in enumerate(f.items):
            if not item.text.startswith(("LLM__PRIVATE", "extern LLM__PRIVATE")): continue
            before = f.items[i - 1] if i else None
            comment = before and (before.kind == "comment" or before.text.startswith(("LLM__PRIVATE", "extern LLM__PRIVATE"))) or "/*" in f.text.splitlines()[item.line - 1]
            for name in item.names:
                check(f"{f.name}: {name} says what it does", bool(comment), "a comment above the prototype expected")
                used = any(name in g.words for g in users) or name in inside or name in named
                check(f"{f.name}: {name} is used elsewhere", used, "nobody else calls it: make it static in its file")


def function_sizes(name, items):
    for item in items:
        if item.kind != "function" or not item.names: continue
        most, why = LONG_FUNCTIONS.get(item.names[0], (LONGEST["function"], ""))
        check(f"{name}: {item.names[0]}", item.lines <= most and (why or most <= LONGEST["function"]), f"{item.lines} lines, at most {most} with a stated reason")


def sizes(files):
    lengths = []
    generated = lambda text: re.sub(r"/\* generated: begin \*/.*?/\* generated: end \*/", "", text, flags=re.S)
    for f in files.values():
        lines = generated(f.text).splitlines()
        lengths.append(len(lines))
        check(f"{f.name}: length", len(lines) <= LONGEST["file"], f"{len(lines)} lines, at most {LONGEST['file']}")
        wide = [i + 1 for i, line in enumerate(lines) if len(line) > LONGEST["line"]]
        check(f"{f.name}: width", not wide, f"lines {wide[:8]} are wider than {LONGEST['line']}")
        function_sizes(f.name, f.items)
    for program in PROGRAMS: function_sizes(program, csource.items(pathlib.Path(program).read_text()))
    median = statistics.median(lengths)
    check("the median file", median <= LONGEST["median file"], f"{median} lines")
    check("exceptions", len(LONG_FUNCTIONS) <= 10, f"{len(LONG_FUNCTIONS)} functions")
    print(f"src/: {len(lengths)} files, {sum(lengths)} lines, median {median:.0f}, longest {max(lengths)}")


def cuda():
    """The sections of llm_cuda.cu are no longer than a file of src/; a kernel, whose registers are one function's, may be longer than other functions."""
    text = pathlib.Path("llm_cuda.cu").read_text()
    wide = [i + 1 for i, line in enumerate(text.splitlines()) if len(line) > LONGEST["line"]]
    check("llm_cuda.cu: width", not wide, f"lines {wide[:8]} are wider than {LONGEST['line']}")
    sections = re.split(r"^/\* =+\n \* >>(\w+) ", text, flags=re.M)[1:]
    listed = re.findall(r"^ \*     >>(\w+) ", text, re.M)
    check("llm_cuda.cu: its contents", listed == sections[::2], f"{listed} are listed, {sections[::2]} are there")
    long = [name for name, body in zip(sections[::2], sections[1::2]) if body.count("\n") > LONGEST["file"]]
    check("llm_cuda.cu: sections", not long, f"{long}: at most {LONGEST['file']} lines")
    long = [f"{i.names[0]}: {i.lines}" for i in csource.items(text) if i.kind == "function" and i.names and i.lines > LONGEST["kernel"]]
    check("llm_cuda.cu: functions", not long, f"{long}, at most {LONGEST['kernel']} lines")


def system_calls(files):
    for places, calls in SYSTEM.items():
        pattern = re.compile(r"(?<![\w.>*])(" + calls.replace(" ", "|") + r")\(")
        for f in files.values():
            if f.name.endswith(".c") and f.name not in places.split():
                text = re.sub(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', " ", f.text, flags=re.S)
                check(f"{f.name}: system calls", not pattern.search(text), f"{pattern.findall(text)} stands in {places}")


def clocks(files):
    """Who reads the wall clock, and how often, is stated."""
    texts = {f.name: f.text for f in files.values()} | {p: pathlib.Path(p).read_text() for p in [*PROGRAMS, "llm_cuda.cu"]}
    for name, text in texts.items():
        found = WALL_CLOCK.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S))
        check(f"{name}: the wall clock is for time stamps", len(found) == STAMPS.get(name, 0), f"{found}: {STAMPS.get(name, 0)} were expected")


def api_order():
    """Whoever reads the API from the top meets what most programs need first; what only backends need stands last."""
    parts = re.findall(r"^ \* >>api-(\w+) ", pathlib.Path("llm.h").read_text(), re.M)
    levels = ["config", "text", "easy", "model", "sampler", "engine", "request", "raw", "openai", "backend"]
    check("llm.h: the API's order", [p for p in parts if p in levels] == levels and parts[2] == "easy" and parts[-1] == "backend",
          "config, text and the easy level first, the backend seam last: " + " ".join(parts))


def tags(files):
    parts = {("api-" if f.layer == "api" else "") + f.path.stem for f in files.values()} | {"name"}
    for path in [*(f.path for f in files.values()), SRC / "llm.h.in", SRC / "README.md"]:
        if not path.exists(): continue
        gone = sorted({t for t in re.findall(r">>([a-z][a-z0-9_-]+)", path.read_text()) if t not in parts})
        check(f"{path}: tags", not gone, "no such part: " + " ".join(gone))


def main():
    if sys.argv[1:] not in ([], ["--fix"]): sys.exit(__doc__)
    files = read()
    if sys.argv[1:]:
        fix(files, owners(files))
        files = read()
    own = owners(files)
    made = subprocess.run([sys.executable, "src/amalgamate.py", "--check"], capture_output=True, text=True)
    check("llm.h is what src/ gives", made.returncode == 0, made.stderr)
    includes(files, own)
    inner(files, own)
    interfaces(files, own)
    sizes(files)
    cuda()
    system_calls(files)
    clocks(files)
    api_order()
    tags(files)
    check("unit tests name a function of every part", not (without := coverage.unnamed()), "none of " + " ".join(without))
    print(f"{DONE['passed']} passed, {DONE['failed']} failed, 0 skipped")
    sys.exit(1 if DONE["failed"] else 0)


if __name__ == "__main__": main()
