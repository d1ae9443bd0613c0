#!/usr/bin/env python3
"""make install and make uninstall, as a package's build uses them: with DESTDIR. README's program is built against what was installed, with the
words of pkg-config, with libllm.so and with libllm.a, and answers. Needs the default model."""
import os
import pathlib
import re
import shutil
import subprocess

from serving import MODEL, check, finish

STAGE = pathlib.Path("build/install").resolve()
PREFIX = "/opt/llm"
ROOT = STAGE / PREFIX[1:]
WANT = {"include/llm.h", "bin/llm_cli", "bin/llm_serve", "lib/libllm.so.0", "lib/libllm.so", "lib/libllm.a", "lib/pkgconfig/llm.pc"}
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


def main():
    shutil.rmtree(STAGE, ignore_errors=True)
    make("install")
    check("what is installed", there() == WANT, there() ^ WANT)
    check("llm.pc knows nothing of DESTDIR", str(STAGE) not in (ROOT / "lib/pkgconfig/llm.pc").read_text())
    version()
    program("shared", *pkg_config("--cflags", "--libs"))
    program("static", "-static", *pkg_config("--static", "--cflags", "--libs"))
    make("uninstall")
    check("nothing is left", not there(), there())
    shutil.rmtree(STAGE)
    finish()


main()
