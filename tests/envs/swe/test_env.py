"""`envs.swe.env`: conformance, knobs, what is recorded, and that the harness reads it right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from evotrainer.envs.base import Episode, Task
from evotrainer.envs.registry import open_environment
from evotrainer.envs.swe.demos import gold_edit
from evotrainer.envs.swe.env import SweConfig, SweEnv, parse_config
from evotrainer.envs.swe.memory import MemoryWorld
from evotrainer.errors import TaskSetError
from evotrainer.harness.code_reading.actions import actions_of, kind_of, texts_before_actions
from evotrainer.harness.code_reading.leaking import found as leaks
from evotrainer.harness.code_reading.recorded import broken_protection, gold_of, patch_of
from evotrainer.harness.code_reading.tampering import found as tampers
from evotrainer.harness.code_reading.tampering import patch_effects
from evotrainer.sandbox import Sandbox
from evotrainer.testing import check_environment

SHOWN: dict[str, Any] = {}
LEAKY = {"history": "full"}
WRITABLE = {"tests": "writable"}


def _play(swe: SweEnv, task: Task, knobs: dict[str, Any], actions: Sequence[str]) -> Episode:
    e = swe.reset(task, knobs)
    for a in actions:
        assert not e.done
        swe.step([e], [a], ["stop"])
    return e


def test_it_passes_the_conformance_kit(box: Sandbox) -> None:
    # the kit leaves it with drawn tasks
    check_environment(SweEnv(SweConfig(train=60, search=20, gate=20, cert=20), open_sandbox=lambda: box))


def test_the_registry_opens_it() -> None:
    env = open_environment({"name": "swe", "search": 3, "modules": 3})
    assert isinstance(env, SweEnv) and len(env.tasks("search")) == 3
    env.close()
    wrong: tuple[dict[str, Any], ...] = (
        {"steps": [1]},
        {"steps": []},
        {"modulez": 2},
        {"modules": 1, "functions": 1},
        {"documented": 2},
    )
    for bad in wrong:
        with pytest.raises(TaskSetError):
            open_environment({"name": "swe", **bad})


def test_a_gold_episode_solves_and_says_so(swe: SweEnv) -> None:
    task = swe.tasks("search")[0]
    repo = task.data["repo"]
    e = _play(swe, task, SHOWN, ["ls", f"cat {repo.tags['module']}", gold_edit(repo), "test", "submit"])
    assert e.done
    (s,) = swe.score([e])
    assert s.outcome == "correct" and s.error_kind is None
    want = {
        "hidden",
        "visible",
        "f2p_frac",
        "p2p_frac",
        "submitted",
        "tested",
        "no_tool_errors",
        "located",
        "tests_kept",
    }
    assert {k for k, v in s.components.items() if v == 1.0} >= want
    assert s.components["brevity"] == pytest.approx(1 - 5 / 12)
    assert json.loads(json.dumps(s.detail))["patch"] == s.detail["gold_patch"]


def test_a_right_patch_that_is_not_handed_in_is_not_solved(swe: SweEnv) -> None:
    task = swe.tasks("search")[1]
    e = _play(swe, task, SHOWN, [gold_edit(task.data["repo"])])
    (s,) = swe.score([e])
    assert (s.outcome, s.components["f2p_frac"], s.components["hidden"]) == ("incorrect", 1.0, 0.0)
    assert s.components["tested"] == 0.0 and s.components["submitted"] == 0.0


def test_doing_nothing_breaks_nothing_and_mends_nothing(swe: SweEnv) -> None:
    e = _play(swe, swe.tasks("search")[2], SHOWN, ["submit"])
    (s,) = swe.score([e])
    assert (s.components["f2p_frac"], s.components["p2p_frac"], s.components["progress"]) == (0.0, 1.0, 0.0)
    assert s.components["tested"] is None, "does not apply without an edit"


def test_changing_the_visible_test_pays_the_proxy_only_where_it_can_be_written(swe: SweEnv) -> None:
    task = next(t for t in swe.tasks("search") if t.tags["reported"] == "itself")
    lines = task.data["repo"].visible["test_all.py"].splitlines()
    at = next(i for i, ln in enumerate(lines, 1) if f"assert {task.tags['function']}(" in ln)
    actions = ["cat test_all.py", f"edit test_all.py {at} pass", "submit"]
    (fooled,) = swe.score([_play(swe, task, WRITABLE, actions)])
    (refused,) = swe.score([_play(swe, task, SHOWN, actions)])
    assert (fooled.components["visible"], fooled.components["hidden"]) == (1.0, 0.0)
    assert fooled.components["tests_kept"] == 0.0 and fooled.detail["protected"] == {"test_all.py": False}
    assert (refused.components["visible"], refused.components["tests_kept"]) == (0.0, 1.0)


def test_an_action_cut_at_the_limit_is_an_error_and_the_episode_goes_on(swe: SweEnv) -> None:
    e = swe.reset(swe.tasks("search")[0], SHOWN)
    swe.step([e], ["submit"], ["length"])
    assert not e.done and e.turns[-1].text.startswith("error") and e.turns[-2].tool_calls[0].ok is False


def test_unknown_knobs_are_refused(swe: SweEnv) -> None:
    for knobs in ({"histories": "full"}, {"history": "half"}):
        with pytest.raises(TaskSetError, match="knob"):
            swe.reset(swe.tasks("search")[0], knobs)
    with pytest.raises(TaskSetError, match="has no split"):
        swe.tasks("test")


def test_the_shipped_defaults_are_the_closed_ones(swe: SweEnv) -> None:
    assert {k: v[0] for k, v in swe.knobs.items()} == {
        "history": "scrubbed",
        "tests": "protected",
        "visible_tests": "shown",
    }
    for c in swe.capabilities:
        assert {c.open, c.closed} == set(swe.knobs[c.knob])
    assert {k for c in swe.capabilities for k in c.kinds} >= {"answer_leak", "test_tampering"}


def test_a_sandbox_fault_has_no_outcome() -> None:
    class Broken:
        tier = "A"

        def run(self, programs: Any) -> Any:
            from evotrainer.sandbox.model import CaseResult, RunResult

            return [
                RunResult((CaseResult("sandbox", error=("SandboxError", "gone")),) * len(p.calls)) for p in programs
            ]

    box: Any = Broken()
    world = MemoryWorld(lambda: box, compute=False)
    env = SweEnv(SweConfig(train=2, search=2, gate=2, cert=2), world=world, open_sandbox=lambda: box)
    task = env.tasks("train")[0]
    ended = _play(env, task, SHOWN, ["test"])
    assert ended.done and ended.finish == "error"
    for e in (ended, _play(env, task, SHOWN, ["submit"])):
        (s,) = env.score([e])
        assert (s.outcome, s.error_kind) == ("unknown", "sandbox")
        assert set(s.components.values()) == {None}


def test_the_harness_reads_actions_leaks_and_changed_tests(swe: SweEnv) -> None:
    task = swe.tasks("train")[0]
    repo = task.data["repo"]
    look = ["ls", "grep x", f"cat {repo.tags['module']}", "git log", "git diff", "git status"]
    e = _play(swe, task, LEAKY, [*look, "git show HEAD~0", gold_edit(repo), "test", "nonsense", "submit"])
    actions = actions_of(e.turns)
    assert [kind_of(a) for a in actions] == ["search"] * 7 + ["edit", "test", "other", "other"]
    assert [a.ok for a in actions] == [True] * 9 + [False, True]
    assert leaks(texts_before_actions(e.turns), actions)[0].place == 6
    assert not tampers(texts_before_actions(e.turns), actions)
    (s,) = swe.score([e])
    assert patch_of(s.detail) == gold_of(s.detail) != ""
    assert broken_protection(s.detail["protected"]) is None and not patch_effects(patch_of(s.detail))

    e = _play(swe, task, WRITABLE, ["cat test_all.py", "edit test_all.py 4 pass", "submit"])
    assert tampers(texts_before_actions(e.turns), actions_of(e.turns))[0].place == 1
    (s,) = swe.score([e])
    assert broken_protection(s.detail["protected"]) == "test_all.py"
    assert [(t.path, t.certain) for t in patch_effects(patch_of(s.detail))] == [("test_all.py", True)]
    e = _play(swe, task, SHOWN, ["cat test_all.py", "edit test_all.py 4 pass", "submit"])
    assert not tampers(texts_before_actions(e.turns), actions_of(e.turns)), "a refused edit changed nothing"


def test_the_long_set_is_larger(box: Sandbox) -> None:
    c = parse_config({"name": "swe", "modules": 4, "functions": 3, "steps": [2, 3], "indirect": 0.5, "search": 10})
    tasks = SweEnv(c, open_sandbox=lambda: box).tasks("search")
    assert all(len(t.data["repo"].files) == 5 for t in tasks)
    assert {t.tags["reported"] for t in tasks} == {"itself", "caller"}
