# SPDX-License-Identifier: Apache-2.0
"""PEPsal on a box of kind `program`: ``pepsal.py WORLD ISLAND ADDRESS``, its interfaces and an island host's address.

PEPsal takes the TCP connections of island hosts by TPROXY, and opens others to their servers, from the box's own
address. No switch forwards packets to that one, so these leave with ADDRESS (source NAT): servers see one client.
"""

import os
import subprocess
import sys
from pathlib import Path

PORT = "5000"
CONNECTIONS = "1000"
OWN = "192.0.2.1"  # for documentation (RFC 5737): it is on no network
RULES = """
table ip pepsal
delete table ip pepsal
table ip pepsal {{
    chain take {{
        type filter hook prerouting priority mangle
        iifname "{island}" meta l4proto tcp tproxy to :{port} meta mark set 1 accept
    }}
    chain leave {{
        type nat hook postrouting priority srcnat
        oifname "{world}" ip saddr {own} snat to {address}
    }}
}}
"""
IP_COMMANDS = (
    "link set lo up",
    f"address replace {OWN}/32 dev lo",
    "rule add fwmark 1 lookup 100",
    "route replace local default dev lo table 100",
)
SYSCTLS = {  # of connections that it accepts, which -C does not reach; buffers as those of a box of kind `pep`
    "tcp_congestion_control": "cubic",
    "tcp_rmem": "4096 131072 16000000",
    "tcp_wmem": "4096 16384 16000000",
    "tcp_no_metrics_save": "1",
    "tcp_synack_retries": "1",  # PEPsal forgets connections that repeat theirs up to half a minute after a run
}


def main(world: str, island: str, address: str) -> None:
    """Set up the machine, and become PEPsal."""
    rules = RULES.format(world=world, island=island, address=address, port=PORT, own=OWN)
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
    subprocess.run(["ip", "rule", "del", "fwmark", "1"], stderr=subprocess.DEVNULL, check=False)  # of an earlier start
    for command in IP_COMMANDS:
        subprocess.run(["ip", *command.split()], check=True)
    for name, value in SYSCTLS.items():
        try:
            Path("/proc/sys/net/ipv4", name).write_text(value, encoding="ascii")
        except PermissionError:  # a congestion control that the machine does not let everybody use
            sys.exit(f"net.ipv4.{name} cannot be {value}: add it to net.ipv4.tcp_allowed_congestion_control")
    print(f"PEPsal takes TCP from {island}", flush=True)
    os.execvp("pepsal", ["pepsal", "-p", PORT, "-c", CONNECTIONS, "-C", "cubic"])  # noqa: S606 (there is no shell to need)


if __name__ == "__main__":
    main(*sys.argv[1:])
