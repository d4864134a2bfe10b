# SPDX-License-Identifier: Apache-2.0
"""Requirements of each platform on this machine, checked before anything is started, with remedies."""

import errno
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_core.clone import remedy
from atoll_core.errors import LabError, MachineError
from atoll_core.platforms import HARDWARE, MININET, VIRTUAL
from atoll_core.plural import listed
from atoll_core.units import Size
from atoll_emulation.mininet_lab import namespaces, open_vswitch
from atoll_emulation.mininet_lab.namespaces import namespaces_error, unshare_argv, uses_user_namespace
from atoll_emulation.this_machine.box_programs import complete_path
from atoll_emulation.this_machine.congestion_controls import local_controls
from atoll_emulation.this_machine.network_state import network_state
from atoll_emulation.this_machine.packages import install_text, missing_needs, packages_of
from atoll_emulation.this_machine.restrictions import (
    c_library,
    namespaces_problem,
    personality_problem,
    proc_problem,
    ptrace_problem,
)
from atoll_emulation.uml.boot import VirtualClock, run_in_uml
from atoll_emulation.uml.kernel import UmlKernel, find_virtual_kernel

_TUN = "/dev/net/tun"
_TRIAL_MEMORY_MB = 128
_MEMINFO = Path("/proc/meminfo")


def require_machine() -> None:
    """Raise MachineError with a line and a remedy for each requirement that this machine does not meet.

    Completes a plain user's PATH, for this process and its children.
    """
    _complete_path()
    missing = missing_tools() + missing_namespaces(with_proc=True) + missing_tun() + hidden_installation()
    if missing:
        raise MachineError("\n".join(missing))


def require_virtual_machine() -> UmlKernel:
    """The kernel for a lab in virtual time. Raises MachineError as :func:`require_machine` does.

    It switches packets itself: no tun device is needed.
    """
    _complete_path()
    missing = missing_tools() + missing_namespaces() + hidden_installation()
    try:
        kernel = find_virtual_kernel()
    except MachineError as error:
        raise MachineError("\n".join([*missing, str(error)])) from None
    missing = missing or _lines(personality_problem(), ptrace_problem() if kernel.mode == "ptrace" else None)
    if missing:
        raise MachineError("\n".join(missing))
    return kernel


def free_memory(meminfo: Path = _MEMINFO) -> Size:
    """Return the memory available without swapping (proc_meminfo(5), MemAvailable)."""
    lines = meminfo.read_text(encoding="ascii").splitlines()
    return next(Size(1024 * int(line.split()[1])) for line in lines if line.startswith("MemAvailable:"))


def missing_tools() -> list[str]:
    """A line for all that packages of the distribution have, and one for what none of them has."""
    needs = missing_needs("lab")
    packages, by_hand = packages_of(needs), [str(need) for need in needs if need.package is None]
    lines: list[str] = []
    if packages:
        names = ", ".join(str(need) for need in needs if need.package)
        lines.append(f"missing {names}: run {remedy('`make setup`', '`atoll setup`')}, or {install_text(packages)}")
    if by_hand:
        lines.append(f"missing {', '.join(by_hand)}: this distribution has no package of it; install by hand")
    return lines


def _complete_path() -> None:
    if os.geteuid() != 0:
        os.environ["PATH"] = complete_path()


def missing_namespaces(*, with_proc: bool = False) -> list[str]:
    """Return a line if namespaces cannot be made, as root or as a plain user.

    ``with_proc``: with a /proc of their own, which emulated labs in real time have.
    """
    if any(shutil.which(tool) is None for tool in ("unshare", "setpriv")):
        return []  # said already
    return _lines(namespaces_problem() or (proc_problem() if with_proc else None))


def _lines(*problems: str | None) -> list[str]:
    return [problem for problem in problems if problem]


