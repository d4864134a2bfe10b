# SPDX-License-Identifier: Apache-2.0
"""What stays lost behind coders is what the taps outside them show, and is reported by burst length."""

import json
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis import analyse
from atoll_analysis.figures.path_delays import base_rtts_ms
from atoll_analysis.figures.run_figures import measured_figures
from atoll_analysis.run_directory import RunDir
from atoll_analysis.tables.lost_packets import lost_packets
from atoll_core.codec import to_json
from atoll_core.description.loader import load_experiment
from atoll_core.lab.box_kind import ROUTER, BoxKind
from atoll_core.lab.coder import CODER
from atoll_core.lab.network import ChainBox, Interface
from atoll_core.lab.pep import PEP
from atoll_core.lab.port_ref import PortRef
from atoll_dashboards.report.key_figures import key_figures
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import simulate

HOPS = ["tap-w", "coder-w", "sat", "coder-i", "tap-i"]


def with_coders(tmp_path: Path, kind: BoxKind = CODER, between: BoxKind | None = None) -> RunDir:
    """A simulated run whose chain has boxes of a kind on both sides of the link, and perhaps another one."""
    run = simulate(tmp_path)
    manifest = run.manifest()
    others = {"coder-w": kind, "coder-i": kind, **({"pep-w": between} if between else {})}
    for number, (name, of) in enumerate(others.items()):
        world, island = (
            Interface(f"{name}-{side}", f"02:00:00:00:0{number + 1}:0{port}", PortRef("s1", 80 + 2 * number + port))
            for port, side in enumerate(("w", "i"))
        )
        manifest["network"]["boxes"].append(to_json(ChainBox(name, of, world, island)))
    manifest["experiment"]["chain"]["hops"] = ["tap-w", *(["pep-w"] if between else []), *HOPS[1:]]
    run.path.joinpath("manifest.json").write_text(json.dumps(manifest))
    return run


def test_packets_that_stay_lost_are_counted_by_burst_length(tmp_path: Path) -> None:
    """Coders that recover nothing: those that the link lost, which a run without coders shows at the link."""
    run = with_coders(tmp_path)
    summary: Any = analyse(run, find_binary())
    (bursts,) = summary["residual_bursts"].values()
    assert (bursts["first"], bursts["last"]) == ("world", "island")
    assert 0 < bursts["lost"] == sum(length * count for length, count in bursts["lengths"])
    uncoded: Any = analyse(simulate(tmp_path / "uncoded"), find_binary())
    assert bursts["lengths"] == uncoded["loss_bursts"]["sat"]["lengths"]
    assert bursts["packets"] == uncoded["loss_bursts"]["sat"]["packets"]
    figures = measured_figures(run.path, summary)
    assert figures["packets lost behind coders"] == bursts["lost"]
    assert figures["longest burst behind coders"] == bursts["longest"] > 1
    (shown,) = (each for each in key_figures(summary) if each.name == "lost behind coders")
    assert shown.text.startswith(f"{bursts['lost']}, ")
    assert shown.remark.endswith(f"at most {bursts['longest']}")


def test_packets_that_coders_may_hold_for_so_long_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All packets arrive 4 s later than the link delivers them. Few are compared at once, as in a long run."""
    few = partial(lost_packets, packets_at_once=1000)
    monkeypatch.setattr("atoll_analysis.figures.loss_bursts.lost_packets", few)
    lost: list[int] = []
    for hold_s in (5, 2):
        run = with_coders(tmp_path / str(hold_s))
        later(run.captures / "island.pcap", 4)
        manifest = run.manifest()
        manifest["experiment"]["boxes"] = [
            {"box": box, "settings": [["in_order_hold", hold_s * 10**9]]} for box in ("coder-w", "coder-i")
        ]
        run.path.joinpath("manifest.json").write_text(json.dumps(manifest))
        summary: Any = analyse(run, find_binary())
        lost += (bursts["lost"] for bursts in summary["residual_bursts"].values())
    at_once: Any = analyse(simulate(tmp_path / "at-once"), find_binary())
    assert lost[0] == at_once["loss_bursts"]["sat"]["lost"] < lost[1]


def later(capture: Path, seconds: int) -> None:
    """Delay all packets of a capture."""
    octets = bytearray(capture.read_bytes())
    at = 24  # behind the header of the file
    while at < len(octets):
        t_s, _, kept_bytes, _ = struct.unpack_from("<4I", octets, at)
        struct.pack_into("<I", octets, at, t_s + seconds)
        at += 16 + kept_bytes
    capture.write_bytes(octets)


def test_what_coders_hold_counts_in_the_longest_base_rtt_there_and_back(project: Path) -> None:
    """A pair holds a packet once each way."""
    network, experiment = load_experiment(project / "examples" / "coder-geo.yaml")
    rtts: list[tuple[float, float]] = []
    for hold_s in (0, 5):
        boxes = tuple(
            replace(each, settings=tuple({**dict(each.settings), "in_order_hold": hold_s * 10**9}.items()))
            for each in experiment.boxes
        )
        rtts.append(base_rtts_ms(network, replace(experiment, boxes=boxes)) or (0, 0))
    (least, most), with_hold = rtts
    assert with_hold == (least, pytest.approx(most + 10_000))


@pytest.mark.parametrize(("kind", "between"), [(ROUTER, None), (CODER, PEP)])
def test_without_coders_or_with_a_pep_among_them_there_is_no_such_figure(
    tmp_path: Path, kind: BoxKind, between: BoxKind | None
) -> None:
    run = with_coders(tmp_path, kind, between)
    summary: Any = analyse(run, find_binary())
    assert "residual_bursts" not in summary
    assert measured_figures(run.path, summary)["packets lost behind coders"] is None
