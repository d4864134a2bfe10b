# SPDX-License-Identifier: Apache-2.0
"""What the command line says instead of a description reaches the daemon, which reads the description itself."""

from pathlib import Path

import pytest

from atoll_cli.commands.selection import experiment_with, settings_with
from atoll_core.description.loader import load_experiment


@pytest.mark.parametrize(
    ("seed", "duration", "settings"),
    [
        (None, None, []),
        (7, None, []),
        (None, "5 s", []),
        (2**63 - 1, "90 s", ["tcp.congestion_control=reno", "transfer.size=1 MB"]),
        (None, "3 s", ["transfer="]),
    ],
)
def test_the_daemon_reads_the_same_experiment(
    project: Path, seed: int | None, duration: str | None, settings: list[str]
) -> None:
    """A transfer that a shorter run moves to its begin is moved there, too."""
    path = project / "examples" / "geo.yaml"
    _, here = experiment_with(path, seed, duration, settings)
    _, there = load_experiment(path, settings_with(here, seed, duration, settings))
    assert there == here
