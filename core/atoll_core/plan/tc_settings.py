# SPDX-License-Identifier: Apache-2.0
"""Links and delay boxes as settings of the kernel's traffic control: the lines for ``tc -batch``, and checks.

A link, per direction; the other one is its mirror image:

    world ──ingress: mirred──> island ──egress: mirred──> ifb [queue and rate: tbf]
                               island <──────────────────┘
                               island [loss and delay: netem] ──> wire

Rate first, delay on the next hop. Chained on one device the two pass a ping test and a throughput test and fail both
together, since netem's clock then starts when tbf fetches a packet. ``ifb`` gives the frame back to the interface it
was redirected from, past the filters, so nothing is bridged or routed and no frame is looked at.

A delay box: frames return by the trunk they came in on, through an HTB whose leaves, one a class, are netem.

A loss ``where: before`` is a netem above the tbf.

A queue of low priority: below the tbf a prio with two bfifo, and a filter that puts packets marked LE into the second
one. tbf looks at the head of the first one that has a packet, and takes it once its bucket has enough: so a packet that
comes while one of low priority waits for the bucket goes before it, whereas the engine's transmitter has begun to send.

tbf counts Ethernet frames; ``stab overhead -14`` makes it count IP packets.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import (
    DIRECTIONS,
    Bernoulli,
    Counted,
    GilbertElliott,
    Jitter,
    JitterShape,
    Link,
    LinkDirection,
    Loss,
    LossPoint,
    LowPriority,
)
from atoll_core.lab.network import MTU, ChainBox, DelayBox, Network
from atoll_core.platforms import VIRTUAL
from atoll_core.units import Duration, Rate, Size

USE_ENGINE = "--backend engine (in a study: `backend: engine`)"
"""The remedy for settings that tc cannot emulate."""

_ETHERNET_HEADER = 14
_BUCKET_MARGIN = 40  # beyond one full-size packet: an inner VLAN tag, an Ethernet header if it counts, and a reserve
_TICK_NS = 64  # the kernel shows a bucket as the ticks in which the rate fills it (PSCHED_SHIFT, linux/pkt_sched.h)
_SHORTEST_PACKET_BYTES = 20  # IP header alone
_PACKET_MARGIN = 1000
_MAX_PACKETS = 2**31 - 1
_MAX_JITTER = Duration(2**31 - 1)  # sch_netem.c, tabledist()
_TOO_LONG = f"netem's jitter is {_MAX_JITTER.s:.3f} s at most"
_MIN_SHARE = 2**-32  # netem compares 32 random bits
_KEEP_ORDER_RATE = Rate(100 * 10**9)  # netem sends no packet before the one ahead of it only where it also has a rate
_UNSHAPED_RATE = "100gbit"  # rate of an HTB class that is there to be chosen, not to shape

_NOTICEABLY_EARLY = Duration(5_000_000)  # 1 % of a GEO link's round-trip time

TIMER_SLACK = Duration(1_000_000)
"""The lateness of a timer that costs no rate: the bucket has room for the bytes of this time and one packet.

A bucket of one packet loses rate when its timer is late: 14 % of 16 Mbit/s, measured in User-Mode Linux.
"""
VIRTUAL_SLACK = Duration(1000)
"""In virtual time a timer is late by ticks of its clock (256 ns) and the shortest time it takes (500 ns) at most."""


def timer_slack(platform: str) -> Duration:
    """The timer slack of a platform."""
    return VIRTUAL_SLACK if platform == VIRTUAL else TIMER_SLACK


@dataclass(frozen=True, slots=True)
class Qdisc:
    """A queueing discipline: its command, and the expected output of ``tc -r -j qdisc show``."""

    dev: str
    handle: str
    parent: str | None  # None: root
    kind: str
    arguments: str
    options: dict[str, Any] = field(hash=False)  # those that are compared; bytes, bytes per second, seconds
    ip_bytes: bool = False  # counts without the Ethernet header

    @property
    def expected(self) -> dict[str, Any]:
        """The discipline as it is looked for in the output of tc."""
        return {"dev": self.dev, "handle": self.handle, "kind": self.kind, "options": self.options}

    @property
    def line(self) -> str:
        """The line for ``tc -batch``."""
        position = f"parent {self.parent}" if self.parent else "root"
        table = f"stab linklayer ethernet overhead -{_ETHERNET_HEADER} " if self.ip_bytes else ""
        return f"qdisc add dev {self.dev} {position} handle {self.handle} {table}{self.kind} {self.arguments}".rstrip()


@dataclass(frozen=True, slots=True)
class TcSettings:
    """All settings of one box, in the order of set-up."""

    box: str
    mtu: int
    interfaces: tuple[str, ...]  # those that are there
    ifbs: tuple[str, ...]  # those that are made
    commands: tuple[Qdisc | str, ...]  # text: another line for ``tc -batch``, for an HTB class or a filter
    counters: dict[str, Any] = field(hash=False)  # the sources of the host's counters, see docs/contracts.md

    @property
    def setup(self) -> dict[str, list[str]]:
        """Lines for ``ip -batch``, then for ``tc -batch``."""
        return {
            "ip": [f"link add name {name} up type ifb" for name in self.ifbs],
            "tc": [command if isinstance(command, str) else command.line for command in self.commands],
        }

    @property
    def undo(self) -> dict[str, list[str]]:
        """Lines for ``tc -batch``, then for ``ip -batch``, that leave the interfaces as they were."""
        deletions = [f"qdisc del dev {name} {qdisc}" for name in self.interfaces for qdisc in ("root", "clsact")]
        return {"tc": deletions, "ip": [f"link del {name}" for name in self.ifbs]}

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of ``atoll-host tc``."""
        expected = [qdisc.expected for qdisc in self.commands if isinstance(qdisc, Qdisc)]
        return {
            "mtu": self.mtu,
            "interfaces": list(self.interfaces),
            "setup": self.setup,
            "undo": self.undo,
            "expect": expected,
            **self.counters,
        }


