# SPDX-License-Identifier: Apache-2.0
"""The analysis says of known captures exactly what they hold, and of broken runs what is missing."""

import json
import signal
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from atoll_analysis import analyse
from atoll_analysis.figures.transfers import transfer_in_capture
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_analysis.tables.packet_records import RECORD, SCHEMA, scan_records
from atoll_analysis.tables.tables import Tables
from atoll_core.codec import from_json, to_json
from atoll_core.errors import RunDirError
from atoll_core.experiment.experiment import Chain, Experiment, SteeringVersion, Transfer
from atoll_core.experiment.traffic import Traffic
from atoll_core.lab.box_kind import PROGRAM
from atoll_core.units import Duration, Size
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import (
    ACK,
    FIN,
    PORT,
    PSH,
    START_NS,
    SYN,
    WHISTLES,
    PcapWriter,
    begin,
    experiment,
    network,
    simulate,
    write_capture_log,
)

SECOND_NS = 10**9
MARK = {
    "in_packets": 6,
    "in_bytes": 5 * 1040 + 40,
    "out_packets": 5,
    "out_bytes": 4 * 1040 + 40,
    "dropped_packets": 1,
    "dropped_bytes": 1040,
    "oversize_packets": 0,
    "queue_max_bytes": 2080,
    "idle_ns": 9 * SECOND_NS,
    "lateness_max_ns": 200_000,
    "lateness_p99_ns": 50_000,
    "lateness_histogram": [[50_000, 99], [200_000, 1]],
    "sojourn_max_ns": 1_040_000,
    "sojourn_histogram": [],
    "scheduled_windows_over_rate": 0,
}


@pytest.fixture(scope="module")
def binary() -> Path:
    return find_binary()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory, binary: Path) -> tuple[RunDir, dict[str, Any]]:
    """Ten seconds of channels over a GEO link, analysed from compressed captures."""
    run = simulate(tmp_path_factory.mktemp("simulated"), seconds=10)
    run.compress_captures()
    return run, analyse(run, binary)


