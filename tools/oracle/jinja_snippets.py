"""Small templates rendered by Jinja with the settings of Transformers.

    python tools/oracle/jinja_snippets.py tests/golden/chat        (transformers 5.24, jinja2 3.1.6, python 3.11)

Writes snippets.jsonl: a head with the variables that all have, then one template a line with its `text`, or with `error`.
"""
import datetime
import json
import pathlib
import sys

import transformers
from transformers.utils import chat_template_utils

VARIABLES = {
    "t": "Hello, wörld!", "e": "", "s": "  a b  c \n", "n": 7, "m": -3, "f": 2.5, "big": 1e16, "small": 1e-5, "none": None,
    "yes": True, "no": False, "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "d": {"b": 1, "a": [1, "x"], "items": 5},
    "people": [{"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bob", "age": 4}, {"name": "Cy", "age": 31}],
    "nested": {"a": {"b": [{"c": "deep"}]}}, "u": "日本語😀é", "q": "it's \"q\"", "html": "<a href='x'>&</a>"}

EXPRESSIONS = """
t|e|t[0]|t[-1]|t[7:12]|t[::-1]|t[1:10:3]|t[:-3]|u[2:4]|u[-1]|u|length!|t[100]|t[-100:2]|l[0]|l[-1]|l[5]|l[1:]|l[::-1]
d|d.b|d['b']|d.items|d['items']|d.items()|list!|d.keys()|d.values()|list!|d.get('b')|d.get('z')|d.get('z', 4)|d.z|d.a[1]
nested.a.b[0].c|nested['a']['b'][0]['c']|nested.x|nested.x is defined|nested.x.y|missing|missing.x|missing is defined
none|yes|no|n|m|f|big|small|1.0|1e3|1_000|0x1F|0b11|0o17|1e22|123456789.123|0.1+0.2|1/3|7//2|-7//2|7%3|-7%3|7%-3|7.5//2
-7.5%2|2**10|2**-1|2**0.5|7/2|8/2|1+1.0|'a'+'b'|'a'*3|3*'ab'|[1]+[2]|[0]*3|(1,2)+(3,)|'a'+1|1+'a'|none+1|l+none|-f|+n|-t
1<2|1<2<3|1<2>3|'a'<'b'|1=='1'|1==1.0|true==1|[1,2]==[1,2]|(1,2)==[1,2]|{'a':1}=={'a':1.0}|none==none|1<'a'|[1,2]<[1,3]
'a' in t|'o, w' in t|'z' not in t|1 in l|9 in l|'b' in d|1 in d|none in l|1 in t|not 1 in l|not yes|yes and n|no and n|e or 'x'
yes or 1/0|no and 1/0|'a' if yes else 'b'|'a' if no else 'b'|'a' if no|n if n > 5 else m if m else 0|'x' ~ n ~ none ~ yes ~ f
1 if yes else 2 if no else 3|(1,2)|(1,)|()|[]|{}|[1,'a',none,true,1.5]|{'a':1,2:'b',none:[],true:1.5}|{'it\\'s':"q\\"",'\\n\\t\\x01é':'\\\\'}
'a' 'b'|"\\u4e2d\\x41\\101\\q\\\n"|'\\é'|n is odd|n is even|n is divisibleby 7|n is divisibleby(3)|t is string|n is number|yes is number
f is float|n is float|n is integer|yes is integer|yes is boolean|n is boolean|d is mapping|l is mapping|l is iterable|n is iterable
t is iterable|d is sequence|t is sequence|n is sequence|missing is sequence|missing is iterable|d.items() is sequence|none is none
missing is none|yes is true|n is true|no is false|n is eq 7|n is equalto 7|n is gt 3|n is lessthan 3|n is ne 7|n is in [7]
'a' is lower|'A' is upper|t is lower|t is callable|range is callable|n is sameas n|none is sameas none|n is not odd|not n is odd
n is defined and n is odd|missing is defined or n is odd|'trim' is filter|'nope' is filter|'odd' is test|(t|safe) is escaped
t|upper!|t|lower!|'ŉß ǆ'|upper!|'ΑΣ ΣΑΣ'|lower!|'straße'|title!|"they're bill's-friends (from) x"|title!|"they're x".title()
'hELLO wORLD'|capitalize!|'ßa'.capitalize()|'aB'.swapcase()|s|trim!|'xxaxx'|trim('x')!|s.strip()|s.lstrip()|s.rstrip()|'abcab'.strip('ab')
s.split()|s.split(' ')|'a,b,,c'.split(',')|'a,b,c'.split(',', 1)|'a b c'.rsplit(' ', 1)|' a  b '.split(none, 1)|''.split()|''.split(',')
'a\\nb\\r\\nc'.splitlines()|'a\\nb\\n'.splitlines(true)|'abc'.split('')|t.startswith('He')|t.startswith(('x','H'))|t.endswith('!')
t.startswith(1)|t.find('o')|t.rfind('o')|t.find('zz')|u.find('😀')|t.index('zz')|t.count('l')|'aaa'.count('')|t.replace('l','L')
t.replace('l','L',1)|'abc'.replace('','-')|'abc'|replace('b', 1)!|n|replace(7, 8)!|', '.join(words)|', '.join(l)|words|join!|l|join('-')!
people|join(', ', attribute='name')!|people|map(attribute='name')|list!|people|map(attribute='tags', default=[])|list!
people|map(attribute='tags')|list!|words|map('upper')|list!|words|map('replace','a','z')|join!|words|map|list!|l|map('string')|list!
people|selectattr('tags')|list!|people|selectattr('age','equalto',31)|map(attribute='name')|list!|people|rejectattr('age','gt',10)|list!
l|select('odd')|list!|l|reject('odd')|list!|l|select|list!|l|select('gt', 1)|list!|words|select('in', ['a','b'])|list!|l|select('nope')|list!
l|first!|l|last!|e|first!|[]|first is defined!|'abc'|last!|d|first!|l|select|last!|l|select|first!|(l|select)|length!|(l|select)[0]
l|sort!|l|sort(reverse=true)!|words|sort!|words|sort(case_sensitive=true)!|people|sort(attribute='age')|map(attribute='name')|list!
people|sort(attribute='age,name', reverse=true)|map(attribute='name')|list!|[1,'a']|sort!|d|dictsort!|{'b':2,'A':1}|dictsort!
{'b':2,'A':3}|dictsort(by='value', reverse=true)!|{'b':2,'A':3}|dictsort(true)!|words|unique|list!|[1,1.0,true,2]|unique|list!
l|reverse|list!|t|reverse!|d|reverse|list!|l|min!|l|max!|[]|max is defined!|words|min!|words|max(case_sensitive=true)!|people|max(attribute='age')!
l|sum!|[1.5,2]|sum!|people|sum(attribute='age')!|[[1],[2]]|sum(start=[])!|words|sum!|range(7)|batch(3)|list!|range(7)|batch(3,'x')|list!
range(7)|slice(3)|list!|range(7)|slice(3,'x')|list!|people|groupby('age')!|people|groupby('tags', default='')|list!|m|abs!|(-2.5)|abs!|t|abs!
2.5|round!|3.5|round!|2.675|round(2)!|-2.5|round!|7|round!|7|round(1,'floor')!|2.55|round(1,'ceil')!|2.1|round(0,'ceil')!|'12'|int!|' 12 '|int!|'1_0'|int!
'12.7'|int!|'x'|int!|'x'|int(-1)!|'ff'|int(base=16)!|'0x1f'|int(0,16)!|none|int!|2.9|int!|-2.9|int!|l|int!|'1e3'|int!|'inf'|int!|'2.5'|float!|'x'|float!
'nan'|float!|n|float!|none|float(1.5)!|'+-1'|int!|'1__0'|int!|n|string!|none|string!|l|string!|f|string ~ 'x'!|missing|default('x')!|e|default('x')!
e|default('x', true)!|none|d('x')!|missing|d!|n|default(1)!|missing.x|default(1)!|l|length!|d|count!|n|length!|none|length!|missing|length!|l|list!
t|list!|d|list!|n|list!|d|items|list!|missing|items|list!|l|items|list!|html|escape!|html|e|e!|html|forceescape!|html|safe!|(html|safe) ~ html
(html|safe)+html|html+(html|e)|'a\\nb\\n\\nc'|indent!|'a\\nb'|indent(2,true)!|'a\\n\\nb'|indent('> ',blank=true)!|'a'|indent(first=true)!|n|indent!|'ab'|center(7)!
'ab'.center(5)|'abc'.center(6,'*')|'ab'.ljust(4,'.')|'ab'.rjust(4)|'-7'.zfill(4)|'a=b=c'.partition('=')|'a=b=c'.rpartition('=')|'ab'.partition('=')
'abab'.removeprefix('ab')|'abab'.removesuffix('ab')|'%s is %d'|format('x',3)!|'%05.1f|%-4s|%x' % (2.25,'ab',255)|'%s' % l|'%d' % 'x'|'%(a)s' % {'a':1}
'%s %s' % 'a'|'%s' % (1,2)|'%%' % ()|'%r' % q|'{} {}'.format(1,'a')|'{0}{1}{0}'.format('a','b')|'{x!r}'.format(x=q)|'{{}}'.format()|'{}'.format()
'a b'.isalpha()|'ab'.isalpha()|'12'.isdigit()|'²'.isdigit()|'²'.isdecimal()|'½'.isnumeric()|'a1'.isalnum()|' \\t'.isspace()|'AB1'.isupper()|'Ab'.istitle()
''.isalpha()|'ab'.isascii()|u.isascii()|'a'.encode()|'a'.nope|'a'.nope()|'a'.upper|t.__class__|l.append(1)|l.append is defined|d.update({})|d.pop('b')
l.index(1)|l.count(1)|(1,2,1).count(1)|l.index(9)|l.copy()|range(3)|range(3)|list!|range(5,0,-2)|list!|range(1,3)[1]|range(10)[-1]|3 in range(5)|range(0)
range(5)[1:3]|range(200000)|range('a')|dict(a=1,b=2)|dict({'a':1},b=2)|dict([('a',1)])|dict(1)|namespace(a=1).a|namespace(a=1).b|namespace({'x':2}).x
namespace(_a=1)|raise_exception('stop it')|strftime_now('%Y-%m-%d %H:%M')|strftime_now('%d %b %Y, %A %j %y %p %I %% %f%z.')|strftime_now('')|lipsum()
d|tojson!|u|tojson!|html|tojson!|{'a':[1,2.0,none,true],'b':{}}|tojson!|{'a':[1,{'b':[]}]}|tojson(indent=2)!|[]|tojson(indent=1)!|{1:2,none:3,true:4,1.5:5}|tojson!
u|tojson(ensure_ascii=true)!|{'b':1,'a':2}|tojson(sort_keys=true)!|[1,2]|tojson(separators=(',',':'))!|{'a':1}|tojson(indent='--')!|missing|tojson!|'\\x7f\\x1f\\u2028/'|tojson!
'\\x7f'|tojson(ensure_ascii=true)!|(1,2)|tojson!|1e16|tojson!|0.1|tojson!|range(2)|tojson!|d.items()|tojson!|[1e400]|tojson!|'truncate this text please'|truncate(10)!
'truncate this'|truncate(10,true)!|'short'|truncate(10)!|'foo bar baz'|truncate(5,false,'…',0)!|'a b-c d'|wordcount!|d|attr('items')|list!|d|attr('b')!|t|attr('upper')!
t|nope!|t|from_json if no else 'skipped'|[t|nope if yes else 1]|n.real|f.is_integer()|loop|self|10000000000*10000000000|9223372036854775807+1|-9223372036854775808
x.y.z|(missing)|[missing]|missing ~ 'x'|missing + 'x'|missing == missing|missing == none|missing > 1|missing in l|l in missing|-missing|missing()|n()|t()|none.x
none['x']|l['x']|l[none]|l[1.0]|t['upper']()|d[l]|{l:1}|d[none]|l[true]|t[1:'x']|t[::0]|l[:none]|(l|map('upper')|list)[0]|'a' is in 'abc'|1 is in 'abc'
""".strip()

