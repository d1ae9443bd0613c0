#!/usr/bin/env python3
"""/openapi.json and /docs: valid by openapi-spec-validator (in build/python, or OPENAPI_PYTHON), the routes that llm_serve.c has, each of which answers.

    test_openapi.py           env LLM_SERVE (./llm_serve)
"""
import html
import json
import os
import pathlib
import re
import subprocess

from serving import Server, check, finish, skip, tiny_model

ROUTE = re.compile(r'^    \{"(GET|POST)", "([^"]+)", (\w+), (\w+), ([01]), ([01]), ', re.M)
KEY = {"Authorization": "Bearer k"}


def valid(text):
    python = pathlib.Path(os.environ.get("OPENAPI_PYTHON", "build/python/bin/python"))
    if not python.exists() or subprocess.run([python, "-c", "import openapi_spec_validator"], capture_output=True).returncode: return skip("openapi-spec-validator", "it is not installed")
    code = "import json, sys; from openapi_spec_validator import OpenAPIV31SpecValidator as V; print([e.message[:200] for e in V(json.load(sys.stdin)).iter_errors()])"
    p = subprocess.run([python, "-c", code], input=text, capture_output=True, text=True)
    check("the document is valid", p.stdout.strip() == "[]", p.stdout + p.stderr[-500:])


def described(doc, table):
    """The document has the routes of the table and no others, each with what it takes."""
    have = {(method.upper(), path) for path, item in doc["paths"].items() for method in item}
    want = {(r[0], r[1] + ("{name}" if len(r[1]) > 1 and r[1].endswith("/") else "")) for r in table}
    check("the document has the routes of the table", have == want and len(table) > 30, (have ^ want, len(table)))
    ids = [op["operationId"] for item in doc["paths"].values() for op in item.values()]
    check("ids are unique", len(set(ids)) == len(ids), ids)
    schema = lambda path: doc["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    chat, made = schema("/v1/chat/completions"), schema("/api/generate")
    check("members of a chat", chat["required"] == ["messages"] and chat["properties"]["top_p"]["maximum"] == 1 and "guided_json" in chat["properties"] and "echo" not in chat["properties"] and "max_tokens" in chat["properties"], chat)
    check("members of Ollama's", made["properties"]["options"]["properties"]["top_k"]["minimum"] == -1 and "num_predict" in made["properties"]["options"]["properties"] and "raw" in made["properties"], made)
    check("streams", "text/event-stream" in doc["paths"]["/v1/completions"]["post"]["responses"]["200"]["content"] and "application/x-ndjson" in doc["paths"]["/api/chat"]["post"]["responses"]["200"]["content"])


def answers(s, table):
    """Each path answers to its method: a GET with what it is, a POST of {} with an answer or a sentence; and a key is asked for as the document says."""
    for method, path, _, _, is_open, _ in table:
        real = path + "default" if len(path) > 1 and path.endswith("/") else path
        body = b"{}" if method == "POST" else None
        status, headers, text = s.request(method, real, body, KEY)
        check(f"{method} {path} answers", status == 200 if method == "GET" else status in (200, 400, 403), (status, text[:200]))
        check(f"{method} {path} without a key", s.request(method, real, body)[0] == (status if is_open == "1" else 401))
        if path.startswith("/v1/"): check(f"{method} {path[3:]} too", s.request(method, real[3:], body, KEY)[0] == status)


def page(s, doc):
    status, headers, text = s.request("GET", "/docs")
    text = text.decode()
    check("the page", status == 200 and headers["content-type"] == "text/html; charset=utf-8" and "default-src 'none'" in headers["content-security-policy"], headers)
    check("no script, nothing from outside", not re.search(r"<script|<link|<img|src=|href=|url\(|@import|https?://", text), re.findall(r"<script|<link|<img|src=|href=|https?://", text))
    for path, item in doc["paths"].items():
        method, op = next(iter(item.items()))
        check(f"the page has {path}", f"<code>{method.upper()} {path}</code> {html.escape(op['summary'], quote=False)}" in text, path)
    check("the page has members", "<code>options.num_predict</code>" in text and "<code>temperature</code><td>number, 0 to 2" in text)


def main():
    table = ROUTE.findall(pathlib.Path("llm_serve.c").read_text(errors="replace"))
    s = Server("--api-key", "k", model=tiny_model())
    status, headers, text = s.request("GET", "/openapi.json")
    check("without a key", status == 200 and headers["content-type"] == "application/json", (status, headers))
    doc = json.loads(text)
    check("OpenAPI 3.1", doc["openapi"] == "3.1.0" and doc["security"] == [{"key": []}], doc["openapi"])
    valid(text.decode())
    described(doc, table)
    answers(s, table)
    page(s, doc)
    check("the server ends", s.stop() == 0)
    finish()


main()
