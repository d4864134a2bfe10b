# SPDX-License-Identifier: Apache-2.0
"""The process with the twins of a lab's switches (``atoll_emulation.twin``), a child of the lab's server."""

import json
import subprocess
import sys

from atoll_core.codec import to_json
from atoll_core.errors import LabError
from atoll_core.lab.network import Network

_WORDS = "reboot, or disconnect and a number of seconds"


class TwinProcess:
    """The running process; ``ports``: where the bridge of each switch with a twin connects."""

    def __init__(self, network: Network, first_port: int, controller_port: int) -> None:
        """Start it. It ends when this process does."""
        found = [switch for switch in network.switches if switch.twin is not None]
        self.ports = {switch.name: port for port, switch in enumerate(found, start=first_port)}
        twins = [
            {
                "switch": switch.name,
                "driver": switch.driver,
                "port": self.ports[switch.name],
                "settings": to_json(switch.twin),
            }
            for switch in found
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "atoll_emulation.twin"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0
        )
        self._write({"controller": controller_port, "twins": twins})

    def command(self, switch: str, words: list[str]) -> None:
        """``reboot`` or ``disconnect SECONDS``. Raises LabError for anything else, and for a switch without a twin."""
        if switch not in self.ports:
            known = ", ".join(self.ports)
            raise LabError(f"{switch} has no twin (`twin` in lab.yaml); switches that have one: {known}")
        match words:
            case ["reboot"]:
                self._write({"op": "reboot", "switch": switch})
            case ["disconnect", seconds] if seconds.replace(".", "", 1).isdigit():
                self._write({"op": "disconnect", "switch": switch, "for_s": float(seconds)})
            case _:
                raise LabError(f"{' '.join(words) or 'nothing'!r} is no command of a twin; write {_WORDS}")

    def _write(self, message: object) -> None:
        """Write a line at once: shells of the lab are forks of its server, and write here, too."""
        if self.process.stdin is not None:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
