# SPDX-License-Identifier: Apache-2.0
"""Runs of two coders over a simulated link (simulation/src/main.rs)."""

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from atoll_core.errors import AtollError
from residuallossbench.ideal_code import Chain

_PARTS = 2  # processes


def simulation(
    phases: Sequence[tuple[int, Chain | None]],
    *,
    size: int,
    depth: int,
    redundancy: int,
    seed: int,
    target: float | None = None,
    count_from: int = 0,
    reports_until: int | None = None,
) -> dict[str, Any]:
    """A simulation: numbers of packets with their losses. ``target``: residual loss to which redundancy is adapted."""
    return {
        "size": size,
        "depth": depth,
        "redundancy": redundancy,
        "adaptive": None if target is None else {"most": size, "residual_loss": target},
        "seed": seed,
        "reports_until": reports_until,
        "count_from": count_from,
        "phases": [
            {"packets": packets, "to_bad": chain.to_bad if chain else 0.0, "to_good": chain.to_good if chain else 1.0}
            for packets, chain in phases
        ],
    }


def simulated(simulations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each of them found. Raises AtollError if the program fails."""
    with ThreadPoolExecutor(_PARTS) as pool:
        parts = list(pool.map(_part, [simulations[number::_PARTS] for number in range(_PARTS)]))
    answers: list[dict[str, Any]] = [{}] * len(simulations)
    for number, part in enumerate(parts):
        answers[number::_PARTS] = part
    return answers


def _part(simulations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(each) + "\n" for each in simulations)
    # it does not outlive this process, even after `kill -9`
    argv = ["setpriv", "--pdeathsig", "KILL", os.environ["RESIDUAL_LOSS"]]
    done = subprocess.run(argv, input=lines, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise AtollError("the simulation failed; see the error above")
    return [json.loads(line) for line in done.stdout.splitlines()]
