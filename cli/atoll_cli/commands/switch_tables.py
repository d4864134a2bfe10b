# SPDX-License-Identifier: Apache-2.0
"""`atoll switches`, with `entries` and `counters`: state, flow tables and counters, read from the switches now."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from atoll_controller.fabric.reconciler import unmanaged_state_text
from atoll_core.codec import from_json
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import UsageError
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry, describe_actions
from atoll_core.plan.switch_features import UnmanagedState
from atoll_core.platforms import LabTarget
from atoll_core.plural import columns
from atoll_daemon.client import running_lab

_PORT_COUNTERS = ("rx_packets", "rx_bytes", "rx_dropped", "tx_packets", "tx_bytes", "tx_dropped")
_NO_COUNTER = 2**64 - 1
_NUMBER_COLUMNS = ("entries", "free", "table", "ports")
_MIN_WIDTH = 120  # that of the widest table


def print_states(target: LabTarget, *, as_json: bool) -> None:
    """`atoll switches`. Raises LabError: no lab is up."""

    async def read() -> list[dict[str, Any]]:
        async with running_lab(target) as daemon:
            return await daemon.switches()

    switches = asyncio.run(read())
    if as_json:
        print(json.dumps({"switches": switches}))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("switch", "dpid", "", "model", "profile", "entries", "free", "table", "ports"):
        table.add_column(title, justify="right" if title in _NUMBER_COLUMNS else "left", no_wrap=True)
    for switch in switches:
        table.add_row(*_state_row(switch))
    console = Console()
    console.width = max(console.width, _MIN_WIDTH)  # a terminal that is narrower wraps; nothing is cut off
    console.print(table)
    for switch in switches:
        if switch["problem"]:
            print(switch["problem"])
        if unmanaged := UnmanagedState(tuple(switch["groups"]), tuple(switch["meters"])):
            text = f"{unmanaged_state_text(unmanaged)} are not in the plan; the next `atoll apply` deletes them"
            print(f"{switch['name']}: {text}")


def _state_row(switch: dict[str, Any]) -> list[str]:
    model = " ".join(filter(None, (switch["hardware"] or switch["manufacturer"], switch["software"])))
    return [
        switch["name"],
        f"{switch['dpid']:#x}",
        "up" if switch["up"] else "down",
        model or "-",
        switch["driver"],
        _counter_text(switch["entries"]),
        _counter_text(switch["room"]),
        "-" if switch["table"] is None else f"{switch['table']} of {switch['tables']}",
        str(len(switch["ports"])) if switch["up"] else "-",
    ]


def print_entries(target: LabTarget, names: Sequence[str], *, as_json: bool) -> None:
    """`atoll switches entries`. Raises LabError: no lab is up; UsageError: no such switch."""
    tables = [table for _, table in asyncio.run(_read_all(target, names, "entries"))]
    if as_json:
        print(json.dumps({"switches": tables}))
        return
    for table in tables:
        count = len(table["entries"]) + len(table["foreign"])
        print(f"{table['switch']}, table {table['table']}: {count} {'entry' if count == 1 else 'entries'}")
        for line in columns(_entry_rows(table), indent="  "):
            print(line)


def print_counters(target: LabTarget, names: Sequence[str], *, as_json: bool) -> None:
    """`atoll switches counters`. Raises LabError: no lab is up; UsageError: no such switch."""
    answers = asyncio.run(_read_all(target, names, "counters"))
    if as_json:
        print(json.dumps({"switches": [counters for _, counters in answers]}))
        return
    title = ("port", "", *(name.replace("_", " ") for name in _PORT_COUNTERS))
    for switch, counters in answers:
        port_names = {str(number): name for number, name in switch["ports"]}
        rows = [
            (number, port_names.get(number, ""), *(_counter_text(port.get(name)) for name in _PORT_COUNTERS))
            for number, port in sorted(counters["ports"].items(), key=lambda port: int(port[0]))
        ]
        print(switch["name"])
        for line in columns([title, *rows], indent="  "):
            print(line)


async def _read_all(target: LabTarget, names: Sequence[str], part: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The report of each named switch (all without names), and its ``part``: entries or counters."""
    async with running_lab(target) as daemon:
        switches = {switch["name"]: switch for switch in await daemon.switches()}
        names = tuple(dict.fromkeys(names))
        for name in names:
            if name not in switches:
                raise UsageError(f"{name}: no such switch in the running lab; {suggest(name, switches, 'switches')}")
        return [(switches[name], await daemon.get(f"/v1/switches/{name}/{part}")) for name in names or switches]


def _entry_rows(table: dict[str, Any]) -> list[tuple[str, ...]]:
    entries = [from_json(FlowEntry, entry) for entry in table["entries"]]
    unmanaged = [from_json(UnmanagedEntry, entry) for entry in table["foreign"]]
    rows = [
        (
            str(entry.priority),
            str(entry.match),
            describe_actions(entry.actions),
            _counter_text(packets),
            entry.why or "not in the plan",
        )
        for entry, packets in zip(entries, table["packets"], strict=True)
    ]
    rows += [(str(entry.priority), entry.why, "", "-", "not in the plan") for entry in unmanaged]
    return [("priority", "match", "actions", "packets", "purpose"), *rows] if rows else []


def _counter_text(number: int | None) -> str:
    """A counter, or "-" if the switch does not keep it: all bits are 1 then (OpenFlow 1.3.5, 7.3.5.6)."""
    return "-" if number in (None, _NO_COUNTER) else str(number)
