# SPDX-License-Identifier: Apache-2.0
"""`trace`: the way of a packet between two hosts, as the plan has it, or proven on the lab that is up."""

import asyncio
import json
from pathlib import Path
from typing import Any

from atoll_controller.planner.planner import make_plan
from atoll_controller.tracing.packet_trace import trace, trace_text
from atoll_controller.tracing.trace_report import LiveTrace, live_trace_text
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import LabError
from atoll_core.experiment.experiment import Protocol


def print_trace(path: Path, src: str, dst: str, protocol: Protocol, *, as_json: bool) -> int:
    """`atoll trace`; the exit code (1: the packet does not arrive)."""
    network, experiment = load_experiment(path)
    found = trace(network, experiment, make_plan(network, experiment).flows, src, dst, protocol)
    print(json.dumps(to_json(found), indent=2) if as_json else trace_text(found))
    return 0 if found.arrives else 1


def print_live_trace(path: Path, src: str, dst: str, protocol: Protocol, probes: int, *, as_json: bool) -> int:
    """`atoll trace --live`; the exit code (1: not proven)."""
    network, experiment = load_experiment(path)
    query = {"src": src, "dst": dst, "protocol": protocol.value, "probes": str(probes)}
    told = asyncio.run(_prove(Path(network.file), experiment.name, query))
    print(json.dumps(told, indent=2) if as_json else live_trace_text(from_json(LiveTrace, told["live"])))
    return 0 if told["proven"] else 1


async def _prove(lab: Path, experiment: str, query: dict[str, str]) -> dict[str, Any]:
    """What the daemon found. Raises LabError when it is not this experiment that stands."""
    from atoll_daemon.client import connected
    from atoll_daemon.http.http_errors import no_lab_is_up

    async with connected() as daemon:
        status = await daemon.status() if daemon is not None else None
        if daemon is None or status is None or status["lab"] is None:
            raise LabError(no_lab_is_up())
        stands = status["lab"]["experiment"]
        if stands != experiment or not lab.samefile(status["lab"]["file"]):
            up = f"{status['lab']['name']} is up, with {f'experiment {stands}' if stands else 'no experiment applied'}"
            raise LabError(f"{up}: not the experiment {experiment} on {lab}; `atoll apply` it first")
        return await daemon.post("/v1/trace", **query)
