"""`doctor`, `init`, `base`."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.commands.common import console
from evotrainer.errors import ConfigError, EvoTrainerError, SandboxError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.sandbox import Sandbox
    from evotrainer.sandbox.arena import Held


def doctor(*, accept_tier_e: bool, attack: bool = False) -> None:
    """One line per thing checked; exit code 5 where no sandbox isolates or an attack gets through, 6 without a trainer."""
    problems: list[EvoTrainerError] = []
    print(f"[ ok ] python {sys.version.split()[0]} at {sys.executable}")
    from evotrainer.config.task import default_workers

    print(f"[ ok ] {default_workers()} core(s): so many trials side by side, one thread each")
    try:
        from evotrainer.trainers import check_installed, get_trainer

        check_installed("embedded")
        get_trainer("embedded")
        print("[ ok ] embedded trainer: PyTorch is there and imports")
    except EvoTrainerError as e:
        problems.append(e)
        print(f"[FAIL] embedded trainer: {e}")
    from evotrainer.sandbox import Sandbox

    try:
        with Sandbox.open(accept_tier_e=accept_tier_e) as sb:
            good = "ok" if sb.tier == "A" else "warn"
            print(f"[{good:^4}] sandbox tier {sb.tier}")
            print("       " + str(sb.report).replace("\n", "\n       "))
            if attack and (broken := _attacked(sb)):
                problems.append(
                    SandboxError(
                        f"{broken} of the attacks above got through that tier {sb.tier} promises to stop; grade nothing with this "
                        "sandbox, and report the lines marked BROKEN with your kernel's version"
                    )
                )
    except SandboxError as e:
        problems.append(e)
        print(f"[FAIL] sandbox: {e}")
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    print(f"[{'ok' if free > 2 else 'warn':^4}] {free:.1f} GB free here (a quickstart run takes about 0.15 GB)")
    for tool, use in (("chromium", "the report's browser tests"), ("git", "repository tasks")):
        found = shutil.which(tool)
        print(f"[{'ok' if found else 'warn':^4}] {tool}: {'found' if found else 'missing'} ({use})")
    if problems:
        raise problems[0]


def _attacked(box: Sandbox) -> int:
    """Try every attack on programs and on an episode shell, print how each ended; how many broke a promise of the tier."""
    from evotrainer.envs.swe.instance_world import LIMITS as INSTANCES
    from evotrainer.sandbox.attacks import ESCAPES, attack_shell
    from evotrainer.sandbox.model import TIERS
    from evotrainer.sandbox.residues import RESIDUES
    from evotrainer.sandbox.shell import EpisodeShell, ShellLimits
    from evotrainer.sandbox.tricks import TRICKS

    def told(where: str, found: Iterable[Held]) -> int:
        broken = tried = 0
        for one in found:
            promised = TIERS.index(one.tier) >= TIERS.index(box.tier)
            mark = "held  " if one.held else "BROKEN" if promised else "open  "
            print(f"       {mark} {where}: {one.name}{f' [{one.detail}]' if one.detail else ''}", flush=True)
            broken += promised and not one.held
            tried += 1
        print(
            f"[{'FAIL' if broken else ' ok '}] {where}: {tried} attacks, {broken} got through against the tier's promise"
        )
        return broken

    broken = told("program", box.attack((*ESCAPES, *RESIDUES, *TRICKS)))
    try:
        for name, limits in (("episode shell", ShellLimits()), ("shell of instances", INSTANCES)):
            with EpisodeShell.open(limits=limits) as shell:
                broken += told(name, attack_shell(shell))
    except SandboxError as error:
        print(f"[warn] episode shells cannot be had here: {error}")
    return broken


def init(folder: Path, name: str) -> None:
    """Copy the scaffold; an existing folder with files in it is left alone."""
    from importlib import resources

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty; choose a new folder")
    title = name or re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-") or "my-task"
    source = resources.files("evotrainer.scaffold")
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("task.toml", "environment.py"):
        text = (source / file).read_text(encoding="utf-8")
        (folder / file).write_text(text.replace('"NAME"', json.dumps(title)), encoding="utf-8")
    print(f"wrote {folder / 'task.toml'} and {folder / 'environment.py'}: tasks, rewards, splits, demonstrations")
    print(f"run it: evotrainer run {folder / 'task.toml'}")


def base(task: Path, overrides: Sequence[str], out: Path, *, bf16: bool) -> None:
    """Warm start from scratch, into a folder that transformers can load."""
    from evotrainer.config.task import load_task
    from evotrainer.envs import open_environment
    from evotrainer.executors.warm import make_base
    from evotrainer.trainers import get_trainer

    resolved = load_task(task, overrides)
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty; choose a new folder")
    trainer = get_trainer(resolved.trainer.name, options=resolved.trainer.options)
    world = open_environment(resolved.environment, accept_tier_e=resolved.sandbox.accept_tier_e)
    from rich.progress import Progress

    try:
        with Progress(console=console(stderr=True), transient=True) as bar:
            job = bar.add_task("warm start", total=resolved.policy.warm_start.all_steps)

            def show(row: dict[str, float]) -> None:
                bar.update(job, completed=row["step"], description=f"warm start, loss {row['loss']:.3f}")

            make_base(world, resolved.policy.warm_start, out, show, bf16=bf16,
                      trainer=resolved.trainer.name, trainer_options=resolved.trainer.options)  # fmt: skip
    finally:
        world.close()
    print(f"wrote {out} (sha256 {trainer.policy_sha256(out)[:16]}); use it with policy.base={json.dumps(str(out))}")


def admit(task: Path, overrides: Sequence[str], *, split: str | None, limit: int | None) -> None:
    """Try every repository task with its fix, with nothing and with cheats, every program's task with its own solution and
    with nothing; exit 1 where one is refused."""
    from rich.progress import Progress

    from evotrainer.config.task import load_task
    from evotrainer.envs import open_environment
    from evotrainer.envs.admission import Verdict
    from evotrainer.envs.code.admission import admit_code
    from evotrainer.envs.code.env import CodeEnv
    from evotrainer.envs.code.task_list import ListSource
    from evotrainer.envs.swe.admission import admit as tried
    from evotrainer.envs.swe.env import SweEnv

    resolved = load_task(task, overrides)
    name = resolved.environment.get("name")
    rows = "source" in resolved.environment or name in ("swe-instances", "mbpp", "humaneval", "jsonl")
    described = {**resolved.environment, **({"admit": False} if rows and name not in ("math", "gsm8k") else {})}
    world = open_environment(described, accept_tier_e=resolved.sandbox.accept_tier_e)  # tried here, with progress
    split = split or ("cert" if rows else "search")
    try:
        programs = isinstance(world, CodeEnv) and isinstance(world.source, ListSource)
        if not programs and not isinstance(world, SweEnv):
            raise ConfigError(
                f"environment {world.name} has no repositories to admit, nor programs with solutions; admission is for name = swe, "
                "swe-instances, or code with a source"
            )
        tasks = list(world.tasks(split))[:limit]
        with Progress(console=console(stderr=True), transient=True) as bar:
            job = bar.add_task(f"admission of {split}", total=len(tasks))

            def show(v: Verdict) -> None:
                bar.advance(job)

            if isinstance(world, CodeEnv):
                report = admit_code(world, tasks, progress=show)
            else:
                assert isinstance(world, SweEnv)
                report = tried(tasks, world.world, progress=show)
    finally:
        world.close()
    print(report)
    if report.refused:
        raise SystemExit(1)
