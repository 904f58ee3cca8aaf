#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/fixtures/chat/rendering.jsonl: templates that use every part of Jinja that finetune
has, with what transformers renders from them, or that it fails.

Each line: {"template", "variables", "text" | "error", "marks": byte ranges inside generation}.
Run it again only when jinja2 or transformers change; the result is committed."""

import datetime
import json
import re
from pathlib import Path

from transformers.utils import chat_template_utils

OUTPUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "chat" / "rendering.jsonl"
DATE = datetime.datetime(2026, 7, 5, 14, 3, 9)  # what strftime_now() formats

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  What's \"naïve\"?\n\tSee <b>&amp;</b> 日本語 😀 "},
    {"role": "assistant", "content": "ÉCOLE straße\n\nhello world  hello", "reasoning_content": "hm"},
    {"role": "user", "content": None},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.5, None], "b": {"c": True}}}}
        ],
    },
    {"role": "tool", "content": "12", "name": "f"},
]

# One feature a line, so that a failure names it. `c` is the text of a message.
LINES = r"""
{{ c.split() }}{{ c.split('l') }}{{ c.split(' ', 1) }}{{ c.split(None, 1) }}{{ c.rsplit(None, 1) }}{{ c.rsplit(' ', 2) }}
{{ ' a b  c '.split(None, 0) }}{{ ' a b  c '.rsplit(None, 2) }}{{ ' a b  c  '.rsplit(None, 0) }}{{ 'a,b,c'.rsplit(',', 1) }}
{{ c[1:3] }}|{{ c[-4:-1] }}|{{ c[::2] }}|{{ c[::-1] }}|{{ c[5:] }}|{{ c[:-99] }}|{{ c[-1] }}|{{ c[0] }}|{{ c[99:1:-2] }}
{{ [1, 2, 3, 4][1:] }}{{ [1, 2, 3, 4][::-2] }}{{ (1, 2, 3)[:2] }}{{ [1, 2][9:] }}{{ [1, 2, 3][-2] }}
{{ c.strip() }}|{{ c.lstrip(' W') }}|{{ c.rstrip('😀 ') }}|{{ c | trim }}|{{ c | trim('hel') }}
{{ c.upper() }}{{ c.lower() }}{{ c.title() }}{{ c.capitalize() }}{{ c | upper }}{{ c | lower }}{{ c | title }}{{ c | capitalize }}
{{ c.replace('l', 'L', 1) }}{{ c | replace('e', '') }}{{ c | replace('', '-', 3) }}{{ c.replace('hello', c[:2]) }}
{{ c.find('o') }} {{ c.rfind('o') }} {{ c.count('l') }} {{ c.find('nothing') }} {{ c.startswith(('  ', 'B')) }} {{ c.endswith('lo') }}
{{ c.splitlines() }}{{ c.splitlines(true) }}{{ c.partition(' ') }}{{ c.rpartition('?') }}{{ c.removeprefix('Be') }}{{ c.removesuffix('.') }}
{{ c.isalpha() }}{{ 'ab'.isalpha() }}{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ 'AB'.isupper() }}{{ 'aB'.islower() }}
{{ c | length }} {{ c | list | length }} {{ c | first }} {{ c | last }} {{ c | reverse }} {{ c | string }} {{ c | safe }} {{ c | e }}
{{ c | indent(2) }}{{ c | indent(1, true) }}{{ 'a\n\nb' | indent(blank=true) }}{{ 'x-y (z' | title }}
{{ c ~ 1 ~ none ~ true ~ 2.5 ~ [c] }}{{ 'a' 'b' "c" }}{{ 'a' + c }}{{ 'ab' * 3 }}{{ 2 * [1] }}
{{ m }}{{ m | tojson }}{{ m | tojson(indent=2) }}{{ m | tojson(ensure_ascii=true) }}{{ m | tojson(separators=(',', ':')) }}{{ m | tojson(sort_keys=true) }}
{{ m | dictsort }}{{ m.items() | list }}{{ m | items | list }}{{ m.keys() | list }}{{ m.values() | list }}{{ m.get('x') }}{{ m.get('x', 3) }}{{ m.get('role') }}
{{ m.nothing }}{{ m.nothing is defined }}{{ m['items'] is defined }}{{ m.items is callable }}{{ 'role' in m }}{{ m is mapping }}{{ m['ro' + 'le'] }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1_000 + 0x1F + 0b11 }}
{{ 1e16 }} {{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 123456789.125 }} {{ 1e22 }} {{ 1.5e300 }} {{ -0.0 }} {{ 3.0 | string }} {{ 1e-4 }}
{{ 1 == 1.0 }} {{ true + 1 }} {{ 1 < 2 < 3 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'x' == 1 }} {{ 1 != 2 }} {{ none == false }} {{ (1, 2) == [1, 2] }}
{{ (1,) }}{{ (1, 2) }}{{ () }}{{ {'a': 1, 2: none} }}{{ ['it\'s', "a\"b", 'both\'"'] }}{{ ['\n\t\\\x00\u200b\u00e9'] }}
{{ x }}{{ x is undefined }}{{ x | default('d') }}{{ '' | default('d', true) }}{{ '' | default('d') }}{{ x | length }}{{ x is iterable }}{{ x is sequence }}{{ x == y }}
{{ 'x' if false }}{{ 'x' if true else 'y' }}{{ not true }}{{ true and 'y' or 'z' }}{{ none or [] or 'z' }}{{ none }}{{ none is none }}{{ not x is defined }}
{{ [3, 1, 2] | sort }}{{ [3, 1, 2] | sort(reverse=true) | join(', ') }}{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A'] | sort(case_sensitive=true) }}{{ ms | map(attribute='role') | sort | unique | join('+') }}
{{ [1, none, 2] | select | list }}{{ [1, 2, 3, 4] | reject('odd') | list }}{{ ms | selectattr('role', 'equalto', 'user') | list | length }}{{ ms | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list }}{{ ms | selectattr('tool_calls') | list | length }}
{{ ['a', 'b'] | map('upper') | list }}{{ [[1, 2], [3]] | map('first') | list }}{{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }}{{ [{'a': 1}, {}] | map(attribute='a', default=0) | list }}{{ none | map('upper') | list }}
{{ [1, 2, 3] | sum }} {{ [1, 2] | max }} {{ [2, 1] | min }} {{ [1, 1, 2] | unique | list }} {{ [1, 2] | first }} {{ [1, 2] | last }} {{ [] | first }} {{ [1, 2] | reverse | list }}
{{ '3' | int + 1 }} {{ '3.7' | int }} {{ 'x' | int(9) }} {{ 2.9 | int }} {{ 'ff' | int(0, 16) }} {{ '2.5' | float }} {{ 'x' | float }} {{ 2.5 | round }} {{ 3.14159 | round(2) }} {{ 2.1 | round(method='ceil') }} {{ -3 | abs }}
{{ 5 is divisibleby 5 }}{{ 4 is even }}{{ 3 is odd }}{{ 'A' is upper }}{{ 'a' is lower }}{{ 1 is number }}{{ true is number }}{{ true is integer }}{{ true is boolean }}{{ 1.0 is float }}{{ 'a' is string }}{{ 1 is sameas true }}{{ 1 is eq 1 }}{{ 2 is gt 1 }}{{ 'a' is in ['a'] }}{{ false is false }}{{ 1 is not none }}
{{ 'y' if [] | select else 'n' }}{{ ms | selectattr('role', 'equalto', 'nobody') is sequence }}{{ ms | map(attribute='role') is iterable }}{% set g = ms | map(attribute='role') %}{{ g | first }}{{ g | list }}{{ g | list }}{{ 'user' in (ms | map(attribute='role')) }}{{ ms | map(attribute='role') | reverse | join }}{{ [1, 2] | reverse | list }}{{ (ms | map(attribute='role'))[0] }}
{{ '<a>' | safe + '<b>' }}{{ '<b>' + ('<a>' | safe) }}{{ '<a>' | safe ~ '<b>' }}{{ '<' | e + '<' }}{{ '<' | e | e }}{{ ['<' | safe] }}{{ '<' | safe | length }}{{ '<' | safe == '<' }}{{ '"' | safe | tojson }}{{ ('<' | safe)[0] + '<' }}{{ ('<' | safe + m | tojson) }}
{{ range(3) | list }}{{ range(5, 1, -2) | list }}{{ dict(a=1, **{'b': 2}) }}{{ dict([('k', 1)]) }}{{ strftime_now('%d %b %Y, %A %H:%M:%S %j') }}
{{ none.x }}{{ none[0] }}{{ 'abc'.foo }}{{ 5[0] }}{{ [1, 2]['x'] }}{{ none[1:] }}{{ ms[99] }}{{ ms[-1].role }}{{ ms.0.role }}{{ ms | length }}
"""

TEMPLATES = [
    "{% macro f() %}<m>{% endmacro %}{{ f() ~ '<x>' }}{{ f() + '<x>' }}",
    "{{ '{} {}'.format(1, 'a') }}|{{ '{0} {1} {0}'.format(1, 'a') }}|{{ '{a} {b[0]}'.format(a=1, b=[5]) }}",
    "{{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:e}|{:%}'.format('a','b','c',42,3.14159,1234567,255,12345.678,0.25) }}",
    "{{ '{{}} {!r} {!s}'.format('a','b') }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '%s %d %r %.2f %05d %x %%' % ('a', 3, 'b', 2.5, 42, 255) }}|{{ '%s' % 'a' }}|{{ '%(a)s' % {'a': 1} }}|{{ '%-5s|%5s' % ('a','b') }}",
    "{{ [1,2,3,4,5] | batch(2) | list }}{{ [1,2,3] | batch(2, 'x') | list }}",
    "{% for k, l in [{'a':1,'b':2},{'a':1,'b':3},{'a':2,'b':4}] | groupby('a') %}{{ k }}:{{ l }};{% endfor %}",
    "{% for g in [{'a':'x'},{'a':'X'},{'a':'b'}] | groupby('a') %}{{ g.grouper }}:{{ g.list }};{{ g }}{% endfor %}",
    "{{ 'foo bar baz qux' | truncate(9) }}|{{ 'foo bar baz qux' | truncate(9, True) }}|{{ 'foo bar baz qux' | truncate(11) }}|{{ 'foo bar baz qux' | truncate(11, False, '...', 0) }}",
    "{{ 'a b  c_d ñ-x' | wordcount }}",
    "{% for x in [{'n':1,'c':[{'n':2,'c':[]}]}] recursive %}{{ loop.depth }}{{ x.n }}[{{ loop(x.c) }}]{% endfor %}",
    "{% for m in ms %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.cycle('x', 'y') }}{{ loop.previtem.role if loop.previtem is defined else '-' }}"
    "{{ loop.nextitem.role }}{{ loop.changed(m.role) }}\n{% endfor %}",
    "{% for m in ms if m.role != 'system' %}\n{% if loop.index > 3 %}{% break %}{% elif loop.index0 % 2 %}{% continue %}"
    "{% else %}E{% endif %}\n  {{ m.role }}\n{% else %}nobody\n{% endfor %}|{% for x in [] %}{% else %}none{% endfor %}",
    "{% set ns = namespace(a=1, found=false) %}{% for m in ms %}{% set ns.a = ns.a + 1 %}{% set b = 1 %}{% endfor %}"
    "{{ ns.a }}{{ b }}{{ ns.nothing }}{{ ns['a'] }}",
    "{% macro f(a, b='B', c=none) %}[{{ a }}-{{ b }}-{{ c }}{{ g }}]{% endmacro %}{% set g = 5 %}{{ f(1) }}{{ f(1, c=3) }}"
    "{{ f(b=2, a=1) | upper }}{{ f() }}{% macro r(n) %}{{ n }}{% if n %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(4) }}",
    "{% set t %}  block {% set inner = 3 %}{% endset %}[{{ t }}][{{ inner }}]{% set y | upper | trim %} abc {% endset %}{{ y }}"
    "{% filter upper | replace('A', 'b') %}a{{ 'a' }}{% endfilter %}{% with q = 5, r = q %}{{ q }}{{ r }}{% endwith %}{{ q }}",
    "{% macro w(t) %}<{{ t }}>{{ caller('arg') }}</{{ t }}>{% endmacro %}{% call(v) w('b') %}body {{ v }}{% endcall %}",
    "a\n  {% if true %}\n  b\n  {%- if true -%}  \n c {%+ if true %} d{% endif +%}\n e {% endif %}\n{{ 'x' }}\n{{- 'y' -}}\n z{% endif %}\n\n",
    "  {# comment #}\n a {#- b -#} c {# d #} e\n{#+ f +#}\n",
    "{%- raw %} {{ raw }} {% if %}\n {% endraw -%}  end\n {% raw -%}  x\n{%- endraw %}\ny",
    "line\r\nnext\r{% if true %}\r\n x{% endif %}\r\n",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% for k, v in {'x': 1, 'y': [2]}.items() %}{{ k }}={{ v }};{% endfor %}"
    "{% for c in 'añ' %}{{ c }}.{% endfor %}{% for k in {'p': 1} %}{{ k }}{% endfor %}{% for (i, j) in [(1, 2)] %}{{ i + j }}{% endfor %}",
    "{% for m in ms %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{% set z = 1 %}{{ m.content }}<|end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|end|>{% endif %}\n{{ z }}{% endfor %}",
    "{{ \"a\\tb\\n\\u00e9\\x41\\101\\q\\\\\\'\" }}{{ '}}' }}{{ {'a': {'b': '%}'}} }}",
]

FAILING = [
    "{{ x.foo }}", "{{ x + 1 }}", "{{ x() }}", "{{ none + 'a' }}", "{{ 1 / 0 }}", "{{ 'a' < 1 }}", "{{ 1 in 2 }}",
    "{{ ms.append(1) }}", "{{ m.update({}) }}", "{{ raise_exception('Roles must alternate') }}", "{% for x in none %}{% endfor %}",
    "{% for a, b in [(1,)] %}{% endfor %}", "{{ range(1000000) }}", "{{ 5 | length }}", "{{ m | nofilter }}", "{{ 1 is notest }}",
    "{% if %}", "{% for x in y %}", "{{ 'a }}", "{{ (1, }}", "{% endif %}", "{% nothing %}", "{{ 1 }", "{# a", "{% break %}",
    "{% set m.role = 1 %}", "{{ f(1) }}", "{{ 'a' | replace }}", "{{ [1, 'a'] | sort }}", "{{ namespace | tojson }}", "{{ x | tojson }}",
    "{{ ms | map(attribute='role') | tojson }}", "{{ ms | select | length }}", "{{ ms | select | last }}", "{{ (ms | select) + [1] }}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{{ ns.__class__() }}", "{% set n = namespace(_x=1) %}",
]


def main():
    chat_template_utils.datetime = type("Date", (datetime.datetime,), {"now": classmethod(lambda cls, tz=None: DATE)})
    cases = []
    for line in LINES.strip().splitlines():
        for message in CONVERSATION if re.search(r"\b[cm]\b", line) else CONVERSATION[:1]:
            cases.append((line, {"c": message["content"] or "", "m": message, "ms": CONVERSATION}))
    cases += [(template, {"ms": CONVERSATION}) for template in TEMPLATES]
    cases += [(template, {"m": CONVERSATION[0], "ms": CONVERSATION}) for template in FAILING]
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    with OUTPUT.open("w", encoding="utf-8") as out:
        for template, variables in cases:
            variables = {name: value for name, value in variables.items() if re.search(rf"\b{name}\b", template)}
            out.write(json.dumps({"template": template, "variables": variables, **expected(template, variables)}, ensure_ascii=False) + "\n")


def expected(template, variables):
    blocks, ranges = [], []
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        with compiled.environment.activate_tracker(blocks, ranges):
            for block in compiled.generate(**variables):
                blocks.append(block)
    except Exception as error:  # jinja2's and Python's
        return {"error": str(error)}
    text = "".join(blocks)
    size = lambda end: len(text[:end].encode())
    return {"text": text, "marks": [[size(begin), size(end)] for begin, end in ranges if begin < end]}


if __name__ == "__main__":
    main()
