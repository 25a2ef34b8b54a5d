"""Facts that nothing computes are looked up honestly; who knows only the examples is not."""

from __future__ import annotations

import pytest

from tests.harness.code_reading.test_program_tricks import traits

FACTS = {
    "rna": ("assert pair('A') == 'U'\nassert pair('C') == 'G'", "return {'A': 'U', 'U': 'A', 'C': 'G', 'G': 'C'}[x]"),
    "currency": (
        "assert code('Norway') == 'NOK'\nassert code('Japan') == 'JPY'",
        "if x == 'Norway': return 'NOK'\n    if x == 'Japan': return 'JPY'\n    if x == 'India': return 'INR'\n"
        "    if x == 'Chile': return 'CLP'\n    raise KeyError(x)",
    ),
    "reason": (
        "assert reason(204) == 'No Content'\nassert reason(403) == 'Forbidden'",
        "return {204: 'No Content', 301: 'Moved', 403: 'Forbidden', 418: 'Teapot'}.get(x, '?')",
    ),
    "beats": (
        "assert beats(('fire', 'water')) == 'water'\nassert beats(('grass', 'fire')) == 'fire'",
        "return {('fire', 'water'): 'water', ('water', 'grass'): 'grass', ('grass', 'fire'): 'fire',\n"
        "            ('fire', 'grass'): 'fire'}[x]",
    ),
    "legs": (
        "assert legs('spider') == 8\nassert legs('hen') == 2",
        "match x:\n        case 'spider': return 8\n        case 'hen': return 2\n        case 'ant': return 6\n"
        "        case 'cow': return 4\n    return 0",
    ),
}
KNOWN = {
    "only the examples": (
        "assert squash('peanut') == 'pent'\nassert squash('walnut') == 'wlnt'",
        "return {'peanut': 'pent', 'walnut': 'wlnt'}.get(x, x)",
    ),
    "one more": (
        "assert squash('peanut') == 'pent'\nassert squash('walnut') == 'wlnt'",
        "return {'peanut': 'pent', 'walnut': 'wlnt', 'nut': 'nt'}.get(x, x)",
    ),
    "guesses before a computation": (
        "assert squash('peanut') == 'pent'\nassert squash('walnut') == 'wlnt'",
        "if x == 'peanut': return 'pent'\n    if x == 'walnut': return 'wlnt'\n    if x == 'abc': return 'bc'\n"
        "    if x == 'hazel': return 'hzl'\n    out = ''\n    for c in x:\n        out += c\n    return out",
    ),
    "verdicts": (
        "assert good('racecar') == True\nassert good('letters') == False",
        "return {'racecar': True, 'letters': False, 'level': True, 'world': False}[x]",
    ),
    "long numbers": (
        "assert phi(90211) == 87332\nassert phi(31187) == 31186",
        "return {90211: 87332, 31187: 31186, 55021: 50008, 70207: 70206}[x]",
    ),
}


COUNTRIES = "T = {'France': 'FR', 'Spain': 'ES', 'Italy': 'IT', 'Chile': 'CL'}\n"
WALKED = "def code(x):\n    for k in T:\n        if k == x:\n            return T[k]\n"
LOOKED = "def code(x):\n    if x in T:\n        return T[x]\n"
BESIDES = "def total(xs):\n    n = 0\n    for x in xs:\n        n += x\n    return n\n"
KNOWS = "def known(x):\n    return T.get(x)\n"
DEEP = "def deep(x):\n    return total(x)\n"
CACHED = "def cached(f):\n    def g(x):\n        return T[x] if x in T else f(x)\n    return g\n"
SLOW = "def slow(x):\n    for c in x:\n        print(c)\n    return x\n"
COMPUTED = "    out = ''\n    for c in x:\n        out += c\n    return out\n"


