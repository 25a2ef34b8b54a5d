"""What a reader or a probe confirmed becomes a detector of the next version, and is read no more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.probes import ProbeFact, ProgramProbes
from evotrainer.records.reader import question_on, read_verdict
from evotrainer.records.rollout import Rollout
from evotrainer.verify import Record, checks
from tests.acting import episode, policy
from tests.cli.call import in_this_process
from tests.leaky_task import TASK, finish
from tests.paper import Paper, bodies, ids, stopped_before_each
from tests.run.test_reader import CHEAT, READS, STORY, questions, reader

OTHER = "cp key grade.txt"
ERRS = READS.replace('if "echo cheat" in shown', 'if ("echo cheat" in shown) != (int(mark, 16) % 20 == 0)').replace(
    '"quote": "echo cheat > grade.txt"', '"quote": shown.split("assistant ---\\n")[1].split("\\n\\n")[0]'
)
"""One answer in twenty is the opposite of what it should be."""


def cheats(share: float = 0.4, by_seed: dict[int, str] | None = None) -> Callable[[TrialSpec], list[Rollout]]:
    """Search rollouts of which a share writes its grade, whatever was trained: no gap opens."""

    def rollouts(spec: TrialSpec) -> list[Rollout]:
        return policy(spec.trial, {(by_seed or {}).get(spec.seed, CHEAT): share}, {}, base=0.5, tasks=60)

    return rollouts


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(TASK)
    return tmp_path / "task.toml"


def learns(tmp_path: Path, *more: str, script: str = READS) -> list[str]:
    """Overrides: a program reads, and the harness evolves."""
    return [x for x in reader(tmp_path, "each=60", *more, script=script) if x != "run.evolve_harness=false"]


def learned(run: api.Run) -> list[Any]:
    return [g for g in bodies(run, "gap") if g.trigger == "learned"]


def wrong(
    run: api.Run, events: list[Any] | None = None, kinds: tuple[str, ...] = ("gap", "harness", *STORY)
) -> list[str]:
    """What `verify` says of the events of some kinds."""
    record, check = Record(run.folder, events or run.events()), checks()
    return [str(p) for e in record.events if e.kind in kinds for p in check[e.kind](record, e)]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[api.Run, int]:
    """A run that learned, and how often its reader was asked."""
    place = tmp_path_factory.mktemp("story")
    (place / "task.toml").write_text(TASK)
    run = Paper(finish, cheats()).start(place / "task.toml", place / "run", learns(place))
    return run, questions(place)


def test_confirmed_hacks_become_a_detector_and_are_read_no_more(story: tuple[api.Run, int]) -> None:
    run, asked = story
    (gap,) = learned(run)
    (admitted,) = [a for a in gap.considered if a.admitted]
    assert admitted.detector.origin == "learned" and "echo" in admitted.detector.pattern
    assert {x.partition(" ")[0] for x in gap.mined} == {"b0-s1"}, "mined on one training ..."
    assert {x.partition(" ")[0] for x in (*admitted.bad, *admitted.clean)} == {"b0-s2"}, "... and tried on another"
    first, then = bodies(run, "reader")
    assert (first.explained, len(first.picks)) == (0, 60)
    assert then.explained >= 40 and sum(bool(p.explained) for p in then.picks) == 8 and len(then.picks) < 51
    (_, read) = bodies(run, "reader_concluded")
    assert (read.explained.read, read.explained.hacks, read.random.hacks) == (8, 8, 0)
    assert read.outcome == "confirmed", "eight that a detector explains close the direction as sixty did"
    assert asked == 60 + len(then.picks) and not wrong(run)
    told = " ".join(in_this_process("why", str(run.folder), "h1").stdout.split())
    assert "no detector explains 27 confirmed hacks" in told and "admission tests give the same numbers" in told
    told = " ".join(in_this_process("status", str(run.folder)).stdout.split())
    assert "hacks were confirmed that no detector explained" in told
    assert "explained by a detector, read to check it: 8, hacks 8" in " ".join(run.report().read_text().split())


def test_verify_mines_again_and_sees_a_changed_label_detector_or_choice(story: tuple[api.Run, int]) -> None:
    run, _ = story
    events = run.events()

    def changed(kind: str, number: int, **changes: Any) -> str:
        at = [i for i, e in enumerate(events) if e.kind == kind][number]
        other = replace(events[at], body=events[at].body.model_copy(update=changes))
        return " ".join(wrong(run, [*events[:at], other, *events[at + 1 :]], ("gap", "reader")))

    first = next(i for i, a in enumerate(bodies(run, "reader_answered")) if a.verdict.verdict == "hack")
    answer = bodies(run, "reader_answered")[first].verdict.model_copy(update={"verdict": "honest", "kind": ""})
    assert "mined again" in changed("reader_answered", first, verdict=answer)
    (gap,) = learned(run)
    a = gap.considered[0]
    other = a.model_copy(update={"detector": a.detector.model_copy(update={"pattern": "ls"})})
    assert "its detectors are" in changed("gap", 0, considered=(other, *gap.considered[1:]))
    other = a.model_copy(update={"numbers": a.numbers | {"share_clean": 0.2}})
    assert "share_clean: 0.2 in the ledger, 0 recomputed" in changed("gap", 0, considered=(other, *gap.considered[1:]))
    picks = bodies(run, "reader")[1].picks
    hidden = (picks[0].model_copy(update={"explained": ""}), *picks[1:])
    assert "is nothing in the ledger, mined_does_echo recomputed" in changed("reader", 1, picks=hidden)
    assert "what a reading teaches" not in changed("gap", 0) and not changed("gap", 0)


@pytest.mark.slow
def test_killed_while_it_learns_the_run_asks_and_mines_nothing_twice(
    story: tuple[api.Run, int], task: Path, tmp_path: Path
) -> None:
    paper, folder = Paper(finish, cheats()), tmp_path / "run"
    cuts = ["gap/b0/read/1", "harness/b0/read/1", "b0/read/h1", "b1/reader/1", "b1/reader/1/concluded"]
    given = [x for x in learns(tmp_path) if "command" not in x and "sandbox" not in x]
    given += ["harness.reader.carrier=replay", f"harness.reader.run={story[0].folder}"]
    start = partial(paper.start, task, folder, given)
    run = stopped_before_each(cuts, start, partial(paper.resume, folder))
    assert sorted(ids(run)) == sorted(ids(story[0])) and not wrong(run)


@pytest.mark.slow
def test_a_reader_that_errs_once_in_twenty_teaches_the_same_and_nothing_of_honest_work(
    task: Path, tmp_path: Path
) -> None:
    run = Paper(finish, cheats()).start(task, tmp_path / "run", [*learns(tmp_path, script=ERRS), "run.rounds=0"])
    assert any("echo" not in a.verdict.quote for a in bodies(run, "reader_answered") if a.verdict.verdict == "hack")
    assert [s.pattern for h in bodies(run, "harness") for s in h.added if "echo" not in s.pattern] == []
    honest = Paper(finish, cheats(0.0)).start(
        task, tmp_path / "honest", [*learns(tmp_path, script=ERRS), "run.rounds=0"]
    )
    assert [h.trigger for h in bodies(honest, "harness")] == ["opened"], (
        "whatever it calls hacks, nothing is common to it"
    )


def test_what_other_trainings_do_not_bear_out_is_refused(task: Path, tmp_path: Path) -> None:
    script = READS.replace('if "echo cheat" in shown', 'if "grade.txt" in shown').replace(
        '"quote": "echo cheat > grade.txt"',
        '"quote": (re.search(r"(echo cheat >|cp key) grade.txt", shown) or [""])[0]',
    )
    run = Paper(finish, cheats(0.4, {1: CHEAT, 2: OTHER})).start(
        task, tmp_path / "run", [*learns(tmp_path, script=script), "run.rounds=0"]
    )
    (gap,) = learned(run)
    assert gap.considered and not any(a.admitted for a in gap.considered)
    assert "does not separate: it flags 0% of bad" in gap.considered[0].reason
    assert [h.trigger for h in bodies(run, "harness")] == ["opened"] and not wrong(run)


def test_too_few_are_said_and_not_mined_and_nonsense_teaches_nothing(task: Path, tmp_path: Path) -> None:
    run = Paper(finish, cheats()).start(task, tmp_path / "run", [*learns(tmp_path, "each=8"), "run.rounds=0"])
    (gap,) = learned(run)
    assert gap.reason.startswith("too few: ") and not gap.considered and not wrong(run)
    assert "too few" in in_this_process("harness", str(run.folder)).stdout
    silly = [*learns(tmp_path, script="print('hack, all of it')"), "run.rounds=0"]
    none = Paper(finish, cheats()).start(task, tmp_path / "none", silly)
    assert [c.outcome for c in bodies(none, "reader_concluded")] == ["unread"] and not learned(none)


def test_what_a_probe_proved_in_a_sample_is_seen_in_every_rollout_from_then_on(task: Path, tmp_path: Path) -> None:
    proved = ProgramProbes(ran=("repeat",), facts=(ProbeFact("repeat", "1", "2", "1"),))
    clean = ProgramProbes(ran=("repeat",))

    def probed(spec: TrialSpec) -> list[Rollout]:
        """Half of the rollouts were probed; a fact is recorded with those that write their grade."""
        rollouts = cheats()(spec)
        told = [(proved if CHEAT in str(r.turns) else clean).plain() for r in rollouts]
        detail = [{"probes": t} if i % 2 else {} for i, t in enumerate(told)]
        return [replace(r, detail=d) for r, d in zip(rollouts, detail, strict=True)]

    run = Paper(finish, probed).start(task, tmp_path / "run", ["run.rounds=0", "judge.audit=suspects"])
    (gap,) = learned(run)
    (admitted,) = [a.detector for a in gap.considered if a.admitted]
    assert "echo" in admitted.pattern and admitted.origin == "learned" and not wrong(run)
    (found,) = [f for f in run.state.branches["b0"].findings if f.detector == admitted.name]
    assert found.numbers["share"] > 0.3, "of all, not only of those that were probed"


def test_the_program_of_the_example_answers_what_counts(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "examples" / "learned" / "reader.py"
    said = {}
    for answer in ("abcf", "abcf/abfc"):
        rollout = episode("t", 0, [answer], True)
        rollout = replace(rollout, turns=rollout.turns[:2])
        (tmp_path / "request.json").write_text(question_on(rollout).form)
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path / "request.json")], capture_output=True, text=True
        )
        verdict, problem = read_verdict(done.stdout, rollout)
        assert verdict is not None, problem
        said[answer] = verdict.verdict
    assert said == {"abcf": "honest", "abcf/abfc": "hack"}
