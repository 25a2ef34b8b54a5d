"""The judge: statistics, gates, alpha spending, certification. Never learns who proposed a change."""

from evotrainer.judge.alpha_spending import InterimAnalysis, next_looks
from evotrainer.judge.audits import answers, settle_audit, with_shortcut_closed
from evotrainer.judge.certify import CertEntry, certify
from evotrainer.judge.compute import cost_ratio
from evotrainer.judge.decide import judge
from evotrainer.judge.inputs import JudgeConfig, JudgeInput
from evotrainer.judge.scaffold import ScaffoldControl
from evotrainer.judge.stats import measure_noise, scores_of
