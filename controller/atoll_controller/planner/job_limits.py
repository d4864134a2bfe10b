# SPDX-License-Identifier: Apache-2.0
"""Resource limits of an experiment's jobs (docs/contracts.md, "Limits").

The limits are far above the use of a working job, so that a faulty one ends with a reason before its machine is out of
resources. Boxes have none, as the content of a link depends on its rate, delay and queue; nor have users' programs.
File sizes are not limited: captures grow with the duration of the run.
"""

from atoll_core.experiment.traffic import Traffic
from atoll_core.plan.plan import JobLimits

_MEMORY_BYTES = 1_000_000_000  # four thousand channels take some ten million
_OTHER_FILES = 64  # streams, logs, the sockets of the event loop

MODEST = JobLimits(memory_bytes=_MEMORY_BYTES)
"""For jobs that have a fixed number of sockets."""


def of_client(traffic: Traffic, channels: int) -> JobLimits:
    """For a client of this many channels with one connection each at a time; in an open loop with more."""
    return _sockets(traffic, channels)


def of_server(traffic: Traffic, channels: int) -> JobLimits:
    """For a server: one connection of each channel, and one that is not closed yet."""
    return _sockets(traffic, 2 * channels)


def _sockets(traffic: Traffic, count: int) -> JobLimits:
    if traffic.flows_per_s is not None:
        return MODEST  # an open loop: the number of sockets is that of unfinished flows
    return JobLimits(memory_bytes=_MEMORY_BYTES, open_files=count + _OTHER_FILES)
