"""Task sets of repository issues in SWE-bench's columns, run on local mirrors in the real world.

A row: instance_id, repo (owner/name), base_commit, problem_statement, FAIL_TO_PASS, PASS_TO_PASS (lists, or lists as
JSON text), patch (the reference fix) and test_patch. Further columns are ignored.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evotrainer.envs.base import SPLITS
from evotrainer.envs.data.rows import Row, listed, split_of
from evotrainer.envs.data.rows import field as column
from evotrainer.envs.data.tables import DataOptions, Format, load_table, same_text
from evotrainer.envs.swe.world import Repo
from evotrainer.errors import TaskSetError
from evotrainer.records.text import quoted
from evotrainer.sandbox.shell import Entry

FORMAT = Format(
    "swe-bench",
    {
        n: tuple(dict.fromkeys((n, n.lower())))
        for n in (
            "instance_id",
            "repo",
            "base_commit",
            "problem_statement",
            "FAIL_TO_PASS",
            "PASS_TO_PASS",
            "patch",
            "test_patch",
        )
    },
    {"version": ("version",)},
)
"""SWE-bench's columns, which SWE-rebench, SWE-Gym and their kin share."""
_TEST_PATH = re.compile(r"(?:.*/)?(?:tests?|testing)/.*|(?:.*/)?(?:test_[^/]*|[^/]*_tests?)\.\w+|(?:.*/)?tests?\.py")


@dataclass(frozen=True, slots=True)
class Instance:
    """One checked row."""

    id: str
    repo: str
    base_commit: str
    statement: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    patch: str
    test_patch: str
    split: str
    version: str = ""

    @property
    def hash(self) -> str:
        """16 hex digits over everything that decides its grade."""
        parts = [self.repo, self.base_commit, self.patch, self.test_patch, self.fail_to_pass, self.pass_to_pass]
        return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class InstanceRepo(Repo):
    """An instance with its patches applied: `files` and `gold` hold the text files that the reference fix touches."""

    mirror: Path = field(default=Path())
    base_commit: str = ""
    tests: Mapping[str, Entry | None] = field(default_factory=dict)
    """What the test patch makes of the paths that it touches; None: it removes the file."""
    fix: Mapping[str, Entry | None] = field(default_factory=dict)
    """The same for the reference fix."""

    def is_test(self, path: str) -> bool:
        """Does it look like a test, or does the test patch touch it? What the reference fix touches is none."""
        return path in self.tests or (path not in self.fix and _TEST_PATH.fullmatch(path) is not None)


def test_list(row: Row, name: str, where: str) -> tuple[str, ...]:
    """A column of test names: a list, or a list as JSON text."""
    value = listed(row, name, where)
    if not all(isinstance(x, str) and x for x in value):
        raise TaskSetError(f"{where}: field {name!r} must be a list of test names; correct the row")
    return tuple(dict.fromkeys(value))


test_list.__test__ = False  # type: ignore[attr-defined]


def parse_instance(row: Row, where: str, shares: Mapping[str, float]) -> Instance:
    """TaskSetError with the row and the field where something is missing or malformed."""
    texts = {
        n: column(row, n, str, where)
        for n in ("instance_id", "repo", "base_commit", "problem_statement", "patch", "test_patch")
    }
    for name in ("instance_id", "problem_statement", "patch", "test_patch"):
        if not texts[name].strip():
            raise TaskSetError(f"{where}: field {name!r} is empty; correct the row")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", texts["repo"], re.ASCII) or ".." in texts["repo"]:
        raise TaskSetError(f"{where}: field 'repo' is {quoted(texts['repo'])}, owner/name expected")
    if not re.fullmatch(r"[0-9a-f]{40}", texts["base_commit"]):
        raise TaskSetError(f"{where}: field 'base_commit' is {quoted(texts['base_commit'])}, 40 hex digits expected")
    wanted = test_list(row, "FAIL_TO_PASS", where)
    if not wanted:
        raise TaskSetError(f"{where}: field 'FAIL_TO_PASS' is empty: nothing could show that the issue is solved")
    kept = test_list(row, "PASS_TO_PASS", where)
    if both := set(wanted) & set(kept):
        raise TaskSetError(f"{where}: {min(both)} is in FAIL_TO_PASS and in PASS_TO_PASS; correct the row")
    return Instance(
        texts["instance_id"],
        texts["repo"],
        texts["base_commit"],
        texts["problem_statement"],
        wanted,
        kept,
        _ended(texts["patch"]),
        _ended(texts["test_patch"]),
        split_of(texts["instance_id"], shares),
        str(row.get("version") or ""),
    )


def _ended(patch: str) -> str:
    return patch if patch.endswith("\n") else patch + "\n"


def load_instances(o: DataOptions) -> tuple[list[Instance], dict[str, Any]]:
    """Checked rows of a data set, and what to record of it. TaskSetError for one statement in two splits."""
    table = load_table(o, [FORMAT], "swe")
    read = table.each(lambda item: (parse_instance(item.row, item.where, item.shares), item.where), o.malformed)
    instances = _distinct(read)
    seen: dict[tuple[str, str], Instance] = {}
    kept: dict[str, Instance] = {}
    for i in instances:
        other = seen.setdefault((i.repo, same_text(i.statement)), i)
        if other.split != i.split:
            if o.duplicates == "refuse":
                raise TaskSetError(
                    f"environment swe: {i.id} and {other.id} tell the same issue in splits {i.split} and "
                    f"{other.split}; remove "
                    'one, or set environment.duplicates = "merge", which keeps the one in the more protected split'
                )
            if SPLITS.index(i.split) < SPLITS.index(other.split):
                continue
            kept.pop(other.id, None)
            seen[(i.repo, same_text(i.statement))] = i
        kept[i.id] = i
    return list(kept.values()), table.description(duplicates_left_out=len(instances) - len(kept))


def _distinct(instances: Iterable[tuple[Instance, str]]) -> list[Instance]:
    found: dict[str, Instance] = {}
    for instance, where in instances:
        if instance.id in found:
            raise TaskSetError(f"{where}: instance_id {instance.id!r} occurs twice; remove one row")
        found[instance.id] = instance
    return list(found.values())
