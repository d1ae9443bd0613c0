/* Chat templates: reference prompts to the byte, small templates against Jinja2's own results, hostile ones, limits; reasoning parsers.
 *
 * The table holds what Python's jinja2 3.1.6 makes of each template in the environment of transformers (immutable sandbox, trim_blocks,
 * lstrip_blocks, loop controls, generation blocks, tojson by json.dumps), all with one context; NULL: it raises. */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/files.h"
#include "base/json.h"
#include "chat/harmony.h"
#include "chat/reasoning.h"
#include <dirent.h>

static const char tpl_context[] =
    "{\"s\": \"Hello World\", \"e\": \"\", \"u\": \"ÄÖ ü 漢字 😀\", \"n\": 7, \"neg\": -3, \"f\": 2.5, \"z\": 0, \"t\": true, \"fa\": "
    "false, \"no\": null, \"l\": [3, 1, 2], \"el\": [], \"d\": {\"b\": 1, \"a\": \"x\", \"C\": null}, \"ed\": {}, \"w\": \"  \\t pa"
    "d\\n \", \"ml\": \"one\\ntwo\\n\\nfour\", \"users\": [{\"name\": \"Bob\", \"age\": 30, \"x\": {\"y\": 1}}, {\"name\": \"alice"
    "\", \"age\": 25, \"x\": {\"y\": 2}}, {\"name\": \"Carl\", \"age\": 30, \"x\": {\"y\": 3}}], \"big\": 1234567890123456789012345"
    "67890, \"html\": \"<a href=\\\"x\\\">&'</a>\", \"nest\": {\"items\": [1], \"get\": 5, \"k\": {\"z\": [1, {\"q\": null}]}}, \"f"
    "l\": [1.0, 1e+22, 1e-07, 0.1, -0.0, 1e+16, 123456.789], \"mixed\": [1, \"a\", null, 2.0, true, [1], {\"k\": \"v\"}]}";

