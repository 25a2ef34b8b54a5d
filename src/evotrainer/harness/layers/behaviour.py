"""Behaviour layer: what the policy does to get its score."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from evotrainer.harness.actions import kind_of
from evotrainer.harness.batch import Batch, prompt
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.numerics import Floats, clustered_mean
from evotrainer.harness.registry import Reading, clustered_reading, metric
from evotrainer.harness.shortcuts import shortcuts
from evotrainer.harness.text import bucket, longest_run, repetition

BUCKETS = 1024
"""Hash buckets of the retrieval proxy's bag of words."""
RETRIEVAL_GROUPS = 256


@metric("completions/mean_length", "behaviour", "tokens", needs=["tokens"])
def mean_length(batch: Batch, context: HarnessContext) -> Reading:
    """Mean completion tokens. Name as in TRL. SE clustered by task."""
    return clustered_reading(batch.tokens, batch)


def _percentile(values: Floats, q: float) -> Reading:
    x = values[~np.isnan(values)]
    return Reading(float(np.percentile(x, q)), len(x))


@metric("tokens_p10", "behaviour", "tokens", needs=["tokens"])
def tokens_p10(batch: Batch, context: HarnessContext) -> Reading:
    """10th percentile of completion tokens: falls first when answers collapse to nothing."""
    return _percentile(batch.tokens, 10)


@metric("tokens_p90", "behaviour", "tokens", needs=["tokens"])
def tokens_p90(batch: Batch, context: HarnessContext) -> Reading:
    """90th percentile of completion tokens: rises first when answers run away."""
    return _percentile(batch.tokens, 90)


@metric("turns", "behaviour", "turns", healthy=(None, 50.0))
def turns(batch: Batch, context: HarnessContext) -> Reading:
    """Mean assistant turns per rollout."""
    return clustered_reading(batch.column(lambda r: sum(t.role == "assistant" for t in r.turns)), batch)


@metric("empty_rate", "behaviour", "share", healthy=(None, 0.02))
def empty_rate(batch: Batch, context: HarnessContext) -> Reading:
    """Rollouts without a visible character from the policy and without a tool call."""
    empty = [not t.strip() and not a for t, a in zip(batch.texts, batch.actions, strict=True)]
    return clustered_reading(np.array(empty, dtype=float), batch)


@metric("tool_calls", "behaviour", "calls", needs=["tool_calls"])
def tool_calls(batch: Batch, context: HarnessContext) -> Reading:
    """Mean tool calls per rollout."""
    return clustered_reading(batch.column(lambda r: sum(len(t.tool_calls) for t in r.turns)), batch)


@metric("tool_failure_rate", "behaviour", "share", healthy=(None, 0.15), needs=["tool_ok"])
def tool_failure_rate(batch: Batch, context: HarnessContext) -> Reading:
    """Failed tool calls among those whose success is known, all rollouts pooled. Healthy: at most 15%."""
    ok = [c.ok for r in batch.rollouts for t in r.turns for c in t.tool_calls if c.ok is not None]
    return Reading(ok.count(False) / len(ok), len(ok))


def _action_share(kind: str) -> Callable[[Batch], Reading]:
    def read(batch: Batch) -> Reading:
        shares = [
            sum(kind_of(a) == kind for a in actions) / len(actions) if actions else math.nan
            for actions in batch.actions
        ]
        return clustered_reading(np.array(shares, dtype=float), batch)

    return read


@metric("edit_ratio", "behaviour", "share of actions", healthy=(0.15, None), needs=["actions"])
def edit_ratio(batch: Batch, context: HarnessContext) -> Reading:
    """Editing actions among a rollout's actions, mean over rollouts that act. Healthy in repository work: 15% or more."""
    return _action_share("edit")(batch)


@metric("search_ratio", "behaviour", "share of actions", needs=["actions"])
def search_ratio(batch: Batch, context: HarnessContext) -> Reading:
    """Looking-around actions (list, read, search) among a rollout's actions, mean over rollouts that act."""
    return _action_share("search")(batch)


@metric("self_test_rate", "behaviour", "share", healthy=(0.5, None), needs=["actions"])
def self_test_rate(batch: Batch, context: HarnessContext) -> Reading:
    """Acting rollouts that run tests at least once. Healthy in repository work: at least 50%."""
    tested = [float(any(kind_of(x) == "test" for x in a)) if a else math.nan for a in batch.actions]
    return clustered_reading(np.array(tested, dtype=float), batch)


@metric("distinct_solutions", "behaviour", "share", healthy=(0.15, None), needs=["text", "groups"])
def distinct_solutions(batch: Batch, context: HarnessContext) -> Reading:
    """Distinct completions of a group, up to names, comments and layout, over its size; mean over groups of two or more.

    1/size means that all are the same. Below 15% exploration has collapsed (METHOD.md section 4).
    """
    values, tasks, at = [], [], 0
    for g in batch.groups:
        if len(g) > 1:
            values.append(len(set(batch.solutions[at : at + len(g)])) / len(g))
            tasks.append(batch.task[at])
        at += len(g)
    m, se, n = clustered_mean(np.array(values), np.array(tasks, dtype=np.int64))
    return Reading(m, n, se)


