"""Users' own TRL environments and reward functions, unchanged, over a file of tasks.

A class is played by TRL's own tool loop, so it needs trainer.name = "trl"; here are its tasks, splits, components and
checksums. Reward functions alone are single-turn tasks, which every trainer plays.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from evotrainer.envs.base import SPLITS, Episode, Score, Task
from evotrainer.envs.callables import (
    NO_CHANCE,
    called,
    check_signature,
    environment_class,
    first_line,
    is_async,
    named_arguments,
    reward_functions,
)
from evotrainer.envs.data.rows import Row, check_shares, renamed, split_of
from evotrainer.envs.data.tables import read_source
from evotrainer.envs.return_checks import answers_of_lengths
from evotrainer.envs.slots import Scaffold, ScaffoldedEnvironment
from evotrainer.envs.trl_slots import check_descriptions, dressed, slots_of, tools, with_prompt
from evotrainer.envs.user_files import WATCH, call, named_exit, no_hard_exit, raised
from evotrainer.errors import TaskSetError
from evotrainer.records.frozen import Frozen, parsed
from evotrainer.records.regular_file import read_bytes
from evotrainer.records.rollout import Finish, Turn, no_reward
from evotrainer.records.text import clean_text, counted, quoted, shown

CLASS, FUNCTION = "trl:", "trl-rewards:"
SHARES = {"train": 0.7, "search": 0.1, "gate": 0.1, "cert": 0.1}
REWARD = "reward"
"""Component of a class's own `get_reward`."""
TAKEN = ("self", "prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric",
         "environments", "_env_type", "evotrainer_reward")  # fmt: skip
"""Names that TRL (`_calculate_rewards`), our own reward or a method's instance have among a reward function's
arguments: a column of such a name is refused by Python, or another value takes its place."""


OF_TRL = ("completion_ids", "trainer_state", "log_extra", "log_metric")
"""Arguments of a reward function that are there where TRL trains, and nowhere else."""


class TrlConfig(Frozen):
    """`[environment]` with name = "trl:FILE.py:Class" or "trl-rewards:FILE.py:function"."""

    name: str
    source: str
    """Rows: a file, a folder of them, or `hf:org/name[:config][@revision]`. Every column goes to `reset` and to reward
    functions. `prompt` is text or messages, as TRL has it: text reaches the policy as it is and completions are text,
    messages go through the chat template and completions are messages. A class may leave it empty, where `reset` says
    what the task is."""
    columns: dict[str, str] = {}
    """What TRL and the functions call a column -> its name in the rows: {"prompt": "question"}."""
    messages: bool = False
    """Is a text in `prompt` made a message of the user, as chat models want it?"""
    rewards: tuple[str, ...] = ()
    """Further TRL reward functions, FILE.py:function each."""
    demonstrations: str | None = None
    """Column of worked answers (text, or messages whose last is the answer), of the train rows, that a warm start
    (policy.base = "warm-start") and recipe.sft_anchor learn from; reward functions get it as any other."""
    truth: str | None = None
    """Component that says what is right; None: the first."""
    correct_at: float = 1.0
    """Value of `truth` from which an attempt counts as correct."""
    split_column: str | None = None
    """Column that names the split (train, search, gate, cert);
    None: by a hash of the row, in the shares of `splits`."""
    splits: dict[str, float] | None = None
    id_column: str | None = None
    """Column that names the task; None: a hash of the row."""
    part: str = "train"
    """The data set's own split that is read, where it has several."""


