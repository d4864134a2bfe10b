# SPDX-License-Identifier: Apache-2.0
"""Checks before a run: the same for commands and for the daemon, and none of this machine's for a rack."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError, MachineError, PlanError, UsageError
from atoll_core.plan.plan import Backend
from atoll_core.platforms import HARDWARE, MININET, VIRTUAL
from atoll_emulation.this_machine.congestion_controls import Controls
from atoll_testbed.preflight import requirements
from atoll_testbed.preflight.requirements import require_machine_for, require_runnable
from atoll_testbed.run.run_request import RunOptions, RunRequest

HIDDEN = Path("/run/atoll-runs-of-a-test")


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has reno and no tc."""
    monkeypatch.setattr(requirements, "local_controls", lambda: Controls("this kernel", frozenset(["reno"])))
    monkeypatch.setattr(requirements, "missing_for_tc", lambda: ["no tc here"])


def asked(project: Path, platform: str, *settings: str, name: str = "geo", **options: Any) -> RunRequest:
    network, experiment = load_experiment(project / f"examples/{name}.yaml", settings)
    return RunRequest(network, experiment, platform, RunOptions(**options))


def test_the_changes_of_a_run_are_planned_with_its_checks(project: Path, tmp_path: Path) -> None:
    settings = ("tcp.congestion_control=reno",)
    request = asked(project, HARDWARE, *settings, name="switching")
    planned = require_runnable(request, tmp_path)
    assert planned.request is request
    assert planned.plan.experiment == request.experiment.name
    assert [each.number for each in planned.schedule] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("platform", "settings", "runs", "why"),
    [
        (MININET, ("tcp.congestion_control=reno",), HIDDEN, "the lab has its own /run"),
        (MININET, ("tcp.congestion_control=cubic",), None, "is not in this kernel, which has reno"),
        (VIRTUAL, ("tcp.congestion_control=nothing",), None, "is not in the virtual kernel"),
    ],
)
def test_a_run_that_this_machine_cannot_do_is_refused_on_its_platform_alone(
    project: Path,
    tmp_path: Path,
    platform: str,
    settings: tuple[str, ...],
    runs: Path | None,
    why: str,
) -> None:
    request = asked(project, platform, *settings)
    with pytest.raises((PlanError, MachineError), match=why):
        require_runnable(request, runs or tmp_path)
    require_runnable(replace(request, platform=HARDWARE), runs or tmp_path)


def test_hystart_is_switched_off_in_a_kernel_of_its_own_only(project: Path, tmp_path: Path) -> None:
    request = asked(project, MININET, "tcp.hystart=false", "tcp.congestion_control=reno")
    with pytest.raises(PlanError, match="hystart: false is not for --on mininet"):
        require_runnable(request, tmp_path)
    require_runnable(replace(request, platform=VIRTUAL), tmp_path)
    require_runnable(replace(request, platform=HARDWARE), tmp_path)


@pytest.mark.parametrize("platform", [MININET, VIRTUAL, HARDWARE])
def test_a_link_that_tc_cannot_emulate_is_refused_everywhere(project: Path, tmp_path: Path, platform: str) -> None:
    settings = ("links.sat.to_island.queue_packets=100", "tcp.congestion_control=reno")
    request = asked(project, platform, *settings, backend=Backend.TC)
    with pytest.raises(PlanError, match="not possible with the tc backend"):
        require_runnable(request, tmp_path)


def test_a_program_that_is_not_there_is_refused_where_boxes_are_emulated(project: Path, tmp_path: Path) -> None:
    request = asked(project, MININET, "tcp.congestion_control=reno")
    box = next(box for box in request.network.boxes if box.name in request.experiment.chain.hops)
    program: Any = load_experiment(project / "examples/relay.yaml")[0]
    other = next(each.program for each in program.boxes if each.program)
    gone = replace(box, program=replace(other, start=("/no/such/program",)))
    boxes = tuple(gone if each.name == box.name else each for each in request.network.boxes)
    request = replace(request, network=replace(request.network, boxes=boxes))
    with pytest.raises(DescriptionError, match="there is no program"):
        require_runnable(request, tmp_path)
    require_runnable(replace(request, platform=HARDWARE), tmp_path)


def test_a_directory_that_cannot_be_is_refused_first(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    loop = file.with_name("loop")
    loop.symlink_to(loop)
    long = tmp_path / (256 * "x")
    for place in (file, file / "runs", Path("/proc/runs"), long, loop):  # root may write to /proc, it says
        with pytest.raises(UsageError, match=rf"^{place}: cannot be written \(.*\); name another directory$"):
            require_runnable(asked(project, HARDWARE), place)
    (tmp_path / "geo").touch()
    with pytest.raises(UsageError, match=r"cannot be written \(Not a directory\)"):
        require_runnable(asked(project, HARDWARE), tmp_path)
    assert sorted(tmp_path.iterdir()) == [file, tmp_path / "geo", loop]


def test_only_a_lab_in_real_time_needs_this_machines_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise MachineError("missing")

    monkeypatch.setattr(requirements, "require_machine", refuse)
    for platform in (HARDWARE, VIRTUAL):
        require_machine_for(platform, Backend.TC)
    with pytest.raises(MachineError, match="missing"):
        require_machine_for(MININET, Backend.ENGINE)
    monkeypatch.setattr(requirements, "require_machine", lambda: None)
    require_machine_for(MININET, Backend.ENGINE)
    with pytest.raises(MachineError, match="no tc here"):
        require_machine_for(MININET, Backend.TC)
