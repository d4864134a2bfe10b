# SPDX-License-Identifier: Apache-2.0
"""Coders in virtual time: what the code recovers is what it must, and nothing else changes on the way."""

import json
from collections import Counter
from math import comb, sqrt
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory.metrics_spool import SPOOL, read_spool
from atoll_core.metrics.line_protocol import MetricPoint
from tests.support.capture_file import read_capture
from tests.support.virtual_runs import run_virtually

pytestmark = pytest.mark.virtual
BOXES = ("coder-w", "coder-i")
UDP_PACKET = 1000
UDP_BIT_S = 8_000_000
DURATION_S = 20

SETTINGS = "coder-w: {{{code}}}, coder-i: {{{code}, direction: to_island}}"
UDP_ALONE = f"traffic: {{channels: 0}}\nudp: {{rate: {UDP_BIT_S} bit/s, packet: {UDP_PACKET} B, flow_sizes: 10 MB}}\n"
HEADER_BYTES = 14
TTL_AT, CHECKSUM_AT = 8, 10


def ran(
    directory: Path,
    project: Path,
    code: str,
    loss: str = "null",
    load: str = UDP_ALONE,
    chain: str = "",
    more: str = "",
    settings: tuple[str, ...] = (),
) -> dict[str, Any]:
    """A valid run of the example without its transfer, with this code at both coders, loss of the link and load."""
    directory.mkdir(exist_ok=True)
    text = (project / "examples/coder-geo.yaml").read_text(encoding="utf-8")
    latency = text[text.index("latency:") : text.index("traffic:")]
    head = (text[: text.index("boxes:")] + latency).replace("../emulation", str(project / "emulation"))
    head = head.replace("loss: 1 %", f"loss: {loss}").replace("60 s", f"{DURATION_S} s")
    if chain:
        head = head.replace("[tap-w, coder-w, sat, coder-i, tap-i]", chain)
    boxes = f"boxes: {{{SETTINGS.format(code=code)}}}\n"
    (directory / "e.yaml").write_text(head + boxes + load + more, encoding="utf-8")
    given = [word for setting in settings for word in ("--set", setting)]
    summary = run_virtually(directory, "e.yaml", *given)
    caveats = [text for text in summary["caveats"] if "whistle" not in text]  # the link loses one of 20 packets
    assert (summary["reasons"], caveats) == ([], [])
    return summary


def residual(generation: int, redundancy: int, loss: float) -> tuple[float, float]:
    """The share of packets that an ideal code does not recover, and the variance of their number in a generation.

    As many packets as a generation has decode it. With fewer, the lost ones among its own packets stay lost: of ``k``
    losses, ``k * generation / (generation + redundancy)`` on average.
    """
    sent = generation + redundancy
    mean = square = 0.0
    for lost in range(redundancy + 1, sent + 1):
        chance = comb(sent, lost) * loss**lost * (1 - loss) ** (sent - lost)
        own = lost * generation / sent
        mean += chance * own
        square += chance * (own**2 + own)  # no less than the variance of a hypergeometric number
    return mean / generation, square


@pytest.mark.parametrize("scheme", ["rlnc", "reed-solomon"])
def test_what_stays_lost_is_what_an_ideal_code_cannot_recover(tmp_path: Path, project: Path, scheme: str) -> None:
    """Of random losses of 5 %, generations of 10 packets with 2 repair packets leave an eighth."""
    summary = ran(tmp_path, project, f"scheme: {scheme}, generation: 10, redundancy: 2", loss="5 %")
    packets = summary["boxes"]["coder-w"]["source_packets"]
    assert packets >= 0.99 * UDP_BIT_S * DURATION_S / 8 / UDP_PACKET
    generations = packets / 10
    share, variance = residual(10, 2, 0.05)
    lost = summary["udp"]["lost_packets"]
    assert abs(lost - share * packets) < 4 * sqrt(generations * variance), (lost, share * packets)
    decoded = summary["boxes"]["coder-i"]
    assert decoded["recovered_packets"] > 6 * lost
    assert decoded["malformed_packets"] == decoded["late_packets"] == 0
    assert 0.8 * lost < decoded["lost_packets"] < 1.1 * lost, "counted two seconds later"


