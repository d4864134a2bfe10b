# SPDX-License-Identifier: Apache-2.0
"""Captures prove a link's loss wherever boxes conserve packets, and TCP payload what passes the other boxes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_analysis.verdict.loss_agreement import proofs
from atoll_controller.planner.job_plan import capture_points
from atoll_core.experiment.experiment import Chain, Experiment
from atoll_core.experiment.traffic import Traffic
from atoll_core.lab.box_kind import PROGRAM, Forwarding
from atoll_core.lab.network import ChainBox, Interface, Network
from atoll_core.lab.port_ref import PortRef
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import (
    ACK,
    FIN,
    PORT,
    START_NS,
    PcapWriter,
    begin,
    experiment,
    network,
    write_capture_log,
)

CAPTURES = ("world", "into-sat", "link-sat", "island")
MS = 10**6
HINT = "; if pep ends, splits, encodes, adds or loses packets, declare conserves_packets: false"
Packet = tuple[
    int, int, int
]  # sequence number, payload, flags; a negative sequence number: the client's ACK of its negative


def laboratory(conserves: bool | None = None, payload: bool | None = True) -> Network:
    """The synthetic one with a program of somebody else's before the link."""
    lab = network()
    world, island = (
        Interface(f"pep-{end}", f"02:00:00:00:02:0{n}", PortRef("s1", 90 + n)) for n, end in enumerate("wi")
    )
    pep = ChainBox(
        "pep",
        PROGRAM,
        world,
        island,
        None,
        Forwarding.ROUTED,
        conserves_packets=conserves,
        conserves_payload=payload is not False,
    )
    return replace(lab, boxes=(*lab.boxes, pep))


def asked() -> Experiment:
    chain = Chain("main", ("tap-w", "pep", "sat", "tap-i"))
    return experiment(traffic=Traffic(1, "published", PORT), transfer=None, latency=(), chain=chain)


def recorded(base: Path, seen: dict[str, list[Packet]], dropped: int = 0, **declared: bool | None) -> RunDir:
    """A run with such packets of one flow at the captures, of which the world's has another client port."""
    run = begin(base, asked(), laboratory(**declared), CAPTURES)
    for name in CAPTURES:
        ends = ("10.10.0.1", PORT, "10.20.0.1", 40001 if name == "world" else 40002)
        writer = PcapWriter(run.captures / f"{name}.pcap")
        for at, (sequence, length, flags) in enumerate(seen[name]):
            if sequence < 0:
                writer.tcp(START_NS + at * MS, (*ends[2:], *ends[:2]), 1, -sequence, ACK, 0)
            else:
                writer.tcp(START_NS + at * MS, ends, sequence, 1, flags, length)
        writer.close()
        write_capture_log(run, name, writer.packets)
    figures = dict.fromkeys(("in_packets", "in_bytes", "out_packets", "out_bytes", "idle_ns", "queue_max_bytes"), 0)
    figures |= {"in_packets": 9, "dropped_packets": dropped, "dropped_bytes": 1040 * dropped, "lateness_max_ns": 0}
    both = {"to_island": figures, "to_world": figures}
    marks = [{"box": "sat", "type": "mark", "mark": name, "t_ns": START_NS, **both} for name in ("begin", "end")]
    (run.path / "link.jsonl").write_text("".join(json.dumps(line) + "\n" for line in marks))
    return run


def judged(run: RunDir) -> tuple[list[str], dict[str, Any]]:
    """The reasons about packets and payload that differ, and the summary."""
    summary = analyse(run, find_binary())
    found = zip(summary["reason_codes"], summary["reasons"], strict=True)
    return [reason for code, reason in found if code in {"LOSS_DIFFERS", "PAYLOAD_DIFFERS"}], summary


def segments(count: int, length: int = 1000) -> list[Packet]:
    return [(1 + length * n, length, ACK) for n in range(count)]


END: list[Packet] = [(3001, 0, ACK | FIN), (-3002, 0, ACK)]


def test_a_box_that_cuts_segments_anew_is_proven_by_payload(tmp_path: Path) -> None:
    """What the proxy sends twice, and the link loses once, is no payload of its own."""
    cut = segments(6, 500)
    sent = [*cut, cut[1], *END]
    came = [*cut, *END]
    reasons, summary = judged(
        recorded(
            tmp_path, {"world": [*segments(3), *END], "into-sat": sent[:-1], "link-sat": came[:-1], "island": came}
        )
    )
    assert reasons == [
        "captures show a loss of 540 bytes between into-sat and link-sat (sat), sat counted 0 bytes; both must be equal"
    ]
    assert summary["loss_bytes_captures"] is None
    assert summary["payload"] == {
        "boxes": ["pep"], "lossy": [], "world_bytes": 3000, "island_bytes": 3000, "open_connections": 0,
        "held_bytes_max": 0, "received_bytes": None, "wrong": [],
    }  # fmt: skip
    assert proofs(summary["stretches"], summary["payload"]) == [
        "captures link-sat and island are equal to the byte",
        "TCP payload through pep: 3000 bytes entered, 3000 arrived",
    ]


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("cut", [True, False])
def test_an_incomplete_or_missing_capture_is_named_and_its_losses_are_not_compared(
    tmp_path: Path, capture: str, cut: bool
) -> None:
    """What it has not seen is no loss of links or boxes."""
    run = recorded(tmp_path, {name: [*segments(6), *END] for name in CAPTURES}, conserves=True)
    file = run.captures / f"{capture}.pcap"
    if cut:
        file.write_bytes(file.read_bytes()[:-500])
    else:
        file.unlink()
    reasons, summary = judged(run)
    assert reasons == []
    assert ("CAPTURE_TRUNCATED" if cut else "CAPTURE_MISSING") in summary["reason_codes"]


