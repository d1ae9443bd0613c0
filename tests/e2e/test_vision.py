#!/usr/bin/env python3
"""Models that see against transformers, and hostile pictures: llm_cli and llm_serve on the tiny checkpoints of build/data/vision.

    test_vision.py [FAMILY...] [--args "--isa avx2"] [--files] [--chats CASE,...] [--only PART,...]      env LLM_CLI (./llm_cli), LLM_SERVE (./llm_serve)

Every chat of a family (text, pictures of several kinds and sizes, two pictures, a second turn, videos) is given to llm_cli as a file of
messages whose pictures are files, and to a server with the pictures as data URIs. Compared with expected.json: the prompt's ids, the
log-probability of each of them and of all that could come next (logits_tolerance of the range; it is wide for a JPEG, since decoders
differ), the greedy tokens. A right engine is 1e-6 off, a wrong detail 1e-2. Then what must be refused, in a sentence, and cost nothing.
--files: llm_cli alone. --chats: those chats whose names hold one of the words. --only: what follows the families, by name ("fetched"), without
them: for builds in which all of it takes an hour.
"""
import argparse
import base64
import http.server
import ipaddress
import json
import math
import os
import pathlib
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import zlib

import adapters
import serving
import twins
from answers import CLI, ask, log_softmax
from serving import Server, check, finish

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "build/data/vision"
KINDS = {".png": "image/png", ".jpg": "image/jpeg"}


def greedy_same(p, got):
    """The first greedy_robust tokens, which no rounding moves."""
    return len(got) == len(p["greedy"]) and got[:p["greedy_robust"]] == p["greedy"][:p["greedy_robust"]]


def by_files(folder, n, p, extra, model=None):
    """One chat through llm_cli; model: other files than the folder's own."""
    name = f"{folder.name}, {p['case']}{', GGUF' if model else ''}"
    base = (*(model or ("-m", str(folder))), "--dtype", "float32", "--messages", str(folder / f"chat{n}.json"), *extra)
    want = log_softmax(p["logits_last"])
    span = max(want) - min(want)
    got = ask("score", "--top-logprobs", str(len(want)), *base)
    if not check(f"{name}: ids", got["token_ids"] == p["token_ids"], got["token_ids"]): return
    following = dict((int(i), x) for i, x in got["next"])
    off = max(max(abs(a - b) for a, b in zip(got["logprobs"][1:], p["logprobs_of_next"])), max(abs(following[i] - x) for i, x in enumerate(want))) / span
    check(f"{name}: log-probabilities", off <= p["logits_tolerance"], off)
    new = ask("generate", "-n", str(len(p["greedy"])), "--temp", "0", "--ignore-eos", *base)["token_ids"]
    check(f"{name}: greedy tokens", greedy_same(p, new), new)


def inline(folder, messages):
    """The same messages with data URIs instead of file names."""
    def uri(name):
        path = folder / name.removeprefix("file:")
        return f"data:{KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"

    def walk(x):
        if isinstance(x, dict): return {k: walk(v) for k, v in x.items()}
        if isinstance(x, list): return [walk(v) for v in x]
        return uri(x) if isinstance(x, str) and x.startswith("file:") else x
    return walk(messages)


