# SPDX-License-Identifier: Apache-2.0
"""The daemon's handle on an emulated lab: start it, run commands in it, notice its end, stop it."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import select
import signal
import sys
from collections import deque
from typing import Any

from atoll_core.codec import to_json
from atoll_core.errors import LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Progress
from atoll_core.lab.network import Network
from atoll_core.secret_variables import without_secrets
from atoll_emulation.mininet_lab.namespaces import nsenter_argv, unshare_argv
from atoll_emulation.this_machine.host_requirements import require_machine
from atoll_emulation.this_machine.packet_sockets import PacketSocketCounters

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 10.0
_LONGEST_LINE_BYTES = 1 << 22  # a network of a thousand machines in one line


class LabShell:
    """A session of Mininet's command line on the lab, interactive or of a script; ``read`` it until ``b""``."""

    def __init__(self, lab: "EmulatedLab", name: str) -> None:
        self._lab = lab
        self._name = name
        self._output: asyncio.Queue[bytes] = asyncio.Queue()
        self.refusal: str | None = None  # why there was no session, or why it ended before its time
        self._ended = False

    async def read(self) -> bytes:
        """The next bytes for the user's terminal; empty at the end of the session."""
        data = await self._output.get()
        if not data:
            self._output.put_nowait(b"")  # the end stays the end
        return data

    async def write(self, keys: bytes) -> None:
        """Send keys that the user typed."""
        await self._lab.request(op="shell-input", id=self._name, data=base64.b64encode(keys).decode())

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the session's terminal."""
        await self._lab.request(op="shell-resize", id=self._name, columns=columns, rows=rows)

    async def close(self) -> None:
        """End the session, if it has not ended yet; its command in the foreground is interrupted."""
        if not self._ended:
            await self._lab.request(op="shell-close", id=self._name)

    def on_message(self, message: dict[str, Any]) -> None:
        """Process a message of the lab for this session."""
        if message["type"] == "shell-output":
            self._output.put_nowait(base64.b64decode(message["data"]))
        else:
            self.refusal = message.get("message")
            self._ended = True
            self._output.put_nowait(b"")


