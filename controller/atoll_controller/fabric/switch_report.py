# SPDX-License-Identifier: Apache-2.0
"""The switches of a lab as they are now: identity, connection state, flow entries."""

import asyncio
from dataclasses import dataclass, replace

from atoll_controller.fabric.flow_installer import table_of
from atoll_controller.openflow.controller_client import Controller
from atoll_core.errors import LabError
from atoll_core.lab.network import Network, Switch
from atoll_core.plan.switch_features import TableFeatures
from atoll_switches.capability_profile import profile
from atoll_switches.entry_placement import table_capacity


@dataclass(frozen=True, slots=True)
class SwitchReport:
    """One switch. Values that the switch itself reports are None or empty while it is disconnected or reports none.

    ``table``: that of the plan's entries; ``entries``: their number; ``room``: the table's capacity. ``groups``,
    ``meters``: their numbers; no plan uses any. ``problem``: the reason why values could not be read.
    """

    name: str
    dpid: int
    driver: str
    profile: str  # the driver's title
    up: bool
    manufacturer: str = ""
    hardware: str = ""
    software: str = ""
    serial: str = ""
    tables: int = 0
    table: int | None = None
    entries: int | None = None
    room: int | None = None
    ports: tuple[tuple[int, str], ...] = ()  # port number, interface name
    features: tuple[TableFeatures, ...] = ()
    groups: tuple[int, ...] = ()
    meters: tuple[int, ...] = ()
    problem: str | None = None


async def switch_reports(controller: Controller, network: Network) -> tuple[SwitchReport, ...]:
    """A report of each of the lab's switches, in lab.yaml's order."""
    return tuple(await asyncio.gather(*(_report(controller, switch) for switch in network.switches)))


async def _report(controller: Controller, switch: Switch) -> SwitchReport:
    state = controller.switches.get(switch.dpid)
    report = SwitchReport(switch.name, switch.dpid, switch.driver, profile(switch.driver).title, up=False)
    if state is None or not state.up:
        return report
    try:
        features = await controller.features(switch.dpid)
        table = await table_of(controller, switch)
        entries = await controller.count(switch.dpid, table)
        leftovers = await controller.leftovers(switch.dpid)
    except LabError as error:
        return replace(report, up=True, problem=str(error))
    description = features.description
    return replace(
        report,
        up=True,
        manufacturer=description.manufacturer,
        hardware=description.hardware,
        software=description.software,
        serial=description.serial,
        tables=state.tables,
        table=table,
        entries=entries,
        room=table_capacity(features, table),
        ports=tuple(sorted(state.ports.items())),
        features=features.tables,
        groups=leftovers.groups,
        meters=leftovers.meters,
    )