def by_server(s, folder, p):
    body = {"messages": inline(folder, p["messages"]), "max_tokens": len(p["greedy"]), "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    status, a = s.post("/v1/chat/completions", body)
    name = f"{folder.name}, {p['case']}, by HTTP"
    if not check(f"{name}: answers", status == 200, a): return
    check(f"{name}: prompt tokens", a["usage"]["prompt_tokens"] == len(p["token_ids"]), a["usage"])
    check(f"{name}: greedy tokens", greedy_same(p, a["choices"][0]["token_ids"]), a["choices"][0]["token_ids"])


def png(w, h, rows=b"", kind=2):
    """A PNG of w x h that has these (compressed) rows, whatever it says of its size."""
    def chunk(name, data): return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, kind, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def gif(w, h, frames):
    one = b"\x21\xf9\x04\0\x0a\0\0\0" + b"\x2c\0\0\0\0" + struct.pack("<HH", 1, 1) + b"\0" + b"\x02\x02\x44\x01\x00"
    return b"GIF89a" + struct.pack("<HH", w, h) + b"\x80\0\0" + b"\0\0\0\xff\xff\xff" + one * frames + b";"


def moving(w, h, colours, hundredths):
    """A GIF of frames of one colour each, at most eight: no code gets longer than four bits, for the table begins anew in time."""
    table = b"".join(colours).ljust(24, b"\0")
    def frame(i):
        codes = [x for at in range(0, w * h, 5) for x in (8, *[i] * min(5, w * h - at))] + [9]
        data = bytes(a | b << 4 for a, b in zip(codes[::2], codes[1::2] + [0] * (len(codes) % 2)))
        blocks = b"".join(bytes([len(data[at:at + 255])]) + data[at:at + 255] for at in range(0, len(data), 255))
        return b"\x21\xf9\x04\0" + struct.pack("<H", hundredths) + b"\0\0\x2c\0\0\0\0" + struct.pack("<HH", w, h) + b"\0\3" + blocks + b"\0"
    return b"GIF89a" + struct.pack("<HH", w, h) + b"\xa2\0\0" + table + b"".join(map(frame, range(len(colours)))) + b";"


def resized_jpeg(raw, w, h):
    """A JPEG that says of its picture that it is w x h."""
    at = raw.index(b"\xff\xc0")
    return raw[:at + 5] + struct.pack(">HH", h, w) + raw[at + 9:]


def data(raw, kind="image/png"): return f"data:{kind};base64,{base64.b64encode(raw).decode()}"


def image(url, **more): return {"type": "image_url", "image_url": {"url": url, **more}}


def bad_pictures(folder):
    """(name, parts of a message, what the sentence has)"""
    good = (folder / "exact.png").read_bytes()
    jpeg = (DATA / "qwen2_5_vl/photo.jpg").read_bytes()
    for part in (0, 1, 7, 8, 20, 33, 60): yield f"a PNG of {part} bytes", [image(data(good[:part]))], ""
    for part in (2, 3, 20, 100, 200): yield f"a JPEG of {part} bytes", [image(data(jpeg[:part], "image/jpeg"))], ""
    yield "50,000 x 50,000", [image(data(png(50000, 50000)))], "50000"
    yield "2 billion x 1", [image(data(png(2 ** 31 - 1, 1)))], ""
    yield "4 billion x 4 billion", [image(data(png(2 ** 32 - 1, 2 ** 32 - 1)))], ""
    yield "0 x 0", [image(data(png(0, 0)))], ""
    yield "0 x 5", [image(data(png(0, 5)))], ""
    yield "no rows", [image(data(png(50, 50)))], ""
    yield "fewer rows than it says", [image(data(png(60, 60, b"\0" + b"\1" * 180)))], ""
    yield "colour type 9", [image(data(png(20, 20, b"\0" * 2000, 9)))], ""
    yield "a palette that is not there", [image(data(png(20, 20, b"\0" * 2000, 3)))], ""
    yield "a GIF without frames", [image(data(gif(5, 5, 0), "image/gif"))], "GIF"
    yield "a GIF of 60,000 x 60,000", [image(data(gif(60000, 60000, 1), "image/gif"))], "60000"
    yield "a GIF cut in its frame", [image(data(gif(5, 5, 1)[:-9], "image/gif"))], "GIF"
    yield "a GIF of 10,000 frames of 5,000 x 5,000", [{"type": "video_url", "video_url": {"url": data(gif(5000, 5000, 10000), "image/gif")}}], ""
    yield "a JPEG that says 65,500 x 65,500", [image(data(resized_jpeg(jpeg, 65500, 65500), "image/jpeg"))], "65500"
    yield "a JPEG that says 0 x 7", [image(data(resized_jpeg(jpeg, 0, 7), "image/jpeg"))], ""
    yield "a PNG of depth 3", [image(data(good[:24] + b"\3" + good[25:]))], ""
    yield "a PNG without its head", [image(data(good[:8] + good[33:]))], ""
    yield "a BMP of 20 bytes", [image(data(b"BM" + bytes(18), "image/bmp"))], ""
    yield "a BMP of 2 billion pixels a side", [image(data(b"BM" + bytes(8) + struct.pack("<IIiiHHI", 54, 40, 2 ** 31 - 1, 2 ** 31 - 1, 1, 24, 0) + bytes(20), "image/bmp"))], ""
    yield "a WebP", [image(data(b"RIFF\x24\0\0\0WEBPVP8 " + b"\0" * 40, "image/webp"))], "WebP"
    yield "a HEIC", [image(data(b"\0\0\0\x18ftypheic" + b"\0" * 40, "image/heic"))], "HEIC"
    yield "an SVG", [image(data(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"))], "SVG"
    yield "a PDF", [image(data(b"%PDF-1.7 ...", "application/pdf"))], "PDF"
    yield "a TIFF", [image(data(b"II*\0" + b"\0" * 40, "image/tiff"))], "TIFF"
    yield "an mp4 as a picture", [image(data(b"\0\0\0\x18ftypisom" + b"\0" * 40, "video/mp4"))], "MP4"
    yield "a text", [image(data(b"hello, I am no picture"))], "no picture"
    yield "zeros", [image(data(bytes(10000)))], "no picture"
    yield "base64 with a blank", [image("data:image/png;base64,iVBO Rw0KGgo=")], "base64"
    yield "base64 with a wrong letter", [image("data:image/png;base64,iVBO*w0KGgo=")], "base64"
    yield "base64 cut", [image("data:image/png;base64,iVBORw0KGg")], ""
    yield "base64 of nothing", [image("data:image/png;base64,")], ""
    yield "padding within", [image("data:image/png;base64,iV==BORw0KGgo")], "base64"
    yield "no base64", [image("data:image/png,hello")], "base64"
    yield "no comma", [image("data:image/png;base64")], "data URI"
    yield "data: alone", [image("data:")], "data URI"
    yield "an empty url", [image("")], "data URI"
    yield "a name", [image("cat.png")], "data URI"
    for url in ("http://127.0.0.1:1/x.png", "https://example.com/x.png", "http://[::1]/", "HTTP://example.com/x", "ftp://example.com/x", "gopher://x", "javascript:1"): yield url, [image(url)], ""
    for name in ("/etc/passwd", "///etc/passwd", "../../etc/passwd", "x\0y", "exact.png", "//host/share", "%2e%2e/x"): yield f"file:{name!r}", [image("file:" + name)], "file"
    yield "url: a number", [image(5)], "url"
    yield "url: null", [image(None)], "url"
    yield "url: a list", [image([data(good)])], "url"
    yield "no url", [{"type": "image_url", "image_url": {}}], "url"
    yield "no image_url", [{"type": "image_url"}], "url"
    yield "image_url: a number", [{"type": "image_url", "image_url": 5}], "url"
    yield "detail: huge", [image(data(good), detail="huge")], "detail"
    yield "detail: 5", [image(data(good), detail=5)], "detail"
    yield "input_image with a file_id", [{"type": "input_image", "file_id": "file-1"}], ""
    yield "a type that is none", [{"type": "picture", "url": data(good)}], "type"
    yield "audio", [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}], ""
    yield "200 pictures", [image(data(good))] * 200, "At most"
    yield "1,000 pictures", [image(data(png(1, 1, b"\0\0\0\0")))] * 1000, "At most"
    yield "1 x 1", [image(data(png(1, 1, b"\0\0\0\0")))], ""
    yield "1 x 10,000", [image(data(png(1, 10000, (b"\0" + b"\1\2\3") * 10000)))], ""
    yield "a video as a url of nothing", [{"type": "video_url", "video_url": {"url": ""}}], ""
    yield "a video of no frames", [{"type": "video", "video": []}], ""
    yield "a video of numbers", [{"type": "video", "video": [1, 2]}], ""
    yield "a video of broken frames", [{"type": "video_url", "video_url": {"url": "data:video/jpeg;base64,AAAA,AAAA"}}], ""
    yield "fps 0", [{"type": "video", "video": [data(good)] * 2, "fps": 0}], "fps"
    yield "fps of a long dream", [{"type": "video", "video": [data(good)] * 2, "fps": 1e-9}], "fps"
    yield "fps as a text", [{"type": "video", "video": [data(good)] * 2, "fps": "x"}], "fps"
    yield "an mp4", [{"type": "video_url", "video_url": {"url": data(b"\0\0\0\x18ftypisom" + bytes(99), "video/mp4")}}], ""
    yield "2,000 frames", [{"type": "video", "video": [data(png(1, 1, b"\0\0\0\0"))] * 2000}], "1024"
    yield "commas for frames", [{"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + "," * 100000}}], "1024"
    yield "frames of two sizes", [{"type": "video", "video": [data(good), data(png(9, 9, (b"\0" + bytes(27)) * 9))]}], ""


def test_bad(family):
    folder = DATA / family
    s = Server("--max-num-seqs", "4", model=str(folder), base=("--log-level", "warn"))
    ask_text = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
    before = s.post("/v1/chat/completions", ask_text)[1]["choices"][0]["message"]
    accepted = {"1 x 1", "1 x 10,000", "frames of two sizes", "base64 cut"} # may be seen, if a family can
    count, start = 0, 0
    for round in range(2):
        for name, parts, what in bad_pictures(folder):
            body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "See?"}] + parts}], "max_tokens": 1}
            status, a = s.post("/v1/chat/completions", body)
            count += 1
            if status == 200 and name in accepted: continue
            said = a["error"]["message"] if "error" in a else ""
            check(f"{family}, {name}: a sentence", status == 400 and 15 < len(said) < 600 and what in said, (status, a))
        if not round: start = s.resident()
    check(f"{family}: {count} bad ones, and no memory lost", serving.SANITIZED or s.resident() - start < 32 << 20, f"{start} to {s.resident()} bytes")
    check(f"{family}: others lose nothing", s.post("/v1/chat/completions", ask_text)[1]["choices"][0]["message"] == before)
    for more, field in (({"mm_processor_kwargs": 5}, "mm_processor_kwargs"), ({"mm_processor_kwargs": {"x": 1}}, "mm_processor_kwargs"),
                        ({"mm_processor_kwargs": {"max_pixels": -5}}, ""), ({"multi_modal_data": {"image": []}}, "multi_modal_data")):
        body = {"messages": [{"role": "user", "content": [image(data((folder / "exact.png").read_bytes()))]}], "max_tokens": 1}
        status, a = s.post("/v1/chat/completions", dict(body, **more))
        check(f"{family}, {more}", status == 400 and field in json.dumps(a), (status, a))
    for more in ({"multi_modal_data": 5}, {"multi_modal_data": {"audio": []}}, {"multi_modal_data": {"image": ["data:,"]}}, {"multi_modal_data": {"image": [data(b"x")]}},
                 {"multi_modal_data": {"image": [data((folder / "exact.png").read_bytes())]}}): # the last: no placeholder in the prompt
        status, a = s.post("/v1/completions", dict({"prompt": "a", "max_tokens": 1}, **more))
        check(f"{family}, prompt, {str(more)[:40]}", status == 400 and "multi_modal_data" in json.dumps(a) or "placeholder" in json.dumps(a), (status, a))
    s.stop()


def test_options():
    """Limits, a folder of pictures, and parameters of the processor, as a server is started with them."""
    folder = DATA / "qwen2_5_vl"
    good, part = data((folder / "exact.png").read_bytes()), {"type": "text", "text": "Which?"}
    def call(s, *urls): return s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [part, *map(image, urls)]}], "max_tokens": 1})
    s = Server("--limit-mm-per-prompt", '{"image": 1, "video": 0}', "--allowed-local-media-path", str(folder), model=str(folder), base=("--log-level", "warn"))
    status, plain = call(s, good)
    check("one picture of one", status == 200, plain)
    status, a = call(s, good, good)
    check("two pictures of one", status == 400 and "At most 1 image" in a["error"]["message"], a)
    status, a = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "video", "video": [good] * 2}]}], "max_tokens": 1})
    check("no video", status == 400 and "At most 0 video" in a["error"]["message"], a)
    for name in ("file:exact.png", f"file://{folder}/exact.png"):
        status, a = call(s, name)
        check(f"{name}: the same as the data", status == 200 and a["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"], a)
    for name in ("file:../qwen3_vl/exact.png", "file:/etc/hostname", "file:none.png"): check(f"{name}: refused", call(s, name)[0] == 400)
    seen = {name: s.metric(f"mm_{name}") for name in ("cache_queries_total", "cache_hits_total", "cache_bytes", "tower_seconds_total")}
    check("metrics of the cache of pictures and of the tower", seen["cache_queries_total"] == 3 and seen["cache_hits_total"] == 2 and seen["cache_bytes"] > 0 and seen["tower_seconds_total"] > 0, seen)
    s.stop()
    s = Server("--mm-processor-kwargs", '{"max_pixels": 3136, "min_pixels": 784}', "--max-model-len", "80", model=str(folder), base=("--log-level", "warn"))
    status, a = call(s, good)
    check("mm_processor_kwargs: a smaller picture", status == 200 and a["usage"]["prompt_tokens"] < plain["usage"]["prompt_tokens"], a)
    status, many = call(s, *[good] * 9)
    check("pictures of more tokens than the context", status == 400 and many["error"]["code"] == "context_length_exceeded", many)
    s.stop()
    for flag, value in (("--limit-mm-per-prompt", "{"), ("--limit-mm-per-prompt", '{"image": -1}'), ("--limit-mm-per-prompt", '{"audio": 1}'), ("--mm-processor-kwargs", "[]"),
                        ("--allowed-local-media-path", "/nowhere")):
        p = subprocess.run([serving.SERVE, "--model", str(folder), "--port", "0", flag, value], capture_output=True, text=True, timeout=60)
        check(f"{flag} {value}: refused", p.returncode in (1, 2) and flag.strip("-") in p.stderr, p.stderr)