def test_a_sliding_window_brings_packets_back_sooner_than_generations(tmp_path: Path, project: Path) -> None:
    """Of random losses of 5 %, with the same overhead: no more stay lost than of an ideal code of half its size."""
    schemes = {"sliding-window": "scheme: sliding-window, generation: 20, redundancy: 4"}
    schemes["rlnc"] = "scheme: rlnc, generation: 20, redundancy: 4"
    runs = {name: ran(tmp_path / name, project, code, loss="5 %") for name, code in schemes.items()}
    for summary in runs.values():
        sent, decoded = (summary["boxes"][box] for box in BOXES)
        packets = sent["source_packets"]
        assert abs(sent["repair_packets"] - 0.2 * packets) < 10
        share, _ = residual(10, 2, 0.05)
        assert summary["udp"]["lost_packets"] < share * packets
        assert decoded["recovered_packets"] > 0.04 * packets
        assert decoded["malformed_packets"] == decoded["late_packets"] == 0
    delays = {
        name: each["boxes"]["coder-i"]["recovery_delay_ns"] / each["boxes"]["coder-i"]["recovered_packets"]
        for name, each in runs.items()
    }
    assert delays["sliding-window"] < 0.7 * delays["rlnc"]
    window = runs["sliding-window"]["boxes"]["coder-i"]
    assert window["complete_generations"] == window["lost_generations"] == 0
    assert abs(window["lost_packets"] - runs["sliding-window"]["udp"]["lost_packets"]) <= 3


def test_partial_unit_memory_recovers_packets_that_generations_of_the_same_overhead_lose(
    tmp_path: Path, project: Path
) -> None:
    """Of random losses of 5 %, by repair packets that leave at the same instants."""
    size = "generation: 10, redundancy: 1"
    codes = {"rlnc": f"scheme: rlnc, {size}", "memory": f"scheme: partial-unit-memory, memory: 10, {size}"}
    runs = {name: ran(tmp_path / name, project, code, loss="5 %") for name, code in codes.items()}
    for name, summary in runs.items():
        sent, decoded = (summary["boxes"][box] for box in BOXES)
        assert abs(sent["repair_packets"] - 0.1 * sent["source_packets"]) < 10, name
        assert abs(sent["encoded_generations"] - 0.1 * sent["source_packets"]) < 10, name
        assert decoded["malformed_packets"] == decoded["late_packets"] == 0
    lost = {name: summary["udp"]["lost_packets"] for name, summary in runs.items()}
    share, variance = residual(10, 1, 0.05)
    packets = runs["rlnc"]["boxes"]["coder-w"]["source_packets"]
    assert abs(lost["rlnc"] - share * packets) < 4 * sqrt(packets / 10 * variance)
    assert lost["memory"] < 0.75 * lost["rlnc"]


@pytest.mark.parametrize("scheme", ["rlnc", "sliding-window", "partial-unit-memory"])
def test_packets_are_held_until_those_before_them_are_recovered(tmp_path: Path, project: Path, scheme: str) -> None:
    """Of random losses of 5 %: as many come back, and none comes behind a later one. Without the hold, many do.

    A packet lost before a pause comes back after ``flush``, 100 ms.
    """
    code = f"scheme: {scheme}, generation: 10, redundancy: 2"
    at_once, held = (
        ran(tmp_path / hold, project, f"{code}, in_order_hold: {hold} ms", loss="5 %") for hold in ("0", "200")
    )
    recovered = at_once["boxes"]["coder-i"]["recovered_packets"]
    assert at_once["udp"]["reordered_packets"] > recovered / 4 > 100
    assert at_once["boxes"]["coder-i"]["held_packets"] == 0
    counted = held["boxes"]["coder-i"]
    assert held["udp"]["reordered_packets"] == 0
    assert held["udp"]["lost_packets"] == at_once["udp"]["lost_packets"]
    # The link loses packets by their numbers, and pings enter it elsewhere among them: one source packet more or less.
    assert abs(counted["recovered_packets"] - recovered) <= 2
    for boxes in (at_once["boxes"], held["boxes"]):
        missing = boxes["coder-w"]["source_packets"] - boxes["coder-i"]["arrived_source_packets"]
        known = boxes["coder-i"]["recovered_packets"] + boxes["coder-i"]["lost_packets"]
        assert missing - 1 <= known <= missing  # nothing tells that the last packet of a run is missing
    assert abs(counted["given_up_packets"] - held["udp"]["lost_packets"]) <= 10
    assert counted["held_packets"] > recovered
    assert counted["held_ns"] / counted["held_packets"] < 100e6


