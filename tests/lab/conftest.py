# SPDX-License-Identifier: Apache-2.0
"""What several laboratory tests begin with."""

from collections.abc import Iterator

import pytest

from atoll.control.plan import make_plan
from atoll.model.load import load_experiment
from atoll.model.network import Network
from atoll.model.plan import Plan
from tests.lab.bridges import Switches, open_vswitch
from tests.lab.sandbox import GEO


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
