"""`envs.code.vocab`: a fixed list that the grammar still yields, and it keeps texts short."""

from __future__ import annotations

import re
from statistics import mean

from evotrainer.envs.code.demos import demonstrations
from evotrainer.envs.code.env import CodeEnv
from evotrainer.envs.code.vocab import VOCABULARY_VERSION, derive, vocabulary


def test_the_checked_in_vocabulary_is_the_one_the_grammar_yields() -> None:
    assert derive() == vocabulary(), "a changed vocabulary breaks shipped policies: make a new version"


def test_tokens_are_distinct_printable_and_longer_than_a_character() -> None:
    tokens = vocabulary()
    assert len(set(tokens)) == len(tokens)
    assert all(len(t) > 1 and all(32 <= ord(c) < 127 for c in t) for t in tokens)
    assert len(tokens) < 500


def test_prompts_and_programs_are_short_in_tokens() -> None:
    pattern = re.compile("|".join(map(re.escape, sorted(vocabulary(), key=len, reverse=True))) + r"|[\s\S]")
    demos = demonstrations(400, seed=0)
    prompts, programs = ([pattern.findall(d[i]) for d in demos] for i in (0, 1))
    assert all("".join(ts) == d[0] for ts, d in zip(prompts, demos, strict=True))
    assert mean(map(len, prompts)) < 40
    assert mean(map(len, programs)) < 25
    assert max(map(len, prompts)) + max(map(len, programs)) < 200


def test_the_environment_names_its_vocabulary(code_env: CodeEnv) -> None:
    assert code_env.vocabulary() == vocabulary()
    assert code_env.describe()["vocabulary"] == VOCABULARY_VERSION
