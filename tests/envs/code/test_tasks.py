"""`envs.code.tasks`: splits are disjoint by construction, the same everywhere, and hold no degenerate task."""

from __future__ import annotations

import random
from hashlib import sha256
from itertools import pairwise

import pytest
from pydantic import ValidationError

from evotrainer.envs.base import SPLITS, Task
from evotrainer.envs.code.demos import demonstrations
from evotrainer.envs.code.ops import OPS
from evotrainer.envs.code.source import CodeConfig, GrammarSource
from evotrainer.envs.code.tasks import EDGES, content_hash, make_split, pair_split

EVALUATION = ("search", "gate", "cert")
CONTENT = "64a000494fa61761"
"""Content of the default task set. If this changes, the tasks changed: raise GRAMMAR_VERSION, then update it."""
SHOWN = "efb5a10dc43539a7"
"""Of 300 demonstrations with the default shares: what shipped base policies learnt from."""


@pytest.fixture(scope="module")
def splits() -> dict[str, tuple[Task, ...]]:
    source = GrammarSource()
    return {s: tuple(source.tasks(s)) for s in SPLITS}


def pairs(task: Task) -> set[tuple[str, str]]:
    return set(pairwise(task.data["ops"]))


def operations(spec: str) -> list[str]:
    """The operations a specification names, read back from its words alone."""
    out = []
    for part in spec.rstrip(".").split("; ")[1:-1]:
        names = [o.name for o in OPS.values() for p in o.phrases for k in range(10) if p.replace("{k}", str(k)) == part]
        assert len(set(names)) == 1, part
        out.append(names[0])
    return out


def test_splits_have_their_default_sizes(splits: dict[str, tuple[Task, ...]]) -> None:
    assert {s: len(t) for s, t in splits.items()} == {"train": 3000, "search": 200, "gate": 300, "cert": 400}


def test_no_composition_is_shared_between_an_evaluation_split_and_any_other(
    splits: dict[str, tuple[Task, ...]],
) -> None:
    held = {s: set().union(*(pairs(t) for t in splits[s])) for s in SPLITS}
    owned = {s: {p for p in held[s] if pair_split(*p) == s} for s in SPLITS}
    for s in EVALUATION:
        for other in SPLITS:
            if other != s:
                assert not owned[s] & held[other], f"pairs of {s} occur in {other}"
        assert held[s] - owned[s] <= {p for p in held[s] if pair_split(*p) == "train"}
    assert owned["train"] == held["train"]


def test_every_evaluation_task_needs_a_composition_of_its_own_split(splits: dict[str, tuple[Task, ...]]) -> None:
    for s in EVALUATION:
        assert all(any(pair_split(*p) == s for p in pairs(t)) for t in splits[s])


def test_the_operations_on_record_are_those_the_text_asks_for(splits: dict[str, tuple[Task, ...]]) -> None:
    for s in SPLITS:
        for t in splits[s][::17]:
            assert operations(t.data["spec"]) == t.data["ops"]


def test_specifications_and_prompts_are_never_in_two_splits(splits: dict[str, tuple[Task, ...]]) -> None:
    for key in ("spec", "prompt", "id"):
        texts = [(t.data["spec"] if key == "spec" else getattr(t, key)) for s in SPLITS for t in splits[s]]
        assert len(texts) == len(set(texts)), key


def test_each_evaluation_split_holds_out_enough_to_choose_from() -> None:
    every = [(a, b) for a in OPS for b in OPS if a != b]
    for s in EVALUATION:
        share = sum(pair_split(*p) == s for p in every) / len(every)
        assert 0.06 < share < 0.14


def test_the_task_set_is_the_same_on_every_machine(splits: dict[str, tuple[Task, ...]]) -> None:
    assert content_hash(splits) == CONTENT


def test_another_seed_or_size_is_another_task_set() -> None:
    base = GrammarSource()
    assert GrammarSource(CodeConfig(seed=1)).hash != base.hash
    assert GrammarSource(CodeConfig(cert=401)).hash != base.hash
    assert GrammarSource(CodeConfig()).hash == base.hash
    assert [t.prompt for t in make_split("search", 5, 1, 0.0)] != [t.prompt for t in make_split("search", 5, 0, 0.0)]


