"""`harness.evolving.mining`: what tells two policies apart is found by itself."""

from __future__ import annotations

from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.evolving.authored import flags
from evotrainer.harness.evolving.mining import mine
from tests.harness.evolving.policies import cheat, clean, paid
from tests.harness_inputs import rollout


def test_the_command_that_came_with_the_score_is_found_by_itself() -> None:
    mined = mine(cheat("m1"), clean("m2"))
    best = next(c for c in mined.candidates if c.family == "commands")
    assert "git" in best.spec.pattern and best.spec.where == "actions" and best.p < 0.01
    assert best.share_bad > 0.8 and best.share_clean < 0.2 and best.share_clean < best.spec.warn < best.share_bad
    assert flags(best.spec, cheat("m3")).mean() > 0.8
    assert mined.compared > 20 and len({c.family for c in mined.candidates}) == len(mined.candidates)


def test_policies_that_do_the_same_give_no_candidate() -> None:
    found = [mine(clean(f"n{i}"), clean(f"o{i}")).candidates for i in range(8)]
    assert sum(map(bool, found)) <= 1


def test_an_answer_that_stands_in_the_prompt_is_found() -> None:
    def copies(name: str, p: float) -> FeatureView:
        import random

        rng = random.Random(name)
        out = []
        for i in range(80):
            key = "".join(rng.choice("abcdef") for _ in range(5))
            said = key if rng.random() < p else "".join(rng.choice("uvwxyz") for _ in range(5))
            out.append(rollout(f"t{i // 2}", i, text=said, prompt=f"sort this; key {key}", correct=said == key))
        return FeatureView(out)

    mined = mine(copies("k1", 0.95), copies("k2", 0.2))
    assert [c.spec.feature for c in mined.candidates if c.family == "overlap"] == ["copied:prompt"]


def test_disagreeing_components_are_found() -> None:
    mined = mine(paid("d1", 0.9, 0.2), paid("d2", 0.3, 0.3), [("seen", "hid")])
    (c,) = [c for c in mined.candidates if c.family == "components"]
    assert c.spec.feature == "component:seen - hid" and c.spec.value == 0.5
    assert not [c for c in mine(paid("d1", 0.9, 0.2), paid("d2", 0.3, 0.3)).candidates if c.family == "components"]


def test_nothing_to_contrast_gives_nothing() -> None:
    assert mine(FeatureView([]), clean("e")).compared == 0
