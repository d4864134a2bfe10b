// SPDX-License-Identifier: Apache-2.0
//! A Markov chain of losses, and what an ideal code leaves of them.

/// The two-state chain of Gilbert ("Capacity of a burst-noise channel", 1960): every packet is lost in its bad state and
/// none in its good one. With `to_bad + to_good` = 1, losses are independent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossChain {
    /// Probability that the packet after one that arrived is lost.
    pub to_bad: f64,
    /// Probability that the packet after a lost one arrives: bursts last 1 / `to_good` packets in the mean.
    pub to_good: f64,
}

impl LossChain {
    /// The most probable chain for `packets` of which `lost` were lost in `bursts`: a burst begins after one of the packets
    /// that arrived, and ends after one that was lost (Jiang and Schulzrinne, "Modeling of packet loss and delay and their
    /// effect on real-time multimedia service quality", 2000).
    ///
    /// Without losses it is the chain of half a burst of one packet. Anything but a number counts as 0.
    #[must_use]
    pub fn of_bursts(packets: f64, lost: f64, bursts: f64) -> Self {
        const LEAST: f64 = 0.5;
        let bursts = bursts.max(LEAST);
        let lost = lost.max(bursts);
        let arrived = (packets - lost).max(bursts);
        Self {
            to_bad: bursts / arrived,
            to_good: bursts / lost,
        }
    }

    /// The share of packets that are lost.
    #[must_use]
    pub fn loss(&self) -> f64 {
        let changes = self.to_bad + self.to_good;
        if changes > 0.0 {
            self.to_bad / changes
        } else {
            0.0
        }
    }

    /// The chain of every `distance`-th packet.
    #[must_use]
    pub fn subsampled(&self, distance: u16) -> Self {
        let loss = self.loss();
        let correlation = (0..distance).fold(1.0, |product, _| {
            product * (1.0 - self.to_bad - self.to_good)
        });
        Self {
            to_bad: loss * (1.0 - correlation),
            to_good: (1.0 - loss) * (1.0 - correlation),
        }
    }

    /// The residual loss with 0, 1, ... `most` repair packets: the mean share of a generation's `size` packets that are
    /// lost and not recovered by an ideal code (MDS), of which any `size` packets decode.
    ///
    /// The packets are `depth` apart, because so many generations take turns; repair packets follow the last one. Exact for
    /// this chain: the probability of each number of losses follows by recursion over the packets (Elliott, "Estimates of
    /// error rates for codes on burst-noise channels", 1963).
    #[must_use]
    pub fn residual(&self, size: u16, depth: u16, most: u16) -> Vec<f64> {
        let mut losses = Losses::of_one_packet(self.loss(), most);
        let spaced = self.subsampled(depth.max(1));
        for _ in 1..size {
            losses.step(spaced);
        }
        let lost = self.loss() * f64::from(size);
        // From here on only repair packets: what counts is how many of the packets before were lost.
        losses.weigh_by_number();
        let mut residual = Vec::with_capacity(usize::from(most) + 1);
        for repairs in 0..=most {
            if repairs > 0 {
                losses.step(*self);
            }
            let recovered = losses.up_to(repairs);
            residual.push(((lost - recovered) / f64::from(size)).max(0.0));
        }
        residual
    }
}

/// The probability of each number of losses up to a limit, with the last packet arrived or lost.
struct Losses(Vec<[f64; 2]>);

impl Losses {
    /// Those of one packet.
    fn of_one_packet(loss: f64, most: u16) -> Self {
        let mut losses = vec![[0.0; 2]; usize::from(most) + 1];
        losses[0][0] = 1.0 - loss;
        if let Some(one_lost) = losses.get_mut(1) {
            one_lost[1] = loss;
        }
        Self(losses)
    }

