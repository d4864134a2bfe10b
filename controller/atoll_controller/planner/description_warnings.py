# SPDX-License-Identifier: Apache-2.0
"""Warnings about valid but doubtful settings of an experiment; `--strict` makes them mistakes. Pure.

Each function in :data:`_VERSION_CHECKS` or :data:`_RUN_CHECKS` yields one kind of warning as a Diagnostic: the doubtful
value, then the usual one. Impossible or contradictory settings are mistakes of ``atoll_core.description.resolve_*``.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from atoll_controller.planner.path_checks import MAX_PING_SHARE
from atoll_controller.planner.traffic_jobs import PING_PACKET_BYTES
from atoll_controller.planner.transfer_size import propose_transfer
from atoll_controller.planner.virtual_cost import rough_size, wall_time
from atoll_core.description.validation_messages import entry_name
from atoll_core.description.yaml_document import KeyPath
from atoll_core.errors import Diagnostic
from atoll_core.experiment.experiment import (
    MAIN,
    Chain,
    Codel,
    Experiment,
    GilbertElliott,
    Link,
    LinkDirection,
    Protocol,
    mean_loss,
)
from atoll_core.experiment.traffic import REST, FlowDirection, Load
from atoll_core.experiment.trunk_load import (
    TrunkSteering,
    bandwidth_delay_product,
    bottleneck,
    longest_rtt,
    rtt_of_links,
    time_between_flows,
)
from atoll_core.experiment.tunnels import pairs_of
from atoll_core.lab.network import HostRole, Network
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import USE_ENGINE, early_starts
from atoll_core.platforms import VIRTUAL
from atoll_core.plural import counted, listed
from atoll_core.units import Duration, Rate, Size

_LONGEST_QUEUE_S = 2.0  # voice bears 0.3 s; the longest queue of the laboratory's own grid is 0.8 s
_ENDS_EARLY = 0.75  # of what slow start sends on an idle link; under load drops come sooner
_LONGEST_WALL_TIME = Duration(3600 * 10**9)
_MAX_LOSS = 0.5
_MAX_OFFERED = 4  # times the rate; studies of congestion use a load of twice the rate
_RATE_ERROR = 1e-4  # less is noise
_NS_PER_S = 10**9
_WORLD_ENDS, _ISLAND_ENDS = ("-w", "world"), ("-i", "island")  # of names, as in the defaults of interfaces
ENGINE_MEASURED = Rate(10**9)
"""1500-byte packets on two cores: docs/benchmarks.md, "throughput" of `make bench-link`."""


def description_warnings(
    network: Network, experiment: Experiment, backend: Backend | None = None, platform: str | None = None
) -> tuple[Diagnostic, ...]:
    """All warnings, in the order of the file; those that a change causes, on the line of the change.

    ``backend``, ``platform``: the link emulator and the platform; None: not chosen yet.
    """
    run_checks = (*_RUN_CHECKS, _wall_time) if platform in (None, VIRTUAL) else _RUN_CHECKS
    version_checks = _VERSION_CHECKS if platform == VIRTUAL else (*_VERSION_CHECKS, _engine_rates)
    warnings = {warning for check in run_checks for warning in check(network, experiment, backend)}
    warnings |= {warning for check in version_checks for warning in check(network, experiment.states[0], backend)}
    earlier_messages: set[str] = set()
    for number, version in enumerate(experiment.versions):
        state = replace(experiment.at(version.at), given=())
        messages = {warning.message for check in version_checks for warning in check(network, state, backend)}
        for message in messages - earlier_messages if number else ():
            text, change = f"from {version.at} on: {message}", ("changes", number - 1)
            warnings.add(Diagnostic(experiment.file, version.line, text, change))
        earlier_messages |= messages
    return tuple(sorted(warnings))


def memory_warnings(experiment: Experiment, needed: Size, free: Size) -> tuple[Diagnostic, ...]:
    """A run in virtual time, or several at once, that take more memory than the machine has free."""
    if needed <= free:
        return ()
    message = (
        f"with {counted(experiment.max_channels, 'channel')}, the runs in virtual time need about "
        f"{rough_size(needed)} of memory (correct within a factor of two), but this machine has {rough_size(free)} "
        "free; usual is less than the free memory"
    )
    return (_warning(experiment, experiment.traffic.line, ("traffic", "channels"), message, ("captures",), ("links",)),)


def _warning(experiment: Experiment, line: int, key_path: KeyPath, message: str, *related: KeyPath) -> Diagnostic:
    """A warning about the value at ``key_path``, considering those at ``related``; it names a ``--set`` of these."""
    text = f"{entry_name(key_path)}: {message}"
    for key in (".".join(map(str, path)) for path in (key_path, *related)):
        for setting_key, setting in experiment.given:
            if f"{setting_key}.".startswith(f"{key}.") or f"{key}.".startswith(f"{setting_key}."):
                return Diagnostic(experiment.file, 0, f"--set {setting}: {text}", key_path)
    return Diagnostic(experiment.file, line, text, key_path)


def _link_warning(experiment: Experiment, link: Link, name: str, key: str, text: str, *related: KeyPath) -> Diagnostic:
    """A warning about a setting of one direction of a link."""
    return _warning(experiment, link.line, ("links", link.box, name, key), text, *related)


def _buffers(network: Network, experiment: Experiment, _: Backend | None) -> Iterator[Diagnostic]:
    """Sockets that cannot fill a link alone."""
    buffer_max = experiment.tcp.buffer_max
    for steering in _steerings(experiment):
        rate, rtt = bottleneck(steering), longest_rtt(network, steering)
        product = bandwidth_delay_product(rate, rtt)
        if buffer_max < product:
            message = (
                f"{buffer_max} is less than the bandwidth-delay product, {rate} x {rtt} = {product}, so one "
                f"connection cannot fill the link; usual is at least {product}"
            )
            links: list[KeyPath] = [("links", link.box) for link in steering.links]
            line = dict(experiment.tcp.lines).get("buffer_max", 0)
            yield _warning(experiment, line, ("tcp", "buffer_max"), message, *links, ("latency",))


def _without_effect(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Diagnostic]:
    """Settings of TCP that the congestion controls of the hosts do not use."""
    tcp, lines = experiment.tcp, dict(experiment.tcp.lines)
    controls = {tcp.congestion_control, *dict(tcp.servers).values()}
    controls |= {transfer.congestion_control for transfer in experiment.all_transfers if transfer.congestion_control}
    idle: dict[str, str] = {}
    if not tcp.hystart and "cubic" not in experiment.congestion_controls:
        idle["hystart"] = "only cubic has HyStart (tcp_cubic.c)"
    if controls == {"bbr"}:
        idle["pacing"] = "bbr always paces (tcp_bbr.c)"
        idle["slow_start_after_idle"] = "the kernel does not reset the window of bbr (tcp_slow_start_after_idle_check)"
    for key, why in idle.items():
        if key in lines:
            text = str(getattr(tcp, key)).lower()
            message = f"{text} has no effect with {listed(sorted(controls))}: {why}; usual is to leave it out"
            yield _warning(experiment, lines[key], ("tcp", key), message, ("tcp", "congestion_control"))


def _unused_channels(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Diagnostic]:
    """Channels of ``traffic`` itself that no client has."""
    traffic = experiment.traffic
    groups = traffic.groups
    is_unused = groups and all(load.name != REST and load.channels != traffic.channels for load in groups)
    if is_unused and traffic.channels:
        message = f"{traffic.channels} has no effect, as each client is in a group with channels of its own; usual is 0"
        yield _warning(experiment, traffic.line, ("traffic", "channels"), message, ("traffic", "groups"))


def _box_buffers(network: Network, experiment: Experiment, _: Backend | None) -> Iterator[Diagnostic]:
    """Boxes that end connections, and whose sockets cannot fill a link alone."""
    ending = {box.name for box in experiment.as_used(network).boxes if box.kind.ends_connections}
    for steering in _steerings(experiment):
        rate, rtt = bottleneck(steering), rtt_of_links(steering)
        product = bandwidth_delay_product(rate, rtt)
        for box in experiment.boxes:
            size = dict(box.settings).get("buffer_max")
            if box.box in ending and box.box in steering.hops and size is not None and Size(size) < product:
                message = (
                    f"{Size(size)} is less than the bandwidth-delay product of the links, {rate} x {rtt} = {product}, "
                    "so one connection cannot fill them; usual is at least that"
                )
                links = (("links", link.box) for link in steering.links)
                yield _warning(experiment, box.line, ("boxes", box.box, "buffer_max"), message, *links)


def _upload_timeouts(network: Network, experiment: Experiment, _: Backend | None) -> Iterator[Diagnostic]:
    """Uploads without a byte for longer than their timeout, while a box that acknowledged them sends its buffer on."""
    ending = {box.name for box in experiment.as_used(network).boxes if box.kind.ends_connections}
    loads = [load for load in experiment.traffic.loads if load.channels and load.direction is FlowDirection.UPLOAD]
    pairs = [(box, load) for box in experiment.boxes if box.box in ending for load in loads]
    for steering in _steerings(experiment):
        for box, load in pairs:
            behind = steering.hops[: steering.hops.index(box.box)] if box.box in steering.hops else ()
            rate = min((link.to_world.rate for link in steering.links if link.box in behind), default=None)
            size = dict(box.settings).get("buffer_max")
            if rate is None or size is None:
                continue
            held = Size(min(Size(size).bytes, load.distribution.max_bytes))
            needed = Duration(8 * held.bytes * _NS_PER_S // rate.bit_s)
            if needed > load.timeout:
                message = (
                    f"{load.timeout} is less than the {needed.s:.1f} s for {held} in a buffer of {box.box!r} at "
                    f"{rate}, so an upload that it has acknowledged can fail; usual is more than that"
                )
                key_path = (*load.key_path, "timeout")
                yield _warning(experiment, load.line, key_path, message, ("links",), ("boxes", box.box))


def _transfers(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Diagnostic]:
    """Transfers that the run, or the time from one start to the next, is too short for."""
    for transfer in experiment.all_transfers:
        window = Duration(experiment.duration.ns - transfer.start.ns)
        of_link = transfer.direction.of_link
        rates = (_mean_rate(experiment, transfer.start, of_link), transfer.write_rate)
        rate = min((rate for rate in rates if rate), default=None)
        if not rate or window.ns <= 0:
            continue
        needed = Duration(8 * transfer.size.bytes * _NS_PER_S // max(1, rate.bit_s))
        takes = f"{transfer.size} takes at least {needed.s:.1f} s at {rate}"
        usual = f"usual is at least twice the time that the transfer takes: {2 * needed.s:.1f} s"
        links = [("links", link.box, of_link, "rate") for link in experiment.links]
        if needed > window:
            message = f"{takes}, and the run ends {window.s:g} s after the transfer's start; {usual}"
            key_path = (*transfer.key_path, "size")
            yield _warning(experiment, transfer.line, key_path, message, ("duration",), *links)
        elif transfer.every and needed > transfer.every:
            left_out = f"starts during a {transfer.direction} are left out"
            message = f"{transfer.every} is too short: {takes}, and {left_out}; {usual}"
            key_path = (*transfer.key_path, "every")
            yield _warning(experiment, transfer.line, key_path, message, (*transfer.key_path, "size"), *links)


def _slow_start(network: Network, experiment: Experiment, __: Backend | None) -> Iterator[Diagnostic]:
    """A transfer that ends in slow start, so that its rate says little of the link."""
    for transfer in experiment.all_transfers:
        proposed = propose_transfer(network, experiment, transfer.direction)
        if proposed is None or transfer.write_rate or transfer.size.bytes >= _ENDS_EARLY * proposed.slow_start.bytes:
            continue
        message = (
            f"{transfer.size} ends in slow start, which sends {proposed.slow_start} until the sender learns of a drop "
            f"(4 x (bandwidth-delay product + queue)); usual is at least {proposed.size}"
        )
        links = (("links", link.box) for link in experiment.links)
        yield _warning(experiment, transfer.line, (*transfer.key_path, "size"), message, *links)


def _mean_rate(experiment: Experiment, start: Duration, of_link: str) -> Rate | None:
    """The mean rate of the chain's slowest link in a direction from ``start`` on; None: at times there is no link."""
    versions = experiment.versions
    bits = 0
    for version, end in zip(versions, [*(version.at for version in versions[1:]), experiment.duration], strict=True):
        links, hops = experiment.at(version.at).links, version.chain.hops
        rates = [getattr(link, of_link).rate.bit_s for link in links if link.box in hops]
        duration_ns = end.ns - max(version.at.ns, start.ns)
        if duration_ns > 0 and not rates:
            return None
        bits += min(rates, default=0) * max(0, duration_ns)
    return Rate(bits // max(1, experiment.duration.ns - start.ns))


def _pings(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Diagnostic]:
    """A ping series that loads the link, or that has too few pings."""
    interval, key_path = experiment.ping.interval, ("ping", "interval")
    if interval >= experiment.duration:
        message = f"{interval} is not shorter than the duration, {experiment.duration}; usual is 100 ms"
        yield _warning(experiment, experiment.ping.line, key_path, message, ("duration",))
    for link, name, direction in _directions(experiment):
        share = 8 * PING_PACKET_BYTES * _NS_PER_S / interval.ns / direction.rate.bit_s
        if share > MAX_PING_SHARE:
            message = (
                f"pings every {interval} take {share:.0%} of the {direction.rate} of {link.box!r}; usual is at most "
                f"{MAX_PING_SHARE:.0%}"
            )
            yield _warning(experiment, experiment.ping.line, key_path, message, ("links", link.box, name, "rate"))


def _queues(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Diagnostic]:
    """Queues that delay packets for seconds."""
    for link, name, direction in _directions(experiment):
        full_s, rate = direction.full_queue.s, "the least rate of its trace" if direction.trace else direction.rate
        if full_s > _LONGEST_QUEUE_S and direction.aqm is None:
            message = (
                f"a queue of {direction.queue} at {rate} delays packets by {full_s:.1f} s when full; "
                f"usual is less than {_LONGEST_QUEUE_S:g} s"
            )
            yield _link_warning(experiment, link, name, "queue", message, ("links", link.box, name, "rate"))


def _codels(network: Network, experiment: Experiment, _: Backend | None) -> Iterator[Diagnostic]:
    """CoDel that takes a drop for unheeded before a sender can have learnt of it."""
    rtt_by_link = {link: longest_rtt(network, s) for s in _steerings(experiment) for link in s.links}
    for link, name, direction in _directions(experiment):
        rtt = rtt_by_link.get(link)
        if rtt and isinstance(direction.aqm, Codel) and direction.aqm.interval < rtt:
            message = (
                f"an interval of {direction.aqm.interval} is less than the round-trip time, {rtt}; usual is about that "
                "(RFC 8289, section 4.3)"
            )
            yield _link_warning(experiment, link, name, "aqm", message, ("links", link.box))


def _udp(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Diagnostic]:
    """UDP that fills the link by itself; it does not yield."""
    for link, name, direction in _directions(experiment):
        if experiment.udp and name == "to_island" and experiment.udp.rate >= direction.rate:
            udp, rate = experiment.udp, ("links", link.box, name, "rate")
            message = f"{udp.rate} of UDP fill {link.box!r} ({direction.rate}); usual is an eighth of its rate"
            yield _warning(experiment, udp.line, ("udp", "rate"), message, rate)


def _tcp_overload(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Diagnostic]:
    """TCP load of several times the link's rate, if the load has a rate of its own; UDP counts, too."""
    for direction in FlowDirection:
        yield from _tcp_overload_of(experiment, direction)


def _tcp_overload_of(experiment: Experiment, direction: FlowDirection) -> Iterator[Diagnostic]:
    offered = [each for each in _offered_tcp(experiment) if each[0].direction is direction]
    udp = experiment.udp if direction is FlowDirection.DOWNLOAD else None
    if not offered:
        return
    descriptions = [*(description for _, description, _, _ in offered), *(["UDP"] if udp else [])]
    bit_s = sum(tcp_bit_s for *_, tcp_bit_s in offered) + (udp.rate.bit_s if udp else 0)
    for link in experiment.links:
        rate: Rate = getattr(link, direction.of_link).rate
        carries_all = all(link.box in chain.hops for chain in experiment.all_chains)
        if carries_all and bit_s >= _MAX_OFFERED * rate.bit_s:
            yield _warning(
                experiment,
                offered[0][0].rate_line,
                offered[0][2],
                f"{' and '.join(descriptions)} ask for {Rate(_three_digits(bit_s))}, "
                f"{bit_s / rate.bit_s:.1f} times the {rate} of {link.box!r}; usual is less than {_MAX_OFFERED} times",
                ("links", link.box, direction.of_link, "rate"),
            )


def _redundancy(network: Network, experiment: Experiment, _: Backend | None) -> Iterator[Diagnostic]:
    """Boxes whose packets of redundancy need more of a link's rate than the load leaves, if the load has a rate.

    UDP has one, and so has TCP in an open loop or as streams (:func:`_offered_tcp`). Uploads are left out.
    """
    used = experiment.as_used(network)
    configured = {box.box: box for box in experiment.boxes}
    offered = list(_offered(network, experiment))
    for link in experiment.links:
        loads = [(bit_s, chain) for bit_s, chain in offered if link.box in chain.hops]
        load_bit_s = sum(bit_s for bit_s, _ in loads)
        redundancy: Counter[str] = Counter()
        for bit_s, chain in loads:
            for world, island in pairs_of(used, chain):
                hops = chain.hops[chain.hops.index(world.name) : chain.hops.index(island.name)]
                if world.kind.redundancy and link.box in hops:
                    share = world.kind.redundancy(dict(configured[world.name].settings))
                    redundancy[world.name] += round(share * bit_s)
        rate = link.to_island.rate
        for box, added_bit_s in redundancy.items():
            if added_bit_s and load_bit_s + added_bit_s > rate.bit_s:
                remaining = Rate(_three_digits(max(0, rate.bit_s - load_bit_s)))
                yield _warning(
                    experiment,
                    configured[box].line,
                    ("boxes", box),
                    f"its redundancy needs {Rate(_three_digits(added_bit_s))}, but a load of "
                    f"{Rate(_three_digits(load_bit_s))} leaves {remaining} of the {rate} of {link.box!r}, so it fills "
                    "the queue or is never sent; usual is less than what is left",
                    ("links", link.box, "to_island", "rate"),
                    ("udp",),
                    ("traffic",),
                )


def _offered(network: Network, experiment: Experiment) -> Iterator[tuple[float, Chain]]:
    """The loads to the island that have a rate, in bit/s, each with its chain; of TCP one for each client."""
    servers, clients = (network.with_role(role) for role in (HostRole.WORLD_SERVER, HostRole.ISLAND_CLIENT))
    for load, _, _, bit_s in _offered_tcp(experiment):
        if load.direction is FlowDirection.UPLOAD:
            continue
        members = [client for client in clients if client.name in load.clients] if load.clients else clients
        for client in members:
            chain = experiment.carrier(servers[0].address, client.address, Protocol.TCP)
            yield bit_s / len(members), chain
    if experiment.udp and (ends := experiment.udp_ends(network)):
        world, receivers = ends
        for receiver in receivers:
            chain = experiment.carrier(world.address, receiver.address, Protocol.UDP)
            yield experiment.udp.rate.bit_s / len(receivers), chain


def _offered_tcp(experiment: Experiment) -> Iterator[tuple[Load, str, KeyPath, float]]:
    """The loads of TCP that have a rate: each with its description, its key, and the rate in bit/s.

    An open loop asks for the sum of its flows. In a closed loop a channel waits for each flow, so it takes what it
    gets, unless senders send so slowly that flows take longer than the pauses between them: those are streams.
    """
    for load in experiment.traffic.loads:
        of_group = f" of group {load.name!r}" if load.name else ""
        mean_bytes = load.distribution.mean_bytes
        if load.flows_per_s is not None and load.channels:
            flows = f"{load.flows_per_s:g} flows a second of {Size(_three_digits(mean_bytes))} in the mean{of_group}"
            yield load, flows, (*load.key_path, "flows_per_s"), load.flows_per_s * 8 * mean_bytes
        elif load.write_rate is not None and load.channels:
            sent_s, pause_s = 8 * mean_bytes / load.write_rate.bit_s, time_between_flows(experiment, load).s
            if sent_s > pause_s:
                streams = f"{counted(load.channels, 'channel')} of at most {load.write_rate} each{of_group}"
                bit_s = load.channels * 8 * mean_bytes / (sent_s + pause_s)
                yield load, streams, ("traffic", "write_rate"), bit_s


def _three_digits(number: float) -> int:
    return int(float(f"{number:.3g}"))


def _taps(network: Network, experiment: Experiment, _: Backend | None) -> Iterator[Diagnostic]:
    """Taps in places where captures prove less than they could, a line for each chain."""
    for chain in experiment.all_chains:
        unseen, taps = _unseen(network, chain.hops)
        if unseen:
            verb = "loses" if len(unseen) == 1 else "lose"
            key_path: KeyPath = ("chain",) if chain.name == MAIN else ("branches", chain.name, "chain")
            message = f"captures do not show the packets that {listed(unseen)} {verb}; usual is a tap {listed(taps)}"
            yield _warning(experiment, chain.line, key_path, message)


def _unseen(network: Network, hops: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The boxes of a chain whose losses captures do not show, and the places for taps that would show them.

    These are boxes outside the taps, and a box next to one that does not conserve packets, as their losses cannot be
    distinguished. The ports of a link are captured where that is necessary.
    """
    boxes = {box.name: box for box in network.boxes}
    taps = [index for index, hop in enumerate(hops) if hop not in boxes]
    before = [hop for hop in hops[: taps[0] if taps else None] if hop in boxes]
    behind = [hop for hop in hops[taps[-1] if taps else 0 :] if hop in boxes]
    unseen = dict.fromkeys([*before, *behind])
    key_paths = [*(["at the world's end"] if before else []), *(["at the island's end"] if behind else [])]
    for left, right in pairwise(hops):
        pair = [boxes[hop] for hop in (left, right) if hop in boxes and not boxes[hop].is_link]
        hidden = [box.name for box in pair if box.conserves]
        if len(pair) == 2 and len(hidden) == 1:
            unseen |= dict.fromkeys(hidden)
            key_paths.append(f"between {left} and {right}")
    return list(unseen), key_paths


def _engine_rates(_: Network, experiment: Experiment, backend: Backend | None) -> Iterator[Diagnostic]:
    """Rates beyond those at which the engine was measured."""
    for link, name, direction in _directions(experiment):
        if backend is not Backend.TC and direction.rate > ENGINE_MEASURED:
            message = (
                f"{direction.rate} is more than the {ENGINE_MEASURED} up to which the engine was measured in real time "
                "(docs/benchmarks.md, throughput), and a run that the machine cannot keep up with is invalid; "
                "--backend tc and --on virtual take any rate"
            )
            yield _link_warning(experiment, link, name, "rate", message)


def _wall_time(network: Network, experiment: Experiment, backend: Backend | None) -> Iterator[Diagnostic]:
    """Runs that take hours of the machine's time, where a second of the lab's clock may take minutes."""
    estimated = wall_time(network, experiment, backend or Backend.TC)
    if estimated > _LONGEST_WALL_TIME:
        channels = experiment.max_channels
        message = (
            f"with {counted(channels, 'channel')} for {experiment.duration}, a run on virtual is estimated to take "
            f"{estimated.s / 3600:.1f} h of wall time, within a factor of two on an idle machine; usual is less than "
            f"{_LONGEST_WALL_TIME}"
        )
        key_path: KeyPath = ("traffic", "channels")
        yield _warning(experiment, experiment.traffic.line, key_path, message, ("duration",), ("links",))


def _rounded_rates(_: Network, experiment: Experiment, backend: Backend | None) -> Iterator[Diagnostic]:
    """Slow rates that tc rounds, as it keeps whole bytes per second."""
    for link, name, direction in _directions(experiment):
        rate = direction.rate
        rounded = Rate(rate.bit_s // 8 * 8)
        if backend is not Backend.ENGINE and rate.bit_s - rounded.bit_s > _RATE_ERROR * rate.bit_s:
            message = (
                f"{rate} become {rounded} if tc emulates the link (the default on virtual), because tc counts whole "
                f"bytes per second; usual is a multiple of 8 bit/s, or {USE_ENGINE}"
            )
            yield _link_warning(experiment, link, name, "rate", message)


def _early_packets(network: Network, experiment: Experiment, backend: Backend | None) -> Iterator[Diagnostic]:
    """Slow rates at which the serialisation that tc leaves out after a pause is long."""
    for link, name, serialisation in early_starts(network, experiment.links) if backend is not Backend.ENGINE else ():
        rate = (link.to_island if name == "to_island" else link.to_world).rate
        message = (
            f"a full-size packet takes {serialisation.ms:.1f} ms at {rate}; if tc emulates the link (the default on "
            f"virtual), the first packet after an idle time does not get this delay; {USE_ENGINE} is exact"
        )
        yield _link_warning(experiment, link, name, "rate", message)


def _losses(network: Network, experiment: Experiment, __: Backend | None) -> Iterator[Diagnostic]:
    """Loss that leaves little of the traffic, and a channel of bursty loss that never loses."""
    for link, name, direction in _directions(experiment):
        share = mean_loss(direction.loss, network.box(link.box).mtu) if direction.loss else 0.0
        if share >= _MAX_LOSS:
            message = f"{100 * share:.3g} % of the packets are lost; usual is less than {100 * _MAX_LOSS:g} %"
            yield _link_warning(experiment, link, name, "loss", message)
        elif isinstance(direction.loss, GilbertElliott) and share == 0:
            message = "this gilbert-elliott channel loses no packet; usual are good_to_bad and loss_bad above 0 %"
            yield _link_warning(experiment, link, name, "loss", message)


_Check = Callable[[Network, Experiment, Backend | None], Iterator[Diagnostic]]


def _reversed_taps(network: Network, experiment: Experiment, _: Backend | None) -> Iterator[Diagnostic]:
    """Taps with the names of the ends that are at the other ends of a chain."""
    taps = {tap.name for tap in network.taps}
    for version in experiment.versions:
        for chain in (version.chain, *version.branches):
            hops = [hop for hop in chain.hops if hop in taps]
            if len(hops) > 1 and hops[0].endswith(_ISLAND_ENDS) and hops[-1].endswith(_WORLD_ENDS):
                message = (
                    f"{hops[0]} is at the world's end of the chain and {hops[-1]} at the island's; "
                    "usual is the order from world to island"
                )
                yield _warning(experiment, version.line or chain.line, ("chain",), message)


_VERSION_CHECKS: tuple[_Check, ...] = (
    _buffers,
    _box_buffers,
    _upload_timeouts,
    _pings,
    _queues,
    _codels,
    _udp,
    _tcp_overload,
    _redundancy,
    _rounded_rates,
    _early_packets,
    _losses,
)
_RUN_CHECKS: tuple[_Check, ...] = (_transfers, _slow_start, _taps, _reversed_taps, _without_effect, _unused_channels)
"""Those that consider the changes themselves; the others get every version as an experiment without changes."""


def _directions(experiment: Experiment) -> Iterator[tuple[Link, str, LinkDirection]]:
    for link in experiment.links:
        yield link, "to_island", link.to_island
        yield link, "to_world", link.to_world


def _steerings(experiment: Experiment) -> Iterator[TrunkSteering]:
    """Every chain that links bound."""
    for chain in (experiment.chain, *experiment.branches):
        links = tuple(link for link in experiment.links if link.box in chain.hops)
        if links:
            yield TrunkSteering(chain.hops, links, experiment.latency)
