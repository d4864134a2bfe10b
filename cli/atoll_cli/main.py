# SPDX-License-Identifier: Apache-2.0
"""The verbs, one a station of the way from description to report. Each one's work is in a module of its own.

Exit codes: 0 done (a run: valid, with caveats or without), 1 failed, 2 bad input, 3 completed but invalid,
130 interrupted (docs/exit-codes.md).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from atoll_cli.commands.dashboards import dashboards
from atoll_cli.commands.distributions import distributions
from atoll_cli.commands.hosts import hosts
from atoll_cli.commands.kernel import kernel
from atoll_cli.commands.latencies import latencies
from atoll_cli.commands.link import link
from atoll_cli.commands.link_traces import link_traces
from atoll_cli.commands.metrics import metrics
from atoll_cli.commands.switches import switches
from atoll_cli.terminal.options import PlainArguments, Rack, misuse, whole
from atoll_cli.terminal.stdout_errors import leave, plainly_failing
from atoll_core.errors import AtollError, InterruptedByUserError, UsageError
from atoll_core.experiment.experiment import Protocol
from atoll_core.plan.plan import Backend
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import MININET, VIRTUAL

app = typer.Typer(
    name="atoll",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(link_traces, name="link-traces")
app.add_typer(distributions, name="distributions")
app.add_typer(latencies, name="latencies")
app.add_typer(link, name="link")
app.add_typer(metrics, name="metrics")
app.add_typer(dashboards, name="dashboards")
app.add_typer(kernel, name="kernel")
app.add_typer(hosts, name="hosts")
app.add_typer(switches, name="switches")

LabFile = Annotated[Path, typer.Argument(help="lab.yaml, or an experiment.yaml (its lab is used)", metavar="FILE")]
ExperimentFile = Annotated[Path, typer.Argument(help="experiment.yaml", metavar="EXPERIMENT")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")]
Place = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="platform: mininet, virtual (in virtual time) or hardware "
        "[default: hardware if an inventory is named, else mininet]",
        metavar="PLACE",
        show_default=False,
    ),
]
Boxes = Annotated[
    Backend | None,
    typer.Option(
        "--backend",
        help="link emulator: atoll's engine, or kernel tc/netem [default: engine; tc in virtual time]",
        show_default=False,
    ),
]
Speaker = Annotated[
    Runtime | None,
    typer.Option("--runtime", help="OpenFlow framework: os-ken, or ryu if `tools/ryu` has installed it"),
]
Listen = Annotated[
    str | None,
    typer.Option(
        help="also serve the API on this TCP port, with a token; without a host, on the loopback address",
        metavar="[HOST:]PORT",
    ),
]
NoProbe = Annotated[
    bool, typer.Option("--no-probe", help="read tables back, but do not verify them with probe packets")
]
Seed = Annotated[int | None, whole("--seed", "instead of the experiment's seed", 0, 2**63 - 1)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="override a setting of the experiment, such as tcp.congestion_control=hybla; repeatable",
        metavar="KEY=VALUE",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="treat warnings as errors")]
Length = Annotated[
    str | None, typer.Option(help="instead of the experiment's duration, such as '10 s'", metavar="DURATION")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"atoll {version('atoll')}")
        raise typer.Exit


@app.callback()
def atoll(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """A satellite-Internet testbed for islands: topologies switched by OpenFlow, not by recabling."""
    del version


@app.command(cls=PlainArguments, epilog="Example: atoll check examples/geo.yaml")
def check(
    files: Annotated[
        list[Path] | None, typer.Argument(help="lab.yaml and experiment.yaml files", metavar="FILE...")
    ] = None,
    machine: Annotated[
        bool, typer.Option("--machine", help="also check each platform's prerequisites on this machine")
    ] = False,
    inventory: Annotated[
        Path | None,
        typer.Option("--inventory", help="also check this inventory against the labs of the files", metavar="FILE"),
    ] = None,
    settings: Settings = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Check descriptions: every mistake at once, nothing touched."""
    from atoll_cli.commands.check import check as check_files

    if not (files or machine or inventory):
        print("name at least one file, or --machine", file=sys.stderr)
        raise typer.Exit(2)
    raise typer.Exit(
        check_files(files or [], json, machine=machine, inventory=inventory, settings=settings or (), strict=strict)
    )


