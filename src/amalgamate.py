#!/usr/bin/env python3
"""Makes llm.h from the parts in src/: every line "@part FILE" of src/llm.h.in is replaced by that file.

    src/amalgamate.py OUT
"""
import pathlib
import re
import sys

SRC = pathlib.Path(__file__).parent


def main():
    if len(sys.argv) != 2: sys.exit(__doc__)
    small = lambda text: "LLM__COLD_BEGIN\n" + text + "LLM__COLD_END\n"
    part = lambda m: small((SRC / m[1]).read_text()) if m[2] else (SRC / m[1]).read_text()
    text = re.sub(r"^@part (\S+)( small)?\n", part, (SRC / "llm.h.in").read_text(), flags=re.M)
    pathlib.Path(sys.argv[1]).write_text(text.replace("LLM__COLD_END\nLLM__COLD_BEGIN\n", ""))


main()
