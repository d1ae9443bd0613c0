#!/usr/bin/env python3
"""Programs and libraries of different versions (>>api-sizes of llm.h): tests/e2e/abi.c, compiled with every recorded header of tests/data/abi, with
this one and with a later one, each run with this libllm.so and with a later one. A later version is this one with a member more at the end of every
struct that may grow. Then bad edits of the header: tests/tools/abi.py has to find each.

usage: tests/e2e/test_abi.py     needs libllm.so (make lib) and the default model, for its tokenizer (make model)
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import abi
from serving import check, finish, tiny_model

OUT = pathlib.Path("build/abi")
HEADER = pathlib.Path("llm.h").read_text()
MODEL = tiny_model()
PROGRAM = "tests/e2e/abi.c"


def later():
    """The header of a later version."""
    api, text = abi.Api(HEADER), HEADER.replace('#define LLM_VERSION_STRING "', '#define LLM_VERSION_STRING "later than ')
    for name in [*api.program, "llm_model_info", "llm_openai_info", "llm_outputs"]:
        text, n = re.subn(rf"(typedef struct {name} \{{.*?)\n\}} {name};", rf"\1\n    double later;\n}} {name};", text, flags=re.S)
        check(f"{name} is one struct", n == 1, n)
    return text


def compile(name, *command):
    p = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    return check(name, p.returncode == 0 and not p.stderr, p.stdout + p.stderr)


def library(folder):
    """libllm.so of a header, compiled quickly."""
    compile(f"libllm.so, {folder.name}", "cc", "-std=c11", "-O0", "-w", "-DLLM_NO_SIMD", "-DLLM_IMPLEMENTATION", "-fPIC", "-fvisibility=hidden", "-shared",
            "-Wl,-soname,libllm.so.0", "-x", "c", folder / "llm.h", "-o", folder / "libllm.so.0", "-lm", "-lpthread")


def program(folder, name="program", compiler=("cc", "-std=c11", "-x", "c"), flags=()):
    """abi.c with the header of a folder. Which library it runs with is said when it starts."""
    compile(f"{name}, {folder.name}", *compiler, "-O1", "-Wall", "-Wextra", *flags, "-I", folder, PROGRAM, "-x", "none", "-o", folder / name,
            "-L", OUT / "present", "-l:libllm.so.0", "-lm", "-lpthread")


def run(of, name, libraries):
    """What a program prints with a library."""
    p = subprocess.run([str(OUT / of / name), MODEL], capture_output=True, text=True, errors="replace", timeout=600,
                       env=dict(os.environ, LD_LIBRARY_PATH=str((OUT / libraries).resolve())))
    return p.stdout + (f"exit {p.returncode}: {p.stderr}" if p.returncode else "")


def same(name, got, want):
    rows = [f"{a!r} instead of {b!r}" for a, b in zip(got.splitlines(), want.splitlines()) if a != b]
    check(name, got == want and len(want.splitlines()) > 20 and "exit" not in got[-200:], rows[:3] or got[-300:])


def build():
    """A folder for each version with its header, programs and library; the names of the earlier ones."""
    headers = {"present": HEADER, "later": later(), **abi.recorded_headers()}
    for name, text in headers.items():
        (OUT / name).mkdir(parents=True, exist_ok=True)
        (OUT / name / "llm.h").write_text(text)
    shutil.copy("libllm.so", OUT / "present/libllm.so.0")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [pool.submit(library, OUT / "later")] + [pool.submit(program, OUT / name) for name in headers]
        jobs.append(pool.submit(program, OUT / "present", "program_cpp", ("c++", "-std=c++20", "-x", "c++")))
        jobs.append(pool.submit(program, OUT / "later", "asking", flags=("-DABI_LATER", "-Wno-unused-variable")))
        for job in jobs: job.result()
    return [name for name in headers if name not in ("present", "later")]


def versions(earlier):
    """Every program prints with a library what that library's own program prints."""
    now, then = run("present", "program", "present"), run("later", "program", "later")
    same("C++ is like C", run("present", "program_cpp", "present"), now)
    check("a record is there", earlier)
    for version in earlier: same(f"a program of {version} with this library", run(version, "program", "present"), now)
    for version in [*earlier, "present"]: same(f"a program of {version} with a later library", run(version, "program", "later"), then)
    same("a later program that asks for nothing new", run("later", "program", "present"), now)


def asking():
    """A later program that sets what only its version has is refused, struct by struct, and goes on."""
    said = run("later", "asking", "present")
    version = abi.Api(HEADER).version
    rows = re.findall(r"^(llm_\w+)((?:\.| of )[\w.]+)?: (.*)$", said, re.M)
    want = f": the program sets what version {version} of the library does not know: a later libllm is needed"
    for struct, where, sentence in rows: check(f"{struct}{where} is refused", sentence.endswith(want) and sentence.startswith("llm_"), sentence)
    read = set(abi.Api(HEADER).program) - {"llm_engine_stats", "llm_event", "llm_output", "llm_request_metrics", "llm_template_caps",
                                           "llm_completion_output", "llm_request_output", "llm_estimate", "llm_answer", "llm_media_info"} # these are only filled in
    check("all structs that are read were asked for", read == {x[0] for x in rows}, f"{read ^ {x[0] for x in rows}}")
    same("what was said otherwise", "".join(x + "\n" for x in said.splitlines() if want not in x), run("present", "program", "present"))


