#!/usr/bin/env python3
"""What programs that were compiled with llm.h rely on: layouts of structs, values of enumerators, parameters of functions.

    abi.py           compares llm.h with every record of tests/data/abi; the last line is "N passed, N failed, 0 skipped"
    abi.py show      prints what would be recorded
    abi.py record    writes tests/data/abi/VERSION.txt, and VERSION.h.xz: the declarations without comments, for tests/e2e/test_abi.py

Until a version is released its record may be made again; afterwards it never changes. >>api-sizes of llm.h says what is promised; here it is
looked after:

- what is recorded is there still, with the same members, values and parameters; a program's and a library's struct may have more members
  at its end, the others may not; the structs of >>api-backend may change with LLM_BACKEND_ABI;
- a program's struct grows by whole 8 bytes, none of them in what was padding, and has none at its new end;
- every function that takes a program's struct has a twin NAME_sized; llm_sizes, LLM_SIZES_HERE and the layouts of src/serve/sized.c name
  the same structs.
"""
import lzma
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDS = ROOT / "tests/data/abi"
LIBRARY = {"llm_model_info", "llm_openai_info", "llm_outputs", "llm_sizes", "llm_trace", "llm_sample_step"} # structs that the library makes, or reads as far as they say
UNPASSED = {"llm_chat_sampling"} # returns a program's struct that the library keeps, with room behind it


def declarations(header):
    """The API part of llm.h without comments."""
    part = header[header.index("#ifndef LLM_H_INCLUDED"):header.index("#endif /* LLM_H_INCLUDED */")] + "#endif\n"
    part = re.sub(r'("(?:[^"\\\n]|\\.)*")|/\*.*?\*/', lambda m: m[1] or "", part, flags=re.S)
    return re.sub(r"\n\s*\n+", "\n", re.sub(r"[ \t]+\n", "\n", part))


def split(text, at=","):
    """At the commas, or what `at` is, outside of brackets."""
    out, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == at and not depth: out.append("")
        else: out[-1] += c
    return [" ".join(x.split()) for x in out if x.strip()]


def members(body):
    """[(type, name, array or parameters)]: "const char *stop[4]" is ("const char *", "stop", "[4]")"""
    out = []
    for declaration in split(body, ";"):
        m = re.match(r"(.*?\(\s*\*)\s*(\w+)(\s*\).*)$", declaration)
        if m:
            out.append((m[1] + ")", m[2], "(" + ", ".join(unnamed(p) for p in split(m[3].strip()[1:].strip()[1:-1])) + ")"))
            continue
        first, *others = split(declaration)
        m = re.match(r"(.*?)(\**\s*\w+\s*(?:\[.*\])?)$", first)
        for declarator in [m[2], *others]:
            d = re.match(r"(\**)\s*(\w+)\s*((?:\[.*\])?)$", declarator)
            out.append((f"{m[1].strip()} {d[1]}".strip(), d[2], d[3]))
    return out


def unnamed(parameter):
    """A parameter without its name."""
    if "(*" in parameter:
        m = re.match(r"(.*?\(\s*\*)\s*\w*\s*\)\s*\((.*)\)$", parameter)
        return m[1] + ")(" + ", ".join(unnamed(p) for p in split(m[2])) + ")"
    m = re.match(r"(.*[\s*])(\w+)(\[.*\])?$", parameter)
    if not m or m[1].split() in (["const"], ["struct"]): return parameter
    return m[1].strip() + (m[3] or "")


