"""`evotrainer rollouts`: shows the rollouts that meet conditions, of a run or of anybody's files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evotrainer.cli._common import AsJson, Cache, Format, Map, RolloutPaths, console
from evotrainer.cli._progress import progress
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.studies.rollouts import FoundRollouts

Text = str | None
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME OP VALUE", help="E.g. 'reward>=0.5', 'visible=1', 'detail.cost>0.1'; may be repeated."),
]
Sort = Annotated[Text, typer.Option(metavar="NAME", help="A name as in --where; -NAME: the largest first.")]
Grep = Annotated[Text, typer.Option(metavar="REGEX", help="Search the text of turns and tool calls.")]
Step = Annotated[Text, typer.Option(metavar="N or N:M", help="One step, or from N to M; N: or :M leaves one end open.")]
AnyOf = list[str] | None


def rollouts(
    paths: RolloutPaths,
    *,
    branch: Annotated[AnyOf, typer.Option(help="Branch of a run; this and the like again: any of them.")] = None,
    split: Annotated[AnyOf, typer.Option(help="train, search, ...; gate and cert of a closed run.")] = None,
    task: Annotated[AnyOf, typer.Option(help="Task id; may be repeated.")] = None,
    step: Step = None,
    outcome: Annotated[AnyOf, typer.Option(help="correct, incorrect or unknown.")] = None,
    finish: Annotated[AnyOf, typer.Option(help="stop, length, turn_limit or error.")] = None,
    where: Where = None,
    finding: Annotated[Text, typer.Option(metavar="DETECTOR", help="Those that this detector flags.")] = None,
    grep: Grep = None,
    role: Annotated[Text, typer.Option(help="Search turns of this role only: assistant, user, tool, system.")] = None,
    groups: Annotated[bool, typer.Option("--groups", help="Whole groups: all attempts, the best and worst.")] = False,
    full: Annotated[bool, typer.Option("--full", help="All of their text.")] = False,
    sort: Sort = None,
    limit: Annotated[int, typer.Option(min=0, help="Most rollouts (groups) to show; 0: all.")] = 20,
    format: Format = None,
    map: Map = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Show rollouts: filter, search and sort those of a run or of anybody's files, with their groups and whole texts.

    Example: evotrainer rollouts runs/mine --branch b1 --split train --grep 'sys.exit' --groups
    """
    from evotrainer.studies.audit import default_cache
    from evotrainer.studies.rollouts import FieldCondition, TextSearch, find, pattern_of

    named = {"branch": branch, "split": split, "task": task, "outcome": outcome, "finish": finish}
    conditions = [FieldCondition(name, "=", some[0], tuple(some[1:])) for name, some in named.items() if some]
    if split and split[1:] and not {*split} <= {"train", "search"} and any((p / "ledger.db").is_file() for p in paths):
        raise ConfigError(f"--split {' --split '.join(split)}: of a run give one split at a time, but train and search")
    conditions += [FieldCondition.of(x) for x in (*_steps(step), *(where or ()))]
    if role is not None and (grep is None or role not in ("assistant", "user", "tool", "system")):
        raise ConfigError(f"--role {role}: give assistant, user, tool or system, and a --grep to search with")
    search = None if grep is None else TextSearch(pattern_of("--grep", grep), role)
    with progress() as say:
        reading: dict[str, Any] = {"cache": cache or default_cache(), "format": format, "map": map or ()}
        reading["progress"] = say
        asked: dict[str, Any] = {"grep": search, "finding": finding, "sort": sort, "groups": groups, "limit": limit}
        found = find(paths, conditions, **asked, **reading)
    (_print_json if as_json else _print_text)(found, groups, full)


def _steps(text: str | None) -> list[str]:
    """The conditions of --step."""
    if text is None:
        return []
    first, colon, last = text.partition(":")
    last = last if colon else first
    ends = [int(x) for x in (first, last) if x.isdecimal()]
    if not ends or ends != sorted(ends) or not all(x.isdecimal() or not x for x in (first, last)):
        raise ConfigError(f"--step {text}: give a number, 10:20 (the smaller one first), 10: or :20")
    return [f"step>={first}"] * bool(first) + [f"step<={last}"] * bool(last)


def _print_json(found: FoundRollouts, groups: bool, full: bool) -> None:
    from evotrainer.views.found_rollouts import best_and_worst, rollout_json

    listed = [[rollout_json(r, found.hits, full) for r in g] for g in found.shown]
    out: dict[str, object] = {"read": found.read, "matched": found.matched}
    if groups:
        ends = [{v: k for k, v in best_and_worst(g).items()} for g in found.shown]
        out["groups"] = [
            {"best": e.get("best"), "worst": e.get("worst"), "rollouts": g} for e, g in zip(ends, listed, strict=True)
        ]
    else:
        out["rollouts"] = [r for g in listed for r in g]
    out["notes"] = found.notes
    out["skipped"] = [{"where": s.where, "reason": s.reason} for s in found.skipped]
    print(json.dumps(out, indent=1, default=str))


def _print_text(found: FoundRollouts, groups: bool, full: bool) -> None:
    from evotrainer.records.text import clean, counted
    from evotrainer.views.found_rollouts import in_full, table, title

    heading = f"{found.matched:,} of {counted(found.read, 'rollout')} match"
    heading += f", in {counted(found.units, 'group')}" * groups
    print(heading + f"; {len(found.shown):,} shown (--limit 0: all)" * (found.units > len(found.shown)))
    for note in found.notes:
        print(clean(note, 400))
    for s in found.skipped[:5]:
        print(clean(f"skipped {s.where}: {s.reason}", 400))
    out = console()
    if not groups and not full:
        print("\n" + table([r for g in found.shown for r in g], found.hits) if found.shown else "")
        return
    for g in found.shown:
        print(f"\n# {title(g)}" if groups else "")
        for part in in_full(g, out.width if out.is_terminal else None) if full else ():
            out.print(part)
        if not full:
            print(table(g, found.hits))
