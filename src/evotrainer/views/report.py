"""The report: one HTML file that opens offline, forbids itself the network, and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import StoreError
from evotrainer.records.findings import HealthReport
from evotrainer.records.text import counted
from evotrainer.views import plots, search, style, summary, text, trials
from evotrainer.views.advice import advice
from evotrainer.views.evidence import HealthReading
from evotrainer.views.fold import load_view
from evotrainer.views.glossary import GLOSSARY
from evotrainer.views.model import TRAININGS, RunView
from evotrainer.views.rollouts import rollout_entry, rounded

if TYPE_CHECKING:
    from jinja2 import Environment

ROLLOUT_BYTES = 1_500_000
"""Most JSON bytes of rollouts in one report; quoted rollouts come first."""

_SCRIPTS = ("vendor/uPlot.iife.min.js", "vendor/d3-hierarchy.min.js", "report.js")
_STYLES = ("vendor/uPlot.min.css", "report.css")
_MARKED = re.compile(
    r"<(pre|code|script|style|title|svg)\b.*?</\1>|>[^<]*(?:`[^<`]+`|evotrainer [a-z-]+ RUN)[^<]*", re.S
)
"""What stands as it is, or a text that holds words between backticks, or a command whose run is to be named."""


def write_report(run_folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a run, finished or not, and return its path (default `<run>/report.html`).

    The same ledger and rollouts give the same bytes. StoreError where there is no run or the file cannot be written.
    """
    folder = Path(run_folder)
    target = Path(out) if out is not None else folder / "report.html"
    return save(render(load_view(folder)), target, "give another path with --out")


def check_report(run_folder: Path | str) -> tuple[str, str]:
    """(problem, note) of a closed run's `report.html`: it is what the ledger gives, byte for byte,
    or why it was not compared."""
    folder = Path(run_folder)
    try:
        there = (folder / "report.html").read_bytes()
    except FileNotFoundError:
        return "", ""
    except OSError as e:
        return f"report.html cannot be read: {e.strerror}", ""
    view = load_view(folder)
    again = "`evotrainer report` writes it again"
    if view.closed is None:
        return "", ""
    if f'content="{generator()}"'.encode() not in there:
        return "", f"report.html was written by another version of evotrainer, or edited: not compared; {again}"
    if view.head.encode() not in there:
        return "", f"report.html is older than the ledger: not compared; {again}"
    same = render(view).encode("utf-8", "replace") == there
    return ("", "") if same else (f"report.html does not say what the ledger gives: it was edited; {again}", "")


@cache
def generator() -> str:
    """`evotrainer <version> <hash of all that makes the page>`: pages of equal generators and ledgers are equal."""
    from evotrainer import __version__

    root = Path(str(resources.files("evotrainer.views")))
    made = hashlib.sha256()
    for p in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".j2", ".js", ".css")):
        made.update(p.read_bytes())
    return f"evotrainer {__version__} {made.hexdigest()[:16]}"


def save(page: str, target: Path, advice: str) -> Path:
    """Write a page whole or not at all; StoreError, with the advice, where that fails."""
    part = target.with_name(target.name + ".part")
    try:
        part.write_bytes(page.encode("utf-8", "replace"))
        os.replace(part, target)
    except OSError as e:
        raise StoreError(f"cannot write {target}: {e.strerror}; {advice}") from e
    return target


def render(view: RunView) -> str:
    """The page as text."""
    shown = rollout_data(view)
    data = {
        "tree": tree_data(view),
        "curves": curve_data(view),
        "compare": compare_data(view),
        "rollouts": shown,
        "weights": weights(view),
    }
    return fill(
        "report.html.j2",
        data,
        view=view,
        run=shlex.quote(text.one_line(view.opened.run)) if view.opened else "RUN",
        shown={i: i for i in shown},
        effect_axis=plots.effect_axis(view),
        score_axis=plots.score_axis(view),
        cost=plots.cost_points(view),
        summary=summary,
        advice=advice,
        search=search,
        trials=trials,
        glossary=GLOSSARY,
        what="report",
    )