class TrlEnv(ScaffoldedEnvironment):
    """What the trl trainer needs of them. `environment_factory`: the class,
    None where there are reward functions only."""

    def __init__(
        self,
        name: str,
        rows: Sequence[Row],
        factory: type | None,
        functions: Mapping[str, Callable[..., Any]],
        options: TrlConfig,
        files: Sequence[Path] = (),
        own_names: Mapping[str, str] | None = None,
    ) -> None:
        self.own_names = own_names or {}  # as the task file names a reward -> why its component is called otherwise
        self.name, self.environment_factory = name, factory
        self._factory = factory
        self.reward_functions = {k: watched(k, f) for k, f in functions.items()}
        self.files = tuple(files)
        """The user's own files."""
        own = {REWARD: getattr(factory, "get_reward", None)} if hasattr(factory, "get_reward") else {}
        self.components = {k: first_line(f) or k for k, f in {**own, **functions}.items()}
        if not self.components:
            raise TaskSetError(
                f"environment {name}: no reward; give the class a get_reward() method, "
                "or environment.rewards a function"
            )
        self.truth = options.truth or next(iter(self.components))
        if self.truth not in self.components:
            raise TaskSetError(f"environment {name}: truth {self.truth!r} is none of {', '.join(self.components)}")
        self.outcome_components: Sequence[str] = (self.truth,)
        self.correct_at = options.correct_at
        self._tasks, places = _tasks(rows, options)
        self.conversational = factory is not None or _conversational(
            rows, options.source, options.columns.get("prompt", "prompt")
        )
        """Do prompts go through the policy's chat template?"""
        self.one_turn = factory is None
        self._worked = _worked(self._tasks["train"], options, places) if options.demonstrations else []
        self.slots = slots_of(factory, self.conversational)
        self._scaffold = Scaffold(name, self.slots)

    def opening(self, task: Task, knobs: Mapping[str, Any]) -> list[Turn]:
        """As TRL renders a row, but for the tools, whose descriptions stand where a template puts them."""
        prompt = self.as_prompt(task.data.get("prompt", ""))
        messages = said(prompt) if isinstance(prompt, str) else prompt
        return [Turn("system" if m.get("role") == "system" else "user", prompt_text([m], "prompt")) for m in messages]

    def as_prompt(self, prompt: Any) -> Any:
        """A row's prompt in the texts of the scaffold in use; a class's is messages."""
        wrapped = isinstance(prompt, str) and self._factory is not None
        return with_prompt(said(prompt) if wrapped else prompt, self._scaffold)

    def use_scaffold(self, scaffold: Mapping[str, str]) -> None:
        check_descriptions(self.name, scaffold)
        self._scaffold.use(scaffold)
        self.environment_factory = dressed(self._factory, self._scaffold) if self._factory else None

    def check_plays(self, trainer: str) -> None:
        """TaskSetError where a trainer cannot play it: another than TRL a class, or functions that ask for what only
        TRL hands them."""
        if trainer == "trl":
            return
        if self._factory is not None:
            raise TaskSetError(f'environment {self.name} is played by TRL\'s own tool loop; set trainer.name = "trl"')
        for name, f in self.reward_functions.items():
            if asked := [k for k in OF_TRL if k in named_arguments(f)]:
                raise TaskSetError(
                    f"reward function {name!r} asks for {asked[0]}, which only TRL hands it; do without it (prompts, "
                    'completions and the columns are there), or set trainer.name = "trl"'
                )

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        self.check_plays("")
        super().step(episodes, actions, finishes)

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        return self._graded([(e.task, e.turns[-1].text) for e in episodes], OF_TRL) if episodes else []

    def tool_methods(self) -> list[Callable[..., Any]]:
        """What TRL gives the policy as tools, of an instance; TaskSetError where the class cannot be made."""
        if (factory := self.environment_factory) is None:
            return []
        made = call(f"the class {self.name}", factory)
        return [getattr(made, name) for name in tools(factory)]

    def try_class(self) -> None:
        """The class is made, and reset with the first train row; TaskSetError where either fails."""
        if self.environment_factory is not None and (row := next((t.data for t in self._tasks["train"]), None)):
            made = call(f"the class {self.name}", self.environment_factory)
            first = {**row, "prompt": self.as_prompt(row.get("prompt", ""))}
            call(f"reset of the class {self.name}", functools.partial(made.reset, **first), where=" on a train row")

    def grade(self, tries: Sequence[tuple[Task, str]]) -> list[Score]:
        """Scores of completions that nobody sampled: every reward function called once, as TRL calls it.

        TaskSetError where one cannot take what TRL hands it, gives no number for each, or raises whatever it is given.
        Where it raises, as for a service that is not up or an answer of no form, that is the error of all scores.
        """
        return self._graded(tries)

    def _graded(self, tries: Sequence[tuple[Task, str]], without: Sequence[str] = ()) -> list[Score]:
        """As `grade`; `without`: what is not handed. Where a function raises on several, each is scored by itself: one
        bad answer is a fault of its own."""
        given = {k: v for k, v in self._handed(tries).items() if k not in without}
        columns, n = dict[str, list[Any]](), len(tries)
        for name, f in self.reward_functions.items():
            check_signature(name, f, given)
            values = called(f, given)
            if isinstance(values, Exception):
                alone = ([(tries[0][0], text)] for text in answers_of_lengths(()))
                if isinstance(values, NO_CHANCE) and all(
                    isinstance(called(f, self._handed(x)), Exception) for x in alone
                ):
                    form = "lists of messages, as prompts are" if self.conversational else "text"
                    raise TaskSetError(
                        f"reward function {name!r} raised {raised(values)} on every completion that it was tried on, "
                        f"as it would in training; correct it: completions are {form}"
                    ) from values
                fault = f"reward function {name!r} raised {raised(values)}"
                if without and n > 1:
                    return [s for x in tries for s in self._graded([x], without)]
                return [Score({}, "unknown", error=fault, error_kind="reward")] * n
            if len(values) != n:
                gave = f"gave {counted(len(values), 'value')} for {counted(n, 'completion')}"
                raise TaskSetError(f"reward function {name!r} {gave}; it gives one for each")
            columns[name] = values
        rows = [{k: values[i] for k, values in columns.items()} for i in range(n)]
        right = (row[self.truth] is not None and row[self.truth] >= self.correct_at for row in rows)
        return [Score(row, "correct" if r else "incorrect") for row, r in zip(rows, right, strict=True)]

    def _handed(self, tries: Sequence[tuple[Task, str]]) -> dict[str, Any]:
        """What TRL hands a reward function for rows and what the policy said to them."""
        rows, completions = [t.data for t, _ in tries], [text for _, text in tries]
        answers = [[{"role": "assistant", "content": c}] if self.conversational else c for c in completions]
        named = {k: [r.get(k) for r in rows] for k in rows[0] if k not in ("prompt", "completion", "completion_ids")}
        state = SimpleNamespace(global_step=0, max_steps=1, epoch=0.0, log_history=[])
        own = {"prompts": [self.as_prompt(r.get("prompt", "")) for r in rows], "completions": answers}
        logs = dict.fromkeys(("log_extra", "log_metric"), lambda *args, **kwargs: None)
        return {**named, **own, "completion_ids": [[0] for _ in rows], "trainer_state": state, **logs}

    @property
    def without_demonstrations(self) -> str:
        """Where a policy comes from, as none can be warm-started so."""
        small = "" if self.conversational else ', or to "builtin:math-v1", a small policy that ships with EvoTrainer'
        column = "" if self._factory else "set environment.demonstrations to the column of worked answers, or "
        return f"{column}set policy.base to a Hugging Face id or folder{small}"

    def demonstrations(self, n: int, seed: int) -> Sequence[tuple[str, ...]]:
        """(prompt, worked answer) of `n` train rows at most, in seeded order."""
        chosen = random.Random(seed).sample(self._worked, min(n, len(self._worked)))
        return [(t.prompt, answer) for t, answer in chosen]

    def _hash(self) -> str:
        text = json.dumps(
            [[t.id, t.split, t.data] for ts in self._tasks.values() for t in ts], sort_keys=True, default=str
        )
        text += "".join(hashlib.sha256(read_bytes(f)).hexdigest() for f in self.files)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def said(text: str) -> list[dict[str, str]]:
    """A text as the one message of a user."""
    return [{"role": "user", "content": text}]


