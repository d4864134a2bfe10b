# SPDX-License-Identifier: Apache-2.0
"""Twins of hardware switches: how such a switch behaves towards its controller, as values.

The profile of a driver has the values of its hardware, each with its source (switch-configs). A lab may set others for
a switch. ``atoll_emulation.twin`` behaves by them.
"""

from dataclasses import dataclass, fields, replace

from atoll_core.described import Described
from atoll_core.units import Duration


@dataclass(frozen=True, slots=True)
class TwinSettings(Described):
    """The keys of a switch's ``twin`` in lab.yaml; None: as in the profile of its driver."""

    flow_mods_per_s: int | None = None
    lag_min: Duration | None = None
    lag_max: Duration | None = None
    early_barriers: bool | None = None
    statistics: Duration | None = None
    software_packets_per_s: int | None = None
    max_entries: int | None = None
    occupied: int | None = None
    refuses: bool | None = None
    reboot: Duration | None = None
    seed: int = 1


@dataclass(frozen=True, slots=True)
class TwinBehaviour:
    """How a switch differs from one that does everything at once. Each difference can be switched off.

    ``flow_mods_per_s``: the rate at which it takes flow-mods; 0: not limited. ``lag_min``, ``lag_max``: how long its
    data plane follows behind. ``early_barriers``: it answers barriers before its data plane follows. ``statistics``:
    the interval at which it reads the packet counters of its hardware; 0: at each request. ``software_packets_per_s``:
    what entries in software forward, together; 0: not limited. ``max_entries``: the size of its hardware table;
    ``occupied``: the part of it that access lists and QoS use, which its table features do not show. ``refuses``: it
    refuses entries that their table cannot take. ``reboot``: the duration of a reboot.
    """

    flow_mods_per_s: int
    lag_min: Duration
    lag_max: Duration
    early_barriers: bool
    statistics: Duration
    software_packets_per_s: int
    max_entries: int
    occupied: int
    refuses: bool
    reboot: Duration

    def with_settings(self, settings: TwinSettings) -> "TwinBehaviour":
        """The behaviour with the values that a lab sets; one end of the lag moves the other one along, if it must."""
        names = [field.name for field in fields(TwinBehaviour)]
        set_values = {name: getattr(settings, name) for name in names if getattr(settings, name) is not None}
        behaviour = replace(self, **set_values)
        if behaviour.lag_min.ns <= behaviour.lag_max.ns:
            return behaviour
        moved_bound = {"lag_min": behaviour.lag_max} if "lag_max" in set_values else {"lag_max": behaviour.lag_min}
        return replace(behaviour, **moved_bound)
