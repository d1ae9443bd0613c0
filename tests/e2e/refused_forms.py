"""Grammars, schemas, choices and structural tags that must be refused, each with a part of the sentence: by the library (test_grammar.py) and by the
server (test_serve_bad.py)."""

SCHEMA, OBJECT, REGEX, CHOICE, GBNF, TAG = range(1, 7) # llm_grammar_kind


def deep(n):
    s = {"type": "object"}
    for _ in range(n): s = {"type": "object", "properties": {"a": s}}
    return s


def many(n, schema):
    return {"properties": {f"p{i}": schema(i) for i in range(n)}}


REFUSED = [ # kind, text, part of the sentence
    (GBNF, 'root ::= e\ne ::= e "+" e | "1"', "left recursion"), (GBNF, 'root ::= a "x"\na ::= b?  c | "y"\nb ::= "b"\nc ::= a', "left recursion"),
    (GBNF, "root ::= root", "ever complete"), (GBNF, 'Root ::= "a"', '"root" expected'), (GBNF, "root ::= x", '"x"'), (GBNF, 'root ::= "a" root', "ever complete"),
    (GBNF, "root ::= " + "(" * 60000, "nested"), (GBNF, 'root ::= "abc', "quote"), (GBNF, "root ::= [a", "']'"), (GBNF, 'root ::= "a"{3,1}', "{n}"),
    (GBNF, '%llguidance {}\nstart: "a"', "GBNF"), (GBNF, 'root ::= "a"\nroot ::= "b"', "once"), (GBNF, "x" * (1 << 20) + "y", "bytes"),
    (GBNF, 'root ::= "a" )', "'('"), (GBNF, 'root ::= "\\q"', "escape"), (GBNF, "", '"root"'),
    (REGEX, "foo**" + "*" * 20, "quantifiers"), (REGEX, "(", "')'"), (REGEX, "[z-a]", "ascending"), (REGEX, "\\", "backslash"), (REGEX, "(?=a)b", "look-around"),
    (REGEX, "(a)\\1", "escape"), (REGEX, "a{3,1}", "ascending"), (REGEX, "a{100000}{100000}", "smaller count"), (REGEX, "(" * 30000 + ")" * 30000, "nesting"),
    (REGEX, "a$b", "ever complete"), (REGEX, "[" + "a" * (1 << 20) + "]", "bytes"), (REGEX, b"\xff", "UTF-8"),
    (CHOICE, [], "at least one"), (CHOICE, [1], "item 0"), (CHOICE, ["a", ""], "item 1"), (CHOICE, {}, "list"), (CHOICE, "[", "JSON"),
    (SCHEMA, {"$ref": "#"}, "itself"), (SCHEMA, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "itself"),
    (SCHEMA, {"$ref": "#/nowhere"}, "nothing in this document"), (SCHEMA, {"$ref": "http://x/y"}, "reference"), (SCHEMA, False, "satisfy"),
    (SCHEMA, {"type": "hiccup"}, "#/type"), (SCHEMA, 123, "a schema"), (SCHEMA, "{", "JSON"), (SCHEMA, {"properties": {"a": {"type": 3}}}, "#/properties/a/type"),
    (SCHEMA, {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "#/oneOf"), (SCHEMA, {"not": {}}, "satisfy"), (SCHEMA, {"not": {"pattern": "a"}}, "#/not/pattern"), (SCHEMA, {"not": {"const": 1}}, "#/not/const"), (SCHEMA, {"type": "number", "not": {"type": "integer"}}, "#/not"), (SCHEMA, {"type": "array", "uniqueItems": True}, "#/uniqueItems"),
    (SCHEMA, {"properties": {"x": {"type": "string", "format": "nope"}}}, "#/properties/x/format"), (SCHEMA, {"if": {"maxLength": 3}, "then": {"minLength": 2}}, "#/if/maxLength"),
    (SCHEMA, {"dependentRequired": {}}, "dependentRequired"), (SCHEMA, {"contains": 1}, "#/contains"), (SCHEMA, {"allOf": [{"contains": {"const": c}} for c in "ab"]}, "#/allOf/1/contains"),
    (SCHEMA, {"contains": {"const": 5}, "maxContains": 1}, "#/contains"), (SCHEMA, {"contains": {"type": "null"}, "minContains": 10**6}, "#/contains"), (SCHEMA, {"contains": {"type": "null"}, "minContains": 3, "maxItems": 2}, "satisfy"),
    (SCHEMA, {"contains": {"type": "null"}, "minContains": -1}, "#/minContains"), (SCHEMA, {"contains": {}, "uniqueItems": True}, "#/uniqueItems"), (SCHEMA, {"items": {"enum": list(range(11))}, "uniqueItems": True}, "#/uniqueItems"),
    (SCHEMA, {"items": {"enum": [[1], [2]]}, "uniqueItems": True}, "#/uniqueItems"), (SCHEMA, {"items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3}, "satisfy"), (SCHEMA, {"prefixItems": [{}], "items": {"enum": [1]}, "uniqueItems": True}, "#/uniqueItems"),
    (SCHEMA, {"propertyNames": 3}, "#/propertyNames"), (SCHEMA, {"propertyNames": {"pattern": "(?=a)"}}, "#/propertyNames/pattern"), (SCHEMA, {"propertyNames": {"pattern": "^a"}, "required": ["b"]}, "satisfy"),
    (SCHEMA, {"propertyNames": {"pattern": "^a"}, "patternProperties": {"a": {}}}, "#/patternProperties"), (SCHEMA, {"propertyNames": {"maxLength": 2}, "properties": {"ab": {}}, "additionalProperties": {}}, "#/propertyNames"),
    (SCHEMA, {"$ref": "#/$defs/a0", "$defs": {f"a{i}": {"enum": [{"x": 1}], "properties": {f"x{k}": {"$ref": f"#/$defs/a{k}"} for k in range(i + 1, 20)}} for i in range(20)}}, "takes too long"), # each line doubles the work
    (SCHEMA, {"enum": list(range(30000)), "not": {"enum": [str(i) for i in range(30000)]}}, "takes too long"), # would take the square of their lengths
    (SCHEMA, {"oneOf": [{"enum": list(range(30000))}, {"enum": [str(i) for i in range(30000)]}]}, "takes too long"),
    (SCHEMA, {"not": {"contains": {"type": "null"}}}, "#/not/contains"), (SCHEMA, {"not": {"propertyNames": {"const": "a"}}}, "#/not/propertyNames"), (SCHEMA, {"type": "number", "multipleOf": 0}, "#/multipleOf"),
    (SCHEMA, {"type": "number", "multipleOf": 3001}, "#/multipleOf"), (SCHEMA, {"type": "integer", "multipleOf": 1e-300}, "#/multipleOf"), (SCHEMA, {"type": "number", "multipleOf": -2}, "#/multipleOf"),
    (SCHEMA, {"type": "integer", "minimum": 5, "maximum": 4}, "satisfy"), (SCHEMA, {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1}, "satisfy"),
    (SCHEMA, {"type": "string", "minLength": 5, "maxLength": 4}, "satisfy"), (SCHEMA, {"minLength": -1}, "#/minLength"), (SCHEMA, {"maxLength": "3"}, "#/maxLength"),
    (SCHEMA, {"enum": []}, "satisfy"), (SCHEMA, {"enum": 3}, "#/enum"), (SCHEMA, {"required": ["a"], "properties": {"a": False}}, "satisfy"), (SCHEMA, {"required": 3}, "#/required"),
    (SCHEMA, {"required": [3]}, "#/required"), (SCHEMA, {"properties": []}, "#/properties"), (SCHEMA, {"anyOf": []}, "#/anyOf"), (SCHEMA, {"anyOf": {}}, "#/anyOf"), (SCHEMA, {"allOf": 1}, "#/allOf"),
    (SCHEMA, {"pattern": "^(?!a)b|c"}, "#/pattern"), (SCHEMA, {"pattern": "^(?!(?=b))c"}, "#/pattern"), (SCHEMA, {"pattern": "^(?=a", "format": "email"}, "#/pattern"), (SCHEMA, {"format": "cuid2"}, "#/format"), (SCHEMA, {"format": "date", "pattern": "^a"}, "satisfy"),
    (SCHEMA, {"allOf": [{"pattern": "^[^x]*" + c} for c in "abcdefgh"], "minLength": 400}, "#/allOf/0/pattern"), (SCHEMA, {"allOf": [{"pattern": c} for c in "abcdefghijklm"]}, "/pattern"), (SCHEMA, {"contains": False, "type": "array"}, "satisfy"), (SCHEMA, {"contentEncoding": "base64"}, "#/contentEncoding"),
    (SCHEMA, {"format": "uri", "maxLength": 500}, "#/format"), (SCHEMA, {"type": "string", "pattern": "("}, "#/pattern"), (SCHEMA, {"type": "string", "pattern": "(?=a)"}, "#/pattern"), (SCHEMA, {"pattern": "a", "maxLength": 10**7}, "#/pattern"), (SCHEMA, {"pattern": "^a{3}$", "maxLength": 2}, "satisfy"),
    (SCHEMA, deep(70), "64 levels"), (SCHEMA, deep(300), "deep"), (SCHEMA, {"minimum": "1"}, "#/minimum"), (SCHEMA, {"minimum": 10**50}, "#/minimum"),
    (SCHEMA, {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "ever complete"),
    (SCHEMA, {"patternProperties": {"a": {}, "b": {}}}, "#/patternProperties"), (SCHEMA, {"patternProperties": {"(": {}}}, "regex"),
    (TAG, {}, "triggers"), (TAG, {"structures": [{}], "triggers": ["a"]}, "begin"), (TAG, {"structures": [{"begin": "x", "schema": {}, "end": ""}], "triggers": ["<"]}, "trigger"),
    (TAG, {"structures": [{"begin": "<", "schema": {"unevaluatedItems": {}}, "end": ""}], "triggers": ["<"]}, "#/unevaluatedItems"),
    # Small texts that could keep a compiler busy for seconds to hours: ways to read given values, regexes by names, unions, ambiguous patterns, rules
    (SCHEMA, many(30, lambda i: {"enum": ["a" * 3000], "pattern": f"^(a{{0,30}}){{0,30}}(a{{0,3{i}}}){{0,30}}$"}), "too"), (SCHEMA, many(3, lambda i: {"enum": ["a" * 2000], "pattern": "^(?:a{0,900}){0,900}" + "b?" * i + "$"}), "too many ways"),
    (SCHEMA, {**many(400, lambda i: {}), "patternProperties": {f"(?i)\\p{{L}}{{3}}[a-z]x{i}": {} for i in range(400)}}, "too long"),
    (SCHEMA, {"oneOf": [{"$ref": f"#/$defs/n{i}"} for i in range(100)], "$defs": {f"n{i}": {**many(20, lambda k: {"$ref": f"#/$defs/n{(i + k + 1) % 100}"}), "required": [f"p{k}" for k in range(20)]} for i in range(100)}}, "too long"),
    (SCHEMA, {"allOf": [{"pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(10, 18)]}, "o"), (SCHEMA, {"pattern": "^(?=.{0,900}a.{0,100}b)(?!.{100,800}c)[^x]*$", "minLength": 500, "maxLength": 1000}, "o"),
    (SCHEMA, {"allOf": [many(1500, lambda k: {"minimum": i}) for i in range(15)]}, "too long"),
    (REGEX, "(?i)" + "[\\p{Ll}\\p{Lt}\\p{N}]" * 380, "instructions"), (REGEX, "(?i)" + "[\\p{Ll}\\p{Lt}\\p{N}]" * 1500, "smaller character classes"),
    (GBNF, "root ::= r0\n" + "".join(f'r{i} ::= "a" r{(i + 4999) % 10000}\n' for i in range(9999)) + 'r9999 ::= "x"', "too long"), (GBNF, "root ::= " + " | ".join(f"[{chr(65 + i % 26)}{chr(97 + i // 26 % 26)}{chr(48 + i // 676 % 10)}]" for i in range(90000)), "too many ways"),
]
