# SPDX-License-Identifier: Apache-2.0
"""Bring the machines of a testbed to a plan: settings of their interfaces, and programs of boxes."""

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from atoll_controller.planner.host_config import with_min_mtus
from atoll_core.codec import to_json
from atoll_core.errors import LabError
from atoll_core.plan.plan import FilterVerdict, HostSettings, PacketRule, Packets, Plan
from atoll_testbed.box_services import Services, TestbedChange
from atoll_testbed.platforms.base import Platform

_UNKNOWN_SETTINGS = HostSettings("", ())
"""Settings that no plan has: those of a machine are to be undone later, or set again."""


_SHOWN = 3  # settings that a change names at most


class MachineReconciler:
    """Keeps the settings and the box programs of a testbed's machines at those of the applied plan."""

    def __init__(self, platform: Platform, services: Services) -> None:
        self._platform = platform
        self._services = services
        self._settings: dict[str, HostSettings] = {}

    def changes(self, plan: Plan, *, restart_traces: bool, idle: Collection[str] = ()) -> tuple[TestbedChange, ...]:
        """The changes that lead to a plan; ``restart_traces``: traces begin again. ``idle``: see :class:`Services`."""
        changes: list[TestbedChange] = []
        for settings in plan.hosts:
            current = self._settings.get(settings.host)
            if current is None:
                changes.append(TestbedChange("machine", "add", settings.host, "not configured yet"))
            elif current != settings:
                reason = _differences_text(current, settings)
                changes.append(TestbedChange("machine", "modify", settings.host, reason))
        return (*changes, *self._services.changes(plan, restart_traces=restart_traces, idle=idle))

    async def reconcile(self, plan: Plan | None, *, restart_traces: bool = False) -> None:
        """Give the machines the settings and programs of a plan; without a plan, undo and stop all. Raises LabError."""
        await self._set(_settings(plan))
        await self._services.reconcile(plan, restart_traces=restart_traces)

    async def advance(self, plan: Plan, unchanged_boxes: Collection[str]) -> None:
        """Bring the boxes to a plan that no packet passes, and start its missing programs there. Raises LabError.

        ``unchanged_boxes``: the others, which stay as they are. Hosts send no longer packets than the plans before and
        after allow.
        """
        network, planned = self._platform.network, _settings(plan)
        free_boxes = {box.name for box in network.boxes}.difference(unchanged_boxes)
        await self._services.end(plan, free_boxes)
        updates = {name: planned[name] for name in free_boxes & planned.keys()}
        for host in network.hosts:
            updates[host.name] = with_min_mtus(self._settings.get(host.name, planned[host.name]), planned[host.name])
        await self._set({**self._settings, **updates})
        await self._services.add(plan, unchanged_boxes)

    async def admit(self, box: str, *, on: bool) -> None:
        """Let TCP connections begin through a box, or drop their first packets. Raises LabError."""
        kind = self._platform.network.box(box).kind
        if "admit" in kind.settable:
            await self._services.admit(box, on=on)
            return
        settings = self._settings.get(box)
        if settings is None or settings == _UNKNOWN_SETTINGS:
            raise LabError(f"{box}: its settings are unknown after a failure; set them again by `atoll apply`")
        drop = PacketRule(tuple(leg.name for leg in settings.interfaces), Packets.SYN, verdict=FilterVerdict.DROP)
        rules = settings.packet_rules if on else (drop, *settings.packet_rules)
        await self._platform.machine(box).set(replace(settings, packet_rules=rules))

    async def wait_until_empty(self, boxes: Mapping[str, Collection[str]], limit_s: float) -> tuple[str, ...]:
        """See :meth:`Services.wait_until_empty`."""
        return await self._services.wait_until_empty(boxes, limit_s)

    async def restore(self, plan: Plan | None) -> None:
        """Return to the settings and programs of a plan as far as possible. Raises the first error."""
        try:
            await self._set(_settings(plan))
        except Exception:
            with contextlib.suppress(Exception):  # the first error is raised
                await self._services.reconcile(plan, restart_traces=False)
            raise
        await self._services.reconcile(plan, restart_traces=False)

    async def undo(self) -> tuple[str, ...]:
        """Undo all settings; a line for each machine where that fails."""
        hosts = tuple(self._settings)
        outcomes = await asyncio.gather(
            *(self._platform.machine(host).unset() for host in hosts), return_exceptions=True
        )
        self._settings.clear()
        return tuple(str(outcome) for outcome in outcomes if isinstance(outcome, Exception))

    async def _set(self, planned: Mapping[str, HostSettings]) -> None:
        """Set each machine whose settings differ; its agent replaces those that it has. Without any, undo all."""
        changed = [host for host in (planned or self._settings) if self._settings.get(host) != planned.get(host)]

        async def change(host: str) -> None:
            if host in planned:
                self._settings.pop(host, None)  # unknown after a failure
                await self._platform.machine(host).set(planned[host])
                self._settings[host] = planned[host]
            else:
                self._settings[host] = _UNKNOWN_SETTINGS  # after a failure
                await self._platform.machine(host).unset()
                del self._settings[host]

        for outcome in await asyncio.gather(*map(change, changed), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        await self._platform.wait_for_links(host for host in changed if host in planned)


def _settings(plan: Plan | None) -> dict[str, HostSettings]:
    return {settings.host: settings for settings in plan.hosts} if plan is not None else {}


def _differences_text(old: HostSettings, new: HostSettings) -> str:
    """The settings that differ, with both values."""
    texts = list(_differences("", to_json(old), to_json(new))) or ["the order of its settings"]
    more = f"; {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{'; '.join(texts[:_SHOWN])}{more}"


def _differences(key: str, old: Any, new: Any) -> Iterator[str]:
    """The keys at which two values in JSON differ, with both values; lists are compared by the names of their items."""
    old_by_name, new_by_name = _by_name(old), _by_name(new)
    if old_by_name is not None and new_by_name is not None:
        for name in {**old_by_name, **new_by_name}:
            yield from _differences(f"{key}.{name}" if key else name, old_by_name.get(name), new_by_name.get(name))
    elif old != new:
        old_text, new_text = ("none" if value in (None, [], {}) else str(value).lower() for value in (old, new))
        yield f"{key}: {old_text} -> {new_text}"


def _by_name(value: Any) -> dict[str, Any] | None:
    """An object, or a list of pairs or of named objects; else None."""
    if not isinstance(value, list):
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None
    items = cast("list[Any]", value)
    types: set[type] = {type(item) for item in items}
    if types == {dict}:
        by_name = {item.get("name") or item.get("prefix"): item for item in items}
        return None if None in by_name else by_name
    is_pairs = types == {list} and all(len(item) == 2 and isinstance(item[0], str) for item in items)
    return dict(items) if is_pairs else None
