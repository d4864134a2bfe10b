# SPDX-License-Identifier: Apache-2.0
"""What switches whose data plane lags may still forward by, after it was deleted."""

from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from atoll_controller.fabric import reconciler
from atoll_controller.fabric.reconciler import Deletions, Reconciler
from atoll_controller.planner.planner import make_plan
from atoll_core.events.event_bus import EventBus
from atoll_core.lab.network import Network, Switch
from atoll_core.plan.flow_entry import FlowEntry, Match, Output
from atoll_switches.capability_profile import profile
from tests.support.labs import experiment
from tests.support.memory_switches import MemorySwitches
from tests.unit.controller.test_swap_executor import laboratory

_SWITCHES = (Switch("slow", 1, "procurve-v2"), Switch("prompt", 2, "ovs"))
_WORLD, _ISLAND = IPv4Network("10.0.0.0/16"), IPv4Network("10.1.0.0/16")
NETWORK = Network("lab", "lab.yaml", _WORLD, _ISLAND, _SWITCHES, (), (), (), (), ())


def entry(switch: str, in_port: int, *ports: int) -> FlowEntry:
    return FlowEntry(switch, 100, Match(in_port), tuple(map(Output, ports)), 1, "")


def test_an_entry_may_be_forwarded_by_for_as_long_as_its_switch_lags() -> None:
    """Whatever its actions were; others, and those of switches that do not lag, are not waited for."""
    now_s = [100.0]
    deleted = Deletions(NETWORK, lambda: now_s[0])
    deleted.record([entry("slow", 1, 2), entry("prompt", 1, 2)])
    now_s[0] = 102.0
    deleted.record([entry("slow", 2, 3)])
    assert deleted.wait_s([entry("slow", 1, 7)]) == 3.0
    assert deleted.wait_s([entry("slow", 1, 2), entry("slow", 2, 3)]) == 5.0
    assert deleted.wait_s([entry("slow", 3, 2), entry("prompt", 1, 2)]) == 0.0
    now_s[0] = 107.0
    assert deleted.wait_s([entry("slow", 1, 2), entry("slow", 2, 3)]) == 0.0


def test_an_entry_that_dropped_is_not_waited_for() -> None:
    """No probe passes by it."""
    deleted = Deletions(NETWORK, lambda: 0.0)
    deleted.record([entry("slow", 1)])
    assert deleted.wait_s([entry("slow", 1, 2)]) == 0.0


async def test_the_switches_daemon_remembers_what_it_deletes_but_for_a_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that stayed are not waited for."""
    monkeypatch.setattr(reconciler, "profile", lambda driver: replace(profile(driver), lag_s=5.0))
    network = laboratory()
    one, other = (make_plan(network, experiment(network, hops)) for hops in (("b0", "b1"), ("b1", "b2")))
    switches = MemorySwitches(network, lambda: None)
    kept = Reconciler(switches, network, NotImplemented, EventBus())
    await kept.apply(one)
    await kept.apply(other, dry_run=True)
    assert kept.lag_s(one.flows) == 0.0
    await kept.apply(other)
    assert 0.0 < kept.lag_s(one.flows) <= 5.0
    assert kept.lag_s(other.flows) == 0.0
