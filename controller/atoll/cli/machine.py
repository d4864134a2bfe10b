# SPDX-License-Identifier: Apache-2.0
"""`check --machine`: what this machine can run, and what it lacks."""

import json
import sys

from atoll.model.errors import MachineError
from atoll_emulation.machine import describe_machine, require_machine


def check_machine(*, as_json: bool) -> int:
    """Print the machine's facts; exit code 1 when it cannot run an emulated lab."""
    facts = describe_machine()
    lacks: list[str] = []
    try:
        require_machine()
    except MachineError as error:
        lacks = str(error).splitlines()
    if as_json:
        print(json.dumps({"machine": facts, "lacks": lacks}))
    else:
        for name, fact in facts.items():
            print(f"{name:<16} {fact}")
        for line in lacks:
            print(line, file=sys.stderr)
    return 1 if lacks else 0
