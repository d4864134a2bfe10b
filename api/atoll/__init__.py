# SPDX-License-Identifier: Apache-2.0
"""atoll in scripts and notebooks: open runs and studies as Polars frames, run experiments, follow their events.

    import atoll

    run = atoll.run("examples/geo.yaml", on="virtual", settings={"duration": "20 s"})
    print(run.verdict, run.summary["goodput_mbit_s"])
    flows = run.table("channel_flows")

    study = atoll.open_study("runs/studies/geo-queues")
    print(study.figures())

Mistakes and failures raise an AtollError whose text is what the command would print.
"""

from atoll.execution import RunningExperiment, run, start
from atoll.recordings import Run, Study, open_run, open_study
from atoll_core.errors import AtollError

__all__ = ["AtollError", "Run", "RunningExperiment", "Study", "open_run", "open_study", "run", "start"]
