#!/usr/bin/env python3
"""Makes expected.json: every template of FOLDER/templates with every context of FOLDER/contexts, as Jinja renders it the way transformers sets it up.

    make_templates.py FOLDER       from PyPI: jinja2==3.1.6; then: data.py pack chat_templates FOLDER

A template that must refuse a context gives {"raises": the first line of the error}. The time is always 2024-07-26 00:00.
"""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what a model wrote; in a prompt it means nothing."""
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def refuse(message):
    raise jinja2.TemplateError(message)


def environment():
    e = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    e.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    e.filters["from_json"] = json.loads
    e.globals.update(raise_exception=refuse, strftime_now=datetime.datetime(2024, 7, 26).strftime)
    return e


def main():
    if len(sys.argv) != 2: sys.exit(__doc__)
    folder, expected = pathlib.Path(sys.argv[1]), {}
    for template in sorted(folder.glob("templates/*.jinja")):
        for context in sorted(folder.glob("contexts/*.json")):
            try: result = {"text": environment().from_string(template.read_text()).render(**json.loads(context.read_text()))}
            except Exception as error: result = {"raises": f"{type(error).__name__}: {error}".splitlines()[0]}
            expected[f"{template.stem}|{context.stem}"] = result
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1, sort_keys=True) + "\n")


main()
