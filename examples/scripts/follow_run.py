# SPDX-License-Identifier: Apache-2.0
"""Follow the events of a run, and stop it once its queue was full: follow_run.py [RUNS]."""

import sys
from pathlib import Path

import atoll

EXPERIMENT = Path(__file__).parents[1] / "geo.yaml"


def main() -> None:
    """Print the steps of a run; end it when the queue of the link has reached its capacity."""
    runs = sys.argv[1] if len(sys.argv) > 1 else "runs"
    settings = {"duration": "60 s", "traffic.channels": 200, "links.sat.to_island.queue": "30 kB"}
    with atoll.start(EXPERIMENT, runs=runs, settings=settings) as running:
        for event in running:
            if event["type"] in {"step", "progress", "note"}:
                print(event.get("text") or event.get("message"))
            elif event["type"] == "live" and event.get("dropped_packets"):
                print(f"after {event['elapsed_s']:.1f} s the queue of {event['box']} has dropped packets")
                return


if __name__ == "__main__":
    main()
