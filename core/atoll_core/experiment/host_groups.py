# SPDX-License-Identifier: Apache-2.0
"""Hosts of both ends, indexed by prefix and grouped by the chains that carry their traffic.

A few groups represent all pairs of hosts: 200 servers and 800 clients are 160,000 pairs, of which a chain for one
prefix makes two groups.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from itertools import product

from atoll_core.experiment.experiment import Experiment, TrafficSelector
from atoll_core.lab.network import Host, Network


class Side:
    """The hosts of one end, in the order of the description. ``prefixes``: the chains' prefixes at this end."""

    def __init__(self, hosts: tuple[Host, ...], prefixes: Iterable[IPv4Network | None]) -> None:
        self.hosts = hosts
        self._hosts_by_address = {host.address: (host,) for host in hosts}
        self._hosts_by_prefix: dict[IPv4Network, tuple[Host, ...]] = {}
        unique_prefixes = tuple(dict.fromkeys(prefix for prefix in prefixes if prefix is not None))
        self._memberships = {host.name: tuple(host.address in prefix for prefix in unique_prefixes) for host in hosts}
        groups: dict[tuple[bool, ...], list[Host]] = {}
        for host in hosts:
            groups.setdefault(self._memberships[host.name], []).append(host)
        self.groups = tuple(map(tuple, groups.values()))
        """Hosts within the same prefixes: a chain carries traffic of all hosts of a group or of none."""

    def membership(self, host: Host) -> tuple[bool, ...]:
        """Equal for hosts of one group."""
        return self._memberships[host.name]

    def hosts_in(self, prefix: IPv4Network | None) -> tuple[Host, ...]:
        """The hosts within a prefix; all for None."""
        if prefix is None:
            return self.hosts
        if prefix.prefixlen == prefix.max_prefixlen:
            return self._hosts_by_address.get(prefix.network_address, ())
        if prefix not in self._hosts_by_prefix:
            self._hosts_by_prefix[prefix] = tuple(host for host in self.hosts if host.address in prefix)
        return self._hosts_by_prefix[prefix]


class Sides:
    """Both ends of a lab, grouped by the chains of one or more experiments."""

    def __init__(self, network: Network, *experiments: Experiment) -> None:
        carries: list[TrafficSelector] = [chain.carries for experiment in experiments for chain in experiment.chains]
        self.world = Side(network.world_hosts, (selector.world for selector in carries))
        self.island = Side(network.island_hosts, (selector.island for selector in carries))

    def blocks(self) -> Iterator[tuple[tuple[Host, ...], tuple[Host, ...]]]:
        """Pairs of a world group and an island group: packets of one protocol between them take the same chain."""
        return product(self.world.groups, self.island.groups)
