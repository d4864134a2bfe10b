# SPDX-License-Identifier: Apache-2.0
"""The programs that take requests, and requests that they do not understand."""

import itertools
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from atoll_hosts.binary import find_binary
from tests.support.sandbox import ROOT, Sandbox

_ANSWER_S = 60.0
Message = dict[str, Any]

_WAY = {"rate_bit_s": 16_000_000, "delay_ns": 1_000_000, "jitter_ns": 0, "queue_bytes": 100_000}
_LATER = 4_000_000_000_000_000_000  # a start in the year 2096


def _example(topic: str, number: int = 0) -> Message:
    lines = (ROOT / "tests" / "data" / "contract" / f"{topic}.jsonl").read_text().splitlines()
    return [json.loads(line)["message"] for line in lines if json.loads(line)["from"] == "keeper"][number]


def _configurations(directory: Path) -> dict[str, tuple[str, Message]]:
    """Subcommand and configuration of each program that waits for requests on these interfaces."""
    udp = {"role": "receive", "listen": "127.0.0.1:5301", "each": False}
    filters = [
        "qdisc add dev tc-t clsact",
        "filter add dev tc-t ingress protocol all prio 1 matchall action drop",
        "qdisc add dev tc-t root handle 1: htb",
    ]
    tc = {
        "mtu": 1500,
        "interfaces": ["tc-t"],
        "setup": {"ip": [], "tc": filters},
        "undo": {"ip": [], "tc": []},
        "expect": [],
        "delay": {
            "classes": {"101": {"dev": "tc-t", "handle": "1:"}},
            "unknown": {"dev": "tc-t", "parent": "ffff:fff2", "pref": 1},
        },
    }
    return {
        "link": ("link", _example("link") | {"to_island": _WAY, "to_world": _WAY}),
        "delay": ("delay", _example("delay")),
        "tc": ("tc", tc),
        "pep": ("pep", _example("pep")),
        "coder": ("coder", _example("coder")),
        "serve": ("serve", _example("serve") | {"listen": "127.0.0.1:5001"}),
        "load": ("load", _example("load") | {"flow_log": str(directory / "flows.csv"), "start_at_ns": _LATER}),
        "transfer-send": ("transfer", _example("transfer") | {"listen": "127.0.0.1:5201"}),
        "transfer-receive": ("transfer", _example("transfer", 1) | {"start_at_ns": _LATER}),
        "udp-send": ("udp", _example("udp") | {"connect": "127.0.0.1:5301", "start_at_ns": _LATER}),
        "udp-receive": ("udp", udp),
        "ping": ("ping", _example("ping") | {"start_at_ns": _LATER}),
        "probe": ("probe", _example("probe", 1) | {"promiscuous": []}),
        "capture": ("capture", _example("capture") | {"file": str(directory / "capture.pcap")}),
    }


_REQUESTS: dict[str, list[Message]] = {
    "link": [{"op": "mark"}, {"op": "set", "to_island": _WAY, "counts": "ip"}, {"op": "trace-start"}],
    "delay": [{"op": "mark"}, {"op": "set", "vlan": 101, "delay_ns": 1_000_000}],
    "tc": [{"op": "mark"}, {"op": "set", "tc": [], "expect": [], "link": {}}, {"op": "trace-start"}],
    "pep": [
        {"op": "mark"},
        {"op": "set", "mode": "early", "silence_ns": 60_000_000_000, "pending_max": 100},
        {"op": "reset", "pair": 0},
        {"op": "connections", "limit": 9},
    ],
    "agent": [
        {"op": "stop", "job": "serve-w1", "signal": "TERM", "grace_ns": 1},
        {"op": "input", "job": "serve-w1", "text": "{}\n"},
        {"op": "start", "job": "no", "argv": ["/no-such-program"], "limits": {"nice": 1}},
        {"op": "unset", "host": "w1"},
        {"op": "read", "netns": None, "sysctls": ["net.ipv4.tcp_rmem"], "interfaces": []},
        {"op": "sample", "hosts": []},
        {"op": "clock"},
    ],
    "lab init": [
        {"op": "packet-sockets"},
        {"op": "network-state"},
        {"op": "twin", "switch": "s1", "words": ["lag", "0"]},
        {"op": "shell", "columns": 80, "rows": 24},
        {"op": "shell", "script": "py 6 * 7\n"},
        {"op": "shell-input", "data": "ZXhpdAo="},
    ],
    "controller": [
        {"op": "read", "dpid": 1, "table": 0, "known": ""},
        {"op": "change", "dpid": 1, "table": 0, "delete": [], "foreign": [], "add": []},
        {"op": "send", "dpid": 1, "frames": []},
        {"op": "clear", "dpid": 1, "leftovers": {"groups": [7], "meters": []}},
    ],
}
PROGRAMS = (*_configurations(Path()), "agent", "controller")
_JUNK = st.recursive(
    st.sampled_from([None, True, -1, 0, 1.5, 2**63, 2**70, 1e300, "", "x", "to_island", "\u2028\n"]),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=4,
)


