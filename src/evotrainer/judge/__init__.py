"""The judge: statistics, gates, alpha spending, certification. Never learns who proposed a change."""

from evotrainer.judge.alpha_spending import InterimAnalysis, next_look, next_looks
from evotrainer.judge.audits import answers, settle_audit, with_shortcut_closed
from evotrainer.judge.certify import CertEntry, certify
from evotrainer.judge.compute import cost_ratio
from evotrainer.judge.decide import RecomputedVerdict, judge, recompute
from evotrainer.judge.fresh_seeds import reestimated
from evotrainer.judge.inputs import JudgeConfig, JudgeInput
from evotrainer.judge.scaffold import ScaffoldControl
from evotrainer.judge.stats import effect, hierarchical_bootstrap, measure_noise, scores_of

__all__ = [
    "CertEntry",
    "InterimAnalysis",
    "JudgeConfig",
    "JudgeInput",
    "RecomputedVerdict",
    "ScaffoldControl",
    "answers",
    "certify",
    "cost_ratio",
    "effect",
    "hierarchical_bootstrap",
    "judge",
    "measure_noise",
    "next_look",
    "next_looks",
    "recompute",
    "reestimated",
    "scores_of",
    "settle_audit",
    "with_shortcut_closed",
]
