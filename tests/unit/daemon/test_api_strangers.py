# SPDX-License-Identifier: Apache-2.0
"""The daemon's server met by strangers: tokens, names, origins, bodies of every wrong kind, connections that stall.

The real server, without a lab: whoever gets past it is told that none is up.
"""

import asyncio
import json
import socket
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from atoll_core.errors import LabError, MachineError, UsageError
from atoll_core.platforms import LabTarget
from atoll_core.secret_variables import TOKEN_VARIABLE
from atoll_daemon.http import http_app, request_parsing, tcp_listener
from atoll_daemon.http.auth import SUBPROTOCOL, find_token
from atoll_daemon.http.request_parsing import read_body_document
from atoll_daemon.http.routes import ROUTES
from atoll_daemon.http.tcp_listener import ListenAddress, ServedPort
from atoll_daemon.lab_daemon import LabDaemon
from atoll_daemon.server import Server

TOKEN = "correct-horse-battery-staple"


class Api:
    """A server on a Unix socket and a TCP port of loopback."""

    def __init__(self, daemon: LabDaemon, unix: Path, port: int) -> None:
        self.daemon = daemon
        self.unix = unix
        self.port = port

    async def ask(
        self, method: str, path: str, *, token: str | None = TOKEN, **options: Any
    ) -> tuple[int, dict[str, Any]]:
        """Status and object of an answer over TCP."""
        headers = options.pop("headers", {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        url = f"http://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, **options) as response,
        ):
            return response.status, await response.json()

    async def raw(self, request: bytes, wait_s: float = 60) -> bytes:
        """What the server says to these bytes until it closes the connection, or ``wait_s`` are over."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        answer = b""
        try:
            async with asyncio.timeout(wait_s):
                while part := await reader.read(65536):
                    answer += part
        except TimeoutError:
            pass
        finally:
            writer.close()
        return answer

    async def head(self, request: bytes) -> bytes:
        """The head of the answer to these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return head


@asynccontextmanager
async def daemon_at(unix: Path) -> AsyncGenerator[LabDaemon]:
    """A daemon without a lab that listens there."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(unix))
    listener.listen()
    daemon = LabDaemon(LabTarget(), for_run=False)
    serving = asyncio.create_task(Server(daemon).serve(listener))
    yield daemon
    daemon.end.set()
    await serving


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A daemon without a lab that also listens on loopback."""
    unix = tmp_path / "daemon"
    async with daemon_at(unix) as daemon:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(unix))) as session,
            session.post("http://daemon/v1/ports", json={"address": "0", "token": TOKEN}) as response,
        ):
            url = (await response.json())["url"]
        yield Api(daemon, unix, int(url.rpartition(":")[2]))


async def test_every_request_over_tcp_needs_the_token(api: Api) -> None:
    """One from this machine not excepted; the challenge says what is missing."""
    for route in ROUTES:
        path = route.path.replace("{", "").replace("}", "")
        status, answer = await api.ask(route.method, path, token=None)
        assert (status, answer["error"]["mistakes"][0]["where"]) == (401, "Authorization"), route
        assert (await api.ask(route.method, path, token="x" * 28))[0] == 401, route
    assert (await api.ask("GET", "/v1/status"))[0] == 200


