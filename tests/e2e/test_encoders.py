#!/usr/bin/env python3
"""Encoders: vectors and scores of the programs beside the results of a plain pass (tests/tools/make_expected_plain.py), by llm_cli and over HTTP.

    test_encoders.py [FAMILY...]       env LLM_CLI, LLM_SERVE (default ./llm_cli, ./llm_serve), LLM_TEST_FLAGS (of vectors and scores, and of servers)

Vectors differ by at most TOLERANCE of their length, the logits behind scores by as much. What is served alone and beside others, in one body
and in many, has the same bits. What an encoder cannot do is refused with a sentence.
"""
import concurrent.futures
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from adapters import floats, pack, read_safetensors, write_safetensors
from answers import CLI, ask
from serving import MORE, Server, check, finish
import checkpoints

TOLERANCE = 2e-4
ENGINE = ("--max-num-seqs", "4", "--log-level", "warn", "--dtype", "float32", "--device", "cpu", "-t", "2")


def expected(family): return json.loads((checkpoints.folder(family) / "expected.json").read_text())


def away(got, want): # relative to the length
    if len(got) != len(want): return math.inf
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want))


def logit(score, want): return score if want["activation"] == "identity" else math.log(score / (1 - score))


def check_family(family):
    folder, want = str(checkpoints.folder(family)), expected(family)
    check(f"{family}, weights", checkpoints.digest(family) == want["weights_sha256"], "others than expected.json was made with")
    for i, t in enumerate(want.get("texts", ())):
        for way in (("--token-ids", json.dumps(t["token_ids"])), ("-p", t["text"])):
            got = ask("embed", "-m", folder, "--dtype", "float32", *way, *MORE)
            check(f"{family}, text {i} by {way[0]}", away(got["embedding"], t["embedding"]) < TOLERANCE and got["tokens"] == len(t["token_ids"]), got["tokens"])
    for query in dict.fromkeys(p["query"] for p in want.get("pairs", ())):
        pairs = [p for p in want["pairs"] if p["query"] == query]
        got = ask("rerank", "-m", folder, "--dtype", "float32", "-q", query, *(p["document"] for p in pairs), *MORE)["results"]
        scores = [r["relevance_score"] for r in got]
        check(f"{family}, {query}: all, best first", sorted(r["index"] for r in got) == list(range(len(pairs))) and scores == sorted(scores, reverse=True), got)
        for r in got:
            off = abs(logit(r["relevance_score"], want) - pairs[r["index"]]["logit"])
            check(f"{family}, {query}, document {r['index']}", off < TOLERANCE, off)


def check_served_vectors(family):
    """One text a body, several at once, and all in one body: the same numbers."""
    want = expected(family)["texts"]
    server = Server(model=str(checkpoints.folder(family)), base=ENGINE)
    def one(text): return server.post("/v1/embeddings", {"input": text, "model": "x"})
    alone = [one(t["text"]) for t in want]
    for (status, got), t in zip(alone, want):
        ok = status == 200 and away(got["data"][0]["embedding"], t["embedding"]) < TOLERANCE
        check(f"{family} served", ok and got["usage"] == {"prompt_tokens": len(t["token_ids"]), "total_tokens": len(t["token_ids"])}, got)
    with concurrent.futures.ThreadPoolExecutor(12) as pool: beside = list(pool.map(one, [t["text"] for t in want] * 6))
    check(f"{family}: the same beside others", all(a[1]["data"] == alone[i % len(want)][1]["data"] for i, a in enumerate(beside)))
    status, whole = one([t["text"] for t in want])
    check(f"{family}: the same in one body", status == 200 and [x["embedding"] for x in whole["data"]] == [a[1]["data"][0]["embedding"] for a in alone])
    long = "bread and water " * 400
    status, got = one(long)
    check(f"{family}: a text that is too long", status == 400 and "maximum context length" in got["error"]["message"], got)
    status, got = server.post("/v1/embeddings", {"input": long, "truncate_prompt_tokens": 20})
    check(f"{family}: which is cut", status == 200 and got["usage"]["prompt_tokens"] == 20, got)
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}), ("/v1/rerank", {"query": "a", "documents": ["b"]}), ("/v1/score", {"text_1": "a", "text_2": "b"})):
        status, got = server.post(path, body)
        check(f"{family}: {path} is refused", status == 400 and "is an encoder" in got["error"]["message"], got)
    server.stop()


