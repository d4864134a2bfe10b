# SPDX-License-Identifier: Apache-2.0
"""A run's figures, and the proof on the wire that they are about what was configured: exactly, in virtual time.

Every packet between the two taps is accounted for, and none was under way a nanosecond less than the link's delay nor
longer than that and a full queue.
"""

import csv
import json
import subprocess
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from atoll_hosts.binary import find_binary
from tests.support.sandbox import GEO, QUICK
from tests.support.virtual_runs import RESOLUTION_NS, atoll, checks, packets, run_virtually

pytestmark = pytest.mark.virtual


# Of examples/geo.yaml
DELAY_NS = 250 * 10**6
RATE_BIT_S = 16_000_000
QUEUE_BYTES = 100_000
FULL_QUEUE_NS = 8 * QUEUE_BYTES * 10**9 // RATE_BIT_S
MTU = 1500
CHANNELS = 20
TERRESTRIAL_MS = {"w1": 5, "w2": 20, "w3": 50, "w4": 90, "w5": 140, "w6": 200}

# Ports of the chain switch, as in emulation/labs/island.yaml, of boxes that the chain leaves out.
LEFT_OUT = {"11", "12", "13", "14", "17", "18", "19", "20"}

ICMP = 1  # RFC 792
WS = int(ip_address("10.10.1.1"))  # which sends the ping series

# Enough of each packet to know it again further on; a retransmission is another packet.
_KEY = ("src", "dst", "proto", "sport", "dport", "seq", "ip_id", "payload_bytes")


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of one run of the demo experiment, cut to 20 s."""
    return run_virtually(tmp_path_factory.mktemp("figures"), GEO, "--duration", "20 s")


@pytest.fixture(scope="module")
def run_dir(summary: dict[str, Any]) -> Path:
    return Path(summary["run_dir"])


@pytest.fixture(scope="module")
def taps(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Packets at the world's and at the island's tap."""
    scratch = tmp_path_factory.mktemp("records")
    return packets(run_dir, "world", scratch), packets(run_dir, "island", scratch)


@pytest.fixture(scope="module")
def mark(run_dir: Path) -> dict[str, Any]:
    """What the link itself counted while the captures went on."""
    lines = map(json.loads, (run_dir / "link.jsonl").read_text().splitlines())
    (found,) = [line for line in lines if line["box"] == "sat" and line.get("mark") == "end"]
    return found


def test_nothing_is_left_out_of_the_run_directory(run_dir: Path) -> None:
    for name in ("manifest.json", "events.jsonl", "link.jsonl", "metrics.lp.zst", "summary.json", "report.html"):
        assert run_dir.joinpath(name).stat().st_size > 0
    captures = {path.name for path in (run_dir / "captures").iterdir()}
    assert captures == {"world.pcap.zst", "island.pcap.zst", "link-sat.pcap.zst"}


def test_terrestrial_latency_is_imposed_by_the_network(summary: dict[str, Any]) -> None:
    measured = {server: rtt["measured"] for server, rtt in summary["terrestrial_rtt_ms"].items()}
    assert measured == pytest.approx(TERRESTRIAL_MS, abs=RESOLUTION_NS / 1e6)
    assert {server: rtt["configured"] for server, rtt in summary["terrestrial_rtt_ms"].items()} == TERRESTRIAL_MS


def test_the_queue_fills_and_the_pings_see_it(summary: dict[str, Any], taps: tuple[Any, Any]) -> None:
    """Ten pings a second may miss its fullest moment; a full queue may refuse one, and delays by what it holds."""
    assert summary["base_rtt_ms"] == pytest.approx(2 * DELAY_NS / 1e6, abs=RESOLUTION_NS / 1e6)
    assert summary["sojourn_bound_to_island_ms"] == FULL_QUEUE_NS / 1e6
    assert 0.9 * FULL_QUEUE_NS <= summary["sojourn_max_ms"] * 1e6 <= FULL_QUEUE_NS
    assert QUEUE_BYTES - MTU < summary["queue_max_bytes"] <= QUEUE_BYTES
    series = [{*records[(records["proto"] == ICMP) & (records["src"] == WS)]["ip_id"].tolist()} for records in taps]
    assert (summary["ping_sent"], summary["ping_lost"]) == (200, len(series[0] - series[1]))
    assert summary["ping_lost"] <= 2


