# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, applied: overrides of an experiment, platform, backend, inventory."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.description.raw_experiment import LONGEST_RUN, SHORTEST_RUN
from atoll_core.description.resolve_inventory import load_inventory
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import DescriptionError, Diagnostic, MachineError, PlanError, UsageError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.inventory import apply_inventory
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import TIMER_SLACK, VIRTUAL_SLACK
from atoll_core.platforms import HARDWARE, MININET, VIRTUAL
from atoll_core.units import Duration
from atoll_daemon.socket_lock import INVENTORY_VARIABLE, daemon_holder, inventory_path
from atoll_emulation.this_machine.tc_support import missing_for_tc

DEFAULT_BACKENDS = {MININET: Backend.ENGINE, VIRTUAL: Backend.TC, HARDWARE: Backend.ENGINE}
"""Platforms, and the default link emulator of each."""


def experiment_with(
    path: Path, seed: int | None, duration: str | None, settings: Sequence[str] = ()
) -> tuple[Network, Experiment]:
    """Load an experiment with the settings, seed and duration of the command line.

    Raises DescriptionError, PlanError.
    """
    network, experiment = load_experiment(path, settings)
    if seed is not None:
        experiment = replace(experiment, seed=seed)
    if duration is not None:
        try:
            length = Duration.parse(duration)
        except ValueError as error:
            msg = f"--duration: {error}"
            raise PlanError(msg) from None
        if not Duration.parse(SHORTEST_RUN) <= length <= Duration.parse(LONGEST_RUN):
            msg = f"--duration: {length} is not from {SHORTEST_RUN} to {LONGEST_RUN}"
            raise PlanError(msg)
        experiment = replace(experiment, duration=length)
        if late := [version.at for version in experiment.schedule if version.at >= length]:
            msg = f"--duration {length}: a change is scheduled at {late[-1]}; choose a longer duration or --set changes"
            raise PlanError(msg)
        if experiment.transfer is not None and (start := experiment.transfer.start).ns >= length.ns:
            # A shorter trial run still has a transfer: it starts with the load.
            print(f"--duration {length}: the transfer starts at once, not after {start}", file=sys.stderr)
            experiment = replace(experiment, transfer=replace(experiment.transfer, start=Duration(0)))
    return network, experiment


def settings_with(experiment: Experiment, seed: int | None, duration: str | None, settings: Sequence[str]) -> list[str]:
    """The settings (``--set``) that turn the experiment's file into the result of :func:`experiment_with`."""
    found = [*settings]
    if seed is not None:
        found.append(f"seed={seed}")
    if duration is not None:
        found.append(f"duration={duration}")
        if experiment.transfer is not None:
            found.append(f"transfer.start={experiment.transfer.start}")
    return found


def require_backend(network: Network, experiment: Experiment | None, backend: Backend) -> None:
    """Raise PlanError if the backend cannot emulate the experiment, MachineError if this machine does not have it."""
    if backend is Backend.ENGINE:
        return
    if experiment is not None:
        make_plan(network, experiment, backend)
    missing = missing_for_tc()
    if missing:
        raise MachineError("\n".join(missing))


def require_writable(runs: Path) -> None:
    """Raise PlanError if run directories cannot be created there, before a lab is brought up."""
    resolved = runs.resolve()
    existing = next(path for path in (resolved, *resolved.parents) if os.access(path, os.F_OK))
    if not existing.is_dir():
        msg = f"--runs {runs}: {existing} is not a directory; name another directory"
        raise PlanError(msg)
    if not os.access(existing, os.W_OK | os.X_OK):
        msg = f"--runs {runs}: {existing} cannot be written by this user; name another directory"
        raise PlanError(msg)


def platform_name(named: str | None, inventory: Path | None = None) -> str:
    """The platform: the one named, else hardware if there is an inventory, else mininet."""
    return named or (HARDWARE if inventory or inventory_path() else MININET)


def backend_for(platform: str, named: Backend | None) -> Backend:
    """The link emulator: the one named, else the platform's default. Raises UsageError for an unknown platform."""
    refuse(
        platform not in DEFAULT_BACKENDS,
        f"--on {platform}: unknown platform; {suggest(platform, DEFAULT_BACKENDS, 'platforms')}",
    )
    return named or DEFAULT_BACKENDS[platform]


def with_inventory(
    platform: str, inventory: Path | None, described: tuple[Network, Experiment]
) -> tuple[Network, Experiment]:
    """A description with the interfaces of an inventory: the one named, else the environment's; if any.

    No machine is contacted: MAC addresses are the inventory's, else lab.yaml's. Raises DescriptionError, UsageError.
    """
    refuse(platform != HARDWARE and inventory is not None, f"--inventory needs --on hardware, not --on {platform}")
    file = inventory or (inventory_path() if platform == HARDWARE else None)
    if file is None:
        return described
    network, experiment = described
    return apply_inventory(network, load_inventory(file, network), {}), experiment


def use_platform_inventory(platform: str, inventory: Path | None) -> None:
    """Set the inventory for this process and its children; none on a platform that has none.

    Raises UsageError for hardware without an inventory, and for an inventory without hardware.
    """
    named = inventory or (inventory_path() if platform == HARDWARE else None)
    refuse(
        platform == HARDWARE and named is None,
        f"--on hardware: name an inventory with --inventory FILE or {INVENTORY_VARIABLE}",
    )
    refuse(platform != HARDWARE and named is not None, f"--inventory needs --on hardware, not --on {platform}")
    if named is None:
        os.environ.pop(INVENTORY_VARIABLE, None)
    else:
        use_inventory(named)


def use_inventory(inventory: Path | None, *, moved: bool = False) -> None:
    """Set the inventory for this process and its children, if one is named; else keep the environment's.

    Raises DescriptionError if there is no such file. With ``moved``, only if no daemon of that inventory is running
    either: a lab is addressed by the path that the inventory had when the lab came up.
    """
    if inventory is not None:
        os.environ[INVENTORY_VARIABLE] = os.path.abspath(inventory)  # noqa: PTH100 (Path.absolute keeps `..`)
    path = inventory_path()
    if path is not None and not path.is_file() and not (moved and daemon_holder() is not None):
        raise DescriptionError([Diagnostic(str(inventory or path), 0, "there is no such file")])


def timer_slack(platform: str) -> Duration:
    """The timer slack of a platform."""
    return VIRTUAL_SLACK if platform == VIRTUAL else TIMER_SLACK


def refuse(wrong: bool, message: str) -> None:
    """Raise UsageError if ``wrong``."""
    if wrong:
        raise UsageError(message)
