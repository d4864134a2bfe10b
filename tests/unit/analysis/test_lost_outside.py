# SPDX-License-Identifier: Apache-2.0
"""What kernels drop outside the boxes: counted between two looks, told with machine, count and remedy."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from atoll_analysis.summary import Summary
from atoll_analysis.verdict.lost_outside import (
    Backlog,
    LostOutside,
    SwitchPort,
    judge_lost_outside,
    likely_causes,
    lost_outside,
    outside_notes,
)
from atoll_analysis.verdict.verdict import judge
from atoll_core.lab.port_ref import PortRef
from atoll_core.metrics.metrics_schema import EMULATION
from atoll_emulation.this_machine.packet_sockets import PacketSocketCounters
from atoll_testbed.run.kernel_drops import DropSample, drop_increase
from tests.unit.analysis.test_verdict import VALID

CAUSE = (
    "the lab's machine dropped 312 packets that waited for a processor (310 of them on the lab's own cables); "
    "net.core.netdev_max_backlog is 1000: `sysctl -w net.core.netdev_max_backlog=10000`"
)
PLACES = frozenset({"rack-1", "s1/2", "s1/10"})  # between the captures
WHOLE_CHECKSUMS = "check for checksum offloads, and for boxes that change packets"


def outside_remarks(lost: LostOutside | None, *, blamed: bool) -> list[str]:
    """Caveats, then notes."""
    return [*(finding.text for finding in judge_lost_outside(lost, causes_are_named=blamed)), *outside_notes(lost)]


def reasons(summary: Summary) -> list[str]:
    return [finding.text for finding in judge(summary) if finding.is_reason]


def remarks(summary: Summary) -> list[str]:
    """Caveats of the whole summary, then notes."""
    caveats = [finding.text for finding in judge(summary) if not finding.is_reason]
    return [*caveats, *outside_notes(summary.get("lost_outside"))]


@pytest.fixture
def answer(project: Path) -> dict[str, Any]:
    """An agent's sample, as the contract shows it."""
    lines = (project / "tests/data/contract/agent.jsonl").read_text().splitlines()
    (sample,) = (message["sample"] for line in lines if "sample" in (message := json.loads(line)["message"]))
    return sample


def later(sample: dict[str, Any], **rises: int) -> DropSample:
    """The same machine after some of its counters have risen: ``machine__backlog_dropped_packets``, ``w1__udp__..``."""
    changed = json.loads(json.dumps(sample))
    for path, rise in rises.items():
        first, *way, last = path.split("__")
        place = changed["machine"] if first == "machine" else changed["hosts"][first]
        for step in way:
            place = next(iter(place.values())) if step == "first" else place[step]
        place[last] += rise
    return DropSample(changed)


def test_nothing_rose_in_a_sound_run(answer: dict[str, Any]) -> None:
    """The counts of before are nobody's: machine and namespaces are older than the run."""
    found = drop_increase({EMULATION: DropSample(answer)}, {EMULATION: DropSample(answer)}, 1000)
    counted = {"backlog_dropped_packets": 0, "on_cables_packets": 0, "backlog_limit_packets": 1000}
    assert found == {"machines": {EMULATION: counted}, "hosts": {}, "ports": {}, "uncounted": {}}
    lost = lost_outside({"lost_outside": found}, PLACES)
    assert lost == LostOutside(machines={}, hosts={}, ports={}, uncounted={}, beside=[])
    assert likely_causes(lost) == outside_remarks(lost, blamed=False) == []


def test_what_rose_between_two_looks_is_kept_by_machine_and_host(answer: dict[str, Any]) -> None:
    """An emulated lab's limit is this machine's, as its agent cannot see it; its cables are held beside the count."""
    after = later(
        answer,
        machine__backlog_dropped_packets=312,
        w1__interfaces__first__tx_dropped=310,
        w1__tcp__listen_drops=3,
        w1__tcp__in_errors=2,
        w1__tcp__checksum_errors=1,
        w1__udp__in_errors=7,
        w1__udp__checksum_errors=2,
        w1__udp__receive_buffer_errors=4,
    )
    found = drop_increase({EMULATION: DropSample(answer)}, {EMULATION: after}, 1000)
    assert found["machines"] == {
        EMULATION: {"backlog_dropped_packets": 312, "on_cables_packets": 310, "backlog_limit_packets": 1000}
    }
    assert found["hosts"] == {
        "w1": {
            "tcp.listen_drops": 3,
            "tcp.checksum_errors": 1,
            "udp.receive_buffer_errors": 4,
            "udp.checksum_errors": 2,
            "udp.in_errors": 7,
        }
    }
    assert outside_remarks(lost_outside({"lost_outside": found}, PLACES), blamed=False) == [
        CAUSE,
        "3 connections were not accepted because the listen queue was full (w1 3): raise net.core.somaxconn there",
        f"1 TCP segment was discarded because of a wrong checksum (w1 1): {WHOLE_CHECKSUMS}",
        (
            "4 datagrams were dropped because a socket's receive buffer was full (w1 4): raise net.core.rmem_max of "
            "the machine"
        ),
        f"2 datagrams were discarded because of a wrong checksum (w1 2): {WHOLE_CHECKSUMS}",
        (
            "1 datagram was not delivered to a program for another reason (w1 1): "
            "usually the machine had no memory for them; check net.ipv4.udp_mem there"
        ),
    ]


