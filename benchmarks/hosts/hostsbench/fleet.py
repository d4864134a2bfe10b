# SPDX-License-Identifier: Apache-2.0
"""Machines for the starters: namespaces with an sshd each, on the bridge of a management network.

Made by the first process of namespaces of its own (``unshare_argv`` of atoll_emulation.mininet_lab.namespaces), with
which all ends. Each machine has network, mount, PID and UTS namespaces, a host key, and an interface of the experiment
network, which atoll asks for. sshd is as OpenSSH comes, MaxStartups included, but for PAM, which wants a login's house
around.
"""

import json
import shlex
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_core.errors import LabError

MANAGER = "10.98.0.1"
SERVER = f"{MANAGER}:5001"
RUN_NS = 1_000_000_000
"""How long each program runs."""

_PER_NET = 250
_START_S = 60.0

_SSHD_CONFIG = """Port 22
UsePAM no
StrictModes no
AuthorizedKeysFile {folder}/id_ed25519.pub
"""
_SSH_CONFIG = """Host *
  User root
  IdentityFile {folder}/id_ed25519
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
"""
_MACHINE = """
set -e
mount --bind $HERE/run /run; mount --bind $HERE/var-tmp /var/tmp; mount --bind $HERE/root /root
hostname $NAME
ip -batch - <<END
link set lo up
address add $ADDRESS/16 dev mgmt0
link set mgmt0 up
link add exp0 type veth peer name cable
link set exp0 up
link set cable up
END
exec $SSHD -D -e -f $FOLDER/sshd_config -h $HERE/host_key 2>$HERE/sshd.log
"""


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many machines below ``folder``, a file system in memory. Call :meth:`build` once."""

    folder: Path
    size: int
    binary: Path  # atoll-host

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses on the management network, by name."""
        return {f"i{n + 1}": f"10.98.{1 + n // _PER_NET}.{1 + n % _PER_NET}" for n in range(self.size)}

    @property
    def lab(self) -> Path:
        """A lab.yaml of these machines, all of them island clients."""
        return self.folder / "lab.yaml"

    @property
    def inventory(self) -> Path:
        """The inventory for it."""
        return self.folder / "inventory.yaml"

    @property
    def ssh_config(self) -> Path:
        """The configuration for `ssh -F` to reach them."""
        return self.folder / "ssh_config"

    @property
    def started(self) -> str:
        """The file in which a machine's program says that it has started, as the machine sees it."""
        return "/var/tmp/started"  # noqa: S108 (the machine's own)

    def of(self, name: str) -> Path:
        """A machine's own folder."""
        return self.folder / "machines" / name

    def build(self, sshd: str) -> None:
        """Bring everything up; returns when every sshd listens. Raises LabError."""
        for name in self.addresses:
            for part in ("run/sshd", "var-tmp", "root"):  # bash reads a .bashrc for sshd: this machine's is no matter
                (self.of(name) / part).mkdir(parents=True)
            (self.of(name) / "load.json").write_text(json.dumps(self.load(name, 0)) + "\n")
        (self.folder / "sshd_config").write_text(_SSHD_CONFIG.format(folder=self.folder))
        self.ssh_config.write_text(_SSH_CONFIG.format(folder=self.folder))
        done = subprocess.run(["bash", "-c", self._script(sshd)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LabError(f"the machines cannot be made: {done.stderr.strip().splitlines()[-1]}")
        self._write_keys()
        self._describe()
        deadline = time.monotonic() + _START_S
        for name in self.addresses:
            log = self.of(name) / "sshd.log"
            while not (log.exists() and "Server listening" in log.read_text()):
                if time.monotonic() > deadline:
                    raise LabError(f"{name}: its sshd does not listen after {_START_S:g} s")
                time.sleep(0.05)

    def load(self, name: str, start_at_ns: int) -> dict[str, Any]:
        """The configuration of a machine's program (docs/contracts.md): one channel that fetches 100 bytes at once."""
        return {
            "seed": 1,
            "channels": [int(name[1:])],
            "servers": [SERVER],
            "flow_sizes": {"kind": "steps", "knots": [[10**9, 100]]},
            "pace": {"kind": "constant", "mean_ns": RUN_NS},
            "start_at_ns": start_at_ns,
            "duration_ns": RUN_NS,
            "congestion_control": "cubic",
            "flow_log": "/var/tmp/flows.csv",  # noqa: S108 (the machine's own)
        }

    def shell_command(self) -> str:
        """The shell command that starts a machine's program, which outlives the shell."""
        load = f"{self.binary} load <{self.folder}/machines/$(hostname)/load.json"
        return f"setsid {load} >{self.started} 2>/dev/null &"

    def stamps(self, wait_s: float) -> Mapping[str, int]:
        """The start of each program, as it printed it, in ns since 1970; of those that started in time."""
        deadline = time.monotonic() + wait_s
        starts: dict[str, int] = {}
        while len(starts) < self.size and time.monotonic() < deadline:
            starts = {name: t_ns for name in self.addresses if (t_ns := self._stamp(name)) is not None}
            time.sleep(0.05)
        return starts

    def forget(self) -> None:
        """Remove the output of programs that have ended."""
        time.sleep(2 * RUN_NS / 1e9)
        for name in self.addresses:
            (self.of(name) / "var-tmp/started").unlink(missing_ok=True)

    def _stamp(self, name: str) -> int | None:
        try:
            output = (self.of(name) / "var-tmp/started").read_text().splitlines()
        except FileNotFoundError:
            return None
        lines = (json.loads(line) for line in output if line.endswith("}"))
        return next((line["t_ns"] for line in lines if line["type"] == "started"), None)

    def _script(self, sshd: str) -> str:
        names = self.addresses
        lines = [
            "set -e",
            f"export FOLDER={shlex.quote(str(self.folder))} SSHD={sshd}",
            "ssh-keygen -q -t ed25519 -N '' -f $FOLDER/id_ed25519",
            f"for name in {' '.join(names)}; do",
            "  ssh-keygen -q -t ed25519 -N '' -C '' -f $FOLDER/machines/$name/host_key",
            "done",
            "ip -batch - <<END",
            "link add mgmt type bridge",
            f"address add {MANAGER}/16 dev mgmt",
            "link set mgmt up",
        ]
        for name in names:
            lines += [f"netns add {name}", f"link add m-{name} type veth peer name mgmt0 netns {name}"]
            lines.append(f"link set m-{name} master mgmt up")
        lines.append("END")
        own = "--mount --uts --pid --fork --kill-child --mount-proc"
        for name, address in names.items():
            variables = f"NAME={name} ADDRESS={address} HERE=$FOLDER/machines/{name}"
            enter = f"nsenter --net=/run/netns/{name} unshare {own} bash -c {shlex.quote(_MACHINE)}"
            lines.append(f"{variables} {enter} </dev/null >$FOLDER/machines/{name}/log 2>&1 &")
        return "\n".join(lines) + "\n"

    def _write_keys(self) -> None:
        keys = (
            f"{address} {(self.of(name) / 'host_key.pub').read_text().strip()}\n"
            for name, address in self.addresses.items()
        )
        (self.folder / "known_hosts").write_text("".join(keys))

    def _describe(self) -> None:
        lines = ["name: fleet", "networks: {world: 10.10.0.0/16, island: 10.20.0.0/16}"]
        lines += ["switches: {sw: {dpid: 1, driver: ovs}}", "hosts:"]
        for number, name in enumerate(self.addresses, start=1):
            ip = f"10.20.{1 + number // _PER_NET}.{1 + number % _PER_NET}"
            lines.append(f"  {name}: {{role: island-client, ip: {ip}, port: sw/{number}}}")
        self.lab.write_text("\n".join(lines) + "\n")
        lines = [f"controller: {{address: {MANAGER}}}", "ssh:", "  user: root", "  identity: id_ed25519"]
        lines += ["  config: ssh_config", "  known_hosts: known_hosts", f"  binary: {self.binary}", "machines:"]
        lines += [f"  {name}: {{ssh: {address}, interface: exp0}}" for name, address in self.addresses.items()]
        self.inventory.write_text("\n".join(lines) + "\n")
