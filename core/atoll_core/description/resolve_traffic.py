# SPDX-License-Identifier: Apache-2.0
"""Resolve the raw load to a Traffic and a UdpTraffic: read files, check sizes."""

from atoll_core.description.flow_size_file import read_flow_sizes
from atoll_core.description.raw_traffic import RawTraffic, RawUdp
from atoll_core.description.referenced_files import ReferencedFiles
from atoll_core.description.validation_messages import Mistakes
from atoll_core.description.yaml_document import KeyPath
from atoll_core.experiment.flow_sizes import PUBLISHED, FlowSizes, fixed, published
from atoll_core.experiment.traffic import MIN_IP_BYTES, SizeMeaning, Think, Traffic, UdpTraffic
from atoll_core.units import Size


def resolve_traffic(raw: RawTraffic, mistakes: Mistakes, files: ReferencedFiles, at: KeyPath = ("traffic",)) -> Traffic:
    """The channels' load. Its mistakes, and those in the file that it names, are noted. ``at``: where its sizes are."""
    sizes = _resolve_sizes(raw.flow_sizes.distribution, (*at, "flow_sizes"), mistakes, files)
    counts_ip = raw.flow_sizes.counts is SizeMeaning.IP
    pro_rate = raw.pro_rate or (Size(MIN_IP_BYTES) if counts_ip else None)
    key_path: KeyPath = ("traffic", "pro_rate") if raw.pro_rate and at == ("traffic",) else (*at, "flow_sizes")
    if counts_ip and pro_rate and pro_rate.bytes < MIN_IP_BYTES:
        least = f"write at least {MIN_IP_BYTES} B of IP bytes"
        mistakes.note(key_path, f"{pro_rate} is smaller than the smallest connection; {least}")
    elif pro_rate and sizes.max_bytes < pro_rate.bytes:
        most = Size(sizes.max_bytes)
        text = f"the largest flow, {most}, has fewer IP bytes than a connection, {pro_rate}"
        mistakes.note(key_path, f"{pro_rate} exceeds the largest flow, {most}; lower it" if raw.pro_rate else text)
    elif pro_rate:
        sizes = sizes.pro_rated(pro_rate.bytes)
    return Traffic(
        raw.channels,
        raw.flow_sizes.distribution,
        raw.port,
        sizes=None if sizes.config == PUBLISHED else sizes,
        pro_rate=pro_rate,
        think=raw.think_time and Think(**dict(raw.think_time)),
        flows_per_s=raw.flows_per_s,
        write_rate=raw.write_rate,
        write_chunk=raw.write_chunk,
        sizes_count=raw.flow_sizes.counts,
        timeout=raw.timeout,
        line=mistakes.document.line((*at, "channels")),
    )


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
