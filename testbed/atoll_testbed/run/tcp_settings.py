# SPDX-License-Identifier: Apache-2.0
"""TCP settings that decide results, pinned on every end host for a run and restored after it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from atoll_controller.planner.host_config import CONGESTION_CONTROL, tcp_sysctls
from atoll_core.errors import LabError
from atoll_core.experiment.experiment import Experiment
from atoll_testbed.testbed import Testbed

Settings = dict[str, tuple[tuple[str, str], ...]]
"""Sysctls by host: pairs of name and value."""


@contextlib.asynccontextmanager
async def pinned_tcp(
    testbed: Testbed, experiment: Experiment, note: Callable[[str], None]
) -> AsyncGenerator[tuple[Settings, Settings]]:
    """Pin them for as long as the context lasts: what is wanted, by host, and what it was before.

    ``note`` is told what cannot be pinned. Raises LabError when a machine does not take them; the others have theirs
    back then.
    """
    machine, hosts = testbed.machine, [host.name for host in testbed.network.hosts]
    wanted = await _permitted(testbed, {host: tcp_sysctls(experiment, host) for host in hosts}, note)
    answers = await asyncio.gather(*(machine(host).sysctl(wanted[host]) for host in hosts), return_exceptions=True)
    was: Settings = {}
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


async def _permitted(testbed: Testbed, wanted: Settings, note: Callable[[str], None]) -> Settings:
    """The settings without default congestion controls that the kernel reserves to its first namespace.

    Then only the sockets of our own programs use it, which they ask for one by one; a kernel that lacks it makes
    them fail. Which controls are restricted: net.ipv4.tcp_allowed_congestion_control.
    """
    machine = testbed.machine(testbed.network.hosts[0].name)
    named = {pair for pairs in wanted.values() for pair in pairs if pair[0] == CONGESTION_CONTROL}
    for pair in sorted(named):
        try:
            was = await machine.sysctl([pair])
        except LabError as error:
            note(f"set per socket, not as the default: {error}")
            wanted = {host: tuple(each for each in pairs if each != pair) for host, pairs in wanted.items()}
        else:
            await machine.sysctl(was)
    return wanted
