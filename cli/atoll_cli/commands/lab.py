# SPDX-License-Identifier: Apache-2.0
"""`atoll up`, `apply`, `down` and `status`: a lab that stays up until `down`."""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from atoll_cli.terminal.output import warn
from atoll_cli.terminal.signals import unless_interrupted
from atoll_controller.planner.description_warnings import description_warnings
from atoll_core.description.loader import DescriptionFile, load_experiment
from atoll_core.errors import InterruptedByUserError, LabError
from atoll_core.events.events import Progress
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import MININET, LabTarget
from atoll_core.plural import counted
from atoll_core.secret_variables import TOKEN_VARIABLE
from atoll_daemon.client import DaemonClient, Description, OwnDaemon, connected, state_directory
from atoll_daemon.http.http_errors import no_lab_is_up
from atoll_daemon.last_failure import forget_failure, last_failure
from atoll_testbed.preflight.requirements import require_applicable, require_lab

_PRINTED_STATES = ("stage", "connections", "end")  # of a swap


def print_progress(line: dict[str, Any]) -> None:
    """Print a progress line of a request on standard error."""
    if line["type"] == "progress":
        print(line["text"], file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class UpCommand:
    """`atoll up`: ``file`` is a lab to bring up, or an experiment to apply to its lab."""

    target: LabTarget
    file: DescriptionFile
    backend: Backend
    runtime: Runtime | None
    listen: str | None
    probe: bool
    strict: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class ApplyQuery:
    """How an experiment is applied, as in the query of `POST /v1/apply` (docs/api.md)."""

    dry_run: bool = False
    at_once: bool = False
    connections: str = "reset"
    probe: bool = True

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the request."""
        return {name: str(given).lower() for name, given in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class ApplyCommand:
    """`atoll apply`: ``how`` has the query of `POST /v1/apply` (docs/api.md) but for the backend."""

    target: LabTarget
    path: Path
    backend: Backend
    how: ApplyQuery
    strict: bool
    as_json: bool


def bring_up(command: UpCommand) -> int:
    """`atoll up`; returns the exit code."""
    described = network, experiment = command.file.lab_or_experiment()
    require_listen(command.listen)
    doubts = description_warnings(network, experiment, command.backend, MININET) if experiment else ()
    warnings = warn(doubts, strict=command.strict)
    if experiment:
        require_applicable(network, experiment, command.target.platform, command.backend)
    require_lab(command.target.platform, command.backend)
    return asyncio.run(_up(command, described, warnings))


async def _up(command: UpCommand, described: tuple[Network, Experiment | None], warnings: list[dict[str, Any]]) -> int:
    """Bring the lab up. If interrupted or failed, leave no lab that was not up before, and say so."""
    network, experiment = described
    async with connected(command.target) as running:
        pass
    try:
        made = await unless_interrupted(_up_with_daemon(command, described, own=running is None))
    except asyncio.CancelledError:
        left = "no lab is up" if running is None else "the lab was up before and stays up"
        raise InterruptedByUserError(f"cancelled; {left}") from None
    if command.as_json:
        print(json.dumps(made | {"warnings": warnings}))
    else:
        changes = counted(len(made["changes"]), "change")
        applied = f"; experiment '{experiment.name}' applied ({changes})" if experiment else ""
        print(f"{network.name} {'was up already' if made['already'] else 'is up'}{applied}")
    return 0


async def _up_with_daemon(
    command: UpCommand, described: tuple[Network, Experiment | None], *, own: bool
) -> dict[str, Any]:
    daemon = await OwnDaemon.start(command.target, for_run=False) if own else None
    try:
        return await _up_and_apply(command, *described)
    except BaseException:
        if daemon is not None:
            await daemon.end()
        raise


async def _up_and_apply(command: UpCommand, network: Network, experiment: Experiment | None) -> dict[str, Any]:
    """Bring the lab up and apply the experiment; returns the JSON output: whether it was up, changes, the API's URL."""
    async with connected(command.target) as daemon:
        if daemon is None:
            msg = "the daemon ended while it was starting the lab"
            raise LabError(msg)
        url = await listen_on(daemon, command.listen)
        done = await daemon.stream(
            "/v1/lab", Description(command.file.lab_path()), print_progress, runtime=command.runtime
        )
        result: dict[str, Any] = {"lab": network.name, "already": done["already"], "changes": [], "url": url}
        if experiment is None:
            return result
        print_progress(Progress("apply").to_line())
        applied, _ = await _apply(
            daemon, Description(command.file.path), command.backend, ApplyQuery(probe=command.probe)
        )
        return result | {"changes": applied["changes"]}


def require_listen(address: str | None) -> None:
    """Raise UsageError for an invalid address before anything is started."""
    if address is not None:
        from atoll_daemon.http.tcp_listener import ListenAddress

        ListenAddress.parse(address)


async def listen_on(daemon: DaemonClient, address: str | None) -> str | None:
    """Have the daemon listen on an address, and print its URLs and where the token is; returns the API's URL."""
    if address is None:
        return None
    from atoll_daemon.http.auth import find_token
    from atoll_daemon.http.tcp_listener import ListenAddress

    token, where = find_token(state_directory())
    url = await daemon.listen(address, token, None if where == TOKEN_VARIABLE else where)
    print(f"API: {url}/v1/, live page: {url}/watch/, token in {where}", file=sys.stderr)
    if not ListenAddress.parse(address).is_loopback:
        print(
            "     unencrypted: anyone on that network can read the token; `ssh -L` encrypts the connection",
            file=sys.stderr,
        )
    return url


async def _apply(
    daemon: DaemonClient, description: Description, backend: Backend, how: ApplyQuery
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Apply a description and print its progress; returns the answer, and the events of the swap if there was one."""
    swap: list[dict[str, Any]] = []

    def take(line: dict[str, Any]) -> None:
        print_progress(line)
        if line["type"] == "swap":
            swap.append(line)
            if line["state"] in _PRINTED_STATES:
                print(line["text"], file=sys.stderr, flush=True)

    return await daemon.stream("/v1/apply", description, take, backend=backend, **how.query), swap


def apply_experiment(command: ApplyCommand) -> None:
    """`atoll apply`."""
    from atoll_testbed.box_connections import ConnectionPolicy

    ConnectionPolicy.parse(command.how.connections)
    network, experiment = load_experiment(command.path)
    warnings = warn(description_warnings(network, experiment, command.backend, MININET), strict=command.strict)
    require_applicable(network, experiment, command.target.platform, command.backend)
    require_lab(command.target.platform, command.backend)
    done, swap = asyncio.run(_apply_to_running_lab(command))
    changes, dry_run = done["changes"], command.how.dry_run
    if command.as_json:
        answer = {"experiment": experiment.name, "dry_run": dry_run, "changes": changes, "swap": swap}
        answer |= {"parts": done["parts"], "budgets": done["budgets"]}
        print(json.dumps(answer | {"warnings": warnings}))
        return
    for line in done["lines"]:
        print(line)
    swapped = f" {swap[-1]['text']};" if swap else ""
    print(
        f"{counted(len(changes), 'change')} {'would be made' if dry_run else 'made'} on {network.name};{swapped} "
        f"experiment '{experiment.name}' is {'not applied (dry run)' if dry_run else 'applied'}"
    )


async def _apply_to_running_lab(command: ApplyCommand) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    async with connected(command.target) as daemon:
        if daemon is None:
            raise LabError(no_lab_is_up(command.target))
        return await _apply(daemon, Description(command.path), command.backend, command.how)


def take_down(target: LabTarget, *, force: bool, as_json: bool) -> None:
    """`atoll down`."""
    asyncio.run(_down(target, force=force, as_json=as_json))


async def _down(target: LabTarget, *, force: bool, as_json: bool) -> None:
    async with connected(target) as daemon:
        if daemon is not None:
            await daemon.down(force=force)
    failure = last_failure(target)
    forget_failure(target)
    if failure and (left := failure.get("left")):
        raise LabError("the lab is down, but not everything is undone:\n" + "\n".join(left))
    if as_json:
        print(json.dumps({"was_up": daemon is not None}))
    else:
        print("the lab is down" if daemon is not None else "no lab was up")


def print_status(target: LabTarget, *, as_json: bool) -> int:
    """`atoll status`; returns the exit code: 1 if the lab, or the last one, has failed."""
    return asyncio.run(_status(target, as_json=as_json))


async def _status(target: LabTarget, *, as_json: bool) -> int:
    async with connected(target) as daemon:
        status = await daemon.status() if daemon is not None else {"lab": None}
    lab = status["lab"]
    failure = last_failure(target) if lab is None else None
    failed = failure is not None or bool(lab and lab["failed"])
    if as_json:
        print(json.dumps(status | ({"failure": failure} if failure else {})))
    elif failure is not None:
        t_ns = failure["t_ns"]
        when = f" at {datetime.fromtimestamp(t_ns / 1e9).astimezone():%F %T}" if t_ns is not None else ""
        print(f"no lab is up; {failure['lab']} failed{when}: {failure['reason']}")
    elif lab is None:
        print("no lab is up")
    elif failed:
        print(f"{lab['name']} ({lab['file']}) has failed and is being taken down: {lab['failed']}")
    else:
        _print_lab(lab, status)
    return 1 if failed else 0


def _print_lab(lab: dict[str, Any], status: dict[str, Any]) -> None:
    busy = status["busy"]
    where = f"on the machines of {lab['inventory']}" if lab["inventory"] else f"{lab['datapath']} datapath"
    where += f", Open vSwitch {lab['ovs']}" if lab["ovs"] else ""
    print(f"{lab['name']} ({lab['file']}) is up; daemon {status['pid']}, {where}")
    print("switches: " + ", ".join(f"{name} {state}" for name, state in lab["switches"].items()))
    print(
        f"experiment: {lab['experiment'] or 'none applied'}"
        + (f", chain {' - '.join(lab['chain'])}" if lab["chain"] else "")
    )
    if status["listens"]:
        print(f"API: {', '.join(status['listens'])}, token in {status['token_file'] or TOKEN_VARIABLE}")
    print(f"busy: {busy['what']} {busy['about']}" if busy else "idle")