@pytest.mark.parametrize(
    "header",
    [TOKEN, f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN} {TOKEN}", f"Bearer {TOKEN[:-1]}", "Bearer \x80\xff"],
)
async def test_what_is_nearly_the_token_is_not_it(api: Api, header: str) -> None:
    request = b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: "
    answer = await api.raw(request + header.encode("latin-1") + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401 "), answer
    assert b'Bearer realm="atoll"' in answer
    assert TOKEN.encode() not in answer


async def test_a_page_cannot_ask_by_a_name_made_to_lead_here(api: Api) -> None:
    """DNS rebinding: the browser believes the page's own name to be this machine's."""
    for name in ("evil.example", "127.0.0.1.evil.example:8080", "", "[evil]:80"):
        status, answer = await api.ask("GET", "/v1/status", headers={"Host": name})
        assert (status, answer["error"]["mistakes"][0]["where"]) == (403, "Host"), name
    for name in (f"localhost:{api.port}", "127.0.0.1", "[::1]:8080", "192.0.2.7:80", socket.gethostname()):
        assert (await api.ask("GET", "/v1/status", headers={"Host": name}))[0] == 200, name


async def test_a_page_of_another_origin_cannot_ask(api: Api) -> None:
    for origin in ("http://evil.example", "null", "http://[", f"http://127.0.0.1:{api.port + 1}"):
        status, answer = await api.ask("GET", "/v1/status", headers={"Origin": origin})
        assert (status, answer["error"]["mistakes"][0]["where"]) == (403, "Origin"), origin
    assert (await api.ask("GET", "/v1/status", headers={"Origin": f"http://127.0.0.1:{api.port}"}))[0] == 200


async def test_what_names_files_or_opens_shells_is_not_for_the_network(api: Api) -> None:
    for method, path in (("POST", "/v1/lab"), ("POST", "/v1/ports"), ("GET", "/v1/shell")):
        assert (await api.ask(method, path))[0] == 403
    for path in ("/v1/apply?file=/etc/passwd", "/v1/diff?file=x", "/v1/runs?runs=/tmp"):
        status, answer = await api.ask("POST", path, json={})
        assert (status, answer["error"]["mistakes"][0]["where"][:2]) == (403, "?" + path.partition("?")[2][0])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v2", 404),
        ("GET", "/v1/runs/geo-1", 404),
        ("POST", "/v1/switches", 405),
        ("PATCH", "/v1/chains/main", 405),
        ("GET", "/v1/status?pretty=1", 400),
        ("GET", "/v1/events?after=-1", 400),
        ("GET", "/v1/events?after=1&after=2", 400),
        ("DELETE", "/v1/lab?force=perhaps", 400),
        ("GET", "/v1/switches", 409),
        ("PUT", "/v1/chains/main", 415),
    ],
)
async def test_what_is_not_there_or_not_possible_is_said_so(api: Api, method: str, path: str, status: int) -> None:
    answered, answer = await api.ask(method, path, data=b"x" if status == 415 else None)
    assert answered == status
    error = answer["error"]
    assert error["status"] == status
    assert error["message"]
    assert error["mistakes"]


async def test_a_websocket_of_a_browser_brings_the_token_as_a_protocol(api: Api) -> None:
    """Browsers can send no Authorization with one; the token is not echoed."""
    url = f"http://127.0.0.1:{api.port}/v1/events"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=(SUBPROTOCOL, f"bearer.{TOKEN}")) as events,
    ):
        assert events.protocol == SUBPROTOCOL
        assert (await events.receive_json())["type"] == "hello"


async def test_events_come_by_lines_and_by_websocket_and_again_after_a_number(api: Api) -> None:
    api.daemon.events.add("note", message="one")
    api.daemon.events.add("note", message="two")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"http://127.0.0.1:{api.port}/v1/events"
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(url, params={"follow": "false", "after": 1}) as response:
            lines = [json.loads(line) async for line in response.content]
        assert [line.get("message") for line in lines] == [None, "two"]
        async with session.ws_connect(url, params={"last": "1", "samples": "true"}) as events:
            assert (await events.receive_json())["seq"] == 2
            assert (await events.receive_json())["message"] == "two"
            api.daemon.events.sample("live", elapsed_s=1.5)
            assert (await events.receive_json())["elapsed_s"] == 1.5


async def test_a_listener_that_stops_reading_is_dropped_and_told_on_its_return(api: Api) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port, limit=1024)  # more than that is left unread
    writer.write(
        b"GET /v1/events?samples=true HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
        + TOKEN.encode()
        + b"\r\n\r\n"
    )
    await reader.readuntil(b"hello")
    samples = 0
    while not any(event["type"] == "listener_dropped" for event in api.daemon.events.since(0)):
        api.daemon.events.sample("counters", padding="x" * 4096)
        await asyncio.sleep(0)
        samples += 1
        assert samples < 20_000, "it holds everything for somebody who does not read"
    writer.close()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        url = f"http://127.0.0.1:{api.port}/v1/events?after=0&follow=false"
        async with session.get(url) as response:
            output = [json.loads(line) async for line in response.content]
    assert [event["type"] for event in output] == ["hello", "listener_dropped"]


