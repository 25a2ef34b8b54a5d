"""A script that knows nothing of us is trained by: its files in, its files out, whatever it does wrong."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evotrainer.config.load import load_task
from evotrainer.errors import FaultsError, TrainerError
from evotrainer.executors.cache import with_cache
from evotrainer.trainers.base import EvalRequest, Identity, installed
from evotrainer.trainers.bases import noted
from evotrainer.trainers.command.options import parse
from evotrainer.trainers.command.outputs import Signs, curve_of
from tests.trainers.command.own import RECIPE, Trained, options

ROW = '{"step": 1, "reward": 0.5}'


def test_a_script_trains_and_what_it_wrote_is_read(base: Path, tmp_path: Path) -> None:
    t = Trained(options(), base, tmp_path)
    assert [row["step"] for row in t.rows] == [1, 2, 3] == [row["step"] for row in t.result.curve]
    assert t.rows[2]["loss"] == pytest.approx(1 / 3), "what the script logs"
    assert t.rows[0]["reward"] == pytest.approx(sum(r.reward or 0 for r in t.rollouts[:16]) / 16)
    assert len(t.rollouts) == 48 and len({r.id for r in t.rollouts}) == 48
    first = t.rollouts[0]
    assert (first.run, first.branch, first.seed, first.split, first.policy) == ("r", "b1", 1, "train", "b1/1@0")
    assert re.fullmatch(r"train-\d+", first.task), "known by its prompt"
    right = {t.id: t.data["gold"] for t in t.env.tasks("train")}
    for r in t.rollouts:
        assert (r.outcome == "correct") == (r.completion == right[r.task]), "the environment says what is correct"
        assert r.components["digits"] == pytest.approx(r.reward)
    assert t.result.policy_dir == tmp_path / "policy" and t.sha != t.trainer.policy_sha256(base)
    request = json.loads((tmp_path / "command" / "request.json").read_text())
    assert request["recipe"]["lr"] == 1e-3 and request["trial"] == "b1-s1" and request["purpose"] == "train"
    tasks = [json.loads(x) for x in (tmp_path / "command" / "tasks.jsonl").read_text().splitlines()]
    assert {x["task"] for x in tasks} == set(right) and "data" not in tasks[0], "answers stay here"


def test_steps_may_have_another_name(base: Path, tmp_path: Path) -> None:
    own = options()
    own["command"] += ["--step-name", "iter"]
    t = Trained(own, base, tmp_path)
    assert [row["step"] for row in t.rows] == [1, 2, 3] and {r.step for r in t.rollouts} == {1, 2, 3}
    assert Signs(tmp_path / "command" / "out", parse(own)).step() == (3, pytest.approx(t.rows[2]["reward"]))


def test_a_step_that_was_not_seen_took_until_the_next_and_the_last_until_the_end() -> None:
    rows = curve_of([{"step": n} for n in (1, 2, 3)], {}, cast(Any, SimpleNamespace(recipe=RECIPE)), {2: 4.5, 3: 5}, 7)
    assert [row["cpu_s"] for row in rows] == [4.5, 4.5, 7]


def test_the_files_of_trls_script_tell_its_step(tmp_path: Path) -> None:
    (tmp_path / "completions").mkdir()
    for n in (2, 10):
        (tmp_path / "completions" / f"completions_{n:05d}.parquet").touch()
    assert Signs(tmp_path, parse(options(rollouts="completions"))).step() == (10, None)


def test_the_seed_decides_and_a_training_that_ended_is_not_made_again(base: Path, tmp_path: Path) -> None:
    first, same, other = (Trained(options(), base, tmp_path / n, seed=s) for n, s in (("a", 1), ("b", 1), ("c", 2)))
    assert first.sha == same.sha != other.sha
    (tmp_path / "a" / "command" / "out" / "mine").touch()
    again = Trained(options("fails"), base, tmp_path / "a")
    assert again.sha == first.sha and again.result.resumed and (tmp_path / "a" / "command" / "out" / "mine").exists()
    assert [r.id for r in again.rollouts] == [r.id for r in first.rollouts]


def test_its_policy_is_evaluated_by_us(base: Path, tmp_path: Path) -> None:
    t = Trained(options(), base, tmp_path)
    asked = EvalRequest(Identity("r", "b1", 1), RECIPE, t.result.policy_dir, "gate", 3, attempts=2, tasks=5)
    groups = t.trainer.evaluate(asked, t.env, lambda _: None)
    assert [len(g) for g in groups] == [2] * 5 and {r.split for g in groups for r in g} == {"gate"}
    assert not [p for p in (tmp_path / "command").rglob("*") if p.is_file() and b"gate-" in p.read_bytes()]


@pytest.mark.parametrize(
    ("does", "error", "says"),
    [
        ("saves no policy", FaultsError, "exit code 0 and left no policy .*; have it save one"),
        ("fails", TrainerError, "failed: exit code 1; it printed last: CUDA out of memory; see .*log.txt"),
    ],
)
def test_a_bad_end_is_told_with_the_remedy(
    does: str, error: type[Exception], says: str, base: Path, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says):
        Trained(options(does), base, tmp_path)
    assert Trained(options(), base, tmp_path).rollouts, "mended, it goes on"


@pytest.mark.parametrize("does", ["hangs", "ignores SIGTERM"])
def test_one_that_hangs_is_ended(does: str, base: Path, tmp_path: Path) -> None:
    with pytest.raises(
        FaultsError, match=r"no sign \(a new row of metrics or rollouts\) for .* hung, ended; see .*log.txt"
    ):
        Trained(options(does, patience_s=2, grace_s=0.3), base, tmp_path)
    assert "waiting for a server" in (tmp_path / "command" / "log.txt").read_text()
    assert not processes(tmp_path)


def test_what_it_leaves_behind_is_ended_and_told(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Trained(options("leaves children"), base, tmp_path).rollouts
    assert "left 1 process behind" in capsys.readouterr().out
    assert not processes(tmp_path, "time.sleep(600)")


@pytest.mark.slow
def test_a_million_lines_fill_neither_memory_nor_disk(base: Path, tmp_path: Path) -> None:
    assert Trained(options("prints", log_bytes=10_000), base, tmp_path).rollouts
    log = tmp_path / "command" / "log.txt"
    text = log.read_text()
    assert log.stat().st_size < 21_000 and not log.with_name("log.txt.end").exists()
    assert text.startswith("line 0\n") and "line 999999" in text and "bytes are left out" in text


def test_half_a_line_is_told_and_costs_nothing_else(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t = Trained(options("writes half a line"), base, tmp_path)
    assert len(t.rollouts) == 48 and [row["step"] for row in t.rows] == [1, 2, 3]
    assert re.search(r"note: .*rollouts.jsonl.*49", capsys.readouterr().out)


def test_one_that_is_killed_goes_on_from_its_checkpoint_or_anew(base: Path, tmp_path: Path) -> None:
    whole = Trained(options(), base, tmp_path / "whole")
    kept = {"checkpoint": "checkpoints/step-*", "resume": "--resume {checkpoint}"}
    goes_on = Trained(options("is killed", **kept), base, tmp_path / "on")
    assert goes_on.result.resumed and goes_on.sha == whole.sha
    assert [(r.task, r.completion) for r in goes_on.rollouts] == [(r.task, r.completion) for r in whole.rollouts]
    with pytest.raises(TrainerError, match="signal 9 ended it, each of 3 times"):
        Trained(options("is killed"), base, tmp_path / "anew")


def test_rollouts_that_nobody_can_read_are_a_fault_and_none_may_be_declared(base: Path, tmp_path: Path) -> None:
    with pytest.raises(FaultsError, match="without rollouts that can be read in .*/nowhere; .*docs/importers.md"):
        Trained(options(rollouts="nowhere"), base, tmp_path / "a")
    none = Trained(options(rollouts=""), base, tmp_path / "b")
    assert not none.rollouts and none.rows[0]["reward"] > 0
    without = Trained(options(metrics=""), base, tmp_path / "c")
    assert [row["step"] for row in without.rows] == [1, 2, 3] and "loss" not in without.rows[0]
    with pytest.raises(FaultsError, match="neither rollouts nor metrics"):
        Trained(options(metrics="", rollouts=""), base, tmp_path / "d")


def test_steps_are_told_while_they_are_made(base: Path, tmp_path: Path) -> None:
    own = options()
    own["command"] = [*own["command"], "--pause", "0.5"]
    assert {1, 2} <= set(Trained(own, base, tmp_path).watched)


def test_what_is_no_program_is_named(base: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="cannot start no-such: No such file .*correct trainer.options.command"):
        Trained(options(command=["no-such", "--x"]), base, tmp_path)


def processes(work: Path, words: str = "own_script.py") -> list[str]:
    """Command lines of the processes of a training."""
    found: list[Any] = []
    for p in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = p.read_bytes().replace(b"\0", b" ").decode()
            marked = str(work).encode() in (p.parent / "environ").read_bytes() or str(work) in line
        except OSError:
            continue
        if words in line and int(p.parent.name) != os.getpid() and (marked or words != "own_script.py"):
            found.append(line)
    return found


@pytest.mark.skipif(not installed("peft"), reason="needs peft")
@pytest.mark.parametrize("by", ["embedded", "trl"])
def test_adapters_are_a_policy_upon_the_one_they_began_with(by: str, base: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, target_modules=["q_proj"]))
    model.save_pretrained(tmp_path / "adapters")
    shell = f"mkdir -p {{out}} && cp -r {tmp_path}/adapters {{out}}/policy && echo '{ROW}' > {{out}}/metrics.jsonl"
    own = options(command=["sh", "-c", shell], rollouts="", evaluation={"by": by})
    t = Trained(own, base, tmp_path / "run")
    policy = t.result.policy_dir
    assert noted(policy)[0] == str(base) and (policy / "tokenizer.json").is_file()
    assert not (policy / "model.safetensors").exists() and not (policy / "README.md").exists()
    asked = EvalRequest(Identity("r", "b1", 1), RECIPE, policy, "search", 1, attempts=1, tasks=3)
    assert len(t.trainer.evaluate(asked, t.env, lambda _: None)) == 3
    assert [row["step"] for row in t.rows] == [1]


def test_its_trials_do_not_come_from_the_cache(tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[3] / "examples" / "command" / "task.toml"
    executor: Any = object()
    assert with_cache(executor, tmp_path, load_task(example, [f"run.cache={tmp_path}"]), print) is executor
    embedded = load_task(example, [f"run.cache={tmp_path}", "trainer.name=embedded", "trainer.options={}"])
    assert with_cache(executor, tmp_path, embedded, print) is not executor
