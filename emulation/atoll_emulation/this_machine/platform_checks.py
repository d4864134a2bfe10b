# SPDX-License-Identifier: Apache-2.0
"""Check each platform's prerequisites for this user on this machine, with a remedy for each that is missing."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from atoll_core.errors import MachineError
from atoll_core.platforms import HARDWARE, MININET, VIRTUAL
from atoll_core.plural import listed
from atoll_emulation.this_machine.host_requirements import require_machine, require_virtual_machine


@dataclass(frozen=True, slots=True)
class Way:
    """A platform: how labs run there, or a line with a remedy for each missing prerequisite."""

    place: str  # as --on calls it
    how: str = ""
    lacks: tuple[str, ...] = ()


def ways() -> tuple[Way, ...]:
    """Check every platform. Makes namespaces and a tun device to try them, and removes them."""
    return _mininet(), _virtual(), _hardware()


def obstacles(places: Iterable[Way]) -> list[str]:
    """Return a line for each missing prerequisite: its platform and its remedy."""
    where: dict[str, list[str]] = {}
    for way in places:
        for lack in way.lacks:
            where.setdefault(lack, []).append(f"--on {way.place}")
    return [f"{listed(named)} cannot be had: {lack}" for lack, named in where.items()]


def lacking(way: Way, lacks: Iterable[str]) -> Way:
    """Add missing prerequisites to a platform, each once."""
    return Way(way.place, lacks=tuple(dict.fromkeys((*way.lacks, *lacks))))


def _mininet() -> Way:
    try:
        require_machine()
    except MachineError as error:
        return Way(MININET, lacks=tuple(str(error).splitlines()))
    if os.geteuid() == 0:
        return Way(MININET, "as root")
    return Way(MININET, "as a plain user, who has no real-time scheduling: packets leave less exactly")


def _virtual() -> Way:
    try:
        kernel = require_virtual_machine()
    except MachineError as error:
        return Way(VIRTUAL, lacks=tuple(str(error).splitlines()))
    return Way(VIRTUAL, f"as any user, kernel {kernel.release}")


def _hardware() -> Way:
    """Check the controller and SSH here; the machines check themselves."""
    return Way(HARDWARE, "as any user, with an inventory of the rack; `atoll hosts status` asks its machines")
