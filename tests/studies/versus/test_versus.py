"""Two sides of foreign logs: one word, by the judge's own figures."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evotrainer.cli import app
from evotrainer.errors import EvoTrainerError
from evotrainer.judge import InterimAnalysis, JudgeConfig, JudgeInput, judge
from evotrainer.judge.simulate import Population, trial
from evotrainer.judge.stats import measure_noise, over_tasks, scores_of
from evotrainer.judge.versus import LogSide, _word, versus
from evotrainer.studies.versus import Selection, Versus, compare, read_side
from evotrainer.studies.versus.text import versus_json, versus_lines
from tests.envs.helpers import jsonl as write

ROOT = Path(__file__).resolve().parents[3]
Say = Callable[..., tuple[int, str]]


def log(path: Path, p: float, tasks: range, words: int = 3, seed: int = 0, **fields: Any) -> Path:
    rng = random.Random(f"{p}{tasks}{seed}")
    rows = []
    for t in tasks:
        for _ in range(6):
            right = rng.random() < p
            text = f"{rng.random()} " + "word " * (words - 1)
            rows.append({"task": f"t{t}", "text": text, "reward": float(right), "correct": right} | fields)
    return write(path, rows)


def logs(folder: Path, name: str, p: float, tasks: range, seeds: int = 3, **fields: Any) -> list[Path]:
    return [log(folder / f"{name}{s}.jsonl", p, tasks, seed=s, **fields) for s in range(seeds)]


def compared(a: list[Path], b: list[Path], **options: Any) -> Versus:
    sides = [read_side(x, Selection(), side, lambda *_: None) for x, side in ((a, "A"), (b, "B"))]
    return compare(*sides, **options)


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    monkeypatch.setenv("EVOTRAINER_CACHE", str(tmp_path / "cache"))

    def run(*args: Any) -> tuple[int, str]:
        try:
            code = app(["versus", *map(str, args)], standalone_mode=False) or 0
        except EvoTrainerError as e:
            return e.exit_code, str(e)
        return int(code), capsys.readouterr().out

    return run


def test_several_trainings_have_the_judges_own_interval(tmp_path: Path) -> None:
    tasks = range(30)
    a, b = logs(tmp_path, "a", 0.8, tasks), logs(tmp_path, "b", 0.5, tasks)
    found = compared(a, b, alpha=0.05).comparison

    def trials(name: str, paths: list[Path]) -> list[Any]:
        out = []
        for seed, path in enumerate(paths, 1):
            rows = [json.loads(x) for x in path.read_text().splitlines()]
            score = {t: [r["reward"] for r in rows if r["task"] == t] for t in {r["task"] for r in rows}}
            out.append(trial(name, seed, {t: sum(x) / len(x) for t, x in score.items()}, 6))
        return out

    given = JudgeInput("b1", "b0", trials("b1", a), trials("b0", b), None, JudgeConfig(min_effect=0))
    verdict = judge(given, InterimAnalysis(number=1, alpha=0.05))
    assert verdict.kind == "promote" and found.word == "better" and verdict.effect is not None
    assert found.effect.model_dump() == pytest.approx(verdict.effect.model_dump())
    turned = compared(b, a).comparison
    assert turned.word == "worse" and turned.effect.mean == pytest.approx(-found.effect.mean)


def test_one_training_a_side_speaks_of_outputs_and_says_so(tmp_path: Path) -> None:
    a, b = logs(tmp_path, "a", 0.8, range(30), seeds=1), logs(tmp_path, "b", 0.5, range(10, 40), seeds=1)
    found = compared(a, b, common=True)
    c = found.comparison
    assert c.word == "better" and not c.of_recipes and c.effect.tasks == 20 and c.seeds_wanted is None
    text = versus_lines(found)
    assert text[0].startswith("better: A's outputs are better than B's") and "not of the recipes" in "\n".join(text)
    rows = [[json.loads(x) for x in p.read_text().splitlines()] for p in (*a, *b)]
    means = [
        {t: sum(r["reward"] for r in rs if r["task"] == t) / 6 for t in (f"t{i}" for i in range(10, 30))} for rs in rows
    ]
    own = over_tasks({1: means[0]}, {1: means[1]}, c.effect.confidence)
    assert c.effect.model_dump() == pytest.approx(own.model_dump())
    # the same three trainings as one another: the spread between seeds enters, and the word is about recipes
    assert compared(logs(tmp_path, "c", 0.8, range(30)), b, common=True).comparison.of_recipes


def test_no_worse_needs_a_margin_and_undecided_says_what_would_decide(tmp_path: Path) -> None:
    a, b = logs(tmp_path, "a", 0.52, range(60)), logs(tmp_path, "b", 0.5, range(60))
    plain = compared(a, b).comparison
    assert (
        plain.word == "undecided"
        and plain.least is not None
        and plain.least > abs(plain.effect.mean)
        and "holds 0" in plain.reason
    )
    wide, narrow = (compared(a, b, margin=m).comparison for m in (0.2, 1e-6))
    assert wide.word == "no worse" and "excludes a loss of 20.0 points" in wide.reason
    assert narrow.word == "undecided" and "does not exclude a loss" in narrow.reason


def test_behaviour_findings_and_json(tmp_path: Path, say: Say) -> None:
    a, b = logs(tmp_path, "a", 0.5, range(20)), logs(tmp_path, "b", 0.5, range(20), words=9)
    found = compared(a, b)
    words = next(d for d in found.behaviour if d.name == "words")
    assert words.moved and words.effect is not None and words.effect.mean == -6 and words.effect.seeds == 3
    assert not next(d for d in found.behaviour if d.name == "reward").moved
    assert "words" in "\n".join(versus_lines(found)) and versus_json(found)["behaviour"][0]["name"] == "outcome"
    page = tmp_path / "v.html"
    code, out = say(*a, "vs", *b, "--json", "--html", page)
    told = json.loads(out)
    assert code == 0 and told["word"] == "undecided" and len(told["a"]["trainings"]) == 3
    html = page.read_text()
    assert "<script>" not in html and "undecided" in html and "words" in html


def test_a_hack_on_the_better_side_withholds_the_word(tmp_path: Path) -> None:
    """Test files are overwritten by every attempt of A: what it scores may not mean what it says."""
    cheat = [{"name": "bash", "arguments": "sed -i 's/assert x/assert True/' tests/test_x.py", "ok": True}]

    def rollouts(path: Path, right: bool, calls: list[dict[str, Any]]) -> Path:
        turns = [{"role": "user", "content": "fix it"}, {"role": "assistant", "content": "", "tool_calls": calls}]
        own = [{"task": f"t{t}", "turns": turns, "reward": float(right or t % 3 == 0)} for t in range(40)]
        return write(path, own)

    honest = [{"name": "bash", "arguments": "ls src", "ok": True}]
    a, b = rollouts(tmp_path / "a.jsonl", True, cheat), rollouts(tmp_path / "b.jsonl", False, honest)
    found = compared([a], [b])
    assert found.comparison.word == "undecided" and "test_tampering" in found.comparison.reason
    assert any(f.detector == "test_tampering" and f.a and not f.b for f in found.findings)
    assert compared([b], [a]).comparison.word == "worse", "what is worse all the same stays worse"


def test_lost_rollouts_are_no_zeros_and_too_many_leave_it_undecided(tmp_path: Path) -> None:
    a = logs(tmp_path, "a", 0.5, range(20))
    rows = [json.loads(x) for x in a[0].read_text().splitlines()]
    few = write(tmp_path / "few.jsonl", [*rows, {"task": "t0", "text": "", "reward": 0.0, "error_kind": "timeout"}])
    found = compared([few], [a[0]])
    assert found.comparison.effect.mean == 0 and "no difference was seen" in found.comparison.reason
    assert any("1 rollout of A without a score (faults: 1)" in n for n in found.notes)
    same = compared([a[0]], [a[0]])
    assert same.comparison.least is None and "hold the same rollouts" in same.notes[0]
    assert "unknown, since nothing varied" in "\n".join(versus_lines(same))
    models = [log(tmp_path / f"m{i}.jsonl", 0.5, range(20), seed=i, model=f"m{i}") for i in (1, 2)]
    nameless = [
        *map(json.loads, models[0].read_text().splitlines()),
        {"task": "t1", "text": "", "error_kind": "timeout"},
    ]
    assert compared([write(tmp_path / "m.jsonl", nameless)], [models[1]]).a.seeds[0].faults == 1, (
        "a fault names no model"
    )
    many = [r | ({"error_kind": "timeout"} if i % 6 == 0 else {}) for i, r in enumerate(rows)]
    c = compared([write(tmp_path / "many.jsonl", many)], [a[1]]).comparison
    assert c.word == "undecided" and "20 attempts of " in c.reason
    assert "many.jsonl (side A) without a score (16.7%, 5% at most)" in c.reason and "doctor" not in c.reason


def rated(path: Path, prompt: str, value: float, tasks: int = 12, **fields: Any) -> Path:
    """Attempts at tasks numbered 0..n: `value` at three of four."""
    rows = [
        {"task": f"{t}", "prompt": prompt.format(t), "text": f"{prompt}{i}", "reward": value * (i < 3)} | fields
        for t in range(tasks)
        for i in range(4)
    ]
    return write(path, rows)


def test_tasks_of_one_id_and_other_prompts_are_not_paired(tmp_path: Path) -> None:
    a, b = (rated(tmp_path / f"{x}.jsonl", f"{x} of {{}}?", v) for x, v in (("sum", 1.0), ("root", 0.5)))
    with pytest.raises(EvoTrainerError, match=r"12 tasks of 12 have other .* 'sum of \d+\?' .*'root of .*--map"):
        compared([a], [b])
    spaced = rated(tmp_path / "s.jsonl", "sum  of\n{}? ", 0.5)
    assert not any("template" in n for n in compared([a], [spaced]).notes)
    chat = rated(
        tmp_path / "c.jsonl", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nsum of {}?<|im_end|>", 0
    )
    assert any("what stands around it (template) is not" in n for n in compared([a], [chat]).notes)
    llama = (
        "<|start_header_id|>user<|end_header_id|>\n\nsum of {}?<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
    )
    assert any("the question is the same" in n for n in compared([chat], [rated(tmp_path / "l.jsonl", llama, 1)]).notes)
    assert "12 tasks of 12: the prompts differ" in compared([a], [b], reworded=True).notes
    bare = [{k: v for k, v in json.loads(x).items() if k != "prompt"} for x in b.read_text().splitlines()]
    assert compared([a], [write(tmp_path / "bare.jsonl", bare)]).comparison.word == "better", "no prompt to compare"


def test_other_scales_and_an_outcome_passed_over_are_told(tmp_path: Path) -> None:
    a, b = rated(tmp_path / "a.jsonl", "{}", 1.0), rated(tmp_path / "b.jsonl", "{}", 10.0)
    with pytest.raises(EvoTrainerError, match="two scales, 0 to 1 in A and 0 to 10 in B.*--score reward"):
        compared([a], [b])
    named = compared([a], [b], score="reward")
    assert named.comparison.word == "worse" and "compared as it is" in named.notes[0]
    penalty = rated(tmp_path / "p.jsonl", "{}", -0.1)
    assert compared([a], [penalty]).comparison.word == "better", "a small penalty is no other scale"
    known = rated(tmp_path / "k.jsonl", "{}", 0.5, correct=True)
    found = compared([known], [a])
    assert found.score == "reward" and "known of 100% of A's rollouts and 0% of B's" in found.notes[0]


def test_few_tasks_say_nothing_and_tasks_that_agree_have_an_interval(tmp_path: Path) -> None:
    def pair(n: int) -> Any:
        return compared(*([rated(tmp_path / f"{n}{v}.jsonl", "{}", v, n)] for v in (1.0, 0.0))).comparison

    assert pair(5).word == "undecided" and "over 5 tasks: 6 at least are needed at --alpha 0.025" in pair(5).reason
    six, many = pair(6), pair(100)
    assert six.word == many.word == "better" and 0 < six.effect.low < 0.1 < 0.65 < many.effect.low < 0.75


def test_the_noise_between_trainings_is_named_where_it_withholds_the_word(tmp_path: Path) -> None:
    a, b = (rated(tmp_path / f"{x}.jsonl", "{}", v) for x, v in (("a", 1.0), ("b", 0.2)))
    c = compared([a, rated(tmp_path / "a2.jsonl", "{}", 0.8)], [b]).comparison
    assert c.word == "undecided" and c.effect.noise_floor > c.effect.mean
    e = c.effect.model_copy(update={"low": 0.1})
    word, reason = _word(e, None, True, 0.025)
    assert word == "undecided" and "leaves out 0, but trainings of one recipe may differ by" in reason


def test_bad_input_is_one_line_with_a_remedy(tmp_path: Path, say: Say) -> None:
    a, b = logs(tmp_path, "a", 0.5, range(4), seeds=2), logs(tmp_path, "b", 0.5, range(5, 9), seeds=1)
    unscored = write(tmp_path / "u.jsonl", [{"task": f"t{t}", "text": "x", "reward": None} for t in range(4)])
    nameless = write(tmp_path / "n.jsonl", [{"text": "x", "reward": 1.0}])
    split = [log(tmp_path / f"{s}.jsonl", 0.5, range(4), split=s) for s in ("train", "test")]
    both = write(tmp_path / "two.jsonl", [json.loads(x) for p in split for x in p.read_text().splitlines()])
    copy = tmp_path / "copy.jsonl"
    copy.write_text(a[0].read_text())
    for args, told in (
        ((*a, "vs"), "side B is empty"),
        (("vs", *a), "side A is empty"),
        ((*a, *b), "no vs between the sides"),
        ((a[0], b[0]), "no task is scored by all trainings: A has 4 (t0, "),
        ((a[0], tmp_path / "none.jsonl"), "there is no"),
        ((a[0], unscored), "has a score"),
        ((a[0], nameless), "no rollout could be read of"),
        (split, "A was scored on split train, B on test"),
        ((a[0], both), "several splits: test, train; choose one with --split"),
        ((a[0], a[0], "vs", a[1]), "is given twice"),
        ((a[0], copy, "vs", a[1]), "hold the same rollouts"),
        ((a[0], a[1], "--fail-on", "never"), "give no-worse, undecided, worse"),
        ((a[0], a[1], "--margin", "0"), "give the loss that would matter"),
        ((a[0], a[1], "--steps", "1-x"), "give FIRST-LAST"),
        ((a[0], a[1], "--split", "gate"), "has no rollout of it; it has (none)"),
        ((a[0], a[1], "--fault", "nothing_like_it"), "nothing_like_it"),
    ):
        code, out = say(*args)
        assert code == 2 and told in out and "\n" not in out, (args, out)
    assert say(a[0], a[1], "--steps", "0")[0] == 0


def test_files_of_one_training_are_one_seed_and_its_steps_are_told(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    for side, p in (("a", 0.9), ("b", 0.2)):
        (tmp_path / side).mkdir()
        for step in (1, 2):
            rng = random.Random(f"{side}{step}")
            n = 24
            table = {
                "step": [step] * n,
                "prompt": [f"p{i // 2}" for i in range(n)],
                "completion": [f"c{rng.random()}" for _ in range(n)],
                "accuracy_reward": [float(rng.random() < p) for _ in range(n)],
                "advantage": [0.0] * n,
            }
            pd.DataFrame(table).to_parquet(tmp_path / side / f"completions_{step:05d}.parquet")
    files = [sorted((tmp_path / side).glob("*.parquet")) for side in "ab"]
    found = compared(*files)
    assert (len(found.a.seeds), found.score, found.comparison.word) == (1, "accuracy_reward", "better")
    assert found.a.seeds[0].name == str(tmp_path / "a")
    assert any("steps 1 to 2" in n for n in found.notes) and any("read as one" in n for n in found.notes)


def test_the_example_is_decided_as_its_page_says(say: Say) -> None:
    folder = ROOT / "examples" / "versus"
    sides = [sorted((folder / x).glob("*.jsonl")) for x in ("new", "old")]
    code, out = say(*sides[0], "vs", *sides[1], "--margin", "0.02", "--fail-on", "undecided")
    first = "\n".join(out.replace(f"{folder}/", "").splitlines()[:6])
    assert code == 0 and first.startswith("better: A is better than B")
    for page in (folder / "README.md", ROOT / "docs" / "commands" / "versus.md"):
        assert first in page.read_text(), page
    assert say(*sides[1], "vs", *sides[0], "--fail-on", "worse")[0] == 10


@pytest.mark.parametrize("seeds", [1, 3, 5])
def test_a_false_better_is_rare(seeds: int) -> None:
    """`python -m bench.versus` measures it; here a defect would show."""
    import numpy as np

    population, false, found = Population(tasks=80, seed_sd=0.0 if seeds == 1 else 0.02), 0, 0
    for i in range(100):
        rng = np.random.default_rng([seeds, i])
        p_T = population.difficulties(rng)
        b = LogSide("B", population.trials("B", p_T, range(1, seeds + 1), rng))
        for effect in (0.0, 0.2):
            a = LogSide("A", population.trials("A", p_T, range(1, seeds + 1), rng, effect=effect))
            word = versus(a, b).word
            false += word == "better" and not effect
            found += word == "better" and bool(effect)
    assert false <= 8 and found >= 90


def test_the_noise_of_a_run_is_not_needed_but_is_the_same_arithmetic() -> None:
    """With trainings on both sides the spread is their own; a run's pool would only add to it."""
    import numpy as np

    population = Population(tasks=50)
    rng = np.random.default_rng(1)
    p_T = population.difficulties(rng)
    a, b = (population.trials(n, p_T, range(1, 4), rng) for n in ("A", "B"))
    pooled = measure_noise("B", scores_of(b, "gate"))
    given = JudgeInput("A", "B", a, b, pooled, JudgeConfig(min_effect=0))
    effect = judge(given, InterimAnalysis(number=1, alpha=0.05)).effect
    assert effect is not None and effect.mean == pytest.approx(versus(LogSide("A", a), LogSide("B", b)).effect.mean)
