// SPDX-License-Identifier: Apache-2.0
//! When packets of any sizes are due at a constant bit rate; pure, on a clock passed in.

/// Between two bursts at least: what timers can do without spinning, a few packets at tens of Mbit/s.
const BURST_EVERY_NS: u64 = 500_000;

/// A sender that was held up for longer does not send what it missed: that burst would fill a queue by itself.
const CATCH_UP_NS: u64 = 10_000_000;

/// The schedule of a sender.
#[derive(Clone, Debug)]
pub struct Pace {
    rate_bit_s: u64,
    /// When the first packet was due, later by what was not caught up with.
    start_ns: u64,
    /// Bits sent since `start_ns`.
    bits: u128,
}

impl Pace {
    /// Packets at `rate_bit_s`, the first one due at `start_ns`.
    pub fn new(rate_bit_s: u64, start_ns: u64) -> Self {
        Self {
            rate_bit_s,
            start_ns,
            bits: 0,
        }
    }

    /// When the next packet is due: when those before it have taken their time at the rate.
    pub fn next_ns(&self) -> u64 {
        let since = self.bits * 1_000_000_000 / u128::from(self.rate_bit_s);
        self.start_ns
            .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// The rate is another one from `at_ns` on, before which no packet is due.
    pub fn change(&mut self, rate_bit_s: u64, at_ns: u64) {
        let left_ns = self.next_ns().saturating_sub(at_ns);
        self.bits = u128::from(left_ns) * u128::from(self.rate_bit_s) / 1_000_000_000;
        self.start_ns = at_ns;
        self.rate_bit_s = rate_bit_s;
    }

    /// Skip packets that were due too long before `now_ns`.
    pub fn forget(&mut self, now_ns: u64) {
        let late_ns = now_ns.saturating_sub(self.next_ns());
        if late_ns > CATCH_UP_NS {
            self.start_ns += late_ns - CATCH_UP_NS;
        }
    }

    /// A packet of so many bytes was sent.
    pub fn sent(&mut self, packet_bytes: usize) {
        self.bits += packet_bytes as u128 * 8;
    }

    /// When to look again, having sent at `now_ns`.
    pub fn wake_ns(&self, now_ns: u64) -> u64 {
        self.next_ns().max(now_ns + BURST_EVERY_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sends what is due at `now_ns`; the bytes of it.
    fn take(pace: &mut Pace, now_ns: u64, mut sizes: impl Iterator<Item = usize>) -> usize {
        pace.forget(now_ns);
        let mut bytes = 0;
        while pace.next_ns() <= now_ns {
            let packet = sizes.next().unwrap();
            pace.sent(packet);
            bytes += packet;
        }
        bytes
    }

    #[test]
    fn a_second_holds_exactly_the_rate() {
        let mut pace = Pace::new(12_000_000, 0);
        let sent: usize = (0..1000)
            .map(|ms| take(&mut pace, ms * 1_000_000, std::iter::repeat(1500)))
            .sum();
        assert_eq!(sent, 1000 * 1500);
    }

    #[test]
    fn a_long_hold_up_is_not_caught_up_with() {
        let mut pace = Pace::new(12_000_000, 0);
        assert_eq!(take(&mut pace, 0, std::iter::repeat(1500)), 1500);
        let burst = take(&mut pace, 5_000_000_000, std::iter::repeat(1500));
        assert_eq!(burst, 11 * 1500);
        assert_eq!(pace.next_ns(), 5_001_000_000);
    }

    #[test]
    fn a_packet_that_is_due_waits_by_both_rates_for_their_parts() {
        let mut pace = Pace::new(12_000_000, 0);
        pace.sent(1500);
        pace.change(6_000_000, 250_000);
        assert_eq!(pace.next_ns(), 250_000 + 2 * 750_000);
        pace.change(12_000_000, 1_750_000);
        assert_eq!(pace.next_ns(), 1_750_000);
    }

    proptest! {
        #[test]
        fn never_ahead_of_the_rate_by_more_than_a_packet_nor_behind(
            rate_bit_s in 10_000..1_000_000_000_u64,
            sizes in prop::collection::vec(48..=1500_usize, 1..20),
            steps in prop::collection::vec(0..CATCH_UP_NS, 1..50),
        ) {
            let mut pace = Pace::new(rate_bit_s, 7);
            let mut packets = sizes.into_iter().cycle();
            let (mut now_ns, mut sent) = (7, 0);
            for step in steps {
                now_ns += step;
                sent += take(&mut pace, now_ns, packets.by_ref());
                let bits = sent as u128 * 8 * 1_000_000_000;
                let due = u128::from(rate_bit_s) * u128::from(now_ns - 7);
                // One nanosecond of rounding at the rate.
                let slack = u128::from(rate_bit_s);
                prop_assert!(bits <= due + 1500 * 8 * 1_000_000_000 + slack);
                prop_assert!(bits + slack >= due);
                prop_assert!(pace.wake_ns(now_ns) > now_ns);
            }
        }
    }
}
