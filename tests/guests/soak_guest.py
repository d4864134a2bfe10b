# SPDX-License-Identifier: Apache-2.0
"""Random applies, runs, controller and switch deaths on one lab: ``python -m tests.guests.soak_guest OUT OPTIONS``.

OPTIONS is a JSON object (``Options``). A line is printed for each event, then a table of what there was before and
after: the exit code is 1 if there is more of anything, or if an event failed. Run it in a sandbox, or in the kernel for
virtual time.
"""

import asyncio
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from atoll_controller.fabric import reconciler
from atoll_controller.fabric.flow_installer import read_tables
from atoll_controller.planner.entry_diff import diff
from atoll_core.description.loader import load_experiment
from atoll_core.errors import AtollError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import TIMER_SLACK, VIRTUAL_SLACK
from atoll_emulation.this_machine.congestion_controls import allow_all_controls
from atoll_testbed.run.live_run import LiveRun
from atoll_testbed.run.run_request import RunOptions, RunRequest, create_run, plan_run
from atoll_testbed.testbed import Testbed
from tests.support.sandbox import QUICK

_NOBODY = "tcp:127.0.0.1:6"  # where no controller listens
_CONTROLLER = "tcp:127.0.0.1:6653"
_AWAY_S = 8.0
_PAUSE_S = 20.0
_HEALED_S = 60.0
_MEMORY_SLACK = 1.1  # of a process' resident memory, and
_MEMORY_SLACK_KB = 8192

_PROGRAMS = (
    "soak_guest",
    "atoll_controller.openflow",
    "atoll-host agent",
    "atoll_emulation.mininet_lab.ns_init",
    "ovs-vswitchd",
    "ovsdb-server",
)


@dataclass(frozen=True)
class Options:
    """``duration_s``: by the clock that the lab goes by."""

    duration_s: float
    seed: int = 1
    virtual: bool = False


class Soak:
    """A testbed and what happens to it."""

    def __init__(self, testbed: Testbed, base: Experiment, out: Path, options: Options) -> None:
        self._testbed = testbed
        self._base = base
        self._out = out
        self._backend = Backend.TC if options.virtual else Backend.ENGINE
        self._duration_s = options.duration_s
        self._draw = random.Random(options.seed)
        self._began_s = time.monotonic()
        self._events: dict[str, Callable[[], Awaitable[str]]] = {
            "swap": self._swap,
            "apply at once": self._apply_at_once,
            "run": self._run,
            "controller dies": self._controller_dies,
            "switch reboots": self._switch_reboots,
            "controller dies while a switch is away": self._both,
        }
        self.happened: Counter[str] = Counter()
        self.failed = 0

    async def run(self) -> tuple[dict[str, int], dict[str, int]]:
        """What there was once each kind of event had happened, and at the end."""
        for name in self._events:
            await self._happen(name)
        before = await self._counts()
        while time.monotonic() - self._began_s < self._duration_s:
            await asyncio.sleep(self._draw.uniform(0, _PAUSE_S))
            await self._happen(self._draw.choice(list(self._events)))
        return before, await self._counts()

    async def _happen(self, name: str) -> None:
        began_s = time.monotonic()
        try:
            outcome = await self._events[name]()
        except PlanError as error:
            outcome = f"refused: {str(error).splitlines()[0][:60]}"
        except AtollError as error:
            outcome = f"failed: {str(error).splitlines()[0]}"
        await self._healed()
        failed = outcome.startswith("failed")
        self.failed += failed
        self.happened[f"{name}{' failed' if failed else ''}"] += 1
        took_s = time.monotonic() - began_s
        print(f"{began_s - self._began_s:9.1f} s  {name} ({took_s:.1f} s): {outcome}", flush=True)

    async def _healed(self) -> None:
        """Return when the switches have the plan's entries. Raises TimeoutError, or AtollError when the lab failed."""
        async with asyncio.timeout(_HEALED_S):
            while True:
                if self._testbed.failed.done():
                    raise SystemExit(f"the lab has failed: {self._testbed.failed.result()}")
                try:
                    held = await read_tables(self._testbed.controller, self._testbed.network)
                    plan = self._testbed.plan
                    if plan and not diff(plan.flows, (entry for entries in held.values() for entry in entries)):
                        return
                except AtollError:
                    pass  # a switch, or the controller, is still away
                await asyncio.sleep(0.2)

    # Events

    async def _swap(self) -> str:
        new = self._drawn()
        _, changes = await self._testbed.apply(new, self._backend)
        return f"{len(changes)} changes; {' - '.join(new.chain.hops)}, {len(new.latency)} delayed"

    async def _apply_at_once(self) -> str:
        new = self._drawn()
        _, changes = await self._testbed.apply(new, self._backend, at_once=True)
        return f"{len(changes)} changes; {' - '.join(new.chain.hops)}"

    async def _run(self) -> str:
        request = RunRequest(
            self._testbed.network,
            self._base,
            self._testbed.platform.name,
            RunOptions(self._backend, metrics=False),
        )
        run_dir = create_run(self._out, request, time.time_ns())
        try:
            await LiveRun(self._testbed, plan_run(request), run_dir).measure(time.time_ns())
            return str(run_dir.manifest()["outcome"])
        finally:
            run_dir.close()
            shutil.rmtree(run_dir.path)

    async def _controller_dies(self) -> str:
        killed = self._testbed.controller
        entered = killed._process.pid
        os.kill(int(Path(f"/proc/{entered}/task/{entered}/children").read_text().split()[0]), signal.SIGKILL)
        while self._testbed.controller is killed:  # noqa: ASYNC110 - as a user would
            await asyncio.sleep(0.05)
        await self._testbed.wait_until_settled()
        return "replaced"

    async def _switch_reboots(self) -> str:
        name = self._draw.choice(self._testbed.network.switches).name
        wait_until_empty = await self._gone(name)
        await asyncio.sleep(self._draw.uniform(0, _AWAY_S))
        await self._back(name)
        return f"{name}{', its table empty' if wait_until_empty else ''}"

    async def _both(self) -> str:
        name = self._draw.choice(self._testbed.network.switches).name
        await self._gone(name)
        answer = await self._controller_dies()
        await self._back(name)
        return f"{answer} without {name}"

    async def _gone(self, switch: str) -> bool:
        await self._in_lab("ovs-vsctl", "set-controller", switch, _NOBODY)
        wait_until_empty = self._draw.random() < 0.5
        if wait_until_empty:
            await self._in_lab("ovs-ofctl", "-O", "OpenFlow13", "del-flows", switch)
        return wait_until_empty

    async def _back(self, switch: str) -> None:
        options = ["set", "controller", switch, "connection_mode=out-of-band", "max_backoff=1000"]
        await self._in_lab("ovs-vsctl", "set-controller", switch, _CONTROLLER, "--", *options)

    def _drawn(self) -> Experiment:
        """The experiment with any of the boxes and taps, and any of the servers delayed."""
        network = self._testbed.network
        hops = ["tap-w", "pep-w", "coder-w", "sat", "coder-i", "pep-i", "tap-i"]
        kept = tuple(hop for hop in hops if hop == "sat" or self._draw.random() < 0.6)
        classes = [known.name for box in network.delay_boxes for known in box.classes]
        servers = [name for name, _ in self._base.latency if self._draw.random() < 0.7]
        latency = tuple((name, self._draw.choice(classes)) for name in servers)
        return replace(self._base, chain=replace(self._base.chain, hops=kept), latency=latency)

    async def _in_lab(self, *argv: str) -> None:
        process = await asyncio.create_subprocess_exec(*self._testbed.lab.enter(), *argv)
        assert await process.wait() == 0, argv

    # What there is

    async def _counts(self) -> dict[str, int]:
        """After the base experiment has been applied at once."""
        await self._testbed.apply(self._base, self._backend, at_once=True)
        await self._healed()
        await asyncio.sleep(3.0)
        gc.collect()
        network, controller = self._testbed.network, self._testbed.controller
        found: dict[str, int] = {}
        for switch, entries in (await read_tables(controller, network)).items():
            found[f"entries of {switch}"] = len(entries)
        for switch in network.switches:
            left = await controller.leftovers(switch.dpid)
            found[f"groups and meters of {switch.name}"] = len(left.groups) + len(left.meters)
        return found | _of_processes() | {"temporary files": _temporary_files()}


