# SPDX-License-Identifier: Apache-2.0
"""The settings of PEPs (``atoll_core.lab.pep``) as lab.yaml and experiment.yaml have them."""

from typing import Annotated, Literal

from pydantic import Field

from atoll_core.description.raw_types import Between, BoxSettings, BufferSize, CongestionControl
from atoll_core.units import Duration, Rate, Size

_Window = Annotated[Size, Between(Size, "4096 B", "1 GB")]
_Unsent = Annotated[Size, Between(Size, "4096 B", "1 GB")]
_Pacing = Annotated[Rate, Between(Rate, "1 kbit/s", "100 Gbit/s")]
_InitialWindow = Annotated[int, Field(ge=1, le=1000)]


class PepSettings(BoxSettings):
    """Settings of a PEP. Those that begin with ``world`` or ``island`` are of its connections on that side."""

    accept: Literal["after", "early", "learned"] = "after"
    """When to accept a client. after: after its server has accepted; early: immediately; learned: immediately if the
    same server address and port accepted recently. Default after."""
    learned_for: Annotated[Duration, Between(Duration, "1 s", "24 h")] = Duration(600 * 10**9)
    """Time for which `learned` remembers that a server accepted; default 600 s."""
    world_congestion_control: CongestionControl = "cubic"
    """Congestion control towards world hosts; default cubic."""
    island_congestion_control: CongestionControl = "cubic"
    """Congestion control towards island hosts; default cubic."""
    world_pacing: _Pacing | None = None
    """Largest rate of TCP payload of one connection towards the world; default unlimited."""
    island_pacing: _Pacing | None = None
    """Largest rate of TCP payload of one connection towards the island; default unlimited."""
    world_unsent: _Unsent | None = None
    """Largest number of unsent bytes in a socket (TCP_NOTSENT_LOWAT); default the kernel's."""
    island_unsent: _Unsent | None = None
    """Largest number of unsent bytes in a socket (TCP_NOTSENT_LOWAT); default the kernel's."""
    world_window: _Window | None = None
    """Largest receive window offered to the world; default that of the buffer."""
    island_window: _Window | None = None
    """Largest receive window offered to the island; default that of the buffer."""
    world_initial_window: _InitialWindow | None = None
    """Initial congestion window towards the world, in segments; default the kernel's."""
    island_initial_window: _InitialWindow | None = None
    """Initial congestion window towards the island, in segments; default the kernel's."""
    world_fast_open: bool = False
    """TCP fast open towards the world: the SYN of a client that was accepted early carries its first data, and SYNs
    with data from there are accepted; default false."""
    island_fast_open: bool = False
    """TCP fast open towards the island: the SYN of a client that was accepted early carries its first data, and SYNs
    with data from there are accepted; default false."""
    between: Literal["tcp", "multiplexed"] = "tcp"
    """How two PEPs of a chain carry connections: tcp, in a TCP connection each; multiplexed, all in one that persists,
    which both PEPs must say; default tcp."""
    between_rate: _Pacing | None = None
    """Rate of the link towards the other PEP, for which the multiplexed connection is paced; default unlimited."""
    buffer_max: BufferSize = Size(16 * 10**6)
    """Largest size to which the socket buffers of either side may grow; default 16 MB."""
    ecn: bool = False
    """Explicit congestion notification; default false."""
    mss_clamp: bool = True
    """Whether segments of both sides are limited to the smallest MTU of the chain; default true."""
    silence: Annotated[Duration, Between(Duration, "2 s", "24 h")] = Duration(120 * 10**9)
    """Time without an answer after which a peer counts as vanished; default 120 s."""
    handshake: Annotated[Duration, Between(Duration, "1 s", "1 h")] = Duration(60 * 10**9)
    """Time limit for both sides to be established; default 60 s."""
    flush: Annotated[Duration, Between(Duration, "0 s", "1 h")] = Duration(10 * 10**9)
    """Time limit for the other side to acknowledge data received before a reset; default 10 s."""
    pending_max: int = Field(default=2000, ge=10, le=100_000)
    """Largest number of connections that are not established on both sides yet; default 2000, at most half of
    `connections_max`."""
    connections_max: int = Field(default=20_000, ge=1, le=500_000)
    """Largest number of simultaneous connections; default 20000."""
