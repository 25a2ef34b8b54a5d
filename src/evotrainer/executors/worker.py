"""The process of one trial: `python -m evotrainer.executors.worker TRIAL_DIR`.

It dies with its parent, locks its folder, checkpoints, writes `result.json` last. Started again after a kill it goes
on from its checkpoint to the same result, after its end it does nothing."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.envs.user_files import WATCH
from evotrainer.errors import BudgetError, EvoTrainerError, StoreError, TrainerError
from evotrainer.executors.data_keys import asked, received
from evotrainer.executors.devices import gpus_held
from evotrainer.executors.health import read_health
from evotrainer.executors.path_map import asked_path, read_places, relative, relocated_spec
from evotrainer.executors.process import EXIT_BUSY, ProcessCpuClock, die_with_parent, folder_lock, leave
from evotrainer.executors.scores import check_faults, on_guard, split_score, unrecordable
from evotrainer.executors.spec import (
    EvalPlan,
    Heartbeat,
    TrialSpec,
    read_heartbeat,
    read_spec,
    store_dirs,
    write_atomic,
)
from evotrainer.executors.start_checkpoint import check_one_part, saved, start_fields, take_rollouts
from evotrainer.executors.warm_start import make_base
from evotrainer.executors.written import check_trained, hook_fields, unpayable_of, with_written
from evotrainer.records.clock import unix_time
from evotrainer.records.durable import disk_trouble, os_trouble, sha256_tree
from evotrainer.records.events import SplitScore, TrialFinished
from evotrainer.records.faults import fault_point
from evotrainer.records.keys import USER_CODE, guard_of
from evotrainer.records.probes import PROBE_CPU
from evotrainer.records.sealed import Key, SealedSplits
from evotrainer.trainers.bases import use_places
from evotrainer.trainers.clock import LIFE
from evotrainer.trainers.continued import use_scaffold

if TYPE_CHECKING:
    from evotrainer.envs.base import Environment
    from evotrainer.records.rollout import Rollout
    from evotrainer.records.store import StoredPart
    from evotrainer.trainers.base import Trainer, TrainRequest

    Groups = Sequence[Sequence[Rollout]]


class TrialProcess:
    """Runs one trial in its folder."""

    def __init__(self, folder: Path, key: bytes = b"") -> None:
        """`key`: what gate and cert are encrypted with, where the specification names one and they are evaluated."""
        self.folder = folder
        self.key = Key(key).hold() if key else None
        self.run_dir = folder.parent.parent
        self.places = read_places(folder)
        self.spec: TrialSpec = relocated_spec(read_spec(folder), self.places)
        use_places(self.places)
        self.resumed = (before := read_heartbeat(folder)) is not None
        self.clock = ProcessCpuClock(before.cpu_s if before else 0.0, folder)
        self.started = time.monotonic()
        self.earlier_gpu_s = before.gpu_s if before else 0.0
        self.step, self.phase = 0, "starting"
        self.steps = self.spec.recipe.whole_steps if self.spec.train else 0
        self.score: float | None = None
        self.hooks: dict[str, Any] = {}

    def beat(
        self, phase: str | None = None, step: int | None = None, score: float | None = None, waits_for: str = ""
    ) -> None:
        """Report progress to the supervisor. `waits_for`: a call of the user's code; the next report is of the phase
        again."""
        self.phase = phase or self.phase
        self.step = self.step if step is None else step
        self.score = self.score if score is None else score
        h = Heartbeat(
            pid=os.getpid(),
            step=self.step,
            steps=self.steps,
            phase=f"{USER_CODE}{waits_for}" if waits_for else self.phase,
            cpu_s=self.clock.cpu_s(),
            gpu_s=self.gpu_s(),
            time=unix_time(),
            score=self.score,
        )
        write_atomic(self.folder / "heartbeat", h.model_dump_json(), durable=False)

    def gpu_s(self) -> float:
        """GPU-seconds of all attempts: a GPU that is held is paid for, busy or not."""
        takes = self.spec.trainer != "embedded" and self.spec.trainer_options.get("device") != "cpu"
        return self.earlier_gpu_s + gpus_held(takes) * (time.monotonic() - self.started)

    def policy_path(self) -> Path:
        return self.run_dir / self.spec.policy_dir

    def run(self) -> TrialFinished:
        """Train, evaluate, seal; returns the body of the `finished` event."""
        self.beat("starting")
        LIFE.sign = self.beat
        WATCH.sign = lambda what, seconds: self.beat(waits_for=what)
        from evotrainer.records.canaries import canary_flips
        from evotrainer.records.store import RolloutStore

        spec = self.spec
        with self.opened() as (trainer, environment):
            self.draw_tasks(environment)
            start = self.start_policy(environment)
            parts: list[StoredPart] = []
            curve: list[dict[str, float]] = []
            policy = start
            with contextlib.closing(RolloutStore(self.run_dir / "rollouts" / spec.trial)) as store:
                if spec.train:
                    policy, curve = self.train(trainer, environment, start, store)
                scores = [
                    self.evaluate(trainer, environment, policy, plan, store) for plan in spec.evals if not plan.sealed
                ]
                self.beat("sealing")
                parts += store.seal()
            self.beat("reading")
            if spec.train:
                protected = unpayable_of(environment, spec.environment)
                check_trained(spec.recipe, self.run_dir / "rollouts" / spec.trial, protected, spec.accept_tier_e)
            greedy = next((s.greedy_per_task for s in scores if s.split == "search"), None) or None
            health = read_health(spec, self.run_dir / "rollouts" / spec.trial, environment.proxy, curve, greedy)
            own, sealed = store_dirs(self.run_dir, spec.trial)
            if closed := [p for p in spec.evals if p.sealed]:
                with contextlib.closing(RolloutStore(sealed, key=asked(spec, self.key))) as store:
                    scores += [self.evaluate(trainer, environment, policy, plan, store) for plan in closed]
                    parts += store.seal()
            flips = canary_flips([own, sealed])
            sha = trainer.policy_sha256(policy)
        self.beat("done")
        return TrialFinished(
            trial=spec.trial,
            branch=spec.branch,
            seed=spec.seed,
            status="complete",
            cpu_s=round(self.clock.cpu_s(), 3),
            wall_s=round(time.monotonic() - self.started, 3),
            gpu_s=round(self.gpu_s(), 3),
            steps=len(curve),
            resumed=int(self.resumed),
            peak_rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            policy_sha256=sha,
            policy_path=asked_path(relative(policy, self.run_dir), self.places),
            scores=tuple(map(self.key.score, scores) if self.key else scores),
            curve=tuple(curve),
            health=health,
            parts=tuple(str(p.path.relative_to(self.run_dir)) for p in parts),
            parts_sha256=tuple(p.sha256 for p in parts),
            files=self.fingerprints(policy),
            env_knobs={**spec.protocol.knobs, **spec.env_knobs},
            canary_flips=flips,
            **start_fields(self.folder),
        )

    @contextlib.contextmanager
    def opened(self) -> Iterator[tuple[Trainer, Environment]]:
        """The trainer, and the environment until it is closed."""
        from evotrainer.envs import open_environment
        from evotrainer.trainers import get_trainer

        spec = self.spec
        trainer = get_trainer(spec.trainer, spec.sampler_dtype, spec.trainer_options)
        with (
            contextlib.closing(open_environment(spec.environment, accept_tier_e=spec.accept_tier_e)) as environment,
            with_written(environment, spec.recipe, spec.environment, spec.accept_tier_e) as whole,
            hook_fields(whole, spec.recipe, spec.environment, spec.accept_tier_e) as self.hooks,
        ):
            if (prober := getattr(environment, "prober", None)) is not None:
                prober.ledger = self.run_dir / PROBE_CPU  # one budget for the run
            yield trainer, whole

    def draw_tasks(self, environment: Environment) -> None:
        """Gate and cert of the run's seed, where it drew one; IntegrityError where the seed is lost or another."""
        if name := next((p.draw for p in self.spec.evals if p.draw), ""):
            SealedSplits(self.run_dir).give_tasks(environment, name)

    def fingerprints(self, policy: Path) -> dict[str, str]:
        """Checksums of this trial's specification and of the policy, where the trial made it."""
        own = [self.folder / "spec.json", *([policy] if policy.is_relative_to(self.folder) else [])]
        return {k: v for p in own for k, v in sha256_tree(p, self.run_dir).items()}

    def start_policy(self, environment: Environment) -> Path:
        """The start policy's folder; trains it first where the task asks for a warm start."""
        if self.spec.policy_dir:
            return self.policy_path()
        out = self.folder / "policy"
        w = self.spec.warm_start
        if w is None:
            raise StoreError(f"{self.folder}: neither a start policy nor a warm start in spec.json")
        if not (out / "model.safetensors").is_file():
            trained, self.steps = self.steps, w.all_steps
            self.beat("warm start")
            make_base(
                environment,
                w,
                out,
                lambda row: self.beat("warm start", int(row["step"])),
                trainer=self.spec.trainer,
                trainer_options=self.spec.trainer_options,
            )
            self.step, self.steps = 0, trained
        return out

    def train_only(self) -> None:
        """Only the training, no evaluations after it: an ordinary start goes on from its checkpoint and rollouts."""
        from evotrainer.records.store import RolloutStore

        check_one_part(self.spec.recipe)
        self.beat("starting")
        with self.opened() as (trainer, environment):
            with contextlib.closing(RolloutStore(self.run_dir / "rollouts" / self.spec.trial)) as store:
                self.train(trainer, environment, self.start_policy(environment), store)
        self.beat("trained")

    def assist(self) -> None:
        """A further process of a data-parallel training: trains along, and leaves all that is recorded to the first."""
        check_one_part(self.spec.recipe)
        with self.opened() as (trainer, environment):
            use_scaffold(environment, self.spec.recipe)
            trainer.train(self.request(self.policy_path()), environment, lambda _: None, lambda _: None)

    def request(self, start: Path) -> TrainRequest:
        from evotrainer.trainers.base import Identity, TrainRequest

        spec = self.spec
        return TrainRequest(
            identity=Identity(spec.run, spec.branch, spec.seed),
            recipe=spec.recipe,
            policy_dir=start,
            work_dir=self.folder,
            checkpoint_every=spec.checkpoint_every,
            run_dir=self.run_dir,
            environment=spec.environment,
            accept_tier_e=spec.accept_tier_e,
            **self.hooks,
        )

    def train(
        self, trainer: Trainer, environment: Environment, start: Path, store: Any
    ) -> tuple[Path, list[dict[str, float]]]:
        from evotrainer.trainers.continued import train_chain

        spec = self.spec
        limit, saved_s = spec.cpu_limit_s, saved(self.folder)

        def within(step: int) -> None:
            if limit is not None and (used := saved_s + self.clock.cpu_s()) > limit:
                raise BudgetError(
                    f"trial {spec.trial} used {used:.0f} CPU-s of {limit:.0f} at step "
                    f"{step}; raise budget.trial_cpu_s or lower recipe.steps"
                )

        def on_step(row: dict[str, float]) -> None:
            self.beat("training", int(row["step"]), row.get("score"))
            fault_point(f"trial:step:{int(row['step'])}")
            within(int(row["step"]))

        def watch(step: int, reward: float | None) -> None:
            if step != self.step:
                self.beat("training", step)
            within(step)

        request = replace(self.request(start), cpu_s=limit, watch=watch)
        self.beat("training")
        take_rollouts(self.folder, store)

        def sink(groups: Groups) -> None:
            check_faults(spec.trial, "train", groups)
            store.append(groups)

        result = train_chain(trainer, request, environment, sink, on_step)
        return result.policy_dir, list(result.curve)

    def evaluate(
        self, trainer: Trainer, environment: Environment, policy: Path, plan: EvalPlan, store: Any
    ) -> SplitScore:
        """Score a split; read twice where the plan asks for it: sampled as the protocol says, then greedily."""
        from evotrainer.records.rollout import greedy_split
        from evotrainer.trainers.base import EvalRequest, Identity

        spec = self.spec
        use_scaffold(environment, spec.protocol)
        request = EvalRequest(
            identity=Identity(spec.run, spec.branch, spec.seed),
            recipe=spec.protocol.of_attempts,
            policy_dir=policy,
            split=plan.of or plan.split,
            step=spec.recipe.whole_steps if spec.train else spec.policy_step,
            attempts=plan.attempts,
            tasks=plan.tasks,
            env_knobs=spec.env_knobs,
        )

        def recorded(groups: Groups) -> Groups:
            return [[on_guard(r, guard_of(spec.trial)) for r in g] for g in groups] if plan.of else groups

        def sink(groups: Groups) -> None:
            check_faults(spec.trial, plan.split, groups)
            store.append(recorded(groups))
            self.beat()

        def attempted(asked: EvalRequest, name: str) -> Groups:
            self.beat(f"evaluating {name}")
            groups = recorded(trainer.evaluate(asked, environment, sink))
            fault_point(f"trial:evaluated:{name}")
            return groups

        return split_score(
            attempted(request, plan.split),
            plan.split,
            request.step,
            plan.attempts,
            environment.proxy[0] if environment.proxy else "",
            attempted(replace(request, attempts=1, greedy=True), greedy_split(plan.split)) if plan.greedy else (),
            spec.recipe.deploy_temperature,
        )


