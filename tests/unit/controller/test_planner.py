# SPDX-License-Identifier: Apache-2.0
"""The demo's plan: what the other parts of the house look up in it, and that it is the same every time."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_controller.planner.entry_diff import ChangeAction, FlowChange
from atoll_controller.planner.host_config import CONGESTION_CONTROL, tcp_sysctls
from atoll_controller.planner.plan_text import plan_text
from atoll_controller.planner.planner import make_plan, plan_sha256
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Chain, Experiment, Jitter, JitterShape, LinkTrace, TraceRow
from atoll_core.experiment.traffic import Traffic
from atoll_core.lab.network import Network
from atoll_core.plan.plan import LegPair, Phase, Plan, RouteSettings
from atoll_core.units import Duration, Rate, Size


@pytest.fixture
def geo(project: Path) -> tuple[Network, Experiment]:
    """The demo."""
    return load_experiment(project / "examples" / "geo.yaml")


def test_jobs_by_name(geo: tuple[Network, Experiment]) -> None:
    """Every job the run looks for is there, on its machine, in its phase."""
    jobs = {job.name: (job.host, job.phase) for job in make_plan(*geo).jobs}
    assert jobs["link-sat"] == ("sat", Phase.SERVICE)
    assert jobs["delay-delay"] == ("delay", Phase.SERVICE)
    assert jobs["check-ws"] == ("ws", Phase.CHECK)
    assert jobs["capture-world"] == ("cap-w", Phase.CAPTURE)
    assert jobs["capture-island"] == ("cap-i", Phase.CAPTURE)
    assert jobs["capture-link-sat"] == ("sat", Phase.CAPTURE)
    assert jobs["serve-w6"] == ("w6", Phase.SERVER)
    assert jobs["load-i6"] == ("i6", Phase.CLIENT)
    assert jobs["whistle-start"] == jobs["whistle-end"] == ("wh", Phase.WHISTLE)
    assert jobs["transfer-send"] == ("ws", Phase.TRANSFER_SERVER)
    assert jobs["transfer-receive"] == ("is", Phase.TRANSFER)
    assert jobs["ping"] == ("ws", Phase.PING)
    assert len(jobs) == len(make_plan(*geo).jobs)


def test_channels_are_dealt_to_all_clients_each_once(geo: tuple[Network, Experiment]) -> None:
    """20 channels on 6 clients: 4, 4, 3, 3, 3, 3; with 4 channels two clients have no job."""
    network, experiment = geo
    for channels, clients in ((20, 6), (4, 4)):
        busy = replace(experiment, traffic=replace(experiment.traffic, channels=channels))
        loads = [job.config or {} for job in make_plan(network, busy).jobs if job.phase is Phase.CLIENT]
        dealt = [load["channels"] for load in loads]
        assert len(loads) == clients
        assert sorted(channel for each in dealt for channel in each) == list(range(channels))
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
        assert all(load["servers"] == [f"10.10.0.{n}:5001" for n in range(1, 7)] for load in loads)


def test_channels_are_dealt_by_capacity_and_the_plan_says_so(geo: tuple[Network, Experiment]) -> None:
    """A client four times as strong has four times the channels; one too weak for any is told, and idle."""
    network, experiment = geo
    capacities = {"i1": 4.0, "i2": 0.1}
    network = replace(
        network, hosts=tuple(replace(host, capacity=capacities.get(host.name, 1.0)) for host in network.hosts)
    )
    experiment = replace(experiment, traffic=replace(experiment.traffic, channels=24))
    plan = make_plan(network, experiment)
    dealt = {job.host: len((job.config or {})["channels"]) for job in plan.jobs if job.phase is Phase.CLIENT}
    assert dealt == {"i1": 12, "i3": 3, "i4": 3, "i5": 3, "i6": 3}
    assert {each.host: each.channels for each in plan.placement} == {**dealt, "i2": 0}
    assert from_json(Plan, json.loads(json.dumps(to_json(plan)))) == plan
    assert plan_text(plan).split("\n\n")[3].splitlines() == [
        "Channels: 24, allocated to 6 island clients by capacity",
        "  12      i1              capacity 4",
        "  0       i2              capacity 0.1; gets no channels, so no load is started there",
        "  3 each  i3, i4, i5, i6  capacity 1",
    ]


def test_no_channels_no_transfer(geo: tuple[Network, Experiment]) -> None:
    """Without load there are neither servers nor clients; without a transfer none of its jobs."""
    network, experiment = geo
    idle = replace(experiment, traffic=Traffic(0, "published", 5001), transfer=None)
    phases = {job.phase for job in make_plan(network, idle).jobs}
    assert phases == {Phase.SERVICE, Phase.CHECK, Phase.CAPTURE, Phase.WHISTLE, Phase.PING}


def test_iperf3_takes_the_place_of_the_transfer(geo: tuple[Network, Experiment]) -> None:
    """The island's host asks for the bytes; both sides are told address, port and congestion control."""
    network, experiment = geo
    assert experiment.transfer is not None
    plan = make_plan(network, replace(experiment, transfer=replace(experiment.transfer, tool="iperf3")))
    argv = {job.name: " ".join(job.argv) for job in plan.jobs}
    assert argv["transfer-send"] == "iperf3 -s -1 -B 10.10.1.1 -p 5201"
    assert argv["transfer-receive"] == "iperf3 -c 10.10.1.1 -p 5201 -R -n 10000000 -C cubic --json"


