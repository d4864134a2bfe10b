# SPDX-License-Identifier: Apache-2.0
"""The command line: commands, options and help texts. The commands' work is in `atoll_cli.commands`.

Exit codes: 0 done (a run: valid, with or without caveats), 1 failed, 2 bad input, 3 completed but invalid,
130 interrupted (docs/exit-codes.md).
"""

import errno
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from atoll_cli.commands.distributions import distributions
from atoll_cli.commands.hosts import hosts
from atoll_cli.commands.kernel import kernel
from atoll_cli.commands.latencies import latencies
from atoll_cli.commands.link_traces import link_traces
from atoll_cli.commands.metrics import dashboards, metrics
from atoll_cli.commands.runs import runs as stored_runs
from atoll_cli.commands.switches import switches
from atoll_cli.terminal.options import (
    INVENTORY_VARIABLE,
    CommandGroup,
    InventoryOption,
    Json,
    number_option,
    require_one_of,
    usage_error_text,
)
from atoll_cli.terminal.output import exit_discarding_output, with_write_errors
from atoll_core.errors import AtollError, InterruptedByUserError, UsageError
from atoll_core.experiment.experiment import DIRECTIONS, Protocol
from atoll_core.plan.plan import Backend
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import VIRTUAL

app = CommandGroup(name="atoll", add_completion=False, pretty_exceptions_enable=False)

link = CommandGroup(help="Test satellite links.")

app.add_typer(link_traces, name="link-traces")
app.add_typer(distributions, name="distributions")
app.add_typer(latencies, name="latencies")
app.add_typer(stored_runs, name="runs")
app.add_typer(metrics, name="metrics")
app.add_typer(dashboards, name="dashboards")
app.add_typer(kernel, name="kernel")
app.add_typer(hosts, name="hosts")
app.add_typer(switches, name="switches")

LabFile = Annotated[Path, typer.Argument(help="lab.yaml, or an experiment.yaml (its lab is used)", metavar="FILE")]
ExperimentFile = Annotated[Path, typer.Argument(help="experiment.yaml", metavar="EXPERIMENT")]


def _platform_option(platforms: str) -> Any:
    text = f"platform: {platforms} [default: hardware if an inventory is named, else mininet]"
    return typer.Option("--on", help=text, metavar="PLATFORM", show_default=False)


def _backend_option(default: str) -> Any:
    text = f"link emulator: atoll's engine, or kernel tc/netem [default: {default}]"
    return typer.Option("--backend", help=text, show_default=False)


PlatformOption = Annotated[str | None, _platform_option("mininet, virtual (virtual time) or hardware")]
RealTimePlatformOption = Annotated[str | None, _platform_option("mininet or hardware")]
BackendOption = Annotated[Backend | None, _backend_option("engine; tc in virtual time")]
RealTimeBackendOption = Annotated[Backend | None, _backend_option("engine")]
RuntimeOption = Annotated[
    Runtime | None,
    typer.Option("--runtime", help="OpenFlow framework: os-ken, or ryu if it is installed"),
]
ListenOption = Annotated[
    str | None,
    typer.Option(
        help="also serve the API on this TCP port, with a token; without a host, on the loopback address",
        metavar="[HOST:]PORT",
    ),
]
NoProbe = Annotated[
    bool,
    typer.Option("--no-probe", help="do not verify paths by probe packets; flow tables are still read back"),
]
SeedOption = Annotated[int | None, number_option("--seed", "seed, instead of the experiment's", 0, 2**63 - 1, kind=int)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="override a setting, such as tcp.congestion_control=hybla, or of the lab, lab.KEY; repeatable",
        metavar="KEY=VALUE",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="treat warnings as errors")]
DurationOption = Annotated[
    str | None, typer.Option(help="override the experiment's duration, such as '10 s'", metavar="DURATION")
]


def _print_version(version_option: bool) -> None:
    if version_option:
        from atoll_cli.commands.version import version_text

        print(version_text())
        raise typer.Exit


