// SPDX-License-Identifier: Apache-2.0
//! Repair packets of a generation, by what the receiver reports.

use crate::bursts::LossSums;
use crate::loss_chain::LossChain;

/// Bursts after which the estimate has forgotten half of what was before, and those of the one that notices changes.
const LONG_BURSTS: f64 = 400.0;
const SHORT_BURSTS: f64 = 20.0;
/// Packets of the second one at most: after a long time without losses, it notices the first ones.
const SHORT_PACKETS: f64 = 5000.0;
/// Square roots of the expected number by which the two may differ: more bursts, and fewer. The number is no less than 1 then.
const MORE_DEVIATIONS: f64 = 4.0;
const FEWER_DEVIATIONS: f64 = 3.0;
/// Standard deviations by which their mean lengths may differ.
const LENGTH_DEVIATIONS: f64 = 4.0;
/// Repair packets become fewer if the residual loss is then below this share of the target: without a margin, their number
/// would follow the noise of the estimate.
const RESIDUAL_MARGIN: f64 = 0.7;

/// What is to be reached, and with what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Packets of a generation.
    pub size: u16,
    /// Generations that take turns.
    pub depth: u16,
    /// The most repair packets of a generation.
    pub most: u16,
    /// Repair packets of a generation without reports.
    pub fallback: u16,
    /// The share of packets that may stay lost, above 0.
    pub residual: f64,
    /// After this time without an answer to packets, there are no reports.
    pub timeout_ns: u64,
}

/// Takes the fewest repair packets with which the residual loss is below the target.
///
/// The losses are those of the [`LossChain`] that fits the last bursts. Two estimates are kept: one of about 400 bursts, and
/// one of about 20, which replaces the first one when they contradict each other.
#[derive(Debug, Clone)]
pub struct AdaptiveRedundancy {
    target: Target,
    long: Memory,
    short: Memory,
    /// The sums of the last report.
    last_sums: LossSums,
    /// Found by the last report; `None` before there is evidence.
    adapted: Option<u16>,
    /// When the first packet since the last report was sent.
    unanswered_ns: Option<u64>,
    in_use: u16,
    is_fallback: bool,
    changes: u64,
    fallbacks: u64,
}

/// Sums that forget.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    packets: f64,
    lost: f64,
    bursts: f64,
}

impl Memory {
    /// `share`: how much of the memory this fills.
    fn add(&mut self, new: Memory, share: f64) {
        let remaining = 1.0 / (1.0 + share);
        self.packets = self.packets * remaining + new.packets;
        self.lost = self.lost * remaining + new.lost;
        self.bursts = self.bursts * remaining + new.bursts;
    }

    fn chain(&self) -> LossChain {
        LossChain::of_bursts(self.packets, self.lost, self.bursts)
    }

    /// The bursts expected among `packets`, by what is remembered.
    fn expected_bursts(&self, packets: f64) -> f64 {
        if self.packets > 0.0 {
            packets * self.bursts / self.packets
        } else {
            0.0
        }
    }

    /// Whether `recent` has other bursts than this, in number or in length.
    fn is_contradicted_by(&self, recent: &Memory) -> bool {
        let expected = self.expected_bursts(recent.packets);
        let deviation = expected.max(1.0).sqrt();
        let differs = recent.bursts > expected + MORE_DEVIATIONS * deviation
            || recent.bursts < expected - FEWER_DEVIATIONS * deviation;
        let length = |memory: &Memory| memory.lost / memory.bursts.max(1.0);
        let (mean, recent_mean) = (length(self), length(recent));
        let length_deviation = mean.max(1.0) / recent.bursts.max(1.0).sqrt();
        let are_enough = self.bursts >= 1.0 && recent.bursts >= 3.0;
        differs || (are_enough && (recent_mean - mean).abs() > LENGTH_DEVIATIONS * length_deviation)
    }
}

