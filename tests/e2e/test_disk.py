#!/usr/bin/env python3
"""A disk that is full, wherever the programs write: a tmpfs of some pages, where one may be mounted, and everywhere a limit of a file's size, which
fails in the same places. One sentence, exit 1 or an error of the server; what was there is whole, nothing is left behind, and where there is room again
the same works. Standard library only."""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile

import test_pull as hub
from serving import SLOW, Server, check, checkpoint, finish, skip
from test_pty import CLI, Chat

LLAMA = str(checkpoint("llama"))


class Disk:
    """A folder that holds `size` bytes (where: "tmpfs"), or whose files do ("limit"); limit() is for the children that write there."""

    def __init__(self, where, size, room):
        self.where, self.size, self.folder = where, size, tempfile.mkdtemp(dir=room)
        if where == "tmpfs": subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.folder], check=True)

    def limit(self):
        if self.where == "limit": resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))

    def file_size(self): return self.size if self.where == "limit" else None

    def more(self):
        """From now on there is room."""
        if self.where == "tmpfs": subprocess.run(["mount", "-o", "remount,size=64m", self.folder], check=True)
        self.size = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def end(self):
        if self.where == "tmpfs": subprocess.run(["umount", self.folder], check=True)


def may_mount(room):
    folder = tempfile.mkdtemp(dir=room)
    ok = shutil.which("mount") and not subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", folder], stderr=subprocess.DEVNULL).returncode
    if ok: subprocess.run(["umount", folder])
    return ok


def said(name, p, *words):
    check(name, p.returncode == 1 and p.stderr.count("\n") <= 2 and p.stderr.rstrip().split("\n")[-1].startswith("llm_cli: error: ") and all(w in p.stderr for w in words), (p.returncode, p.stderr))


def run(disk, *args, **more): return subprocess.run([CLI, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * SLOW, preexec_fn=disk.limit, **more)


def test_contexts(disk):
    s = Server("--context-dir", disk.folder, model=LLAMA, file_size=disk.file_size())
    ask = lambda: s.post("/v1/completions", {"prompt": [x % 250 + 4 for x in range(90)], "max_tokens": 3, "temperature": 0})
    first = ask()[1]["choices"]
    status, a = s.post("/v1/contexts/save", {"name": "c", "prompt": [x % 250 + 4 for x in range(90)]})
    check(f"{disk.where}: a context finds no room", status == 500 and a["error"]["message"].startswith("c: ") and disk.folder not in a["error"]["message"], (status, a))
    check(f"{disk.where}: no part of it stays", os.listdir(disk.folder) == [], os.listdir(disk.folder))
    check(f"{disk.where}: the server goes on", ask()[1]["choices"] == first)
    if disk.where == "tmpfs":
        disk.more()
        check("tmpfs: with room again it is kept", s.post("/v1/contexts/save", {"name": "c", "prompt": [x % 250 + 4 for x in range(90)]})[0] == 200 and os.listdir(disk.folder) == ["c"])
    check("its server ends", s.stop() == 0)


def test_log(disk):
    path = disk.folder + "/log"
    s = Server("--log-file", path, "--log-requests", "--log-level", "debug", model=LLAMA, file_size=disk.file_size())
    for i in range(60): status, a = s.post("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 2, "user": "u" * 400})
    check(f"{disk.where}: a full log file changes nothing for clients", status == 200 and a["usage"]["completion_tokens"] == 2 and os.path.getsize(path) <= disk.size, (status, a))
    check("its server ends", s.stop() == 0)


def test_batch(disk):
    rows, out = disk.folder + "/../in.jsonl", disk.folder + "/out.jsonl"
    pathlib.Path(rows).write_text("".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {"prompt": [5, 6, 7], "max_tokens": 2}}) + "\n" for i in range(80)))
    said(f"{disk.where}: a batch finds no room", run(disk, "batch", "-m", LLAMA, "-i", rows, "-o", out), "out.jsonl")


def test_eagle(disk):
    room = pathlib.Path(disk.folder).parent
    head, to = room / "head", disk.folder + "/eagle"
    said(f"{disk.where}: a converted head finds no room", run(disk, "convert-eagle", str(eagle_head(head)), to), "eagle")
    check(f"{disk.where}: no part of it stays", not os.path.exists(to) or not any(n.endswith(".safetensors") for n in os.listdir(to)), os.path.exists(to) and os.listdir(to))


