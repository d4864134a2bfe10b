# SPDX-License-Identifier: Apache-2.0
"""The jobs of an experiment: program, machine and configuration of each (docs/contracts.md).

Names are fixed, other parts of the house look jobs up by them: ``link-<box>``, ``delay-<box>``, ``check-<host>``,
``capture-<point>``, ``serve-<server>``, ``load-<client>``, ``whistle-start``, ``whistle-end``, ``transfer-send``,
``transfer-receive`` (with ``-<transfer>`` if transfers have names), ``udp-send``, ``udp-receive-<host>``, ``ping``,
``program-<box>``, ``report-<box>``, ``<subcommand>-<box>``.
``start_at_ns`` is 0 here and filled in when the job is started.
"""

import hashlib
from collections.abc import Iterator

from atoll_controller.planner.box_config import box_uses
from atoll_controller.planner.job_limits import (
    MEMORY_CAP,
    limits_of_delay,
    limits_of_link,
    limits_of_program,
    privileges_of_tcp,
)
from atoll_controller.planner.link_config import direction_config
from atoll_controller.planner.path_checks import check_jobs, path_checks
from atoll_controller.planner.traffic_jobs import (
    PING_MARGIN_NS,
    PING_TIMEOUT_NS,
    host_job,
    load_jobs,
    ping_job,
    udp_jobs,
    write_config,
)
from atoll_core.errors import Diagnostic, PlanError
from atoll_core.experiment.experiment import DEFAULT_LIMITS, Experiment, Link, LinkDirection, Transfer
from atoll_core.experiment.residence import longest_residence_ns, longest_terrestrial_ns
from atoll_core.lab.network import ChainBox, DelayBox, Host, HostRole, LatencyClass, Network
from atoll_core.plan.plan import Backend, CapturePoint, JobSpec, Phase
from atoll_core.plan.tc_settings import TIMER_SLACK, TcSettings, delay_settings, link_settings
from atoll_core.units import Duration

# ICMP identifiers distinguish the series in a capture.
_PING_IDENTIFIER = 0xA701
_OPEN_PINGS = 2**15 - 1  # that may await their reply: their sequence numbers have 16 bits (RFC 792)
_NS_PER_US = 1_000
_WHISTLE_IDENTIFIERS = {"start": 0xA702, "end": 0xA703}


def capture_points(network: Network, experiment: Experiment) -> tuple[CapturePoint, ...]:
    """The captures, island side first, so that no packet passes an observer that isn't listening yet.

    The first tap of the chain that the experiment begins with is ``world``, the last one ``island``, one between them
    goes by its own name, as does one that only other chains ever pass. A single tap is ``island`` when a satellite
    emulator is before it. ``link-<box>`` has the packets at the island's port of a link, ``into-<box>`` those at the
    world's port: island-bound ones, or if there are uploads all. The latter is for links whose loss the taps alone
    cannot prove, as their chain has a box of the user, or one that does not conserve packets; and for uploads.
    """
    all_taps = {tap.name: tap for tap in network.taps}
    main = experiment.versions[0].chain.hops
    taps = [all_taps[hop] for hop in main if hop in all_taps]
    links = [link.box for link in experiment.links]
    by_name = {"island" if tap is taps[-1] else tap.name: tap for tap in taps[1:]}
    if taps:
        hops_before = main[: main.index(taps[0].name)]
        alone_behind_link = len(taps) == 1 and any(hop in links for hop in hops_before)
        by_name = {"island" if alone_behind_link else "world": taps[0], **by_name}
    hops = (hop for chain in experiment.all_chains for hop in chain.hops)
    by_name |= {hop: all_taps[hop] for hop in hops if hop in all_taps and all_taps[hop] not in taps}
    points = [CapturePoint(name, tap.host, tap.interface.name) for name, tap in reversed(by_name.items())]
    at_links: list[CapturePoint] = []
    for link in map(network.box, reversed(links)):
        at_links.append(CapturePoint(f"link-{link.name}", link.name, link.island.name))
        if experiment.has_uploads or _has_lossy_boxes(network, experiment, link.name):
            at_links.append(CapturePoint(f"into-{link.name}", link.name, link.world.name))
    return (*points[:-1], *at_links, *points[-1:])


def _has_lossy_boxes(network: Network, experiment: Experiment, link: str) -> bool:
    boxes = experiment.as_used(network).boxes
    lossy_boxes = {box.name for box in boxes if box.kind.is_foreign or not box.conserves}
    return any(link in chain.hops and not lossy_boxes.isdisjoint(chain.hops) for chain in experiment.all_chains)


