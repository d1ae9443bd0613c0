"""C source in the style of this project as a list of top-level items: comments, directives, declarations, functions. What was found in
a text is kept, as several checks ask for the same files."""
import functools
import re

COMMENT = r"/\*.*?\*/|//[^\n]*"
STRING = r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\''
DIRECTIVE = r"^[ \t]*(?P<directive>#(?:/\*.*?\*/|\\\n|[^\n])*)"
TOKEN = re.compile(f"{DIRECTIVE}|(?P<comment>{COMMENT})|(?P<sign>[][(){{}}=;])|(?P<space>\\s+)|{STRING}|[^][(){{}}=;\\s\"'/]+|.", re.S | re.M)
NO_CODE = re.compile(f"{DIRECTIVE}|(?P<comment>{COMMENT})|{STRING}", re.S | re.M)


@functools.cache
def plain(text):
    """The text with its comments as blanks and its strings empty."""
    keep = {"directive": lambda s: s, "comment": lambda s: " " + "\n" * s.count("\n"), None: lambda s: '""'}
    return NO_CODE.sub(lambda m: keep[m.lastgroup](m[0]), text)


@functools.cache
def words(text):
    """Names of the library that occur in the code."""
    return frozenset(re.findall(r"\b(?:llm|LLM)_\w+|\bllm\b", plain(text)))


class Item:
    """kind: comment, directive, function, declaration; names: what it declares or defines; line: its first, from 1."""

    def __init__(self, kind, text, line):
        self.kind, self.text, self.line = kind, text, line
        self.names = names(kind, text)

    @property
    def lines(self):
        return self.text.count("\n") + 1


@functools.cache
def items(text):
    out, found = [], [(m.lastgroup, m.start(m.lastgroup or 0), m.end()) for m in TOKEN.finditer(text)]
    i = 0
    while i < len(found):
        kind, begin, end = found[i]
        i += 1
        if kind in ("comment", "directive"): out.append((kind, begin, end))
        if kind in ("comment", "directive", "space"): continue
        depth, assigned, function, before, j = 0, False, False, "", i - 1
        while j < len(found):
            kind, a, end = found[j]
            j += 1
            s = text[a:end]
            if kind == "sign":
                if s in "([{":
                    function |= s == "{" and not depth and not assigned and before == ")"
                    depth += 1
                elif s in ")]}": depth -= 1
                elif s == "=" and not depth: assigned = True
                if not depth and (s == ";" or (s == "}" and function)): break
            if kind not in ("space", "comment"): before = s
        out.append(("function" if function else "declaration", begin, end))
        i = j
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
