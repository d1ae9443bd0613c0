"""Schemas to walk through: kinds that people send (pydantic's and OpenAI's shapes, the kinds of llama.cpp's grammar tests), and a generator of
random ones, with documents that look like what a schema wants and mostly are not."""
import copy
import json

TEXT, INT, NUMBER, BOOL, NULL = ({"type": t} for t in ("string", "integer", "number", "boolean", "null"))


def thing(properties, required=None, **more):
    """An object that needs all its properties, unless said otherwise."""
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required, **more}


def nullable(schema):
    return {"anyOf": [schema, {"type": "null"}], "default": None}


PYDANTIC = [ # what model_json_schema() of pydantic 2 writes
    thing({"pet": {"discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"}, "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}], "title": "Pet"},
           "n": {"default": 1, "exclusiveMinimum": 0, "title": "N", "type": "integer"}}, ["pet"], title="Model", **{"$defs": {
               "Cat": thing({"kind": {"const": "cat", "default": "cat", "title": "Kind", "type": "string"}, "lives": {"maximum": 9, "minimum": 1, "title": "Lives", "type": "integer"}}, ["lives", "kind"], title="Cat"),
               "Dog": thing({"kind": {"const": "dog", "title": "Kind", "type": "string"}, "good": {"default": True, "title": "Good", "type": "boolean"}}, ["kind"], title="Dog")}}),
    thing({"tags": {"items": TEXT, "title": "Tags", "type": "array", "uniqueItems": False}, "at": nullable({"format": "date-time", "type": "string"}), "id": {"format": "uuid", "type": "string"},
           "price": {"anyOf": [NUMBER, {"type": "string", "pattern": "^\\d{1,6}(\\.\\d{2})?$"}]}, "color": {"$ref": "#/$defs/Color", "default": "red"}}, ["id"],
          **{"$defs": {"Color": {"enum": ["red", "green", "blue"], "title": "Color", "type": "string"}}}),
    thing({"pair": {"maxItems": 2, "minItems": 2, "prefixItems": [INT, TEXT], "type": "array"}, "scores": {"additionalProperties": {"type": "number", "minimum": 0}, "type": "object"},
           "when": {"format": "date", "type": "string"}, "level": {"enum": [1, 2, 3], "type": "integer"}}),
    thing({"value": INT, "children": {"items": {"$ref": "#/$defs/Node"}, "type": "array", "maxItems": 2}}, **{"$defs": {
        "Node": thing({"value": INT, "children": {"default": [], "items": {"$ref": "#/$defs/Node"}, "type": "array", "maxItems": 2}}, ["value"])}}),
]
STRICT = [ # OpenAI's strict mode: everything required, additionalProperties false
    thing({"steps": {"type": "array", "items": {"$ref": "#/$defs/step"}}, "final_answer": TEXT}, additionalProperties=False,
          **{"$defs": {"step": thing({"explanation": TEXT, "output": TEXT}, additionalProperties=False)}}),
    thing({"linked_list": {"$ref": "#/$defs/node"}}, additionalProperties=False, **{"$defs": {
        "node": thing({"value": NUMBER, "next": {"anyOf": [{"$ref": "#/$defs/node"}, NULL]}}, additionalProperties=False)}}),
    thing({"type": {"type": "string", "enum": ["div", "button"]}, "children": {"type": "array", "items": {"$ref": "#"}}}, additionalProperties=False),
    thing({"location": {"type": "string", "description": "City"}, "unit": {"type": ["string", "null"], "enum": ["F", "C", None]}}, additionalProperties=False),
    {"anyOf": [thing({"id": {"const": c}, c: INT}, additionalProperties=False) for c in "ab"]},
]
ZOD = [ # what z.toJSONSchema of zod 4 writes: patterns beside formats, look-ahead, records of given names
    thing({"id": {"type": "string", "format": "uuid", "pattern": "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$"},
           "email": {"type": "string", "format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"},
           "at": {"type": "string", "format": "date-time", "pattern": "^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))T(?:(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:\\.\\d+)?)?(?:Z))$"},
           "n": {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}}, additionalProperties=False),
    thing({"s": {"type": "string", "allOf": [{"pattern": "^user_.*"}, {"pattern": ".*_x$"}], "maxLength": 20}, "key": {"type": "string", "minLength": 4, "maxLength": 12, "pattern": "^(?=.*[A-Z])(?=.*\\d)(?!.*\\s).+$"}, "q": {"type": "string", "pattern": "^(?!\\s*$).+"}}, additionalProperties=False),
    thing({"r": {"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b", "c"]}, "additionalProperties": NUMBER, "required": ["a", "b"]}, "e": {"anyOf": [{"type": "array", "contains": False}, BOOL]}}, additionalProperties=False),
]
NUMBERS = [{"type": "integer", **b} for b in (
    {}, {"minimum": 0}, {"minimum": 1}, {"minimum": 3}, {"minimum": 9}, {"minimum": 10}, {"minimum": 25}, {"maximum": 30}, {"minimum": -5}, {"minimum": -123}, {"maximum": -5}, {"maximum": 1}, {"maximum": 100},
    {"minimum": 0, "maximum": 23}, {"minimum": 15, "maximum": 300}, {"minimum": 5, "maximum": 30}, {"minimum": -123, "maximum": 42}, {"minimum": -10, "maximum": 10}, {"exclusiveMinimum": 0, "exclusiveMaximum": 2},
    {"minimum": 100, "maximum": 100}, {"minimum": 999, "maximum": 1001}, {"multipleOf": 5}, {"multipleOf": 7, "minimum": 1, "maximum": 60}, {"multipleOf": 60, "minimum": 0, "maximum": 3600}, {"multipleOf": 12, "exclusiveMinimum": -40},
    {"multipleOf": 0.5, "maximum": 9}, {"allOf": [{"multipleOf": 4}, {"multipleOf": 6}], "minimum": 0, "maximum": 99})] + [{"type": "number", **b} for b in (
    {"minimum": 0}, {"minimum": 0, "maximum": 1}, {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"minimum": -1.5, "maximum": 2.25}, {"minimum": 0.125, "maximum": 0.25}, {"maximum": -0.5}, {"minimum": 99.5}, {"exclusiveMinimum": 9.75, "maximum": 10},
    {"multipleOf": 0.25, "minimum": 0, "maximum": 5}, {"multipleOf": 2.5}, {"multipleOf": 3}, {"multipleOf": 1, "minimum": 7}, {"minimum": 1e3, "maximum": 1.5e3}, {"minimum": -1e-3, "maximum": 1e-3})]
