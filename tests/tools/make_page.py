#!/usr/bin/env python3
"""Makes again what tests/data/page says that other programs give for its texts.

    make_page.py        from PyPI: markdown-it-py==4.3.0 linkify-it-py==2.2.0 mdit-py-plugins==0.7.0 Pygments==2.21.0

markdown.txt: samples; each text stands between "%%%% text" and "%%%% html", what markdown-it makes of it below. code.txt: code of many languages
between "%%%% LANGUAGE" and "%%%% classes"; below, for each line of it, what Pygments takes every character for: c comment, s string, n number,
k keyword, m preprocessor, . anything else. To add one, write its text and run this.
"""
import pathlib
import re

from markdown_it import MarkdownIt
from mdit_py_plugins.tasklists import tasklists_plugin
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Number, Operator, String

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "data/page"
KINDS = ((Comment.Preproc, "m"), (Comment.PreprocFile, "m"), (Comment, "c"), (String.Affix, "."), (String, "s"), (Number, "n"), (Keyword, "k"), (Operator.Word, "k"))


def parts(name):
    """[(head, body)] of a file of parts that begin with "%%%% head"."""
    pieces = re.split(r"^%%%% (.*)\n", (FOLDER / name).read_text(), flags=re.M)[1:]
    return [(head, body.removesuffix("\n")) for head, body in zip(pieces[::2], pieces[1::2])]


def write(name, list):
    (FOLDER / name).write_text("".join(f"%%%% {head}\n{body}\n" for head, body in list))


def markdown():
    md = MarkdownIt("gfm-like", {"html": False, "linkify": True}).use(tasklists_plugin)
    md.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
    out = []
    for head, text in parts("markdown.txt"):
        if head == "text": out += [("text", text), ("html", md.render(text).removesuffix("\n"))]
    write("markdown.txt", out)
    print(f"{len(out) // 2} texts in Markdown")


def code():
    out = []
    for head, text in parts("code.txt"):
        if head == "classes": continue
        kinds = "".join(next((c for t, c in KINDS if kind in t), ".") * len(v) for kind, v in get_lexer_by_name(head, stripnl=False, ensurenl=False).get_tokens(text))
        lines, at = [], 0
        for line in text.split("\n"):
            lines.append(kinds[at:at + len(line)])
            at += len(line) + 1
        out += [(head, text), ("classes", "\n".join(lines))]
    write("code.txt", out)
    print(f"{len(out) // 2} languages")


markdown()
code()
