# SPDX-License-Identifier: Apache-2.0
"""Serve requests of the controller's protocol (docs/contracts.md): in order for each switch, switches in parallel."""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

from atoll_controller.openflow.switch_session import SwitchError, SwitchSession
from atoll_core.codec import from_json, to_json
from atoll_core.errors import plain
from atoll_core.openflow_wire import encoder
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry
from atoll_core.plan.switch_features import UnmanagedState

_FindSwitch = Callable[[int], SwitchSession | None]
_REQUEST_ERRORS = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""What reading a request raises that is not of the shape of its operation."""


class RequestServer:
    """Serves request lines; ``find_switch`` returns the connected switch of a datapath id."""

    def __init__(self, find_switch: _FindSwitch) -> None:
        self._find_switch = find_switch
        self._workers: dict[int, queue.Queue[dict[str, Any]]] = {}

    def enqueue(self, line: bytes) -> None:
        """Queue the request of one line for its switch; an unreadable one is answered at once."""
        request: Any = None
        try:
            request = json.loads(line)
            dpid, _ = int(request["dpid"]), request["id"]
        except _REQUEST_ERRORS as error:
            write_line(_invalid_request(request, error))
            return
        if dpid not in self._workers:
            self._workers[dpid] = queue.Queue()
            arguments = (self._workers[dpid],)
            threading.Thread(target=self._serve, args=arguments, name=f"switch-{dpid}", daemon=True).start()
        self._workers[dpid].put(request)

    def _serve(self, requests: "queue.Queue[dict[str, Any]]") -> None:
        while True:
            request = requests.get()
            try:
                write_line({"type": "answer", "id": request["id"], "ok": True, **self._answer(request)})
            except SwitchError as error:
                write_line(_failure(request, str(error)))
            except encoder.MalformedError as error:
                write_line(_failure(request, f"switch {request['dpid']} sent a malformed answer: {error}"))
            except _REQUEST_ERRORS as error:
                write_line(_invalid_request(request, error))
            except Exception as error:  # noqa: BLE001 - one answer fails, and not the thread that serves the switch
                write_line(_failure(request, f"internal error: {type(error).__name__}: {error}"))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        table = int(request.get("table", 0))

        def switch() -> SwitchSession:
            dpid = int(request["dpid"])
            if (session := self._find_switch(dpid)) is None:
                raise SwitchError(f"switch {dpid} is not connected")
            return session

        match request["op"]:
            case "read":
                digest, entries = switch().read(table, request.get("known"))
                if entries is None:
                    return {"digest": digest}
                return {
                    "digest": digest,
                    "entries": [to_json(entry) for entry in entries if isinstance(entry, FlowEntry)],
                    "foreign": [to_json(entry) for entry in entries if isinstance(entry, UnmanagedEntry)],
                }
            case "change":
                delete = [from_json(FlowEntry, entry) for entry in request.get("delete", [])]
                unmanaged = [from_json(UnmanagedEntry, entry) for entry in request.get("foreign", [])]
                add = [from_json(FlowEntry, entry) for entry in request.get("add", [])]
                request_id = request["id"]

                def report(done: int) -> None:
                    write_line({"type": "progress", "id": request_id, "done": done})

                return {"barriers": switch().change([*unmanaged, *delete], add, table, report)}
            case "send":
                frames = [
                    (from_json(FlowEntry, item["entry"]), bytes.fromhex(item["frame"])) for item in request["frames"]
                ]
                return {"refused": switch().send(frames)}
            case "packets":
                return {"packets": switch().packets([from_json(FlowEntry, item) for item in request["entries"]], table)}
            case "count":
                return {"count": switch().count(table)}
            case "leftovers":
                return {"leftovers": to_json(switch().leftovers())}
            case "clear":
                return {"barriers": switch().clear(from_json(UnmanagedState, request["leftovers"]))}
            case "features":
                return {"features": to_json(switch().features())}
            case "counters":
                return switch().counters(table)
            case _:
                raise ValueError("unknown operation")


def _failure(request: Any, error: str) -> dict[str, Any]:
    fields = cast("dict[str, Any]", request) if isinstance(request, dict) else {}
    return {"type": "answer", "id": fields.get("id"), "ok": False, "error": plain(error)}


def _invalid_request(request: Any, error: Exception) -> dict[str, Any]:
    reason = f"{type(error).__name__}: {error}"
    if not isinstance(request, dict) or "op" not in request:
        return _failure(request, f"not a request: {reason}")
    return _failure(request, f"request `{request['op']}` is not understood: {reason}")


_lock = threading.Lock()


def write_line(message: dict[str, Any]) -> None:
    """Write one line. The process ends when its reader has closed the pipe."""
    line = json.dumps(message, separators=(",", ":")) + "\n"
    with _lock:
        try:
            sys.stdout.write(line)
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)
