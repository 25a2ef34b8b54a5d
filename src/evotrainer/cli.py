"""The command line. Thin: each command imports what it needs when it runs, so that `--help` stays instant."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.records.output import print

app = typer.Typer(
    name="evotrainer",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Reinforcement learning for LLMs that runs itself and proves every decision it took.\n\n"
    "Start: `evotrainer run tasks/code.toml` (programs), tasks/math.toml (maths) or tasks/swe.toml (repositories); "
    "your own task: `evotrainer init my-task`.",
)

RunArg = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[section.name=value]...", help="Overrides of the task file.")
]


@app.command()
def run(
    task: Annotated[Path, typer.Argument(help="Task file (TOML).")],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/<task>-<time>.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and print the resolved task file; run nothing.")
    ] = False,
    skills: Annotated[
        list[str] | None,
        typer.Option(
            help="Skill library the agent may look up (folder, run folder or builtin), repeatable; as run.skills."
        ),
    ] = None,
    harness: Annotated[
        str | None,
        typer.Option(help="The harness it begins with: default, or minimal (score layer only); as run.harness."),
    ] = None,
    open_report: Annotated[bool, typer.Option("--open", help="Open the report in a browser at the end.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain log lines instead of the live view.")] = False,
) -> None:
    """Train, evolve and certify a policy; ends with a report.

    Example: evotrainer run tasks/code.toml recipe.lr=1e-4 run.rounds=2 --out runs/mine
    """
    from evotrainer import commands

    chosen = [f"run.harness={harness}"] if harness else []
    overrides = [*(overrides or []), *commands.library_override(skills or []), *chosen]
    commands.run(task, overrides, out, dry_run=dry_run, open_report=open_report, plain=plain)


@app.command()
def resume(
    run: RunArg,
    overrides: Overrides = None,
    open_report: Annotated[bool, typer.Option("--open", help="Open the report in a browser at the end.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain log lines instead of the live view.")] = False,
) -> None:
    """Go on with an interrupted run: nothing lost, nothing finished paid for twice.

    Example: evotrainer resume runs/mine budget.cpu_s=5000
    """
    from evotrainer import commands

    commands.resume(run, overrides or [], open_report=open_report, plain=plain)


@app.command()
def status(
    run: RunArg,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Where a run stands: round, trials, budget, champion, verdicts. Works while it runs.

    Example: evotrainer status runs/mine
    """
    from evotrainer import commands

    commands.status(run, as_json=as_json)


@app.command()
def lineage(run: RunArg) -> None:
    """The tree of branches with their verdicts and effects.

    Example: evotrainer lineage runs/mine
    """
    from evotrainer import commands

    commands.lineage(run)


@app.command()
def show(
    run: RunArg,
    what: Annotated[str, typer.Argument(help="Branch (b1), trial (b1-s2) or rollout id (or its beginning).")],
) -> None:
    """One branch, trial or rollout in full.

    Example: evotrainer show runs/mine b1
    """
    from evotrainer import commands

    commands.show(run, what)


@app.command()
def why(
    run: RunArg,
    what: Annotated[str, typer.Argument(help="Branch (b1), harness version (h1) or skill (its name).")],
) -> None:
    """Why a branch was promoted or not, why the harness changed, what a skill rests on: told and computed again.

    Example: evotrainer why runs/mine b1
    """
    from evotrainer import commands

    commands.why(run, what)


@app.command()
def verify(
    run: RunArg,
    head: Annotated[
        str, typer.Option(help="Hash of the last event as it was printed and noted earlier: the ledger must hold it.")
    ] = "",
) -> None:
    """Check the ledger's hash chain and all files it names, and compute scores, verdicts and audits again.

    Example: evotrainer verify runs/mine --head 5600eb6d0c2d88d7
    """
    from evotrainer import commands

    commands.verify(run, head)