@pytest.mark.parametrize(
    ("rate", "chunk", "sender", "iperf3"),
    [
        (None, None, {}, "-N --fq-rate 2G"),
        (2_000_000, None, {"write_rate_bit_s": 2_000_000}, "-N --fq-rate 2000000"),
        (
            2_000_000,
            64_000,
            {"write_rate_bit_s": 2_000_000, "write_chunk_bytes": 64_000},
            "-l 64000 -b 2000000 -N --fq-rate 2G",
        ),
    ],
)
def test_senders_are_paced_or_keep_a_rate_by_pauses(
    geo: tuple[Network, Experiment], rate: int | None, chunk: int | None, sender: dict[str, Any], iperf3: str
) -> None:
    network, experiment = geo
    assert experiment.transfer is not None
    writes: dict[str, Any] = {"write_rate": rate and Rate(rate), "write_chunk": chunk and Size(chunk)}
    tcp = replace(experiment.tcp, pacing=True)
    transfer = replace(experiment.transfer, **writes)
    described = replace(experiment, tcp=tcp, traffic=replace(experiment.traffic, **writes), transfer=transfer)
    config = {job.name: job.config or {} for job in make_plan(network, described).jobs}
    sender = {"paced": True, **sender}
    assert sender.items() <= config["serve-w1"].items()
    assert sender.items() <= config["transfer-send"].items()
    with_iperf3 = replace(described, transfer=replace(transfer, tool="iperf3"))
    argv = next(job.argv for job in make_plan(network, with_iperf3).jobs if job.name == "transfer-receive")
    assert " ".join(argv).endswith(f"-C cubic --json {iperf3}")


def test_routes_of_hosts_have_the_initial_window(geo: tuple[Network, Experiment]) -> None:
    network, experiment = geo
    tcp = replace(experiment.tcp, initial_window=30, quick_ack=True)
    for settings in make_plan(network, replace(experiment, tcp=tcp)).hosts:
        if settings.host in {host.name for host in network.hosts}:
            routes = settings.interfaces[0].routes
            assert {(route.initial_window, route.quick_ack) for route in routes} == {(30, True)}


def test_every_sender_has_its_own_congestion_control(geo: tuple[Network, Experiment]) -> None:
    """Sockets and the hosts' defaults alike; what is not named has the one for all."""
    network, experiment = geo
    assert experiment.transfer is not None
    mixed = replace(
        experiment,
        tcp=replace(experiment.tcp, servers=(("w2", "hybla"),)),
        transfer=replace(experiment.transfer, congestion_control="htcp"),
    )
    config = {job.name: job.config or {} for job in make_plan(network, mixed).jobs}
    named = {name: each["congestion_control"] for name, each in config.items() if "congestion_control" in each}
    assert named.pop("serve-w2") == "hybla"
    assert named.pop("transfer-send") == "htcp"
    assert set(named.values()) == {"cubic"}
    assert [dict(tcp_sysctls(mixed, host))[CONGESTION_CONTROL] for host in ("w1", "w2", "ws")] == [
        "cubic",
        "hybla",
        "cubic",
    ]


