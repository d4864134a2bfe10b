// SPDX-License-Identifier: Apache-2.0
//! A small seeded generator, the same on every machine and in every version.

/// `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
///
/// Enough for jitter: period 2^64, passes `BigCrush`, and eleven lines that will not change under us.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The generator of one purpose: `stream` tells apart those that share a `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut parent = Self { state: seed };
        Self {
            state: parent.next_u64() ^ Self { state: stream }.next_u64(),
        }
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
}
