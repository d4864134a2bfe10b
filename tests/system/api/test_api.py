# SPDX-License-Identifier: Apache-2.0
"""The API of a lab that is up: the document's examples, answers of the shapes it promises, and bad input of every kind.

One real lab for all of them; what is wrong must leave its switches exactly as they were.
"""

import asyncio
import contextlib
import itertools
import json
import re
import shlex
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.support.sandbox import ATOLL, PYTHON, ROOT, Sandbox

pytestmark = pytest.mark.lab

DOCUMENT = ROOT / "docs" / "api.md"
OPENAPI = json.loads((ROOT / "docs" / "openapi.json").read_text())
PORT = 8080


def examples() -> list[tuple[str, str]]:
    """The commands of docs/api.md, each with what it shows of their output."""
    found: list[tuple[str, str]] = []
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], ""))
        elif line.startswith("    ") and found:
            command, shown = found[-1]
            found[-1] = (command, shown + line[4:])
    return found


class Lab:
    """The lab that docs/api.md brings up, in a sandbox; asked by TCP as from anywhere."""

    def __init__(self, sandbox: Sandbox, said: str, token: str, unix: Path) -> None:
        self.sandbox = sandbox
        self.said = said
        self.token = token
        self.unix = unix

    def session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            f"http://127.0.0.1:{PORT}",
            connector=aiohttp.UnixConnector(str(self.unix)),
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=aiohttp.ClientTimeout(total=60),
        )

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.session() as session, session.request(method, path, **options) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        status, answer = await self.ask("GET", path)
        assert status == 200, answer
        return answer

    async def send_apply(self, most: int | None = None) -> asyncio.StreamWriter:
        """The connection on which another chain was asked for; only so many bytes of the body are sent."""
        body = b'{"chain": ["tap-w", "pep-w", "sat", "pep-i"]}'
        head = f"POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        _, writer = await asyncio.open_unix_connection(str(self.unix))
        writer.write(head.encode() + body[:most])
        await writer.drain()
        if most is not None:
            writer.close()
        return writer

    async def tables(self) -> dict[str, Any]:
        """What every switch holds, read from it."""
        names = [switch["name"] for switch in (await self.get("/v1/switches"))["switches"]]
        held = {name: await self.get(f"/v1/switches/{name}/entries") for name in names}
        for answer in held.values():
            del answer["packets"]  # probes that are under way still are counted meanwhile
        return held


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab brought up by the first command of docs/api.md, where the examples are found by a link."""
    home = tmp_path_factory.mktemp("home")
    (home / "examples").symlink_to(ROOT / "examples")
    with Sandbox(home) as sandbox:
        up = in_shell(sandbox, examples()[0][0], limit_s=100)
        token = (home / ".local" / "state" / "atoll" / "token").read_text().strip()
        unix = home / "api"
        with running(sandbox, ROOT / "tests" / "guests" / "relay.py", unix, str(PORT)):
            yield Lab(sandbox, up, token, unix)
        command, shown = examples()[-1]
        assert in_shell(sandbox, command) == shown + "\n"
        sandbox.wait_clean()


@contextlib.contextmanager
def running(sandbox: Sandbox, *words: str | Path) -> Generator[None]:
    """While this holds, a Python program runs in the sandbox; it has said that it is ready."""
    program = sandbox.start(PYTHON, *words)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    try:
        yield
    finally:
        pid = sandbox.find(*map(str, words))
        assert pid is not None
        sandbox.kill(pid)
        program.communicate(timeout=100)


def in_shell(sandbox: Sandbox, script: str, limit_s: float = 60) -> str:
    """Standard output of a script that somebody types at home."""
    environment = f"export HOME={shlex.quote(str(sandbox.directory))} PATH={ATOLL.parent}:$PATH\n"
    done = sandbox.run("bash", "-c", environment + script, limit_s=limit_s)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_documents_examples_do_what_it_shows(lab: Lab) -> None:
    """Every command between the first and the last, one after the other in one shell; `...` stands for anything."""
    commands = examples()
    assert re.fullmatch(pattern(commands[0][1]), lab.said.strip())
    end = "@@ end of a command @@"
    script = "".join(f"{command}\necho '{end}'\n" for command, _ in commands[1:-1])
    printed = in_shell(lab.sandbox, script, limit_s=150).split(end)
    for (command, shown), output in zip(commands[1:-1], printed, strict=False):
        assert re.fullmatch(pattern(shown), output.replace("\n", "")), f"{command}\nshows {shown}\nprinted {output}"


def pattern(shown: str) -> str:
    return ".*".join(re.escape(part) for part in shown.split("..."))


async def test_answers_have_the_shapes_that_the_document_promises(lab: Lab) -> None:
    """Every GET of docs/openapi.json, against its schema."""
    names = {"switches": "sw-c", "chains": "main", "latencies": "w2"}
    asked = 0
    for path, operations in OPENAPI["paths"].items():
        if "get" not in operations or path == "/v1/events" or "{id}" in path:  # of runs, and there are none yet
            continue
        topic = path.split("/")[2]
        where = re.sub(r"\{\w+\}", names.get(topic, ""), path)
        answer = await lab.get(where + ("?src=w1&dst=i1" if topic == "trace" else ""))
        schema = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        Draft202012Validator({**schema, "components": OPENAPI["components"]}).validate(answer)
        asked += 1
    assert asked > 12


@pytest.mark.parametrize("path", ["/v1/plan", "/v1/diff", "/v1/apply?dry_run=true"])
async def test_doubtful_wishes_are_warned_of_and_refused_with_strict(lab: Lab, path: str) -> None:
    doubtful = {"ping": {"interval": "1 ms"}}
    status, answer = await lab.ask("POST", path, json=doubtful)
    assert status == 200, answer
    (warning,) = [each for each in answer["warnings"] if each["where"] == "ping.interval"]
    assert "usual is at most 5%" in warning["message"]
    before = await lab.tables()
    strict = f"{path}{'&' if '?' in path else '?'}strict=true"
    status, refusal = await lab.ask("POST", strict, json=doubtful)
    assert status == 422, refusal
    assert warning["message"] in json.dumps(refusal, ensure_ascii=False)
    assert await lab.tables() == before


WRONG: list[tuple[str, str, dict[str, Any], int]] = [
    ("POST", "/v1/apply", {"json": {"chain": ["tap-w", "sax"]}}, 422),
    ("POST", "/v1/apply", {"json": {"chain": ["tap-w", 5, None]}}, 422),
    ("POST", "/v1/apply", {"json": {"chain": "sat"}}, 422),
    ("POST", "/v1/apply", {"json": {"chain": {"sat": []}}}, 422),
    ("POST", "/v1/apply", {"json": {"chain": ["sat", "sat"]}}, 422),
    ("POST", "/v1/apply", {"json": {"chain": None}}, 422),
    ("POST", "/v1/apply", {"json": {"latency": {"w1": "rtt-7"}}}, 422),
    ("POST", "/v1/apply", {"json": {"latency": {"w9": "rtt-5"}}}, 422),
    ("POST", "/v1/apply", {"json": {"latency": {"i1": "rtt-5"}}}, 422),
    ("POST", "/v1/apply", {"json": {"links": {"sat": {"to_island": {"rate": "16"}}}}}, 422),
    ("POST", "/v1/apply", {"json": {"branches": {"half": {"chain": ["sat"]}}}}, 422),
    ("POST", "/v1/apply", {"json": {"branches": {"half": {"carries": {"island": "10.99.0.0/16"}}}}}, 422),
    ("POST", "/v1/apply", {"json": {"name": "half", "chain": ["sat"]}}, 422),
    ("POST", "/v1/apply", {"json": {"lab": "other.yaml"}}, 422),
    ("POST", "/v1/apply", {"json": {"unknown": 1}}, 422),
    ("POST", "/v1/apply?at_once=si", {"json": {}}, 400),
    ("POST", "/v1/apply?connections=keep", {"json": {}}, 422),
    ("POST", "/v1/apply?dry_runn=true", {"json": {}}, 400),
    ("POST", "/v1/apply?set=seed", {"json": {}}, 422),
    ("POST", "/v1/apply?file=/etc/passwd", {"json": {}}, 403),
    ("POST", "/v1/apply", {"data": b"\xff\xfe", "headers": {"Content-Type": "application/json"}}, 400),
    ("POST", "/v1/apply", {"data": b'{"chain": [', "headers": {"Content-Type": "application/json"}}, 400),
    ("POST", "/v1/apply", {"data": b'{"seed": NaN}', "headers": {"Content-Type": "application/json"}}, 400),
    ("POST", "/v1/apply", {"data": b'{"a":' * 9999, "headers": {"Content-Type": "application/json"}}, 400),
    ("POST", "/v1/apply", {"data": b"{" * 9999, "headers": {"Content-Type": "application/yaml"}}, 400),
    ("POST", "/v1/apply", {"data": b"x" * 10_000_000, "headers": {"Content-Type": "application/json"}}, 413),
    ("POST", "/v1/apply", {"data": b"chain: []", "headers": {"Content-Type": "text/plain"}}, 415),
    ("POST", "/v1/apply", {"json": {}, "headers": {"Authorization": "Bearer wrong"}}, 401),
    ("POST", "/v1/apply", {"json": {}, "headers": {"Host": "lab.example"}}, 403),
    ("PUT", "/v1/chains/main", {"json": {"chain": ["sat"], "carries": {"protocol": "tcp"}}}, 422),
    ("PUT", "/v1/chains/main", {"json": {"hops": ["sat"]}}, 422),
    ("PUT", "/v1/chains/Half%20coded", {"json": {"chain": ["sat"], "carries": {"protocol": "tcp"}}}, 422),
    ("PUT", "/v1/chains/half", {"json": {"chain": ["sat"]}}, 422),
    ("PUT", "/v1/chains/half", {"json": {"chain": ["sat"], "carries": {"protocol": "sctp"}}}, 422),
    ("DELETE", "/v1/chains/main", {}, 422),
    ("DELETE", "/v1/chains/half", {}, 404),
    ("PUT", "/v1/latencies/w1", {"json": {"class": "rtt-5", "rtt": "5 ms"}}, 422),
    ("PUT", "/v1/latencies/w1", {"json": {}}, 422),
    ("PUT", "/v1/latencies/w1", {"json": {"rtt": "5 parsecs"}}, 422),
    ("PUT", "/v1/latencies/i1", {"json": {"class": "rtt-5"}}, 404),
    ("PUT", "/v1/latencies/w1?dry_run=maybe", {"json": {"class": "rtt-5"}}, 400),
    ("POST", "/v1/runs?set=duration=0+s", {"json": {}}, 422),
    ("POST", "/v1/runs?set=tcp.congestion_control=warp", {"json": {}}, 422),
    ("POST", "/v1/runs?runs=/tmp", {"json": {}}, 403),
    ("POST", "/v1/runs?runtime=ryu", {"json": {}}, 409),
    ("DELETE", "/v1/runs/none", {}, 404),
    ("POST", "/v1/calibrations?directions=up", {"json": {}}, 400),
    ("POST", "/v1/calibrations?seconds=nan", {"json": {}}, 400),
    ("GET", "/v1/trace?src=w1&dst=w2", {}, 422),
    ("GET", "/v1/trace?src=w1", {}, 400),
    ("GET", "/v1/switches/sw-9", {}, 404),
    ("POST", "/v1/lab", {"json": {}}, 403),
    ("PATCH", "/v1/plan", {"json": {}}, 405),
]


async def test_bad_input_is_told_clearly_and_changes_no_switch(lab: Lab) -> None:
    before, seq = await lab.tables(), (await lab.get("/v1/status"))["seq"]
    for method, path, options, expected in WRONG:
        status, answer = await lab.ask(method, path, **options)
        assert status == expected, (method, path, options, answer)
        error = answer["error"]
        assert error["message"], path
        assert error["mistakes"], path
        assert all(mistake["message"] for mistake in error["mistakes"]), path
        assert len(json.dumps(answer)) < 4000, path
        assert "internal" not in error["message"]
    assert await lab.tables() == before
    assert (await lab.get("/v1/status"))["seq"] == seq, "something was done"


@pytest.fixture(scope="module")
def loop_of_its_own() -> Iterator[asyncio.AbstractEventLoop]:
    """For hypothesis, which knows no coroutines."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