def test_without_the_code_all_losses_stay(tmp_path: Path, project: Path) -> None:
    summary = ran(tmp_path, project, "mode: off", loss="5 %")
    sent = UDP_BIT_S * DURATION_S / 8 / UDP_PACKET
    assert abs(summary["udp"]["lost_packets"] - 0.05 * sent) < 4 * sqrt(0.05 * sent)
    assert "coder-w" not in summary.get("boxes", {})


def passed(run_dir: str, capture: str) -> Counter[bytes]:
    """The packets of a capture without what routers change in them."""
    found: Counter[bytes] = Counter()
    for record in read_capture(Path(run_dir) / "captures" / f"{capture}.pcap.zst"):
        frame = record.kept
        kind = frame.index(b"\x08\x00", 12)  # behind a VLAN tag, if there is one
        packet = bytearray(frame[kind + 2 :])
        packet[TTL_AT] = packet[CHECKSUM_AT] = packet[CHECKSUM_AT + 1] = 0
        found[bytes(packet[: int.from_bytes(packet[2:4], "big")])] += 1
    return found


@pytest.mark.parametrize(
    "code",
    [
        "scheduler: tail",
        "scheduler: interspersed",
        "scheduler: deferred",
        "scheme: sliding-window",
        "scheme: partial-unit-memory",
        "scheme: sliding-window, scheduler: titrated, link_rate: 16 Mbit/s, link_queue: 120 kB, feedback: 50 ms",
    ],
)
def test_without_loss_every_packet_arrives_once_and_unchanged(tmp_path: Path, project: Path, code: str) -> None:
    """Compared to the last byte, at both taps, in both directions."""
    load = "traffic: {channels: 2, flow_sizes: 30 kB}\ncaptures: {snap: 1600 B}\n"
    summary = ran(tmp_path, project, f"generation: 10, {code}", load=load)
    assert summary["flows_completed"] > 0
    assert summary["flows_failed"] == 0
    world, island = (passed(summary["run_dir"], each) for each in ("world", "island"))
    either = world & island
    edge = (world - either) + (island - either)  # on their way when a capture began or ended
    assert sum(either.values()) > 1000
    assert sum(edge.values()) <= 4, edge
    decoded = summary["boxes"]["coder-i"]
    assert decoded["arrived_source_packets"] > 0
    assert summary["loss_bytes_link"] == 0
    assert decoded["recovered_packets"] == decoded["lost_packets"] == decoded["useful_repair_packets"] == 0


@pytest.mark.parametrize("first", ["coded", "bare"])
def test_a_change_between_a_coded_and_a_bare_chain_loses_nothing(tmp_path: Path, project: Path, first: str) -> None:
    """There and back under traffic."""
    chains = {"coded": "[tap-w, coder-w, sat, coder-i, tap-i]", "bare": "[tap-w, sat, tap-i]"}
    other = "bare" if first == "coded" else "coded"
    changes = f"changes:\n  - {{at: 5 s, chain: {chains[other]}}}\n  - {{at: 12 s, chain: {chains[first]}}}\n"
    summary = ran(tmp_path, project, "generation: 10, redundancy: 2", chain=chains[first], more=changes)
    assert summary["udp"]["lost_packets"] == 0
    assert summary["loss_bytes_link"] == 0
    sent = summary["boxes"]["coder-w"]["source_packets"]
    all_packets = UDP_BIT_S * DURATION_S / 8 / UDP_PACKET
    assert 0.25 * all_packets < sent < 0.75 * all_packets, "a part of the time"


def test_titrated_repair_packets_leave_room_for_packets(tmp_path: Path, project: Path) -> None:
    """Over a link that is full, repair packets of `tail` push others out of its queue; titrated ones wait, and go."""
    full = UDP_ALONE.replace(str(UDP_BIT_S), "15000000")
    rate = "link_rate: 16 Mbit/s, link_queue: 120 kB"
    lost = {
        scheduler: ran(tmp_path / scheduler, project, f"scheduler: {scheduler}, {rate}, stale: 500 ms", load=full)
        for scheduler in ("tail", "titrated")
    }
    assert lost["titrated"]["udp"]["lost_packets"] == lost["titrated"]["loss_bytes_link"] == 0
    assert lost["titrated"]["boxes"]["coder-w"]["dropped_repair_packets"] > 0
    assert lost["tail"]["udp"]["lost_packets"] > 20, "more than the code recovers"


