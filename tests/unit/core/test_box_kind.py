# SPDX-License-Identifier: Apache-2.0
"""A kind of box that only its declaration describes: no other part knows its name (docs/box-kinds.md)."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, ClassVar
from zlib import crc32

import pytest
from pydantic import Field

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_analysis.tables.run_data import read_run_data
from atoll_controller.fabric.swap_plan import plan_swap
from atoll_controller.planner.host_config import host_settings
from atoll_controller.planner.planner import make_plan
from atoll_controller.tracing.packet_trace import trace
from atoll_controller.tracing.probe_paths import path_of_sender
from atoll_controller.tracing.table_model import Frame, SwitchTables
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.description.raw_types import Between, BoxSettings
from atoll_core.errors import DescriptionError
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.lab.box_kind import ROUTER, BoxKind, BoxUse, Forwarding, register
from atoll_core.lab.network import Network
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_core.metrics.metrics_schema import MetricField
from atoll_core.plan.plan import HostSettings, PacketMark, PacketRule, Packets, Phase, Privilege
from atoll_core.plan.tag_layout import UNTAGGED
from atoll_core.units import Duration
from atoll_daemon.http.experiment_bodies import picture
from atoll_dashboards.diagram.labels import box_label
from atoll_dashboards.grafana.grafana_dashboards import files
from atoll_dashboards.report.report import write_report
from atoll_hosts.binary import find_binary
from atoll_testbed.calibration.link_calibration import links_under_test
from atoll_testbed.metrics.metric_points import box_kinds, box_points
from tests.support.synthetic_run import begin

BARE = "chain: [tap-w, sat, tap-i]"
WHOLE = "chain: [tap-w, pep-w, sat, pep-i, tap-i]"
Load = Callable[..., tuple[Network, Experiment]]


class ToySettings(BoxSettings):
    """Settings of the toy."""

    SAME_IN_PAIR: ClassVar = ("code",)

    copies: int = Field(default=1, ge=1, le=9, description="Copies of each packet; default 1.")
    code: int = Field(default=0, description="Of both ends; default 0.")
    hold: Annotated[Duration, Between(Duration, "0 ms", "1 s")] = Field(
        default=Duration(5 * 10**6), description="Time that packets are held; default 5 ms."
    )


def toy_settings(router: HostSettings, use: BoxUse) -> HostSettings:
    """Those of a plain router, and UDP of the world's side is marked."""
    rule = PacketRule((use.legs[0][0],), Packets.UDP, set_mark=PacketMark(4, 4))
    return replace(router, packet_rules=(rule,), sysctls=(("net.ipv4.tcp_ecn", str(use.settings["copies"])),))


@pytest.fixture
def toy() -> Iterator[BoxKind]:
    """A routed kind with state, a program, settings and a counterpart; known during the test."""
    kind = BoxKind(
        "toy",
        Forwarding.ROUTED,
        stateful=True,
        subcommand="toy",
        privileges=(Privilege.NET_RAW,),
        settings=lambda: ToySettings,
        pair="toy",
        encapsulates="udp",
        overhead_bytes=60,
        host_settings=toy_settings,
        counters=(MetricField("copied_packets", "packets", "sent twice"),),
        levels=(MetricField("held_bytes", "bytes", "waiting"),),
    )
    yield register(kind)
    del BoxKind.registered["toy"]


@pytest.fixture
def load(tmp_path: Path, project: Path, toy: BoxKind) -> Load:
    """Load the demo with toys in place of its PEPs."""
    lab = (project / "emulation/labs/island.yaml").read_text(encoding="utf-8")
    demo = (project / "examples/geo.yaml").read_text(encoding="utf-8")

    def load_toys(
        chain: str = WHOLE, boxes: str = "{}", settings: str = "{}", given: tuple[str, ...] = ()
    ) -> tuple[Network, Experiment]:
        toys = lab.replace("pep-i: {kind: router", "pep-i: {kind: toy")
        toys = toys.replace("pep-w: {kind: router", f"pep-w: {{kind: toy, settings: {settings}")
        assert toys.count("toy") == 2
        (tmp_path / "lab.yaml").write_text(toys, encoding="utf-8")
        edited = demo.replace("../emulation/labs/island.yaml", "lab.yaml")
        edited = edited.replace("chain: [tap-w, sat, tap-i]", f"{chain}\nboxes: {boxes}")
        (tmp_path / "e.yaml").write_text(edited, encoding="utf-8")
        return load_experiment(tmp_path / "e.yaml", given)

    return load_toys


