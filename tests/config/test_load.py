"""`config.load` and `config.bases`: overrides, paths, hashes, and what is refused before anything is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer.config.bases import resolve_base
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError

TEXT = """
[task]
name = "t"
[environment]
name = "code"
source = "./data/tasks.jsonl"
[policy]
base = "policies/mine"
[recipe.rewards]
hidden = 1.0
"""


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "policies" / "mine").mkdir(parents=True)
    (tmp_path / "data" / "tasks.jsonl").write_text("")
    (tmp_path / "task.toml").write_text(TEXT)
    return tmp_path / "task.toml"


def test_paths_of_the_file_are_the_files_and_paths_of_the_caller_the_callers(
    task_file: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "own.jsonl").write_text("")
    monkeypatch.chdir(elsewhere)
    task = load_task(task_file)
    assert task.environment["source"] == str(task_file.parent / "data" / "tasks.jsonl")
    assert task.policy.base == str(task_file.parent / "policies" / "mine")
    task = load_task(task_file, ["environment.source=own.jsonl", "policy.base=../p"])
    assert task.environment["source"] == str(elsewhere / "own.jsonl")
    assert task.policy.base == str(elsewhere.parent / "p")


def test_names_that_are_no_paths_stay_as_they_are(task_file: Path) -> None:
    task = load_task(task_file, ["environment.source=openai/openai_humaneval", "policy.base=builtin:code-v1"])
    assert task.environment["source"] == "openai/openai_humaneval"
    assert task.policy.base == "builtin:code-v1"


def test_the_resolved_copy_means_the_same(task_file: Path, tmp_path: Path) -> None:
    task = load_task(task_file, ["recipe.clip.high=0.28", "recipe.group_filter.kind=snr_top_p", "budget.cpu_s=900"])
    (tmp_path / "copy.toml").write_text(task.to_toml())
    again = load_task(tmp_path / "copy.toml")
    assert again == task
    assert again.hash == task.hash
    assert again.recipe.clip.high == 0.28


def test_every_override_changes_the_hash(task_file: Path) -> None:
    base = load_task(task_file)
    assert load_task(task_file, ["judge.alpha=0.01"]).hash != base.hash
    assert load_task(task_file, ["recipe.lr=1e-4"]).recipe.hash != base.recipe.hash


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("recipe.lr.x=1", "recipe.lr"),
        ("recipe.curriculum={kind='pass_rate_band',low=0.9,high=0.1}", "low must be below"),
        ("policy.warm_start.shape.heads=3", "width must be a multiple of heads"),
        ("run.seeds=[1,1,2]", "seeds must be distinct"),
        ("run.autonomy=maybe", "run.autonomy"),
        ("judge.min_seeds=4", "no branch could ever be promoted"),
        ("budget.trials=3", "raise it"),
        ("environment.name=3", "environment"),
        ("nonsense.x=1", "nonsense: unknown name; there are: task, environment, policy, recipe,"),
        ("recipe.nosuch=1", r"recipe.nosuch: unknown name; there are: loss, clip, kl_beta"),
        ("recipe.group_filer.kind=none", r"recipe.group_filer: unknown name, did you mean group_filter"),
        ("policy.warm_start.shape.head=2", r"policy.warm_start.shape.head: unknown name, did you mean heads"),
        ("recipe.loss=gpro", "recipe.loss: must be grpo, .*, did you mean grpo"),
        ("recipe.loss=PPO", "recipe.loss: must be grpo, .*; none learns a value network; the nearest is grpo"),
        ("recipe.learning_rate=1", r"recipe.learning_rate: unknown name, did you mean recipe\.lr\?"),
        ("learning_rate=1", r"learning_rate: unknown name, did you mean recipe\.lr\?"),
        ("run.learning_rate=1", r"run.learning_rate: unknown name, did you mean recipe\.lr\?"),
        ("recipe.num_generations=8", r"did you mean recipe\.group_size\?"),
        ("recipe.epsilon=0.2", r"did you mean recipe\.clip\.low\?"),
        ("recipe.warmup=3", r"did you mean recipe\.schedule\.warmup\?"),
        ("recipe.per_device_train_batch_size=8", r"prompts_per_step \(prompts, each with group_size rollouts\)\?"),
        ("recipe.reward_scaling=true", "must be group, batch or none; TRL's true is group"),
        ("seeds=[1,2,3]", r"seeds: unknown name, did you mean run\.seeds\?"),
        ("run.sampler_dtype=fp16", "run.sampler_dtype: must be fp32, bf16 or auto, did you mean bf16"),
    ],
)
def test_bad_values_are_refused_with_their_place(task_file: Path, override: str, message: str) -> None:
    from evotrainer.envs import open_environment
    from evotrainer.errors import EvoTrainerError

    with pytest.raises(EvoTrainerError, match=message):
        open_environment(load_task(task_file, [override]).environment)


def test_base_policies_that_are_none_are_refused(tmp_path: Path) -> None:
    assert resolve_base("warm-start") is None
    shipped = resolve_base("builtin:code-v1")
    assert shipped is not None
    assert (shipped / "model.safetensors").is_file()
    with pytest.raises(ConfigError, match=r"there are: .*'code-v1'"):
        resolve_base("builtin:code-v9")
    with pytest.raises(ConfigError, match="no config.json there"):
        resolve_base(str(tmp_path))
