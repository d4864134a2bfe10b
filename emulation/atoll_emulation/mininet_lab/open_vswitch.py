# SPDX-License-Identifier: Apache-2.0
"""An Open vSwitch of the lab's own: database and daemon as children, their files in a private directory.

Nothing here touches an Open vSwitch that already runs on the machine: the daemons live in the lab's namespaces and
every tool is pointed at them by its OVS_* environment variables.
"""

import json
import os
import re
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from atoll_core.errors import LabError

# Debian's default, so that tools work in the lab even without the environment. The lab's /run is its own.
DIRECTORY = Path("/run/openvswitch")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_ANSWER_TIMEOUT_S = 20.0

# Open vSwitch 3.1 counts processors at most every 10 s and takes the machine's start for the last time: a daemon that
# is started earlier has no thread for the kernel datapath's packets. Only a kernel made for the lab is so young.
_COUNTS_CPUS_AFTER_S = 10.5

# What the daemon does of its own accord, in virtual time a tenth of a run's cost: copy every port's counters to its
# database, where nobody reads them (by default each 5 s); count the datapath's packets for the flow entries (0.5 s).
_INTERVALS_MS = {"stats-update-interval": 2**31 - 1, "max-revalidator": 1000}

# Generic netlink: <linux/genetlink.h>, <linux/netlink.h>
_NETLINK_GENERIC = 16
_GENL_ID_CTRL = 16
_CTRL_CMD_GETFAMILY = 3
_CTRL_ATTR_FAMILY_NAME = 2
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2


def kernel_has_datapath() -> bool:
    """Return whether the kernel has Open vSwitch's datapath; loads its module if there is one."""
    name = b"ovs_datapath\0"
    attribute = struct.pack("HH", 4 + len(name), _CTRL_ATTR_FAMILY_NAME) + name + b"\0" * (-len(name) % 4)
    body = struct.pack("BBH", _CTRL_CMD_GETFAMILY, 1, 0) + attribute
    header = struct.pack("IHHII", 16 + len(body), _GENL_ID_CTRL, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC) as sock:
        sock.bind((0, 0))
        sock.send(header + body)
        message_type = struct.unpack_from("H", sock.recv(8192), 4)[0]
    return message_type != _NLMSG_ERROR


def version() -> str:
    """The installed Open vSwitch's version, such as "3.1.0"."""
    output = subprocess.run(["ovs-vswitchd", "--version"], capture_output=True, text=True, check=True).stdout
    number = re.search(r"\d+\.\d+(\.\d+)?", output)
    return number.group() if number else output.strip()


@dataclass(frozen=True, slots=True)
class OpenVSwitch:
    """The two running daemons."""

    database: subprocess.Popen[bytes]
    daemon: subprocess.Popen[bytes]

    @classmethod
    def start(cls) -> "OpenVSwitch":
        """Start both daemons as children; sets OVS_* in this process' environment. Raises LabError."""
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        for variable in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"):
            os.environ[variable] = str(DIRECTORY)
        _run("ovsdb-tool", "create", str(DIRECTORY / "conf.db"), str(SCHEMA))
        server_socket = DIRECTORY / "db.sock"
        database = _start("ovsdb-server", str(DIRECTORY / "conf.db"), f"--remote=punix:{server_socket}", "--no-chdir")
        _wait_for(server_socket, database)
        settings = [f"other_config:{name}={milliseconds}" for name, milliseconds in _INTERVALS_MS.items()]
        _run("ovs-vsctl", "--no-wait", "init", "--", "set", "Open_vSwitch", ".", *settings)
        time.sleep(max(0.0, _COUNTS_CPUS_AFTER_S - time.monotonic()))
        daemon = _start("ovs-vswitchd", f"unix:{server_socket}", "--no-chdir")
        return cls(database, daemon)

    def end_reason(self) -> str | None:
        """Describe which daemon ended, how, and its last line of output; None while both run."""
        for process in (self.database, self.daemon):
            code = process.poll()
            if code is not None:
                name = Path(cast("list[str]", process.args)[0]).name
                exit_text = f"signal {-code}" if code < 0 else f"exit code {code}"
                return f"{name} ended ({exit_text}): {_last_line(name)}"
        return None


def read_switch_state() -> tuple[dict[str, int], dict[str, str], dict[str, str]]:
    """Read the switches' state: the port numbers (-1: none) and errors of interfaces, the fail modes of bridges.

    Raises LabError.
    """
    tables = _run(
        "ovs-vsctl", "--format=json", "--columns=name,ofport,error", "list", "Interface",
        "--", "--columns=name,fail_mode", "list", "Bridge",
    )  # fmt: skip
    interfaces, bridges = (_rows(line) for line in tables.splitlines())
    return (
        {row["name"]: row["ofport"] if isinstance(row["ofport"], int) else -1 for row in interfaces},
        {row["name"]: row["error"] for row in interfaces if isinstance(row["error"], str)},
        {row["name"]: str(row["fail_mode"]) for row in bridges},
    )


def _rows(table: str) -> list[dict[str, Any]]:
    data = json.loads(table)
    return [dict(zip(data["headings"], row, strict=True)) for row in data["data"]]


def _start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a process as a child, not as a daemon: it ends with its parent, which notices its end."""
    log = ["-vconsole:off", "--log-file", f"--pidfile={DIRECTORY / program}.pid"]
    return subprocess.Popen([program, *arguments, *log], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _run(*argv: str) -> str:
    try:
        result = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_ANSWER_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        log = f"ovs-vswitchd's log ends with: {_last_line('ovs-vswitchd')}"
        raise LabError(f"{argv[0]} did not answer within {_ANSWER_TIMEOUT_S:g} s; {log}") from None
    if result.returncode != 0:
        raise LabError(f"{' '.join(argv[:2])} failed: {result.stderr.strip() or f'exit code {result.returncode}'}")
    return result.stdout


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _ANSWER_TIMEOUT_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"ovsdb-server did not start: {_last_line('ovsdb-server')}")
        time.sleep(0.005)


def _last_line(program: str) -> str:
    log = DIRECTORY / f"{program}.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "it said nothing"
