#!/usr/bin/env python3
"""Makes the tokenizers and goldens of tests/data that are not copies, with the Hugging Face library and llama.cpp.

    make_tokens.py OUT       then: data.py pack tokenizers OUT/tokenizers, and the same with token_goldens and vocabularies

From PyPI: tokenizers==0.23.3 gguf==0.19.0 numpy xllamacpp==2026.10.11549 (a build of llama.cpp whose functions can be called by ctypes).
Reads build/data: the tokenizers mistral7b and qwen3, gpt-2.gguf, and the texts of the goldens and of llama.cpp's *.inp. Makes:

tokenizers/llama3_form       Llama 3's pattern and "ignore_merges" over the first 128,000 entries of Qwen3's vocabulary, of which some lack merges
token_goldens/               ids and decoded texts of the three tokenizers; the rows of the two real models (llama.cpp's) are copied
vocabularies/                deepseek-llm (its pattern over a part of Qwen3's vocabulary), starcoder (its pattern over GPT-2's), llama-spm (SentencePiece
                             with scores, from Mistral 7B's vocabulary), and llama.cpp's ids for these, for Qwen3's and for llama3_form's
"""
import ctypes
import importlib.util
import json
import os
import pathlib
import shutil
import sys

import gguf
import tokenizers

DATA = pathlib.Path("build/data")
PARTED_BY = "\n__ggml_vocab_test__\n"
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # token types of GGUF
SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
LLAMA3_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


# ---- llama.cpp

class ModelParams(ctypes.Structure):
    _fields_ = [("front", ctypes.c_void_p * 2), ("numbers", ctypes.c_int32 * 6), ("back", ctypes.c_void_p * 4), ("vocab_only", ctypes.c_bool), ("rest", ctypes.c_bool * 7)]


class LlamaCpp:
    """A vocabulary in llama.cpp."""

    def __init__(self, path):
        folder = pathlib.Path(importlib.util.find_spec("xllamacpp").origin).parent
        self.lib = lib = ctypes.CDLL(str(next(folder.glob("*.so"))), mode=os.RTLD_LAZY)
        lib.llama_model_default_params.restype = ModelParams
        lib.llama_model_load_from_file.restype = lib.llama_model_get_vocab.restype = ctypes.c_void_p
        lib.llama_model_load_from_file.argtypes, lib.llama_model_get_vocab.argtypes = [ctypes.c_char_p, ModelParams], [ctypes.c_void_p]
        lib.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool]
        params = lib.llama_model_default_params()
        params.vocab_only = True
        model = lib.llama_model_load_from_file(str(path).encode(), params)
        if not model: sys.exit(f"make_tokens: llama.cpp refuses {path}")
        self.vocab = lib.llama_model_get_vocab(model)

    def ids(self, text):
        data = text.encode()
        out = (ctypes.c_int32 * (2 * len(data) + 16))()
        n = self.lib.llama_tokenize(self.vocab, data, len(data), out, len(out), False, False)
        return out[:n]

    def answer(self, inputs):
        """The .out of an .inp."""
        return "".join("".join(f" {i}" for i in self.ids(x)) + "\n" for x in inputs.read_bytes().decode().split(PARTED_BY))


def write_gguf(path, architecture, model, pre, tokens, types, merges=None, scores=None, ids=()):
    w = gguf.GGUFWriter(path, architecture)
    w.add_name(path.stem)
    w.add_context_length(4096), w.add_embedding_length(64), w.add_block_count(1), w.add_feed_forward_length(64)
    w.add_head_count(1), w.add_head_count_kv(1), w.add_layer_norm_rms_eps(1e-6), w.add_layer_norm_eps(1e-6)
    w.add_tokenizer_model(model), w.add_tokenizer_pre(pre), w.add_token_list(tokens), w.add_token_types(types)
    if merges: w.add_token_merges(merges)
    if scores: w.add_token_scores(scores)
    for add, i in zip((w.add_bos_token_id, w.add_eos_token_id, w.add_unk_token_id), ids): add(i)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.close()


# ---- vocabularies

def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def llama3_form(folder):
    """Every 37th of the later entries has no merge: only "ignore_merges", which takes whole words from the vocabulary, finds it."""
    base = read_json(DATA / "tokenizers/qwen3/tokenizer.json")["model"]
    vocab = {text: i for text, i in base["vocab"].items() if i < 128000}
    merges = [f"{a} {b}" for a, b in base["merges"] if a + b in vocab and (vocab[a + b] < 20000 or vocab[a + b] % 37)]
    names = SPECIALS + [f"<|reserved_special_token_{i}|>" for i in range(3, 3 + 256 - len(SPECIALS))]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": LLAMA3_PATTERN}, "behavior": "Isolated", "invert": False}
    whole = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True, "vocab": vocab, "merges": merges}
    value = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [{"id": 128000 + i, "content": x, **flags} for i, x in enumerate(names)], "normalizer": None,
             "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "post_processor": whole, "decoder": whole | {"trim_offsets": True}, "model": model}
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": names[0], "eos_token": names[9], "model_max_length": 8192}) + "\n")
    return [*sorted(vocab, key=vocab.get), *names], [NORMAL] * len(vocab) + [CONTROL] * len(names), merges


