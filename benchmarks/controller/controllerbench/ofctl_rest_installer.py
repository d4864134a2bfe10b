# SPDX-License-Identifier: Apache-2.0
"""Ryu's own REST interface, ryu.app.ofctl_rest: one request an entry, the whole table asked for in the end."""

import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from atoll_controller.openflow.controller_client import interpreter
from atoll_core.errors import LabError
from atoll_core.plan.switch_features import Runtime
from controllerbench.entries import DPID, FROM, TAP, TRUNK, Pair
from controllerbench.installer import Installer

_START_TIMEOUT_S = 30.0
_VERIFY_TIMEOUT_S = 60.0

# Ryu 4.34 imports a name that eventlet dropped in 0.31.
_LAUNCH = """
import sys, warnings
warnings.simplefilter("ignore")
import eventlet.wsgi
eventlet.wsgi.ALREADY_HANDLED = object()
from ryu.cmd.manager import main
sys.exit(main(args=sys.argv[1:]))
"""


class OfctlRest(Installer):
    """``POST /stats/flowentry/add`` for each entry, ``GET /stats/flow`` until all are there."""

    name = "Ryu ofctl_rest"
    checks = "every entry read back, counted by cookie; no barrier"

    def start(self) -> None:
        super().start()
        openflow, rest = _free_port(), _free_port()
        argv = [interpreter(Runtime.RYU), "-c", _LAUNCH, "ryu.app.ofctl_rest", "--ofp-listen-host", "127.0.0.1"]
        argv += ["--ofp-tcp-listen-port", str(openflow), "--wsapi-host", "127.0.0.1", "--wsapi-port", str(rest)]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
        self.bench.connect(openflow)
        self._rest = http.client.HTTPConnection("127.0.0.1", rest, timeout=60)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._ready():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self._process.kill()
                raise LabError("Ryu's ofctl_rest does not answer")
            time.sleep(0.1)

    def stop(self) -> None:
        super().stop()
        self._process.kill()
        self._process.wait()

    def install(self, plan: Sequence[Pair]) -> None:
        for pair in plan:
            self._ask("POST", "/stats/flowentry/add", _flow(pair))
        self._verify(plan)

    def change(self, old: Sequence[Pair], new: Sequence[Pair]) -> None:
        """It keeps no plan: its user knows which entry is another one now."""
        for before, after in zip(old, new, strict=True):
            if before != after:
                self._ask("POST", "/stats/flowentry/modify_strict", _flow(after))
        self._verify(new)

    def _verify(self, plan: Sequence[Pair]) -> None:
        wanted = {pair.cookie for pair in plan}
        deadline = time.monotonic() + _VERIFY_TIMEOUT_S
        while True:
            flows = self._ask("GET", f"/stats/flow/{DPID}", None)
            if {flow["cookie"] for flow in flows.get(str(DPID), [])} == wanted:
                return
            if time.monotonic() > deadline:
                raise LabError("ofctl_rest does not show the whole table")

    def _ready(self) -> bool:
        try:
            return DPID in self._ask("GET", "/stats/switches", None)
        except (OSError, http.client.HTTPException):
            self._rest.close()
            return False

    def _ask(self, method: str, path: str, body: Any) -> Any:
        self._rest.request(method, path, None if body is None else json.dumps(body))
        answer = self._rest.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise LabError(f"ofctl_rest answers {answer.status} to {path}")
        return json.loads(text) if text else {}


def _flow(pair: Pair) -> dict[str, Any]:
    return {
        "dpid": DPID,
        "cookie": pair.cookie,
        "priority": 1000,
        "match": {
            "in_port": FROM,
            "vlan_vid": "0x0000",
            "eth_type": 0x0800,
            "ipv4_src": str(pair.source),
            "ipv4_dst": str(pair.destination),
        },
        "actions": [
            {"type": "OUTPUT", "port": TAP},
            {"type": "PUSH_VLAN", "ethertype": 0x8100},
            {"type": "SET_FIELD", "field": "vlan_vid", "value": 0x1000 | pair.vlan},
            {"type": "OUTPUT", "port": TRUNK},
        ],
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
