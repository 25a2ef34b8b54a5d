"""The report: one HTML file that opens offline, forbids itself the network, and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from evotrainer.errors import StoreError
from evotrainer.projections import text, words
from evotrainer.projections.caveats import caveat_line
from evotrainer.projections.run_facts import STATUS, VERDICT
from evotrainer.records.regular_file import read_bytes
from evotrainer.records.text import counted
from evotrainer.views import plots, search, style, summary, trials
from evotrainer.views.advice import advice
from evotrainer.views.first_screen import running, tiles, versions
from evotrainer.views.fold import load_view
from evotrainer.views.model import RunView
from evotrainer.views.report_data import deciding, page_data
from evotrainer.views.story import story, why_of

if TYPE_CHECKING:
    from jinja2 import Environment

_SCRIPTS = ("vendor/uPlot.iife.min.js", "vendor/d3-hierarchy.min.js", "report.js")
_STYLES = ("vendor/uPlot.min.css", "report.css")
_MARKED = re.compile(
    r"<(pre|code|script|style|title|svg)\b.*?</\1>|>[^<]*(?:`[^<`]+`|evotrainer [a-z-]+ RUN)[^<]*", re.S
)
"""What stands as it is, or a text that holds words between backticks, or a command whose run is to be named."""


@dataclass(frozen=True, slots=True)
class Served:
    """How a page is served: its styles and scripts lie beside it, and it knows all rollouts."""

    base: str
    """Path of the pages of one run, or audit, with `/` at both ends."""
    title: str
    styles: Sequence[str]
    scripts: Sequence[str]
    position: int = 0
    """Events of the ledger that the page knows."""
    live: bool = True
    """Does it follow what it shows?"""
    home: bool = True
    """Is there a page of all runs?"""
    actions: bool = False
    """May a reader answer what the run asks?"""

    def __contains__(self, rollout: object) -> bool:
        return True

    def link(self, rollout: str, span: str | None = None) -> tuple[str, str]:
        """(class, address) of a rollout, at the line where a span stands."""
        asked = f"?quote={quote(span[:400].encode('utf-8', 'replace'), safe='')}#hit" if span else f"#{quote(rollout)}"
        return "", f"{self.base}rollout/{quote(rollout, safe='')}{asked}"


@dataclass(frozen=True, slots=True)
class InPage:
    """The rollouts that a page of one file holds: name in a finding -> key in the page's data."""

    keys: Mapping[str, str]

    def __contains__(self, rollout: object) -> bool:
        return rollout in self.keys

    def link(self, rollout: str, span: str | None = None) -> tuple[str, str]:
        """(class, address): the class has it opened in the page's window."""
        return "ro", f"#ro-{self.keys[rollout]}"


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
        there = read_bytes(folder / "report.html")
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


ANOTHER_PATH = "give another path with --html"
"""Remedy where a page cannot be written."""


def save(page: str, target: Path, advice: str) -> Path:
    """Write a page whole or not at all; StoreError, with the advice, where that fails."""
    part = target.with_name(target.name + ".part")
    try:
        part.write_bytes(page.encode("utf-8", "replace"))
        os.replace(part, target)
    except OSError as e:
        raise StoreError(f"cannot write {target}: {e.strerror}; {advice}") from e
    return target


def render(
    view: RunView,
    served: Served | None = None,
    template: str = "report.html.j2",
    data: dict[str, Any] | None = None,
    **more: Any,
) -> str:
    """The page of a run as text: one file with its data inside, or as it is served; `data`: where it was made before;
    `more`: names of the template."""
    data = page_data(view, live=served is not None) if data is None else data
    return fill(
        template,
        data,
        served=served,
        view=view,
        run=shlex.quote(text.one_line(view.opened.run)) if view.opened else "RUN",
        shown=served or InPage({i: i for i in data["rollouts"]}),
        tiles=tiles(view),
        running=running,
        versions=versions,
        effect_axis=plots.effect_axis(view),
        score_axis=plots.score_axis(view),
        colours=data["colours"],
        summary=summary,
        story=story,
        deciding=deciding,
        advice=advice,
        caveat_line=caveat_line,
        search=search,
        trials=trials,
        what="report",
        **more,
    )


def fill(
    template: str,
    data: dict[str, Any],
    scripts: tuple[str, ...] = _SCRIPTS,
    served: Served | None = None,
    **context: Any,
) -> str:
    """A template of the page's frame, with its styles, scripts, their policy, and the data they draw; the styles and
    scripts of a served page, and its policy, come beside it."""
    from markupsafe import Markup, escape

    codes, styles = ([], []) if served else ([_asset(n) for n in scripts], [_asset(n) for n in _STYLES])
    page = (
        _environment()
        .get_template(template)
        .render(
            served=served,
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
        "base_label": text.base_label,
        "STATUS": STATUS,
        "VERDICT": VERDICT,
        "PURPOSE": style.PURPOSE,
        "change": text.change,
        "words": words,
        "why_of": why_of,
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