def is_chinese(text, characters):
    """True if an entry of a byte-level vocabulary is of Chinese characters only."""
    try: decoded = bytes(characters[c] for c in text).decode()
    except (KeyError, UnicodeDecodeError): return False
    return all("\u4e00" <= c <= "\u9fff" for c in decoded)


def deepseek_form(path):
    """The first 30,000 entries of Qwen3's and those of Chinese characters, with all that their merges go through."""
    base = read_json(DATA / "tokenizers/qwen3/tokenizer.json")["model"]
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(x for x in range(256) if x not in plain)}
    parts = {a + b: (a, b) for a, b in base["merges"]}
    kept, open_ = set(), [x for x, i in base["vocab"].items() if i < 30000 or is_chinese(x, characters)]
    while open_:
        x = open_.pop()
        if x in kept: continue
        kept.add(x)
        open_ += parts.get(x, ())
    tokens = sorted(kept, key=base["vocab"].get)
    merges = [f"{a} {b}" for a, b in base["merges"] if a + b in kept]
    names = ["<|begin of sentence|>", "<|end of sentence|>"]
    write_gguf(path, "llama", "gpt2", "deepseek-llm", tokens + names, [NORMAL] * len(tokens) + [CONTROL] * 2, merges, ids=(len(tokens), len(tokens) + 1))


def starcoder_form(path):
    fields = gguf.GGUFReader(DATA / "vocabularies/gpt-2.gguf").fields
    tokens, merges = fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.merges"].contents()
    write_gguf(path, "starcoder2", "gpt2", "starcoder", tokens, [NORMAL] * (len(tokens) - 1) + [CONTROL], merges, ids=(len(tokens) - 1, len(tokens) - 1))


def spm_form(path):
    """Scores fall by one an entry, as SentencePiece writes them for BPE."""
    vocab = read_json(DATA / "tokenizers/mistral7b/tokenizer.json")["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259)
    write_gguf(path, "llama", "llama", "default", tokens, types, scores=[0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)], ids=(1, 2, 0))


# ---- goldens

def rows(path):
    return [json.loads(x) for x in path.read_bytes().decode().split("\n") if x]


def write_rows(path, values):
    path.write_bytes("".join(json.dumps(v, ensure_ascii=False, separators=(",", ":")) + "\n" for v in values).encode())


def golden(tokenizer, name, source, out):
    """The texts of one golden with another tokenizer's ids, and ids with its texts."""
    t = tokenizers.Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    made = []
    for row in rows(source / f"{name}.jsonl"):
        t.encode_special_tokens = False
        new = {"cat": row["cat"], "text": row["text"], "ids": t.encode(row["text"], add_special_tokens=False).ids, "ids_special": t.encode(row["text"]).ids}
        new["decoded"] = t.decode(new["ids"], skip_special_tokens=False)
        t.encode_special_tokens = True
        plain = t.encode(row["text"], add_special_tokens=False).ids
        made.append(new | ({"ids_plain": plain} if plain != new["ids"] else {}))
    write_rows(out / f"{name}.jsonl", made)
    write_rows(out / f"{name}.decode.jsonl", [{"ids": r["ids"], "decoded": t.decode(r["ids"], skip_special_tokens=False)} for r in rows(source / f"{name}.decode.jsonl")])


def main():
    if len(sys.argv) != 2: sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    for name in ("token_goldens", "vocabularies"): shutil.copytree(DATA / name, out / name)
    for name in ("mistral7b", "qwen3"): shutil.copytree(DATA / "tokenizers" / name, out / "tokenizers" / name)
    tokens, types, merges = llama3_form(out / "tokenizers/llama3_form")
    for name in ("mistral7b", "qwen3", "llama3_form"): golden(out / "tokenizers" / name, name, DATA / "token_goldens", out / "token_goldens")
    folder = out / "vocabularies"
    deepseek_form(folder / "deepseek-llm.gguf"), starcoder_form(folder / "starcoder.gguf"), spm_form(folder / "llama-spm.gguf")
    write_gguf(out / "llama-bpe.gguf", "llama", "gpt2", "llama-bpe", tokens, types, merges, ids=(128000, 128009))
    qwen = read_json(DATA / "tokenizers/qwen3/tokenizer.json")
    vocab, added = qwen["model"]["vocab"], [x["content"] for x in qwen["added_tokens"]]
    write_gguf(out / "qwen2.gguf", "qwen2", "gpt2", "qwen2", sorted(vocab, key=vocab.get) + added, [NORMAL] * len(vocab) + [CONTROL] * len(added), [" ".join(x) for x in qwen["model"]["merges"]], ids=(151643, 151643))
    for inputs in sorted(folder.glob("*.inp")):
        name = inputs.name.removesuffix(".inp")
        path = folder / name if (folder / name).exists() else out / name
        (folder / (name + ".out")).write_text(LlamaCpp(path).answer(inputs))


main()
