# SPDX-License-Identifier: Apache-2.0
"""`atoll switches entries` and `atoll switches counters`: flow tables and counters, read from the switches now."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from atoll_core.codec import from_json
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import LabError, UsageError
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry, describe_actions
from atoll_core.platforms import LabTarget
from atoll_core.plural import columns
from atoll_daemon.client import connected
from atoll_daemon.http.http_errors import no_lab_is_up

_PORT_COUNTERS = ("rx_packets", "rx_bytes", "rx_dropped", "tx_packets", "tx_bytes", "tx_dropped")
_NOT_KEPT = 2**64 - 1


def print_entries(target: LabTarget, names: Sequence[str], *, as_json: bool) -> None:
    """`atoll switches entries`. Raises LabError: no lab is up; UsageError: no such switch."""
    found = asyncio.run(_asked(target, names, "entries"))
    if as_json:
        print(json.dumps({"switches": [held for _, held in found]}))
        return
    for _, held in found:
        count = len(held["entries"]) + len(held["foreign"])
        print(f"{held['switch']}, table {held['table']}: {count} {'entry' if count == 1 else 'entries'}")
        for line in columns(_entry_rows(held), indent="  "):
            print(line)


def print_counters(target: LabTarget, names: Sequence[str], *, as_json: bool) -> None:
    """`atoll switches counters`. Raises LabError: no lab is up; UsageError: no such switch."""
    found = asyncio.run(_asked(target, names, "counters"))
    if as_json:
        print(json.dumps({"switches": [counted for _, counted in found]}))
        return
    title = ("port", "", *(name.replace("_", " ") for name in _PORT_COUNTERS))
    for switch, counted in found:
        called = {str(number): name for number, name in switch["ports"]}
        rows = [
            (number, called.get(number, ""), *(_count(port.get(name)) for name in _PORT_COUNTERS))
            for number, port in sorted(counted["ports"].items(), key=lambda port: int(port[0]))
        ]
        print(switch["name"])
        for line in columns([title, *rows], indent="  "):
            print(line)


async def _asked(target: LabTarget, names: Sequence[str], what: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The report of each named switch (all without names), and its entries or counters (``what``)."""
    async with connected(target) as daemon:
        if daemon is None:
            raise LabError(no_lab_is_up(target))
        known = {switch["name"]: switch for switch in await daemon.switches()}
        for name in names:
            if name not in known:
                raise UsageError(f"{name}: no such switch in the running lab; {suggest(name, known, 'switches')}")
        return [
            (known[name], await daemon.get(f"/v1/switches/{name}/{what}")) for name in dict.fromkeys(names) or known
        ]


def _entry_rows(held: dict[str, Any]) -> list[tuple[str, ...]]:
    entries = [from_json(FlowEntry, entry) for entry in held["entries"]]
    foreign = [from_json(UnmanagedEntry, entry) for entry in held["foreign"]]
    rows = [
        (
            str(entry.priority),
            str(entry.match),
            describe_actions(entry.actions),
            _count(packets),
            entry.why or "not in the plan",
        )
        for entry, packets in zip(entries, held["packets"], strict=True)
    ]
    rows += [(str(entry.priority), entry.why, "", "-", "not in the plan") for entry in foreign]
    return [("priority", "match", "actions", "packets", "purpose"), *rows] if rows else []


def _count(counted: int | None) -> str:
    """A counter, or "-" if the switch does not keep it: all bits are 1 then (OpenFlow 1.3.5, 7.3.5.6)."""
    return "-" if counted is None or counted == _NOT_KEPT else str(counted)