def test_the_rate_is_never_exceeded(summary: dict[str, Any]) -> None:
    assert summary["windows_over_rate"] == 0
    assert summary["scheduled_windows_over_rate"] == 0
    assert 0 < summary["goodput_mbit_s"] <= summary["throughput_mbit_s"] <= RATE_BIT_S / 1e6


def test_captures_and_the_link_count_the_same_packets_and_bytes(
    summary: dict[str, Any], taps: tuple[Any, Any], mark: dict[str, Any]
) -> None:
    """What passed the world's tap is what came into the link, what it sent is what passed the island's, and back."""
    world, island = taps
    for direction, sent, arrived in (("to_island", world, island), ("to_world", island, world)):
        counted, to_island = mark[direction], int(direction == "to_island")
        before, after = (records[records["to_island"] == to_island] for records in (sent, arrived))
        assert (counted["in_packets"], counted["in_bytes"]) == (len(before), before["ip_bytes"].sum())
        assert (counted["out_packets"], counted["out_bytes"]) == (len(after), after["ip_bytes"].sum())
    assert summary["loss_bytes_captures"] == summary["loss_bytes_link"] == mark["to_island"]["dropped_bytes"] > 0
    assert summary["loss_packets_captures"] == mark["to_island"]["dropped_packets"]


def test_no_packet_is_under_way_less_than_the_delay_nor_longer_than_with_a_full_queue(taps: tuple[Any, Any]) -> None:
    world, island = taps
    sent, arrived = (by_key(records[records["to_island"] == 1]) for records in taps)
    for key in sent.keys() & arrived.keys():
        if len(sent[key]) > 1:  # a repeated SYN-ACK is the same packet again, with the identification 0
            del sent[key], arrived[key]
    assert set(arrived) <= set(sent), "what reached the island passed the world's tap before"
    under_way = [instant - sent[key][0] for key, (instant,) in arrived.items()]
    assert DELAY_NS <= min(under_way) <= DELAY_NS + RESOLUTION_NS
    assert DELAY_NS + 0.9 * FULL_QUEUE_NS <= max(under_way) <= DELAY_NS + FULL_QUEUE_NS

    answers, back = (records[records["to_island"] == 0] for records in (island, world))
    assert answers[list(_KEY)].tolist() == back[list(_KEY)].tolist(), "none was lost, none overtook another"
    assert DELAY_NS <= (back["t_ns"] - answers["t_ns"]).min() <= DELAY_NS + RESOLUTION_NS


def by_key(records: Any) -> dict[tuple[int, ...], list[int]]:
    """Instants of packets by what tells them apart."""
    found: dict[tuple[int, ...], list[int]] = {}
    for key, t_ns in zip(records[list(_KEY)].tolist(), records["t_ns"].tolist(), strict=True):
        found.setdefault(key, []).append(t_ns)
    return found


def test_the_wire_shows_every_server_at_both_taps(taps: tuple[Any, Any]) -> None:
    servers = {int(ip_address(f"10.10.0.{number}")) for number in range(1, len(TERRESTRIAL_MS) + 1)}
    for records in taps:
        assert servers <= set(records["src"].tolist())


def test_no_packet_enters_a_box_outside_the_chain(run_dir: Path) -> None:
    """The switch's own port counters: into PEPs and coders, which this chain leaves out, it sent nothing."""
    ports = json.loads((run_dir / "manifest.json").read_text())["switch_counters"]["sw-c"]["ports"]
    assert {port: ports[port]["tx_packets"] for port in LEFT_OUT} == dict.fromkeys(LEFT_OUT, 0)
    assert all(ports[port]["tx_packets"] > 1000 for port in ("15", "16")), "into the link"


def test_flows_complete(summary: dict[str, Any]) -> None:
    """One a channel is under way when time is up."""
    assert summary["flows_completed"] > 200
    assert (summary["flows_cut"], summary["flows_failed"]) == (CHANNELS, 0)