def test_titrated_repair_packets_wait_for_traffic_that_bypasses_the_coder(tmp_path: Path, project: Path) -> None:
    """Channels of 8 Mbit/s bypass it. Its virtual queue does not see them; reports say that the link is full."""
    load = (
        "traffic: {channels: 8, flow_sizes: 10 MB, write_rate: 1 Mbit/s}\n"
        f"udp: {{rate: 7 Mbit/s, packet: {UDP_PACKET} B, flow_sizes: 10 MB}}\n"
    )
    coded = "branches: {udp: {carries: {island: 10.20.1.0/24}, chain: [tap-w, coder-w, sat, coder-i, tap-i]}}\n"
    code = "generation: 10, redundancy: 3, scheduler: titrated, link_rate: 16 Mbit/s, link_queue: 120 kB"
    encoders = {
        name: ran(tmp_path / name, project, f"{code}{more}", load=load, chain="[tap-w, sat, tap-i]", more=coded)
        for name, more in (("blind", ""), ("reports", ", feedback: 50 ms"))
    }
    withheld = {
        name: each["boxes"]["coder-w"]["dropped_repair_packets"] + each["boxes"]["coder-w"]["useless_repair_packets"]
        for name, each in encoders.items()
    }
    assert withheld["blind"] == 0
    assert withheld["reports"] > 100
    found = [line["queueing_delay_ns"] for _, line in figures_over_time(encoders["reports"], "coder-w")]
    assert 0.03e9 < max(found) < 0.065e9, "120 kB at 16 Mbit/s are 60 ms"


@pytest.mark.parametrize("chains", [1, 2])
def test_chains_over_one_link_wait_for_each_other(tmp_path: Path, project: Path, chains: int) -> None:
    """Packets for 15.6 Mbit/s in one or two tunnels over 16 Mbit/s: repair packets of neither push others out.

    Each of two tunnels alone would have room for all of its repair packets, which are 4.7 Mbit/s together.
    """
    load = (
        "traffic: {channels: 8, flow_sizes: 10 MB, write_rate: 1 Mbit/s}\n"
        f"udp: {{rate: 7 Mbit/s, packet: {UDP_PACKET} B, flow_sizes: 10 MB}}\n"
    )
    udp = "branches: {udp: {carries: {island: 10.20.1.0/24}, chain: [tap-w, coder-w, sat, coder-i, tap-i]}}\n"
    code = "generation: 10, redundancy: 3, scheduler: titrated, link_rate: 16 Mbit/s, link_queue: 120 kB"
    summary = ran(tmp_path, project, code, load=load, more=udp if chains == 2 else "")
    assert set(summary["chains"]) == ({"main", "udp"} if chains == 2 else set())
    assert summary["loss_bytes_link"] == summary["udp"]["lost_packets"] == 0
    encoder = summary["boxes"]["coder-w"]
    assert encoder["dropped_repair_packets"] > 100, "there was no room for them in time"
    assert encoder["repair_packets"] > 100, "there was room for some"


def example(directory: Path, project: Path, name: str, *settings: str) -> dict[str, Any]:
    """A valid run of an example that comes with atoll, with settings in the language of ``--set``."""
    directory.mkdir(exist_ok=True)
    given = [word for setting in settings for word in ("--set", setting)]
    summary = run_virtually(directory, project / f"examples/{name}.yaml", *given)
    assert summary["verdict"] == "valid", (summary["reasons"], summary["caveats"])
    return summary


def test_a_pep_works_over_a_coded_tunnel(tmp_path: Path, project: Path) -> None:
    """Its connections are split, the packets between the PEPs are coded, and every byte comes."""
    summary = example(tmp_path / "coded", project, "coder-pep", "transfer={size: 5 MB, start: 2 s}", "duration=25 s")
    assert summary["transfer_complete"]
    assert summary["flows_failed"] == 0
    assert summary["boxes"]["pep-w"]["connections"] > 20
    assert summary["boxes"]["coder-i"]["recovered_packets"] > 20
    assert set(summary["payload"]["boxes"]) == {"pep-w", "coder-w", "coder-i", "pep-i"}
    assert summary["payload"]["wrong"] == []
    assert "residual_bursts" not in summary, "packets between the taps are not the same"


ADAPTIVE = "generation: 30, redundancy: adaptive, residual_loss: 0.5 %"


