# SPDX-License-Identifier: Apache-2.0
"""Set TCP parameters that affect results on every end host for a run, and restore them after it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from atoll_controller.planner.host_config import CONGESTION_CONTROL, tcp_sysctls
from atoll_core.errors import LabError
from atoll_core.experiment.experiment import Experiment
from atoll_testbed.testbed import Testbed

HostSysctls = dict[str, tuple[tuple[str, str], ...]]
"""Sysctls by host: pairs of name and value."""


@contextlib.asynccontextmanager
async def pinned_tcp(
    testbed: Testbed, experiment: Experiment, note: Callable[[str], None]
) -> AsyncGenerator[tuple[HostSysctls, HostSysctls]]:
    """Set the TCP parameters of an experiment during the block; yields the settings by host, and those before.

    ``note`` takes remarks about settings that are not possible. Raises LabError if a machine refuses settings; those of
    the others are restored then.
    """
    machine, hosts = testbed.machine, [host.name for host in testbed.network.hosts]
    wanted = await _permitted(testbed, {host: tcp_sysctls(experiment, host) for host in hosts}, note)
    answers = await asyncio.gather(*(machine(host).sysctl(wanted[host]) for host in hosts), return_exceptions=True)
    was: HostSysctls = {}
    refused: list[BaseException] = []
    for host, answer in zip(hosts, answers, strict=True):
        if isinstance(answer, BaseException):
            refused.append(answer)
        else:
            was[host] = answer
    try:
        if refused:
            raise refused[0]
        yield wanted, was
    finally:
        with contextlib.suppress(LabError):
            await asyncio.gather(*(machine(host).sysctl(pairs) for host, pairs in was.items()))


async def _permitted(testbed: Testbed, wanted: HostSysctls, note: Callable[[str], None]) -> HostSysctls:
    """The settings without default congestion controls that the kernel allows in its first namespace only.

    The sockets of our own programs then request the congestion control individually, and fail if the kernel does not
    have it. Restricted controls: net.ipv4.tcp_allowed_congestion_control.
    """
    machine = testbed.machine(testbed.network.hosts[0].name)
    named = {pair for pairs in wanted.values() for pair in pairs if pair[0] == CONGESTION_CONTROL}
    for pair in sorted(named):
        try:
            was = await machine.sysctl([pair])
        except LabError as error:
            note(f"set for each socket, because the default cannot be changed: {error}")
            wanted = {host: tuple(each for each in pairs if each != pair) for host, pairs in wanted.items()}
        else:
            await machine.sysctl(was)
    return wanted
