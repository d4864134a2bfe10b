# SPDX-License-Identifier: Apache-2.0
"""`up`, `apply`, `down`, `status`: the lab that stays."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from atoll.cli.load import require_backend
from atoll.cli.telling import in_words, swap_in_words
from atoll.keeper.client import KeeperClient, OwnKeeper, connected
from atoll.model.codec import to_json
from atoll.model.errors import LabError
from atoll.model.experiment import Experiment
from atoll.model.load import load_any, load_experiment
from atoll.model.network import Network
from atoll.model.plan import Backend
from atoll.model.switch import Runtime

_NO_LAB = "no lab is up; `atoll up LAB` starts one"


def say(line: dict[str, Any]) -> None:
    """Tell a person what a request is doing."""
    if line["type"] == "progress":
        print(in_words(line["text"]), file=sys.stderr, flush=True)


def bring_up(path: Path, backend: Backend, runtime: Runtime | None, *, as_json: bool) -> int:
    """`atoll up`; returns the exit code."""
    from atoll_emulation.machine import require_machine

    network, experiment = load_any(path)
    require_machine()
    require_backend(network, experiment, backend)
    return asyncio.run(_up(network, experiment, backend, runtime, as_json=as_json))


async def _up(
    network: Network, experiment: Experiment | None, backend: Backend, runtime: Runtime | None, *, as_json: bool
) -> int:
    """Interrupted or failed, it leaves no lab that was not up before, and says so."""
    async with connected() as running:
        pass
    work = asyncio.create_task(_up_with_keeper(network, experiment, backend, runtime, own=running is None))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, work.cancel)
    try:
        already, changes = await work
    except asyncio.CancelledError:
        print(f"cancelled; {'no lab is up' if running is None else 'the lab was up before and stays'}", file=sys.stderr)
        return 1
    result: dict[str, Any] = {"lab": network.name, "already": already, "changes": changes}
    if as_json:
        print(json.dumps(result))
    else:
        applied = f", {experiment.name} applied ({len(result['changes'])} changes)" if experiment else ""
        print(f"{network.name} {'was up already' if already else 'is up'}{applied}")
    return 0


async def _up_with_keeper(
    network: Network, experiment: Experiment | None, backend: Backend, runtime: Runtime | None, *, own: bool
) -> tuple[bool, list[Any]]:
    keeper = await OwnKeeper.start(for_run=False) if own else None
    try:
        return await _up_and_apply(network, experiment, backend, runtime)
    except BaseException:
        if keeper is not None:
            await keeper.end()
        raise


async def _up_and_apply(
    network: Network, experiment: Experiment | None, backend: Backend, runtime: Runtime | None
) -> tuple[bool, list[Any]]:
    """Whether the lab was up already, and what was changed for the experiment."""
    async with connected() as keeper:
        if keeper is None:
            msg = "the keeper ended while the lab was coming up"
            raise LabError(msg)
        done = await keeper.stream("/up", {"network": to_json(network), **asked_runtime(runtime)}, say)
        if experiment is None:
            return done["already"], []
        say({"type": "progress", "text": "apply"})
        applied, _ = await _apply(keeper, network, experiment, backend)
        return done["already"], applied["changes"]


def asked_runtime(runtime: Runtime | None) -> dict[str, str]:
    """What a request says of the controller's runtime: nothing when any will do."""
    return {} if runtime is None else {"runtime": str(runtime)}


async def _apply(
    keeper: KeeperClient, network: Network, experiment: Experiment, backend: Backend, **how: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answer, and the events of the swap if there was one, which people have been told of."""
    body = {"experiment": to_json(experiment), "network": to_json(network), "backend": backend, "dry_run": False}
    swap: list[dict[str, Any]] = []

    def take(line: dict[str, Any]) -> None:
        say(line)
        if line["type"] == "swap":
            swap.append(line)
            if text := swap_in_words(line):
                print(text, file=sys.stderr, flush=True)

    return await keeper.stream("/apply", body | how, take), swap


def apply_experiment(
    path: Path, backend: Backend, *, dry_run: bool, at_once: bool, connections: str, as_json: bool
) -> None:
    """`atoll apply`."""
    from atoll.experiment.connections import Connections

    Connections.parse(connections)
    network, experiment = load_experiment(path)
    require_backend(network, experiment, backend)
    how = {"dry_run": dry_run, "at_once": at_once, "connections": connections}
    asyncio.run(_apply_verb(network, experiment, backend, how, as_json=as_json))


async def _apply_verb(
    network: Network, experiment: Experiment, backend: Backend, how: dict[str, Any], *, as_json: bool
) -> None:
    async with connected() as keeper:
        if keeper is None:
            raise LabError(_NO_LAB)
        done, swap = await _apply(keeper, network, experiment, backend, **how)
    dry_run, changes = how["dry_run"], done["changes"]
    if as_json:
        print(json.dumps({"experiment": experiment.name, "dry_run": dry_run, "changes": changes, "swap": swap}))
        return
    for line in done["lines"]:
        print(line)
    swapped = f" {swap_in_words(swap[-1])};" if swap else ""
    print(
        f"{len(changes)} change{'' if len(changes) == 1 else 's'} {'would be made' if dry_run else 'made'};{swapped} "
        f"{experiment.name} on {network.name}"
    )


def take_down(*, force: bool, as_json: bool) -> None:
    """`atoll down`."""
    asyncio.run(_down(force=force, as_json=as_json))


async def _down(*, force: bool, as_json: bool) -> None:
    async with connected() as keeper:
        if keeper is not None:
            busy = (await keeper.status())["busy"]
            if busy is not None and not force:
                what = f"{busy['what']} {busy.get('experiment') or busy.get('lab')}"
                msg = f"the lab is busy with `{what}`; wait for it, or end it with `atoll down --force`"
                raise LabError(msg)
            await keeper.down()
    if as_json:
        print(json.dumps({"was_up": keeper is not None}))
    else:
        print("the lab is down" if keeper is not None else "no lab was up")


def print_status(*, as_json: bool) -> None:
    """`atoll status`."""
    asyncio.run(_status(as_json=as_json))


async def _status(*, as_json: bool) -> None:
    async with connected() as keeper:
        status = await keeper.status() if keeper is not None else None
    if as_json:
        print(json.dumps(status or {"lab": None}))
        return
    if status is None or status["lab"] is None:
        print("no lab is up")
        return
    lab, busy = status["lab"], status["busy"]
    print(
        f"{lab['name']} ({lab['file']}) is up; keeper {status['pid']}, "
        f"{lab['datapath']} datapath, Open vSwitch {lab['ovs']}"
    )
    print("switches: " + ", ".join(f"{name} {state}" for name, state in lab["switches"].items()))
    print(
        f"experiment: {lab['experiment'] or 'none applied'}"
        + (f", chain {' - '.join(lab['chain'])}" if lab["chain"] else "")
    )
    print(f"busy: {busy['what']} {busy.get('experiment', '')}" if busy else "idle")