/* clang-format off */
static const struct {
    const char *text, *want;
} tpl_cases[] = {
    {"{{ s }} {{ n }} {{ f }} {{ t }} {{ no }} {{ l }} {{ d }} {{ u }}",
     "Hello World 7 2.5 True None [3, 1, 2] {'b': 1, 'a': 'x', 'C': None} ÄÖ ü 漢字 😀"},
    {"{{ mixed }} {{ fl }} {{ big }} {{ nest }}",
     "[1, 'a', None, 2.0, True, [1], {'k': 'v'}] [1.0, 1e+22, 1e-07, 0.1, -0.0, 1e+16, 123456.789] 123456789012345678901234567890 {'"
     "items': [1], 'get': 5, 'k': {'z': [1, {'q': None}]}}"},
    {"{{ undefined_name }}|{{ undefined_name is defined }}|{{ [undefined_name] }}", "|False|[Undefined]"},
    {"{{ undefined_name.x }}", NULL},
    {"{{ undefined_name['x'] }}", NULL},
    {"{{ undefined_name() }}", NULL},
    {"{{ undefined_name + 1 }}", NULL},
    {"{{ 'a' + undefined_name }}", NULL},
    {"{{ undefined_name ~ 'x' ~ 1 ~ none ~ true ~ 1.0 }}", "x1NoneTrue1.0"},
    {"{{ -undefined_name }}", NULL},
    {"{{ undefined_name < 1 }}", NULL},
    {"{{ undefined_name == undefined_other }} {{ undefined_name == none }} {{ undefined_name == '' }}", "True False False"},
    {"{{ undefined_name in [1] }} {{ 1 in undefined_name }}", "False False"},
    {"{{ undefined_name in 'abc' }}", NULL},
    {"{% for x in undefined_name %}a{% else %}empty{% endfor %}", "empty"},
    {"{{ undefined_name|length }} {{ undefined_name|list }} {{ undefined_name|join(',') }} {{ undefined_name|default('d') }} {{ e|de"
     "fault('d') }} {{ e|default('d', true) }} {{ no|default('q') }}",
     "0 []  d  d None"},
    {"{{ undefined_name|tojson }}", NULL},
    {"{{ undefined_name|int }}", NULL},
    {"{{ undefined_name|upper }}|{{ undefined_name|trim }}|{{ undefined_name|first }}|{{ undefined_name|items|list }}", "|||[]"},
    {"{{ no.x }}|{{ no['x'] }}|{{ n.x }}|{{ l.x }}|{{ d.zzz }}|{{ s.zzz }}", "|||||"},
    {"{{ no.x.y }}", NULL},
    {"{{ d.zzz.y }}", NULL},
    {"{{ l[0] }} {{ l[-1] }} {{ l[5] }}|{{ l['0'] }}|{{ l[1.0] }}|{{ l[true] }}", "3 2 |||1"},
    {"{{ el[0] }}|{{ el|first }}|{{ el|last }}", "||"},
    {"{{ el[0].x }}", NULL},
    {"{{ s[0] }}{{ s[-1] }}{{ s[99] }}|{{ s[1:4] }}|{{ s[::-1] }}|{{ s[-3:] }}|{{ s[:-3] }}|{{ s[10:2] }}|{{ s[::2] }}|{{ u[0] }}{{ "
     "u[5:7] }}{{ u[::-1] }}",
     "Hd|ell|dlroW olleH|rld|Hello Wo||HloWrd|Ä漢字😀 字漢 ü ÖÄ"},
    {"{{ l[1:] }} {{ l[::-1] }} {{ l[:1] }} {{ l[5:] }} {{ l[-2:] }} {{ l[::-2] }} {{ l[2:0:-1] }} {{ (1,2,3)[1:] }} {{ range(5)[1:3"
     "]|list }}",
     "[1, 2] [2, 1, 3] [3] [] [1, 2] [2, 3] [2, 1] (2, 3) [1, 2]"},
    {"{{ l['a':] }}|{{ n[1:] }}|{{ d[1:] }}", NULL},
    {"{{ l[::0] }}", NULL},
    {"{{ nest['get'] }}", "5"},
    {"{{ nest.items() }} {{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d.items()|list }}",
     "dict_items([('items', [1]), ('get', 5), ('k', {'z': [1, {'q': None}]})]) dict_items([('b', 1), ('a', 'x'), ('C', None)]) dict_"
     "keys(['b', 'a', 'C']) dict_values([1, 'x', None]) [('b', 1), ('a', 'x'), ('C', None)]"},
    {"{{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.get('C', 1) }}", "1 None 5 None"},
    {"{{ d.get() }}", NULL},
    {"{{ d.get('a', default=1) }}", NULL},
    {"{{ d.get([1]) }}", NULL},
    {"{{ l.append(4) }}", NULL},
    {"{{ l.append is defined }} {{ d.pop is defined }} {{ d.update is defined }} {{ l.pop is defined }}",
     "False False False False"},
    {"{{ d.pop('a') }}", NULL},
    {"{{ d.update({'x':1}) }}", NULL},
    {"{{ s.items() }}", NULL},
    {"{{ s.foo() }}", NULL},
    {"{{ n() }}", NULL},
    {"{{ 1 + 2 }} {{ 1 - 2 }} {{ 2 * 3 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }}"
     " {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 4 / 2 }}",
     "3 -1 6 3.5 3 -4 1 2 -2 1024 0.5 64 4 3.0 0.5 2.0"},
    {"{{ 1 / 0 }}", NULL},
    {"{{ 1 // 0 }}", NULL},
    {"{{ 1 % 0 }}", NULL},
    {"{{ 1.0 / 0 }}", NULL},
    {"{{ 0 ** -1 }}", NULL},
    {"{{ true + true }} {{ true * 3 }} {{ 1 == true }} {{ 1 == 1.0 }} {{ 'a' == 'a' }} {{ [1] == [1.0] }} {{ (1,) == [1] }} {{ {'a':"
     "1,'b':2} == {'b':2,'a':1} }}",
     "2 3 True True True True False True"},
    {"{{ 'a' + 1 }}", NULL},
    {"{{ 'a' + none }}", NULL},
    {"{{ 1 + 'a' }}", NULL},
    {"{{ 'a' + [1] }}", NULL},
    {"{{ [1] + (2,) }}", NULL},
    {"{{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1,2] * 2 }} {{ 'a' * -1 }} {{ [0] * 0 }}",
     "[1, 2] (1, 2) ababab ababab [1, 2, 1, 2]  []"},
    {"{{ 'a' - 'b' }}", NULL},
    {"{{ 'a' * 'b' }}", NULL},
    {"{{ 'a' * 2.0 }}", NULL},
    {"{{ none + 1 }}", NULL},
    {"{{ -'a' }}", NULL},
    {"{{ d + d }}", NULL},
    {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 >= 2 != 1 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ 1 < 1.5 }} {{ 1 in [1,2] in [[1,2"
     "]] }}",
     "True False True True True True True"},
    {"{{ 'a' < 1 }}", NULL},
    {"{{ none < 1 }}", NULL},
    {"{{ [1] < (2,) }}", NULL},
    {"{{ d < d }}", NULL},
    {"{{ 1 in 2 }}", NULL},
    {"{{ 1 in 'a' }}", NULL},
    {"{{ 'a' in d }} {{ 'zz' in d }} {{ 'zz' not in d }} {{ 'lo' in s }} {{ '' in s }} {{ 1 in l }} {{ not 1 in l }} {{ 9 not in l }"
     "} {{ 'x' in d.values() }} {{ ('a','x') in d.items() }}",
     "True False True True True True False True True True"},
    {"{{ [] in d }}", NULL},
    {"{{ {'a': 1, 2: 'b', true: 3, none: 4, 1.5: 6, (1,2): 7} }}", "{'a': 1, 2: 'b', True: 3, None: 4, 1.5: 6, (1, 2): 7}"},
    {"{{ {[1]: 2} }}", NULL},
    {"{{ {'a': 1, 'a': 2} }} {{ {} }} {{ [] }} {{ () }} {{ (1,) }} {{ (1) }} {{ [1,] }} {{ {'a':1,} }}",
     "{'a': 2} {} [] () (1,) 1 [1] {'a': 1}"},
    {"{{ 1, 2 }} {{ (1, 'a', none) }}", "(1, 2) (1, 'a', None)"},
    {"{{ 'it\\'s' }} {{ [\"it's\"] }} {{ ['say \"hi\"'] }} {{ ['both \\' \"'] }} {{ ['\\n\\t\\\\\\x01é\\u200b'] }} {{ \"tab\\tnl\\nA"
     "\\x41\\u0041 \\d\" }}",
     "it's [\"it's\"] ['say \"hi\"'] ['both \\' \"'] ['\\n\\t\\\\\\x01é\\u200b'] tab\tnl\nAAA \\d"},
    {"{{ 'a' 'b' \"c\" }} {{ 1000 }} {{ 1e3 }} {{ 1.5e-3 }} {{ 1E+2 }} {{ 007 }}", "abc 1000 1000.0 0.0015 100.0 7"},
    {"{{ 123456789012345678901234567890 }} {{ big }} {{ big|tojson }} {{ big == 123456789012345678901234567890 }}",
     "123456789012345678901234567890 123456789012345678901234567890 123456789012345678901234567890 True"},
    {"{{ 'yes' if t else 'no' }} {{ 'yes' if fa else 'no' }} [{{ 'yes' if fa }}] {{ 'a' if fa else 'b' if fa else 'c' }} {{ ('a' if "
     "t else 'b') ~ 'c' }}",
     "yes no [] c ac"},
    {"{{ ('x' if fa).y }}", NULL},
    {"{{ t and 5 }} {{ 0 or 'x' }} {{ none or false }} {{ not 0 }} {{ not 'a' }} {{ t and not fa }} {{ 1 and 2 and 3 }} {{ 0 or '' o"
     "r none }} {{ fa or t and fa }}",
     "5 x False True False True 3 None False"},
    {"{{ not t == fa }} {{ - 3 + 5 }} {{ +3 }} {{ --3 }} {{ 2 - -2 }} {{ -n }} {{ -f }} {{ -t }}", "True 2 3 3 4 -7 -2.5 -1"},
    {"{{ 1 ~ 2 + 3 }} {{ 1 + 2 ~ 3 }} {{ 'a' ~ 'b' * 2 }} {{ -3|abs }} {{ (-3)|abs }} {{ -3 ** 2|abs }}", NULL},
    {"{% if l %}L{% endif %}{% if el %}x{% elif ed %}y{% elif e %}z{% else %}none{% endif %}{% if 0.0 %}a{% endif %}{% if '0' %}b{% "
     "endif %}",
     "Lnoneb"},
    {"{% for x in l %}{{ x }}{{ ',' if not loop.last }}{% endfor %} {% for x in [] %}{% else %}E{% endfor %} {% for x in l if x > 1 "
     "%}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}no{% endfor %}{% for x in l if x > 9 %}{% else %}no{% endfor %}",
     "3,1,2 E 1:3/2 2:2/2 no"},
    {"{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop"
     ".length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
     "1032TrueFalse311;2121FalseFalse3132;3210FalseTrue311;"},
    {"{% for a in [1,2] %}{% for b in [3,4] %}{{ loop.index }}{{ loop.depth }} {% endfor %}{{ loop.index }};{% endfor %}",
     "11 21 1;11 21 2;"},
    {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}",
     "32"},
    {"{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}never{% endfor %}", "3"},
    {"{% for i in [1, 2] %}{{ i }}{% set x %}b{% break %}{% endset %}a{% endfor %}{{ x }}", "1"},
    {"{% for i in [1, 2] %}{{ i }}{% filter upper %}b{% continue %}{% endfilter %}a{% endfor %}", "12"},
    {"{% for i in [1, 2, 3] %}{% if i == 2 %}{% if 1 %}{% continue %}{% endif %}x{% elif i == 3 %}{% break %}{% else %}{{ i }}{% endif %}-{% else %}e{% endfor %}", "1-"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for k, v in d|dictsort %}{{ k }}{"
     "% endfor %}{% for c in s[:3] %}{{ c }}.{% endfor %}",
     "b=1;a=x;C=None;baCabCH.e.l."},
    {"{% for a, b in ['xy', 'zw'] %}{{ a }}-{{ b }} {% endfor %}",
     "x-y z-w "},
    {"{% for a, b in [(1,2,3)] %}{% endfor %}", NULL},
    {"{% for a, b in [1] %}{% endfor %}", NULL},
    {"{% for x in 5 %}{% endfor %}", NULL},
    {"{% for x in none %}{% endfor %}", NULL},
    {"{% for x in l %}{% set y = x %}{% endfor %}{{ y }}|{% set z2 = 1 %}{% for x in l %}{% set z2 = z2 + x %}{{ z2 }}{% endfor %}{{"
     " z2 }}",
     "|4231"},
    {"{% set ns = namespace(a=1, b='x') %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns.zz }} {{ "
     "ns['a'] }} {{ ns is mapping }}",
     "7 x  7 False"},
    {"{% set ns = namespace({'q': 1}, r=2) %}{{ ns.q }}{{ ns.r }}{% set ns.new = [1] %}{{ ns.new }}", "12[1]"},
    {"{% set d.x = 1 %}", NULL},
    {"{% set q.x = 1 %}", NULL},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (a, b) = (b, a) %}{{ a }}{{ b }} {% set a = 1, %}{{ a }}", "12 21 (1,)"},
    {"{% set a, b = 1 %}", NULL},
    {"{% set a, b = [1,2,3] %}", NULL},
    {"{% set x %}in {{ n }}{% set inner = 5 %}{% endset %}[{{ x }}]{{ inner }} {% set x | upper | replace('N','M') %}in {{ n }}{% en"
     "dset %}{{ x }} {{ x is string }}",
     "[in 7] IM 7 True"},
    {"{% if t %}{% set a = 1 %}{% else %}{% set b = 2 %}{% endif %}{{ a }}{{ b }}", "1"},
    {"{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=1, a=0) }}{{ m() }}{{ m(1,2,"
     "3) }}",
     "1-2-x;1-2-3;0-1-x;-2-x;1-2-3;"},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", NULL},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}", NULL},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", NULL},
    {"{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}|{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro"
     " %}{{ f(3) }}",
     "1|3210"},
    {"{% macro m() %}{{ s }}{{ later }}{% set s = 1 %}{{ s }}{% endmacro %}{% set later = 'L' %}{{ m() }}{{ s }}",
     "Hello WorldL1Hello World"},
    {"{% macro m() %}{{ x }}{% endmacro %}{% for x in [1] %}[{{ m() }}]{% endfor %}", "[]"},
    {"{% macro m(a, b=2) %}{{ a }}<{{ caller() }}>{{ b }}{% endmacro %}{% call m('(', b=')') %}x{{ n }}{% endcall %}|{% call m(1) %}{% call m(2) %}y{% endcall %}{% endcall %}", "(<x7>)|1<2<y>2>2"},
    {"{% macro m() %}{{ caller(1, b=3) }}{% endmacro %}{% call(a, b=2, c=4) m() %}{{ a }}{{ b }}{{ c }}{% endcall %}{% macro o() %}[{{ caller }}]{% endmacro %}{{ o() }}", "134[]"},
    {"{% macro o(i) %}{% set f = namespace(v=caller()) %}{% if i %}{% call o(i - 1) %}n{{ i }}{{ caller is defined }}{% endcall %}{% endif %}{{ f.v }};{% endmacro %}{% call o(2) %}top{% endcall %}",
     "n1False;n2False;top;"},
    {"{% macro m(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }} {% endmacro %}{{ m(*[5, 6]) }}{{ m(*l, **{}) }}{{ m(1, **{'c': 9}) }}{{ m(0, *'x') }}", "563 312 129 0x3 "},
    {"{% macro m(a) %}{% endmacro %}{{ m(**[1]) }}", NULL}, {"{% macro m(a) %}{% endmacro %}{{ m(*5) }}", NULL}, {"{% macro m(a) %}{% endmacro %}{{ m(*l) }}", NULL},
    {"{% macro m() %}a{% endmacro %}{{ m() ~ 'b' }} {{ m()|upper }} {{ (m() + 'c')|length }} {{ m is callable }} {{ m.name }}",
     "ab A 2 True m"},
    {"{% filter upper %}abc {{ n }}x{% endfilter %} {% filter trim|replace('a','b') %} aa {% endfilter %}", "ABC 7X bb"},
    {"{%- if t -%}  a  {%- endif -%}   b", "ab"},
    {"a  {{- 'b' -}}  c {{ 'd' }}  e", "abc d  e"},
    {"{% generation %}{% set gg = 1 %}{{ gg }}{% endgeneration %}{{ gg }}", "1"},
    {"{{ l|length }} {{ s|length }} {{ u|length }} {{ d|length }} {{ 'é'|length }} {{ range(5)|length }} {{ l|count }}",
     "3 11 9 3 1 5 3"},
    {"{{ n|length }}", NULL},
    {"{{ no|length }}", NULL},
    {"{{ (l|map('string'))|length }}", NULL},
    {"{{ w|trim }}| {{ 'xxaxx'|trim('x') }} {{ 5|trim }} {{ no|trim }} {{ w.strip() }} {{ 'xya'.lstrip('xy') }} {{ 'abc'.rstrip('bc'"
     ") }} {{ '\\u00a0\\u3000x\\u2003'|trim }}|",
     "pad| a 5 None pad a a x|"},
    {"{{ l|string }} {{ 1|string + 'a' }} {{ d|string }} {{ none|string }} {{ 1.0|string }}",
     "[3, 1, 2] 1a {'b': 1, 'a': 'x', 'C': None} None 1.0"},
    {"{{ l|join }} {{ l|join(', ') }} {{ users|join('; ', attribute='name') }} {{ s|join('-') }} {{ d|join('/') }} {{ [1,none,true,["
     "2]]|join(',') }} {{ range(3)|join }}",
     "312 3, 1, 2 Bob; alice; Carl H-e-l-l-o- -W-o-r-l-d b/a/C 1,None,True,[2] 012"},
    {"{{ n|join }}", NULL},
    {"{{ d|items|list }} {{ d|list }} {{ s|list }} {{ (1,2)|list }} {{ range(3)|list }}",
     "[('b', 1), ('a', 'x'), ('C', None)] ['b', 'a', 'C'] ['H', 'e', 'l', 'l', 'o', ' ', 'W', 'o', 'r', 'l', 'd'] [1, 2] [0, 1, 2]"},
    {"{{ n|list }}", NULL},
    {"{{ users|selectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ users|selectattr('age')|list|length }} {{ users|rej"
     "ectattr('age', '==', 30)|map(attribute='name')|join }} {{ users|selectattr('x.y', 'gt', 1)|map(attribute='x.y')|list }}",
     "['Bob', 'Carl'] 3 alice [2, 3]"},
    {"{{ users|map(attribute='zz')|list }} {{ users|map(attribute='zz', default='D')|list }} {{ users|map(attribute='zz.q')|list }}",
     NULL},
    {"{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ l|select|list }} {{ [0,1,'',none,'a']|select|list }} {{ [0,1]|reject|"
     "list }} {{ l|select('in', [1,2])|list }} {{ l|select('>', 1)|list }}",
     "[3, 1] [2] [3, 1, 2] [1, 'a'] [0] [1, 2] [3, 2]"},
    {"{{ l|select('nosuch')|list }}", NULL},
    {"{{ l|map('nosuch')|list }}", NULL},
    {"{{ l|map('string')|list }} {{ ['a b']|map('replace', ' ', '_')|list }} {{ l|map('abs')|sum }} {{ [' a ']|map('trim')|list }}",
     "['3', '1', '2'] ['a_b'] 6 ['a']"},
    {"{% set g = l|map('string') %}{{ g|list }}{{ g|list }}{% if g %}T{% endif %}", "['3', '1', '2'][]T"},
    {"{{ (l|map('string'))|tojson }}", NULL},
    {"{{ d.items()|tojson }}", NULL},
    {"{{ (l|map('string'))[0] }}|{{ d.items()[0] }}", "|"},
    {"{{ l|sort }} {{ l|sort(reverse=true) }} {{ ['b','A','c']|sort }} {{ ['b','A','c']|sort(case_sensitive=true) }} {{ users|sort(a"
     "ttribute='name')|map(attribute='name')|list }} {{ users|sort"
     "(attribute='age', reverse=true)|map(attribute='name')|list }}",
     "[1, 2, 3] [3, 2, 1] ['A', 'b', 'c'] ['A', 'b', 'c'] ['alice', 'Bob', 'Carl'] ['Bob', 'Carl', 'alice']"},
    {"{{ [1,'a']|sort }}", NULL},
    {"{{ l|min }} {{ l|max }} {{ ['b','A']|min }} {{ users|max(attribute='age') }} {{ el|min }} {{ l|sum }} {{ users|sum(attribute='"
     "age') }} {{ [[1],[2]]|sum(start=[]) }} {{ [0.1,0.2]|sum }}",
     "1 3 A {'name': 'Bob', 'age': 30, 'x': {'y': 1}}  6 85 [1, 2] 0.30000000000000004"},
    {"{{ ['a']|sum }}", NULL},
    {"{{ [1,2,1,'a','A',1.0]|unique|list }} {{ ['a','A']|unique(case_sensitive=true)|list }} {{ users|unique(attribute='age')|map(at"
     "tribute='name')|list }}",
     "[1, 2, 'a'] ['a', 'A'] ['Bob', 'alice']"},
    {"{{ l|first }} {{ l|last }} {{ s|first }} {{ s|last }} {{ d|first }} {{ d|last }} {{ range(3)|last }}", "3 2 H d b C 2"},
    {"{{ (l|map('string'))|last }}", NULL},
    {"{{ l|reverse|list }} {{ s|reverse }} {{ l|reverse is string }} {{ (1,2)|reverse|list }}",
     "[2, 1, 3] dlroW olleH False [2, 1]"},
    {"{{ d|dictsort }} {{ d|dictsort(true) }} {{ {'a':2,'b':1}|dictsort(by='value') }} {{ {'a':2,'b':1}|dictsort(false, 'value', tru"
     "e) }}",
     "[('a', 'x'), ('b', 1), ('C', None)] [('C', None), ('a', 'x'), ('b', 1)] [('b', 1), ('a', 2)] [('a', 2), ('b', 1)]"},
    {"{{ d|dictsort(by='x') }}", NULL},
    {"{{ l|dictsort }}", NULL},
    {"{{ s|lower }} {{ s|upper }} {{ 'hello wORLD-foo (bar)'|title }} {{ 'hELLO'|capitalize }} {{ \"they're bill's\"|title }} {{ \"t"
     "hey're bill's\".title() }} {{ n|upper }}",
     "hello world HELLO WORLD Hello World-Foo (Bar) Hello They're Bill's They'Re Bill'S 7"},
    {"{{ 'äöü éñ ßx ı'.upper() }} {{ 'ÄÖÜ ÉÑ Σ ŽĐ'|lower }} {{ 'жук'|upper }} {{ 'ЖУК'|lower }} {{ 'éa'|capitalize }}",
     "ÄÖÜ ÉÑ SSX I äöü éñ σ žđ ЖУК жук Éa"},
    {"{{ 'aaa'|replace('a','b') }} {{ 'aaa'|replace('a','b',2) }} {{ 123|replace('2','x') }} {{ 'aaa'.re"
     "place('a','b') }} {{ 'aaa'.replace('a','b',1) }} {{ s|replace('o','') }} {{ 'a<b'|replace('<', '>') }}",
     "bbb bba 1x3 bbb baa Hell Wrld a>b"},
    {"{{ 'a'.replace('a') }}", NULL},
    {"{{ 'a'.replace('a', 1) }}", NULL},
    {"{{ 'a'|replace }}", NULL},
    {"{{ '42'|int }} {{ '42.7'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ -3.9|int }} {{ none|int }} {{ ' 12 '|int }} {{"
     " '0x1f'|int(6) }} {{ true|int }} {{ '1e3'|int }} {{ '-5'|int }} {{ '+5'|int }} {{ [1]|int(9) }}",
     "42 42 0 5 3 -3 0 12 6 1 1000 -5 5 9"},
    {"{{ '3.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ none|float }} {{ '1e3'|float }} {{ ' -2.5 '|float }} {"
     "{ '.5'|float }}",
     "3.5 0.0 1.5 3.0 0.0 1000.0 -2.5 0.5"},
    {"{{ -5|abs }} {{ (-5)|abs }} {{ (-2.5)|abs }} {{ true|abs }}", "5 5 2.5 1"},
    {"{{ 'a'|abs }}", NULL},
    {"{{ none|round }}", NULL},
    {"{{ 1|round(0,'bad') }}", NULL},
    {"{{ ml|indent }}|{{ ml|indent(2, true) }}|{{ ml|indent(2, true, true) }}|{{ ml|indent('> ') }}|{{ ml|indent(width=1, first=true"
     ") }}|{{ ''|indent }}|{{ 'a'|indent(3, true) }}",
     "one\n    two\n\n    four|  one\n  two\n\n  four|  one\n  two\n  \n  four|one\n> two\n\n> four| one\n two\n\n four||   a"},
    {"{{ 5|indent }}", NULL},
    {"{{ 'abc'|truncate(2) }}", NULL},
    {"{{ '{\"a\": [1, 2.0, null, \"x\"]}'|from_json }} {{ '[]'|from_json }} {{ '\"s\"'|from_json }} {{ '12'|from_json }}",
     "{'a': [1, 2.0, None, 'x']} [] s 12"},
    {"{{ '{bad'|from_json }}", NULL},
    {"{{ l|from_json }}", NULL},
    {"{{ '%d' % 'a' }}", NULL},
    {"{{ '%s %s' % 'a' }}", NULL},
    {"{{ '%s' % (1,2) }}", NULL},
    {"{{ 'abc' % 1 }}", NULL},
    {"{{ '{} {}'.format(1, 'b') }} {{ '{0}{1}{0}'.format('a','b') }} {{ '{x}-{y}'.format(x=1, y=[2], z=d) }} {{ '{{}}'.format() }} {{ 'é{}{{{}}}'.format(none, 2) }}",
     "1 b aba 1-[2] {} éNone{2}"},
    {"{{ '{}'.format() }}", NULL},
    {"{{ '{'.format() }}", NULL},
    {"{{ '{x}'.format(y=1) }}", NULL},
    {"{{ '{:>5}'.format([1]) }}", NULL},
    {"{{ '{:+}'.format('a') }}", NULL},
    {"{{ '{:.2}'.format(5) }}", NULL},
    {"{{ '{:s}'.format(5) }}", NULL},
    {"{{ '%(zz)s' % {'k': 1} }}", NULL},
    {"{{ 0o9 }}", NULL},
    {"{{ 1|upper.y }}", NULL},
    {"{{ -0.0 // 1e22 }} {{ 0.0 // -3 }} {{ -7.5 // 2 }} {{ 1e-300 // -1e300 }}", "-0.0 -0.0 -4.0 -1.0"},
    {"{{ '1e+'|float }} {{ '1e'|float(2.5) }} {{ '+-5'|int }} {{ '0x'|int(7) }} {{ 'inf'|int(3) }} {{ 5e-324 }} {{ 1.5e-310 }} {{ 2.2250738585072014e-308 }}",
     "0.0 2.5 0 7 3 5e-324 1.5e-310 2.2250738585072014e-308"},
    {"{{ [{},{}]|min(attribute='x') }}", NULL},
    {"{{ [{},{}]|groupby('x')|list }}", NULL},
    {"{{ html|e }} {{ html|escape }} {{ html|safe }} {{ ('<'|safe) + '<' }} {{ '<' + ('<'|safe) }} {{ ('<'|safe) ~ '<' }} {{ ('<b>'|"
     "safe)|e }}",
     "&lt;a href=&#34;x&#34;&gt;&amp;&#39;&lt;/a&gt; &lt;a href=&#34;x&#34;&gt;&amp;&#39;&lt;/a&gt; <a href=\"x\">&'</a> <&lt; &lt;<"
     " << <b>"},
    {"{{ d|tojson }} {{ mixed|tojson }} {{ fl|tojson }} {{ u|tojson }} {{ '<>&\\'\"\\\\\\n\\t\\x01\\x7f'|tojson }} {{ (1,2)|tojson }"
     "} {{ none|tojson }} {{ true|tojson }} {{ {}|tojson }} {{ []|tojson }}",
     "{\"b\": 1, \"a\": \"x\", \"C\": null} [1, \"a\", null, 2.0, true, [1], {\"k\": \"v\"}] [1.0, 1e+22, 1e-07, 0.1, -0.0, 1e+16, 1"
     "23456.789] \"ÄÖ ü 漢字 😀\" \"<>&'\\\"\\\\\\n\\t\\u0001\177\" [1, 2] null true {} []"},
    {"{{ d|tojson(indent=2) }} {{ [1,[2,[]],{}]|tojson(indent=1) }} {{ u|tojson(ensure_ascii=true) }} {{ d|tojson(separators=(',', '"
     ":')) }} {{ {'b':1,'a':{'d':1,'c':2}}|tojson(sort_keys=true) }} {{ d|tojson(indent='--') }} {{ d|tojson(indent=0) }} {{ l|tojso"
     "n(indent=none) }} {{ d|tojson(true) }} {{ '\\x7fé'|tojson(ensure_ascii=true) }}",
     "{\n  \"b\": 1,\n  \"a\": \"x\",\n  \"C\": null\n} [\n 1,\n [\n  2,\n  []\n ],\n {}\n] \"\\u00c4\\u00d6 \\u00fc \\u6f22\\u5b57 "
     "\\ud83d\\ude00\" {\"b\":1,\"a\":\"x\",\"C\":null} {\"a\": {\"c\": 2, \"d\": 1}, \"b\": 1} {\n--\"b\": 1,\n--\"a\": \"x\",\n--"
     "\"C\": null\n} {\n\"b\": 1,\n\"a\": \"x\",\n\"C\": null\n} [3, 1, 2] {\"b\": 1, \"a\": \"x\", \"C\": null} \"\\u007f\\u00e9\""},
    {"{{ {1:2, true:3, none:4, 1.5:5}|tojson }}", "{\"1\": 3, \"null\": 4, \"1.5\": 5}"},
    {"{{ {(1,2):3}|tojson }}", NULL},
    {"{{ namespace(a=1)|tojson }}", NULL},
    {"{{ range(3)|tojson }}", NULL},
    {"{{ d|tojson(bad=1) }}", NULL},
    {"{{ {1:2,'a':3}|tojson(sort_keys=true) }}", NULL},
    {"{{ s|nosuchfilter }}", NULL},
    {"{% if fa %}{{ s|nosuchfilter }}{% endif %}ok", "ok"},
    {"{{ s is nosuchtest }}", NULL},
    {"{{ n is defined }}{{ n is number }}{{ t is number }}{{ n is integer }}{{ t is integer }}{{ f is float }}{{ n is float }}{{ s i"
     "s string }}{{ no is none }}{{ l is sequence }}{{ d is sequence }}{{ s is sequence }}{{ n is sequence }}{{ d is mapping }}{{ l "
     "is mapping }}{{ l is iterable }}{{ s is iterable }}{{ n is iterable }}{{ t is boolean }}{{ t is true }}{{ fa is false }}{{ 1 i"
     "s true }}{{ t is not false }}",
     "TrueTrueTrueTrueFalseTrueFalseTrueTrueTrueTrueTrueFalseTrueFalseTrueTrueFalseTrueTrueTrueFalseTrue"},
    {"{{ n is odd }}{{ n is even }}{{ n is divisibleby 7 }}{{ n is divisibleby(3) }}{{ n is eq 7 }}{{ n is ne 7 }}{{ n is gt 5 }}{{ "
     "n is lt(5) }}{{ n is ge 7 }}{{ n is in [7] }}{{ n is sameas 7 }}{{ no is sameas none }}{{ range is callable }}{{ s is callable }}{{ "
     "undefined_name is iterable }}{{ undefined_name is sequence }}{{ undefined_name is undefined }}{{ undefined_name is none }}",
     "TrueFalseTrueFalseTrueFalseTrueFalseTrueTrueTrueTrueTrueFalseTrueTrueTrueFalse"},
    {"{{ s is defined and s }} {{ s is defined or x.y }} {{ not s is defined }} {{ s is not defined }} {{ s is string is true }}",
     NULL},
    {"{{ 'a' is even }}", NULL},
    {"{{ s.split() }} {{ s.split('o') }} {{ s.split('o', 1) }} {{ s.rsplit('o', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(non"
     "e, 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',',"
     " maxsplit=1) }} {{ 'a,b'.split(sep=',') }}",
     "['Hello', 'World'] ['Hell', ' W', 'rld'] ['Hell', ' World'] ['Hello W', 'rld'] ['a', 'b'] ['a', 'b c '] [' a  b', 'c'] [] ['']"
     " ['a', 'b', '', 'c'] ['a', 'b,c'] ['a', 'b']"},
    {"{{ s.split('') }}", NULL},
    {"{{ s.split(1) }}", NULL},
    {"{{ s.startswith('He') }}{{ s.endswith('ld') }}{{ s.startswith(('x','H')) }}{{ s.endswith(('a',)) }}{{ s.startswith('') }}{{ e.startswith('a') }}",
     "TrueTrueTrueFalseTrueFalse"},
    {"{{ s.startswith('W', 6) }}", NULL},
    {"{{ s.startswith(['a']) }}", NULL},
    {"{{ s.startswith(1) }}", NULL},
    {"{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.count('l') }} {{ u.find('漢') }}", "4 7 -1 3 5"},
    {"{{ s.index('zz') }}", NULL},
    {"{{ ','.join(['a','b']) }} {{ ''.join(s) }} {{ '-'.join(d) }}", "a,b Hello World b-a-C"},
    {"{{ ','.join([1]) }}", NULL},
    {"{{ '12'.isdigit() }}{{ 'a1'.isdigit() }}{{ ''.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ '1'.isnumeric() }}{{ 'é'.isalpha() }}{{ '漢字'.isalpha() }}",
     "TrueFalseFalseTrueTrueTrueTrueTrueTrue"},
    {"{{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }} {{ ''.splitlines() }}",
     "['a', 'b', 'c'] ['a\\n', 'b'] []"},
    {"{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}", "x x"},
    {"{{ l.index(99) }}", NULL},
    {"{{ range(1,10,3)|list }} {{ range(5,0,-2)|list }} {{ range(3)[1] }} {{ 2 in range(3) }} {{ range(0)|list }}",
     "[1, 4, 7] [5, 3, 1] 1 True []"},
    {"{{ range(200000) }}", NULL},
    {"{{ range() }}", NULL},
    {"{{ range(1,2,0) }}", NULL},
    {"{{ range('a') }}", NULL},
    {"{{ dict(a=1, b=2) }} {{ dict([('x',1)]) }} {{ dict({'q':1}, r=2) }} {{ dict() }}",
     "{'a': 1, 'b': 2} {'x': 1} {'q': 1, 'r': 2} {}"},
    {"{{ raise_exception('boom') }}", NULL},
    {"{% if fa %}{{ raise_exception('boom') }}{% endif %}fine", "fine"},
    {"{{ s.__class__ }}|{{ s['__class__'] }}|{{ ''.__class__ is defined }}", "||False"},
    {"{{ ''.__class__.__mro__ }}", NULL},
    {"{% include 'x' %}", NULL},
    {"{% import 'x' as y %}", NULL},
    {"{% nosuchtag %}", NULL},
    {"{% if t %}", NULL},
    {"{% endif %}", NULL},
    {"{% for x in l %}", NULL},
    {"{{ s", NULL},
    {"{{ }}", NULL},
    {"{{ 1 + }}", NULL},
    {"{{ (1 }}", NULL},
    {"{{ [1 }}", NULL},
    {"{% set x = %}", NULL},
    {"{% if %}{% endif %}", NULL},
    {"{{ a b }}", NULL},
    {"{{ 'abc }}", NULL},
    {"{# open", NULL},
    {"{% raw %}x", NULL},
    {"{% break %}", NULL},
    {"{% else %}", NULL},
    {"{% if t %}{% else %}{% else %}{% endif %}", NULL},
    {"{{ 1 if }}", NULL},
    {"{{ x is }}", NULL},
    {"{{ x| }}", NULL},
    {"{{ f(a=1, 2) }}", NULL},
    {"{% macro m(a=1, b) %}{% endmacro %}", NULL},
    {"{% set 1 = 2 %}", NULL},
    {"{% for 1 in l %}{% endfor %}", NULL},
    {"{{ $ }}", NULL},
    {"{{ a.1b }}", NULL},
    {"{{ {'a' 1} }}", NULL},
    {"{% set x = 1 %}}", "}"},
    {"{{ \"%s\" }} {{ '{' }} }} %} #}", "%s { }} %} #}"},
    {"{{ {'a':{'b':{}}}['a']['b'] }}{{ {'a':[{'c':1}]}.a[0].c }}{{ nest.k.z[1].q }}{{ nest['k']['z'].1.q }}{{ l.0 }}",
     "{}1NoneNone3"},
    {"{{ s.upper().lower().title()[0] }} {{ (s|upper).lower() }} {{ l|map('string')|join|length }} {{ 'a,b'.split(',')[1] }} {{ s | "
     "upper | lower | replace('h', 'J') | first }}",
     "H hello world 3 b J"},
    {"{{ messages|default([])|length }} {{ (undefined_name or {}).get('x', 'y') }} {{ undefined_name|default({})|tojson }} {{ d.get("
     "'a')|upper }}",
     "0 y {} X"},
    {"{% for m in users %}{{ '<' + m['name'] + '>' + m.age|string }}{% if not loop.last %}, {% endif %}{% endfor %}",
     "<Bob>30, <alice>25, <Carl>30"},
    {"{% set x = [] %}{% for u in users %}{% set x = x + [u.name] %}{% endfor %}{{ x }} {% set ns = namespace(v=[]) %}{% for u in us"
     "ers %}{% set ns.v = ns.v + [u.name] %}{% endfor %}{{ ns.v }}",
     "[] ['Bob', 'alice', 'Carl']"},
    {"{% for u in users|sort(attribute='age') if u.age > 25 %}{{ loop.index }}{{ u.name }}{% endfor %}{% for u in users[1:] %}{{ u.n"
     "ame }}{% endfor %}{% for i in range(users|length - 1, -1, -1) %}{{ users[i].name }}{% endfor %}",
     "1Bob2CarlaliceCarlCarlaliceBob"},
    {"{{ users[0].name if users else 'none' }} {{ users[-1]['x']['y'] }} {{ users[0] is mapping and 'name' in users[0] }} {{ users|l"
     "ength > 2 }} {{ users|map(attribute='age')|sum / users|length }}",
     "Bob 3 True True 28.333333333333332"},
    {"{% set m = users[0] %}{% if m.name is defined and m.name %}{{ m.name }}{% endif %}{% if m.nope is defined and m.nope %}x{% end"
     "if %}{% if m.nope is not defined or not m.nope %}n{% endif %}{% if m.get('nope') is none %}N{% endif %}",
     "BobnN"},
    {"{{ 1.0 }} {{ 100000000000000000.0 }} {{ 1e100 }} {{ 0.1 + 0.2 }} {{ 1/3 }} {{ 1e-5 }} {{ 12345678.9 }} {{ 2**0.5 }} {{ 3.0|int"
     " }} {{ 10 ** 15 }} {{ 1e15 }} {{ 1e16 }}",
     "1.0 1e+17 1e+100 0.30000000000000004 0.3333333333333333 1e-05 12345678.9 1.4142135623730951 3 1000000000000000 100000000000000"
     "0.0 1e+16"},
    {"{{ 'x'.join(['a', 'b'])|e ~ 'c' }} {{ ['x']|first|upper }} {{ [[1,2],[3,4]]|map('first')|list }} {{ [[1,2],[3]]|map('length')|"
     "list }} {{ ['a','b']|map('upper')|join('+') }} {{ [{'a':{'b':5}}]|map(attribute='a.b')|first }} {{ [[1,2]]|map(attribute=0)|li"
     "st }} {{ [[7]]|map(attribute='0')|list }}",
     "axbc X [1, 3] [2, 1] A+B 5 [1] [7]"},
    {"{{ l is not string and l is iterable and l is not mapping }} {{ not (t and fa) }} {{ (not t) or fa }} {{ not not t }} {{ t != "
     "fa }} {{ no is not none }}",
     "True True False True True False"},
    {"{{ 'a' if n == 7 and s else 'b' }}{{ 'x' ~ ('y' if t) ~ 'z' }}{{ ['a', 'b' if fa else 'c'] }}{{ {'k': 1 if t else 2} }}{{ s if"
     " s is string else s|tojson }}",
     "axyz['a', 'c']{'k': 1}Hello World"},
    {"{{ {'a':1}.items()|list|first|last }} {{ d.keys()|list|sort|join(',') }} {{ d.values()|list }} {{ d.items()|length }} {% for k"
     ", v in d.items()|sort %}{{ k }}{% endfor %}",
     "1 a,b,C [1, 'x', None] 3 Cab"},
    {"{{ d.keys() }}{{ d.keys()|sort }}{{ 'a' in d.keys() }}{{ d.items() is mapping }}{{ d.items() is iterable }}{{ d.items() is seq"
     "uence }}",
     "dict_keys(['b', 'a', 'C'])['a', 'b', 'C']TrueFalseTrueFalse"},
    {"{{ \"a\\\nb\" }} {{ 'multi\nline' }} {{ '日本' }}{{ '\\u65e5\\U0001F600' }}", "ab multi\nline 日本日😀"},
    {"{{ 'abc'|first ~ 'abc'|last }} {{ ('a','b')|join }} {{ (('a',1),('b',2))|map('first')|join }} {{ dict([('a',1)])['a'] }} {{ [1"
     ",2,3][1:]|sum }} {{ 'abc'[1:]|upper }}",
     "ac ab ab 1 5 BC"},
    {"a\n{% if true %}\n  b\n{% endif %}\nc\n", "a\n  b\nc"},
    {"  {% if true %}x{% endif %}  \n  y", "x  \n  y"},
    {"\n\n{{ 1 }}\n\n", "\n\n1\n"},
    {"{# c #}\nx\n  {# d #}\n  y", "x\n  y"},
    {"a {% if true -%}\n\n  b {%- endif %} c", "a b c"},
    {"{%+ if true %}x{%+ endif %}", "x"},
    {"  {%+ if true %}x{% endif +%}\n y", "  x\n y"},
    {"a\r\nb\r{{ '\r\n' }}c\r\n", "a\nb\n\nc"},
    {"x\n\n", "x\n"},
    {"x\n", "x"},
    {"{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}\n", "  1\n  2\n"},
    {"  {{- 1 }}  {{ 2 -}}  3", "1  23"},
    {"{% set a = 1 %}\n{% set b = 2 %}\n{{ a + b }}", "3"},
    {"a\n   {#- c -#}   \nb", "ab"},
    {"{% raw +%}a{% endraw %}", NULL},
    {"{%- for i in [1,2,3] -%}\n  {{- i -}}\n{%- endfor -%}", "123"},
    {"{% if true %}a{% endif %}\n{% if true %}b{% endif %}\n", "ab"},
    {"x{% if true %}\ny{% endif %}\n  {% if true %}z{% endif %}", "xyz"},
    {"   {# a #}   {% if true %}q{% endif %}", "   q"},
    {"\t{% if true %}\tq{% endif %}\302\240{%- if true %}w{% endif %}", "\tqw"},
    {"{#-#}\n x", " x"},
    {"{{ 1 }}\n{{ 2 }}\n", "1\n2"},
    {"a{# b\n c #}d\n\n{#\n#}\ne", "ad\n\ne"},
    {"{{1}}{%if true%}a{%endif%}{{-2-}}", "1a2"},
    {"\n{%- set x = 1 %}\n\n{{ x }}\n {%- if x %} y {% endif -%} \n z", "\n1 y z"},
    {"é {%- if true %}ü{% endif %}", "éü"},
};
/* clang-format on */

