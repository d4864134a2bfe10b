# SPDX-License-Identifier: Apache-2.0
"""Settings and origin of a run's results, as rows of the report."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from atoll_core.experiment.experiment import (
    Aqm,
    Bernoulli,
    BitError,
    Codel,
    Experiment,
    JitterShape,
    Link,
    LinkDirection,
    Loss,
    LossTrace,
    Red,
    Where,
    version_differences,
)
from atoll_core.experiment.traffic import SizesCount, Traffic
from atoll_core.plural import counted

Row = tuple[str, str]


def in_one_line(experiment: Experiment) -> str:
    """The experiment in a sentence without a verb."""
    parts = [_short(link) for link in experiment.links]
    parts.append(counted(experiment.traffic.channels, "channel"))
    if experiment.transfer is not None:
        parts.append(f"a transfer of {experiment.transfer.size}")
    parts.append(str(experiment.duration))
    return ", ".join(parts)


def settings(experiment: Experiment) -> list[Row]:
    """The settings that decide the result."""
    tcp = experiment.tcp
    rows = [("chain", " → ".join(("world", *experiment.chain.hops, "island")))]
    for branch in experiment.branches:
        hops = " → ".join(("world", *branch.hops, "island"))
        rows.append((f"chain {branch.name}", f"{hops} for {branch.carries}"))
    for number, (before, after) in enumerate(pairwise(experiment.versions), start=1):
        rows.append((f"change {number}", f"at {after.at}: {'; '.join(version_differences(before, after))}"))
    for link in experiment.links:
        rows.append((f"{link.box}, to the island", _direction(link.to_island)))
        rows.append((f"{link.box}, to the world", _direction(link.to_world)))
        rows.append((f"{link.box} counts", "IP bytes" if link.counts == "ip" else "Ethernet bytes (IP + 14)"))
    rows.append(("latency classes", ", ".join(f"{server}: {name}" for server, name in experiment.latency) or "none"))
    rows.append(("load", _load(experiment.traffic)))
    if experiment.udp is not None:
        udp = experiment.udp
        sizes = f"flow sizes: {udp.flow_sizes}, {udp.parallel} at a time, packets of {udp.packet}"
        rows.append(("UDP", f"{udp.rate}, {sizes}"))
    if experiment.transfer is not None:
        transfer = experiment.transfer
        by = f"by {transfer.tool}, {experiment.transfer_control}"
        rows.append(("transfer", f"{transfer.size} from {transfer.start} on, {by}"))
    rows.append(("ping series", f"every {experiment.ping.interval}"))
    controls = ", ".join((tcp.congestion_control, *(f"{server}: {control}" for server, control in tcp.servers)))
    rows.append(("TCP", f"{controls}, ECN {'on' if tcp.ecn else 'off'}, buffers up to {tcp.buffer_max}"))
    rows.append(("duration", str(experiment.duration)))
    return rows


def origin(manifest: Mapping[str, Any]) -> list[Row]:
    """Where, when and by what the run was made; what the manifest does not know is left out."""
    host: Mapping[str, Any] = manifest.get("host", {})  # of a run in virtual time, whose own clock tells no date
    started = host.get("started_ns", manifest.get("started_ns"))
    known = (
        ("started", _instant(started) if isinstance(started, int) else None),
        ("outcome", manifest.get("outcome")),
        ("seed", manifest.get("seed")),
        ("place", manifest.get("place")),
        ("backend", manifest.get("backend")),
        ("switches", _joined("Open vSwitch", manifest.get("ovs"), manifest.get("datapath"), "datapath")),
        ("kernel", manifest.get("kernel")),
        ("CPUs", manifest.get("cpus")),
        ("kernel's mode", manifest.get("virtual", {}).get("mode")),
        ("kernel built as", manifest.get("virtual", {}).get("build")),
        ("host", f"kernel {host['kernel']}, {host['wall_s']:.1f} s of wall time" if host else None),
        ("revision", manifest.get("revision")),
        ("metrics", {True: "taken", False: "none"}.get(manifest.get("metrics", None))),
        ("plan (SHA-256)", manifest.get("plan_sha256")),
        ("format", manifest.get("format")),
    )
    return [(name, str(found)) for name, found in known if found not in (None, "")]


def _load(traffic: Traffic) -> str:
    of_ip = " (IP bytes)" if traffic.sizes_count is SizesCount.IP else ""
    parts = [counted(traffic.channels, "channel"), f"flow sizes: {traffic.flow_sizes}{of_ip}"]
    if traffic.pro_rate:
        parts.append(f"below {traffic.pro_rate} pro-rated")
    if traffic.flows_per_s is not None:
        parts.append(f"open loop, {traffic.flows_per_s:g} flows begin a second")
    if traffic.think:
        parts.append(f"think time {traffic.think.mean}, {traffic.think.distribution}")
    if traffic.write_rate:
        parts.append(f"at most {traffic.write_rate} by one connection")
    return ", ".join(parts)


def _short(link: Link) -> str:
    down = link.to_island
    return f"{link.box}: {down.rate}, {down.delay} one way, queue {down.queue}"


def _direction(direction: LinkDirection) -> str:
    words = [f"{direction.rate}, {direction.delay}{_jitter(direction)} one way"]
    packets = f" or {counted(direction.queue_packets, 'packet')}" if direction.queue_packets else ""
    words.append(f"{_aqm(direction.aqm)} queue {direction.queue}{packets}")
    if low := direction.low_priority:
        limit = f" or {counted(low.queue_packets, 'packet')}" if low.queue_packets else ""
        words.append(f"low-priority queue {low.queue}{limit}")
    words += [_loss(direction.loss)] if direction.loss else []
    words += [f"from the start of the load as in {direction.trace.file}"] if direction.trace else []
    return ", ".join(words)


def _jitter(direction: LinkDirection) -> str:
    jitter = direction.jitter
    if jitter is None or not jitter.amount.ns:
        return ""
    how = [] if jitter.distribution is JitterShape.UNIFORM else [jitter.distribution.value]
    how += [f"correlation {_percent(jitter.correlation)}"] if jitter.correlation else []
    how += ["reordering"] if direction.reorder else []
    return f" ± {jitter.amount}" + (f" ({', '.join(how)})" if how else "")


def _aqm(aqm: Aqm | None) -> str:
    if isinstance(aqm, Codel):
        return f"CoDel (target {aqm.target}, interval {aqm.interval})"
    if isinstance(aqm, Red):
        return f"RED ({aqm.min} to {aqm.max}, {_percent(aqm.probability)}, weight {aqm.weight:g})"
    return "drop-tail"


def _loss(loss: Loss) -> str:
    return _kind_of_loss(loss) + (" before the queue" if loss.where is Where.BEFORE else "")


def _kind_of_loss(loss: Loss) -> str:
    if isinstance(loss, Bernoulli):
        return f"loss {_percent(loss.probability)}"
    if isinstance(loss, BitError):
        return f"loss at a bit error rate of {loss.probability:g}"
    if isinstance(loss, LossTrace):
        return f"loss as in {loss.file}"
    states = f"{_percent(loss.loss_good)} good, {_percent(loss.loss_bad)} bad"
    turns = f"good to bad {_percent(loss.good_to_bad)}, back {_percent(loss.bad_to_good)}"
    return f"Gilbert-Elliott loss ({states}; {turns})"


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _instant(t_ns: int) -> str:
    return datetime.fromtimestamp(t_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _joined(before: str, version: object, datapath: object, after: str) -> str | None:
    return f"{before} {version}, {datapath} {after}" if version else None
