// SPDX-License-Identifier: Apache-2.0
//! How long sending takes at a rate that may change, exact to the fraction of a nanosecond, and a link's check of its own
//! rate: bytes sent in every window of 100 ms.
//!
//! Work is counted in billionths of a bit, of which a rate of 1 bit/s does one each nanosecond: what a rate
//! of whole bit/s does in whole nanoseconds is a whole number, and no rounding ever adds up.

use crate::Nanoseconds;
use crate::trace::NEVER;

/// Work of sending one byte.
const WORK_PER_BYTE: u128 = 8_000_000_000;

/// A rate as a function of time, made of steps.
pub(crate) trait RateAt {
    /// The rate in bit/s at an instant, and the first instant at which it may be another.
    fn rate_at(&self, now: Nanoseconds) -> (u64, Nanoseconds);
}

/// An instant finer than a nanosecond: when so much work was done from `ns` on.
///
/// A backlog is sent from one of these to the next, so a day of it ends where bytes and rate say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    ns: Nanoseconds,
    /// Below the rate at `ns`: less than a nanosecond of it.
    work: u64,
}

impl Position {
    pub(crate) fn at(ns: Nanoseconds) -> Self {
        Self { ns, work: 0 }
    }

    /// The whole nanosecond that it lies in.
    pub(crate) fn rounded_down(self) -> Nanoseconds {
        self.ns
    }

    /// The first whole nanosecond not before it: nothing leaves early.
    pub(crate) fn rounded_up(self) -> Nanoseconds {
        self.ns + u64::from(self.work > 0)
    }
}

/// The work of sending `bytes`.
pub(crate) fn work_of(bytes: u32) -> u128 {
    u128::from(bytes) * WORK_PER_BYTE
}

/// When `work` begun at `from` is done; [`NEVER`] if the rate stays 0.
pub(crate) fn end_of(rate: &impl RateAt, from: Position, work: u128) -> Position {
    let (mut from, mut work) = (from, work);
    loop {
        let (rate_bit_s, until_ns) = rate.rate_at(from.ns);
        if until_ns == NEVER && rate_bit_s == 0 {
            return Position::at(NEVER);
        }
        let total = u128::from(from.work) + work;
        let possible = u128::from(until_ns - from.ns) * u128::from(rate_bit_s);
        if total < possible {
            let (whole_ns, remainder) = divide(total, rate_bit_s);
            return Position {
                ns: from.ns + whole_ns,
                work: remainder,
            };
        }
        work = total - possible;
        from = Position::at(until_ns);
        if work == 0 {
            return from;
        }
    }
}

/// The work done from `from` to `to_ns`, not before it.
pub(crate) fn work_between(rate: &impl RateAt, from: Position, to_ns: Nanoseconds) -> u128 {
    let (mut at_ns, mut done) = (from.ns, 0);
    while at_ns < to_ns {
        let (rate_bit_s, until_ns) = rate.rate_at(at_ns);
        let until_ns = until_ns.min(to_ns);
        done += u128::from(until_ns - at_ns) * u128::from(rate_bit_s);
        at_ns = until_ns;
    }
    done.saturating_sub(u128::from(from.work))
}

/// Quotient and remainder, in the processor's own width where that holds the work (2 GB of it).
fn divide(work: u128, rate_bit_s: u64) -> (u64, u64) {
    if let Ok(work) = u64::try_from(work) {
        return (work / rate_bit_s, work % rate_bit_s);
    }
    let rate = u128::from(rate_bit_s);
    ((work / rate) as u64, (work % rate) as u64)
}

/// Length of a window; the resolution of throughput plots.
const WINDOW_NS: Nanoseconds = 100_000_000;

/// A counter of windows of 100 ms in which the transmitter finished more than the rate allows, changes of rate included,
/// plus one packet, which may have been serialised almost wholly before the window.
#[derive(Debug, Clone, Default)]
pub(crate) struct RateCheck {
    /// Begin of the present window.
    begin_ns: Nanoseconds,
    /// Work that the rate does in the present window up to `known_ns`.
    allowed: u128,
    /// From here on the rate may change.
    known_ns: Nanoseconds,
    sent: u128,
    largest_packet: u128,
    over_rate: u64,
}

impl RateCheck {
    /// Count a packet sent whole at `end_ns`; packets come in order.
    pub(crate) fn record(&mut self, rate: &impl RateAt, end_ns: Nanoseconds, bytes: u32) {
        self.move_to(rate, end_ns);
        self.sent += work_of(bytes);
        self.largest_packet = self.largest_packet.max(work_of(bytes));
    }

    /// The rate was that of `rate` up to `now`, and may be another from there on.
    pub(crate) fn before_change(&mut self, rate: &impl RateAt, now: Nanoseconds) {
        self.move_to(rate, now);
        self.allowed += work_between(rate, Position::at(self.known_ns), now);
        self.known_ns = now;
    }

    /// Windows above the rate so far, the present one included.
    pub(crate) fn over_rate(&self, rate: &impl RateAt) -> u64 {
        self.over_rate + u64::from(self.is_over(rate))
    }

