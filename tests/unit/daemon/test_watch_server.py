# SPDX-License-Identifier: Apache-2.0
"""`atoll watch` and the page on the daemon's own port: real servers and sockets, daemons that come and go, no lab.

A daemon found by another name than the machine's own (that of an inventory) meets no other lab.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from atoll_core.errors import LabError
from atoll_core.platforms import HARDWARE, LabTarget
from atoll_daemon.event_log import MOST_WAITING
from atoll_daemon.http import http_app
from atoll_daemon.http.auth import SUBPROTOCOL
from atoll_daemon.http.tcp_listener import ListenAddress
from atoll_daemon.lab_daemon import LabDaemon
from atoll_daemon.replays.replay_index import Replays
from atoll_daemon.replays.watch_server import serving_page
from atoll_daemon.run_registry import RunRecord
from atoll_daemon.server import Server
from atoll_daemon.socket_lock import bind_daemon_socket
from tests.support.watched_run import WatchedRun

TARGET = LabTarget(HARDWARE, Path(f"/nowhere/{os.getpid()}/rack.yaml"))
TOKEN = "correct-horse-battery-staple"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Site:
    """Where the page is: its port, and a session that may ask there."""

    def __init__(self, url: str, session: aiohttp.ClientSession, runs: Path) -> None:
        self.url = url.removesuffix("/watch/")
        self.session = session
        self.runs = runs

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def ask(self, path: str, method: str = "GET", **options: Any) -> tuple[int, Any]:
        options.setdefault("headers", BEARER)
        async with self.session.request(method, self.url + path, **options) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        status, answer = await self.ask(path)
        assert status == 200, answer
        return answer

    def events(self, query: str = "samples=true&last=10", *, token: str = TOKEN) -> Any:
        return self.session.ws_connect(f"{self.url}/v1/events?{query}", protocols=(SUBPROTOCOL, f"bearer.{token}"))

    async def raw(self, request: bytes) -> bytes:
        """What is answered to these bytes until the connection is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer


class RunningKeeper:
    """A daemon without a lab, by its Unix socket and a port of its own."""

    def __init__(self, daemon: LabDaemon, serving: "asyncio.Task[None]", url: str) -> None:
        self.daemon = daemon
        self.url = url
        self._serving = serving

    @classmethod
    async def start(cls) -> "RunningKeeper":
        listener = bind_daemon_socket(TARGET)
        daemon = LabDaemon(TARGET, for_run=False)
        serving = asyncio.create_task(Server(daemon).serve(listener))
        path = listener.getsockname()
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path.decode())) as session,
            session.post("http://daemon/v1/ports", json={"address": "0", "token": TOKEN}) as response,
        ):
            return cls(daemon, serving, (await response.json())["url"])

    async def stop(self) -> None:
        self.daemon.end.set()
        await self._serving


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The parent of the run directories, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.fixture
async def site(runs: Path) -> AsyncIterator[Site]:
    """`atoll watch`, with no daemon there."""
    async with (
        serving_page(TARGET, ListenAddress.parse("0"), TOKEN, Replays(runs)) as url,
        aiohttp.ClientSession() as session,
    ):
        yield Site(url, session, runs)


@pytest.fixture
async def daemon(runs: Path) -> AsyncIterator[RunningKeeper]:
    running = await RunningKeeper.start()
    yield running
    await running.stop()


@pytest.fixture(params=["watch", "daemon"])
async def either(request: pytest.FixtureRequest, site: Site, daemon: RunningKeeper) -> Site:
    """The page of `atoll watch`, and that of a daemon's own port."""
    return site if request.param == "watch" else Site(daemon.url, site.session, site.runs)


