"""The report of an audit: one HTML file in the style of the run report, for rollouts that anybody wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evotrainer.projections import text
from evotrainer.records.rollout import Rollout
from evotrainer.views import report
from evotrainer.views.audit_model import AuditPage, ReadingView, rank_of, view_of
from evotrainer.views.report_data import metric_labels
from evotrainer.views.rollouts import fitted_entry, rounded

ROLLOUTS = 200
"""Most rollouts in one file; those that the most severe findings quote come first."""
ROLLOUT_CHARS = 20_000
ROLLOUT_BYTES = 8_000_000
"""Of JSON, all rollouts together: text outside ASCII takes six bytes a character."""
DETAILED = 80
"""Readings shown in full; of more, the most severe."""
LISTED = 500
"""Lines of a table of readings."""
SKIPPED = 200
CURVES = (
    "reward",
    "score",
    "*",
    "frac_reward_zero_std",
    "entropy",
    "completions/mean_length",
    "completions/clipped_ratio",
)
"""Curves drawn, in order; `*`: each reward component. Others can be chosen."""
COMPONENT_CURVES = 3
"""Those of a proxy pair first, then paid ones."""
Fetch = Callable[[int, Sequence[str]], Mapping[str, Rollout]]
"""(index of the source, names as quoted) -> those of the rollouts that are there, by name."""


def write_audit(audit: AuditPage, path: Path, *page: Any) -> Path:
    """Write the report of an audit to `path`: one file that opens offline and runs no script but its own. StoreError
    where it cannot be written; `page`: the rest as of `audit_page`."""
    return report.save(audit_page(audit, *page), Path(path), report.ANOTHER_PATH)


def audit_page(
    audit: AuditPage,
    fetch: Fetch | None = None,
    remedies: Mapping[str, Sequence[str]] | None = None,
    about: Mapping[str, str] | None = None,
    instruments: Sequence[str] = (),
    served: report.Served | None = None,
) -> str:
    """The report of an audit, as a file or as it is served.

    `fetch` gives the quoted rollouts in full; `remedies` and `about` say for each kind of bottleneck which factors of a
    recipe may help and what it is; `instruments` which of them looked, and at how much.
    """
    view = view_of(audit, remedies or {}, about or {})
    ranked = view.ranked
    detailed = ranked[:DETAILED]
    rollouts, keys = quoted(detailed, fetch) if fetch is not None and served is None else ({}, {})
    drawn: dict[str, Any] = {}
    weights: dict[str, dict[str, float]] = {}
    for v in detailed:
        if curve := curves(v.reading.curve, v.reading.assumed):
            drawn[v.id] = curve
        if paid := v.reading.assumed.get("paid"):
            weights[v.id] = dict(paid)
    data = {"curves": drawn, "rollouts": rollouts, "weights": weights, "words": metric_labels(drawn, {})}
    return report.fill(
        "audit.html.j2",
        data,
        ("vendor/uPlot.iife.min.js", "report.js"),
        served,
        what="audit",
        view=view,
        ranked=ranked,
        instruments=instruments,
        detailed=detailed if len(audit.sources) > 1 else [v for v in view.readings if v in detailed],
        shown={v.index: served or report.InPage(keys.get(v.index, {})) for v in detailed},
        curves=drawn,
        limits={"skipped": SKIPPED, "listed": LISTED, "rollouts": ROLLOUTS, "chars": ROLLOUT_CHARS},
    )


def quoted(readings: Sequence[ReadingView], fetch: Fetch) -> tuple[dict[str, Any], dict[int, dict[str, str]]]:
    """Quoted rollouts by their key in the page, and for each source: name as quoted -> key.

    First come the rollouts of the most severe findings, and of each finding its first.
    """
    spans: dict[tuple[int, str], tuple[str, list[str]]] = {}
    quotes = [(rank_of(f.severity), i, v, q) for v in readings for f in v.findings for i, q in enumerate(f.quotes)]
    for _, _, v, q in sorted(quotes, key=lambda x: x[:2]):
        if q.rollout:
            spans.setdefault((v.index, q.rollout), (v.id, []))[1].append(q.text)
    wanted = list(spans)[:ROLLOUTS]
    sources = dict.fromkeys(index for index, _ in wanted)
    found = {index: fetch(index, [name for i, name in wanted if i == index]) for index in sources}
    entries: dict[str, Any] = {}
    keys: dict[int, dict[str, str]] = {}
    room = ROLLOUT_BYTES
    for index, name in wanted:
        if name not in found[index]:
            continue
        origin, texts = spans[index, name]
        entry = fitted_entry(found[index][name], ROLLOUT_CHARS, texts) | {"origin": origin}
        room -= len(text.script_json(entry))
        if room < 0:
            break
        key = f"r{len(entries)}"
        entries[key] = entry
        keys.setdefault(index, {})[name] = key
    return entries, keys


def curves(points: Sequence[Mapping[str, float]], assumed: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """A learning curve for the page's charts; None where there is none."""
    if len(points) < 2:
        return None
    names = sorted({k for p in points for k in p if k != "step"})
    telling = [f"rewards/{c}/mean" for key in ("proxy", "paid") for c in (assumed or {}).get(key) or ()]
    parts = [n for n in names if n.startswith("rewards/") and n.endswith("/mean")]
    parts = list(dict.fromkeys([*(n for n in telling if n in parts), *parts]))[:COMPONENT_CURVES]
    first = [n for c in CURVES for n in (parts if c == "*" else [c]) if n in names]
    columns = {n: [rounded(p.get(n)) for p in points] for n in names}
    if not first:
        return None
    steps = [p.get("step", i + 1) for i, p in enumerate(points)]
    return {"parent": None, "first": first, "trials": [{"label": "all rollouts", "x": steps, "y": columns}]}
