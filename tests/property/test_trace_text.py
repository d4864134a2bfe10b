# SPDX-License-Identifier: Apache-2.0
"""What is written as a trace is read as the same trace, and no text is more than a trace or its mistakes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll_core.description.link_trace import read_loss_trace, read_trace, trace_csv
from atoll_core.experiment.experiment import LinkTrace, TraceRow
from atoll_core.units import Duration, Rate

ROWS = st.builds(
    lambda t, rate, delay, loss, blocked: TraceRow(Duration(t), rate, delay, loss, blocked),
    t=st.integers(1, 10**14),
    rate=st.none() | st.integers(1000, 10**11).map(Rate),
    delay=st.none() | st.integers(0, 60 * 10**9).map(Duration),
    loss=st.none() | st.integers(0, 10**12).map(lambda parts: parts / 10**12),
    blocked=st.booleans(),
)


@st.composite
def traces(draw: st.DrawFn) -> LinkTrace:
    rows = draw(st.lists(ROWS, max_size=8, unique_by=lambda row: row.t))
    first = TraceRow(Duration(0), rate=Rate(draw(st.integers(1000, 10**11))))
    return LinkTrace("t.csv", (first, *sorted(rows, key=lambda row: row.t)))


@given(
    traces(), st.lists(st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=("Cs",))), max_size=2)
)
def test_a_trace_written_is_read_again(trace: LinkTrace, remarks: list[str]) -> None:
    read = read_trace(trace_csv(trace, remarks), "t.csv")
    assert read.mistakes == ()
    assert read.value == trace
    assert len(read.lines) == len(trace.rows)


CELLS = st.sampled_from(
    ["", "0", "1", "0.5", "1e5", "-1", "9" * 25, "t_s", "blocked", "#", "é", "nan", "0x1", "1.", ".5"]
)


@settings(max_examples=200)
@given(st.lists(st.lists(CELLS, max_size=4).map(",".join), max_size=6).map("\n".join) | st.text(max_size=40))
def test_any_text_is_read_or_its_mistakes_are_told(text: str) -> None:
    for read in (
        read_trace("t_s,blocked\n" + text, "t.csv"),
        read_trace(text, "t.csv"),
        read_loss_trace(text, "t.csv"),
    ):
        assert (read.value is None) == bool(read.mistakes)
        for mistake in read.mistakes:
            assert "\n" not in str(mistake)
            assert 1 <= mistake.line <= text.count("\n") + 2
