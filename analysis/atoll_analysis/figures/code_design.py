# SPDX-License-Identifier: Apache-2.0
"""Generations, repair packets and interleaving that would have recovered the losses of an uncoded run."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from atoll_analysis.figures.packet_fates import fates_of_packets
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import mean_rate_bit_s

if TYPE_CHECKING:
    from atoll_analysis.summary import Summary

    Positions = np.ndarray[Any, np.dtype[np.int64]]

TARGETS = (0.99, 0.999)
"""Shares of the lost packets that are to be recovered."""

SIZES = (8, 16, 30, 64, 128)
"""Packets of a generation; with w up to n all of them have a code of which any n packets decode (decision 0056)."""

DEPTHS = (1, 2, 4, 8, 16, 32, 64)
"""Generations that take turns."""

TIMEOUT_MARGIN_S = 0.2
"""Linux' retransmission time-out is the smoothed RTT and at least this (TCP_RTO_MIN, net/tcp.h)."""


@dataclass(frozen=True, slots=True)
class CodeDesign:
    """A code that recovers the share ``target`` of the lost packets."""

    target: float
    packets: int  # n, of a generation
    repairs: int  # w, repair packets of a generation
    interleaving: int  # generations that take turns, packet by packet
    overhead: float  # w / n
    recovered: float  # share of the lost packets
    span_s: float | None  # time in which the packets of interleaved generations come; None: the run has no duration
    in_time: bool | None  # whether that is less than TCP's time-out exceeds the RTT; None: not known
    cap_bit_s: float  # R / (1 + w / n): what the link's mean rate leaves for packets of hosts


@dataclass(frozen=True, slots=True)
class CodeDesigns:
    """Designs for the losses of one link, one of each target and size."""

    link: str
    packets: int  # that came to the link, of which these designs know
    total: int  # that came in all
    lost: int
    rate_bit_s: int  # mean rate of the link in the run
    spare_share: float | None  # share of the link's rate that was not used; None: not measured
    designs: tuple[CodeDesign, ...]

    def best(self, target: float) -> CodeDesign | None:
        """The design with the least overhead that is in time, or the shortest span if none is; None: there is none."""
        return min((design for design in self.designs if design.target == target), key=_preference, default=None)

    def exceeds_spare(self, design: CodeDesign) -> bool:
        """Whether the repair packets need more than the run left of the link's rate."""
        return self.spare_share is not None and design.overhead * (1 - self.spare_share) > self.spare_share


def designs_of_run(run: RunDir, link: str | None = None) -> CodeDesigns:
    """Return the designs for the losses of a link, by default the slowest one, in a run.

    Raises RunError if the run was not analysed or its captures do not show this, UsageError if there is no such link.
    """
    fates = fates_of_packets(run, link)
    summary = cast("Summary", run.summary())
    figures, duration_s = summary["links"][fates.link], summary["duration_s"]
    utilisation, rate_bit_s = figures["utilisation"], mean_rate_bit_s(figures)
    lost_positions = np.flatnonzero(np.asarray(fates.lost))
    packets_per_s = fates.total / duration_s if duration_s else None
    return CodeDesigns(
        link=fates.link,
        packets=len(fates.lost),
        total=fates.total,
        lost=len(lost_positions),
        rate_bit_s=rate_bit_s,
        spare_share=None if utilisation is None else max(0.0, 1 - utilisation),
        designs=tuple(code_designs(lost_positions, rate_bit_s, packets_per_s)),
    )


def code_designs(
    lost_positions: "Positions",
    rate_bit_s: int,
    packets_per_s: float | None,
    targets: Iterable[float] = TARGETS,
    sizes: Iterable[int] = SIZES,
) -> Iterator[CodeDesign]:
    """Yield a design for each target and size: the least overhead that is in time, or the shortest span if none is.

    ``lost_positions``: of packets, ascending, as the link counted what came to it. Targets and sizes that no depth
    reaches with w <= n are left out, and everything if nothing was lost.
    """
    sizes = tuple(sizes)
    for target in targets if len(lost_positions) else ():
        for size in sizes:
            designs = [
                _design(target, size, repairs, depth, share, rate_bit_s, packets_per_s)
                for depth in DEPTHS
                for repairs, share in _least_repairs(lost_positions, target, size, depth)
            ]
            if designs:
                yield min(designs, key=_preference)


def recovered_share(lost_positions: "Positions", size: int, repairs: int, depth: int) -> float:
    """Return the share of lost packets that a code recovers, if the link loses the packets at these positions.

    The coded stream meets the losses of the run at the same positions, so repair packets are lost as well. ``depth``
    generations take turns, each with ``size`` packets and ``repairs`` repair packets. Any ``size`` of them decode, so a
    generation that loses no more than ``repairs`` loses nothing. Lost repair packets do not count as lost packets.
    """
    block, position = np.divmod(lost_positions, (size + repairs) * depth)
    turn, generation = np.divmod(position, depth)
    generation += block * depth
    is_source = turn < size
    source_losses = int(is_source.sum())
    if not source_losses:
        return 1.0
    _, of_generation, losses = np.unique(generation, return_inverse=True, return_counts=True)
    return int((is_source & (losses[of_generation] <= repairs)).sum()) / source_losses


def _least_repairs(lost_positions: "Positions", target: float, size: int, depth: int) -> Iterator[tuple[int, float]]:
    """Yield the least number of repair packets that reaches the target, and its share; nothing if none does."""
    low, high, share = 0, size, recovered_share(lost_positions, size, size, depth)
    if share < target:
        return
    while high - low > 1:  # more repair packets move the later blocks, so this is the least one nearly always
        middle = (low + high) // 2
        recovered = recovered_share(lost_positions, size, middle, depth)
        if recovered >= target:
            high, share = middle, recovered
        else:
            low = middle
    yield high, share


def _design(
    target: float, size: int, repairs: int, depth: int, share: float, rate_bit_s: int, packets_per_s: float | None
) -> CodeDesign:
    span_s = size * depth / packets_per_s if packets_per_s else None
    return CodeDesign(
        target=target,
        packets=size,
        repairs=repairs,
        interleaving=depth,
        overhead=repairs / size,
        recovered=share,
        span_s=span_s,
        in_time=None if span_s is None else span_s <= TIMEOUT_MARGIN_S,
        cap_bit_s=rate_bit_s / (1 + repairs / size),
    )


def _preference(design: CodeDesign) -> tuple[bool, float, float]:
    """The least overhead that is in time; if none is, the shortest span."""
    span = design.packets * design.interleaving
    return (True, span, design.overhead) if design.in_time is False else (False, design.overhead, span)
