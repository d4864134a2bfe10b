# SPDX-License-Identifier: Apache-2.0
"""Resolve a raw experiment.yaml, with its lab, to an Experiment: look up names, check values."""

from collections.abc import Iterator
from dataclasses import replace

from atoll_core.description.raw_experiment import RawExperiment, RawLink
from atoll_core.description.raw_traffic import RawTraffic
from atoll_core.description.referenced_files import ReferencedFiles
from atoll_core.description.resolve_box import pair_disagreements, resolve_settings
from atoll_core.description.resolve_chains import check_chains, hops_of
from atoll_core.description.resolve_changes import check_changes, described_versions, resolve_version
from atoll_core.description.resolve_lab import Lab
from atoll_core.description.resolve_link import resolve_direction
from atoll_core.description.resolve_traffic import Given, check_groups, resolve_traffic, resolve_udp
from atoll_core.description.resolve_transfers import check_transfer_chains, check_transfers, resolve_transfers
from atoll_core.description.validation_messages import Mistakes, nearest, suggest
from atoll_core.description.yaml_document import Document, KeyPath
from atoll_core.errors import DescriptionError
from atoll_core.experiment.experiment import (
    DIRECTIONS,
    ONLY_TRANSFER,
    BoxConfiguration,
    CaptureSettings,
    Chain,
    Experiment,
    Link,
    PingSeries,
    Protocol,
    SteeringVersion,
    TcpSettings,
    VerdictBounds,
)
from atoll_core.experiment.path_mtu import PathMtus
from atoll_core.experiment.peers import find_peers
from atoll_core.experiment.traffic import FlowDirection, Traffic
from atoll_core.experiment.trunk_load import TrunkSteering, delay_boxes_in_use, total_rates, trunk_loads
from atoll_core.experiment.tunnels import allocate_tunnels, pairs_of
from atoll_core.lab.network import HostRole
from atoll_core.units import Rate, Size

_REQUIRED_ROLES = {  # by every experiment
    HostRole.WORLD_SPECIAL: "the ping series starts there",
    HostRole.WORLD_WHISTLE: "the whistle pings start there",
    HostRole.ISLAND_SPECIAL: "ping series and whistle go there",
}
_ROLES_FOR_LOAD = {
    HostRole.WORLD_SERVER: "the channels receive from it",
    HostRole.ISLAND_CLIENT: "the channels run on it",
}


def resolve_experiment(raw: RawExperiment, document: Document, lab: Lab, files: ReferencedFiles) -> Experiment:
    """The experiment. Raises DescriptionError with all mistakes of meaning.

    ``files`` reads the other files that it names.
    """
    resolver = _Resolver(raw, document, lab, files)
    resolver.check()
    if resolver.mistakes.diagnostics:
        raise DescriptionError(tuple(dict.fromkeys(resolver.mistakes.diagnostics)))  # a file may be named twice
    return resolver.experiment()


