# SPDX-License-Identifier: Apache-2.0
"""Flow-size distributions: files of them, their figures, pro-rating, and what hosts draw from them."""

import csv
import json
import math
import subprocess
from bisect import bisect_right
from pathlib import Path

import pytest

from atoll_core.description.flow_size_file import flow_sizes_text, read_flow_sizes
from atoll_core.experiment.flow_sizes import (
    MAX_STEPS,
    SCALE,
    FlowSizes,
    Interpolation,
    curve,
    fixed,
    from_counts,
    published,
)
from atoll_hosts.binary import find_binary


def read(text: str) -> FlowSizes:
    found = read_flow_sizes(text, "s.csv")
    assert found.mistakes == ()
    assert found.value is not None
    return found.value


def test_published_has_the_figures_it_is_named_for(project: Path) -> None:
    sizes = published()
    assert sizes.quantile(0.5) < 500
    assert sizes.mean_bytes == pytest.approx(50_000, rel=0.002)
    assert sizes.share_up_to(40e6) == pytest.approx(0.99989, abs=1e-9)
    assert 800e6 <= sizes.max_bytes <= 1e9
    example = json.loads((project / "tests/data/contract/flow-sizes.jsonl").read_text())["message"]
    assert {"kind": sizes.kind.value, "knots": [list(knot) for knot in sizes.knots]} == example
    assert sizes.config == "published"


FOUR = "100 flows of four sizes"
FORMS = {
    "sizes": "\n".join(["40"] * 50 + ["100"] * 25 + ["1500"] * 24 + ["1000000"]),
    "sizes under a name": "size_bytes\n" + "\n".join(["40"] * 50 + ["100"] * 25 + ["1500"] * 24 + ["1000000"]),
    "counts": f"# {FOUR}\n\nsize_bytes,count\n40,50\n100,25\n1500,24\n1000000,1\n",
    "counts in any order": "count,size\n1,1000000\n24,1500\n50,40\n20,100\n5,100\n",
    "probabilities": "size,probability\n40,0.5\n100,0.25\n1500,0.24\n1000000,1e-2\n",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=list(FORMS))
def test_files_of_counts_in_any_form_are_the_same_distribution(text: str) -> None:
    sizes = read(text)
    knots = ((500_000_000, 40), (750_000_000, 100), (990_000_000, 1500), (SCALE, 1_000_000))
    assert (sizes.kind, sizes.knots) == (Interpolation.STEPS, knots)
    assert sizes.mean_bytes == pytest.approx(0.5 * 40 + 0.25 * 100 + 0.24 * 1500 + 10_000)
    assert [sizes.quantile(p) for p in (0, 0.5, 0.7499, 0.75, 1)] == [40, 100, 100, 1500, 1_000_000]
    assert [sizes.share_up_to(size) for size in (39, 40, 1499, 1500, 1e9)] == pytest.approx([0, 0.5, 0.75, 0.99, 1])


def test_a_file_of_quantiles_is_a_curve() -> None:
    sizes = read("quantile,size_bytes\n0,100\n0.5,1000\n1,100000\n")
    assert sizes == curve("", [(0, 100), (0.5, 1000), (1, 100_000)])
    assert sizes.quantile(0.75) == pytest.approx(10_000)
    assert sizes.share_up_to(10_000) == pytest.approx(0.75)
    assert sizes.mean_bytes == pytest.approx(0.5 * 900 / math.log(10) + 0.5 * 99_000 / math.log(100))


def test_what_is_written_is_read_back() -> None:
    counts = {40: 7, 576: 2, 10**9: 1}
    assert read(flow_sizes_text(counts.items(), ["a remark"])) == from_counts("", counts)


