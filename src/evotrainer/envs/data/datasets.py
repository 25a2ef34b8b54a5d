"""Task sets from data: MBPP and HumanEval (functions checked by the data set's own test code), and users' JSONL files
of stdin/stdout tasks. They plug into `CodeEnv` as task sources of the same kind as the grammar.
"""

from __future__ import annotations

import ast
import hashlib
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.envs.base import SPLITS, Capability, Task
from evotrainer.envs.code.source import MEMORY_MB, OUTPUT_KB
from evotrainer.envs.code.tasks import content_hash
from evotrainer.envs.data.rows import Row, check_shares, field, load_rows, read_jsonl, split_of
from evotrainer.errors import TaskSetError

if TYPE_CHECKING:
    from evotrainer.sandbox import Sandbox

NO_VOCABULARY = "characters"
EVALUATION_ONLY: Mapping[str, float] = {"cert": 1.0}
FOUR_SPLITS: Mapping[str, float] = {"train": 0.7, "search": 0.1, "gate": 0.1, "cert": 0.1}
CHECK_CPU_S = 5.0
"""CPU-seconds for a candidate over all calls of its tests, imports included."""


class ListSource:
    """Tasks at hand, with their splits. `data["gold"]` of train tasks serves as demonstrations."""

    capabilities: Sequence[Capability] = ()
    vocabulary_version = NO_VOCABULARY

    def __init__(
        self,
        name: str,
        tasks: Sequence[Task],
        *,
        cpu_s: float,
        shown: bool = False,
        memory_mb: int = MEMORY_MB,
        output_kb: int = OUTPUT_KB,
    ) -> None:
        """`shown`: prompts end in examples that the knob `visible_tests` may leave out."""
        self.name = name
        self.cpu_s, self.memory_mb, self.output_kb = cpu_s, memory_mb, output_kb
        self.about: Mapping[str, Any] = {}
        self._splits = {s: tuple(t for t in tasks if t.split == s) for s in SPLITS}
        self._refuse_overlap()
        self.knobs: Mapping[str, tuple[Any, ...]] = (
            {"visible_tests": ("shown_and_graded", "not_shown")} if shown else {}
        )
        self.proxy: tuple[str, str] | None = ("visible", "hidden") if any(t.data["visible"] for t in tasks) else None
        self.hash = content_hash(self._splits)

    def keep(self, ids: Collection[str], solved: Mapping[str, int] | None = None) -> None:
        """Leave out every task whose id is not among these. `solved`: id -> which of its solutions is the gold one."""

        def settled(t: Task) -> Task:
            n = (solved or {}).get(t.id, 0)
            return replace(t, data={**t.data, "gold": t.data["golds"][n]}) if n else t

        self._splits = {s: tuple(settled(t) for t in ts if t.id in ids) for s, ts in self._splits.items()}
        self.hash = content_hash(self._splits)

    def _refuse_overlap(self) -> None:
        seen: dict[str, Task] = {}
        for tasks in self._splits.values():
            for t in tasks:
                for key in (f"id {t.id}", f"prompt {t.prompt}"):
                    if (other := seen.setdefault(key, t)) is not t and (other.split != t.split or key.startswith("id")):
                        raise TaskSetError(
                            f"environment {self.name}: {key[:60]!r} occurs twice (splits {other.split} and {t.split}); "
                            "remove one row, or put both into one split under different ids"
                        )

    def sizes(self) -> dict[str, int]:
        """Splits that have tasks."""
        return {s: len(ts) for s, ts in self._splits.items() if ts}

    def tasks(self, split: str) -> Sequence[Task]:
        return self._splits[split]

    def prompt(self, task: Task, knobs: Mapping[str, Any]) -> str:
        return str(task.data["spec"]) if knobs.get("visible_tests") == "not_shown" else task.prompt

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, str]]:
        pairs = [(t.prompt, str(t.data["gold"])) for t in self._splits["train"] if t.data.get("gold")]
        rng = random.Random(f"demonstrations:{seed}")
        out: list[tuple[str, str]] = []
        while pairs and len(out) < n:
            out += rng.sample(pairs, len(pairs))
        return out[:n]

    def vocabulary(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class _Problem:
    """A checked function: prompt, the header a body completes (or ""), gold, test code and what may be shown of it."""

    id: str
    prompt: str
    header: str
    entry_point: str
    gold: str
    test: str
    asserts: tuple[str, ...]


def _entry_start(header: str, entry_point: str) -> int:
    found = re.search(rf"^(?:async )?def {re.escape(entry_point)}\b", header, re.MULTILINE)
    return found.start() if found else -1


def preamble_of(header: str, entry_point: str) -> str:
    """What of a header the tests and a rewritten function may need: all before the entry point, or its imports."""
    start = _entry_start(header, entry_point)
    if start >= 0:
        return header[:start]
    return "".join(f"{line}\n" for line in header.split("\n") if re.match(r"(?:import|from) ", line))


def _asserts(test: str, entry_point: str) -> tuple[str, ...]:
    """The asserts of a `check(candidate)` that consists of nothing else, on the entry point's own name."""
    tree = ast.parse(test)
    check = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "check"), None)
    if check is None or not all(isinstance(n, ast.Assert) for n in check.body):
        return ()
    return tuple(re.sub(r"\bcandidate\b", entry_point, ast.unparse(n)) for n in check.body)


