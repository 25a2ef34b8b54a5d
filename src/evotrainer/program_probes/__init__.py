"""Probes: a program is run in the sandbox, to see what it does where rules read what it says (docs/probes.md)."""

from evotrainer.program_probes.answers import UNKNOWN
from evotrainer.program_probes.asserts import asserted, parsed
from evotrainer.program_probes.probes import CPU_S, ProbedProgram, VisibleTest, probe_programs
from evotrainer.program_probes.record import PROBES, VERSION, Fact, ProbeRecord, nothing_ran

__all__ = [
    "CPU_S",
    "PROBES",
    "UNKNOWN",
    "VERSION",
    "Fact",
    "ProbeRecord",
    "ProbedProgram",
    "VisibleTest",
    "asserted",
    "nothing_ran",
    "parsed",
    "probe_programs",
]
