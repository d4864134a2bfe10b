# SPDX-License-Identifier: Apache-2.0
"""The wall time of runs in virtual time is estimated beforehand, to a factor of two."""

import json
from pathlib import Path

import pytest

from atoll_cli.commands.check import check
from atoll_cli.commands.plan import print_plan
from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.virtual_cost import disk, memory, wall_time
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError, MachineError
from atoll_core.plan.plan import Backend
from atoll_core.platforms import MININET, VIRTUAL
from atoll_core.units import Size
from atoll_emulation.this_machine.host_requirements import free_memory
from atoll_testbed.preflight.requirements import max_parallel_runs, require_memory
from atoll_testbed.virtual.virtual_run import kernel_memory_mb

FAST = ("links.sat.to_island.rate=320 Mbit/s", "links.sat.to_world.rate=320 Mbit/s", "tcp.buffer_max=100 MB")
MEASURED = [  # seconds of wall time on two cores of an AMD EPYC, 2026-11-23
    ("geo", ["duration=600 s"], 43),
    ("geo", [], 17),
    ("geo", ["traffic.channels=1000", "duration=10 s", "transfer="], 19),
    ("geo", ["traffic.channels=5000", "duration=10 s", "transfer="], 40),
    ("geo", ["traffic.channels=20000", "duration=10 s", "transfer="], 43),
    ("geo", ["traffic.channels=100000", "duration=10 s", "transfer="], 45),
    ("meo", ["traffic.channels=20000", "duration=5 s", "transfer="], 40),
    ("meo", ["traffic.channels=100000", "duration=3 s", "transfer=", *FAST], 330),
    ("laboratory", ["duration=5 s", "transfer="], 60),
]


@pytest.mark.parametrize(("name", "settings", "measured_s"), MEASURED)
def test_measured_runs_are_estimated_to_a_factor_of_two(
    project: Path, name: str, settings: list[str], measured_s: float
) -> None:
    described = load_experiment(project / f"examples/{name}.yaml", settings)
    assert measured_s / 2 <= wall_time(*described, Backend.TC).s <= 2 * measured_s


MEMORY = [  # peak resident memory of the kernel, MiB, Linux 6.1, 2026-11-23
    ("geo", ["duration=20 s", "transfer="], 286),
    ("geo", ["traffic.channels=100000", "duration=10 s", "transfer="], 982),
    ("meo", ["traffic.channels=20000", "duration=5 s", "transfer="], 543),
    ("meo", ["traffic.channels=100000", "duration=1 s", "transfer=", *FAST], 1882),
    ("laboratory", ["duration=3 s", "transfer="], 525),
]


@pytest.mark.parametrize(("name", "settings", "measured_mib"), MEMORY)
def test_the_memory_of_measured_runs_is_estimated_to_a_factor_of_two(
    project: Path, name: str, settings: list[str], measured_mib: float
) -> None:
    estimated_mib = memory(*load_experiment(project / f"examples/{name}.yaml", settings)).bytes / 2**20
    assert measured_mib / 2 <= estimated_mib <= 2 * measured_mib


@pytest.mark.parametrize(
    ("file", "settings", "measured_kib"),  # `du -sk` of the run directory
    [
        ("examples/geo.yaml", [], 6128),
        ("examples/geo.yaml", ["traffic.channels=200", "duration=30 s"], 13380),
        ("tests/data/quick.yaml", ["traffic.channels=6"], 960),
    ],
)
def test_the_disk_space_of_measured_runs_is_estimated_to_a_factor_of_two(
    project: Path, file: str, settings: list[str], measured_kib: float
) -> None:
    estimated_kib = disk(*load_experiment(project / file, settings)).bytes / 1024
    assert measured_kib / 2 <= estimated_kib <= 2 * measured_kib


def test_larger_captures_links_and_loads_take_more_memory(project: Path) -> None:
    def estimate(*settings: str) -> int:
        return memory(*load_experiment(project / "examples/geo.yaml", settings)).bytes

    base = estimate()
    assert estimate("captures={buffer: 1 GB}") > base + 2 * 10**9
    assert estimate("links.sat.to_island.queue=100 MB") > base + 100 * 10**6
    assert estimate("traffic.channels=100000") > base + 500 * 10**6


def test_an_open_loop_has_its_own_rate_however_few_channels_it_has(project: Path) -> None:
    def estimate(channels: int) -> Size:
        group = f"{{clients: [i1], channels: {channels}, flows_per_s: 500, flow_sizes: 1 kB}}"
        return disk(*load_experiment(project / "examples/geo.yaml", [f"traffic.groups.open={group}"]))

    assert estimate(1) == estimate(100)


def test_the_kernel_of_a_run_that_would_fill_it_has_more_memory() -> None:
    assert kernel_memory_mb(Size(300 * 10**6)) == 2048
    assert kernel_memory_mb(Size(5 * 10**9)) == 10 * 1024


CROWDED = (
    "traffic: channels: with 100000 channels, the runs in virtual time need about 1.3 GB of memory (correct within a "
    "factor of two), but this machine has 1.0 GB free; usual is less than the free memory"
)


