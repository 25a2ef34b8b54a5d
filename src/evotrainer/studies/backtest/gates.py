"""Recorded verdicts under another rule: `alpha=0.01`, `min_effect=0.03`, `drop=proxy`, or what most people do,
the score only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from evotrainer.errors import ConfigError
from evotrainer.judge import JudgeConfig
from evotrainer.judge.verdict_changes import GATES, SCORE_ONLY, Basis, VerdictUnderRule, flips
from evotrainer.records.frozen import explain
from evotrainer.rules.judge_input import judge_config
from evotrainer.studies.backtest.sources import is_own

if TYPE_CHECKING:
    from evotrainer.api import Run

RULE = "score-only"


@dataclass(frozen=True, slots=True)
class GateReplay:
    """A run's verdicts under another rule."""

    run: str
    flips: tuple[VerdictUnderRule, ...]
    invalid: dict[str, str]
    """Branches known to be invalid -> why; a rule that promotes one of them was fooled."""

    @property
    def flipped(self) -> list[VerdictUnderRule]:
        return [f for f in self.flips if f.flipped]

    def promotions(self, *, now: bool) -> tuple[int, int]:
        """(promotions, those of invalid branches) under the new rule, or as recorded."""
        kept = [f.branch for f in self.flips if (f.now if now else f.was) == "promote"]
        return len(kept), sum(b in self.invalid for b in kept)


def replay_gate(folder: Path, settings: Sequence[str]) -> GateReplay:
    """Give every verdict of a run again; ConfigError for settings that do not exist and for a run without verdicts."""
    from evotrainer import api

    if not is_own(folder):
        raise ConfigError(f"{folder} is no run folder; only a run of ours holds verdicts that a gate could give again")
    run = api.open_run(folder)
    base = judge_config(run.task, run.state)
    config, drop = rule_of(base, settings)
    rows = _bases(run)
    if not rows:
        raise ConfigError(f"{folder} holds no verdict yet; `evotrainer status {folder}` says where it stands")
    return GateReplay(folder.name, tuple(flips(rows, config, drop)), dict(run.state.invalid))


def rule_of(base: JudgeConfig, settings: Sequence[str]) -> tuple[JudgeConfig, tuple[str, ...]]:
    """(configuration, dropped gates) of `name=value` settings, `drop=gate,gate` and `rule=score-only`."""
    from evotrainer.config.load import apply_overrides

    plain = [s.removeprefix("judge.") for s in settings]
    drop: list[str] = []
    values: list[str] = []
    for s in plain:
        key, _, text = s.partition("=")
        if key.strip() == "drop":
            drop += [g.strip() for g in text.split(",") if g.strip()]
        elif key.strip() == "rule":
            if text.strip() != RULE:
                raise ConfigError(f"rule={text}: the one rule with a name is {RULE}")
            drop += SCORE_ONLY
        else:
            values.append(s)
    unknown = sorted(set(drop) - set(GATES))
    if unknown:
        raise ConfigError(f"no gate {', '.join(unknown)} to drop; there are: {', '.join(GATES)}")
    known = set(JudgeConfig.model_fields) - {"split"}
    strange = sorted({v.partition("=")[0].strip() for v in values} - known)
    if strange:
        raise ConfigError(
            f"the judge has no setting {', '.join(strange)}; there are: {', '.join(sorted(known))}, drop=GATE,..., "
            f"rule={RULE}"
        )
    if not settings:
        raise ConfigError(f"say what the gate should be: e.g. alpha=0.01, min_effect=0.03, drop=proxy or rule={RULE}")
    try:
        return JudgeConfig.model_validate(apply_overrides(base.model_dump(mode="json"), values)), tuple(
            dict.fromkeys(drop)
        )
    except ValidationError as e:
        raise ConfigError(f"gate: {explain(e, JudgeConfig)}") from None


def _bases(run: Run) -> list[Basis]:
    """What each of a run's verdicts rests on, in the order in which they were given; of a branch the last one."""
    from evotrainer.verify import Record
    from evotrainer.verify.verdicts import input_of

    record = Record(run.folder, run.events())
    judged = list(record.of("judged"))
    last = {e.body.verdict.branch: e.seq for e in judged}
    return [
        Basis(e.body.round, e.body.verdict, input_of(record, e)) for e in judged if last[e.body.verdict.branch] == e.seq
    ]
