"""Conformance kits: prove an environment, an agent, a trainer or an importer of your own before a run depends on it.

Each function raises AssertionError with what is wrong and returns nothing; call them from your own tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.envs.base import SPLITS, Drilled
from evotrainer.errors import ConfigError
from evotrainer.records.briefing import Briefing
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.recipe import Recipe, lint, single_factor

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.envs.base import Environment
    from evotrainer.importers.base import Importer, Skipped
    from evotrainer.records.rollout import Rollout
    from evotrainer.trainers.base import Trainer


def check_environment(environment: Environment, sample: int = 4) -> None:
    """Splits are disjoint and stable, scores name every component, outcomes are known.

    Episodes that go on show an observation; demonstrations and drills follow from their seed and show no held-out task.
    """
    _check_splits(environment)
    _check_episodes(environment, sample)
    if environment.proxy:
        assert set(environment.proxy) <= set(environment.components), (
            f"proxy {environment.proxy} is not among the components"
        )
    description = json.dumps(environment.describe())
    assert "hash" in json.loads(description), "describe() must have a hash of the task set"
    _check_demonstrations(environment)


def _check_splits(environment: Environment) -> None:
    """The same tasks at every call, and no task's id or prompt in two splits."""
    seen: dict[str, str] = {}
    for split in SPLITS:
        tasks = environment.tasks(split)
        assert tasks, f"split {split!r} is empty"
        assert [t.id for t in tasks] == [t.id for t in environment.tasks(split)], (
            f"split {split!r} changes between calls"
        )
        for t in tasks:
            assert t.split == split, f"task {t.id} of split {split!r} says it is of {t.split!r}"
            for key in (t.id, t.prompt):
                where = seen.setdefault(key, split)
                assert where == split, f"{key[:60]!r} is in {where!r} and in {split!r}: the splits must be disjoint"


def _check_episodes(environment: Environment, sample: int) -> None:
    """Actions no policy should send end in a score all the same, with every component and a known outcome."""
    tasks = list(environment.tasks("train"))[:sample]
    knobs = {k: v[0] for k, v in environment.knobs.items()}
    for text in ("", "nonsense \x00 \u2603", "x" * 5000):
        episodes = [environment.reset(t, knobs) for t in tasks]
        for e, t in zip(episodes, tasks, strict=True):
            assert e.turns and e.turns[-1].role != "assistant", (
                f"reset of {t.id} must end with the policy's turn to come"
            )
        for _ in range(2):
            going = [e for e in episodes if not e.done]
            if going:
                environment.step(going, [text] * len(going), ["stop"] * len(going))
            for e in going:
                assert e.done or e.turns[-1].role != "assistant", f"{e.task.id} goes on without an observation"
        for e in episodes:
            if not e.done:  # as the trainer ends one at the limit of turns
                e.done, e.finish = True, "turn_limit"
        scores = environment.score(episodes)
        assert len(scores) == len(episodes), "score must answer once per episode, in order"
        for s in scores:
            if s.error_kind is None:
                assert set(s.components) == set(environment.components), (
                    f"score names {sorted(s.components)}, components are {sorted(environment.components)}"
                )
                assert s.outcome in ("correct", "incorrect", "unknown"), f"unknown outcome {s.outcome!r}"
            else:
                assert s.outcome == "unknown", "an infrastructure fault has no outcome: it is never a wrong answer"


def _check_demonstrations(environment: Environment) -> None:
    """Demonstrations and drills follow from their seed, have an action to each prompt and show no held-out task."""
    held_out = {t.prompt for s in SPLITS if s != "train" for t in environment.tasks(s)}
    sources = {"demonstration": environment.demonstrations}
    if isinstance(environment, Drilled):
        sources["drill"] = environment.drills
    for what, source in sources.items():
        demos = source(8, seed=1)
        assert list(demos) == list(source(8, seed=1)), f"{what}s must follow from their seed"
        for d in demos:
            assert isinstance(d, tuple) and len(d) >= 2 and len(d) % 2 == 0 and all(isinstance(x, str) for x in d), (
                f"a {what} is (prompt, action, observation, action, ...), of even length: {str(d)[:120]}"
            )
            assert not held_out & set(d[::2]), f"a {what} shows a held-out task"


class NoTools:
    """Tools that have seen nothing: every backtest is silent, there are no rollouts."""

    def backtest(self, intervention: Intervention) -> Backtest:
        return Backtest(factor=intervention.factor, verdict="silent", reason="nothing stored")

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        return ()