@st.composite
def mistaken(draw: st.DrawFn, program: str) -> Message:
    """A request of the program with some fields missing, of another type, or too many; or of another program."""
    request = dict(draw(st.sampled_from(_REQUESTS.get(program, [{"op": "mark"}]))))
    for _ in range(draw(st.integers(0, 3))):
        key = draw(st.sampled_from([*request, "surprise"]))
        if key != "op" and draw(st.booleans()):
            request.pop(key, None)
        else:
            request[key] = draw(_JUNK)
    if draw(st.booleans()):
        request["op"] = draw(st.sampled_from(["mark", "set", "trace-start", "jump", ""]))
    return request


class Program:
    """A running program of the contract."""

    def __init__(self, argv: list[str], config: Message | None) -> None:
        self._ids = itertools.count(1)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe)
        self._lines = self._messages()
        if config is not None:
            self._write(config)
        first = next(self._lines, None)
        assert first is not None, self.end()
        assert first["type"] in ("ready", "hello")

    def ask(self, request: Message, form: Any) -> Message:
        """The answer to a request, whose id has one of the forms that JSON allows."""
        number = next(self._ids)
        forms = {"number": number, "text": f"q{number}", "negative": -number, "half": number + 0.5, "list": [number]}
        asked = request | {"id": forms[form]}
        self._write(asked)
        deadline = time.monotonic() + _ANSWER_S
        while time.monotonic() < deadline and (message := next(self._lines, None)) is not None:
            if message.get("id") == asked["id"] and message["type"] != "progress":
                return message
        raise AssertionError(f"no answer to {asked}; exit status {self._process.poll()}")

    def end(self) -> str:
        """End it; what it printed on standard error."""
        self._process.kill()
        return self._process.communicate()[1].decode()

    def _write(self, message: Message) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _messages(self) -> Iterator[Message]:
        """Lines of its standard output, until it ends or prints none for a while."""
        assert self._process.stdout is not None
        stream, text = self._process.stdout, b""
        while select.select([stream], [], [], _ANSWER_S)[0] and (data := os.read(stream.fileno(), 1 << 16)):
            *lines, text = (text + data).split(b"\n")
            yield from (json.loads(line) for line in lines)


@contextmanager
def sandbox_with_interfaces(directory: Path) -> Generator[Sandbox]:
    """Namespaces with the interfaces of the contract's examples."""
    names = ["sat-w", "sat-i", "delay-t", "tc-t", "pep-w-w", "pep-w-i", "coder-w-w", "coder-w-i", "cap-w-tap-w"]
    macs = {"coder-w-w": "02:00:00:00:01:01", "coder-w-i": "02:00:00:00:01:02"}
    setup = [
        f"ip link add {name} mtu 1544 {f'address {macs[name]}' if name in macs else ''} type veth peer name p{number}"
        f" && ethtool -K {name} tso off gso off gro off tx off > /dev/null"
        f" && ip link set {name} up && ip link set p{number} up"
        for number, name in enumerate(names)
    ]
    with Sandbox(directory, setup=" && ".join(setup)) as sandbox:
        yield sandbox


@contextmanager
def running(name: str, sandbox: Sandbox) -> Generator[Program]:
    """A program in the sandbox, while the block lasts."""
    argv: list[str | Path] = [find_binary(), name]
    config = None
    if name == "controller":
        argv = [sys.executable, "-m", "atoll_controller.openflow", "--listen", "127.0.0.1:0"]
    elif name != "agent":
        subcommand, config = _configurations(sandbox.directory)[name]
        argv = [find_binary(), subcommand]
    program = Program(sandbox.command(argv), config)
    try:
        yield program
    finally:
        program.end()


def check_answer(name: str, program: Program, data: st.DataObject) -> None:
    """Draw a request, and check its answer."""
    request = data.draw(mistaken(name))
    answer = program.ask(request, data.draw(st.sampled_from(["number", "text", "negative", "half", "list"])))
    kind = request["op"] if isinstance(request["op"], str) else answer["type"]
    assert answer["type"] == ("answer" if name in ("agent", "controller") else kind)
    if answer.get("ok") is False:
        assert answer["error"]
        assert "\n" not in answer["error"]
    else:
        assert any(request["op"] == known["op"] for known in _REQUESTS.get(name, [{"op": "mark"}]))