# name: what is replaced in llm.h, by what, and a part of what abi.py says
EDITS = {
    "a member in the middle": ("    int32_t min_tokens; ", "    int32_t between;\n    int32_t min_tokens; ", 'llm_sampling member 1 was "int32_t min_tokens", and is "int32_t between"'),
    "a member that is gone": ("    int64_t seed;\n    int32_t n; ", "    int32_t n; ", 'was "int64_t seed", and is "int32_t n"'),
    "another type": ("    float top_p; ", "    int32_t top_p; ", 'was "float top_p", and is "int32_t top_p"'),
    "an array of another length": ("    char fingerprint[24]; ", "    char fingerprint[32]; ", "char fingerprint[32]"),
    "a member in the padding": ("} llm_event;", "    int32_t one;\n} llm_event;", "int32_t one stands in what was padding"),
    "a member that leaves padding": ("} llm_model_config;", "    int32_t one;\n} llm_model_config;", "llm_model_config grows by members of 8 bytes"),
    "an inner struct that grows by 4 bytes": ("} llm_template_caps;", "    int32_t one;\n} llm_template_caps;", "llm_template_caps grows by members of 8 bytes"),
    "a struct that never changes": ("} llm_early_stop;", "    int64_t more;\n} llm_early_stop;", "llm_early_stop never changes, but has new members"),
    "a backend's struct": ("} llm_norm_op;", "    int64_t more;\n} llm_norm_op;", "raise LLM_BACKEND_ABI"),
    "an enumerator between others": ("    LLM_KV_F16,", "    LLM_KV_NEW, LLM_KV_F16,", "LLM_KV_F16 was 2, and is 3"),
    "an enumerator that is gone": ("    LLM_KV_INT8,\n    LLM_KV_INT4", "    LLM_KV_INT8", "LLM_KV_INT4 was 7, and is gone"),
    "a function that is gone": ("LLM_API double llm_now(void);", "", 'llm_now was "double llm_now(void)", and is "gone"'),
    "a parameter more": ("llm_engine_wait(llm_engine *engine, double timeout_s);", "llm_engine_wait(llm_engine *engine, double timeout_s, int x);",
                         "and is \"void llm_engine_wait(llm_engine *, double, int)\""),
    "a callback's parameter": ("(void *user, int level, const char *message);", "(void *user, const char *message);", "llm_log_fn was"),
    "a function without a twin": ("LLM_API void llm_setup_free(llm_setup *s);", "LLM_API void llm_setup_free(llm_setup *s);\nLLM_API void llm_setup_new(const llm_setup *s);", "llm_setup_new_sized"),
    "a struct that nobody sorted": ("typedef struct llm_engine_stats {", "typedef struct llm_other {\n    int x;\n} llm_other;\ntypedef struct llm_engine_stats {", "api-sizes never change"),
    "a size in another place": ("sizeof(llm_output), sizeof(llm_request_metrics)", "sizeof(llm_request_metrics), sizeof(llm_output)", "LLM_SIZES_HERE other structs"),
}
GOOD = {
    "a member more": ("} llm_sampling;", "    double one;\n} llm_sampling;"), "two members of 4 bytes": ("} llm_model_config;", "    int32_t one, two;\n} llm_model_config;"),
    "a model's fact more": ("} llm_model_info;", "    int32_t one;\n} llm_model_info;"), "a parameter of another name": ("llm_engine *engine, double timeout_s);", "llm_engine *e, double seconds);"),
    "an enumerator more": ("    LLM_KV_INT4\n", "    LLM_KV_INT4,\n    LLM_KV_NEW\n"),
    "a backend's struct with another number": ("#define LLM_BACKEND_ABI ", "#define LLM_BACKEND_ABI 1", "} llm_norm_op;", "    int64_t more;\n} llm_norm_op;"),
}


def edits():
    """What abi.py is there to find, it finds; what is allowed passes."""
    record = abi.Record(abi.Api(HEADER).record())
    sized = pathlib.Path("src/serve/sized.c").read_text()

    def faults(text):
        api = abi.Api(text)
        results = abi.twins(api) + abi.lists(api, text, sized) + abi.compare(record, abi.Record(api.record()))
        return "\n".join(f"{name} {why}" for name, why in results if why)
    for name, (old, new, want) in EDITS.items():
        check(f"{name}: the text is there", old in HEADER, old)
        found = faults(HEADER.replace(old, new, 1))
        check(f"{name} is found", want in found, found)
    for name, pairs in GOOD.items():
        text = HEADER
        for old, new in zip(pairs[::2], pairs[1::2]):
            check(f"{name}: the text is there", old in text, old)
            text = text.replace(old, new, 1)
        found = faults(text)
        check(f"{name} is allowed", not found, found)
    found = faults(HEADER)
    check("nothing is found in the header itself", not found, found)


def exported():
    """The library exports every function that was recorded."""
    p = subprocess.run(["nm", "-D", "--defined-only", "libllm.so"], capture_output=True, text=True)
    names = {row.split()[-1] for row in p.stdout.splitlines() if row.strip()}
    for path in sorted(abi.RECORDS.glob("*.txt")):
        gone = set(re.findall(r"^function .*?(llm_\w+)\(", path.read_text(), re.M)) - names
        check(f"libllm.so exports all of {path.stem}", names and not gone, gone)


if __name__ == "__main__":
    edits()
    exported()
    versions(build())
    asking()
    finish()
