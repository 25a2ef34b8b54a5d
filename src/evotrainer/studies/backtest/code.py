"""Code of one's own, a reward component or a hook: the checks that the loop makes, and the backtest, on rollouts that
exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evotrainer.errors import ConfigError
from evotrainer.records.hooks import ENTRIES
from evotrainer.records.interventions import Backtest, Intervention, Prediction
from evotrainer.records.one_factor import single_factor
from evotrainer.records.recipe import Recipe
from evotrainer.records.regular_file import read_text
from evotrainer.records.written import (
    ENTRY,
    LABELS,
    MAX_SOURCE,
    NAME,
    about,
    content_name,
    defined,
    source_lines,
)
from evotrainer.studies.backtest.changes import ReplayedChange, replay_change
from evotrainer.studies.backtest.sources import Subject

SHOWN = 60
"""Lines of a source or a difference that are shown."""


@dataclass(frozen=True, slots=True)
class TriedCode:
    """A component or a hook, tried on one subject."""

    name: str
    """With the hash of its source."""
    source: str
    before: str
    """Source of the same name that the recipe has already; empty: none."""
    replayed: ReplayedChange

    @property
    def backtest(self) -> Backtest:
        return self.replayed.backtest


def read_source(path: Path) -> tuple[str, str]:
    """(name, source) of a file; ConfigError where it cannot be read, or its name names no component."""
    try:
        source = read_text(path, most=1 << 20)[: MAX_SOURCE + 1]
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read {path}: {e}") from None
    name = path.stem.replace("-", "_").replace(".", "_")
    if not NAME.fullmatch(name):
        raise ConfigError(f"{path}: the component is named after its file; name it with letters, digits and _")
    return name, source


def as_change(recipe: Recipe, name: str, source: str, weight: float, instead: str | None) -> Intervention:
    """The change that pays the component: added with a weight, instead of one that is paid now (at its weight), or
    instead of the source of that name that the recipe has."""
    paid = {k: w for k, w in recipe.rewards.items() if w}
    same = next((k for k in recipe.written if k.partition("@")[0] == name and k in paid), None)
    old = instead or same
    if old is not None and old not in paid:
        raise ConfigError(f"--instead-of {old}: the recipe does not pay it; it pays: {', '.join(paid) or 'nothing'}")
    full = content_name(name, source)
    if full in recipe.written and full in paid:
        raise ConfigError(f"{full}: the recipe pays this very source already")
    rewards = {k: w for k, w in paid.items() if k != old} | {full: paid[old] if old else weight}
    written = {k: s for k, s in recipe.written.items() if k != old} | {full: source}
    return _change(recipe, "written_reward", {"rewards": rewards, "written": written}, source)


def as_hook(recipe: Recipe, name: str, source: str) -> Intervention:
    """The change that adds a hook, in the place of the recipe's own of that name or of the same function."""
    full = content_name(name, source)
    if full in recipe.hooks:
        raise ConfigError(f"{full}: the recipe has this very hook already")
    mine = defined(source) & ENTRIES.keys()
    gone = [k for k, s in recipe.hooks.items() if k.partition("@")[0] == name or defined(s) & mine]
    if len(gone) > 1:
        raise ConfigError(f"{full} would take the place of {' and '.join(gone)}; one change replaces one file")
    return _change(recipe, "hooks", {k: s for k, s in recipe.hooks.items() if k not in gone} | {full: source}, source)


def is_hook(source: str, path: Path) -> bool:
    """Does a file define hooks? ConfigError where it defines a reward, too."""
    mine = defined(source) & ENTRIES.keys()
    if mine and ENTRY in defined(source):
        raise ConfigError(f"{path} defines {ENTRY} and {', '.join(sorted(mine))}: two changes; make it two files")
    return bool(mine)


def first_doc_line(source: str) -> str:
    """The first line of the docstring of a function that counts; empty where there is none."""
    return about(source, (ENTRY, *ENTRIES))


def _change(recipe: Recipe, wanted: str, new: object, source: str) -> Intervention:
    factor = single_factor(recipe, recipe.with_factor(wanted, new))
    return Intervention(
        factor=factor,
        old=recipe.value(factor),
        new=new,
        hypothesis=first_doc_line(source) or "code of one's own",
        prediction=Prediction(metric="accuracy", direction="up", size=0.01),
        success_criterion="",
        rollback="",
    )


def try_code(subject: Subject, path: Path, weight: float, instead: str | None, accept_tier_e: bool) -> TriedCode:
    """The code of a file on a subject; ConfigError where it cannot be a change of its recipe."""
    name, source = read_source(path)
    recipe, hook = subject.recipe, is_hook(source, path)
    if hook and instead:
        raise ConfigError("--instead-of is of reward components; a hook takes the place of the one it stands in for")
    change = as_hook(recipe, name, source) if hook else as_change(recipe, name, source, weight, instead)
    replayed = replay_change(subject, change, accept_tier_e=accept_tier_e)
    own = recipe.hooks if hook else recipe.written
    before = next((s for k, s in own.items() if k.partition("@")[0] == name), "")
    return TriedCode(content_name(name, source), source, before, replayed)


def code_lines(t: TriedCode) -> list[str]:
    """The component's source, or what differs, and how far it came."""
    source = source_lines(t.source, t.before)
    out = [f"{t.name}: {first_doc_line(t.source) or 'no docstring says what it does'}"]
    out += [f"  | {line}" for line in source[:SHOWN]]
    out += [f"  | ... {len(source) - SHOWN} lines more"] if len(source) > SHOWN else []
    ended = t.backtest.label
    for label in LABELS:
        out.append(f"  [{'FAIL' if label == ended else 'pass'}] not {label}")
        if label == ended:
            break
    return out


def passed_everything(tried: Sequence[TriedCode]) -> bool:
    """Did no check and no replay end it anywhere?"""
    return not any(t.backtest.verdict == "contradicts" for t in tried)
