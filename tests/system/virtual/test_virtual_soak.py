# SPDX-License-Identifier: Apache-2.0
"""After random applies, runs, deaths of controller and switches, or load of PEPs, there is nothing more than before."""

import subprocess
import sys

import pytest

from tests.support.sandbox import ROOT
from tests.support.virtual_runs import HANGS_S

pytestmark = pytest.mark.virtual


def soak(*words: str) -> None:
    """Soak in virtual time; nothing grows or fails."""
    argv = [sys.executable, "-m", "tests.support.soak", "--on", "virtual", *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_grows_in_two_minutes() -> None:
    """Descriptors, processes, memory, namespaces, interfaces, files, entries; and no event fails, nor the lab."""
    soak("--duration", "2 min")


def test_peps_at_their_limits_do_not_grow_and_refuse_no_connection_to_a_living_server() -> None:
    """Full buffers, clients that do not read, and more clients of a dead server than may be pending."""
    soak("--duration", "3 min", "--of", "peps")
