# SPDX-License-Identifier: Apache-2.0
"""Every chain and link of a run is measured by its own captures, whoever carried what when; changes by their events."""

import itertools
import json
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_analysis.tables.change_timeline import scheduled_changes, steering_periods
from atoll_core.experiment.experiment import MAIN, Chain, Experiment, Protocol, SteeringVersion, TrafficSelector
from atoll_core.lab.box_kind import LINK, ROUTER
from atoll_core.lab.network import ChainBox, Interface, Network, Tap
from atoll_core.lab.port_ref import PortRef
from atoll_core.units import Duration, Rate
from atoll_dashboards.report.report import write_report
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import (
    ACK,
    PORT,
    START_NS,
    PcapWriter,
    begin,
    experiment,
    network,
    write_capture_log,
)

MS = 10**6
COUNTERS = ("in_packets", "in_bytes", "out_packets", "out_bytes", "dropped_packets", "dropped_bytes", "idle_ns")
Ends = tuple[str, int, str, int]
DOWN: Ends = ("10.10.0.1", PORT, "10.20.0.1", 40001)  # a flow to i1
CODED: Ends = ("10.10.0.2", PORT, "10.20.0.2", 40002)  # one to i2, which branches may carry


def interface(name: str, port: int) -> Interface:
    return Interface(name, f"02:00:00:00:01:{port:02x}", PortRef("s1", 100 + port))


def laboratory() -> Network:
    """The synthetic one with a second link and a tap behind it."""
    lab = network()
    second = ChainBox("meo", LINK, interface("meo-w", 1), interface("meo-i", 2))
    return replace(lab, boxes=(*lab.boxes, second), taps=(*lab.taps, Tap("tap-m", "cap-m", interface("cap-m", 3))))


def asked(**changed: Any) -> Experiment:
    """A GEO link of 16 Mbit/s for everybody and a second one of 32 Mbit/s for branches."""
    one = experiment(transfer=None, duration=Duration(10 * 10**9))
    fast = replace(one.links[0].to_island, rate=Rate(32_000_000))
    one = replace(one, chain=replace(one.chain, name=MAIN), traffic=replace(one.traffic, channels=1))
    return replace(one, links=(one.links[0], replace(one.links[0], box="meo", to_island=fast)), **changed)


def to_i2(*hops: str) -> Chain:
    return Chain("coded", hops, TrafficSelector(island=IPv4Network("10.20.0.2/32")))


def write(run: RunDir, seen: dict[str, list[tuple[int, Ends]]]) -> None:
    """Captures with packets of 1000 bytes of payload, (ms since the start, ends): one after the other of each flow."""
    for name, packets in seen.items():
        writer = PcapWriter(run.captures / f"{name}.pcap")
        sent = dict.fromkeys((ends for _, ends in packets), 0)
        for ms, ends in packets:
            writer.tcp(START_NS + ms * MS, ends, 1000 * sent[ends] + 1, 1, ACK, 1000)
            sent[ends] += 1
        writer.close()
        write_capture_log(run, name, writer.packets)