def jobs(
    network: Network, experiment: Experiment, backend: Backend = Backend.ENGINE, slack: Duration = TIMER_SLACK
) -> tuple[JobSpec, ...]:
    """Every job of the experiment, phase by phase, in the order they are started.

    ``slack``: the lateness of the platform's timers, for the tc backend. Raises PlanError when the backend cannot
    emulate a link.
    """
    return (
        *_emulator_jobs(network, experiment, backend, slack),
        *_program_jobs(network, experiment),
        *_kind_jobs(network, experiment),
        *check_jobs(network, experiment, path_checks(network, experiment)),
        *(_capture_job(point, experiment) for point in capture_points(network, experiment)),
        *load_jobs(network, experiment),
        *udp_jobs(network, experiment),
        *whistle_jobs(network),
        *(job for transfer in experiment.all_transfers for job in _transfer_jobs(network, experiment, transfer)),
        *_ping_jobs(network, experiment),
        *_report_jobs(network, experiment),
    )


def _program_jobs(network: Network, experiment: Experiment) -> Iterator[JobSpec]:
    """The programs that users bring, of the boxes that are ever in a chain."""
    for box in _boxes_of_any_chain(network, experiment):
        if program := box.program:
            start, stop = _argv(box, program.start), _argv(box, program.stop)
            limits, privileges = limits_of_program(program), program.privileges
            yield JobSpec(
                f"program-{box.name}", box.name, Phase.SERVICE, start, stop=stop, limits=limits, privileges=privileges
            )


def _kind_jobs(network: Network, experiment: Experiment) -> Iterator[JobSpec]:
    """The subcommands of atoll-host that run on boxes by their kind, of the boxes that are ever in a chain."""
    uses = box_uses(network, experiment)
    for box in _boxes_of_any_chain(network, experiment):
        if box.name in uses:
            kind, config = box.kind, box.kind.configuration(uses[box.name])
            name = f"{kind.subcommand}-{box.name}"
            yield host_job(name, box.name, Phase.SERVICE, kind.subcommand, config, privileges=kind.privileges)


def _report_jobs(network: Network, experiment: Experiment) -> Iterator[JobSpec]:
    for box in _boxes_of_any_chain(network, experiment):
        if box.program and box.program.report:
            name, argv = f"report-{box.name}", _argv(box, box.program.report)
            stdout, privileges = f"logs/{name}.out", box.program.privileges
            yield JobSpec(name, box.name, Phase.REPORT, argv, stdout=stdout, privileges=privileges)


def _boxes_of_any_chain(network: Network, experiment: Experiment) -> tuple[ChainBox, ...]:
    hops = {hop for chain in experiment.all_chains for hop in chain.hops}
    return tuple(box for box in network.boxes if box.name in hops)


