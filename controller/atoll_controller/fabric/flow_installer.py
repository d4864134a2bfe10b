# SPDX-License-Identifier: Apache-2.0
"""Bring the switches to a plan: read, diff, change, read back, compare; restore the former entries on failure.

New entries are added first, higher priorities before lower ones. Then obsolete entries are deleted, lower priorities
first. Between priorities every switch answers a barrier. So no packet falls through to a wrong entry while the tables
change (docs/decisions/0016). A switch without room for both deletes first; ``require_room`` excludes that for swaps.
"""

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, TypeVar

from atoll_apps.control import control_entries, is_control
from atoll_controller.openflow.controller_client import Controller, OnProgress
from atoll_controller.planner.entry_diff import ChangeAction, FlowChange, diff, with_reasons
from atoll_core.errors import LabError
from atoll_core.lab.network import Network, Switch
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry
from atoll_core.plan.plan import Plan
from atoll_core.units import Duration
from atoll_switches.capability_profile import profile
from atoll_switches.entry_placement import choose_table, table_capacity

_Entry = FlowEntry | UnmanagedEntry
_Tables = Mapping[str, tuple[_Entry, ...]]  # by the switch's name
_E = TypeVar("_E", bound=_Entry)

OnNote = Callable[[str], None]

Verify = Callable[[], Awaitable[None]]
"""Raises LabError when frames do not take the path of the tables."""


async def apply_flows(
    controller: Controller,
    network: Network,
    plan: Plan,
    dry_run: bool = False,
    only: Collection[str] | None = None,
    verify: Verify | None = None,
    note: OnNote | None = None,
    former: Plan | None = None,
    progress: OnNote | None = None,
) -> tuple[FlowChange, ...]:
    """Bring every switch to exactly the plan's entries, by the smallest change. Returns the changes.

    ``dry_run``: make no changes. ``only``: the names of the switches to change. ``verify``: called after changes, when
    every table was read back. ``note``: takes a line for each switch that has to delete first because its table is too
    small. ``former``: the plan before, for the reasons of its entries. ``progress``: takes a line every second. Raises
    LabError when a switch refuses an entry, does not install it or has no room for it, or when ``verify`` fails; the
    former entries are restored then, as far as switches allow it.
    """
    switches = [switch for switch in network.switches if only is None or switch.name in only]
    names = {switch.name for switch in switches}
    planned = [entry for entry in plan.flows if entry.switch in names]
    before = await _read(controller, switches)
    former_flows = former.flows if former else ()
    changes = await asyncio.to_thread(lambda: diff(planned, with_reasons(_merged(before), former_flows)))
    if dry_run or not changes:
        return changes
    await require_room(controller, switches, planned)
    try:
        await _send_changes(controller, switches, changes, before, note, progress)
        await _require_installed(controller, switches, planned)
        if verify is not None:
            await verify()
    except BaseException as error:
        await _restore(controller, switches, before, error)
        raise
    return changes


async def install_control(
    controller: Controller, network: Network, only: Collection[str] | None = None
) -> tuple[FlowChange, ...]:
    """Install the entries of in-band control and leave all others as they are. Returns the changes.

    Entries of an earlier description of in-band control are deleted. ``only``: the names of the switches to change.
    Raises LabError, PlanError.
    """
    switches = [switch for switch in network.switches if only is None or switch.name in only]
    names = {switch.name for switch in switches}
    planned = [entry for entry in control_entries(network) if entry.switch in names]
    identities = {entry.identity for entry in planned}

    def of_control(tables: _Tables) -> list[FlowEntry]:
        entries = (entry for entry in _merged(tables) if isinstance(entry, FlowEntry))
        return [entry for entry in entries if entry.identity in identities or is_control(entry.cookie)]

    before = await _read(controller, switches)
    changes = diff(planned, of_control(before))
    if changes:
        await _send_changes(controller, switches, changes, before)
        _require_no_changes(diff(planned, of_control(await _read(controller, switches))))
    return changes


async def read_tables(controller: Controller, network: Network) -> dict[str, tuple[_Entry, ...]]:
    """The entries of every switch of the network, by its name. Raises LabError."""
    return await _read(controller, network.switches)


async def table_of(controller: Controller, switch: Switch) -> int:
    """The number of the table for the plan's entries, from the switch's table features. Raises LabError."""
    with _name_switch(switch):
        features = await controller.features(switch.dpid)
    return choose_table(profile(switch.driver), features, switch.name)


