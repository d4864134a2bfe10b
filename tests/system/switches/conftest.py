# SPDX-License-Identifier: Apache-2.0
"""The switches that the controller's tests run on: Open vSwitch and twins, or a switch whose address the user gives.

``@pytest.mark.needs("PushVlan", entries=1500)`` declares what a test needs, in the words of profiles. Where the driver
lacks it, the test has to end with the refusal of its plan, which names the remedy.
"""

import os
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from _pytest.capture import CaptureManager

from atoll_controller.probing.switch_probe import refuse_occupied
from atoll_core.description.loader import load_lab_or_experiment
from atoll_core.errors import AtollError, LabError, PlanError
from tests.support.bridges import open_vswitch
from tests.support.switch_under_test import CONNECTS_S, PORTS, SwitchUnderTest, Target, is_of_tests
from tests.support.twin_processes import start_twin

ALL = os.environ.get("ATOLL_TWINS") == "all"
TWINS = ["procurve-v1", "procurve-v2", "procurve-v3"] if ALL else ["procurve-v2"]
_CONTROLLER_PORT, _TWIN_PORT = 6653, 7001  # in namespaces of their own


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for a real switch."""
    group = parser.getgroup("switch", "a real switch")
    group.addoption("--switch", metavar="LAB.yaml:NAME", help="run the controller's tests on this switch")
    group.addoption(
        "--listen", default="127.0.0.1:6653", metavar="HOST:PORT", help="where it finds its controller (%(default)s)"
    )
    group.addoption("--yes", action="store_true", help="the switch carries nothing else: do not ask")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on every kind of switch, or on the user's."""
    if "kind" in metafunc.fixturenames:
        words = metafunc.config.getoption("--switch", default=None)
        kinds = ["hardware"] if words else [pytest.param(kind, marks=pytest.mark.lab) for kind in ("ovs", *TWINS)]
        metafunc.parametrize("kind", kinds, scope="module")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Expect the refusal and the remedy of a test's plan where the hardware lacks what the test needs."""
    needs = pyfuncitem.get_closest_marker("needs")
    switch = pyfuncitem.funcargs.get("switch")
    if needs is None or not isinstance(switch, SwitchUnderTest):
        return (yield)
    expected = [*switch.refusals(needs.args, **needs.kwargs)]
    if not expected:
        return (yield)
    with pytest.raises(PlanError) as refusal:
        yield
    for refused, remedy in expected:
        lines = [line for line in str(refusal.value).splitlines() if line.startswith(refused)]
        assert lines, f"{refused} is not in: {refusal.value}"
        assert lines[0].endswith(f"; {remedy}")
    return True


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SwitchUnderTest]:
    """The switch, which has no entries but those of these tests, and none afterwards."""
    directory = tmp_path_factory.mktemp("switch")
    if kind == "hardware":
        switch = await _on_hardware(_chosen(request.config), directory)
        yield switch
        await switch.clear()
        await switch.controller.close()
        return
    with open_vswitch() as bridges, ExitStack() as stack:
        bridges.add_ports("br1", PORTS)
        target = Target("sw", 1, kind, f"127.0.0.1:{_CONTROLLER_PORT}", bridges.enter)
        controller = await target.controller()
        if kind == "ovs":
            bridges.connect(controller.port, "br1")
        else:
            start_twin(bridges, stack, 1, kind, [], controller.port, _TWIN_PORT)
        await controller.wait_for([1], CONNECTS_S)
        switch = SwitchUnderTest(target, controller, directory)
        yield switch
        await switch.controller.close()


@pytest_asyncio.fixture(loop_scope="module")
async def switch(connected: SwitchUnderTest) -> SwitchUnderTest:
    """The switch, with an empty table."""
    await connected.clear()
    return connected


def _chosen(config: pytest.Config) -> Target:
    """The user's switch. Ends the tests if it is none, or without a confirmation."""
    file, _, name = str(config.getoption("--switch")).rpartition(":")
    try:
        network, _ = load_lab_or_experiment(Path(file))
    except AtollError as error:
        pytest.exit(str(error), returncode=2)
    found = {each.name: each for each in network.switches}
    if name not in found:
        pytest.exit(f"--switch {file}:{name}: no such switch; {file} has {', '.join(found)}", returncode=2)
    if not config.getoption("--yes") and not _confirmed(config, name):
        pytest.exit("nothing was done", returncode=1)
    listen = str(config.getoption("--listen"))
    return Target(name, found[name].dpid, found[name].driver, listen if ":" in listen else f"{listen}:6653")


def _confirmed(config: pytest.Config, name: str) -> bool:
    """Ask the user; without a terminal, nothing is done."""
    capture = config.pluginmanager.getplugin("capturemanager")
    assert isinstance(capture, CaptureManager)
    capture.suspend(in_=True)
    try:
        if not sys.stdin.isatty():
            print(f"\nthe tests fill the flow table of {name}; if it carries nothing else, add --yes", file=sys.stderr)
            return False
        question = f"\nThe tests fill the flow table of {name}, and send frames. Does it carry nothing else? [y/N] "
        return input(question).strip().lower() in ("y", "yes")
    finally:
        capture.resume()


async def _on_hardware(target: Target, directory: Path) -> SwitchUnderTest:
    """The user's switch. Ends the tests if it does not come, has too few ports, or carries something else."""
    try:
        controller = await target.controller()
        await controller.wait_for([target.dpid], CONNECTS_S)
        if (ports := len(controller.switches[target.dpid].ports)) < PORTS:
            pytest.exit(f"{target.name} has {ports} ports for OpenFlow; the tests need {PORTS}", returncode=1)
        switch = SwitchUnderTest(target, controller, directory)
        refuse_occupied(target.name, [entry for entry in await switch.held() if not is_of_tests(entry)])
    except LabError as error:
        pytest.exit(str(error), returncode=1)
    return switch
