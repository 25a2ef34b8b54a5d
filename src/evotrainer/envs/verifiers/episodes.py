"""Episodes of a verifiers environment by their own harness: `verifiers:ID` with `harness`.

The harness runs in a process of its own (`worker.py`) and asks a server on loopback (`chat_server.py`) for
each turn. A request is an observation here, and an action its answer: every trainer samples, and keeps the tokens that
it sampled, as in any environment of several turns.
"""

from __future__ import annotations

import queue
import secrets
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evotrainer.envs.base import SPLITS, Episode, Score, Task
from evotrainer.envs.verifiers.chat_server import Asked, ChatServer, Said, parse_calls, turns_of
from evotrainer.envs.verifiers.options import OfVerifiers, VerifiersConfig
from evotrainer.envs.verifiers.process import EpisodesProcess
from evotrainer.errors import TaskSetError
from evotrainer.records.rollout import Finish, ToolCall, Turn
from evotrainer.records.text import clean_text, cut

PROBE = "?"
"""What the first episode is answered with, to learn of its rewards."""
FULL = "maximum context length: no more turns for this episode"
PING_S = 15.0
Fault = tuple[str, str]
"""(kind, message)"""


@dataclass(slots=True)
class Play:
    """One episode between its harness and us."""

    key: str
    asked: Asked | None = None
    """Waits for an answer."""
    said: list[Said] = field(default_factory=list)
    """All of its conversation, answers included."""
    answers: int = 0
    full: bool = False
    """No further turn is answered."""
    ended: Mapping[str, Any] | None = None
    fault: Fault | None = None

    @property
    def goes_on(self) -> bool:
        """Neither over nor waiting for an answer."""
        return self.asked is None and self.ended is None and self.fault is None

    def take(self, asked: Asked) -> list[Said]:
        """What a request adds to the conversation; it is a fault where it is no continuation."""
        n = len(self.said)
        if self.full:
            asked.refuse(400, FULL, "context_length_exceeded")
            return []
        if self.asked is not None and asked.messages == self.said:  # the same again, by a client that gave up waiting
            self.asked.refuse(409, "asked again")
            self.asked = asked
            return []
        if self.asked is None and asked.messages[:n] == self.said and len(asked.messages) > n:
            self.asked, self.said = asked, list(asked.messages)
            return asked.messages[n:]
        self.fault = (
            "other_conversation",
            "its harness asked for more than one conversation, or changed what had been said in it: its tokens are no "
            "longer those that were sampled; use a harness without compaction, side agents and edited answers",
        )
        asked.refuse(400, self.fault[1])
        return []

    def answer(self, text: str, finish: Finish) -> None:
        assert self.asked is not None
        asked, self.asked = self.asked, None
        self.said.append(asked.answer(clean_text(text), finish))
        self.answers += 1


class PlayedEpisode(Episode):
    """An attempt whose first turns are known once its harness has asked; `reset` does not wait for it."""

    def __init__(self, task: Task, knobs: Mapping[str, Any], play: Play, environment: VerifiersEpisodes) -> None:
        self.play, self._environment = play, environment
        self._turns: list[Turn] = []
        super().__init__(task, knobs, self._turns)
        weakref.finalize(self, environment.abandoned.append, play)

    @property
    def turns(self) -> list[Turn]:
        if not self._turns:
            self._environment.wait([self.play])
            asked = self.play.asked
            self._turns += turns_of(asked.messages, asked.tools) if asked else [Turn("user", self.task.prompt)]
        return self._turns

    @turns.setter
    def turns(self, turns: list[Turn]) -> None: ...


