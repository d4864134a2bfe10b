// SPDX-License-Identifier: Apache-2.0
//! How long sending takes at a rate that may change, exact to the fraction of a nanosecond.
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
        let done = u128::from(from.work) + work;
        let possible = u128::from(until_ns - from.ns) * u128::from(rate_bit_s);
        if done < possible {
            let (whole_ns, rest) = divide(done, rate_bit_s);
            return Position {
                ns: from.ns + whole_ns,
                work: rest,
            };
        }
        work = done - possible;
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

#[cfg(test)]
mod tests {
    use super::*;
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
}
