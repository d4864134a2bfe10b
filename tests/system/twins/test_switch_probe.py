# SPDX-License-Identifier: Apache-2.0
"""`atoll switches probe` on twins: it finds what a twin was told to do otherwise, and nothing else.

Four twins are probed at once, each in front of a bridge with two ports.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest
import pytest_asyncio

from atoll_controller.openflow.controller_client import Controller
from atoll_controller.probing.switch_probe import COOKIE, Agreement, ProbedBehaviour, SwitchProbe
from atoll_core.errors import LabError
from atoll_core.plan.flow_entry import FlowEntry, Match, Output
from atoll_switches.capability_profile import profile
from tests.support.bridges import CONNECT_S, DPIDS, Switches, open_vswitch
from tests.support.runtime import start_controller
from tests.support.sandbox import ATOLL, ROOT
from tests.support.twin_processes import TwinProcess, start_twin, tell

pytestmark = [pytest.mark.lab, pytest.mark.asyncio(loop_scope="module")]

_SMALL = "max_entries=200"  # filled in a second
TWINS = {  # by datapath id: driver, other behaviours than the profile's, differences to find
    1: ("procurve-v2", ["statistics=4 s"], {"statistics"}),
    2: (
        "procurve-v2",
        [_SMALL, "flow_mods_per_s=0", "lag_max=0 s", "statistics=0 s"],
        {"max_entries", "flow_mods_per_s", "lag", "statistics"},
    ),
    3: ("procurve-v1", [_SMALL, "early_barriers=false", "refuses=false"], {"max_entries", "early_barriers", "refuses"}),
    4: (
        "procurve-v3",
        [_SMALL, "occupied=50", "flow_mods_per_s=100", "lag_min=5 s"],
        {"max_entries", "occupied", "flow_mods_per_s", "lag"},
    ),
}


@pytest.fixture(scope="module")
def bridges() -> Iterator[Switches]:
    """Four bridges with two ports each, which are up."""
    with open_vswitch() as found:
        for dpid in DPIDS:
            found.add_ports(f"br{dpid}", 2)
        yield found


Twins = dict[int, TwinProcess]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def twins(bridges: Switches) -> AsyncIterator[tuple[Controller, Twins]]:
    """A controller that has the four twins for its switches, and their processes."""
    running = await start_controller(bridges.enter)
    with ExitStack() as stack:
        processes = {
            dpid: start_twin(bridges, stack, dpid, driver, settings, running.port, listen=7000 + dpid)
            for dpid, (driver, settings, _) in TWINS.items()
        }
        await running.wait_for(DPIDS, CONNECT_S)
        yield running, processes
    await running.close()


@pytest.fixture(scope="module")
def controller(twins: tuple[Controller, Twins]) -> Controller:
    return twins[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(controller: Controller) -> dict[int, list[ProbedBehaviour]]:
    """The findings about each twin."""
    probes = [
        SwitchProbe(controller, f"sw-{dpid}", dpid, profile(driver), lambda _: None)
        for dpid, (driver, _, _) in TWINS.items()
    ]
    return dict(zip(TWINS, await asyncio.gather(*(probe.run() for probe in probes)), strict=True))


@pytest.mark.parametrize("dpid", TWINS)
async def test_the_differences_are_those_that_the_twin_was_told(
    found: dict[int, list[ProbedBehaviour]], dpid: int
) -> None:
    differs = {each.name: each.seen for each in found[dpid] if each.verdict is Agreement.DIFFERS}
    assert set(differs) == TWINS[dpid][2], differs


async def test_behaviour_without_a_documented_number_is_seen(found: dict[int, list[ProbedBehaviour]]) -> None:
    """On the twin that differs in its counters alone: the rate, the lag, the barriers and the size."""
    seen = {each.name for each in found[1] if each.verdict is Agreement.SAME and each.verified is False}
    assert seen == {"flow_mods_per_s", "lag", "early_barriers", "max_entries"}


async def test_errors_are_named_as_the_switch_has_them(found: dict[int, list[ProbedBehaviour]]) -> None:
    by_name = {each.name: each.seen for each in found[1]}
    assert by_name["takes l4_dst"] == "refused: OFPBMC_BAD_FIELD"
    assert by_name["takes PushVlan"] == "taken"
    assert by_name["entry in table 0 (read-only)"] == "refused: OFPFMFC_EPERM"
    assert by_name["entry in table 200 (software)"] == "taken"
    assert by_name["entry in table 250 (not there)"] == "refused: OFPFMFC_BAD_TABLE_ID"
    assert by_name["occupied"] == "0 (1500 fit; then OFPFMFC_TABLE_FULL)"


@pytest.mark.parametrize("dpid", TWINS)
async def test_no_entry_of_the_probe_is_left(
    controller: Controller, found: dict[int, list[ProbedBehaviour]], dpid: int
) -> None:
    assert found[dpid]
    assert await controller.read(dpid, "sw", 100) == ()


async def test_a_switch_that_carries_something_else_is_left_alone(
    controller: Controller, found: dict[int, list[ProbedBehaviour]]
) -> None:
    assert found[2]
    other = FlowEntry("sw", 7, Match(1), (Output(2),), 0xA7, "")
    await controller.change(2, [], [other], 100)
    with pytest.raises(LabError, match=r"carries something else: a flow entry \('sw-2: priority 7"):
        await SwitchProbe(controller, "sw-2", 2, profile("procurve-v2"), lambda _: None).run()
    assert await controller.has_exactly(2, [other], 100)
    await controller.change(2, [other], [], 100)


async def test_a_probe_that_is_stopped_deletes_its_entries(
    controller: Controller, found: dict[int, list[ProbedBehaviour]]
) -> None:
    """In the middle of filling the table; the entries of one that was killed are deleted by the next."""
    assert found[2]
    began = asyncio.Event()
    left = FlowEntry("sw", 9, Match(1), (Output(2),), COOKIE, "")
    await controller.change(2, [], [left], 100)
    probe = SwitchProbe(
        controller, "sw-2", 2, profile("procurve-v2"), lambda text: began.set() if "how many" in text else None
    )
    running = asyncio.create_task(probe.run())
    await began.wait()
    assert left.priority not in {entry.priority for entry in await controller.read(2, "sw", 100)}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await controller.read(2, "sw", 100) == ()


async def test_entries_on_a_switch_that_was_away_are_deleted_when_it_is_back(twins: tuple[Controller, Twins]) -> None:
    """The connection breaks for 2 s while entries are tried, and the switch keeps its entries."""
    controller, processes = twins
    held: list[int] = []

    async def disconnect() -> None:
        while not held or held[-1] == 0:
            held.append(await controller.count(4, 100))
        tell(processes[4], {"op": "disconnect", "switch": "sw-4", "for_s": 2})

    breaking: list[asyncio.Task[None]] = []
    probe = SwitchProbe(
        controller,
        "sw-4",
        4,
        profile("procurve-v3"),
        lambda text: breaking.append(asyncio.create_task(disconnect())) if "when an entry" in text else None,
    )
    with pytest.raises(LabError, match="switch 4"):
        await probe.run()
    await breaking[0]
    assert held[-1] > 0
    assert await controller.read(4, "sw", 100) == ()


async def test_the_command_asks_first_and_names_what_it_cannot_probe() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [str(ATOLL), "switches", "probe", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL)

    laboratory = str(ROOT / "examples/laboratory-procurve.yaml")
    asked = run("sw-c", laboratory)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert asked.stderr == "a probe fills the flow table of sw-c; if it carries nothing else, add --yes\n"
    assert "sw-x: no such switch" in run("sw-x", laboratory).stderr
    assert "has driver ovs: only hardware" in run("sw-c", str(ROOT / "examples/geo.yaml")).stderr


async def test_the_command_reports_as_text_and_json(bridges: Switches, controller: Controller) -> None:
    """A twin that forwards at once, with counters at each request: differences, and exit code 1."""
    assert controller.port
    laboratory = str(ROOT / "emulation/labs/laboratory-procurve.yaml")
    with ExitStack() as stack:
        start_twin(bridges, stack, 2, "procurve-v2", TWINS[2][1], 7653, listen=7102)  # takes the bridge over
        command = [*bridges.enter, str(ATOLL), "switches", "probe", "sw-w2", laboratory, "--listen", "127.0.0.1:7653"]
        for options in (["--yes"], ["--yes", "--json"]):
            done = await asyncio.to_thread(
                subprocess.run, [*command, *options], capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 1, done.stderr
            if "--json" in options:
                report = json.loads(done.stdout)
                differs = {each["name"] for each in report["findings"] if each["verdict"] == "differs"}
                assert (report["switch"], report["dpid"], differs) == ("sw-w2", 2, TWINS[2][2])
            else:
                assert re.search(r"^  differs +statistics +20 s +at each request$", done.stdout, re.MULTILINE)
                assert done.stdout.endswith("4 differences; the probe's entries are deleted\n")
