#!/usr/bin/env python3
"""make dist: two clones of the last commit, made at different times under different umasks, give the same bytes; the checksums hold; what was
unpacked is whole, and its header compiles alone. What is not committed stops it."""
import pathlib
import re
import shutil
import subprocess
import time

from serving import check, finish, skip

ROOT = pathlib.Path("build/dist")


def run(*command, **options):
    return subprocess.run([str(x) for x in command], capture_output=True, text=True, **options)


def release(name, umask):
    """dist/ of a fresh clone: name -> bytes."""
    run("git", "clone", "-q", "--shared", ".", ROOT / name)
    p = run("make", "--no-print-directory", "dist", cwd=ROOT / name, umask=umask)
    check(f"make dist, {name}", p.returncode == 0, p.stdout + p.stderr)
    return {f.name: f.read_bytes() for f in (ROOT / name / "dist").glob("*")}


def unpacked(folder, version):
    p = run("sha256sum", "-c", "SHA256SUMS", cwd=folder)
    check("the checksums hold", p.returncode == 0 and p.stdout.count(": OK") == 2, p.stdout + p.stderr)
    run("tar", "xf", f"llm-{version}.tar.gz", cwd=folder)
    tree, header = folder / f"llm-{version}", folder / f"llm-{version}.h"
    check("the archive has the same header", header.read_bytes() == (tree / "llm.h").read_bytes())
    p = run("python3", "src/amalgamate.py", "--check", cwd=tree)
    check("the archive's header is what its src/ gives", p.returncode == 0, p.stderr)
    p = run("make", "-n", "all", cwd=tree)
    check("the archive needs no git to build", p.returncode == 0 and "git" not in p.stderr, p.stderr)
    p = run("cc", "-std=c11", "-Wall", "-Wno-misleading-indentation", "-Werror", "-fsyntax-only", "-DLLM_IMPLEMENTATION", "-x", "c", header)
    check("the header compiles alone", p.returncode == 0, p.stderr)


def main():
    if run("git", "rev-parse", "HEAD").returncode:
        skip("make dist", "this is no clone: a release is made from a commit")
        finish()
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    one = release("one", 0o022)
    time.sleep(1.1)
    two = release("two", 0o077)
    version = re.search(r'LLM_VERSION_STRING "(.*)"', (ROOT / "one/llm.h").read_text())[1]
    check("what a release has", sorted(one) == ["SHA256SUMS", f"llm-{version}.h", f"llm-{version}.tar.gz"], sorted(one))
    check("the same bytes twice", one == two, [name for name in one if one[name] != two.get(name)])
    unpacked(ROOT / "one/dist", version)
    with open(ROOT / "two/README.md", "a") as f: f.write("more\n")
    p = run("make", "--no-print-directory", "dist", cwd=ROOT / "two")
    check("what is not committed stops it", p.returncode != 0 and "commit it first" in p.stderr, p.stderr)
    shutil.rmtree(ROOT)
    finish()


main()
