# SPDX-License-Identifier: Apache-2.0
"""The sink between spool and database, without a database: order, outages, unfit lines, the end of a run."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory import MetricsSpool, RunDir
from atoll_analysis.run_directory.metrics_spool import SPOOL, SpoolTail
from atoll_core.errors import RunDirError, UsageError
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_dashboards.influx.influx_client import DatabaseError, RejectedError
from atoll_dashboards.influx.influx_load import ALIGNED_NS, Times, load_run, shift_ns, shifted
from atoll_dashboards.influx.influx_settings import InfluxSettings, influx_settings
from atoll_dashboards.influx.influx_sink import PointCounts, Sink, batches, write_accepted
from atoll_dashboards.influx.sink_supervisor import sink_for
from tests.support.sinks import sink_of

pytestmark = pytest.mark.long


class Counting:
    """Takes lines as a database does, but for those called bad, and keeps them in order; one that comes again is one.

    ``partly``: it keeps the others of a batch; ``says``: how many of so many it has dropped.
    """

    def __init__(self, *, away: int = 0, partly: bool = False, says: Callable[[int], str] | None = None) -> None:
        self.lines: list[bytes] = []
        self.writes = 0
        self.away = away
        self._partly = partly
        self._says = says or (lambda _: "unable to parse 'bad'")

    def write(self, lines: bytes) -> None:
        """As Database.write."""
        if self.away:
            self.away -= 1
            raise DatabaseError("nobody there")
        self.writes += 1
        found = lines.splitlines()
        fit = [line for line in found if not line.startswith(b"bad")]
        if len(fit) == len(found) or self._partly:
            self.lines += [line for line in fit if line not in self.lines]
        if len(fit) < len(found):
            raise RejectedError("bad lines", self._says(len(found) - len(fit)))


def spool(path: Path, frames: int, points: int = 3) -> MetricsSpool:
    """A spool of that many frames, still open."""
    writer = MetricsSpool(path, lambda: 0.0)
    for frame in range(frames):
        writer.write(MetricPoint("a", {}, {"n": frame * points + number}, number) for number in range(points))
        writer.flush()
    return writer


def numbered(lines: list[bytes]) -> list[int]:
    return [int(line.split(b"=")[1].split(b"i")[0]) for line in lines]


def test_a_tail_reads_what_is_whole_and_then_the_rest(tmp_path: Path) -> None:
    """A frame that is half written is read when it is there."""
    spool(tmp_path / SPOOL, 3).close()
    whole = (tmp_path / SPOOL).read_bytes()
    part = tmp_path / "part"
    part.write_bytes(whole[:-5])
    tail = SpoolTail(part)
    assert b"".join(tail.frames()).count(b"\n") == 6
    assert not list(tail.frames())
    part.write_bytes(whole)
    assert b"".join(tail.frames()).count(b"\n") == 3


def test_a_frame_longer_than_what_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read with more."""
    monkeypatch.setattr("atoll_analysis.run_directory.metrics_spool._READ_BYTES", 16)
    spool(tmp_path / SPOOL, 5, points=100).close()
    assert numbered(b"".join(SpoolTail(tmp_path / SPOOL).frames()).splitlines()) == list(range(500))


def test_a_damaged_spool_is_named(tmp_path: Path) -> None:
    """So is one that is not there."""
    (tmp_path / SPOOL).write_bytes(b"no zstd at all, but long enough to be a header")
    with pytest.raises(RunDirError, match="damaged at byte 0"):
        list(SpoolTail(tmp_path / SPOOL).frames())
    with pytest.raises(RunDirError, match="the metrics cannot be read"):
        SpoolTail(tmp_path / "none")


def test_batches_hold_whole_lines_in_order() -> None:
    """None is longer than the limit but one with a single line that is."""
    frames = [b"aaaa 1\nb 2\n", b"c 3\n", b"d" * 50 + b" 4\ne 5\n"]
    found = list(batches(frames, 12))
    assert b"".join(found) == b"".join(frames)
    assert all(piece.endswith(b"\n") for piece in found)
    assert all(len(piece) <= 12 or piece.count(b"\n") == 1 for piece in found)


