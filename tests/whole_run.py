"""A whole run, written through the real ledger and rollout store, without training anything.

The story: visible-test reward (b0) leaves a proxy gap; hidden tests fix it (b1, promoted); a group filter helps a
little more (b5, promoted); the rest is rejected, inconclusive, invalid or crashed; one proposal is vetoed by its
backtest, one refused.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evotrainer.records import events as ev
from evotrainer.records.briefing import Proposal
from evotrainer.records.findings import Bottleneck, Finding, HealthReport, MetricValue, Quote
from evotrainer.records.frozen import Frozen
from evotrainer.records.interventions import Backtest, Intervention, Prediction
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout, Turn, groups_of, rollout_id
from evotrainer.records.verdicts import Effect, GateResult, Verdict

RUN = "quickstart"
STEPS = 30
TASKS = 24
COMPONENTS = {
    "visible": "passes every visible test",
    "hidden": "passes every hidden test",
    "fraction": "share of hidden tests passed",
    "format": "parses as a program",
}
START = Recipe(rewards={"visible": 1.0}, knobs={"visible_tests": 2}, steps=STEPS)


@dataclass
class Spec:
    """What one branch of the story does."""

    name: str
    parent: str | None
    round: int
    factor: str = ""
    new: Any = None
    hypothesis: str = ""
    prediction: Prediction = field(default_factory=lambda: Prediction(metric="hidden", direction="up", size=0.03))
    verdict: str = ""
    effect: tuple[float, float, float] | None = None
    hidden: float = 0.64
    visible: float = 0.79
    seeds: tuple[int, ...] = (0, 1, 2)
    reason: str = ""
    crash: str = ""


SPECS = (
    Spec("b0", None, 0, hidden=0.637, visible=0.786),
    Spec(
        "b1",
        "b0",
        1,
        "rewards",
        {"hidden": 1.0},
        "Paying visible tests leaves programs that crash on empty input unpunished; paying hidden tests makes the "
        "guard (default=0) worth learning, so the hidden-test score rises and the visible-minus-hidden gap closes.",
        Prediction(metric="proxy_gap", direction="down", size=0.05),
        "promote",
        (0.121, 0.084, 0.158),
        0.768,
        0.786,
        reason="lower bound +8.4 points is above the noise floor of 2.6 points; all gates passed",
    ),
    Spec(
        "b2",
        "b0",
        1,
        "entropy_bonus",
        0.01,
        "Entropy falls to 0.13 by step 30; keeping exploration alive should keep groups mixed.",
        Prediction(metric="frac_reward_zero_std", direction="down", size=0.05),
        "reject",
        (-0.012, -0.046, 0.021),
        0.628,
        0.771,
        reason="upper bound +2.1 points is below the noise floor of 2.6 points",
    ),
    Spec(
        "b3",
        "b0",
        1,
        "lr",
        0.0004,
        "Reward still rises at step 30; a larger step gets further in the same budget.",
        Prediction(metric="hidden", direction="up", size=0.03),
        "inconclusive",
        (0.017, -0.022, 0.056),
        0.655,
        0.801,
        reason="the interval holds both 0 and the noise floor; more seeds would cost 318 CPU-s, 94 are left",
    ),
    Spec(
        "b4",
        "b1",
        2,
        "length",
        {"kind": "token_penalty", "weight": 0.002, "soft": 0.75},
        "Programs carry dead code; a small price per token removes it.",
        Prediction(metric="completions/mean_length", direction="down", size=3.0),
        "invalid",
        (0.034, 0.004, 0.064),
        0.79,
        0.86,
        reason="counterfactual audit: with perturbed inputs the gain is gone; 31% of the passing "
        "programs print literals of the tests",
    ),
    Spec(
        "b5",
        "b1",
        2,
        "group_filter",
        {"kind": "zero_variance", "keep": 0.9, "decay": 0.1},
        "59% of the groups are all-solved late in training and dilute the batch; dropping them sharpens each update.",
        Prediction(metric="hidden", direction="up", size=0.02),
        "promote",
        (0.038, 0.012, 0.064),
        0.804,
        0.818,
        reason="lower bound +1.2 points is above 0 and the mean above the noise floor; all gates passed",
    ),
    Spec(
        "b6",
        "b1",
        2,
        "group_size",
        64,
        "Larger groups are less often all-solved.",
        verdict="failed",
        reason="2 of 3 trials ran out of memory",
        crash="MemoryError: cannot allocate the KV cache of 2,048 rows",
        hidden=0.7,
        visible=0.72,
    ),
    Spec(
        "b7",
        "b5",
        3,
        "temperature",
        1.2,
        "Warmer sampling revives all-solved groups.",
        Prediction(metric="frac_reward_zero_std", direction="down", size=0.05),
        "reject",
        (-0.021, -0.05, 0.008),
        0.788,
        0.805,
        reason="upper bound +0.8 points is below the noise floor of 2.6 points",
    ),
)
BASE = Spec("base", None, 0, hidden=0.522, visible=0.658, seeds=(0,))
PROGRAMS = {
    "good": "xs = list(map(int, input().split()))\nys = [x * x for x in xs if x % 3 == 0]\nprint(max(ys, default=0))",
    "unguarded": "xs = list(map(int, input().split()))\nys = [x * x for x in xs if x % 3 == 0]\nprint(max(ys))",
    "broken": "xs = list(map(int, input().split())\nprint(sum(xs))",
    "literal": "print(81)",
}


def recipes() -> dict[str, Recipe]:
    """Branch -> recipe, each one factor away from its parent."""
    out: dict[str, Recipe] = {}
    for s in SPECS:
        out[s.name] = out[s.parent].with_factor(s.factor, s.new) if s.parent else START
    return out


def intervention(s: Spec) -> Intervention:
    old = recipes()[s.parent or "b0"].factors().get(s.factor)
    return Intervention(
        factor=s.factor,
        old=old,
        new=s.new,
        hypothesis=s.hypothesis,
        prediction=s.prediction,
        success_criterion="lower bound of the paired gate effect above 0, mean above the noise floor",
        rollback=f"set {s.factor} back to {old!r}",
        bottleneck="proxy_gap" if s.round == 1 else "dead_groups",
        move="closer_reward" if s.factor == "rewards" else "catalogue",
    )


def rollouts_of(s: Spec, seed: int) -> list[Rollout]:
    """Search rollouts of one trial: four attempts at each task."""
    out = []
    for t in range(TASKS):
        for k in range(4):
            rng = random.Random(f"{s.name}/{seed}/{t}/{k}")
            u = rng.random()
            kind = "good" if u < s.hidden else "unguarded" if u < s.visible else "literal" if u < 0.9 else "broken"
            out.append(rollout(s.name, seed, t, k, kind))
    return out


def rollout(branch: str, seed: int, t: int, k: int, kind: str) -> Rollout:
    program = PROGRAMS[kind]
    task = f"keep-square-max-{t:03d}"
    hidden_ok, visible_ok = kind == "good", kind in ("good", "unguarded")
    got = {"good": ("81", "0"), "unguarded": ("81", ""), "literal": ("81", "81"), "broken": ("", "")}[kind]
    err = {"unguarded": "ValueError: max() arg is an empty sequence", "broken": "SyntaxError: '(' was never closed"}
    tests = [
        {"input": "3 9 4", "expected": "81", "got": got[0], "kind": "visible",
         "status": "ok" if got[0] == "81" else "error"},
        {"input": "6 1", "expected": "36", "kind": "visible", "got": "36" if visible_ok else got[0],
         "status": "ok" if visible_ok else "wrong"},
        {"input": "", "expected": "0", "got": got[1], "kind": "hidden",
         "status": "ok" if hidden_ok else "wrong" if kind == "literal" else "error", "error": err.get(kind, "")},
        {"input": "1 2 4 5 7 8 10 11", "expected": "0", "got": got[1], "kind": "hidden",
         "status": "ok" if hidden_ok else "wrong" if kind == "literal" else "error", "error": err.get(kind, "")},
    ]  # fmt: skip
    prompt = (
        "Read integers; keep multiples of 3; square each; print the largest or 0.\nExamples:\n3 9 4 -> 81\n6 1 -> 36\n"
    )
    return Rollout(
        id=rollout_id(RUN, branch, seed, STEPS, task, k), task=task,
        turns=(Turn("user", prompt), Turn("assistant", program, tokens=len(program) // 4)),
        reward=float(visible_ok if branch in ("b0", "b2", "b3") else hidden_ok),
        components={"visible": float(visible_ok), "hidden": float(hidden_ok),
                    "fraction": 0.5 * visible_ok + 0.5 * hidden_ok,
                    "format": float(kind != "broken")},
        outcome="correct" if hidden_ok else "incorrect", finish="stop", run=RUN, branch=branch,
        policy=f"{branch}/{seed}@{STEPS}", split="search", step=STEPS, seed=seed,
        group=f"{branch}/{seed}@{STEPS}/{task}", k=k, tokens=len(program) // 4, mean_logprob=-0.21, entropy=0.18,
        sandbox_tier="A", knobs={"visible_tests": 2}, env_hash="9f3c1b2a44d05e77", detail={"tests": tests},
    )  # fmt: skip


def quote(s: Spec, seed: int, text: str, note: str) -> tuple[Quote, ...]:
    kinds = {"print(max(ys))": "unguarded", "print(81)": "literal"}
    hits = [r for r in rollouts_of(s, seed) if r.completion == PROGRAMS[kinds[text]]]
    return tuple(Quote(rollout=r.id, text=text, note=note) for r in hits[:3])


def health(s: Spec) -> HealthReport:
    """The harness's reading of all search rollouts of a branch."""
    gap, dead = s.visible - s.hidden, 0.59 if s.factor != "group_filter" else 0.57
    m = MetricValue
    metrics = (
        m(name="hidden", layer="score", value=s.hidden, n=288, se=0.028),
        m(name="visible", layer="score", value=s.visible, n=288, se=0.024),
        m(name="proxy_gap", layer="score", value=round(gap, 4), n=288, healthy=(None, 0.05)),
        m(name="frac_reward_zero_std", layer="signal", value=dead, unit="share of groups", n=72, healthy=(None, 0.5)),
        m(name="reward_std", layer="signal", value=0.19, n=72, healthy=(0.05, None)),
        m(name="entropy", layer="signal", value=0.18, unit="nats", n=288, healthy=(0.05, None)),
        m(name="ratio_max", layer="signal", value=None, n=0, missing=("token logprobs of the trainer",)),
        m(name="reads_input", layer="behaviour", value=0.69 if s.name == "b4" else 0.98, unit="share of programs",
          n=288, healthy=(0.9, None)),
        m(name="completions/mean_length", layer="behaviour", value=23.4 if s.name == "b4" else 25.2, unit="tokens",
          n=288),
        m(name="turns", layer="behaviour", value=1.0, unit="turns", n=288),
        m(name="tool_failure_rate", layer="behaviour", value=None, missing=("tool calls",)),
    )  # fmt: skip
    findings = []
    if gap > 0.05 and not s.crash:
        findings.append(Finding(
            detector="paid_but_wrong", kind="proxy_gap", severity="critical",
            claim=f"{100 * gap:.0f} of 100 programs pass every visible test and fail a hidden one; nearly all of them "
            "reduce a list that can be empty", numbers={"gap": round(gap, 3), "unguarded_share": 0.457},
            thresholds={"gap": 0.05}, quotes=quote(s, 0, "print(max(ys))", "no default: crashes on empty input"),
        ))  # fmt: skip
    if s.name == "b4":
        findings.append(Finding(
            detector="special_casing", kind="special_casing", severity="critical", validity=True,
            claim="31% of the passing programs print a literal of a visible test instead of computing it",
            numbers={"share": 0.31}, thresholds={"share": 0.1},
            quotes=quote(s, 0, "print(81)", "81 is the expected output of the first visible test"),
        ))  # fmt: skip
    findings.append(Finding(
        detector="dead_groups", kind="dead_groups", severity="warn",
        claim="59% of the groups give no gradient: 51% all solved, 8% all failed",
        numbers={"dead": dead, "all_pass": 0.51, "all_fail": 0.08}, thresholds={"dead": 0.3},
    ))  # fmt: skip
    findings.append(Finding(
        detector="tool_misuse", kind="tool_misuse", severity="info", claim="cannot look: rollouts carry no tool calls",
        missing=("tool calls",),
    ))  # fmt: skip
    return HealthReport(
        harness="h0", subject=f"{s.name}@{STEPS} search", rollouts=288, groups=72, metrics=metrics,
        findings=tuple(findings),
        bottlenecks=(
            Bottleneck(name="proxy_gap", score=0.86, explanation="visible minus hidden is 15 points, three times the "
                       "healthy bound, and rising while hidden stays flat", findings=("paid_but_wrong",)),
            Bottleneck(name="dead_groups", score=0.41, explanation="59% of the groups give no gradient, mostly because "
                       "every attempt already passes", findings=("dead_groups",)),
        ) if gap > 0.05 else (
            Bottleneck(name="dead_groups", score=0.47, explanation="59% of the groups give no gradient, mostly because "
                       "every attempt already passes", findings=("dead_groups",)),
        ),
    )  # fmt: skip


