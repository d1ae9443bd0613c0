#!/usr/bin/env python3
"""Writes the tables in src/text/unicode_tables.h, between its markers.

    python3 src/text/gen_unicode.py            then python3 src/amalgamate.py
    python3 src/text/gen_unicode.py --check    writes nothing: 1 if the tables in the tree are others (`make test` asks)

It needs unicodedata2 16.0.0, fonttools 4.56.0 and tokenizers 0.23.3, which build/python has (`make test` makes it).

Categories, scripts and case are those of Unicode 16.0. Normalization data is what the tokenizers library has (Unicode 11: a
character keeps its data for ever, so it is that of 16.0 without the characters that came later).
"""
import pathlib
import sys
import unicodedata

import unicodedata2 as ucd
from fontTools.unicodedata import Scripts
from tokenizers import normalizers

assert ucd.unidata_version == "16.0.0" and "16.0.0" in open(Scripts.__file__).read(400)
CATEGORIES = "Cn Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()
LU_LL, LL_LU = 30, 31  # upper and lower case in turn, upper at even (odd) code points
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
DIGITS = "".join(chr(c) for c in range(35, 127) if chr(c) not in "\\?")[:64]  # 5 bits and a continuation bit each


def vlq(n):
    out = ""
    while True:
        digit = n & 31
        n >>= 5
        out += DIGITS[digit + (32 if n else 0)]
        if not n:
            return out


def signed(n):
    return vlq(n * 2 if n >= 0 else -n * 2 - 1)


def array(kind, name, values, width=138):
    lines, line = [], "   "
    for v in values:
        if len(line) + len(v) + 2 > width:
            lines.append(line)
            line = "   "
        line += " " + v + ","
    return [f"static const {kind} {name}[{len(values)}] = {{"] + lines + [line, "};"]


def string(name, text, width=132):
    parts = [text[i:i + width] for i in range(0, len(text), width)]
    return [f"static const char {name}[] ="] + [f'    "{p}"' for p in parts[:-1]] + [f'    "{parts[-1]}";']


def category_runs():
    cats = [CATEGORIES.index(ucd.category(chr(c))) for c in range(0x110000)]
    lu, ll = CATEGORIES.index("Lu"), CATEGORIES.index("Ll")
    runs, c = [], 0
    while c < 0x110000:
        e = c
        while e < 0x110000 and {cats[e], cats[c]} == {lu, ll} and (e == c or cats[e] != cats[e - 1]):
            e += 1
        if e - c >= 4:
            runs.append((c, LU_LL if (cats[c] == lu) == (c % 2 == 0) else LL_LU))
            c = e
            continue
        e = c
        while e < 0x110000 and cats[e] == cats[c]:
            e += 1
        if not runs or runs[-1][1] != cats[c]:
            runs.append((c, cats[c]))
        c = e
    check = []
    for (start, k), (end, _) in zip(runs, runs[1:] + [(0x110000, 0)]):
        check += [(lu if (x % 2 == 0) == (k == LU_LL) else ll) if k >= LU_LL else k for x in range(start, end)]
    assert check == cats
    return [f"0x{c << 5 | k:x}" for c, k in runs]


def scripts():
    names = sorted(set(Scripts.VALUES) - {"Zzzz"})
    names.insert(0, "Zzzz")
    runs = []
    for start, value in zip(Scripts.RANGES, Scripts.VALUES):
        k = names.index(value)
        if not runs or runs[-1][1] != k:
            runs.append((start, k))
    text = " ".join(f"{n} {Scripts.NAMES[n]}" for n in names)
    return [f"0x{c << 8 | k:x}" for c, k in runs], text


def case_runs():
    """(first, last, stride, delta, which): which 1 lower case, 2 folding, 3 both."""
    lower_case = normalizers.Lowercase()
    maps = []
    for c in ALL:
        if ucd.category(chr(c)) == "Cn":
            continue
        low = lower_case.normalize_str(chr(c))
        low = ord(low) if len(low) == 1 else c  # U+0130 alone has two
        fold = chr(c).casefold()
        fold = ord(fold) if len(fold) == 1 else low
        if unicodedata.category(chr(c)) == "Cn":
            fold = low
        if 0x13A0 <= c < 0x13F6:
            fold = c  # Cherokee folds to upper case
        for which, to in ((1, low), (2, fold)):
            if to != c and not (which == 2 and to == low):
                maps.append((c, to - c, 3 if which == 1 and fold == low else which))
    runs = []
    for c, delta, which in maps:
        r = runs[-1] if runs else None
        if r and r[3] == delta and r[4] == which and c - r[1] in (1, 2) and (r[0] == r[1] or c - r[1] == r[2]):
            r[2] = c - r[1]
            r[1] = c
        else:
            runs.append([c, c, 1, delta, which])
    assert all(a[1] < b[0] for a, b in zip(runs, runs[1:]))
    return ["{0x%x, 0x%x, %d, %d, %d}" % tuple(r) for r in runs]


