# SPDX-License-Identifier: Apache-2.0
"""The work of `atoll hosts`: a result line for each machine on standard output, errors on standard error.

Importing this module imports asyncssh (0.3 s): the commands do it when they run.
"""

import asyncio
import json
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncssh

from atoll_cli.terminal.confirmation import confirm
from atoll_core.description.resolve_inventory import load_inventory
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import AtollError, UsageError
from atoll_core.lab.inventory import InventoryMachine
from atoll_hosts.machine import clock_offset
from atoll_hosts.ssh.connections import Outcome, SshConnections, jump_host, on_each
from atoll_hosts.ssh.enrolment import ShownKey, show_key
from atoll_hosts.ssh.enrolment import enroll as write_keys
from atoll_hosts.ssh.installation import install_binary
from atoll_hosts.ssh.remote_agent import start_agent

MachineFacts = dict[str, Any]
HostCommand = Callable[[asyncssh.SSHClientConnection, InventoryMachine], Awaitable[MachineFacts]]


def enroll_keys(file: Path, names: Sequence[str], *, yes: bool, as_json: bool) -> int:
    """`atoll hosts enroll`; returns the exit code."""
    return asyncio.run(_enroll(chosen_machines(file, names), yes=yes, as_json=as_json))


async def _enroll(machines: list[InventoryMachine], *, yes: bool, as_json: bool) -> int:
    """Enrol keys of jump hosts first: machines behind them cannot be reached before they are trusted."""
    jumps = {machine.access.jump: machine for machine in machines if machine.access.jump}
    failed = False
    report: dict[str, MachineFacts] = {}
    for group in (
        [(jump_host(machine.access).host, jump_host(machine.access)) for machine in jumps.values()],
        [(machine.name, machine.access) for machine in machines],
    ):
        async with SshConnections() as connections:
            results = await asyncio.gather(
                *(show_key(connections, name, access) for name, access in group), return_exceptions=True
            )
        keys: list[ShownKey] = []
        for (name, access), key in zip(group, results, strict=True):
            if isinstance(key, AtollError):
                print(key, file=sys.stderr)
                failed = True
                continue
            if isinstance(key, BaseException):
                raise key
            report[name] = {"host": key.host, "fingerprint": key.fingerprint, "known": key.known}
            if not as_json:
                print(f"{name:<10} {access!s:<24} {key.algorithm} {key.fingerprint}{'  known' if key.known else ''}")
            keys += [] if key.known else [key]
        question = f"trust {'this key' if len(keys) == 1 else f'these {len(keys)} keys'} from now on?"
        otherwise = "compare the keys with those on the machines' consoles, then add --yes"
        if keys and (yes or confirm(question, otherwise, as_json=as_json)):
            write_keys(keys)
        failed = failed or not all(map(_is_enrolled, keys))
    if as_json:
        print(json.dumps({"ok": not failed, "machines": report}))
    return 1 if failed else 0


def _is_enrolled(key: ShownKey) -> bool:
    return key.file.is_file() and key.line in key.file.read_text(encoding="utf-8")


def install_binaries(file: Path, names: Sequence[str], *, as_json: bool) -> int:
    """`atoll hosts install`; returns the exit code."""

    async def work(connection: asyncssh.SSHClientConnection, machine: InventoryMachine) -> MachineFacts:
        return await install_binary(connection, machine.name, machine.access, machine.arch)

    def line(facts: MachineFacts) -> str:
        sent = f"{facts['bytes_sent'] / 1e6:.1f} MB" if facts["bytes_sent"] else "already installed"
        return f"{facts['arch']:<8} {facts['binary']}  {sent}"

    return _on_machines(file, names, work, line, as_json=as_json)


def ping_agents(file: Path, names: Sequence[str], *, as_json: bool) -> int:
    """`atoll hosts ping`; returns the exit code."""

    async def work(connection: asyncssh.SSHClientConnection, machine: InventoryMachine) -> MachineFacts:
        agent = await start_agent(connection, machine.name, machine.access)
        clock = await clock_offset(agent)
        hello = agent.hello
        await agent.close()
        facts: MachineFacts = {"version": hello["version"], "arch": hello["arch"], "rtt_ns": clock.rtt_ns}
        offset = {"clock_offset_ns": clock.offset_ns, "clock_bound_ns": clock.bound_ns}
        return facts | offset | {"clock": str(clock)}

    def line(facts: MachineFacts) -> str:
        rtt = f"{facts['rtt_ns'] / 1e6:6.2f} ms"
        return f"atoll-host {facts['version']} {facts['arch']:<8} {rtt}  clock {facts['clock']}"

    return _on_machines(file, names, work, line, as_json=as_json)