def figures_over_time(summary: dict[str, Any], box: str) -> list[tuple[float, dict[str, Any]]]:
    """The counters of a box in the run's log, with their time in seconds since the load began."""
    run_dir = Path(summary["run_dir"])
    events = map(json.loads, (run_dir / "events.jsonl").read_text().splitlines())
    begin_ns = next(event["at_ns"] for event in events if event["type"] == "start")
    lines = map(json.loads, (run_dir / "link.jsonl").read_text().splitlines())
    own = (line for line in lines if line["box"] == box and line["type"] == "counters")
    return [((line["t_ns"] - begin_ns) / 1e9, line) for line in own]


def test_adapted_repair_packets_follow_losses_that_change_during_the_run(tmp_path: Path, project: Path) -> None:
    """Without loss there are none; with 5 % as many as reach the residual loss, within seconds; then fewer again."""
    changes = (
        "changes:\n  - {at: 6 s, links: {sat: {to_island: {loss: 5 %}}}}\n"
        "  - {at: 13 s, links: {sat: {to_island: {loss: 0 %}}}}\n"
    )
    summary = ran(tmp_path, project, ADAPTIVE, loss="0 %", more=changes)
    used = [(at, line["redundancy"]) for at, line in figures_over_time(summary, "coder-w")]
    needed = next(w for w in range(30) if residual(30, w, 0.05)[0] <= 0.005)
    assert {w for at, w in used if 3 < at < 6.5} == {0}
    assert all(abs(w - needed) <= 3 for at, w in used if 10 < at < 13.5), (needed, used)
    assert min(w for at, w in used if at > 18) < needed - 2, used
    encoder, decoder = (summary["boxes"][box] for box in BOXES)
    assert encoder["arrived_reports"] > 100
    assert encoder["redundancy_changes"] > 1
    assert encoder["fallbacks"] == 0
    assert decoder["bursts_of_1"] > decoder["bursts_of_2"] > 0
    assert decoder["missing_source_packets"] > 100


def test_without_reports_the_fallback_holds(tmp_path: Path, project: Path) -> None:
    """The way back of the reports loses everything for some seconds; UDP towards the island does not need it."""
    changes = (
        "changes:\n  - {at: 6 s, links: {sat: {to_world: {loss: 100 %}}}}\n"
        "  - {at: 14 s, links: {sat: {to_world: {loss: 0 %}}}}\n"
    )
    code = f"{ADAPTIVE}, redundancy_fallback: 5, feedback_timeout: 2 s"
    summary = ran(tmp_path, project, code, loss="1 %", load=UDP_ALONE, more=changes)
    used = [(at, line["redundancy"], line["fallback"]) for at, line in figures_over_time(summary, "coder-w")]
    before = {w for at, w, fallback in used if 4 < at < 8 and not fallback}
    assert before
    assert 5 not in before
    assert {(w, fallback) for at, w, fallback in used if 9 < at < 14} == {(5, 1)}
    assert {fallback for at, _, fallback in used if 15.5 < at < 20} == {0}, "reports are back"
    assert summary["boxes"]["coder-w"]["fallbacks"] == 1


def test_half_of_the_island_is_coded_and_the_other_half_is_not(tmp_path: Path, project: Path) -> None:
    """The coders see the packets of their chain, and what stays lost in it is told apart."""
    summary = example(
        tmp_path, project, "coder-half", "transfer=null", "duration=20 s", "links.sat.to_island.loss=1 %",
        "traffic={channels: 12, flow_sizes: 100 kB}",
    )  # fmt: skip
    coded, uncoded = (summary["chains"][name] for name in ("main", "uncoded"))
    assert coded["flows_completed"] > 0 < uncoded["flows_completed"]
    assert coded["hops"][1] == "coder-w"
    residual = summary["residual_bursts"]
    assert set(residual) == {"main"}
    came, sent = residual["main"]["packets"], summary["boxes"]["coder-w"]["source_packets"]
    assert 0.95 * sent < came < sent + 300, "200 pings pass uncoded, and the coder counts a little longer"
    assert residual["main"]["lost"] < 0.005 * residual["main"]["packets"], "1 % is lost, and most of it recovered"
    assert uncoded["loss_fraction"] > 0.005


def test_both_directions_are_coded(tmp_path: Path, project: Path) -> None:
    """Either coder recovers what the other one sent; pings pass uncoded."""
    summary = example(tmp_path, project, "coder-both", "transfer=null", "duration=20 s")
    for box in ("coder-w", "coder-i"):
        counted = summary["boxes"][box]
        assert counted["source_packets"] > counted["repair_packets"] > 0
        assert counted["recovered_packets"] > 10, box
        assert counted["malformed_packets"] == counted["oversize_packets"] == counted["unsent_packets"] == 0