    /// With one more packet.
    fn step(&mut self, chain: LossChain) {
        let mut fewer = [0.0; 2]; // of one loss less, before this packet
        for each in &mut self.0 {
            let before = *each;
            each[0] = before[0] * (1.0 - chain.to_bad) + before[1] * chain.to_good;
            each[1] = fewer[0] * chain.to_bad + fewer[1] * (1.0 - chain.to_good);
            fewer = before;
        }
    }

    fn weigh_by_number(&mut self) {
        for (number, each) in self.0.iter_mut().enumerate() {
            *each = each.map(|probability| probability * number as f64);
        }
    }

    fn up_to(&self, number: u16) -> f64 {
        let counted = &self.0[..=usize::from(number)];
        counted.iter().flatten().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-12 + 1e-9 * other.abs()
    }

    /// The residual loss by adding up all ways in which packets can be lost.
    fn by_enumeration(chain: LossChain, size: u16, depth: u16, repairs: u16) -> f64 {
        let count = u32::from(size + repairs);
        let mut sum = 0.0;
        for fates in 0..1_u32 << count {
            let lost = |at: u32| fates >> at & 1 == 1;
            let mut probability = if lost(0) {
                chain.loss()
            } else {
                1.0 - chain.loss()
            };
            for at in 1..count {
                let step = if at < u32::from(size) {
                    chain.subsampled(depth)
                } else {
                    chain
                };
                probability *= match (lost(at - 1), lost(at)) {
                    (false, true) => step.to_bad,
                    (false, false) => 1.0 - step.to_bad,
                    (true, false) => step.to_good,
                    (true, true) => 1.0 - step.to_good,
                };
            }
            if fates.count_ones() > u32::from(repairs) {
                let own = fates & ((1 << size) - 1);
                sum += probability * f64::from(own.count_ones());
            }
        }
        sum / f64::from(size)
    }

    #[test]
    fn independent_losses_are_a_chain_without_memory() {
        let chain = LossChain::of_bursts(1000.0, 100.0, 90.0);
        assert!(close(chain.to_bad, 0.1) && close(chain.to_good, 0.9));
        assert_eq!(chain.subsampled(7).residual(5, 1, 0).len(), 1);
        assert!(close(chain.subsampled(7).to_bad, 0.1));
    }

    #[test]
    fn without_losses_there_is_little_to_expect() {
        let chain = LossChain::of_bursts(10_000.0, 0.0, 0.0);
        assert!(chain.loss() < 1e-4);
        assert!(LossChain::of_bursts(0.0, 0.0, 0.0).loss() <= 0.5);
    }

    proptest! {
        #[test]
        fn the_residual_loss_is_exact(
            to_bad in 0.001..1.0_f64, to_good in 0.01..1.0_f64, size in 2..7_u16, depth in 1..4_u16, most in 0..6_u16,
        ) {
            let chain = LossChain { to_bad, to_good };
            let found = chain.residual(size, depth, most);
            for repairs in 0..=most {
                let exact = by_enumeration(chain, size, depth, repairs);
                prop_assert!(close(found[usize::from(repairs)], exact), "{found:?} {repairs} {exact}");
            }
            prop_assert!(close(found[0], chain.loss()));
        }

        /// With packets far apart, losses are independent, and there is no more loss than without repair packets.
        #[test]
        fn more_repair_packets_leave_less(
            to_bad in 0.0001..0.5_f64, to_good in 0.05..1.0_f64, size in 2..100_u16, depth in 1..20_u16,
        ) {
            let found = LossChain { to_bad, to_good }.residual(size, depth, 40);
            prop_assert!(found.windows(2).all(|pair| pair[1] <= pair[0] + 1e-12));
            prop_assert!(found.iter().all(|share| (0.0..=1.0).contains(share)));
        }

        #[test]
        fn any_counts_give_probabilities(packets in -1.0..1e12_f64, lost in -1.0..1e12_f64, bursts in -1.0..1e12_f64) {
            let chain = LossChain::of_bursts(packets, lost, bursts);
            prop_assert!((0.0..=1.0).contains(&chain.to_bad) && (0.0..=1.0).contains(&chain.to_good));
        }
    }
}
