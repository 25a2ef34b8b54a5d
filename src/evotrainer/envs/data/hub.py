"""Data sets of the Hugging Face Hub: `hf:org/name[:config][@revision]`, read through the `datasets` library.

A run pins the revision to a commit before it begins, so that every trial and every resume reads the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evotrainer.envs.data.rows import Row
from evotrainer.errors import MissingDependencyError, TaskSetError, install
from evotrainer.records.hub import reached_hub
from evotrainer.records.text import cause

_FORM = re.compile(r"hf:(?P<id>[\w.-]+(?:/[\w.-]+)?)(?::(?P<config>[^@]+))?(?:@(?P<revision>\S+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubSet:
    """A data set of the Hub."""

    id: str
    config: str | None = None
    revision: str | None = None
    """A commit, branch or tag; None: main."""

    @property
    def name(self) -> str:
        """As a task file writes it."""
        return f"hf:{self.id}{f':{self.config}' if self.config else ''}{f'@{self.revision}' if self.revision else ''}"


def parse_hub(source: str) -> HubSet | None:
    """None for a source that is no Hub id; TaskSetError for a malformed one."""
    if not source.startswith("hf:"):
        return None
    m = _FORM.fullmatch(source)
    if m is None:
        raise TaskSetError(f"source {source!r} is not of the form hf:org/name[:config][@revision]")
    return HubSet(m["id"], m["config"], m["revision"])


def read_hub(hub: HubSet) -> dict[str, list[Row]]:
    """Own split -> rows; TaskSetError with the cause where it cannot be had."""
    try:
        import datasets
    except ImportError:
        raise MissingDependencyError(
            f"{hub.name} needs the `datasets` package; {install('hf')}, or give a local file"
        ) from None
    quiet = datasets.utils.logging.is_progress_bar_enabled()
    try:
        datasets.disable_progress_bars()
        with reached_hub():
            found = datasets.load_dataset(hub.id, hub.config, revision=hub.revision)
        return {str(name): [dict(r) for r in rows] for name, rows in found.items()}
    except Exception as e:  # the library raises whatever its many back ends raise
        raise TaskSetError(_trouble(hub, e, "cannot be loaded")) from None
    finally:
        if quiet:
            datasets.enable_progress_bars()


def pinned(source: str) -> str:
    """The source with its revision as a commit; asks the Hub once. TaskSetError where it cannot be reached."""
    hub = parse_hub(source)
    if hub is None or (hub.revision and _COMMIT.fullmatch(hub.revision)):
        return source
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise MissingDependencyError(
            f"{source} needs the `datasets` package; {install('hf')}, or give a local file"
        ) from None
    try:
        commit = HfApi().dataset_info(hub.id, revision=hub.revision, timeout=30).sha
    except Exception as e:  # as above
        raise TaskSetError(_trouble(hub, e, "cannot be pinned to a commit")) from None
    return replace(hub, revision=commit).name


def pin(environment: Mapping[str, Any]) -> dict[str, Any]:
    """`[environment]` with the revision of its Hub source pinned."""
    source = environment.get("source")
    return dict(environment) | ({"source": pinned(source)} if isinstance(source, str) else {})


def _trouble(hub: HubSet, e: Exception, what: str) -> str:
    error_text = cause(e)
    message = f"{type(e).__name__} {error_text}"
    offline = re.search(
        r"offline|connect|name resolution|getaddrinfo|unreachable|max retries|timed? ?out", message, re.IGNORECASE
    )
    if offline:
        remedy = (
            "this machine does not reach the Hub: give a local file, or a copy in the Hub's cache by its commit "
            "(source = hf:org/name@<40 hex digits>)"
        )
    elif "script" in error_text.lower():
        remedy = (
            "it holds a loading script, which `datasets` no longer runs: give its files, or its Parquet copy "
            f"(source = hf:{hub.id}@refs/convert/parquet)"
        )
    else:
        remedy = "check id, config and revision, log in for a gated one (hf auth login), or give a local file"
    return f"data set {hub.name} {what}: {type(e).__name__}: {error_text}; {remedy}"
