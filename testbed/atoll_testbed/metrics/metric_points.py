# SPDX-License-Identifier: Apache-2.0
"""Make metric points (atoll_core.metrics.metrics_schema) from messages of jobs, switches and machines. Pure.

Points have the tags of their measurement only; the recorder adds the tags that all points of a run have. Keys of a
message that are not fields of the measurement, and values that are not numbers, are left out. Messages are specified in
docs/contracts.md.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from atoll_apps.segments.segment import App
from atoll_core.events.event_text import event_text
from atoll_core.experiment.experiment import DIRECTIONS, ONLY_TRANSFER, Experiment, Link
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import HostRole, Network
from atoll_core.metrics.line_protocol import Field, MetricPoint
from atoll_core.metrics.metrics_schema import MEASUREMENT_BY_NAME, Measurement
from atoll_core.plan.plan import JobSpec, Phase
from atoll_hosts.machine import ClockOffset

FIGURES_OF_CHECKS = frozenset({"check", "terrestrial", "base_rtt", "calibration"})
"""Types of events with figures of the test before a run, one for each pair of hosts; they make no event points."""

_MEASUREMENT_BY_PHASE = {
    Phase.SERVER: "server",
    Phase.CLIENT: "load",
    Phase.CAPTURE: "capture",
    Phase.TRANSFER: "transfer",
}
_UPLOAD = "transfer-send"  # how the names of clients that upload begin (Transfer.client_job)
_UNSUPPORTED_COUNT = 2**64 - 1  # value of a counter that a switch does not have (OpenFlow 1.3.5, 7.3.5.6)
_MAX_CHARACTERS = 500  # characters of an event; events.jsonl has the full text


def box_points(
    box: str, line: Mapping[str, Any], classes: Mapping[int, str], kinds: Mapping[str, BoxKind]
) -> Iterator[MetricPoint]:
    """Points of a ``counters`` line of a box.

    ``classes``: the latency classes' names by VLAN id. ``kinds``: those of chain boxes, which may declare counters.
    """
    t_ns: int = line["t_ns"]
    if box in kinds and (measurement := kinds[box].measurement):
        yield _point(measurement, {"box": box}, line, t_ns)
    for direction in DIRECTIONS:
        if direction in line:
            yield _point("link", {"box": box, "direction": direction}, line[direction], t_ns)
    if "classes" in line:
        yield _point("delay_box", {"box": box}, line, t_ns)
        for vlan, counters in line["classes"].items():
            if int(vlan) in classes:
                yield _point("delay_class", {"box": box, "vlan": vlan, "class": classes[int(vlan)]}, counters, t_ns)


def job_points(spec: JobSpec, line: Mapping[str, Any], clock_offset_ns: int = 0) -> Iterator[MetricPoint]:
    """Points of a line of one of the plan's jobs; ``clock_offset_ns``: its machine's clock less this one's."""
    if spec.phase is Phase.TRANSFER and spec.name.startswith(_UPLOAD):
        line = {**line, "sent_bytes": line.get("received_bytes"), "received_bytes": None}
    match line.get("type"):
        case "counters" | "progress" if spec.phase in _MEASUREMENT_BY_PHASE:
            tags = {"host": spec.host}
            if spec.phase is Phase.CAPTURE:
                tags["point"] = spec.name.removeprefix("capture-")
            if spec.phase is Phase.TRANSFER:
                tags["transfer"] = _transfer_name(spec)
            yield _point(_MEASUREMENT_BY_PHASE[spec.phase], tags, line, line["t_ns"])
        case "done" if spec.phase is Phase.CLIENT and "active" in line:  # UDP senders have no flows
            yield _point("load", {"host": spec.host}, {"active": 0, "ended": 1}, line["t_ns"])
        case "done" if spec.phase is Phase.TRANSFER and line.get("end_ns") is not None:
            tags = {"host": spec.host, "transfer": _transfer_name(spec)}
            yield _point("transfer", tags, {**line, "ended": 1}, line["end_ns"])
        case "started" if spec.phase is Phase.CLIENT:
            t_ns = line["t_ns"] - clock_offset_ns
            late_ns = t_ns - (spec.config or {}).get("start_at_ns", t_ns)
            yield _point("start", {"host": spec.host}, {"late_ns": late_ns}, t_ns)
        case "reply" if spec.phase is Phase.WHISTLE:
            yield event_point("whistle", line["sent_ns"], {"what": spec.name.removeprefix("whistle-")})
        case "reply" | "lost" as outcome if spec.phase is Phase.PING:
            targets = [target["name"] for target in (spec.config or {}).get("targets", ())]
            if line["target"] not in targets:
                return
            tags = {"host": spec.host, "target": line["target"]}
            yield _point("ping", tags, {**line, "lost": int(outcome == "lost")}, line["sent_ns"])
        case _:
            pass


def link_config_points(links: Iterable[Link], t_ns: int) -> Iterator[MetricPoint]:
    """Points with the configuration of links."""
    for link in links:
        for direction in DIRECTIONS:
            d = getattr(link, direction)
            configured = {"rate_bit_s": d.rate.bit_s, "delay_ns": d.delay.ns, "queue_bytes": d.queue.bytes}
            yield _point("link_config", {"box": link.box, "direction": direction}, configured, t_ns)


