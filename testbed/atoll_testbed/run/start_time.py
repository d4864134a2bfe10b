# SPDX-License-Identifier: Apache-2.0
"""The instant at which all load begins: far enough ahead that every program is there, waiting for it."""

from collections.abc import Mapping
from typing import Any

from atoll_hosts.clock_offset import ClockOffset

_LEAST_LEAD_NS = 1_000_000_000
_LEAD_PER_PROGRAM_NS = 30_000_000
"""An agent starts programs one after another; three times what one takes on a busy two-core machine."""


def lead_ns(programs: int) -> int:
    """How long before the instant so many programs are started."""
    return max(_LEAST_LEAD_NS, programs * _LEAD_PER_PROGRAM_NS)


def told(at_ns: int, clocks: Mapping[str, ClockOffset]) -> dict[str, Any]:
    """The event's fields (docs/contracts.md): the instant by this machine's clock, and by how much others' are off."""
    offsets = {name: {"offset_ns": clock.known_ns, "bound_ns": clock.bound_ns} for name, clock in clocks.items()}
    return {"at_ns": at_ns, "clocks": offsets}