STRINGS = [{"type": "string", **b} for b in (
    {}, {"minLength": 1}, {"minLength": 3}, {"maxLength": 3}, {"minLength": 1, "maxLength": 4}, {"minLength": 40}, {"maxLength": 65536}, {"pattern": "^abc?d*efg+(hij)?kl$"}, {"pattern": "^\\[\\]\\{\\}\\(\\)\\|\\+\\*\\?$"},
    {"pattern": "^\"$"}, {"pattern": "^(\\([0-9]{1,3}\\))?[0-9]{3}-[0-9]{4}$"}, {"pattern": "[0-9]"}, {"pattern": "^x"}, {"pattern": "end$"}, {"pattern": "^(a|b)*c{2,4}$"}, {"pattern": "^.{2,5}$"}, {"pattern": "^[^a-z]+$"},
    {"pattern": "^\\w+ \\d+\\s?$"}, {"pattern": "^[a-z]+$", "minLength": 3, "maxLength": 8}, {"pattern": "-", "maxLength": 5}, {"enum": ["red", "amber", "green", "redder"]}, {"const": "a\"\\/\u00e9\n"}, {"enum": ["ab", "abc", "b"], "pattern": "^a", "minLength": 3},
    {"not": {"const": "no"}}, {"not": {"enum": ["a", "ab"]}})] + [{"type": "string", "format": f} for f in ("date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "hostname", "uri", "duration")]
ARRAYS = [{"type": "array", **b} for b in (
    {}, {"items": TEXT}, {"items": TEXT, "minItems": 2}, {"items": BOOL, "maxItems": 0}, {"items": BOOL, "maxItems": 1}, {"items": BOOL, "maxItems": 2}, {"items": INT, "minItems": 2, "maxItems": 4}, {"prefixItems": [TEXT]},
    {"prefixItems": [TEXT, NUMBER], "items": False}, {"prefixItems": [TEXT, NUMBER], "minItems": 2, "maxItems": 3}, {"prefixItems": [TEXT, NUMBER], "items": BOOL, "minItems": 3}, {"items": {"type": "integer", "minimum": -12, "maximum": 207}, "minItems": 3, "maxItems": 5},
    {"items": {"type": "array", "items": INT, "maxItems": 2}, "maxItems": 2}, {"items": {"enum": ["a", 1, None, [True], {"k": 0}]}, "maxItems": 3}, {"items": {"type": ["string", "null", "boolean"]}, "minItems": 1})]
OBJECTS = [
    {"type": "object"}, {"type": "object", "additionalProperties": False}, thing({"a": INT}, [], additionalProperties=False), thing({"a": INT, "b": TEXT, "c": BOOL}, []), thing({"a": INT, "b": TEXT, "c": BOOL}, ["b"]),
    thing({"a": INT, "b": TEXT}, additionalProperties=True), thing({"a": INT}, [], additionalProperties={"type": "array", "items": INT}), {"type": "object", "additionalProperties": NUMBER}, {"additionalProperties": {"enum": ["x"]}, "maxProperties": 2},
    thing({"and": INT, "also": INT}, ["and"], additionalProperties=INT), thing({"\"": INT, "\\": INT, "é": INT, "": INT}, additionalProperties=True), {"patternProperties": {"^x-": TEXT}, "additionalProperties": False, "type": "object"},
    thing({"a": INT}, patternProperties={"^[0-9]{1,3}$": BOOL}), thing({"a": INT, "b": INT, "c": INT}, [], minProperties=1, maxProperties=2), thing({"a": INT}, [], minProperties=2, additionalProperties=INT), {"required": ["k"]}, {"required": ["k"], "properties": {"j": INT}},
    thing({"a": {"type": "object", "properties": {"b": {"type": "object", "properties": {"c": INT}, "required": ["c"]}}, "required": ["b"]}}), thing({str(i): BOOL for i in range(30)}, [str(i) for i in range(0, 30, 3)]),
]
LOGIC = [
    {}, True, {"anyOf": [INT, TEXT]}, {"anyOf": [NULL, {"type": "array", "items": INT}], "title": "Optional"}, {"oneOf": [INT, TEXT, NULL]}, {"oneOf": [{"type": "array", "items": INT}, thing({"a": INT})]}, {"allOf": [{"minimum": 2}, {"maximum": 5}, INT]},
    {"allOf": [thing({"a": INT}), thing({"b": TEXT})]}, {"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"x": {"maximum": 3}}}], "$defs": {"a": thing({"x": INT})}}, {"$ref": "#/definitions/a%20b", "definitions": {"a b": BOOL}}, {"type": ["integer", "string", "null"], "maxLength": 2, "minimum": 4},
    {"anyOf": [{"minimum": 2}, {"maximum": -2}], "type": "integer"}, {"enum": ["a", 1, 2.5, None, True, [1, "x"], {"a": {"b": []}}]}, {"const": {"a": [1, {"b": None}]}}, {"enum": [1, 2, 3, 4, 5, 6], "multipleOf": 2, "maximum": 5},
    {"enum": [[1], [1, 2], [1, 2, 3]], "minItems": 2}, {"enum": [{"a": 1}, {"b": 1}], "required": ["a"]}, {"not": NULL}, {"not": {"type": ["object", "array"]}}, {"type": ["string", "boolean"], "not": {"const": True}}, {"enum": ["a", "b", "c"], "not": {"enum": ["b"]}},
    thing({"a": INT, "b": INT}, [], additionalProperties=False, **{"not": {"required": ["b"]}}),
    thing({"kind": {"enum": ["x", "y", "z"]}, "n": INT, "s": TEXT}, ["kind"], **{"if": {"properties": {"kind": {"const": "x"}}}, "then": {"required": ["n"]}, "else": {"required": ["s"]}}),
    thing({"country": {"enum": ["US", "CA"]}, "code": TEXT}, additionalProperties=False, **{"if": {"properties": {"country": {"const": "US"}}, "required": ["country"]}, "then": {"properties": {"code": {"pattern": "^[0-9]{5}$"}}}, "else": {"properties": {"code": {"pattern": "^[A-Z][0-9][A-Z]$"}}}}),
    {"if": INT, "then": {"minimum": 7}, "else": TEXT}, {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], **thing({"a": INT, "b": INT}, [], additionalProperties=False)}, {"oneOf": [TEXT, {"enum": ["a", 1]}]},
    thing({"a": False, "b": INT}, ["b"], additionalProperties=INT), {"enum": ["aé", "a\n", "b"], "not": {"enum": ["b"]}, "minLength": 2}, {"type": "array", "uniqueItems": True, "maxItems": 1, "items": INT}, {"enum": [1, 2], "not": {"not": {"type": "integer"}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [INT, TEXT], "additionalItems": BOOL, "maxItems": 4}, {"$schema": "http://json-schema.org/draft-07/schema#", **thing({"a": {"$ref": "#/definitions/p"}}), "definitions": {"p": {"type": "number", "exclusiveMinimum": 3}}},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"anyOf": [NULL, thing({"l": {"$ref": "#/$defs/tree"}, "v": {"type": "integer", "minimum": 0, "maximum": 99}, "r": {"$ref": "#/$defs/tree"}})]}}},
]
COUNTED = [ # items that some must be, or none twice; names of properties
    {"contains": NULL}, {"contains": {"const": "x"}, "minContains": 2, "maxContains": 3, "items": {"enum": ["x", "y", 3]}, "maxItems": 6}, {"prefixItems": [INT], "contains": TEXT, "minItems": 3, "items": {"type": ["string", "null"]}, "maxItems": 5},
    {"type": "array", "items": INT, "contains": {"minimum": 5}, "minContains": 2, "maxItems": 4}, {"items": {"type": ["string", "integer"]}, "contains": TEXT, "maxContains": 1, "minContains": 0}, {"contains": thing({"id": {"const": 7}}), "maxItems": 2},
    {"uniqueItems": True, "items": {"enum": ["a", "ab", 1, 1.0, None]}, "minItems": 2, "maxItems": 3}, {"uniqueItems": True, "items": {"type": ["boolean", "null"]}}, {"uniqueItems": True, "items": {"$ref": "#/$defs/day"}, "minItems": 1, "$defs": {"day": {"enum": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]}}},
    {"type": "object", "propertyNames": {"pattern": "^[a-z]{1,3}$"}, "additionalProperties": INT}, {"propertyNames": {"enum": ["red", "green", 5]}, "additionalProperties": BOOL}, {"propertyNames": {"maxLength": 3, "minLength": 2}, "minProperties": 1},
    thing({"ab": INT, "b": NULL}, [], propertyNames={"pattern": "^a"}), thing({"id": INT}, [], propertyNames={"not": {"enum": ["id", "x"]}}, additionalProperties=NULL), {"type": "object", "allOf": [{"propertyNames": {"pattern": "^[a-c]+$"}}, {"propertyNames": {"maxLength": 2}}]},
    thing({"scores": {"type": "object", "propertyNames": {"format": "date"}, "additionalProperties": NUMBER}, "roles": {"type": "array", "items": {"enum": ["admin", "user"]}, "uniqueItems": True}}),
]
SCHEMAS = PYDANTIC + STRICT + ZOD + NUMBERS + STRINGS + ARRAYS + OBJECTS + LOGIC + COUNTED

