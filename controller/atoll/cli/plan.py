# SPDX-License-Identifier: Apache-2.0
"""`plan`: what would be done, as text or JSON."""

import json

from atoll.control.plan import make_plan, plan_sha256
from atoll.control.show import plan_text
from atoll.model.codec import to_json
from atoll.model.experiment import Experiment
from atoll.model.network import Network
from atoll.model.plan import Backend


def print_plan(described: tuple[Network, Experiment], backend: Backend, *, as_json: bool) -> None:
    """`atoll plan`."""
    plan = make_plan(*described, backend)
    if as_json:
        print(json.dumps({"sha256": plan_sha256(plan), "plan": to_json(plan)}, indent=2))
    else:
        print(plan_text(plan))
