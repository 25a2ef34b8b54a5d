"""A text of one's own in a slot of a run's environment: the checks that the loop makes before it trains with one."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.config.bases import resolve_base
from evotrainer.envs import open_environment
from evotrainer.envs.base import EnvironmentWithDraws
from evotrainer.errors import ConfigError, EncryptedError
from evotrainer.projections.branches import START
from evotrainer.records import regular_file
from evotrainer.records.draw import read_seed
from evotrainer.records.recipe import diff, format_diff
from evotrainer.records.scaffold import LABELS, PREFIX, changed_texts, slots_of
from evotrainer.run.scaffolds import checks

if TYPE_CHECKING:
    from evotrainer.api import Run


@dataclass(frozen=True, slots=True)
class TriedText:
    """A text, tried in one run."""

    name: str
    """`<slot>@<hash>`"""
    difference: tuple[str, ...]
    """From the text that the champion has there."""
    change: str
    passed: tuple[str, ...]
    """Labels that were looked for and not found."""
    label: str = ""
    why: str = ""
    """What ended it; empty: nothing did."""
    unseen: str = ""
    """What could not be looked at."""


def read_text(path: Path) -> str:
    """The file's text without the line end of its last line; ConfigError where it cannot be read."""
    try:
        return regular_file.read_text(path).removesuffix("\n")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read {path}: {e}") from None


def try_text(run: Run, slot: str, text: str, branch: str | None = None) -> TriedText:
    """A text in a slot, beside the texts that a branch (default: the champion) has; ConfigError for an unknown one."""
    state, task = run.state, run.task
    name = branch or state.leader or START
    if name not in state.branches:
        raise ConfigError(f"{run.folder} has no branch {name!r}; there are: {', '.join(state.branches) or 'none yet'}")
    recipe = state.branches[name].recipe
    new = recipe.with_factor(PREFIX + slot, text)
    if new == recipe:
        return TriedText(slot, (), "", ("unknown_slot",), "identical", f"{name} has this very text already")
    passed: list[str] = []
    with closing(open_environment(task.environment, accept_tier_e=task.sandbox.accept_tier_e)) as opened:
        unseen = _draw(run, opened)
        base = resolve_base(task.policy.base) or (run.folder / state.base.policy_path if state.base else None)
        for label, why in checks(opened, {slot: text}, new, task, base):
            if why:
                break
            passed.append(label)
        else:
            label = why = ""
    changed = changed_texts(recipe.scaffold, new.scaffold, slots_of(state.environment))
    at, lines = next(iter(changed.items()), (slot, []))
    return TriedText(at, tuple(lines), format_diff(diff(recipe, new)), tuple(passed), label, why, unseen)


def _draw(run: Run, opened: object) -> str:
    """Draw the run's own gate and cert where their seed may be read; otherwise what is not seen."""
    draw = run.state.opened.draw if run.state.opened else None
    if not draw or not draw.seed or not isinstance(opened, EnvironmentWithDraws):
        return ""
    with suppress(EncryptedError):
        opened.redraw(read_seed(run.folder, draw.seed).seed)
        return ""
    return "gate and cert of this run are encrypted until it closes: its own check looks at them as well"


def text_lines(t: TriedText) -> list[str]:
    """What differs, and how far it came."""
    out = [t.name, *(f"  | {line}" for line in t.difference)]
    for label in LABELS:
        if label == t.label:
            out.append(f"  [FAIL] not {label}: {t.why}")
            break
        out += [f"  [pass] not {label}"] if label in t.passed else []
    return [*out, *([f"  note: {t.unseen}"] if t.unseen else [])]
