# SPDX-License-Identifier: Apache-2.0
"""The jobs that make the load: world servers and island channels, UDP sender and receiver; and pings.

Those of a calibration are not part of the plan, which does not depend on tests.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from atoll_controller.planner.job_limits import (
    MEMORY_CAP,
    limits_of_sockets,
    privileges_of_port,
    privileges_of_subcommand,
    privileges_of_tcp,
)
from atoll_core.experiment.experiment import Experiment, TcpSettings, Transfer
from atoll_core.experiment.traffic import FLOW_TIMEOUT, ChannelAllocation, FlowDirection, Load, SizeMeaning
from atoll_core.lab.box_kind import CALIBRATION_PORT
from atoll_core.lab.network import Host, HostRole, Network
from atoll_core.plan.plan import UNLIMITED, JobLimits, JobSpec, Phase, Plan, Privilege

_PING_BYTES = 56
PING_PACKET_BYTES = 84  # IP bytes of a ping with that payload
_CALIBRATION_PING = 0xA7C0  # ICMP identifier
PING_TIMEOUT_NS = 3_000_000_000  # far above usual full queues: a later answer is a lost one
PING_MARGIN_NS = 1_000_000_000  # for the lab itself and small jitter, beyond the RTT that the description adds up to
_QUIET_SUBCOMMANDS = ("load", "serve", "udp", "transfer")
_UDP_HEADERS_BYTES = 20 + 8  # IPv4, RFC 791, and UDP, RFC 768


def write_config(sender: Load | Transfer, tcp: TcpSettings) -> dict[str, Any]:
    """How a sender writes, as its configuration has it."""
    paced = {"paced": True} if tcp.pacing else {}
    rate = {"write_rate_bit_s": sender.write_rate.bit_s} if sender.write_rate else {}
    chunk = {"write_chunk_bytes": sender.write_chunk.bytes} if sender.write_chunk else {}
    return {**paced, **rate, **chunk}


def load_jobs(network: Network, experiment: Experiment) -> tuple[JobSpec, ...]:
    """Servers and channels; a group's channels are allocated to its clients by capacity. One without any has no job."""
    traffic, max_channels = experiment.traffic, experiment.max_channels
    servers = network.with_role(HostRole.WORLD_SERVER)
    clients = network.with_role(HostRole.ISLAND_CLIENT)
    if not (max_channels and servers and clients):
        return ()
    addresses = {host.name: f"{host.address}:{traffic.port}" for host in servers}
    jobs: list[JobSpec] = []
    for name, listen in addresses.items():
        config: dict[str, Any] = {
            "listen": listen,
            "congestion_control": experiment.congestion_control(name),
            **write_config(traffic, experiment.tcp),
        }
        privileges = privileges_of_tcp(config["congestion_control"], traffic.port)
        # A connection of each channel, and one not closed yet.
        limits = limits_of_sockets(traffic.loads, 2 * max_channels)
        jobs.append(host_job(f"serve-{name}", name, Phase.SERVER, "serve", config, limits, privileges))
    pauses = (direction.longest_pause.ns for link in experiment.links for direction in (link.to_island, link.to_world))
    longest_pause_ns = max(pauses, default=0)
    versions = experiment.allocated_channels(network)
    for client in clients:
        allocated = [version[client.name] for version in versions]
        (load, channels), *_ = allocated
        if not any(numbers for _, numbers in allocated):
            continue
        # TCP's timeouts double in a pause: the first try behind it comes at most as long after it as it was long.
        silence_ns = load.timeout.ns + 2 * longest_pause_ns
        config = {
            "seed": experiment.seed,
            "channels": list(channels),
            "servers": list(addresses.values()),
            **_sizes(load),
            **_pace(load),
            **_changes(experiment, allocated),
            **_direction(load, experiment.tcp),
            "start_at_ns": 0,
            "duration_ns": experiment.duration.ns,
            "congestion_control": experiment.congestion_control(client.name),
            **({} if silence_ns == FLOW_TIMEOUT.ns else {"silence_ns": silence_ns}),
            "flow_log": f"{{run}}/logs/flows-{client.name}.csv",
        }
        limits = limits_of_sockets([load], max(len(numbers) for _, numbers in allocated))
        privileges = privileges_of_tcp(config["congestion_control"])
        jobs.append(host_job(f"load-{client.name}", client.name, Phase.CLIENT, "load", config, limits, privileges))
    return tuple(jobs)


