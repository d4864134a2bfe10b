# SPDX-License-Identifier: Apache-2.0
"""FAUCET: entries are rules of an ACL on the ingress port; its configuration file is the intent."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from atoll_core.errors import LabError
from controllerbench.entries import DPID, FROM, TAP, TRUNK, Pair
from controllerbench.installer import Installer

_TIMEOUT_S = 180.0
_ACL_TABLE = 0  # FAUCET's port_acl
_LOOK_EVERY_S = 0.02
_SETTLED_S = 2.0  # after its first entry, it has sent all that a port without rules needs


class Faucet(Installer):
    """Write faucet.yaml, SIGHUP, and count the entries of the ACL table until all are there."""

    name = "FAUCET"
    checks = "entries of its ACL table counted; nothing read back"

    def start(self) -> None:
        super().start()
        program = Path(os.environ.get("FAUCET_BIN", "")) / "faucet"
        if not os.access(program, os.X_OK):
            raise LabError("no FAUCET here")
        self._directory = Path(tempfile.mkdtemp(prefix="faucet-", dir="/run"))
        self._configuration = self._directory / "faucet.yaml"
        self._write([])
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        environment = {
            **os.environ,
            "FAUCET_CONFIG": str(self._configuration),
            "FAUCET_LOG": str(self._directory / "faucet.log"),
            "FAUCET_EXCEPTION_LOG": str(self._directory / "exceptions.log"),
            "FAUCET_PROMETHEUS_ADDR": "127.0.0.1",
            "PATH": f"{program.parent}:{os.environ['PATH']}",  # it starts osken-manager
            "PYTHONPATH": "",
        }
        argv = [str(program), "--ryu-ofp-listen-host=127.0.0.1", f"--ryu-ofp-tcp-listen-port={port}"]
        self._process = subprocess.Popen(
            argv, env=environment, stdout=subprocess.DEVNULL, stderr=(self._directory / "stderr.log").open("wb")
        )
        self._until(lambda: _listens(port))  # it takes its time, and the switch would wait longer after each refusal
        self.bench.connect(port)
        self._until(lambda: self.bench.count() > 0)
        time.sleep(_SETTLED_S)
        self._idle = self.bench.count(_ACL_TABLE)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        super().stop()

    def empty(self) -> None:
        self._load([])
        self._until(lambda: self.bench.count(_ACL_TABLE) == self._idle)

    def install(self, plan: Sequence[Pair]) -> None:
        self._load(plan)
        self._until(lambda: self.bench.count(_ACL_TABLE) == self._idle + len(plan))

    def change(self, old: Sequence[Pair], new: Sequence[Pair]) -> None:
        """Their number stays: that the new one is there is for the data plane to show."""
        del old
        self._load(new)

    def _load(self, plan: Sequence[Pair]) -> None:
        self._write(plan)
        self._process.send_signal(signal.SIGHUP)

    def _write(self, plan: Sequence[Pair]) -> None:
        rules = "".join(
            f"  - rule: {{dl_type: 0x800, ipv4_src: {pair.source}, ipv4_dst: {pair.destination}, "
            f"actions: {{output: [{{port: {TAP}}}, {{vlan_vid: {pair.vlan}}}, {{port: {TRUNK}}}]}}}}\n"
            for pair in plan
        )
        last = "  - rule: {actions: {allow: 0}}\n"
        ports = "".join(f"      {port}: {{native_vlan: 4000}}\n" for port in (TRUNK, TAP))
        text = (
            "vlans:\n  all: {vid: 4000}\n"
            f"acls:\n  bench:\n{rules}{last}"
            f'dps:\n  sw:\n    dp_id: {DPID}\n    hardware: "Open vSwitch"\n    interfaces:\n'
            f"      {FROM}: {{native_vlan: 4000, acls_in: [bench]}}\n{ports}"
        )
        written = self._configuration.with_suffix(".new")
        written.write_text(text)
        written.rename(self._configuration)

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not done():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise LabError(f"not done within {_TIMEOUT_S:g} s")
            time.sleep(_LOOK_EVERY_S)


def _listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0