/* Renders a template given as text. The result or the error is in out. */
static llm_result tpl_render(const char *text, size_t len, const char *context, const llm_render_options *options, llm_text *out) {
    llm_template *t = NULL;
    llm_json *doc = NULL;
    llm_result r = llm_json_parse(context, strlen(context), NULL, &doc);
    if (!r) r = llm_template_open(text, len, &t);
    if (!r) r = llm_template_render(t, doc, options, out);
    llm_template_close(t);
    llm_json_free(doc);
    return r;
}

/* Does a template give this text? */
static int tpl_gives(const char *text, const char *context, const llm_render_options *options, const char *want) {
    llm_text out = {0};
    int ok = !tpl_render(text, strlen(text), context, options, &out) && out.data && !strcmp(out.data, want);
    if (!ok) printf("  %.200s\n  want %.300s\n  got  %.300s\n", text, want, out.data ? out.data : llm_last_error());
    llm_text_free(&out);
    return ok;
}

/* Is a template refused, with a sentence that holds `why`? Nothing may have been written. */
static int tpl_refused(const char *text, const char *context, llm_result want, const char *why) {
    llm_text out = {0};
    double start = llm__now();
    llm_result r = tpl_render(text, strlen(text), context, NULL, &out);
    int ok = r == want && strstr(llm_last_error(), why) && !out.len && llm__now() - start < 20 * test_slow();
    if (!ok) printf("  %.100s: %s: %.300s\n", text, llm_result_str(r), r ? llm_last_error() : out.data ? out.data : "");
    llm_text_free(&out);
    return ok;
}