MISTAKES = [
    ("", "s.csv:1: has no sizes; write one size per line, or CSV with the columns size_bytes and count"),
    ("size_bytes\n", "s.csv:1: there is no size below the column name; add some"),
    ("40\n0\n", "s.csv:2: '0' is not a size; write a whole number of bytes from 1 to 2^53"),
    ("40\n1.5 kB\n", "s.csv:2: '1.5 kB' is not a size; write a whole number of bytes from 1 to 2^53"),
    ("40,2\n50,3\n", "s.csv:1: the first line must name the columns, such as 'size_bytes,count'"),
    ("size,weight\n", "s.csv:1: unknown column 'weight'; known columns: size_bytes, count, probability, quantile"),
    ("count,probability\n", "s.csv:1: the column size_bytes is missing; add the sizes in bytes"),
    ("size,count,quantile\n", "s.csv:1: count and quantile exclude each other; keep one of them"),
    ("size,count\n40\n", "s.csv:2: 1 cells where the header names 2 columns; write one for each"),
    ("size,count\n40,-1\n", "s.csv:2: '-1' is not a count; write a whole number of flows"),
    ("size,count\n40,0\n", "s.csv:2: all counts are 0; add a row with a count above 0"),
    ("size,probability\n40,0.5\n50,0.4\n", "s.csv:3: the probabilities add up to 0.9; they must add up to 1"),
    ("size,probability\n40,1.5\n", "s.csv:2: '1.5' is not a probability; write a number from 0 to 1, such as 0.25"),
    ("quantile,size\n0,40\n0.5,30\n1,50\n", "s.csv:3: size 30 is below 40, the size of the previous quantile"),
    (
        "quantile,size\n0,40\n0.5,50\n0.5,60\n1,70\n",
        (
            "s.csv:4: quantile 0.5 is not larger than 0.5, the quantile of the previous row, by at least 10^-9; put "
            "rows in ascending order"
        ),
    ),
    (
        "quantile,size\n0.1,40\n1,50\n",
        "s.csv:3: quantiles begin with 0, the smallest size, and end with 1, the largest",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[message[:60] for _, message in MISTAKES])
def test_a_mistake_in_a_file_is_told_with_its_line(text: str, message: str) -> None:
    found = read_flow_sizes(text, "s.csv")
    assert found.value is None
    assert [str(mistake) for mistake in found.mistakes] == [message]


def test_a_file_that_is_wrong_in_every_line_is_not_repeated_in_full() -> None:
    assert len(read_flow_sizes("x\n" * 1000, "s.csv").mistakes) == 1
    assert len(read_flow_sizes("size\n" + "x\n" * 1000, "s.csv").mistakes) == 10


@pytest.mark.parametrize("least", [100, 200, 1500])
def test_pro_rating_keeps_the_bytes_and_the_flows_above(least: int) -> None:
    """Before all is scaled up to 1, the larger flows have the shares they had, the small ones their bytes."""
    steps = from_counts("", {40: 900, 60: 100, 150: 50, 1500: 300, 10**6: 7})
    for sizes in (published(), steps):
        fewer = sizes.pro_rated(least)
        assert fewer.min_bytes == least
        scale = (1 - fewer.share_up_to(10**5)) / (1 - sizes.share_up_to(10**5))
        assert scale > 1
        assert fewer.mean_bytes == pytest.approx(sizes.mean_bytes * scale, rel=1e-5)  # knots are whole 10^-9
        large = 1600.0
        assert 1 - fewer.share_up_to(large) == pytest.approx(
            (1 - sizes.share_up_to(large)) * scale, rel=1e-5
        )  # knots are whole 10^-9


def test_pro_rating_below_the_smallest_size_changes_nothing() -> None:
    assert published().pro_rated(40) == published()
    assert fixed("", 10_000).pro_rated(9000) == fixed("", 10_000)


def test_too_many_sizes_are_put_together_with_the_mean_kept_and_each_nearly_where_it_was() -> None:
    counts = {size: 1 + size % 3 for size in range(40, 60_000)}
    sizes = from_counts("", counts)
    assert MAX_STEPS / 2 < len(sizes.knots) <= MAX_STEPS
    total = sum(counts.values())
    assert sizes.mean_bytes == pytest.approx(sum(size * count for size, count in counts.items()) / total, rel=1e-4)
    ordered = [size for size in counts for _ in range(counts[size])]
    for p in (0.01, 0.1, 0.3, 0.5, 0.9, 0.999):
        assert sizes.quantile(p) == pytest.approx(ordered[int(p * total)], rel=0.02)


def drawn(sizes: FlowSizes, count: int) -> list[int]:
    """Sizes of the first flows of a channel as the program on the hosts draws them, in ascending order."""
    config = sizes.config if isinstance(sizes.config, str) else json.dumps(sizes.config)
    argv = [
        str(find_binary()),
        "flows",
        "--seed=3",
        "--channel=0",
        f"--count={count}",
        "--servers=1",
        "--sizes",
        config,
    ]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return sorted(int(row["size_bytes"]) for row in csv.DictReader(text.splitlines()))


@pytest.mark.parametrize(
    "sizes",
    [
        published(),
        published().pro_rated(200),
        read(FORMS["counts"]),
        curve("", [(0, 100), (0.5, 1000), (1, 100_000)]),
    ],
    ids=["published", "pro-rated", "counted", "curve"],
)
def test_what_hosts_draw_agrees_with_what_is_configured(sizes: FlowSizes) -> None:
    """By Kolmogorov and Smirnov's test (a sample in a thousand would exceed the bound) and by quantiles.

    The seed makes it the same sample every time. Means of heavy tails converge too slowly to be held to anything.
    """
    count = 100_000
    sample = drawn(sizes, count)
    points = sorted(set(sample))
    below = [max(abs(bisect_right(sample, size) / count - sizes.share_up_to(size + 0.999)), 0.0) for size in points]
    assert max(below) < 1.95 / math.sqrt(count)
    for p in (0.1, 0.25, 0.6, 0.9, 0.995):
        low, high = (sizes.quantile(p + way * 4 * math.sqrt(p * (1 - p) / count)) for way in (-1, 1))
        assert low - 1 <= sample[int(p * count)] <= high + 1
