#!/usr/bin/env python3
"""The programs of tests/examples, as who embeds llm.h would try them.

    test_examples.py [NAME...]      all, or the runs of these

Each compiles without a warning as C and as C++, by gcc and clang, with build/llm.o; gcc's are run with the default model. Prints
"N passed, N failed, N skipped".
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from serving import MODEL, SLOW, check, finish, tiny_model

EXAMPLES = pathlib.Path("tests/examples")
OUT = pathlib.Path("build/examples")
WARN = ["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-I."]
COMPILERS = {"gcc": [], "clang": [], "g++": ["-std=c++20", "-x", "c++"], "clang++": ["-std=c++20", "-x", "c++"]}


def links(path, compiler):
    """The one of its compilers whose program is run."""
    return compiler == ("g++" if path.suffix == ".cpp" else "gcc")


def compile(job):
    """(what, exit code, what the compiler said)"""
    path, compiler = job
    program = OUT / (path.stem + ("_cpp" if path.suffix == ".cpp" else ""))
    end = ["-x", "none", "build/llm.o", "-o", program, "-lm", "-lpthread"] if links(path, compiler) else ["-fsyntax-only"]
    p = subprocess.run([compiler, *COMPILERS[compiler], *WARN, path, *end], capture_output=True, text=True)
    return f"{path.name}, {compiler}", p.returncode, p.stderr


def compiled():
    jobs = [(path, c) for path in sorted([*EXAMPLES.glob("*.c"), *EXAMPLES.glob("*.cpp")]) for c in COMPILERS if path.suffix == ".c" or "++" in c]
    there = [j for j in jobs if shutil.which(j[1])]
    check("gcc and g++ are installed", shutil.which("gcc") and shutil.which("g++"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        for what, code, said in pool.map(compile, there): check(what, code == 0, said)


def run(name, *args, input="", code=0, timeout=120):
    """What a program says, with the default model."""
    p = subprocess.run([OUT / name, *args], input=input, capture_output=True, text=True, timeout=timeout * SLOW)
    check(f"{name} {' '.join(args)[-60:]}: exit {code}", p.returncode == code, f"{p.returncode}: {p.stdout}{p.stderr}")
    return p.stdout, p.stderr


def chat():
    kept = OUT / "kept.json"
    kept.unlink(missing_ok=True)
    out, _ = run("chat", MODEL, str(kept), input="My name is Ada. Remember it.\nWhat is 2 + 2?\n")
    check("chat: how two answers ended", len(re.findall(r"\[\d+ tokens read, \d+ of them known; \d+ written in [\d.]+ s\]", out)) == 2, out)
    roles = [m["role"] for m in json.loads(kept.read_text())]
    check("chat: the messages are kept", roles == ["system", "user", "assistant", "user", "assistant"], roles)
    run("chat", MODEL, str(kept), input="And 3 + 3?\n")
    messages = json.loads(kept.read_text())
    check("chat: it goes on where it ended", len(messages) == 7 and messages[1]["content"] == "My name is Ada. Remember it.", messages)
    kept.write_text("{")
    _, err = run("chat", MODEL, str(kept), input="")
    check("chat: a bad file is told", "kept.json" in err, err)
    _, err = run("chat", "no such model", code=1)
    check("chat: no model is told", "no such file" in err, err)


def stream():
    long = "Read this list and then tell a long story about it. " + " ".join(f"Item {i} costs {i * 37 % 100} coins." for i in range(150))
    p = subprocess.Popen([OUT / "stream", MODEL, long], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(1.0)  # it reads
    begin = time.time()
    out, _ = p.communicate("\n", timeout=60 * SLOW)
    check("stream: the button is heard", "[abort after " in out, out)
    check("stream: at once", time.time() - begin < 3 * SLOW, time.time() - begin)
    p = subprocess.Popen([OUT / "stream", MODEL, "What is the capital of France? Answer in one sentence."], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    said = ""
    while "[" not in said and (c := p.stdout.read(1)): said += c
    p.stdin.write("\n")
    p.stdin.close()
    said += p.stdout.read()
    check("stream: an answer to its end", re.search(r"\S+.*\n\[(stop|length) after \d+ tokens\]", said, re.S), said)


def batch():
    out, err = run("batch", MODEL, input="What is the capital of France?\nName a colour.\n" + "a " * 1500 + "\n2 + 2?\n")
    check("batch: all answers in order", re.findall(r"^(\d)\. ", out, re.M) == ["1", "2", "3", "4"] and len(re.findall(r"\[(?:stop|length)\]$", out, re.M)) == 4, out[-900:])
    check("batch: progress", "100 %" in err, err)


def search():
    documents = "The cat sleeps on the sofa.\nThe stock market fell by two percent.\nA kitten is playing with a ball of wool.\nConcrete is made of cement, sand and water.\n"
    out, _ = run("search", MODEL, "My cat is sleeping.", input=documents)
    rows = [(float(x.split("  ", 1)[0]), x.split("  ", 1)[1]) for x in out.splitlines()]
    check("search: the nearest first", len(rows) == 4 and all("cat" in x[1] or "kitten" in x[1] for x in rows[:2]) and rows == sorted(rows, reverse=True), out)
    same, _ = run("search", MODEL, "Concrete is made of cement, sand and water.", input=documents)
    check("search: a document is nearest to itself", same.startswith("1.000  Concrete"), same)


def extract():
    out, _ = run("extract", MODEL, "Maria Lopez, 34 years old, has been flying planes for an airline for ten years.")
    check("extract: three facts", re.fullmatch(r"name  \S.*\nage   \d+\njob   (pilot|nurse|farmer|other)\n", out), out)
    check("extract: the right ones", "Maria" in out and "34" in out, out)


def tools():
    out, _ = run("tools", MODEL, "What is 12 times 7?")
    m = re.search(r"^call    (multiply|weather)\((\{.*\})\)\nresult  (.*)\nanswer  (.+)", out)
    check("tools: a call, its result, an answer", m and json.loads(m[2]) is not None, out)
    if m and m[1] == "multiply":
        args = json.loads(m[2])
        check("tools: the function ran", m[3] == str(args["a"] * args["b"]), out)


def game():
    out, _ = run("game", MODEL)
    check("game: both spoke", re.search(r"^Smith: \S", out, re.M) and re.search(r"^Guard: \S", out, re.M), out)
    m = re.search(r"(\d+) pictures; of each the answers took ([\d.]+) ms \(median\), nine in ten at most ([\d.]+) ms", out)
    check("game: 5 ms of each picture", m and float(m[2]) < 8 * SLOW and int(m[1]) > 20, out)
    print("   " + (m[0] if m else out))


def two_models():
    out, _ = run("two_models", MODEL, MODEL, "The sea.")
    check("two models: what they take, and both speak", re.search(r"weights \d+ MB.*\n.*weights \d+ MB", out) and re.search(r"^writer: \S[\s\S]*^critic: \S", out, re.M), out)


def cpp():
    out, _ = run("chat_cpp", MODEL, "What is the capital of France?", "And of Italy?")
    check("C++: two answers", "Paris" in out and len(re.findall(r"\n\[\d+ bytes\]", out)) == 2, out)
    _, err = run("chat_cpp", "no such model", "a", code=1)
    check("C++: an error is an exception", "no such file" in err, err)


def raw_loop():
    """The loop of the manual, as it stands there."""
    manual = pathlib.Path("llm.h").read_text()
    text = manual[manual.index("THE RAW LOOP"):manual.index("HOW A TOKEN IS MADE (")]
    lines = [x[7:] for x in text.splitlines()[1:] if x.startswith(" *     ")]
    path = OUT / "raw_loop.c"
    path.write_text('#include "llm.h"\n#include <stdio.h>\n#include <stdlib.h>\nint main(int argc, char **argv) {\n    (void)argc;\n' + "\n".join(lines).replace('"model.gguf"', "argv[1]") + "\n    return 0;\n}\n")
    for c in ("gcc", "clang"):
        p = subprocess.run([c, *WARN, path, *(["build/llm.o", "-o", OUT / "raw_loop", "-lm", "-lpthread"] if c == "gcc" else ["-fsyntax-only"])], capture_output=True, text=True)
        check(f"the raw loop of the manual, {c}", p.returncode == 0, p.stderr)
    out, _ = run("raw_loop", MODEL)
    check("the raw loop goes on", out.startswith("The capital of France is") and "Paris" in out, out)


def apart():
    """llm.h compiled once, apart: the commands of README, which the manual has too. The first runs as it stands there but for -O2, without which
    an engine says so, once; with it, it is what make made build/llm.o by."""
    readme, manual = pathlib.Path("README.md").read_text(), pathlib.Path("llm.h").read_text()
    commands = [x for x in re.search(r"```sh\n(cc [^`]*-c -x c[^`]*)```", readme)[1].splitlines() if x]
    check("README and the manual have the same two commands", len(commands) == 2 and all(f" *     {c}\n" in manual for c in commands), commands)
    tiny = tiny_model()
    program = next(b for b in re.findall(r"```c\n(.*?)```", readme, re.S) if "LLM_IMPLEMENTATION" in b).replace("#define LLM_IMPLEMENTATION\n", "")
    logs = '#include "llm.h"\n#include <stdio.h>\nstatic void hear(void *user, int level, const char *text) { (void)user, (void)level; puts(text); }\n' \
           'int main(int n, char **arg) {\n    llm_engine_config c = {0};\n    c.log = hear;\n    llm *l = n > 1 ? llm_load(arg[1], &c) : NULL;\n' \
           '    char *said = l ? llm_generate(l, "a", NULL) : NULL;\n    llm_string_free(said);\n    llm_free(l);\n    return !said;\n}\n'
    for name, text, cut, flags, warned in (("fast", program, "", [], 0), ("fast", logs, "", [], 0), ("slow", logs, "-O2 ", ["-DLLM_NO_SIMD"], 1)):
        folder = OUT / name
        folder.mkdir(exist_ok=True)
        shutil.copy("llm.h", folder)
        if name == "fast": shutil.copy("build/llm.o", folder)
        (folder / "main.c").write_text(text)
        for c in commands[(folder / "llm.o").exists():]:
            p = subprocess.run([*c.replace(cut, "").split(), *flags], cwd=folder, capture_output=True, text=True)
            check(f"{name}: {c.replace(cut, '')}", p.returncode == 0 and not p.stderr, p.stderr)
        p = subprocess.run([folder / "a.out", MODEL if text is program else tiny], capture_output=True, text=True, timeout=120 * SLOW)
        check(f"{name}: it runs", p.returncode == 0, f"{p.returncode} {p.stdout} {p.stderr}")
        if text is program: check("fast: it answers", "Paris" in p.stdout, p.stdout)
        else: check(f"{name}: without optimisation is told so often: {warned}", p.stdout.count("without optimisation") == warned, p.stdout)
        (folder / "a.out").unlink(missing_ok=True)


def listed():
    """README and the programs name each other."""
    names = sorted(p.name for p in EXAMPLES.iterdir() if p.suffix in (".c", ".cpp"))
    table = re.findall(r"^\| `([\w.]+)` \|", (EXAMPLES / "README.md").read_text(), re.M)
    check("README of the examples lists them all", sorted(table) == names, (table, names))
    check("README points there", "tests/examples" in pathlib.Path("README.md").read_text())


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    listed()
    compiled()
    for f in (apart, raw_loop, chat, stream, batch, search, extract, tools, game, two_models, cpp):
        if not sys.argv[1:] or f.__name__ in sys.argv[1:]: f()
    finish()


main()
