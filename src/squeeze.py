"""Scripts and styles without what is only for their reader: comments, white space, long names of variables.

    script(text)    JavaScript: one scope with the names that it declares, none of which is also the name of a global that it uses
    style(text)     CSS
    markup(text)    HTML without text in which white space counts
    squeeze.py FILE ...    prints these scripts as one

A name is renamed everywhere or nowhere, whatever its scope; names of properties stay as they are. What is not recognised as declared keeps
its name. Written for the scripts of src/page: a regular expression follows no `)`, and a line that ends a statement ends with `;`.
"""
import collections
import itertools
import collections
import re
import string
import sys

TOKEN = re.compile(r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)
    |(?P<name>[A-Za-z_$][\w$]*)|(?P<number>\.?\d[\w.]*)|(?P<space>\s+)|(?P<mark>=>|\.\.\.|\?\.(?!\d)|\?\?=?|[-+*/%&|<>=!]=+|&&=?|\|\|=?|\+\+|--|.)""", re.S | re.X)
REGEX = re.compile(r"/(?![*/])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
KEYWORDS = set("""async await break case catch class const continue default delete do else export extends false finally for function if in instanceof
    let new null of return static super switch this throw true try typeof undefined var void while yield""".split())
BEFORE_BLOCK = {")", "=>", ";", "{", "}", "else", "try", "finally", "do", ""}


class Token:
    def __init__(self, kind, text, role=""): self.kind, self.text, self.role = kind, text, role


def tokens(text):
    out, at, before = [], 0, ""
    while at < len(text):
        value = before in (")", "]", "}") or before and (before[-1].isalnum() or before[-1] in "_$\"'`") and before not in ("return", "typeof", "case", "of", "in")
        m = None if value else REGEX.match(text, at)
        kind = "regex" if m else None
        if not m: m = TOKEN.match(text, at)
        kind = kind or m.lastgroup
        if kind not in ("comment", "space"):
            out.append(Token(kind, m[0]))
            before = m[0]
        at = m.end()
    return out


def roles(list):
    """What each name is: property (after a point, key, method), short (key and variable at once), variable."""
    stack, blank = [], Token("", "")
    for i, t in enumerate(list):
        before, after = list[i - 1].text if i else "", list[i + 1].text if i + 1 < len(list) else ""
        if t.text in "([": stack.append(t.text)
        elif t.text == "{": stack.append("class" if len(stack) and False else "block" if before in BEFORE_BLOCK else "object")
        elif t.text in (")", "]", "}") and t.kind == "mark": stack.pop()
        if t.kind != "name" or t.text in KEYWORDS: continue
        inside = stack[-1] if stack else ""
        first = inside == "object" and before in ("{", ",") or before in ("async", "*", "get", "set") and inside == "object"
        if before in (".", "?."): t.role = "property"
        elif first and after in (":", "("): t.role = "property"
        elif first and after in (",", "}", "="): t.role = "short"
        else: t.role = "variable"


def closing(list, i):
    """Where the bracket at i is closed."""
    deep = 0
    for k in range(i, len(list)):
        if list[k].kind == "mark" and list[k].text in "([{": deep += 1
        if list[k].kind == "mark" and list[k].text in ")]}": deep -= 1
        if not deep: return k
    raise ValueError("a bracket is not closed")


def opening(list, i):
    deep = 0
    for k in range(i, -1, -1):
        if list[k].kind == "mark" and list[k].text in ")]}": deep += 1
        if list[k].kind == "mark" and list[k].text in "([{": deep -= 1
        if not deep: return k
    raise ValueError("a bracket is not opened")


def bound(list, begin, end):
    """The names that a pattern, or patterns with commas between, bind. What stands behind a `=` is no pattern."""
    out, k = set(), begin
    while k < end:
        t = list[k]
        if t.text == "=":  # a default
            deep = 0
            while k < end and (deep or list[k].text not in (",", ")", "]", "}")):
                if list[k].kind == "mark": deep += (list[k].text in "([{") - (list[k].text in ")]}")
                k += 1
            continue
        if t.role in ("variable", "short"): out.add(t.text)
        k += 1
    return out


def declared(list, params=True):
    out = set()
    for i, t in enumerate(list):
        after = list[i + 1] if i + 1 < len(list) else Token("", "")
        if t.text in ("function", "class") and t.kind == "name" and after.kind == "name": out.add(after.text)
        elif t.text == "catch" and after.text == "(": out |= bound(list, i + 2, closing(list, i + 1))
        elif t.text in ("const", "let") and t.kind == "name":
            k = i + 1
            while True:
                end = closing(list, k) + 1 if list[k].text in "[{" else k + 1
                out |= bound(list, k, end)
                k = end
                deep = 0
                while k < len(list) and (deep or list[k].text not in (",", ";", "of", "in", ")")):
                    if list[k].kind == "mark": deep += (list[k].text in "([{") - (list[k].text in ")]}")
                    k += 1
                if k >= len(list) or list[k].text != ",": break
                k += 1
        elif not params: continue
        elif after.text == "=>" and t.text == ")": out |= bound(list, opening(list, i) + 1, i)
        elif after.text == "=>" and t.kind == "name": out.add(t.text)
        elif t.text == ")" and after.text == "{":
            k = opening(list, i)
            if k > 1 and (list[k - 2].text in ("function", "*") or list[k - 1].role == "property"): out |= bound(list, k + 1, i)
    return out


def short_names(taken):
    for n in itertools.count(1):
        for letters in itertools.product(string.ascii_letters + "$_", repeat=n):
            name = "".join(letters)
            if name not in taken and name not in KEYWORDS: yield name


def flat(list):
    """A statement without what stands in braces and parentheses, but for the pattern that it begins with."""
    out, deep = [], 0
    for i, t in enumerate(list):
        if t.kind == "mark" and t.text in "([{" and i > 1: deep += 1
        if not deep: out.append(t)
        if t.kind == "mark" and t.text in ")]}" and deep: deep -= 1
    return out


def items(list):
    """The statements outside of all brackets."""
    out, deep = [[]], 0
    for t in list:
        if t.kind == "mark": deep += (t.text in "([{") - (t.text in ")]}")
        out[-1].append(t)
        if not deep and t.text in (";", "}"): out.append([])
    return out


def rename(list, own, taken):
    """The names in `own`, the more often one stands the shorter."""
    variables = [t for t in list if t.role in ("variable", "short")]
    count, names = collections.Counter(t.text for t in variables), short_names(taken)
    new = {n: next(names) for n in sorted(own, key=lambda n: (-count[n], n))}
    for t in variables:
        if t.text in new: t.text, t.role = (t.text + ":" if t.role == "short" else "") + new[t.text], "done"
    for t in list:
        if t.kind == "text" and t.text[0] == "`": t.text = re.sub(r"\$\{(\w+)", lambda m: "${" + new.get(m[1], m[1]), t.text)


def renamed(list):
    """What is declared outside of all functions first; then, statement by statement, what is declared inside."""
    variables, parts = {t.text for t in list if t.role in ("variable", "short")}, items(list)
    outside = set()
    for part in parts:
        if not part: continue
        if part[0].text in ("const", "let", "class", "function", "async"): outside |= declared(flat(part), False)
    rename(list, outside, variables - outside)
    for part in parts:
        own = declared(part) & {t.text for t in part if t.role in ("variable", "short")}
        rename(part, own, {t.text.split(":")[-1] for t in part if t.role} - own)


def arrows(list):
    """Functions outside of all brackets as `let name = (...) => {...};`: none of them is called before it stands there."""
    out, deep, i = [], 0, 0
    while i < len(list):
        t = list[i]
        start = i + 1 if t.text == "async" else i
        if not deep and t.kind == "name" and t.role == "" and list[start].text == "function" and list[start + 1].kind == "name":
            params = closing(list, start + 2)
            body = closing(list, params + 1)
            one = params == start + 4
            out += [Token("name", "let"), list[start + 1], Token("mark", "="), *list[i:start], *(list[start + 3:params] if one else list[start + 2:params + 1]),
                    Token("mark", "=>"), *list[params + 1:body + 1], Token("mark", ";")]
            i = body + 1
            continue
        if t.kind == "mark": deep += (t.text in "([{") - (t.text in ")]}")
        out.append(t)
        i += 1
    return out


def shorter(list):
    """Declarations that follow each other become one; no `;` before a `}`; true and false in two characters."""
    for k, t in enumerate(list):
        if t.text in ("===", "!==") and re.match(r'"(?!\\[nrt])[^"\s\d.+-]|typeof', list[k + 1].text): t.text = t.text[:-1]  # what is no number is equal to that text only
        if t.kind == "name" and t.role != "property": t.text = {"true": "!0", "false": "!1", "const": "let", "undefined": "void 0"}.get(t.text, t.text)
    out, starts = [], [""]  # what the statement in each open bracket begins with
    fresh = True
    for i, t in enumerate(list):
        after, before = list[i + 1].text if i + 1 < len(list) else "", list[i - 1].text if i else ""
        if fresh and t.text not in (";", ",", ")", ".", "(", "[", "?", ":"): starts[-1] = t.text
        fresh = False
        if t.kind == "mark" and t.text in "([{": starts.append("")
        if t.kind == "mark" and t.text in ")]}": starts.pop()
        fresh = t.kind == "mark" and t.text in (";", "{", "}")
        if t.text == ";" and t.kind == "mark":
            if after == "}" and not (before == ")" and list[opening(list, i - 1) - 1].text in ("for", "while", "if")): continue
            if after == "let" == starts[-1]:
                list[i + 1].text, t.text, fresh = "", ",", False
        if t.text: out.append(t)
    return joined(out)


def joined(list):
    """Texts that are added to each other become one."""
    out = []
    for i, t in enumerate(list):
        if len(out) > 1 and t.kind == out[-2].kind == "text" and out[-1].text == "+" and t.text[0] == out[-2].text[0] == '"' and list[i + 1].text not in (".", "["):
            out.pop()
            out[-1].text = out[-1].text[:-1] + t.text[1:]
        else: out.append(t)
    return out


def lines(list, width=1000):
    """The tokens, with a space where two would become one, in lines of at most about that width."""
    out, line, before = [], "", ""
    for t in list:
        if len(line) + len(t.text) > width and before in (";", "{", "}", ",", "(", "=>", ":", "&&", "||"):
            out.append(line)
            line = before = ""
        word = lambda c: c.isalnum() or c in "_$\\"
        if before and (word(before[-1]) and word(t.text[0]) or before[-1] == t.text[0] and t.text[0] in "+-/"): line += " "
        line += t.text
        before = t.text
    return "\n".join([*out, line]) + "\n"


def named_texts(list):
    """Texts that stand often get a name each; as a key, in brackets."""
    plain, keys = [t for t in list if t.kind == "text" and t.text[0] == '"'], []
    for i, t in enumerate(list):
        if t.kind == "text" and list[i + 1].text == ":" and list[i - 1].text in ("{", ","): keys.append(t)
    count, begin = collections.Counter(t.text for t in plain), []
    often = {s: f"text{k}$" for k, (s, n) in enumerate(count.items()) if n * (len(s) - 2) > len(s) + 8}
    for s, name in often.items(): begin += [Token("name", "const"), Token("name", name), Token("mark", "="), Token("text", s), Token("mark", ";")]
    out = []
    for t in list:
        name = often.get(t.text) if t.kind == "text" else None
        new = Token("name", name) if name else t
        out += [Token("mark", "["), new, Token("mark", "]")] if name and t in keys else [new]
    return begin + out


def named_globals(list):
    """So do null, undefined and objects that are there already, like document and Math."""
    used = [t for t in list if t.role == "variable" and re.fullmatch("document|[A-Z][A-Za-z]+", t.text) or t.kind == "name" and t.text in ("null", "undefined") and not t.role]
    count, own, begin = collections.Counter(t.text for t in used), declared(list), []
    often = {s: s.lower() + "$" for s, n in count.items() if s not in own and n * (len(s) - 2) > len(s) + 8}
    for t in used:
        if t.text in often: t.text, t.role = often[t.text], "variable"
    for s, name in often.items(): begin += [Token("name", "const"), Token("name", name, "variable"), Token("mark", "="), Token("name", s), Token("mark", ";")]
    return begin + list


def script(text):
    list = named_texts(tokens(text))
    roles(list)
    list = named_globals(list)
    renamed(list)
    return lines(shorter(arrows(list)))


def style(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ?([{};,>]) ?|(?<=[\w-])(:) (?=[^{}]*[;}])", lambda m: m[1] or m[2], text).replace(";}", "}")
    names = sorted(set(re.findall(r"--[\w-]+", text)), key=lambda n: (-text.count(n), n))
    new = dict(zip(names, ("--" + n for n in short_names(set()))))
    text = re.sub(r"--[\w-]+", lambda m: new[m[0]], text)
    text = text.replace(" !", "!")
    return re.sub(r"([^\n]{900,1000}?[;}])(?=.)", r"\1\n", text) + "\n"


def markup(text):
    return re.sub(r'="([\w.-]+)"', r"=\1", re.sub(r"(?<=>)\n(?=<)", "", re.sub("^ +", "", text, flags=re.M)))


if __name__ == "__main__": sys.stdout.write(script("".join(open(f).read() for f in sys.argv[1:])))