def test_of_agents_that_do_not_tell_checksums_nothing_is_said_of_them(answer: dict[str, Any]) -> None:
    """Those of 1.2, and manifests of their time: what they call an error may be a SYN that was sent again."""
    for part in ("tcp", "udp"):
        del answer["hosts"]["w1"][part]["checksum_errors"]
    found = drop_increase({EMULATION: DropSample(answer)}, {EMULATION: later(answer, w1__tcp__in_errors=40)}, 1000)
    assert found["hosts"] == {}
    before = {**found, "hosts": {"i6": {"tcp.in_errors": 40}}}
    assert outside_remarks(lost_outside({"lost_outside": before}, PLACES), blamed=False) == []


def test_the_switches_ends_are_cables_and_no_host(answer: dict[str, Any]) -> None:
    """What the sockets of control channels have no room for is not the experiment's."""
    answer["hosts"]["the switches"] = answer["hosts"]["w1"]
    after = later(answer, **{"the switches__interfaces__first__tx_dropped": 4, "the switches__tcp__listen_drops": 3})
    found = drop_increase({EMULATION: DropSample(answer)}, {EMULATION: after}, 1000)
    assert found["machines"][EMULATION]["on_cables_packets"] == 4
    assert found["hosts"] == {}


def test_a_machine_of_its_own_is_named_with_its_own_limit(answer: dict[str, Any]) -> None:
    """What its real interfaces did not send has other reasons: it is not held beside the count."""
    answer["machine"]["backlog_limit_packets"] = 20_000
    found = drop_increase(
        {"rack-1": DropSample(answer)}, {"rack-1": later(answer, machine__backlog_dropped_packets=1)}, 1000
    )
    (cause,) = likely_causes(lost_outside({"lost_outside": found}, PLACES))
    assert cause == (
        "rack-1 dropped 1 packet that waited for a processor; net.core.netdev_max_backlog is 20000: "
        "`sysctl -w net.core.netdev_max_backlog=100000`"
    )


@pytest.mark.parametrize("dropped", [1_000_000, 3 * 10**9])
def test_room_is_advised_that_a_kernel_takes(dropped: int) -> None:
    """What was lost over hours did not come at one instant; where there is much room, too little is not the cause."""

    def advised(limit: int | None) -> str:
        backlog = Backlog(dropped_packets=dropped, on_cables_packets=None, limit_packets=limit)
        (cause,) = likely_causes(LostOutside(machines={"rack-1": backlog}, hosts={}, ports={}, uncounted={}, beside=[]))
        return cause.rpartition(": ")[2]

    assert advised(1000) == advised(None) == "`sysctl -w net.core.netdev_max_backlog=1000000`"
    assert advised(1_000_000) == "its processors are too slow for the load; a longer backlog does not help"


def test_an_agent_that_cannot_tell_leaves_its_machine_unknown(answer: dict[str, Any]) -> None:
    """Before or after; and a kernel that lacks the file."""
    mute = DropSample(unknown="the agent of rack-1 speaks protocol 1.1")
    for begin, end in ((mute, DropSample(answer)), (DropSample(answer), mute)):
        found = drop_increase({"rack-1": begin}, {"rack-1": end}, None)
        assert found == {"machines": {}, "hosts": {}, "ports": None, "uncounted": {"rack-1": mute.unknown}}
    assert outside_remarks(lost_outside({"lost_outside": found}, PLACES), blamed=True) == [
        "drops outside the boxes are unknown for rack-1: the agent of rack-1 speaks protocol 1.1"
    ]
    answer["machine"]["backlog_dropped_packets"] = None
    found = drop_increase({EMULATION: DropSample(answer)}, {EMULATION: later(answer, w1__tcp__listen_drops=2)}, None)
    assert found["uncounted"] == {EMULATION: "its kernel does not show /proc/net/softnet_stat"}
    assert found["hosts"] == {"w1": {"tcp.listen_drops": 2}}


