"""`evotrainer doctor`: is this machine fit for runs?"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evotrainer.cli._common import AsJson
from evotrainer.errors import AgentError, ConfigError, EvoTrainerError, SandboxError
from evotrainer.records.output import print
from evotrainer.records.text import counted

if TYPE_CHECKING:
    from evotrainer.sandbox import Sandbox
    from evotrainer.sandbox.attack_targets import ProbeResult

CHECK = re.compile(r"\[(.{4})\] (.*)")
"""A line of the text: how it stands (ok, warn, FAIL), and what was looked at."""


def doctor(
    *,
    accept_tier_e: Annotated[
        bool, typer.Option("--accept-tier-e", help="Do not fail where the sandbox can isolate nothing (tier E).")
    ] = False,
    attack: Annotated[
        bool, typer.Option("--attack", help="Try every attack that ships on the sandbox; about a minute.")
    ] = False,
    seat: Annotated[
        Path | None,
        typer.Option(metavar="TASK", help="Ask the seat of this task file, an endpoint in each output mode."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine: Python, PyTorch, sandbox tier, disk; says what is missing and how to get it.

    Example: evotrainer doctor --attack
    """
    with redirect_stdout(StringIO()) if as_json else nullcontext() as text:
        problems = _checks(accept_tier_e, attack, seat)
    if as_json:
        found = [CHECK.match(row) for row in (text.getvalue() if text else "").splitlines()]
        checks = [{"status": m[1].strip(), "text": m[2]} for m in found if m]
        print(json.dumps({"ok": not problems, "checks": checks, "problems": list(map(str, problems))}, indent=1))
    if problems:
        raise problems[0]


def _checks(accept_tier_e: bool, attack: bool, seat: Path | None) -> list[EvoTrainerError]:
    """Print a line for each thing that was looked at; return what keeps runs from working."""
    from evotrainer.config.task import default_workers

    print(f"[ ok ] python {sys.version.split()[0]} at {sys.executable}")
    print(f"[ ok ] {counted(default_workers(), 'core')}: so many trials side by side, one thread each")
    problems = [*_trainer(), *_sandbox(accept_tier_e, attack)]
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    print(f"[{'ok' if free > 2 else 'warn':^4}] {free:.1f} GB free here (a quickstart run takes about 0.15 GB)")
    print(f"[ ok ] {_cache()}")
    for tool, use in (("chromium", "the report's browser tests"), ("git", "repository tasks")):
        found = shutil.which(tool)
        print(f"[{'ok' if found else 'warn':^4}] {tool}: {'found' if found else 'missing'} ({use})")
    return problems + (_seat(seat) if seat else [])


def _seat(task: Path) -> list[EvoTrainerError]:
    """What keeps the seat of a task file from answering a small, made-up request."""
    from evotrainer.agents.seat.trial_request import try_seat
    from evotrainer.config.load import load_task

    run = load_task(task).run
    try:
        if run.agent != "seat":
            raise ConfigError(f"{task}: run.agent is {run.agent}; only agent seat asks somebody")
        if run.agent_options.get("carrier") == "llm":
            _outputs(run.agent_options)
        else:
            tried = try_seat(run.agent_options)
            print(f"[{'warn' if tried.mismatch else 'ok':^4}] seat: {tried.line}")
    except EvoTrainerError as e:
        print(f"[FAIL] seat: {e}")
        return [e]
    return []


def _outputs(options: Mapping[str, Any]) -> None:
    """Ask an endpoint once in each output mode, and name the cheapest that works; AgentError where the mode that is set
    does not."""
    from evotrainer.agents.seat.trial_request import seat_of, try_outputs

    is_set, works, problem = seat_of(options).options.output_mode, [], ""
    for t in try_outputs(options):
        outcome = (
            f"no valid answer: {t.problem}" if t.problem else t.line if t.mismatch else f"valid answer in {t.summary}"
        )
        print(f"[{'warn' if t.problem or t.mismatch else 'ok':^4}] seat: output {t.output}: {outcome}")
        works += [] if t.problem else [t]
        problem = t.problem if t.output == is_set else problem
    best = min(works, key=lambda t: t.price, default=None)
    advice = f'set run.agent_options.output = "{best.output}"' if best else "try another model"
    if best:
        tokens = best.input_tokens + best.output_tokens
        how = "as it is set" if best.output == is_set else advice
        print(f"[ ok ] seat: cheapest output mode that works: {best.output}, {tokens} tokens ({how})")
    if problem:
        raise AgentError(f"output mode {is_set} gives no valid answer: {problem}; {advice}")


def _cache() -> str:
    """Where trainings are kept, and how much."""
    from evotrainer.cli.cache import describe
    from evotrainer.executors.cache import cache_folder

    return describe(cache_folder())


def _trainer() -> list[EvoTrainerError]:
    """What keeps the embedded trainer from working."""
    try:
        from evotrainer.trainers import check_installed, get_trainer

        check_installed("embedded")
        get_trainer("embedded")
    except EvoTrainerError as e:
        print(f"[FAIL] embedded trainer: {e}")
        return [e]
    print("[ ok ] embedded trainer: PyTorch is there and imports")
    return []


def _sandbox(accept_tier_e: bool, attack: bool) -> list[EvoTrainerError]:
    """What is wrong with the sandbox; `attack`: try every attack that ships."""
    from evotrainer.sandbox import Sandbox

    try:
        with Sandbox.open(accept_tier_e=accept_tier_e) as sb:
            good = "ok" if sb.tier == "A" else "warn"
            print(f"[{good:^4}] sandbox tier {sb.tier}")
            print("       " + str(sb.report).replace("\n", "\n       "))
            if not attack or not (broken := _attacked(sb)):
                return []
            return [
                SandboxError(
                    f"{broken} of the attacks above got through that tier {sb.tier} promises to stop; grade nothing "
                    "with this sandbox, and report the lines marked BROKEN with your kernel's version"
                )
            ]
    except SandboxError as e:
        print(f"[FAIL] sandbox: {e}")
        return [e]


def _attacked(box: Sandbox) -> int:
    """Try every attack on programs and on episode shells, print how each ended; how many broke the tier's promise."""
    from evotrainer.envs.swe.instance_world import LIMITS as INSTANCES
    from evotrainer.sandbox.attacks import ESCAPES, LEFTOVER_ATTACKS, RESOURCE_ATTACKS, attack_shell
    from evotrainer.sandbox.model import TIERS
    from evotrainer.sandbox.shell import EpisodeShell, ShellLimits

    def print_probes(where: str, found: Iterable[ProbeResult]) -> int:
        broken = tried = 0
        for one in found:
            promised = TIERS.index(one.tier) >= TIERS.index(box.tier)
            mark = "held  " if one.held else "BROKEN" if promised else "open  "
            print(f"       {mark} {where}: {one.name}{f' [{one.detail}]' if one.detail else ''}", flush=True)
            broken += promised and not one.held
            tried += 1
        mark = "FAIL" if broken else " ok "
        print(f"[{mark}] {where}: {tried} attacks, {broken} got through against the tier's promise")
        return broken

    broken = print_probes("program", box.attack((*ESCAPES, *LEFTOVER_ATTACKS, *RESOURCE_ATTACKS)))
    try:
        for name, limits in (("episode shell", ShellLimits()), ("shell of instances", INSTANCES)):
            with EpisodeShell.open(limits=limits) as shell:
                broken += print_probes(name, attack_shell(shell))
    except SandboxError as error:
        print(f"[warn] episode shells cannot be had here: {error}")
    return broken
