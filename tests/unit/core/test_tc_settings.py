# SPDX-License-Identifier: Apache-2.0
"""Links and delay boxes as tc settings: what is asked for, in which order, and what is refused."""

from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_controller.planner.planner import make_plan, plan_sha256
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import (
    Bernoulli,
    BitError,
    Codel,
    Counted,
    Experiment,
    GilbertElliott,
    Jitter,
    JitterShape,
    Link,
    LinkDirection,
    LinkTrace,
    LossPoint,
    LossTrace,
    LowPriority,
    TraceRow,
)
from atoll_core.lab.box_kind import LINK
from atoll_core.lab.network import ChainBox, Interface, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.plan import Backend, Phase
from atoll_core.plan.tc_settings import (
    TIMER_SLACK,
    VIRTUAL_SLACK,
    Qdisc,
    TcSettings,
    bucket_bytes,
    burst_lines,
    delay_settings,
    link_settings,
)
from atoll_core.units import Duration, Rate, Size

SAT = ChainBox(
    "sat",
    LINK,
    Interface("sat-w", "02:a7:00:00:00:01", PortRef("s", 1)),
    Interface("sat-i", "02:a7:00:00:00:02", PortRef("s", 2)),
)
NETWORK = Network(
    "lab", "lab.yaml", IPv4Network("10.10.0.0/16"), IPv4Network("10.20.0.0/16"), (), (), (), (SAT,), (), ()
)
GEO = LinkDirection(Rate.parse("16 Mbit/s"), Duration.parse("250 ms"), Size.parse("100 kB"))


def settings(direction: LinkDirection = GEO, counts: Counted = Counted.IP) -> TcSettings:
    return link_settings(SAT, Link("sat", direction, GEO, counts))


def qdisc(found: TcSettings, dev: str, kind: str) -> Qdisc:
    """The only one of that kind on that device."""
    (only,) = (each for each in found.commands if isinstance(each, Qdisc) and (each.dev, each.kind) == (dev, kind))
    return only


@pytest.fixture
def geo(project: Path) -> tuple[Network, Experiment]:
    return load_experiment(project / "examples" / "geo.yaml")


def test_rate_and_queue_come_before_the_delay_and_on_another_device() -> None:
    lines = settings().setup["tc"]
    ip_bytes = "stab linklayer ethernet overhead -14"
    assert lines[:2] == [
        f"qdisc add dev ifb-to-island root handle 1: {ip_bytes} tbf rate 16000000bit burst 3541 limit 100000",
        f"qdisc add dev sat-i root handle 1: {ip_bytes} netem limit 26000 delay 250000.000us",
    ]
    redirect = "protocol all prio 1 matchall action mirred egress redirect dev"
    for line in (
        f"filter add dev sat-w ingress {redirect} sat-i",
        f"filter add dev sat-i egress {redirect} ifb-to-island",
        f"filter add dev sat-i ingress {redirect} sat-w",
        f"filter add dev sat-w egress {redirect} ifb-to-world",
    ):
        assert line in lines
    # A filter that came before what it leads to would let packets pass unshaped.
    assert all(line.startswith("qdisc") for line in lines[:6])
    assert all(line.startswith("filter") for line in lines[6:])


def test_ethernet_bytes_are_what_tbf_counts_by_itself() -> None:
    found = settings(counts=Counted.ETHERNET)
    assert "stab" not in "".join(found.setup["tc"])
    assert found.config["link"]["to_island"]["in_header_bytes"] == 14
    assert settings().config["link"]["to_island"]["in_header_bytes"] == 0


