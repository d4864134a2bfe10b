# SPDX-License-Identifier: Apache-2.0
"""`atoll link-traces losses` writes what a link lost in the form that `loss: {trace: FILE}` reads."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_cli.main import app
from atoll_core.description.link_trace import read_loss_trace
from atoll_core.errors import RunError, UsageError
from atoll_core.experiment.experiment import LossTrace
from atoll_hosts.binary import find_binary
from tests.support.sandbox import QUICK
from tests.support.synthetic_run import simulate


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = simulate(tmp_path_factory.mktemp("exported"), seconds=10)
    analyse(made, find_binary())
    return made


def exported(*words: str | Path) -> Any:
    ran = CliRunner().invoke(app, ["link-traces", "losses", *map(str, words)])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.stdout


def test_a_link_can_lose_the_packets_that_it_lost_in_a_run(run: RunDir, tmp_path: Path) -> None:
    """The trace read back has each loss in its place, as many as the link counted, and an experiment accepts it."""
    out = tmp_path / "losses.txt"
    said = json.loads(exported(run.path, "--out", out, "--json"))
    trace = read_loss_trace(out.read_text(), str(out)).value
    assert isinstance(trace, LossTrace)
    numbers = pl.read_parquet(run.tables / "losses.parquet")["number"].to_list()
    assert [number for number, lost in enumerate(trace.lost) if lost] == numbers
    bursts = run.summary()["loss_bursts"]["sat"]
    assert (len(trace.lost), sum(trace.lost)) == (bursts["packets"], bursts["lost"]) == (said["packets"], said["lost"])
    # The simulated link counts the packets of its end, too.
    counted = pl.read_parquet(run.tables / "boxes.parquet").filter(pl.col("part") == "to_island")
    end_ns = run.summary()["origin_ns"] + 10**10
    assert counted.filter(pl.col("t_ns") <= end_ns)["dropped_packets"].max() == sum(trace.lost) > 0
    checked = CliRunner().invoke(
        app, ["check", str(QUICK), "--set", f"links.sat.to_island.loss={{trace: {out}, where: before}}"]
    )
    assert checked.exit_code == 0, checked.output


def test_a_trace_that_is_too_long_is_cut_and_said_so(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll_analysis.figures.packet_fates.MAX_TRACE_PACKETS", 100)
    said = exported(run.path, "--out", tmp_path / "x.txt")
    came = run.summary()["loss_bursts"]["sat"]["packets"]
    assert f"x.txt: 100 packets to the island through sat, the first of {came}, " in said
    lines = (tmp_path / "x.txt").read_text().splitlines()
    assert (lines[0], len(lines)) == (f"# losses of sat in {run.path}", 101)


def test_what_cannot_be_exported_is_refused_in_one_line(run: RunDir, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--link: unknown link 'sta'; did you mean 'sat'\?"):
        exported(run.path, "--out", tmp_path / "x.txt", "--link", "sta")
    summary = run.summary()
    bare = RunDir(tmp_path)
    for changed, message in (
        ({"loss_bursts": {}}, "no captures before and behind sat show which packets it lost; put a tap on each side"),
        (
            {"loss_bursts": {"sat": {**summary["loss_bursts"]["sat"], "packets": 0}}},
            "no packet to the island came to sat within the measurement",
        ),
        ({"loss_bursts": {}, "bottleneck": None}, "the run has no link"),
    ):
        bare.write_summary({**summary, **changed})
        bare.write_manifest(run.manifest())
        with pytest.raises(RunError, match=message):
            exported(tmp_path, "--out", tmp_path / "x.txt")
    del summary["loss_bursts"]
    bare.write_summary(summary)
    with pytest.raises(RunError, match="analysed by an older version"):
        exported(tmp_path, "--out", tmp_path / "x.txt")
