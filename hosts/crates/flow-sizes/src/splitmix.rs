// SPDX-License-Identifier: Apache-2.0
//! Counter-based random numbers: the `SplitMix64` finaliser, chained over the coordinates of a draw.
//!
//! Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, with the
//! constants of Stafford's Mix13. Each step adds the golden ratio before mixing, so that no coordinate of
//! zero is a fixed point, and multiplies nothing in that another coordinate could cancel.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

const fn absorb(state: u64, coordinate: u64) -> u64 {
    mix((state ^ coordinate).wrapping_add(GOLDEN))
}

/// Independent uniform 64-bit numbers for one flow: of its server, its size, its wait.
pub(crate) const fn draws(seed: u64, channel: u64, flow: u64) -> [u64; 3] {
    let state = absorb(absorb(absorb(0, seed), channel), flow);
    [
        mix(state.wrapping_add(GOLDEN)),
        mix(state.wrapping_add(GOLDEN.wrapping_mul(2))),
        mix(state.wrapping_add(GOLDEN.wrapping_mul(3))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixing_is_splitmix64() {
        // First outputs of SplitMix64 seeded with 1234567 (the reference implementation's test vector).
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        let mut state = 1_234_567_u64;
        for value in expected {
            state = state.wrapping_add(GOLDEN);
            assert_eq!(mix(state), value);
        }
    }
}
