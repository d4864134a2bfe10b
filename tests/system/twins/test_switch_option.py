# SPDX-License-Identifier: Apache-2.0
"""The controller's tests on a switch that the user names: here a twin that was started by hand."""

import asyncio
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv4Network

import pytest

from atoll_core.plan.flow_entry import FlowEntry, Match, Output
from tests.support.bridges import Switches, open_vswitch
from tests.support.runtime import start_controller
from tests.support.sandbox import ROOT
from tests.support.switch_under_test import CONNECTS_S, FOLLOWS_S, PORTS

LAB = "emulation/labs/laboratory-procurve.yaml"  # its sw-w1 has datapath id 1 and driver procurve-v2
SOME = [] if os.environ.get("ATOLL_TWINS") == "all" else ["-k", "exactly or refuses or outlive"]

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def bridges() -> Iterator[Switches]:
    """A bridge with the ports that the tests need, and a twin in front of it."""
    with open_vswitch() as found:
        found.add_ports("br1", PORTS)
        argv = [*found.enter, sys.executable, "-m", "atoll_emulation.twin", "--driver", "procurve-v2"]
        with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE) as twin:
            found.connect(6654, "br1")
            yield found
            assert twin.stdin is not None
            twin.stdin.close()
            twin.wait(20)


def run_tests(bridges: Switches, *options: str, stdin: int = subprocess.DEVNULL) -> tuple[int, str]:
    """The exit code and the output of the tests on the switch of these options."""
    argv = [*bridges.enter, "env", "-C", ROOT, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    argv += ["tests/system/switches", "--switch", *options]
    done = subprocess.run(argv, stdin=stdin, capture_output=True, text=True, timeout=280, check=False)
    return done.returncode, done.stdout + done.stderr


def add(bridges: Switches, to: IPv4Network, *, delete: bool = False) -> FlowEntry:
    """Add an entry for an address, or delete it, by a controller; the twin has it when this returns."""
    entry = FlowEntry("sw-w1", 7, Match(1, ipv4_dst=to), (Output(2),), 7, "")

    async def change() -> None:
        controller = await start_controller(bridges.enter, "127.0.0.1:6653")
        await controller.wait_for([1], CONNECTS_S)
        await controller.change(1, [entry] if delete else [], [] if delete else [entry], 100)
        await controller.close()

    asyncio.run(change())
    wait_for_hardware(bridges, has_entries=not delete)
    return entry


def wait_for_hardware(bridges: Switches, *, has_entries: bool) -> None:
    """Wait for the bridge to have entries, or none, as it follows the twin's answers only later."""
    deadline_s = time.monotonic() + FOLLOWS_S
    while bool(in_hardware(bridges)) != has_entries:
        assert time.monotonic() < deadline_s, in_hardware(bridges)
        time.sleep(0.1)


def in_hardware(bridges: Switches) -> list[str]:
    """The entries that the bridge forwards by, besides the pipeline."""
    lines = bridges.ofctl("dump-flows", "br1", "table=100").splitlines()
    return [line for line in lines if "priority=" in line and "priority=0 " not in line]


def test_the_tests_pass_on_the_switch_and_leave_nothing(bridges: Switches) -> None:
    """Also where tests that were killed have left entries."""
    add(bridges, IPv4Network("198.19.64.7"))
    assert len(in_hardware(bridges)) == 1
    code, text = run_tests(bridges, f"{LAB}:sw-w1", "--yes", *SOME)
    assert code == 0, text
    assert " passed" in text
    wait_for_hardware(bridges, has_entries=False)


def test_a_switch_that_carries_something_else_is_left_alone(bridges: Switches) -> None:
    entry = add(bridges, IPv4Network("10.20.0.7"))
    code, text = run_tests(bridges, f"{LAB}:sw-w1", "--yes")
    assert code == 1
    assert f"Exit: sw-w1 carries something else: a flow entry ('{entry}'); take a switch that no lab uses" in text
    assert len(in_hardware(bridges)) == 1
    add(bridges, IPv4Network("10.20.0.7"), delete=True)


def test_nothing_is_done_without_a_confirmation(bridges: Switches) -> None:
    """Nor without a terminal, where one asks."""
    code, text = run_tests(bridges, f"{LAB}:sw-w1")
    assert code == 1
    assert "the tests fill the flow table of sw-w1; if it carries nothing else, add --yes" in text
    master, terminal = pty.openpty()
    os.write(master, b"n\n")
    code, text = run_tests(bridges, f"{LAB}:sw-w1", stdin=terminal)
    os.close(terminal)
    os.close(master)
    assert code == 1
    assert "The tests fill the flow table of sw-w1, and send frames. Does it carry nothing else? [y/N]" in text
    assert "nothing was done" in text


def test_a_switch_that_the_lab_does_not_have_is_named(bridges: Switches) -> None:
    code, text = run_tests(bridges, f"{LAB}:sw-x", "--yes")
    assert code == 2
    assert f"--switch {LAB}:sw-x: no such switch; {LAB} has sw-w1, " in text
