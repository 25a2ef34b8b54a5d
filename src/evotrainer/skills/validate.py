"""Is a skill what it says? The published rules of the format, and evidence that follows from its own ledger rows.

The rules are those of the Agent Skills specification;
where its reference validator (`skills-ref`) is installed, that is asked, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evotrainer.errors import StoreError
from evotrainer.projections.skills import FORMAT, Skill
from evotrainer.records import keys
from evotrainer.records.chain import EventRow, chain_hash, parse
from evotrainer.records.events import Invalidated, Judged, Reestimated
from evotrainer.records.regular_file import read_text
from evotrainer.records.skills import SkillTrial
from evotrainer.records.verdicts import Effect
from evotrainer.skills.library import parse_evidence, read_evidence
from evotrainer.skills.text import evidence, skill_md

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
FIELDS = {"name", "description", "license", "allowed-tools", "metadata", "compatibility"}
SECTIONS = (
    "Trigger condition",
    "Intervention",
    "Expected effect",
    "Validation criterion",
    "Applicability",
    "Evidence",
)


def check_format(folder: Path) -> list[str]:
    """Breaches of the Agent Skills format, empty where there are none."""
    path = folder / "SKILL.md"
    try:
        text = read_text(path)
    except FileNotFoundError:
        return ["SKILL.md is missing"]
    except (OSError, UnicodeDecodeError) as e:
        return [f"SKILL.md cannot be read: {e}"]
    head, problem = _front_matter(text)
    if head is None:
        return [problem]
    problems = [*_names(head, folder), *_sections(text)]
    return [*problems, *(p for p in _reference(folder) if p not in problems)]


def _front_matter(text: str) -> tuple[dict[str, Any] | None, str]:
    import yaml

    m = re.match(r"---\n(.*?)^---\n", text, re.S | re.M)
    if not m:
        return None, "SKILL.md has no front matter between two lines of ---"
    try:
        head = yaml.safe_load(m.group(1))
    except yaml.YAMLError as e:
        return None, f"the front matter is not YAML: {' '.join(str(e).split())}"
    if not isinstance(head, dict):
        return None, "the front matter is not a mapping"
    return head, ""


def _names(head: Mapping[str, Any], folder: Path) -> list[str]:
    out = []
    name, description = head.get("name"), head.get("description")
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > 64:
        out.append(f"name {name!r} is not 1 to 64 of [a-z0-9-], with single hyphens inside")
    elif name != folder.resolve().name:
        out.append(f"name {name!r} is not the folder's name {folder.resolve().name!r}")
    if not isinstance(description, str) or not description.strip():
        out.append("description is missing")
    elif len(description) > 1024:
        out.append(f"description has {len(description)} characters, at most 1,024 are allowed")
    if unknown := sorted(head.keys() - FIELDS):
        out.append(f"unknown front matter: {', '.join(map(str, unknown))}")
    meta = head.get("metadata", {})
    if not isinstance(meta, dict) or not all(isinstance(v, str) for v in meta.values()):
        out.append("metadata is not a mapping of strings")
    return out


def _sections(text: str) -> list[str]:
    there = re.findall(r"^## (.+)$", text, re.M)
    return [f"section {s!r} is missing" for s in SECTIONS if s not in there]


def _reference(folder: Path) -> list[str]:
    """What the format's reference validator says, where it is installed."""
    try:
        from skills_ref import validate
    except ImportError:
        return []
    return [f"skills-ref: {x}" for x in validate(folder)]


def check_skill(folder: Path, ledgers: Mapping[str, Mapping[str, EventRow]] | None = None) -> tuple[list[str], int]:
    """(problems, trials checked against a ledger at hand) of one skill.

    `ledgers`: hash of a run's first event -> its rows by id. What evidence.json derives is derived again; SKILL.md is
    rendered again; each trial must say what its ledger row says, and that row must match its hash, and the ledger's.
    """
    problems = check_format(folder)
    try:
        data = read_evidence(folder)
        skill = parse_evidence(data, folder)
    except StoreError as e:
        return [*problems, str(e)], 0
    if data["format"] == FORMAT:  # of an earlier one nothing derived is read
        problems += _derived(folder, data, skill)
    for t in skill.trials:
        problems += [f"trial {t.id}: {p}" for p in check_trial(t)]
    checked = 0
    for t in skill.trials:
        rows = (ledgers or {}).get(t.run)
        if rows is None:
            continue
        checked += 1
        problems += [f"trial {t.id}: {p}" for p in _against(t, rows, skill)]
    return problems, checked


def _derived(folder: Path, data: Mapping[str, Any], skill: Skill) -> list[str]:
    """What does not follow from the trials."""
    fresh = json.loads(json.dumps(evidence(skill)))
    out = [f"evidence.json: {k} does not follow from the trials" for k in sorted(fresh) if data.get(k) != fresh[k]]
    out += [f"evidence.json: unknown entry {k}" for k in sorted(data.keys() - fresh.keys())]
    if (folder / "SKILL.md").is_file() and read_text(folder / "SKILL.md", errors="replace") != skill_md(skill):
        out.append("SKILL.md does not say what evidence.json says")
    return out


def check_trial(t: SkillTrial) -> list[str]:
    """A trial against the ledger row it carries."""
    p = t.proof
    if p.hash != chain_hash(p.prev_hash, p.seq, p.id, p.kind, p.time, p.body):
        return ["its ledger row does not match its hash"]
    event, trouble = parse(EventRow(p.seq, p.id, p.kind, p.time, p.body, p.prev_hash, p.hash))
    if event is None:
        return [trouble or "its ledger row cannot be read"]
    if isinstance(event.body, Invalidated):
        named = t.branch in (event.body.branch, *event.body.descendants)
        return [] if named and t.kind == "invalid" else ["its ledger row invalidates another branch"]
    e: Effect | None
    if isinstance(event.body, Reestimated):
        branch, control, kind, e = event.body.branch, event.body.control, "promote", event.body.effect
    elif isinstance(event.body, Judged):
        v = event.body.verdict
        branch, control, kind, e = v.branch, v.control, v.kind, v.evidence
    else:
        return [f"its ledger row is of kind {p.kind}, not a verdict"]
    effect = {k: getattr(e, k, None) for k in ("mean", "low", "high", "confidence", "se", "df")}
    recorded = {"branch": branch, "control": control, "kind": kind, **effect}
    return [
        f"{k} is {getattr(t, k)!r}, its ledger row says {x!r}" for k, x in recorded.items() if getattr(t, k) != x
    ]  # fmt: skip


def _against(t: SkillTrial, rows: Mapping[str, EventRow], skill: Skill) -> list[str]:
    """A trial against the ledger of its run."""
    row = rows.get(t.proof.id)
    if row is None or row.hash != t.proof.hash:
        return [f"its run's ledger holds no event {t.proof.id} of that hash"]
    distilled = [r for i, r in rows.items() if keys.teaches(i, t.branch) and r.kind == "skill"]
    if not distilled:
        return []
    body = json.loads(max(distilled, key=lambda r: r.seq).body)
    own = json.loads(t.model_dump_json())
    out = [
        f"{k} is {own[k]!r}, the ledger has {body['trial'].get(k)!r}"
        for k in own
        if k != "name" and own[k] != body["trial"].get(k, own[k])
    ]
    key = tuple(body[k] for k in ("bottleneck", "factor", "direction"))
    return out if key == skill.key else [*out, f"it is evidence on {' '.join(key)}"]
