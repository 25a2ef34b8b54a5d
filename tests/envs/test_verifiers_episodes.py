"""`verifiers:ID` with a harness: episodes that verifiers plays, turn by turn, against a policy on loopback."""

from __future__ import annotations

import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evotrainer.envs import open_environment
from evotrainer.envs.verifiers.chat_server import Asked
from evotrainer.envs.verifiers.episodes import Play, VerifiersEpisodes
from evotrainer.envs.verifiers.worker import MARK
from evotrainer.errors import EvoTrainerError, TaskSetError
from evotrainer.testing import check_environment

PACKAGES = Path(__file__).parents[1] / "data" / "verifiers_packages"
with_verifiers = pytest.mark.skipif(
    importlib.util.find_spec("verifiers") is None,
    reason="verifiers (600 MB) is an extra of its own: python -m bench.verifiers runs these tests with it",
)
pytestmark = pytest.mark.timeout(600)


def opened(name: str = "guess-number", **more: Any) -> Any:
    return open_environment(
        {"name": f"verifiers:{name}", "path": str(PACKAGES), "harness": "chat", "start_s": 600, **more}
    )


@pytest.fixture(scope="module")
def guess() -> Iterator[Any]:
    env = opened()
    yield env
    env.close()


def played(env: Any, *answers: list[str], tasks: Sequence[Any] = ()) -> list[Any]:
    """Episodes in which the policy says these things, side by side; ended as a trainer ends them."""
    episodes = [env.reset(t, {}) for t in tasks or env.tasks("train")[: len(answers)]]
    for turn in range(max(map(len, answers))):
        going = [(e, a[turn]) for e, a in zip(episodes, answers, strict=True) if not e.done and turn < len(a)]
        if going:
            env.step([e for e, _ in going], [a for _, a in going], ["stop"] * len(going))
    for e in episodes:
        if not e.done:
            e.done, e.finish = True, "turn_limit"
    return episodes


def marked() -> int:
    """Processes that a worker of anybody's here started."""
    own = f"{MARK}=".encode()
    found = 0
    for at in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += own in at.read_bytes()
        except OSError:
            continue
    return found


# -- without verifiers ------------------------------------------------------------------------------------------------


def test_options_of_episodes_need_a_harness() -> None:
    with pytest.raises(TaskSetError, match=r'environment.env is for episodes: set environment.harness = "chat"'):
        opened(harness=None, env={"id": "user-sim"})
    with pytest.raises(TaskSetError, match="is no folder"):
        opened(path="/no/such/folder")


def test_a_question_must_go_on_from_what_was_said() -> None:
    user, more = ("user", "2+2?", ()), ("user", "sure?", ())
    play = Play("one")
    assert play.take(Asked([user], [])) == [user]
    play.answer("4", "stop")
    assert play.take(Asked([user, ("assistant", "4", ()), more], [])) == [more] and play.fault is None
    for messages in ([user], [user, ("assistant", "four", ()), more], [("user", "summary", ())]):
        changed = Play("one", said=[user, ("assistant", "4", ())], answers=1)
        asked = Asked(messages, [])
        assert changed.take(asked) == [] and changed.fault is not None
        assert changed.fault[0] == "other_conversation" and asked.reply.get()[0] == 400
    second = Play("one", said=[user])
    second.asked = Asked([user], [])
    second.take(Asked([user, more], []))
    assert second.fault is not None, "one conversation has one question at a time"


# -- with it ----------------------------------------------------------------------------------------------------------


@with_verifiers
def test_an_episode_of_several_turns_has_its_rewards(guess: Any) -> None:
    assert guess.components.keys() == {"won", "digits", "reward"} and guess.truth == "won"
    assert guess.outcome_components == ("won", "reward") and guess.describe()["harness"] == "chat"
    every = [[str(n)] * 1 for n in range(1, 10)]
    won = next(e for e in played(guess, *every * 3) if guess.score([e])[0].outcome == "correct")
    assert won.done and [t.role for t in won.turns] == ["user", "assistant"]
    lost, words = played(guess, ["0", "0", "0", "0", "0"], ["one", "two"])
    assert [t.text for t in lost.turns] == [lost.task.prompt, *["0", "higher"] * 4, "0"] and lost.done
    one, two = guess.score([lost, words])
    assert one.components == {"won": 0.0, "digits": 1.0, "reward": 0.5} and one.outcome == "incorrect"
    assert one.detail["guesses"] == 4 and words.finish == "turn_limit"
    assert two.components == {"won": 0.0, "digits": 0.0, "reward": 0.0} and two.error is None