def eagle_head(folder):
    """A head in SafeAILab's layout whose weights are larger than the disk."""
    import struct
    folder.mkdir(exist_ok=True)
    config = json.load(open(LLAMA + "/config.json"))
    config.update({"num_hidden_layers": 1, "bias": True})
    (folder / "config.json").write_text(json.dumps(config))
    h, m, kv = config["hidden_size"], config["intermediate_size"], config["hidden_size"] * config["num_key_value_heads"] // config["num_attention_heads"]
    shapes = {"fc.weight": [h, 2 * h], "fc.bias": [h], "layers.0.self_attn.q_proj.weight": [h, h], "layers.0.self_attn.k_proj.weight": [kv, h], "layers.0.self_attn.v_proj.weight": [kv, h],
              "layers.0.self_attn.o_proj.weight": [h, h], "layers.0.mlp.gate_proj.weight": [m, h], "layers.0.mlp.up_proj.weight": [m, h], "layers.0.mlp.down_proj.weight": [h, m],
              "layers.0.post_attention_layernorm.weight": [h], "embed_tokens.weight": [config["vocab_size"], h]}
    head, at = {}, 0
    for name, shape in shapes.items():
        n = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(head).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    return folder


def test_quantize(disk):
    """Smaller weights as a file and as a folder, and either as the other: what the disk has room for, a file's size apart."""
    room = pathlib.Path(disk.folder).parent
    gguf = room / "whole.gguf"
    if not gguf.exists(): subprocess.run([CLI, "convert", LLAMA, str(gguf)], capture_output=True, check=True)
    for name, args, part in (("a file", ("quantize", LLAMA, disk.folder + "/q.gguf", "q8_0"), None), ("a folder", ("quantize", "-i", LLAMA, "-o", disk.folder + "/q", "-quant_type", "weight_only_int8"), "q.part"),
                             ("a calibrated folder", ("quantize", "-i", LLAMA, "-o", disk.folder + "/g", "-quant_type", "gptq", "--bits", "8", "-f", "README.md", "--chunks", "2", "--chunk-size", "64"), "g.part"),
                             ("a converted file", ("convert", LLAMA, disk.folder + "/c.gguf"), None), ("a converted folder", ("convert", str(gguf), disk.folder + "/c"), None)):
        said(f"{disk.where}: {name} finds no room", run(disk, *args), disk.folder)
        check(f"{disk.where}: of {name} nothing has its name", os.listdir(disk.folder) == [part] * (part is not None), os.listdir(disk.folder))
        if part: shutil.rmtree(f"{disk.folder}/{part}")


def test_pull(disk):
    cache = pathlib.Path(disk.folder)
    p = subprocess.run([CLI, "pull", "org/gguf:Q4_K_M"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, env=hub.env(cache), preexec_fn=disk.limit)
    check(f"{disk.where}: a pull finds no room", p.returncode == 1 and not p.stdout and p.stderr.startswith("llm_cli: error: ") and p.stderr.count("\n") <= 2, (p.returncode, p.stderr))
    repo = hub.repo_folder(cache, "org/gguf")
    check(f"{disk.where}: nothing has a name", not list(repo.glob("snapshots/*/*")), hub.tree(cache))
    disk.more()
    p = hub.pull(cache, "org/gguf:Q4_K_M")
    check(f"{disk.where}: with room it goes on", p.returncode == 0 and pathlib.Path(p.stdout.strip()).read_bytes() == hub.GGUF["model-Q4_K_M.gguf"], p.stderr)


def test_save(disk):
    if disk.where == "limit": return  # the terminal's child has no limits of its own
    path = disk.folder + "/kept.json"
    chat = Chat(["-m", LLAMA, "--temp", "0", "-n", "4"], disk.folder + "/..")
    chat.prompt(0)
    first = chat.ask("/save %s\r" % path)
    kept = pathlib.Path(path).read_bytes()
    for _ in range(2): chat.ask("hello\r")
    fill = pathlib.Path(disk.folder, "fill")
    fd = os.open(fill, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(fd, b"x" * 4096): pass
    except OSError: pass
    os.close(fd)
    again = chat.ask("/save %s\r" % path)
    check("tmpfs: /save says what is wrong", "saved" in first and "not saved" in again and "No space" in again, again)
    check("tmpfs: what was saved before is whole, and no part of the new", pathlib.Path(path).read_bytes() == kept and sorted(os.listdir(disk.folder)) == ["fill", "kept.json"], os.listdir(disk.folder))
    fill.unlink()
    last, n = chat.ask("/save %s\r" % path), len(json.loads(pathlib.Path(path).read_text())["messages"])
    check("tmpfs: with room it is saved", "not saved" not in last and n == 4, (n, last))
    chat.send("\x04")
    chat.wait("\n", 2, len(chat.log))


def main():
    room = tempfile.mkdtemp()
    kinds = ["limit", "tmpfs"] if may_mount(room) else ["limit"]
    if len(kinds) < 2: skip("tmpfs", "no file system may be mounted here")
    for where in kinds:
        for test, size in ((test_contexts, 8192), (test_log, 8192), (test_batch, 8192), (test_eagle, 65536), (test_quantize, 65536), (test_pull, 65536), (test_save, 16384)):
            if test is test_pull and not shutil.which("curl"): continue
            disk = Disk(where, size, room)
            try: test(disk)
            finally: disk.end()
    shutil.rmtree(room, ignore_errors=True)
    shutil.rmtree(hub.ROOM, ignore_errors=True)
    finish()


if __name__ == "__main__": main()
