# SPDX-License-Identifier: Apache-2.0
"""`plan`: what would be done, as text or JSON."""

import json
from pathlib import Path

from atoll.cli.load import experiment_with
from atoll.control.plan import make_plan, plan_sha256
from atoll.control.show import plan_text
from atoll.model.codec import to_json
from atoll.model.plan import Backend


def print_plan(
    path: Path, settings: list[str], *, as_json: bool, seed: int | None, duration: str | None, backend: Backend
) -> None:
    """`atoll plan`."""
    network, experiment = experiment_with(path, seed, duration, settings)
    plan = make_plan(network, experiment, backend)
    if as_json:
        print(json.dumps({"sha256": plan_sha256(plan), "plan": to_json(plan)}, indent=2))
    else:
        print(plan_text(plan))