class EmulatedLab:
    """A running lab. Build it with :meth:`begin` and :meth:`complete`.

    It ends with :meth:`stop`, with this process, or by itself.
    """

    def __init__(self, process: asyncio.subprocess.Process, events: EventBus) -> None:
        self.hosts: dict[str, int] = {}  # machine: pid inside the lab
        self.datapath = ""
        self.ovs_version = ""
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()  # why the lab ended, whenever and however it did
        self._entered: asyncio.Future[None] = loop.create_future()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._process = process
        self._events = events
        self._init_pid = 0
        self._init_pidfd: int | None = None
        self._shells: dict[str, LabShell] = {}
        self._shell_names = (f"s{number}" for number in itertools.count(1))
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._request_names = (f"q{number}" for number in itertools.count(1))
        self._stderr: deque[str] = deque(maxlen=20)
        self._reason: str | None = None
        self._watcher = asyncio.create_task(self._watch_process())

    @classmethod
    async def begin(cls, network: Network, events: EventBus) -> "EmulatedLab":
        """Make the namespaces of a lab; it can be entered then, and builds itself meanwhile except for its switches.

        A controller that is started now listens before the switches connect: Open vSwitch repeats a refused connection
        a second later at the earliest. Raises MachineError if a requirement is missing, LabError if the namespaces
        cannot be made; nothing is left behind then.
        """
        await asyncio.to_thread(require_machine)
        events.publish(Progress("namespaces"))
        process = await asyncio.create_subprocess_exec(
            *unshare_argv(),
            *(sys.executable, "-m", "atoll_emulation.mininet_lab.ns_init"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE_BYTES,
            start_new_session=True,  # Ctrl-C is the daemon's to answer
            env=without_secrets(os.environ),
        )
        lab = cls(process, events)
        try:
            await lab.request(network=to_json(network))
            await lab._wait_for_stage(lab._entered)
        except BaseException:
            await lab.stop()
            raise
        return lab

    async def complete(self) -> None:
        """Start the switches; return when the lab is up. Raises LabError if it ends before, or is not up in time."""
        await self.request(op="start-switches")
        await self._wait_for_stage(self._ready)

    async def _wait_for_stage(self, stage: "asyncio.Future[None]") -> None:
        await asyncio.wait({stage, self.ended}, timeout=_START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if self.ended.done():
            raise LabError(self.ended.result())
        if not stage.done():
            raise LabError(f"the lab was not up within {_START_TIMEOUT_S:g} s")

    @property
    def failure(self) -> str | None:
        """The reason for which the lab has failed to come up, or was ended; programs inside it end with it."""
        return self._reason

    def enter(self) -> list[str]:
        """Return the command prefix that runs another command inside the lab, on the same standard streams.

        The command starts in ``/``. It dies with the lab.
        """
        return nsenter_argv(self._init_pid)

    async def open_shell(self, columns: int = 80, rows: int = 24) -> LabShell:
        """Open Mininet's command line for somebody at a terminal of this size.

        The lab has one shell at a time, scripts included (``refusal`` says so at the end of reading).
        """
        return await self._shell(columns=columns, rows=rows)

    async def run_script(self, text: str) -> LabShell:
        """Run lines of text by Mininet's command line; the session ends after the last one and reads no input."""
        return await self._shell(script=text)

    async def _shell(self, **fields: Any) -> LabShell:
        name = next(self._shell_names)
        shell = LabShell(self, name)
        if self.ended.done():
            shell.on_message({"type": "shell-closed", "message": _end_message(self.ended.result())})
            return shell
        self._shells[name] = shell
        await self.request(op="shell", id=name, **fields)
        return shell

    async def command_twin(self, switch: str, *words: str) -> None:
        """Let the twin of a switch ``reboot``, or ``disconnect`` for a number of seconds. Raises LabError."""
        await self._request_answer(op="twin", switch=switch, words=list(words))

    async def packet_sockets(self) -> dict[str, PacketSocketCounters]:
        """The sockets through which Open vSwitch reads its ports, by interface; none with the kernel's datapath.

        Raises LabError where they are not known.
        """
        if self.datapath == "kernel":
            return {}
        sockets = (await self._request_answer(op="packet-sockets"))["sockets"]
        return {interface: PacketSocketCounters(**counters) for interface, counters in sockets.items()}

    async def network_state(self) -> dict[str, Any]:
        """Interfaces, queueing disciplines, routes and neighbours of each host and box, as the kernel has them.

        Raises LabError where they are not known.
        """
        return (await self._request_answer(op="network-state"))["hosts"]

    async def _request_answer(self, **request: Any) -> dict[str, Any]:
        """The lab's answer to a request. Raises LabError if there is none, or the request could not be carried out."""
        name = next(self._request_names)
        answer = self._answers[name] = asyncio.get_running_loop().create_future()
        try:
            await self.request(id=name, **request)
            await asyncio.wait({answer, self.ended}, timeout=_ANSWER_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._answers[name]
        if not answer.done():
            raise LabError(self.ended.result() if self.ended.done() else "the lab does not answer")
        if not answer.result().get("ok", True):
            raise LabError(answer.result()["error"])
        return answer.result()

    async def request(self, **message: Any) -> None:
        """Send one line to the lab's first process. Does nothing when the lab has ended (see ``ended``)."""
        stream = self._process.stdin
        if stream is None or stream.is_closing():
            return
        with contextlib.suppress(ConnectionError):
            stream.write(json.dumps(message).encode() + b"\n")
            await stream.drain()

    async def stop(self) -> None:
        """End the lab and return when its last process has ended. May be called twice."""
        self._reason = self._reason or "it was stopped"
        if self._process.stdin is not None:
            self._process.stdin.close()
        done, _ = await asyncio.wait({self._watcher}, timeout=_STOP_TIMEOUT_S)
        if not done:
            self._process.kill()
            await self._watcher

    async def _watch_process(self) -> None:
        try:
            await asyncio.gather(self._read_messages(), self._read_stderr())
        except (KeyError, ValueError) as error:
            self._reason = f"the lab process sent an invalid message: {error!r}"
            self._process.kill()
        code = await self._process.wait()
        if self._init_pidfd is not None:  # when unshare was killed, the rest follows it a moment later
            await asyncio.to_thread(_wait_for_end, self._init_pidfd)
            os.close(self._init_pidfd)
        if self._reason is None:
            # When its child was killed, unshare tries to die the same way, fails, and complains (util-linux 2.38).
            last_line = [line for line in self._stderr if "sigprocmask" not in line][-1:]
            signal_text = f" ({signal.Signals(-code).name})" if code < 0 else ""
            self._reason = ": ".join([f"the lab ended unexpectedly{signal_text}", *last_line])
        for shell in self._shells.values():
            shell.on_message({"type": "shell-closed", "message": _end_message(self._reason)})
        self.ended.set_result(self._reason)

    async def _read_messages(self) -> None:
        stream = self._process.stdout
        while stream is not None and (line := await stream.readline()):
            message = json.loads(line)
            match message["type"]:
                case "progress":
                    self._events.publish(Progress(message["text"]))
                case "namespaces":
                    self._init_pid = message["pid"]
                    self._init_pidfd = os.pidfd_open(self._init_pid)
                    self._entered.set_result(None)
                case "ready":
                    self.hosts = message["hosts"]
                    self.datapath, self.ovs_version = message["datapath"], message["ovs"]
                    self._ready.set_result(None)
                case "failed":
                    self._reason = self._reason or message["message"]
                case "packet-sockets" | "network-state" | "twin":
                    if (answer := self._answers.get(message["id"])) is not None:  # or nobody waits any longer
                        answer.set_result(message)
                case "shell":  # not understood
                    self._shells.pop(message["id"]).on_message({"type": "shell-closed", "message": message["error"]})
                case "shell-input" | "shell-resize" | "shell-close":
                    pass  # not understood: the session has ended
                case "shell-output":
                    self._shells[message["id"]].on_message(message)
                case "shell-closed":
                    self._shells.pop(message["id"]).on_message(message)
                case kind:
                    self._stderr.append(f"unknown message {kind!r}")

    async def _read_stderr(self) -> None:
        stream = self._process.stderr
        while stream is not None and (line := await stream.readline()):
            self._stderr.append(line.decode(errors="replace").rstrip())


def _end_message(reason: str) -> str:
    return f"the shell ended with the lab: {reason}"


def _wait_for_end(pidfd: int) -> None:
    select.select([pidfd], [], [], _STOP_TIMEOUT_S)
