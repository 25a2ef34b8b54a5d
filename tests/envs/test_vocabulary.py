"""`envs.vocabulary`: fixed lists, and that of code keeps texts short."""

from __future__ import annotations

import hashlib
import re
from statistics import mean

import pytest

from evotrainer.envs.code.demos import demonstrations
from evotrainer.envs.code.env import CodeEnv
from evotrainer.envs.vocabulary import vocabulary

PINNED = {"code-v1": "7f7c963af80d5024", "math-v1": "f5ad0e5a5a972e9c", "swe-v1": "9d7eb0dce1b66305"}


@pytest.mark.parametrize("version", PINNED)
def test_a_vocabulary_stays_as_shipped_policies_know_it(version: str) -> None:
    tokens = vocabulary(version)
    found = hashlib.sha256("\n".join(tokens).encode()).hexdigest()
    assert found[:16] == PINNED[version], "a changed vocabulary breaks shipped policies: make a new version"
    assert len(set(tokens)) == len(tokens)
    assert all(len(t) > 1 for t in tokens)


def test_prompts_and_programs_are_short_in_tokens() -> None:
    tokens = sorted(vocabulary("code-v1"), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, tokens)) + r"|[\s\S]")
    demos = demonstrations(400, seed=0)
    prompts, programs = ([pattern.findall(d[i]) for d in demos] for i in (0, 1))
    assert all("".join(ts) == d[0] for ts, d in zip(prompts, demos, strict=True))
    assert mean(map(len, prompts)) < 40
    assert mean(map(len, programs)) < 25
    assert max(map(len, prompts)) + max(map(len, programs)) < 200


def test_the_environment_names_its_vocabulary(code_env: CodeEnv) -> None:
    assert code_env.vocabulary() == vocabulary("code-v1")
    assert code_env.describe()["vocabulary"] == "code-v1"