@given(
    rate=st.integers(10**3, 10**11),
    delay_ns=st.integers(0, 60 * 10**9),
    queue=st.integers(1500, 4 * 10**9),
)
def test_netem_has_room_for_the_bandwidth_delay_product_twice_over(rate: int, delay_ns: int, queue: int) -> None:
    direction = LinkDirection(Rate(rate), Duration(delay_ns), Size(queue), loss=Bernoulli(0.1, LossPoint.BEFORE))
    found = settings(direction)
    full_size_under_way = rate * delay_ns / 8e9 / 1500
    assert qdisc(found, "sat-i", "netem").options["limit"] >= min(2 * full_size_under_way, 2**31 - 1)
    assert qdisc(found, "ifb-to-island", "netem").options["limit"] > queue / 1500


@given(rate=st.integers(10**3, 10**11), slack_ns=st.integers(0, 10**8))
def test_the_bucket_holds_a_packet_and_what_a_late_timer_leaves(rate: int, slack_ns: int) -> None:
    """However the kernel rounds the time in which the rate fills it: to ns, then to ticks of 64 ns (sch_tbf.c)."""
    direction = replace(GEO, rate=Rate(rate))
    bucket = bucket_bytes(Rate(rate), Duration(slack_ns))
    tbf = qdisc(link_settings(SAT, Link("sat", direction, GEO, Counted.IP), Duration(slack_ns)), "ifb-to-island", "tbf")
    assert f"burst {bucket} " in tbf.arguments
    least = 1540 + rate * slack_ns / 8e9
    assert least <= bucket <= least * (1 + 1e-9) + 2 * 64 * rate / 8e9 + 1
    kept = kernel_ticks(rate // 8, bucket)
    assert kept <= tbf.options["burst_raw"] <= kept + 1
    assert 64 * kept * rate / 8e9 >= least * (1 - 1e-9)


def kernel_ticks(bytes_s: int, burst: int) -> int:
    """psched_ratecfg_precompute__() and psched_l2t_ns() of the kernel, then PSCHED_NS2TICKS()."""
    factor, shift = 10**9, 0
    while True:
        mult = factor // bytes_s
        if mult & 1 << 31 or factor & 1 << 63:
            return (burst * mult >> shift) >> 6
        factor, shift = factor << 1, shift + 1


def test_what_is_lost_at_the_receiver_has_passed_queue_and_rate() -> None:
    found = settings(replace(GEO, loss=Bernoulli(0.001)))
    delay = qdisc(found, "sat-i", "netem")
    assert delay.arguments == "limit 26000 delay 250000.000us loss 0.1000000000%"
    assert delay.options["loss-random"] == {"loss": 0.001}
    assert qdisc(found, "ifb-to-island", "tbf").parent is None
    counted = found.config["link"]["to_island"]
    assert counted["loss"] == {"dev": "sat-i", "handle": "1:"}
    assert counted["delay"] == {"dev": "sat-i", "handle": "1:", "limit_packets": 26000}


def test_loss_before_the_queue_is_above_it_so_that_what_is_lost_takes_no_room() -> None:
    found = settings(replace(GEO, loss=Bernoulli(0.001, LossPoint.BEFORE)))
    loss, queue = qdisc(found, "ifb-to-island", "netem"), qdisc(found, "ifb-to-island", "tbf")
    assert (loss.parent, queue.parent) == (None, "1:1")
    assert loss.arguments.endswith("loss 0.1000000000%")
    assert "loss" not in qdisc(found, "sat-i", "netem").arguments
    assert found.config["link"]["to_island"]["loss"] == {"dev": "ifb-to-island", "handle": "1:"}
    assert found.config["link"]["to_world"]["loss"] is None


@pytest.mark.parametrize("loss", [None, Bernoulli(0.001, LossPoint.BEFORE)])
def test_packets_marked_le_have_a_queue_that_is_served_last(loss: Bernoulli | None) -> None:
    found = settings(replace(GEO, loss=loss, low_priority=LowPriority(Size.parse("200 kB"))))
    rate = qdisc(found, "ifb-to-island", "tbf")
    lines = found.setup["tc"]
    first = lines.index(rate.line) + 1
    assert lines[first : first + 5] == [
        f"qdisc add dev ifb-to-island parent {rate.handle}1 handle 3: prio bands 2 priomap {' '.join(16 * '0')}",
        "qdisc add dev ifb-to-island parent 3:1 handle 4: bfifo limit 100000",
        "qdisc add dev ifb-to-island parent 3:2 handle 5: bfifo limit 200000",
        "filter add dev ifb-to-island parent 3: protocol ip prio 1 flower ip_tos 0x04/0xfc classid 3:2",
        "filter add dev ifb-to-island parent 3: protocol ipv6 prio 2 flower ip_tos 0x04/0xfc classid 3:2",
    ]
    counted = found.config["link"]
    assert counted["to_island"]["low_priority"] == {"dev": "ifb-to-island", "handle": "5:"}
    assert "low_priority" not in counted["to_world"]
    if loss:  # which holds what both queues hold
        assert qdisc(found, "ifb-to-island", "netem").options["limit"] == 300_000 // 20 + 1000


def test_a_gilbert_elliott_channel_is_told_in_netems_order() -> None:
    """tc-netem(8): gemodel p r 1-h 1-k, where 1-h is the loss in the bad state and 1-k that in the good one."""
    found = settings(replace(GEO, loss=GilbertElliott(0.001, 0.2, loss_good=0.0, loss_bad=0.5)))
    words = qdisc(found, "sat-i", "netem").arguments
    assert words.endswith("loss gemodel 0.1000000000% 20.0000000000% 50.0000000000% 0.0000000000%")


def test_jitter_keeps_the_order_unless_told_otherwise() -> None:
    jitter = Jitter(JitterShape.UNIFORM, Duration.parse("5 ms"))
    kept = qdisc(settings(replace(GEO, jitter=jitter)), "sat-i", "netem")
    assert kept.arguments.endswith("delay 250000.000us 5000.000us rate 100000000000bit")
    assert kept.options["delay"] == {"delay": 0.25, "jitter": 0.005}
    reordered = qdisc(settings(replace(GEO, jitter=jitter, reorder=True)), "sat-i", "netem")
    assert reordered.arguments.endswith("delay 250000.000us 5000.000us")


def test_everything_tc_cannot_do_is_refused_at_once_each_with_its_place() -> None:
    beyond = replace(
        GEO,
        queue_packets=100,
        jitter=Jitter(JitterShape.PARETO, Duration.parse("5 ms")),
        loss=LossTrace("loss.txt", (True, False)),
        aqm=Codel(Duration.parse("5 ms"), Duration.parse("100 ms")),
        trace=LinkTrace("t.csv", (TraceRow(Duration(0)),)),
    )
    with pytest.raises(PlanError) as refused:
        settings(beyond)
    lines = str(refused.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"links.sat.to_island.{name}" for name in ("queue_packets", "jitter", "loss", "aqm", "trace")
    ]
    assert all("--backend engine" in line for line in lines)


@pytest.mark.parametrize(
    ("beyond", "reason"),
    [
        ({"jitter": Jitter(JitterShape.UNIFORM, Duration.parse("5 ms"), correlation=0.5)}, "correlation"),
        ({"jitter": Jitter(JitterShape.UNIFORM, Duration.parse("3 s"))}, r"2\.147 s at most"),
        ({"loss": Bernoulli(1e-10)}, r"at least 2\.3e-10"),
        ({"loss": GilbertElliott(1e-10, 0.5)}, r"at least 2\.3e-10"),
        ({"loss": BitError(1e-7)}, "independently of their length"),
        ({"low_priority": LowPriority(Size(2000), 3)}, "low_priority.queue_packets: .* a limit in bytes only"),
    ],
)
def test_what_netem_cannot_do_is_refused_in_one_line(beyond: dict[str, Any], reason: str) -> None:
    with pytest.raises(PlanError, match=f"^links.sat.to_island.*{reason}.*use --backend engine"):
        settings(replace(GEO, **beyond))


def test_a_class_that_jitters_too_far_is_refused(geo: tuple[Network, Experiment]) -> None:
    box = geo[0].delay_boxes[0]
    far = replace(box.classes[0], rtt=Duration.parse("9 s"), jitter=Duration.parse("3 s"))
    with pytest.raises(PlanError, match=rf"class {far.name}: not possible with the tc backend.*2\.147 s at most"):
        delay_settings(replace(box, classes=(far, *box.classes[1:])))


def test_a_loss_of_nothing_and_a_delay_that_tc_does_not_show_are_not_looked_for() -> None:
    delay = qdisc(settings(replace(GEO, delay=Duration(1), loss=Bernoulli(0))), "sat-i", "netem")
    assert delay.arguments == "limit 1000 delay 0.001us loss 0.0000000000%"
    assert delay.options == {"limit": 1000, "loss-random": None, "loss-gemodel": None}


def test_a_loss_that_is_removed_is_looked_for() -> None:
    for lossless in (GEO, replace(GEO, loss=Bernoulli(0)), replace(GEO, loss=Bernoulli(0.1, LossPoint.BEFORE))):
        options = qdisc(settings(lossless), "sat-i", "netem").options
        assert (options["loss-random"], options["loss-gemodel"]) == (None, None)
    random = qdisc(settings(replace(GEO, loss=Bernoulli(0.1))), "sat-i", "netem").options
    assert random["loss-gemodel"] is None


def test_undoing_names_every_interface_and_every_device_that_was_made() -> None:
    assert settings().undo == {
        "tc": [f"qdisc del dev {name} {which}" for name in ("sat-w", "sat-i") for which in ("root", "clsact")],
        "ip": ["link del ifb-to-island", "link del ifb-to-world"],
    }


def test_each_class_has_a_leaf_and_half_its_rtt(geo: tuple[Network, Experiment]) -> None:
    box = geo[0].delay_boxes[0]
    found = delay_settings(box)
    leaves = {each.parent: each for each in found.commands if isinstance(each, Qdisc) and each.kind == "netem"}
    for known in box.classes:
        assert leaves[f"1:{known.vlan:x}"].options["delay"]["delay"] == known.rtt.s / 2
        into = (
            f"prio {known.vlan} protocol 802.1Q flower vlan_id {known.vlan} action mirred egress redirect dev delay-t"
        )
        assert f"filter add dev delay-t ingress {into}" in found.setup["tc"]
    assert found.setup["tc"][-1].endswith("matchall action drop"), "what is of no class"
    handles = [each.handle for each in leaves.values()]
    assert len(set(handles)) == len(box.classes)


def test_the_backend_changes_the_boxes_and_nothing_else(geo: tuple[Network, Experiment]) -> None:
    engine, kernel = make_plan(*geo), make_plan(*geo, Backend.TC)
    assert plan_sha256(engine) != plan_sha256(kernel)
    assert (engine.flows, engine.hosts, engine.checks) == (kernel.flows, kernel.hosts, kernel.checks)
    boxes = {job.name: job for job in kernel.jobs if job.phase is Phase.SERVICE}
    assert {name: job.argv for name, job in boxes.items()} == {
        "link-sat": ("atoll-host", "tc"),
        "delay-delay": ("atoll-host", "tc"),
    }
    assert [job.name for job in engine.jobs] == [job.name for job in kernel.jobs]
    assert [job for job in engine.jobs if job.name not in boxes] == [
        job for job in kernel.jobs if job.name not in boxes
    ]


def test_a_bucket_that_is_filled_for_late_timers_is_said_and_who_does_without() -> None:
    links = [Link("sat", GEO, GEO, Counted.IP)]
    first, _ = burst_lines(NETWORK, links, TIMER_SLACK)
    assert first.startswith("links.sat.to_island: after a pause tc sends up to 3.541 kB at once")
    assert first.endswith("--backend engine and --on virtual send one packet")
    assert not [*burst_lines(NETWORK, links, VIRTUAL_SLACK)]
