# SPDX-License-Identifier: Apache-2.0
"""Metrics in real databases and dashboards on a real Grafana, of a real run during which the database was killed twice.

`make test-servers` builds the servers and runs these.
"""

import asyncio
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from atoll.model.load import load_experiment
from atoll.model.measurements import BY_NAME
from atoll.model.metrics import Point
from atoll.model.network import HostRole
from atoll.rundir import MetricsSpool, RunDir
from atoll.rundir.spool import SPOOL, SpoolTail, read_spool
from atoll_dashboards.feeding import feeding
from atoll_dashboards.grafana import Grafana, dashboard_files
from atoll_dashboards.influx import Database, RefusedError, UnfitError
from atoll_dashboards.influx_settings import InfluxSettings
from atoll_dashboards.loading import ALIGNED_NS
from atoll_dashboards.sink import Tally, write_fit
from tests.lab.demo_runs import GEO, Made, changed_run, identity, recorded
from tests.lab.grafana_queries import annotations, ask
from tests.lab.influx_servers import GrafanaServer, Influx, Influx1, Influx2, points
from tests.lab.sandbox import ATOLL, Sandbox, wait_for_line
from tests.sinks import sink_of

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


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
            run = sandbox.start("env", *variables, ATOLL, "run", GEO, "--duration", "14 s", "--json")
            wait_for_line(run, "captures: ")
            down()
            time.sleep(2)
            up()
            wait_for_line(run, "measure: ")
            time.sleep(5)
            down()
            time.sleep(2)
            up()
            output, rest = run.communicate(timeout=120)
            assert run.returncode in (0, 3), rest
            influx.kill()
        told = json.loads(output)
        influx.start().wait()
        yield Demo(Path(told["run_dir"]), influx, told["grafana"])


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
    assert sum("takes points again" in note for note in notes) >= 2, notes
    assert not [note for note in notes if "in no database yet" in note]


@pytest.mark.lab
def test_the_run_does_not_care(demo: Demo) -> None:
    """Lateness, which a busy machine may bring, is the only thing that may be wrong with it."""
    summary = json.loads((demo.path / "summary.json").read_text())
    assert all("late" in reason for reason in summary["reasons"]), summary["reasons"]
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
    assert 0 <= int(asked["to"][0]) - max(stamps_ms) < 2000


