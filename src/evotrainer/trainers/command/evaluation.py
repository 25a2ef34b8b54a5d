"""Evaluations by what the user brings: a server of chat completions, or a program. The environment scores them all."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evotrainer.errors import FaultsError, TrainerError
from evotrainer.records import keys
from evotrainer.records.output import print
from evotrainer.records.rollout import Rollout
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.text import counted, cut
from evotrainer.trainers.base import EvalRequest, TrainerEnvironment
from evotrainer.trainers.command import outputs
from evotrainer.trainers.command.options import CommandOptions, EvaluationOptions, filled
from evotrainer.trainers.command.passing_folder import passing_folder
from evotrainer.trainers.command.process import Command, StartedCommand
from evotrainer.trainers.command.request import CommandRequest, write_request, write_tasks
from evotrainer.trainers.rollouts import Attempt, Provenance, begin, evaluated, grade, to_evaluate
from evotrainer.trainers.schedule import seed_of

TRIES, PAUSE_S, LARGEST = 4, 0.5, 16 << 20
BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
ROLES = {"tool": "user"}


class LostError(Exception):
    """An answer that did not come: a fault of the infrastructure, and no wrong answer."""


@dataclass(frozen=True, slots=True)
class LostScore:
    """In the place of a score, of an attempt that was not made."""

    error: str
    error_kind: str = "model_api"
    components: Mapping[str, float | None] = field(default_factory=dict)
    outcome: str = "unknown"
    detail: Mapping[str, Any] = field(default_factory=dict)
    turns: None = None


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What a policy said to some messages. `tokens`: as its server counted them."""

    text: str
    stopped: bool
    tokens: int | None = None


Ask = Callable[[Sequence[Any], int], ChatAnswer]
"""(the turns so far, seed) -> what the policy says; LostError where no answer comes."""


def play_out(ask: Ask, request: EvalRequest, environment: TrainerEnvironment, parallel: int) -> list[list[Rollout]]:
    """Attempts of who answers, turn by turn, `parallel` at a time; groups in task order."""
    tasks, where = to_evaluate(request, environment, keep_tokens=False)
    parts = begin([(t, range(request.attempts)) for t in tasks], environment, where.env_knobs)
    return [g for part in parts for g in _played(ask, request, environment, parallel, part, where)]


def _played(
    ask: Ask,
    request: EvalRequest,
    environment: TrainerEnvironment,
    parallel: int,
    begun: Sequence[tuple[Any, int, Any]],
    where: Provenance,
) -> list[list[Rollout]]:
    made = [Attempt(t, k, e, ()) for t, k, e in begun]
    seeds = [seed_of(request.identity.seed, request.split, a.task.id, a.k) % 2**31 for a in made]
    tokens: list[int | None] = [0] * len(made)
    active = list(range(len(made)))

    def answer(i: int) -> ChatAnswer | LostError:
        try:
            return ask(made[i].episode.turns, seeds[i])
        except LostError as e:
            return e

    with ThreadPoolExecutor(parallel) as pool:
        for turn in range(request.recipe.max_turns):
            answers = dict(zip(active, pool.map(answer, active), strict=True))
            for i, found in answers.items():
                if isinstance(found, LostError):
                    made[i].score = LostScore(str(found))
                    continue
                known = tokens[i]
                tokens[i] = None if found.tokens is None or known is None else known + found.tokens
                made[i].finish = "stop" if found.stopped else "length"
            said = [(i, a) for i, a in answers.items() if isinstance(a, ChatAnswer)]
            environment.step(
                [made[i].episode for i, _ in said], [a.text for _, a in said], [made[i].finish for i, _ in said]
            )
            active = [i for i, _ in said if not made[i].episode.done]
            if turn + 1 == request.recipe.max_turns:
                for i in active:
                    made[i].finish = made[i].episode.finish = "turn_limit"
    return _graded(made, tokens, where, request, environment)