def main(argv: Sequence[str], key: bytes = b"") -> int:
    """Run the trial of a folder; see `guarded` for the exit code."""
    folder = Path(argv[0])
    die_with_parent(int(argv[1]) if len(argv) > 1 else 0)
    return guarded(folder, lambda f: run_trial_to_end(f, key))


def run_trial_to_end(folder: Path, key: bytes = b"") -> None:
    """A trial from its start, or its last checkpoint, to its result."""
    finished = TrialProcess(folder, key).run()
    fault_point("trial:before-result")
    write_atomic(folder / "result.json", finished.model_dump_json())
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)  # 10 MB a trial that nobody needs any more


def guarded(folder: Path, act: Callable[[Path], None]) -> int:
    """0 where `act` did its work or result.json is there; else an EvoTrainerError's code with `error` telling why.

    A full disk is a StoreError, wherever it shows. What no EvoTrainerError tells is raised: its traceback is logged.
    """
    try:
        with folder_lock(folder) as held:
            if not held:
                return EXIT_BUSY
            if (folder / "result.json").is_file():
                return 0
            (folder / "error").unlink(missing_ok=True)
            act(folder)
    except SystemExit as e:
        report_error(
            folder, TrainerError(f"something called sys.exit({e.code!r}) in the trial; see {folder / 'log.txt'}")
        )
        return TrainerError.exit_code
    except Exception as e:
        known = unrecordable(e)
        if not isinstance(e, StoreError) and (cause := disk_trouble(e)) is not None:
            known = os_trouble(f"trial {folder.name} cannot write", cause)
        if not isinstance(known, EvoTrainerError):
            raise
        report_error(folder, known)
        return known.exit_code
    return 0


def report_error(folder: Path, e: Exception) -> None:
    """Leave an error's line in the log and in the trial's `error`, as far as the disk lets us."""
    line = str(e) or type(e).__name__
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())  # print would raise on a full disk, and end the process with another code
    with contextlib.suppress(StoreError, OSError):
        write_atomic(folder / "error", line)


if __name__ == "__main__":
    done = main(sys.argv[1:], received(sys.argv[1:]))
    if done:
        raise SystemExit(done)
    leave(done)