def _conversational(rows: Sequence[Row], path: str, column: str) -> bool:
    """Are the prompts messages? TaskSetError where some are and some are not: TRL takes one kind a data set."""
    kinds = [not isinstance(row.get("prompt", ""), str) for row in rows]
    if rows and any(k != kinds[0] for k in kinds):
        n = next(i for i, k in enumerate(kinds) if k != kinds[0])
        words = ("messages", "text") if kinds[0] else ("text", "messages")
        raise TaskSetError(f"{path}: {column!r} is {words[0]} in row 1 and {words[1]} in row {n + 1}; use one of them")
    if kinds and not kinds[0] and (empty := next((n for n, r in enumerate(rows, 1) if not r.get("prompt")), 0)):
        raise TaskSetError(
            f"{path}, row {empty}: field {column!r} is empty; reward functions need one in every row"
            + _which(rows[empty - 1])
        )
    return bool(kinds) and kinds[0]


def _which(row: Row) -> str:
    """How a row without a prompt gets one, where another column may hold it."""
    found = next((k for k in ("question", "problem", "instruction", "query", "input", "text") if k in row), None)
    return f'; environment.columns = {{prompt = "{found}"}} takes the column {found}' if found else ""


def refused(value: Any) -> tuple[str, str]:
    """A value in words, and why it is no reward; empty where it is one."""
    if isinstance(value, complex):
        return f"the complex number {value}", no_reward(math.nan)
    if isinstance(value, str | bytes):
        return f"the text {quoted(value)}", no_reward(math.nan)
    try:
        return str(value), no_reward(value)
    except (TypeError, ValueError, OverflowError):
        return f"{type(value).__name__} {shown(value, 60)}", no_reward(math.nan)


