"""Base policies from the Hugging Face hub: an id is resolved to a commit once, when a run begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evotrainer.errors import ConfigError, MissingDependencyError, install
from evotrainer.records.text import cause, cut

PINNED = re.compile(r"hf:([\w.-]+/[\w.-]+)@([0-9a-f]{40})")
ID = re.compile(r"(?:hf:)?([A-Za-z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?")
CACHED = re.compile(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]{40})/?$")
WANTED = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.py"]
"""Files of a model that its tokenizer and weights need."""


def parse_pinned(base: str) -> tuple[str, str] | None:
    """(id, commit) of `hf:org/name@commit`."""
    m = PINNED.fullmatch(base)
    return (m[1], m[2]) if m else None


def hub_name(folder: str) -> str | None:
    """`hf:org/name@commit` of a folder in a Hugging Face cache, by its path alone; None for any other."""
    m = CACHED.search(folder)
    return f"hf:{m[1]}/{m[2]}@{m[3]}" if m else None


def looks_like_id(base: str) -> tuple[str, str | None] | None:
    """(id, revision) of `org/name` or `org/name@revision`; None for what can only be a path."""
    m = ID.fullmatch(base)
    return (m[1], m[2]) if m else None


NO_WAY = ("ConnectError", "ConnectTimeout", "ConnectionError", "OfflineModeIsEnabled", "ProxyError")
"""Errors of the Hub's clients, old and new, by which no connection was made."""


@contextmanager
def reached_hub() -> Iterator[str]:
    """Why the Hub cannot be reached, empty where it can. Where it cannot, its clients read their cache at once: by
    themselves they try again for half a minute, with two lines for each try."""
    from huggingface_hub import constants, get_session

    why = ""
    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except Exception as e:  # of httpx or requests, as huggingface_hub has it
        why = cause(e) if type(e).__name__ in NO_WAY else ""
    settings = [constants]
    if why:
        try:
            from datasets import config

            settings.append(config)
        except ImportError:
            pass
    before = [s.HF_HUB_OFFLINE for s in settings]
    try:
        for s in settings if why else ():
            s.HF_HUB_OFFLINE = True
        yield why
    finally:
        for s, was in zip(settings, before, strict=True):
            s.HF_HUB_OFFLINE = was


def snapshot(repo: str, revision: str | None = None) -> Path:
    """Folder of a model in the local cache, fetched first where it is not there.

    ConfigError where there is neither a copy nor a network, or no such model.
    A commit that is in the cache needs no network.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        raise MissingDependencyError(
            f"policy.base {repo} is a Hugging Face id, which needs huggingface_hub; {install('trl')}"
        ) from None
    if revision and re.fullmatch(r"[0-9a-f]{40}", revision):
        try:
            return Path(snapshot_download(repo, revision=revision, allow_patterns=WANTED, local_files_only=True))
        except LocalEntryNotFoundError:
            pass
    with reached_hub() as no_way:
        try:
            return Path(snapshot_download(repo, revision=revision, allow_patterns=WANTED))
        except Exception as e:  # offline, unknown, gated, disk full: the library raises many types
            error_text = f"{type(e).__name__}: {cut(' '.join(str(e).split()), 400)}"
            if no_way:
                error_text = f"the Hub cannot be reached: {no_way}; no copy of it is in the cache"
            raise ConfigError(
                f"policy.base {repo}{'@' + revision if revision else ''}: cannot be fetched ({error_text}); check the "
                "id, the network and HF_TOKEN, or give a local folder (a path starts with ./ or /)"
            ) from None


def pinned(base: str, folder: Path) -> str | None:
    """`hf:org/name@commit` for an id and its folder in the cache (`.../snapshots/<commit>`); None for a path."""
    if parse_pinned(base):
        return base
    found = looks_like_id(base)
    if found is None or (Path(base).expanduser() / "config.json").is_file():
        return None
    if not re.fullmatch(r"[0-9a-f]{40}", folder.name):
        raise ConfigError(f"policy.base {base}: {folder} is no snapshot of one commit; give a local folder")
    return f"hf:{found[0]}@{folder.name}"
