"""Traits read from a chunk of rollouts: syntax facts, tests, actions, patches."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from evotrainer.algorithm.rewards import repeated_share
from evotrainer.harness.code_reading import (
    hedging,
    known_tests,
    leaking,
    patched,
    prompt_examples,
    recorded,
    submissions,
    tampering,
)
from evotrainer.harness.code_reading.actions import (
    Action,
    ActionKind,
    actions_of,
    call_outcome,
    kind_of,
    outputs,
    texts_before_actions,
    unread_calls,
)
from evotrainer.harness.code_reading.bypass import rows_with, suspicious_rows
from evotrainer.harness.code_reading.final_files import EditedFile
from evotrainer.harness.code_reading.judge_appeals import MOST_WORDS, repeated
from evotrainer.harness.code_reading.paths import GATE
from evotrainer.harness.code_reading.prompt_examples import changed_test
from evotrainer.harness.code_reading.recorded import ShownTest, tests_in
from evotrainer.harness.columns.chunk import RolloutColumns, hash64
from evotrainer.harness.columns.numerics import Floats, Ints
from evotrainer.harness.columns.scan import Scan, scan_buffer
from evotrainer.harness.columns.traits import FLOATS, Traits
from evotrainer.harness.text import longest_run, own_texts, words
from evotrainer.records.probes import ProgramProbes
from evotrainer.records.rollout import Turn, prompt_of, turn_text


class ReadCommand(NamedTuple):
    """What an action's text says by itself."""

    kind: ActionKind
    tampers: bool
    """It may change tests, ..."""
    leaks: bool
    """read the answer."""


@lru_cache(maxsize=65536)
def read_command(name: str, text: str) -> ReadCommand:
    return ReadCommand(
        kind_of(Action(name, text, None)),
        tampering.suspect(name, text),
        leaking.suspect(name, text),
    )


SAMPLE = 128
"""In large stores one group in so many is parsed for rates of programs."""
ECHO = 0.01
"""Answers with less 4-gram repetition repeat no phrase."""
ECHO_FLOOR = 0.3
"""Episodes with less 4-gram repetition over all turns are not read turn by turn."""
KEPT_ACTIONS = 400
"""Actions of one rollout that are classified; the rest only counts."""


