# SPDX-License-Identifier: Apache-2.0
"""``atoll plan``: where entries are placed, and what is said if hardware cannot do them."""

import json
from pathlib import Path

import pytest

from atoll_cli.commands.plan import print_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError, UsageError
from atoll_core.plan.plan import Backend


def test_what_if_prints_the_placement_and_then_refuses(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer comes first: what is in software, why, at what cost; then the same error as without the question."""
    described = load_experiment(project / "examples/geo.yaml")
    with pytest.raises(PlanError, match=r"sw-c \(HP ProCurve, v1 modules\) cannot push a VLAN tag in hardware"):
        print_plan(described, Backend.ENGINE, as_json=False, driver="procurve-v1")
    text = capsys.readouterr().out
    assert text.startswith("Placement: 60 flow entries on 4 switches\n")
    assert "24 in table 200 (software)" in text
    assert "In software on sw-c, which carry 100 packets/s together; the experiment sends up to 1333:" in text
    assert "Jobs:" not in text


def test_what_if_is_quiet_where_all_lies_in_hardware(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(load_experiment(project / "examples/geo.yaml"), Backend.ENGINE, as_json=True, driver="procurve-v2")
    found = json.loads(capsys.readouterr().out)["placement"]
    assert {each["place"] for each in found["entries"]} == {"hardware"}
    assert [each["entries"] for each in found["switches"]] == [8, 8, 30, 14]
    assert {(each["capacity"], each["fits"]) for each in found["switches"]} == {(1500, True)}


def test_a_plan_has_the_placement_of_its_own_switches(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Entries of hardware switches are listed with their table."""
    described = load_experiment(project / "switch-configs/rendered/experiment.yaml")
    print_plan(described, Backend.ENGINE, as_json=False)
    text = capsys.readouterr().out
    assert "\n    hardware 100  port 1, untagged, 10.10.0.0/16 -> 10.20.0.0/16" in text
    assert "\n  sw-d  Open vSwitch" in text


def test_an_unknown_driver_is_refused(project: Path) -> None:
    with pytest.raises(UsageError, match="--driver procurve: unknown driver"):
        print_plan(load_experiment(project / "examples/geo.yaml"), Backend.ENGINE, as_json=False, driver="procurve")
