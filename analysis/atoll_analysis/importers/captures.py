# SPDX-License-Identifier: Apache-2.0
"""A pair of captures of any origin to a run directory, which is then analysed like that of a run."""

import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl

from atoll_analysis.importers.clock_alignment import MOST_DRIFT, ClockFit, PathDelay, common_packets, fit_clock
from atoll_analysis.importers.flow_records import seekable
from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import write_errors
from atoll_analysis.run_directory.directory import COMPLETED
from atoll_analysis.run_directory.scratch import scratch_folder
from atoll_analysis.tables.packet_records import ECHO_REQUEST, ICMP, CaptureError, convert, decode, scan_records
from atoll_analysis.tables.probe_filter import is_probe
from atoll_core.codec import to_json
from atoll_core.errors import DescriptionError, Diagnostic
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import HostRole, Network
from atoll_core.plan.plan import JobSpec, Plan
from atoll_core.platforms import CAPTURES

_WORLD, _ISLAND = "world", "island"
_MOST_TOO_SHORT = 0.1  # of the described round trip


def import_captures(
    files: Mapping[str, Path], network: Network, experiment: Experiment, plan: Plan, runs: Path, binary: Path
) -> RunDir:
    """Make a run directory below ``runs`` of the capture files ``world`` and ``island``; it is not analysed yet.

    ``plan``: its captures are these two, its jobs those of the whistles. ``binary``: the atoll-host
    executable. The files may be pipes. Raises DescriptionError if they cannot be read, or are not of one run in this
    lab; RunError if the disk is full.
    """
    with write_errors(runs):
        runs.mkdir(parents=True, exist_ok=True)
    with scratch_folder(runs, ".import-") as scratch:
        packets = _read(files, network, scratch, binary)
        common = common_packets(packets[_WORLD], packets[_ISLAND])
        clock = _compare_clocks(files, common, network, experiment)
        if not clock.is_same_clock:
            _correct(scratch, clock, network, binary)
            common = common_packets(packets[_WORLD], packets[_ISLAND])
        plan, start_ns = _with_whistles(plan, network, packets[_WORLD])
        end_ns = start_ns + experiment.duration.ns
        measured = _measured_spans(files, common, (start_ns, end_ns), network, experiment)
        start_ns, _ = measured[_WORLD]
        end_ns = min(end_ns, *(_instant(frame, pl.col("t_ns").max()) for frame in packets.values()))
        run = RunDir.create(runs, experiment.name, start_ns)
        for name in files:
            with write_errors(run.captures):
                shutil.move(scratch / f"{name}.pcap", run.captures)
        network = replace(network, taps=tuple(_one_way_taps(network, plan, packets)))
    facts: dict[str, Any] = {"files": {name: str(path) for name, path in files.items()}, "clock": asdict(clock)}
    facts["corrected"] = not clock.is_same_clock
    run.update_manifest(
        {
            "name": run.path.name,
            "place": CAPTURES,
            "seed": experiment.seed,
            "experiment": to_json(experiment),
            "network": to_json(network),
            "plan": to_json(plan),
            "imported": facts,
            "measured": measured,
            "started_ns": start_ns,
            "outcome": COMPLETED,
        }
    )
    run.append_event("window", start_ns, start_ns=start_ns, end_ns=end_ns)
    run.close()
    run.compress_captures()
    run.write_checksums()
    return run


def _read(files: Mapping[str, Path], network: Network, scratch: Path, binary: Path) -> dict[str, pl.LazyFrame]:
    """The packets of both files, which become pcap files in ``scratch``. All mistakes are raised at once."""

    def read(name: str) -> pl.LazyFrame | Diagnostic:
        path, folder = files[name], scratch / name
        folder.mkdir()
        try:
            file = seekable(path, folder)
        except OSError as error:
            return Diagnostic(str(path), 0, f"cannot be read: {error.strerror}")
        try:
            convert(file, scratch / f"{name}.pcap", binary)
            return _packets(scratch, name, network, binary)
        except CaptureError as error:
            return Diagnostic(str(path), 0, str(error).partition(f"{file}: ")[2] or str(error))

    with ThreadPoolExecutor(max_workers=2) as pool:
        read_files = dict(zip(files, pool.map(read, files), strict=True))
    mistakes = [each for each in read_files.values() if isinstance(each, Diagnostic)]
    packets = {name: each for name, each in read_files.items() if not isinstance(each, Diagnostic)}
    mistakes += [
        Diagnostic(str(files[name]), 0, f"has no IPv4 packet to {network.island}, the island of {network.file}")
        for name, frame in packets.items()
        if frame.filter(pl.col("to_island") == 1).head(1).collect().is_empty()
    ]
    if mistakes:
        raise DescriptionError(mistakes)
    return packets