def curve(s: Spec, seed: int, steps: int = STEPS) -> tuple[dict[str, float], ...]:
    rng = random.Random(f"curve/{s.name}/{seed}")
    out = []
    for i in range(1, steps + 1):
        f = 1 - 2.718 ** (-i / 9)
        vis = 0.66 + (s.visible - 0.66) * f + rng.gauss(0, 0.018)
        hid = 0.52 + (s.hidden - 0.52) * f + rng.gauss(0, 0.02)
        dead = 0.28 + 0.31 * f + rng.gauss(0, 0.03)
        out.append({
            "step": i, "reward": round(vis if s.name in ("b0", "b2", "b3") else hid, 4),
            "rewards/visible/mean": round(vis, 4), "rewards/hidden/mean": round(hid, 4),
            "frac_reward_zero_std": round(dead, 4), "dead_pass": round(dead * 0.86, 4),
            "dead_fail": round(dead * 0.14, 4), "entropy": round(0.34 - 0.17 * f + rng.gauss(0, 0.008), 4),
            "completions/mean_length": round(25 + 1.2 * f + rng.gauss(0, 0.4), 2),
            "completions/clipped_ratio": round(max(0.0, rng.gauss(0.01, 0.005)), 4),
            "grad_norm": round(0.42 + rng.gauss(0, 0.05), 4), "kl": round(0.004 * i + rng.gauss(0, 0.002), 5),
            "cpu_s": round(2.6 * i, 2),
        })  # fmt: skip
        if i % 10 == 0:
            out[-1]["score"] = round(hid, 4)
    return tuple(out)


