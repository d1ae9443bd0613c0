#!/usr/bin/env python3
"""Which tests run which part of src/, and how many of its lines: `make coverage` builds build/cov and calls this.

    coverage.py            runs the unit tests and some end to end, prints the table
    coverage.py unit       the unit tests alone
    coverage.py --lines folder/name   besides, the lines of this part that no test ran

The table has a row for every part of src/ (folder/name.c and what is computed in its header): its lines, how many of them the unit tests
run, the end-to-end tests, both; how many of its functions that others see are named by a unit test; the groups that name one. A folder of
GATED below 90 % ends the program with 1, and so does a unit test that fails. What goes on too slowly or too fast for an end-to-end test in
this build is shown; whether those pass is what `make test` says. (That each part is named at all is checked by structure.py.)
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import csource

sys.path.insert(0, "tests/e2e")
import serving

SRC, COV = pathlib.Path("src"), pathlib.Path("build/cov")
GATED, LEAST = ("base", "text", "tokenizer", "chat", "grammar", "engine", "serve"), 90
# Why a part of a gated folder has fewer lines run than LEAST.
REASONS = {
    "base/child": "what a forked process does before exec, which takes its counters with it",
    "base/platform": "a system without random bytes; AMX tiles, which only a CPU that has them is asked for",
}
# Parts whose functions are only reached through a table, and what tests call to have it.
THROUGH = {f"cpu/{part}": table for parts, table in (
    ("bodies mac unpack unpack_avx2 fine_avx2 bytes_avx2 kernels_avx2 kernels_avx512 kernels_amx kernels_neon", "llm__kernels_of"),
    ("cpu_open operations record run", "llm_backend_cpu")) for part in parts.split()}
JOBS = int(os.environ.get("JOBS") or os.cpu_count() or 2)
TINY = {"LLM_TEST_MODEL": serving.tiny_model, "LLM_TEST_SLOW": "8"}
# End to end, the longest first: (what it is called in the table, command, environment).
E2E = (
    ("serve", ["tests/e2e/test_serve.py"], TINY), ("serve_bad", ["tests/e2e/test_serve_bad.py"], TINY), ("lora", ["tests/e2e/test_lora.py"], {}),
    ("nodes", ["tests/cuda/test_cuda_nodes.py"], {"LLM_TEST_SLOW": "8"}), ("cli", ["tests/e2e/test_cli.py"], {}), ("grammar", ["tests/e2e/test_grammar.py"], {"LLM_TEST_SLOW": "8"}), ("contexts", ["tests/e2e/test_contexts.py"], {}),
    ("checkpoints", ["tests/e2e/test_checkpoints.py"], {}), ("documents", ["tests/e2e/test_documents.py"], {}), ("offline", ["tests/e2e/test_offline.py"], {}),
    ("pull", ["tests/e2e/test_pull.py"], {}), ("models", ["tests/e2e/test_models.py"], {}), ("ollama", ["tests/e2e/test_ollama.py"], {}), ("related", ["tests/e2e/test_related.py"], {}), ("openapi", ["tests/e2e/test_openapi.py"], {}),
    ("vision", ["tests/e2e/test_vision.py"], {}),
)
UNIT_SLICES = (("engine", "sim", "backend"), ("speculate",))  # what takes long; the other groups are a slice of their own


def run(name, command, env, failed):
    """One test; what it says goes to build/cov/NAME.log."""
    programs = {"LLM_CLI": "llm_cli", "LLM_SERVE": "llm_serve", "LLM_LIBRARY": "libllm.so"}
    own = {k: v() if callable(v) else v for k, v in env.items()}
    with open(COV / (name + ".log"), "wb") as out:
        code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=os.environ | {k: str(COV / v) for k, v in programs.items()} | own).returncode
    said = [x for x in (COV / (name + ".log")).read_text(errors="replace").splitlines() if re.search(r"\d+ passed, \d+ failed", x)]
    print(f"{name:14s} {said[-1] if said else 'exit ' + str(code)}", flush=True)
    if code: failed.append(name)


def together(jobs):
    """Jobs side by side, as many at once as there are cores. Returns the names of those that failed."""
    todo, failed = collections.deque(jobs), []

    def work():
        while todo:
            try: job = todo.popleft()
            except IndexError: return
            run(*job, failed)
    threads = [threading.Thread(target=work) for _ in range(JOBS)]
    for t in threads: t.start()
    for t in threads: t.join()
    return failed


def unit_jobs():
    groups = subprocess.run([COV / "unit", "--list"], capture_output=True, text=True, check=True).stdout.split()
    long = {x for s in UNIT_SLICES for x in s}
    slices = [*UNIT_SLICES, [g for g in groups if g not in long]]
    return [(f"unit-{i + 1}", [str(COV / "unit"), *names], {"LLM_TEST_SLOW": "8"}) for i, names in enumerate(slices)]


def e2e_jobs():
    serving.tiny_model()
    return [("e2e-" + name, [sys.executable, *command], env) for name, command, env in E2E]


def counted():
    """{file of src/: {line: was it run}} of what ran since the last call; the counters are removed."""
    found, out = sorted((COV / "src").glob("*/*.gcda")), collections.defaultdict(dict)
    for begin in range(0, len(found), 20):
        p = subprocess.run(["gcov", "--json-format", "--stdout", *map(str, found[begin:begin + 20])], capture_output=True, text=True, check=True)
        for line in p.stdout.splitlines():
            for f in json.loads(line)["files"]:
                if not f["file"].startswith("src/"): continue
                lines = out[f["file"][4:]]
                for x in f["lines"]: lines[x["line_number"]] = lines.get(x["line_number"], False) or x["count"] > 0
    for path in COV.glob("**/*.gcda"): path.unlink()
    return out


def measure(jobs):
    failed = together(jobs)
    return counted(), failed


def parts():
    """{folder/name: names of the functions that other files may call}: the .c files, and headers with code of their own."""
    out = {}
    api = {n for p in SRC.glob("api/*.h") for i in csource.items(p.read_text()) if i.text.startswith("LLM_API") for n in i.names}
    for path in sorted([*SRC.glob("*/*.c"), *SRC.glob("*/*.h")]):
        if path.parent.name == "api": continue
        items = csource.items(path.read_text())
        offered = lambda i: i.text.startswith("LLM__PRIVATE") and "(" in i.text or (i.kind == "function" and (path.suffix == ".h" or set(i.names) & api))
        out.setdefault(f"{path.parent.name}/{path.stem}", set()).update(n for i in items if offered(i) for n in i.names if n.startswith("llm"))
    return out


def named():
    """{group of unit tests: the library's names that its file says, or a header that it includes from tests/unit}"""
    out = collections.defaultdict(set)
    for path in pathlib.Path("tests/unit").glob("*/*.c"):
        text = path.read_text()
        text += "".join((path.parent / x).read_text() for x in re.findall(r'^#include "(\.\./\w+\.h)"', text, re.M))
        for group in re.findall(r"^TEST_GROUP\((\w+)\)", text, re.M): out[group] |= csource.words(text)
    return out


def unnamed():
    """Parts without a function that a unit test names, by itself or through its table."""
    words = set().union(*named().values())
    return [part for part, names in sorted(parts().items()) if names and not (names | {THROUGH.get(part)}) & words]


def percent(lines, ran):
    return f"{100 * sum(ran.get(x, False) for x in lines) / len(lines):5.1f}" if lines else "    -"


def merge(*all_lines):
    out = {}
    for lines in all_lines:
        for x, ran in lines.items(): out[x] = out.get(x, False) or ran
    return out


def of_part(part, found):
    """The lines of both files of a part, as {(suffix, line): was it run}."""
    return {(suffix, x): ran for suffix in (".c", ".h") for x, ran in found.get(part + suffix, {}).items()}


def row(name, unit, e2e, functions="", groups=""):
    both = merge(unit, e2e)
    print(f"{name:32s} {len(both):6d}  {percent(both, unit)}  {percent(both, e2e)}  {percent(both, both)}  {functions:>7s}  {groups}")
    return 100 * sum(both.values()) / len(both) if both else 100


def table(unit, e2e):
    """Prints it. Returns {folder: percent}, {part: percent}."""
    tests, folders, shares = named(), collections.defaultdict(lambda: ({}, {})), {}
    print(f"{'part of src/':32s} {'lines':>6s}   unit    e2e   both   named   groups that name its functions")
    offered = parts()
    for part, names in offered.items():
        u, e = of_part(part, unit), of_part(part, e2e)
        said = {n for n in names if any(n in words for words in tests.values())}
        groups = sorted(g for g, words in tests.items() if words & names)
        if u or e or part + ".c" in unit: shares[part] = row(part, u, e, f"{len(said)}/{len(names)}", " ".join(groups))
        for into, lines in zip(folders[part.split("/")[0]], (u, e)): into.update({(part, x): ran for x, ran in lines.items()})
    print()
    return {folder: row(folder + "/", *folders[folder]) for folder in sorted(folders)}, shares


def verdict(folders, shares):
    """What is below LEAST. Returns 1 if a gated folder is."""
    bad = [f for f in GATED if folders.get(f, 0) < LEAST]
    print(f"\nparts of {', '.join(GATED)} with fewer than {LEAST} % of their lines run:")
    for part, share in shares.items():
        if part.split("/")[0] in GATED and share < LEAST: print(f"  {part:32s} {share:5.1f} %  {REASONS.get(part, 'no reason is known: tests are missing')}")
    for part in sorted(set(REASONS) - {p for p, share in shares.items() if share < LEAST}): print(f"  {part}: the reason given is no longer needed")
    for f in bad: print(f"FAILED: {f}/ has {folders.get(f, 0):.1f} % of its lines run, {LEAST} % expected")
    return bool(bad)


def show(part, *found):
    """The lines of a part that nothing ran."""
    for suffix in (".c", ".h"):
        path = SRC / (part + suffix)
        ran = merge(*(f.get(part + suffix, {}) for f in found))
        for x, text in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
            if ran.get(x) is False: print(f"{path}:{x}: {text}")


def main():
    wanted, shown = [], []
    for word in (words := iter(sys.argv[1:])):
        if word == "--lines": shown.append(next(words, ""))
        elif word == "unit": wanted.append(word)
        else: sys.exit(__doc__)
    counted()
    unit, failed = measure(unit_jobs())
    e2e, more = ({}, []) if wanted else measure(e2e_jobs())
    folders, shares = table(unit, e2e)
    bad = verdict(folders, shares)
    for part in shown: show(part, unit, e2e)
    for name in more: print(f"{name} has rows that failed in this build, see build/cov/{name}.log")
    for name in failed: print(f"FAILED: {name}, see build/cov/{name}.log")
    sys.exit(1 if bad or failed else 0)


if __name__ == "__main__": main()
