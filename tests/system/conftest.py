# SPDX-License-Identifier: Apache-2.0
"""What several laboratory tests begin with."""

from collections.abc import Iterator

import pytest

from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Plan
from tests.support.bridges import Switches, open_vswitch
from tests.support.sandbox import GEO


@pytest.fixture(scope="module")
def switches() -> Iterator[Switches]:
    """Open vSwitch, up for all tests of a module."""
    with open_vswitch() as switches:
        yield switches


@pytest.fixture(scope="module")
def demo() -> tuple[Network, Plan]:
    """The demo's lab and plan."""
    network, experiment = load_experiment(GEO)
    return network, make_plan(network, experiment)