def test_mmproj(extra):
    """The same models as two GGUF files, as llama.cpp has them, give what the folders give; a file that does not fit is refused."""
    for name in twins.SEEING:
        folder = DATA / name
        model, mmproj = twins.seeing(folder, ROOT / "build/data/vision_gguf" / name)
        more = []
        if name == "lfm2_vl": # whose file states no numbers of tiles and tokens
            told = json.loads((folder / "preprocessor_config.json").read_text())
            more = ["--mm-processor-kwargs", json.dumps({x: told[x] for x in ("min_image_tokens", "max_image_tokens", "max_pixels_tolerance", "min_tiles", "max_tiles", "tile_size")})]
        for n, p in enumerate(json.loads((folder / "expected.json").read_text())["prompts"]):
            if p["images"] and not p.get("videos"): by_files(folder, n, p, [*extra, *more], ("-m", str(model), "--mmproj", str(mmproj)))
    s = Server("--dtype", "float32", "--mmproj", str(mmproj), *extra, model=str(model), base=("--log-level", "warn"))
    by_server(s, folder, json.loads((folder / "expected.json").read_text())["prompts"][1])
    s.stop()
    with tempfile.TemporaryDirectory() as d:
        bad_mmproj(pathlib.Path(d), DATA / "qwen2_5_vl", ROOT / "build/data/vision_gguf")
        bad_glm(pathlib.Path(d), DATA / "glm4v", ROOT / "build/data/vision_gguf/glm4v")
        parted_glm(pathlib.Path(d), DATA / "glm4v", ROOT / "build/data/vision_gguf/glm4v", extra)
        packed(pathlib.Path(d), DATA / "mistral3", ROOT / "build/data/vision_gguf/mistral3", extra)
        folder, model = DATA / "llava_next", pathlib.Path(d) / "model.gguf" # a vocabulary without a token for pictures, as LLaVA 1.5's
        def unknown(keys):
            texts = keys[".tokenizer.ggml.tokens"]
            texts[texts.index("<image>")] = "<unk>"
        twins.seeing_text(model, folder, unknown)
        by_files(folder, 1, json.loads((folder / "expected.json").read_text())["prompts"][1], extra, ("-m", str(model), "--mmproj", str(ROOT / "build/data/vision_gguf/llava_next/mmproj.gguf")))


def test_pairs():
    """What a GGUF model sees with is found beside it, in a folder and in the Hub's cache, as llama.cpp finds it."""
    folder, chat = DATA / "qwen2_5_vl", str(DATA / "qwen2_5_vl/chat1.json")
    model, mmproj = twins.seeing(folder, ROOT / "build/data/vision_gguf/qwen2_5_vl")
    p = json.loads((folder / "expected.json").read_text())["prompts"][1]
    with tempfile.TemporaryDirectory() as d:
        where, cache = pathlib.Path(d), pathlib.Path(d) / "cache/models--o--m"
        for at in (where / "models/seer", cache / "snapshots/c0ffee", where / "odd"):
            at.mkdir(parents=True)
            (at / "model-F32.gguf").symlink_to(model.resolve())
            (at / "mmproj-F32.gguf").symlink_to(mmproj.resolve())
        (cache / "refs").mkdir()
        (cache / "refs/main").write_text("c0ffee")
        by_files(folder, 1, p, ["--download-dir", str(cache.parent)], ("-m", "o/m"))
        by_files(folder, 1, p, [], ("-m", str(where / "models/seer")))
        def score(*flags): return subprocess.run([CLI, "score", "--messages", chat, "--json", *flags], capture_output=True, text=True, timeout=60)
        for name, flags in (("--language-model-only", ("-m", str(where / "odd"), "--language-model-only")), ("--no-mmproj", ("-m", str(where / "odd"), "--no-mmproj")), ("a file that was named", ("-m", str(where / "odd/model-F32.gguf")))):
            a = score(*flags)
            check(f"{name}: text only", a.returncode == 1 and "multimodal" in a.stderr, a.stderr)
        (where / "odd/mmproj-F32.gguf").unlink()
        twins.mmproj(where / "odd/mmproj-x.gguf", folder, lambda keys, tensors: keys.update({".clip.projector_type": "perceiver"}))
        a = score("-m", str(where / "odd"))
        check("a kind that is not known leaves a model of texts, and a line", a.returncode == 1 and "perceiver" in a.stderr and "multimodal" in a.stderr, a.stderr)
        s = Server("--models-dir", str(where / "models"), "--dtype", "float32", model=False, base=("--log-level", "warn"))
        names = [m["id"] for m in json.loads(s.request("GET", "/v1/models")[2])["data"]]
        check("a folder of --models-dir is one model", names == ["seer"], names)
        by_server(s, folder, p)
        s.stop()


