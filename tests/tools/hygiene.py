#!/usr/bin/env python3
"""Is llm.h a good guest in somebody's project?

    hygiene.py          everything, the programs without optimisation (70 s on two cores)
    hygiene.py all      every mode by every compiler, with optimisation wherever a program is compiled, too: what `make hygiene` runs
    hygiene.py quick    what needs no whole compilation: what `make check` runs (10 s)

Languages and compilers without warnings, linking into two translation units, README's program as printed, exported and called symbols,
the table of contents, comments, what programs rely on (abi.py), how sources are set (format.py), what documents name (docs.py); and the weights that tests/bench/bench_linear.c measures with. As many compilers run at once as there are
cores (JOBS). Prints "N passed, N failed, N skipped".
"""
import concurrent.futures
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys

import abi

OUT = pathlib.Path("build/hygiene")
JOBS = int(os.environ.get("JOBS") or os.cpu_count() or 2)
WARN = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wvla", "-Werror"]
LIBS = ["-lm", "-lpthread"]
# What gcc spends four of five seconds on in a file as long as this; make dev compiles the parts, of which it is made, with that warning.
CALM = ["-Wno-misleading-indentation"]
FEW = ["-O0", "-DLLM_NO_SIMD", *CALM, "-I."] # where it matters that a program compiles and links, not what with
MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
FORBIDDEN = "exit abort _exit printf puts putchar perror getenv setlocale system signal atoi atof __assert_fail".split()
COMMENTS = 0.15 # share of comment-only lines of llm.h
COMPILERS = {"gcc": ["-std=c11", "-x", "c"], "clang": ["-std=c11", "-x", "c"], "g++": ["-std=c++20", "-x", "c++"], "clang++": ["-std=c++20", "-x", "c++"]}
ALL, QUICK = sys.argv[1:] == ["all"], sys.argv[1:] == ["quick"]
DONE = {"passed": 0, "failed": 0, "skipped": 0}


def check(name, ok, why=""):
    DONE["passed" if ok else "failed"] += 1
    if not ok: print(f"FAILED: {name}: {why[:1500]}")
    return ok


def skip(name, why):
    DONE["skipped"] += 1
    print(f"skipped: {name}: {why}")


def run(name, command, **options):
    """A command that has to end well."""
    try:
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", stdin=subprocess.DEVNULL, **options)
    except OSError as error: # a program that was not built
        return check(name, False, str(error))
    return check(name, p.returncode == 0, p.stdout)


def compile(name, compiler, *args):
    if not shutil.which(compiler): return skip(name, compiler + " is not installed")
    return run(name, [compiler, *map(str, args)])


def write(name, text):
    path = OUT / name
    path.write_text(text)
    return str(path)


# ---- other scripts, each with figures of its own

