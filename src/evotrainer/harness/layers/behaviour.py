"""Behaviour layer: what the policy does to get its score."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats, clustered_mean, group_sums
from evotrainer.harness.columns.scan import jaccard
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.registry import MetricValues, clustered_reading, metric
from evotrainer.harness.text import bucket, own_texts, words
from evotrainer.records.rollout import prompt_of
from evotrainer.records.text import clean

BUCKETS = 1024
"""Hash buckets of the retrieval proxy's bag of words."""
RETRIEVAL_GROUPS = 256


@metric("completions/mean_length", "behaviour", "tokens", needs=["tokens"])
def mean_length(batch: Batch, context: HarnessContext) -> MetricValues:
    """Mean completion tokens. Name as in TRL. SE clustered by task."""
    return clustered_reading(batch.tokens, batch)


def _percentile(values: Floats, q: float) -> MetricValues:
    x = values[~np.isnan(values)]
    return MetricValues(float(np.percentile(x, q)), len(x))


@metric("turns", "behaviour", "turns", healthy=(None, 50.0))
def turns(batch: Batch, context: HarnessContext) -> MetricValues:
    """Mean assistant turns per rollout."""
    return clustered_reading(batch.trait("turns"), batch)


@metric("empty_rate", "behaviour", "share", healthy=(None, 0.02))
def empty_rate(batch: Batch, context: HarnessContext) -> MetricValues:
    """Rollouts without a visible character from the policy and without a tool call; without a turn of it: unknown."""
    empty = (batch.trait("visible") == 0) & ~batch.acting
    return clustered_reading(np.where(batch.trait("turns") > 0, empty, np.nan), batch)


@metric("tool_calls", "behaviour", "calls", needs=["tool_calls"])
def tool_calls(batch: Batch, context: HarnessContext) -> dict[str, MetricValues]:
    """Mean tool calls per rollout; `tool_calls/<tool>`: of each of the 12 most called tools."""
    row, tool = batch.traits.calls["row"], batch.traits.calls["tool"]
    out = {"tool_calls": clustered_reading(np.bincount(row, minlength=batch.n).astype(float), batch)}
    for t in _most_called(batch):
        counts = np.bincount(row[tool == t], minlength=batch.n).astype(float)
        out[f"tool_calls/{_tool_name(batch, t)}"] = clustered_reading(counts, batch)
    return out


def _most_called(batch: Batch) -> list[int]:
    counts = np.bincount(batch.traits.calls["tool"], minlength=len(batch.traits.tools))
    return [int(t) for t in np.argsort(-counts, kind="stable")[:12] if counts[t]]


def _tool_name(batch: Batch, tool: int) -> str:
    return clean(batch.traits.tools[tool], 40) or "unnamed"


FEW_CALLS = 16
"""Calls of one tool below which their failures are no rate."""


@metric("tool_failure_rate", "behaviour", "share", healthy=(None, 0.15), needs=["tool_ok"])
def tool_failure_rate(batch: Batch, context: HarnessContext) -> dict[str, MetricValues]:
    """Failed tool calls among those whose success is known, all rollouts pooled; `tool_failure_rate/<tool>`: of each of
    the 12 most called tools. Healthy: at most 15%."""
    ok, tool = batch.traits.calls["ok"], batch.traits.calls["tool"]
    known = ok >= 0
    out = {"tool_failure_rate": MetricValues(float((ok[known] == 0).mean()), int(known.sum()))}
    for t in _most_called(batch):
        mine = known & (tool == t)
        if mine.any():
            n = int(mine.sum())
            rate = float((ok[mine] == 0).mean())
            out[f"tool_failure_rate/{_tool_name(batch, t)}"] = MetricValues(rate, n, plain=n < FEW_CALLS)
    return out


def _action_share(batch: Batch, trait: str) -> MetricValues:
    with np.errstate(invalid="ignore", divide="ignore"):
        share = batch.trait(trait) / batch.trait("actions")
    return clustered_reading(np.where(batch.acting, share, np.nan), batch)


NO_REPOSITORY_WORK = MetricValues(None, missing=("edits or tests",))


def _repository_work(batch: Batch, context: HarnessContext) -> bool:
    """Does somebody edit or test, in this batch or in the reading it is compared with?"""
    here = bool((batch.trait("edits") > 0).any() or (batch.trait("tests") > 0).any())
    return here or any(context.reference(m) for m in ("edit_ratio", "self_test_rate"))


@metric("edit_ratio", "behaviour", "share of actions", healthy=(0.15, None), needs=["actions"])
def edit_ratio(batch: Batch, context: HarnessContext) -> MetricValues:
    """Edits that did not fail among a rollout's actions, mean over rollouts that act: an edit that is refused changes
    nothing. Healthy: 15% or more. Only in repository work: some rollout of the batch edits or tests."""
    if not _repository_work(batch, context):
        return NO_REPOSITORY_WORK
    found = _action_share(batch, "edits")
    return replace(found, plain=not found.value and context.reference("edit_ratio") is None)


