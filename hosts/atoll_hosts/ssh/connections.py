# SPDX-License-Identifier: Apache-2.0
"""SSH connections to the machines of an inventory, and work on all in parallel.

Host keys are always verified; there are no interactive questions.

Importing this module imports asyncssh (0.3 s): do it only where it is needed.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import asyncssh

from atoll_core.errors import AtollError, LabError
from atoll_core.lab.inventory import InventoryMachine, SshAccess, split_target

CONNECT_TIMEOUT_S = 15.0

# Handshakes use CPU time: a hundred at once would all take as long as the last one, and heartbeats of connected agents
# would be delayed.
_HANDSHAKES_AT_ONCE = 16

_USER_KNOWN_HOSTS = Path("~/.ssh/known_hosts")
_SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")


def known_hosts_file(access: SshAccess) -> Path:
    """The file to which host keys are added."""
    return Path(access.known_hosts).expanduser() if access.known_hosts else _USER_KNOWN_HOSTS.expanduser()


class _Client(asyncssh.SSHClient):
    """Keeps the key of a host that is not trusted."""

    def __init__(self) -> None:
        self.shown_key: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Return False: a key is trusted only if it is in a file of known hosts."""
        del host, addr, port
        self.shown_key = key
        return False


class SshConnections:
    """Connections to many machines in parallel; those through the same jump host share the connection to it.

    An asynchronous context manager, which closes the connections to jump hosts at its end.
    """

    def __init__(self) -> None:
        self._jump_connections: dict[SshAccess, asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._handshake_slots = asyncio.Semaphore(_HANDSHAKES_AT_ONCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to jump hosts, and with them the connections through them."""
        for connection in self._jump_connections.values():
            connection.cancel()
            with contextlib.suppress(asyncio.CancelledError, LabError):
                (await connection).abort()
        self._jump_connections.clear()

    async def connect(self, name: str, access: SshAccess) -> asyncssh.SSHClientConnection:
        """Connect to a machine; ``name`` is for messages. Raises LabError in one line."""
        options = await self.options(name, access)
        client = _Client()
        try:
            async with self._handshake_slots, asyncio.timeout(CONNECT_TIMEOUT_S):
                return await asyncssh.connect(client_factory=lambda: client, **options)
        except TimeoutError:
            raise LabError(f"{name}: {access} does not answer within {CONNECT_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise LabError(f"{name}: {access} cannot be reached: {_error_text(error)}") from None
        except asyncssh.HostKeyNotVerifiable as error:
            raise LabError(_untrusted_key_message(name, access, client, error)) from None
        except asyncssh.KeyExchangeFailed as error:
            raise LabError(f"{name}: {access}: no common SSH algorithms: {error.reason}") from None
        except asyncssh.PermissionDenied:
            login = f"user {access.user!r}" if access.user else "this user"
            remedy = "add your public key to its ~/.ssh/authorized_keys (ssh-copy-id), or correct `identity`"
            raise LabError(f"{name}: {access} refuses {login}; {remedy}") from None
        except (asyncssh.Error, ValueError) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
            raise LabError(f"{name}: {access}: {reason}") from None

    async def options(self, name: str, access: SshAccess) -> dict[str, Any]:
        """The options of asyncssh for a machine. Raises LabError if its jump host cannot be reached."""
        options: dict[str, Any] = {"host": access.host, "known_hosts": _known_hosts(access)}
        if access.port is not None:
            options["port"] = access.port
        if access.user is not None:
            options["username"] = access.user
        if access.identity is not None:
            options["client_keys"] = [access.identity]
        if access.config is not None:
            options["config"] = [access.config]
        if access.jump is not None:
            options["tunnel"] = await self._connect_jump_host(name, access)
        return options

    async def _connect_jump_host(self, name: str, access: SshAccess) -> asyncssh.SSHClientConnection:
        jump = jump_host(access)
        if jump not in self._jump_connections:
            self._jump_connections[jump] = asyncio.create_task(self.connect(f"jump host {jump.host}", jump))
        try:
            return await asyncio.shield(self._jump_connections[jump])
        except LabError as error:
            raise LabError(f"{name}: {error}") from None


def jump_host(access: SshAccess) -> SshAccess:
    """The SSH access to the jump host of a machine."""
    user, host, port = split_target(access.jump or "")
    options: dict[str, Any] = {"identity": access.identity, "config": access.config, "known_hosts": access.known_hosts}
    return SshAccess(host=host, user=user or access.user, port=port, **options)


@contextlib.asynccontextmanager
async def connected(name: str, access: SshAccess) -> AsyncGenerator[asyncssh.SSHClientConnection]:
    """A connection for the duration of the block. Raises LabError."""
    async with SshConnections() as connections:
        connection = await connections.connect(name, access)
        try:
            yield connection
        finally:
            connection.abort()


def _known_hosts(access: SshAccess) -> Any:
    """The existing files of known hosts. Always explicit: without any, no host is trusted."""
    if access.known_hosts is not None:
        files = [known_hosts_file(access)]
    else:
        files = [_USER_KNOWN_HOSTS.expanduser(), _SYSTEM_KNOWN_HOSTS]
    existing = [str(file) for file in files if file.is_file()]
    return existing or asyncssh.import_known_hosts("")


def _untrusted_key_message(name: str, access: SshAccess, client: _Client, error: asyncssh.HostKeyNotVerifiable) -> str:
    if client.shown_key is None:
        return f"{name}: {access}: {error.reason}"
    digest = client.shown_key.get_fingerprint()
    file = known_hosts_file(access)
    if _has_keys(access):
        return (
            f"{name}: the host key of {access} has changed ({digest}): it may be another machine, a new installation "
            f"or an attack; if you know the reason, remove the old key from {file} and run `atoll hosts enroll`"
        )
    return f"{name}: the host key of {access} is not known ({digest}); `atoll hosts enroll` shows and adds it"


def _has_keys(access: SshAccess) -> bool:
    port = access.port if access.port not in (None, 22) else None
    return bool(asyncssh.match_known_hosts(_known_hosts(access), access.host, "", port)[0])


def _error_text(error: OSError) -> str:
    """The message of the kernel or resolver; asyncio's own messages repeat the address."""
    if error.errno is not None and not isinstance(error, ConnectionRefusedError) and error.strerror:
        return error.strerror.rpartition("] ")[2]
    return "connection refused; is sshd running there?" if isinstance(error, ConnectionRefusedError) else str(error)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The outcome on one machine: the result, or an error."""

    machine: str
    result: T | None
    error: str | None


async def on_each(
    machines: Sequence[InventoryMachine],
    work: Callable[[InventoryMachine], Awaitable[T]],
    report: Callable[[Outcome[T]], None] = lambda _: None,
) -> list[Outcome[T]]:
    """Do ``work`` on all machines in parallel; returns outcomes in their order, and calls ``report`` as they arrive.

    A machine that fails (AtollError) does not affect the others.
    """

    async def work_on(machine: InventoryMachine) -> Outcome[T]:
        try:
            outcome: Outcome[T] = Outcome(machine.name, await work(machine), None)
        except AtollError as error:
            outcome = Outcome(machine.name, None, str(error))
        report(outcome)
        return outcome

    return list(await asyncio.gather(*(work_on(machine) for machine in machines)))
