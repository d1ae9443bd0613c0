#!/usr/bin/env python3
"""README's systemd unit and the Dockerfile, as far as a machine without either can tell: systemd-analyze finds no fault in the unit, a server
started by its command line writes, opens anew and ends as README says; the Dockerfile copies what is there, builds from that alone, and its health
check knows a server that answers from one that does not."""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import time

from serving import Server, check, eventually, finish, skip, tiny_model

ROOT = pathlib.Path("build/service").resolve()


def run(*command, **options):
    return subprocess.run([str(x) for x in command], capture_output=True, text=True, timeout=60, **options)


def unit():
    """The unit of README: (text, values of its keys, where the last of a key counts)."""
    text = re.search(r"```ini\n(.*?)```", pathlib.Path("README.md").read_text(), re.S)[1]
    return text, dict(re.findall(r"^(\w+)=(.*)$", text.replace("\\\n", ""), re.M))


def verified(text):
    if not shutil.which("systemd-analyze"): return skip("the unit", "systemd-analyze is missing: make setup installs it")
    path = ROOT / "llm.service"
    path.write_text(text.replace("/usr/local/bin/llm_serve", str(pathlib.Path("llm_serve").resolve())))
    p = run("systemd-analyze", "verify", path)
    check("systemd-analyze verify", p.returncode == 0 and not p.stderr, p.stderr)
    p = run("systemd-analyze", "security", "--offline=true", "--threshold=20", path)
    check("the unit's exposure is at most 2.0 of 10", p.returncode == 0, p.stdout[-200:])


def served(values):
    """The unit's command line, with folders of the test and a short drain."""
    command = values["ExecStart"].replace("%d", str(ROOT)).replace("%L", str(ROOT))
    options = shlex.split(command)[1:]
    value = lambda name: options[options.index(name) + 1]
    check("TimeoutStopSec covers --drain and --shutdown-timeout", float(values["TimeoutStopSec"]) > float(value("--drain")) + float(value("--shutdown-timeout")))
    for name in ("--model", "--port"): del options[options.index(name):options.index(name) + 2]
    options[options.index("--drain") + 1] = "2"
    (ROOT / "llm").mkdir()
    (ROOT / "keys").write_text("secret\n")
    log = pathlib.Path(value("--log-file"))
    s = Server(*options, model=tiny_model(), base=())
    check("without a key", s.request("GET", "/v1/models")[0] == 401)
    check("with one", s.request("GET", "/v1/models", None, {"Authorization": "Bearer secret"})[0] == 200)
    log.rename(log.with_suffix(".1"))
    check("ExecReload sends a HUP", values["ExecReload"] == "kill -HUP $MAINPID", values["ExecReload"])
    run("kill", "-HUP", s.process.pid)
    check("the log is opened anew", eventually(log.exists, 5))
    s.request("GET", "/v1/models", None, {"Authorization": "Bearer secret"})
    lines = lambda path: [json.loads(x) for x in path.read_text().splitlines()]
    check("a line for each request", eventually(lambda: any(x.get("status") == 200 for x in lines(log)), 5), log.read_text())
    check("the old file keeps its lines", any(x.get("status") == 401 for x in lines(log.with_suffix(".1"))))
    begin = time.time()
    s.process.terminate()
    check("while it drains, /health says 503", eventually(lambda: s.request("GET", "/health")[0] == 503, 1.5))
    check("it ends after the drain", s.process.wait(60) == 0 and time.time() - begin > 1.9)


def docker():
    text = pathlib.Path("Dockerfile").read_text().replace("\\\n", "")
    rows = [x.split(maxsplit=1) for x in text.splitlines() if x and not x.startswith("#")]
    known = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"}
    check("instructions", {r[0] for r in rows} == known, {r[0] for r in rows} ^ known)
    sources = [x for r in rows if r[0] == "COPY" and "--from" not in r[1] for x in r[1].split()[:-1]]
    there = run("git", "ls-files", *sources).stdout.split() if pathlib.Path(".git").exists() else [x for x in sources if pathlib.Path(x).exists()]
    check("what is copied is there", sorted(sources) == sorted(there), set(sources) ^ set(there))
    for x in sources: shutil.copy(x, ROOT)
    built = next(r[1] for r in rows if r[0] == "RUN" and r[1].startswith("make "))
    p = run("make", "-n", *built.split()[1:], cwd=ROOT)
    check("it builds from these files alone", p.returncode == 0 and "python" not in p.stdout and not p.stderr, p.stderr)
    taken = next(r[1] for r in rows if r[0] == "COPY" and "--from" in r[1]).split()[1:-1]
    check("what was built is taken", {pathlib.Path(x).name for x in taken} == set(built.split()[1:]), taken)
    needs = re.findall(r"^\s*(\S+?)\.so", run("ldd", "llm_serve").stdout, re.M)
    check("the image has what llm_serve loads", {pathlib.Path(x).name for x in needs} <= {"linux-vdso", "libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"}, needs)
    user = next(r[1] for r in rows if r[0] == "USER")
    check("no root", re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), user)
    entry = json.loads(next(r[1] for r in rows if r[0] == "ENTRYPOINT"))
    port = next(r[1] for r in rows if r[0] == "EXPOSE")
    check("the port that is exposed is listened on", entry[0] == "llm_serve" and entry[entry.index("--port") + 1] == port, entry)
    health = json.loads(re.search(r"CMD (\[.*\])$", next(r[1] for r in rows if r[0] == "HEALTHCHECK"))[1])
    s = Server("--host", "0.0.0.0", "--drain", "3", model=tiny_model(), base=())
    probe = lambda: run(*(x.replace(port, str(s.port)) for x in health)).returncode
    check("the health check asks that port", any(port in x for x in health), health)
    check("healthy", probe() == 0)
    s.process.terminate()
    check("not healthy while it ends", eventually(lambda: s.request("GET", "/health")[0] == 503, 2) and probe() == 1)
    check("a server ends well", s.process.wait(60) == 0)
    check("not healthy when it is gone", probe() == 1)


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    text, values = unit()
    verified(text)
    served(values)
    docker()
    shutil.rmtree(ROOT)
    finish()


main()
