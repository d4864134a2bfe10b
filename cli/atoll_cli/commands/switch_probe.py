# SPDX-License-Identifier: Apache-2.0
"""`atoll switches probe`: a switch measured against its driver's profile, by a controller of its own."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from atoll_cli.commands.selection import lab_target, network_on
from atoll_controller.openflow.controller_client import Controller, interpreter
from atoll_controller.probing.switch_probe import Agreement, ProbedBehaviour, SwitchProbe
from atoll_core.description.loader import load_lab_or_experiment
from atoll_core.description.resolve_inventory import load_inventory
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import UsageError
from atoll_core.lab.network import Switch
from atoll_core.plan.switch_features import Runtime, SwitchDescription
from atoll_core.plural import columns
from atoll_switches.capability_profile import profile

CONNECT_TIMEOUT_S = 90.0
"""A ProCurve may take up to a minute to try again."""


def probe_switch(name: str, file: Path, inventory: Path | None, listen: str | None, *, yes: bool, as_json: bool) -> int:
    """Probe a switch; 0, or 1 if it differs from its profile or the user does not confirm.

    ``file``: lab.yaml or experiment.yaml. Raises UsageError and LabError.
    """
    network, _ = load_lab_or_experiment(file)
    target = lab_target(inventory)
    network = network_on(target, network)
    switches = {switch.name: switch for switch in network.switches}
    if name not in switches:
        raise UsageError(f"{name}: no such switch in {file}; {suggest(name, switches, 'switches')}")
    switch = switches[name]
    if not profile(switch.driver).is_hardware:
        raise UsageError(f"{name} has driver {switch.driver}: only hardware has a profile that a probe can compare")
    if listen is None:
        rack = None if target.inventory is None else load_inventory(target.inventory)
        listen = "127.0.0.1:6653" if rack is None else f"{rack.address}:{rack.port}"
    if not yes and not _confirm(name):
        return 1
    description, findings = asyncio.run(_probe(switch, listen if ":" in listen else f"{listen}:6653"))
    if as_json:
        report = {
            "switch": name,
            "dpid": switch.dpid,
            "driver": switch.driver,
            "description": asdict(description),
            "findings": [asdict(finding) for finding in findings],
        }
        print(json.dumps(report))
    else:
        _print_findings(switch, description, findings)
    return 1 if any(finding.verdict is Agreement.DIFFERS for finding in findings) else 0


def _confirm(name: str) -> bool:
    """Ask the user; without a terminal, nothing is probed."""
    if not sys.stdin.isatty():
        print(f"a probe fills the flow table of {name}; if it carries nothing else, add --yes", file=sys.stderr)
        return False
    answer = input(f"the probe fills the flow table of {name}, and sends frames. Does it carry nothing else? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


async def _probe(switch: Switch, listen: str) -> tuple[SwitchDescription, list[ProbedBehaviour]]:
    controller = await Controller.start([], interpreter(Runtime.OS_KEN), listen)
    try:
        _print_progress(f"waiting for {switch.name} (datapath id {switch.dpid:#x}) on {listen}")
        await controller.wait_for([switch.dpid], CONNECT_TIMEOUT_S)
        description = (await controller.features(switch.dpid)).description
        probe = SwitchProbe(controller, switch.name, switch.dpid, profile(switch.driver), _print_progress)
        return description, await probe.run()
    finally:
        await controller.close()


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr)


def _print_findings(switch: Switch, description: SwitchDescription, findings: Sequence[ProbedBehaviour]) -> None:
    brand = description.manufacturer
    brand_parts = () if description.hardware.startswith(brand) else (brand,)  # HP ProCurve, not HP HP ProCurve
    model = " ".join(filter(None, (*brand_parts, description.hardware, description.software)))
    print(f"{switch.name}: {model or 'unknown model'}, compared with {switch.driver}")
    rows = [(finding.verdict.value, finding.name, finding.profile, finding.seen) for finding in findings]
    for line in columns([("", "behaviour", "profile", "seen"), *rows], indent="  "):
        print(line)
    newly_verified = [item.name for item in findings if item.verdict is Agreement.SAME and item.verified is False]
    if newly_verified:
        print(f"Unverified in the profile, and seen now: {', '.join(newly_verified)}")
    count = sum(finding.verdict is Agreement.DIFFERS for finding in findings)
    print(f"{count} {'difference' if count == 1 else 'differences'}; the probe's entries are deleted")
