"""`[trainer.options]` of the command trainer."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from evotrainer.records.frozen import Frozen, parsed
from evotrainer.trainers.command.presets import PRESETS

SAMPLERS = ("trl", "embedded")
"""Trainers whose evaluation samples a policy that a command made."""
Words = tuple[str, ...]
"""A program and its arguments."""


def words(given: Any) -> Any:
    """A command line as its words; lists as they are."""
    return shlex.split(given) if isinstance(given, str) else given


class FactorPlace(Frozen):
    """Where a factor's value goes, if more is to be said than a place."""

    to: str
    """`--flag`, a dotted path of the configuration file (`config`) or of Hydra, or `request`: the script reads it from
    request.json."""
    values: dict[str, Any] = {}
    """Recipe's value -> the script's; any other one is refused. Of `loss`: each value that the script can aggregate."""


class EvaluationOptions(Frozen):
    """Who samples the policy on the splits that decide; the task's environment scores all that was sampled."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    by: Literal["trl", "embedded", "endpoint", "command"] = "trl"
    """trl: Hugging Face generate. embedded: EvoTrainer's own sampler (small policies in the layout of Llama or Qwen3).
    endpoint: a server that speaks OpenAI's chat completions. command: a program of yours."""
    options: dict[str, Any] = {}
    """Of the sampler `trl` or `embedded` (docs/trainers.md)."""
    base_url: str = ""
    """endpoint: e.g. http://127.0.0.1:{port}/v1; {port} is a free one."""
    model: str = "{policy}"
    """endpoint: the served model's name; {policy} is the policy's folder, {trial} the trial's name."""
    serve: Words = ()
    """endpoint: command that serves a policy, e.g. `vllm serve {policy} --port {port}`; ended with the evaluation.
    Empty: it is there already, and knows a policy by its name."""
    ready_s: float = Field(600.0, gt=0)
    """endpoint: seconds until what `serve` started must answer."""
    timeout_s: float = Field(300.0, gt=0)
    """endpoint: seconds for one answer."""
    parallel: int = Field(8, ge=1)
    """endpoint: requests at a time."""
    key_env: str = ""
    """endpoint: environment variable that holds its key."""
    command: Words = ()
    """command: what samples; it gets a request.json as the training does, with `purpose = "evaluate"`."""

    _words = field_validator("serve", "command", mode="before")(words)

    @model_validator(mode="after")
    def _whole(self) -> EvaluationOptions:
        if (self.by == "command") != bool(self.command):
            raise ValueError('by = "command" and `command` belong together; give both or neither')
        if self.by == "endpoint":
            if not self.base_url.startswith(("http://", "https://")):
                raise ValueError("by = endpoint needs base_url, e.g. http://127.0.0.1:{port}/v1")
            if not self.serve and not any(p in self.model for p in ("{policy}", "{trial}")):
                raise ValueError(
                    f"model {self.model!r} names no policy, so that all trials would be scored by one; put {{policy}} "
                    "or {trial} into it, or give serve"
                )
        elif self.serve or self.base_url:
            raise ValueError('serve and base_url are for by = "endpoint"')
        return self


