# SPDX-License-Identifier: Apache-2.0
"""The large transfers of a run: each download or upload, and their median."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median_low
from typing import Any, NotRequired, TypedDict

import polars as pl

from atoll_analysis.tables.change_timeline import NEVER_NS
from atoll_analysis.tables.directions import Direction
from atoll_analysis.tables.job_logs import last_line, transfer_reports
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import Tables
from atoll_core.experiment.experiment import ONLY_TRANSFER, Protocol, Transfer
from atoll_core.experiment.traffic import REQUEST_BYTES


class Download(TypedDict):
    """One download or upload of a transfer."""

    start_s: float | None  # its start, from the start of the measurement; None: only a capture shows it
    # bytes that its receiver got; of an incomplete upload behind another one, those that were acknowledged, which a PEP
    # may hold
    received_bytes: int
    complete: bool  # it was received in full
    # time that it took, of an upload until the receiver's confirmation had come; None: it did not complete
    seconds: float | None
    failure: str | None  # error that broke it off; None: no error


class TransferFigures(TypedDict):
    """A large transfer: one download or upload, or several one after another."""

    sender: str  # name of the host that sends
    receiver: str  # name of the host that receives
    chains: list[str]  # chains that carried its packets, in order of time
    bytes: int  # size of each download
    # planned time from the first start to the end of the measurement; None: of a run that an older version analysed
    room_s: float | None
    received_bytes: int | None  # bytes that its receiver got, of all downloads; None: not known
    # every download was received in full, one excepted that the end of the run cut after others; None: not known
    complete: bool | None
    tries: int | None  # least number of attempts of its connection, if nothing arrived; None: not measured
    failure: str | None  # error of its programs, or of the first download that broke off; None: no error
    seconds: float | None  # time that a download took, of several the median; None: it did not complete
    # time until the kernel of its sender had the last byte, long before the receiver behind a PEP; None: not reported
    sender_seconds: NotRequired[float | None]
    mbit_s: float | None  # rate of a download of this time; None: likewise
    downloads: list[Download]  # the downloads in their order
    skipped: int  # starts that were left out, as the download before them lasted


SINGLE_TRANSFER_KEYS = {
    **{key: key for key in ("bytes", "room_s", "received_bytes", "tries", "failure", "complete", "mbit_s")},
    "s": "seconds",
}
"""Keys of the summary, without ``transfer_``, and of its figures, for a run with one transfer."""


def transfer_figures(
    data: RunData, tables: Tables, logs: Path, transfer: Transfer, tries: int | None
) -> TransferFigures:
    """The figures of a transfer. ``tries``: as in the figures."""
    world, island = transfer.ends(data.network)
    sender, receiver = (island, world) if transfer.is_upload else (world, island)
    downloads = _downloads(data, tables, logs, transfer)
    size_bytes, counted = transfer.size.bytes, counted_downloads(downloads)
    complete = all(download["complete"] for download in counted) if counted else None
    seconds = _median_s(counted)
    failures = (download["failure"] for download in downloads)
    return TransferFigures(
        sender=sender.name,
        receiver=receiver.name,
        chains=_chains(data, transfer, downloads),
        bytes=size_bytes,
        room_s=data.experiment.duration.s - transfer.start.s,
        received_bytes=sum(download["received_bytes"] for download in downloads) if downloads else None,
        complete=complete,
        tries=tries,
        failure=_failure_of_programs(data, transfer) or next(filter(None, failures), None),
        seconds=seconds,
        sender_seconds=None if transfer.is_upload or transfer.every else _sender_seconds(logs, transfer),
        mbit_s=8 * size_bytes / seconds / 1e6 if seconds else None,
        downloads=downloads,
        skipped=_skipped(transfer, downloads),
    )


def _chains(data: RunData, transfer: Transfer, downloads: Sequence[Download]) -> list[str]:
    """The names of the chains that carried it, from its first start to the end of its last download, or of the run."""
    origin_ns, until_ns = data.window.start_ns if data.window else 0, NEVER_NS
    if downloads and (last := downloads[-1])["start_s"] is not None and last["seconds"]:
        until_ns = origin_ns + round((last["start_s"] + last["seconds"]) * 1e9)
    ends = transfer.ends(data.network)
    carriers = data.topology.chains_between(*ends, Protocol.TCP, origin_ns + transfer.start.ns, until_ns)
    return list(dict.fromkeys(chain.name for chain in carriers))


def transfer_in_capture(tables: Tables, transfer: Transfer) -> tuple[int, float] | None:
    """A transfer as the arrival capture saw it: bytes that arrived, seconds from its first to its last packet.

    Use this figure for iperf3, whose first connection to the port is for control alone: without a second one no byte
    arrived. None: no such capture.
    """
    direction = Direction(transfer.direction.of_link)
    arrival = tables.arrival_of(direction)
    if arrival is None:
        return None
    skipped_connections = 1 if transfer.tool == "iperf3" else 0
    flow = (
        tables.scan("flows", direction)
        .filter((pl.col("capture") == arrival) & (pl.col("protocol") == "tcp") & (pl.col("sport") == transfer.port))
        .sort("first_ns")
        .slice(skipped_connections)
        .sort("goodput_bytes", descending=True)
        .head(1)
        .collect()
    )
    if flow.is_empty():
        return 0, 0.0
    row = flow.row(0, named=True)
    return int(row["goodput_bytes"]), (row["last_ns"] - row["first_ns"]) / 1e9


def _downloads(data: RunData, tables: Tables, logs: Path, transfer: Transfer) -> list[Download]:
    """The downloads that the client reported; without a report (cut short, iperf3) the one that the capture shows."""
    reports = transfer_reports(logs, transfer.client_job)
    if reports and transfer.is_upload:
        reports[-1] = _as_received(reports, logs, transfer)
    if reports or transfer.every:
        return [_reported(data, report) for report in reports]
    captured = transfer_in_capture(tables, transfer)
    if captured is None:
        return []
    arrived_bytes, seconds = captured
    request_bytes = REQUEST_BYTES if transfer.is_upload and transfer.tool == "atoll" else 0
    received_bytes = max(0, arrived_bytes - request_bytes)
    complete = received_bytes >= transfer.size.bytes
    return [
        Download(
            start_s=None,
            received_bytes=received_bytes,
            complete=complete,
            seconds=seconds if complete else None,
            failure=None,
        )
    ]


def _sender_seconds(logs: Path, transfer: Transfer) -> float | None:
    """The time by the sender of a download: its kernel, or behind it a PEP, had the last byte. None: it was cut short.

    iperf3's receiver prints the sender's report, too.
    """
    try:
        if transfer.tool == "iperf3":
            report = json.loads((logs / f"{transfer.client_job}.out").read_text())["end"]["sum_sent"]
        else:
            report = last_line(logs / f"{transfer.server_job}.out", "done") or {}
        return float(report["seconds"])
    except (OSError, ValueError, KeyError):
        return None


def _as_received(reports: Sequence[dict[str, Any]], logs: Path, transfer: Transfer) -> dict[str, Any]:
    """Return the last report with the bytes that the server got.

    Of an upload that did not complete the client knows the acknowledged bytes, which a box that ends connections may
    hold.
    """
    *before, last = reports
    server = last_line(logs / f"{transfer.server_job}.out", "done")
    if last.get("complete") or server is None or any(not report.get("complete") for report in before):
        return last
    earlier_bytes = sum(int(report.get("received_bytes", 0)) for report in before)
    return {**last, "received_bytes": max(0, int(server.get("received_bytes", 0)) - earlier_bytes)}


def _reported(data: RunData, report: dict[str, Any]) -> Download:
    complete, start_ns = bool(report.get("complete")), report.get("start_ns")
    return Download(
        start_s=(start_ns - data.window.start_ns) / 1e9 if data.window and start_ns is not None else None,
        received_bytes=int(report.get("received_bytes", 0)),
        complete=complete,
        seconds=float(report["seconds"]) if complete and report.get("seconds") else None,
        failure=report.get("error"),
    )


def counted_downloads(downloads: Sequence[Download]) -> Sequence[Download]:
    """The downloads without the last one, if the end of the run cut it after others."""
    is_cut = len(downloads) > 1 and not (downloads[-1]["complete"] or downloads[-1]["failure"])
    return downloads[:-1] if is_cut else downloads


def _median_s(downloads: Sequence[Download]) -> float | None:
    """The median of their times, of an even number the lower one; None if half of them did not complete."""
    times_s = [math.inf if download["seconds"] is None else download["seconds"] for download in downloads]
    seconds = median_low(times_s) if times_s else math.inf
    return seconds if seconds < math.inf else None


def _skipped(transfer: Transfer, downloads: Sequence[Download]) -> int:
    """The number of starts before the last download that were left out."""
    last_s = downloads[-1]["start_s"] if downloads else None
    if transfer.every is None or last_s is None:
        return 0
    return round((last_s - transfer.start.s) / transfer.every.s) + 1 - len(downloads)


def _failure_of_programs(data: RunData, transfer: Transfer) -> str | None:
    """The error that ended its programs; events of older runs do not name the transfer."""
    events = (event for event in data.of_type("transfer") if event.get("transfer", ONLY_TRANSFER) == transfer.name)
    return next((str(event["message"]) for event in events), None)