def latency_config_points(network: Network, experiment: Experiment, t_ns: int) -> Iterator[MetricPoint]:
    """Points with the configured terrestrial latencies of world servers and of other hosts that are ever delayed."""
    classes = {latency_class.name: latency_class for box in network.delay_boxes for latency_class in box.classes}
    latency = {server: classes[name] for server, name in experiment.latency}
    delayed = {name for version in experiment.versions for name, _ in version.latency} | latency.keys()
    for host in network.world_hosts:
        if host.role is not HostRole.WORLD_SERVER and host.name not in delayed:
            continue
        delay = latency.get(host.name)
        configured = {"rtt_ns": delay.rtt.ns, "jitter_ns": delay.jitter.ns} if delay else {"rtt_ns": 0, "jitter_ns": 0}
        yield _point("latency_config", {"host": host.name}, configured, t_ns)


def check_points(kind: str, t_ns: int, figures: Mapping[str, Any]) -> Iterator[MetricPoint]:
    """Points of an event of the test before a run, if it is about a server and not about a pair of hosts."""
    if kind == "terrestrial":
        yield _point("latency_check", {"host": figures["server"]}, figures, t_ns)


def switch_points(switch: str, counters: Mapping[str, Any], t_ns: int) -> Iterator[MetricPoint]:
    """Points of a switch's counters; entries with the same cookie belong to the same segment."""
    for port, counts in counters["ports"].items():
        supported = {name: count for name, count in counts.items() if count != _UNSUPPORTED_COUNT}
        yield _point("switch_port", {"switch": switch, "port": port}, supported, t_ns)
    segments: defaultdict[int, dict[str, Field]] = defaultdict(lambda: {"entries": 0, "packets": 0, "bytes": 0})
    for entry in counters["entries"]:
        segment = segments[entry["cookie"]]
        for name, amount in (("entries", 1), ("packets", entry["packets"]), ("bytes", entry["bytes"])):
            segment[name] = int(segment[name]) + amount
    for cookie, counts in segments.items():
        tags = {"switch": switch, "app": _app(cookie), "cookie": f"{cookie:016x}"}
        yield _point("flow_entries", tags, counts, t_ns)


def interface_points(host: str, counters: Mapping[str, Mapping[str, int]], t_ns: int) -> Iterator[MetricPoint]:
    """Points of a machine's interfaces."""
    for interface, counts in counters.items():
        yield _point("interface", {"host": host, "interface": interface}, counts, t_ns)


def metrics_points(machine: str, report: Mapping[str, Any], clock_offset_ns: int) -> Iterator[MetricPoint]:
    """Points of an agent's report on its machine, hosts and jobs; ``clock_offset_ns``: its clock less this one's."""
    t_ns = report["t_ns"] - clock_offset_ns
    for host, counters in report["hosts"].items():
        yield from interface_points(host, counters["interfaces"], t_ns)
        for protocol in ("tcp", "udp"):
            if protocol in counters:  # no udp in reports of agents before 1.2
                yield _point(protocol, {"host": host}, counters[protocol], t_ns)
    for job, counters in report["jobs"].items():
        yield _point("job", {"host": counters["host"] or "", "job": job}, counters, t_ns)
    tags = {"machine": machine}
    yield _point("machine", tags, report["machine"], t_ns)
    yield _point("agent", tags, report["agent"], t_ns)
    if clock := report["clock"]:
        yield _point("clock", tags, {**clock, "synchronised": int(clock["synchronised"])}, t_ns)


def clock_point(machine: str, clock: ClockOffset, t_ns: int) -> MetricPoint:
    """The point of a comparison of a machine's clock with this one."""
    fields = {"offset_ns": clock.offset_ns, "bound_ns": clock.bound_ns, "rtt_ns": clock.rtt_ns}
    return _point("clock", {"machine": machine}, fields, t_ns)


def event_point(kind: str, t_ns: int, fields: Mapping[str, Any]) -> MetricPoint:
    """The point of an event of the run or of the testbed."""
    state = str(fields.get("state", ""))
    text, _ = event_text({**fields, "type": kind, "t_ns": t_ns}) or (kind, "")
    text = text[:_MAX_CHARACTERS]
    return MetricPoint("event", {"kind": kind, "state": state}, {"text": text}, t_ns)


def box_kinds(network: Network) -> dict[str, BoxKind]:
    """The kinds of the chain boxes, by name."""
    return {box.name: box.kind for box in network.boxes}


def class_names(network: Network) -> dict[int, str]:
    """The latency classes' names by number: VLAN ids, and those of classes with ports."""
    classes = (latency_class for box in network.delay_boxes for latency_class in box.classes)
    return {number: latency_class.name for latency_class in classes for number in latency_class.ids}


def _transfer_name(client: JobSpec) -> str:
    """The name of a transfer, of its client's job (Transfer.job)."""
    name = client.name.removeprefix("transfer-receive").removeprefix(_UPLOAD)
    return name.removeprefix("-") or ONLY_TRANSFER


def _app(cookie: int) -> str:
    number = cookie >> 48 & 0xFF
    return App(number).name.lower() if number in tuple(App) else ""


def _point(
    measurement: str | Measurement, tags: Mapping[str, str], figures: Mapping[str, Any], t_ns: Any
) -> MetricPoint:
    schema = MEASUREMENT_BY_NAME[measurement] if isinstance(measurement, str) else measurement
    names = (field.name for field in schema.fields)
    fields = {name: figures[name] for name in names if isinstance(figures.get(name), (int, float))}
    if not isinstance(t_ns, int):  # it goes into the line as it is
        raise ValueError(f"{schema.name}: an invalid instant")  # noqa: TRY004 - like other invalid data of a machine
    return MetricPoint(schema.name, tags, fields, t_ns)
