# SPDX-License-Identifier: Apache-2.0
"""Machines during applies and swaps, and the way back of a failed one."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from atoll_core.errors import LabError
from atoll_core.plan.plan import HostSettings, Plan
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


async def test_a_box_that_packets_still_pass_keeps_its_settings_until_the_swap_is_over() -> None:
    """The new version does not have its program; everything else is set before the cutover."""
    made: list[tuple[str, HostSettings | None]] = []

    class Machine:
        def __init__(self, name: str) -> None:
            self.name = name

        async def set(self, settings: HostSettings) -> None:
            made.append((self.name, settings))

        async def unset(self) -> None:
            made.append((self.name, None))

    class Platform:
        machine = Machine

        async def linked(self, hosts: Iterable[str]) -> None:
            list(hosts)

    class Services:
        def superfluous(self, _: object) -> frozenset[str]:
            return frozenset({"coder-w"})

        async def add(self, _: object) -> None: ...

        async def reconcile(self, _: object, *, restart_traces: bool) -> None: ...

    def plan(settings: HostSettings, other: HostSettings) -> Plan:
        return Plan("lab", "experiment", (), (settings, other), (), (), (), 1)

    tunnelled = HostSettings("coder-w", (), forwarding=False)
    router = replace(tunnelled, forwarding=True)
    forwarding, still = HostSettings("pep-w", (), forwarding=True), HostSettings("pep-w", (), forwarding=False)
    platform: Any = Platform()
    services: Any = Services()
    machines = MachineReconciler(platform, services)
    await machines.reconcile(plan(tunnelled, still))
    made.clear()
    await machines.add(plan(router, forwarding))
    assert made == [("pep-w", None), ("pep-w", forwarding)]
    await machines.reconcile(plan(router, forwarding))
    assert made[2:] == [("coder-w", None), ("coder-w", router)]


async def test_settings_whose_undo_failed_are_undone_by_the_next_attempt() -> None:
    failures = [LabError("w1 is not fully restored")]

    class Machine:
        async def set(self, _: HostSettings) -> None: ...

        async def unset(self) -> None:
            if failures:
                raise failures.pop()
            undone.append("w1")

    class Platform:
        def machine(self, _: str) -> Machine:
            return Machine()

        async def linked(self, _: object) -> None: ...

    class Services:
        async def reconcile(self, _: object, *, restart_traces: bool) -> None: ...

    undone: list[str] = []
    platform: Any = Platform()
    services: Any = Services()
    machines = MachineReconciler(platform, services)
    await machines.reconcile(Plan("lab", "experiment", (), (HostSettings("w1", ()),), (), (), (), 1))
    with pytest.raises(LabError, match="not fully restored"):
        await machines.reconcile(None)
    await machines.reconcile(None)
    assert undone == ["w1"]