def bad_mmproj(where, folder, made):
    """Files that say what cannot be, and others that are none."""
    model, mmproj = made / folder.name / "model.gguf", where / "mmproj.gguf"
    def refused(name, says, flags=()):
        p = subprocess.run([CLI, "score", "-m", str(model), "--mmproj", str(mmproj), "-p", "a", *flags], capture_output=True, text=True, timeout=60)
        said = p.stderr.strip().splitlines()
        check(f"mmproj, {name}", p.returncode in (1, 2) and len(said) == 1 and says in said[0] and len(said[0]) < 600, (p.returncode, said))
    def number(key, value):
        twins.mmproj(mmproj, folder, lambda keys, tensors: keys.pop(key) if value is None else keys.update({key: value}))
        refused(f"{key} is {value}", key.strip(".").split(".")[-1])
    for key in ("embedding_length", "block_count", "patch_size", "image_size", "attention.head_count", "n_wa_pattern"):
        for value in (None, 0, 2 ** 31 - 1, "x", 1.5): number("vision." + key, value)
    for value in ("perceiver", 7): number(".clip.projector_type", value)
    number(".clip.has_vision_encoder", False)
    number("vision.window_size", 1)
    number("vision.image_std", [0.0, 0.5, 0.5])
    number("vision.image_max_pixels", 0)
    for name, shape in (("v.blk.1.attn_q.weight", None), ("v.blk.1.attn_q.weight", [32, 31]), ("v.patch_embd.weight.1", None), ("v.patch_embd.weight.1", [32, 3, 14, 13]), ("mm.2.weight", None),
                        ("mm.2.weight", [63, 128]), ("v.blk.0.ffn_up.weight", None), ("v.blk.0.ln1.weight", None)):
        def change(keys, tensors):
            kind, _, data = tensors.pop(name)
            if shape: tensors[name] = kind, shape, data[:4 * math.prod(shape)]
        twins.mmproj(mmproj, folder, change)
        refused(f"{name} is {shape}", name.removesuffix(".bias").removesuffix(".weight"))
    whole = (made / folder.name / "mmproj.gguf").read_bytes()
    for part in (0, 3, 4, 23, 24, 100, 1000, len(whole) // 2, len(whole) - 40):
        mmproj.write_bytes(whole[:part])
        refused(f"{part} bytes of it", "mmproj.gguf")
    mmproj.write_bytes(model.read_bytes())
    refused("a language model", "qwen2vl")
    mmproj.write_bytes((made / "gemma3/mmproj.gguf").read_bytes())
    refused("of another model", "")
    mmproj.unlink()
    refused("no file", "mmproj.gguf")
    mmproj.write_bytes(whole)
    refused("and language_model_only", "--language-model-only", ("--language-model-only",))
    refused("of a folder", "folder", ("-m", str(folder)))


def bad_glm(where, folder, made):
    """GLM-4.1V's files: a language model from before llama.cpp knew that it sees, and matrices of the projector that do not fit."""
    def refused(name, says, model, mmproj):
        p = subprocess.run([CLI, "score", "-m", str(model), "--mmproj", str(mmproj), "-p", "a"], capture_output=True, text=True, timeout=60)
        said = p.stderr.strip().splitlines()
        check(f"mmproj of GLM, {name}", p.returncode == 1 and len(said) == 1 and says in said[0], (p.returncode, said))
    model, mmproj = where / "glm.gguf", where / "glm_mmproj.gguf"
    twins.seeing_text(model, folder, lambda keys: keys.pop("rope.dimension_sections"))
    refused("no sections", "rope.dimension_sections", model, made / "mmproj.gguf")
    for name, shape in (("mm.gate.weight", None), ("mm.up.weight", None), ("mm.up.weight", [71, 64]), ("mm.patch_merger.weight", [64, 32, 2, 1]), ("mm.post_norm.weight", [63]), ("v.norm_embd.weight", [31])):
        def change(keys, tensors):
            kind, _, data = tensors.pop(name)
            if shape: tensors[name] = kind, shape, data[:4 * math.prod(shape)]
        twins.mmproj(mmproj, folder, change)
        refused(f"{name} is {shape}", name.removesuffix(".weight"), made / "model.gguf", mmproj)


def parted_glm(where, folder, made, extra):
    """GLM-4.1V's queries and keys, whose pairs GGUF has parted: llm_cli convert parts them too, and an adapter of the folder's fits both; there is no way back."""
    p = json.loads((folder / "expected.json").read_text())["prompts"][1]
    subprocess.check_call([CLI, "convert", str(folder), str(where / "own.gguf")], stdout=subprocess.DEVNULL)
    by_files(folder, 1, p, extra, ("-m", str(where / "own.gguf"), "--mmproj", str(made / "mmproj.gguf")))
    adapters.make(str(folder), str(where / "lora"), targets=r"self_attn.[qk]_proj", size=2)
    base = ("--dtype", "float32", "--messages", str(folder / "chat0.json"), *extra)
    plain, one, two = (ask("score", *base, *more)["logprobs"][1:] for more in (("-m", str(folder)), ("-m", str(folder), "--lora", str(where / "lora")), ("-m", str(made / "model.gguf"), "--lora", str(where / "lora"))))
    far = lambda a, b: max(abs(x - y) for x, y in zip(a, b))
    check("an adapter of queries and keys beside GLM-4.1V in GGUF", far(one, two) < 1e-4 < 1e-2 < far(plain, one), (far(one, two), far(plain, one)))
    a = subprocess.run([CLI, "convert", str(made / "model.gguf"), str(where / "back")], capture_output=True, text=True, timeout=60)
    check("GLM-4.1V in GGUF has no way back", a.returncode == 1 and "not converted to a folder" in a.stderr, (a.returncode, a.stderr))


def packed(where, folder, made, extra):
    """Biases of a tower's queries and keys, whose rows change places, in blocks of 32 as in floats; a matrix whose rows are no whole blocks is refused."""
    def scored(block):
        def change(keys, tensors):
            n = tensors["v.blk.0.attn_q.weight"][1][0]
            for at, part in enumerate("qkv"):
                q = [(7 * i + 11 * at) % 64 - 32 for i in range(n)]
                tensors[f"v.blk.0.attn_{part}.bias"] = (8, [n], b"".join(struct.pack("<e32b", 0.0625, *q[i:i + 32]) for i in range(0, n, 32))) if block else (0, [n], struct.pack(f"<{n}f", *(x / 16 for x in q)))
        twins.mmproj(where / "packed.gguf", folder, change)
        return ask("score", "-m", str(made / "model.gguf"), "--mmproj", str(where / "packed.gguf"), "--dtype", "float32", "--messages", str(folder / "chat1.json"), *extra)["logprobs"][1:]
    plain, blocks = scored(False), scored(True)
    check("mmproj: biases in blocks", max(abs(a - b) for a, b in zip(plain, blocks)) < 1e-4, max(abs(a - b) for a, b in zip(plain, blocks)))
    def change(keys, tensors):
        _, (rows, cols), data = tensors["v.blk.0.ffn_down.weight"]
        tensors["v.blk.0.ffn_down.weight"] = 8, [rows * cols], bytes(rows * cols // 32 * 34)
    twins.mmproj(where / "packed.gguf", folder, change)
    p = subprocess.run([CLI, "score", "-m", str(made / "model.gguf"), "--mmproj", str(where / "packed.gguf"), "-p", "a"], capture_output=True, text=True, timeout=60)
    check("mmproj: rows of no whole blocks", p.returncode == 1 and "whole blocks of 32 expected" in p.stderr and len(p.stderr.strip().splitlines()) == 1, (p.returncode, p.stderr))


def test_spellings(extra):
    """The same folders as newer and older versions of transformers write them, without what is the usual; and what is refused by name."""
    def nested(family):
        """One processor_config.json, as transformers 5 saves it."""
        whole = json.loads((DATA / family / "processor_config.json").read_text()) if (DATA / family / "processor_config.json").exists() else {}
        files = {"image_processor": "preprocessor_config.json", "video_processor": "video_preprocessor_config.json"}
        there = {key: name for key, name in files.items() if (DATA / family / name).exists()}
        return {"processor_config.json": whole | {key: json.loads((DATA / family / name).read_text()) for key, name in there.items()}, **dict.fromkeys(there.values())}

    def spelled(where, family, changes):
        """The family's folder with files replaced, left out (None), or with members changed by a function."""
        folder = where / family
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(DATA / family, folder)
        for name, change in changes.items():
            if change is None: (folder / name).unlink()
            elif isinstance(change, dict): (folder / name).write_text(json.dumps(change))
            else:
                told = json.loads((folder / name).read_text())
                change(told)
                (folder / name).write_text(json.dumps(told))
        return folder

    def without(*names):
        def change(told):
            for name in names:
                at, _, key = name.rpartition(".")
                del (told[at] if at else told)[key]
        return change

    def tied(told): told["text_config"]["tie_word_embeddings"] = True # the whole says false, and the files have an output layer
    def blocks(told): del told["text_config"]["rope_scaling"]["mrope_interleaved"]
    def other(told): told.update(image_mean=[0.1, 0.2, 0.3], image_std=[0.9] * 3)
    def rope(told): told["vision_config"]["rope_parameters"] = {"rope_theta": told["vision_config"].pop("rope_theta"), "rope_type": "default"}
    def parted_text(told): # as transformers 5 writes it
        names = [x for x in told if x not in ("architectures", "model_type", "vision_config", "transformers_version") and not x.endswith("token_id")]
        text = {x: told.pop(x) for x in names}
        told["text_config"] = text | {"model_type": "paddleocr_vl_text", "rope_parameters": text.pop("rope_scaling") | {"rope_theta": text.pop("rope_theta")}}
        told["vision_config"] |= {"model_type": "paddleocr_vl_vision", "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}
        told["tie_word_embeddings"] = text["tie_word_embeddings"]
    same = [("idefics3", 2, nested("idefics3") | {"config.json": without("scale_factor")}),
            ("qwen2_5_vl", 2, nested("qwen2_5_vl")), ("qwen2_5_vl", 6, nested("qwen2_5_vl")),
            ("qwen2_vl_chat", 2, {"config.json": without("vision_config.model_type", "vision_config.patch_size", "vision_config.spatial_merge_size", "vision_config.hidden_act")}),
            ("llava_next", 2, {"config.json": without("vision_feature_layer", "vision_feature_select_strategy", "vision_config.model_type", "image_grid_pinpoints")}),
            ("llava_onevision", 2, {"config.json": tied}), ("qwen3_vl", 2, {"config.json": blocks}), ("qwen3_vl", 6, {"preprocessor_config.json": other, "video_preprocessor_config.json": without("image_mean", "image_std")}),
            ("glm4v", 2, nested("glm4v") | {"config.json": without("vision_config.model_type", "vision_config.hidden_act", "vision_config.rms_norm_eps", "vision_config.spatial_merge_size", "text_config.attention_bias")}),
            ("glm4v_moe", 5, nested("glm4v_moe")), ("glm_ocr", 2, {"config.json": without("vision_config.model_type", "vision_config.temporal_patch_size")}),
            ("kimi_vl", 2, {"config.json": without("vision_config.model_type", "vision_config.merge_kernel_size", "vision_config.patch_size", "media_placeholder_token_id")}),
            ("aya_vision", 2, {"config.json": without("downsample_factor", "image_token_index", "vision_feature_layer", "vision_feature_select_strategy")}),
            ("cohere2_vision", 2, nested("cohere2_vision") | {"config.json": without("image_token_id", "downsample_factor", "vision_config.hidden_act")}),
            ("lfm2_vl", 2, nested("lfm2_vl") | {"config.json": without("image_token_id", "downsample_factor", "projector_hidden_act", "projector_use_layernorm", "vision_feature_layer", "text_config.model_type", "vision_config.hidden_act")}),
            ("paddleocr_vl", 2, nested("paddleocr_vl") | {"config.json": parted_text}),
            ("paddleocr_vl", 5, {"config.json": without("hidden_act", "use_bias", "image_token_id", "vision_config.model_type", "vision_config.hidden_act", "vision_config.layer_norm_eps", "vision_config.spatial_merge_size")}),
            ("llama4", 2, {"config.json": without("vision_config.pixel_shuffle_ratio", "image_token_index", "vision_config.rope_theta", "vision_config.norm_eps")}),
            ("gemma4", 2, {"config.json": without("vision_config.model_type", "vision_config.pooling_kernel_size", "image_token_id")}),
            ("mistral3", 2, nested("mistral3") | {"config.json": rope}), ("internvl_tiles", 2, {"config.json": without("downsample_ratio", "vision_config.norm_type")})]
    def part(family, name, **more): return {name: json.loads((DATA / family / "config.json").read_text())[name] | more}
    refused = [("glm4v", "config.json", part("glm4v", "vision_config", out_hidden_size=63), "visual.blocks.0.mlp"), ("glm4v", "config.json", part("glm4v", "vision_config", image_size=96), "position_embedding"),
               ("glm4v", "config.json", part("glm4v", "vision_config", spatial_merge_size=3), "visual.downsample"), ("glm4v", "config.json", part("glm4v", "vision_config", temporal_patch_size=3), "temporal_patch_size"),
               ("glm4v", "config.json", part("glm4v", "vision_config", num_heads=5), "vision_config"), ("glm4v", "preprocessor_config.json", {"size": {"shortest_edge": 0, "longest_edge": 100}}, "min_pixels"),
               ("glm4v", "config.json", part("glm4v", "text_config", rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 2, 2]}), "mrope_section"),
               ("kimi_vl", "preprocessor_config.json", {"pad_input": False}, "pad_input"), ("kimi_vl", "preprocessor_config.json", {"in_token_limit": 0}, "in_token_limit"),
               ("kimi_vl", "preprocessor_config.json", {"in_token_limit": 10 ** 9}, "in_token_limit"), ("kimi_vl", "config.json", part("kimi_vl", "vision_config", init_pos_emb_width=6), "init_pos_emb_width"),
               ("kimi_vl", "config.json", part("kimi_vl", "vision_config", init_pos_emb_height=6, init_pos_emb_width=6), "pos_emb"), ("kimi_vl", "config.json", part("kimi_vl", "vision_config", merge_kernel_size=[3, 3]), "linear_1"),
               ("kimi_vl", "config.json", part("kimi_vl", "vision_config", intermediate_size=41), "encoder.blocks.0.mlp.fc0"), ("kimi_vl", "config.json", part("kimi_vl", "vision_config", num_attention_heads=5), "vision_config"),
               *(("gemma4", "config.json", part("gemma4", "vision_config", **more), says) for more, says in (({"position_embedding_size": 127}, "position_embedding_table"), ({"pooling_kernel_size": 2}, "pooling_kernel_size"),
                 ({"num_key_value_heads": 1}, "num_key_value_heads"), ({"head_dim": 12}, "q_proj"), ({"hidden_activation": "frob"}, "hidden_activation"), ({"intermediate_size": 71}, "gate_proj"))),
               ("cohere2_vision", "config.json", {"downsample_factor": 1}, "multi_modal_projector.linear_1"), ("cohere2_vision", "config.json", {"downsample_factor": 3}, "patches a side"), ("cohere2_vision", "preprocessor_config.json", {"max_patches": 257}, "max_patches"),
               *(("lfm2_vl", "config.json", part("lfm2_vl", "vision_config", **more), says) for more, says in (({"num_patches": 26}, "square"), ({"num_patches": 36}, "position_embedding"), ({"num_patches": 4225}, "num_patches"), ({"num_attention_heads": 5}, "q_proj"), ({"num_attention_heads": 32}, "vision_config"),
                 ({"intermediate_size": 71}, "mlp.fc1"), ({"patch_size": 8}, "encoder_patch_size"))),
               *(("lfm2_vl", "config.json", more, says) for more, says in (({"downsample_factor": 4}, "downsample_factor"), ({"projector_use_layernorm": False, "projector_hidden_act": "frob"}, "projector_hidden_act"), ({"projector_use_layernorm": 7.5}, "projector_use_layernorm"))),
               *(("lfm2_vl", "preprocessor_config.json", {name: x}, name) for name, x in (("max_image_tokens", 0), ("max_image_tokens", 70000), ("min_image_tokens", 17), ("min_image_tokens", -1), ("max_pixels_tolerance", 0), ("min_tiles", 5), ("max_tiles", 257), ("tile_size", 3),
                 ("downsample_factor", 3), ("encoder_patch_size", 16))), ("lfm2_vl", "preprocessor_config.json", {"tile_size": 36}, "patches a side"),
               *(("paddleocr_vl", "config.json", part("paddleocr_vl", "vision_config", **more), says) for more, says in (({"image_size": 47}, "position_embedding"), ({"num_attention_heads": 5}, "vision_config"), ({"intermediate_size": 71}, "mlp.fc1"),
                 ({"spatial_merge_size": 3}, "linear_1"), ({"patch_size": 8, "image_size": 48}, "patch_embedding"), ({"hidden_size": 48}, "patch_embedding"), ({"hidden_act": "frob"}, "hidden_act"))),
               *(("paddleocr_vl", "config.json", {"rope_scaling": {"mrope_section": x}}, "mrope_section") for x in ([2, 3, 4], [16, 24, 24], [7], [-1, 5, 4])),
               *(("paddleocr_vl", "preprocessor_config.json", {"min_pixels": x}, "pixels") for x in (0, -5, 4001, 1e30)),
               ("aya_vision", "config.json", {"downsample_factor": 1}, "multi_modal_projector.layernorm"), ("aya_vision", "config.json", {"downsample_factor": 3}, "patches a side"),
               *(("llama4", "config.json", part("llama4", "vision_config", **more), says) for more, says in (({"pixel_shuffle_ratio": 0.25}, "vision_adapter"), *(({"pixel_shuffle_ratio": x}, "pixel_shuffle_ratio") for x in (1e-300, 1e-9, 0.06, 0.4)), ({"image_size": 40}, "positional_embedding_vlm"), ({"num_attention_heads": 3}, "vision_config"),
                 ({"intermediate_size": 71}, "mlp.fc1"))),
               ("gemma4", "config.json", part("gemma4", "vision_config", hidden_activation="relu", use_clipped_linears=True), "hidden_activation"),
               ("llama4", "preprocessor_config.json", {"max_patches": 0}, "max_patches"), ("llama4", "preprocessor_config.json", {"max_patches": 257}, "max_patches"),
               *(("gemma4", "processor_config.json", {"image_processor": {"patch_size": 4, **more}}, next(iter(more))) for more in ({"max_soft_tokens": 71}, {"do_normalize": True}, {"pooling_kernel_size": 2})),
               ("glm_ocr", "config.json", part("glm_ocr", "vision_config", intermediate_size=41), "visual.blocks.0.mlp"), ("gemma3", "preprocessor_config.json", {"do_pan_and_scan": True, "pan_and_scan_max_num_crops": 65}, "pan_and_scan_max_num_crops"),
               ("llava_next", "config.json", {"vision_feature_layer": [-2, 0]}, "vision_feature_layer"), ("llava_next", "config.json", {"vision_feature_layer": [1] * 17}, "vision_feature_layer"),
               ("llava_next", "config.json", {"vision_feature_layer": [1, -2]}, "linear_1"), ("gemma3", "config.json", {"vision_feature_layer": [1, 2]}, "vision_feature_layer"), ("idefics3", "config.json", {"scale_factor": 3}, "patches a side"),
               ("llava_next", "config.json", {"vision_feature_select_strategy": "full"}, "vision_feature_select_strategy"),
               ("llava_onevision", "config.json", {"vision_feature_select_strategy": "default"}, "vision_feature_select_strategy"),
               ("llava_next", "config.json", {"vision_feature_select_strategy": "half"}, "vision_feature_select_strategy"),
               ("llava_next", "config.json", {"vision_feature_layer": 7}, "vision_feature_layer"), ("llava_next", "config.json", {"projector_hidden_act": "frob"}, "projector_hidden_act")]
    with tempfile.TemporaryDirectory() as d:
        for family, n, changes in same:
            folder = spelled(pathlib.Path(d), family, changes)
            by_files(folder, n, json.loads((folder / "expected.json").read_text())["prompts"][n], extra)
        folder = spelled(pathlib.Path(d), "minicpmv", {"preprocessor_config.json": lambda told: told.update(use_image_id=False)})
        begin, end = (x["id"] for x in json.loads((folder / "tokenizer.json").read_text())["added_tokens"] if x["content"] in ("<image_id>", "</image_id>"))
        ids = json.loads((folder / "expected.json").read_text())["prompts"][1]["token_ids"]
        got = ask("score", "-m", str(folder), "--messages", str(folder / "chat1.json"), *extra)["token_ids"]
        a = subprocess.run([CLI, "score", "-m", str(folder), "--load-format", "dummy", "--messages", str(folder / "chat1.json"), "--json"], capture_output=True, text=True, timeout=60)
        check("minicpmv: weights at random", a.returncode == 0 and json.loads(a.stdout)["n_tokens"] == len(got), (a.returncode, a.stderr))
        check("minicpmv: no numbers of pictures", got == ids[:ids.index(begin)] + ids[ids.index(end) + 1:], got)
        for family, name, more, says in refused:
            folder = spelled(pathlib.Path(d), family, {name: lambda told: told.update(more)})
            p = subprocess.run([CLI, "score", "-m", str(folder), "-p", "a"], capture_output=True, text=True, timeout=60)
            check(f"{family}: {more} is refused", p.returncode == 1 and says in p.stderr and len(p.stderr.strip().splitlines()) == 1, (p.returncode, p.stderr))


def test_layers(extra):
    """A list as vision_feature_layer: rows of those layers side by side, for the projector's first matrix; its columns of all but one are zeros here."""
    source, matrix = DATA / "llava_next", "multi_modal_projector.linear_1.weight"
    config, tensors = json.loads((source / "config.json").read_text()), adapters.read_safetensors(source / "model.safetensors")
    name = next(x for x in tensors if x.endswith(matrix))
    dtype, (rows, cols), data = tensors[name]
    prompts = json.loads((source / "expected.json").read_text())["prompts"]
    for layers, at in (([-2, -1], 0), ([1, -2], 1), ([-1, 1, -2], 2), ([-2] * 16, 9)):
        with tempfile.TemporaryDirectory() as d:
            folder, row = pathlib.Path(d) / "llava_next", len(data) // rows
            shutil.copytree(source, folder)
            (folder / "config.json").write_text(json.dumps(config | {"vision_feature_layer": layers}))
            wide = b"".join(bytes(row * at) + data[row * i:][:row] + bytes(row * (len(layers) - 1 - at)) for i in range(rows))
            adapters.write_safetensors(folder / "model.safetensors", tensors | {name: (dtype, [rows, cols * len(layers)], wide)})
            for n in (1, 2): by_files(folder, n, prompts[n], extra)
            model, mmproj = twins.seeing(folder, pathlib.Path(d) / "gguf")
            by_files(folder, 1, prompts[1], extra, ("-m", str(model), "--mmproj", str(mmproj)))


PARTS_AS_THEY_ARE = "{% for m in messages %}{% for p in m.content %}{{ '<start_of_image>' if p.type == 'image' else p.text }}{% endfor %}{% endfor %}"


def test_pan_and_scan(extra):
    """Gemma 3's do_pan_and_scan: the same as a sentence with the picture and the pieces that one cuts out of it oneself."""
    def asked(content, **changed):
        messages = json.dumps([{"role": "user", "content": content}])
        more = ("--mm-processor-kwargs", json.dumps(changed)) if changed else ()
        return ask("score", "-m", str(DATA / "gemma3"), "--dtype", "float32", "--chat-template", PARTS_AS_THEY_ARE, "--messages", "-", "--top-logprobs", "4", *more, *extra, stdin=messages)

    def text(s): return {"type": "text", "text": s}
    for w, h, limits, want in ((150, 60, {}, 3), (60, 151, {}, 3), (146, 60, {}, 2), (200, 40, {"pan_and_scan_max_num_crops": 3}, 3), (203, 40, {"pan_and_scan_max_num_crops": 8}, 5), (70, 60, {}, 0), (70, 60, {"pan_and_scan_min_ratio_to_activate": 1.1}, 2),
                               (150, 60, {"pan_and_scan_min_crop_size": 61}, 0), (120, 60, {"pan_and_scan_min_crop_size": 60}, 2)):
        rows = [bytes((x * 5 + y * 3 + c * 80 + x * y // 7) % 256 for x in range(w) for c in range(3)) for y in range(h)]
        def piece(x, y, to_x, to_y): return image(data(png(min(to_x, w) - x, min(to_y, h) - y, b"".join(b"\0" + row[3 * x:3 * to_x] for row in rows[y:to_y]))))
        whole, step = piece(0, 0, w, h), -(-max(w, h) // max(want, 1))
        pieces = [piece(i * step, 0, i * step + step, h) if w >= h else piece(0, i * step, w, i * step + step) for i in range(want)]
        by_hand = [text("Here is the original image "), whole, text(" and here are some crops to help you see better "), *[x for p in pieces for x in (p, text(" "))][:-1]] if want else [whole]
        got = asked([text("Look: "), whole, text(" What?")], do_pan_and_scan=True, **{"pan_and_scan_min_crop_size": 30, **limits})
        same = asked([text("Look: "), *by_hand, text(" What?")])
        check(f"{w} x {h}, {limits}: {want} pieces", all(got[key] == same[key] for key in ("token_ids", "logprobs", "next")), (got["n_tokens"], same["n_tokens"]))


TEXTS_ONLY = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}"


def test_interleaved():
    """Templates that know texts only: pictures stand before the text as in vLLM, or where they stood with --interleave-mm-strings."""
    folder = DATA / "qwen2_5_vl"
    good = image(data((folder / "exact.png").read_bytes()))
    messages = [{"role": "user", "content": [{"type": "text", "text": "one"}, good, {"type": "text", "text": "two"}, good, {"type": "text", "text": "three"}]}]
    seen = {}
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(TEXTS_ONLY)
        f.flush()
        for flags in ((), ("--interleave-mm-strings",)):
            s = Server("--chat-template", f.name, *flags, model=str(folder), base=("--log-level", "warn"))
            text = s.post("/apply-template", {"messages": messages})[1]["prompt"]
            status, a = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0, "ignore_eos": True})
            seen[flags] = text, a["usage"]["prompt_tokens"] if status == 200 else a
            s.stop()
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    for (text, tokens), lines in zip(seen.values(), ((mark, mark, "one", "two", "three"), ("one", mark, "two", mark, "three"))):
        check(f"pictures and texts: {lines}", "<|im_start|>user\n" + "\n".join(lines) + "<|im_end|>" in text, text)
    check("as many tokens", len({tokens for _, tokens in seen.values()}) == 1 and all(isinstance(tokens, int) for _, tokens in seen.values()), seen)


def test_ways():
    """Pictures with adapters, beams, several answers and kept contexts."""
    folder, chat = DATA / "qwen2_5_vl", str(DATA / "qwen2_5_vl/chat1.json")
    good, text = image(data((folder / "exact.png").read_bytes())), {"type": "text", "text": "word " * 60}
    with tempfile.TemporaryDirectory() as d:
        parts = adapters.make(str(folder), d + "/adapter", targets=r"layers\.\d+\.self_attn\.[qv]_proj")
        shutil.copytree(folder, d + "/merged")
        adapters.merge(str(folder), d + "/merged", parts)
        new = [ask("generate", "-m", model, "--dtype", "float32", "--messages", chat, "-n", "8", "--temp", "0", "--ignore-eos", *lora)["token_ids"]
               for model, lora in ((str(folder), ()), (str(folder), ("--lora", d + "/adapter")), (d + "/merged", ()))]
        check("an adapter beside a picture says what the merged model says", new[1] == new[2] != new[0], new)
        flags = ("--dtype", "float32", "--context-dir", d, "--enable-lora", "--lora-modules", f"a={d}/adapter")
        s = Server(*flags, model=str(folder), base=("--log-level", "warn"))
        def call(content=(good, text), **more): return s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": list(content)}], "max_tokens": 6, "temperature": 0, "ignore_eos": True, **more})[1]
        plain, other = call(), call(model="a")
        check("an adapter has a cache of its own", other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0 and call()["choices"][0]["message"] == plain["choices"][0]["message"], other)
        beams = [call(n=2, best_of=2, use_beam_search=True)["choices"] for _ in range(2)]
        score = [[x["cum_log_probs"] / 6 for x in b] for b in beams]
        check("beams: two answers, the better one first, again the same", len(beams[0]) == 2 and score[0][0] > score[0][1] and score[0] == score[1] and beams[0][0]["cum_log_probs"] >= plain["choices"][0]["cum_log_probs"] - 1e-6, (score, beams))
        many = [call(n=3, temperature=2, seed=7), call(n=1, temperature=2, seed=7)]
        told = [[x["message"]["content"] for x in a["choices"]] for a in many]
        check("several answers: the first is that of one", len(set(told[0])) > 1 and told[0][0] == told[1][0], told)
        long = (text, good, text)
        want = call(long)
        status, kept = s.post("/v1/contexts/save", {"name": "seen", "messages": [{"role": "user", "content": list(long)}]})
        check("a context is kept up to its first picture", status == 200 and 64 < kept["tokens"] < want["usage"]["prompt_tokens"] / 2, (status, kept))
        s.stop()
        s = Server(*flags, model=str(folder), base=("--log-level", "warn"))
        status, _ = s.post("/v1/contexts/load", {"name": "seen"})
        again = call(long)
        check("and read by another server", status == 200 and again["choices"][0]["message"] == want["choices"][0]["message"] and again["usage"]["prompt_tokens_details"]["cached_tokens"] == kept["tokens"], again)
        s.stop()


def test_crowd():
    """Pictures, old and new ones, videos and text of several clients at once: each is told what it is told alone, with little room and with much."""
    folder = DATA / "qwen2_5_vl"
    pictures = [data(png(28 * (1 + i % 3), 28 * (2 + i % 4), b"".join(b"\0" + bytes((x * 7 + y * (3 + i)) % 251 for x in range(84 * (1 + i % 3))) for y in range(28 * (2 + i % 4))))) for i in range(8)]
    film = {"type": "video", "video": [data((folder / f"frame{i}.png").read_bytes()) for i in range(4)], "fps": 2.0}
    asked = [[image(pictures[i % 8]), {"type": "text", "text": "Who? " * (i % 3)}, *([image(pictures[(i + 3) % 8])] if i % 2 else []), *([film] if i % 5 == 4 else [])] for i in range(20)]
    asked += [[{"type": "text", "text": "word " * (20 + 30 * i)}] for i in range(4)]
    for flags in (("--max-num-seqs", "1", "--no-enable-prefix-caching"), ("--max-num-seqs", "6", "--max-num-batched-tokens", "48", "--num-gpu-blocks-override", "24"), ("--max-num-seqs", "8", "-t", "4")):
        s, told = Server("--dtype", "float32", *flags, model=str(folder), base=("--log-level", "warn")), {}
        def client(k):
            for i in range(k, 2 * len(asked), 6): # each twice: the second time it is known
                status, a = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": asked[i % len(asked)]}], "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": True})
                told[i] = [x["logprob"] for x in a["choices"][0]["logprobs"]["content"]] if status == 200 else a
        clients = [threading.Thread(target=client, args=(k,)) for k in range(6)]
        for x in clients: x.start()
        for x in clients: x.join()
        if s.process.poll() is not None: return check("several clients with pictures: the server lives", False, s.process.returncode)
        s.stop()
        if flags[1] == "1": alone = told
        same = [i for i in range(2 * len(asked)) if told.get(i) != alone[i % len(asked)] or not isinstance(told[i], list)]
        check(f"several clients with pictures {' '.join(flags)}: the bits of one alone", not same, [(i, told.get(i), alone[i % len(asked)]) for i in same][:2])


class Pictures(http.server.BaseHTTPRequestHandler):
    """Another server: a picture, ways that lead to it or elsewhere, and what hurts who asks."""
    picture, asked = b"", []
    protocol_version = "HTTP/1.1"

    def log_message(self, *_): pass

    def do_GET(self):
        self.asked.append(self.path)
        kind, _, rest = self.path[1:].partition("?")[0].partition("/")
        if kind == "slow": return time.sleep(float(rest))
        if kind == "loop": kind, rest = "to", "/loop"
        self.send_response({"to": 302, "none": 404}.get(kind, 200))
        if kind == "to": self.send_header("Location", urllib.parse.unquote(rest))
        if kind == "endless": self.send_header("Transfer-Encoding", "chunked")
        else: self.send_header("Content-Length", str({"long": 1 << 30, "picture": len(self.picture)}.get(kind, 0)))
        self.end_headers()
        try:
            if kind == "picture": self.wfile.write(self.picture)
            for _ in range(2000 if kind == "endless" else 0): self.wfile.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
        except OSError: pass


def gone(call, *args):
    """A call whose server may end meanwhile."""
    try: call(*args)
    except OSError: pass


def children(process):
    """Programs that a server runs now."""
    said = subprocess.run(["ps", "-o", "args=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout
    return [x for x in said.splitlines() if x.strip() and "defunct" not in x]


def test_fetched():
    """Pictures by URL: only from servers that are listed, within limits, and nobody waits for them but who asked."""
    folder = DATA / "qwen2_5_vl"
    Pictures.picture = (folder / "exact.png").read_bytes()
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures)
    other.daemon_threads = True
    threading.Thread(target=other.serve_forever, daemon=True).start()
    port, name = other.server_address[1], socket.gethostname()
    url = f"http://127.0.0.1:{port}"
    s = Server("--allowed-media-domains", "127.0.0.1", name if name.isascii() and "_" not in name else "cdn.example.com", model=str(folder), env={"VLLM_IMAGE_FETCH_TIMEOUT": str(2 * serving.SLOW)}, base=("--log-level", "warn"))
    def call(*urls, **more): return s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "Which?"}, *(image(u, **more) for u in urls)]}], "max_tokens": 4, "temperature": 0})
    plain = call(data(Pictures.picture))[1]
    if not shutil.which("curl"):
        status, a = call(url + "/picture")
        check("no curl: a sentence", status == 400 and "must be installed" in a["error"]["message"], a)
        s.stop()
        return
    for way in ("/picture", "/picture?a=1#b", "/to/%2Fpicture", f"/to/{url}/picture", "/to//to/%2Fpicture"):
        status, a = call(url + way)
        check(f"{way}: the same as the data", status == 200 and a["choices"][0]["message"] == plain["choices"][0]["message"] and a["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"], a)
    status, a = call(url + "/picture", data(Pictures.picture), url + "/picture")
    check("three, two of them fetched", status == 200, a)
    far = "/to/" + urllib.parse.quote("http://example.org/x.png", safe="")
    asked = len(Pictures.asked)
    for way, what in ((f"http://localhost:{port}/picture", "does not list"), ("http://example.org/x.png", "does not list"), (f"http://[::1]:{port}/picture", "does not list"), (f"http://127.0.0.1@evil.example:{port}/", "is no http"),
                      (f"http://2130706433:{port}/picture", "does not list"), (f"http://127.1:{port}/picture", "does not list"), (f"http://127.0.0.1:{port}\\@example.org/", "is no http"), ("ftp://127.0.0.1/x", "data URI")):
        status, a = call(way)
        check(f"{way}: refused", status == 400 and what in a["error"]["message"], a)
    check("and nobody is asked", len(Pictures.asked) == asked, Pictures.asked[asked:])
    for way, what in ((far, "the redirect leads to example.org, which"), ("/to/file:%2F%2F%2Fetc%2Fpasswd", "redirect"), ("/loop", "more than 5 redirects"), ("/none", "HTTP 404"), ("/empty", ""), ("/long", "bytes"), ("/endless", "bytes"), (f"/slow/{30 * serving.SLOW}", "within")):
        status, a = call(url + way)
        check(f"{way}: a sentence", status == 400 and what in a["error"]["message"], a)
    try: private = not ipaddress.ip_address(socket.gethostbyname(name)).is_global
    except OSError: private = False
    if private and name.isascii() and "_" not in name:
        status, a = call(f"http://{name}:{port}/picture")
        check("a listed name of a private address", status == 400 and "not a public one" in a["error"]["message"], a)
    slow = [threading.Thread(target=call, args=(f"{url}/slow/30",)) for _ in range(6)]
    for t in slow: t.start()
    time.sleep(0.3)
    begin = time.time()
    check("others go on", s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})[0] == 200 and time.time() - begin < 1.5 * serving.SLOW, time.time() - begin)
    for t in slow: t.join()
    check("no curl is left", serving.eventually(lambda: not children(s.process), 5), children(s.process))
    threading.Thread(target=lambda: gone(call, f"{url}/slow/30"), daemon=True).start()
    check("one runs", serving.eventually(lambda: children(s.process), 2 * serving.SLOW))
    left = children(s.process)
    check("its server ends", s.stop() == 0)
    check("and curl with it", serving.eventually(lambda: not [x for x in subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True).stdout.splitlines() if x in left and "curl -q --config" in x], 5 * serving.SLOW), left)
    s = Server(model=str(folder), base=("--log-level", "warn"))
    status, a = call(url + "/picture")
    check("nothing is fetched unless it is allowed", status == 400 and "--allowed-media-domains" in a["error"]["message"], a)
    s.stop()
    for value in ("http://a.com", "a.com:80", "*.a.com", "a b"):
        p = subprocess.run([serving.SERVE, "--model", str(folder), "--port", "0", "--allowed-media-domains", value], capture_output=True, text=True, timeout=60)
        check(f"--allowed-media-domains {value}: refused", p.returncode in (1, 2) and "allowed" in p.stderr, p.stderr)
    other.shutdown()


