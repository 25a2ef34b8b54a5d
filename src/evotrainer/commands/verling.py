"""`verl`: a task file trained by verl on a cluster: setup, render, validate, launch, tail, checkpoints, import, stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evotrainer.commands.common import console
from evotrainer.errors import ConfigError
from evotrainer.records.output import print


def verl_setup(
    venv: Path | None, *, gpu: bool, python: Path | None, task: Path | None, pip: Sequence[str], as_json: bool
) -> None:
    """Make or complete verl's environment; says what is installed and what it cost."""
    from evotrainer.extras.verl import venv as environments

    extra: list[str] = []
    if task is not None:
        from evotrainer.config.task import load_task

        extra = environments.extras_of(str(load_task(task).environment.get("name", "")))
    folder = venv or Path(environments.FOLDER)
    err = console(stderr=True)
    with err.status("setting up verl") as status:

        def say(line: str) -> None:
            status.update(line[:100])
            if not err.is_terminal:
                err.print(line, markup=False)

        record = environments.setup(folder, gpu=gpu, python=python, extra=extra, pip=pip, say=say)
    if as_json:
        print(json.dumps(record, indent=1))
        return
    have = ", ".join(f"{n} {v}" for n, v in record["versions"].items() if v)
    print(f"{folder}: {have}; {record['megabytes']:,} MB, {record['seconds']:.0f} s")
    print(
        f"use it with --venv {folder}, or EVOTRAINER_VERL_PYTHON={folder / 'bin' / 'python'} (.venv-verl is found by itself)"
    )


def verl_render(
    task: Path, overrides: Sequence[str], out: Path, model: str | None, settings: Sequence[str], options: dict[str, Any]
) -> None:
    """Write the folder; says what came out and what is next."""
    from evotrainer.config.task import load_task
    from evotrainer.extras.verl.render import Machine, model_of, parse_setting, render

    resolved = load_task(task, overrides)
    chosen = {k: v for k, v in options.items() if v is not None}
    every = resolved.run.checkpoint_every
    machine = Machine(
        model_of(resolved, model),
        settings=dict(parse_setting(s) for s in settings),
        **{"seed": resolved.run.seeds[0], "save_every": every, "test_every": every, **chosen},
    )
    m = render(resolved, out, machine)
    plugins = ", ".join(p for p in m["plugins"] if p.endswith(".py"))
    print(f"{out}: {len(m['files'])} files for verl {m['verl']}, recipe {m['recipe_hash']}, task file {m['task_hash']}")
    print(f"  {m['tasks']['train']:,} training and {m['tasks']['search']:,} validation prompts; plug-ins {plugins}")
    print(f"  {m['gpus']} GPU(s) on each of {m['nodes']} node(s), model {m['model']}, {m['steps']} steps")
    if m["longest_prompt_characters"] > 3 * machine.prompt_tokens:
        print(
            f"  the longest prompt has {m['longest_prompt_characters']:,} characters: verl leaves out what exceeds "
            f"{machine.prompt_tokens} tokens (--prompt-tokens)"
        )
    print(f"next: evotrainer verl validate {out}")


def verl_validate(folder: Path, venv: Path | None, *, gpus: int | None, nodes: int | None, as_json: bool) -> None:
    """verl's own validation; ConfigError with every finding."""
    from evotrainer.extras.verl.validate import demand_valid, validate
    from evotrainer.extras.verl.venv import find

    with console(stderr=True).status("verl composes and validates the configuration"):
        v = validate(folder, find(venv), gpus, nodes)
    if as_json:
        print(json.dumps({**asdict(v), "findings": [asdict(f) for f in v.findings]}, indent=1))
        if not v.ok:
            raise SystemExit(ConfigError.exit_code)
        return
    for notice in v.notices:
        print(notice)
    demand_valid(v)
    print(
        f"valid: verl {v.verl} accepts the configuration for {v.gpus} GPU(s) and loads the plug-ins ({v.seconds:.0f} s, "
        "no GPU needed)"
    )