@pytest.mark.parametrize(
    ("end", "reasons"),
    [
        (END, ["TCP payload differs before and after pep: w1:5001 to i1: 1000 bytes did not reach the island"]),
        (END[:1], []),  # the client has not acknowledged the end: the box may hold what is missing
        ([], []),
    ],
)
def test_payload_may_be_missing_of_open_connections_alone(
    tmp_path: Path, end: list[Packet], reasons: list[str]
) -> None:
    came = [*segments(2), *end]
    bound = [each for each in came if each[0] >= 0]
    found, _ = judged(recorded(tmp_path, {"world": segments(3), "into-sat": bound, "link-sat": bound, "island": came}))
    assert found == reasons


def test_payload_that_nobody_sent_makes_a_run_invalid(tmp_path: Path) -> None:
    came = segments(3)
    found, _ = judged(recorded(tmp_path, {"world": segments(2), "into-sat": came, "link-sat": came, "island": came}))
    assert found == [
        "TCP payload differs before and after pep: w1:5001 to i1: 1000 bytes more reached the island than entered"
    ]


def test_payload_that_a_box_may_lose_is_a_caveat(tmp_path: Path) -> None:
    """Of a box that is declared so: what it loses is a result, and no fault of the run."""
    came = [*segments(2), *END]
    seen = {"world": segments(3), "into-sat": came[:-1], "link-sat": came[:-1], "island": came}
    reasons, summary = judged(recorded(tmp_path, seen, payload=False))
    assert (reasons, summary["payload"]["lossy"]) == ([], ["pep"])
    caveat = "TCP payload through pep: 3000 bytes entered, 2000 arrived; pep may lose some (conserves_payload: false)"
    assert caveat in summary["caveats"]
    assert [line for line in proofs(summary["stretches"], summary["payload"]) if "payload" in line] == []


def test_a_client_must_have_received_what_reached_the_island(tmp_path: Path) -> None:
    came = segments(3)
    run = recorded(tmp_path, {"world": came, "into-sat": came, "link-sat": came, "island": came})
    header = "channel,flow,server,size_bytes,received_bytes,start_ns,connected_ns,first_byte_ns,end_ns,outcome\n"
    row = f"0,0,10.10.0.1:{PORT},{{0}},{{0}},{START_NS},,,{START_NS + 1},{{1}}\n"
    for received, outcome, right in ((3000, "completed", True), (2500, "completed", False), (2500, "cut", True)):
        (run.logs / "flows-i1.csv").write_text(header + row.format(received, outcome))
        wrong = f"w1:{PORT} to i1: 3000 bytes reached the island, the client received {received}"
        assert judged(run)[1]["payload"]["wrong"] == ([] if right else [wrong])


def test_a_box_that_is_said_to_conserve_packets_and_loses_one_is_named(tmp_path: Path) -> None:
    sent, came = segments(3), segments(2)
    seen = {"world": sent, "into-sat": came, "link-sat": came[:1], "island": came[:1]}
    reasons, summary = judged(recorded(tmp_path, seen, dropped=1, conserves=True))
    assert reasons == [f"captures show a loss of 1040 bytes between world and into-sat (pep), bound 0{HINT}"]
    assert summary["payload"] is None
    assert (summary["loss_bytes_captures"], summary["loss_bytes_link"]) == (2080, 1040)


def test_the_reason_for_packets_that_a_box_adds_says_how_to_declare_it(tmp_path: Path) -> None:
    sent, came = segments(2), segments(3)
    seen = {"world": sent, "into-sat": came, "link-sat": came, "island": came}
    reasons, _ = judged(recorded(tmp_path, seen, conserves=True))
    added = "packets were added between world and into-sat (pep), bound 0"
    assert reasons == [f"into-sat captured 1040 bytes more than world: {added}{HINT}"]


def test_what_enters_a_link_is_captured_where_boxes_of_others_are_in_its_chain() -> None:
    with_box = [point.name for point in capture_points(laboratory(), asked())]
    without = [point.name for point in capture_points(network(), experiment())]
    assert with_box == ["island", "link-sat", "into-sat", "world"]
    assert without == ["island", "link-sat", "world"]


def test_runs_recorded_before_have_no_capture_of_what_enters_a_link(tmp_path: Path) -> None:
    came = segments(3)
    run = recorded(tmp_path, {"world": came, "into-sat": came, "link-sat": came, "island": came})
    (run.captures / "into-sat.pcap").unlink()
    manifest = run.manifest()
    manifest["plan"]["captures"] = [each for each in manifest["plan"]["captures"] if each["name"] != "into-sat"]
    for box in manifest["network"]["boxes"]:
        del box["conserves_packets"]
    run.write_manifest(manifest)
    reasons, summary = judged(run)
    assert reasons == []
    assert any(
        "is from the link's own counter; no captures on both sides confirm it" in note for note in summary["notes"]
    )
