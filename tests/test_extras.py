"""An extra of pyproject.toml installs what its part needs: tests of the part pass with nothing else at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = {
    "local,gguf": ["tests/trainers/test_gguf.py::test_a_file_is_converted_once_into_a_folder_that_both_trainers_read"],
}


@pytest.mark.parametrize("extras", PARTS)
def test_an_extra_is_enough_for_its_part(extras: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "tests.only_extras", "-o", "addopts=", "-q", *PARTS[extras]]
    alone = {**os.environ, "EVOTRAINER_ONLY": extras, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([*command, "-p", "no:cacheprovider"], env=alone, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
