# SPDX-License-Identifier: Apache-2.0
"""Resolve the raw transfers of an experiment: the hosts, ports and chains of each."""

from collections.abc import Iterator
from typing import Any

from atoll_core.description.raw_experiment import RawExperiment, RawTransfer
from atoll_core.description.validation_messages import Mistakes, on_line, suggest
from atoll_core.description.yaml_document import Document, KeyPath
from atoll_core.experiment.experiment import ONLY_TRANSFER, Experiment, Protocol, Transfer
from atoll_core.experiment.traffic import FlowDirection
from atoll_core.lab.network import HostRole, Network
from atoll_core.plural import listed

_FIRST_PORT = 5201
_OF_WORLD = (HostRole.WORLD_SERVER, HostRole.WORLD_SPECIAL)
_OF_ISLAND = (HostRole.ISLAND_CLIENT, HostRole.ISLAND_SPECIAL)


def resolve_transfers(raw: RawExperiment, document: Document) -> tuple[Transfer, ...]:
    """Every transfer, in the order of the description."""
    return tuple(
        _resolve(transfer, name, document.line((*key_path, "size")), _FIRST_PORT + index)
        for index, (name, key_path, transfer) in enumerate(_described(raw))
    )


def check_transfers(raw: RawExperiment, network: Network, mistakes: Mistakes) -> None:
    """Note transfers that begin too late, between hosts that take part in none, or at a port of another one."""
    if raw.transfer and raw.transfers:
        mistakes.note(("transfer",), "there are 'transfers', too; make it one of them")
    if ONLY_TRANSFER in raw.transfers:
        mistakes.note(("transfers", ONLY_TRANSFER), "this name is that of the key 'transfer'; choose another one")
    first_by_port: dict[int, str] = {}
    for transfer in resolve_transfers(raw, mistakes.document):
        key_path, port = transfer.key_path, transfer.port
        if transfer.start >= raw.duration:
            text = f"{transfer.start} is not before the end at {raw.duration}; start it earlier"
            mistakes.note((*key_path, "start"), text)
        senders, receivers = (_OF_ISLAND, _OF_WORLD) if transfer.is_upload else (_OF_WORLD, _OF_ISLAND)
        _check_host(network, mistakes, (*key_path, "from"), transfer, transfer.sender, senders)
        _check_host(network, mistakes, (*key_path, "to"), transfer, transfer.receiver, receivers)
        first = first_by_port.setdefault(port, transfer.name)
        if first != transfer.name:
            of_first = f"transfer {first!r}{on_line(mistakes.document.line(('transfers', first)))}"
            text = f"{port} is the port of {of_first}, and captures tell transfers apart by their ports"
            mistakes.note((*key_path, "port"), f"{text}; give each its own")
        servers = {host.name for host in network.with_role(HostRole.WORLD_SERVER)}
        if transfer.world in servers and port == raw.traffic.port:
            text = f"{port} is the port of the channels at {transfer.world!r}; choose another one"
            mistakes.note((*key_path, "port"), text)


def check_transfer_chains(experiment: Experiment, network: Network, mistakes: Mistakes) -> None:
    """Note transfers that start on another chain than they say."""
    later = [version.at for version in experiment.versions]
    starts = [
        (transfer, experiment.at(at))
        for transfer in experiment.all_transfers
        for at in (transfer.start, *(at for at in later if transfer.every and at > transfer.start))
    ]
    for transfer, state in starts:
        world, island = transfer.ends(network)
        carrier = state.carrier(world.address, island.address, Protocol.TCP).name
        if transfer.chain in (None, carrier):
            continue
        key_path = (*transfer.key_path, "chain")
        names = [chain.name for chain in state.chains]
        if transfer.chain not in names:
            mistakes.note(key_path, f"unknown chain {transfer.chain!r}; {suggest(transfer.chain, names, 'chains')}")
            continue
        hosts = [
            host.name
            for host in network.island_hosts
            if state.carrier(world.address, host.address, Protocol.TCP).name == transfer.chain
        ]
        key = "from" if transfer.is_upload else "to"
        remedy = f"write {key!r} with one of {listed(hosts)}" if hosts else f"it carries no TCP from {world.name!r}"
        text = f"{carrier!r} carries TCP from {world.name!r} to {island.name!r}, not {transfer.chain!r}"
        mistakes.note(key_path, f"{text}; {remedy}")


def _described(raw: RawExperiment) -> Iterator[tuple[str, KeyPath, RawTransfer]]:
    if raw.transfer:
        yield ONLY_TRANSFER, (ONLY_TRANSFER,), raw.transfer
    for name, transfer in raw.transfers.items():
        yield name, ("transfers", name), transfer


def _resolve(raw: RawTransfer, name: str, line: int, port: int) -> Transfer:
    settings: dict[str, Any] = dict(raw)
    sender, receiver = settings.pop("from_"), settings.pop("to")
    settings["port"] = raw.port or port
    return Transfer(**settings, name=name, sender=sender, receiver=receiver, line=line)


def _check_host(
    network: Network,
    mistakes: Mistakes,
    key_path: KeyPath,
    transfer: Transfer,
    name: str | None,
    roles: tuple[HostRole, ...],
) -> None:
    """Note a host that is unknown, or that has none of the roles."""
    hosts = {host.name: host for host in network.hosts}
    fitting = [host.name for role in roles for host in network.with_role(role)]
    if name is not None and name not in fitting:
        kind = f"{name!r} is a host of role {hosts[name].role}" if name in hosts else f"unknown host {name!r}"
        text = f"{kind}; {suggest(name, fitting, 'hosts of the right roles')}"
        is_of_other_side = name in hosts and hosts[name].role in (*_OF_WORLD, *_OF_ISLAND)
        other = FlowDirection.DOWNLOAD if transfer.is_upload else FlowDirection.UPLOAD
        mistakes.note(key_path, f"{text}, or write 'direction: {other}'" if is_of_other_side else text)
