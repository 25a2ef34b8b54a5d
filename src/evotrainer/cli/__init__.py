"""The command line. `evotrainer why` is `cli/why.py`, `evotrainer skills list` is `cli/skills_list.py`.

A command's module holds one function of the module's name: typer reads its signature, its body does the work. It
imports what it needs when it runs, so that `--help` stays instant. Modules that begin with an underscore are helpers.
"""

from __future__ import annotations

import contextlib
import keyword
import re
import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from evotrainer.records.output import print, tolerate

GROUPS = {
    "Run": ("doctor", "init", "run", "resume", "answer", "notify", "seat", "propose", "mcp", "cache"),
    "Read": ("ui", "status", "show", "rollouts", "health", "harness", "cases", "report", "track"),
    "Prove": ("why", "verify", "audit-branch", "calibrate"),
    "Audit and backtest": ("audit", "versus", "backtest", "try-code", "admit-detector"),
    "Data and models": ("import", "admit", "base", "export", "export-rollouts", "skills"),
}
"""Headings of `evotrainer --help`, each with its commands, in the order in which they are shown."""

FAMILIES = {
    "skills": ("list", "import", "validate"),
}
"""Commands of two words: the first, and every second one."""

_SHOWN = {n.replace("-", "_") for names in GROUPS.values() for n in names} | {"import_"}
_FILES = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))
if _more := [n for n in _FILES if n not in _SHOWN and n.partition("_")[0] not in FAMILIES]:
    GROUPS["More"] = tuple(n.replace("_", "-") for n in _more)

ABOUT = {
    "": "Reinforcement learning for LLMs that runs itself and proves every decision it took.\n\n"
    "Start: `evotrainer run tasks/code.toml` (programs), tasks/math.toml (maths) or tasks/swe.toml (repositories); "
    "your own task: `evotrainer init my-task`.",
    "skills": "What verdicts taught, as Agent Skills with evidence: list, import, validate.\n\n"
    "Example: evotrainer skills list runs/mine",
}


SENTENCE = 300
"""Letters of a command's first sentence in the list of commands: all of it, wrapped."""


PLAIN: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}
PLAIN["context_settings"] = {"help_option_names": ["-h", "--help"]}


def _built(command: str) -> Any:
    """A command; its signature is read here, which for all of them costs more CPU time than all else of `--help`."""
    if command in FAMILIES:
        seconds: dict[str, Any] = dict.fromkeys(FAMILIES[command])
        return FullHelpGroup(name=command, help=ABOUT[command], commands=seconds, **PLAIN)
    one = typer.Typer(add_completion=False, pretty_exceptions_enable=False, **PLAIN)
    one.command(command.split()[-1])(function_of(command))
    return typer.main.get_command(one)


class FullHelpGroup(TyperGroup):
    """Lists its commands with the whole first sentence of each. Typer's own panels need rich, which is slow to
    import. `commands` of ours are None until they are asked for."""

    def full_name(self, name: str) -> str:
        """The whole name of a command of ours."""
        return f"{self.name} {name}" if self.name in FAMILIES else name

    def get_command(self, ctx: Any, name: str) -> Any:
        if name in self.commands and self.commands[name] is None:
            self.commands[name] = _built(self.full_name(name))
        return super().get_command(ctx, name)

    def first_sentence(self, ctx: Any, name: str) -> str:
        """What a command does, of ours without building it."""
        if name not in FAMILIES and self.commands[name] is not None:
            return str(self.commands[name].get_short_help_str(SENTENCE))
        text = ABOUT.get(name) or function_of(self.full_name(name)).__doc__ or ""
        return re.split(r"(?<=\.)\s", " ".join(text.partition("\n\n")[0].split()))[0]

    def headings(self) -> dict[str, tuple[str, ...]]:
        """Heading -> commands below it."""
        return {"Commands": tuple(self.commands)}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for heading, names in self.headings().items():
            rows = [(n.ljust(width), self.first_sentence(ctx, n)) for n in names]
            with formatter.section(heading):
                formatter.write_dl(rows)


class Grouped(FullHelpGroup):
    """Lists the commands under the headings of GROUPS."""

    def __init__(self, *, commands: dict[str, Any] | None = None, **options: Any) -> None:
        ours: dict[str, Any] = dict.fromkeys(n for names in GROUPS.values() for n in names)
        super().__init__(commands=ours | (commands or {}), **options)

    def headings(self) -> dict[str, tuple[str, ...]]:
        return GROUPS

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`evotrainer help [COMMAND]` is `evotrainer [COMMAND] --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)


def module_of(command: str) -> str:
    """The module, and the function in it, of a command: `skills list` -> `skills_list`, `import` -> `import_`."""
    name = command.replace(" ", "_").replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def function_of(command: str) -> Callable[..., None]:
    """What a command does."""
    name = module_of(command)
    done: Callable[..., None] = getattr(import_module(f"{__name__}.{name}"), name)
    return done


def _version(asked: bool) -> None:
    if asked:
        from evotrainer import __version__

        print(f"evotrainer {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of `evotrainer` itself."""


def _app() -> typer.Typer:
    top = typer.Typer(
        name="evotrainer", cls=Grouped, help=ABOUT[""], add_completion=False, pretty_exceptions_enable=False, **PLAIN
    )
    top.callback(help=ABOUT[""])(_top)
    return top


app = _app()


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: ends like Ctrl-C, with a code of its own."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.name, self.exit_code = signal.Signals(number).name, 128 + number


def obey_signals() -> None:
    """Have SIGTERM and SIGHUP end a command as Ctrl-C does: with a line; that of a run says how to go on. One that is
    ignored (nohup) stays ignored."""

    def stop(number: int, frame: Any) -> None:
        raise Terminated(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)


def _interruption(e: BaseException | None) -> KeyboardInterrupt | None:
    """What interrupted a command: typer ends with an exit of its own code, raised from it."""
    while e is not None and not isinstance(e, KeyboardInterrupt):
        e = e.__cause__ or e.__context__
    return e


def main() -> None:
    """Entry point: errors a user can act upon are one line; the exit code says which kind."""
    from evotrainer.errors import EvoTrainerError

    tolerate(sys.stdout, sys.stderr)
    obey_signals()
    try:
        app()
    except EvoTrainerError as e:
        with contextlib.suppress(OSError):  # the terminal may be gone
            for note in getattr(e, "__notes__", ()):
                print(f"evotrainer: note: {note}", file=sys.stderr)
            print(f"evotrainer: {e}", file=sys.stderr)
        raise SystemExit(e.exit_code) from None
    except (KeyboardInterrupt, SystemExit) as e:
        if (stop := _interruption(e)) is None:
            raise
        by = f"stopped by {stop.name}" if isinstance(stop, Terminated) else "interrupted"
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"evotrainer: {by}", file=sys.stderr)
        raise SystemExit(getattr(stop, "exit_code", 130)) from None
    except BrokenPipeError:
        raise SystemExit(141) from None
    except ModuleNotFoundError as e:
        if not (e.name or "").startswith("evotrainer."):
            raise
        print(
            f"evotrainer: this installation has no {e.name}, which the command needs; install EvoTrainer whole",
            file=sys.stderr,
        )
        raise SystemExit(6) from None
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
