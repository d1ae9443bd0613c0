#!/usr/bin/env python3
"""Models as older folders have them: pytorch_model.bin, Meta's consolidated.*.pth, Paddle's ERNIE. Each says what the same model in safetensors says. Bad ones.

    test_old_files.py [FUNCTION...] [OPTIONS of llm_cli]      env LLM_CLI (default ./llm_cli), LLM_TEST_TORCH (a Python that has torch; files are written without it, too)
"""
import collections
import io
import json
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import types
import zipfile

sys.path.insert(0, os.path.dirname(__file__))
import adapters
from serving import check, checkpoint, finish

CLI = os.environ.get("LLM_CLI", "./llm_cli")
TMP = tempfile.mkdtemp(prefix="llm_old_files_")
FIRST = next((i for i, x in enumerate(sys.argv) if x.startswith("-")), len(sys.argv)) # of the options
IDS = [5, 17, 300, 44, 9, 101, 7, 256]
STORAGES = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage", "I64": "LongStorage", "F64": "DoubleStorage"}
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "F64": 8}


def score(model, *extra):
    """Log-probabilities of all next tokens, or the error."""
    p = subprocess.run([CLI, "score", "-m", str(model), "--dtype", "float32", "--token-ids", json.dumps(IDS), "--json", "--top-logprobs", "512", *extra, *sys.argv[FIRST:]], capture_output=True, text=True, timeout=120)
    return {i: x for i, x in json.loads(p.stdout)["next"]} if not p.returncode else p.stderr


def near(name, want, got, far=0.0):
    if isinstance(want, str) or isinstance(got, str): return check(name, False, got)
    return check(name, max(abs(want[i] - got[i]) for i in want) <= far, max(abs(want[i] - got[i]) for i in want))


# ---- writing what torch.save writes, by Python's pickle and names that stand for torch's ----

class Storage:
    def __init__(self, dtype, key, data): self.dtype, self.key, self.data = dtype, key, data


class Tensor:
    """A view of a storage."""

    def __init__(self, storage, shape, stride=None, offset=0, function="_rebuild_tensor_v2"):
        if stride is None:
            stride = []
            for n in reversed(shape): stride.insert(0, stride[0] * last if stride else 1); last = n
        self.args = (storage, offset, tuple(shape), tuple(stride), False, collections.OrderedDict())
        self.function = function

    def __reduce__(self):
        call = getattr(sys.modules["torch._utils"], self.function)
        return call, (Tensor(self.args[0], self.args[2], self.args[3], self.args[1]), True, collections.OrderedDict()) if self.function == "_rebuild_parameter" else self.args


for module, names in (("torch", [*STORAGES.values()]), ("torch._utils", ["_rebuild_tensor_v2", "_rebuild_parameter"])):
    sys.modules[module] = m = types.ModuleType(module)
    for n in names: setattr(m, n, type(n, (), {"__module__": module}) if module == "torch" else (lambda *a: None)); getattr(m, n).__qualname__ = getattr(m, n).__name__ = n; getattr(m, n).__module__ = module