KINDS = {
    "it says how many": {"partly": True, "says": "type conflict dropped={}".format},
    "of 1.8 that it cannot parse": {"partly": True, "says": lambda _: "partial write: unable to parse 'x' dropped=0"},
    "of 2 that it cannot parse": {"partly": False},
    "a number that cannot be": {"partly": True, "says": lambda _: "type conflict dropped=1000"},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("where", [{0}, {8}, {0, 1, 7}, {3, 4, 5, 6, 8}, set(range(9))])
def test_unfit_lines_cost_no_other_and_all_of_them_are_counted(where: set[int], kind: dict[str, Any]) -> None:
    """However many of a batch they are, and whether the database keeps the fit ones of it or none."""
    lines = [b"bad n=1i 1" if number in where else b"n=%di 1" % number for number in range(9)]
    database, counts, answer = Counting(**kind), PointCounts(), []
    write_accepted(database.write, [b"".join(line + b"\n" for line in lines)], counts, answer.append)
    assert numbered(database.lines) == [number for number in range(9) if number not in where]
    assert (counts.delivered, counts.rejected, len(answer)) == (9 - len(where), len(where), 1)


def test_what_the_database_says_of_a_batch_is_believed_where_it_can_know() -> None:
    """Of lines in several shards it tells one shard's; with a series too long to be parsed, those it could parse."""
    says = "type conflict dropped={}".format
    hour = 3600 * 10**9

    def writes(*lines: bytes) -> int:
        database, counts = Counting(partly=True, says=says), PointCounts()
        write_accepted(database.write, [b"".join(line + b"\n" for line in lines)], counts, lambda _: None)
        assert (counts.delivered, counts.rejected) == (2, 2)
        return database.writes

    assert writes(b"n=1i 1", b"bad n=1i 2", b"n=2i 3", b"bad n=1i 4") == 1
    assert writes(b"n=1i 1", b"bad n=1i 2", b"n=2i %d" % hour, b"bad n=1i %d" % hour) > 1
    assert writes(b"n=1i 1", b"bad n=1i 2", b"n=2i 3", b"bad,t=" + 65_536 * b"a" + b" n=1i 4") > 1


def test_reasons_are_told_once_each_and_not_without_end() -> None:
    """A type that conflicts does so in every batch; a line that cannot be parsed is a reason of its own."""
    counts, answer = PointCounts(), []
    batch = b"bad n=1i 1\nn=1i 1\nbad n=1i 2\n"
    for _ in range(3):
        write_accepted(
            Counting(partly=True, says="type conflict dropped={}".format).write, [batch], counts, answer.append
        )
    assert [line["message"] for line in answer] == ["bad lines: type conflict"]
    for number in range(100):
        says = f"unable to parse line {number}"
        write_accepted(Counting(says=lambda _, says=says: says).write, [b"bad n=1i 1\n"], counts, answer.append)
    assert len(answer) == 10
    assert (counts.delivered, counts.rejected) == (3, 106)


def test_an_outage_amid_a_batch_with_unfit_lines_counts_nothing_twice() -> None:
    """The half that is through is not sent again; what is left is the other."""

    class Goes(Counting):
        def write(self, lines: bytes) -> None:
            if self.writes == 2:  # the whole, its first half
                self.writes += 1
                raise DatabaseError("gone")
            super().write(lines)

    pieces = [b"n=1i 1\nn=2i 1\nn=3i 1\nbad n=1i 1\n"]
    database, counts = Goes(), PointCounts()
    with pytest.raises(DatabaseError):
        write_accepted(database.write, pieces, counts, lambda _: None)
    assert (counts.delivered, counts.rejected, pieces) == (3, 0, [b"bad n=1i 1\n"])
    write_accepted(database.write, pieces, counts, lambda _: None)
    assert numbered(database.lines) == [1, 2, 3]
    assert (counts.delivered, counts.rejected) == (3, 1)


class Impatient(threading.Event):
    """An event that is waited for a moment only."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(0.01)


def test_an_outage_is_told_once_and_nothing_is_lost(tmp_path: Path) -> None:
    """What was spooled meanwhile follows in order."""
    spool(tmp_path / SPOOL, 4).close()
    database, ended, answer = Counting(away=3), Impatient(), []
    sink = Sink(SpoolTail(tmp_path / SPOOL), database.write, ended, answer.append)
    carrying = threading.Thread(target=sink.copy_all)
    carrying.start()
    while not database.lines:
        pass
    ended.set()
    carrying.join()
    assert numbered(database.lines) == list(range(12))
    assert [line["type"] for line in answer] == ["problem", "recovered"]
    assert (sink.counts.delivered, sink.counts.remaining) == (12, 0)


def test_at_the_end_a_database_that_is_away_is_not_waited_for(tmp_path: Path) -> None:
    """What it lacks is counted; a later load brings it."""
    run_dir = RunDir.create(tmp_path, "geo", 0)
    spool(run_dir.path / SPOOL, 2).close()
    ended = threading.Event()
    ended.set()
    sink = Sink(SpoolTail(run_dir.path / SPOOL), Counting(away=1000).write, ended, lambda _: None)
    sink.copy_all()
    assert (sink.counts.delivered, sink.counts.remaining) == (0, 6)
    database = Counting()
    assert load_run(run_dir, database.write).delivered == 6
    assert numbered(database.lines) == list(range(6))


def test_a_load_that_is_refused_says_so(tmp_path: Path) -> None:
    """There is no waiting: somebody sits there."""
    run_dir = RunDir.create(tmp_path, "geo", 0)
    spool(run_dir.path / SPOOL, 1).close()

    class Closed:
        def write(self, lines: bytes) -> None:
            raise DatabaseError("the token")

    with pytest.raises(DatabaseError, match="the token"):
        load_run(run_dir, Closed().write)


def test_runs_lie_side_by_side_from_the_begin_of_their_measurements(tmp_path: Path) -> None:
    """A run in virtual time as recorded lies where it was made by the wall clock."""
    run_dir = RunDir.create(tmp_path, "geo", 0)
    with pytest.raises(RunDirError, match="cannot be aligned"):
        shift_ns(run_dir, Times.ALIGNED)
    run_dir.append_event("window", 9, start_ns=5_000, end_ns=6_000)
    assert shift_ns(run_dir, Times.ALIGNED) + 5_000 == ALIGNED_NS
    assert shift_ns(run_dir, Times.RECORDED) == 0
    run_dir.update_manifest({"virtual": {"clock": {"start_ns": 1_000}}})
    with pytest.raises(RunDirError, match="no start time"):
        shift_ns(run_dir, Times.RECORDED)
    run_dir.update_manifest({"host": {"started_ns": 71_000}})
    assert shift_ns(run_dir, Times.RECORDED) == 70_000


def test_only_stamps_are_moved() -> None:
    """Whatever spaces and figures a line has before."""
    lines = b'event,kind=note text="a 5 b, c=6" 10\nlink,box=a\\ b n=1i -4\n'
    assert shifted(lines, 5) == b'event,kind=note text="a 5 b, c=6" 15\nlink,box=a\\ b n=1i 1\n'
    assert shifted(lines, 0) == lines


def test_the_database_is_the_user_s(tmp_path: Path) -> None:
    """From a file, from the environment, the environment before the file; without either there is none."""
    environment = {"HOME": str(tmp_path)}
    assert influx_settings(environment) is None
    file = tmp_path / ".config/atoll/influx.toml"
    file.parent.mkdir(parents=True)
    file.write_text('url = "http://db:8086"\ntoken = "secret"\norg = "lab"\n')
    assert influx_settings(environment) == InfluxSettings("http://db:8086", "secret", "lab", "atoll")
    assert "secret" not in f"{influx_settings(environment)!r} {influx_settings(environment)}"
    assert influx_settings({**environment, "ATOLL_INFLUX_BUCKET": "b"}) == InfluxSettings(
        "http://db:8086", "secret", "lab", "b"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('url = "db:8086"', "URL is wanted"),
        ('token = "x"', "URL is wanted"),
        ('url = "http://db"\npassword = "x"', "unknown key 'password'"),
        ('url = "http://db"\norg = 5', "org: must be a text in quotes"),
        ("url = ", "cannot be read"),
    ],
)
def test_settings_that_cannot_be_used_are_named_with_their_file(tmp_path: Path, text: str, message: str) -> None:
    """In one line."""
    file = tmp_path / "influx.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        influx_settings({"ATOLL_INFLUX": str(file)})
    assert str(file) in str(caught.value)
    with pytest.raises(UsageError, match="there is no file"):
        influx_settings({"ATOLL_INFLUX": str(tmp_path / "none")})


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine starts the sink seconds later."""
    monkeypatch.setattr("atoll_dashboards.influx.sink_supervisor.END_TIMEOUT_S", 200.0)


def fed(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch, url: str) -> list[str]:
    """What is noted while a run's spool is carried to a database at that URL."""
    monkeypatch.setenv("ATOLL_INFLUX_URL", url)
    notes: list[str] = []

    async def run() -> None:
        noted = asyncio.Event()

        def note(text: str) -> None:
            notes.append(text)
            noted.set()

        async with sink_for(run_dir.path, note, lambda _: None):
            spool(run_dir.path / SPOOL, 2).close()
            await noted.wait()

    asyncio.run(asyncio.wait_for(run(), 250))
    return notes


class _Taking(BaseHTTPRequestHandler):
    """A database that takes whatever is written, and says nothing about it."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


async def test_how_many_points_a_database_took_is_known_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the real process: all of them, or none where nobody is there."""
    run_dir = RunDir.create(tmp_path, "geo", 0)
    spool(run_dir.path / SPOOL, 2).close()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Taking) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        monkeypatch.setenv("ATOLL_INFLUX_URL", f"http://127.0.0.1:{server.server_port}")
        try:
            async with sink_for(run_dir.path, pytest.fail, lambda _: None) as fed:
                pass
        finally:
            server.shutdown()
            serving.join()
    assert fed.points == 6
    async with sink_for(run_dir.path, lambda _: None, lambda _: None) as fed:
        pass
    assert fed.points == 0


