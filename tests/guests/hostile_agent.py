# SPDX-License-Identifier: Apache-2.0
"""An agent of a machine that somebody has taken over: ``python hostile_agent.py FILE``, of a JSON object.

It greets like any agent. ``answers``: what it adds to the answer to an operation, by its name. ``lines``: what it says
once it is asked for the time, as they are. ``unanswered``: operations that it never answers.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    says = json.loads(Path(sys.argv[1]).read_text())
    hello = {"type": "hello", "protocol": 2, "speaks": [[2, 0]], "version": "0", "pid": 1, "arch": "x86_64"}
    print(json.dumps(hello), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "clock":
            for said in says.get("lines", ()):
                print(said, flush=True)
        if "id" in request and request["op"] not in says.get("unanswered", ()):
            answer = {"type": "answer", "id": request["id"], "ok": True, **says["answers"].get(request["op"], {})}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
