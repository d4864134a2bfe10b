# SPDX-License-Identifier: Apache-2.0
"""Tables from logs of jobs: pings, box counters, flow logs, transfer, captures.

Logs that were cut give shorter tables, missing ones empty tables.
"""

from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import Any

import polars as pl

from atoll_analysis.run_directory.directory import read_json_lines
from atoll_analysis.tables.box_counters import parts
from atoll_analysis.tables.directions import TO_WORLD, Direction
from atoll_analysis.tables.row_spool import RowSpool
from atoll_analysis.tables.table_schemas import TABLES

_FLOW_LOG_SCHEMA = {
    name: kind for name, kind in TABLES["channel_flows"].types.items() if name not in ("client", "chain")
}


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
            for part, counters in parts(line):
                rows.append((str(line.get("box")), part), {**counters, "t_ns": line.get("t_ns")})
    return rows.table()


def channel_flow_table(logs: Path) -> pl.LazyFrame:
    """logs/flows-<client>.csv of all clients; a line cut by a kill is left out."""
    frames = [
        pl.scan_csv(path, schema=_FLOW_LOG_SCHEMA, truncate_ragged_lines=True, ignore_errors=True, glob=False)
        .filter(pl.col("outcome").is_not_null())
        .with_columns(client=pl.lit(path.stem.removeprefix("flows-")))
        for path in sorted(logs.glob("flows-*.csv"))
        if path.stat().st_size > 0
    ]
    return pl.concat(frames) if frames else pl.LazyFrame(schema={**_FLOW_LOG_SCHEMA, "client": pl.String})


def udp_table(logs: Path, scratch: Path) -> pl.LazyFrame:
    """Counts of the UDP receivers every 100 ms, of their logs; null where an older version did not report a count."""
    rows = RowSpool(scratch, "udp", ["host"], [key for key in TABLES["udp"].columns if key != "host"], "t_ns")
    for host, log in udp_receiver_logs(logs).items():
        for line in read_json_lines(log):
            if line.get("type") == "counters":
                rows.append((host,), line)
    return rows.table()


def udp_receiver_logs(logs: Path) -> dict[str, Path]:
    """Return the log of each UDP receiver, by its host; an older run has one, named without the host."""
    log_files = sorted(logs.glob("udp-receive*.out"))
    return {log.stem.removeprefix("udp-receive").removeprefix("-"): log for log in log_files}


def flows_of(direction: Direction, uploading: Collection[str]) -> pl.Expr:
    """Whether a client's flow has this direction. ``uploading``: the clients whose flows are uploads."""
    is_upload = pl.col("client").is_in([*uploading])
    return is_upload if direction is TO_WORLD else ~is_upload


def transfer_reports(logs: Path, job: str) -> list[dict[str, Any]]:
    """Return the reports of a transfer's receiver, one for each download; none if it was cut short, or is iperf3."""
    return [line for line in read_json_lines(logs / f"{job}.out") if line.get("type") == "done"]


def channel_service_figures(logs: Path) -> tuple[float | None, int | None, int | None]:
    """Return fairness, longest wait in ns, and flows that were given up as nothing came, by the clients' final reports.

    Fairness is Jain's index over the shares of their demand that channels completed, the least of the clients. The wait
    is that of a ready channel. None: no channel was served, or the run is older than the figure. Clients that measured
    no waits are left out: their index is always 1.
    """
    reports = [
        line
        for path in sorted(logs.glob("load-*.out"))
        for line in read_json_lines(path)
        if line.get("type") == "done" and line.get("longest_wait_ns") is not None and line.get("channels_served") != 0
    ]
    indices = [float(line["fairness"]) for line in reports if line.get("fairness") is not None]
    waits = (int(line["longest_wait_ns"]) for line in reports)
    given_up = [int(line["flows_silent"]) for line in reports if "flows_silent" in line]
    return min(indices, default=None), max(waits, default=None), sum(given_up) if given_up else None


def unsent_and_unstamped_pings(logs: Path) -> tuple[int | None, int | None]:
    """Pings of the series that were refused by the kernel, and answered ones with a stamp that is not the kernel's.

    None where the job did not report: it was killed, or is of an older version.
    """
    report = last_line(logs / "ping.out", "done")
    targets = [target for target in (report["targets"].values() if report else ()) if "unsent" in target]
    if not targets:
        return None, None
    return sum(int(target["unsent"]) for target in targets), sum(int(target["unstamped"]) for target in targets)


def capture_counts(logs: Path, name: str) -> tuple[int | None, int | None, int | None]:
    """Packets that a capture wrote, had no room for, and wrote without the checksum that senders leave to hardware.

    By the last counts in logs/capture-<name>.out; of a capture that was killed, they are up to one second old. None:
    not reported.
    """
    counters = last_line(logs / f"capture-{name}.out", "counters", "done") or {}
    return counters.get("captured_packets"), counters.get("dropped_packets"), counters.get("unchecked_packets")


def last_line(log: Path, *types: str) -> dict[str, Any] | None:
    """The last line of a log that is of one of these types."""
    return next(iter(deque((line for line in read_json_lines(log) if line.get("type") in types), maxlen=1)), None)
