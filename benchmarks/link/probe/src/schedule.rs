// SPDX-License-Identifier: Apache-2.0
//! When the frames of a flow are due.

use crate::config::{Flow, Gaps};
use atoll_random::SplitMix64;
use std::time::Duration;

/// Instants, one a frame, in order.
#[derive(Debug)]
pub(crate) struct Schedule {
    start_ns: u64,
    packet_bits: u32,
    rate_bit_s: u64,
    gaps: Gaps,
    random: SplitMix64,
    frame: u64,
    offset_ns: u64,
}

impl Schedule {
    /// The first frame at `start_ns`.
    pub(crate) fn new(flow: &Flow, start_ns: u64) -> Self {
        Self {
            start_ns,
            packet_bits: 8 * flow.packet_bytes,
            rate_bit_s: flow.rate_bit_s,
            gaps: flow.gaps,
            random: SplitMix64::new(flow.seed, 0),
            frame: 0,
            offset_ns: 0,
        }
    }

    /// When the present frame is due.
    pub(crate) fn due_ns(&self) -> u64 {
        self.start_ns + self.offset_ns
    }

    /// Go on to the next frame.
    pub(crate) fn advance(&mut self) {
        self.frame += 1;
        match self.gaps {
            Gaps::Even => {
                // From the beginning: a sum of gaps would gather rounding errors.
                let bits = u128::from(self.frame) * u128::from(self.packet_bits);
                self.offset_ns = (bits * 1_000_000_000 / u128::from(self.rate_bit_s)) as u64;
            }
            Gaps::Exponential => {
                let mean_s = f64::from(self.packet_bits) / self.rate_bit_s as f64;
                let gap = Duration::from_secs_f64(-self.random.unit().ln() * mean_s);
                self.offset_ns += gap.as_nanos() as u64;
            }
        }
    }

    /// Move this frame and all that follow by `later_ns`.
    pub(crate) fn shift(&mut self, later_ns: u64) {
        self.start_ns += later_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(gaps: &str) -> Flow {
        let text = format!(
            r#"{{"port":{{"interface":"a"}},"packet_bytes":1500,"rate_bit_s":16000000,"count":1,"gaps":"{gaps}"}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn instants(gaps: &str, count: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(&flow(gaps), 1000);
        (0..count)
            .map(|_| {
                let due = schedule.due_ns();
                schedule.advance();
                due
            })
            .collect()
    }

    #[test]
    fn even_gaps_are_what_the_rate_says() {
        assert_eq!(instants("even", 3), [1000, 751_000, 1_501_000]);
    }

    #[test]
    fn exponential_gaps_have_that_mean_and_spread() {
        let instants = instants("exponential", 20_001);
        let mean_ns = (instants[20_000] - instants[0]) as f64 / 20_000.0;
        assert!((mean_ns / 750_000.0 - 1.0).abs() < 0.03, "{mean_ns}");
        let short = instants
            .windows(2)
            .filter(|pair| pair[1] - pair[0] < 75_000);
        let share = short.count() as f64 / 20_000.0;
        assert!((share - 0.095).abs() < 0.01, "{share}"); // 1 - exp(-0.1)
    }

    #[test]
    fn a_shift_moves_what_is_to_come() {
        let mut schedule = Schedule::new(&flow("even"), 0);
        schedule.advance();
        schedule.shift(5);
        assert_eq!(schedule.due_ns(), 750_005);
    }
}
