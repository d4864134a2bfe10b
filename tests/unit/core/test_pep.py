# SPDX-License-Identifier: Apache-2.0
"""The PEP in a plan: what its program reads, and the rules of its machine (docs/contracts.md, "pep")."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError
from atoll_core.plan.plan import (
    FilterVerdict,
    HostSettings,
    JobSpec,
    LocalDelivery,
    PacketMark,
    PacketRule,
    Packets,
    Plan,
)

Load = Callable[..., Plan]
_LEGS = {"world": ("pep-w-w", "pep-w-w2"), "island": ("pep-w-i", "pep-w-i2")}


@pytest.fixture
def plan(tmp_path: Path, project: Path) -> Load:
    """The plan of the example with PEPs on both sides, with other settings of the boxes, and of the lab."""

    def load(boxes: str = "{}", lab: Callable[[str], str] = str, given: tuple[str, ...] = ()) -> Plan:
        text = (project / "emulation/labs/island-pep.yaml").read_text(encoding="utf-8")
        (tmp_path / "lab.yaml").write_text(lab(text), encoding="utf-8")
        example = (project / "examples/pep-both.yaml").read_text(encoding="utf-8")
        example = example.replace("../emulation/labs/island-pep.yaml", "lab.yaml")
        example = re.sub(r"boxes:\n(  .*\n)+", f"boxes: {boxes}\n", example)
        (tmp_path / "e.yaml").write_text(example, encoding="utf-8")
        return make_plan(*load_experiment(tmp_path / "e.yaml", given))

    return load


def job(plan: Plan, box: str = "pep-w") -> JobSpec:
    return next(each for each in plan.jobs if each.name == f"pep-{box}")


def machine(plan: Plan, box: str = "pep-w") -> HostSettings:
    return next(each for each in plan.hosts if each.host == box)


def test_its_program_reads_its_legs_and_the_hosts_of_both_sides(plan: Load) -> None:
    config = job(plan("{pep-w: {accept: learned, island_pacing: 15 Mbit/s, island_unsent: 128 kB}}")).config or {}
    assert config["pairs"] == [
        {"world": "pep-w-w", "island": "pep-w-i", "mark": 0, "ports": {"world": 5001, "island": 5002}},
        {"world": "pep-w-w2", "island": "pep-w-i2", "mark": 2, "ports": {"world": 5003, "island": 5004}},
    ]
    assert (config["local_mark"], config["world_mark"], config["mode"]) == (1, 8, "learned")
    assert "10.10.1.1" in config["hosts"]["world"]
    assert "10.20.0.6" in config["hosts"]["island"]
    assert config["legs"] == {
        "world": {"congestion_control": "cubic", "mss_bytes": 1460},
        "island": {
            "congestion_control": "cubic",
            "pacing_bit_s": 15_000_000,
            "notsent_lowat_bytes": 128_000,
            "mss_bytes": 1460,
        },
    }


def test_its_machine_hands_it_syns_and_its_own_connections(plan: Load) -> None:
    """A SYN is dropped once the program has seen it; the one that it sends again by lo reaches a listener."""
    found = machine(plan())
    local = PacketMark(1, 1)
    assert found.local == LocalDelivery(100, local)
    assert [legs.mark for legs in found.legs] == [PacketMark(0, 6), PacketMark(2, 6)]
    assert all(legs.accept_foreign for legs in found.legs)
    assert found.forwarding
    legs, drop, accept = (*_LEGS["world"], *_LEGS["island"]), FilterVerdict.DROP, FilterVerdict.ACCEPT
    assert found.packet_rules == (
        PacketRule(legs, Packets.SYN, verdict=drop),
        PacketRule(legs, Packets.TCP, transparent_socket=True, set_mark=local, verdict=accept),
        PacketRule(("pep-w-w",), Packets.TCP, set_mark=local, tproxy_port=5001, verdict=accept),
        PacketRule(("pep-w-i",), Packets.TCP, set_mark=local, tproxy_port=5002, verdict=accept),
        PacketRule(("pep-w-w2",), Packets.TCP, set_mark=local, tproxy_port=5003, verdict=accept),
        PacketRule(("pep-w-i2",), Packets.TCP, set_mark=local, tproxy_port=5004, verdict=accept),
        PacketRule(legs, Packets.TCP, verdict=drop),
        PacketRule(("lo",), Packets.SYN, mark=PacketMark(9, 15), tproxy_port=5001, verdict=accept),
        PacketRule(("lo",), Packets.SYN, mark=PacketMark(1, 15), tproxy_port=5002, verdict=accept),
        PacketRule(("lo",), Packets.SYN, mark=PacketMark(11, 15), tproxy_port=5003, verdict=accept),
        PacketRule(("lo",), Packets.SYN, mark=PacketMark(3, 15), tproxy_port=5004, verdict=accept),
        PacketRule(legs, Packets.TCP_ICMP_ERRORS, set_mark=local, verdict=accept),
    )
    assert dict(found.sysctls)["net.ipv4.tcp_rmem"] == "4096 131072 16000000"


def test_settings_of_tcp_are_sysctls_and_routes_of_its_machine(plan: Load) -> None:
    found = machine(plan("{pep-w: {buffer_max: 5 MB, ecn: true, island_initial_window: 40}}"))
    assert dict(found.sysctls)["net.ipv4.tcp_wmem"] == "4096 16384 5000000"
    assert dict(found.sysctls)["net.ipv4.tcp_ecn"] == "1"
    windows = {each.name: each.routes[0].initial_window for each in found.interfaces}
    assert windows == dict.fromkeys(_LEGS["world"]) | dict.fromkeys(_LEGS["island"], 40)


def test_fast_open_is_of_a_side_and_allowed_by_its_machine(plan: Load) -> None:
    made = plan("{pep-w: {island_fast_open: true}}")
    legs = (job(made).config or {})["legs"]
    assert [legs[side].get("fast_open") for side in ("world", "island")] == [None, True]
    assert dict(machine(made).sysctls)["net.ipv4.tcp_fastopen"] == "519"
    assert "net.ipv4.tcp_fastopen" not in dict(machine(plan()).sysctls)


def test_segments_are_clamped_to_the_smallest_mtu_of_the_chain(plan: Load) -> None:
    def narrow(lab: str) -> str:
        return lab.replace("sat: {kind: link,", "sat: {kind: link, mtu: 1400,")

    clamped = (job(plan(lab=narrow)).config or {})["legs"]
    assert [leg["mss_bytes"] for leg in clamped.values()] == [1360, 1360]
    legs = (job(plan("{pep-w: {mss_clamp: false}}", lab=narrow)).config or {})["legs"]
    assert not [leg for leg in legs.values() if "mss_bytes" in leg]


def test_switched_off_it_is_a_plain_router(plan: Load) -> None:
    """On one side alone, too."""
    made = plan("{pep-i: {mode: off}}")
    assert {each.name for each in made.jobs if each.name.startswith("pep-")} == {"pep-pep-w"}
    off = machine(made, "pep-i")
    assert (off.packet_rules, off.local, off.sysctls) == ((), None, ())
    assert [legs.mark for legs in off.legs] == [None, None]


_MULTIPLEXED = "{pep-w: {between: multiplexed, between_rate: 16 Mbit/s}, pep-i: {between: multiplexed}}"


def test_two_peps_share_a_connection_between_addresses_of_their_chain(plan: Load) -> None:
    """At 0.985 of the link's rate, less the headers; a connection that was idle does not start slowly again."""
    made = plan(_MULTIPLEXED)
    addresses = {"world": "10.10.0.1:1", "island": "10.20.0.1:1", "stream_bytes": 16_000_000}
    world, island = ((job(made, box).config or {})["between"] for box in ("pep-w", "pep-i"))
    assert world == {"side": "island", "pacing_bit_s": round(16e6 * 0.985 * 1448 / 1500), **addresses}
    assert island == {"side": "world", **addresses}
    assert dict(machine(made).sysctls)["net.ipv4.tcp_slow_start_after_idle"] == "0"
    assert "net.ipv4.tcp_slow_start_after_idle" not in dict(machine(plan()).sysctls)
    assert "between" not in (job(plan()).config or {})


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ("{pep-w: {between: multiplexed}}", "but no other box of its chain does; write it for 'pep-i', too"),
        ("{pep-i: {between: multiplexed}, pep-w: {mode: off}}", "add the other box to the chain, or switch it on"),
        ("{pep-i: {between: multiplex}}", "between"),
        ("{pep-i: {betwen: multiplexed}}", "betwen"),
    ],
)  # fmt: skip
def test_both_peps_have_to_multiplex(plan: Load, boxes: str, message: str) -> None:
    is_refused_in_one_line(plan, boxes, message)


