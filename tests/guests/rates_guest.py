# SPDX-License-Identifier: Apache-2.0
"""Run by test_virtual_rates in the kernel for virtual time: links of the kernel's with very many settings, one boot.

``python -m tests.guests.rates_guest`` prints, for each of ``settings()``, when each packet of a train was sent and when
it arrived (ns of one clock), and what the link counted; or what a box said that did not get its settings.
"""

import ctypes
import json
import math
import random
import time
from dataclasses import dataclass
from typing import Any

from atoll_core.experiment.experiment import Bernoulli, GilbertElliott, Jitter, JitterShape, LinkDirection, LossPoint
from atoll_core.lab.network import DelayBox, Interface, LatencyClass
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.tc_settings import delay_settings
from atoll_core.units import Duration, Rate, Size
from tests.guests.virtual_link_guest import (
    PR_SET_TIMERSLACK,
    arrivals,
    furnish,
    mark,
    running_box,
    send,
    stamped,
    tc_link,
)

LISTED = (
    "1 kbit/s", "1.2 kbit/s", "2.4 kbit/s", "9.6 kbit/s", "33.333 kbit/s",
    "64 kbit/s", "128 kbit/s", "1 Mbit/s", "2 Mbit/s", "8 Mbit/s", "16 Mbit/s", "30 Mbit/s", "60 Mbit/s", "75 Mbit/s",
    "133 Mbit/s", "150 Mbit/s", "300 Mbit/s", "320 Mbit/s", "350 Mbit/s", "622 Mbit/s", "900 Mbit/s", "1 Gbit/s",
    "2.5 Gbit/s", "10 Gbit/s", "25 Gbit/s", "40 Gbit/s", "100 Gbit/s",
)  # fmt: skip
_DRAWN = 45
_FULL, _SMALLEST = 1500, 20  # bytes of a packet; the smallest is an IP header
_MOST_FULL = 40  # full-size packets of a train
_LONGEST_TRAIN_S = 10
_LONGEST_QUEUE = 4 * 10**9


@dataclass(frozen=True)
class Setting:
    """A direction of a link, and the packets of a train (bytes); its bucket and its queue hold all of them at once."""

    direction: LinkDirection
    train: tuple[int, ...]


def settings() -> list[Setting]:
    """Rates that are named in lists, then any; queues of one packet, of a few, of any size."""
    draw = random.Random(14)
    rates = [Rate.parse(rate).bit_s for rate in LISTED]
    rates += [round(10 ** draw.uniform(3, 11)) for _ in range(_DRAWN)]
    found: list[Setting] = []
    for rate in rates:
        queue = draw.choice((_FULL, 2 * _FULL, 100_000, round(10 ** draw.uniform(4, math.log10(_LONGEST_QUEUE)))))
        delay = Duration(draw.choice((0, 1, 250_000_000, draw.randrange(10**9))))
        direction = LinkDirection(Rate(rate), delay, Size(queue))
        full = min(queue // _FULL, _MOST_FULL, 1 + _LONGEST_TRAIN_S * rate // (8 * _FULL))
        found.append(Setting(direction, (_FULL, _SMALLEST, *[_FULL] * full)))
    return found


def impairments() -> list[LinkDirection]:
    """Directions with losses and jitter of any amount, which must be read back as they were meant."""
    draw = random.Random(15)
    found: list[LinkDirection] = []
    for _ in range(20):
        share = [10 ** draw.uniform(-9, 0) for _ in range(4)]
        where = draw.choice(tuple(LossPoint))
        loss = draw.choice((Bernoulli(share[0], where), GilbertElliott(share[0], share[1], share[2], share[3], where)))
        delay = Duration(draw.randrange(1, 60 * 10**9))
        jitter = Jitter(JitterShape.UNIFORM, Duration(draw.randrange(min(delay.ns, 2**31))))
        reorder = draw.choice((True, False))
        rate = Rate(round(10 ** draw.uniform(5, 10)))
        found.append(LinkDirection(rate, delay, Size(100_000), jitter=jitter, reorder=reorder, loss=loss))
    return found


def delay_boxes() -> list[DelayBox]:
    """Delay boxes on trunks of any rate, with classes of any RTT and jitter."""
    draw = random.Random(16)
    trunk = Interface("delay-t", "02:a7:00:00:00:02", PortRef("s", 2))
    found: list[DelayBox] = []
    for _ in range(5):
        rtts = [draw.randrange(2, 2 * 10**9) for _ in range(4)]
        classes = tuple(
            LatencyClass(f"c{vlan}", vlan, Duration(rtt), Duration(draw.choice((0, rtt // 4))))
            for vlan, rtt in enumerate(rtts, 101)
        )
        found.append(DelayBox("delay", trunk, Rate(round(10 ** draw.uniform(5, 11))), classes))
    return found


def _passed(setting: Setting) -> dict[str, Any]:
    """The train through the link, all of it at one instant."""
    try:
        with running_box("tc", tc_link(setting.direction).config) as box, stamped("island", "island0") as sink:
            sent = send(tuple((0, packet_bytes) for packet_bytes in setting.train))
            serialisation_s = 8 * sum(setting.train) / setting.direction.rate.bit_s
            time.sleep(setting.direction.delay.s + serialisation_s + 0.5)
            arrived = dict(arrivals(sink))
            return {"sent": sent, "arrived": [arrived.get(number) for number in range(len(sent))], "mark": mark(box)}
    except RuntimeError as error:
        return {"refused": str(error)}


def _refused(config: dict[str, Any]) -> str | None:
    try:
        with running_box("tc", config):
            return None
    except RuntimeError as error:
        return str(error)


def main() -> None:
    """Measure, and write what was found."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    furnish()
    found = {
        "links": [_passed(setting) for setting in settings()],
        "impairments": [_refused(tc_link(direction).config) for direction in impairments()],
        "delay_boxes": [_refused(delay_settings(box).config) for box in delay_boxes()],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
