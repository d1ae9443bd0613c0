#!/usr/bin/env python3
"""llm_cli pull, list, rm and -hf against a server on this machine that speaks the Hub's API: lists of files (?blobs=true), files with ranges and
redirects to another port, and what goes wrong: cut connections, wrong checksums, refusals, hostile names, two pulls at once. Where
huggingface_hub is installed (build/python, or HF_PYTHON) it reads the cache that was made. Prints "N passed, N failed, N skipped"."""
import hashlib
import http.server
import json
import os
import pathlib
import pty
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import serving
from serving import check, checkpoint, finish, skip

CLI = os.environ.get("LLM_CLI", "./llm_cli")
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="llm_pull_"))
COMMIT, TOKEN = "0123456789abcdef0123456789abcdef01234567", 'hf_"se\\cret'
RANDOM = random.Random(1)


def noise(n): return RANDOM.randbytes(n)


class Repo:
    """files: name -> bytes. cuts: name -> how many answers end after `cut` bytes. lies: what the list says instead."""

    def __init__(self, files, private=False, lfs=(".gguf", ".safetensors"), **more):
        self.files, self.private, self.lfs, self.more = files, private, lfs, more
        self.cuts, self.cut, self.slow, self.ranges, self.wrong = {}, 100_000, 0, True, {}
        self.asked = []  # (name, range) of files

    def siblings(self):
        out = []
        for name, data in self.files.items():
            row = {"rfilename": name, "size": len(data), "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
            if name.endswith(self.lfs): row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            out.append(row)
        return out


GGUF = {"model-Q4_K_M.gguf": noise(300_000), "model-Q8_0.gguf": noise(5000), "mmproj-F16.gguf": noise(900), "README.md": b"# x",
        "F16/model-F16-00001-of-00002.gguf": noise(4000), "F16/model-F16-00002-of-00002.gguf": noise(3000), "Model.iq3_xs.gguf": noise(100)}
FOLDER = {p.name: p.read_bytes() for p in pathlib.Path(checkpoint("llama")).iterdir() if p.is_file()}
FOLDER.update({"pytorch_model.bin": b"x" * 100, "onnx/model.onnx": b"y", "original/params.json": b"{}", "1_Pooling/config.json": b"{}", "empty.txt": b""})
REPOS = {"org/gguf": Repo(GGUF), "org/folder": Repo(FOLDER), "org/private": Repo({"a-Q8_0.gguf": noise(2000)}, private=True),
         "org/cut": Repo({"a-Q8_0.gguf": noise(450_000)}), "org/dead": Repo({"a-Q8_0.gguf": noise(450_000)}), "org/old": Repo({"a-Q8_0.gguf": noise(450_000)}),
         "org/wrong": Repo({"a-Q8_0.gguf": noise(1000)}), "org/wrong-small": Repo({"config.json": b"{}", "model.safetensors": noise(100)}),
         "org/slow": Repo({"a-Q8_0.gguf": noise(400_000)}), "org/huge": Repo({"a-Q8_0.gguf": b"x"}), "org/empty": Repo({"README.md": b"x"}),
         "org/long": Repo({"a-Q8_0.gguf": b"x" * 10}), "org/odd": Repo({"sub dir/a b%ä-Q8_0.gguf": noise(100)})}
SEEN = []  # (port's role, path, Authorization)


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_): pass

    def say(self, status, body=b"", **headers):
        self.send_response(status)
        for k, v in headers.items(): self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        role, path = self.server.role, self.path
        SEEN.append((role, path, self.headers.get("Authorization")))
        api = re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/revision/([\w.-]+)\?blobs=true", path)
        file = re.fullmatch(r"/([\w.-]+/[\w.-]+)/resolve/(\w+)/(.+)", path)
        name = (api or file)[1] if api or file else None
        if name == "org/gated": return self.say(403)
        if name == "org/flood": return self.flood()
        if name not in REPOS or (api and api[2] not in ("main", "v1", COMMIT)): return self.say(404, b"no such repository")
        repo = REPOS[name]
        if repo.private and role == "hub" and self.headers.get("Authorization") != "Bearer " + TOKEN: return self.say(401, b"who are you")
        if api: return self.say(200, json.dumps({"id": name, "sha": COMMIT, "siblings": repo.siblings(), **repo.more}).encode(), Content_Type="application/json")
        from urllib.parse import unquote
        wanted = unquote(file[3])
        if role == "hub" and wanted.endswith(repo.lfs): return self.say(302, Location=f"http://127.0.0.1:{CDN.server_port}{path}")
        self.file(repo, wanted)

    def flood(self):
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(40): self.wfile.write(b" " * (1 << 20))
        except OSError: pass
        self.close_connection = True

    def file(self, repo, name):
        data = repo.wrong.get(name, repo.files[name])
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        repo.asked.append((name, self.headers.get("Range")))
        start = int(asked[1]) if asked and repo.ranges else 0
        self.send_response(206 if start else 200)
        if start: self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        data = data[start:]
        if repo.cuts.get(name, 0) > 0:
            repo.cuts[name] -= 1
            data = data[:repo.cut]
            self.close_connection = True
        try:
            for i in range(0, len(data), 20_000):
                self.wfile.write(data[i:i + 20_000])
                if repo.slow: time.sleep(repo.slow)
        except OSError: pass
        if self.close_connection: self.connection.close()


