"""A model card (README.md of a Hugging Face folder) from what the run folder says: recipe, lineage, certificate,
evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evotrainer.errors import MissingDependencyError, install
from evotrainer.projections.text import base_label, last_part, one_line, percent, value
from evotrainer.records.events import CertRow
from evotrainer.records.hub import looks_like_id
from evotrainer.records.recipe import Recipe, diff
from evotrainer.records.scaffold import slots_of
from evotrainer.records.text import counted
from evotrainer.views import summary
from evotrainer.views.model import BranchView, RunView


def model_card(
    view: RunView,
    branch: str,
    *,
    trial: str,
    seed: int,
    rule: str,
    certified: bool,
    invalid: str,
    caveats: Sequence[str],
    sha256: str,
    base: str,
    name: str,
    worse: str = "",
) -> str:
    """The card as Markdown with its YAML head. MissingDependencyError without huggingface_hub.

    `name`: of the exported folder. `rule`: why this training. `base`: base model's id or path where one is known.
    `worse`: that the certificate finds it worse than the base policy, and by how much; empty where it does not.
    """
    b = view.branches.get(branch)
    status, banner = _status(view, invalid, worse, certified, caveats)
    body = [
        f"# {_md(name)}",
        "",
        *([f"> {banner}", ""] if banner else []),
        f"Branch `{branch}` of the run `{_md(_run(view))}`, task `{_md(view.opened.task if view.opened else '')}`: "
        "trained by reinforcement learning and judged by [EvoTrainer](https://arxiv.org/abs/2606.03108).",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        f'model = AutoModelForCausalLM.from_pretrained("{_quoted(name)}")',
        f'tokenizer = AutoTokenizer.from_pretrained("{_quoted(name)}")',
        "```",
        "",
        *_certificate(view),
        *_lineage(view, branch),
        *_recipe(view, b),
        *_evidence(view, b, trial, seed, rule, sha256),
    ]
    head = _head(view, branch, status, base, certified and not invalid, name)
    return f"---\n{head}\n---\n\n" + "\n".join(body).rstrip() + "\n"


def _run(view: RunView) -> str:
    return view.opened.run if view.opened else ""


def _head(view: RunView, branch: str, status: str, base: str, measured: bool, name: str) -> str:
    try:
        from huggingface_hub import EvalResult, ModelCardData
    except ImportError:
        raise MissingDependencyError(f"a model card needs huggingface_hub; {install('local')}") from None
    results = []
    caveat = "; with a caveat, see the card" if "caveat" in status else ""
    if measured and view.certified:
        for row in (r for r in view.certified.rows if r.branch == branch):
            results.append(
                EvalResult(
                    task_type="text-generation",
                    dataset_type="evotrainer",
                    dataset_name=f"{view.opened.task if view.opened else ''} (cert split)",
                    dataset_split="cert",
                    metric_type="pass@1",
                    metric_name=f"share of attempts solved, mean of {counted(len(row.seeds), 'training')}{caveat}",
                    metric_value=round(row.score, 4),
                )
            )
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["evotrainer", "reinforcement-learning", status.replace(" ", "-").lower()],
        model_name=name,
        eval_results=results[-1:] or None,
        base_model=_hub_base(view, base),
        license=(view.opened.base_policy.get("gguf_license") if view.opened else None) or None,
    )
    return str(data.to_yaml())


def _hub_base(view: RunView, base: str) -> str | None:
    """Hub id of the base model: the ledger's, else that which an adapter names; None where it is none."""
    hub_id = view.opened.base_policy.get("id") if view.opened else None
    if hub_id is None and base and not Path(base).exists() and (found := looks_like_id(base)):
        hub_id = found[0]
    return hub_id


def _status(view: RunView, invalid: str, worse: str, certified: bool, caveats: Sequence[str]) -> tuple[str, str]:
    """In a few words, and the sentence at the top of the card."""
    if invalid:
        return "INVALID", f"**INVALID.** {_md(invalid)} Its scores do not measure what the task asks for."
    if worse:
        return "worse than base", f"**Worse than its base policy:** {_md(worse)}. Use the base policy."
    if certified and caveats:
        return "certified with a caveat", f"**Certified with a caveat:** {_md('; '.join(caveats), 1500)}."
    if certified:
        return "certified", ""
    why = "the certificate is about other branches" if view.certified else "the run has not come to its certification"
    return "not certified", f"**Not certified:** {why}. What it scores on unseen tasks is not known."