impl AdaptiveRedundancy {
    /// Nothing is known yet: the fallback is in use.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            long: Memory::default(),
            short: Memory::default(),
            last_sums: LossSums::default(),
            adapted: None,
            unanswered_ns: None,
            in_use: target.fallback,
            is_fallback: true,
            changes: 0,
            fallbacks: 0,
        }
    }

    /// A packet was sent, which the receiver will report.
    pub fn sent(&mut self, now_ns: u64) {
        self.unanswered_ns.get_or_insert(now_ns);
    }

    /// The receiver reported its sums since its start.
    pub fn learn(&mut self, now_ns: u64, sums: LossSums) {
        self.unanswered_ns = None;
        let last = std::mem::replace(&mut self.last_sums, sums);
        self.remember(Memory {
            packets: sums.packets().saturating_sub(last.packets()) as f64,
            lost: sums.lost.saturating_sub(last.lost) as f64,
            bursts: sums.bursts().saturating_sub(last.bursts()) as f64,
        });
        self.update(now_ns);
    }

    /// The receiver begins again: its sums begin at 0. What they said of the losses is still true.
    pub fn restart(&mut self) {
        self.last_sums = LossSums::default();
    }

    /// Repair packets of a generation at present.
    pub fn repairs(&mut self, now_ns: u64) -> u16 {
        self.update(now_ns);
        self.in_use
    }

    /// Whether the fallback is in use.
    #[must_use]
    pub fn is_fallback(&self) -> bool {
        self.is_fallback
    }

    /// How often the number of repair packets has changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How often reports ended.
    #[must_use]
    pub fn fallbacks(&self) -> u64 {
        self.fallbacks
    }

    /// The losses that are expected.
    #[must_use]
    pub fn chain(&self) -> LossChain {
        self.long.chain()
    }

    fn remember(&mut self, new: Memory) {
        let bursts = new.bursts.max(self.long.expected_bursts(new.packets));
        self.long.add(new, bursts / LONG_BURSTS);
        let share = (bursts / SHORT_BURSTS).max(new.packets / SHORT_PACKETS);
        self.short.add(new, share);
        if self.long.is_contradicted_by(&self.short) {
            self.long = self.short;
        }
        // A share cannot be judged by fewer packets than it takes to have one.
        if self.long.packets * self.target.residual >= 1.0 {
            self.adapted = Some(self.fitting(self.adapted.unwrap_or(self.target.fallback)));
        }
    }

    /// The number of repair packets that reaches the target: `present`, if it does with little to spare.
    fn fitting(&self, present: u16) -> u16 {
        let Target { most, residual, .. } = self.target;
        let residuals = (self.chain()).residual(self.target.size, self.target.depth, most);
        let least = |limit: f64| {
            let repairs = residuals.iter().position(|share| *share <= limit);
            repairs.map_or(most, |repairs| repairs as u16)
        };
        present.clamp(least(residual), least(residual * RESIDUAL_MARGIN))
    }

    fn update(&mut self, now_ns: u64) {
        let has_ended = (self.unanswered_ns)
            .is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= self.target.timeout_ns);
        let adapted = self.adapted.filter(|_| !has_ended);
        self.fallbacks += u64::from(adapted.is_none() && !self.is_fallback);
        self.is_fallback = adapted.is_none();
        let wanted = adapted.unwrap_or(self.target.fallback);
        self.changes += u64::from(wanted != self.in_use);
        self.in_use = wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bursts::{BurstCounter, NUMBER_MODULUS};
    use atoll_random::SplitMix64;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const TARGET: Target = Target {
        size: 30,
        depth: 1,
        most: 30,
        fallback: 3,
        residual: 0.001,
        timeout_ns: 3 * SECOND_NS,
    };
    /// Packets between two reports.
    const EVERY: u32 = 140;

    /// A path with a chain's losses, whose receiver reports every 140 packets, a tenth of a second.
    struct Path {
        draws: SplitMix64,
        is_lost: bool,
        number: u16,
        counter: BurstCounter,
        now_ns: u64,
    }

    impl Path {
        fn new(seed: u64) -> Self {
            Self {
                draws: SplitMix64::new(seed, 0),
                is_lost: false,
                number: 0,
                counter: BurstCounter::default(),
                now_ns: 0,
            }
        }

        /// The repair packets in use after each report.
        fn run(
            &mut self,
            sender: &mut AdaptiveRedundancy,
            chain: LossChain,
            reports: u32,
        ) -> Vec<u16> {
            let report = |_| {
                for _ in 0..EVERY {
                    sender.sent(self.now_ns);
                    let moves = if self.is_lost {
                        chain.to_good
                    } else {
                        chain.to_bad
                    };
                    self.is_lost ^= self.draws.chance(moves);
                    if !self.is_lost {
                        self.counter.arrived(self.number);
                    }
                    self.number = (self.number + 1) % NUMBER_MODULUS;
                }
                self.now_ns += SECOND_NS / 10;
                sender.learn(self.now_ns, self.counter.sums());
                sender.repairs(self.now_ns)
            };
            (0..reports).map(report).collect()
        }
    }

    fn needed(chain: LossChain) -> u16 {
        let left = chain.residual(TARGET.size, TARGET.depth, TARGET.most);
        left.iter()
            .position(|share| *share <= TARGET.residual)
            .unwrap_or(usize::from(TARGET.most)) as u16
    }

    const NONE: LossChain = LossChain {
        to_bad: 0.0,
        to_good: 1.0,
    };

    #[test]
    fn repair_packets_follow_the_losses_up_and_down() {
        let bursts = LossChain {
            to_bad: 0.01,
            to_good: 0.3,
        };
        for seed in 0..5 {
            let (mut path, mut sender) = (Path::new(seed), AdaptiveRedundancy::new(TARGET));
            let quiet = path.run(&mut sender, NONE, 600);
            assert_eq!(quiet[0], TARGET.fallback, "there is no evidence yet");
            assert_eq!(quiet[20..], [0; 580], "nothing to repair");
            let rises = path.run(&mut sender, bursts, 600);
            let (least, most) = (needed(bursts) - 4, needed(bursts) + 5);
            assert!(rises[10] > 3, "within a second: {rises:?}");
            assert!(
                rises[60..].iter().all(|w| (least..=most).contains(w)),
                "{least} {most} {rises:?}"
            );
            let falls = path.run(&mut sender, NONE, 600);
            assert!(falls[400] <= 2, "{falls:?}");
        }
    }

    #[test]
    fn under_constant_losses_they_hardly_change() {
        for chain in [
            LossChain {
                to_bad: 0.02,
                to_good: 0.98,
            },
            LossChain {
                to_bad: 0.004,
                to_good: 0.25,
            },
        ] {
            for seed in 0..5 {
                let (mut path, mut sender) = (Path::new(seed), AdaptiveRedundancy::new(TARGET));
                path.run(&mut sender, chain, 1000);
                let used = path.run(&mut sender, chain, 4000);
                let mean = used.iter().map(|w| f64::from(*w)).sum::<f64>() / used.len() as f64;
                let (low, high) = (used.iter().min(), used.iter().max());
                assert!(
                    (mean - f64::from(needed(chain))).abs() <= 2.5,
                    "{mean} {}",
                    needed(chain)
                );
                assert!(
                    high.zip(low).is_some_and(|(high, low)| high - low <= 5),
                    "{low:?} {high:?}"
                );
            }
        }
    }

    #[test]
    fn without_reports_the_fallback_holds_until_there_is_one() {
        let (mut path, mut sender) = (Path::new(1), AdaptiveRedundancy::new(TARGET));
        let used = path.run(
            &mut sender,
            LossChain {
                to_bad: 0.01,
                to_good: 0.3,
            },
            100,
        );
        let adapted = used[99];
        assert!(adapted > TARGET.fallback && !sender.is_fallback());
        let idle_ns = path.now_ns + 100 * SECOND_NS;
        assert_eq!(
            sender.repairs(idle_ns),
            adapted,
            "nothing was sent that could be reported"
        );
        sender.sent(idle_ns);
        sender.sent(idle_ns + SECOND_NS);
        assert_eq!(sender.repairs(idle_ns + TARGET.timeout_ns - 1), adapted);
        assert_eq!(sender.repairs(idle_ns + TARGET.timeout_ns), TARGET.fallback);
        assert_eq!(sender.fallbacks(), 1);
        sender.learn(idle_ns + TARGET.timeout_ns, path.counter.sums());
        assert_eq!(
            (
                sender.repairs(idle_ns + TARGET.timeout_ns),
                sender.is_fallback()
            ),
            (adapted, false)
        );
    }

    #[test]
    fn a_receiver_that_begins_again_lost_nothing() {
        let (mut path, mut sender) = (Path::new(1), AdaptiveRedundancy::new(TARGET));
        path.run(&mut sender, NONE, 100);
        path.counter = BurstCounter::default();
        sender.restart();
        assert_eq!(path.run(&mut sender, NONE, 100), [0; 100]);
    }

    proptest! {
        /// Whatever the receiver says and when.
        #[test]
        fn there_are_never_more_than_the_most(
            said in proptest::collection::vec((0..10 * SECOND_NS, any::<[u64; 7]>(), any::<bool>()), 1..60),
            most in 0..40_u16,
        ) {
            let mut sender = AdaptiveRedundancy::new(Target { most, fallback: most.min(3), ..TARGET });
            let mut now_ns = 0;
            for (pause, [arrived, lost, runs @ ..], sends) in said {
                now_ns += pause;
                if sends {
                    sender.sent(now_ns);
                }
                sender.learn(now_ns, LossSums { arrived, lost, runs });
                prop_assert!(sender.repairs(now_ns) <= most);
            }
        }
    }
}
