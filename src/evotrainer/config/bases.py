"""Base policies, by what `policy.base` says."""

from __future__ import annotations

from pathlib import Path

from evotrainer.errors import ConfigError
from evotrainer.records.hub import looks_like_id, parse_pinned, snapshot
from evotrainer.trainers.gguf import gguf_folder, is_gguf


def resolve_base(base: str) -> Path | None:
    """Folder of a base policy; None for `warm-start`; ConfigError where there is none."""
    if base == "warm-start":
        return None
    if base.startswith("builtin:"):
        p = Path(__file__).parents[1] / "assets" / base.removeprefix("builtin:")
        if not (p / "config.json").is_file():
            known = sorted(x.name for x in p.parent.glob("*") if (x / "config.json").is_file())
            raise ConfigError(f"no base policy {base!r} ships with the package; there are: {known or 'none'}")
        return p
    if is_gguf(base):
        return gguf_folder(base)
    if (pinned := parse_pinned(base)) is not None:
        return snapshot(*pinned)
    p = Path(base).expanduser().resolve()
    if not (p / "config.json").is_file():
        if (found := looks_like_id(base)) is not None:
            return snapshot(*found)
        raise ConfigError(f"policy.base {base!r}: no config.json there; give a folder transformers can load")
    return p