class _Resolver:
    def __init__(self, raw: RawExperiment, document: Document, lab: Lab, files: ReferencedFiles) -> None:
        self.document = document
        self.raw = raw
        self.lab = lab
        self.network = lab.network
        self.files = files
        self.mistakes = Mistakes(document)
        self.note = self.mistakes.note
        self.links = tuple(self.resolve_links())
        self.clients = [host.name for host in self.network.with_role(HostRole.ISLAND_CLIENT)]
        self.traffic = self.resolve_traffic(raw.traffic, [(("traffic",), raw.traffic)])
        self.udp = resolve_udp(raw.udp, self.mistakes, files) if raw.udp else None
        self.versions = tuple(self.resolve_versions())
        self.boxes = tuple(self.resolve_boxes())

    def experiment(self) -> Experiment:
        raw, line = self.raw, self.document.line
        versions, transfers = self.versions, resolve_transfers(raw, self.document)
        tcp = dict(raw.tcp)
        lines = tuple((key, line(("tcp", key))) for key in sorted({"buffer_max", *raw.tcp.model_fields_set}))
        tcp |= {"servers": tuple(raw.tcp.servers.items()), "lines": lines}
        return Experiment(
            name=raw.name,
            file=self.document.file,
            lab=self.lab.document.file,
            seed=raw.seed,
            duration=raw.duration,
            chain=versions[0].chain,
            links=self.links,
            latency=versions[0].latency,
            traffic=self.traffic,
            udp=self.udp,
            transfer=next((transfer for transfer in transfers if transfer.name == ONLY_TRANSFER), None),
            transfers=tuple(transfer for transfer in transfers if transfer.name != ONLY_TRANSFER),
            ping=PingSeries(raw.ping.interval, line(("ping", "interval"))),
            captures=CaptureSettings(**dict(raw.captures)),
            tcp=TcpSettings(**tcp),
            limits=VerdictBounds(**dict(raw.limits)),
            boxes=self.boxes,
            branches=versions[0].branches,
            schedule=versions if raw.changes else (),
            given=tuple(
                (".".join(map(str, key_path)), setting) for key_path, setting in self.document.settings.items()
            ),
        )

    def resolve_links(self) -> Iterator[Link]:
        """Links in the order of the chain, then those that are in no chain."""
        hops = hops_of(self.raw)
        for name in sorted(self.raw.links, key=lambda name: (*hops, name).index(name)):
            yield self.resolve_link(self.raw.links[name], ("links", name))

    def resolve_link(self, raw: RawLink, key_path: KeyPath) -> Link:
        to_island, to_world = (
            resolve_direction(getattr(raw, name), (*key_path, name), self.mistakes, self.files) for name in DIRECTIONS
        )
        return Link(str(key_path[-1]), to_island, to_world, raw.counts, self.document.line(key_path))

    def resolve_traffic(self, raw: RawTraffic, given: Given) -> Traffic:
        return resolve_traffic(raw, given, self.clients, self.mistakes, self.files)

    def resolve_versions(self) -> Iterator[SteeringVersion]:
        """Every version; with load or links if any change names them."""
        changes = self.raw.changes
        traffic, links = self.traffic, self.links
        given: Given = [(("traffic",), self.raw.traffic)]
        changed = {key for key in ("traffic", "udp", "links") if any(getattr(change, key) for change in changes)}
        for version, change in zip(described_versions(self.raw), (None, *changes), strict=True):
            if change and change.traffic:
                given = [((*version.key_path, "traffic"), change.traffic), *given]
                before, traffic = traffic, self.resolve_traffic(version.traffic, given)
                if before != traffic and before.loads == traffic.loads:
                    text = "no client's load changes, as each is in a group with keys of its own; change the groups"
                    self.note((*version.key_path, "traffic"), text)
            if change and change.links:
                links = tuple(
                    self.resolve_link(version.links[link.box], (*version.key_path, "links", link.box))
                    if link.box in change.links
                    else link
                    for link in links
                )
            yield replace(
                resolve_version(self.document, version),
                traffic=traffic if "traffic" in changed else None,
                udp_rate=version.udp.rate if "udp" in changed and version.udp else None,
                links=links if "links" in changed else (),
            )

    def check(self) -> None:
        check_groups(self.raw.traffic, self.clients, self.mistakes)
        self.check_write_chunk()
        check_transfers(self.raw, self.network, self.mistakes)
        check_changes(self.raw, self.mistakes)
        check_chains(self.raw, self.lab, self.mistakes)
        self.check_links()
        self.check_boxes()
        self.check_latency()
        self.check_servers()
        self.check_roles()
        for version in self.versions:
            self.check_capacity(tuple(self.steerings(version)))
        self.check_pairs()
        self.check_udp()
        if not self.mistakes.diagnostics:
            check_transfer_chains(self.experiment(), self.network, self.mistakes)

    def check_write_chunk(self) -> None:
        loads = (load for version in self.versions for load in (version.traffic or self.traffic).loads)
        directions = {load.direction for load in loads if load.channels}
        if self.raw.traffic.write_chunk and directions == {FlowDirection.UPLOAD}:
            text = "write_chunk is a setting of servers that send, and all flows are uploads; keep write_rate alone"
            self.note(("traffic",), text)

    def check_links(self) -> None:
        boxes = {box.name: box for box in self.network.boxes}
        links = [box.name for box in self.network.boxes if box.is_link]
        for name in self.raw.links:
            if name not in boxes:
                self.note(("links", name), f"unknown box {name!r}; {suggest(name, links, 'satellite emulators')}")
            elif not boxes[name].is_link:
                kind = boxes[name].kind.name
                self.note(("links", name), f"box {name!r} is a {kind}, which has no link settings; remove them")
            elif self.is_unused(name):
                self.note(("links", name), f"{name!r} is not in the chain; put it there or remove its settings")
        for key_path, links in self.described_links():
            for link in links:
                if link.box in boxes and boxes[link.box].is_link:
                    self.check_queues(link, boxes[link.box].mtu, (*key_path, "links", link.box))

    def described_links(self) -> Iterator[tuple[KeyPath, tuple[Link, ...]]]:
        """The links at the start, and those that a change names."""
        yield (), self.links
        for index, (change, version) in enumerate(zip(self.raw.changes, self.versions[1:], strict=True)):
            yield ("changes", index), tuple(link for link in version.links if link.box in change.links)

    def check_queues(self, link: Link, mtu: int, key_path: KeyPath) -> None:
        for name, direction in zip(DIRECTIONS, (link.to_island, link.to_world), strict=True):
            queues: dict[KeyPath, Size] = {("queue",): direction.queue}
            if direction.low_priority:
                queues["low_priority", "queue"] = direction.low_priority.queue
            for key, queue in queues.items():
                if queue.bytes < mtu:
                    text = f"{queue} is too small; it must be at least {mtu} B (one MTU of {link.box!r})"
                    self.note((*key_path, name, *key), f"{text}, or no full-size packet ever fits")

    def check_udp(self) -> None:
        """Check that a packet fits on its path; the default is as long as the path allows, 1500 B at most."""
        if self.raw.udp is None or self.udp is None or self.mistakes.diagnostics:
            return
        experiment = self.experiment()
        if not (ends := experiment.udp_ends(self.network)):
            return
        world, receivers = ends
        mtus = PathMtus(self.network, experiment)
        mtu = min(mtus.between(world, receiver, Protocol.UDP) for receiver in receivers)
        if self.udp.packet.bytes > mtu and "packet" not in self.raw.udp.model_fields_set:
            self.udp = replace(self.udp, packet=Size(mtu))
        elif self.udp.packet.bytes > mtu:
            self.note(("udp", "packet"), f"{self.udp.packet} exceeds the MTU of its path; write at most {mtu} B")

    def resolve_boxes(self) -> Iterator[BoxConfiguration]:
        """The settings of every box that has any, those of the experiment in place of the lab's."""
        for box in self.network.boxes:
            overrides = self.raw.boxes.get(box.name, {})
            settings, _ = resolve_settings(box, overrides)
            if settings:
                warned_key = next((key for key in ("buffer_max", "redundancy") if key in overrides), "")
                line = self.document.line(("boxes", box.name, warned_key))
                yield BoxConfiguration(box.name, tuple(settings.items()), line)

    def check_boxes(self) -> None:
        boxes = {box.name: box for box in self.network.boxes}
        for name, overrides in self.raw.boxes.items():
            if name not in boxes:
                self.note(("boxes", name), f"unknown box {name!r}; {suggest(name, boxes, 'boxes')}")
                continue
            for key, message in resolve_settings(boxes[name], overrides)[1]:
                key_path: KeyPath = ("boxes", name, key) if key in overrides else ("boxes", name)
                self.mistakes.diagnostics.append(self.document.mistake(key_path, message))

    def check_pairs(self) -> None:
        """Check that boxes of a pair agree, that outer packets have addresses, and that peers can be connected."""
        if self.mistakes.diagnostics:
            return
        network, experiment = self.network, self.experiment()
        key_paths = self.chain_key_paths(experiment)
        settings = {configuration.box: dict(configuration.settings) for configuration in experiment.boxes}
        for chain in experiment.all_chains:
            for world, island in pairs_of(network, chain):
                for box, key, message in pair_disagreements(world, island, settings):
                    is_set = key in self.raw.boxes.get(box, {})
                    self.note(("boxes", box, key) if is_set else key_paths[chain], message)
        for box, chain, reason in find_peers(network, experiment)[1]:
            key, _ = network.box(box).kind.peer_setting or ("mode", None)
            is_set = key in self.raw.boxes.get(box, {})
            self.note(("boxes", box, key) if is_set else key_paths[chain], reason)
        for chain, reason in () if self.mistakes.diagnostics else allocate_tunnels(network, experiment)[1]:
            self.note(key_paths[chain], reason)

    def chain_key_paths(self, experiment: Experiment) -> dict[Chain, KeyPath]:
        """Where each chain is described first."""
        key_paths: dict[Chain, KeyPath] = {}
        for described, version in zip(described_versions(self.raw), experiment.versions, strict=True):
            key_paths.setdefault(version.chain, described.chain_path)
            for branch in version.branches:
                key_paths.setdefault(branch, described.branches[branch.name][1])
        return key_paths

    def is_unused(self, name: str) -> bool:
        """Whether no chain has this link; a misspelt hop counts as this link."""
        hops, names = hops_of(self.raw), (*self.lab.raw.boxes, *self.lab.raw.taps)
        intended = {nearest(hop, names) for hop in hops if hop not in names}
        return name not in {*hops, *intended}

    def check_latency(self) -> None:
        roles = {host.name: host.role for host in self.network.hosts}
        hosts = [host.name for host in self.network.world_hosts]
        classes = [delay.name for box in self.network.delay_boxes for delay in box.classes]
        changes = [(("changes", index), change.latency) for index, change in enumerate(self.raw.changes)]
        for change_path, latency in [((), self.raw.latency), *changes]:
            for server, name in latency.items():
                key_path: KeyPath = (*change_path, "latency", server)
                if server not in roles:
                    self.note(key_path, f"unknown world host {server!r}; {suggest(server, hosts, 'world hosts')}")
                elif not roles[server].is_world:
                    role = roles[server].value
                    self.note(key_path, f"an {role} has no terrestrial latency; give it to world hosts only")
                if name is not None and name not in classes:
                    suggestion = suggest(name, classes, "classes")
                    self.note(key_path, f"no delay box carries the latency class {name!r}; {suggestion}")

    def check_servers(self) -> None:
        """Only world servers have a congestion control of their own: they send to the channels."""
        roles = {host.name: host.role for host in self.network.hosts}
        servers = [host.name for host in self.network.with_role(HostRole.WORLD_SERVER)]
        for server in self.raw.tcp.servers:
            key_path = ("tcp", "servers", server)
            if server not in roles:
                self.note(key_path, f"unknown world server {server!r}; {suggest(server, servers, 'world servers')}")
            elif roles[server] is HostRole.WORLD_SPECIAL:
                self.note(key_path, "this host only sends transfers; write transfer: congestion_control instead")
            elif roles[server] is not HostRole.WORLD_SERVER:
                self.note(key_path, f"a host of role {roles[server].value} sends no load; name world servers only")

    def check_roles(self) -> None:
        has_load = any(
            load.channels > 0 for version in described_versions(self.raw) for load in version.traffic.loads.values()
        )
        required = _REQUIRED_ROLES | (_ROLES_FOR_LOAD if has_load else {})
        if self.raw.udp and self.raw.udp.receivers == "clients":
            required.setdefault(HostRole.ISLAND_CLIENT, "it receives flows of UDP")
        for role, reason in required.items():
            if not self.network.with_role(role):
                self.note(("lab",), f"{self.network.file} has no host with role {role.value}: {reason}; add one")

    def check_capacity(self, steerings: tuple[TrunkSteering, ...]) -> None:
        """Check that cables are as fast as the links of a version."""
        if not steerings:
            return
        network, document = self.network, self.lab.document
        key_path: KeyPath = ("links", steerings[0].links[0].box)
        to_island, to_world = total_rates(steerings)
        max_rate, total_rate = max(to_island, to_world), Rate(to_island.bit_s + to_world.bit_s)
        for box, on_trunk in delay_boxes_in_use(network, steerings):
            load = total_rate if on_trunk else max_rate
            if load > box.rate:
                sum_text = f"{to_island} to the island + {to_world} to the world = {load}"
                cable, carried_load = ("the trunk", sum_text) if on_trunk else ("a class's cable", load)
                limit = f"{box.rate}, {document.where(('delay_boxes', box.name, 'rate'))}"
                text = f"{cable} of delay box {box.name!r} ({limit}) is too slow: each way it carries {carried_load}"
                self.note(key_path, f"{text}; write 'rate: {load}' there, or lower the link's")
        for switch in network.learning_switches:
            if max_rate > switch.rate:
                limit = f"{switch.rate}, {document.where(('learning_switches', switch.name, 'rate'))}"
                text = f"the uplink of learning switch {switch.name!r} ({limit}) is too slow"
                load = f"its hosts have up to {max_rate}; write 'rate: {max_rate}' there, or lower the link's"
                self.note(key_path, f"{text}: {load}")
        load_by_trunk = {item[0]: item for item in sorted(trunk_loads(network, steerings), key=lambda item: item[2])}
        for trunk, exit_port, load in load_by_trunk.values():
            if load > trunk.rate:
                name = f"trunk {trunk.a} - {trunk.b} ({trunk.rate}, {self.lab.rate_location(trunk)})"
                text = f"{name} is too slow: {load} leave {exit_port.switch} by it"
                self.note(key_path, f"{text}; write 'rate: {load}' there, or lower the link's")

    def steerings(self, version: SteeringVersion) -> Iterator[TrunkSteering]:
        """Each chain with at least one link, as far as its hops are known."""
        names = {box.name for box in self.network.boxes} | {tap.name for tap in self.network.taps}
        for chain in (version.chain, *version.branches):
            links = tuple(link for link in version.links or self.links if link.box in chain.hops)
            if links:
                hops = tuple(hop for hop in chain.hops if hop in names)
                yield TrunkSteering(hops, links, version.latency)
