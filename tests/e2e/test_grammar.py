#!/usr/bin/env python3
"""The grammar engine through libllm.so and ctypes.

What each form lets through and refuses; masks against a plain twin (every token of the vocabulary run through the machine alone); random walks through the
masks, whose documents the jsonschema package must accept; hostile grammars; and how long a mask takes. GRAMMAR_WALKS=1000 is the campaign (make grammar-campaign),
of which GRAMMAR_SLICE=3/60 does nothing but walk through the third of 60 parts of the schemas.
"""
import ctypes
import json
import os
import random
import sys
import time

from grammar_schemas import ODD, SCHEMAS, generated, spoil, text
from refused_forms import CHOICE, GBNF, OBJECT, REFUSED, REGEX, SCHEMA, TAG

try: import jsonschema
except ImportError: sys.exit("test_grammar: needs jsonschema: python3 tests/tools/setup.py test puts it into build/python")

MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
BIG = "build/data/tokenizers/qwen3"
RESULT = [0, 0]
Pointer, Size, Text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p


class Config(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("text", Text), ("len", Size), ("space", Text), ("after", Text)]


class ModelConfig(ctypes.Structure):
    _fields_ = [("tokenizer", Text), ("chat_template", Text), ("chat_template_name", Text), ("vocab_only", ctypes.c_int),
                ("rest", ctypes.c_char * 256)]


class Bytes(ctypes.Structure):
    _fields_ = [("data", Pointer), ("len", Size), ("cap", Size), ("limit", Size), ("failed", ctypes.c_int)]


def library():
    l = ctypes.CDLL(os.path.abspath(os.environ.get("LLM_LIBRARY", "libllm.so")))
    l.llm_last_error.restype = Text
    l.llm_matcher_open.restype = Pointer
    l.llm_matcher_open.argtypes = l.llm_matcher_close.argtypes = l.llm_matcher_can_end.argtypes = l.llm_grammar_close.argtypes = l.llm_vocab_size.argtypes = [Pointer]
    l.llm_model_open.argtypes = [Text, Pointer, ctypes.POINTER(Pointer)]
    l.llm_grammar_open.argtypes = [Pointer, ctypes.POINTER(Config), ctypes.POINTER(Pointer)]
    l.llm_matcher_bytes.argtypes = [Pointer, Text, Size]
    l.llm_matcher_token.argtypes = [Pointer, ctypes.c_int32]
    l.llm_matcher_mask.argtypes = [Pointer, Pointer, Pointer]
    l.llm_token_bytes.argtypes = [Pointer, ctypes.c_int32, ctypes.POINTER(Bytes)]
    l.llm_token_is_special.argtypes = [Pointer, ctypes.c_int32]
    l.llm_text_free.argtypes = [ctypes.POINTER(Bytes)]
    return l


L = library()


def check(ok, *what):
    RESULT[0 if ok else 1] += 1
    if not ok: print("FAIL", *what)
    return ok


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def grammar(kind, text, model=None, space=None, after=None):
    """A compiled grammar, or the sentence that refuses it."""
    out, text = Pointer(), as_bytes(json.dumps(text) if not isinstance(text, (str, bytes)) else text)
    if L.llm_grammar_open(model, ctypes.byref(Config(kind, text, len(text), space, after)), ctypes.byref(out)) == 0: return out
    return L.llm_last_error().decode()


def accepts(g, text):
    m, text = L.llm_matcher_open(g), as_bytes(text)
    ok = L.llm_matcher_bytes(m, text, len(text)) == 0 and L.llm_matcher_can_end(m)
    L.llm_matcher_close(m)
    return bool(ok)


NODE = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
    "v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "next"]}}}
TAGS = {"structures": [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}, {"begin": "<f=b>", "schema": {"type": "boolean"}, "end": "</f>"}], "triggers": ["<f="]}
KNIGHT = {"title": "Character", "type": "object", "properties": {
    "name": {"title": "Name", "maxLength": 10, "type": "string"}, "age": {"title": "Age", "type": "integer"},
    "armor": {"$ref": "#/definitions/Armor"}, "strength": {"title": "Strength", "type": "integer"}},
    "required": ["name", "age", "armor", "strength"],
    "definitions": {"Armor": {"title": "Armor", "enum": ["leather", "chainmail", "plate"], "type": "string"}}}

ZOD_EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"

