# SPDX-License-Identifier: Apache-2.0
"""Run by test_virtual_tc in the kernel for virtual time: what only a box of the kernel's has, besides its packets.

``python -m tests.guests.tc_guest`` prints counters, answers to requests, and what a box leaves of its settings.
"""

import ctypes
import json
import os
import shutil
import struct
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from atoll_core.experiment.experiment import Bernoulli, Counted, Jitter, JitterShape, Link, LinkDirection, LossPoint
from atoll_core.plan.tc_settings import VIRTUAL_SLACK, Qdisc, delay_settings, link_settings
from atoll_core.units import Duration, Rate, Size
from atoll_hosts.binary import find_binary
from tests.guests.virtual_link_guest import (
    ANSWER_S,
    CLASSES,
    ETHERTYPE,
    HEADER,
    PR_SET_TIMERSLACK,
    arrivals,
    ask,
    chain_box,
    delay_box,
    furnish,
    line_of,
    run,
    running_box,
    send,
    send_frames,
    stamped,
)
from tests.support.sandbox import ATOLL

TO_ISLAND = LinkDirection(Rate.parse("8 Mbit/s"), Duration.parse("20 ms"), Size.parse("30 kB"))
TO_WORLD = replace(TO_ISLAND, rate=Rate.parse("100 Mbit/s"), delay=Duration.parse("35 ms"))
LINK = Link("sat", TO_ISLAND, TO_WORLD, Counted.IP)
LATER = replace(LINK, to_island=replace(TO_ISLAND, delay=Duration.parse("50 ms")))
JITTER = Jitter(JitterShape.UNIFORM, Duration.parse("10 ms"))
LOSSY = replace(TO_WORLD, loss=Bernoulli(0.2, LossPoint.BEFORE), jitter=JITTER)
FEW = tuple((number * 10_000_000, 100) for number in range(20))
LOAD = tuple((number * 1_100_000, 1500) for number in range(200))  # 1500 bytes last 1.5 ms at 8 Mbit/s


def link_results() -> dict[str, Any]:
    """A link: idle both ways, saturated, counted, changed, asked for what it cannot do."""
    found: dict[str, Any] = {}
    settings = link_settings(chain_box(), LINK, VIRTUAL_SLACK)
    with running_box("tc", settings.config) as box:
        found["idle"] = {"to_island": passage(FEW, "world", "island"), "to_world": passage(FEW, "island", "world")}
        found["idle_mark"] = ask(box, {"op": "mark", "id": 1})
        found["load"] = passage(LOAD, "world", "island")
        found["load_mark"] = ask(box, {"op": "mark", "id": 2})
        found["counters"] = line_of(box, "counters")
        found["change"] = ask(box, {"op": "set", "id": 3, **change()})
        found["changed"] = passage(FEW, "world", "island")
        impossible = {**change(), "tc": ["qdisc change dev sat-i root handle 1: netem delay 1s loss 200%"]}
        found["impossible"] = ask(box, {"op": "set", "id": 4, **impossible})
        found["trace"] = ask(box, {"op": "trace-start", "id": 5})
    return {**found, "left": left_behind()}


def change() -> dict[str, Any]:
    """The lines that give the running link ``LINK`` the delay of ``LATER``."""
    settings = link_settings(chain_box(), LATER, VIRTUAL_SLACK)
    (delay,) = [each for each in settings.commands if isinstance(each, Qdisc) and each.dev == "sat-i"]
    return {"tc": [delay.line.replace("qdisc add", "qdisc change")], "expect": [delay.expected], **settings.counters}


def impaired_results() -> dict[str, Any]:
    """A link that loses before its queue and jitters, counted as Ethernet frames."""
    lossy = Link("sat", LOSSY, LOSSY, Counted.ETHERNET)
    with running_box("tc", link_settings(chain_box(), lossy, VIRTUAL_SLACK).config) as box:
        found = passage(tuple((number * 200_000, 100) for number in range(1000)), "world", "island")
        return {**found, "mark": ask(box, {"op": "mark", "id": 1})["to_island"]}


def passage(packets: tuple[tuple[int, int], ...], source: str, sink: str) -> dict[str, Any]:
    """When packets were sent, and number and instant of those that arrived (ns)."""
    with stamped(sink, f"{sink}0") as port:
        sent = send(packets, source)
        time.sleep(1)
        return {"sent": sent, "arrived": list(arrivals(port))}


