# SPDX-License-Identifier: Apache-2.0
"""The controller's runtime in tests: os-ken, or the one that ATOLL_TEST_RUNTIME names (`make test-ryu`)."""

import os
from collections.abc import Sequence

from atoll_controller.openflow.controller_client import Controller, interpreter
from atoll_core.plan.switch_features import Runtime

RUNTIME = Runtime(os.environ.get("ATOLL_TEST_RUNTIME", Runtime.OS_KEN))

ON_RUNTIME = ("--runtime", RUNTIME)
"""Options of `atoll up` and `atoll run`."""


async def start_controller(enter: Sequence[str], listen: str = "127.0.0.1:0") -> Controller:
    """Start a controller that listens there; ``enter``: the command that enters its namespaces. Raises LabError."""
    controller = await Controller.start(enter, interpreter(RUNTIME), listen, RUNTIME)
    assert controller.runtime.split()[0] == RUNTIME
    return controller