def normalization():
    nfc, nfd, nfkd = normalizers.NFC(), normalizers.NFD(), normalizers.NFKD()
    marks, out, last, before = [], [""], 0, [0] * 20
    count = cells = 0
    for c in ALL:
        s = chr(c)
        raw = ucd.decomposition(s)
        if raw and nfkd.normalize_str(s) != s and not 0xAC00 <= c < 0xD7A4:
            canonical = not raw.startswith("<")
            to = [int(x, 16) for x in raw.split() if x[0] != "<"]
            kind = (1 if nfc.normalize_str(s) != s else 0) if canonical else 2
            assert not canonical or nfd.normalize_str(s) != s
            if len(out[-1]) > 110:
                out.append("")
            out[-1] += vlq((c - last) << 2 | kind) + vlq(len(to))
            last = c
            for i, x in enumerate(to):
                out[-1] += signed(x - before[i])
                before[i] = x
            count += 1
            cells += len(to)
        k = ucd.combining(s)
        if k:
            probe = "\u0334" if k > 1 else "\u0345"
            pair = (s + probe) if k > 1 else (probe + s)
            if nfd.normalize_str(pair) != pair:
                marks.append((c, k))
    runs = []
    for c, k in marks:
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == k:
            runs[-1][1] = c
        else:
            runs.append([c, c, k])
    return out, count, cells, [f"{{0x{a:x}, {b - a}, {k}}}" for a, b, k in runs]


NOTICE = """Made by src/text/gen_unicode.py from the Unicode Character Database, version 16.0, under the

   UNICODE LICENSE V3. COPYRIGHT AND PERMISSION NOTICE. Copyright (c) 1991-2024 Unicode, Inc.
   Permission is hereby granted, free of charge, to any person obtaining a copy of data files and any associated documentation (the "Data
   Files") or software and any associated documentation (the "Software") to deal in the Data Files or Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute, and/or sell copies of the Data Files or
   Software, and to permit persons to whom the Data Files or Software are furnished to do so, provided that either (a) this copyright and
   permission notice appear with all copies of the Data Files or Software, or (b) this copyright and permission notice appear in
   associated Documentation. THE DATA FILES AND SOFTWARE ARE PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING
   BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT OF THIRD PARTY RIGHTS. IN NO
   EVENT SHALL THE COPYRIGHT HOLDER OR HOLDERS INCLUDED IN THIS NOTICE BE LIABLE FOR ANY CLAIM, OR ANY SPECIAL INDIRECT OR CONSEQUENTIAL
   DAMAGES, OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER
   TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THE DATA FILES OR SOFTWARE. Except as contained in this
   notice, the name of a copyright holder shall not be used in advertising or otherwise to promote the sale, use or other dealings in these
   Data Files or Software without prior written authorization of the copyright holder."""


def main():
    runs, names = scripts()
    decompositions, count, cells, marks = normalization()
    out = ["/* generated: begin */", "/* " + NOTICE + " */"]
    out += ["/* First code point << 5 | category (enum llm__cat; 30, 31: Lu and Ll in turn). */"]
    out += array("uint32_t", "llm__uni_cats", category_runs())
    out += ["/* First code point << 8 | script; the scripts' short and long names. */"]
    out += array("uint32_t", "llm__uni_scripts", runs)
    out += string("llm__uni_script_names", names + " ")
    out += ["/* First, last, stride, what to add, and where: 1 lower case, 2 case folding, 3 both. */"]
    out += array("llm__uni_case_run", "llm__uni_cases", case_runs())
    out += ["/* Combining classes: first code point, how many more, class. */"]
    out += array("llm__uni_mark_run", "llm__uni_marks", marks)
    out += [f"enum {{ LLM__UNI_DECOMPOSITIONS = {count}, LLM__UNI_CELLS = {cells} }};"]
    out += ["/* Decompositions, one step each, as numbers of 5 bits a character: see llm__uni_norm_unpack. */"]
    out += ['static const char llm__uni_digits[] = "' + DIGITS.replace('"', '\\"') + '";']
    out += [f"static const char *const llm__uni_decompositions[{len(decompositions)}] = {{"] + [f'    "{d}",' for d in decompositions] + ["};"]
    out += ["/* generated: end */"]
    path = pathlib.Path(__file__).with_name("unicode_tables.h")
    text = path.read_text(encoding="utf-8")
    a, end = text.index("/* generated: begin */"), "/* generated: end */"
    made = text[:a] + "\n".join(out) + text[text.index(end, a) + len(end):]
    if made == text: print("1 passed, 0 failed, 0 skipped: the tables in the tree are what Unicode's data give")
    elif sys.argv[1:]: sys.exit(f"1 failed: {path} holds other tables than this program writes")
    else: path.write_text(made, encoding="utf-8")


if sys.argv[1:] not in ([], ["--check"]): sys.exit(__doc__)
main()