def _packets(scratch: Path, name: str, network: Network, binary: Path) -> pl.LazyFrame:
    records = scratch / f"{name}.bin"
    decode(scratch / f"{name}.pcap", records, network.island, binary)
    return scan_records(records)


def _compare_clocks(
    files: Mapping[str, Path], common: pl.DataFrame, network: Network, experiment: Experiment
) -> ClockFit:
    delays = [_least_delay(network, experiment, direction) for direction in ("to_island", "to_world")]
    clock = fit_clock(common, *delays)
    if clock is None:
        message = f"has no two packets of one direction in common with {files[_WORLD]}: they are not of one run"
        raise DescriptionError([Diagnostic(str(files[_ISLAND]), 0, message)])
    if abs(clock.drift_ppb) > 1e9 * MOST_DRIFT:
        fast, bound = f"{clock.drift_ppb / 1e7:+.2f} %", f"{100 * MOST_DRIFT:g} %"
        message = f"its clock is fast by {fast} against that of {files[_WORLD]}, bound {bound}: they are not of one run"
        raise DescriptionError([Diagnostic(str(files[_ISLAND]), 0, message)])
    round_trip_ns = sum(delay.ns for delay in delays)
    if clock.offset_error_ns is not None and clock.too_short_ns > _MOST_TOO_SHORT * round_trip_ns:
        measured_ms, described_ms = (round_trip_ns - clock.too_short_ns) / 1e6, round_trip_ns / 1e6
        message = (
            f"its packets need {measured_ms:.1f} ms to {files[_ISLAND]} and back, but the links of {experiment.file} "
            f"{described_ms:.1f} ms: name the file of the world first, or correct the delays"
        )
        raise DescriptionError([Diagnostic(str(files[_WORLD]), 0, message)])
    return clock


def _least_delay(network: Network, experiment: Experiment, direction: str) -> PathDelay:
    """The least over all chains that pass both taps."""
    taps, links = {tap.name for tap in network.taps}, {box.name for box in network.boxes if box.is_link}
    first, *_, last = (hop for hop in experiment.chain.hops if hop in taps)
    between = (
        hops[hops.index(first) : hops.index(last)]
        for hops in (chain.hops for chain in experiment.all_chains)
        if first in hops and last in hops[hops.index(first) :]
    )
    paths = (tuple(experiment.link(hop) for hop in hops if hop in links) for hops in between)
    return min((PathDelay.of_links(path, direction) for path in paths), key=lambda delay: delay.ns)


def _correct(scratch: Path, clock: ClockFit, network: Network, binary: Path) -> None:
    """Replace the island's capture by one with the instants of the world's clock."""
    corrected = scratch / "corrected.pcap"
    convert(scratch / f"{_ISLAND}.pcap", corrected, binary, (clock.offset_ns, clock.drift_ppb, clock.since_ns))
    corrected.replace(scratch / f"{_ISLAND}.pcap")
    _packets(scratch, _ISLAND, network, binary)  # the records that were read lazily


