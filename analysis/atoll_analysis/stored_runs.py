# SPDX-License-Identifier: Apache-2.0
"""Run directories on the disk: found, listed, verified, and made smaller. Reads no tables but their number of rows."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, cast

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import write_errors
from atoll_analysis.run_directory.directory import RUNNING
from atoll_analysis.run_directory.file_record import RECORD, update_checksums
from atoll_core.errors import AtollError, RunDirError, RunError

NOT_ANALYSED = "not analysed"
"""The verdict of a run without a summary."""

KILLED = "killed"
"""The outcome of a run that recorded no end and is no longer written to."""

DAMAGED = "damaged"
"""The verdict of a run that misses data; `atoll runs verify` names the files."""

_ANY_ADDRESS = IPv4Network("0.0.0.0/0")


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run directory as it is listed."""

    path: Path
    experiment: str
    platform: str
    seed: int | None
    duration_s: float | None
    outcome: str  # the manifest's
    verdict: str  # the summary's, else DAMAGED or NOT_ANALYSED
    size_bytes: int  # of all its files
    captures_bytes: int

    def to_json(self) -> dict[str, Any]:
        """The run for `--json`."""
        return {name: getattr(self, name) for name in self.__slots__} | {"path": str(self.path)}


def find_runs(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the run directories at or below some folders, in the order of their names.

    Directories below a run are not searched. Raises RunDirError for a folder that there is not.
    """
    for folder in folders:
        if not folder.is_dir():
            raise RunDirError(f"{folder}: there is no such directory")
        for path, subfolders, files in os.walk(folder):
            subfolders.sort()
            if "manifest.json" in files or RECORD in files:
                subfolders.clear()
                yield Path(path)


def stored_run(path: Path) -> StoredRun:
    """Read what is listed of a run. Raises RunDirError if its manifest cannot be read."""
    run = RunDir.open(path, allow_damaged=True)
    manifest = run.manifest()
    experiment = cast("dict[str, Any]", manifest.get("experiment") or {})
    verdict = NOT_ANALYSED
    with suppress(AtollError, ValueError, KeyError):
        verdict = DAMAGED if run.damages() else str(run.summary()["verdict"])
    duration = experiment.get("duration")
    return StoredRun(
        path=path,
        experiment=str(experiment.get("name", "")),
        platform=str(manifest.get("place", "")),
        seed=experiment.get("seed"),
        duration_s=duration / 1e9 if isinstance(duration, int) else None,
        outcome=_outcome(run, manifest).splitlines()[0],
        verdict=verdict,
        size_bytes=_size(path),
        captures_bytes=_size(run.captures),
    )


def verify_run(path: Path, binary: Path) -> list[str]:
    """The damages of a run, a line each; none if every file is whole and captures agree with their tables.

    ``binary``: the atoll-host executable, which decodes captures. Those of a run that was killed may end in the middle
    of a packet; that is reported, too.
    """
    try:
        run = RunDir.open(path, allow_damaged=True)
        manifest = run.manifest()
    except RunDirError as error:
        return [str(error)]
    damages = run.damages(contents=True)
    lines = list(damages.values())
    plan = cast("dict[str, Any]", manifest.get("plan") or {})
    control = cast("dict[str, Any]", manifest.get("network") or {}).get("control")
    control_network = IPv4Network(control["network"]) if control else None
    for point in plan.get("captures", ()):
        name = str(point["name"])
        capture = run.capture(name)
        if (capture or run.captures / f"{name}.pcap.zst") in damages:
            continue
        if capture is not None:
            lines += _capture_damages(capture, run.tables / f"packets-{name}.parquet", binary, control_network)
        elif "captures_dropped" not in manifest:
            lines.append(f"{run.captures / name}.pcap.zst: there is no such file")
    for table in sorted(run.tables.glob("*.parquet")):
        if isinstance(error := _rows(table), str) and table not in damages:
            lines.append(error)
    try:
        run.summary()
    except AtollError as error:
        if run.path / "summary.json" not in damages:
            lines.append(str(error))
    return lines


def drop_captures(path: Path) -> int:
    """Delete the captures of an analysed run; tables, summary and report stay. Returns the bytes freed.

    The manifest then has ``captures_dropped``, and the run cannot be analysed again. Raises RunDirError if it is in
    progress or was not analysed, RunError if files cannot be deleted.
    """
    run = RunDir.open(path)
    manifest = run.manifest()
    if _outcome(run, manifest) == RUNNING:
        raise RunDirError(f"{path}: the run is in progress")
    if not (path / "summary.json").exists() or not list(run.tables.glob("packets-*.parquet")):
        raise RunDirError(
            f"{path}: not analysed yet, so its captures are the only data; `atoll report {path}` analyses it"
        )
    captures = sorted(capture for capture in run.captures.glob("*.pcap*") if capture.is_file())
    freed_bytes = {capture.name: capture.stat().st_size for capture in captures}
    if not captures:
        return 0
    run.update_manifest({"captures_dropped": {**manifest.get("captures_dropped", {}), **freed_bytes}})
    update_checksums(path, (), [str(capture.relative_to(path)) for capture in captures])
    for capture in captures:
        with write_errors(capture):
            capture.unlink()
    return sum(freed_bytes.values())


def _outcome(run: RunDir, manifest: Mapping[str, Any]) -> str:
    """The outcome as recorded; ``KILLED`` of a run that recorded none and has not been written to lately."""
    outcome = str(manifest.get("outcome", RUNNING))
    return KILLED if outcome == RUNNING and not run.was_written_recently() else outcome


def _capture_damages(capture: Path, table: Path, binary: Path, control_network: IPv4Network | None) -> list[str]:
    """What is wrong with a capture, or with the table of its packets. ``control_network``: as it was decoded."""
    from atoll_analysis.tables.packet_records import decode

    try:
        decoded = decode(capture, None, _ANY_ADDRESS, binary, control_network=control_network)
    except RunError as error:
        return [f"{capture}: {error}"]
    if decoded.truncated:
        return [f"{capture}: ends within a packet, after {decoded.packets} IPv4 packets"]
    rows = _rows(table) if table.exists() else decoded.packets
    if isinstance(rows, str) or rows == decoded.packets:
        return []
    return [f"{table}: {rows} packets, but {decoded.packets} in {capture.name}; analyse the run again"]


def _size(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += (Path(folder) / name).lstat().st_size
    return total


def _rows(table: Path) -> int | str:
    """The number of rows of a table, or the error of reading it."""
    import polars as pl

    from atoll_analysis.tables.table_schemas import scan_table

    try:
        return int(scan_table(table).select(pl.len()).collect().item())
    except RunDirError as error:
        return str(error)
