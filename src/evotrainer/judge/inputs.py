"""All that a verdict rests on, put together once: by the loop before it judges, by `verify`,
`why` and gate replays afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evotrainer.judge.alpha_spending import InterimAnalysis
from evotrainer.judge.decide import JudgeConfig, Recomputed, judge, recompute
from evotrainer.records.events import NoiseMeasured, TrialFinished
from evotrainer.records.findings import Finding
from evotrainer.records.verdicts import ShortcutAudit, Verdict


@dataclass(frozen=True)
class JudgeInput:
    """The judge's arguments, without the look; it never learns who proposed the change."""

    branch: str
    control: str
    branch_trials: Sequence[TrialFinished]
    """Failed ones included; complete ones with the scores of the evaluations that replace theirs."""
    control_trials: Sequence[TrialFinished]
    noise: NoiseMeasured | None
    config: JudgeConfig
    findings: Sequence[Finding] = ()
    control_findings: Sequence[Finding] = ()
    audits: Mapping[str, bool] = field(default_factory=dict)
    """Detector -> confirmed (True) or cleared (False)."""
    shortcuts: Sequence[ShortcutAudit] = ()
    proxy: tuple[str, str] | None = None
    """The environment's (proxy, true) reward components."""
    ahead: str = ""
    """The champion, where it is another than the control."""

    def verdict(self, look: InterimAnalysis) -> Verdict:
        """What the judge says at this look."""
        return judge(
            self.branch,
            self.control,
            self.branch_trials,
            self.control_trials,
            self.noise,
            look,
            self.config,
            findings=self.findings,
            control_findings=self.control_findings,
            audits=self.audits,
            shortcuts=self.shortcuts,
            proxy=self.proxy,
            ahead=self.ahead,
        )

    def compare(self, stored: Verdict, look: InterimAnalysis | None = None) -> Recomputed:
        """A recorded verdict and the one that follows from this;
        `look`: the interim analysis that was due, None: the one the verdict names."""
        return recompute(
            stored,
            self.branch_trials,
            self.control_trials,
            self.noise,
            self.config,
            findings=self.findings,
            control_findings=self.control_findings,
            audits=self.audits,
            shortcuts=self.shortcuts,
            proxy=self.proxy,
            ahead=self.ahead,
            look=look,
        )