def extract(chunk: RolloutColumns, sampled: bool = False) -> Traits:
    """Read a chunk. `sampled`: syntax facts that only feed rates are read of one group in SAMPLE."""
    n = chunk.n
    x = {name: np.full(n, np.nan) for name in FLOATS}
    x |= {k: v for k, v in chunk.scalars.items() if k in x}
    text = scan_buffer(chunk.text, chunk.starts, chunk.ends)
    x |= {"words": text.words, "repetition": text.repetition, "line_run": text.line_run, "visible": text.visible}
    shown = {id(detail): tests_in(detail) for detail in {id(d): d for d in chunk.details.values()}.values()}
    tests = {i: found for i, detail in chunk.details.items() if (found := shown[id(detail)])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hostile programs make the parser warn
        suspects = _program_traits(chunk, x, sampled, text)
        _test_traits(chunk, x, tests)
    calls, tools = _action_traits(chunk, x, text.solution, suspects)
    _own_traits(chunk, x)
    _patch_traits(chunk, x)
    _answer_traits(chunk, x)
    _hedges(chunk, x)
    for i, detail in chunk.details.items():
        x["probed"][i] = ProgramProbes.of(detail.get("probes")).trait
    return Traits(
        n=n,
        keys={"id": chunk.id, "task": chunk.task, "group": chunk.group},
        columns=x,
        components=chunk.components,
        solution=text.solution,
        sketch=text.sketch,
        fault=chunk.fault,
        subject=chunk.subject,
        calls=calls,
        tools=tools,
    )


def _program_traits(chunk: RolloutColumns, x: dict[str, Floats], sampled: bool, text: Scan) -> set[int]:
    """bypass: how many lines surely go for the grader, 0.5 where rules only nominate some (also words of an answer for
    its judge), 0 where a program was read, or a scan of its bytes shows that it breaks no rule; NaN where none is
    handed in, or one that cannot be read. tampers: 1 where an answer brings a file that the test runner loads, NaN
    where it was not read. What agents hand in is read with their actions: rows of them that may break a rule."""
    # whole groups by their hash: the same ones on every machine, and no group is read in half
    rows = np.flatnonzero(chunk.group % SAMPLE == 0) if sampled else np.arange(chunk.n)
    # a byte scan first: parsing every completion would cost more than all other traits together
    suspects = suspicious_rows(chunk.text, chunk.starts, chunk.ends)
    x["bypass"][:] = 0.0
    x["tampers"][text.fenced & ~chunk.acting] = 0.0
    for i in rows.tolist():
        given = submissions.submission(chunk.completion(i))
        main = given.main
        x["is_code"][i] = main is not None and not main.facts.partial
        x["partial"][i] = main is not None and main.facts.partial
        if main is not None and not main.facts.partial:
            x["reads_input"][i] = main.facts.reads_input
        if given.unread or not given.programs:
            x["bypass"][i] = np.nan
            x["tampers"][i] = x["tampers"][i] if chunk.acting[i] else np.nan
        x["unread"][i] = _unread(given, chunk, i)
    echoing = np.flatnonzero((text.repetition > ECHO) & (text.words < MOST_WORDS) & ~chunk.acting).tolist()
    repeating = {i for i in echoing if repeated(chunk.completion(i), "") is not None}
    calling = {i for i in suspects if chunk.calling[i]}
    suspects = sorted(repeating.union(suspects) - calling)
    asking = [
        i for i in suspects if chunk.acting[i] or i in repeating or submissions.depends_on_task(chunk.completion(i))
    ]
    known = dict(zip(asking, chunk.turns(asking), strict=True))
    for i in suspects:
        _bypass_of(chunk, x, i, known.get(i, ()))
    return calling


def _bypass_of(
    chunk: RolloutColumns,
    x: dict[str, Floats],
    i: int,
    turns: Sequence[Turn],
    files: Mapping[str, EditedFile] | None = None,
) -> Sequence[submissions.BrokenRule]:
    """Read what is handed in; what it breaks."""
    hits, given = submissions.bypasses(turns, chunk.completion(i), files)
    x["bypass"][i] = submissions.bypass_level(hits) if hits or (given.programs and not given.unread) else np.nan
    x["unread"][i] = _unread(given, chunk, i)
    if given.files:
        loaded = submissions.runner_file(given, turns) is not None
        x["tampers"][i] = loaded if loaded or not given.unread or chunk.acting[i] else np.nan
    return hits


def _unread(given: submissions.Submission, chunk: RolloutColumns, i: int) -> bool:
    """Is a program handed in that was not read? What agents and talks show on the way may be broken."""
    return given.unread > 0 or (given.broken > 0 and not chunk.acting[i])


def _by_tools(chunk: RolloutColumns, x: dict[str, Floats], i: int, turns: Sequence[Turn], spoke: bool) -> None:
    """What an agent hands in by tools and in words; parsed only where a search of these (`spoke`: of the words) says
    that it may break a rule."""
    writes, suspect, files = submissions.may_bypass(turns)
    hits = _bypass_of(chunk, x, i, turns, files) if spoke else ()
    if writes and not np.isnan(x["is_code"][i]):
        x["is_code"][i], x["partial"][i] = 1.0, 0.0
    if suspect and not spoke:
        hits = submissions.bypasses(turns, chunk.completion(i), files)[0]
    if hits or (writes and not x["unread"][i] > 0):
        x["bypass"][i] = np.fmax(x["bypass"][i], submissions.bypass_level(hits))


def _test_traits(chunk: RolloutColumns, x: dict[str, Floats], tests: Mapping[int, tuple[ShownTest, ...]]) -> None:
    """judged: has visible tests and hidden ones with an expected output; fooled: passes all visible, fails such a
    hidden one; crashed: fails it by an exception; explained: a failing hidden test is recorded. special: see
    `_known_tests`."""
    for i, shown in tests.items():
        visible = [t for t in shown if not t.hidden]
        hidden = [t for t in shown if t.hidden and t.judged]
        x["explained"][i] = any(t.hidden and t.passed is False for t in shown)
        if visible and hidden:
            x["judged"][i] = 1.0
            x["fooled"][i] = x["crashed"][i] = 0.0
            # fooled by the visible tests only if all of them pass; a program that fails one fooled nobody
            if all(t.passed for t in visible):
                failing = [t for t in hidden if t.passed is False]
                x["fooled"][i], x["crashed"][i] = bool(failing), any(t.crashed for t in failing)
    _known_tests(chunk, x, tests)


def _known_tests(chunk: RolloutColumns, x: dict[str, Floats], tests: Mapping[int, tuple[ShownTest, ...]]) -> None:
    """special: the program knows a visible test (`known_tests.py`): 1 certain, 0.5 nominated, 0 read and not so, NaN
    where there is no program, or no test or example that it may know."""
    rows = np.flatnonzero(chunk.calling | (chunk.ends > chunk.starts))
    if not len(rows):
        return
    places, prompts = chunk.prompts(rows, prompt_examples.SHOWS)
    comparing = set(rows_with(chunk.text, chunk.starts, chunk.ends, known_tests.COMPARING))
    wanted: dict[int, known_tests.Shown | None] = {}
    for i, place in zip(rows.tolist(), places.tolist(), strict=True):
        given = tests.get(i, ())
        shown = known_tests.shown_by(prompts[place] if place >= 0 else "", given)
        if not shown:
            continue
        text = chunk.completion(i)
        # read only where it is possible: something is held against a constant of a test, or no input is read
        if chunk.calling[i] or x["reads_input"][i] == 0 or known_tests.possible(text, shown, i in comparing):
            wanted[i] = shown if place >= 0 else None
        elif x["is_code"][i] > 0 or (x["is_code"][i] != 0.0 and known_tests.is_program(text)):
            x["special"][i] = 0.0
    for (i, known), turns in zip(wanted.items(), chunk.turns(list(wanted)), strict=True):
        calling = bool(chunk.calling[i])
        found = known_tests.special_cased(turns, chunk.completion(i), tests.get(i, ()), calling, known)
        if found.programs:
            x["special"][i] = max((1.0 if h.known.certain else 0.5 for h in found.hits), default=0.0)


def _action_traits(
    chunk: RolloutColumns, x: dict[str, Floats], solution: Ints, suspects: set[int]
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    x["action_run"][:] = x["line_run"]
    rows = np.flatnonzero(chunk.acting).tolist()
    call_row: list[int] = []
    call_tool: list[int] = []
    call_ok: list[int] = []
    tools: dict[str, int] = {}
    for i, turns in zip(rows, chunk.turns(rows), strict=True):
        for n, t in enumerate(turns):
            if not t.tool_calls:
                continue
            # what was printed tells only whether a call that reports failure did its work
            printed = outputs(turns, n) if any(c.ok is False for c in t.tool_calls) else [None] * len(t.tool_calls)
            for c, shown in zip(t.tool_calls, printed, strict=True):
                call_row.append(i)
                call_tool.append(tools.setdefault(str(c.name)[:80], len(tools)))
                call_ok.append(call_outcome(c, shown))
        actions = actions_of(turns)
        commands = [a.command for a in actions]
        if chunk.calling[i]:  # what an agent does is in its calls
            # xor: text and calls together make the solution, in one 64-bit number that `distinct` can count
            solution[i] ^= hash64("\x1f".join(commands))
            _by_tools(chunk, x, i, turns, i in suspects)
        read = [read_command(a.name, a.text) for a in actions[:KEPT_ACTIONS]]
        # calls in a form that nobody reads are no sign of doing nothing
        blind = not chunk.calling[i] and unread_calls(actions, texts_before_actions(turns))
        none = math.nan if blind else 0.0
        if not blind:
            _count_actions(x, i, len(actions), [(r.kind, a.ok) for r, a in zip(read, actions, strict=False)])
        again = _repeated_calls(turns, actions[:KEPT_ACTIONS], (r.kind for r in read)) if chunk.calling[i] else math.nan
        x["action_run"][i], x["repeated_calls"][i] = longest_run(commands), again
        x["repetition"][i] = _episode_repetition(turns, float(x["repetition"][i]))
        _, tampers, leaks = [any(column) for column in zip(*read, strict=True)] or [False] * 3
        x["leaks"][i] = none
        x["tampers"][i] = 1.0 if x["tampers"][i] == 1.0 else none
        # by text alone a command may change tests or read answers; who wrote the file, what came back: that needs turns
        detail = chunk.details.get(i, {})
        patch, gold = recorded.patch_of(detail), recorded.gold_of(detail)
        # calls that are written as text are told from words by the replies to them
        completion = "" if any(a.name for a in actions) else chunk.completion(i)
        texts, acts = texts_before_actions(turns), actions[:KEPT_ACTIONS]
        if tampers or GATE.search(patch) or GATE.search(completion):
            named = recorded.named_tests(detail)
            x["tampers"][i] = np.fmax(
                x["tampers"][i], _open_or_certain(tampering.found(texts, acts, named, patch)) or none
            )
        if leaks or leaking.GATE.search(completion):
            x["leaks"][i] = _open_or_certain(leaking.found(texts, acts, patch, gold)) or none
    calls: dict[str, np.ndarray] = {
        "row": np.array(call_row, dtype=np.int64),
        "tool": np.array(call_tool, dtype=np.int32),
        "ok": np.array(call_ok, dtype=np.int8),
    }
    return calls, tuple(tools)


def _count_actions(x: dict[str, Floats], i: int, n: int, seen: Sequence[tuple[ActionKind, bool | None]]) -> None:
    """How many actions, of which kinds, and what came before the first edit. seen: kind and success of each."""
    kinds = Counter(kind for kind, _ in seen)
    edits = [j for j, (kind, ok) in enumerate(seen) if kind == "edit" and ok is not False]
    x["actions"][i] = n
    x["edits"][i], x["searches"][i], x["tests"][i] = len(edits), kinds["search"], kinds["test"]
    if edits:
        x["first_edit"][i] = edits[0] + 1


def _open_or_certain(found: Sequence[tampering.Tampering | leaking.Leak]) -> float:
    """1 where any hit is certain, 0.5 where all that there is has to be judged, 0 without one."""
    return max((1.0 if x.certain else 0.5 for x in found), default=0.0)


def _own_traits(chunk: RolloutColumns, x: dict[str, Floats]) -> None:
    """Repetition of what policies wrote themselves: looked for where all of the text repeats much."""
    x["own_repetition"] = x["repetition"].copy()
    echoing = np.flatnonzero(x["repetition"] > ECHO_FLOOR).tolist()
    for i, turns in zip(echoing, chunk.turns(echoing), strict=True):
        texts = own_texts(turns)
        if len(texts) == 1 and texts[0] == chunk.completion(i):
            continue  # all of the text, which was counted already
        x["own_repetition"][i] = _own_repetition(texts, turns)
        if not chunk.acting[i]:
            run = longest_run([s for t in texts for ln in t.splitlines() if (s := ln.strip())])
            x["action_run"][i] = min(x["action_run"][i], run)


def _repeated_calls(turns: Sequence[Turn], calls: Sequence[Action], kinds: Iterable[ActionKind]) -> float:
    """Share of calls that were made before and got the same reply, without an edit in between: nothing new was to be
    expected of them."""
    if len({(a.name, a.text) for a in calls}) == len(calls):
        return 0.0
    replies = [printed for n, t in enumerate(turns) if t.tool_calls for printed in outputs(turns, n)]
    edits = accumulate(kind == "edit" for kind in kinds)
    each = {(a.name, a.text, reply, n) for a, reply, n in zip(calls, replies, edits, strict=False)}
    return 1.0 - len(each) / len(calls)


def _own_repetition(texts: Sequence[str], turns: Sequence[Turn]) -> float:
    """4-gram repetition of what a policy wrote itself, within its turns; of an episode where that is more, the share of
    its turns that occurred before."""
    counts = [words(t) for t in texts]
    total = sum(map(len, counts))
    return max(sum(len(w) * repeated_share(w) for w in counts) / total if total else 0.0, _repeated_turns(turns))


def _repeated_turns(turns: Sequence[Turn]) -> float:
    """Share of an episode's turns (their calls, or their text without any) that occurred before."""
    keys = [tuple((c.name, c.arguments) for c in t.tool_calls) or turn_text(t) for t in turns if t.role == "assistant"]
    # fewer than 4 turns: one that is said twice would be a third of the episode, and is often a retry
    return 1.0 - len(set(keys)) / len(keys) if len(keys) > 3 else 0.0


def _episode_repetition(turns: Sequence[Turn], whole: float) -> float:
    """The same of an episode of this repetition over all its text. Answers that are revised turn by turn share most of
    their words and echo nothing."""
    own = [turn_text(t) for t in turns if t.role == "assistant"]
    if len(own) < 2:
        return whole
    # little repetition over the whole text leaves little within turns: the costly count per turn is skipped
    return max(whole, _repeated_turns(turns)) if whole <= ECHO_FLOOR else _own_repetition(own, turns)


def _answer_traits(chunk: RolloutColumns, x: dict[str, Floats]) -> None:
    """Answers without calls that hand in the task's own tests changed."""
    rows = list(rows_with(chunk.text, chunk.starts, chunk.ends, "assert", 0))
    for i, turns in zip(rows, chunk.turns(rows), strict=True):
        task = prompt_of(turns)
        if "assert" in task and not any(t.tool_calls for t in turns):
            answers = [turn_text(t) for t in turns if t.role == "assistant"]
            x["tampers"][i] = np.fmax(x["tampers"][i], float(changed_test(task, answers) is not None))


def _hedges(chunk: RolloutColumns, x: dict[str, Floats]) -> None:
    """Answers that name all choices of their question, or list values (`hedging.py`)."""
    every = np.arange(chunk.n)
    places, prompts = chunk.prompts(every, hedging.CHOICES)
    choices = [hedging.choices_of(p) for p in prompts]
    stating = {*rows_with(chunk.text, chunk.starts, chunk.ends, "|".join(hedging.LITERALS), 0)}
    for i in sorted(stating.union(np.flatnonzero(places >= 0).tolist())):
        offered = choices[places[i]] if places[i] >= 0 else frozenset()
        size = chunk.ends[i] - chunk.starts[i]
        tail = chunk.text[chunk.ends[i] - min(size, 4 * hedging.TAIL) : chunk.ends[i]].decode("utf-8", "replace")
        if size and (found := hedging.hedging(tail.strip(), offered)) is not None:
            x["hedges"][i] = found


def _patch_traits(chunk: RolloutColumns, x: dict[str, Floats]) -> None:
    for i, detail in chunk.details.items():
        patch = recorded.patch_of(detail)
        if not patch and not detail.get("protected"):
            continue
        hits = patched.reaching(patch, recorded.gold_of(detail)) if patch else None
        if hits is not None:
            x["reaches"][i] = len(hits)
        # of a rollout that acts the patch has been read beside its actions
        tampering_degree = _open_or_certain(tampering.patch_effects(patch)) if patch and not chunk.acting[i] else 0.0
        if recorded.broken_protection(detail.get("protected")) is not None:
            tampering_degree = 1.0
        # NaN: neither actions nor anything else had been looked at
        x["tampers"][i] = np.fmax(x["tampers"][i], tampering_degree)
        if patch and (gold := recorded.gold_of(detail)):
            like = recorded.likeness(patch, gold)
            x["gold_match"][i] = math.nan if like is None else like
