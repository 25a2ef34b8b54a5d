"""`trainers.embedded.warmstart`: demonstrations of several turns, and drills before them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from evotrainer.config.task import PolicyShape, WarmStart
from evotrainer.errors import ConfigError, TrainerError
from evotrainer.executors.warm_start import make_base
from evotrainer.testing import check_environment
from evotrainer.trainers.base import WarmStartRequest
from evotrainer.trainers.embedded.attempts import run_attempts
from evotrainer.trainers.embedded.folder import load_policy
from evotrainer.trainers.embedded.forward import score
from evotrainer.trainers.embedded.packing import TrainRow, pack
from evotrainer.trainers.embedded.sampler import SamplingParams
from evotrainer.trainers.embedded.tokenizer import BOS, EOS, build_tokenizer
from evotrainer.trainers.embedded.update import demo_rows, sft_backward
from evotrainer.trainers.embedded.warmstart import warm_start
from tests.trainers.reverse_env import GuessDigitEnv, ReverseEnv, prompt

TINY = PolicyShape(width=36, layers=1, heads=3, mlp=32, context=64)


class DrilledEnv(GuessDigitEnv):
    """Two-turn demonstrations; drills that say one digit after the other."""

    def vocabulary(self) -> tuple[str, ...]:
        return ("reverse ",)

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, ...]]:
        return [(p, a, f"again: {a[:3]} -> ", a) for p, a in super().demonstrations(n, seed + 100)]

    def drills(self, n: int, seed: int) -> list[tuple[str, ...]]:
        rng = random.Random(seed)
        return [tuple(x for d in rng.choices("0123456789", k=6) for x in (f"say {d}", d)) for _ in range(n)]


def test_a_demonstration_has_the_tokens_of_the_sampled_transcript(base: Path) -> None:
    loaded = load_policy(base)
    env = GuessDigitEnv()
    params = SamplingParams(8, 0.5)
    plan = [(t, range(2)) for t in env.tasks("train")]
    generator = torch.Generator().manual_seed(0)
    attempts = run_attempts(env, loaded.policy, loaded.tokenizer, plan, {}, params, 3, generator, lambda phase: None)
    compared = 0
    for a in attempts:
        demo = tuple(t.text for t in a.episode.turns)
        assert len(demo) == 4
        whole = sum(i == EOS for i in a.ids) == 2
        canonical = [i for x in demo[1::2] for i in loaded.tokenizer.encode(x)] == [i for i in a.sampled if i != EOS]
        if whole and canonical:
            (row,) = demo_rows([demo], loaded.tokenizer)
            assert row == TrainRow(0, *(getattr(a.row(0), k) for k in ("prompt", "tokens", "loss")))
            compared += 1
    assert compared > 60, "most transcripts end both actions with <eos>"


def test_only_actions_with_their_eos_count() -> None:
    tokenizer = build_tokenizer(("ls", "src"), "v")
    (row, pair) = demo_rows([("go", "ls", "src", "x", "", ""), ("go", "ls")], tokenizer)
    ls, src, x = (tokenizer.encode(w)[0] for w in ("ls", "src", "x"))
    assert row.prompt == (BOS, *tokenizer.encode("go"))
    assert row.tokens == (ls, EOS, BOS, src, x, EOS, BOS, EOS)
    assert row.loss == (True, True, False, False, True, True, False, True)
    assert row.counted == 5
    assert (pair.tokens, pair.loss, pair.counted) == ((ls, EOS), None, 2)


def test_the_sft_loss_is_the_mean_over_action_tokens(base: Path) -> None:
    loaded = load_policy(base, trainable=True)
    rows = demo_rows([(prompt("123"), "321", "again: 321 -> ", "321"), (prompt("45"), "54")], loaded.tokenizer)
    sampled = []
    for r in rows:
        lp, _ = score(load_policy(base).policy, pack([TrainRow(0, r.prompt, r.tokens)], loaded.policy.shape))
        sampled += [x for x, b in zip(lp.tolist(), r.loss or [True] * len(r.tokens), strict=True) if b]
    assert sft_backward(loaded.policy, rows) == pytest.approx(-sum(sampled) / len(sampled), abs=1e-5)


@pytest.mark.parametrize("demo", [("a",), ("a", "b", "c"), (), "ab"])
def test_a_malformed_demonstration_is_named(demo: Sequence[str]) -> None:
    with pytest.raises(TrainerError, match=r"demonstration 1 has \w+ texts.*of even length"):
        demo_rows([("a", "b"), demo], build_tokenizer((), "v"))  # type: ignore[list-item]


def test_a_policy_learns_every_action_of_a_demonstration(tmp_path: Path) -> None:
    demo = ("count", "1", "on", "2", "on", "3", "on", "4")
    shape = {"d": 32, "layers": 2, "heads": 2, "hidden": 64, "context": 64}
    r = warm_start(WarmStartRequest([demo] * 8, (), "v", shape, 120, 8, 5e-3, 0, tmp_path))
    assert r.loss < 0.1
    assert r.tokens == 120 * 8 * 8


def test_drills_come_first_and_demonstrations_go_on_from_their_weights(tmp_path: Path) -> None:
    env = DrilledEnv()
    options = WarmStart(demonstrations=64, steps=6, batch=8, drills=64, drill_steps=80, drill_lr=5e-3, shape=TINY)
    rows: list[dict[str, float]] = []
    make_base(env, options, tmp_path / "both", rows.append)
    assert [r["step"] for r in rows] == list(range(1, options.all_steps + 1)) == list(range(1, 87))
    assert rows[79]["loss"] < 0.6 * rows[0]["loss"], "drills are learnt"
    assert [r["lr"] for r in (rows[0], rows[80])] == pytest.approx([5e-3 / 50, 2e-3 / 50]), "each warms up by itself"
    assert rows[79]["lr"] < 5e-3 / 8, "each has its own cosine"
    alone: list[dict[str, float]] = []
    make_base(env, options.model_copy(update={"drill_steps": 0}), tmp_path / "alone", alone.append)
    assert [r["step"] for r in alone] == [1, 2, 3, 4, 5, 6]
    assert rows[80]["loss"] < alone[0]["loss"] - 0.5, "the digits were learnt in the drills"


def test_drills_asked_of_a_world_without_any_are_a_configuration_error(tmp_path: Path) -> None:
    class Plain(ReverseEnv):
        def vocabulary(self) -> tuple[str, ...]:
            return ()

    options = WarmStart(demonstrations=8, steps=1, drill_steps=1, shape=TINY)
    with pytest.raises(ConfigError, match="environment reverse offers no drills; set policy.warm_start.drill_steps=0"):
        make_base(Plain(), options, tmp_path / "x", lambda row: None)


def distinct(env: ReverseEnv) -> ReverseEnv:
    """Without the numbers that are in two splits by chance."""
    seen: set[str] = set()
    for split, numbers in env.split.items():
        env.split[split] = [d for d in numbers if d not in seen]
        seen |= set(numbers)
    return env


def test_the_environment_kit_takes_turns_and_drills_and_catches_bad_ones() -> None:
    env = distinct(DrilledEnv(n=8, length=6))
    check_environment(env)  # type: ignore[arg-type]
    env.drills = lambda n, seed: [("say 1", "1", "say 2")] * n  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="a drill is .* of even length"):
        check_environment(env)  # type: ignore[arg-type]
    held_out = env.tasks("gate")[0].prompt
    env.drills = lambda n, seed: [("go", "on", held_out, "2")] * n  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="a drill shows a held-out task"):
        check_environment(env)  # type: ignore[arg-type]


def test_the_environment_kit_catches_a_turn_without_an_observation() -> None:
    class Silent(DrilledEnv):
        def step(self, episodes, actions, finishes):  # type: ignore[no-untyped-def]
            super().step(episodes, actions, finishes)
            for e in episodes:
                if not e.done:
                    e.turns.pop()

    with pytest.raises(AssertionError, match="goes on without an observation"):
        check_environment(distinct(Silent(n=8, length=6)))  # type: ignore[arg-type]
