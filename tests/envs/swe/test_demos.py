"""`envs.swe.demos`: demonstrations and drills, what the teacher shows, and what it never shows."""

from __future__ import annotations

import re

import pytest

from evotrainer.envs.base import EnvironmentWithDrills
from evotrainer.envs.swe import tools
from evotrainer.envs.swe.compositions import prompt_split
from evotrainer.envs.swe.demos import SweTeacher, demonstrations
from evotrainer.envs.swe.env import SweConfig, SweEnv
from evotrainer.errors import TaskSetError
from evotrainer.sandbox import Sandbox

Demo = tuple[str, ...]


@pytest.fixture(scope="module")
def demos(swe: SweEnv) -> list[Demo]:
    return swe.demonstrations(400, 3)


def _kind(d: Demo) -> str:
    return d[0].partition(":")[0]


def _issues(demos: list[Demo]) -> list[Demo]:
    return [d for d in demos if _kind(d) == "issue"]


def _pairs(d: Demo) -> list[tuple[str, str]]:
    """(action, what it printed); nothing for the last one."""
    return list(zip(d[1::2], [*d[2::2], ""], strict=True))


def _copies(d: Demo) -> bool:
    """Does an edit write a line that a commit shown before had added?"""
    added: set[str] = set()
    for action, said in _pairs(d):
        if action.startswith(("edit ", "insert ")) and action.split(" ", 3)[3] in added:
            return True
        if action.startswith("git show"):
            added |= {ln[1:].strip() for ln in said.splitlines() if ln.startswith("+")}
    return False


def test_no_issue_demonstration_copies_a_fix(swe: SweEnv, demos: list[Demo]) -> None:
    explored = [d for d in _issues(demos) if any(a.startswith("git show") for a in d[1::2])]
    assert len(explored) >= 10
    for d in explored:
        for action, said in _pairs(d):
            if action.startswith("git "):
                assert not re.search(r"\bfix\b", said), "a scrubbed history has no fix"
            if action.startswith("git show"):
                function = re.split(r"[ (]", d[0])[1]
                assert said.split("\n")[0].split()[-1] != function
    copied = [d for d in explored if _copies(d)]
    assert not copied, copied[:1]


def test_a_demonstration_that_did_copy_would_be_seen(demos: list[Demo]) -> None:
    ported = [d for d in demos if _kind(d) == "backport"]
    assert ported and all(_copies(d) for d in ported), "that is what backports are for"


def test_backports_are_another_kind_of_task_that_names_its_commit(demos: list[Demo]) -> None:
    ported = [d for d in demos if _kind(d) == "backport"]
    assert 0.18 <= len(ported) / len(demos) <= 0.32
    for d in ported:
        function = d[0].removeprefix("backport: ")
        show, said = next((a, s) for a, s in _pairs(d) if a.startswith("git show"))
        assert re.fullmatch(rf"(tweak|update|refactor) {function}", said.split("\n")[0]), (show, said)
        assert "issue" not in d[0] and "expected" not in d[0]
    assert len({next(a for a in d[1::2] if a.startswith("git show")) for d in ported}) >= 2, "not always the newest"
    assert not any("fix" in s for d in demos for s in d[2::2]), "the leak's own message is never shown"


def test_the_shares_are_as_configured(demos: list[Demo]) -> None:
    issues = _issues(demos)
    n = len(issues)
    assert 0.07 <= sum("git log" in d for d in issues) / n <= 0.18
    assert all(d[-1] == "submit" for d in demos)
    edits = [[a for a in d[1::2] if a.startswith(("edit", "insert"))] for d in issues]
    tested = [any(a == "test" for a in d[1::2][-2:]) for d in issues]
    assert 0.08 <= sum(len(e) == 2 for e in edits) / n <= 0.22, "a wrong edit, seen by a test, and the right one"
    assert all(1 <= len(e) <= 2 for e in edits)
    assert 0.25 <= sum(tested) / n <= 0.6


def test_about_one_issue_demonstration_in_six_hands_in_a_wrong_edit(swe: SweEnv, demos: list[Demo]) -> None:
    sloppy = 0
    for d in _issues(demos):
        said = [s for a, s in _pairs(d) if a == "test"]
        sloppy += not said or not re.fullmatch(r"\d+ passed", said[-1])
    assert sloppy / len(_issues(demos)) >= 0.3, "unverified submissions, right and wrong"


def test_actions_of_demonstrations_all_work(demos: list[Demo]) -> None:
    for d in demos:
        for action, said in _pairs(d):
            assert tools.parse(action).tool != "invalid", action
            assert not said.startswith("error"), (action, said)


def test_prompts_of_demonstrations_belong_to_train(demos: list[Demo]) -> None:
    assert {prompt_split(d[0]) for d in _issues(demos)} == {"train"}


def test_drills_are_right(swe: SweEnv) -> None:
    assert isinstance(swe, EnvironmentWithDrills)
    drills = swe.drills(300, 1)
    mended = applied = 0
    for d in drills:
        if d[0].startswith("write"):
            assert len(d) == 2 and d[1].startswith("1 def ")
            continue
        path, shown, edit = d[-3].removeprefix("cat "), d[-2], d[-1]
        text = "\n".join(ln.partition(" ")[2] for ln in shown.split("\n")) + "\n"
        new = tools.changed({path: text}, tools.parse(edit))
        assert isinstance(new, str)
        if d[0] == "apply":
            applied += 1
            assert tools.bare_diff({path: text}, {path: new}).split("\n")[1:] == d[2].split("\n")[2:]
        else:
            mended += 1
    assert mended == applied == 100


def test_the_long_set_demonstrates_looking_further(box: Sandbox) -> None:
    config = SweConfig(modules=4, functions=3, steps=(2, 3), indirect=0.5)
    world = SweEnv(config, open_sandbox=lambda: box).world
    demos = demonstrations(world, config.plan, SweTeacher(backport=0.0), 60, 1)
    assert max(len({a for a in d[1::2] if a.startswith("cat")}) for d in demos) >= 3


@pytest.mark.parametrize("knobs", [{}, {"visible_tests": "hidden"}])
def test_references_mend_train_repositories(swe: SweEnv, knobs: dict[str, str]) -> None:
    tasks = swe.tasks("train")[:12]
    told = swe.references(tasks, knobs)
    episodes = [swe.reset(t, knobs) for t in tasks]
    for i in range(max(len(x) // 2 for x in told if x)):
        going = [(e, x) for e, x in zip(episodes, told, strict=True) if x and not e.done]
        swe.step([e for e, _ in going], [x[2 * i + 1] for _, x in going], ["stop"] * len(going))
        assert all(e.turns[-1].text == x[2 * i + 2] for e, x in going if not e.done), "what an episode would show"
    assert all(s.outcome == "correct" for s in swe.score(episodes))
    assert not any(a.startswith("git") or (knobs and a == "test") for x in told if x for a in x[1::2])
    with pytest.raises(TaskSetError, match="only train problems"):
        swe.references(swe.tasks("search")[:1], knobs)