def missing_tun() -> list[str]:
    """Return a line if Open vSwitch's userspace datapath cannot make its tap devices."""
    if open_vswitch.kernel_has_datapath():
        return []
    try:
        os.close(os.open(_TUN, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return [f"{_TUN} {_TUN_REMEDIES.get(error.errno or 0, f'cannot be opened: {error.strerror}')}"]
    return []


def hidden_installation() -> list[str]:
    """Return a line if this program is installed below /run, which the lab replaces by its own."""
    folders = (Path(__file__).parent, Path(sys.prefix), Path(sys.base_prefix))
    hidden = [str(place) for place in folders if namespaces.is_hidden_in_lab(place)]
    if not hidden:
        return []
    return [
        f"{hidden[0]}: the lab has its own /run, so it does not see this installation; install atoll in another place"
    ]


_TUN_REMEDIES = {
    errno.ENOENT: "does not exist: mkdir -p /dev/net && mknod -m 666 /dev/net/tun c 10 200 (as root)",
    errno.EACCES: "may not be opened by this user: chmod 666 /dev/net/tun (as root)",
    errno.EPERM: "may not be opened here: give this container access to the device",
    errno.ENODEV: "has no driver: modprobe tun (as root)",
    errno.ENXIO: "has no driver: modprobe tun (as root)",
}


def describe_machine() -> dict[str, Any]:
    """Facts of this machine, for ``check --machine``."""
    _complete_path()
    tc_problems = missing_for_tc()
    controls = local_controls()
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "c_library": c_library(),
        "user": "root" if os.geteuid() == 0 else "plain user",
        "open_vswitch": open_vswitch.version() if shutil.which("ovs-vswitchd") else None,
        "datapath": "kernel" if open_vswitch.kernel_has_datapath() else "userspace",
        "link_backends": ", ".join(["engine", *([] if tc_problems else ["tc"])]),
        "tc_backend": tc_problems[0] if tc_problems else "usable",
        "congestion_controls": str(controls),
        "interfaces": _interfaces_text(),
    }


def _interfaces_text() -> str:
    try:
        return ", ".join(map(_interface_text, network_state()["interfaces"]))
    except OSError as error:
        return f"unknown ({error})"


def _interface_text(interface: dict[str, Any]) -> str:
    facts = [interface["state"], *interface["addresses"], *(f"qdisc {kind}" for kind in interface["qdiscs"])]
    return f"{interface['name']} ({'; '.join(facts)})"


# The features that the tc backend needs (atoll_core.plan.tc_settings), each with the smallest command that uses it.
_TC_PROBES = (
    ("ifb", "ip link add name ifb-probe type ifb"),
    ("netem", "tc qdisc add dev lo root handle 1: netem delay 1ms"),
    ("tbf", "tc qdisc replace dev lo root handle 2: tbf rate 1mbit burst 1540 limit 3000"),
    ("stab", "tc qdisc replace dev lo root handle 3: stab linklayer ethernet overhead -14 htb"),
    ("htb", "tc qdisc replace dev lo root handle 4: htb"),
    ("flower", "tc filter add dev lo parent 4: prio 1 protocol 802.1Q flower vlan_id 1 classid 4:1"),
    ("clsact", "tc qdisc add dev lo clsact"),
    ("matchall", "tc filter add dev lo ingress prio 2 protocol all matchall action drop"),
    ("mirred", "tc filter add dev lo ingress prio 1 protocol all matchall action mirred egress redirect dev lo"),
)


def missing_for_tc() -> list[str]:
    """Return a line for each prerequisite of the tc backend that is missing on this machine."""
    if needs := [need for need in missing_needs("lab", "start") if need.name in ("ip", "tc")]:
        return [f"the tc backend needs tc and ip: {install_text(packages_of(needs))}"]
    if (reason := namespaces_error()) is not None:
        return [f"the tc backend could not be tested, because namespaces cannot be made here ({reason})"]
    if not (missing := missing_in_kernel()):
        return []
    return [f"this kernel does not have {', '.join(missing)}, which the tc backend needs; use --backend engine"]


def missing_in_kernel() -> list[str]:
    """Return the parts of traffic control that the tc backend uses and this kernel refuses."""
    script = "\n".join(f"{line} >/dev/null 2>&1 || echo {name}" for name, line in _TC_PROBES)
    probes = subprocess.run([*unshare_argv(), "sh", "-c", script], capture_output=True, text=True, check=False)
    return probes.stdout.split()


@dataclass(frozen=True, slots=True)
class PlatformCheck:
    """A platform: how labs run there, or a line with a remedy for each missing prerequisite."""

    platform: str  # as --on calls it
    description: str = ""
    missing: tuple[str, ...] = ()


def check_platforms() -> tuple[PlatformCheck, ...]:
    """Check every platform. Makes namespaces and a tun device to try them, and removes them."""
    # The controller and SSH are here; the machines check themselves.
    hardware_text = "as any user, with an inventory of the rack; `atoll hosts status` checks its machines"
    return _check_mininet(), _check_virtual(), PlatformCheck(HARDWARE, hardware_text)


def missing_by_platform(checks: Iterable[PlatformCheck]) -> list[str]:
    """Return a line for each missing prerequisite: its platform and its remedy."""
    options: dict[str, list[str]] = {}
    for check in checks:
        for line in check.missing:
            options.setdefault(line, []).append(f"--on {check.platform}")
    return [f"{listed(names)} not available: {line}" for line, names in options.items()]


def add_missing(check: PlatformCheck, lines: Iterable[str]) -> PlatformCheck:
    """Add missing prerequisites to a platform, each once."""
    return PlatformCheck(check.platform, missing=tuple(dict.fromkeys((*check.missing, *lines))))


def _check_mininet() -> PlatformCheck:
    try:
        require_machine()
    except MachineError as error:
        return PlatformCheck(MININET, missing=tuple(str(error).splitlines()))
    if not uses_user_namespace():
        return PlatformCheck(MININET, "as root")
    return PlatformCheck(MININET, "as a plain user, without real-time scheduling: packets leave less exactly on time")


def _check_virtual() -> PlatformCheck:
    try:
        kernel = require_virtual_machine()
        _try_kernel(kernel)
    except MachineError as error:
        return PlatformCheck(VIRTUAL, missing=tuple(str(error).splitlines()))
    return PlatformCheck(VIRTUAL, f"as any user, kernel {kernel.release}")


def _try_kernel(kernel: UmlKernel) -> None:
    """Start the kernel for virtual time, for a command that ends at once. Raises MachineError with its last line."""
    try:
        with tempfile.TemporaryDirectory() as name:
            output, clock = Path(name), VirtualClock(seed=1)
            run_in_uml(["true"], output, limit_s=60, kernel=kernel, clock=clock, memory_mb=_TRIAL_MEMORY_MB)
    except LabError as error:
        raise MachineError(f"the kernel for virtual time does not start: {str(error).splitlines()[-1]}") from None
