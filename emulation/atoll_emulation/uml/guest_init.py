# SPDX-License-Identifier: Apache-2.0
"""First process of the kernel: a root of its own over the machine's files, then the command, then power off.

Pure: scripts as text. The setup script runs outside, in the namespaces made for the kernel, and lays everything out
below MOUNT_POINT; ``init`` is what the kernel starts, ``run`` what ``init`` becomes once the root has changed.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OUTPUT = Path("/out")
"""Where the guest sees the output directory."""

MOUNT_POINT = Path("/sys")
"""Where the kernel, its scripts, its memory and the output directory are in its namespaces: the same for every kernel
on every machine, because command line and paths are part of what a kernel's random numbers come from. /sys, since it
exists everywhere, no file of a user's is in it, and neither kernel nor guest look at the machine's."""

_OVERLAY = MOUNT_POINT / "top"
_INSIDE = Path("/run/uml")  # MOUNT_POINT as seen from the furnished root
_START_DIRECTORY = Path("/run/here")  # the directory where the command starts
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LATE = "late"
"""In the place of a status: the command was still at work after its time."""

_WAITING_SCRIPT = f"""n=0
for p in $(ls /proc | grep '^[0-9]' | sort -n); do
    c=$(tr '\\0' ' ' < /proc/$p/cmdline | cut -c 1-120)
    case "$c" in ''|*{_INSIDE}/*|'sleep '*) continue;; esac
    echo "${{c% }} waits in $(cat /proc/$p/wchan)"
    n=$((n + 1)); [ $n -lt 10 ] || break
done 2>/dev/null
"""
"""Script that prints the first processes of the guest, and the function of the kernel in which each waits."""

OVS_COUNTS_CPUS_AFTER_S = 11
"""Open vSwitch 3.1 counts processors when the monotonic clock passes 10 s, and takes those it has for none before."""

_BACKLOG_PACKETS = 1_000_000
"""What may wait for a processor between two cables: all that a thousand servers send at one instant, which no clock
spreads here. Linux drops beyond 1000 (net.core.netdev_max_backlog), and no counter of a link tells."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The command to run inside, and its environment."""

    command: Sequence[str]
    directory: Path  # where the command starts; absolute
    environment: Mapping[str, str]
    limit_s: int | None  # virtual time the command may take; None: time is the machine's

    def init_script(self) -> str:
        """The script that furnishes the root: busybox alone, because set-user-id tools fail for a plain user.

        The root is an overlay with its upper part in memory. ``pivot_root``, not ``chroot``: a process that enters a
        mount namespace made inside (nsenter) would be outside the overlay. ``nosuid``: to a plain user's root,
        set-user-id files belong to nobody.
        """
        return f"""#!/bin/busybox sh
export PATH={_PATH} HOME=/root TERM=dumb
m() {{ busybox mount "$@"; }}
m -t proc proc /proc
m -t tmpfs tmpfs {_OVERLAY}
mkdir {_OVERLAY}/upper {_OVERLAY}/work {_OVERLAY}/root
N={_OVERLAY}/root
m -t overlay -o nosuid,lowerdir=/,upperdir={_OVERLAY}/upper,workdir={_OVERLAY}/work overlay $N
m -t proc proc $N/proc
m -t sysfs sysfs $N/sys
m -t devtmpfs dev $N/dev
mkdir -p $N/dev/pts $N/dev/shm $N{OUTPUT}
m -t devpts devpts $N/dev/pts
ln -s /proc/self/fd $N/dev/fd
for n in stdin:0 stdout:1 stderr:2; do ln -s fd/${{n#*:}} $N/dev/${{n%:*}}; done
m -t tmpfs shm $N/dev/shm
m -t tmpfs -o mode=755 run $N/run
m -t hostfs -o {MOUNT_POINT}/out none $N{OUTPUT}
mkdir $N{_INSIDE}
m -t hostfs -o {MOUNT_POINT} none $N{_INSIDE}
cd $N
busybox pivot_root . mnt
busybox umount -l /mnt
exec /bin/sh {_INSIDE}/run
"""

    def run_script(self) -> str:
        """The script that runs the command on the furnished root, after what every distribution's boot does as well.

        ``poweroff -f`` writes nothing back, hence the ``sync``. Without memory the kernel panics rather than kill a
        process that somebody measures. In virtual time, a guest in which everything waits for good reaches its limit at
        once: the clock jumps there. The command starts in its directory under a name that is the same everywhere: the
        shell exports it (PWD), and its length would move every stack, and with it page faults and their instants.
        """
        limit = f"(sleep {self.limit_s}; echo {LATE} > {_INSIDE}/status; sh {_INSIDE}/waiting; busybox poweroff -f) &\n"
        first_lines = ":" if self.limit_s is None else f"sleep {OVS_COUNTS_CPUS_AFTER_S}\n{limit}"
        exports = "".join(f"export {name}={shlex.quote(text)}\n" for name, text in self.environment.items())
        return f"""ip link set lo up
hostname virtual
echo 1 > /proc/sys/vm/panic_on_oom
echo {_BACKLOG_PACKETS} > /proc/sys/net/core/netdev_max_backlog
{exports}ln -s {shlex.quote(str(self.directory))} {_START_DIRECTORY}
cd {_START_DIRECTORY}
{first_lines}
{shlex.join(self.command)}
echo $? > {_INSIDE}/status
sync
busybox poweroff -f
"""

    def setup_script(self, kernel: Path, shim: Path, output: Path, memory_mb: int) -> str:
        """Return the script of the first process outside: set MOUNT_POINT up, run the arguments, print the status.

        MOUNT_POINT is in memory and disappears with the namespaces, so no file is left behind. The kernel's
        memory is there, too: /dev/shm is small in some containers. The kernel writes to standard error.
        """
        lines = [
            "set -e",
            "mount -t proc proc /proc 2>/dev/null || :",
            f"mount -t tmpfs -o mode=755,size={memory_mb + 64}m uml {MOUNT_POINT}",
            f"cd {MOUNT_POINT}",
            "mkdir top out",
            f"mount --rbind {shlex.quote(str(output))} out",
            "touch linux",
            f"mount --bind {shlex.quote(str(kernel))} linux",
            f"printf %s {shlex.quote(self.init_script())} >init",
            f"printf %s {shlex.quote(self.run_script())} >run",
            f"printf %s {shlex.quote(_WAITING_SCRIPT)} >waiting",
            "chmod 755 init",
            "touch random.so",
            f"mount --bind {shlex.quote(str(shim))} random.so",
            '"$@" >&2 || :',
            "[ ! -e status ] || cat status",
        ]
        return "\n".join(lines)