def finished(s: Spec, seed: int) -> ev.TrialFinished:
    if s.crash and seed < 2:
        return ev.TrialFinished(
            trial=f"{s.name}-s{seed}", branch=s.name, seed=seed, status="failed", label="crash", error=s.crash,
            cpu_s=14.2, wall_s=15.0, steps=0, peak_rss_mb=6900,
        )  # fmt: skip
    shift = 0.01 * (seed - 1)
    scores = tuple(
        ev.SplitScore(
            split=split, step=step, score=round(base + shift, 4), attempts=4,
            per_task={f"t{i}": 0.5 for i in range(TASKS)},
            components={"visible": round(vis + shift, 4), "hidden": round(base + shift, 4), "format": 0.97},
            errors=1 if (s.name, seed) == ("b5", 2) else 0,
        )
        for split, step, base, vis in (
            ("search", 0, 0.522, 0.658), ("search", STEPS, s.hidden, s.visible),
            ("gate", STEPS, s.hidden - 0.01, s.visible),
        )
    )  # fmt: skip
    return ev.TrialFinished(
        trial=f"{s.name}-s{seed}", branch=s.name, seed=seed, status="complete", cpu_s=79.4 + seed * 1.7, wall_s=84.0,
        steps=STEPS, resumed=1 if (s.name, seed) == ("b1", 2) else 0, peak_rss_mb=1640.0,
        policy_sha256=weights_hash(s.name, seed), policy_path=f"trials/{s.name}-s{seed}/policy", scores=scores,
        curve=curve(s, seed),
    )  # fmt: skip


