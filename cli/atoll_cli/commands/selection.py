# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share: overrides of an experiment, platform, inventory, backend."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from atoll_cli.terminal.options import INVENTORY_VARIABLE, require_one_of
from atoll_core.errors import DescriptionError, Diagnostic, PlanError, UsageError
from atoll_core.lab.inventory import apply_inventory
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.platforms import HARDWARE, MININET, VIRTUAL, LabTarget
from atoll_core.units import Duration
from atoll_daemon.socket_lock import daemon_holder

if TYPE_CHECKING:  # commands about the lab that is up read no description
    from atoll_core.description.loader import DescriptionFile

DEFAULT_BACKENDS = {MININET: Backend.ENGINE, VIRTUAL: Backend.TC, HARDWARE: Backend.ENGINE}
"""Platforms, and the default link emulator of each."""


def experiment_file(path: Path, seed: int | None, duration: str | None, settings: Sequence[str]) -> "DescriptionFile":
    """The file of an experiment, with the command line's settings, seed and duration as settings. Raises PlanError.

    A shorter trial run still has all transfers: late ones start with the load.
    """
    from atoll_core.description.loader import DescriptionFile

    file = DescriptionFile.read(path, settings if seed is None else (*settings, f"seed={seed}"))
    if duration is not None:
        try:
            length = Duration.parse(duration)
        except ValueError as error:
            raise PlanError(f"--duration: {error}") from None
        file = replace(file, settings=(*file.settings, f"duration={duration}"))
        late_starts = {key: start for key, start in file.transfer_starts().items() if start >= length}
        for key, start in late_starts.items():
            name = "the transfer" if key == "transfer" else f"transfer {key.removeprefix('transfers.')!r}"
            print(
                f"--duration {length} is shorter than the start of {name}, {start}: {name} starts with the load",
                file=sys.stderr,
            )
        file = replace(file, settings=(*file.settings, *(f"{key}.start=0 s" for key in late_starts)))
    return file


def lab_target(
    inventory: Path | None = None, on: str | None = None, *, may_be_missing: bool = False, planning_only: bool = False
) -> LabTarget:
    """The lab that a command works on, by ``--inventory`` or the environment, and by ``--on`` if it has that option.

    Without ``--on`` the platform is hardware if there is an inventory, else mininet. Raises UsageError for an unknown
    platform, for hardware without an inventory unless ``planning_only``, and for an inventory without hardware;
    DescriptionError if there is no such file. With ``may_be_missing``, only if no daemon of that inventory is running
    either: a lab is addressed by the path that the inventory had when the lab came up.
    """
    path = inventory or (Path(variable) if (variable := os.environ.get(INVENTORY_VARIABLE)) else None)
    platform = on or (HARDWARE if path else MININET)
    require_one_of("--on", platform, "platforms", list(DEFAULT_BACKENDS))
    if platform != HARDWARE:
        refuse(inventory is not None, f"--inventory needs --on hardware, not --on {platform}")
        return LabTarget(platform)
    if path is None:
        refuse(not planning_only, f"--on hardware: name an inventory with --inventory FILE or {INVENTORY_VARIABLE}")
        return LabTarget(HARDWARE)
    target = LabTarget(HARDWARE, Path(os.path.abspath(path)))  # noqa: PTH100 (Path.absolute keeps `..`)
    if not path.is_file() and not (may_be_missing and daemon_holder(target) is not None):
        raise DescriptionError([Diagnostic(str(path), 0, "there is no such file")])
    return target


def backend_for(target: LabTarget, backend: Backend | None) -> Backend:
    """The link emulator: the one named, else the platform's default."""
    return backend or DEFAULT_BACKENDS[target.platform]


def network_on(target: LabTarget, network: Network) -> Network:
    """A lab with the interfaces of the target's inventory, if it has one.

    No machine is contacted: MAC addresses are the inventory's, else lab.yaml's. Raises DescriptionError.
    """
    if target.inventory is None:
        return network
    from atoll_core.description.resolve_inventory import load_inventory

    return apply_inventory(network, load_inventory(target.inventory, network), {})


def refuse(condition: bool, message: str) -> None:
    """Raise UsageError if ``condition``."""
    if condition:
        raise UsageError(message)
