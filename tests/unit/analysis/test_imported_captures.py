# SPDX-License-Identifier: Apache-2.0
"""Pairs of captures become run directories whose figures are those of the run that they were taken from."""

import gzip
import json
import os
import shutil
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
import zstandard
from scapy.layers.l2 import Dot1Q, Ether
from scapy.utils import PcapNgWriter, PcapReader, RawPcapReader, wrpcap

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_analysis.tables.directions import TO_ISLAND, TO_WORLD, Direction
from atoll_analysis.verdict.findings import FindingCode
from atoll_analysis.verdict.imported import NOT_IN_CAPTURES, ImportedFigures, judge_imported
from atoll_core.errors import DescriptionError, PlanError
from atoll_core.experiment.experiment import MAIN, Chain, Protocol, TrafficSelector
from atoll_core.experiment.traffic import FlowDirection
from atoll_core.units import Duration
from atoll_dashboards.report.report import analyse_again
from atoll_hosts.binary import find_binary
from atoll_testbed.run.imported_run import import_run
from tests.support.result_schema import mismatches
from tests.support.synthetic_run import START_NS, WHISTLES, experiment, network, simulate

PAIRS = int(os.environ.get("ATOLL_PAIRS", "5"))
"""Random runs whose captures are imported, 3 s each; a hundred were tried."""
SECONDS = 10
ISLAND_BIT = 20  # second octet of the island's addresses

FROM_CAPTURES = {
    *(
        "arrival",
        "chains",
        "channels",
        "flow_packets",
        "concurrency",
        "concurrent_flows_max",
        "connections",
        "goodput_mbit_s",
    ),
    *("loss_bursts", "loss_bytes_captures", "loss_packets_captures", "payload", "placement", "servers", "clients"),
    *("tcp_payload_loss_bytes", "throughput_mbit_s", "whistles", "duration_s", "origin_ns", "cut_short"),
}
"""Keys that a run computes from the captures `world` and `island`; the others are settings, or not in captures."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run with its captures in pcap."""
    return simulate(tmp_path_factory.mktemp("own"), SECONDS)


def files_of(run: RunDir) -> tuple[Path, Path]:
    return run.captures / "world.pcap", run.captures / "island.pcap"


def imported(world: Path, island: Path, runs: Path, **changes: Any) -> dict[str, Any]:
    """The summary of an import by the description of the run."""
    described = network(), experiment(**{"duration": Duration(SECONDS * 10**9), **changes})
    run = import_run(world, island, described, runs, find_binary())
    return analyse_again(run, find_binary())[0]


def own_summary(run: RunDir, summary: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """The run's own summary for the window and the packets of an import, which begins with the whistle."""
    copy = scratch / "own"
    shutil.copytree(run.path, copy)
    (copy / "captures" / "link-sat.pcap").unlink()
    window = {"start_ns": summary["origin_ns"], "end_ns": summary["origin_ns"] + round(summary["duration_s"] * 1e9)}
    events = [json.loads(line) for line in (copy / "events.jsonl").read_text().splitlines()]
    lines = [json.dumps(event | window if event["type"] == "window" else event) for event in events]
    (copy / "events.jsonl").write_text("\n".join(lines) + "\n")
    manifest = json.loads((copy / "manifest.json").read_text())
    measured = json.loads((Path(summary["run_dir"]) / "manifest.json").read_text())["measured"]
    (copy / "manifest.json").write_text(json.dumps(manifest | {"measured": measured}))
    return analyse(RunDir.open(copy), find_binary())


def assert_like_own(summary: dict[str, Any], own: dict[str, Any], keys: set[str] = FROM_CAPTURES) -> None:
    assert {key: summary[key] for key in keys} == {key: own[key] for key in keys}
    bursts = own["loss_bursts"]["sat"]
    assert summary["loss_fraction"] == bursts["lost"] / bursts["packets"]
    # The link counts what it sends, 250 ms before it arrives, and every 100 ms, of a measurement of 10 s.
    assert summary["utilisation"] == pytest.approx(own["utilisation"], abs=0.035)
    for key in (key for keys in NOT_IN_CAPTURES.values() for key in keys):
        assert summary[key] is None, key
        assert any(key in caveat for caveat in summary["caveats"]), key


def test_every_key_from_captures_is_the_runs_own_and_all_others_are_null_and_listed(
    own: RunDir, tmp_path: Path
) -> None:
    summary = imported(*files_of(own), tmp_path / "runs")
    assert_like_own(summary, own_summary(own, summary, tmp_path))
    assert summary["verdict"] == "valid with caveats"
    assert set(summary["caveat_codes"]) == {"NOT_IN_CAPTURES"}
    assert not summary["imported"]["corrected"]
    assert summary["regime"]["queue_loss"] == pytest.approx(summary["loss_fraction"])
    from atoll_analysis.summary import Summary

    null = {f"summary.{key}" for key in summary["imported"]["not_in_captures"]}
    assert {line.split(":")[0] for line in mismatches(summary, Summary, "summary")} <= null


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 2 + PAIRS))
def test_random_pairs_have_the_figures_of_their_runs(seed: int, tmp_path: Path) -> None:
    run = simulate(tmp_path / "base", SECONDS, seed)
    summary = imported(*files_of(run), tmp_path / "runs")
    assert_like_own(summary, own_summary(run, summary, tmp_path))


