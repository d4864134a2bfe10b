# SPDX-License-Identifier: Apache-2.0
"""``atoll trace``: the way of a packet as a value, as text, and as JSON."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from atoll_apps.steering import flow_entries
from atoll_cli.commands.trace import print_trace
from atoll_controller.tracing.packet_trace import HopKind, PacketTrace, trace, trace_text
from atoll_core.codec import from_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry

Demo = tuple[Network, Experiment, tuple[FlowEntry, ...]]


@pytest.fixture
def demo(project: Path) -> Demo:
    """Two chains at once: half of the island behind the coders' places."""
    network, experiment = load_experiment(project / "examples" / "half-coded.yaml")
    return network, experiment, flow_entries(network, experiment)


def test_a_trace_names_every_station_and_adds_up_the_delays(demo: Demo) -> None:
    """Half the server's latency class, the link's propagation."""
    found = trace(*demo, "w6", "i1", Protocol.TCP)
    stations = [hop.name for hop in found.hops if hop.kind is not HopKind.SWITCH]
    assert stations == ["delay", "tap-w", "coder-w", "sat", "coder-i", "tap-i", "i1"]
    assert (found.chain, found.arrives, found.delay_ns) == ("coded", True, 350_000_000)
    assert {hop.kind for hop in found.hops if hop.name in ("coder-w", "sat")} == {HopKind.BOX}
    first = found.hops[0]
    assert (first.kind, first.name, first.port, first.vlan) == (HopKind.SWITCH, "sw-w2", 3, None)


def test_the_way_back_is_the_mirror_image(demo: Demo) -> None:
    """And as long, the delays of this link being equal."""
    there, back = trace(*demo, "w6", "i5", Protocol.UDP), trace(*demo, "i5", "w6", Protocol.UDP)
    assert [hop.name for hop in back.hops if hop.kind is HopKind.TAP] == ["tap-i", "tap-w"]
    assert there.delay_ns == back.delay_ns


def test_a_missing_entry_shows_where_packets_are_lost(demo: Demo) -> None:
    """With what the switches really hold, a trace tells where a packet ends."""
    network, experiment, entries = demo
    held = tuple(entry for entry in entries if entry.match.in_port != 16)
    found = trace(network, experiment, held, "ws", "is", Protocol.ICMP)
    assert not found.arrives
    assert found.hops[-1].kind is HopKind.DROP
    assert re.search(r"sw-c/16 +drop +untagged +drop +no entry matches", trace_text(found))
    assert "it does not arrive at is" in trace_text(found)


def test_the_table_is_for_people(demo: Demo) -> None:
    """Entries with their actions and reasons, boxes with their delays."""
    text = trace_text(trace(*demo, "w3", "i5", Protocol.TCP))
    assert text.startswith("tcp from w3 to i5 takes chain main: one way at least 275 ms, without queues")
    assert "pop, port 21, port 15  delay -> sat: delayed by class rtt-50" in text
    assert "250 ms                 link of 16 Mbit/s, queue 100 kB" in text


def test_a_trace_survives_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What --json prints is the whole value."""
    path = project / "examples" / "geo.yaml"
    assert print_trace(path, "w1", "i1", Protocol.TCP, as_json=True) == 0
    network, experiment = load_experiment(path)
    found = from_json(PacketTrace, json.loads(capsys.readouterr().out))
    assert found == replace(trace(network, experiment, flow_entries(network, experiment), "w1", "i1", Protocol.TCP))


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [
        (
            "w1",
            "w2",
            (
                "w1 and w2 are both world hosts, and there is no traffic between them; name one world host and one "
                "island host"
            ),
        ),
        ("w1", "i33", "lab island has no host 'i33'; known hosts: w1, w2"),
        ("sat", "i3", "lab island has no host 'sat'; known hosts: w1"),
    ],
)
def test_hosts_that_have_no_way_between_them(demo: Demo, src: str, dst: str, message: str) -> None:
    """One line: what is wrong and what would be right."""
    with pytest.raises(PlanError) as refusal:
        trace(*demo, src, dst, Protocol.TCP)
    assert message in str(refusal.value)