@app.command()
def report(
    run: RunArg,
    out: Annotated[Path | None, typer.Option(help="Where to write; default RUN/report.html.")] = None,
    open_report: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Write the run's report: one HTML file that opens offline.

    Example: evotrainer report runs/mine --open
    """
    from evotrainer import commands

    commands.report(run, out, open_report=open_report)


@app.command()
def export(
    run: RunArg,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; new or empty.")],
    branch: Annotated[str | None, typer.Option(help="Branch (b1) or version (v1); default: the champion.")] = None,
    seed: Annotated[int | None, typer.Option(help="The training with this seed; default: see the page.")] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also an invalid branch; the card says so.")] = False,
) -> None:
    """The champion as a Hugging Face folder that transformers loads, with a model card: recipe, lineage, certification.

    Example: evotrainer export runs/mine my-model
    """
    from evotrainer import commands

    commands.export(run, out, branch=branch, seed=seed, anyway=anyway)


@app.command()
def track(
    run: RunArg,
    to: Annotated[
        list[str] | None,
        typer.Option(help="tensorboard, trackio, wandb or mlflow, repeatable; default: the task file's."),
    ] = None,
    project: Annotated[str | None, typer.Option(help="Project there; default: the task file's.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Option of the tracker, name=value or tracker.name=value, repeatable.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Export all, also what was exported before.")] = False,
) -> None:
    """Export a run's figures to a tracker; what is there already is not exported again. Works while it runs.

    Example: evotrainer track runs/mine --to tensorboard --option dir=logs
    """
    from evotrainer import commands

    commands.track(run, to or [], project, option or [], again=again)


@app.command()
def health(
    run: RunArg,
    what: Annotated[str | None, typer.Argument(help="Branch (b1) or trial (b1-s1); default: the champion.")] = None,
    step: Annotated[int | None, typer.Option(help="The reading at this step of a trial's training.")] = None,
    trend: Annotated[bool, typer.Option("--trend", help="How the readings change over the training.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """What the harness read of a branch or trial: three layers of metrics, findings, ranked bottlenecks.

    Example: evotrainer health runs/mine b1 --trend
    """
    from evotrainer import commands

    commands.health(run, what, step=step, trend=trend, as_json=as_json)


@app.command()
def audit(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files or folders with rollouts.")],
    format: Annotated[
        str | None, typer.Option(help="Read all as this format; default: recognised file by file.")
    ] = None,
    proxy: Annotated[
        str | None,
        typer.Option(help="Reward components PROXY,TRUE whose gap is to be watched; default: by their names."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Every metric of every subject.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a report to this file.")] = None,
    fail_on: Annotated[
        str | None, typer.Option(help="critical or warn: exit with 10 where a finding is that bad, for CI.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option(help="A SELECT over the tables rollouts, metrics, findings, instead of the report.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Where to keep what was read; default: the user's cache.")] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing.")] = False,
    workers: Annotated[int | None, typer.Option(help="Reading processes; default: one per core.")] = None,
) -> None:
    """Read anybody's rollouts and say what is wrong with them: no configuration, any common format.

    Formats: EvoTrainer, plain JSONL, TRL, verl, verifiers, NeMo-Gym, Inspect, SWE-agent, mini-swe-agent, tau-bench, ATIF.

    Example: evotrainer audit runs/mine logs/*.eval --html audit.html --fail-on critical
    """
    from evotrainer.studies.audit import command

    code = command.audit(
        paths,
        format=format,
        proxy=proxy,
        as_json=as_json,
        html=html,
        fail_on=fail_on,
        sql=sql,
        cache=cache,
        keep=not no_cache,
        workers=workers,
        full=full,
    )
    if code:
        raise typer.Exit(code)


@app.command()
def backtest(
    items: Annotated[
        list[str],
        typer.Argument(metavar="PATH... [name=value]...", help="Run folders or rollouts, then what is to be changed."),
    ],
    intervention: Annotated[
        Path | None, typer.Option(help="The change as a file, TOML or JSON: factor, new, prediction.")
    ] = None,
    predict: Annotated[
        str | None, typer.Option(help="What the change should do, e.g. 'frac_reward_zero_std down 0.2'.")
    ] = None,
    detector: Annotated[
        str | None, typer.Option(help="Backtest a detector: its name, or a file; name=value are its thresholds.")
    ] = None,
    gate: Annotated[
        bool,
        typer.Option("--gate", help="Backtest a gate: alpha=0.01, min_effect=0.03, drop=proxy, rule=score-only."),
    ] = False,
    branch: Annotated[str | None, typer.Option(help="Branch of a run; default: the champion.")] = None,
    split: Annotated[str, typer.Option(help="Split of a run: search or train.")] = "search",
    paid: Annotated[
        str | None, typer.Option(help="What others' rewards are made of, e.g. visible=1,format=0.1; default: inferred.")
    ] = None,
    bad: Annotated[
        str | None, typer.Option(help="Versions that are bad, for --detector: b1,b3; default: the ledger's.")
    ] = None,
    seen: Annotated[
        str | None, typer.Option(help="Versions looked at when the detector was made; default: the ledger's.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Bad rollouts by a field or key of their detail: KEY or KEY=VALUE.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="Read all as this format; default: recognised file by file.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Where to keep what was read; default: the user's cache.")] = None,
    workers: Annotated[int | None, typer.Option(help="Reading processes; default: one per core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    fail_on: Annotated[
        str | None, typer.Option(help="contradicts or flips: exit with 10 where that is the answer, for CI.")
    ] = None,
) -> None:
    """What would this reward, filter, detector or gate have done? Replayed on rollouts and verdicts that exist, in seconds.

    A change of the recipe is replayed on a run's champion or on anybody's rollouts; a detector (--detector) is held against
    all versions whose truth is known; a gate (--gate) gives a run's verdicts again.

    Example: evotrainer backtest runs/mine rewards.hidden=1 rewards.visible=0
    """
    from evotrainer.commands import backtesting

    code = backtesting.backtest(
        items,
        intervention=intervention,
        predict=predict,
        detector=detector,
        gate=gate,
        branch=branch,
        split=split,
        paid=paid,
        bad=bad,
        seen=seen,
        label=label,
        format=format,
        cache=cache,
        workers=workers,
        as_json=as_json,
        fail_on=fail_on,
    )
    if code:
        raise typer.Exit(code)


@app.command(name="audit-branch")
def audit_branch(
    run: RunArg,
    branch: Annotated[str, typer.Argument(help="Branch, e.g. b1.")],
    capability: Annotated[
        list[str] | None,
        typer.Option(help="Capability to close, repeatable; default: every shortcut its evaluations left open."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain log lines instead of the live view.")] = False,
) -> None:
    """Does a branch's score rest on a shortcut? Evaluates it again with the shortcut closed, on the same tasks.

    A confirmed shortcut makes the branch and all its descendants invalid, also after promotion; the champion falls back to
    the last valid version. The ledger keeps the story: `evotrainer why RUN BRANCH`.

    Example: evotrainer audit-branch runs/mine b2 --capability history
    """
    from evotrainer import commands

    commands.audit_branch(run, branch, capability or [], as_json=as_json, plain=plain)


@app.command(name="harness")
def harness_(
    run: RunArg,
    version: Annotated[str | None, typer.Argument(help="Version in detail, e.g. h1; default: all of them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """How the harness of a run evolved: each version with its diff, reason, evidence, backtests and verdicts that would flip.

    Example: evotrainer harness runs/mine h1
    """
    from evotrainer import commands

    commands.harness(run, version, as_json=as_json)


@app.command(name="admit-detector")
def admit_detector(
    spec: Annotated[Path, typer.Argument(help='Detector (TOML), e.g. form = "pattern"; see docs/commands.')],
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    bad: Annotated[list[str] | None, typer.Option(help="Branch it should speak of, repeatable.")] = None,
    clean: Annotated[list[str] | None, typer.Option(help="Branch on which it should be silent, repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Would a detector of your own be admitted? Tries it on recorded runs by the rules that the loop applies.

    Without --bad and --clean the runs' own records tell: branches that are invalid, or moved unexplained, against all others
    and the base policy. Exit code 1 where it is refused; the reason names the number.

    Example: evotrainer admit-detector reads_history.toml runs/leak
    """
    from evotrainer import commands

    if code := commands.admit_detector(spec, runs, bad or [], clean or [], as_json=as_json):
        raise typer.Exit(code)


@app.command()
def calibrate(
    run: RunArg,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[section.name=value]...", help="Another gate: judge.*, run.seeds, run.rounds, run.branches."
        ),
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option("--also", help="Further runs whose repeated trainings are compared, repeatable."),
    ] = None,
    trials: Annotated[
        int, typer.Option(min=0, help="Train the starting recipe on so many further seeds first (RUN/calibration).")
    ] = 0,
    runs: Annotated[int, typer.Option(min=20, help="Simulated runs per figure.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain log lines instead of the live view.")] = False,
) -> None:
    """How often would a run's gate promote what is worth nothing, and which effects does it find? From the run's own noise.

    False promotions over whole simulated runs and in real A/A comparisons, power by effect, seeds and attempts that reach
    80% at judge.worthwhile, and their cost.

    Example: evotrainer calibrate runs/mine run.seeds=[1,2,3] judge.max_seeds=8
    """
    from evotrainer import commands

    commands.calibrate(
        run, overrides or [], also or [], trials=trials, runs=runs, seed=seed, as_json=as_json, plain=plain
    )


@app.command(name="import")
def import_(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files or folders with rollouts.")],
    out: Annotated[Path, typer.Option(help="Store folder to write to; grows where there is one already.")],
    format: Annotated[
        str | None, typer.Option(help="Read all as this format; default: recognised file by file.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Reading processes; default: one per core.")] = None,
) -> None:
    """Copy anybody's rollouts into a rollout store, for audits of grown logs and for backtests.

    Example: evotrainer import logs/step-*.jsonl --out store/
    """
    from evotrainer.studies.audit import command

    command.import_rollouts(paths, out, format=format, workers=workers)


@app.command()
def doctor(
    accept_tier_e: Annotated[bool, typer.Option("--accept-tier-e", help="Do not fail where nothing isolates.")] = False,
    attack: Annotated[
        bool, typer.Option("--attack", help="Try every attack that ships on the sandbox; about a minute.")
    ] = False,
) -> None:
    """Check this machine: Python, PyTorch, sandbox tier, disk; says what is missing and how to get it.

    Example: evotrainer doctor --attack
    """
    from evotrainer import commands

    commands.doctor(accept_tier_e=accept_tier_e, attack=attack)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="New folder.")],
    name: Annotated[str, typer.Option(help="Task name; default: the folder's.")] = "",
) -> None:
    """Make a task of your own: tasks, reward function, splits, task file. Runs at once.

    Example: evotrainer init my-task && evotrainer run my-task/task.toml
    """
    from evotrainer import commands

    commands.init(folder, name)


@app.command()
def base(
    task: Annotated[Path, typer.Argument(help="Task file (TOML).")],
    out: Annotated[Path, typer.Option(help="Folder for the policy.")],
    overrides: Overrides = None,
    bf16: Annotated[bool, typer.Option("--bf16", help="Store the weights as bfloat16 (half the size).")] = False,
) -> None:
    """Train a base policy from scratch on the task's demonstrations (the warm start).

    Example: evotrainer base tasks/code.toml --out my-base policy.warm_start.steps=1500
    """
    from evotrainer import commands

    commands.base(task, overrides or [], out, bf16=bf16)


@app.command()
def admit(
    task: Annotated[Path, typer.Argument(help="Task file (TOML) with repository tasks.")],
    overrides: Overrides = None,
    split: Annotated[
        str | None, typer.Option(help="Split to try; default: search, of a data set's instances cert.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many tasks; default: the whole split.")] = None,
) -> None:
    """Is each repository task fit for use? The reference fix must pass, doing nothing must fail, cheating must fail.

    Cheats: tests rewritten, a conftest that passes everything, a replaced test runner, values equal to everything, ... Exit
    code 1 where a task is refused; the reasons are printed. Of a data set's programs: one of its own solutions must pass.

    Example: evotrainer admit tasks/swe.toml environment.world=real --limit 20
    """
    from evotrainer import commands

    commands.admit(task, overrides or [], split=split, limit=limit)


@app.command()
def cases(
    run: RunArg,
    trace: Annotated[
        bool,
        typer.Option("--trace", help="Every proposal: vetoed, refused, trained or only considered, with the reason."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Case memory: what was seen, tried, expected and what happened; with --trace the whole search.

    Example: evotrainer cases runs/mine --trace
    """
    from evotrainer import commands

    commands.cases(run, trace=trace, as_json=as_json)


@app.command()
def forecasts(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; their forecasts are pooled.")],
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """How good each agent's forecasts were: interval coverage, calibration of promotion chances, proper scores.

    Example: evotrainer forecasts runs/*
    """
    from evotrainer import commands

    commands.forecasts(runs, as_json=as_json)


skills_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(
    skills_app,
    name="skills",
    help="What verdicts taught, as Agent Skills with evidence: list, show, export, import, validate, compare.\n\n"
    "Example: evotrainer skills list runs/mine",
)
SkillSource = Annotated[Path, typer.Argument(metavar="SOURCE", help="Library folder, run folder or builtin.")]


@skills_app.command("list")
def skills_list(
    source: SkillSource,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Skills with claim, pooled effect, scope and expiry.

    Example: evotrainer skills list runs/mine
    """
    from evotrainer import commands

    commands.skills_list(source, as_json=as_json)


@skills_app.command("show")
def skills_show(
    source: SkillSource,
    name: Annotated[str | None, typer.Argument(help="Skill; not needed where there is only one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Its evidence instead of its text.")] = False,
) -> None:
    """One skill in full.

    Example: evotrainer skills show runs/mine dead-groups-group-size-up
    """
    from evotrainer import commands

    commands.skills_show(source, name, as_json=as_json)


@skills_app.command("export")
def skills_export(
    source: SkillSource,
    out: Annotated[Path, typer.Option(help="Folder to write skill folders to.")],
    name: Annotated[list[str] | None, typer.Option(help="Skill, repeatable; default: all.")] = None,
) -> None:
    """Copy validated skills to a folder that any reader of Agent Skills can use.

    Example: evotrainer skills export runs/mine --out .agent/skills
    """
    from evotrainer import commands

    commands.skills_export(source, name or [], out)


@skills_app.command("import")
def skills_import(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help="Run folders or libraries.")],
    library: Annotated[Path, typer.Option(help="Library to merge into; made where it is not there.")],
) -> None:
    """Merge evidence into a library: the same skill's trials join, none counts twice.

    Example: evotrainer skills import runs/* --library skills/
    """
    from evotrainer import commands

    commands.skills_import(sources, library)


@skills_app.command("validate")
def skills_validate(
    source: SkillSource,
    run: Annotated[list[Path] | None, typer.Option(help="Run folder whose ledger is at hand, repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Check format and evidence: every claim must follow from its trials, every trial from its ledger row.

    Example: evotrainer skills validate skills/ --run runs/mine
    """
    from evotrainer import commands

    commands.skills_validate(source, run or [], as_json=as_json)


@skills_app.command("compare")
def skills_compare(
    task: Annotated[Path, typer.Argument(help="Task file (TOML).")],
    library: Annotated[list[str], typer.Option("--skills", help="Library of the arm with skills, repeatable.")],
    out: Annotated[Path, typer.Option(help="Folder for all runs and the results; called again, it goes on.")],
    overrides: Overrides = None,
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of runs, each with seeds of its own.")] = 3,
    plain: Annotated[bool, typer.Option("--plain", help="Plain log lines instead of the live view.")] = False,
) -> None:
    """Do skills help? The same task, seeds and budget with and without them; resumable.

    Example: evotrainer skills compare tasks/math.toml --skills skills/ --out compare/ --repeats 5
    """
    from evotrainer import commands

    commands.skills_compare(task, overrides or [], library, out, repeats=repeats, plain=plain)


verl_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(
    verl_app,
    name="verl",
    help="Train a task file on a cluster with verl, in its own environment: setup, render, validate, launch, tail, checkpoints, "
    "import, stop.\n\nExample: evotrainer verl render tasks/math.toml --model Qwen/Qwen2.5-0.5B-Instruct --out runs/verl",
)
VerlFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that `evotrainer verl render` wrote.")]
VerlVenv = Annotated[
    Path | None, typer.Option(help="verl's environment; default: EVOTRAINER_VERL_PYTHON, then .venv-verl.")
]


@verl_app.command("setup")
def verl_setup(
    venv: Annotated[Path | None, typer.Option(help="Environment to make or complete; default: .venv-verl.")] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="What training needs too: vLLM, and its own PyTorch.")] = False,
    python: Annotated[
        Path | None, typer.Option(help="Python to make it with (3.11 or 3.12); default: this one.")
    ] = None,
    task: Annotated[Path | None, typer.Option(help="Task file; adds what its rewards need.")] = None,
    pip: Annotated[
        list[str] | None, typer.Option(help="Argument for pip, repeatable, e.g. --pip=--index-url=URL.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Make verl's own virtual environment. Without --gpu it can render and validate, not train.

    Example: evotrainer verl setup --venv .venv-verl
    """
    from evotrainer import commands

    commands.verl_setup(venv, gpu=gpu, python=python, task=task, pip=pip or [], as_json=as_json)


@verl_app.command("render")
def verl_render(
    task: Annotated[Path, typer.Argument(help="Task file (TOML).")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    overrides: Overrides = None,
    model: Annotated[str | None, typer.Option(help="Hugging Face id or folder; default: policy.base.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs per node; default 8.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes; default 1.")] = None,
    engine: Annotated[str | None, typer.Option(help="Rollout engine: vllm (default) or sglang.")] = None,
    tensor_parallel: Annotated[int | None, typer.Option(min=1, help="GPUs a rollout replica spans; default 1.")] = None,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="Sequences a GPU holds at once; default 8.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Longest prompt; default 1024.")] = None,
    observation_tokens: Annotated[
        int | None, typer.Option(min=1, help="Room for an observation between two turns; default 512.")
    ] = None,
    attention: Annotated[
        str | None, typer.Option(help="flash_attention_2 (default, needs flash-attn) or sdpa (needs nothing).")
    ] = None,
    lora_rank: Annotated[
        int | None, typer.Option(min=0, help="LoRA instead of full training; default 0: full.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Default: the first of run.seeds.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Further verl setting key=value, repeatable; none that a factor owns."),
    ] = None,
) -> None:
    """Write a task file as verl's configuration, prompts, plug-ins and launch script.

    Example: evotrainer verl render my-task/task.toml --model Qwen/Qwen2.5-0.5B-Instruct --gpus 8 --out runs/verl
    """
    from evotrainer import commands

    options = {
        "gpus": gpus,
        "nodes": nodes,
        "engine": engine,
        "tensor_parallel": tensor_parallel,
        "micro_batch": micro_batch,
        "prompt_tokens": prompt_tokens,
        "observation_tokens": observation_tokens,
        "attention": attention,
        "lora_rank": lora_rank,
        "seed": seed,
    }
    commands.verl_render(task, overrides or [], out, model, settings or [], options)


@verl_app.command("validate")
def verl_validate(
    folder: VerlFolder,
    venv: VerlVenv = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="As if with so many GPUs per node.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="As if with so many nodes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Let verl compose and validate the configuration and load the plug-ins. Needs no GPU.

    Example: evotrainer verl validate runs/verl --gpus 8 --nodes 2
    """
    from evotrainer import commands

    commands.verl_validate(folder, venv, gpus=gpus, nodes=nodes, as_json=as_json)


@verl_app.command("launch")
def verl_launch(
    folder: VerlFolder,
    venv: VerlVenv = None,
    ray_address: Annotated[
        str | None,
        typer.Option(envvar="RAY_ADDRESS", help="Ray cluster to train on, e.g. 10.0.0.1:6379; default: this machine."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also where it was not validated.")] = False,
) -> None:
    """Train, or resume from the last checkpoint. Needs GPUs; verl goes on without this command.

    Example: evotrainer verl launch runs/verl --ray-address 10.0.0.1:6379
    """
    from evotrainer import commands

    commands.verl_launch(folder, venv, ray_address=ray_address, force=force, wait=wait)


@verl_app.command("tail")
def verl_tail(
    folder: VerlFolder,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the training ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a step.")] = False,
) -> None:
    """Metrics step by step; fails where a resumed training did not go on where it was.

    Example: evotrainer verl tail runs/verl --follow
    """
    from evotrainer import commands

    commands.verl_tail(folder, follow=follow, as_json=as_json)


@verl_app.command("stop")
def verl_stop(folder: VerlFolder) -> None:
    """End the running training; a launch resumes it.

    Example: evotrainer verl stop runs/verl
    """
    from evotrainer import commands

    commands.verl_stop(folder)


@verl_app.command("checkpoints")
def verl_checkpoints(
    folder: VerlFolder,
    venv: VerlVenv = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Saved steps with sizes, which one a launch resumes from, and the command that makes a Hugging Face folder.

    Example: evotrainer verl checkpoints runs/verl
    """
    from evotrainer import commands

    commands.verl_checkpoints(folder, venv, as_json=as_json)


@verl_app.command("import")
def verl_import(
    folder: VerlFolder,
    out: Annotated[Path, typer.Option(help="Store folder to write to; grows where there is one already.")],
    workers: Annotated[int | None, typer.Option(help="Reading processes; default: one per core.")] = None,
) -> None:
    """Rollouts of training and validation, with all reward components, into a rollout store for `audit` and `backtest`.

    Example: evotrainer verl import runs/verl --out store/
    """
    from evotrainer import commands

    commands.verl_import(folder, out, workers=workers)


def main() -> None:
    """Entry point: errors a user can act upon are one line; the exit code says which kind."""
    from evotrainer.errors import EvoTrainerError

    try:
        app()
    except EvoTrainerError as e:
        print(f"evotrainer: {e}", file=sys.stderr)
        raise SystemExit(e.exit_code) from None
    except KeyboardInterrupt:
        print("evotrainer: interrupted; `evotrainer resume` goes on", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(141) from None
    except OSError as e:
        from evotrainer.records.durable import disk_trouble, os_trouble

        if (cause := disk_trouble(e)) is None:
            print(traceback.format_exc(), end="", file=sys.stderr)
            raise SystemExit(1) from None
        trouble = os_trouble("cannot write", cause)
        print(f"evotrainer: {trouble}", file=sys.stderr)
        raise SystemExit(trouble.exit_code) from None
    except Exception:  # a fault of ours; its message may quote what it stumbled over
        print(traceback.format_exc(), end="", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