FFMPEG = """#!/bin/sh
case "$*" in
*framecrc*) %s ;;
*) %s ;;
esac
"""
FOUR = "printf '#tb 0: 1/2\\n0, 0, 0, 1, 9, 0x0\\n0, 1, 2, 1, 9, 0x0\\n0, 2, 1, 1, 9, 0x0\\n0, 3, 3, 1, 9, 0x0\\n'"
MP4 = b"\0\0\0\x18ftypisom" + bytes(99)


def video(raw, **more): return {"type": "video_url", "video_url": {"url": data(raw, "video/mp4")}, **more}


def same(a, b, lossy=False):
    """Whether two answers came of the same frames."""
    return a["usage"]["prompt_tokens"] == b["usage"]["prompt_tokens"] and (lossy or a["choices"][0]["message"] == b["choices"][0]["message"])


def test_films():
    """Videos that an installed ffmpeg decodes: a stand-in's frames are as the same frames given; who hangs or lies costs one request."""
    folder = DATA / "qwen2_5_vl"
    with tempfile.TemporaryDirectory() as d:
        program, film = pathlib.Path(d) / "ffmpeg", pathlib.Path(d) / "frames"
        def stand_in(length, decode):
            program.write_text(FFMPEG % (length, decode))
            program.chmod(0o755)
        frames = [bytes([40 * i, 255 - 40 * i, 128]) * (56 * 56) for i in range(4)]
        film.write_bytes(b"".join(b"P6\n56 56\n255\n" + x for x in frames))
        rows = lambda x: b"".join(b"\0" + x[i:i + 168] for i in range(0, len(x), 168))
        given = {"type": "video", "video": [data(png(56, 56, rows(x))) for x in frames], "fps": 2}
        text = {"type": "text", "text": "What moves?"}
        def call(s, *parts, **more): return s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [text, *parts]}], "max_tokens": 8, "temperature": 0, **more})
        s = Server(model=str(folder), env={"PATH": f"{d}:{os.environ['PATH']}"}, base=("--log-level", "warn"))
        status, a = call(s, video(MP4))
        check("a film without --allow-ffmpeg: both ways are named", status == 400 and "--allow-ffmpeg" in a["error"]["message"] and "GIF" in a["error"]["message"], a)
        s.stop()
        s = Server("--allow-ffmpeg", model=str(folder), env={"PATH": f"{d}:{os.environ['PATH']}", "VLLM_IMAGE_FETCH_TIMEOUT": str(2 * serving.SLOW)}, base=("--log-level", "warn"))
        stand_in(FOUR, f"cat {film}")
        (status, a), (plain, b) = call(s, video(MP4)), call(s, given)
        check("frames of a film are as frames given", status == plain == 200 and same(a, b), (a, b))
        before = s.resident()
        for name, length, decode, says in (("it hangs", "sleep 1234", "", "within"), ("it hangs among frames", FOUR, f"head -c 9999 {film}; sleep 1234", "within"), ("it leaves others behind", FOUR, f"sleep 1234 & cat {film}", "within"),
                                           ("it fails", FOUR, "exit 3", "exit code 3"), ("it writes nothing", FOUR, "true", "no frames"), ("it writes nonsense", FOUR, "echo hello", "something else"),
                                           ("it writes too many", FOUR, f"cat {film} {film} {film}", "more than"), ("a frame of 60,000 x 60,000", FOUR, "printf 'P6\\n60000 60000\\n255\\n'", "60000"),
                                           ("it tells of no frames", "true", f"cat {film}", "no frames"), ("it wants a file", FOUR, f"sleep 0.3; echo x > {d}/written && cat {film}", ""), ("it is no program", "", None, "")):
            stand_in(length, decode) if decode is not None else program.write_bytes(b"\x7fELF")
            status, a = call(s, video(MP4))
            check(f"ffmpeg: {name}", status == 400 and says in a["error"]["message"] and 15 < len(a["error"]["message"]) < 600, (status, a))
        check("ffmpeg writes nothing into files", (pathlib.Path(d) / "written").stat().st_size == 0)
        for name, raw in (("a list of films", b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n"), ("a list of files", b"ffconcat version 1.0\nfile /etc/passwd\n"), ("a text", b"hello"), ("zeros", bytes(4000))):
            stand_in(FOUR, f"cat {film}")
            status, a = call(s, video(raw))
            check(f"{name} is not given to ffmpeg", status == 400, (status, a))
        check("memory is back", serving.SANITIZED or s.resident() - before < 32 << 20, s.resident() - before)
        stand_in(FOUR, "sleep 1234")
        threading.Thread(target=lambda: gone(call, s, video(MP4)), daemon=True).start()
        check("one decodes", serving.eventually(lambda: children(s.process), 2 * serving.SLOW))
        begin = time.time()
        check("others go on", call(s)[0] == 200 and time.time() - begin < 1.5 * serving.SLOW, time.time() - begin)
        check("no ffmpeg is left", serving.eventually(lambda: not children(s.process) and "sleep 1234" not in subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True).stdout.splitlines(), 5 * serving.SLOW), children(s.process))
        s.stop()
        if shutil.which("ffmpeg"):
            real_films(folder, pathlib.Path(d), call)
            real_films(DATA / "qwen3_vl", pathlib.Path(d), call)


def real_films(folder, where, call):
    """A film that ffmpeg has made of coloured frames, losslessly: its frames again, and one a second of them, as of a GIF of the same."""
    for i in range(8): (where / f"{i}.ppm").write_bytes(b"P6\n56 56\n255\n" + bytes([30 * i, 255 - 30 * i, 128]) * (56 * 56))
    still = moving(56, 56, [bytes([30 * i, 255 - 30 * i, 128]) for i in range(8)], 50)
    s = Server("--allow-ffmpeg", "--allowed-local-media-path", str(where), model=str(folder), base=("--log-level", "warn"))
    for name, codec in (("film.mkv", ("-c:v", "ffv1", "-pix_fmt", "gbrp")), ("film.avi", ("-c:v", "ffv1", "-pix_fmt", "bgr0")), ("film.mp4", ("-c:v", "mpeg4", "-q:v", "1"))):
        p = subprocess.run([shutil.which("ffmpeg"), "-v", "error", "-y", "-framerate", "2", "-i", str(where / "%d.ppm"), *codec, str(where / name)], capture_output=True, text=True, timeout=120)
        if not check(f"ffmpeg makes {name}", p.returncode == 0, p.stderr): continue
        status, a = call(s, {"type": "video_url", "video_url": {"url": f"file:{name}"}})
        rows = [b"".join(b"\0" + bytes([30 * i, 255 - 30 * i, 128]) * 56 for _ in range(56)) for i in range(8)]
        given = call(s, {"type": "video", "video": [data(png(56, 56, x)) for x in rows], "fps": 2})[1]
        check(f"{name}: all its frames", status == 200 and same(a, given, name == "film.mp4"), (a, given))
        status, a = call(s, {"type": "video_url", "video_url": {"url": f"file:{name}"}, "fps": 1})
        given = call(s, {"type": "video_url", "video_url": {"url": data(still, "image/gif")}, "fps": 1})[1]
        check(f"{name}: one frame a second", status == 200 and same(a, given, name == "film.mp4"), (a, given))
    raw = (where / "film.mp4").read_bytes()
    for part in (40, 200, len(raw) // 2):
        status, a = call(s, video(raw[:part]))
        check(f"{part} bytes of film.mp4", status == 400 and "ffmpeg" in a["error"]["message"] or status == 200 and part > 200, (status, a))
    s.stop()


def test_image():
    """llm_cli --image: relative and whole names, two of them; what is no picture, and commands that take none."""
    folder, p = DATA / "qwen2_5_vl", ("-p", "What is it?", "-n", "3", "--temp", "0", "--ignore-eos", "--json")
    def run(command, *flags): return subprocess.run([CLI, command, "-m", str(folder), *p, *flags], capture_output=True, text=True, timeout=60, cwd=folder)
    def tokens(a): return json.loads(a.stdout)["usage"]["prompt_tokens"] if not a.returncode else a.stderr
    plain, one, whole, two = (tokens(run("chat", *flags)) for flags in ((), ("--image", "exact.png"), ("--image", str(folder / "exact.png")), ("--image", "exact.png", "--image", "gray.png")))
    check("--image: a picture takes tokens, by either name", isinstance(one, int) and one == whole > plain, (plain, one, whole))
    check("--image twice", isinstance(two, int) and two > one, two)
    for name, command, flags, code, says in (("no such file", "chat", ("--image", "none.png"), 1, "none.png"), ("no picture", "chat", ("--image", "config.json"), 1, "no picture"),
                                             ("generate", "generate", ("--image", "exact.png"), 2, "generate takes no pictures")):
        a = run(command, *flags)
        check(f"--image: {name}", a.returncode == code and says in a.stderr and len(a.stderr.strip().splitlines()) == 1, (a.returncode, a.stderr))


def test_text_models():
    """A model that does not see says so."""
    s = Server(model=str(serving.checkpoint("llama")))
    status, a = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [image("data:image/png;base64,AAAA")]}]})
    check("a text model refuses pictures", status == 400 and "multimodal" in a["error"]["message"], a)
    s.stop()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("family", nargs="*")
    a.add_argument("--args", default="")
    a.add_argument("--files", action="store_true")
    a.add_argument("--chats", default="")
    a.add_argument("--only", default="")
    a = a.parse_args()
    extra = shlex.split(a.args)
    parts = {"mmproj": lambda: test_mmproj(extra), "spellings": lambda: test_spellings(extra), "layers": lambda: test_layers(extra), "pan_and_scan": lambda: test_pan_and_scan(extra), "pairs": test_pairs, "bad": lambda: [test_bad(family) for family in ("qwen2_5_vl", "llava_next", "glm4v", "kimi_vl", "gemma4", "llama4", "aya_vision", "paddleocr_vl", "lfm2_vl", "cohere2_vision")],
             "options": test_options, "interleaved": test_interleaved, "ways": test_ways, "crowd": test_crowd, "fetched": test_fetched, "films": test_films, "image": test_image, "text_models": test_text_models}
    if a.only:
        for name in a.only.split(","): parts[name]()
        return finish()
    for folder in sorted(x for x in DATA.iterdir() if x.is_dir() and (not a.family or x.name in a.family)):
        every = json.loads((folder / "expected.json").read_text())["prompts"]
        prompts = [(n, p) for n, p in enumerate(every) if any(word in p["case"] for word in a.chats.split(","))]
        check(f"{folder.name}: chats", prompts, a.chats)
        for n, p in prompts:
            try: by_files(folder, n, p, extra)
            except (RuntimeError, KeyError, subprocess.TimeoutExpired) as err: check(f"{folder.name}, {p['case']}", False, err)
        if a.files: continue
        s = Server("--dtype", "float32", *extra, model=str(folder), base=("--log-level", "warn", "--max-num-seqs", "4"))
        for _, p in prompts: by_server(s, folder, p)
        s.stop()
    if a.family or a.files: return finish()
    for part in parts.values(): part()
    finish()


main()
