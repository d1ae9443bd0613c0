#!/usr/bin/env python3
"""Makes the tiny checkpoints that tests read: build/checkpoints/FAMILY, Hugging Face folders with random weights.

    checkpoints.py [FAMILY...]        (default: all of tests/data/checkpoints; what is there and up to date stays)

tests/data/checkpoints/FAMILY holds everything but the weights; its tensors.txt says what they are:

    seed 0                                                  another number gives other weights
    shards 2                                                files that the tensors are spread over (1 where the line is missing)
    model.layers.{0..2}.mlp.up_proj.weight bf16 160x64 normal 0 0.125
                                                            name ({a..b}: each of these numbers), type, shape (-: one number without any), distribution

    normal MEAN DEVIATION                                   256 values, the quantiles of a normal distribution
    signed CENTRE DISTANCE DEVIATION                        CENTRE plus or minus a normal number about DISTANCE
    causal                                                  1 where the column is not after the row, else 0
    ternary                                                 four of 0, 1 and 2, two bits each
    rising FIRST STEP                                       FIRST, FIRST + STEP, FIRST + 2 STEP ...

A name such as 2_Dense/linear.weight stands in a file of that folder. tokenizer_with.json has members that stand in place of those of the common
tokenizer.json. Element i of a tensor is the value whose number is byte i of SHAKE-128("FAMILY/SEED/NAME"), so that the weights are the same everywhere and
each tensor is independent of the others. Needs Python's standard library only; all families take about a second.
"""
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tests/data/checkpoints"
BUILD = ROOT / "build/checkpoints"
COMMON = DATA / "common"
ENCODERS = sorted(x.parent.name for x in DATA.glob("*/expected.json") if x.read_text()[:7] == '{"kind"') # they give vectors: see README
HEADS = sorted(x.name for x in DATA.glob("head_*")) # they guess what one of the families says
FAMILIES = sorted(x.parent.name for x in DATA.glob("*/tensors.txt") if x.parent.name not in ENCODERS + HEADS)
SAFETENSORS = {"bf16": "BF16", "f16": "F16", "f32": "F32", "u8": "U8", "i64": "I64"}


def prompts(family):
    """Three: of 1 token, of 17, and of 70 to 120, which is longer than every sliding window and original context of these models."""
    raw = hashlib.shake_128(f"{family}/prompts".encode()).digest(1024)
    ids = [(raw[i] << 8 | raw[i + 1]) % 512 for i in range(2, 1024, 2)]
    return [ids[:1], ids[1:18], ids[18:88 + raw[0] % 51]]


def expected_text(found):
    """expected.json with a line for each list."""
    what = next(x for x in ("prompts", "texts", "pairs") if x in found)
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items() if k != what]
    asked = [",\n ".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in p.items()) for p in found[what]]
    return "{" + ",\n".join(lines) + f',\n"{what}": [\n{{' + "},\n{".join(asked) + "}]}\n"


def encode(value, dtype):
    """The little-endian bytes of a number, rounded to nearest, ties to even."""
    if dtype == "f32": return struct.pack("<f", value)
    if dtype == "f16": return struct.pack("<e", value)
    if dtype == "u8": return struct.pack("<B", int(value))
    if dtype == "i64": return struct.pack("<q", int(value))
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def normal(i, n):
    """The middle of the i-th of n equally likely parts of the normal distribution, rounded so that every C library gives the same."""
    return round(statistics.NormalDist().inv_cdf((i + 0.5) / n) * 4096) / 4096


NORMAL = [normal(i, 256) for i in range(256)]
NORMAL_HALF = [normal(i, 128) for i in range(128)] * 2


