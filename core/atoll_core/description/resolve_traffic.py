# SPDX-License-Identifier: Apache-2.0
"""Resolve the raw load to a Traffic and a UdpTraffic: read files, check sizes and groups."""

from collections.abc import Sequence
from typing import Any

from atoll_core.description.flow_size_file import read_flow_sizes
from atoll_core.description.raw_traffic import RawGroup, RawGroupChange, RawTraffic, RawTrafficChange, RawUdp
from atoll_core.description.referenced_files import ReferencedFiles
from atoll_core.description.validation_messages import Mistakes, suggest
from atoll_core.description.yaml_document import KeyPath
from atoll_core.experiment.flow_sizes import PUBLISHED, FlowSizes, fixed, published
from atoll_core.experiment.traffic import (
    MAX_CHANNELS,
    MIN_IP_BYTES,
    REST,
    FlowDirection,
    Load,
    SizeMeaning,
    Think,
    Traffic,
    UdpTraffic,
)
from atoll_core.units import Size

Given = Sequence[tuple[KeyPath, RawTraffic | RawTrafficChange]]
"""The mappings that a load is described by, each with its key path: changes, the last one first, then ``traffic``."""


def check_groups(raw: RawTraffic, clients: Sequence[str], mistakes: Mistakes) -> None:
    """Note groups whose keys contradict each other, and clients that do not exist or are in two groups."""
    first_groups: dict[str, str] = {}
    loads = raw.loads
    for name, group in raw.groups.items():
        key_path = ("traffic", "groups", name)
        if name == REST:
            mistakes.note(key_path, "this is the name of the clients in no group; choose another one")
        for problem in loads["groups", name].problems():
            mistakes.note(key_path, problem)
        if not group.clients:
            mistakes.note((*key_path, "clients"), "the group has no clients; name at least one, or remove the group")
        for client in group.clients:
            if client not in clients:
                text = f"unknown island client {client!r}; {suggest(client, clients, 'island clients')}"
                mistakes.note((*key_path, "clients"), text)
            elif (first := first_groups.setdefault(client, name)) != name:
                text = f"{client!r} is in group {first!r}, too; a client has one load, keep it in one of them"
                mistakes.note((*key_path, "clients"), text)


def resolve_traffic(
    raw: RawTraffic, given: Given, clients: Sequence[str], mistakes: Mistakes, files: ReferencedFiles
) -> Traffic:
    """The load. Its mistakes, and those in files that it names, are noted. ``clients``: of the lab, in its order."""
    settings = _resolve_load(raw, given, mistakes, files)
    groups, loads = list[Load](), raw.loads
    for name, group in raw.groups.items():
        own = tuple(client for client in clients if client in group.clients)
        load = _resolve_load(loads["groups", name], [*_given_by_group(given, name), *given], mistakes, files)
        first = 1 + clients.index(own[0]) if own else 0  # no group without clients passes the checks
        groups.append(Load(**load, name=name, clients=own, first_channel=first * MAX_CHANNELS))
    grouped = {client for group in groups for client in group.clients}
    rest = tuple(client for client in clients if client not in grouped)
    groups += [Load(**settings, name=REST, clients=rest)] if groups and rest else []
    return Traffic(**settings, groups=tuple(groups))


def _given_by_group(given: Given, name: str) -> list[tuple[KeyPath, RawGroup | RawGroupChange]]:
    return [((*key_path, "groups", name), raw.groups[name]) for key_path, raw in given if name in raw.groups]


def _resolve_load(
    raw: RawTraffic,
    given: Sequence[tuple[KeyPath, RawGroup | RawGroupChange | RawTraffic]],
    mistakes: Mistakes,
    files: ReferencedFiles,
) -> dict[str, Any]:
    """The fields of a Load. ``given``: the mappings that may have its keys, those that come first take precedence."""

    def where(*keys: str) -> KeyPath:
        found = ((*path, key) for path, mapping in given for key in keys if key in mapping.model_fields_set)
        return next(found, (*given[-1][0], keys[-1]))

    sizes = _resolve_sizes(raw.flow_sizes.distribution, where("flow_sizes"), mistakes, files)
    counts_ip = raw.flow_sizes.counts is SizeMeaning.IP
    if counts_ip and raw.direction is FlowDirection.UPLOAD:
        text = "'counts: ip' is for recorded flows from servers to clients; of uploads, write 'counts: payload'"
        mistakes.note(where("flow_sizes"), text)
    pro_rate = raw.pro_rate or (Size(MIN_IP_BYTES) if counts_ip else None)
    key_path = where(*(["pro_rate"] if raw.pro_rate else []), "flow_sizes")
    if counts_ip and pro_rate and pro_rate.bytes < MIN_IP_BYTES:
        least = f"write at least {MIN_IP_BYTES} B of IP bytes"
        mistakes.note(key_path, f"{pro_rate} is smaller than the smallest connection; {least}")
    elif pro_rate and sizes.max_bytes < pro_rate.bytes:
        most = Size(sizes.max_bytes)
        text = f"the largest flow, {most}, has fewer IP bytes than a connection, {pro_rate}"
        mistakes.note(key_path, f"{pro_rate} exceeds the largest flow, {most}; lower it" if raw.pro_rate else text)
    elif pro_rate:
        sizes = sizes.pro_rated(pro_rate.bytes)
    return {
        "channels": raw.channels,
        "flow_sizes": raw.flow_sizes.distribution,
        "port": raw.port,
        "sizes": None if sizes.config == PUBLISHED else sizes,
        "pro_rate": pro_rate,
        "think": raw.think_time and Think(**dict(raw.think_time)),
        "flows_per_s": raw.flows_per_s,
        "write_rate": raw.write_rate,
        "write_chunk": raw.write_chunk,
        "sizes_count": raw.flow_sizes.counts,
        "timeout": raw.timeout,
        "direction": raw.direction,
        "line": mistakes.document.line(where("channels")),
        "rate_line": mistakes.document.line(where("write_rate" if raw.flows_per_s is None else "flows_per_s")),
    }


def resolve_udp(raw: RawUdp, mistakes: Mistakes, files: ReferencedFiles) -> UdpTraffic:
    """The UDP traffic. Its mistakes are noted."""
    sizes = _resolve_sizes(raw.flow_sizes, ("udp", "flow_sizes"), mistakes, files)
    line = mistakes.document.line(("udp", "rate"))
    return UdpTraffic(**dict(raw), sizes=None if sizes.config == PUBLISHED else sizes, line=line)


def _resolve_sizes(text: str, key_path: KeyPath, mistakes: Mistakes, files: ReferencedFiles) -> FlowSizes:
    """The distribution of a ``flow_sizes``; ``published`` where it cannot be read."""
    if text == PUBLISHED:
        return published()
    try:
        return fixed(text, Size.parse(text).bytes)
    except ValueError:
        content = files.read(text, read_flow_sizes)
    mistakes.note_in_file(key_path, content.mistakes)
    return content.value or published()