def test_a_run_that_may_not_fit_the_machine_is_doubted_and_one_that_cannot_is_refused(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, experiment = described = load_experiment(project / "examples/geo.yaml", ["traffic.channels=100000"])
    needed = memory(*described)
    free = Size(2 * 10**9)
    monkeypatch.setattr("atoll_testbed.preflight.requirements.free_memory", lambda: free)
    assert require_memory(experiment, needed) == ()
    assert (max_parallel_runs(experiment, needed), max_parallel_runs(experiment, Size(10**9))) == (1, 2)
    free = Size(10**9)
    (doubt,) = require_memory(experiment, needed)
    assert doubt.message.endswith(CROWDED)
    assert max_parallel_runs(experiment, needed) == 1
    free = Size(5 * 10**8)
    with pytest.raises(MachineError, match=r"need about 1\.3 GB of memory") as refused:
        require_memory(experiment, needed)
    assert "\n" not in str(refused.value)
    with pytest.raises(MachineError):
        max_parallel_runs(experiment, needed)
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:    2000 kB\n")
    assert free_memory(tmp_path / "meminfo") == Size(2_048_000)


def test_more_of_anything_takes_no_less(project: Path) -> None:
    def estimate(*settings: str, backend: Backend = Backend.TC) -> float:
        return wall_time(*load_experiment(project / "examples/geo.yaml", settings), backend).s

    base = estimate()
    assert estimate("traffic.channels=0", "transfer=") < base < estimate("traffic.channels=200")
    assert base < min(estimate("duration=2 min"), estimate("udp={rate: 8 Mbit/s}"), estimate(backend=Backend.ENGINE))
    assert estimate("traffic.think_time=10 s") < base < estimate("traffic.flows_per_s=1000")
    assert estimate("chain=[tap-w, tap-i]", "links={}") > base


@pytest.mark.parametrize(
    ("start", "change"),
    [
        ("traffic.channels=1", "traffic: {channels: 200}"),
        ("traffic={channels: 20, flows_per_s: 1}", "traffic: {flows_per_s: 1000}"),
        ("traffic={channels: 2, flow_sizes: 1 kB, flows_per_s: 1}", "traffic: {flow_sizes: 100 kB}"),
        ("udp={rate: 1 Mbit/s}", "udp: {rate: 15 Mbit/s}"),
        ("traffic.channels=200", "links: {sat: {to_island: {rate: 320 Mbit/s}}}"),
    ],
)
def test_an_estimate_is_that_of_the_costliest_version(project: Path, start: str, change: str) -> None:
    """Whatever makes it so, and whether it comes first or last."""
    small = load_experiment(project / "examples/geo.yaml", [start])
    grown = load_experiment(project / "examples/geo.yaml", [start, f"changes=[{{at: 1 s, {change}}}]"])
    lasting = grown[1].states[1]
    assert disk(*small) < disk(*grown) == disk(grown[0], lasting)
    assert wall_time(*small, Backend.TC) < wall_time(*grown, Backend.TC) == wall_time(grown[0], lasting, Backend.TC)


def test_the_memory_is_that_of_the_largest_queue(project: Path) -> None:
    change = "changes=[{at: 1 s, links: {sat: {to_island: {queue: 100 MB}}}}]"
    small, large = (load_experiment(project / "examples/geo.yaml", settings) for settings in ([], [change]))
    assert memory(*large).bytes > memory(*small).bytes + 100 * 10**6


HOURS = ("traffic.channels=100000", "duration=600 s", *FAST)
SAID = "traffic: channels: with 100000 channels for 600 s, a run on virtual is estimated to take "


def test_a_run_of_hours_is_a_doubt_where_it_may_be_in_virtual_time(project: Path) -> None:
    described = load_experiment(project / "examples/meo.yaml", HOURS)
    for place, doubtful in ((None, True), (VIRTUAL, True), (MININET, False)):
        found = [doubt.message for doubt in description_warnings(*described, platform=place) if SAID in doubt.message]
        assert len(found) == doubtful
        assert all(message.startswith("--set 'traffic.channels=100000': ") for message in found)
        end = "h of wall time, within a factor of two on an idle machine; usual is less than 1 h"
        assert all(message.endswith(end) for message in found)


def test_check_warns_of_it_and_strict_does_too(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It does not know where the experiment will run; `plan` and `run --on virtual --strict` refuse."""
    file = project / "examples/meo.yaml"
    assert check([file], as_json=False, settings=HOURS) == 0
    assert SAID in capsys.readouterr().err
    assert check([file], as_json=False, settings=HOURS, strict=True) == 0
    assert SAID in capsys.readouterr().err


def test_plan_tells_the_estimate_in_virtual_time_only(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = load_experiment(project / "examples/geo.yaml")
    print_plan(described, Backend.TC, VIRTUAL, as_json=False)
    assert (
        "estimated wall time in virtual time: 16 s (within a factor of two on an idle machine); memory: 290 MB"
        in capsys.readouterr().out
    )
    print_plan(described, Backend.TC, MININET, as_json=True)
    assert not any("estimated" in note for note in json.loads(capsys.readouterr().out)["notes"])
    with pytest.raises(DescriptionError, match="estimated to take"):
        print_plan(
            load_experiment(project / "examples/meo.yaml", HOURS), Backend.TC, VIRTUAL, as_json=True, strict=True
        )
