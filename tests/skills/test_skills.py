"""The skill record by itself: names, directions, pooling, claims, scope, expiry, and the format on disk."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evotrainer.agents.belief import informed
from evotrainer.agents.moves import CandidateMove
from evotrainer.cli.skills_validate import skills_validate
from evotrainer.errors import ConfigError, StoreError
from evotrainer.factors.table import Move, Variant
from evotrainer.projections.skills import FORMAT, Skill, advise, direction, pool, skill_name
from evotrainer.records.chain import chain_hash
from evotrainer.records.recipe import Recipe
from evotrainer.records.skills import CLAIMS, Proof, SkillTrial
from evotrainer.skills import check_format, check_skill, content_hash, merge, read_skill, rendered_hash, write_skill
from evotrainer.skills.text import description, effect_text

NOW = "2026-11-01T00:00:00.000+00:00"


def trial(mean: float | None = 0.03, se: float = 0.01, **fields: Any) -> SkillTrial:
    """One trial; its row holds an invalidation, so that the row agrees with `kind="invalid"` alone."""
    body = '{"branch":"b1","capability":"","champion":"b0","descendants":[],"reason":"x"}'
    row = ("0" * 64, 9, "b1/invalidated", "invalidated", NOW, body)
    proof = Proof(
        prev_hash=row[0], seq=9, id=row[2], kind=row[3], time=NOW, body=body, hash=chain_hash(*row)
    )  # fmt: skip
    values: dict[str, Any] = {
        "run": "a" * 64,
        "name": "run",
        "domain": "maths",
        "generator": "1",
        "base": "base",
        "branch": "b1",
        "control": "b0",
        "round": 1,
        "old": 1.0,
        "new": 1.3,
        "kind": "reject" if mean is not None else "invalid",
        "mean": mean,
        "low": None if mean is None else mean - 2 * se,
        "high": None if mean is None else mean + 2 * se,
        "confidence": 0.95,
        "se": se if mean is not None else None,
        "df": 30.0 if mean is not None else None,
        "harness": "h0",
        "version": "0.1.0",
        "proof": proof,
    }
    return SkillTrial(**(values | fields))


def skill(*trials: SkillTrial) -> Skill:
    return Skill(bottleneck="dead_groups", factor="temperature", direction="up", trials=trials or (trial(),))


@pytest.mark.parametrize(
    ("factor", "old", "new", "said"),
    [
        ("lr", 1e-4, 2e-4, "up"),
        ("lr", 2e-4, 1e-4, "down"),
        ("is_cap", None, 2.0, "on"),
        ("is_cap", 2.0, None, "off"),
        ("mask_truncated", False, True, "to True"),
        ("loss", "grpo", "dapo", "to dapo"),
        ("rewards", {"a": 1.0}, {"a": 1.0, "b": 0.1}, "add b"),
        ("rewards", {"a": 1.0}, {"b": 1.0}, "replace a by b"),
        ("rewards", {"a": 1.0, "b": 1.0}, {"a": 1.0}, "remove b"),
        ("rewards", {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 0.5}, "weight b down"),
        ("clip", {"low": 0.2, "high": 0.2}, {"low": 0.2, "high": 0.28}, "high up"),
        ("group_filter", {"kind": "none", "keep": 0.9}, {"kind": "ema_std", "keep": 0.9}, "kind ema_std"),
    ],
)
def test_directions_are_told(factor: str, old: Any, new: Any, said: str) -> None:
    assert direction(factor, old, new) == said


def test_names_are_valid_and_tell_apart() -> None:
    keys = [
        ("dead_groups", "lr", "up"),
        ("dead_groups", "rewards", "add " + "x" * 80),
        ("dead_groups", "rewards", "add " + "x" * 81),
        ("sound", "knobs.History", "to full"),
        ("sound", "knobs.history", "to full"),
        ("sound", "loss", "to ä"),
    ]
    names = [skill_name(*k) for k in keys]
    assert names[0] == "dead-groups-lr-up"
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", n) and len(n) <= 64 for n in names)


def test_pooling_gives_the_known_numbers() -> None:
    """Two comparisons of equal error and no spread: the mean of them, error divided by the square root of two."""
    same = pool([trial(0.03, 0.01), trial(0.03, 0.01, run="b" * 64)])
    assert same is not None and same.tau == 0 and same.mean == pytest.approx(0.03)
    assert same.se == pytest.approx(0.01 / 2**0.5, abs=1e-6)
    # DerSimonian-Laird by hand: Q = (0.04/0.01)^2/2 = 8, C = 1e4, tau^2 = (8-1)/1e4, weights equal
    far = pool([trial(0.05, 0.01), trial(0.01, 0.01, run="b" * 64)])
    assert far is not None and far.mean == pytest.approx(0.03)
    assert far.tau == pytest.approx((7 / 1e4) ** 0.5, abs=1e-6)
    assert far.se == pytest.approx(((1e-4 + 7e-4) / 2) ** 0.5, abs=1e-6)
    assert pool([trial(None)]) is None


def test_a_byte_identical_branch_does_not_settle_everything() -> None:
    p = pool([trial(0.0, 0.0), trial(0.05, 0.01, run="b" * 64)])
    assert p is not None and 0 < p.mean < 0.05 and p.se > 0.01
    assert skill(trial(0.0, 0.0)).claim == "unsettled"


def test_one_branch_has_the_judges_own_interval_and_its_word() -> None:
    """b3 of a quickstart: rejected as within the noise at 99.7%, and 90% above 0: it was said to help."""
    b3 = trial(0.03725, 0.0165330757, df=18.0, confidence=0.9965761919, seeds=5, low=-0.018438, high=0.092938)
    s = skill(b3)
    assert s.pooled is not None and s.pooled.confidence == b3.confidence
    assert (s.pooled.low, s.pooled.high) == pytest.approx((b3.low, b3.high), abs=1e-6)
    assert s.claim == "unsettled" and CLAIMS[s.claim] == "not shown"
    assert effect_text(s.trials) == "+3.7 points of gate score [-1.8, +9.3] over 1 branch, 5 trainings"


def test_what_trained_dearer_is_told_as_measured_and_not_counted() -> None:
    effect = {"mean": 0.02375, "low": -0.03, "high": 0.0777, "confidence": 0.974, "se": 0.02, "df": 10.0}
    effect |= {"seeds": 5, "tasks": 200, "noise_floor": 0.05}
    known = trial(None)
    proof = known.proof.model_copy(update={"body": json.dumps({"verdict": {"effect": effect}})})
    b2 = known.model_copy(update={"kind": "reject", "proof": proof})
    told = effect_text([b2])
    assert (
        "no effect at equal compute" in told and "+2.4 points [-3.0, +7.8]" in told and "1 branch, 5 trainings" in told
    )
    assert skill(b2).claim == "unsettled" and effect_text([known]) == "no effect was measured over 1 branch"


def test_evidence_of_an_earlier_format_is_read_and_derived_again(tmp_path: Path) -> None:
    s = skill(trial(None))
    folder = write_skill(s, tmp_path)
    path = folder / "evidence.json"
    old = json.loads(path.read_text()) | {"claim": "helps"}
    path.write_text(json.dumps(old))
    assert check_skill(folder)[0], "what is derived must follow"
    for earlier in range(1, FORMAT):
        path.write_text(json.dumps(old | {"format": earlier}))
        assert check_skill(folder) == ([], 0) and read_skill(folder).claim == "invalid"
    path.write_text(json.dumps(old | {"format": FORMAT + 1}))
    with pytest.raises(StoreError, match=f"reads 1 to {FORMAT}"):
        read_skill(folder)


def test_claims_follow_from_trials_and_scope() -> None:
    assert skill(trial(0.03, 0.005)).claim == "helps"
    assert skill(trial(-0.03, 0.005)).claim == "harms"
    assert skill(trial(-0.002, 0.005)).claim == "no-gain"
    assert skill(trial(0.01, 0.03)).claim == "unsettled"
    assert skill(trial(None)).claim == "invalid"
    code = trial(0.02, 0.005, domain="code", run="b" * 64)
    assert skill(trial(0.03, 0.005)).scope == "domain-local"
    both = skill(trial(0.03, 0.005), code)
    assert both.scope == "cross-domain" and both.validated == ("code", "maths")
    unsure = trial(0.02, 0.03, domain="code", run="b" * 64)
    assert skill(trial(0.03, 0.005), unsure).scope == "domain-local", "a second domain must settle it, too"


def test_on_disk_it_is_a_valid_agent_skill(tmp_path: Path) -> None:
    pytest.importorskip("skills_ref")
    nasty = trial(None, domain='a: b\n--- "quoted" ä', name="| pipe ---", old={"kind": "x---y"}, new={"kind": "z"})
    s = skill(nasty)
    folder = write_skill(s, tmp_path)
    assert check_format(folder) == []
    assert read_skill(folder) == s and check_skill(folder) == ([], 0)
    assert content_hash(folder) == rendered_hash(s)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("name: dead", "name: Dead", "not 1 to 64"),
        ("metadata:", "extra: 1\nmetadata:", "unknown front matter: extra"),
        ("## Applicability", "## Elsewhere", "section 'Applicability' is missing"),
        ("---\nname", "name", "no front matter"),
        ("description: ", "description: [", "not YAML"),
    ],
)
def test_breaches_of_the_format_are_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    folder = write_skill(skill(trial(None)), tmp_path)
    path = folder / "SKILL.md"
    path.write_text(path.read_text().replace(old, new, 1))
    assert any(problem in p for p in check_format(folder)), check_format(folder)


def test_a_row_that_was_changed_is_found(tmp_path: Path) -> None:
    good = trial(None)
    assert check_skill(write_skill(skill(good), tmp_path)) == ([], 0)
    bad = good.model_copy(update={"proof": good.proof.model_copy(update={"body": good.proof.body.replace("b0", "b7")})})
    told, _ = check_skill(write_skill(skill(bad), tmp_path))
    assert any("does not match its hash" in p for p in told)


def test_merging_is_the_same_in_any_order() -> None:
    a, b = skill(trial(0.01)), skill(trial(0.02, run="b" * 64), trial(0.01))
    assert merge([a], [b]) == merge([b], [a]) == merge([b], [a], [a])
    (one,) = merge([a], [b]).values()
    assert len(one.trials) == 2
    rest = one.without("a" * 64)
    assert rest is not None and [t.run for t in rest.trials] == ["b" * 64]
    assert a.without("a" * 64) is None


def candidate(recipe: Recipe, mean: float = 0.01, sd: float = 0.02) -> CandidateMove:
    move = Move("warm", (), "")
    child = recipe.with_factor("temperature", 1.3)
    return CandidateMove(move, Variant(1.3), "temperature", child, "dead_groups", mean, sd, 1.0)


def told(**context: str) -> Any:
    here = {"domain": "maths", "generator": "1", "base": "base", "version": "0.1.0", "now": NOW}
    s = skill(trial(0.03, 0.01))
    return advise(s, s.trials, **(here | context))


def test_a_skill_is_one_more_observation() -> None:
    """Conjugate by hand: same value, another champion."""
    recipe = Recipe(rewards={"r": 1.0})
    c, (use,) = informed(candidate(recipe), [told()], recipe)
    var = 0.01**2 + 0.01**2 + 0.02**2
    precision = 1 / 0.02**2 + 1 / var
    assert c.mean == pytest.approx((0.01 / 0.02**2 + 0.03 / var) / precision) == use.after_mean
    assert c.sd == pytest.approx(precision**-0.5) == use.after_sd
    assert (use.before_mean, use.before_sd, use.doubts) == (0.01, 0.02, ())


def test_doubts_weaken_a_skill_in_order() -> None:
    recipe = Recipe(rewards={"r": 1.0})

    def moved(**context: str) -> tuple[float, tuple[str, ...]]:
        c, (use,) = informed(candidate(recipe), [told(**context)], recipe)
        return c.mean - 0.01, use.doubts

    plain, _ = moved()
    base, why = moved(base="other")
    assert base < plain and why == ("other base policy",)
    old, why = moved(now="2027-12-01T00:00:00")
    assert old < base and "valid until" in why[0]
    regenerated, why = moved(generator="2")
    assert regenerated == pytest.approx(old) and "task generator 1, now 2" in why[0]
    far, why = moved(domain="code")
    assert 0 < far < old and why == ("other domain",)


def test_a_skill_speaks_of_its_own_direction_only() -> None:
    recipe = Recipe(rewards={"r": 1.0}, temperature=1.5)  # 1.5 -> 1.3 is down
    c = candidate(recipe)
    assert informed(c, [told()], recipe) == (c, ())


def test_surprising_evidence_widens_the_prior() -> None:
    recipe = Recipe(rewards={"r": 1.0})
    c, (use,) = informed(candidate(recipe, mean=-0.2, sd=0.01), [told()], recipe)
    assert c.mean > -0.06 and c.sd > 0.01 and "surprises the prior" in use.doubts[-1]


def test_invalid_trials_count_as_losses() -> None:
    recipe = Recipe(rewards={"r": 1.0})
    s = skill(trial(None))
    here = {"domain": "maths", "generator": "1", "base": "base", "version": "0.1.0", "now": NOW}
    c, (use,) = informed(candidate(recipe), [advise(s, s.trials, **here)], recipe)
    assert c.mean < 0.0 and "ended invalid or failed" in use.doubts


def test_where_there_is_no_skill_nothing_is_valid(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no skills in"):
        skills_validate(tmp_path / "empty")


def test_a_description_is_the_sentence_itself_however_long() -> None:
    told = description(skill())
    assert told.startswith("Changing temperature (up) helps when dead_groups is diagnosed") and len(told) > 120