def link_settings(
    box: ChainBox, link: Link, slack: Duration = TIMER_SLACK, peak_link: Link | None = None
) -> TcSettings:
    """A satellite link. Raises PlanError naming everything the kernel's qdiscs cannot do.

    ``peak_link``: its greatest rates and delays, if it changes; the packets of all of them have room.
    """
    if reasons := engine_only([link]):
        raise PlanError("\n".join(_refusal(key, reason) for key, reason in reasons.items()))
    ends = (box.world.name, box.island.name)
    directions = (
        ("to_island", link.to_island, (peak_link or link).to_island, ends[0], ends[1]),
        ("to_world", link.to_world, (peak_link or link).to_world, ends[1], ends[0]),
    )
    commands: list[Qdisc | str] = []
    counters: dict[str, Any] = {}
    ip_bytes = link.counts is Counted.IP
    for name, direction, peak, _, exit_dev in directions:
        ifb = _ifb(name)
        queue = _queue_qdiscs(ifb, direction, bucket_bytes(direction.rate, slack, box.mtu), ip_bytes=ip_bytes)
        delay = _delay_qdisc(exit_dev, direction, _in_flight(peak.rate, peak.delays[1], peak.jitter), ip_bytes=ip_bytes)
        two_queues = _two_queues(queue[-1], direction.queue, direction.low_priority) if direction.low_priority else []
        commands += [*queue, *two_queues, delay]
        counters[name] = {
            "in": {"dev": ends[1] if name == "to_world" else ends[0], "parent": "ffff:fff2", "pref": 1},
            "in_header_bytes": 0 if ip_bytes else _ETHERNET_HEADER,
            "loss": _losing_qdisc(direction, queue[0], delay),
            "queue": _reference(queue[-1]),
            **({"low_priority": {"dev": ifb, "handle": _LOW_HANDLE}} if direction.low_priority else {}),
            "rate_bit_s": direction.rate.bit_s,
            "delay": _reference(delay) | {"limit_packets": delay.options["limit"]},
        }
    commands += [f"qdisc add dev {end} clsact" for end in ends]
    for name, _, _, entry_dev, exit_dev in directions:
        commands += [
            f"filter add dev {exit_dev} egress {_ALL_FRAMES} {_redirect(_ifb(name))}",
            f"filter add dev {entry_dev} ingress {_ALL_FRAMES} {_redirect(exit_dev)}",
        ]
    return TcSettings(link.box, box.mtu, ends, tuple(map(_ifb, DIRECTIONS)), tuple(commands), {"link": counters})