def test_a_run_notes_that_nobody_is_there_and_what_to_do_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real process, beside a port that nobody listens on."""
    run_dir = RunDir.create(tmp_path, "geo", 0)
    spool(run_dir.path / SPOOL, 2).close()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    away, left = fed(run_dir, monkeypatch, url)
    assert (
        away == f"metrics: no answer from {url}: Failed to establish a new connection: [Errno 111] Connection refused"
    )
    assert left == (f"metrics: not in a database yet: 12 points; `atoll metrics load {run_dir.path}` stores them")


def test_settings_that_are_wrong_cost_a_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and goes on."""
    (note,) = fed(RunDir.create(tmp_path, "geo", 0), monkeypatch, "127.0.0.1:8086")
    assert note.startswith("metrics are not sent to a database: ")


async def test_a_database_that_stands_still_is_waited_for_so_long_and_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes connections and says nothing, as one that was stopped does."""
    monkeypatch.setattr("atoll_dashboards.influx.sink_supervisor.END_TIMEOUT_S", 1.5)
    run_dir = RunDir.create(tmp_path, "geo", 0)
    spool(run_dir.path / SPOOL, 2).close()
    notes: list[str] = []
    shown: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("ATOLL_INFLUX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        async with sink_for(run_dir.path, notes.append, shown.append):
            pass
    (what_for,) = shown
    assert what_for.startswith("waiting until bucket 'atoll' of http://127.0.0.1:")
    assert what_for.endswith(" has stored the last metrics, 1.5 s at most")
    assert notes == [
        f"metrics: the database is too slow; `atoll metrics load {run_dir.path}` stores the remaining points later"
    ]


async def test_a_sink_that_is_killed_again_and_again_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said each time, and in the end what to do."""
    monkeypatch.setattr("atoll_dashboards.influx.sink_supervisor._RESTART_PAUSE_S", 0.01)
    monkeypatch.setenv("ATOLL_INFLUX_URL", "http://127.0.0.1:9")
    run_dir = RunDir.create(tmp_path, "geo", 0)
    spool(run_dir.path / SPOOL, 2).close()
    deaths: asyncio.Queue[str] = asyncio.Queue()

    def note(text: str) -> None:
        if "was killed" in text:
            deaths.put_nowait(text)

    async with sink_for(run_dir.path, note, note):
        for starts in range(1, 5):
            os.kill(await sink_of(run_dir.path), signal.SIGKILL)
            killed = await deaths.get()
            again = "; it is restarted and sends all points again from the first"
            given_up = " for the 4th time and is not restarted"
            given_up += f"; `atoll metrics load {run_dir.path}` stores the points"
            assert killed == f"metrics: the sink was killed by signal 9{again if starts < 4 else given_up}"
    assert deaths.empty()


def test_what_the_sink_says_is_as_the_contract_has_it(project: Path, tmp_path: Path) -> None:
    """Its examples have the keys that it prints."""
    lines = (project / "tests/data/contract/sink.jsonl").read_text().splitlines()
    examples = {message["type"]: set(message) for message in (json.loads(line)["message"] for line in lines)}
    spool(tmp_path / SPOOL, 1).close()
    environment = {**os.environ, "ATOLL_INFLUX_URL": "http://127.0.0.1:9"}
    argv = [sys.executable, "-m", "atoll_dashboards.influx.influx_sink", str(tmp_path)]
    done = subprocess.run(argv, input="", capture_output=True, text=True, timeout=60, check=False, env=environment)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["type"] for line in said] == ["problem", "done"]
    assert all(set(line) == examples[line["type"]] for line in said)
    assert (done.returncode, said[-1]["left"]) == (1, 3)
