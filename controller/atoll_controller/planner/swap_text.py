# SPDX-License-Identifier: Apache-2.0
"""The parts of a swap and their effects on traffic, as text for people and as JSON."""

from collections.abc import Iterator
from typing import Any

from atoll_controller.fabric.swap_plan import Swap, SwapPart
from atoll_core.codec import to_json
from atoll_core.experiment.experiment import Experiment, SteeringVersion
from atoll_core.experiment.setting_texts import version_differences
from atoll_core.units import Duration


def parts_json(swap: Swap) -> list[dict[str, Any]]:
    """Each part: ``what`` changes, the boxes of broken ``connections``, and boxes and taps that no packet passes.

    ``without``: those of both the old and the new version, until the next part. ``uncoded``: those of them that encode
    packets. ``renewed``: those of them whose programs begin again then.
    ``drain_ns``: the least time until the version before has drained.
    """
    return [
        {
            "subject": part.subject.value,
            "what": list(_differences(part)),
            "connections": list(part.moved),
            "without": list(part.without),
            "uncoded": list(part.uncoded),
            "renewed": list(part.renewed),
            "drain_ns": swap.drain_ns(number),
        }
        for number, part in enumerate(swap.parts)
    ]


def swap_json(swap: Swap) -> dict[str, Any]:
    """A swap as ``atoll plan --json`` has it."""
    stages = [to_json(stage) for stage in swap.stages]
    return {"stages": stages, "layout": to_json(swap.layout), "moved": list(swap.moved), "parts": parts_json(swap)}


def swap_lines(swap: Swap) -> Iterator[str]:
    """A line for each part of a swap with several, or the effects of the only part if it has any."""
    if len(swap.parts) == 1:
        yield from _effects(swap.parts[0], 1)
        return
    if swap.parts:
        yield f"the swap has {len(swap.parts)} parts, one after the other:"
    for number, part in enumerate(swap.parts, start=1):
        drain = f"at least {Duration(swap.drain_ns(number - 1))}"
        yield f"  {number}. {'; '.join((*_differences(part), *_effects(part, number), drain))}"


def _differences(part: SwapPart) -> Iterator[str]:
    return version_differences(_version(part.before), _version(part.after))


def _version(experiment: Experiment) -> SteeringVersion:
    return SteeringVersion(Duration(0), experiment.chain, experiment.branches, experiment.latency)


def _effects(part: SwapPart, number: int) -> Iterator[str]:
    if part.moved:
        yield f"connections through {', '.join(part.moved)} break"
    if part.without:
        coding = f", so that packets are not coded by {', '.join(part.uncoded)}" if part.uncoded else ""
        yield f"no packet passes {', '.join(part.without)} until part {number + 1}{coding}"
    if part.renewed:
        yield f"then the programs of {', '.join(part.renewed)} begin again"
