"""`[budget]` of a task file: what the run may spend, and what it costs."""

from __future__ import annotations

from datetime import UTC, date, datetime

from pydantic import Field, field_validator, model_validator

from evotrainer.records.clock import unix_time
from evotrainer.records.frozen import Frozen


def _today() -> date:
    return datetime.fromtimestamp(unix_time(), UTC).date()


STALE_DAYS = 30
"""Age from which prices are said to be old."""


class PriceConfig(Frozen):
    """What an hour costs where the run's trials run, and since when that is known."""

    gpu_hour: float | None = Field(None, ge=0)
    """US dollars for one GPU for an hour; what else the machine costs is best included."""
    cpu_hour: float | None = Field(None, ge=0)
    """US dollars for an hour of CPU time (one core); None: included in the GPU's."""
    as_of: date
    """Day (2026-11-29) on which the prices were looked up: they change, and every sum names it."""

    @field_validator("as_of")
    @classmethod
    def _past(cls, v: date) -> date:
        if (v - _today()).days > 1:  # a day ahead somewhere on earth
            raise ValueError(f"as_of = {v} lies in the future; give the day on which the prices were looked up")
        return v

    def usd(self, cpu_s: float, gpu_s: float) -> float:
        """What so many CPU- and GPU-seconds cost."""
        return (cpu_s * (self.cpu_hour or 0.0) + gpu_s * (self.gpu_hour or 0.0)) / 3600

    @property
    def line(self) -> str:
        """`2.5 USD a GPU-hour, 0.04 USD a CPU-hour, as of 2026-11-29`"""
        rows = ((self.gpu_hour, "GPU-hour"), (self.cpu_hour, "CPU-hour"))
        told = ", ".join(f"{x:g} USD a {what}" for x, what in rows if x is not None)
        return f"{told}, as of {self.as_of}"

    def stale(self) -> str:
        """How old the prices are, where that is long enough to look again; "" where it is not."""
        days = (_today() - self.as_of).days
        if days <= STALE_DAYS:
            return ""
        return f"the prices of budget.price are {days} days old (as of {self.as_of}): look them up again, and set as_of"


class BudgetConfig(Frozen):
    """What the whole run may spend; None: no limit."""

    cpu_s: float | None = Field(None, gt=0)
    """CPU-seconds of all trials together."""
    gpu_s: float | None = Field(None, gt=0)
    """GPU-seconds of all trials together: GPUs that a trial holds (those that its process sees, on Ray those that it
    was given) times the time for which it runs."""
    usd: float | None = Field(None, gt=0)
    """US dollars of all trials by `budget.price`, and of the seat and the reader as they tell them."""
    wall_s: float | None = Field(None, gt=0)
    """Seconds of the clock in which at least one trial ran; between a stop and its resume it stands still."""
    trials: int | None = Field(None, ge=1)
    """Trainings, search trainings included; evaluations alone do not count."""
    trial_cpu_s: float = Field(300.0, gt=0)
    """CPU-seconds reserved for a trial before its cost is known; a trial that passes twice this is stopped as an
    overrun."""
    trial_gpu_s: float = Field(300.0, gt=0)
    """GPU-seconds reserved for a trial that takes a GPU before its cost is known."""
    price: PriceConfig | None = None
    """Prices; needed for `budget.usd`, and shown with what is spent where given."""

    @model_validator(mode="after")
    def _priced(self) -> BudgetConfig:
        price = self.price
        if self.usd is not None and (price is None or price.gpu_hour is price.cpu_hour is None):
            raise ValueError(
                "usd needs [budget.price] with gpu_hour or cpu_hour, and as_of, the day on which they were looked up"
            )
        return self

    def limits(self) -> dict[str, float]:
        """The limits that are set, by name."""
        names = ("cpu_s", "gpu_s", "usd", "wall_s", "trials")
        return {k: float(v) for k in names if (v := getattr(self, k)) is not None}
