#!/usr/bin/env python3
"""make install and make uninstall, as a package's build uses them: with DESTDIR. README's program is built against what was installed, with the
words of pkg-config and by CMake, with libllm.so and with libllm.a, and answers; man pages are read by groff, completions by their shells. Needs the
default model."""
import os
import pathlib
import re
import shutil
import subprocess

from serving import MODEL, check, finish, skip

STAGE = pathlib.Path("build/install").resolve()
PREFIX = "/opt/llm"
ROOT = STAGE / PREFIX[1:]
WANT = {"include/llm.h", "bin/llm_cli", "bin/llm_serve", "lib/libllm.so.0", "lib/libllm.so", "lib/libllm.a", "lib/pkgconfig/llm.pc", "lib/cmake/llm/llmConfig.cmake", "lib/cmake/llm/llmConfigVersion.cmake"}
PROGRAMS = ("llm_cli", "llm_serve")
for p in PROGRAMS: WANT |= {f"share/man/man1/{p}.1", f"share/bash-completion/completions/{p}", f"share/zsh/site-functions/_{p}", f"share/fish/vendor_completions.d/{p}.fish"}
if pathlib.Path("libllm_cuda.so").exists(): WANT.add("bin/libllm_cuda.so")
ENV = dict(os.environ, PKG_CONFIG_PATH=str(ROOT / "lib/pkgconfig"), PKG_CONFIG_SYSROOT_DIR=str(STAGE))