@app.callback()
def atoll(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="print version, revision, atoll-host and kernel", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """A testbed for satellite Internet access of islands. OpenFlow entries steer all traffic; no cable is moved."""
    del version


@app.command(epilog="Example: atoll init my-study; atoll init my-study --template pep")
def init(
    directory: Annotated[Path | None, typer.Argument(help="new or empty directory", metavar="DIR")] = None,
    template: Annotated[
        str, typer.Option("--template", help="experiment to begin with; --list has all", metavar="NAME")
    ] = "demo",
    listing: Annotated[
        bool, typer.Option("--list", help="list the templates, and the folder of more examples")
    ] = False,
    json: Json = False,
) -> None:
    """Write a lab, an experiment and a study to begin with.

    They run as they are. No file is overwritten.
    """
    from atoll_cli.commands.init import initialise, list_templates

    if listing and directory is not None:
        raise UsageError("--list writes nothing: leave out DIR, or --list")
    if listing:
        list_templates(as_json=json)
    elif directory is None:
        raise UsageError("name a new directory, or --list")
    else:
        initialise(directory, template, as_json=json)


@app.command(epilog="Example: atoll setup")
def setup(
    yes: Annotated[bool, typer.Option("--yes", help="install without asking")] = False, json: Json = False
) -> None:
    """Install the packages of the distribution that labs and the kernel for virtual time need.

    Lists what is missing with the command that installs it. Root is asked whether to run it.
    Exit code 1: something is still missing.
    """
    from atoll_cli.commands.setup import set_up

    raise typer.Exit(set_up(yes=yes, as_json=json))


@app.command(epilog="Example: atoll check examples/geo.yaml")
def check(
    files: Annotated[
        list[Path] | None, typer.Argument(help="lab.yaml and experiment.yaml files", metavar="FILE...")
    ] = None,
    machine: Annotated[
        bool, typer.Option("--machine", help="also check each platform's prerequisites on this machine")
    ] = False,
    inventory: Annotated[
        Path | None,
        typer.Option(
            "--inventory",
            help="also check this inventory against the labs of the files",
            metavar="FILE",
            envvar=INVENTORY_VARIABLE,
        ),
    ] = None,
    settings: Settings = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Check descriptions and report every mistake.

    Changes nothing.
    """
    from atoll_cli.commands.check import check as check_files

    if not (files or machine or inventory):
        print("name at least one file, or --machine", file=sys.stderr)
        raise typer.Exit(2)
    raise typer.Exit(
        check_files(files or [], json, machine=machine, inventory=inventory, settings=settings or (), strict=strict)
    )


@app.command(
    epilog="Example: atoll plan examples/geo.yaml --graph geo.svg; atoll plan examples/geo.yaml --driver procurve-v2",
)
def plan(
    experiment: ExperimentFile,
    json: Json = False,
    graph: Annotated[
        Path | None, typer.Option("--graph", help="also draw the lab and its chains as SVG", metavar="FILE")
    ] = None,
    settings: Settings = None,
    seed: SeedOption = None,
    duration: DurationOption = None,
    on: PlatformOption = None,
    inventory: InventoryOption = None,
    backend: BackendOption = None,
    strict: Strict = False,
    driver: Annotated[
        str | None,
        typer.Option(
            "--driver", help="print only the placement, as if all switches were of this kind", metavar="DRIVER"
        ),
    ] = None,
) -> None:
    """Print the plan of an experiment.

    The plan has the flow entries of switches and their placement, the settings of hosts, and the jobs on hosts.
    """
    from atoll_cli.commands.plan import print_plan
    from atoll_cli.commands.selection import backend_for, experiment_file, lab_target, network_on

    target = lab_target(inventory, on, planning_only=True)
    network, resolved = experiment_file(experiment, seed, duration, settings or ()).network_and_experiment()
    described, emulator = (network_on(target, network), resolved), backend_for(target, backend)
    print_plan(described, emulator, target.platform, as_json=json, strict=strict, drawing=graph, driver=driver)


@app.command(
    epilog="Example: atoll trace examples/geo.yaml w1 i1 --live; "
    "atoll trace examples/geo.yaml w1 --packet 'IP(dst=\"10.20.0.1\")/UDP(dport=53)'",
)
def trace(
    experiment: ExperimentFile,
    src: Annotated[str | None, typer.Argument(help="source host", metavar="SRC")] = None,
    dst: Annotated[str | None, typer.Argument(help="destination host", metavar="DST")] = None,
    protocol: Annotated[
        Protocol | None, typer.Option(help="protocol of the packet; chains can be chosen by protocol [default: tcp]")
    ] = None,
    packet: Annotated[
        str | None,
        typer.Option(
            "--packet",
            metavar="PACKET",
            help="the packet itself: layers as in Scapy, hexadecimal digits, or a capture file of one packet",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="send probe packets through the lab that is up; its traffic continues")
    ] = False,
    probes: Annotated[
        int | None,
        number_option("--probes", "with --live: number of probes, ten a second [default: 5]", 1, 1000, kind=int),
    ] = None,
    inventory: InventoryOption = None,
    json: Json = False,
) -> None:
    """Show the path of a packet through the lab.

    The path has the switches with their flow entries, the boxes, the taps and the delays.
    """
    from atoll_cli.commands.selection import lab_target, refuse
    from atoll_cli.commands.trace import print_live_trace, print_packet_trace, print_trace

    target = lab_target(inventory)
    refuse(probes is not None and not live, "--probes needs --live")
    if packet is not None:
        refuse(live, "--packet cannot be combined with --live, which sends probes")
        refuse(protocol is not None, "--packet already names a protocol; leave --protocol out")
        raise typer.Exit(print_packet_trace(experiment, packet, src, dst, as_json=json))
    if src is None or dst is None:
        raise UsageError("name the hosts SRC and DST, or the packet by --packet")
    if live:
        traced_protocol = protocol or Protocol.TCP
        raise typer.Exit(print_live_trace(target, experiment, src, dst, traced_protocol, probes or 5, as_json=json))
    raise typer.Exit(print_trace(experiment, src, dst, protocol or Protocol.TCP, as_json=json))


@link.callback()
def links() -> None:
    """Test satellite links."""  # with a callback, a group of one command keeps the command's name


@link.command(epilog="Example: atoll link calibrate examples/geo.yaml")
def calibrate(
    experiment: ExperimentFile,
    direction: Annotated[
        str, typer.Option(help="direction of the links", metavar="<both|to_island|to_world>")
    ] = "both",
    seconds: Annotated[float, number_option("--seconds", "duration of each part of the test, s", 0.5, 600)] = 3.0,
    backend: Annotated[
        Backend, typer.Option("--backend", help="link emulator: atoll's engine, or kernel tc/netem")
    ] = Backend.ENGINE,
    inventory: InventoryOption = None,
    json: Json = False,
) -> None:
    """Test the delay and the rate of every link.

    Tests the delay alone, the rate alone, and both together. Exit code 1: a figure is out of bounds.
    Uses the lab that is up, or brings one up for the test. The experiment is applied to it.
    """
    from atoll_cli.commands.calibrate import calibrate_links
    from atoll_cli.commands.selection import lab_target

    target = lab_target(inventory)
    require_one_of("--direction", direction, "directions", ["both", *DIRECTIONS])
    directions: list[str] = list(DIRECTIONS) if direction == "both" else [direction]
    raise typer.Exit(calibrate_links(target, experiment, directions, seconds, backend, as_json=json))


app.add_typer(link, name="link")


@app.command(epilog="Example: atoll up examples/geo.yaml")
def up(
    file: LabFile,
    on: RealTimePlatformOption = None,
    inventory: InventoryOption = None,
    backend: RealTimeBackendOption = None,
    runtime: RuntimeOption = None,
    listen: ListenOption = None,
    no_probe: NoProbe = False,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Bring a lab up and leave it up.

    If FILE is an experiment, its lab is brought up and the experiment is applied.
    """
    from atoll_cli.commands.lab import bring_up
    from atoll_cli.commands.selection import backend_for, lab_target, refuse
    from atoll_core.description.loader import DescriptionFile

    target = lab_target(inventory, on)
    refuse(
        target.platform == VIRTUAL,
        "up --on virtual: a lab in virtual time exists for one run only; use `atoll run EXPERIMENT --on virtual`",
    )
    emulator, described = backend_for(target, backend), DescriptionFile.read(file)
    bring_up(target, described, emulator, runtime, listen, probe=not no_probe, strict=strict, as_json=json)


@app.command(epilog="Example: atoll apply examples/meo.yaml --dry-run")
def apply(
    experiment: ExperimentFile,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the changes with their reasons; change nothing")
    ] = False,
    immediate: Annotated[
        bool,
        typer.Option("--immediate", help="change all entries at once, without stages; packets in flight may be lost"),
    ] = False,
    connections: Annotated[
        str,
        typer.Option(
            help="connections that the change would break, such as those of a PEP: reset them, or first wait until "
            "they end (at most 1 min, or LIMIT with 'wait:LIMIT')",
            metavar="reset|wait[:LIMIT]",
        ),
    ] = "reset",
    no_probe: NoProbe = False,
    inventory: InventoryOption = None,
    backend: RealTimeBackendOption = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Apply an experiment to the lab that is up.

    Makes the smallest possible change. Chains can be changed while traffic flows.
    """
    from atoll_cli.commands.lab import apply_experiment
    from atoll_cli.commands.selection import backend_for, lab_target

    target = lab_target(inventory)
    apply_experiment(
        target,
        experiment,
        backend_for(target, backend),
        dry_run=dry_run,
        immediate=immediate,
        connections=connections,
        probe=not no_probe,
        strict=strict,
        as_json=json,
    )


@app.command(epilog="Example: atoll run examples/geo.yaml --on virtual --duration '600 s'")
def run(
    experiment: ExperimentFile,
    on: PlatformOption = None,
    inventory: InventoryOption = None,
    runs: Annotated[Path, typer.Option(help="parent of the run directories", metavar="DIR")] = Path("runs"),
    backend: BackendOption = None,
    runtime: RuntimeOption = None,
    listen: ListenOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="leave the lab up after the run")] = False,
    no_analysis: Annotated[
        bool, typer.Option("--no-analysis", help="measure only; `atoll report` makes tables and report later")
    ] = False,
    no_metrics: Annotated[
        bool,
        typer.Option("--no-metrics", help="do not record metrics (in virtual time this changes packet timing)"),
    ] = False,
    full_matrix: Annotated[
        bool,
        typer.Option("--full-matrix", help="before the run, ping every pair of hosts, not only one pair for each host"),
    ] = False,
    verify_repeat: Annotated[
        bool,
        typer.Option(
            "--verify-repeat", help="with --on virtual: make the run twice and compare captures, tables and summary"
        ),
    ] = False,
    settings: Settings = None,
    seed: SeedOption = None,
    duration: DurationOption = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Run an experiment and report the result.

    Checks the paths, measures, analyses, and writes a report. Uses the lab that is up, or brings one up for the run.
    """
    from atoll_cli.commands.run import RunCommand, run_experiment
    from atoll_cli.commands.selection import backend_for, experiment_file, lab_target, refuse
    from atoll_testbed.run.run_request import RunOptions

    target = lab_target(inventory, on)
    virtual = target.platform == VIRTUAL
    refuse(
        verify_repeat and not virtual,
        f"--verify-repeat: runs on {target.platform} are not repeatable; use --on virtual",
    )
    refuse(verify_repeat and no_analysis, "--verify-repeat needs the analysis; leave out --no-analysis")
    refuse(listen is not None and virtual, "--listen: a run in virtual time has no API; use --on mininet")
    refuse(keep and virtual, "--keep: a lab in virtual time exists for one run only; use --on mininet")
    refuse(
        runtime not in (None, Runtime.OS_KEN) and virtual,
        f"--runtime {runtime}: in virtual time the controller always runs os-ken; use --on mininet",
    )
    command = RunCommand(
        experiment_file(experiment, seed, duration, settings or ()),
        target,
        RunOptions(backend_for(target, backend), metrics=not no_metrics, full_matrix=full_matrix),
        runs,
        runtime,
        listen,
        keep=keep,
        analyse=not no_analysis,
        twice=verify_repeat,
        strict=strict,
        as_json=json,
    )
    raise typer.Exit(run_experiment(command))


@app.command(epilog="Example: atoll sweep examples/studies/geo-queues.yaml --dry-run")
def sweep(
    study: Annotated[Path, typer.Argument(help="study.yaml", metavar="STUDY")],
    directory: Annotated[
        Path | None, typer.Argument(help="directory of the study [default: runs/studies/NAME]", metavar="DIR")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="keep the runs that are in the directory, and make the missing ones")
    ] = False,
    mix: Annotated[
        bool, typer.Option("--mix", help="keep runs that another version of atoll or another kernel made")
    ] = False,
    jobs: Annotated[
        int | None,
        number_option(
            "--jobs", "number of parallel runs in virtual time [default: number of cores]", 1, 1024, kind=int
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            help="make the runs on the workers of this Dask scheduler: tls://HOST:PORT, or tcp:// on this machine",
            metavar="ADDRESS",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the planned runs, their wall time and disk space; make no run")
    ] = False,
    inventory: InventoryOption = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Run a study: many settings and seeds.

    Runs every combination of the factors' levels with every seed. Then prints tables and statistics.
    """
    from atoll_cli.commands.sweep import sweep_study

    modes = {"resume": resume, "mix": mix, "dry_run": dry_run}
    raise typer.Exit(sweep_study(study, directory, inventory, jobs, scheduler, **modes, strict=strict, as_json=json))


@app.command("code-design", epilog="Example: atoll code-design runs/geo/20261121T101500Z-1 --link sat")
def code_design(
    run: Annotated[Path, typer.Argument(help="analysed run directory", metavar="RUN")],
    link_name: Annotated[
        str | None, typer.Option("--link", help="link [default: the slowest one]", metavar="BOX")
    ] = None,
    json: Json = False,
) -> None:
    """Show which network code would have recovered 99 and 99.9 % of the packets that a link lost in a run."""
    from atoll_cli.commands.code_design import show_code_designs

    show_code_designs(run, link_name, as_json=json)


@app.command(
    epilog="Example: atoll report runs/geo/20261121T101500Z-1; atoll report --compare runs/geo/*; "
    "atoll report runs/studies/geo-queues --figure goodput --out goodput.pdf",
)
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="run directory, or a study's; with --compare two or more", metavar="RUN...")
    ],
    tables: Annotated[
        list[Path] | None,
        typer.Option(
            "--runs",
            help="show the results of STUDY.yaml by this table of its runs instead of its directory; repeatable",
            metavar="FILE.csv",
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="compare runs; the settings in which they differ are the factors")
    ] = False,
    figures: Annotated[
        list[str] | None,
        typer.Option("--figure", help="show only this figure, such as 'transfer time'; repeatable", metavar="NAME"),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            help="the level that others are compared with [default: the study's, or the first]; repeatable",
            metavar="FACTOR=LEVEL",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="also write a page with plots (.html), a document (.md, .json), a table (.csv, .parquet) or a plot of "
            "the first figure (.svg, .pdf, .png)",
            metavar="FILE",
        ),
    ] = None,
    per_run: Annotated[
        bool,
        typer.Option(
            "--per-run", help="also show the figures of every run; --out FILE.csv then has a row for each run"
        ),
    ] = False,
    mixed_kernels: Annotated[
        bool, typer.Option("--mixed-kernels", help="with --compare: allow runs in virtual time on different kernels")
    ] = False,
    json: Json = False,
) -> None:
    """Report a run, a study or a comparison.

    For one run: analyse it again and write its report. For a study, or several runs with --compare: show the results.
    Tables of a study's runs, such as a paper has, give the same results with --runs. Needs no lab.
    """
    from atoll_cli.commands.report import View, rebuild, report_comparison, report_study, report_tables
    from atoll_cli.commands.selection import refuse

    view = View(figures or (), baseline or (), out, per_run=per_run, as_json=json)
    refuse(mixed_kernels and not compare, "report: --mixed-kernels needs --compare")
    refuse(bool(tables and (compare or len(runs) > 1)), "report: --runs needs one STUDY.yaml, without --compare")
    if tables:
        report_tables(runs[0], tables, view)
        return
    if compare:
        report_comparison(runs, view, mixed_kernels=mixed_kernels)
        return
    refuse(len(runs) > 1, "report: name one run, or use --compare for several")
    if (runs[0] / "study.json").is_file():
        report_study(runs[0], view)
        return
    refuse(
        bool(figures or baseline or out or per_run),
        "report: --figure, --baseline, --out and --per-run need --compare or a study",
    )
    rebuild(runs[0], as_json=json)


@app.command(epilog="Example: atoll results | grep goodput")
def results() -> None:
    """List tables, columns and keys of results.

    With units and meanings, as Markdown: those of runs and studies, codes of findings, names of figures.
    """
    from atoll_studies.results.results_reference import reference

    print(reference())


@app.command(epilog="Example: atoll watch --open; atoll watch runs/geo/20261121T101500Z-1")
def watch(
    run: Annotated[Path | None, typer.Argument(help="run directory to replay", metavar="RUN")] = None,
    listen: Annotated[
        str, typer.Option(help="TCP port of the page; without a host, on the loopback address", metavar="[HOST:]PORT")
    ] = "8470",
    browser: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
    runs: Annotated[Path, typer.Option(help="directory with the runs to offer for replay", metavar="DIR")] = Path(
        "runs"
    ),
    inventory: InventoryOption = None,
    json: Json = False,
) -> None:
    """Serve the live page until Ctrl-C.

    The page shows the lab that is up, later labs, and replays of runs.
    """
    from atoll_cli.commands.selection import lab_target
    from atoll_cli.commands.watch import watch_lab

    watch_lab(lab_target(inventory), run, runs, listen, open_browser=browser, as_json=json)


@app.command(epilog="Example: atoll down")
def down(
    force: Annotated[
        bool, typer.Option("--force", help="also if a run is in progress: end it and keep its measurements")
    ] = False,
    inventory: InventoryOption = None,
    json: Json = False,
) -> None:
    """Take the lab down and remove everything it started."""
    from atoll_cli.commands.lab_state import take_down
    from atoll_cli.commands.selection import lab_target

    take_down(lab_target(inventory, may_be_missing=True), force=force, as_json=json)


@app.command(epilog="Example: atoll status --json")
def status(inventory: InventoryOption = None, json: Json = False) -> None:
    """Show the state of the lab.

    Exit code 1: the lab has failed, or no lab is up and the last one failed.
    """
    from atoll_cli.commands.lab_state import print_status
    from atoll_cli.commands.selection import lab_target

    raise typer.Exit(print_status(lab_target(inventory, may_be_missing=True), as_json=json))


@app.command(epilog="Example: atoll clean")
def clean(
    yes: Annotated[bool, typer.Option("--yes", help="remove without asking")] = False, json: Json = False
) -> None:
    """Remove what atoll keeps in caches, such as kernels for virtual time.

    Lists it with sizes and asks; without a terminal nothing is removed unless by --yes. What a process uses stays.
    Results of runs and studies are in no cache.
    """
    from atoll_cli.commands.clean import clean as clean_caches

    clean_caches(yes=yes, as_json=json)


@app.command(epilog="Example: echo nodes | atoll shell")
def shell() -> None:
    """Open Mininet's CLI on the lab that is up.

    Standard input from a pipe is run as a script.
    """
    from atoll_cli.commands.selection import lab_target
    from atoll_cli.commands.shell import open_shell

    open_shell(lab_target(may_be_missing=True))


def main() -> None:
    """Entry point of the program: each error is printed in one line, never as a traceback."""
    sys.stdout = with_write_errors(sys.stdout)
    code = 0
    try:
        try:
            code = app(prog_name="atoll", standalone_mode=False) or 0
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # an error at the interpreter's exit would be printed as a traceback
    except typer.TyperException as error:
        print(usage_error_text(error, app, sys.argv[1:]), file=sys.stderr)
        exit_discarding_output(UsageError.exit_code)
    except AtollError as error:
        print(error, file=sys.stderr)
        exit_discarding_output(error.exit_code)
    except BrokenPipeError:
        exit_discarding_output(1)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)  # pathlib's `exists` raises it
        exit_discarding_output(UsageError.exit_code)
    if code == InterruptedByUserError.exit_code:  # Ctrl-C in a command that leaves nothing behind
        print("interrupted", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
