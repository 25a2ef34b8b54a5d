"""What a sandbox proved about itself when it opened: printed by `evotrainer doctor`, stamped on rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evotrainer.sandbox.attack_targets import ProbeResult
from evotrainer.sandbox.model import Tier

PROMISES: dict[Tier, str] = {
    "A": "own namespaces, system call filter, own user, memory and CPU time of all processes together limited",
    "B": "as A, but memory is limited per process only, and the clock alone bounds children that nobody waits for "
    "(no control group)",
    "C": "no namespaces: system call filter and limits; files the user may read can be read, other processes be seen",
    "D": "limits only (CPU, memory, output); the program has all rights of its user, and what it leaves stays",
    "E": "nothing is proven",
}


@dataclass(frozen=True, slots=True)
class TierReport:
    """The tier, each probe's outcome, and why no stronger tier was reached."""

    tier: Tier
    probes: tuple[ProbeResult, ...]
    notes: tuple[str, ...]
    interpreter: str
    uid: int

    def broken(self) -> list[str]:
        """One line per probe that did not hold."""
        return [f"{probe.name}: {probe.detail}" for probe in self.probes if not probe.held]

    def isolation(self) -> dict[str, Any]:
        """What the tier promises, and what keeps it from tier A; JSON-able."""
        return {"promise": PROMISES[self.tier], "missing": [*self.notes, *self.broken()] if self.tier != "A" else []}

    def __str__(self) -> str:
        lines = [f"sandbox tier {self.tier}: {PROMISES[self.tier]}"]
        lines += [f"  note: {note}" for note in self.notes]
        for probe in self.probes:
            mark = "held  " if probe.held else "BROKEN"
            lines.append(f"  {mark} {probe.name:<13} {probe.about}{f' [{probe.detail}]' if probe.detail else ''}")
        lines.append(f"  programs run as user {self.uid} under {self.interpreter}")
        return "\n".join(lines)
