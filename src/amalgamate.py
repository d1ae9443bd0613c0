#!/usr/bin/env python3
"""Makes llm.h from src/, and the chat page inside llm_serve.c from src/page/.

    src/amalgamate.py          writes ../llm.h and the page in ../llm_serve.c
    src/amalgamate.py --check  exit 1 if they are not what src/ gives

llm.h.in is the frame: its lines "@part FOLDER/NAME" are replaced by NAME.h and NAME.c of that folder (or one of them, where it is named with
its ending), "@toc" by a line for each part, "@sized" and "@unsized" by the macros for the functions NAME_sized of api/sizes.h, and by their end. On
the way

- a file's first comment, "/* NAME: sentence. ... */", becomes the banner of its section, with the tag >>NAME;
- includes of other parts and "#pragma once" go, for everything stands in one file;
- functions that other parts may call (LLM__PRIVATE) become static. Their prototypes go from the header, and the comments above these stand
  above the definitions instead, so that the text reads from top to bottom. Only a function that is called above its definition (two that
  call each other) keeps its prototype;
- parts marked "small" stand between LLM__COLD_BEGIN and LLM__COLD_END.

The page is page.html, page.css and the scripts that page.html names, which are served as one, page.js. Each becomes an array of its lines in
llm_serve.c, between the comments "generated: begin" and "generated: end", without what is only for the reader of the source (squeeze.py).
"""
import pathlib
import re
import sys

from squeeze import markup, script, style

SRC = pathlib.Path(__file__).resolve().parent
DROPPED = re.compile(r'^#include "[a-z]+/\w+\.h".*\n|^#pragma once\n|^ */\* clang-format (?:off|on) \*/\n', re.M)
PROTOTYPE = re.compile(r"^(?:extern )?LLM__PRIVATE [^;{}]*;(?: /\*.*?\*/)?\n", re.M)
COMMENT_ABOVE = re.compile(r"(?:^/\*(?:(?!\*/).)*\*/\n)\Z", re.M | re.S)