# Of the kinds that llama.cpp's tests and its grammars folder have: sums, quantifiers, groups, escapes, scripts, games, lists, JSON, a little C.
SUM = 'root ::= (line "\\n")+\nline ::= term ([-+*/] term)* ws "=" ws num\nterm ::= name | num | "(" ws line2 ")" ws\nline2 ::= term ([-+*/] term)*\nname ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t]*'
JSON = r"""root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
CHESS = 'root ::= "1. " move " " move "\\n" ([1-9] [0-9]? ". " move " " move "\\n")+\nmove ::= (pawn | piece | castle) [+#]?\npiece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]\npawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?\ncastle ::= "O-O" "-O"?'
CODE = 'root ::= fn*\nfn ::= type " " id "(" (par (", " par)*)? ") {" st* "}"\npar ::= type " " id\ntype ::= "int" | "float" | "char"\nid ::= [a-zA-Z_] [a-zA-Z_0-9]*\nst ::= type " " id " = " ex ";" | id " = " ex ";" | "return " ex ";" | "while (" ex ") {" st* "}"\nex ::= tm ([-+<] tm)*\ntm ::= id | [0-9]+ | "(" ex ")"'
GBNFS = [
    (SUM, ["a=1\n", "(a+b)*2 = 12\n", "x1 -3=0\ny=2\n"], ["a=1", "a+=1\n", "=1\n", "(a=1\n", "1=a\n"]),
    (JSON, ["{}", '{"a": [1, -2.5e+1, {"b": null}], "c\\u00e9\\n": "x y"}\n', '{"a":true\n\t\t}'], ["[]", '{"a"}', '{"a": 01x}', '{"a": "\n"}', '{"a": "\\q"}', '{"a": "\x7f"}']),
    (CHESS, ["1. e4 e5\n2. Nf3 Nc6\n", "1. d4 Nf6\n2. Bg5 e6\n3. exf6+ Qxf6#\n4. O-O O-O-O\n"], ["1. e4 e5\n", "2. e4 e5\n3. d4 d5\n", "1. i4 e5\n2. e4 e5\n"]),
    (CODE, ["", "int f(int a, float b) {return a;}", "char g() {int x = (1+2)-y;while (x<3) {x = x+1;}}"], ["int f(int a,) {}", "int 1f() {}", "long f() {}"]),
    ('root ::= item+\nitem ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"', ["- a\n", "- größe\n- b\n"], ["- \n", "- a", "a\n", "- a\u2028\n", "- a\x85\n"]),
    ('root ::= jp+ ([ \\t\\n] jp+)*\njp ::= hiragana | katakana | mark | cjk\nhiragana ::= [ぁ-ゟ]\nkatakana ::= [ァ-ヿ]\nmark ::= [、-〾]\ncjk ::= [一-鿿]', ["ひらがな、カタカナ", "漢字 かな"], ["abc", "漢字a", "", "漢字 "]),
    ('root ::= "a"{3}', ["aaa"], ["", "aa", "aaaa"]), ('root ::= "a"{2,}', ["aa", "a" * 99], ["a", ""]), ('root ::= "a"{2,4}', ["aa", "aaa", "aaaa"], ["a", "aaaaa"]), ('root ::= "a"{,2}', ["", "aa"], ["aaa"]), ('root ::= "a"{0,1}', ["", "a"], ["aa"]),
    ('root ::= "a"+', ["a", "aaa"], ["", "b"]), ('root ::= "a"?', ["", "a"], ["aa"]), ('root ::= ("a" | "bc")*', ["", "abca"], ["b", "ac"]), ('root ::= ("a" ("b" ("c"? "d")*)?)+', ["a", "abcdd", "aab"], ["ac", "abc", "d"]), ('root ::= [0-9a-fA-F]{2} (":" [0-9a-fA-F]{2}){5}', ["00:1a:2B:3c:4d:5e"], ["00:1a:2b:3c:4d", "00:1a:2b:3c:4d:5e:6f", "0g:00:00:00:00:00"]),
    ('root ::= "..." "abc" "..."', ["...abc..."], ["..abc...", "...abc....", "xxxabcxxx"]), ('root ::= "\\"\\\\[]\\n\\t"', ['"\\[]\n\t'], ['"\\[]']), ('root ::= [\\]\\[-] [a\\-z] [^^]', ["]ab", "--x", "[z-"], ["ab]", "]bb", "]a^"]), ('root ::= . .', ["ab", "é😀", "\n\n"], ["a", "abc"]),
    ('root ::= "x" | ""', ["", "x"], ["y"]), ('root ::= a b\na ::= "1"? \nb ::= a a "2"', ["2", "12", "1112"], ["1", "11112"]), ('root ::= "(" root ")" | "[" root "]" | ""', ["", "([()])"[:4] + "])", "([])"], ["(", "(]", "[)"]), ('root-1 ::= "b"\nroot ::= "a" root-1 # the end', ["ab"], ["a", "b"]),
    ('root ::= "\\U0001F600"{2} "\\u00e9" "\\x41"', ["😀😀éA"], ["😀éA", "😀😀éa"]), ('root ::= w (" " w){0,3} [.!?]\nw ::= [A-Za-zÀ-ÿ]+', ["Ça va?", "a b c d."], ["a b c d e.", "a  b.", "1."]),
]

FORMS = [(GBNF, *one) for one in GBNFS] + [ # kind, text, accepted, refused
    (REGEX, "a+b?", ["a", "aab"], ["", "b", "abb"]),
    (REGEX, "(a|aa){2,3}", ["aa", "aaaaaa", "aaa"], ["a", "aaaaaaa"]),
    (REGEX, "(a*)*b", ["b", "aaab"], ["a"]),
    (REGEX, "(a?){3}b", ["b", "aaab"], ["aaaab"]),
    (REGEX, "[a-c]{2,5}x", ["abx", "abcabx"], ["ax", "abcabcx"]),
    (REGEX, "é\\d{2}$", ["é12"], ["é1", "é1٣"]),
    (REGEX, "(a+)+b", ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaab"], ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]),
    (REGEX, "\\w+@\\w+\\.com\\n?", ["a_1@b.com", "a@b.com\n"], ["a@b.org", "é@b.com"]),
    (GBNF, 'root ::= "a" b+ ("," b)* \nb ::= [0-9]{1,3} | "x" # a comment\n', ["a1", "a123,x,4", "ax1,2"], ["a", "a1,", "b"]),
    (GBNF, 'root ::= e\ne ::= t ("+" t)*\nt ::= "(" e ")" | [0-9]+', ["1+2", "(1+(2))+3"], ["1+", "(1"]),
    (GBNF, 'root ::= ("a"*)* "b"', ["b", "aab"], ["a"]),
    (GBNF, 'root ::= "a" root | "b"', ["b", "a" * 3000 + "b"], ["a" * 3000]),
    (GBNF, 'root ::= a\n  | b\na ::= "\\u00e9"\nb ::= [^a-z\\]] .', ["é", "]é"[1:], "0x", "Z\n"], ["a", "ax"]),
    (GBNF, 'root ::= "a" b* | "(" root ")"\nb ::=', ["a", "((a))"], ["", "()", "aa"]), # an empty rule
    (CHOICE, ["yes", "no", "not sure"], ["yes", "no", "not sure"], ["not", "y"]),
    (OBJECT, "", ["{}", '{"a":{"b":[true]}}'], ["[]", "1"]),
    (TAG, TAGS, ["hello", "hi <f=a>12</f> and <f=b>true</f>", "<f <<f=a>1</f>"], ["<f=a>true</f>", "<f=", "x<f=c>"]),
    (SCHEMA, {"type": "integer", "minimum": 5, "maximum": 123}, ["5", "9", "10", "99", "100", "123"], ["4", "124", "05", "-5", "5.0"]),
    (SCHEMA, {"type": "integer", "minimum": -12}, ["-12", "0", "-1", "5", "100000"], ["-13", "-20", "-0"]),
    (SCHEMA, {"type": "integer", "exclusiveMaximum": -3}, ["-4", "-10"], ["-3", "0", "3"]),
    (SCHEMA, {"type": "number", "minimum": 0.5, "maximum": 2.25}, ["0.5", "0.51", "1", "2.25", "2", "1.999"], ["0.4", "0.49", "2.26", "3", "0", "2.251", "-1"]),
    (SCHEMA, {"type": "number", "exclusiveMinimum": 0}, ["0.1", "1", "0.01"], ["0", "0.0", "-1"]),
    (SCHEMA, {"type": "number", "minimum": 1e3, "multipleOf": 0.01}, ["1000", "1000.25"], ["999", "1000.125"]),
    (SCHEMA, {"type": "number"}, ["1", "-1.5e+10", "0.001"], ["01", "+1", ".5", "1."]),
    (SCHEMA, {"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"a\\n"', '"äöü"', '"\\ud83d\\ude00a"'], ['"a"', '"abcd"', '"a\nb"', '"\\ud83da"']),
    (SCHEMA, {"type": "string", "pattern": "^a.c$"}, ['"abc"', '"a\\"c"'], ['"abbc"', '"xabc"']),
    (SCHEMA, {"type": "string", "pattern": "b"}, ['"abc"', '"b"'], ['"ac"']),
    (SCHEMA, {"type": "string", "pattern": "^[a-z]{2,4}$", "maxLength": 6}, ['"abc"'], ['"a"']),
    (SCHEMA, {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]},
     ['{"a":1,"b":"x"}', '{"b": "x"}', '{"a": 1, "b": ""}'], ["{}", '{"a":1}', '{"b":"x","a":1}', '{"b":"x",}', '{"b":  "x"}']),
    (SCHEMA, {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
     ['{"a":[],"b":1}', "{}", '{"b":1,"c":2}', '{"aa":1}'], ['{"b":""}', '{"b":1,"a":2}']),
    (SCHEMA, {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2, "maxProperties": 2, "additionalProperties": False},
     ['{"a":1,"b":2}', '{"a":1,"c":2}', '{"b":1,"c":1}'], ["{}", '{"a":1}', '{"a":1,"b":2,"c":3}']),
    (SCHEMA, {"type": "object", "patternProperties": {"^x-": {"type": "boolean"}}}, ["{}", '{"x-a":true}'], ['{"y":true}', '{"x-a":1}']),
    (SCHEMA, {"pattern": "^[^\\w\\s]{2}$"}, ['"--"', '"€+"'], ['"-³"', '"-é"', '"-\u2004"', '"a-"']), # what is a letter or a space in any dialect
    (SCHEMA, {"pattern": "^\\S[^\\W]\\D$"}, ['"-a-"', '"éb "'], ['"\ufeffa-"', '"\\u001ca-"', '"-é-"', '"-a٣"']),
    (SCHEMA, {"format": "uri", "minLength": 1, "maxLength": 2083}, ['"https://a.b/"'], ['""']), # a length that the pattern keeps by itself
    (SCHEMA, {"format": "hostname"}, ['"a-b.c"'], ['"xn--a.de"', '"-a"', '"a-"']),
    (SCHEMA, {"format": "uuid4"}, ['"123e4567-e89b-42d3-a456-426614174000"'], ['"123e4567-e89b-12d3-a456-426614174000"']), (SCHEMA, {"format": "file-path"}, ['"/a b"'], ["1"]),
    (SCHEMA, {"properties": {"a": {}, "größe": {}}, "additionalProperties": {"type": "integer"}}, ['{"名前":1}', '{"gäb":1}'], ['{"größe":1,"größe":1}', '{"gr":""}']),
    (SCHEMA, {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}], "properties": {"b": {"type": "null"}}, "unevaluatedProperties": False}, ['{"b":null,"a":1}', '{"a":1}'], ['{"a":1,"c":1}', '{"b":null}']),
    (SCHEMA, {"$ref": "#/$defs/p", "properties": {"b": {}}, "unevaluatedProperties": False, "$defs": {"p": {"properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"properties": {"c": {}}, "required": ["c"]}]}}}, ['{"b":1,"a":1}', '{"c":1}'], ['{"b":1}', '{"d":1,"a":1}']),
    (SCHEMA, {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}, "unevaluatedProperties": False}]}, ['{"b":1}', "{}"], ['{"a":1}']), # a cousin's property is not seen
    (SCHEMA, {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}, ["[1,2]", "[1, 2, 3]"], ["[1]", "[]", "[1,2,3,4]"]),
    (SCHEMA, {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, ["[]", "[1]", '[1,"a"]'], ['[1,"a",2]', '["a"]']),
    (SCHEMA, {"items": [{"type": "integer"}], "additionalItems": {"type": "null"}, "minItems": 1}, ["[1]", "[1,null]"], ["[]", "[1,1]"]),
    (SCHEMA, {"contains": {"type": "null"}}, ["[null]", "[1,null,2]", "[null, null]"], ["[]", "[1]"]),
    (SCHEMA, {"contains": {"const": "x"}, "minContains": 2, "maxContains": 2, "items": {"enum": ["x", "y", 3]}, "maxItems": 4}, ['["x","x"]', '["y","x",3,"x"]'], ['["x"]', '["x","x","x"]', '["y","x",3,"y","x"]', '["x",3]']),
    (SCHEMA, {"prefixItems": [{"type": "integer"}], "contains": {"type": "string"}, "minItems": 3, "items": {"type": ["string", "null"]}}, ['[1,null,"a"]', '[1,"","",null]'], ['[1,"a"]', '["a",null,null]', "[1,null,null]"]),
    (SCHEMA, {"contains": {"type": "string"}, "minContains": 0, "maxContains": 1}, ["[]", '["a"]', '[1,"a",[]]'], ['["a","b"]', '["a",1,"b"]']),
    (SCHEMA, {"uniqueItems": True, "items": {"enum": ["a", "ab", 1, 1.0, None]}, "minItems": 2, "maxItems": 3}, ['["a","ab"]', '[1,"a",null]', '["ab", "a"]'], ['["a"]', '["a","a"]', '["a","ab","a"]', '["a","ab",1,null]', "[1,1.0]"]),
    (SCHEMA, {"uniqueItems": True, "items": {"enum": [1, 1.0] * 50000}}, ["[]", "[1]"], ["[1,1]", "[1,1.0]"]),
    (SCHEMA, {"uniqueItems": True, "items": {"type": ["boolean", "null"]}}, ["[]", "[true,false,null]", "[null, true]"], ["[true,true]", "[null,false,null]"]),
    (SCHEMA, {"uniqueItems": True, "items": {"$ref": "#/$defs/day"}, "$defs": {"day": {"enum": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]}}}, ['["sun","mon"]', '["mon","tue","wed","thu","fri","sat","sun"]'], ['["mon","mon"]', '["day"]']),
    (SCHEMA, {"type": "object", "propertyNames": {"pattern": "^[a-z]{1,3}$"}, "additionalProperties": {"type": "integer"}}, ["{}", '{"a":1}', '{"abc": 1, "z": 2}'], ['{"A":1}', '{"abcd":1}', '{"a":""}']),
    (SCHEMA, {"propertyNames": {"enum": ["red", "green", 5]}, "additionalProperties": {"type": "boolean"}}, ['{"red":true,"green":false}', '{"green":true}'], ['{"blue":true}', '{"5":true}', "{5:true}"]),
    (SCHEMA, {"propertyNames": {"maxLength": 3, "minLength": 2}, "minProperties": 1}, ['{"ab":1}', '{"é\\n":1}'], ["{}", '{"a":1}', '{"abcd":1}']),
    (SCHEMA, {"properties": {"ab": {"type": "integer"}, "b": {"type": "null"}}, "propertyNames": {"pattern": "^a"}}, ["{}", '{"ab":1}'], ['{"b":null}', '{"ab":1,"b":null}', '{"ac":1}']),
    (SCHEMA, {"properties": {"id": {"type": "integer"}}, "propertyNames": {"not": {"enum": ["id", "x"]}}, "additionalProperties": {"type": "null"}}, ["{}", '{"a":null}', '{"idx":null}'], ['{"id":1}', '{"x":null}']),
    (SCHEMA, {"allOf": [{"propertyNames": {"pattern": "^[a-c]+$"}}, {"propertyNames": {"maxLength": 2}}], "type": "object"}, ['{"ab":1}'], ['{"abc":1}', '{"d":1}', '{"":1}']),
    (SCHEMA, {"enum": [{"a": 1}, {"b": 1}, ["x"], ["y", "x"], ["y"]], "propertyNames": {"const": "a"}, "contains": {"const": "x"}}, ['{"a":1}', '["x"]', '["y","x"]'], ['{"b":1}', '["y"]']),
    (SCHEMA, {"enum": ["a", "ab", 1, None, {"x": [1]}]}, ['"a"', '"ab"', "1", "null", '{"x":[1]}', '{"x": [1]}'], ['"b"', "2"]),
    (SCHEMA, {"enum": ["a", "bb", 3], "maxLength": 1, "type": "string"}, ['"a"'], ['"bb"', "3"]),
    (SCHEMA, {"format": "base64"}, ['""', '"YQ=="', '"YWJj"'], ['"YQ="', '"a"']), # pydantic's Base64Str
    (SCHEMA, {"anyOf": [{"type": "array", "contains": False}, {"type": "null"}]}, ["null"], ["[]", "[1]"]),
    (SCHEMA, {"type": "array", "contains": False, "minContains": 0}, ["[]", "[1]"], ["1"]),
    (SCHEMA, {"format": "email", "pattern": ZOD_EMAIL}, ['"a.b@c.de"', '"x@y-z.org"'], ['".a@b.de"', '"a..b@c.de"', '"a@b.1"', '"a@b"']), # what all say of a string
    (SCHEMA, {"pattern": ZOD_EMAIL, "maxLength": 9}, ['"a\'b@c.de"'], ['"abcd@ef.gh"', '"a..b@c.de"']),
    (SCHEMA, {"format": "uri", "pattern": "^https://"}, ['"https://a.b/"'], ['"http://a.b/"']),
    (SCHEMA, {"allOf": [{"pattern": "^a"}, {"pattern": "c"}, {"pattern": "b$"}, {"minLength": 4}], "type": "string"}, ['"a\\ncb"', '"acéb"'], ['"acb"', '"abbb"', '"xacb"', '"acbx"']),
    (SCHEMA, {"pattern": "^(?!\\s*$).+"}, ['"a"', '" a"'], ['""', '" "', '" \u2004"', '"\\u0020"']), # what is denied is any dialect's space
    (SCHEMA, {"pattern": "^(?=.*[A-Z])(?=.*\\d)(?!.*\\\\)\\S{4,}$", "maxLength": 6}, ['"Abc1"', '"1bcdeF"'], ['"abc1"', '"Abcd"', '"Ab1"', '"Abcdef1"', '"A1\\\\bc"']),
    (SCHEMA, {"format": "base64", "contentEncoding": "base64", "pattern": "^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$"}, ['""', '"YQ=="', '"YWJj"'], ['"YQ="', '"a"']),
    (SCHEMA, {"format": "cuid2", "pattern": "^[0-9a-z]+$"}, ['"tz4a"'], ['"A"']),
    (SCHEMA, {"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b", "ab"]}, "additionalProperties": {"type": "boolean"}, "required": ["a", "b"]}, ['{"a":true,"b":false}', '{"a":true,"b":false,"ab":true}'], ['{"a":true}', '{"a":1,"b":true}', '{"a":true,"b":true,"c":true}', '{"a":true,"b":true,"a":true}']),
    (SCHEMA, NODE, ['{"v":1,"next":null}', '{"v":1,"next":{"v":2,"next":null}}'], ['{"v":1}']),
    (SCHEMA, {}, ["1", '{"a":[1,2,{"b":null}]}', '"x"'], ["", "{"]),
    (SCHEMA, True, ["1"], ["x"]),
    (SCHEMA, {"type": "object", "properties": {}}, ["{}"], ['{"a":1}']),
    (SCHEMA, {"type": "string", "maxLength": 65536}, ['"a"', '"' + "x" * 65536 + '"'], ['"' + "x" * 65537 + '"']),
    (SCHEMA, '{"type":"string","maxLength":9223372036854775808}', ['""'], []),
    (SCHEMA, {"type": "string", "minLength": 10**9}, [], ['""']),
    (SCHEMA, {"type": "array", "minItems": 10**6, "maxItems": 10**9, "items": {"type": "array", "items": {"maxLength": 2000}}}, [], ["[]"]),
    (SCHEMA, {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}, "a": {"minimum": 3}}, "required": ["b"]}]},
     ['{"a":3,"b":""}'], ['{"a":1,"b":""}', '{"a":3}']),
    (SCHEMA, {"oneOf": [{"type": "integer"}, {"type": "string"}]}, ["1", '""'], ["null"]),
    (SCHEMA, {"oneOf": [{"properties": {"k": {"const": c}, c: {"type": "integer"}}, "required": ["k", c]} for c in "ab"]}, ['{"k":"a","a":1}', '{"k":"b","b":1}'], ['{"k":"a","b":1}']),
    (SCHEMA, {"anyOf": [{"type": "null"}, {"$ref": "#/definitions/%7e0x"}], "definitions": {"~0x".replace("~0", "~"): {"const": 7}}}, ["7", "null"], ["8"]),
    (SCHEMA, {"type": ["integer", "null"]}, ["1", "null"], ["1.5", '""']),
    (SCHEMA, {"const": "a\"\\\n"}, ['"a\\"\\\\\\n"'], ['"a"']),
] + [(SCHEMA, {"type": "string", "format": f}, [json.dumps(y)], ['"x y"']) for f, y in {
    "date": "2024-02-28", "time": "12:00:00Z", "date-time": "2024-12-31T23:59:59.123Z", "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "email": "a.b@c.de", "ipv4": "1.2.3.255", "ipv6": "1:2:3:4:5:6:7:8", "uri": "https://a.bc/d?e=f", "duration": "P1Y2M", "hostname": "a.b-c.de"}.items()]


def open_model(path):
    cfg, model = ModelConfig(), Pointer()
    cfg.vocab_only = 1
    return model if L.llm_model_open(path.encode(), ctypes.byref(cfg), ctypes.byref(model)) == 0 else None


class Vocabulary:
    def __init__(self, model):
        self.model, self.n, self.bytes = model, L.llm_vocab_size(model), []
        self.words = (ctypes.c_uint32 * ((self.n + 31) // 32))()
        self.times, self.ids_of = [], {}
        for i in range(self.n):
            t = Bytes()
            L.llm_token_bytes(model, i, ctypes.byref(t))
            self.bytes.append(ctypes.string_at(t.data, t.len) if t.len and not L.llm_token_is_special(model, i) else b"")
            L.llm_text_free(ctypes.byref(t))
            self.ids_of.setdefault(self.bytes[-1], i)

    def mask(self, matcher):
        """How many tokens may come next: self.words says which."""
        n, start = ctypes.c_int32(), time.perf_counter()
        check(L.llm_matcher_mask(matcher, self.words, ctypes.byref(n)) == 0, "mask", L.llm_last_error())
        self.times.append(time.perf_counter() - start)
        return n.value

    def ids(self):
        return [32 * w + b for w, bits in enumerate(self.words) if bits for b in range(32) if bits >> b & 1]

    def some(self, n, rng, count):
        """Random ones of the n ids of the mask: drawn until they fit where most do, else out of the list."""
        if n < self.n // 20:
            ids = self.ids()
            return check(len(ids) == n, "mask", len(ids), n) and rng.sample(ids, min(count, n))
        found = []
        while len(found) < count:
            i = rng.randrange(self.n)
            if self.words[i >> 5] >> (i & 31) & 1: found.append(i)
        return found


def twin(v, kind, text, prefix):
    """A mask against every token alone."""
    g = grammar(kind, text, v.model)
    m = L.llm_matcher_open(g)
    L.llm_matcher_bytes(m, prefix, len(prefix))
    n, masked, alone = v.mask(m), set(v.ids()), set()
    for i in range(v.n):
        one = L.llm_matcher_open(g)
        L.llm_matcher_bytes(one, prefix, len(prefix))
        if L.llm_matcher_token(one, i) == 0: alone.add(i)
        L.llm_matcher_close(one)
    check(masked == alone and len(masked) == n, "mask and twin differ", prefix, sorted(masked ^ alone)[:9])
    L.llm_matcher_close(m)
    L.llm_grammar_close(g)


def walk(v, g, rng, most=200):
    """A random document, or None if it did not end in time: late in a walk short closing tokens are preferred."""
    m, out = L.llm_matcher_open(g), b""
    for step in range(most):
        n, end = v.mask(m), L.llm_matcher_can_end(m)
        if not n or (end and rng.random() < 0.3): break
        hurry = step > 20 and rng.random() < 0.9
        chosen = min(v.some(n, rng, 40 if hurry else 1), key=lambda i: (v.bytes[i][:1] not in (b'"', b"}", b"]"), len(v.bytes[i])))
        check(L.llm_matcher_token(m, chosen) == 0, "a token of the mask is refused", v.bytes[chosen], out)
        out += v.bytes[chosen]
    ended = L.llm_matcher_can_end(m)
    L.llm_matcher_close(m)
    return out if ended else None


def tokens(v, text):
    """Greedily, the longest token first; up to a byte that no token begins with."""
    at, text = 0, as_bytes(text)
    while at < len(text):
        n = next((n for n in range(min(16, len(text) - at), 0, -1) if text[at:at + n] in v.ids_of), 0)
        if not n: return
        yield v.ids_of[text[at:at + n]]
        at += n


def reachable(v, g, text):
    """Does the grammar take this document, token by token? Or by its bytes, where no tokens spell it (SmolLM2 has none for some bytes)."""
    m, ids = L.llm_matcher_open(g), list(tokens(v, text))
    if b"".join(v.bytes[i] for i in ids) != as_bytes(text): ok = accepts(g, text)
    else: ok = all(L.llm_matcher_token(m, i) == 0 for i in ids) and L.llm_matcher_can_end(m)
    L.llm_matcher_close(m)
    return bool(ok)


def campaign(v, count, part=1, parts=1):
    """For each schema (of one part of them): random walks through the masks end in documents that jsonschema accepts; what it rejects cannot be reached."""
    refused, walked, spoilt, unreached = 0, 0, 0, 0
    schemas = list(enumerate(SCHEMAS + list(generated(random.Random(7), 300 - len(SCHEMAS)))))[part - 1::parts]
    for n, schema in schemas:
        rng = random.Random(n)
        g, documents = grammar(SCHEMA, schema, v.model), []
        if isinstance(g, str): # of the written ones none; of the generated ones those that nothing can satisfy, and a few
            refused += "satisfy" not in g and "complete" not in g
            check(n >= len(SCHEMAS), "refused", json.dumps(schema)[:300], g)
            continue
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
        for _ in range(count):
            document = walk(v, g, rng)
            if document is None: continue
            walked += 1
            try: documents.append(json.loads(document))
            except ValueError as error: check(False, json.dumps(schema)[:300], document[:200], error)
            else: check(validator.is_valid(documents[-1]), "walked to an invalid document", json.dumps(schema)[:300], document[:300])
        for _ in range(2 * count):
            document = spoil(rng.choice(documents + ODD), rng)
            if validator.is_valid(document): continue
            spoilt += 1
            check(not reachable(v, g, text(document)), "an invalid document is reachable", json.dumps(schema)[:300], text(document)[:300])
        unreached += not documents
        L.llm_grammar_close(g)
    print(f"{len(schemas)} schemas: {walked} documents walked to, {spoilt} invalid ones not reachable, {refused} schemas refused, {unreached} without a finished walk")
    check(parts > 1 or (refused <= 15 and unreached <= 15 and walked > 200 * count), "too little was tried")


def timing(v, name):
    g = grammar(SCHEMA, KNIGHT, v.model)
    start = time.perf_counter()
    L.llm_grammar_close(g)
    g = grammar(SCHEMA, KNIGHT, v.model)
    m = L.llm_matcher_open(g)
    v.mask(m)
    opened = time.perf_counter() - start
    L.llm_matcher_bytes(m, b'{"name":"', 9)
    v.times.clear()
    v.mask(m)
    first = v.times[0]
    v.times.clear()
    for i in range(8):
        L.llm_matcher_bytes(m, b"x", 1)
        v.mask(m)
    check(first < 0.05, "the first mask inside a string took", first)
    print(f"{name}: {v.n} tokens; compiled and first mask {opened * 1e3:.1f} ms, first mask inside a string {first * 1e3:.1f} ms, later ones {sorted(v.times)[4] * 1e6:.0f} us")
    L.llm_matcher_close(m)
    L.llm_grammar_close(g)


def finish():
    print(f"{RESULT[0]} passed, {RESULT[1]} failed")
    sys.exit(1 if RESULT[1] else 0)


def main():
    if os.environ.get("GRAMMAR_SLICE"):
        campaign(Vocabulary(open_model(MODEL)), int(os.environ.get("GRAMMAR_WALKS", 8)), *map(int, os.environ["GRAMMAR_SLICE"].split("/")))
        finish()
    for kind, text, yes, no in FORMS:
        g = grammar(kind, text)
        if not check(not isinstance(g, str), text, g): continue
        for one in yes: check(accepts(g, one), "should accept", text, one[:80])
        for one in no: check(not accepts(g, one), "should refuse", text, one[:80])
        L.llm_grammar_close(g)
    for kind, text, part in REFUSED:
        start = time.process_time()
        g = grammar(kind, text)
        check(isinstance(g, str) and part in g, "should be refused for", part, ":", str(text)[:80], g)
        took = time.process_time() - start  # what is refused for its size takes half a second of it at most on a quiet machine
        check(took < 4 * float(os.environ.get("LLM_TEST_SLOW", 1)), "slow refusal", f"{took:.2f} s", str(text)[:80])
    g = grammar(REGEX, "ab+", after=b"</think>")
    for text, ok in (("</think>ab", 1), ("xx</thi</think>abb", 1), ("ab", 0), ("", 0), ("</think>", 0), ("</think>b", 0)): check(accepts(g, text) == bool(ok), "after", text)
    L.llm_grammar_close(g)
    g = grammar(SCHEMA, {"type": "array", "items": {"type": "integer"}}, space=b"")
    for text, ok in (("[1,2]", 1), ("[1, 2]", 0)): check(accepts(g, text) == bool(ok), "space", text)
    L.llm_grammar_close(g)
    v = Vocabulary(open_model(MODEL))
    for prefix in (b"", b"{", b'{"', b'{"name":', b'{"name":"', b'{"name":"abcdefgh', b'{"name": "a", "age": 1'): twin(v, SCHEMA, KNIGHT, prefix)
    twin(v, GBNF, 'root ::= [a-zé]{3,7} "." | "\\xff"', b"ab")
    for schema in ({"maxLength": 9, "minLength": 4}, {"anyOf": [{"maxLength": 3}, {"pattern": "^.x"}, {"minLength": 6, "maxLength": 8}]}, {"additionalProperties": True}): twin(v, SCHEMA, schema, b'{"a' if "additionalProperties" in schema else b'"\xc3\xa9')
    v.times.clear()
    campaign(v, int(os.environ.get("GRAMMAR_WALKS", 8)))
    if v.times: print(f"SmolLM2: {len(v.times)} masks, median {sorted(v.times)[len(v.times) // 2] * 1e6:.1f} us")
    g = grammar(REGEX, "x([a-z ]{0,900}[a-z ,]{0,900}){0,900}|y+", v.model) # an answer that gives up spoils neither its grammar nor others
    one, other = L.llm_matcher_open(g), L.llm_matcher_open(g)
    check(L.llm_matcher_bytes(one, b"xaa", 3) and b"too many ways" in L.llm_last_error(), "too many ways", L.llm_last_error())
    for _ in range(2): check(L.llm_matcher_bytes(other, b"y", 1) == 0 and v.mask(other) and L.llm_matcher_can_end(other), "a neighbour of what gave up")
    for m in (one, other): L.llm_matcher_close(m)
    L.llm_grammar_close(g)
    timing(v, "SmolLM2")
    v = Vocabulary(open_model(BIG))
    timing(v, "Qwen3")
    twin(v, SCHEMA, {"maxLength": 9}, b'"a') # it has tokens that begin within a character
    twin(v, SCHEMA, {"pattern": "^[a-z][a-z0-9-]{0,20}(\\.[a-z]{2,5})?$"}, b'"ab')
    finish()


if __name__ == "__main__": main()
