"""The budget: reserved before a trial starts, settled with its true cost, rebuilt from the ledger at any time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from evotrainer.errors import BudgetError, ConfigError
from evotrainer.records.chain import Event
from evotrainer.records.events import ReaderAnswered, RunClosed, SeatAnswered, TrialFinished, TrialIntended

UNITS = {
    "cpu_s": "CPU-seconds",
    "gpu_s": "GPU-seconds",
    "usd": "US dollars",
    "wall_s": "seconds",
    "trials": "trials",
    "policy_tokens": "policy tokens",
    "agent_tokens": "agent tokens",
    "dollars": "dollars",
}
"""What can be limited, and its unit. `wall_s` counts time in which at least one trial ran."""

_SLACK = 1e-9  # sums of floats must not refuse the last reservation that just fits


class Budget:
    """Limits, what is spent, what is reserved. A kind without a limit is counted and never refused."""

    def __init__(self, limits: Mapping[str, float]) -> None:
        """`limits`: kind -> amount, the kinds of `UNITS`. ConfigError for another kind or a negative limit."""
        self.limits = {k: float(v) for k, v in _known(limits).items()}
        self.spent: dict[str, float] = dict.fromkeys(UNITS, 0.0)
        self._reservations: dict[str, dict[str, float]] = {}

    @classmethod
    def from_events(cls, events: Iterable[Event], limits: Mapping[str, float]) -> Budget:
        """The budget as the ledger tells it: unfinished trials hold their reservation, finished ones their cost.

        A trial that only evaluates a stored policy (`train` false) costs CPU-seconds but does not count as a trial.
        """
        budget = cls(limits)
        training: dict[str, float] = {}
        busy: list[tuple[float, float]] = []
        closed_wall_s = latest = behind = others = 0.0
        priced = "usd" in budget.limits
        for event in events:
            body = event.body
            # a session whose clock had been set back goes on where the last one ended
            at = datetime.fromisoformat(event.time).timestamp()
            behind += max(0.0, latest - at - behind)
            latest = at + behind
            if isinstance(body, TrialIntended):
                training[body.trial] = float(body.train)
                asked = {"cpu_s": body.reserve_cpu_s, "trials": float(body.train)}
                more = {"gpu_s": body.reserve_gpu_s, "usd": body.reserve_usd}
                budget._reservations[body.trial] = asked | {k: v for k, v in more.items() if v}
            elif isinstance(body, TrialFinished):
                took = {"cpu_s": body.cpu_s, "gpu_s": body.gpu_s, "usd": body.usd or 0.0}
                budget.settle(body.trial, **took, trials=training.pop(body.trial, 0.0))
                priced = priced or body.usd is not None
                busy.append((latest - body.wall_s, latest))
            elif isinstance(body, SeatAnswered):
                budget.charge(agent_tokens=body.input_tokens + body.output_tokens, dollars=body.dollars)
                others += body.dollars
            elif isinstance(body, ReaderAnswered):
                others += body.dollars
            elif isinstance(body, RunClosed):
                closed_wall_s = max(closed_wall_s, body.wall_s)
        if priced:  # of a run without prices dollars are the seat's alone
            budget.charge(usd=others)
        # Side by side, trials share the clock; between sessions it stands still.
        budget.spent["wall_s"] = max(_covered(busy), closed_wall_s)
        return budget

    @property
    def unit(self) -> str:
        """What a training's cost is weighed in: what the budget limits, dollars before GPU time before CPU time."""
        return next((k for k in ("usd", "gpu_s") if k in self.limits), "cpu_s")

    @property
    def reserved(self) -> dict[str, float]:
        """Amounts set aside for what has not finished, by kind."""
        kinds = {k for r in self._reservations.values() for k in r}
        return {k: sum(r.get(k, 0.0) for r in self._reservations.values()) for k in sorted(kinds)}

    def left(self) -> dict[str, float]:
        """What can still be reserved, for each limited kind; 0 after an overrun."""
        reserved = self.reserved
        return {k: max(0.0, limit - self.spent[k] - reserved.get(k, 0.0)) for k, limit in self.limits.items()}

    def check(self, **amounts: float) -> None:
        """BudgetError where `amounts` (kind -> amount) do not fit what is left: asked, left, remedy."""
        left = self.left()
        for kind, asked in _known(amounts).items():
            if kind in left and asked > left[kind] * (1 + _SLACK) + _SLACK:
                reserved = self.reserved.get(kind, 0.0)
                least = self.spent[kind] + reserved + asked
                raise BudgetError(
                    f"{asked:g} {UNITS[kind]} asked, {left[kind]:g} left of budget.{kind}={self.limits[kind]:g} "
                    f"({self.spent[kind]:g} spent, {reserved:g} reserved); raise it to {least:g} or more"
                )

    def reserve(self, key: str, **amounts: float) -> None:
        """Set amounts aside under `key` (a trial); a repeated one replaces the first. BudgetError as `check`."""
        before = self._reservations.pop(key, None)
        try:
            self.check(**amounts)
        except BudgetError:
            if before is not None:
                self._reservations[key] = before
            raise
        self._reservations[key] = dict(amounts)

    def settle(self, key: str, **amounts: float) -> None:
        """Replace the reservation of `key` by its true cost, which may be larger."""
        self._reservations.pop(key, None)
        self.charge(**amounts)

    def charge(self, **amounts: float) -> None:
        """Add to what is spent, without a reservation."""
        for kind, amount in _known(amounts).items():
            self.spent[kind] += amount


def _known(amounts: Mapping[str, float]) -> Mapping[str, float]:
    for kind, amount in amounts.items():
        if kind not in UNITS:
            raise ConfigError(f"unknown budget kind {kind!r}; one of: {', '.join(UNITS)}")
        if not amount >= 0:
            raise ConfigError(f"budget.{kind} is {amount}; give a number that is not negative")
    return amounts


def _covered(intervals: list[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, reach = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total