def repetitions(batch: Batch) -> Floats:
    """Share of repeated 4-grams of each completion, shape (N,)."""
    return np.array([repetition(w) for w in batch.words], dtype=float)


@metric("ngram_repetition", "behaviour", "share", healthy=(None, 0.3), needs=["text"])
def ngram_repetition(batch: Batch, context: HarnessContext) -> Reading:
    """Share of 4-grams of words that occurred before in the same completion, mean over rollouts."""
    return clustered_reading(repetitions(batch), batch)


def action_runs(batch: Batch) -> Floats:
    """Longest run of one action: of equal actions where the rollout acts, else of equal non-empty lines; shape (N,)."""
    runs = []
    for actions, text in zip(batch.actions, batch.texts, strict=True):
        steps = [a.command for a in actions] or [s for ln in text.splitlines() if (s := ln.strip())]
        runs.append(longest_run(steps))
    return np.array(runs, dtype=float)


@metric("action_run", "behaviour", "actions", healthy=(None, 3.0), needs=["text"])
def action_run(batch: Batch, context: HarnessContext) -> Reading:
    """90th percentile over rollouts of the longest run of one action (one line, in single answers)."""
    return _percentile(action_runs(batch), 90)


@metric("program_rate", "behaviour", "share", needs=["text"])
def program_rate(batch: Batch, context: HarnessContext) -> Reading:
    """Completions that parse as a Python program doing something. Near 0 where the task is not programming."""
    return clustered_reading(batch.code.astype(float), batch)


@metric("literal_overlap", "behaviour", "share", healthy=(None, 0.02), needs=["programs", "detail.tests"])
def literal_overlap(batch: Batch, context: HarnessContext) -> Reading:
    """Programs that hold an expected output of a visible test as a literal, which the specification does not name."""
    values = [math.nan if s is None else float(bool(s.outputs)) for s in shortcuts(batch)]
    return clustered_reading(np.array(values, dtype=float), batch)


@metric("reads_input", "behaviour", "share", healthy=(0.9, None), needs=["programs"])
def reads_input(batch: Batch, context: HarnessContext) -> Reading:
    """Programs that use input(), stdin, open(0) or a parameter of their functions."""
    values = [float(f.reads_input) if f.is_code else math.nan for f in batch.programs]
    return clustered_reading(np.array(values, dtype=float), batch)


def _bag(tokens: list[str]) -> Floats:
    """Which hashed words and word pairs occur, shape (BUCKETS,)."""
    v = np.zeros(BUCKETS)
    grams = tokens[:400]
    v[[bucket(t, BUCKETS) for t in grams]] = 1.0
    v[[bucket(f"{a} {b}", BUCKETS) for a, b in pairwise(grams)]] = 1.0
    return v


def _weighted(bags: Floats, rarity: Floats) -> Floats:
    """Unit rows of bags weighted by rarity; rows of common words only become 0."""
    rows = bags * rarity
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


@metric("io_dependence", "behaviour", "share", healthy=(0.3, None), needs=["text", "groups", "prompts"])
def io_dependence(batch: Batch, context: HarnessContext) -> Reading:
    """Does the output tell which input it answers? A retrieval proxy of the mutual information I(input; output).

    From each of up to 256 groups with distinct prompts two rollouts are taken; the first retrieves by cosine similarity
    of hashed words and word pairs, weighted by inverse document frequency, among all second ones. Value: (hit rate - 1/G) / (1 - 1/G), ties shared.
    1: outputs identify their task; 0: a template. After RAGEN-2's input-output mutual information.
    """
    queries: list[list[str]] = []
    keys: list[list[str]] = []
    prompts: set[str] = set()
    at = 0
    for g in batch.groups:
        p = prompt(g[0])
        if len(g) > 1 and p not in prompts and len(queries) < RETRIEVAL_GROUPS:
            prompts.add(p)
            queries.append(batch.words[at])
            keys.append(batch.words[at + 1])
        at += len(g)
    n = len(queries)
    if n < 4:
        return Reading(None, n, missing=("four different prompts",))
    q, k = np.stack([_bag(x) for x in queries]), np.stack([_bag(x) for x in keys])
    rarity = np.log(2 * n / np.maximum(q.sum(axis=0) + k.sum(axis=0), 1.0))
    similarity = _weighted(q, rarity) @ _weighted(k, rarity).T
    best = similarity >= similarity.max(axis=1, keepdims=True) - 1e-9
    hits = np.where(np.diag(best), 1.0 / best.sum(axis=1), 0.0)
    rate, chance = float(hits.mean()), 1.0 / n
    se = float(hits.std(ddof=1)) / math.sqrt(n) / (1 - chance)
    return Reading(max(0.0, (rate - chance) / (1 - chance)), n, se)
