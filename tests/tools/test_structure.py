#!/usr/bin/env python3
"""Does structure.py refuse what it is there to refuse? Each bad edit is made in a copy of the tree under build/structure, where it has to be the only
new failure. Prints "N passed, N failed, 0 skipped"."""
import concurrent.futures
import contextlib
import io
import multiprocessing
import os
import pathlib
import re
import runpy
import shutil
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


def planted(body, head="static int llm__planted(void)"):
    return lambda text: text + f"\n{head} {{\n{body}\n}}\n"


def first(path, pattern):
    return re.search(pattern, pathlib.Path(path).read_text(), re.M)[1]


MADE = "llm.h is what src/ gives"
LONG = planted("    int n = 0;\n" + "    n++;\n" * 60 + "    return n;")
KEPT = first("src/base/json.c", r"^static [^=;{]*?\b(llm__\w+)\(")
OFFERED = first("src/base/map.h", r"^LLM__PRIVATE [^=;{]*?\b(llm__\w+)\(")
ABOVE = first("src/engine/kv.h", r"^LLM__PRIVATE [^=;{]*?\b(llm__\w+)\(")
REASON = lambda lines, why: lambda text: text.replace("LONG_FUNCTIONS = {", f'LONG_FUNCTIONS = {{"llm__planted": ({lines}, "{why}"), ', 1)
# what is done: (the edits, the check that has to fail)
CASES = {
    "an edit of llm.h alone": ([("llm.h", lambda text: text.replace("\n\n", "\n/* more */\n\n", 1))], MADE),
    "a section of llm_cuda.cu that its contents lack": ([("llm_cuda.cu", lambda text: re.sub(r" \*     >>lora .*\n", "", text))], "llm_cuda.cu: its contents"),
    "a wide line of llm_cuda.cu": ([("llm_cuda.cu", lambda text: text + "/* " + "x" * 140 + " */\n")], "llm_cuda.cu: width"),
    "a long kernel": ([("llm_cuda.cu", planted("    int n = 0;\n" + "    n++;\n" * 90 + "    return n;"))], "llm_cuda.cu: functions"),
    "an edit of src/ alone": ([("src/base/log.c", lambda text: text + "\n/* more */\n")], MADE),
    "an edit of the page alone": ([("src/page/page.css", lambda text: text + "\n.planted { top: 1px }\n")], MADE),
    "an edit of the page in llm_serve.c alone": ([("llm_serve.c", lambda text: text.replace("New chat", "Chat"))], MADE),
    "an upward include": ([("src/base/log.c", lambda text: planted(f"    return !!{ABOVE};")(text.replace('#include "', '#include "engine/kv.h"\n#include "', 1)))],
                          "base/log.c: arrows go down"),
    "a call of a static function of another file": ([("src/engine/step.c", planted(f"    return !!{KEPT};"))], "engine/step.c: calls no static function of others"),
    "a call of a function whose header is not included": ([("src/base/log.c", planted(f"    return !!{OFFERED};"))], "base/log.c: includes what it uses"),
    "an include that is not used": ([("src/base/log.c", lambda text: text.replace('#include "', '#include "base/map.h"\n#include "', 1))],
                                    "base/log.c: uses what it includes"),
    "a function that is offered to nobody": ([("src/base/log.h", lambda text: text + "\n/* Cannot fail. */\nLLM__PRIVATE int llm__planted(void);\n"),
                                             ("src/base/log.c", planted("    return 0;", "LLM__PRIVATE int llm__planted(void)"))],
                                            "base/log.h: llm__planted is used elsewhere"),
    "a long function": ([("src/base/log.c", LONG)], "base/log.c: llm__planted"),
    "a long function with a reason": ([("src/base/log.c", LONG), ("tests/tools/structure.py", REASON(70, "one table"))], None),
    "a long function with an empty reason": ([("src/base/log.c", LONG), ("tests/tools/structure.py", REASON(70, ""))], "base/log.c: llm__planted"),
    "a wide line": ([("src/base/log.c", lambda text: text + "/* " + "x" * 140 + " */\n")], "base/log.c: width"),
    "a tag that is nowhere": ([("src/base/log.c", lambda text: text + "\n/* as in >>nowhere */\n")], "src/base/log.c: tags"),
}


def case(name, before):
    """In a process of its own. llm.h is not made again, so that it differs after most edits, which counts where nothing else has to fail."""
    edits, want = CASES[name]
    folder = copy(re.sub(r"\W+", "-", name))
    for path, change in edits: edit(folder, path, change)
    new = failures(folder) - before
    if want != MADE: new.discard(MADE)
    shutil.rmtree(folder)
    return name, new, new == ({want} if want else set())


def main():
    before = failures(copy("unchanged"))
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        results = list(pool.map(case, CASES, [before] * len(CASES)))
    for name, new, good in results:
        if not good: print(f"FAILED: {name}: expected {CASES[name][1]}, found {sorted(new)}")
    print(f"{sum(good for *_, good in results)} passed, {sum(not good for *_, good in results)} failed, 0 skipped")
    sys.exit(not all(good for *_, good in results))


main()
