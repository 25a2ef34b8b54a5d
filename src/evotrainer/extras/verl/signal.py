"""Advantages and group filter of a verl batch by the recipe's own rules. Plain numbers: needs neither verl nor torch.

verl divides the loss by what was sampled: all tokens of the batch, or prompts * group size. We divide by what is left
after filter and mask. `Signal.rows` therefore multiplies the advantages by the ratio of the two, which is exact: the
clipped objective is linear in the advantage's size.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from evotrainer.algorithm.advantages import advantages, flat, group_std
from evotrainer.algorithm.filters import FilterState, keep_groups
from evotrainer.records.recipe import Recipe
from evotrainer.records.regular_file import read_text

PADDING = "pad"
"""Prefix of the group ids of verl's padding rows."""
BY_TOKENS = ("dapo", "bnpo", "cispo")
"""Losses that divide by tokens; the others divide by rollouts."""


@dataclass(frozen=True, slots=True)
class Rows:
    """One entry a row of the batch."""

    advantages: list[float]
    """Scaled, 0 where the row does not count."""
    counted: list[bool]
    """False: padding, filtered group, truncated completion; such rows leave the loss."""
    kept_groups: int
    groups: int


@dataclass(slots=True)
class Signal:
    """The recipe's rules, and the filter's state. `folder`: where it keeps that from step to step."""

    recipe: Recipe
    folder: Path | None = None
    state: FilterState = field(default_factory=FilterState)
    decided: dict[str, bool] | None = None
    """Group -> kept, where the sampler has decided already; None: decided from the batch."""

    def rows(self, rewards: Sequence[float], tokens: Sequence[int], groups: Sequence[str]) -> Rows:
        """Advantages of a batch: reward, counted tokens and group of each row."""
        r = self.recipe
        members: dict[str, list[int]] = {}
        for i, g in enumerate(groups):
            if not (g.startswith(PADDING) and tokens[i] == 0):
                members.setdefault(g, []).append(i)
        order = sorted(members)
        kept = self._kept({g: [rewards[i] for i in members[g]] for g in order})
        chosen = [g for g in order if kept[g]]
        places = [i for g in chosen for i in members[g]]
        paid = flat([[rewards[i] for i in members[g]] for g in chosen])
        values = advantages(*paid, r).tolist()
        out, counted = [0.0] * len(rewards), [False] * len(rewards)
        for i, a in zip(places, values, strict=True):
            if not (r.mask_truncated and tokens[i] >= r.max_tokens):
                out[i], counted[i] = a, True
        if scale := self._scale(tokens, counted, len(places)):
            out = [a * scale for a in out]
        return Rows(out, counted, len(chosen), len(order))

    def _kept(self, rewards: dict[str, list[float]]) -> dict[str, bool]:
        if self.decided is not None:
            return {g: self.decided.get(g, True) for g in rewards}
        return self._filtered(list(rewards.items()))

    def _filtered(self, groups: Sequence[tuple[str, Sequence[float]]]) -> dict[str, bool]:
        stds = group_std(*flat([v for _, v in groups]), len(groups))
        keep = keep_groups(stds, self.recipe.group_filter, self.state).tolist()
        return {g: k for (g, _), k in zip(groups, keep, strict=True)}

    def _scale(self, tokens: Sequence[int], counted: Sequence[bool], rollouts: int) -> float:
        """What verl divides by / what we divide by; 0 where nothing counts."""
        if self.recipe.loss in BY_TOKENS:
            ours = sum(t for t, c in zip(tokens, counted, strict=True) if c)
            return sum(tokens) / ours if ours else 0.0
        return self.recipe.prompts_per_step * self.recipe.group_size / rollouts if rollouts else 0.0

    def judge(self, fresh: Sequence[tuple[str, Sequence[float]]]) -> dict[str, bool]:
        """Decide on the groups of one sampling round (group, its rewards); a group without rewards is dropped."""
        keep = self._filtered(fresh)
        return {g: keep[g] and bool(v) for g, v in fresh}

    def restore(self, step: int) -> None:
        """What the filter knew at the end of the last step before `step`: after a resume the same as without one."""
        known = [p for p in self._states() if int(p.stem.split("-")[1]) < step]
        self.state = FilterState()
        if known:
            newest = max(known, key=lambda p: int(p.stem.split("-")[1]))
            self.state = FilterState(**json.loads(read_text(newest)))

    def save(self, step: int) -> None:
        """Keep the filter's state after `step`, replacing the file at once."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"ema-{step}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self.state)), encoding="utf-8")
        os.replace(temporary, path)

    def _states(self) -> Iterable[Path]:
        return self.folder.glob("ema-*.json") if self.folder is not None and self.folder.is_dir() else ()