async def _read(controller: Controller, switches: Sequence[Switch]) -> dict[str, tuple[_Entry, ...]]:
    async def read(switch: Switch) -> tuple[_Entry, ...]:
        table = await table_of(controller, switch)
        with _name_switch(switch):
            return await controller.read(switch.dpid, switch.name, table)

    tables = await asyncio.gather(*(read(switch) for switch in switches))
    return {switch.name: entries for switch, entries in zip(switches, tables, strict=True)}


async def require_room(
    controller: Controller,
    switches: Iterable[Switch],
    planned: Iterable[FlowEntry],
    subject: str = "the plan",
    remedy: str = "combine prefixes, or attach hosts to more switches",
) -> None:
    """Raise LabError with the first switch whose table is too small for these entries."""
    number = Counter(entry.switch for entry in planned)
    for switch in switches:
        table = await table_of(controller, switch)
        capacity = await _capacity(controller, switch)
        if capacity is not None and number[switch.name] > capacity:
            raise LabError(
                f"{switch.name}: {subject} has {number[switch.name]} entries, but table {table} of this switch has "
                f"room for {capacity}; {remedy}"
            )


async def _capacity(controller: Controller, switch: Switch) -> int | None:
    """The capacity of the switch's table in entries; None if it is not reported."""
    return table_capacity(await controller.features(switch.dpid), await table_of(controller, switch))


async def _send_changes(
    controller: Controller,
    switches: Sequence[Switch],
    changes: Iterable[FlowChange],
    tables: _Tables,
    note: OnNote | None = None,
    progress: OnNote | None = None,
) -> None:
    """Send the changes in their order. Raises LabError with the first change that a switch refuses.

    ``tables``: the entries before. Unmanaged entries are deleted first: deleting one later would also delete a new
    entry of equal match and priority.
    """
    changes = tuple(changes)
    managed = [(change.action, change.entry) for change in changes if isinstance(change.entry, FlowEntry)]
    add = [entry for action, entry in managed if action is not ChangeAction.DELETE]
    delete = [entry for action, entry in managed if action is ChangeAction.DELETE]
    unmanaged = [change.entry for change in changes if isinstance(change.entry, UnmanagedEntry)]
    totals = Counter(change.entry.switch for change in changes)
    install_progress = InstallProgress(totals, progress or (lambda _: None), time.monotonic)

    async def change(switch: Switch, deleted: Sequence[_Entry], added: Sequence[FlowEntry]) -> None:
        if deleted or added:
            table = await table_of(controller, switch)
            with _name_switch(switch):
                batch = install_progress.batch(switch.name, len(deleted) + len(added))
                await controller.change(switch.dpid, deleted, added, table, batch)

    await _gather(change(switch, _of_switch(switch, unmanaged), ()) for switch in switches)
    small = [switch for switch in switches if await _is_small(controller, switch, managed, tables[switch.name], note)]
    large = [switch for switch in switches if switch not in small]
    for entries in _by_priority(delete, highest_first=False):
        await _gather(change(switch, _of_switch(switch, entries), ()) for switch in small)
    for entries in _by_priority(add, highest_first=True):
        await _gather(change(switch, (), _of_switch(switch, entries)) for switch in switches)
    for entries in _by_priority(delete, highest_first=False):
        await _gather(change(switch, _of_switch(switch, entries), ()) for switch in large)


async def _is_small(
    controller: Controller,
    switch: Switch,
    changes: Iterable[tuple[ChangeAction, FlowEntry]],
    installed: Iterable[_Entry],
    note: OnNote | None,
) -> bool:
    """Whether a table is too small for its entries and the added ones together."""
    old = sum(isinstance(entry, FlowEntry) for entry in installed)
    new = sum(action is ChangeAction.ADD and entry.switch == switch.name for action, entry in changes)
    capacity = await _capacity(controller, switch) if new else None
    if capacity is None or old + new <= capacity:
        return False
    if note is not None:
        note(
            f"{switch.name}: its table has room for {capacity} entries, too few for {old} old and {new} new entries "
            "together: the old entries are deleted first, and packets are lost until the new entries are installed"
        )
    return True


def _by_priority(entries: Iterable[FlowEntry], *, highest_first: bool) -> list[list[FlowEntry]]:
    """The entries priority by priority."""
    ranked = sorted(entries, key=lambda entry: entry.priority, reverse=highest_first)
    return [list(group) for _, group in groupby(ranked, key=lambda entry: entry.priority)]