def serve(role):
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    s.handle_error = lambda *_: None  # a client that was killed
    s.role, s.daemon_threads = role, True
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return s


HUB, CDN = serve("hub"), serve("cdn")


def env(cache, **more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "LLM_ARG_")) and "proxy" not in k.lower()}
    return {**clean, "HF_HUB_CACHE": str(cache), "HF_HOME": str(ROOM / "home"), "HF_ENDPOINT": f"http://127.0.0.1:{HUB.server_port}/", **more}


def cli(cache, *words, **more):
    return subprocess.run([CLI, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, env=env(cache, **more))


def pull(cache, name, *words, **more): return cli(cache, "pull", name, *words, **more)


def fails(what, says, p, code=1):
    words = [says] if isinstance(says, str) else says
    check(what, p.returncode == code and all(w in p.stderr for w in words) and not p.stdout and p.stderr.count("\n") == 1, (p.returncode, p.stdout, p.stderr))


def repo_folder(cache, name): return cache / ("models--" + name.replace("/", "--"))


def tree(folder): return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def test_gguf():
    cache, repo = ROOM / "gguf", REPOS["org/gguf"]
    p = pull(cache, "org/gguf")
    path = pathlib.Path(p.stdout.strip())
    check("pull: Q4_K_M of several, its path alone is written", p.returncode == 0 and path == repo_folder(cache, "org/gguf") / "snapshots" / COMMIT / "model-Q4_K_M.gguf" and not p.stderr, (p.stdout, p.stderr))
    check("pull: the bytes", path.read_bytes() == GGUF["model-Q4_K_M.gguf"])
    sha, sees = (hashlib.sha256(GGUF[name]).hexdigest() for name in ("model-Q4_K_M.gguf", "mmproj-F16.gguf"))
    check("pull: Hugging Face's layout", os.readlink(path) == f"../../blobs/{sha}" and tree(repo_folder(cache, "org/gguf")) == [*sorted((f"blobs/{sha}", f"blobs/{sees}")), "refs/main", f"snapshots/{COMMIT}/mmproj-F16.gguf", f"snapshots/{COMMIT}/model-Q4_K_M.gguf"] and (repo_folder(cache, "org/gguf") / "refs/main").read_text() == COMMIT, tree(cache))
    n = len(repo.asked)
    check("pull again: nothing is fetched", pull(cache, "org/gguf").stdout.strip() == str(path) and len(repo.asked) == n)
    p = pull(cache, "org/gguf:f16")
    check("pull: all parts of a split file, by a name in other case", p.stdout.strip().endswith("F16/model-F16-00001-of-00002.gguf") and [pathlib.Path(p.stdout.strip()).read_bytes(), pathlib.Path(p.stdout.strip().replace("00001-of", "00002-of")).read_bytes()] == [GGUF[x] for x in sorted(GGUF) if x.startswith("F16/")], (p.stdout, p.stderr))
    check("pull: a quantisation in another spelling", pull(cache, "org/gguf:IQ3_XS").stdout.strip().endswith("Model.iq3_xs.gguf"))
    check("pull: by a tag", pull(cache, "org/gguf:Q8_0@v1").returncode == 0 and (repo_folder(cache, "org/gguf") / "refs/v1").read_text() == COMMIT)
    fails("pull: no such quantisation", ["Q5_1 is not there", "Q4_K_M, Q8_0, F16, iq3_xs"], pull(cache, "org/gguf:Q5_1"))
    fails("pull: K_M is none", "K_M is not there", pull(cache, "org/gguf:K_M"))
    check("pull: what a model sees with comes along, once", sum("mmproj" in x for x in tree(cache)) == 1, tree(cache))
    check("pull: a name that must be escaped", pull(cache, "org/odd").stdout.strip().endswith("sub dir/a b%ä-Q8_0.gguf"), tree(cache))
    rows = json.loads(cli(cache, "list", "--json").stdout)
    check("list --json", {(r["name"], r["format"], r["bytes"]) for r in rows} == {("org/gguf:Q4_K_M", "gguf", 300900), ("org/gguf:Q8_0", "gguf", 5900), ("org/gguf:F16", "gguf", 7900), ("org/gguf:iq3_xs", "gguf", 1000), ("org/odd:Q8_0", "gguf", 100)} and all(abs(r["modified"] - time.time()) < 600 for r in rows), rows)
    p = cli(ROOM / "nowhere", "list", "--json", "--download-dir", str(cache))
    check("list of a cache that is named", json.loads(p.stdout) == rows and not p.stderr, p.stderr)
    text = cli(cache, "list").stdout
    check("list: a table", text.startswith("NAME") and "org/gguf:F16" in text and time.strftime("%Y-%m") in text, text)
    return cache


def test_remove(cache):
    outside = ROOM / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    repo = repo_folder(cache, "org/gguf")
    (repo / "snapshots" / COMMIT / "away").symlink_to(outside)
    fails("rm: nobody to ask", "-y", cli(cache, "rm", "org/gguf"), 2)
    fails("rm: not there", "not in the cache", cli(cache, "rm", "-y", "org/nothing"))
    fails("rm: no such quantisation", "Q5_1 is not in the cache", cli(cache, "rm", "-y", "org/gguf:Q5_1"))
    for bad in ("..", "org/..", "../x", "/etc", "org/x/y", "org/gguf@v1"): fails(f"rm {bad}: refused", "expected", cli(cache, "rm", "-y", bad), 2)
    p = cli(cache, "rm", "-y", "org/gguf:F16")
    check("rm of a quantisation", p.returncode == 0 and [x for x in tree(repo) if "F16" in x] == [f"snapshots/{COMMIT}/mmproj-F16.gguf"] and len(list((repo / "blobs").iterdir())) == 4, (p.stderr, tree(repo)))
    (repo / "snapshots/fedc").mkdir()
    (repo / "snapshots/fedc/other.Q4_1.gguf").symlink_to(os.readlink(repo / "snapshots" / COMMIT / "model-Q4_K_M.gguf"))
    check("rm: bytes that another name has stay", cli(cache, "rm", "-y", "org/gguf:Q4_K_M").returncode == 0 and (repo / "snapshots/fedc/other.Q4_1.gguf").read_bytes() == GGUF["model-Q4_K_M.gguf"])
    (repo / "snapshots/fedc/evil-Q2_K.gguf").symlink_to(outside / "kept")
    cli(cache, "rm", "-y", "org/gguf:Q2_K")
    check("rm: a link that leads out is removed, not followed", (outside / "kept").exists() and not (repo / "snapshots/fedc/evil-Q2_K.gguf").is_symlink())
    check("rm of all", cli(cache, "rm", "-y", "org/gguf").returncode == 0 and not repo.exists() and not (cache / ".locks/models--org--gguf").exists() and (outside / "kept").exists(), tree(cache))
    (cache / "models--org--linked").symlink_to(outside)
    fails("rm: a repository that is a link", "a link", cli(cache, "rm", "-y", "org/linked"))
    check("rm: nothing outside", (outside / "kept").exists())


def test_folder():
    cache = ROOM / "folder"
    p = pull(cache, "org/folder")
    path = pathlib.Path(p.stdout.strip())
    want = sorted([x for x in FOLDER if "/" not in x and x.endswith((".json", ".txt", ".jinja", ".model", ".safetensors"))] + ["1_Pooling/config.json"])
    check("pull of a folder: what a model needs, and no more", p.returncode == 0 and tree(path) == want and all((path / x).read_bytes() == FOLDER[x] for x in want), (p.stderr, tree(path)))
    check("links below a folder", os.readlink(path / "1_Pooling/config.json").startswith("../../../blobs/"))
    ask = ("generate", "--token-ids", "[5,6,7]", "-n", "4", "--temp", "0", "--json")
    first = cli(cache, *ask, "-hf", "org/folder")
    n = len(SEEN)
    again = cli(cache, *ask, "--hf-repo", "org/folder", HF_ENDPOINT="http://127.0.0.1:1")
    check("-hf: from the cache nobody is asked", first.returncode == 0 and again.returncode == 0 and len(SEEN) == n and json.loads(first.stdout)["token_ids"] == json.loads(again.stdout)["token_ids"], first.stderr + again.stderr)
    new = ROOM / "fresh"
    check("-hf fetches what is not there", cli(new, *ask, "-hf", "org/folder").returncode == 0 and repo_folder(new, "org/folder").exists())
    check("-m ORG/NAME finds it", cli(new, *ask, "-m", "org/folder").returncode == 0)
    fails("-m and -hf", ["-hf", "one of them"], cli(new, *ask, "-hf", "org/folder", "-m", "x"), 2)
    fails("-m of what is not there says how", "llm_cli pull org/other", cli(new, *ask, "-m", "org/other"))
    fails("HF_HUB_OFFLINE", "HF_HUB_OFFLINE", cli(new, *ask, "-hf", "org/gguf", HF_HUB_OFFLINE="1"))
    check("list: safetensors", [(r["name"], r["format"], r["quant"]) for r in json.loads(cli(cache, "list", "--json").stdout)] == [("org/folder", "safetensors", None)])
    server = subprocess.Popen([serving.SERVE, "-hf", "org/folder", "--port", "0", "--max-model-len", "64"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env(cache))
    line = server.stdout.readline()
    check("llm_serve -hf", line.startswith("listening on "), line)
    if line:
        import urllib.request
        models = json.load(urllib.request.urlopen(f"http://127.0.0.1:{line.strip().rsplit(':', 1)[1]}/v1/models"))
        check("llm_serve -hf: the model's name", models["data"][0]["id"] == "org/folder", models)
    server.terminate()
    server.wait()
    return cache


def test_cut():
    cache, repo = ROOM / "cut", REPOS["org/cut"]
    repo.cuts = {"a-Q8_0.gguf": 3}
    p = pull(cache, "org/cut")
    check("cut connections: it goes on where they ended", p.returncode == 0 and pathlib.Path(p.stdout.strip()).read_bytes() == repo.files["a-Q8_0.gguf"] and [r for _, r in repo.asked] == [None, "bytes=100000-", "bytes=200000-", "bytes=300000-"], (p.stderr, repo.asked))
    repo = REPOS["org/dead"]
    repo.slow = 0.2
    child = subprocess.Popen([CLI, "pull", "org/dead"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env(cache), start_new_session=True)
    part = repo_folder(cache, "org/dead") / "blobs"
    limit = time.time() + 60
    while time.time() < limit and not any(f.stat().st_size >= 60_000 for f in part.glob("*.incomplete")): time.sleep(0.05)
    os.killpg(child.pid, 9)
    child.wait()
    check("a killed pull: nothing has a name yet", not (repo_folder(cache, "org/dead") / "snapshots").exists() and len(list(part.glob("*.incomplete"))) == 1)
    check("a killed pull is listed", [(r["name"], r["format"]) for r in json.loads(cli(cache, "list", "--json").stdout) if "dead" in r["name"]] == [("org/dead", "incomplete")])
    repo.slow, have = 0, next(part.glob("*.incomplete")).stat().st_size
    p = pull(cache, "org/dead")
    check("a killed pull goes on", p.returncode == 0 and pathlib.Path(p.stdout.strip()).read_bytes() == repo.files["a-Q8_0.gguf"] and repo.asked[-1][1] == f"bytes={have}-" and have > 0, (p.stderr, repo.asked, have))
    repo = REPOS["org/old"]
    repo.ranges, repo.cuts = False, {"a-Q8_0.gguf": 1}
    p = pull(cache, "org/old")
    check("a server without ranges: from the beginning", p.returncode == 0 and pathlib.Path(p.stdout.strip()).read_bytes() == repo.files["a-Q8_0.gguf"], (p.stderr, repo.asked))


def test_wrong():
    cache = ROOM / "wrong"
    for name, file in (("org/wrong", "a-Q8_0.gguf"), ("org/wrong-small", "config.json")):
        repo = REPOS[name]
        good = repo.files[file]
        repo.wrong = {file: bytes([good[0] ^ 1]) + good[1:]}
        fails(f"{name}: the checksum is wrong", ["checksum", file, "deleted"], pull(cache, name))
        check(f"{name}: it is gone, and has no name", not list((repo_folder(cache, name) / "blobs").glob("*.incomplete")) and not (repo_folder(cache, name) / "snapshots").exists(), tree(cache))
        repo.wrong = {}
        check(f"{name}: the next try is right", pull(cache, name).returncode == 0)
    repo = REPOS["org/long"]
    repo.wrong = {"a-Q8_0.gguf": b"y" * 20}
    fails("more bytes than were said", "20 bytes came, and the Hub says 10", pull(cache, "org/long"))


def test_refused():
    cache = ROOM / "refused"
    fails("401 without a token", ["401", "HF_TOKEN"], pull(cache, "org/private"))
    fails("401 with a wrong one", ["401", "does not take this HF_TOKEN"], pull(cache, "org/private", HF_TOKEN="wrong"))
    SEEN.clear()
    check("a private model with HF_TOKEN", pull(cache, "org/private", HF_TOKEN=TOKEN).returncode == 0)
    check("the token goes to the Hub", [a for role, _, a in SEEN if role == "hub"] == ["Bearer " + TOKEN] * 2, SEEN)
    check("and not to where it redirects", [a for role, _, a in SEEN if role == "cdn"] == [None], SEEN)
    (ROOM / "home").mkdir(exist_ok=True)
    (ROOM / "home/token").write_text(TOKEN + "\n")
    check("a token from HF_HOME/token", pull(ROOM / "refused2", "org/private").returncode == 0)
    (ROOM / "home/token").unlink()
    fails("403", ["403", "terms", "/org/gated"], pull(cache, "org/gated"))
    fails("404", ["404", "no such model"], pull(cache, "org/nothing"))
    fails("a revision that is not there", ["404", "v7"], pull(cache, "org/gguf@v7"))
    fails("no model in it", "neither GGUF files nor safetensors", pull(cache, "org/empty"))
    fails("nobody listens", "127.0.0.1:1", pull(cache, "org/gguf", HF_ENDPOINT="http://127.0.0.1:1"))
    fails("HF_ENDPOINT is no address", "HF_ENDPOINT", pull(cache, "org/gguf", HF_ENDPOINT="file:///etc"), 2)
    fails("a token with a line end", "HF_TOKEN", pull(cache, "org/gguf", HF_TOKEN='a\nurl = "http://x"'), 2)
    fails("a list without end", "16 MiB", pull(cache, "org/flood"))
    tools = ROOM / "tools"
    tools.mkdir()
    fails("no curl", ["curl", "installed"], pull(cache, "org/gguf", PATH=str(tools)))
    for name in ("curl", "sha1sum"): (tools / name).symlink_to(shutil.which(name))
    fails("no sha256sum", "sha256sum", pull(cache, "org/gguf", PATH=str(tools)))
    for bad in ("org", "org/a/b", "org/a:", "org/a@", "../a", "org/a b", "org/a:x\ny"):
        p = pull(cache, bad)
        if bad != "org": fails(f"name {bad!r}", "expected", p, 2)
    fails("pull without a name", "ORG/NAME", cli(cache, "pull"), 2)


def test_hostile():
    cache = ROOM / "hostile"
    for k, name in enumerate(("../../evil-Q8_0.gguf", "/tmp/evil-Q8_0.gguf", "a/../../../evil-Q8_0.gguf", "a\\b-Q8_0.gguf", "a\n-Q8_0.gguf", "", "a\x00-Q8_0.gguf", "./x.gguf", "a//b.gguf")):
        REPOS[f"org/evil{k}"] = Repo({name: b"x"})
        fails(f"a file named {name!r}", "cannot be one here", pull(cache, f"org/evil{k}"))
    for k, more in enumerate(({"sha": "../../x"}, {"sha": None}, {"siblings": 5}, {"siblings": [{"rfilename": "a-Q8_0.gguf", "size": 1, "blobId": "../x"}]},
                              {"siblings": [{"rfilename": "a-Q8_0.gguf", "size": -1, "blobId": "0" * 40}]}, {"siblings": [{"rfilename": "a-Q8_0.gguf", "blobId": "0" * 40}]},
                              {"siblings": [{"rfilename": "a-Q8_0.gguf", "size": 1, "blobId": "0" * 40, "lfs": {"sha256": "../" * 21 + "x"}}]})):
        REPOS[f"org/odd{k}"] = Repo({"a-Q8_0.gguf": b"x"}, **more)
        fails(f"a list that says {json.dumps(more)[:60]}", "does not say", pull(cache, f"org/odd{k}"))
    REPOS["org/huge"].more = {"siblings": [{"rfilename": "a-Q8_0.gguf", "size": 1 << 43, "blobId": "0" * 40, "lfs": {"sha256": "0" * 64}}]}
    fails("no room on the disk", ["MB", "room"], pull(cache, "org/huge"))
    check("nothing was written", not [x for x in tree(cache) if "evil" in x or "snapshots" in x] and not list(ROOM.glob("evil*")), tree(cache))


def test_two():
    cache, repo = ROOM / "two", REPOS["org/slow"]
    repo.slow = 0.1
    both = [subprocess.Popen([CLI, "pull", "org/slow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env(cache)) for _ in range(2)]
    said = [p.communicate(timeout=100) for p in both]
    check("two pulls at once: one fetches, both have it", [p.returncode for p in both] == [0, 0] and said[0][0] == said[1][0] and len(repo.asked) == 1 and pathlib.Path(said[0][0].strip()).read_bytes() == repo.files["a-Q8_0.gguf"], (said, repo.asked))
    check("a pipe gets no progress", not said[0][1] and not said[1][1], said)


def at_terminal(cache, *words, keys=b""):
    """(exit code, output) of llm_cli at a terminal, where `keys` are typed when it asks."""
    pid, fd = pty.fork()
    if not pid: os.execve(CLI, [CLI, *words], env(cache))
    out, typed = b"", not keys
    try:
        while block := os.read(fd, 4096):
            out += block
            if not typed and out.endswith(b"[y/N] "): typed = os.write(fd, keys) > 0
    except OSError: pass
    status = os.waitpid(pid, 0)[1]
    os.close(fd)
    return os.waitstatus_to_exitcode(status), out


def test_terminal():
    """A progress bar at a terminal only; rm asks there, and removes where it is told yes."""
    cache = ROOM / "terminal"
    code, out = at_terminal(cache, "pull", "org/slow")
    check("a progress bar at a terminal", re.search(rb"\d+ %  0\.\d of 0\.4 MB  \d+\.\d MB/s  0:\d\d left  a-Q8_0\.gguf", out) and out.strip().endswith(b"a-Q8_0.gguf"), out)
    folder = repo_folder(cache, "org/slow")
    for what, keys in (("no", b"n\n"), ("nothing", b"\n"), ("the end of input", b"\x04"), ("a word", b"nay\n"), ("a blank before yes", b" y\n")):
        code, out = at_terminal(cache, "rm", "org/slow", keys=keys)
        check(f"rm asks, and {what} is no", code == 1 and out.startswith(b"remove org/slow from the cache? [y/N] ") and b"nothing was removed" in out and folder.exists(), (code, out))
    code, out = at_terminal(cache, "rm", "org/slow", keys=b"\x03")
    check("rm asks, and Ctrl-C ends it", code in (130, -2) and folder.exists(), (code, out))
    code, out = at_terminal(cache, "rm", "org/slow", keys=b"y\n")
    check("rm asks, and yes removes", code == 0 and b"org/slow was removed" in out and not folder.exists(), (code, out))
    pull(cache, "org/long")
    code, out = at_terminal(cache, "rm", "-y", "org/long")
    check("rm -y asks nobody", code == 0 and b"[y/N]" not in out and not repo_folder(cache, "org/long").exists(), (code, out))


def test_hf(*caches):
    """Hugging Face's own library reads what was made."""
    python = pathlib.Path(os.environ.get("HF_PYTHON", "build/python/bin/python"))
    code = """import json, sys
from huggingface_hub import scan_cache_dir
out = []
for d in sys.argv[1:]:
    i = scan_cache_dir(d)
    out.append([[r.repo_id, r.size_on_disk, sorted(v.commit_hash + str(sorted(v.refs)) for v in r.revisions)] for r in i.repos] + [str(w) for w in i.warnings])
print(json.dumps(out))"""
    if not python.exists() or subprocess.run([python, "-c", "import huggingface_hub"], capture_output=True).returncode: return skip("huggingface_hub reads the cache", "it is not installed")
    p = subprocess.run([python, "-c", code, *map(str, caches)], capture_output=True, text=True)
    want = sum(len(FOLDER[x]) for x in {hashlib.sha1(d).hexdigest(): n for n, d in FOLDER.items() if n.endswith((".json", ".txt", ".safetensors", ".jinja", ".model")) and not n.startswith(("original", "onnx"))}.values())
    check("huggingface_hub reads the cache", p.returncode == 0 and json.loads(p.stdout) == [[["org/folder", want, [f"{COMMIT}['main']"]]]], (p.stdout, p.stderr[-300:], want))
    code = "import sys, huggingface_hub; print(huggingface_hub.hf_hub_download('org/gguf', 'model-Q4_K_M.gguf', cache_dir=sys.argv[1], local_files_only=True))"
    cache = ROOM / "hf"
    ours = pull(cache, "org/gguf").stdout
    p = subprocess.run([python, "-c", code, cache], capture_output=True, text=True)
    check("huggingface_hub finds the file", p.stdout == ours, p.stderr[-300:])


def main():
    if not shutil.which("curl"):
        skip("pull", "curl is not installed")
        finish()
    try:
        test_remove(test_gguf())
        folder = test_folder()
        for test in (test_cut, test_wrong, test_refused, test_hostile, test_two, test_terminal): test()
        test_hf(folder)
    finally: shutil.rmtree(ROOM, ignore_errors=True)
    finish()


if __name__ == "__main__": main()
