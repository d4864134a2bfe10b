# SPDX-License-Identifier: Apache-2.0
"""What several verbs share: descriptions with the command line's overrides, and the place."""

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
from atoll_core.lab.inventory import placed
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import TIMER_SLACK, VIRTUAL_SLACK
from atoll_core.platforms import HARDWARE, MININET, VIRTUAL
from atoll_core.units import Duration
from atoll_daemon.socket_lock import INVENTORY_VARIABLE, daemon_holder, rack
from atoll_emulation.this_machine.tc_support import missing_for_tc

PLACES = {MININET: Backend.ENGINE, VIRTUAL: Backend.TC, HARDWARE: Backend.ENGINE}
"""Where a lab can live, and what plays its links and delay boxes there if nothing else is asked for."""


def experiment_with(
    path: Path, seed: int | None, duration: str | None, settings: Sequence[str] = ()
) -> tuple[Network, Experiment]:
    """The experiment as described, but for settings, seed and duration named on the command line.

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
            msg = f"--duration {length}: a change is due at {late[-1]}; take longer, or set changes without it"
            raise PlanError(msg)
        if experiment.transfer is not None and (start := experiment.transfer.start).ns >= length.ns:
            # A shorter trial run still shows a transfer: it begins with the load.
            print(f"--duration {length}: the transfer begins at once, not after {start}", file=sys.stderr)
            experiment = replace(experiment, transfer=replace(experiment.transfer, start=Duration(0)))
    return network, experiment


def settings_with(experiment: Experiment, seed: int | None, duration: str | None, settings: Sequence[str]) -> list[str]:
    """The settings (``--set``) that make of its file what :func:`experiment_with` made of it."""
    found = [*settings]
    if seed is not None:
        found.append(f"seed={seed}")
    if duration is not None:
        found.append(f"duration={duration}")
        if experiment.transfer is not None:
            found.append(f"transfer.start={experiment.transfer.start}")
    return found


def require_backend(network: Network, experiment: Experiment | None, backend: Backend) -> None:
    """Refuse a backend that cannot play the experiment (PlanError) or that this machine lacks (MachineError)."""
    if backend is Backend.ENGINE:
        return
    if experiment is not None:
        make_plan(network, experiment, backend)
    lacks = missing_for_tc()
    if lacks:
        raise MachineError("\n".join(lacks))


def require_writable(runs: Path) -> None:
    """Say so before a lab is brought up for a run that could not be kept."""
    whole = runs.resolve()
    there = next(path for path in (whole, *whole.parents) if os.access(path, os.F_OK))
    if not there.is_dir():
        msg = f"--runs {runs}: {there} is not a directory; name another directory"
        raise PlanError(msg)
    if not os.access(there, os.W_OK | os.X_OK):
        msg = f"--runs {runs}: {there} cannot be written by this user; name another directory"
        raise PlanError(msg)


def platform_of(named: str | None, inventory: Path | None = None) -> str:
    """Where the lab lives: as named, else on hardware where a rack is meant, else on this machine."""
    return named or (HARDWARE if inventory or rack() else MININET)


def place_backend(place: str, named: Backend | None) -> Backend:
    """What plays links and delay boxes in a place: what is named, else what is usual there.

    Raises UsageError: no such place.
    """
    refuse(place not in PLACES, f"--on {place}: no such place; {suggest(place, PLACES, 'places')}")
    return named or PLACES[place]


def standing_on(
    place: str, inventory: Path | None, described: tuple[Network, Experiment]
) -> tuple[Network, Experiment]:
    """A description as it stands in a place: of hardware in the rack that is meant, if there is one.

    No machine is asked: MAC addresses are the inventory's, or else lab.yaml's. Raises DescriptionError, UsageError.
    """
    refuse(place != HARDWARE and inventory is not None, f"--inventory belongs to --on hardware, not to --on {place}")
    file = inventory or (rack() if place == HARDWARE else None)
    if file is None:
        return described
    network, experiment = described
    return placed(network, load_inventory(file, network), {}), experiment


def choose_rack(place: str, inventory: Path | None) -> None:
    """Mean the rack of an inventory, here and in every process that is started from here, or none.

    Raises UsageError when there is one without the other.
    """
    named = inventory or (rack() if place == HARDWARE else None)
    refuse(
        place == HARDWARE and named is None, f"--on hardware: name the rack: --inventory FILE, or {INVENTORY_VARIABLE}"
    )
    refuse(place != HARDWARE and named is not None, f"--inventory belongs to --on hardware, not to --on {place}")
    if named is None:
        os.environ.pop(INVENTORY_VARIABLE, None)
    else:
        mean_rack(named)


def mean_rack(inventory: Path | None, *, moved: bool = False) -> None:
    """Mean the rack of an inventory if one is named; otherwise whatever the environment says.

    Raises DescriptionError when there is no such file; with ``moved`` only if no daemon holds that rack either: a lab
    is found, and taken down, by where the file was when it came up.
    """
    if inventory is not None:
        os.environ[INVENTORY_VARIABLE] = os.path.abspath(inventory)  # noqa: PTH100 (Path.absolute keeps `..`)
    meant = rack()
    if meant is not None and not meant.is_file() and not (moved and daemon_holder() is not None):
        raise DescriptionError([Diagnostic(str(inventory or meant), 0, "there is no such file")])


def place_slack(place: str) -> Duration:
    """How late timers may be in a place."""
    return VIRTUAL_SLACK if place == VIRTUAL else TIMER_SLACK


def refuse(wrong: bool, message: str) -> None:
    """Raise UsageError if ``wrong``."""
    if wrong:
        raise UsageError(message)
