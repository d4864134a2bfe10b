# SPDX-License-Identifier: Apache-2.0
"""The capabilities that jobs keep on their machines, by their kind (docs/privileges.md): the least that works.

All others are dropped before a job's program is started, and nothing that it starts can get them back. A program that
is not this project's also runs as another user.
"""

from atoll_core.plan.plan import Privilege

_NETWORK = (Privilege.NET_ADMIN, Privilege.NET_RAW, Privilege.SYS_NICE, Privilege.IPC_LOCK)
"""Of a box: traffic control, packet sockets, departures in time."""

_OF_SUBCOMMAND: dict[str, tuple[Privilege, ...]] = {
    "link": _NETWORK,
    "delay": _NETWORK,
    "tc": _NETWORK,
    "capture": (Privilege.NET_RAW, Privilege.DAC_OVERRIDE),  # the latter until its file is open
    "ping": (Privilege.NET_RAW,),
    "probe": (Privilege.NET_RAW,),
    "load": (Privilege.DAC_OVERRIDE,),  # until its flow log is open
}

_FIRST_FREE_PORT = 1024  # ip(7), "ip_unprivileged_port_start"
_NEVER_RESTRICTED = "reno"  # tcp(7), "tcp_allowed_congestion_control"

RESET_CONNECTIONS = (Privilege.NET_ADMIN,)
"""To close the sockets of others (ss(8))."""


def of_subcommand(subcommand: str) -> tuple[Privilege, ...]:
    """The capabilities of a subcommand of ``atoll-host`` that do not depend on its configuration."""
    return _OF_SUBCOMMAND.get(subcommand, ())


def of_port(port: int) -> tuple[Privilege, ...]:
    """The capabilities for listening on a port."""
    return (Privilege.NET_BIND_SERVICE,) if port < _FIRST_FREE_PORT else ()


def of_tcp(congestion_control: str, port: int = _FIRST_FREE_PORT) -> tuple[Privilege, ...]:
    """The capabilities for choosing a congestion control, which the kernel may restrict, and listening on a port."""
    chooses = () if congestion_control == _NEVER_RESTRICTED else (Privilege.NET_ADMIN,)
    return (*chooses, *of_port(port))