def check_served_scores(family):
    want = expected(family)
    server = Server(model=str(checkpoints.folder(family)), base=ENGINE)
    queries = list(dict.fromkeys(p["query"] for p in want["pairs"]))
    pairs = {q: [p for p in want["pairs"] if p["query"] == q] for q in queries}
    def rank(q, **more): return server.post("/v1/rerank", {"query": q, "documents": [p["document"] for p in pairs[q]], **more})
    with concurrent.futures.ThreadPoolExecutor(8) as pool: answers = list(pool.map(rank, queries * 4))
    for i, (status, got) in enumerate(answers):
        q = queries[i % len(queries)]
        check(f"{family}, {q}: the same beside others", got.get("results") == answers[i % len(queries)][1]["results"] and status == 200, got)
        check(f"{family}, {q} served", all(abs(logit(r["relevance_score"], want) - pairs[q][r["index"]]["logit"]) < TOLERANCE and
              r["document"] == {"text": pairs[q][r["index"]]["document"]} for r in got["results"]), got)
        check(f"{family}, {q}: usage", got["usage"]["total_tokens"] == sum(len(p["token_ids"]) for p in pairs[q]), got["usage"])
    best = answers[0][1]["results"]
    status, got = rank(queries[0], top_n=2, return_documents=False)
    check(f"{family}: the best two", [(r["index"], r["relevance_score"]) for r in got["results"]] == [(r["index"], r["relevance_score"]) for r in best[:2]] and "document" not in got["results"][0], got)
    status, got = server.post("/rerank", {"query": queries[0], "texts": [p["document"] for p in pairs[queries[0]]], "raw_scores": True})
    check(f"{family}: as text-embeddings-inference asks", status == 200 and all(set(r) == {"index", "score"} and abs(r["score"] - pairs[queries[0]][r["index"]]["logit"]) < TOLERANCE for r in got), got)
    status, got = server.post("/v1/score", {"text_1": queries[0], "text_2": [p["document"] for p in pairs[queries[0]]]})
    check(f"{family}: one beside many", status == 200 and [d["score"] for d in got["data"]] == [r["relevance_score"] for r in sorted(best, key=lambda r: r["index"])], got)
    status, got = server.post("/v1/score", {"text_1": queries, "text_2": [pairs[q][0]["document"] for q in queries]})
    check(f"{family}: pair by pair", status == 200 and all(abs(logit(d["score"], want) - pairs[q][0]["logit"]) < TOLERANCE for d, q in zip(got["data"], queries)), got)
    for body, says in (({"query": "a"}, "documents"), ({"query": "a", "documents": []}, "at least one text"), ({"query": 3, "documents": ["b"]}, "must be a text"),
                       ({"query": "a", "documents": ["bread and water " * 200]}, "maximum context length")):
        status, got = server.post("/v1/rerank", body)
        check(f"{family}: {says}", status == 400 and says in json.dumps(got["error"]), got)
    status, got = server.post("/v1/score", {"text_1": ["a", "b"], "text_2": ["c"]})
    check(f"{family}: two beside one", status == 400 and "as many" in got["error"]["message"], got)
    status, got = server.post("/v1/rerank", {"query": "a", "documents": ["bread and water " * 200], "truncate_prompt_tokens": -1})
    check(f"{family}: a document that is cut", status == 200 and len(got["results"]) == 1, got)
    server.stop()