# The page's files


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A page of some files, and things beside them that are none of it."""
    folder = tmp_path / "package" / "live_page"
    held = {"index.html": b"<!doctype html>", "view.js": b"export {}", "parts/plot.css": b"p {}", "a b.svg": b"<svg/>"}
    for name, content in held.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "notes.py").write_text("no file of a page")
    (tmp_path / "package" / "secret.txt").write_text("secret")
    monkeypatch.setattr(http_app, "files", lambda _: tmp_path / "package")
    return held


async def test_the_page_needs_no_token_and_is_never_stale(either: Site, files: dict[str, bytes]) -> None:
    """It may do nothing but talk to where it came from, and stand in no frame."""
    types = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for name, content in files.items():
        async with either.session.get(f"{either.url}/watch/{name}") as response:
            assert (response.status, await response.read()) == (200, content)
            assert response.content_type == types[name.rpartition(".")[2]]
            assert response.headers["Cache-Control"] == "no-cache"
            assert response.headers["Content-Security-Policy"].startswith("default-src 'self'; ")
            assert response.headers["X-Content-Type-Options"] == "nosniff"
    for path in ("/", "/watch", "/watch/"):
        async with either.session.get(either.url + path) as response:
            assert (str(response.url), await response.read()) == (f"{either.url}/watch/", files["index.html"])


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "/etc/passwd",
        "parts/../../secret.txt",
        "notes.py",
        "parts",
    ],
)
async def test_no_address_leads_beside_the_page(either: Site, files: dict[str, bytes], path: str) -> None:
    """Neither by dots, written in whatever way, nor by names of files that are there and none of it."""
    answer = await either.raw(f"GET /watch/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 401 ")), answer
    assert b"secret" not in answer.partition(b"\r\n\r\n")[2].replace(b"secret.txt", b"")


async def test_the_page_is_nobody_else_s(either: Site, files: dict[str, bytes]) -> None:
    """Names made to lead here are refused, as they are for the API; the page takes nothing but GET."""
    status, answer = await either.ask("/watch/", headers={"Host": "evil.example"})
    assert (status, answer["error"]["mistakes"][0]["where"]) == (403, "Host")
    assert (await either.ask("/watch/", method="POST"))[0] == 405


async def test_every_file_of_the_shipped_page_is_served(site: Site, project: Path) -> None:
    folder = project / "dashboards" / "atoll_dashboards" / "live_page"
    shipped = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert shipped
    for name in shipped:
        async with site.session.get(f"{site.url}/watch/{name}") as response:
            assert response.status == 200, name


# The API by way of `atoll watch`


async def test_without_a_daemon_requests_say_so(site: Site) -> None:
    """In the object of every error; who may not ask is told only that."""
    for path in ("/v1/status", "/v1/picture", "/v1/nothing"):
        status, answer = await site.ask(path)
        assert (status, answer["error"]["message"].startswith("no lab is up")) == (503, True)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await site.events()
    assert refused.value.status == 503
    status, answer = await site.ask("/v1/status", headers={"Authorization": "Bearer " + "x" * 20})
    assert (status, answer["error"]["message"]) == (401, "wrong token for this lab")
    status, answer = await site.ask("/v1/status", headers={})
    assert "`atoll watch` has printed" in answer["error"]["message"]


async def test_a_request_is_answered_as_the_daemon_does(site: Site, daemon: RunningKeeper) -> None:
    """Status, body and headers: of what is there, of what is not, of bodies of every kind."""
    direct = Site(daemon.url, site.session, site.runs)
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("/v1/status", "GET", {}),
        ("/v1/nothing", "GET", {}),
        ("/v1/picture", "GET", {}),
        ("/v1/plan", "PATCH", {}),
        ("/v1/runs?set=seed%3D5&x=%2F", "GET", {}),
        ("/v1/switches/a%2Fb", "GET", {}),
        ("/v1/apply", "POST", {"data": b"chain: [", "headers": {**BEARER, "Content-Type": "application/yaml"}}),
        ("/v1/apply", "POST", {"data": b"{}", "headers": {**BEARER, "Content-Type": "text/plain"}}),
    ]
    for path, method, options in asked:
        assert await site.ask(path, method, **options) == await direct.ask(path, method, **options), path
    assert (await site.ask("/v1/apply", "POST", data=b"x" * 200_000))[0] == 413
    async with (
        site.session.get(f"{site.url}/v1/runs", headers=BEARER) as here,
        site.session.get(f"{direct.url}/v1/runs", headers=BEARER) as there,
    ):
        assert [here.headers[name] for name in ("Content-Type", "Cache-Control")] == [
            there.headers[name] for name in ("Content-Type", "Cache-Control")
        ]


async def test_what_is_passed_on_has_no_more_rights_than_over_tcp(site: Site, daemon: RunningKeeper) -> None:
    """The Unix socket that it comes by would let its user do these."""
    body = {"json": {"address": "0", "token": TOKEN}}
    assert (await site.ask("/v1/ports", "POST", **body))[0] == 403
    assert (await site.ask("/v1/lab?file=lab.yaml", "POST", json={}))[0] == 403
    assert (await site.ask("/v1/runs?runs=/tmp", "POST", json={}))[0] == 403
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await site.session.ws_connect(f"{site.url}/v1/shell", headers=BEARER)
    assert refused.value.status == 403


async def test_a_daemon_that_does_not_know_who_asks_gives_no_shell_either(
    site: Site, daemon: RunningKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that an older version has started takes whatever is passed on for its own user's; however it is written."""
    monkeypatch.setattr("atoll_daemon.server.is_local", lambda _: True)
    refused = {"where": "", "message": "not available over TCP; use the `atoll` command on the lab's machine"}
    for method, path in (
        ("GET", "/v1/shell"),
        ("GET", "/v1/%73hell"),
        ("POST", "/v1/ports"),
        ("POST", "/v1/lab?file=lab.yaml"),
        ("POST", "/%761/l%61b"),
    ):
        status, answer = await site.ask(path, method, json={"address": "0", "token": TOKEN})
        assert (status, answer["error"]["mistakes"]) == (403, [refused]), path
        assert (await site.ask(path, method, headers={}))[0] == 401, "nothing is told to who may not ask"
    raw = f"GET /v1/%73hell HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
    assert (await site.raw(raw.encode())).startswith(b"HTTP/1.1 403 ")
    assert (await site.ask("/v1/status"))[0] == 200


