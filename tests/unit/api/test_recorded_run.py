# SPDX-License-Identifier: Apache-2.0
"""A run and a study opened by `import atoll`: tables, summary, descriptions, and what is said if they are not there."""

import shutil
from pathlib import Path

import polars as pl
import pytest

import atoll


@pytest.fixture(scope="module")
def old_run(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with captures and a summary, without tables."""
    folder = tmp_path_factory.mktemp("runs")
    shutil.unpack_archive(project / "tests/data/old-runs/runs.tar.xz", folder)
    return min(folder.iterdir())


def test_a_run_is_opened_analysed_and_read(old_run: Path) -> None:
    run = atoll.open_run(str(old_run))
    assert (run.verdict, run.tables, run.captures) == ("valid", [], [])
    with pytest.raises(atoll.AtollError, match=r"no tables; `run\.analyse\(\)` makes them"):
        run.table("flows")
    assert run.analyse()["seed"] == run.summary["seed"] == run.experiment.seed
    completed = run.table("channel_flows").filter(pl.col("outcome") == "completed")
    assert completed.height == run.summary["flows_completed"] > 0
    assert run.captures == ["island", "link-sat", "world"]
    at_island = run.packets("island").filter(pl.col("t_ns") >= run.summary["origin_ns"])
    assert at_island.select(pl.len()).collect().item() > completed.height
    lengths = run.packets("island").select("ip_bytes")
    assert lengths.collect_schema()["ip_bytes"] == pl.Int64, "a sum of UInt32 wraps beyond 4.29 GB"
    assert [host.name for host in run.network.hosts][:1] == [run.manifest["network"]["hosts"][0]["name"]]
    assert next(event["step"] for event in run.events if event["type"] == "step") == "apply"
    with pytest.raises(atoll.AtollError, match=r"no table 'flow'; did you mean 'flows'\?"):
        run.table("flow")
    with pytest.raises(atoll.AtollError, match=r"no capture 'isle'; .*known captures: island, link-sat, world"):
        run.packets("isle")


def test_what_is_no_run_and_no_study_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(atoll.AtollError, match="there is no such directory"):
        atoll.open_run(tmp_path / "none")
    with pytest.raises(atoll.AtollError, match="not the directory of a study"):
        atoll.open_study(tmp_path)


def test_mistakes_are_raised_before_anything_starts(tmp_path: Path, project: Path) -> None:
    quick = project / "tests/data/quick.yaml"
    with pytest.raises(atoll.AtollError, match=r"unknown key 'channel'; did you mean 'channels'"):
        atoll.run(quick, settings={"traffic.channel": 3}, runs=tmp_path)
    with pytest.raises(atoll.AtollError, match="on='vritual': unknown platform"):
        atoll.run(quick, on="vritual", runs=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(atoll.AtollError, match=r"inventory is for hardware only|give inventory="):
        atoll.run(quick, on="hardware", runs=tmp_path)
    assert list(tmp_path.iterdir()) == []