def check_agent(agent: Agent, briefing: Briefing, tools: Any = None) -> None:
    """Every proposal is one factor of the champion's recipe, passes the lint, and says what would refute it."""
    proposal = agent.propose(briefing, tools or NoTools())
    assert proposal.agent, "a proposal names its agent"
    assert proposal.interventions or proposal.stop, "neither an intervention nor a reason to stop"
    hashes: set[str] = set()
    for iv in proposal.interventions:
        try:
            child = briefing.champion.recipe.with_factor(iv.factor, iv.new)
        except ConfigError as e:
            raise AssertionError(f"{iv.factor}: {e}") from None
        assert single_factor(briefing.champion.recipe, child) == iv.factor, (
            f"{iv.factor} is not the factor that differs"
        )
        bad = [x.message for x in lint(child) if x.level == "error"]
        assert not bad, f"{iv.factor}: {bad}"
        assert iv.hypothesis and iv.success_criterion and iv.rollback, (
            f"{iv.factor}: hypothesis, criterion and rollback"
        )
        assert child.hash not in hashes, f"{iv.factor}: the same recipe twice in one proposal"
        hashes.add(child.hash)


def check_trainer(
    trainer: Trainer, environment: Environment, policy_dir: Path, work_dir: Path, rewards: Mapping[str, float]
) -> None:
    """Two real steps: rollouts reach the sink first, the same seed gives the same weights, another seed others."""
    from evotrainer.trainers.base import EvalRequest, Identity, TrainRequest

    recipe = Recipe(steps=2, prompts_per_step=4, group_size=4, max_tokens=16, rewards=dict(rewards), lr=1e-3)
    shas = []
    for i, seed in enumerate((1, 1, 2)):
        stored: list[Rollout] = []
        steps: list[int] = []

        def on_step(row: dict[str, float], stored: list[Rollout] = stored, steps: list[int] = steps) -> None:
            assert len(stored) >= 16 * (len(steps) + 1), "rollouts of a step must be stored before the step is reported"
            steps.append(int(row["step"]))

        request = TrainRequest(Identity("kit", "b0", seed), recipe, policy_dir, work_dir / str(i), checkpoint_every=1)

        def sink(groups: Sequence[Sequence[Rollout]], stored: list[Rollout] = stored) -> None:
            assert all(len({(r.group, r.task) for r in g}) == 1 for g in groups), "a group is attempts at one task"
            stored += (r for g in groups for r in g)

        result = trainer.train(request, environment, sink, on_step)
        assert steps == [1, 2], f"steps must count from 1: {steps}"
        assert len(result.curve) == 2, "the curve has one entry per step"
        assert len({r.id for r in stored}) == len(stored), "rollout ids must differ"
        shas.append(trainer.policy_sha256(result.policy_dir))
    assert shas[0] == shas[1], "the same seed must give the same weights"
    assert shas[0] != shas[2], "another seed must give other weights"
    read = EvalRequest(Identity("kit", "b0", 1), recipe, policy_dir, "search", 0, attempts=2, tasks=3)
    sizes = [len(g) for g in trainer.evaluate(read, environment, lambda _: None)]
    assert sizes == [2, 2, 2], "evaluate answers a group of rollouts for each task"


