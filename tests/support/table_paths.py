# SPDX-License-Identifier: Apache-2.0
"""What a packet comes to on a model of the tables, and where it may be when they change."""

from collections.abc import Iterable, Iterator

from atoll_controller.tracing.table_model import Delivery, Frame, SwitchTables
from atoll_core.lab.port_ref import PortRef

Path = tuple[tuple[str, int | None], ...]


def places(model: SwitchTables, frame: Frame, start: PortRef) -> Iterator[tuple[PortRef, Frame, tuple[Delivery, ...]]]:
    """Where the packet enters the switches, at its host and behind every box, with what it came to before."""
    at: PortRef | None = start
    came_by: tuple[Delivery, ...] = ()
    while at is not None:
        yield at, frame, came_by
        steps = [step for step in model.walk(frame, at, through_boxes=False) if isinstance(step, Delivery)]
        came_by = (*came_by, *steps)
        onward = next((step for step in steps if step.port in model.other_box_port), None)
        at, frame = (model.other_box_port[onward.port], onward.frame) if onward else (None, frame)


def path(seen: Iterable[Delivery]) -> Path:
    """What a packet came to, a delay box with its class; taps last: a copy may come before the packet's next box."""
    names = [(step.name, step.frame.vlan if step.name.startswith("d") else 0) for step in seen]
    taps = sorted(each for each in names if each[0].startswith("t"))
    return (*(each for each in names if not each[0].startswith("t")), *taps)
