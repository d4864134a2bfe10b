# SPDX-License-Identifier: Apache-2.0
"""Options of the command line that override an experiment are settings: commands and the daemon resolve the same."""

from pathlib import Path

import pytest

from atoll_cli.commands.selection import experiment_file
from atoll_core.errors import AtollError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.units import Duration


def loaded(path: Path, seed: int | None = None, duration: str | None = None, *settings: str) -> Experiment:
    return experiment_file(path, seed, duration, settings).network_and_experiment()[1]


@pytest.fixture
def geo(project: Path) -> Path:
    return project / "examples" / "geo.yaml"


def test_without_options_the_settings_are_those_of_set(geo: Path) -> None:
    given = experiment_file(geo, None, None, ["tcp.congestion_control=reno"]).settings
    assert given == ("tcp.congestion_control=reno",)


def test_seed_and_duration_override_the_file_and_other_settings(geo: Path) -> None:
    assert loaded(geo, 2**63 - 1, None, "seed=3").seed == 2**63 - 1
    found = loaded(geo, 7, "90 s", "duration=70 s", "transfer.size=1 MB")
    assert (found.seed, found.duration) == (7, Duration.parse("90 s"))
    assert found.transfer is not None
    assert found.transfer.size.bytes == 1_000_000


@pytest.mark.parametrize(
    ("settings", "start"), [((), "10 s"), (("transfer={size: 1 MB}",), "10 s"), (("transfer.start=7 s",), "7 s")]
)
def test_a_run_too_short_for_its_transfer_starts_it_with_the_load(
    geo: Path, settings: tuple[str, ...], start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start of the file, the default, and that of a setting."""
    short = loaded(geo, None, "5 s", *settings).transfer
    assert short is not None
    assert short.start == Duration(0)
    assert capsys.readouterr().err == (
        f"--duration 5 s is shorter than the start of the transfer, {start}: the transfer starts with the load\n"
    )


def test_a_run_too_short_for_one_of_its_transfers_starts_that_one_with_the_load(
    geo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = "transfers={early: {size: 1 MB, start: 2 s}, late: {size: 1 MB}}"
    short = loaded(geo, None, "5 s", "transfer=", named).all_transfers
    assert [transfer.start for transfer in short] == [Duration.parse("2 s"), Duration(0)]
    assert capsys.readouterr().err == (
        "--duration 5 s is shorter than the start of transfer 'late', 10 s: transfer 'late' starts with the load\n"
    )


def test_a_run_without_a_transfer_may_be_short(geo: Path) -> None:
    assert loaded(geo, None, "3 s", "transfer=").transfer is None


def test_the_file_of_an_experiment_is_read_once(geo: Path, tmp_path: Path) -> None:
    """Settings, resolution and the path of the lab are of the same content, whatever becomes of the file."""
    lab = geo.parent.parent / "emulation" / "labs" / "island.yaml"
    file = tmp_path / "geo.yaml"
    file.write_text(geo.read_text().replace("../emulation/labs/island.yaml", str(lab)))
    found = experiment_file(file, 7, "5 s", ())
    file.unlink()
    assert found.network_and_experiment()[1].seed == 7
    assert found.lab_path() == lab


@pytest.mark.parametrize(
    ("name", "duration", "why"),
    [
        ("geo", "5", "--duration: '5' is not a duration"),
        ("geo", "200 h", "duration: '200 h' is too large"),
        ("switching", "2 s", "--set 'duration=2 s'"),
    ],
)
def test_a_duration_that_does_not_fit_is_refused_by_name(project: Path, name: str, duration: str, why: str) -> None:
    with pytest.raises(AtollError) as refused:
        loaded(project / "examples" / f"{name}.yaml", None, duration)
    assert why in str(refused.value)
    assert refused.value.exit_code == PlanError.exit_code
