# SPDX-License-Identifier: Apache-2.0
"""Swaps that move traffic off two PEPs that multiplex connections, and back: ``python -m tests.guests.pep_swap_guest``.

Run it in a sandbox. Prints what became of the connections, as one JSON object.
"""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from atoll_core.description.loader import load_experiment
from atoll_testbed.testbed import Testbed
from tests.guests.connections_guest import Pair, Trial
from tests.support.runtime import RUNTIME

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pep-multiplexed.yaml"
_PEPS, _NONE = ("tap-w", "pep-w", "sat", "pep-i", "tap-i"), ("tap-w", "sat", "tap-i")
_CONNECTED_S = 3  # the PEPs have connected to each other, over a link of 20 ms


class PepTrial(Trial):
    """The lab with PEPs."""

    async def run(self) -> dict[str, Any]:
        """One connection after the other."""
        found: dict[str, Any] = {}
        await self.to(*_PEPS)
        for how in ("reset", "wait:20 s"):
            await asyncio.sleep(_CONNECTED_S)
            pair = await asyncio.to_thread(Pair, self._testbed)
            began = time.monotonic()
            leaving = asyncio.create_task(self.to(*_NONE, connections=how))
            if how != "reset":
                await asyncio.sleep(2.5)
                found["echoes"] = await asyncio.to_thread(pair.echoes)
                pair.close()
            answer = await leaving
            found[how] = answer, time.monotonic() - began
            if how == "reset":
                found["fates"] = await asyncio.to_thread(pair.fates)
            await self.to(*_PEPS)
        await asyncio.sleep(_CONNECTED_S)
        pair = await asyncio.to_thread(Pair, self._testbed)
        found["back"] = pair.echoes()
        pair.close()
        return found


async def main() -> None:
    """Print what was found."""
    network, experiment = load_experiment(EXAMPLE)
    near = replace(
        experiment.links[0],
        **{
            way: replace(direction, delay=type(direction.delay).parse("10 ms"))
            for way, direction in (
                ("to_island", experiment.links[0].to_island),
                ("to_world", experiment.links[0].to_world),
            )
        },
    )
    experiment = replace(experiment, links=(near,))
    testbed = await Testbed.start(network, runtime=RUNTIME)
    try:
        print(json.dumps(await PepTrial(testbed, experiment).run()))
    finally:
        await testbed.stop()


if __name__ == "__main__":
    asyncio.run(main())
