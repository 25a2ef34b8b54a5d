"""What to do with a champion: what its certificate holds against it comes before its use."""

from __future__ import annotations

from evotrainer.views.model import RunView
from evotrainer.views.text import point_range, points


def promoted(view: RunView) -> bool:
    b = view.branches.get(view.champion)
    return b is not None and b.intervention is not None


def _one_more_round(view: RunView) -> str:
    return f"`evotrainer resume {{run}} run.rounds={max(view.rounds, default=0) + 1}` plays one more round"


def worse_when_greedy(view: RunView) -> str:
    """The champion loses to the base policy by greedy decoding; empty where the certificate does not show that."""
    cert = view.certified
    g = cert.greedy.get("champion-base") if cert and cert.champion == view.champion and promoted(view) else None
    if not g or g["high"] >= 0:
        return ""
    return (
        f"decoded greedily {view.champion} is worse than the base policy ({points(g['mean'])} points "
        f"{point_range(g['low'], g['high'])}), so keep the base policy where answers are decoded so: "
        f"`evotrainer why {{run}} {view.champion}` shows what its gain is made of; start a run with "
        "recipe.deploy_temperature at the temperature that you will use, near 0 for greedy, to search for what helps "
        f"there, or {_one_more_round(view)}"
    )


def not_shown_better(view: RunView) -> str:
    """The certificate does not show the champion above the starting recipe, or above the base policy; empty where it
    does, or did not compare."""
    cert = view.certified
    gain = cert.gain if cert and cert.champion == view.champion and promoted(view) else None
    like = cert.like_base(view.champion) if cert and gain else None
    if not cert or not gain or (cert.gain_shown and not like):
        return ""
    beside = "the starting recipe"
    if cert.gain_shown and like:
        gain, beside = like, "the base policy"
    told = "worse than" if gain.get("high", 0.0) < 0 else "not shown to be better than"
    return (
        f"on unseen tasks {view.champion} is {told} {beside} ({points(gain['mean'])} points "
        f"{point_range(gain['low'], gain['high'])}): {_one_more_round(view)}; a new run with more "
        "evaluation.gate_tasks, evaluation.cert_tasks and run.certify_seeds can tell a smaller gain from chance"
    )


def use(view: RunView) -> str:
    """How to have the champion; empty where nothing was promoted."""
    if not promoted(view):
        return ""
    return f"`evotrainer export {{run}} my-model` writes {view.champion} as a Hugging Face folder; " + _one_more_round(
        view
    )
