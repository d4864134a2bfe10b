// SPDX-License-Identifier: Apache-2.0
//! Fairness among the channels of a process: Jain's index over their shares of completed bytes.
//!
//! Channels ask for different things: under heavy-tailed flow sizes one may spend the whole run on a single flow, while
//! another completes hundreds. So completions are normalised by size and by time. Flows are put into classes of size, a
//! power of two each. Of class k all channels together spent T(k) ns on flows and completed N(k) of them: such a flow
//! takes T(k) / N(k) here. A channel c that completed n(c, k) of them while it spent t(c) ns on flows of any size has
//!
//! ```text
//! x(c) = sum over k of n(c, k) * T(k) / N(k), divided by t(c)
//! ```
//!
//! which is 1 when its flows took as long as flows of their size do, 1/2 when they took twice as long, and 0 when it
//! completed nothing. A flow that the end of the run cuts off counts by the share of its bytes that came, a failed one
//! as nothing; both take time, and so does the pause after a failure, of its channel. The index is J = (sum x)^2 / (n * sum x^2) over the channels that began a flow: 1 when all
//! got on alike, and m / n when m of n did and the others starved. Source: Jain, Chiu, Hawe, DEC TR-301, 1984.

/// Powers of two below the largest size that a distribution may hold, 2^53 bytes.
const SIZE_CLASSES: usize = 54;

/// Counters of one channel.
#[derive(Clone, Debug)]
struct ChannelShare {
    /// Flows completed, by class of size.
    completed: [f32; SIZE_CLASSES],
    spent_ns: u64,
}

/// Counters of the channels of a process.
#[derive(Debug)]
pub struct ChannelShares {
    channels: Vec<ChannelShare>,
    spent_ns: [u64; SIZE_CLASSES],
}

impl ChannelShares {
    /// Of channels 0 to `channels` - 1, which have done nothing.
    pub fn new(channels: usize) -> Self {
        let empty = ChannelShare {
            completed: [0.0; SIZE_CLASSES],
            spent_ns: 0,
        };
        Self {
            channels: vec![empty; channels],
            spent_ns: [0; SIZE_CLASSES],
        }
    }

    /// A flow of `size_bytes` of `channel` is over after `spent_ns`; `completed`: 1 if all of it came, less if the run
    /// ended before, 0 if it failed.
    pub fn ended(&mut self, channel: usize, size_bytes: u64, completed: f32, spent_ns: u64) {
        let class = size_bytes.max(1).ilog2().min(SIZE_CLASSES as u32 - 1) as usize;
        let spent_ns = spent_ns.max(1); // a flow that failed at once was begun, too
        let share = &mut self.channels[channel];
        share.completed[class] += completed;
        share.spent_ns += spent_ns;
        self.spent_ns[class] += spent_ns;
    }

    /// `channel` waits `pause_ns` before its next flow because one has failed.
    pub fn record_pause(&mut self, channel: usize, pause_ns: u64) {
        self.channels[channel].spent_ns += pause_ns;
    }

    /// Jain's index; None if no channel completed anything.
    pub fn fairness(&self) -> Option<f64> {
        let mean_ns: [f64; SIZE_CLASSES] = std::array::from_fn(|class| {
            let completed: f64 = self
                .channels
                .iter()
                .map(|share| f64::from(share.completed[class]))
                .sum();
            if completed > 0.0 {
                self.spent_ns[class] as f64 / completed
            } else {
                0.0
            }
        });
        let active = self.channels.iter().filter(|share| share.spent_ns > 0);
        let (count, sum, squares) = active
            .map(|share| share.progress(&mean_ns))
            .fold((0.0, 0.0, 0.0), |(count, sum, squares), x| {
                (count + 1.0, sum + x, squares + x * x)
            });
        (squares > 0.0).then(|| sum * sum / (count * squares))
    }
}

impl ChannelShare {
    /// x of the definition above.
    fn progress(&self, mean_ns: &[f64; SIZE_CLASSES]) -> f64 {
        let earned_ns: f64 = self
            .completed
            .iter()
            .zip(mean_ns)
            .map(|(&completed, mean_ns)| f64::from(completed) * mean_ns)
            .sum();
        earned_ns / self.spent_ns as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN_NS: u64 = 60_000_000_000;

    fn fairness(ended: impl IntoIterator<Item = (usize, u64, f32, u64)>, channels: usize) -> f64 {
        let mut shares = ChannelShares::new(channels);
        for (channel, size_bytes, completed, spent_ns) in ended {
            shares.ended(channel, size_bytes, completed, spent_ns);
        }
        shares.fairness().unwrap()
    }

    /// `flows` flows of 10 kB in the whole run, or none in it.
    fn served(channel: usize, flows: u64) -> Vec<(usize, u64, f32, u64)> {
        match flows {
            0 => vec![(channel, 10_000, 0.0, RUN_NS)],
            _ => vec![(channel, 10_000, 1.0, RUN_NS / flows); flows as usize],
        }
    }

    #[test]
    fn where_m_of_n_are_served_it_is_m_of_n() {
        for (m, n) in [(1, 40), (20, 40), (39, 40), (40, 40)] {
            let found = fairness(
                (0..n).flat_map(|c| served(c, if c < m { 100 } else { 0 })),
                n,
            );
            let expected = m as f64 / n as f64;
            assert!((found - expected).abs() < 1e-6, "{m} of {n}: {found}");
        }
    }

    #[test]
    fn a_channel_that_is_served_ten_times_less_often_is_seen() {
        // (sum x)^2 / (n * sum x^2) of nine times 100 and once 10.
        let found = fairness(
            (0..10).flat_map(|c| served(c, if c < 9 { 100 } else { 10 })),
            10,
        );
        assert!(
            (found - 910.0_f64.powi(2) / (10.0 * 90_100.0)).abs() < 1e-6,
            "{found}"
        );
    }

    #[test]
    fn heavy_tailed_demand_is_not_unfairness() {
        // A fourth channel is in the midst of 800 MB: 200 times as long and more than a flow of the others.
        let small = (0..3).flat_map(|c| served(c, 200));
        let found = fairness(small.chain([(3, 800_000_000, 0.02, RUN_NS)]), 4);
        assert!((found - 1.0).abs() < 1e-6, "{found}");
    }

    #[test]
    fn of_two_large_flows_the_one_that_got_nothing_is_seen() {
        let large = [
            (0, 800_000_000, 0.04, RUN_NS),
            (1, 800_000_001, 0.0, RUN_NS),
        ];
        assert!((fairness(large, 2) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn channels_without_a_flow_do_not_count_and_without_any_completion_there_is_no_figure() {
        assert!((fairness(served(0, 5), 3) - 1.0).abs() < 1e-6);
        let mut shares = ChannelShares::new(2);
        assert_eq!(shares.fairness(), None);
        shares.ended(0, 1 << 60, 0.0, 0);
        assert_eq!(shares.fairness(), None);
    }
}
