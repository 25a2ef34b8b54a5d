"""What a search proposes to the judge: which of the changes that its model believes in, and how many at once."""

from __future__ import annotations

from collections.abc import Sequence

from evotrainer.agents.bundles import Arm, Bundle, Search, recipe_of
from evotrainer.agents.moves import in_words
from evotrainer.records.text import counted


def best_bundle(s: Search, incumbent: Bundle, sure: float) -> list[Arm]:
    """By posterior mean, of changes that were tried, each of which adds something with probability `sure`, as many
    of them as the rest of the budget can prove; where that recipe has been judged, the best one change away from it
    that has not."""
    best = _provable(s, _sure(s, s.climb(s.model.mean, incumbent, tried=True), sure), sure)
    if not best or not judged_as(s, best):
        return best
    near = [b for b in s.next_to(tuple(best)) if all(map(s.tried, b)) and s.usable(b) and not judged_as(s, b)]
    worth = [(s.gain(b)[0], b) for b in near if len(_sure(s, b, sure)) == len(b)]
    gain, bundle = max(worth, key=lambda x: x[0], default=(0.0, ()))
    return list(bundle) if gain > 0 else []


def _provable(s: Search, best: list[Arm], sure: float) -> list[Arm]:
    """Of a bundle and what is left of it as its least certain changes go one by one: that of the largest gain times
    the probability that the rest of the budget proves such a gain. Knock-outs take the seeds of the proof."""
    from scipy.special import ndtr

    offers = list(s.briefing.provable)
    nested = [best] if best else []
    while len(nested) and len(nested[-1]) > 1:
        nested.append(_sure(s, nested[-1], sure, at_most=len(nested[-1]) - 1))
    proved = []
    for b in nested:
        if b and len(b) <= len(offers):
            gain, asked = s.gain(b)[0], offers[len(b) - 1]
            proved.append((gain * float(ndtr((gain - asked.gain) / max(asked.se, 1e-9))), b))
    return max(proved, key=lambda x: x[0])[1] if proved else best


def judged_already(s: Search, incumbent: Bundle, sure: float) -> str:
    """That what was found has been judged, for the end of a sentence; empty where nothing was found."""
    found = _provable(s, _sure(s, s.climb(s.model.mean, incumbent, tried=True), sure), sure)
    return f" but what was judged as {name}" if found and (name := judged_as(s, found)) else ""


def _sure(s: Search, bundle: Sequence[Arm], sure: float, at_most: int | None = None) -> list[Arm]:
    """What is left of a bundle when the least certain change goes until each adds with probability `sure`, and
    until there are no more than `at_most`."""
    from scipy.special import ndtr

    best, most = list(bundle), len(bundle) if at_most is None else at_most
    while best:
        rest = {a.candidate.name: [b for b in best if b is not a] for a in best}
        adds = {k: s.model.gain(s.of(best), s.of(r)) for k, r in rest.items()}
        chance = {k: float(ndtr(mean / max(sd, 1e-9))) for k, (mean, sd) in adds.items()}
        least = min(chance, key=lambda k: (chance[k], k))
        if len(best) <= most and chance[least] >= sure and s.usable(best):
            break
        best = rest[least]
    return best


def reasoning(s: Search, best: Sequence[Arm]) -> str:
    """Diagnosis, the model's effects, and what is proposed, in lines."""
    worst = sorted(s.situation.symptoms.items(), key=lambda kv: (-kv[1], kv[0]))[:4]
    lines = ["Diagnosis: " + (", ".join(f"{k} (severity {v:.2f})" for k, v in worst) or "nothing stands out") + "."]
    trainings = counted(s.model.trainings, "training")
    lines.append(f"{trainings}, {100 * s.model.noise_sd:.1f} points of noise each; effects on search:")
    for e in s.model.effects()[:8]:
        what = f"{e.factor} = {in_words(e.value)}"
        lines.append(
            f"- {what}: {100 * e.mean:+.1f} +/- {100 * e.sd:.1f} points, in {counted(e.trainings, 'training')}"
        )
    if best:
        mean, sd = s.gain(best)
        names = ", ".join(a.candidate.name for a in best)
        lines.append(f"Proposed: {names}; expected {100 * mean:+.1f} +/- {100 * sd:.1f} points over the champion.")
    return "\n".join(lines)


def judged_as(s: Search, bundle: Sequence[Arm]) -> str:
    """The branch that was judged with the recipe of these changes; empty: none."""
    mine = recipe_of(s.briefing.champion.recipe, tuple(bundle)).hash
    return next((b.branch for b in s.briefing.branches if b.recipe.hash == mine and b.verdict is not None), "")