static void tpl_table(void) {
    for (int i = 0; i < LLM__COUNT(tpl_cases); i++) {
        if (tpl_cases[i].want) CHECK(tpl_gives(tpl_cases[i].text, tpl_context, NULL, tpl_cases[i].want));
        else {
            llm_text out = {0};
            if (!CHECK(tpl_render(tpl_cases[i].text, strlen(tpl_cases[i].text), tpl_context, NULL, &out)))
                printf("  %s: %s\n", tpl_cases[i].text, out.data);
            CHECK(!out.len);
            llm_text_free(&out);
        }
    }
}

/* One file of tests/data/chat_templates: every template with every context. */
static void tpl_reference(const char *folder) {
    char path[512];
    llm_json *expected = NULL;
    llm_render_options options = {0};
    int count = 0;
    options.now = 1721952000; /* 2024-07-26 */
    snprintf(path, sizeof path, "%s/expected.json", folder);
    if (!CHECK(!llm__json_file(path, 0, &expected))) return;
    for (int i = llm_json_first(expected, 0); i >= 0; i = llm_json_next(expected, i)) {
        size_t n;
        const char *key = llm_json_key(expected, i, &n), *bar = strrchr(key, '|');
        llm__file source, context;
        snprintf(path, sizeof path, "%s/templates/%.*s.jinja", folder, (int)(bar - key), key);
        if (!CHECK(!llm__file_open(path, 0, 0, &source))) continue;
        snprintf(path, sizeof path, "%s/contexts/%s.json", folder, bar + 1);
        if (CHECK(!llm__file_open(path, 0, 0, &context))) {
            char *zero = llm__strndup((const char *)context.data, context.size);
            llm_text out = {0};
            llm_result r = tpl_render((const char *)source.data, source.size, zero, &options, &out);
            const char *want = llm_json_str(expected, llm_json_find(expected, i, "text"), &n);
            if (!CHECK(want ? !r && out.len == n && !memcmp(out.data, want, n) : r == LLM_ERR_TEMPLATE))
                printf("  %s: %s\n", key, r ? llm_last_error() : "other text");
            count++;
            llm_text_free(&out);
            LLM_FREE(zero);
            llm__file_close(&context);
        }
        llm__file_close(&source);
    }
    CHECK(count >= 100);
    llm_json_free(expected);
}

