# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/residual-loss/run``: what stays lost between two coders, compared with an ideal code."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll_studies.statistics.estimates import mean_estimate
from benchkit import harness
from benchkit.markdown import markdown_table
from residuallossbench.cases import CHAINS, CHANGES, DEPTHS, FALLBACK, SIZE, TARGET
from residuallossbench.ideal_code import Chain, left
from residuallossbench.simulations import simulated, simulation

_WARM_UP = 60_000  # packets
_SEEDS = range(1, 11)


def main() -> int:
    """Measure, and show the results."""
    parser = harness.parser("residual-loss", __doc__, merges=False)
    parser.add_argument("--packets", type=int, metavar="N", help="counted in each run (1200000; --quick: 12000)")
    parser.add_argument("--pictures", type=Path, metavar="DIRECTORY", help="draw FILE's results, as SVG")
    options = parser.parse_args()
    packets = options.packets or (12_000 if options.quick else 1_200_000)
    packets -= packets % (SIZE * max(DEPTHS))
    if packets <= 0:
        parser.error(f"--packets: at least {SIZE * max(DEPTHS)}")
    code = harness.run(options, "adapted-redundancy", "cases", lambda: _measured(packets, options.quick), _tables)
    if options.pictures and code == 0:
        from benchkit.json_results import read_results
        from residuallossbench.pictures import draw

        for path in draw(read_results(options.json, "cases"), options.pictures):
            print(f"written: {path}")
    return code


def _measured(packets: int, quick: bool) -> dict[str, Any]:
    """Adapted first, then the two whole numbers of repair packets around its mean, with the same seeds."""
    seeds = _SEEDS[:3] if quick else _SEEDS
    cases = [(chain, depth) for chain in CHAINS for depth in DEPTHS]
    runs = [(chain, depth, seed) for chain, depth in cases for seed in seeds]
    adapted = simulated([_run(packets, *run, target=TARGET) for run in runs])
    used = [each["repairs"] / each["sources"] * SIZE for each in adapted]
    fixed = simulated([
        _run(packets, *run, redundancy=math.floor(mean) + more)
        for run, mean in zip(runs, used, strict=True)
        for more in (0, 1)
    ])  # fmt: skip
    results = [
        {"chain": (chain.loss, chain.burst), "depth": depth, "seed": seed, "repairs": mean,
         "adapted": _counted(one), "fixed": [_counted(each) for each in pair]}
        for (chain, depth, seed), mean, one, pair in zip(runs, used, adapted, _pairs(fixed), strict=True)
    ]  # fmt: skip
    return {"cases": results, "packets": packets, "target": TARGET, "changes": _followed()}


def _run(
    packets: int, chain: Chain, depth: int, seed: int, *, target: float | None = None, redundancy: int = FALLBACK
) -> dict[str, Any]:
    return simulation(
        [(_WARM_UP + packets, chain)],
        size=SIZE,
        depth=depth,
        redundancy=redundancy,
        seed=seed,
        target=target,
        count_from=_WARM_UP,
    )


def _pairs(cases: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    yield from zip(cases[::2], cases[1::2], strict=True)


def _counted(case: Mapping[str, Any]) -> dict[str, float]:
    return {
        "failures": case["failed_generations"] / case["generations"],
        "residual": case["lost"] / case["sources"],
        "repairs": case["repairs"] / case["sources"] * SIZE,
    }


def _followed() -> list[dict[str, Any]]:
    """Repair packets of a generation while losses change, with reports and where they end."""
    total = sum(packets for packets, _ in CHANGES)
    ends = (None, total // 2)
    runs = [
        simulation(CHANGES, size=SIZE, depth=1, redundancy=FALLBACK, seed=1, target=TARGET, reports_until=end)
        for end in ends
    ]
    return [
        {"reports_until": end, "redundancy": run["redundancy"]} for end, run in zip(ends, simulated(runs), strict=True)
    ]


def _tables(known: dict[str, Any]) -> str:
    """A row for each chain and depth; the intervals are those of the mean over seeds."""
    headings = ("losses", "bursts", "interleave", "w, mean", "residual loss", "ideal code", "failed generations",
                "ideal code", "ratio", "adapted - fixed, residual loss")  # fmt: skip
    return markdown_table([headings, *(_row(runs) for runs in _by_case(known["cases"]))])


def _by_case(cases: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for each in cases:
        groups.setdefault((*each["chain"], each["depth"]), []).append(each)
    return list(groups.values())


def _row(runs: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    chain, depth = Chain(*runs[0]["chain"]), runs[0]["depth"]
    ideal = [left(chain, SIZE, depth, each["repairs"]) for each in runs]
    failures = [each["adapted"]["failures"] for each in runs]
    ratios = [one / other.failures for one, other in zip(failures, ideal, strict=True)]
    ratio = mean_estimate(ratios, 1)
    difference = mean_estimate([each["adapted"]["residual"] - _fixed(each) for each in runs], 1)

    def mean(values: Sequence[float]) -> float:
        return math.fsum(values) / len(runs)

    return (
        f"{100 * chain.loss:g} %",
        f"{chain.burst:g}",
        str(depth),
        f"{mean([each['repairs'] for each in runs]):.2f}",
        f"{100 * mean([each['adapted']['residual'] for each in runs]):.3f} %",
        f"{100 * mean([each.residual for each in ideal]):.3f} %",
        f"{100 * mean(failures):.2f} %",
        f"{100 * mean([each.failures for each in ideal]):.2f} %",
        f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
        f"{100 * difference.value:+.4f} ({100 * difference.low:+.4f} to {100 * difference.high:+.4f})",
    )


def _fixed(run: Mapping[str, Any]) -> float:
    """The residual loss of fixed numbers of repair packets with the overhead of the adapted ones."""
    low, high = run["fixed"]
    part = run["repairs"] - math.floor(run["repairs"])
    return float((1 - part) * low["residual"] + part * high["residual"])


if __name__ == "__main__":
    sys.exit(main())