def _completion_problem(row: Row, where: str) -> _Problem:
    """HumanEval's columns: the prompt is a header with docstring, the solution its body."""
    task_id, prompt, entry, gold, test = (
        field(row, c, str, where) for c in ("task_id", "prompt", "entry_point", "canonical_solution", "test")
    )
    try:
        asserts = _asserts(test, entry)
    except SyntaxError as e:
        raise TaskSetError(f"{where}: field 'test' is not Python ({e.msg}); correct the row") from None
    test = preamble_of(prompt, entry) + _lost_import(test) + test
    return _Problem(task_id, prompt, prompt, entry, gold, test, asserts)


def _lost_import(test: str) -> str:
    """MBPP keeps `import math` in a column `test_imports`, which files in HumanEval's columns have dropped."""
    return "import math\n" if re.search(r"\bmath\.", test) and "import math" not in test else ""


def _mbpp_problem(row: Row, where: str) -> _Problem:
    """MBPP's own columns (a sentence, a whole solution, a list of asserts), or HumanEval's."""
    if "test_list" not in row:
        return _completion_problem(row, where)
    sentence = field(row, "text" if "text" in row else "prompt", str, where)
    gold = field(row, "code", str, where)
    tests = field(row, "test_list", list, where)
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports") or ())
    if not tests or not all(isinstance(t, str) for t in tests):
        raise TaskSetError(f"{where}: field 'test_list' must be a list of asserts; correct the row")
    try:
        entry = _called(gold, tests)
    except SyntaxError as e:
        raise TaskSetError(f"{where}: 'code' or 'test_list' is not Python ({e.msg}); correct the row") from None
    if entry is None:
        raise TaskSetError(f"{where}: the tests call no function that 'code' defines; correct the row")
    test = f"{setup}\ndef check(candidate):\n" + "".join(f"    {t.strip()}\n" for t in tests)
    return _Problem(str(row.get("task_id", where)), f"{sentence.strip()}\n", "", entry, gold, test, tuple(tests))


def _defined(source: str) -> set[str]:
    return {n.name for n in ast.parse(source).body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}


def _called(gold: str, tests: Sequence[str]) -> str | None:
    """First function of the solution that the tests call."""
    defined = _defined(gold)
    for n in ast.walk(ast.parse("\n".join(tests))):
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in defined:
            return n.func.id
    return None


def _helpers(p: _Problem) -> list[str]:
    """Further functions of the solution that the test code calls."""
    from evotrainer.envs.code.env import assemble_header

    try:
        defined = _defined(assemble_header(p.header, p.gold)) - {p.entry_point}
        tree = ast.parse(p.test)
    except SyntaxError:
        return []
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return sorted((defined & used) - own)


def check_task(p: _Problem, name: str, split: str, visible: int) -> Task:
    """The task; the first `visible` asserts stand above the prompt."""
    shown = p.asserts[:visible]
    prompt = "".join(f"# {a}\n" for a in shown) + p.prompt
    body = "".join(f"    {a}\n" for a in shown)
    shown_test = f"{preamble_of(p.header, p.entry_point)}\n{_lost_import(body)}def check(candidate):\n{body}"
    return Task(
        id=p.id,
        split=split,
        prompt=prompt,
        data={
            "form": "check",
            "spec": p.prompt,
            "entry_point": p.entry_point,
            "names": _helpers(p),
            "header": p.header,
            "preamble": preamble_of(p.header, p.entry_point),
            "gold": p.gold,
            "visible": [[shown_test, None]] if shown else [],
            "hidden": [[p.test, None]],
            "perturb": False,
        },
        tags={"set": name},
    )


KINDS: dict[str, Callable[[Row, str], _Problem]] = {"mbpp": _mbpp_problem, "humaneval": _completion_problem}


def dataset_source(
    kind: str,
    path: str,
    *,
    splits: Mapping[str, float] | None = None,
    visible: int = 0,
    hf_config: str | None = None,
    hf_split: str = "test",
    cpu_s: float = CHECK_CPU_S,
) -> ListSource:
    """MBPP or HumanEval as a task source. `splits`: split -> share of the rows, by a hash of their ids (default: all in
    cert); `visible`: asserts shown as comments above the prompt and graded as visible tests. TaskSetError with the
    row where a column is missing or malformed.
    """
    if kind not in KINDS:
        raise TaskSetError(f"unknown data set kind {kind!r}; one of: {', '.join(KINDS)}")
    shares = check_shares(splits or EVALUATION_ONLY)
    tasks = []
    for n, row in enumerate(load_rows(path, hf_config, hf_split), 1):
        problem = KINDS[kind](row, f"{path}, row {n}")
        tasks.append(check_task(problem, kind, split_of(problem.id, shares), visible))
    return ListSource(kind, tasks, cpu_s=cpu_s, shown=visible > 0)