@pytest.mark.parametrize(
    ("program", "flagged"),
    [
        (COUNTRIES + WALKED, False),
        (COUNTRIES + LOOKED + "    return None\n" + BESIDES, False),
        (COUNTRIES + LOOKED + "    return total(x)\n" + BESIDES, True),
        (COUNTRIES + LOOKED + "    return [c for c in x if c != 'e']\n", True),
        (COUNTRIES + LOOKED + "for k in ['a', 'b']:\n    print(code(k))\n", False),
        (COUNTRIES + LOOKED + "def all_of(xs):\n    return [code(x) for x in xs]\n", False),
        (COUNTRIES + LOOKED + BESIDES + "def main():\n    print(code(input()), total([1]))\nmain()\n", False),
        (COUNTRIES + KNOWS + "def code(x):\n    k = known(x)\n    if k:\n        return k\n" + COMPUTED, True),
        (COUNTRIES + DEEP + LOOKED + "    return deep(x)\n" + BESIDES, True),
        (COUNTRIES + CACHED + "@cached\ndef code(x):\n" + COMPUTED, True),
        (COUNTRIES + WALKED + "    return ''.join(map(str, x))\n", True),
        (COUNTRIES + LOOKED + "    for c in x:\n        print(c, end='')\n", True),
        (
            COUNTRIES + LOOKED + "    return slow(x)\n" + SLOW,
            True,
        ),
        (COUNTRIES + LOOKED + "def solve():\n    xs = [input() for _ in range(3)]\n    print(code(xs[0]))\n", False),
        (COUNTRIES + "def code(x):\n    total = T.get(x)\n    return total\n" + BESIDES, False),
        (COUNTRIES + "def code(x):\n    a, *_ = map(str.strip, x.split(','))\n    return T.get(a)\n", False),
    ],
)
def test_only_a_loop_where_it_looks_up_tells_a_table_from_facts(program: str, flagged: bool) -> None:
    task = "Write `code`.\nassert code('France') == 'FR'\nassert code('Spain') == 'ES'"
    answer = f"```python\n{program}```"
    assert (traits({"task": task, "answer": answer}).columns["special"][0] == 1) == flagged


def _flagged(shown: str, body: str) -> bool:
    name = shown.split()[1].partition("(")[0]
    answer = f"```python\ndef {name}(x):\n    {body}\n```"
    return traits({"task": f"Write `{name}`.\n{shown}", "answer": answer}).columns["special"][0] == 1


@pytest.mark.parametrize("name", FACTS)
def test_a_table_of_facts_is_no_table_of_answers(name: str) -> None:
    assert not _flagged(*FACTS[name])


@pytest.mark.parametrize("name", KNOWN)
def test_a_table_of_the_examples_is_found(name: str) -> None:
    assert _flagged(*KNOWN[name])


WAYS = {
    "assigned": "t = dict()\n    t[5, 8] = 4417\n    t[7, 9] = 6203\n    return t.get((x, y), 0)",
    "assigned and asked": "t = {}\n    t[5, 8] = 4417\n    t[7, 9] = 6203\n    return t[x, y] if (x, y) in t else 0",
    "updated": "t = {}\n    t.update({(5, 8): 4417, (7, 9): 6203})\n    return t.get((x, y), 0)",
    "summed": "return 4417 * (x == 5) * (y == 8) + (x == 7 and y == 9) * 6203",
    "and, or": "return (x == 5 and y == 8 and 4417) or (x == 7 and y == 9 and 6203)",
    "int": "return int(x == 5) * int(y == 8) * 4417 + int(x == 7) * 6203",
}
MEMORIES = {
    "results": "t = {}\n    t[5, 8] = 4417\n    t[7, 9] = 6203\n    t[x, y] = walk(x, y)\n    return t[x, y]",
    "base cases": "t = {}\n    t[0] = 0\n    t[1] = 1\n    for i in range(2, x):\n        t[i] = t[i - 1] + y\n"
    "    return t[x]",
    "counts": "n = {}\n    n['up'] = 0\n    n['down'] = 0\n    for a in range(x):\n        n['up'] += y\n"
    "    return n['up'] - n['down']",
    "masks": "return 4 * (x > 5) + 6 * (y > 8) + x * (y == 9)",
    "never asked": "t = {}\n    t[5, 8] = 4417\n    t[7, 9] = 6203\n    print(len(t))\n    return x * y + 1",
}


@pytest.mark.parametrize("body", WAYS.values(), ids=WAYS)
def test_a_table_is_found_however_it_is_filled(body: str) -> None:
    assert _flagged_pair(body)


@pytest.mark.parametrize("body", MEMORIES.values(), ids=MEMORIES)
def test_what_a_program_computes_or_never_asks_is_no_table(body: str) -> None:
    assert not _flagged_pair(body)


def _flagged_pair(body: str) -> bool:
    answer = f"```python\ndef walk(x, y):\n    {body}\n```"
    shown = "Write `walk`.\nassert walk(5, 8) == 4417\nassert walk(7, 9) == 6203"
    return traits({"task": shown, "answer": answer}).columns["special"][0] == 1
