# SPDX-License-Identifier: Apache-2.0
"""`atoll --version`: which atoll, which of its two programs."""

from collections.abc import Callable
from importlib import metadata

from atoll_core.errors import AtollError
from atoll_emulation.uml.cache import kernel_status
from atoll_hosts.binary import find_binary
from atoll_testbed.run.run_request import revision


def version_text() -> str:
    """Return version, revision, the path of atoll-host, and the kernel for virtual time; remedies for missing ones."""
    return (
        f"atoll {metadata.version('atoll')}, revision {revision() or 'unknown'}\n"
        f"atoll-host: {_text_or_problem(lambda: str(find_binary()))}\n"
        f"kernel for virtual time: {_text_or_problem(_kernel_text)}"
    )


def _kernel_text() -> str:
    status = kernel_status()
    return status.problem_text or f"Linux {status.facts['release']}, {status.directory}"


def _text_or_problem(text: Callable[[], str]) -> str:
    try:
        return text()
    except AtollError as error:
        return str(error)
