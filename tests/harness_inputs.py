"""Rollouts for the harness tests, as trainers and environments write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from evotrainer.harness import Batch, HarnessContext, detect, measure
from evotrainer.records.findings import Finding, HealthReport, MetricValue
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout, ToolCall, Turn

READ = "xs = list(map(int, input().split()))\n"


def rollout(
    task: str = "t0",
    k: int = 0,
    text: str = "print(1)",
    reward: float | None = 1.0,
    correct: bool | None = None,
    prompt: str = "",
    **fields: Any,
) -> Rollout:
    """One single-turn attempt; `correct` None leaves the outcome unknown."""
    outcome = {True: "correct", False: "incorrect", None: "unknown"}[correct]
    fields.setdefault("group", f"g-{task}")
    fields.setdefault("id", f"{task}-{k}")
    turns = fields.pop("turns", (Turn("user", prompt or f"solve {task}"), Turn("assistant", text)))
    return Rollout(task=task, k=k, turns=turns, reward=reward, outcome=outcome, **fields)  # type: ignore[arg-type]


def groups(rewards: Sequence[Sequence[float | None]], **fields: Any) -> list[Rollout]:
    """Groups by their rewards; outcome correct where the reward is above 0.5."""
    return [
        rollout(f"t{g}", k, text=f"print({g} + {k})", reward=r, correct=None if r is None else r > 0.5, **fields)
        for g, rs in enumerate(rewards)
        for k, r in enumerate(rs)
    ]


def case(kind: str, stdin: str, expected: str, got: str | None = None, error: str | None = None) -> dict[str, Any]:
    """One test as the code environment records it."""
    ok = error is None and (got if got is not None else expected) == expected
    return {
        "kind": kind,
        "input": stdin,
        "expected": expected,
        "got": expected if ok else got,
        "status": "error" if error else "ok",
        "passed": ok,
        **({"error": error} if error else {}),
    }


def coded(
    task: int,
    k: int,
    text: str,
    visible: bool,
    hidden: bool,
    *,
    error: str | None = None,
    hidden_input: str = "",
    **fields: Any,
) -> Rollout:
    """A code attempt with one visible example (3 4 5 -> a three-digit number of the task) and one hidden test."""
    answer = str(100 + 7 * task)
    got = answer if visible else "wrong"
    hidden_case = case("hidden", hidden_input, "0", "0" if hidden else "9", None if hidden else error)
    components = {"visible": float(visible), "hidden": float(visible and hidden), **fields.pop("components", {})}
    return rollout(
        f"c{task}",
        k,
        text=text,
        reward=fields.pop("reward", components["visible"]),
        correct=visible and hidden,
        prompt=f"Read integers; add {task} to each; print the sum.\n3 4 5 -> {answer}\n",
        components=components,
        tokens=fields.pop("tokens", 20),
        finish=fields.pop("finish", "stop"),
        detail={"tests": [case("visible", "3 4 5", answer, got), hidden_case]},
        **fields,
    )


def code_batch(tasks: int, size: int, make: Callable[[int, int], Rollout]) -> list[Rollout]:
    return [make(t, k) for t in range(tasks) for k in range(size)]


def acting(
    task: int, k: int, commands: Iterable[str | tuple[str, bool | None]], correct: bool, **fields: Any
) -> Rollout:
    """An agent's episode: one bash call per turn."""
    turns = [Turn("user", f"fix bug {task}")]
    for c in commands:
        command, ok = c if isinstance(c, tuple) else (c, True)
        turns += [Turn("assistant", "", (ToolCall("bash", command, ok),)), Turn("tool", "done")]
    fields.setdefault("finish", "stop")
    return rollout(f"s{task}", k, reward=float(correct), correct=correct, turns=tuple(turns), **fields)


def recipe(**factors: Any) -> Recipe:
    factors.setdefault("rewards", {"visible": 1.0})
    return Recipe(**factors)


def found(detector: str, rollouts: Sequence[Rollout], context: HarnessContext | None = None) -> list[Finding]:
    """Findings of one detector over rollouts, with all metrics at hand."""
    context = context or HarnessContext()
    batch = Batch.of(rollouts)
    return detect(batch, measure(batch, context), context, [detector])


def metrics(rollouts: Sequence[Rollout], context: HarnessContext | None = None) -> dict[str, MetricValue]:
    return measure(Batch.of(rollouts), context)


def reading(**values: float | tuple[float, float]) -> HealthReport:
    """An earlier reading with these metrics; a pair is (value, se). `_per_` in names stands for `/`."""
    rows = []
    for name, v in values.items():
        value, se = v if isinstance(v, tuple) else (v, None)
        rows.append(MetricValue(name=name.replace("_per_", "/"), layer="score", value=value, se=se, n=100))
    return HealthReport(harness="h0", subject="base", rollouts=100, groups=10, metrics=tuple(rows), findings=())


def change(factor: str, new: Any, old: Any = None) -> Intervention:
    return Intervention(
        factor=factor,
        old=old,
        new=new,
        hypothesis="it helps",
        prediction=Prediction(metric="accuracy", direction="up", size=0.02),
        success_criterion="accuracy up on gate",
        rollback="the parent's value",
    )


def curve(n: int = 20, **lines: tuple[float, float]) -> tuple[Mapping[str, float], ...]:
    """Straight training curves: key -> (first, last); `_per_` in keys stands for `/`.
    A small saw keeps errors finite."""
    saw = (0.002, -0.001, -0.001)
    return tuple(
        {k.replace("_per_", "/"): a + (b - a) * i / (n - 1) + saw[i % 3] * abs(b - a) for k, (a, b) in lines.items()}
        for i in range(n)
    )
