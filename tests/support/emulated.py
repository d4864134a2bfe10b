# SPDX-License-Identifier: Apache-2.0
"""A lab in a process of its own, for tests that kill it or run it elsewhere: ``python emulated.py LAB.yaml [COMMAND]``.

Prints a line of JSON when the lab is up (its facts and what COMMAND printed inside it, through ``sh -c``), takes the
lab down when standard input ends, and prints why the lab ended.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from atoll_core.description.loader import load_lab
from atoll_core.errors import AtollError
from atoll_core.events.event_bus import EventBus
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab


async def main() -> None:
    command = sys.argv[2] if len(sys.argv) > 2 else ":"
    lab = await EmulatedLab.begin(load_lab(Path(sys.argv[1])), EventBus())
    await lab.complete()
    inside = await asyncio.create_subprocess_exec(*lab.enter(), "sh", "-c", command, stdout=asyncio.subprocess.PIPE)
    said, _ = await inside.communicate()
    facts = {"pid": os.getpid(), "hosts": lab.hosts, "datapath": lab.datapath, "said": said.decode().split()}
    print(json.dumps(facts), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await lab.stop()
    print(await lab.ended)


try:
    asyncio.run(main())
except AtollError as error:
    sys.exit(str(error))