@app.command(cls=PlainArguments, epilog="Example: atoll plan examples/geo.yaml --graph geo.svg")
def plan(
    experiment: ExperimentFile,
    json: Json = False,
    graph: Annotated[
        Path | None, typer.Option("--graph", help="also draw the lab and its chains as SVG", metavar="FILE")
    ] = None,
    settings: Settings = None,
    seed: Seed = None,
    duration: Length = None,
    on: Place = None,
    inventory: Rack = None,
    backend: Boxes = None,
    strict: Strict = False,
) -> None:
    """Print what an experiment asks of switches, boxes and hosts."""
    from atoll_cli.commands.plan import print_plan
    from atoll_cli.commands.selection import experiment_with, place_backend, platform_of, standing_on

    place = platform_of(on, inventory)
    boxes = place_backend(place, backend)
    described = standing_on(place, inventory, experiment_with(experiment, seed, duration, settings or ()))
    print_plan(described, boxes, place, as_json=json, strict=strict, drawing=graph)


@app.command(
    cls=PlainArguments,
    epilog="Example: atoll trace examples/geo.yaml w1 i1; atoll trace examples/geo.yaml w1 i1 --live",
)
def trace(
    experiment: ExperimentFile,
    src: Annotated[str, typer.Argument(help="source host", metavar="SRC")],
    dst: Annotated[str, typer.Argument(help="destination host", metavar="DST")],
    protocol: Annotated[
        Protocol, typer.Option(help="protocol of the packet; chains can be chosen by protocol")
    ] = Protocol.TCP,
    live: Annotated[
        bool, typer.Option("--live", help="send probe packets through the running lab; traffic may continue")
    ] = False,
    probes: Annotated[
        int | None, whole("--probes", "with --live: number of probes, ten a second [default: 5]", 1, 1000)
    ] = None,
    inventory: Rack = None,
    json: Json = False,
) -> None:
    """Show the path of a packet: switches with their flow entries, boxes, taps, delays."""
    from atoll_cli.commands.selection import mean_rack, refuse
    from atoll_cli.commands.trace import print_live_trace, print_trace

    mean_rack(inventory)
    refuse(probes is not None and not live, "--probes belongs to --live")
    if live:
        raise typer.Exit(print_live_trace(experiment, src, dst, protocol, probes or 5, as_json=json))
    raise typer.Exit(print_trace(experiment, src, dst, protocol, as_json=json))


