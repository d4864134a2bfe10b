# SPDX-License-Identifier: Apache-2.0
"""For each place a lab may live in: whether this user can have one there from this machine, and if not, what to do."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from atoll.model.errors import MachineError
from atoll_emulation.machine import require_machine, require_virtual_machine

REAL_TIME = "mininet"
"""The place of a lab that is emulated in real time, as ``--on`` calls it."""


@dataclass(frozen=True, slots=True)
class Way:
    """One place: how a lab is had there if nothing lacks; otherwise what does, a line each with its remedy."""

    place: str  # as --on calls it
    how: str = ""
    lacks: tuple[str, ...] = ()


def ways() -> tuple[Way, ...]:
    """Every place; tries what cannot be known otherwise, such as namespaces and the tun device, and leaves nothing."""
    return _mininet(), _virtual(), _hardware()


def obstacles(places: Iterable[Way]) -> list[str]:
    """A line for each thing that lacks: where it does, and its remedy."""
    where: dict[str, list[str]] = {}
    for way in places:
        for lack in way.lacks:
            where.setdefault(lack, []).append(f"--on {way.place}")
    return [f"{' and '.join(named)} cannot be had: {lack}" for lack, named in where.items()]


def _mininet() -> Way:
    try:
        require_machine()
    except MachineError as error:
        return Way(REAL_TIME, lacks=tuple(str(error).splitlines()))
    if os.geteuid() == 0:
        return Way(REAL_TIME, "as root")
    return Way(REAL_TIME, "as a plain user, who has no real-time scheduling: packets leave less exactly")


def _virtual() -> Way:
    try:
        kernel = require_virtual_machine()
    except MachineError as error:
        return Way("virtual", lacks=tuple(str(error).splitlines()))
    return Way("virtual", f"as any user, kernel {kernel.release}")


def _hardware() -> Way:
    """Here there are only the controller and SSH: what machines lack, they say themselves."""
    return Way("hardware", "as any user, with an inventory of the rack; `atoll hosts status` asks its machines")
