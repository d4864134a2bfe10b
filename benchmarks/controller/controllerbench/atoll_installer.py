# SPDX-License-Identifier: Apache-2.0
"""This project's controller, on either framework: read, diff, smallest change, barriers, full read-back, compare."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from atoll_controller.fabric.flow_installer import apply_flows
from atoll_controller.openflow.controller_client import Controller, interpreter
from atoll_core.description.loader import load_lab
from atoll_core.lab.network import Network, Switch
from atoll_core.plan.plan import Plan
from atoll_core.plan.switch_features import Runtime
from controllerbench.entries import DPID, SWITCH, Pair
from controllerbench.installer import Installer

_LAB = Path(__file__).parents[3] / "emulation" / "labs" / "island.yaml"
_CONNECT_S = 20.0


class Atoll(Installer):
    """``atoll apply``'s own code, on os-ken."""

    name = "atoll"
    checks = "barriers, every entry read back and compared"
    runtime: ClassVar = Runtime.OS_KEN

    def start(self) -> None:
        super().start()
        self._loop = asyncio.new_event_loop()
        self._controller = self._loop.run_until_complete(self._connected())

    async def _connected(self) -> Controller:
        controller = await Controller.start([], interpreter(self.runtime), "127.0.0.1:0", self.runtime)
        self.bench.connect(controller.port)
        await controller.wait_for([DPID], _CONNECT_S)
        return controller

    def stop(self) -> None:
        super().stop()
        self._loop.run_until_complete(self._controller.close())
        self._loop.close()

    def install(self, plan: Sequence[Pair]) -> None:
        flows = tuple(pair.entry() for pair in plan)
        whole = Plan("bench", "bench", flows, hosts=(), jobs=(), captures=(), checks=(), seed=1)
        self._loop.run_until_complete(apply_flows(self._controller, _network(), whole))

    def change(self, old: Sequence[Pair], new: Sequence[Pair]) -> None:
        del old  # it reads the installed entries
        self.install(new)


class AtollOnRyu(Atoll):
    """The same on Ryu."""

    name = "atoll --runtime ryu"
    runtime: ClassVar = Runtime.RYU


def _network() -> Network:
    return replace(load_lab(_LAB), switches=(Switch(SWITCH, DPID, "ovs"),))
