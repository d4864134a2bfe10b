# SPDX-License-Identifier: Apache-2.0
"""``atoll check FILE...``: are these descriptions right? Reads files and nothing else."""

import json
import sys
from pathlib import Path

from atoll.model.errors import DescriptionError, Mistake
from atoll.model.experiment import Experiment
from atoll.model.network import Network


def check(paths: list[Path], as_json: bool) -> int:
    """Say of each file that it is right, or what is wrong with it; the exit code (2: a mistake).

    What is right goes to standard output, one line a file; mistakes to standard error, one line each, none twice
    (several experiments may share a lab). With ``as_json`` one object on standard output says it all.
    """
    from atoll.model.document import label  # pydantic and ruamel.yaml take 0.1 s: --help does without
    from atoll.model.load import load_any

    right: dict[str, str] = {}
    mistakes: dict[Mistake, None] = {}  # an ordered set
    for path in paths:
        try:
            right[label(path)] = summary(*load_any(path))
        except DescriptionError as error:
            mistakes |= dict.fromkeys(error.mistakes)
    if as_json:
        wrong = [{"file": one.file, "line": one.line, "message": one.message} for one in mistakes]
        print(json.dumps({"ok": not mistakes, "mistakes": wrong}))
    else:
        for file, text in right.items():
            print(f"{file}: ok ({text})")
        for mistake in mistakes:
            print(mistake, file=sys.stderr)
    return DescriptionError.exit_code if mistakes else 0


def summary(network: Network, experiment: Experiment | None) -> str:
    """A description in a few words."""
    if experiment is None:
        counts = (
            (len(network.switches), "switch", "switches"),
            (len(network.hosts), "host", "hosts"),
            (len(network.boxes), "chain box", "chain boxes"),
            (sum(len(box.classes) for box in network.delay_boxes), "latency class", "latency classes"),
            (len(network.taps), "tap", "taps"),
        )
        return f"lab {network.name}: " + ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts)
    chain = " - ".join(experiment.chain.hops) or "empty"
    load = f"{experiment.traffic.channels} channels, {experiment.duration}"
    return f"experiment {experiment.name} on lab {network.name}: chain {chain}; {load}"
