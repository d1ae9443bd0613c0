"""C source in the style of this project as a list of top-level items: comments, directives, declarations, functions."""
import re

TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|[A-Za-z_]\w*|\.?\d[\w.]*|\s+|.', re.S)
DIRECTIVE = re.compile(r"#(?:/\*.*?\*/|\\\n|[^\n])*", re.S)


def tokens(text):
    """(kind, begin, end): comment, directive, string, word, number, space, sign."""
    at, line_begins = 0, True
    while at < len(text):
        m = DIRECTIVE.match(text, at) if line_begins and text[at] == "#" else None
        if m: kind = "directive"
        else:
            m = TOKEN.match(text, at)
            c = m[0][0]
            kind = ("comment" if m[0].startswith(("/*", "//")) else "string" if c in "\"'" else "word" if c.isalpha() or c == "_" else
                    "number" if c.isdigit() or (c == "." and len(m[0]) > 1) else "space" if c.isspace() else "sign")
        yield kind, m.start(), m.end()
        line_begins = kind == "space" and "\n" in m[0] or (line_begins and kind in ("space", "comment"))
        at = m.end()


def plain(text):
    """The text with its comments as blanks and its strings empty."""
    keep = {"comment": lambda s: " " + "\n" * s.count("\n"), "string": lambda s: '""'}
    return "".join(keep.get(kind, str)(text[a:b]) for kind, a, b in tokens(text))


def words(text):
    """Names of the library that occur in the code."""
    return set(re.findall(r"\b(?:llm|LLM)_\w+|\bllm\b", plain(text)))


class Item:
    """kind: comment, directive, function, declaration; names: what it declares or defines; line: its first, from 1."""

    def __init__(self, kind, text, line):
        self.kind, self.text, self.line = kind, text, line
        self.names = names(kind, text)

    @property
    def lines(self):
        return self.text.count("\n") + 1


def items(text):
    out, found = [], list(tokens(text))
    i = 0
    while i < len(found):
        kind, begin, _ = found[i]
        if kind == "space":
            i += 1
            continue
        if kind in ("comment", "directive"):
            out.append((kind, begin, found[i][2]))
            i += 1
            continue
        depth, assigned, function, before, j = 0, False, False, "", i
        while j < len(found):
            kind, a, b = found[j]
            s = text[a:b]
            if kind == "sign":
                if s in "([{":
                    function |= s == "{" and not depth and not assigned and before == ")"
                    depth += 1
                elif s in ")]}": depth -= 1
                elif s == "=" and not depth: assigned = True
                if not depth and (s == ";" or (s == "}" and function)): break
            if kind not in ("space", "comment"): before = s
            j += 1
        j = min(j, len(found) - 1)
        out.append(("function" if function else "declaration", begin, found[j][2]))
        i = j + 1
    return [Item(kind, text[a:b], text.count("\n", 0, a) + 1) for kind, a, b in out]


ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)|\bLLM__(?:PRINTF|SCOPED)\([^()]*\)")


def names(kind, text):
    if kind == "comment": return []
    if kind == "directive":
        m = re.match(r"#\s*define\s+(\w+)", text)
        return [m[1]] if m else []
    code = ATTRIBUTE.sub(" ", plain(text))
    if kind == "function":
        head = code[:code.index("{")]
        m = re.search(r"(\w+)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*$", head)
        return [m[1]] if m else []
    out = []
    m = re.match(r"\s*(?:typedef\s+)?(?:struct|enum|union)\s+(\w+)\s*[{;]", code)
    if m: out.append(m[1])
    outside = re.sub(r"\{.*\}", " ", code, flags=re.S)
    if re.match(r"\s*typedef", code):
        m = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", outside) or re.search(r"(\w+)\s*(?:\[[^\]]*\])*\s*;", outside)
        if m: out.append(m[1])
    elif not re.match(r"\s*(?:struct|enum|union)\b[^=(]*$", outside) or "=" in outside:
        head = outside.split("=")[0] if "=" in outside else outside
        if re.search(r"\)\s*;?\s*$", head):
            m = re.search(r"(\w+)\s*\((?:[^()]|\([^()]*\))*\)\s*;?\s*$", head)
            if m: out.append(m[1])
        else:
            out += [n for n in re.findall(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?=[,;]|$)", re.sub(r"=[^,;]*", "", outside)) if n]
    body = re.search(r"\benum\b[^;{]*\{(.*?)\}", code, re.S)
    if body: out += re.findall(r"\b(LLM\w+)\b(?=\s*(?:[,=\s]|$))", body[1])
    return list(dict.fromkeys(out))