async def test_the_page_outlives_daemons(site: Site) -> None:
    """Its socket is closed with the daemon; the next daemon is there without anything being started again."""
    for _ in range(2):
        running = await RunningKeeper.start()
        async with site.events() as socket:
            assert (await socket.receive_json())["type"] == "hello"
            running.daemon.events.add("note", message="something")
            assert (await socket.receive_json())["message"] == "something"
            await running.stop()
            closed = await socket.receive()
            assert closed.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        assert (await site.ask("/v1/status"))[0] == 503


async def test_events_come_as_lines_too(site: Site, daemon: RunningKeeper) -> None:
    async with site.session.get(f"{site.url}/v1/events", headers=BEARER) as response:
        assert json.loads(await response.content.readline())["type"] == "hello"
        daemon.daemon.events.add("note", message="at once")
        assert json.loads(await response.content.readline())["message"] == "at once"


async def test_a_page_that_is_closed_ends_its_requests_at_the_daemon(site: Site, daemon: RunningKeeper) -> None:
    """Of a change in progress that is what takes it back."""
    events = daemon.daemon.events
    async with site.events() as socket:
        await socket.receive_json()
        async with site.session.get(f"{site.url}/v1/events?samples=true", headers=BEARER) as response:
            await response.content.readline()
            assert events.has_sample_listeners
            response.close()
    while events.has_sample_listeners:  # noqa: ASYNC110 - others are to find that nobody is there
        await asyncio.sleep(0.01)


async def test_who_stops_reading_is_dropped_and_costs_others_nothing(either: Site, daemon: RunningKeeper) -> None:
    """By `atoll watch` as by itself; the samples that wait for it are bounded."""
    request = "GET /v1/events?samples=true HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    request += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    request += f"Sec-WebSocket-Protocol: {SUBPROTOCOL}, bearer.{TOKEN}\r\n\r\n"
    stuck = socket.create_connection(("127.0.0.1", either.port))
    stuck.sendall(request.encode())
    events = daemon.daemon.events
    async with either.events() as reader:
        assert (await reader.receive_json())["type"] == "hello"
        assert events.has_sample_listeners
        points = [["link", {"box": "sat"}, {"in_packets": number}, number] for number in range(2000)]
        dropped: dict[str, Any] = {}
        sent = 0
        while not dropped:
            sent += 1
            assert sent < MOST_WAITING / 2, "what waits for it is not bounded by its points"
            events.sample("points", run="geo-1", points=points)
            while (message := await reader.receive_json())["type"] != "points":
                dropped = message
        assert dropped["type"] == "listener_dropped"
        assert "127.0.0.1" in dropped["listener"]
    stuck.close()


