"""The command trainer: a user's training script, asked by files and read by files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError, FaultsError, TrainerError
from evotrainer.records import keys
from evotrainer.records.durable import os_errors, replace_synced
from evotrainer.records.faults import fault_point
from evotrainer.records.output import print
from evotrainer.records.processes import descendants_cpu_s
from evotrainer.records.regular_file import read_object
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import counted
from evotrainer.records.weights import weights_sha256
from evotrainer.trainers import get_trainer
from evotrainer.trainers.base import EvalRequest, RolloutSink, Trainer, TrainerEnvironment, TrainRequest, TrainResult
from evotrainer.trainers.command import outputs
from evotrainer.trainers.command.evaluation import PolicyServer, by_program, play_out
from evotrainer.trainers.command.mapping import Mapped, rendered
from evotrainer.trainers.command.options import SAMPLERS, CommandOptions, filled, parse
from evotrainer.trainers.command.passing_folder import passing_folder
from evotrainer.trainers.command.process import Command, CommandEnd
from evotrainer.trainers.command.request import CommandRequest, write_request, write_tasks
from evotrainer.trainers.continued import check_alone

HOME, POLICY, OUT, DONE = "command", "policy", "out", "done.json"


class CommandTrainer:
    """Trainer whose steps a program of the user's makes; `options`: see `CommandOptions`."""

    name = "command"

    def __init__(self, options: Mapping[str, Any] | CommandOptions) -> None:
        self.options = options if isinstance(options, CommandOptions) else parse(options)
        self.mapped = Mapped.of(self.options)
        self._sampler: Trainer | None = None
        self._served = PolicyServer(self.options)

    def policy_sha256(self, policy_dir: Path) -> str:
        """SHA-256 of the weights (of adapters: theirs)."""
        if (sha := weights_sha256(Path(policy_dir))) is None:
            raise TrainerError(f"policy {policy_dir}: no safetensors weights there; restore the policy folder")
        return sha

    # -- training ------------------------------------------------------------------------------------------------------

    def train(
        self,
        request: TrainRequest,
        environment: TrainerEnvironment,
        sink: RolloutSink,
        on_step: Callable[[dict[str, float]], None],
    ) -> TrainResult:
        """Run the command, or take what it has left already; then read it.

        `on_step` and `sink` get all steps at the end: a command that starts again, from its checkpoint or anew, samples
        steps a second time, and the store forgets nothing. `request.watch` is told of them as they are made.
        TrainerError where the command fails, FaultsError where it does not do what it promised (no policy, nothing
        readable, hung).
        """
        check_alone(request)
        if refused := self.mapped.refusals(request.recipe):
            raise TrainerError(f"trainer command: {'; '.join(refused)}")
        home = request.work_dir / HOME
        out = home / OUT
        tasks = {str(t.id): t for t in environment.tasks("train")}
        done = read_object(home / DONE)
        with os_errors(f"cannot write {home}"):
            home.mkdir(parents=True, exist_ok=True)
        lines = write_tasks(
            home / "tasks.jsonl", environment, tasks.values(), request.recipe.knobs, self.options.task_data
        )
        resumed = bool(done)
        if not done:
            done, resumed = self._run(request, home, out)
            fault_point("command:ended")
            replace_synced(home / DONE, json.dumps(done).encode())
        fault_point("command:done")
        name = self._command(request, home, "").name
        by_step = outputs.labelled(outputs.read_rollouts(out, self.options, name), request, environment, lines)
        if self.options.grade:
            by_step = {
                s: outputs.graded(groups, environment, tasks, request.recipe.knobs) for s, groups in by_step.items()
            }
        if len(by_step) == 1 < request.recipe.steps:
            print("note: all rollouts tell one step; have each tell its own (`step`): they are read as one", flush=True)
        seen = {int(k): float(v) for k, v in done["steps"].items()}
        curve = outputs.curve_of(outputs.read_metrics(out, self.options), by_step, request, seen, done["cpu_s"])
        if not curve:
            raise FaultsError(
                f"{name} left neither rollouts nor metrics in {out}: nothing tells what it did; have it write one of "
                "them, and name the place in trainer.options"
            )
        if len(curve) < request.recipe.steps:
            steps = counted(request.recipe.steps, "step")
            print(f"note: the command tells of {len(curve)} of the recipe's {steps}", flush=True)
        for row in curve:
            if groups := by_step.get(int(row["step"])):
                sink(groups)
            on_step(row)
        self._take_policy(request, out)
        return TrainResult(len(curve), request.work_dir / POLICY, curve, resumed)

    def check(self, request: TrainRequest, environment: TrainerEnvironment) -> None:
        """Have the command's own check (`trainer.options.check`) look at what a training would be given; ConfigError
        where it refuses that."""
        if not self.options.check:
            return
        with passing_folder() as home:
            (home / OUT).mkdir()
            tasks, knobs = environment.tasks("train"), request.recipe.knobs
            write_tasks(home / "tasks.jsonl", environment, tasks, knobs, self.options.task_data)
            command = replace(self._command(request, home, "", self.options.check), kept=False)
            if status := command.run(lambda: None).status:
                raise ConfigError(
                    f"trainer.options.check refuses the recipe (exit code {status}); it printed last: "
                    f"{command.last_words()}"
                )

    def _run(self, request: TrainRequest, home: Path, out: Path) -> tuple[dict[str, Any], bool]:
        """(what is noted of a command that ended well, did it go on from a checkpoint?)."""
        o = self.options
        steps: dict[int, float] = {}
        used, resumed = 0.0, False
        for attempt in range(o.restarts + 1):
            checkpoint = str(found[-1]) if (found := outputs.matches(out, o.checkpoint)) else ""
            resumed = resumed or bool(checkpoint)
            if not checkpoint:
                shutil.rmtree(out, ignore_errors=True)
            with os_errors(f"cannot write {out}"):
                out.mkdir(parents=True, exist_ok=True)
            signs = outputs.Signs(out, o)

            def look(signs: outputs.Signs = signs, used: float = used) -> None:
                step, reward = signs.step()
                cpu_s = used + descendants_cpu_s(os.getpid())
                if 0 < step <= request.recipe.steps:
                    steps.setdefault(step, cpu_s)
                request.watch(step + request.before, reward)

            command = self._command(request, home, checkpoint)
            end = command.run(signs, look)
            used += end.cpu_s
            if end.status >= 0:
                break
            print(f"note: signal {-end.status} ended the command, start {attempt + 1}", flush=True)
        self._check_end(command, end, out)
        return {"cpu_s": used, "steps": steps, "left": end.left, "printed": end.printed}, resumed

    def _check_end(self, command: Command, end: CommandEnd, out: Path) -> None:
        if end.left:
            print(f"note: the command left {counted(end.left, 'process')} behind, which were ended", flush=True)
        words = f"; it printed last: {last}" if (last := command.last_words()) else ""
        if end.status:
            how = f"signal {-end.status} ended it, each of {self.options.restarts + 1} times (out of memory?)"
            raise TrainerError(
                f"{command.name} failed: {how if end.status < 0 else f'exit code {end.status}'}{words}; see "
                f"{command.folder / 'log.txt'}"
            )
        if outputs.policy_folder(out, self.options) is None:
            raise FaultsError(
                f"{command.name} ended with exit code 0 and left no policy (safetensors) in "
                f"{out / self.options.policy}{words}; have it save one, or name its place in trainer.options.policy"
            )

    def _command(self, request: TrainRequest, home: Path, checkpoint: str, words: Sequence[str] = ()) -> Command:
        """The command of a training, or `words` in its place, its request and configuration written."""
        o, i, out = self.options, request.identity, home / OUT
        trial = keys.training(i.branch, i.seed)
        asked = CommandRequest(
            purpose="train",
            trial=trial,
            seed=request.draws % 2**31,
            recipe=request.recipe,
            steps=request.recipe.steps,
            before=request.before,
            tasks=str((home / "tasks.jsonl").absolute()),
            policy=str(request.policy_dir.absolute()),
            out=str(out.absolute()),
            rollouts=str(out.absolute() / o.rollouts) if o.rollouts else "",
            metrics=str(out.absolute() / o.metrics) if o.metrics else "",
            policy_out=str(out.absolute() / o.policy),
            checkpoint=str(Path(checkpoint).absolute()) if checkpoint else "",
            environment=dict(request.environment),
            accept_tier_e=request.accept_tier_e,
            cpu_s=request.cpu_s,
        )
        names = write_request(home, asked)
        argv = rendered(self.mapped, request.recipe, names, home.absolute(), words)
        if checkpoint:
            argv += filled(o.resume, names)
        return self._as_command(argv, names, home)

    def _as_command(self, argv: list[str], names: Mapping[str, object], home: Path) -> Command:
        o = self.options
        env = dict(zip(o.env, filled(list(o.env.values()), names), strict=True))
        cwd = Path(o.cwd or ".").absolute()
        return Command(argv, cwd, env, home.absolute(), o.patience_s, o.grace_s, o.log_bytes)

    def _take_policy(self, request: TrainRequest, out: Path) -> None:
        folder = request.work_dir / POLICY
        found = outputs.policy_folder(out, self.options)
        if found is None:
            raise FaultsError(f"the policy in {out} is gone; delete {out.parent} and resume: it is trained again")
        outputs.take_policy(found, folder, Path(request.policy_dir), request.run_dir)

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def evaluate(self, request: EvalRequest, environment: TrainerEnvironment, sink: RolloutSink) -> list[list[Rollout]]:
        """Groups in task order, scored by the environment."""
        by = self.options.evaluation
        if by.by in SAMPLERS:
            if self._sampler is None:
                self._sampler = get_trainer(by.by, "fp32", by.options)
            return self._sampler.evaluate(request, environment, sink)
        if by.by == "command":
            groups = by_program(self.options, request, environment)
        else:
            groups = play_out(self._served.of(request).asker(request), request, environment, by.parallel)
        sink(groups)
        return groups

    def close(self) -> None:
        """End the server of an evaluation, if there is one; it also ends with this process."""
        self._served.close()
