# SPDX-License-Identifier: Apache-2.0
"""Figures of groups of clients with a load of their own: in summaries, reports, comparisons and studies."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from atoll_analysis import analyse
from atoll_analysis.figures.run_figures import general_figure, group_of_figure, is_figure, measured_figures
from atoll_analysis.run_directory import RunDir
from atoll_core.errors import DescriptionError
from atoll_core.experiment.traffic import Load, Traffic
from atoll_dashboards.report.key_figures import key_figures
from atoll_dashboards.report.report import report_page
from atoll_dashboards.report.report_data import read_sources
from atoll_hosts.binary import find_binary
from atoll_studies.results.comparison import compare
from atoll_studies.study import load_study
from atoll_studies.views.documents import markdown
from tests.support.sandbox import QUICK
from tests.support.synthetic_run import PORT, simulate

CLIENTS = {"coded": ("i1", "i2"), "rest": ("i3", "i4", "i5", "i6")}
TRAFFIC = Traffic(20, "published", PORT)
GROUPED = replace(
    TRAFFIC,
    groups=tuple(Load(10, "published", PORT, name=name, clients=clients) for name, clients in CLIENTS.items()),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunDir]:
    made = [simulate(tmp_path_factory.mktemp("groups"), seconds=6, seed=seed, traffic=GROUPED) for seed in (1, 2, 3)]
    for run in made:
        analyse(run, find_binary())
    return made


def test_figures_of_groups_add_up_to_those_of_all_clients(runs: list[RunDir]) -> None:
    summary = runs[0].summary()
    groups = summary["groups"]
    assert {name: tuple(group["clients"]) for name, group in groups.items()} == CLIENTS
    assert [group["channels"] for group in groups.values()] == [10, 10]
    assert summary["channels"] == 20
    for key in ("flows_completed", "flows_cut", "flows_failed"):
        assert sum(group[key] for group in groups.values()) == summary[key]
    goodput = sum(client["goodput_mbit_s"] for client in summary["clients"].values())
    assert sum(group["goodput_mbit_s"] for group in groups.values()) == pytest.approx(goodput)
    flows = pl.read_parquet(runs[0].tables / "channel_flows.parquet").filter(
        pl.col("client").is_in(CLIENTS["coded"]) & (pl.col("outcome") == "completed")
    )
    assert groups["coded"]["mean_flow_bytes"] == pytest.approx(flows["size_bytes"].mean())
    smallest = groups["coded"]["flow_classes"][0]
    assert smallest["completed"] == (flows["size_bytes"] <= 10_000).sum()


def test_a_run_without_groups_has_no_figures_of_them(tmp_path: Path) -> None:
    run = simulate(tmp_path, seconds=2)
    analyse(run, find_binary())
    assert "groups" not in run.summary()
    assert "Groups of clients" not in report_page(read_sources(run))


def test_a_report_has_one_table_of_groups(runs: list[RunDir]) -> None:
    sources = read_sources(runs[0])
    page = report_page(sources)
    assert page.count("<h2>Groups of clients</h2>") == 1
    assert "i3, i4, i5, i6" in page
    group = {each.name: each for each in key_figures(sources.summary)}["group coded"]
    assert group.text.endswith("Mbit/s")
    assert group.remark.startswith("goodput of i1, i2: 10 channels, ")


def test_comparisons_show_groups_side_by_side(runs: list[RunDir]) -> None:
    text = markdown(compare(runs))
    assert "Medians by group of clients:" in text
    assert "| coded | rest |" in text
    figures = measured_figures(runs[0].path, read_sources(runs[0]).summary)
    assert figures["goodput of group coded"] == pytest.approx(runs[0].summary()["groups"]["coded"]["goodput_mbit_s"])


def test_a_figure_of_a_group_is_named_after_it() -> None:
    name = "flow time p95, to 10 kB of group coded"
    assert (general_figure(name), group_of_figure(name), is_figure(name)) == ("flow time p95, to 10 kB", "coded", True)
    assert not is_figure("base RTT of group coded")
    assert group_of_figure("transfer time of group") is None


def test_a_study_refuses_the_figure_of_a_group_that_no_configuration_has(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    head = f"name: study\nexperiment: {QUICK}\nset: {{traffic.groups: {{coded: {{clients: [i1]}}}}}}\n"
    path.write_text(head + "factors: {traffic.groups.coded.channels: [2, 4]}\nfigures: [goodput of group coded]\n")
    study = load_study(path)
    assert [each.experiment.traffic.total_channels for each in study.configurations] == [
        study.configurations[0].experiment.traffic.channels + channels for channels in (2, 4)
    ]
    path.write_text(head + "figures: [goodput of group plain]\n")
    with pytest.raises(DescriptionError, match="unknown group 'plain'; known groups of clients: coded, rest"):
        load_study(path)