def weights_hash(branch: str, seed: int) -> str:
    """64 hex digits that stand for a policy's weights."""
    return hashlib.sha256(f"{branch}/{seed}".encode()).hexdigest()


def verdict(s: Spec, look: int) -> Verdict:
    effect = None
    if s.effect:
        mean, low, high = s.effect
        effect = Effect(mean=mean, low=low, high=high, confidence=0.95, se=(high - low) / 3.92, df=11.4, seeds=3,
                        tasks=TASKS, noise_floor=0.026)  # fmt: skip
    gates = (
        GateResult(gate="seeds", passed=not s.crash, message="1 of 3 trials finished" if s.crash else "3 of 3 trials"),
        GateResult(gate="validity", passed=s.verdict != "invalid", message="audit confirms special-casing"
                   if s.verdict == "invalid" else "no open leak, tamper or bypass finding",
                   numbers={"audited_effect": -0.004} if s.verdict == "invalid" else {}),
        GateResult(gate="effect", passed=None if s.crash else s.verdict == "promote", message="lower bound against 0 "
                   "and the noise floor", numbers={"low": s.effect[1], "floor": 0.026} if s.effect else {}),
    )  # fmt: skip
    return Verdict(branch=s.name, control=s.parent or "", kind=s.verdict, reason=s.reason, effect=effect, gates=gates,
                   alpha=0.0125, look=look)  # type: ignore[arg-type] # fmt: skip