def delay_results() -> dict[str, Any]:
    """A delay box: a frame of each class, of a VLAN that is none, and untagged."""
    untagged = struct.pack("!HI", ETHERTYPE, 0) + bytes(96)
    tagged = [struct.pack("!HH", 0x8100, vlan) + untagged for vlan in (*CLASSES, 999)]
    with running_box("tc", delay_settings(delay_box()).config) as box, stamped("trunk", "trunk0") as port:
        send_frames([(0, HEADER + rest) for rest in (*tagged, untagged)], "trunk")
        time.sleep(1)
        found = {"returned": len(list(arrivals(port))), "mark": ask(box, {"op": "mark", "id": 1})}
    return {**found, "left": left_behind()}


def refusal_results() -> dict[str, Any]:
    """Settings the kernel refuses, and one it takes otherwise than asked for."""
    config = link_settings(chain_box(), LINK, VIRTUAL_SLACK).config
    unknown = json.loads(json.dumps(config).replace(" tbf ", " tbx "))
    other = json.loads(json.dumps(config).replace('"limit": 30000', '"limit": 40000'))
    return {"unknown": refused(unknown), "other": refused(other)}


def refused(config: dict[str, Any]) -> dict[str, Any]:
    """How a box ends that does not get what it wants."""
    argv = ["ip", "netns", "exec", "box", str(find_binary()), "tc"]
    done = subprocess.run(
        argv, input=json.dumps(config) + "\n", capture_output=True, text=True, check=False, timeout=ANSWER_S
    )
    return {"status": done.returncode, "said": done.stderr, "left": left_behind()}


def undo_results() -> dict[str, Any]:
    """How boxes end whose `tc` fails to undo once, and as often as it is tried; and the boxes after that."""
    tools, config = Path(mkdtemp()), link_settings(chain_box(), LINK, VIRTUAL_SLACK).config
    failures = tools / "failures"
    script = f"""#!/bin/sh
n=$(cat {failures})
if [ "$1" = -force ] && [ "$n" -gt 0 ]; then echo $((n - 1)) >{failures}; echo "Cannot allocate memory" >&2; exit 1; fi
exec {shutil.which("tc")} "$@"
"""
    (tools / "tc").write_text(script)
    (tools / "tc").chmod(0o755)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{tools}:{path}"
    found: dict[str, Any] = {}
    try:
        for case, before, at_the_end in (("once", 0, 1), ("always", 0, 3), ("next", 3, 0), ("after", 0, 0)):
            failures.write_text(f"{before}\n")
            argv, pipe = ["ip", "netns", "exec", "box", str(find_binary()), "tc"], subprocess.PIPE
            with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as box:
                print(json.dumps(config), file=box.stdin, flush=True)
                if not before:
                    line_of(box, "ready")
                failures.write_text(f"{before or at_the_end}\n")
                _, said = box.communicate(timeout=ANSWER_S)
            found[case] = {"status": box.returncode, "said": said, "left": left_behind()}
    finally:
        os.environ["PATH"] = path
    return found


def unanswered() -> str:
    """The error of a request without an id, which no box answers."""
    try:
        with running_box("tc", link_settings(chain_box(), LINK, VIRTUAL_SLACK).config) as box:
            return str(ask(box, {"op": "mark"}))
    except RuntimeError as error:
        return str(error)


def left_behind() -> list[str]:
    """Queueing disciplines and ifb devices in the box's namespace."""
    shown = run("tc -n box qdisc show; ip -n box -o link show type ifb")
    return [line for line in shown.splitlines() if "noqueue" not in line]


def main() -> None:
    """Measure, and write what was found."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    furnish()
    machine = subprocess.run([ATOLL, "check", "--machine", "--json"], capture_output=True, text=True, check=False)
    found: dict[str, Any] = {"link": link_results(), "impaired": impaired_results(), "delay": delay_results()}
    found |= {"refusals": refusal_results(), "unanswered": unanswered(), "undo": undo_results()}
    print(json.dumps({**found, "machine": json.loads(machine.stdout)["machine"]}))


if __name__ == "__main__":
    main()