@with_verifiers
def test_the_tokens_that_are_trained_on_are_those_of_the_conversation(guess: Any) -> None:
    """Prompt, actions as they were sampled, observations: encoded from what the harness was told and has asked."""
    import torch

    from evotrainer.trainers.embedded.attempts import run_attempts
    from evotrainer.trainers.embedded.policy import Policy
    from evotrainer.trainers.embedded.sampler import SamplingParams
    from evotrainer.trainers.embedded.shape import DecoderShape
    from evotrainer.trainers.embedded.tokenizer import build_tokenizer

    tokenizer = build_tokenizer((), "test")
    policy = Policy(DecoderShape(len(tokenizer), d=16, layers=1, heads=2, kv_heads=1, hidden=32, context=256)).init(3)
    plan = [(t, range(2)) for t in guess.tasks("train")[:3]]
    made = run_attempts(
        guess, policy, tokenizer, plan, {}, SamplingParams(4), 3, torch.Generator().manual_seed(1), lambda _: None
    )
    several = 0
    for a in made:
        assert a.score.error_kind is None
        turns = [t.text for t in a.episode.turns]
        said = [text for _, text, _ in a.episode.play.said]
        assert said[: len(turns)] == turns and list(a.prompt) == tokenizer.prompt(a.episode.turns[:1])
        parts = [[t for t, _ in part] for _, part in itertools.groupby(zip(a.ids, a.loss, strict=True), lambda x: x[1])]
        for part, t in zip(
            parts, a.episode.turns[1:], strict=False
        ):  # nobody answers what is asked after the last turn
            one = tokenizer.decode(part) if t.role == "assistant" else part
            assert one == (t.text if t.role == "assistant" else tokenizer.observation([t], True))
        assert len(parts) in (len(turns) - 1, len(turns) - 2)
        several += len(turns) > 2
    assert several


@with_verifiers
def test_it_is_an_environment(guess: Any) -> None:
    check_environment(guess, sample=2)


@with_verifiers
def test_what_goes_wrong_in_an_episode_is_a_fault_of_its_own(guess: Any) -> None:
    crash, bonus, good = guess.score(played(guess, ["crash"], ["1", "2", "3", "bonus"], ["1"]))
    assert (crash.error_kind, "the game fell over" in crash.error) == ("EnvError", True)
    assert set(crash.components.values()) == {None} and crash.outcome == "unknown"
    assert bonus.error_kind == "unknown_reward" and "environment.rewards" in bonus.error
    assert good.error_kind is None


def test_a_question_that_is_asked_again_takes_the_place_of_the_first() -> None:
    said = [("user", "guess", ())]
    first, again, other = (Asked(list(x), []) for x in (said, said, [("user", "another", ())]))
    play = Play("key")
    assert play.take(first) == said and play.take(again) == [] and play.fault is None
    assert first.reply.get_nowait()[0] == 409 and play.asked is again
    play.take(other)
    assert play.fault is not None and play.fault[0] == "other_conversation"


def test_a_process_that_starts_anew_with_other_tasks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    env = object.__new__(VerifiersEpisodes)
    env.name, env._process, env._told = "verifiers:x", None, {"tasks": [{"key": "a"}, {"key": "b"}]}
    monkeypatch.setattr(VerifiersEpisodes, "_order", lambda self: {})
    other = SimpleNamespace(told={"tasks": env._told["tasks"][::-1]})
    monkeypatch.setattr("evotrainer.envs.verifiers.episodes.EpisodesProcess", lambda *a: other)
    env.config, env._events = SimpleNamespace(start_s=1.0), None
    with pytest.raises(TaskSetError, match="other tasks, or another order, when its process started anew"):
        env._started()


def test_a_command_is_refused_before_anything_is_spent() -> None:
    (env := object.__new__(VerifiersEpisodes)).name = "verifiers:x"
    env.check_plays("embedded")
    with pytest.raises(TaskSetError, match="played by its own harness.*set trainer.name=embedded or trl"):
        env.check_plays("command")


