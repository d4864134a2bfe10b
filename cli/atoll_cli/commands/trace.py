# SPDX-License-Identifier: Apache-2.0
"""`atoll trace`: the path of a packet between two hosts, by the plan or by probes in the running lab."""

import asyncio
import json
from pathlib import Path
from typing import Any

from atoll_controller.planner.planner import make_plan
from atoll_controller.tracing.packet_input import read_packet
from atoll_controller.tracing.packet_trace import (
    PacketTrace,
    host_of,
    named_host,
    trace,
    trace_frame,
    trace_text,
)
from atoll_controller.tracing.trace_report import LiveTrace, live_trace_text
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import LabError, UsageError
from atoll_core.experiment.experiment import Protocol
from atoll_core.platforms import LabTarget


def print_trace(path: Path, src: str, dst: str, protocol: Protocol, *, as_json: bool) -> int:
    """`atoll trace`; returns the exit code (1: the packet does not arrive)."""
    network, experiment = load_experiment(path)
    return _show(trace(network, experiment, make_plan(network, experiment).flows, src, dst, protocol), as_json=as_json)


def print_packet_trace(path: Path, packet: str, src: str | None, dst: str | None, *, as_json: bool) -> int:
    """`atoll trace --packet`; returns the exit code (1: the packet does not arrive).

    ``src``, ``dst``: hosts; they fill in addresses that the packet does not have. Without ``src``, the host that has
    the packet's source address sends it.
    """
    network, experiment = load_experiment(path)
    source, destination = (None if name is None else named_host(network, name) for name in (src, dst))
    frame = read_packet(packet, source and source.address, destination and destination.address)
    if destination is not None and frame.dst != destination.address:
        raise UsageError(f"--packet is for {frame.dst}, which is not the address of {dst}; leave {dst} out")
    source = source or host_of(network, frame.src)
    if source is None:
        raise UsageError(f"--packet is from {frame.src}, which no host has; name the host that sends it as SRC")
    entries = make_plan(network, experiment).flows
    return _show(trace_frame(network, experiment, entries, source.name, frame), as_json=as_json)


def _show(path: PacketTrace, *, as_json: bool) -> int:
    print(json.dumps(to_json(path), indent=2) if as_json else trace_text(path))
    return 0 if path.arrives else 1


def print_live_trace(
    target: LabTarget, path: Path, src: str, dst: str, protocol: Protocol, probes: int, *, as_json: bool
) -> int:
    """`atoll trace --live`; returns the exit code (1: the path is not verified)."""
    network, experiment = load_experiment(path)
    query = {"src": src, "dst": dst, "protocol": protocol.value, "probes": str(probes)}
    answer = asyncio.run(_send_probes(target, Path(network.file), experiment.name, query))
    print(json.dumps(answer, indent=2) if as_json else live_trace_text(from_json(LiveTrace, answer["live"])))
    return 0 if answer["proven"] else 1


async def _send_probes(target: LabTarget, lab: Path, experiment: str, query: dict[str, str]) -> dict[str, Any]:
    """The daemon's answer. Raises LabError if another experiment is applied."""
    from atoll_daemon.client import running_lab
    from atoll_daemon.http.http_errors import no_lab_is_up

    async with running_lab(target) as daemon:
        lab_up = (await daemon.status())["lab"]
        if lab_up is None:
            raise LabError(no_lab_is_up(target))
        applied = lab_up["experiment"]
        if applied != experiment or not lab.samefile(lab_up["file"]):
            lab_text = f"{lab_up['name']} is up with {f'experiment {applied}' if applied else 'no experiment applied'}"
            raise LabError(f"{lab_text}, not experiment {experiment} on {lab}; run `atoll apply` first")
        return await daemon.post("/v1/trace", **query)