def watched(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    """A user's reward function, under its name here, whose sys.exit, hang, and values that are no numbers have a name;
    TRL sees no other difference. One that TRL awaits is not watched for hangs: several run at a time."""
    what = f"reward function {name!r}"

    def exited(e: SystemExit) -> TaskSetError:
        return TaskSetError(f"{what} called {named_exit(e)}; it must return, or raise an error")

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with WATCH.calling(what), no_hard_exit():
            try:
                values = f(*args, **kwargs)
            except SystemExit as e:
                raise exited(e) from e
        return _rewards(what, values, kwargs)

    @functools.wraps(f)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        try:
            values = await f(*args, **kwargs)
        except SystemExit as e:
            raise exited(e) from e
        return _rewards(what, values, kwargs)

    out: Callable[..., Any] = awaited if is_async(f) else wrapped
    out.__name__ = name
    return out


def _rewards(what: str, values: Any, given: Mapping[str, Any]) -> Sized:
    """What a reward function gave; TaskSetError where it is no list of numbers. `given`: its keywords."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TaskSetError(
            f"{what} gave {type(values).__name__} {quoted(values)}; it must give a list: a number, or None, "
            "for each completion"
        )
    values = values if isinstance(values, Sized) else list(values)
    for n, v in enumerate(values):
        shown, why = refused(v)
        if why:
            prompt = prompt_text(given["prompts"][n], "prompts") if "prompts" in given else ""
            raise TaskSetError(f"{what} gave {shown} for attempt {n} of a batch, prompt {quoted(prompt)}; {why}")
    return values


def _row(row: Row, where: str) -> dict[str, Any]:
    """As TRL is to have it, without empty columns of images; TaskSetError for others, and for names that it takes."""
    if taken := next((c for c in TAKEN if c in row), None):
        raise TaskSetError(
            f"{where}: column {taken!r} has the name of an argument that TRL itself hands to reward functions; leave "
            f'it out, or rename it: environment.columns = {{row_{taken.strip("_")} = "{taken}"}}'
        )
    out = {k: v for k, v in row.items() if k not in ("image", "images") or v not in (None, "", [], [None])}
    prompt = row.get("prompt")
    contents = [] if isinstance(prompt, str) else [m.get("content") for m in prompt or ()]
    parts = [p.get("type") for c in contents if isinstance(c, list | tuple) for p in c if isinstance(p, Mapping)]
    named = [f"column {k}" for k in ("image", "images") if k in out] + [f"type {p}" for p in parts if p != "text"]
    if named:
        what = "the trl trainer is for text only: give prompts without images, and leave out columns of images"
        raise TaskSetError(f"{where} has more than text ({named[0]}); {what}")
    return out


def _tasks(rows: Sequence[Row], o: TrlConfig) -> tuple[dict[str, list[Task]], dict[str, str]]:
    shares = check_shares(o.splits or SHARES)
    out: dict[str, list[Task]] = {s: [] for s in SPLITS}
    places: dict[str, str] = {}  # task -> its file and row
    for n, row in enumerate(rows, 1):
        where = f"{o.source}, row {n}"
        key = hashlib.blake2b(json.dumps(dict(row), sort_keys=True, default=str).encode(), digest_size=8).hexdigest()
        for column in (o.id_column, o.split_column):
            if column and column not in row:
                raise TaskSetError(f"{where}: field {column!r} is missing; it has: {', '.join(map(str, row))}")
        task = str(row[o.id_column]) if o.id_column else key
        split = str(row[o.split_column]) if o.split_column else split_of(key, shares)
        if split not in SPLITS:
            raise TaskSetError(f"{where}: {o.split_column} is {split!r}; one of: {', '.join(SPLITS)}")
        if task in places:
            raise TaskSetError(f"{where}: task {task!r} occurs twice; ids must differ, also across splits")
        places[task] = where
        prompt = prompt_text(row.get("prompt", ""), where, o.columns.get("prompt", "prompt"))
        out[split].append(Task(task, split, prompt, _row(row, where)))
    return out, places


def _worked(tasks: Sequence[Task], o: TrlConfig, places: Mapping[str, str]) -> list[tuple[Task, str]]:
    """(task, worked answer) of the tasks that have one; TaskSetError where none has, or a prompt is not one message
    of the user, the form of a demonstration."""
    if o.name.startswith(CLASS):
        raise TaskSetError("environment.demonstrations: a class's prompts are made by its reset; leave them out")
    column, out = str(o.demonstrations), []
    for t in tasks:
        answer, prompt = t.data.get(column), t.data.get("prompt")
        if not isinstance(prompt, str) and [m.get("role") for m in prompt or ()] != ["user"]:
            raise TaskSetError(
                "environment.demonstrations: prompts must be text, or one message of the user each, and that of "
                f"{places[t.id]} is not; leave demonstrations out and set policy.base, or shorten the prompts to that"
            )
        if answer is None or answer == [] or answer != answer:  # NaN, as tables have it where nothing is
            continue
        number = isinstance(answer, int | float) and not isinstance(answer, bool)
        answer = str(answer) if number else answer[-1:] if isinstance(answer, list) else answer
        if text := prompt_text(answer, places[t.id], o.columns.get(column, column), "a number, "):
            out.append((t, text))
    if not out:
        there = ", ".join(dict.fromkeys(k for t in tasks for k in t.data))
        raise TaskSetError(
            f"environment.demonstrations: no train row has a worked answer in column {column!r}; they have: {there}"
        )
    return out


def prompt_text(prompt: Any, where: str, column: str = "prompt", also: str = "") -> str:
    """A column as text: a string, or messages; TaskSetError for anything else, `also` names what else it takes."""
    if isinstance(prompt, Sequence) and prompt and all(isinstance(m, Mapping) and "content" in m for m in prompt):
        prompt = "\n".join(str(m["content"]) for m in prompt)
    if not isinstance(prompt, str):
        what = f"give a text, {also}or messages with role and content"
        raise TaskSetError(f"{where}: field {column!r} is {type(prompt).__name__}; {what}")
    if prompt != clean_text(prompt):
        raise TaskSetError(f"{where}: field {column!r} has half a character (a lone surrogate); correct it")
    return prompt


def _rows(o: TrlConfig) -> list[Row]:
    parts, place, _ = read_source(o.source, o.name)
    rows = parts.get(o.part) if len(parts) > 1 else next(iter(parts.values()), None)
    if not rows:
        raise TaskSetError(
            f"{place} has no rows in split {o.part!r}; it has: {', '.join(parts)}; set environment.part to one of them"
        )
    return rows


def open_trl(config: Mapping[str, Any]) -> TrlEnv:
    """`trl:FILE.py:Class` or `trl-rewards:FILE.py:function`; TaskSetError names what is missing."""
    o = parsed(TrlConfig, config, f"environment {str(config['name']).partition(':')[0]}", TaskSetError)
    spec, specs = o.name.partition(":")[2], list(o.rewards)
    factory = environment_class(spec) if o.name.startswith(CLASS) else None
    specs = specs if factory else [spec, *specs]
    own_names: dict[str, str] = {}
    functions = reward_functions(specs, own_names) if specs else {}
    files = [Path(s.rpartition(":")[0]) for s in dict.fromkeys([spec, *specs])]
    rows = renamed(_rows(o), o.columns, o.source)
    if o.messages:
        texts = ((r, r.get("prompt")) for r in rows)
        rows = [{**r, "prompt": said(p)} if isinstance(p, str) and p else r for r, p in texts]
    name = factory.__name__ if factory else next(iter(functions))
    return TrlEnv(name, rows, factory, functions, o, files, own_names)
