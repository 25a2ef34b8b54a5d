"""`evotrainer skills ...`: what verdicts taught, as folders anybody can read, check, merge and compare runs with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.commands.common import console
from evotrainer.errors import ConfigError, IntegrityError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.projections.skills import Skill


def skills_list(source: Path, *, as_json: bool) -> None:
    """Skills of a library, a run folder or `builtin`, with claim, pooled effect, scope and expiry."""
    from evotrainer.skills import read_library

    every = read_library(source).values()
    if as_json:
        print(json.dumps([_row(s) for s in every], indent=1))
        return
    for s in every:
        n = len(s.trials)
        print(s.name)
        print(
            f"  {s.claim}: {_effect(s)}, {n} trial{'s' * (n != 1)}, {s.scope} ({', '.join(s.domains)}), "
            f"valid until {s.expiry.until}"
        )
    if not every:
        print(_none(source))


def _none(source: Path) -> str:
    return f"no skills in {source}: a run writes one after each verdict that measured something, into RUN/skills"


def _effect(s: Skill) -> str:
    p = s.pooled
    return f"{100 * p.mean:+.1f} points [{100 * p.low:+.1f}, {100 * p.high:+.1f}]" if p else "nothing measured"


def _row(s: Skill) -> dict[str, Any]:
    p = s.pooled
    return {
        "name": s.name,
        "bottleneck": s.bottleneck,
        "factor": s.factor,
        "direction": s.direction,
        "claim": s.claim,
        "scope": s.scope,
        "domains": list(s.domains),
        "validated": list(s.validated),
        "trials": len(s.trials),
        "pooled": p.model_dump(mode="json") if p else None,
        "expiry": s.expiry.model_dump(mode="json"),
    }


def skills_show(source: Path, name: str | None, *, as_json: bool) -> None:
    """One skill's SKILL.md, or its evidence."""
    from evotrainer.skills import find_skills

    folders = {p.name: p for p in find_skills(source)}
    if name is None and len(folders) == 1:
        name = next(iter(folders))
    if name is None or name not in folders:
        known = ", ".join(folders) or "none"
        raise ConfigError(f"no skill {name!r} in {source}; there are: {known}" if name else f"which skill? {known}")
    print((folders[name] / ("evidence.json" if as_json else "SKILL.md")).read_text(encoding="utf-8").rstrip())


def skills_import(sources: Sequence[Path], library: Path) -> None:
    """Merge skills of runs or libraries into a library; what does not validate is refused."""
    from evotrainer.run.skills import collect
    from evotrainer.skills import merge, read_library, write_skill

    library.mkdir(parents=True, exist_ok=True)
    before = read_library(library)
    new = collect([str(s) for s in sources])
    for name, skill in merge(before.values(), new.values()).items():
        was = before.get(name)
        if was is not None and was.trials == skill.trials:
            continue
        write_skill(skill, library)
        gained = len(skill.trials) - (len(was.trials) if was else 0)
        print(f"{'updated' if was else 'added'} {name}: {gained} more trial(s), {skill.claim}, {skill.scope}")
    print(f"{len(read_library(library))} skills in {library}")


def skills_export(source: Path, names: Sequence[str], out: Path) -> None:
    """Copy skills, all or the named ones, as folders of the Agent Skills format."""
    from evotrainer.run.skills import collect
    from evotrainer.skills import write_skill

    every = collect([str(source)])
    if unknown := [n for n in names if n not in every]:
        raise ConfigError(f"no skill {unknown[0]!r} in {source}; there are: {', '.join(every) or 'none'}")
    if not every:
        raise ConfigError(_none(source))
    for name in names or every:
        print(write_skill(every[name], out))


def skills_validate(source: Path, runs: Sequence[Path], *, as_json: bool) -> None:
    """Format, evidence against its own ledger rows, and against the ledgers at hand; exit 4 where anything is wrong."""
    from evotrainer.skills import check_skill, find_skills

    at_hand = [*runs, *([source] if (source / "ledger.db").is_file() else [])]
    ledgers = dict(map(_rows, at_hand))
    folders = find_skills(source)
    if not folders:
        raise ConfigError(_none(source))
    found: dict[str, list[str]] = {}
    seen = trials = 0
    for folder in folders:
        problems, checked = check_skill(folder, ledgers)
        found[folder.name] = problems
        seen += checked
        trials += _count(folder)
    wrong = sum(map(len, found.values()))
    if as_json:
        told = {"skills": found, "trials": trials, "checked_against_ledgers": seen, "ok": not wrong}
        print(json.dumps(told, indent=1))
    else:
        for name, problems in found.items():
            print(f"[{'FAIL' if problems else 'ok'}] {name}")
            for p in problems:
                print(f"       {p}")
        print(f"{len(folders)} skills, {trials} trials, of which {seen} against the ledger of their run", end="")
        print(f"; {trials - seen} not: give their runs with --run" if trials > seen else "")
    if wrong:
        raise IntegrityError(f"{source}: {wrong} problem(s) found; see above")


def _rows(folder: Path) -> tuple[str, dict[str, Any]]:
    """A run's name, and its ledger's rows by id."""
    from evotrainer import api

    with api.open_run(folder).ledger() as ledger:
        if problems := ledger.verify():
            raise IntegrityError(f"{folder}: {problems[0]}; a ledger that does not hold proves nothing")
        events = ledger.events()
        rows = {e.id: r for e in events if (r := ledger.row(e.id))}
    return (events[0].hash if events else ""), rows


def _count(folder: Path) -> int:
    from evotrainer.errors import StoreError
    from evotrainer.skills import read_skill

    try:
        return len(read_skill(folder).trials)
    except StoreError:
        return 0


def skills_compare(
    task: Path, overrides: Sequence[str], libraries: Sequence[str], out: Path, *, repeats: int, plain: bool
) -> None:
    """The same task with and without skills, at the same seeds and budget; writes results.md and results.json."""
    from evotrainer.studies import skills_ab as comparison
    from evotrainer.views.terminal import LiveView

    def watch(folder: Path) -> Any:
        return LiveView(folder, console(stderr=True), plain=plain)

    done = comparison.compare(task, overrides, libraries, out, repeats, watch)
    print(comparison.render(done).rstrip())
    print(f"results: {out / 'results.md'}")
