# SPDX-License-Identifier: Apache-2.0
"""`trace`: the way of a packet between two hosts, as the plan has it."""

import json
from pathlib import Path

from atoll.control.plan import make_plan
from atoll.control.trace import trace, trace_text
from atoll.model.codec import to_json
from atoll.model.experiment import Protocol
from atoll.model.load import load_experiment


def print_trace(path: Path, src: str, dst: str, protocol: Protocol, *, as_json: bool) -> int:
    """`atoll trace`; the exit code (1: the packet does not arrive)."""
    network, experiment = load_experiment(path)
    found = trace(network, experiment, make_plan(network, experiment).flows, src, dst, protocol)
    print(json.dumps(to_json(found), indent=2) if as_json else trace_text(found))
    return 0 if found.arrives else 1