def run(*command, **options):
    return subprocess.run([str(x) for x in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)


def make(target):
    p = run("make", "--no-print-directory", target, f"DESTDIR={STAGE}", f"PREFIX={PREFIX}")
    check("make " + target, p.returncode == 0, p.stdout + p.stderr)


def there():
    return {str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() or p.is_symlink()}


def pkg_config(*what):
    return run("pkg-config", *what, "llm", env=ENV).stdout.split()


def program(name, *flags):
    """README's program without the line that would compile the library into it."""
    source = next(b for b in re.findall(r"```c\n(.*?)```", pathlib.Path("README.md").read_text(), re.S) if "LLM_IMPLEMENTATION" in b)
    path, out = STAGE / "main.c", STAGE / name
    path.write_text(source.replace("#define LLM_IMPLEMENTATION\n", ""))
    p = run("cc", "-O2", path, "-o", out, *flags)
    if not check(name + " is built", p.returncode == 0, p.stderr): return
    loads = "libllm.so.0" in run("readelf", "-d", out).stdout
    check(name + " loads libllm.so.0", loads == (name == "shared"))
    p = run(out, MODEL, env=dict(os.environ, LD_LIBRARY_PATH=str(ROOT / "lib")))
    check(name + " answers", p.returncode == 0 and "Paris" in p.stdout, p.stdout + p.stderr)


def version():
    number, text = re.search(r'#define LLM_VERSION (\d+).*\n#define LLM_VERSION_STRING "(.*)"', pathlib.Path("llm.h").read_text()).groups()
    n = int(number)
    check("LLM_VERSION_STRING is LLM_VERSION", text == f"{n // 10000}.{n // 100 % 100}.{n % 100}", (number, text))
    check("pkg-config's version", pkg_config("--modversion") == [text], pkg_config("--modversion"))
    check("the program's version", run(ROOT / "bin/llm_cli", "--version").stdout.startswith(f"llm_cli {text} "))


def options(program):
    """The spellings that --help-all lists with an effect, and the words that the value of each may be."""
    text = run(ROOT / "bin" / program, "--help-all").stdout.split("\nUnderstood, without effect")[0]
    return re.findall(r"^ {2,6}(-{1,2}[a-z][a-z-]*)(?:, (--[a-z-]+))?", text, re.M)


def man(program):
    """Every option stands in the page, and groff has nothing to say."""
    page = ROOT / f"share/man/man1/{program}.1"
    if not shutil.which("groff"): return skip("man pages", "groff is not installed")
    p = run("groff", "-man", "-Tutf8", "-ww", "-P-cbou", page)
    text = re.sub(r"[\u2010\u2212]\n *", "-", p.stdout).replace("\u2212", "-").replace("\u2010", "-")
    check(f"{program}.1: no warning", p.returncode == 0 and not p.stderr, p.stderr)
    missing = [x for pair in options(program) for x in pair if x and not re.search(r"(^|[ ,])" + re.escape(x) + r"([ ,]|$)", text, re.M)]
    check(f"{program}.1 has every option", not missing and len(options(program)) > 80, missing)
    check(f"{program}.1 has its parts", all(re.search("^" + x + "$", text, re.M) for x in ("NAME", "SYNOPSIS", "EXAMPLES", "MODEL", "SEE ALSO")), text[:400])
    if shutil.which("mandoc"): check(f"{program}.1: mandoc", run("mandoc", "-Tlint", "-W", "error", page).returncode == 0)


def bash(program, line):
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    script = f"source {ROOT}/share/bash-completion/completions/{program}; COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _{program}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    p = run("bash", "--norc", "-c", script, cwd=STAGE)
    check(f"bash: {line}: nothing is said", not p.stderr, p.stderr)
    return sorted(x for x in p.stdout.split("\n") if x)


def completions():
    (STAGE / "a model.gguf").write_text("")
    check("bash: commands", {"tokenize"} <= set(bash("llm_cli", "llm_cli tok")) and bash("llm_cli", "llm_cli convert-") == ["convert-eagle"], bash("llm_cli", "llm_cli convert-"))
    check("bash: options", bash("llm_serve", "llm_serve --api-k") == ["--api-key", "--api-key-file"], bash("llm_serve", "llm_serve --api-k"))
    check("bash: words of an option", bash("llm_cli", "llm_cli chat --device ") == ["auto", "cpu", "cuda"] and bash("llm_cli", "llm_cli --device = cu") == ["cuda"] and bash("llm_cli", "llm_cli --device =") == ["auto", "cpu", "cuda"])
    check("bash: files", bash("llm_cli", "llm_cli -m a") == ["a model.gguf"] and bash("llm_serve", "llm_serve a") == ["a model.gguf"], bash("llm_cli", "llm_cli -m a"))
    check("bash: nothing for a number", not bash("llm_cli", "llm_cli --max-tokens "))
    for program in PROGRAMS:
        offered = set(bash(program, f"{program} -"))
        check(f"bash: every option of {program}", {x for pair in options(program) for x in pair if x} <= offered, {x for pair in options(program) for x in pair if x} - offered)
    if shutil.which("zsh"):
        for program in PROGRAMS:
            check(f"zsh reads _{program}", run("zsh", "-n", ROOT / f"share/zsh/site-functions/_{program}").returncode == 0)
            p = run("zsh", "-fc", f"fpath=({ROOT}/share/zsh/site-functions $fpath); autoload -Uz compinit; compinit -D -u; echo $_comps[{program}]")
            check(f"zsh finds _{program}", p.stdout == f"_{program}\n", p.stdout + p.stderr)
    else: skip("zsh", "it is not installed")
    if not shutil.which("fish"): return skip("fish", "it is not installed")
    fish = lambda line: [x.split("\t")[0] for x in run("fish", "--no-config", "-c", f"source {ROOT}/share/fish/vendor_completions.d/{line.split()[0]}.fish; complete -C '{line}'").stdout.splitlines()]
    check("fish", fish("llm_cli --device ") == ["auto", "cpu", "cuda"] and "tokenize" in fish("llm_cli tok") and fish("llm_serve --api-key-f") == ["--api-key-file"], (fish("llm_cli --device "), fish("llm_cli tok"), fish("llm_serve --api-key-f")))


CMAKE = """cmake_minimum_required(VERSION 3.13)
project(user C)
find_package(llm {version} REQUIRED)
add_executable(shared main.c)
target_link_libraries(shared llm::llm)
add_executable(static main.c)
target_link_libraries(static llm::llm_static)
"""


def cmake(version):
    """A project that finds us, for as much of a version as there is, and links either library; a later version is not found."""
    if not shutil.which("cmake"): return skip("CMake", "it is not installed")
    folder = STAGE / "project"
    folder.mkdir()
    shutil.copy(STAGE / "main.c", folder)
    configure = lambda wanted, *more: ((folder / "CMakeLists.txt").write_text(CMAKE.format(version=wanted)), run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={ROOT}", *more))[1]
    p = configure(version)
    if not check("CMake finds llm", p.returncode == 0, p.stdout + p.stderr): return
    p = run("cmake", "--build", folder / "build")
    if not check("CMake builds", p.returncode == 0, p.stdout + p.stderr): return
    for name in ("shared", "static"):
        loads = "libllm.so.0" in run("readelf", "-d", folder / "build" / name).stdout
        p = run(folder / "build" / name, MODEL)
        check(f"CMake's {name} program answers", loads == (name == "shared") and p.returncode == 0 and "Paris" in p.stdout, (loads, p.stdout + p.stderr))
    p = configure(version, "-Dllm_USE_STATIC_LIBS=ON")
    run("cmake", "--build", folder / "build", "--target", "shared")
    check("llm_USE_STATIC_LIBS", "libllm" not in run("readelf", "-d", folder / "build/shared").stdout, p.stderr)
    check("a later version is not found", configure("99").returncode != 0)


def main():
    shutil.rmtree(STAGE, ignore_errors=True)
    make("install")
    check("what is installed", there() == WANT, there() ^ WANT)
    check("llm.pc knows nothing of DESTDIR", str(STAGE) not in (ROOT / "lib/pkgconfig/llm.pc").read_text())
    version()
    program("shared", *pkg_config("--cflags", "--libs"))
    program("static", "-static", *pkg_config("--static", "--cflags", "--libs"))
    for name in PROGRAMS: man(name)
    completions()
    cmake(pkg_config("--modversion")[0])
    make("uninstall")
    check("nothing is left", not there() and not (ROOT / "lib/cmake/llm").exists(), there())
    shutil.rmtree(STAGE)
    finish()


main()