# Clocks


def shifted(capture: Path, out: Path, offset_ns: int, drift_ppm: float) -> Path:
    """A copy of a capture by a clock that is ``offset_ns`` ahead at its first packet and fast by ``drift_ppm``."""
    content = capture.read_bytes()
    shifted_content, at, first_ns = bytearray(content[:24]), 24, None
    while at < len(content):
        seconds, nanoseconds, kept, wire = struct.unpack_from("<IIII", content, at)
        t_ns = seconds * 10**9 + nanoseconds
        first_ns = t_ns if first_ns is None else first_ns
        t_ns += offset_ns + round((t_ns - first_ns) * drift_ppm / 1e6)
        shifted_content += struct.pack("<IIII", t_ns // 10**9, t_ns % 10**9, kept, wire)
        shifted_content += content[at + 16 : at + 16 + kept]
        at += 16 + kept
    out.write_bytes(shifted_content)
    return out


def test_a_clock_that_is_ahead_and_fast_is_found_and_corrected(tmp_path: Path) -> None:
    run = simulate(tmp_path / "base", 60)
    world, island = files_of(run)
    late_island = shifted(island, tmp_path / "late.pcap", 5_000_123_456_789, 42.0)
    duration = Duration(60 * 10**9)
    summary = imported(world, late_island, tmp_path / "runs", duration=duration)
    clock = summary["imported"]
    assert clock["corrected"]
    assert clock["offset_ms"] == pytest.approx(5_000_123.456789, abs=1.0)
    assert clock["offset_error_ms"] < 1.0
    assert clock["drift_ppm"] == pytest.approx(42.0, abs=0.1)
    same_clock = imported(world, island, tmp_path / "same", duration=duration)
    assert summary["loss_packets_captures"] == same_clock["loss_packets_captures"]
    assert summary["goodput_mbit_s"] == pytest.approx(same_clock["goodput_mbit_s"], rel=1e-3)
    assert summary["loss_bursts"] == same_clock["loss_bursts"]


def test_clocks_that_differ_by_more_than_clocks_do_are_refused(own: RunDir, tmp_path: Path) -> None:
    world, island = files_of(own)
    with pytest.raises(DescriptionError, match=r"its clock is fast by \+0\.20 % against"):
        imported(world, shifted(island, tmp_path / "fast.pcap", 0, 2000.0), tmp_path / "runs")


@pytest.mark.parametrize(("drift_error_ppm", "caveats"), [(1.0, 0), (2.0, 1)])
def test_the_error_of_the_drift_over_the_measurement_counts(drift_error_ppm: float, caveats: int) -> None:
    clock = {"offset_error_ms": 0.5, "drift_error_ppm": drift_error_ppm}
    found = judge_imported(cast("ImportedFigures", clock), [], {}, 400.0)
    assert [finding.code for finding in found].count(FindingCode.CLOCKS_UNCERTAIN) == caveats


@pytest.mark.parametrize(("direction", "last"), [(TO_ISLAND, "island"), (TO_WORLD, "world")])
def test_packets_that_only_the_last_capture_has_are_a_reason(direction: Direction, last: str) -> None:
    clock = {"offset_error_ms": 0.5, "drift_error_ppm": 1.0}
    lost = {TO_ISLAND: 0, TO_WORLD: None, direction: -2}
    texts = [finding.text for finding in judge_imported(cast("ImportedFigures", clock), [], lost, 1.0)]
    assert texts[0].startswith(f"{last} captured 2 packets more than")


# Spans


def cut(capture: Path, out: Path, begin_s: float) -> Path:
    """A capture that began ``begin_s`` after the measurement."""
    content = capture.read_bytes()
    cut_content, at = bytearray(content[:24]), 24
    while at < len(content):
        seconds, nanoseconds, kept, _ = struct.unpack_from("<IIII", content, at)
        if seconds * 10**9 + nanoseconds >= START_NS + begin_s * 1e9:
            cut_content += content[at : at + 16 + kept]
        at += 16 + kept
    out.write_bytes(cut_content)
    return out


@pytest.mark.parametrize("late", ["world", "island"])
def test_packets_before_the_later_capture_began_are_no_losses(late: str, own: RunDir, tmp_path: Path) -> None:
    files: dict[str, Path] = dict(zip(("world", "island"), files_of(own), strict=True))
    summary = imported(**{**files, late: cut(files[late], tmp_path / "late.pcap", 3.0)}, runs=tmp_path / "runs")
    whole = imported(*files_of(own), tmp_path / "whole", duration=Duration(2 * SECONDS * 10**9))
    assert whole["reasons"] == [], "a run until the captures end is usable"
    assert "CUT_SHORT" in whole["caveat_codes"]
    assert "LOSS_DIFFERS" not in summary["reason_codes"]
    assert 7.0 < summary["duration_s"] < 8.5
    lost = pl.read_parquet(Path(whole["run_dir"]) / "tables" / "losses.parquet")
    lost = lost.filter(pl.col("t_ns") >= summary["origin_ns"])
    # A segment that is sent again is like the first one here: the table may take one for the other.
    assert summary["loss_packets_captures"] == pytest.approx(len(lost), abs=5)


@pytest.mark.parametrize("seconds", [5, SECONDS])
def test_packets_to_the_world_that_are_on_their_way_at_the_end_are_no_losses(
    seconds: int, own: RunDir, tmp_path: Path
) -> None:
    upload = replace(experiment().all_transfers[0], direction=FlowDirection.UPLOAD)
    duration = Duration(seconds * 10**9)
    summary = imported(*files_of(own), tmp_path / "runs", transfer=upload, duration=duration)
    assert summary["to_world"]["loss_packets_captures"] == 0
    assert summary["to_world"]["loss_bursts"]["sat"]["lost"] == 0
    assert summary["to_world"]["loss_bytes_link"] is None, "captures do not show it"


def test_a_repeated_transfer_is_not_in_captures(own: RunDir, tmp_path: Path) -> None:
    repeated = replace(experiment().all_transfers[0], name="coded", every=Duration(2 * 10**9))
    summary = imported(*files_of(own), tmp_path / "runs", transfer=None, transfers=(repeated,))
    assert (summary["transfers"], summary["reasons"]) == ({}, [])
    assert "captures do not show repeated transfers" in summary["caveats"]


@pytest.mark.parametrize("identifiers", [WHISTLES, {"start": 1, "end": 2}])
def test_a_single_whistle_at_the_end_of_a_capture_is_no_start(
    identifiers: dict[str, int], own: RunDir, tmp_path: Path
) -> None:
    world, island = (cut(file, tmp_path / file.name, 1.0) for file in files_of(own))
    renamed = WHISTLES["end"].to_bytes(2), identifiers["end"].to_bytes(2)
    for file in (world, island):
        file.write_bytes(file.read_bytes().replace(bytes(4) + renamed[0], bytes(4) + renamed[1]))
    summary = imported(world, island, tmp_path / "runs", duration=Duration(8 * 10**9))
    assert summary["reasons"] == []
    assert summary["duration_s"] == 8.0


def test_a_branch_that_is_shorter_than_the_main_chain_decides_the_described_delay(own: RunDir, tmp_path: Path) -> None:
    given = experiment()
    slow = replace(given.links[0], box="slow", to_island=replace(given.links[0].to_island, delay=Duration(400 * 10**6)))
    lab = network()
    lab = replace(lab, boxes=(*lab.boxes, replace(lab.boxes[0], name="slow")))
    branch = replace(given.chain, name="fast", carries=TrafficSelector(protocol=Protocol.TCP))
    main = Chain(MAIN, ("tap-w", "slow", "tap-i"))
    asked = replace(given, chain=main, branches=(branch,), links=(*given.links, slow))
    assert import_run(*files_of(own), (lab, asked), tmp_path / "runs", find_binary()).path.is_dir()


def test_volumes_of_hosts_are_of_the_measurement(own: RunDir, tmp_path: Path) -> None:
    shutil.copytree(own.path, tmp_path / "own")
    summary = analyse(RunDir.open(tmp_path / "own"), find_binary())
    volume = pl.read_parquet(tmp_path / "own/tables/volume.parquet").filter(pl.col("host").str.starts_with("i"))
    octets = summary["goodput_mbit_s"] * summary["duration_s"] * 1e6 / 8
    assert volume["measured_goodput_bytes"].sum() == pytest.approx(octets)


def test_a_shorter_duration_counts_its_own_packets_only(own: RunDir, tmp_path: Path) -> None:
    summary = imported(*files_of(own), tmp_path / "runs", duration=Duration(4 * 10**9), transfer=None)
    clients = sum(volume["goodput_mbit_s"] for volume in summary["clients"].values())
    whole = imported(*files_of(own), tmp_path / "whole")
    lost = pl.read_parquet(Path(whole["run_dir"]) / "tables" / "losses.parquet")
    lost = lost.filter(pl.col("t_ns") < summary["origin_ns"] + 4 * 10**9)
    assert summary["loss_packets_captures"] == len(lost) > 0
    assert clients <= summary["goodput_mbit_s"]
    assert summary["connections"] < whole["connections"]


# Formats


def as_pcapng(capture: Path, out: Path) -> Path:
    with PcapNgWriter(str(out)) as writer, PcapReader(str(capture)) as packets:
        for packet in packets:
            writer.write(packet)
    return out


def as_microseconds(capture: Path, out: Path) -> Path:
    wrpcap(str(out), list(PcapReader(str(capture))))
    return out


def packed(pack: Callable[[bytes], bytes]) -> Callable[[Path, Path], Path]:
    def write(capture: Path, out: Path) -> Path:
        out.write_bytes(pack(capture.read_bytes()))
        return out

    return write


def snapped(capture: Path, out: Path) -> Path:
    """Only 60 bytes of each frame: Ethernet, IPv4 and TCP."""
    content = bytearray(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 60, 1))
    for data, meta in RawPcapReader(str(capture)):
        kept = data[:60]
        content += struct.pack("<IIII", meta.sec, meta.usec, len(kept), meta.wirelen) + kept
    out.write_bytes(content)
    return out