def _graded(
    made: Sequence[Attempt],
    tokens: Sequence[int | None],
    where: Provenance,
    request: EvalRequest,
    environment: TrainerEnvironment,
) -> list[list[Rollout]]:
    if whole := [a for a in made if a.score is None]:
        grade(environment, whole)
    counted = iter(tokens)
    # what a server counted, where it did: it hands out no token ids
    return [[replace(r, tokens=next(counted)) for r in group] for group in evaluated(made, where, request)]


class ChatEndpoint:
    """A server of chat completions that has a policy under a name."""

    def __init__(self, base_url: str, model: str, options: EvaluationOptions) -> None:
        self.base_url, self.model, self.options = base_url.rstrip("/"), model, options

    def asker(self, request: EvalRequest) -> Ask:
        r = request.recipe
        how = {"temperature": 0.0} if request.greedy else {"temperature": r.temperature, "top_p": r.top_p}

        def ask(turns: Sequence[Any], seed: int) -> ChatAnswer:
            messages = [{"role": ROLES.get(t.role, t.role), "content": t.text} for t in turns]
            body = {"model": self.model, "messages": messages, "max_tokens": r.max_tokens, "seed": seed, **how}
            return _answer(self.post("/chat/completions", body))

        return ask

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """JSON of an answer; LostError where none comes after several tries."""
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(self.options.key_env) if self.options.key_env else None:
            headers["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        why = ""
        for n in range(TRIES):
            if n:
                time.sleep(PAUSE_S * 2**n)
            try:
                asked = urllib.request.Request(self.base_url + path, data, headers)
                with urllib.request.urlopen(asked, timeout=self.options.timeout_s) as reply:
                    return json.loads(reply.read(LARGEST))
            except urllib.error.HTTPError as e:
                why = f"HTTP {e.code}: {cut(e.read(2000).decode(errors='replace'), 200)}"
                if e.code not in BUSY:
                    break
            except (OSError, ValueError, http.client.HTTPException) as e:
                why = f"{type(e).__name__}: {e}"
        raise LostError(f"{self.base_url}: {' '.join(why.split())}")


def _answer(found: Any) -> ChatAnswer:
    try:
        choice = found["choices"][0]
        text, used = choice["message"]["content"] or "", found.get("usage") or {}
        return ChatAnswer(str(text), choice.get("finish_reason") != "length", used.get("completion_tokens"))
    except (LookupError, TypeError, AttributeError):
        raise LostError(f"no chat completion: {cut(json.dumps(found), 200)}") from None


class PolicyServer:
    """The server of one policy at a time: started by the user's command, ended with the next one."""

    def __init__(self, options: CommandOptions) -> None:
        self.options, self.by = options, options.evaluation
        self.policy: Path | None = None
        self.endpoint: ChatEndpoint | None = None
        self.started: StartedCommand | None = None
        self.held = contextlib.ExitStack()

    def of(self, request: EvalRequest) -> ChatEndpoint:
        """Ready to answer for the policy of a request; FaultsError where it does not come up."""
        policy = Path(request.policy_dir).absolute()
        if self.endpoint is not None and self.policy == policy:
            return self.endpoint
        self.close()
        names = {"policy": policy, "trial": keys.training(request.identity.branch, request.identity.seed)}
        if self.by.serve:
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                names["port"] = s.getsockname()[1]
        url, model = filled([self.by.base_url, self.by.model], names)
        self.endpoint, self.policy = ChatEndpoint(url, model, self.by), policy
        if self.by.serve:
            o = self.options
            home = self.held.enter_context(passing_folder())
            cwd = Path(o.cwd or ".").absolute()
            command = Command(filled(self.by.serve, names), cwd, o.env, home, self.by.ready_s, o.grace_s, o.log_bytes)
            self.started = command.start()
            self.wait(command)
        return self.endpoint

    def wait(self, command: Command) -> None:
        assert self.endpoint is not None and self.started is not None
        end = time.monotonic() + self.by.ready_s
        quick = ChatEndpoint(self.endpoint.base_url, "", self.by.model_copy(update={"timeout_s": 5.0}))
        while True:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                with urllib.request.urlopen(f"{quick.base_url}/models", timeout=5):
                    return
            over = self.started.keeper.poll() is not None
            if over or time.monotonic() > end:
                why = "ended" if over else f"did not answer at {quick.base_url}/models for {self.by.ready_s:g} s"
                words = f"; it printed last: {last}" if (last := command.last_words()) else ""
                self.close()
                raise FaultsError(
                    f"the server of trainer.options.evaluation.serve {why}{words}; correct serve and base_url, or "
                    "raise ready_s"
                )
            time.sleep(0.2)

    def close(self) -> None:
        if self.started is not None:
            self.started.stop()
        self.held.close()
        self.started = self.endpoint = self.policy = None


def by_program(options: CommandOptions, request: EvalRequest, environment: TrainerEnvironment) -> list[list[Rollout]]:
    """Attempts that a program of the user's writes for the tasks of a split, in a folder that is removed afterwards."""
    tasks, where = to_evaluate(request, environment, keep_tokens=False)
    with passing_folder() as home:
        out = home / "out"
        write_tasks(home / "tasks.jsonl", environment, tasks, where.env_knobs)
        asked = CommandRequest(
            purpose="evaluate",
            trial=keys.training(request.identity.branch, request.identity.seed),
            seed=seed_of(request.identity.seed, request.split, str(request.greedy)) % 2**31,
            recipe=request.recipe,
            steps=0,
            tasks=str(home / "tasks.jsonl"),
            policy=str(Path(request.policy_dir).absolute()),
            out=str(out),
            rollouts=str(out / (options.rollouts or "rollouts")),
            metrics="",
            policy_out="",
            attempts=request.attempts,
            greedy=request.greedy,
        )
        names = write_request(home, asked)
        env = dict(zip(options.env, filled(list(options.env.values()), names), strict=True))
        argv, cwd = filled(options.evaluation.command, names), Path(options.cwd or ".").absolute()
        waits = options.patience_s, options.grace_s
        command = Command(argv, cwd, env, home, *waits, options.log_bytes, kept=False)
        o = options.model_copy(update={"rollouts": options.rollouts or "rollouts", "metrics": "", "checkpoint": ""})
        _run_program(command, out, o, request.split)
        found: dict[str, list[Rollout]] = {}
        for row in outputs.read_rollouts(out, o, f"the evaluation's {command.name}"):
            found.setdefault(row.task, []).append(row)
    made, tokens = [], list[int | None]()
    for task in tasks:
        said = found.get(str(task.id), [])
        for k in range(request.attempts):
            r = said[k] if k < len(said) else None
            a = Attempt(task, k, environment.reset(task, where.env_knobs), ())
            if r is None or r.error_kind is not None:
                a.score = LostScore((r and r.error) or "the program wrote no attempt", (r and r.error_kind) or "other")
            else:
                a.episode = outputs.play(environment, task, where.env_knobs, r)
                a.finish = "length" if r.finish == "length" else "stop"
            made.append(a)
            tokens.append(r.tokens if r else None)
    return _graded(made, tokens, where, request, environment)


def _run_program(command: Command, out: Path, o: CommandOptions, split: str) -> None:
    """Run it to a good end, again where a signal ended it."""
    for n in range(o.restarts + 1):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        end = command.run(outputs.Signs(out, o))
        if end.status >= 0:
            break
        print(f"note: signal {-end.status} ended the evaluation's command, start {n + 1}", flush=True)
    if end.status < 0:
        raise FaultsError(
            f"signal {-end.status} ended the program of trainer.options.evaluation.command, each of "
            f"{counted(o.restarts + 1, 'time')} (out of memory?); make room for it, and `evotrainer resume` tries it "
            "again"
        )
    if end.status:
        # of gate and cert nothing is told that it printed
        words = "" if SealedSplits.covers(split) else f"; it printed last: {command.last_words()}"
        raise TrainerError(
            f"the program of trainer.options.evaluation.command failed: exit code {end.status}{words}; correct it"
        )
