# SPDX-License-Identifier: Apache-2.0
"""Real switches for tests: a private Open vSwitch with four bridges, in namespaces of the tests' own."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

DPIDS = (1, 2, 3, 4)
CONNECT_S = 60.0
NOBODY = 6  # a port where no controller listens

# Its first process ends when its standard input does, and everything in its namespaces with it.
_SWITCHES = """
set -e
ip link set lo up
ovsdb-tool create $OVS_DBDIR/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server $OVS_DBDIR/conf.db --remote=punix:$OVS_RUNDIR/db.sock --unixctl=$OVS_RUNDIR/ovsdb.ctl \
    --pidfile=$OVS_RUNDIR/ovsdb-server.pid --log-file=$OVS_LOGDIR/ovsdb.log --detach --no-chdir
ovs-vsctl --db=unix:$OVS_RUNDIR/db.sock --no-wait init
ovs-vswitchd unix:$OVS_RUNDIR/db.sock --unixctl=$OVS_RUNDIR/vswitchd.ctl \
    --pidfile=$OVS_RUNDIR/ovs-vswitchd.pid --log-file=$OVS_LOGDIR/ovs-vswitchd.log --detach --no-chdir
for n in 1 2 3 4; do
    set -- "$@" -- add-br br$n -- set bridge br$n datapath_type=netdev fail_mode=secure protocols=OpenFlow13 \
        other-config:datapath-id=000000000000000$n
done
ovs-vsctl --db=unix:$OVS_RUNDIR/db.sock "$@"
echo ready
exec cat
"""


@dataclass
class Switches:
    """Four bridges without ports, br1 to br4, in namespaces of their own."""

    init: int
    environment: dict[str, str]

    @property
    def enter(self) -> list[str]:
        """The command line that enters the namespaces."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "-t", str(self.init), *user, "-p", "-n", "-m", "--"]

    def run(self, *argv: str) -> str:
        """Run a command in there; its output."""
        done = subprocess.run(
            [*self.enter, *argv], env=self.environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ofctl(self, verb: str, bridge: str, *words: str) -> str:
        """Run ovs-ofctl, as somebody might by hand."""
        return self.run("ovs-ofctl", "-O", "OpenFlow13", verb, bridge, *words)

    def connect(self, port: int, *bridges: str) -> None:
        """Tell bridges (all by default) where their controller listens; a new place is tried at once."""
        words = ["ovs-vsctl", f"--db=unix:{self.environment['OVS_RUNDIR']}/db.sock"]
        for bridge in bridges or [f"br{number}" for number in DPIDS]:
            words += ["--", "set-controller", bridge, f"tcp:127.0.0.1:{port}"]
            words += ["--", "set", "controller", bridge, "connection_mode=out-of-band", "max_backoff=1000"]
        self.run(*words)

    def add_ports(self, bridge: str, number: int) -> None:
        """Give a bridge ports with the numbers 1 to ``number``, which are up."""
        names = {port: f"{bridge}-{port}" for port in range(1, number + 1)}
        words = ["ovs-vsctl", f"--db=unix:{self.environment['OVS_RUNDIR']}/db.sock"]
        for port, name in names.items():
            words += ["--", "add-port", bridge, name, "--", "set", "interface", name, "type=internal"]
            words.append(f"ofport_request={port}")
        self.run(*words)
        self.run("sh", "-ec", "".join(f"ip link set {name} up\n" for name in names.values()))

    def clear(self) -> None:
        """Empty all tables."""
        for number in DPIDS:
            self.ofctl("del-flows", f"br{number}")


@contextlib.contextmanager
def open_vswitch() -> Generator[Switches]:
    """Open vSwitch, up until the context is left."""
    with tempfile.TemporaryDirectory(prefix="atoll-") as directory:  # short: socket paths end at 108 bytes
        names = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
        environment = {**os.environ, **dict.fromkeys(names, directory)}
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        options = ["--pid", "--net", "--mount", "--fork", "--kill-child", "--mount-proc"]
        with subprocess.Popen(
            ["unshare", *user, *options, "--", "sh", "-c", _SWITCHES, "sh"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert holder.stderr is not None
            if holder.stdout.readline() != "ready\n":
                raise RuntimeError(f"Open vSwitch did not start: {holder.communicate()[1]}")
            init = int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text())
            yield Switches(init, environment)
            holder.stdin.close()
            holder.wait(10)
