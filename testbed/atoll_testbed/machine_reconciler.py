# SPDX-License-Identifier: Apache-2.0
"""Bring the machines of a testbed to a plan: settings of their interfaces, and programs of boxes."""

import asyncio
import contextlib
from collections.abc import Collection

from atoll_core.plan.plan import HostSettings, Plan
from atoll_testbed.box_services import Services
from atoll_testbed.platforms.base import Platform
from atoll_testbed.testbed_diff import TestbedChange


class MachineReconciler:
    """Keeps the settings and the box programs of a testbed's machines at those of the applied plan."""

    def __init__(self, platform: Platform, services: Services) -> None:
        self._platform = platform
        self._services = services
        self._settings: dict[str, HostSettings] = {}

    def changes(self, plan: Plan, *, restart_traces: bool) -> tuple[TestbedChange, ...]:
        """The changes that lead to a plan; ``restart_traces``: traces begin again."""
        found: list[TestbedChange] = []
        for settings in plan.hosts:
            current = self._settings.get(settings.host)
            if current is None:
                found.append(TestbedChange("machine", "add", settings.host, "not configured yet"))
            elif current != settings:
                found.append(TestbedChange("machine", "modify", settings.host, "its settings differ from the plan"))
        return (*found, *self._services.changes(plan, restart_traces=restart_traces))

    async def reconcile(self, plan: Plan | None, *, restart_traces: bool = False) -> None:
        """Give the machines the settings and programs of a plan; without a plan, undo and stop all. Raises LabError."""
        await self._set(plan)
        await self._services.reconcile(plan, restart_traces=restart_traces)

    async def add(self, plan: Plan) -> None:
        """Give the machines the settings of a plan and start its missing programs. Raises LabError.

        Boxes whose programs the plan does not have keep their settings, as packets may still pass them.
        """
        await self._set(plan, keep=self._services.superfluous(plan))
        await self._services.add(plan)

    async def restore(self, plan: Plan | None) -> None:
        """Return to the settings and programs of a plan as far as possible. Raises the first error."""
        try:
            await self._set(plan)
        except Exception:
            with contextlib.suppress(Exception):  # the first error is raised
                await self._services.reconcile(plan, restart_traces=False)
            raise
        await self._services.reconcile(plan, restart_traces=False)

    async def _set(self, plan: Plan | None, keep: Collection[str] = ()) -> None:
        wanted = {settings.host: settings for settings in plan.hosts} if plan is not None else {}
        differing = (host for host in (wanted or self._settings) if self._settings.get(host) != wanted.get(host))
        changed = [host for host in differing if host not in keep]

        async def change(host: str) -> None:
            if host in self._settings:
                await self._platform.machine(host).unset()
                del self._settings[host]  # not before: after a failure they are to be undone later
            if host in wanted:
                await self._platform.machine(host).set(wanted[host])
                self._settings[host] = wanted[host]

        for outcome in await asyncio.gather(*map(change, changed), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        await self._platform.linked(host for host in changed if host in wanted)