def delay_settings(box: DelayBox) -> TcSettings:
    """A delay box with all its classes; frames of other VLANs, and those of none, are dropped and counted.

    At the ports of a class tagged frames are dropped. Without a trunk those at the first port are counted.

    Raises PlanError naming every class that the kernel's qdiscs cannot do.
    """
    if refused := [latency.name for latency in box.classes if latency.jitter > _MAX_JITTER]:
        raise PlanError("\n".join(_refusal(f"delay box {box.name}: class {name}", _TOO_LONG) for name in refused))
    commands: list[Qdisc | str] = []
    ingress_filters: list[str] = []
    classes: dict[str, Any] = {}
    if box.trunk:
        commands.append(Qdisc(box.trunk.name, "1:", None, "htb", "", {}, ip_bytes=True))
    for latency_class in box.classes:
        delay = Duration(latency_class.rtt.ns // 2)
        jitter = Jitter(JitterShape.UNIFORM, latency_class.jitter) if latency_class.jitter.ns else None
        limit = _in_flight(box.rate, delay, jitter)
        arguments, options = _delay_arguments(delay, jitter, limit, reorder=latency_class.reorder)
        ends = box.ends(latency_class)
        if latency_class.ports:
            directions = ((ends.world.name, ends.island.name), (ends.island.name, ends.world.name))
            for number, (entry_dev, exit_dev) in zip(latency_class.ids, directions, strict=True):
                netem = Qdisc(exit_dev, "1:", None, "netem", arguments, options, ip_bytes=True)
                commands.append(netem)
                ingress_filters += [
                    f"filter add dev {entry_dev} ingress prio 1 protocol 802.1Q matchall action drop",
                    f"filter add dev {entry_dev} ingress prio 2 protocol all matchall {_redirect(exit_dev)}",
                ]
                classes[str(number)] = _reference(netem)
            continue
        trunk, leaf = ends.world.name, f"1:{latency_class.vlan:x}"
        vlan = f"protocol 802.1Q flower vlan_id {latency_class.vlan}"
        netem = Qdisc(trunk, f"{_FIRST_CLASS_HANDLE + latency_class.vlan:x}:", leaf, "netem", arguments, options)
        commands += [
            f"class add dev {trunk} parent 1: classid {leaf} htb rate {_UNSHAPED_RATE} quantum {ends.world.mtu}",
            netem,
            f"filter add dev {trunk} parent 1: prio {latency_class.vlan} {vlan} classid {leaf}",
        ]
        ingress_filters.append(f"filter add dev {trunk} ingress prio {latency_class.vlan} {vlan} {_redirect(trunk)}")
        classes[str(latency_class.vlan)] = _reference(netem)
    first, unknown_prio = box.interfaces[0].name, 1
    if box.trunk:
        unknown_prio = _MAX_PRIO
        ingress_filters.append(f"filter add dev {first} ingress protocol all prio {unknown_prio} matchall action drop")
    names = tuple(interface.name for interface in box.interfaces)
    return TcSettings(
        box.name,
        max(interface.mtu for interface in box.interfaces),
        names,
        (),
        (*commands, *(f"qdisc add dev {name} clsact" for name in names), *ingress_filters),
        {"delay": {"classes": classes, "unknown": {"dev": first, "parent": "ffff:fff2", "pref": unknown_prio}}},
    )


_ALL_FRAMES = "protocol all prio 1 matchall"
_FIRST_CLASS_HANDLE = 0x1000  # above 1:, the HTB itself
_MAX_PRIO = 0xFFF0  # after every VLAN id


def _ifb(direction: str) -> str:
    return f"ifb-{direction.replace('_', '-')}"


def _redirect(dev: str) -> str:
    return f"action mirred egress redirect dev {dev}"


def _reference(qdisc: Qdisc) -> dict[str, str]:
    return {"dev": qdisc.dev, "handle": qdisc.handle}


def _losing_qdisc(direction: LinkDirection, loss_before: Qdisc, loss_after: Qdisc) -> dict[str, str] | None:
    """The qdisc that loses by chance, if one does."""
    if direction.loss is None:
        return None
    return _reference(loss_before if direction.loss.where is LossPoint.BEFORE else loss_after)


def _queue_qdiscs(ifb: str, direction: LinkDirection, bucket: int, *, ip_bytes: bool) -> list[Qdisc]:
    """Queue and rate last, loss before them if there it is."""
    rate = direction.rate.bit_s // 8
    arguments = f"rate {direction.rate.bit_s}bit burst {bucket} limit {direction.queue.bytes}"
    # As many ticks as the kernel keeps, or one more: it rounds down to nanoseconds, then to ticks.
    options = {"rate": rate, "burst_raw": bucket * 10**9 // (rate * _TICK_NS), "limit": direction.queue.bytes}
    if direction.loss is None or direction.loss.where is LossPoint.AFTER:
        return [Qdisc(ifb, "1:", None, "tbf", arguments, options, ip_bytes=ip_bytes)]
    loss_arguments, loss_options = _loss_arguments(direction)
    capacity = direction.queue.bytes + (direction.low_priority.queue.bytes if direction.low_priority else 0)
    limit = _packet_limit(Size(capacity))  # netem includes the packets of the qdisc below it
    loss = Qdisc(
        ifb, "1:", None, "netem", f"limit {limit} {loss_arguments}", {"limit": limit, **loss_options}, ip_bytes=ip_bytes
    )
    return [loss, Qdisc(ifb, "2:", "1:1", "tbf", arguments, options)]


_PRIO_HANDLE, _MAIN_HANDLE, _LOW_HANDLE = "3:", "4:", "5:"
_LE_TOS = "0x04/0xfc"  # DSCP 1 (RFC 8622), whatever the ECN bits, in IPv4's TOS and IPv6's traffic class
_BANDS = 16  # of a priomap (linux/pkt_sched.h, TC_PRIO_MAX + 1)


def _two_queues(rate: Qdisc, queue: Size, low_priority: LowPriority) -> list[Qdisc | str]:
    """The queues that tbf serves in turn, in place of its own: of everything, and of packets marked LE."""
    dev = rate.dev
    priomap = [0] * _BANDS  # packets that no filter takes, of any socket priority
    bands = Qdisc(
        dev,
        _PRIO_HANDLE,
        f"{rate.handle}1",
        "prio",
        f"bands 2 priomap {' '.join(map(str, priomap))}",
        {"bands": 2, "priomap": priomap},
    )
    fifos = [
        Qdisc(dev, handle, f"{_PRIO_HANDLE}{band}", "bfifo", f"limit {size.bytes}", {"limit": size.bytes})
        for band, handle, size in ((1, _MAIN_HANDLE, queue), (2, _LOW_HANDLE, low_priority.queue))
    ]
    filters = [
        (
            f"filter add dev {dev} parent {_PRIO_HANDLE} protocol {protocol} prio {prio} "
            f"flower ip_tos {_LE_TOS} classid {_PRIO_HANDLE}2"
        )
        for prio, protocol in ((1, "ip"), (2, "ipv6"))
    ]
    return [bands, *fifos, *filters]


def bucket_bytes(rate: Rate, slack: Duration = TIMER_SLACK, mtu: int = MTU) -> int:
    """The burst of a link: one packet, the bytes of ``slack`` at this rate, and the kernel's rounding error."""
    needed = (mtu + _BUCKET_MARGIN) * 8 * 10**9 + rate.bit_s * slack.ns  # billionths of a bit
    ticks = 1 - (-needed // (rate.bit_s * _TICK_NS))
    return -(-rate.bit_s * ticks * _TICK_NS // (8 * 10**9))


_NO_LOSS: dict[str, Any] = {"loss-random": None, "loss-gemodel": None}  # tc does not show them without loss


def _loss_arguments(direction: LinkDirection) -> tuple[str, dict[str, Any]]:
    match direction.loss:
        case Bernoulli(probability):  # tc does not show a loss of nothing
            options = {"loss-random": {"loss": probability}} if probability else {}
            return f"loss {_percent(probability)}", _NO_LOSS | options
        case GilbertElliott(p, r, loss_good, loss_bad):
            arguments = " ".join(_percent(share) for share in (p, r, loss_bad, loss_good))
            options = {"loss-gemodel": {"p": p, "r": r, "1-h": loss_bad, "1-k": loss_good}}
            return f"loss gemodel {arguments}", _NO_LOSS | options
        case _:
            return "", _NO_LOSS


def _percent(share: float) -> str:
    return f"{100 * share:.10f}%"


def _delay_qdisc(dev: str, direction: LinkDirection, limit: int, *, ip_bytes: bool) -> Qdisc:
    arguments, options = _delay_arguments(direction.delay, direction.jitter, limit, reorder=direction.reorder)
    loses_after = direction.loss and direction.loss.where is LossPoint.AFTER
    loss_arguments, loss_options = _loss_arguments(direction) if loses_after else ("", _NO_LOSS)
    return Qdisc(
        dev, "1:", None, "netem", f"{arguments} {loss_arguments}".rstrip(), options | loss_options, ip_bytes=ip_bytes
    )


def _in_flight(rate: Rate, delay: Duration, jitter: Jitter | None) -> int:
    """The number of shortest packets that can be in flight."""
    return _packet_limit(Size(rate.bit_s * (delay.ns + (jitter.amount.ns if jitter else 0)) // (8 * 10**9)))


def _delay_arguments(
    delay: Duration, jitter: Jitter | None, limit: int, *, reorder: bool
) -> tuple[str, dict[str, Any]]:
    """The options of netem, which has room for ``limit`` packets."""
    spread = jitter.amount if jitter else Duration(0)
    arguments, options = f"limit {limit}", dict[str, Any](limit=limit)
    if delay.ns:
        arguments += f" delay {_microseconds(delay)}" + (f" {_microseconds(spread)}" if spread.ns else "")
    if delay.ns >= _TICK_NS:  # tc shows no shorter one, though the kernel has it
        options["delay"] = {"delay": delay.s, "jitter": spread.s}
    if spread.ns and not reorder:
        arguments += f" rate {_KEEP_ORDER_RATE.bit_s}bit"
        options["rate"] = {"rate": _KEEP_ORDER_RATE.bit_s // 8}
    return arguments, options


def _microseconds(time: Duration) -> str:
    return f"{time.ns // 1000}.{time.ns % 1000:03}us"  # netem reads no "ns" (iproute2 6.1)


def _packet_limit(content: Size) -> int:
    return min(content.bytes // _SHORTEST_PACKET_BYTES + _PACKET_MARGIN, _MAX_PACKETS)


def engine_only(links: Iterable[Link]) -> dict[str, str]:
    """The settings of links that tc cannot do, or cannot be seen to have done, each with the reason."""
    return {
        f"links.{link.box}.{name}.{setting}": reason
        for link, name, direction in _directions(links)
        for setting, reason in _engine_only_reasons(direction).items()
        if reason
    }


def _directions(links: Iterable[Link]) -> Iterator[tuple[Link, str, LinkDirection]]:
    for link in links:
        yield from ((link, name, getattr(link, name)) for name in DIRECTIONS)


def burst_lines(network: Network, links: Iterable[Link], slack: Duration) -> Iterator[str]:
    """A line for each direction that sends more than a packet at once, because timers may be late by ``slack``."""
    for link, name, direction in _directions(links) if slack > VIRTUAL_SLACK else ():
        bucket = Size(bucket_bytes(direction.rate, slack, network.box(link.box).mtu))
        yield (
            f"links.{link.box}.{name}: after a pause tc sends up to {bucket} at once (one packet and {slack} of the "
            "rate, because timers are late in real time); --backend engine and --on virtual send one packet"
        )


def early_starts(network: Network, links: Iterable[Link]) -> Iterator[tuple[Link, str, Duration]]:
    """The directions of which a packet leaves noticeably early after a pause, with by how much a full-size one does.

    The token bucket is full then, and the packet leaves without its serialisation.
    """
    for link, name, direction in _directions(links):
        serialisation = Duration(8 * network.box(link.box).mtu * 10**9 // direction.rate.bit_s)
        if serialisation > _NOTICEABLY_EARLY and not any(_engine_only_reasons(direction).values()):
            yield link, name, serialisation


def _engine_only_reasons(direction: LinkDirection) -> dict[str, str | None]:
    return {
        "queue_packets": None if direction.queue_packets is None else "the queue of tbf has a limit in bytes only",
        "low_priority.queue_packets": (
            "bfifo has a limit in bytes only"
            if direction.low_priority and direction.low_priority.queue_packets is not None
            else None
        ),
        "jitter": _jitter_refusal(direction.jitter) if direction.jitter else None,
        "loss": _loss_refusal(direction.loss),
        "aqm": "the kernel's AQMs differ from those of the engine" if direction.aqm else None,
        "trace": "a qdisc cannot follow a trace" if direction.trace else None,
    }


def _refusal(key: str, reason: str) -> str:
    return f"{key}: not possible with the tc backend ({reason}); remove it, or use {USE_ENGINE}"


def _jitter_refusal(jitter: Jitter) -> str | None:
    if jitter.distribution is not JitterShape.UNIFORM:
        return "netem does not report its distribution, so it could not be verified"
    if jitter.correlation:
        return "netem's correlation narrows the distribution"
    return _TOO_LONG if jitter.amount > _MAX_JITTER else None


def _loss_refusal(loss: Loss | None) -> str | None:
    if not isinstance(loss, Bernoulli | GilbertElliott | None):
        return "netem loses packets at random, independently of their length"
    shares = (
        (loss.good_to_bad, loss.bad_to_good, loss.loss_good, loss.loss_bad)
        if isinstance(loss, GilbertElliott)
        else (loss.probability if loss else 0.0,)
    )
    if any(0 < share < _MIN_SHARE for share in shares):
        return f"netem loses at least {_MIN_SHARE:.1e} of the packets"
    return None