async def test_a_request_that_never_gets_done_is_ended(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow loris: one header after the other, none the last. Others are served meanwhile."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{api.port}", headers=headers) as another:

        async def assert_served() -> None:
            async with another.get("/v1/status") as response:
                assert (await response.json())["busy"] is None

        await assert_served()
        monkeypatch.setattr(tcp_listener, "FIRST_REQUEST_TIMEOUT_S", 0.5)
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(b"GET /v1/status HTTP/1.1\r\n")
        closed = asyncio.create_task(reader.read())
        while not closed.done():
            writer.write(b"X-Slow: 1\r\n")
            await asyncio.sleep(0.1)
            await assert_served()
        assert await closed == b""


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + b"x" * 100_000 + b"\r\n\r\n"],
)
async def test_what_is_no_http_is_turned_away_without_a_word_in_the_log(
    api: Api, garbage: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Or strangers could fill the disk."""
    answer = await api.raw(garbage, 1)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert (await api.ask("GET", "/v1/status"))[0] == 200
    assert caplog.text == ""
    assert capfd.readouterr().err == ""


async def test_too_many_connections_are_closed_and_others_served_again_after(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_listener, "MOST_CONNECTIONS", 3)
    idle = [await asyncio.open_connection("127.0.0.1", api.port) for _ in range(5)]
    over = [asyncio.create_task(reader.read()) for reader, _ in idle]
    await asyncio.wait(over[3:])
    assert not any(task.done() for task in over[:3])
    for _, writer in idle:
        writer.close()
    await asyncio.wait(over)
    await asyncio.sleep(0.1)
    assert (await api.ask("GET", "/v1/status"))[0] == 200


@pytest.fixture
async def reading(api: Api) -> AsyncIterator[Api]:
    """A server that answers with what it has read of a body, as every request that takes one reads it."""

    async def read(request: web.Request) -> web.Response:
        document = await read_body_document(request)
        return web.json_response(document.tree)

    application = web.Application(middlewares=[http_app.errors_as_json])
    application.router.add_post("/read", read)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    assert runner.server is not None
    port = await ServedPort.open(ListenAddress("127.0.0.1", 0), runner.server)
    yield Api(api.daemon, api.unix, port.address.port)
    port.close()
    await runner.cleanup()


JSON = "application/json"
LAUGHS = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (name, name, b",".join([b"*%c" % (name - 1)] * 9)) for name in b"bcde"
)
"""Every line holds the one before it nine times."""


@pytest.mark.parametrize(
    ("kind", "body", "status", "says"),
    [
        (JSON, b'{"chain": ["sat"]}', 200, None),
        ("application/yaml", b"chain: [sat]  # as one writes it\n", 200, None),
        ("application/json; charset=utf-8", '{"näme": 1}'.encode(), 200, None),
        (JSON, b"", 200, None),
        ("text/plain", b"chain: []", 415, "application/yaml"),
        ("application/x-www-form-urlencoded", b"{}", 415, "application/json"),
        ("application/json; charset=utf-16", b"{}", 415, "UTF-8"),
        ("application/json; charset=no-such", b"{}", 415, "UTF-8"),
        (JSON, b'{"chain": [', 400, "not valid JSON"),
        (JSON, b"[]", 400, "is not an object"),
        (JSON, b'"chain"', 400, "is not an object"),
        (JSON, b'{"a": NaN}', 400, "NaN"),
        (JSON, b'{"a": -Infinity}', 400, "Infinity"),
        (JSON, b'{"a": 1, "a": 2}', 400, "duplicate"),
        (JSON, b'{"a": "\xff"}', 400, "not UTF-8"),
        (JSON, b'{"a": ' + b"9" * 5000 + b"}", 400, "not valid JSON"),
        (JSON, b'{"a":' + b"[" * 40 + b"]" * 40 + b"}", 400, "deep"),
        (JSON, b'{"a":' + b"[" * 60_000 + b"]" * 60_000 + b"}", 400, "deep"),
        (JSON, b'{"a":[' + b"1," * 20_000 + b"1]}", 413, "entries"),
        (JSON, b'{"a": "' + b"x" * 300_000 + b'"}', 413, "larger"),
        ("application/yaml", b"a: " + b"[" * 5000, 400, ""),
        ("application/yaml", b"a: {" * 5000, 400, ""),
        ("application/yaml", b"a: *nothing", 400, "body:1"),
        ("application/yaml", b"a: 1\na: 2\n", 400, "body:2"),
        ("application/yaml", b"a: !python/object/apply:os.system [ls]\n", 400, "tag"),
        ("application/yaml", LAUGHS, 413, "entries"),
        ("application/yaml", b"a: \x00", 400, "U+0000"),
    ],
)
async def test_bodies_are_read_or_refused_in_plain_words(
    reading: Api, kind: str, body: bytes, status: int, says: str | None
) -> None:
    answered, answer = await reading.ask("POST", "/read", data=body, headers={"Content-Type": kind})
    assert answered == status, answer
    if says is not None:
        assert says in answer["error"]["message"]
        assert len(json.dumps(answer)) < 2000


async def test_a_body_of_10_mb_is_refused_before_it_is_read(reading: Api) -> None:
    """By what it says of its length, and by what came if it says nothing."""
    head = (
        f"POST /read HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
        "Content-Type: application/json\r\n"
    )
    assert (await reading.head(f"{head}Content-Length: 10000000\r\n\r\n".encode())).startswith(b"HTTP/1.1 413 ")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(10_000):
            yield b"x" * 1024

    answered, _ = await reading.ask("POST", "/read", data=endless(), headers={"Content-Type": JSON})
    assert answered == 413


async def test_a_body_that_stalls_is_given_up_and_one_cut_off_does_nothing(
    reading: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = (
        f"POST /read HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: 20\r\n\r\n"
    )
    with monkeypatch.context() as patch:
        patch.setattr(request_parsing, "BODY_TIMEOUT_S", 0.2)
        assert (await reading.head(head.encode() + b'{"chain": [')).startswith(b"HTTP/1.1 408 ")
    _, writer = await asyncio.open_connection("127.0.0.1", reading.port)
    writer.write(head.encode() + b'{"chain": [')
    await writer.drain()
    writer.close()
    assert (await reading.ask("POST", "/read", json={}))[0] == 200


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("8080", "127.0.0.1", 8080),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("[::1]:8080", "::1", 8080),
        ("localhost:0", "localhost", 0),
    ],
)
def test_an_address_is_a_port_with_or_without_a_host(text: str, host: str, port: int) -> None:
    assert ListenAddress.parse(text) == ListenAddress(host, port)


@pytest.mark.parametrize("text", ["", "http://localhost", "::1:8080", "host:", "70000", "1.2.3.4:", "a b:1", "-1"])
def test_what_is_no_address_is_told_by_example(text: str) -> None:
    with pytest.raises(UsageError, match="such as 8080"):
        ListenAddress.parse(text)


def test_a_port_that_cannot_be_had_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LabError, match=rf"--listen 127.0.0.1:{port}: the port is in use"):
            tcp_listener.bind(ListenAddress("127.0.0.1", port))
    with pytest.raises(LabError, match="no interface of this machine has that address"):
        tcp_listener.bind(ListenAddress("192.0.2.1", 0))
    with pytest.raises(LabError, match="is not an address of this machine"):
        tcp_listener.bind(ListenAddress("no-such-host.invalid", 0))


def test_the_token_is_made_once_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    state = tmp_path / "state"
    token, where = find_token(state)
    assert len(token) >= 40
    assert stat.S_IMODE(Path(where).stat().st_mode) == 0o600
    assert find_token(state) == (token, where)


def test_a_token_that_others_may_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(MachineError, match="other users may read"):
        find_token(tmp_path)
    (tmp_path / "token").unlink()
    (tmp_path / "token").symlink_to("/etc/hostname")
    with pytest.raises(MachineError, match="token"):
        find_token(tmp_path)


def test_the_environments_token_comes_first_unless_it_is_too_easy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert find_token(tmp_path) == (TOKEN, TOKEN_VARIABLE)
    assert not (tmp_path / "token").exists()
    for easy in ("", "secret", "sixteen letters!", "a" * 201, "ü" * 20):
        monkeypatch.setenv(TOKEN_VARIABLE, easy)
        with pytest.raises(UsageError, match="16 to 200"):
            find_token(tmp_path)
