# SPDX-License-Identifier: Apache-2.0
"""What an experiment asks for that is possible and probably not meant: warnings, which `--strict` makes mistakes. Pure.

A function of :data:`_DOUBTS` or :data:`_REAL_TIME_DOUBTS` yields one kind of them, each as a Mistake: what is doubtful,
then what is usual. What is impossible or contradicts itself is no doubt but a mistake, and belongs to
``atoll.model.resolve_*``.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from atoll.control.path_checks import MOST_PING_SHARE
from atoll.control.probe_jobs import PING_PACKET
from atoll.model.capacity import Steering, bandwidth_delay_product, bottleneck, longest_rtt
from atoll.model.counted import listed
from atoll.model.document import Place
from atoll.model.errors import Mistake
from atoll.model.experiment import MAIN, Codel, Experiment, Link, LinkDirection
from atoll.model.network import Network
from atoll.model.plan import Backend
from atoll.model.units import Duration, Rate
from atoll.model.wording import call

_LONGEST_QUEUE_S = 2.0  # voice bears 0.3 s; the longest queue of the laboratory's own grid held 0.8 s
_NS = 10**9
ENGINE_MEASURED = Rate(10**9)
"""1500-byte packets on two cores: docs/benchmarks.md, "throughput" of `make bench-link`."""


def doubts(
    network: Network, experiment: Experiment, backend: Backend | None = None, *, real_time: bool = True
) -> tuple[Mistake, ...]:
    """Everything doubtful, in the order of the file. ``backend``: what plays the links, where that is decided."""
    kinds = (*_DOUBTS, *(_REAL_TIME_DOUBTS if real_time else ()))
    found = {doubt for kind in kinds for doubt in kind(network, experiment, backend)}
    return tuple(sorted(found))


def _doubt(experiment: Experiment, line: int, place: Place, message: str) -> Mistake:
    return Mistake(experiment.file, line, f"{call(place)}: {message}", place)


def _buffers(network: Network, experiment: Experiment, _: Backend | None) -> Iterator[Mistake]:
    """Sockets that cannot fill a link alone."""
    buffer_max = experiment.tcp.buffer_max
    for steering in _steerings(experiment):
        rate, rtt = bottleneck(steering), longest_rtt(network, steering)
        product = bandwidth_delay_product(rate, rtt)
        if buffer_max < product:
            yield _doubt(
                experiment,
                experiment.tcp.line,
                ("tcp", "buffer_max"),
                f"{buffer_max} is less than the bandwidth-delay product, {rate} x {rtt} = {product}, so one connection "
                "cannot fill the link; usual is at least that",
            )


def _transfer(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Mistake]:
    """A transfer that the run is too short for."""
    transfer = experiment.transfer
    if transfer is None:
        return
    left = Duration(experiment.duration.ns - transfer.start.ns)
    rates = [link.to_island.rate for link in experiment.links if link.box in experiment.chain.hops]
    if rates and (least := Duration(8 * transfer.size.bytes * _NS // min(rates).bit_s)) > left:
        yield _doubt(
            experiment,
            transfer.line,
            ("transfer", "size"),
            f"{transfer.size} takes at least {least.s:.1f} s at {min(rates)}, and the run ends {left.s:g} s after the "
            "transfer's start; usual is a duration that leaves it twice that",
        )


def _pings(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Mistake]:
    """A ping series that loads the link, or that says nothing."""
    interval, place = experiment.ping.interval, ("ping", "interval")
    if interval >= experiment.duration:
        message = f"{interval} is no less than the duration, {experiment.duration}; usual is 100 ms"
        yield _doubt(experiment, experiment.ping.line, place, message)
    for link, _name, direction in _directions(experiment):
        share = 8 * PING_PACKET * _NS / interval.ns / direction.rate.bit_s
        if share > MOST_PING_SHARE:
            yield _doubt(
                experiment,
                experiment.ping.line,
                place,
                f"pings every {interval} take {share:.0%} of the {direction.rate} of {link.box!r}; usual is at most "
                f"{MOST_PING_SHARE:.0%}",
            )


def _queues(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Mistake]:
    """Queues that hold packets for seconds."""
    for link, name, direction in _directions(experiment):
        full_s = 8 * direction.queue.bytes / direction.rate.bit_s
        if full_s > _LONGEST_QUEUE_S and direction.aqm is None:
            yield _doubt(
                experiment,
                link.line,
                ("links", link.box, name, "queue"),
                f"{direction.queue} at {direction.rate} delay packets by {full_s:.1f} s when full; usual is less than "
                f"{_LONGEST_QUEUE_S:g} s",
            )


def _codels(network: Network, experiment: Experiment, _: Backend | None) -> Iterator[Mistake]:
    """CoDel that takes a drop for unheeded before a sender can have learnt of it."""
    longest = {link: longest_rtt(network, each) for each in _steerings(experiment) for link in each.links}
    for link, name, direction in _directions(experiment):
        rtt = longest.get(link)
        if rtt and isinstance(direction.aqm, Codel) and direction.aqm.interval < rtt:
            yield _doubt(
                experiment,
                link.line,
                ("links", link.box, name, "aqm"),
                f"an interval of {direction.aqm.interval} is less than the round-trip time, {rtt}; usual is about that "
                "(RFC 8289, section 4.3)",
            )


def _udp(_: Network, experiment: Experiment, __: Backend | None) -> Iterator[Mistake]:
    """UDP that fills the link by itself; it does not yield."""
    for link, name, direction in _directions(experiment):
        if experiment.udp and name == "to_island" and experiment.udp.rate >= direction.rate:
            yield _doubt(
                experiment,
                experiment.udp.line,
                ("udp", "rate"),
                f"{experiment.udp.rate} fill the {direction.rate} of {link.box!r} alone; usual is an eighth of that",
            )


def _taps(network: Network, experiment: Experiment, _: Backend | None) -> Iterator[Mistake]:
    """Taps in places where captures prove less than they could, a line for each chain."""
    for chain in experiment.ever_chains:
        unseen, places = _unseen(network, chain.hops)
        if unseen:
            verb = "loses" if len(unseen) == 1 else "lose"
            place: Place = ("chain",) if chain.name == MAIN else ("branches", chain.name, "chain")
            message = f"captures do not show what {listed(unseen)} {verb}; usual is a tap {listed(places)}"
            yield _doubt(experiment, chain.line, place, message)


def _unseen(network: Network, hops: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The boxes of a chain whose losses captures do not show, and where taps would be that do.

    Such are boxes outside the taps, and a box beside one that does not conserve packets, which it cannot be told from.
    The ports of a link are captured, where it takes that.
    """
    boxes = {box.name: box for box in network.boxes}
    taps = [place for place, hop in enumerate(hops) if hop not in boxes]
    before = [hop for hop in hops[: taps[0] if taps else None] if hop in boxes]
    behind = [hop for hop in hops[taps[-1] if taps else 0 :] if hop in boxes]
    unseen = dict.fromkeys([*before, *behind])
    places = [*(["at the world's end"] if before else []), *(["at the island's end"] if behind else [])]
    for left, right in pairwise(hops):
        pair = [boxes[hop] for hop in (left, right) if hop in boxes and not boxes[hop].is_link]
        hidden = [box.name for box in pair if box.conserves]
        if len(pair) == 2 and len(hidden) == 1:
            unseen |= dict.fromkeys(hidden)
            places.append(f"between {left} and {right}")
    return list(unseen), places


