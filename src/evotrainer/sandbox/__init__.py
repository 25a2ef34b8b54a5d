"""Untrusted code: run it confined, get outputs back, judge them outside."""

from evotrainer.sandbox.model import Call, CaseResult, Check, CheckResult, Limits, Program, RunResult, Tier
from evotrainer.sandbox.report import TierReport
from evotrainer.sandbox.sandbox import Sandbox
from evotrainer.sandbox.values import Opaque, decode, encode, same
