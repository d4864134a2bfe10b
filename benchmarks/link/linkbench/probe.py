# SPDX-License-Identifier: Apache-2.0
"""Run link-probe (benchmarks/link/probe): frames sent by a schedule, stamped by the kernel path they arrive."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atoll_core.errors import LabError
from linkbench.link_lab import LabPort, scratch

RECORD = np.dtype(
    [("t_ns", "<u8"), ("seq", "<u8"), ("wire_bytes", "<u4"), ("flow", "<u2"), ("vlan", "<u2")]
)  # probe/src/record.rs
HEADER_BYTES = 14  # Ethernet

Records = NDArray[np.void]

_SPARE_S = 30.0


@dataclass(frozen=True, slots=True)
class ProbeFlow:
    """Frames of one size; see probe/src/config.rs."""

    port: LabPort
    packet_bytes: int  # IP
    rate_bit_s: int  # of IP packets
    seconds: float
    gaps: str = "even"
    burst_ns: int = 0
    vlans: Sequence[int] = ()
    seed: int = 1

    def json(self) -> dict[str, Any]:
        """As the probe reads it."""
        fields = asdict(self)
        del fields["seconds"]
        count = max(2, round(self.rate_bit_s * self.seconds / (8 * self.packet_bytes)))
        return fields | {"port": self.port.json(), "vlans": list(self.vlans), "count": count}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The frames sent, and those seen at each port."""

    sent: list[dict[str, int]]
    captured: Mapping[str, Records]  # by the names given to the captures; in order of arrival
    lost: int  # by the captures themselves


def run(
    flows: Sequence[ProbeFlow], captures: Mapping[str, LabPort] | None = None, *, settle_s: float = 0.5
) -> ProbeResult:
    """Send all flows at once, then wait ``settle_s`` for frames in flight. Raises LabError."""
    captures = captures or {}
    files = {name: scratch() / f"{name}.records" for name in captures}
    config = {
        "flows": [flow.json() for flow in flows],
        "captures": [{"port": port.json(), "file": str(files[name])} for name, port in captures.items()],
        "settle_ns": round(settle_s * 1e9),
    }
    limit_s = 3 * max((flow.seconds for flow in flows), default=0.0) + settle_s + _SPARE_S
    done = subprocess.run(
        [binary()], input=json.dumps(config), capture_output=True, text=True, check=False, timeout=limit_s
    )
    if done.returncode != 0:
        raise LabError(f"link-probe failed: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    records = {name: np.fromfile(path, RECORD) for name, path in files.items()}
    for path in files.values():
        path.unlink()
    return ProbeResult(report["flows"], records, sum(capture["lost"] for capture in report["captures"]))


def binary() -> Path:
    """The executable, as ``benchmarks/link/run`` built it."""
    return Path(os.environ["LINK_PROBE"])