def tagged(capture: Path, out: Path) -> Path:
    """Two VLAN tags around each packet."""
    content = bytearray(capture.read_bytes()[:24])
    for data, meta in RawPcapReader(str(capture)):
        frame = data[:12] + bytes.fromhex("88a80007 81000065") + data[12:]
        content += struct.pack("<IIII", meta.sec, meta.usec, len(frame), meta.wirelen + 8) + frame
    out.write_bytes(content)
    return out


FORMATS: dict[str, Callable[[Path, Path], Path]] = {
    "gzip": packed(gzip.compress),
    "zstd": packed(lambda content: zstandard.ZstdCompressor().compress(content)),
    "snapped": snapped,
    "tagged": tagged,
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_of_files_do_not_change_figures(name: str, own: RunDir, tmp_path: Path) -> None:
    world, island = files_of(own)
    pair = FORMATS[name](world, tmp_path / "w"), FORMATS[name](island, tmp_path / "i")
    summary = imported(*pair, tmp_path / "runs")
    assert_like_own(summary, own_summary(own, summary, tmp_path))


@pytest.mark.parametrize("write", [as_pcapng, as_microseconds])
def test_microseconds_change_figures_by_a_packet_at_the_edges_of_the_window_at_most(
    write: Callable[[Path, Path], Path], own: RunDir, tmp_path: Path
) -> None:
    """Scapy writes microseconds; the length on the wire is lost, but lengths come from the IP header."""
    world, island = files_of(own)
    summary = imported(write(world, tmp_path / "w"), write(island, tmp_path / "i"), tmp_path / "runs")
    mine = own_summary(own, summary, tmp_path)
    assert summary["loss_packets_captures"] == pytest.approx(mine["loss_packets_captures"], abs=1)
    assert summary["connections"] == mine["connections"]
    assert summary["goodput_mbit_s"] == pytest.approx(mine["goodput_mbit_s"], rel=1e-3)


def test_a_pipe_is_read(own: RunDir, tmp_path: Path) -> None:
    world, island = files_of(own)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(world.read_bytes()))
    writer.start()
    summary = imported(pipe, island, tmp_path / "runs")
    writer.join()
    assert_like_own(summary, own_summary(own, summary, tmp_path))


