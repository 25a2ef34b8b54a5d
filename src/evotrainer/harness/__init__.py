"""The diagnostic harness: three layers of metrics, detectors, diagnosis and backtests over rollouts."""

from evotrainer.harness.bottlenecks import KINDS, factors_of
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.detectors import detect
from evotrainer.harness.diagnose import diagnose
from evotrainer.harness.metrics import measure
from evotrainer.harness.registry import detector, metric
from evotrainer.harness.render import render_text
from evotrainer.harness.versions import Harness
from evotrainer.harness.whatif.backtest import backtest
