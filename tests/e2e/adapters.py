"""LoRA adapters as PEFT and llama.cpp write them, and models into which they are merged, for tests: plain Python, small matrices only."""
import json
import os
import random
import re
import struct


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in header.items() if k != "__metadata__"}


def write_safetensors(path, tensors, metadata=None):
    header, at = {"__metadata__": metadata or {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f: f.write(struct.pack("<Q", len(text)) + text + b"".join(x[2] for x in tensors.values()))


def floats(dtype, data):
    if dtype == "F32": return list(struct.unpack(f"<{len(data) // 4}f", data))
    if dtype == "F16": return list(struct.unpack(f"<{len(data) // 2}e", data))
    assert dtype == "BF16", dtype
    return list(struct.unpack(f"<{len(data) // 2}f", b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))))


def pack(dtype, values):
    if dtype == "BF16": return b"".join(struct.pack("<f", x)[2:] for x in values)
    return struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'e'}", *values)


def matrix(rng, rows, cols, size, dtype):
    data = pack(dtype, [rng.uniform(-size, size) for _ in range(rows * cols)])
    return (dtype, [rows, cols], data)


def rows_of(tensor):
    dtype, (rows, cols), data = tensor
    x = floats(dtype, data)
    return [x[i * cols:(i + 1) * cols] for i in range(rows)]


def folder_tensors(model):
    return {k: v for name in sorted(os.listdir(model)) if name.endswith(".safetensors") for k, v in read_safetensors(os.path.join(model, name)).items()}


def stores_across(model, name):
    """GPT-2 stores (in, out)."""
    return re.search(r"\.c_(attn|proj|fc)$", name) and json.load(open(os.path.join(model, "config.json")))["model_type"] == "gpt2"


def linears(model, targets=r"."):
    """Names (without .weight) and shapes (out, in) of a folder's matrices that PEFT could adapt and we can: all but positions'."""
    found = {}
    for name, (_, shape, _) in folder_tensors(model).items():
        if len(shape) != 2 or not name.endswith(".weight") or re.search(r"eh_proj|wpe|embed_positions|embed|wte|norm", name): continue
        if re.search(targets, name): found[name[:-7]] = tuple(reversed(shape)) if stores_across(model, name[:-7]) else tuple(shape)
    return found


def make(model, out, targets=r".", r=4, alpha=16, seed=1, dtype="F32", size=0.5, embed=None, **config):
    """Writes a PEFT folder. Returns {name: (A rows, B rows, scale)}; of an embedding A is (r, vocab)."""
    rng = random.Random(seed)
    scale = alpha / (r ** 0.5 if config.get("use_rslora") else r)
    tensors, parts = {}, {}
    for name, (n_out, n_in) in linears(model, targets).items():
        key = "base_model.model." + ("transformer." if re.match(r"h\.\d", name) else "") + name
        a, b = matrix(rng, r, n_in, size / n_in ** 0.5, dtype), matrix(rng, n_out, r, size, dtype)
        tensors[key + ".lora_A.weight"], tensors[key + ".lora_B.weight"] = a, b
        parts[name] = (rows_of(a), rows_of(b), scale)
    if embed:
        vocab, hidden = folder_tensors(model)[embed + ".weight"][1]
        a, b = matrix(rng, r, vocab, size, dtype), matrix(rng, hidden, r, size / 4, dtype)
        tensors[f"base_model.model.{embed}.lora_embedding_A"], tensors[f"base_model.model.{embed}.lora_embedding_B"] = a, b
        parts[embed] = (rows_of(a), rows_of(b), scale)
    os.makedirs(out, exist_ok=True)
    write_safetensors(os.path.join(out, "adapter_model.safetensors"), tensors)
    with open(os.path.join(out, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "tiny", "bias": "none", "fan_in_fan_out": False, "inference_mode": True,
                   "init_lora_weights": True, "lora_alpha": alpha, "lora_dropout": 0.0, "modules_to_save": None, "r": r, "rank_pattern": {}, "alpha_pattern": {},
                   "target_modules": sorted({x.rsplit(".", 1)[-1] for x in parts}), "use_dora": False, "use_rslora": False, **config}, f)
    return parts


