"""The harness's lineage beside the policy's: who made whom, who stopped whom,
and that every link in the page leads somewhere.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evotrainer.projections.harness_lineage import Coevolution
from evotrainer.records import events as ev
from evotrainer.records.chain import Event
from evotrainer.records.detectors import Admission, DetectorSpec, VerdictChange
from evotrainer.records.findings import Bottleneck, HealthReport, Quote
from evotrainer.records.frozen import Frozen
from evotrainer.records.ledger import Ledger
from evotrainer.records.verdicts import Effect, ShortcutAudit, Verdict
from evotrainer.views.fold import view_of
from evotrainer.views.report import check_report, generator, render, write_report
from tests.small_records import RECIPE, intervention, opened

LOOK = DetectorSpec(
    name="mined_look", form="pattern", pattern="^look", where="actions", standing="suspect", origin="mined"
)
OTHER = DetectorSpec(name="mined_long", form="threshold", feature="words", value=14, about="have <b>many</b> words")


def version(name: str, parent: str, trigger: str, own: tuple[DetectorSpec, ...], **more: Any) -> ev.HarnessEvolved:
    body = {"version": name, "metrics": [], "detectors": ["dead_groups"], "authored": [s.model_dump() for s in own]}
    return ev.HarnessEvolved(
        version=name, parent=parent, hash=name * 8, harness=body, trigger=trigger, reason="told", **more
    )


def reading(branch: str, harness: str, *bottlenecks: Bottleneck) -> HealthReport:
    return HealthReport(
        harness=harness,
        subject=f"{branch}@3 search",
        rollouts=8,
        groups=2,
        metrics=(),
        findings=(),
        bottlenecks=bottlenecks,
    )


def audit(branch: str, trigger: str, confirmed: bool) -> ShortcutAudit:
    return ShortcutAudit(
        branch=branch, reference="base", capability="key", knob="key", open="answer", closed="other", trigger=trigger,
        verdict="confirmed" if confirmed else "not_confirmed", reason="measured", split="gate", score_open=0.9,
        score_closed=0.2, reference_open=0.4, reference_closed=0.4, excess=0.7, low=0.6, high=0.8, confidence=0.99,
        tasks=20,
    )  # fmt: skip


def verdict(branch: str, kind: Any) -> Verdict:
    e = Effect(mean=0.1, low=0.05, high=0.15, confidence=0.9, se=0.02, df=4, seeds=2, tasks=20, noise_floor=0.03)
    return Verdict(branch=branch, control="b0", kind=kind, reason="measured", effect=e)


ADMISSIONS = (
    Admission(detector=LOOK, admitted=True, reason="separates", numbers={"share_bad": 0.9, "share_clean": 0.1}),
    Admission(detector=OTHER, admitted=False, reason="redundant"),
)


def story() -> list[Event]:
    """A leak is discovered in b1 and stopped; b2 is cleared of the same suspicion and promoted."""
    gap = ev.GapSeen(
        round=1, branch="b1", against="b0", trigger="score_move", harness="h0", claim="the score moved by +40 points",
        mined=("b1-s1 search",), candidates=73, considered=ADMISSIONS,
    )  # fmt: skip
    confirmed = LOOK.model_copy(update={"standing": "confirmed"})
    child = RECIPE.with_factor("lr", 2e-4)
    answer = intervention("lr", RECIPE.lr, 2e-4).model_copy(update={"bottleneck": "dead_groups"})
    dead = Bottleneck(name="dead_groups", score=0.5, explanation="half of the groups", findings=("dead_groups",))
    bodies: list[tuple[str, str, Frozen]] = [
        ("harness/opened", "harness", version("h0", "", "opened", ())),
        ("b0/opened", "branch", opened("b0", None, RECIPE)),
        ("v0", "promoted", ev.Promoted(version="v0", branch="b0", previous=None)),
        ("r1/opened", "round", ev.RoundOpened(round=1, champion="b0", harness="h0")),
        ("r1/diagnosed", "diagnosed", ev.Diagnosed(round=1, health=reading("b0", "h0", dead))),
        ("b1/opened", "branch", opened("b1", "b0", child, answer)),
        ("b2/opened", "branch", opened("b2", "b0", RECIPE.with_factor("kl_beta", 0.1),
                                       intervention("kl_beta", 0.0, 0.1))),
        ("gap/b1", "gap", gap),
        ("harness/b1/gap", "harness", version(
            "h1", "h0", "score_move", (LOOK,), round=1, added=(LOOK,), gap="gap/b1", branches=("b1",),
            admissions=ADMISSIONS, quotes=(Quote(rollout="r" * 8, text="look <script>"),),
            flips=(VerdictChange(branch="b0", was="promote", would="suspected", detector="mined_look", share=0.4),),
        )),
        ("b1/audited/key", "audited", ev.Audited(round=1, audit=audit("b1", "mined_look", True))),
        ("b1/judged", "judged", ev.Judged(round=1, verdict=verdict("b1", "invalid"))),
        ("b1/invalidated", "invalidated", ev.Invalidated(
            branch="b1", descendants=(), reason="measured", champion="b0", capability="key",
        )),
        ("harness/r1/settled", "harness", version(
            "h2", "h1", "audit", (confirmed,), round=1, changed={"mined_look": "confirmed"}, branches=("b1",),
        )),
        ("b2/audited/key", "audited", ev.Audited(round=1, audit=audit("b2", "mined_look", False))),
        ("b2/judged", "judged", ev.Judged(round=1, verdict=verdict("b2", "promote"))),
        ("v1", "promoted", ev.Promoted(version="v1", branch="b2", previous="b0")),
        ("gap/b2", "gap", gap.model_copy(update={"branch": "b2", "considered": (), "reason": "nothing separates"})),
    ]  # fmt: skip
    return [Event(n, i, k, f"2026-11-22T04:00:{n:02d}Z", b, f"{n:064d}") for n, (i, k, b) in enumerate(bodies, 1)]


@pytest.fixture(scope="module")
def page() -> str:
    return render(view_of(story()))


def test_links_say_who_made_whom_and_who_stopped_whom() -> None:
    told = Coevolution.of(story())
    assert [(x.branch, x.version, x.kind) for x in told.links] == [
        ("b1", "h0", "steered"),
        ("b1", "h1", "made"),
        ("b0", "h1", "flips"),
        ("b1", "h1", "stopped"),
        ("b1", "h2", "settled"),
        ("b2", "h1", "cleared"),
    ]
    text = {(x.branch, x.kind): x.text for x in told.links}
    assert text["b1", "steered"] == "h0 diagnosed dead_groups (severity 0.50); answered by lr"
    assert text["b1", "stopped"] == "mined_look asked for the audit with key closed; the branch is stopped"
    assert text["b2", "cleared"].endswith("the branch may go on")
    assert told.origin == {"mined_look": "h1"}
    assert [x.version for x in told.of_branch("b2")] == ["h1"]
    assert [g.branch for g, _ in told.open_gaps] == ["b2"]


def test_the_line_of_status_names_version_detectors_and_last_change() -> None:
    line = Coevolution.of(story()).line()
    assert (
        line == "h2, 1 built-in detector, 1 of its own: mined_look (confirmed); 2 changes, the last: settled by audits"
    )
    assert Coevolution.of(story()[:1]).line() == "h0, 1 built-in detector"
    (h0, *_), scores = story(), {"detectors": [], "authored": []}
    bare = replace(h0, body=h0.body.model_copy(update={"harness": scores}))
    assert Coevolution.of([bare]).line() == "h0, score layer only, no built-in detector"
    assert Coevolution.of([]).line() == ""


def test_the_page_links_both_ways_and_every_link_leads_somewhere(page: str) -> None:
    ids = set(re.findall(r'\bid="([^"]+)"', page))
    targets = set(re.findall(r'href="#([^"]+)"', page))
    assert {f"harness-h{n}" for n in range(3)} <= ids
    assert not {t for t in targets if not t.startswith(("ro-", "i-"))} - ids
    branch = page[page.index('id="b1"') :]
    branch = branch[: branch.index("</details>")]
    assert 'href="#harness-h1"' in branch and "stopped" in branch
    made = page[page.index('id="harness-h1"') :]
    made = made[: made.index("</details>")]
    assert 'href="#b1"' in made and 'href="#b0"' in made and "73 predicates" in made
    assert "mined_long" in made and "redundant" in made, "refused detectors are shown with the reason"
    assert "Gap without a detector of its own" in page


def test_what_detectors_and_rollouts_say_is_escaped(page: str) -> None:
    assert "look &lt;script&gt;" in page
    assert "<b>many</b>" not in page


def test_a_run_without_recorded_versions_says_so() -> None:
    events = [e for e in story() if e.kind in ("branch", "promoted")]
    assert "records no harness versions" in render(view_of(events))


def test_a_report_that_was_edited_is_found_and_another_versions_is_not_compared(
    finished_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    (run / "report.html").unlink(missing_ok=True)
    assert check_report(run) == ("", "")
    page = write_report(run).read_text(encoding="utf-8")
    assert check_report(run) == ("", "")
    (run / "report.html").write_text(page.replace("promoted", "promoted!", 1), encoding="utf-8")
    assert "it was edited" in check_report(run)[0]
    (run / "report.html").write_text(page.replace(generator(), "evotrainer 0.0.9 0"), encoding="utf-8")
    assert "another version" in check_report(run)[1]
    with Ledger.open(run / "ledger.db") as ledger:
        ledger.append("escalated", "r9/escalated", ev.Escalated(round=9, failures=2, actions=()))
    (run / "report.html").write_text(page, encoding="utf-8")
    assert "older than the ledger" in check_report(run)[1]
