"""The seam of a run: only `RunContext.record` writes, nobody keeps a run; and no two public classes share a name."""

from __future__ import annotations

import ast
import re

import pytest

from tests.test_architecture import modules, tree

APPENDING = {"run.context", "records.ledger", "run.starting"}
FOLDING = {
    "projections.state",
    "run.context",
    "verify.report",
    "views.fold",
    "projections.predictions",
}


def seam_breaks(module: str, code: ast.Module) -> list[str]:
    """What in a module writes a run's ledger or state past `RunContext.record`, or keeps a run."""
    out = []
    for n in ast.walk(code):
        if isinstance(n, ast.Attribute):
            on, last = ast.unparse(n.value), ast.unparse(n.value).split(".")[-1].strip("_")
            writes = (n.attr == "append" and last == "ledger") or (
                n.attr in ("journal", "_walk_to", "_walked") and on != "self"
            )
            if writes and module not in APPENDING:
                out.append(f"writes a ledger by {on}.{n.attr}")
            folds = last == "state" and (n.attr == "apply" or (n.attr[0] == "_" and n.attr[1] != "_"))
            if folds and module not in FOLDING:
                out.append(f"reaches into a state by {on}.{n.attr}")
            if n.attr == "state" and isinstance(n.ctx, ast.Store) and module not in FOLDING:
                out.append(f"sets {on}.state")
        if isinstance(n, ast.Call):
            called, given = ast.unparse(n.func), [ast.unparse(x) for x in (*n.args, *(k.value for k in n.keywords))]
            named = {*given, *(repr(k.arg) for k in n.keywords)} & {"'state'", "ctx.state", "self.state"}
            if called in ("setattr", "object.__setattr__", "replace", "dataclasses.replace") and named:
                out.append(f"sets a state by {called}")
            # an event by its kind, key and body, under whatever name the ledger goes
            if called.endswith(".append") and len(n.args) == 3 and module not in APPENDING:
                out.append(f"writes a ledger by {called}")
        if isinstance(n, ast.Assign | ast.AnnAssign) and module.startswith("run."):
            targets = n.targets if isinstance(n, ast.Assign) else [n.target]
            typed = isinstance(n, ast.AnnAssign) and "RunContext" in ast.unparse(n.annotation)
            held = n.value is not None and ast.unparse(n.value) in ("ctx", "context")
            if typed or (held and any(isinstance(t, ast.Attribute) for t in targets)):
                out.append(f"keeps a run in {ast.unparse(targets[0])}")
        if isinstance(n, ast.FunctionDef) and n.name == "__init__" and module.startswith("run."):
            given = [ast.unparse(a.annotation) for a in n.args.args if a.annotation]
            out += ["a class is made from a run"] * any("RunContext" in x for x in given)
    return out


def test_only_a_record_changes_a_run() -> None:
    """A ledger is appended to, and a state moved on, by `RunContext.record` and by who reads a whole ledger; no step
    keeps a context, and none keeps a state of its own."""
    rooms = ("run", "rules", "verify", "projections", "api", "views", "cli", "studies", "agents", "judge")
    broken = {m: seam_breaks(m, tree(p)) for m, p in modules().items() if m.split(".")[0] in rooms}
    assert not {m: found for m, found in broken.items() if found}


@pytest.mark.parametrize(
    "planted",
    [
        "ctx.ledger.append('gap', key, body)",
        "ctx.journal.step('x', 'gap', make)",
        "book = ctx.ledger\nbook.append('gap', key, body)",
        "ctx._walk_to(event)",
        "ctx.state.apply(event)",
        "fold = ctx.state.apply",
        "ctx.state._branches['b9'] = None",
        "ctx.state = other",
        "object.__setattr__(ctx.state, 'champion', 'b1')",
        "setattr(ctx, 'state', other)",
        "dataclasses.replace(ctx, state=other)",
        "class Step:\n    ctx: RunContext",
        "class Step:\n    def __init__(self, run: RunContext) -> None:\n        self.r = run",
        "self.c: RunContext = ctx",
        "self.c = ctx",
    ],
)
def test_the_seam_is_seen_however_it_is_broken(planted: str) -> None:
    assert seam_breaks("run.gaps", ast.parse(planted)), planted


WORDS = [
    "intended",
    "finished",
    "opened",
    "read",
    "judged",
    "topup",
    "audited",
    "invalidated",
    "reestimated",
    "skill",
    "settled",
    "diagnosed",
    "proposed",
    "backtested",
    "refused",
    "planned",
    "gate",
    "escalated",
    "gap",
    "resumed",
    "probes",
    "searched",
    "noise",
    "harness",
]
PARTS = re.compile(rf"(^|/)({'|'.join(WORDS)})(/|$)|^-s$|^-(cert|rest|open)$|^-recheck")


def made_ids(module: str, code: ast.Module) -> list[str]:
    """Keys of events and ids of trials that a module puts together by itself."""
    out = []
    for n in ast.walk(code):
        texts: list[str] = []
        if isinstance(n, ast.JoinedStr | ast.BinOp):
            values = n.values if isinstance(n, ast.JoinedStr) else [n.left, n.right]
            texts = [v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)]
            # b1, p3, v2, h1, r4: one letter and a number
            if isinstance(n, ast.JoinedStr) and len(values) == 2 and texts and re.fullmatch("[bpvhr]", texts[0]):
                out += [ast.unparse(n)] * (module.split(".")[0] in ("run", "verify", "rules", "projections"))
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("format", "join"):
            given = [n.func.value, *n.args, *(x for a in n.args for x in getattr(a, "elts", ()))]
            said = [v.value for v in given if isinstance(v, ast.Constant) and isinstance(v.value, str)]
            slashed = any("/" in x for x in said)
            texts = [w for x in said for w in x.split("{}")] if slashed else []
        out += [ast.unparse(n) for text in texts if PARTS.search(text)]
    return out


def test_keys_and_ids_are_made_in_one_place() -> None:
    """Who writes `f"{branch}/judged"` writes a contract a second time: `records/keys.py` has them all."""
    made = {m: made_ids(m, tree(p)) for m, p in modules().items() if m != "records.keys"}
    assert not {m: found for m, found in made.items() if found}


@pytest.mark.parametrize(
    "planted",
    [
        'f"{b}/judged"',
        '"{}/judged".format(b)',
        '"/".join((b, "judged"))',
        'f"r{n}/probes/{i}"',
        'f"{t}-rest"',
        'f"{b}-s{seed}"',
        'b + "/read"',
        'f"b{len(branches)}"',
    ],
)
def test_an_id_made_elsewhere_is_seen(planted: str) -> None:
    assert made_ids("run.gaps", ast.parse(planted)), planted


def test_no_two_public_classes_share_a_name() -> None:
    """A reader who meets `Entry` must not have to ask which."""
    where: dict[str, list[str]] = {}
    for m, p in modules().items():
        for n in tree(p).body:
            if isinstance(n, ast.ClassDef) and not n.name.startswith("_"):
                where.setdefault(n.name, []).append(m)
    assert not {name: found for name, found in where.items() if len(found) > 1}
