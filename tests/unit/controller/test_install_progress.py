# SPDX-License-Identifier: Apache-2.0
"""The progress of long installations: how many changes are made, and how long the rest takes."""

from atoll_controller.fabric.flow_installer import InstallProgress


class Following:
    """A progress whose clock one sets."""

    def __init__(self, **totals: int) -> None:
        self.now_s = 0.0
        self.said: list[str] = []
        self.progress = InstallProgress(totals, self.said.append, lambda: self.now_s)


def test_it_says_each_second_how_long_the_slowest_switch_takes() -> None:
    """By the rate so far; the other switch is done sooner."""
    following = Following(slow=1500, quick=100)
    slow, quick = following.progress.batch("slow", 1500), following.progress.batch("quick", 100)
    for second in range(1, 16):
        following.now_s = float(second)
        slow(100 * second)
        quick(min(100, 50 * second))
    assert following.said[:2] == [
        "slow: 100 of 1500 changes of its flow table, 14 s to go",
        "slow: 200 of 1500 changes of its flow table, 13 s to go",
    ]
    assert following.said[-1] == "slow: 1400 of 1500 changes of its flow table, 1 s to go"


def test_a_second_batch_goes_on_from_the_first() -> None:
    following = Following(sw=300)
    first = following.progress.batch("sw", 100)
    first(64)
    second = following.progress.batch("sw", 200)
    following.now_s = 2.0
    second(50)
    assert following.said == ["sw: 150 of 300 changes of its flow table, 2 s to go"]


def test_nothing_is_said_of_what_is_over_within_a_second() -> None:
    following = Following(sw=100)
    following.now_s = 0.9
    following.progress.batch("sw", 100)(100)
    assert following.said == []
