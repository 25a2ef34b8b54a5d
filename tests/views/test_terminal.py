"""The live view of a loop, with and without a terminal, and the renderings of a run folder."""

from __future__ import annotations

import inspect
import io
import re
import shutil
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from evotrainer.errors import ConfigError
from evotrainer.executors.spec import Heartbeat, TrialSpec
from evotrainer.records.events import Judged, RunOpened, TrialFinished
from evotrainer.records.ledger import Ledger
from evotrainer.records.reading import load
from evotrainer.run.checks.base import announce_if_slow
from evotrainer.run.context import Observer
from evotrainer.views import folder as folder_views
from evotrainer.views import terminal
from evotrainer.views.fold import load_view
from evotrainer.views.folder import find_rollout
from evotrainer.views.status import render_status
from evotrainer.views.terminal import LiveView
from tests.views.conftest import ATTACK
from tests.whole_run import START, story


def spec(trial: str, seed: int) -> TrialSpec:
    return TrialSpec(
        run="r",
        trial=trial,
        branch="b1",
        seed=seed,
        purpose="branch",
        train=True,
        recipe=START,
        protocol=START,
        environment={},
        policy_dir="base",
    )


def beat(step: int, phase: str = "train") -> Heartbeat:
    return Heartbeat(pid=1, step=step, steps=30, phase=phase, cpu_s=2.7 * step, time=0.0)


def play(view: LiveView) -> None:
    """A short piece of a run."""
    view.round(1, "b0")
    view.step("trains b1")
    view.opened("b1", {"rewards": ({"visible": 1.0}, {"visible": 1.0, "robust": 1.0})})
    for step in range(0, 31, 3):
        view.trials([(spec("b1-s0", 0), beat(step)), (spec("b1-s1", 1), None)])
    view.trials([(spec("b1-s0", 0), beat(30, "evaluate search"))])
    view.budget({"cpu_s": 1200.0, "wall_s": 300.0, "trials": 4.0}, {"cpu_s": 3000.0, "trials": 30.0})
    for _, _, body in story():
        if isinstance(body, TrialFinished) and body.branch in ("b1", "b6"):
            view.finished(body)
        if isinstance(body, Judged):
            view.verdict(body.verdict)
    view.note(f"noise floor 2.6 points {ATTACK} [red]not markup[/red]")


def plain_output(tmp_path: Path) -> list[str]:
    out = io.StringIO()
    with LiveView(tmp_path / "run", Console(file=out, width=40)) as view:
        play(view)
    return out.getvalue().splitlines()


def test_it_is_the_observer_the_loop_wants() -> None:
    for name, wanted in inspect.getmembers(Observer, inspect.isfunction):
        if not name.startswith("_"):
            assert list(inspect.signature(getattr(LiveView, name)).parameters) == list(
                inspect.signature(wanted).parameters
            ), name


def test_without_a_terminal_each_event_is_one_plain_line(tmp_path: Path) -> None:
    lines = plain_output(tmp_path)
    assert all(re.match(r"\[ *\d+\.\d s\] \S", line) for line in lines)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", "".join(lines))
    text = "\n".join(lines)
    assert "round 1: champion b0" in text
    assert "step: trains b1" in text and "] b1: rewards: + robust 1" in text
    assert "b1: passed every gate: lower bound" in text
    assert "b6-s0: failed (crash): MemoryError" in text
    assert "b1-s2: complete, 1 min 23 s CPU, search split 77.8%; trial " in text
    assert "[red]not markup[/red]" in text
    assert "␛[31mred" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_shows_itself_with_the_first_thing_told_of_it(tmp_path: Path, terminal: bool) -> None:
    out = io.StringIO()
    with pytest.raises(ConfigError), LiveView(tmp_path / "mine", Console(file=out, force_terminal=terminal)):
        raise ConfigError("refused before it began")
    assert not out.getvalue()
    with LiveView(tmp_path / "mine", Console(file=out, force_terminal=terminal)) as view:
        view.note("begins")
    assert "mine" in out.getvalue().splitlines()[0]


