"""What makes no sense is refused, or said, before anything is spent: what `--dry-run` calls."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.config.load import load_task
from evotrainer.envs.base import Score, Task
from evotrainer.errors import ConfigError, EvoTrainerError, TaskSetError, install
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.records.recipe import parse_recipe
from evotrainer.run.checks import rewards as rewards_tried
from evotrainer.run.checks.base import BeforeRun, announce_if_slow
from evotrainer.run.checks.settings import folder, shares
from evotrainer.run.observer import SilentObserver
from tests.cli.call import in_this_process as evotrainer
from tests.letters_on_paper import QUICK, finish, rollouts
from tests.paper import Paper


def dry_run(task_file: Path, *overrides: str, folder: Path | None = None) -> list[str]:
    return api.preflight(load_task(task_file, overrides), new=True, folder=folder)


def own(tmp_path: Path, task_file: Path, old: str, new: str) -> Path:
    """The scaffolded task, one line of its environment changed."""
    text = (task_file.parent / "environment.py").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "environment.py").write_text(text.replace(old, new), encoding="utf-8")
    (tmp_path / "task.toml").write_text(task_file.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path / "task.toml"


def test_a_sound_task_is_let_through_without_a_word_of_doubt(task_file: Path) -> None:
    assert not [n for n in dry_run(task_file) if "demonstration" in n]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("recipe.steps=100000000000000000000", r"recipe.steps=1\d+ is more than 1,000,000.*lower it"),
        ("recipe.lr=1e9", r"recipe.lr=1e\+09 is more than 10, which no policy survives; lower it"),
        ('recipe.phases=[{kind="own",steps=2,lr=50.0},{kind="rl"}]', "recipe.lr=50 is more than 10"),
        ("recipe.group_size=1000000", "recipe.group_size=1000000 is more than 10,000"),
        ("run.seeds=[-1,2,3]", "-1 is below 0"),
        ("run.certify_seeds=[101,-7]", "-7 is below 0"),
        ("run.workers=5000", "run.workers=5000 is more than 1,000"),
        ("evaluation.gate_tasks=100000", r"gate_tasks=100000, but environment sort-letters has 150 gate tasks"),
        (
            "recipe.max_tokens=30",
            r"a train prompt has \d+ tokens .* context of 32 leaves 2 beside recipe.max_tokens=30",
        ),
        ("recipe.max_tokens=1000", r"max_tokens=1000 leaves no room for a prompt in .*shape.context=32"),
        ("policy.warm_start.steps=99999999", "policy.warm_start.steps=99999999 is more than"),
        (
            "budget.cpu_s=60",
            "cpu_s=60 does not hold 3 trainings .* 3 seeds first, the noise floor: .* raise it to 97.5 or more",
        ),
        ("policy.warm_start.drill_steps=10", "offers no drills; set policy.warm_start.drill_steps=0"),
    ],
)
def test_sizes_that_cannot_be_meant_are_refused(task_file: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dry_run(task_file, override)


def test_prompts_are_measured_as_a_training_would_show_them(task_file: Path, tmp_path: Path) -> None:
    long = 'recipe.scaffold={prompt="please do the following carefully: {task}"}'
    with pytest.raises(ConfigError, match=r"a train prompt has 4\d tokens .* leaves 22 beside recipe.max_tokens=10"):
        dry_run(task_file, long)
    dry_run(task_file, long, "run.evaluate_only=true")  # trains nothing, and evaluations cut
    # an environment whose `reset` begins otherwise than with the task's prompt
    text = (task_file.parent / "environment.py").read_text(encoding="utf-8")
    text = text.replace("return TextEnv(", "return Short(").replace(
        "def environment()",
        "class Short(TextEnv):\n    def reset(self, task, knobs):\n        from evotrainer.envs.base import Episode\n"
        "        from evotrainer.records.rollout import Turn\n\n"
        '        return Episode(task, knobs, [Turn("user", task.prompt[:8])])\n\n\ndef environment()',
    )
    text = text.replace('f"sort {word}\\n"', 'f"sort {word}{40 * word}\\n"').replace(
        "append((task.prompt, ", "append((task.prompt[:8], "
    )
    (tmp_path / "environment.py").write_text(text, encoding="utf-8")
    (tmp_path / "task.toml").write_text(task_file.read_text(encoding="utf-8"), encoding="utf-8")
    dry_run(tmp_path / "task.toml")


def test_a_recipe_that_samples_nothing_needs_no_room_beside_its_prompts() -> None:
    maths = Path(__file__).parents[2] / "tasks" / "math.toml"
    with pytest.raises(ConfigError, match="leaves 26 beside recipe.max_tokens=230"):
        dry_run(maths, "recipe.max_tokens=230")
    dry_run(maths, "recipe.max_tokens=230", 'recipe.phases=[{kind="references"}]')


def test_large_parts_that_multiply_to_an_absurd_whole_are_refused(task_file: Path) -> None:
    with pytest.raises(ConfigError, match="rollouts in one training"):
        dry_run(task_file, "recipe.steps=100000", "recipe.prompts_per_step=1000", "recipe.group_size=100")


PAID = '    return float(sorted(completion.strip()) == sorted(task.data["answer"]))'
TRUTH = '    return float(completion.strip() == task.data["answer"])'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("demos=demonstrations", "demos=None", "warm-start, but environment sort-letters offers no demonstrations"),
        ('f"sort {word}\\n"', 'f"sort {word}{40 * word}\\n"', "context=32 is shorter than a demonstration of"),
        (PAID, "    return 1e300", r"'right_letters' gave 1e\+300 on task train-.*, completion .*1,000,000"),
        (PAID, "    return -1e7 * (len(completion) > 20)", "'right_letters' gave -10000000.0 on task train-"),
        (TRUTH, "    return None", "its outcome, 'sorted_word', gave None for each of"),
        (TRUTH, "    return 7.0", "its truth, gave 7 on task train-.*between 0 and 1"),
        (TRUTH, "    return float('nan')", "its truth, gave nan on task"),
        (TRUTH, "    raise SystemExit(5)", r"reward function 'sorted_word' of .* on task .* called sys.exit\(5\)"),
        (
            TRUTH,
            "    return task.data['anser']",
            r"failed on task .*: KeyError: 'anser' \(.*\.py, line \d+\); correct the function",
        ),
        ("import random\n", "import random\nimport sys\n\nsys.exit(5)\n", r"calls sys.exit\(5\) on import"),
        (TRUTH, "    import os; os._exit(0)", r"reward function 'sorted_word' of .* called os._exit\(0\)"),
        ("demos=demonstrations", "demos=lambda n, seed: None", "its demonstrations are None; give a list of"),
        ("demos=demonstrations", "demos=lambda n, seed: 1 / 0", "the demonstrations of .* failed: ZeroDivisionError"),
        ("demos=demonstrations", "demos=lambda n, seed: ['ab'] * n", r"demonstration 0 is str 'ab'; give .* pairs"),
        ("demos=demonstrations", "demos=lambda n, seed: [('a', 5)]", r"demonstration 0 is tuple \('a', 5\); give"),
        ("demos=demonstrations", "demos=lambda n, seed: (1 / 0 for _ in 'a')", "failed: ZeroDivisionError"),
        (
            "draw=draw",
            "draw=lambda: None",
            r"draw of environment sort-letters failed: TypeError: .*; correct the function",
        ),
        (
            "draw=draw",
            "draw=lambda seed: draw(str(random.random()))",
            "other tasks when it is called again with the same",
        ),
        (
            "draw=draw",
            "draw=lambda seed: {k: v[:0] for k, v in draw(seed).items()}",
            "gives 0 gate tasks, and there must be some",
        ),
        ("tasks=make_tasks()", "tasks=None", "sort-letters: tasks is None; give split -> list of Task"),
        ("tasks=make_tasks()", "tasks={'train': None}", "the tasks of split 'train' are None; give a list of Task"),
        ("tasks=make_tasks()", "tasks={'train': ['a']}", "a task of split 'train' is str 'a'; give a Task"),
        ('f"sort {word}\\n"', "5", "the prompt of task 'train-.*' of split 'train' is int 5; give a text"),
        ('f"sort {word}\\n"', "None", "the prompt of task 'train-.*' of split 'train' is None; give a text"),
        ('f"sort {word}\\n"', "['a']", r"the prompt of task .* is list \['a'\]; give a text"),
        ("import random\n", "import random\nimport os\n\nos._exit(0)\n", r"calls os._exit\(0\) on import"),
    ],
)
def test_what_an_own_environment_gets_wrong_is_found(
    task_file: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(EvoTrainerError, match=message):
        dry_run(own(tmp_path, task_file, old, new))


@pytest.mark.parametrize("value", [1.0, 0.0])
def test_a_paid_reward_that_is_the_same_for_every_answer_is_noted(
    task_file: Path, tmp_path: Path, value: float
) -> None:
    (note,) = dry_run(own(tmp_path, task_file, PAID, f"    return {value}"))
    assert f"reward 'right_letters', which is paid, gave {value} for every answer that was tried" in note
    assert "no gradient" in note


def test_a_reward_that_may_just_want_the_right_answer_is_not_noted() -> None:
    recipe = parse_recipe({"rewards": {"right": 1.0}})
    for shown, value, noted in (("", 0.0, False), ("", -1.0, False), ("", 1.0, True), ("shown", -1.0, True)):
        scores = [Score({"right": value}, "incorrect")] * 2
        tries = [(Task("t", "train", "p", {}), shown)]
        assert bool(list(rewards_tried.constant(recipe, "outcome", tries, scores))) is noted


def test_a_penalty_that_nothing_earned_is_not_noted() -> None:
    recipe = parse_recipe({"rewards": {"right": 1.0, "penalty": -1.0}})
    scores = [Score({"right": float(i), "penalty": 0.0}, "incorrect") for i in range(2)]
    assert not list(rewards_tried.constant(recipe, "outcome", [(Task("t", "train", "p", {}), "shown")], scores))


def test_a_second_grading_that_met_a_fault_differs_in_nothing() -> None:
    tries = [(Task("t", "train", "p", {}), "answer")]
    whole, lost = Score({"right": 1.0}, "correct"), Score({"right": None}, "unknown", error_kind="sandbox")
    differing = rewards_tried.differing
    assert list(differing(tries, [whole], [lost])) == [] == list(differing(tries, [lost], [whole]))
    (note,) = differing(tries, [whole], [Score({"right": 0.0}, "incorrect")])
    assert "gave 1.0 and then 0.0" in note


def test_a_draw_of_another_size_is_taken_where_it_holds_what_is_asked(task_file: Path, tmp_path: Path) -> None:
    task = own(tmp_path, task_file, "draw=draw", "draw=lambda seed: {k: v[1:] for k, v in draw(seed).items()}")
    assert dry_run(task) == []
    with pytest.raises(TaskSetError, match="gives 149 gate tasks, and evaluation.gate_tasks=150 are asked for"):
        dry_run(task, "evaluation.gate_tasks=150")


def test_a_demonstration_of_a_task_that_judges_is_refused(task_file: Path, tmp_path: Path) -> None:
    for split in ("search", "gate", "cert"):
        task = own(tmp_path, task_file, 'words = make_tasks()["train"]', f'words = make_tasks()["{split}"]')
        with pytest.raises(
            TaskSetError, match=rf"its demonstrations show \d+ tasks that judge, as .* of {split}, .*from train tasks"
        ):
            dry_run(task)


def test_one_demonstration_of_a_task_that_judges_is_refused_wherever_it_stands(task_file: Path, tmp_path: Path) -> None:
    cert = 'make_tasks()["cert"][0]'
    last = '        out.append((task.prompt, "".join(answer)))\n'
    for demo in (f"({cert}.prompt, 'a')", f"(task.prompt, 'a', {cert}.prompt, 'b')"):
        task = own(tmp_path, task_file, last, f"{last}    out[-1] = {demo}\n")
        with pytest.raises(TaskSetError, match="show 1 task that judge, as .* of cert"):
            dry_run(task)


def test_a_prompt_in_two_splits_is_refused(task_file: Path, tmp_path: Path) -> None:
    task = own(tmp_path, task_file, "        out[split] = []", "        out[split], seen = [], set()")
    with pytest.raises(EvoTrainerError, match="have the same prompt, 'sort .*a prompt may stand in one split only"):
        dry_run(task)


def test_an_outcome_that_no_demonstration_meets_is_said(task_file: Path, tmp_path: Path) -> None:
    (note,) = [n for n in dry_run(own(tmp_path, task_file, TRUTH, "    return 0.5")) if "demonstrations" in n]
    assert "none of 32 demonstrations is correct by sorted_word" in note


def test_what_is_always_true_or_pays_nothing_is_said(task_file: Path, tmp_path: Path) -> None:
    always = dry_run(own(tmp_path, task_file, TRUTH, "    return 1.0"))
    assert any("an empty answer is correct by sorted_word (2 tasks tried)" in n for n in always)
    text = (task_file.parent / "environment.py").read_text(encoding="utf-8")
    silent = next(line for line in text.splitlines() if "def right_letters" in line)
    with pytest.raises(TaskSetError, match="reward 'right_letters', which is paid, gave None for each of"):
        dry_run(own(tmp_path, task_file, silent, f"{silent}\n    return None"), 'recipe.rewards={"right_letters"=1.0}')
    upside = dry_run(task_file, 'recipe.rewards={"right_letters"=-1.0}')
    assert any("every reward is paid with a negative weight (right_letters = -1)" in n for n in upside)


@pytest.mark.parametrize(
    ("override", "note"),
    [
        (
            "recipe.prompts_per_step=1000",
            "and environment sort-letters has .* train tasks: each step draws tasks",
        ),
        (
            "recipe.max_tokens=1",
            "max_tokens=1 is shorter than the answers of 32 of 32 demonstrations, .* raise it to 6",
        ),
        ("policy.warm_start.steps=1", "policy.warm_start.steps=1: its rate still rises for the first 50 steps"),
        ("recipe.lr=1e-6", "recipe.lr=1e-06: policy.base=warm-start is a small policy, which hardly moves"),
        ('recipe.group_filter={kind="zero_variance"}', "recipe.group_filter: zero_variance drops groups whose"),
        ("budget.cpu_s=94", "which set 90 aside; 4 are left for the base policy's evaluation; 97.5 suffice for sure"),
        ("budget.wall_s=1", "budget.wall_s=1: the starting recipe is trained on 3 seeds first, the noise floor, which"),
        ("run.workers=500", "run.workers=500, and this process may use .* cores"),
        ("recipe.max_turns=5", "max_turns=5 has no effect: an attempt of environment sort-letters ends with its first"),
    ],
)
def test_what_is_merely_odd_is_said(task_file: Path, override: str, note: str) -> None:
    assert [n for n in dry_run(task_file, override) if re.search(note, n)]


def test_a_split_of_one_task_is_said(task_file: Path, tmp_path: Path) -> None:
    notes = dry_run(own(tmp_path, task_file, '"cert": 150', '"cert": 1'), "evaluation.cert_tasks=1")
    assert any("split cert has one task" in n for n in notes)


@pytest.mark.parametrize("option", ["cache", "looks", "keys"])
def test_a_place_that_cannot_be_written_is_refused(task_file: Path, option: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"run.{option}=/proc/x/y cannot be written: .*name another place, or off"):
        dry_run(task_file, f"run.{option}=/proc/x/y")
    with pytest.raises(EvoTrainerError, match="cannot make run folder /proc/x: .*; choose another --out"):
        dry_run(task_file, folder=Path("/proc/x"))
    dry_run(task_file, f"run.{option}={tmp_path}/new/x")
    dry_run(task_file, folder=tmp_path / "new" / "run")
    assert not list(tmp_path.iterdir())


def test_a_cache_folder_that_cannot_be_written_is_said_and_stops_nothing(task_file: Path) -> None:
    done = evotrainer("run", "--dry-run", str(task_file), env={"EVOTRAINER_CACHE": "/proc/x/y"})
    (said,) = [line for line in done.stderr.splitlines() if "/proc/x/y" in line]
    assert re.fullmatch(
        r"evotrainer: note: cache /proc/x/y cannot be used \(.+\), so the run goes without it .*; make it writable, or "
        r"set run\.cache \(or \$EVOTRAINER_CACHE\) to another folder or off",
        said,
    )
    assert done.returncode == 0 and "# ok: it can be run" in done.stdout
    assert "/proc/x/y" not in evotrainer("run", "--dry-run", str(task_file), "run.cache=off").stderr


def test_a_forbidden_run_folder_is_said(task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(path: Path, **_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    at = BeforeRun(load_task(task_file), folder=tmp_path / "run")
    monkeypatch.setattr(Path, "is_file", forbid)
    with pytest.raises(EvoTrainerError, match="cannot make run folder .*: Permission denied; choose another --out"):
        folder(at)


def test_a_base_that_is_no_policy_of_this_trainer_is_said(task_file: Path) -> None:
    with pytest.raises(ConfigError, match="policy.base 'nope': .* a folder that `evotrainer base` wrote"):
        dry_run(task_file, "policy.base=nope")


@pytest.mark.parametrize(
    ("seeds", "says"), [("[]", "give at least one seed"), ("[1,1,2]", "seed 1 stands there twice; seeds must be")]
)
def test_seeds_are_refused_by_what_is_wrong_with_them(task_file: Path, seeds: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_task(task_file, [f"run.seeds={seeds}"])


def test_overrides_that_are_one_text_are_named(task_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"overrides is the text 'run.rounds=1'; give a list of texts"):
        api.start(task_file, tmp_path / "r", "run.rounds=1")


def test_a_dry_run_says_where_a_human_answers_and_refuses_a_run_folder_that_cannot_be(task_file: Path) -> None:
    gate = evotrainer("run", str(task_file), "--dry-run", "run.autonomy=human_gated", "--out", "r")
    assert gate.returncode == 0 and "at a gate the run waits for `evotrainer answer r`" in gate.stderr
    out = evotrainer("run", str(task_file), "--dry-run", "--out", "/proc/x")
    assert out.returncode == 4 and "cannot make run folder /proc/x" in out.stderr


def test_an_optional_part_is_installed_from_the_clone() -> None:
    root = Path(__file__).resolve().parents[2]
    assert install("trl") == f"pip install -e '{root}[trl]'"
    named = [p for p in (root / "src").rglob("*.py") if "pip install 'evotrainer[" in p.read_text(encoding="utf-8")]
    assert [p.name for p in named] == ["errors.py"]


def test_a_task_file_by_its_path_is_checked_as_well(task_file: Path) -> None:
    assert api.preflight(task_file, new=True) == api.preflight(load_task(task_file), new=True)


def test_an_open_run_goes_on_whatever_is_refused_today(task_file: Path, tmp_path: Path, letters_paper: Any) -> None:
    """What began goes on: sense is asked of new runs."""
    with letters_paper.stopped(lambda spec: spec.trial == "b0-s2"):
        letters_paper.start(task_file, tmp_path / "r", [*QUICK, "run.rounds=0"])
    with pytest.MonkeyPatch.context() as m:
        m.setattr("evotrainer.run.checks.settings.MOST", {1: "recipe.steps"})
        assert letters_paper.resume(tmp_path / "r").closed


@pytest.mark.parametrize(
    ("splits", "told"),
    [
        (
            {"train": 0.8, "search": 0.8},
            "splits add up to 1.6, not to 1: of all tasks are train 50%, search",
        ),
        ({"train": 0.7, "gate": 0.2}, "add up to 0.9"),
        ({"train": 0.7, "gate": 0.3}, None),
        ({"train": 80, "search": 10, "cert": 10}, None),
        ({"train": 800, "search": 100, "cert": 100}, None),
        ({"train": float("nan"), "cert": 0.2}, None),
        ({"train": "train.jsonl"}, None),
        (None, None),
    ],
)
def test_shares_that_do_not_add_up_are_said(splits: Any, told: str | None, task_file: Path) -> None:
    task = load_task(task_file)
    given = task.environment | ({"splits": splits} if splits is not None else {})
    notes = list(shares(BeforeRun(task.model_copy(update={"environment": given}))))
    assert len(notes) == (told is not None)
    assert told is None or told in notes[0]


def test_without_trl_everything_else_is_checked_and_the_extra_named_last(
    task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evotrainer.trainers.installed", lambda library: library != "trl")
    task = own(tmp_path, task_file, 'float(completion.strip() == task.data["answer"])', 'float("nan")')
    trl = ["trainer.name=trl", "policy.base=nobody/there"]
    wrong = ["run.sampler_dtype=bf16", "executor.options.x=1", 'run.skills=["./nowhere"]']
    said = evotrainer("run", "--dry-run", str(task), *trl, *wrong, "run.workers=500").stderr.splitlines()
    found = [n for n, line in enumerate(said) if not line.startswith("evotrainer: note: ")]
    about = (
        "sampler_dtype",
        "no option x",
        "sorted_word",
        "nowhere",
        f"needs trl, which is not installed; run: {install('trl')}",
    )
    assert len(found) == len(about) and all(word in said[n] for word, n in zip(about, found, strict=True))
    assert said[found[0]].startswith("evotrainer: ") and all(said[n].startswith("  also: ") for n in found[1:])

    done = evotrainer("run", "--dry-run", str(task_file), *trl, "run.workers=500")
    assert done.returncode == 6 and done.stdout == ""
    *notes, last = done.stderr.splitlines()
    assert last == f"evotrainer: the trl trainer needs trl, which is not installed; run: {install('trl')}"
    assert any("run.workers=500" in n for n in notes), "the notes on all else come before"


@pytest.mark.parametrize(
    ("score", "components", "said"),
    [
        (0.2, {"sorted_word": 0.2, "right_letters": 0.4}, ""),
        (
            0.2,
            {"sorted_word": 0.2},
            "reward 'right_letters', which is paid, gave None, so that it pays nothing, for every",
        ),
        (
            None,
            {},
            r"the outcome \(sorted_word\) gave no number, so that nothing is measured, for every attempt of the",
        ),
    ],
)
def test_what_gave_none_for_every_attempt_of_the_base_policy_is_named(
    task_file: Path, tmp_path: Path, score: float | None, components: dict[str, float], said: str
) -> None:
    class Log(SilentObserver):
        def __init__(self) -> None:
            self.lines: list[str] = []

        def note(self, text: str) -> None:
            self.lines.append(text)

    def end(spec: TrialSpec) -> TrialFinished:
        done = finish(spec)
        if spec.branch != "base":
            return done
        given = {"score": score, "components": components} | ({} if components else {"per_task": {}})
        scores = tuple(x.model_copy(update=given) if x.split == "search" else x for x in done.scores)
        return done.model_copy(update={"scores": scores})

    log = Log()
    Paper(end, rollouts).start(task_file, tmp_path / "r", [*QUICK, "run.rounds=0"], view=log)
    found = [x for x in log.lines if "every attempt of the base policy" in x]
    assert len(found) == bool(said) and all(re.search(said, x) for x in found)


def test_a_dry_run_refuses_a_folder_with_another_task_file_and_counts_its_notes(
    task_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "task.toml").write_text("# another one")
    refused = evotrainer("run", str(task_file), "--out", str(folder), "--dry-run")
    assert (
        refused.returncode == ConfigError.exit_code
        and "is there already and a run would overwrite it" in refused.stderr
    )
    noted = evotrainer("run", str(task_file), "run.workers=900", "--out", str(tmp_path / "o"), "--dry-run")
    n = noted.stderr.count("evotrainer: note: ")
    assert n and noted.stdout.rstrip().endswith(f"# {n} note{'s' * (n > 1)} on stderr, before the task file")


def test_a_gate_that_can_tell_nothing_is_said(task_file: Path, tmp_path: Path) -> None:
    small = own(tmp_path, task_file, '"gate": 150', '"gate": 12')
    (told,) = [n for n in dry_run(small, "evaluation.gate_tasks=12") if "gate judges on" in n]
    assert "split gate judges on 12 tasks" in told and "judge.worthwhile is 5" in told
    assert not [n for n in dry_run(small, "evaluation.gate_tasks=12", "judge.worthwhile=0.3") if "gate judges on" in n]
    assert not [
        n
        for n in dry_run(small, "evaluation.gate_tasks=12", "run.search_only=true", "run.probes=16")
        if "judges on" in n
    ]


def test_a_reward_that_differs_for_the_same_answer_is_said(task_file: Path, tmp_path: Path) -> None:
    noisy = own(tmp_path, task_file, "return max(0.0, 1 - len(completion) / 10)", "return random.random()")
    (told,) = [n for n in dry_run(noisy) if "for the same answer" in n]
    assert "reward 'brevity' gave 0." in told and "take random numbers from a seed" in told
    assert not [n for n in dry_run(task_file) if "for the same answer" in n]


@pytest.mark.parametrize("length", [1, 6, 24])
def test_a_reward_that_raises_at_one_length_is_refused(task_file: Path, tmp_path: Path, length: int) -> None:
    broken = own(tmp_path, task_file, "1 - len(completion) / 10", f"1 / (len(completion) - {length})")
    with pytest.raises(EvoTrainerError, match=r"brevity.*ZeroDivisionError|ZeroDivisionError.*"):
        dry_run(broken)


def test_a_dry_run_takes_the_task_file_that_a_killed_run_of_a_data_set_left(
    task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both write the data set's revision as a commit."""
    pinned = {"path": "some/rows@" + 40 * "a"}
    monkeypatch.setattr(
        "evotrainer.run.open_run.with_pinned_data",
        lambda t: t.model_copy(update={"environment": t.environment | pinned}),
    )
    left = load_task(task_file)
    folder = tmp_path / "killed"
    folder.mkdir()
    (folder / "task.toml").write_text(left.model_copy(update={"environment": left.environment | pinned}).to_toml())
    done = evotrainer("run", str(task_file), "--out", str(folder), "--dry-run")
    assert done.returncode == 0, done.stderr