TEMPLATES = [
    "a\n", "a\n\n", "a\r\nb\rc", "{{ 1 }}\n{{ 2 }}", "{% if yes %}\nx\n{% endif %}\ny", "  {% if yes %}x{% endif %}  \ny",
    "  {{ 1 }}\n  {# c #}\n  z", "a {%- if yes -%} b {%- endif -%} c", "a\n  {%+ if yes %}b{% endif +%}\nc", "{{- 1 -}} x {{- 2 }}",
    "a {#- c -#} b", "{# {{ x }} {% y %} #}a", "{% raw %}{{ x }}{% endraw %}", " {%- raw -%} {{ x }} {%- endraw -%} b",
    "{% raw %}\n{% if %}\n{% endraw %}\nb", "x{#", "x{{", "{{ 1", "{% if %}", "{% if yes %}", "{% endif %}", "{% nope %}", "{{ 1 | }}", "{{ (1 }}",
    "{{ ) }}", "{{ 'a }}", "{{ a b }}", "{{ }}", "{% set 1 = 2 %}", "{% for x in l %}", "{{ 1 +}}", "{{ {'a': {'b': 1}}['a'] }}",
    "{% for x in l %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ x }},{% endfor %}",
    "{% for x in l %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }}{{ loop.depth }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}",
    "{% for x in missing %}a{% else %}none{% endfor %}", "{% for x in n %}a{% endfor %}", "{% for x in none %}a{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ loop.last }} {% else %}no{% endfor %}",
    "{% for x in l if x > 9 %}a{% else %}no{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }}{{ loop.last }};{% endfor %}", "{% for k in d %}{{ k }};{% endfor %}",
    "{% for (a, b), c in [((1,2),3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1,2,3)] %}{% endfor %}", "{% for c in u %}{{ c }}|{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}",
    "{% break %}", "{% for x in l %}{% for y in words %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in l %}{% set outer = loop %}{% for y in [1] %}{{ outer.index }}{% endfor %}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}", "{% for i in l %}{% set y = i %}{% endfor %}{{ y }}",
    "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}", "{% set ns = namespace(c=0) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}",
    "{% set ns = namespace(go=true) %}{% for i in l if ns.go %}{{ i }}{% if i == 1 %}{% set ns.go = false %}{% endif %}{% endfor %}",
    "{% set d.x = 1 %}", "{% set q.x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = l %}", "{% set x = 1, 2 %}{{ x }}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set ns = namespace() %}{% set ns.a, x = 1, 2 %}{{ ns.a }}{{ x }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x is string }}",
    "{% set x | upper %}a{{ n }}b{% endset %}{{ x }}", "{% set x | replace('a', 'z') | trim %} a {% endset %}[{{ x }}]",
    "{% set x = 0 %}{% set y %}{% set x = 5 %}{{ x }}{% endset %}{{ x }}{{ y }}", "{% filter upper %}a{{ t }}{% endfilter %}", "{% filter replace('l', 'L') | trim %} {{ t }} {% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}", "{% for i in l %}{% with %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endwith %}{% endfor %}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=5) }} {{ f(b=3, a=4) }} {{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(x=2) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "{% macro f(a, b) %}{{ b is defined }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}g{% endmacro %}{{ f() }}",
    "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", "{% macro f() %}{{ x }}{% endmacro %}{% for x in l %}{{ f() }}{% endfor %}", "{% macro f() %}{% set q = 9 %}{% endmacro %}{{ f() }}{{ q }}",
    "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}x{{ n }}{% endcall %}", "{% macro f() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}", "{% macro f(caller=none) %}{{ caller }}{% endmacro %}{{ f() }}", "{% macro f() %}a{% endmacro %}{{ f() | upper }}{{ f().strip() }}{{ f() ~ 1 }}",
    "{% macro f(a, b) %}{{ a }}-{{ b }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(**{'a': 1, 'b': 2}) }}{{ f(1, *[2]) }}", "{{ f(1)) }}", "{{ range(*[1, 4]) | list }}",
    "{% if no %}{{ t | nope }}{% endif %}ok", "{% if yes %}{{ t | nope }}{% endif %}ok", "{{ t | nope }}", "{% if no %}{% for i in l %}{{ i | nope }}{% endfor %}{% endif %}ok", "{{ n is nope }}", "{% if no %}{{ n is nope }}{% endif %}k",
    "{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if no: %}a{% else: %}b{% endif %}", "{% if l %}1{% endif %}{% if e %}2{% endif %}{% if d %}3{% endif %}{% if 0.0 %}4{% endif %}",
    "{% if l | select('gt', 99) %}always{% endif %}", "{% set it = l | select %}{{ it | list }}{{ it | list }}", "{% print 1, 'a' %}", "{% generation %}{% set z = 3 %}{{ z }}{% endgeneration %}{{ z }}",
    "{% for x in l %}{% generation %}{{ x }}{{ loop.last }}{% endgeneration %},{% endfor %}", "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{% include 'x' %}", "{% do l.append(1) %}",
    "{% set l = l + [9] %}{{ l }}", "{% set x = namespace(l=[]) %}{% for i in l %}{% set x.l = x.l + [i * 2] %}{% endfor %}{{ x.l }}", "{{ loop }}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{%- set n = n + 1 -%}\n {{ n }}",
    "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}", "{{ 'a' -}}\n\n  b", "{{ d }}{{ people }}{{ q }}{{ [q, t, u] }}", "a{{ '\n' }}b", "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\n!", "\n\n{% if yes %}\n\na\n{% endif %}\n\n", "\t {% if yes -%} \t\n a{% endif %}",
    "{{ '[%3s|%-3s|%2s|%1s]' % ('ab', 'ab', 'ab', 'ab') }}", "{{ '%x %X %o' % (0, 0, 0) }}", "{{ '%x %X %o %d %i' % (254, 254, 8, -5, -6) }}", "{{ [0 in range(5), 4 in range(5), 5 in range(5), -1 in range(5)] }}",
    "{{ [2 in range(2, 9, 3), 3 in range(2, 9, 3), 8 in range(2, 9, 3), 9 in range(2, 9, 3), -1 in range(2, 9, 3), 11 in range(2, 9, 3)] }}",
    "{{ [5 in range(5, 0, -2), 1 in range(5, 0, -2), 0 in range(5, 0, -1), 7 in range(5, 0, -2), 4 in range(5, 0, -2), -1 in range(5, 0, -2)] }}",
    "{{ [1.0 in range(3), 1.5 in range(3), 'a' in range(3), true in range(3), none in range(3)] }}",
]


