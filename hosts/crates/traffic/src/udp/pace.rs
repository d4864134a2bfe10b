// SPDX-License-Identifier: Apache-2.0
//! When the packets of a constant bit rate are due; pure, on a clock passed in.

/// Between two bursts at least: what timers can do without spinning, a few packets at tens of Mbit/s.
const BURST_EVERY_NS: u64 = 500_000;

/// A sender that was held up for longer does not send what it missed: that burst would fill a queue by itself.
const CATCH_UP_NS: u64 = 10_000_000;

/// The schedule of one stream.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Time of one packet at the rate, in 2^-32 ns, so that a day's rounding stays below a microsecond.
    interval: u128,
    /// When the first packet was due.
    start_ns: u64,
    /// Packets handed out since `start_ns`.
    packets: u64,
}

impl Pace {
    /// Packets of `packet_bytes` at `rate_bit_s`, the first one due at `start_ns`.
    pub fn new(rate_bit_s: u64, packet_bytes: usize, start_ns: u64) -> Self {
        let bits = packet_bytes as u128 * 8;
        Self {
            interval: ((bits * 1_000_000_000) << 32) / u128::from(rate_bit_s),
            start_ns,
            packets: 0,
        }
    }

    /// When the next packet is due.
    pub fn next_ns(&self) -> u64 {
        self.due_ns(self.packets)
    }

    /// How many packets to send now, at `now_ns`.
    pub fn take(&mut self, now_ns: u64) -> u64 {
        let late_ns = now_ns.saturating_sub(self.next_ns());
        if late_ns > CATCH_UP_NS {
            self.start_ns += late_ns - CATCH_UP_NS;
        }
        let mut burst = 0;
        while self.next_ns() <= now_ns {
            self.packets += 1;
            burst += 1;
        }
        burst
    }

    /// When to look again, having sent at `now_ns`.
    pub fn wake_ns(&self, now_ns: u64) -> u64 {
        self.next_ns().max(now_ns + BURST_EVERY_NS)
    }

    fn due_ns(&self, packet: u64) -> u64 {
        let since = (self.interval * u128::from(packet)) >> 32;
        self.start_ns
            .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_second_holds_exactly_the_rate() {
        let mut pace = Pace::new(12_000_000, 1500, 0);
        let sent: u64 = (0..1000).map(|ms| pace.take(ms * 1_000_000)).sum();
        assert_eq!(sent, 1000);
    }

    #[test]
    fn a_long_hold_up_is_not_caught_up_with() {
        let mut pace = Pace::new(12_000_000, 1500, 0);
        assert_eq!(pace.take(0), 1);
        let burst = pace.take(5_000_000_000);
        assert_eq!(burst, 11);
        assert_eq!(pace.next_ns(), 5_001_000_000);
    }

    proptest! {
        #[test]
        fn never_ahead_of_the_rate_nor_behind_by_more_than_a_packet(
            rate_bit_s in 10_000..1_000_000_000_u64,
            bytes in 48..1500_usize,
            steps in prop::collection::vec(0..CATCH_UP_NS, 1..50),
        ) {
            let mut pace = Pace::new(rate_bit_s, bytes, 7);
            let (mut now_ns, mut sent) = (7, 0_u64);
            for step in steps {
                now_ns += step;
                sent += pace.take(now_ns);
                let bits = u128::from(sent) * bytes as u128 * 8 * 1_000_000_000;
                let due = u128::from(rate_bit_s) * u128::from(now_ns - 7);
                let packet = bytes as u128 * 8 * 1_000_000_000;
                // One nanosecond of rounding at the rate.
                let slack = u128::from(rate_bit_s);
                prop_assert!(bits <= due + packet + slack);
                prop_assert!(bits + slack >= due);
                prop_assert!(pace.wake_ns(now_ns) > now_ns);
            }
        }
    }
}