def test_a_smaller_split_is_a_prefix_of_a_larger_one(splits: dict[str, tuple[Task, ...]]) -> None:
    assert make_split("gate", 20, 0, 0.0) == splits["gate"][:20]


def test_tests_include_the_edge_cases_and_no_constant_answer_passes(splits: dict[str, tuple[Task, ...]]) -> None:
    for t in (t for s in SPLITS for t in splits[s]):
        d = t.data
        assert (len(d["visible"]), len(d["heldout"]), len(d["fresh"])) == (2, 2, 2)
        assert len(d["hidden"]) >= 6
        assert d["hidden"][0][0] == "\n"
        assert len(d["hidden"][1][0].split()) == 1
        assert all(x.startswith("-") for x in d["hidden"][2][0].split())
        assert len(set(d["hidden"][3][0].split())) < len(d["hidden"][3][0].split())
        assert d["visible"][0][1] != d["visible"][1][1]
        assert not {"", "0"} & {y for _, y in d["visible"]}
        assert len({y for _, y in d["hidden"]}) >= 3


def test_visible_examples_stand_in_the_prompt_and_hidden_ones_do_not(splits: dict[str, tuple[Task, ...]]) -> None:
    for t in splits["gate"][:50]:
        shown = [f"{x.rstrip()} -> {y}" for x, y in t.data["visible"]]
        assert t.prompt.split("\n")[1:3] == shown
        others = {f"{x.rstrip()} -> {y}" for k in ("hidden", "heldout", "fresh") for x, y in t.data[k]}
        assert not others & set(t.prompt.split("\n"))


def test_chains_have_one_to_five_operations(splits: dict[str, tuple[Task, ...]]) -> None:
    assert {t.tags["ops"] for t in splits["train"]} == set("12345")
    for s in EVALUATION:
        lengths = [int(t.tags["ops"]) for t in splits[s]]
        assert set(lengths) == {2, 3, 4, 5}
        assert sum(n >= 4 for n in lengths) / len(lengths) > 0.2


def test_edge_cases_are_what_their_names_say() -> None:
    rng = random.Random(1)
    for _ in range(50):
        assert EDGES["empty"](rng) == []
        assert len(EDGES["single"](rng)) == 1
        assert max(EDGES["negatives"](rng)) < 0
        assert len(set(xs := EDGES["duplicates"](rng))) < len(xs)


def test_demonstrations_show_compositions_of_train_only(splits: dict[str, tuple[Task, ...]]) -> None:
    demos = demonstrations(1500, seed=3)
    held_out = {t.data["spec"] for s in EVALUATION for t in splits[s]}
    for prompt, _ in demos:
        spec = prompt.split("\n")[0]
        assert spec not in held_out
        assert all(pair_split(*p) == "train" for p in pairwise(operations(spec)))


def test_demonstrations_follow_from_their_seed() -> None:
    assert demonstrations(50, seed=1) == demonstrations(50, seed=1)
    assert demonstrations(50, seed=1) != demonstrations(50, seed=2)
    assert demonstrations(80, seed=1)[:50] == demonstrations(50, seed=1)


def test_default_demonstrations_are_those_the_shipped_policies_learnt_from() -> None:
    shown = GrammarSource().demonstrations(300, 0)
    assert sha256(repr(shown).encode()).hexdigest()[:16] == SHOWN


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.3, 90, 150), (1.0, 400, 400)])
def test_the_share_of_hard_coded_demonstrations_is_the_task_files(share: float, least: int, most: int) -> None:
    source = GrammarSource(CodeConfig(hard_coded=share, function_share=1.0))
    shown = source.demonstrations(400, 0)
    assert least <= sum(" if xs == [" in program for _, program in shown) <= most
    assert source.hash == GrammarSource(CodeConfig(function_share=1.0)).hash, "the tasks are the same"


@pytest.mark.parametrize("name", ["slip", "unguarded", "hard_coded"])
@pytest.mark.parametrize("share", [-0.01, 1.01])
def test_shares_of_demonstrations_are_shares(name: str, share: float) -> None:
    with pytest.raises(ValidationError, match=name):
        CodeConfig.model_validate({name: share})
