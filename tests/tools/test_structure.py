#!/usr/bin/env python3
"""Does structure.py refuse what it is there to refuse? Bad edits of as many files are made in one copy of the tree under build/structure: each has to
bring its failure, and together they bring no other. What amalgamate.py refuses is asked edit by edit. Prints "N passed, N failed, 0 skipped"."""
import contextlib
import io
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

ROOT = pathlib.Path("build/structure")


def copy(name):
    """A tree with all that structure.py reads."""
    to = ROOT / name
    shutil.rmtree(to, ignore_errors=True)
    for pattern in ("src/**/*", "tests/**/*.[ch]", "tests/tools/*.py", "tests/e2e/*.py", "llm*.[ch]", "llm*.cu"):
        for path in pathlib.Path().glob(pattern):
            if not path.is_file() or "__pycache__" in path.parts: continue
            (to / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to / path)
    return to


def failures(folder):
    """Names of the checks that fail there. What csource.py found in a text is kept from one folder to the next."""
    out, here, code = io.StringIO(), os.getcwd(), None
    os.chdir(folder)
    with contextlib.redirect_stdout(out):
        try: runpy.run_path("tests/tools/structure.py", run_name="__main__")
        except SystemExit as end: code = end.code
    os.chdir(here)
    found = set(re.findall(r"^FAILED: ((?:src/)?[\w./]+: [^:]*|[^:]*):", out.getvalue(), re.M))
    if not re.search(r"\d+ passed, \d+ failed", out.getvalue()) or (code == 0) != (not found): found.add(f"structure.py itself: exit {code}")
    return found


def edit(folder, path, change):
    path = folder / path
    path.write_text(change(path.read_text()))


def planted(name, body, head="static int"):
    return lambda text: text + f"\n{head} {name}(void) {{\n{body}\n}}\n"


def first(path, pattern):
    return re.search(pattern, pathlib.Path(path).read_text(), re.M)[1]


MADE = "llm.h is what src/ gives"
LONG = "    int n = 0;\n" + "    n++;\n" * 60 + "    return n;"
WIDE = lambda text: text + "/* " + "x" * 140 + " */\n"
KEPT = first("src/base/json.c", r"^static [^=;{]*?\b(llm__\w+)\(")
OFFERED = first("src/base/map.h", r"^LLM__PRIVATE [^=;{]*?\b(llm__\w+)\(")
ABOVE = first("src/engine/kv.h", r"^LLM__PRIVATE [^=;{]*?\b(llm__\w+)\(")
including = lambda header, change=lambda text: text: lambda text: change(text.replace('#include "', f'#include "{header}"\n#include "', 1))
excused = lambda name, lines, why: lambda text: text.replace("LONG_FUNCTIONS = {", f'LONG_FUNCTIONS = {{"{name}": ({lines}, "{why}"), ', 1)
# what is done: (the edits, the check that has to fail)
CASES = {
    "a section of llm_cuda.cu that its contents lack": ([("llm_cuda.cu", lambda text: re.sub(r" \*     >>lora .*\n", "", text))], "llm_cuda.cu: its contents"),
    "a wide line of llm_cuda.cu": ([("llm_cuda.cu", WIDE)], "llm_cuda.cu: width"),
    "a long kernel": ([("llm_cuda.cu", planted("llm__planted_kernel", LONG + "\n" * 40))], "llm_cuda.cu: functions"),
    "an upward include": ([("src/base/log.c", including("engine/kv.h", planted("llm__planted_upward", f"    return !!{ABOVE};")))], "base/log.c: arrows go down"),
    "a call of a static function of another file": ([("src/engine/step.c", planted("llm__planted_taken", f"    return !!{KEPT};"))],
                                                    "engine/step.c: calls no static function of others"),
    "a call of a function whose header is not included": ([("src/base/number.c", planted("llm__planted_bare", f"    return !!{OFFERED};"))],
                                                          "base/number.c: includes what it uses"),
    "an include that is not used": ([("src/base/sha256.c", including("base/map.h"))], "base/sha256.c: uses what it includes"),
    "a function that is offered to nobody": ([("src/base/place.h", lambda text: text + "\n/* Cannot fail. */\nLLM__PRIVATE int llm__planted_offered(void);\n"),
                                             ("src/base/place.c", planted("llm__planted_offered", "    return 0;", "LLM__PRIVATE int"))],
                                            "base/place.h: llm__planted_offered is used elsewhere"),
    "a long function": ([("src/base/save.c", planted("llm__planted_long", LONG))], "base/save.c: llm__planted_long"),
    "a long function with a reason": ([("src/base/host.c", planted("llm__planted_reason", LONG)), ("tests/tools/structure.py", excused("llm__planted_reason", 70, "a table"))], None),
    "a long function with an empty reason": ([("src/base/child.c", planted("llm__planted_excuse", LONG)), ("tests/tools/structure.py", excused("llm__planted_excuse", 70, ""))],
                                             "base/child.c: llm__planted_excuse"),
    "a wide line": ([("src/base/fields.c", WIDE)], "base/fields.c: width"),
    "a tag that is nowhere": ([("src/base/index.c", lambda text: text + "\n/* as in >>nowhere */\n")], "src/base/index.c: tags"),
}
# one edit each, after which llm.h or the page in llm_serve.c is not what src/ gives
UNMADE = {
    "an edit of llm.h alone": ("llm.h", lambda text: text.replace("\n\n", "\n/* more */\n\n", 1)),
    "an edit of src/ alone": ("src/base/log.c", lambda text: text + "\n/* more */\n"),
    "an edit of the page alone": ("src/page/page.css", lambda text: text + "\n.planted { top: 1px }\n"),
    "an edit of the page in llm_serve.c alone": ("llm_serve.c", lambda text: text.replace("New chat", "Chat")),
}


def refused(before):
    """(what was done, whether it was found) of each bad edit, and of there being nothing else."""
    folder = copy("edited")
    for edits, _ in CASES.values():
        for path, change in edits: edit(folder, path, change)
    new = failures(folder) - before
    for name, (_, want) in CASES.items():
        if want: yield name, want in new
    more = new - {want for _, want in CASES.values()} - {MADE}
    yield "no other failure: " + " ".join(sorted(more)), not more
    yield "llm.h is not what the edited src/ gives", MADE in new


def unmade():
    folder = copy("unmade")
    made = lambda: subprocess.run([sys.executable, "src/amalgamate.py", "--check"], cwd=folder, capture_output=True).returncode == 0
    yield "the unchanged tree is made of src/", made()
    for name, (path, change) in UNMADE.items():
        text = (folder / path).read_text()
        edit(folder, path, change)
        yield name, not made()
        (folder / path).write_text(text)


def main():
    results = [*refused(failures(copy("unchanged"))), *unmade()]
    for name, good in results:
        if not good: print(f"FAILED: {name}")
    print(f"{sum(good for _, good in results)} passed, {sum(not good for _, good in results)} failed, 0 skipped")
    sys.exit(not all(good for _, good in results))


main()
