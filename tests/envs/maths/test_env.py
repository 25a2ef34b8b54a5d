"""`envs.maths.env`: held-out templates and difficulties, true workings, rewards that measure what they say."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
import subprocess
import sys

import pytest

pytest.importorskip("reasoning_gym", reason="needs pip install 'evotrainer[math]'")

from evotrainer.envs import open_environment
from evotrainer.envs.base import SPLITS, Task
from evotrainer.envs.maths import gym, holdout, open_math, stories
from evotrainer.envs.maths.demos import CAREFUL, MathsTeacher, demonstrate
from evotrainer.envs.maths.env import MathEnv
from evotrainer.envs.maths.expressions import equations, evaluate
from evotrainer.envs.maths.holdout import GENERATORS
from evotrainer.envs.maths.problems import MathsProblem, level_of
from evotrainer.errors import MissingDependencyError, TaskSetError
from evotrainer.testing import check_environment

HELD_OUT = ("search", "gate", "cert")
PINNED = "9c58290f69908229"
"""Content of the default task set: a change of it needs a new version of its generator, or of TASKS_VERSION."""


@pytest.fixture(scope="module")
def env() -> MathEnv:
    return open_math({"name": "math"})


@pytest.fixture(scope="module")
def demos(env: MathEnv) -> list[tuple[str, str]]:
    return [(p, c) for p, c in env.demonstrations(3000, seed=0)]


def drawn(name: str, n: int, seed: int = 0) -> list[MathsProblem]:
    return list(itertools.islice(GENERATORS[name].problems(random.Random(seed)), n))


def content_hash(env: MathEnv) -> str:
    """16 hex digits over every task's id, prompt and answer."""
    text = json.dumps([[s, t.id, t.prompt, t.data["answer"]] for s in sorted(SPLITS) for t in env.tasks(s)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sum_task(expression: str, answer: str) -> Task:
    return Task("t", "train", expression, {"generator": "chain_sum", "answer": answer, "steps": [], "entry": {}})


def test_it_passes_the_conformance_kit() -> None:
    check_environment(open_math({"name": "math"}))  # the kit leaves it with drawn tasks


def test_the_default_task_set_is_what_its_versions_say(env: MathEnv) -> None:
    assert content_hash(env) == PINNED
    again = open_environment({"name": "math"})
    assert again.describe()["hash"] == env.describe()["hash"]
    other = open_math({"name": "math", "seed": 1})
    assert other.describe()["hash"] != env.describe()["hash"]
    assert {t.prompt for t in other.tasks("search")} != {t.prompt for t in env.tasks("search")}


def test_no_held_out_problem_is_trained_on_or_shown(env: MathEnv, demos: list[tuple[str, str]]) -> None:
    trained = {t.prompt for t in env.tasks("train")} | {p for p, _ in demos}
    questions = {t.data["question"] for t in env.tasks("train")}
    seen: set[str] = set()
    for split in HELD_OUT:
        prompts = [t.prompt for t in env.tasks(split)]
        assert len(set(prompts)) == len(prompts)
        assert not set(prompts) & trained
        assert not {t.data["question"] for t in env.tasks(split)} & questions
        assert not set(prompts) & seen
        seen |= set(prompts)


def worked(told: list[str], kinds: list[str]) -> list[str]:
    """Equations of a story, from its text and the kinds of its events."""
    total, steps = int(re.findall(r"\d+", told[0])[0]), []
    signs = {"get": "+", "give": "-", "bags": "+", "boxes": "-", "times": "*", "half": "/", "piles": "/"}
    for text, kind in zip(told[1:], kinds, strict=True):
        n = [int(x) for x in re.findall(r"\d+", text)] or [2]
        if len(n) == 2:
            steps.append(f"{n[0]}*{n[1]}={n[0] * n[1]}")
        by = n[0] if len(n) == 1 else n[0] * n[1]
        new = evaluate(f"{total}{signs[kind]}{by}")
        steps.append(f"{total}{signs[kind]}{by}={new}")
        total = int(new or 0)
    return steps


def classified(prompt: str) -> MathsProblem:
    """Generator, template and level read from the text alone."""
    q = prompt.removesuffix(holdout.ASK)
    if m := re.search(r"problem: (.*) =$", q):
        return gym.CHAIN_SUM.classify({"metadata": {"expression": m[1]}, "question": q, "answer": ""})
    if m := re.search(r"numbers: (\d+), (\d+)\. Give", q):
        return gym.GCD.classify({"metadata": {"numbers": [int(m[1]), int(m[2])]}, "question": q, "answer": ""})
    if m := re.search(r"(?:equation: |^Solve for \w: |satisfies: )(.*)$", q):
        left, right = m[1].split(" = ")
        level = next((i for i, b in enumerate(gym.EQUATION_BOUNDS, 1) if abs(int(right)) <= b), 9)
        form = gym._linear(left)
        assert form is not None
        return MathsProblem("equation", q, "", (), f"{form[0]}:{q.split()[0]}", level)
    if " has " in q and "How many" in q:
        told = q.split(". How many")[0].split("; ")[1:]
        shapes = {re.sub(r"\{\w\}", "N", p): e.kind for e in stories.EVENTS.values() for p in e.phrases}
        kinds = [shapes[re.sub(r"\d+", "N", t)] for t in told]
        steps = worked(q.split(". How many")[0].split("; "), kinds)
        return MathsProblem("story", q, "", (), ">".join(kinds), level_of(steps, stories.BOUNDS))
    values = sorted(map(int, re.findall(r"\d+", re.search(r"numbers:? ((?:\d+, )+\d+)", q)[1])))  # type: ignore[index]
    target = int(re.search(r"(?:equals|make|Calculate) (\d+)", q)[1])  # type: ignore[index]
    kinds = {ops for _, ops, value in gym.expressions(tuple(values)) if value == target}
    assert kinds
    return MathsProblem("countdown", q, "", (), "|".join(sorted(kinds)), len(values) - 1)


def test_held_out_templates_and_difficulties_never_occur_in_training(
    env: MathEnv, demos: list[tuple[str, str]]
) -> None:
    shown = {t.prompt for t in env.tasks("train")} | {p for p, _ in demos}
    for prompt in shown:
        p = classified(prompt)
        assert holdout.held(p) == (False, False), prompt
    for split in HELD_OUT:
        for t in env.tasks(split):
            p = classified(t.prompt)
            template, level = holdout.held(p)
            assert template or level, t.prompt
            assert t.tags["heldout"] == ("both" if template and level else "template" if template else "level")
            assert (p.template, str(p.level)) == (t.tags["template"], t.tags["level"])


def test_every_held_out_split_has_both_kinds_of_every_generator(env: MathEnv) -> None:
    for split in HELD_OUT:
        tasks = env.tasks(split)
        assert len(tasks) == env.describe()["splits"][split]
        for name, g in GENERATORS.items():
            kinds = {t.tags["heldout"] for t in tasks if t.tags["generator"] == name}
            for kind in g.held_by:
                assert kind in kinds, (split, name, kinds)


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_reference_workings_are_true_and_lead_to_the_answer(name: str) -> None:
    for p in drawn(name, 300):
        assert p.steps
        for step in p.steps:
            left, right = step.rsplit("=", 1)
            assert evaluate(left) == evaluate(right), (p.question, step)
        assert GENERATORS[name].correct(p.answer, p.answer, p.entry)
        wrong = str(evaluate(p.answer) + 1)  # type: ignore[operator]
        assert not GENERATORS[name].correct(wrong, p.answer, p.entry)
        if name not in ("gcd", "countdown"):
            assert p.steps[-1].rsplit("=", 1)[1] == p.answer


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_the_same_seed_draws_the_same_problems(name: str) -> None:
    """And another seed draws others: what the two have in common is chance, not the same problems in another order."""
    first, other = drawn(name, 40, 3), drawn(name, 40, 4)
    assert drawn(name, 40, 3) == first
    assert len({p.question for p in first} & {p.question for p in other}) <= 6


def test_our_countdown_is_worded_and_scored_as_reasoning_gyms() -> None:
    data = gym._dataset("countdown", (("max_numbers", 4), ("min_numbers", 3)))
    wordings = set()
    for i in range(12):
        item = data[i]
        m = item["metadata"]
        shown = ", ".join(map(str, m["numbers"]))
        match = [w for w in gym.WORDINGS if w.format(numbers=shown, target=m["target"]) + gym.RULES == item["question"]]
        assert match, item["question"]
        wordings |= set(match)
    assert wordings == set(gym.WORDINGS)
    c = gym.Countdown()
    entry = {"numbers": [3, 5, 7], "target": 26}
    assert c.correct("3*7+5", "", entry)
    assert c.correct("5 + (7 * 3)", "", entry)
    for wrong in ("26", "3*7", "3*7+5+0", "7*3+6", "", "__import__('os')", "3*7+5=26"):
        assert not c.correct(wrong, "", entry), wrong


def test_a_quarter_of_the_pairs_of_events_is_held_out() -> None:
    assert len(stories.HELD_PAIRS) == len(stories.EVENTS) ** 2 // 4
    firsts = {a for a, _ in stories.HELD_PAIRS}
    assert len(firsts) > 3
    assert all(any((k, x) not in stories.HELD_PAIRS for x in stories.EVENTS) for k in stories.EVENTS)


def test_the_teacher_is_mixed_as_asked() -> None:
    rng = random.Random(0)
    problems = [p for n in GENERATORS for p in drawn(n, 400)]
    for p in problems:
        text = demonstrate(p, CAREFUL, rng)
        assert all(e.true for e in equations(text)), text
        assert GENERATORS[p.generator].correct(text.rpartition("#### ")[2], p.answer, p.entry), text
    texts = [(p, demonstrate(p, MathsTeacher(direct=0.5, slip=0.3), rng)) for p in problems]
    direct = sum(t.startswith("####") for _, t in texts) / len(texts)
    assert 0.45 < direct < 0.55
    false = sum(any(e.true is False for e in equations(t)) for _, t in texts) / len(texts)
    assert 0.08 < false < 0.2
    wrong = sum(not GENERATORS[p.generator].correct(t.rpartition("#### ")[2], p.answer, p.entry) for p, t in texts)
    assert 0.08 < wrong / len(texts) < 0.2


def test_drills_are_true_facts_and_true_workings(env: MathEnv) -> None:
    facts = workings = 0
    held_out = {t.prompt for s in HELD_OUT for t in env.tasks(s)}
    for drill in env.drills(400, seed=1):
        assert len(drill) % 2 == 0
        for question, answer in zip(drill[::2], drill[1::2], strict=True):
            if question.endswith(holdout.ASK):
                workings += 1
                assert question not in held_out and "####" in answer
                assert holdout.held(classified(question)) == (False, False)
                assert all(e.true for e in equations(answer)) and equations(answer)
                continue
            facts += 1
            assert re.fullmatch(r"-?\d+[-+*/%]\d+=", question), question
            assert evaluate(question.removesuffix("=")) == evaluate(answer), (question, answer)
            assert abs(int(answer)) <= 99
    assert (facts, workings) == (1600, 400)


def test_facts_are_not_held_out_and_problems_are(env: MathEnv) -> None:
    """What docs/domains/math.md says of the drills behind the shipped base policy; facts do not depend on the mix."""

    def pairs(source: MathEnv, n: int) -> list[tuple[str, str]]:
        return [p for drill in source.drills(n, seed=0) for p in zip(drill[::2], drill[1::2], strict=True)]

    quick = open_math({"name": "math", "mix": {"gcd": 1.0}})
    facts = {q + a for q, a in pairs(quick, 24_000) if not q.endswith(holdout.ASK)}
    problems = {q for q, _ in pairs(env, 1500) if q.endswith(holdout.ASK)}
    assert all(holdout.held(classified(q)) == (False, False) for q in problems)
    known = {}
    for split in HELD_OUT:
        tasks = env.tasks(split)
        assert not problems & {t.prompt for t in tasks}
        covered = [t for t in tasks if set(t.data["steps"]) <= facts]
        assert {t.tags["generator"] for t in tasks if t not in covered} == {"countdown"} or split != "search"
        known[split] = (len(covered), sum(len(t.data["steps"]) == 1 for t in covered))
    assert known == {"search": (190, 14), "gate": (284, 17), "cert": (380, 21)}


def test_the_vocabulary_is_the_checked_in_one(env: MathEnv, demos: list[tuple[str, str]]) -> None:
    from evotrainer.trainers.embedded.tokenizer import build_tokenizer

    assert {str(n) for n in range(10, 100)} <= set(env.vocabulary())
    tokenizer = build_tokenizer(env.vocabulary(), "math-v1")
    for prompt, completion in demos[:300]:
        for text in (prompt, completion):
            assert tokenizer.decode(tokenizer.encode(text)) == text
        assert len(tokenizer.encode(prompt)) < 40
    strings = [tokenizer.strings[i] for i in tokenizer.encode("12+7=19\n#### 19")]
    assert strings == ["12", "+", "7", "=", "19", "\n", "#### ", "19"]


def test_bad_options_name_cause_and_remedy() -> None:
    with pytest.raises(
        TaskSetError, match=r"environment\.mix has no generator 'algebra'; give shares of chain_sum, gcd"
    ):
        open_math({"name": "math", "mix": {"algebra": 1.0}})
    with pytest.raises(TaskSetError, match=r"environment\.mix has no generator in it; give shares"):
        open_math({"name": "math", "mix": {}})
    for share in (0, -0.5):
        with pytest.raises(
            TaskSetError, match=r"^environment\.mix\.gcd is .*above 0; to leave gcd out, give .* without it"
        ):
            open_math({"name": "math", "mix": {"gcd": share, "story": 1}})
    with pytest.raises(TaskSetError, match=r"serch.*did you mean search"):
        open_math({"name": "math", "serch": 10})
    with pytest.raises(TaskSetError, match=r"gcd has no more than \d+ new problems.*lower"):
        open_math({"name": "math", "search": 5000, "mix": {"gcd": 1.0}}).tasks("search")
    with pytest.raises(TaskSetError, match="no split 'test'; it has: train"):
        open_math({"name": "math"}).tasks("test")
    env = open_math({"name": "math"})
    with pytest.raises(TaskSetError, match="no knob 'tools'"):
        env.reset(sum_task("1 + 1 =", "2"), {"tools": True})


def test_a_missing_library_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(MissingDependencyError, match=r"pip install -e '.*\[math\]'"):
        open_math({"name": "math"})


def test_opening_imports_no_heavy_library() -> None:
    code = (
        "import sys; from evotrainer.envs.maths import open_math; open_math({'name': 'math'}).describe();"
        "print([m for m in ('reasoning_gym', 'math_verify', 'sympy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_references_are_right_workings_of_train_problems(env: MathEnv) -> None:
    tasks = env.tasks("train")[:60]
    told = env.references(tasks, {})
    episodes = [env.reset(t, {}) for t in tasks]
    assert [text for text in told if text] == told and [x[0] for x in told if x] == [e.turns[0].text for e in episodes]
    env.step(episodes, [x[1] for x in told if x], ["stop"] * 60)
    assert all(s.outcome == "correct" for s in env.score(episodes))
    with pytest.raises(TaskSetError, match="of split search; only train problems have references"):
        env.references(env.tasks("search")[:1], {})


def test_other_wordings_are_the_same_problems_and_never_a_held_out_form(env: MathEnv) -> None:
    rng, changed = random.Random(3), {}
    for task in env.tasks("train")[:600]:
        other, name = env.reworded(task, rng), task.tags["generator"]
        changed[name] = changed.get(name, 0) + (other.prompt != task.prompt)
        assert (other.id, other.tags, other.data["answer"]) == (task.id, task.tags, task.data["answer"])
        assert other.prompt == holdout.prompt(other.data["question"])
        if name == "equation":
            form, word = task.tags["template"].partition(":")[0], other.prompt.split()[0]
            assert f"{form}:{word}" not in gym.HELD_EQUATIONS
        if name != "countdown":  # its numbers stand in the wording's order
            assert sorted(re.findall(r"\d+", other.prompt)) == sorted(re.findall(r"\d+", task.prompt))
        episode = env.reset(other, {})
        env.step([episode], [env.source.working(other) or ""], ["stop"])
        assert env.score([episode])[0].outcome == "correct"
    assert changed.pop("chain_sum") == 0 and min(changed.values()) > 0
    stories = [t for t in env.tasks("train") if t.tags["generator"] == "story"][:50]
    assert any(env.reworded(t, rng).prompt.split()[0] != t.prompt.split()[0] for t in stories)
    with pytest.raises(TaskSetError, match="only train problems"):
        env.reworded(env.tasks("search")[0], rng)
