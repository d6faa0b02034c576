#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/jinja_cases.json: small templates and their output in `transformers`.

usage: make_template_cases.py tests/data/jinja_cases.json

If Jinja raises an error, `text` is null. Requires `transformers` (tools/requirements.txt).
"""
import json
import sys

from transformers.utils import chat_template_utils

NAMES = {
    "s": "Hello, World", "u": "Zürich 🦊 ñandú", "w": "  pad\t\n", "n": 7, "f": 2.5, "b": True, "z": None, "e": "", "neg": -7,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "d": {"b": 1, "a": [1, 2], "items": "own"}, "nest": {"k": {"m": [{"x": 1}, {"x": 2}]}},
    "rows": [{"n": "x", "v": 1, "t": True}, {"n": "Y", "v": 2, "t": False}, {"n": "x", "v": 3}], "q": "it's \"so\"\n\\",
    "lines": "one\ntwo\n\nfour", "big": 12345678901, "small": 1e-7, "large": 1e22, "csv": "a,b,,c",
}
CASES = r"""
plain text
{{ s }}|{{ u }}|{{ n }}|{{ f }}|{{ b }}|{{ z }}|{{ missing }}|{{ e }}
{{ l }}|{{ ls }}|{{ d }}|{{ rows }}|{{ (1,) }}|{{ (1, 'a') }}|{{ {} }}|{{ [] }}|{{ () }}
{{ q }}|{{ [q] }}|{{ ["\t\x07é\u00a0"] }}|{{ ['"'] }}|{{ ["'"] }}
{{ 1 + 2 * 3 - 4 / 2 }}|{{ 7 // 2 }}|{{ neg // 2 }}|{{ neg % 3 }}|{{ 7 % -3 }}|{{ 2 ** 10 }}|{{ 2 ** -1 }}|{{ -n }}|{{ +f }}|{{ 7.5 // 2 }}|{{ neg % 2.5 }}
{{ 1 / 3 }}|{{ 1e3 }}|{{ small }}|{{ large }}|{{ big * 3 }}|{{ 0.1 + 0.2 }}|{{ 1_000 }}|{{ 3.0 }}|{{ 1e15 }}|{{ 123456789.125 }}
{{ 1 / 0 }}
{{ 'a' + 1 }}
{{ 'a' ~ 1 ~ none ~ [2] }}|{{ 'ab' * 3 }}|{{ [1] * 2 + [3] }}
{{ 1 < 2 < 3 }}|{{ 1 < 2 > 5 }}|{{ 'a' < 'b' }}|{{ 1 == 1.0 }}|{{ true == 1 }}|{{ none == false }}|{{ [1] == [1] }}|{{ 'a' != 'b' }}|{{ l >= [3] }}
{{ 1 < 'a' }}
{{ 2 in l }}|{{ 'x' not in s }}|{{ 'ell' in s }}|{{ 'b' in d }}|{{ 'z' in d }}
{{ not b }}|{{ b and n }}|{{ e or 'x' }}|{{ z and 1 }}|{{ not z and not e }}
{{ 'y' if b else 'n' }}|{{ 'y' if z }}|{{ 1 if z else 2 if e else 3 }}
{{ l[0] }}|{{ l[-1] }}|{{ l[9] }}|{{ s[1] }}|{{ u[-1] }}|{{ d['b'] }}|{{ d.b }}|{{ d['q'] }}|{{ nest.k.m[1].x }}|{{ l.0 }}
{{ s[1:3] }}|{{ s[::-1] }}|{{ u[:3] }}|{{ u[-5:] }}|{{ l[1:] }}|{{ l[::2] }}|{{ l[::-1] }}|{{ l[5:] }}|{{ l[:-1] }}|{{ s[:100] }}|{{ s[-3:-1] }}|{{ l[2:0:-1] }}
{{ missing.x }}
{{ missing + 1 }}
{{ d.items() | list }}|{{ d['items'] }}|{{ d.keys() | list }}|{{ d.values() | list }}|{{ d.get('b') }}|{{ d.get('q') }}|{{ d.get('q', 5) }}
{% if n > 5 %}big{% elif n > 2 %}mid{% else %}small{% endif %}|{% if e %}x{% endif %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ x }};{% endfor %}
{% for x in [] %}a{% else %}none{% endfor %}|{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}|{% for x in l if x > 1 %}{{ loop.index }}{{ x }} {% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}|{{ loop.cycle('a', 'b') }}|{{ loop.changed(x > 1) }} {% endfor %}
{% for x in l recursive %}{{ x }}{% if x == 3 %}({{ loop([8, 9]) }}){{ loop.depth }}{% endif %}{% endfor %}
{% for x in l %}{% for y in 'ab' %}{{ loop.index }}{{ y }}{% endfor %}{{ loop.index }}{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}|{% for a, b in [[1]] %}{% endfor %}
{% set x = 0 %}{% for i in l %}{{ x }}{% set x = x + i %}{% endfor %}{{ x }}
{% set ns = namespace(x=0, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.none }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% set t %}in {{ n }}{% endset %}{{ t }}|{% set t | upper | trim %} in {% endset %}{{ t }}|{% set c = 1, 2 %}{{ c }}
{% if b %}{% set x = 1 %}{% endif %}{{ x }}|{% with x = 5, y = 6 %}{{ x }}{{ y }}{% endwith %}{{ x }}{{ y }}
{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=1, a=0) }}{{ m() }}{{ m.name }}
{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m(1) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}<{{ caller(a) }}>{% endmacro %}{% call(x) m('q') %}body {{ x }}{% endcall %}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}|{% set y = 4 %}{% macro g() %}{{ y }}{% endmacro %}{% set y = 5 %}{{ g() }}
{% filter upper %}a{{ s }}{% endfilter %}|{% filter replace('a', 'b') | upper %}banana{% endfilter %}
{% raw %}{{ not }} {% this %}{% endraw %}|{# a comment {{ x }} #}|{%- raw -%}  x  {%- endraw -%}  y
a  {%- if b -%}  b  {%- endif -%}  c|a  {{- n -}}  d|a {%+ if b +%} x {% endif %}
  {% if b %}
  inside
  {% endif %}
after
  {{ n }}
{%- for x in l %}
  {{ x }}
{%- endfor %}

{{ s | upper }}|{{ s | lower }}|{{ u | upper }}|{{ 'hELLO wORLD-x (y)' | title }}|{{ 'hELLO w' | capitalize }}|{{ w | trim }}|{{ 'xxaxx' | trim('x') }}
{{ s | replace('l', 'L') }}|{{ s | replace('l', 'L', 1) }}|{{ 'abc' | replace('', '-') }}|{{ s | length }}|{{ u | length }}|{{ d | length }}|{{ missing | length }}
{{ l | sort }}|{{ l | sort(reverse=true) }}|{{ ls | sort }}|{{ ls | sort(case_sensitive=true) }}|{{ rows | sort(attribute='n') | map(attribute='v') | list }}|{{ rows | sort(attribute='n,v', reverse=true) | map(attribute='v') | list }}
{{ l | first }}|{{ l | last }}|{{ [] | first }}|{{ l | max }}|{{ l | min }}|{{ l | sum }}|{{ rows | sum(attribute='v') }}|{{ ls | max }}|{{ rows | max(attribute='v') }}|{{ l | sum(start=10) }}
{{ ls | join }}|{{ ls | join(', ') }}|{{ rows | join('-', attribute='n') }}|{{ s | list }}|{{ d | list }}|{{ l | reverse | list }}|{{ s | reverse }}
{{ rows | map(attribute='t', default='no') | list }}|{{ ls | map('upper') | list }}|{{ ls | map('replace', 'a', 'z') | join }}|{{ nest.k.m | map(attribute='x') | list }}|{{ [[1, 2], [3]] | map(attribute=0) | list }}
{{ l | select('gt', 1) | list }}|{{ l | select('odd') | list }}|{{ l | reject('odd') | list }}|{{ [0, 1, '', 'a', none] | select | list }}|{{ rows | selectattr('t') | map(attribute='v') | list }}|{{ rows | rejectattr('t', 'defined') | map(attribute='v') | list }}|{{ rows | selectattr('n', 'equalto', 'x') | list | length }}|{{ rows | selectattr('v', 'in', [1, 3]) | map(attribute='v') | list }}
{{ ls | unique | list }}|{{ ls | unique(case_sensitive=true) | list }}|{{ rows | unique(attribute='n') | map(attribute='v') | list }}|{{ [1, 1.0, true, '1'] | unique | list }}
{% for k, g in rows | groupby('n') %}{{ k }}:{{ g | length }} {% endfor %}|{{ range(7) | batch(3) | list }}|{{ range(7) | batch(3, 'x') | list }}|{{ range(7) | slice(3) | list }}|{{ range(7) | slice(3, 'x') | list }}
{{ {'b': 2, 'A': 1} | dictsort }}|{{ {'b': 2, 'A': 1} | dictsort(case_sensitive=true, by='value', reverse=true) }}|{{ {'x': 1} | items | list }}
{{ missing | default('d') }}|{{ e | default('d') }}|{{ e | default('d', true) }}|{{ z | d('d') }}|{{ missing | default }}|{{ missing.x | default('d') }}
{{ '42' | int }}|{{ '4.7' | int }}|{{ 'x' | int }}|{{ 'x' | int(5) }}|{{ 'ff' | int(0, 16) }}|{{ '0xff' | int(base=16) }}|{{ f | int }}|{{ ' 12 ' | int }}|{{ '2.5' | float }}|{{ 'x' | float }}|{{ 3 | float }}|{{ '1e3' | float }}|{{ z | int }}
{{ -3 | abs }}|{{ neg | abs }}|{{ -2.5 | abs }}|{{ 2.567 | round(2) }}|{{ 2.5 | round }}|{{ 3.5 | round }}|{{ 2.1 | round(0, 'ceil') }}|{{ 2.9 | round(method='floor') }}|{{ 7 | round }}|{{ 1234.5 | round(-2) }}|{{ 0.125 | round(2) }}
{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent(2, blank=true) }}|{{ lines | indent('> ', first=true) }}
{{ 'x' | center(5) }}|{{ 'ab' | center(5) }}|{{ '%s is %d or %.2f' | format('a', 5, 2.345) }}|{{ '%(a)s' | format(a=1) }}|{{ '%5d|%-5s|%05d|%x' % (3, 'a', 4, 255) }}|{{ '%s' % 'a' }}|{{ '100%%' % () }}
{{ 'one two three four' | truncate(9) }}|{{ 'one two three four' | truncate(9, true) }}|{{ 'one two three four' | truncate(9, false, '!', 0) }}|{{ 'short' | truncate(4) }}|{{ 'one two, three' | wordcount }}
{{ '<a href="x">' | escape }}|{{ '<b>' | safe + '<c>' }}|{{ 'a&b c/é' | urlencode }}|{{ '<' | e | e }}|{{ ('<' | safe) ~ '<' }}
{{ d | tojson }}|{{ u | tojson }}|{{ u | tojson(ensure_ascii=true) }}|{{ q | tojson }}|{{ [1, 2.0, none, true, 1e20, 'a'] | tojson }}|{{ {} | tojson(indent=2) }}|{{ '</script>' | tojson }}
{{ {'b': [1, {'c': []}], 'a': 1} | tojson(indent=2) }}|{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}|{{ [1, 2] | tojson(separators=(',', ':')) }}|{{ {1: 2, none: 3, true: 4} | tojson }}
{{ missing | tojson }}
{{ s | string }}|{{ 5 | string + 'a' }}|{{ l | string }}|{{ d | attr('b') | string }}|{{ ['a', 'b'] | join('-') | upper }}
{{ n is odd }}|{{ n is even }}|{{ n is divisibleby 7 }}|{{ n is divisibleby(2) }}|{{ s is string }}|{{ n is number }}|{{ n is integer }}|{{ f is float }}|{{ b is boolean }}|{{ b is integer }}|{{ b is number }}|{{ b is true }}|{{ n is true }}|{{ z is none }}|{{ z is defined }}|{{ missing is defined }}|{{ missing is undefined }}
{{ d is mapping }}|{{ l is mapping }}|{{ l is sequence }}|{{ s is sequence }}|{{ d is sequence }}|{{ n is iterable }}|{{ l is iterable }}|{{ range is callable }}|{{ 'ab' is lower }}|{{ 'AB' is upper }}|{{ 'Ab' is upper }}|{{ '1' is lower }}|{{ n is eq 7 }}|{{ n is ne(7) }}|{{ n is gt 5 }}|{{ n is lessthan 5 }}|{{ n is ge 7 }}|{{ n is le 6 }}|{{ n is in [7] }}|{{ 'a' is in 'abc' }}|{{ z is sameas none }}|{{ n is not none }}|{{ n is not odd }}|{{ 'upper' is filter }}|{{ 'nope' is filter }}|{{ 'odd' is test }}
{{ s.upper() }}|{{ s.lower() }}|{{ 'hello world'.title() }}|{{ "it's a x1y".title() }}|{{ 'hELLO'.capitalize() }}|{{ 'aB'.swapcase() }}|{{ w.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xyaxy'.lstrip('xy') }}|{{ 'xyaxy'.rstrip('yx') }}|{{ w.lstrip() }}.
{{ csv.split(',') }}|{{ csv.split(',', 1) }}|{{ csv.rsplit(',', 1) }}|{{ ' a  b c '.split() }}|{{ ' a  b c '.split(none, 1) }}|{{ ' a  b c '.rsplit(none, 1) }}|{{ ''.split() }}|{{ ''.split(',') }}|{{ lines.splitlines() }}|{{ lines.splitlines(true) }}|{{ 'a</think>b</think>c'.split('</think>')[-1] }}
{{ s.startswith('He') }}|{{ s.endswith('ld') }}|{{ s.startswith(('x', 'H')) }}|{{ s.startswith('e', 1) }}|{{ s.find('o') }}|{{ s.rfind('o') }}|{{ s.find('z') }}|{{ u.find('🦊') }}|{{ s.index('W') }}|{{ s.count('l') }}|{{ s.find('o', 5) }}|{{ l.index(1) }}|{{ l.count(3) }}
{{ s.index('zz') }}
{{ s.replace('l', '1') }}|{{ s.replace('l', '1', 1) }}|{{ '-'.join(ls) }}|{{ ', '.join(d) }}|{{ 'prefix-x'.removeprefix('prefix-') }}|{{ 'x.txt'.removesuffix('.txt') }}|{{ 'a=b=c'.partition('=') }}|{{ 'a=b=c'.rpartition('=') }}|{{ 'a'.partition('=') }}
{{ 'a'.ljust(3, '.') }}|{{ 'a'.rjust(3) }}|{{ 'a'.center(4, '*') }}|{{ '-7'.zfill(4) }}|{{ '7'.zfill(3) }}|{{ '12'.isdigit() }}|{{ 'a1'.isalnum() }}|{{ 'é'.isalpha() }}|{{ ' '.isspace() }}|{{ 'AB'.isupper() }}|{{ 'ab1'.islower() }}|{{ 'A B'.istitle() }}|{{ ''.isdigit() }}
{{ '{} and {}'.format(1, 'b') }}|{{ '{1}{0}'.format(1, 2) }}|{{ '{a}'.format(a=5) }}|{{ '{{}}'.format() }}
{{ l.append(4) }}
{{ d.update({'x': 1}) }}
{{ range(3) | list }}|{{ range(1, 4) | list }}|{{ range(5, 0, -2) | list }}|{{ dict(a=1, b=2) }}|{{ dict([('x', 1)]) }}|{{ dict({'y': 2}, z=3) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}|{% set j = joiner(', ') %}{{ j() }}x{{ j() }}y
{{ raise_exception('no ' ~ n) }}
{{ f(1) }}
{{ undefined_function() }}
{{ x | nofilter }}
{% if %}
{{ 1 + }}
{% for x in l %}
{{ 'abc
{% include 'x' %}
{% unknown %}
{{ [1, 2, 3,] }}|{{ {'a': 1,} }}|{{ (1, 2,) }}|{{ 'a' 'b' }}|{{ "\u00e9\x41\n\101\q" }}
{{ [x for x in l] }}
{{ l[0:2] + [5] }}|{{ (l | length) * 2 }}|{{ -l[0] }}|{{ not l[0] == 3 }}|{{ n - -1 }}|{{ 2 - 1 - 1 }}|{{ 8 / 2 / 2 }}|{{ 2 ** 3 ** 2 }}|{{ -2 ** 2 }}|{{ 1 if not n else 2 }}
{{ d['items'] if 'items' in d else 'x' }}|{{ (missing or {}).get('a', 'b') }}|{{ [missing, z, b] }}|{{ {'k': missing} }}
{%- set m = {'a': 1} -%}{{ m.a }}{% for k in m %}{{ k }}{% endfor %}|{{ m | length }}|{{ m == {'a': 1} }}
{% generation %}reply {{ n }}{% endgeneration %}|{% for x in l %}{% if loop.first %}{% set y = x %}{% endif %}{{ y }}{% endfor %}{{ y }}
{{ 'a\nb' }}|{{ 'tab\there' }}|{{ "q\"q" }}|{{ 'c:\\d' }}|{{ '\U0001F98A' }}
{{ (n, f) | join('/') }}|{{ 'abc' | map('upper') | join('.') }}|{{ {'a': 1, 'b': 2} | join(',') }}|{{ 'x' if none is defined and not none else 'y' }}
{% macro outer() %}{% set v = 1 %}{% macro inner() %}{{ v }}{% endmacro %}{{ inner() }}{{ inner() }}{% endmacro %}{{ outer() }}
{{ ns2.x }}{% set ns2 = namespace() %}
{% set plain = 5 %}{% set plain.x = 1 %}
{{ 9223372036854775807 }}|{{ 'é' < 'z' }}|{{ 'a'|upper|lower }}|{{ 'a' is string and 'b' is string }}|{{ n if n is defined and n > 5 else 0 }}|{{ loop is defined }}
""".strip("\n").split("\n")
# Templates with several lines.
CASES += ["""{% for r in rows %}
    {% if r.t is defined %}
- {{ r.n }}
    {%- else %}
        * {{ r.n }}

    {% endif %}
{% endfor %}
end
""", "a\r\nb\rc\n", "{# x #}\n  {# y #}  \nz", "  {%- set x = 1 %}  \n {{ x }}\n\n", "{% if b %}  \n\tx{% endif %}\n  {#- c -#}  \n y",
          "{{ n\n+ 1 }}\n{%\nif b\n%}yes{% endif\n%}", "  {% raw %}\n  {{ x }}\n  {% endraw %}\n  q"]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = []
    for template in CASES:
        try:
            text = chat_template_utils._compile_jinja_template(template).render(**NAMES)
        except Exception:  # any error raised by Jinja or the template
            text = None
        out.append({"template": template, "text": text})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        head = json.dumps(NAMES, ensure_ascii=False)
        file.write('{"names": ' + head + ',\n"cases": [\n')
        file.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in out))
        file.write("\n]}\n")


main()
