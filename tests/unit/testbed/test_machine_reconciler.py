# SPDX-License-Identifier: Apache-2.0
"""The way back of a failed apply is gone to its end."""

from typing import Any

import pytest

from atoll_testbed.machine_reconciler import MachineReconciler


@pytest.mark.parametrize("error", [OSError("no such device"), KeyError("w1")])
async def test_programs_are_restored_even_if_the_settings_are_not(error: Exception) -> None:
    class Platform:
        async def linked(self, _: object) -> None:
            raise error

    class Services:
        restored = False

        async def reconcile(self, _: object, *, restart_traces: bool) -> None:
            self.restored = not restart_traces
            raise RuntimeError("the second one")

    platform: Any = Platform()
    services: Any = Services()
    with pytest.raises(type(error), match=str(error.args[0])):
        await MachineReconciler(platform, services).restore(None)
    assert services.restored