def write_boxes(run: RunDir, dropped: dict[str, int]) -> None:
    """Counters and marks of links: twenty packets in, so many of them dropped."""
    lines: list[dict[str, Any]] = []
    for (box, drops), name in itertools.product(dropped.items(), ("begin", "end")):
        figures = dict.fromkeys(COUNTERS, 0) | {"in_packets": 20, "dropped_packets": drops}
        figures |= {"dropped_bytes": 1040 * drops, "queue_max_bytes": 5000, "lateness_max_ns": 0, "lateness_p99_ns": 0}
        figures |= {"queue_bytes": 0, "oversize_packets": 0, "held_packets": 0}
        both = {"to_island": figures, "to_world": figures}
        lines.append({"box": box, "type": "mark", "mark": name, "id": 1, "t_ns": START_NS, "overloaded": False, **both})
        lines += [{"box": box, "type": "counters", "t_ns": START_NS + 100 * MS * n, **both} for n in range(100)]
    (run.path / "link.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def flow_log(run: RunDir, client: str, *starts_ms: int) -> None:
    """Completed flows of 5000 bytes from w1 to a client."""
    header = "channel,flow,server,size_bytes,received_bytes,start_ns,connected_ns,first_byte_ns,end_ns,outcome\n"
    rows = [f"0,{n},10.10.0.1:{PORT},5000,5000,{START_NS + ms * MS},,,{START_NS + ms * MS + 1},completed\n"
            for n, ms in enumerate(starts_ms)]  # fmt: skip
    (run.logs / f"flows-{client}.csv").write_text(header + "".join(rows))


def test_a_branch_with_a_link_and_a_tap_of_its_own_is_measured_there(tmp_path: Path) -> None:
    """What reached the island is what arrived at each chain's own tap; a link's figures are its own."""
    given = asked(branches=(to_i2("meo", "tap-m"),))
    run = begin(tmp_path, given, laboratory(), ("world", "island", "tap-m", "link-sat", "link-meo"))
    main, own = [(100 * n, DOWN) for n in range(10)], [(50 * n, CODED) for n in range(20)]
    write(run, {"world": main, "island": main[:8], "link-sat": main[:8], "tap-m": own, "link-meo": own})
    write_boxes(run, {"sat": 2, "meo": 0})
    flow_log(run, "i1", 100, 200)
    flow_log(run, "i2", 300)
    summary = analyse(run, find_binary())
    assert set(summary["reason_codes"]) <= {"WHISTLE_MISSING"}, summary["reasons"]
    assert summary["arrival"] == "arrived"
    assert summary["goodput_mbit_s"] == pytest.approx(28 * 8000 / 10 / 1e6)
    assert summary["links"]["meo"]["chains"] == ["coded"]
    assert summary["links"]["meo"]["utilisation"] == pytest.approx(20 * 1040 * 8 / 320e6)
    assert summary["links"]["sat"]["loss_fraction"] == 0.1
    assert (summary["loss_bytes_captures"], summary["loss_bytes_link"]) == (2080, 2080)
    main_chain, coded = summary["chains"]["main"], summary["chains"]["coded"]
    assert (main_chain["arrival"], coded["arrival"]) == ("island", "tap-m")
    assert main_chain["goodput_mbit_s"] == pytest.approx(8 * 8000 / 10 / 1e6)
    assert coded["goodput_mbit_s"] == pytest.approx(20 * 8000 / 10 / 1e6)
    assert (main_chain["flows_completed"], coded["flows_completed"]) == (2, 1)
    assert (main_chain["loss_fraction"], coded["loss_fraction"]) == (0.2, None)
    assert any("island traffic is merged from captures island, tap-m" in note for note in summary["notes"])
    assert any("the loss of meo is from the link's own counter" in note for note in summary["notes"])
    page = write_report(run).read_text()
    assert "What each chain carried" in page
    assert "Links, to the island" in page
    assert 'alt="Other links: ' in page


def test_a_branch_may_have_the_name_of_what_a_figure_is_drawn_over(tmp_path: Path) -> None:
    run = begin(tmp_path, asked(branches=(replace(to_i2("sat", "tap-m"), name="window"),)), laboratory())
    write(run, {"world": [(0, DOWN), (1, CODED)], "island": [(300, DOWN)], "link-sat": [(300, DOWN), (301, CODED)]})
    write_boxes(run, {"sat": 0})
    analyse(run, find_binary())
    assert 'alt="Chains: ' in write_report(run).read_text()


def test_a_window_above_the_rate_of_any_link_makes_the_run_invalid(tmp_path: Path) -> None:
    """The verdict is a link's own: one that only a branch passes is judged as any other."""
    given = asked(branches=(to_i2("meo", "tap-m"),))
    run = begin(tmp_path, given, laboratory(), ("world", "island", "tap-m", "link-sat", "link-meo"))
    burst = [(n // 50, CODED) for n in range(500)]
    write(run, {"world": [(0, DOWN)], "island": [(0, DOWN)], "link-sat": [], "tap-m": burst, "link-meo": burst})
    write_boxes(run, {"sat": 0, "meo": 0})
    reasons = analyse(run, find_binary())["reasons"]
    assert "meo: the capture behind it has 1 window of 100 ms above the link's 32 Mbit/s, bound 0" in reasons


def test_captures_that_do_not_see_the_same_chains_are_not_compared(tmp_path: Path) -> None:
    """A branch that passes the world's tap alone loses nothing by not coming to the island's."""
    given = asked(branches=(to_i2("tap-w", "meo", "tap-m"),))
    run = begin(tmp_path, given, laboratory(), ("world", "island", "tap-m", "link-sat", "link-meo"))
    main, own = [(100 * n, DOWN) for n in range(10)], [(50 * n, CODED) for n in range(20)]
    write(run, {"world": [*main, *own], "island": main, "link-sat": main, "tap-m": own, "link-meo": own})
    write_boxes(run, {"sat": 0, "meo": 0})
    summary = analyse(run, find_binary())
    assert summary["loss_bytes_captures"] is None
    assert set(summary["reason_codes"]) <= {"WHISTLE_MISSING"}, summary["reasons"]


def scheduled(one: Experiment, *later: tuple[int, Chain, tuple[Chain, ...]]) -> Experiment:
    """The experiment with versions of other chains, (seconds, chain, branches)."""
    versions = [SteeringVersion(Duration(s * 10**9), chain, branches, one.latency) for s, chain, branches in later]
    return replace(one, schedule=(one.versions[0], *versions))


def made(run: RunDir, number: int, second: float, *, shift_ms: int = 3, took_ms: int = 553) -> None:
    """The events of a change that was carried out."""
    at = START_NS + int(second * 1e9)
    run.append_event("change", at, change=number, state="begin", planned_ns=at - 2 * MS, what=[])
    run.append_event("swap", at + shift_ms * MS, change=number, state="stage", stage="shift")
    run.append_event("change", at + took_ms * MS, change=number, state="end", drain_ns=550 * MS)


def test_packets_belong_to_the_version_that_stood_when_they_came(tmp_path: Path) -> None:
    """A branch that comes in the middle of the run carries i2's packets and flows from then on."""
    one = asked()
    both = to_i2("tap-w", "sat", "tap-i")
    run = begin(
        tmp_path, scheduled(one, (5, one.chain, (both,))), laboratory(), ("world", "island", "link-sat", "link-meo")
    )
    made(run, 1, 5.0)
    packets = [(100 * n, CODED) for n in range(100)]
    write(run, {"world": packets, "island": packets, "link-sat": packets, "link-meo": []})
    write_boxes(run, {"sat": 0, "meo": 0})
    flow_log(run, "i2", 1000, 5002, 5004, 9000)
    summary = analyse(run, find_binary())
    assert summary["chains"]["main"]["goodput_mbit_s"] == pytest.approx(51 * 8000 / 10 / 1e6)
    assert summary["chains"]["coded"]["goodput_mbit_s"] == pytest.approx(49 * 8000 / 10 / 1e6)
    assert [summary["chains"][name]["flows_completed"] for name in ("main", "coded")] == [2, 2]
    assert summary["chains"]["main"]["loss_bytes"] is None
    (change,) = summary["changes"]
    assert change["what"] == ["branches.coded {carries: {island: 10.20.0.2/32}, chain: [tap-w, sat, tap-i]}"]
    assert (change["planned_s"], change["began_s"], change["lateness_ms"]) == (5.0, 5.0, 2.0)
    assert change["duration_s"] == pytest.approx(0.553)
    assert (change["turned_ms"], change["beyond_drain_ms"]) == (pytest.approx(3.0), pytest.approx(3.0))
    page = write_report(run).read_text()
    assert "branches.coded {carries: {island: 10.20.0.2/32}, chain: [tap-w, sat, tap-i]}" in page
    assert "What each chain carried" in page


def test_a_link_is_measured_between_captures_when_a_router_comes_before_it(tmp_path: Path) -> None:
    """A router conserves packets, so the link lost those that the capture behind it does not have."""
    one, lab = asked(), laboratory()
    lab = replace(lab, boxes=(*lab.boxes, ChainBox("pep-w", ROUTER, interface("pep-w0", 4), interface("pep-w1", 5))))
    routed = replace(one.chain, hops=("tap-w", "pep-w", "sat", "tap-i"))
    run = begin(tmp_path, scheduled(one, (5, routed, ())), lab, ("world", "island", "link-sat", "link-meo"))
    made(run, 1, 5.0)
    packets: list[tuple[int, Ends]] = [(100 * n, (*DOWN[:3], 40000 + n)) for n in range(100)]
    passed = [packet for number, packet in enumerate(packets) if number not in (20, 21, 70)]
    write(run, {"world": packets, "island": passed, "link-sat": passed, "link-meo": []})
    write_boxes(run, {"sat": 3, "meo": 0})
    bursts = analyse(run, find_binary())["loss_bursts"]["sat"]
    assert (bursts["first"], bursts["last"], bursts["lengths"]) == ("world", "link-sat", [[1, 1], [2, 1]])
    assert bursts["burst_share"] == pytest.approx(2 / 3)


def test_a_change_that_failed_or_never_came_makes_the_run_invalid(tmp_path: Path) -> None:
    """The reason is the change's own; what was measured is all there."""
    one = asked()
    later = [(3, replace(one.chain, hops=("sat",)), ()), (6, one.chain, ())]
    run = begin(tmp_path, scheduled(one, *later), laboratory(), ("world", "island", "link-sat", "link-meo"))
    at = START_NS + 3 * 10**9
    run.append_event("change", at, change=1, state="begin", planned_ns=at, what=[])
    run.append_event("change", at + MS, change=1, state="failed", message="probes did not arrive")
    packets = [(100 * n, DOWN) for n in range(100)]
    write(run, {"world": packets, "island": packets, "link-sat": packets, "link-meo": []})
    write_boxes(run, {"sat": 0, "meo": 0})
    summary = analyse(run, find_binary())
    assert "change 1 (at 3 s) failed: probes did not arrive" in summary["reasons"]
    assert "change 2 (at 6 s) was not made" in summary["reasons"]
    assert summary["goodput_mbit_s"] == pytest.approx(100 * 8000 / 10 / 1e6)
    assert "failed: probes did not arrive" in write_report(run).read_text()


def test_a_change_that_came_late_makes_the_run_invalid(tmp_path: Path) -> None:
    """A quarter of a second is more than any machine that measures should be late."""
    one = asked()
    run = begin(tmp_path, scheduled(one, (3, replace(one.chain, hops=("sat",)), ())), laboratory(), ("world",))
    at = START_NS + 3 * 10**9
    run.append_event("change", at + 300 * MS, change=1, state="begin", planned_ns=at, what=[])
    run.append_event("change", at + 900 * MS, change=1, state="end", drain_ns=0)
    write(run, {"world": [(0, DOWN)]})
    write_boxes(run, {"sat": 0, "meo": 0})
    reasons = analyse(run, find_binary())["reasons"]
    assert "change 1 (at 3 s) began 300 ms late, bound 250 ms: the machine was too busy" in reasons


def test_a_change_stands_from_its_last_shift_unless_it_was_undone() -> None:
    """Packets have turned when the last shift was made; an undone swap never stood, one that was held up later did."""
    one = asked()
    chain = replace(one.chain, hops=("sat",))
    given = scheduled(one, (1, chain, ()), (2, one.chain, ()), (3, chain, ()))
    shift = {"type": "swap", "state": "stage", "stage": "shift"}
    failed = {"type": "change", "state": "failed", "message": "a switch stays away"}
    events = [
        {"type": "change", "state": "begin", "change": 1, "t_ns": 10, "planned_ns": 9},
        {**shift, "change": 1, "t_ns": 11},
        {**shift, "change": 1, "t_ns": 12},
        {**failed, "change": 1, "t_ns": 20},
        {"type": "change", "state": "begin", "change": 2, "t_ns": 30, "planned_ns": 29},
        {"type": "swap", "state": "undone", "change": 2, "t_ns": 33},
        {**failed, "change": 2, "t_ns": 34},
    ]
    found = scheduled_changes(given, events)
    assert [change.turned_ns for change in found] == [12, None, None]
    assert [(since_ns, steered.chain.hops) for since_ns, steered in steering_periods(given, found)] == [
        (0, one.chain.hops),
        (12, ("sat",)),
    ]


def test_a_protocol_comes_before_a_prefix(tmp_path: Path) -> None:
    """Whose packet it is follows the precedence by which packets are steered."""
    tcp = Chain("tcp", ("tap-w", "sat", "tap-i"), TrafficSelector(protocol=Protocol.TCP))
    given = asked(branches=(to_i2("tap-w", "sat", "tap-i"), tcp))
    run = begin(tmp_path, given, laboratory(), ("world", "island", "link-sat", "link-meo"))
    packets = [(100 * n, CODED) for n in range(10)]
    write(run, {"world": packets, "island": packets, "link-sat": packets, "link-meo": []})
    write_boxes(run, {"sat": 0, "meo": 0})
    found = analyse(run, find_binary())["chains"]
    assert found["tcp"]["goodput_mbit_s"] == pytest.approx(10 * 8000 / 10 / 1e6)
    assert found["coded"]["goodput_mbit_s"] == 0.0


def test_a_change_of_the_load_alone_begins_no_period_of_steering() -> None:
    """Figures by chain and sojourn times of pings are then those of a run without changes."""
    one = asked()
    louder = replace(one.traffic, channels=one.traffic.channels + 20)
    first, after = (replace(one.versions[0], traffic=each) for each in (one.traffic, louder))
    given = replace(one, schedule=(first, replace(after, at=Duration(10**9))))
    events = [
        {"type": "change", "change": 1, "state": "begin", "t_ns": 10**9, "planned_ns": 10**9},
        {"type": "change", "change": 1, "state": "end", "t_ns": 10**9, "drain_ns": 0},
    ]
    found = scheduled_changes(given, events)
    assert [(each.what, each.failure) for each in found] == [
        ((f"traffic.channels {louder.channels} instead of {one.traffic.channels}",), None)
    ]
    ((_, steered),) = steering_periods(given, found)
    assert steered.steering == one.steering


def test_channels_that_come_with_a_change_have_figures(tmp_path: Path) -> None:
    one = asked()
    without = replace(one, traffic=replace(one.traffic, channels=0))
    later = replace(one.versions[0], at=Duration(10**9), traffic=replace(one.traffic, channels=40))
    given = replace(without, schedule=(replace(without.versions[0], traffic=without.traffic), later))
    run = begin(tmp_path, given, laboratory(), ("world", "island", "link-sat", "link-meo"))
    write(run, {"world": [], "island": [], "link-sat": [], "link-meo": []})
    write_boxes(run, {"sat": 0, "meo": 0})
    found = analyse(run, find_binary())
    assert found["channels"] == 40
    assert found["flow_classes"]
    assert found["initial_window"]