def _with_whistles(plan: Plan, network: Network, world: pl.LazyFrame) -> tuple[Plan, int]:
    """The plan with the identifiers of the whistles in the world's capture, and the start of the measurement.

    Those of atoll are known by their identifiers. Of others the first is the start and the last the end; a single one
    is the end if it is in the second half of the capture. Without a start the measurement begins with the first packet.
    """
    senders = [int(host.address) for host in network.with_role(HostRole.WORLD_WHISTLE)]
    is_whistle = pl.col("src").is_in(senders) & (pl.col("proto") == ICMP) & (pl.col("icmp_type") == ECHO_REQUEST)
    whistles = world.filter(is_whistle & ~is_probe()).group_by("sport").agg(pl.col("t_ns").min()).sort("t_ns").collect()
    heard_ns: dict[int, int] = dict(whistles.iter_rows())
    first_ns, last_ns = (_instant(world, instant) for instant in (pl.col("t_ns").min(), pl.col("t_ns").max()))
    ends = {job.name.removeprefix("whistle-"): (job.config or {}).get("identifier") for job in plan.jobs}
    if heard_ns and not heard_ns.keys() & set(ends.values()):
        first, last = next(iter(heard_ns)), [*heard_ns][-1]
        ends = {"start": first, "end": last}
        if first == last:
            ends = {"end" if 2 * heard_ns[first] > first_ns + last_ns else "start": first}

    def heard(job: JobSpec) -> JobSpec:
        identifier = ends.get(job.name.removeprefix("whistle-"))
        return job if identifier is None else replace(job, config={**(job.config or {}), "identifier": identifier})

    return replace(plan, jobs=tuple(map(heard, plan.jobs))), heard_ns.get(ends.get("start") or 0, first_ns)


def _measured_spans(
    files: Mapping[str, Path],
    common: pl.DataFrame,
    window: tuple[int, int],
    network: Network,
    experiment: Experiment,
) -> dict[str, tuple[int, int]]:
    """First and last instant of the packets of the measurement that both captures cover.

    Of packets to the island by capture, of those to the world as ``to_world``; with uploads, of these by capture, too,
    as ``world_to_world`` and ``island_to_world``. A link is a queue: packets behind the first common packet were sent
    after it, packets before the first one that was sent too late were sent in time.
    """
    spans = _spans_by_capture(common.filter(to_island=1), _WORLD, _ISLAND, window)
    if not spans:
        message = f"has no packet of the measurement to the island in common with {files[_WORLD]}"
        raise DescriptionError([Diagnostic(str(files[_ISLAND]), 0, message)])
    to_world = spans[_WORLD][0] - round(_least_delay(network, experiment, "to_world").ns), window[1]
    if experiment.has_uploads:
        uploads = _spans_by_capture(common.filter(to_island=0), _ISLAND, _WORLD, to_world)
        spans |= {f"{name}_to_world": span for name, span in uploads.items()}
    return {**spans, "to_world": to_world}


def _spans_by_capture(
    common: pl.DataFrame, first: str, last: str, window: tuple[int, int]
) -> dict[str, tuple[int, int]]:
    """The spans of packets of one direction, which pass ``first`` in the window; empty: there are none."""
    start_ns, end_ns = window
    sent = common.sort(f"{first}_ns")
    measured = sent.filter(pl.col(f"{first}_ns").is_between(start_ns, end_ns))
    if measured.is_empty():
        return {}
    later = sent.filter(pl.col(f"{first}_ns") > end_ns)
    spans = {name: (measured[f"{name}_ns"][0], measured[f"{name}_ns"][-1]) for name in (first, last)}
    if len(later):
        spans = {first: (spans[first][0], end_ns), last: (spans[last][0], later[f"{last}_ns"][0] - 1)}
    return spans


def _one_way_taps(network: Network, plan: Plan, packets: Mapping[str, pl.LazyFrame]) -> Any:
    """The lab's taps; one whose capture has packets to the island only has no others."""
    interfaces = {(point.host, point.interface): point.name for point in plan.captures}
    for tap in network.taps:
        name = interfaces.get((tap.host, tap.interface.name))
        is_two_way = name and not packets[name].filter(pl.col("to_island") == 0).head(1).collect().is_empty()
        yield tap if name is None else replace(tap, to_island_only=not is_two_way)


def _instant(packets: pl.LazyFrame, instant: pl.Expr) -> int:
    return int(packets.select(instant).collect().item())
