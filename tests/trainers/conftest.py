"""A warm-started toy policy, trained once per session (about 2 CPU-s)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from evotrainer.trainers.base import WarmStartRequest
from evotrainer.trainers.embedded.warmstart import warm_start
from tests.trainers.reverse_env import SHAPE, WORDS, ReverseEnv

# Two spinning OpenMP threads beside another busy process cost ten times the arithmetic.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Solves about half of the reversals of 3 digits at temperature 1."""
    out = tmp_path_factory.mktemp("toy") / "policy"
    demos = ReverseEnv().demonstrations(2000, 0)
    result = warm_start(WarmStartRequest(demos, WORDS, "toy-1", SHAPE, 350, 48, lr=4e-3, seed=0, out_dir=out))
    assert result.loss < 1.0
    return out
