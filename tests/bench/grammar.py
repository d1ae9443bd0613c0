#!/usr/bin/env python3
"""Masks beside those of llguidance and xgrammar: the same schemas, documents and tokens (Qwen3's 151,669), one after the other in one process.

    make lib data && python3 tests/bench/grammar.py [DOCUMENTS A SCHEMA]      needs jsonschema, llguidance, xgrammar, numpy from PyPI

Times: compiling with the first mask, every mask of every document, and advancing by a token. As oracles: documents that are accepted, invalid
ones that are, and masks that differ in tokens beyond the grammars' known differences (order of properties, white space) are only counted.
xgrammar imports torch and transformers for what is not used here: where they are not installed, stand-ins take their place."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import random
import statistics
import sys
import time
from unittest.mock import MagicMock

import jsonschema
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import test_grammar as ours
from grammar_schemas import ODD, SCHEMAS, generated, spoil, text

TOKENIZER = "build/data/tokenizers/qwen3"


def peers():
    """The peers that are installed: name -> (schema -> a matcher, or None where it cannot do it)."""
    found = {}
    try:
        import llguidance
        tokenizer = llguidance.LLTokenizer(TOKENIZER + "/tokenizer.json")
        def guide(schema):
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_pattern": " ?"})
            matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
            return None if matcher.is_error() else Guide(matcher)
        found["llguidance"] = guide
    except ImportError: print("llguidance is not installed")
    for name in ("torch", "triton", "triton.language", "transformers", "tiktoken", "sentencepiece"):
        if name in sys.modules or importlib.util.find_spec(name.split(".")[0]): continue
        sys.modules[name] = MagicMock(__spec__=importlib.machinery.ModuleSpec(name, None), __version__="2.4.0", Tensor=type("Tensor", (), {}))
    try:
        import xgrammar
        data = json.load(open(TOKENIZER + "/tokenizer.json"))
        vocabulary = {**data["model"]["vocab"], **{t["content"]: t["id"] for t in data["added_tokens"]}}
        names = [""] * (max(vocabulary.values()) + 1)
        for name, i in vocabulary.items(): names[i] = name
        compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(names, xgrammar.VocabType.BYTE_LEVEL, stop_token_ids=[151645]), cache_enabled=False)
        def gram(schema):
            try: return Gram(xgrammar.GrammarMatcher(compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, max_whitespace_cnt=1)))
            except RuntimeError: return None
        found["xgrammar"] = gram
    except ImportError as error: print("xgrammar is not installed", error)
    return found


class Guide:
    def __init__(self, matcher): self.matcher, self.bits = matcher, numpy.zeros(151669 // 32 + 1, numpy.int32)
    def mask(self): self.matcher.unsafe_compute_mask_ptr(self.bits.ctypes.data, self.bits.nbytes)
    def token(self, i): return self.matcher.consume_token(i)
    def done(self): return self.matcher.is_accepting()
    def reset(self): self.matcher.reset()


class Gram:
    def __init__(self, matcher): self.matcher, self.bits = matcher, numpy.zeros((1, 151669 // 32 + 1), numpy.int32)
    def mask(self): self.matcher.fill_next_token_bitmask(self.bits)
    def token(self, i): return self.matcher.accept_token(i)
    def done(self): return self.matcher.is_completed()
    def reset(self): self.matcher.reset()


class Ours:
    def __init__(self, grammar, words): self.grammar, self.words, self.m = grammar, words, ours.L.llm_matcher_open(grammar)
    def mask(self): ours.L.llm_matcher_mask(self.m, self.words, None)
    def token(self, i): return ours.L.llm_matcher_token(self.m, i) == 0
    def done(self): return bool(ours.L.llm_matcher_can_end(self.m))
    def reset(self):
        ours.L.llm_matcher_close(self.m)
        self.m = ours.L.llm_matcher_open(self.grammar)


def run(matcher, ids, times):
    """Is the document accepted? Times of masks and of tokens are added to `times`."""
    for i in ids:
        a = time.perf_counter()
        matcher.mask()
        b = time.perf_counter()
        ok = matcher.token(i)
        times["mask"].append(b - a)
        times["token"].append(time.perf_counter() - b)
        if not ok: return False
    return matcher.done()


def main():
    count, rng = int(sys.argv[1]) if len(sys.argv) > 1 else 4, random.Random(5)
    v = ours.Vocabulary(ours.open_model(TOKENIZER))
    schemas = [s for s in SCHEMAS if isinstance(s, dict)] + [s for s in generated(rng, 80) if isinstance(s, dict)]
    makers = {"llm.h": lambda s: (lambda g: None if isinstance(g, str) else Ours(g, v.words))(ours.grammar(ours.SCHEMA, s, v.model)), **peers()}
    times = {name: {"mask": [], "token": [], "first": []} for name in makers}
    verdicts = {name: [0, 0, 0] for name in makers} # schemas compiled, valid documents accepted, invalid ones accepted
    n_valid = n_invalid = n_shared = 0
    ours.L.llm_grammar_close(ours.grammar(ours.SCHEMA, {"const": 1}, v.model)) # makes the trie, as the peers' tokenizers are made
    for schema in schemas:
        g = ours.grammar(ours.SCHEMA, schema, v.model)
        if isinstance(g, str): continue
        documents = [d for d in (ours.walk(v, g, rng, 120) for _ in range(count)) if d]
        ours.L.llm_grammar_close(g)
        matchers = {}
        for name, make in makers.items():
            start = time.perf_counter()
            matcher = make(schema if name != "llm.h" else {**schema, "$comment": "not on the shelf yet"})
            if not matcher: continue
            matcher.mask()
            times[name]["first"].append(time.perf_counter() - start)
            matchers[name] = matcher
            verdicts[name][0] += 1
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
        wrong = [spoil(rng.choice([json.loads(d) for d in documents] + ODD), rng) for _ in range(count)]
        wrong = [text(d) for d in wrong if not validator.is_valid(d)]
        n_valid, n_invalid, n_shared = n_valid + len(documents), n_invalid + len(wrong), n_shared + (len(matchers) == len(makers))
        for at, document in enumerate(documents + wrong):
            ids, valid = list(ours.tokens(v, document)), at < len(documents)
            for name, matcher in matchers.items():
                spent = {"mask": [], "token": []}
                matcher.reset()
                ok = run(matcher, ids, spent)
                verdicts[name][1 if valid else 2] += ok
                if valid and len(matchers) == len(makers):
                    times[name]["mask"] += spent["mask"]
                    times[name]["token"] += spent["token"]
    print(f"{len(schemas)} schemas, {n_shared} of which all compile; {n_valid} valid and {n_invalid} invalid documents")
    for name, t in times.items():
        masks = sorted(t["mask"])
        print(f"{name:10s} compiled {verdicts[name][0]:3d}; accepts {verdicts[name][1]} valid, {verdicts[name][2]} invalid; compile and first mask: median "
              f"{statistics.median(t['first']) * 1e3:.2f} ms, most {max(t['first']) * 1e3:.1f}; {len(masks)} masks: median {statistics.median(masks) * 1e6:.1f} us, mean "
              f"{statistics.mean(masks) * 1e6:.1f}, 99 % {masks[len(masks) * 99 // 100] * 1e6:.0f}, most {masks[-1] * 1e3:.1f} ms; token: median {statistics.median(t['token']) * 1e6:.1f} us")


main()
