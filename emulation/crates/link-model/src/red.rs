// SPDX-License-Identifier: Apache-2.0
//! Random early detection: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance",
//! 1993, with the queue in bytes and the probability per packet, as Linux's `sch_red` has them.

use crate::{Nanoseconds, SplitMix64};
use std::ops::Range;

/// A packet arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// Bytes waiting, its own not included.
    pub(crate) queue_bytes: u64,
    /// For how long the queue has been empty; 0 if it is not.
    pub(crate) empty_ns: Nanoseconds,
    /// The transmission time of its bytes at the present rate: the time in which the average sees one empty queue
    /// while nobody arrives. 0: none.
    pub(crate) sending_ns: Nanoseconds,
}

/// The moving average and the way to the next drop.
#[derive(Debug, Clone)]
pub(crate) struct Red {
    thresholds_bytes: Range<u64>,
    max_probability: f64,
    weight: f64,
    random: SplitMix64,
    average_bytes: f64,
    /// Arrivals above the lower threshold since the last drop; None: the average is below.
    count: Option<u32>,
}

impl Red {
    pub(crate) fn new(
        thresholds_bytes: Range<u64>,
        max_probability: f64,
        weight: f64,
        random: SplitMix64,
    ) -> Self {
        Self {
            thresholds_bytes,
            max_probability,
            weight,
            random,
            average_bytes: 0.0,
            count: None,
        }
    }

    /// Whether it is dropped.
    pub(crate) fn refuses(&mut self, arrival: &Arrival) -> bool {
        if arrival.queue_bytes > 0 {
            self.average_bytes += self.weight * (arrival.queue_bytes as f64 - self.average_bytes);
        } else {
            // At least this arrival itself sees the queue empty.
            let arrivals = (arrival.empty_ns as f64 / arrival.sending_ns.max(1) as f64).max(1.0);
            self.average_bytes *= libm::pow(1.0 - self.weight, arrivals);
        }
        let Range { start, end } = &self.thresholds_bytes;
        let (min, max) = (*start as f64, *end as f64);
        if self.average_bytes < min {
            self.count = None;
            return false;
        }
        if self.average_bytes >= max {
            self.count = Some(0);
            return true;
        }
        // Between drops there are then 1 to 1/probability arrivals, evenly distributed.
        let count = self.count.map_or(0, |count| count + 1);
        let probability = self.max_probability * (self.average_bytes - min) / (max - min);
        let denominator = 1.0 - f64::from(count) * probability;
        let refused = denominator <= 0.0 || self.random.chance(probability / denominator);
        self.count = Some(if refused { 0 } else { count });
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn red() -> Red {
        Red::new(30_000..90_000, 0.1, 0.002, SplitMix64::new(1, 0))
    }

    fn arrival(queue_bytes: u64) -> Arrival {
        Arrival {
            queue_bytes,
            empty_ns: 0,
            sending_ns: 750_000,
        }
    }

    /// Share of drops once the average has settled at `queue_bytes`.
    fn share(queue_bytes: u64) -> f64 {
        let mut red = red();
        for _ in 0..10_000 {
            red.refuses(&arrival(queue_bytes));
        }
        let drops = (0..100_000).filter(|_| red.refuses(&arrival(queue_bytes)));
        drops.count() as f64 / 100_000.0
    }

    #[test]
    fn drops_grow_with_the_average_between_the_thresholds() {
        assert!(share(29_000).abs() < f64::EPSILON);
        assert!((share(90_100) - 1.0).abs() < f64::EPSILON);
        // Evenly between 1 and 1/p arrivals from drop to drop: 2p / (1 + p) in the mean.
        for (queue_bytes, probability) in [(60_000, 0.05), (75_000, 0.075)] {
            let expected = 2.0 * probability / (1.0 + probability);
            let found = share(queue_bytes);
            assert!(
                (found - expected).abs() < 0.1 * expected,
                "{queue_bytes}: {found}"
            );
        }
    }

    #[test]
    fn a_burst_into_an_empty_queue_passes_and_idle_time_is_forgotten_in() {
        let mut red = red();
        assert!((0..50).all(|packet| !red.refuses(&arrival(packet * 1500))));
        for _ in 0..10_000 {
            red.refuses(&arrival(80_000));
        }
        let after_a_pause = Arrival {
            queue_bytes: 0,
            empty_ns: 2_000_000_000,
            sending_ns: 750_000,
        };
        assert!(!red.refuses(&after_a_pause));
        assert!(red.average_bytes < 1000.0);
    }
}
