# SPDX-License-Identifier: Apache-2.0
"""Delete groups and meters on switches (plans of atoll use none).

They are deleted once the flow entries are the plan's (docs/decisions/0023), so that no entry refers to them.
"""

import asyncio
from collections.abc import Sequence

from atoll_controller.openflow.controller_client import Controller
from atoll_core.errors import LabError
from atoll_core.lab.network import Network, Switch
from atoll_core.plan.switch_features import UnmanagedState


async def clear_unmanaged_state(controller: Controller, network: Network) -> tuple[str, ...]:
    """Delete all groups and meters of the lab's switches. Returns a line for each switch with deletions or an error.

    Disconnected switches are skipped; they are cleared with the next plan.
    """

    async def clear(switch: Switch) -> str | None:
        try:
            found = await controller.leftovers(switch.dpid)
            if found:
                await controller.clear(switch.dpid, found)
        except LabError as error:
            state = controller.switches.get(switch.dpid)
            return f"{switch.name}: {error}" if state is not None and state.up else None
        return f"{switch.name}: deleted {unmanaged_state_text(found)} (plans of atoll use none)" if found else None

    lines = await asyncio.gather(*map(clear, network.switches))
    return tuple(line for line in lines if line is not None)


def unmanaged_state_text(found: UnmanagedState) -> str:
    """``groups 1, 7 and meter 3``."""
    kinds = [_named("group", found.groups), _named("meter", found.meters)]
    return " and ".join(filter(None, kinds))


def _named(kind: str, numbers: Sequence[int]) -> str:
    return f"{kind}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}" if numbers else ""