def test_the_flows_are_those_the_seed_draws(run_dir: Path) -> None:
    """Server and size of every flow of the run are what `atoll-host flows` prints for its seed."""
    rows = [row for path in (run_dir / "logs").glob("flows-*.csv") for row in csv.DictReader(path.open())]
    assert {int(row["channel"]) for row in rows} == set(range(CHANNELS))
    for channel in range(CHANNELS):
        ours = sorted((int(row["flow"]), int(row["size_bytes"])) for row in rows if row["channel"] == str(channel))
        options = {"seed": 1, "channel": channel, "count": len(ours), "servers": len(TERRESTRIAL_MS)}
        argv = [find_binary(), "flows", *(f"--{name}={option}" for name, option in options.items())]
        drawn = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert ours == [(int(row["flow"]), int(row["size_bytes"])) for row in csv.DictReader(drawn.splitlines())]


def test_flows_are_divided_by_size(summary: dict[str, Any]) -> None:
    classes = summary["flow_classes"]
    assert sum(each["completed"] for each in classes) == summary["flows_completed"]
    assert sum(each["flows"] for each in classes) == summary["flows_completed"] + CHANNELS
    least_rtt_s = (2 * DELAY_NS / 10**6 + min(TERRESTRIAL_MS.values())) / 1e3
    assert classes[0]["completion_s"]["p50"] >= 2 * least_rtt_s
    assert 0.5 < summary["initial_window"]["flows_share"] < 1
    assert summary["concurrency"]["mean"] == pytest.approx(CHANNELS, rel=0.02)


def test_each_lost_packet_is_known_and_the_link_counted_as_many(summary: dict[str, Any], run_dir: Path) -> None:
    """Within the measurement, by two ways: packets of two captures, and the increase of the link's counters."""
    counters = [json.loads(line) for line in (run_dir / "link.jsonl").read_text().splitlines()]
    start_ns, end_ns = summary["origin_ns"], summary["origin_ns"] + 20 * 10**9
    dropped = [
        line["to_island"]["dropped_packets"]
        for line in counters
        if line["box"] == "sat" and line["type"] == "counters" and start_ns <= line["t_ns"] <= end_ns + 10**7
    ]
    bursts = summary["loss_bursts"]["sat"]
    assert bursts["lost"] == dropped[-1] - dropped[0] > 0
    assert sum(length * often for length, often in bursts["lengths"]) == bursts["lost"]
    assert bursts["burst_share"] > 0.9, "a full queue drops packets one after the other, but for those that just fit"


def test_queue_figures_agree_with_each_other(summary: dict[str, Any]) -> None:
    assert summary["ping_sojourn"]["max_ms"] == pytest.approx(summary["sojourn_max_ms"])
    assert summary["standing_queue"]["max_bytes"] <= summary["queue_max_bytes"] <= QUEUE_BYTES
    regime = summary["regime"]
    assert regime["utilisation"] == summary["utilisation"]
    assert regime["span_s"] == pytest.approx(3 * summary["base_rtt_ms"] / 1e3)
    assert regime["regime"] in {"pre-oscillation", "oscillation"}, "20 channels leave most of the link unused"


def test_the_report_can_be_made_again_from_raw_data(run_dir: Path) -> None:
    before = (run_dir / "summary.json").read_bytes()
    for derived in ("summary.json", "report.html"):
        run_dir.joinpath(derived).unlink()
    assert atoll(run_dir, "report", run_dir).returncode == 0
    assert (run_dir / "summary.json").read_bytes() == before
    assert (run_dir / "report.html").stat().st_size > 0


def test_a_run_without_load_measures_the_idle_link(tmp_path: Path) -> None:
    """No channels, no transfer: pings alone, all answered after the same time, nothing lost."""
    idle = run_virtually(tmp_path, QUICK, "--set", "traffic.channels=0")
    assert (idle["flows_completed"], idle["ping_lost"], idle["loss_bytes_captures"]) == (0, 0, 0)
    assert idle["rtt_max_ms"] - idle["base_rtt_ms"] <= RESOLUTION_NS / 1e6
    beyond = checks(Path(idle["run_dir"]))
    assert beyond
    assert all(0 <= each <= RESOLUTION_NS for each in beyond.values()), beyond
