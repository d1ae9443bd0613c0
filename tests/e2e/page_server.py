"""The chat page with a server that says what a test wants, when it wants it. Standard library only.

    with PageServer() as s:                    # serves src/page as llm_serve does, with the same headers
        s.answer = lambda body: words("Hello") # for each question: what words(), events() or refusal() give
        s.url, s.asked                         # where; the bodies of all questions so far
"""
import contextlib
import http.server
import json
import pathlib
import re
import socket
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
import amalgamate

CSP = "".join(re.findall(r'"([^"]*)"', re.search(r'"Content-Security-Policy: .*?\\r\\n"', (ROOT / "llm_serve.c").read_text(), re.S)[0]))
CSP = CSP.replace("Content-Security-Policy: ", "").split("\\r\\n")[0]
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
MODEL = {"id": "models/small.gguf", "object": "model", "max_model_len": 1000,
         "default_sampling_params": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1}}


def chunk(delta, end=None, usage=None):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": end}], **({"usage": usage} if usage else {})}


def words(text, think="", end="stop", prompt=10, size=9, wait=None, after=0):
    """Events of an answer. wait: a threading.Event that has to come after so many pieces."""
    pieces = [{"reasoning_content": think[i:i + size]} for i in range(0, len(think), size)] + [{"content": text[i:i + size]} for i in range(0, len(text), size)]
    yield chunk({"role": "assistant", "content": ""})
    for i, piece in enumerate(pieces):
        if wait and i == after: wait.wait(30)
        yield chunk(piece, usage={"prompt_tokens": prompt, "completion_tokens": i + 1, "total_tokens": prompt + i + 1})
    yield chunk({}, end, {"prompt_tokens": prompt, "completion_tokens": len(pieces), "total_tokens": prompt + len(pieces)})


def refusal(status, message, code=None):
    return status, {"error": {"message": message, "type": "error", "param": None, "code": code}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_): pass

    def send(self, status, kind, body):
        with contextlib.suppress(OSError):  # the page has gone away
            self.say(status, kind, body)

    def say(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind + "; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", CSP)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        s, kind = self.server.page_server, {"/": "html", "/page.css": "css", "/page.js": "js"}.get(self.path)
        s.fetched.append(self.path)
        if kind: self.send(200, TYPES[kind], s.page[kind].encode())
        elif self.path == "/v1/models":
            status, body = s.models if isinstance(s.models, tuple) else (200, {"object": "list", "data": s.models})
            if s.key and self.headers.get("Authorization") != "Bearer " + s.key: status, body = refusal(401, "Unauthorized")
            self.send(status, "application/json", json.dumps(body).encode())
        else: self.send(404, "application/json", b"{}")

    def do_POST(self):
        s, body = self.server.page_server, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        s.asked.append(body)
        answer = refusal(401, "Unauthorized") if s.key and self.headers.get("Authorization") != "Bearer " + s.key else s.answer(body)
        if isinstance(answer, tuple): return self.send(answer[0], "application/json", json.dumps(answer[1]).encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in answer:
                if event is None: return self.lose()
                self.piece("data: " + json.dumps(event, ensure_ascii=False) + "\n\n")
            self.piece("data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            s.gone.append(body)  # the page has gone away

    def lose(self):
        time.sleep(0.3)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def piece(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


class PageServer:
    def __init__(self):
        self.page = amalgamate.page()
        self.models, self.key = [MODEL], ""
        self.answer = lambda body: words("Fine.")
        self.asked, self.gone, self.fetched = [], [], []

    def __enter__(self):
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads, self.http.page_server = True, self
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/"
        return self

    def __exit__(self, *_): self.http.shutdown()
