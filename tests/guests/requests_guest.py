# SPDX-License-Identifier: Apache-2.0
"""Run by test_virtual_requests in the kernel for virtual time: requests to a link of the kernel's traffic control.

``python -m tests.guests.requests_guest`` prints how many were answered.
"""

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.request_programs import check_answer, running, sandbox_with_interfaces


def main() -> None:
    """Send requests of every kind, and check their answers."""
    answered = 0
    with sandbox_with_interfaces(Path("/tmp")) as sandbox, running("tc", sandbox) as program:

        @settings(max_examples=60, deadline=None, derandomize=True, database=None)
        @given(data=st.data())
        def check(data: st.DataObject) -> None:
            nonlocal answered
            check_answer("tc", program, data)
            answered += 1

        check()
    print(json.dumps({"answered": answered}))


if __name__ == "__main__":
    main()