    fn move_to(&mut self, rate: &impl RateAt, now: Nanoseconds) {
        if now < self.begin_ns + WINDOW_NS {
            return;
        }
        self.over_rate += u64::from(self.is_over(rate));
        self.begin_ns = now - now % WINDOW_NS;
        self.known_ns = self.begin_ns;
        self.allowed = 0;
        self.sent = 0;
        self.largest_packet = 0;
    }

    fn is_over(&self, rate: &impl RateAt) -> bool {
        let remaining = work_between(rate, Position::at(self.known_ns), self.begin_ns + WINDOW_NS);
        self.sent > self.allowed + remaining + self.largest_packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::NEVER;
    use proptest::prelude::*;

    /// Rates from instants on, the first one from 0.
    impl RateAt for Vec<(Nanoseconds, u64)> {
        fn rate_at(&self, now: Nanoseconds) -> (u64, Nanoseconds) {
            let next = self.partition_point(|&(from_ns, _)| from_ns <= now);
            let until_ns = self.get(next).map_or(NEVER, |&(from_ns, _)| from_ns);
            (self[next - 1].1, until_ns)
        }
    }

    #[test]
    fn a_day_of_backlog_ends_to_the_nanosecond() {
        // 7 Mbit/s does not divide 8e9 * 1500: every packet leaves a fraction.
        let (rate, bytes) = (7_000_000, 1500_u32);
        let packets = 86_400 * rate / (8 * u64::from(bytes));
        let rates = vec![(0, rate)];
        let mut end = Position::at(0);
        for _ in 0..packets {
            end = end_of(&rates, end, work_of(bytes));
        }
        let exact = u128::from(packets) * work_of(bytes);
        assert_eq!(
            u128::from(end.rounded_up()),
            exact.div_ceil(u128::from(rate))
        );
    }

    #[test]
    fn a_packet_in_the_middle_of_a_change_is_sent_at_both_rates() {
        // 1000 bytes: 0.5 ms at 8 Mbit/s are 500 of them, then 500 at 1 Mbit/s.
        let rates = vec![(0, 8_000_000), (500_000, 1_000_000)];
        let end = end_of(&rates, Position::at(0), work_of(1000));
        assert_eq!(end.rounded_up(), 500_000 + 4_000_000);
    }

    #[test]
    fn a_pause_postpones_and_an_endless_one_ends_nothing() {
        let rates = vec![
            (0, 8_000_000),
            (500_000, 0),
            (900_000, 8_000_000),
            (5_000_000, 0),
        ];
        let end = end_of(&rates, Position::at(0), work_of(1000));
        assert_eq!(end.rounded_up(), 1_400_000);
        assert_eq!(end_of(&rates, end, work_of(100_000)).rounded_up(), NEVER);
    }

    proptest! {
        #[test]
        fn the_work_done_until_the_end_is_the_work(
            steps in prop::collection::vec((1_u64..2_000_000, 0_u64..30_000_000), 0..20),
            packets in prop::collection::vec(1_u32..3000, 1..50),
        ) {
            let mut rates = vec![(0, 7_777_777)];
            let mut at = 0;
            for (gap_ns, rate) in steps {
                at += gap_ns;
                rates.push((at, rate));
            }
            rates.push((at + 1, 9_999_991));
            let (mut end, mut work) = (Position::at(3), 0);
            for bytes in packets {
                end = end_of(&rates, end, work_of(bytes));
                work += work_of(bytes);
                // Rounded up by less than a nanosecond's work.
                let done = work_between(&rates, Position::at(3), end.rounded_up());
                prop_assert!(done >= work && done < work + 30_000_000);
                prop_assert_eq!(work_between(&rates, Position::at(3), end.ns) + u128::from(end.work), work);
            }
        }
    }

    struct Constant(u64);

    impl RateAt for Constant {
        fn rate_at(&self, _now: Nanoseconds) -> (u64, Nanoseconds) {
            (self.0, NEVER)
        }
    }

    const RATE: Constant = Constant(8_000_000);

    #[test]
    fn rate_and_one_packet_are_allowed_and_a_byte_more_is_not() {
        let mut windows = RateCheck::default();
        for at in 0..101 {
            windows.record(&RATE, at * 900_000, 1000);
        }
        assert_eq!(windows.over_rate(&RATE), 0);
        windows.record(&RATE, 99_999_999, 1);
        assert_eq!(windows.over_rate(&RATE), 1);
        windows.record(&RATE, 100_000_000, 1000);
        assert_eq!(windows.over_rate(&RATE), 1, "a window is counted once");
    }

    #[test]
    fn a_change_in_a_window_counts_from_its_instant() {
        // 75 ms at 8 Mbit/s and 25 at 4: 87.5 kB.
        let over_rate = |last_bytes| {
            let mut windows = RateCheck::default();
            windows.record(&RATE, 275_000_000, 75_000);
            windows.before_change(&RATE, 275_000_000);
            let rate = Constant(4_000_000);
            windows.record(&rate, 290_000_000, 75_000);
            windows.record(&rate, 299_999_999, last_bytes);
            windows.over_rate(&rate)
        };
        assert_eq!((over_rate(12_500), over_rate(12_501)), (0, 1));
    }
}
