# SPDX-License-Identifier: Apache-2.0
"""Causes of packet loss on links."""

from collections.abc import Mapping

from atoll_analysis.tables.box_counters import LostFigures
from atoll_core.experiment.experiment import LinkDirection, LossTrace

CAUSES = {
    "queue": "queue full",
    "low_priority": "low-priority queue full",
    "random": "random loss",
    "trace": "loss by trace",
    "aqm": "AQM",
    "sockets": "sockets of the emulator",
}
"""Why a link loses packets, in words. By trace: packet after packet, or while a trace blocks the link."""

_BY_COUNTER = {
    "queue": "queue",
    "low_priority": "low_priority",
    "loss": "random",
    "aqm": "aqm",
    "blocked": "trace",
    "unsent": "sockets",
}


def cause_of(counter: str, direction: LinkDirection) -> str:
    """Return the key of :data:`CAUSES` for a counter (``atoll_analysis.tables.box_counters.CAUSES``) of a direction."""
    by_packets = counter == "loss" and isinstance(direction.loss, LossTrace)
    return "trace" if by_packets else _BY_COUNTER[counter]


def by_cause(counted: Mapping[str, LostFigures], direction: LinkDirection) -> dict[str, LostFigures]:
    """Return a direction's losses by cause; causes that the backend does not count are left out."""
    losses: dict[str, LostFigures] = {}
    for counter, lost in counted.items():
        sum_so_far = losses.get(cause := cause_of(counter, direction), LostFigures(packets=0, bytes=0))
        octets = None if lost["bytes"] is None or sum_so_far["bytes"] is None else sum_so_far["bytes"] + lost["bytes"]
        losses[cause] = LostFigures(packets=sum_so_far["packets"] + lost["packets"], bytes=octets)
    return losses
