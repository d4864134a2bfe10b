# SPDX-License-Identifier: Apache-2.0
"""`atoll check FILE...`: check descriptions, and with --machine the prerequisites of each platform."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll_cli.terminal.output import diagnostics_json
from atoll_core.errors import DescriptionError, Diagnostic, MachineError, PlanError, UsageError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.platforms import MININET
from atoll_core.plural import counted

if TYPE_CHECKING:  # examines the machine: loaded for --machine only
    from atoll_emulation.this_machine.host_requirements import PlatformCheck


def check(
    paths: list[Path],
    as_json: bool,
    *,
    machine: bool = False,
    inventory: Path | None = None,
    settings: Sequence[str] = (),
    strict: bool = False,
) -> int:
    """Print for each file that it is correct, or its mistakes; returns the exit code.

    The exit code is 2 for a mistake, and 1 for a prerequisite that this machine does not meet.

    Correct files are listed on standard output, one line each. Mistakes go to standard error, one line each and none
    twice, as several experiments may share a lab. With ``as_json`` one object on standard output has all of it.
    ``machine``: also describe this machine, and check each platform's prerequisites. The exit code is 1 if those of an
    emulated lab in real time are not met, or if the kernel does not have a congestion control of an experiment.
    ``inventory``: an inventory of real machines, checked against the labs of all files; without it, programs of boxes
    must be on this machine. ``settings``: override settings of the experiments. ``strict``: treat warnings as mistakes.
    Raises PlanError for a setting that cannot be read, UsageError for settings without an experiment.
    """
    from atoll_controller.planner.description_warnings import description_warnings
    from atoll_controller.planner.job_plan import short_ping_intervals
    from atoll_core.description.file_kinds import STUDY, is_kind
    from atoll_core.description.loader import load_lab_or_experiment
    from atoll_core.description.yaml_document import (  # pydantic and ruamel.yaml take 0.1 s: --help does without
        label,
        read_document,
    )
    from atoll_core.plan.tc_settings import engine_only
    from atoll_emulation.this_machine.box_programs import missing_programs
    from atoll_switches.capability_profile import too_long

    texts: dict[str, str] = {}
    lab_by_file: dict[str, str] = {}  # the file of each description's lab
    labs: dict[str, Network] = {}
    experiments: list[Experiment] = []
    mistakes: dict[Diagnostic, None] = {}  # an ordered set
    warnings: dict[Diagnostic, None] = {}
    engine_settings: dict[str, dict[str, str]] = {}
    missing_controls: dict[str, None] = {}  # of studies, on this machine, a line each
    for path in paths:
        try:
            if is_kind(read_document(path), STUDY):
                text, missing_of_study = _study_summary(path)
                texts |= {} if missing_of_study else {label(path): text}
                missing_controls |= dict.fromkeys(missing_of_study)
                continue
            network, experiment = load_lab_or_experiment(path, settings)
            if experiment and experiment.schedule:
                _require_changes(network, experiment)
        except DescriptionError as error:
            mistakes |= dict.fromkeys(error.mistakes)
            continue
        texts[label(path)], lab_by_file[label(path)] = summary(network, experiment), network.file
        labs[network.file] = network
        mistakes |= dict.fromkeys(too_long(network, experiment))
        mistakes |= dict.fromkeys(short_ping_intervals(network, experiment) if experiment else ())
        mistakes |= dict.fromkeys(missing_programs(network, experiment) if inventory is None else ())
        if experiment:
            experiments.append(experiment)
            if settings_text := engine_only([link for version in experiment.states for link in version.links]):
                engine_settings[label(path)] = settings_text
            strict_warnings = description_warnings(network, experiment, platform=MININET) if strict else ()
            mistakes |= dict.fromkeys(strict_warnings)
            all_warnings = description_warnings(network, experiment)
            warnings |= dict.fromkeys(warning for warning in all_warnings if warning not in mistakes)
    if settings and not (experiments or mistakes):
        raise UsageError("--set overrides settings of an experiment; name an experiment.yaml")
    if inventory is not None:
        try:
            texts[label(inventory)] = _inventory_summary(inventory, list(labs.values()))
        except DescriptionError as error:
            mistakes |= dict.fromkeys(error.mistakes)
    machine_check = _check_machine(experiments) if machine else None
    missing = (*missing_controls, *(machine_check.missing if machine_check else ()))
    if as_json:
        answer = {
            "ok": not (mistakes or missing),
            "mistakes": diagnostics_json(mistakes),
            "warnings": diagnostics_json(warnings),
            "engine_only": engine_settings,
            **({"lacks": missing} if missing else {}),
        }
        print(json.dumps({**(machine_check.to_json() if machine_check else {}), **answer}))
    else:
        faulty_files = {*(mistake.file for mistake in mistakes), *(machine_check.faulty if machine_check else ())}
        for file, text in texts.items():
            if faulty_files.isdisjoint((file, lab_by_file.get(file, file))):
                print(f"{file}: ok ({text})")
            for setting, reason in engine_settings.get(file, {}).items():
                print(f"{file}: {setting}: needs --backend engine, also with --on virtual ({reason})")
        if machine_check:
            machine_check.print_usable()
        warning_lines = [warning.as_warning for warning in warnings]
        machine_lines = machine_check.problem_lines if machine_check else ()
        for line in (*mistakes, *warning_lines, *missing_controls, *machine_lines):
            print(line, file=sys.stderr)
    if mistakes or (machine_check and machine_check.unknown):
        return DescriptionError.exit_code
    return MachineError.exit_code if missing else 0


def _study_summary(path: Path) -> tuple[str, list[str]]:
    """A study in a few words, and a line for each congestion control that this machine does not have for its platform.

    Raises DescriptionError with its mistakes and those of its experiments.
    """
    from atoll_studies.results.result_tables import reserved_columns
    from atoll_studies.study import load_study

    study = load_study(path, reserved_columns())
    configurations = counted(len(study.configurations), "configuration")
    text = f"study: {configurations}; `atoll sweep {path} --dry-run` estimates its runs"
    return text, list(map(str, study.missing_controls))


def _inventory_summary(path: Path, labs: list[Network]) -> str:
    """An inventory in a few words. Raises DescriptionError, also for a part of a lab that is not in it."""
    from atoll_core.description.resolve_inventory import load_inventory

    inventories = [load_inventory(path, lab) for lab in labs] or [load_inventory(path)]
    text = f"inventory for lab {', '.join(lab.name for lab in labs)}" if labs else "inventory"
    return f"{text}: {counted(len(inventories[0].machines), 'machine')}, controller at {inventories[0].address}"


def _require_changes(network: Network, experiment: Experiment) -> None:
    """Raise DescriptionError if a scheduled change cannot be carried out under traffic."""
    from atoll_controller.planner.change_schedule import plan_schedule
    from atoll_controller.planner.planner import make_plan

    try:
        plan_schedule(network, experiment, make_plan(network, experiment))
    except PlanError as error:
        raise DescriptionError([Diagnostic(experiment.file, 0, line) for line in str(error).splitlines()]) from None


@dataclass(frozen=True, slots=True)
class _MachineCheck:
    facts: dict[str, Any]
    platforms: tuple["PlatformCheck", ...]
    missing: tuple[str, ...]  # prerequisites of these experiments in an emulated lab in real time
    unknown: bool  # an experiment names a congestion control that no kernel has
    faulty: set[str]  # files of experiments with a congestion control that this kernel does not have
    problem_lines: tuple[str, ...]  # lines for standard error: missing prerequisites of all platforms

    def print_usable(self) -> None:
        for name, fact in self.facts.items():
            print(f"{name:<19} {fact}")
        for platform in self.platforms:
            if not platform.missing:
                print(f"{f'--on {platform.platform}':<19} works {platform.description}", flush=True)

    def to_json(self) -> dict[str, Any]:
        platforms = {
            platform.platform: {"works": not platform.missing, "how": platform.description, "lacks": platform.missing}
            for platform in self.platforms
        }
        return {"machine": self.facts, "ways": platforms, "lacks": self.missing}


def _check_machine(experiments: list[Experiment]) -> _MachineCheck:
    from atoll_emulation.this_machine.congestion_controls import (
        has_unknown_control,
        local_controls,
        missing_controls,
        virtual_controls,
    )
    from atoll_emulation.this_machine.host_requirements import (
        add_missing,
        check_platforms,
        describe_machine,
        missing_by_platform,
    )
    from atoll_hosts.binary import find_binary

    platforms = check_platforms()
    try:
        find_binary()
    except MachineError as error:  # the agent is needed on every platform
        platforms = tuple(add_missing(platform, [str(error)]) for platform in platforms)
    not_met = [line for platform in platforms if platform.platform == MININET for line in platform.missing]
    control_lines: list[str] = []
    faulty: set[str] = set()
    host_kernel, virtual_kernel = local_controls(), virtual_controls()
    for experiment in experiments:
        control_lines += (missing := missing_controls(experiment, host_kernel, virtual_kernel))
        faulty |= {experiment.file} if missing else set()
    unknown = any(has_unknown_control(experiment, host_kernel, virtual_kernel) for experiment in experiments)
    problem_lines = (*missing_by_platform(platforms), *control_lines)
    return _MachineCheck(describe_machine(), platforms, (*not_met, *control_lines), unknown, faulty, problem_lines)


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
        return f"lab {network.name}: " + ", ".join(f"{n} {noun if n == 1 else plural}" for n, noun, plural in counts)
    chain = " - ".join(experiment.chain.hops) or "empty"
    chain += "".join(f", {branch.name} {' - '.join(branch.hops) or 'empty'}" for branch in experiment.branches)
    if experiment.schedule:
        changes = len(experiment.schedule) - 1
        chain += f"; {counted(changes, 'change')}"
    load = f"{counted(experiment.traffic.total_channels, 'channel')}, {experiment.duration}"
    return f"experiment {experiment.name} on lab {network.name}: chain {chain}; {load}"
