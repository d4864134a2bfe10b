# SPDX-License-Identifier: Apache-2.0
"""`atoll status` and `down`: the lab that is up. They read no descriptions, whose modules take longest to import."""

import asyncio
import json
from datetime import datetime
from typing import Any

from atoll_core.errors import LabError
from atoll_core.platforms import LabTarget
from atoll_core.secret_variables import TOKEN_VARIABLE
from atoll_daemon.client import connected
from atoll_daemon.last_failure import forget_failure, last_failure


def take_down(target: LabTarget, *, force: bool, as_json: bool) -> None:
    """`atoll down`."""

    async def down() -> bool:
        async with connected(target) as daemon:
            if daemon is not None:
                await daemon.down(force=force)
            return daemon is not None

    was_up = asyncio.run(down())
    failure = last_failure(target)
    forget_failure(target)
    if failure and (leftovers := failure.get("left")):
        raise LabError("the lab is down, but not everything is undone:\n" + "\n".join(leftovers))
    if as_json:
        print(json.dumps({"was_up": was_up}))
    else:
        print("the lab is down" if was_up else "no lab was up")


def print_status(target: LabTarget, *, as_json: bool) -> int:
    """`atoll status`; returns the exit code: 1 if the lab, or the last one, has failed."""

    async def read() -> dict[str, Any]:
        async with connected(target) as daemon:
            return await daemon.status() if daemon is not None else {"lab": None}

    status = asyncio.run(read())
    lab = status["lab"]
    failure = last_failure(target) if lab is None else None
    failed = failure is not None or bool(lab and lab["failed"])
    if as_json:
        print(json.dumps(status | ({"failure": failure} if failure else {})))
    elif failure is not None:
        t_ns = failure["t_ns"]
        time_text = f" at {datetime.fromtimestamp(t_ns / 1e9).astimezone():%F %T}" if t_ns is not None else ""
        print(f"no lab is up; {failure['lab']} failed{time_text}: {failure['reason']}")
    elif lab is None:
        print("no lab is up")
    elif failed:
        print(f"{lab['name']} ({lab['file']}) has failed and is being taken down: {lab['failed']}")
    else:
        _print_lab(lab, status)
    return 1 if failed else 0


def _print_lab(lab: dict[str, Any], status: dict[str, Any]) -> None:
    busy = status["busy"]
    platform_text = f"on the machines of {lab['inventory']}" if lab["inventory"] else f"{lab['datapath']} datapath"
    platform_text += f", Open vSwitch {lab['ovs']}" if lab["ovs"] else ""
    print(f"{lab['name']} ({lab['file']}) is up; daemon {status['pid']}, {platform_text}")
    print("switches: " + ", ".join(f"{name} {state}" for name, state in lab["switches"].items()))
    print(
        f"experiment: {lab['experiment'] or 'none applied'}"
        + (f", chain {' - '.join(lab['chain'])}" if lab["chain"] else "")
    )
    if status["listens"]:
        print(f"API: {', '.join(status['listens'])}, token in {status['token_file'] or TOKEN_VARIABLE}")
    print(f"busy: {busy['what']} {busy['about']}" if busy else "idle")
