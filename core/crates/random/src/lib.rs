// SPDX-License-Identifier: Apache-2.0
//! Seeded random numbers, the same on every machine and in every version.
//!
//! Logarithms and cosines come from `libm` and not from the machine. The sequences are a promise: runs are compared
//! across years by their seed.
#![forbid(unsafe_code)]

use std::f64::consts::TAU;

/// `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
///
/// Enough for jitter and loss: period 2^64, passes `BigCrush`, and few lines that will not change under us.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The generator of one purpose: `stream` separates generators that share a `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut parent = Self { state: seed };
        Self {
            state: parent.next_u64() ^ Self { state: stream }.next_u64(),
        }
    }

    /// The generator of one draw, named by its coordinates (seed, channel, flow): a counter-based generator, independent
    /// of the order in which draws are made.
    #[must_use]
    pub fn at(coordinates: &[u64]) -> Self {
        // Each step adds before it mixes, so that no coordinate of zero is a fixed point.
        let absorb = |state: u64, coordinate: &u64| {
            Self {
                state: state ^ coordinate,
            }
            .next_u64()
        };
        Self {
            state: coordinates.iter().fold(0, absorb),
        }
    }

    /// A generator of its own for another purpose of the same user; this one does not advance.
    #[must_use]
    pub fn fork(&self, purpose: u64) -> Self {
        Self::new(self.state, purpose)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A whole number from 0 to `max`, both included, uniform to within `max` / 2^64.
    pub fn up_to(&mut self, max: u64) -> u64 {
        ((u128::from(self.next_u64()) * (u128::from(max) + 1)) >> 64) as u64
    }

    /// A number between 0 and 1, neither included: one of 2^52 equidistant ones.
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Yes with this probability: never if it is 0, always if it is 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number from the normal distribution of mean 0 and standard deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.unit()));
        radius * libm::cos(TAU * self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut generator = SplitMix64 { state: 1_234_567 };
        assert_eq!(generator.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(generator.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let first = SplitMix64::new(1, 0).next_u64();
        assert_ne!(first, SplitMix64::new(1, 1).next_u64());
        assert_ne!(first, SplitMix64::new(2, 0).next_u64());
        assert_eq!(first, SplitMix64::new(1, 0).next_u64());
    }

    #[test]
    fn each_coordinate_and_its_position_change_a_draw() {
        let draw = |coordinates: &[u64]| SplitMix64::at(coordinates).next_u64();
        let drawn = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]].map(|each| draw(&each));
        for (index, one) in drawn.iter().enumerate() {
            assert!(!drawn[..index].contains(one));
        }
        assert_eq!(draw(&[1, 0, 0]), drawn[1]);
    }

    #[test]
    fn forks_differ_and_leave_their_parent_alone() {
        let mut parent = SplitMix64::new(1, 0);
        let [mut first, mut second] = [parent.fork(1), parent.fork(2)];
        assert_ne!(first.next_u64(), second.next_u64());
        assert_eq!(parent.next_u64(), SplitMix64::new(1, 0).next_u64());
    }

    #[test]
    fn normal_numbers_have_the_moments_and_tails_of_their_distribution() {
        let mut random = SplitMix64::new(1, 0);
        let count = 200_000;
        let drawn: Vec<f64> = (0..count).map(|_| random.normal()).collect();
        let count = f64::from(count);
        let moment = |power| drawn.iter().map(|number| number.powi(power)).sum::<f64>() / count;
        assert!(moment(1).abs() < 0.01);
        assert!((moment(2) - 1.0).abs() < 0.01);
        assert!((moment(4) - 3.0).abs() < 0.1);
        let beyond_two = drawn.iter().filter(|number| number.abs() > 2.0).count() as f64;
        assert!((beyond_two / count - 0.0455).abs() < 0.002);
    }

    #[test]
    fn certainty_is_certain() {
        let mut random = SplitMix64::new(1, 0);
        assert!((0..10_000).all(|_| random.chance(1.0) && !random.chance(0.0)));
    }
}
