"""A branch's policy as a Hugging Face folder: chosen by rule, compared with the ledger's hashes,
copied or merged whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.config.load import load_run_task
from evotrainer.errors import ConfigError, IntegrityError
from evotrainer.extras.scaffold import TEMPLATE
from evotrainer.projections.branches import BASE, START, Branch
from evotrainer.projections.caveats import against_base
from evotrainer.projections.state import RunState
from evotrainer.records.chain import Event
from evotrainer.records.durable import os_errors, sha256_file, sha256_tree
from evotrainer.records.events import Certified, TrialFinished
from evotrainer.records.recipe import Recipe
from evotrainer.records.weights import weights_sha256
from evotrainer.trainers import TRAINERS
from evotrainer.trainers.bases import ADAPTER

EVIDENCE = "evotrainer.json"


@dataclass(frozen=True, slots=True)
class ExportedTraining:
    """The training that is exported."""

    branch: str
    """`base` for the base policy."""
    trial: TrialFinished
    policy: Path
    certified: bool
    """Is its branch among those of the certificate, and not certified to be worse than the base policy?"""
    invalid: str
    """Why it is invalid; empty where it is not."""
    rule: str
    """Why this training of the branch was chosen."""
    worse: str = ""
    """That the certificate finds it worse than the base policy; empty where it does not."""
    unshown: str = ""
    """That the certificate shows no difference from the base policy; empty where it does, or compares nothing."""


def choose(
    folder: Path, events: Sequence[Event], branch: str | None, seed: int | None, anyway: bool
) -> ExportedTraining:
    """The branch's training to export; `branch`: a branch or version, default the champion.

    Of several seeds the one with the middle score on search: of the fresh ones where the branch is certified, since the
    certificate is about these. Never chosen by gate or cert: the best of several seeds there would be luck.
    Raises ConfigError: unknown or untrained branch or seed, invalid branch without `anyway`.
    """
    tree = RunState.of(events)
    start = tree.branches.get(START)
    name = branch or tree.champion or (START if start and start.complete else BASE)
    name = next((b.branch for b in tree.branches.values() if b.version == name), name)
    certificate = next((e.body for e in reversed(events) if e.kind == "certified"), None)
    if name == BASE:
        finished = tree.trials[BASE].finished if BASE in tree.trials else None
        if finished is None:
            raise ConfigError(f"{folder} has no base policy yet; `evotrainer resume {folder}` goes on with the run")
        return ExportedTraining(
            BASE, finished, folder / finished.policy_path, _row(certificate, BASE) is not None, "", "the only one"
        )
    if name not in tree.branches:
        there = ", ".join((BASE, *tree.branches))
        raise ConfigError(f"no branch {name!r} in {folder}; there are: {there}")
    found = tree.branches[name]
    if found.invalid is not None and not anyway:
        raise ConfigError(
            f"branch {name} is invalid: {found.invalid}; choose another one, or give --anyway: "
            "the model card will say INVALID"
        )
    row = _row(certificate, name)
    trained = [t.finished for t in found.trials if t.finished and t.finished.status == "complete" and t.finished.steps]
    kept = [t for t in trained if (folder / t.policy_path).is_dir()]
    trial, rule = _middle(folder, found, kept, tuple(row.seeds) if row else (), seed)
    over = against_base(certificate, name) if certificate else None
    worse = over.text if over and over.kind == "worse_than_base" else ""
    # of the run's champion the caveats say it
    unshown = over.text if over and over.kind == "unconfirmed" and certificate and certificate.champion != name else ""
    sure = row is not None and (over is None or over.kind == "unconfirmed")
    return ExportedTraining(name, trial, folder / trial.policy_path, sure, found.invalid or "", rule, worse, unshown)


def is_policy_of(events: Sequence[Event], name: str) -> bool:
    """Is it the name of a branch or version of this run?"""
    branches = RunState.of(events).branches
    return name == BASE or name in branches or any(b.version == name for b in branches.values())


def _row(certificate: Certified | None, branch: str) -> Any:
    rows = [r for r in certificate.rows if r.branch == branch] if certificate else []
    return rows[-1] if rows else None


def _middle(
    folder: Path, branch: Branch, trained: Sequence[TrialFinished], certified: Sequence[int], seed: int | None
) -> tuple[TrialFinished, str]:
    if seed is not None:
        found = next((t for t in trained if t.seed == seed), None)
        if found is None:
            seeds = ", ".join(str(t.seed) for t in trained) or "none"
            raise ConfigError(f"branch {branch.branch} has no trained policy with seed {seed}; it has: {seeds}")
        return found, "asked for"
    among = [t for t in trained if t.seed in certified] or list(trained)
    if not among and not any((folder / "trials").glob("*/policy")):
        raise ConfigError(
            f"{folder} holds no policy at all (trials/*/policy): a copy without them; export the run itself"
        )
    asked = {t.finished.trial: t.finished for t in branch.trials if t.finished and t.finished.seed in certified}
    there = {t.trial for t in trained}
    if lost := [n for n, t in asked.items() if t.status == "complete" and t.steps and n not in there]:
        raise ConfigError(
            f"{folder} has lost the policy of {', '.join(lost)}, on which the certificate rests: restore "
            f"trials/{lost[0]}/policy, or give --seed to export another training as it is"
        )
    if not among:
        raise ConfigError(f"branch {branch.branch} of {folder} has no trained policy; choose another one with --branch")

    def search(t: TrialFinished) -> float:
        return next((s.score for s in reversed(t.scores) if s.split == "search" and s.score is not None), -1.0)

    ranked = sorted(among, key=lambda t: (search(t), t.seed))
    what = "certified trainings" if among[0].seed in certified else "trainings"
    return ranked[(len(ranked) - 1) // 2], f"the middle one on search of {len(ranked)} {what}"


def write_model(run: Path, chosen: ExportedTraining, out: Path, finish: Callable[[Path, str], None]) -> None:
    """The policy's folder at `out`, whole or not at all. `finish(folder, base)`: adds further files, such as the card.

    ConfigError where `out` is not new or empty, IntegrityError where the policy is not what the ledger says.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not an empty folder; choose a new one")
    if not chosen.policy.is_dir():
        raise ConfigError(
            f"the policy of {chosen.branch} is {chosen.trial.policy_path}, no folder of this machine; nothing to write"
        )
    check_policy(run, chosen)
    part = out.absolute().with_name(f".{out.absolute().name}.writing-{os.getpid()}")
    with os_errors(f"cannot write {out}"):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    try:
        base = ""
        if (chosen.policy / ADAPTER).is_file():
            merge = TRAINERS[load_run_task(run).trainer.name].merge or TRAINERS["trl"].merge
            assert merge is not None
            base = merge(chosen.policy, part)
            template = chosen.policy / TEMPLATE
            if template.is_file() and not (part / template.name).exists():
                shutil.copyfile(template, part / template.name)
        else:
            with os_errors(f"cannot copy {chosen.policy}"):
                # without their modes: safetensors writes files that their owner alone may read
                shutil.copytree(chosen.policy, part, dirs_exist_ok=True, copy_function=shutil.copyfile)
        finish(part, base)
        with os_errors(f"cannot write {out}"):
            if out.exists():
                out.rmdir()
            part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_policy(run: Path, chosen: ExportedTraining) -> None:
    """IntegrityError where a file of the policy is not what its trial left, by the hashes in the ledger."""
    inside = {k: v for k, v in chosen.trial.files.items() if (run / k).is_relative_to(chosen.policy)}
    for name, sha in inside.items():
        path = run / name
        if not path.is_file() or sha256_file(path) != sha:
            raise IntegrityError(
                f"{path} is not what trial {chosen.trial.trial} left; restore it from a copy of the run"
            )
    there = set(sha256_tree(chosen.policy, run)) if inside else set()
    if extra := there - inside.keys():
        raise IntegrityError(f"{run / min(extra)} was not left by trial {chosen.trial.trial}; remove it")
    if not inside and weights_sha256(chosen.policy) != chosen.trial.policy_sha256:
        raise IntegrityError(f"{chosen.policy} is not the policy of trial {chosen.trial.trial}; restore it")


def write_evidence(folder: Path, body: dict[str, Any]) -> None:
    """`evotrainer.json`: the card's contents as JSON."""
    with os_errors(f"cannot write {folder / EVIDENCE}"):
        (folder / EVIDENCE).write_text(json.dumps(body, indent=1, sort_keys=True) + "\n", "utf-8")


def write_sources(folder: Path, recipe: Recipe | None) -> None:
    """`rewards/<name>@<hash>.py`, `hooks/<name>@<hash>.py`: the code that the recipe holds, and that of those that it
    goes on from."""
    for r in recipe.chain if recipe else ():
        for place, sources in ((folder / "rewards", r.written), (folder / "hooks", r.hooks)):
            with os_errors(f"cannot write {place}"):
                for name, source in sources.items():
                    place.mkdir(exist_ok=True)
                    (place / f"{name}.py").write_text(source, "utf-8")