class Api:
    """structs: name -> [(type, name, suffix)]; enumerators: names; functions, callbacks: name -> text; backend: structs of >>api-backend"""

    def __init__(self, header):
        self.text = declarations(header)
        plain = re.sub(r"^#(?:.*\\\n)*.*\n", "", self.text, flags=re.M).replace('extern "C" {', "")
        self.structs = {m[1]: members(m[2]) for m in re.finditer(r"typedef struct (llm\w*) \{(.*?)\n?\} \1;", plain, re.S)}
        self.enumerators = [n for m in re.finditer(r"\benum\b[^;{(]*\{(.*?)\}", plain, re.S) for n in re.findall(r"\b(LLM_\w+)\b(?=\s*[,=]|\s*$)", m[1])]
        self.functions, self.callbacks = {}, {}
        for m in re.finditer(r"^LLM_API\s+([^;{]*?)\b(llm_\w+)\(([^;]*)\);", plain, re.M):
            self.functions[m[2]] = f"{' '.join(m[1].split())} {m[2]}({', '.join(unnamed(p) for p in split(m[3]))})"
        for m in re.finditer(r"^typedef ([^;{]*?)\(\*(\w+)\)\(([^;]*)\);", plain, re.M):
            self.callbacks[m[2]] = f"{' '.join(m[1].split())} {m[2]}({', '.join(unnamed(p) for p in split(m[3]))})"
        self.program = ["llm_" + name for _, name, _ in self.structs["llm_sizes"][1:]]
        self.version = re.search(r'#define LLM_VERSION_STRING "(.*)"', self.text)[1]
        self.backend_abi = int(re.search(r"#define LLM_BACKEND_ABI (\d+)", self.text)[1])
        backend = header[header.index("\n * >>api-backend "):header.index("#endif /* LLM_H_INCLUDED */")]
        self.backend = set(re.findall(r"^typedef struct (llm_\w+) \{", backend, re.M)) - {"llm_spent"}

    def kind(self, struct):
        return "program" if struct in self.program else "library" if struct in LIBRARY else "backend" if struct in self.backend else "fixed"

    def record(self):
        """The record's text, with what the compiler says of offsets, sizes and values."""
        rows = [f'printf("version {self.version}\\nbackend {self.backend_abi}\\n");']
        for name, all_members in self.structs.items():
            rows.append(f'printf("struct {name} {self.kind(name)} %zu\\n", sizeof({name}));')
            for kind, member, suffix in all_members:
                rows.append(f'printf("  %zu %zu {kind} {member}{suffix}\\n", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));')
        rows += [f'printf("enumerator {n} %lld\\n", (long long){n});' for n in self.enumerators]
        rows += [f'printf("callback {text}\\n");' for text in self.callbacks.values()] + [f'printf("function {text}\\n");' for text in self.functions.values()]
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder) / "probe.c", pathlib.Path(folder) / "probe"
            source.write_text(f"{self.text}\n#include <stdio.h>\nint main(void) {{\n" + "\n".join(rows) + "\nreturn 0;\n}\n")
            subprocess.run(["cc", "-std=c11", "-w", str(source), "-o", str(program)], check=True)
            return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout


class Record:
    """structs: name -> (kind, size, [(offset, size, "type name")]); enumerators: name -> value; texts: callbacks and functions"""

    def __init__(self, text):
        self.structs, self.enumerators, self.texts = {}, {}, {}
        for line in text.splitlines():
            word, _, rest = line.strip().partition(" ")
            if word == "struct":
                name, kind, size = rest.split()
                self.structs[name] = (kind, int(size), [])
            elif word.isdigit():
                size, _, what = rest.partition(" ")
                self.structs[name][2].append((int(word), int(size), what))
            elif word == "enumerator": self.enumerators[rest.split()[0]] = int(rest.split()[1])
            elif word in ("callback", "function"): self.texts[re.search(r"(\w+)\(", rest.replace("(*", ""))[1]] = rest
            elif word == "version": self.version = rest
            elif word == "backend": self.backend = int(rest)

    def growing(self, what):
        """The program's struct that a member is, or ""."""
        kind = what.rsplit(" ", 1)[0]
        return kind if self.structs.get(kind, ("",))[0] == "program" else ""


def compare_struct(name, old, new):
    """What is wrong with a struct that was recorded, or ""."""
    if name not in new.structs: return "is gone"
    (kind, size, had), (kind_now, size_now, has) = old.structs[name], new.structs[name]
    if kind != kind_now: return f"was one of the {kind}'s structs, and is one of the {kind_now}'s"
    if kind == "backend" and new.backend > old.backend: return ""
    moved = 0 # by inner structs that have grown
    for i, (at, bytes_, what) in enumerate(had):
        if i >= len(has) or has[i][2] != what: return f"member {i} was \"{what}\", and is \"{has[i][2] if i < len(has) else 'gone'}\""
        if has[i][0] != at + moved: return f"{what} stood at {at}, and stands at {has[i][0]}"
        grown = has[i][1] - bytes_
        if grown and not (old.growing(what) and grown > 0): return f"{what} had {bytes_} bytes, and has {has[i][1]}"
        moved += grown
    more = has[len(had):]
    if kind in ("fixed", "backend") and (more or size != size_now):
        return "never changes, but has " + (f"new members: {more[0][2]}" if more else f"{size_now} bytes instead of {size}") + (
            ": raise LLM_BACKEND_ABI" if kind == "backend" else "")
    if kind == "program" and more:
        if more[0][0] < size + moved: return f"{more[0][2]} stands in what was padding at the end: a program may have left anything there; begin with a member of 8 bytes"
        if more[-1][0] + more[-1][1] != size_now or (size_now - size) % 8: return "grows by members of 8 bytes, or two of 4, so that there is no padding at its end"
    return ""


