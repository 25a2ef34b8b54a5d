"""What the commands do. Each imports what it needs; user errors travel to `cli.main`, which prints one line."""

from evotrainer.commands.auditing import audit_branch
from evotrainer.commands.calibrating import calibrate
from evotrainer.commands.explaining import rejudge, why
from evotrainer.commands.exporting import export, track
from evotrainer.commands.harnessing import admit_detector, harness
from evotrainer.commands.making import admit, base, doctor, init
from evotrainer.commands.reading import (
    health,
    lineage,
    readings_of,
    report,
    show,
    status,
    status_json,
    verify,
)
from evotrainer.commands.remembering import cases, forecasts
from evotrainer.commands.running import library_override, parse_answer, resume, run
from evotrainer.commands.skilling import (
    skills_compare,
    skills_export,
    skills_import,
    skills_list,
    skills_show,
    skills_validate,
)
from evotrainer.commands.verling import (
    verl_checkpoints,
    verl_import,
    verl_launch,
    verl_render,
    verl_setup,
    verl_stop,
    verl_tail,
    verl_validate,
)

__all__ = [
    "admit",
    "admit_detector",
    "audit_branch",
    "base",
    "calibrate",
    "cases",
    "doctor",
    "export",
    "forecasts",
    "harness",
    "health",
    "init",
    "library_override",
    "lineage",
    "parse_answer",
    "readings_of",
    "rejudge",
    "report",
    "resume",
    "run",
    "show",
    "skills_compare",
    "skills_export",
    "skills_import",
    "skills_list",
    "skills_show",
    "skills_validate",
    "status",
    "status_json",
    "track",
    "verify",
    "verl_checkpoints",
    "verl_import",
    "verl_launch",
    "verl_render",
    "verl_setup",
    "verl_stop",
    "verl_tail",
    "verl_validate",
    "why",
]
