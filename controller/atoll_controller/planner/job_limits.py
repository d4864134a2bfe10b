# SPDX-License-Identifier: Apache-2.0
"""Resource limits and capabilities of an experiment's jobs (docs/contracts.md, "Limits"; docs/privileges.md).

The limits are far above the use of a working job, so that a faulty one ends with a reason before its machine is out of
resources. Those of links and delay boxes are computed from their settings; PEPs and coders limit themselves, and
users' programs have the limit that lab.yaml gives them.
File sizes are not limited: captures grow with the duration of the run.

Jobs keep the least capabilities that work, by their kind. All others are dropped before a job's program is started, and
nothing that it starts can get them back. A program that is not this project's also runs as another user.
"""

from collections.abc import Iterable

from atoll_core.experiment.experiment import Link, LinkDirection
from atoll_core.experiment.traffic import Load
from atoll_core.lab.network import DelayBox, Program
from atoll_core.plan.plan import UNLIMITED, JobLimits, Privilege

_MEMORY_BYTES = 1_000_000_000  # four thousand channels take some ten million
_EXTRA_FILES = 64  # streams, logs, the sockets of the event loop

_MEMORY_PER_BYTE = 8  # times as much memory as bytes of theirs that a link counts

MEMORY_CAP = JobLimits(memory_bytes=_MEMORY_BYTES)
"""For jobs that have a fixed number of sockets."""


def limits_of_sockets(loads: Iterable[Load], count: int) -> JobLimits:
    """For a client or server with this many connections at a time; in an open loop with more."""
    if any(load.flows_per_s is not None for load in loads):
        return MEMORY_CAP  # an open loop: the number of sockets is that of unfinished flows
    return JobLimits(memory_bytes=_MEMORY_BYTES, open_files=count + _EXTRA_FILES)


def limits_of_program(program: Program) -> JobLimits:
    """For a user's program."""
    memory_max = program.memory_max
    return JobLimits(data_bytes=memory_max.bytes, follow_from=("memory_max",)) if memory_max else UNLIMITED


def limits_of_link(link: Link) -> JobLimits:
    """For a link that at any time has at most the rate, delay and queue of ``link``, over time."""
    content_bytes = sum(_content_bytes(direction) for direction in (link.to_island, link.to_world))
    return _limits_of_content(content_bytes, "rate", "delay", "jitter", "queue")


def limits_of_delay(box: DelayBox) -> JobLimits:
    """For a delay box: the packets that its cables may carry during its longest delay."""
    longest_ns = max((latency.rtt.ns // 2 + latency.jitter.ns for latency in box.classes), default=0)
    content_bytes = len(box.interfaces) * box.rate.bit_s * longest_ns // (8 * 10**9)
    return _limits_of_content(content_bytes, "rate", "rtt", "jitter")


def _limits_of_content(content_bytes: int, *settings: str) -> JobLimits:
    return JobLimits(data_bytes=_MEMORY_BYTES + _MEMORY_PER_BYTE * content_bytes, follow_from=settings)


def _content_bytes(direction: LinkDirection) -> int:
    """The most that is in a direction of a link: in its queues and on its way."""
    delays = (direction.delay, *(row.delay for row in (direction.trace.rows if direction.trace else ()) if row.delay))
    longest_ns = max(delay.ns for delay in delays) + (direction.jitter.amount.ns if direction.jitter else 0)
    low_queue_bytes = direction.low_priority.queue.bytes if direction.low_priority else 0
    return direction.queue.bytes + low_queue_bytes + direction.rate.bit_s * longest_ns // (8 * 10**9)


_NETWORK_PRIVILEGES = (Privilege.NET_ADMIN, Privilege.NET_RAW, Privilege.SYS_NICE, Privilege.IPC_LOCK)
"""Of a box: traffic control, packet sockets, departures in time."""

_PRIVILEGES_BY_SUBCOMMAND: dict[str, tuple[Privilege, ...]] = {
    "link": _NETWORK_PRIVILEGES,
    "delay": _NETWORK_PRIVILEGES,
    "tc": _NETWORK_PRIVILEGES,
    "capture": (Privilege.NET_RAW, Privilege.DAC_OVERRIDE),  # the latter until its file is open
    "ping": (Privilege.NET_RAW,),
    "probe": (Privilege.NET_RAW,),
    "load": (Privilege.DAC_OVERRIDE,),  # until its flow log is open
}

_FIRST_FREE_PORT = 1024  # ip(7), "ip_unprivileged_port_start"
_UNRESTRICTED_CONTROL = "reno"  # tcp(7), "tcp_allowed_congestion_control"

RESET_CONNECTIONS = (Privilege.NET_ADMIN,)
"""To close the sockets of others (ss(8))."""


def privileges_of_subcommand(subcommand: str) -> tuple[Privilege, ...]:
    """The capabilities of a subcommand of ``atoll-host`` that do not depend on its configuration."""
    return _PRIVILEGES_BY_SUBCOMMAND.get(subcommand, ())


def privileges_of_port(port: int) -> tuple[Privilege, ...]:
    """The capabilities for listening on a port."""
    return (Privilege.NET_BIND_SERVICE,) if port < _FIRST_FREE_PORT else ()


def privileges_of_tcp(congestion_control: str, port: int = _FIRST_FREE_PORT) -> tuple[Privilege, ...]:
    """The capabilities for choosing a congestion control, which the kernel may restrict, and listening on a port."""
    choice = () if congestion_control == _UNRESTRICTED_CONTROL else (Privilege.NET_ADMIN,)
    return (*choice, *privileges_of_port(port))