def test_without_a_terminal_a_trial_has_a_line_when_it_has_ended_and_none_before(tmp_path: Path) -> None:
    lines = plain_output(tmp_path)
    assert not [x for x in lines if re.search(r"b1-s\d:? (train|evaluate)", x)], "steps and phases are the heartbeat's"
    assert len([x for x in lines if re.search(r"b1-s0: complete", x)]) == 1


def test_in_a_terminal_bars_budget_and_verdicts_are_live(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=110, height=50, color_system="truecolor")
    with LiveView(tmp_path / "my-run", console) as view:
        play(view)
        view.trials([(spec("b2-s0", 0), beat(12))])
        still = Console(file=io.StringIO(), force_terminal=True, width=110, color_system="truecolor")
        still.print(view._render())
        shown = re.sub(r"\x1b\[[0-9;]*m", "", still.file.getvalue())  # type: ignore[attr-defined]
    assert "evotrainer my-run" in shown
    assert "round 1" in shown
    assert "trains b1" in shown
    assert re.search(r"b1 +rewards: \+ robust 1", shown), "what the branch that trains changes"
    assert "wall time 5 min" in shown, "of earlier processes too, as `status` tells it"
    assert re.search(r"b2-s0 +train +[━╸╺ ]+ 12/30 +32 s CPU", shown)
    assert re.search(r"budget +CPU +[━╸╺ ]+ 60% left +20 min of 50 min", shown)
    assert re.search(r"b5 +✓ passed every gate +lower bound", shown)
    assert "\x1b[31mred" not in still.file.getvalue() + console.file.getvalue(), (
        "escape codes of a note reached the terminal"
    )  # type: ignore[attr-defined]


def test_trial_counts_time_left_and_each_trials_score_line_are_live(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.db", create=True).close()
    (tmp_path / "task.toml").write_text(
        "[run]\nrounds = 1\nbranches = 1\nseeds = [1, 2]\ncertify_seeds = [9]\nworkers = 1\n"
    )
    console = Console(file=io.StringIO(), force_terminal=True, width=140, height=50)
    with LiveView(tmp_path, console) as view:
        one = next(x for _, _, x in story() if isinstance(x, TrialFinished) and x.status == "complete")
        view.finished(one.model_copy(update={"trial": "b0-s1", "wall_s": 100.0, "cpu_s": 81.0, "steps": 30}))
        for step, score in ((5, 0.2), (10, 0.4), (15, 0.6)):
            view.trials([(spec("b0-s2", 0), beat(step).model_copy(update={"score": score}))])
        still = Console(file=io.StringIO(), width=140)
        still.print(view._render())
    shown = still.file.getvalue()  # type: ignore[attr-defined]
    # base, two of b0, two of b1, one fresh, base and both of b0 on cert; one is done and one half done
    assert "trial 2 of at most 9, about 7 min 30 s left" in shown, "three and a half trainings, four evaluations"
    assert re.search(r"b0-s2 .* 15/30 .* ▁▅█ 60\.0%", shown)


def test_the_plain_log_has_them_too(tmp_path: Path) -> None:
    out = io.StringIO()
    with LiveView(tmp_path, Console(file=out), plain=True) as view:
        view.budget({"cpu_s": 1200.0, "trials": 4.0}, {"cpu_s": 3000.0, "trials": 30.0})
        view.trials([(spec("b0-s2", 0), beat(15).model_copy(update={"score": 0.6}))])
        assert view._state().startswith("b0-s2 train 15/30 (training score 60.0%); trial ")
        view.trials([(spec("base", 0), beat(0).model_copy(update={"steps": 0, "phase": "evaluating search"}))])
        assert view._state().startswith("base evaluating search; "), "no 0/0 where nothing is counted"
        assert view._state().endswith("; CPU 20 min of 50 min; trials 4 of 30")


def test_a_log_that_falls_silent_is_told_what_the_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "QUIET_S", 0.05)
    out = io.StringIO()
    with LiveView(tmp_path, Console(file=out), plain=True) as view:
        view.step("proposes changes")
        time.sleep(0.3)
        view.trials([(spec("b0-s2", 0), beat(15))])
        time.sleep(0.3)
    assert "still at: proposes changes" in out.getvalue()
    assert out.getvalue().count("] b0-s2 train 15/30; trial ") >= 2, "again and again, with the time"


