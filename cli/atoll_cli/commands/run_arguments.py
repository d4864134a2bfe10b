# SPDX-License-Identifier: Apache-2.0
"""The command line of `atoll run` as a value, for every platform."""

from dataclasses import dataclass
from pathlib import Path

from atoll_core.description.loader import DescriptionFile
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import LabTarget
from atoll_testbed.run.run_request import RunOptions, RunRequest


@dataclass(frozen=True, slots=True)
class RunArguments:
    """A run, and what the command does with it.

    ``runs``: the parent of its directory.
    ``keep``: leave the lab up. ``twice``: run it twice and compare the runs.
    """

    experiment: DescriptionFile
    target: LabTarget
    options: RunOptions
    runs: Path
    runtime: Runtime | None
    listen: str | None
    keep: bool
    analyse: bool
    twice: bool
    strict: bool
    as_json: bool

    def request(self) -> RunRequest:
        """The run with its experiment resolved. Raises DescriptionError, PlanError."""
        return RunRequest(*self.experiment.experiment(), self.target.platform, self.options)
