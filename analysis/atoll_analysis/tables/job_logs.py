# SPDX-License-Identifier: Apache-2.0
"""Tables from logs of jobs: pings, box counters, flow logs, transfer, captures.

Logs that were cut give shorter tables, missing ones empty tables.
"""

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from atoll_analysis.run_directory.directory import read_json_lines
from atoll_analysis.tables.box_counters import parts
from atoll_analysis.tables.row_spool import RowSpool
from atoll_analysis.tables.table_schemas import TABLES

_FLOW_LOG = {name: kind for name, kind in TABLES["channel_flows"].types.items() if name not in ("client", "chain")}


def ping_table(logs: Path, scratch: Path) -> pl.LazyFrame:
    """logs/ping.out: target, seq, sent_ns, rtt_ns; a lost ping has no rtt_ns.

    This table and those below use files in ``scratch``, which must exist until the tables are written.
    """
    rows = RowSpool(scratch, "pings", ["target"], ["seq", "sent_ns", "rtt_ns"], "seq")
    for line in read_json_lines(logs / "ping.out"):
        if line.get("type") in ("reply", "lost"):
            rows.append((str(line.get("target")),), line)
    return rows.table()


def box_table(path: Path, scratch: Path) -> pl.LazyFrame:
    """link.jsonl: each counters line, a row for each direction or class; null for counters that a box does not have."""
    rows = RowSpool(scratch, "boxes", ["box", "part"], list(TABLES["boxes"].columns)[2:], "t_ns")
    for line in read_json_lines(path):
        if line.get("type") == "counters":
            for part, found in parts(line):
                rows.append((str(line.get("box")), part), {**found, "t_ns": line.get("t_ns")})
    return rows.table()


def channel_flow_table(logs: Path) -> pl.LazyFrame:
    """logs/flows-<client>.csv of all clients; a line cut by a kill is left out."""
    frames = [
        pl.scan_csv(path, schema=_FLOW_LOG, truncate_ragged_lines=True, ignore_errors=True, glob=False)
        .filter(pl.col("outcome").is_not_null())
        .with_columns(client=pl.lit(path.stem.removeprefix("flows-")))
        for path in sorted(logs.glob("flows-*.csv"))
        if path.stat().st_size > 0
    ]
    return pl.concat(frames) if frames else pl.LazyFrame(schema={**_FLOW_LOG, "client": pl.String})


def udp_table(logs: Path, scratch: Path) -> pl.LazyFrame:
    """logs/udp-receive.out: the receiver's counts every 100 ms; null where an older version did not report a count."""
    rows = RowSpool(scratch, "udp", [], list(TABLES["udp"].columns), "t_ns")
    for line in read_json_lines(logs / "udp-receive.out"):
        if line.get("type") == "counters":
            rows.append((), line)
    return rows.table()


def transfer_done(logs: Path) -> dict[str, Any] | None:
    """Return the final report of the transfer's receiver; None if there is none (cut short, iperf3)."""
    return _last(logs / "transfer-receive.out", "done")


@dataclass(frozen=True, slots=True)
class LoadService:
    """How the clients served their channels; None: no channel was served, or the run is older than the figure."""

    fairness: float | None  # Jain's index over what channels completed of what they asked for, the least of the clients
    longest_wait_ns: int | None  # of a ready channel, the most of the clients
    silent: int | None = None  # flows given up because nothing came on their connections; None: not counted


def load_service(logs: Path) -> LoadService:
    """Return the clients' final reports, without clients that measured no waits, whose index is always 1."""
    found = [
        line
        for path in sorted(logs.glob("load-*.out"))
        for line in read_json_lines(path)
        if line.get("type") == "done" and line.get("longest_wait_ns") is not None and line.get("channels_served") != 0
    ]
    indices = [float(line["fairness"]) for line in found if line.get("fairness") is not None]
    waits = (int(line["longest_wait_ns"]) for line in found)
    silent = [int(line["flows_silent"]) for line in found if "flows_silent" in line]
    return LoadService(min(indices, default=None), max(waits, default=None), sum(silent) if silent else None)


def ping_accounts(logs: Path) -> tuple[int | None, int | None]:
    """Pings of the series that were refused by the kernel, and answered ones with a stamp that is not the kernel's.

    None where the job did not report: it was killed, or is of an older version.
    """
    end = _last(logs / "ping.out", "done")
    said = [target for target in (end["targets"].values() if end else ()) if "unsent" in target]
    if not said:
        return None, None
    return sum(int(target["unsent"]) for target in said), sum(int(target["unstamped"]) for target in said)


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """Counts of a capture job; None: not reported."""

    captured: int | None  # packets that it wrote
    dropped: int | None  # that its ring had no room for
    unchecked: int | None  # written, without the checksum that their sender left to hardware


def capture_counts(logs: Path, name: str) -> CaptureCounts:
    """The last counts in logs/capture-<name>.out. For a capture that was killed, they are up to one second old."""
    last = _last(logs / f"capture-{name}.out", "counters", "done") or {}
    return CaptureCounts(last.get("captured_packets"), last.get("dropped_packets"), last.get("unchecked_packets"))


def _last(log: Path, *types: str) -> dict[str, Any] | None:
    """The last line of a log that is of one of these types."""
    found = deque((line for line in read_json_lines(log) if line.get("type") in types), maxlen=1)
    return found[0] if found else None