def test_captures_start_at_the_island(geo: tuple[Network, Experiment]) -> None:
    """No packet passes an observer that isn't listening yet; the link is captured where it sends to the island."""
    plan = make_plan(*geo)
    assert [(point.name, point.host) for point in plan.captures] == [
        ("island", "cap-i"),
        ("link-sat", "sat"),
        ("world", "cap-w"),
    ]
    configs = {job.name: job.config or {} for job in plan.jobs}
    assert [configs[f"capture-{point.name}"]["direction"] for point in plan.captures] == ["both", "out", "both"]
    assert configs["capture-world"]["file"] == "{run}/captures/world.pcap"


@pytest.mark.parametrize(
    ("chain", "points"),
    [
        (("sat",), ["link-sat"]),
        (("tap-i", "sat"), ["link-sat", "world"]),
        (("sat", "tap-w"), ["link-sat", "island"]),
        (("pep-w",), []),
        (("tap-i", "pep-w"), ["world"]),
    ],
)
def test_captures_of_chains_with_fewer_taps(
    geo: tuple[Network, Experiment], chain: tuple[str, ...], points: list[str]
) -> None:
    """A single tap is the island's when it stands behind the link."""
    network, experiment = geo
    links = experiment.links if "sat" in chain else ()
    plan = make_plan(network, replace(experiment, chain=Chain("c", chain), links=links))
    assert [point.name for point in plan.captures] == points


def test_expected_round_trip_times(geo: tuple[Network, Experiment]) -> None:
    """Hosts of both ends in turn, and the special hosts: both propagation delays and the server's class."""
    checks = {(check.src, check.dst): check for check in make_plan(*geo).checks}
    assert set(checks) == {*((f"w{n}", f"i{n}") for n in range(1, 7)), ("ws", "is"), ("wh", "i1")}
    assert checks["ws", "is"].rtt_ns == 500_000_000
    assert checks["w6", "i6"].rtt_ns == 700_000_000
    assert checks["w6", "i6"].terrestrial_rtt_ns == 200_000_000
    assert checks["w6", "i6"].jitter_ns == 0


def test_jitter_of_both_directions_adds_up(geo: tuple[Network, Experiment]) -> None:
    """The class's jitter is met twice, the link's once each way."""
    network, experiment = geo
    delay = network.delay_boxes[0]
    shaky = tuple(replace(each, jitter=Duration(1_000_000)) for each in delay.classes)
    network = replace(network, delay_boxes=(replace(delay, classes=shaky),))
    link = experiment.links[0]
    unsteady = replace(link, to_island=replace(link.to_island, jitter=Jitter(JitterShape.UNIFORM, Duration(3_000_000))))
    checks = {check.src: check for check in make_plan(network, replace(experiment, links=(unsteady,))).checks}
    assert checks["w1"].jitter_ns == 5_000_000
    assert checks["ws"].jitter_ns == 3_000_000


def test_delay_classes_are_half_an_rtt_each_way(geo: tuple[Network, Experiment]) -> None:
    """The delay box sees every frame twice."""
    config = next(job.config for job in make_plan(*geo).jobs if job.name == "delay-delay")
    assert config is not None
    assert config["classes"][0] == {"vlan": 101, "delay_ns": 2_500_000, "jitter_ns": 0}


def test_boxes_do_not_share_a_seed(geo: tuple[Network, Experiment]) -> None:
    """Jitter of two boxes is independent, follows the experiment's seed, and fits any JSON reader's numbers."""
    network, experiment = geo

    def seeds(of: Experiment) -> list[int]:
        return [(job.config or {})["seed"] for job in make_plan(network, of).jobs if job.phase is Phase.SERVICE]

    assert len({*seeds(experiment), *seeds(replace(experiment, seed=2))}) == 4
    assert all(0 <= seed < 2**53 for seed in seeds(experiment))