def values(distribution):
    """The 256 values of a tensor's elements."""
    kind, numbers = distribution[0], [float(x) for x in distribution[1:]]
    if kind == "normal":
        mean, deviation = numbers
        return [mean + deviation * x for x in NORMAL]
    if kind == "signed":
        centre, distance, deviation = numbers
        return [centre + (1 if i < 128 else -1) * (distance + deviation * NORMAL_HALF[i]) for i in range(256)]
    if kind == "ternary": return [sum(i // 3 ** k % 3 << 2 * k for k in range(4)) for i in range(256)]
    raise ValueError(f"distribution {kind}")


def tensor(key, dtype, shape, distribution):
    """The bytes of one tensor."""
    count = math.prod(shape)
    if distribution[0] == "causal":
        rows, columns = shape[-2:]
        return b"".join(encode(column <= row, dtype) for row in range(rows) for column in range(columns))
    if distribution[0] == "rising":
        first, step = (float(x) for x in distribution[1:])
        return b"".join(encode(first + step * i, dtype) for i in range(count))
    chosen = hashlib.shake_128(key.encode()).digest(count)
    table = [encode(x, dtype) for x in values(distribution)]
    size = len(table[0])
    out = bytearray(count * size)
    for i in range(size): out[i::size] = chosen.translate(bytes(x[i] for x in table)) # byte i of every element
    return bytes(out)


def expanded(name):
    """The names that a name with {a..b} stands for."""
    parts = re.split(r"\{(\d+)\.\.(\d+)\}", name)
    ranges = [range(int(a), int(b) + 1) for a, b in zip(parts[1::3], parts[2::3])]
    for numbers in itertools.product(*ranges):
        yield parts[0] + "".join(str(n) + rest for n, rest in zip(numbers, parts[3::3]))


def read(family, seed=None):
    """{name: (type, shape, bytes)} of a family and the number of its files. seed: another than tensors.txt says."""
    settings, tensors = {"seed": 0, "shards": 1}, {}
    for line in (DATA / family / "tensors.txt").read_text().splitlines():
        words = line.split()
        if words[0] in settings:
            settings[words[0]] = int(words[1])
            continue
        dtype, shape = words[1], [int(x) for x in words[2].split("x") if x != "-"]
        for name in expanded(words[0]):
            tensors[name] = (dtype, shape, tensor(f"{family}/{settings['seed'] if seed is None else seed}/{name}", dtype, shape, words[3:]))
    return tensors, settings["shards"]


def digest(family, seed=None):
    """SHA-256 of a family's weights, in hexadecimal."""
    h = hashlib.sha256()
    for name, (dtype, shape, data) in sorted(read(family, seed)[0].items()): h.update(f"{name} {dtype} {shape}\n".encode() + data)
    return h.hexdigest()


def write_safetensors(path, tensors):
    """Wide types first, as the safetensors package orders them: every tensor is aligned."""
    header, at, blobs = {"__metadata__": {"format": "pt"}}, 0, []
    for name, (dtype, shape, data) in sorted(tensors.items(), key=lambda x: (-len(encode(0, x[1][0])), x[0])):
        header[name] = {"dtype": SAFETENSORS[dtype], "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
        blobs.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def write_weights(folder, tensors, shards):
    if shards == 1: return write_safetensors(folder / "model.safetensors", tensors)
    names = sorted(tensors)
    each = -(-len(names) // shards)
    where = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = names[i * each:(i + 1) * each]
        write_safetensors(folder / file, {name: tensors[name] for name in part})
        where.update((name, file) for name in part)
    index = {"metadata": {"total_size": sum(len(x[2]) for x in tensors.values())}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def write(family, folder, seed=None):
    """Writes a family's whole folder; its own files count before the common ones."""
    folder.mkdir(parents=True)
    for source in (COMMON, DATA / family):
        for file in source.rglob("*"):
            target = folder / file.relative_to(source)
            if file.is_file() and file.name not in ("tensors.txt", "tokenizer_with.json"):
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, target)
    other = DATA / family / "tokenizer_with.json"
    if other.exists(): (folder / "tokenizer.json").write_text(json.dumps(json.loads((COMMON / "tokenizer.json").read_text()) | json.loads(other.read_text())))
    tensors, shards = read(family, seed)
    write_weights(folder, {name: x for name, x in tensors.items() if "/" not in name}, shards)
    for inner in sorted({name.split("/")[0] for name in tensors if "/" in name}):
        write_safetensors(folder / inner / "model.safetensors", {name.split("/")[1]: x for name, x in tensors.items() if name.startswith(inner + "/")})


def fingerprint(family):
    """Of all that a folder is made from."""
    h = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    for file in sorted(x for source in (COMMON, DATA / family) for x in source.rglob("*") if x.is_file()): h.update(file.name.encode() + b"\0" + file.read_bytes())
    return h.hexdigest()


def folder(family):
    """build/checkpoints/FAMILY, made if it is not there or was made from other data. Several processes may ask at the same time."""
    target, mark, want = BUILD / family, BUILD / (family + ".made"), fingerprint(family)
    if target.exists() and mark.exists() and mark.read_text() == want: return target
    work = BUILD / f"{family}.{os.getpid()}"
    write(family, work)
    mark.unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    try: work.rename(target)
    except OSError: shutil.rmtree(work) # another process has just put the same there
    mark.write_text(want)
    return target


def main():
    unknown = [x for x in sys.argv[1:] if x not in FAMILIES + ENCODERS + HEADS]
    if unknown: sys.exit(f"checkpoints: {', '.join(unknown)}: no such folder in {DATA.relative_to(ROOT)}")
    for family in sys.argv[1:] or FAMILIES + ENCODERS + HEADS: folder(family)


if __name__ == "__main__":
    main()
