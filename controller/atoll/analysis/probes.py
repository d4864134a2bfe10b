# SPDX-License-Identifier: Apache-2.0
"""Probes of swaps among the packets of a run: switches send them, so not every capture on their way sees them.

What probes look like: docs/contracts.md, ``atoll-host probe``, and atoll.openflow.frames.
"""

import polars as pl

from atoll.analysis.facts import Facts
from atoll.analysis.records import ICMP, TCP, UDP

_OTHER = 253
_DISCARD = 9  # the port of probes of TCP and UDP, at both ends
_MARK_BYTES = 24
_LONGEST_BYTES = 20 + 20 + _MARK_BYTES  # IPv4, TCP
_ATTEMPTS = 6  # of each probe (atoll.experiment.probing)


def is_probe() -> pl.Expr:
    """Whether a row of packets is a probe, or a host's answer to one."""
    ports = (pl.col("sport") == _DISCARD) & (pl.col("dport") == _DISCARD)
    echo = (pl.col("proto") == ICMP) & (pl.col("payload_bytes") == _MARK_BYTES)
    return echo | (pl.col("proto").is_in([TCP, UDP]) & ports) | (pl.col("proto") == _OTHER)


def of_changes(facts: Facts) -> pl.Expr:
    """Whether a row is a probe, or a host's answer to one, in the time of a scheduled change."""
    spans = [(change.began_ns, change.over_ns) for change in facts.changes if change.began_ns is not None]
    meanwhile = [pl.col("t_ns").is_between(began, over) for began, over in spans]
    return is_probe() & pl.any_horizontal(meanwhile) if meanwhile else pl.lit(value=False)


def most_bytes(facts: Facts) -> int:
    """The most IP bytes that probes of scheduled changes can have brought to the links in one direction."""
    sent = sum(int(event.get("probes", 0)) for event in facts.of_type("swap") if event.get("state") == "stage")
    failed = [event for event in facts.of_type("swap") if event.get("state") == "undone"]
    planned = sum(len(facts.network.hosts) ** 2 for _ in failed)  # a stage that failed does not say how many
    return _ATTEMPTS * _LONGEST_BYTES * (sent + planned)