def test_a_cut_capture_is_read_to_the_cut_and_makes_the_run_invalid(own: RunDir, tmp_path: Path) -> None:
    world, island = files_of(own)
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(island.read_bytes()[: island.stat().st_size * 3 // 4 + 5])
    summary = imported(world, cut, tmp_path / "runs")
    assert summary["reason_codes"] == ["CAPTURE_TRUNCATED"]
    assert summary["captures"]["island"]["decoded"] > 1000


def one_way(capture: Path, out: Path) -> Path:
    """The packets to the island only."""
    content = bytearray(capture.read_bytes()[:24])
    for data, meta in RawPcapReader(str(capture)):
        if data[31] == ISLAND_BIT:
            content += struct.pack("<IIII", meta.sec, meta.usec, len(data), meta.wirelen) + data
    out.write_bytes(content)
    return out


def test_captures_of_packets_to_the_island_only_have_an_uncertain_clock(own: RunDir, tmp_path: Path) -> None:
    world, island = files_of(own)
    summary = imported(one_way(world, tmp_path / "w"), one_way(island, tmp_path / "i"), tmp_path / "runs")
    mine = own_summary(own, summary, tmp_path)
    assert_like_own(summary, mine, FROM_CAPTURES - {"concurrency", "concurrent_flows_max", "connections"})
    assert summary["caveat_codes"].count("CLOCKS_UNCERTAIN") == 1
    assert summary["imported"]["offset_error_ms"] is None
    assert 0 < summary["concurrency"]["mean"] <= mine["concurrency"]["mean"]


# Refusals


def test_all_mistakes_of_both_files_are_reported_at_once(own: RunDir, tmp_path: Path) -> None:
    text, elsewhere = tmp_path / "text.pcap", tmp_path / "elsewhere.pcap"
    text.write_text("no capture")
    wrpcap(str(elsewhere), [Ether() / Dot1Q(vlan=3)])
    with pytest.raises(DescriptionError) as refusal:
        imported(text, elsewhere, tmp_path / "runs")
    assert str(refusal.value).splitlines() == [
        f"{elsewhere}: has no IPv4 packet to 10.20.0.0/16, the island of synthetic.yaml",
        f"{text}: is not a capture file (no pcap magic number)",
    ]
    (tmp_path / "runs" / ".import-killed").mkdir()
    with pytest.raises(DescriptionError, match=r"none\.pcap: cannot be read: No such file or directory"):
        imported(tmp_path / "none.pcap", files_of(own)[1], tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


def test_swapped_files_are_refused(own: RunDir, tmp_path: Path) -> None:
    world, island = files_of(own)
    with pytest.raises(DescriptionError, match="name the file of the world first"):
        imported(island, world, tmp_path / "runs")


def test_captures_of_different_runs_are_refused(own: RunDir, tmp_path: Path) -> None:
    wrpcap(str(tmp_path / "other.pcap"), PcapReader(str(files_of(own)[0])).read_packet())
    with pytest.raises(DescriptionError, match="has no two packets of one direction in common with"):
        imported(files_of(own)[0], tmp_path / "other.pcap", tmp_path / "runs")


def test_a_chain_with_one_tap_is_refused(own: RunDir, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="needs two taps"):
        imported(*files_of(own), tmp_path / "runs", chain=Chain("synthetic", ("sat", "tap-i")))