/* Every template, cut off at many places, with every fourth byte changed, and with little fuel: an error or a text, nothing else. */
static void tpl_damaged(const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/templates", folder);
    DIR *dir = opendir(path);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        llm__file f;
        snprintf(path, sizeof path, "%s/templates/%s", folder, e->d_name);
        if (!strstr(e->d_name, ".jinja") || llm__file_open(path, 0, 0, &f)) continue;
        for (size_t at = f.size / 7; at < f.size; at += f.size / 7 + 1) {
            char *s = llm__strndup((const char *)f.data, f.size);
            llm_text out = {0};
            tpl_render(s, at, tpl_context, NULL, &out);
            s[at] = "{}%()'|.-[ 5"[at % 12];
            tpl_render(s, f.size, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", NULL, &out);
            llm_text_free(&out);
            LLM_FREE(s);
        }
        llm__file_close(&f);
    }
    if (dir) closedir(dir);
}

/* A text repeated. */
static char *tpl_many(const char *before, const char *unit, int n, const char *after) {
    llm_text t = {0};
    llm_text_str(&t, before);
    for (int i = 0; i < n; i++) llm_text_str(&t, unit);
    llm_text_str(&t, after);
    return t.data;
}

static void tpl_refused_many(const char *before, const char *unit, int n, const char *after, llm_result want, const char *why) {
    char *s = tpl_many(before, unit, n, after);
    CHECK(tpl_refused(s, "{}", want, why));
    LLM_FREE(s);
}