def write_boxes(run: RunDir, to_island: dict[str, Any] = MARK, to_world: dict[str, Any] = MARK) -> None:
    """Marks of one link box."""
    lines = [
        {"box": "sat", "type": "mark", "id": number, "mark": name, "t_ns": START_NS, "overloaded": False}
        | {"to_island": to_island, "to_world": to_world}
        for number, name in enumerate(("begin", "end"))
    ]
    (run.path / "link.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def small_run(base: Path, **changes: Any) -> RunDir:
    """One flow of 3000 bytes made with scapy: one segment lost and sent again, one duplicated needlessly."""
    from scapy.layers.inet import ICMP, IP, TCP
    from scapy.layers.l2 import Ether
    from scapy.packet import Packet, Raw
    from scapy.utils import PcapWriter as ScapyWriter

    asked = experiment(traffic=Traffic(1, "published", PORT), transfer=None, **changes)
    run = begin(base, asked, network())
    down = IP(src="10.10.0.1", dst="10.20.0.1")
    up = IP(src="10.20.0.1", dst="10.10.0.1")

    def data(seq: int) -> Packet:
        return down / TCP(sport=PORT, dport=40001, flags="PA", seq=seq, ack=9) / Raw(bytes(1000))

    def whistle(identifier: int) -> Packet:
        return IP(src="10.10.1.2", dst="10.20.1.1") / ICMP(type=8, id=identifier, seq=0) / Raw(b"atoll whistle start")

    # (ms, packet, whether it crosses the link); sequence numbers wrap within the second segment
    first = 2**32 - 1500
    crossing = [
        (1, whistle(WHISTLES["start"]), True),
        (10, up / TCP(sport=40001, dport=PORT, flags="S", seq=8), True),
        (20, down / TCP(sport=PORT, dport=40001, flags="SA", seq=first - 1, ack=9), True),
        (30, data(first), True),
        (31, data(first + 1000), False),
        (32, data((first + 2000) % 2**32), True),
        (1030, data(first + 1000), True),
        (1031, data(first), True),
        (9990, whistle(WHISTLES["end"]), True),
    ]
    for name, delay_ms in (("world", 0), ("island", 250), ("link-sat", 249)):
        writer = ScapyWriter(str(run.captures / f"{name}.pcap"), linktype=1, nano=True)
        writer.write_header(None)
        for ms, packet, crosses in crossing:
            if crosses or name == "world":
                frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet.copy()
                frame.time = (START_NS // SECOND_NS) + (ms + delay_ms) / 1000
                writer.write_packet(frame)
        writer.close()
        write_capture_log(run, name, packets=sum(crosses or name == "world" for _, _, crosses in crossing))
    write_boxes(run)
    lines = [{"type": "reply", "target": "is", "seq": 0, "sent_ns": START_NS + SECOND_NS, "rtt_ns": 512_900_000}]
    lines.append({"type": "reply", "target": "is", "seq": 1, "sent_ns": START_NS - 1, "rtt_ns": 900_000_000})
    lines.append({"type": "lost", "target": "is", "seq": 2, "sent_ns": START_NS + 2 * SECOND_NS})
    (run.logs / "ping.out").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_known_packets_give_exactly_these_figures(tmp_path: Path, binary: Path) -> None:
    summary = analyse(small_run(tmp_path), binary)
    whistle_bytes = 20 + 8 + len(b"atoll whistle start")
    assert summary["loss_bytes_captures"] == 1040
    assert summary["loss_bytes_link"] == 1040
    assert summary["loss_packets_captures"] == 1
    assert summary["tcp_payload_loss_bytes"] == 1000
    # the end whistle arrives after the measurement and counts for nothing but being there
    assert summary["throughput_mbit_s"] == pytest.approx(8 * (whistle_bytes + 40 + 4 * 1040) / 10 / 1e6, rel=1e-12)
    assert summary["goodput_mbit_s"] == pytest.approx(8 * 3000 / 10 / 1e6, rel=1e-12)
    assert summary["utilisation"] == pytest.approx(8 * (whistle_bytes + 40 + 4 * 1040) / (16e6 * 10), rel=1e-12)
    assert summary["servers"]["w1"]["goodput_bytes"] == 3000
    assert summary["clients"]["i1"] == {
        "goodput_bytes": 3000,
        "share": 1.0,
        "first_s": pytest.approx(0.270, abs=1e-6),
        "last_s": pytest.approx(1.281, abs=1e-6),
        "payload_first_s": pytest.approx(0.280, abs=1e-6),
        "payload_last_s": pytest.approx(1.280, abs=1e-6),
        "goodput_mbit_s": 0.0024,
        "loss_fraction": 0.2,  # one of five segments
    }
    assert summary["loss_fraction"] == pytest.approx(1 / 6)
    assert summary["windows_over_rate"] == 0
    assert summary["concurrent_flows_max"] == 1
    assert summary["lateness_max_ms"] == 0.2
    assert summary["whistles"] == {name: {"start": True, "end": True} for name in ("world", "island")}
    assert (summary["sojourn_max_ms"], summary["ping_sent"], summary["ping_lost"]) == (12.5, 2, 1)
    assert summary["reasons"] == []
    assert summary["notes"] == []
    assert summary["verdict"] == "valid"


def test_tables_hold_the_flow_as_it_was(tmp_path: Path, binary: Path) -> None:
    run = small_run(tmp_path)
    analyse(run, binary)
    flows = pl.read_parquet(run.tables / "flows.parquet").filter(pl.col("capture") == "island")
    row = flows.row(0, named=True)
    assert (len(flows), row["server"], row["client"], row["sport"]) == (1, "w1", "i1", PORT)
    assert (row["packets"], row["tcp_payload_bytes"], row["goodput_bytes"]) == (5, 4000, 3000)
    rates = pl.read_parquet(run.tables / "throughput.parquet").filter(
        pl.col("capture") == "island", pl.col("to_island")
    )
    assert dict(rates.select("window", "goodput_bytes").iter_rows()) == {2: 2000, 12: 1000, 102: 0}


def test_what_a_server_repeats_of_a_connection_that_is_over_keeps_it_open_no_longer(
    tmp_path: Path, binary: Path
) -> None:
    """The channel has begun its next flow by then: the last acknowledgement came too late for the server's time-out."""
    run = small_run(tmp_path)
    writer = PcapWriter(run.captures / "island.pcap")

    def connection(port: int, begin_ms: int, repeated_ms: int | None = None) -> None:
        down, up = ("10.10.0.1", PORT, "10.20.0.1", port), ("10.20.0.1", port, "10.10.0.1", PORT)
        for ms, ends, seq, flags, payload in [
            (begin_ms, up, 7, SYN, 0),
            (begin_ms + 1, down, 99, SYN | ACK, 0),
            (begin_ms + 150, down, 100, ACK, 1000),
            (begin_ms + 151, down, 1100, ACK | FIN, 0),
            *([(repeated_ms, down, 100, ACK, 1000), (repeated_ms, down, 1100, ACK | FIN, 0)] if repeated_ms else []),
        ]:
            packets.append((START_NS + ms * 10**6, ends, seq, flags, payload))

    packets: list[tuple[int, tuple[str, int, str, int], int, int, int]] = []
    connection(40001, 100, repeated_ms=2000)
    connection(40002, 300, repeated_ms=2100)
    connection(40003, 1850)
    for t_ns, ends, seq, flags, payload in sorted(packets):
        writer.tcp(t_ns, ends, seq, 0, flags, payload)
    writer.close()
    summary = analyse(run, binary)
    assert (summary["concurrent_flows_max"], summary["connections"]) == (1, 3)


def test_a_loss_the_link_did_not_count_makes_the_run_invalid(tmp_path: Path, binary: Path) -> None:
    run = small_run(tmp_path)
    write_boxes(run, {**MARK, "dropped_bytes": 1039})
    summary = analyse(run, binary)
    assert summary["verdict"] == "invalid"
    (reason,) = summary["reasons"]
    where = "between world and link-sat (sat)"
    assert reason == f"captures show a loss of 1040 bytes {where}, sat counted 1039 bytes; both must be equal"


@pytest.mark.parametrize(
    ("backend", "packets", "windows"), [("engine", 135, 0), ("engine", 136, 1), ("tc", 136, 0), ("tc", 137, 1)]
)
def test_a_window_may_exceed_the_rate_by_two_packets_and_the_lateness(
    tmp_path: Path, binary: Path, backend: str, packets: int, windows: int
) -> None:
    # 16 Mbit/s x (100 ms + 0.2 ms) + 2 x 1500 B = 203 400 B, between 135 and 136 packets of 1500 B;
    # tc's token bucket of 3552 B instead of one of the two: 205 452 B, between 136 and 137
    run = small_run(tmp_path)
    run.update_manifest({"backend": backend})
    writer = PcapWriter(run.captures / "link-sat.pcap")
    for number in range(packets):
        ends = ("10.10.0.1", PORT, "10.20.0.1", 40001)
        writer.tcp(START_NS + 3 * SECOND_NS + 700_000 * number, ends, 1460 * number, 0, ACK | PSH, 1460)
    writer.close()
    assert analyse(run, binary)["windows_over_rate"] == windows


def test_a_simulated_run_is_valid_and_its_figures_fit_together(simulated: tuple[RunDir, dict[str, Any]]) -> None:
    run, summary = simulated
    assert summary["reasons"] == []
    assert summary["loss_bytes_captures"] == summary["loss_bytes_link"] > 0
    assert summary["sojourn_max_ms"] == pytest.approx(summary["sojourn_bound_to_island_ms"], rel=0.1)
    assert summary["sojourn_bound_ms"] == pytest.approx(50 + summary["sojourn_bound_to_world_ms"])
    assert summary["queue_max_bytes"] > 100_000 - 1500
    assert summary["goodput_mbit_s"] < summary["throughput_mbit_s"] < 16
    assert summary["utilisation"] == pytest.approx(summary["throughput_mbit_s"] / 16, rel=0.01)
    assert sum(volume["share"] for volume in summary["servers"].values()) == pytest.approx(1)
    assert summary["transfer_complete"]
    assert summary["transfer_mbit_s"] == pytest.approx(8 / summary["transfer_s"])
    logged = sum(len(path.read_text().splitlines()) - 1 for path in run.logs.glob("flows-*.csv"))
    assert summary["flows_completed"] == logged > 0
    assert summary["ping_sent"] == 100
    assert json.loads((run.path / "summary.json").read_text()) == summary


def test_the_summary_has_the_keys_of_its_reference(simulated: tuple[RunDir, dict[str, Any]]) -> None:
    keys = simulated[1].keys()
    assert keys >= Summary.__required_keys__
    assert keys <= Summary.__required_keys__ | Summary.__optional_keys__


def test_analysing_again_gives_the_same_bytes(simulated: tuple[RunDir, dict[str, Any]], binary: Path) -> None:
    run, _ = simulated
    before = (run.path / "summary.json").read_bytes()
    analyse(run, binary)
    assert (run.path / "summary.json").read_bytes() == before


def test_analysis_leaves_nothing_but_tables_and_summary(simulated: tuple[RunDir, dict[str, Any]]) -> None:
    run, _ = simulated
    assert not list(run.path.rglob(".*"))
    assert {path.suffix for path in run.tables.iterdir()} == {".parquet"}


def test_packets_that_a_killed_analysis_left_go_with_the_next(tmp_path: Path, binary: Path) -> None:
    """Those of an analysis that is still at work stay."""
    run = simulate(tmp_path, seconds=2)
    with subprocess.Popen([sys.executable, "-m", "atoll_analysis", "--binary", binary, run.path]) as other:
        while not (folders := [*run.tables.glob(".*/")]) and other.poll() is None:
            time.sleep(0.001)
        other.send_signal(signal.SIGSTOP)
        analyse(run, binary)
        assert [*run.tables.glob(".*/")] == folders != []
        other.kill()
    analyse(run, binary)
    assert [*run.tables.glob(".*/")] == []


def cut(run: RunDir) -> None:
    """What a kill in the middle of the measurement leaves."""
    run.update_manifest({"outcome": "cancelled at step measure"})
    lines = (run.path / "events.jsonl").read_text().splitlines(keepends=True)
    (run.path / "events.jsonl").write_text("".join(line for line in lines if '"terrestrial"' in line) + '{"t_ns":')
    for capture in run.captures.iterdir():
        capture.write_bytes(capture.read_bytes()[:100_003])
    boxes = (run.path / "link.jsonl").read_text().splitlines(keepends=True)
    (run.path / "link.jsonl").write_text("".join(boxes[:30]) + boxes[30][:50])
    (run.logs / "flows-i1.csv").write_text((run.logs / "flows-i1.csv").read_text()[:-40])
    (run.logs / "transfer-receive.out").unlink()


def test_a_cancelled_run_is_analysed_as_far_as_it_went(tmp_path: Path, binary: Path) -> None:
    run = simulate(tmp_path, seconds=10)
    cut(run)
    summary = analyse(run, binary)
    assert summary["verdict"] == "invalid"
    assert summary["reasons"][0] == "cancelled at step measure"
    assert any("ends within a packet" in reason for reason in summary["reasons"])
    assert summary["duration_s"] == pytest.approx(2.9, abs=0.01)
    assert summary["goodput_mbit_s"] > 0
    assert summary["loss_bytes_link"] is None
    assert summary["transfer_complete"] in (False, None)


def copy_capture(source: RunDir, run: RunDir, name: str) -> None:
    """Give a run a capture of another one, and what was said of it."""
    for file in (f"captures/{name}.pcap", f"logs/capture-{name}.out"):
        (run.path / file).write_bytes((source.path / file).read_bytes())


def test_a_run_killed_before_anything_was_captured_has_a_summary_too(tmp_path: Path, binary: Path) -> None:
    run = RunDir.create(tmp_path, "geo", START_NS)
    full = begin(tmp_path / "other", experiment(), network())
    run.write_manifest({**full.manifest(), "outcome": "running"})
    run.append_event("step", START_NS, step="apply", state="begin")
    run.append_event("step", START_NS, step="apply", state="end")
    run.append_event("step", START_NS, step="check", state="begin")
    summary = analyse(run, binary)
    assert summary["verdict"] == "invalid"
    assert summary["reasons"] == ["killed at step check"]
    assert summary["notes"] == []
    assert summary["goodput_mbit_s"] is None


def test_a_run_that_was_never_planned_is_refused(tmp_path: Path, binary: Path) -> None:
    with pytest.raises(RunDirError, match="nothing to analyse"):
        analyse(RunDir.create(tmp_path, "geo", START_NS), binary)


@pytest.mark.parametrize(
    ("hops", "captures", "measured"),
    [
        (("sat",), ("link-sat",), "link-sat"),
        (("tap-w", "sat"), ("world", "link-sat"), "link-sat"),
        (("sat", "tap-i"), ("island", "link-sat"), "island"),
        (("tap-w", "tap-i"), ("world", "island"), "island"),
        ((), (), None),
    ],
)
def test_chains_without_taps_or_link_are_measured_as_far_as_they_can_be(
    tmp_path: Path, binary: Path, hops: tuple[str, ...], captures: tuple[str, ...], measured: str | None
) -> None:
    source = small_run(tmp_path / "source")
    links = experiment().links if "sat" in hops else ()
    asked = experiment(
        chain=Chain("c", hops), links=links, traffic=Traffic(1, "published", PORT), transfer=None, latency=()
    )
    run = begin(tmp_path, asked, network(), captures)
    if links:
        write_boxes(run)
    for name in captures:
        copy_capture(source, run, name)
    summary = analyse(run, binary)
    unexplained = "captures show a loss of 1040 bytes between world and island (no box between them), bound 0"
    assert summary["reasons"] == ([unexplained] if hops == ("tap-w", "tap-i") else [])
    assert summary["notes"]
    assert summary["arrival"] == measured
    assert (summary["goodput_mbit_s"] is None) == (measured is None)
    assert summary["loss_bytes_captures"] is None
    assert (summary["sojourn_bound_ms"] is None) == (not links)


def test_a_run_without_load_is_valid(tmp_path: Path, binary: Path) -> None:
    source = small_run(tmp_path / "source")
    asked = experiment(traffic=Traffic(0, "published", PORT), transfer=None)
    run = begin(tmp_path, asked, network())
    write_boxes(run)
    for name in ("world", "island", "link-sat"):
        copy_capture(source, run, name)
    summary = analyse(run, binary)
    assert summary["reasons"] == []
    assert summary["flows_completed"] == 0
    assert summary["transfer_s"] is None


def test_a_client_too_weak_for_a_channel_is_told(tmp_path: Path, binary: Path) -> None:
    """It had none by design: it is not missed among those that received something."""
    lab = network()
    weak = tuple(replace(host, capacity=0.01) if host.name == "i6" else host for host in lab.hosts)
    run = begin(tmp_path, experiment(), replace(lab, hosts=weak))
    summary = analyse(run, binary)
    assert summary["placement"] == {"i1": 4, "i2": 4, "i3": 4, "i4": 4, "i5": 4, "i6": 0}
    assert "i6 (capacity 0.01) got none of the 20 channels" in summary["notes"]


def test_a_transfer_by_another_tool_is_measured_at_the_island(tmp_path: Path, binary: Path) -> None:
    run = simulate(tmp_path, seconds=10)
    by_receiver = json.loads((run.logs / "transfer-receive.out").read_text())["seconds"]
    (run.logs / "transfer-receive.out").write_text('{\n "start": {},\n "end": {}\n}\n')  # iperf3 prints one big object
    summary = analyse(run, binary)
    assert summary["transfer_complete"]
    assert summary["transfer_received_bytes"] == 1_000_000
    assert summary["transfer_s"] == pytest.approx(
        by_receiver, abs=0.6
    )  # without the way back of the last acknowledgement


def test_the_control_connection_of_iperf3_is_not_its_transfer(tmp_path: Path, binary: Path) -> None:
    """It is the first one to the transfer's port."""
    run = simulate(tmp_path, seconds=10)
    asked = experiment(transfer=Transfer(Size(1_000_000), Duration(2 * 10**9), "iperf3", 5201))
    run.update_manifest({"experiment": to_json(asked)})
    (run.logs / "transfer-receive.out").write_text('{"end": {"sum_sent": {"seconds": 7.5}}}')
    summary = analyse(run, binary)
    assert summary["transfer_received_bytes"] == 0
    assert summary["transfers"]["transfer"]["sender_seconds"] == 7.5
    (caveat,) = summary["caveats"]
    assert caveat.startswith("no byte of the transfer of 1000000 bytes arrived within 8 s; 2 timeouts in succ")
    table = run.tables / "flows.parquet"
    flows = pl.read_parquet(table)
    control = flows.filter(pl.col("sport") == 5201).with_columns(
        first_ns=pl.col("first_ns") - 10**8, goodput_bytes=pl.lit(300, pl.Int64)
    )
    pl.concat([control, flows]).write_parquet(table)
    tables = Tables(run.tables, START_NS, {}, "island")
    assert asked.transfer
    assert (transfer_in_capture(tables, asked.transfer) or (0, 0))[0] == 1_000_000


def test_only_flows_that_a_change_of_a_stateful_box_may_have_reset_are_granted(tmp_path: Path, binary: Path) -> None:
    run = simulate(tmp_path, seconds=5)
    header, *rows = (run.logs / "flows-i1.csv").read_text().splitlines()
    asked = from_json(Experiment, run.manifest()["experiment"])
    pep = replace(network().boxes[0], name="pep", kind=PROGRAM, stateful=True)
    lab = replace(network(), boxes=(*network().boxes, pep))
    with_pep = replace(asked.chain, hops=("tap-w", "sat", "pep", "tap-i"))
    versions = [
        SteeringVersion(Duration(s * 10**9), chain, (), asked.latency) for s, chain in ((0, asked.chain), (2, with_pep))
    ]
    slower = replace(versions[1], at=Duration(4 * 10**9), latency=())
    changed = replace(asked, schedule=(*versions, slower))
    failed = [
        f"90,{t_s},10.10.0.1:5001,1000,0,{START_NS + t_s * 10**8},,,{START_NS + t_s * 10**8 + 1},failed:ECONNRESET"
        for t_s in (10, 21, 22, 31, 34, 41)  # 0.1 s; clients learn of the first change by 3.25 s
    ]
    (run.logs / "flows-i1.csv").write_text("\n".join([header, *rows, *failed]) + "\n")
    run.update_manifest({"experiment": to_json(changed), "network": to_json(lab)})
    for number, begin_s in ((1, 2), (2, 4)):
        begin_ns = START_NS + begin_s * 10**9
        run.append_event("change", begin_ns, change=number, state="begin", planned_ns=begin_ns)
        run.append_event("change", begin_ns + 5 * 10**8, change=number, state="end", drain_ns=0)
    summary = analyse(run, binary)
    assert (summary["flows_failed"], summary["flows_failed_in_changes"]) == (6, 3)
    assert summary["flows_failed_by"] == {"ECONNRESET": 6}


def test_what_a_capture_says_it_dropped_is_believed(tmp_path: Path, binary: Path) -> None:
    run = small_run(tmp_path)
    write_capture_log(run, "world", packets=9, dropped=3)
    summary = analyse(run, binary)
    assert summary["captures"]["world"]["dropped"] == 3
    assert summary["reasons"] == ["capture world is missing 3 packets: its ring was full; bound 0"]


def test_a_capture_that_said_nothing_may_have_dropped_packets(tmp_path: Path, binary: Path) -> None:
    run = small_run(tmp_path)
    (run.logs / "capture-world.out").write_text('{"type":"ready"}\n{"type":"cou')
    summary = analyse(run, binary)
    assert summary["captures"]["world"]["dropped"] is None
    assert summary["reasons"] == [
        "capture world: whether packets were dropped is unknown, because logs/capture-world.out has no counters"
    ]


def test_records_are_as_the_contract_lays_them_out(tmp_path: Path) -> None:
    assert RECORD.itemsize == 64
    packed = struct.pack(
        "<qIIIIIIIIIHHHHBBBB8x",
        *(5, 1, 2, 1500, 1448, 1000, 7, 8, 3, 65535, 80, 40000, 9, 101, 6, ACK | FIN | SYN, 1, 0),
    )
    assert len(packed) == 64
    (tmp_path / "x.bin").write_bytes(packed * 3 + packed[:20])
    frame = scan_records(tmp_path / "x.bin").collect()
    assert frame.columns == list(SCHEMA)
    assert len(frame) == 3
    assert frame.row(2) == (5, 1, 2, 1500, 1448, 1000, 7, 8, 3, 65535, 80, 40000, 9, 101, 6, 19, 1, 0)


def test_records_are_filtered_and_limited_as_they_are_read(tmp_path: Path) -> None:
    records = np.zeros(1000, RECORD)
    records["t_ns"] = np.arange(1000)
    records["proto"] = np.arange(1000) % 3
    records.tofile(tmp_path / "x.bin")
    scan = scan_records(tmp_path / "x.bin")
    assert scan.filter(pl.col("proto") == 1).select("t_ns").collect().to_series().to_list() == list(range(1, 1000, 3))
    assert scan.head(7).collect()["t_ns"].to_list() == list(range(7))
    assert len(scan_records(tmp_path / "x.bin").filter(pl.col("t_ns") < 0).collect()) == 0


def test_an_empty_capture_gives_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"")
    assert scan_records(tmp_path / "x.bin").collect().schema == pl.Schema(SCHEMA)
