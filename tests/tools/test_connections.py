#!/usr/bin/env python3
"""Does the test of connections (tests/unit/serve/test_connections.c) find what it is there for? Defects are planted into copies of llm_serve.c, one
by one: with each the test has to fail, and to say what is wrong. Needs build/dev/libllm.a (make dev). Prints "N passed, N failed, N skipped".

    test_connections.py [NAME... | --third]      --third: every third defect, the first among them
"""
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys

STEPS = "1000000"
LATE = ("a call is brought back to nobody", "bodies are not given back", "news that come while a worker writes are lost") # found after so many steps that an optimised program pays
TEST = "tests/unit/serve/test_connections.c"
OUT = pathlib.Path("build/planted")
# name: ([(what stands there, what is put in its place)], what the test may say)
DEFECTS = {
    "a stream hangs when its output empties at once": (
        [("        moved |= conn_send(c);", "        (void)conn_send(c);")], "nobody will come back|never answered"),
    "pipelined requests stall when a turn is over": (
        [("    conn_wait(c, moved);", "    conn_wait(c, 0);")], "nobody will come back|never answered"),
    "requests are answered while nobody reads": (
        [("(c->state != CONN_BUSY && conn_has_room(c) && conn_ahead(c) < CONN_MAX_AHEAD)", "(c->state != CONN_BUSY)"),
         ("if (was == CONN_BUSY || (was != CONN_LINGER && !conn_has_room(c))) return 0;", "if (was == CONN_BUSY) return 0;")],
        "input is wanted|output is not bounded|input is not bounded|not bounded"),
    "a half-closed client gets one answer of three": (
        [("c->state = c->close_after || net.draining ?", "c->state = c->close_after || c->leaving || net.draining ?")], "closed with a request unanswered"),
    "news that come while a worker writes are lost": ([("        if (busy) continue;\n", "        if (busy) {\n            k->news = 0;\n            continue;\n        }\n")], "news of the engine were lost|never answered"),
    "a call is brought back to nobody": ([("    if (!k->on_list) {\n        k->on_list = 1;", "    if (!k->on_list && !(back && k->conn == NULL)) {\n        k->on_list = 1;")], "."),
    "output waits and nobody watches for room": ([("if (more || conn_unsent(c)) want |= EPOLLOUT;", "if (more) want |= EPOLLOUT;")], "its room is not watched"),
    "a refused body is taken for the next request": ([("        c->state = CONN_SKIP;\n", "        c->state = CONN_IDLE;\n")], "wrong status|too many|begins with"),
    "a stream goes on with a hole in it": ([("    if (c->head.minor == 1) llm_text_str(&c->out, \"\\r\\n\");\n    c->dead |= c->out.failed;", "    if (c->head.minor == 1) llm_text_str(&c->out, \"\\r\\n\");\n    c->out.failed = 0;")], "wrong answer|malformed|cut|begins with"),
    "a whole answer is cut where memory is out": ([("    if (!body->failed && !c->out.failed) {\n", "    c->out.failed = 0;\n    if (!body->failed) {\n")], "wrong answer|malformed|begins with|wrong status|cut|never answered"),
    "bodies are not given back": ([("    net.bodies[k->large] -= k->held;\n", "")], "!net.bodies"),
    "epoll watches what is closed": ([("    epoll_ctl(net.epoll, EPOLL_CTL_DEL, c->fd, NULL);", "    ")], "closed while epoll watches"),
    "an idle connection has no end": ([("c->deadline = c->state == CONN_LINGER ? 0 : net.now + CONN_IDLE_S;", "c->deadline = 0;"),
                                       ("    if (!conn_unsent(c) && c->state == CONN_IDLE) c->deadline = net.now + CONN_IDLE_S;\n", "")], "no clock ends"),
    "a model is unloaded under its calls": ([("        const int calls = m->calls + (m->state == MODEL_LOADED ? m->waiting : 0);", "        const int calls = 0;")], "under a call|not loaded|not there"),
    "who waits for a model is not told that it is there": ([("    if (done) model_done(done), waiting_turn();", "    if (done) model_done(done);")], "never answered|never comes to rest"),
    "who leaves is waited for": ([("        k->model->waiting -= k->waits;\n        pthread_mutex_unlock(&models.mutex);\n    }\n    pthread_mutex_lock(&queue.mutex);", "        pthread_mutex_unlock(&models.mutex);\n    }\n    pthread_mutex_lock(&queue.mutex);")], "miscounted"),
    "of two Connection fields the last wins": ([("h->keep_alive = !h->closes && (h->keep_alive || http_list_has(v, \"keep-alive\"));", "h->keep_alive = http_list_has(v, \"keep-alive\");")], "must close"),
}


def run(name, edits, steps=STEPS):
    """(exit code, what it said) of the test with an edited llm_serve.c; what could not be made is an error."""
    text = pathlib.Path("llm_serve.c").read_text()
    for old, new in edits:
        if text.count(old) != 1: return None, f"{text.count(old)} times in llm_serve.c: {old}"
        text = text.replace(old, new)
    stem = re.sub(r"\W+", "_", name)
    source, program = OUT / (stem + ".c"), OUT / stem
    source.write_text(text)
    cc = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-std=c11", "-O1" if name in LATE else "-O0", "-w", "-D_GNU_SOURCE=", "-Isrc", "-I.", "-include", "tests/unit/memory.h", f'-DSERVE_SOURCE="{source.resolve()}"']
    objects = ["build/dev/tests/unit/harness.o", "build/dev/tests/unit/main.o", "build/dev/libllm.a"]
    p = subprocess.run([*cc, *flags, TEST, *objects, "-o", str(program), "-lm", "-lpthread"], capture_output=True, text=True)
    if p.returncode: return None, p.stderr
    try: p = subprocess.run([program, "connections", "--", steps, "1"], capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired: return 124, "it does not end"
    return p.returncode, p.stdout + p.stderr


def found(name):
    edits, says = DEFECTS[name]
    code, text = run(name, edits)
    if code is None: return name, False, text
    return name, code != 0 and re.search(says, text) is not None, text


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    names, passed, failed = list(DEFECTS)[::3] if sys.argv[1:] == ["--third"] else sys.argv[1:] or list(DEFECTS), 0, 0
    jobs = int(os.environ.get("JOBS") or os.cpu_count() or 2)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, ok, text in pool.map(found, names):
            passed, failed = passed + ok, failed + (not ok)
            said = [x.strip() for x in text.splitlines() if x.startswith("    ")]
            if not ok: print(f"FAILED: {name}: {text[-600:]}")
            elif said: print(f"{name}: {said[0]}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__": main()
