# SPDX-License-Identifier: Apache-2.0
"""ovs-ofctl, the tool of Open vSwitch itself, written in C: all entries in one bundle, committed atomically."""

from collections.abc import Sequence
from pathlib import Path

from atoll_core.errors import LabError
from controllerbench.entries import FROM, TAP, TRUNK, Pair
from controllerbench.installer import Installer
from controllerbench.switch import BRIDGE, ofctl

_FILE = Path("/run/plan.flows")  # of this benchmark's own namespace


class OfctlBundle(Installer):
    """``add-flows --bundle``, then ``diff-flows``."""

    name = "ovs-ofctl bundle"
    checks = "commit, diff-flows reads back and compares"

    def install(self, plan: Sequence[Pair]) -> None:
        self._bring("add-flows", plan)

    def change(self, old: Sequence[Pair], new: Sequence[Pair]) -> None:
        del old  # it reads the installed entries
        self._bring("replace-flows", new)

    def _bring(self, verb: str, plan: Sequence[Pair]) -> None:
        _FILE.write_text(flows_text(plan))
        ofctl("--bundle", verb, BRIDGE, str(_FILE))
        try:
            ofctl("diff-flows", BRIDGE, str(_FILE))  # fails when there is a difference
        except LabError as error:
            raise LabError(f"the switch does not hold the plan: {error}") from error


def flows_text(plan: Sequence[Pair]) -> str:
    """The plan in the words of ovs-ofctl, a line an entry."""
    return "".join(
        f"cookie={pair.cookie:#x},priority=1000,in_port={FROM},vlan_tci=0x0000/0x1fff,ip,nw_src={pair.source},"
        f"nw_dst={pair.destination},"
        f"actions=output:{TAP},push_vlan:0x8100,set_field:{0x1000 | pair.vlan}->vlan_vid,output:{TRUNK}\n"
        for pair in plan
    )