def test_one_connection_takes_one_path(plan: Load) -> None:
    branches = "\nbranches:\n  half: {carries: {island: 10.20.0.0/30}, chain: [tap-w, pep-w, sat, pep-i, tap-i]}"
    remedy = "but one connection takes one path; let only one of them carry TCP through it"
    with pytest.raises(DescriptionError, match=f"two chains at a time pass 'pep-w', {remedy}"):
        plan(_MULTIPLEXED + branches)


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ("{pep-w: {accept: soon}}", "accept"),
        ("{pep-w: {mode: onn}}", "mode"),
        ("{pep-w: {island_congestion_control: Cubic}}", "is not a congestion control"),
        ("{pep-w: {island_pacing: 10}}", "pacing"),
        ("{pep-w: {silence: 1 s}}", "'1 s' is too small; it must be at least 2 s"),
    ],
)
def test_a_wrong_setting_has_its_line(plan: Load, boxes: str, message: str) -> None:
    is_refused_in_one_line(plan, boxes, message)


def is_refused_in_one_line(plan: Load, boxes: str, message: str) -> None:
    """Assert that these settings of boxes are refused, with file and line."""
    with pytest.raises(DescriptionError) as refused:
        plan(boxes)
    (line,) = str(refused.value).splitlines()
    assert re.match(r".*e\.yaml:\d+: ", line)
    assert message in line


def test_the_congestion_controls_of_its_legs_are_checked_like_those_of_hosts(project: Path) -> None:
    example = project / "examples/pep-world.yaml"
    _, experiment = load_experiment(example, ("boxes.pep-w.island_congestion_control=hybla",))
    assert experiment.congestion_controls["hybla"] == ("boxes.pep-w.island_congestion_control",)
    _, experiment = load_experiment(example, ("boxes.pep-w.mode=off",))
    assert experiment.congestion_controls.keys() == {"cubic"}


def test_buffers_below_the_product_of_the_links_are_warned_of(project: Path) -> None:
    """Of the boxes in a chain, with their line or --set."""
    example = project / "examples/pep-both.yaml"
    found = description_warnings(*load_experiment(example, ("boxes.pep-w.buffer_max=999999 B",)))
    message = "999.999 kB is less than the bandwidth-delay product of the links, 16 Mbit/s x 500 ms = 1 MB"
    assert [message in each.message for each in found] == [True], found
    assert not description_warnings(*load_experiment(example, ("boxes.pep-w.buffer_max=1 MB",)))
