"""The rules of the house, checked on the import graph (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src" / "evotrainer"
PEERS = ("harness", "judge", "agents", "trainers", "envs")
HEAVY = {"torch", "trl", "transformers", "peft", "accelerate", "ray", "safetensors", "tokenizers"}


def modules() -> list[Path]:
    return sorted(p for p in SRC.rglob("*.py"))


def layer(p: Path) -> str:
    return p.relative_to(SRC).parts[0].removesuffix(".py")


def imports(p: Path, *, top_level_only: bool = False) -> set[str]:
    """Dotted names a module imports; `from a import b` gives `a.b` as well as `a`."""
    tree = ast.parse(p.read_text(encoding="utf-8"))
    out: set[str] = set()
    nodes = ast.walk(tree)
    if top_level_only:
        deferred = {
            id(n)
            for f in ast.walk(tree)
            if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))
            or (isinstance(f, ast.If) and "TYPE_CHECKING" in ast.unparse(f.test))
            for n in ast.walk(f)
        }
        nodes = (n for n in ast.walk(tree) if id(n) not in deferred)
    for n in nodes:
        if isinstance(n, ast.Import):
            out |= {a.name for a in n.names}
        elif isinstance(n, ast.ImportFrom):
            base = n.module or ""
            if n.level:
                parts = ("evotrainer", *p.relative_to(SRC).with_suffix("").parts)[: -n.level]
                base = ".".join((*parts, base)) if base else ".".join(parts)
            out.add(base)
            out |= {f"{base}.{a.name}" for a in n.names}
    return out


def ours(names: set[str]) -> set[str]:
    return {n.split(".")[1] for n in names if n.startswith("evotrainer.")}


def test_the_import_graph_is_really_read() -> None:
    assert ours(imports(SRC / "envs" / "base.py")) == {"errors", "records"}
    assert "records" in {layer(p) for p in modules()}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SRC)))
def test_layers_import_only_what_they_may(path: Path) -> None:
    used = ours(imports(path)) - {layer(path), "errors", "__version__"}
    allowed = {
        "records": set(),
        "sandbox": {"records"},
        "harness": {"records"},
        "judge": {"records"},
        "agents": {"records"},
        "trainers": {"records", "hub"},
        "envs": {"records", "sandbox"},
        "executors": {"records", "envs", "trainers", "sandbox", "config", "harness"},
        "config": {"records", "hub"},
        "hub": set(),
        "errors": set(),
        "views": {"records", "judge", "config", "hub"},
        "importers": {"records"},
        "skills": {"records"},
        "tracking": {"records", "config"},
    }.get(layer(path))
    if allowed is None:  # loop, cli, api, testing: they wire the layers together
        return
    assert used <= allowed, f"{path.name} ({layer(path)}) may not import {sorted(used - allowed)}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SRC)))
def test_only_trainers_import_heavy_libraries_and_never_at_start(path: Path) -> None:
    heavy = {n for n in imports(path) if n.split(".")[0] in HEAVY}
    parts = path.relative_to(SRC).parts
    if parts[0] == "trainers":
        if len(parts) < 3 or parts[-1] == "__init__.py":
            late = {n for n in imports(path, top_level_only=True) if n.split(".")[0] in HEAVY}
            assert not late, f"{path.name} imports {late} at start"
        return
    if parts == ("executors", "ray.py"):
        return
    if parts[:2] in (("verl", "plugins"), ("verl", "inside")):  # run by verl's own Python, imported by nothing of ours
        return
    assert not heavy, f"{path} imports {heavy}; only trainers may"


def test_trackers_clients_are_imported_when_they_are_written_to() -> None:
    clients = {"tensorboard", "trackio", "wandb", "mlflow", "datasets", "huggingface_hub", "math_verify", "peft"}
    for p in modules():
        own_process, own_stack = p.name == "latex_worker.py", p.parent.name == "trl"  # both are imported when needed
        if not (own_process or own_stack):
            early = {n for n in imports(p, top_level_only=True) if n.split(".")[0] in clients}
            assert not early, f"{p} imports {early} at start"


def test_verl_is_imported_by_its_own_python_only() -> None:
    for p in modules():
        if p.relative_to(SRC).parts[:2] in (("verl", "plugins"), ("verl", "inside")):
            continue
        names = imports(p)
        assert not {n for n in names if n.split(".")[0] in ("verl", "transfer_queue", "hydra", "omegaconf")}, p
        assert not {
            n for n in names if n.startswith(("evotrainer.extras.verl.plugins", "evotrainer.extras.verl.inside"))
        }, p


def test_views_are_deletable_leaves() -> None:
    for p in modules():
        if layer(p) in ("views", "cli", "api", "loop", "commands"):
            continue
        if p.relative_to(SRC).parts == ("audit", "quoted.py"):  # hands an audit to its view
            continue
        assert "views" not in ours(imports(p)), f"{p} depends on a view"


def test_agents_and_harness_never_read_sealed_splits() -> None:
    for p in modules():
        if layer(p) in ("agents", "harness"):
            text = p.read_text(encoding="utf-8")
            assert "sealed/" not in text and '"cert"' not in text, f"{p} speaks of the sealed splits"


def test_whatever_is_printed_passes_one_place() -> None:
    """Control characters of others' names must not reach a terminal: see `records/output.py`."""
    own = ("sandbox", "envs", "verl/inside", "verl/plugins", "records/output.py")  # scripts that run elsewhere
    for p in modules():
        if str(p.relative_to(SRC)).startswith(own):
            continue
        calls = [n.func for n in ast.walk(ast.parse(p.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
        if any(isinstance(f, ast.Name) and f.id == "print" for f in calls):
            assert "evotrainer.records.output.print" in imports(p), f"{p} prints with the builtin"
        if p.name != "console.py":
            made = any(isinstance(f, ast.Name) and f.id == "Console" for f in calls)
            assert not made or "evotrainer.records.console.Console" in imports(p), f"{p} opens a console of its own"
