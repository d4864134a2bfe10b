# SPDX-License-Identifier: Apache-2.0
"""UDP of a run: its flows as captured, its figures as the receiver counted, the report's plot, runs side by side."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from matplotlib.patches import Rectangle

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_core.experiment.traffic import UdpTraffic
from atoll_core.units import Rate, Size
from atoll_dashboards.report.key_figures import KeyFigure, key_figures
from atoll_dashboards.report.plots import PLOTS
from atoll_dashboards.report.report_data import read_sources
from atoll_hosts.binary import find_binary
from atoll_studies.results.comparison import compare
from tests.support.synthetic_run import START_NS, PcapWriter, begin, experiment, network, write_capture_log

RATE = Rate(1_200_000)  # ten packets of 1500 bytes in 100 ms
SENDER, RECEIVER = "10.10.1.1", "10.20.1.1"
SECONDS, EVERY_NS, ON_THE_WAY_NS = 10, 10_000_000, 250_000_000
LOST = (30, 31, 32)  # numbers of packets
NBSP = "\N{NO-BREAK SPACE}"
PACKETS = SECONDS * 10**9 // EVERY_NS


def write_udp(run: RunDir, *, older: bool = False) -> None:
    """Two flows taking turns, three packets of the first lost in the fourth tenth of a second."""
    for capture, shift_ns in (("world", 0), ("island", ON_THE_WAY_NS)):
        writer = PcapWriter(run.captures / f"{capture}.pcap")
        for number in range(PACKETS):
            if capture == "world" or number not in LOST:
                ends = (SENDER, 40000 + (number % 2), RECEIVER, 5301)
                writer.udp(START_NS + number * EVERY_NS + shift_ns, ends, 1472)
        writer.udp(START_NS + shift_ns, (SENDER, 9, RECEIVER, 9), 24)  # a probe of a swap
        writer.close()
        write_capture_log(run, capture, writer.packets)
    lines: list[dict[str, object]] = [{"type": "ready"}]
    for tick in range(1, 10 * SECONDS + 4):
        t_ns = START_NS + tick * 100_000_000
        come = [n for n in range(PACKETS) if n * EVERY_NS + ON_THE_WAY_NS < tick * 100_000_000 and n not in LOST]
        missing = sum(number < max(come, default=0) for number in LOST)
        line: dict[str, object] = {"type": "counters", "t_ns": t_ns, "last_ns": None}
        line |= {"packets": len(come), "bytes": 1500 * len(come)}
        answer = {"lost_packets": missing, "reordered_packets": 1 if tick > 50 else 0, "jitter_ns": 1000 * tick}
        lines.append(line | ({} if older else answer))
    received = {"packets": PACKETS - len(LOST), "bytes": 1500 * (PACKETS - len(LOST)), "lost_packets": len(LOST)}
    ends = {"reordered_packets": 1, "jitter_ns": 103_000, "jitter_max_ns": 110_000}
    lines.append({"type": "done", **received, **ends})
    (run.logs / ("udp-receive.out" if older else "udp-receive-is.out")).write_text(_text(lines))
    sent = {"type": "done", "sent_packets": PACKETS, "sent_bytes": 1500 * PACKETS, "flows_completed": 2}
    (run.logs / "udp-send.out").write_text(json.dumps(sent) + "\n")


def _text(lines: Iterable[object]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def analysed(folder: Path, *, older: bool = False) -> RunDir:
    asked = experiment(transfer=None, udp=UdpTraffic(RATE, "published", 5301, Size(1500), 2))
    run = begin(folder, asked, network(), ("world", "island"))
    write_udp(run, older=older)
    analyse(run, find_binary())
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return analysed(tmp_path_factory.mktemp("udp"))


def test_flows_of_udp_are_in_the_table_of_flows_without_probes(run: RunDir) -> None:
    flows = pl.read_parquet(run.tables / "flows.parquet").filter(pl.col("capture") == "island").sort("sport")
    assert flows["protocol"].to_list() == ["udp", "udp"]
    assert flows["server"].to_list() == ["ws", "ws"]
    assert flows["client"].to_list() == ["is", "is"]
    assert flows["sport"].to_list() == [40000, 40001]
    even, odd = (sum(number % 2 == parity for number in LOST) for parity in (0, 1))
    assert flows["packets"].to_list() == [PACKETS // 2 - even, PACKETS // 2 - odd]
    assert flows["goodput_bytes"].to_list() == [1472 * (PACKETS // 2 - even), 1472 * (PACKETS // 2 - odd)]
    assert flows["tcp_payload_bytes"].to_list() == [0, 0]


def test_what_the_receiver_counted_stands_on_the_time_axis_of_the_run(run: RunDir) -> None:
    frame = read_sources(run).udp()
    lost = dict(frame.select(pl.col("t_s").round(3), "lost_packets").filter(pl.col("lost_packets") > 0).iter_rows())
    assert lost == {0.5: 3}, "numbers 30 to 32 are missed when 33 has come, 0.58 s after the start"
    assert frame.filter(pl.col("t_s").is_between(1, 9))["mbit_s"].to_list() == pytest.approx([1.2] * 80)
    assert frame["reordered_packets"].sum() == 1
    assert frame["jitter_ms"].max() == pytest.approx(0.101), "what came later than the run is not shown"


def test_the_report_draws_it(run: RunDir) -> None:
    figure = next(plot for plot in PLOTS if plot.name == "udp").figure(read_sources(run))
    assert figure is not None
    assert [axes.get_ylabel() for axes in figure.axes] == ["Mbit/s", "packets", "jitter (ms)"]


def test_a_run_of_an_older_receiver_shows_its_rate_alone(tmp_path: Path) -> None:
    figure = next(plot for plot in PLOTS if plot.name == "udp").figure(read_sources(analysed(tmp_path, older=True)))
    assert figure is not None
    assert [axes.get_ylabel() for axes in figure.axes] == ["Mbit/s"]


def test_runs_side_by_side_have_rows_for_udp_if_there_was_any(run: RunDir, tmp_path: Path) -> None:
    without = begin(tmp_path, experiment(), network())
    without.write_summary(analyse(without, find_binary()))
    results = compare([run, without])
    rows = {name: tuple(each.figures[name] for each in results.all_runs) for name in results.shown}
    assert rows["UDP sent"] == (pytest.approx(1.2), None)
    assert rows["UDP lost"] == (pytest.approx(100 * len(LOST) / PACKETS), None)
    assert rows["UDP out of order"] == (1, None)
    assert rows["UDP jitter at most"] == (pytest.approx(0.11), None)
    assert not [name for name in compare([without]).shown if name.startswith("UDP")]


def udp_row(run: RunDir) -> KeyFigure:
    (row,) = (each for each in key_figures(cast("Summary", run.summary())) if each.name == "UDP received")
    return row


def test_a_receiver_that_was_killed_leaves_no_figures_and_a_reason(tmp_path: Path) -> None:
    run = analysed(tmp_path)
    log = run.logs / "udp-receive-is.out"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if '"done"' not in line))
    run.write_summary(analyse(run, find_binary()))
    assert udp_row(run).remark == "not every receiver reported what it received"


def shares_of(run: RunDir, share: float | None, **changed: Any) -> list[tuple[str, list[float]]]:
    """The panels of the plot of shares: their labels and the heights of their bars. Nothing arrived at client i2."""
    sources = read_sources(run)
    i2 = {"share": 0.0 if share else None, "loss_fraction": None}
    udp = {**(sources.summary.get("udp") or {}), "clients": {"i1": {"share": share, "loss_fraction": 0.5}, "i2": i2}}
    summary = cast("Summary", {**sources.summary, "udp": udp, **changed})
    figure = next(plot for plot in PLOTS if plot.name == "volumes").figure(replace(sources, summary=summary))
    if figure is None:
        return []
    return [(axes.get_xlabel(), [cast("Rectangle", bar).get_height() for bar in axes.patches]) for axes in figure.axes]


def test_what_clients_did_not_report_is_not_drawn_as_zero(run: RunDir) -> None:
    """Nor is the loss of one that received nothing; a lab may have no server but that of UDP."""
    shares, losses = shares_of(run, 1.0, servers={})[2:]
    assert shares == ("UDP by client", [100, 0])
    assert losses == ("UDP lost by client (%)", [50, pytest.approx(math.nan, nan_ok=True)])
    servers = {"w1": {"share": 1.0, "goodput_bytes": 5}}
    assert [label for label, _ in shares_of(run, None, servers=servers)] == ["world server", "island client"]


@pytest.mark.parametrize("quiet", [(), ("i2",)])
def test_receivers_are_added_up(tmp_path: Path, quiet: tuple[str, ...]) -> None:
    """Three clients receive one, two and three packets in each 100 ms; a quiet one counts at the end only."""
    traffic = UdpTraffic(RATE, "published", 5301, Size(1500), 3, "clients")
    run = begin(tmp_path, experiment(transfer=None, udp=traffic), network(3), ("world", "island"))
    write_udp(run)
    (run.logs / "udp-receive-is.out").unlink()
    for number, host in enumerate(("i1", "i2", "i3"), 1):
        lines: list[dict[str, object]] = []
        for tick in range(1, 10 * SECONDS + 1):
            line: dict[str, object] = {
                "type": "counters",
                "t_ns": START_NS + tick * 100_000_000 + number * 1_000_000,
                "packets": number * tick,
            }
            line |= {
                "bytes": 1500 * number * tick,
                "lost_packets": 0,
                "reordered_packets": 0,
                "jitter_ns": 1000 * number,
            }
            lines.append(line)
        done = {"type": "done", "packets": 100 * number, "bytes": 150_000 * number, "reordered_packets": 1}
        done |= {"lost_packets": 25 * (number - 1)}
        done |= {"jitter_ns": 1_000_000 * number, "jitter_max_ns": 2_000_000 * number}
        (run.logs / f"udp-receive-{host}.out").write_text(_text([*(() if host in quiet else lines), done]))
    figures = analyse(run, find_binary())["udp"]
    assert figures is not None
    assert (figures["receivers"], figures["received_packets"], figures["lost_packets"]) == (3, 600, PACKETS - 600)
    assert (figures["reordered_packets"], figures["jitter_ms"], figures["jitter_max_ms"]) == (3, 3.0, 6.0)
    assert "clients" in figures
    volumes = [each.values() for each in figures["clients"].values()]
    assert [*figures["clients"]] == ["i1", "i2", "i3"]
    assert [tuple(each) for each in volumes] == [(150_000, 1 / 6, 0), (300_000, 1 / 3, 1 / 9), (450_000, 1 / 2, 1 / 7)]
    run.write_summary(analyse(run, find_binary()))
    assert "by client 16.7 % to 50.0 % of it, 0.00 % to 14.29 % lost within flows" in udp_row(run).remark.replace(
        NBSP, " "
    )
    shares = next(plot for plot in PLOTS if plot.name == "volumes").figure(read_sources(run))
    assert shares is not None
    assert [axes.get_xlabel() for axes in shares.axes][2:] == ["UDP by client", "UDP lost by client (%)"]
    heights = [cast("Rectangle", bar).get_height() for bar in shares.axes[3].patches]
    assert heights == pytest.approx([0, 100 / 9, 100 / 7])
    frame = read_sources(run).udp()
    if quiet:
        assert frame.is_empty(), "the rate of the others alone would be too low"
    else:
        assert frame.filter(pl.col("t_s").is_between(1, 9))["mbit_s"].to_list() == pytest.approx([0.72] * 80)
        assert set(frame["jitter_ms"].to_list()) == {0.003}
