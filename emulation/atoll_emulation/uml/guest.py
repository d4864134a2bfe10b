# SPDX-License-Identifier: Apache-2.0
"""First process of the kernel: a root of its own over the machine's files, then the command, then power off.

Two scripts, since the root changes between them. They live in a directory that the guest sees under the same name as
the host does; the command's exit status comes back in a file there.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OUTPUT = Path("/out")
"""Where the guest sees the output directory."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Guest:
    """What is to be run inside, and the host directories it uses (absolute, without commas: mount(8) splits there)."""

    command: Sequence[str]
    directory: Path  # where the command starts
    output: Path  # shown inside as OUTPUT, written to for real
    work: Path  # holds the scripts, the modules and the status file
    environment: Mapping[str, str]

    @property
    def status_file(self) -> Path:
        """Where the exit status comes back, as a decimal number."""
        return self.work / "status"

    @property
    def module_root(self) -> Path:
        """What ``modprobe -d`` takes: the kernel's modules are at lib/modules below."""
        return self.work / "root"

    def init(self) -> str:
        """The script that furnishes the root: busybox alone, because set-user-id tools fail for a plain user.

        The root is an overlay whose upper part is in memory. ``pivot_root`` rather than ``chroot``: whoever enters a
        mount namespace made inside (nsenter) would be outside the overlay. It moves the kernel's own helpers (modprobe)
        as well, so the modules must be where they look. ``nosuid``: to a plain user's root, set-user-id files belong
        to nobody.
        """
        work, output, modules = (shlex.quote(str(path)) for path in (self.work, self.output, self.module_root))
        return f"""#!/bin/busybox sh
export PATH={_PATH} HOME=/root TERM=dumb
m() {{ busybox mount "$@"; }}
m -t proc proc /proc
modprobe -d {modules} overlay
m -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
N=/mnt/root
m -t overlay -o nosuid,lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay $N
m -t proc proc $N/proc
m -t sysfs sysfs $N/sys
m -t devtmpfs dev $N/dev
mkdir -p $N/dev/pts $N/dev/shm $N{OUTPUT} $N/lib/modules
m -t devpts devpts $N/dev/pts
m -t tmpfs shm $N/dev/shm
m -t tmpfs -o mode=755 run $N/run
m -t hostfs -o {output} none $N{OUTPUT}
mkdir -p $N{work}
m -t hostfs -o {work} none $N{work}
m --bind $N{modules}/lib/modules $N/lib/modules
cd $N
busybox pivot_root . mnt
busybox umount -l /mnt
exec /bin/sh {work}/run
"""

    def run(self) -> str:
        """The script that runs the command on the furnished root, after what every distribution's boot does as well."""
        exports = "".join(f"export {name}={shlex.quote(text)}\n" for name, text in self.environment.items())
        return f"""modprobe ipv6
ip link set lo up
hostname virtual
{exports}cd {shlex.quote(str(self.directory))}
{shlex.join(self.command)}
echo $? > {shlex.quote(str(self.status_file))}
busybox poweroff -f
"""