static void tpl_hostile(void) {
    /* clang-format off */
    static const char *const limit[] = {
        "{% for a in range(10**9) %}{% endfor %}", "{{ '-' * 10**10 }}", "{{ ['-'] * 10**10 }}", "{{ 'x'|indent(10**9) }}", "{{ [1]|tojson(indent=10**9) }}",
        "{{ range(10**15, 0 - 10**15, -1)|length }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% set ns = namespace(l=[0]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
        "{% set ns = namespace(l=[], m=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
        "{% set ns = namespace(t=()) %}{% for i in range(9999) %}{% set ns.t = (ns.t,) %}{% endfor %}{{ {ns.t: 1} }}",
        "{% for i in range(90000) %}{{ 'a' * 1000 }}{% endfor %}", "{% set s = 'a' * 10**7 %}{% for i in range(9999) %}{{ (s ~ 'b')|length }}{% endfor %}",
        "{% set s = 'a' * 10**7 %}{% for i in range(9999) %}{{ s.rfind('a' * 5000 ~ 'b') }}{% endfor %}",
        "{% set s = 'a' * 10**7 %}{% for i in range(9999) %}{{ s.strip('b' * 10**6 ~ 'a') }}{% endfor %}"};
    /* clang-format on */
    /* clang-format off */
    static const char *const refused[] = {
        "{{ 1 // 0 }}", "{{ 5 % 0 }}", "{{ 5 / 0 }}", "{{ 5.0 % 0 }}", "{{ 9007199254740993 // 1 }}", "{{ 9007199254740991 + 1 }}", "{{ 2 ** 64 }}",
        "{{ -9007199254740993 }}", "{{ 9007199254740993|abs }}", "{{ 9007199254740992 * 2 }}", "{{ 9007199254740993 < 1 }}", "{{ 'abc'[9007199254740993:] }}", "{{ 10.0 ** 400 }}", "{{ '%d' % 1e300 }}",
        "{{ ('9' * 30)|int }}", "{{ ''.__class__.__mro__ }}", "{{ x.__class__ }}", "{{ self.x }}", "{{ config.y }}", "{% import 'a' as b %}", "{% include 'a' %}", "{% extends 'a' %}",
        "{{ lipsum() }}", "{{ cycler() }}", "{{ [1, 2]|random }}", "{% do 1 %}", "{{ 0x1F }}", "{{ 1_000 }}", "{{ [1]|batch(2) }}", "{{ joiner() }}", "{{ 'a'|urlencode }}", "{{ '{y[0]}'.format(y=[1]) }}", "{{ '{:,}'.format(1) }}", "{{ '%999999999d' % 1 }}", "{{ '{:>999999999}'.format(1) }}",
        "{{ '%.99999999999999999999f' % 1 }}", "{{ '%.f' % 1 }}", "{{ 'x'|center(9) }}", "{{ 'x'.zfill(9) }}", "{{ 'x'|truncate(9) }}", "{{ 'x' is lower }}",
        "{{ 1.5|round }}", "{{ 'abc'|replace('', '-') }}", "{{ 'a'.count('') }}", "{{ strftime_now('%9999d') }}", "{{ '%s'|format(1) }}", "{{ '%s' % 1 }}", "{{ '%s' % (1, 2) }}", "{{ '{!r}'.format('a') }}", "{{ 'a' if true else 1 is integer.x(2) }}", "{{ 'a=b'.partition('=') }}", "{{ [1].index(1) }}", "{{ 'tojson' is filter }}",
        "{% raw %}{% endraw %}", "{% with a = 1 %}{% endwith %}", "{% macro m() %}{% endmacro %}{% call m %}{% endcall %}", "{% call (m) %}{% endcall %}", "{% call 1 %}{% endcall %}", "{% macro m(a) %}{{ varargs[0] }}{% endmacro %}{{ m(1, 2) }}",
        "{% for a, (b, c) in [(1, (2, 3))] %}{% endfor %}", "{% for a in [1] %}{{ loop.cycle(1) }}{% endfor %}",
        "{% for a, b, c, d, e, f, g, h, i in [] %}{% endfor %}", "{% for a in [1] recursive %}{% endfor %}", "{{ '{:.61f}'.format(1) }}", "{{ '{:05d}'.format(1) }}", "{{ '%+d' % 1 }}", "{{ ().__getitem__(0) }}"};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(limit); i++) CHECK(tpl_refused(limit[i], "{}", LLM_ERR_LIMIT, "template line 1"));
    for (int i = 0; i < LLM__COUNT(refused); i++) CHECK(tpl_refused(refused[i], "{}", LLM_ERR_TEMPLATE, "template line 1"));
    CHECK(tpl_gives(
        "{{ -9007199254740991 % -1 }} {{ -9007199254740990 - 1 }} {{ 9007199254740993 }} {{ ''.__class__ }}{{ self }}{{ config }}{{ range.__globals__ }}",
        "{}", NULL, "0 -9007199254740991 9007199254740993 "));
    CHECK(tpl_gives("{{ 'aXbX'.rfind('X') }}{{ s[999999999999:] }}{{ s[::-9007199254740991] }}{{ [1,2][::9007199254740991] }}",
                    "{\"s\":\"q\"}", NULL, "3q[1]"));
}

/* What is long and not deep is fine. */
static void tpl_long(const char *before, const char *unit, const char *after, const char *want) {
    char *s = tpl_many(before, unit, 10000, after);
    CHECK(tpl_gives(s, "{}", NULL, want));
    LLM_FREE(s);
}

static void tpl_deep(void) {
    tpl_refused_many("{{ ", "(", 10000, "1", LLM_ERR_TEMPLATE, "too deep");
    tpl_refused_many("{{ ", "[", 10000, "1", LLM_ERR_TEMPLATE, "too deep");
    tpl_refused_many("{{ ", "{1:", 10000, "1", LLM_ERR_TEMPLATE, "too deep");
    tpl_refused_many("{{ ", "-", 10000, "1 }}", LLM_ERR_TEMPLATE, "too deep");
    tpl_refused_many("{{ ", "not ", 10000, "1 }}", LLM_ERR_TEMPLATE, "too deep");
    tpl_refused_many("{{ 1", " if 1 else 1", 10000, " }}", LLM_ERR_TEMPLATE, "too deep");
    tpl_refused_many("", "{% if 1 %}", 10000, "", LLM_ERR_TEMPLATE, "too deep");
    tpl_refused_many("", "{% for a in b %}", 10000, "", LLM_ERR_TEMPLATE, "too deep");
    tpl_refused_many("{% for ", "(", 10000, "a", LLM_ERR_TEMPLATE, "cannot be assigned to");
    tpl_refused_many("{{ x", ".a", 10000, " }}", LLM_ERR_TEMPLATE, "'x' is undefined");
    tpl_long("{% if 0 %}", "{% elif 0 %}", "{% else %}end{% endif %}", "end");
    tpl_long("{{ 1", " and 1", " }}", "1");
    tpl_long("{{ 0", "+1", " }}", "10000");
    tpl_long("{{ x", "|string", "|length }}", "0");
    tpl_long("{% set x", "|string", " %}a{% endset %}{{ x }}", "a");
    tpl_long("{{ [", "1 if 1 else 1, ", "] | length }}", "10000");
    char *s = tpl_many("{{ ", "(1 if 1 else ", 100, "1"), *t = tpl_many(s, ")", 100, " }}"); /* read once a level, not twice */
    CHECK(tpl_gives(t, "{}", NULL, "1"));
    LLM_FREE(s);
    LLM_FREE(t);
    s = tpl_many("{{ ", "(", 100, "1");
    t = tpl_many(s, " if 1 else 1)", 100, " }}");
    CHECK(tpl_gives(t, "{}", NULL, "1"));
    LLM_FREE(s);
    LLM_FREE(t);
    s = tpl_many("{\"a\":", "[", 400, "");
    t = tpl_many(s, "]", 400, "}");
    CHECK(tpl_gives("{{ a|tojson|length }}", t, NULL, "800"));
    LLM_FREE(s);
    LLM_FREE(t);
}

static void tpl_errors(void) {
    char long_text[2000];
    memset(long_text, 'x', sizeof long_text);
    memcpy(long_text, "{{ raise_exception('", 20);
    memcpy(long_text + 1900, "') }}", 6);
    CHECK(tpl_refused("a\nb\n{{ x.y.z }}", "{}", LLM_ERR_TEMPLATE, "template line 3: 'x' is undefined"));
    CHECK(tpl_refused("a\n{% if x %}", "{}", LLM_ERR_TEMPLATE, "template line 2"));
    CHECK(tpl_refused("\n\n{{ 'a' + 1 }}", "{}", LLM_ERR_TEMPLATE, "line 3: 'str' and 'int'"));
    CHECK(tpl_refused("\r\n{{ 1 | nope }}", "{}", LLM_ERR_TEMPLATE, "line 2: no such filter at nope"));
    CHECK(tpl_refused("{{ raise_exception('say ' ~ 'why') }}", "{}", LLM_ERR_TEMPLATE, "template line 1: say why"));
    CHECK(tpl_refused(long_text, "{}", LLM_ERR_TEMPLATE, "line 1: xxx") && strlen(llm_last_error()) < 300);
    CHECK(tpl_refused("\xC3(", "{}", LLM_ERR_TEMPLATE, "byte 0 is not UTF-8"));
    CHECK(tpl_refused("x", "[1]", LLM_ERR_ARG, "object"));
}

static void tpl_options(void) {
    llm_render_options o = {0};
    llm_text out = {0};
    o.now = 1709251199; /* 2024-02-29 23:59:59 */
    CHECK(tpl_gives("{{ strftime_now('%Y-%m-%d %H:%M:%S %j %A %B %a %b %-d %-m %I %p %y %e %F %T %D %R %u %w %% %Q %') }}", "{}", &o,
                    "2024-02-29 23:59:59 060 Thursday February Thu Feb 29 2 11 PM 24 29 2024-02-29 23:59:59 02/29/24 23:59 4 4 % %Q %"));
    o.utc_offset_s = 3600;
    CHECK(tpl_gives("{{ strftime_now('%d %b %H:%M %j%Z%z') }}", "{}", &o, "01 Mar 00:59 061"));
    o.utc_offset_s = 0;
    o.now = -86400LL * 719163; /* 0000-12-31 */
    CHECK(tpl_gives("{{ strftime_now('%m/%d %j') }}", "{}", &o, "12/31 366"));
    o.bos_token = "<s>";
    CHECK(tpl_gives("{{ bos_token }}{{ eos_token }}", "{}", &o, "<s>"));
    CHECK(tpl_gives("{{ bos_token }}", "{\"bos_token\":\"B\"}", &o, "B"));
    memset(&o, 0, sizeof o);
    o.fuel = 20;
    CHECK(tpl_render("{% for i in range(50) %}a{% endfor %}", 37, "{}", &o, &out) == LLM_ERR_LIMIT);
    o.fuel = 0;
    o.max_output = 10;
    CHECK(tpl_gives("1234567890", "{}", &o, "1234567890"));
    CHECK(tpl_render("12345678901", 11, "{}", &o, &out) == LLM_ERR_LIMIT && strstr(llm_last_error(), "10 bytes"));
    CHECK(tpl_gives("", "{}", NULL, "") && !out.len);
    llm_text_free(&out);
}

