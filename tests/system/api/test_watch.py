# SPDX-License-Identifier: Apache-2.0
"""`atoll watch` beside real labs: it is there before the first one and after the last, and misses no point of a run."""

import asyncio
import contextlib
import json
import signal
import subprocess
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from atoll_daemon.http.auth import SUBPROTOCOL
from tests.support.sandbox import ATOLL, PYTHON, QUICK, ROOT, Sandbox

pytestmark = pytest.mark.lab

RELAY = ROOT / "tests" / "guests" / "relay.py"
PORT = 8470

Told = dict[str, Any]


class Watch:
    """`atoll watch` in a sandbox, reached from outside as a browser in it would."""

    def __init__(self, sandbox: Sandbox, process: "subprocess.Popen[str]", token: str, unix: Path) -> None:
        self.sandbox = sandbox
        self.process = process
        self.token = token
        self._unix = unix

    def session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            f"http://127.0.0.1:{PORT}",
            connector=aiohttp.UnixConnector(str(self._unix)),
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=aiohttp.ClientTimeout(total=120),
        )

    async def ask(self, path: str, method: str = "GET", **options: Any) -> tuple[int, Any]:
        async with self.session() as session, session.request(method, path, **options) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        status, answer = await self.ask(path)
        assert status == 200, answer
        return answer

    @contextlib.asynccontextmanager
    async def events(self) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
        """The socket as the page opens it, with the token among its protocols."""
        async with self.session() as session:
            del session.headers["Authorization"]
            protocols = (SUBPROTOCOL, f"bearer.{self.token}")
            async with session.ws_connect("/v1/events?samples=true&last=0", protocols=protocols) as socket:
                yield socket

    async def points(self, run: str) -> list[Any]:
        """All points of a run, from now on until it is over."""
        async with self.session() as session, session.get(f"/v1/replays/{run}/points?follow=true") as response:
            return [point async for line in response.content for point in json.loads(line)["points"]]

    def atoll(self, *words: str | Path) -> str:
        done = self.sandbox.run("env", f"HOME={self.sandbox.directory}", ATOLL, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    home = tmp_path_factory.mktemp("watch")
    with Sandbox(home) as sandbox:
        process = sandbox.start("env", f"HOME={home}", ATOLL, "watch", "--listen", str(PORT), "--json")
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        page, _, token = url.partition("#token=")
        assert page == f"http://127.0.0.1:{PORT}/watch/"
        relay = sandbox.start(PYTHON, RELAY, home / "page", str(PORT))
        assert relay.stdout is not None
        assert relay.stdout.readline() == "ready\n"
        yield Watch(sandbox, process, token, home / "page")
        pid = sandbox.find(str(RELAY))
        assert pid is not None
        sandbox.kill(pid)
        relay.communicate(timeout=100)
        sandbox.wait_clean()


async def until(socket: aiohttp.ClientWebSocketResponse, kind: str, **wanted: Any) -> list[Told]:
    """Messages up to the first of that type that has what is wanted."""
    seen: list[Told] = []
    while True:
        seen.append(await asyncio.wait_for(socket.receive_json(), 60))
        if seen[-1]["type"] == kind and wanted.items() <= seen[-1].items():
            return seen


def measured(messages: list[Told], run: str | None) -> list[Any]:
    return [
        point
        for message in messages
        if message["type"] == "points" and message["run"] == run
        for point in message["points"]
    ]


async def test_before_the_first_lab_the_page_is_there_and_says_that_none_is(watch: Watch) -> None:
    status, answer = await watch.ask("/v1/picture")
    assert (status, answer["error"]["message"]) == (503, "no lab is up; `atoll up LAB` starts one")
    assert await watch.get("/v1/replays") == {"replays": []}
    async with watch.session() as session, session.get("/") as response:
        assert response.status == 200
        assert "<html" in await response.text()


async def test_while_a_lab_is_merely_up_its_boxes_give_points(watch: Watch) -> None:
    watch.atoll("up", QUICK)
    async with watch.events() as socket:
        seen = await until(socket, "points", run=None)
        seen += await until(socket, "points", run=None)
    points = measured(seen, None)
    assert {point[0] for point in points} == {"link", "link_config", "delay_box", "delay_class"}
    rates = {point[1]["direction"]: point[2]["rate_bit_s"] for point in points if point[0] == "link_config"}
    assert rates == {"to_island": 16_000_000, "to_world": 16_000_000}
    drawn = await watch.get("/v1/picture")
    assert [hop["kind"] for hop in drawn["chains"][0]["hops"]] == ["tap", "link", "tap"]
    assert drawn["run"] is None


async def test_a_run_is_watched_point_by_point_and_again_from_its_directory(watch: Watch) -> None:
    """Started from the page; live, followed while it is written, and replayed afterwards it is the same."""
    async with watch.events() as socket:
        status, run = await watch.ask("/v1/runs?analyse=false", "POST", json={})
        assert status == 202, run
        following = asyncio.create_task(watch.points(run["id"]))
        seen = await until(socket, "step")
        drawn = await watch.get("/v1/picture")
        assert (drawn["run"]["id"], drawn["run"]["duration_s"]) == (run["id"], 2.0)
        while not (seen[-1]["type"] == "work" and seen[-1]["state"] != "begin"):
            seen += await until(socket, "work")
        seen += await until(socket, "points", run=None)
    live = measured(seen, run["id"])
    followed = await asyncio.wait_for(following, 60)
    assert live == followed
    assert followed == await watch.points(run["id"])
    assert {"link", "delay_class", "event"} <= {point[0] for point in live}
    output = await watch.get(f"/v1/replays/{run['id']}")
    assert output["finished"]
    assert output["picture"] == {**drawn, "run": None}
    steps = [event["step"] for event in output["events"] if event["type"] == "step"]
    assert steps == [message["step"] for message in seen if message["type"] == "step"]


async def test_a_daemon_that_is_killed_is_missed_at_once_and_the_next_one_found(watch: Watch) -> None:
    """What it has made can still be watched."""
    daemon = watch.sandbox.find("atoll_daemon")
    assert daemon is not None
    async with watch.events() as socket:
        await until(socket, "points")
        watch.sandbox.kill(daemon)
        while not socket.closed:
            await asyncio.wait_for(socket.receive(), 60)
    assert (await watch.ask("/v1/status"))[0] == 503
    assert len((await watch.get("/v1/replays"))["replays"]) == 1
    watch.atoll("up", QUICK)
    async with watch.events() as socket:
        await until(socket, "points", run=None)
    assert (await watch.get("/v1/status"))["lab"]["experiment"] == "quick"
    watch.atoll("down")
    assert (await watch.ask("/v1/status"))[0] == 503


def test_what_cannot_be_watched_is_one_line(watch: Watch) -> None:
    for words, code, line in (
        (("--listen", str(PORT)), 1, f"--listen 127.0.0.1:{PORT}: another `atoll watch` uses this port"),
        (("--listen", "here"), 2, "--listen 'here': write PORT or HOST:PORT"),
        (("nowhere",), 2, "nowhere: there is no such directory; one of a run looks like "),
    ):
        done = watch.sandbox.run("env", f"HOME={watch.sandbox.directory}", ATOLL, "watch", *words)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(line)
        assert done.stderr.count("\n") == 1


async def test_a_browser_is_led_to_the_page_without_the_token_on_its_command_line(watch: Watch) -> None:
    """By a file that is gone afterwards, as is that of a killed one; a run that is named is what the page opens on."""
    (run,) = (await watch.get("/v1/replays"))["replays"]
    home = watch.sandbox.directory
    browser = home / "browser"
    script = ["#!/bin/sh", 'file="${1#file://}"', f'echo "$1" > {home}/opened', f'cp "$file" {home}/led']
    browser.write_text("\n".join([*script, f'stat -c %a "$file" >> {home}/opened\n']))
    browser.chmod(0o755)
    path = next((home / "runs" / "quick").iterdir())
    state = home / ".local" / "state" / "atoll"
    (state / "watch-0.html").touch()  # no process has this id
    words = ["env", f"HOME={home}", f"BROWSER={browser} %s", ATOLL, "watch", path, "--listen", "0", "--open"]
    process = watch.sandbox.start(*words)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url.endswith(f"/watch/#token={watch.token}&run={run['id']}")
    async with asyncio.timeout(60):
        while not (home / "opened").exists() or (home / "opened").read_text().count("\n") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    address, mode = (home / "opened").read_text().split()
    assert watch.token not in address
    assert mode == "600"
    assert url.replace("&", "&amp;") in (home / "led").read_text()
    pid = watch.sandbox.find(str(ATOLL), "--open")
    assert pid is not None
    watch.sandbox.kill(pid, signal.SIGTERM)
    assert process.wait(20) == 0
    process.communicate()
    assert list(state.glob("watch-*")) == []


def test_ctrl_c_ends_it_without_a_word(watch: Watch) -> None:
    """Nothing of it is left, as the fixture finds."""
    pid = watch.sandbox.find(str(ATOLL), "watch", "--json")
    assert pid is not None
    watch.sandbox.kill(pid, signal.SIGINT)
    _, said = watch.process.communicate(timeout=100)
    assert watch.process.returncode == 0
    assert said.count("\n") == 1, said
