# SPDX-License-Identifier: Apache-2.0
"""Attempts on the workers of a Dask cluster, which share nothing but its scheduler (docs/decisions/0051).

``distributed`` is an optional package (``atoll[cluster]``); this module alone imports it.
"""

import asyncio
import contextlib
import ipaddress
import shutil
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec
from urllib.parse import urlsplit

from atoll_analysis.run_directory import RunDir
from atoll_core.errors import AtollError, MachineError, UsageError
from atoll_studies.study_directory import FAILED, StudyDirectory
from atoll_studies.sweeping.pool import AttemptEnd, attempt_all
from atoll_studies.sweeping.remote_attempt import AttemptResult, Inputs, make_attempt, read_inputs, unpack

P = ParamSpec("P")
Client = Any  # distributed.Client, which has only some of its types

_CONNECT_TIMEOUT_S = 10
_KILLED_EXIT_CODE = -9


def require_address(address: str) -> None:
    """Refuse an address by which others could read or change what is sent. Raises UsageError."""
    remedy = "write tls://HOST:PORT, or tcp://127.0.0.1:PORT for a scheduler on this machine"
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"--scheduler {address}: not an address; {remedy}") from None
    if parts.scheme not in ("tcp", "tls") or host is None or port is None:
        raise UsageError(f"--scheduler {address}: not an address; {remedy}")
    if parts.scheme == "tcp" and not _is_loopback(host):
        raise UsageError(
            f"--scheduler {address}: a scheduler elsewhere runs code of whoever reaches it, so TLS is required; "
            "write tls://, with the keys in Dask's configuration (docs/studies.md)"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.asynccontextmanager
async def _connected(address: str) -> AsyncGenerator[Client]:
    try:
        import distributed
    except ImportError:
        raise MachineError("--scheduler needs the package distributed; install atoll[cluster]") from None
    try:
        security: Any = distributed.Security()  # of Dask's configuration
        if address.startswith("tls:") and security.get_connection_args("client")["ssl_context"] is None:
            raise MachineError(
                f"--scheduler {address}: Dask's configuration names no TLS certificates; set ca-file and client in "
                "~/.config/dask/tls.yaml (docs/studies.md)"
            )
        client: Client = await distributed.Client(
            address, asynchronous=True, timeout=_CONNECT_TIMEOUT_S, direct_to_workers=False, set_as_default=False
        )
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise MachineError(f"no connection to the scheduler at {address}: {reason}") from None
    try:
        yield client
    finally:
        await client.close()


class Cluster:
    """Makes attempts as tasks of a cluster, one for each thread of its workers.

    A task whose worker dies is given to another one. Attempts that are in progress when :meth:`run` is cancelled go on
    to their end, and are dropped.
    """

    def __init__(self, study: StudyDirectory, address: str) -> None:
        """Raises UsageError for an address without TLS, unless it is of this machine."""
        require_address(address)
        self._study = study
        self._address = address

    def jobs(self) -> int:
        """The number of attempts that are made at a time. Raises MachineError without a scheduler or worker."""

        async def count() -> int:
            async with _connected(self._address) as client:
                return await self._threads(client)

        if not (threads := asyncio.run(count())):
            raise MachineError(f"the scheduler at {self._address} has no workers; start some (docs/studies.md)")
        return threads

    async def run(
        self, points: Iterable[str], on_start: Callable[[str], None], on_end: Callable[[AttemptEnd], bool]
    ) -> None:
        """Make attempts at the points, as :func:`attempt_all` does. Raises MachineError if the scheduler is gone."""
        async with _connected(self._address) as client:

            async def attempt(point: str) -> AttemptEnd:
                result = await self._run_attempt(client, point)
                if result.archive:
                    await _run_to_the_end(self._store, point, result)
                return AttemptEnd(point, result.exit_code, result.message)

            async def jobs() -> int:
                return max(1, await self._threads(client))  # without a worker, one waits for the next

            await attempt_all(points, attempt, jobs, on_start, on_end)

    async def _run_attempt(self, client: Client, point: str) -> AttemptResult:
        from distributed import CancelledError, KilledWorker

        inputs = await asyncio.to_thread(read_inputs, self._study, point)
        future = client.submit(_attempt_on_worker, inputs, pure=False)
        try:
            return await future
        except KilledWorker as error:
            return AttemptResult(b"", "", _KILLED_EXIT_CODE, " ".join(str(error).split()))
        except CancelledError:
            raise self._lost_scheduler() from None
        except AtollError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a task raises: a full disk, a module that is not there
            raise MachineError(f"a worker of {self._address} could not make an attempt: {_reason(error)}") from None
        finally:
            future.release()

    async def _threads(self, client: Client) -> int:
        """The threads of the workers that the scheduler has now. Raises MachineError if it is gone."""
        try:
            threads: dict[str, int] = await client.nthreads()
        except (OSError, TimeoutError):
            raise self._lost_scheduler() from None
        return sum(threads.values())

    def _lost_scheduler(self) -> MachineError:
        return MachineError(
            f"the scheduler at {self._address} no longer answers; repeat the sweep with --resume for the remaining runs"
        )

    def _store(self, point: str, result: AttemptResult) -> None:
        """Add an attempt that came back to the study's directory. Raises RunError."""
        working = self._study.working / point
        shutil.rmtree(working, ignore_errors=True)
        working.mkdir(parents=True)
        directory = unpack(result, working)
        attempt = self._study.attempt_in(directory)
        attempt_path = self._study.free_path(point, directory.name)
        if attempt.outcome != FAILED:
            run = RunDir.open(directory)
            run.write_summary({**run.summary(), "run_dir": str(attempt_path)})
        self._study.add_attempt(directory, point, replace(attempt, path=attempt_path))
        shutil.rmtree(working, ignore_errors=True)


def _attempt_on_worker(inputs: Inputs) -> AttemptResult:
    """The task. Dask removes the worker's folder when the worker ends; if it is killed, when the next one starts."""
    from distributed import get_worker

    return make_attempt(inputs, Path(get_worker().local_directory))


async def _run_to_the_end(work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do work in a thread. Cancelled, it waits for the thread, which cannot be stopped, before it raises."""
    thread = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not thread.done():
        try:
            await asyncio.wait({thread})
        except asyncio.CancelledError as error:
            cancelled = error
    thread.result()
    if cancelled:
        raise cancelled


def _reason(error: Exception) -> str:
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