def settings_of(experiment: Experiment, box: str) -> dict[str, object]:
    return next(dict(each.settings) for each in experiment.boxes if each.box == box)


def test_settings_of_the_experiment_override_those_of_the_lab_and_the_kind(load: Load) -> None:
    assert settings_of(load()[1], "pep-w") == {"mode": "on", "copies": 1, "code": 0, "hold": 5_000_000}
    _, experiment = load(settings="{copies: 2, hold: 7 ms}", boxes="{pep-w: {copies: 3}}")
    assert settings_of(experiment, "pep-w") == {"mode": "on", "copies": 3, "code": 0, "hold": 7_000_000}
    assert settings_of(experiment, "pep-i")["copies"] == 1
    _, experiment = load(boxes="{pep-w: {copies: 3}}", given=("boxes.pep-w.copies=4",))
    assert settings_of(experiment, "pep-w")["copies"] == 4


@pytest.mark.parametrize(
    ("chain", "boxes", "message"),
    [
        (WHOLE, "{pep-w: {copeis: 2}}", "'copeis'; did you mean 'copies'?"),
        (WHOLE, "{pep-w: {copies: 0}}", "copies"),
        (WHOLE, "{pep-w: {hold: 2 s}}", "'2 s' is too large; it must be at most 1 s"),
        (WHOLE, "{pep-v: {copies: 2}}", "unknown box 'pep-v'; did you mean 'pep-w'?"),
        (WHOLE, "{coder-w: {copies: 2}}", "unknown setting 'copies'; boxes of kind router have none; remove it"),
        (WHOLE, "{sat: {rate: 2}}", "unknown setting 'rate'; its settings belong to links; remove it"),
        ("chain: [tap-w, pep-w, sat, tap-i]", "{}", "'pep-w' is a toy, which needs a toy at its other end"),
        (
            WHOLE,
            "{pep-i: {mode: off}}",
            "box 'pep-i' is off, but 'pep-w', which carries packets to it in udp, is on; write the same mode for both",
        ),
        (
            WHOLE,
            "{pep-w: {code: 1}}",
            "code is not the same for 'pep-w' and 'pep-i', which are a pair; write one value for both",
        ),
        (
            f"{BARE}\nbranches: {{coded: {{carries: {{protocol: tcp}}, chain: [tap-w, pep-w, sat, pep-i]}}}}",
            "{}",
            "'coded': it carries TCP only, but 'pep-w' and 'pep-i' encapsulate its packets in UDP",
        ),
        (
            f"{WHOLE}\nbranches: {{voice: {{carries: {{protocol: udp}}, chain: [tap-w, sat, tap-i]}}}}",
            "{}",
            "chain: 'pep-w' and 'pep-i' encapsulate its packets in UDP, which branch 'voice' carries",
        ),
        (
            f"{BARE}\nbranches: {{few: {{carries: {{island: 10.20.0.1/32}}, chain: [tap-w, pep-w, sat, pep-i]}}}}",
            "{}",
            "need an address in each of 10.10.0.0/16 and 10.20.0.1/32 that no host has and no other chain; widen",
        ),
    ],
)
def test_a_mistake_has_its_line_and_its_remedy(load: Load, chain: str, boxes: str, message: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        load(chain=chain, boxes=boxes)
    (line,) = str(refused.value).splitlines()
    assert message in line
    assert "e.yaml:" in line


def test_a_mistake_in_the_lab_is_the_labs(load: Load) -> None:
    with pytest.raises(DescriptionError, match=r"lab\.yaml:\d+: .*'copeis'; did you mean 'copies'"):
        load(settings="{copeis: 2}")


def test_its_program_runs_on_its_machine_with_its_settings(load: Load) -> None:
    network, experiment = load(boxes="{pep-w: {copies: 3}}")
    jobs = {job.name: job for job in make_plan(network, experiment).jobs}
    job = jobs["toy-pep-w"]
    assert (job.host, job.phase, job.privileges) == ("pep-w", Phase.SERVICE, (Privilege.NET_RAW,))
    tunnel = {
        "carries": {"world": "10.10.0.0/16", "island": "10.20.0.0/16", "protocol": None},
        "peer_at": "island",
        "address": "10.10.255.254",
        "peer_address": "10.20.255.254",
        "peer_mac": network.box("pep-i").world.mac,
        "peer_settings": crc32(json.dumps(settings_of(experiment, "pep-i"), sort_keys=True).encode()),
        "way": 0,
    }
    settings = {"mode": "on", "copies": 3, "code": 0, "hold": 5_000_000}
    assert job.config == {"world": "pep-w-w", "island": "pep-w-i", **settings, "tunnels": [tunnel]}
    (other,) = (jobs["toy-pep-i"].config or {})["tunnels"]
    theirs = crc32(json.dumps(settings_of(experiment, "pep-w"), sort_keys=True).encode())
    ends = {
        "peer_settings": theirs,
        "address": "10.20.255.254",
        "peer_address": "10.10.255.254",
        "peer_mac": network.box("pep-w").island.mac,
    }
    assert other == tunnel | ends | {"peer_at": "world"}
    assert "toy-pep-w" not in {job.name for job in make_plan(*load("chain: [tap-w, sat, tap-i]")).jobs}


def machine(network: Network, experiment: Experiment, host: str) -> HostSettings:
    return next(each for each in host_settings(network, experiment) if each.host == host)


def test_its_machine_is_set_as_the_kind_declares(load: Load) -> None:
    """In a chain or not, so that no swap changes a machine that packets pass."""
    network, experiment = load(boxes="{pep-w: {copies: 3}}")
    found = machine(network, experiment, "pep-w")
    assert found.packet_rules == (PacketRule(("pep-w-w",), Packets.UDP, set_mark=PacketMark(4, 4)),)
    assert found.sysctls == (("net.ipv4.tcp_ecn", "3"),)
    assert found.forwarding
    assert found.legs
    bare = load("chain: [tap-w, sat, tap-i]", boxes="{pep-w: {copies: 3}}")
    assert machine(*bare, "pep-w").packet_rules == found.packet_rules
    assert not machine(network, experiment, "coder-w").packet_rules


def test_each_chain_has_outer_addresses_that_its_flow_entries_match(load: Load) -> None:
    """Outer packets of a branch are in its prefix; those of the main chain are in no branch's."""
    branches = "{half: {carries: {island: 10.20.0.4/30}, chain: [tap-w, pep-w, sat, pep-i]}}"
    network, experiment = load(f"{WHOLE}\nbranches: {branches}")
    plan = make_plan(network, experiment)
    config = next(job.config for job in plan.jobs if job.name == "toy-pep-w") or {}
    ends = [(each["carries"]["island"], each["address"], each["peer_address"]) for each in config["tunnels"]]
    assert ends == [
        ("10.20.0.4/30", "10.10.255.254", "10.20.0.7"),
        ("10.20.0.0/16", "10.10.255.253", "10.20.255.254"),
    ]
    tables = SwitchTables(network, plan.flows)
    for _, source, destination in ends:
        outer = Frame(IPv4Address(source), IPv4Address(destination), None, Protocol.UDP.number)
        walked = {str(step) for step in tables.walk(outer, network.box("pep-w").island.attached)}
        assert any("sat" in step for step in walked), walked


def test_switched_off_it_is_a_plain_router(load: Load, tmp_path: Path) -> None:
    """No program and no settings of its own, and captures around it are compared."""
    network, experiment = load(boxes="{pep-w: {mode: off}, pep-i: {mode: off}}")
    assert not [job.name for job in make_plan(network, experiment).jobs if "toy" in job.name]
    assert not machine(network, experiment, "pep-w").packet_rules
    used = experiment.as_used(network)
    assert (used.box("pep-w").kind, used.box("pep-w").stateful, used.box("pep-w").conserves) == (ROUTER, False, True)
    run = begin(tmp_path, experiment, network)
    assert read_run_data(run).network == used


def test_steering_swaps_traces_and_verdicts_follow_the_declaration(load: Load, tmp_path: Path) -> None:
    network, experiment = load()
    bare = load("chain: [tap-w, sat, tap-i]")[1]
    assert plan_swap(network, bare, UNTAGGED, experiment).moved == ("pep-w", "pep-i")
    found = trace(network, experiment, make_plan(network, experiment).flows, "w1", "i1", Protocol.TCP)
    note = "toy, routed, adds 60 bytes up to its pair, in udp"
    assert ("pep-w", note) in {(hop.name, hop.note) for hop in found.hops}
    data = read_run_data(begin(tmp_path, experiment, network, ("world", "island")))
    assert data.network == network  # read back from JSON
    assert data.topology.not_conserving == ("pep-w", "pep-i")


def routes(network: Network, experiment: Experiment) -> dict[str, tuple[int | None, ...]]:
    settings = make_plan(network, experiment).hosts
    return {each.host: tuple(r.mtu for i in each.interfaces for r in i.routes) for each in settings}


def test_hosts_send_shorter_packets_by_the_bytes_it_adds(load: Load) -> None:
    """Unless the cables between the pair are raised, or it is off at both ends."""
    network, experiment = load()
    found = routes(network, experiment)
    assert (found["w1"], found["is"]) == ((1440,), (1440,))
    assert found["pep-w"] == (None, None), "to hosts without the bytes that it removes; to its pair with those it adds"
    assert routes(*load(boxes="{pep-w: {mode: off}, pep-i: {mode: off}}"))["w1"] == (None,)
    inner = {("pep-w", "island"), ("sat", "world"), ("sat", "island"), ("pep-i", "world")}
    raised = tuple(
        replace(box, **{side: replace(getattr(box, side), mtu=1560) for name, side in inner if name == box.name})
        for box in network.boxes
    )
    found = routes(replace(network, boxes=raised), experiment)
    assert {mtu for mtus in found.values() for mtu in mtus} == {None}


def test_links_between_the_pair_are_tested_with_the_bytes_that_it_adds(load: Load) -> None:
    link = links_under_test(*load())[0]
    assert (link.mtu, link.counted_bytes(link.mtu)) == (1440, 1500)


@pytest.mark.parametrize(("ends_connections", "end"), [(False, "i1"), (True, "pep-w")])
def test_probes_of_tcp_end_where_connections_end(load: Load, *, ends_connections: bool, end: str) -> None:
    network, experiment = load()
    kind = replace(BoxKind.named("toy"), ends_connections=ends_connections)
    boxes = tuple(replace(box, kind=kind) if box.kind.name == "toy" else box for box in network.boxes)
    network = replace(network, boxes=boxes)
    steps = SwitchTables(network, make_plan(network, experiment).flows).walk(
        Frame(network.host("w1").address, network.host("i1").address, None, Protocol.TCP.number),
        network.host("w1").interface.attached,
    )
    assert path_of_sender(network, tuple(steps), Protocol.TCP.number, "i1")[1] == end


def count_copies(run: RunDir) -> None:
    """Write the counters of pep-w at the marks of a measurement with a swap."""
    lines = [
        {"type": "mark", "box": "pep-w", "t_ns": 9, "mark": name, "copied_packets": n, "held_bytes": 60}
        for name, n in (("begin", 3), ("swap", 4), ("end", 5))
    ]
    run.path.joinpath("link.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")


def test_what_its_program_counts_is_a_metric_and_a_figure_of_the_run(load: Load, tmp_path: Path) -> None:
    network, experiment = load()
    line = {"type": "counters", "t_ns": 7, "copied_packets": 5, "held_bytes": 60, "other": 1}
    assert list(box_points("pep-w", line, {}, box_kinds(network))) == [
        MetricPoint("toy", {"box": "pep-w"}, {"copied_packets": 5, "held_bytes": 60}, 7)
    ]
    assert not list(box_points("sat", line, {}, box_kinds(network)))
    run = begin(tmp_path, experiment, network, ())
    count_copies(run)
    assert analyse(run, find_binary())["boxes"] == {"pep-w": {"copied_packets": 9}}
    shown = write_report(run).read_text(encoding="utf-8")
    _, _, section = shown.partition('<section id="boxes">')
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", section.partition("</section>")[0])
    assert cells == ["toy", "meaning", "pep-w", "copied_packets", "sent twice", "9\N{NO-BREAK SPACE}packets"]


def test_a_report_has_no_counters_of_boxes_that_are_off(load: Load, tmp_path: Path) -> None:
    network, experiment = load(boxes="{pep-w: {mode: off}, pep-i: {mode: off}}")
    run = begin(tmp_path, experiment, network, ())
    count_copies(run)
    analyse(run, find_binary())
    assert "copied_packets" not in write_report(run).read_text(encoding="utf-8")


def test_people_see_its_name(load: Load) -> None:
    network, experiment = load()
    drawn = picture(network, experiment, "mininet")
    assert drawn["boxes"]["pep-w"] == {
        "kind": "toy",
        "is_link": False,
        "counters": [{"name": "copied_packets", "unit": "packets", "what": "sent twice"}],
        "levels": [{"name": "held_bytes", "unit": "bytes", "what": "waiting"}],
    }
    assert drawn["boxes"]["coder-w"] == {"kind": "router", "is_link": False}
    assert {"name": "pep-w", "kind": "toy", "is_link": False} in drawn["chains"][0]["hops"]
    assert [line.text for line in box_label(network.box("pep-w"), experiment)][:2] == ["pep-w", "toy"]


def test_what_its_program_counts_has_a_dashboard(toy: BoxKind) -> None:
    """A panel for each figure; kinds without figures have no dashboard."""
    page = json.loads(files()["toy.json"])
    panels = [(each["title"], each["fieldConfig"]["defaults"]["unit"]) for each in page["panels"]]
    assert panels == [("copied_packets", "pps"), ("held_bytes", "bytes")]
    queries = [target["query"] for each in page["panels"] for target in each["targets"]]
    assert all('FROM "toy"' in query for query in queries)
    del BoxKind.registered["toy"]
    assert files().keys() & {"toy.json", "router.json", "link.json"} == set()
    register(toy)


def test_a_kind_that_nobody_declared_cannot_be_read(load: Load) -> None:
    network, _ = load()
    written = to_json(network)
    assert from_json(Network, written) == network
    written["boxes"][0]["kind"] = "toyy"
    with pytest.raises(ValueError, match="unknown kind of box 'toyy'"):
        from_json(Network, written)


@pytest.mark.parametrize(
    ("forwarding", "properties", "message"),
    [
        (Forwarding.TRANSPARENT, {"settings": lambda: ToySettings}, "declare it routed"),
        (Forwarding.ROUTED, {"ends_connections": True}, "declare it stateful"),
        (
            Forwarding.ROUTED,
            dict.fromkeys(("ends_connections", "stateful", "conserves_packets"), True),
            "cannot conserve packets",
        ),
        (Forwarding.ROUTED, {"host_settings": toy_settings}, "declare its subcommand"),
        (Forwarding.ROUTED, {"overhead_bytes": 28}, "declare what it encapsulates them in, and its pair"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(
    forwarding: Forwarding, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        BoxKind("bridge", forwarding, **properties)
