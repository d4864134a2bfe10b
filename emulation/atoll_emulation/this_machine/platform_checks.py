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
class PlatformCheck:
    """A platform: how labs run there, or a line with a remedy for each missing prerequisite."""

    place: str  # as --on calls it
    how: str = ""
    lacks: tuple[str, ...] = ()


def check_platforms() -> tuple[PlatformCheck, ...]:
    """Check every platform. Makes namespaces and a tun device to try them, and removes them."""
    return _mininet(), _virtual(), _hardware()


def missing_by_platform(checks: Iterable[PlatformCheck]) -> list[str]:
    """Return a line for each missing prerequisite: its platform and its remedy."""
    where: dict[str, list[str]] = {}
    for check in checks:
        for lack in check.lacks:
            where.setdefault(lack, []).append(f"--on {check.place}")
    return [f"{listed(named)} not available: {lack}" for lack, named in where.items()]


def with_missing(check: PlatformCheck, lacks: Iterable[str]) -> PlatformCheck:
    """Add missing prerequisites to a platform, each once."""
    return PlatformCheck(check.place, lacks=tuple(dict.fromkeys((*check.lacks, *lacks))))


def _mininet() -> PlatformCheck:
    try:
        require_machine()
    except MachineError as error:
        return PlatformCheck(MININET, lacks=tuple(str(error).splitlines()))
    if os.geteuid() == 0:
        return PlatformCheck(MININET, "as root")
    return PlatformCheck(MININET, "as a plain user, without real-time scheduling: packets leave less exactly on time")


def _virtual() -> PlatformCheck:
    try:
        kernel = require_virtual_machine()
    except MachineError as error:
        return PlatformCheck(VIRTUAL, lacks=tuple(str(error).splitlines()))
    return PlatformCheck(VIRTUAL, f"as any user, kernel {kernel.release}")


def _hardware() -> PlatformCheck:
    """Check the controller and SSH here; the machines check themselves."""
    return PlatformCheck(
        HARDWARE, "as any user, with an inventory of the rack; `atoll hosts status` checks its machines"
    )