def _certificate(view: RunView) -> list[str]:
    if not view.certified:
        return []
    out = [
        "## Certification",
        "",
        "Share of attempts solved on the cert split, which was read once, after all decisions. Of trained policies: "
        "the mean over the seeds, each trained anew; this folder holds one of them.",
        "",
        "| policy | branch | seeds | score | 95% interval | per seed | greedy |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in view.certified.rows:
        each = ", ".join(percent(x) for x in r.per_seed)
        seeds = ", ".join(map(str, r.seeds))
        out.append(
            f"| {_md(r.name)} | {r.branch} | {seeds} | {percent(r.score)}{_at(r)} | {percent(r.low)} to "
            f"{percent(r.high)} | {each} | {percent(r.greedy)} |"
        )
    facts = (*view.facts.of_kinds("comparison"), *view.facts.of(view.champion).of_kinds("reader"))
    return [*out, "", *(f"- {_md(f.text)}" for f in facts), ""]


def _at(r: CertRow) -> str:
    """The deployment temperature that a row was sampled at, where it is not the run's."""
    return "" if r.temperature is None else f" at temperature {r.temperature:g}"


def _lineage(view: RunView, branch: str) -> list[str]:
    path = view.path(branch)
    if not path or branch == "base":
        return ["## Lineage", "", "The base policy of the run; nothing was trained.", ""]
    out = [
        "## Lineage",
        "",
        "Each step changed one factor of its parent's recipe and was trained from the base policy on.",
        "",
    ]
    for b in path:
        if b.recipe is None:
            continue
        version = f" ({b.version})" if b.version else ""
        if b.intervention is None:
            out.append(f"1. `{b.name}`{version}: the starting recipe")
            continue
        changed = "; ".join(f"{k}: {value(o)} → {value(n)}" for k, (o, n) in b.recipe_diff.items())
        out.append(f"1. `{b.name}`{version}: {_md(changed)}. {_md(b.intervention.hypothesis)}")
        out += [
            f"   {f.label.capitalize()}: {_md(f.text)}." for f in b.facts.of_kinds("continued", "verdict", "effect")
        ]
    return [*out, ""]


def _recipe(view: RunView, b: BranchView | None) -> list[str]:
    if b is None or b.recipe is None:
        return []
    start = view.start
    changed = diff(start.recipe, b.recipe) if start and start.recipe and start is not b else {}
    changes = [f"- {k}: {_md(value(o))} → {_md(value(n))}" for k, (o, n) in changed.items()] or [
        "The starting recipe itself."
    ]
    recipe = json.dumps(b.recipe.model_dump(mode="json"), indent=1)
    return [
        "## Recipe",
        "",
        f"Hash `{b.recipe_hash}`. Against the starting recipe:",
        "",
        *changes,
        *(f"- source of the reward component `{k}`: [{_md(k)}.py](rewards/{k}.py)" for k in b.recipe.written),
        *(f"- source of the hook `{k}`: [{_md(k)}.py](hooks/{k}.py)" for k in b.recipe.hooks),
        *_scaffold(view, b.recipe),
        "",
        "<details><summary>whole recipe</summary>",
        "",
        "```json",
        recipe,
        "```",
        "",
        "</details>",
        "",
    ]


def _scaffold(view: RunView, recipe: Recipe) -> list[str]:
    """The texts that the policy was trained and certified with: who serves it without them serves another one."""
    if not recipe.scaffold:
        return []
    about = {s.name: s.about for s in slots_of(view.state.environment)}
    return [
        "",
        "**Serve it with its scaffold.** It was trained and certified with these texts; without them its scores are "
        "not known. They are in [scaffold.json](scaffold.json); `served` there says which of them the chat template of "
        "this folder puts in by itself.",
        "",
        *(f"- `{k}` ({_md(about.get(k, ''))}): {_md(v, 4000)}" for k, v in sorted(recipe.scaffold.items())),
    ]


def _evidence(view: RunView, b: BranchView | None, trial: str, seed: int, rule: str, sha256: str) -> list[str]:
    o = view.opened
    rows: list[tuple[str, Any]] = [
        ("trial", f"`{trial}`, seed {seed}: {rule}"),
        ("policy's SHA-256", f"`{sha256}`"),
    ]
    if o:
        env = o.environment
        rows += [
            ("environment", f"{env.get('name')} {env.get('version', '')}, hash `{env.get('hash')}`"),
            ("splits", ", ".join(f"{k} {v}" for k, v in (env.get("splits") or {}).items())),
        ]
        if data := env.get("data"):
            revision = f", revision `{data['revision']}`" if data.get("revision") else ""
            rows.append(("data set", f"`{last_part(data.get('source'))}`, format {data.get('format')}{revision}"))
        rows += [
            ("base policy", f"`{base_label(o.base_policy)}` `{o.base_policy.get('sha256', '')[:16]}`"),
            ("task file's hash", f"`{o.task_hash}`"),
            *((f.label, f.text) for f in view.facts.of_kinds("tasks", "sandbox")),
            ("evotrainer", o.version),
        ]
    if view.coevolution.versions:
        rows.append(("harness", view.coevolution.line()))
    rows += [(f.label, f.text) for f in (*view.facts.of_kinds("noise"), *(b.facts.of_kinds("audit") if b else ()))]
    path = ("", *(x.name for x in view.path(b.name if b else "")))
    rows += [(f"{f.about} {f.label}".strip(), f.text) for x in path for f in view.facts.of(x).unmeasured]
    spent = [f"{name} {used}" for name, used, *_ in summary.cost_lines(view)]
    rows.append(("cost of the run", ", ".join(spent)))
    rows.append(("ledger", f"{view.event_count} events, head `{view.head}`"))
    table = [f"| {_md(k)} | {_md(v)} |" for k, v in rows]
    return [
        "## Evidence",
        "",
        "| | |",
        "|---|---|",
        *table,
        "",
        "To verify, with the run folder: every decision is computed again from its rollouts, "
        "and the hash chain must hold this head.",
        "",
        "```",
        f"evotrainer verify {_run(view)} --head {view.head[:16]}",
        "```",
        "",
        "What was measured is this task's splits; nothing is claimed beyond them. "
        "`evotrainer.json` says the same for machines.",
    ]


def evidence(view: RunView, branch: str, **facts: Any) -> dict[str, Any]:
    """The card's content for machines; `facts`: what else is known."""
    b = view.branches.get(branch)
    return {
        "run": _run(view),
        "branch": branch,
        **facts,
        "recipe": b.recipe.model_dump(mode="json") if b and b.recipe else None,
        "recipe_hash": b.recipe_hash if b else "",
        "lineage": [
            {
                "branch": x.name,
                "version": x.version,
                "intervention": x.intervention.model_dump(mode="json") if x.intervention else None,
                "verdict": x.verdict.model_dump(mode="json") if x.verdict else None,
                "audits": [a.model_dump(mode="json") for a in x.audits],
            }
            for x in view.path(branch)
        ],
        "certified": view.certified.model_dump(mode="json") if view.certified else None,
        "opened": _opened(view),
        "ledger": {"events": view.event_count, "head": view.head},
    }


def _opened(view: RunView) -> dict[str, Any] | None:
    """How the run began, without paths of the machine it ran on."""
    if view.opened is None:
        return None
    body = view.opened.model_dump(mode="json")
    body["base_policy"]["path"] = last_part(body["base_policy"].get("path"))
    environment = body["environment"]
    environment["files"] = {last_part(k): v for k, v in environment.get("files", {}).items()}
    if isinstance(environment.get("data"), dict):
        environment["data"]["source"] = last_part(environment["data"].get("source"))
    return body


def _md(text: Any, most: int = 600) -> str:
    """One line of limited length without markup of tables, HTML or links."""
    line = one_line(text, most).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return line.replace("](", "]\\(")


def _quoted(name: str) -> str:
    return one_line(name).replace("\\", "\\\\").replace('"', '\\"')