def _engine_rates(_: Network, experiment: Experiment, backend: Backend | None) -> Iterator[Mistake]:
    """Rates beyond those at which the engine was measured."""
    for link, name, direction in _directions(experiment):
        if backend is not Backend.TC and direction.rate > ENGINE_MEASURED:
            yield _doubt(
                experiment,
                link.line,
                ("links", link.box, name, "rate"),
                f"{direction.rate} is more than the {ENGINE_MEASURED} up to which the engine was measured in real time "
                "(docs/benchmarks.md, throughput), and a run that the machine cannot keep up with is invalid; "
                "--backend tc and --on virtual take up to 10 Gbit/s",
            )


_Kind = Callable[[Network, Experiment, Backend | None], Iterator[Mistake]]
_DOUBTS: tuple[_Kind, ...] = (
    _buffers,
    _transfer,
    _pings,
    _queues,
    _codels,
    _udp,
    _taps,
)
_REAL_TIME_DOUBTS: tuple[_Kind, ...] = (_engine_rates,)


def _directions(experiment: Experiment) -> Iterator[tuple[Link, str, LinkDirection]]:
    for link in experiment.links:
        yield link, "to_island", link.to_island
        yield link, "to_world", link.to_world


def _steerings(experiment: Experiment) -> Iterator[Steering]:
    """Every chain, in every version, that links bound."""
    for version in experiment.versions:
        for chain in (version.chain, *version.branches):
            links = tuple(link for link in experiment.links if link.box in chain.hops)
            if links:
                yield Steering(chain.hops, links, version.latency)
