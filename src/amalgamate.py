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
    text = re.sub(r"^@part (\S+)\n", lambda m: (SRC / m[1]).read_text(), (SRC / "llm.h.in").read_text(), flags=re.M)
    pathlib.Path(sys.argv[1]).write_text(text)


main()