def script(name):
    """A script that checks the tree; what it says counts here."""
    p = subprocess.run([sys.executable, *name.split()], capture_output=True, text=True)
    figures = re.search(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\n\Z", p.stdout)
    if not figures: return check(name, False, p.stdout + p.stderr)
    for key, n in zip(DONE, figures.groups()): DONE[key] += int(n or 0)
    print("\n".join(p.stdout.splitlines()[:-1]) or f"{name}: {figures[1]} passed")


# ---- languages

DECLARATIONS = '#include "llm.h"\nint main(void) { llm_sampling s; (void)s; return LLM_OK; }\n'
LATER = '#include "llm.h"\n#define LLM_IMPLEMENTATION\n#include "llm.h"\n#include "llm.h"\nint main(void) { llm *l = llm_load("x", NULL); return l != NULL; }\n'
STATIC = '#define LLM_STATIC\n#define LLM_IMPLEMENTATION\n#include "llm.h"\nint main(void) { llm_model *m; return llm_model_open("no such file", 0, &m) == LLM_OK; }\n'
ONE = '#define LLM_IMPLEMENTATION\n#define LLM_IMAGE_IMPLEMENTATION\n#include "llm.h"\n'
TWO = '#include "llm.h"\nconst char *other(void);\nint main(void) { return other() == llm_last_error() ? 0 : 1; }\n'
OTHER = """#include "llm.h"
const char *other(void);
const char *other(void) {
    llm_engine_config config = {0};
    config.max_model_len = -7;
    llm_load("no such file", &config);
    return llm_last_error();
}
"""


def declarations():
    path = write("decl.c", DECLARATIONS)
    for c, standard in (("gcc", "c99"), ("clang", "c99"), ("g++", "c++11"), ("clang++", "c++11")):
        compile(f"declarations, {c} {standard}", c, f"-std={standard}", *WARN, "-I.", "-fsyntax-only", *COMPILERS[c][1:], path)


def plainly(compiler):
    return [compiler, *COMPILERS[compiler], *WARN, "-I.", "-fsyntax-only"], ["-Wc++-compat"] if compiler == "gcc" else []


def syntax(compiler, all_modes):
    """The whole header, perhaps its other modes and the programs, without one warning that needs no optimiser; `make` itself shows the others."""
    plain, c = plainly(compiler)
    compile(f"llm.h, {compiler}", *plain, *c, *([] if ALL else CALM), "-DLLM_IMPLEMENTATION", "llm.h")
    if all_modes: modes(compiler)


def modes(compiler):
    plain, c = plainly(compiler)
    if compiler == "gcc": c += CALM
    compile(f"llm.h without SIMD, {compiler}", *plain, *c, "-DLLM_IMPLEMENTATION", "-DLLM_NO_SIMD", "llm.h")
    compile(f"llm.h without vision, {compiler}", *plain, *c, "-DLLM_IMPLEMENTATION", "-DLLM_NO_VISION", "llm.h")
    compile(f"llm.h, only the reader of pictures, {compiler}", *plain, *c, "-DLLM_IMAGE_IMPLEMENTATION", "llm.h")
    if ALL or not QUICK and compiler == "gcc": late_modes(compiler)
    if "++" in compiler: return
    for program in ("llm_cli.c", "llm_serve.c"):
        compile(f"{program}, {compiler}", *plain, program)
        compile(f"{program} without vision, {compiler}", *plain, "-DLLM_NO_VISION", program)


def late_modes(compiler):
    plain, c = plainly(compiler)
    if compiler == "gcc": c += CALM
    compile(f"llm.h, static, {compiler}", *plain, *c, "-Wno-unused-function", write(f"static_{compiler}.c", STATIC))
    compile(f"llm.h included before and after, {compiler}", *plain, *c, *(["-std=gnu11"] if "++" not in compiler else []), write(f"later_{compiler}.c", LATER))


def refusals():
    """What must stop the build does so with one sentence."""
    for name, text, want in (
        ("jsmn without parent links", '#include <jsmn.h>\n#define LLM_IMPLEMENTATION\n#include "llm.h"\n', "JSMN_PARENT_LINKS"),
        ("no stb_image", '#define __has_include(x) 0\n#define LLM_IMAGE_IMPLEMENTATION\n#include "llm.h"\n', "stb_image.h is missing"),
        ("half an allocator", '#define LLM_MALLOC(n) 0\n#define LLM_IMPLEMENTATION\n#include "llm.h"\n', "LLM_MALLOC, LLM_REALLOC and LLM_FREE"),
    ):
        p = subprocess.run(["cc", "-std=c11", "-I.", "-fsyntax-only", "-Wfatal-errors", write("refused.c", text)], capture_output=True, text=True)
        check(name, p.returncode != 0 and want in p.stderr, p.stderr)


# ---- whole programs

def two_units():
    """The implementation in one file, its users in others, and static in each of two: they link and run. How names are bound has nothing to
    do with kernels, which are left out: the same object shows that a program has only plain C then."""
    flags, one, other = ["-std=c11", *WARN, *FEW], OUT / "one.o", write("other.c", OTHER)
    compile("the implementation alone, without SIMD", "clang", *flags, "-c", write("one.c", ONE), "-o", one)
    compile("two translation units", "clang", *flags, write("two.c", TWO), other, one, "-o", OUT / "two", *LIBS)
    run("two translation units run", [str(OUT / "two")])
    no_simd(flags, one)
    both = [write("static_a.c", STATIC), write("static_b.c", STATIC.replace("int main(void)", "int other_main(void);\nint other_main(void)"))]
    compile("static in two translation units", "clang", "-std=c11", *WARN, "-Wno-unused-function", *FEW, *both, "-o", OUT / "static", *LIBS)
    run("static in two translation units runs", [str(OUT / "static")])
    objects = [row.split()[-1] for row in nm("-g", "--defined-only", OUT / "static") if " llm_" in row]
    check("static: nothing is exported", not objects, " ".join(objects[:9]))


def no_simd(flags, implementation):
    program = OUT / "scalar"
    compile("without SIMD", "clang", *flags, "llm_cli.c", implementation, "-o", program, *LIBS)
    if not program.exists(): return
    p = subprocess.run([program, "--version"], capture_output=True, text=True)
    check("without SIMD: plain C only", "instruction sets: scalar)" in p.stdout, p.stdout)


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


STDIO_FIRST = """#include <stdio.h>
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
"""
# Compilers, languages and C libraries in which the program has to compile, and those that are refused with one sentence: ALL has every pair of
# them. One compiler's runs for each language and C library: gcc and clang read the same headers.
STDIO_MODES = [("gcc", "gnu2x"), ("gcc", "c11"), ("clang", "gnu17"), ("clang++", "c++20"), ("musl-gcc", "gnu17"), ("musl-gcc", "c11")]
if ALL:
    STDIO_MODES += [("gcc", s) for s in ("gnu11", "gnu17", "c17")] + [("clang", s) for s in ("gnu11", "gnu2x", "c11", "c17")]
    STDIO_MODES += [("g++", "c++20"), ("g++", "gnu++20"), ("clang++", "gnu++20")]


def include_order(program, folder, c, std):
    """A system header before the implementation: a program that works, or one sentence."""
    name, exe = f"stdio.h first, {c} -std={std}", OUT / f"stdio_first_{c}_{std}"
    if not shutil.which(c): return skip(name, "not installed")
    language = ["-x", "c++"] if "++" in c else ["-Werror=implicit-function-declaration"]
    jsmn = ['-DLLM_JSMN_H="/usr/include/jsmn.h"'] if c == "musl-gcc" else []
    runs = (c, std) in (("clang", "gnu17"), ("clang++", "c++20"), ("musl-gcc", "gnu17"))
    output = ["-x", "none", "-o", exe, *LIBS] if runs else ["-fsyntax-only"]
    flags = [f"-std={std}", "-DLLM_NO_SIMD", "-Wall", "-Wextra", "-Werror", *CALM, *language, *jsmn, "-I."]
    p = subprocess.run([c, *flags, program, *output], capture_output=True, text=True)
    if std in ("c11", "c17"):
        errors = re.findall(r"error: .*", p.stderr)
        check(name, len(errors) == 1 and "_GNU_SOURCE" in errors[0], p.stderr)
    elif p.returncode or not runs: check(name, p.returncode == 0, p.stderr)
    else:
        run(name, [str(exe), folder])
        exe.unlink()


def readme_program():
    blocks = [b for b in re.findall(r"```c\n(.*?)```", pathlib.Path("README.md").read_text(), re.S) if "LLM_IMPLEMENTATION" in b]
    if not check("README has one program", len(blocks) == 1, f"{len(blocks)} blocks"): return None
    lines = [x for x in blocks[0].splitlines() if x.strip()]
    check("README's program is short", len(lines) <= 16, f"{len(lines)} lines")
    return write("readme.c", blocks[0])


def readme_syntax(path):
    """As a user of what is implemented elsewhere: `syntax` reads that."""
    user = write("readme_user.c", pathlib.Path(path).read_text().replace("#define LLM_IMPLEMENTATION\n", ""))
    for compiler, language in COMPILERS.items():
        compile(f"README's program, {compiler}", compiler, *language, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I.", user)


def readme_runs(path, compiler):
    """It compiles and links with each compiler, and answers. With optimisation, that takes gcc the time of build/llm.o once more, and what is made
    without would take half a minute to answer: that one answers which has its implementation from build/llm.o."""
    program = OUT / f"readme_{compiler}"
    level = "-O2" if ALL else "-O0"
    flags = [*COMPILERS[compiler], level, "-Wall", "-Wextra", "-Wpedantic", "-Werror", *CALM, "-I."]
    plain = [] if ALL else ["-DLLM_NO_SIMD"] # `make` compiles the kernels as C, `syntax` reads them as both
    if not compile(f"README's program, {compiler} {level}", compiler, *flags, *plain, path, "-x", "none", "-o", program, *LIBS): return
    if not ALL and compiler != "gcc": return
    if not ALL:
        user = write("readme_user.c", pathlib.Path(path).read_text().replace("#define LLM_IMPLEMENTATION\n", ""))
        if not compile("README's program and build/llm.o", compiler, *flags, user, "-x", "none", "build/llm.o", "-o", program, *LIBS): return
    if not pathlib.Path(MODEL).exists(): return skip(f"README's program answers, {compiler}", MODEL + " is not there")
    p = subprocess.run([program, MODEL], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    check(f"README's program answers, {compiler}", p.returncode == 0 and "Paris" in p.stdout, p.stdout + p.stderr)


# ---- what the compiled library defines and calls

def nm(*args):
    return subprocess.run(["nm", *map(str, args)], capture_output=True, text=True).stdout.splitlines()


def symbols():
    obj, lib = pathlib.Path("build/llm.o"), pathlib.Path("libllm.so")
    if not shutil.which("nm"): return skip("symbols", "nm is not installed")
    if not check("build/llm.o and libllm.so are there", obj.exists() and lib.exists(), "make lib builds them"): return
    rows = [x.split() for x in nm(obj)]
    defined = [r[-1] for r in rows if len(r) == 3 and r[1].isupper()]
    called = {r[-1] for r in rows if len(r) == 2 and r[0] == "U"}
    table = subprocess.run(["objdump", "-t", str(obj)], capture_output=True, text=True).stdout # constants with pointers lie in .data.rel.ro
    writable = re.findall(r"^\S+ [lg].{6}\s(?:\.data(?!\.rel\.ro)|\.bss)\S*\s+\S+\s+(?:\.hidden )?(?!\.)(\S+)$", table, re.M)
    foreign = lambda names: " ".join(x for x in names if not x.startswith("llm_") or x.startswith("llm__"))[:300]
    check("only llm_ names are defined", defined and not foreign(defined), foreign(defined))
    check("no forbidden call", called and not called & set(FORBIDDEN), " ".join(called & set(FORBIDDEN)))
    check("no mutable globals", table and not writable, " ".join(writable)[:300])
    exported = [x.split()[-1] for x in nm("-D", "--defined-only", lib)]
    check("libllm.so exports llm_ names only", exported and not foreign(exported), foreign(exported))
    declared = set(re.findall(r"^LLM_API [^;{(]*?\b(llm_\w+)\(", pathlib.Path("llm.h").read_text(), re.M))
    check("libllm.so exports the whole API", declared and declared <= set(exported), " ".join(sorted(declared - set(exported)))[:300])


def measures():
    text = pathlib.Path("llm.h").read_text()
    lines = re.sub(r"/\* generated: begin \*/.*?/\* generated: end \*/", "", text, flags=re.S).splitlines()
    comment = inside = 0
    for line in lines:
        s = line.strip()
        if inside or s.startswith("/*") or s.startswith("//"): comment += 1
        if s.startswith("/*") or inside: inside = "*/" not in s
    share = comment / len(lines)
    print(f"llm.h: {len(lines)} lines, {share:.1%} comments")
    check("comments", share >= COMMENTS, f"{share:.1%} of the lines are comments, at least {COMMENTS:.0%} expected")
    tags = [m[1] for m in re.finditer(r"^ \* >>([a-z0-9_-]+)", text, re.M)]
    toc = re.search(r"TABLE OF CONTENTS[^\n]*\n(.*?)\n \*\n", text, re.S)
    listed = re.findall(r">>([a-z0-9_-]+)", toc[1]) if toc else []
    check("table of contents", tags and tags == listed, f"tags {tags} but listed {listed}")


def promises():
    """Structs, enumerators and functions are those that earlier versions had."""
    for name, why in abi.everything(): check("llm.h: " + name, not why, why)


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
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", *FEW]
    if not compile("bench_linear compiles", "clang", *flags, write("bench.c", BENCH), "-o", program, *LIBS): return
    p = subprocess.run([program], capture_output=True, text=True, timeout=60)
    check("bench_linear's weights and names", p.returncode == 0 and not p.stdout and "Q4_1" in p.stderr, p.stdout + p.stderr)


def benches():
    """Programs that measure reach into the library, so a change there may break them."""
    for path in sorted(pathlib.Path("tests/bench").glob("*.c")):
        compile(f"{path} compiles", "gcc", "-std=gnu11", "-w", "-I.", "-fsyntax-only", path)


def main():
    if sys.argv[1:] not in ([], ["all"], ["quick"]): sys.exit(__doc__)
    OUT.mkdir(parents=True, exist_ok=True)
    readme, whole = readme_program(), not QUICK
    jobs = []
    if readme and whole: jobs += [(readme_runs, readme, c) for c in (COMPILERS if ALL else ("gcc", "clang++"))]
    if whole:
        stdio, folder = write("stdio_first.c", STDIO_FIRST), tiny_folder()
        jobs += [(two_units,), (bench,)] + [(include_order, stdio, folder, *mode) for mode in STDIO_MODES]
    if readme and not whole: jobs += [(readme_syntax, readme)]
    jobs += [(script, "tests/tools/format.py --check"), (script, "tests/tools/docs.py")]
    jobs += [(syntax, c, ALL or c in ("gcc", "clang++")) for c in COMPILERS] + [(benches,)] if whole else [(syntax, "clang++", False), (modes, "gcc")]
    if whole: jobs += [(symbols,)]
    jobs += [(declarations,), (refusals,), (measures,), (promises,)]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for done in [pool.submit(*job) for job in jobs]: done.result()
    print(f"{DONE['passed']} passed, {DONE['failed']} failed, {DONE['skipped']} skipped")
    sys.exit(1 if DONE["failed"] else 0)


main()
