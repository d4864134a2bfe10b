# SPDX-License-Identifier: Apache-2.0
"""Verdict of an imported run: its captures are all that is known of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from atoll_analysis.tables.directions import TO_ISLAND, Direction
from atoll_analysis.verdict.findings import Finding, FindingCode, caveat, reason
from atoll_core.plural import counted

CLOCK_ERROR_MS = 1.0
"""The largest error of the clocks' offset without a caveat: a window of 100 ms is wrong by 1 % then."""

NOT_IN_CAPTURES: Mapping[str, tuple[str, ...]] = {
    "packets that the capture programs dropped": (),  # the key `dropped` of each capture
    "queue and drops as the link counts them": (
        *("queue_max_bytes", "idle_s", "queue_full_s", "standing_queue", "loss_bytes_link", "ping_path_loss"),
        *("path_loss", "drained"),
    ),
    "punctuality of links and delay boxes": (
        *("windows_over_rate", "scheduled_windows_over_rate", "lateness_max_ms", "lateness_p99_ms", "stalls"),
        *("stalled_s", "overloaded", "oversize_packets", "unknown_vlan_packets", "unread_packets"),
        *("unstamped_packets", "no_checksum_packets", "clamped_packets", "clamped_max_ms", "overhead_s"),
    ),
    "latencies before the run": ("terrestrial_rtt_ms", "base_rtt_ms"),
    "pings as their sender counts them": (
        *("rtt_max_ms", "ping_sojourn", "sojourn_max_ms", "ping_sent", "ping_lost", "ping_planned", "ping_last_s"),
        *("ping_unsent", "ping_unstamped"),
    ),
    "flows as clients count them": (
        *("flows_completed", "flows_cut", "flows_failed", "flows_silent", "flows_failed_in_changes"),
        *("mean_flow_bytes", "flow_classes", "initial_window", "long_flows_mean", "fairness", "longest_wait_ms"),
        *("flow_shares", "silences", "flow_tries", "transfer_failure", "udp"),
    ),
    "repeated transfers": (),  # which of their downloads were complete
    "clocks, starts and losses of the machines": ("clocks", "start", "lost_outside"),
}
"""Keys of the summary that captures do not show, by subject."""


_CAVEATS = {
    FindingCode.WHISTLE_MISSING,  # common packets align the captures
    FindingCode.CUT_SHORT,  # it is measured until the captures end
}
"""Reasons of other runs that are caveats of an imported one."""


class ImportedFigures(TypedDict):
    """Origin of a run that was imported from captures, and the clock of its capture `island`."""

    world: str  # file of the capture `world`
    island: str  # file of the capture `island`
    offset_ms: float  # how far the clock of `island` was ahead of that of `world` at its first packet
    # error of this offset, if the links' delays are not shorter than described; None: the captures have packets of one
    # direction only, and the described delay is taken to be exact
    offset_error_ms: float | None
    drift_ppm: float  # how much faster the clock of `island` was
    # error of this drift; None: the captures have fewer than 100 common packets of a direction
    drift_error_ppm: float | None
    corrected: bool  # the instants of `island` were corrected by offset and drift; false: the clocks differ too little
    common_packets: int  # packets in both captures, from which the clocks are known
    not_in_captures: list[str]  # keys of the summary that are null, as captures do not show them


def imported_figures(manifest: Mapping[str, Any]) -> ImportedFigures | None:
    """Return the figures of an imported run; None of another one."""
    imported = manifest.get("imported")
    if imported is None:
        return None
    clock, files = imported["clock"], imported["files"]
    offset_error_ns, drift_error_ppb = clock["offset_error_ns"], clock["drift_error_ppb"]
    return ImportedFigures(
        world=files["world"],
        island=files["island"],
        offset_ms=clock["offset_ns"] / 1e6,
        offset_error_ms=None if offset_error_ns is None else offset_error_ns / 1e6,
        drift_ppm=clock["drift_ppb"] / 1e3,
        drift_error_ppm=None if drift_error_ppb is None else drift_error_ppb / 1e3,
        corrected=imported["corrected"],
        common_packets=sum(clock["packets"]),
        not_in_captures=[key for keys in NOT_IN_CAPTURES.values() for key in keys],
    )


def clock_note(imported: ImportedFigures) -> str:
    """Return the note on the clocks of the captures."""
    error_ms, drift_error_ppm = imported["offset_error_ms"], imported["drift_error_ppm"]
    offset = f"{imported['offset_ms']:+.3f} ms{'' if error_ms is None else f' ± {error_ms:.3f} ms'}"
    drift = f"{imported['drift_ppm']:+.3f} ppm{'' if drift_error_ppm is None else f' ± {drift_error_ppm:.3f} ppm'}"
    corrected = "its instants were corrected" if imported["corrected"] else "its instants were not changed"
    packets = counted(imported["common_packets"], "common packet")
    return f"by {packets} the clock of island was ahead of that of world by {offset}, and fast by {drift}; {corrected}"


def judge_imported(
    imported: ImportedFigures,
    findings: Sequence[Finding],
    lost_packets: Mapping[Direction, int | None],
    duration_s: float,
) -> Iterator[Finding]:
    """Return the findings of an imported run, with a caveat for each subject that could not be checked.

    ``lost_packets``: between both captures, by direction; None: a box between them changes packets. ``duration_s``: of
    the measurement.
    """
    for finding in findings:
        if finding.code in _CAVEATS:
            yield replace(finding, is_reason=False)
        elif finding.code is not FindingCode.CAPTURE_UNCOUNTED:
            yield finding
    for direction, lost in lost_packets.items():
        if lost is not None and lost < 0:
            last, first = ("island", "world") if direction is TO_ISLAND else ("world", "island")
            text = f"{last} captured {counted(-lost, 'packet')} more than {first}, bound 0: packets were added"
            yield reason(FindingCode.LOSS_DIFFERS, text)
    error_ms = imported["offset_error_ms"]
    if error_ms is None:
        text = "the captures have packets of one direction only: their clocks differ by as much as the described delays"
        yield caveat(FindingCode.CLOCKS_UNCERTAIN, f"{text} are wrong")
    elif (error_ms := error_ms + (imported["drift_error_ppm"] or 0.0) * duration_s / 1e3) > CLOCK_ERROR_MS:
        text = f"the clocks of the captures are known to ± {error_ms:.2f} ms, bound {CLOCK_ERROR_MS:g} ms"
        yield caveat(FindingCode.CLOCKS_UNCERTAIN, text)
    for subject, keys in NOT_IN_CAPTURES.items():
        text = f"captures do not show {subject}"
        yield caveat(FindingCode.NOT_IN_CAPTURES, f"{text} ({', '.join(keys)})" if keys else text)
