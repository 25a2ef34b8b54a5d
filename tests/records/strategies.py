"""Hypothesis strategies for whole rollouts."""

from __future__ import annotations

from hypothesis import strategies as st

from evotrainer.records.rollout import Rollout, ToolCall, Turn

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
int64 = st.integers(-(2**63), 2**63 - 1)
float64 = st.floats(allow_nan=False)
json_value = st.recursive(
    st.none() | st.booleans() | int64 | float64 | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
json_object = st.dictionaries(text, json_value, max_size=3)

turns = st.builds(
    Turn,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    text=text,
    tool_calls=st.lists(st.builds(ToolCall, text, text, st.none() | st.booleans()), max_size=2).map(tuple),
    tokens=st.none() | int64,
)
rollouts = st.builds(
    Rollout,
    id=st.uuids().map(lambda u: u.hex),
    task=text,
    turns=st.lists(turns, max_size=3).map(tuple),
    reward=st.none() | float64,
    components=st.dictionaries(text, st.none() | float64, max_size=3),
    outcome=st.sampled_from(["correct", "incorrect", "unknown"]),
    finish=st.none() | st.sampled_from(["stop", "length", "turn_limit", "error"]),
    run=text,
    branch=text,
    policy=text,
    split=text,
    step=int64,
    seed=int64,
    group=text,
    k=int64,
    attempt=int64,
    tokens=st.none() | int64,
    advantage=st.none() | float64,
    mean_logprob=st.none() | float64,
    entropy=st.none() | float64,
    token_ids=st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple),
    logprobs=st.none() | st.lists(st.floats(width=32, allow_nan=False), max_size=4).map(tuple),
    sandbox_tier=st.none() | text,
    knobs=json_object,
    env_hash=text,
    error=st.none() | text,
    error_kind=st.none() | text,
    detail=json_object,
)
