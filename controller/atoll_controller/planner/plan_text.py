# SPDX-License-Identifier: Apache-2.0
"""A plan and its changes as text for people."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, cast

from atoll_controller.fabric.swap_detours import boxes_of
from atoll_controller.fabric.swap_plan import Stage, Swap, SwapPart
from atoll_controller.planner.change_schedule import Scheduled
from atoll_controller.planner.placement import Placement, placement_text
from atoll_core.codec import to_json
from atoll_core.experiment.experiment import Experiment, SteeringVersion
from atoll_core.experiment.setting_texts import version_differences
from atoll_core.experiment.traffic import ChannelAllocation
from atoll_core.lab.network import MTU, Network
from atoll_core.plan.flow_entry import EntryId, FlowEntry, describe_actions
from atoll_core.plan.plan import HostSettings, InterfaceSettings, JobSpec, PathCheck, Plan
from atoll_core.plural import columns, counted
from atoll_core.units import Duration

_NS_PER_MS = 1e6
_MAX_ITEMS = 3  # longer lists are only counted


def plan_text(plan: Plan, placement: Placement | None = None) -> str:
    """The whole plan: switches with the reason for each entry, machines, jobs, captures, checks.

    ``placement``: where the entries are, which is then added.
    """
    labels = placement.labels() if placement else {}
    sections = (
        (f"Plan of experiment {plan.experiment} in lab {plan.lab} (seed {plan.seed})", ()),
        (f"Switches: {len(plan.flows)} flow entries; other frames are dropped", _switches(plan.flows, labels)),
        *([(placement_text(placement), ())] if placement else []),
        (f"Machines: {len(plan.hosts)}", _machines(plan.hosts)),
        *_channels(plan.placement),
        (f"Jobs: {len(plan.jobs)}", _jobs(plan.jobs)),
        (f"Captures: {len(plan.captures)}", (f"  {p.name:<12} {p.interface} of {p.host}" for p in plan.captures)),
        (f"Checks: {len(plan.checks)} paths, round-trip time expected", _checks(plan.checks)),
    )
    return "\n\n".join("\n".join((title, *lines)) for title, lines in sections)


def schedule_text(experiment: Experiment, schedule: Iterable[Scheduled]) -> str:
    """The scheduled changes, each with its differences to the version before and its stages."""
    lines: list[str] = []
    versions = experiment.versions
    for change, previous in zip(schedule, versions, strict=False):
        lines += (f"  at {change.version.at}: {'; '.join(version_differences(previous, change.version))}",)
        lines += columns([_stage(stage) for stage in change.swap.stages], indent="    ")
        lines += (f"    {line}" for line in swap_lines(change.swap))
        if not change.swap.stages:
            lines.append("    nothing changes on the switches")
    return "\n".join((f"Changes: {len(versions) - 1}, by time since the load began", *lines))


def stage_lines(swap: Swap) -> Iterator[str]:
    """The stages of a swap and how long its drains take, if any, for a dry run; none if nothing changes on switches."""
    if not swap.stages:
        return
    drain = Duration(sum(map(swap.drain_ns, range(len(swap.parts)))))
    drains = f"; its drains take at least {drain}" if drain.ns else ""
    yield f"the swap would have {counted(len(swap.stages), 'stage')}{drains}:"
    several = len(swap.parts) > 1
    rows = [(*((f"part {stage.part + 1}",) if several else ()), *_stage(stage)) for stage in swap.stages]
    yield from columns(rows, indent="  ")


def stages_json(swap: Swap) -> list[dict[str, Any]]:
    """Each stage in order, with the numbers of its entries and probes; ``wait_ns``: the least time that it waits."""
    return [
        {
            "part": stage.part,
            "subject": stage.subject.value,
            "stage": stage.kind.value,
            "added": len(stage.add),
            "deleted": len(stage.delete),
            "probes": len(stage.probes),
            "wait_ns": stage.wait_ns,
        }
        for stage in swap.stages
    ]


def _stage(stage: Stage) -> tuple[str, str, str]:
    counts = ((len(stage.add), "added"), (len(stage.delete), "deleted"), (len(stage.probes), "probed"))
    parts = [f"{number} {noun}" for number, noun in counts if number]
    parts += [f"{stage.wait_ns / _NS_PER_MS:g} ms"] if stage.wait_ns else []
    return stage.subject, stage.kind, ", ".join(parts)


def _switches(flows: Iterable[FlowEntry], labels: Mapping[EntryId, str]) -> Iterator[str]:
    all_entries = list(flows)
    differs = len({entry.priority for entry in all_entries}) > 1
    for switch, entries in groupby(all_entries, key=lambda entry: entry.switch):
        rows = [
            (
                *((labels[entry.identity],) if entry.identity in labels else ()),
                *((f"priority {entry.priority}",) if differs else ()),
                str(entry.match),
                describe_actions(entry.actions),
                entry.why,
            )
            for entry in entries
        ]
        yield f"  {switch} ({len(rows)})"
        yield from columns(rows, indent="    ")


def _machines(hosts: Iterable[HostSettings]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    for settings in hosts:
        rows += [(settings.host, i.name, i.mac, _setup(settings, i)) for i in settings.interfaces]
        if settings.packet_rules or settings.sysctls:
            rules = counted(len(settings.packet_rules), "packet rule")
            rows.append((settings.host, "", "", f"{rules}, {', '.join(f'{key}={to}' for key, to in settings.sysctls)}"))
    yield from columns(rows, indent="  ")


def _setup(settings: HostSettings, interface: InterfaceSettings) -> str:
    parts = [interface.address] if interface.address else []
    parts += [f"MTU {interface.mtu}"] if interface.mtu != MTU else []
    parts += [f"on-link {route.prefix}{f' with MTU {route.mtu}' if route.mtu else ''}" for route in interface.routes]
    parts += [f"{len(interface.neighbours)} permanent neighbours"] if interface.neighbours else []
    parts += ["promiscuous"] if interface.promiscuous else []
    routed = (legs for legs in settings.legs if legs.accept_foreign)
    parts += (
        ["forwards packets of other hosts (router)"]
        if any(interface.name in (legs.world, legs.island) for legs in routed)
        else []
    )
    return ", ".join(parts)


def _channels(placement: tuple[ChannelAllocation, ...]) -> Iterator[tuple[str, Iterable[str]]]:
    """The numbers of channels of clients, a line for clients of a group with equal numbers; empty without channels."""
    total = sum(client.channels for client in placement)
    if not total:
        return
    rows: list[tuple[str, ...]] = []
    for (group, channels, capacity), clients in groupby(
        placement, key=lambda client: (client.group, client.channels, client.capacity)
    ):
        names = ", ".join(client.host for client in clients)
        remark = "" if channels else "; gets no channels, so no load is started there"
        number = f"{channels} each" if "," in names else str(channels)
        rows.append((*([group] if group else []), number, names, f"capacity {capacity:g}{remark}"))
    within = " within their groups" if any(client.group for client in placement) else ""
    title = f"Channels: {total}, allocated to {len(placement)} island clients by capacity{within}"
    yield title, columns(rows, indent="  ")


def _jobs(jobs: Iterable[JobSpec]) -> Iterator[str]:
    yield from columns([(job.phase.value, job.name, job.host, _command(job)) for job in jobs], indent="  ")


def _command(job: JobSpec) -> str:
    parts = [f"{name} {_short_text(value)}" for name, value in (job.config or {}).items()]
    return f"{' '.join(job.argv)} {', '.join(parts)}".rstrip()


def _short_text(value: Any) -> str:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return "{" + ", ".join(f"{name} {_short_text(inner)}" for name, inner in fields.items()) + "}"
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return f"[{', '.join(map(_short_text, items))}]" if len(items) <= _MAX_ITEMS else f"[{len(items)} of them]"
    return str(value)


def _checks(checks: Iterable[PathCheck]) -> Iterator[str]:
    for src, group in groupby(checks, key=lambda check: check.src):
        paths = list(group)
        for (rtt, terrestrial, jitter), same in groupby(
            paths, key=lambda c: (c.rtt_ns, c.terrestrial_rtt_ns, c.jitter_ns)
        ):
            spread = f" +/- {jitter / _NS_PER_MS:g}" if jitter else ""
            names = ", ".join(check.dst for check in same)
            yield f"  {src} -> {names}: {rtt / _NS_PER_MS:g}{spread} ms (terrestrial {terrestrial / _NS_PER_MS:g} ms)"


def parts_json(swap: Swap) -> list[dict[str, Any]]:
    """Each part: ``what`` changes, the boxes of broken ``connections``, and boxes and taps that no packet passes.

    ``without``: those of both the old and the new version, until the next part. ``uncoded``: those of them that encode
    packets. ``renewed``: those of them whose programs begin again then.
    ``drain_ns``: the least time until the version before has drained.
    """
    return [
        {
            "subject": part.subject.value,
            "what": list(_differences(part)),
            "connections": list(part.moved),
            "without": list(part.without),
            "uncoded": list(part.uncoded),
            "renewed": list(part.renewed),
            "drain_ns": swap.drain_ns(number),
        }
        for number, part in enumerate(swap.parts)
    ]


def swap_json(swap: Swap) -> dict[str, Any]:
    """A swap as ``atoll plan --json`` has it."""
    stages = [to_json(stage) for stage in swap.stages]
    return {"stages": stages, "layout": to_json(swap.layout), "moved": list(swap.moved), "parts": parts_json(swap)}


def swap_lines(swap: Swap) -> Iterator[str]:
    """A line for each part of a swap with several, or the effects of the only part if it has any."""
    if len(swap.parts) == 1:
        yield from _effects(swap.parts[0], 1)
        return
    if swap.parts:
        yield f"the swap has {len(swap.parts)} parts, one after the other:"
    for number, part in enumerate(swap.parts, start=1):
        drain = f"at least {Duration(swap.drain_ns(number - 1))}"
        yield f"  {number}. {'; '.join((*_differences(part), *_effects(part, number), drain))}"


def wait_lines(network: Network, swap: Swap, limit: Duration) -> Iterator[str]:
    """A line for each part of a swap that waits for the end of connections, up to ``limit``."""
    for part in swap.parts:
        before = boxes_of(part.before)
        closed = [box.name for box in network.boxes if box.name in part.moved and box.name in before and box.is_managed]
        if closed:
            yield (
                f"{', '.join(closed)}: no new connections for up to {limit}, until the others have ended; then the "
                "remaining ones are reset"
            )


def _differences(part: SwapPart) -> Iterator[str]:
    return version_differences(_version(part.before), _version(part.after))


def _version(experiment: Experiment) -> SteeringVersion:
    return SteeringVersion(Duration(0), experiment.chain, experiment.branches, experiment.latency)


def _effects(part: SwapPart, number: int) -> Iterator[str]:
    if part.moved:
        yield f"connections through {', '.join(part.moved)} break"
    if part.without:
        coding = f", so that packets are not coded by {', '.join(part.uncoded)}" if part.uncoded else ""
        yield f"no packet passes {', '.join(part.without)} until part {number + 1}{coding}"
    if part.renewed:
        yield f"then the programs of {', '.join(part.renewed)} begin again"
