# SPDX-License-Identifier: Apache-2.0
"""After random applies, runs, deaths of controller and switches there is nothing more than before."""

import subprocess
import sys

import pytest

from tests.support.sandbox import ROOT
from tests.support.virtual_runs import HANGS_S

pytestmark = pytest.mark.virtual


def test_nothing_grows_in_two_minutes() -> None:
    """Descriptors, processes, memory, namespaces, interfaces, files, entries; and no event fails, nor the lab."""
    words = [sys.executable, "-m", "tests.support.soak", "--on", "virtual", "--duration", "2 min"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