def test_machines(geo: tuple[Network, Experiment]) -> None:
    """Hosts know the other side's hosts, routed boxes both sides', transparent ones nobody."""
    network, experiment = geo
    settings = {each.host: each for each in make_plan(network, experiment).hosts}
    assert set(settings) == set(network.machines)
    (host,) = settings["i1"].interfaces
    assert (host.address, host.routes) == ("10.20.0.1/32", (RouteSettings("10.10.0.0/16"),))
    assert dict(host.neighbours) == {str(h.address): h.interface.mac for h in network.world_hosts}
    world, island = settings["pep-w"].interfaces
    assert world.promiscuous
    assert (world.address, world.routes, island.routes) == (
        None,
        (RouteSettings("10.10.0.0/16"),),
        (RouteSettings("10.20.0.0/16"),),
    )
    assert dict(island.neighbours) == {str(h.address): h.interface.mac for h in network.island_hosts}
    assert settings["pep-w"].legs == (LegPair(world.name, island.name, accept_foreign=True),)
    assert settings["pep-w"].forwarding
    for transparent in ("sat", "delay", "cap-w"):
        assert all(i.promiscuous and not i.neighbours and not i.address for i in settings[transparent].interfaces)
        assert settings[transparent].forwarding is None


def test_tcp_sysctls(geo: tuple[Network, Experiment]) -> None:
    """What decides a TCP result is pinned to what the experiment says; initial buffers never exceed the bound."""
    _, experiment = geo
    pinned = dict(tcp_sysctls(experiment, "w1"))
    assert pinned["net.ipv4.tcp_congestion_control"] == "cubic"
    assert pinned["net.ipv4.tcp_ecn"] == "0"
    assert pinned["net.ipv4.tcp_no_metrics_save"] == "1"
    small = replace(experiment, tcp=replace(experiment.tcp, ecn=True, buffer_max=Size(64_000)))
    assert dict(tcp_sysctls(small, "w1"))["net.ipv4.tcp_rmem"] == "4096\t64000\t64000"
    assert dict(tcp_sysctls(small, "w1"))["net.ipv4.tcp_ecn"] == "1"


def test_a_plan_survives_json(geo: tuple[Network, Experiment]) -> None:
    """What the manifest holds is the plan."""
    plan = make_plan(*geo)
    assert from_json(Plan, json.loads(json.dumps(to_json(plan)))) == plan


