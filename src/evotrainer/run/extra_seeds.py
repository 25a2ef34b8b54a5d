"""More seeds for undecided branches: which, for whom, whether the budget holds them; then they are looked at again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice
from typing import TYPE_CHECKING

from evotrainer.errors import BudgetError
from evotrainer.judge import seeds_wanted
from evotrainer.records.events import ToppedUp

if TYPE_CHECKING:
    from evotrainer.run.context import Branch
    from evotrainer.run.loop import Loop


class TopUps:
    """The top-ups of one run. What is given or refused is one event, `<branch>/topup/<look>`."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def grant(self, n: int, names: Sequence[str], before: str) -> list[str]:
        """Train what the round's last verdicts ask for; the branches to be looked at again, none where nothing is asked
        for or can be given. `before`: the champion when the round was judged first.
        """
        loop = self.loop
        given: list[ToppedUp] = []
        for name in names:
            b = loop.branches[name]
            wanted = seeds_wanted(b.verdict) if b.verdict else None
            if wanted is not None and (body := self.decide(n, b, wanted, before, given)) is not None:
                if body.refused:
                    loop.view.note(f"{name} stays undecided: {body.refused}")
                else:
                    given.append(body)
        self.train(given)
        return [g.branch for g in given]

    def decide(self, n: int, b: Branch, wanted: int, before: str, given: Sequence[ToppedUp]) -> ToppedUp | None:
        """The recorded answer to a verdict that asks for seeds, made first where there is none.

        None where the run went on without one: a ledger of a version that gave no seeds.
        """
        loop = self.loop
        key = f"{b.name}/topup/{b.looks + 1}"
        gone_on = any(loop.ledger.get(k) is not None for k in (f"r{n + 1}/opened", "certified", "closed"))
        if loop.ledger.get(key) is None and gone_on:
            return None
        control = loop.branches[b.parent or "b0"]

        def topped_up() -> ToppedUp:
            own = self.fresh(b, wanted - len(b.complete))
            pending = [s for g in given for s in g.control_seeds]
            others = self.fresh(control, wanted - len(control.complete) - len(pending), pending)
            refused = self.refusal(b, own, others, before, given)
            seeds = ((), ()) if refused else (own, others)
            return ToppedUp(
                round=n,
                branch=b.name,
                control=control.name,
                wanted=wanted,
                seeds=seeds[0],
                control_seeds=seeds[1],
                refused=refused,
            )

        body: ToppedUp = loop.record(key, "topup", topped_up)
        return body

    def fresh(self, b: Branch, n: int, pending: Sequence[int] = ()) -> tuple[int, ...]:
        """The next `n` small seeds that the branch has not trained and that certification does not keep for itself."""
        run = self.loop.task.run
        used = {*run.seeds, *run.certify_seeds, *(t.seed for t in b.trials), *pending}
        return tuple(islice((s for s in count(1) if s not in used), max(0, n)))

    def refusal(
        self, b: Branch, own: Sequence[int], others: Sequence[int], before: str, given: Sequence[ToppedUp]
    ) -> str:
        """Why the seeds are not given; empty where they are."""
        loop = self.loop
        most = loop.task.judge.max_seeds
        if loop.champion != before:
            return f"the champion of the round is {loop.champion} already"
        if len(b.trials) + len(own) > most:
            return f"trainings failed, and with others in their place it would have more than judge.max_seeds={most}"
        trainings = sum(len(g.seeds) + len(g.control_seeds) for g in given) + len(own) + len(others)
        need = trainings + loop.certification_trials()
        try:
            loop.budget().check(cpu_s=need * loop.trial_reserve(), trials=trainings + len(loop.task.run.certify_seeds))
        except BudgetError as e:
            return f"over budget: {e}"
        return ""

    def train(self, given: Sequence[ToppedUp]) -> None:
        """All seeds that were given, side by side; they join their branches' trials."""
        loop = self.loop
        asked = [
            (loop.branches[x], s)
            for g in given
            for x, ss in ((g.branch, g.seeds), (g.control, g.control_seeds))
            for s in ss
        ]
        if not asked:
            return
        seeds = ", ".join(f"{b.name}: {s}" for b, s in asked)
        loop.view.step(f"9 verify: more seeds ({seeds})")
        for (b, _), trial in zip(asked, loop.run_trials([loop.spec(b, s, "branch") for b, s in asked]), strict=True):
            b.trials.append(trial)
        loop.widen_noise(list(dict.fromkeys(g.control for g in given if g.control_seeds)))
