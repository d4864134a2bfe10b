# SPDX-License-Identifier: Apache-2.0
"""`atoll code-design` shows which code would have recovered the losses of a run."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from atoll_analysis import analyse
from atoll_analysis.figures.code_design import recovered_share
from atoll_analysis.run_directory import RunDir
from atoll_cli.main import app
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import simulate


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = simulate(tmp_path_factory.mktemp("designed"), seconds=10)
    analyse(made, find_binary())
    return made


def shown(*words: str | Path) -> str:
    ran = CliRunner().invoke(app, ["code-design", *map(str, words)])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_the_designs_recover_the_losses_of_the_run(run: RunDir) -> None:
    said = json.loads(shown(run.path, "--json"))
    bursts = run.summary()["loss_bursts"]["sat"]
    assert list(said) == ["link", "packets", "came", "lost", "rate_bit_s", "spare", "designs", "best"]
    assert (said["link"], said["packets"], said["lost"]) == ("sat", bursts["packets"], bursts["lost"])
    assert said["came"] == said["packets"]
    lost = np.array(pl.read_parquet(run.tables / "losses.parquet")["number"])
    assert said["designs"]
    for each in said["designs"]:
        recovered = recovered_share(lost, each["packets"], each["repairs"], each["interleaving"])
        assert each["recovered"] == recovered >= each["target"]
        assert each["span_s"] == pytest.approx(
            each["packets"] * each["interleaving"] * 10 / bursts["packets"], rel=0.02
        )
    assert set(said["best"]) == {"0.99", "0.999"}
    assert all(best in said["designs"] for best in said["best"].values())


def test_the_table_names_the_best_design_of_each_target(run: RunDir) -> None:
    best = json.loads(shown(run.path, "--json"))["best"]
    text = shown(run.path)
    for target, words in (("0.99", "99 %"), ("0.999", "99.9 %")):
        design = best[target]
        named = f"{words}: n {design['packets']}, w {design['repairs']}, interleaving {design['interleaving']}"
        assert any(line.startswith(named) for line in text.splitlines()), text


def test_a_link_that_is_not_there_is_refused(run: RunDir) -> None:
    ran = CliRunner().invoke(app, ["code-design", str(run.path), "--link", "sta"])
    assert "unknown link 'sta'; did you mean 'sat'?" in str(ran.exception)
