# SPDX-License-Identifier: Apache-2.0
"""`atoll switches`, and the controller's runtime as a user chooses it: with real labs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll_controller.openflow.controller_client import PYTHON_VARIABLE
from atoll_core.plan.switch_features import Runtime
from tests.support.runtime import ON_RUNTIME, RUNTIME
from tests.support.sandbox import ATOLL, GEO, QUICK, Sandbox

pytestmark = pytest.mark.lab


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    """A machine of the test's own."""
    with Sandbox(tmp_path) as sandbox:
        yield sandbox


def test_switches_are_listed_with_what_they_hold(sandbox: Sandbox) -> None:
    """Without a lab it says what to do; with one, every switch with its entries, and the lab is not touched."""
    none = sandbox.run(ATOLL, "switches")
    assert (none.returncode, none.stderr) == (1, "no lab is up; `atoll up LAB` starts one\n")
    assert sandbox.run(ATOLL, "up", GEO, *ON_RUNTIME).returncode == 0
    answer = sandbox.run(ATOLL, "switches", "--json")
    assert answer.returncode == 0, answer.stderr
    switches = {each["name"]: each for each in json.loads(answer.stdout)["switches"]}
    assert list(switches) == ["sw-w1", "sw-w2", "sw-c", "sw-i"]
    plan = json.loads(sandbox.run(ATOLL, "plan", GEO, "--json").stdout)
    for name, switch in switches.items():
        assert switch["entries"] == sum(entry["switch"] == name for entry in plan["plan"]["flows"])
        assert (switch["up"], switch["driver"], switch["hardware"]) == (True, "ovs", "Open vSwitch")
        assert switch["problem"] is None
        assert switch["room"] >= switch["entries"]
    lines = sandbox.run(ATOLL, "switches").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["switch", *switches]
    (other,) = set(Runtime) - {RUNTIME}
    refused = sandbox.run(ATOLL, "run", QUICK, "--runtime", other)
    assert refused.stderr.splitlines()[-1] == (
        f"the controller of the lab that is up runs {RUNTIME}, not {other}; `atoll down` first"
    )
    assert sandbox.run(ATOLL, "down").returncode == 0
    sandbox.wait_clean()


def test_groups_and_meters_of_nobody_are_told_and_deleted_by_the_next_apply(sandbox: Sandbox) -> None:
    """Also where a flow entry refers to them; the plan's entries stay as they are."""
    assert sandbox.run(ATOLL, "up", GEO, *ON_RUNTIME).returncode == 0
    for line in (
        "add-group sw-c group_id=7,type=all,bucket=output:1",
        "add-meter sw-c meter=3,kbps,band=type=drop,rate=1000",
        "add-flow sw-c priority=7,in_port=1,actions=group:7",
    ):
        done = sandbox.run(ATOLL, "shell", input=f"sh ovs-ofctl -O OpenFlow13 {line}\n")
        assert done.stdout == "", done.stdout
    answer = sandbox.run(ATOLL, "switches").stdout
    assert "sw-c: group 7 and meter 3 are not in the plan; the next `atoll apply` deletes them\n" in answer
    assert sandbox.run(ATOLL, "apply", GEO).returncode == 0
    switches = json.loads(sandbox.run(ATOLL, "switches", "--json").stdout)["switches"]
    assert [(each["groups"], each["meters"]) for each in switches] == [([], [])] * 4
    plan = json.loads(sandbox.run(ATOLL, "plan", GEO, "--json").stdout)
    assert sum(each["entries"] for each in switches) == len(plan["plan"]["flows"])
    assert sandbox.run(ATOLL, "down").returncode == 0


def test_without_ryu_one_line_says_how_to_get_it(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is left of the lab that did not come up."""
    monkeypatch.setenv(PYTHON_VARIABLE, "/nowhere/python")
    done = sandbox.run(ATOLL, "run", QUICK, "--runtime", "ryu")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "Ryu is not installed (/nowhere/python does not exist); run `tools/ryu`, or "
    )
    sandbox.wait_clean()
