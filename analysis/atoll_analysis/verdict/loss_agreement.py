# SPDX-License-Identifier: Apache-2.0
"""Agreement of losses: captures against links' counters, and TCP payload across other boxes.

Where every box between two captures conserves packets, the captures differ by what the links between them dropped, to
the byte. Such a stretch of the chain ends at a box that ends, splits, merges or encodes packets. TCP payload, which is
the same on both sides of that box, proves what passes it: docs/decisions/0030-conserved-packets-and-payload.md
"""

from collections.abc import Sequence
from typing import TypedDict

from atoll_analysis.tables.directions import TO_ISLAND, TO_WORLD, Direction
from atoll_analysis.verdict.findings import Finding, FindingCode, caveat, reason
from atoll_core.plural import counted, listed

_SHOWN = 3  # pairs of hosts, that a reason names at most


class Section(TypedDict):
    """Part of a chain between two captures, in which only links may lose packets. Bytes are IP bytes of a direction."""

    first: str  # its first capture
    last: str  # its last capture
    boxes: list[str]  # boxes between the two, in the order in which packets pass them
    links: list[str]  # those of them that are links
    declared: list[str]  # those of them whose description declares that they conserve packets
    captured_bytes: int  # bytes that the first capture has and the last does not
    counted_bytes: int  # bytes that the links count as dropped
    probed_bytes_max: int  # upper bound of the bytes of probes of changes among these


class Payload(TypedDict):
    """TCP payload of a direction, each byte once, of connections whose chain has boxes that do not conserve packets."""

    boxes: list[str]  # boxes that do not conserve packets
    lossy: list[str]  # those of them that are declared not to conserve payload either: both captures are not compared
    world_bytes: int  # TCP payload in the capture `world`
    island_bytes: int  # TCP payload in the capture `island`
    open_connections: int  # connections that had not ended at the capture that they pass last
    held_bytes_max: int  # upper bound of the payload that boxes can hold of these connections
    # payload that the channels' clients received, or that servers confirmed to them, by the clients' logs; None: no log
    received_bytes: int | None
    wrong: list[str]  # disagreements in words, by server (with its port) and client


def agrees(section: Section) -> bool:
    """Whether captures and links have the same loss, but for probes, which captures leave out."""
    return 0 <= section["counted_bytes"] - section["captured_bytes"] <= section["probed_bytes_max"]


def disagreements(sections: Sequence[Section], payload: Payload | None) -> list[Finding]:
    """Return a finding for each place where captures, links and payload do not agree."""
    findings = [reason(FindingCode.LOSS_DIFFERS, _disagreement(section)) for section in sections if not agrees(section)]
    if payload is not None and (wrong := payload["wrong"]):
        more = f"; {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        text = f"TCP payload differs before and after {', '.join(payload['boxes'])}: {'; '.join(wrong[:_SHOWN])}{more}"
        findings.append(reason(FindingCode.PAYLOAD_DIFFERS, text))
    return findings


def _disagreement(section: Section) -> str:
    captures_text = f"{section['first']} and {section['last']} ({', '.join(section['boxes']) or 'no box between them'})"
    declared = section.get("declared")  # absent from what older versions analysed
    behaviour = "ends, splits, encodes, adds or loses packets"
    hint = f"; if {listed(declared, 'or')} {behaviour}, declare conserves_packets: false" if declared else ""
    if section["captured_bytes"] < 0:
        more = f"{section['last']} captured {counted(-section['captured_bytes'], 'byte')} more than {section['first']}"
        return f"{more}: packets were added between {captures_text}, bound 0{hint}"
    lost = counted(section["captured_bytes"], "byte")
    bound = "bound 0"
    if links := section["links"]:
        bound = count_differs(listed(links), section["counted_bytes"], section["probed_bytes_max"])
    return f"captures show a loss of {lost} between {captures_text}, {bound}{hint}"


def count_differs(links: str, counted_bytes: int, probed_bytes_max: int) -> str:
    """The count of links that disagrees with captures, and its bound: links drop probes, too."""
    most = counted(probed_bytes_max, "byte")
    bound = f"that may only be larger, by at most {most} of probes" if probed_bytes_max else "both must be equal"
    return f"{links} counted {counted(counted_bytes, 'byte')}; {bound}"


def compared_links(sections: Sequence[Section]) -> list[str]:
    """The links whose count of what they dropped was compared with captures."""
    return list(dict.fromkeys(link for section in sections for link in section["links"]))


def proofs(sections: Sequence[Section], payload: Payload | None, direction: Direction = TO_ISLAND) -> list[str]:
    """The losses that captures prove, a line each."""
    lines = [_proof(section) for section in sections if agrees(section)]
    if payload is not None and not payload["wrong"] and not payload.get("lossy"):
        missing = abs(payload["world_bytes"] - payload["island_bytes"])
        suffix = f", {missing} remain of {counted(payload['open_connections'], 'open connection')}" if missing else ""
        confirmed = "clients received" if direction is TO_ISLAND else "servers confirmed"
        ends = f"; {confirmed} all bytes that arrived" if payload["received_bytes"] is not None else ""
        lines.append(f"{_payload_text(payload, direction)}{suffix}{ends}")
    return lines if direction is TO_ISLAND else [f"to the world, {line}" for line in lines]


def _proof(section: Section) -> str:
    captures = f"captures {section['first']} and {section['last']}"
    if section["links"]:
        links = ", ".join(section["links"])
        return f"{captures} differ by {counted(section['captured_bytes'], 'byte')}, which {links} counted as dropped"
    boxes_text = f" through {', '.join(section['boxes'])}" if section["boxes"] else ""
    return f"{captures} are equal to the byte{boxes_text}"


def _payload_text(payload: Payload, direction: Direction) -> str:
    entered, arrived = payload["world_bytes"], payload["island_bytes"]
    if direction is TO_WORLD:
        entered, arrived = arrived, entered
    return f"TCP payload through {', '.join(payload['boxes'])}: {counted(entered, 'byte')} entered, {arrived} arrived"


def judge_unproven(payload: Payload | None, direction: Direction = TO_ISLAND) -> list[Finding]:
    """Return a finding if boxes are declared not to conserve payload, so that its arrival is not proven."""
    if payload is None or not payload.get("lossy"):  # absent from what older versions analysed
        return []
    lossy = f"{listed(payload['lossy'], 'and')} may lose some (conserves_payload: false)"
    text = f"{_payload_text(payload, direction)}; {lossy}"
    return [caveat(FindingCode.PAYLOAD_UNPROVEN, text)]
