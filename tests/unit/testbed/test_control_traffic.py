# SPDX-License-Identifier: Apache-2.0
"""The packets of in-band control during a measurement, in the manifest, the summary and its note."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll_analysis.summary import ControlTraffic
from atoll_analysis.verdict.notes import control_notes
from atoll_apps.control import TO_DAEMON, TO_HOST
from atoll_apps.segments.segment import App, cookie
from atoll_core.description.loader import load_lab
from atoll_core.lab.network import Network
from atoll_testbed.run.control_traffic import ControlCount, ControlSample, control_increase
from tests.support.memory_switches import MemorySwitches
from tests.support.skipped_waits import skipping_waits

BEGIN = ControlSample(t_s=10.0, hosts=3, to_hosts=(5, 500), to_daemon=(4, 400))


def test_the_increase_between_two_readings_is_a_figure_and_a_note() -> None:
    end = ControlSample(t_s=20.0, hosts=3, to_hosts=(25, 3000), to_daemon=(5, 1650))
    increase = control_increase(BEGIN, end)
    assert increase == {
        "hosts": 3,
        "seconds": 10.0,
        "to_hosts": {"packets": 20, "bytes": 2500},
        "to_daemon": {"packets": 1, "bytes": 1250},
    }
    (note,) = control_notes(cast("ControlTraffic", increase))
    assert note == (
        "in-band control of 3 hosts during the measurement: 20 packets (2.5 kB, 2.00 kbit/s) to them, "
        "1 packet (1.2 kB, 1.00 kbit/s) from them; figures do not contain it"
    )


def test_a_switch_that_was_rebooted_or_did_not_answer_gives_no_wrong_figure() -> None:
    rebooted = control_increase(BEGIN, replace(BEGIN, t_s=11.0, to_hosts=(1, 100), to_daemon=(0, 0)))
    assert rebooted is not None
    assert rebooted["to_hosts"] == {"packets": 0, "bytes": 0}
    assert control_increase(BEGIN, None) is control_increase(None, BEGIN) is None
    assert not list(control_notes(None))


class Counting(MemorySwitches):
    """Switches whose counters rise by a packet of 100 bytes at each reading, or that do not answer from one on."""

    def __init__(self, network: Network, silent_from: int) -> None:
        super().__init__(network, lambda: None)
        self.readings = 0
        self._silent_from = silent_from

    async def counters(self, dpid: int, table: int = 0) -> dict[str, Any]:
        await self._reach(dpid)
        self.readings += 1
        if self.readings > self._silent_from:
            await asyncio.Event().wait()
        risen = {"packets": self.readings, "bytes": 100 * self.readings}
        return {"entries": [{"cookie": cookie(App.CONTROL, segment), **risen} for segment in (TO_HOST, TO_DAEMON)]}


@pytest.mark.parametrize(("silent_from", "readings", "took_s"), [(0, 1, 0), (1, 2, 3), (2, 2, 0)])
@skipping_waits
async def test_a_silent_switch_holds_up_the_end_of_a_measurement_by_3_s_at_most(
    silent_from: int, readings: int, took_s: float, project: Path
) -> None:
    """The first reading is tried once, in the background; the last one is limited; without one there is no figure."""
    network = load_lab(project / "tests/data/rack-in-band-lab.yaml")
    switches = Counting(network, silent_from)
    control = ControlCount(SimpleNamespace(network=network, controller=switches))  # type: ignore[arg-type]
    for _ in range(3):
        control.begin()
        await asyncio.sleep(0.05)
    began_s = asyncio.get_running_loop().time()
    traffic = await control.end()
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(took_s)
    assert switches.readings == readings
    assert (traffic and traffic["to_hosts"]) == ({"packets": 1, "bytes": 100} if silent_from == 2 else None)
    control.close()