def with_quiet_jobs(plan: Plan, network: Network) -> Plan:
    """The plan whose servers and channels on hosts with in-band control print nothing while they measure.

    It would pass the measured network on real machines. The hosts of an emulated lab are reached by other means.
    """
    in_band = {host.name for host in network.in_band_hosts}
    quiet = {
        job.name
        for job in plan.jobs
        if job.host in in_band and job.argv[-1] in _QUIET_SUBCOMMANDS and job.phase is not Phase.TRANSFER_SERVER
    }
    jobs = [
        replace(job, config={**(job.config or {}), "quiet": True}) if job.name in quiet else job for job in plan.jobs
    ]
    return replace(plan, jobs=tuple(jobs))


def channel_allocations(network: Network, experiment: Experiment) -> tuple[ChannelAllocation, ...]:
    """The number of channels that each island client gets at first, in the lab's order; empty without channels."""
    if not experiment.max_channels:
        return ()
    clients = network.with_role(HostRole.ISLAND_CLIENT)
    allocated = experiment.allocated_channels(network)[0]
    return tuple(
        ChannelAllocation(host.name, host.capacity, len(channels), load.name)
        for host in clients
        for load, channels in [allocated[host.name]]
    )


def _changes(experiment: Experiment, allocated: Sequence[tuple[Load, tuple[int, ...]]]) -> dict[str, Any]:
    """The changes of a client's load during the run; nothing where there are none.

    ``allocated``: its load and the numbers of its channels in every version.
    """
    changes: list[dict[str, Any]] = []
    pairs = pairwise(allocated)
    for version, ((old, old_channels), (load, new_channels)) in zip(experiment.versions[1:], pairs, strict=True):
        change: dict[str, Any] = {"channels": list(new_channels)} if new_channels != old_channels else {}
        if _sizes(load) != _sizes(old):
            change |= {"counts": load.sizes_count.value, **_sizes(load)}
        if _pace(load) != _pace(old):
            change |= _pace(load)
        if change:
            changes.append({"after_ns": version.at.ns, **change})
    return {"changes": changes} if changes else {}


def udp_jobs(network: Network, experiment: Experiment) -> tuple[JobSpec, ...]:
    """UDP flows from the world's special server to their receivers in turn."""
    udp = experiment.udp
    if udp is None or not (ends := experiment.udp_ends(network)):
        return ()
    world, receivers = ends
    first, *further = (f"{receiver.address}:{udp.port}" for receiver in receivers)
    send: dict[str, Any] = {
        "role": "send",
        "connect": first,
        **({"further": further} if further else {}),
        "rate_bit_s": udp.rate.bit_s,
        "payload_bytes": udp.packet.bytes - _UDP_HEADERS_BYTES,
        "start_at_ns": 0,
        "duration_ns": experiment.duration.ns,
        "flows": {"flow_sizes": udp.distribution.config, "seed": experiment.seed, "parallel": udp.parallel},
    }
    rates = [
        {"after_ns": after.at.ns, "rate_bit_s": after.udp_rate.bit_s}
        for before, after in pairwise(experiment.versions)
        if after.udp_rate is not None and after.udp_rate != before.udp_rate
    ]
    if rates:
        send["changes"] = rates
    jobs = [host_job("udp-send", world.name, Phase.CLIENT, "udp", send, MEMORY_CAP)]
    for receiver in receivers:
        receive = {"role": "receive", "listen": f"{receiver.address}:{udp.port}", "each": False}
        name = f"udp-receive-{receiver.name}"
        jobs.append(
            host_job(name, receiver.name, Phase.SERVER, "udp", receive, MEMORY_CAP, privileges_of_port(udp.port))
        )
    return tuple(jobs)