def test_a_host_that_its_agent_could_not_read_is_unknown(answer: dict[str, Any]) -> None:
    """Its cables are not counted then, so nobody can say that none of the lost packets were the laboratory's."""
    after = later(answer, machine__backlog_dropped_packets=7)
    unread = DropSample({**after.sample, "hosts": {}, "unread": ["w1"]})
    for begin, end in ((DropSample(answer), unread), (DropSample({**answer, "hosts": {}, "unread": ["w1"]}), after)):
        found = drop_increase({EMULATION: begin}, {EMULATION: end}, 1000)
        assert found["uncounted"] == {"w1": "its counters could not be read"}
        assert found["machines"][EMULATION]["on_cables_packets"] is None
        (cause,) = likely_causes(lost_outside({"lost_outside": found}, PLACES))
        assert "own cables" not in cause


def summary(on_cables: int | None, by_link: int) -> Summary:
    """A valid run whose machine dropped packets; captures show a loss of 4711 bytes."""
    backlog = Backlog(dropped_packets=312, on_cables_packets=on_cables, limit_packets=1000)
    lost = LostOutside(machines={EMULATION: backlog}, hosts={}, ports={}, uncounted={}, beside=[])
    return cast("Summary", {**VALID, "loss_bytes_link": by_link, "lost_outside": lost})


def test_captures_and_link_that_disagree_have_a_likely_cause() -> None:
    """It stands in the reason, and not once more in the notes."""
    (reason,) = reasons(summary(310, 4000))
    differ = "captures show a loss of 4711 bytes, links counted 4000 bytes; both must be equal"
    assert reason == f"{differ}; likely cause: {CAUSE}"
    assert remarks(summary(310, 4000)) == []


def test_captures_and_link_that_agree_make_it_a_caveat() -> None:
    """What was lost beside the taps makes no run invalid by itself."""
    assert reasons(summary(310, 4711)) == []
    assert remarks(summary(310, 4711)) == [CAUSE]


def test_another_programs_packets_are_blamed_for_nothing() -> None:
    """None of the laboratory's cables lost one: the machine's count is told, the difference remains unexplained."""
    (reason,) = reasons(summary(0, 4000))
    assert reason.endswith("both must be equal")
    (remark,) = remarks(summary(0, 4000))
    assert "312 packets that waited for a processor (none of them on the lab's own cables); " in remark


def test_what_is_not_between_the_captures_is_blamed_for_nothing(answer: dict[str, Any]) -> None:
    """What a world server's machine drops, neither capture has seen: it is told, and explains no difference."""
    begin = {name: DropSample(answer) for name in ("rack-1", "rack-2")}
    end = {
        name: later(answer, machine__backlog_dropped_packets=count) for name, count in (("rack-1", 2), ("rack-2", 3))
    }
    lost = lost_outside({"lost_outside": drop_increase(begin, end, None)}, PLACES)
    assert lost is not None
    assert lost["beside"] == ["rack-2"]
    (cause,) = likely_causes(lost)
    assert cause.startswith("rack-1 dropped 2 packets ")
    (remark,) = outside_remarks(lost, blamed=True)
    assert remark.startswith("rack-2 (not between the captures) dropped 3 packets that waited for a processor")
    assert outside_remarks(lost, blamed=False) == [cause, remark]


def test_ports_that_are_not_between_the_captures_are_told_apart_from_those_that_are(answer: dict[str, Any]) -> None:
    found = drop_increase({EMULATION: at_ports(answer, p1=0, p2=0)}, {EMULATION: at_ports(answer, p1=5, p2=7)}, None)
    lost = lost_outside({"lost_outside": found}, PLACES)
    (cause,) = likely_causes(lost)
    assert cause.startswith("7 packets were lost at Open vSwitch's own sockets (s1/2 7), ")
    (remark,) = outside_remarks(lost, blamed=True)
    assert remark.startswith("5 packets were lost at Open vSwitch's own sockets (s1/1 5), ")
    (both,) = outside_remarks(lost, blamed=False)
    assert both.startswith("12 packets were lost at Open vSwitch's own sockets (s1/1 5, s1/2 7), ")


