"""Probes: a program is run in the sandbox, to see what it does where rules read what it says (docs/probes.md)."""

from evotrainer.program_probes.answers import UNKNOWN
from evotrainer.program_probes.inputs import perturbed
from evotrainer.program_probes.probes import ProbedProgram, VisibleTest, probe_programs
