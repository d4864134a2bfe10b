# SPDX-License-Identifier: Apache-2.0
"""Groups and meters on switches: plans use neither, so whatever a switch holds of them is somebody else's.

They go once the flow entries are the plan's (docs/decisions/0023): nothing refers to them then.
"""

import asyncio
from collections.abc import Sequence

from atoll_controller.openflow.client import Controller
from atoll_core.errors import LabError
from atoll_core.lab.network import Network, Switch
from atoll_core.plan.switch_features import UnmanagedState


async def clear_unmanaged_state(controller: Controller, network: Network) -> tuple[str, ...]:
    """Delete all groups and meters of the lab's switches; what was deleted, or could not be, a line a switch.

    A switch that is away is left out: it is asked again when it is brought to a plan.
    """

    async def clear(switch: Switch) -> str | None:
        try:
            found = await controller.leftovers(switch.dpid)
            if found:
                await controller.clear(switch.dpid, found)
        except LabError as error:
            state = controller.switches.get(switch.dpid)
            return f"{switch.name}: {error}" if state is not None and state.up else None
        return f"{switch.name}: deleted {unmanaged_state_text(found)}, which no plan asks for" if found else None

    told = await asyncio.gather(*map(clear, network.switches))
    return tuple(line for line in told if line is not None)


def unmanaged_state_text(found: UnmanagedState) -> str:
    """``groups 1, 7 and meter 3``."""
    kinds = [_named("group", found.groups), _named("meter", found.meters)]
    return " and ".join(filter(None, kinds))


def _named(kind: str, numbers: Sequence[int]) -> str:
    return f"{kind}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}" if numbers else ""
