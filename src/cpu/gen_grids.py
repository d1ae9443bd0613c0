#!/usr/bin/env python3
"""Writes the codebooks in src/cpu/grid_tables.h, between its markers.

    python3 src/cpu/gen_grids.py            then python3 src/amalgamate.py
    python3 src/cpu/gen_grids.py --check    writes nothing: 1 if the tables in the tree are others

It needs the package gguf, which has them as text; they were found by search when the formats were made, so there is no formula for them.
"""
import pathlib
import sys

import gguf.quants

OUT = pathlib.Path(__file__).with_name("grid_tables.h")
BEGIN, END = "/* generated: begin */\n", "/* generated: end */\n"
NAMES = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ3_XXS", "IQ3_S")


def entries(name):
    """Of each entry of a codebook the number of each value's level, the first lowest: 2 bits each of 8 values, or 3 of 4."""
    q = getattr(gguf.quants, name)
    q.init_grid()
    grid = q.grid.reshape(q.grid_shape)
    levels = sorted(set(grid.ravel().tolist()))
    bits = 2 if grid.shape[1] == 8 else 3
    assert len(levels) <= 1 << bits
    return levels, [sum(levels.index(v) << bits * i for i, v in enumerate(row)) for row in grid.tolist()]


def table(name):
    levels, numbers = entries(name)
    out, line = [f"/* Levels: {', '.join(f'{x:g}' for x in levels)}. */\nstatic const uint16_t llm__grid_{name.lower()}_[{len(numbers)}] = {{\n"], "   "
    for x in numbers:
        piece = f" 0x{x:x},"
        if len(line) + len(piece) > 139: out, line = [*out, line + "\n"], "   "
        line += piece
    return "".join([*out, line + "\n};\n"])


def main():
    text = OUT.read_text()
    head, tail = text[:text.index(BEGIN) + len(BEGIN)], text[text.index(END):]
    made = head + "".join(map(table, NAMES)) + tail
    if sys.argv[1:] == ["--check"]: return made != text
    OUT.write_text(made)


sys.exit(main())