def test_a_swap_between_coded_chains_over_spare_ports_keeps_connections(tmp_path: Path, project: Path) -> None:
    """There and back; the coders send and receive by their second pair of ports meanwhile, and nothing is lost."""
    summary = example(
        tmp_path, project, "coder-swap", "duration=24 s", "transfer={size: 8 MB, start: 3 s}",
        "links.sat.to_island.loss=null", "traffic={channels: 6, flow_sizes: 100 kB}",
        "changes=[{at: 8 s, chain: [tap-w, pep-w, coder-w, sat, coder-i, pep-i, tap-i]}, "
        "{at: 16 s, chain: [tap-w, coder-w, sat, coder-i, tap-i]}]",
    )  # fmt: skip
    assert [change["failure"] for change in summary["changes"]] == [None, None]
    assert summary["transfer_complete"]
    assert summary["flows_failed"] == summary["flows_failed_in_changes"] == 0
    assert summary["boxes"]["coder-i"]["late_packets"] == summary["boxes"]["coder-i"]["malformed_packets"] == 0
    manifest = json.loads((Path(summary["run_dir"]) / "manifest.json").read_text(encoding="utf-8"))
    ports = manifest["switch_counters"]["sw-c"]["ports"]
    assert ports["36"]["rx_packets"] > 100, "from the second pair of coder-w"
    assert ports["37"]["tx_packets"] > 100, "to that of coder-i"


def test_repair_packets_wait_in_the_links_low_priority_queue(tmp_path: Path, project: Path) -> None:
    """On a link that is full, even repair packets of `tail` push no other packet out; metrics and report show it."""
    full = UDP_ALONE.replace(str(UDP_BIT_S), "15000000")
    with_queue = "links.sat.to_island.low_priority=60 kB"
    summary = ran(tmp_path, project, "generation: 30, redundancy: 3", load=full, settings=(with_queue,))
    assert summary["udp"]["lost_packets"] == 0
    sent = summary["boxes"]["coder-w"]["repair_packets"]
    low = summary["low_priority"]["sat"]
    assert low["queue_bytes"] == 60_000
    assert abs(low["in_packets"] - sent) <= 3, "those on their way when the measurement begins and ends"
    lost = summary["links"]["sat"]["losses"]
    assert lost["queue"]["packets"] == 0 < lost["low_priority"]["packets"]
    assert abs(low["in_packets"] - low["sent_packets"] - lost["low_priority"]["packets"]) <= 60_000 / UDP_PACKET
    assert 55_000 < low["queue_max_bytes"] <= 60_000
    assert abs(summary["boxes"]["coder-i"]["arrived_repair_packets"] - low["sent_packets"]) <= 30, "those under way"
    run = Path(summary["run_dir"])
    points = [MetricPoint.parse(line) for line in read_spool(run / SPOOL) if line.startswith("link,")]
    most = {
        name: max(point.fields.get(name, 0) for point in points)
        for name in ("low_priority_in_packets", "low_priority_sent_packets", "dropped_low_priority_packets")
    }
    assert most["low_priority_in_packets"] >= low["in_packets"]
    assert most["low_priority_sent_packets"] >= low["sent_packets"]
    assert most["dropped_low_priority_packets"] >= lost["low_priority"]["packets"]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "low-priority packets" in page
    assert "low-priority queue full" in page


def test_a_swap_and_the_end_of_a_run_wait_for_packets_that_coders_hold(tmp_path: Path, project: Path) -> None:
    """Packets behind one that is not recovered wait for 1.5 s. None but those that the link loses are lost."""
    changes = (
        "changes: [{at: 8 s, chain: [tap-w, sat, tap-i]}, {at: 14 s, chain: [tap-w, coder-w, sat, coder-i, tap-i]}]\n"
    )
    summary = ran(tmp_path, project, "in_order_hold: 1500 ms, redundancy: 0", loss="2 %", more=changes)
    assert summary["boxes"]["coder-i"]["held_packets"] > 1000
    lost = summary["udp"]["lost_packets"] + summary["ping_lost"]
    assert 0 < lost <= summary["links"]["sat"]["losses"]["random"]["packets"]
