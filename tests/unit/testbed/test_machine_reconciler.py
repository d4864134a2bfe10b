# SPDX-License-Identifier: Apache-2.0
"""Machines during applies and swaps, and the way back of a failed one."""

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from atoll_controller.planner.host_config import with_min_mtus
from atoll_core.errors import LabError
from atoll_core.plan.plan import HostSettings, InterfaceSettings, Plan, RouteSettings
from atoll_testbed.machine_reconciler import MachineReconciler


@pytest.mark.parametrize("error", [OSError("no such device"), KeyError("w1")])
async def test_programs_are_restored_even_if_the_settings_are_not(error: Exception) -> None:
    class Platform:
        async def wait_for_links(self, _: object) -> None:
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


class Lab:
    """Machines that note their settings, and services that note the programs that they end and start."""

    def __init__(self, boxes: tuple[str, ...], hosts: tuple[str, ...] = ()) -> None:
        self.network = SimpleNamespace(
            boxes=[SimpleNamespace(name=name) for name in boxes], hosts=[SimpleNamespace(name=name) for name in hosts]
        )
        self.made: list[tuple[str, Any]] = []

    def machine(self, name: str) -> Any:
        async def put(settings: HostSettings) -> None:
            self.made.append((name, settings))

        return SimpleNamespace(set=put)

    async def wait_for_links(self, hosts: Iterable[str]) -> None:
        list(hosts)

    def changes(self, *_: object, **__: object) -> tuple[()]:
        return ()

    async def end(self, _: object, boxes: Iterable[str]) -> None:
        self.made += [(box, "end") for box in sorted(boxes)]

    async def add(self, _: object, passed: Iterable[str] = ()) -> None:
        self.made.append(("add, not on", sorted(passed)))

    async def reconcile(self, _: object, *, restart_traces: bool) -> None: ...


def plan(*settings: HostSettings) -> Plan:
    return Plan("lab", "experiment", (), settings, (), (), (), 1)


def reconciler(lab: Lab) -> MachineReconciler:
    place: Any = lab
    return MachineReconciler(place, place)


async def test_a_box_that_packets_pass_keeps_its_settings_and_its_program_until_they_have_left() -> None:
    lab = Lab(("coder-w", "pep-w"))
    machines = reconciler(lab)
    tunnelled = HostSettings("coder-w", (), forwarding=False)
    router = replace(tunnelled, forwarding=True)
    forwarding, still = HostSettings("pep-w", (), forwarding=True), HostSettings("pep-w", (), forwarding=False)
    await machines.reconcile(plan(tunnelled, still))
    lab.made.clear()
    await machines.advance(plan(router, forwarding), {"coder-w", "sat"})
    assert lab.made == [("pep-w", "end"), ("pep-w", forwarding), ("add, not on", ["coder-w", "sat"])]
    await machines.reconcile(plan(router, forwarding))
    assert lab.made[3:] == [("coder-w", router)]


@pytest.mark.parametrize(("was", "becomes"), [(1500, 1456), (1456, 1500)])
async def test_hosts_send_no_longer_packets_than_both_versions_carry(was: int, becomes: int) -> None:
    """Until the swap is over: packets of both versions are under way."""
    lab = Lab((), ("w1",))
    machines = reconciler(lab)

    def host(mtu: int) -> HostSettings:
        route = RouteSettings("10.20.0.0/16", None if mtu == 1500 else mtu)
        return HostSettings("w1", (InterfaceSettings("w1-eth0", "02:00:00:00:00:01", None, (route,), ()),))

    await machines.reconcile(plan(host(was)))
    lab.made.clear()
    await machines.advance(plan(host(becomes)), ())
    await machines.reconcile(plan(host(becomes)))
    made = [settings for name, settings in lab.made if name == "w1"]
    assert made == [host(1456)] if becomes == 1456 else [host(1500)]


async def test_a_changed_machine_names_its_settings_with_both_values() -> None:
    lab = Lab((), ("w1",))
    machines = reconciler(lab)

    def host(mtu: int, window: int | None, ecn: str, *, forwarding: bool | None) -> HostSettings:
        route = RouteSettings("10.20.0.0/16", initial_window=window)
        interface = InterfaceSettings("w1-eth0", "02:00:00:00:00:01", None, (route,), (), mtu=mtu)
        return HostSettings("w1", (interface,), sysctls=(("net.ipv4.tcp_ecn", ecn),), forwarding=forwarding)

    await machines.reconcile(plan(host(1500, None, "0", forwarding=None)))
    (change,) = machines.changes(plan(host(1500, 20, "1", forwarding=None)), restart_traces=False)
    assert change.reason == (
        "interfaces.w1-eth0.routes.10.20.0.0/16.initial_window: none -> 20; sysctls.net.ipv4.tcp_ecn: 0 -> 1"
    )
    (change,) = machines.changes(plan(host(1400, 20, "1", forwarding=True)), restart_traces=False)
    assert change.reason.endswith("sysctls.net.ipv4.tcp_ecn: 0 -> 1; 1 more")


async def test_a_machine_whose_settings_differ_in_order_alone_says_so() -> None:
    machines = reconciler(Lab((), ("w1",)))
    sysctls = (("net.ipv4.tcp_ecn", "0"), ("net.ipv4.tcp_sack", "1"))
    await machines.reconcile(plan(HostSettings("w1", (), sysctls=sysctls)))
    (change,) = machines.changes(plan(HostSettings("w1", (), sysctls=sysctls[::-1])), restart_traces=False)
    assert change.reason == "the order of its settings"


def test_the_smaller_mtu_of_two_versions_is_that_of_each_prefix() -> None:
    """A prefix that one version alone has is within another one of the other version."""

    def host(*routes: RouteSettings) -> HostSettings:
        return HostSettings("w1", (InterfaceSettings("w1-eth0", "02:00:00:00:00:01", None, routes, ()),))

    coded, half = RouteSettings("10.20.0.0/16", 1456), RouteSettings("10.20.0.0/30", 1400)
    found = with_min_mtus(host(RouteSettings("10.20.0.0/16"), half), host(coded))
    assert found == host(coded, half)
    assert with_min_mtus(host(coded), host(coded)) == host(coded)


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

        async def wait_for_links(self, _: object) -> None: ...

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


async def test_settings_whose_undo_failed_are_set_again_by_their_plan() -> None:
    class Stubborn(Lab):
        def machine(self, name: str) -> Any:
            async def fail() -> None:
                raise LabError(f"{name} is not fully restored")

            return SimpleNamespace(set=super().machine(name).set, unset=fail)

    lab, settings = Stubborn((), ("w1",)), HostSettings("w1", ())
    machines = reconciler(lab)
    await machines.reconcile(plan(settings))
    with pytest.raises(LabError, match="not fully restored"):
        await machines.restore(None)
    await machines.reconcile(plan(settings))
    assert lab.made == [("w1", settings)] * 2


async def test_a_box_whose_settings_are_unknown_after_a_failure_is_named_with_the_remedy() -> None:
    """A swap lets new connections begin again after a failure, which may be that of the box's own settings."""
    lab = Lab(("router-w",))
    lab.network.box = lambda _: SimpleNamespace(kind=SimpleNamespace(settable=()))
    machines = reconciler(lab)
    with pytest.raises(LabError, match=r"^router-w: its settings are unknown after a failure; .* `atoll apply`"):
        await machines.admit("router-w", on=True)
    await machines.reconcile(plan(HostSettings("router-w", ())))
    await machines.admit("router-w", on=True)
