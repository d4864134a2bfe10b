# SPDX-License-Identifier: Apache-2.0
"""`switches`: the lab's switches as they are now, in a table; ports and table features in full with --json."""

import asyncio
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from atoll.keeper.client import connected
from atoll.model.errors import LabError

_NUMBERS = ("entries", "room", "table", "ports")


def print_switches(*, as_json: bool) -> None:
    """`atoll switches`. Raises LabError when no lab is up."""
    switches = asyncio.run(_asked())
    if as_json:
        print(json.dumps({"switches": switches}))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("switch", "dpid", "", "make", "profile", "entries", "room", "table", "ports"):
        table.add_column(title, justify="right" if title in _NUMBERS else "left", no_wrap=True)
    for each in switches:
        table.add_row(*_row(each))
    Console().print(table)
    for each in switches:
        if each["problem"]:
            print(each["problem"])


async def _asked() -> list[dict[str, Any]]:
    async with connected() as keeper:
        if keeper is None:
            raise LabError("no lab is up; `atoll up LAB` starts one")
        return await keeper.switches()


def _row(switch: dict[str, Any]) -> list[str]:
    made = " ".join(filter(None, (switch["hardware"] or switch["manufacturer"], switch["software"])))
    return [
        switch["name"],
        f"{switch['dpid']:#x}",
        "up" if switch["up"] else "down",
        made or "-",
        switch["driver"],
        _number(switch["entries"]),
        _number(switch["room"]),
        "-" if switch["table"] is None else f"{switch['table']} of {switch['tables']}",
        str(len(switch["ports"])) if switch["up"] else "-",
    ]


def _number(known: int | None) -> str:
    return "-" if known is None else str(known)
