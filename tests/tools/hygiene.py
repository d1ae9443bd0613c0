#!/usr/bin/env python3
"""Is llm.h a good guest in somebody's project?

Languages and compilers without warnings, linking into two translation units, README's program as printed, exported and called
symbols, table of contents, lengths and comments; and the weights that tests/bench/bench_linear.c measures with. Prints
"N passed, N failed, N skipped".
"""
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys

OUT = pathlib.Path("build/hygiene")
WARN = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wvla", "-Werror"]
DONE = {"passed": 0, "failed": 0, "skipped": 0}
FORBIDDEN = "exit abort _exit printf puts putchar perror getenv setlocale system signal atoi atof __assert_fail".split()
MAX_FUNCTION = 120
LINES = {"llm_cli.c": 2000, "llm_serve.c": 4000} # the server: 3,500 and its page of 500; tests/tools/structure.py has the parts of llm.h
COMMENTS = (0.16, 0.15) # at least now, target: share of comment-only lines of llm.h
LONG_FUNCTIONS = {} # name: lines, for the declared exceptions; there are none


def check(name, ok, why=""):
    DONE["passed" if ok else "failed"] += 1
    if not ok: print(f"FAILED: {name}: {why[:1500]}")


def skip(name, why):
    DONE["skipped"] += 1
    print(f"skipped: {name}: {why}")


def run(name, command, **options):
    try:
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    except OSError as error: # a program that was not built
        return check(name, False, str(error))
    check(name, p.returncode == 0, p.stdout)
    return p


def write(name, text):
    path = OUT / name
    path.write_text(text)
    return str(path)


def languages():
    for c, cxx in (("gcc", "g++"), ("clang", "clang++")):
        if not shutil.which(c) or not shutil.which(cxx):
            skip(f"{c} and {cxx}", "not installed")
            continue
        decl = write("decl.c", '#include "llm.h"\nint main(void) { llm_sampling s; (void)s; return LLM_OK; }\n')
        run(f"declarations, {c} C99", [c, "-std=c99", *WARN, "-I.", "-c", decl, "-o", str(OUT / "decl.o")])
        run(f"declarations, {cxx} C++11", [cxx, "-std=c++11", *WARN, "-I.", "-x", "c++", "-c", decl, "-o", str(OUT / "decl.o")])
        for opt in ("-O2", "-O0"):
            run(f"implementation, {c} C11 {opt}", [c, "-std=c11", *WARN, "-Wc++-compat", opt, "-x", "c", "-DLLM_IMPLEMENTATION", "-c", "llm.h", "-o", str(OUT / f"llm_{c}.o")])
        run(f"implementation, {cxx} C++20", [cxx, "-std=c++20", *WARN, "-O1", "-x", "c++", "-DLLM_IMPLEMENTATION", "-c", "llm.h", "-o", str(OUT / f"llm_{cxx}.o")])
        run(f"llm_cli.c, {c}", [c, "-std=c11", *WARN, "-O1", "-c", "llm_cli.c", "-o", str(OUT / "cli.o")])
    run("included twice", ["cc", "-std=c11", *WARN, "-I.", "-c", write("twice.c", '#define LLM_IMPLEMENTATION\n#include "llm.h"\n#include "llm.h"\n'), "-o", str(OUT / "twice.o")])
    run("static", ["cc", "-std=c11", "-I.", "-Wall", "-Wno-unused-function", "-Werror", "-c",
                   write("static.c", '#define LLM_STATIC\n#define LLM_IMPLEMENTATION\n#include "llm.h"\nint main(void) { return llm_model_open("x", 0, 0) == LLM_OK; }\n'), "-o", str(OUT / "static.o")])
    a = write("a.c", '#define LLM_IMPLEMENTATION\n#include "llm.h"\nconst char *other(void);\nint main(void) { return other() == llm_last_error() ? 0 : 1; }\n')
    b = write("b.c", '#include "llm.h"\nconst char *other(void);\nconst char *other(void) { return llm_last_error(); }\n')
    run("two translation units", ["cc", "-std=c11", *WARN, "-I.", a, b, "-o", str(OUT / "two"), "-lm", "-lpthread"])
    run("two translation units run", [str(OUT / "two")])


def refusals():
    """What must stop the build does so with one sentence."""
    for name, text, want in (
        ("jsmn without parent links", '#include <jsmn.h>\n#define LLM_IMPLEMENTATION\n#include "llm.h"\n', "JSMN_PARENT_LINKS"),
        ("half an allocator", '#define LLM_MALLOC(n) 0\n#define LLM_IMPLEMENTATION\n#include "llm.h"\n', "LLM_MALLOC, LLM_REALLOC and LLM_FREE"),
    ):
        p = subprocess.run(["cc", "-std=c11", "-I.", "-fsyntax-only", write("refused.c", text)], capture_output=True, text=True)
        check(name, p.returncode != 0 and want in p.stderr, p.stderr)