def test_many_hosts_or_machines_are_one_line() -> None:
    """The first five are named; why machines are unknown is told of the first."""
    hosts = {f"w{number}": {"tcp.backlog_dropped": 2} for number in range(1, 9)}
    (line,) = outside_remarks(LostOutside(machines={}, hosts=hosts, ports={}, uncounted={}, beside=[]), blamed=False)
    assert line == (
        "16 TCP segments were dropped because a socket's backlog was full (w1 2, w2 2, w3 2, w4 2, w5 2 and 3 more): "
        "raise tcp.buffer_max of the experiment; for a box, raise net.ipv4.tcp_rmem on its machine"
    )
    uncounted = {f"rack-{number}": f"the agent of rack-{number} has ended" for number in range(1, 8)}
    (line,) = outside_remarks(
        LostOutside(machines={}, hosts={}, ports={}, uncounted=uncounted, beside=[]), blamed=False
    )
    assert line == (
        "drops outside the boxes are unknown for rack-1, rack-2, rack-3, rack-4, rack-5 and 2 more: "
        "the agent of rack-1 has ended"
    )


def at_ports(answer: dict[str, Any], **dropped: int) -> DropSample:
    """The sample of an emulated lab whose switch has dropped so many frames at its ports: ``p1``, ``p2``."""
    ports = {PortRef("s1", int(name[1:])): PacketSocketCounters(count, 212_992) for name, count in dropped.items()}
    return DropSample(answer, ports=ports)


def test_what_rose_at_the_switches_own_sockets_is_kept_by_port(answer: dict[str, Any]) -> None:
    """A port that was added meanwhile counts from nothing; what a port had lost before is nobody's."""
    begin, end = at_ports(answer, p1=5, p2=7), at_ports(answer, p1=5, p2=47, p10=3)
    found = drop_increase({EMULATION: begin}, {EMULATION: end}, None)
    assert found["ports"] == {
        "s1/2": {"dropped_packets": 40, "receive_buffer_bytes": 212_992},
        "s1/10": {"dropped_packets": 3, "receive_buffer_bytes": 212_992},
    }
    lost = lost_outside({"lost_outside": found}, PLACES)
    (cause,) = likely_causes(lost)
    assert cause == (
        "43 packets were lost at Open vSwitch's own sockets (s1/2 40, s1/10 3), whose receive buffers have "
        "212992 bytes each: the machine's processors are too slow for the load"
    )
    assert outside_remarks(lost, blamed=False) == [cause]
    assert outside_remarks(lost, blamed=True) == [], "told once"


def test_sockets_that_the_kernel_does_not_tell_of_are_unknown(answer: dict[str, Any]) -> None:
    """Whichever look it was; it is not told in the words of another machine that is unknown."""
    mute = DropSample(answer, ports_unknown="this kernel does not report packet sockets (it has no CONFIG_PACKET_DIAG)")
    unread = DropSample({**answer, "hosts": {}, "unread": ["w1"]}, ports_unknown=mute.ports_unknown)
    for begin, end in ((mute, at_ports(answer, p1=5)), (at_ports(answer, p1=5), mute)):
        found = drop_increase({EMULATION: begin}, {EMULATION: end}, None)
        assert found["ports"] is None
        assert likely_causes(lost_outside({"lost_outside": found}, PLACES)) == []
    found = drop_increase({EMULATION: mute}, {EMULATION: unread}, None)
    assert outside_remarks(lost_outside({"lost_outside": found}, PLACES), blamed=False) == [
        "drops outside the boxes are unknown for w1: its counters could not be read",
        f"drops at Open vSwitch's own sockets are unknown: {mute.ports_unknown}",
    ]


def test_captures_and_link_that_disagree_may_be_the_switches() -> None:
    """The cause stands in the reason, beside that of the processors."""
    ports = {"s1/1": SwitchPort(dropped_packets=4744, receive_buffer_bytes=212_992)}
    lost = LostOutside(machines={}, hosts={}, ports=ports, uncounted={}, beside=[])
    disagree = cast("Summary", {**summary(0, 4000), "lost_outside": lost})
    (reason,) = reasons(disagree)
    assert (
        "; both must be equal; likely cause: 4744 packets were lost at Open vSwitch's own sockets (s1/1 4744), "
        in reason
    )
    assert remarks(disagree) == []


def test_a_run_of_before_is_judged_as_it_was() -> None:
    """It has not counted any of this: nothing is said of it."""
    assert lost_outside({}, PLACES) is None
    without_ports = {"machines": {}, "hosts": {}, "uncounted": {}}
    assert lost_outside({"lost_outside": without_ports}, PLACES) == LostOutside(
        machines={}, hosts={}, ports={}, uncounted={}, beside=[]
    )
    assert reasons(cast("Summary", VALID)) == []
    assert remarks(cast("Summary", VALID)) == []
