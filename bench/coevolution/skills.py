"""What skills are worth: source runs fill a library, then the same task is run with and without it.

    python -m bench.coevolution.skills --out runs/skills --sources 2 --repeats 3          # full size
    python -m bench.coevolution.skills --out runs/small --sources 1 --repeats 1 --tasks my-task/task.toml run.rounds=1

Arms per task: no library; the library of the task's own source runs; and, where several tasks are given, the library of
all other tasks' source runs (looked up only after the domain's own options failed). Source runs have seeds of their
own. Called again with the same --out, it goes on where it stopped. At the end the forecasts of all runs are scored.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import skills_ab as comparison
from bench.coevolution.forecasts import forecasts, score
from evotrainer import api
from evotrainer.cli._common import console
from evotrainer.cli.skills_import import skills_import
from evotrainer.config.load import load_task
from evotrainer.views.terminal import LiveView

RESULTS = Path(__file__).with_name("skills_results.md")
SOURCE_SEED = 500
"""Added to the seeds of source runs, so that no compared run repeats one of them."""


def watch(folder: Path) -> LiveView:
    return LiveView(folder, console(stderr=True), plain=True)


def source(task: Path, i: int, folder: Path, overrides: list[str]) -> Path:
    """One run whose verdicts are distilled; taken as it is where it is closed."""
    run = load_task(task, overrides).run
    shift = SOURCE_SEED + 10 * i
    own = [
        f"run.seed={run.seed + shift}",
        f"run.seeds={[s + shift for s in run.seeds]}",
        f"run.certify_seeds={[s + shift for s in run.certify_seeds]}",
    ]
    if not (folder / "ledger.db").is_file():
        with watch(folder) as view:
            api.start(task, folder, [*overrides, *own], view=view)
    elif api.open_run(folder).closed is None:
        with watch(folder) as view:
            api.resume(folder, view=view)
    return folder


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--tasks", type=Path, nargs="+", default=[Path("tasks/code.toml"), Path("tasks/math.toml")])
    p.add_argument("--sources", type=int, default=2)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--results", type=Path, help=f"default: {RESULTS.name} beside this file; use another for a trial")
    args, overrides = p.parse_known_args()
    libraries: dict[str, Path] = {}
    runs: list[Path] = []
    for task in args.tasks:
        name = load_task(task, overrides).task.name
        made = [source(task, i, args.out / f"{name}-source{i}", overrides) for i in range(args.sources)]
        runs += made
        libraries[name] = args.out / f"{name}-library"
        skills_import(made, library=libraries[name])
    parts = []
    for task in args.tasks:
        name = load_task(task, overrides).task.name
        others = [str(x) for n, x in libraries.items() if n != name]
        for arm, given in (("own", [str(libraries[name])]), ("others", others)):
            if not given:
                continue
            out = args.out / f"{name}-{arm}"
            done = comparison.compare(task, overrides, given, out, args.repeats, watch)
            runs += [out / o.run for o in done.outcomes]
            shown = comparison.render(done).replace(str(args.out.resolve()) + "/", "")
            parts.append(shown.replace("# ", f"## Library of {arm} tasks' runs: ", 1))
    scores = score([r for f in runs for r in forecasts(api.open_run(f).events(), f.name)])
    lines = [
        "# Skills: with and without",
        "",
        f"{args.sources} source runs per task, {args.repeats} pairs of runs per arm.",
        "",
    ]
    lines += ["\n".join(parts), "## Forecasts of all these runs", "", "```json"]
    lines += [s.model_dump_json(indent=1) for s in scores] + ["```", ""]
    (args.results or RESULTS).write_text("\n".join(lines), encoding="utf-8")
    print(f"results: {args.results or RESULTS}")


if __name__ == "__main__":
    main()