/* What a client can make a server do besides the template's own steps costs no more than its length: one object of many keys, and a text to
 * continue that is nearly found at every place. */
static void tpl_wide(void) {
    llm_text context = {0}, arguments = {0}, prompt = {0}, text = {0};
    llm_render_options o = {0};
    llm_json *doc = NULL;
    for (int i = 0; i < 100000; i++) llm_text_format(&arguments, "%s'k%d':1", i ? "," : "{", i);
    llm_text_str(&arguments, "}");
    llm_text_format(&context, "{'messages':[{'tool_calls':[{'function':{'arguments':%q}}]}]}", arguments.data);
    o.as_chat = 1;
    clock_t start = clock();
    CHECK(tpl_render("{{ messages|length }}", 21, context.data, &o, &text) == LLM_ERR_LIMIT && strstr(llm_last_error(), "too many steps"));
    for (int i = 0; i < 2000000; i++) llm_text_str(&prompt, "a");
    context.len = 0;
    llm_text_format(&context, "{'messages':[{'content':%Q}]}", prompt.data, prompt.len / 2);
    memcpy(context.data + context.len - 5, "b", 1);
    if (CHECK(!llm_json_parse(context.data, context.len, NULL, &doc))) llm_template_cut(NULL, doc, &prompt);
    CHECK(prompt.len == 2000000 && (double)(clock() - start) / CLOCKS_PER_SEC < 5 * test_slow());
    llm_text_str(&prompt, "b<end>");
    llm_template_cut(NULL, doc, &prompt);
    CHECK(prompt.len == 2000001 && !strcmp(prompt.data + 1999999, "ab"));
    llm_json_free(doc);
    llm_text_free(&context);
    llm_text_free(&arguments);
    llm_text_free(&prompt);
    llm_text_free(&text);
}

/* What chat servers do before rendering, only when asked. */
static void tpl_as_chat(void) {
    static const char t[] =
        "{{ tools is defined }}{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments }}{% endfor %}{% endfor %}";
    static const char context[] =
        "{\"messages\":[1,{\"role\":\"user\"},{\"tool_calls\":[{\"function\":{\"arguments\":\"{\\\"a\\\": 1}\"}},{\"function\":{\"arguments\":\"[1]\"}},"
        "{\"function\":{\"arguments\":\"no\"}},{\"function\":{\"arguments\":{\"b\":2}}},{\"function\":3},4]}]}";
    llm_render_options o = {0};
    llm_json *doc = NULL;
    llm_text a = {0}, b = {0};
    CHECK(tpl_refused(t, context, LLM_ERR_TEMPLATE, "undefined"));
    o.as_chat = 1;
    CHECK(tpl_gives(
        "{% for c in messages[2].tool_calls[:4] %}{{ c.function.arguments }}{{ c.function.arguments is mapping }} {% endfor %}{{ tools }}{{ documents }}{{ x }}",
        context, &o, "{'a': 1}True [1]False noFalse {'b': 2}True NoneNone"));
    /* no calls are none, and no arguments an empty object */
    static const char empty[] =
        "{\"messages\":[{\"tool_calls\":null,\"role\":\"a\"},{\"role\":\"b\",\"tool_calls\":[],\"content\":\"c\"},{\"tool_calls\":[{\"function\":{\"name\":\"f\"}},"
        "{\"function\":{\"arguments\":null}},{\"function\":{\"arguments\":\"\"}},{\"function\":{\"arguments\":\"{}\"}}]},{\"tool_calls\":7}]}";
    CHECK(tpl_gives(
        "{{ messages }}", empty, &o,
        "[{'role': 'a'}, {'role': 'b', 'content': 'c'}, {'tool_calls': [{'function': {'name': 'f', 'arguments': {}}}, "
        "{'function': {'arguments': {}}}, {'function': {'arguments': {}}}, {'function': {'arguments': {}}}]}, {'tool_calls': 7}]"));
    if (!CHECK(!llm_json_parse(context, strlen(context), NULL, &doc))) return; /* the context itself is not changed */
    llm_json_write(doc, 0, &a);
    llm_template *p = NULL;
    CHECK(!llm_template_open("{{ messages }}", 14, &p) && !llm_template_render(p, doc, &o, &b));
    b.len = 0;
    llm_json_write(doc, 0, &b);
    CHECK(a.len == b.len && !memcmp(a.data, b.data, a.len));
    llm_template_close(p);
    llm_json_free(doc);
    llm_text_free(&a);
    llm_text_free(&b);
}

typedef struct tpl_job {
    const llm_template *t;
    const llm_json *doc;
    int failed;
} tpl_job;

static void *tpl_thread(void *arg) {
    tpl_job *job = (tpl_job *)arg;
    for (int i = 0; i < 50; i++) {
        llm_text out = {0};
        job->failed |= llm_template_render(job->t, job->doc, NULL, &out) || strcmp(out.data, "[0][1][2]A");
        llm_text_free(&out);
    }
    return NULL;
}

