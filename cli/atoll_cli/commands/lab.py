# SPDX-License-Identifier: Apache-2.0
"""`atoll up` and `apply`: a lab that stays up until `atoll down`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from atoll_cli.terminal.output import warn
from atoll_cli.terminal.progress import unless_interrupted
from atoll_controller.planner.description_warnings import description_warnings
from atoll_core.description.loader import DescriptionFile, load_experiment
from atoll_core.errors import LabError
from atoll_core.events.events import Progress
from atoll_core.plan.plan import Backend
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import MININET, LabTarget
from atoll_core.plural import counted
from atoll_core.secret_variables import TOKEN_VARIABLE
from atoll_daemon.client import DaemonClient, Description, OwnDaemon, connected, running_lab, state_directory
from atoll_testbed.box_connections import ConnectionPolicy
from atoll_testbed.preflight.requirements import require_applicable, require_machine_for

_PRINTED_STATES = ("stage", "connections", "end")  # of a swap


def print_progress(line: dict[str, Any]) -> None:
    """Print a progress line of a request on standard error."""
    if line["type"] == "progress":
        print(line["text"], file=sys.stderr, flush=True)


def bring_up(
    target: LabTarget,
    file: DescriptionFile,
    backend: Backend,
    runtime: Runtime | None,
    listen: str | None,
    *,
    probe: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """`atoll up`: bring the lab up, and apply the experiment if ``file`` is one.

    If interrupted or failed, leave no lab that was not up before.
    """
    network, experiment = file.lab_or_experiment()
    require_listen(listen)
    diagnostics = description_warnings(network, experiment, backend, MININET) if experiment else ()
    warnings = warn(diagnostics, strict=strict)
    if experiment:
        require_applicable(network, experiment, target.platform, backend)
    require_machine_for(target.platform, backend)

    async def up_and_apply() -> dict[str, Any]:
        """The JSON output: whether the lab was up, changes, the API's URL."""
        async with connected(target) as daemon:
            if daemon is None:
                raise LabError("the daemon ended while it was starting the lab")
            url = await listen_on(daemon, listen)
            response = await daemon.stream("/v1/lab", Description(file.lab_path()), print_progress, runtime=runtime)
            result: dict[str, Any] = {"lab": network.name, "already": response["already"], "changes": [], "url": url}
            if experiment:
                print_progress(Progress("apply").to_line())
                applied, _ = await _apply(daemon, Description(file.path), backend, probe=probe)
                result["changes"] = applied["changes"]
            return result

    async def up_with_new_daemon() -> dict[str, Any]:
        daemon = await OwnDaemon.start(target, for_run=False)
        try:
            return await up_and_apply()
        except BaseException:
            await daemon.end()
            raise

    async def up() -> dict[str, Any]:
        async with connected(target) as running:
            pass
        if running is None:
            return await unless_interrupted(up_with_new_daemon(), remaining_state="no lab is up")
        return await unless_interrupted(up_and_apply(), remaining_state="the lab was up before and stays up")

    answer = asyncio.run(up())
    if as_json:
        print(json.dumps(answer | {"warnings": warnings}))
    else:
        changes = counted(len(answer["changes"]), "change")
        applied = f"; experiment '{experiment.name}' applied ({changes})" if experiment else ""
        print(f"{network.name} {'was up already' if answer['already'] else 'is up'}{applied}")


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

    token, source = find_token(state_directory())
    url = await daemon.listen(address, token, None if source == TOKEN_VARIABLE else source)
    print(f"API: {url}/v1/, live page: {url}/watch/, token in {source}", file=sys.stderr)
    if not ListenAddress.parse(address).is_loopback:
        print(
            "     unencrypted: anyone on that network can read the token; `ssh -L` encrypts the connection",
            file=sys.stderr,
        )
    return url


async def _apply(
    daemon: DaemonClient, description: Description, backend: Backend, **query: str | bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Apply a description and print its progress; returns the answer, and the events of the swap if there was one.

    ``query``: further parameters of `POST /v1/apply` (docs/api.md).
    """
    swap: list[dict[str, Any]] = []

    def on_line(line: dict[str, Any]) -> None:
        print_progress(line)
        if line["type"] == "swap":
            swap.append(line)
            if line["state"] in _PRINTED_STATES:
                print(line["text"], file=sys.stderr, flush=True)

    parameters = {name: str(value).lower() for name, value in query.items()}
    return await daemon.stream("/v1/apply", description, on_line, backend=backend, **parameters), swap


def apply_experiment(
    target: LabTarget,
    path: Path,
    backend: Backend,
    *,
    dry_run: bool,
    immediate: bool,
    connections: str,
    probe: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """`atoll apply`. Raises LabError: no lab is up."""
    ConnectionPolicy.parse(connections)
    network, experiment = load_experiment(path)
    warnings = warn(description_warnings(network, experiment, backend, MININET), strict=strict)
    require_applicable(network, experiment, target.platform, backend)
    require_machine_for(target.platform, backend)

    async def apply() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        query: dict[str, str | bool] = {"dry_run": dry_run, "at_once": immediate, "probe": probe}
        async with running_lab(target) as daemon:
            return await _apply(daemon, Description(path), backend, connections=connections, **query)

    result, swap = asyncio.run(apply())
    changes = result["changes"]
    if as_json:
        answer = {"experiment": experiment.name, "dry_run": dry_run, "changes": changes, "swap": swap}
        answer |= {"stages": result["stages"], "parts": result["parts"], "budgets": result["budgets"]}
        print(json.dumps(answer | {"warnings": warnings}))
        return
    for line in result["lines"]:
        print(line)
    swap_text = f" {swap[-1]['text']};" if swap else ""
    print(
        f"{counted(len(changes), 'change')} {'would be made' if dry_run else 'made'} on {network.name};{swap_text} "
        f"experiment '{experiment.name}' is {'not applied (dry run)' if dry_run else 'applied'}"
    )
