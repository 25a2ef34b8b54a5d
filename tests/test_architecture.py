"""The rules of the house, checked on the import graph (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.import_graph import SRC, imports, module_graph, modules, rings, room, room_graph, tree

ALLOWED = {
    # a row for every room: what it imports of the others, no more and no less
    "": "",
    "errors": "",
    # the one place that imports another room by a string: what a task file chooses by name
    "registry": "errors",
    "records": "errors",
    # the arithmetic of a step, which trainers, replays, verify and the verl plug-ins share
    "algorithm": "records",
    # the table of factors: what is known of each field of a recipe
    "factors": "errors records algorithm",
    # peers on the records: none knows another
    "sandbox": "errors records",
    "program_probes": "records sandbox",
    "config": "errors records factors trainers.gguf",
    "judge": "errors records",
    "importers": "errors records",
    "projections": "errors records",
    # peers on the projections
    "agents": "errors registry records factors algorithm projections",
    "skills": "errors records projections",
    "views": "errors records projections",
    #
    # harness: text, columns, instruments, what-if, evolving
    "harness.bottlenecks": "factors",
    "harness.text": "records",
    "harness.context": "records",
    "harness.render": "records harness.bottlenecks",
    "harness.code_reading": "records harness.text",
    "harness.columns": "errors records algorithm harness.text harness.code_reading",
    "harness.nominations": "records harness.columns",
    "harness.registry": "errors records harness.context harness.columns",
    "harness.diagnose": "records harness.context harness.bottlenecks harness.registry",
    "harness.coverage": "harness.context harness.columns harness.registry",
    "harness.layers": "records algorithm harness.context harness.text harness.columns harness.registry",
    "harness.metrics": "errors records harness.context harness.columns harness.registry harness.layers",
    "harness.detectors": "errors records algorithm harness.context harness.code_reading harness.columns "
    "harness.registry harness.layers",
    "harness.whatif": "errors records factors algorithm harness.context harness.columns harness.detectors",
    "harness.evolving": "errors records harness.context harness.bottlenecks harness.text harness.columns "
    "harness.registry",
    "harness.versions": "errors records harness.context harness.columns harness.detectors harness.diagnose "
    "harness.evolving harness.metrics",
    "harness": "harness.columns harness.context harness.detectors harness.diagnose harness.bottlenecks "
    "harness.metrics harness.registry harness.render harness.versions harness.whatif",
    #
    # envs: the protocol, data, domains, environments by name
    "envs.base": "errors records",
    "envs.vocabulary": "",
    "envs.outcome": "errors envs.base envs.return_checks",
    "envs.slots": "errors records envs.base",
    "envs.trl_slots": "errors records envs.slots",
    "envs.simple": "errors records envs.base envs.callables envs.return_checks envs.slots envs.user_files",
    "envs.return_checks": "errors records envs.user_files",
    "envs.user_files": "errors records",
    "envs.callables": "errors records envs.user_files",
    "envs.components": "errors envs.callables envs.user_files",
    "envs.admission": "records sandbox",
    "envs.data": "errors records envs.base",
    "envs.code": "errors records sandbox program_probes envs.base envs.callables envs.slots "
    "envs.components envs.admission envs.data envs.vocabulary",
    "envs.reasoning_gym": "errors records envs.base envs.slots",
    "envs.verifiers": "errors records envs.base envs.slots",
    "envs.maths": "errors records envs.base envs.callables envs.slots envs.components envs.data "
    "envs.reasoning_gym envs.vocabulary",
    "envs.swe": "errors records sandbox envs.base envs.callables envs.slots envs.components "
    "envs.admission envs.data envs.vocabulary",
    "envs.trl_env": "errors records envs.base envs.callables envs.slots envs.trl_slots envs.user_files "
    "envs.data envs.return_checks",
    "envs.registry": "errors registry envs.base envs.outcome envs.user_files envs.components",
    "envs": "envs.outcome envs.registry",
    #
    # trainers: what trainers share, two trainers, trainers by name
    "trainers.base": "records factors trainers.schedule",
    "trainers.continued": "errors records trainers.base",
    "trainers.bases": "errors records trainers.gguf",
    "trainers.clock": "",
    "trainers.curriculum": "errors records algorithm",
    "trainers.hooks": "errors records trainers.curriculum",
    "trainers.chat": "errors records",
    "trainers.gguf": "errors records",
    "trainers.lora": "records",
    "trainers.averaging": "records",
    "trainers.rollouts": "errors records algorithm trainers.base trainers.curriculum",
    "trainers.replay": "records",
    "trainers.wordings": "errors trainers.base trainers.schedule",
    "trainers.groups": "records algorithm trainers.curriculum trainers.hooks trainers.rollouts trainers.wordings",
    "trainers.curve": "records algorithm trainers.groups",
    "trainers.schedule": "records",
    "trainers.phases": "errors records algorithm trainers.base trainers.curriculum trainers.rollouts "
    "trainers.groups trainers.schedule trainers.wordings",
    "trainers.embedded": "errors records algorithm trainers.base trainers.bases trainers.lora trainers.chat "
    "trainers.averaging trainers.clock "
    "trainers.curriculum trainers.rollouts trainers.hooks trainers.groups "
    "trainers.curve trainers.schedule trainers.phases trainers.replay trainers.wordings trainers.continued",
    "trainers.trl": "errors records factors algorithm trainers.base trainers.lora trainers.chat "
    "trainers.bases trainers.averaging trainers.clock "
    "trainers.curriculum trainers.rollouts trainers.hooks trainers.groups "
    "trainers.curve trainers.schedule trainers.phases trainers.replay trainers.wordings trainers.continued",
    # a user's own script: files in, files out; importers and curves are read through a registry
    "trainers.command": "errors registry records factors trainers trainers.base trainers.bases trainers.clock "
    "trainers.continued trainers.curriculum trainers.curve trainers.groups trainers.rollouts trainers.schedule",
    "trainers": "errors registry records factors trainers.base",
    #
    # executors: one trial is an environment, a trainer and a reading of the harness
    "executors.process": "records",
    "executors.devices": "",
    "executors.spec": "errors records config",
    "executors.data_keys": "errors records executors.spec",
    "executors.path_map": "records executors.spec",
    "executors.health": "records harness harness.columns executors.spec",
    "executors.scores": "errors records",
    "executors.start_checkpoint": "errors records trainers.continued",
    "executors.warm_start": "errors config envs.base envs.return_checks trainers trainers.base",
    "executors.written": "errors records sandbox envs.base envs.outcome harness harness.columns harness.whatif",
    "executors.worker": "errors records envs envs.base envs.user_files trainers trainers.base trainers.bases "
    "executors.process executors.spec executors.path_map executors.health executors.scores executors.warm_start "
    "executors.start_checkpoint executors.written executors.data_keys executors.devices trainers.continued "
    "trainers.clock",
    "executors.forkserver": "records harness.columns envs.registry trainers executors.process executors.spec "
    "executors.health executors.worker",
    "executors.local": "errors records executors.process executors.spec executors.forkserver executors.data_keys",
    "executors.inputs": "errors records trainers.bases executors.path_map executors.spec",
    "executors.ray": "errors records config executors executors.inputs executors.process executors.spec "
    "executors.path_map executors.data_keys executors.devices executors.worker executors.local "
    "trainers.continued",
    "executors.cache": "errors records config trainers trainers.bases trainers.gguf executors executors.spec "
    "executors.path_map executors.health executors.inputs executors.start_checkpoint trainers.continued",
    "executors": "errors registry records config executors.spec executors.devices executors.local",
    #
    # one run, and its certificate checked: what both do by the same rule is in `rules`,
    # so that neither imports the other
    "rules": "errors records factors projections config judge harness harness.columns harness.evolving "
    "harness.nominations",
    "run": "errors registry records factors sandbox config judge projections agents skills harness harness.columns "
    "harness.nominations harness.evolving harness.whatif envs envs.base envs.data envs.return_checks envs.user_files "
    "trainers trainers.base trainers.bases trainers.continued trainers.curriculum trainers.gguf trainers.lora "
    "executors executors.cache "
    "executors.spec "
    "executors.warm_start executors.written rules",
    "verify": "errors records factors algorithm sandbox config judge projections skills envs envs.base harness "
    "harness.columns harness.evolving harness.whatif rules",
    #
    # what a run is made without; `api`, the command line and the kit for others' own parts are all that may import it
    "extras": "",
    "extras.export": "errors records config projections trainers trainers.bases extras.scaffold",
    "extras.scaffold": "records",
    "extras.follower": "",
    "extras.notify": "errors records config projections extras.follower",
    "extras.rollout_export": "errors records",
    "extras.tracking": "errors records config projections extras.follower",
    "extras.verl": "errors records factors algorithm envs envs.base",
    #
    # doors
    "api": "errors records config projections agents views executors run verify extras.export extras.scaffold",
    "testing": "errors records factors config importers agents envs envs.base envs.outcome trainers trainers.base "
    "trainers.command trainers.continued executors executors.spec executors.warm_start harness harness.detectors "
    "harness.metrics harness.registry api",
    "studies": "",
    "studies.audit": "errors records sandbox program_probes config projections agents importers views harness "
    "harness.code_reading harness.columns harness.bottlenecks harness.layers harness.coverage harness.nominations "
    "harness.registry harness.render executors.process",
    "studies.versus": "errors records judge importers views harness harness.columns studies.audit",
    "studies.backtest": "errors records factors sandbox config harness harness.columns harness.metrics harness.whatif "
    "rules api studies.audit",
    "studies.calibration": "errors records config judge projections rules api",
    "studies.estimate": "errors records config judge projections envs executors executors.spec run trainers",
    "studies.rollouts": "errors records projections importers harness.columns harness.registry studies.audit",
    # the page that a team keeps open: reads ledgers and stores, imported by commands alone
    "ui": "errors records projections importers harness.columns views studies.audit",
    # a module per command, which wires what its command needs
    "cli": "errors records config agents judge harness harness.columns harness.evolving projections "
    "skills views executors.process envs "
    "envs.admission envs.base envs.code envs.simple envs.swe trainers executors.cache "
    "executors.warm_start "
    "sandbox run verify api studies.audit studies.versus studies.backtest studies.calibration "
    "studies.estimate studies.rollouts extras.export "
    "extras.notify extras.rollout_export extras.tracking ui",
    "__main__": "cli",
}
"""Room -> rooms it imports, deferred and TYPE_CHECKING imports included. A package with parts of its own is one room,
but those of `import_graph.ORDERED`, where each part has a row."""

FILES = ("api", "errors", "registry", "__main__", "")
"""Top-level modules that are no package."""
HEAVY = {"torch", "trl", "transformers", "peft", "accelerate", "ray", "safetensors", "tokenizers"}
VERLS_OWN = ("extras.verl.plugins", "extras.verl.inside")
"""Run by verl's own Python, imported by nothing of ours."""