PATTERNS = ["^[a-z]{1,5}$", "^\\d{3}$", "^(yes|no|maybe)$", "ab", "^x", "[^a]$", "^[A-Z][a-z]*( [A-Z][a-z]*)*$"]
NAMES = ["id", "ident", "name", "x", "a b", "_", "größe", "na\"me"]


def leaf(rng):
    """A schema without parts."""
    kind = rng.randrange(8)
    if kind == 0: return {"enum": rng.sample(["a", "ab", "", "é", 0, 1, -2.5, None, True, [], [1], {}], rng.randint(1, 4))}
    if kind == 1: return {"const": rng.choice(["k", 7, None, False, {"a": "b"}])}
    if kind == 2: return rng.choice([BOOL, NULL, {"type": ["boolean", "null"]}, {"type": ["string", "integer"], "maxLength": 3}])
    if kind == 3: return {"type": "string", **rng.choice([{}, {"minLength": rng.randint(0, 4)}, {"maxLength": rng.randint(0, 12)}, {"pattern": rng.choice(PATTERNS)}, {"format": rng.choice(["date", "uuid", "ipv4", "email"])}])}
    low, bounds = rng.randint(-300, 300), {}
    if rng.random() < 0.6: bounds[rng.choice(["minimum", "exclusiveMinimum"])] = low if kind < 6 else low / 8
    if rng.random() < 0.6: bounds[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([2, 3, 10, 99, 1000])
    if rng.random() < 0.2 and len(bounds) < 2: bounds["multipleOf"] = rng.choice([2, 3, 5, 10, 0.5, 0.125])
    return {"type": "integer" if kind < 6 else "number", **bounds}


def schema(rng, depth, refs=()):
    """A random schema; refs: names of $defs that it may use."""
    kind = rng.randrange(11) if depth else 0
    if kind < 3: return leaf(rng)
    some = lambda: schema(rng, depth - 1, refs)
    if kind < 5: return {"type": "array", "items": some(), **rng.choice([{}, {"minItems": rng.randint(0, 2)}, {"maxItems": rng.randint(0, 3)}])}
    if kind == 5: return {"type": "array", "prefixItems": [some() for _ in range(rng.randint(1, 3))], **rng.choice([{}, {"items": False}, {"items": some()}, {"minItems": 1}])}
    if kind == 6 and refs: return {"$ref": "#/$defs/" + rng.choice(refs)}
    if kind == 7: return {"anyOf": [some() for _ in range(rng.randint(1, 3))]}
    if kind == 8: return {"allOf": [some(), rng.choice([{}, {"maxLength": 6}, {"minimum": -50}, {"maxItems": 3}, {"required": ["id"]}])]}
    if kind == 9: return {"oneOf": [thing({"kind": {"const": c}, "v": some()}) for c in ("p", "q")]}
    names = rng.sample(NAMES, rng.randint(0, 4))
    more = rng.choice([{}, {}, {"additionalProperties": False}, {"additionalProperties": True}, {"additionalProperties": some()}, {"maxProperties": 3}, {"minProperties": 1}])
    return thing({name: some() for name in names}, [name for name in names if rng.random() < 0.6], **more)


def generated(rng, n):
    """n random schemas; a third of them have $defs, which may use each other."""
    for i in range(n):
        if i % 3: yield schema(rng, 3)
        else: yield {**schema(rng, 3, ("r", "s")), "$defs": {"r": schema(rng, 2, ("s",)), "s": {"anyOf": [leaf(rng), {"type": "array", "items": {"$ref": "#/$defs/r"}, "maxItems": 2}]}}}


ODD = [None, True, 0, -1, 1, 7, 13, 100, 1.5, 0.3, 1e6, "", "a", "ab", "abcdefghijk", "12", "no", "2024-02-31", "1.2.3.256", [], [0], ["a", 1], {}, {"a": 1}, {"id": "x", "kind": "q"}]


def spoil(document, rng):
    """The document with one thing changed: another value, a member or an element less or more, a number or a string a little off."""
    at, path = document, []
    while isinstance(at, (list, dict)) and at and rng.random() < 0.8:
        key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
        path.append(key)
        at = at[key]
    if isinstance(at, bool) or at is None or rng.random() < 0.25: new = rng.choice(ODD)
    elif isinstance(at, (int, float)): new = at + rng.choice([-1000, -10, -1, -0.5, 0.25, 1, 10, 1000])
    elif isinstance(at, str): new = rng.choice([at[1:], at + "x", at * 2, at.upper(), at[:-1] + "0", at + "\n"])
    elif isinstance(at, list): new = rng.choice([at[1:], at + [rng.choice(ODD)], at * 2])
    else:
        new = dict(at)
        if new and rng.random() < 0.5: del new[rng.choice(list(new))]
        else: new[rng.choice(NAMES + ["a", "b", "kind", "zzz"])] = rng.choice(ODD)
    if not path: return new
    document = copy.deepcopy(document)
    at = document
    for key in path[:-1]: at = at[key]
    at[path[-1]] = new
    return document


def text(document):
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