# Ports that are taken


async def test_a_port_that_one_of_ours_has_is_told_with_its_page(site: Site, daemon: RunningKeeper) -> None:
    for url, who in ((site.url, "another `atoll watch`"), (daemon.url, "the daemon of a lab")):
        output = await refusal(int(url.rpartition(":")[2]), site.runs)
        assert (
            f": {who} uses this port and serves the page; open {url}/watch/, or choose another port with --listen"
            in output
        )


@pytest.mark.parametrize("says", [b"", b"SSH-2.0-something\r\n", b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"])
async def test_a_port_that_somebody_else_has_is_told_as_taken(runs: Path, says: bytes) -> None:
    """Whatever that one says, or if it says nothing at all."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        await writer.drain()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as stranger:
        output = await refusal(stranger.sockets[0].getsockname()[1], runs)
        assert "the port is in use by another program; choose another one with --listen" in output


async def refusal(port: int, runs: Path) -> str:
    """Why `atoll watch` cannot listen there, in one line that begins with what was asked for."""
    with pytest.raises(LabError) as refused:
        async with serving_page(TARGET, ListenAddress.parse(str(port)), TOKEN, Replays(runs)):
            pass
    output = str(refused.value)
    assert output.startswith(f"--listen 127.0.0.1:{port}: ")
    assert "\n" not in output
    return output


# Replays


async def test_runs_can_be_replayed_with_and_without_a_daemon(site: Site) -> None:
    """What the daemon makes elsewhere is known from then on, also when the daemon is gone."""
    ours = WatchedRun(site.runs, "geo", later_s=60)
    ours.second(0)
    ours.end()
    assert [each["id"] for each in (await site.get("/v1/replays"))["replays"]] == [ours.id]
    running = await RunningKeeper.start()
    theirs = WatchedRun(site.runs.parent / "elsewhere", "meo")
    theirs.second(0)
    theirs.end()
    running.daemon.runs.add(RunRecord("meo", theirs.began_ns), str(theirs.dir.path), theirs.dir.path.name)
    assert (await site.get(f"/v1/replays/{theirs.id}"))["picture"]["experiment"] == "meo"
    assert [each["id"] for each in (await site.get("/v1/replays"))["replays"]] == [ours.id, theirs.id]
    await running.stop()
    for run in (ours, theirs):
        assert (await site.get(f"/v1/replays/{run.id}"))["id"] == run.id
        assert len(await lines(site, f"/v1/replays/{run.id}/points")) == 1
    assert await lines(site, f"/v1/replays/{ours.id}/points?measurements=ping,load") == []
    assert len(await lines(site, f"/v1/replays/{ours.id}/points?measurements=ping,link")) == 1
    for path in ("/v1/replays/none", "/v1/replays/none/points"):
        status, answer = await site.ask(path)
        assert (status, "there is no run 'none'" in answer["error"]["message"]) == (404, True)
    assert (await site.ask(f"/v1/replays/{ours.id}/points?from_ns=soon"))[0] == 400


async def lines(site: Site, path: str) -> list[dict[str, Any]]:
    async with site.session.get(site.url + path, headers=BEARER) as response:
        assert (response.status, response.content_type) == (200, "application/x-ndjson")
        return [json.loads(line) async for line in response.content]


async def test_a_run_that_is_being_made_is_followed_to_its_end(either: Site) -> None:
    """One that begins with its spool not there yet, as in virtual time, too; without `follow` it is told so far."""
    run = WatchedRun(either.runs)
    run.second(0)
    assert len(await lines(either, f"/v1/replays/{run.id}/points")) == 1
    following = asyncio.create_task(lines(either, f"/v1/replays/{run.id}/points?follow=true"))
    await asyncio.sleep(0.1)
    run.second(1)
    await asyncio.sleep(0.7)
    assert not following.done()
    run.second(2)
    run.end()
    output = await following
    assert [point[2]["in_packets"] for message in output for point in message["points"]] == [
        0,
        1,
        2,
        10,
        11,
        12,
        20,
        21,
        22,
    ]