def three_labels(family, folder, **config):
    """A reranker as a classifier of three labels: its own value, a half, and its own with the other sign. Values of its weights have no rounding to lose."""
    shutil.copytree(checkpoints.folder(family), folder)
    tensors = read_safetensors(f"{folder}/model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        dtype, shape, data = tensors[name]
        own = floats(dtype, data)
        middle = [0.0] * len(own) if "weight" in name else [0.5]
        tensors[name] = dtype, [3, *shape[1:]], pack(dtype, own + middle + [-x for x in own])
    write_safetensors(f"{folder}/model.safetensors", tensors)
    path = pathlib.Path(folder) / "config.json"
    kept = {k: v for k, v in json.loads(path.read_text()).items() if k not in ("sentence_transformers", "sbert_ce_default_activation_function")}
    path.write_text(json.dumps({**kept, "id2label": {"0": "GOOD", "1": "NEITHER", "2": "BAD"}, **config}))
    return folder


def check_classes(family, work):
    """/classify: probabilities of labels, their names, and what stays of them where they are declined."""
    texts = ["A river.", "Monet did.", "no"]
    server = Server(model=three_labels(family, f"{work}/{family}"), base=ENGINE)
    status, raw = server.post("/classify", {"input": texts, "use_activation": False})
    values = [x["probs"] for x in raw["data"]]
    check(f"{family}: values of labels", status == 200 and all(len(v) == 3 and abs(v[1] - 0.5) < 1e-3 and abs(v[0] + v[2]) < TOLERANCE for v in values) and len({v[0] for v in values}) == 3, raw)
    status, got = server.post("/classify", {"input": texts})
    odds = [[math.exp(x) / sum(map(math.exp, v)) for x in v] for v in values]
    check(f"{family}: a softmax of them", all(max(abs(a - b) for a, b in zip(x["probs"], o)) < 1e-5 for x, o in zip(got["data"], odds)), got)
    check(f"{family}: the likeliest by its name", [(x["index"], x["label"], x["num_classes"]) for x in got["data"]] == [(i, ("GOOD", "NEITHER", "BAD")[o.index(max(o))], 3) for i, o in enumerate(odds)] and got["object"] == "list" and got["id"].startswith("classify-"), got)
    status, one = server.post("/classify", {"input": texts[1]})
    check(f"{family}: one alone is the same", one["data"][0]["probs"] == got["data"][1]["probs"] and one["usage"]["prompt_tokens"] > 0, one)
    status, cut = server.post("/classify", {"input": "bread and water " * 400, "truncate_prompt_tokens": 20})
    check(f"{family}: a text that is cut", status == 200 and cut["usage"]["prompt_tokens"] == 20, cut)
    for request, says in (({"input": []}, "cannot be empty"), ({}, "input"), ({"input": "a", "stream": True}, "stream"), ({"input": "bread and water " * 400}, "maximum context length")):
        status, answer = server.post("/classify", request)
        check(f"{family}: {says}", status == 400 and says in json.dumps(answer["error"]), answer)
    status, answer = server.post("/v1/rerank", {"query": "a", "documents": ["b"]})
    check(f"{family}: three labels are no reranker", status == 400 and "3 labels" in answer["error"]["message"], answer)
    server.stop()
    gguf = f"{work}/{family}.gguf"
    made = subprocess.run([CLI, "convert", f"{work}/{family}", gguf], capture_output=True, text=True)
    server = Server(model=gguf, base=ENGINE) if check(f"{family}: converted", made.returncode == 0, made.stderr) else None
    if server: check(f"{family}: the same of GGUF", server.post("/classify", {"input": texts})[1]["data"] == got["data"]), server.stop()
    server = Server(model=three_labels(family, f"{work}/{family}_several", problem_type="multi_label_classification"), base=ENGINE)
    several = server.post("/classify", {"input": texts})[1]["data"]
    check(f"{family}: labels that do not exclude each other", all(max(abs(a - 1 / (1 + math.exp(-b))) for a, b in zip(x["probs"], v)) < 1e-5 for x, v in zip(several, values)), several)
    server.stop()
    server = Server(model=str(checkpoints.folder("bert")), base=ENGINE)
    status, answer = server.post("/classify", {"input": "a"})
    check("an encoder without a classifier", status == 400 and "no classifier" in answer["error"]["message"], answer)
    server.stop()


def check_gguf(family, folder, work):
    """What is made of a folder gives the same bits."""
    made = os.path.join(work, family + ".gguf")
    p = subprocess.run([CLI, "convert", folder, made], capture_output=True, text=True)
    if not check(f"{family} as GGUF", p.returncode == 0, p.stderr): return
    want = expected(family)
    def both(*args): return [ask(args[0], "-m", m, "--dtype", "float32", *args[1:]) for m in (folder, made)]
    for t in want.get("texts", ()):
        a, b = both("embed", "-p", t["text"])
        check(f"{family} as GGUF: the same vector", a == b, (a["tokens"], b["tokens"]))
    for query in dict.fromkeys(p["query"] for p in want.get("pairs", ())):
        a, b = both("rerank", "-q", query, *(p["document"] for p in want["pairs"] if p["query"] == query))
        check(f"{family} as GGUF: the same scores", a == b, (a, b))


def check_ggufs():
    with tempfile.TemporaryDirectory() as work:
        for family in ("bert", "bert_reranker", "distilbert", "modernbert", "modernbert_reranker", "nomic_bert"): check_gguf(family, str(checkpoints.folder(family)), work)
        for family, says in (("embedding_gemma", "dense module 1 has a bias or an activation"), ("embedding_gemma2", "has no form in GGUF"), ("distilbert_reranker", "whose dense layer has relu"), ("mpnet", "mpnet is not converted"), ("xlm_roberta_reranker", "its tokenizer has no equal")):
            p = subprocess.run([CLI, "convert", str(checkpoints.folder(family)), os.path.join(work, "none.gguf")], capture_output=True, text=True)
            check(f"{family} is not converted", p.returncode == 1 and says in p.stderr, p.stderr)
        plain = os.path.join(work, "plain") # dense modules as EmbeddingGemma is published with
        shutil.copytree(checkpoints.folder("embedding_gemma"), plain)
        settings = {"in_features": 112, "out_features": 48, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
        with open(os.path.join(plain, "3_Dense/config.json"), "w") as f: json.dump(settings, f)
        check_gguf("embedding_gemma", plain, work)


def check_refused():
    """llm_cli says in a sentence what an encoder is not for."""
    folder = str(checkpoints.folder("bert"))
    for args, says in ((("generate", "-p", "a"), "is an encoder, which gives vectors"), (("rerank", "-q", "a", "b"), "is an encoder without a classifier"),
                       (("bench", "-p", "4", "-n", "1"), "gives vectors and no logits")):
        p = subprocess.run([CLI, args[0], "-m", folder, *args[1:]], capture_output=True, text=True)
        check(f"{args[0]} of an encoder", p.returncode == 1 and says in p.stderr, p.stderr)
    with tempfile.TemporaryDirectory() as work: # what has no effect is told
        lowered = os.path.join(work, "lowered")
        shutil.copytree(folder, lowered)
        with open(os.path.join(lowered, "sentence_bert_config.json"), "w") as f: json.dump({"max_seq_length": 12, "do_lower_case": True}, f)
        p = subprocess.run([CLI, "embed", "-m", lowered, "-p", "a", "--json"], capture_output=True, text=True)
        check("do_lower_case is told", p.returncode == 0 and "do_lower_case has no effect" in p.stderr, p.stderr)


def main():
    unknown = set(sys.argv[1:]) - set(checkpoints.ENCODERS)
    if unknown: sys.exit(f"{', '.join(sorted(unknown))}: no such encoder in tests/data/checkpoints")
    for family in sys.argv[1:] or checkpoints.ENCODERS: check_family(family)
    check_served_vectors("bert")
    check_served_vectors("embedding_gemma")
    for family in ("bert_reranker", "modernbert_reranker"): check_served_scores(family)
    with tempfile.TemporaryDirectory() as work: check_classes("bert_reranker", work)
    check_ggufs()
    check_refused()
    finish()


if __name__ == "__main__":
    main()