# one worker reads the sources; names alone here, for every worker collects them
pytestmark = pytest.mark.xdist_group("architecture")
ROOMS = sorted({room(m) for m in modules()})


def test_the_import_graph_is_really_read() -> None:
    graph = module_graph()
    assert {"envs.base", "records.rollout"} <= graph["envs.simple"]
    assert "extras.export" in graph["api"], "deferred imports count"
    assert "envs.base" in graph["executors.warm_start"], "TYPE_CHECKING imports count"
    assert room("records.store") == "records" and room("harness.columns.scan") == "harness.columns"
    assert rings({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


@pytest.mark.parametrize("who", ROOMS)
def test_every_room_has_a_row_and_imports_what_the_row_says(who: str) -> None:
    assert who in ALLOWED, f"{who} has no row in ALLOWED; write down what it may import"
    allowed = set(ALLOWED[who].split())
    inside = {m: used for m, used in module_graph().items() if room(m) == who}
    more = [f"{m} imports {u}" for m, used in inside.items() for u in used if room(u) not in {who, *allowed}]
    assert not more, f"not in the row of {who}: {more}"
    assert allowed <= room_graph()[who], f"{who} imports no {sorted(allowed - room_graph()[who])}: shorten its row"


def test_no_row_is_of_a_room_that_is_gone() -> None:
    assert set(ALLOWED) <= set(room_graph()), sorted(set(ALLOWED) - set(room_graph()))


def test_at_the_top_are_rooms_and_three_files() -> None:
    packages = {p.name for p in SRC.iterdir() if (p / "__init__.py").is_file()}
    files = {m for m in modules() if "." not in m} - packages
    assert files == set(FILES), sorted(files ^ set(FILES))
    assert packages <= {r.split(".")[0] for r in ALLOWED}, sorted(packages)


def test_modules_import_one_another_in_no_ring() -> None:
    found = [" > ".join(ring) for ring in rings(module_graph())]
    assert not found, f"modules that import one another, deferred imports counted: {found}"


def test_rooms_import_one_another_in_no_ring() -> None:
    whole = {m.split(".")[0]: set[str]() for m in modules()}
    for m, used in module_graph().items():
        whole[m.split(".")[0]] |= {u.split(".")[0] for u in used} - {m.split(".")[0]}
    for graph in (room_graph(), whole):
        found = [{r: sorted(graph[r] & set(ring)) for r in ring} for ring in rings(graph)]
        assert not found, f"rooms that import one another, deferred imports counted: {found}"


def test_no_import_hides_in_a_string() -> None:
    """A module imported by name is one of the importer's own room, but those of a registry (tests/test_fences.py);
    scripts of sandboxes import what they are told to."""
    told = {"sandbox.inside", "program_probes.inside", "envs.swe.isolated", "envs.swe.runner"}
    own_room = {
        "cli": "{__name__}.",
        "harness.detectors": "{__name__}.",
        "harness.layers": "{__name__}.",
        "importers": "evotrainer.importers.",
        "registry": "module",
    }
    for m, p in modules().items():
        if any(m == t or m.startswith(f"{t}.") for t in told):
            continue
        names = {ast.unparse(n) for n in ast.walk(tree(p)) if isinstance(n, ast.Name | ast.Attribute | ast.alias)}
        by_name = ("import_module", "__import__", "runpy", "resolve_name")
        hidden = {n for n in names if n.split(".")[-1].split(" as ")[0] in by_name or n == "sys.modules"}
        assert not hidden or m in own_room, f"{m} imports by {sorted(hidden)}"
        if hidden:
            calls = [n for n in ast.walk(tree(p)) if isinstance(n, ast.Call) and "import_module" in ast.unparse(n.func)]
            assert calls and all(own_room[m] in ast.unparse(n.args[0]) for n in calls), (
                f"{m} leaves its room by a string"
            )


def test_the_package_is_never_imported_whole() -> None:
    """`import evotrainer.x as y` and `evotrainer.x.y` would reach a room that the graph does not see."""
    for m, p in modules().items():
        whole = [a.name for n in ast.walk(tree(p)) if isinstance(n, ast.Import) for a in n.names]
        assert not [n for n in whole if n.split(".")[0] == "evotrainer"], f"{m}: write `from evotrainer... import ...`"


def test_a_run_and_its_proof_know_nothing_of_who_shows_them() -> None:
    doors = ("cli", "api", "views", "studies", "extras", "testing")
    for m, used in module_graph().items():
        if m.split(".")[0] in ("run", "verify", "rules", "projections"):
            assert not {u for u in used if u.split(".")[0] in doors}, m


def test_extras_are_imported_when_they_are_asked_for() -> None:
    for m, p in modules().items():
        early = {n for n in imports(p, at_start=True) if n.startswith("evotrainer.extras")}
        assert not early or m.startswith("extras"), f"{m} imports {early} at start"


@pytest.mark.parametrize("who", ROOMS)
def test_only_trainers_import_heavy_libraries_and_never_at_start(who: str) -> None:
    for module, path in modules().items():
        if room(module) == who:
            check_heavy(module, path)


def check_heavy(module: str, path: Path) -> None:
    heavy = {n for n in imports(path) if n.split(".")[0] in HEAVY}
    if module == "trainers" or module.startswith("trainers."):
        if module.count(".") < 2 or path.name == "__init__.py":
            late = {n for n in imports(path, at_start=True) if n.split(".")[0] in HEAVY}
            assert not late, f"{module} imports {late} at start"
    elif module.startswith("executors.ray."):
        # a trial on several GPUs opens torch's process group in Ray's own workers
        assert {n.split(".")[0] for n in heavy} <= {"ray", "torch"}, f"{module} imports {heavy}"
        assert not {n for n in imports(path, at_start=True) if n.split(".")[0] in HEAVY}, f"{module} at start"
    elif not module.startswith(VERLS_OWN):
        assert not heavy, f"{module} imports {heavy}; only trainers may"


def test_verl_is_imported_by_its_own_python_only() -> None:
    for m, p in modules().items():
        if not m.startswith(VERLS_OWN):
            assert not {n for n in imports(p) if n.split(".")[0] in ("verl", "transfer_queue", "hydra", "omegaconf")}, m
            assert not {u for u in module_graph()[m] if u.startswith(VERLS_OWN)}, m


def test_trackers_clients_are_imported_when_they_are_written_to() -> None:
    clients = {"tensorboard", "trackio", "wandb", "mlflow", "datasets", "huggingface_hub", "math_verify", "peft"}
    for p in modules().values():
        own_process, own_stack = p.name == "latex_worker.py", p.parent.name == "trl"  # both are imported when needed
        if not (own_process or own_stack):
            early = {n for n in imports(p, at_start=True) if n.split(".")[0] in clients}
            assert not early, f"{p} imports {early} at start"


def test_agents_and_harness_never_read_sealed_splits() -> None:
    for m, p in modules().items():
        if m.split(".")[0] in ("agents", "harness"):
            texts = [n.value for n in ast.walk(tree(p)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            assert not [t for t in texts if t == "cert" or "sealed/" in t], f"{p} speaks of the sealed splits"


READ_PLAINLY = {
    # what reads a file by itself: nobody but us, or the kernel, makes what lies there
    "cli.init": "a file of ours",
    "envs.vocabulary": "a file of ours",
    "envs.swe.boundary": "a module of ours",
    "program_probes.probes": "a module of ours",
    "envs.swe.gitrepo": "a folder that it made",
    "envs.swe.gitscrub": "a folder that it made",
    "executors.cache.keys": "modules of ours; /proc",
    "records.processes": "/proc",
    "trainers.command.keeper": "/proc; it imports nothing of ours",
    "records.caps": "looked at before",
    "extras.scaffold": "looked at before",
    "importers.refusals": "looked at before",
    "executors.ray.artifacts": "a copy that it made",
    "studies.audit.answer": "/proc",
    "testing.importers": "a sample that a developer gives",
    "trainers": "/proc",
    "views.report": "assets of ours",
}


def test_files_are_read_through_one_door() -> None:
    """A pipe in place of a file is waited for without an end: `records/regular_file.py` looks first."""
    ours = {"read_text", "read_bytes"}
    plain = set()
    for m, p in modules().items():
        for n in ast.walk(tree(p)):
            if m.startswith("sandbox") or not isinstance(n, ast.Call):
                continue  # the sandbox's inside has no files of others, and nothing of ours
            name, modes = ast.unparse(n.func), [a.value for a in n.args if isinstance(a, ast.Constant)]
            mode = next((x for x in modes if isinstance(x, str) and re.fullmatch("[rwabx+t]{1,3}", x)), "r")
            opens = name == "open" or (name.endswith(".open") and modes == ["rb"])
            if (opens and mode[0] == "r" and "+" not in mode) or name in ("gzip.open",):
                plain.add(m)
            if isinstance(n.func, ast.Attribute) and n.func.attr in ours and name.split(".")[0] != "regular_file":
                plain.add(m)
    assert plain == set(READ_PLAINLY), sorted(plain ^ set(READ_PLAINLY))


WALL_CLOCKS = (".time.time", ".time.time_ns", ".time.localtime", ".datetime.now", ".datetime.utcnow", ".datetime.today")


def test_no_duration_is_measured_on_the_clock_that_anybody_may_set() -> None:
    """`records/clock.py` gives the time of day to stamp things with; nothing is computed from it."""
    # what lies cached on a node, and whose: a copy is fetched again
    computed = {"records.clock", "executors.ray.uploader"}
    for m, p in modules().items():
        for n in ast.walk(tree(p)):
            if isinstance(n, ast.Attribute | ast.Name) and m != "records.clock":
                read = ast.unparse(n)
                assert not f".{read}".endswith(WALL_CLOCKS), f"{m} reads {read}: stamps are records.clock.unix_time()"
            if isinstance(n, ast.BinOp | ast.Compare | ast.AugAssign) and m not in computed:
                now = [x for x in ast.iter_child_nodes(n) if ast.unparse(x) == "unix_time()"]
                assert not now, f"{m} computes {ast.unparse(n)}: use time.monotonic()"


PRINTERS = {f"{where}.{how}" for where in ("sys.stdout", "sys.stderr") for how in ("write", "writelines")}
PRINTERS |= {"typer.echo", "typer.secho", "click.echo", "click.secho", "rich.print", "builtins.print"}


def test_whatever_is_printed_passes_one_place() -> None:
    """Control characters of others' names must not reach a terminal: see `records/output.py`."""
    own = ("sandbox", "envs", *VERLS_OWN, "records.output")  # scripts that run elsewhere
    for m, p in modules().items():
        if m.startswith(own):
            continue
        calls = [n.func for n in ast.walk(tree(p)) if isinstance(n, ast.Call)]
        if any(isinstance(f, ast.Name) and f.id == "print" for f in calls):
            assert "evotrainer.records.output.print" in imports(p), f"{p} prints with the builtin"
        past = {ast.unparse(f) for f in calls} & PRINTERS
        assert not past, f"{p} prints by {sorted(past)}"
        if p.name != "console.py":
            made = any(isinstance(f, ast.Name) and f.id == "Console" for f in calls)
            assert not made or "evotrainer.records.console.Console" in imports(p), f"{p} opens a console of its own"


MOST = {"file": 600, "class": 300, "function": 60}
"""Lines; of 120 characters, which ruff checks (E501). A file is a room: one thing is not cut in two for its length."""
LONGER = "# longer than 60 lines: "
"""Stands right above a function that is longer, with the reason."""


@pytest.mark.parametrize("who", ROOMS)
def test_no_file_class_or_function_is_longer_than_can_be_read_at_once(who: str) -> None:
    for module, path in modules().items():
        if room(module) == who:
            check_length(module, path)


def check_length(module: str, path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST["file"], f"{module}: {len(lines)} lines"
    for n in ast.walk(tree(path)):
        if isinstance(n, ast.ClassDef):
            assert length(n) <= MOST["class"], f"{module}: class {n.name} has {length(n)} lines"
        elif isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([n.lineno, *(d.lineno for d in n.decorator_list)])
            above = lines[first - 2].strip() if first > 1 else ""
            reason = above.removeprefix(LONGER) if above.startswith(LONGER) else ""
            assert length(n) <= MOST["function"] or reason, f"{module}: {n.name} has {length(n)} lines and no reason"
            assert length(n) > MOST["function"] or not reason, f"{module}: {n.name} is short by now: {above}"


def length(n: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert n.end_lineno is not None
    return n.end_lineno - n.lineno + 1


def test_a_finding_is_silenced_by_its_code() -> None:
    for m, p in modules().items():
        bare = [
            n
            for n in p.read_text(encoding="utf-8").splitlines()
            if re.search(r"# (noqa|type: ignore)(?!: [A-Z]|\[)", n)
        ]
        assert not bare, f"{m}: {bare}"


def test_a_long_line_is_a_finding_of_ruff_in_every_source() -> None:
    settings = tomllib.loads((SRC.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]
    assert settings["line-length"] == 120 and "E501" not in settings["lint"]["ignore"]
    assert not [k for k, codes in settings["lint"]["per-file-ignores"].items() if "E501" in codes and "src" in k]
    quiet = {m: n for m, p in modules().items() if (n := p.read_text(encoding="utf-8").count("noqa: E501"))}
    assert quiet == {"envs.maths.rewards": 1}, "the first line of a reward's docstring stands in ledgers as it is"


def test_what_written_code_answers_is_read_by_one_function_only() -> None:
    """A foreign value is converted, shown and compared nowhere but in `records/untrusted_values.py`: the programs of a
    recipe are run by one method, and it hands on what `received` makes of them."""
    runner = SRC / "sandbox" / "reward_runner.py"
    calls = [n for n in ast.walk(tree(runner)) if isinstance(n, ast.Call)]
    through = [a for n in calls if isinstance(n.func, ast.Name) and n.func.id == "received" for a in n.args]
    read = [n for n in ast.walk(tree(runner)) if isinstance(n, ast.Attribute) and n.attr == "value"]
    assert read and all(n in through for n in read), (
        "the value of a case goes through records.untrusted_values.received"
    )
    starters = {
        m for m, path in modules().items()
        if any(isinstance(n, ast.ImportFrom) and n.module and n.module.startswith("evotrainer.sandbox")
               and {a.name for a in n.names} & {"Program", "Call"} for n in ast.walk(tree(path)))
    }  # fmt: skip
    own = {"sandbox", "sandbox.attacks", "sandbox.probes", "sandbox.attack_targets", "sandbox.jobs", "sandbox.sandbox"}
    written = {"sandbox.reward_runner", "sandbox.detector_runner"}
    policies = {"envs.code.grading", "envs.swe.runner", "program_probes.probes"}
    assert written <= starters, "the runners of written code are seen by this test"
    assert starters <= own | written | policies, "written code is run by sandbox.reward_runner, in its own world"
