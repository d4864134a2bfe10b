# SPDX-License-Identifier: Apache-2.0
"""Bringing the switches to a plan: read, diff, change, read back, compare; back to what was held when it fails."""

import asyncio
import contextlib
from collections.abc import Generator, Iterable, Mapping

from atoll.control.diff import Change, ChangeAction, diff
from atoll.model.errors import LabError
from atoll.model.flow import FlowEntry, ForeignEntry
from atoll.model.network import Network, Switch
from atoll.model.plan import Plan
from atoll.openflow.client import Controller
from atoll.switches.profiles import profile

_Held = Mapping[str, tuple[FlowEntry | ForeignEntry, ...]]


async def apply_flows(
    controller: Controller, network: Network, plan: Plan, dry_run: bool = False
) -> tuple[Change, ...]:
    """Make every switch hold exactly the plan's entries, by the smallest change; the changes made.

    ``dry_run``: the changes that would be made. Raises LabError naming what a switch refused or did not take; all
    switches then hold what they held before, as far as they let themselves be told.
    """
    before = await read_tables(controller, network)
    changes = diff(plan.flows, _all(before))
    if dry_run or not changes:
        return changes
    try:
        await _make(controller, network, changes)
        _require_nothing_left(diff(plan.flows, _all(await read_tables(controller, network))))
    except (LabError, asyncio.CancelledError) as error:
        await _restore(controller, network, before, error)
        raise
    return changes


async def read_tables(controller: Controller, network: Network) -> dict[str, tuple[FlowEntry | ForeignEntry, ...]]:
    """What every switch of the network holds, by its name. Raises LabError."""

    async def read(switch: Switch) -> tuple[FlowEntry | ForeignEntry, ...]:
        with _naming(switch):
            return await controller.read(switch.dpid, switch.name, _table(switch))

    tables = await asyncio.gather(*(read(switch) for switch in network.switches))
    return {switch.name: entries for switch, entries in zip(network.switches, tables, strict=True)}


async def _make(controller: Controller, network: Network, changes: Iterable[Change]) -> None:
    """Send the changes, switch by switch: what a switch refuses names the first one that is in the way."""
    made = tuple(changes)
    for switch in network.switches:
        ours = [change for change in made if change.entry.switch == switch.name]
        delete = [change.entry for change in ours if change.action is ChangeAction.DELETE]
        add = [c.entry for c in ours if c.action is not ChangeAction.DELETE and isinstance(c.entry, FlowEntry)]
        if ours:
            with _naming(switch):
                await controller.change(switch.dpid, delete, add, _table(switch))


def _require_nothing_left(left: tuple[Change, ...]) -> None:
    if left:
        first = "; ".join(str(change) for change in left[:3])
        raise LabError(f"changes acknowledged by the switches are not there when read back ({len(left)}): {first}")


async def _restore(controller: Controller, network: Network, before: _Held, cause: BaseException) -> None:
    """Put back what was held; foreign entries can only be deleted, so those that are gone stay gone."""
    wanted = [entry for entry in _all(before) if isinstance(entry, FlowEntry)]
    kept = {(entry.switch, entry.priority, entry.oxm) for entry in _all(before) if isinstance(entry, ForeignEntry)}
    try:
        held = _all(await read_tables(controller, network))
        own = [e for e in held if isinstance(e, FlowEntry) or (e.switch, e.priority, e.oxm) not in kept]
        await _make(controller, network, diff(wanted, own))
    except LabError as error:
        raise LabError(f"{cause}; and the switches could not be brought back to what they held: {error}") from cause


@contextlib.contextmanager
def _naming(switch: Switch) -> Generator[None]:
    """Errors from within begin with the name the user gave the switch."""
    try:
        yield
    except LabError as error:
        raise LabError(f"{switch.name}: {error}") from error


def _all(held: _Held) -> list[FlowEntry | ForeignEntry]:
    return [entry for entries in held.values() for entry in entries]


def _table(switch: Switch) -> int:
    return profile(switch.driver).table