def test_a_check_before_the_first_step_is_named_while_it_takes_its_time(tmp_path: Path) -> None:
    with LiveView(tmp_path, Console(file=io.StringIO()), plain=True) as view:
        assert view._state() == "still at: starting"
        with announce_if_slow("reading the rows"), announce_if_slow("loading the libraries"):
            assert view._state() == "still at: loading the libraries"
        view.step("opens the run")
        assert view._state() == "still at: opens the run"


def test_a_question_gets_the_terminal_for_itself(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=40)
    with LiveView(tmp_path, console) as view:
        view.step("asks")
        assert view._live is not None
        during = []

        def ask() -> None:
            with view.paused():
                assert view._asking, "a plain log does not talk into a question"
                during.append(view._live)
                raise EOFError

        with pytest.raises(EOFError):
            ask()
        assert during == [None]
        assert view._live is not None, "the live view comes back, also after an error"
    assert view._live is None


def test_plain_can_be_asked_for_in_a_terminal(tmp_path: Path) -> None:
    out = io.StringIO()
    with LiveView(tmp_path, Console(file=out, force_terminal=True), plain=True) as view:
        view.step("1 collect rollouts")
    assert "\x1b" not in out.getvalue()
    assert "step: 1 collect rollouts" in out.getvalue()


def rendered(thing: Any) -> str:
    console = Console(file=io.StringIO(), width=140, highlight=False)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_status_of_finished_and_killed_runs(finished_run: Path, killed_run: Path) -> None:
    done = rendered(render_status(finished_run))
    assert "Ended after 3 rounds: saturated" in done
    assert "31 min" in done
    assert "2.6 points" in done
    dead = rendered(render_status(killed_run))
    assert "evotrainer resume" in re.sub(r"\s+", " ", dead)
    assert re.search(r"b1-s1 +branch +stopped train +8/30", dead)
    assert re.search(r"b1-s2 +branch +waiting", dead)
    assert re.search(r"… b3  lr: 0.0002 → 0.0004  no verdict yet", dead), "what is being trained"
    ended = sum(t.cpu_s for t in load_view(killed_run).trials if t.finished)
    assert load_view(killed_run).spent["cpu_s"] == pytest.approx(ended + 21.5), "heartbeats count"


def test_lineage_is_a_tree_with_verdicts_in_words(finished_run: Path) -> None:
    lines = rendered(render_status(finished_run)).splitlines()
    depth = {m.group(2): len(m.group(1)) for x in lines if (m := re.match(r"(\W*?)\W(base|b\d)\b", x))}
    assert depth["base"] < depth["b0"] < depth["b1"] < depth["b5"] < depth["b7"]
    assert any("b5 v2" in x and "promoted" in x and "champion" in x for x in lines)
    assert any("b4" in x and "invalid" in x for x in lines)


def test_show_a_branch_a_trial_and_a_rollout(finished_run: Path) -> None:
    branch = rendered(folder_views.render_branch(finished_run, "b4"))
    for expected in ("counterfactual audit", "did not come true", "special_casing", "✗ not passed", "token_penalty"):
        assert expected in branch
    trial = rendered(folder_views.render_trial(finished_run, "b1-s2"))
    assert "resumed" in trial
    assert "77.8%" in trial
    quote = load_view(finished_run).branches["b0"].findings[0].quotes[0]
    rollout = rendered(folder_views.render_rollout(finished_run, quote.rollout[:10]))
    assert quote.rollout in rollout
    assert "print(max(ys))" in rollout
    assert "ValueError: max() arg is an empty sequence" in rollout


def test_a_rollout_is_found_by_any_start_that_is_its_alone(finished_run: Path) -> None:
    ids = sorted(r.id for r in load(sorted((finished_run / "rollouts").iterdir()), split="search"))
    first, second = next((a, b) for a, b in pairwise(ids) if a[:4] == b[:4])
    own = next(x for a, x, b in zip(ids, ids[1:], ids[2:], strict=False) if x[:5] not in (a[:5], b[:5]))
    assert find_rollout(finished_run, own[:5]).id == own
    assert find_rollout(finished_run, first).id == first
    with pytest.raises(ConfigError, match=f"rollouts begin with {second[:4]}: give more digits"):
        find_rollout(finished_run, second[:4])


