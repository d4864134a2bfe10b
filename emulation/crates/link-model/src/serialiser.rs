// SPDX-License-Identifier: Apache-2.0
//! A transmitter of constant rate, exact to the fraction of a nanosecond.

use crate::Nanoseconds;

/// Nanoseconds in a second times bits in a byte.
const BIT_NS_PER_BYTE: u64 = 8_000_000_000;

/// Sends packets one after the other at a constant rate.
///
/// The end of a packet is rarely a whole nanosecond. The fraction is carried in units of
/// 1/rate ns from packet to packet, so a backlog of a day ends to the nanosecond where
/// `8 * bytes / rate` says. Instants handed out are rounded up: nothing leaves early.
#[derive(Debug, Clone)]
pub struct Serialiser {
    rate_bit_s: u64,
    /// End of the last packet: whole nanoseconds, rounded down ...
    end_ns: Nanoseconds,
    /// ... and the rest, in 1/rate ns, below `rate_bit_s`.
    end_fraction: u64,
    /// Time without a packet up to the begin of the last one.
    idle_ns: Nanoseconds,
}

/// When a packet is being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// First instant at which the packet no longer waits.
    pub begin_ns: Nanoseconds,
    /// First instant at which its last bit has left.
    pub end_ns: Nanoseconds,
}

impl Serialiser {
    /// A transmitter idle from `start_ns` on. `rate_bit_s` must not be 0.
    #[must_use]
    pub fn new(rate_bit_s: u64, start_ns: Nanoseconds) -> Self {
        Self {
            rate_bit_s,
            end_ns: start_ns,
            end_fraction: 0,
            idle_ns: 0,
        }
    }

    /// First instant at which everything accepted so far has been sent.
    #[must_use]
    pub fn free_ns(&self) -> Nanoseconds {
        self.end_ns + u64::from(self.end_fraction > 0)
    }

    /// Send a packet of `bytes` that arrives at `now`, after those before it.
    pub fn send(&mut self, now: Nanoseconds, bytes: u32) -> Slot {
        let free_ns = self.free_ns();
        let begin_ns = free_ns.max(now);
        if now >= free_ns {
            self.idle_ns += now - free_ns;
            self.end_ns = now;
            self.end_fraction = 0;
        }
        // Below 2^32 * 8e9 + 1e12, which u64 does not hold for the largest u32: hence u128.
        let bit_ns =
            u128::from(bytes) * u128::from(BIT_NS_PER_BYTE) + u128::from(self.end_fraction);
        let rate = u128::from(self.rate_bit_s);
        self.end_ns += (bit_ns / rate) as u64;
        self.end_fraction = (bit_ns % rate) as u64;
        Slot {
            begin_ns,
            end_ns: self.free_ns(),
        }
    }

    /// Time without a packet being sent, from the start to `now`.
    #[must_use]
    pub fn idle_ns(&self, now: Nanoseconds) -> Nanoseconds {
        self.idle_ns + now.saturating_sub(self.free_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_backlog_ends_to_the_nanosecond() {
        // 7 Mbit/s does not divide 8e9 * 1500: every packet leaves a fraction.
        let (rate, bytes) = (7_000_000, 1500_u32);
        let packets = 86_400 * rate / (8 * u64::from(bytes));
        let mut serialiser = Serialiser::new(rate, 0);
        let mut end_ns = 0;
        for _ in 0..packets {
            end_ns = serialiser.send(0, bytes).end_ns;
        }
        let exact = u128::from(packets) * u128::from(bytes) * 8_000_000_000;
        assert_eq!(u128::from(end_ns), exact.div_ceil(u128::from(rate)));
    }

    #[test]
    fn idle_time_is_what_passes_between_packets() {
        let mut serialiser = Serialiser::new(8_000_000, 1000);
        assert_eq!(serialiser.send(2000, 1).end_ns, 3000);
        assert_eq!(
            serialiser.send(2500, 1),
            Slot {
                begin_ns: 3000,
                end_ns: 4000
            }
        );
        assert_eq!(serialiser.idle_ns(3500), 1000);
        assert_eq!(serialiser.idle_ns(9000), 1000 + 5000);
        serialiser.send(9000, 1);
        assert_eq!(serialiser.idle_ns(9500), 6000);
    }
}
