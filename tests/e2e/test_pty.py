#!/usr/bin/env python3
"""Tests of the interactive chat through a pseudo-terminal: editing, history, paste, interrupting an answer, commands, leaving.

usage: tests/e2e/test_pty.py     env LLM_CLI (default ./llm_cli)
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CLI = os.path.abspath(os.environ.get("LLM_CLI", os.path.join(ROOT, "llm_cli")))
sys.path.insert(0, os.path.join(ROOT, "tests", "tools"))
import checkpoints

passed = failed = 0


def check(what, ok, seen=""):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print("FAILED: %s %r" % (what, str(seen)[-500:]))
    return ok


class Screen:
    """What a terminal of this size would show: enough of the escape sequences for a line editor."""

    def __init__(self, rows, cols):
        self.rows, self.cols, self.cells, self.r, self.c = rows, cols, [[" "] * cols for _ in range(rows)], 0, 0

    def line_feed(self):
        if self.r == self.rows - 1:
            self.cells = self.cells[1:] + [[" "] * self.cols]
        else:
            self.r += 1

    def feed(self, text):
        at = 0
        while at < len(text):
            m = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])").match(text, at)
            if m:
                n = int(m.group(1)) if m.group(1).isdigit() else 1
                if m.group(2) == "A":
                    self.r = max(0, self.r - n)
                elif m.group(2) == "C":
                    self.c = min(self.cols - 1, self.c + n)
                elif m.group(2) == "H":
                    self.r = self.c = 0
                elif m.group(2) == "J":
                    first = 0 if m.group(1) == "2" else self.r
                    for r in range(first, self.rows):
                        self.cells[r][0 if r > self.r or first == 0 and m.group(1) == "2" else self.c:] = [" "] * (
                            self.cols - (0 if r > self.r or m.group(1) == "2" else self.c))
                at = m.end()
                continue
            ch = text[at]
            at += 1
            if ch == "\r":
                self.c = 0
            elif ch == "\n":
                self.line_feed()
            elif ch >= " ":
                w = 2 if ch >= "\u1100" and not "\u2000" <= ch <= "\u206f" else 0 if "\u0300" <= ch <= "\u036f" else 1
                if w == 0:
                    self.cells[self.r][max(0, self.c - 1)] += ch
                    continue
                if self.c + w > self.cols:
                    self.c = 0
                    self.line_feed()
                self.cells[self.r][self.c] = ch
                if w == 2:
                    self.cells[self.r][self.c + 1] = ""
                self.c += w

    def lines(self):
        return ["".join(r).rstrip() for r in self.cells]


class Chat:
    def __init__(self, args, state, rows=24, cols=80, env=None):
        self.log, self.screen = "", Screen(rows, cols)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            full = {k: v for k, v in os.environ.items() if not k.startswith("LLM_ARG_")}
            full.update({"TERM": "xterm", "XDG_STATE_HOME": state}, **(env or {}))
            os.execve(CLI, [CLI] + args, full)
        self.resize(rows, cols)

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def read(self, seconds):
        """Takes what comes within the time; 0: the program has ended."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return 1
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return 0
        text = data.decode(errors="replace")
        self.log += text
        self.screen.feed(text)
        return len(data)

    def wait(self, text, seconds=20, since=0):
        end = time.time() + seconds
        while text not in self.log[since:] and time.time() < end and self.read(0.1):
            pass
        return text in self.log[since:]

    def settle(self):
        """Until nothing has come for a moment."""
        size = -1
        while size != len(self.log):
            size = len(self.log)
            self.read(0.15)

    def send(self, text):
        os.write(self.fd, text.encode() if isinstance(text, str) else text)

    def prompt(self, since, seconds=30):
        """Waits for the next empty prompt."""
        end = time.time() + seconds
        while time.time() < end:
            if "\x1b[?2004h" in self.log[since:] and self.log.endswith("> \r\x1b[2C"):
                return True
            if not self.read(0.1):
                return False
        return False

    def ask(self, text, seconds=30):
        since = len(self.log)
        self.send(text)
        ok = self.prompt(since, seconds)
        self.settle()
        return self.log[since:] if ok else ""

    def hear(self, length, seconds=30):
        """Reads until so much was printed."""
        end = time.time() + seconds
        while len(self.log) < length and time.time() < end and self.read(0.1):
            pass

    def leave(self, seconds=10):
        end = time.time() + seconds
        while time.time() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            self.read(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        return None


def messages(chat, folder):
    """The conversation as /save writes it."""
    path = os.path.join(folder, "talk.json")
    if os.path.exists(path):
        os.remove(path)
    chat.ask("/save %s\r" % path)
    with open(path) as f:
        return json.load(f)["messages"]


def test_editing(args, folder):
    chat = Chat(args, folder)
    if not check("the prompt comes", chat.prompt(0), chat.log):
        chat.leave(0)
        return
    check("a banner says how to get help", "/help" in chat.log, chat.log)
    keys = {
        "typed": ("hello", "hello"),
        "backspace": ("helloo\x7f", "hello"),
        "left and insert": ("hllo\x1b[D\x1b[D\x1b[De", "hello"),
        "home and end": ("ello\x01h\x05!", "hello!"),
        "home and end keys": ("ello\x1b[Hh\x1b[F!", "hello!"),
        "delete": ("hxello\x1b[H\x1b[C\x1b[3~", "hello"),
        "kill to the end": ("hello world\x1b[H\x1b[C\x1b[C\x0b", "he"),
        "kill to the start": ("hello world\x1bb\x15", "world"),
        "kill a word": ("hello wide world\x17\x17", "hello "),
        "word moves": ("one three\x1b[1;5Dtwo \x1b[1;5C!", "one two three!"),
        "wide": ("\u4f60\u597d\x1b[D\u5728", "\u4f60\u5728\u597d"),
        "combining": ("e\u0301x\x7f\x7fa", "a"),
        "emoji": ("\U0001f600a\x1b[D\x7f", "a"),
        "new line": ("one\x1b\rtwo", "one\ntwo"),
        "no control characters": ("a\x1b[99~\x07b", "ab"),
    }
    for what, (typed, want) in keys.items():
        before = len(messages(chat, folder))
        seen = chat.ask(typed + "\r", 60)
        got = messages(chat, folder)[before:]
        check("edit: " + what, len(got) == 2 and got[0] == {"role": "user", "content": want} and got[1]["role"] == "assistant", (got, seen))
    chat.send("\x04")
    check("Ctrl-D leaves with 0", chat.leave() == 0, chat.log)


def test_screen(args, folder):
    chat = Chat(args, folder, 10, 20)
    if not check("the prompt comes on a small screen", chat.prompt(0), chat.log):
        chat.leave(0)
        return
    chat.send("\x0c" + "abcdefghijklmnopqrstuvwxyz")
    chat.settle()
    lines = chat.screen.lines()
    check("a long line is wrapped", lines[:2] == ["> abcdefghijklmnopqr", "stuvwxyz"], lines)
    chat.send("\x01X")
    chat.settle()
    lines = chat.screen.lines()
    check("an insertion in its middle", lines[:2] == ["> Xabcdefghijklmnopq", "rstuvwxyz"] and (chat.screen.r, chat.screen.c) == (0, 3), lines)
    chat.send("\x15\x0b" + "\u4f60" * 9 + "x\u597d")
    chat.settle()
    lines = chat.screen.lines()
    check("a wide character that does not fit moves on", lines[:2] == ["> " + "\u4f60" * 9, "x\u597d"], lines)
    chat.send("\x15a\x1b\rb\x1b\rc")
    chat.settle()
    lines = chat.screen.lines()
    check("several lines", lines[:3] == ["> a", "  b", "  c"] and lines[3] == "", lines)
    chat.send("\x15" + "".join("%d\x1b\r" % i for i in range(30)))
    chat.settle()
    lines = chat.screen.lines()
    check("taller than the screen: its end is shown", "  29" in lines and "> 0" not in lines, lines)
    chat.send("\x15")
    chat.screen = Screen(10, 30)
    chat.resize(10, 30)
    chat.send("\x0c" + "abcdefghijklmnopqrstuvwxyz")
    chat.settle()
    check("resized", chat.screen.lines()[0] == "> abcdefghijklmnopqrstuvwxyz", chat.screen.lines())
    chat.send("\x03")
    chat.settle()
    chat.send("\x03")
    check("Ctrl-C at an empty prompt asks once", chat.wait("once more"), chat.log)
    chat.send("\x03")
    check("and leaves with 0 the second time", chat.leave() == 0, chat.log)


def test_talk(args, folder):
    chat = Chat(args, folder)
    if not check("the prompt comes again", chat.prompt(0), chat.log):
        chat.leave(0)
        return
    chat.ask("\x1b[200~one\r\ntwo\rthree\x1b[201~\r", 60)
    got = messages(chat, folder)
    check("a paste of three lines is one message", len(got) == 2 and got[0]["content"] == "one\ntwo\nthree", got)
    check("a line of figures follows an answer", "tok/s" in chat.log and "first token" in chat.log, chat.log)
    seen = chat.ask("/help\r")
    check("/help", all(x in seen for x in ("/reset", "/regen", "/set", "/show", "/save", "/load", "/exit")), seen)
    check("an unknown command is none of the messages", "no such command" in chat.ask("/nope\r") and len(messages(chat, folder)) == 2)
    seen = [chat.ask(x + "\r") for x in ("/save", "/load", "/set")]
    check("a command without its value says what is missing", all("missing" in x and "no such" not in x for x in seen), seen)
    check("an option without its value says so", "temperature: a value was expected" in chat.ask("/set temperature\r"))
    chat.ask("/regen\r", 60)
    check("/regen", len(messages(chat, folder)) == 2)
    chat.ask("/reset\r")
    check("/reset", messages(chat, folder) == [])
    seen = chat.ask("/set temperature 9\r")
    check("/set checks the value", "temperature" in seen and "expected" in seen, seen)
    chat.ask("/set temperature 0.5\r")
    chat.ask("/set max-tokens 3\r")
    check("/show", "temperature 0.5" in chat.ask("/show\r") and "max-tokens 3" in chat.log, chat.log)
    seen = [chat.ask("/set %s\r" % x) for x in ("stop-token-ids 7,8", "logit-bias {\"5\": 1}", "stop-token-ids x", "logit-bias {", "stop zz", "max-tokens -1", "max-tokens 3")]
    check("/set of lists and JSON", ["expected" in x for x in seen] == [False, False, True, True, False, False, False], seen)
    chat.ask("/set system You are a cat.\r")
    chat.ask("again\r", 60)
    got = messages(chat, folder)
    check("/set system", [m["role"] for m in got] == ["system", "user", "assistant"] and got[0]["content"] == "You are a cat.", got)
    chat.ask("/reset\r")
    with open(os.path.join(folder, "old.json"), "w") as f:
        json.dump({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}, f)
    chat.ask("/load %s\r" % os.path.join(folder, "old.json"))
    check("/load", [m["content"] for m in messages(chat, folder)] == ["hi", "ho"])
    chat.ask("%s\r" % ("a long text " * 30))
    saved = chat.ask("/save %s\r" % os.path.join(folder, "long.json"))
    check("what was read is saved too", "tokens of context saved" in saved and os.path.exists(os.path.join(folder, "long.json.kv")), saved)
    loaded = chat.ask("/load %s\r" % os.path.join(folder, "long.json"))
    check("and loaded again", "messages loaded" in loaded and "tokens of context loaded" in loaded, loaded)
    with open(os.path.join(folder, "long.json.kv"), "r+b") as f:
        f.seek(50)
        f.write(b"x")
    check("a damaged one is told, the messages come", all(x in chat.ask("/load %s\r" % os.path.join(folder, "long.json")) for x in ("4 messages loaded", "long.json.kv: ")), chat.log)
    chat.ask("/load %s\r" % os.path.join(folder, "old.json"))
    check("/load of nothing is told", "nowhere" in chat.ask("/load nowhere.json\r") and len(messages(chat, folder)) == 2)
    seen = chat.ask("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[B\x15\x1b\x0b\r")
    check("history moves do no harm", seen != "")
    chat.send("/exit\r")
    check("/exit", chat.leave() == 0, chat.log)
    with open(os.path.join(folder, "llm_cli", "history")) as f:
        history = [json.loads(x) for x in f]
    check("history is kept in a file", "one\ntwo\nthree" in history and history[-1] == "/exit", history)
    check("which is private", os.stat(os.path.join(folder, "llm_cli", "history")).st_mode & 0o77 == 0)
    chat = Chat(args, folder)
    chat.prompt(0)
    chat.send("\x1b[A\x1b[A")
    chat.settle()
    check("and is there the next time", "nowhere.json" in "".join(chat.screen.lines()) or "/save" in "".join(chat.screen.lines()), chat.screen.lines())
    chat.send("\x15\x04")
    chat.leave()


def test_interrupt(args, folder):
    chat = Chat(args + ["-n", "-1", "--ignore-eos"], folder)
    if not check("the prompt comes for a long answer", chat.prompt(0), chat.log):
        chat.leave(0)
        return
    since = len(chat.log)
    chat.send("go\r")
    chat.hear(since + 60)
    chat.send("\x03")
    check("Ctrl-C stops the answer, not the program", chat.wait("[stopped]", 20, since) and chat.prompt(since), chat.log[since:])
    got = messages(chat, folder)
    check("what was said stays", len(got) == 2 and got[0]["content"] == "go", got)
    since = len(chat.log)
    chat.send("go on\r")
    chat.hear(since + 60)
    chat.send("ahead\x03")
    stopped = chat.wait("[stopped]", 20, since)
    chat.settle()
    check("what is typed while an answer is stopped stays", stopped and any(x.endswith("> ahead") for x in chat.screen.lines()), chat.screen.lines())
    chat.send("\x15")
    chat.send("typed while it answers\x15/exit\r")
    check("and it goes on", chat.leave() == 0, chat.log[-300:])
    chat = Chat(args[:2] + ["--temp", "0", "-n", "4"], folder, env={"NO_COLOR": "1"})
    chat.prompt(0)
    seen = chat.ask("x\r", 60)
    check("NO_COLOR", seen and "\x1b[2m" not in seen, seen)
    chat.send("\x04")
    chat.leave()


def main():
    name = str(checkpoints.folder("llama"))
    if not os.path.exists(CLI):
        print("no %s: run make first" % CLI)
        sys.exit(2)
    for test in (test_editing, test_screen, test_talk, test_interrupt):
        with tempfile.TemporaryDirectory() as folder:
            test(["-m", name, "--temp", "0"] + (["-n", "4"] if test is not test_interrupt else []), folder)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