@with_verifiers
def test_a_process_that_ends_or_hangs_costs_its_episodes_alone(guess: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = marked()
    gone, beside = guess.score(played(guess, ["die"], ["1"]))
    assert marked() < before, "what it had started is ended with it"
    assert gone.error_kind == "missing" and "(exit code 0) without this episode" in gone.error
    assert beside.error_kind == "missing", "it did not end either"
    (again,) = guess.score(played(guess, ["1"]))  # in a process of its own
    assert again.error_kind is None
    monkeypatch.setattr("evotrainer.envs.verifiers.episodes.PING_S", 1.0)
    monkeypatch.setattr(guess, "config", guess.config.model_copy(update={"turn_s": 20.0}))
    waits, beside = guess.score(played(guess, ["wait"], ["1"]))
    assert (waits.error_kind, beside.error_kind) == ("timeout", None)
    (hangs,) = guess.score(played(guess, ["hang"]))
    assert hangs.error_kind == "timeout" and "raise environment.turn_s" in hangs.error
    monkeypatch.undo()
    (again,) = guess.score(played(guess, ["1"]))
    assert again.error_kind is None


@with_verifiers
def test_episodes_that_nobody_holds_are_ended(guess: Any) -> None:
    for t in guess.tasks("train")[:3]:
        assert guess.reset(t, {}).turns
    guess.reset(guess.tasks("train")[0], {})
    assert len(guess._live) == 1


@with_verifiers
def test_functions_are_called_by_the_harness() -> None:
    env = opened("add-with-tool")
    call = '<tool_call>{"name": "add_tools_add", "arguments": {"a": 20, "b": 3}}</tool_call>'
    (e,) = played(env, [f"Let me see. {call}", "23"])
    (score,) = env.score([e])
    assert [t.role for t in e.turns] == ["system", "user", "assistant", "tool", "assistant"]
    assert "The sum of two numbers." in e.turns[0].text and "23" in e.turns[3].text
    assert e.turns[2].tool_calls[0].name == "add_tools_add" and score.detail["calls"] == 1
    assert score.error_kind is None and score.components["right"] in (0.0, 1.0)
    before = marked()
    env.close()
    assert before >= 2 and marked() < before - 1, "the tool server is ended with it"


@with_verifiers
@pytest.mark.parametrize(
    ("name", "more", "says"),
    [
        ("guess-number", {"taskset": {"trouble": "setup"}}, r"failed in verifiers \(EnvError\).*no connection"),
        ("guess-number", {"taskset": {"wordz": 1}}, "wordz"),
        ("guess-number", {"rewards": {"won": 1.0}, "truth": "x"}, "truth 'x' is none of won"),
        ("guess-number", {"harness": "bash"}, r"lets the policy run programs on this machine, in no sandbox"),
        ("guess-number", {"harness": "no-such"}, "no-such"),
        ("add-with-tool", {"env": {"id": "user-sim"}}, r"seats assistant, user, and one is the policy's"),
        ("spell-backwards", {"taskset": {"needs": "fault"}}, "no connection"),
        ("spell-backwards", {"taskset": {"needs": "image"}}, "image"),
        ("no-such-set", {}, "install its package, or name its folder in environment.path"),
    ],
)
def test_what_cannot_be_played_is_refused_when_it_is_opened(name: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises(EvoTrainerError, match=says):
        opened(name, **more)


@with_verifiers
def test_a_task_of_one_turn_scores_as_it_does_without_a_harness() -> None:
    env, plain = (
        opened("spell-backwards"),
        open_environment({"name": "verifiers:spell-backwards", "path": str(PACKAGES)}),
    )
    there = {t.id: t for t in plain.tasks("train")}  # without tasks of one prompt, which a harness may tell apart
    both = [t for t in env.tasks("train") if t.id in there][:3]
    words = [t.prompt.split()[1] for t in both]
    answers = [[words[0][::-1]], ["x" * len(words[1])], ["crash"]]
    own = [plain.reset(there[t.id], {}) for t in both]
    plain.step(own, [a for (a,) in answers], ["stop"] * 3)
    episodes = played(env, *answers, tasks=both)
    for with_harness, without in zip(env.score(episodes), plain.score(own), strict=True):
        assert (with_harness.components, with_harness.outcome) == (without.components, without.outcome)
        assert (with_harness.error_kind, with_harness.detail.get("letters")) == (
            without.error_kind,
            without.detail.get("letters"),
        )
    env.close()


OWNER = """
import sys, time
from evotrainer.envs import open_environment
env = open_environment({"name": "verifiers:add-with-tool", "path": sys.argv[1], "harness": "chat"})
episode = env.reset(env.tasks("train")[0], {})
print(len(episode.turns), flush=True)
time.sleep(600)
"""


@with_verifiers
def test_kill_9_of_whoever_plays_leaves_nothing_running() -> None:
    before = marked()
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(PACKAGES)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None and owner.stdout.readline().strip() == "2"
    assert marked() >= before + 2
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    end = time.monotonic() + 60
    while marked() > before and time.monotonic() < end:
        time.sleep(0.2)
    assert marked() <= before
