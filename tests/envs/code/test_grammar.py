"""`envs.code.grammar`: every variant means what its phrase says, every mistake is a mistake,
checked by running them.
"""

from __future__ import annotations

import re
from itertools import chain

import pytest

from evotrainer.envs.code.grammar import OPENINGS, REDUCERS, printed, program_text, result_variants, spec_text
from evotrainer.envs.code.ops import OPS, Ints, ListOp
from evotrainer.sandbox import Call, Program, Sandbox

INPUTS: tuple[Ints, ...] = (
    [],
    [7],
    [-4],
    [3, -9, 8, 8, 0, 5],
    [-2, -7, -2, -3],
    [20, 1, 14, 6, 6, -1, 9, 2],
    [4, 4, 4],
    [0, 12],
    [9, 5, 3, 2, 1, -8],
    [1, 0, -3, 2],
)


def constant(op: ListOp) -> int:
    return op.constants[0] + 1 if op.constants else 0


def outputs(box: Sandbox, sources: list[str]) -> list[list[object]]:
    """Values of `solve` on INPUTS; None where it raised."""
    results = box.run([Program(s, calls=[Call("solve", (list(x),)) for x in INPUTS]) for s in sources])
    assert not any(r.faulty for r in results)
    return [[c.value if c.ok else None for c in r.cases] for r in results]


def op_programs(kind: str) -> list[tuple[str, int, str]]:
    return [
        (o.name, constant(o), program_text("function", [v.replace("{k}", str(constant(o)))], "xs"))
        for o in OPS.values()
        for v in getattr(o, kind)
    ]


def test_the_grammar_is_as_wide_as_promised() -> None:
    assert len(OPS) >= 26
    assert len(REDUCERS) >= 8
    for x in chain(OPS.values(), REDUCERS.values()):
        assert len(x.phrases) >= 2, x.name
        assert len(x.variants) >= 2, x.name


def test_a_phrase_never_means_two_things() -> None:
    heads = [re.sub(r"\d+", "#", p.replace("{k}", "7")) for o in OPS.values() for p in o.phrases]
    assert len(heads) == len(set(heads))
    results = [p for r in REDUCERS.values() for p in r.phrases]
    assert len(results) == len(set(results))


def test_every_variant_of_every_operation_does_what_its_reference_does(box: Sandbox) -> None:
    programs = op_programs("variants")
    for (name, k, source), got in zip(programs, outputs(box, [p[2] for p in programs]), strict=True):
        assert got == [OPS[name].apply(list(x), k) for x in INPUTS], source


def test_every_slip_is_wrong_on_an_ordinary_input(box: Sandbox) -> None:
    programs = op_programs("slips")
    assert len(programs) > 20
    for (name, k, source), got in zip(programs, outputs(box, [p[2] for p in programs]), strict=True):
        right = [OPS[name].apply(list(x), k) for x in INPUTS]
        assert any(g != r for g, r, x in zip(got, right, INPUTS, strict=True) if len(x) > 2), source


def test_an_unguarded_step_fails_on_the_empty_list_and_nowhere_else(box: Sandbox) -> None:
    programs = op_programs("unguarded")
    assert len(programs) >= 5
    for (name, k, source), got in zip(programs, outputs(box, [p[2] for p in programs]), strict=True):
        assert got[0] is None, source
        assert got[1:] == [OPS[name].apply(list(x), k) for x in INPUTS[1:]], source


def reducer_programs(kind: str) -> list[tuple[str, str]]:
    return [(r.name, program_text("function", [], e)) for r in REDUCERS.values() for e in getattr(r, kind)]


def test_every_variant_of_every_result_is_right(box: Sandbox) -> None:
    programs = reducer_programs("variants")
    for (name, source), got in zip(programs, outputs(box, [s for _, s in programs]), strict=True):
        assert got == [REDUCERS[name].value(list(x)) for x in INPUTS], source


def test_every_unguarded_result_fails_only_where_items_are_missing(box: Sandbox) -> None:
    programs = reducer_programs("unguarded")
    assert len({name for name, _ in programs}) >= 6
    for (name, source), got in zip(programs, outputs(box, [s for _, s in programs]), strict=True):
        right = [REDUCERS[name].value(list(x)) for x in INPUTS]
        wrong = [x for x, g, r in zip(INPUTS, got, right, strict=True) if g != r]
        assert wrong, source
        assert all(len(x) < 2 for x in wrong), source


def test_the_printed_form_agrees_with_the_returned_one(box: Sandbox) -> None:
    cases = [(r, e) for r in REDUCERS.values() for e in result_variants(r, "stdin")]
    lines = [" ".join(map(str, x)) + "\n" for x in INPUTS]
    results = box.run([Program(program_text("stdin", [], e), stdins=lines) for _, e in cases])
    for (r, e), result in zip(cases, results, strict=True):
        got = [(c.stdout or "").rstrip("\n") for c in result.cases]
        assert got == [printed(r.value(list(x))) for x in INPUTS], e


@pytest.mark.parametrize("form", OPENINGS)
def test_a_specification_reads_as_one_sentence(form: str) -> None:
    text = spec_text(form, ["square each", "reverse the list"], "the sum")
    assert text.endswith("; square each; reverse the list; " + ("print" if form == "stdin" else "return") + " the sum.")