@metric("search_ratio", "behaviour", "share of actions", needs=["actions"])
def search_ratio(batch: Batch, context: HarnessContext) -> MetricValues:
    """Looking-around actions (list, read, search) among a rollout's actions, mean over rollouts that act."""
    return _action_share(batch, "searches")


@metric("self_test_rate", "behaviour", "share", healthy=(0.5, None), needs=["actions"])
def self_test_rate(batch: Batch, context: HarnessContext) -> MetricValues:
    """Acting rollouts that run tests at least once. Healthy: at least 50%. Only in repository work (see edit_ratio);
    where none ever does there may be no tests to run."""
    if not _repository_work(batch, context):
        return NO_REPOSITORY_WORK
    found = clustered_reading(np.where(batch.acting, (batch.trait("tests") > 0).astype(float), np.nan), batch)
    return replace(found, plain=not found.value and context.reference("self_test_rate") is None)


@metric("edit_coverage", "behaviour", "share", healthy=(0.6, None), needs=["actions"])
def edit_coverage(batch: Batch, context: HarnessContext) -> MetricValues:
    """Acting rollouts with at least one edit that did not fail. Healthy: at least 60%. Only in repository work (see
    edit_ratio)."""
    if not _repository_work(batch, context):
        return NO_REPOSITORY_WORK
    edited = np.isfinite(batch.trait("first_edit")).astype(float)
    return clustered_reading(np.where(batch.acting, edited, np.nan), batch)


@metric("first_effective_edit", "behaviour", "actions", needs=["actions"])
def first_effective_edit(batch: Batch, context: HarnessContext) -> MetricValues:
    """Place (from 1) of the first edit that did not fail, mean over rollouts with one. Late: looking instead of
    acting. Only in repository work (see edit_ratio)."""
    if not _repository_work(batch, context):
        return NO_REPOSITORY_WORK
    return clustered_reading(batch.trait("first_edit"), batch)


@metric("distinct_solutions", "behaviour", "share", healthy=(0.15, None), needs=["text", "groups"])
def distinct_solutions(batch: Batch, context: HarnessContext) -> MetricValues:
    """Distinct completions of a group, up to names (of programs), comments and layout, over its size; mean over groups
    of two or more.

    1/size means that all are the same. Below 15% exploration has collapsed.
    """
    s, g = batch.traits.solution, batch.group
    size = int(batch.sizes[0]) if batch.n_groups else 0
    # equal groups (the usual case) sort as rows of a matrix, which is faster than lexsort over all rollouts
    if size and (batch.sizes == size).all():
        s = np.sort(s.reshape(-1, size), axis=1).ravel()
    else:
        s = s[np.lexsort((s, g))]
    # sorted within groups, a solution is a new one where it differs from its neighbour
    fresh = np.concatenate([[True], (g[1:] != g[:-1]) | (s[1:] != s[:-1])])
    distinct = np.bincount(g[fresh], minlength=batch.n_groups)
    many = batch.sizes > 1
    values = np.where(many, distinct / np.maximum(batch.sizes, 1), np.nan)
    m, se, n = clustered_mean(values, batch.task[batch.first])
    return MetricValues(m, n, se)