def tiny_folder():
    """The smallest Llama that opens: zeros, one layer, words for tokens."""
    folder, d, vocab = OUT / "tiny", 32, ["<unk>", "</s>", "a", "b"]
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": d, "intermediate_size": d, "num_hidden_layers": 1,
        "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": len(vocab), "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.25, "tie_word_embeddings": True, "eos_token_id": 1}))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(vocab)}, "unk_token": "<unk>"}}))
    shapes = {"model.embed_tokens": [len(vocab), d], "model.norm": [d]}
    shapes |= {f"model.layers.0.{n}_layernorm": [d] for n in ("input", "post_attention")}
    shapes |= {f"model.layers.0.{n}_proj": [d, d] for n in "self_attn.q self_attn.k self_attn.v self_attn.o mlp.gate mlp.up mlp.down".split()}
    header, end = {}, 0
    for name, shape in shapes.items():
        header[name + ".weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end := end + 4 * math.prod(shape)]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    return str(folder)


def include_order():
    """A system header before the implementation: a program that works, or one sentence; by every compiler, language and C library."""
    program = write("stdio_first.c", '''#include <stdio.h>
#define LLM_IMPLEMENTATION
#include "llm.h"
int main(int n, char **arg) {
    llm_json *j = NULL;
    llm_model *m = NULL;
    double quarter = 0;
    if (n < 2 || llm_json_parse("[0.25]", 6, NULL, &j)) return 2;
    llm_json_num(j, llm_json_first(j, 0), &quarter);
    llm_json_free(j);
    if (quarter != 0.25) return printf("0.25 reads as %g\\n", quarter), 3;
    if (llm_model_open(arg[1], NULL, &m)) return puts(llm_last_error()), 4;
    llm_model_close(m);
    return 0;
}
''')
    folder, jsmn = tiny_folder(), '-DLLM_JSMN_H="/usr/include/jsmn.h"'
    modes = [(c, s) for c in ("gcc", "clang") for s in ("gnu11", "gnu17", "gnu2x", "c11", "c17")] + [("musl-gcc", "gnu17"), ("musl-gcc", "c11")]
    for c, std in modes + [(c, s) for c in ("g++", "clang++") for s in ("c++20", "gnu++20")]:
        name, exe = f"stdio.h first, {c} -std={std}", str(OUT / "stdio_first")
        if not shutil.which(c):
            skip(name, "not installed")
            continue
        language = ["-x", "c++"] if "++" in c else ["-Werror=implicit-function-declaration"]
        p = subprocess.run([c, f"-std={std}", "-DLLM_NO_SIMD", "-Wall", "-Wextra", "-Werror", *language, *[jsmn] * (c == "musl-gcc"), "-I.", program,
                            "-o", exe, "-lm", "-lpthread"], capture_output=True, text=True)
        if std in ("c11", "c17"):
            errors = re.findall(r"error: .*", p.stderr)
            check(name, len(errors) == 1 and "_GNU_SOURCE" in errors[0], p.stderr)
        elif p.returncode: check(name, False, p.stderr)
        else: run(name, [exe, folder])


def readme_program():
    blocks = [b for b in re.findall(r"```c\n(.*?)```", pathlib.Path("README.md").read_text(), re.S) if "LLM_IMPLEMENTATION" in b]
    check("README has one program", len(blocks) == 1, f"{len(blocks)} blocks")
    if len(blocks) != 1: return
    lines = [x for x in blocks[0].splitlines() if x.strip()]
    check("README's program is short", len(lines) <= 16, f"{len(lines)} lines")
    path = write("readme.c", blocks[0])
    model = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
    for compiler, extra in (("gcc", ["-x", "c"]), ("clang", ["-x", "c"]), ("g++", ["-x", "c++"]), ("clang++", ["-x", "c++"])):
        if not shutil.which(compiler):
            skip(f"README's program, {compiler}", "not installed")
            continue
        p = run(f"README's program, {compiler}", [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-I.", *extra, path, "-o", str(OUT / "readme"), "-lm", "-lpthread"])
        if not p or p.returncode: continue
        if not pathlib.Path(model).exists():
            skip("README's program runs", model + " is not there")
            continue
        p = subprocess.run([str(OUT / "readme"), model], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
        check(f"README's program answers, {compiler}", p.returncode == 0 and len(p.stdout.strip()) > 20, p.stdout + p.stderr)


def symbols():
    obj = OUT / "llm_gcc.o"
    if not obj.exists() or not shutil.which("nm"): return skip("symbols", "gcc or nm is not installed")
    rows = [x.split() for x in subprocess.run(["nm", str(obj)], capture_output=True, text=True).stdout.splitlines()]
    defined = [r[-1] for r in rows if len(r) == 3 and r[1].isupper() and r[1] != "U"]
    called = [r[-1] for r in rows if len(r) == 2 and r[0] == "U"]
    table = subprocess.run(["objdump", "-t", str(obj)], capture_output=True, text=True).stdout # constants with pointers lie in .data.rel.ro
    writable = re.findall(r"^\S+ [lg].{6}\s(?:\.data|\.bss)\s+\S+\s+(?:\.hidden )?(\S+)$", table, re.M)
    check("only llm_ names", all(x.startswith("llm_") and not x.startswith("llm__") for x in defined), " ".join(x for x in defined if not x.startswith("llm_"))[:300])
    check("no forbidden call", not set(called) & set(FORBIDDEN), " ".join(set(called) & set(FORBIDDEN)))
    check("no mutable globals", not writable, " ".join(writable)[:300])


def functions(text):
    """(name, lines) of every function that starts in column 0."""
    name, start = None, 0
    for i, line in enumerate(text.splitlines()):
        if re.match(r"[A-Za-z_].*\)\s*\{$", line): name, start = line, i
        elif line == "}" and name:
            m = re.search(r"(\w+)\s*\([^()]*(\([^()]*\)[^()]*)*\)\s*\{$", name)
            yield (m[1] if m else name), i - start + 1
            name = None


def measures():
    text = pathlib.Path("llm.h").read_text()
    own = re.sub(r"/\* generated: begin \*/.*?/\* generated: end \*/", "", text, flags=re.S)
    lines = own.splitlines()
    for path, most in LINES.items():
        n = len(pathlib.Path(path).read_text().splitlines())
        check(path + " lines", n <= most, f"{n} lines, at most {most}")
    for path in ("llm.h", "llm_cli.c", "llm_serve.c"):
        for name, n in functions(pathlib.Path(path).read_text()):
            check(f"{path} {name}", n <= LONG_FUNCTIONS.get(name, MAX_FUNCTION), f"{n} lines")
    comment = inside = 0
    for line in lines:
        s = line.strip()
        if inside or s.startswith("/*") or s.startswith("//"): comment += 1
        if s.startswith("/*") or inside: inside = "*/" not in s
    share = comment / len(lines)
    print(f"llm.h: {len(lines)} lines, {share:.1%} comments")
    check("comments", share >= COMMENTS[0], f"{share:.1%} of the lines are comments, at least {COMMENTS[0]:.0%} expected")
    if share < COMMENTS[1]: print(f"short of the target: {share:.1%} of the lines of llm.h are comments, {COMMENTS[1]:.0%} wanted")
    tags = [m[1] for m in re.finditer(r"^ \* >>([a-z0-9-]+)", text, re.M)]
    toc = re.search(r"TABLE OF CONTENTS[^\n]*\n(.*?)\n \*\n", text, re.S)
    listed = re.findall(r">>([a-z0-9-]+)", toc[1]) if toc else []
    check("table of contents", [t for t in tags if t in set(tags)] == listed, f"tags {tags} but listed {listed}")
    wide = [i + 1 for i, line in enumerate(lines) if len(line) > 200]
    check("line width", not wide, f"lines {wide[:10]} are wider than 200")


BENCH = """#define main bench_main
#include "tests/bench/bench_linear.c"
#undef main
int main(void) {
    enum { COLS = 256, ROWS = 64 };
    static uint8_t data[ROWS * COLS * 4];
    static float x[ROWS * COLS];
    for (int i = 0; i < LLM__COUNT(types); i++) {
        int subnormal = 0, other = 0;
        fill(data, types[i], (size_t)(ROWS * llm__row_bytes(types[i], COLS)));
        llm__dequant_columns(types[i], data, 0, ROWS * COLS, x);
        for (int k = 0; k < ROWS * COLS; k++) subnormal += x[k] != 0 && !isnormal(x[k]), other += fabsf(x[k]) > 1e-15f && fabsf(x[k]) < 1e15f;
        if (subnormal || other < ROWS * COLS / 2) printf("%s: %d subnormal, %d of ordinary size\\n", llm__type_name(types[i]), subnormal, other);
    }
    char program[] = "bench_linear", one[] = "1", isa[] = "scalar", bad[] = "Q9", *args[] = {program, one, isa, bad, NULL};
    if (bench_main(4, args) != 2) printf("Q9 is taken for a type\\n");
    if (type_find("Q4_1") != 1 || type_find("q6_k") < 0) printf("types are not found by name\\n");
    return 0;
}
"""


def bench():
    """No weight of the kernels' bench is a subnormal number, which some processors take a hundred cycles for; types go by name."""
    program = str(OUT / "bench")
    p = run("bench_linear compiles", ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-I.", write("bench.c", BENCH), "-o", program, "-lm", "-lpthread"])
    if not p or p.returncode: return
    p = subprocess.run([program], capture_output=True, text=True, timeout=60)
    check("bench_linear's weights and names", p.returncode == 0 and not p.stdout and "Q4_1" in p.stderr, p.stdout + p.stderr)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    languages()
    refusals()
    include_order()
    readme_program()
    symbols()
    measures()
    bench()
    print(f"{DONE['passed']} passed, {DONE['failed']} failed, {DONE['skipped']} skipped")
    sys.exit(1 if DONE["failed"] else 0)


main()