@pytest.mark.lab
def test_every_place_has_points(changed: Made) -> None:
    """Each measurement of the table; and of those that have several places, each place in the laboratory."""
    network, _ = load_experiment(GEO)
    found: dict[str, list[dict[str, str]]] = {}
    for line in changed.lines:
        measurement, tags, _ = identity(line)
        found.setdefault(measurement, []).append(dict(tags))
    assert set(found) == set(BY_NAME)

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
    with Influx1(tmp_path / "influx1") as influx:
        influx.start().wait().set_up()
        for name, text in influx.variables().items():
            monkeypatch.setenv(name, text)
        (tmp_path / SPOOL).touch()
        async with feeding(tmp_path, notes.append, lambda _: None):
            for number, piece in enumerate(pieces):
                with (tmp_path / SPOOL).open("ab") as file:
                    file.write(piece)
                await asyncio.sleep(0.25)
                if number in (8, 20):
                    influx.kill()
                if number in (14, 26):
                    await asyncio.to_thread(influx.start().wait)
            await asyncio.sleep(6)  # the longest that the sink waits before it tries again
        assert influx.points() == recorded(demo.lines)
    assert len([note for note in notes if "takes points again" in note]) == 2, notes


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
        assert not [each for each in asked if not each.points]
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
                told = [event["t_ns"] // 10**6 for event in spooled if event["type"] == kind]
                assert [at for at, _ in marks[kind]] == pytest.approx(told, abs=1), kind
            assert any("coder-w" in text for _, text in marks["change"]), marks["change"]
            assert any("w1" in text for _, text in marks["change"]), marks["change"]


@pytest.mark.parametrize("make", [Influx1, Influx2])
def test_what_is_refused_is_said_in_a_line(make: type[Influx], tmp_path: Path) -> None:
    """A wrong token, a wrong place, and lines that do not fit what is there already."""
    with make(tmp_path) as influx:
        influx.start().wait().set_up()
        held = influx.settings
        wrong = {
            "does not accept the token": InfluxSettings(held.url, "wrong", held.org, held.bucket),
            "has no such place for 'nowhere'": InfluxSettings(held.url, held.token, held.org, "nowhere"),
        }
        for message, settings in wrong.items():
            with Database(settings) as database, pytest.raises(RefusedError, match=message) as caught:
                database.check()
            assert "\n" not in str(caught.value)
        done = atoll("metrics", "check", influx=influx, ATOLL_INFLUX_TOKEN="wrong")
        assert (done.returncode, done.stdout) == (1, "")
        assert "does not accept the token" in done.stderr
        with Database(held) as database:
            database.check()
            database.write(b"m n=1i 1\n")
            with pytest.raises(UnfitError, match="type conflict"):
                database.write(b'm n="a text" 2\nm n=3i 3\n')
        assert set(influx.points()) == {("m", (), 1), ("m", (), 3)}


@pytest.mark.parametrize("make", [Influx1, Influx2])
def test_points_that_are_refused_are_counted_to_the_last(make: type[Influx], tmp_path: Path) -> None:
    """Of types that conflict, in every batch and on both sides of a shard's end; the others are there, each once."""
    run_dir = RunDir.create(tmp_path, "geo", 0)
    spool = MetricsSpool(run_dir.path / SPOOL)
    week_ns = 7 * 24 * 3600 * 10**9
    begin_ns = 2920 * week_ns + 4 * 24 * 3600 * 10**9 - 20_000 * 10**6  # shards of a week end on Mondays
    kinds = (("ping", "rtt_ns"), ("link", "queue_bytes"), ("event", "text"), ("tcp", "established"))
    for number in range(40_000):
        measurement, field = kinds[number % 4]
        figures = {field: "said" if field == "text" else number, "of": "a point that makes the line somewhat longer"}
        spool.write([Point(measurement, {}, figures, begin_ns + number * 10**6)])
    spool.close()
    with make(tmp_path / "influx") as influx:
        influx.start().wait().set_up()
        with Database(influx.settings) as database:
            database.write(b'ping rtt_ns="text" %d\ntcp established=1.5 %d\n' % (begin_ns - 1, begin_ns - 1))
            database.write(
                b'ping rtt_ns="text" %d\ntcp established=1.5 %d\n' % (begin_ns + week_ns, begin_ns + week_ns)
            )
        done = atoll("metrics", "load", run_dir.path, "--json", influx=influx)
        lines = list(read_spool(run_dir.path / SPOOL))
        there = influx.points()
    assert done.returncode == 1, done.stderr
    (loaded,) = json.loads(done.stdout)["loaded"]
    assert (loaded["points"], loaded["unfit"]) == (20_000, 20_000)
    fit = [line for line in lines if line.startswith(("link", "event"))]
    assert {key: fields for key, fields in there.items() if key[0] in ("link", "event")} == recorded(fit)
    assert len(there) == 20_000 + 4
    reasons = done.stderr.splitlines()
    assert len(reasons) == len(set(reasons)) <= 4
    assert all("type conflict" in reason for reason in reasons)


@pytest.mark.parametrize("make", [Influx1, Influx2])
def test_points_that_the_bucket_does_not_keep_so_long_are_counted(make: type[Influx], tmp_path: Path) -> None:
    """By a few questions for all of them, and with one reason, as of aligned runs all may be too old."""
    begin_ns = time.time_ns() - 5 * 3600 * 10**9
    old = [b"m n=1i %d\n" % (begin_ns + number) for number in range(10_000)]
    young = [b"m n=1i %d\n" % (begin_ns + 5 * 3600 * 10**9 + number) for number in range(1000)]
    with make(tmp_path) as influx:
        influx.start().wait().set_up()
        settings, tally, told = influx.keeping_an_hour(), Tally(), []
        with Database(settings) as database:
            asked: list[int] = []

            class Counted:
                def write(self, lines: bytes) -> None:
                    asked.append(lines.count(b"\n"))
                    database.write(lines)

            write_fit(Counted(), [b"".join(old[:5000]), b"".join([*old[5000:], *young])], tally, told.append)
        there = len(points(settings))
    assert (tally.delivered, tally.unfit, there) == (1000, 10_000, 1000)
    assert len(asked) < 50
    (line,) = told
    assert "retention policy" in line["message"]


def test_a_password_may_be_of_any_letters(tmp_path: Path) -> None:
    """InfluxDB 1.8's, whose users choose it."""
    with Influx1(tmp_path) as influx:
        influx.start().wait().set_up()
        influx.do("CREATE USER \"jörg\" WITH PASSWORD 'tök€' WITH ALL PRIVILEGES")
        with Database(InfluxSettings(influx.url, "jörg:tök€")) as database:
            database.write(b"m n=1i 1\n")
        with Database(InfluxSettings(influx.url, "jörg:tok€")) as database, pytest.raises(RefusedError):
            database.check()
        assert len(influx.points()) == 1


@pytest.mark.parametrize("make", [Influx1, Influx2])
async def test_a_sink_that_is_killed_is_started_again(
    make: type[Influx], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice amid a spool that grows: every point is there, and once."""
    notes: list[str] = []
    with make(tmp_path / "influx") as influx:
        influx.start().wait().set_up()
        for name, text in influx.variables().items():
            monkeypatch.setenv(name, text)
        spool = MetricsSpool(tmp_path / SPOOL)
        async with feeding(tmp_path, notes.append, lambda _: None):
            for frame in range(30):
                spool.write(Point("m", {"frame": str(frame)}, {"n": number}, number) for number in range(1000))
                spool.flush()
                if frame in (10, 20):
                    os.kill(await sink_of(tmp_path), signal.SIGKILL)
                await asyncio.sleep(0.15)
            spool.close()
        assert influx.points() == recorded(read_spool(tmp_path / SPOOL))
    again = "metrics: the sink was killed by signal 9; it is started again, and sends all points from the first"
    assert notes == [again, again]


@pytest.mark.parametrize("make", [Influx1, Influx2])
def test_tags_and_texts_of_any_kind_come_back_as_they_were(make: type[Influx], tmp_path: Path) -> None:
    """Spaces, commas, equal signs, quotes, backslashes; line breaks as two characters."""
    odd = "a b,c=d\"e'f\\g\nh"
    line, _ = Point("event", {"kind": odd, "state": "x y"}, {"text": odd}, 5).line()
    with make(tmp_path) as influx:
        influx.start().wait().set_up()
        with Database(influx.settings) as database:
            database.write(f"{line}\n".encode())
        (series,) = influx.series("SELECT * FROM event GROUP BY *")
    assert series["tags"] == {"kind": odd.replace("\n", "\\n"), "state": "x y"}
    assert series["values"] == [[5, odd.replace("\n", "\\n")]]


@pytest.mark.parametrize("make", [Influx1, Influx2])
def test_a_figure_that_is_no_number_costs_no_other(make: type[Influx], tmp_path: Path) -> None:
    """NaN, infinities and what is beyond 64 bits are left out and counted; all the rest is in the database."""
    spool = MetricsSpool(tmp_path / SPOOL)
    wrong = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 2**63}
    spool.write([Point("m", {}, {**wrong, "n": 2**63 - 1}, 1), Point("m", {}, wrong, 2), Point("m", {}, {"n": 5}, 3)])
    spool.close()
    assert (spool.points, spool.left_out) == (2, 8)
    tally = Tally()
    with make(tmp_path / "influx") as influx:
        influx.start().wait().set_up()
        with Database(influx.settings) as database:
            for lines in SpoolTail(tmp_path / SPOOL).frames():
                write_fit(database, [lines], tally, lambda line: pytest.fail(str(line)))
        (series,) = influx.series("SELECT * FROM m")
    assert (series["columns"], series["values"]) == (["time", "n"], [[1, 2**63 - 1], [3, 5]])
    assert tally == Tally(delivered=2)


@pytest.mark.parametrize("wrong", ["token", "place"])
async def test_what_was_wrong_is_made_right_during_a_run(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once, in a line; from then on nothing is missing, though the sink knows nothing of the remedy."""
    notes: list[str] = []
    noted = asyncio.Event()

    def note(text: str) -> None:
        notes.append(text)
        noted.set()

    with Influx1(tmp_path / "influx") as influx:
        influx.start().wait().set_up()
        later = InfluxSettings(influx.url, "later:secret" if wrong == "token" else "admin:secret", bucket="later")
        if wrong == "token":
            influx.do("CREATE DATABASE later")
        for name, text in influx.variables(later).items():
            monkeypatch.setenv(name, text)
        spool = MetricsSpool(tmp_path / SPOOL)
        spool.write(Point("m", {}, {"n": number}, number) for number in range(1000))
        spool.flush()
        async with feeding(tmp_path, note, lambda _: None):
            await asyncio.wait_for(noted.wait(), 30)
            noted.clear()
            if wrong == "token":
                influx.do("CREATE USER later WITH PASSWORD 'secret' WITH ALL PRIVILEGES")
            else:
                influx.do("CREATE DATABASE later")
            await asyncio.wait_for(noted.wait(), 30)
            spool.write([Point("m", {}, {"n": 1000}, 1000)])
            spool.close()
        (series,) = influx.series("SELECT count(n) FROM later.autogen.m")
    refused, recovered = notes
    assert ("does not accept the token" if wrong == "token" else "has no such place for 'later'") in refused
    assert recovered == "metrics: the database takes points again; those since are delivered"
    assert series["values"][0][1] == 1001


def atoll(*words: str | Path, influx: Influx, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a verb with this database as the user's."""
    environment = {**os.environ, **influx.variables(), **variables}
    argv = [str(word) for word in (ATOLL, *words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=environment)


def _basic(server: GrafanaServer) -> str:
    from base64 import b64encode

    return "Basic " + b64encode(server.token.encode()).decode()