def make_parameters(model, out, layers, r=4, alpha=16, seed=1, size=0.5, across=False):
    """The same for parameters of modules, as PEFT writes them with target_parameters: {layer: names of 3-D tensors (E, n, m) of one module}; A is
    (E r, n), B (m, r E), the expert's number last. across: as if the tensors were stored (E, m, n). The module's second parameter wraps the first,
    whose names have .base_layer."""
    rng = random.Random(seed)
    tensors, parts = {}, {}
    for layer, names in layers.items():
        for i, name in enumerate(names):
            E, n, m = folder_tensors(model)[f"{layer}.{name}"][1]
            if across: n, m = m, n
            a, b = matrix(rng, E * r, n, size / n ** 0.5, "F32"), matrix(rng, m, r * E, size, "F32")
            key = f"base_model.model.{layer}" + (".base_layer" if i + 1 < len(names) else "")
            tensors[key + ".lora_A.weight"], tensors[key + ".lora_B.weight"] = a, b
            a, b = rows_of(a), rows_of(b)
            A, B = [a[e * r:(e + 1) * r] for e in range(E)], [[row[e::E] for row in b] for e in range(E)]
            parts[f"{layer}.{name}"] = [(A[e], B[e]) if not across else ([list(x) for x in zip(*B[e])], [list(x) for x in zip(*A[e])]) for e in range(E)], None, alpha / r
    os.makedirs(out, exist_ok=True)
    write_safetensors(os.path.join(out, "adapter_model.safetensors"), tensors)
    with open(os.path.join(out, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "lora_alpha": alpha, "r": r, "target_modules": [], "target_parameters": sorted({x for names in layers.values() for x in names})}, f)
    return parts


def merge(model, out, parts):
    """The model with W + scale * B A in the place of W, as float32."""
    os.makedirs(out, exist_ok=True)
    for name in os.listdir(model):
        if ".safetensors" not in name and not os.path.exists(os.path.join(out, name)): os.symlink(os.path.abspath(os.path.join(model, name)), os.path.join(out, name))
    tensors = folder_tensors(model)
    tall = {name for name, shape in linears(model).items() if list(shape) == tensors[name + ".weight"][1] and not stores_across(model, name)}
    for name, (a, b, scale) in parts.items():
        key = name + ".weight" if name + ".weight" in tensors else name
        dtype, shape, data = tensors[key]
        w = floats(dtype, data)
        for e, (ae, be) in enumerate(a if b is None else []): # a stack (E, in, out)
            for i, brow in enumerate(be):
                for j in range(shape[1]): w[(e * shape[1] + j) * shape[2] + i] += scale * sum(brow[k] * ae[k][j] for k in range(len(ae)))
        for i, brow in enumerate(b or []):
            delta = [scale * sum(brow[k] * a[k][j] for k in range(len(a))) for j in range(len(a[0]))]
            across = name not in tall # stored (in, out), and embeddings (vocab, hidden)
            for j, d in enumerate(delta): w[j * shape[1] + i if across else i * shape[1] + j] += d
        tensors[key] = ("F32", shape, pack("F32", w))
    write_safetensors(os.path.join(out, "model.safetensors"), tensors)


def make_gguf(out, tensors, arch="llama", alpha=16.0, kind="adapter", adapter="lora"):
    """An adapter as llama.cpp's converter writes it: {name: rows, or one matrix of rows for each expert}."""
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    keys = [text("general.architecture") + struct.pack("<I", 8) + text(arch), text("general.type") + struct.pack("<I", 8) + text(kind),
            text("adapter.type") + struct.pack("<I", 8) + text(adapter), text("adapter.lora.alpha") + struct.pack("<If", 6, alpha)]
    head, data = b"", b""
    for name, rows in tensors.items():
        stack = rows if isinstance(rows[0][0], list) else None
        if stack: rows = [x for matrix in stack for x in matrix]
        sizes = [len(rows[0]), len(rows)] if not stack else [len(rows[0]), len(stack[0]), len(stack)]
        head += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, 0, len(data))
        data += b"".join(struct.pack(f"<{len(x)}f", *x) for x in rows)
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + head
    with open(out, "wb") as f: f.write(head + bytes(-len(head) % 32) + data)