class Pickler(pickle.Pickler):
    old = False

    def persistent_id(self, x):
        if not isinstance(x, Storage): return None
        return ("storage", getattr(sys.modules["torch"], STORAGES[x.dtype]), x.key, "cpu", len(x.data) // SIZES[x.dtype], *([None] if self.old else []))


def pickled(x, protocol=2, old=False):
    out = io.BytesIO()
    p = Pickler(out, protocol)
    p.old = old
    p.dump(x)
    return out.getvalue()


def save(path, tensors, protocol=2, wrap=lambda x: x, compress=zipfile.ZIP_STORED):
    storages = {x.args[0].key: x.args[0] for x in tensors.values()}
    with zipfile.ZipFile(path, "w", compress) as z:
        z.writestr("archive/data.pkl", pickled(wrap(tensors), protocol))
        z.writestr("archive/byteorder", "little")
        for key, s in storages.items(): z.writestr(f"archive/data/{key}", s.data)
        z.writestr("archive/version", "3\n")


def save_old(path, tensors):
    storages = {x.args[0].key: x.args[0] for x in tensors.values()}
    with open(path, "wb") as f:
        for x in (0x1950a86a20f9469cfc6c, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}): f.write(pickle.dumps(x, 2))
        f.write(pickled(tensors, old=True) + pickle.dumps(list(storages), 2))
        for s in storages.values(): f.write(struct.pack("<Q", len(s.data) // SIZES[s.dtype]) + s.data)


def tensors_of(model):
    return collections.OrderedDict((name, Tensor(Storage(dtype, str(i), data), shape)) for i, (name, (dtype, shape, data)) in enumerate(adapters.folder_tensors(model).items()))


def folder(name, model, drop=()):
    """A copy of a folder without its weights."""
    to = f"{TMP}/{name}"
    shutil.rmtree(to, ignore_errors=True)
    os.mkdir(to)
    for x in os.listdir(model):
        if not x.startswith("model.safetensors") and x not in drop: shutil.copy(f"{model}/{x}", to)
    return to


# ---- tests ----

def torch_files():
    """One file, shards, protocols, what stands around the tensors, parameters, ties, views in another order, files from before torch 1.6."""
    model = checkpoint("llama")
    want, plain = score(model), tensors_of(model)
    to = folder("bin", model)
    for protocol in (2, 4, 5):
        save(f"{to}/pytorch_model.bin", plain, protocol)
        near(f"protocol {protocol}", want, score(to))
    near("tensor parallel", score(model, "-tp", "2"), score(to, "-tp", "2"))
    p = subprocess.run([CLI, "info", "-m", to, "--json"], capture_output=True, text=True)
    check("info", p.returncode == 0 and json.loads(p.stdout)["format"] == "pytorch", p.stdout + p.stderr)
    for key in ("state_dict", "model", "module"):
        save(f"{to}/pytorch_model.bin", plain, wrap=lambda x: {"epoch": 3, key: x, "loss": 0.5, "done": [None, True, "x"]})
        near(f"in {key}", want, score(to))
    for x in plain.values(): x.function = "_rebuild_parameter"
    save(f"{to}/pytorch_model.bin", plain)
    near("parameters", want, score(to))
    save_old(f"{to}/pytorch_model.bin", tensors_of(model))
    near("an old file", want, score(to))
    across = collections.OrderedDict()
    for name, t in tensors_of(model).items(): # all matrices lie column by column
        s, shape = t.args[0], t.args[2]
        if len(shape) == 2:
            size = SIZES[s.dtype]
            data = b"".join(s.data[(r * shape[1] + c) * size:(r * shape[1] + c + 1) * size] for c in range(shape[1]) for r in range(shape[0]))
            t = Tensor(Storage(s.dtype, s.key, data), shape, (1, shape[0]))
        across[name] = t
    save(f"{to}/pytorch_model.bin", across)
    near("transposed views", want, score(to))
    data, views = b"", collections.OrderedDict()
    for name, t in tensors_of(model).items(): data, views[name] = data + t.args[0].data, len(data) // 2 if len({x.args[0].dtype for x in plain.values()}) == 1 else None
    if None not in views.values():
        whole = Storage(next(iter(plain.values())).args[0].dtype, "0", data)
        save(f"{to}/pytorch_model.bin", {name: Tensor(whole, plain[name].args[2], offset=at) for name, at in views.items()})
        near("views of one storage", want, score(to))
    names = list(plain)
    os.remove(f"{to}/pytorch_model.bin")
    for i in range(2): save(f"{to}/pytorch_model-0000{i + 1}-of-00002.bin", {n: plain[n] for n in names[i::2]})
    json.dump({"weight_map": {n: f"pytorch_model-0000{i % 2 + 1}-of-00002.bin" for i, n in enumerate(names)}}, open(f"{to}/pytorch_model.bin.index.json", "w"))
    near("shards", want, score(to))
    json.dump({"weight_map": {names[0]: "../x.bin"}}, open(f"{to}/pytorch_model.bin.index.json", "w"))
    check("a shard elsewhere", "plain name of a .bin file" in str(score(to)), score(to))
    tied = folder("tied", model)
    once = tensors_of(model)
    once["lm_head.weight"] = once["model.embed_tokens.weight"]
    save(f"{tied}/pytorch_model.bin", once)
    embed = adapters.folder_tensors(model)
    embed["lm_head.weight"] = embed["model.embed_tokens.weight"]
    same = folder("tied2", model)
    adapters.write_safetensors(f"{same}/model.safetensors", embed)
    near("tied", score(same), score(tied))


def real_torch():
    """The same by torch itself, a gigabyte that no test needs: LLM_TEST_TORCH names a Python that has it."""
    python = os.environ.get("LLM_TEST_TORCH")
    if not python: return
    model = checkpoint("llama")
    to = folder("torch", model)
    code = """if 1:
        import json, struct, sys, torch
        f = open(sys.argv[1] + "/model.safetensors", "rb")
        h = json.loads(f.read(struct.unpack("<Q", f.read(8))[0])); data = bytearray(f.read())
        kinds = {"BF16": torch.bfloat16, "F32": torch.float32, "F16": torch.float16}
        sd = {k: torch.frombuffer(data[slice(*v["data_offsets"])], dtype=kinds[v["dtype"]]).reshape(v["shape"]) for k, v in h.items() if k != "__metadata__"}
        if sys.argv[3] == "module":
            m = torch.nn.Module()
            for k, v in sd.items(): m.register_parameter(k.replace(".", "|"), torch.nn.Parameter(v))
            sd = m.state_dict()
            for k in list(sd): sd[k.replace("|", ".")] = sd.pop(k)
        if sys.argv[3] == "across": sd = {k: v.t().contiguous().t() if v.ndim == 2 else v for k, v in sd.items()}
        torch.save(sd, sys.argv[2] + "/pytorch_model.bin", **({"_use_new_zipfile_serialization": False} if sys.argv[3] == "old" else {}))"""
    for kind in ("dict", "module", "across", "old"):
        p = subprocess.run([python, "-c", code, model, to, kind], capture_output=True, text=True)
        if check(f"torch.save, {kind}", p.returncode == 0, p.stderr): near(f"a file by torch, {kind}", score(model), score(to))


META = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2", "post_attention_layernorm": "ffn_norm",
        "input_layernorm": "attention_norm", "embed_tokens": "tok_embeddings", "lm_head": "output"}


def meta_tensors(model, config):
    """{name: (dtype, rows)} in Meta's names; the rows of q and k go in pairs."""
    out = {}
    head = config["hidden_size"] // config["num_attention_heads"]
    for name, (dtype, shape, data) in adapters.folder_tensors(model).items():
        size = len(data) // shape[0]
        rows = [data[i * size:(i + 1) * size] for i in range(shape[0])]
        if "q_proj" in name or "k_proj" in name: rows = [rows[h * head + i % 2 * (head // 2) + i // 2] for h in range(len(rows) // head) for i in range(head)]
        name = name.removeprefix("model.")
        for a, b in META.items(): name = name.replace(a, b)
        out[name] = (dtype, rows)
    return out


def meta_shards(tensors, n, dtype, embed_by_rows):
    """The n shards of tensor parallelism, as tensors of torch."""
    for i in range(n):
        shard = {}
        for name, (kind, rows) in tensors.items():
            if len(rows[0]) > 4: # a matrix
                if any(x in name for x in (".wq.", ".wk.", ".wv.", ".w1.", ".w3.", "output.")) or (embed_by_rows and "tok_emb" in name): rows = rows[len(rows) // n * i:len(rows) // n * (i + 1)]
                elif any(x in name for x in (".wo.", ".w2.", "tok_emb")): rows = [r[len(r) // n * i:len(r) // n * (i + 1)] for r in rows]
            shape = [len(rows), len(rows[0]) // SIZES[kind]] if len(rows[0]) > 4 else [len(rows)]
            data = b"".join(rows)
            if kind != dtype: data = adapters.pack(dtype, adapters.floats(kind, data))
            shard[name] = Tensor(Storage(dtype, str(len(shard)), data), shape)
        yield {**shard, "rope.freqs": Tensor(Storage("F32", "f", bytes(32)), [8])}


def meta():
    """Meta's layout: one file, tensor parallel shards, embeddings cut either way, 16 and 32 bits, Llama 3.1's positions; Mistral's consolidated.safetensors."""
    for name, more in (("llama", {}), ("llama_rope_llama3", {"use_scaled_rope": True})):
        model = checkpoint(name)
        config = json.load(open(f"{model}/config.json"))
        tensors, drop = meta_tensors(model, config), ("config.json", "generation_config.json")
        scaling = config.get("rope_scaling")
        if scaling: more = {**more, "rope_scaling_factor": scaling["factor"]}
        same = folder("same", model)
        if scaling: config = {**config, "rope_scaling": {**scaling, "original_max_position_embeddings": 8192, "low_freq_factor": 1, "high_freq_factor": 4}}
        json.dump(config, open(f"{same}/config.json", "w"))
        shutil.copy(f"{model}/model.safetensors", same)
        want = score(same)
        params = {"dim": config["hidden_size"], "n_layers": config["num_hidden_layers"], "n_heads": config["num_attention_heads"], "n_kv_heads": config["num_key_value_heads"], "vocab_size": -1, "multiple_of": 256, "norm_eps": config["rms_norm_eps"], "rope_theta": config.get("rope_theta", 1e4), **more}
        for n, dtype, by_rows in ((1, "BF16", 0), (2, "BF16", 0), (2, "BF16", 1), (2, "F32", 0), (2, "F32", 1)):
            to = folder("meta", model, drop)
            json.dump(params, open(f"{to}/params.json", "w"))
            for i, shard in enumerate(meta_shards(tensors, n, dtype, by_rows)): save(f"{to}/consolidated.{i:02d}.pth", shard)
            near(f"{name}: {n} of {dtype}, rows {by_rows}", want, score(to), 1e-4)
        near(f"{name}: tensor parallel", want, score(to, "-tp", "2"), 1e-3)
        near(f"{name}: bfloat16", score(same, "--dtype", "bfloat16"), score(to, "--dtype", "bfloat16"), 0.2)
    for what, change, words in (("a shard is missing", lambda: os.rename(f"{to}/consolidated.00.pth", f"{to}/consolidated.02.pth"), "consolidated.00.pth is missing"), ("no shard", lambda: [os.remove(f"{to}/consolidated.0{i}.pth") for i in (1, 2)], "no consolidated.00.pth"),
                                ("dim is a text", lambda: json.dump({**params, "dim": "x"}, open(f"{to}/params.json", "w")), "params.json: dim")):
        change()
        check(what, words in str(score(to)), score(to))
    to = folder("mistral", model, drop)
    json.dump({**params, "hidden_dim": config["intermediate_size"], "head_dim": config["hidden_size"] // config["num_attention_heads"]}, open(f"{to}/params.json", "w"))
    adapters.write_safetensors(f"{to}/consolidated.safetensors", {k: (d, [len(r), len(r[0]) // SIZES[d]] if len(r[0]) > 4 else [len(r)], b"".join(r)) for k, (d, r) in tensors.items()})
    near("consolidated.safetensors", want, score(to), 1e-4)


def paddle():
    """Paddle's ERNIE: names ernie.*, matrices (in, out), with gate and up, and q, k and v, in one or apart."""
    for family in ("ernie4_5", "ernie4_5_moe"):
        model = checkpoint(family)
        tied = json.load(open(f"{model}/config.json")).get("tie_word_embeddings", True)
        for fused in (0, 1):
            out, done = {}, set()
            given = adapters.folder_tensors(model)
            for name, (dtype, shape, data) in given.items():
                parts = [name]
                to = name.replace("model.", "ernie.", 1)
                if fused and name.endswith("gate_proj.weight"): parts, to = [name, name.replace("gate_proj", "up_proj")], to.replace("gate_proj", "up_gate_proj")
                if fused and name.endswith("q_proj.weight"): parts, to = [name, name.replace("q_proj", "k_proj"), name.replace("q_proj", "v_proj")], to.replace("q_proj", "qkv_proj")
                if name in done or (fused and any(x in name for x in ("up_proj.", "k_proj.", "v_proj."))): continue
                done.update(parts)
                if len(shape) == 2 and "embed" not in name and "statics" not in name and not (tied and "lm_head" in name):
                    rows = [r for p in parts for r in adapters.rows_of(given[p])]
                    out[to] = (dtype, [shape[1], len(rows)], adapters.pack(dtype, [r[c] for c in range(shape[1]) for r in rows]))
                else: out[to] = (dtype, shape, data)
            to = folder("paddle", model)
            adapters.write_safetensors(f"{to}/model.safetensors", out)
            for extra in ((), ("-tp", "2")): near(f"{family}, fused {fused} {' '.join(extra)}", score(model, *extra), score(to, *extra), 1e-4)


def adapter():
    """A LoRA adapter in adapter_model.bin."""
    model = checkpoint("llama")
    adapters.make(model, f"{TMP}/adapter")
    want = score(model, "--lora", f"{TMP}/adapter")
    save(f"{TMP}/adapter/adapter_model.bin", collections.OrderedDict((k, Tensor(Storage(d, str(i), x), s)) for i, (k, (d, s, x)) in enumerate(adapters.read_safetensors(f"{TMP}/adapter/adapter_model.safetensors").items())))
    os.remove(f"{TMP}/adapter/adapter_model.safetensors")
    near("an adapter", want, score(model, "--lora", f"{TMP}/adapter"))


class Evil:
    def __init__(self, call, *args): self.what = call, args
    def __reduce__(self): return self.what


def bad():
    """One sentence, and nothing is run."""
    model = checkpoint("llama")
    to = folder("bad", model)
    at, plain = f"{to}/pytorch_model.bin", tensors_of(model)
    ran = f"{TMP}/ran"

    def refused(name, words, *extra):
        got = score(to, *extra)
        check(f"refused: {name}", isinstance(got, str) and words in got and "llm_cli: error: " in got and got.count("\n") <= 4 and not os.path.exists(ran), got)

    for protocol in (2, 3, 4, 5):
        for call, args, words in ((os.system, (f"touch {ran}",), "posix.system"), (eval, ("1",), ".eval"), (subprocess.Popen, (["true"],), ".Popen"), (getattr, (os, "system"), ".getattr"), (open, (ran, "w"), "io.open"), (bytearray, (b"x",), "bytearray"), (set, ([1],), "set")):
            if call is getattr: args = ("x", "y")
            with zipfile.ZipFile(at, "w") as z: z.writestr("a/data.pkl", pickle.dumps({"w": Evil(call, *args)}, protocol))
            refused(f"{call.__name__}, protocol {protocol}", words)
    save(at, plain, compress=zipfile.ZIP_DEFLATED)
    refused("compressed", "it is compressed (method 8)")
    with zipfile.ZipFile(at, "w", zipfile.ZIP_DEFLATED) as z: z.writestr("a/data.pkl", bytes(50_000_000))
    refused("a zip bomb", "it is compressed (method 8)")
    save(at, plain)
    whole = open(at, "rb").read()
    for n in (0, 1, 3, 4, 30, 1000, len(whole) // 2, len(whole) - 100, len(whole) - 1):
        open(at, "wb").write(whole[:n])
        refused(f"cut at {n}", "pytorch_model.bin")
    open(at, "wb").write(b"version https://git-lfs.github.com/spec/v1\n")
    refused("a pointer of Git LFS", "Git LFS")
    for what, change, words in (("missing", lambda x: x.pop("model.norm.weight"), "tensor model.norm.weight is missing"), ("of another shape", lambda x: x.update({"model.norm.weight": Tensor(Storage("F32", "n", bytes(8)), [2])}), "model.norm.weight has shape"),
                                ("beyond its storage", lambda x: x.update({"model.norm.weight": Tensor(Storage("F32", "n", bytes(8)), [96])}), "beyond its storage of 8 bytes"), ("of integers", lambda x: x.update({"model.norm.weight": Tensor(Storage("I64", "n", bytes(96 * 8)), [96])}), "has type I64")):
        tensors = tensors_of(model)
        change(tensors)
        save(at, tensors)
        refused(what, words)
    deep = []
    for _ in range(200): deep = [deep]
    save(at, plain, wrap=lambda x: {"a": deep, **x})
    check("deep lists beside tensors", not isinstance(score(to), str), score(to))
    loop = {}
    loop["model"] = loop
    save(at, plain, wrap=lambda x: loop)
    refused("a dictionary that has itself", "a dictionary of tensors expected")
    rng = random.Random(1)
    for _ in range(40): # a byte is another one: an answer or a sentence
        b = bytearray(whole)
        b[rng.choice([rng.randrange(3000), len(b) - 1 - rng.randrange(3000)])] = rng.randrange(256)
        open(at, "wb").write(b)
        got = score(to)
        check("a changed byte", not isinstance(got, str) or "llm_cli: error: " in got, got)


try:
    for part in sys.argv[1:FIRST] or ("torch_files", "real_torch", "meta", "paddle", "adapter", "bad"): globals()[part]()
finally: shutil.rmtree(TMP, ignore_errors=True)
finish()
