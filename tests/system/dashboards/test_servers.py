# SPDX-License-Identifier: Apache-2.0
"""Metrics in real databases and dashboards on a real Grafana, of a real run during which the database was killed twice.

`make test-servers` builds the servers and runs these.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from atoll_analysis.run_directory.metrics_spool import SPOOL
from atoll_core.description.loader import load_experiment
from atoll_core.lab.network import HostRole, measurements_of_kinds
from atoll_core.metrics.metrics_schema import MEASUREMENT_BY_NAME
from atoll_dashboards.grafana.grafana_client import Grafana, dashboard_files
from atoll_dashboards.influx.influx_load import ALIGNED_NS
from atoll_dashboards.influx.sink_supervisor import sink_for
from tests.support.demo_runs import GEO, Made, changed_run, identity, recorded
from tests.support.grafana_queries import annotations, ask
from tests.support.influx_servers import GrafanaServer, Influx, Influx1, Influx2, atoll
from tests.support.sandbox import ATOLL, Sandbox, faults, wait_for_line

pytestmark = pytest.mark.servers


@dataclass(frozen=True)
class Demo(Made):
    """One that went into a database, which is up again. ``link``: what the verb said of where its points are."""

    influx: Influx2
    link: str


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A run in a sandbox with InfluxDB 2 beside it, which is killed and started again twice."""
    directory = tmp_path_factory.mktemp("demo")
    with Influx2(directory / "influx2") as influx:
        influx.start().wait().set_up()
        influx.kill()
        with Sandbox(directory) as sandbox:
            variables = [f"{name}={text}" for name, text in influx.variables().items()]
            variables.append("ATOLL_GRAFANA_URL=http://grafana.example/")

            def up() -> None:
                influx.start(sandbox.command)

            def down() -> None:
                while (pid := sandbox.find("influxd")) is None:  # it is still being started
                    time.sleep(0.1)
                sandbox.kill(pid)
                influx.kill()

            up()
            run = sandbox.start("env", *variables, ATOLL, "run", GEO, "--duration", "24 s", "--json")
            wait_for_line(run, "captures: ")
            for _ in range(2):  # each outage lasts until the sink has met it: it looks when it has points
                down()
                wait_for_line(run, "no answer from")
                up()
                wait_for_line(run, "accepts points again")
            output, rest = run.communicate(timeout=120)
            assert run.returncode in (0, 3), rest
            influx.kill()
        answer = json.loads(output)
        influx.start().wait()
        yield Demo(Path(answer["run_dir"]), influx, answer["grafana"])


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A run in which chain and latency change."""
    return changed_run(tmp_path_factory.mktemp("changed"))


@pytest.fixture(scope="module")
def influx1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influx1]:
    """InfluxDB 1.8 with an empty database."""
    with Influx1(tmp_path_factory.mktemp("influx1")) as influx:
        influx.start().wait().set_up()
        yield influx


@pytest.mark.lab
def test_a_database_that_was_killed_twice_during_a_run_holds_exactly_the_spool(demo: Demo) -> None:
    """Every point once, and no other, with each of its figures; the run says what happened."""
    spooled = [identity(line) for line in demo.lines]
    assert len(set(spooled)) == len(spooled) > 1000
    assert demo.influx.points() == recorded(demo.lines)
    notes = [event["message"] for event in demo.events if event["type"] == "note" and "metrics" in event["message"]]
    assert sum("no answer from" in note for note in notes) >= 2, notes
    assert sum("accepts points again" in note for note in notes) >= 2, notes
    assert not [note for note in notes if "not in a database yet" in note]


@pytest.mark.lab
def test_the_run_does_not_care(demo: Demo) -> None:
    """Lateness, which a busy machine may bring, is the only thing that may be wrong with it."""
    summary = json.loads((demo.path / "summary.json").read_text())
    assert faults(summary) == []
    assert summary["loss_bytes_captures"] == summary["loss_bytes_link"]


@pytest.mark.lab
def test_a_run_ends_with_a_link_to_where_its_points_lie(demo: Demo) -> None:
    """All of them within Grafana's range, which is not much longer."""
    parts = urlsplit(demo.link)
    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == "http://grafana.example/d/atoll-overview"
    asked = parse_qs(parts.query)
    assert asked["var-run"] == [demo.run]
    stamps_ms = [int(line.rpartition(" ")[2]) // 10**6 for line in demo.lines]
    assert 0 <= min(stamps_ms) - int(asked["from"][0]) < 2000
    assert 0 <= int(asked["to"][0]) - max(stamps_ms) < 20_000


@pytest.mark.lab
def test_every_place_has_points(changed: Made) -> None:
    """Each measurement of the tables; and of those that have several places, each place in the laboratory."""
    network, _ = load_experiment(GEO)
    found: dict[str, list[dict[str, str]]] = {}
    for line in changed.lines:
        measurement, tags, _ = identity(line)
        found.setdefault(measurement, []).append(dict(tags))
    assert set(found) == {*MEASUREMENT_BY_NAME, *measurements_of_kinds()}

    def places(measurement: str, *tags: str) -> set[tuple[str, ...]]:
        return {tuple(each.get(tag, "") for tag in tags) for each in found[measurement]}

    switches = {(switch.name,) for switch in network.switches}
    assert places("switch_port", "switch") == places("flow_entries", "switch") == switches
    assert {app for (app,) in places("flow_entries", "app")} == {"delivery", "latency", "chain"}
    machines = {(name, each.name) for name, interfaces in network.machines.items() for each in interfaces}
    assert places("interface", "host", "interface") == machines
    assert places("link", "box", "direction") == {("sat", way) for way in ("to_island", "to_world")}
    classes = {(box.name, each.name) for box in network.delay_boxes for each in box.classes}
    assert places("delay_class", "box", "class") == classes
    assert places("server", "host") == {(host.name,) for host in network.with_role(HostRole.WORLD_SERVER)}
    assert places("load", "host") == {(host.name,) for host in network.with_role(HostRole.ISLAND_CLIENT)}
    assert places("capture", "point") >= {("world",), ("island",)}
    assert places("event", "kind") >= {(kind,) for kind in ("step", "change", "swap", "whistle", "note", "outcome")}


@pytest.mark.lab
def test_the_token_is_nowhere_in_the_run_directory(demo: Demo) -> None:
    """Not in the manifest, not in a log."""
    token = demo.influx.settings.token.encode()
    assert not [file for file in demo.path.rglob("*") if file.is_file() and token in file.read_bytes()]


@pytest.mark.lab
def test_a_run_is_loaded_later_as_often_as_one_likes(demo: Demo, influx1: Influx1) -> None:
    """Into InfluxDB 1.8 by its compatible API, twice; then once more beside others, at the instants of comparison."""
    for times in ((), (), ("--times", "aligned")):
        done = atoll("metrics", "load", demo.path, *times, "--json", influx=influx1)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["loaded"][0]["points"] == len(demo.lines)
    (window,) = (event for event in demo.events if event["type"] == "window")
    by_ns = ALIGNED_NS - window["start_ns"]
    assert influx1.points() == recorded(demo.lines, 0, by_ns)


@pytest.mark.lab
async def test_so_does_influxdb_1_while_a_spool_grows(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed twice while the same spool comes in pieces, frames cut anywhere: each point is there, and no other."""
    whole = (demo.path / SPOOL).read_bytes()
    pieces = [whole[begin : begin + len(whole) // 40 + 1] for begin in range(0, len(whole), len(whole) // 40 + 1)]
    notes: list[str] = []

    async def feed(count: int) -> None:
        for piece in pieces[:count]:
            with (tmp_path / SPOOL).open("ab") as file:
                file.write(piece)
            await asyncio.sleep(0.1)
        del pieces[:count]

    async def feed_until(text: str) -> None:
        """One piece after the other, as the sink meets an outage when it has something to write."""
        before = sum(text in note for note in notes)
        async with asyncio.timeout(60):
            while sum(text in note for note in notes) == before:
                await feed(1)
                await asyncio.sleep(0.2)

    with Influx1(tmp_path / "influx1") as influx:
        influx.start().wait().set_up()
        for name, text in influx.variables().items():
            monkeypatch.setenv(name, text)
        (tmp_path / SPOOL).touch()
        async with sink_for(tmp_path, notes.append, lambda _: None):
            await feed(8)
            for _ in range(2):
                influx.kill()
                await feed_until("no answer from")
                await asyncio.to_thread(influx.start().wait)
                await feed_until("accepts points again")
            await feed(len(pieces))
        assert influx.points() == recorded(demo.lines)
    assert len([note for note in notes if "accepts points again" in note]) == 2, notes


@pytest.mark.lab
@pytest.mark.parametrize("provisioned", [True, False], ids=["provisioned", "installed"])
def test_every_query_of_every_dashboard_has_data(
    demo: Demo, changed: Made, influx1: Influx1, tmp_path: Path, provisioned: bool
) -> None:
    """Provisioned as compose.yaml does, on InfluxDB 2; installed by `atoll dashboards install`, on InfluxDB 1.8."""
    influx: Influx = demo.influx if provisioned else influx1
    assert atoll("metrics", "load", changed.path, influx=influx).returncode == 0
    with GrafanaServer(tmp_path, influx, provisioned=provisioned) as server:
        server.start().wait()
        if not provisioned:
            for _ in range(2):  # again: replaces what is there
                done = atoll("dashboards", "install", "--url", server.url, "--token", server.token, influx=influx)
                assert done.returncode == 0, done.stderr
                assert len(done.stdout.split()) == len(dashboard_files())
        grafana = Grafana(server.url, server.token)
        stamps = [int(line.rpartition(" ")[2]) for line in changed.lines]
        begin_ms, end_ms = min(stamps) // 10**6, max(stamps) // 10**6 + 1
        asked = [each for file in dashboard_files() for each in ask(grafana, file, changed.run, begin_ms, end_ms)]
        assert len(asked) > 80
        # The chain has one PEP: there is no connection to another one, and no RTT of it.
        assert [each.where for each in asked if not each.points] == ["pep: multiplex_rtt_ns A"]
        for file in dashboard_files():
            page = json.loads(file.read_text())
            there = json.loads(server.ask("GET", f"/api/dashboards/uid/{page['uid']}", Authorization=_basic(server)))
            assert there["dashboard"]["title"] == page["title"]
            assert there["meta"]["folderTitle"] == "atoll"


@pytest.mark.lab
def test_annotations_are_where_the_run_has_the_events(demo: Demo, changed: Made, tmp_path: Path) -> None:
    """Whistles, swaps, changes of chain and latency, notes, steps: each at its instant, with its text, everywhere."""
    assert atoll("metrics", "load", changed.path, influx=demo.influx).returncode == 0
    kinds = [event["type"] for event in changed.events]
    spooled = changed.events[: kinds.index("outcome") + 1]
    with GrafanaServer(tmp_path, demo.influx, provisioned=True) as server:
        server.start().wait()
        grafana = Grafana(server.url, server.token)
        for file in dashboard_files():
            marks = annotations(grafana, file, changed.run)
            assert set(marks) == {"whistle", "change", "swap", "note", "step"}
            assert [text for _, text in marks["whistle"]] == ["whistle start", "whistle end"]
            for kind in ("change", "swap", "note", "step"):
                answer = [event["t_ns"] // 10**6 for event in spooled if event["type"] == kind]
                assert [at for at, _ in marks[kind]] == pytest.approx(answer, abs=1), kind
            assert any("coder-w" in text for _, text in marks["change"]), marks["change"]
            assert any("w1" in text for _, text in marks["change"]), marks["change"]


def _basic(server: GrafanaServer) -> str:
    from base64 import b64encode

    return "Basic " + b64encode(server.token.encode()).decode()