def test_equal_bytes_in_every_process(project: Path, geo: tuple[Network, Experiment]) -> None:
    """Neither hash seed nor process changes a byte."""
    script = (
        "import sys; from pathlib import Path; from atoll_core.description.loader import load_experiment; "
        "from atoll_controller.planner.planner import make_plan, plan_sha256; "
        "print(plan_sha256(make_plan(*load_experiment(Path(sys.argv[1])))))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script, str(project / "examples" / "geo.yaml")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    network, experiment = geo
    there = load_experiment(project / "examples" / "geo.yaml")
    assert (network, experiment) == there
    assert printed == {plan_sha256(make_plan(network, experiment))}


def test_text_for_people(geo: tuple[Network, Experiment]) -> None:
    """Each entry stands with its reason, each path with its expected round-trip time."""
    text = plan_text(make_plan(*geo))
    assert "w3 -> island: class rtt-50 of delay" in text
    assert "pop, port 21, port 15" in text
    assert "w6 -> i6: 700 ms (terrestrial 200 ms)" in text
    assert "atoll-host capture interface sat-i, file {run}/captures/link-sat.pcap" in text


def test_changes_as_text(geo: tuple[Network, Experiment]) -> None:
    """The entry and the reason."""
    entry = make_plan(*geo).flows[0]
    assert str(FlowChange(ChangeAction.ADD, entry, "missing on sw-c")) == f"add    {entry} (missing on sw-c)"


def test_boxes_count_stalls_from_the_experiment_s_limit_on(geo: tuple[Network, Experiment]) -> None:
    """Said only where it is not theirs, so that plans stay as they were."""
    network, experiment = geo
    stricter = replace(experiment, limits=replace(experiment.limits, stall=Duration(2_000_000)))
    for asked, expected in ((experiment, None), (stricter, 2_000_000)):
        jobs = {job.name: job.config or {} for job in make_plan(network, asked).jobs}
        assert [jobs[name].get("stall_from_ns") for name in ("link-sat", "delay-delay")] == [expected] * 2


def test_a_ping_is_lost_only_after_all_full_queues_could_have_let_it_pass(project: Path) -> None:
    """Three seconds at least; a queue of 300 kB at 64 kbit/s holds a ping for 37.5 s."""
    network, experiment = load_experiment(project / "examples/geo.yaml")
    (link,) = experiment.links
    slow = replace(link.to_island, rate=Rate(64_000), queue=Size(300_000))
    slower = replace(experiment, links=(replace(link, to_island=slow),))

    def timeout_s(wanted: Experiment) -> float:
        (ping,) = (job for job in make_plan(network, wanted).jobs if job.phase is Phase.PING)
        assert ping.config is not None
        return ping.config["timeout_ns"] / 1e9

    assert timeout_s(experiment) == 3
    assert timeout_s(slower) == 37.5 + 0.2 + 0.5 + 1


def test_pings_wait_for_the_latency_of_their_host_and_for_long_delays(project: Path) -> None:
    """Those of the series, from ws, and those of the test before the run, from any host."""
    network, experiment = load_experiment(project / "examples/geo.yaml")
    (box,) = network.delay_boxes
    far = replace(box.classes[0], name="far", rtt=Duration.parse("60 s"), jitter=Duration.parse("1 s"))
    network = replace(network, delay_boxes=(replace(box, classes=(*box.classes, far)),))

    def timeouts_s(latency: tuple[tuple[str, str], ...]) -> dict[str, float]:
        jobs = make_plan(network, replace(experiment, latency=latency)).jobs
        return {job.name: job.config["timeout_ns"] / 1e9 for job in jobs if job.config and "timeout_ns" in job.config}

    plain, delayed = timeouts_s(()), timeouts_s((("ws", "far"),))
    assert set(plain.values()) == {3}
    assert delayed["ping"] >= 60 + 2 + 0.5 + 1
    assert delayed["check-ws"] >= 60 + 2 + 0.5 + 1
    assert timeouts_s((("w1", "far"),))["ping"] == 3


def test_pings_whose_sequence_numbers_repeat_within_an_rtt_are_refused(project: Path) -> None:
    """At 1 ms, 32,767 pings may await a reply for 32.767 s; a full queue may still delay some of them longer."""

    def plan(interval: Duration, *settings: str) -> Plan:
        network, experiment = load_experiment(project / "examples/geo.yaml", settings)
        return make_plan(network, replace(experiment, ping=replace(experiment.ping, interval=interval)))

    far = "links.sat.to_island={rate: 16 Mbit/s, delay: 60 s, queue: 1.5 MB}"
    with pytest.raises(PlanError, match=r"^\S+geo\.yaml:\d+: ping: interval: .* RTT of 60\.25 s") as error:
        plan(Duration(10**6), far)
    least = Duration.parse(str(error.value).rpartition("write at least ")[2])
    plan(least, far)
    with pytest.raises(PlanError):
        plan(Duration(least.ns - 1000), far)
    plan(Duration(10**6), "links.sat.to_island={rate: 64 kbit/s, delay: 250 ms, queue: 300 kB}")


def test_flows_wait_through_the_longest_pause_of_a_trace(geo: tuple[Network, Experiment]) -> None:
    """TCP tries again as long after a pause as it was long; the program's own limit is for links without pauses."""
    network, experiment = geo
    times = [(0, False), (10, True), (140, False)]
    trace = LinkTrace("pass.csv", tuple(TraceRow(Duration(t * 10**9), blocked=blocked) for t, blocked in times))
    link = replace(experiment.links[0], to_island=replace(experiment.links[0].to_island, trace=trace))

    def silences(plan: Plan) -> set[int | None]:
        return {job.config.get("silence_ns") for job in plan.jobs if job.phase is Phase.CLIENT and job.config}

    assert silences(make_plan(network, experiment)) == {None}
    assert silences(make_plan(network, replace(experiment, links=(link,)))) == {(180 + 2 * 130) * 10**9}
    impatient = replace(experiment.traffic, timeout=Duration(30 * 10**9))
    assert silences(make_plan(network, replace(experiment, traffic=impatient))) == {30 * 10**9}