class VerifiersEpisodes(OfVerifiers):
    """One task set, played by verifiers."""

    def __init__(self, config: VerifiersConfig) -> None:
        super().__init__(config)
        self.at_once = config.at_once
        self._events: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        self._live: dict[str, Play] = {}
        self.abandoned: list[Play] = []
        """Episodes that nobody holds any more."""
        self._process: EpisodesProcess | None = None
        self._chat = ChatServer(lambda key, asked: self._events.put((key, "asked", asked)))
        try:
            self._process = EpisodesProcess(self.name, self._order(), self._events, config.start_s)
            self._told = self._process.told
            self._split(self._prompts())
            self._pay(dict(config.rewards) or self._probe(), self._told["about"])
        except BaseException:
            self.close()
            raise

    def _order(self) -> dict[str, Any]:
        c = self.config
        return {
            "id": self.id,
            "path": [c.path] if c.path else [],
            "taskset": c.taskset,
            "env": c.env,
            "harness": c.harness,
            "tasks": c.tasks,
            "token": self._chat.token,
        }

    def _started(self) -> EpisodesProcess:
        if self._process is None:
            self._process = EpisodesProcess(self.name, self._order(), self._events, self.config.start_s)
            if [t["key"] for t in self._process.told["tasks"]] != [t["key"] for t in self._told["tasks"]]:
                raise TaskSetError(
                    f"environment {self.name}: other tasks, or another order, when its process started anew; "
                    "a task's place names it: have the task set make them without chance"
                )
        return self._process

    def _prompts(self) -> dict[str, tuple[str, dict[str, Any]]]:
        told = self._told["tasks"]
        if not told:
            raise TaskSetError(f"environment {self.name} has no tasks")
        numbers = {t["key"]: i for i, t in reversed(list(enumerate(told)))}
        prompts = [t["prompt"] for t in told]
        twice = len(set(prompts)) < len(numbers)
        return {k: (f"{prompts[i]} [{k[:16]}]" if twice else prompts[i], {"number": i}) for k, i in numbers.items()}

    def _probe(self) -> dict[str, float]:
        """Rewards and weights of an episode that says next to nothing."""
        episode = self.reset(next(t for s in SPLITS for t in self._tasks[s]), {})
        if episode.turns and not episode.play.fault and not episode.play.ended:
            self.step([episode], [PROBE], ["stop"])
        self._finish([episode.play])
        if fault := self._fault(episode.play):
            raise TaskSetError(
                f"environment {self.name}: its first episode failed in verifiers ({fault[0]}): {fault[1]}"
                f"{self._last_words()}; mend what it needs (docs/verifiers.md)"
            )
        assert episode.play.ended is not None
        found = {n: r[1] for n, r in episode.play.ended["rewards"].items() if r is not None}
        if not found:
            raise TaskSetError(
                f"environment {self.name}: its first episode gave no reward; name them with their weights, as "
                "environment.rewards = { NAME = 1.0 }"
            )
        return found

    # -- an attempt ----------------------------------------------------------------------------------------------

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> PlayedEpisode:
        while self.abandoned:
            self._stop(self.abandoned.pop())
        key = secrets.token_hex(16)
        play = self._live[key] = Play(key)
        order = {"episode": key, "task": task.data["number"], "url": self._chat.open(key)}
        self._started().tell(order)
        return PlayedEpisode(task, dict(knobs), play, self)

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        acted = []
        for e, text, finish in zip(episodes, actions, finishes, strict=True):
            assert isinstance(e, PlayedEpisode)
            if e.done:
                raise TaskSetError(f"episode of task {e.task.id} is over; reset it before the next step")
            turns = e.turns  # which has waited for its first question
            calls = parse_calls(clean_text(text))[1] if e.play.asked and e.play.asked.tools else ()
            turns.append(Turn("assistant", text, tuple(ToolCall(*c) for c in calls)))
            e.finish = finish
            acted.append((e, len(e.play.said) + 1))
            if e.play.asked:
                e.play.answer(text, finish)
        self.wait([e.play for e, _ in acted])
        for e, n in acted:
            if e.play.asked:
                e.turns.extend(turns_of(e.play.said[n:]))
            else:
                e.done = True

    def wait(self, plays: Sequence[Play]) -> None:
        """Until each of them has asked, or is over; one that does neither in `turn_s` seconds is a fault."""
        end = time.monotonic() + self.config.turn_s
        while any(p.goes_on for p in plays):
            if not self._next_event(end):
                self._late([p for p in plays if p.goes_on])

    def _next_event(self, end: float) -> bool:
        """Take up what happened; False where nothing did until `end`."""
        try:
            key, what, value = self._events.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            return False
        play = self._live.get(key)
        if what == "gone":
            if self._process and key == self._process.token:  # and not one that was ended before
                # an episode that it did not end is missing, whatever its exit code
                for p in self._live.values():
                    p.fault = p.fault or ("missing", f"verifiers' process ended ({value}) without this episode")
                self._end_process()
        elif play is None:
            if what == "asked":
                value.refuse(409, "this episode is over")
        elif what == "asked":
            play.take(value)
        elif what == "ended":
            play.ended = value
        return True

    def _late(self, plays: Sequence[Play]) -> None:
        """These take too long. Their process is ended where it does not answer, either."""
        for p in plays:
            p.fault = ("timeout", f"neither asked nor ended for {self.config.turn_s:g} s; raise environment.turn_s")
            self._stop(p)
        if self._process and not self._process.answers(PING_S):
            self._end_process()
            for p in self._live.values():
                p.fault = p.fault or ("hung", "verifiers' process hung in another episode, and was ended")

    # -- its end -------------------------------------------------------------------------------------------------

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        plays = [e.play for e in episodes if isinstance(e, PlayedEpisode)]
        self._finish(plays)
        return [self._score(e, e.play) for e in episodes if isinstance(e, PlayedEpisode)]

    def _finish(self, plays: Sequence[Play]) -> None:
        """Have them end: a harness that asks for a turn beyond the last is told that there is no more room."""
        while going := [p for p in plays if p.ended is None and p.fault is None]:
            for p in going:
                p.full = True
                if p.asked:
                    p.asked.refuse(400, FULL, "context_length_exceeded")
                    p.asked = None
            self.wait(going)
        for p in plays:
            self._stop(p)

    def _stop(self, play: Play) -> None:
        """Nothing more is wanted of an episode."""
        if self._live.pop(play.key, None) and play.ended is None and self._process:
            self._process.tell({"stop": play.key})
        self._chat.forget(play.key)

    def _fault(self, play: Play) -> Fault | None:
        """What kept an episode from being scored; None: nothing did."""
        if play.fault:
            return play.fault
        end = play.ended or {}
        if not end.get("ok") or "rewards" not in end:
            of = (end.get("errors") or [{"type": "missing", "message": "verifiers recorded no attempt"}])[-1]
            return str(of["type"]), cut(" ".join(str(of["message"]).split()), 400)
        if end["timeout"]:
            return "timeout", f"verifiers ended it: {end['stop']}; raise environment.env's timeout"
        if end["traces"] != 1 or end["turns"] != play.answers:
            told = f"{end['traces']} attempts and {end['turns']} turns"
            return "turns_differ", f"verifiers recorded {told} where 1 and {play.answers} were answered"
        if unknown := set(end["rewards"]) - set(getattr(self, "_weights", end["rewards"])):
            return "unknown_reward", f"it gave the reward {min(unknown)}; name all of them in environment.rewards"
        return None

    def _score(self, e: Episode, play: Play) -> Score:
        if fault := self._fault(play):
            return self._faulty(*fault)
        assert play.ended is not None
        given = {n: r for n, r in play.ended["rewards"].items() if r is not None}
        values = {n: given[n][0] if n in given else None for n in self._weights}
        total = sum(score * weight for score, weight in given.values()) if given else None
        return self._scored_by(values, total, e, play.ended["metrics"], stop=play.ended["stop"])

    def _last_words(self) -> str:
        words = self._process.last_words() if self._process else ""
        return f"; it printed last: {words}" if words else ""

    def _hash(self) -> str:
        return self._hash_of(self.name, self._told["harness"], self.config.env)

    def describe(self) -> dict[str, Any]:
        told = self._told
        return {**super().describe(), "harness": told["harness"], "sandbox_tier": f"verifiers: {told['runtime']}"}

    def check_plays(self, trainer: str) -> None:
        """TaskSetError for a trainer that cannot answer a harness turn by turn."""
        if trainer == "command":
            raise TaskSetError(
                f"the episodes of environment {self.name} are played by its own harness, which asks us for each turn, "
                "and by no program of yours; set trainer.name=embedded or trl"
            )

    def _end_process(self) -> None:
        """End it with all that it started; the next episode starts another."""
        if self._process:
            self._process.close()
            self._process = None

    def close(self) -> None:
        self._end_process()
        self._chat.close()