def fill(template: str, data: dict[str, Any], scripts: tuple[str, ...] = _SCRIPTS, **context: Any) -> str:
    """A template of the page's frame, with its styles, scripts, their policy, and the data they draw."""
    from markupsafe import Markup, escape

    codes, styles = [_asset(n) for n in scripts], [_asset(n) for n in _STYLES]
    page = (
        _environment()
        .get_template(template)
        .render(
            csp=policy(codes, styles),
            generator=generator(),
            scripts=[Markup(s) for s in codes],
            styles=[Markup(s) for s in styles],
            data=Markup(text.script_json(data)),
            **context,
        )
    )
    run = escape(context.get("run", "RUN"))
    return _MARKED.sub(lambda m: m[0] if m[1] else _marked(text.of_run(m[0], run)), page)


def _marked(sentence: str) -> str:
    """Words between backticks as code."""
    return re.sub(r"`([^<`]+)`", r"<code>\1</code>", sentence)


def policy(scripts: list[str], styles: list[str]) -> str:
    """Content security policy: no network, and only the very scripts and styles written here, by hash."""
    return "; ".join(
        (
            "default-src 'none'",
            "script-src " + " ".join(map(_csp_hash, scripts)),
            "style-src " + " ".join(map(_csp_hash, styles)),
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _csp_hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    """An asset's text; browsers hash script elements after turning CRLF into LF, so do we."""
    found = resources.files("evotrainer.views").joinpath("assets", *name.split("/"))
    return found.read_text(encoding="utf-8").replace("\r\n", "\n")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("evotrainer.views", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    own = (text.percent, text.confidence, text.points, text.number, text.duration, text.value, clock, counted)
    env.filters |= {f.__name__: f for f in own} | {"line": text.one_line}
    env.globals |= {
        "point_range": text.point_range,
        "base_told": text.base_told,
        "change_of": summary.change_of,
        "BRIEF": style.BRIEF,
        "PURPOSE": style.PURPOSE,
        "change": text.change,
    }
    return env


def _finalize(x: Any) -> Any:
    """Every plain string that reaches the page has its control characters made visible; escaping follows."""
    from markupsafe import Markup

    if x is None:
        return ""
    return text.clean(x) if isinstance(x, str) and not isinstance(x, Markup) else x


def clock(time: Any) -> str:
    """`2026-11-21 10:04:31 UTC` from the ledger's ISO time."""
    return str(time or "").replace("T", " ")[:19] + (" UTC" if time else "")


# data for the scripts ------------------------------------------------------------------------------------------------


def tree_data(view: RunView) -> list[dict[str, Any]]:
    """Nodes for the lineage tree; the root is the base policy."""
    base = next((b for b in view.branches.values() if b.recipe is None), None)
    score = base.mean("search") if base else None
    sha = view.opened.base_policy.get("sha256", "") if view.opened else ""
    sub = f"search {text.percent(score)}" if score is not None else f"weights {sha[:8]}" if sha else ""
    nodes: list[dict[str, Any]] = [
        {
            "id": base.name if base else "",
            "parent": None,
            "kind": "base",
            "title": base.name if base else "base",
            "change": "policy before RL",
            "sub": sub,
        }
    ]
    path = {b.name for b in view.path(view.champion)}
    for b in view.branches.values():
        if b.recipe is None:
            continue
        effect = b.effect
        score = b.mean("search")
        nodes.append(
            {
                "id": b.name,
                "parent": b.parent if b.parent in view.branches else nodes[0]["id"],
                "kind": b.status,
                "title": b.name + (f" · {b.version}" if b.version else ""),
                "change": text.one_line(summary.change_of(b), 80),
                "sub": f"{text.points(effect.mean)} pt {text.point_range(effect.low, effect.high)}"
                if effect
                else f"search {text.percent(score)}"
                if score is not None
                else "",
                "about": text.one_line(f"{b.name}: {summary.change_of(b)}. Status: {b.status}", 300),
                "on_path": b.name in path,
                "champion": b.name == view.champion,
            }
        )
    return nodes


def curve_data(view: RunView) -> dict[str, Any]:
    """Branch -> its trials' curves as columns, and the branch it is compared with."""
    out: dict[str, Any] = {}
    for b in view.branches.values():
        trials = []
        for t in b.trials:
            if t.purpose not in TRAININGS:
                continue
            points = t.finished.curve if t.finished else ()
            if not points:
                continue
            rows = with_readings([with_gap(p, view.proxy) for p in points], t.finished.health if t.finished else ())
            names = sorted({k for p in rows for k in p if k != "step"})
            trials.append(
                {
                    "seed": t.seed,
                    "id": t.id,
                    "x": [p.get("step", i + 1) for i, p in enumerate(rows)],
                    "y": {n: [rounded(p.get(n)) for p in rows] for n in names},
                }
            )
        if trials:
            out[b.name] = {"parent": b.parent, "trials": trials}
    return out


def with_readings(rows: list[dict[str, float]], health: Sequence[HealthReport]) -> list[dict[str, float]]:
    """A trial's points with what the harness read of the training at some of the steps, as `harness: <metric>`."""
    places = {int(p.get("step", i + 1)): p for i, p in enumerate(rows)}
    shift = 0 if 0 in places else 1
    for r in (HealthReading.of(None, h) for h in health):
        point = places.get(r.step - 1 + shift)
        if r.split == "train" and point is not None:
            point |= {f"harness: {m.name}": m.value for m in r.report.metrics if m.value is not None}
    return rows


def with_gap(point: Mapping[str, float], proxy: tuple[str, str] | None) -> dict[str, float]:
    """A curve's point with `proxy_gap`, where the trainer logged both components (`rewards/<name>/mean`)."""
    out = dict(point)
    if proxy:
        pair = [point.get(f"rewards/{c}/mean", point.get(c)) for c in proxy]
        if pair[0] is not None and pair[1] is not None:
            out.setdefault("proxy_gap", pair[0] - pair[1])
    return out


def compare_data(view: RunView) -> dict[str, Any]:
    """Branch -> what two branches are compared by: scores, recipe, and the means of what the harness read."""
    out: dict[str, Any] = {}
    for b in view.branches.values():
        rows = {
            "status": style.BRIEF[b.status],
            "search score": text.percent(b.mean("search")),
            "effect on gate": f"{text.points(b.effect.mean)} {text.point_range(b.effect.low, b.effect.high)}"
            if b.effect
            else "–",
            "CPU time": text.duration(b.cpu_s),
        }
        recipe = {k: text.value(x) for k, x in b.recipe.factors().items()} if b.recipe else {}
        read = {m.name: text.number(m.mean) for m in b.metrics if m.flag != "unseen"}
        out[b.name] = {"facts": rows, "recipe": recipe, "metrics": read}
    return out


def weights(view: RunView) -> dict[str, Mapping[str, float]]:
    return {b.name: dict(b.recipe.rewards) for b in view.branches.values() if b.recipe}


def rollout_data(view: RunView) -> dict[str, Any]:
    """Rollout id -> what the dialog shows, quoted ones first, up to ROLLOUT_BYTES of JSON."""
    quoted = [q.rollout for b in view.branches.values() for f in b.findings for q in f.quotes]
    quoted += [q.rollout for v in view.coevolution.versions for q in v.body.quotes]
    sampled = [i for b in view.branches.values() for i, _ in b.samples]
    out: dict[str, Any] = {}
    room = ROLLOUT_BYTES
    for rollout in dict.fromkeys(quoted + sampled):
        if rollout not in view.rollouts:
            continue
        entry = rollout_entry(view.rollouts[rollout])
        room -= len(text.script_json(entry))
        if room < 0:
            break
        out[rollout] = entry
    return out
