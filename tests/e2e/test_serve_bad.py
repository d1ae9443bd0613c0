#!/usr/bin/env python3
"""Bad inputs to llm_serve: framing, JSON, parameters, and clients that misbehave. Standard library only.

    test_serve_bad.py [GROUP...]
What holds after every case: the expected status and `param`; a well-formed error of OpenAI's shape that repeats no more than a little of what was sent;
the same process, alive; nothing running; pages, descriptors and memory back; and a canary request that gives the same bytes as at the start, also
while bad requests arrive. The groups that wait for the server's own timeouts run beside the others.
"""
import json
import os
import random
import re
import resource
import shutil
import socket
import struct
import sys
import threading
import time

from refused_forms import CHOICE, GBNF, REFUSED, REGEX, SCHEMA, TAG
from serving import HOST, SANITIZED, SLOW, Server, check, eventually, finish, request_bytes, tiny_model

CANARY = {"prompt": "The quick brown fox", "max_tokens": 12, "temperature": 0, "logprobs": 3}
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USER = [{"role": "user", "content": "Hi"}]
HOST_LINE = b"Host: localhost\r\n"
TYPES = {"invalid_request_error", "authentication_error", "permission_error", "not_found_error", "rate_limit_error", "server_error", "overloaded_error"}


def canary(s):
    status, a = s.post(COMPLETIONS, CANARY)
    return json.dumps([status, a.get("choices", a)])


def error_of(text, ollama=False, anthropic=False):
    """The error object of a body (of Ollama's API its one sentence as such, of Anthropic's what it has of it), or what is wrong with it."""
    try:
        value = json.loads(text)
    except ValueError:
        return None, "the body is not JSON: " + repr(text[:200])
    e = value.get("error") if isinstance(value, dict) and set(value) == {"error"} else None
    if anthropic and isinstance(value, dict) and set(value) == {"type", "error"} and value["type"] == "error" and set(value["error"]) == {"type", "message"}:
        e = {**value["error"], "param": None, "code": None}
    if ollama: e = {"message": e, "type": "invalid_request_error", "param": None, "code": None}
    if not isinstance(e, dict) or set(e) != {"message", "type", "param", "code"}: return None, "not OpenAI's error object"
    if not isinstance(e["message"], str) or not 5 <= len(e["message"]) < 600: return e, "message of a bad length"
    if e["type"] not in TYPES or not all(isinstance(e[k], (str, type(None))) for k in ("param", "code")): return e, "bad type, param or code"
    if re.search(r"0x[0-9a-f]{6,}|/(?:home|root)/|\.c:\d|\.h:\d|[\x00-\x08\x1b]", e["message"]): return e, "an address, a path or a control character in the message"
    if os.getcwd() in e["message"]: return e, "where the server stands on its machine"
    if re.search(r"(.)\1{64}", e["message"]): return e, "what was sent is repeated at length"
    return e, None


def answers_in(data):
    """(status, headers, body) of every answer in what a socket gave."""
    out = []
    while data.startswith(b"HTTP/1.1 "):
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = dict((x.split(":", 1)[0].lower(), x.split(":", 1)[1].strip()) for x in lines[1:])
        status = int(lines[0].split()[1])
        n = int(fields.get("content-length", 0)) if status >= 200 else 0
        out.append((status, fields, rest[:n]))
        data = rest[n:]
    return out


def raw_case(s, name, data, want, shut=False, timeout=10):
    """Bytes that must be answered once with a status of `want`, then closed; want 0: closed without an answer."""
    got = answers_in(s.raw(data, timeout=timeout * SLOW, shut=shut))
    want = want if isinstance(want, tuple) else (want,)
    if want == (0,): return check(name, not got, got[:2])
    final = [x for x in got if x[0] >= 200]
    why = None
    if len(final) != 1 or final[0][0] not in want: why = f"wanted {want}, got {[x[0] for x in final]}"
    elif final[0][0] >= 400: why = error_of(final[0][2])[1]
    return check(name, why is None, why)


def body_case(s, path, body, want, param=None, headers=None, method="POST", says=None):
    """A request that must be answered with a status of `want` and an error whose param is `param` (None: any; "": null); says: part of its sentence."""
    data = body if isinstance(body, (bytes, type(None))) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    name = f"{method} {path} {(data or b'')[:90].decode(errors='replace')}{'...' if data and len(data) > 90 else ''}"
    start = time.time()
    status, fields, text = s.request(method, path, data, headers)
    took = time.time() - start
    want = want if isinstance(want, tuple) else (want,)
    if status not in want: return check(name, False, f"wanted {want} {param}, got {status} {text[:300]}")
    if took > 5 * SLOW: return check(name, False, f"{took:.1f} s")
    if status < 400: return check(name, True)
    e, why = error_of(text, path.startswith("/api/"), path.startswith("/v1/messages"))
    if why is None and not fields.get("content-type", "").startswith("application/json"): why = "content type"
    if why is None and param is not None and (e["param"] or "") != param and not (param.endswith("*") and (e["param"] or "").startswith(param[:-1])): why = f"param {e['param']}, wanted {param}: {e['message']}"
    if why is None and says and says not in e["message"]: why = f"without {says!r}"
    return check(name, why is None, f"{why} {e}")


# ---- framing

def post(body=b"{}", *lines):
    return b"POST /v1/completions HTTP/1.1\r\n" + HOST_LINE + b"Content-Type: application/json\r\n" + b"".join(x + b"\r\n" for x in lines) + b"\r\n" + body


def get(path=b"/health", *lines, version=b"HTTP/1.1", method=b"GET"):
    return method + b" " + path + b" " + version + b"\r\n" + HOST_LINE + b"".join(x + b"\r\n" for x in lines) + b"\r\n"


