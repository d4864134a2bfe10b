# SPDX-License-Identifier: Apache-2.0
"""Filter of the probes of swaps. Switches send them, so not every capture on their path contains them.

Format of probes: docs/contracts.md, ``atoll-host probe``, and atoll_controller.probing.probe_frames.
"""

import polars as pl

from atoll_analysis.tables.packet_records import ICMP, TCP, UDP
from atoll_analysis.tables.run_data import RunData

_OTHER_PROTOCOL = 253
_DISCARD_PORT = 9  # the port of probes of TCP and UDP, at both ends
_MARK_BYTES = 24
_LONGEST_BYTES = 20 + 20 + _MARK_BYTES  # IPv4, TCP
_INTERVAL_NS = 200_000_000  # from one attempt of a probe to the next (atoll_testbed.verification.swap_verification)
_MOST_ATTEMPTS = 25  # at most


def is_probe() -> pl.Expr:
    """Whether a row of packets is a probe, or a host's answer to one."""
    ports = (pl.col("sport") == _DISCARD_PORT) & (pl.col("dport") == _DISCARD_PORT)
    echo = (pl.col("proto") == ICMP) & (pl.col("payload_bytes") == _MARK_BYTES)
    return echo | (pl.col("proto").is_in([TCP, UDP]) & ports) | (pl.col("proto") == _OTHER_PROTOCOL)


def is_change_probe(data: RunData) -> pl.Expr:
    """Whether a row is a probe, or a host's answer to one, in the time of a scheduled change."""
    spans = [(change.began_ns, change.settled_ns) for change in data.changes if change.began_ns is not None]
    in_changes = [pl.col("t_ns").is_between(began, settled) for began, settled in spans]
    return is_probe() & pl.any_horizontal(in_changes) if in_changes else pl.lit(value=False)


def most_probe_bytes(data: RunData) -> int:
    """The most IP bytes that probes of scheduled changes can have brought to the links in one direction."""
    stages = [event for event in data.of_type("swap") if event.get("state") == "stage"]
    sent = sum(int(stage.get("probes", 0)) * _most_attempts(stage.get("duration_ns")) for stage in stages)
    failed = [event for event in data.of_type("swap") if event.get("state") == "undone"]
    unreported = sum(len(data.network.hosts) ** 2 for _ in failed)  # a stage that failed does not say how many
    return _LONGEST_BYTES * (sent + _MOST_ATTEMPTS * unreported)


def _most_attempts(duration_ns: int | None) -> int:
    """Of each probe of a stage, at most; None: the stage does not say how long it took."""
    return _MOST_ATTEMPTS if duration_ns is None else 1 + int(duration_ns) // _INTERVAL_NS