def _of_processes() -> dict[str, int]:
    found: Counter[str] = Counter()
    namespaces: set[str] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = entry.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if not words:  # of the kernel, or ended
                continue
            spaces = {str(entry.joinpath("ns", kind).readlink()) for kind in ("net", "pid", "mnt")}
            net = next(space for space in spaces if space.startswith("net:"))
            if net not in namespaces:
                found["interfaces"] += len(entry.joinpath("net/dev").read_text().splitlines()) - 2
            namespaces |= spaces
            descriptors = len(list(entry.joinpath("fd").iterdir()))
            resident_kb = int(entry.joinpath("statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
        except (FileNotFoundError, ProcessLookupError):
            continue
        program = next((program for program in _PROGRAMS if program in words and "nsenter" not in words), "others")
        found["processes"] += 1
        found[f"descriptors of {program}"] += descriptors
        found[f"memory of {program}, kB"] += resident_kb
    return dict(found) | {"namespaces": len(namespaces)}


def _temporary_files() -> int:
    places = (Path(tempfile.gettempdir()), Path("/dev/shm"), Path("/run"))
    return sum(1 for place in places if place.is_dir() for path in place.glob("*atoll*") if path.exists())


def grown(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """What there is more of; memory has some room, as allocators keep what they once had."""
    return [
        name
        for name, count in after.items()
        if count > (_MEMORY_SLACK * before.get(name, 0) + _MEMORY_SLACK_KB if "kB" in name else before.get(name, 0))
    ]


async def main(out: Path, options: Options) -> int:
    """Soak, and print what there was."""
    reconciler._MAX_RESTARTS = 10**6  # it is killed more often than would be right anywhere else
    if options.virtual:
        allow_all_controls()
    network, base = load_experiment(QUICK)
    testbed = await Testbed.start(network, slack=VIRTUAL_SLACK if options.virtual else TIMER_SLACK)
    soak = Soak(testbed, base, out, options)
    await testbed.apply(base, Backend.TC if options.virtual else Backend.ENGINE)
    before, after = await soak.run()
    more = grown(before, after)
    print(f"\n{', '.join(f'{count} x {name}' for name, count in sorted(soak.happened.items()))}\n")
    for name in sorted(before.keys() | after.keys()):
        print(f"{name:<44}{before.get(name, 0):>9}{after.get(name, 0):>9}{'  GROWN' if name in more else ''}")
    if not options.virtual:  # there the kernel just ends
        await testbed.stop()
    return 1 if more or soak.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]), Options(**json.loads(sys.argv[2])))))