/* One template rendered by several threads at once. */
static void tpl_threads(void) {
    static const char text[] =
        "{% macro m(x) %}[{{ x }}]{% endmacro %}{% for i in range(3) %}{{ m(i) }}{% endfor %}{% set y | upper %}{{ a }}{% endset %}{{ y }}";
    llm_template *t = NULL;
    llm_json *doc = NULL;
    pthread_t thread[4];
    tpl_job job[4];
    if (!CHECK(!llm_template_open(text, sizeof text - 1, &t) && !llm_json_parse("{\"a\":\"a\"}", 9, NULL, &doc))) return;
    for (int i = 0; i < 4; i++) {
        job[i].t = t;
        job[i].doc = doc;
        job[i].failed = 0;
        pthread_create(&thread[i], NULL, tpl_thread, &job[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        CHECK(!job[i].failed);
    }
    llm_template_close(t);
    llm_json_free(doc);
}

static void tpl_caps(const char *folder) {
    /* clang-format off */
    static const struct {
        const char *name;
        int tools, system_role, content_parts, thinking_switch;
        llm_reasoning_kind reasoning;
    } want[] = {{"microsoft-Phi-3.5-mini-instruct", 0, 1, 0, 0, LLM_REASONING_NONE}, {"meta-llama-Llama-3.2-3B-Instruct", 1, 1, 0, 0, LLM_REASONING_NONE},
                {"GLM-4.7-Flash", 1, 1, 1, 1, LLM_REASONING_THINK}, {"Qwen-Qwen2.5-7B-Instruct", 1, 1, 0, 0, LLM_REASONING_NONE},
                {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", 0, 1, 0, 0, LLM_REASONING_DEEPSEEK_R1},
                {"google-gemma-4-31B-it-interleaved", 1, 1, 1, 1, LLM_REASONING_GEMMA4}, {"Apertus-8B-Instruct", 1, 1, 0, 1, LLM_REASONING_APERTUS},
                {"Cohere2MoE", 1, 1, 1, 1, LLM_REASONING_COHERE}, {"Kimi-K3", 1, 1, 1, 1, LLM_REASONING_KIMI_K3}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(want); i++) {
        char path[512];
        llm__file f;
        llm_template *t = NULL;
        llm_template_caps caps;
        snprintf(path, sizeof path, "%s/templates/%s.jinja", folder, want[i].name);
        if (llm__file_open(path, 0, 0, &f)) continue;
        if (CHECK(!llm_template_open((const char *)f.data, f.size, &t))) {
            char *zero = llm__strndup((const char *)f.data, f.size);
            llm_template_get_caps(t, &caps);
            int ok = caps.tools == want[i].tools && caps.system_role == want[i].system_role &&
                     caps.content_parts == want[i].content_parts && caps.thinking_switch == want[i].thinking_switch;
            if (!CHECK(ok))
                printf("  %s: %d %d %d %d\n", want[i].name, caps.tools, caps.system_role, caps.content_parts, caps.thinking_switch);
            if (!CHECK(llm_reasoning_detect(zero) == want[i].reasoning))
                printf("  %s: kind %d\n", want[i].name, llm_reasoning_detect(zero));
            LLM_FREE(zero);
        }
        llm_template_close(t);
        llm__file_close(&f);
    }
}

/* Each answer is cut at every place, and into single bytes: the parts must always be the same. */
static void tpl_reasoning(void) {
    static const struct {
        llm_reasoning_kind kind;
        const char *prompt, *answer, *reasoning, *content;
    } cases[] = {
        {LLM_REASONING_NONE, "<think>", "a<think>b</think>c", "", "a<think>b</think>c"},
        {LLM_REASONING_THINK, "p", "<think>why</think>so", "why", "so"},
        {LLM_REASONING_THINK, "p", " \n<think>\nwhy\n</think>\n\nso", "\nwhy\n", "\n\nso"},
        {LLM_REASONING_THINK, "p", "so<think>why</think>", "", "so<think>why</think>"},
        {LLM_REASONING_THINK, "p<think>\n", "why</think>so", "why", "so"},
        {LLM_REASONING_THINK, "p<think>\n", "<think>why</think>so", "why", "so"},
        {LLM_REASONING_THINK, "p<think>\n\n</think>\n\n", "so", "", "so"},
        {LLM_REASONING_THINK, "p<think>", "why </thin </think >", "why </thin </think >", ""},
        {LLM_REASONING_THINK, "p<think>", "a<<</</think></think>", "a<<</", "</think>"},
        {LLM_REASONING_THINK, NULL, "<thin", "", "<thin"},
        {LLM_REASONING_THINK, NULL, "  \n", "", "  \n"},
        {LLM_REASONING_THINK, NULL, "                                          <think>x</think>", "",
         "                                          <think>x</think>"},
        {LLM_REASONING_THINK, "</think>", "so", "", "so"},
        {LLM_REASONING_DEEPSEEK_R1, "p", "why</think>so", "why", "so"},
        {LLM_REASONING_DEEPSEEK_R1, "p", "no end", "no end", ""},
        {LLM_REASONING_DEEPSEEK_R1, "p</think>\n", "so", "", "so"},
        {LLM_REASONING_DEEPSEEK_R1, "p</think>old answer", "why</think>so", "why", "so"},
        {LLM_REASONING_ERNIE_45_VL, "a</think>b<think>c", "why</think>so", "why", "so"},
        {LLM_REASONING_ERNIE_45_VL, "a<think>b</think>c", "so</think>so", "", "soso"},
        {LLM_REASONING_ERNIE_45_VL, "a<think>", "no end", "no end", ""},
        {LLM_REASONING_ERNIE_45_VL, "a", "all", "", "all"},
        {LLM_REASONING_MISTRAL, "a", "[THINK]w[/THINK]s", "w", "s"},
        {LLM_REASONING_SEED_OSS, "a", "<seed:think>w</seed:think>s", "w", "s"},
        {LLM_REASONING_COHERE, "p", "<|START_THINKING|>w<|END_THINKING|><|START_RESPONSE|>so<|END_RESPONSE|>", "w", "so"},
        {LLM_REASONING_COHERE, "p<|START_THINKING|><|END_THINKING|>", "<|START_TEXT|>a<|b<|END_TEXT|>", "", "a<|b"},
        {LLM_REASONING_KIMI_K3, "p<|open|>think<|sep|>",
         "why<|close|>think<|sep|><|open|>response<|sep|>so<|close|>response<|sep|><|close|>message<|sep|>", "why", "so"},
        {LLM_REASONING_KIMI_K3, "p<|open|>response<|sep|>", "so <|open|> far<|close|>response<|sep|><|open|>tools<|sep|>", "",
         "so <|open|> far<|open|>tools<|sep|>"},
        {LLM_REASONING_MINIMAX_M3, "p<mm:think>\n", "why</mm:think>so", "why", "so"},
        {LLM_REASONING_GEMMA4, "p", "<|channel>thought\nwhy<channel|>so", "why", "so"},
        {LLM_REASONING_GEMMA4, "p<|channel>thought\n<channel|>", "so", "", "so"},
        {LLM_REASONING_GEMMA4, "p", "<|channel>though", "though", ""},
        {LLM_REASONING_GEMMA4, "p", "<|channel>thoughts<channel|>s", "thoughts", "s"},
        {LLM_REASONING_APERTUS, "p", "<|inner_prefix|>w<|inner_suffix|>s", "w", "s"},
        {LLM_REASONING_GRANITE, "p", "Here is my thought process: w. Here's my response: s", " w. ", " s"},
        {LLM_REASONING_GRANITE, "p", "Here's my thought process:w. Here it is. Here is my response:s", "w. Here it is. ", "s"},
        {LLM_REASONING_GRANITE, "p", "Here is my car", "", "Here is my car"},
        {LLM_REASONING_HUNYUAN, "p", "<think>\nw \n x\n</think>\n<answer>\n s < t\n</answer>", "w \n x", "s < t"},
        {LLM_REASONING_HUNYUAN, "p<think>\n\n</think>\n", "<answer>\ns\n</answer>", "", "s"},
        {LLM_REASONING_HUNYUAN, "p", "a                                                  b", "",
         "a                                                  b"},
        {LLM_REASONING_HARMONY, "<|start|>assistant",
         "<|channel|>analysis<|message|>w<|end|><|start|>assistant<|channel|>final<|message|>s", "w", "s"},
        {LLM_REASONING_APRIEL, "[BEGIN FINAL RESPONSE] Here are my reasoning steps:\n",
         "w\n[BEGIN FINAL RESPONSE]\ns\n[END FINAL RESPONSE]", "w", "s"},
        {LLM_REASONING_SOLAR, "<|begin|>assistant", "<|think|>w<|end|><|begin|>assistant<|content|>s", "w", "s"},
        {LLM_REASONING_HY3, "<think:opensource>", "w</think:opensource>s", "w", "s"},
        {LLM_REASONING_HARMONY, NULL,
         "<|channel|>analysis<|message|>a < b<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
         "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}",
         "a < b", "I look.<|channel|>commentary to=functions.f<|message|>{\"a\": 1}"},
        {LLM_REASONING_HARMONY, "<|start|>assistant", " to=functions.f<|channel|>commentary json<|message|>", "",
         "<|channel|>commentary to=functions.f<|message|>{}"},
        {LLM_REASONING_HARMONY, "<|start|>assistant",
         "<|channel|>commentary to=functions.f<|message|><|call|><|start|>assistant to=functions.g"
         "<|channel|>analysis code<|message|>{}<|call|>",
         "", "<|channel|>commentary to=functions.f<|message|>{}<|channel|>commentary to=functions.g<|message|>{}"},
        {LLM_REASONING_HARMONY, "<|start|>assistant", "<|channel|>analysis to=python code<|message|>1 + 1<|call|>", "1 + 1", ""},
        {LLM_REASONING_HARMONY, "<|start|>assistant", "<|channel|>commentary to=browser.search<|message|>x<|end|>", "x", ""},
        {LLM_REASONING_HARMONY, "x<|start|>assistant<|channel|>final<|message|>So", " far<|return|>", "", " far"},
        {LLM_REASONING_HARMONY, "x<|start|>assistant<|channel|>analysis", "<|message|>w", "w", ""},
        {LLM_REASONING_HARMONY, "<|start|>assistant", "Plain text, <|message|> and all", "", "Plain text, <|message|> and all"},
        {LLM_REASONING_HARMONY, "<|start|>assistant", "<|channel|>final<|message|>a <|message|> <| b", "", "a <|message|> <| b"},
        {LLM_REASONING_HARMONY, "<|start|>assistant", "to= no", "", ""},
        {LLM_REASONING_HARMONY, "<|start|>assistant", "<|channel|>a-word-that-is-much-longer-than-any-buffer<|message|>s", "", "s"},
        {LLM_REASONING_KIMI, "a", "\xE2\x97\x81think\xE2\x96\xB7w\xE2\x97\x81/think\xE2\x96\xB7s", "w", "s"}};
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        size_t n = strlen(cases[i].answer);
        for (size_t cut = 0; cut <= n + 1; cut++) {
            llm_reasoning r;
            llm_text a = {0}, b = {0};
            llm_text_str(&a, "");
            llm_text_str(&b, "");
            llm_reasoning_begin(&r, cases[i].kind, cases[i].prompt, cases[i].prompt ? strlen(cases[i].prompt) : 0);
            for (size_t k = 0; cut > n && k < n; k++) llm_reasoning_push(&r, cases[i].answer + k, 1, &a, &b);
            if (cut <= n) llm_reasoning_push(&r, cases[i].answer, cut, &a, &b);
            if (cut <= n) llm_reasoning_push(&r, cases[i].answer + cut, n - cut, &a, &b);
            llm_reasoning_end(&r, &a, &b);
            if (!CHECK(!strcmp(a.data, cases[i].reasoning) && !strcmp(b.data, cases[i].content)))
                printf("  %s: '%s' '%s'\n", cases[i].answer, a.data, b.data);
            llm_text_free(&a);
            llm_text_free(&b);
        }
    }
    CHECK(llm_reasoning_named("ernie-45-vl") == LLM_REASONING_ERNIE_45_VL &&
          llm_reasoning_named("deepseek_r1") == LLM_REASONING_DEEPSEEK_R1);
    CHECK(llm_reasoning_named("Qwen3") == LLM_REASONING_THINK && llm_reasoning_named("none") == LLM_REASONING_NONE &&
          llm_reasoning_named("nope") == -1);
    llm_reasoning r;
    llm_reasoning_begin(&r, LLM_REASONING_HARMONY, "<|start|>assistant", 18);
    CHECK(!strcmp(llm__harmony_marker(&r), "<|channel|>final<|message|>") && !strcmp(llm__reasoning_marker(&r), llm__harmony_marker(&r)));
    llm_reasoning_begin(&r, LLM_REASONING_HARMONY, "<|start|>assistant<|channel|>final<|message|>", 45);
    CHECK(!llm__reasoning_marker(&r));
    llm_reasoning_begin(&r, LLM_REASONING_GEMMA4, "<|channel>", 10);
    CHECK(r.thinking && !strcmp(llm__reasoning_marker(&r), "<channel|>"));
    char said[] = "<think>a</think> \xE2\x97\x81think\xE2\x96\xB7 <thin";
    CHECK(llm__reasoning_blank(LLM_REASONING_THINK, said, strlen(said)) &&
          !strcmp(said, "_______a________ \xE2\x97\x81think\xE2\x96\xB7 <thin"));
    CHECK(llm__reasoning_blank(LLM_REASONING_KIMI, said, strlen(said)) && !strcmp(said, "_______a________ ___________ <thin"));
    CHECK(!llm__reasoning_blank(LLM_REASONING_THINK, said, strlen(said)) && !llm__reasoning_blank(LLM_REASONING_NONE, said, strlen(said)));
    llm_reasoning_begin(&r, LLM_REASONING_THINK, "a", 1);
    CHECK(!r.thinking && !llm__reasoning_marker(&r));
    CHECK(llm_reasoning_named("openai_gptoss") == LLM_REASONING_HARMONY && llm_reasoning_named("gpt-oss") == LLM_REASONING_HARMONY &&
          llm_reasoning_named("hunyuan_a13b") == LLM_REASONING_HUNYUAN && llm_reasoning_named("cohere_command4") == LLM_REASONING_COHERE);
    CHECK(llm_reasoning_detect("{{ '<|channel|>analysis<|message|>' }}") == LLM_REASONING_HARMONY);
    CHECK(llm_reasoning_named("") == -1 && llm_reasoning_named("think qwen3") == -1 &&
          llm_reasoning_named("a name that is much longer than any there is") == -1);
    CHECK(llm_reasoning_detect(NULL) == LLM_REASONING_NONE && llm_reasoning_detect("plain") == LLM_REASONING_NONE);
}

TEST_GROUP(template) {
    static const char folder[] = "build/data/chat_templates";
    tpl_table();
    tpl_reference(folder);
    tpl_damaged(folder);
    tpl_hostile();
    tpl_deep();
    tpl_errors();
    tpl_options();
    tpl_wide();
    tpl_as_chat();
    tpl_threads();
    tpl_caps(folder);
    tpl_reasoning();
}