def strip_comments(text):
    return re.sub(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', " ", text, flags=re.S)


def declared(prototype):
    """Names that a prototype declares: of functions, or of constants."""
    text = strip_comments(prototype).strip()
    if text.startswith("extern"): return re.findall(r"(\w+)(?:\[[^\]]*\])?\s*(?=[,;])", text)
    return [re.search(r"(\w+)\s*\((?!\()", re.sub(r"LLM__\w+(?:\([^)]*\))?\s", "", text))[1]]


def banner(text, folder, name):
    """The first comment as the head of a section. (its sentence, the text)"""
    m = re.match(r"/\* " + name + r": (.*?)(?: \*/\n|\n(?: \*\n)?)", text)
    if not m: return None, text
    rule = "-" * 75 if folder == "api" else "=" * 76
    sentence = m[1][0].upper() + m[1][1:]
    head = f"/* {rule}\n * >>{'api-' if folder == 'api' else ''}{name}   {sentence}\n * {rule}"
    return m[1], head + (" */\n" if m[0].endswith("*/\n") else "\n") + text[m.end():]


class Part:
    def __init__(self, path, small):
        """path: folder/name, or folder/name.h or .c"""
        self.folder, file = path.split("/")
        self.name, self.small = file.split(".")[0], small
        endings = [file.split(".")[1]] if "." in file else ["h", "c"]
        files = {e: SRC / self.folder / f"{self.name}.{e}" for e in endings}
        texts = {e: DROPPED.sub("", f.read_text()) for e, f in files.items() if f.exists()}
        if not texts: sys.exit(f"amalgamate: {path}: no such part")
        self.header, self.code = texts.get("h", ""), texts.get("c", "")
        self.sentence = None
        if self.header: self.sentence, self.header = banner(self.header, self.folder, self.name)
        elif self.code: self.sentence, self.code = banner(self.code, self.folder, self.name)

    def take_prototypes(self, into):
        """Takes the prototypes out of the header: name -> (comment above it, prototype)."""
        at, kept, comment = 0, "", ""
        for m in PROTOTYPE.finditer(self.header):
            kept += self.header[at:m.start()]
            above = COMMENT_ABOVE.search(kept)
            names = declared(m[0])
            if above and not above[0].startswith("/* ---- ") and not above[0].startswith("/* ===="):
                comment, kept = above[0], kept[:above.start()]
            else:
                comment = ""
            trailing = re.search(r"; (/\*.*\*/)\n", m[0])
            if trailing: comment = trailing[1] + "\n"
            for i, name in enumerate(names):
                if name in into: sys.exit(f"amalgamate: {name} is declared twice")
                into[name] = (comment if i == 0 else "", m[0], self)
            kept += f"@prototype {names[0]}\n"
            at = m.end()
        self.header = kept + self.header[at:]


DEFINITION = re.compile(r"^LLM__PRIVATE ([^;{}]*?\b(llm__\w+)\([^;{}]*\)) \{|^LLM__PRIVATE (const [^;={]*?\b(\w+)(?:\[[^\]]*\])?) =", re.M)


def define(code, prototypes, done, kept):
    """Definitions become static, with the comments of their prototypes above them."""
    out, at = "", 0
    for m in DEFINITION.finditer(code):
        name = m[2] or m[4]
        if name not in prototypes: sys.exit(f"amalgamate: {name} is LLM__PRIVATE, but in no header")
        out += code[at:m.start()]
        comment = "" if name in kept else prototypes[name][0]
        own = COMMENT_ABOVE.search(out)
        if own and comment: out = out[:own.start()] + comment + own[0]
        elif comment: out += comment
        out += "static " + m[0][len("LLM__PRIVATE "):]
        at = m.end()
        done.add(name)
    return out + code[at:]


def called_early(parts, prototypes):
    """Functions that are called above their definition -> where their prototype has to stand at the latest: (part, "header" or "code")."""
    defined, result = set(), {}
    for part in parts:
        for where in ("header", "code"):
            plain = re.sub(r"^@prototype.*\n", "", strip_comments(getattr(part, where)), flags=re.M)
            for m in re.finditer(r"^LLM__PRIVATE [^;{}=]*[{=]|\bllm__\w+\b", plain, re.M):
                d = DEFINITION.match(m[0])
                if d: defined.add(d[2] or d[4])
                elif m[0] in prototypes and m[0] not in defined: result.setdefault(m[0], (part, where))
    return result


def squeeze(text):
    return re.sub(r"\n{3,}", "\n\n", text)


def make():
    frame = (SRC / "llm.h.in").read_text()
    sized = re.findall(r"\b(llm_\w+)_sized\(", (SRC / "api/sizes.h").read_text())
    frame = frame.replace("@sized\n", "".join(f"#define {f}(...) {f}_sized(LLM_SIZES, __VA_ARGS__)\n" for f in sized))
    frame = frame.replace("@unsized\n", "".join(f"#undef {f}\n" for f in sized))
    lines = re.split(r"^(@part .*\n|@toc\n)", frame, flags=re.M)
    parts = {l: Part(l.split()[1], l.split()[2:] == ["small"]) for l in lines if l.startswith("@part")}
    prototypes, done = {}, set()
    order = list(parts.values())
    place = {p: i for i, p in enumerate(order)}
    for p in order: p.take_prototypes(prototypes)
    kept = called_early(order, prototypes)
    for p in order:
        mine = {name for name in kept if prototypes[name][2] is p and place[kept[name][0]] >= place[p]}
        others = [name for name in kept if kept[name][0] is p and place[prototypes[name][2]] > place[p]]
        static = lambda name: prototypes[name][0] + re.sub(r"^(extern )?LLM__PRIVATE", "static", prototypes[name][1])
        p.header = squeeze(re.sub(r"^@prototype (\w+)\n", lambda m: static(m[1]) if m[1] in mine else "", p.header, flags=re.M))
        p.code = "\n".join(static(name) for name in others) + "\n" + define(p.code, prototypes, done, kept)
    missing = set(prototypes) - done
    if missing: sys.exit("amalgamate: declared, but defined nowhere: " + " ".join(sorted(missing)))
    return squeeze("".join(whole(lines, parts)))


def whole(lines, parts):
    """The pieces of llm.h, with more blank lines between them than it has."""
    small = False
    for l in lines:
        if l in parts:
            p = parts[l]
            if p.folder != "api" and p.small != small:
                yield "\n\nLLM__COLD_BEGIN\n" if p.small else "\n\nLLM__COLD_END\n"
                small = p.small
            yield "\n\n" + (p.header.strip("\n") + "\n\n" + p.code.strip("\n")).strip("\n") + "\n\n"
        elif l == "@toc\n":
            yield contents(parts.values())
        else:
            if small and l.strip():
                yield "\n\nLLM__COLD_END\n"
                small = False
            yield l


def contents(parts):
    """A line for each part. A tag names one of them."""
    out, folder, seen = "", "", {}
    for p in parts:
        if not p.sentence: continue
        if p.folder != folder: out, folder = out + f" *   {p.folder}/\n", p.folder
        tag = ">>" + ("api-" if folder == "api" else "") + p.name
        if tag in seen: sys.exit(f"amalgamate: {tag} names {seen[tag]} and {folder}/{p.name}: give one of them another name")
        seen[tag] = f"{folder}/{p.name}"
        out += f" *     {tag:22s} {p.sentence}\n"
    return out


PAGE = re.compile(r"(?<=/\* generated: begin \*/\n).*?(?=/\* generated: end \*/\n)", re.S)


def c_string(line):
    """A line as a C string, without trigraphs; in parts where it is too wide."""
    text = re.sub(r'["\\]|(?<=\?)\?', r"\\\g<0>", line)
    if not re.fullmatch("[ -~]*", text): sys.exit(f"amalgamate: page: not ASCII: {line}")
    parts = re.findall(r"(?:[^\\]|\\.){1,120}", text) or [""]
    return f'"{parts[0]}"' if len(parts) == 1 else '("' + '"\n     "'.join(parts) + '")'


def c_lines(name, text):
    """Lines as an array of C strings."""
    return f"static const char *const {name}[] = {{\n    " + ",\n    ".join(map(c_string, text.splitlines())) + "};\n"


SCRIPTS = re.compile(r'(?: *<script src="\w+\.js" defer></script>\n)+')


def page():
    """{kind: text} of the page as it is served."""
    folder = SRC / "page"
    html = (folder / "page.html").read_text()
    names = re.findall(r"\w+\.js", SCRIPTS.search(html)[0])
    one = SCRIPTS.sub('<script src="page.js" defer></script>\n', html)
    return {"html": markup(one), "css": style((folder / "page.css").read_text()),
            "js": '"use strict";\n' + script("".join((folder / n).read_text() for n in names))}


def server_text(program):
    """The text of llm_serve.c with the page in it."""
    arrays = "\n".join(c_lines("page_" + kind, text) for kind, text in page().items())
    made, n = PAGE.subn(lambda m: arrays, program)
    if n != 1: sys.exit(f"amalgamate: llm_serve.c has {n} places for the page")
    return made


def main():
    header, server = SRC.parent / "llm.h", SRC.parent / "llm_serve.c"
    program = server.read_text()
    made = {header: make(), server: server_text(program)}
    if sys.argv[1:] == ["--check"]:
        for path, text in made.items():
            if path.read_text() != text: sys.exit(f"{path.name} is not what src/ gives: edit src/, then run make llm.h")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        header.write_text(made[header])
        if made[server] != program: server.write_text(made[server])


if __name__ == "__main__": main()