class CommandOptions(Frozen):
    """How a user's training command is called, what it writes, and what it does of a recipe."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    command: Words = Field(min_length=1)
    """The program and its arguments, a list or one line. {request} {tasks} {policy} {out} {seed} {steps} {config}
    {checkpoint} {rollouts} {metrics} {trial} {python} are filled in (docs/command-trainer.md)."""
    cwd: str = ""
    """Folder that it runs in; default: the task file's."""
    env: dict[str, str] = {}
    """Further environment variables; the same words are filled in."""
    check: Words = ()
    """Checks what the script would be given, without a training, before a run spends anything: `rl @ {config}
    --dry-run`. Called as `command` is, in a folder that is removed; an exit code other than 0 refuses the run."""
    map: dict[str, str | FactorPlace] = {}
    """Factor (`lr`, `clip.high`, `rewards.exact`) -> where its value goes. A name alone, or `preset = NAME` in it: the
    rows of `trl`, `verl`, `verl-plain`, `prime-rl` or `ms-swift`, which further rows change, and the places where that
    trainer writes."""
    preset: str = ""
    """Set by `map`."""
    fixed: dict[str, Any] = {}
    """Factor -> the value that the script has by itself. A recipe with another one is refused; of a factor that is
    neither mapped nor fixed, another one than the default."""
    config: str = ""
    """The script's own configuration file (.toml, .yaml, .json): a copy with the mapped values is {config}."""
    rollouts: str = "rollouts"
    """Where in {out} it writes rollouts, in a format of docs/importers.md; a folder, a file, or a pattern. Empty:
    none, and the harness sees no training."""
    rollout_format: str = ""
    """Format of the rollouts; default: recognised."""
    metrics: str = "metrics.jsonl"
    """Where in {out} it writes a row a step; a file, or a pattern: of a step that several tell of, the last counts.
    Empty: none."""
    policy: str = "policy"
    """Where in {out} it leaves the policy: a Hugging Face folder or peft adapters; a folder or a pattern."""
    checkpoint: str = ""
    """Where in {out} it keeps its checkpoints; a folder or a pattern (the last match is {checkpoint}). Empty: a
    training that was interrupted begins anew."""
    resume: Words = ()
    """Arguments that are added where there is a checkpoint to go on from: --resume_from_checkpoint {checkpoint}."""
    patience_s: float = Field(1800.0, gt=0)
    """Seconds without a new row of metrics or rollouts after which it counts as hung."""
    grace_s: float = Field(10.0, ge=0)
    """Seconds between SIGTERM and SIGKILL where it is ended."""
    restarts: int = Field(2, ge=0)
    """Times that it is started again where a signal ended it."""
    log_bytes: int = Field(2_000_000, ge=1000)
    """Of what it prints, this much of the beginning and of the end is kept, in `command/log.txt` of the trial."""
    task_data: bool = False
    """Whether the tasks that it gets hold what grading needs, too (answers, hidden tests). With them it can pay the
    outcome itself."""
    grade: bool = True
    """Rollouts at train tasks are scored by the environment as well: components and outcome for the harness."""
    device: Literal["auto", "cpu"] = "auto"
    """cpu: it takes no GPU, and trials run side by side."""
    evaluation: EvaluationOptions = EvaluationOptions()

    _words = field_validator("command", "check", "resume", mode="before")(words)

    @model_validator(mode="before")
    @classmethod
    def _named_map(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "map" in given:
            rows = given["map"]
            rows = {"preset": rows} if isinstance(rows, str) else dict(rows) if isinstance(rows, Mapping) else rows
            if isinstance(rows, dict):
                preset = rows.pop("preset", given.get("preset", ""))
                known = PRESETS[preset].options if preset in PRESETS else {}
                return {**known, **given, "map": flattened(rows), "preset": preset}
        return given


def flattened(rows: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Rows by dotted names: `clip.high = "--x"` is a section in TOML."""
    out: dict[str, Any] = {}
    for k, v in rows.items():
        if isinstance(v, Mapping) and "to" not in v:
            out |= flattened(v, f"{before}{k}.")
        else:
            out[f"{before}{k}"] = v
    return out


def parse(options: Mapping[str, Any]) -> CommandOptions:
    """ConfigError names each bad option and what it allows."""
    return parsed(CommandOptions, options, "trainer.options")


def filled(given: Sequence[str], names: Mapping[str, object]) -> list[str]:
    """Words with {names} in place, {python} among them; what is no name of ours stays."""
    out = []
    for word in given:
        for name, value in {"python": sys.executable, **names}.items():
            word = word.replace(f"{{{name}}}", str(value))
        out.append(word)
    return out