def check_importer(importer: Importer, good: Path, count: int | None = None, foreign: Sequence[Path] = ()) -> None:
    """An importer recognises its files and no others, accounts for every record, and survives damage.

    `good` is a file (or store folder) of the format with `count` records, rollouts and skips together (None: not
    checked), at least one of which is a rollout; `foreign` are files of other formats. A damaged copy of a file is read
    too: cut in the middle, with lines of garbage and NULs, empty. It may lose records, but each loss is a `Skipped`. Of
    JSON lines, copies are read whose records lack one number or boolean each: no reward may become 0 for that. Give a
    sample with a reward other than 0.
    """
    import tempfile

    from evotrainer.importers.base import Skipped, Source
    from evotrainer.records.arrow_schema import encode
    from evotrainer.records.rollout import Rollout

    assert importer.name and importer.about, "an importer has a name and says what it reads"
    assert importer.recognises(Source(good)), f"{importer.name} does not recognise {good}"
    for other in foreign:
        assert not importer.recognises(Source(other)), f"{importer.name} takes {other} for its own"
    records = list(importer.read(good))
    rollouts = [r for r in records if isinstance(r, Rollout)]
    assert rollouts, f"{importer.name} reads no rollout from {good}"
    assert count is None or len(records) == count, f"{len(records)} records (skipped ones included) instead of {count}"
    assert records == list(importer.read(good)), "a second reading gives other records: ids must be stable"
    _check_records(records)
    encode(rollouts)  # what cannot be stored is no rollout
    if not good.is_file():
        return
    _check_absent_scores(importer, good)
    data = good.read_bytes()
    nul_at = data.find(b"\n", len(data) // 2) + 1
    middle = len(data) // 2
    while middle > 1 and data[middle - 1 : middle + 1].strip() != data[middle - 1 : middle + 1]:
        middle -= 1  # a file cut between two lines is whole: nothing could tell
    damage = {
        "cut in the middle": data[:middle],
        "cut at its end": data[:-1],
        "with garbage lines": data + b"\n\xff\xfe{not json\n[]\n17\n",
        "with NULs": data[:nul_at] + b"\0" * 64 + data[nul_at:],
        "all NULs": b"\0" * 4096,
        "empty": b"",
    }
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / good.name
        for what, content in damage.items():
            copy.write_bytes(content)
            read = _tolerant(importer, copy, what)
            _check_records(read)
            found = sum(isinstance(r, Rollout) for r in read)
            if found < len(rollouts):
                assert any(isinstance(r, Skipped) for r in read), (
                    f"a file {what} gives {found} of {len(rollouts)} rollouts and no word about the rest"
                )


LACKING_LINES, LACKING_FIELDS, LACKING_DEPTH = 50, 60, 3
"""Lines of a file, fields of its records, and levels of nesting, that are tried without."""


def _check_absent_scores(importer: Importer, good: Path) -> None:
    """No reward of JSON lines becomes 0 for want of a field; files of other forms are passed over."""
    import tempfile

    rows: list[Any] = []
    try:
        with good.open(encoding="utf-8") as f:
            for line in f:
                if len(rows) == LACKING_LINES:
                    break
                if line.strip():
                    rows.append(json.loads(line))
    except ValueError:  # a line that is none ends what is tried
        pass
    rows = [r for r in rows if isinstance(r, dict)]
    places = sorted({p for r in rows for p in _numeric(r)}, key=lambda p: (len(p), p))[:LACKING_FIELDS]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / good.name

        def rewards(values: Sequence[Any]) -> list[float | None]:
            copy.write_text("".join(json.dumps(v) + "\n" for v in values))
            return [getattr(r, "reward", None) for r in _tolerant(importer, copy, "whose records lack a field")]

        whole = rewards(rows) if places else []
        for place in places:
            for i, (row, before) in enumerate(zip(rows, whole, strict=False)):
                if len(whole) == len(rows) and before and place in _numeric(row):
                    assert 0 not in rewards([_without(row, place)]), (
                        f"record {i + 1} without {'.'.join(place)!r} gets reward 0: an absent score is None, never 0"
                    )
                    break


def _numeric(record: dict[str, Any], depth: int = LACKING_DEPTH) -> set[tuple[str, ...]]:
    """Places of the numbers and booleans of a record, those in objects in it included."""
    out: set[tuple[str, ...]] = set()
    for key, value in record.items():
        if isinstance(value, int | float):
            out.add((key,))
        elif isinstance(value, dict) and depth > 1:
            out |= {(key, *rest) for rest in _numeric(value, depth - 1)}
    return out


def _without(record: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    key, *rest = place
    if not rest:
        return {k: v for k, v in record.items() if k != key}
    return {**record, key: _without(record[key], tuple(rest))}


def _tolerant(importer: Importer, path: Path, what: str) -> list[Rollout | Skipped]:
    """Records of a damaged file; a StoreError for the file as a whole counts as its one `Skipped`."""
    from evotrainer.errors import StoreError
    from evotrainer.importers.base import Skipped, Source

    try:
        importer.recognises(Source(path))
        return list(importer.read(path))
    except StoreError as e:
        return [Skipped(str(path), str(e))]
    except Exception as e:
        raise AssertionError(f"a file {what} raises {type(e).__name__}: {e}; yield a Skipped instead") from e


def _check_records(records: Sequence[Rollout | Skipped]) -> None:
    from typing import get_args

    from evotrainer.importers.base import Fault, Skipped
    from evotrainer.records.rollout import Finish, Outcome, Role

    ids: set[str] = set()
    for r in records:
        if isinstance(r, Skipped):
            assert r.where and r.reason, f"a skipped record must name place and reason: {r}"
            continue
        assert r.id and r.id not in ids, f"id {r.id!r} twice"
        ids.add(r.id)
        assert r.task, f"{r.id} names no task"
        assert r.outcome in get_args(Outcome), f"{r.id}: unknown outcome {r.outcome!r}"
        assert r.finish is None or r.finish in get_args(Finish), f"{r.id}: unknown finish {r.finish!r}"
        assert all(t.role in get_args(Role) for t in r.turns), f"{r.id}: a turn of unknown role"
        if r.error_kind is None:
            assert r.error is None, f"{r.id} has an error of no class"
        elif r.detail.get("source"):  # own stores hold what other code wrote
            assert r.error_kind in get_args(Fault), f"{r.id}: unknown class of fault {r.error_kind!r}"
            assert r.error, f"{r.id}: a fault says in `error` what happened"
        if r.error_kind is not None:
            assert r.reward is None, f"{r.id}: an infrastructure fault has no reward, never 0"
            assert r.outcome == "unknown", f"{r.id}: an infrastructure fault has no outcome"