def pairs(value: Any, where: str) -> list[list[str]]:
    """Pairs of texts (stdin, stdout); TaskSetError otherwise."""
    ok = (
        isinstance(value, list)
        and value
        and all(isinstance(p, list) and len(p) == 2 and all(isinstance(x, str) for x in p) for p in value)
    )
    if not ok:
        raise TaskSetError(f'{where}: field \'tests\' must be a list of pairs of texts: [["stdin", "stdout"], ...]')
    return [list(p) for p in value]


def examples(prompt: str, visible: Sequence[Sequence[str]]) -> str:
    """The prompt with examples behind it."""
    blocks = [f"Input:\n{x.rstrip()}\nOutput:\n{y.rstrip()}\n" for x, y in visible]
    return prompt.rstrip("\n") + "\n\n" + "\n".join(blocks)


def _stdin_task(row: Row, where: str, options: Mapping[str, Any], shares: Mapping[str, float]) -> Task:
    prompt = field(row, "prompt", str, where)
    tests = pairs(row.get("tests"), where)
    visible = field(row, "visible", int, where) if "visible" in row else options["visible"]
    heldout = options["heldout"]
    if not visible >= 0 or visible + heldout >= len(tests):
        raise TaskSetError(
            f"{where}: {len(tests)} tests, of which {visible} visible and {heldout} held out, leave none hidden; "
            "add tests or lower visible"
        )
    split = row.get("split") or split_of(prompt, shares)
    if split not in SPLITS:
        raise TaskSetError(f"{where}: split {split!r} is none of {', '.join(SPLITS)}")
    shown = tests[:visible]
    digest = hashlib.blake2b(prompt.encode(), digest_size=6).hexdigest()
    return Task(
        id=str(row.get("id", f"{options['name']}-{digest}")),
        split=str(split),
        prompt=examples(prompt, shown) if options["show"] and shown else prompt,
        data={
            "form": "stdin",
            "spec": prompt,
            "visible": shown,
            "heldout": tests[visible : visible + heldout],
            "hidden": tests[visible + heldout :],
            "gold": str(row.get("solution", "")),
            "perturb": options["perturb"],
        },
    )


def jsonl_source(
    path: Path | str,
    *,
    name: str = "jsonl",
    visible: int = 2,
    heldout: int = 0,
    splits: Mapping[str, float] | None = None,
    show: bool = False,
    perturb: bool = False,
    cpu_s: float = 2.0,
) -> ListSource:
    """A user's stdin/stdout tasks, one object per line: `prompt`, `tests` [[stdin, stdout], ...]; optional `id`,
    `split`, `visible` (count), `solution` (demonstrations of the train split).

    `visible`, `heldout`: how many of a row's first tests are of that kind, the rest is hidden. `splits`: shares for rows
    without a split. `show`: append the visible tests to the prompt (leave False where the prompt has them already).
    `perturb`: inputs are numbers or words separated by blanks, so that empty, permuted and doubled ones make sense.
    """
    shares = check_shares(splits or FOUR_SPLITS)
    options = {"name": name, "visible": visible, "heldout": heldout, "show": show, "perturb": perturb}
    rows = read_jsonl(Path(path).expanduser())
    if not rows:
        raise TaskSetError(f"{path} has no rows; write one task per line")
    tasks = [_stdin_task(row, f"{path}, row {n}", options, shares) for n, row in enumerate(rows, 1)]
    return ListSource(name, tasks, cpu_s=cpu_s, shown=show)


@dataclass(frozen=True, slots=True)
class GoldReport:
    """How a data set's own solutions fare in the sandbox. `failures`: (task id, status, error)."""

    total: int
    passed: int
    failures: tuple[tuple[str, str, str], ...]


def grade_gold(
    kind: str, path: str, *, limit: int | None = None, sandbox: Callable[[], Sandbox] | None = None
) -> GoldReport:
    """Grade the gold solutions of MBPP or HumanEval by their own tests, in the sandbox; `limit`: the first rows only."""
    from evotrainer.envs.code.env import CodeEnv

    world = CodeEnv(dataset_source(kind, path), open_sandbox=sandbox)
    try:
        tasks = list(world.tasks("cert"))[:limit]
        episodes = [world.reset(t, {}) for t in tasks]
        world.step(episodes, [str(t.data["gold"]) for t in tasks], ["stop"] * len(tasks))
        scores = world.score(episodes)
    finally:
        world.close()
    failures = []
    for t, s in zip(tasks, scores, strict=True):
        if s.outcome != "correct":
            last = s.detail["tests"][-1] if s.detail.get("tests") else {}
            failures.append((t.id, str(s.error_kind or last.get("status")), str(s.error or last.get("error", ""))))
    return GoldReport(len(tasks), len(tasks) - len(failures), tuple(failures))
