# SPDX-License-Identifier: Apache-2.0
"""What probes need to know of a lab that is up: the testbed, as those see it who prove what its switches do."""

from typing import Protocol

from atoll_controller.openflow.client import Controller
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Plan
from atoll_hosts.machine import Machine


class ProbedLab(Protocol):
    """A lab and what stands on it."""

    @property
    def network(self) -> Network:
        """The lab as described."""
        ...

    @property
    def controller(self) -> Controller:
        """The controller process of the moment."""
        ...

    @property
    def experiment(self) -> Experiment | None:
        """What was applied last, None before anything was."""
        ...

    @property
    def plan(self) -> Plan | None:
        """The plan of that."""
        ...

    @property
    def standing(self) -> Plan | None:
        """What the switches are kept at: the plan, in the middle of a swap that of its stage."""
        ...

    def machine(self, name: str) -> Machine:
        """The machine of that name (KeyError: no such machine)."""
        ...