def expressions():
    # "a|b" would be a filter: a "!" at the end of a part joins it to what is before, so that `x|upper!` is one expression.
    for line in EXPRESSIONS.split("\n"):
        if line.startswith("'%05"):
            yield from ["'%05.1f~%-4s~%x' % (2.25,'ab',255)"]
            line = line[line.index("|'%s' % l") + 1:] if "|'%s' % l" in line else ""
        yield from split_line(line)


def split_line(line):
    parts, waiting = line.split("|"), []
    result = []
    for part in parts:
        waiting.append(part)
        if part.endswith("!") and not part.endswith("'!") or part.endswith(")!"):
            # The value and its filters: as many parts as filters have names.
            whole = waiting[:]
            while len(whole) > 1 and not starts_filter(whole[1]):
                result.append(whole.pop(0))
            result.append("|".join(whole).removesuffix("!"))
            waiting = []
    return result + waiting


FILTERS = ("upper lower title capitalize trim replace join map select reject selectattr rejectattr first last length list sort dictsort "
           "unique reverse min max sum batch slice groupby abs round int float string default d count items escape e forceescape safe "
           "indent center format tojson truncate wordcount attr nope from_json").split()


def starts_filter(part):
    name = part.split("(")[0].split(" ")[0].rstrip("!")
    return name in FILTERS and part not in ("e", "d")


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 5, 7, 8, 9)


chat_template_utils.datetime = FixedTime
sources = ["{{ " + one + " }}" for one in expressions() if one.strip()] + TEMPLATES
# What Piton has not: an error that says so. Values that print their address are no text of the template.
REFUSED = ("lipsum", ".encode()", "n.real", "is_integer", "10000000000*", "807+1", "{{ self }}", "-9223372036854775808", "range(5)[1:3]", "\\N{")


def refused(source, case):
    printed = case.get("text", "")
    return any(part in source for part in REFUSED) or " at 0x" in printed or "<Macro" in printed or "<Loop" in printed


with open(pathlib.Path(sys.argv[1]) / "snippets.jsonl", "w") as file:
    head = {"by": f"transformers {transformers.__version__}", "date": str(datetime.date.today()), "variables": VARIABLES}
    print(json.dumps(head, ensure_ascii=False), file=file)
    for source in dict.fromkeys(sources):
        try:
            case = {"text": chat_template_utils._cached_compile_jinja_template(source).render(**VARIABLES)}
        except Exception as error:
            case = {"error": f"{type(error).__name__}: {error}"}
        if refused(source, case):
            case = {"text": "", "refused": True}
        print(json.dumps({"source": source, **case}, ensure_ascii=False), file=file)
