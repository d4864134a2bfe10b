// SPDX-License-Identifier: Apache-2.0
//! One-way queueing delay between two clocks that are not set alike.

const MINUTE_NS: u64 = 60_000_000_000;
/// Minutes over which the least delay is that of the path (RFC 6817, `BASE_HISTORY`).
const MINUTES: usize = 10;

/// Takes the least difference of two clocks for the delay of the path without a queue, as LEDBAT does (RFC 6817).
#[derive(Debug, Clone, Default)]
pub struct QueueingDelay {
    /// The least of each minute, the newest last.
    least_ns: Vec<i128>,
    minute_from_ns: u64,
}

impl QueueingDelay {
    /// A packet was sent at `sent_ns` of the sender's clock, which is `now_ns` at present, and arrived at `arrived_ns` of
    /// the receiver's: how long it waited in queues.
    pub fn of(&mut self, now_ns: u64, sent_ns: u64, arrived_ns: u64) -> u64 {
        let delay_ns = i128::from(arrived_ns) - i128::from(sent_ns);
        match self.least_ns.last_mut() {
            Some(least) if now_ns.saturating_sub(self.minute_from_ns) < MINUTE_NS => {
                *least = delay_ns.min(*least);
            }
            _ => {
                self.minute_from_ns = now_ns;
                self.least_ns.push(delay_ns);
                if self.least_ns.len() > MINUTES {
                    self.least_ns.remove(0);
                }
            }
        }
        let least_ns = self.least_ns.iter().min().copied().unwrap_or(delay_ns);
        u64::try_from(delay_ns - least_ns).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_path_may_become_longer() {
        let mut delay = QueueingDelay::default();
        assert_eq!(delay.of(0, 100, 50), 0, "the other clock is behind");
        assert_eq!(delay.of(1, 200, 180), 30);
        for minute in 1..=10 {
            delay.of(minute * MINUTE_NS, 0, 30);
        }
        assert_eq!(delay.of(11 * MINUTE_NS, 0, 30), 0);
    }

    proptest! {
        /// Whatever the difference of the clocks.
        #[test]
        fn it_is_the_excess_over_the_least_delay(offset in 0..1_u64 << 63, waited in proptest::collection::vec(0..1_000_000_000_u64, 1..50)) {
            let mut delay = QueueingDelay::default();
            let mut least = u64::MAX;
            for (number, each) in waited.into_iter().enumerate() {
                let sent_ns = 1000 * number as u64;
                least = least.min(each);
                let arrived_ns = offset + sent_ns + each;
                prop_assert_eq!(delay.of(sent_ns, sent_ns, arrived_ns), each - least);
            }
        }

        #[test]
        fn no_instants_make_it_panic(instants: Vec<(u64, u64, u64)>) {
            let mut delay = QueueingDelay::default();
            for (now_ns, sent_ns, arrived_ns) in instants {
                delay.of(now_ns, sent_ns, arrived_ns);
            }
        }
    }
}