def _argv(box: ChainBox, argv: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(argument.replace("{world}", box.world.name).replace("{island}", box.island.name) for argument in argv)


def _emulator_jobs(network: Network, experiment: Experiment, backend: Backend, slack: Duration) -> Iterator[JobSpec]:
    used = {name for version in experiment.versions for _, name in version.latency}
    delays = [box for box in network.delay_boxes if any(latency.name in used for latency in box.classes)]
    links = zip(experiment.links, experiment.links_over_time, strict=True)
    if backend is Backend.TC:
        yield from (
            _tc_job("link", link_settings(network.box(link.box), link, slack, changing_link))
            for link, changing_link in links
        )
        yield from (_tc_job("delay", delay_settings(box)) for box in delays)
    else:
        yield from (_link_job(network, experiment, link, changing_link) for link, changing_link in links)
        yield from (_delay_job(experiment, box) for box in delays)


def _tc_job(kind: str, settings: TcSettings) -> JobSpec:
    return host_job(f"{kind}-{settings.box}", settings.box, Phase.SERVICE, "tc", settings.config, MEMORY_CAP)


def _link_job(network: Network, experiment: Experiment, link: Link, changing_link: Link) -> JobSpec:
    box = network.box(link.box)
    config = {
        "world": box.world.name,
        "island": box.island.name,
        "counts": link.counts.value,
        "mtu": box.mtu,
        "seed": _seed(experiment, f"link-{box.name}"),
        "to_island": direction_config(link.to_island),
        "to_world": direction_config(link.to_world),
        **_stall_limit(experiment),
    }
    return host_job(f"link-{box.name}", box.name, Phase.SERVICE, "link", config, limits_of_link(changing_link))


def _delay_job(experiment: Experiment, box: DelayBox) -> JobSpec:
    config = {
        **({"trunk": box.trunk.name} if box.trunk else {}),
        "mtu": max(interface.mtu for interface in box.interfaces),
        "seed": _seed(experiment, f"delay-{box.name}"),
        "classes": [config_of_class for latency in box.classes for config_of_class in _class_configs(latency)],
        **_stall_limit(experiment),
    }
    return host_job(f"delay-{box.name}", box.name, Phase.SERVICE, "delay", config, limits_of_delay(box))


def _class_configs(latency: LatencyClass) -> Iterator[dict[str, str | int | bool]]:
    """The objects of a class in a delay box's configuration: with ports one for each direction."""
    delay = {"delay_ns": latency.rtt.ns // 2, "jitter_ns": latency.jitter.ns}
    delay |= {"reorder": True} if latency.reorder else {}
    if latency.ports is None:
        yield {"vlan": latency.vlan, **delay}
        return
    world, island = latency.ports.world.name, latency.ports.island.name
    for number, (source, target) in zip(latency.ids, ((world, island), (island, world)), strict=True):
        yield {"vlan": number, "from": source, "to": target, **delay}


def _stall_limit(experiment: Experiment) -> dict[str, int]:
    """The stall limit of boxes, where it is not their default."""
    stall = experiment.limits.stall
    return {} if stall == DEFAULT_LIMITS.stall else {"stall_from_ns": stall.ns}


def _seed(experiment: Experiment, job: str) -> int:
    """A seed of the job's own, so that two boxes do not jitter in step; 53 bits, exact in any JSON reader."""
    return int.from_bytes(hashlib.sha256(f"{experiment.seed}/{job}".encode()).digest()[:7], "big") >> 3


def _capture_job(point: CapturePoint, experiment: Experiment) -> JobSpec:
    """At a link's ports the island-bound packets, or if there are uploads and at taps everything."""
    settings = experiment.captures
    at_links = {} if experiment.has_uploads else {f"link-{point.host}": "out", f"into-{point.host}": "in"}
    config = {
        "interface": point.interface,
        "file": f"{{run}}/captures/{point.name}.pcap",
        "snap_bytes": settings.snap.bytes,
        "direction": at_links.get(point.name, "both"),
        "buffer_bytes": settings.buffer.bytes,
    }
    return host_job(f"capture-{point.name}", point.host, Phase.CAPTURE, "capture", config, MEMORY_CAP)


def whistle_jobs(network: Network) -> tuple[JobSpec, ...]:
    """The pings ``whistle-start`` and ``whistle-end``; none without a host that sends them, or one that answers."""
    special = network.with_role(HostRole.ISLAND_SPECIAL)
    return tuple(
        ping_job(
            f"whistle-{when}",
            host,
            Phase.WHISTLE,
            special[:1],
            identifier=identifier,
            payload=f"atoll whistle {when}",
            count=1,
            interval_ns=1_000_000_000,
        )
        for host in network.with_role(HostRole.WORLD_WHISTLE)[:1]
        if special
        for when, identifier in _WHISTLE_IDENTIFIERS.items()
    )


def _transfer_jobs(network: Network, experiment: Experiment, transfer: Transfer) -> tuple[JobSpec, ...]:
    world, island = transfer.ends(network)
    if transfer.tool == "iperf3":
        return _iperf3_jobs(experiment, transfer, world, island)
    address = f"{world.address}:{transfer.port}"
    size = transfer.size.bytes
    control = experiment.transfer_congestion_control(transfer)
    privileges = privileges_of_tcp(control, transfer.port)
    if transfer.is_upload:
        serve = {"listen": address, "congestion_control": control, "quiet": True}
        upload = {"role": "upload", "connect": address, "size_bytes": size, "start_at_ns": 0}
        upload |= {"congestion_control": control, **write_config(transfer, experiment.tcp)}
        upload |= {"every_ns": transfer.every.ns} if transfer.every else {}
        to_send = privileges_of_tcp(control)
        return (
            host_job(transfer.server_job, world.name, Phase.TRANSFER_SERVER, "serve", serve, MEMORY_CAP, privileges),
            host_job(transfer.client_job, island.name, Phase.TRANSFER, "transfer", upload, MEMORY_CAP, to_send),
        )
    send = {"role": "send", "listen": address, "size_bytes": size, "congestion_control": control}
    send |= {**write_config(transfer, experiment.tcp), **({"repeats": True} if transfer.every else {})}
    receive = {"role": "receive", "connect": address, "size_bytes": size, "start_at_ns": 0}
    receive |= {"every_ns": transfer.every.ns} if transfer.every else {}
    return (
        host_job(transfer.server_job, world.name, Phase.TRANSFER_SERVER, "transfer", send, MEMORY_CAP, privileges),
        host_job(transfer.client_job, island.name, Phase.TRANSFER, "transfer", receive, MEMORY_CAP),
    )


def _iperf3_jobs(experiment: Experiment, transfer: Transfer, world: Host, island: Host) -> tuple[JobSpec, ...]:
    server = ("iperf3", "-s", "-1", "-B", str(world.address), "-p", str(transfer.port))
    client = ("iperf3", "-c", str(world.address), "-p", str(transfer.port))
    client += (*(() if transfer.is_upload else ("-R",)), "-n", str(transfer.size.bytes))
    client += ("-C", experiment.transfer_congestion_control(transfer), "--json")
    if transfer.write_rate and transfer.write_chunk:
        client += ("-l", str(transfer.write_chunk.bytes), "-b", str(transfer.write_rate.bit_s))
    elif transfer.write_rate:
        client += ("-N", "--fq-rate", str(transfer.write_rate.bit_s))  # iperf3's server paces only with -N, too
    if experiment.tcp.pacing and (transfer.write_chunk or not transfer.write_rate):
        client += ("-N", "--fq-rate", "2G")  # the most that the server takes: a field of 31 bits
    privileges = privileges_of_tcp(experiment.transfer_congestion_control(transfer), transfer.port)
    ends = (
        (transfer.server_job, world, Phase.TRANSFER_SERVER, server),
        (transfer.client_job, island, Phase.TRANSFER, client),
    )
    return tuple(
        JobSpec(name, host.name, phase, argv, stdout=f"logs/{name}.out", privileges=privileges)
        for name, host, phase, argv in ends
    )


def _ping_jobs(network: Network, experiment: Experiment) -> tuple[JobSpec, ...]:
    ends = network.specials
    if ends is None:
        return ()
    world, island = ends
    mistakes = [str(mistake) for mistake in short_ping_intervals(network, experiment)]
    if mistakes:
        raise PlanError("\n".join(mistakes))
    interval_ns = experiment.ping.interval.ns
    longest_ns = _rtt_without_queues_ns(network, experiment, world)
    longest_ns += sum(direction.full_queue.ns for direction in _directions(experiment))
    series = ping_job(
        "ping",
        world,
        Phase.PING,
        (island,),
        identifier=_PING_IDENTIFIER,
        payload="atoll ping",
        count=1 - (-experiment.duration.ns // interval_ns),  # to the end of the measurement; then it waits for replies
        interval_ns=interval_ns,
        timeout_ns=min(max(PING_TIMEOUT_NS, longest_ns + PING_MARGIN_NS), _OPEN_PINGS * interval_ns),
    )
    return (series,)


def short_ping_intervals(network: Network, experiment: Experiment) -> Iterator[Diagnostic]:
    """An interval of the ping series with which sequence numbers repeat before replies can arrive."""
    ends, interval = network.specials, experiment.ping.interval
    if ends is None:
        return
    rtt = Duration(_rtt_without_queues_ns(network, experiment, ends[0]))
    needed_ns = rtt.ns + PING_MARGIN_NS
    if needed_ns > _OPEN_PINGS * interval.ns:
        min_interval = Duration(-(-needed_ns // (_OPEN_PINGS * _NS_PER_US)) * _NS_PER_US)
        yield Diagnostic(
            experiment.file,
            experiment.ping.line,
            f"ping: interval: {interval} is too short for an RTT of {rtt} without queues, as only {_OPEN_PINGS} pings "
            f"may await their replies; write at least {min_interval}",
            ("ping", "interval"),
        )


def _rtt_without_queues_ns(network: Network, experiment: Experiment, world: Host) -> int:
    """The longest RTT from a world host through every link, and through boxes that hold packets, with empty queues."""
    terrestrial_ns = longest_terrestrial_ns(network, experiment, world.name)
    boxes_ns = 2 * longest_residence_ns(network, experiment)
    directions = _directions(experiment)
    return terrestrial_ns + boxes_ns + sum(d.delays[1].ns + (d.jitter.bound.ns if d.jitter else 0) for d in directions)


def _directions(experiment: Experiment) -> list[LinkDirection]:
    return [direction for link in experiment.links_over_time for direction in (link.to_island, link.to_world)]