def _of_switch(switch: Switch, entries: Iterable[_E]) -> list[_E]:
    return [entry for entry in entries if entry.switch == switch.name]


async def _gather(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait until everything has ended; then raise the first error."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def _require_installed(controller: Controller, switches: Sequence[Switch], planned: Sequence[FlowEntry]) -> None:
    """Read every table back. Raises LabError unless it has exactly these entries."""

    async def is_complete(switch: Switch) -> bool:
        table = await table_of(controller, switch)
        with _name_switch(switch):
            return await controller.has_exactly(switch.dpid, _of_switch(switch, planned), table)

    complete = await asyncio.gather(*(is_complete(switch) for switch in switches))
    differing = [switch for switch, equal in zip(switches, complete, strict=True) if not equal]
    names = {switch.name for switch in differing}
    _require_no_changes(diff((e for e in planned if e.switch in names), _merged(await _read(controller, differing))))


def _require_no_changes(changes: Sequence[FlowChange]) -> None:
    """Raise LabError if changes are left to make after a table was read back."""
    if changes:
        first = "; ".join(str(change) for change in changes[:3])
        raise LabError(f"switches acknowledged changes that are missing from their tables ({len(changes)}): {first}")


async def _restore(controller: Controller, switches: Sequence[Switch], before: _Tables, cause: BaseException) -> None:
    """Restore the former entries; unmanaged entries cannot be restored."""
    planned = [entry for entry in _merged(before) if isinstance(entry, FlowEntry)]
    unmanaged = {replace(entry, why="") for entry in _merged(before) if isinstance(entry, UnmanagedEntry)}
    try:
        installed = _merged(await _read(controller, switches))
        managed = [e for e in installed if isinstance(e, FlowEntry) or replace(e, why="") not in unmanaged]
        tables = {switch.name: tuple(_of_switch(switch, managed)) for switch in switches}
        await _send_changes(controller, switches, diff(planned, managed), tables)
    except LabError as error:
        raise LabError(f"{cause}; and the previous entries could not be restored: {error}") from cause


@contextlib.contextmanager
def _name_switch(switch: Switch) -> Generator[None]:
    """Prefix errors with the switch's name in lab.yaml."""
    try:
        yield
    except LabError as error:
        raise LabError(f"{switch.name}: {error}") from error


def _merged(tables: _Tables) -> list[_Entry]:
    return [entry for entries in tables.values() for entry in entries]


_REPORT_INTERVAL_S = 1.0  # between two lines; an installation that ends before has none


class InstallProgress:
    """Changes that switches have acknowledged, of all that are sent to them.

    ``totals``: the number of changes by the switch's name. ``notify``: takes a line such as
    ``sw-w: 640 of 1500 changes, 9 s to go``, for the switch that will take longest. ``clock``: in seconds.
    """

    def __init__(self, totals: Mapping[str, int], notify: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._totals = totals
        self._acked = dict.fromkeys(totals, 0)
        self._sent = dict.fromkeys(totals, 0)  # changes of batches so far
        self._notify = notify
        self._clock = clock
        self._start_s = self._reported_s = clock()

    def batch(self, switch: str, number: int) -> OnProgress:
        """The progress of a switch's next changes, of that number; those before are done."""
        acked_before = self._acked[switch] = self._sent[switch]
        self._sent[switch] += number

        def progress(acked: int) -> None:
            self._acked[switch] = acked_before + min(acked, number)
            self._report()

        return progress

    def _report(self) -> None:
        now_s = self._clock()
        if now_s - self._reported_s < _REPORT_INTERVAL_S:
            return
        eta_s = {name: self._eta_s(name, now_s) for name, total in self._totals.items() if self._acked[name] < total}
        if eta_s:
            self._reported_s = now_s
            slowest = max(eta_s, key=lambda name: eta_s[name])
            seconds = max(1, math.ceil(eta_s[slowest]))
            self._notify(
                f"{slowest}: {self._acked[slowest]} of {self._totals[slowest]} changes of its flow table, "
                f"{Duration.parse(f'{seconds} s')} to go"
            )

    def _eta_s(self, switch: str, now_s: float) -> float:
        """By the switch's rate so far; 0 for one that has not acknowledged anything."""
        acked = self._acked[switch]
        return (now_s - self._start_s) * (self._totals[switch] - acked) / acked if acked else 0.0