def story() -> list[tuple[str, str, Frozen]]:
    """(kind, id, body) of every event of the finished run, in order."""
    by_name, made, out = {s.name: s for s in SPECS}, recipes(), []

    def add(kind: str, id: str, body: Frozen) -> None:
        out.append((kind, id, body))

    def branch(s: Spec) -> None:
        add("branch", f"{s.name}/opened", ev.BranchOpened(
            branch=s.name, parent=s.parent, round=s.round, recipe=made[s.name], recipe_hash=made[s.name].hash,
            intervention=intervention(s) if s.parent else None))  # fmt: skip

    def trials(s: Spec) -> None:
        for seed in s.seeds:
            t = f"{s.name}-s{seed}"
            add("intended", f"{t}/intended", ev.TrialIntended(
                trial=t, branch=s.name, seed=seed, purpose="branch" if s.parent else "noise",
                reserve_cpu_s=110))  # fmt: skip
        for seed in s.seeds:
            add("finished", f"{s.name}-s{seed}/finished", finished(s, seed))

    add("run", "run", ev.RunOpened(
        run=RUN, task="code", task_hash="51d2c0ffee98a7b4", version="0.1.0", seed=7, agent="statistical",
        autonomy="full", budget={"cpu_s": 3000, "wall_s": 1500, "trials": 30},
        machine={"cpu": "2 x 2.4 GHz", "memory": "16 GB"}, sandbox_tier="A",
        environment={"name": "code", "version": "1", "hash": "9f3c1b2a44d05e77", "proxy": ["visible", "hidden"],
                     "components": COMPONENTS, "splits": {"train": 4000, "search": 24, "gate": 300, "cert": 300}},
        base_policy={"path": "assets/code-base", "sha256": "ab" * 32}, task_sha256="",
        draw=ev.TaskDraw(mode="fixed", commitment="")))  # fmt: skip
    branch(by_name["b0"])
    add("intended", "base/intended", ev.TrialIntended(
        trial="base", branch="base", seed=0, purpose="base", reserve_cpu_s=20))  # fmt: skip
    add("finished", "base/finished", ev.TrialFinished(
        trial="base", branch="base", seed=0, status="complete", cpu_s=11.8, wall_s=12.5, steps=0, scores=(
            ev.SplitScore(split="search", step=0, score=0.522, attempts=4, per_task={},
                          components={"visible": 0.658, "hidden": 0.522, "format": 0.96}),)))  # fmt: skip
    add("diagnosed", "base/read", ev.Diagnosed(
        round=0, health=health(BASE)))  # fmt: skip
    trials(by_name["b0"])
    add("noise", "noise/1", ev.NoiseMeasured(branch="b0", seeds=(0, 1, 2), score_mean=0.637, seed_sd=0.011,
                                             task_sd=0.18, noise_floor=0.026, numbers={"aa_trials": 3}))  # fmt: skip
    add("promoted", "v0", ev.Promoted(version="v0", branch="b0", previous=None))
    champion, look, version = "b0", 0, 0
    for n in (1, 2, 3):
        specs = [s for s in SPECS if s.round == n]
        add("round", f"r{n}/opened", ev.RoundOpened(round=n, champion=champion, harness="h0"))
        add("diagnosed", f"r{n}/diagnosed", ev.Diagnosed(
            round=n, health=health(by_name[champion])))  # fmt: skip
        extra = [veto(made)] if n == 1 else [refusal(made)] if n == 2 else []
        add("proposed", f"r{n}/proposed", ev.Proposed(round=n, proposal=Proposal(
            agent="statistical", interventions=tuple([intervention(s) for s in specs] + extra),
            reasoning="Ranked by expected gain per CPU-second (Thompson draw): the proxy gap is the largest bottleneck "
            "and a reward nearer to the true outcome is its first remedy." if n == 1 else
            "The gap is closed. Dead groups are what is left; a filter costs nothing, "
            "larger groups cost compute.")))  # fmt: skip
        for i, s in enumerate(specs):
            add("backtested", f"r{n}/backtested/{i}", ev.Backtested(
                round=n, index=i, intervention=intervention(s), vetoed=False, backtest=Backtest(
                    factor=s.factor, verdict="supports" if s.factor in ("rewards", "group_filter") else "silent",
                    reason={"rewards": "37 of 96 groups change their ranking; 9 of 20 dead groups revive",
                            "group_filter": "57% of the stored groups have no spread and would be dropped"}.get(
                        s.factor, "stored rollouts cannot show this factor"),
                    numbers={"revived": 0.45} if s.factor == "rewards" else {},
                    rollouts=288)))  # fmt: skip
        if n == 1:
            add("backtested", "r1/backtested/3", ev.Backtested(round=1, index=3, intervention=extra[0], vetoed=True,
                backtest=Backtest(factor="length", verdict="contradicts", reason="97% of the rollouts would earn the "
                "bonus: it is a constant and gives no signal", numbers={"coverage": 0.97}, rollouts=288)))  # fmt: skip
            add("gate", "r1/gate/intervention", ev.HumanApproval(round=1, where="intervention", answer="APPROVE",
                feedback="Go ahead, but watch the format component."))  # fmt: skip
        if n == 2:
            add("refused", "r2/refused/3", ev.Refused(round=2, index=3, intervention=extra[0],
                reason="repeats b2 (entropy_bonus 0 -> 0.01), rejected in round 1"))  # fmt: skip
        for s in specs:
            branch(s)
        add("planned", f"r{n}/planned", ev.Planned(round=n, branches=tuple(s.name for s in specs),
                                                   stop="no move is left" if n == 3 else ""))  # fmt: skip
        for s in specs:
            trials(s)
        for s in specs:
            if not s.crash:
                add("diagnosed", f"{s.name}/read", ev.Diagnosed(round=n, health=health(s)))
        for s in specs:
            look += 1
            add("judged", f"{s.name}/judged", ev.Judged(round=n, verdict=verdict(s, look)))
            if s.verdict == "promote":
                version += 1
                add(
                    "promoted",
                    f"v{version}",
                    ev.Promoted(version=f"v{version}", branch=s.name, previous=f"v{version - 1}"),
                )
                champion = s.name
        if n == 3:
            add("escalated", "r3/escalated", ev.Escalated(round=3, failures=2, actions=(
                "re-validated the evaluation: 3 A/A trials within the noise floor",
                "switched family: signal -> data")))  # fmt: skip
    for t, b, seed, purpose in (
        ("base-cert", "base", 0, "certify"),
        ("b0-s0-cert", "b0", 0, "certify"),
        ("b5-s10", "b5", 10, "confirm"),
    ):
        add("intended", f"{t}/intended", ev.TrialIntended(
            trial=t, branch=b, seed=seed, purpose=purpose, reserve_cpu_s=30,  # type: ignore[arg-type]
            train=purpose == "confirm"))  # fmt: skip
        add("finished", f"{t}/finished", ev.TrialFinished(
            trial=t, branch=b, seed=seed, status="complete", cpu_s=21.5, wall_s=22.0, steps=0, scores=(
                ev.SplitScore(split="cert", step=STEPS, score=0.6, attempts=4,
                              per_task={"secret-cert-task": 1.0}),)))  # fmt: skip
    row = ev.CertRow
    add("certified", "certified", ev.Certified(champion="b5", rows=(
        row(name="base", branch="base", seeds=(0, 1, 2), score=0.518, low=0.487, high=0.549,
            per_seed=(0.511, 0.523, 0.52), components={"visible": 0.655, "hidden": 0.518}, proxy_gap=0.137),
        row(name="start", branch="b0", seeds=(10, 11, 12), score=0.641, low=0.61, high=0.672,
            per_seed=(0.63, 0.652, 0.641), components={"visible": 0.79, "hidden": 0.641}, proxy_gap=0.149),
        row(name="champion", branch="b5", seeds=(10, 11, 12), score=0.797, low=0.771, high=0.823,
            per_seed=(0.789, 0.806, 0.796), components={"visible": 0.813, "hidden": 0.797}, proxy_gap=0.016)),
        comparisons={"champion-base": {"mean": 0.279, "low": 0.243, "high": 0.315, "p": 0.0002},
                     "champion-start": {"mean": 0.156, "low": 0.121, "high": 0.191, "p": 0.0006}}))  # fmt: skip
    add("closed", "closed", ev.RunClosed(reason="saturated: no remaining move is expected to pay for its trials",
                                         champion="b5", cpu_s=2163.0, wall_s=1187.0, peak_rss_mb=3410.0))  # fmt: skip
    return out


