# SPDX-License-Identifier: Apache-2.0
"""The machine that measured, for comparison with figures of other machines."""

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

_CPU = Path("/proc/cpuinfo")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def describe() -> dict[str, str]:
    """Processor, kernel, governor, date, revision."""
    cpuinfo = _CPU.read_text()
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    virtual = "hypervisor" in cpuinfo
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": model[1] if model else platform.machine(),
        "cores": str(os.cpu_count()),
        "machine": "virtual" if virtual else "physical",
        "governor": _GOVERNOR.read_text().strip() if _GOVERNOR.exists() else "none (no cpufreq here)",
        "kernel": platform.release(),
        "preemption": _preemption(),
        "load_average": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "user": "root" if os.geteuid() == 0 else "plain user (no real-time scheduling)",
        "revision": _revision(),
    }


def in_words(facts: Mapping[str, str]) -> str:
    """The main facts on one line, as above the tables of documents."""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['machine']} machine, Linux {facts['kernel']}; "
        f"{facts['date']}, revision {facts['revision']}, load {facts['load_average']}."
    )


def _preemption() -> str:
    match = re.search(r"PREEMPT\w*", platform.version())
    return match[0] if match else "PREEMPT_NONE"


def _revision() -> str:
    project = Path(__file__).resolve().parents[3]
    argv = ["git", "-c", f"safe.directory={project}", "-C", str(project), "describe", "--always", "--dirty"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
