# SPDX-License-Identifier: Apache-2.0
"""Find out which link backends this machine's kernel offers, by trying them in new namespaces."""

import shutil
import subprocess

from atoll_emulation.mininet_lab.namespaces import unshare_argv, why_no_namespaces

# What the tc backend asks for (atoll_core.plan.tc_settings), smallest form; each line names what fails with it.
_PROBES = (
    ("ifb", "ip link add name ifb-probe type ifb"),
    ("netem", "tc qdisc add dev lo root handle 1: netem delay 1ms"),
    ("tbf", "tc qdisc replace dev lo root handle 2: tbf rate 1mbit burst 1540 limit 3000"),
    ("stab", "tc qdisc replace dev lo root handle 3: stab linklayer ethernet overhead -14 htb"),
    ("htb", "tc qdisc replace dev lo root handle 4: htb"),
    ("flower", "tc filter add dev lo parent 4: prio 1 protocol 802.1Q flower vlan_id 1 classid 4:1"),
    ("clsact", "tc qdisc add dev lo clsact"),
    ("matchall", "tc filter add dev lo ingress prio 2 protocol all matchall action drop"),
    ("mirred", "tc filter add dev lo ingress prio 1 protocol all matchall action mirred egress redirect dev lo"),
)


def missing_for_tc() -> list[str]:
    """Return a line for each prerequisite of the tc backend that is missing on this machine."""
    if shutil.which("tc") is None or shutil.which("ip") is None:
        return ["the tc backend needs tc and ip: apt install iproute2"]
    why = why_no_namespaces()
    if why is not None:
        return [f"the tc backend could not be tested, because namespaces cannot be made here ({why})"]
    lacks = kernel_lacks()
    if not lacks:
        return []
    return [f"this kernel does not have {', '.join(lacks)}, which the tc backend needs; use --backend engine"]


def kernel_lacks() -> list[str]:
    """Return the parts of traffic control that the tc backend uses and this kernel refuses."""
    script = "\n".join(f"{line} >/dev/null 2>&1 || echo {name}" for name, line in _PROBES)
    said = subprocess.run([*unshare_argv(), "sh", "-c", script], capture_output=True, text=True, check=False)
    return said.stdout.split()