def host_job(
    name: str,
    host: str,
    phase: Phase,
    subcommand: str,
    config: dict[str, Any],
    limits: JobLimits = UNLIMITED,
    privileges: tuple[Privilege, ...] = (),
) -> JobSpec:
    """A job of ``atoll-host``; ``privileges``: those of its configuration, in addition to its subcommand's."""
    all_privileges = (*privileges_of_subcommand(subcommand), *privileges)
    return JobSpec(name, host, phase, ("atoll-host", subcommand), config, limits=limits, privileges=all_privileges)


def _sizes(load: Load) -> dict[str, Any]:
    counts_ip = load.sizes_count is not SizeMeaning.PAYLOAD
    return {"flow_sizes": load.distribution.config, **({"counts": load.sizes_count.value} if counts_ip else {})}


def _direction(load: Load, tcp: TcpSettings) -> dict[str, Any]:
    """The direction of flows, and how clients write; nothing of downloads."""
    if load.direction is FlowDirection.DOWNLOAD:
        return {}
    return {"direction": "upload", **write_config(replace(load, write_chunk=None), tcp)}


def _pace(load: Load) -> dict[str, Any]:
    """When each channel begins its flows; nothing where they follow one another at once."""
    if load.flows_per_s is not None:
        # Poisson processes of equal rate add up to one of their number times the rate.
        return {"pace": {"kind": "poisson", "mean_ns": round(load.channels / load.flows_per_s * 1e9)}}
    if load.think is not None:
        return {"pace": {"kind": load.think.distribution.value, "mean_ns": load.think.mean.ns}}
    return {}


def ping_job(
    name: str,
    host: Host,
    phase: Phase,
    targets: Sequence[Host],
    *,
    identifier: int,
    payload: str,
    count: int | None,
    interval_ns: int,
    timeout_ns: int = PING_TIMEOUT_NS,
    start_at_ns: int = 0,
) -> JobSpec:
    """Pings from a host to others; ``interval_ns``: from one ping of a target to its next."""
    config = {
        "targets": [{"name": target.name, "address": str(target.address)} for target in targets],
        "interval_ns": interval_ns,
        "count": count,
        "timeout_ns": timeout_ns,
        "size_bytes": _PING_BYTES,
        "identifier": identifier,
        "payload": payload,
        "start_at_ns": start_at_ns,
    }
    return host_job(name, host.name, phase, "ping", config, MEMORY_CAP)


def calibration_ping(source: Host, target: Host, *, interval_ns: int, start_at_ns: int, timeout_ns: int) -> JobSpec:
    """Pings until stopped."""
    return ping_job(
        f"calibrate-ping-{source.name}",
        source,
        Phase.CHECK,
        (target,),
        identifier=_CALIBRATION_PING,
        payload="atoll calibrate",
        count=None,
        interval_ns=interval_ns,
        timeout_ns=timeout_ns,
        start_at_ns=start_at_ns,
    )


def calibration_receive(host: Host, *, per_packet: bool = False) -> JobSpec:
    """The receiver of a calibration's stream; ``per_packet``: it reports every packet."""
    config = {"role": "receive", "listen": f"{host.address}:{CALIBRATION_PORT}", "each": per_packet}
    return host_job(f"calibrate-receive-{host.name}", host.name, Phase.CHECK, "udp", config)


def calibration_send(
    source: Host, target: Host, *, rate_bit_s: int, packet_bytes: int, start_at_ns: int, duration_ns: int
) -> JobSpec:
    """A stream of packets of ``packet_bytes`` IP bytes, of a calibration."""
    config = {
        "role": "send",
        "connect": f"{target.address}:{CALIBRATION_PORT}",
        "rate_bit_s": rate_bit_s,
        "payload_bytes": packet_bytes - _UDP_HEADERS_BYTES,
        "start_at_ns": start_at_ns,
        "duration_ns": duration_ns,
    }
    return host_job(f"calibrate-send-{source.name}", source.name, Phase.CHECK, "udp", config)
