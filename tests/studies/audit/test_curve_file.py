"""A learning curve alone: the log of a training in each form that people have, under each trainer's names."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import ConfigError
from evotrainer.studies.audit import audit
from evotrainer.studies.audit.curve_file import Curve, columns_of, read_curves
from evotrainer.studies.audit.text import audit_json, render_audit
from tests.envs.helpers import jsonl as write
from tests.studies.audit.test_fault_columns import Say, say

__all__ = ["say"]

CURVE = [
    (i, 0.2 + 0.015 * i + random.Random(i).gauss(0, 0.005), 0.3 + random.Random(-i).gauss(0, 0.005)) for i in range(40)
]


def one(path: Path) -> Curve:
    (curve,) = read_curves(path)
    return curve


def text(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "json", "pretty", "columns", "log_history", "wandb"])
def test_a_learning_curve_alone_is_read(tmp_path: Path, form: str) -> None:
    rows = [{"Step": s, "reward": r, "outcome": o, "note": "x"} for s, r, o in CURVE]
    if form in ("csv", "tsv"):
        sep = "," if form == "csv" else "\t"
        path = tmp_path / f"c.{form}"
        path.write_text(sep.join(rows[0]) + "\n" + "".join(sep.join(map(str, r.values())) + "\n" for r in rows))
    elif form == "wandb":  # as its charts are exported: the run before each name, its extremes beside it
        path = tmp_path / "wandb_export.csv"
        names = [f"calm-sea-3 - {n}{x}" for n in ("train/reward", "eval/accuracy") for x in ("", "__MIN", "__MAX")]
        lines = [",".join(map(str, (s, r, r - 1, r + 1, o, 0, 1))) for s, r, o in CURVE]
        path.write_text("\n".join([",".join(["Step", *names]), *lines]))
    elif form == "jsonl":
        path = write(tmp_path / "c.jsonl", rows)
    else:
        path = tmp_path / "c.json"
        split = [{k: v for k, v in r.items() if k in ("Step", part)} for r in rows for part in ("reward", "outcome")]
        columns = {k: [r[k] for r in rows] for k in rows[0]}
        value = {"columns": columns, "log_history": {"best_metric": None, "log_history": split}}.get(form, rows)
        path.write_text(json.dumps(value, indent=None if form == "json" else 2))
    found = one(path)
    assert len(found.rows) == 40 and found.skipped == ()
    assert found.rows[3] == pytest.approx({"step": 3, "reward": CURVE[3][1], "score": CURVE[3][2]})
    done = audit([path])
    (s,) = done.sources
    assert (s.format, s.rollouts, done.unknown) == ("curve", 0, ())
    assert {f.detector for f in s.readings[0].health.findings if not f.missing} == {"proxy_slopes"}


def test_what_is_no_curve_stays_unknown(tmp_path: Path, say: Say) -> None:
    for name, content in (
        ("a.csv", "a,b\n1,2\n3,4\n"),
        ("b.csv", "step,reward\n1,0.5\n"),
        ("c.csv", "step,reward\n1,x\n2,y\n3,0.1\n"),
        ("d.csv", ""),
        ("f.json", '[{"reward": 1, "q": "a"}, {"reward": 0, "q": "b"}]'),  # rewards of what? no step, no training
        ("g.log", "step one of two\n{'a': {'b': \n12%|##  | 3/30 [00:01<00:10, 2.1it/s]\r"),
    ):
        path = tmp_path / name
        path.write_text(content)
        assert read_curves(path) == []
        code, out = say(path)
        assert code == ConfigError.exit_code and "could be read" in out
    torn = text(tmp_path / "h.csv", "step,reward,outcome", "1,0.1,0.1", "2,0.2,0.2", "3,,", "4,0.4,0.4")
    (s,) = audit([torn]).sources
    assert [x.where for x in s.skipped] == [f"{torn} row 4"] and len(s.readings[0].curve) == 3


def test_words_in_a_number_s_place_are_told_and_nan_is_counted(tmp_path: Path) -> None:
    found = one(text(tmp_path / "c.csv", "step,reward,kl", "1,.2,.3", "2,n/a,.3", "3,.4,nan", "4,.5,inf", "5,.5,"))
    assert [s.reason for s in found.skipped] == ["1 value of reward no number: 'n/a' in row 3"]
    (reward, kl) = found.table()
    assert (reward["steps"], reward["not_finite"], kl["steps"], kl["not_finite"]) == (4, 0, 2, 2)
    assert all(set(r) <= {"step", "reward", "kl"} for r in found.finite) and "kl" not in found.finite[3]


def test_a_log_without_a_step_is_numbered_and_one_without_a_number_there_is_skipped(tmp_path: Path) -> None:
    rows = [f"{1 / i},{i / 20}" for i in range(1, 10)]
    plain = one(text(tmp_path / "plain.csv", "loss,reward", *rows))
    assert [r["step"] for r in plain.rows] == [float(i) for i in range(1, 10)] and plain.notes == ()
    torn = [*(f"{i},{row}" for i, row in enumerate(rows)), "nan,1,1", "inf,2,2"]
    found = one(text(tmp_path / "torn.csv", "step,loss,reward", *torn))
    assert (found.rows[-1]["step"], len(found.rows), len(found.skipped)) == (8.0, 9, 2)


def test_a_file_over_which_the_reader_of_curves_stumbles_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "odd.jsonl", [{"step": i, "reward": 0.5} for i in range(5)])
    monkeypatch.setattr("evotrainer.studies.audit.curve_file._by_step", lambda rows: [][1])
    assert [s.where for s in audit([path]).unknown] == [str(path)]


def test_null_after_numbers_is_a_number_that_could_not_be_written(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"step": i, "reward": 0.5, "grad_norm": 1.0 if i < 9 else None} for i in range(14)]
    (bad,) = [t for t in one(write(tmp_path / "a.jsonl", rows)).table() if t["key"] == "grad_norm"]
    assert (bad["steps"], bad["not_finite"]) == (9, 5)
    # an evaluation is not made at every step, and its column is empty at the others
    rows = [{"step": i, "reward": 0.5, "eval/reward": 0.4 if i % 10 == 0 else None} for i in range(25)]
    (plain,) = [t for t in one(write(tmp_path / "b.jsonl", rows)).table() if t["column"] == "eval/reward"]
    assert (plain["steps"], plain["not_finite"]) == (3, 0)


def test_what_trl_prints_is_read_between_progress_bars(tmp_path: Path) -> None:
    told = "{'loss': '0.01', 'grad_norm': %s, 'reward': %s, 'rewards/exact/mean': tensor(0.5), 'epoch': 0.0%d}"
    lines = ["  0%|          | 0/9 [00:00<?, ?it/s]\r" + told % ("nan", f"'{0.1 * i}'", i // 2) for i in range(1, 7)]
    path = text(tmp_path / "train.log", "loading {unfinished", *lines, "{'eval_reward': 0.25, 'epoch': 0.03}",
                "{'train_runtime': 12.0, 'train_loss': 0.01, 'epoch': 0.03}")  # fmt: skip
    found = one(path)
    assert [r["step"] for r in found.rows] == [1, 2, 3, 4, 5, 6]  # epochs repeat: rows in their order
    assert found.rows[-1]["eval/eval_reward"] == 0.25 and found.rows[0]["reward"] == pytest.approx(0.1)
    assert found.rows[0]["rewards/exact/mean"] == 0.5 and found.rows[0]["grad_norm"] != found.rows[0]["grad_norm"]


def test_verl_s_console_and_file_logger_are_read(tmp_path: Path) -> None:
    values = "critic/score/mean:0.{0} - actor/grad_norm:np.float64(1.5) - val-core/maths/acc/mean@1:0.4"
    lines = [f"(TaskRunner pid=31) step:{i} - " + values.format(i) for i in range(1, 5)]
    console = one(text(tmp_path / "verl.log", "Step 1 of the setup: done", *lines))
    file = one(write(tmp_path / "m.jsonl", [
        {"step": i, "data": {"critic/score/mean": i / 10, "actor/grad_norm": 1.5, "val-core/maths/acc/mean@1": 0.4}}
        for i in range(1, 5)
    ]))  # fmt: skip
    for found in (console, file):
        assert found.rows[2] == pytest.approx(
            {"step": 3, "reward": 0.3, "grad_norm": 1.5, "eval/val-core/maths/acc/mean@1": 0.4}
        )


@pytest.mark.parametrize(
    ("trainer", "names"),
    [
        ("TRL", {"rewards/a": "rewards/a/mean", "completion_length": "completions/mean_length",
                 "eval_reward": "eval/eval_reward",
                 "eval_runtime": "", "clip_ratio/low_mean": "", "frac_reward_zero_std": "frac_reward_zero_std"}),
        ("ms-swift", {"train/rewards/MathAccuracy/std": "rewards/mathaccuracy/std", "global_step/max_steps": "step",
                      "memory(GiB)": "", "completions/clipped_ratio": "completions/clipped_ratio"}),
        ("verl", {"val/test_score/gsm8k": "eval/val/test_score/gsm8k", "actor/entropy": "entropy",
                  "actor/lr": "learning_rate",
                  "critic/grad_norm": "", "actor/ppo_kl": "ppo_kl",
                  "response_length/clip_ratio": "completions/clipped_ratio"}),
        ("OpenRLHF", {"train/policy_loss": "loss", "train/response_length": "completions/mean_length",
                      "train/actor_lr": "learning_rate", "eval/default_pass1": "eval/eval/default_pass1"}),
        ("prime-rl", {"reward/all/mean": "reward", "optim/grad_norm": "grad_norm", "mismatch_kl/mean": "ppo_kl",
                      "is_truncated/mean": "completions/clipped_ratio", "entropy/mean": "entropy"}),
        ("tinker", {"env/all/reward/total": "reward", "env/all/correct": "score",
                    "env/all/format": "rewards/format/mean",
                    "test/env/all/correct": "eval/test/env/all/correct", "optim/lr": "learning_rate"}),
        ("W&B", {"_step": "step", "_timestamp": "", "deep-lake-1 - train/reward": "reward"}),
        ("nobody", {"moon_phase": None, "charm": None}),
    ],
)  # fmt: skip
def test_names_of_every_trainer_are_in_one_table(trainer: str, names: dict[str, str | None]) -> None:
    found = columns_of(names)
    assert {n: c and c.key for n, c in found.items()} == names


def test_runs_of_one_export_are_read_apart(tmp_path: Path) -> None:
    path = text(tmp_path / "w.csv", "Step,a - reward,b - reward", *(f"{i},0.{i},0.5" for i in range(1, 6)))
    assert [(c.run, c.rows[0]["reward"]) for c in read_curves(path)] == [("a", 0.1), ("b", 0.5)]
    single = text(
        tmp_path / "run-x-tag-train_reward.csv", "Wall time,Step,Value", *(f"9,{i},0.{i}" for i in range(1, 6))
    )
    assert one(single).names == {"reward": "train/reward"}


def test_a_resume_in_the_log_is_told(tmp_path: Path) -> None:
    steps = [*range(10), *range(7, 15)]
    found = one(write(tmp_path / "r.jsonl", [{"step": s, "reward": n / 20} for n, s in enumerate(steps)]))
    assert found.notes == ("steps 7 to 9 are there twice (a resume?): the later ones are read",)
    assert found.rows[8]["reward"] == 11 / 20


@pytest.mark.parametrize("clock", ["step", "epoch"])
def test_of_two_runs_in_one_log_the_last_is_read(tmp_path: Path, clock: str) -> None:
    first, second = (
        [{clock: i / 4, "reward": at, "loss": 0.1} for i in range(1, n)] for at, n in ((0.9, 31), (0.2, 9))
    )
    found = one(write(tmp_path / "two.jsonl", [*first, *second]))
    assert {r["reward"] for r in found.rows} == {0.2} and len(found.rows) == 8
    assert found.notes == (f"the {clock} starts again in row 31: several runs in one log, of which the last is read",)
    # evaluations that are listed after the training are of the same run
    listed = [*first, *({clock: i / 4, "eval_accuracy": 0.5} for i in range(1, 31))]
    assert "reward" in one(write(tmp_path / "one.jsonl", listed)).names


def test_a_log_of_a_training_without_reward_is_named_as_one(tmp_path: Path, say: Say) -> None:
    rows = [{"step": i, "loss": 2 - 0.1 * i, "learning_rate": 1e-5, "epoch": i / 9} for i in range(9)]
    state = {"best_metric": None, "global_step": 9, "log_history": [*rows, {"step": 9, "eval_loss": 1.1}]}
    path = text(tmp_path / "trainer_state.json", json.dumps(state, indent=2))
    assert say(path)[0] == ConfigError.exit_code
    out = audit([path]).unknown[0].reason
    assert out.startswith("is a training's log"), "the audit names the file itself"
    with pytest.raises(ConfigError, match=r"trainer_state\.json is a training's log"):
        read_curves(path)
    assert "a training's log without a reward: it has loss, learning_rate, eval_loss; a learning curve needs" in out
    policy = one(write(tmp_path / "entropy.jsonl", [{**r, "entropy": 0.5} for r in rows]))
    assert policy.notes == ("no reward, score or held-out outcome is in it: whether the policy gets better is unseen",)


def test_shares_in_percent_are_read_as_such(tmp_path: Path) -> None:
    rows = [{"step": i, "reward": 0.3 + i % 3 / 10, "completions/clipped_ratio": 95.0 + i % 2} for i in range(12)]
    path = write(tmp_path / "p.jsonl", rows)
    assert one(path).rows[1]["completions/clipped_ratio"] == pytest.approx(0.96)
    assert "96% of completions reach the token limit" in render_audit(audit([path]))
    path = write(tmp_path / "q.jsonl", [{**r, "completions/clipped_ratio": 300 + r["step"]} for r in rows])
    assert one(path).notes == ("completions/clipped_ratio is no share, and not read",)


def test_verl_says_by_its_extremes_that_every_reward_is_the_same(tmp_path: Path, say: Say) -> None:
    score = {f"critic/score/{k}": 0.0 for k in ("mean", "min", "max")}
    rows = [{"step": i, "data": {**score, "critic/returns/mean": 0.0, "actor/grad_norm": 0.02}} for i in range(20)]
    code, out = say(write(tmp_path / "verl.jsonl", rows), "--fail-on", "critical")
    assert code == 10 and "every rollout had the same reward in all 20 steps, from the first" in out
    assert "1 column not read: critic/returns/mean" in out


def test_a_report_shows_every_column_and_names_what_was_not_read(tmp_path: Path, say: Say) -> None:
    rows = [{"step": i, "train/reward": 0.5 + 0.001 * (i % 3), "moon": i, "kl": 0.01} for i in range(12)]
    rows[7]["kl"] = 0.02
    path = write(tmp_path / "log.jsonl", rows)
    done = audit([path])
    shown = render_audit(done)
    assert "No finding." in shown and "1 column not read: moon" in shown
    (line,) = [x for x in shown.splitlines() if x.startswith("kl ")]
    assert line.split() == ["kl", "0.01", "0.01", "0.01", "0", "0.02", "7", "12"]
    (reading,) = audit_json(done)["sources"][0]["readings"]
    assert reading["columns"][0]["column"] == "train/reward" and reading["notes"] == ["1 column not read: moon"]


def test_nan_at_the_end_fails_a_ci_job(tmp_path: Path, say: Say) -> None:
    rows = [{"step": i, "reward": 0.5 if i < 15 else 0.0, "loss": 0.1 if i < 15 else float("nan")} for i in range(20)]
    path = write(tmp_path / "log.jsonl", rows)
    code, out = say(path, "--fail-on", "critical", "--json")
    found = json.loads(out)
    assert code == 10 and found["worst"] == "critical"
    claims = [f["claim"] for f in found["sources"][0]["readings"][0]["health"]["findings"]]
    assert any("loss is NaN or infinite in the last 5 of 20 steps, from step 15 on" in c for c in claims)
