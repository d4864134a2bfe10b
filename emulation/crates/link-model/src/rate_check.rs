// SPDX-License-Identifier: Apache-2.0
//! A link's check of its own rate: bytes sent in every window of 100 ms.

use crate::Nanoseconds;
use crate::serialiser::{Position, RateAt, work_between, work_of};

/// Length of a window; the resolution of throughput plots.
const WINDOW_NS: Nanoseconds = 100_000_000;

/// A counter of windows of 100 ms in which the transmitter finished more than the rate allows, changes of rate included,
/// plus one packet, which may have been serialised almost wholly before the window.
#[derive(Debug, Clone)]
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
    /// No window yet.
    pub(crate) fn new() -> Self {
        Self {
            begin_ns: 0,
            allowed: 0,
            known_ns: 0,
            sent: 0,
            largest_packet: 0,
            over_rate: 0,
        }
    }

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
        let rest = work_between(rate, Position::at(self.known_ns), self.begin_ns + WINDOW_NS);
        self.sent > self.allowed + rest + self.largest_packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::NEVER;

    struct Constant(u64);

    impl RateAt for Constant {
        fn rate_at(&self, _now: Nanoseconds) -> (u64, Nanoseconds) {
            (self.0, NEVER)
        }
    }

    const RATE: Constant = Constant(8_000_000);

    #[test]
    fn rate_and_one_packet_are_allowed_and_a_byte_more_is_not() {
        let mut windows = RateCheck::new();
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
            let mut windows = RateCheck::new();
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
