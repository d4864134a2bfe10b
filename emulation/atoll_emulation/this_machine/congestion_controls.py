# SPDX-License-Identifier: Apache-2.0
"""Congestion controls: those that a kernel offers, and those that an experiment needs."""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from atoll_core.errors import MachineError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.platforms import HARDWARE, VIRTUAL

_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_MODULES = Path("/lib/modules")
_VIRTUAL_CONFIG = Path(__file__).parents[1] / "uml" / "virtual.config"
_BUILT_IN = re.compile(r"^CONFIG_TCP_CONG_(\w+)=y$", re.MULTILINE)
_MENU_OPTION = "ADVANCED"  # CONFIG_TCP_CONG_ADVANCED only lets the others be chosen
_KERNEL_NAMES = {"hstcp": "highspeed"}  # net/ipv4/Kconfig's name: the kernel's own


@dataclass(frozen=True, slots=True)
class Controls:
    """Congestion controls of a kernel. It loads ``loadable`` modules on demand, ``unloaded`` ones by modprobe."""

    name: str  # of the kernel, for messages
    available: frozenset[str]
    loadable: frozenset[str] = frozenset()
    unloaded: frozenset[str] = frozenset()

    @property
    def usable(self) -> frozenset[str]:
        """Congestion controls that sockets can select."""
        return self.available | self.loadable

    def __str__(self) -> str:
        return ", ".join(sorted(self.usable))


def local_controls(available: Path = _AVAILABLE, modules: Path = _MODULES, *, root: bool | None = None) -> Controls:
    """Return the controls of this machine's kernel. It loads modules for root only (CAP_NET_ADMIN, tcp_cong.c)."""
    release = platform.release()
    try:
        loaded = frozenset(available.read_text(encoding="ascii").split())
    except OSError:
        loaded = frozenset(["reno"])  # part of every kernel with TCP
    files = (modules / release).glob("kernel/net/ipv4/tcp_*.ko*")
    unloaded = frozenset(file.name.split(".")[0][4:] for file in files) - loaded - {"diag"}  # tcp_diag is what ss asks
    kernel = f"this kernel ({release})"
    if os.geteuid() == 0 if root is None else root:
        return Controls(kernel, loaded, loadable=unloaded)
    return Controls(kernel, loaded, unloaded=unloaded)


def virtual_controls() -> Controls:
    """Return the congestion controls of the virtual kernel, by the configuration it is built from."""
    options: list[str] = _BUILT_IN.findall(_VIRTUAL_CONFIG.read_text(encoding="utf-8"))
    built_in = [name.lower() for name in options if name != _MENU_OPTION]
    return Controls("the virtual kernel", frozenset(["reno", *(_KERNEL_NAMES.get(name, name) for name in built_in)]))


def allow_all_controls() -> None:
    """Permit all congestion controls of this kernel in every namespace, also as the default.

    For virtual kernels only, in their first network namespace: a machine's own kernel is not changed. Raises OSError
    elsewhere.
    """
    _ALLOWED.write_text(_AVAILABLE.read_text(encoding="ascii"), encoding="ascii")


def require_controls(experiment: Experiment, kernel: Controls, virtual: Controls | None = None) -> None:
    """Refuse congestion controls that :func:`missing_controls` reports.

    Raises PlanError when neither kernel knows one of them (probably a misspelling), else MachineError.
    """
    if missing := missing_controls(experiment, kernel, virtual):
        raise (PlanError if has_unknown_control(experiment, kernel, virtual) else MachineError)("\n".join(missing))


def has_unknown_control(experiment: Experiment, kernel: Controls, virtual: Controls | None = None) -> bool:
    """Return whether the experiment names a congestion control that neither kernel has."""
    names = kernel.usable | kernel.unloaded | (virtual or kernel).usable
    return not names.issuperset(experiment.congestion_controls)


def missing_controls(experiment: Experiment, kernel: Controls, virtual: Controls | None = None) -> list[str]:
    """Return a line for each congestion control of the experiment that ``kernel`` does not have, with a remedy.

    ``virtual``: those of ``--on virtual``, if that is an alternative.
    """
    missing = _missing(experiment, kernel, virtual)
    return [f"{experiment.file}: {', '.join(keys)}: {text}" for _, keys, text in missing]


def missing_on_platform(experiment: Experiment, platform: str) -> list[tuple[tuple[str, ...], str, bool]]:
    """Return keys and message of each control that the platform's kernel does not have, and whether none has it.

    Real machines have kernels of their own, of which nothing is known.
    """
    virtual = virtual_controls()
    if platform == HARDWARE:
        return []
    kernel = virtual if platform == VIRTUAL else local_controls()
    known = kernel.usable | kernel.unloaded | virtual.usable
    return [(keys, text, control not in known) for control, keys, text in _missing(experiment, kernel, virtual)]


def _missing(
    experiment: Experiment, kernel: Controls, virtual: Controls | None
) -> list[tuple[str, tuple[str, ...], str]]:
    """Return name, keys and mistake of each control that :func:`missing_controls` reports."""
    from atoll_core.description.validation_messages import (
        nearest,  # with pydantic: too heavy for a lab that starts, which names nothing wrong
    )

    virtual_only = virtual.usable if virtual else frozenset[str]()
    missing: list[tuple[str, tuple[str, ...], str]] = []
    for control, keys in sorted(experiment.congestion_controls.items()):
        if control in kernel.usable:
            continue
        name = f"congestion control {control!r}"
        if control in kernel.unloaded:
            missing.append((control, keys, f"{name} is a module that is not loaded: modprobe tcp_{control} (as root)"))
            continue
        line = f"{name} is not in {kernel.name}, which has {kernel}"
        if control in virtual_only:
            line += "; --on virtual has it"
        elif close := nearest(control, sorted(kernel.usable | kernel.unloaded | virtual_only)):
            line += (
                f"; did you mean {close!r}?{' --on virtual has it' if close in virtual_only - kernel.usable else ''}"
            )
        missing.append((control, keys, line))
    return missing
