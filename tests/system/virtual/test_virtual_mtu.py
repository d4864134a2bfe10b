# SPDX-License-Identifier: Apache-2.0
"""Chains with another MTU than Ethernet's: all tests before a run pass, and no packet is too long for its path."""

import json
import struct
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.support.capture_file import read_capture
from tests.support.sandbox import ROOT
from tests.support.virtual_runs import RESOLUTION_NS, checks, packets, run_virtually

pytestmark = pytest.mark.virtual

ICMP, TCP, UDP = 1, 6, 17
ECHOES = {0, 8}  # RFC 792
IP_TCP = 40  # bytes of headers, RFC 879
STAMPS = 12  # bytes of options of every segment, RFC 7323
UNKNOWN = 2**64 - 1  # of counters that a port does not have (OpenFlow 1.3.5, 7.3.5.6)
I2 = int(ip_address("10.20.0.2"))


def run_of(directory: Path, name: str) -> Path:
    summary = run_virtually(directory, ROOT / "tests" / "data" / "mtu" / f"{name}.yaml")
    assert (summary["verdict"], summary["caveats"]) == ("valid", [])
    assert (summary["transfer_complete"], summary["flows_failed"], summary["oversize_packets"]) == (True, 0, 0)
    return Path(summary["run_dir"])


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("narrow"), "narrow")


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("raised"), "raised")


def test_the_least_mtu_carries_the_load(tmp_path: Path) -> None:
    run_of(tmp_path, "least")


def test_one_host_with_a_smaller_mtu_leaves_the_paths_of_others_as_they_are(tmp_path: Path) -> None:
    """A flood of full-size packets before the run measures the link's rate between other hosts."""
    summary = run_virtually(tmp_path, ROOT / "tests" / "data" / "mtu" / "narrow.yaml", "--set", "lab.hosts.w1.mtu=1300")
    assert (summary["verdict"], summary["oversize_packets"]) == ("valid", 0)


def announced(run_dir: Path, capture: str) -> dict[int, set[int]]:
    """The maximum segment sizes in SYNs, by the island's host."""
    found: dict[int, set[int]] = {}
    for record in read_capture(run_dir / "captures" / f"{capture}.pcap.zst"):
        frame = record.kept
        if frame[12:14] == b"\x08\x00" and frame[23] == TCP and frame[47] & 2:
            src, dst = struct.unpack_from("!II", frame, 26)
            kind, length, size = struct.unpack_from("!BBH", frame, 54)
            assert (kind, length) == (2, 4)
            island = src if src >> 16 == I2 >> 16 else dst
            found.setdefault(island, set()).add(size)
    return found


def calibrated(run_dir: Path) -> dict[tuple[str, str, str], str]:
    """The state of each figure of the flood before the run."""
    events = map(json.loads, (run_dir / "events.jsonl").read_text().splitlines())
    found = (event for event in events if event["type"] == "calibration")
    return {(each["box"], each["direction"], each["name"]): each["state"] for each in found}


def dropped(run_dir: Path) -> int:
    counters: dict[str, Any] = json.loads((run_dir / "manifest.json").read_text())["switch_counters"]
    return sum(
        counted[name]
        for switch in counters.values()
        for counted in switch["ports"].values()
        for name in ("rx_dropped", "tx_dropped", "rx_errors", "tx_errors")
        if counted[name] != UNKNOWN
    )


@pytest.mark.parametrize("name", ["narrow", "raised"])
def test_tests_before_the_run_pass_and_nothing_is_dropped(name: str, request: pytest.FixtureRequest) -> None:
    run_dir: Path = request.getfixturevalue(name)
    beyond = checks(run_dir)
    assert {dst for _, dst in beyond} >= {"i1", "i2", "is"}
    assert all(0 <= each <= RESOLUTION_NS for each in beyond.values()), beyond
    states = calibrated(run_dir)
    ways = {(way, figure) for way in ("to_island", "to_world") for figure in ("queue", "rate of IP packets")}
    assert {state for (box, *_), state in states.items() if box == "sat"} == {"ok"}
    assert {(way, figure) for box, way, figure in states if box == "sat"} == {*ways, ("both", "RTT under load")}
    assert dropped(run_dir) == 0


@pytest.mark.parametrize("capture", ["world", "island"])
def test_packets_are_as_long_as_their_own_chain_allows(narrow: Path, capture: str, tmp_path: Path) -> None:
    """1400 bytes between the routers, 1500 in the branch; no router had to refuse any."""
    records = packets(narrow, capture, tmp_path)
    wide = (records["src"] == I2) | (records["dst"] == I2)
    for chosen, mtu in ((records[wide], 1500), (records[~wide], 1400)):
        tcp = chosen[chosen["proto"] == TCP]
        assert (tcp["ip_bytes"].max(), tcp["payload_bytes"].max()) == (mtu, mtu - IP_TCP - STAMPS)
    assert records[records["proto"] == UDP]["ip_bytes"].max() == 1400
    assert set(records[records["proto"] == ICMP]["icmp_type"].tolist()) == ECHOES
    sizes = announced(narrow, capture)
    assert sizes.pop(I2) == {1500 - IP_TCP}
    assert {size for each in sizes.values() for size in each} == {1400 - IP_TCP}


@pytest.mark.parametrize("capture", ["world", "island", "link-sat"])
def test_raised_cables_carry_longer_packets_to_the_taps(raised: Path, capture: str, tmp_path: Path) -> None:
    records = packets(raised, capture, tmp_path)
    tcp = records[records["proto"] == TCP]
    assert (tcp["ip_bytes"].max(), tcp["payload_bytes"].max()) == (1560, 1560 - IP_TCP - STAMPS)
    assert records[records["proto"] == UDP]["ip_bytes"].max() == 1560
    assert set(records[records["proto"] == ICMP]["icmp_type"].tolist()) <= ECHOES
    assert {size for each in announced(raised, capture).values() for size in each} == {1560 - IP_TCP}
