# SPDX-License-Identifier: Apache-2.0
"""Chains of every sort at once on real switches, and the life of a program that a user brought along.

What passes them is test_virtual_chains' subject.
"""

from pathlib import Path

import pytest

from tests.support import many_chains
from tests.support.runtime import ON_RUNTIME
from tests.support.sandbox import ATOLL, Sandbox

pytestmark = pytest.mark.lab


def test_a_program_lives_as_long_as_its_lab_and_ends_in_its_own_way(tmp_path: Path) -> None:
    """It is started once the lab is up, asked to end when that goes down, and nothing is left."""
    with Sandbox(tmp_path) as sandbox:
        up = sandbox.run(ATOLL, "up", many_chains.describe(tmp_path, tmp_path), *ON_RUNTIME)
        assert up.returncode == 0, up.stderr
        assert (tmp_path / "started").exists()
        assert not (tmp_path / "enough").exists()
        assert sandbox.run(ATOLL, "down").returncode == 0
        assert (tmp_path / "enough").exists(), "it was asked to end in its own way"
        sandbox.wait_clean()