def verl_launch(folder: Path, venv: Path | None, *, ray_address: str | None, force: bool, wait: bool) -> None:
    """Start verl or resume it; with `wait` follow it to its end."""
    from evotrainer.extras.verl.launch import launch
    from evotrainer.extras.verl.venv import find

    a = launch(folder, find(venv), ray_address=ray_address, force=force)
    how = f"resumes after step {a.resumed_from}" if a.resumed_from else "starts"
    print(f"attempt {a.number} {how}: process {a.pid}, log {a.log(folder)}")
    if wait:
        verl_tail(folder, follow=True, as_json=False)
    else:
        print(
            f"it goes on without this command; follow it: evotrainer verl tail {folder} --follow; end it: evotrainer verl "
            f"stop {folder}"
        )


def verl_tail(folder: Path, *, follow: bool, as_json: bool) -> None:
    """Metrics step by step; TrainerError where a resumed training did not go on where it was."""
    from evotrainer.extras.verl import tail
    from evotrainer.extras.verl.folder import read_manifest
    from evotrainer.extras.verl.scoring import lost

    read_manifest(folder)
    for line in tail.follow(folder) if follow else tail.lines(folder):
        if as_json:
            print(json.dumps({"attempt": line.attempt, "step": line.step, "metrics": line.values}), flush=True)
        else:
            print(tail.shown(line), flush=True)
    trained = tail.check_advance(folder)
    if not as_json:
        done = ", ".join(f"attempt {n}: {k}" for n, k in trained.items())
        print(f"{tail.verdict(folder)}; steps trained: {done or 'none'}")
        without, every = lost(folder)
        if without:
            print(
                f"{without:,} of {every:,} rollouts were lost to faults and left out of their groups; see {folder / 'evidence'}"
            )


def verl_stop(folder: Path) -> None:
    """End the running attempt."""
    from evotrainer.extras.verl.launch import stop

    a = stop(folder)
    print(f"attempt {a.number} (process {a.pid}) was ended; launch again to resume from the last checkpoint")


def verl_checkpoints(folder: Path, venv: Path | None, *, as_json: bool) -> None:
    """Saved steps, and how to make Hugging Face folders of them."""
    from evotrainer.extras.verl.checkpoints import checkpoints, merge_command
    from evotrainer.extras.verl.folder import read_manifest
    from evotrainer.extras.verl.venv import candidate

    read_manifest(folder)
    found = checkpoints(folder.resolve())
    python = candidate(venv)
    if as_json:
        rows = [{**asdict(c), "path": str(c.path), "merge": merge_command(python, c, _merged(c.path))} for c in found]
        print(json.dumps(rows, indent=1))
        return
    if not found:
        print(f"no checkpoint in {folder / 'checkpoints'} yet")
        return
    for c in found:
        words = [f"step {c.step:>5}", f"{c.bytes / 1e6:>12,.1f} MB"]
        words += ["latest: a launch resumes from it"] if c.latest else []
        words += [f"incomplete: {', '.join(c.missing)} missing"] if c.missing else []
        words += ["holds Hugging Face weights"] if c.merged else []
        print("  ".join(words))
    best = next((c for c in reversed(found) if not c.missing), None)
    if best is not None:
        print(f"as a Hugging Face folder: {merge_command(python, best, _merged(best.path))}")


def _merged(path: Path) -> Path:
    return path.parent.parent / "policy" / path.name


def verl_import(folder: Path, out: Path, *, workers: int | None) -> None:
    """The rollouts of all attempts, training and validation, into a store of ours."""
    from evotrainer.extras.verl.folder import read_manifest
    from evotrainer.studies.audit import command

    read_manifest(folder)
    parts = [folder / name for name in ("rollouts", "validation") if (folder / name).is_dir()]
    if not parts:
        raise ConfigError(f"{folder} holds no rollouts yet; verl writes them step by step once it trains")
    command.import_rollouts(parts, out, format="verl", workers=workers)