@pytest.mark.parametrize("what", ["b9", "b9-s0", "0123456789ab", "short"])
def test_an_unknown_name_is_an_error_that_says_what_there_is(finished_run: Path, what: str) -> None:
    for render in (folder_views.render_branch, folder_views.render_trial, folder_views.render_rollout):
        with pytest.raises(ConfigError, match=r"there are|rollout ids"):
            render(finished_run, what)


def test_hostile_rollouts_cannot_steer_the_terminal(hostile_run: Path) -> None:
    view = load_view(hostile_run)
    out = rendered(folder_views.render_rollout(hostile_run, view.branches["b1"].samples[0][0]))
    out += rendered(folder_views.render_branch(hostile_run, "b1"))
    assert "␛[31mred" in out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out)


def opened(tier: str, **isolation: Any) -> RunOpened:
    first = next(body for _, _, body in story() if isinstance(body, RunOpened))
    return first.model_copy(update={"sandbox_tier": tier, "environment": {"isolation": isolation}})


def test_the_sandbox_tier_is_said_and_a_weak_one_is_a_warning_that_names_what_is_missing() -> None:
    assert opened("A", promise="everything", missing=[]).isolation == "sandbox tier A: everything"
    weak = opened("C", promise="no namespaces", missing=["bwrap is not installed", "proc: BREACH"]).isolation
    assert weak == "warning: sandbox tier C: no namespaces; missing for tier A: bwrap is not installed; proc: BREACH"
    assert opened("none needed").isolation == "sandbox: none needed"
    assert "missing for tier A: see `evotrainer doctor`" in opened("B").isolation


def test_status_names_the_sandbox_once_and_the_run_by_its_folder(finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, folder := tmp_path / "moved")
    assert re.findall(r"(?m)^sandbox +(.*?) *$", rendered(render_status(folder))) == ["tier A"]
    assert re.search(rf"^run +{re.escape(str(folder))[:40]}", rendered(render_status(folder)))


def test_status_tells_why_a_failed_trial_stopped_the_run_and_the_way_on(killed_run: Path, tmp_path: Path) -> None:
    shutil.copytree(killed_run, folder := tmp_path / "run")
    (folder / "trials" / "b1-s1" / "error").write_text("reward function 'mine' failed: ZeroDivisionError")
    told = re.sub(r"\s+", " ", rendered(render_status(folder)))
    assert "Not finished: trial b1-s1 failed: reward function 'mine' failed: ZeroDivisionError" in told
    assert "fix the cause and `evotrainer resume" in told
    assert "start a new run" in told
    trial = re.sub(r"\s+", "", rendered(folder_views.render_trial(folder, "b1-s1")))
    assert "ZeroDivisionError" in trial
    assert "log.txt" in trial


def test_lines_into_a_file_are_not_broken_and_not_filled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from evotrainer.records.console import Console
    from evotrainer.views.tables import facts_grid

    monkeypatch.delenv("COLUMNS", raising=False)
    rows = [("next", "word " * 60 + "end"), ("run", "runs/x")]
    file = io.StringIO()
    Console(file=file, highlight=False).print(facts_grid(rows))
    assert file.getvalue().splitlines() == ["next  " + "word " * 60 + "end", "run   runs/x"]
    monkeypatch.setenv("COLUMNS", "60")
    Console(file=(narrow := io.StringIO()), highlight=False).print(facts_grid(rows))
    assert max(map(len, narrow.getvalue().splitlines())) <= 60, "who sets COLUMNS is obeyed"


def test_a_panel_as_wide_as_a_file_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import time

    from rich.panel import Panel

    from evotrainer.records.console import Console

    monkeypatch.delenv("COLUMNS", raising=False)
    file, began = io.StringIO(), time.process_time()
    Console(file=file).print(Panel("\n".join(["x" * 900, *(["short"] * 300)]), expand=False))
    assert len(file.getvalue().splitlines()) == 303
    assert time.process_time() - began < 1.0, "blanks inside of a line are walked once"
