# SPDX-License-Identifier: Apache-2.0
"""Probe frames: what scapy, which knows the protocols, reads in them, and the examples that hosts read too."""

import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from atoll_controller.probing.probe_frames import OTHER_PROTOCOL, ProbeEnd, ProbeMark, probe_frame, probe_packet

WORLD = ProbeEnd("02:00:00:00:00:01", IPv4Address("10.10.0.1"))
ISLAND = ProbeEnd("02:00:00:00:00:02", IPv4Address("10.20.0.2"))
MARK = ProbeMark(0xDEADBEEF, 7, 2)
MARKED = b"atoll probe\0" + bytes.fromhex("deadbeef 00000007 0002 00 00".replace(" ", ""))


def read(vlan: int | None, protocol: int) -> Any:
    """A probe frame as scapy reads it."""
    return Ether(probe_frame(WORLD, ISLAND, vlan, protocol, MARK))


@pytest.mark.parametrize("vlan", [None, 101])
def test_frames_go_from_the_source_to_the_true_mac_of_the_destination(vlan: int | None) -> None:
    """With a tag where the entry takes tagged frames."""
    frame = read(vlan, 1)
    assert (frame.src, frame.dst) == (WORLD.mac, ISLAND.mac)
    assert (frame[Dot1Q].vlan if vlan else None) == vlan
    assert (frame[IP].src, frame[IP].dst, frame[IP].ttl) == ("10.10.0.1", "10.20.0.2", 64)
    assert len(bytes(frame)) >= 60


@pytest.mark.parametrize(("protocol", "layer"), [(1, ICMP), (6, TCP), (17, UDP), (OTHER_PROTOCOL, IP)])
def test_every_protocol_carries_the_mark_and_right_checksums(protocol: int, layer: Any) -> None:
    """Those that scapy computes anew are those that are there."""
    packet = read(None, protocol)[IP]
    anew = packet.copy()
    for each in (IP, layer):
        del anew[each].chksum
    assert bytes(IP(bytes(anew))) == bytes(packet)
    assert bytes(packet[Raw].load) == MARKED
    assert packet.proto == protocol


def test_nobody_reacts_to_probes_of_tcp() -> None:
    """They are resets."""
    assert read(None, 6)[TCP].flags == "R"
    assert read(None, 1)[ICMP].type == 8, "echo request"
    assert read(None, 17)[UDP].dport == 9, "discard"


def test_packets_are_those_that_hosts_know(project: Path) -> None:
    """The same examples are read by ``atoll-host``'s tests."""
    examples = (project / "tests/data/contract/probe-packets.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(examples) == 4
    for line in map(json.loads, examples):
        mark = ProbeMark(line["session"], line["number"], line["attempt"])
        packet = probe_packet(IPv4Address(line["src"]), IPv4Address(line["dst"]), line["protocol"], mark)
        assert packet.hex() == line["packet"]