KEYS = st.sampled_from(
    ["chain", "branches", "links", "latency", "name", "lab", "seed", "tcp", "sat", "w1", "x", "carries"]
)
WORDS = st.sampled_from(["sat", "tap-w", "coder-w", "rtt-5", "90 ms", "w1", "", "10.20.0.0/30", "\ud800", "é", "-1 ms"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(max_size=5)
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
BODIES = st.dictionaries(KEYS, TREES, min_size=1, max_size=4).map(lambda tree: json.dumps(tree).encode())


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES | st.binary(max_size=60), kind=st.sampled_from(["application/json", "application/yaml"]))
def test_whatever_is_asked_is_answered(
    lab: Lab, loop_of_its_own: asyncio.AbstractEventLoop, body: bytes, kind: str
) -> None:
    """Never a fault of the daemon's own, never a lab that is of no more use."""
    status, answer = loop_of_its_own.run_until_complete(
        lab.ask("POST", "/v1/diff", data=body, headers={"Content-Type": kind})
    )
    assert status in (200, 400, 415, 422), answer
    assert ("error" in answer) == (status != 200)


async def test_half_a_body_does_nothing(lab: Lab) -> None:
    before, seq = await lab.tables(), (await lab.get("/v1/status"))["seq"]
    await lab.send_apply(10)
    await asyncio.sleep(0.5)
    assert await lab.tables() == before
    assert (await lab.get("/v1/status"))["seq"] == seq


async def test_a_connection_that_ends_takes_its_change_with_it(lab: Lab) -> None:
    """A swap that has begun goes back: the switches hold a plan, all of it and nothing else."""
    before = await lab.tables()
    async with lab.session() as session, session.ws_connect("/v1/events") as events:
        connection = await lab.send_apply()
        await until(events, "swap", "stage")
        assert await lab.tables() != before
        connection.close()
        assert (await until(events, "work", "cancelled"))["what"] == "apply"
    assert await lab.tables() == before
    planned = (await lab.get("/v1/plan"))["plan"]["flows"]
    assert sum(len(table["entries"]) for table in before.values()) == len(planned)


async def until(events: aiohttp.ClientWebSocketResponse, kind: str, state: str) -> dict[str, Any]:
    """The next event of that type and state."""
    while True:
        event = await asyncio.wait_for(events.receive_json(), 60)
        if (event["type"], event.get("state")) == (kind, state):
            return event


async def test_events_tell_of_a_change_as_it_is_made_and_afterwards(lab: Lab) -> None:
    """A latency changed, by WebSocket with samples; then the same events, asked for by number."""
    async with lab.session() as session, session.ws_connect("/v1/events?samples=true") as events:
        hello = await events.receive_json()
        status, answer = await lab.ask("PUT", "/v1/latencies/w3", json={"rtt": "200 ms"})
        assert status == 200, answer
        seen: list[dict[str, Any]] = []
        while not (seen and seen[-1]["type"] == "work" and seen[-1]["state"] == "end"):
            seen.append(await asyncio.wait_for(events.receive_json(), 60))
    numbered = [event for event in seen if "seq" in event]
    assert [event["seq"] for event in numbered] == [hello["seq"] + 1 + index for index in range(len(numbered))]
    assert {"work", "swap", "applied"} <= {event["type"] for event in numbered}
    boxes = [event for event in seen if event["type"] == "counters" and event["box"] == "sat"]
    gaps = [(late["t_ns"] - early["t_ns"]) / 1e6 for early, late in itertools.pairwise(boxes)]
    assert 50 < sorted(gaps)[len(gaps) // 2] < 500, "every 100 ms, as far as the machine keeps up"
    async with lab.session() as session:
        address = f"/v1/events?after={hello['seq']}&follow=false"
        async with session.get(address) as response:
            again = [json.loads(line) async for line in response.content]
    assert again[1 : 1 + len(numbered)] == numbered
    latency = await lab.get("/v1/latencies/w3")
    assert latency == {"server": "w3", "class": "rtt-200", "rtt_ns": 200_000_000}


async def test_a_run_goes_on_by_itself_and_tells_how_it_ended(lab: Lab) -> None:
    """Started, watched and looked up over TCP; its directory is where `atoll up` was called."""
    parameters = "set=duration=2+s&set=transfer.start=1+s&analyse=false"
    status, run = await lab.ask("POST", f"/v1/runs?{parameters}", json={"chain": ["tap-w", "sat", "tap-i"]})
    assert status == 202, run
    steps: list[str] = []
    async with lab.session() as session, session.ws_connect("/v1/events?last=0") as events:
        while True:
            event = await asyncio.wait_for(events.receive_json(), 60)
            steps += [event["step"]] if event["type"] == "step" else []
            if event["type"] == "work" and event["what"] == "run" and event["state"] != "begin":
                break
    record = await lab.get(f"/v1/runs/{run['id']}")
    assert (record["state"], record["error"]) in (("completed", None), ("failed", record["error"]))
    assert Path(record["run_dir"]).is_relative_to(lab.sandbox.directory / "runs")
    if record["state"] == "completed":  # a machine too busy to hold the link to its settings says so, and fails it
        assert "measure" in steps
        assert record["live"]["elapsed_s"] > 0


async def test_the_token_is_in_no_process_no_log_and_no_answer(lab: Lab) -> None:
    """Given by the environment, it is the daemon's, and nobody's who was started by it."""
    token = "a-token-of-the-environment"
    up = f"ATOLL_TOKEN={token} atoll up examples/geo.yaml --listen 8090 --json"
    try:
        reply = json.loads(in_shell(lab.sandbox, up))
        assert reply["url"] == "http://127.0.0.1:8090"
        assert (await lab.ask("GET", "/v1/status"))[0] == 401, "the token before is not the token any more"
        look = f"cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline {lab.sandbox.directory}/.local/state/atoll_daemon.log"
        assert token not in in_shell(lab.sandbox, f"({look}) 2>&1 | tr '\\0' '\\n' | grep -v 'grep\\|^cat' || true")
    finally:
        in_shell(lab.sandbox, f"atoll up examples/geo.yaml --listen {PORT}")
    status = await lab.get("/v1/status")
    assert status["listens"] == ["http://127.0.0.1:8080", "http://127.0.0.1:8090"]
    assert lab.token not in json.dumps([status, await lab.get("/v1/lab")])


def test_a_port_that_is_taken_is_one_clear_line(lab: Lab) -> None:
    listen = (
        "import socket,time; s=socket.create_server(('127.0.0.1', 8099)); print('ready', flush=True); time.sleep(60)"
    )
    with running(lab.sandbox, "-c", listen):
        done = lab.sandbox.run(ATOLL, "up", ROOT / "examples" / "geo.yaml", "--listen", "8099")
    assert done.returncode == 1
    assert done.stderr == (
        "--listen 127.0.0.1:8099: the port is in use by another program; "
        "choose another one with --listen (0: any free port)\n"
    )


@pytest.fixture(autouse=True)
async def nothing_is_left_undone(lab: Lab) -> AsyncIterator[None]:
    """After each test the lab is idle and whole."""
    yield
    status = await lab.get("/v1/status")
    assert status["busy"] is None
    assert status["lab"]["failed"] is None
