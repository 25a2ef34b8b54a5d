"""Audits to look at: a plain one read from disk, and one in which everything is hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evotrainer.harness.columns.source import InMemoryRollouts
from evotrainer.importers.base import Skipped
from evotrainer.records.findings import Bottleneck, Finding, HealthReport, MetricValue, Quote
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from evotrainer.studies.audit import RolloutAudit, SourceReport, SubjectReading, audit
from evotrainer.studies.audit.quoted import quoted_name
from evotrainer.studies.audit.units import OpenedSource
from tests.views.conftest import ATTACK, LONG_LINE

NAMES = ("constructor", "__proto__", "toString", "a'b\"c<i>")
"""Names that every JavaScript object knows, and one that breaks attributes."""
IDS = ('it\'s "quoted"', "</script>", "a#b?c%zz&d=1", "r\u202eid\x00", "x" * 200, "constructor", "plain")


CLAIM = ATTACK.replace("\ud800", "")
"""The same for records of ours, which hold no lone surrogates."""


def write_steps(path: Path, steps: int = 6, tasks: int = 8, k: int = 8) -> Path:
    """Rollouts over training steps; the visible tests are paid, half of what passes them is wrong."""
    rows = []
    for step in range(steps):
        for t in range(tasks):
            for i in range(k):
                visible = float((t + i + step) % 4 != 0)
                hidden = visible * float((t * i + step) % 2)
                row: dict[str, Any] = {
                    "task": f"task-{t}",
                    "prompt": f"Add {t} and {step}",
                    "text": f"def solve(x):\n    return x + {i}  # attempt {i} at {t}",
                    "reward": visible,
                    "correct": bool(hidden),
                    "components": {"visible": visible, "hidden": hidden},
                    "step": step,
                    "k": i,
                    "tokens": 20 + i,
                    "finish": "length" if i == 7 else "stop",
                }
                rows.append(row)
    rows[3] = {"task": "task-0", "text": "", "error_kind": "timeout", "error": "no answer", "step": 0, "k": 3}
    lines = [json.dumps(r) for r in rows] + ['{"task": "broken', "[1, 2]"]
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path) -> RolloutAudit:
    return audit([path], workers=1)


def hostile_rollout(id: str) -> Rollout:
    return Rollout(
        id=id,
        task=f"task {id} {ATTACK}",
        turns=(
            Turn("system", ATTACK),
            Turn("user", ATTACK * 3),
            *(
                turn
                for i in range(200)
                for turn in (
                    Turn("assistant", f"step {i} {ATTACK}", (ToolCall(ATTACK, json.dumps({"c": ATTACK}), i % 2 == 0),)),
                    Turn("tool", f"out {i} " + ATTACK),
                )
            ),
            Turn("assistant", "A" * LONG_LINE + f"the needle of {len(id)}" + "B" * 100 if id == "plain" else ATTACK),
        ),
        reward=float("nan"),
        components=dict.fromkeys(NAMES, 1.0) | {ATTACK: None, "inf": float("inf")},
        outcome="incorrect",
        error=ATTACK,
        knobs={ATTACK: ATTACK},
        detail={"tests": [{"input": ATTACK, "expected": None, "got": ATTACK, "passed": False}], ATTACK: nested(200)},
    )


def nested(depth: int) -> Any:
    out: Any = ATTACK
    for _ in range(depth):
        out = {"x": [out]}
    return out


def hostile() -> RolloutAudit:
    """Attack text in every string of an audit."""
    held = [hostile_rollout(i) for i in IDS]
    quotes = tuple(Quote(rollout=quoted_name(r), text="window.pwned=1" + CLAIM, note=CLAIM) for r in held[:-1])
    needle = Quote(rollout="plain", text="the needle of 5")
    findings = tuple(
        Finding(
            detector=n,
            kind=n,
            severity=s,  # type: ignore[arg-type]
            claim=CLAIM,
            numbers={CLAIM: 1.0},
            thresholds={CLAIM: 2.0},
            quotes=(*quotes, needle, Quote(rollout="gone" + CLAIM, text=CLAIM)),
            validity=True,
        )
        for n, s in zip((*NAMES, CLAIM), ("critical", "warn", "info", "critical", "warn"), strict=True)
    )
    health = HealthReport(
        harness="h0",
        subject=CLAIM,
        rollouts=len(held),
        groups=1,
        metrics=(
            MetricValue(name=CLAIM, layer="signal", value=0.9, unit=CLAIM, n=4, se=0.1, healthy=(None, 0.5)),
            MetricValue(name="unseen" + CLAIM, layer="score", value=None, missing=(CLAIM,)),
        ),
        findings=(*findings, Finding(detector="blind", kind="x", severity="info", claim=CLAIM, missing=(CLAIM,))),
        bottlenecks=(Bottleneck(name=NAMES[0], score=0.9, explanation=CLAIM, findings=()),),
    )
    curve = tuple({"step": float(i), "reward": i / 9, f"rewards/{NAMES[0]}/mean": 0.5, CLAIM: 1.0} for i in range(9))
    assumed = {"proxy": [CLAIM, NAMES[1]], "paid": dict.fromkeys(NAMES[:2], 1.0), CLAIM: CLAIM}
    clean_id = SubjectReading(CLAIM, health, curve, assumed)
    skipped = tuple(Skipped(f"line {i} {CLAIM}", CLAIM) for i in range(1000))
    report = SourceReport(f"/logs/{CLAIM}.jsonl", "jsonl", len(held), {CLAIM: 3}, skipped, (clean_id, clean_id))
    return RolloutAudit((report,), (Skipped(CLAIM, CLAIM),), (OpenedSource([InMemoryRollouts(held)]),))