def test_a_check_that_takes_long_says_what_it_is_at(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVOTRAINER_SLOW_S", "0.01")
    said = ""
    with announce_if_slow("loading the libraries"):
        while not said:  # the test's own time limit ends it where nothing is said
            time.sleep(0.01)
            said = capfd.readouterr().err
    assert said == "evotrainer: loading the libraries ...\n"
    monkeypatch.setenv("EVOTRAINER_SLOW_S", "60")
    with announce_if_slow("loading the libraries"):
        pass
    assert capfd.readouterr().err == ""


IN_ORDER = """
in_order = 1.0
[recipe.written]
in_order = '''
def reward(rollout):
    BODY
'''
"""
"""What docs/commands/try-code.md says of a component in a task file."""


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ("text = rollout['turns'][1]['text'].strip()\n    return float(list(text) == sorted(text))", ""),
        ("return rollout['nothing']", "reward 'in_order@.*gave None for each of .* it must return a number"),
        ("import time\n    return time.time()", "in_order@.*forbidden_import: line 2 imports time"),
        ("return 10 ** 5000", "reward 'in_order@.*gave None for each"),
    ],
)
def test_written_code_in_a_task_file_of_ones_own_is_tried_with_the_rest(
    body: str, refused: str, tmp_path: Path, task_file: Path
) -> None:
    file = own(tmp_path, task_file, "", "")
    text = file.read_text(encoding="utf-8")
    assert "right_letters = 1.0\n" in text
    file.write_text(text.replace("right_letters = 1.0\n", f"right_letters = 1.0{IN_ORDER.replace('BODY', body)}"))
    if refused:
        with pytest.raises(EvoTrainerError, match=refused):
            dry_run(file)
    else:
        assert not [n for n in dry_run(file) if "in_order" in n]
