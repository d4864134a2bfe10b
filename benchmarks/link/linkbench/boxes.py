# SPDX-License-Identifier: Apache-2.0
"""The boxes between the machines: the link engine, and other emulators with the same settings."""

import contextlib
import json
import os
import queue
import subprocess
import threading
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from atoll_core.errors import LabError
from atoll_core.experiment.experiment import Counted, Link, LinkDirection
from atoll_core.lab.box_kind import LINK
from atoll_core.lab.network import ChainBox, Interface
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan import tc_settings
from atoll_core.units import Duration, Rate, Size
from atoll_hosts.binary import find_binary
from linkbench.link_lab import BOX_PORTS, TRUNK, address

MTU = 1500
_IP_BYTES = "stab linklayer ethernet overhead -14"
_EVERYTHING = "protocol all prio 1 u32 match u32 0 0"
_START_S = 20.0
_BUCKET_SLACK_S = 0.001  # as in atoll_core.plan.tc_settings: the lateness of a timer that costs tbf no rate


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """One direction of a link; rate and queue in IP bits and bytes."""

    rate_bit_s: int
    delay_ns: int
    queue_bytes: int

    def json(self) -> dict[str, int]:
        """As the engine's configuration has it (docs/contracts.md)."""
        return {"rate_bit_s": self.rate_bit_s, "delay_ns": self.delay_ns, "queue_bytes": self.queue_bytes}


class BoxProgram:
    """A program that reads one line of configuration, prints ``ready``, and ends with its standard input."""

    def __init__(self, argv: list[str | Path], config: dict[str, Any]) -> None:
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._stdin = cast("IO[str]", self._process.stdin)
        self._stdout = cast("IO[str]", self._process.stdout)
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ask(config)
        self._answer("ready")

    def mark(self) -> dict[str, Any]:
        """End a measurement and begin the next one; the answer, with which tables are made."""
        self._ask({"op": "mark", "id": 1})
        return self._answer("mark")

    def cpu_s(self) -> float:
        """Processor time used until now."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Have it end, and wait."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(10)

    def _ask(self, message: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(message) + "\n")
        self._stdin.flush()

    def _answer(self, kind: str) -> dict[str, Any]:
        while True:
            try:
                message = self._answers.get(timeout=_START_S)
            except queue.Empty:
                raise LabError(f"the box said no '{kind}' within {_START_S:g} s") from None
            if message["type"] == kind:
                return message
            if message["type"] == "ended":
                raise LabError(f"the box ended instead of saying '{kind}'")

    def _read(self) -> None:
        for line in self._stdout:
            message = json.loads(line)
            if message["type"] != "counters":
                self._answers.put(message)
        self._answers.put({"type": "ended"})


@dataclass(frozen=True, slots=True)
class Running:
    """A box at work: its program, if it is one, and whether that keeps account of itself by marks."""

    job: BoxProgram | None = None
    marks: bool = False

    def mark(self) -> dict[str, Any] | None:
        """Figures since the last mark, if the box has any."""
        return self.job.mark() if self.job and self.marks else None

    def cpu_s(self) -> float:
        """Processor time of the box's own process, without the kernel's work for it in other processes."""
        return self.job.cpu_s() if self.job else 0.0


@contextlib.contextmanager
def link(kind: str, to_island: LinkSettings, to_world: LinkSettings) -> Generator[Running]:
    """A link of one of the KINDS between the machines."""
    with KINDS[kind](to_island, to_world) as running:
        yield running


@contextlib.contextmanager
def delay_box(classes_ns: dict[int, int]) -> Generator[Running]:
    """The engine's delay box on the trunk: one-way delay by VLAN id."""
    config = {
        "trunk": TRUNK,
        "mtu": MTU,
        "seed": 1,
        "classes": [{"vlan": vlan, "delay_ns": delay_ns} for vlan, delay_ns in classes_ns.items()],
    }
    with _program([find_binary(), "delay"], config, marks=True) as running:
        yield running


@contextlib.contextmanager
def _program(argv: list[str | Path], config: dict[str, Any], *, marks: bool) -> Generator[Running]:
    job = BoxProgram(argv, config)
    try:
        yield Running(job, marks)
    finally:
        job.end()


@contextlib.contextmanager
def _engine(to_island: LinkSettings, to_world: LinkSettings) -> Generator[Running]:
    config = {
        "world": BOX_PORTS["world"],
        "island": BOX_PORTS["island"],
        "counts": "ip",
        "mtu": MTU,
        "seed": 1,
        "to_island": to_island.json(),
        "to_world": to_world.json(),
    }
    with _program([find_binary(), "link"], config, marks=True) as running:
        yield running


@contextlib.contextmanager
def _rattan(to_island: LinkSettings, to_world: LinkSettings) -> Generator[Running]:
    ports = {
        name: {
            "interface": port,
            "address": address(None, port),
            "peer_address": address(name, "eth0"),
        }
        for name, port in BOX_PORTS.items()
    }
    config = ports | {"to_island": to_island.json(), "to_world": to_world.json()}
    with _program([os.environ["RATTAN_LINK"]], config, marks=False) as running:
        yield running


@contextlib.contextmanager
def _tc(to_island: LinkSettings, to_world: LinkSettings) -> Generator[Running]:
    """``atoll-host tc``: netem and tbf, in the arrangement that holds (docs/decisions/0011)."""
    world, island = (Interface(port, "02:00:00:00:00:00", PortRef("s", 1)) for port in BOX_PORTS.values())
    box = ChainBox("sat", LINK, world, island)
    ways = [
        LinkDirection(Rate(way.rate_bit_s), Duration(way.delay_ns), Size(way.queue_bytes))
        for way in (to_island, to_world)
    ]
    settings = tc_settings.link_settings(box, Link("sat", ways[0], ways[1], Counted.IP))
    with _program([find_binary(), "tc"], settings.config, marks=True) as running:
        yield running


@contextlib.contextmanager
def _tbf(to_island: LinkSettings, to_world: LinkSettings) -> Generator[Running]:
    """The kernel's token bucket alone, rate and queue without delay: all that kernels without netem can do."""
    ends = (BOX_PORTS["world"], BOX_PORTS["island"])
    lines: list[str] = []
    for way, into, out in ((to_island, *ends), (to_world, *reversed(ends))):
        burst = MTU + 40 + round(way.rate_bit_s * _BUCKET_SLACK_S / 8)
        tbf = f"tbf rate {way.rate_bit_s}bit burst {burst} limit {way.queue_bytes}"
        lines += [
            f"qdisc add dev {out} root handle 1: {_IP_BYTES} {tbf}",
            f"qdisc add dev {into} ingress",
            f"filter add dev {into} parent ffff: {_EVERYTHING} action mirred egress redirect dev {out}",
        ]
    _tc_batch(lines)
    try:
        yield Running()
    finally:
        _tc_batch([f"qdisc del dev {end} {which}" for end in ends for which in ("root", "ingress")])


def _tc_batch(lines: list[str]) -> None:
    done = subprocess.run(
        ["tc", "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, check=False, text=True
    )
    if done.returncode != 0:
        raise LabError(f"tc: {done.stderr.strip()}")


KINDS = {"engine": _engine, "rattan": _rattan, "netem+tbf": _tc, "tbf": _tbf}
"""Kinds of links, by the names they have in tables."""
