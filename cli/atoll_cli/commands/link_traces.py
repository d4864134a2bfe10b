# SPDX-License-Identifier: Apache-2.0
"""`atoll link-traces rain|meo|leo|losses`: write a trace that a link of an experiment can follow (docs/traces.md)."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from atoll_cli.terminal.options import CommandGroup, Json, PlotFile, number_option
from atoll_cli.terminal.output import IMAGE_ENDINGS, refuse_overwriting, require_ending, write_file
from atoll_core.errors import PlanError
from atoll_core.plural import counted

if TYPE_CHECKING:  # trace generators are loaded only to make a trace
    from atoll_core.experiment.experiment import LinkTrace
    from atoll_core.units import Duration, Rate, Size
    from atoll_emulation.trace_generators.orbit import Site

    Q = TypeVar("Q", Rate, Duration, Size)

link_traces = CommandGroup(help="Make a link trace: rain fade, passes, losses.")

Out = Annotated[Path, typer.Option("--out", help="CSV file to write", metavar="FILE")]
TraceSeed = Annotated[int, number_option("--seed", "seed of the random process", 0, 2**63 - 1, kind=int)]
TraceDuration = Annotated[str, typer.Option(help="duration of the trace, at most 6 h", metavar="DURATION")]
SiteOption = Annotated[
    str | None, typer.Option(help="degrees north and east [default: the constellation's site]", metavar="LAT,LON")
]

_LONGEST_DURATION = "6 h"


@link_traces.command(epilog="Example: atoll link-traces rain --out rain.csv --rate '16 Mbit/s' --plot rain.png")
def rain(
    context: typer.Context,
    out: Out,
    rate: Annotated[str, typer.Option(help="rate in a clear sky", metavar="RATE")] = "16 Mbit/s",
    duration: TraceDuration = "10 min",
    fade: Annotated[float, number_option("--fade", "attenuation by rain at the time --at, dB", 0.1, 100)] = 6.0,
    at: Annotated[
        str | None, typer.Option(help="time at which the attenuation is --fade [default: halfway]", metavar="DURATION")
    ] = None,
    exceeded_often: Annotated[
        float, number_option("--exceeded-0.1", "attenuation exceeded in 0.1 % of the time, dB", 0, 1000)
    ] = 7.0,
    exceeded_rarely: Annotated[
        float, number_option("--exceeded-0.01", "attenuation exceeded in 0.01 % of the time, dB", 0, 1000)
    ] = 20.0,
    dynamics: Annotated[
        float, number_option("--dynamics", "dynamics parameter of the attenuation, 1/s", 1e-6, 1)
    ] = 2e-4,
    clear: Annotated[float, number_option("--clear", "Es/N0 in a clear sky, dB", -5, 60)] = 13.0,
    temperature: Annotated[
        float, number_option("--temperature", "noise temperature of the receiver, K", 1, 10_000)
    ] = 160.0,
    step: Annotated[str, typer.Option(help="time between samples", metavar="DURATION")] = "1 s",
    seed: TraceSeed = 1,
    plot: PlotFile = None,
    json: Json = False,
) -> None:
    """Make the rate of a GEO downlink with adaptive coding and modulation during a rain fade."""
    from atoll_core.units import Duration, Rate
    from atoll_emulation.trace_generators.rain import Climate, RainFade, rain_trace

    length = _parse(Duration, "--duration", duration, "1 s", _LONGEST_DURATION)
    trace = rain_trace(
        RainFade(
            rate=_parse(Rate, "--rate", rate, "1 kbit/s", "100 Gbit/s"),
            duration=length,
            fade_db=fade,
            at=Duration(length.ns // 2) if at is None else _parse(Duration, "--at", at, "0 s", _LONGEST_DURATION),
            seed=seed,
            climate=Climate(exceeded_often, exceeded_rarely),
            dynamics=dynamics,
            step=_parse(Duration, "--step", step, "10 ms", "1 h"),
            clear_db=clear,
            system_kelvin=temperature,
        )
    )
    _write(trace, length, out, plot, _command_comment(context), as_json=json)


def _add_command(kind: str, text: str) -> None:
    """Define the command of a constellation."""

    @link_traces.command(
        kind, help=text, epilog=f"Example: atoll link-traces {kind} --out {kind}.csv --gap '200 ms' --plot {kind}.png"
    )
    def satellites(  # pyright: ignore[reportUnusedFunction]
        context: typer.Context,
        out: Out,
        duration: TraceDuration = "10 min",
        gateway: SiteOption = None,
        island: SiteOption = None,
        gap: Annotated[
            str | None,
            typer.Option(
                help="time that the link is blocked at each hand-over [default: the constellation's]",
                metavar="DURATION",
            ),
        ] = None,
        start: Annotated[
            str | None,
            typer.Option(
                help="time of the orbits at the trace's start [default: chosen to have a hand-over halfway]",
                metavar="DURATION",
            ),
        ] = None,
        added_delay: Annotated[
            str, typer.Option(help="one-way delay added to that of the path", metavar="DURATION")
        ] = "0 ms",
        least_change: Annotated[
            str, typer.Option(help="write a row when the delay has changed by this much", metavar="DURATION")
        ] = "10 us",
        step: Annotated[str, typer.Option(help="time between samples", metavar="DURATION")] = "10 ms",
        rate: Annotated[
            str | None,
            typer.Option(help="rate with a satellite in the zenith [default: the trace has no rates]", metavar="RATE"),
        ] = None,
        zenith: Annotated[float, number_option("--zenith", "Es/N0 with a satellite in the zenith, dB", -5, 60)] = 13.0,
        seed: TraceSeed = 1,
        plot: PlotFile = None,
        json: Json = False,
    ) -> None:
        from atoll_core.units import Duration, Rate
        from atoll_emulation.trace_generators.passes import LEO, MEO, Pass, pass_trace

        defaults = {"meo": MEO, "leo": LEO}[kind]
        passes = Pass(
            service=defaults.service,
            gateway=_parse_site("--gateway", gateway) if gateway else defaults.gateway,
            island=_parse_site("--island", island) if island else defaults.island,
            duration=_parse(Duration, "--duration", duration, "1 s", _LONGEST_DURATION),
            seed=seed,
            start=_parse(Duration, "--start", start, "0 s", "24 h") if start else None,
            gap=_parse(Duration, "--gap", gap, "0 s", "1 h") if gap else defaults.gap,
            added_delay=_parse(Duration, "--added-delay", added_delay, "0 s", "10 s"),
            step=_parse(Duration, "--step", step, "1 ms", "1 h"),
            delay_step=_parse(Duration, "--least-change", least_change, "0 s", "1 s"),
            rate=_parse(Rate, "--rate", rate, "1 kbit/s", "100 Gbit/s") if rate else None,
            zenith_db=zenith,
        )
        resolved = {
            "gateway": f"{passes.gateway.latitude_deg:g},{passes.gateway.longitude_deg:g}",
            "island": f"{passes.island.latitude_deg:g},{passes.island.longitude_deg:g}",
            "gap": str(passes.gap),
            "zenith": zenith if rate else None,
        }
        _write(pass_trace(passes), passes.duration, out, plot, _command_comment(context, **resolved), as_json=json)


_add_command("meo", "Make a trace of an equatorial MEO ring like O3b: delay, hand-overs, and rate with --rate.")
_add_command(
    "leo",
    "Make a trace of a LEO shell like Starlink's first: delay, hand-overs every 15 s, and rate with --rate.",
)


@link_traces.command(epilog="Example: atoll link-traces losses runs/geo/20260102T030405Z-1 --out losses.txt")
def losses(
    run: Annotated[Path, typer.Argument(help="analysed run directory", metavar="RUN")],
    out: Annotated[Path, typer.Option("--out", help="text file to write, for loss: {trace: FILE}", metavar="FILE")],
    link: Annotated[str | None, typer.Option(help="link [default: the slowest one]", metavar="BOX")] = None,
    as_json: Json = False,
) -> None:
    """Write which packets to the island a link of a run lost, one after the other: a file for `loss: {trace: FILE}`."""
    from atoll_analysis.figures.packet_fates import fates_of_packets
    from atoll_analysis.run_directory import RunDir
    from atoll_core.description.link_trace import loss_trace_text

    refuse_overwriting({"--out": out}, [run])
    fates = fates_of_packets(RunDir.open(run), link)
    write_file("--out", out, loss_trace_text(fates.lost, [f"losses of {fates.link} in {run}"]))
    packets, lost = len(fates.lost), sum(fates.lost)
    if as_json:
        print(json.dumps({"trace": str(out), "link": fates.link, "packets": packets, "lost": lost, "of": fates.total}))
        return
    cut_text = f", the first of {fates.total}" if fates.total > packets else ""
    print(f"{out}: {counted(packets, 'packet')} to the island through {fates.link}{cut_text}, {lost} lost")


def _parse(kind: "type[Q]", option: str, text: str, low: str, high: str) -> "Q":
    try:
        quantity = kind.parse(text)
    except ValueError as error:
        raise PlanError(f"{option}: {error}") from None
    if not kind.parse(low) <= quantity <= kind.parse(high):
        raise PlanError(f"{option}: {text} is not from {low} to {high}")
    return quantity


def _parse_site(option: str, text: str) -> "Site":
    from atoll_emulation.trace_generators.orbit import Site

    try:
        latitude, longitude = (float(part) for part in text.split(","))
    except ValueError:
        remedy = "write degrees north and east, such as '-21.2,-159.78'"
        raise PlanError(f"{option}: {text!r} is not a position; {remedy}") from None
    if not (abs(latitude) <= 90 and abs(longitude) <= 360):
        raise PlanError(f"{option}: {text} is not on Earth; write degrees north (-90 to 90) and east")
    return Site(latitude, longitude)


def _command_comment(context: Any, **resolved: object) -> str:
    """The command that makes the trace again. ``resolved``: options whose defaults depend on others."""
    values = {**context.params, **resolved}
    options = [(parameter.opts[0], values[parameter.name]) for parameter in context.command.params]
    texts = [
        f"{option} {shlex.quote(str(text))}"
        for option, text in options
        if text is not None and option not in ("--out", "--plot", "--json")
    ]
    return f"made by: atoll link-traces {context.command.name} {' '.join(texts)}"


def _write(trace: "LinkTrace", length: "Duration", out: Path, plot: Path | None, note: str, *, as_json: bool) -> None:
    from atoll_core.description.link_trace import trace_csv

    delays = [row.delay.ms for row in trace.rows if row.delay]
    rates = [row.rate.bit_s for row in trace.rows if row.rate]
    require_ending("--plot", plot, IMAGE_ENDINGS)
    refuse_overwriting({"--out": out, "--plot": plot})
    write_file("--out", out, trace_csv(trace, [note]))
    if plot:
        from atoll_dashboards.report.input_plots import draw_trace

        write_file("--plot", plot, draw_trace(trace, length, plot.suffix.lower()))
    if as_json:
        facts = {"trace": str(out), "rows": len(trace.rows), "duration_s": length.s, "blockages": trace.blockages}
        facts |= {"delay_ms": [min(delays), max(delays)]} if delays else {}
        facts |= {"rate_bit_s": [min(rates), max(rates)]} if rates else {}
        print(json.dumps(facts))
        return
    text = f"{counted(len(trace.rows), 'row')}, {length}, blocked {counted(trace.blockages, 'time')}"
    text += f", delay {min(delays):g} to {max(delays):g} ms" if delays else ""
    text += f", rate {min(rates) / 1e6:g} to {max(rates) / 1e6:g} Mbit/s" if rates else ""
    print(f"{out}: {text}")