@metric("solution_similarity", "behaviour", "share", healthy=(None, 0.95), needs=["text", "groups"])
def solution_similarity(batch: Batch, context: HarnessContext) -> MetricValues:
    """Jaccard similarity of the word sets of neighbouring completions of a group, mean over groups of two or more.

    1: the same words; estimated from 64-slot MinHash sketches (`scan.jaccard`), standard error of one pair about 0.06.
    """
    # neighbours only, n - 1 pairs instead of n(n - 1) / 2: order within a group is random, so the mean is unbiased
    pairs = np.flatnonzero(batch.group[1:] == batch.group[:-1])
    sketch = batch.traits.sketch
    values = np.concatenate(
        # in pieces: the comparison of all sketches at once would take several times their memory
        [jaccard(sketch[at], sketch[at + 1]) for at in np.array_split(pairs, len(pairs) // 65536 + 1)]
    )
    count, total = group_sums(values, batch.group[pairs], batch.n_groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count
    m, se, n = clustered_mean(mean, batch.task[batch.first])
    return MetricValues(m, n, se)


@metric("ngram_repetition", "behaviour", "share", healthy=(None, 0.3), needs=["text"])
def ngram_repetition(batch: Batch, context: HarnessContext) -> MetricValues:
    """Share of 4-grams of words that occurred before in the same completion, mean over rollouts. Where it is above 30%,
    only what the policy wrote itself counts: no tool output, no lines shown to it, no keys and signs of JSON."""
    return clustered_reading(batch.trait("own_repetition"), batch)


@metric("action_run", "behaviour", "actions", healthy=(None, 3.0), needs=["text"])
def action_run(batch: Batch, context: HarnessContext) -> MetricValues:
    """90th percentile over rollouts of the longest run of one action (one line, in single answers)."""
    return _percentile(batch.trait("action_run"), 90)


MIN_SAMPLED = 30
"""Fewer known rollouts of a sample say nothing about a rate."""


def _of_sample(values: Floats, batch: Batch) -> MetricValues:
    """Mean of the known values; None for fewer than MIN_SAMPLED of them where most of the batch was not sampled."""
    found = clustered_reading(values, batch)
    sampled = int(np.isfinite(batch.trait("is_code")).sum())
    if found.n < MIN_SAMPLED and 2 * sampled < batch.n:
        return MetricValues(None, found.n, missing=("sampled programs",))
    return found


@metric("reads_input", "behaviour", "share", healthy=(0.9, None), needs=["programs"])
def reads_input(batch: Batch, context: HarnessContext) -> MetricValues:
    """Programs that use input(), stdin, open(0) or a parameter of their functions. Large stores: of one group in
    128, None for fewer than 30 of them. Healthy: at least 90%, of single answers whose tests are recorded; a snippet in
    an episode, or one that nobody tests, need not read anything."""
    tested = batch.has("detail.tests") and 2 * int(batch.acting.sum()) <= batch.n
    return replace(_of_sample(batch.trait("reads_input"), batch), plain=not tested)


def _bag(tokens: list[str]) -> Floats:
    """Which hashed words and word pairs occur, shape (BUCKETS,)."""
    v = np.zeros(BUCKETS)
    grams = tokens[:400]
    v[[bucket(t, BUCKETS) for t in grams]] = 1.0
    # word pairs, too: two tasks of one template share their words and differ in their order
    v[[bucket(f"{a} {b}", BUCKETS) for a, b in pairwise(grams)]] = 1.0
    return v


def _weighted(bags: Floats, rarity: Floats) -> Floats:
    """Unit rows of bags weighted by rarity; rows of common words only become 0."""
    rows = bags * rarity
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _samples(batch: Batch) -> tuple[list[list[str]], list[list[str]]]:
    """Words of the first and of the second rollout of up to RETRIEVAL_GROUPS groups with distinct prompts."""
    queries: list[list[str]] = []
    keys: list[list[str]] = []
    prompts: set[str] = set()
    candidates = batch.first[batch.sizes > 1]
    for at in range(0, min(len(candidates), 8 * RETRIEVAL_GROUPS), RETRIEVAL_GROUPS):
        chosen = candidates[at : at + RETRIEVAL_GROUPS]
        # piece by piece, as turns are made into objects only for this: usually the first piece has enough prompts
        turns = batch.turns([int(i) + d for i in chosen for d in (0, 1)])
        for a, b in zip(turns[::2], turns[1::2], strict=True):
            if prompt_of(a) not in prompts and len(queries) < RETRIEVAL_GROUPS:
                prompts.add(prompt_of(a))
                queries.append(words("\n".join(own_texts(a, calls=True))))
                keys.append(words("\n".join(own_texts(b, calls=True))))
        if len(queries) == RETRIEVAL_GROUPS:
            break
    return queries, keys


@metric("io_dependence", "behaviour", "share", healthy=(0.3, None), needs=["text", "groups", "prompts"])
def io_dependence(batch: Batch, context: HarnessContext) -> MetricValues:
    """Does the output tell which input it answers? A retrieval proxy of the mutual information I(input; output).

    From each of up to 256 groups with distinct prompts two rollouts are taken; the first retrieves by cosine similarity
    of hashed words and word pairs, weighted by inverse document frequency, among all second ones. Value: (hit rate -
    1/G) / (1 - 1/G), ties shared. 1: outputs identify their task; 0: a template. After RAGEN-2's input-output mutual
    information.
    """
    queries, keys = _samples(batch)
    n = len(queries)
    if n < 4:
        return MetricValues(None, n, missing=("four different prompts",))
    q, k = np.stack([_bag(x) for x in queries]), np.stack([_bag(x) for x in keys])
    # words of every answer (`def`, `return`) do not say which input was answered: their weight is log 1 = 0
    rarity = np.log(2 * n / np.maximum(q.sum(axis=0) + k.sum(axis=0), 1.0))
    similarity = _weighted(q, rarity) @ _weighted(k, rarity).T
    best = similarity >= similarity.max(axis=1, keepdims=True) - 1e-9
    # a policy that answers everything alike ties with all: each of k ties is worth 1 / k, so a template scores chance
    hits = np.where(np.diag(best), 1.0 / best.sum(axis=1), 0.0)
    rate, chance = float(hits.mean()), 1.0 / n
    # divided by 1 - chance as the value is: both are rescaled so that chance is 0 and certainty 1
    se = float(hits.std(ddof=1)) / math.sqrt(n) / (1 - chance)
    return MetricValues(max(0.0, (rate - chance) / (1 - chance)), n, se)
