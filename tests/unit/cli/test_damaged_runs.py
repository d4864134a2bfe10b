# SPDX-License-Identifier: Apache-2.0
"""Every command that opens a finished run notices files that are missing, short, changed or empty."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import atoll
from atoll_analysis.run_directory import RunDir
from atoll_analysis.stored_runs import verify_run
from atoll_cli.commands import watch
from atoll_cli.main import app
from atoll_core.errors import AtollError
from atoll_hosts.binary import find_binary
from atoll_studies.points import make_points
from atoll_studies.study import load_study
from atoll_studies.study_directory import Attempt, Provenance, StudyDirectory
from tests.support.sandbox import QUICK


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path: Path) -> None:
    """Change a byte in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "short": cut,
    "changed": change,
    "empty": lambda path: path.write_bytes(b""),
}
RAW = ("manifest.json", "events.jsonl", "captures/world.pcap.zst", "logs/load-i1.out")
DERIVED = ("tables/losses.parquet", "summary.json")

COMMANDS = (
    "report --compare RUN OTHER",
    "report STUDY",
    "code-design RUN",
    "link-traces losses RUN --out OUT",
    "runs list RUN",
    "runs verify RUN",
    "runs drop-captures RUN",
    "watch RUN --listen 127.0.0.1:0",
    "metrics load RUN",
)


@pytest.fixture(scope="module")
def finished(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs, a and b, analysed."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.unpack_archive(project / "tests/data/old-runs/runs.tar.xz", folder)
    for path, name in zip(sorted(folder.iterdir()), "ab", strict=True):
        run = RunDir(path.rename(folder / name))
        run.write_checksums()
        atoll.open_run(run.path).analyse()
    return folder


async def ends_at_once(*_: object, **__: object) -> None:
    """Instead of the server of `atoll watch`, which ends only when it is interrupted."""


@pytest.fixture
def places(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Copies of both runs, as later or earlier copies of a disk are, and a study with the first one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(watch, "_watch", ends_at_once)
    runs = Path(shutil.copytree(finished, tmp_path / "runs"))
    (file := tmp_path / "study.yaml").write_text(f"name: s\nexperiment: {QUICK}\nseeds: [1]\n")
    study = load_study(file)
    [point] = make_points(study)
    directory = StudyDirectory(tmp_path / "study")
    directory.write(study, [point])
    made = Path(shutil.copytree(runs / "a", directory.working / point.id))
    kept = directory.point_path(point.id) / "20260102T030405Z-1"
    directory.add_attempt(made, point.id, Attempt(kept, "valid", "", 9.5, Provenance("abc", "virtual", "7.2.12-atoll")))
    shutil.rmtree(runs / "a")
    return {"RUN": kept, "OTHER": runs / "b", "STUDY": directory.path, "OUT": tmp_path / "out"}


def said(command: str, places: dict[str, Path]) -> str:
    """The output of a command with its errors; a traceback fails the test."""
    ran = CliRunner().invoke(app, [str(places.get(word, word)) for word in command.split()])
    if isinstance(ran.exception, AtollError):
        return f"{ran.output}{ran.exception}\n"
    assert ran.exception is None or isinstance(ran.exception, SystemExit), (command, ran.exception)
    return ran.output


@pytest.mark.parametrize(
    ("file", "damage"),
    [*itertools.product((*RAW, *DERIVED), DAMAGES), ("files.json", "missing")],
)
def test_every_command_names_the_damaged_file_in_one_line(places: dict[str, Path], file: str, damage: str) -> None:
    run = places["RUN"]
    before = sorted(run.rglob("*"))
    DAMAGES[damage](run / file)
    named = str(run) if file == "manifest.json" else f"{run / file} "  # without a manifest it is no run
    answers = {command: said(command, places).splitlines() for command in COMMANDS}
    answers["runs list RUN"] = [line.replace(" damaged", named) for line in answers["runs list RUN"]]
    with pytest.raises(AtollError) as refused:
        atoll.open_run(run)
    assert str(refused.value).startswith(f"{run / file} ")
    assert "\n" not in str(refused.value)
    found = {command: [line for line in lines if named in line] for command, lines in answers.items()}
    assert {command: answers[command] for command, lines in found.items() if len(lines) != 1} == {}
    assert sorted(run.rglob("*")) == [each for each in before if damage != "missing" or each != run / file]


def test_no_command_names_a_file_of_a_whole_run(places: dict[str, Path]) -> None:
    run = places["RUN"]
    for file in run.rglob("*"):
        os.utime(file)  # a copy that does not keep times
    assert "1 whole, 0 damaged" in said("runs verify RUN", places)
    assert "damaged" not in said("runs list RUN", places)
    assert "left out" not in said("report --compare RUN OTHER", places)
    assert atoll.open_run(run).table("flows").height > 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_analysis_of_damaged_data_is_invalid_and_names_them(places: dict[str, Path], damage: str) -> None:
    run = places["RUN"]
    DAMAGES[damage](run / "events.jsonl")
    said("report RUN", places)
    summary = RunDir(run).summary()
    assert (summary["verdict"], summary["reason_codes"][0]) == ("invalid", "FILE_DAMAGED")
    assert summary["reasons"][0].startswith(f"{run / 'events.jsonl'} ")


def test_an_analysis_makes_damaged_tables_again(places: dict[str, Path]) -> None:
    run = places["RUN"]
    for file in DERIVED:
        cut(run / file)
    assert "FILE_DAMAGED" not in said("report RUN", places)
    assert RunDir(run).summary()["verdict"] == "valid"
    assert verify_run(run, find_binary()) == []