def compare(old, new):
    """[(what was looked at, what is wrong with it or "")]"""
    out = [(f"struct {name}", compare_struct(name, old, new)) for name in old.structs]
    for name, value in old.enumerators.items():
        now = new.enumerators.get(name)
        out.append((f"enumerator {name}", "" if now == value else f"was {value}, and is {'gone' if now is None else now}"))
    for name, text in old.texts.items():
        now = new.texts.get(name, "gone")
        out.append((name, "" if now == text else f"was \"{text}\", and is \"{now}\""))
    return out


def twins(api):
    """Functions with a program's struct, and their twins."""
    out = []
    for name, text in api.functions.items():
        if name.endswith("_sized") or name in UNPASSED: continue
        parameters = text[text.index("("):]
        if not any(re.search(rf"\b{s}\b", parameters.replace("llm_sampling_params", "llm_sampling")) for s in api.program): continue
        want = text.replace(name + "(", name + "_sized(const llm_sizes *, ")
        have = api.functions.get(name + "_sized")
        out.append((name + "_sized", "" if have == want else f"{want} was expected in src/api/sizes.h, not {have}"))
    return out


def lists(api, essay, sized):
    """The places that name all program's structs agree."""
    out = []
    here = re.search(r"#define LLM_SIZES_HERE ((?:.*\\\n)*.*)", api.text)[1]
    out.append(("LLM_SIZES_HERE", "" if re.findall(r"sizeof\((\w+)\)", here) == ["llm_sizes", *api.program] else "other structs than in llm_sizes"))
    rows = {"llm_" + m[1]: m[2] for m in re.finditer(r"^LLM__SIZED\((\w+), (.*)\);", sized, re.M)}
    out.append(("src/serve/sized.c", "" if list(rows) == api.program else "LLM__SIZED names other structs than llm_sizes"))
    for name in api.program:
        want = [(name, member, kind) for kind, member, _ in api.structs[name] if kind in api.program]
        have = [tuple(x if i == 1 else "llm_" + x for i, x in enumerate(m)) for m in re.findall(r"LLM__INNER\((\w+), (\w+), (\w+)\)", rows.get(name, ""))]
        out.append((f"LLM__SIZED({name[4:]})", "" if have == want else f"inner structs {want} were expected, not {have}"))
    fixed = sorted(s for s in api.structs if api.kind(s) == "fixed")
    said = sorted(re.findall(r"llm_\w+", re.search(r"All others never change:(.*?)\n \*\n", essay, re.S)[1]))
    out.append(("api-sizes", "" if fixed == said else f"never change, it says, {' '.join(said)}; these are neither in llm_sizes nor the library's: {' '.join(fixed)}"))
    return out


def everything():
    """All checks of the tree as it is: [(name, what is wrong or "")]"""
    header = (ROOT / "llm.h").read_text()
    api = Api(header)
    out = twins(api) + lists(api, header, (ROOT / "src/serve/sized.c").read_text())
    new = Record(api.record())
    records = sorted(RECORDS.glob("*.txt"))
    if not records: out.append(("records", "none in tests/data/abi: abi.py record makes one"))
    for path in records: out += [(f"{path.stem}: {name}", why) for name, why in compare(Record(path.read_text()), new)]
    return out


def recorded_headers():
    """{version: declarations}"""
    return {p.name.removesuffix(".h.xz"): lzma.decompress(p.read_bytes()).decode() for p in sorted(RECORDS.glob("*.h.xz"))}


def main():
    api = Api((ROOT / "llm.h").read_text())
    if sys.argv[1:] == ["show"]: return print(api.record(), end="")
    if sys.argv[1:] == ["record"]:
        RECORDS.mkdir(exist_ok=True)
        (RECORDS / f"{api.version}.txt").write_text(api.record())
        (RECORDS / f"{api.version}.h.xz").write_bytes(lzma.compress(api.text.encode(), preset=9))
        return
    if sys.argv[1:]: sys.exit(__doc__)
    results = everything()
    for name, why in results:
        if why: print(f"FAILED: {name} {why}")
    failed = sum(bool(why) for _, why in results)
    print(f"{len(results) - failed} passed, {failed} failed, 0 skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__": main()