@app.command(cls=PlainArguments, epilog="Example: atoll up examples/geo.yaml")
def up(
    file: LabFile,
    on: Place = None,
    inventory: Rack = None,
    backend: Boxes = None,
    runtime: Speaker = None,
    listen: Listen = None,
    no_probe: NoProbe = False,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Bring the lab up and leave it up; an experiment is applied to it as well."""
    from atoll_cli.commands.lab import bring_up
    from atoll_cli.commands.selection import choose_rack, place_backend, platform_of, refuse

    place = platform_of(on, inventory)
    boxes = place_backend(place, backend)
    choose_rack(place, inventory)
    refuse(place == VIRTUAL, "up --on virtual: a virtual lab lives for one run: `atoll run EXPERIMENT --on virtual`")
    raise typer.Exit(bring_up(file, boxes, runtime, listen, probe=not no_probe, strict=strict, as_json=json))


@app.command(cls=PlainArguments, epilog="Example: atoll apply examples/meo.yaml --dry-run")
def apply(
    experiment: ExperimentFile,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the changes with their reasons; change nothing")
    ] = False,
    at_once: Annotated[
        bool, typer.Option("--immediate", help="switch immediately; packets in flight may be lost")
    ] = False,
    connections: Annotated[
        str,
        typer.Option(
            help="connections that a swap breaks, such as in PEPs: reset them, or wait for their end first "
            "(at most a minute, or 'wait:LIMIT')",
            metavar="reset|wait[:LIMIT]",
        ),
    ] = "reset",
    no_probe: NoProbe = False,
    inventory: Rack = None,
    backend: Boxes = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Apply an experiment to the running lab with the fewest changes; chains are swapped under traffic."""
    from atoll_cli.commands.lab import apply_experiment
    from atoll_cli.commands.selection import mean_rack, place_backend

    mean_rack(inventory)
    boxes = place_backend(MININET, backend)
    apply_experiment(
        experiment,
        boxes,
        dry_run=dry_run,
        at_once=at_once,
        connections=connections,
        probe=not no_probe,
        strict=strict,
        as_json=json,
    )


@app.command(cls=PlainArguments, epilog="Example: atoll run examples/geo.yaml --on virtual --duration '600 s'")
def run(
    experiment: ExperimentFile,
    on: Place = None,
    inventory: Rack = None,
    runs: Annotated[Path, typer.Option(help="parent of the run directories")] = Path("runs"),
    backend: Boxes = None,
    runtime: Speaker = None,
    listen: Listen = None,
    keep: Annotated[bool, typer.Option("--keep", help="leave the lab up after the run")] = False,
    no_analysis: Annotated[
        bool, typer.Option("--no-analysis", help="measure only; `atoll report` makes tables and report later")
    ] = False,
    no_metrics: Annotated[
        bool, typer.Option("--no-metrics", help="do not record metrics (in virtual time this changes packet timing)")
    ] = False,
    full_matrix: Annotated[
        bool, typer.Option("--full-matrix", help="before the run, ping every pair of hosts instead of each host once")
    ] = False,
    verify_repeat: Annotated[
        bool,
        typer.Option("--verify-repeat", help="with --on virtual: run twice and compare captures, tables and summary"),
    ] = False,
    settings: Settings = None,
    seed: Seed = None,
    duration: Length = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Run an experiment: test, measure, analyse, report. Brings up a lab of its own unless one is running."""
    from atoll_cli.commands.selection import choose_rack, experiment_with, place_backend, platform_of, refuse

    place = platform_of(on, inventory)
    boxes = place_backend(place, backend)
    choose_rack(place, inventory)
    refuse(
        verify_repeat and place != VIRTUAL,
        f"--verify-repeat: a run --on {place} never repeats itself; use --on virtual",
    )
    refuse(verify_repeat and no_analysis, "--verify-repeat compares what --no-analysis leaves out; choose one")
    refuse(
        listen is not None and place == VIRTUAL, "--listen: in virtual time there is nobody to ask; use --on mininet"
    )
    refuse(keep and place == VIRTUAL, "--keep: a virtual lab lives for one run; use --on mininet")
    refuse(
        runtime not in (None, Runtime.OS_KEN) and place == VIRTUAL,
        f"--runtime {runtime}: in virtual time the controller is os-ken; use --on mininet",
    )
    described = experiment_with(experiment, seed, duration, settings or ())
    if place == VIRTUAL:
        from atoll_cli.commands.virtual import run_in_virtual_time

        code = run_in_virtual_time(
            described,
            runs,
            boxes,
            analyse=not no_analysis,
            metrics=not no_metrics,
            full_matrix=full_matrix,
            twice=verify_repeat,
            strict=strict,
            as_json=json,
        )
    else:
        from atoll_cli.commands.run import run_experiment
        from atoll_cli.commands.selection import settings_with
        from atoll_daemon.client import Description

        code = run_experiment(
            described,
            Description(experiment, tuple(settings_with(described[1], seed, duration, settings or ()))),
            runs,
            boxes,
            runtime,
            listen,
            keep=keep,
            analyse=not no_analysis,
            metrics=not no_metrics,
            full_matrix=full_matrix,
            strict=strict,
            as_json=json,
        )
    raise typer.Exit(code)


@app.command(
    cls=PlainArguments,
    epilog="Example: atoll report runs/geo/20261121T101500Z-1; atoll report --compare runs/geo/*",
)
def report(
    runs: Annotated[list[Path], typer.Argument(help="run directory; several with --compare", metavar="RUN...")],
    compare: Annotated[bool, typer.Option("--compare", help="show runs side by side")] = False,
    figures: Annotated[
        list[str] | None,
        typer.Option(
            "--figure", help="with --compare: only this figure, such as 'transfer time'; repeatable", metavar="NAME"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="with --compare: also write a .md or .html file", metavar="FILE")
    ] = None,
    each: Annotated[
        bool, typer.Option("--per-run", help="with --compare: also print the figures of every run of a group")
    ] = False,
    mixed_kernels: Annotated[
        bool, typer.Option("--mixed-kernels", help="with --compare: allow virtual-time runs of different kernels")
    ] = False,
    json: Json = False,
) -> None:
    """Analyse a run again and write its report, or compare runs; needs no testbed."""
    from atoll_cli.commands.report import rebuild, report_comparison
    from atoll_cli.commands.selection import refuse

    if compare:
        report_comparison(runs, figures or [], out, each=each, mixed_kernels=mixed_kernels, as_json=json)
        return
    refuse(len(runs) > 1, "report: one run at a time; --compare puts several side by side")
    refuse(
        bool(figures or out or each or mixed_kernels),
        "report: --figure, --out, --per-run and --mixed-kernels belong to --compare",
    )
    rebuild(runs[0], as_json=json)


@app.command(cls=PlainArguments, epilog="Example: atoll watch --open; atoll watch runs/geo/20261121T101500Z-1")
def watch(
    run: Annotated[Path | None, typer.Argument(help="run directory to replay", metavar="RUN")] = None,
    listen: Annotated[
        str, typer.Option(help="TCP port of the page; without a host, on the loopback address", metavar="[HOST:]PORT")
    ] = "8470",
    browser: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
    runs: Annotated[Path, typer.Option(help="directory whose runs can be replayed")] = Path("runs"),
    inventory: Rack = None,
    json: Json = False,
) -> None:
    """Serve the live page until Ctrl-C: the running lab, the next one, and replays of runs."""
    from atoll_cli.commands.selection import mean_rack
    from atoll_cli.commands.watch import watch_lab

    mean_rack(inventory)
    watch_lab(run, runs, listen, open_browser=browser, as_json=json)


@app.command(epilog="Example: atoll down")
def down(
    force: Annotated[bool, typer.Option("--force", help="even during a run; its measurements are kept")] = False,
    inventory: Rack = None,
    json: Json = False,
) -> None:
    """Take the lab down and remove everything it started."""
    from atoll_cli.commands.lab import take_down
    from atoll_cli.commands.selection import mean_rack

    mean_rack(inventory, moved=True)
    take_down(force=force, as_json=json)


@app.command(epilog="Example: atoll status --json")
def status(inventory: Rack = None, json: Json = False) -> None:
    """Show the state of the lab; exit code 1 if it, or the last one, has failed."""
    from atoll_cli.commands.lab import print_status
    from atoll_cli.commands.selection import mean_rack

    mean_rack(inventory, moved=True)
    raise typer.Exit(print_status(as_json=json))


@app.command(epilog="Example: echo nodes | atoll shell")
def shell() -> None:
    """Open Mininet's CLI on the running lab; piped input runs as a script."""
    from atoll_cli.commands.shell import open_shell

    open_shell()


def main() -> None:
    """Entry point of the program: errors are told in one line each, never as a traceback."""
    sys.stdout = plainly_failing(sys.stdout)
    code = 0
    try:
        try:
            code = app(prog_name="atoll", standalone_mode=False) or 0
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, and not as the interpreter ends, which nobody could tell plainly
    except typer.TyperException as error:
        print(misuse(error, app, sys.argv[1:]), file=sys.stderr)
        leave(UsageError.exit_code)
    except AtollError as error:
        print(error, file=sys.stderr)
        leave(error.exit_code)
    except BrokenPipeError:
        leave(1)
    if code == InterruptedByUserError.exit_code:  # Ctrl-C where nothing was begun that somebody would have to know of
        print("interrupted", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
