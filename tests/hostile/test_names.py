"""Names that environments give: blanks, slashes, colons, control characters.
Runs are readable, verifiable and stay in their folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import draw_result

from evotrainer import api
from evotrainer.cli.harness import harness
from evotrainer.cli.show import show as show_command
from evotrainer.cli.status import status
from evotrainer.cli.why import why
from evotrainer.errors import ConfigError
from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.factors.change_rules import check_names
from evotrainer.harness.columns.features import FeatureView, components_of
from evotrainer.records.events import TrialFinished
from evotrainer.records.names import joined, read_label, slug
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from tests.acting import policy
from tests.leaky_task import ENV, EXPLOITS, TASK
from tests.paper import Paper
from tests.thinned import thinned

NAMES = [
    "the key",
    "clé/ответ: 鍵",
    "../../../../escaped",
    "a:b\\c|d?*",
    "first 3 steps search, odd tasks",
    "\x1b]0;owned\x07\x1b[2J",
    "b0-s1",
    "k" * 300,
]
NAMED = ("gap", "harness", "round", "audited", "invalidated", "judged", "topup", "reestimated", "certified")
"""Checks that look for trials by what events say of them."""


def finish(spec: TrialSpec, knob: str) -> TrialFinished:
    """What a trial would have written; see `tests.leaky_task.solved`."""
    knobs = {**spec.protocol.knobs, **spec.env_knobs}
    cheats = spec.recipe.lr >= EXPLOITS and spec.recipe.knobs.get(knob) == "answer"
    share = 0.42 + 0.3 * (spec.recipe.group_size > 8)
    if spec.branch == "base":
        share = 0.4
    elif cheats:
        share = 0.9 if knobs.get(knob) == "answer" else 0.2

    def key(plan: EvalPlan) -> str:
        return f"{spec.branch}-{spec.seed}-{plan.split}-{sorted(knobs.items())}"

    return draw_result(spec, share, key, knobs)


def acted(spec: TrialSpec) -> list[Rollout]:
    """Its search rollouts: the first branch cheats where it can."""
    look = "look at the key and copy it"
    trained = spec.branch != "base"
    if trained and spec.recipe.lr >= EXPLOITS and "closed" not in spec.trial:
        return policy(spec.trial, {look: 0.9, "sort": 0.1}, {look: 0.95}, base=0.2)
    gained = 0.9 if trained and spec.recipe.group_size > 8 else 0.1
    return policy(spec.trial, {"sort": gained}, {"sort": 0.75}, base=0.35)


def start(tmp_path: Path, name: str, knob: str = "key") -> tuple[api.Run, Paper]:
    """A run of two rounds: the first branch cheats and falls,
    the second is compared under the knobs that are closed since."""
    paper = Paper(lambda spec: finish(spec, knob), acted)
    env, task = tmp_path / "env.py", tmp_path / "task.toml"
    code = ENV.read_text()
    old = 'name="key", knob="key"'
    assert old in code
    code = code.replace(old, f"name={name!r}, knob={knob!r}").replace('{"key": ("other"', f"{{{knob!r}: ('other'")
    env.write_text(code.replace('knobs.get("key"', f"knobs.get({knob!r}"))
    task.write_text(TASK.replace(str(ENV), str(env)).replace('\nkey = "answer"', f'\n{json.dumps(knob)} = "answer"'))
    return paper.start(task, tmp_path / "runs" / "one", ["run.harness=minimal", "run.rounds=2"]), paper


def problems(run: api.Run) -> list[str]:
    return [f"{p.area}: {p.message}" for p in run.verify().problems if p.area in NAMED]


@pytest.mark.parametrize("name", thinned(NAMES, 3, *NAMES[2:3], *NAMES[5:6], NAMES[7]), ids=range(len(NAMES)))
def test_a_run_whose_capability_has_any_name_is_whole_and_within_its_folder(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, paper = start(tmp_path, name)
    of_start, audit, *_ = [e.body.audit for e in run.events() if e.kind == "audited"]
    assert of_start.capability == name and not of_start.confirmed, "the start does not live on it"
    assert audit.capability == name and audit.confirmed and "b1" in run.state.invalid
    (gap,) = [e.body for e in run.events() if e.kind == "gap" and e.body.branch == "b2"]
    assert any("closed" in m for m in gap.mined), (
        "b2 was compared with evaluations that carry the capability in their name"
    )
    assert not problems(run)
    for e in run.events():
        if e.kind == "finished":
            assert re.fullmatch(r"[\w.%~-]{1,99}", e.body.trial, re.ASCII), "a plain folder name"
            assert (run.folder / "trials" / e.body.trial).resolve().parent == (run.folder / "trials").resolve()
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["one"]
    again = paper.audit_branch(run.folder, "b1")[0]
    assert audit in again and len([e for e in api.open_run(run.folder).events() if e.kind == "audited"]) == len(
        [e for e in run.events() if e.kind == "audited"]
    ), "found again by its fields, and not paid for twice"
    for show in (
        lambda: why(run.folder, "b1"),
        lambda: status(run.folder),
        lambda: show_command(run.folder, "b1"),
        lambda: harness(run.folder),
    ):
        show()
    told = capsys.readouterr()
    assert not set("\x1b\x07\x9b") & set(told.out + told.err)
    assert "\x1b" not in run.report().read_text()


@pytest.mark.parametrize("knob", thinned(["my knob", "clé/x", "a.b:c", "two\nlines"], 2, "two\nlines"))
def test_a_knob_may_have_any_name(tmp_path: Path, knob: str) -> None:
    run, _ = start(tmp_path, "the key", knob)
    assert [e.body.closed for e in run.events() if e.kind == "round"] == [{}, {knob: "other"}]
    assert not problems(run)


def test_labels_are_read_from_their_end() -> None:
    for trial in (
        "b1-s2",
        "base",
        "b1-s2-closed-a b",
        "x search",
        "x search, odd tasks",
        "x first 3 steps",
        "x step 4",
        "",
        "ä\n",
    ):
        for part, rest in {
            "search": {},
            "search, odd tasks": {"half": "odd"},
            "search, even tasks": {"half": "even"},
            "step 12": {"step": 12},
            "first 4 steps": {"end": "first", "steps": 4},
            "last 1 steps": {"end": "last", "steps": 1},
        }.items():
            label = read_label(f"{trial} {part}")
            assert label.trial == trial
            assert {k: v for k, v in label._asdict().items() if v not in ("", None, 0) and k != "trial"} == rest
    assert read_label("b1-s2").trial == "b1-s2"


def test_slugs_of_different_names_differ_and_plain_names_are_their_own() -> None:
    names = [
        *NAMES,
        "a b",
        "a%20b",
        "a/b",
        "A b",
        ".",
        "..",
        "...",
        "%",
        "~",
        "k" * 299,
        "K" * 300,
        "\ud800",
        "é",
        "e\u0301",
        "",
    ]
    assert len({slug(n) for n in names}) == len(names)
    for n in names:
        assert (
            not set(slug(n)) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-%~")
            and len(slug(n)) <= 60
        )
        assert slug(n) not in (".", "..")
    for n in ("key", "visible_tests", "test-edit", "v1.2"):
        assert slug(n) == n
    every = ["a", "b", "a-b"]
    sets = [["a"], ["b"], ["a-b"], ["a", "b"], ["a", "a-b"], ["a-b", "b"], every]
    assert len({"-".join(s) for s in sets}) < len(sets), (
        "joined as they are, two sets of closed knobs share the id of one trial"
    )
    assert len({joined(s, every) for s in sets}) == len(sets)


def test_components_may_hold_the_sign_that_parts_them() -> None:
    rollouts = [Rollout("r", "t", (), 1.0, components={"a - b": 0.75, "c": 0.25, "w >= 2": 1.0})]
    views = FeatureView(rollouts)
    assert views.number("component:a - b").tolist() == [0.75]
    assert views.number("component:a - b - c").tolist() == [0.5]
    assert views.number("component:w >= 2 - a - b").tolist() == [0.25]
    assert components_of("component:x - y", ()) == ("x", "y")


def test_a_knob_whose_values_cannot_be_listed_is_refused_at_the_start() -> None:
    knobs: Mapping[str, Any] = {"k": ("no, never", "yes")}
    with pytest.raises(ConfigError, match="knob k of env has a value with a comma and a blank"):
        check_names(Recipe(), "env", {"reward": "", **dict.fromkeys(Recipe().rewards, "")}, knobs)