def show_status(file: Path, names: Sequence[str], *, as_json: bool) -> int:
    """`atoll hosts status`; returns the exit code."""

    async def work(connection: asyncssh.SSHClientConnection, machine: InventoryMachine) -> MachineFacts:
        agent = await start_agent(connection, machine.name, machine.access)
        facts = {**agent.hello, **await agent.describe()}
        await agent.close()
        for key in ("type", "id", "ok", "pid"):
            facts.pop(key, None)
        interfaces = (interface.name for interface in machine.interfaces)
        facts["missing_interfaces"] = [name for name in interfaces if name not in facts["interfaces"]]
        return facts

    return _on_machines(file, names, work, _status_line, as_json=as_json)


def _status_line(facts: MachineFacts) -> str:
    problems = [f"no interface {name}" for name in facts["missing_interfaces"]]
    problems += [f"no {name}" for name in facts["missing_tools"]]
    problems += [] if facts["may_configure"] else ["may not configure interfaces"]
    problems += [] if facts["may_capture"] else ["may not capture"]
    in_cgroup = [limit for limit in ("memory", "leftovers") if facts.get("limits", {}).get(limit) == "cgroup"]
    limits = f"limits by {'cgroup' if 'memory' in in_cgroup else 'rlimit'}{', jobs in cgroups' if in_cgroup else ''}"
    use_text = f"in use by {facts['claimed_by']}" if facts["claimed_by"] else "free"
    disk = f"{facts['free_bytes'] / 1e9:.1f} GB free"
    return f"{facts['arch']:<8} {facts['kernel']}, {disk}; {limits}; {use_text}; {', '.join(problems) or 'ready'}"


def run_command(file: Path, names: Sequence[str], command: Sequence[str], *, as_json: bool) -> int:
    """`atoll hosts exec`; returns 0 if the command's exit status was 0 on every machine, else 1."""

    async def work(connection: asyncssh.SSHClientConnection, _: InventoryMachine) -> MachineFacts:
        result = await connection.run(shlex.join(command), check=False)
        return {"code": result.returncode, "stdout": str(result.stdout or ""), "stderr": str(result.stderr or "")}

    def output(facts: MachineFacts) -> str:
        text = (facts["stdout"] + facts["stderr"]).rstrip("\n") or f"exit status {facts['code']}"
        return text.replace("\n", "\n" + " " * 11)

    return _on_machines(file, names, work, output, as_json=as_json, is_good=lambda facts: facts["code"] == 0)


def chosen_machines(file: Path, names: Sequence[str]) -> list[InventoryMachine]:
    """The machines of an inventory with these names; all without names. Raises DescriptionError, UsageError."""
    inventory = load_inventory(file)
    machine_by_name = {machine.name: machine for machine in inventory.machines}
    for name in names:
        if name not in machine_by_name:
            raise UsageError(f"{name}: no such machine in {file}; {suggest(name, machine_by_name, 'machines')}")
    return [machine_by_name[name] for name in dict.fromkeys(names)] or list(inventory.machines)


def _on_machines(
    file: Path,
    names: Sequence[str],
    work: HostCommand,
    line_of: Callable[[MachineFacts], str],
    *,
    as_json: bool,
    is_good: Callable[[MachineFacts], bool] = lambda _: True,
) -> int:
    """Do ``work`` over SSH on all machines in parallel; print each result as it arrives; returns 1 if any failed."""
    machines = chosen_machines(file, names)

    def print_outcome(outcome: Outcome[MachineFacts]) -> None:
        if outcome.error is not None:
            print(outcome.error, file=sys.stderr, flush=True)
        elif not as_json:
            print(f"{outcome.machine:<10} {line_of(outcome.result or {})}", flush=True)

    async def run_all() -> list[Outcome[MachineFacts]]:
        async with SshConnections() as connections:

            async def on_machine(machine: InventoryMachine) -> MachineFacts:
                connection = await connections.connect(machine.name, machine.access)
                try:
                    return await work(connection, machine)
                finally:
                    connection.abort()

            return await on_each(machines, on_machine, print_outcome)

    outcomes = asyncio.run(run_all())
    ok = all(outcome.result is not None and is_good(outcome.result) for outcome in outcomes)
    if as_json:
        answers = {done.machine: done.result if done.error is None else {"error": done.error} for done in outcomes}
        print(json.dumps({"ok": ok, "machines": answers}))
    return 0 if ok else 1
