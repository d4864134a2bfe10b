# SPDX-License-Identifier: Apache-2.0
"""Points on their way into real databases: what is refused and how it is counted, odd texts and figures, a sink killed.

`make test-servers` builds the servers and runs these.
"""

import asyncio
import json
import math
import os
import signal
import time
from pathlib import Path

import pytest

from atoll_analysis.run_directory import MetricsSpool, RunDir
from atoll_analysis.run_directory.metrics_spool import SPOOL, SpoolTail, read_spool
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_dashboards.influx.influx_client import Database, DatabaseError, RejectedError
from atoll_dashboards.influx.influx_settings import InfluxSettings
from atoll_dashboards.influx.influx_sink import PointCounts, write_accepted
from atoll_dashboards.influx.sink_supervisor import sink_for
from tests.support.demo_runs import recorded
from tests.support.influx_servers import Influx, Influx1, Influx2, atoll, points
from tests.support.sinks import sink_of

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("make", [Influx1, Influx2])
def test_what_is_refused_is_said_in_a_line(make: type[Influx], tmp_path: Path) -> None:
    """A wrong token, a wrong place, and lines that do not fit what is there already."""
    with make(tmp_path) as influx:
        influx.start().wait().set_up()
        held = influx.settings
        wrong = {
            "does not accept the token": InfluxSettings(held.url, "wrong", held.org, held.bucket),
            "has no database 'nowhere'": InfluxSettings(held.url, held.token, held.org, "nowhere"),
        }
        for message, settings in wrong.items():
            with Database(settings) as database, pytest.raises(DatabaseError, match=message) as caught:
                database.check()
            assert "\n" not in str(caught.value)
        done = atoll("metrics", "check", influx=influx, ATOLL_INFLUX_TOKEN="wrong")
        assert (done.returncode, done.stdout) == (1, "")
        assert "does not accept the token" in done.stderr
        with Database(held) as database:
            database.check()
            database.write(b"m n=1i 1\n")
            with pytest.raises(RejectedError, match="type conflict"):
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
        spool.write([MetricPoint(measurement, {}, figures, begin_ns + number * 10**6)])
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
        settings, counts, answer = influx.keeping_an_hour(), PointCounts(), []
        with Database(settings) as database:
            asked: list[int] = []

            def write(lines: bytes) -> None:
                asked.append(lines.count(b"\n"))
                database.write(lines)

            write_accepted(write, [b"".join(old[:5000]), b"".join([*old[5000:], *young])], counts, answer.append)
        there = len(points(settings))
    assert (counts.delivered, counts.rejected, there) == (1000, 10_000, 1000)
    assert len(asked) < 50
    (line,) = answer
    assert "retention policy" in line["message"]


async def test_a_run_notes_why_points_are_refused_and_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason as soon as it is known and once, the number at the end."""
    notes: list[str] = []
    noted = asyncio.Event()

    def note(text: str) -> None:
        notes.append(text)
        noted.set()

    with Influx2(tmp_path / "influx") as influx:
        influx.start().wait().set_up()
        with Database(influx.settings) as database:
            database.write(b'm n="a text" 1\n')
        for name, text in influx.variables().items():
            monkeypatch.setenv(name, text)
        spool = MetricsSpool(tmp_path / SPOOL)
        async with sink_for(tmp_path, note, lambda _: None):
            for frame in range(3):
                spool.write(
                    MetricPoint(name, {}, {"n": frame}, 100 * frame + number) for number in range(100) for name in "mk"
                )
                spool.flush()
                await asyncio.wait_for(noted.wait(), 60)
                await asyncio.sleep(0.6)  # the next frame is a batch of its own
            spool.close()
        assert len(influx.points()) == 301
    conflict = 'partial write: field type conflict: input field "n" on measurement "m" is type integer, already exists'
    failure = f"failure writing points to database: {conflict} as type string"
    assert notes == [
        f"metrics: {influx.url} rejects some of the points: {failure}",
        "metrics: the database refused 300 points",
    ]


def test_a_password_may_be_of_any_letters(tmp_path: Path) -> None:
    """InfluxDB 1.8's, whose users choose it."""
    with Influx1(tmp_path) as influx:
        influx.start().wait().set_up()
        influx.do("CREATE USER \"jörg\" WITH PASSWORD 'tök€' WITH ALL PRIVILEGES")
        with Database(InfluxSettings(influx.url, "jörg:tök€")) as database:
            database.write(b"m n=1i 1\n")
        with Database(InfluxSettings(influx.url, "jörg:tok€")) as database, pytest.raises(DatabaseError, match="token"):
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
        async with sink_for(tmp_path, notes.append, lambda _: None):
            for frame in range(30):
                spool.write(MetricPoint("m", {"frame": str(frame)}, {"n": number}, number) for number in range(1000))
                spool.flush()
                if frame in (10, 20):
                    os.kill(await sink_of(tmp_path), signal.SIGKILL)
                await asyncio.sleep(0.15)
            spool.close()
        assert influx.points() == recorded(read_spool(tmp_path / SPOOL))
    again = "metrics: the sink was killed by signal 9; it is restarted and sends all points again from the first"
    # A slow database may make points late, which another note says.
    assert [note for note in notes if "killed" in note] == [again, again]


@pytest.mark.parametrize("make", [Influx1, Influx2])
def test_tags_and_texts_of_any_kind_come_back_as_they_were(make: type[Influx], tmp_path: Path) -> None:
    """Spaces, commas, equal signs, quotes, backslashes; line breaks as two characters."""
    odd = "a b,c=d\"e'f\\g\nh"
    line, _ = MetricPoint("event", {"kind": odd, "state": "x y"}, {"text": odd}, 5).line()
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
    spool.write(
        [
            MetricPoint("m", {}, {**wrong, "n": 2**63 - 1}, 1),
            MetricPoint("m", {}, wrong, 2),
            MetricPoint("m", {}, {"n": 5}, 3),
        ]
    )
    spool.close()
    assert (spool.points, spool.left_out) == (2, 8)
    counts = PointCounts()
    with make(tmp_path / "influx") as influx:
        influx.start().wait().set_up()
        with Database(influx.settings) as database:
            for lines in SpoolTail(tmp_path / SPOOL).frames():
                write_accepted(database.write, [lines], counts, lambda line: pytest.fail(str(line)))
        (series,) = influx.series("SELECT * FROM m")
    assert (series["columns"], series["values"]) == (["time", "n"], [[1, 2**63 - 1], [3, 5]])
    assert counts == PointCounts(delivered=2)


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
        spool.write(MetricPoint("m", {}, {"n": number}, number) for number in range(1000))
        spool.flush()
        async with sink_for(tmp_path, note, lambda _: None):
            await asyncio.wait_for(noted.wait(), 60)
            noted.clear()
            if wrong == "token":
                influx.do("CREATE USER later WITH PASSWORD 'secret' WITH ALL PRIVILEGES")
            else:
                influx.do("CREATE DATABASE later")
            await asyncio.wait_for(noted.wait(), 60)
            spool.write([MetricPoint("m", {}, {"n": 1000}, 1000)])
            spool.close()
        (series,) = influx.series("SELECT count(n) FROM later.autogen.m")
    refused, recovered = notes
    assert ("does not accept the token" if wrong == "token" else "has no database 'later'") in refused
    assert recovered == "metrics: the database accepts points again; the points of the meantime were delivered"
    assert series["values"][0][1] == 1001
