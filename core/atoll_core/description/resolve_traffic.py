# SPDX-License-Identifier: Apache-2.0
"""Resolve the raw load to a Traffic and a UdpTraffic: read files, check sizes."""

from atoll_core.description.raw_traffic import RawTraffic, RawUdp
from atoll_core.description.referenced_files import ReferencedFiles
from atoll_core.description.validation_messages import entry_name
from atoll_core.description.yaml_document import Document, Place
from atoll_core.errors import Diagnostic
from atoll_core.experiment.flow_sizes import PUBLISHED, FlowSizes, fixed, published
from atoll_core.experiment.traffic import LEAST_IP_BYTES, SizesCount, Think, Traffic, UdpTraffic
from atoll_core.units import Size


def resolve_traffic(
    raw: RawTraffic, document: Document, files: ReferencedFiles, at: Place = ("traffic",)
) -> tuple[Traffic, tuple[Diagnostic, ...]]:
    """The channels' load, and the mistakes in it or in the file that it names. ``at``: where its sizes are."""
    asked = raw.flow_sizes
    sizes, mistakes = _sizes(asked.distribution, (*at, "flow_sizes"), document, files)
    of_ip = asked.counts is SizesCount.IP
    pro_rate = raw.pro_rate or (Size(LEAST_IP_BYTES) if of_ip else None)
    place: Place = ("traffic", "pro_rate") if raw.pro_rate and at == ("traffic",) else (*at, "flow_sizes")
    if of_ip and pro_rate and pro_rate.bytes < LEAST_IP_BYTES:
        least = f"write at least {LEAST_IP_BYTES} B of IP bytes"
        text = f"{entry_name(place)}: {pro_rate} is smaller than the smallest connection; {least}"
        mistakes = (*mistakes, document.mistake(place, text))
    elif pro_rate and sizes.max_bytes < pro_rate.bytes:
        most = Size(sizes.max_bytes)
        text = (
            f"{entry_name(place)}: {pro_rate} exceeds the largest flow, {most}; lower it"
            if raw.pro_rate
            else f"{entry_name(place)}: the largest flow, {most}, has fewer IP bytes than a connection, {pro_rate}"
        )
        mistakes = (*mistakes, document.mistake(place, text))
    elif pro_rate:
        sizes = sizes.pro_rated(pro_rate.bytes)
    traffic = Traffic(
        raw.channels,
        asked.distribution,
        raw.port,
        sizes=None if sizes.config == PUBLISHED else sizes,
        pro_rate=pro_rate,
        think=Think(raw.think_time.mean, raw.think_time.distribution) if raw.think_time else None,
        flows_per_s=raw.flows_per_s,
        write_rate=raw.write_rate,
        sizes_count=asked.counts,
        line=document.line((*at, "channels")),
    )
    return traffic, mistakes


def resolve_udp(raw: RawUdp, document: Document, files: ReferencedFiles) -> tuple[UdpTraffic, tuple[Diagnostic, ...]]:
    """The UDP traffic, and its mistakes."""
    sizes, mistakes = _sizes(raw.flow_sizes, ("udp", "flow_sizes"), document, files)
    drawn = None if sizes.config == PUBLISHED else sizes
    line = document.line(("udp", "rate"))
    return UdpTraffic(raw.rate, raw.flow_sizes, raw.port, raw.packet, raw.parallel, drawn, line), mistakes


def _sizes(
    text: str, place: Place, document: Document, files: ReferencedFiles
) -> tuple[FlowSizes, tuple[Diagnostic, ...]]:
    """The distribution of a ``flow_sizes``; ``published`` where it cannot be read."""
    if text == PUBLISHED:
        return published(), ()
    try:
        return fixed(text, Size.parse(text).bytes), ()
    except ValueError:
        read = files.flow_sizes(text)
    # A mistake of a file as a whole is reported at the place that names the file.
    mistakes = tuple(
        mistake
        if mistake.line
        else document.mistake(
            place, f"{entry_name(place)}: {mistake.file}: {mistake.message}; the path is relative to this file"
        )
        for mistake in read.mistakes
    )
    return read.found or published(), mistakes