def unchanged(x: Any) -> Any:
    return x


def build_run(
    folder: Path,
    until: str | None = None,
    body: Callable[[Frozen], Frozen] = unchanged,
    rollout: Callable[[Rollout], Rollout] = unchanged,
) -> Path:
    """Write the run. `until`: id of the last event (a killed run); `body`, `rollout`: what to write in their place."""
    from evotrainer.records.ledger import Ledger
    from evotrainer.records.store import RolloutStore

    specs = {s.name: s for s in (BASE, *SPECS)}
    with Ledger.open(folder / "ledger.db", create=True) as ledger:
        for kind, id, original in story():
            ledger.append(kind, id, body(original))
            if (isinstance(original, ev.TrialFinished) and original.curve) or id == "base/finished":
                rollouts = [rollout(r) for r in rollouts_of(specs[original.branch], original.seed)]  # type: ignore[attr-defined]
                with RolloutStore(folder / "rollouts" / original.trial) as store:  # type: ignore[attr-defined]
                    store.append(groups_of(rollouts))
                    store.seal()
            if id == until:
                return folder
    assert until is None, f"no event {until}"
    return folder


def veto(made: dict[str, Recipe]) -> Intervention:
    return Intervention(factor="length", old=made["b0"].factors()["length"],
                        new={"kind": "correct_bonus", "weight": 0.1, "soft": 0.75},
                        hypothesis="Shorter correct programs are more robust.",
                        prediction=Prediction(metric="hidden", direction="up", size=0.02),
                        success_criterion="lower bound above 0", rollback="length none")  # fmt: skip


def refusal(made: dict[str, Recipe]) -> Intervention:
    return replace_intervention(intervention(SPECS[2]), "Try exploration again on the new reward.")


def replace_intervention(i: Intervention, hypothesis: str) -> Intervention:
    return i.model_copy(update={"hypothesis": hypothesis})


def with_text(r: Rollout, prompt: str | None = None, program: str | None = None) -> Rollout:
    """The rollout with another prompt or program."""
    a, b = r.turns
    return replace(r, turns=(replace(a, text=prompt or a.text), replace(b, text=program or b.text)))