def group_framing(s):
    for length in (b"-1", b"+5", b"0x10", b"1e3", b"5,5", b"", b"5 5", b"\x0b5", b"5\t5", "５".encode()): raw_case(s, f"Content-Length {length}", post(b"{}", b"Content-Length: " + length), 400)
    for length in (b"18446744073709551616", b"9223372036854775808", b"9" * 30, b"33554433"): raw_case(s, f"Content-Length {length}", post(b"{}", b"Content-Length: " + length), (400, 413))
    raw_case(s, "two differing lengths", post(b"{}", b"Content-Length: 2", b"Content-Length: 3"), 400)
    raw_case(s, "two equal lengths", post(b"{}", b"Content-Length: 2", b"content-length: 2"), 400)
    raw_case(s, "length and chunked", post(b"0\r\n\r\n", b"Content-Length: 2", b"Transfer-Encoding: chunked"), 400)
    raw_case(s, "chunked and length", post(b"0\r\n\r\n", b"Transfer-Encoding: chunked", b"Content-Length: 2"), 400)
    for coding, want in ((b"chunked, chunked", 400), (b"xchunked", 501), (b"chunkedchunked", 501), (b"identity", 501), (b"gzip, chunked", 400), (b"\x0bchunked", 400), (b"chunked\x0b", 400), (b"", 501), (b"gzip", 501), (b"chunked;q=1", 501)):
        raw_case(s, f"Transfer-Encoding {coding}", post(b"0\r\n\r\n", b"Transfer-Encoding: " + coding), want)
    raw_case(s, "two codings", post(b"0\r\n\r\n", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400)
    raw_case(s, "chunked in HTTP/1.0", post(b"0\r\n\r\n", b"Transfer-Encoding: chunked").replace(b"HTTP/1.1", b"HTTP/1.0"), 400)
    for size in (b"-2", b"0x5", b"+5", b"fffffffffffffffff", b"", b" 5", b"5 ", b"g", b"100000000", b"5\n"): raw_case(s, f"chunk size {size}", post(size + b"\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 400)
    raw_case(s, "huge chunk", post(b"7fffffff\r\n{}", b"Transfer-Encoding: chunked"), 413)
    raw_case(s, "chunk extension of 64 KiB", post(b"2;" + b"a" * 65536 + b"\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 400)
    raw_case(s, "extension with a bare CR", post(b"2;a\rb\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 400)
    raw_case(s, "extension with NUL", post(b"2;a\0b\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 400)
    raw_case(s, "chunk data too long", post(b"2\r\n{}}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 400)
    raw_case(s, "chunk data without CR", post(b"2\r\n{}\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 400)
    raw_case(s, "trailer of 64 KiB", post(b"2\r\n{}\r\n0\r\na: " + b"b" * 65536 + b"\r\n\r\n", b"Transfer-Encoding: chunked"), 400)
    raw_case(s, "no last chunk, then the end", post(b"2\r\n{}\r\n", b"Transfer-Encoding: chunked"), 0, shut=True)
    raw_case(s, "half a body, then the end", post(b"{", b"Content-Length: 2"), 0, shut=True)
    good = json.dumps({**CANARY, "max_tokens": 1}).encode()
    chunks = b"%x;ext=\"a\"\r\n%s\r\n0\r\nContent-Length: 9\r\nAuthorization: x\r\n\r\n" % (len(good), good)
    raw_case(s, "extensions and trailers are dropped", post(chunks, b"Connection: close", b"Transfer-Encoding: Chunked"), 200)
    for name, data in (("bare LF", get().replace(b"\r\n", b"\n")), ("bare CR", get().replace(b"\r\n", b"\r")), ("CR CR LF", get().replace(b"\r\n", b"\r\r\n")), ("LF in a line", get(b"/health", b"A: b\nC: d")), ("CR in a line", get(b"/health", b"A: b\rC: d")),
                       ("folded field", get(b"/health", b"A: b", b" c")), ("folded with a tab", get(b"/health", b"A: b", b"\tc")), ("space before the colon", get(b"/health", b"A : b")), ("no colon", get(b"/health", b"nothing")), ("empty name", get(b"/health", b": b")),
                       ("NUL in a value", get(b"/health", b"A: b\0c")), ("DEL in a value", get(b"/health", b"A: b\x7fc")), ("escape in a value", get(b"/health", b"A: b\x1b[c")), ("NUL in a name", get(b"/health", b"A\0: b")), ("high byte in a name", get(b"/health", b"\xc3\xa4: b")), ("bracket in a name", get(b"/health", b"a[]: b"))):
        raw_case(s, name, data, 400)
    raw_case(s, "high bytes in a value", get(b"/health", b"A: \xff\xfe", b"Connection: close"), 200)
    for host in (b"", b"Host: a\r\nHost: b\r\n", b"Host: a/b\r\n", b"Host: u@localhost\r\n", b"Host: a b\r\n", b"Host: localhost, evil\r\n", b"Host: a\xff\r\n"): raw_case(s, f"{host}", get().replace(HOST_LINE, host), 400)
    for host in (b"evil.com", b"evil.com:80", b"localhost.evil.com", b"127.0.0.1.evil.com", b"[::2]", b"0.0.0.0", b"localhost:80:80", b"localhost:evil.com"): raw_case(s, f"foreign host {host}", get(b"/v1/models", b"Connection: close").replace(b"Host: localhost", b"Host: " + host), 403)
    for host in (b"localhost", b"localhost:1", b"127.0.0.1", b"[::1]:80", b"LOCALHOST"): raw_case(s, f"own host {host}", get(b"/v1/models", b"Connection: close").replace(b"Host: localhost", b"Host: " + host), 200)
    for target in (b"http://localhost/health", b"http://evil/health", b"*", b"health", b"//health", b"/%", b"/%G1", b"/%0", b"/%00", b"/a%0d%0ab", b"/%c0%af", b"/\xc3\xa4", b"/a\x7f", b"/%7f"): raw_case(s, f"target {target}", get(target, b"Connection: close"), (400, 404))
    for target in (b"/v1/../v1/models", b"/v1/%2e%2e/v1/models", b"/v1/models;x", b"/V1/models", b"//v1/models", b"/v1//models", b"/v1/models%00", b"/.", b"/page.js%20", b"/metrics/x", b"/v1/chat", b"/v1", b"/etc/passwd", b"/v1/models/../../etc/passwd"):
        raw_case(s, f"path {target}", get(target, b"Connection: close"), (400, 404))
    raw_case(s, "%6d is m", get(b"/v1/%6dodels", b"Connection: close"), 200)
    for line, want in ((b"FOO /health HTTP/1.1", (405, 501)), (b"get /health HTTP/1.1", (405, 501)), (b" /health HTTP/1.1", 400), (b"A" * 40 + b" /health HTTP/1.1", (405, 501)), (b"GET  HTTP/1.1", 400), (b"GET /health", 400), (b"GET /health HTTP/1.2", (400, 505)), (b"GET /health HTTP/3.0", 505),
                       (b"GET /health HTTP/1.1X", 400), (b"GET /health http/1.1", 400), (b"GET /health HTTP/1.", 400), (b"GET /a b HTTP/1.1", 400), (b"GET\t/health\tHTTP/1.1", 400), (b"G(T /health HTTP/1.1", 400), (b"PUT /health HTTP/1.1", 405), (b"DELETE /v1/models HTTP/1.1", 405), (b"TRACE /health HTTP/1.1", (405, 501)), (b"CONNECT localhost:1 HTTP/1.1", (400, 405, 501))):
        raw_case(s, f"request line {line[:30]}", line + b"\r\n" + HOST_LINE + b"Connection: close\r\n\r\n", want)
    raw_case(s, "HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505))
    raw_case(s, "TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200, 400)
    raw_case(s, "noise", b"\x80" + random.Random(1).randbytes(4000), 400)
    raw_case(s, "request line of 9 KiB", get(b"/" + b"a" * 9000), 414)
    raw_case(s, "endless request line", b"GET /" + b"a" * 20000, 414)
    raw_case(s, "path of 2 KiB", get(b"/" + b"a" * 2000), (404, 414))
    raw_case(s, "head of 40 KiB", get(b"/health", *[b"A%d: " % i + b"b" * 400 for i in range(95)]), 431)
    raw_case(s, "101 fields", get(b"/health", *[b"A: b"] * 101), 431)
    raw_case(s, "name of 10 KiB", get(b"/health", b"a" * 10240 + b": b"), 431)
    raw_case(s, "endless field", b"GET /health HTTP/1.1\r\nA: " + b"b" * 40000, 431)
    raw_case(s, "Upgrade is ignored", get(b"/health", b"Connection: Upgrade, close", b"Upgrade: websocket"), 200)
    raw_case(s, "h2c is ignored", get(b"/health", b"Connection: Upgrade, HTTP2-Settings, close", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk"), 200)
    raw_case(s, "Expect: foo", post(b"{}", b"Expect: foo", b"Content-Length: 2"), 417)
    got = answers_in(s.raw(post(b"", b"Expect: 100-continue", b"Content-Length: 99999999"), timeout=5))
    check("too large: no 100 Continue", [x[0] for x in got] == [413], got)
    got = answers_in(s.raw(post(b"", b"Expect: 100-continue", b"Connection: close", b"Content-Length: %d" % len(good)), timeout=1))
    check("100 Continue comes first", [x[0] for x in got] == [100], got)
    raw_case(s, "GET with a body", get(b"/health", b"Content-Length: 5", b"Connection: close") + b"hello", 200)
    raw_case(s, "GET with a large body", get(b"/health", b"Content-Length: 100000") + b"x" * 1000, 413)
    raw_case(s, "OPTIONS with a body", get(b"/health", b"Content-Length: 5", b"Connection: close", method=b"OPTIONS") + b"hello", (200, 204))
    for kind, want in ((b"text/plain", 415), (b"multipart/form-data; boundary=x", 415), (b"application/json; charset=utf-16", 415), (b"application/xml", 415), (b"application/x-www-form-urlencoded", 415), (b"application/json; charset=utf-8", 200), (b"application/json;charset=UTF-8", 200), (b"Application/JSON", 200)):
        raw_case(s, f"Content-Type {kind}", post(good, b"Connection: close", b"Content-Length: %d" % len(good)).replace(b"application/json", kind), want)
    raw_case(s, "no Content-Type", post(good, b"Connection: close", b"Content-Length: %d" % len(good)).replace(b"Content-Type: application/json\r\n", b""), 415)
    for coding in (b"gzip", b"deflate", b"br", b"gzip, identity"): raw_case(s, f"Content-Encoding {coding}", post(good, b"Content-Encoding: " + coding, b"Content-Length: %d" % len(good)), 415)
    got = answers_in(s.raw(get(b"/health", b"Connection: close") + get(b"/v1/models")))
    check("nothing after Connection: close", len(got) == 1, got)
    got = answers_in(s.raw(post(b"{}", b"Content-Length: 2", b"Content-Length: 2") + get() * 5))
    check("nothing after a framing error", [x[0] for x in got] == [400], got)
    got = answers_in(s.raw(b"\r\n\r\n" + get() * 3 + get(b"/health", b"Connection: close")))
    check("empty lines before a request", [x[0] for x in got] == [200] * 4, got)
    for value, echoed in (("abc-1.2_3", True), ("a" * 128, True), ("a" * 129, False), ("a b", False), ("\x1b[31m".replace("\x1b", "%1b"), False), ("a\tb", False), ("ä", False), ("<script>", False), ("", False)):
        got = answers_in(s.raw(get(b"/health", b"X-Request-Id: " + value.encode(), b"Connection: close")))
        check(f"request id {value[:20]!r}", got and got[0][0] == 200 and (got[0][1].get("x-request-id") == value) == echoed, got)
    for field in (b"Range: bytes=0-1", b"If-None-Match: *", b"Accept: image/png", b"Accept-Encoding: " + b"gzip, " * 1000, b"If-Modified-Since: x", b"Cookie: " + b"a=b; " * 1000, b"X-Forwarded-For: ,", b"X-Forwarded-For:"):
        raw_case(s, f"ignored {field[:24]}", get(b"/health", field, b"Connection: close"), 200)
    for origin in (b"http://evil.com", b"null", b"http://localhost.evil.com", b"http://127.0.0.1.evil.com", b"file://", b"http://evil.com:80@localhost", b"https://localhost:1@evil.com"):
        got = answers_in(s.raw(get(b"/v1/chat/completions", b"Origin: " + origin, b"Access-Control-Request-Method: POST", b"Connection: close", method=b"OPTIONS")))
        check(f"origin {origin} is not let in", got and "access-control-allow-origin" not in got[0][1] and got[0][1].get("access-control-allow-credentials") != "true", got)


# ---- JSON

def group_json(s):
    for body in ("", "  \n\t ", "null", "[]", '"x"', "1", "true", "-", "{", "}", "{]", "nul", "{}{}", "{} x", "{},", "\ufeff{}", "/* a */ {}", "{'prompt': 'a'}", '{"prompt": "a",}', '{"prompt": "a" "n": 1}', '{"prompt" "a"}', '{"prompt": }', '{prompt: "a"}', '{"prompt": "a\n"}', '{"prompt": "\\x"}',
                 '{"prompt": "\\u12"}', '{"prompt": "\\ud800"}', '{"prompt": "\\udc00\\ud800"}', '{"prompt": "a", "prompt": "b"}', '{"prompt": "a", "n": 1, "n": 999}', '{"prompt": "a", "\\u006e": 1, "n": 2}', "[" * 100000, '{"a":' * 50000, '{"prompt": ' + "[" * 100 + "]" * 100 + "}",
                 '{"prompt": "a", "metadata": ' + '{"a":' * 70 + "1" + "}" * 70 + "}", "{" + ",".join(f'"k{i}": 1' for i in range(5000)) + "}"):
        for path in (COMPLETIONS, CHAT): body_case(s, path, body, 400)
    body_case(s, COMPLETIONS, {"prompt": "a", "max_tokens": 1, "k" * 10240: 1}, (200, 400))
    for number in ("0123", ".5", "+1", "1.", "1e", "NaN", "Infinity", "-Infinity", "0x1", "1e400", "-1e400", "--1", "1_000", "1,5", "True", "１"): body_case(s, COMPLETIONS, '{"prompt": "a", "max_tokens": 1, "temperature": ' + number + "}", 400)
    for number in ("1.5", '"1"', "true", "[1]", "{}", "9007199254740993000", "9223372036854775808", "-9223372036854775809", "1e400", "1e-1"): body_case(s, COMPLETIONS, '{"prompt": "a", "max_tokens": 1, "n": ' + number + "}", 400)
    for number in ("1.0", "1", "10e-1"): body_case(s, COMPLETIONS, '{"prompt": "a", "max_tokens": 1, "n": ' + number + "}", (200,) if number != "10e-1" else (200, 400))
    for number in ("-0", "1E-999999", "0.0", "0e99", "0." + "0" * 400 + "1"): body_case(s, COMPLETIONS, '{"prompt": "a", "max_tokens": 1, "temperature": ' + number + "}", 200)
    for bad in (b"\x80", b"\xc0\x80", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xff", b"\xfe\xff"): body_case(s, COMPLETIONS, b'{"prompt": "a' + bad + b'"}', 400)
    whole = json.dumps({"prompt": "h\u00e4 \U0001f600", "max_tokens": 1, "stop": ["x"], "logit_bias": {"1": 2.5}, "stream": False}, ensure_ascii=False).encode()
    for n in range(len(whole)): body_case(s, COMPLETIONS, whole[:n], 400)
    body_case(s, COMPLETIONS, whole, 200)
    body_case(s, COMPLETIONS, '{"prompt": "a\\u0000b", "max_tokens": 1}', 200)
    a = s.post("/tokenize", {"prompt": "a\0b"})[1]["tokens"]
    check("NUL is a byte of the prompt", s.post("/detokenize", {"tokens": a})[1]["prompt"] == "a\0b", a)
    for field in ("model", "stop", "user", "cache_salt"): body_case(s, COMPLETIONS, {"prompt": "a", "max_tokens": 1, field: "a\0b"}, (400, 404), field)
    body_case(s, COMPLETIONS, {"prompt": "a", "max_tokens": 1, "__proto__": {"n": 9}, "constructor": 1, "": 1}, (200, 400))
    body_case(s, COMPLETIONS, b'{"prompt": "' + b"a" * (33 << 20) + b'"}', 413)
    body_case(s, CHAT, {"messages": USER * 20000}, 400, "messages")
    body_case(s, COMPLETIONS, '{"prompt": "a", "max_tokens": 1, "k": "' + "\\u00e9" * 300000 + '"}', 200)


# ---- parameters: (path, body, status, param); "" is null, None any

def rows(path, base, table):
    for entry in table: yield (path, {**base, **entry[0]}, entry[1], entry[2] if len(entry) > 2 else next(iter(entry[0])))


def nested(n):
    return {"type": "object", "properties": {"a": nested(n - 1)}} if n else {}


# Forms of an answer that cannot be met or are made to be expensive: name of the parameter, values. Each is one sentence and 400 (501: not supported).
FORMS = {
    "guided_json": [3, [1], "{", "x", "[" * 60000, json.dumps(nested(70)), {"$ref": "#/nowhere"}, {"$ref": "http://127.0.0.1:1/x"}, {"$ref": "file:///etc/passwd"}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, {"type": "integer", "minimum": 5, "maximum": 4}, {"required": ["a"], "properties": {"a": False}}, {"minLength": 3, "maxLength": 2}, {"minItems": 10 ** 9, "items": False},
        {"enum": []}, {"enum": 3}, {"required": 3}, {"required": [3]}, {"properties": []}, {"anyOf": []}, {"anyOf": {}}, {"allOf": 1}, {"oneOf": "x"}, {"items": 3}, {"prefixItems": [3]}, {"minimum": "1"}, {"minimum": 10 ** 50}, {"multipleOf": 0}, {"multipleOf": 10 ** 9 + 1},
        {"minLength": -1}, {"maxLength": "3"}, {"pattern": 3}, {"pattern": "("}, {"pattern": "(?=a)b"}, {"pattern": "a", "maxLength": 10 ** 9}, {"pattern": "((a{1000}){1000}){1000}"}, {"format": "nope"}, {"uniqueItems": True}, {"contains": 3}, {"dependentRequired": {"a": ["b"]}}, {"uniqueItems": True, "items": {"enum": list(range(1000))}},
        {"contains": {"const": 1}, "maxContains": 10 ** 9}, {"contains": {"type": "null"}, "minContains": 10 ** 9, "maxItems": 10 ** 9}, {"propertyNames": 3}, {"propertyNames": {"pattern": "("}}, {"propertyNames": {"maxLength": 9}, "properties": {"a": {}}, "additionalProperties": {}}, {"$dynamicRef": "#x"}, {"not": {"pattern": "a"}}, {"if": {"minLength": 2}, "else": {"maxLength": 1}}, {"allOf": [{"minimum": i} for i in range(20)]}, {"oneOf": [{"pattern": str(i)} for i in range(300)]}, {"patternProperties": {"(": {}}},
        {"patternProperties": {"a": {}, "b": {}}}, json.dumps({"properties": {f"k{i}": {} for i in range(5000)}}), {"enum": ["x" * (1 << 20)]}, {"anyOf": [{"items": {"minLength": i}} for i in range(20000)]}],
    "guided_regex": ["(a", "[z-a]", "\\", "(?<=a)b", "(a)\\1", "a$b", "a{3,1}", "(" * 30000 + ")" * 30000, "[" + "a" * (1 << 20) + "]", "(((a{999}){999}){999}){999}", "a**" + "*" * 20],
    "guided_grammar": ["", "root ::= " + "(" * 60000, 'root ::= "a', "root ::= [a", "root ::= x", 'Root ::= "a"', 'root ::= root "a" | "b"', 'root ::= a "x"\na ::= b? c | "y"\nb ::= "b"\nc ::= a', 'root ::= "a" root', 'root ::= "a"{3,1}', '%llguidance {}\nstart: "a"',
        'root ::= "a"\nroot ::= "b"', "x" * (1 << 20) + "y", "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} | r{i + 1} \"x\"\n" for i in range(300)) + 'r300 ::= "a"'],
    "guided_choice": [[""], [1], {}, [["a"]], "a"]}


def parameters():
    ok = {"prompt": "a", "max_tokens": 1}
    big = 10 ** 9
    both = [({"n": x}, 400) for x in (0, -1, 129, big, 1.5, "1", True, [], 2 ** 63)]
    both += [({"best_of": x}, 400) for x in (0, -1, big, "2", 1.5)] + [({"n": 3, "best_of": 2}, 400, "best_of"), ({"best_of": 3, "stream": True}, 400, "best_of"), ({"n": 2, "best_of": 2, "stream": True}, (200, 400), None)]
    both += [({"temperature": x}, 400) for x in (-1, -1e-9, 2.1, 1e308, "0", True, [])] + [({"temperature": x}, 200) for x in (1e-40, 0, 2, -0.0, None)]
    both += [({"top_p": x}, 400) for x in (0, -1, 1.1, "1")] + [({"top_p": x}, 200) for x in (1e-9, 1)] + [({"min_p": x}, 400) for x in (-0.1, 2, "a")]
    both += [({"top_k": x}, 400) for x in (-5, -2, 0.01, 2 ** 63, "1", 2 ** 31)] + [({"top_k": x}, 200) for x in (-1, 0, 1, 2 ** 31 - 1)]
    both += [({"seed": x}, 400) for x in (2 ** 64, -2 ** 63 - 1, 1.5, "a", True)] + [({"seed": x}, 200) for x in (-2 ** 63, 2 ** 63 - 1, -1, 0)]
    both += [({"max_tokens": x}, 400) for x in (-1, 1.5, "5", True, -2 ** 63)] + [({"max_tokens": 0}, 400)] + [({"max_completion_tokens": -1}, 400), ({"max_completion_tokens": 2}, 400, None)]
    both += [({"logit_bias": x}, 400) for x in ({"999999": 1}, {"-1": 1}, {"a": 1}, {"": 1}, {"1": 101}, {"1": -100.5}, {"1": "1"}, {"1": None}, {"1.5": 1}, {"1": True}, [], "a", 1, {str(i): 1 for i in range(2000)}, {"99999999999999999999": 1}, {"0x1": 1})]
    both += [({"logit_bias": {str(i): -100 for i in range(1000)}}, 200)]
    both += [({"stop": x}, 400) for x in ("", [""], ["a", ""], ["x"] * 17, "x" * (1 << 20), [None], [1], 1, {}, True, ["a", None])] + [({"stop": None}, 200), ({"stop": []}, 200)]
    both += [({"stop_token_ids": x}, 400) for x in ([999999], [-1], [1.5], ["1"], 1, "1", [2 ** 40], list(range(100)), [None])]
    both += [({"stop_token_ids": [999999], "min_tokens": 1}, 400), ({"min_tokens": 9}, 400), ({"min_tokens": -1}, 400), ({"min_tokens": "1"}, 400), ({"min_tokens": 2 ** 40}, 400)]
    both += [({"repetition_penalty": x}, 400) for x in (0, -1, 1e300, 2.5, "1")] + [({"repetition_penalty": 1e-300}, (200, 400)), ({"repetition_penalty": 2}, 200)]
    both += [({name: x}, 400) for name in ("presence_penalty", "frequency_penalty") for x in (3, -2.1, "1", [])]
    both += [({"stream": x}, 400) for x in ("yes", 1, [], "true")] + [({"stream_options": {"include_usage": True}}, 400), ({"stream": True, "stream_options": 1}, 400, "stream_options"), ({"stream": True, "stream_options": {"include_usage": 1}}, 400, "stream_options*"), ({"stream": True, "stream_options": []}, 400, "stream_options")]
    both += [({"user": "x" * 513}, 400), ({"user": 1}, 400), ({"cache_salt": ""}, 400), ({"cache_salt": "x" * 10240}, 400), ({"cache_salt": 1}, 400)]
    both += [({"priority": x}, 400) for x in (2 ** 40, -2 ** 31, "1", 0.5)] + [({"ignore_eos": 1}, 400), ({"skip_special_tokens": "no"}, 400), ({"include_stop_str_in_output": 1}, 400), ({"bad_words": [""]}, 400), ({"bad_words": "x" * 5000}, 400), ({"bad_words": ["x"] * 1000}, 400), ({"bad_words": [1]}, 400)]
    both += [({"prompt_logprobs": x}, 400) for x in (-1, 21, "1", 1.5, 2 ** 40)] + [({"truncate_prompt_tokens": x}, 400) for x in (0, -2, "1", 1.5)]
    both += [({"early_stop_config": x}, 400, "early_stop*") for x in ({"window_size": 0}, {"window_size": -1}, {"threshold": 2}, {"threshold": -1}, {"strategy": "x"}, {"window_size": "a"}, 1, [])]
    both += [({"model": 3}, 400), ({"model": []}, 400), ({"model": "x" * 10240}, (200, 400, 404)), ({"model": "../../etc/passwd"}, (200, 404)), ({"guided_json": {"type": "hiccup"}}, 400), ({"guided_json": 3}, 400), ({"guided_regex": 3}, 400), ({"guided_json": {}, "guided_choice": ["a"]}, 400, None), ({"guided_regex": "(" * 60000}, 400), ({"grammar": "root ::= root"}, 400), ({"guided_choice": []}, 400), ({"structured_outputs": {"regex": "("}}, 400), ({"structured_outputs": {"x": 1}}, 400), ({"structured_outputs": {}}, 400), ({"guided_json": {"$ref": "#"}}, 400), ({"guided_json": {"not": {}}}, (400, 501)), ({"guided_regex": "(?=a)b"}, (400, 501)), ({"guided_choice": ["a"], "use_beam_search": True, "best_of": 2, "temperature": 0}, 400, None),
             ({"response_format": {"type": "x"}}, 400), ({"response_format": {"type": "json_schema"}}, 400), ({"response_format": 1}, 400), ({"response_format": {"type": "text"}}, 200), ({"return_token_ids": 1}, 400), ({"length_penalty": 2}, 400, None), ({"length_penalty": "a"}, 400), ({"use_beam_search": "yes"}, 400), ({"use_beam_search": True, "stream": True}, 400, None),
             ({"use_beam_search": True, "best_of": 2, "temperature": 0.5}, 400, None), ({"early_stopping": "x"}, 400, None)]
    both += [({name: value}, (400, 501)) for name, values in FORMS.items() for value in values]
    both += [({"guided_json": {"type": "string", "minLength": 10 ** 9}}, 200), ({"guided_grammar": 'root ::= ("a"*)*'}, 200), ({"guided_regex": "((a?){30}){30}b"}, 200)]
    yield from rows(COMPLETIONS, ok, both)
    yield from rows(CHAT, {"messages": USER, "max_tokens": 1}, both)
    prompts = ["", [], [[]], [-1], [2 ** 31], [999999], [1.5], [[1], "a"], {}, 1, True, [[1, -1]], [None], [["a"]], [[[1]]], ["a", 1], ["a"] * 100000, ["a", ""], [[1], []], "a " * 20000, [1] * 5000, [[1]] * 300, ["a", {}]]
    for prompt in prompts: yield COMPLETIONS, {"prompt": prompt, "max_tokens": 1}, 400, "prompt"
    yield from rows(COMPLETIONS, ok, [({"logprobs": x}, 400) for x in (21, -1, True, "1", 1.5, 2 ** 40)] + [({"echo": 1}, 400), ({"suffix": "b"}, 400), ({"prompt": None}, 400, "prompt"), ({"messages": USER, "prompt": None}, 400, "prompt"), ({"max_tokens": 0, "echo": True}, 200), ({"max_tokens": 2 ** 62, "stop": ["a", "e", "i", "o", "u", " "]}, 200), ({"max_tokens": 2 ** 31, "stop": ["a", "e", "i", "o", "u", " "]}, 200)])
    for messages in (None, [], {}, "a", 1, [None], [1], ["a"], [[]], [{}], [{"content": "a"}], [{"role": None, "content": "a"}], [{"role": "x", "content": "a"}], [{"role": 1, "content": "a"}], [{"role": "user"}], [{"role": "user", "content": None}], [{"role": "user", "content": 1}], [{"role": "user", "content": {}}],
                     [{"role": "user", "content": [1]}], [{"role": "user", "content": [[{"type": "text", "text": "a"}]]}], [{"role": "user", "content": [{"type": "x"}]}], [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"type": "text", "text": 1}]}], [{"role": "user", "content": [{"text": "a"}]}],
                     [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}]}], [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}], [{"role": "user", "content": "a " * 20000}]):
        yield CHAT, {"messages": messages, "max_tokens": 1}, (400, 501) if "image" in json.dumps(messages) else 400, "messages*"
    yield CHAT, {"max_tokens": 1}, 400, "messages"
    chat = {"messages": USER, "max_tokens": 1}
    yield from rows(CHAT, chat, [({"logprobs": x}, 400) for x in (1, "true", [])] + [({"top_logprobs": 2}, 400, None), ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"), ({"logprobs": True, "top_logprobs": -1}, 400, "top_logprobs"), ({"logprobs": True, "top_logprobs": True}, 400, "top_logprobs"), ({"logprobs": True, "top_logprobs": 1.5}, 400, "top_logprobs"),
        ({"max_completion_tokens": 7}, 400, None), ({"chat_template": "{{ 1 }}"}, (400, 403)), ({"chat_template_kwargs": 1}, 400), ({"chat_template_kwargs": []}, 400), ({"chat_template_kwargs": {"messages": []}}, 400), ({"chat_template_kwargs": {"tokenize": True}}, (200, 400)), ({"chat_template_kwargs": {"add_generation_prompt": False}}, 400),
        ({"chat_template_kwargs": {f"k{i}": 1 for i in range(100)}}, 400), ({"add_generation_prompt": "x"}, 400), ({"continue_final_message": True, "add_generation_prompt": True}, 400, None), ({"continue_final_message": 1}, 400)])
    for call in ("a" * 10, "{", 1, None, {"a": 1}): yield CHAT, {**chat, "messages": USER + [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": call}}]}]}, (200, 400), None
    tool = lambda name="f", **more: {"type": "function", "function": {"name": name, **more}}
    for tools in (1, {}, "a", [1], [{}], [None], [[]], [{"type": "function"}], [{"type": "x", "function": {"name": "f"}}], [{"function": {"name": "f"}}], [{"type": "function", "function": "f"}], [{"type": "function", "function": {}}], [tool(1)], [tool(None)], [tool("")], [tool("a b")], [tool("x" * 65)], [tool("\u00e9")], [tool("a.b")], [tool("a\0b")],
                  [tool(), tool()], [tool("f"), tool("g"), tool("f")], [tool(parameters=1)], [tool(parameters="{}")], [tool(parameters=[])], [tool(strict=1)], [tool(strict="yes")], [tool("g"), tool(parameters={"type": "hiccup"})], [tool(parameters={"type": "object", "properties": 1})], [tool(parameters={"$ref": "#/missing"})],
                  [tool(parameters={"type": "object", "properties": {"a": {"pattern": "("}}})], [tool(parameters={"not": {}}, strict=True)]):
        yield CHAT, {**chat, "tools": tools, "tool_choice": "required" if isinstance(tools, list) else "auto"}, 400, "tools*"
    yield CHAT, {**chat, "tools": [tool(f"f{i}") for i in range(129)]}, 400, "tools"
    yield from rows(CHAT, {**chat, "tools": [tool(parameters={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}), tool("g")]}, [({"tool_choice": x}, 400) for x in ("x", "f", 3, True, [], {}, {"type": "function"}, {"type": "function", "function": {}}, {"type": "function", "function": {"name": 1}}, {"type": "function", "function": {"name": "h"}})]
        + [({"tool_choice": x}, 200) for x in ("none", "auto", "required", None, {"type": "function", "function": {"name": "g"}})] + [({"parallel_tool_calls": "no"}, 400), ({"parallel_tool_calls": False, "tool_choice": "required"}, 200), ({"tool_choice": "required", "guided_json": {}}, 400, "tool_choice"), ({"guided_json": {"type": "integer"}}, 200, None), ({"tools": [tool(parameters={"not": {}})]}, 200, None)])
    yield from rows(CHAT, chat, [({"tool_choice": x}, 400) for x in ("required", "auto", {"type": "function", "function": {"name": "f"}})] + [({"tool_choice": "none"}, 200), ({"tools": [], "tool_choice": None}, 200, None), ({"tools": None}, 200), ({"tools": []}, 200)])
    for calls in (1, {}, [1], [{}], [{"function": {}}], [{"function": {"name": 1}}], [{"function": {"name": "f", "arguments": 1}}], [{"function": {"name": "f", "arguments": []}}]): yield CHAT, {**chat, "messages": USER + [{"role": "assistant", "tool_calls": calls}]}, 400, "messages*"
    yield CHAT, {**chat, "messages": USER + [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}] * 10000}]}, (200, 400), None
    for body, param in (({}, "prompt"), ({"prompt": 1}, "prompt"), ({"prompt": ["a"]}, "prompt"), ({"messages": 1}, "messages*"), ({"messages": [{}]}, "messages*"), ({"content": 1}, None), ({"prompt": "a", "add_special_tokens": 1}, None)): yield "/tokenize", body, 400, param
    for tokens in (None, 1, "1", [-1], [999999], [1.5], ["1"], [None], [[1]], [2 ** 63], {"a": 1}): yield "/detokenize", {"tokens": tokens}, 400, "tokens"
    yield "/detokenize", {}, 400, "tokens"
    yield "/detokenize", {"tokens": [1] * 2000000}, (200, 400), None
    for body in ({}, {"messages": []}, {"messages": [{"role": "x", "content": "a"}]}, {"messages": USER, "chat_template": "{{ 1 }}"}): yield "/apply-template", body, (400, 403), None
    for body in ({}, {"prompt": ""}, {"prompt": "a", "temperature": 9}, {"prompt": "a", "n": 0}, {"prompt": 1}, {"prompt": "a", "max_tokens": -1}): yield "/generate", body, 400, next(reversed(body), "prompt")
    for value in (None, "", [], [[]], {}, 1, 1.5, True, [None], [1.5], [-1], [2 ** 31], [999999], [[1], "a"], ["a", 1], ["a", ""], ["a", {}], [[1], []], [[1, -1]], [["a"]], [[[1]]], ["a"] * 100000, [[1]] * 3000, "a " * 20000): yield "/v1/embeddings", {"input": value}, 400, "input"
    yield from rows("/v1/embeddings", {"input": "a"}, [({"dimensions": x}, 400) for x in (0, -1, 10 ** 9, 2 ** 70, 1.5, "8", [])] + [({"encoding_format": x}, 400) for x in ("x", "", 1, [], True)] + [({"normalize": 1}, 400), ({"stream": True}, 400), ({"user": 1}, 400), ({"truncate_prompt_tokens": 0}, 400),
        ({"dimensions": None, "encoding_format": None, "user": None}, 200, None), ({"encoding_format": "base64", "dimensions": 1, "n": 5, "best_of": 9, "logprobs": 3, "use_beam_search": True}, 200, None), ({"tools": 1}, 400)])
    yield "/v1/embeddings", {}, 400, "input"
    for value in (None, "", [], {}, 1, [1], ["a"], [None], [{"role": "x", "content": "a"}], [{"role": "user"}], [{"role": "user", "content": 1}], [{"type": "y"}], [{"type": 1}], [{"type": "function_call"}], [{"type": "function_call", "call_id": "1"}], [{"type": "function_call", "call_id": "1", "name": 1, "arguments": "{}"}],
                  [{"type": "function_call_output", "output": "a"}], [{"type": "function_call_output", "call_id": "a", "output": 5}], [{"type": "item_reference", "id": "x"}], [{"role": "user", "content": [{"type": "input_image", "image_url": "file:///etc/passwd"}]}]): yield "/v1/responses", {"input": value, "max_output_tokens": 1}, (200, 400) if value == "" else 400, "input*"
    yield from rows("/v1/responses", {"input": "a", "max_output_tokens": 1}, [({"max_output_tokens": x}, 400) for x in (0, -1, "1", 1.5)] + [({name: x}, 400, name + "*") for name, x in (("previous_response_id", "resp_1"), ("conversation", "c"), ("background", True), ("prompt", {}), ("instructions", 1), ("text", 1), ("reasoning", 1), ("temperature", 3), ("tools", 1), ("tools", [{"type": "web_search"}]), ("tools", [{"type": "function"}]),
        ("tools", [1]), ("tools", [{"type": "function", "name": "a b"}]), ("tool_choice", "required"), ("stream", "x"), ("text", {"format": {"type": "x"}}), ("text", {"format": {"type": "json_schema"}}), ("text", {"format": {"type": "json_schema", "schema": {"type": "hiccup"}}}),
        ("n", 2), ("echo", True), ("prompt_logprobs", 1), ("return_token_ids", True), ("return_metrics", True), ("logprobs", True), ("top_logprobs", 3), ("top_logprobs", 21), ("top_logprobs", "1"), ("include", "x"), ("include", [1]))] + [({"metadata": {"a": "b"}, "store": True, "include": None, "truncation": "auto", "user": "u", "background": False, "n": 1, "top_logprobs": 0}, 200, None), ({"include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "top_logprobs": 20}, 200, None)])
    for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/infill", "/slots/0", "/v1/nothing"): yield path, {"input": "a", "model": "", "lora_name": "../x", "lora_path": "/etc"}, (400, 403, 404, 405, 501), None


def ollama_rows():
    """(path, body, status, words of the sentence) of Ollama's routes."""
    chat, ask = {"messages": USER, "stream": False, "options": {"num_predict": 1}}, {"prompt": "a", "stream": False, "options": {"num_predict": 1}}
    for path in ("/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show"):
        for body, want in ((b"", 400), (b"[]", 400), (b"3", 400), (b"{", 400), (b'{"model": 1}', 400), (b'{"model": "a", "model": "b"}', 400), (b'{"options": ' * 60 + b"1" + b"}" * 60, (200, 400)), (b'{"a": ' + b"[" * 100000 + b"]" * 100000 + b"}", 400),
                           (b'{"\xff": 1}', 400), (json.dumps({f"k{i}": i for i in range(50000)}).encode(), 400), (json.dumps({f"k{i}": i for i in range(4000)}).encode(), 200), (b'{"prompt": "' + b"a" * (8 << 20) + b'"}', (200, 400)), (json.dumps({"model": "x:" + "y" * 100000}).encode(), (200, 404)), (json.dumps({"model": "a\0:latest"}).encode(), (200, 404))): yield path, body, want, None
    for messages in (1, "a", {}, [1], [None], [[]], [{}], [{"role": "x", "content": "a"}], [{"role": "user", "content": 1}], [{"role": "user", "content": "a", "images": 1}], [{"role": "user", "content": "a", "images": [1]}], [{"role": "user", "images": ["aGk="]}],
                     [{"role": "user", "content": "a", "images": ["*"]}], [{"role": "user", "content": "a", "images": ["file:///etc/passwd"]}], [{"role": "user", "content": "a", "images": ["x"] * 1000}], [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}], [{"role": "user", "content": "a " * 20000}]): yield "/api/chat", {**chat, "messages": messages}, 400, "messages" if len(str(messages)) < 30000 else "context"
    for path, base in (("/api/chat", chat), ("/api/generate", ask)):
        for name, values in (("options", (1, [], "a")), ("stream", (1, "yes", [])), ("format", (1, "yaml", [], True)), ("think", (1, "much", [], True, "high")), ("keep_alive", ([], {}, True)), ("template", ("x", 1, [])), ("logprobs", (1, "a")), ("top_logprobs", (99, -1, "a")), ("truncate", (1, "a"))):
            for value in values: yield path, {**base, name: value}, 403 if name == "template" else 400, name if name != "format" else None
        for name, values in (("temperature", (9, -1, "1", True, [])), ("top_k", (-5, 0.5, "1", 2 ** 63)), ("top_p", (0, 2, "a")), ("min_p", (-1, "a")), ("seed", (1.5, 2 ** 64, "a")), ("num_predict", (-3, 1.5, "5", 2 ** 64, True)), ("stop", (1, [""], [1], ["x"] * 17, {})), ("repeat_penalty", (0, -1, 1e300, "1")),
                             ("repeat_last_n", (-2, 1.5, "1", [])), ("presence_penalty", (3, "1")), ("frequency_penalty", (-2.1, [])), ("mirostat", (1, 2, "0", [])), ("tfs_z", (0.5, "1")), ("typical_p", (0.7, {}))):
            for value in values: yield path, {**base, "options": {name: value}}, 400, "penalty" if name == "repeat_penalty" else name
        yield path, {**base, "options": {"repeat_last_n": 64, "repeat_penalty": 1.1}}, 400, "repeat_last_n: 64"
        yield path, {**base, "options": {f"k{i}": i for i in range(4000)}}, 200, None
        for schema in ({"type": "hiccup"}, {"$ref": "#/nowhere"}, nested(70), {"enum": []}): yield path, {**base, "format": schema}, 400, None
    for tools in (1, "a", [1], [{}], [{"type": "function", "function": {"name": "a b"}}], [{"type": "function", "function": {"name": "f"}}] * 200): yield "/api/chat", {**chat, "tools": tools}, 400, "tools"
    for more in ({"prompt": 1}, {"prompt": ["a"]}, {"system": 1}, {"raw": 1}, {"images": 1}, {"images": [1]}, {"images": ["aGk="]}, {"context": 1}, {"context": ["a"]}, {"context": [-1]}, {"context": [999999]}, {"context": [5] * 100000}, {"raw": True, "system": "s"}, {"raw": True, "context": [5]}, {"raw": True, "images": ["a"]}, {"suffix": "b"}, {"suffix": 1}): yield "/api/generate", {**ask, **more}, 400, None
    for value in (1, {}, [1.5], [None], ["a", ""], ["a", 1], [[1], "a"], ["a"] * 100000): yield "/api/embed", {"input": value}, 400, "input"
    for more in ({"dimensions": 0}, {"dimensions": 10 ** 9}, {"dimensions": "a"}, {"truncate": 1}, {"truncate": False, "input": "a " * 20000}): yield "/api/embed", {"input": "a", **more}, 400, None
    for value in (1, {}, [None]): yield "/api/embeddings", {"prompt": value}, 400, None


def group_ollama(s):
    for path, body, want, says in ollama_rows(): body_case(s, path, body, want, says=says)


def anthropic_rows():
    """(path, body, status, words of the sentence) of Anthropic's routes."""
    ask = {"messages": USER, "max_tokens": 1}
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        for body, want in ((b"", 400), (b"[]", 400), (b"3", 400), (b"{", 400), (b"{}", 400), (b'{"messages": 1, "messages": 2}', 400), (b'{"messages": ' * 70 + b"1" + b"}" * 70, 400), (b'{"a": ' + b"[" * 100000 + b"]" * 100000 + b"}", 400),
                           (b'{"\xff": 1}', 400), (json.dumps({f"k{i}": i for i in range(50000)}).encode(), 400), (json.dumps({**ask, **{f"k{i}": i for i in range(4000)}}).encode(), 200)): yield path, body, want, None
        for messages in (1, "a", {}, [], [1], [None], [[]], [{}], [{"role": "system", "content": "a"}], [{"role": "x", "content": "a"}], [{"role": "user"}], [{"role": "user", "content": 1}], [{"role": "user", "content": {}}], [{"role": "user", "content": [1]}],
                         [{"role": "user", "content": [{"type": 1}]}], [{"role": "user", "content": [{"type": "document"}]}], [{"role": "user", "content": [{"type": "text", "text": 1}]}], [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}],
                         [{"role": "assistant", "content": [{"type": "image"}]}], [{"role": "user", "content": [{"type": "tool_result", "content": "a"}]}], [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": 1}]}],
                         [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "x"}]}]}]): yield path, {**ask, "messages": messages}, 400, "messages"
        for source in (1, {}, {"type": "base64"}, {"type": "base64", "media_type": "image/png"}, {"type": "base64", "media_type": "image/png", "data": "*"}, {"type": "url", "url": "file:///etc/passwd"}, {"type": "file", "file_id": "a"}):
            yield path, {**ask, "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}, (400, 403), None
        for name, values in (("system", (1, {}, [1], [{}], [{"text": 1}])), ("tools", (1, {}, "a", [1], [{}], [{"name": "a b", "input_schema": {}}], [{"name": "f", "input_schema": 1}], [{"type": "bash_20250124", "name": "bash"}])), ("thinking", (1, "a", {}, {"type": "much"})),
                             ("tool_choice", (1, "auto", {}, {"type": "x"}, {"type": "tool"}, {"type": "tool", "name": 1})), ("mcp_servers", ([], [{}])), ("output_config", (1, [], {"format": 1}, {"format": {"type": "text"}}, {"effort": 1})), ("output_format", (1, {"type": "json_schema"}))):
            for value in values: yield path, {**ask, name: value}, 400, None
    for name, values in (("max_tokens", (0, -1, 1.5, "1", 2 ** 64, True)), ("temperature", (-1, 9, "1", [])), ("top_p", (-1, 2, "a")), ("top_k", (-5, 0.5, "1")), ("stream", (1, "yes", [])), ("stop_sequences", (1, [1], [""], {})), ("model", (1, []))):
        for value in values: yield "/v1/messages", {**ask, name: value}, 400, None
    for schema in ({"type": "hiccup"}, {"$ref": "#/nowhere"}, nested(70), {"enum": []}): yield "/v1/messages", {**ask, "output_format": {"type": "json_schema", "schema": schema}}, 400, None


def group_anthropic(s):
    for path, body, want, says in anthropic_rows(): body_case(s, path, body, want, says=says)


def group_parameters(s):
    for path, body, want, param in parameters(): body_case(s, path, body, want, param)
    strict = Server("--strict-model-name", model=s.model)
    for name in ("gpt-4", "x" * 10240, "../../x", "models", "tiny4k.gguf/"): body_case(strict, COMPLETIONS, {"prompt": "a", "model": name, "max_tokens": 1}, 404, "model")
    for name in (s.model, "tiny4k.gguf", "", "default", "null", None): body_case(strict, COMPLETIONS, {"prompt": "a", "model": name, "max_tokens": 1}, 200)
    body_case(strict, "/v1/models/gpt-4", None, 404, "model", method="GET")
    check("strict server ends", strict.stop() == 0)


def group_forms(s):
    """Every form that the library refuses, in a completion's field and as OpenAI's; a schema also as the one of a tool that must be called."""
    fields = {GBNF: ("guided_grammar", "grammar"), REGEX: ("guided_regex", "regex"), CHOICE: ("guided_choice", None), SCHEMA: ("guided_json", "json_schema"), TAG: ("structural_tag", None)}
    for kind, form, part in REFUSED:
        if isinstance(form, bytes) or part in ("64 levels", "deep"): continue # no text of JSON; a body too deep to be read at all (group_json)
        for field in filter(None, fields[kind]): body_case(s, COMPLETIONS, {"prompt": "a", "max_tokens": 1, field: form}, 400, field, says=part)
        if kind != SCHEMA: continue
        wrapped = {"type": "json_schema", "json_schema": {"name": "x", "schema": form}}
        body_case(s, CHAT, {"messages": USER, "max_tokens": 1, "response_format": wrapped}, 400, "response_format", says=part)
        tool = {"type": "function", "function": {"name": "f", "parameters": form}}
        body_case(s, CHAT, {"messages": USER, "max_tokens": 1, "tools": [tool], "tool_choice": "required"}, 400, *tool_refused(form, part))


def tool_refused(form, part):
    """The field and the words by which a tool's schema is refused: it stands in the prompt too, which is refused by its size before it is compiled."""
    if len(json.dumps(form)) > 200000: return "messages", None, "POST", "bytes of text, at most 135168"
    return "tools*", None, "POST", part if isinstance(form, dict) else None


def group_crowd(s):
    """Many forms that take long to compile, each another one, and clients that go on beside them; those who leave free their place at once."""
    form = lambda i: {"prompt": "a", "max_tokens": 1, "guided_json": {"properties": {f"p{k}": {"enum": ["a" * 3000 + str(i)], "pattern": f"^(a{{0,30}}){{0,30}}(a{{0,3{k}}}){{0,30}}$"} for k in range(9)}}}
    crowd = [s.connect() for _ in range(100)]
    for i, c in enumerate(crowd): c.sendall(request_bytes(COMPLETIONS, form(i)))
    times = []
    for i in range(10):
        start = time.time()
        status, a = s.post(COMPLETIONS, {"prompt": f"{i} and", "max_tokens": 1})
        times.append(time.time() - start)
    check("ordinary requests beside a crowd of forms", status == 200 and max(times) < 0.5 * SLOW, times)
    for c in crowd: reset(c)
    start = time.time()
    status, a = s.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1, "guided_choice": ["b"]})
    check("a form behind a crowd that left", status == 200 and time.time() - start < 1 * SLOW, (time.time() - start, a))


def group_content(s):
    """Long texts take time in proportion to their length; the context's limit; ids of clients."""
    for name, unit in (("one letter", "a"), ("spaces", " "), ("digits", "7"), ("joined emoji", "\U0001f468\u200d\U0001f469\u200d"), ("words", "word "), ("combining", "a\u0301\u0323"), ("lines", "\n"), ("mixed", "x1 \t,")):
        times = [9e9, 9e9]
        for _ in range(5): # others compute, too: the best of some tries tells. Four times the text: 4 times as long, or 16 where it is quadratic
            for i, size in enumerate((1 << 17, 1 << 19)):
                text = (unit * (size // len(unit.encode()) + 1))[:size]
                start = time.time()
                status, _, _ = s.request("POST", "/tokenize", {"prompt": text})
                times[i] = min(times[i], time.time() - start)
            if times[1] < 8 * max(times[0], 0.03 * SLOW): break
        check(f"tokenizing {name}", status in (200, 413) and times[1] < 2 * SLOW and times[1] < 8 * max(times[0], 0.03 * SLOW), (status, times))
    n = len(s.post("/tokenize", {"prompt": "word " * 100})[1]["tokens"])
    room = 2048
    unit = s.post("/tokenize", {"prompt": " word"})[1]["tokens"]
    for length, want in ((room - 1, 200), (room, (200, 400)), (room + 1, 400)): body_case(s, COMPLETIONS, {"prompt": (unit * room)[:length] + unit[:max(0, length - room)], "max_tokens": 5}, want, "prompt")
    status, a = s.post(COMPLETIONS, {"prompt": (unit * room)[:room - 1], "max_tokens": 500, "ignore_eos": True})
    check("an answer ends at the context's limit", a["choices"][0]["finish_reason"] == "length" and a["usage"]["total_tokens"] <= room, a.get("usage"))
    status, a = s.post(COMPLETIONS, {"prompt": unit * (room + 7), "max_tokens": 5})
    check("both numbers are told", status == 400 and str(room) in a["error"]["message"] and str(room + 7) in a["error"]["message"] and f"This model's maximum context length is {room} tokens" in a["error"]["message"] and a["error"]["code"] == "context_length_exceeded", a)
    both = [None, None]

    def one(i): both[i] = s.request("POST", COMPLETIONS, {**CANARY, "prompt": f"{i} and"}, {"X-Request-Id": "same"})
    threads = [threading.Thread(target=one, args=(i,)) for i in range(2)]
    for t in threads: t.start()
    for t in threads: t.join()
    check("two requests of one X-Request-Id", [x[0] for x in both] == [200, 200] and json.loads(both[0][2])["id"] != json.loads(both[1][2])["id"])


def group_keys(s):
    keyed = Server("--api-key", "alpha", "beta", model=s.model)
    for value in (None, "", "Bearer", "Bearer ", "Basic alpha", "bearer", "Bearer alph", "Bearer alphaa", "Bearer  alpha x", "Bearer " + "k" * 10240, "alpha", "Bearer alpha,beta", "Bearer ALPHA", "Token alpha"):
        for path in ("/v1/models", "/version", "/tokenizer_info", "/version") if value is None else ("/v1/models",):
            status, fields, text = keyed.request("GET", path, None, {} if value is None else {"Authorization": value})
            check(f"key {str(value)[:20]!r} {path}", status == 401 and "www-authenticate" in fields and error_of(text)[0]["type"] == "authentication_error", (status, text[:100]))
    for path in ("/v1/models?api_key=alpha", "/v1/models?key=alpha"): body_case(keyed, path, None, 401, method="GET")
    for path in (COMPLETIONS, CHAT, "/tokenize", "/detokenize", "/generate", "/apply-template", "/no/such/route"): body_case(keyed, path, {"prompt": "a"}, (401, 404) if "such" in path else 401)
    raw_case(keyed, "two Authorizations", get(b"/v1/models", b"Authorization: Bearer alpha", b"Authorization: Bearer x"), (400, 401))
    raw_case(keyed, "target and Host do not open a door", get(b"/health/../v1/models", b"Connection: close"), (400, 401, 404))
    for path in ("/health", "/ping", "/"): check("open " + path, keyed.request("GET", path)[0] == 200)
    check("preflight without a key", keyed.request("OPTIONS", "/v1/models", None, {"Origin": "http://localhost:1", "Access-Control-Request-Method": "GET"})[0] in (200, 204))
    for header in ({"Authorization": "Bearer alpha"}, {"Authorization": "bearer beta"}, {"x-api-key": "beta"}): check("good key", keyed.request("GET", "/v1/models", None, header)[0] == 200, header)
    check("keyed server ends", keyed.stop() == 0)


# ---- clients that go away or stall

def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def group_gone(s):
    long = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True}
    whole = request_bytes(COMPLETIONS, long)
    for name, data in (("nothing", b""), ("half a head", whole[:40]), ("half a body", whole[:-5]), ("a request", whole), ("a stream", request_bytes(COMPLETIONS, {**long, "stream": True})), ("many", request_bytes(COMPLETIONS, {**long, "n": 16}))):
        for end in (socket.socket.close, reset):
            c = s.connect()
            c.sendall(data)
            time.sleep(0.05)
            end(c)
            check(f"gone after {name}, {end.__name__}", s.wait_idle(1 * SLOW) is not None, s.busy())
    c = s.connect()
    c.sendall(request_bytes(COMPLETIONS, {**long, "stream": True}))
    c.recv(100)
    reset(c)
    check("reset within a stream", s.wait_idle(1 * SLOW) is not None, s.busy())
    filler = [s.connect() for _ in range(64)] # several times as many as may run: the queue is seen once, not read again when it may be empty
    for c in filler: c.sendall(whole)
    check("some wait", eventually(lambda: s.metric("num_requests_waiting") > 0, 5 * SLOW))
    for c in filler: reset(c)
    check("gone in the queue", s.wait_idle(1 * SLOW) is not None, s.busy())
    for _ in range(2000): s.connect().close()
    check("2000 connections opened and closed", eventually(lambda: s.metric("connections") < 50, 3 * SLOW), s.metric("connections"))


def stall_head(s):
    """A head a byte a second: 408 and the end at ten seconds, for all of many."""
    clients, start = [s.connect() for _ in range(50)], time.time()
    text = get(b"/health", *[b"A: b"] * 20)
    ended, answers = {}, {}
    for c in clients: c.setblocking(False)
    for i in range(16):
        for k, c in enumerate(clients):
            if k in ended: continue
            try: c.send(text[i:i + 1])
            except OSError: pass
            try:
                data = c.recv(4096)
                if data: answers[k] = data
                ended.setdefault(k, time.time() - start)
            except BlockingIOError: pass
            except OSError: ended.setdefault(k, time.time() - start)
        if len(ended) == len(clients): break
        time.sleep(1)
    for c in clients: c.close()
    check("slow heads end in time", len(ended) == 50 and 8 < min(ended.values()) and max(ended.values()) < 14 * SLOW, (len(ended), list(ended.values())[:3]))
    check("slow heads are told 408", all(x.startswith(b"HTTP/1.1 408") for x in answers.values()) and len(answers) > 40, list(answers.values())[:2])


def stall_body(s):
    c, start = s.connect(timeout=60), time.time()
    c.sendall(post(b"", b"Content-Length: 500"))
    got = b""
    while time.time() - start < 45 * SLOW and not got:
        try: c.sendall(b" ")
        except OSError: break
        c.settimeout(1)
        try: got = c.recv(4096)
        except socket.timeout: pass
        except OSError: break
    check("a body that drips ends in time", got.startswith(b"HTTP/1.1 408") and time.time() - start < 40 * SLOW, (got[:60], time.time() - start))


def stall_reader(s):
    """A client that never reads its stream: its output is bounded and its request ends."""
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.connect((HOST, s.port))
    before = s.resident()
    c.sendall(request_bytes(COMPLETIONS, {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True, "logprobs": 20, "n": 16}))
    start = time.time()
    grown = 0
    while time.time() - start < 70 * SLOW and s.metric("connections") > 1.5:
        grown = max(grown, s.resident() - before)
        time.sleep(0.5)
    check("a reader that stalls is dropped", s.metric("connections") < 2, s.metric("connections"))
    check("a reader that stalls costs little memory", SANITIZED or grown < 64 << 20, grown)
    c.close()


def read_all(c, seconds, last=None):
    """What comes until it ends, or has `last` at its end, or nothing has come for so long."""
    got = bytearray()
    c.settimeout(seconds)
    try:
        while part := c.recv(1 << 20):
            got += part
            if last and got.endswith(last): break
    except (socket.timeout, ConnectionError): pass
    return bytes(got)


def group_readers(s):
    """Clients that read late, in one go, or never; who asks before reading; who closes his side and waits."""
    page = get(b"/page.js")
    size = len(s.request("GET", "/page.js")[2])
    for body in ({"prompt": "Once", "n": 4, "logprobs": 20, "max_tokens": 1900}, {"prompt": "Once", "n": 16, "max_tokens": 1900}): # several MiB, and none is read before all is made
        c = s.connect()
        c.sendall(request_bytes(COMPLETIONS, {**body, "ignore_eos": True, "stream": True}))
        check("a stream that nobody reads is made to its end", s.wait_idle(30 * SLOW) is not None)
        got = read_all(c, 2 * SLOW, b"0\r\n\r\n")
        check("a stream that is read late is whole", b"data: [DONE]\n\n" in got[-40:] and got.endswith(b"0\r\n\r\n") and len(got) > 2 << 20, (len(got), got[-60:]))
        c.close()
    c = s.connect()
    c.sendall(page * 200)
    time.sleep(0.5)
    got = answers_in(read_all(c, 0.5 * SLOW))
    check("200 pipelined requests are all answered", [x[0] for x in got] == [200] * 200 and all(len(x[2]) == size for x in got), len(got))
    c.close()
    before, most = s.resident(), 0
    c, sent = s.connect(), 0
    c.setblocking(False)
    end = time.time() + 3 * SLOW
    while time.time() < end:
        try: sent += c.send(page * 1000)
        except BlockingIOError: time.sleep(0.02)
        except ConnectionResetError: break # whoever reads nothing for long is given up
        most = max(most, s.resident() - before)
    check("requests that are sent and never read cost little", SANITIZED or most < 16 << 20, (most, sent))
    check("and are not even taken", sent < 32 << 20, sent)
    reset(c)
    bodies = [{"prompt": f"{i}", "max_tokens": 3, "temperature": 0} for i in range(3)]
    alone = [s.post(COMPLETIONS, b)[1]["choices"] for b in bodies]
    got = answers_in(s.raw(b"".join(request_bytes(COMPLETIONS, b) for b in bodies), shut=True))
    check("three requests and a closed side: three answers", [x[0] for x in got if x[0] >= 200] == [200] * 3 and [json.loads(x[2])["choices"] for x in got if x[0] >= 200] == alone, got)
    got = answers_in(s.raw(get(b"/health", b"Connection: close", b"Connection: keep-alive") + get()))
    check("of two Connection fields close wins", len(got) == 1 and got[0][1].get("connection") == "close", got)


def group_doors(s):
    """Who may ask is decided by the head of a request, before its body: key, page, Host."""
    body = {"prompt": "a", "max_tokens": 1}
    for headers, want in (({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Origin": "http://localhost.evil.example", "Sec-Fetch-Site": "cross-site"}, 403), ({"Origin": "http://127.0.0.1:1"}, 200),
                          ({"Origin": f"http://localhost:{s.port}", "Sec-Fetch-Site": "same-origin"}, 200), ({"Sec-Fetch-Site": "same-origin"}, 200), ({"Sec-Fetch-Site": "none"}, 200), ({"Origin": "https://chat.example", "Sec-Fetch-Site": "same-origin"}, 200)):
        for path in (COMPLETIONS, CHAT, "/tokenize", "/v1/contexts/save", "/v1/load_lora_adapter"):
            status, fields, text = s.request("POST", path, {**body, "messages": USER} if path == CHAT else body, headers)
            check(f"{headers} {path}", status == want or (want == 200 and status == 403 and b"started without" in text), (status, text[:200]))
            if want == 403: check(f"{headers} may not read either", "access-control-allow-origin" not in fields and error_of(text)[1] is None, (fields, text))
    check("a foreign page's GET does nothing and is answered, unreadable", "access-control-allow-origin" not in s.request("GET", "/v1/models", None, {"Origin": "http://evil.example"})[1])
    for kind in (b"", b"Content-Type: text/plain\r\n", b"Content-Type: application/x-www-form-urlencoded\r\n", b"Content-Type: multipart/form-data; boundary=x\r\n"): # what a page may send without being asked (CORS)
        data = json.dumps(body).encode()
        got = answers_in(s.raw(b"POST /v1/completions HTTP/1.1\r\n" + HOST_LINE + kind + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data))
        check(f"a body of type {kind}", [x[0] for x in got] == [415], got)
    keyed = Server("--api-key", "alpha", model=s.model)
    before, most, crowd = keyed.resident(), 0, []
    for _ in range(60):
        c = keyed.connect(timeout=10)
        crowd.append(c)
        try: c.sendall(post(b"{" + b" " * (1 << 20), b"Content-Length: 33554432"))
        except OSError: pass # answered and closed
        most = max(most, keyed.resident() - before)
    check("bodies without a key are not taken", SANITIZED or most < 16 << 20, most)
    first = answers_in(read_all(crowd[0], 2))
    check("who has no key is told at once", [x[0] for x in first] == [401] and first[0][1].get("connection") == "close", first)
    for c in crowd: c.close()
    got = answers_in(keyed.raw(post(b"{}", b"Content-Length: 2") + get(b"/health", b"Connection: close")))
    check("after a small body that is refused the connection goes on", [x[0] for x in got] == [401, 200], got)
    got = answers_in(keyed.raw(post(b"", b"Expect: 100-continue", b"Content-Length: 100"), timeout=3))
    check("no 100 Continue without a key", [x[0] for x in got] == [401], got)
    check("keyed server ends", keyed.stop() == 0)
    for flags, host, want in (((), "evil.example", 200), (("--allowed-hosts", "chat.example"), "evil.example", 403), (("--allowed-hosts", "chat.example"), "chat.example:1", 200), (("--allowed-hosts", "chat.example"), "10.0.0.7:8000", 200), (("--allowed-hosts", "chat.example"), "localhost", 200)):
        wide = Server("--host", "0.0.0.0", "--log-level", "info", *flags, model=s.model)
        check(f"0.0.0.0 {flags}, Host {host}", wide.request("POST", COMPLETIONS, body, {"Host": host})[0] == want) # rebinding: the browser's name for us
        check("a start line says who is kept out", "--api-key" in wide.errors() and ("--allowed-hosts" in wide.errors()) == (not flags), wide.errors())
        check("a page of our own name may ask", wide.request("POST", COMPLETIONS, body, {"Host": "chat.example", "Origin": "http://chat.example"})[0] == 200)
        check("and none of another", wide.request("POST", COMPLETIONS, body, {"Host": "chat.example", "Origin": "http://evil.example"})[0] == 403)
        wide.stop()


def group_budget(s):
    """Large bodies from many: who is slowest makes room, small ones are served beside them, and what was held comes back."""
    own = Server(model=s.model)
    own.post(COMPLETIONS, CANARY)
    before, most, crowd = own.resident(), 0, []
    for i in range(12):
        c = own.connect(timeout=20)
        crowd.append(c)
        try: c.sendall(post(b'{"metadata": "', b"Content-Length: 33000000") + b" " * (30 << 20))
        except OSError: pass
        most = max(most, own.resident() - before)
    check("bodies of all clients together are bounded", SANITIZED or most < 200 << 20, most)
    check("a small request beside them is served", own.post(COMPLETIONS, CANARY)[0] == 200)
    time.sleep(0.3)
    told = [answers_in(read_all(c, 0.3)) for c in crowd]
    check("who had to make room is told 503", [x[0][0] for x in told if x] and all(x[0][0] == 503 for x in told if x), told)
    check("and others were let go on", any(not x for x in told), told)
    for c in crowd: c.close()
    check("what was held comes back", eventually(lambda: SANITIZED or own.resident() - before < 32 << 20, 5 * SLOW), own.resident() - before)
    check("its server ends", own.stop() == 0)


def group_heads(s):
    """Heads that are almost whole, from many, without a key; bodies that are small and take much when they are read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, 4096)
    if soft < most: resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    own = Server("--api-key", "alpha", model=s.model)
    before, grown, crowd = own.resident(), 0, []
    head = get(b"/health", *[b"A%02d: " % i + b"b" * 1000 for i in range(30)])[:-2]
    for i in range(min(2000, most - 100)):
        c = own.connect(timeout=5)
        crowd.append(c)
        try: c.sendall(head)
        except OSError: pass
        if i % 100 == 0: grown = max(grown, own.resident() - before)
    grown = max(grown, own.resident() - before)
    check("half heads of many take little", SANITIZED or grown < 48 << 20, grown)
    start = time.time()
    check("a whole head beside them is served", own.request("GET", "/health")[0] == 200 and time.time() - start < 0.1 * SLOW, time.time() - start)
    told = answers_in(read_all(crowd[0], 0.5))
    check("who took longest is told 503", [x[0] for x in told] == [503] and error_of(told[0][2])[1] is None, told)
    crowd[-1].sendall(b"\r\n")
    check("the latest goes on", crowd[-1].recv(4096).startswith(b"HTTP/1.1 200"))
    for c in crowd: c.close()
    check("and what they took comes back", eventually(lambda: SANITIZED or own.resident() - before < 16 << 20, 8 * SLOW), own.resident() - before)
    check("its server ends", own.stop() == 0)
    own = Server("--max-num-seqs", "1", model=s.model)  # so that none has its answer before the last has come
    own.post(COMPLETIONS, CANARY)
    before, grown, crowd = own.resident(), 0, []
    body = b'{"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true, "n": 16, "x": [' + b"0," * 1500000 + b"0]}"
    for i in range(32):
        c = own.connect(timeout=60 * SLOW)
        crowd.append(c)
        c.sendall(request_bytes(COMPLETIONS, body))
        for _ in range(5):
            grown = max(grown, own.resident() - before)
            time.sleep(0.02)
    check("bodies that grow when they are read are bounded", SANITIZED or grown < 420 << 20, grown)
    status = [c.recv(12)[9:] for c in crowd]
    check("some go on, others are told 503", set(status) == {b"200", b"503"} and status[0] == b"200", status)
    for c in crowd: reset(c)
    check("and what they took comes back", eventually(lambda: SANITIZED or own.resident() - before < 32 << 20, 8 * SLOW), own.resident() - before)
    got, ids = [], b'{"tokens": [' + b"5," * 1500000 + b"5]}"
    threads = [threading.Thread(target=lambda: got.append(own.request("POST", "/detokenize", ids)[0])) for _ in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    check("what was done is not thrown away for the room it takes", got == [200] * 4, got)
    check("its server ends", own.stop() == 0)


def group_queue(s):
    """Requests of many answers that wait: what they take is bounded, who comes too late is told 429, and others go on when they have left."""
    own = Server(model=s.model)
    own.post(COMPLETIONS, CANARY)
    before, grown, crowd = own.resident(), 0, []
    body = {"prompt": list("abcdefghijklmnop"), "n": 128, "max_tokens": 1900, "ignore_eos": True, "stream": True}
    for _ in range(24):
        crowd.append(own.connect())
        crowd[-1].sendall(request_bytes(COMPLETIONS, body))
    end = time.time() + 6 * SLOW
    while time.time() < end:
        grown = max(grown, own.resident() - before)
        time.sleep(0.05)
    check("answers that wait take a bounded part of memory", SANITIZED or grown < 400 << 20, grown)
    status, text = None, b""
    while status is None and len(crowd) < 40: # places come free as answers end: who finds one is replaced by another of the crowd
        try: status, _, text = own.request("POST", COMPLETIONS, {**body, "stream": False}, timeout=2 * SLOW)
        except TimeoutError:
            crowd.append(own.connect())
            crowd[-1].sendall(request_bytes(COMPLETIONS, body))
    check("who comes too late is told 429", status == 429 and b"queue is full" in text, (status, text[:300]))
    for c in crowd: reset(c)
    check("then others go on", own.wait_idle(10 * SLOW) is not None and own.post(COMPLETIONS, CANARY)[0] == 200, own.busy())
    check("and what they took comes back", eventually(lambda: SANITIZED or own.resident() - before < 32 << 20, 8 * SLOW), own.resident() - before)
    check("its server ends", own.stop() == 0)


def group_answers(s):
    """Whole answers that are large and that nobody reads: bounded each and together. Beams and scores of prompts; the writing of an answer ends with --timeout."""
    own = Server(model=s.model)
    own.post(COMPLETIONS, CANARY)
    wide = max(range(2900, 3000), key=lambda i: len(own.post("/detokenize", {"tokens": [i]})[1]["prompt"]))
    each = 2 * len(json.dumps(own.post("/detokenize", {"tokens": [wide]})[1]["prompt"])) - 4
    before, grown, crowd = own.resident(), 0, []
    ids = lambda size: b'{"tokens": [' + b"%d," % wide * (size // each) + b"5]}"
    status, a = own.post("/detokenize", ids(100 << 20))
    check("an answer of more than 64 MiB is refused", status == 400 and "larger than 67108864 bytes" in a["error"]["message"], a)
    enough = threading.Event()

    def sip():  # just enough not to be dropped for reading nothing
        while not enough.wait(0.2):
            for c, _ in crowd: c.recv(64 << 10)
    sips = threading.Thread(target=sip, daemon=True)
    sips.start()
    for _ in range(3):
        c = own.connect(timeout=60 * SLOW)
        c.sendall(request_bytes("/detokenize", ids(58 << 20)))
        crowd.append((c, c.recv(12)))
        grown = max(grown, own.resident() - before)
    check("large answers are given while there is room", [x[1] for x in crowd] == [b"HTTP/1.1 200"] * 3, [x[1] for x in crowd])
    status, a = own.post("/detokenize", ids(300 << 10))
    check("another large one is told 503", status == 503 and "as many answers" in a["error"]["message"], (status, a))
    check("what they take is bounded", SANITIZED or grown < 340 << 20, grown)
    check("small ones and streams are served beside them", own.post(COMPLETIONS, CANARY)[0] == 200 and b"[DONE]" in own.request("POST", COMPLETIONS, {**CANARY, "stream": True})[2])
    enough.set()
    sips.join()
    check("who does not read makes room", eventually(lambda: own.request("POST", "/detokenize", ids(300 << 10))[0] == 200, 20 * SLOW, 0.5))
    for c, _ in crowd: c.close()
    crowd, grown = [], 0
    for i in range(4):
        crowd.append(own.connect(timeout=60 * SLOW))
        body = {"prompt": [5 + i] * 1900, "prompt_logprobs": 20, "max_tokens": 1, "echo": True, "logprobs": 20} if i % 2 else {"prompt": "a", "use_beam_search": True, "n": 32, "max_tokens": 8, "logprobs": 20}
        crowd[-1].sendall(request_bytes(COMPLETIONS, body))
    got = []
    for c in crowd:
        got.append(c.recv(12))
        grown = max(grown, own.resident() - before)
    check("beams and scored prompts take a bounded part of memory", set(got) == {b"HTTP/1.1 200"} and (SANITIZED or grown < 160 << 20), (got, grown))
    for c in crowd: reset(c)
    check("and what they took comes back", own.wait_idle(10 * SLOW) is not None and eventually(lambda: SANITIZED or own.resident() - before < 32 << 20, 8 * SLOW), own.resident() - before)
    check("its server ends", own.stop() == 0)
    own = Server("--timeout", "1", model=s.model)
    start = time.time()
    status, fields, text = own.request("POST", COMPLETIONS, {"prompt": ["a"] * 32, "n": 16, "max_tokens": 1900, "ignore_eos": True, "logprobs": 5})
    took, a = time.time() - start, json.loads(text)
    check("--timeout ends an answer that is being written", took < 2.25 + 3 * SLOW and (status == 200 and len(a["choices"]) == 512 or status == 503 and "--timeout" in a["error"]["message"]), (took, status, text[:200]))
    check("and nothing runs then", own.wait_idle(2 * SLOW) is not None and own.post(COMPLETIONS, CANARY)[0] == 200 and own.stop() == 0)
    print(f"answered {status} after {took:.2f} s", flush=True)


def health_beside(s, path, data):
    """Posts `data` and asks for /health until it is answered: (answer, the longest that took in seconds, how often)."""
    got, slowest, n = [], 0, 0
    c = s.connect(timeout=120)
    t = threading.Thread(target=lambda: (c.sendall(request_bytes(path, data, b"Connection: close\r\n")), got.append(read_all(c, 100 * SLOW))))
    t.start()
    with s.connect() as probe:
        while t.is_alive():
            start = time.time()
            probe.sendall(get())
            answer = probe.recv(4096)
            slowest, n = max(slowest, time.time() - start), n + 1
            if not answer.startswith(b"HTTP/1.1 200"): slowest = 1e9
            time.sleep(0.005)
    return got[0] if got else b"", slowest, n


def group_long(s):
    """One body that takes long to read, or whose answer takes long to write: /health goes on beside it, as do small requests."""
    items = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}] * 380000
    forms = {"prompt": "a", "guided_json": {"enum": ["x" * 40 + str(i) for i in range(200000)]}}
    for name, path, body, want in (("items", "/v1/responses", {"input": items}, 400), ("a form", COMPLETIONS, forms, (200, 400)), ("answers", COMPLETIONS, {"prompt": ["a"] * 256, "n": 128, "max_tokens": 4, "stream": True}, 400),
                                   ("many answers", COMPLETIONS, {"prompt": ["a"] * 256, "n": 8, "max_tokens": 8, "stream": True}, 200), ("many answers at once", COMPLETIONS, {"prompt": ["a"] * 32, "n": 16, "max_tokens": 64, "logprobs": 20}, 200),
                                   ("metadata", "/v1/responses", {"input": "a", "max_output_tokens": 1, "metadata": {"a": "x" * (30 << 20)}, "stream": True}, (200, 400))):
        data = json.dumps(body).encode()
        for _ in range(3): # what holds the server up does so every time, what holds up the machine does not
            got, slowest, n = health_beside(s, path, data)
            if slowest < 0.1 * SLOW: break
        status = int(got.split()[1]) if got else None
        check(f"{name}: answered", status in (want if isinstance(want, tuple) else (want,)), (status, got[:200]))
        check(f"{name}: /health within 100 ms", slowest < 0.1 * SLOW, (slowest, n))
        print(f"{name}: {len(data) >> 10} KiB, /health within {slowest * 1000:.0f} ms of {n}", flush=True)


def group_files(s):
    """Few descriptors: who has said nothing for longest makes room for who says something."""
    few = Server(model=s.model, files=256)
    idle = []
    for i in range(300):
        c = few.connect(timeout=5)
        c.sendall(get())
        if c.recv(4096).startswith(b"HTTP/1.1 200"): idle.append(c)
    check("every new client is served", len(idle) == 300, len(idle))
    time.sleep(0.2)
    gone = []
    for c in idle:
        c.setblocking(False)
        try: gone.append(c.recv(1) == b"")
        except BlockingIOError: gone.append(False)
        except OSError: gone.append(True)
    check("the oldest made room", gone[0] and not gone[-1] and gone == sorted(gone, reverse=True) and sum(gone) >= 44, sum(gone))
    slow = [few.connect() for _ in range(400)] # heads that never end
    for c in slow:
        try: c.sendall(b"GET /hea")
        except OSError: pass
    time.sleep(6)
    check("slow heads do not keep others out", few.request("GET", "/health")[0] == 200)
    for c in idle + slow: c.close()
    check("its server ends", few.stop() == 0)


def group_cut(s):
    """A model's file that is cut while it is used: whoever asks then is told so, and the server stays; with --no-mmap nobody sees it. What a step
    reads of the file (rows of the embedding) is cut off only while none runs: a page that goes in the middle of one ends the process."""
    copy = "build/models/cut.gguf"
    shutil.copy(s.model, copy)
    own = Server(model=copy)
    before = canary(own)
    with own.connect() as running:
        running.sendall(request_bytes(COMPLETIONS, {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True, "n": 16}))
        running.recv(100)
        os.truncate(copy, os.path.getsize(copy) - 10)
        data = read_all(running, 20 * SLOW, b"0\r\n\r\n")
    check("a cut model ends a stream with its reason, or the stream was over", b"was cut short" in data and data.count(b'{"error"') == 1 or b'"length"' in data, data[-300:])
    os.truncate(copy, 1000)
    for body in ({"prompt": "And what now?", "max_tokens": 3}, {"prompt": [5, 6, 7], "max_tokens": 3, "echo": True, "prompt_logprobs": 1}, {"prompt": "a", "max_tokens": 9, "guided_json": {"type": "object"}}):
        body_case(own, COMPLETIONS, body, 500, says="was cut short while it was used")
    body_case(own, "/v1/embeddings", {"input": "a"}, 500, says="--no-mmap")
    for method, path, body in (("POST", "/tokenize", {"prompt": "a b", "return_token_strs": True}), ("POST", "/detokenize", {"tokens": list(range(200))}), ("GET", "/tokenizer_info", None), ("GET", "/v1/models", None), ("GET", "/metrics", None)):
        check(f"what needs none of it goes on: {path}", own.request(method, path, body)[0] == 200)
    shutil.copy(s.model, copy)
    check("a file that is whole again serves again", canary(own) == before)
    os.rename(copy, copy + ".old")
    shutil.copy(s.model, copy)
    os.truncate(copy, 0)
    check("another file of its name is another file", canary(own) == before and own.stop() == 0)
    os.remove(copy + ".old")
    shutil.copy(s.model, copy)
    own = Server("--no-mmap", model=copy)
    before = canary(own)
    os.truncate(copy, 1000)
    check("with --no-mmap a model may be cut", canary(own) == before and own.post(COMPLETIONS, {"prompt": "And what now, if nothing of it is cached?", "max_tokens": 30})[0] == 200 and own.stop() == 0)
    os.remove(copy)


def group_stalls(model):
    """On servers of their own: they take half a minute of waiting."""
    def alone(stall):
        s = Server(model=model)
        stall(s)
        check("nothing runs after " + stall.__name__, s.wait_idle(2 * SLOW) is not None)
        check("its server ends", s.stop() == 0)
    threads = [threading.Thread(target=alone, args=(f,)) for f in (stall_head, stall_body, stall_reader)]
    for t in threads: t.start()
    for t in threads: t.join()


GROUPS = {"framing": group_framing, "json": group_json, "parameters": group_parameters, "ollama": group_ollama, "anthropic": group_anthropic, "forms": group_forms, "crowd": group_crowd, "content": group_content, "keys": group_keys, "gone": group_gone, "readers": group_readers, "doors": group_doors, "budget": group_budget, "heads": group_heads, "queue": group_queue, "answers": group_answers, "long": group_long, "files": group_files, "cut": group_cut}


def main():
    model = tiny_model()
    wanted = sys.argv[1:] or [*GROUPS, "stalls"]
    beside = threading.Thread(target=group_stalls, args=(model,))
    if "stalls" in wanted: beside.start()
    s = Server(model=model)
    s.model = model
    for _ in range(3): first = canary(s)
    for i in range(24): s.post(COMPLETIONS, {"prompt": f"warm {i} " * 300, "max_tokens": 2, "n": 4})
    s.request("POST", "/tokenize", {"prompt": "a" * (4 << 20)})
    blocks, descriptors, memory = s.metric("kv_cache_usage_perc"), s.descriptors(), s.resident()
    ended, wrong = threading.Event(), []

    def watch():  # a neighbour: nothing that others send may change its answer
        while not ended.wait(0.05 * SLOW):
            try:
                got = canary(s)
                if got != first: wrong.append(got)
            except OSError as error: wrong.append(error)

    for name in wanted:
        if name == "stalls": continue
        start = time.time()
        ended.clear()
        neighbour = threading.Thread(target=watch, daemon=True)
        if name != "gone": neighbour.start()  # there it would keep the server from being idle
        GROUPS[name](s)
        ended.set()
        if name != "gone": neighbour.join()
        check(f"{name}: neighbour undisturbed", not wrong, wrong[:1])
        check(f"{name}: canary", canary(s) == first)
        check(f"{name}: healthy", s.alive() and s.request("GET", "/health")[0] == 200)
        check(f"{name}: pages back", eventually(lambda: s.metric("kv_cache_usage_perc") == blocks, 2 * SLOW), s.metric("kv_cache_usage_perc"))
        check(f"{name}: descriptors back", eventually(lambda: s.descriptors() <= descriptors, 3 * SLOW), (descriptors, s.descriptors()))
        check(f"{name}: memory back", SANITIZED or eventually(lambda: s.resident() - memory < 32 << 20, 3 * SLOW), (memory, s.resident()))
        print(f"{name}: {time.time() - start:.1f} s", flush=True)
    if "stalls" in wanted: beside.join()
    check("SIGTERM", s.stop() == 0)
    check("nothing said by a sanitizer", not re.search(r"Sanitizer|runtime error", s.errors()), s.errors()[-3000:])
    finish()


if __name__ == "__main__": main()
