# SPDX-License-Identifier: Apache-2.0
"""What the jobs of an experiment may use on their machines (docs/contracts.md, "Limits").

Bounds that no sound job comes near, so that one that has gone wrong ends with a reason instead of taking its machine
along. Boxes have none: what a link holds is for its rate, delay and queue to say. Nor have programs that users bring.
Files may be of any size: captures are as large as the run is long.
"""

from atoll_core.experiment.traffic import Traffic
from atoll_core.plan.plan import JobLimits

_MEMORY_BYTES = 1_000_000_000  # four thousand channels take some ten million
_OTHER_FILES = 64  # streams, logs, the sockets of the event loop

MODEST = JobLimits(memory_bytes=_MEMORY_BYTES)
"""For jobs that have a fixed number of sockets."""


def of_client(traffic: Traffic, channels: int) -> JobLimits:
    """For a client of so many channels, each of which has one connection at a time; more than that in an open loop."""
    return _sockets(traffic, channels)


def of_server(traffic: Traffic) -> JobLimits:
    """For a server that all channels may turn to at once, while it has yet to close their former connections."""
    return _sockets(traffic, 2 * traffic.channels)


def _sockets(traffic: Traffic, count: int) -> JobLimits:
    if traffic.flows_per_s is not None:
        return MODEST  # an open loop: as many as there are flows, whatever the link makes of them
    return JobLimits(memory_bytes=_MEMORY_BYTES, open_files=count + _OTHER_FILES)
